/*
 * writer.c - the one who writes: resources, batches, and what a batch may do.
 *
 * A batch collects changes to the private state (trees are built beside the published
 * ones, counts rise, releases are listed) and becomes visible by shmc_publish(), or is
 * undone: then trees, counts, the table of equals and the arena are as before.
 *
 * Invariants
 *   U1  a resource that a batch touches was saved first; undoing restores exactly
 *       what was saved, and shmc_undo_counts() gives back what the batch took.
 *   U2  after an error in the middle of a change the batch is poisoned: it can only
 *       be aborted.
 *   U3  the key, value and extra of an entry are counted once each by that entry.
 *   U4  a change that changes nothing leaves nothing: no delta, no new block.
 */
#include <stdlib.h>

#include "writer.h"

#define KEY_MAX 65536u

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
    super->instance = settings->instance;
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
    writer->ring_mask = writer->super->ring_slots - 1;
    writer->ring_limit = settings->ring_bytes;
    writer->garbage_limit =
        settings->garbage_bytes != 0 ? settings->garbage_bytes : settings->max_size / 4;
    writer->seat_count = writer->seats != NULL ? shmc_seats_count(writer->seats) : 0;
    writer->next_id = writer->reserved_id = shmc_load_racy(&writer->super->next_id);
}

/* A generation in which nothing changed: the first, or one with another window. */
static enum shmc_status publish_forced(struct shmc_writer *writer)
{
    enum shmc_status status = shmc_begin(writer);

    if (status == SHMC_OK) {
        writer->forced = true;
        status = shmc_commit(writer, 0);
        writer->forced = false;
    }
    return status;
}

enum shmc_status shmc_writer_create(struct shmc_segment *data, struct shmc_segment *seats,
                                    const struct shmc_writer_settings *settings,
                                    struct shmc_writer **created)
{
    struct shmc_super *super = (struct shmc_super *)(void *)data->base;
    struct shmc_writer *writer = calloc(1, sizeof(*writer));
    enum shmc_status status = SHMC_OK;

    if (writer == NULL)
        return SHMC_NO_MEMORY;
    writer->data = data;
    writer->seats = seats;
    writer->super = super;
    writer->span = (struct shmc_span){data->base, data->file_size};
    set_limits(writer, settings);
    if (shmc_load_racy(&super->latest) != 0)
        status = SHMC_INVALID; /* a segment with a past */
    if (status == SHMC_OK)
        status = shmc_arena_create(&writer->arena, data, &writer->heap);
    if (status == SHMC_OK)
        status = shmc_intern_create(&writer->intern, &writer->heap, settings->seed);
    if (status == SHMC_OK) {
        const size_t size = (writer->ring_mask + 1) * sizeof(uint32_t);
        writer->charges = shmc_heap_resize(&writer->heap, NULL, 0, size);
        status = writer->charges != NULL ? SHMC_OK : SHMC_NO_MEMORY;
    }
    if (status == SHMC_OK) {
        writer->incarnation = shmc_load_racy(&super->incarnation) + 1;
        shmc_store_racy(&super->incarnation, writer->incarnation);
        status = publish_forced(writer);
    }
    if (status != SHMC_OK) {
        shmc_writer_destroy(writer);
        return status;
    }
    *created = writer;
    return SHMC_OK;
}

enum shmc_status shmc_drop_window(struct shmc_writer *writer)
{
    writer->drop_window = true;
    writer->arena.may_use_reserve = true; /* A5 */
    const enum shmc_status status = publish_forced(writer);
    writer->drop_window = false;
    return status;
}

static void resource_free(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    for (uint32_t i = 0; i < resource->index_count; i++) {
        struct shmc_windex *index = &resource->indices[i];
        if (index->path != NULL)
            shmc_heap_resize(&writer->heap, index->path, index->path_length + 1, 0);
    }
    if (resource->indices != NULL)
        shmc_heap_resize(&writer->heap, resource->indices,
                         SHMC_MAX_INDICES * sizeof(struct shmc_windex), 0);
    if (resource->saved != NULL)
        shmc_heap_resize(&writer->heap, resource->saved, sizeof(*resource->saved), 0);
    shmc_list_free(&writer->heap, &resource->staged);
    memset(resource, 0, sizeof(*resource));
}

