/*
 * json.h - JSON text, as it comes from the wire.
 *
 *   text.c    what a string says
 *   skim.c    where a value ends, and what an object is called, at the speed of memory
 *   number.c  what a number says
 *   parse.c   a whole value into words of the arena
 *             (parseobject.c: objects, parseseen.c: containers whose text was read before)
 *
 * Nothing here writes to the text or reads behind its end. No text, however wrong, is more than
 * wrong; and none takes more than linear time.
 */
#ifndef SHMC_JSON_H
#define SHMC_JSON_H

#include "core.h"

/* ---- text.c: strings ------------------------------------------------------------------- */

/* What the bytes of a string literal have in them. */
#define SHMC_TEXT_WIDE 1u    /* bytes of 0x80 and more */
#define SHMC_TEXT_ESCAPED 2u /* a backslash */
#define SHMC_TEXT_CONTROL 4u /* bytes below 0x20: not JSON */

/* The quote that closes a string, from behind the one that opens it; NULL if there is none before
 * `end`. *what gets the flags of the bytes before it. */
const uint8_t *shmc_text_end(const uint8_t *at, const uint8_t *end, unsigned *what);

/* Takes the escapes out of `length` bytes between quotes; `to` has room for as many. The length of
 * the text, or SIZE_MAX: it has an escape that JSON does not know, half of a surrogate pair, or a
 * control character. Whether it is UTF-8 is not looked at. */
size_t shmc_text_unescape(const uint8_t *from, size_t length, uint8_t *to);

static inline bool shmc_is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const uint8_t *shmc_skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at <= ' ' && shmc_is_space(*at)) /* as a rule there is none */
        at++;
    return at;
}

/* ---- skim.c: structure ------------------------------------------------------------------ */

/* Inside of an object or array, whose text may come in pieces. */
struct shmc_skim {
    uint64_t depth;   /* brackets that are open */
    uint64_t string;  /* all ones inside of a string, else 0 */
    uint64_t escaped; /* 1: a backslash stands before the next byte */
};

/*
 * Goes on to behind the bracket that closes the outermost one; returns how many bytes that took,
 * *ended tells whether it came. Begin with zeros at the opening bracket. Brackets are counted, not
 * told apart; a backslash takes the meaning of the byte behind it.
 */
size_t shmc_skim(struct shmc_skim *skim, const uint8_t *bytes, size_t length, bool *ended);

/* A value as it stands in the text; without bytes: there is none. */
struct shmc_piece {
    const uint8_t *bytes;
    size_t length;
};

/* What an object of Kubernetes is called: the last value of each of these members. */
struct shmc_identity {
    struct shmc_piece kind, api_version;                /* of the object */
    struct shmc_piece name, namespace, version, uid;    /* of its metadata */
};

/* Reads an object from its bracket on; returns its end, NULL if its members or those of its
 * metadata cannot be told apart. */
const uint8_t *shmc_identify(const uint8_t *at, const uint8_t *end, struct shmc_identity *found);

/* One line of a watch: {"type": ..., "object": {...}}. False: it is none. */
struct shmc_event {
    struct shmc_piece type, object;
    struct shmc_identity identity;
};
bool shmc_read_event(const uint8_t *line, size_t length, struct shmc_event *event);

/* Whether a literal, with its quotes, says this text of ASCII. */
bool shmc_literal_is(const struct shmc_piece *literal, const char *text);

/* ---- number.c ----------------------------------------------------------------------------- */

struct shmc_number {
    uint64_t kind; /* SHMC_NUMBER_... */
    uint64_t bits;
};
/* The number's end; NULL: it is none, or too large for a double. */
const uint8_t *shmc_read_number(const uint8_t *at, const uint8_t *end, struct shmc_number *number);

/* ---- parse.c ------------------------------------------------------------------------------- */

/* Memory that is kept from text to text. One per writer. */
struct shmc_parser {
    struct shmc_writer *writer;
    const struct shmc_span *span;
    struct shmc_heap heap;
    struct shmc_list keys, words; /* of the containers that are open */
    struct shmc_list scratch;     /* a string without its escapes; keys by hash */
    bool drop_managed;            /* metadata.managedFields is passed over: set by the caller */
    /* of this text */
    const uint8_t *text, *end;
    unsigned depth;
    bool in_metadata; /* the member of the outermost object that is being read */
    enum shmc_status status;
    const char *error; /* what is wrong, and where */
    size_t where;
};
void shmc_parser_init(struct shmc_parser *parser, struct shmc_writer *writer);
void shmc_parser_free(struct shmc_parser *parser);

/*
 * A whole text as a word of the open batch; `previous` is a word that is alive and probably much
 * alike, or SHMC_NOTHING. INVALID: what orjson.loads refuses, LIMIT: too deep or too long; then
 * error and where tell. Others are the writer's: the batch cannot go on.
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
