/*
 * json_properties.h - properties of any text from the wire, for the unit test and the fuzzer. The
 * text is copied to memory of exactly its size: a sanitizer sees one byte too many.
 */
#ifndef SHMC_TEST_JSON_PROPERTIES_H
#define SHMC_TEST_JSON_PROPERTIES_H

#include "core_fixture.h"
#include "json/json.h"

static inline uint8_t *exact_copy(const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length + (length == 0));

    CHECK(copy != NULL);
    if (length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

/* A container skipped in two pieces ends where it ends in one. */
static inline void check_skim(const uint8_t *text, size_t length)
{
    if (length == 0 || (*text != '{' && *text != '['))
        return;
    struct shmc_skim whole = {0};
    bool ended;
    const size_t end = shmc_skim(&whole, text, length, &ended);
    const size_t step = length / 16 + 1;

    CHECK(end <= length && (ended || end == length));
    for (size_t cut = 0; cut < length; cut += step) {
        struct shmc_skim skim = {0};
        bool first, second = false;
        size_t taken = shmc_skim(&skim, text, cut, &first);
        if (!first)
            taken += shmc_skim(&skim, text + cut, length - cut, &second);
        CHECK_EQUAL(ended, first || second);
        CHECK_EQUAL(end, taken);
    }
}

static inline void check_piece(const uint8_t *text, size_t length, const struct shmc_piece *piece)
{
    if (piece->length == 0)
        return;
    CHECK(piece->bytes >= text && piece->bytes + piece->length <= text + length);
    uint8_t *to = malloc(piece->length);
    CHECK(to != NULL);
    const size_t size = shmc_text_unescape(piece->bytes, piece->length, to);
    CHECK(size == SIZE_MAX || size <= piece->length);
    free(to);
}

static inline void check_event(const uint8_t *text, size_t length)
{
    struct shmc_event event;
    struct shmc_identity identity;

    if (!shmc_read_event(text, length, &event))
        return;
    check_piece(text, length, &event.type);
    check_piece(text, length, &event.object);
    check_piece(text, length, &event.identity.name);
    check_piece(text, length, &event.identity.namespace);
    check_piece(text, length, &event.identity.version);
    check_piece(text, length, &event.identity.uid);
    check_piece(text, length, &event.identity.kind);
    check_piece(text, length, &event.identity.api_version);
    const uint8_t *const end = event.object.bytes + event.object.length;
    CHECK(shmc_identify(event.object.bytes, text + length, &identity) == end);
    CHECK_EQUAL(0, memcmp(&identity, &event.identity, sizeof identity));
}

/* The same word and the same error, whatever the previous value; equal values are one word. */
static inline enum shmc_status check_parse(struct shmc_parser *parser, const uint8_t *text,
                                           size_t length, shmc_word previous, shmc_word *word)
{
    shmc_word other = SHMC_NOTHING;

    *word = SHMC_NOTHING;
    const enum shmc_status status = shmc_parse(parser, text, length, SHMC_NOTHING, word);
    const size_t where = parser->where;
    CHECK(status == SHMC_OK || status == SHMC_INVALID || status == SHMC_LIMIT);
    CHECK((status == SHMC_OK) == (parser->error == NULL));
    CHECK(status == SHMC_OK || where <= length);
    CHECK_EQUAL(status, shmc_parse(parser, text, length, previous, &other));
    CHECK_EQUAL(*word, other);
    if (status != SHMC_OK)
        return status;
    CHECK_EQUAL(SHMC_OK, shmc_parse(parser, text, length, *word, &other));
    CHECK_EQUAL(*word, other);
    return SHMC_OK;
}

/* All properties for two texts, the second compared with the first, in a batch that is aborted. */
static inline void check_texts(struct core *core, struct shmc_parser *parser, const uint8_t *bytes,
                               size_t length, size_t cut)
{
    uint8_t *const first = exact_copy(bytes, cut);
    uint8_t *const second = exact_copy(bytes + cut, length - cut);
    shmc_word before, word;

    check_skim(first, cut);
    check_skim(second, length - cut);
    check_event(first, cut);
    check_event(second, length - cut);
    core_begin(core);
    for (int drop = 0; drop < 2; drop++) {
        parser->drop_managed = drop == 1;
        check_parse(parser, first, cut, SHMC_NOTHING, &before);
        check_parse(parser, second, length - cut, before, &word);
        check_parse(parser, first, cut, word, &before);
    }
    CHECK_EQUAL(SHMC_OK, shmc_abort(core->writer));
    free(first);
    free(second);
}

#endif
