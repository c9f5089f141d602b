/*
 * widen.c - a ring has memory for as many deltas as its window needs.
 *
 * Address space for the whole ring, for as many slots as the settings allow, is reserved in DATA;
 * only its first slots have memory, and each root records how many. When the window would have to
 * drop deltas for lack of slots, and not because old versions retain too much, the number of slots
 * at least doubles from then on. So a small cache does not carry the ring of a large one.
 *
 * Invariants
 *   WIDEN1  delta n of a root's window lies in slot n & (slots - 1), with the slots of that root.
 *   WIDEN2  all slots of any root have memory, and the space after them is not touched
 *       before it is filled (LAYOUT3).
 *   WIDEN3  a delta of the window that has another slot in the wider ring is copied there:
 *       after the slots of all roots so far. Their slots stay as they are.
 *   WIDEN4  as long as the wider ring is not published, no slot of the published window is written:
 *       the batch uses slots of the wider ring that are not among the window's old ones, or the
 *       ring stays as it is and the batch becomes RELIST deltas.
 *   WIDEN5  a batch that fails, or in which nothing becomes visible, leaves the ring as it was,
 *       except for unused memory.
 *
 * Ordering: none of its own. Copies are published with the root that names the new size (ORDER5). A
 * reader with an older root reads that root's slots, and sees by the stamps whether the writer
 * lapped it (RING3).
 */
#include "writer/writer.h"

#define FIRST 1024u /* slots: 64 KiB */

static uint64_t ring_end(uint64_t slots)
{
    return SHMC_RING_OFFSET + slots * sizeof(struct shmc_slot);
}

static uint64_t first_slots(const struct shmc_writer_settings *settings)
{
    const uint64_t most = settings->ring_slots;

    if (settings->ring_first != 0)
        return settings->ring_first < most ? settings->ring_first : most;
    return shmc_ring_hole(FIRST, most) > 0 ? FIRST : most;
}

struct shmc_slot *shmc_ring_slots(const struct shmc_writer *writer)
{
    return (struct shmc_slot *)(void *)(writer->data->base + SHMC_RING_OFFSET);
}

uint64_t shmc_ring_window(const struct shmc_writer *writer)
{
    return (writer->ring_mask + 1) / 2;
}

/* ---- at the beginning ------------------------------------------------------------------------ */

enum shmc_status shmc_data_extend(struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings)
{
    enum shmc_status status = shmc_segment_extend(data, ring_end(first_slots(settings)));

    if (status == SHMC_OK)
        status = shmc_segment_skip(data, ring_end(settings->ring_slots));
    return status == SHMC_OK ? shmc_segment_extend(data, shmc_data_minimum(settings)) : status;
}

uint64_t shmc_data_memory(const struct shmc_writer_settings *settings)
{
    return shmc_data_minimum(settings) -
           shmc_ring_hole(first_slots(settings), settings->ring_slots);
}

static enum shmc_status charges_resize(struct shmc_writer *writer, uint64_t slots)
{
    const size_t size = sizeof *writer->charges;

    if (slots <= writer->charge_slots)
        return SHMC_OK;
    void *charges = shmc_heap_resize(&writer->heap, writer->charges, writer->charge_slots * size,
                                     slots * size);
    if (charges == NULL)
        return SHMC_NO_MEMORY;
    writer->charges = charges;
    writer->charge_slots = slots;
    return SHMC_OK;
}

/* From now on the ring has this many slots, with memory. */
static enum shmc_status begin(struct shmc_writer *writer, uint64_t slots)
{
    const enum shmc_status status = charges_resize(writer, slots);

    if (status == SHMC_OK)
        writer->ring_mask = slots - 1;
    return status;
}

enum shmc_status shmc_ring_create(struct shmc_writer *writer,
                                  const struct shmc_writer_settings *settings)
{
    return begin(writer, first_slots(settings));
}

enum shmc_status shmc_ring_adopt(struct shmc_writer *writer, uint64_t slots)
{
    struct shmc_segment data = *writer->data;

    data.limits = NULL; /* it takes no memory, unless the root is wrong (WIDEN2) */
    const enum shmc_status status = shmc_segment_fill(&data, SHMC_RING_OFFSET, ring_end(slots));
    return status == SHMC_OK ? begin(writer, slots) : status;
}

enum shmc_status shmc_ring_copy(const struct shmc_writer *writer, const struct shmc_segment *data)
{
    const uint64_t end = ring_end(writer->ring_mask + 1), arena = writer->super->arena_offset;
    const enum shmc_status status = shmc_segment_fill(data, SHMC_RING_OFFSET, end);

    if (status != SHMC_OK)
        return status;
    memcpy(data->base, writer->data->base, (size_t)end);
    memcpy(data->base + arena, writer->data->base + arena,
           (size_t)(writer->data->file_size - arena));
    return SHMC_OK;
}

/* ---- wider ------------------------------------------------------------------------------------ */

/* Number of deltas of the open batch; of RELIST deltas, if it is published as these. */
static uint64_t added(const struct shmc_writer *writer)
{
    return writer->pending_overflow ? writer->resource_count : writer->pending_count;
}

