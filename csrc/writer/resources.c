/*
 * resources.c - resources, their indices, state and version.
 *
 * Ids count from 0 in the order of declaration and never change; a declaration goes away with
 * the batch that made it. A resource that is retired (reindex.c) keeps its id and its name, empty
 * and SHMC_GONE, until one of that name is declared again.
 */
#include "json/json.h"
#include "writer/writer.h"

void shmc_indices_free(struct shmc_writer *writer, struct shmc_windex *indices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (indices[i].path != NULL)
            shmc_heap_resize(&writer->heap, indices[i].path, indices[i].path_length + 1, 0);
    }
    if (indices != NULL)
        shmc_heap_resize(&writer->heap, indices, SHMC_MAX_INDICES * sizeof(*indices), 0);
}

void shmc_saved_free(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    struct shmc_saved *saved = resource->saved;

    if (saved == NULL)
        return;
    shmc_indices_free(writer, saved->indices, saved->indices_count);
    shmc_heap_resize(&writer->heap, saved, sizeof(*saved), 0);
    resource->saved = NULL;
}

void shmc_resource_free(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    shmc_indices_free(writer, resource->indices, resource->now.index_count);
    shmc_saved_free(writer, resource);
    shmc_list_free(&writer->heap, &resource->staged);
    memset(resource, 0, sizeof(*resource));
}

enum shmc_status shmc_make_text(struct shmc_writer *writer, const char *text, size_t length,
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

static bool find_name(const struct shmc_writer *writer, const char *name, size_t length,
                      uint32_t *id)
{
    for (uint32_t i = 0; i < writer->resource_count; i++) {
        if (word_is(writer, writer->resources[i].name, name, length)) {
            *id = i;
            return true;
        }
    }
    return false;
}

enum shmc_status shmc_find_resource(struct shmc_writer *writer, const char *name, size_t length,
                                    uint32_t *id)
{
    if (!find_name(writer, name, length, id) || writer->resources[*id].now.state == SHMC_GONE)
        return SHMC_NOT_FOUND;
    return SHMC_OK;
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
    shmc_offset contact = 0;
    shmc_word word;

    if (!writer->in_batch || writer->poisoned || length == 0 ||
        shmc_find_resource(writer, name, length, id) == SHMC_OK)
        return status;
    if (find_name(writer, name, length, id))
        return shmc_set_state(writer, *id, SHMC_ABSENT); /* it comes back */
    /* one RELIST delta for each resource must fit into a batch (RING1) */
    if (writer->resource_count >= SHMC_MAX_RESOURCES ||
        writer->resource_count >= writer->super->ring_slots / 2)
        return SHMC_LIMIT;
    status = shmc_make_text(writer, name, length, &word);
    if (status == SHMC_OK)
        status = resources_reserve(writer);
    if (status == SHMC_OK)
        status = shmc_take(writer, word);
    if (status == SHMC_OK)
        status = shmc_contact_alloc(writer, &contact);
    if (status != SHMC_OK)
        return shmc_poison(writer, status);
    struct shmc_wresource *resource = &writer->resources[writer->resource_count];
    memset(resource, 0, sizeof(*resource));
    resource->name = word;
    resource->now.settings = SHMC_NULL;
    resource->now.version = resource->now.reason = SHMC_EMPTY_STRING;
    resource->now.listed = resource->now.marks = SHMC_EMPTY_STRING;
    resource->now.since_ns = shmc_monotonic_ns();
    resource->contact = contact;
    resource->dirty = true;
    *id = writer->resource_count++;
    return SHMC_OK;
}

static enum shmc_status index_room(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    const size_t size = SHMC_MAX_INDICES * sizeof(struct shmc_windex);

    if (resource->now.index_count >= SHMC_MAX_INDICES)
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
    enum shmc_status status = shmc_make_text(writer, name, name_length, &index->name);

    index->settings = SHMC_NULL;
    if (status == SHMC_OK && path != NULL)
        status = shmc_make_text(writer, path, path_length, &index->settings);
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
    enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK || name_length == 0 ||
        (path != NULL && !shmc_path_valid(path, path_length)))
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        if (word_is(writer, resource->indices[i].name, name, name_length))
            return SHMC_INVALID;
    }
    status = shmc_touch(writer, resource);
    if (status == SHMC_OK)
        status = index_room(writer, resource);
    if (status != SHMC_OK)
        return status;
    struct shmc_windex *index = &resource->indices[resource->now.index_count];
    *number = resource->now.index_count++;
    status = index_words(writer, index, name, name_length, path, path_length);
    if (status == SHMC_OK)
        status = shmc_index_fill(writer, resource, *number);
    return shmc_poison(writer, status);
}

