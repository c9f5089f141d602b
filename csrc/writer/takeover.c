/*
 * takeover.c - becoming the writer of a cache that another writer left.
 *
 * Everything that a writer keeps for itself can be rebuilt from the data that its last root
 * reaches. One walk from there visits each block once, and on its way rebuilds the private tables:
 * classes of pages and counts in the arena, the table of equals, resources and their indices.
 * Blocks that the walk did not meet are garbage that readers may still be reading.
 *
 *   header ▸ root[latest & 7] ▸ catalogue ▸ records ▸ trees, directories, indices ▸ values
 *          ▸ window ▸ values     ▸ settle: the rest is retired     ▸ incarnation ▸ all bells
 *
 * Invariants
 *   TAKEOVER1  nothing in DATA is stored before the walk has found no fault: a rejected segment
 *       is as it was, and its readers continue with it.
 *   TAKEOVER2  the walk ends, and touches nothing outside [arena_offset, high water), whatever the
 *       bytes are: each block is opened once, two blocks never overlap (they are claimed slots),
 *       values nest at most SHMC_MAX_DEPTH deep and in no circle.
 *   TAKEOVER3  blocks below the root's high water that the walk did not meet count as retired at
 *       its generation G: used again only when no acknowledged pin is below G, or the floor is at G
 *       (RECLAIM1). So every pin that a live seat holds, on whatever older generation, stays good.
 *   TAKEOVER4  a slot of the window whose stamp is not its number + 1 is not a delta: the window
 *       begins after it, and a consumer that has not read that far is lapped.
 *   TAKEOVER5  ids continue where the dead writer's reserved ones end, the ring at the root's head,
 *       and generations at G + 1; data past the root's head or high water was never visible.
 *   TAKEOVER6  only one process at a time takes over or writes: the caller holds the lock of the
 *       very file that the last writer held (`guard`). A writer that is merely stopped keeps that
 *       lock, and with it the file alive, so that no other file can have its device and inode.
 *
 * No root reaches objects that were staged, or built in a batch that was not published: TAKEOVER3
 *     covers them.
 *
 * Ordering
 *   incarnation ▸ full fence ▸ ringing all bells: the dead writer may have published and not
 *   posted.
 */
#include <stdlib.h>

#include "writer/takeover.h"

#define USUAL_BYTES 512u /* of the arena, for each shared value block: a guess */

/* ---- the window ------------------------------------------------------------------------------ */

static bool adopt_slot(struct takeover *takeover, const struct shmc_slot *slot)
{
    const uint64_t what = shmc_load_racy(&slot->what);
    const unsigned kind = (unsigned)(what >> 32 & 0xff);
    const shmc_word words[4] = {shmc_load_racy(&slot->key), shmc_load_racy(&slot->version),
                                shmc_load_racy(&slot->old_value),
                                shmc_load_racy(&slot->new_value)};

    if ((uint32_t)what >= takeover->writer->resource_count || kind < SHMC_ADDED ||
        kind > SHMC_RELIST || shmc_load_racy(&slot->generation) > takeover->walk.generation)
        return refuse(takeover, SHMC_CORRUPT, "a broken delta", what);
    if (kind != SHMC_RELIST && !shmc_adopt_string(takeover, words[0], "a delta without a key"))
        return false;
    for (size_t i = kind == SHMC_RELIST ? 0 : 1; i < 4; i++) {
        if (words[i] != SHMC_NOTHING && !shmc_adopt_word(&takeover->walk, words[i]))
            return false;
    }
    return true;
}

/* TAKEOVER4. From the newest slot back, as long as they are whole. */
static bool adopt_window(struct takeover *takeover)
{
    struct shmc_writer *writer = takeover->writer;
    const uint64_t tail = writer->tail;

    writer->tail = writer->head;
    while (writer->tail > tail) {
        const uint64_t number = writer->tail - 1;
        const struct shmc_slot *slot = &shmc_ring_slots(writer)[number & writer->ring_mask];

        if (SHMC_CHECKED(NO_TAKEOVER_STAMP, shmc_load_racy(&slot->stamp) == number + 1)) {
            if (!adopt_slot(takeover, slot))
                return false;
        } else {
            break;
        }
        writer->tail = number;
    }
    return true;
}

