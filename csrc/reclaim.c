/*
 * reclaim.c - when a retired block may be used again.
 *
 * A block is led to by the generations [birth, retired): birth is the first that may have
 * led to it, and the root of `retired` does not any more. Nobody needs it if no pin
 * that counts lies in between. So a view that is kept for ever holds what its own generation
 * leads to, and nothing of what comes and goes behind it.
 *
 *   retired ──▸ group of its generation ──▸ who needs it? ──▸ nobody: free
 *                                               ▲    └──▸ held by the youngest pin below `retired`
 *                                               └──────────────────── when that pin is gone
 *
 * A block in limbo is chained through its meta, which keeps its birth. A group is looked at once;
 * after that its blocks are held by pins, and are looked at again when their pin goes.
 *
 * Invariants
 *   L1  a block leaves limbo only when no pin that counts lies in [birth, retired), and never
 *       before floor >= retired.
 *   L2  floor only rises, and never above the published generation.
 *   L3  a pin counts (is acknowledged) if it is not below the floor, or stands in kept: then
 *       nothing that it may lead to was reused. A lost, wiped or invented pin therefore
 *       can cost memory or a StaleObjectError, never a wrong value. Who is below the floor and
 *       not in kept never counts again.
 *   L4  every pin that counts and is below the floor stands in kept, in one place for as long as
 *       it is pinned. Where there are more than fit, the floor stays at or below the others,
 *       and what is retired above it waits in its group.
 *   L5  blocks are held by pins below the floor alone, so kept has a place for each list.
 *   L6  an open pin stands for generations that are not named: what is retired above it waits, and
 *       the kept ones above it stay.
 *
 * Ordering
 *   P1  publish ▸ full fence ▸ scan of pins, here and in publish.c; pairs with store
 *       pin ▸ full fence ▸ look at latest again, in shmc_pin(). A reader whose pin the
 *       scan misses finds that latest moved, and tries again.
 *   K1  new places of kept ▸ floor (release); pairs with floor ▸ acquire fence ▸ kept in
 *       shmc_valid(). Who finds itself below a new floor finds its place, if it has one.
 *   P2  floor, places taken out of kept ▸ release fence ▸ words of the reused block; pairs
 *       with words ▸ acquire fence ▸ floor, kept in shmc_valid(). Whoever copied a new word sees
 *       that its generation is gone.
 *
 * A pin is revoked by taking it out of kept and raising the floor above it: the oldest first, and
 * only while limbo is over its limit.
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

/* Puts a block into a chain. */
static void chain(struct shmc_writer *writer, uint32_t *first, shmc_offset block)
{
    uint64_t *meta = shmc_arena_meta(&writer->arena, block);

    *meta = (uint64_t)*first << 32 | SHMC_META_LIMBO | shmc_meta_birth(*meta);
    *first = shmc_granule(block);
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
    chain(writer, &group->first, block);
    group->bytes += size;
    limbo->bytes += size;
}

enum shmc_status shmc_limbo_inherit(struct shmc_writer *writer, const struct shmc_chain *left)
{
    writer->limbo.inherited = (struct shmc_limbo_group){
        .retired = SHMC_KEEP_NO_INHERIT_WAIT ? writer->generation : 0,
        .first = left->first,
        .bytes = left->bytes};
    writer->limbo.bytes += left->bytes;
    return SHMC_OK;
}

/*
 * What counts against the limit. Of what was inherited, as much as the limit itself does not: most
 * of it was free when the last writer died, and no pin is to go because of that. The rest counts, or
 * a pin that outlives many writers would hold back what each of them left, and fill the arena.
 */
static uint64_t garbage_of(const struct shmc_writer *writer)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t inherited = limbo->inherited.bytes;

    return limbo->bytes -
           (inherited < writer->garbage_limit ? inherited : writer->garbage_limit);
}

/* ---- who needs what --------------------------------------------------------------------------- */

static bool is_pinned(const struct shmc_pin_list *pins, uint64_t generation)
{
    for (size_t i = 0; i < pins->count; i++) {
        if (pins->pins[i] == generation)
            return true;
    }
    return false;
}

