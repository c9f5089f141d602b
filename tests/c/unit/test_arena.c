/*
 * No two blocks that are handed out overlap, each is as large as requested, every byte below the
 * high water is accounted for, and freed memory - blocks, pages, runs of pages - is handed out
 * again.
 *
 * The arena alone, without a writer, against a plain list of the blocks in use.
 */
#include "core_fixture.h"

#define MOST 3000u

static struct shmc_segment data;
static struct shmc_arena arena;
static struct shmc_heap heap;
static uint64_t random_state;

static struct block {
    shmc_offset offset;
    uint64_t size;
    uint8_t fill;
} blocks[MOST];
static size_t block_count;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static void start(uint64_t size)
{
    const struct shmc_writer_settings settings = {
        .max_size = size, .ring_slots = 16, .instance = 7};
    uint8_t *memory = aligned_alloc(64, size);

    CHECK(memory != NULL);
    memset(memory, 0, size);
    data = (struct shmc_segment){.base = memory, .max_size = size, .file_size = size, .fd = -1,
                                 .writable = 1};
    CHECK_EQUAL(SHMC_OK, shmc_data_format(&data, &settings));
    CHECK_EQUAL(SHMC_OK, shmc_arena_create(&arena, &data, &heap));
    block_count = 0;
}

static uint64_t high_water(void)
{
    return shmc_arena_high_water(&arena) - arena.super->arena_offset;
}

/* Sums over all pages (ARENA1, ARENA2). */
static void check_accounts(void)
{
    uint64_t used = 0;
    uint32_t nobodys = 0;

    for (size_t i = 0; i < block_count; i++)
        used += shmc_arena_block_size(&arena, blocks[i].offset);
    CHECK_EQUAL(used, arena.used_bytes);
    for (uint32_t i = 0; i < arena.page_count; i++)
        nobodys += (uint32_t)(arena.free_pages[i / 64] >> (i % 64) & 1);
    CHECK_EQUAL(nobodys, arena.free_page_count);
    CHECK(used + (uint64_t)nobodys * SHMC_PAGE <= high_water());
}

static enum shmc_status take(uint64_t size)
{
    struct block *block = &blocks[block_count];
    const enum shmc_status status = shmc_arena_alloc(&arena, size, &block->offset);

    if (status != SHMC_OK)
        return status;
    CHECK(block_count < MOST - 1);
    CHECK_EQUAL(0, block->offset % 8);
    CHECK(shmc_arena_block_size(&arena, block->offset) >= size);
    CHECK(block->offset >= arena.super->arena_offset);
    CHECK(block->offset + shmc_arena_block_size(&arena, block->offset) <=
          shmc_arena_high_water(&arena));
    CHECK(shmc_arena_is_block(&arena, block->offset));
    CHECK_EQUAL(0, *shmc_arena_meta(&arena, block->offset));
    block->size = size;
    block->fill = (uint8_t)test_random(&random_state);
    memset(data.base + block->offset, block->fill, size);
    *shmc_arena_meta(&arena, block->offset) = block_count + 1; /* its own word */
    block_count++;
    return SHMC_OK;
}

/* Intact: nothing else wrote there, neither into the block nor into its meta. */
static void give_back(size_t i)
{
    const struct block *block = &blocks[i];

    CHECK_EQUAL(i + 1, *shmc_arena_meta(&arena, block->offset));
    CHECK_EQUAL(block->fill, data.base[block->offset]);
    CHECK_EQUAL(block->fill, data.base[block->offset + block->size - 1]);
    CHECK_EQUAL(0, memcmp(data.base + block->offset, data.base + block->offset + 1,
                          block->size - 1));
    shmc_arena_free(&arena, block->offset);
    blocks[i] = blocks[--block_count];
    if (i < block_count)
        *shmc_arena_meta(&arena, blocks[i].offset) = i + 1;
}