/* WIDEN4. Whether the open batch fits into that many slots without touching the published
 * window. */
static bool has_slots(const struct shmc_writer *writer, uint64_t slots)
{
    for (uint64_t n = writer->tail; n < writer->head; n++) {
        const uint64_t slot = n & writer->ring_mask;
        if (((slot - writer->head) & (slots - 1)) < added(writer))
            return false;
    }
    return true;
}

/* WIDEN3. */
static void copy_slot(struct shmc_writer *writer, uint64_t from, uint64_t to)
{
    const struct shmc_slot *old = &shmc_ring_slots(writer)[from];
    struct shmc_slot *slot = &shmc_ring_slots(writer)[to];

    shmc_store_racy(&slot->generation, shmc_load_racy(&old->generation));
    shmc_store_racy(&slot->what, shmc_load_racy(&old->what));
    shmc_store_racy(&slot->key, shmc_load_racy(&old->key));
    shmc_store_racy(&slot->version, shmc_load_racy(&old->version));
    shmc_store_racy(&slot->old_value, shmc_load_racy(&old->old_value));
    shmc_store_racy(&slot->new_value, shmc_load_racy(&old->new_value));
    shmc_store_racy(&slot->shard, shmc_load_racy(&old->shard));
    shmc_store_racy(&slot->stamp, shmc_load_racy(&old->stamp));
    writer->charges[to] = writer->charges[from];
}

/* Of several steps the first may have got memory. Only the part that was without memory from the
 * start: after that the last slots share a large page with the arena. */
static void give_back(const struct shmc_writer *writer, uint64_t slots)
{
    const uint64_t hole = shmc_ring_hole(slots, writer->super->ring_slots);

    shmc_segment_empty(writer->data, ring_end(slots), ring_end(slots) + hole);
}

/* Widens to that many slots, or more if the batch finds free ones only there. */
static enum shmc_status widen(struct shmc_writer *writer, uint64_t slots)
{
    const uint64_t mask = writer->ring_mask;

    while (!SHMC_CHECKED(NO_WIDEN_SLOTS, has_slots(writer, slots))) {
        slots *= 2;
        if (slots > writer->super->ring_slots)
            return SHMC_FULL;
    }
    enum shmc_status status = shmc_segment_fill(writer->data, ring_end(mask + 1), ring_end(slots));
    if (status == SHMC_OK)
        status = begin(writer, slots);
    if (status != SHMC_OK) {
        give_back(writer, mask + 1);
        return status;
    }
    for (uint64_t n = writer->tail; n < writer->head; n++) {
        if ((n & mask) != (n & writer->ring_mask))
            SHMC_UNLESS(NO_WIDEN_COPY, copy_slot(writer, n & mask, n & writer->ring_mask));
    }
    return SHMC_OK;
}

/* How many slots the window would fill together with the open batch, if only its bytes limit it,
 * and at least one for each delta of the batch and one for each resource, twice over (RING1). */
static uint64_t slots_wanted(const struct shmc_writer *writer)
{
    uint64_t slots = writer->ring_mask + 1, least = added(writer), window = 0, charged;

    if (!writer->pending_overflow)
        window = writer->head + writer->pending_count -
                 shmc_window_tail(writer, UINT64_MAX, &charged);
    least = least > writer->resource_count ? least : writer->resource_count;
    least = least > window ? least : window;
    while (slots / 2 < least && slots < writer->super->ring_slots)
        slots *= 2;
    return slots;
}

enum shmc_status shmc_ring_make_room(struct shmc_writer *writer)
{
    const uint64_t window = shmc_ring_window(writer), batch = added(writer);
    const bool needed = batch > window || writer->resource_count > window;
    const bool full = writer->head - writer->tail + batch > window;
    enum shmc_status status = SHMC_OK;

    if (writer->ring_mask + 1 == writer->super->ring_slots ||
        (!needed && (writer->ring_wish == 0 || batch == 0) &&
         (!full || writer->head < writer->widen_from)))
        return SHMC_OK;
    uint64_t slots = slots_wanted(writer);
    slots = slots > writer->ring_wish ? slots : writer->ring_wish;
    if (slots > writer->ring_mask + 1)
        status = widen(writer, slots);
    writer->ring_wish = status == SHMC_FULL ? slots : 0; /* a smaller batch fits */
    if (status == SHMC_FULL && writer->resource_count > window) { /* of RELIST deltas */
        writer->pending_overflow = true;
        status = widen(writer, slots_wanted(writer));
    }
    if (status != SHMC_OK) /* a retry would fail the same way */
        writer->widen_from = writer->head + window;
    if (writer->resource_count > shmc_ring_window(writer))
        return status; /* not one RELIST for each (RING1) */
    if (writer->data->limits != NULL)
        writer->data->limits->refused = 0; /* nothing fails for this */
    if (batch > shmc_ring_window(writer))
        writer->pending_overflow = true;
    return SHMC_OK;
}
