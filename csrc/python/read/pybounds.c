/*
 * pybounds.c - turns the arguments of a scan into where in a tree it starts and ends.
 *
 * Tree keys are bytes: in a primary tree the object's key; in an index
 *   escaped value NUL key      (escaped: no NUL in it, order kept; shmc_index_escape)
 * so that, with s the bytes given and v = escape(value):
 *
 *   after s             first >= s NUL        nothing lies between s and s NUL
 *   prefix s            s <= first, stop at s with its last byte + 1 (never 0xff: UTF-8)
 *   all of a value      v NUL <= first, stop at v \1
 *   after a value       first >= v \1
 *
 * Bounds know nothing of a root: a look-up that goes stale starts again with the same bounds.
 */
#include "python/read/pyread.h"

void shmc_pybounds_init(struct shmc_pybounds *bounds)
{
    shmc_pybytes_init(&bounds->start);
    shmc_pybytes_init(&bounds->stop);
    shmc_pybytes_init(&bounds->prefix);
    bounds->has_stop = false;
    bounds->one_value = false;
    bounds->with_value = false;
    bounds->want = SHMC_WANT_VALUES;
    bounds->limit = 0;
    bounds->index = -1;
    bounds->where = NULL;
}

void shmc_pybounds_free(struct shmc_pybounds *bounds)
{
    shmc_pybytes_free(&bounds->start);
    shmc_pybytes_free(&bounds->stop);
    shmc_pybytes_free(&bounds->prefix);
}

/* ---- composing tree keys -------------------------------------------------------------------- */

static int append(struct shmc_pybytes *to, const uint8_t *bytes, size_t length, bool escape)
{
    if (!escape)
        return shmc_pybytes_append(to, bytes, length);
    uint8_t *const at = shmc_pybytes_extend(to, 2 * length);
    if (at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    to->length = (size_t)(at - to->at) + shmc_index_escape(bytes, length, at);
    return 0;
}

static int append_byte(struct shmc_pybytes *to, uint8_t byte)
{
    return append(to, &byte, 1, false);
}

static int append_str(struct shmc_pybytes *to, PyObject *text, bool escape)
{
    const uint8_t *bytes;
    size_t length;

    if (shmc_pykey_or_none(text, &bytes, &length) < 0)
        return -1;
    return append(to, bytes, length, escape);
}

static int compare(const struct shmc_pybytes *a, const struct shmc_pybytes *b)
{
    const size_t common = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->at, b->at, common);

    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static int assign(struct shmc_pybytes *to, const struct shmc_pybytes *from)
{
    to->length = 0;
    return append(to, from->at, from->length, false);
}

/* The walk starts at the greatest of the requested starts, and ends at the least stop. */
static int raise_start(struct shmc_pybounds *bounds, const struct shmc_pybytes *start)
{
    return compare(start, &bounds->start) > 0 ? assign(&bounds->start, start) : 0;
}

static int lower_stop(struct shmc_pybounds *bounds, const struct shmc_pybytes *stop)
{
    if (bounds->has_stop && compare(stop, &bounds->stop) >= 0)
        return 0;
    bounds->has_stop = true;
    return assign(&bounds->stop, stop);
}

/* ---- one argument each ---------------------------------------------------------------------- */

static int set_start(struct shmc_pybounds *bounds, PyObject *start, struct shmc_pybytes *bytes)
{
    if (start == Py_None)
        return 0;
    return append_str(bytes, start, bounds->index >= 0) < 0 ? -1 : raise_start(bounds, bytes);
}

static int set_stop(struct shmc_pybounds *bounds, PyObject *stop, struct shmc_pybytes *bytes)
{
    if (stop == Py_None)
        return 0;
    return append_str(bytes, stop, bounds->index >= 0) < 0 ? -1 : lower_stop(bounds, bytes);
}

static int set_prefix(struct shmc_pybounds *bounds, PyObject *prefix, struct shmc_pybytes *bytes)
{
    if (prefix == Py_None)
        return 0;
    if (append_str(bytes, prefix, bounds->index >= 0) < 0 || raise_start(bounds, bytes) < 0)
        return -1;
    if (bytes->length == 0)
        return 0;
    bytes->at[bytes->length - 1]++;
    return lower_stop(bounds, bytes);
}

/* A key; for an index (value, key). */
static int set_after(struct shmc_pybounds *bounds, PyObject *after, struct shmc_pybytes *bytes)
{
    if (after == Py_None)
        return 0;
    if (bounds->index >= 0) {
        if (!PyTuple_Check(after) || PyTuple_GET_SIZE(after) != 2) {
            PyErr_SetString(PyExc_TypeError, "a scan of an index resumes after (value, key)");
            return -1;
        }
        if (append_str(bytes, PyTuple_GET_ITEM(after, 0), true) < 0 || append_byte(bytes, 0) < 0)
            return -1;
        after = PyTuple_GET_ITEM(after, 1);
    }
    if (append_str(bytes, after, false) < 0 || append_byte(bytes, 0) < 0)
        return -1;
    return raise_start(bounds, bytes);
}

/* All entries of a value. */
static int set_behind(struct shmc_pybounds *bounds, PyObject *value, struct shmc_pybytes *bytes)
{
    if (value == Py_None)
        return 0;
    if (append_str(bytes, value, true) < 0 || append_byte(bytes, 1) < 0)
        return -1;
    return raise_start(bounds, bytes);
}

typedef int (*bound_setter)(struct shmc_pybounds *bounds, PyObject *argument,
                            struct shmc_pybytes *bytes);

static int set(bound_setter one, struct shmc_pybounds *bounds, PyObject *argument)
{
    struct shmc_pybytes bytes;

    shmc_pybytes_init(&bytes);
    const int result = one(bounds, argument, &bytes);
    shmc_pybytes_free(&bytes);
    return result;
}

static int set_limit(struct shmc_pybounds *bounds, Py_ssize_t limit)
{
    if (limit < 0) {
        PyErr_SetString(PyExc_ValueError, "limit must be a number of results, 0 for all");
        return -1;
    }
    bounds->limit = (uint64_t)limit;
    return 0;
}

/* For "O&". */
static int to_want(PyObject *object, void *to)
{
    static const char *const names[] = {"items", "keys", "values"};

    for (unsigned i = 0; PyUnicode_Check(object) && i < 3; i++) {
        if (PyUnicode_CompareWithASCIIString(object, names[i]) == 0) {
            *(enum shmc_want *)to = (enum shmc_want)i;
            return 1;
        }
    }
    PyErr_SetString(PyExc_ValueError, "want must be 'items', 'keys' or 'values'");
    return 0;
}

/* For "O&": None leaves NULL. */
static int to_where(PyObject *object, void *to)
{
    if (object == Py_None)
        return 1;
    if (!PyObject_TypeCheck(object, &shmc_pywhere_type)) {
        PyErr_SetString(PyExc_TypeError, "where must be a Where, or None");
        return 0;
    }
    *(PyObject **)to = object;
    return 1;
}

/* For "O&": None leaves -1. */
static int to_index(PyObject *object, void *to)
{
    uint64_t index;

    if (object == Py_None)
        return 1;
    if (!shmc_pyuint64(object, &index))
        return 0;
    *(int64_t *)to = index < INT64_MAX ? (int64_t)index : INT64_MAX;
    return 1;
}

/* ---- calls; an id in front is the Root's business ------------------------------------------- */

int shmc_pyscan_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds)
{
    static char *names[] = {"index", "start", "stop",  "prefix", "after",
                            "limit", "want",  "where", NULL};
    PyObject *start = Py_None, *stop = Py_None, *prefix = Py_None, *after = Py_None;
    Py_ssize_t limit = 0;

    bounds->want = SHMC_WANT_ITEMS;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O&OOOOnO&O&:scan", names, to_index,
                                     &bounds->index, &start, &stop, &prefix, &after, &limit,
                                     to_want, &bounds->want, to_where, &bounds->where))
        return -1;
    bounds->with_value = bounds->index >= 0;
    if (set(set_start, bounds, start) < 0 || set(set_stop, bounds, stop) < 0 ||
        set(set_prefix, bounds, prefix) < 0 || set(set_after, bounds, after) < 0)
        return -1;
    return set_limit(bounds, limit);
}

