/*
 * The table of equals finds a block if and only if the block is in it, by content and kind and
 * nothing else, however many others have the same hash, and while it grows and shrinks.
 *
 * The table alone, over blocks in a piece of memory, against a plain array.
 */
#include "core_fixture.h"

#define MOST 6000u
#define BLOCK_BYTES 32u

static struct shmc_heap heap;
static struct shmc_intern table;
static uint8_t *base;
static uint64_t random_state;

/* Content i of its kind lives at block i + 1; in[] says whether it is in the table. */
static const unsigned kinds[] = {SHMC_TAG_STRING, SHMC_TAG_NUMBER, SHMC_TAG_ARRAY, SHMC_TAG_SHAPE};
static bool in[4][MOST];

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static shmc_offset block_of(unsigned kind, size_t i)
{
    return (1 + kind * MOST + i) * BLOCK_BYTES;
}

/* Two words of content; equal bits in several kinds, so that only the kind differs. */
static void content_of(unsigned kind, size_t i, uint64_t content[2])
{
    content[0] = kind == 0 ? 12 | i << 32 : kind == 1 ? 2 : 1; /* length | bytes, kind, count */
    content[1] = kind == 0 ? 0x4141414141414141u : i;
}

static void block_write(unsigned kind, size_t i)
{
    uint64_t words[3] = {i, 0, 0}; /* a shape's id comes first and takes no part */

    content_of(kind, i, words + (kinds[kind] == SHMC_TAG_SHAPE));
    memcpy(base + block_of(kind, i), words, sizeof words);
}

static bool find(unsigned kind, size_t i, uint64_t *hash)
{
    uint64_t content[2];
    shmc_offset block = 0;

    content_of(kind, i, content);
    *hash = shmc_intern_hash(&table, kinds[kind], content, 2);
    const bool found = shmc_intern_find(&table, base, kinds[kind], content, 2, *hash, &block);
    CHECK_EQUAL(in[kind][i], found);
    if (found)
        CHECK_EQUAL(block_of(kind, i), block);
    return found;
}

static void change(unsigned kind, size_t i)
{
    const uint64_t before = table.count;
    uint64_t hash;

    if (find(kind, i, &hash)) {
        shmc_intern_remove(&table,
                               shmc_intern_entry(&table, base, kinds[kind], block_of(kind, i)));
        CHECK_EQUAL(before - 1, table.count);
    } else {
        CHECK_EQUAL(SHMC_OK, shmc_intern_reserve(&table, &heap));
        shmc_intern_add(&table, kinds[kind], hash, block_of(kind, i));
        CHECK_EQUAL(before + 1, table.count);
    }
    in[kind][i] = !in[kind][i];
}

static void check_all(size_t most)
{
    uint64_t count = 0, hash;

    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < most; i++) {
            find(kind, i, &hash);
            CHECK_EQUAL(in[kind][i],
                        shmc_intern_has(&table, base, kinds[kind], block_of(kind, i)));
            count += in[kind][i];
        }
    }
    CHECK_EQUAL(count, table.count);
    CHECK(table.count * 8 <= table.capacity * 7);
}

static void start(void)
{
    memset(in, 0, sizeof in);
    CHECK_EQUAL(SHMC_OK, shmc_intern_create(&table, &heap, test_seed));
}

static void finish(size_t most)
{
    check_all(most);
    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < most; i++) {
            if (in[kind][i])
                change(kind, i);
        }
    }
    CHECK_EQUAL(0, table.count);
    for (uint64_t i = 0; i < table.capacity; i++)
        CHECK_EQUAL(0, table.entries[i]);
    shmc_intern_destroy(&table, &heap);
    CHECK_EQUAL(0, heap.bytes);
}

static void test_random_changes(size_t most, unsigned steps)
{
    start();
    for (unsigned step = 0; step < steps; step++)
        change((unsigned)dice(4), dice(most));
    finish(most);
}

static void test_growth(void)
{
    start();
    const uint64_t first = table.capacity;
    for (size_t i = 0; i < MOST; i++) {
        for (unsigned kind = 0; kind < 4; kind++)
            change(kind, i);
    }
    CHECK(table.capacity > 8 * first);
    finish(MOST);
}

/*
 * With this seed the product in the hash is 0 for every array and shape of one element: all of
 * them have one hash, and only the comparison tells them apart.
 */
static void test_all_hashes_collide(void)
{
    uint64_t hash, other;

    start();
    table.seed[1] = 1;
    find(2, 0, &hash);
    find(2, 77, &other);
    CHECK_EQUAL(hash, other);
    for (unsigned step = 0; step < 3000; step++)
        change(dice(2) == 0 ? 2 : 3, dice(150));
    check_all(150);
    finish(150);
}

/* Pushed around the end of the table, and back into the gap. */
static void test_clusters_wrap_around(void)
{
    start();
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; table.count < table.capacity * 7 / 8 - 1; i++)
            change(1, (i * 7 + round) % 2000); /* as full as it gets without growing */
        CHECK_EQUAL(1024, table.capacity);
        check_all(2000);
        for (unsigned step = 0; step < 400; step++) {
            const size_t i = dice(2000);
            if (in[1][i])
                change(1, i);
        }
        check_all(2000);
    }
    finish(2000);
}

static void test_growing_fails(void)
{
    start();
    size_t i = 0;
    while ((table.count + 1) * 8 <= table.capacity * 7)
        change(0, i++);
    heap.fail_after = 1;
    CHECK_EQUAL(SHMC_NO_MEMORY, shmc_intern_reserve(&table, &heap));
    CHECK_EQUAL(1024, table.capacity);
    check_all(MOST / 4);
    change(0, 0); /* room again */
    CHECK_EQUAL(SHMC_OK, shmc_intern_reserve(&table, &heap));
    finish(MOST / 4);
    heap.fail_after = 1;
    CHECK_EQUAL(SHMC_NO_MEMORY, shmc_intern_create(&table, &heap, 1));
    CHECK_EQUAL(0, heap.bytes);
}

/* In the writer: equal values are one block, whatever they were built from. */
static void test_equal_values_are_one_word(void)
{
    struct core core;
    shmc_word one, two, three;

    core_create(&core, (struct core_options){.size = 1 << 20});
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{a: ['long text number one', {}], b: 1.1}", &one));
    const uint64_t blocks = core_stats(&core).blocks;
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{a: ['long text number one', {}], b: 1.1}", &two));
    CHECK_EQUAL(one, two);
    CHECK_EQUAL(blocks, core_stats(&core).blocks);
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{b: 1.1, a: ['long text number one', {}]}", &three));
    CHECK(one != three); /* the order of keys is part of a value */
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['long text number one']", &two));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "[['long text number one']]", &three));
    CHECK(two != three);
    core_commit(&core);
    CHECK_EQUAL(0, core_stats(&core).blocks); /* without references */
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

int main(void)
{
    test_start("test_intern");
    random_state = test_random_state(8);
    base = aligned_alloc(8, (4 * MOST + 1) * BLOCK_BYTES);
    CHECK(base != NULL);
    for (unsigned kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < MOST; i++)
            block_write(kind, i);
    }
    test_random_changes(40, 3000);
    test_random_changes(MOST, 60000);
    test_growth();
    test_all_hashes_collide();
    test_clusters_wrap_around();
    test_growing_fails();
    test_equal_values_are_one_word();
    free(base);
    return 0;
}
