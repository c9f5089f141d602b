/*
 * skim.c - where JSON values end, and the identity of an object, without reading the rest.
 *
 * A container is skipped 64 bytes at a time: a bit for each quote, backslash and bracket; the
 * parity of the quotes shows which bytes are inside a string. Members are separated one by one
 * only where their names matter: in an event, in its object, in the object's metadata.
 */
#include "json/json.h"

#define BLOCK 64u

/* A bit per byte. */
struct bitmaps {
    uint64_t quotes, slashes, opens, closes;
};

#ifdef __SSE2__
#include <emmintrin.h>

static inline uint64_t equal16(__m128i bytes, char c, unsigned shift)
{
    const __m128i found = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(c));

    return (uint64_t)(uint32_t)_mm_movemask_epi8(found) << shift;
}

static inline void map16(const uint8_t *bytes, unsigned i, struct bitmaps *maps)
{
    const __m128i raw = _mm_loadu_si128((const __m128i *)(const void *)(bytes + i));
    const __m128i folded = _mm_or_si128(raw, _mm_set1_epi8(0x20)); /* [ is { then, ] is } */

    maps->quotes |= equal16(raw, '"', i);
    maps->slashes |= equal16(raw, '\\', i);
    maps->opens |= equal16(folded, '{', i);
    maps->closes |= equal16(folded, '}', i);
}

static inline void map64(const uint8_t *bytes, struct bitmaps *maps)
{
    *maps = (struct bitmaps){0};
    map16(bytes, 0, maps);
    map16(bytes, 16, maps);
    map16(bytes, 32, maps);
    map16(bytes, 48, maps);
}
#else
static inline void map64(const uint8_t *bytes, struct bitmaps *maps)
{
    *maps = (struct bitmaps){0};
    for (unsigned i = 0; i < BLOCK; i++) {
        maps->quotes |= (uint64_t)(bytes[i] == '"') << i;
        maps->slashes |= (uint64_t)(bytes[i] == '\\') << i;
        maps->opens |= (uint64_t)((bytes[i] | 0x20) == '{') << i;
        maps->closes |= (uint64_t)((bytes[i] | 0x20) == '}') << i;
    }
}
#endif

/* The bytes preceded by a backslash, of the first `length`; *carry continues with the next. */
static inline uint64_t behind_slashes(uint64_t slashes, unsigned length, uint64_t *carry)
{
    uint64_t behind = *carry;

    slashes &= ~behind;
    *carry = 0;
    while (slashes != 0) {
        const uint64_t slash = slashes & (0 - slashes);
        if (slash == UINT64_C(1) << (length - 1))
            SHMC_UNLESS(NO_SKIM_CARRY, *carry = 1);
        behind |= slash << 1;
        slashes &= ~(slash | slash << 1);
    }
    return behind;
}

/* Bit i: the parity of the bits 0 to i. */
static inline uint64_t parity(uint64_t bits)
{
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    return bits ^ bits << 32;
}

/* Up to 64 bytes; returns after which byte the outermost bracket closes, 0: it does not. */
static inline unsigned skim_block(struct shmc_skim *skim, const uint8_t *bytes, unsigned length)
{
    struct bitmaps maps;

    map64(bytes, &maps);
    if ((maps.slashes | skim->escaped) != 0) {
        const uint64_t plain = ~behind_slashes(maps.slashes, length, &skim->escaped);
        maps.quotes &= plain;
        maps.opens &= plain;
        maps.closes &= plain;
    }
    const uint64_t inside = parity(maps.quotes) ^ skim->string;
    skim->string = 0 - (inside >> 63);
    maps.opens &= ~inside;
    maps.closes &= ~inside;
    for (uint64_t brackets = maps.opens | maps.closes; brackets != 0; brackets &= brackets - 1) {
        const uint64_t bracket = brackets & (0 - brackets);
        if (maps.opens & bracket)
            skim->depth++;
        else if (--skim->depth == 0)
            return (unsigned)__builtin_ctzll(bracket) + 1;
    }
    return 0;
}

size_t shmc_skim(struct shmc_skim *skim, const uint8_t *bytes, size_t length, bool *ended)
{
    uint8_t last[BLOCK];
    size_t done = 0;
    unsigned found = 0;

    for (; length - done >= BLOCK; done += BLOCK) {
        found = skim_block(skim, bytes + done, BLOCK);
        if (found != 0)
            break;
    }
    const unsigned left = (unsigned)(length - done);
    if (found == 0 && left > 0) {
        memset(last, ' ', BLOCK);
        memcpy(last, bytes + done, left);
        found = skim_block(skim, last, left);
    }
    *ended = found != 0;
    return found != 0 ? done + found : length;
}

/* ---- members ------------------------------------------------------------------------------ */

static bool is_bare(uint8_t c)
{
    const uint8_t letter = c | 0x20;

    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
}

/* Where the value at `at` ends; NULL: no value, or it does not end. */
static const uint8_t *value_end(const uint8_t *at, const uint8_t *end)
{
    struct shmc_skim skim = {0};
    unsigned what;
    bool ended;

    if (at == end)
        return NULL;
    if (*at == '"') {
        at = shmc_text_end(at + 1, end, &what);
        return at == NULL ? NULL : at + 1;
    }
    if (*at == '{' || *at == '[') {
        at += shmc_skim(&skim, at, (size_t)(end - at), &ended);
        return ended ? at : NULL;
    }
    const uint8_t *const start = at;
    while (at < end && is_bare(*at))
        at++;
    return at == start || at == end ? NULL : at;
}

