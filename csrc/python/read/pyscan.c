/*
 * pyscan.c - a bounded walk over a tree of one root, chunk by chunk.
 *
 *   cursor --> entries[SHMC_CHUNK] --> cut at the stop --> objects of the keys --> settle
 *                                      (one comparison     (an index names keys;
 *                                       for most chunks)    looked up in the same root)
 *          --> Python objects, one after another; then the next chunk
 *
 * Between two chunks any code may run (a collection, another thread, close()): the scan's
 * root is held by its user, and the next chunk is settled again before it is trusted.
 * Chunks start small and double, so that a prefix of five objects does not copy a hundred.
 *
 * Progress: a walk returns at most as many entries as the record counts, distinct values
 * take at most as many seeks; more is corruption.
 */
#include "python/read/pyread.h"

#define FIRST_CHUNK 16u
#define BESIDE_STEPS 8u
#define BESIDE_PAUSE 256u

static enum shmc_status copy_string(const shmc_pyroot *root, shmc_word word,
                                    struct shmc_pybytes *to)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    struct shmc_string string;

    if (!shmc_string_open(span, word, &string))
        return SHMC_CORRUPT;
    /* A length that causes an allocation is trusted only while the generation is valid. */
    if (string.length > sizeof to->own &&
        !shmc_valid(root->reader->reader->super, root->at.generation))
        return SHMC_STALE;
    to->length = 0;
    uint8_t *const at = shmc_pybytes_extend(to, string.length);
    if (at == NULL)
        return SHMC_NO_MEMORY;
    shmc_string_copy(span, &string, 0, string.length, at);
    return SHMC_OK;
}

/* ---- one chunk ------------------------------------------------------------------------------ */

static enum shmc_status before_stop(const struct shmc_pyscan *scan, size_t position, bool *before)
{
    const struct shmc_pybytes *stop = &scan->bounds->stop;
    const struct shmc_span *span = shmc_pyroot_span(scan->root);
    struct shmc_string string;

    if (!shmc_string_open(span, scan->entries[position].words[0], &string))
        return SHMC_CORRUPT;
    const uint32_t common =
        string.length < stop->length ? string.length : (uint32_t)stop->length;
    const int order = shmc_string_compare(span, &string, 0, common, stop->at);
    *before = order < 0 || (order == 0 && string.length < stop->length);
    return SHMC_OK;
}

/* Entries are in order: most often the last one is before the stop, and so all are. */
static enum shmc_status cut(struct shmc_pyscan *scan)
{
    size_t low = 0, high = scan->count, probe = scan->count - 1; /* the last usually decides */

    while (low < high) {
        bool before;
        const enum shmc_status status = before_stop(scan, probe, &before);
        if (status != SHMC_OK)
            return status;
        if (before)
            low = probe + 1;
        else
            high = probe;
        probe = low + (high - low) / 2;
    }
    if (low < scan->count)
        scan->ended = true;
    scan->count = low;
    return SHMC_OK;
}

/* Keys of one value are in order, and the walk began at the prefix: the first mismatch ends it. */
static enum shmc_status cut_prefix(struct shmc_pyscan *scan)
{
    const struct shmc_pybytes *prefix = &scan->bounds->prefix;
    struct shmc_string key;

    for (size_t i = 0; prefix->length != 0 && i < scan->count; i++) {
        if (!shmc_string_open(shmc_pyroot_span(scan->root), scan->entries[i].words[1], &key))
            return SHMC_CORRUPT;
        if (key.length >= prefix->length &&
            shmc_string_compare(shmc_pyroot_span(scan->root), &key, 0, (uint32_t)prefix->length,
                                prefix->at) == 0)
            continue;
        scan->count = i;
        scan->ended = true;
    }
    return SHMC_OK;
}

/*
 * The keys of an index value usually lie near each other in the primary tree (the pods of a
 * deployment, a namespace): then the next one is a few steps ahead there, and is recognised by its
 * word alone. Where that fails, it is tried again after a pause that grows.
 */
static bool find_beside(struct shmc_pyscan *scan, struct shmc_entry *entry)
{
    struct shmc_entry at;

    for (unsigned steps = 0; steps < BESIDE_STEPS; steps++) {
        if (shmc_cursor_next(&scan->beside.cursor, &at) != SHMC_OK)
            break;
        if (at.words[0] != entry->words[1])
            continue;
        entry->words[2] = at.words[1];
        scan->beside.run++;
        return true;
    }
    scan->beside.gap = scan->beside.run >= BESIDE_STEPS ? 0 : scan->beside.gap * 2 + 4;
    scan->beside.pause = scan->beside.gap < BESIDE_PAUSE ? scan->beside.gap : BESIDE_PAUSE;
    scan->beside.on = false;
    return false;
}

