/*
 * pyjson.h - text on its way from the arena into private memory: what its writers share.
 *
 *   pyjson.c    values, containers, pages
 *   pyescape.c  strings that need escapes
 *   pyscalar.c  numbers
 *   pyout.c     the memory that is written to
 *   pymemo.c    text that is copied instead of written
 *
 * Where the text has come to, `at`, is passed from call to call and stays in a register: kept in
 * memory, each byte written would wait for the one before it. Functions that write return the new
 * `at`, NULL with an exception set.
 *
 *   J1  behind `at` there is room for SHMC_JSON_ROOM bytes more than were asked for: any scalar,
 *       brackets, commas, and copies by whole words need not ask.
 *   J2  what is written does not move, against `bytes`: where a text stands in a page holds as long
 *       as the page is written.
 */
#ifndef SHMC_PYJSON_H
#define SHMC_PYJSON_H

#include "pymemo.h"

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
    PyObject *page; /* whose bytes these are; NULL: they are from PyMem_Malloc() */
    uint64_t nodes;
    size_t depth;
    const struct shmc_pyform *form; /* NULL: values as they are, without Go's escapes */
    struct shmc_pymemo *memo;       /* NULL: every value is written anew */
    struct shmc_json_frame frames[SHMC_MAX_DEPTH + 1];
};

/* ---- pyout.c -------------------------------------------------------------------------------- */

/* Where to write: into a page of so many bytes, or (0) into the process's buffer. */
uint8_t *shmc_json_open(struct shmc_json *json, uint64_t enough);
/* The text up to `at` as bytes. */
PyObject *shmc_json_result(struct shmc_json *json, const uint8_t *at);
/* Gives the memory back; after shmc_json_result(), if that was called. */
void shmc_json_close(struct shmc_json *json, bool good);
uint8_t *shmc_json_grow(struct shmc_json *json, uint8_t *at, uint64_t length);

/* J1 for `length` bytes. */
static inline uint8_t *shmc_json_room(struct shmc_json *json, uint8_t *at, uint64_t length)
{
    if (__builtin_expect((uint64_t)(json->end - at) < length + SHMC_JSON_ROOM, 0))
        return shmc_json_grow(json, at, length);
    return at;
}

/* ---- pyescape.c ----------------------------------------------------------------------------- */

/* `length` raw bytes stand at `at`; makes room and escapes them where they are, as the form has it. */
uint8_t *shmc_json_escape_here(struct shmc_json *json, uint8_t *at, size_t length);

/* Whether a word of eight bytes has one that is below 0x20, a quote or a backslash. */
static inline bool shmc_json_escapes(uint64_t word)
{
    const uint64_t quote = word ^ (SHMC_ONES * '"'), slash = word ^ (SHMC_ONES * '\\');

    return (((word - SHMC_ONES * 0x20) & ~word) | ((quote - SHMC_ONES) & ~quote) |
            ((slash - SHMC_ONES) & ~slash)) & (SHMC_ONES << 7);
}

/* Whether it may have one that Go escapes besides: <, >, & or one that is not ASCII. */
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
