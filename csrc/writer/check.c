/*
 * check.c - checks every invariant of layout.h and of the writer's files, by a walk from the
 * root. Used by tests after each step, and for verification by users.
 *
 * The walk counts how many words lead to each block, in private memory of half the
 * arena's size, and compares: counts with the writer's (COUNT1), membership with the table
 * of equals (INTERN1), bytes with the accounting (LAYOUT7), order with the trees (TREE1..TREE4), the
 * directory with the primary tree (DIRECTORY1..DIRECTORY3).
 */
#include <stdlib.h>

#include "trees/walk.h"
#include "writer/writer.h"

#define NODE UINT32_MAX

struct walk {
    struct shmc_walk inner; /* first: walk.c gets a pointer to the whole */
    const struct shmc_writer *writer;
    uint32_t *seen; /* per granule: references, or NODE */
    struct shmc_heap heap;
    struct shmc_list todo; /* words whose children were not visited */
    uint64_t value_blocks, in_table;
};

#define fail(walk, ...) shmc_walk_fail(&(walk)->inner, __VA_ARGS__)

static const struct shmc_span *span_of(const struct walk *walk)
{
    return &walk->writer->span;
}

static bool block_ok(struct walk *walk, shmc_offset block, const char *kind)
{
    if (!shmc_arena_is_block(&walk->writer->arena, block))
        return fail(walk, "%s at %#llx is not a block", kind, (unsigned long long)block);
    return true;
}

/* ---- values --------------------------------------------------------------------------- */

static bool see_block(struct walk *walk, unsigned tag, shmc_offset block)
{
    if (!block_ok(walk, block, "value"))
        return false;
    uint32_t *seen = &walk->seen[block >> 3];
    if (*seen == NODE)
        return fail(walk, "a node at %#llx is used as a value", (unsigned long long)block);
    if ((*seen)++ > 0)
        return true;
    walk->value_blocks++;
    const bool in = shmc_meta_in(*shmc_arena_meta(&walk->writer->arena, block));
    walk->in_table += in;
    if (in != shmc_intern_has(&walk->writer->intern, walk->writer->data->base, tag, block))
        return fail(walk, "INTERN1: by the block at %#llx (tag %u) the table of equals %s it",
                    (unsigned long long)block, tag, in ? "has" : "does not have");
    if (shmc_list_push(&walk->heap, &walk->todo, block | tag) != SHMC_OK)
        return fail(walk, "no memory to check");
    return true;
}

static bool see_word(struct walk *walk, shmc_word word)
{
    return !shmc_is_block(word) || see_block(walk, shmc_tag(word), shmc_block_of(word));
}

static bool see_words(struct walk *walk, shmc_offset first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const shmc_word word = shmc_load_at(span_of(walk), first + i * 8);
        if (word == SHMC_NOTHING)
            return fail(walk, "a value is missing, at %#llx",
                        (unsigned long long)(first + i * 8));
        if (!see_word(walk, word))
            return false;
    }
    return true;
}

static bool expand(struct walk *walk, uint64_t item)
{
    const struct shmc_span *span = span_of(walk);
    const shmc_offset block = item & ~UINT64_C(7);
    struct shmc_array array;
    struct shmc_object object;
    struct shmc_string string;
    uint64_t kind, bits;

    switch (item & 7u) {
    case SHMC_TAG_SHAPE:
        return see_words(walk, block + 16, shmc_load_at(span, block + 8));
    case SHMC_TAG_STRING:
        return shmc_string_open(span, item, &string) || fail(walk, "a broken string");
    case SHMC_TAG_NUMBER:
        return shmc_number_open(span, item, &kind, &bits) || fail(walk, "a broken number");
    case SHMC_TAG_ARRAY:
        if (!shmc_array_open(span, item, &array))
            return fail(walk, "a broken array at %#llx", (unsigned long long)block);
        return see_words(walk, array.words, array.count);
    default:
        if (!shmc_object_open(span, item, &object))
            return fail(walk, "a broken object at %#llx", (unsigned long long)block);
        return see_block(walk, SHMC_TAG_SHAPE, object.shape) &&
               see_words(walk, object.words, object.count);
    }
}

static bool expand_all(struct walk *walk)
{
    while (walk->todo.count > 0) {
        if (!expand(walk, walk->todo.items[--walk->todo.count]))
            return false;
    }
    return true;
}

