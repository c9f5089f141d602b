/*
 * replace.c - a resource replaced as a whole, without any reader seeing half of it.
 *
 * A relist may take seconds and come in pages, while other resources continue. So its
 * objects are staged first: built, counted and listed in private memory, in batches
 * that publish nothing. The finish compares the staged objects with the published ones, and
 * changes only the differences, in one batch: a relist in which nothing changed leaves
 * no trace at all. Objects that are gone are deleted first, marked as "final state
 * unknown": their deletion was not observed.
 *
 * Several lists may make up one resource, one for each namespace. Each of them is
 * staged as a share: the keys under one prefix. Shares are kept in one list; finishing
 * or cancelling one touches the keys with its prefix, and nothing else.
 *
 * If the writer dies meanwhile, nothing staged is reachable, and nothing is lost.
 */
#include <stdlib.h>

#include "writer/writer.h"

#define STAGED_WORDS 4u /* key, value, extra; and its serial number: the last of a key counts */
#define COUNTED_WORDS 3u
#define WHEN 3u

struct prefix {
    const uint8_t *bytes;
    size_t length; /* 0: matches every key */
};

enum shmc_status shmc_stage_entry(struct shmc_writer *writer, uint32_t id,
                                  const struct shmc_entry *entry)
{
    struct shmc_wresource *resource = &writer->resources[id];
    enum shmc_status status =
        shmc_list_reserve(&writer->heap, &resource->staged, STAGED_WORDS);

    for (unsigned i = 0; status == SHMC_OK && i < COUNTED_WORDS; i++)
        status = shmc_take(writer, entry->words[i]);
    if (status != SHMC_OK)
        return status;
    uint64_t *to = resource->staged.items + resource->staged.count;
    memcpy(to, entry->words, COUNTED_WORDS * sizeof(uint64_t));
    to[WHEN] = resource->staged_serial++;
    resource->staged.count += STAGED_WORDS;
    return SHMC_OK;
}

enum shmc_status shmc_replace_begin(struct shmc_writer *writer, uint32_t id)
{
    if (writer->in_batch || id >= writer->resource_count)
        return SHMC_INVALID;
    if (writer->resources[id].replacing > 0)
        return SHMC_BUSY;
    writer->resources[id].replacing = 1;
    writer->resources[id].replacing_whole = true;
    return SHMC_OK;
}

enum shmc_status shmc_share_begin(struct shmc_writer *writer, uint32_t id)
{
    if (writer->in_batch || id >= writer->resource_count)
        return SHMC_INVALID;
    if (writer->resources[id].replacing_whole)
        return SHMC_BUSY;
    writer->resources[id].replacing++;
    return SHMC_OK;
}

static bool word_has(const struct shmc_writer *writer, shmc_word key, const struct prefix *prefix)
{
    uint8_t buffer[8];
    size_t length;
    const uint8_t *bytes = shmc_word_bytes(writer, key, buffer, &length);

    return length >= prefix->length &&
           (prefix->length == 0 || memcmp(bytes, prefix->bytes, prefix->length) == 0);
}

static void end_one(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    resource->replacing--;
    resource->replacing_whole = false;
    if (resource->staged.count == 0)
        shmc_list_free(&writer->heap, &resource->staged);
}

enum shmc_status shmc_share_cancel(struct shmc_writer *writer, uint32_t id, const char *prefix,
                                   size_t prefix_length)
{
    const struct prefix wanted = {(const uint8_t *)prefix, prefix_length};

    if (writer->in_batch || id >= writer->resource_count ||
        writer->resources[id].replacing == 0)
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    struct shmc_list *staged = &resource->staged;
    const enum shmc_status status = shmc_limbo_reserve(writer);
    size_t kept = 0;

    if (status != SHMC_OK)
        return status;
    for (size_t i = 0; i < staged->count; i += STAGED_WORDS) {
        uint64_t *words = &staged->items[i];

        if (!word_has(writer, words[0], &wanted)) {
            memmove(&staged->items[kept], words, STAGED_WORDS * sizeof(uint64_t));
            kept += STAGED_WORDS;
            continue;
        }
        for (unsigned k = 0; k < COUNTED_WORDS; k++)
            shmc_count_down(writer, words[k]);
    }
    staged->count = kept;
    end_one(writer, resource);
    return SHMC_OK;
}

