/*
 * batch.c - changes that become visible together, or leave no trace.
 *
 * A batch collects changes to the private state (new trees share nodes with the published
 * ones, counts rise, releases are listed) and becomes visible by shmc_publish(), or is
 * undone: then trees, counts, the table of equals and the arena are as before.
 *
 * Invariants
 *   UNDO1  a resource is saved before a batch touches it; undoing restores exactly the saved
 *       state, and shmc_undo_counts() returns everything that the batch took.
 *   UNDO2  after an error in the middle of a change the batch is poisoned: it can only
 *       be aborted.
 */
#include "writer/writer.h"

/* UNDO1 */
enum shmc_status shmc_touch(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    if (resource->saved == NULL) {
        struct shmc_saved *saved = shmc_heap_resize(&writer->heap, NULL, 0, sizeof(*saved));

        if (saved == NULL)
            return SHMC_NO_MEMORY;
        saved->content = resource->now;
        saved->indices = NULL;
        saved->indices_count = 0;
        for (uint32_t i = 0; i < resource->now.index_count; i++) {
            saved->trees[i] = resource->indices[i].tree;
            saved->counts[i] = resource->indices[i].count;
        }
        resource->saved = saved;
    }
    resource->dirty = true;
    return SHMC_OK;
}

static void restore(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    struct shmc_saved *saved = resource->saved;

    if (saved->indices != NULL) { /* some were dropped */
        shmc_indices_free(writer, resource->indices, resource->now.index_count);
        resource->indices = saved->indices;
        resource->now.index_count = saved->indices_count;
        saved->indices = NULL;
        saved->indices_count = 0;
    }
    while (resource->now.index_count > saved->content.index_count) {
        struct shmc_windex *index = &resource->indices[--resource->now.index_count];
        if (index->path != NULL)
            shmc_heap_resize(&writer->heap, index->path, index->path_length + 1, 0);
        memset(index, 0, sizeof(*index));
    }
    resource->now = saved->content;
    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        resource->indices[i].tree = saved->trees[i];
        resource->indices[i].count = saved->counts[i];
    }
}

enum shmc_status shmc_begin(struct shmc_writer *writer)
{
    if (writer->in_batch)
        return SHMC_BUSY;
    if (shmc_arena_short(&writer->arena)) /* while pages may still change their class */
        shmc_reclaim_some(writer);
    shmc_arena_births(&writer->arena, writer->generation);
    shmc_seen_births(writer);
    shmc_intern_forget(&writer->intern, &writer->heap, &writer->arena);
    writer->in_batch = true;
    writer->poisoned = writer->pending_overflow = false;
    writer->pending_count = 0;
    writer->batch_changes = 0;
    writer->batch_number++;
    writer->fresh_bytes = 0;
    writer->batch_resource_count = writer->resource_count;
    writer->catalogue_before = writer->catalogue;
    for (uint32_t i = 0; i < writer->resource_count; i++)
        writer->resources[i].staged_before = writer->resources[i].staged.count;
    shmc_arena_hold(&writer->arena, true);
    return SHMC_OK;
}

static void batch_end(struct shmc_writer *writer)
{
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        struct shmc_wresource *resource = &writer->resources[i];

        shmc_saved_free(writer, resource);
        resource->dirty = false;
        resource->delta_count = 0;
    }
    writer->in_batch = false;
    writer->arena.may_use_reserve = false;
    shmc_arena_hold(&writer->arena, false);
}

enum shmc_status shmc_abort(struct shmc_writer *writer)
{
    if (!writer->in_batch)
        return SHMC_INVALID;
    SHMC_UNLESS(NO_UNDO, shmc_undo_counts(writer)); /* COUNT4 */
    writer->catalogue = writer->catalogue_before;
    while (writer->resource_count > writer->batch_resource_count)
        shmc_resource_free(writer, &writer->resources[--writer->resource_count]);
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        struct shmc_wresource *resource = &writer->resources[i];

        if (resource->saved != NULL)
            restore(writer, resource);
        shmc_stage_undo(resource);
    }
    batch_end(writer);
    return SHMC_OK;
}

enum shmc_status shmc_commit(struct shmc_writer *writer, uint64_t now_ns)
{
    enum shmc_status status = SHMC_INVALID;

    if (!writer->in_batch)
        return status;
    if (!writer->poisoned) {
        shmc_store_racy(&writer->super->phase, SHMC_PHASE_PUBLISH);
        status = shmc_publish(writer, now_ns);
        shmc_store_racy(&writer->super->phase, SHMC_PHASE_IDLE);
    }
    if (status != SHMC_OK) {
        shmc_abort(writer);
        return status;
    }
    for (uint32_t i = 0; i < writer->resource_count; i++)
        shmc_stage_done(writer, &writer->resources[i]);
    batch_end(writer);
    return SHMC_OK;
}

enum shmc_status shmc_usable(const struct shmc_writer *writer, uint32_t resource)
{
    if (!writer->in_batch || writer->poisoned || resource >= writer->resource_count)
        return SHMC_INVALID;
    return SHMC_OK;
}

enum shmc_status shmc_poison(struct shmc_writer *writer, enum shmc_status status)
{
    if (status != SHMC_OK)
        writer->poisoned = true; /* UNDO2 */
    return status;
}
