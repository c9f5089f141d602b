/*
 * parseobject.c - JSON objects ▸ words, compared with the previous object there (PARSE1).
 */
#include "json/parse.h"

#define AHEAD 4u         /* keys of the old object to try */
#define FEW 16u          /* up to this many keys are compared pairwise */
#define DROPPED_DEPTH 2u /* of metadata.managedFields: depth of the object that has it */

/* ---- keys ----------------------------------------------------------------------------------- */

/* Whether a word of 8 bytes of ASCII has no byte that JSON escapes; if in doubt, false. */
static inline bool is_clean(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t quotes = bytes ^ (ones * '"'), slashes = bytes ^ (ones * '\\');

    return (((bytes - ones * 0x20) | (quotes - ones) | (slashes - ones)) & ones << 7) == 0;
}

/* Whether the literal after a quote is that key; its end then, else NULL. */
static inline const uint8_t *same_key(const struct shmc_parser *parser, const uint8_t *at,
                                      shmc_word key)
{
    uint64_t bytes;

    if (shmc_tag(key) == SHMC_TAG_STRING)
        return shmc_same_block(parser, at, key);
    const size_t length = shmc_short_length(key);
    if (parser->end - at < 8 || at[length] != '"')
        return NULL;
    memcpy(&bytes, at, 8);
    const uint64_t behind = ~UINT64_C(0) << (8 * length);
    if (((bytes ^ key >> 8) & ~behind) != 0 ||
        !SHMC_CHECKED(NO_KEY_ESCAPES,
                      is_clean(key >> 8 | (behind & UINT64_C(0x6161616161616161)))))
        return NULL;
    return at + length + 1;
}

/* A stored object, as the writer trusts it. */
struct stored {
    const uint8_t *words; /* NULL: no object */
    const uint8_t *keys;
    shmc_offset shape;
    uint64_t count;
};

static struct stored stored_at(const struct shmc_span *span, shmc_word word)
{
    struct stored stored = {.words = NULL};

    if (shmc_tag(word) == SHMC_TAG_OBJECT) {
        stored.words = span->base + shmc_block_of(word) + 8;
        stored.shape = shmc_word_load(stored.words - 8);
        stored.keys = span->base + stored.shape + 16;
        stored.count = shmc_word_load(stored.keys - 8);
        shmc_fetch_ahead(span, shmc_block_of(word) + 8, stored.count);
    }
    return stored;
}

/* The state of comparing an object's members with the old one's. */
struct beside {
    struct stored old;
    uint64_t ahead; /* index of the next old key */
    bool alike;     /* every key so far was the next one (PARSE1) */
    bool distinct;  /* every key so far was one of the old ones, in their order */
};

/* A key from its quote on; the value that the old object has there, or SHMC_NOTHING. */
static inline const uint8_t *key_of(struct shmc_parser *parser, const uint8_t *at,
                                    struct beside *beside, shmc_word *key, shmc_word *before)
{
    const struct stored *const old = &beside->old;

    if (at == parser->end || *at != '"')
        return shmc_parse_wrong(parser, at, "a key must be a string");
    for (uint64_t i = beside->ahead; i < old->count && i < beside->ahead + AHEAD; i++) {
        *key = shmc_word_load(old->keys + i * 8);
        const uint8_t *const after = same_key(parser, at + 1, *key);
        if (after == NULL)
            continue;
        *before = shmc_word_load(old->words + i * 8);
        beside->alike = beside->alike && i == beside->ahead;
        beside->ahead = i + 1;
        return after;
    }
    beside->alike = beside->distinct = false;
    *before = SHMC_NOTHING;
    return shmc_parse_string(parser, at + 1, SHMC_NOTHING, key);
}

/* By content: equal keys may be two words, one of the old object and one made now (INTERN2). */
static uint64_t hash_of(const struct shmc_parser *parser, shmc_word key)
{
    uint8_t buffer[8];
    size_t length;
    const uint8_t *bytes = shmc_word_bytes(parser->writer, key, buffer, &length);

    return shmc_key_hash(parser->writer->intern.seed[0], bytes, length);
}

/* The number of a key among the first `count`; the table, if in use, has them by hash. */
static size_t number_of(const struct shmc_parser *parser, const shmc_word *keys, size_t count,
                        shmc_word key, size_t mask, size_t *slot)
{
    const uint64_t *const table = parser->scratch.items;

    if (mask == 0) {
        for (size_t i = 0; i < count; i++) {
            if (shmc_same_value(parser->writer, keys[i], key))
                return i;
        }
        return count;
    }
    *slot = (size_t)hash_of(parser, key) & mask;
    for (; table[*slot] != 0; *slot = (*slot + 1) & mask) {
        if (shmc_same_value(parser->writer, keys[table[*slot] - 1], key))
            return (size_t)table[*slot] - 1;
    }
    return count;
}

/* Of a repeated key the first position and the last value stay. */
static enum shmc_status merge_repeated(struct shmc_parser *parser, size_t base, size_t *count)
{
    shmc_word *const keys = parser->keys.items + base, *const words = parser->words.items + base;
    size_t mask = 0, kept = 0, slot = 0;

    if (*count > FEW) {
        for (mask = 63; mask < *count * 2;)
            mask = mask * 2 + 1;
        parser->scratch.count = 0;
        if (shmc_list_reserve(&parser->heap, &parser->scratch, mask + 1) != SHMC_OK)
            return SHMC_NO_MEMORY;
        memset(parser->scratch.items, 0, (mask + 1) * sizeof(uint64_t));
    }
    for (size_t i = 0; i < *count; i++) {
        const size_t number = number_of(parser, keys, kept, keys[i], mask, &slot);
        keys[number] = keys[i];
        words[number] = words[i];
        if (number < kept)
            continue;
        kept++;
        if (mask != 0)
            parser->scratch.items[slot] = kept;
    }
    *count = kept;
    return SHMC_OK;
}