static void finish(void)
{
    while (block_count > 0)
        give_back(dice(block_count));
    check_accounts();
    CHECK_EQUAL(0, arena.used_bytes);
    CHECK_EQUAL(arena.page_count, arena.free_page_count); /* every page is free again */
    shmc_arena_destroy(&arena);
    CHECK_EQUAL(0, heap.bytes);
    free(data.base);
}

static void test_every_size(void)
{
    start(UINT64_C(4) << 20);
    for (uint64_t size = 1; size <= 20000; size++) {
        CHECK_EQUAL(SHMC_OK, take(size));
        const uint64_t given = shmc_arena_block_size(&arena, blocks[0].offset);
        /* at most an eighth is lost for the usual sizes of nodes and values */
        if (size >= 16 && size <= 2048)
            CHECK(given - size <= size / 8 + 8);
        give_back(0);
        if (size % 997 == 0)
            check_accounts();
    }
    static const uint64_t large[] = {32768, 32769, 100000, 1 << 20};
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQUAL(SHMC_OK, take(large[i]));
        CHECK_EQUAL((large[i] + SHMC_PAGE - 1) / SHMC_PAGE * SHMC_PAGE,
                    shmc_arena_block_size(&arena, blocks[i].offset));
        check_accounts();
    }
    finish();
}

static uint64_t random_size(void)
{
    switch (dice(10)) {
    case 0:
        return 1 + dice(20000);
    case 1:
        return 16385 + dice(60000);
    case 2:
        return 1 + dice(3000);
    default:
        return 8 + dice(200);
    }
}

static void test_random_blocks(void)
{
    uint64_t full = 0;

    start(UINT64_C(2) << 20);
    for (unsigned step = 0; step < 60000; step++) {
        const bool grow = dice(100) < (step / 8000 % 2 == 0 ? 60 : 42);
        if (grow && block_count < MOST - 1) {
            const enum shmc_status status = take(random_size());
            CHECK(status == SHMC_OK || status == SHMC_FULL);
            full += status == SHMC_FULL;
        } else if (block_count > 0) {
            give_back(dice(block_count));
        }
        if (step % 1024 == 0)
            check_accounts();
    }
    CHECK(full > 0 && arena.reused_bytes > 0);
    finish();
}

/* A page that fell empty serves another class; the arena does not grow. */
static void test_pages_move_between_classes(void)
{
    uint64_t grown = 0;

    start(UINT64_C(2) << 20);
    for (unsigned round = 0; round < 40; round++) {
        while (block_count < 200)
            CHECK_EQUAL(SHMC_OK, take(100 + 50 * (round % 13)));
        if (round == 15)
            grown = high_water();
        while (block_count > 0)
            give_back(dice(block_count));
        CHECK_EQUAL(arena.page_count, arena.free_page_count);
    }
    CHECK_EQUAL(grown, high_water());
    finish();
}

/* While a batch is open pages keep their class, and go back when it ends. */
static void test_held_pages_stay_with_their_class(void)
{
    start(UINT64_C(2) << 20);
    shmc_arena_hold(&arena, true);
    for (unsigned i = 0; i < 300; i++)
        CHECK_EQUAL(SHMC_OK, take(64));
    const uint32_t nobodys = arena.free_page_count;
    while (block_count > 0)
        give_back(block_count - 1);
    CHECK_EQUAL(nobodys, arena.free_page_count);
    for (unsigned i = 0; i < 300; i++) /* the same pages, twice on the list */
        CHECK_EQUAL(SHMC_OK, take(64));
    CHECK_EQUAL(nobodys, arena.free_page_count);
    while (block_count > 1)
        give_back(block_count - 1);
    shmc_arena_hold(&arena, false);
    check_accounts();
    CHECK_EQUAL(arena.page_count - 1, arena.free_page_count); /* one block is still in use */
    finish();
}

