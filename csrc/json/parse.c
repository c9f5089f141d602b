/*
 * parse.c - JSON text ▸ word, without an intermediate form.
 *
 * A new version of an object is mostly the old one. So the text is compared with the value that
 * its parent held there before (the previous version; for a new key its neighbour's, or the last
 * object of the batch): a key is compared with the key of the old shape at that position, a
 * string with the old string's block; an equal value costs this comparison and is shared without
 * a look-up in the table of equals. Whole equal subtrees are shared as they are.
 *
 * The parser accepts exactly the texts that orjson.loads accepts, and rejects the others: of a
 * repeated key the first position and the last value stay, integers beyond 64 bits are doubles,
 * half of a surrogate pair is invalid, and nothing nests deeper than SHMC_MAX_DEPTH.
 *
 * Invariants
 *   PARSE1  while objects are alike (the same keys in the same order) no key word is made and no
 *       shape looked up; the first difference ends that.
 *   PARSE2  a parse that fails leaves blocks without references: they are swept with the batch.
 *   PARSE3  a word used for comparison is alive: the previous value is in the tree, or was put in
 *       this batch.
 */
#include "json/parse.h"

/* ---- failing -------------------------------------------------------------------------------- */

const uint8_t *shmc_parse_fail(struct shmc_parser *parser, enum shmc_status status,
                               const uint8_t *at, const char *error)
{
    parser->status = status;
    parser->error = error;
    parser->where = (size_t)(at - parser->text);
    return NULL;
}

const uint8_t *shmc_parse_wrong(struct shmc_parser *parser, const uint8_t *at, const char *error)
{
    return shmc_parse_fail(parser, SHMC_INVALID, at,
                           at == parser->end ? "the text ends too early" : error);
}

/* ---- strings -------------------------------------------------------------------------------- */

/* With escapes, or not ASCII: decoded if necessary, and checked. */
static const uint8_t *other_string(struct shmc_parser *parser, const uint8_t *at, size_t length,
                                   unsigned what, shmc_word *word)
{
    const uint8_t *bytes = at;
    size_t size = length;
    uint32_t flags;

    if (what & SHMC_TEXT_ESCAPED) {
        parser->scratch.count = 0;
        if (shmc_list_reserve(&parser->heap, &parser->scratch, length / 8 + 1) != SHMC_OK)
            return shmc_parse_fail(parser, SHMC_NO_MEMORY, at, "no memory");
        size = shmc_text_unescape(at, length, (uint8_t *)parser->scratch.items);
        bytes = (const uint8_t *)parser->scratch.items;
        if (size == SIZE_MAX)
            return shmc_parse_wrong(parser, at, "invalid escape in a string");
    }
    if (!shmc_string_flags(bytes, size, &flags))
        return shmc_parse_wrong(parser, at, "a string is not UTF-8");
    const enum shmc_status status = shmc_make_string(parser->writer, bytes, size, flags, word);
    if (status != SHMC_OK)
        return shmc_parse_fail(parser, status, at, "storing a string");
    return at + length + 1;
}

const uint8_t *shmc_parse_string(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                 shmc_word *word)
{
    const uint8_t *after;
    unsigned what;

    if (shmc_tag(previous) == SHMC_TAG_STRING) {
        after = shmc_same_block(parser, at, previous);
        if (after != NULL) {
            *word = previous;
            return after;
        }
    }
    after = shmc_text_end(at, parser->end, &what);
    if (after == NULL)
        return shmc_parse_wrong(parser, parser->end, NULL);
    if (what & SHMC_TEXT_CONTROL)
        return shmc_parse_wrong(parser, at, "a control character in a string");
    const size_t length = (size_t)(after - at);
    if (what != 0)
        return other_string(parser, at, length, what, word);
    if (length <= SHMC_SHORT_MAX) {
        *word = shmc_short_word(at, length);
        return after + 1;
    }
    const enum shmc_status status = shmc_make_string(parser->writer, at, length, 0, word);
    if (status != SHMC_OK)
        return shmc_parse_fail(parser, status, at, "storing a string");
    return after + 1;
}

/* ---- scalars -------------------------------------------------------------------------------- */

static const uint8_t *number(struct shmc_parser *parser, const uint8_t *at, shmc_word *word)
{
    struct shmc_number found;
    const uint8_t *const after = shmc_read_number(at, parser->end, &found);

    if (after == NULL)
        return shmc_parse_wrong(parser, at, "invalid number, or too large for a double");
    const enum shmc_status status =
        shmc_make_number(parser->writer, found.kind, found.bits, word);
    return status == SHMC_OK ? after : shmc_parse_fail(parser, status, at, "storing a number");
}

static inline const uint8_t *literal(struct shmc_parser *parser, const uint8_t *at,
                                     const char *text, size_t length, shmc_word meaning,
                                     shmc_word *word)
{
    if ((size_t)(parser->end - at) < length || memcmp(at, text, length) != 0)
        return shmc_parse_wrong(parser, at, "neither a value nor the end of one");
    *word = meaning;
    return at + length;
}

