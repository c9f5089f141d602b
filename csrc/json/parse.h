/*
 * parse.h - declarations shared by parse.c (values) and parseobject.c (objects).
 *
 * Functions that read return the byte after the text that they read, or NULL with the parser's
 * status and error set. `previous` is a word that is alive, or SHMC_NOTHING.
 */
#ifndef SHMC_PARSE_H
#define SHMC_PARSE_H

#include "json/json.h"
#include "writer/writer.h"

const uint8_t *shmc_parse_fail(struct shmc_parser *parser, enum shmc_status status,
                               const uint8_t *at, const char *error);
/* INVALID; at the end of the text the error is that it ends too early, whatever was expected. */
const uint8_t *shmc_parse_wrong(struct shmc_parser *parser, const uint8_t *at, const char *error);

/* From after the quote. */
const uint8_t *shmc_parse_string(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                 shmc_word *word);
/* From the bracket. */
const uint8_t *shmc_parse_object(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                 shmc_word *word);
const uint8_t *shmc_parse_value(struct shmc_parser *parser, const uint8_t *at, shmc_word previous,
                                shmc_word *word);

/* parseseen.c: for an open container (counted in depth), from its bracket. Returns its end if its
 * text is the one that `previous`, a block, was made from; else NULL. */
const uint8_t *shmc_seen_find(const struct shmc_parser *parser, const uint8_t *at,
                              shmc_word previous);
/* Notes that the text from `at` to `after` became `word`, a block. */
void shmc_seen_note(struct shmc_parser *parser, const uint8_t *at, const uint8_t *after,
                    shmc_word word);
/* Prefetches the data that looking these up will need. */
void shmc_seen_fetch(const struct shmc_parser *parser, const uint8_t *words, uint64_t count);

/* The stack of open containers: two lists of the same length; that of keys never has less room. */
bool shmc_parse_grow(struct shmc_parser *parser);

static inline bool shmc_parse_push(struct shmc_parser *parser, shmc_word key, shmc_word word)
{
    const size_t count = parser->words.count;

    if (count == parser->words.capacity && !shmc_parse_grow(parser))
        return false;
    parser->keys.items[count] = key;
    parser->words.items[count] = word;
    parser->keys.count = parser->words.count = count + 1;
    return true;
}

void shmc_parse_pop(struct shmc_parser *parser, size_t base);
bool shmc_parse_deeper(struct shmc_parser *parser, const uint8_t *at);

/* Whether the literal after a quote is that string block; its end then, else NULL. A block
 * without escapes has no quote in it: the literal cannot end before. */
static inline const uint8_t *shmc_same_block(const struct shmc_parser *parser, const uint8_t *at,
                                        shmc_word word)
{
    const uint8_t *const block = parser->span->base + shmc_block_of(word);
    uint32_t head;

    memcpy(&head, block, 4);
    const size_t length = head & SHMC_STRING_LENGTH;
    if ((size_t)(parser->end - at) <= length || at[length] != '"' ||
        !SHMC_CHECKED(NO_BLOCK_ESCAPES, (head & SHMC_STRING_ESCAPES) == 0) || !shmc_same_bytes(block + 4, at, length))
        return NULL;
    return at + length + 1;
}

/* After an element or member: to the next one, or *closed and past the bracket. */
static inline const uint8_t *shmc_parse_next(struct shmc_parser *parser, const uint8_t *at,
                                             uint8_t bracket, bool *closed)
{
    at = shmc_skip_space(at, parser->end);
    if (at == parser->end)
        return shmc_parse_wrong(parser, at, NULL);
    *closed = *at == bracket;
    if (*closed)
        return at + 1;
    if (*at != ',')
        return shmc_parse_wrong(parser, at, "a comma is missing");
    return shmc_skip_space(at + 1, parser->end);
}

#endif
