/*
 * arenaclaim.c - blocks of DATA: a new writer finds those of the last one.
 *
 * Which class a page has is not written anywhere: it follows from the blocks found in it. A page
 * takes the class of the first block that is claimed there, and a larger one when a later block
 * is larger, or does not lie on its grid (a batch short of room takes larger slots: ARENA5). The
 * class that the page had fits all its blocks, so that the search never passes it; blocks in
 * different slots cannot overlap.
 */
#include "values/arena.h"

enum shmc_status shmc_arena_adopt(struct shmc_arena *arena, uint64_t high_water)
{
    const uint32_t count = (uint32_t)(high_water / SHMC_PAGE) - arena->first_page;
    const enum shmc_status status = shmc_arena_reserve(arena, count);

    if (status != SHMC_OK)
        return status;
    for (; arena->page_count < count; arena->page_count++)
        arena->pages[arena->page_count] = (struct shmc_page){.class_id = SHMC_CLASS_NOBODY};
    return SHMC_OK;
}

/* An array of metas for unclaimed blocks. */
static uint64_t *metas_make(struct shmc_arena *arena, uint32_t slots)
{
    uint64_t *meta = shmc_heap_resize(arena->heap, NULL, 0, slots * sizeof(uint64_t));

    for (uint32_t i = 0; meta != NULL && i < slots; i++)
        meta[i] = SHMC_META_FREE;
    return meta;
}

static uint32_t slots_of(const struct shmc_page *page)
{
    return page->class_id < SHMC_CLASS_COUNT ? SHMC_PAGE / shmc_class_size(page->class_id) : 1;
}

/* Whether a block at `in_page` begins a slot of `size` bytes. */
static bool on_grid(uint32_t in_page, uint32_t size)
{
    return in_page % size == 0 && in_page / size < SHMC_PAGE / size;
}

/* Whether every claimed block of the page, and one at `in_page`, begins a slot of `size` bytes. */
static bool fits_grid(const struct shmc_page *page, uint32_t in_page, uint32_t size)
{
    const uint32_t old = page->class_id < SHMC_CLASS_COUNT ? shmc_class_size(page->class_id) : 0;

    if (!on_grid(in_page, size))
        return false;
    for (uint32_t i = 0; old != 0 && i < SHMC_PAGE / old; i++) {
        if ((uint32_t)page->meta[i] != SHMC_META_FREE && (i * old) % size != 0)
            return false;
    }
    return true;
}

/* Gives a page the smallest class, from `class_id` on, whose grid fits its blocks and one more. */
static enum shmc_status page_suit(struct shmc_arena *arena, struct shmc_page *page,
                                  unsigned class_id, uint32_t in_page)
{
    const uint32_t old_slots = slots_of(page);
    const uint32_t old_size = page->meta != NULL ? shmc_class_size(page->class_id) : 0;

    while (class_id < SHMC_CLASS_COUNT && !fits_grid(page, in_page, shmc_class_size(class_id)))
        class_id++;
    if (class_id == SHMC_CLASS_COUNT)
        return SHMC_CORRUPT;
    uint64_t *meta = metas_make(arena, SHMC_PAGE / shmc_class_size(class_id));
    if (meta == NULL)
        return SHMC_NO_MEMORY;
    for (uint32_t i = 0; page->meta != NULL && i < old_slots; i++) {
        if ((uint32_t)page->meta[i] != SHMC_META_FREE)
            meta[i * old_size / shmc_class_size(class_id)] = page->meta[i];
    }
    if (page->meta != NULL)
        shmc_heap_resize(arena->heap, page->meta, old_slots * sizeof(uint64_t), 0);
    page->meta = meta;
    page->class_id = (uint16_t)class_id;
    return SHMC_OK;
}

static enum shmc_status claim_large(struct shmc_arena *arena, shmc_offset block, uint64_t size)
{
    const uint32_t number = (uint32_t)(block / SHMC_PAGE) - arena->first_page;
    const uint64_t run = (size + SHMC_PAGE - 1) / SHMC_PAGE;

    if (block % SHMC_PAGE != 0 || run > arena->page_count - number)
        return SHMC_CORRUPT;
    for (uint32_t i = number; i < number + run; i++) {
        if (arena->pages[i].class_id != SHMC_CLASS_NOBODY)
            return SHMC_CORRUPT;
    }
    struct shmc_page *page = &arena->pages[number];
    page->meta = metas_make(arena, 1);
    if (page->meta == NULL)
        return SHMC_NO_MEMORY;
    for (uint32_t i = number; i < number + run; i++)
        arena->pages[i].class_id = SHMC_CLASS_LARGE;
    page->used = (uint32_t)run;
    return SHMC_OK;
}

static struct shmc_page *page_at(const struct shmc_arena *arena, shmc_offset block)
{
    const uint64_t number = block / SHMC_PAGE;

    if ((block & 7u) != 0 || number < arena->first_page ||
        number - arena->first_page >= arena->page_count)
        return NULL;
    return &arena->pages[number - arena->first_page];
}

/* Where a block's meta is, if a block is possible there. */
static inline uint64_t *meta_at(const struct shmc_arena *arena, shmc_offset block)
{
    const struct shmc_page *page = page_at(arena, block);
    const uint32_t in_page = (uint32_t)(block % SHMC_PAGE);

    if (page == NULL || page->meta == NULL)
        return NULL;
    uint32_t slot = 0;
    if (page->class_id < SHMC_CLASS_COUNT) { /* in_page / size, exactly */
        slot = (uint32_t)((in_page * (uint64_t)arena->reciprocal[page->class_id]) >> 32);
        if (slot * shmc_class_size(page->class_id) != in_page || slot >= slots_of(page))
            return NULL;
    } else if (in_page != 0) {
        return NULL;
    }
    return &page->meta[slot];
}