/* ---- containers ----------------------------------------------------------------------------- */

bool shmc_parse_grow(struct shmc_parser *parser)
{
    return shmc_list_reserve(&parser->heap, &parser->keys, 64) == SHMC_OK &&
           shmc_list_reserve(&parser->heap, &parser->words, 64) == SHMC_OK;
}

void shmc_parse_pop(struct shmc_parser *parser, size_t base)
{
    parser->words.count = parser->keys.count = base;
    parser->depth--;
}

bool shmc_parse_deeper(struct shmc_parser *parser, const uint8_t *at)
{
    if (++parser->depth <= SHMC_MAX_DEPTH)
        return true;
    shmc_parse_fail(parser, SHMC_LIMIT, at, "nested too deep");
    return false;
}

static const uint8_t *elements(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                               shmc_word *word)
{
    const size_t base = parser->words.count;
    struct shmc_array old = {.count = 0};
    bool same = true, closed = false;
    uint64_t count = 0;

    if (shmc_tag(previous) == SHMC_TAG_ARRAY) {
        old.words = shmc_block_of(previous) + 8;
        old.count = shmc_load_at(parser->span, old.words - 8);
        shmc_fetch_ahead(parser->span, old.words, old.count);
    }
    while (!closed) {
        const shmc_word before = count < old.count
                                     ? shmc_load_at(parser->span, old.words + count * 8)
                                     : SHMC_NOTHING;
        shmc_word element;

        at = shmc_parse_value(parser, at, before, &element);
        if (at == NULL)
            return NULL;
        same = same && element == before;
        count++;
        if (!shmc_parse_push(parser, SHMC_NOTHING, element))
            return shmc_parse_fail(parser, SHMC_NO_MEMORY, at, "no memory");
        at = shmc_parse_next(parser, at, ']', &closed);
        if (at == NULL)
            return NULL;
    }
    *word = previous;
    if (same && count == old.count)
        return at;
    const enum shmc_status status =
        shmc_make_array(parser->writer, parser->words.items + base, (size_t)count, word);
    return status == SHMC_OK ? at : shmc_parse_fail(parser, status, at, "storing a list");
}

static const uint8_t *array(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                            shmc_word *word)
{
    const size_t base = parser->words.count;
    const uint8_t *const open = at;

    if (!shmc_parse_deeper(parser, at))
        return NULL;
    at = shmc_tag(previous) == SHMC_TAG_ARRAY ? shmc_seen_find(parser, open, previous) : NULL;
    if (at != NULL) {
        *word = previous;
        shmc_parse_pop(parser, base);
        return at;
    }
    at = shmc_skip_space(open + 1, parser->end);
    if (at < parser->end && *at == ']') {
        *word = SHMC_EMPTY_ARRAY;
        at++;
    } else {
        at = elements(parser, at, previous, word);
        if (at != NULL)
            shmc_seen_note(parser, open, at, *word);
    }
    shmc_parse_pop(parser, base);
    return at;
}

const uint8_t *shmc_parse_value(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                shmc_word *word)
{
    if (at == parser->end)
        return shmc_parse_wrong(parser, at, NULL);
    switch (*at) {
    case '"':
        return shmc_parse_string(parser, at + 1, previous, word);
    case '{':
        return shmc_parse_object(parser, at, previous, word);
    case '[':
        return array(parser, at, previous, word);
    case 't':
        return literal(parser, at, "true", 4, SHMC_TRUE, word);
    case 'f':
        return literal(parser, at, "false", 5, SHMC_FALSE, word);
    case 'n':
        return literal(parser, at, "null", 4, SHMC_NULL, word);
    default:
        return number(parser, at, word);
    }
}

/* ---- the parser ----------------------------------------------------------------------------- */

void shmc_parser_init(struct shmc_parser *parser, struct shmc_writer *writer)
{
    *parser = (struct shmc_parser){.writer = writer, .span = shmc_writer_span(writer)};
}

void shmc_parser_free(struct shmc_parser *parser)
{
    shmc_list_free(&parser->heap, &parser->keys);
    shmc_list_free(&parser->heap, &parser->words);
    shmc_list_free(&parser->heap, &parser->scratch);
}

enum shmc_status shmc_parse(struct shmc_parser *parser, const uint8_t *text, size_t length,
                            shmc_word previous, shmc_word *word)
{
    shmc_word found;

    parser->text = text;
    parser->end = text + length;
    parser->depth = 0;
    parser->in_metadata = false;
    parser->words.count = parser->keys.count = 0;
    parser->status = SHMC_OK;
    parser->error = NULL;
    const uint8_t *at =
        shmc_parse_value(parser, shmc_skip_space(text, parser->end), previous, &found);
    if (at != NULL)
        at = shmc_skip_space(at, parser->end);
    if (at != NULL && at != parser->end)
        at = shmc_parse_wrong(parser, at, "there is more data after the value");
    if (at == NULL)
        return parser->status;
    *word = found;
    return SHMC_OK;
}
