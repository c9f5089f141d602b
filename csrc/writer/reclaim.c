/*
 * reclaim.c - when a retired block may be used again.
 *
 * The generations [birth, retired) lead to a block: birth is the first that may have
 * led to it, and the root of `retired` no longer does. The block is free once no pin that
 * counts lies in between. So a view that is kept for ever holds the blocks that its own generation
 * leads to, and none of those that come and go after it.
 *
 *   retired ──▸ group of its generation ──▸ a pin below `retired`? ──▸ none: doomed ──▸ free
 *                                                ▲     └──▸ held by the youngest of them
 *                                              loose ◂──── when that pin is gone, and others remain
 *
 * A block in limbo is chained through its meta, which keeps its birth. A group is settled once;
 * after that its blocks are held by pins, and become loose when their pin goes: they are settled
 * again. Blocks that no pin can lead to any longer are doomed: they only wait for their turn.
 *
 * Invariants
 *   RECLAIM1  a block leaves limbo only when no pin that counts lies in [birth, retired), and never
 *       before floor >= retired.
 *   RECLAIM2  floor only rises, and never above the published generation.
 *   RECLAIM3  a pin counts (is acknowledged) if it is not below the floor, or is in kept: then
 *       nothing that it may lead to was reused. A lost, wiped or invented pin therefore
 *       can cost memory or a StaleObjectError, never a wrong value. A pin that is below the
 *       floor and not in kept never counts again.
 *   RECLAIM4  every pin that counts and is below the floor is in kept, in one entry for as long as
 *       it is pinned. If there are more than fit, the floor stays at or below the others,
 *       and blocks retired above it wait in their group.
 *   RECLAIM5  blocks are held only by pins below the floor, so kept has an entry for each list.
 *   RECLAIM6  an open pin represents generations that are not named: blocks retired above it
 *       wait, and the kept ones above it stay.
 *   RECLAIM7  One call scans SEATS twice and visits SHMC_LIMBO_STEP blocks, and two for each
 *       block that was retired since the last call: the backlog shrinks, and pins that come and go
 *       affect how long a block waits, never how long a call takes. All else in a call is bounded
 *       by the number of seats, by SHMC_KEPT and by SHMC_LIMBO_GROUPS. Only a call that would fail
 *       for lack of room visits everything, and an explicit request (shmc_reclaim()).
 *   RECLAIM8  A list is joined to another in one step. `upper` of the result is the higher one: no
 *       pin above it leads to any of the blocks (a pin between may hold some longer than it needs
 *       to).
 *   RECLAIM9  Doomed blocks do not count against the limit: no pin is revoked for free memory.
 *   RECLAIM10  A call revokes once, with one cut: below the first generation such that the
 *       remaining garbage is half of the limit. The bytes that each cut frees are known without a
 *       scan of SEATS: those of the lists and groups below it.
 *
 * Ordering
 *   ORDER1  publish ▸ full fence ▸ scan of pins, here and in publish.c; pairs with store
 *       pin ▸ full fence ▸ load latest again, in shmc_pin(). A reader whose pin the
 *       scan misses finds that latest moved, and tries again.
 *   KEPT1  new entries of kept ▸ floor (release); pairs with floor ▸ acquire fence ▸ kept in
 *       shmc_valid(). A reader below a new floor finds its entry, if it has one.
 *   ORDER2  floor, entries taken out of kept ▸ release fence ▸ words of the reused block; pairs
 *       with words ▸ acquire fence ▸ floor, kept in shmc_valid(). A reader that copied a new
 *       word sees that its generation is gone.
 *
 * Pins are revoked by taking them out of kept and raising the floor above them: the oldest first,
 * and only when limbo is over its limit.
 *
 * The floor is raised in steps, not per block: each raise costs every reader a miss.
 */
#include "writer/limbo.h"

#define STEP_BYTES (UINT64_C(1) << 20)
#define STEP_NS UINT64_C(1000000)

/* ---- pins --------------------------------------------------------------------------- */

static bool is_pinned(const struct shmc_pin_list *pins, uint64_t generation)
{
    for (size_t i = 0; i < pins->count; i++) {
        if (pins->pins[i] == generation)
            return true;
    }
    return false;
}

/* The youngest pin below a generation; 0 if none. */
static uint64_t pin_below(const struct shmc_pin_list *pins, uint64_t generation)
{
    uint64_t below = 0;

    for (size_t i = 0; i < pins->count && pins->pins[i] < generation; i++)
        below = pins->pins[i];
    return below;
}

