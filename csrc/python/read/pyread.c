/*
 * pyread.c - the common parts of all look-ups: bytes of keys, records, one find. See pyread.h.
 */
#include "python/read/pyread.h"

/* ---- bytes ---------------------------------------------------------------------------------- */

void shmc_pybytes_init(struct shmc_pybytes *bytes)
{
    bytes->at = bytes->own;
    bytes->length = 0;
    bytes->capacity = sizeof bytes->own;
}

void shmc_pybytes_free(struct shmc_pybytes *bytes)
{
    if (bytes->at != bytes->own)
        PyMem_Free(bytes->at);
    shmc_pybytes_init(bytes);
}

static bool bytes_grow(struct shmc_pybytes *bytes, size_t capacity)
{
    uint8_t *const old = bytes->at == bytes->own ? NULL : bytes->at;
    uint8_t *const at = PyMem_Realloc(old, capacity);

    if (at == NULL)
        return false;
    if (old == NULL)
        memcpy(at, bytes->own, bytes->length);
    bytes->at = at;
    bytes->capacity = capacity;
    return true;
}

uint8_t *shmc_pybytes_extend(struct shmc_pybytes *bytes, size_t more)
{
    if (more > PY_SSIZE_T_MAX / 4 - bytes->length)
        return NULL;
    const size_t length = bytes->length + more;
    if (length > bytes->capacity && !bytes_grow(bytes, length + length / 2))
        return NULL;
    uint8_t *const end = bytes->at + bytes->length;
    bytes->length = length;
    return end;
}

int shmc_pybytes_append(struct shmc_pybytes *bytes, const uint8_t *from, size_t length)
{
    uint8_t *const at = shmc_pybytes_extend(bytes, length);

    if (at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (length != 0)
        memcpy(at, from, length);
    return 0;
}

/* ---- arguments ------------------------------------------------------------------------------ */

int shmc_pykey_slow(PyObject *key, const uint8_t **bytes, size_t *length)
{
    Py_ssize_t size;

    if (!PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "keys must be str like 'namespace/name', not %.100s",
                     Py_TYPE(key)->tp_name);
        return -1;
    }
    const char *text = PyUnicode_AsUTF8AndSize(key, &size);
    if (text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    *bytes = (const uint8_t *)text;
    *length = (size_t)size;
    return 1;
}

int shmc_pykey_or_none(PyObject *key, const uint8_t **bytes, size_t *length)
{
    Py_ssize_t size;

    *bytes = NULL;
    *length = 0;
    if (key == NULL || key == Py_None)
        return 0;
    if (!PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "bounds of a scan must be str or None, not %.100s",
                     Py_TYPE(key)->tp_name);
        return -1;
    }
    *bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(key, &size);
    if (*bytes == NULL)
        return -1;
    *length = (size_t)size;
    return 0;
}

int shmc_pyuint64(PyObject *object, void *to)
{
    PyObject *number = PyNumber_Index(object);

    if (number == NULL)
        return 0;
    const unsigned long long value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return 0;
    *(uint64_t *)to = value;
    return 1;
}

int shmc_pyget_arguments(PyObject *const *arguments, Py_ssize_t count, PyObject *names,
                         Py_ssize_t first, PyObject **fallback)
{
    *fallback = Py_None;
    if (count == first + 2)
        *fallback = arguments[first + 1];
    if (count != first + 1 && count != first + 2) {
        PyErr_SetString(PyExc_TypeError, "get() takes a key and optionally a default");
        return -1;
    }
    if (names == NULL || PyTuple_GET_SIZE(names) == 0)
        return 0;
    if (PyTuple_GET_SIZE(names) != 1 || count != first + 1 ||
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "default") != 0) {
        PyErr_SetString(PyExc_TypeError, "get() takes no keyword argument but default");
        return -1;
    }
    *fallback = arguments[count];
    return 0;
}

/* ---- answers -------------------------------------------------------------------------------- */

int shmc_pyroot_settle(const shmc_pyroot *root, enum shmc_status status, const char *doing)
{
    if (shmc_pyroot_valid(root) < 0)
        return -1;
    if (status == SHMC_OK || status == SHMC_NOT_FOUND || status == SHMC_EMPTY)
        return 0;
    shmc_hot_raise(status, doing);
    return -1;
}