/* ---- trees, directories, indices: walk.c does the looking ---------------------------------- */

static bool see_node(struct walk *walk, shmc_offset block)
{
    if (!block_ok(walk, block, "node"))
        return false;
    if (walk->seen[block >> 3] != 0)
        return fail(walk, "the node at %#llx has two parents", (unsigned long long)block);
    walk->seen[block >> 3] = NODE;
    return true;
}

static bool walked_word(struct shmc_walk *inner, shmc_word word)
{
    return see_word((struct walk *)(void *)inner, word);
}

static bool walked_node(struct shmc_walk *inner, shmc_offset node, uint64_t size)
{
    struct walk *walk = (struct walk *)(void *)inner;

    return see_node(walk, node) &&
           (size <= shmc_arena_block_size(&walk->writer->arena, node) ||
            fail(walk, "the node at %#llx is larger than its block", (unsigned long long)node));
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* LAYOUT8. A contact cannot lie in the future: there is only one clock. */
static bool check_contact(struct walk *walk, const struct shmc_wresource *resource)
{
    const struct shmc_span *span = span_of(walk);
    const uint64_t now_ns = shmc_monotonic_ns();
    struct shmc_note note;

    if (shmc_load_at(span, resource->now.record + offsetof(struct shmc_record, contact)) !=
            resource->contact ||
        shmc_contact_load(span, resource->contact, &note) != SHMC_OK)
        return fail(walk, "LAYOUT8: a record names another contact block");
    if (note.contact_ns > now_ns || resource->now.since_ns > now_ns)
        return fail(walk, "LAYOUT8: a contact or a state is younger than now");
    return see_node(walk, resource->contact);
}

/* Compares the record with the writer's tables; then walks everything that it leads to. */
static bool check_record(struct walk *walk, const struct shmc_wresource *resource)
{
    const struct shmc_record record = {.count = resource->now.count,
                                       .primary = resource->now.primary,
                                       .directory = resource->now.directory,
                                       .index_count = resource->now.index_count};
    struct shmc_record_index indices[SHMC_MAX_INDICES];
    const shmc_offset stored = resource->now.record + sizeof(record);

    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        const struct shmc_windex *index = &resource->indices[i];
        indices[i] = (struct shmc_record_index){index->name, index->settings, index->count,
                                                index->tree};
        if (!see_word(walk, index->name) || !see_word(walk, index->settings))
            return false;
        if (shmc_load_at(span_of(walk), stored + i * sizeof(indices[i]) +
                                            offsetof(struct shmc_record_index, tree)) !=
            index->tree)
            return fail(walk, "LAYOUT2: a record names another tree of an index");
    }
    return shmc_walk_resource(&walk->inner, &record, indices);
}

static bool check_resource(struct walk *walk, const struct shmc_wresource *resource)
{
    const shmc_word words[6] = {resource->name,   resource->now.settings, resource->now.version,
                                resource->now.reason, resource->now.listed,   resource->now.marks};

    for (size_t i = 0; i < 6; i++) {
        if (!see_word(walk, words[i]))
            return false;
    }
    if (!see_node(walk, resource->now.record) || !check_contact(walk, resource) ||
        !check_record(walk, resource))
        return false;
    for (size_t i = 0; i < resource->staged.count; i++) {
        if (i % 4 < 3 && !see_word(walk, resource->staged.items[i]))
            return false;
    }
    return true;
}

static bool check_window(struct walk *walk)
{
    const struct shmc_writer *writer = walk->writer;

    if (writer->tail > writer->head || writer->head - writer->tail > shmc_ring_window(writer))
        return fail(walk, "LAYOUT5: the window is too wide");
    for (uint64_t n = writer->tail; n < writer->head; n++) {
        const struct shmc_slot *slot = &shmc_ring_slots(writer)[n & writer->ring_mask];
        const shmc_word words[4] = {shmc_load_racy(&slot->key), shmc_load_racy(&slot->version),
                                    shmc_load_racy(&slot->old_value),
                                    shmc_load_racy(&slot->new_value)};

        if (shmc_load_racy(&slot->stamp) != n + 1)
            return fail(walk, "LAYOUT5: slot %llu of the window has another stamp",
                        (unsigned long long)n);
        for (size_t i = 0; i < 4; i++) {
            if (!see_word(walk, words[i]))
                return false;
        }
    }
    return true;
}