static enum shmc_status start_beside(struct shmc_pyscan *scan)
{
    scan->beside.run = 0;
    scan->beside.on = true;
    return shmc_cursor_seek(&scan->beside.cursor, shmc_pyroot_span(scan->root), &shmc_primary,
                            scan->primary, scan->key.at, scan->key.length);
}

/* An entry of an index names a key; its object comes from the same root. */
static enum shmc_status find_objects(struct shmc_pyscan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        if (scan->beside.on && find_beside(scan, &scan->entries[i]))
            continue;
        enum shmc_status status = copy_string(scan->root, scan->entries[i].words[1], &scan->key);
        if (status == SHMC_OK && scan->beside.pause == 0)
            status = start_beside(scan);
        if (status != SHMC_OK)
            return status;
        if (scan->beside.on && find_beside(scan, &scan->entries[i]))
            continue;
        scan->beside.pause -= scan->beside.pause > 0;
        const uint64_t hash =
            shmc_key_hash(scan->root->reader->reader->super->hash_key, scan->key.at, scan->key.length);
        status = shmc_directory_find(shmc_pyroot_span(scan->root), scan->directory, hash,
                                     scan->key.at, scan->key.length, &scan->entries[i].words[2]);
        if (status != SHMC_OK)
            return status == SHMC_NOT_FOUND ? SHMC_CORRUPT : status;
    }
    return SHMC_OK;
}

static enum shmc_status copy_chunk(struct shmc_pyscan *scan)
{
    const bool all = scan->bounds->where == NULL;
    const uint64_t room = all && scan->wanted < scan->chunk ? scan->wanted : scan->chunk;
    enum shmc_status status = SHMC_OK;

    while (scan->count < room && status == SHMC_OK) {
        struct shmc_entry *entry = &scan->entries[scan->count];
        status = shmc_cursor_next(&scan->cursor, entry);
        if (status == SHMC_OK && scan->value != SHMC_NOTHING && entry->words[0] != scan->value)
            status = SHMC_EMPTY; /* equal values are one word */
        scan->count += status == SHMC_OK;
        if (status == SHMC_OK && scan->bounds->one_value)
            scan->value = entry->words[0];
    }
    scan->ended = status == SHMC_EMPTY;
    if (status != SHMC_OK && status != SHMC_EMPTY)
        return status;
    status = SHMC_OK;
    if (scan->count != 0 && scan->bounds->has_stop)
        status = cut(scan); /* entries of one value: keep all or none */
    if (status == SHMC_OK && scan->count > scan->left)
        return SHMC_CORRUPT;
    scan->left -= scan->count;
    if (status == SHMC_OK && scan->bounds->index >= 0)
        status = cut_prefix(scan);
    if (status == SHMC_OK && scan->bounds->index >= 0 &&
        (scan->bounds->want != SHMC_WANT_KEYS || !all))
        status = find_objects(scan);
    return status;
}

/* The results that the caller asked for; only these count towards the limit. */
static void sift(struct shmc_pyscan *scan)
{
    if (scan->bounds->where == NULL)
        return;
    scan->count = shmc_pywhere_keep(scan->bounds->where, scan->root, scan->entries,
                                    scan->bounds->index < 0 ? 1 : 2, scan->count);
    if (scan->count > scan->wanted)
        scan->count = scan->wanted;
}

static int next_chunk(struct shmc_pyscan *scan)
{
    scan->count = 0;
    scan->position = 0;
    if (scan->ended || scan->wanted == 0)
        return 0;
    const enum shmc_status status = copy_chunk(scan);
    if (status == SHMC_OK)
        sift(scan);
    if (shmc_pyroot_settle(scan->root, status, "walking a tree") < 0) {
        scan->count = 0;
        scan->ended = true;
        return -1;
    }
    scan->wanted -= scan->count;
    scan->chunk = scan->chunk < SHMC_CHUNK / 2 ? scan->chunk * 2 : SHMC_CHUNK;
    return 0;
}

/* ---- the walk ------------------------------------------------------------------------------- */

