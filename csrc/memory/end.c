/*
 * end.c - an instance of DATA ends, and its readers are notified.
 *
 * The process that ends an instance marks it: its writer when it closes, or the next writer before
 * it removes the files of a dead one. Readers then look for a successor (they load the
 * word with `latest`, on the same line), and continue with the last state until one appears.
 *
 * Ordering
 *   END1  over = 1 ▸ full fence ▸ ringing all bells: pairs with announcement ▸ full fence ▸ load
 *       of over, in wake.c. Nobody sleeps on.
 */
#include "core.h"

/* A segment of this layout, mapped for writing; its size may be less than the whole. */
static struct shmc_super *ending(const struct shmc_segment *data)
{
    struct shmc_super *super = (struct shmc_super *)(void *)data->base;

    if (!data->writable || data->max_size < sizeof *super ||
        shmc_segment_bytes(data) < sizeof *super || super->magic != SHMC_DATA_MAGIC ||
        super->layout_version != SHMC_LAYOUT_VERSION ||
        super->layout_signature != SHMC_LAYOUT_SIGNATURE)
        return NULL;
    return super;
}

enum shmc_status shmc_data_end(const struct shmc_segment *data)
{
    struct shmc_super *super = ending(data);

    if (super == NULL)
        return SHMC_CORRUPT;
    /* A writer that only slept is fenced off (PUBLISH3): its lock was in another file. */
    shmc_store_racy(&super->incarnation, shmc_load_racy(&super->incarnation) + 1);
    shmc_store_release(&super->over, 1);
    shmc_fence_full(); /* END1 */
    return SHMC_OK;
}

enum shmc_status shmc_seats_end(const struct shmc_segment *seats)
{
    enum shmc_status status = SHMC_CORRUPT;

    if (!seats->writable || shmc_segment_bytes(seats) < seats->max_size)
        return status;
    const enum shmc_status guarded = shmc_guard(seats);
    if (guarded != SHMC_OK)
        return guarded;
    const uint64_t seat_count = shmc_seats_count(seats);
    if (seat_count > 0) {
        shmc_fence_full(); /* END1 */
        shmc_seats_wake_all(seats, seat_count);
        status = SHMC_OK;
    }
    shmc_unguard(seats);
    return status;
}

int shmc_reader_over(const struct shmc_reader *reader)
{
    return shmc_load_acquire(&reader->super->over) != 0;
}
