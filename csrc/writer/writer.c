/*
 * writer.c - a writer's life: formatting a segment, making and ending a writer, and queries.
 *
 * The writer's work is in batch.c (changes that become visible together, or not at all),
 * resources.c (resources and indices), changes.c and replace.c (changes to objects),
 * indices.c, and publish.c (making changes visible).
 */
#include <stdlib.h>
#include <unistd.h>

#include "writer/writer.h"

/* ---- formatting and lifetime --------------------------------------------------------- */

static uint64_t arena_start(uint64_t ring_slots)
{
    const uint64_t end = SHMC_RING_OFFSET + ring_slots * sizeof(struct shmc_slot);

    return (end + SHMC_PAGE - 1) & ~(uint64_t)(SHMC_PAGE - 1);
}

uint64_t shmc_data_minimum(const struct shmc_writer_settings *settings)
{
    return arena_start(settings->ring_slots) + 8 * SHMC_PAGE;
}

static bool settings_valid(const struct shmc_writer_settings *settings)
{
    const uint64_t slots = settings->ring_slots;

    return slots >= 8 && (slots & (slots - 1)) == 0 && slots <= UINT64_C(1) << 24 &&
           (settings->ring_first & (settings->ring_first - 1)) == 0 &&
           (settings->ring_first == 0 || settings->ring_first >= 8) &&
           settings->max_size <= SHMC_MAX_ARENA &&
           settings->max_size >= shmc_data_minimum(settings) &&
           settings->max_size % SHMC_PAGE == 0 && settings->instance != 0;
}

enum shmc_status shmc_data_format(struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings)
{
    struct shmc_super *super = (struct shmc_super *)(void *)data->base;

    if (!settings_valid(settings) || data->max_size != settings->max_size ||
        data->file_size < shmc_data_minimum(settings))
        return SHMC_INVALID;
    super->layout_version = SHMC_LAYOUT_VERSION;
    super->layout_signature = SHMC_LAYOUT_SIGNATURE;
    super->instance = super->hash_key = settings->instance; /* which is random */
    memcpy(super->boot_id, settings->boot_id, sizeof(super->boot_id));
    super->max_size = settings->max_size;
    super->ring_slots = settings->ring_slots;
    super->arena_offset = arena_start(settings->ring_slots);
    shmc_store_racy(&super->next_id, 1);
    shmc_store_racy(&super->file_size, data->file_size);
    super->magic = SHMC_DATA_MAGIC;
    return SHMC_OK;
}

static void set_limits(struct shmc_writer *writer, const struct shmc_writer_settings *settings)
{
    writer->ring_limit = settings->ring_bytes;
    writer->garbage_limit =
        settings->garbage_bytes != 0 ? settings->garbage_bytes : settings->max_size / 4;
    if (writer->seats != NULL) {
        writer->seat_count = (writer->seats->max_size - SHMC_SEATS_OFFSET) / sizeof(struct shmc_seat);
        writer->seats_instance = settings->seats_instance; /* SEAT3 of seats.c */
    }
    writer->next_id = writer->reserved_id = shmc_load_racy(&writer->super->next_id);
}

enum shmc_status shmc_publish_forced(struct shmc_writer *writer)
{
    enum shmc_status status = shmc_begin(writer);

    if (status == SHMC_OK) {
        writer->forced = true;
        status = shmc_commit(writer, 0);
        writer->forced = false;
    }
    return status;
}

enum shmc_status shmc_writer_make(struct shmc_segment *data, struct shmc_segment *seats,
                                  const struct shmc_writer_settings *settings,
                                  struct shmc_writer **made)
{
    struct shmc_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL)
        return SHMC_NO_MEMORY;
    writer->data = data;
    writer->seats = seats;
    writer->super = (struct shmc_super *)(void *)data->base;
    writer->span = (struct shmc_span){data->base, data->file_size,
                                      writer->super->arena_offset};
    enum shmc_status status = seats != NULL ? shmc_guard(seats) : SHMC_OK;
    set_limits(writer, settings);
    if (status == SHMC_OK)
        status = shmc_arena_create(&writer->arena, data, &writer->heap);
    if (status == SHMC_OK)
        status = shmc_intern_create(&writer->intern, &writer->heap, settings->seed);
    if (status == SHMC_OK)
        status = shmc_ring_create(writer, settings);
    if (status == SHMC_OK)
        *made = writer;
    else
        shmc_writer_destroy(writer);
    return status;
}

void shmc_writer_begin(struct shmc_writer *writer, const struct shmc_writer_settings *settings)
{
    struct shmc_super *super = writer->super;

    writer->incarnation = shmc_load_racy(&super->incarnation) + 1;
    shmc_store_racy(&super->incarnation, writer->incarnation);
    shmc_writer_guard(super, settings->guard);
    shmc_store_racy(&super->phase, SHMC_PHASE_IDLE);
    shmc_store_racy(&super->closed, 0);
    shmc_store_racy(&super->writer_pid, (uint64_t)getpid());
    shmc_store_racy(&super->heartbeat_ns, shmc_monotonic_ns());
}

