/*
 * move.c - a writer continues in other files, because the names of its own are gone.
 *
 * Somebody removed files under a running writer. Attached readers continue, but new ones cannot
 * find the cache, and a file without a name cannot get one again. So the writer makes new files,
 * copies DATA as it is, and continues there: its maps show the new files at the same addresses as
 * before, so that all its private tables stay true.
 *
 *      copy ▸ (the new instance is named) ▸ switch ▸ the old one is marked as over (end.c)
 *
 * Invariants
 *   MOVE1  between copy and switch nothing is written, no batch is open: both files hold one state.
 *   MOVE2  the copy is an instance of its own, without any pin, cursor or reader. It keeps the
 *       hash keys.
 *   MOVE3  the old file is never written again except to mark it as over: views of it stay true
 *       until the last one is gone, whatever is published in the new one.
 *   MOVE4  a writer that dies in between leaves the old instance, the new one, or both whole,
 *       each with its last generation.
 *
 * Ordering: none of its own. Readers find the new instance by its name; the old one's bells ring
 * after its last word (END1 of end.c).
 */
#include "writer/writer.h"

enum shmc_status shmc_writer_copy(const struct shmc_writer *writer, struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings)
{
    struct shmc_super *super = (struct shmc_super *)(void *)data->base;
    const uint64_t size = writer->data->file_size;

    if (writer->in_batch || !data->writable || data->max_size != writer->data->max_size)
        return SHMC_INVALID;
    if (shmc_load_racy(&writer->super->incarnation) != writer->incarnation)
        return SHMC_FENCED;
    enum shmc_status status = shmc_segment_extend(data, size);
    if (status == SHMC_OK)
        status = shmc_ring_copy(writer, data);
    if (status != SHMC_OK)
        return status;
    super->instance = settings->instance; /* MOVE2 */
    shmc_writer_guard((struct shmc_super *)(void *)data->base, settings->guard);
    return SHMC_OK;
}

enum shmc_status shmc_writer_switch(struct shmc_writer *writer, struct shmc_segment *data,
                                    struct shmc_segment *seats,
                                    const struct shmc_writer_settings *settings)
{
    if (writer->in_batch || writer->seats == NULL ||
        data->file_size != writer->data->file_size ||
        seats->max_size != writer->seats->max_size)
        return SHMC_INVALID;
    enum shmc_status status = shmc_segment_swap(writer->data, data);
    if (status != SHMC_OK)
        return status;
    shmc_unguard(writer->seats);
    status = shmc_segment_swap(writer->seats, seats);
    const enum shmc_status guarded = shmc_guard(writer->seats);
    writer->seats_instance = settings->seats_instance;
    writer->counters.renamed++;
    return status != SHMC_OK ? status : guarded;
}

/* ---- in place ------------------------------------------------------------------------------------ */

void shmc_writer_guard(struct shmc_super *super, const uint64_t guard[2])
{
    shmc_store_racy(&super->guard[0], guard[0]);
    shmc_store_racy(&super->guard[1], guard[1]);
}

void shmc_writer_relocked(struct shmc_writer *writer, const struct shmc_writer_settings *settings)
{
    shmc_writer_guard(writer->super, settings->guard);
}

void shmc_writer_renamed(struct shmc_writer *writer)
{
    writer->counters.renamed++;
}
