/*
 * indices.c - from one version of an object to the next, in every index.
 *
 * An index entry is (value, key): it names the object's key, not the object, so an
 * update that does not change an index's values does not touch that index. Values
 * come from a path, evaluated here on the decoded words, or from outside with
 * each put (functions): those are stored with the object, in `extra` of its entry,
 * and used for the removal, since a function may return something else next time.
 *
 *   extra    version                              where no index has outside values
 *            [version, [value ...], [value ...]]  one array for each such index
 *
 * A path is keys and wildcards: spec.nodeName, metadata.ownerReferences[*].uid,
 * metadata.labels['app.kubernetes.io/name']. Its result decides the values:
 *   string, number, bool   its text is the value
 *   object                 "key=value" for each member with a text (labels)
 *   array                  each element's text
 *   null, absent           no value, and no trace
 *
 * In the tree a value's bytes 0 and 1 are escaped, since NUL separates value and key.
 */
#include <stdlib.h>

#include "writer/writer.h"

struct emit {
    struct shmc_writer *writer;
    struct shmc_windex *index;
    struct shmc_list values; /* words of value strings, escaped as in the tree */
};

static enum shmc_status scratch_reserve(struct shmc_writer *writer, size_t size)
{
    if (size <= writer->scratch_size)
        return SHMC_OK;
    uint8_t *scratch =
        shmc_heap_resize(&writer->heap, writer->scratch, writer->scratch_size, size * 2);
    if (scratch == NULL)
        return SHMC_NO_MEMORY;
    writer->scratch = scratch;
    writer->scratch_size = size * 2;
    return SHMC_OK;
}

/* ---- values ----------------------------------------------------------------------------- */

/* Escapes and makes the value from bytes that may lie anywhere but in scratch. */
static enum shmc_status emit_bytes(struct emit *emit, const uint8_t *bytes, size_t length)
{
    struct shmc_writer *writer = emit->writer;
    uint32_t flags = 0;
    shmc_word word;
    enum shmc_status status = scratch_reserve(writer, length * 2 + 1);

    if (status != SHMC_OK)
        return status;
    const size_t size = shmc_index_escape(bytes, length, writer->scratch);
    if (!shmc_string_flags(writer->scratch, size, &flags))
        return SHMC_INVALID;
    status = shmc_make_string(writer, writer->scratch, size, flags, &word);
    if (status != SHMC_OK)
        return status;
    return shmc_list_push(&writer->heap, &emit->values, word);
}

/* The text of a scalar: its bytes, or its digits in `buffer`. NULL: it has no text. */
static const uint8_t *text_of(const struct shmc_writer *writer, shmc_word word,
                              char buffer[SHMC_TEXT_MAX], size_t *length)
{
    if (shmc_tag(word) == SHMC_TAG_SHORT || shmc_tag(word) == SHMC_TAG_STRING)
        return shmc_word_bytes(writer, word, (uint8_t *)buffer, length);
    *length = shmc_number_text(&writer->span, word, buffer);
    return *length != 0 ? (const uint8_t *)buffer : NULL;
}

static enum shmc_status emit_scalar(struct emit *emit, shmc_word word)
{
    char buffer[SHMC_TEXT_MAX];
    size_t length = 0;
    const uint8_t *text = text_of(emit->writer, word, buffer, &length);

    return text == NULL ? SHMC_OK : emit_bytes(emit, text, length);
}

/* "key=value" for each member; not for those that are equal in `beside`, an object of the same
 * shape (or SHMC_NOTHING). */
static enum shmc_status emit_members(struct emit *emit, shmc_word word, shmc_word beside)
{
    struct shmc_writer *writer = emit->writer;
    struct shmc_object object;
    struct shmc_list pair = {0};
    enum shmc_status status = SHMC_OK;

    if (!shmc_object_open(&writer->span, word, &object))
        return SHMC_CORRUPT;
    for (uint64_t i = 0; status == SHMC_OK && i < object.count; i++) {
        if (beside != SHMC_NOTHING &&
            shmc_load_at(&writer->span, object.words + i * 8) ==
                shmc_load_at(&writer->span, shmc_block_of(beside) + 8 + i * 8))
            continue;
        char buffer[SHMC_TEXT_MAX];
        uint8_t short_key[8];
        size_t key_length, length = 0;
        const uint8_t *key = shmc_word_bytes(
            writer, shmc_object_key(&writer->span, &object, i), short_key, &key_length);
        const uint8_t *text = text_of(
            writer, shmc_load_at(&writer->span, object.words + i * 8), buffer, &length);

        if (text == NULL)
            continue;
        pair.count = 0;
        status = shmc_list_reserve(&writer->heap, &pair, (key_length + 1 + length) / 8 + 1);
        if (status != SHMC_OK)
            break;
        uint8_t *bytes = (uint8_t *)pair.items;
        memcpy(bytes, key, key_length);
        bytes[key_length] = '=';
        memcpy(bytes + key_length + 1, text, length);
        status = emit_bytes(emit, bytes, key_length + 1 + length);
    }
    shmc_list_free(&writer->heap, &pair);
    return status;
}