static int tree_of(const shmc_pyroot *root, const struct shmc_pyrecord *record, int64_t index,
                   shmc_offset *top, uint64_t *count)
{
    struct shmc_record_index loaded;

    *top = record->record.primary;
    *count = record->record.count;
    if (index < 0)
        return 0;
    if (shmc_pyrecord_index(root, record, (uint64_t)index, &loaded) < 0)
        return -1;
    *top = loaded.tree;
    *count = loaded.count;
    return 0;
}

int shmc_pyscan_open(struct shmc_pyscan *scan, shmc_pyroot *root,
                     const struct shmc_pyrecord *record, const struct shmc_pybounds *bounds)
{
    shmc_offset top;

    scan->root = root;
    scan->bounds = bounds;
    scan->directory = record->record.directory;
    scan->primary = record->record.primary;
    scan->beside.on = false;
    scan->beside.run = scan->beside.gap = 0;
    scan->beside.pause = 0;
    scan->wanted = bounds->limit != 0 ? bounds->limit : UINT64_MAX;
    scan->ended = false;
    scan->value = SHMC_NOTHING;
    scan->count = scan->position = 0;
    scan->chunk = bounds->where == NULL ? FIRST_CHUNK : SHMC_CHUNK;
    shmc_pybytes_init(&scan->key);
    if (tree_of(root, record, bounds->index, &top, &scan->left) < 0)
        return -1;
    const enum shmc_status status =
        shmc_cursor_seek(&scan->cursor, shmc_pyroot_span(root),
                         bounds->index < 0 ? &shmc_primary : &shmc_index, top, bounds->start.at,
                         bounds->start.length);
    return status == SHMC_OK ? 0 : shmc_pyroot_settle(root, status, "seeking in a tree");
}

void shmc_pyscan_close(struct shmc_pyscan *scan)
{
    shmc_pybytes_free(&scan->key);
}

/* ---- results -------------------------------------------------------------------------------- */

/* From private bytes: `value` is escaped, and unescaped in place. */
static PyObject *value_of(struct shmc_pybytes *value)
{
    if (memchr(value->at, 1, value->length) != NULL)
        value->length = shmc_index_unescape(value->at, value->length);
    PyObject *text =
        PyUnicode_DecodeUTF8((const char *)value->at, (Py_ssize_t)value->length, "strict");
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return shmc_hot_raise(SHMC_CORRUPT, "decoding an index value");
    }
    return text;
}

static PyObject *index_value(struct shmc_pyscan *scan, shmc_word word)
{
    const enum shmc_status status = copy_string(scan->root, word, &scan->key);

    if (shmc_pyroot_settle(scan->root, status, "reading an index value") < 0)
        return NULL;
    return value_of(&scan->key);
}

/* A new tuple of its items, whose references it steals. Text and views need no collector. */
static PyObject *tuple_of(PyObject *first, PyObject *second, PyObject *third)
{
    PyObject *const tuple = PyTuple_New(third != NULL ? 3 : 2);

    if (tuple == NULL) {
        Py_DECREF(first);
        Py_DECREF(second);
        Py_XDECREF(third);
        return NULL;
    }
    PyTuple_SET_ITEM(tuple, 0, first);
    PyTuple_SET_ITEM(tuple, 1, second);
    if (third != NULL)
        PyTuple_SET_ITEM(tuple, 2, third);
    PyObject_GC_UnTrack(tuple);
    return tuple;
}

static PyObject *result_of(struct shmc_pyscan *scan, const struct shmc_entry *entry)
{
    const bool indexed = scan->bounds->index >= 0;
    const enum shmc_want want = scan->bounds->want;
    PyObject *value = NULL, *key = NULL, *object = NULL;

    if (want != SHMC_WANT_KEYS)
        object = shmc_pyobject(scan->root, entry->words[indexed ? 2 : 1]);
    if (want == SHMC_WANT_VALUES || (want == SHMC_WANT_ITEMS && object == NULL))
        return object;
    key = shmc_pystring(scan->root, entry->words[indexed ? 1 : 0]);
    if (key != NULL && scan->bounds->with_value)
        value = index_value(scan, entry->words[0]);
    if (key == NULL || (scan->bounds->with_value && value == NULL)) {
        Py_XDECREF(object);
        Py_XDECREF(key);
        return NULL;
    }
    if (value != NULL)
        return tuple_of(value, key, object);
    return object != NULL ? tuple_of(key, object, NULL) : key;
}

int shmc_pyscan_step(struct shmc_pyscan *scan, struct shmc_entry *entry)
{
    while (scan->position == scan->count) {
        if (scan->ended || scan->wanted == 0)
            return 0;
        if (next_chunk(scan) < 0)
            return -1;
        if (PyErr_CheckSignals() < 0) /* a search without a result may take long */
            return -1;
    }
    /* Creating objects may run any code, even another next() of the same iterator. */
    *entry = scan->entries[scan->position++];
    return 1;
}

