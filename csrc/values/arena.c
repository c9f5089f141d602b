/*
 * arena.c - blocks of DATA: handing out and taking back (a new writer claims them in arenaclaim.c).
 *
 * The arena is a row of pages of 16 KiB. A page belongs to one size class and is cut
 * into blocks of that size, or it is part of a run of pages that is one large block,
 * or it is unowned. Nothing about this is written into DATA: free lists,
 * counts and classes are private tables of the writer, so that a writer that dies
 * leaves nothing half linked, and a reader that reads a free block sees old bytes.
 *
 * A block's meta (64 bits, private, drawn in core.h) counts its references and records when it
 * was handed out, or links it into one list: of free slots (slot + 1), or of retired or dead
 * blocks (granule).
 *
 * Invariants
 *   ARENA1  used of a page is the number of its slots whose count is not FREE.
 *   ARENA2  a page is in its class's room list if and only if it has a free slot.
 *   ARENA3  while hold_pages is set no page leaves its class, so that an address that the
 *       open batch wrote down keeps its meaning. A large block is alone on its pages and
 *       is freed only where the batch forgets it: its pages go at once.
 *   ARENA4  every page below page_count has memory.
 *   ARENA5  some unowned pages stay in reserve, with memory: a full arena must be able to delete,
 *       and to delete it must build new nodes. A page for each class: nodes that shrink pass
 *       through all of them (fewer in a small arena).
 *   ARENA6  birth_base + birth of a block is not above the first generation that leads to it, and
 *       a birth of 0 means only "at or below birth_base". Births have 27 bits: before they are
 *       used up all are counted from a later base, and the oldest ones become 0.
 */
#include "values/arena.h"

#define RESERVE_PAGES 16u
#define GROW_STEP (UINT64_C(4) << 20)

uint64_t *shmc_arena_meta(const struct shmc_arena *arena, shmc_offset block)
{
    const struct shmc_page *page = &arena->pages[shmc_page_number(arena, block)];

    if (page->class_id < SHMC_CLASS_COUNT) {
        const uint32_t in_page = (uint32_t)(block % SHMC_PAGE);
        /* in_page / size, exactly: both are multiples of 8 below 2^14 */
        return &page->meta[(in_page * (uint64_t)arena->reciprocal[page->class_id]) >> 32];
    }
    return &page->meta[0];
}

uint64_t shmc_arena_block_size(const struct shmc_arena *arena, shmc_offset block)
{
    const struct shmc_page *page = &arena->pages[shmc_page_number(arena, block)];

    if (page->class_id == SHMC_CLASS_LARGE)
        return (uint64_t)page->used * SHMC_PAGE;
    return shmc_class_size(page->class_id);
}

uint64_t shmc_arena_high_water(const struct shmc_arena *arena)
{
    return ((uint64_t)arena->first_page + arena->page_count) * SHMC_PAGE;
}

bool shmc_arena_is_block(const struct shmc_arena *arena, shmc_offset block)
{
    const uint64_t number = block / SHMC_PAGE;

    if ((block & 7u) != 0 || number < arena->first_page ||
        number - arena->first_page >= arena->page_count)
        return false;
    const struct shmc_page *page = &arena->pages[number - arena->first_page];
    if (page->class_id == SHMC_CLASS_LARGE)
        return block % SHMC_PAGE == 0 && page->meta != NULL;
    if (page->class_id >= SHMC_CLASS_COUNT)
        return false;
    const uint32_t size = shmc_class_size(page->class_id);
    return (block % SHMC_PAGE) % size == 0 && (block % SHMC_PAGE) / size < page->fresh;
}

/* ---- pages ------------------------------------------------------------------------ */

static bool bit_get(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1u;
}

static void page_to_nobody(struct shmc_arena *arena, uint32_t number)
{
    struct shmc_page *page = &arena->pages[number];

    memset(page, 0, sizeof(*page));
    page->class_id = SHMC_CLASS_NOBODY;
    arena->free_pages[number / 64] |= UINT64_C(1) << (number % 64);
    arena->free_page_count++;
    if (number < arena->free_page_hint)
        arena->free_page_hint = number;
}

static void page_from_nobody(struct shmc_arena *arena, uint32_t number)
{
    assert(bit_get(arena->free_pages, number));
    arena->free_pages[number / 64] &= ~(UINT64_C(1) << (number % 64));
    arena->free_page_count--;
}

