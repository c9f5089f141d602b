/*
 * reindex.c - removing indices and resources: a writer with another configuration took over the
 * cache.
 *
 * An index with the same name and the same definition stays as it is. Any other one is dropped, and
 * declared again, which fills it from the existing objects: no list is needed.
 *
 * Invariants
 *   REINDEX1  a batch that is undone has its indices back: the array is saved before the first
 *       one goes.
 *   REINDEX2  values from outside are in each object's extra by the position of their index among
 *       those. So these indices go together, and every extra is the version alone afterwards.
 */
#include "writer/writer.h"

/* REINDEX1. From here on the resource has an array, and paths, of its own. */
static enum shmc_status save_indices(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    const size_t size = SHMC_MAX_INDICES * sizeof(struct shmc_windex);
    struct shmc_windex *copy;

    if (resource->saved->indices != NULL)
        return SHMC_OK;
    copy = shmc_heap_resize(&writer->heap, NULL, 0, size);
    if (copy == NULL)
        return SHMC_NO_MEMORY;
    memcpy(copy, resource->indices, size);
    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        if (copy[i].path == NULL)
            continue;
        const size_t length = copy[i].path_length + 1;
        copy[i].path = shmc_heap_resize(&writer->heap, NULL, 0, length);
        if (copy[i].path == NULL) {
            shmc_indices_free(writer, copy, i);
            return SHMC_NO_MEMORY;
        }
        memcpy(copy[i].path, resource->indices[i].path, length);
    }
    resource->saved->indices = resource->indices;
    resource->saved->indices_count = resource->now.index_count;
    resource->indices = copy;
    return SHMC_OK;
}

/* Retires a node with the batch, releases the words of its entries, and lists its children. */
static enum shmc_status drop_tree_node(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                  shmc_offset offset, struct shmc_list *nodes)
{
    const struct shmc_span *span = &writer->span;
    enum shmc_status status = SHMC_OK;
    struct shmc_node node;

    if (!shmc_node_open(span, kind, offset, &node))
        return SHMC_CORRUPT;
    for (uint32_t i = 0; status == SHMC_OK && i < node.count; i++) {
        if (node.level > 0) {
            status = shmc_list_push(&writer->heap, nodes, shmc_node_child(span, &node, i));
            continue;
        }
        for (uint32_t c = 1; status == SHMC_OK && c < node.columns; c++)
            status = shmc_drop_later(writer, shmc_node_word(span, &node, c, i));
    }
    return status == SHMC_OK ? shmc_node_drop(writer, offset) : status;
}

/* The same of a directory, which counts nothing and is of one kind. */
static enum shmc_status drop_directory_node(struct shmc_writer *writer,
                                            const struct shmc_tree_kind *kind, shmc_offset offset,
                                            struct shmc_list *nodes)
{
    struct shmc_directory_node node;
    enum shmc_status status = SHMC_OK;

    (void)kind;
    if (!shmc_directory_node(&writer->span, offset, &node))
        return SHMC_CORRUPT;
    for (uint64_t i = 0; status == SHMC_OK && node.inner && i < node.count; i++) {
        const shmc_offset child = shmc_load_at(&writer->span, node.words + i * 8);
        if (child != 0)
            status = shmc_list_push(&writer->heap, nodes, child);
    }
    return status == SHMC_OK ? shmc_node_drop(writer, offset) : status;
}

typedef enum shmc_status drop_node(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                   shmc_offset offset, struct shmc_list *nodes);

static enum shmc_status drop_nodes(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                   shmc_offset top, drop_node *drop)
{
    struct shmc_list nodes = {0};
    enum shmc_status status = SHMC_OK;

    if (top != 0)
        status = shmc_list_push(&writer->heap, &nodes, top);
    while (status == SHMC_OK && nodes.count > 0) {
        const shmc_offset offset = nodes.items[--nodes.count];
        status = drop(writer, kind, offset, &nodes);
    }
    shmc_list_free(&writer->heap, &nodes);
    return status;
}

static enum shmc_status drop_one(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 uint32_t number)
{
    struct shmc_windex *index = &resource->indices[number];
    enum shmc_status status = drop_nodes(writer, &shmc_index, index->tree, drop_tree_node);

    if (status == SHMC_OK)
        status = shmc_drop_later(writer, index->name);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, index->settings);
    if (status != SHMC_OK)
        return status;
    if (index->path != NULL)
        shmc_heap_resize(&writer->heap, index->path, index->path_length + 1, 0);
    memmove(index, index + 1, (resource->now.index_count - number - 1) * sizeof(*index));
    memset(&resource->indices[--resource->now.index_count], 0, sizeof(*index));
    return SHMC_OK;
}

/* The keys of all objects whose extra is more than a version; their entries still count them. */
static enum shmc_status list_extras(struct shmc_writer *writer,
                                    const struct shmc_wresource *resource, struct shmc_list *keys)
{
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    enum shmc_status status = shmc_cursor_seek(&cursor, &writer->span, &shmc_primary,
                                               resource->now.primary, NULL, 0);

    while (status == SHMC_OK && (status = shmc_cursor_next(&cursor, &entry)) == SHMC_OK) {
        if (shmc_tag(entry.words[2]) == SHMC_TAG_ARRAY)
            status = shmc_list_push(&writer->heap, keys, entry.words[0]);
    }
    return status == SHMC_EMPTY ? SHMC_OK : status;
}