size_t shmc_external_indices(const struct shmc_writer *writer, uint32_t resource,
                             uint32_t indices[SHMC_MAX_INDICES])
{
    const struct shmc_wresource *declared = &writer->resources[resource];
    size_t count = 0;

    for (uint32_t i = 0; i < declared->now.index_count; i++) {
        if (declared->indices[i].path == NULL)
            indices[count++] = i;
    }
    return count;
}

enum shmc_status shmc_set_state(struct shmc_writer *writer, uint32_t id, uint64_t state)
{
    const enum shmc_status status = shmc_usable(writer, id);

    if (state >= SHMC_GONE)
        return SHMC_INVALID;
    if (status != SHMC_OK || writer->resources[id].now.state == state)
        return status;
    const enum shmc_status touched = shmc_touch(writer, &writer->resources[id]);
    if (touched == SHMC_OK) {
        writer->resources[id].now.state = state;
        writer->resources[id].now.since_ns = shmc_monotonic_ns();
    }
    return touched;
}

/* Replaces a word of a resource; the new one is counted and the old one released. */
static enum shmc_status set_word(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 shmc_word word, shmc_word *stored)
{
    if (word == *stored)
        return SHMC_OK;
    enum shmc_status status = shmc_touch(writer, resource);
    if (status == SHMC_OK)
        status = shmc_take(writer, word);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, *stored);
    if (status == SHMC_OK)
        *stored = word;
    return shmc_poison(writer, status);
}

static enum shmc_status set_text(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 const char *text, size_t length, shmc_word *stored)
{
    shmc_word word;
    const enum shmc_status status = shmc_make_text(writer, text, length, &word);

    return status == SHMC_OK ? set_word(writer, resource, word, stored) : status;
}

enum shmc_status shmc_set_version(struct shmc_writer *writer, uint32_t id, const char *version,
                                  size_t length)
{
    const enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK)
        return status;
    struct shmc_wresource *resource = &writer->resources[id];
    return set_text(writer, resource, version, length, &resource->now.version);
}

enum shmc_status shmc_set_reason(struct shmc_writer *writer, uint32_t id, const char *reason,
                                 size_t length)
{
    const enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK)
        return status;
    if (length > SHMC_REASON_MAX)
        return SHMC_LIMIT;
    struct shmc_wresource *resource = &writer->resources[id];
    return set_text(writer, resource, reason, length, &resource->now.reason);
}

/* JSON, as a value: its members can be read like those of any object. */
enum shmc_status shmc_set_settings(struct shmc_writer *writer, uint32_t id, const char *json,
                                   size_t length)
{
    enum shmc_status status = shmc_usable(writer, id);
    struct shmc_parser parser;
    shmc_word word = SHMC_NULL;

    if (status != SHMC_OK)
        return status;
    shmc_parser_init(&parser, writer);
    status = shmc_parse(&parser, (const uint8_t *)json, length, SHMC_NOTHING, &word);
    shmc_parser_free(&parser);
    if (status != SHMC_OK)
        return status == SHMC_INVALID || status == SHMC_LIMIT ? status
                                                              : shmc_poison(writer, status);
    return set_word(writer, &writer->resources[id], word, &writer->resources[id].now.settings);
}

enum shmc_status shmc_set_source(struct shmc_writer *writer, uint32_t id, const char *marks,
                                 size_t length)
{
    const enum shmc_status status = shmc_usable(writer, id);

    if (status != SHMC_OK)
        return status;
    struct shmc_wresource *resource = &writer->resources[id];
    return set_text(writer, resource, marks, length, &resource->now.marks);
}