/* The pins that count, and the kept ones that an open pin may represent (RECLAIM6). */
static void look_at_pins(const struct shmc_writer *writer, struct shmc_pin_list *pins)
{
    *pins = (struct shmc_pin_list){.open = UINT64_MAX};
    if (writer->seats == NULL)
        return;
    SHMC_UNLESS(NO_WRITER_FENCE, shmc_fence_full()); /* ORDER1, after all earlier looks */
    shmc_seats_pins(writer->seats, writer->seat_count, writer->super, pins);
    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&writer->super->kept[i]);
        if (kept > pins->open)
            shmc_pin_list_add(pins, kept);
    }
}

/* The last generation whose groups can be settled: RECLAIM4, RECLAIM6. */
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
    shmc_atomic *unused = NULL;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        const uint64_t kept = shmc_load_racy(&super->kept[i]);
        if (kept == pin)
            return; /* RECLAIM4: it stays where it is */
        if (kept == 0 && unused == NULL)
            unused = &super->kept[i];
    }
    assert(unused != NULL); /* RECLAIM4 */
    SHMC_UNLESS(NO_KEEP, shmc_store_racy(unused, pin));
}

/* Raises the floor to `floor` or above, and sets kept to match the pins: ORDER2, KEPT1. */
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
        SHMC_UNLESS(NO_FLOOR_RAISE, shmc_store_release(&super->floor, floor)); /* KEPT1 */
    shmc_fence_release(); /* ORDER2 */
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static struct shmc_limbo_list *held_by(struct shmc_limbo *limbo, uint64_t pin)
{
    struct shmc_limbo_list *unused = NULL;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        if (limbo->held[i].upper == pin)
            return &limbo->held[i];
        if (limbo->held[i].upper == 0)
            unused = &limbo->held[i];
    }
    assert(unused != NULL); /* RECLAIM5 */
    *unused = (struct shmc_limbo_list){.upper = pin};
    return unused;
}

static void spend(struct shmc_writer *writer, uint64_t *budget, uint64_t size)
{
    const uint64_t steps = 1 + size / SHMC_PAGE; /* a large block is freed page by page */

    *budget -= steps < *budget ? steps : *budget;
    writer->limbo.steps += steps;
}

/* Takes the next block of a list whose youngest pin is `pin`, 0: no pin. The pin holds it if it was
 * born by then, else it is free. */
static void settle(struct shmc_writer *writer, struct shmc_limbo_list *list, uint64_t pin,
                   uint64_t *budget)
{
    struct shmc_limbo *limbo = &writer->limbo;
    uint64_t size;
    const shmc_offset block = shmc_limbo_take(writer, list, &size);
    const uint64_t birth = pin != 0 ? shmc_arena_birth(&writer->arena, block) : 0;
    const bool at_birth = birth == pin && SHMC_KEEP_NO_EXACT_BIRTH;
    const bool led_to = birth < pin || at_birth;

    spend(writer, budget, size);
    if (pin != 0 && SHMC_CHECKED(NO_BIRTH_WAIT, led_to)) {
        shmc_limbo_put(writer, held_by(limbo, pin), block, size);
        limbo->held_bytes += size;
    } else {
        limbo->bytes -= size;
        shmc_arena_free(&writer->arena, block);
    }
}

/* Empty groups leave the queue. */
static void group_done(struct shmc_limbo *limbo)
{
    limbo->start++;
    limbo->count--;
    if (limbo->doomed_groups > 0)
        limbo->doomed_groups--;
    if (limbo->count == 0)
        limbo->start = 0;
}

static void free_doomed(struct shmc_writer *writer, uint64_t *budget)
{
    struct shmc_limbo *limbo = &writer->limbo;

    while (limbo->doomed_bytes > 0 && *budget > 0) {
        struct shmc_limbo_list *list =
            limbo->doomed.first != 0 ? &limbo->doomed : &limbo->groups[limbo->start];
        const uint64_t before = list->bytes;
        settle(writer, list, 0, budget);
        limbo->doomed_bytes -= before - list->bytes;
        if (list->first == 0 && list != &limbo->doomed)
            group_done(limbo);
    }
}

/* Groups up to the floor: every pin below it is in kept, and known. */
static void settle_groups(struct shmc_writer *writer, const struct shmc_pin_list *pins,
                          uint64_t *budget)
{
    struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t floor = shmc_load_racy(&writer->super->floor);

    while (limbo->count > 0 && limbo->groups[limbo->start].upper <= floor && *budget > 0) {
        struct shmc_limbo_list *group = &limbo->groups[limbo->start];
        /* the pin at `retired` itself does not lead there */
        const uint64_t retired = group->upper - !SHMC_KEEP_NO_EXACT_WAIT;
        const uint64_t pin = SHMC_KEEP_NO_RETIRE_WAIT ? pin_below(pins, retired) : 0;
        while (group->first != 0 && *budget > 0)
            settle(writer, group, pin, budget);
        if (group->first == 0)
            group_done(limbo);
    }
}