/* REINDEX2 */
static enum shmc_status strip_extras(struct shmc_writer *writer, uint32_t id)
{
    struct shmc_list keys = {0};
    enum shmc_status status = list_extras(writer, &writer->resources[id], &keys);

    for (size_t i = 0; status == SHMC_OK && i < keys.count; i++) {
        struct shmc_change change = {.resource = id};
        uint8_t buffer[8];
        change.key = shmc_word_bytes(writer, keys.items[i], buffer, &change.key_length);
        status = shmc_refill(writer, &change);
    }
    shmc_list_free(&writer->heap, &keys);
    return status;
}

static uint32_t find_index(const struct shmc_writer *writer, const struct shmc_wresource *resource,
                           const char *name, size_t length)
{
    uint8_t buffer[8];
    size_t found;
    uint32_t i = 0;

    for (; i < resource->now.index_count; i++) {
        const uint8_t *bytes =
            shmc_word_bytes(writer, resource->indices[i].name, buffer, &found);
        if (found == length && memcmp(bytes, name, length) == 0)
            break;
    }
    return i;
}

static enum shmc_status drop_outside(struct shmc_writer *writer, uint32_t id)
{
    struct shmc_wresource *resource = &writer->resources[id];
    enum shmc_status status = SHMC_OK;

    for (uint32_t i = resource->now.index_count; status == SHMC_OK && i-- > 0;) {
        if (resource->indices[i].path == NULL)
            status = drop_one(writer, resource, i);
    }
    return status == SHMC_OK ? strip_extras(writer, id) : status;
}

enum shmc_status shmc_drop_index(struct shmc_writer *writer, uint32_t id, const char *name,
                                 size_t length)
{
    enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK)
        return status;
    struct shmc_wresource *resource = &writer->resources[id];
    const uint32_t number = find_index(writer, resource, name, length);
    if (number == resource->now.index_count)
        return SHMC_NOT_FOUND;
    if (resource->replacing > 0)
        return SHMC_BUSY; /* staged objects have values for the present indices */
    status = shmc_touch(writer, resource);
    if (status == SHMC_OK)
        status = save_indices(writer, resource);
    if (status != SHMC_OK)
        return shmc_poison(writer, status);
    return shmc_poison(writer, resource->indices[number].path != NULL
                                   ? drop_one(writer, resource, number)
                                   : drop_outside(writer, id));
}

enum shmc_status shmc_set_function(struct shmc_writer *writer, uint32_t id, uint32_t number,
                                   const char *identity, size_t length)
{
    enum shmc_status status = shmc_usable(writer, id);
    shmc_word word;

    if (status != SHMC_OK || number >= writer->resources[id].now.index_count ||
        writer->resources[id].indices[number].path != NULL)
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    status = shmc_make_text(writer, identity, length, &word);
    if (status == SHMC_OK)
        status = shmc_make_array(writer, &word, 1, &word); /* a text alone would be a path */
    if (status == SHMC_OK)
        status = shmc_touch(writer, resource);
    if (status == SHMC_OK)
        status = save_indices(writer, resource);
    if (status == SHMC_OK)
        status = shmc_take(writer, word);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, resource->indices[number].settings);
    if (status == SHMC_OK)
        resource->indices[number].settings = word;
    return shmc_poison(writer, status);
}

/* ---- resources ------------------------------------------------------------------------------ */

static enum shmc_status drop_words(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    shmc_word *const words[] = {&resource->now.settings, &resource->now.version, &resource->now.reason,
                                &resource->now.marks};
    enum shmc_status status = SHMC_OK;

    for (size_t i = 0; status == SHMC_OK && i < 4; i++) {
        status = shmc_drop_later(writer, *words[i]);
        *words[i] = i == 0 ? SHMC_NULL : SHMC_EMPTY_STRING;
    }
    return status;
}

static enum shmc_status drop_content(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    enum shmc_status status = SHMC_OK;

    while (status == SHMC_OK && resource->now.index_count > 0)
        status = drop_one(writer, resource, resource->now.index_count - 1);
    if (status == SHMC_OK)
        status = drop_nodes(writer, &shmc_primary, resource->now.primary, drop_tree_node);
    if (status == SHMC_OK)
        status = drop_nodes(writer, NULL, resource->now.directory, drop_directory_node);
    if (status == SHMC_OK)
        status = drop_words(writer, resource);
    resource->now.primary = resource->now.directory = 0;
    resource->now.count = 0;
    resource->now.state = SHMC_GONE;
    resource->now.since_ns = shmc_monotonic_ns();
    return status;
}

enum shmc_status shmc_retire_resource(struct shmc_writer *writer, uint32_t id)
{
    enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK)
        return status;
    struct shmc_wresource *resource = &writer->resources[id];
    if (resource->replacing > 0)
        return SHMC_BUSY;
    if (resource->now.state == SHMC_GONE)
        return SHMC_OK;
    status = shmc_touch(writer, resource);
    if (status == SHMC_OK && resource->indices != NULL)
        status = save_indices(writer, resource);
    if (status == SHMC_OK)
        status = drop_content(writer, resource);
    if (status == SHMC_OK)
        status = shmc_pending_relist(writer, id);
    writer->arena.may_use_reserve = true; /* ARENA5 */
    return shmc_poison(writer, status);
}