static enum shmc_status emit_elements(struct emit *emit, shmc_word word)
{
    const struct shmc_span *span = &emit->writer->span;
    struct shmc_array array;
    enum shmc_status status = SHMC_OK;

    if (!shmc_array_open(span, word, &array))
        return SHMC_CORRUPT;
    for (uint64_t i = 0; status == SHMC_OK && i < array.count; i++)
        status = emit_scalar(emit, shmc_load_at(&emit->writer->span, array.words + i * 8));
    return status;
}

/* ---- paths ------------------------------------------------------------------------------- */

struct step {
    const uint8_t *key; /* NULL: [*] */
    uint32_t length;
    size_t left; /* of the path, after it */
    struct shmc_members *members;
};

/* Takes the first step off a path; returns its length, 0: the end, -1: it is invalid. */
static int path_step(const char *path, size_t left, struct step *step)
{
    const char *at = path;
    size_t rest = left;
    size_t length = 0;
    size_t used;

    if (rest > 0 && at[0] == '.') {
        at++;
        rest--;
    }
    if (rest == 0)
        return at == path ? 0 : -1;
    if (at[0] == '[') {
        if (rest >= 3 && at[1] == '*' && at[2] == ']') {
            step->key = NULL;
            step->length = 0;
            used = 3;
        } else {
            const char quote = rest > 1 ? at[1] : 0;
            while (2 + length < rest && at[2 + length] != quote)
                length++;
            if ((quote != '\'' && quote != '"') || 3 + length >= rest || at[3 + length] != ']')
                return -1;
            step->key = (const uint8_t *)at + 2;
            step->length = (uint32_t)length;
            used = length + 4;
        }
    } else {
        while (length < rest && at[length] != '.' && at[length] != '[')
            length++;
        if (length == 0)
            return -1;
        step->key = (const uint8_t *)at;
        step->length = (uint32_t)length;
        used = length;
    }
    step->left = rest - used;
    return 1;
}

bool shmc_path_valid(const char *path, size_t length)
{
    struct step step = {.left = length};
    int more;
    unsigned steps = 0;

    while ((more = path_step(path + (length - step.left), step.left, &step)) > 0)
        steps++;
    return more == 0 && steps > 0 && steps <= 64;
}

/* Step `number` of an index's path, of which `left` bytes remain; false at its end. */
static bool step_of(struct shmc_windex *index, unsigned number, size_t left, struct step *step)
{
    const char *path = index->path;

    if (left == 0)
        return false;
    step->members = NULL;
    if (number >= SHMC_STEPS)
        return path_step(path + (index->path_length - left), left, step) > 0;
    struct shmc_step *known = &index->steps[number];
    if (!known->known) {
        if (path_step(path + (index->path_length - left), left, step) <= 0)
            return false;
        known->from = step->key == NULL ? 0 : (uint32_t)((const char *)step->key - path);
        known->length = step->key == NULL ? SHMC_EACH : step->length;
        known->left = (uint32_t)step->left;
        known->known = true;
    }
    step->key = known->length == SHMC_EACH ? NULL : (const uint8_t *)path + known->from;
    step->length = known->length;
    step->left = known->left;
    step->members = &known->members;
    return true;
}

static shmc_word take_step(const struct shmc_span *span, const struct step *step, shmc_word word)
{
    return step->members == NULL ? shmc_object_find(span, word, step->key, step->length)
                                 : shmc_member(span, step->members, word, step->key, step->length);
}

/* From step `number` on, with `left` bytes of the path. */
static enum shmc_status emit_path(struct emit *emit, unsigned number, size_t left, shmc_word word)
{
    const struct shmc_span *span = &emit->writer->span;
    struct step step;

    for (; word != SHMC_NOTHING && step_of(emit->index, number, left, &step); number++) {
        struct shmc_array array;

        left = step.left;
        if (step.key != NULL) {
            word = take_step(span, &step, word);
            continue;
        }
        if (!shmc_array_open(span, word, &array))
            return SHMC_OK; /* not an array: no values */
        enum shmc_status status = SHMC_OK;
        for (uint64_t i = 0; status == SHMC_OK && i < array.count; i++)
            status =
                emit_path(emit, number + 1, left, shmc_load_at(span, array.words + i * 8));
        return status;
    }
    if (shmc_tag(word) == SHMC_TAG_OBJECT)
        return emit_members(emit, word, SHMC_NOTHING);
    if (shmc_tag(word) == SHMC_TAG_ARRAY)
        return emit_elements(emit, word);
    return emit_scalar(emit, word);
}

