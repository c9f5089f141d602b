/*
 * Reading a word or a block gives exactly what was stored, byte for byte; and whatever the bytes
 * of DATA are, nothing outside of the span is touched.
 *
 * The span is malloc'ed memory of exactly its size, so that a sanitizer sees one byte too many.
 */
#include <sys/mman.h>

#include "core_fixture.h"

#define LENGTHS 41u
#define SPAN (SHMC_RING_OFFSET + 512)

static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static uint8_t *exact(size_t size)
{
    uint8_t *memory = aligned_alloc(8, (size + 7) / 8 * 8);

    CHECK(memory != NULL);
    return memory;
}

/* ---- words --------------------------------------------------------------------------------- */

static void test_integers(void)
{
    static const int64_t fitting[] = {0, 1, -1, 255, -256, SHMC_INTEGER_MAX, SHMC_INTEGER_MIN};
    static const int64_t wide[] = {SHMC_INTEGER_MAX + 1, SHMC_INTEGER_MIN - 1, INT64_MAX,
                                   INT64_MIN};

    for (size_t i = 0; i < sizeof fitting / sizeof fitting[0]; i++) {
        CHECK(shmc_integer_fits(fitting[i]));
        CHECK_EQUAL(fitting[i], shmc_integer_value(shmc_integer_word(fitting[i])));
        CHECK_EQUAL(SHMC_TAG_INTEGER, shmc_tag(shmc_integer_word(fitting[i])));
    }
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        CHECK(!shmc_integer_fits(wide[i]));
}

static void test_short_words(void)
{
    uint8_t bytes[8], back[8];

    for (unsigned round = 0; round < 2000; round++) {
        const size_t length = dice(SHMC_SHORT_MAX + 1);
        uint8_t *source = malloc(length + (length == 0)); /* exactly */
        CHECK(source != NULL);
        for (size_t i = 0; i < length; i++)
            source[i] = bytes[i] = (uint8_t)dice(256);
        const shmc_word word = shmc_short_word(source, length);
        CHECK_EQUAL(SHMC_TAG_SHORT, shmc_tag(word));
        CHECK(!shmc_is_block(word));
        CHECK_EQUAL(length, shmc_short_length(word));
        shmc_short_bytes(word, back);
        CHECK_EQUAL(0, memcmp(bytes, back, length));
        for (size_t i = length; i < 8; i++) /* one spelling: the rest is zeros */
            CHECK_EQUAL(0, back[i]);
        free(source);
    }
}

static void number_round_trip(struct core *core, uint64_t kind, uint64_t bits, bool inlined)
{
    uint64_t found_kind = 0, found_bits = 0;
    shmc_word word, again;

    CHECK_EQUAL(SHMC_OK, shmc_make_number(core->writer, kind, bits, &word));
    CHECK_EQUAL(SHMC_OK, shmc_make_number(core->writer, kind, bits, &again));
    CHECK_EQUAL(word, again);
    CHECK_EQUAL(inlined, !shmc_is_block(word));
    if (shmc_tag(word) == SHMC_TAG_INTEGER) {
        CHECK_EQUAL(bits, (uint64_t)shmc_integer_value(word));
        return;
    }
    CHECK(shmc_number_open(shmc_writer_span(core->writer), word, &found_kind, &found_bits));
    CHECK_EQUAL(kind, found_kind);
    CHECK_EQUAL(bits, found_bits);
}