/* The youngest pin below a generation; 0: there is none. */
static uint64_t pin_below(const struct shmc_pin_list *pins, uint64_t generation)
{
    uint64_t below = 0;

    for (size_t i = 0; i < pins->count && pins->pins[i] < generation; i++)
        below = pins->pins[i];
    return below;
}

/* The pins that count, and the kept ones that an open pin may stand for (L6). */
static void look_at_pins(const struct shmc_writer *writer, struct shmc_pin_list *pins)
{
    *pins = (struct shmc_pin_list){.open = UINT64_MAX};
    if (writer->seats == NULL)
        return;
    SHMC_UNLESS(NO_WRITER_FENCE, shmc_fence_full()); /* P1, whatever was looked at before */
    shmc_seats_pins(writer->seats, writer->seat_count, writer->super, pins);
    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&writer->super->kept[i]);
        if (kept > pins->open)
            shmc_pin_list_add(pins, kept, pins->oldest_seat);
    }
}

/* Up to where groups can be looked at: L4, L6. */
static uint64_t ceiling_of(const struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    uint64_t ceiling = writer->generation;

    if (pins->open < ceiling)
        ceiling = pins->open;
    if (pins->count > SHMC_KEPT && pins->pins[SHMC_KEPT] < ceiling)
        ceiling = pins->pins[SHMC_KEPT];
    return ceiling;
}

/* ---- the floor, and what is kept below it ------------------------------------------------------ */

static void keep(struct shmc_super *super, uint64_t pin)
{
    shmc_atomic *place = NULL;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&super->kept[i]);
        if (kept == pin)
            return; /* L4: it stays where it is */
        if (kept == 0 && place == NULL)
            place = &super->kept[i];
    }
    assert(place != NULL); /* L4 */
    SHMC_UNLESS(NO_KEEP, shmc_store_racy(place, pin));
}

/* The floor at `floor` or above, and kept as the pins are: P2, K1. */
static void floor_raise(struct shmc_writer *writer, const struct shmc_pin_list *pins,
                        uint64_t floor)
{
    struct shmc_super *super = writer->super;
    const uint64_t before = shmc_load_racy(&super->floor);

    if (floor < before)
        floor = before;
    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&super->kept[i]);
        if (kept != 0 && !is_pinned(pins, kept))
            SHMC_UNLESS(NO_LET_GO, shmc_store_racy(&super->kept[i], 0));
    }
    for (size_t i = 0; i < pins->count && pins->pins[i] < floor; i++)
        keep(super, pins->pins[i]);
    if (floor > before)
        SHMC_UNLESS(NO_FLOOR_RAISE, shmc_store_release(&super->floor, floor)); /* K1 */
    shmc_fence_release(); /* P2 */
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static struct shmc_limbo_held *held_by(struct shmc_limbo *limbo, uint64_t pin)
{
    struct shmc_limbo_held *unused = NULL;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        if (limbo->held[i].pin == pin)
            return &limbo->held[i];
        if (limbo->held[i].pin == 0)
            unused = &limbo->held[i];
    }
    assert(unused != NULL); /* L5 */
    *unused = (struct shmc_limbo_held){.pin = pin};
    return unused;
}

/* Blocks that lead no further up than `pin`: held by it if they were born by then, else free. */
static void settle(struct shmc_writer *writer, uint32_t first, uint64_t pin)
{
    struct shmc_limbo *limbo = &writer->limbo;
    struct shmc_limbo_held *held = pin != 0 ? held_by(limbo, pin) : NULL;

    while (first != 0) {
        const shmc_offset block = (shmc_offset)first << 3;
        const uint64_t size = shmc_arena_block_size(&writer->arena, block);

        first = (uint32_t)(*shmc_arena_meta(&writer->arena, block) >> 32);
        if (held != NULL &&
            SHMC_CHECKED(NO_BIRTH_WAIT, shmc_arena_birth(&writer->arena, block) <=
                                            pin - !SHMC_KEEP_NO_EXACT_BIRTH)) {
            chain(writer, &held->first, block);
            held->bytes += size;
            limbo->held_bytes += size;
        } else {
            limbo->bytes -= size;
            shmc_arena_free(&writer->arena, block);
        }
    }
    if (held != NULL && held->first == 0)
        held->pin = 0;
}

