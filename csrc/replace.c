/*
 * replace.c - a resource replaced as a whole, without anybody seeing half of it.
 *
 * A relist may take seconds and come in pages, while other resources go on. So its
 * objects are staged first: built, counted and listed in private memory, in batches
 * that publish nothing. The finish compares what is staged with what is there, and
 * changes only what differs, in one batch: a relist in which nothing changed leaves
 * no trace at all. Objects that are gone are deleted first, marked as "final state
 * unknown": nobody saw how they went.
 *
 * If the writer dies meanwhile, nothing staged is reachable, and nothing is lost.
 */
#include <stdlib.h>

#include "writer.h"

#define STAGED_WORDS 4u /* key, value, extra; and when it came: the last of a key counts */
#define COUNTED_WORDS 3u

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
    to[COUNTED_WORDS] = resource->staged.count;
    resource->staged.count += STAGED_WORDS;
    return SHMC_OK;
}

enum shmc_status shmc_replace_begin(struct shmc_writer *writer, uint32_t id)
{
    if (writer->in_batch || id >= writer->resource_count)
        return SHMC_INVALID;
    if (writer->resources[id].replacing)
        return SHMC_BUSY;
    writer->resources[id].replacing = true;
    return SHMC_OK;
}

enum shmc_status shmc_replace_cancel(struct shmc_writer *writer, uint32_t id)
{
    if (writer->in_batch || id >= writer->resource_count)
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    const enum shmc_status status = shmc_limbo_reserve(writer);

    if (status != SHMC_OK)
        return status;
    for (size_t i = 0; i < resource->staged.count; i++) {
        if (i % STAGED_WORDS < COUNTED_WORDS)
            shmc_count_down(writer, resource->staged.items[i]);
    }
    shmc_list_free(&writer->heap, &resource->staged);
    resource->replacing = false;
    return SHMC_OK;
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

    if (x[0] == y[0]) /* equal strings are one word */
        return (x[COUNTED_WORDS] > y[COUNTED_WORDS]) - (x[COUNTED_WORDS] < y[COUNTED_WORDS]);
    return compare_words(writer, x[0], y[0]);
}

/* Keys of the tree that are not staged; both are walked in order. */
static enum shmc_status list_gone(struct shmc_writer *writer,
                                  const struct shmc_wresource *resource, struct shmc_list *gone)
{
    const struct shmc_list *staged = &resource->staged;
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    size_t i = 0;
    enum shmc_status status = shmc_cursor_seek(&cursor, &writer->span, &shmc_primary,
                                               resource->primary, NULL, 0);

    while (status == SHMC_OK && (status = shmc_cursor_next(&cursor, &entry)) == SHMC_OK) {
        while (i < staged->count &&
               compare_words(writer, staged->items[i], entry.words[0]) < 0)
            i += STAGED_WORDS;
        if (i == staged->count || staged->items[i] != entry.words[0])
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

/* In the order of the keys; of several with one key the last that was staged counts. */
static enum shmc_status put_staged(struct shmc_writer *writer, uint32_t id)
{
    const struct shmc_list *staged = &writer->resources[id].staged;
    enum shmc_status status = SHMC_OK;

    for (size_t i = 0; status == SHMC_OK && i < staged->count; i += STAGED_WORDS) {
        const shmc_word *words = &staged->items[i];
        const struct shmc_entry entry = {{words[0], words[1], words[2], 0}};
        const bool repeated =
            i + STAGED_WORDS < staged->count && words[STAGED_WORDS] == words[0];

        if (!repeated)
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

    return (x[COUNTED_WORDS] > y[COUNTED_WORDS]) - (x[COUNTED_WORDS] < y[COUNTED_WORDS]);
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

enum shmc_status shmc_replace_finish(struct shmc_writer *writer, uint32_t id, const char *version,
                                     size_t version_length)
{
    struct shmc_list gone = {0};

    if (!writer->in_batch || writer->poisoned || id >= writer->resource_count ||
        !writer->resources[id].replacing || writer->resources[id].finishing)
        return SHMC_INVALID;
    struct shmc_wresource *resource = &writer->resources[id];
    if (resource->staged.count > 0) /* there is no array of nothing to sort */
        qsort_r(resource->staged.items, resource->staged.count / STAGED_WORDS,
                STAGED_WORDS * sizeof(uint64_t), by_key, writer);
    enum shmc_status status = list_gone(writer, resource, &gone);
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
