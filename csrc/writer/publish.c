/*
 * publish.c - how a batch becomes visible: all of it, by one store.
 *
 *   records ▸ catalogue ▸ slots after head ▸ root slot ▸ latest           (may fail, undone)
 *   ▸ full fence ▸ post to sleepers ▸ counts of slots, releases, limbo    (cannot fail)
 *
 * Invariants
 *   PUBLISH1  until latest is stored, nothing reachable from the last root was touched: the
 *       new slots lie outside the window (RING1), every block is fresh.
 *   PUBLISH2  after it nothing can fail: everything that the rest needs (a limbo group) was
 *   reserved.
 *   PUBLISH3  a process that another writer fenced off publishes nothing.
 *   PUBLISH4  a visible change has its slot in the window of the same root, or the
 *       window holds a RELIST of its resource, or it ends before the change.
 *   PUBLISH5  a record's `unbroken` lies after all deltas of the last replacement and after the
 *       last RELIST of its resource: all later changes were seen as they happened, one by one, from
 *       the version `listed` on.
 *
 * Ordering
 *   ORDER5  root slot ▸ latest (release); pairs with latest (acquire) ▸ root slot in
 *       shmc_pin(). The slot was last used eight generations ago; a reader that slept
 *       for that long finds latest beyond its copy, and tries again.
 *   ORDER1 of reclaim.c: latest ▸ full fence ▸ sleeping flags and pins.
 */
#include "writer/writer.h"

/* ---- records -------------------------------------------------------------------------- */

static enum shmc_status record_write(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    const uint64_t words[] = {resource->name,    resource->now.settings,   resource->now.state,
                              resource->now.version, resource->now.generation, resource->now.count,
                              resource->now.primary, resource->now.directory,  resource->now.index_count,
                              resource->now.reason,  resource->now.since_ns,   resource->contact,
                              resource->now.unbroken,  resource->now.listed,     resource->now.marks};
    static_assert(sizeof(words) == sizeof(struct shmc_record), "all of it");
    shmc_offset block;
    enum shmc_status status = shmc_node_alloc(
        writer, sizeof(words) + resource->now.index_count * sizeof(struct shmc_record_index), &block);

    if (status == SHMC_OK && resource->now.record != 0)
        status = shmc_node_replaced(writer, resource->now.record);
    if (status != SHMC_OK)
        return status;
    uint8_t *to = writer->data->base + block;
    for (size_t i = 0; i < sizeof(words) / 8; i++, to += 8)
        shmc_word_store(to, words[i]);
    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        const struct shmc_windex *index = &resource->indices[i];
        const uint64_t entry[] = {index->name, index->settings, index->count, index->tree};
        for (size_t k = 0; k < 4; k++, to += 8)
            shmc_word_store(to, entry[k]);
    }
    resource->now.record = block;
    return SHMC_OK;
}

static enum shmc_status catalogue_write(struct shmc_writer *writer)
{
    shmc_offset block;
    enum shmc_status status =
        shmc_node_alloc(writer, 8 + (uint64_t)writer->resource_count * 8, &block);

    if (status == SHMC_OK && writer->catalogue != 0)
        status = shmc_node_replaced(writer, writer->catalogue);
    if (status != SHMC_OK)
        return status;
    uint8_t *to = writer->data->base + block;
    shmc_word_store(to, writer->resource_count);
    for (uint32_t i = 0; i < writer->resource_count; i++)
        shmc_word_store(to + 8 + i * 8, writer->resources[i].now.record);
    writer->catalogue = block;
    return SHMC_OK;
}

/* ---- slots ------------------------------------------------------------------------------ */

static uint32_t capped_charge(const struct shmc_pending *change)
{
    return change->charge > UINT32_MAX ? UINT32_MAX : (uint32_t)change->charge;
}

static void slot_write(struct shmc_writer *writer, uint64_t number,
                       const struct shmc_pending *change)
{
    struct shmc_slot *slot = &shmc_ring_slots(writer)[number & writer->ring_mask];

    shmc_store_racy(&slot->stamp, 0); /* ORDER3 */
    shmc_fence_release();
    shmc_store_racy(&slot->generation, writer->generation + 1);
    shmc_store_racy(&slot->what, change->resource | (uint64_t)change->kind << 32 |
                                     (uint64_t)change->flags << 40);
    shmc_store_racy(&slot->key, change->key);
    shmc_store_racy(&slot->version, change->version);
    shmc_store_racy(&slot->old_value, change->old_value);
    shmc_store_racy(&slot->new_value, change->new_value);
    shmc_store_racy(&slot->shard, change->shard);
    shmc_store_release(&slot->stamp, number + 1); /* ORDER4 */
    writer->charges[number & writer->ring_mask] = capped_charge(change);
}

/* The slot of the next delta. */
static uint64_t next_head(const struct shmc_writer *writer)
{
    uint64_t relists = 0;

    if (!writer->pending_overflow)
        return writer->head + writer->pending_count;
    for (uint32_t i = 0; i < writer->resource_count; i++)
        relists += writer->resources[i].delta_count > 0;
    return writer->head + relists;
}

