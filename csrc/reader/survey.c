/*
 * survey.c - the contents of a state, and whether they are consistent: for tools, through a
 * reader's map.
 *
 * check.c knows the writer's private tables and compares with them; this file uses only shared
 * data. The walk opens every block that the latest generation leads to, once for each resource, and
 * compares whatever must agree: trees are in order and as long as their records state
 * (TREE1..TREE3), the directory holds the keys and values of the primary tree (DIRECTORY1,
 * DIRECTORY2), indices name existing keys, the window's slots have their stamps (LAYOUT5), contacts
 * lie in the past (LAYOUT8).
 *
 * Invariants
 *   SURVEY1  nothing is trusted: each block is opened by the functions that check ranges (VALUE1,
 *       VALUE2), and a block is expanded once for each resource, so that the walk ends whatever
 *       bytes it meets.
 *   SURVEY2  a fact that does not hold is CORRUPT only if the generation is valid after the walk
 *       (VALUE3); else it is STALE, and means nothing.
 *
 * Bytes are those of the blocks' content. A block that several resources lead to counts for each of
 * them, and once in the sum.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "trees/tree.h"
#include "writer/writer.h"

struct survey {
    const struct shmc_span *span;
    uint64_t hash_key;
    uint8_t *mine, *all; /* a bit per granule: seen in this resource, seen at all */
    size_t map_size;
    struct shmc_heap heap;
    struct shmc_list todo;     /* words to be opened */
    struct shmc_survey *sum;
    struct shmc_survey_row row;
    uint8_t *key; /* a private copy of the key to look up */
    size_t key_size;
    char *what;
    size_t fault_size;
    bool broken, no_memory;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct survey *survey, const char *format,
                                                       ...)
{
    va_list arguments;

    if (!survey->broken && survey->fault_size > 0) { /* only the first fault matters */
        va_start(arguments, format);
        vsnprintf(survey->what, survey->fault_size, format, arguments);
        va_end(arguments);
    }
    survey->broken = true;
    return false;
}

static bool no_memory(struct survey *survey)
{
    survey->no_memory = true;
    return false;
}

/* ---- which blocks were seen ----------------------------------------------------------------- */

static bool set_bit(uint8_t *map, uint64_t granule)
{
    const uint8_t bit = (uint8_t)(1u << (granule & 7));
    const bool fresh = (map[granule >> 3] & bit) == 0;

    map[granule >> 3] |= bit;
    return fresh;
}

/* Whether the block is new to this resource; if so, it is counted. */
static bool count_block(struct survey *survey, shmc_offset block, uint64_t size, bool tree)
{
    if (!set_bit(survey->mine, block >> 3))
        return false;
    *(tree ? &survey->row.tree_bytes : &survey->row.value_bytes) += size;
    if (set_bit(survey->all, block >> 3)) {
        *(tree ? &survey->sum->tree_bytes : &survey->sum->value_bytes) += size;
        survey->sum->blocks++;
    }
    return true;
}

/* ---- values --------------------------------------------------------------------------------- */

static bool see_word(struct survey *survey, shmc_word word)
{
    if (!shmc_is_block(word))
        return true;
    if (shmc_block_of(word) >= shmc_span_size(survey->span))
        return fail(survey, "a value lies beyond the end, at %#llx", (unsigned long long)word);
    return shmc_list_push(&survey->heap, &survey->todo, word) == SHMC_OK || no_memory(survey);
}

static bool see_words(struct survey *survey, shmc_offset first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const shmc_word word = shmc_load_at(survey->span, first + i * 8);
        if (word == SHMC_NOTHING)
            return fail(survey, "a value is missing, at %#llx",
                        (unsigned long long)(first + i * 8));
        if (!see_word(survey, word))
            return false;
    }
    return true;
}

static bool see_object(struct survey *survey, const struct shmc_object *object, shmc_offset block)
{
    if (!count_block(survey, block, 8 + object->count * 8, false))
        return true;
    if (count_block(survey, object->shape, 16 + object->count * 8, false) &&
        !see_words(survey, object->shape + 16, object->count))
        return false;
    return see_words(survey, object->words, object->count);
}