/* A walk over the members of an object. */
struct walk {
    const uint8_t *at, *end;
    struct shmc_piece name; /* with its quotes */
    bool begun, failed;
};

/* To the next member's value, from after the previous one; false at the end, and on failure. */
static bool next_member(struct walk *walk)
{
    unsigned what;
    const uint8_t *at = shmc_skip_space(walk->at, walk->end);
    const uint8_t *const end = walk->end;

    walk->failed = true;
    if (at == end)
        return false;
    if (*at == '}') {
        walk->at = at + 1;
        walk->failed = false;
        return false;
    }
    if (walk->begun) {
        if (*at != ',')
            return false;
        at = shmc_skip_space(at + 1, end);
    }
    if (at == end || *at != '"')
        return false;
    walk->begun = true;
    walk->name.bytes = at;
    at = shmc_text_end(at + 1, end, &what);
    if (at == NULL)
        return false;
    walk->name.length = (size_t)(at + 1 - walk->name.bytes);
    at = shmc_skip_space(at + 1, end);
    if (at == end || *at != ':')
        return false;
    walk->at = shmc_skip_space(at + 1, end);
    walk->failed = false;
    return true;
}

/* Skips the value; false if it does not end. */
static bool pass_value(struct walk *walk, struct shmc_piece *value)
{
    const uint8_t *const after = value_end(walk->at, walk->end);

    walk->failed = after == NULL;
    if (walk->failed)
        return false;
    if (value != NULL)
        *value = (struct shmc_piece){walk->at, (size_t)(after - walk->at)};
    walk->at = after;
    return true;
}

bool shmc_literal_is(const struct shmc_piece *literal, const char *text)
{
    uint8_t decoded[128];
    const size_t wanted = strlen(text);
    const uint8_t *const bytes = literal->bytes + 1;

    if (literal->length < wanted + 2 || *literal->bytes != '"')
        return false;
    const size_t length = literal->length - 2;
    if (length == wanted && memcmp(bytes, text, wanted) == 0)
        return true;
    return length <= sizeof decoded && memchr(bytes, '\\', length) != NULL &&
           shmc_text_unescape(bytes, length, decoded) == wanted &&
           memcmp(decoded, text, wanted) == 0;
}

static const uint8_t *read_metadata(const uint8_t *at, const uint8_t *end,
                                    struct shmc_identity *found)
{
    struct walk walk = {.at = at + 1, .end = end};

    while (next_member(&walk)) {
        struct shmc_piece *to = NULL;

        if (shmc_literal_is(&walk.name, "name"))
            to = &found->name;
        else if (shmc_literal_is(&walk.name, "namespace"))
            to = &found->namespace;
        else if (shmc_literal_is(&walk.name, "resourceVersion"))
            to = &found->version;
        else if (shmc_literal_is(&walk.name, "uid"))
            to = &found->uid;
        if (!pass_value(&walk, to))
            break;
    }
    return walk.failed ? NULL : walk.at;
}

const uint8_t *shmc_identify(const uint8_t *at, const uint8_t *end, struct shmc_identity *found)
{
    static const struct shmc_piece none = {NULL, 0};
    struct walk walk = {.at = at + 1, .end = end};

    *found = (struct shmc_identity){.kind = none};
    while (next_member(&walk)) {
        struct shmc_piece *to = NULL;

        if (shmc_literal_is(&walk.name, "metadata")) {
            found->name = found->namespace = found->version = found->uid = none;
            if (walk.at < end && *walk.at == '{') {
                walk.at = read_metadata(walk.at, end, found);
                if (walk.at == NULL)
                    return NULL;
                continue;
            }
        } else if (shmc_literal_is(&walk.name, "kind")) {
            to = &found->kind;
        } else if (shmc_literal_is(&walk.name, "apiVersion")) {
            to = &found->api_version;
        }
        if (!pass_value(&walk, to))
            break;
    }
    return walk.failed ? NULL : walk.at;
}

/* ---- events ------------------------------------------------------------------------------- */

/* The object of an event: its identity at once, if possible; its end in any case. */
static bool read_object(struct walk *walk, struct shmc_event *event, bool *identified)
{
    const uint8_t *const start = walk->at;
    const uint8_t *const after =
        start < walk->end && *start == '{' ? shmc_identify(start, walk->end, &event->identity)
                                           : NULL;

    *identified = after != NULL;
    if (after == NULL)
        return pass_value(walk, &event->object);
    event->object = (struct shmc_piece){start, (size_t)(after - start)};
    walk->at = after;
    return true;
}

bool shmc_read_event(const uint8_t *line, size_t length, struct shmc_event *event)
{
    const uint8_t *const end = line + length;
    const uint8_t *const at = shmc_skip_space(line, end);
    struct walk walk = {.at = at + 1, .end = end};
    bool identified = false;

    event->type = event->object = (struct shmc_piece){NULL, 0};
    if (at == end || *at != '{')
        return false;
    while (next_member(&walk)) {
        if (shmc_literal_is(&walk.name, "object")) {
            if (!read_object(&walk, event, &identified))
                return false;
        } else if (!pass_value(&walk, shmc_literal_is(&walk.name, "type") ? &event->type : NULL)) {
            return false;
        }
    }
    return !walk.failed && identified && event->type.length > 0 && *event->type.bytes == '"' &&
           shmc_skip_space(walk.at, end) == end;
}