enum shmc_status shmc_arena_reserve(struct shmc_arena *arena, uint32_t count)
{
    if (count <= arena->page_capacity)
        return SHMC_OK;
    uint32_t capacity = arena->page_capacity + arena->page_capacity / 4 + 64;
    if (capacity < count)
        capacity = count;
    capacity = (capacity + 63) & ~63u;

    uint64_t *bits = shmc_heap_resize(arena->heap, NULL, 0, capacity / 8);
    if (bits == NULL)
        return SHMC_NO_MEMORY;
    void *pages = shmc_heap_resize(arena->heap, arena->pages,
                                   arena->page_capacity * sizeof(struct shmc_page),
                                   capacity * sizeof(struct shmc_page));
    if (pages == NULL) {
        shmc_heap_resize(arena->heap, bits, capacity / 8, 0);
        return SHMC_NO_MEMORY;
    }
    memset(bits, 0, capacity / 8);
    if (arena->free_pages != NULL) {
        memcpy(bits, arena->free_pages, arena->page_capacity / 8);
        shmc_heap_resize(arena->heap, arena->free_pages, arena->page_capacity / 8, 0);
    }
    arena->pages = pages;
    arena->free_pages = bits;
    arena->page_capacity = capacity;
    return SHMC_OK;
}

/* Adds memory for the bytes up to `end`; in larger steps where there is room. */
static enum shmc_status file_grow(struct shmc_arena *arena, uint64_t end)
{
    if (end <= arena->data->file_size)
        return SHMC_OK;
    if (end > arena->data->max_size)
        return SHMC_FULL;
    uint64_t step = arena->data->file_size / 64;
    step = step > GROW_STEP ? GROW_STEP : step & ~(uint64_t)(SHMC_PAGE - 1);
    uint64_t size = end + step;
    if (size > arena->data->max_size)
        size = arena->data->max_size;
    enum shmc_status status = shmc_segment_extend(arena->data, size);
    if (status == SHMC_NO_SPACE && size != end)
        status = shmc_segment_extend(arena->data, end);
    if (status == SHMC_OK) /* LAYOUT3; pairs with the acquire in copy_root() */
        shmc_store_release(&arena->super->file_size, arena->data->file_size);
    return status;
}

/* Adds `count` pages after the last one; they are unowned. */
static enum shmc_status pages_grow(struct shmc_arena *arena, uint32_t count)
{
    const uint64_t end = shmc_arena_high_water(arena) + (uint64_t)count * SHMC_PAGE;
    enum shmc_status status = shmc_arena_reserve(arena, arena->page_count + count);

    if (status == SHMC_OK)
        status = file_grow(arena, end);
    if (status != SHMC_OK)
        return status;
    for (uint32_t i = 0; i < count; i++)
        page_to_nobody(arena, arena->page_count++);
    return SHMC_OK;
}

bool shmc_arena_short(const struct shmc_arena *arena)
{
    return arena->refused || shmc_arena_high_water(arena) + GROW_STEP > arena->data->max_size;
}

/* Whether the reserve remains after taking `count` pages, in free pages or after the last. */
static enum shmc_status keep_reserve(struct shmc_arena *arena, uint32_t count)
{
    const uint64_t wanted = (uint64_t)count + arena->reserve;
    enum shmc_status status = SHMC_OK;

    if (!arena->may_use_reserve && wanted > arena->free_page_count)
        status = file_grow(arena, shmc_arena_high_water(arena) +
                                      (wanted - arena->free_page_count) * SHMC_PAGE);
    arena->refused = status != SHMC_OK;
    return status;
}

/* The first of `count` adjacent unowned pages. */
static enum shmc_status pages_find(struct shmc_arena *arena, uint32_t count, uint32_t *first)
{
    const enum shmc_status status = keep_reserve(arena, count); /* ARENA5 */
    uint32_t run = 0;

