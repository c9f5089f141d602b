/*
 * json.h - JSON text, as it comes from the wire.
 *
 *   text.c    strings
 *   skim.c    where a value ends, and the identity of an object, at the speed of memory
 *   number.c  numbers
 *   parse.c   a whole value into words of the arena
 *             (parseobject.c: objects, parseseen.c: containers whose text was read before)
 *
 * Nothing here writes to the text or reads past its end. Invalid text only gives an error, whatever
 * its bytes; and no text takes more than linear time.
 */
#ifndef SHMC_JSON_H
#define SHMC_JSON_H

#include "core.h"

/* ---- text.c: strings ------------------------------------------------------------------- */

/* The kinds of bytes in a string literal. */
#define SHMC_TEXT_WIDE 1u    /* bytes of 0x80 and more */
#define SHMC_TEXT_ESCAPED 2u /* a backslash */
#define SHMC_TEXT_CONTROL 4u /* bytes below 0x20: not JSON */

/* The quote that closes a string, searched from after the opening one; NULL if it is not before
 * `end`. *what gets the flags of the bytes before it. */
const uint8_t *shmc_text_end(const uint8_t *at, const uint8_t *end, unsigned *what);

/* Removes the escapes from `length` bytes between quotes; `to` has room for as many. The length of
 * the text, or SIZE_MAX: it has an escape that JSON does not know, half of a surrogate pair, or a
 * control character. It does not check for valid UTF-8. */
size_t shmc_text_unescape(const uint8_t *from, size_t length, uint8_t *to);

static inline bool shmc_is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const uint8_t *shmc_skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at <= ' ' && shmc_is_space(*at)) /* usually no white space */
        at++;
    return at;
}

/* ---- skim.c: structure ------------------------------------------------------------------ */

/* Inside an object or array, whose text may come in pieces. */
struct shmc_skim {
    uint64_t depth;   /* open brackets */
    uint64_t string;  /* all ones inside a string, else 0 */
    uint64_t escaped; /* 1: the next byte is escaped */
};

/*
 * Continues to after the bracket that closes the outermost one; returns how many bytes that took,
 * *ended reports whether it came. Begin with zeros at the opening bracket. Brackets are counted,
 * not matched by kind; a backslash escapes the byte after it.
 */
size_t shmc_skim(struct shmc_skim *skim, const uint8_t *bytes, size_t length, bool *ended);

/* A value as written in the text; without bytes: absent. */
struct shmc_piece {
    const uint8_t *bytes;
    size_t length;
};

/* The identity of a Kubernetes object: the last value of each of these members. */
struct shmc_identity {
    struct shmc_piece kind, api_version;                /* of the object */
    struct shmc_piece name, namespace, version, uid;    /* of its metadata */
};

/* Reads an object from its bracket on; returns its end, NULL if its members or those of its
 * metadata cannot be separated. */
const uint8_t *shmc_identify(const uint8_t *at, const uint8_t *end, struct shmc_identity *found);

/* One line of a watch: {"type": ..., "object": {...}}. False: it is not an event. */
struct shmc_event {
    struct shmc_piece type, object;
    struct shmc_identity identity;
};
bool shmc_read_event(const uint8_t *line, size_t length, struct shmc_event *event);

/* Whether a literal, with its quotes, is this text of ASCII. */
bool shmc_literal_is(const struct shmc_piece *literal, const char *text);

/* ---- number.c ----------------------------------------------------------------------------- */

struct shmc_number {
    uint64_t kind; /* SHMC_NUMBER_... */
    uint64_t bits;
};
/* The number's end; NULL: not a number, or too large for a double. */
const uint8_t *shmc_read_number(const uint8_t *at, const uint8_t *end, struct shmc_number *number);

/* ---- parse.c ------------------------------------------------------------------------------- */

/* Memory that is kept from text to text. One per writer. */
struct shmc_parser {
    struct shmc_writer *writer;
    const struct shmc_span *span;
    struct shmc_heap heap;
    struct shmc_list keys, words; /* of the open containers */
    struct shmc_list scratch;     /* a string without its escapes; keys by hash */
    bool drop_managed;            /* skip metadata.managedFields: set by the caller */
    /* of this text */
    const uint8_t *text, *end;
    unsigned depth;
    bool in_metadata; /* the current member of the outermost object */
    enum shmc_status status;
    const char *error; /* the error, and where */
    size_t where;
};
void shmc_parser_init(struct shmc_parser *parser, struct shmc_writer *writer);
void shmc_parser_free(struct shmc_parser *parser);

/*
 * A whole text as a word of the open batch; `previous` is a word that is alive and probably very
 * similar, or SHMC_NOTHING. INVALID: text that orjson.loads rejects, LIMIT: too deep or too long;
 * then error and where give the details. Other statuses are the writer's: the batch cannot
 * continue.
 */
enum shmc_status shmc_parse(struct shmc_parser *parser, const uint8_t *text, size_t length,
                            shmc_word previous, shmc_word *word);

/* At least 8 bytes. */
static inline bool shmc_same_bytes(const uint8_t *a, const uint8_t *b, size_t length)
{
    uint64_t differ = 0, x[2], y[2];

    if (length > 64)
        return memcmp(a, b, length) == 0;
    if (length < 16) {
        memcpy(x, a, 8);
        memcpy(y, b, 8);
        differ = x[0] ^ y[0];
        memcpy(x, a + length - 8, 8);
        memcpy(y, b + length - 8, 8);
        return (differ | (x[0] ^ y[0])) == 0;
    }
    for (size_t i = 0; i + 16 < length; i += 16) {
        memcpy(x, a + i, 16);
        memcpy(y, b + i, 16);
        differ |= (x[0] ^ y[0]) | (x[1] ^ y[1]);
    }
    memcpy(x, a + length - 16, 16);
    memcpy(y, b + length - 16, 16);
    return (differ | (x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

#endif