static bool open_word(struct survey *survey, shmc_word word)
{
    const struct shmc_span *span = survey->span;
    const shmc_offset block = shmc_block_of(word);
    struct shmc_string string;
    struct shmc_array array;
    struct shmc_object object;
    uint64_t kind, bits;

    switch (shmc_tag(word)) {
    case SHMC_TAG_STRING:
        if (!shmc_string_open(span, word, &string))
            break;
        (void)count_block(survey, block, shmc_padded(4 + (uint64_t)string.length), false);
        return true;
    case SHMC_TAG_NUMBER:
        if (!shmc_number_open(span, word, &kind, &bits))
            break;
        (void)count_block(survey, block, 16, false);
        return true;
    case SHMC_TAG_ARRAY:
        if (!shmc_array_open(span, word, &array))
            break;
        return !count_block(survey, block, 8 + array.count * 8, false) ||
               see_words(survey, array.words, array.count);
    default:
        if (!shmc_object_open(span, word, &object))
            break;
        return see_object(survey, &object, block);
    }
    return fail(survey, "a broken value at %#llx", (unsigned long long)word);
}

static bool open_all(struct survey *survey)
{
    while (survey->todo.count > 0) {
        if (!open_word(survey, survey->todo.items[--survey->todo.count]))
            return false;
    }
    return true;
}

/* ---- trees ---------------------------------------------------------------------------------- */

/* The entries of one node, or its children. */
static bool see_node(struct survey *survey, const struct shmc_tree_kind *kind, shmc_offset offset,
                     struct shmc_list *nodes)
{
    const struct shmc_span *span = survey->span;
    struct shmc_node node;

    if (!shmc_node_open(span, kind, offset, &node))
        return fail(survey, "a broken node at %#llx", (unsigned long long)offset);
    if (!count_block(survey, offset,
                     shmc_node_size(node.count, node.prefix_length, node.columns), true))
        return fail(survey, "the node at %#llx has two parents", (unsigned long long)offset);
    for (uint32_t i = 0; i < node.count; i++) {
        if (node.level > 0) {
            if (shmc_list_push(&survey->heap, nodes, shmc_node_child(span, &node, i)) != SHMC_OK)
                return no_memory(survey);
            continue;
        }
        for (uint32_t c = 1; c < node.columns; c++) {
            if (!see_word(survey, shmc_node_word(span, &node, c, i)))
                return false;
        }
    }
    return node.level > 0 || open_all(survey);
}

static bool see_nodes(struct survey *survey, const struct shmc_tree_kind *kind, shmc_offset top)
{
    struct shmc_list nodes = {0};
    bool ok = top == 0 || shmc_list_push(&survey->heap, &nodes, top) == SHMC_OK ||
              no_memory(survey);

    while (ok && nodes.count > 0)
        ok = see_node(survey, kind, nodes.items[--nodes.count], &nodes);
    shmc_list_free(&survey->heap, &nodes);
    return ok;
}

/* A private copy of a key's bytes. */
static bool copy_key(struct survey *survey, shmc_word word, size_t *length)
{
    struct shmc_string string;

    if (!shmc_string_open(survey->span, word, &string))
        return fail(survey, "a broken key at %#llx", (unsigned long long)word);
    if (string.length + 8u > survey->key_size) {
        const size_t size = string.length + 64u;
        uint8_t *grown = realloc(survey->key, size);
        if (grown == NULL)
            return no_memory(survey);
        survey->key = grown;
        survey->key_size = size;
    }
    if (string.block == 0)
        shmc_short_bytes(word, survey->key);
    else
        (void)shmc_string_copy(survey->span, &string, 0, string.length, survey->key);
    *length = string.length;
    return true;
}

/* Order within and across nodes, the number of entries, and that an index names keys that exist. */
static bool see_order(struct survey *survey, const struct shmc_tree_kind *kind, shmc_offset top,
                      uint64_t count, shmc_offset primary)
{
    struct shmc_cursor cursor;
    struct shmc_entry entry, found;
    struct shmc_node_key last = {0}, key;
    uint64_t entries = 0;
    size_t length;

    if (shmc_cursor_seek(&cursor, survey->span, kind, top, NULL, 0) != SHMC_OK)
        return fail(survey, "a tree cannot be walked");
    for (; shmc_cursor_next(&cursor, &entry) == SHMC_OK && entries <= count; last = key) {
        if (!shmc_node_key_open(survey->span, kind, entry.words, &key))
            return fail(survey, "a broken key");
        if (entries++ > 0 && shmc_node_key_compare(survey->span, &last, &key) >= 0)
            return fail(survey, "TREE1: keys do not rise");
        if (kind->key_words < 2)
            continue;
        if (!copy_key(survey, entry.words[1], &length))
            return false;
        if (shmc_tree_find(survey->span, &shmc_primary, primary, survey->key, length, &found) !=
            SHMC_OK)
            return fail(survey, "an index names a key that does not exist");
    }
    return entries == count || fail(survey, "a tree of %llu entries has another number of them",
                                    (unsigned long long)count);
}

