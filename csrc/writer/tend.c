/*
 * tend.c - work of the writer between batches: its heartbeat, its statistics, the workers' seats.
 */
#include "writer/writer.h"

#define REAP_NS UINT64_C(100000000)
#define REAP_LIMIT_NS UINT64_C(500000) /* of one call (SEAT8) */

/* For observers of the cache: see shmc_data_info(). */
static void show_stats(const struct shmc_writer *writer)
{
    struct shmc_stats stats;
    uint64_t words[sizeof stats / 8];

    shmc_writer_stats(writer, &stats);
    memcpy(words, &stats, sizeof words);
    for (size_t i = 0; i < sizeof words / 8; i++)
        shmc_store_racy(&writer->super->stats[i], words[i]);
}

void shmc_writer_reap(struct shmc_writer *writer)
{
    (void)shmc_seats_reap(writer->seats, writer->seat_count, writer->seats->fd,
                          &writer->next_reaped, shmc_monotonic_ns() + REAP_LIMIT_NS);
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
        shmc_writer_reap(writer);
    }
    if (!writer->in_batch)
        shmc_reclaim_some(writer);
    return SHMC_OK;
}