void shmc_writer_destroy(struct shmc_writer *writer)
{
    struct shmc_heap *heap = &writer->heap;

    for (uint32_t i = 0; i < writer->resource_count; i++)
        resource_free(writer, &writer->resources[i]);
    if (writer->resources != NULL)
        shmc_heap_resize(heap, writer->resources,
                         writer->resource_capacity * sizeof(*writer->resources), 0);
    if (writer->charges != NULL)
        shmc_heap_resize(heap, writer->charges, (writer->ring_mask + 1) * sizeof(uint32_t), 0);
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
    shmc_arena_destroy(&writer->arena);
    assert(heap->bytes == 0);
    free(writer);
}

/* ---- batches --------------------------------------------------------------------------- */

/* U1 */
static enum shmc_status touch(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    if (resource->saved == NULL) {
        struct shmc_saved *saved = shmc_heap_resize(&writer->heap, NULL, 0, sizeof(*saved));

        if (saved == NULL)
            return SHMC_NO_MEMORY;
        saved->version = resource->version;
        saved->state = resource->state;
        saved->generation = resource->generation;
        saved->count = resource->count;
        saved->primary = resource->primary;
        saved->directory = resource->directory;
        saved->record = resource->record;
        saved->index_count = resource->index_count;
        for (uint32_t i = 0; i < resource->index_count; i++) {
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
    const struct shmc_saved *saved = resource->saved;

    while (resource->index_count > saved->index_count) {
        struct shmc_windex *index = &resource->indices[--resource->index_count];
        if (index->path != NULL)
            shmc_heap_resize(&writer->heap, index->path, index->path_length + 1, 0);
        memset(index, 0, sizeof(*index));
    }
    resource->version = saved->version;
    resource->state = saved->state;
    resource->generation = saved->generation;
    resource->count = saved->count;
    resource->primary = saved->primary;
    resource->directory = saved->directory;
    resource->record = saved->record;
    for (uint32_t i = 0; i < resource->index_count; i++) {
        resource->indices[i].tree = saved->trees[i];
        resource->indices[i].count = saved->counts[i];
    }
}

enum shmc_status shmc_begin(struct shmc_writer *writer)
{
    if (writer->in_batch)
        return SHMC_BUSY;
    if (shmc_arena_short(&writer->arena)) /* while pages may still change their class */
        shmc_reclaim(writer);
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

        if (resource->saved != NULL)
            shmc_heap_resize(&writer->heap, resource->saved, sizeof(*resource->saved), 0);
        resource->saved = NULL;
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
    SHMC_UNLESS(NO_UNDO, shmc_undo_counts(writer)); /* C4 */
    writer->catalogue = writer->catalogue_before;
    while (writer->resource_count > writer->batch_resource_count)
        resource_free(writer, &writer->resources[--writer->resource_count]);
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
        shmc_store_racy(&writer->super->phase, 1);
        status = shmc_publish(writer, now_ns);
        shmc_store_racy(&writer->super->phase, 0);
    }
    if (status != SHMC_OK) {
        shmc_abort(writer);
        return status;
    }
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        struct shmc_wresource *resource = &writer->resources[i];

        if (resource->finishing) {
            shmc_list_free(&writer->heap, &resource->staged);
            resource->finishing = resource->replacing = false;
        }
    }
    batch_end(writer);
    return SHMC_OK;
}

static enum shmc_status usable(const struct shmc_writer *writer, uint32_t resource)
{
    if (!writer->in_batch || writer->poisoned || resource >= writer->resource_count)
        return SHMC_INVALID;
    return SHMC_OK;
}

static enum shmc_status poison(struct shmc_writer *writer, enum shmc_status status)
{
    if (status != SHMC_OK)
        writer->poisoned = true; /* U2 */
    return status;
}

/* ---- resources ----------------------------------------------------------------------------- */

static enum shmc_status make_text(struct shmc_writer *writer, const char *text, size_t length,
                                  shmc_word *word)
{
    uint32_t flags;

    if (!shmc_string_flags((const uint8_t *)text, length, &flags))
        return SHMC_INVALID;
    return shmc_make_string(writer, (const uint8_t *)text, length, flags, word);
}

static bool word_is(const struct shmc_writer *writer, shmc_word word, const char *text,
                    size_t length)
{
    uint8_t buffer[8];
    size_t found;
    const uint8_t *bytes = shmc_word_bytes(writer, word, buffer, &found);

    return found == length && memcmp(bytes, text, length) == 0;
}