/* The word that a path leads to in both objects: true at its end, or where the words are the same
 * (then nothing below changed); false at a wildcard. */
static bool path_both(const struct shmc_span *span, struct shmc_windex *index, shmc_word both[2])
{
    struct step step = {.left = index->path_length};

    for (unsigned number = 0;
         both[0] != both[1] && step_of(index, number, step.left, &step); number++) {
        if (step.key == NULL)
            return false;
        both[0] = take_step(span, &step, both[0]);
        both[1] = take_step(span, &step, both[1]);
    }
    return true;
}

/*
 * Objects of one shape whose members' texts all differ: no key has the sign that separates key and
 * value. Members equal in both then need no look: no other member adds or removes their values.
 */
static bool members_differ(const struct shmc_writer *writer, const shmc_word both[2])
{
    struct shmc_object old, new;

    if (shmc_tag(both[0]) != SHMC_TAG_OBJECT || shmc_tag(both[1]) != SHMC_TAG_OBJECT ||
        !shmc_object_open(&writer->span, both[0], &old) ||
        !shmc_object_open(&writer->span, both[1], &new) || old.shape != new.shape)
        return false;
    for (uint64_t i = 0; i < old.count; i++) {
        uint8_t buffer[8];
        size_t length;
        const uint8_t *key =
            shmc_word_bytes(writer, shmc_object_key(&writer->span, &old, i), buffer, &length);
        if (SHMC_CHECKED(NO_SIGN_CHECK, memchr(key, '=', length) == NULL))
            continue;
        return false;
    }
    return true;
}

/* Where the path's results differ between the two objects. */
static enum shmc_status emit_both(struct emit *before, struct emit *after, const shmc_word old[2],
                                  const shmc_word new[2], const shmc_word both[2], bool at_end)
{
    const struct shmc_windex *index = before->index;
    const bool some = at_end && members_differ(before->writer, both);
    const enum shmc_status status = some ? emit_members(before, both[0], both[1])
                                         : emit_path(before, 0, index->path_length, old[0]);

    if (status != SHMC_OK)
        return status;
    return some ? emit_members(after, both[1], both[0])
                : emit_path(after, 0, index->path_length, new[0]);
}

/* ---- outside values ------------------------------------------------------------------------ */

/* The array of index number `external` among those with outside values; NOTHING if absent. */
static shmc_word external_of(const struct shmc_span *span, shmc_word extra, size_t external)
{
    struct shmc_array array;

    if (shmc_tag(extra) != SHMC_TAG_ARRAY || !shmc_array_open(span, extra, &array) ||
        external + 1 >= array.count)
        return SHMC_NOTHING;
    return shmc_load_at(span, array.words + (external + 1) * 8);
}

static enum shmc_status emit_external(struct emit *emit, shmc_word extra, size_t external)
{
    const shmc_word values = external_of(&emit->writer->span, extra, external);

    return values == SHMC_NOTHING ? SHMC_OK : emit_elements(emit, values);
}

/* ---- the difference -------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void sort_distinct(struct shmc_list *list)
{
    size_t kept = 0;

    if (list->count < 2)
        return;
    qsort(list->items, list->count, sizeof(uint64_t), by_number);
    for (size_t i = 0; i < list->count; i++) {
        if (i == 0 || list->items[i] != list->items[kept - 1])
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

/* value NUL key, in scratch. */
static enum shmc_status entry_bytes(struct shmc_writer *writer, shmc_word value, shmc_word key,
                                    size_t *length)
{
    uint8_t short_value[8], short_key[8];
    size_t value_length, key_length;
    const uint8_t *value_bytes = shmc_word_bytes(writer, value, short_value, &value_length);
    const uint8_t *key_bytes = shmc_word_bytes(writer, key, short_key, &key_length);
    const enum shmc_status status = scratch_reserve(writer, value_length + key_length + 1);

    if (status != SHMC_OK)
        return status;
    memcpy(writer->scratch, value_bytes, value_length);
    writer->scratch[value_length] = 0;
    memcpy(writer->scratch + value_length + 1, key_bytes, key_length);
    *length = value_length + 1 + key_length;
    return SHMC_OK;
}