PyObject *shmc_pyscan_next(struct shmc_pyscan *scan)
{
    struct shmc_entry entry;

    return shmc_pyscan_step(scan, &entry) > 0 ? result_of(scan, &entry) : NULL;
}

PyObject *shmc_pyscan_list(shmc_pyroot *root, const struct shmc_pyrecord *record,
                           const struct shmc_pybounds *bounds)
{
    struct shmc_pyscan scan;
    PyObject *result, *list = PyList_New(0);

    if (list == NULL)
        return NULL;
    if (shmc_pyscan_open(&scan, root, record, bounds) < 0)
        Py_CLEAR(list);
    while (list != NULL && (result = shmc_pyscan_next(&scan)) != NULL) {
        if (PyList_Append(list, result) < 0)
            Py_CLEAR(list);
        Py_DECREF(result);
    }
    shmc_pyscan_close(&scan);
    if (PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

/* ---- distinct values of an index ------------------------------------------------------------ */

struct skipping {
    shmc_pyroot *root;
    const struct shmc_pybounds *bounds;
    shmc_offset top;
    struct shmc_pybytes key;   /* where to seek next */
    struct shmc_pybytes value; /* the one found, escaped */
};

/* Finds the first value at or after the key; then moves the key past all its entries. */
static enum shmc_status skip(struct skipping *to)
{
    const struct shmc_span *span = shmc_pyroot_span(to->root);
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    enum shmc_status status =
        shmc_cursor_seek(&cursor, span, &shmc_index, to->top, to->key.at, to->key.length);

    if (status == SHMC_OK)
        status = shmc_cursor_next(&cursor, &entry);
    if (status == SHMC_OK)
        status = copy_string(to->root, entry.words[0], &to->value);
    if (status != SHMC_OK)
        return status;
    to->key.length = 0;
    uint8_t *const at = shmc_pybytes_extend(&to->key, to->value.length + 1);
    if (at == NULL)
        return SHMC_NO_MEMORY;
    memcpy(at, to->value.at, to->value.length);
    at[to->value.length] = 1;
    return SHMC_OK;
}

static bool is_before(const struct shmc_pybytes *value, const struct shmc_pybounds *bounds)
{
    const struct shmc_pybytes *stop = &bounds->stop;
    const size_t common = value->length < stop->length ? value->length : stop->length;
    const int order = bounds->has_stop ? memcmp(value->at, stop->at, common) : -1;

    return order < 0 || (order == 0 && value->length < stop->length);
}

/* 1: *list has one more; 0: no more values. */
static int next_value(struct skipping *to, PyObject *list)
{
    const enum shmc_status status = skip(to);

    if (shmc_pyroot_settle(to->root, status, "walking an index") < 0)
        return -1;
    if (status == SHMC_EMPTY || !is_before(&to->value, to->bounds))
        return 0;
    PyObject *text = value_of(&to->value);
    const int result = text == NULL ? -1 : PyList_Append(list, text);
    Py_XDECREF(text);
    return result < 0 ? -1 : 1;
}

static int skip_all(struct skipping *to, PyObject *list, uint64_t left)
{
    const uint64_t limit = to->bounds->limit != 0 ? to->bounds->limit : UINT64_MAX;
    int more = 1;

    for (uint64_t found = 0; more > 0 && found < limit; found++) {
        more = next_value(to, list);
        if (more > 0 && found >= left)
            more = shmc_pyroot_settle(to->root, SHMC_CORRUPT, "walking an index");
    }
    return more < 0 ? -1 : 0;
}

PyObject *shmc_pyindex_values(shmc_pyroot *root, const struct shmc_pyrecord *record,
                              const struct shmc_pybounds *bounds)
{
    struct skipping to = {.root = root, .bounds = bounds};
    uint64_t left;

    if (tree_of(root, record, bounds->index, &to.top, &left) < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    shmc_pybytes_init(&to.key);
    shmc_pybytes_init(&to.value);
    if (shmc_pybytes_append(&to.key, bounds->start.at, bounds->start.length) < 0)
        Py_CLEAR(list);
    if (list != NULL && skip_all(&to, list, left) < 0)
        Py_CLEAR(list);
    shmc_pybytes_free(&to.key);
    shmc_pybytes_free(&to.value);
    return list;
}