enum shmc_status shmc_find_resource(struct shmc_writer *writer, const char *name, size_t length,
                                    uint32_t *id)
{
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        if (word_is(writer, writer->resources[i].name, name, length)) {
            *id = i;
            return SHMC_OK;
        }
    }
    return SHMC_NOT_FOUND;
}

static enum shmc_status resources_reserve(struct shmc_writer *writer)
{
    const uint32_t capacity = writer->resource_capacity * 2 + 8;

    if (writer->resource_count < writer->resource_capacity)
        return SHMC_OK;
    void *resources = shmc_heap_resize(&writer->heap, writer->resources,
                                       writer->resource_capacity * sizeof(*writer->resources),
                                       capacity * sizeof(*writer->resources));
    if (resources == NULL)
        return SHMC_NO_MEMORY;
    writer->resources = resources;
    writer->resource_capacity = capacity;
    return SHMC_OK;
}

enum shmc_status shmc_declare_resource(struct shmc_writer *writer, const char *name, size_t length,
                                       uint32_t *id)
{
    enum shmc_status status = SHMC_INVALID;
    shmc_word word;

    if (!writer->in_batch || writer->poisoned || length == 0 ||
        shmc_find_resource(writer, name, length, id) == SHMC_OK)
        return status;
    /* one RELIST mark for each resource must fit into a batch (R1) */
    if (writer->resource_count >= SHMC_MAX_RESOURCES ||
        writer->resource_count >= (writer->ring_mask + 1) / 2)
        return SHMC_LIMIT;
    status = make_text(writer, name, length, &word);
    if (status == SHMC_OK)
        status = resources_reserve(writer);
    if (status == SHMC_OK)
        status = shmc_take(writer, word);
    if (status != SHMC_OK)
        return poison(writer, status);
    struct shmc_wresource *resource = &writer->resources[writer->resource_count];
    memset(resource, 0, sizeof(*resource));
    resource->name = word;
    resource->settings = SHMC_NULL;
    resource->version = SHMC_EMPTY_STRING;
    resource->dirty = true;
    *id = writer->resource_count++;
    return SHMC_OK;
}

static enum shmc_status index_room(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    const size_t size = SHMC_MAX_INDICES * sizeof(struct shmc_windex);

    if (resource->index_count >= SHMC_MAX_INDICES)
        return SHMC_LIMIT;
    if (resource->indices != NULL)
        return SHMC_OK;
    resource->indices = shmc_heap_resize(&writer->heap, NULL, 0, size);
    if (resource->indices == NULL)
        return SHMC_NO_MEMORY;
    memset(resource->indices, 0, size);
    return SHMC_OK;
}

static enum shmc_status index_words(struct shmc_writer *writer, struct shmc_windex *index,
                                    const char *name, size_t name_length, const char *path,
                                    size_t path_length)
{
    enum shmc_status status = make_text(writer, name, name_length, &index->name);

    index->settings = SHMC_NULL;
    if (status == SHMC_OK && path != NULL)
        status = make_text(writer, path, path_length, &index->settings);
    if (status == SHMC_OK)
        status = shmc_take(writer, index->name);
    if (status == SHMC_OK)
        status = shmc_take(writer, index->settings);
    if (status == SHMC_OK && path != NULL) {
        index->path = shmc_heap_resize(&writer->heap, NULL, 0, path_length + 1);
        if (index->path == NULL)
            return SHMC_NO_MEMORY;
        memcpy(index->path, path, path_length);
        index->path[path_length] = 0;
        index->path_length = path_length;
    }
    return status;
}

enum shmc_status shmc_declare_index(struct shmc_writer *writer, uint32_t id, const char *name,
                                    size_t name_length, const char *path, size_t path_length,
                                    uint32_t *number)
{
    enum shmc_status status = usable(writer, id);

    if (status != SHMC_OK || name_length == 0 ||
        (path != NULL && !shmc_path_valid(path, path_length)))
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    for (uint32_t i = 0; i < resource->index_count; i++) {
        if (word_is(writer, resource->indices[i].name, name, name_length))
            return SHMC_INVALID;
    }
    status = touch(writer, resource);
    if (status == SHMC_OK)
        status = index_room(writer, resource);
    if (status != SHMC_OK)
        return status;
    struct shmc_windex *index = &resource->indices[resource->index_count];
    *number = resource->index_count++;
    status = index_words(writer, index, name, name_length, path, path_length);
    if (status == SHMC_OK)
        status = shmc_index_fill(writer, resource, *number);
    return poison(writer, status);
}