/* PUBLISH5. The break must be visible even if no delta lies between two lists. */
static enum shmc_status note_break(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    const bool overflow = writer->pending_overflow && resource->delta_count > 0;

    if (!resource->finishing && !overflow)
        return SHMC_OK;
    resource->now.unbroken = next_head(writer) << 16 | ((resource->now.unbroken + 1) & UINT16_MAX);
    enum shmc_status status = shmc_take(writer, resource->now.version);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, resource->now.listed);
    resource->now.listed = resource->now.version;
    return status;
}

/* One RELIST for each resource that changed too much; its changes are not listed. */
static void pending_to_relists(struct shmc_writer *writer)
{
    size_t kept = 0;

    for (uint32_t i = 0; i < writer->resource_count; i++) {
        if (writer->resources[i].delta_count == 0)
            continue;
        writer->pending[kept++] = (struct shmc_pending){
            .resource = i, .kind = SHMC_RELIST, .version = writer->resources[i].now.version};
        writer->counters.relists++;
    }
    writer->pending_count = kept;
}

/* The slot of a delta in the window, or in the open batch after it. */
static uint32_t charge_of(const struct shmc_writer *writer, uint64_t number)
{
    if (number < writer->head)
        return writer->charges[number & writer->ring_mask];
    return capped_charge(&writer->pending[number - writer->head]);
}

uint64_t shmc_window_tail(const struct shmc_writer *writer, uint64_t window, uint64_t *charged)
{
    const uint64_t head = writer->head + writer->pending_count;
    uint64_t limit = writer->ring_limit;
    uint64_t tail = writer->tail;

    if (limit == 0) {
        const uint64_t live = writer->arena.used_bytes - writer->limbo.bytes;
        limit = (live - (writer->charged < live ? writer->charged : live)) / 5;
        limit = limit < (UINT64_C(1) << 20) ? UINT64_C(1) << 20 : limit;
        limit = limit > (UINT64_C(64) << 20) ? UINT64_C(64) << 20 : limit;
    }
    *charged = writer->charged;
    for (size_t i = 0; i < writer->pending_count; i++)
        *charged += capped_charge(&writer->pending[i]);
    while (tail < head && (head - tail > window || *charged > limit || writer->drop_window))
        *charged -= charge_of(writer, tail++);
    return tail;
}

/* A slot's words, counted or released: RING4. */
static void slot_count(struct shmc_writer *writer, uint64_t number, bool up)
{
    const struct shmc_slot *slot = &shmc_ring_slots(writer)[number & writer->ring_mask];
    const shmc_word words[4] = {shmc_load_racy(&slot->key), shmc_load_racy(&slot->version),
                                shmc_load_racy(&slot->old_value),
                                shmc_load_racy(&slot->new_value)};

    for (size_t i = 0; i < 4; i++) {
        if (up)
            shmc_count_up(writer, words[i]);
        else
            shmc_count_down(writer, words[i]);
    }
}

/* ---- the publication --------------------------------------------------------------------- */

/* A reason to wake up: a change of objects or of state. A version alone does not count, or a relist
 * in which nothing changed would wake everybody. */
static bool has_news(const struct shmc_wresource *resource)
{
    return resource->delta_count > 0 ||
           (resource->dirty && (resource->saved == NULL || resource->saved->content.state != resource->now.state));
}

/* Notifies waiters for a state or a version; rare, and it wakes no other sleeper. */
static bool has_progress(const struct shmc_wresource *resource)
{
    return resource->dirty &&
           (resource->saved == NULL || resource->saved->content.state != resource->now.state ||
            resource->saved->content.version != resource->now.version);
}

static void root_publish(struct shmc_writer *writer, uint64_t head, uint64_t tail)
{
    const uint64_t generation = writer->generation + 1;
    struct shmc_root *root = &writer->super->roots[generation & (SHMC_ROOTS - 1)];

    if (SHMC_CHECKED(NO_ROOT_FIRST, false)) /* ORDER5, broken in a test build */
        shmc_store_release(&writer->super->latest, generation);
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        if (has_news(&writer->resources[i]))
            shmc_store_racy(&writer->super->activity[i & (SHMC_ACTIVITY - 1)], generation);
        if (has_progress(&writer->resources[i]))
            shmc_store_racy(&writer->super->progress[i & (SHMC_ACTIVITY - 1)], generation);
    }
    shmc_store_racy(&root->generation, generation);
    shmc_store_racy(&root->head, head);
    shmc_store_racy(&root->tail, tail);
    shmc_store_racy(&root->high_water, shmc_arena_high_water(&writer->arena));
    shmc_store_racy(&root->catalogue, writer->catalogue);
    shmc_store_racy(&root->slots, writer->ring_mask + 1);
    shmc_store_release(&writer->super->latest, generation); /* ORDER5 */
    shmc_store_racy(&writer->super->phase, SHMC_PHASE_RELEASE);
    SHMC_UNLESS(NO_WRITER_FENCE, shmc_fence_full());        /* ORDER1 */
    writer->generation = generation;
}