    if (status != SHMC_OK)
        return status;
    if (arena->free_page_count >= count) {
        for (uint32_t i = arena->free_page_hint; i < arena->page_count; i++) {
            if (i % 64 == 0 && run == 0 && arena->free_pages[i / 64] == 0) {
                i += 63;
                continue;
            }
            run = bit_get(arena->free_pages, i) ? run + 1 : 0;
            if (run == count) {
                *first = i + 1 - count;
                if (count == 1)
                    arena->free_page_hint = i + 1;
                return SHMC_OK;
            }
        }
    }
    /* A run at the very end needs only the rest. */
    run = 0;
    while (run < arena->page_count && bit_get(arena->free_pages, arena->page_count - 1 - run))
        run++;
    if (run > count)
        run = count;
    *first = arena->page_count - run;
    return pages_grow(arena, count - run);
}

static void room_add(struct shmc_arena *arena, uint32_t number)
{
    struct shmc_page *page = &arena->pages[number];
    uint32_t *head = &arena->room[page->class_id];

    page->prev = 0;
    page->next = *head;
    if (*head != 0)
        arena->pages[*head - 1].prev = number + 1;
    *head = number + 1;
}

static void room_remove(struct shmc_arena *arena, uint32_t number)
{
    struct shmc_page *page = &arena->pages[number];

    if (page->prev != 0)
        arena->pages[page->prev - 1].next = page->next;
    else
        arena->room[page->class_id] = page->next;
    if (page->next != 0)
        arena->pages[page->next - 1].prev = page->prev;
    page->next = page->prev = 0;
}

/* Gives a page to a class (or, with SHMC_CLASS_LARGE, a run of pages to one block). */
static enum shmc_status page_assign(struct shmc_arena *arena, unsigned class_id, uint32_t run,
                                    uint32_t *number)
{
    const size_t slots = class_id < SHMC_CLASS_COUNT ? SHMC_PAGE / shmc_class_size(class_id) : 1;
    uint64_t *meta = shmc_heap_resize(arena->heap, NULL, 0, slots * sizeof(uint64_t));

    if (meta == NULL)
        return SHMC_NO_MEMORY;
    const enum shmc_status status = pages_find(arena, run, number);
    if (status != SHMC_OK) {
        shmc_heap_resize(arena->heap, meta, slots * sizeof(uint64_t), 0);
        return status;
    }
    for (uint32_t i = 0; i < run; i++) {
        page_from_nobody(arena, *number + i);
        arena->pages[*number + i].class_id = SHMC_CLASS_LARGE;
    }
    struct shmc_page *page = &arena->pages[*number];
    page->class_id = (uint16_t)class_id;
    page->meta = meta;
    if (class_id < SHMC_CLASS_COUNT)
        room_add(arena, *number);
    return SHMC_OK;
}

static void page_release(struct shmc_arena *arena, uint32_t number)
{
    struct shmc_page *page = &arena->pages[number];
    const bool large = page->class_id == SHMC_CLASS_LARGE;
    const size_t slots = large ? 1 : SHMC_PAGE / shmc_class_size(page->class_id);
    const uint32_t run = large ? page->used : 1;

    if (!large)
        room_remove(arena, number);
    shmc_heap_resize(arena->heap, page->meta, slots * sizeof(uint64_t), 0);
    for (uint32_t i = 0; i < run; i++)
        page_to_nobody(arena, number + i);
}

void shmc_arena_hold(struct shmc_arena *arena, bool hold)
{
    arena->hold_pages = hold;
    if (hold)
        return;
    for (size_t i = 0; i < arena->empties.count; i++) {
        const uint32_t number = (uint32_t)arena->empties.items[i];
        const struct shmc_page *page = &arena->pages[number];

        if (page->class_id < SHMC_CLASS_COUNT && page->used == 0)
            page_release(arena, number);
    }
    arena->empties.count = 0;
}

/* ---- blocks ----------------------------------------------------------------------- */

static enum shmc_status alloc_large(struct shmc_arena *arena, uint64_t size, shmc_offset *block)
{
    const uint32_t run = (uint32_t)((size + SHMC_PAGE - 1) / SHMC_PAGE);
    uint32_t number = 0;

    if (size > arena->data->max_size)
        return SHMC_FULL;
    const enum shmc_status status = page_assign(arena, SHMC_CLASS_LARGE, run, &number);
    if (status != SHMC_OK)
        return status;
    struct shmc_page *page = &arena->pages[number];
    page->used = run;
    page->meta[0] = (uint64_t)arena->birth << 32;
    arena->used_bytes += (uint64_t)run * SHMC_PAGE;
    *block = ((uint64_t)arena->first_page + number) * SHMC_PAGE;
    return SHMC_OK;
}