enum shmc_status shmc_writer_create(struct shmc_segment *data, struct shmc_segment *seats,
                                    const struct shmc_writer_settings *settings,
                                    struct shmc_writer **created)
{
    const struct shmc_super *super = (const struct shmc_super *)(const void *)data->base;
    struct shmc_writer *writer;

    if (shmc_load_racy(&super->latest) != 0)
        return SHMC_INVALID; /* a segment that was used before: see takeover.c */
    enum shmc_status status = shmc_writer_make(data, seats, settings, &writer);
    if (status != SHMC_OK)
        return status;
    shmc_writer_begin(writer, settings);
    status = shmc_publish_forced(writer);
    if (status == SHMC_OK)
        *created = writer;
    else
        shmc_writer_destroy(writer);
    return status;
}

void shmc_writer_leave(struct shmc_writer *writer)
{
    if (shmc_load_racy(&writer->super->incarnation) == writer->incarnation)
        shmc_store_racy(&writer->super->closed, 1);
}

enum shmc_status shmc_drop_window(struct shmc_writer *writer)
{
    writer->drop_window = true;
    writer->arena.may_use_reserve = true; /* ARENA5 */
    const enum shmc_status status = shmc_publish_forced(writer);
    writer->drop_window = false;
    return status;
}

void shmc_writer_destroy(struct shmc_writer *writer)
{
    struct shmc_heap *heap = &writer->heap;

    if (writer->seats != NULL)
        shmc_unguard(writer->seats);
    for (uint32_t i = 0; i < writer->resource_count; i++)
        shmc_resource_free(writer, &writer->resources[i]);
    if (writer->resources != NULL)
        shmc_heap_resize(heap, writer->resources,
                         writer->resource_capacity * sizeof(*writer->resources), 0);
    if (writer->charges != NULL)
        shmc_heap_resize(heap, writer->charges, writer->charge_slots * sizeof(uint32_t), 0);
    if (writer->pending != NULL)
        shmc_heap_resize(heap, writer->pending,
                         writer->pending_capacity * sizeof(*writer->pending), 0);
    if (writer->scratch != NULL)
        shmc_heap_resize(heap, writer->scratch, writer->scratch_size, 0);
    shmc_list_free(heap, &writer->words);
    shmc_list_free(heap, &writer->undo.fresh);
    shmc_list_free(heap, &writer->undo.takes);
    shmc_list_free(heap, &writer->undo.drops);
    shmc_list_free(heap, &writer->undo.retired);
    shmc_limbo_destroy(writer);
    shmc_intern_destroy(&writer->intern, heap);
    shmc_seen_destroy(writer);
    shmc_arena_destroy(&writer->arena);
    assert(heap->bytes == 0);
    free(writer);
}

/* ---- queries ----------------------------------------------------------------------------------- */

const struct shmc_span *shmc_writer_span(const struct shmc_writer *writer)
{
    return &writer->span;
}

int shmc_in_batch(const struct shmc_writer *writer)
{
    return writer->in_batch;
}

uint64_t shmc_writer_instance(const struct shmc_writer *writer)
{
    return writer->super->instance;
}

bool shmc_batch_alive(const struct shmc_writer *writer)
{
    return writer->in_batch && !writer->poisoned;
}

uint64_t shmc_batch_number(const struct shmc_writer *writer)
{
    return writer->batch_number;
}

uint64_t shmc_batch_changes(const struct shmc_writer *writer)
{
    return writer->batch_changes;
}

uint64_t shmc_shape_deaths(const struct shmc_writer *writer)
{
    return writer->shape_deaths;
}

void shmc_writer_stats(const struct shmc_writer *writer, struct shmc_stats *stats)
{
    *stats = writer->counters;
    stats->generation = writer->generation;
    stats->head = writer->head;
    stats->tail = writer->tail;
    stats->limbo_bytes = writer->limbo.bytes;
    stats->reachable_bytes = writer->arena.used_bytes - writer->limbo.bytes;
    stats->tree_bytes = writer->node_bytes;
    stats->value_bytes = stats->reachable_bytes - writer->node_bytes;
    stats->high_water_bytes =
        shmc_arena_high_water(&writer->arena) - writer->super->arena_offset;
    stats->free_bytes = stats->high_water_bytes - writer->arena.used_bytes;
    stats->file_bytes = writer->data->file_size;
    stats->private_bytes = writer->heap.bytes + sizeof(*writer);
    stats->ring_bytes = writer->charged;
    stats->floor = shmc_load_racy(&writer->super->floor);
    stats->reused_bytes = writer->arena.reused_bytes;
    stats->blocks = writer->value_blocks;
}
