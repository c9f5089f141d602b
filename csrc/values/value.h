/*
 * value.h - one decoded JSON value in one 64-bit word, and how to read it safely.
 *
 *   63                                             3 2   0
 *   +-----------------------------------------------+-----+
 *   |  payload                                      | tag |
 *   +-----------------------------------------------+-----+
 *     0 constant   payload 0 is "absent"; null, false, true, [] and {}
 *     1 integer    61 bits, signed
 *     2 short      bits 3..5 length, bytes in 8..63: UTF-8 of at most 7 bytes
 *     3 double     whose low three bits are 0: the bits themselves | tag
 *     4 string   \
 *     5 number    | offset of a block (a multiple of 8) | tag
 *     6 array     |
 *     7 object   /
 *
 * Two words of one arena are equal if and only if the values are (equal blocks are
 * stored once, and each value has one spelling).
 *
 * Reading. A reader may be reading a block that the writer is reusing (its pin
 * was revoked) or bytes that another process overwrote. So:
 *   VALUE1  each arena word is loaded once, relaxed, into a local;
 *   VALUE2  an offset and a length are checked against the span before use;
 *   VALUE3  a copy is valid only after shmc_valid() of the view's generation;
 *   VALUE4  counts, depths and the number of nodes followed are bounded.
 * The functions here do VALUE1 and VALUE2 and return false (or 0) for impossible data; the
 * caller does VALUE3 and VALUE4.
 */
#ifndef SHMC_VALUE_H
#define SHMC_VALUE_H

#include "layout.h"

enum shmc_tag {
    SHMC_TAG_CONSTANT = 0,
    SHMC_TAG_INTEGER = 1,
    SHMC_TAG_SHORT = 2,
    SHMC_TAG_DOUBLE = 3,
    SHMC_TAG_STRING = 4,
    SHMC_TAG_NUMBER = 5,
    SHMC_TAG_ARRAY = 6,
    SHMC_TAG_OBJECT = 7,
};
#define SHMC_TAG_SHAPE SHMC_TAG_CONSTANT /* only inside the table of equals */

#define SHMC_NOTHING UINT64_C(0)
#define SHMC_NULL (UINT64_C(1) << 3)
#define SHMC_FALSE (UINT64_C(2) << 3)
#define SHMC_TRUE (UINT64_C(3) << 3)
#define SHMC_EMPTY_ARRAY (UINT64_C(4) << 3)
#define SHMC_EMPTY_OBJECT (UINT64_C(5) << 3)
#define SHMC_EMPTY_STRING ((uint64_t)SHMC_TAG_SHORT)

#define SHMC_SHORT_MAX 7u
#define SHMC_INTEGER_MAX ((INT64_C(1) << 60) - 1)
#define SHMC_INTEGER_MIN (-(INT64_C(1) << 60))

/* Flags in the word of a string's length. */
#define SHMC_STRING_WIDE 0x80000000u    /* not all ASCII */
#define SHMC_STRING_ESCAPES 0x40000000u /* JSON needs an escape in it */
#define SHMC_STRING_LENGTH 0x3fffffffu

/* Kinds of a number block. */
#define SHMC_NUMBER_INT64 1u
#define SHMC_NUMBER_UINT64 2u
#define SHMC_NUMBER_DOUBLE 3u

static inline unsigned shmc_tag(shmc_word word)
{
    return (unsigned)(word & 7u);
}

static inline bool shmc_is_block(shmc_word word)
{
    return (word & 7u) >= SHMC_TAG_STRING;
}

static inline shmc_offset shmc_block_of(shmc_word word)
{
    return word & ~UINT64_C(7);
}

static inline bool shmc_integer_fits(int64_t value)
{
    return value >= SHMC_INTEGER_MIN && value <= SHMC_INTEGER_MAX;
}

static inline shmc_word shmc_integer_word(int64_t value)
{
    return ((uint64_t)value << 3) | SHMC_TAG_INTEGER;
}