/* The bytes retained by old versions, as publish.c charges them: counts are known by now. */
static void charge_window(struct shmc_writer *writer)
{
    writer->charged = 0;
    for (uint64_t n = writer->tail; n < writer->head; n++) {
        const struct shmc_slot *slot = &shmc_ring_slots(writer)[n & writer->ring_mask];
        const shmc_word old = shmc_load_racy(&slot->old_value);
        const uint64_t charge = 64 + (shmc_is_block(old) ? shmc_exclusive_bytes(writer, old) : 0);
        writer->charges[n & writer->ring_mask] =
            charge > UINT32_MAX ? UINT32_MAX : (uint32_t)charge;
        writer->charged += writer->charges[n & writer->ring_mask];
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The last root, as far as it can be checked without following it (LAYOUT2, LAYOUT5, RECLAIM2). */
static bool adopt_root(struct takeover *takeover, uint64_t *high_water, shmc_offset *catalogue)
{
    struct shmc_writer *writer = takeover->writer;
    const struct shmc_super *super = writer->super;
    const uint64_t generation = shmc_load_acquire(&super->latest);
    const struct shmc_root *root = &super->roots[generation & (SHMC_ROOTS - 1)];

    writer->generation = takeover->walk.generation = generation;
    writer->head = shmc_load_racy(&root->head);
    writer->tail = shmc_load_racy(&root->tail);
    *high_water = shmc_load_racy(&root->high_water);
    *catalogue = shmc_load_racy(&root->catalogue);
    const uint64_t slots = shmc_load_racy(&root->slots);
    if (generation == 0 || shmc_load_racy(&root->generation) != generation ||
        shmc_load_racy(&super->floor) > generation || writer->tail > writer->head ||
        !shmc_slots_valid(slots, super->ring_slots) || writer->head - writer->tail > slots / 2 ||
        *high_water % SHMC_PAGE != 0 || *high_water < super->arena_offset ||
        *high_water > writer->data->file_size)
        return refuse(takeover, SHMC_CORRUPT, "LAYOUT2: the last root is invalid", generation);
    takeover->span = (struct shmc_span){writer->data->base, *high_water, super->arena_offset};
    const enum shmc_status status = shmc_ring_adopt(writer, slots);
    return status == SHMC_OK || refuse(takeover, status, "no room for its ring", slots);
}

static bool adopt_everything(struct takeover *takeover)
{
    struct shmc_writer *writer = takeover->writer;
    shmc_offset catalogue;
    uint64_t high_water;

    if (!adopt_root(takeover, &high_water, &catalogue))
        return false;
    enum shmc_status status = shmc_arena_adopt(&writer->arena, high_water);
    if (status == SHMC_OK)
        status = shmc_intern_expect(&writer->intern, &writer->heap,
                                    (high_water - writer->super->arena_offset) / USUAL_BYTES);
    if (status != SHMC_OK)
        return refuse(takeover, status, "no memory", 0);
    return shmc_adopt_catalogue(takeover, catalogue) && adopt_window(takeover) &&
           shmc_adopt_waiting(takeover) && shmc_adopt_ids(takeover);
}

static enum shmc_status settle(struct shmc_writer *writer)
{
    struct shmc_chain left;
    enum shmc_status status = shmc_arena_settle(&writer->arena, &left);

    if (status != SHMC_OK)
        return status;
    writer->node_bytes = left.uncounted;
    charge_window(writer);
    return shmc_limbo_inherit(writer, &left); /* TAKEOVER3 */
}

/* Whether this DATA can be continued at all, before anything in it is trusted. */
static enum shmc_status check_header(const struct shmc_segment *data,
                                     const struct shmc_writer_settings *settings)
{
    const struct shmc_super *super = (const struct shmc_super *)(const void *)data->base;
    uint64_t instance = 0;
    const enum shmc_status status =
        shmc_data_check_header(data, settings->boot_id, &instance);

    if (status != SHMC_OK)
        return status;
    if (!data->writable)
        return SHMC_INVALID;
    if (instance != settings->instance || super->max_size != settings->max_size ||
        super->ring_slots != settings->ring_slots)
        return SHMC_VERSION;
    if (shmc_load_acquire(&super->over) != 0)
        return SHMC_OVER;
    for (int i = 0; i < 2; i++) { /* TAKEOVER6 */
        if (SHMC_CHECKED(NO_GUARD, shmc_load_racy(&super->guard[i]) == settings->guard[i]))
            continue;
        return SHMC_BUSY;
    }
    return SHMC_OK;
}

static enum shmc_status walk_all(struct shmc_writer *writer, char *what, size_t fault_size)
{
    struct takeover *takeover = calloc(1, sizeof(*takeover));

    if (takeover == NULL)
        return SHMC_NO_MEMORY;
    takeover->walk = (struct shmc_walk){.span = &takeover->span,
                                        .hash_key = writer->super->hash_key,
                                        .word = shmc_adopt_word,
                                        .ahead = shmc_adopt_ahead,
                                        .node = shmc_adopt_node,
                                        .what = what,
                                        .fault_size = fault_size};
    takeover->writer = writer;
    takeover->status = SHMC_CORRUPT;
    const bool ok = adopt_everything(takeover);
    const enum shmc_status status = ok ? SHMC_OK : takeover->status;
    shmc_list_free(&writer->heap, &takeover->shapes);
    free(takeover);
    return status;
}

/* From here on this process is the writer. */
static void become_writer(struct shmc_writer *writer, const struct shmc_writer_settings *settings)
{
    shmc_writer_begin(writer, settings);
    shmc_fence_full();
    if (writer->seats == NULL)
        return;
    SHMC_UNLESS(NO_TAKEOVER_WAKE, shmc_seats_wake_all(writer->seats, writer->seat_count));
    if (writer->seats->fd >= 0)
        shmc_writer_reap(writer);
}

enum shmc_status shmc_writer_takeover(struct shmc_segment *data, struct shmc_segment *seats,
                                      const struct shmc_writer_settings *settings, char *what,
                                      size_t fault_size, struct shmc_writer **taken)
{
    struct shmc_writer *writer;
    enum shmc_status status = check_header(data, settings);

    if (fault_size > 0)
        what[0] = 0;
    if (status != SHMC_OK)
        return status;
    /* Memory that the dead writer added past this was promised to nobody (LAYOUT3): add it
    again. */
    const struct shmc_super *super = (const struct shmc_super *)(const void *)data->base;
    const uint64_t file_size = data->file_size;
    data->file_size = shmc_load_acquire(&super->file_size);
    status = shmc_writer_make(data, seats, settings, &writer);
    if (status == SHMC_OK) {
        if (seats != NULL) /* mends SEATS, so that every sitter is seen */
            (void)shmc_seats_mend(seats, writer->seat_count, writer->seats_instance);
        status = walk_all(writer, what, fault_size);
        if (status == SHMC_OK)
            status = settle(writer);
        if (status != SHMC_OK)
            shmc_writer_destroy(writer);
    }
    if (status != SHMC_OK) {
        data->file_size = file_size; /* as if it had not been tried */
        return status;
    }
    const struct shmc_root *root = &super->roots[writer->generation & (SHMC_ROOTS - 1)];
    const bool lapped = writer->tail != shmc_load_racy(&root->tail);
    become_writer(writer, settings);
    (void)shmc_reclaim(writer);
    if (lapped) /* without room for this, stamps tell the readers */
        (void)shmc_publish_forced(writer);
    *taken = writer;
    return SHMC_OK;
}
