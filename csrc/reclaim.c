/*
 * reclaim.c - when a retired block may be used again.
 *
 * A block retired at generation r is one that roots before r may lead to and root r
 * does not. It waits in limbo, in the group of its generation, chained through its
 * meta; groups are in the order of their generations.
 *
 * Invariants
 *   L1  a block leaves limbo only when no acknowledged pin is below its retire
 *       generation - or when its pins were revoked - and never before floor >= r.
 *   L2  floor only rises, and never above the published generation.
 *   L3  a pin counts (is acknowledged) if it is not below the floor: then nothing
 *       that it may lead to was reused. A lost, wiped or invented pin therefore can
 *       cost memory or a StaleObjectError, never a wrong value.
 *
 * Ordering
 *   P1  publish ▸ full fence ▸ scan of pins, here and in publish.c; pairs with store
 *       pin ▸ full fence ▸ look at latest again, in shmc_pin(). A reader whose pin the
 *       scan misses finds that latest moved, and tries again.
 *   P2  floor ▸ release fence ▸ words of the reused block; pairs with words ▸ acquire
 *       fence ▸ floor, in shmc_valid(). Whoever copied a new word sees the new floor.
 *
 * The floor is raised in steps, not per block: each raise costs every reader a miss.
 */
#include "writer.h"

#define STEP_BYTES (UINT64_C(1) << 20)
#define STEP_NS UINT64_C(1000000)
#define REAP_NS UINT64_C(100000000)

enum shmc_status shmc_limbo_reserve(struct shmc_writer *writer)
{
    struct shmc_limbo *limbo = &writer->limbo;

    if (limbo->start + limbo->count < limbo->capacity)
        return SHMC_OK;
    if (limbo->start > limbo->capacity / 2) {
        memmove(limbo->groups, limbo->groups + limbo->start,
                limbo->count * sizeof(*limbo->groups));
        limbo->start = 0;
        return SHMC_OK;
    }
    const size_t capacity = limbo->capacity * 2 + 64;
    void *groups = shmc_heap_resize(&writer->heap, limbo->groups,
                                    limbo->capacity * sizeof(*limbo->groups),
                                    capacity * sizeof(*limbo->groups));
    if (groups == NULL)
        return SHMC_NO_MEMORY;
    limbo->groups = groups;
    limbo->capacity = capacity;
    return SHMC_OK;
}

void shmc_retire(struct shmc_writer *writer, shmc_offset block)
{
    struct shmc_limbo *limbo = &writer->limbo;
    struct shmc_limbo_group *group = limbo->groups + limbo->start + limbo->count - 1;
    const uint64_t size = shmc_arena_block_size(&writer->arena, block);

    if (limbo->count == 0 || group->retired != writer->generation) {
        assert(limbo->start + limbo->count < limbo->capacity); /* reserved before publishing */
        group = limbo->groups + limbo->start + limbo->count++;
        *group = (struct shmc_limbo_group){.retired = writer->generation};
    }
    *shmc_arena_meta(&writer->arena, block) = SHMC_META_LIMBO;
    if (group->first == 0)
        group->first = shmc_granule(block);
    else
        *shmc_arena_meta(&writer->arena, (shmc_offset)group->last << 3) =
            (uint64_t)shmc_granule(block) << 32 | SHMC_META_LIMBO;
    group->last = shmc_granule(block);
    group->bytes += size;
    limbo->bytes += size;
}

enum shmc_status shmc_limbo_inherit(struct shmc_writer *writer, const struct shmc_chain *left)
{
    struct shmc_limbo *limbo = &writer->limbo;
    const enum shmc_status status = shmc_limbo_reserve(writer);

    if (status != SHMC_OK || left->first == 0)
        return status;
    limbo->groups[limbo->start + limbo->count++] =
        (struct shmc_limbo_group){.retired = SHMC_KEEP_NO_INHERIT_WAIT ? writer->generation : 0,
                                  .first = left->first,
                                  .last = left->last,
                                  .bytes = left->bytes};
    limbo->bytes += left->bytes;
    limbo->inherited = left->bytes;
    return SHMC_OK;
}

static void group_free(struct shmc_writer *writer, const struct shmc_limbo_group *group)
{
    for (uint32_t granule = group->first; granule != 0;) {
        const shmc_offset block = (shmc_offset)granule << 3;

        granule = (uint32_t)(*shmc_arena_meta(&writer->arena, block) >> 32);
        shmc_arena_free(&writer->arena, block);
    }
}