enum shmc_status shmc_replace_cancel(struct shmc_writer *writer, uint32_t id)
{
    return shmc_share_cancel(writer, id, NULL, 0);
}

static int compare_words(const struct shmc_writer *writer, shmc_word a, shmc_word b)
{
    uint8_t short_a[8], short_b[8];
    size_t length_a, length_b;
    const uint8_t *bytes_a = shmc_word_bytes(writer, a, short_a, &length_a);
    const uint8_t *bytes_b = shmc_word_bytes(writer, b, short_b, &length_b);
    const int order = memcmp(bytes_a, bytes_b, length_a < length_b ? length_a : length_b);

    if (order != 0)
        return order;
    return (length_a > length_b) - (length_a < length_b);
}

static int by_key(const void *a, const void *b, void *writer)
{
    const shmc_word *x = a;
    const shmc_word *y = b;

    const int order = x[0] == y[0] ? 0 : compare_words(writer, x[0], y[0]);
    return order != 0 ? order : (x[WHEN] > y[WHEN]) - (x[WHEN] < y[WHEN]);
}

static bool is_last_of_its_key(const struct shmc_writer *writer,
                               const struct shmc_wresource *resource, size_t i)
{
    const uint64_t *words = &resource->staged.items[i];

    return i + STAGED_WORDS == resource->staged_to ||
           !shmc_same_value(writer, words[STAGED_WORDS], words[0]);
}

/* Sorts the staged objects; those with the prefix are then in [staged_from, staged_to). */
static void find_share(struct shmc_writer *writer, struct shmc_wresource *resource,
                       const struct prefix *prefix)
{
    const struct shmc_list *staged = &resource->staged;
    size_t i = 0;

    if (staged->count > 0) /* an empty list has no array to sort */
        qsort_r(staged->items, staged->count / STAGED_WORDS, STAGED_WORDS * sizeof(uint64_t),
                by_key, writer);
    while (i < staged->count && !word_has(writer, staged->items[i], prefix))
        i += STAGED_WORDS;
    resource->staged_from = i;
    while (i < staged->count && word_has(writer, staged->items[i], prefix))
        i += STAGED_WORDS;
    resource->staged_to = i;
}

/* Keys of the tree under the prefix that are not staged, or were staged as deleted; walks both
 * in order. */
static enum shmc_status list_gone(struct shmc_writer *writer,
                                  const struct shmc_wresource *resource,
                                  const struct prefix *prefix, struct shmc_list *gone)
{
    const uint64_t *staged = resource->staged.items;
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    size_t i = resource->staged_from;
    enum shmc_status status =
        shmc_cursor_seek(&cursor, &writer->span, &shmc_primary, resource->now.primary, prefix->bytes,
                         prefix->length);

    while (status == SHMC_OK && (status = shmc_cursor_next(&cursor, &entry)) == SHMC_OK &&
           word_has(writer, entry.words[0], prefix)) {
        int order = 1; /* of the staged key against this one */
        for (; i < resource->staged_to; i += STAGED_WORDS) {
            order = staged[i] == entry.words[0]
                        ? 0
                        : compare_words(writer, staged[i], entry.words[0]);
            if (order > 0 || (order == 0 && is_last_of_its_key(writer, resource, i)))
                break;
        }
        if (i == resource->staged_to || order != 0 || staged[i + 1] == SHMC_NOTHING)
            status = shmc_list_push(&writer->heap, gone, entry.words[0]);
    }
    return status == SHMC_EMPTY ? SHMC_OK : status;
}