static uint64_t double_bits(double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static void test_numbers(void)
{
    struct core core;

    core_create(&core, (struct core_options){.size = 1 << 20});
    core_begin(&core);
    number_round_trip(&core, SHMC_NUMBER_INT64, 0, true);
    number_round_trip(&core, SHMC_NUMBER_INT64, (uint64_t)SHMC_INTEGER_MIN, true);
    number_round_trip(&core, SHMC_NUMBER_INT64, (uint64_t)SHMC_INTEGER_MAX + 1, false);
    number_round_trip(&core, SHMC_NUMBER_INT64, (uint64_t)INT64_MIN, false);
    number_round_trip(&core, SHMC_NUMBER_UINT64, UINT64_MAX, false);
    number_round_trip(&core, SHMC_NUMBER_DOUBLE, double_bits(0.5), true);
    number_round_trip(&core, SHMC_NUMBER_DOUBLE, double_bits(-0.0), true);
    number_round_trip(&core, SHMC_NUMBER_DOUBLE, double_bits(0.1), false);
    for (unsigned i = 0; i < 200; i++) { /* subnormals and all: bit for bit */
        const uint64_t bits = test_random(&random_state) >> dice(64);
        number_round_trip(&core, SHMC_NUMBER_DOUBLE, bits, (bits & 7) == 0);
        number_round_trip(&core, SHMC_NUMBER_INT64, bits, shmc_integer_fits((int64_t)bits));
    }
    shmc_word zero, minus;
    CHECK_EQUAL(SHMC_OK, shmc_make_number(core.writer, SHMC_NUMBER_DOUBLE, 0, &zero));
    CHECK_EQUAL(SHMC_OK,
                shmc_make_number(core.writer, SHMC_NUMBER_DOUBLE, double_bits(-0.0), &minus));
    CHECK(zero != minus && zero != shmc_integer_word(0));
    core_commit(&core);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

/* ---- strings in blocks ---------------------------------------------------------------------- */

/* A span whose last block is a string of `length` bytes; nothing lies after its padding. */
static shmc_word string_at_the_end(struct shmc_span *span, const uint8_t *bytes, uint32_t length)
{
    const uint64_t size = shmc_padded(4 + (uint64_t)length);
    uint8_t *memory = exact(SHMC_RING_OFFSET + size);

    memset(memory, 0, SHMC_RING_OFFSET + size);
    memcpy(memory + SHMC_RING_OFFSET, &length, 4);
    memcpy(memory + SHMC_RING_OFFSET + 4, bytes, length);
    *span = (struct shmc_span){memory, SHMC_RING_OFFSET + size, SHMC_RING_OFFSET};
    return SHMC_RING_OFFSET | SHMC_TAG_STRING;
}

static void release(const struct shmc_span *span)
{
    free((void *)(uintptr_t)span->base);
}

static uint64_t plain_be64(const uint8_t *bytes, size_t length, size_t start)
{
    uint64_t word = 0;

    for (size_t i = 0; i < 8; i++)
        word = word << 8 | (start + i < length ? bytes[start + i] : 0);
    return word;
}

static void check_string(const struct shmc_span *span, const struct shmc_string *string,
                         const uint8_t *bytes, uint32_t length)
{
    CHECK_EQUAL(length, string->length);
    for (uint32_t start = 0; start <= length; start++) {
        CHECK_EQUAL(plain_be64(bytes, length, start), shmc_string_be64(span, string, start));
        CHECK_EQUAL(plain_be64(bytes, length, start), shmc_bytes_be64(bytes, length, start));
        for (uint32_t count = 0; count <= length - start; count++) {
            uint8_t *copy = malloc(count + (count == 0));
            uint8_t seen = 0;

            CHECK(copy != NULL);
            const uint8_t all = shmc_string_copy(span, string, start, count, copy);
            CHECK_EQUAL(0, memcmp(bytes + start, copy, count));
            for (uint32_t i = 0; i < count; i++)
                seen |= bytes[start + i];
            CHECK_EQUAL(seen, all);
            CHECK_EQUAL(0, shmc_string_compare(span, string, start, count, copy));
            if (count > 0) {
                const uint32_t other = (uint32_t)dice(count);
                copy[other] = (uint8_t)dice(256);
                const int expected = memcmp(bytes + start, copy, count);
                CHECK_EQUAL((expected > 0) - (expected < 0),
                            shmc_string_compare(span, string, start, count, copy));
            }
            free(copy);
        }
    }
    CHECK_EQUAL(0, shmc_string_be64(span, string, length + 1));
}

static void test_strings_at_every_offset(void)
{
    for (uint32_t length = 0; length < LENGTHS; length++) {
        uint8_t *bytes = malloc(length + (length == 0));
        struct shmc_string string;
        struct shmc_span span;

        CHECK(bytes != NULL);
        for (uint32_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)(dice(4) == 0 ? 0 : dice(256));
        const shmc_word word = string_at_the_end(&span, bytes, length);
        CHECK(shmc_string_open(&span, word, &string));
        check_string(&span, &string, bytes, length);
        if (length <= SHMC_SHORT_MAX) {
            CHECK(shmc_string_open(&span, shmc_short_word(bytes, length), &string));
            check_string(&span, &string, bytes, length);
        }
        release(&span);
        free(bytes);
    }
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

static void test_utf8(void)
{
    static const struct {
        const char *bytes;
        size_t length;
        bool valid;
        uint32_t flags;
    } rows[] = {
        {"", 0, true, 0},
        {"plain text ~\x7f", 13, true, 0},
        {"a\"b", 3, true, SHMC_STRING_ESCAPES},
        {"a\\", 2, true, SHMC_STRING_ESCAPES},
        {"a\x1f", 2, true, SHMC_STRING_ESCAPES},
        {"a\0b", 3, true, SHMC_STRING_ESCAPES},
        {"\xc2\x80", 2, true, SHMC_STRING_WIDE},
        {"\xdf\xbf\n", 3, true, SHMC_STRING_WIDE | SHMC_STRING_ESCAPES},
        {"\xe0\xa0\x80", 3, true, SHMC_STRING_WIDE},
        {"\xed\x9f\xbf", 3, true, SHMC_STRING_WIDE},
        {"\xee\x80\x80", 3, true, SHMC_STRING_WIDE},
        {"\xef\xbf\xbf", 3, true, SHMC_STRING_WIDE},
        {"\xf0\x90\x80\x80", 4, true, SHMC_STRING_WIDE},
        {"\xf4\x8f\xbf\xbf", 4, true, SHMC_STRING_WIDE},
        {"\x80", 1, false, 0},             /* a continuation alone */
        {"\xbf", 1, false, 0},
        {"\xc0\x80", 2, false, 0},         /* overlong */
        {"\xc1\xbf", 2, false, 0},
        {"\xe0\x9f\xbf", 3, false, 0},
        {"\xf0\x8f\xbf\xbf", 4, false, 0},
        {"\xed\xa0\x80", 3, false, 0},     /* surrogates */
        {"\xed\xbf\xbf", 3, false, 0},
        {"\xf4\x90\x80\x80", 4, false, 0}, /* after the last plane */
        {"\xf5\x80\x80\x80", 4, false, 0},
        {"\xff", 1, false, 0},
        {"\xc2", 1, false, 0},             /* cut off */
        {"\xe0\xa0", 2, false, 0},
        {"\xf0\x90\x80", 3, false, 0},
        {"\xc2\xc2", 2, false, 0},         /* broken off */
        {"\xe0\xa0\x41", 3, false, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *bytes = malloc(rows[i].length + (rows[i].length == 0));
        uint32_t flags = 0;
        CHECK(bytes != NULL);
        memcpy(bytes, rows[i].bytes, rows[i].length);
        if (rows[i].valid != shmc_string_flags(bytes, rows[i].length, &flags))
            fprintf(stderr, "row %zu\n", i);
        CHECK_EQUAL(rows[i].valid, shmc_string_flags(bytes, rows[i].length, &flags));
        CHECK_EQUAL(rows[i].flags, flags);
        free(bytes);
    }
}

static size_t encode(uint32_t point, uint8_t bytes[4])
{
    if (point < 0x80) {
        bytes[0] = (uint8_t)point;
        return 1;
    }
    const size_t more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; i--, point >>= 6)
        bytes[i] = (uint8_t)(0x80 | (point & 0x3f));
    bytes[0] = (uint8_t)((0xff00 >> (more + 1) & 0xff) | point);
    return more + 1;
}

static void test_every_code_point(void)
{
    for (uint32_t point = 0; point < 0x110400; point++) {
        const bool valid = point < 0x110000 && (point < 0xd800 || point > 0xdfff);
        uint8_t bytes[4];
        uint32_t flags = 0;

        CHECK_EQUAL(valid, shmc_string_flags(bytes, encode(point, bytes), &flags));
    }
}

static void test_escapes_keep_the_order_and_come_back(void)
{
    uint8_t a[8], b[8], escaped_a[16], escaped_b[16];

    for (unsigned round = 0; round < 5000; round++) {
        const size_t a_length = dice(8), b_length = dice(8);
        for (size_t i = 0; i < 8; i++) {
            a[i] = (uint8_t)dice(4);
            b[i] = (uint8_t)dice(4);
        }
        const size_t a_size = shmc_index_escape(a, a_length, escaped_a);
        const size_t b_size = shmc_index_escape(b, b_length, escaped_b);
        CHECK(a_size <= 2 * a_length);
        CHECK(memchr(escaped_a, 0, a_size) == NULL);
        int plain = memcmp(a, b, a_length < b_length ? a_length : b_length);
        plain = plain != 0 ? plain : (a_length > b_length) - (a_length < b_length);
        int escaped = memcmp(escaped_a, escaped_b, a_size < b_size ? a_size : b_size);
        escaped = escaped != 0 ? escaped : (a_size > b_size) - (a_size < b_size);
        CHECK_EQUAL((plain > 0) - (plain < 0), (escaped > 0) - (escaped < 0));
        CHECK_EQUAL(a_length, shmc_index_unescape(escaped_a, a_size));
        CHECK_EQUAL(0, memcmp(a, escaped_a, a_length));
    }
    uint8_t garbage[3] = {1, 'x', 1}; /* unescaped bytes stay within bounds */
    CHECK_EQUAL(2, shmc_index_unescape(garbage, 3));
}

/* ---- garbage --------------------------------------------------------------------------------- */

/* A word that leads somewhere, often near the end. */
static uint64_t garbage_word(void)
{
    switch (dice(4)) {
    case 0:
        return test_random(&random_state);
    case 1:
        return dice(64); /* as a count or a length */
    default:
        return (SHMC_RING_OFFSET + dice(SPAN - SHMC_RING_OFFSET + 16)) / 8 * 8 | dice(8);
    }
}

static void read_as_everything(const struct shmc_span *span, shmc_word word)
{
    static uint8_t copy[SPAN];
    struct shmc_string string;
    struct shmc_array array;
    struct shmc_object object;
    uint64_t kind, bits;

    if (shmc_string_open(span, word, &string)) {
        const uint32_t start = (uint32_t)dice(string.length + 1);
        CHECK(string.length <= SPAN);
        shmc_string_copy(span, &string, start, string.length - start, copy);
        shmc_string_be64(span, &string, start);
    }
    if (shmc_array_open(span, word, &array) && array.count > 0)
        shmc_load_at(span, array.words + (array.count - 1) * 8);
    if (shmc_object_open(span, word, &object) && object.count > 0) {
        shmc_load_at(span, object.words + (object.count - 1) * 8);
        shmc_object_key(span, &object, object.count - 1);
    }
    shmc_object_find(span, word, (const uint8_t *)"some key", (uint32_t)dice(9));
    shmc_number_open(span, word, &kind, &bits);
}

static void search_as_trees(const struct shmc_span *span, shmc_offset top)
{
    static const uint8_t key[] = "namespace/some key";
    struct shmc_cursor cursor;
    struct shmc_entry entry;

    for (unsigned k = 0; k < 2; k++) {
        const struct shmc_tree_kind *kind = k == 0 ? &shmc_primary : &shmc_index;
        (void)shmc_tree_find(span, kind, top, key, sizeof key - 1, &entry);
        if (shmc_cursor_seek(&cursor, span, kind, top, key, dice(sizeof key)) != SHMC_OK)
            continue;
        for (unsigned left = 200; left > 0 && shmc_cursor_next(&cursor, &entry) == SHMC_OK; left--)
            ;
    }
}

/* Plausible heads of nodes, so that a search gets further than the first word. */
static void plant_node(uint8_t *memory)
{
    const shmc_offset at = (SHMC_RING_OFFSET + dice(448)) / 8 * 8;
    const uint32_t level = (uint32_t)dice(3), two = (uint32_t)dice(2);
    const uint64_t shape = shmc_node_shape((uint32_t)dice(7), (uint32_t)dice(10), level,
                                           level > 0 ? 3 + two : two == 0 ? 4 : 3);

    memcpy(memory + at, &shape, 8);
}

static void test_garbage_is_never_read_outside(void)
{
    uint8_t *memory = exact(SPAN);
    const struct shmc_span span = {memory, SPAN, SHMC_RING_OFFSET};

    memset(memory, 0, SPAN);
    for (unsigned round = 0; round < 3000; round++) {
        for (size_t at = SHMC_RING_OFFSET; at < SPAN; at += 8) {
            const uint64_t word = garbage_word();
            memcpy(memory + at, &word, 8);
        }
        for (unsigned i = 0; i < 4; i++)
            plant_node(memory);
        for (unsigned i = 0; i < 16; i++)
            read_as_everything(&span, garbage_word());
        for (shmc_offset at = SHMC_RING_OFFSET; at < SPAN; at += 64)
            search_as_trees(&span, at);
    }
    free(memory);
}

/* The ring may have no memory: invalid words may lead there, also from a block. */
static void test_nothing_is_read_before_the_blocks(void)
{
    const size_t page = SHMC_RING_OFFSET;
    uint8_t *memory =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct shmc_span span = {memory, 3 * page, 2 * page};

    CHECK(memory != MAP_FAILED);
    CHECK_EQUAL(0, mprotect(memory + page, page, PROT_NONE));
    for (shmc_offset at = page; at < 2 * page; at += 8) {
        memcpy(memory + 2 * page, &at, 8); /* a shape, a length, a count */
        for (unsigned tag = 0; tag < 8; tag++) {
            read_as_everything(&span, at | tag);
            read_as_everything(&span, (2 * page) | tag);
        }
    }
    munmap(memory, 3 * page);
}

int main(void)
{
    test_start("test_value");
    random_state = test_random_state(6);
    test_integers();
    test_short_words();
    test_numbers();
    test_strings_at_every_offset();
    test_utf8();
    test_every_code_point();
    test_escapes_keep_the_order_and_come_back();
    test_garbage_is_never_read_outside();
    test_nothing_is_read_before_the_blocks();
    return 0;
}