/* The lowest generation that somebody may still read, pins that count included (L3). */
static uint64_t oldest_needed(struct shmc_writer *writer)
{
    struct shmc_pin_list list = {.count = 0};

    if (writer->seats != NULL)
        shmc_seats_pins(writer->seats, writer->seat_count, writer->super, &list);
    return list.count > 0 ? list.pins[0] : writer->generation;
}

/* How far the floor must rise past the pins, so that limbo falls under half its limit. */
static uint64_t revoked_floor(const struct shmc_writer *writer, uint64_t needed)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    uint64_t bytes = limbo->bytes - limbo->inherited;

    for (size_t i = 0; i < limbo->count; i++) {
        const struct shmc_limbo_group *group = &limbo->groups[limbo->start + i];

        if (group->retired > needed && bytes <= writer->garbage_limit / 2)
            return needed;
        if (group->retired > needed)
            needed = group->retired;
        bytes -= group->bytes - (i == 0 ? limbo->inherited : 0);
    }
    return needed;
}

static void free_up_to(struct shmc_writer *writer, uint64_t needed)
{
    struct shmc_limbo *limbo = &writer->limbo;
    size_t ready = 0;

    while (ready < limbo->count &&
           SHMC_CHECKED(NO_RETIRE_WAIT, limbo->groups[limbo->start + ready].retired <=
                                            needed + !SHMC_KEEP_NO_EXACT_WAIT))
        ready++;
    if (ready == 0)
        return;
    const uint64_t floor = limbo->groups[limbo->start + ready - 1].retired;
    if (floor > shmc_load_racy(&writer->super->floor))
        SHMC_UNLESS(NO_FLOOR_RAISE, shmc_store_racy(&writer->super->floor, floor)); /* P2 */
    shmc_fence_release();
    for (size_t i = 0; i < ready; i++) {
        const struct shmc_limbo_group *group = &limbo->groups[limbo->start + i];
        limbo->bytes -= group->bytes;
        limbo->inherited = 0; /* it was the oldest group */
        group_free(writer, group);
    }
    limbo->start += ready;
    limbo->count -= ready;
    if (limbo->count == 0)
        limbo->start = 0;
}

enum shmc_status shmc_reclaim(struct shmc_writer *writer)
{
    if (writer->limbo.count == 0)
        return SHMC_OK;
    uint64_t needed = oldest_needed(writer);

    if (writer->limbo.bytes - writer->limbo.inherited > writer->garbage_limit) {
        const uint64_t floor = revoked_floor(writer, needed);
        writer->counters.revoked += floor > needed;
        needed = floor;
    }
    free_up_to(writer, needed);
    return SHMC_OK;
}

/* After each commit: in steps of a megabyte or of a millisecond. */
void shmc_reclaim_in_steps(struct shmc_writer *writer, uint64_t now_ns)
{
    if (writer->limbo.count == 0 ||
        (writer->limbo.bytes < STEP_BYTES && now_ns - writer->last_reclaim_ns < STEP_NS))
        return;
    /* With a pin that holds everything back, look again only once there is more. */
    if (writer->limbo.bytes < writer->limbo_held + writer->limbo_held / 8 &&
        now_ns - writer->last_reclaim_ns < STEP_NS)
        return;
    writer->last_reclaim_ns = now_ns;
    (void)shmc_reclaim(writer);
    writer->limbo_held = writer->limbo.bytes;
}

/* For whoever looks at the cache from outside: see shmc_data_info(). */
static void show_stats(const struct shmc_writer *writer)
{
    struct shmc_stats stats;
    uint64_t words[sizeof stats / 8];

    shmc_writer_stats(writer, &stats);
    memcpy(words, &stats, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        shmc_store_racy(&writer->super->stats[i], words[i]);
}

enum shmc_status shmc_tend(struct shmc_writer *writer, uint64_t now_ns)
{
    if (shmc_load_racy(&writer->super->incarnation) != writer->incarnation)
        return SHMC_FENCED;
    shmc_store_racy(&writer->super->heartbeat_ns, now_ns);
    show_stats(writer);
    if (writer->seats != NULL && now_ns - writer->last_reap_ns >= REAP_NS) {
        writer->last_reap_ns = now_ns;
        shmc_seats_reap(writer->seats, writer->seat_count, writer->seats->fd);
    }
    return writer->in_batch ? SHMC_OK : shmc_reclaim(writer);
}

void shmc_limbo_destroy(struct shmc_writer *writer)
{
    struct shmc_limbo *limbo = &writer->limbo;

    if (limbo->groups != NULL)
        shmc_heap_resize(&writer->heap, limbo->groups, limbo->capacity * sizeof(*limbo->groups),
                         0);
    memset(limbo, 0, sizeof(*limbo));
}