static inline int64_t shmc_integer_value(shmc_word word)
{
    return (int64_t)word >> 3;
}

static inline bool shmc_double_fits(uint64_t bits)
{
    return (bits & 7u) == 0;
}

/* Little endian: byte 0 lands in bits 8..15. Loads of fixed sizes that overlap, since a copy of
 * unknown length is a call. */
static inline shmc_word shmc_short_word(const uint8_t *bytes, size_t length)
{
    uint64_t payload = 0;

    assert(length <= SHMC_SHORT_MAX);
    if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + length - 4, 4);
        payload = first | (uint64_t)last << (8 * (length - 4));
    } else if (length > 0) {
        payload = bytes[0] | (uint64_t)bytes[length / 2] << (8 * (length / 2)) |
                  (uint64_t)bytes[length - 1] << (8 * (length - 1));
    }
    return payload << 8 | (uint64_t)length << 3 | SHMC_TAG_SHORT;
}

static inline size_t shmc_short_length(shmc_word word)
{
    return (size_t)(word >> 3 & 7u);
}

/* Writes 8 bytes; the first shmc_short_length() of them are valid. */
static inline void shmc_short_bytes(shmc_word word, uint8_t bytes[8])
{
    const uint64_t payload = word >> 8;

    memcpy(bytes, &payload, 8);
}

/* The readable part of DATA: base, where its blocks begin and end. The bytes before them may have
 * no memory (LAYOUT3), and a word that is no longer valid may lead there. */
struct shmc_span {
    const uint8_t *base;
    uint64_t size, first;
};

static inline uint64_t shmc_span_size(const struct shmc_span *span)
{
    return shmc_risen(&span->size); /* a reader's size rises while other threads read (PIN9) */
}

/* Whether that many bytes follow the offset. Several times per field, so never a call. */
static inline __attribute__((always_inline)) bool
shmc_reaches(const struct shmc_span *span, shmc_offset offset, uint64_t length)
{
    const uint64_t size = shmc_span_size(span);

    return (offset & 7u) == 0 && SHMC_CHECKED(NO_RING_BOUND, offset >= span->first) &&
           offset <= size && length <= size - offset;
}

/* VALUE2: checked before an offset is followed. */
static inline __attribute__((always_inline)) bool
shmc_in_span(const struct shmc_span *span, shmc_offset offset, uint64_t length)
{
    return SHMC_DEFENDED(shmc_reaches(span, offset, length));
}

/* VALUE4: a count that is impossible for a block. */
static inline bool shmc_in_bounds(const struct shmc_span *span, uint64_t count)
{
    return SHMC_DEFENDED(count <= shmc_span_size(span) / 8);
}

/* The caller has checked the offset (VALUE2). */
static inline uint64_t shmc_load_at(const struct shmc_span *span, shmc_offset offset)
{
    return shmc_word_load(span->base + offset);
}

/* Prefetches the line at an offset that may be anything: nothing is read, nothing can go wrong. */
static inline void shmc_fetch(const struct shmc_span *span, shmc_offset offset)
{
    __builtin_prefetch((const void *)((uintptr_t)span->base + offset));
}

/* The two halves of a product folded: the building block of the hashes here. */
static inline uint64_t shmc_mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t shmc_padded(uint64_t length)
{
    return (length + 7u) & ~UINT64_C(7);
}

/* An open string: its bytes are either in the word, or in a block of DATA. */
struct shmc_string {
    shmc_offset block;  /* 0: short, the bytes are in word */
    shmc_word word;
    uint32_t length;
    uint32_t flags;
};