static enum shmc_status entry_remove(struct shmc_writer *writer, struct shmc_windex *index,
                                     shmc_word value, shmc_word key)
{
    struct shmc_entry old;
    size_t length;
    enum shmc_status status = entry_bytes(writer, value, key, &length);

    if (status == SHMC_OK)
        status = shmc_tree_delete(writer, &shmc_index, &index->tree, writer->scratch, length, &old);
    if (status == SHMC_NOT_FOUND)
        return SHMC_CORRUPT; /* an entry that was put must be there */
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, old.words[0]);
    if (status == SHMC_OK)
        status = shmc_drop_later(writer, old.words[1]);
    index->count -= status == SHMC_OK;
    return status;
}

static enum shmc_status entry_add(struct shmc_writer *writer, struct shmc_windex *index,
                                  shmc_word value, shmc_word key)
{
    const struct shmc_entry entry = {{value, key, 0, 0}};
    struct shmc_path path;
    size_t length;
    enum shmc_status status = entry_bytes(writer, value, key, &length);

    if (status == SHMC_OK)
        status =
            shmc_path_find(writer, &shmc_index, index->tree, writer->scratch, length, &path);
    if (status != SHMC_NOT_FOUND) /* already there: nothing to do */
        return status;
    status = shmc_path_put(writer, &shmc_index, &path, &entry, &index->tree);
    if (status == SHMC_OK)
        status = shmc_take(writer, value);
    if (status == SHMC_OK)
        status = shmc_take(writer, key);
    index->count += status == SHMC_OK;
    return status;
}

static enum shmc_status apply_difference(struct shmc_writer *writer, struct shmc_windex *index,
                                         shmc_word key, struct shmc_list *old,
                                         struct shmc_list *new)
{
    size_t i = 0, k = 0;
    enum shmc_status status = SHMC_OK;

    sort_distinct(old);
    sort_distinct(new);
    while (status == SHMC_OK && (i < old->count || k < new->count)) {
        if (k == new->count || (i < old->count && old->items[i] < new->items[k]))
            status = entry_remove(writer, index, old->items[i++], key);
        else if (i == old->count || new->items[k] < old->items[i])
            status = entry_add(writer, index, new->items[k++], key);
        else
            i++, k++;
    }
    return status;
}

static enum shmc_status index_update(struct shmc_writer *writer, struct shmc_windex *index,
                                     size_t external, shmc_word key, const shmc_word old[2],
                                     const shmc_word new[2])
{
    shmc_word both[2] = {old[0], new[0]};
    bool at_end = false;

    if (index->path != NULL) {
        at_end = path_both(&writer->span, index, both);
    } else {
        both[0] = external_of(&writer->span, old[1], external);
        both[1] = external_of(&writer->span, new[1], external);
    }
    if (both[0] == both[1]) /* as nearly always */
        return SHMC_OK;

    struct emit before = {.writer = writer, .index = index};
    struct emit after = {.writer = writer, .index = index};
    enum shmc_status status;
    if (index->path != NULL) {
        status = emit_both(&before, &after, old, new, both, at_end);
    } else {
        status = emit_external(&before, old[1], external);
        if (status == SHMC_OK)
            status = emit_external(&after, new[1], external);
    }
    if (status == SHMC_OK)
        status = apply_difference(writer, index, key, &before.values, &after.values);
    shmc_list_free(&writer->heap, &before.values);
    shmc_list_free(&writer->heap, &after.values);
    return status;
}

enum shmc_status shmc_indices_update(struct shmc_writer *writer, struct shmc_wresource *resource,
                                     shmc_word key, shmc_word old_value, shmc_word old_extra,
                                     shmc_word new_value, shmc_word new_extra)
{
    const shmc_word old[2] = {old_value, old_extra};
    const shmc_word new[2] = {new_value, new_extra};
    size_t external = 0;

    for (uint32_t i = 0; i < resource->now.index_count; i++) {
        struct shmc_windex *index = &resource->indices[i];
        const enum shmc_status status =
            index_update(writer, index, external, key, old, new);

        if (status != SHMC_OK)
            return status;
        external += index->path == NULL;
    }
    return SHMC_OK;
}

enum shmc_status shmc_index_fill(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 uint32_t number)
{
    struct shmc_windex *index = &resource->indices[number];
    const shmc_word nothing[2] = {SHMC_NOTHING, SHMC_NOTHING};
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    enum shmc_status status = shmc_cursor_seek(&cursor, &writer->span, &shmc_primary,
                                               resource->now.primary, NULL, 0);

    if (index->path == NULL)
        return SHMC_OK;
    while (status == SHMC_OK) {
        status = shmc_cursor_next(&cursor, &entry);
        if (status == SHMC_EMPTY)
            return SHMC_OK;
        const shmc_word object[2] = {entry.words[1], entry.words[2]};
        if (status == SHMC_OK)
            status = index_update(writer, index, 0, entry.words[0], nothing, object);
    }
    return status;
}
