/*
 * arena.h - size classes, and where a block is in its page: for arena.c and arenaclaim.c.
 */
#ifndef SHMC_ARENA_H
#define SHMC_ARENA_H

#include <stdlib.h>

#include "core.h"

#define SHMC_CLASS_COUNT 86u
#define SHMC_CLASS_LARGE 0xfffeu
#define SHMC_CLASS_NOBODY 0xffffu

/* Bytes of a block. */
static inline uint32_t shmc_class_size(unsigned class_id)
{
    static const uint32_t large[] = {2336, 2728, 3272, 4096, 5456, 8192, 16384};

    if (class_id < 31)
        return 16 + 8 * class_id;
    if (class_id < 47)
        return 256 + 16 * (class_id - 30);
    if (class_id < 63)
        return 512 + 32 * (class_id - 46);
    if (class_id < 79)
        return 1024 + 64 * (class_id - 62);
    return large[class_id - 79];
}

/* The smallest class whose blocks have so many bytes, at most SHMC_PAGE. */
static inline unsigned shmc_class_of(uint64_t size)
{
    if (size <= 256)
        return size <= 16 ? 0 : (unsigned)((size - 9) / 8);
    if (size <= 512)
        return 30 + (unsigned)((size - 256 + 15) / 16);
    if (size <= 1024)
        return 46 + (unsigned)((size - 512 + 31) / 32);
    if (size <= 2048)
        return 62 + (unsigned)((size - 1024 + 63) / 64);
    unsigned class_id = 79;
    while (shmc_class_size(class_id) < size)
        class_id++;
    return class_id;
}

static inline uint32_t shmc_page_number(const struct shmc_arena *arena, shmc_offset block)
{
    const uint32_t page = (uint32_t)(block / SHMC_PAGE) - arena->first_page;

    assert(page < arena->page_count);
    return page;
}

/* The number of a block among those of its page. */
static inline uint32_t shmc_page_slot(const struct shmc_page *page, shmc_offset block)
{
    if (page->class_id == SHMC_CLASS_LARGE)
        return 0;
    return (uint32_t)(block % SHMC_PAGE) / shmc_class_size(page->class_id);
}

/* Makes room for so many pages in the private tables. */
enum shmc_status shmc_arena_reserve(struct shmc_arena *arena, uint32_t count);

#endif
