/*
 * counts.c - how many references a block has.
 *
 * A value block is counted: by the blocks that contain its word, by tree entries, by
 * slots of the window, by records, and by staged objects. Nodes, records and the
 * catalogue have one parent and are not counted: a path copy moves their children.
 *
 * Invariants
 *   COUNT1  count of a value block = words that lead to it from living value blocks, tree
 *       entries, window slots, records and staged objects.
 *   COUNT2  while a batch is open no count falls: releases are listed (drops) and done
 *       after the publication, so that any earlier failure can be undone.
 *   COUNT3  a block whose count falls to 0 leaves the table of equals at once (if it is there),
 *       releases its children, and is retired at the published generation.
 *   COUNT4  undoing a batch gives back every block and every count it took, in the
 *       opposite order.
 */
#include "writer/writer.h"

static uint64_t *words_of(const struct shmc_writer *writer, shmc_offset block)
{
    return (uint64_t *)(void *)(writer->data->base + block);
}

static uint32_t count_of(uint64_t meta)
{
    return shmc_meta_count(meta);
}

bool shmc_is_live(const struct shmc_writer *writer, shmc_offset block)
{
    return count_of(*shmc_arena_meta(&writer->arena, block)) < SHMC_META_DEAD;
}

static void block_up(struct shmc_writer *writer, shmc_offset block)
{
    uint64_t *meta = shmc_arena_meta(&writer->arena, block);

    assert(count_of(*meta) < SHMC_META_DEAD - 1);
    *meta += 1;
}

void shmc_count_up(struct shmc_writer *writer, shmc_word word)
{
    if (shmc_is_block(word))
        block_up(writer, shmc_block_of(word));
}

enum shmc_status shmc_take(struct shmc_writer *writer, shmc_word word)
{
    if (!shmc_is_block(word))
        return SHMC_OK;
    const enum shmc_status status = shmc_list_push(&writer->heap, &writer->undo.takes, word);
    if (status == SHMC_OK)
        block_up(writer, shmc_block_of(word));
    return status;
}

enum shmc_status shmc_drop_later(struct shmc_writer *writer, shmc_word word)
{
    if (!shmc_is_block(word))
        return SHMC_OK;
    return shmc_list_push(&writer->heap, &writer->undo.drops, word);
}

static bool is_full(enum shmc_status status)
{
    return status == SHMC_FULL || status == SHMC_NO_SPACE;
}

/* After a first attempt that found the arena full. */
static __attribute__((noinline, cold)) enum shmc_status
alloc_reclaimed(struct shmc_writer *writer, uint64_t size, enum shmc_status status,
                shmc_offset *block)
{
    for (unsigned all = 0; is_full(status) && all < 2 && writer->limbo.bytes > 0; all++) {
        if (all) /* before giving up (RECLAIM7 of reclaim.c) */
            shmc_reclaim(writer);
        else
            shmc_reclaim_some(writer);
        status = shmc_arena_alloc(&writer->arena, size, block);
    }
    return status;
}