/* ---- directories ---------------------------------------------------------------------------- */

/* DIRECTORY1 and DIRECTORY2 for one entry of a bucket. */
static bool see_directory_entry(struct survey *survey, const struct shmc_record *record,
                                const struct shmc_directory_node *bucket, uint64_t index)
{
    const struct shmc_span *span = survey->span;
    const uint64_t hash = shmc_load_at(span, bucket->words + index * 8);
    const shmc_word key = shmc_load_at(span, bucket->words + (bucket->count + index) * 8);
    const shmc_word value = shmc_load_at(span, bucket->words + (2 * bucket->count + index) * 8);
    struct shmc_entry entry;
    shmc_word found;
    size_t length;

    if (!copy_key(survey, key, &length))
        return false;
    if (shmc_tree_find(span, &shmc_primary, record->primary, survey->key, length, &entry) !=
            SHMC_OK ||
        entry.words[0] != key || entry.words[1] != value)
        return fail(survey, "DIRECTORY1: a directory differs from the primary tree");
    if (shmc_key_hash(survey->hash_key, survey->key, length) != hash ||
        shmc_directory_find(span, record->directory, hash, survey->key, length, &found) !=
            SHMC_OK ||
        found != value)
        return fail(survey, "DIRECTORY2: no look-up finds an entry of a directory");
    return true;
}

static bool see_directory_node(struct survey *survey, const struct shmc_record *record,
                               shmc_offset offset, struct shmc_list *nodes, uint64_t *entries)
{
    struct shmc_directory_node node;

    if (!shmc_directory_node(survey->span, offset, &node))
        return fail(survey, "DIRECTORY3: a broken node of a directory at %#llx",
                    (unsigned long long)offset);
    const uint64_t size = node.words - offset + node.count * (node.inner ? 8 : 24);
    if (!count_block(survey, offset, size, true))
        return fail(survey, "the node at %#llx has two parents", (unsigned long long)offset);
    for (uint64_t i = 0; i < node.count; i++) {
        if (!node.inner) {
            if (!see_directory_entry(survey, record, &node, i))
                return false;
            continue;
        }
        const shmc_offset child = shmc_load_at(survey->span, node.words + i * 8);
        if (child != 0 && shmc_list_push(&survey->heap, nodes, child) != SHMC_OK)
            return no_memory(survey);
    }
    *entries += node.inner ? 0 : node.count;
    return true;
}

static bool see_directory(struct survey *survey, const struct shmc_record *record)
{
    struct shmc_list nodes = {0};
    uint64_t entries = 0;
    bool ok = record->directory == 0 ||
              shmc_list_push(&survey->heap, &nodes, record->directory) == SHMC_OK ||
              no_memory(survey);

    while (ok && nodes.count > 0)
        ok = see_directory_node(survey, record, nodes.items[--nodes.count], &nodes, &entries);
    shmc_list_free(&survey->heap, &nodes);
    if (ok && entries != record->count)
        return fail(survey, "DIRECTORY1: a directory of %llu entries for %llu objects",
                    (unsigned long long)entries, (unsigned long long)record->count);
    return ok;
}

/* ---- a state -------------------------------------------------------------------------------- */

static bool see_index(struct survey *survey, const struct shmc_record *record, shmc_offset indices,
                      uint64_t number)
{
    struct shmc_record_index index;

    if (shmc_record_index_load(survey->span, indices, number, &index) != SHMC_OK)
        return fail(survey, "a broken index");
    survey->row.index_entries += index.count;
    return see_word(survey, index.name) && see_word(survey, index.settings) && open_all(survey) &&
           see_nodes(survey, &shmc_index, index.tree) &&
           see_order(survey, &shmc_index, index.tree, index.count, record->primary);
}

static bool see_resource(struct survey *survey, const struct shmc_pinned *at, uint64_t id)
{
    const uint64_t now_ns = shmc_monotonic_ns();
    struct shmc_record record;
    struct shmc_note note;
    shmc_offset indices;

    memset(survey->mine, 0, survey->map_size);
    memset(&survey->row, 0, sizeof survey->row);
    if (shmc_record_load(survey->span, at, id, &record, &indices) != SHMC_OK)
        return fail(survey, "LAYOUT2: resource %llu has a broken record", (unsigned long long)id);
    (void)count_block(survey, indices - sizeof record,
                      sizeof record + record.index_count * sizeof(struct shmc_record_index), true);
    if (shmc_contact_load(survey->span, record.contact, &note) != SHMC_OK ||
        note.contact_ns > now_ns + UINT64_C(1000000000) || record.since_ns > now_ns)
        return fail(survey, "LAYOUT8: a contact or a state of resource %llu is younger than now",
                    (unsigned long long)id);
    (void)count_block(survey, record.contact, sizeof(struct shmc_contact), true);
    survey->row.objects = record.count;
    if (!see_word(survey, record.name) || !see_word(survey, record.settings) ||
        !see_word(survey, record.version) || !see_word(survey, record.reason) ||
        !open_all(survey) || !see_nodes(survey, &shmc_primary, record.primary) ||
        !see_order(survey, &shmc_primary, record.primary, record.count, 0) ||
        !see_directory(survey, &record))
        return false;
    for (uint64_t i = 0; i < record.index_count; i++) {
        if (!see_index(survey, &record, indices, i))
            return false;
    }
    return true;
}

