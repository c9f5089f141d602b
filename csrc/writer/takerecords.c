/*
 * takerecords.c - a takeover's walk over the catalogue: resources and indices as they were.
 */
#include "writer/takeover.h"

/* Nothing below may be dropped half-made: shmc_resource_free() frees the existing parts. */
static bool adopt_index(struct takeover *takeover, struct shmc_wresource *resource,
                        const struct shmc_record_index *found)
{
    struct shmc_windex *index = &resource->indices[resource->now.index_count++];
    const shmc_word settings = found->settings;
    uint8_t buffer[8];
    size_t length;

    if (!shmc_adopt_string(takeover, found->name, "an index without a name") ||
        !shmc_adopt_word(&takeover->walk, settings))
        return false;
    index->name = found->name;
    index->settings = settings;
    index->tree = found->tree;
    index->count = found->count;
    if (shmc_tag(settings) != SHMC_TAG_STRING && shmc_tag(settings) != SHMC_TAG_SHORT)
        return true; /* its values come from outside */
    const uint8_t *path = shmc_word_bytes(takeover->writer, settings, buffer, &length);
    if (!shmc_path_valid((const char *)path, length))
        return refuse(takeover, SHMC_CORRUPT, "an index with an invalid path", settings);
    index->path = shmc_heap_resize(&takeover->writer->heap, NULL, 0, length + 1);
    if (index->path == NULL)
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    memcpy(index->path, path, length);
    index->path[length] = 0;
    index->path_length = length;
    return true;
}

static bool adopt_indices(struct takeover *takeover, struct shmc_wresource *resource,
                          const struct shmc_record_index *indices, uint64_t count)
{
    const size_t size = SHMC_MAX_INDICES * sizeof(struct shmc_windex);

    if (count == 0)
        return true;
    resource->indices = shmc_heap_resize(&takeover->writer->heap, NULL, 0, size);
    if (resource->indices == NULL)
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    memset(resource->indices, 0, size);
    for (uint64_t i = 0; i < count; i++) {
        if (!adopt_index(takeover, resource, &indices[i]))
            return false;
    }
    return true;
}

static bool adopt_words(struct takeover *takeover, const struct shmc_record *record)
{
    return shmc_adopt_string(takeover, record->name, "a resource without a name") &&
           shmc_adopt_word(&takeover->walk, record->settings) &&
           shmc_adopt_string(takeover, record->version, "a version that is not a string") &&
           shmc_adopt_string(takeover, record->reason, "a reason that is not a string") &&
           shmc_adopt_string(takeover, record->listed, "a listed version that is not a string") &&
           shmc_adopt_string(takeover, record->marks, "marks that are not a string");
}

static void fill_resource(struct shmc_wresource *resource, const struct shmc_record *record,
                          shmc_offset block)
{
    *resource = (struct shmc_wresource){
        .name = record->name,
        .now =
            {
                .settings = record->settings,
                .version = record->version,
                .reason = record->reason,
                .listed = record->listed,
                .marks = record->marks,
                .state = record->state,
                .since_ns = record->since_ns,
                .generation = record->generation,
                .count = record->count,
                .unbroken = record->unbroken,
                .primary = record->primary,
                .directory = record->directory,
                .record = block,
            },
        .contact = record->contact,
    };
}

/* A copy of a record and of its indices, each word loaded once. */
static bool load_record(struct takeover *takeover, shmc_offset block, struct shmc_record *record,
                        struct shmc_record_index indices[SHMC_MAX_INDICES])
{
    const struct shmc_span *span = &takeover->span;
    uint64_t words[sizeof(*record) / 8];

    if (!shmc_in_span(span, block, sizeof(*record)))
        return refuse(takeover, SHMC_CORRUPT, "a broken record", block);
    for (size_t i = 0; i < sizeof(words) / 8; i++)
        words[i] = shmc_load_at(span, block + i * 8);
    memcpy(record, words, sizeof(*record));
    const uint64_t size = record->index_count * sizeof(struct shmc_record_index);
    if (record->index_count > SHMC_MAX_INDICES ||
        !shmc_in_span(span, block, sizeof(*record) + size) ||
        !shmc_in_span(span, record->contact, sizeof(struct shmc_contact)) ||
        record->state > SHMC_GONE || record->generation > takeover->walk.generation)
        return refuse(takeover, SHMC_CORRUPT, "a broken record", block);
    uint8_t *to = (uint8_t *)indices;
    for (uint64_t i = 0; i < size; i += 8) {
        const uint64_t word = shmc_load_at(span, block + sizeof(*record) + i);
        memcpy(to + i, &word, 8);
    }
    return shmc_adopt_node(&takeover->walk, block, sizeof(*record) + size) &&
           shmc_adopt_node(&takeover->walk, record->contact, sizeof(struct shmc_contact));
}

static bool adopt_resource(struct takeover *takeover, shmc_offset block)
{
    struct shmc_writer *writer = takeover->writer;
    struct shmc_wresource *resource = &writer->resources[writer->resource_count];
    struct shmc_record_index indices[SHMC_MAX_INDICES];
    struct shmc_record record;
    struct shmc_note note;

    if (!load_record(takeover, block, &record, indices))
        return false;
    if (shmc_contact_load(&takeover->span, record.contact, &note) != SHMC_OK ||
        note.contact_ns > shmc_monotonic_ns() || record.since_ns > shmc_monotonic_ns())
        return refuse(takeover, SHMC_CORRUPT, "LAYOUT8: a contact or a state of the future", block);
    fill_resource(resource, &record, block);
    writer->resource_count++;
    return adopt_words(takeover, &record) &&
           adopt_indices(takeover, resource, indices, record.index_count) &&
           shmc_walk_resource(&takeover->walk, &record, indices);
}

bool shmc_adopt_catalogue(struct takeover *takeover, shmc_offset catalogue)
{
    struct shmc_writer *writer = takeover->writer;
    const struct shmc_span *span = &takeover->span;
    const uint64_t count = shmc_in_span(span, catalogue, 8) ? shmc_load_at(span, catalogue) : 0;

    if (count > SHMC_MAX_RESOURCES || count > (writer->ring_mask + 1) / 2 ||
        !shmc_in_span(span, catalogue, 8 + count * 8))
        return refuse(takeover, SHMC_CORRUPT, "a broken catalogue", catalogue);
    if (!shmc_adopt_node(&takeover->walk, catalogue, 8 + count * 8))
        return false;
    writer->catalogue = catalogue;
    writer->resource_capacity = (uint32_t)count + 8;
    writer->resources = shmc_heap_resize(&writer->heap, NULL, 0,
                                         writer->resource_capacity * sizeof(*writer->resources));
    if (writer->resources == NULL) {
        writer->resource_capacity = 0;
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!adopt_resource(takeover, shmc_load_at(span, catalogue + 8 + i * 8)))
            return false;
    }
    return true;
}