static inline __attribute__((always_inline)) bool
shmc_string_open(const struct shmc_span *span, shmc_word word, struct shmc_string *string)
{
    string->word = word;
    string->block = 0;
    string->flags = 0;
    if (shmc_tag(word) == SHMC_TAG_SHORT) {
        string->length = (uint32_t)shmc_short_length(word);
        return true;
    }
    string->block = shmc_block_of(word);
    if (shmc_tag(word) != SHMC_TAG_STRING || !shmc_in_span(span, string->block, 8))
        return false;
    const uint32_t head = (uint32_t)shmc_load_at(span, string->block);
    string->length = head & SHMC_STRING_LENGTH;
    string->flags = head & ~SHMC_STRING_LENGTH;
    return shmc_in_span(span, string->block, 4 + (uint64_t)string->length);
}

/*
 * Copies `length` bytes from `start` of an open string. Only relaxed loads of whole
 * words; never reads past the padded block. Returns the OR of all bytes copied,
 * so that a caller that expects ASCII can check.
 */
uint8_t shmc_string_copy(const struct shmc_span *span, const struct shmc_string *string,
                         uint32_t start, uint32_t length, uint8_t *to);

/* Compares `length` bytes from `start` with `bytes`: -1, 0, 1 as memcmp. */
int shmc_string_compare(const struct shmc_span *span, const struct shmc_string *string,
                        uint32_t start, uint32_t length, const uint8_t *bytes);

static inline uint64_t shmc_load8(const uint8_t *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, 8);
    return word;
}

/* Whether an open string that lies in a block has exactly these bytes, which are private. Reads
 * whole words of the block (VALUE1), zeros after its end. */
static inline bool shmc_string_is(const struct shmc_span *span, const struct shmc_string *string,
                                  const uint8_t *bytes, size_t length)
{
    const uint8_t *block = span->base + string->block;
    uint32_t first;
    size_t done = 4; /* bytes that follow the head */

    if (string->length != length || length <= SHMC_SHORT_MAX)
        return false; /* a string that short is in its word */
    memcpy(&first, bytes, 4);
    uint64_t differ = shmc_word_load(block) >> 32 ^ first;
    for (; length - done >= 8; done += 8)
        differ |= shmc_word_load(block + 4 + done) ^ shmc_load8(bytes + done);
    if (done < length) {
        const unsigned left = (unsigned)(length - done);
        differ |= shmc_word_load(block + 4 + done) ^
                  shmc_load8(bytes + length - 8) >> (8 * (8 - left));
    }
    return differ == 0;
}

struct shmc_array {
    shmc_offset words; /* offset of the first element */
    uint64_t count;
};

static inline bool shmc_array_open(const struct shmc_span *span, shmc_word word,
                                   struct shmc_array *array)
{
    const shmc_offset block = shmc_block_of(word);

    array->words = block + 8;
    array->count = 0;
    if (word == SHMC_EMPTY_ARRAY)
        return true;
    if (shmc_tag(word) != SHMC_TAG_ARRAY || !shmc_in_span(span, block, 8))
        return false;
    array->count = shmc_load_at(span, block);
    return shmc_in_bounds(span, array->count) && shmc_in_span(span, block, 8 + array->count * 8);
}

/* Values stored long ago are cold: prefetches the first blocks that a row of words refers to, all
 * at once. The words lie in the span. */
static inline void shmc_fetch_ahead(const struct shmc_span *span, shmc_offset words, uint64_t count)
{
    for (uint64_t i = 0; i < count && i < 32; i++) {
        const shmc_word word = shmc_load_at(span, words + i * 8);
        if (!shmc_is_block(word))
            continue;
        shmc_fetch(span, shmc_block_of(word));
        if (shmc_tag(word) >= SHMC_TAG_ARRAY) /* the second line of a container */
            shmc_fetch(span, shmc_block_of(word) + 64);
    }
}

struct shmc_object {
    shmc_offset words; /* offset of the first value */
    shmc_offset shape; /* 0 for {} */
    uint64_t shape_id; /* never reused: the key of per-process caches */
    uint64_t count;
};

static inline bool shmc_object_open(const struct shmc_span *span, shmc_word word,
                                    struct shmc_object *object)
{
    const shmc_offset block = shmc_block_of(word);