/* Settles blocks whose pin is gone. */
static void settle_list(struct shmc_writer *writer, const struct shmc_pin_list *pins,
                        struct shmc_limbo_list *list, uint64_t *budget)
{
    const uint64_t pin = pin_below(pins, list->upper);

    while (list->first != 0 && *budget > 0)
        settle(writer, list, pin, budget);
    if (list->first == 0)
        *list = (struct shmc_limbo_list){0};
}

/* ---- lists whose pins are gone ------------------------------------------------------------------ */

static void to_doomed(struct shmc_writer *writer, struct shmc_limbo_list *list)
{
    writer->limbo.doomed_bytes += list->bytes;
    shmc_limbo_join(writer, &writer->limbo.doomed, list);
}

/* RECLAIM1: finds the groups below which no pin that counts lies, or can come. */
static void doom_groups(struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    struct shmc_limbo *limbo = &writer->limbo;
    uint64_t below = shmc_load_racy(&writer->super->floor);

    if (pins->count > 0 && pins->pins[0] < below)
        below = pins->pins[0];
    while (limbo->doomed_groups < limbo->count) {
        const struct shmc_limbo_list *group = &limbo->groups[limbo->start + limbo->doomed_groups];
        if (group->upper > below)
            break;
        limbo->doomed_bytes += group->bytes;
        limbo->doomed_groups++;
    }
}

/* The lists of pins that are gone: settled as far as the budget goes, the rest becomes loose. */
static void let_go_held(struct shmc_writer *writer, const struct shmc_pin_list *pins,
                        uint64_t *budget)
{
    struct shmc_limbo *limbo = &writer->limbo;

    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        struct shmc_limbo_list gone = limbo->held[i];
        if (gone.upper == 0 || is_pinned(pins, gone.upper))
            continue;
        limbo->held[i] = (struct shmc_limbo_list){0};
        limbo->held_bytes -= gone.bytes;
        if (pin_below(pins, gone.upper) == 0)
            to_doomed(writer, &gone);
        settle_list(writer, pins, &gone, budget);
        shmc_limbo_join(writer, &limbo->loose, &gone);
    }
}

/* The floor is raised already: releases the blocks that these pins do not need. */
static void let_go(struct shmc_writer *writer, const struct shmc_pin_list *pins, uint64_t *budget)
{
    struct shmc_limbo *limbo = &writer->limbo;

    let_go_held(writer, pins, budget);
    if (pin_below(pins, limbo->loose.upper) == 0)
        to_doomed(writer, &limbo->loose);
    /* their age is unknown: treated as if they had always been there, they wait for all older
    pins */
    if (limbo->inherited.upper <= shmc_load_racy(&writer->super->floor) &&
        pin_below(pins, limbo->inherited.upper) == 0)
        to_doomed(writer, &limbo->inherited);
    doom_groups(writer, pins);
}

/* Raises the floor as high as RECLAIM4 and RECLAIM6 allow, to release as much as possible. */
static void raise_for(struct shmc_writer *writer, const struct shmc_pin_list *pins)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t ceiling = ceiling_of(writer, pins);
    const uint64_t inherited = limbo->inherited.upper;
    size_t low = 0, high = limbo->count;
    uint64_t floor = 0;

    while (low < high) { /* the groups up to the ceiling */
        const size_t middle = (low + high) / 2;
        if (limbo->groups[limbo->start + middle].upper <= ceiling)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        floor = limbo->groups[limbo->start + low - 1].upper;
    if (floor < inherited && pin_below(pins, inherited) == 0)
        floor = inherited;
    floor_raise(writer, pins, floor);
}

/* ---- the last resort --------------------------------------------------------------------------- */

struct part {
    uint64_t cut; /* the lowest cut that frees it */
    uint64_t bytes;
};

static void part_add(struct part *parts, size_t *count, uint64_t cut, uint64_t bytes)
{
    size_t at = *count;

    if (bytes == 0)
        return;
    for (; at > 0 && parts[at - 1].cut > cut; at--)
        parts[at] = parts[at - 1];
    parts[at] = (struct part){cut, bytes};
    ++*count;
}

/* RECLAIM10. The lowest generation such that at least `wanted` bytes are retired up to it, or held
 * by pins below it. */
