/*
 * changes.c - changes to objects: put and delete, one key at a time.
 *
 * Invariants
 *   UNDO3  the key, value and extra of an entry are counted once each by that entry.
 *   UNDO4  a change without effect leaves nothing: no delta, no new block.
 *   UNDO5  the primary tree, the directory and the indices change together, in one batch.
 *   UNDO6  within a batch the last look-up's path stays good as long as only payloads change in its
 *       tree: an insertion or a deletion forgets it, and a new batch begins without one.
 */
#include "writer/writer.h"

#define KEY_MAX 65536u

static enum shmc_status pending_add(struct shmc_writer *writer,
                                    const struct shmc_pending *change)
{
    const size_t limit = writer->super->ring_slots / 2;

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

enum shmc_status shmc_pending_relist(struct shmc_writer *writer, uint32_t resource)
{
    const struct shmc_pending relist = {.resource = resource, .kind = SHMC_RELIST, .charge = 64};

    return pending_add(writer, &relist);
}

/* metadata.uid, or SHMC_NOTHING if it is not a string. */
static shmc_word uid_of(struct shmc_writer *writer, shmc_word value)
{
    const shmc_word metadata =
        shmc_member(&writer->span, &writer->metadata, value, (const uint8_t *)"metadata", 8);
    const shmc_word uid =
        shmc_member(&writer->span, &writer->uid, metadata, (const uint8_t *)"uid", 3);

    return shmc_tag(uid) == SHMC_TAG_SHORT || shmc_tag(uid) == SHMC_TAG_STRING ? uid : SHMC_NOTHING;
}

/* FNV-1a of a uid: the shard key of Kubernetes' sharded watches; of "" without a uid. */
static uint64_t shard_of(const struct shmc_writer *writer, shmc_word uid)
{
    return shmc_shard_hash(&writer->span, uid);
}

static bool key_valid(const uint8_t *key, size_t length, uint32_t *flags)
{
    return length > 0 && memchr(key, 0, length) == NULL && shmc_string_flags(key, length, flags);
}

enum shmc_status shmc_current(struct shmc_writer *writer, uint32_t id, const uint8_t *key,
                              size_t length, shmc_word *value)
{
    struct shmc_path *path = &writer->path;
    enum shmc_status status;

    if (id >= writer->resource_count)
        return SHMC_INVALID;
    /* UNDO6: keys that come in order, as those of a list do, are usually neighbours. */
    if (writer->path_batch == writer->batch_number && writer->looked_up == id &&
        path->depth > 0 && path->top == writer->resources[id].now.primary &&
        shmc_path_beside(writer, key, length, path))
        status = path->found ? SHMC_OK : SHMC_NOT_FOUND;
    else
        status = shmc_path_find(writer, &shmc_primary, writer->resources[id].now.primary, key, length,
                                path);
    writer->looked_up = id;
    writer->path_batch = writer->in_batch ? writer->batch_number : 0;
    if (status == SHMC_OK)
        *value = path->entry.words[1];
    return status;
}

shmc_word shmc_nearest(const struct shmc_writer *writer)
{
    const struct shmc_path *path = &writer->path;

    if (path->depth == 0)
        return SHMC_NOTHING;
    const struct shmc_node *leaf = &path->nodes[path->depth - 1];
    const uint32_t behind = path->index[path->depth - 1];
    if (leaf->count == 0)
        return SHMC_NOTHING;
    return shmc_node_word(&writer->span, leaf, 2, behind > 0 ? behind - 1 : 0);
}

/* The words of an entry that is new to the tree get counted by it (UNDO3). */
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

/* The bytes that the window keeps of a replaced value: about as much as was built for the new one;
 * if that was built elsewhere (staged, or by reference), the part that only the old one leads
 * to. */
static uint64_t replaced_bytes(const struct shmc_writer *writer, shmc_word old)
{
    return writer->fresh_bytes > 0 ? writer->fresh_bytes : shmc_exclusive_bytes(writer, old);
}

/* UNDO4, if the words differ and their values do not (INTERN2): then the existing words stay. An
 * object of another version counts as different, without a comparison. */
static void keep_equal(const struct shmc_writer *writer, const struct shmc_entry *old,
                       struct shmc_entry *entry)
{
    if (!shmc_same_value(writer, old->words[2], entry->words[2]))
        return;
    entry->words[2] = old->words[2];
    if (shmc_same_value(writer, old->words[1], entry->words[1]))
        SHMC_UNLESS(NO_KEEP_EQUAL, entry->words[1] = old->words[1]);
}

/* Replaces the key's current words by live ones; the last look-up was of this key. */
static enum shmc_status put_words(struct shmc_writer *writer, uint32_t id,
                                  struct shmc_entry *entry, bool silent)
{
    struct shmc_wresource *resource = &writer->resources[id];
    const struct shmc_entry old = writer->path.entry; /* zeros if absent */
    const bool existed = writer->path.found;
    uint8_t buffer[8];
    size_t length;
    const uint8_t *key = shmc_word_bytes(writer, entry->words[0], buffer, &length);

    assert(writer->looked_up == id && writer->path.top == resource->now.primary);
    if (existed)
        keep_equal(writer, &old, entry);
    if (existed && old.words[1] == entry->words[1] && old.words[2] == entry->words[2])
        return SHMC_OK; /* UNDO4 */
    enum shmc_status status = shmc_touch(writer, resource);
    if (status == SHMC_OK)
        status = shmc_path_put(writer, &shmc_primary, &writer->path, entry, &resource->now.primary);
    if (status == SHMC_OK)
        status = shmc_directory_put(writer, &resource->now.directory, key, length,
                                    existed ? old.words[0] : entry->words[0], entry->words[1]);
    if (status == SHMC_OK)
        status = count_entry(writer, entry, &old, existed);
    if (status == SHMC_OK) {
        resource->now.count += !existed;
        status = shmc_indices_update(writer, resource, existed ? old.words[0] : entry->words[0],
                                     old.words[1], old.words[2], entry->words[1],
                                     entry->words[2]);
    }
    if (status != SHMC_OK || silent)
        return status;
    const shmc_word uid = uid_of(writer, entry->words[1]);
    const bool recreated =
        existed && !shmc_same_value(writer, uid, uid_of(writer, old.words[1]));
    const struct shmc_pending change = {
        .resource = id,
        .kind = existed ? SHMC_MODIFIED : SHMC_ADDED,
        .key = existed ? old.words[0] : entry->words[0],
        .flags = recreated ? SHMC_FLAG_RECREATED : 0,
        .version = version_of(writer, entry->words[2]),
        .old_value = old.words[1],
        .new_value = entry->words[1],
        .shard = shard_of(writer, uid),
        .charge = 64 + (existed ? replaced_bytes(writer, old.words[1]) : 0),
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
    struct shmc_entry put = *entry;
    shmc_word value;
    const enum shmc_status status = shmc_current(writer, id, key, length, &value);

    return status == SHMC_OK || status == SHMC_NOT_FOUND ? put_words(writer, id, &put, false)
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

    const bool known = change->looked_up && writer->path.found;

    if (change->key_length > KEY_MAX)
        return SHMC_LIMIT;
    if (change->value == SHMC_NOTHING ||
        (!known && !key_valid(change->key, change->key_length, &flags)))
        return SHMC_INVALID;
    entry->words[0] = writer->path.entry.words[0];
    entry->words[1] = change->value;
    enum shmc_status status = make_extra(writer, change, &entry->words[2]);
    if (status == SHMC_OK && !known)
        status = shmc_make_string(writer, change->key, change->key_length, flags,
                                  &entry->words[0]);
    return status;
}

enum shmc_status shmc_put(struct shmc_writer *writer, const struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = shmc_usable(writer, change->resource);

    if (status == SHMC_OK)
        status = make_entry(writer, change, &entry);
    if (status != SHMC_OK)
        return status; /* the new blocks are swept with the batch */
    return shmc_poison(writer, change->looked_up
                              ? put_words(writer, change->resource, &entry, false)
                              : shmc_put_entry(writer, change->resource, &entry));
}

enum shmc_status shmc_refill(struct shmc_writer *writer, struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = shmc_usable(writer, change->resource);

    if (status == SHMC_OK)
        status = shmc_current(writer, change->resource, change->key, change->key_length,
                              &change->value);
    if (status != SHMC_OK)
        return status;
    change->version = version_of(writer, writer->path.entry.words[2]);
    entry.words[0] = writer->path.entry.words[0];
    entry.words[1] = change->value;
    status = make_extra(writer, change, &entry.words[2]);
    return status == SHMC_OK ? shmc_poison(writer, put_words(writer, change->resource, &entry, true))
                             : status;
}

enum shmc_status shmc_stage(struct shmc_writer *writer, const struct shmc_change *change)
{
    struct shmc_entry entry = {{0}};
    enum shmc_status status = shmc_usable(writer, change->resource);

    if (status == SHMC_OK && (writer->resources[change->resource].replacing == 0 ||
                              writer->resources[change->resource].finishing))
        status = SHMC_INVALID;
    if (status == SHMC_OK)
        status = make_entry(writer, change, &entry);
    if (status != SHMC_OK)
        return status;
    writer->fresh_bytes = 0;
    return shmc_poison(writer, shmc_stage_entry(writer, change->resource, &entry));
}

enum shmc_status shmc_unstage(struct shmc_writer *writer, uint32_t id, const char *key,
                              size_t length)
{
    struct shmc_entry entry = {{0}};
    uint32_t flags;
    enum shmc_status status = shmc_usable(writer, id);

    if (status == SHMC_OK && (writer->resources[id].replacing == 0 ||
                              writer->resources[id].finishing ||
                              !key_valid((const uint8_t *)key, length, &flags)))
        status = SHMC_INVALID;
    if (status == SHMC_OK)
        status = shmc_make_string(writer, (const uint8_t *)key, length, flags, &entry.words[0]);
    if (status != SHMC_OK)
        return status;
    entry.words[1] = SHMC_NOTHING;
    return shmc_poison(writer, shmc_stage_entry(writer, id, &entry));
}

enum shmc_status shmc_restage(struct shmc_writer *writer, uint32_t id, const char *key,
                              size_t length)
{
    shmc_word value;
    enum shmc_status status = shmc_usable(writer, id);

    if (status == SHMC_OK && (writer->resources[id].replacing == 0 ||
                              writer->resources[id].finishing))
        status = SHMC_INVALID;
    if (status == SHMC_OK)
        status = shmc_current(writer, id, (const uint8_t *)key, length, &value);
    if (status != SHMC_OK)
        return status;
    return shmc_poison(writer, shmc_stage_entry(writer, id, &writer->path.entry));
}

static enum shmc_status delete_words(struct shmc_writer *writer, uint32_t id, const uint8_t *key,
                                     size_t length, shmc_word version, uint32_t flags)
{
    struct shmc_wresource *resource = &writer->resources[id];
    struct shmc_entry old = {{0}};
    enum shmc_status status = shmc_tree_delete(writer, &shmc_primary, &resource->now.primary, key,
                                               length, &old);

    if (status == SHMC_OK)
        status = shmc_directory_delete(writer, &resource->now.directory, key, length, old.words[0]);
    for (unsigned i = 0; status == SHMC_OK && i < 3; i++)
        status = shmc_drop_later(writer, old.words[i]);
    if (status != SHMC_OK)
        return status;
    resource->now.count--;
    status = shmc_indices_update(writer, resource, old.words[0], old.words[1], old.words[2],
                                 SHMC_NOTHING, SHMC_NOTHING);
    const struct shmc_pending change = {
        .resource = id,
        .kind = SHMC_DELETED,
        .flags = (uint8_t)flags,
        .key = old.words[0],
        .version = version,
        .old_value = old.words[1],
        .shard = shard_of(writer, uid_of(writer, old.words[1])),
        .charge = shmc_exclusive_bytes(writer, old.words[1]) + 64,
    };
    return status == SHMC_OK ? pending_add(writer, &change) : status;
}

enum shmc_status shmc_delete(struct shmc_writer *writer, uint32_t id, const char *key,
                             size_t length, const char *version, size_t version_length,
                             uint32_t flags)
{
    enum shmc_status status = shmc_usable(writer, id);
    const uint8_t *bytes = (const uint8_t *)key;
    shmc_word word = SHMC_NOTHING, value;

    if (status == SHMC_OK)
        status = shmc_current(writer, id, bytes, length, &value);
    if (status == SHMC_OK && version != NULL)
        status = shmc_make_text(writer, version, version_length, &word);
    if (status == SHMC_OK)
        status = shmc_touch(writer, &writer->resources[id]);
    if (status != SHMC_OK)
        return status;
    writer->arena.may_use_reserve = true; /* ARENA5 */
    return shmc_poison(writer, delete_words(writer, id, bytes, length, word, flags));
}
