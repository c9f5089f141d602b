/*
 * value.c - reading strings, objects and numbers out of memory that may be changing; the texts of
 * scalars that indices hold and selectors match.
 *
 * Everything here follows VALUE1 and VALUE2 of value.h: whole words, relaxed, within the
 * checked block. The results are valid only after the caller's VALUE3.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

/* The low `length` bytes of a word, to memory that has exactly that much room. */
static inline void put_bytes(uint8_t *to, uint64_t word, uint32_t length)
{
    if (length & 4u) {
        const uint32_t part = (uint32_t)word;
        memcpy(to, &part, 4);
        to += 4;
        word >>= 32;
    }
    if (length & 2u) {
        const uint16_t part = (uint16_t)word;
        memcpy(to, &part, 2);
        to += 2;
        word >>= 16;
    }
    if (length & 1u)
        *to = (uint8_t)word;
}

static inline uint64_t low_bytes(uint64_t word, uint32_t length)
{
    return length >= 8 ? word : word & ((UINT64_C(1) << (8 * length)) - 1);
}

static inline uint8_t fold(uint64_t seen)
{
    seen |= seen >> 32;
    seen |= seen >> 16;
    seen |= seen >> 8;
    return (uint8_t)seen;
}

uint8_t shmc_string_copy(const struct shmc_span *span, const struct shmc_string *string,
                         uint32_t start, uint32_t length, uint8_t *to)
{
    uint64_t seen;

    assert(start <= string->length && length <= string->length - start);
    if (length == 0)
        return 0;
    if (string->block == 0) {
        seen = low_bytes(string->word >> 8 >> (8 * start), length);
        put_bytes(to, seen, length);
        return fold(seen);
    }
    const uint64_t position = 4 + (uint64_t)start;
    if (!SHMC_IS_DEFENDED) {
        memcpy(to, span->base + string->block + position, length);
        return 0;
    }
    const uint8_t *at = span->base + string->block + (position & ~UINT64_C(7));
    const uint32_t skip = (uint32_t)(position & 7u);
    const uint32_t first = length < 8 - skip ? length : 8 - skip;

    uint64_t word = low_bytes(shmc_word_load(at) >> (8 * skip), first);
    seen = word;
    if (first == 8)
        memcpy(to, &word, 8);
    else
        put_bytes(to, word, first);
    for (to += first, length -= first, at += 8; length >= 8; to += 8, length -= 8, at += 8) {
        word = shmc_word_load(at);
        seen |= word;
        memcpy(to, &word, 8);
    }
    if (length > 0) {
        word = low_bytes(shmc_word_load(at), length);
        seen |= word;
        put_bytes(to, word, length);
    }
    return fold(seen);
}

uint64_t shmc_string_be64(const struct shmc_span *span, const struct shmc_string *string,
                          uint32_t start)
{
    uint64_t word;

    if (start >= string->length)
        return 0;
    if (string->block == 0)
        return __builtin_bswap64(
            low_bytes(string->word >> 8 >> (8 * start), string->length - start));
    const uint64_t position = 4 + (uint64_t)start;
    const uint8_t *at = span->base + string->block + (position & ~UINT64_C(7));
    const uint32_t skip = (uint32_t)(position & 7u);

    word = shmc_word_load(at) >> (8 * skip);
    if (skip != 0 && string->length - start > 8 - skip)
        word |= shmc_word_load(at + 8) << (64 - 8 * skip);
    return __builtin_bswap64(low_bytes(word, string->length - start));
}

uint64_t shmc_bytes_be64(const uint8_t *bytes, size_t length, size_t start)
{
    uint64_t word = 0;

    if (start >= length)
        return 0;
    const size_t left = length - start;
    if (left >= 8) {
        memcpy(&word, bytes + start, 8);
        return __builtin_bswap64(word);
    }
    if (length >= 8) { /* the last 8 bytes, less those before start */
        memcpy(&word, bytes + length - 8, 8);
        return __builtin_bswap64(word) << (8 * (8 - left));
    }
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)bytes[start + i] << (8 * (7 - i));
    return word;
}

int shmc_string_compare(const struct shmc_span *span, const struct shmc_string *string,
                        uint32_t start, uint32_t length, const uint8_t *bytes)
{
    for (uint32_t done = 0; done < length; done += 8) {
        const uint32_t left = length - done;
        uint64_t mine = shmc_string_be64(span, string, start + done);
        const uint64_t other = shmc_bytes_be64(bytes, length, done);

        if (left < 8)
            mine &= ~UINT64_C(0) << (8 * (8 - left));
        if (mine != other)
            return mine < other ? -1 : 1;
    }
    return 0;
}

uint64_t shmc_object_member(const struct shmc_span *span, const struct shmc_object *object,
                            const uint8_t *key, uint32_t length)
{
    struct shmc_string name;

    for (uint64_t i = 0; i < object->count; i++) {
        if (shmc_string_open(span, shmc_object_key(span, object, i), &name) &&
            name.length == length && shmc_string_compare(span, &name, 0, length, key) == 0)
            return i;
    }
    return object->count;
}

shmc_word shmc_object_find(const struct shmc_span *span, shmc_word word, const uint8_t *key,
                           uint32_t length)
{
    struct shmc_object object;

    if (!shmc_object_open(span, word, &object))
        return SHMC_NOTHING;
    const uint64_t number = shmc_object_member(span, &object, key, length);
    return number < object.count ? shmc_load_at(span, object.words + number * 8) : SHMC_NOTHING;
}

/*
 * One pass: UTF-8 as RFC 3629 (no surrogates, nothing overlong), and the flags.
 * ESCAPES: a quote, a backslash or a control character below 0x20.
 */
bool shmc_string_flags(const uint8_t *bytes, size_t length, uint32_t *flags)
{
    uint32_t found = 0;

    for (size_t i = 0; i < length;) {
        const uint8_t c = bytes[i];

        if (c < 0x80) {
            if (c < 0x20 || c == '"' || c == '\\')
                found |= SHMC_STRING_ESCAPES;
            i++;
            continue;
        }
        found |= SHMC_STRING_WIDE;
        const size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        uint32_t point = c & (0x3fu >> more);

        if (c < 0xc2 || c > 0xf4 || length - i <= more)
            return false;
        for (size_t k = 1; k <= more; k++) {
            if ((bytes[i + k] & 0xc0) != 0x80)
                return false;
            point = point << 6 | (bytes[i + k] & 0x3fu);
        }
        if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
            (more == 3 && (point < 0x10000 || point > 0x10ffff)))
            return false;
        i += more + 1;
    }
    *flags = found;
    return true;
}

size_t shmc_index_escape(const uint8_t *bytes, size_t length, uint8_t *to)
{
    size_t size = 0;

    for (size_t i = 0; i < length; i++) {
        if (bytes[i] > 1) {
            to[size++] = bytes[i];
        } else {
            to[size++] = 1;
            to[size++] = (uint8_t)(bytes[i] + 1);
        }
    }
    return size;
}

size_t shmc_index_unescape(uint8_t *bytes, size_t length)
{
    size_t size = 0;

    for (size_t i = 0; i < length; i++)
        bytes[size++] = bytes[i] == 1 && i + 1 < length ? (uint8_t)(bytes[++i] - 1) : bytes[i];
    return size;
}

/* ---- texts of indices and selectors ------------------------------------------------------------ */

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