/* ---- objects -------------------------------------------------------------------------------- */

static bool is_metadata(const struct shmc_parser *parser, shmc_word key)
{
    uint8_t buffer[8];
    size_t length;

    if (!shmc_is_block(key))
        return false; /* a shorter key */
    const uint8_t *bytes = shmc_word_bytes(parser->writer, key, buffer, &length);
    return length == 8 && memcmp(bytes, "metadata", 8) == 0;
}

/* Whether the member with this quote is dropped; then the byte after its key. */
static const uint8_t *dropped_key(const struct shmc_parser *parser, const uint8_t *at)
{
    unsigned what;

    if (!parser->drop_managed || parser->depth != DROPPED_DEPTH || !parser->in_metadata ||
        parser->end - at < 2 || (at[1] != 'm' && at[1] != '\\'))
        return NULL;
    const uint8_t *const quote = shmc_text_end(at + 1, parser->end, &what);
    const struct shmc_piece key = {at, quote == NULL ? 0 : (size_t)(quote + 1 - at)};

    if (*at != '"' || quote == NULL || !shmc_literal_is(&key, "managedFields"))
        return NULL;
    return quote + 1;
}

static inline const uint8_t *colon(struct shmc_parser *parser, const uint8_t *at)
{
    at = shmc_skip_space(at, parser->end);
    if (at == parser->end || *at != ':')
        return shmc_parse_wrong(parser, at, "a colon is missing");
    return shmc_skip_space(at + 1, parser->end);
}

/* A dropped member is skipped by its brackets; it is not read. */
static const uint8_t *pass_over(struct shmc_parser *parser, const uint8_t *at)
{
    struct shmc_skim skim = {0};
    shmc_word ignored;
    bool ended;

    at = colon(parser, at);
    if (at == NULL || at == parser->end || (*at != '{' && *at != '['))
        return at == NULL ? NULL : shmc_parse_value(parser, at, SHMC_NOTHING, &ignored);
    at += shmc_skim(&skim, at, (size_t)(parser->end - at), &ended);
    return ended ? at : shmc_parse_wrong(parser, parser->end, NULL);
}

/* A member from its quote on, onto the stack; *same becomes false if it differs from the old. */
static inline const uint8_t *member(struct shmc_parser *parser, const uint8_t *at,
                                    struct beside *beside, bool *same)
{
    shmc_word key = SHMC_NOTHING, before, word;

    at = key_of(parser, at, beside, &key, &before);
    if (at != NULL)
        at = colon(parser, at);
    if (at == NULL)
        return NULL;
    if (parser->depth == DROPPED_DEPTH - 1 && parser->drop_managed)
        parser->in_metadata = is_metadata(parser, key);
    at = shmc_parse_value(parser, at, before, &word);
    if (at == NULL)
        return NULL;
    *same = *same && word == before;
    return shmc_parse_push(parser, key, word)
               ? at
               : shmc_parse_fail(parser, SHMC_NO_MEMORY, at, "no memory");
}

static enum shmc_status make(struct shmc_parser *parser, const struct beside *beside, size_t base,
                             shmc_word *word)
{
    size_t count = parser->words.count - base;
    shmc_offset shape = beside->old.shape;
    enum shmc_status status = SHMC_OK;

    if (!beside->alike || count != beside->old.count) {
        if (!beside->distinct)
            status = merge_repeated(parser, base, &count);
        if (status == SHMC_OK && count > 0)
            status = shmc_make_shape(parser->writer, parser->keys.items + base, count, &shape);
    }
    if (status == SHMC_OK)
        status = shmc_make_object(parser->writer, shape, parser->words.items + base, count, word);
    return status;
}

static const uint8_t *members(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                              shmc_word *word)
{
    const size_t base = parser->words.count;
    struct beside beside = {stored_at(parser->span, previous), 0, true, true};
    bool same = true, closed = false;

    shmc_seen_fetch(parser, beside.old.words, beside.old.count);

    while (!closed) {
        const uint8_t *const dropped = dropped_key(parser, at);

        at = dropped != NULL ? pass_over(parser, dropped) : member(parser, at, &beside, &same);
        if (at != NULL)
            at = shmc_parse_next(parser, at, '}', &closed);
        if (at == NULL)
            return NULL;
    }
    *word = previous;
    if (same && beside.alike && beside.old.words != NULL &&
        parser->words.count - base == beside.old.count)
        return at;
    const enum shmc_status status = make(parser, &beside, base, word);
    return status == SHMC_OK ? at
                             : shmc_parse_fail(parser, status, at, "storing an object");
}

const uint8_t *shmc_parse_object(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                 shmc_word *word)
{
    const size_t base = parser->words.count;
    const uint8_t *const open = at;

    if (!shmc_parse_deeper(parser, at))
        return NULL;
    at = shmc_tag(previous) == SHMC_TAG_OBJECT ? shmc_seen_find(parser, open, previous) : NULL;
    if (at != NULL) {
        *word = previous;
        shmc_parse_pop(parser, base);
        return at;
    }
    at = shmc_skip_space(open + 1, parser->end);
    if (at < parser->end && *at == '}') {
        *word = SHMC_EMPTY_OBJECT;
        at++;
    } else {
        at = members(parser, at, previous, word);
        if (at != NULL)
            shmc_seen_note(parser, open, at, *word);
    }
    shmc_parse_pop(parser, base);
    return at;
}