/* RECLAIM4 and RECLAIM5 of reclaim.c. */
static bool check_kept(struct walk *walk)
{
    const struct shmc_super *super = walk->writer->super;
    const struct shmc_limbo *limbo = &walk->writer->limbo;
    uint64_t held = 0;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&super->kept[i]);
        const uint64_t pin = limbo->held[i].upper;

        for (unsigned k = 0; k < i; k++) {
            if (kept != 0 && shmc_load_racy(&super->kept[k]) == kept)
                return fail(walk, "RECLAIM4: a generation is kept twice");
        }
        if (kept > shmc_load_racy(&super->latest))
            return fail(walk, "RECLAIM4: a generation is kept that was not published");
        if (pin != 0 && !shmc_generation_kept(super, pin))
            return fail(walk, "RECLAIM5: blocks are held by a generation that is not kept");
        held += limbo->held[i].bytes;
    }
    return held == limbo->held_bytes || fail(walk, "RECLAIM5: other bytes are held than counted");
}

/* The lists and groups together must have the counted bytes. */
static bool check_limbo(struct walk *walk)
{
    const struct shmc_limbo *limbo = &walk->writer->limbo;
    uint64_t bytes = limbo->held_bytes + limbo->loose.bytes + limbo->inherited.bytes;
    uint64_t doomed = limbo->doomed.bytes;

    bytes += limbo->doomed.bytes;
    for (size_t i = 0; i < limbo->count; i++) {
        bytes += limbo->groups[limbo->start + i].bytes;
        doomed += i < limbo->doomed_groups ? limbo->groups[limbo->start + i].bytes : 0;
    }
    if (bytes != limbo->bytes || doomed != limbo->doomed_bytes)
        return fail(walk, "RECLAIM9: %llu bytes wait and %llu are doomed, %llu and %llu are counted",
                    (unsigned long long)bytes, (unsigned long long)doomed,
                    (unsigned long long)limbo->bytes, (unsigned long long)limbo->doomed_bytes);
    return true;
}

static bool check_root(struct walk *walk)
{
    const struct shmc_writer *writer = walk->writer;
    const struct shmc_super *super = writer->super;
    const uint64_t latest = shmc_load_acquire(&super->latest);
    const struct shmc_root *root = &super->roots[latest & (SHMC_ROOTS - 1)];
    const struct shmc_span *span = span_of(walk);

    if (latest != writer->generation || shmc_load_racy(&root->generation) != latest ||
        shmc_load_racy(&root->head) != writer->head ||
        shmc_load_racy(&root->tail) != writer->tail ||
        shmc_load_racy(&root->slots) != writer->ring_mask + 1 ||
        shmc_load_racy(&root->catalogue) != writer->catalogue)
        return fail(walk, "LAYOUT2: the published root is not the writer's");
    if (shmc_load_racy(&super->floor) > latest)
        return fail(walk, "RECLAIM2: the floor is above the latest generation");
    if (!check_kept(walk) || !check_limbo(walk) || !see_node(walk, writer->catalogue))
        return false;
    if (shmc_load_at(span, writer->catalogue) != writer->resource_count)
        return fail(walk, "LAYOUT2: the catalogue has another number of resources");
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        const struct shmc_wresource *resource = &writer->resources[i];

        if (shmc_load_at(span, writer->catalogue + 8 + i * 8) != resource->now.record ||
            shmc_load_at(span, resource->now.record + offsetof(struct shmc_record, primary)) !=
                resource->now.primary)
            return fail(walk, "LAYOUT2: resource %u has another record", i);
        if (!check_resource(walk, resource))
            return false;
    }
    return check_window(walk) && expand_all(walk);
}

/* ---- the arena ------------------------------------------------------------------------------- */

struct totals {
    uint64_t reachable, limbo, free;
};

static bool check_slot(struct walk *walk, shmc_offset block, uint64_t size, uint32_t count,
                       struct totals *totals)
{
    const uint32_t seen = walk->seen[block >> 3];