static void settle_held(struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    struct shmc_limbo *limbo = &writer->limbo;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const struct shmc_limbo_held gone = limbo->held[i];

        if (gone.pin == 0 || is_pinned(pins, gone.pin))
            continue;
        limbo->held[i] = (struct shmc_limbo_held){0};
        limbo->held_bytes -= gone.bytes;
        settle(writer, gone.first, pin_below(pins, gone.pin));
    }
}

static void settle_groups(struct shmc_writer *writer, const struct shmc_pin_list *pins,
                          size_t ready)
{
    struct shmc_limbo *limbo = &writer->limbo;

    for (size_t i = 0; i < ready; i++) {
        const struct shmc_limbo_group *group = &limbo->groups[limbo->start + i];
        /* the pin at `retired` itself does not lead there */
        const uint64_t retired = group->retired - !SHMC_KEEP_NO_EXACT_WAIT;
        settle(writer, group->first, SHMC_KEEP_NO_RETIRE_WAIT ? pin_below(pins, retired) : 0);
    }
    limbo->start += ready;
    limbo->count -= ready;
    if (limbo->count == 0)
        limbo->start = 0;
}

/* Nobody knows since when: as if they had always been there, they wait for all older pins. */
static void settle_inherited(struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    const struct shmc_limbo_group inherited = writer->limbo.inherited;

    if (inherited.first == 0 || pin_below(pins, inherited.retired) != 0)
        return;
    writer->limbo.inherited = (struct shmc_limbo_group){0};
    settle(writer, inherited.first, 0);
}

/* Gives back whatever these pins do not need. */
static void give_back(struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t ceiling = ceiling_of(writer, pins);
    uint64_t floor = 0;
    size_t ready = 0;

    for (; ready < limbo->count && limbo->groups[limbo->start + ready].retired <= ceiling; ready++)
        floor = limbo->groups[limbo->start + ready].retired;
    if (floor < limbo->inherited.retired && pin_below(pins, limbo->inherited.retired) == 0)
        floor = limbo->inherited.retired;
    floor_raise(writer, pins, floor);
    settle_inherited(writer, pins);
    settle_held(writer, pins);
    settle_groups(writer, pins, ready);
}

/* The last resort: the oldest pin that holds anything loses it. False: there is none. */
static bool revoke_oldest(struct shmc_writer *writer, struct shmc_pin_list *pins)
{
    if (pins->count == 0 || pins->pins[0] >= writer->generation)
        return false;
    const uint64_t oldest = pins->pins[0];
    memmove(pins->pins, pins->pins + 1, --pins->count * sizeof pins->pins[0]);
    floor_raise(writer, pins, oldest + 1);
    writer->counters.revoked++;
    look_at_pins(writer, pins);
    give_back(writer, pins);
    return true;
}

enum shmc_status shmc_reclaim(struct shmc_writer *writer)
{
    struct shmc_limbo *limbo = &writer->limbo;
    struct shmc_pin_list pins;

    if (limbo->bytes == 0)
        return SHMC_OK;
    look_at_pins(writer, &pins);
    give_back(writer, &pins);
    if (garbage_of(writer) > writer->garbage_limit) {
        while (garbage_of(writer) > writer->garbage_limit / 2 &&
               revoke_oldest(writer, &pins))
            continue;
    }
    return SHMC_OK;
}

/* After each commit: in steps of a megabyte or of a millisecond. */
void shmc_reclaim_in_steps(struct shmc_writer *writer, uint64_t now_ns)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t waiting = limbo->bytes - limbo->held_bytes - limbo->inherited.bytes;

    if (limbo->count == 0 ||
        (waiting < STEP_BYTES && now_ns - writer->last_reclaim_ns < STEP_NS))
        return;
    /* With a pin that holds everything back, look again only once there is more. */
    if (waiting < writer->limbo_waited + writer->limbo_waited / 8 &&
        now_ns - writer->last_reclaim_ns < STEP_NS)
        return;
    writer->last_reclaim_ns = now_ns;
    (void)shmc_reclaim(writer);
    writer->limbo_waited = limbo->bytes - limbo->held_bytes - limbo->inherited.bytes;
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
    if (writer->seats != NULL && writer->seat_count > 0)
        writer->counters.mended +=
            shmc_seats_mend(writer->seats, writer->seat_count, writer->seats_instance);
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