static enum shmc_status delete_gone(struct shmc_writer *writer, uint32_t id,
                                    const struct shmc_list *gone, const char *version,
                                    size_t version_length)
{
    enum shmc_status status = SHMC_OK;

    for (size_t i = 0; status == SHMC_OK && i < gone->count; i++) {
        uint8_t buffer[8];
        size_t length;
        const uint8_t *key = shmc_word_bytes(writer, gone->items[i], buffer, &length);

        status = shmc_delete(writer, id, (const char *)key, length, version, version_length,
                             SHMC_FLAG_UNKNOWN);
    }
    return status;
}

/* In the order of the keys; of several with one key the last one staged counts. */
static enum shmc_status put_staged(struct shmc_writer *writer, uint32_t id)
{
    const struct shmc_wresource *resource = &writer->resources[id];
    const size_t end = resource->staged_to;
    enum shmc_status status = SHMC_OK;

    for (size_t i = resource->staged_from; status == SHMC_OK && i < end; i += STAGED_WORDS) {
        const shmc_word *words = &writer->resources[id].staged.items[i];
        const struct shmc_entry entry = {{words[0], words[1], words[2], 0}};

        if (words[1] != SHMC_NOTHING && is_last_of_its_key(writer, &writer->resources[id], i))
            status = shmc_put_entry(writer, id, &entry);
        for (unsigned k = 0; status == SHMC_OK && k < COUNTED_WORDS; k++)
            status = shmc_drop_later(writer, words[k]);
    }
    return status;
}

static int by_arrival(const void *a, const void *b)
{
    const shmc_word *x = a;
    const shmc_word *y = b;

    return (x[WHEN] > y[WHEN]) - (x[WHEN] < y[WHEN]);
}

void shmc_stage_undo(struct shmc_wresource *resource)
{
    struct shmc_list *staged = &resource->staged;

    if (staged->count > resource->staged_before) /* a finish may have sorted them */
        qsort(staged->items, staged->count / STAGED_WORDS, STAGED_WORDS * sizeof(uint64_t),
              by_arrival);
    staged->count = resource->staged_before;
    resource->finishing = false;
}

void shmc_stage_done(struct shmc_writer *writer, struct shmc_wresource *resource)
{
    struct shmc_list *staged = &resource->staged;
    const size_t behind = staged->count - resource->staged_to;

    if (!resource->finishing)
        return;
    if (behind > 0)
        memmove(&staged->items[resource->staged_from], &staged->items[resource->staged_to],
                behind * sizeof(uint64_t));
    staged->count -= resource->staged_to - resource->staged_from;
    resource->finishing = false;
    end_one(writer, resource);
}

enum shmc_status shmc_share_finish(struct shmc_writer *writer, uint32_t id, const char *prefix,
                                   size_t prefix_length, const char *version,
                                   size_t version_length)
{
    const struct prefix wanted = {(const uint8_t *)prefix, prefix_length};
    struct shmc_list gone = {0};

    if (!writer->in_batch || writer->poisoned || id >= writer->resource_count ||
        writer->resources[id].replacing == 0 || writer->resources[id].finishing)
        return SHMC_INVALID;
    find_share(writer, &writer->resources[id], &wanted);
    enum shmc_status status = list_gone(writer, &writer->resources[id], &wanted, &gone);
    if (status == SHMC_OK)
        status = delete_gone(writer, id, &gone, version, version_length);
    if (status == SHMC_OK)
        status = put_staged(writer, id);
    if (status == SHMC_OK && version != NULL)
        status = shmc_set_version(writer, id, version, version_length);
    shmc_list_free(&writer->heap, &gone);
    if (status == SHMC_OK)
        writer->resources[id].finishing = true;
    else
        writer->poisoned = true;
    return status;
}

enum shmc_status shmc_replace_finish(struct shmc_writer *writer, uint32_t id, const char *version,
                                     size_t version_length)
{
    return shmc_share_finish(writer, id, NULL, 0, version, version_length);
}