size_t shmc_external_indices(const struct shmc_writer *writer, uint32_t resource,
                             uint32_t indices[SHMC_MAX_INDICES])
{
    const struct shmc_wresource *declared = &writer->resources[resource];
    size_t count = 0;

    for (uint32_t i = 0; i < declared->index_count; i++) {
        if (declared->indices[i].path == NULL)
            indices[count++] = i;
    }
    return count;
}

enum shmc_status shmc_set_state(struct shmc_writer *writer, uint32_t id, uint64_t state)
{
    const enum shmc_status status = usable(writer, id);

    if (status != SHMC_OK || writer->resources[id].state == state)
        return status;
    const enum shmc_status touched = touch(writer, &writer->resources[id]);
    if (touched == SHMC_OK)
        writer->resources[id].state = state;
    return touched;
}

enum shmc_status shmc_set_version(struct shmc_writer *writer, uint32_t id, const char *version,
                                  size_t length)
{
    enum shmc_status status = usable(writer, id);
    shmc_word word;

    if (status != SHMC_OK)
        return status;
    struct shmc_wresource *resource = &writer->resources[id];
    status = make_text(writer, version, length, &word);
    if (status != SHMC_OK || word == resource->version)
        return status;
    status = touch(writer, resource);
    if (status == SHMC_OK)
        status = shmc_take(writer, word);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, resource->version);
    if (status == SHMC_OK)
        resource->version = word;
    return poison(writer, status);
}

/* ---- changes -------------------------------------------------------------------------------- */

static enum shmc_status pending_add(struct shmc_writer *writer,
                                    const struct shmc_pending *change)
{
    const size_t limit = (writer->ring_mask + 1) / 2;

    writer->resources[change->resource].delta_count++;
    writer->batch_changes++;
    if (writer->pending_count == limit)
        writer->pending_overflow = true;
    if (writer->pending_overflow)
        return SHMC_OK;
    if (writer->pending_count == writer->pending_capacity) {
        size_t capacity = writer->pending_capacity * 2 + 16;
        capacity = capacity > limit ? limit : capacity;
        void *pending = shmc_heap_resize(&writer->heap, writer->pending,
                                         writer->pending_capacity * sizeof(*writer->pending),
                                         capacity * sizeof(*writer->pending));
        if (pending == NULL)
            return SHMC_NO_MEMORY;
        writer->pending = pending;
        writer->pending_capacity = capacity;
    }
    writer->pending[writer->pending_count++] = *change;
    return SHMC_OK;
}

/* FNV-1a of metadata.uid: the shard key of Kubernetes' sharded watches. 0 without a uid. */
static uint64_t shard_of(const struct shmc_writer *writer, shmc_word value)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    uint8_t buffer[8];
    size_t length;
    const shmc_word metadata =
        shmc_object_find(&writer->span, value, (const uint8_t *)"metadata", 8);
    const shmc_word uid = shmc_object_find(&writer->span, metadata, (const uint8_t *)"uid", 3);

    if (shmc_tag(uid) != SHMC_TAG_SHORT && shmc_tag(uid) != SHMC_TAG_STRING)
        return 0;
    const uint8_t *bytes = shmc_word_bytes(writer, uid, buffer, &length);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static bool key_valid(const uint8_t *key, size_t length, uint32_t *flags)
{
    return length > 0 && memchr(key, 0, length) == NULL && shmc_string_flags(key, length, flags);
}

enum shmc_status shmc_current(struct shmc_writer *writer, uint32_t id, const uint8_t *key,
                              size_t length, shmc_word *value)
{
    if (id >= writer->resource_count)
        return SHMC_INVALID;
    writer->looked_up = id;
    const enum shmc_status status = shmc_path_find(
        writer, &shmc_primary, writer->resources[id].primary, key, length, &writer->path);
    if (status == SHMC_OK)
        *value = writer->path.entry.words[1];
    return status;
}

/* The words of an entry that is new to the tree are counted by it (U3). */
static enum shmc_status count_entry(struct shmc_writer *writer, const struct shmc_entry *entry,
                                    const struct shmc_entry *old, bool existed)
{
    enum shmc_status status = SHMC_OK;

    for (unsigned i = existed ? 1 : 0; status == SHMC_OK && i < 3; i++) {
        status = shmc_take(writer, entry->words[i]);
        if (status == SHMC_OK && existed)
            status = shmc_drop_later(writer, old->words[i]);
    }
    return status;
}