uint64_t *shmc_arena_claimed(const struct shmc_arena *arena, shmc_offset block)
{
    uint64_t *meta = meta_at(arena, block);

    return meta == NULL || (uint32_t)*meta == SHMC_META_FREE ? NULL : meta;
}

void shmc_arena_fetch(const struct shmc_arena *arena, shmc_offset block)
{
    const uint64_t *meta = meta_at(arena, block);

    if (meta != NULL)
        __builtin_prefetch(meta, 1);
}

enum shmc_status shmc_arena_claim(struct shmc_arena *arena, shmc_offset block, uint64_t size,
                                  uint64_t meta)
{
    struct shmc_page *page = page_at(arena, block);
    const uint32_t in_page = (uint32_t)(block % SHMC_PAGE);
    enum shmc_status status = SHMC_OK;

    if (page == NULL)
        return SHMC_CORRUPT;
    if (size > SHMC_PAGE) {
        status = claim_large(arena, block, size);
    } else if (page->class_id == SHMC_CLASS_LARGE) {
        status = SHMC_CORRUPT;
    } else {
        const unsigned wanted = shmc_class_of(size);
        const bool has_class = page->class_id < SHMC_CLASS_COUNT;
        if (!has_class || wanted > page->class_id ||
            !on_grid(in_page, shmc_class_size(page->class_id))) /* earlier claims fit already */
            status = page_suit(arena, page,
                               has_class && page->class_id > wanted ? page->class_id : wanted,
                               in_page);
    }
    if (status != SHMC_OK)
        return status;
    uint64_t *at = &page->meta[shmc_page_slot(page, block)];
    if ((uint32_t)*at != SHMC_META_FREE)
        return SHMC_CORRUPT; /* it was claimed as something else */
    *at = meta;
    return SHMC_OK;
}

static void chain(struct shmc_arena *arena, uint64_t *meta, shmc_offset block,
                  struct shmc_chain *left)
{
    *meta = SHMC_META_LIMBO;
    if (left->first == 0)
        left->first = shmc_granule(block);
    else
        *shmc_arena_meta(arena, (shmc_offset)left->last << 3) =
            (uint64_t)shmc_granule(block) << 32 | SHMC_META_LIMBO;
    left->last = shmc_granule(block);
}

/* Pages without a claimed block: one large block for each run of them. */
static enum shmc_status settle_run(struct shmc_arena *arena, uint32_t first, uint32_t end,
                                   struct shmc_chain *left)
{
    struct shmc_page *page = &arena->pages[first];

    page->meta = metas_make(arena, 1);
    if (page->meta == NULL)
        return SHMC_NO_MEMORY;
    for (uint32_t i = first; i < end; i++)
        arena->pages[i].class_id = SHMC_CLASS_LARGE;
    page->used = end - first;
    page->fresh = 1; /* a run of one page looks like a page with one slot */
    arena->used_bytes += (uint64_t)page->used * SHMC_PAGE;
    left->bytes += (uint64_t)page->used * SHMC_PAGE;
    chain(arena, &page->meta[0], ((uint64_t)arena->first_page + first) * SHMC_PAGE, left);
    return SHMC_OK;
}

/* The slots of a page with a class: now all used (ARENA1, ARENA2), by a claimed block or in
 * limbo. */
static void settle_slots(struct shmc_arena *arena, uint32_t number, struct shmc_chain *left)
{
    struct shmc_page *page = &arena->pages[number];
    const uint32_t slots = slots_of(page);
    const uint32_t size = shmc_class_size(page->class_id);
    const shmc_offset start = ((uint64_t)arena->first_page + number) * SHMC_PAGE;

    for (uint32_t i = 0; i < slots; i++) {
        if ((uint32_t)page->meta[i] != SHMC_META_FREE) {
            page->meta[i] &= (uint64_t)SHMC_META_IN << 32 | UINT32_MAX;
            left->uncounted += page->meta[i] == 0 ? size : 0;
            continue;
        }
        chain(arena, &page->meta[i], start + i * size, left);
        left->bytes += size;
    }
    page->used = slots;
    page->fresh = (uint16_t)slots;
    arena->used_bytes += (uint64_t)slots * size;
}

enum shmc_status shmc_arena_settle(struct shmc_arena *arena, struct shmc_chain *left)
{
    enum shmc_status status = SHMC_OK;
    uint32_t end;

    *left = (struct shmc_chain){0};
    for (uint32_t i = 0; status == SHMC_OK && i < arena->page_count; i = end) {
        struct shmc_page *page = &arena->pages[i];

        end = i + 1;
        if (page->class_id < SHMC_CLASS_COUNT) {
            settle_slots(arena, i, left);
        } else if (page->class_id == SHMC_CLASS_LARGE) {
            page->meta[0] &= (uint64_t)SHMC_META_IN << 32 | UINT32_MAX;
            left->uncounted += page->meta[0] == 0 ? (uint64_t)page->used * SHMC_PAGE : 0;
            arena->used_bytes += (uint64_t)page->used * SHMC_PAGE;
            end = i + page->used;
        } else {
            while (end < arena->page_count && arena->pages[end].class_id == SHMC_CLASS_NOBODY)
                end++;
            status = settle_run(arena, i, end, left);
        }
    }
    return status;
}