enum shmc_status shmc_fresh_block(struct shmc_writer *writer, uint64_t size, unsigned what,
                                  shmc_offset *block)
{
    enum shmc_status status = shmc_list_reserve(&writer->heap, &writer->undo.fresh, 1);

    if (status == SHMC_OK)
        status = shmc_arena_alloc(&writer->arena, size, block);
    if (is_full(status))
        status = alloc_reclaimed(writer, size, status, block);
    if (status != SHMC_OK)
        return status;
    /* the low three bits of an offset are 0: room for the tag */
    status = shmc_list_push(&writer->heap, &writer->undo.fresh, *block | what);
    assert(status == SHMC_OK); /* room was reserved */
    writer->span.size = writer->data->file_size;
    return SHMC_OK;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/*
 * A node's size changes with each entry, and a page serves one size: with exact sizes a
 * small or full arena would have room in sixty pages and none for the next node.
 */
uint64_t shmc_node_room(uint64_t size)
{
    return size <= 320 ? (size + 63) & ~UINT64_C(63) : (size + 255) & ~UINT64_C(255);
}

enum shmc_status shmc_node_alloc(struct shmc_writer *writer, uint64_t size, shmc_offset *node)
{
    const enum shmc_status status =
        shmc_fresh_block(writer, shmc_node_room(size), SHMC_FRESH_NODE, node);

    if (status == SHMC_OK)
        writer->node_bytes += shmc_arena_block_size(&writer->arena, *node);
    return status;
}

enum shmc_status shmc_node_replaced(struct shmc_writer *writer, shmc_offset node)
{
    return shmc_list_push(&writer->heap, &writer->undo.retired, node);
}

bool shmc_node_is_fresh(const struct shmc_writer *writer, shmc_offset node)
{
    return shmc_load_at(&writer->span, node + 8) > writer->generation;
}

enum shmc_status shmc_node_drop(struct shmc_writer *writer, shmc_offset node)
{
    if (!shmc_node_is_fresh(writer, node))
        return shmc_node_replaced(writer, node);
    writer->node_bytes -= shmc_arena_block_size(&writer->arena, node);
    shmc_arena_free(&writer->arena, node);
    return SHMC_OK;
}

/* ---- children ------------------------------------------------------------------------ */

/* The words inside a value block; *shape is the shape that it depends on, or 0. */
static const uint64_t *children_of(const struct shmc_writer *writer, unsigned tag,
                                   shmc_offset block, uint64_t *count, shmc_offset *shape)
{
    const uint64_t *words = words_of(writer, block);

    *shape = 0;
    *count = 0;
    switch (tag) {
    case SHMC_TAG_ARRAY:
        *count = words[0];
        return words + 1;
    case SHMC_TAG_OBJECT:
        *shape = words[0];
        *count = words_of(writer, words[0])[1];
        return words + 1;
    case SHMC_TAG_SHAPE:
        *count = words[1];
        return words + 2;
    default:
        return words;
    }
}

static uint64_t entry_of(struct shmc_writer *writer, unsigned tag, shmc_offset block)
{
    return shmc_intern_entry(&writer->intern, writer->data->base, tag, block);
}

static void count_death(struct shmc_writer *writer, unsigned tag)
{
    writer->shape_deaths += tag == SHMC_TAG_SHAPE;
    writer->value_blocks--;
}

/*
 * The dead form a stack through their links: a chain of any length needs no memory. Dead blocks are
 * mostly old and cold, so the code never waits for one at a time: a block is prefetched when it
 * dies, its children's counts before they are lowered, and its entry in the table of equals a few
 * blocks before it is removed from there.
 */
#define LEAVING 8u

struct dead {
    uint32_t top;              /* granule of the block that died last; 0 = none */
    unsigned count;            /* entries on their way out of the table */
    uint64_t leaving[LEAVING]; /* the last few of them, a ring */
};

static void leave_table(struct shmc_writer *writer, struct dead *dead, uint64_t entry)
{
    uint64_t *oldest = &dead->leaving[dead->count % LEAVING];

    if (dead->count++ >= LEAVING)
        SHMC_UNLESS(NO_TABLE_REMOVE, shmc_intern_remove(&writer->intern, *oldest)); /* COUNT3 */
    *oldest = entry;
}

static void block_down(struct shmc_writer *writer, struct dead *dead, unsigned tag,
                       shmc_offset block)
{
    uint64_t *meta = shmc_arena_meta(&writer->arena, block);

    assert(count_of(*meta) > 0 && count_of(*meta) < SHMC_META_DEAD);
    if (count_of(*meta) > 1) {
        *meta -= 1;
        return;
    }
    *meta = (uint64_t)dead->top << 32 | SHMC_META_DEAD | tag << 28 |
            (*meta >> 32 & (SHMC_META_IN | SHMC_META_BIRTH));
    dead->top = shmc_granule(block);
    __builtin_prefetch(writer->data->base + block);
}

static void bury(struct shmc_writer *writer, struct dead *dead)
{
    const shmc_offset block = (shmc_offset)dead->top << 3;
    const uint64_t meta = *shmc_arena_meta(&writer->arena, block);
    const unsigned tag = (unsigned)(meta >> 28 & 7u);
    uint64_t count;
    shmc_offset shape;
    const uint64_t *words = children_of(writer, tag, block, &count, &shape);

    dead->top = (uint32_t)(meta >> 32);
    if (writer->arena.birth_base + shmc_meta_birth(meta) > writer->generation)
        shmc_seen_forget(writer, block); /* no publication between its birth and the next one's */
    for (uint64_t i = 0; i < count && i < 32; i++) {
        if (shmc_is_block(words[i]))
            __builtin_prefetch(shmc_arena_meta(&writer->arena, shmc_block_of(words[i])));
    }
    count_death(writer, tag);
    if (shmc_meta_in(meta))
        leave_table(writer, dead, entry_of(writer, tag, block)); /* before its shape can go */
    for (uint64_t i = 0; i < count; i++) {
        if (shmc_is_block(words[i]))
            block_down(writer, dead, shmc_tag(words[i]), shmc_block_of(words[i]));
    }
    if (shape != 0)
        block_down(writer, dead, SHMC_TAG_SHAPE, shape);
    shmc_retire(writer, block);
}

void shmc_count_down(struct shmc_writer *writer, shmc_word word)
{
    struct dead dead = {0};

    if (!shmc_is_block(word))
        return;
    block_down(writer, &dead, shmc_tag(word), shmc_block_of(word));
    while (dead.top != 0)
        bury(writer, &dead);
    const unsigned kept = dead.count < LEAVING ? dead.count : LEAVING;
    for (unsigned i = 0; i < kept; i++)
        SHMC_UNLESS(NO_TABLE_REMOVE, shmc_intern_remove(&writer->intern, dead.leaving[i]));
}

static void fetch(const struct shmc_writer *writer, shmc_word word)
{
    if (!shmc_is_block(word))
        return;
    __builtin_prefetch(shmc_arena_meta(&writer->arena, shmc_block_of(word)), 1);
    __builtin_prefetch(writer->data->base + shmc_block_of(word));
}

static void fetch_children(const struct shmc_writer *writer, shmc_word word, bool below)
{
    uint64_t count;
    shmc_offset shape;

    if (shmc_tag(word) < SHMC_TAG_ARRAY)
        return;
    const uint64_t *words =
        children_of(writer, shmc_tag(word), shmc_block_of(word), &count, &shape);
    for (uint64_t i = 0; i < count && i < 32; i++) {
        if (!below)
            fetch(writer, words[i]);
        else if (shmc_is_block(words[i]) &&
                 count_of(*shmc_arena_meta(&writer->arena, shmc_block_of(words[i]))) == 1)
            fetch_children(writer, words[i], false);
    }
}

void shmc_fetch_leaving(const struct shmc_writer *writer, shmc_word word, unsigned soon)
{
    if (soon == 0)
        fetch_children(writer, word, true);
    else if (soon == 1)
        fetch_children(writer, word, false);
    else
        fetch(writer, word);
}

/* ---- leftovers of a batch ----------------------------------------------------------- */

/*
 * A fresh value without references: out of the table, its children's counts back,
 * free. Its children may be fresh themselves; they come earlier in the list, and
 * the list is read from its end.
 */
static void fresh_free(struct shmc_writer *writer, unsigned tag, shmc_offset block)
{
    uint64_t count;
    shmc_offset shape;
    const uint64_t *words = children_of(writer, tag, block, &count, &shape);

    count_death(writer, tag);
    shmc_seen_forget(writer, block);
    if (shmc_meta_in(*shmc_arena_meta(&writer->arena, block)))
        shmc_intern_remove(&writer->intern, entry_of(writer, tag, block));
    for (uint64_t i = 0; i < count; i++) {
        if (shmc_is_block(words[i]))
            *shmc_arena_meta(&writer->arena, shmc_block_of(words[i])) -= 1;
    }
    if (shape != 0)
        *shmc_arena_meta(&writer->arena, shape) -= 1;
    shmc_arena_free(&writer->arena, block);
}

void shmc_sweep_fresh(struct shmc_writer *writer)
{
    struct shmc_list *fresh = &writer->undo.fresh;

    while (fresh->count > 0) {
        const uint64_t item = fresh->items[--fresh->count];
        const shmc_offset block = item & ~UINT64_C(7);
        const unsigned what = (unsigned)(item & 7u);

        if (what != SHMC_FRESH_NODE && count_of(*shmc_arena_meta(&writer->arena, block)) == 0)
            fresh_free(writer, what, block);
    }
}

void shmc_undo_counts(struct shmc_writer *writer)
{
    struct shmc_undo *undo = &writer->undo;

    while (undo->takes.count > 0) {
        const shmc_word word = undo->takes.items[--undo->takes.count];
        *shmc_arena_meta(&writer->arena, shmc_block_of(word)) -= 1;
    }
    while (undo->fresh.count > 0) {
        const uint64_t item = undo->fresh.items[--undo->fresh.count];
        const shmc_offset block = item & ~UINT64_C(7);
        const unsigned what = (unsigned)(item & 7u);

        /* A node may have been freed within the batch already, and its slot handed out
         * again: then it comes later in the list, and was met first. */
        if (count_of(*shmc_arena_meta(&writer->arena, block)) == SHMC_META_FREE)
            continue;
        if (what == SHMC_FRESH_NODE) {
            writer->node_bytes -= shmc_arena_block_size(&writer->arena, block);
            shmc_arena_free(&writer->arena, block);
        } else {
            fresh_free(writer, what, block);
        }
    }
    undo->drops.count = 0;
    undo->retired.count = 0;
}

/*
 * A bounded estimate of the memory that only this value retains: its root may be in the tree and
 * in one slot, the blocks below it only in it.
 */
uint64_t shmc_exclusive_bytes(const struct shmc_writer *writer, shmc_word word)
{
    shmc_word stack[256];
    size_t depth = 0;
    uint64_t bytes = 0;
    uint32_t limit = 2;

    if (shmc_is_block(word))
        stack[depth++] = word;
    while (depth > 0) {
        const shmc_word next = stack[--depth];
        const shmc_offset block = shmc_block_of(next);
        uint64_t count;
        shmc_offset shape;

        if (count_of(*shmc_arena_meta(&writer->arena, block)) > limit)
            continue;
        limit = 1;
        bytes += shmc_arena_block_size(&writer->arena, block);
        const uint64_t *words = children_of(writer, shmc_tag(next), block, &count, &shape);
        for (uint64_t i = 0; i < count && depth < 256; i++) {
            if (shmc_is_block(words[i]))
                stack[depth++] = words[i];
        }
    }
    return bytes;
}
