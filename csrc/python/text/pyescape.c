/*
 * pyescape.c - strings that need escapes: those that JSON must have, and those that Go's encoder adds.
 *
 *   <  >  &           \u003c \u003e \u0026      (so that the text is harmless inside HTML)
 *   U+2028  U+2029    \u2028 \u2029             (line terminators in JavaScript)
 *
 * An API server escapes the latter too, and so does any text written in a form here.
 */
#include "python/text/pyjson.h"

/* The letter after the backslash that replaces a byte; 'u': its number; 0: the byte itself. */
static const uint8_t escapes[128] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\',
};

/* One character, or one byte that needs no escape. */
struct piece {
    size_t length; /* in the string */
    uint32_t code;
    uint8_t letter; /* as above */
};

static inline struct piece piece_at(const uint8_t *at, const uint8_t *end, bool go)
{
    struct piece piece = {1, *at, *at < 128 ? escapes[*at] : 0};

    if (!go)
        return piece;
    if (*at == '<' || *at == '>' || *at == '&') {
        piece.letter = 'u';
    } else if (*at == 0xe2 && end - at >= 3 && at[1] == 0x80 && (at[2] | 1) == 0xa9) {
        piece = (struct piece){3, 0x2000u | (at[2] & 0x3fu), 'u'};
    }
    return piece;
}

static size_t extra(const uint8_t *from, size_t length, bool go)
{
    const uint8_t *const end = from + length;
    size_t more = 0;

    while (from < end) {
        const struct piece piece = piece_at(from, end, go);
        more += piece.letter == 0 ? 0 : (piece.letter == 'u' ? 6 : 2) - piece.length;
        from += piece.length;
    }
    return more;
}

static uint8_t *escape(const uint8_t *from, size_t length, uint8_t *to, bool go)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *const end = from + length;

    while (from < end) {
        const struct piece piece = piece_at(from, end, go);

        if (piece.letter == 0) {
            *to++ = *from++;
            continue;
        }
        from += piece.length;
        *to++ = '\\';
        *to++ = piece.letter;
        for (int shift = 12; piece.letter == 'u' && shift >= 0; shift -= 4)
            *to++ = (uint8_t)digits[piece.code >> shift & 15];
    }
    return to;
}

size_t shmc_json_extra(const uint8_t *from, size_t length)
{
    return extra(from, length, false);
}

bool shmc_json_go_text(const uint8_t *from, size_t length)
{
    return extra(from, length, true) != extra(from, length, false);
}

uint8_t *shmc_json_escape(const uint8_t *from, size_t length, uint8_t *to)
{
    return escape(from, length, to, false);
}

uint8_t *shmc_json_escape_here(struct shmc_json *json, uint8_t *at, size_t length)
{
    const bool go = json->form != NULL;
    const size_t more = extra(at, length, go), used = (size_t)(at - json->bytes);

    if (more == 0)
        return at + length;
    if (shmc_json_room(json, at + length, more) == NULL)
        return NULL;
    at = json->bytes + used;
    memmove(at + more, at, length);
    return escape(at + more, length, at, go);
}