/* FULL changes nothing, and freed memory can be used again. */
static void test_full(void)
{
    shmc_offset block = 77;

    start(UINT64_C(512) << 10);
    CHECK_EQUAL(SHMC_FULL, shmc_arena_alloc(&arena, UINT64_C(512) << 10, &block));
    CHECK_EQUAL(SHMC_FULL, shmc_arena_alloc(&arena, UINT64_MAX / 2, &block));
    CHECK_EQUAL(77, block);
    while (take(3000) == SHMC_OK)
        ;
    const size_t most = block_count;
    const uint64_t used = arena.used_bytes;
    CHECK_EQUAL(SHMC_FULL, shmc_arena_alloc(&arena, 3000, &block));
    CHECK_EQUAL(SHMC_FULL, shmc_arena_alloc(&arena, 16, &block)); /* no page for it */
    CHECK_EQUAL(used, arena.used_bytes);
    check_accounts();
    for (unsigned round = 0; round < 5; round++) {
        while (block_count > most / 2)
            give_back(dice(block_count));
        while (take(3000) == SHMC_OK)
            ;
        CHECK_EQUAL(most, block_count);
    }
    finish();
}

/* Each of the private allocations fails in turn; nothing is lost. */
static void test_each_allocation_fails_in_turn(void)
{
    unsigned failures = 0;

    for (uint64_t k = 1; k < 60; k++) {
        heap.fail_after = 0;
        start(UINT64_C(4) << 20);
        for (unsigned i = 0; i < 10; i++)
            CHECK_EQUAL(SHMC_OK, take(random_size()));
        heap.fail_after = k;
        for (unsigned i = 0; i < 120; i++) {
            const uint64_t used = arena.used_bytes;
            const enum shmc_status status = take(random_size());
            if (status != SHMC_OK) {
                CHECK_EQUAL(SHMC_NO_MEMORY, status);
                CHECK_EQUAL(used, arena.used_bytes);
                check_accounts();
                failures++;
            }
        }
        heap.fail_after = 0;
        finish();
    }
    CHECK(failures > 10);
    for (uint64_t k = 1; k <= 3; k++) { /* and creating fails cleanly */
        start(UINT64_C(1) << 20);
        shmc_arena_destroy(&arena);
        shmc_arena_destroy(&arena); /* a second time has no effect */
        heap.fail_after = k;
        const enum shmc_status status = shmc_arena_create(&arena, &data, &heap);
        CHECK_EQUAL(k <= 2 ? SHMC_NO_MEMORY : SHMC_OK, status);
        heap.fail_after = 0;
        if (status != SHMC_OK)
            CHECK_EQUAL(SHMC_OK, shmc_arena_create(&arena, &data, &heap));
        finish();
    }
}

static void test_offsets_that_are_not_blocks(void)
{
    start(UINT64_C(1) << 20);
    CHECK_EQUAL(SHMC_OK, take(100)); /* a class of 104 bytes */
    CHECK_EQUAL(SHMC_OK, take(40000));
    const shmc_offset small = blocks[0].offset, large = blocks[1].offset;
    CHECK(!shmc_arena_is_block(&arena, small + 8));
    CHECK(!shmc_arena_is_block(&arena, small + 1));
    CHECK(!shmc_arena_is_block(&arena, small + 104)); /* never handed out */
    CHECK(!shmc_arena_is_block(&arena, large + SHMC_PAGE)); /* inside */
    CHECK(!shmc_arena_is_block(&arena, large + 8));
    CHECK(!shmc_arena_is_block(&arena, 0));
    CHECK(!shmc_arena_is_block(&arena, SHMC_RING_OFFSET));
    CHECK(!shmc_arena_is_block(&arena, shmc_arena_high_water(&arena)));
    CHECK(!shmc_arena_is_block(&arena, UINT64_MAX & ~UINT64_C(7)));
    finish();
}

int main(void)
{
    test_start("test_arena");
    random_state = test_random_state(7);
    test_every_size();
    test_random_blocks();
    test_pages_move_between_classes();
    test_held_pages_stay_with_their_class();
    test_full();
    test_each_allocation_fails_in_turn();
    test_offsets_that_are_not_blocks();
    return 0;
}
