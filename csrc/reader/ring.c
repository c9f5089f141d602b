/*
 * ring.c - the broadcast ring of deltas: one writer, any number of readers.
 *
 * Think of an endless row of deltas. Delta n lives in slot n & mask until delta n +
 * slots overwrites it, whether or not everybody has read it. The root alone defines
 * which deltas exist: [tail, head). No side waits for the other: a reader that fell
 * behind the window finds out, and continues from the root's head with the difference
 * between its own state and that root.
 *
 * Invariants
 *   RING1  slots outside of [tail, head) of the last published root do not exist; the
 *       window holds at most half of the slots and a batch at most the other half,
 *       so that the writer never fills a slot of the published window.
 *   RING2  a slot's stamp is n + 1 while delta n is whole, 0 while it changes.
 *   RING3  a reader under a pinned root may use the content of slot n only if the stamp was
 *       n + 1 before and after the copy; otherwise the writer has lapped it.
 *   RING4  the blocks that a window's slots name are reachable from the root: a
 *       pin of the root keeps them, even after the slot itself was overwritten.
 *
 * Ordering
 *   ORDER3  stamp = 0 ▸ release fence ▸ payload (publish.c); pairs with payload ▸ acquire
 *       fence ▸ stamp, here.
 *   ORDER4  payload ▸ stamp = n + 1 (release, publish.c); pairs with the acquire load of
 *       the stamp, here.
 *
 * Progress: publishing is wait-free and never checks readers; taking is wait-free,
 * it reports and never retries.
 */
#include "core.h"
#include "mutants.h"

static bool slot_copy(const struct shmc_slot *slot, uint64_t number, struct shmc_delta *delta)
{
    if (shmc_load_acquire(&slot->stamp) != number + 1) /* ORDER4 */
        return false;
    const uint64_t what = shmc_load_racy(&slot->what);

    delta->number = number;
    delta->generation = shmc_load_racy(&slot->generation);
    delta->resource = (uint32_t)what;
    delta->kind = (uint8_t)(what >> 32);
    delta->flags = (uint8_t)(what >> 40);
    delta->key = shmc_load_racy(&slot->key);
    delta->version = shmc_load_racy(&slot->version);
    delta->old_value = shmc_load_racy(&slot->old_value);
    delta->new_value = shmc_load_racy(&slot->new_value);
    delta->shard = shmc_load_racy(&slot->shard);
    shmc_fence_acquire(); /* ORDER3 */
    return SHMC_CHECKED(NO_STAMP_CHECK, shmc_load_racy(&slot->stamp) == number + 1);
}

enum shmc_status shmc_ring_take(const struct shmc_reader *reader, const struct shmc_pinned *at,
                                uint64_t cursor, struct shmc_delta *deltas, size_t capacity,
                                size_t *count)
{
    const struct shmc_slot *slots =
        (const struct shmc_slot *)(const void *)(reader->span.base + SHMC_RING_OFFSET);
    const uint64_t mask = at->slots - 1; /* WIDEN1 of widen.c */
    size_t taken = 0;

    if (cursor == at->head)
        return SHMC_EMPTY;
    if (cursor > at->head || cursor < at->tail)
        return SHMC_LAPPED;
    while (taken < capacity && cursor + taken < at->head) {
        if (!slot_copy(&slots[(cursor + taken) & mask], cursor + taken, &deltas[taken]))
            return SHMC_LAPPED;
        taken++;
    }
    *count = taken;
    return SHMC_OK;
}