/* The keys of the value begin there, and all results begin with it. */
static int set_key_prefix(struct shmc_pybounds *bounds, PyObject *prefix)
{
    return append_str(&bounds->prefix, prefix, false) < 0 ||
                   append_str(&bounds->start, prefix, false) < 0
               ? -1
               : 0;
}

static int set_key_after(struct shmc_pybounds *bounds, PyObject *value, PyObject *after)
{
    struct shmc_pybytes start;

    shmc_pybytes_init(&start);
    const bool made = append_str(&start, value, true) == 0 && append_byte(&start, 0) == 0 &&
                      append_str(&start, after, false) == 0 && append_byte(&start, 0) == 0;
    const int result = made ? raise_start(bounds, &start) : -1;
    shmc_pybytes_free(&start);
    return result;
}

/* v NUL [after NUL] <= entries < v \1; with a prefix of keys: v NUL prefix <= entries */
int shmc_pyby_index_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds)
{
    static char *names[] = {"index", "value", "after", "limit", "want", "where", "prefix", NULL};
    PyObject *value, *after = Py_None, *prefix = Py_None;
    Py_ssize_t limit = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&U|OnO&O&O:by_index", names, to_index,
                                     &bounds->index, &value, &after, &limit, to_want,
                                     &bounds->want, to_where, &bounds->where, &prefix))
        return -1;
    if (append_str(&bounds->start, value, true) < 0 || assign(&bounds->stop, &bounds->start) < 0 ||
        append_byte(&bounds->start, 0) < 0 || append_byte(&bounds->stop, 1) < 0)
        return -1;
    bounds->has_stop = bounds->one_value = true;
    if (prefix != Py_None && set_key_prefix(bounds, prefix) < 0)
        return -1;
    if (after != Py_None && set_key_after(bounds, value, after) < 0)
        return -1;
    return set_limit(bounds, limit);
}

int shmc_pyindex_values_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds)
{
    static char *names[] = {"index", "after", "limit", "prefix", NULL};
    PyObject *after = Py_None, *prefix = Py_None;
    Py_ssize_t limit = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|OnO:index_values", names, to_index,
                                     &bounds->index, &after, &limit, &prefix))
        return -1;
    if (set(set_prefix, bounds, prefix) < 0 || set(set_behind, bounds, after) < 0)
        return -1;
    return set_limit(bounds, limit);
}