/* An entry's version: extra itself, or its first element. */
static shmc_word version_of(const struct shmc_writer *writer, shmc_word extra)
{
    if (shmc_tag(extra) != SHMC_TAG_ARRAY)
        return extra;
    return shmc_load_at(&writer->span, shmc_block_of(extra) + 8);
}

/* Puts words that are alive in place of whatever the key has; the last look-up was of it. */
static enum shmc_status put_words(struct shmc_writer *writer, uint32_t id,
                                  const struct shmc_entry *entry, bool silent)
{
    struct shmc_wresource *resource = &writer->resources[id];
    const struct shmc_entry old = writer->path.entry; /* zeros if there is none */
    const bool existed = writer->path.found;
    uint8_t buffer[8];
    size_t length;
    const uint8_t *key = shmc_word_bytes(writer, entry->words[0], buffer, &length);

    assert(writer->looked_up == id && writer->path.top == resource->primary);
    if (existed && old.words[1] == entry->words[1] && old.words[2] == entry->words[2])
        return SHMC_OK; /* U4 */
    enum shmc_status status = touch(writer, resource);
    if (status == SHMC_OK)
        status = shmc_path_put(writer, &shmc_primary, &writer->path, entry, &resource->primary);
    if (status == SHMC_OK)
        status = shmc_directory_put(writer, &resource->directory, key, length,
                                    existed ? old.words[0] : entry->words[0], entry->words[1]);
    if (status == SHMC_OK)
        status = count_entry(writer, entry, &old, existed);
    if (status == SHMC_OK) {
        resource->count += !existed;
        status = shmc_indices_update(writer, resource, existed ? old.words[0] : entry->words[0],
                                     old.words[1], old.words[2], entry->words[1],
                                     entry->words[2]);
    }
    if (status != SHMC_OK || silent)
        return status;
    const struct shmc_pending change = {
        .resource = id,
        .kind = existed ? SHMC_MODIFIED : SHMC_ADDED,
        .key = existed ? old.words[0] : entry->words[0],
        .version = version_of(writer, entry->words[2]),
        .old_value = old.words[1],
        .new_value = entry->words[1],
        .shard = shard_of(writer, entry->words[1]),
        .charge = existed ? writer->fresh_bytes + 64 : 64,
    };
    writer->fresh_bytes = 0;
    return pending_add(writer, &change);
}

enum shmc_status shmc_put_entry(struct shmc_writer *writer, uint32_t id,
                                const struct shmc_entry *entry)
{
    uint8_t buffer[8];
    size_t length;
    const uint8_t *key = shmc_word_bytes(writer, entry->words[0], buffer, &length);
    shmc_word value;
    const enum shmc_status status = shmc_current(writer, id, key, length, &value);

    return status == SHMC_OK || status == SHMC_NOT_FOUND ? put_words(writer, id, entry, false)
                                                         : status;
}

/* version alone, or [version, values ...] where indices take values from outside. */
static enum shmc_status make_extra(struct shmc_writer *writer, const struct shmc_change *change,
                                   shmc_word *extra)
{
    shmc_word words[SHMC_MAX_INDICES + 1];
    uint32_t indices[SHMC_MAX_INDICES];
    const size_t count = shmc_external_indices(writer, change->resource, indices);

    *extra = change->version != SHMC_NOTHING ? change->version : SHMC_EMPTY_STRING;
    if (count != change->emitted_count)
        return SHMC_INVALID;
    if (count == 0)
        return SHMC_OK;
    words[0] = *extra;
    for (size_t i = 0; i < count; i++)
        words[i + 1] =
            change->emitted[i] != SHMC_NOTHING ? change->emitted[i] : SHMC_EMPTY_ARRAY;
    return shmc_make_array(writer, words, count + 1, extra);
}

static enum shmc_status make_entry(struct shmc_writer *writer, const struct shmc_change *change,
                                   struct shmc_entry *entry)
{
    uint32_t flags;

    if (change->key_length > KEY_MAX)
        return SHMC_LIMIT;
    if (change->value == SHMC_NOTHING || !key_valid(change->key, change->key_length, &flags))
        return SHMC_INVALID;
    entry->words[1] = change->value;
    enum shmc_status status = make_extra(writer, change, &entry->words[2]);
    if (status == SHMC_OK)
        status = shmc_make_string(writer, change->key, change->key_length, flags,
                                  &entry->words[0]);
    return status;
}