/*
 * A page with a free slot of the class. A batch that gives something back takes a larger slot
 * when nothing else is left: the block that it replaces was that large (ARENA5).
 */
static enum shmc_status page_with_room(struct shmc_arena *arena, unsigned class_id,
                                       uint32_t *number)
{
    enum shmc_status status = SHMC_OK;

    if (arena->room[class_id] == 0)
        status = page_assign(arena, class_id, 1, number);
    else
        *number = arena->room[class_id] - 1;
    if ((status != SHMC_FULL && status != SHMC_NO_SPACE) || !arena->may_use_reserve)
        return status;
    while (++class_id < SHMC_CLASS_COUNT) {
        if (arena->room[class_id] != 0) {
            *number = arena->room[class_id] - 1;
            return SHMC_OK;
        }
    }
    return status;
}

static void fetch_slot(const struct shmc_arena *arena, const struct shmc_page *page,
                       uint32_t number, uint32_t slot)
{
    const uint8_t *block = arena->data->base +
                           ((uint64_t)arena->first_page + number) * SHMC_PAGE +
                           (uint64_t)slot * shmc_class_size(page->class_id);

    __builtin_prefetch(&page->meta[slot], 1);
    __builtin_prefetch(block, 1);
    __builtin_prefetch(block + 64, 1);
}

enum shmc_status shmc_arena_alloc(struct shmc_arena *arena, uint64_t size, shmc_offset *block)
{
    uint32_t number = 0;
    uint32_t slot;

    if (size > SHMC_PAGE)
        return alloc_large(arena, size, block);
    const enum shmc_status status = page_with_room(arena, shmc_class_of(size), &number);
    if (status != SHMC_OK)
        return status;
    struct shmc_page *page = &arena->pages[number];
    const uint32_t bytes = shmc_class_size(page->class_id);
    if (page->free_head != 0) {
        slot = page->free_head - 1;
        page->free_head = (uint32_t)(page->meta[slot] >> 32);
        arena->reused_bytes += bytes;
        if (page->free_head != 0) /* prefetch the next free slot */
            fetch_slot(arena, page, number, page->free_head - 1);
    } else {
        slot = page->fresh++;
    }
    page->meta[slot] = (uint64_t)arena->birth << 32;
    page->used++;
    if (page->free_head == 0 && page->fresh == SHMC_PAGE / bytes)
        room_remove(arena, number); /* ARENA2 */
    arena->used_bytes += bytes;
    *block = ((uint64_t)arena->first_page + number) * SHMC_PAGE + (uint64_t)slot * bytes;
    return SHMC_OK;
}

static void page_emptied(struct shmc_arena *arena, uint32_t number)
{
    if (!arena->hold_pages) {
        page_release(arena, number);
        return;
    }
    /* ARENA3. If the note cannot be made the page just stays with its class, in its room list. */
    (void)shmc_list_push(arena->heap, &arena->empties, number);
}

void shmc_arena_free(struct shmc_arena *arena, shmc_offset block)
{
    const uint32_t number = shmc_page_number(arena, block);
    struct shmc_page *page = &arena->pages[number];
    const uint32_t slot = shmc_page_slot(page, block);

    assert(shmc_meta_count(page->meta[slot]) != SHMC_META_FREE);
    arena->used_bytes -= shmc_arena_block_size(arena, block);
    if (page->class_id == SHMC_CLASS_LARGE) {
        page_release(arena, number);
        return;
    }
    const bool was_full =
        page->free_head == 0 && page->fresh == SHMC_PAGE / shmc_class_size(page->class_id);
    page->meta[slot] = (uint64_t)page->free_head << 32 | SHMC_META_FREE;
    page->free_head = slot + 1;
    page->used--;
    if (was_full)
        room_add(arena, number);
    if (page->used == 0)
        page_emptied(arena, number);
}

/* ---- births ----------------------------------------------------------------------- */

static uint64_t with_birth(uint64_t meta, uint32_t birth)
{
    if ((uint32_t)meta < SHMC_META_DEAD)
        return (meta & ((uint64_t)SHMC_META_IN << 32 | UINT32_MAX)) | (uint64_t)birth << 32;
    return (meta & ~(uint64_t)SHMC_META_BIRTH) | birth;
}

