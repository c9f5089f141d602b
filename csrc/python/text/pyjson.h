/*
 * pyjson.h - text on its way from the arena into private memory: declarations of its writers.
 *
 *   pyjson.c    values, containers, pages
 *   pyescape.c  strings that need escapes
 *   pyscalar.c  numbers
 *   pyout.c     the memory for the text
 *   pymemo.c    text that is copied instead of written again
 *
 * The current end of the text, `at`, is passed from call to call and stays in a register: kept in
 * memory, each byte written would wait for the one before it. Functions that write return the new
 * `at`, NULL with an exception set.
 *
 *   JSONTEXT1  after `at` there are SHMC_JSON_ROOM bytes of room beyond those requested: any
 *       scalar, brackets, commas, and copies by whole words need no request.
 *   JSONTEXT2  written text does not move relative to `bytes`: the offset of a text in a page is
 *       valid as long as the page is being written.
 */
#ifndef SHMC_PYJSON_H
#define SHMC_PYJSON_H

#include "python/text/pymemo.h"

#define SHMC_JSON_ROOM 64u
#define SHMC_ONES UINT64_C(0x0101010101010101)

struct shmc_json_frame {
    struct shmc_pyshape *shape; /* NULL for an array */
    shmc_offset words;
    uint64_t next, count;
    shmc_word word;
    size_t start; /* of its text */
};

struct shmc_json {
    shmc_pyroot *root;
    const struct shmc_span *span;
    uint8_t *bytes, *end;
    PyObject *page; /* the owner of the bytes; NULL: they are from PyMem_Malloc() */
    size_t depth;
    const struct shmc_pyform *form; /* NULL: values as they are, without Go's escapes */
    struct shmc_pymemo *memo;       /* NULL: no value is remembered */
    struct shmc_json_frame frames[SHMC_MAX_DEPTH + 1];
};

/* ---- pyout.c -------------------------------------------------------------------------------- */

/* Where to write: into a page of this many bytes, or (0) into the process's buffer. */
uint8_t *shmc_json_open(struct shmc_json *json, uint64_t enough);
/* The text up to `at` as bytes. */
PyObject *shmc_json_result(struct shmc_json *json, const uint8_t *at);
/* Gives the memory back; after shmc_json_result(), if that was called. */
void shmc_json_close(struct shmc_json *json, bool good);
uint8_t *shmc_json_grow(struct shmc_json *json, uint8_t *at, uint64_t length);

/* Makes room for `length` bytes, as in JSONTEXT1. */
static inline uint8_t *shmc_json_room(struct shmc_json *json, uint8_t *at, uint64_t length)
{
    if (__builtin_expect((uint64_t)(json->end - at) < length + SHMC_JSON_ROOM, 0))
        return shmc_json_grow(json, at, length);
    return at;
}

/* ---- pyescape.c ----------------------------------------------------------------------------- */

/* `length` raw bytes are at `at`; makes room and escapes them in place, as the form requires. */
uint8_t *shmc_json_escape_here(struct shmc_json *json, uint8_t *at, size_t length);

/* Whether a word of eight bytes has a byte below 0x20, a quote or a backslash. */
static inline bool shmc_json_escapes(uint64_t word)
{
    const uint64_t quote = word ^ (SHMC_ONES * '"'), slash = word ^ (SHMC_ONES * '\\');

    return (((word - SHMC_ONES * 0x20) & ~word) | ((quote - SHMC_ONES) & ~quote) |
            ((slash - SHMC_ONES) & ~slash)) & (SHMC_ONES << 7);
}

/* Whether it may also have a byte that Go escapes: <, >, & or one that is not ASCII. */
static inline bool shmc_json_go(uint64_t word)
{
    const uint64_t angle = (word | (SHMC_ONES * ('<' ^ '>'))) ^ (SHMC_ONES * '>');
    const uint64_t amper = word ^ (SHMC_ONES * '&');

    return (((angle - SHMC_ONES) & ~angle) | ((amper - SHMC_ONES) & ~amper) | word) & (SHMC_ONES << 7);
}

/* ---- pyscalar.c ----------------------------------------------------------------------------- */

uint8_t *shmc_json_integer(uint8_t *at, int64_t number);
/* A double, or an integer that has a block of its own. */
uint8_t *shmc_json_number(const struct shmc_json *json, uint8_t *at, shmc_word word);

#endif