    object->words = block + 8;
    object->shape = 0;
    object->shape_id = 0;
    object->count = 0;
    if (word == SHMC_EMPTY_OBJECT)
        return true;
    if (shmc_tag(word) != SHMC_TAG_OBJECT || !shmc_in_span(span, block, 8))
        return false;
    object->shape = shmc_load_at(span, block);
    if (!shmc_in_span(span, object->shape, 16))
        return false;
    object->shape_id = shmc_load_at(span, object->shape);
    object->count = shmc_load_at(span, object->shape + 8);
    return shmc_in_bounds(span, object->count) &&
           shmc_in_span(span, block, 8 + object->count * 8) &&
           shmc_in_span(span, object->shape, 16 + object->count * 8);
}

/* The key word number `index` of an open object; index < count. */
static inline shmc_word shmc_object_key(const struct shmc_span *span,
                                        const struct shmc_object *object, uint64_t index)
{
    return shmc_load_at(span, object->shape + 16 + index * 8);
}

static inline bool shmc_number_open(const struct shmc_span *span, shmc_word word, uint64_t *kind,
                                    uint64_t *bits)
{
    const shmc_offset block = shmc_block_of(word);

    if (shmc_tag(word) == SHMC_TAG_DOUBLE) {
        *kind = SHMC_NUMBER_DOUBLE;
        *bits = word & ~UINT64_C(7);
        return true;
    }
    if (shmc_tag(word) != SHMC_TAG_NUMBER || !shmc_in_span(span, block, 16))
        return false;
    *kind = shmc_load_at(span, block);
    *bits = shmc_load_at(span, block + 8);
    return *kind >= SHMC_NUMBER_INT64 && *kind <= SHMC_NUMBER_DOUBLE;
}

/*
 * The number of the member with a key, by comparing bytes; the count if absent. For paths
 * of indices; views look keys up by shape instead.
 */
uint64_t shmc_object_member(const struct shmc_span *span, const struct shmc_object *object,
                            const uint8_t *key, uint32_t length);
/* The value of a key; SHMC_NOTHING if the word is not an object or lacks the key. */
shmc_word shmc_object_find(const struct shmc_span *span, shmc_word word, const uint8_t *key,
                           uint32_t length);

/* Which member of objects of one shape (an id is never used twice) has a key: for the last few
 * shapes. All zero: empty. */
#define SHMC_MEMBERS 8u /* a power of two */
struct shmc_members {
    uint64_t shapes[SHMC_MEMBERS]; /* 0: none, or that of {} */
    uint64_t numbers[SHMC_MEMBERS]; /* the shape's count: it has no such key */
};

/* The value of a key in an open object; the members are those of this key alone. */
static inline shmc_word shmc_members_value(const struct shmc_span *span,
                                           struct shmc_members *known,
                                           const struct shmc_object *object, const uint8_t *key,
                                           size_t length)
{
    const size_t slot = object->shape_id & (SHMC_MEMBERS - 1);

    if (known->shapes[slot] != object->shape_id) {
        known->shapes[slot] = object->shape_id;
        known->numbers[slot] = shmc_object_member(span, object, key, (uint32_t)length);
    }
    const uint64_t number = known->numbers[slot];
    return number < object->count ? shmc_load_at(span, object->words + number * 8) : SHMC_NOTHING;
}

/* As shmc_object_find(), with members that are remembered. Forget those of a generation that proves
 * stale: garbage may bear the id of a shape that is yet to come. */
static inline shmc_word shmc_members_find(const struct shmc_span *span, struct shmc_members *known,
                                          shmc_word word, const uint8_t *key, size_t length)
{
    struct shmc_object object;

    if (!shmc_object_open(span, word, &object) || object.shape_id == 0)
        return SHMC_NOTHING;
    return shmc_members_value(span, known, &object, key, length);
}

#endif
