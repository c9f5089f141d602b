/*
 * scalar.c - a scalar as the text that indices hold and selectors match; a uid as its shard.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

/* The shortest digits that give the same double back, as in JSON, whatever the locale. */
static size_t double_text(double number, char buffer[SHMC_TEXT_MAX])
{
    size_t length = 0;
    bool plain = true;

    for (int digits = 15; digits <= 17; digits++) {
        length = (size_t)snprintf(buffer, SHMC_TEXT_MAX, "%.*g", digits, number);
        if (strtod(buffer, NULL) == number)
            break;
    }
    for (size_t i = 0; i < length; i++) {
        const char c = buffer[i];
        const bool point = strchr("0123456789+-e", c) == NULL;
        if (point)
            buffer[i] = '.';
        plain = plain && !point && c != 'e';
    }
    if (plain)
        length += (size_t)snprintf(buffer + length, SHMC_TEXT_MAX - length, ".0");
    return length;
}

size_t shmc_number_text(const struct shmc_span *span, shmc_word word, char buffer[SHMC_TEXT_MAX])
{
    uint64_t kind = 0, bits = 0;
    double number;

    if (word == SHMC_TRUE || word == SHMC_FALSE)
        return (size_t)snprintf(buffer, SHMC_TEXT_MAX, word == SHMC_TRUE ? "true" : "false");
    if (shmc_tag(word) == SHMC_TAG_INTEGER)
        return (size_t)snprintf(buffer, SHMC_TEXT_MAX, "%lld",
                                (long long)shmc_integer_value(word));
    if (!shmc_number_open(span, word, &kind, &bits))
        return 0;
    memcpy(&number, &bits, sizeof(number));
    if (kind == SHMC_NUMBER_DOUBLE)
        return double_text(number, buffer);
    if (kind == SHMC_NUMBER_INT64)
        return (size_t)snprintf(buffer, SHMC_TEXT_MAX, "%lld", (long long)bits);
    return (size_t)snprintf(buffer, SHMC_TEXT_MAX, "%llu", (unsigned long long)bits);
}

uint64_t shmc_shard_hash(const struct shmc_span *span, shmc_word uid)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    struct shmc_string string;
    uint8_t bytes[64];

    if ((shmc_tag(uid) != SHMC_TAG_SHORT && shmc_tag(uid) != SHMC_TAG_STRING) ||
        !shmc_string_open(span, uid, &string))
        return hash;
    for (uint32_t done = 0; done < string.length; done += sizeof bytes) {
        const uint32_t left = string.length - done;
        const uint32_t count = left < sizeof bytes ? left : (uint32_t)sizeof bytes;
        shmc_string_copy(span, &string, done, count, bytes);
        for (uint32_t i = 0; i < count; i++)
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}