/* All births, as counted from a base that is `by` higher. */
static void births_shift(struct shmc_arena *arena, uint64_t by)
{
    for (uint32_t i = 0; i < arena->page_count; i++) {
        const struct shmc_page *page = &arena->pages[i];
        const uint32_t slots = page->class_id == SHMC_CLASS_LARGE ? 1u : page->fresh;

        for (uint32_t slot = 0; page->meta != NULL && slot < slots; slot++) {
            const uint32_t birth = shmc_meta_birth(page->meta[slot]);
            if (shmc_meta_count(page->meta[slot]) != SHMC_META_FREE)
                page->meta[slot] =
                    with_birth(page->meta[slot], birth > by ? birth - (uint32_t)by : 0);
        }
    }
}

void shmc_arena_births(struct shmc_arena *arena, uint64_t generation)
{
    const uint64_t birth = generation + 1 - arena->birth_base;

    if (birth >= SHMC_META_BIRTH) { /* a walk over the metas, every 2^26 generations */
        SHMC_UNLESS(NO_BIRTH_SHIFT, births_shift(arena, birth - SHMC_META_BIRTH / 2));
        arena->birth_base += birth - SHMC_META_BIRTH / 2;
    }
    arena->birth = (uint32_t)(generation + 1 - arena->birth_base);
}

uint64_t shmc_arena_birth(const struct shmc_arena *arena, shmc_offset block)
{
    const uint32_t birth = shmc_meta_birth(*shmc_arena_meta(arena, block));

    return birth == 0 ? 0 : arena->birth_base + birth;
}

/* ---- lifetime ------------------------------------------------------------------------ */

enum shmc_status shmc_arena_create(struct shmc_arena *arena, struct shmc_segment *data,
                                   struct shmc_heap *heap)
{
    memset(arena, 0, sizeof(*arena));
    arena->data = data;
    arena->super = (struct shmc_super *)(void *)data->base;
    arena->heap = heap;
    arena->first_page = (uint32_t)(arena->super->arena_offset / SHMC_PAGE);
    const uint64_t pages = data->max_size / SHMC_PAGE - arena->first_page;
    arena->reserve = pages / 8 < RESERVE_PAGES ? (uint32_t)(pages / 8) : RESERVE_PAGES;
    const size_t size = SHMC_CLASS_COUNT * sizeof(uint32_t);
    arena->room = shmc_heap_resize(heap, NULL, 0, size);
    arena->reciprocal = shmc_heap_resize(heap, NULL, 0, size);
    if (arena->room == NULL || arena->reciprocal == NULL) {
        shmc_arena_destroy(arena);
        return SHMC_NO_MEMORY;
    }
    memset(arena->room, 0, size);
    for (unsigned i = 0; i < SHMC_CLASS_COUNT; i++)
        arena->reciprocal[i] = (uint32_t)((UINT64_C(1) << 32) / shmc_class_size(i) + 1);
    return SHMC_OK;
}

void shmc_arena_destroy(struct shmc_arena *arena)
{
    const size_t size = SHMC_CLASS_COUNT * sizeof(uint32_t);

    if (arena->heap == NULL)
        return; /* never created */
    for (uint32_t i = 0; i < arena->page_count; i++) {
        const struct shmc_page *page = &arena->pages[i];
        if (page->meta != NULL) {
            const size_t slots =
                page->class_id < SHMC_CLASS_COUNT ? SHMC_PAGE / shmc_class_size(page->class_id) : 1;
            shmc_heap_resize(arena->heap, page->meta, slots * sizeof(uint64_t), 0);
        }
    }
    if (arena->room != NULL)
        shmc_heap_resize(arena->heap, arena->room, size, 0);
    if (arena->reciprocal != NULL)
        shmc_heap_resize(arena->heap, arena->reciprocal, size, 0);
    if (arena->pages != NULL)
        shmc_heap_resize(arena->heap, arena->pages,
                         arena->page_capacity * sizeof(struct shmc_page), 0);
    if (arena->free_pages != NULL)
        shmc_heap_resize(arena->heap, arena->free_pages, arena->page_capacity / 8, 0);
    shmc_list_free(arena->heap, &arena->empties);
    memset(arena, 0, sizeof(*arena));
}