    if (count == SHMC_META_FREE) {
        totals->free += size;
        return seen == 0 || fail(walk, "COUNT1: a free block at %#llx is reachable",
                                 (unsigned long long)block);
    }
    if (count == SHMC_META_LIMBO) {
        totals->limbo += size;
        return seen == 0 || fail(walk, "LAYOUT1: a retired block at %#llx is reachable",
                                 (unsigned long long)block);
    }
    totals->reachable += size;
    if (seen == 0)
        return fail(walk, "leaked: the block at %#llx (count %u) cannot be reached",
                    (unsigned long long)block, count);
    if (seen != NODE && seen != count)
        return fail(walk, "COUNT1: the block at %#llx has %u references and is counted %u times",
                    (unsigned long long)block, seen, count);
    return true;
}

static bool check_page(struct walk *walk, uint32_t number, struct totals *totals)
{
    const struct shmc_arena *arena = &walk->writer->arena;
    const struct shmc_page *page = &arena->pages[number];
    const shmc_offset start = ((uint64_t)arena->first_page + number) * SHMC_PAGE;

    if (page->meta == NULL) {
        if (!(arena->free_pages[number / 64] >> (number % 64) & 1))
            return true; /* inside a large block */
        totals->free += SHMC_PAGE;
        return true;
    }
    const uint64_t size = shmc_arena_block_size(arena, start);
    const uint32_t slots = size >= SHMC_PAGE ? 1 : (uint32_t)(SHMC_PAGE / size);
    uint32_t used = 0;

    for (uint32_t i = 0; i < slots; i++) {
        const bool touched = size > SHMC_PAGE || i < page->fresh;
        const uint32_t count = touched ? shmc_meta_count(page->meta[i]) : SHMC_META_FREE;

        used += count != SHMC_META_FREE;
        if (!check_slot(walk, start + i * size, size, count, totals))
            return false;
    }
    if (size < SHMC_PAGE)
        totals->free += SHMC_PAGE - slots * size;
    if (size <= SHMC_PAGE && used != page->used)
        return fail(walk, "ARENA1: page %u counts %u of %u blocks", number, page->used, used);
    return true;
}

static bool check_arena(struct walk *walk)
{
    const struct shmc_writer *writer = walk->writer;
    struct totals totals = {0};
    struct shmc_stats stats;

    for (uint32_t i = 0; i < writer->arena.page_count; i++) {
        if (!check_page(walk, i, &totals))
            return false;
    }
    shmc_writer_stats(writer, &stats);
    if (totals.reachable + totals.limbo + totals.free != stats.high_water_bytes ||
        totals.reachable != stats.reachable_bytes || totals.limbo != stats.limbo_bytes)
        return fail(walk,
                    "LAYOUT7: reachable %llu + limbo %llu + free %llu is not the high water %llu "
                    "(accounted: %llu, %llu)",
                    (unsigned long long)totals.reachable, (unsigned long long)totals.limbo,
                    (unsigned long long)totals.free, (unsigned long long)stats.high_water_bytes,
                    (unsigned long long)stats.reachable_bytes,
                    (unsigned long long)stats.limbo_bytes);
    if (walk->in_table != writer->intern.count || walk->value_blocks != writer->value_blocks)
        return fail(walk, "INTERN1: the table of equals has %llu entries for %llu of %llu blocks (%llu)",
                    (unsigned long long)writer->intern.count, (unsigned long long)walk->in_table,
                    (unsigned long long)walk->value_blocks,
                    (unsigned long long)writer->value_blocks);
    return true;
}

enum shmc_status shmc_check(const struct shmc_writer *writer, char *what, size_t fault_size)
{
    struct walk walk = {.writer = writer,
                        .inner = {.span = &writer->span,
                                  .hash_key = writer->super->hash_key,
                                  .generation = writer->generation,
                                  .word = walked_word,
                                  .node = walked_node,
                                  .what = what,
                                  .fault_size = fault_size}};
    const uint64_t granules = shmc_arena_high_water(&writer->arena) / 8;

    if (writer->in_batch)
        return SHMC_BUSY;
    if (fault_size > 0)
        what[0] = 0;
    walk.seen = calloc(granules, sizeof(uint32_t));
    if (walk.seen == NULL)
        return SHMC_NO_MEMORY;
    const bool ok = check_root(&walk) && check_arena(&walk);
    shmc_list_free(&walk.heap, &walk.todo);
    free(walk.seen);
    return ok ? SHMC_OK : SHMC_CORRUPT;
}