enum shmc_status shmc_put(struct shmc_writer *writer, const struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = usable(writer, change->resource);

    if (status == SHMC_OK)
        status = make_entry(writer, change, &entry);
    if (status != SHMC_OK)
        return status; /* what was made is swept with the batch */
    return poison(writer, change->looked_up
                              ? put_words(writer, change->resource, &entry, false)
                              : shmc_put_entry(writer, change->resource, &entry));
}

enum shmc_status shmc_refill(struct shmc_writer *writer, struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = usable(writer, change->resource);

    if (status == SHMC_OK)
        status = shmc_current(writer, change->resource, change->key, change->key_length,
                              &change->value);
    if (status != SHMC_OK)
        return status;
    change->version = version_of(writer, writer->path.entry.words[2]);
    entry.words[0] = writer->path.entry.words[0];
    entry.words[1] = change->value;
    status = make_extra(writer, change, &entry.words[2]);
    return status == SHMC_OK ? poison(writer, put_words(writer, change->resource, &entry, true))
                             : status;
}

enum shmc_status shmc_stage(struct shmc_writer *writer, const struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = usable(writer, change->resource);

    if (status == SHMC_OK && (!writer->resources[change->resource].replacing ||
                              writer->resources[change->resource].finishing))
        status = SHMC_INVALID;
    if (status == SHMC_OK)
        status = make_entry(writer, change, &entry);
    if (status != SHMC_OK)
        return status;
    writer->fresh_bytes = 0;
    return poison(writer, shmc_stage_entry(writer, change->resource, &entry));
}

static enum shmc_status delete_words(struct shmc_writer *writer, uint32_t id, const uint8_t *key,
                                     size_t length, shmc_word version, uint32_t flags)
{
    struct shmc_wresource *resource = &writer->resources[id];
    struct shmc_entry old = {{0}};
    enum shmc_status status = shmc_tree_delete(writer, &shmc_primary, &resource->primary, key,
                                               length, &old);

    if (status == SHMC_OK)
        status = shmc_directory_delete(writer, &resource->directory, key, length);
    for (unsigned i = 0; status == SHMC_OK && i < 3; i++)
        status = shmc_drop_later(writer, old.words[i]);
    if (status != SHMC_OK)
        return status;
    resource->count--;
    status = shmc_indices_update(writer, resource, old.words[0], old.words[1], old.words[2],
                                 SHMC_NOTHING, SHMC_NOTHING);
    const struct shmc_pending change = {
        .resource = id,
        .kind = SHMC_DELETED,
        .flags = (uint8_t)flags,
        .key = old.words[0],
        .version = version,
        .old_value = old.words[1],
        .shard = shard_of(writer, old.words[1]),
        .charge = shmc_exclusive_bytes(writer, old.words[1]) + 64,
    };
    return status == SHMC_OK ? pending_add(writer, &change) : status;
}

enum shmc_status shmc_delete(struct shmc_writer *writer, uint32_t id, const char *key,
                             size_t length, const char *version, size_t version_length,
                             uint32_t flags)
{
    enum shmc_status status = usable(writer, id);
    const uint8_t *bytes = (const uint8_t *)key;
    shmc_word word = SHMC_NOTHING, value;

    if (status == SHMC_OK)
        status = shmc_current(writer, id, bytes, length, &value);
    if (status == SHMC_OK && version != NULL)
        status = make_text(writer, version, version_length, &word);
    if (status == SHMC_OK)
        status = touch(writer, &writer->resources[id]);
    if (status != SHMC_OK)
        return status;
    writer->arena.may_use_reserve = true; /* A5 */
    return poison(writer, delete_words(writer, id, bytes, length, word, flags));
}

/* ---- what others ask --------------------------------------------------------------------------- */

const struct shmc_span *shmc_writer_span(const struct shmc_writer *writer)
{
    return &writer->span;
}

struct shmc_heap *shmc_writer_heap(struct shmc_writer *writer)
{
    return &writer->heap;
}

bool shmc_in_batch(const struct shmc_writer *writer)
{
    return writer->in_batch;
}

uint64_t shmc_writer_instance(const struct shmc_writer *writer)
{
    return writer->super->instance;
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
    stats->blocks = writer->intern.count;
}