static void post(struct shmc_writer *writer)
{
    uint64_t interest = 0, progress = 0;

    for (uint32_t i = 0; i < writer->resource_count; i++) {
        const uint64_t bit = UINT64_C(1) << (i & (SHMC_ACTIVITY - 1));
        if (has_news(&writer->resources[i]))
            interest |= bit;
        if (has_progress(&writer->resources[i]))
            progress |= bit;
    }
    if (writer->seats != NULL && (interest | progress) != 0)
        writer->counters.wakes +=
            shmc_seats_wake(writer->seats, writer->seat_count, interest, progress);
}

/* The versions that the next publications will release are the oldest ones: prefetches them a
 * level at a time. */
static void fetch_leaving(const struct shmc_writer *writer)
{
    for (unsigned i = 0; i < 3 && writer->tail + i < writer->head; i++) {
        const struct shmc_slot *slot =
            &shmc_ring_slots(writer)[(writer->tail + i) & writer->ring_mask];
        shmc_fetch_leaving(writer, shmc_load_racy(&slot->old_value), i);
    }
    __builtin_prefetch(&shmc_ring_slots(writer)[(writer->tail + 3) & writer->ring_mask]);
}

/* Releases everything that the publication dropped. Nothing here can fail (PUBLISH2). */
static void release(struct shmc_writer *writer, uint64_t old_head, uint64_t old_tail)
{
    struct shmc_undo *undo = &writer->undo;
    const uint64_t first = writer->tail > old_head ? writer->tail : old_head;

    for (uint64_t n = first; n < writer->head; n++)
        SHMC_UNLESS(NO_SLOT_COUNT, slot_count(writer, n, true));
    shmc_sweep_fresh(writer); /* before counts fall (COUNT2): what it drops has other holders */
    for (size_t i = 0; i < undo->drops.count; i++)
        shmc_count_down(writer, undo->drops.items[i]);
    for (uint64_t n = old_tail; n < old_tail + 4; n++) /* slots that leave the window are cold */
        __builtin_prefetch(&shmc_ring_slots(writer)[n & writer->ring_mask]);
    for (uint64_t n = old_tail; n < old_head && n < writer->tail; n++)
        SHMC_UNLESS(NO_TAIL_DROP, slot_count(writer, n, false));
    if (writer->tail != old_tail)
        fetch_leaving(writer);
    for (size_t i = 0; i < undo->retired.count; i++) {
        writer->node_bytes -= shmc_arena_block_size(&writer->arena, undo->retired.items[i]);
        shmc_retire(writer, undo->retired.items[i]);
    }
    undo->takes.count = undo->drops.count = undo->retired.count = 0;
}

static enum shmc_status publish(struct shmc_writer *writer, uint64_t now_ns)
{
    const uint64_t old_head = writer->head, old_tail = writer->tail;
    enum shmc_status status = shmc_limbo_reserve(writer); /* PUBLISH2 */
    bool dirty = writer->forced;

    if (status == SHMC_OK)
        status = shmc_ring_make_room(writer);
    if (status != SHMC_OK)
        return status;
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        struct shmc_wresource *resource = &writer->resources[i];
        if (!resource->dirty)
            continue;
        dirty = true;
        resource->now.generation = writer->generation + 1;
        status = note_break(writer, resource);
        if (status == SHMC_OK)
            status = record_write(writer, resource);
        if (status != SHMC_OK)
            return status;
    }
    if (!dirty) { /* nothing becomes visible; staged objects stay, or are released */
        release(writer, old_head, old_tail);
        return SHMC_OK;
    }
    status = catalogue_write(writer);
    if (status != SHMC_OK)
        return status;
    if (writer->pending_overflow)
        pending_to_relists(writer);
    for (size_t i = 0; i < writer->pending_count; i++)
        slot_write(writer, writer->head + i, &writer->pending[i]);
    if (shmc_load_racy(&writer->super->incarnation) != writer->incarnation)
        return SHMC_FENCED; /* PUBLISH3 */
    const uint64_t tail =
        shmc_window_tail(writer, shmc_ring_window(writer), &writer->charged);
    writer->head += writer->pending_count;
    writer->tail = tail;
    root_publish(writer, writer->head, tail);
    post(writer);
    release(writer, old_head, old_tail);
    writer->counters.commits++;
    writer->counters.deltas += writer->head - old_head;
    shmc_reclaim_in_steps(writer, now_ns);
    return SHMC_OK;
}

enum shmc_status shmc_publish(struct shmc_writer *writer, uint64_t now_ns)
{
    const uint64_t mask = writer->ring_mask, generation = writer->generation;
    const enum shmc_status status = publish(writer, now_ns);

    if (writer->generation == generation) /* nothing became visible, whatever the reason */
        writer->ring_mask = mask;         /* WIDEN5 */
    return status;
}