static uint64_t cut_for(const struct shmc_writer *writer, const struct shmc_pin_list *pins,
                        uint64_t wanted)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    struct part parts[SHMC_KEPT + 2];
    size_t count = 0, next = 0, group = limbo->doomed_groups;
    uint64_t cut = 0, freed = 0;

    for (unsigned i = 0; i < SHMC_KEPT; i++)
        part_add(parts, &count, limbo->held[i].upper + 1, limbo->held[i].bytes);
    part_add(parts, &count, pin_below(pins, limbo->loose.upper) + 1, limbo->loose.bytes);
    part_add(parts, &count, limbo->inherited.upper, shmc_limbo_inherited(writer));
    while (freed < wanted && (next < count || group < limbo->count)) {
        const struct shmc_limbo_list *at = &limbo->groups[limbo->start + group];
        const bool is_part =
            next < count && (group == limbo->count || parts[next].cut <= at->upper);
        cut = is_part ? parts[next].cut : at->upper;
        freed += is_part ? parts[next++].bytes : at->bytes;
        group += !is_part;
    }
    return cut;
}

static bool revoke(struct shmc_writer *writer, struct shmc_pin_list *pins)
{
    const uint64_t wanted = shmc_limbo_garbage(writer) - writer->garbage_limit / 2;
    const uint64_t cut = cut_for(writer, pins, wanted);
    size_t gone = 0;

    while (gone < pins->count && pins->pins[gone] < cut)
        gone++;
    if (gone == 0)
        return false;
    pins->count -= gone;
    memmove(pins->pins, pins->pins + gone, pins->count * sizeof pins->pins[0]);
    writer->counters.revoked += gone;
    floor_raise(writer, pins, cut);
    return true;
}

/* ---- calls -------------------------------------------------------------------------------------- */

/* Gives back the blocks that no pin needs, as far as the budget goes. */
static void give_back(struct shmc_writer *writer, struct shmc_pin_list *pins, uint64_t *budget)
{
    writer->limbo.scans++;
    look_at_pins(writer, pins);
    raise_for(writer, pins);
    let_go(writer, pins, budget);
    free_doomed(writer, budget);
    settle_groups(writer, pins, budget);
    settle_list(writer, pins, &writer->limbo.loose, budget);
}

static void reclaim(struct shmc_writer *writer, uint64_t budget)
{
    struct shmc_pin_list pins;

    if (writer->limbo.bytes == 0)
        return;
    writer->limbo.fresh = 0;
    give_back(writer, &pins, &budget);
    if (shmc_limbo_garbage(writer) > writer->garbage_limit && revoke(writer, &pins))
        give_back(writer, &pins, &budget);
}

enum shmc_status shmc_reclaim(struct shmc_writer *writer)
{
    reclaim(writer, UINT64_MAX);
    return SHMC_OK;
}

/* RECLAIM7. */
static uint64_t budget_of(const struct shmc_limbo *limbo)
{
    return SHMC_KEEP_NO_LIMBO_STEP ? SHMC_LIMBO_STEP + 2 * limbo->fresh : UINT64_MAX;
}

void shmc_reclaim_some(struct shmc_writer *writer)
{
    reclaim(writer, budget_of(&writer->limbo));
}

/* Bytes that the last scan of the pins could not decide about. */
static uint64_t waiting_bytes(const struct shmc_limbo *limbo)
{
    return limbo->bytes - limbo->held_bytes - limbo->inherited.bytes - limbo->loose.bytes -
           limbo->doomed_bytes;
}

/* Whether it is time to scan the pins: in steps of a megabyte or of a millisecond. */
static bool is_due(const struct shmc_writer *writer, uint64_t now_ns)
{
    const struct shmc_limbo *limbo = &writer->limbo;
    const uint64_t waiting = waiting_bytes(limbo);
    const bool late = now_ns - writer->last_reclaim_ns >= STEP_NS;

    if (limbo->loose.first != 0)
        return true;
    if (limbo->count == limbo->doomed_groups || (waiting < STEP_BYTES && !late))
        return false;
    /* with a pin that holds everything back, scan again only once there is more */
    return waiting >= writer->limbo_waited + writer->limbo_waited / 8 || late;
}

void shmc_reclaim_in_steps(struct shmc_writer *writer, uint64_t now_ns)
{
    uint64_t budget = budget_of(&writer->limbo);

    if (!is_due(writer, now_ns)) {
        free_doomed(writer, &budget); /* no pin can lead there */
        return;
    }
    writer->last_reclaim_ns = now_ns;
    shmc_reclaim_some(writer);
    writer->limbo_waited = waiting_bytes(&writer->limbo);
}