PyObject *shmc_pystring_or_none(shmc_pyroot *root, shmc_word word)
{
    if (word == SHMC_NOTHING || word == SHMC_NULL)
        Py_RETURN_NONE;
    return shmc_pystring(root, word);
}

PyObject *shmc_pyversion(shmc_pyroot *root, shmc_word word)
{
    return shmc_pystring_or_none(root, word == SHMC_EMPTY_STRING ? SHMC_NOTHING : word);
}

/* A caller that looks an object up usually reads a field of a member next: prefetch the first
 * members. The object's line came with the key's. A wrong word costs a line. */
static inline void fetch_members(const struct shmc_span *span, shmc_word word)
{
    const shmc_offset block = shmc_block_of(word);

    if (shmc_tag(word) != SHMC_TAG_OBJECT || !shmc_reaches(span, block, 64))
        return;
    for (uint64_t i = 1; i < 6; i++) {
        const shmc_word member = shmc_load_at(span, block + i * 8);
        if (shmc_tag(member) != SHMC_TAG_OBJECT)
            continue;
        shmc_fetch(span, shmc_block_of(member));
        shmc_fetch(span, shmc_block_of(member) + 64);
    }
}

int shmc_pyroot_find(shmc_pyroot *root, const struct shmc_record *record, const uint8_t *key,
                     size_t length, PyObject **value)
{
    const uint64_t hash = shmc_key_hash(root->reader->reader->super->hash_key, key, length);
    shmc_word word = SHMC_NOTHING;
    const enum shmc_status status = shmc_directory_find(shmc_pyroot_span(root), record->directory,
                                                        hash, key, length, &word);

    if (shmc_pyroot_settle(root, status, "looking a key up") < 0)
        return -1;
    if (status != SHMC_OK)
        return 0;
    if (value == NULL)
        return 1;
    fetch_members(shmc_pyroot_span(root), word);
    *value = shmc_pyobject(root, word);
    return *value != NULL ? 1 : -1;
}

/* ---- records -------------------------------------------------------------------------------- */

/* A count larger than the bytes that follow can hold is corruption; it would bound nothing. */
static enum shmc_status record_bounds(const shmc_pyroot *root, const struct shmc_record *record)
{
    return record->count <= shmc_span_size(shmc_pyroot_span(root)) / 16 &&
                   record->index_count <= SHMC_MAX_INDICES
               ? SHMC_OK
               : SHMC_CORRUPT;
}

int shmc_pyrecord_load(const shmc_pyroot *root, uint64_t id, struct shmc_pyrecord *record)
{
    struct shmc_pyrecord loaded = {.generation = root->at.generation};
    enum shmc_status status = shmc_record_load(shmc_pyroot_span(root), &root->at, id,
                                               &loaded.record, &loaded.indices);

    if (status == SHMC_OK)
        status = record_bounds(root, &loaded.record);
    if (shmc_pyroot_settle(root, status, "reading a resource's record") < 0)
        return -1;
    if (status == SHMC_NOT_FOUND) {
        PyErr_Format(PyExc_LookupError, "generation %llu has no resource %llu",
                     (unsigned long long)root->at.generation, (unsigned long long)id);
        return -1;
    }
    *record = loaded;
    return 0;
}

int shmc_pyrecord_index(const shmc_pyroot *root, const struct shmc_pyrecord *record,
                        uint64_t index, struct shmc_record_index *loaded)
{
    if (index >= record->record.index_count) {
        PyErr_Format(PyExc_LookupError, "the resource has %llu indices and no number %llu",
                     (unsigned long long)record->record.index_count, (unsigned long long)index);
        return -1;
    }
    enum shmc_status status =
        shmc_record_index_load(shmc_pyroot_span(root), record->indices, index, loaded);
    if (status == SHMC_OK && loaded->count > shmc_span_size(shmc_pyroot_span(root)) / 16)
        status = SHMC_CORRUPT;
    return shmc_pyroot_settle(root, status, "reading an index's record");
}