/* The writer continues meanwhile, and so does the window's tail: slots that it has overtaken no
 * longer belong to this state. */
static bool see_window(struct survey *survey, const struct shmc_reader *reader,
                       const struct shmc_pinned *at)
{
    struct shmc_delta delta;
    size_t count;

    memset(survey->mine, 0, survey->map_size);
    if (at->tail > at->head || at->head - at->tail > at->slots / 2)
        return fail(survey, "LAYOUT5: the window is too wide");
    for (uint64_t n = at->tail; n < at->head; n++) {
        const enum shmc_status status = shmc_ring_take(reader, at, n, &delta, 1, &count);
        if (status == SHMC_LAPPED && shmc_load_acquire(&reader->super->latest) != at->generation)
            continue;
        if (status != SHMC_OK || delta.number != n)
            return fail(survey, "LAYOUT5: slot %llu of the window has another stamp",
                        (unsigned long long)n);
        survey->sum->window++;
        if (!see_word(survey, delta.key) || !see_word(survey, delta.version) ||
            !see_word(survey, delta.old_value) || !see_word(survey, delta.new_value) ||
            !open_all(survey))
            return false;
    }
    return true;
}

static bool see_state(struct survey *survey, const struct shmc_reader *reader,
                      const struct shmc_pinned *at, struct shmc_survey_row *rows,
                      uint64_t capacity)
{
    if (shmc_catalogue_count(survey->span, at, &survey->sum->resources) != SHMC_OK)
        return fail(survey, "LAYOUT2: the catalogue cannot be read");
    for (uint64_t id = 0; id < survey->sum->resources; id++) {
        if (!see_resource(survey, at, id))
            return false;
        if (id < capacity)
            rows[id] = survey->row;
    }
    return see_window(survey, reader, at);
}

static enum shmc_status survey_pinned(struct shmc_reader *reader, const struct shmc_pinned *at,
                                      struct survey *survey, struct shmc_survey_row *rows,
                                      uint64_t capacity)
{
    const struct shmc_span span = {reader->span.base, at->high_water, reader->span.first};

    survey->span = &span;
    survey->map_size = (size_t)(span.size / 64 + 1);
    survey->mine = calloc(1, survey->map_size);
    survey->all = calloc(1, survey->map_size);
    bool ok = survey->mine != NULL && survey->all != NULL;
    if (!ok)
        survey->no_memory = true;
    ok = ok && see_state(survey, reader, at, rows, capacity);
    shmc_list_free(&survey->heap, &survey->todo);
    free(survey->mine);
    free(survey->all);
    free(survey->key);
    if (survey->no_memory)
        return SHMC_NO_MEMORY;
    if (!shmc_valid(reader->super, at->generation)) /* SURVEY2 */
        return SHMC_STALE;
    return ok ? SHMC_OK : SHMC_CORRUPT;
}

enum shmc_status shmc_survey(struct shmc_reader *reader, struct shmc_survey *sum,
                             struct shmc_survey_row *rows, uint64_t capacity, char *what,
                             size_t fault_size)
{
    struct survey survey = {.hash_key = reader->super->hash_key,
                            .sum = sum,
                            .what = what,
                            .fault_size = fault_size};
    struct shmc_pinned at;

    memset(sum, 0, sizeof *sum);
    if (fault_size > 0)
        what[0] = 0;
    enum shmc_status status = shmc_pin(reader, &at);
    if (status != SHMC_OK)
        return status;
    sum->generation = at.generation;
    if (at.high_water > shmc_span_size(&reader->span))
        status = fail(&survey, "LAYOUT3: the high water is above the file's end") ? SHMC_OK
                                                                            : SHMC_CORRUPT;
    else
        status = survey_pinned(reader, &at, &survey, rows, capacity);
    shmc_unpin(reader, &at);
    return status;
}
