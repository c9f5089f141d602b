/*
 * text.c - strings of JSON text: where they end, and their content.
 *
 * Sixteen bytes are checked at once with SSE2 (any x86-64), else eight.
 */
#include "json/json.h"

#ifdef __SSE2__
#include <emmintrin.h>

#define STRIDE 16u

/* A bit per byte that is a quote, a backslash, a control character, or not ASCII. */
static inline unsigned special(const uint8_t *at)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
    const __m128i quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    const __m128i slashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    /* signed: bytes that are not ASCII are below 0x20, too */
    const __m128i low = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));

    return (unsigned)_mm_movemask_epi8(_mm_or_si128(low, _mm_or_si128(quotes, slashes)));
}
#else
#define STRIDE 8u

static inline unsigned special(const uint8_t *at)
{
    unsigned found = 0;

    for (unsigned i = 0; i < STRIDE; i++)
        found |= (unsigned)(at[i] == '"' || at[i] == '\\' || at[i] < 0x20 || at[i] >= 0x80) << i;
    return found;
}
#endif

const uint8_t *shmc_text_end(const uint8_t *at, const uint8_t *end, unsigned *what)
{
    unsigned found = 0;

    for (;;) {
        if ((size_t)(end - at) >= STRIDE) {
            const unsigned bitmap = special(at);
            if (bitmap == 0) {
                at += STRIDE;
                continue;
            }
            at += __builtin_ctz(bitmap);
        }
        if (at == end)
            return NULL;
        const uint8_t c = *at;
        if (c == '"')
            break;
        if (c == '\\') {
            found |= SHMC_TEXT_ESCAPED;
            if (end - at < 2)
                return NULL;
            at += 2; /* a control character there is rejected with the escape */
            continue;
        }
        if (c < 0x20)
            found |= SHMC_TEXT_CONTROL;
        else if (c >= 0x80)
            found |= SHMC_TEXT_WIDE;
        at++;
    }
    *what = found;
    return at;
}

/* ---- escapes ------------------------------------------------------------------------------ */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four digits of a \u; -1 if they are not hexadecimal. */
static int32_t unit(const uint8_t *at, const uint8_t *end)
{
    int32_t value = 0;

    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static uint8_t *put_point(uint8_t *to, uint32_t point)
{
    if (point < 0x80) {
        *to++ = (uint8_t)point;
        return to;
    }
    if (point < 0x800) {
        *to++ = (uint8_t)(0xc0 | point >> 6);
    } else {
        if (point < 0x10000) {
            *to++ = (uint8_t)(0xe0 | point >> 12);
        } else {
            *to++ = (uint8_t)(0xf0 | point >> 18);
            *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3f));
        }
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    }
    *to++ = (uint8_t)(0x80 | (point & 0x3f));
    return to;
}

/* After a \u: one unit, or two that are a pair. NULL: neither. */
static const uint8_t *take_point(const uint8_t *at, const uint8_t *end, uint32_t *point)
{
    const int32_t high = unit(at, end);

    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return NULL;
    at += 4;
    *point = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000)
        return at;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return NULL;
    const int32_t low = unit(at + 2, end);
    if (low < 0xdc00 || low >= 0xe000)
        return NULL;
    *point = 0x10000 + ((uint32_t)(high & 0x3ff) << 10 | (uint32_t)(low & 0x3ff));
    return at + 6;
}

size_t shmc_text_unescape(const uint8_t *from, size_t length, uint8_t *to)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t *const end = from + length;
    uint8_t *const start = to;
    uint32_t point;

    while (from < end) {
        if (*from < 0x20)
            return SIZE_MAX;
        if (*from != '\\') {
            *to++ = *from++;
            continue;
        }
        if (++from == end)
            return SIZE_MAX;
        const uint8_t letter = *from++;
        if (letter == 'u') {
            from = take_point(from, end, &point);
            if (from == NULL)
                return SIZE_MAX;
            to = put_point(to, point);
            continue;
        }
        const char *known = letter != 0 ? strchr(letters, letter) : NULL;
        if (known == NULL)
            return SIZE_MAX;
        *to++ = (uint8_t)meant[known - letters];
    }
    return (size_t)(to - start);
}