static PyObject *plain_or_none(shmc_pyroot *root, shmc_word word)
{
    if (word == SHMC_NOTHING)
        Py_RETURN_NONE;
    return shmc_pyvalue_plain(root, word);
}

static PyObject *index_tuple(shmc_pyroot *root, const struct shmc_pyrecord *record, uint64_t index)
{
    struct shmc_record_index loaded;

    if (shmc_pyrecord_index(root, record, index, &loaded) < 0)
        return NULL;
    PyObject *name = shmc_pystring_or_none(root, loaded.name);
    PyObject *settings = name == NULL ? NULL : plain_or_none(root, loaded.settings);

    if (settings == NULL) {
        Py_XDECREF(name);
        return NULL;
    }
    return Py_BuildValue("(NNK)", name, settings, (unsigned long long)loaded.count);
}

static PyObject *index_list(shmc_pyroot *root, const struct shmc_pyrecord *record)
{
    PyObject *list = PyList_New(0);

    for (uint64_t i = 0; list != NULL && i < record->record.index_count; i++) {
        PyObject *tuple = index_tuple(root, record, i);
        if (tuple == NULL || PyList_Append(list, tuple) < 0)
            Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

PyObject *shmc_pyrecord_dict(shmc_pyroot *root, const struct shmc_pyrecord *loaded)
{
    const struct shmc_record *record = &loaded->record;
    PyObject *name = shmc_pystring_or_none(root, record->name);
    PyObject *version = name == NULL ? NULL : shmc_pyversion(root, record->version);
    PyObject *reason = version == NULL ? NULL : shmc_pystring_or_none(root, record->reason);
    PyObject *listed = reason == NULL ? NULL : shmc_pyversion(root, record->listed);
    PyObject *settings = listed == NULL ? NULL : plain_or_none(root, record->settings);
    PyObject *marks = settings == NULL ? NULL : shmc_pystring_or_none(root, record->marks);
    PyObject *indices = marks == NULL ? NULL : index_list(root, loaded);

    if (indices == NULL) {
        Py_XDECREF(marks);
        Py_XDECREF(name);
        Py_XDECREF(version);
        Py_XDECREF(reason);
        Py_XDECREF(listed);
        Py_XDECREF(settings);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:N,s:K,s:N,s:K,s:N,s:N,s:K,s:K,s:K,s:K,s:N,s:N}", "name", name,
                         "settings", settings, "state", (unsigned long long)record->state, "reason", reason,
                         "since_ns", (unsigned long long)record->since_ns, "version", version,
                         "marks", marks, "generation", (unsigned long long)record->generation, "count",
                         (unsigned long long)record->count, "unbroken",
                         (unsigned long long)(record->unbroken >> 16), "breaks",
                         (unsigned long long)(record->unbroken & UINT16_MAX), "listed", listed,
                         "indices", indices);
}

PyObject *shmc_pycontact(shmc_pyroot *root, const struct shmc_pyrecord *loaded)
{
    struct shmc_note note;
    const enum shmc_status status =
        shmc_contact_load(shmc_pyroot_span(root), loaded->record.contact, &note);

    if (shmc_pyroot_settle(root, status, "reading a contact block") < 0)
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "contact_ns", (unsigned long long)note.contact_ns,
        "lists", (unsigned long long)note.lists, "watches", (unsigned long long)note.watches,
        "events", (unsigned long long)note.events, "bookmarks",
        (unsigned long long)note.bookmarks, "errors", (unsigned long long)note.errors, "relists",
        (unsigned long long)note.relists, "bytes", (unsigned long long)note.bytes, "refused",
        (unsigned long long)note.refused, "repaired", (unsigned long long)note.repaired, "behind_ns",
        (unsigned long long)note.behind_ns, "stored", (unsigned long long)note.stored, "storing_ns",
        (unsigned long long)note.storing_ns, "stored_1ms", (unsigned long long)note.stored_1ms,
        "stored_10ms", (unsigned long long)note.stored_10ms, "stored_100ms",
        (unsigned long long)note.stored_100ms, "cut", (unsigned long long)note.cut, "stamp_ns",
        (unsigned long long)note.stamp_ns, "stamped_ns", (unsigned long long)note.stamped_ns);
}
