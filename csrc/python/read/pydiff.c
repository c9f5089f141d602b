/*
 * pydiff.c - Root.diff(): the differences of one resource between two roots, as three lists.
 *
 *   walk --> found[SHMC_CHUNK] --> settle both roots --> Python objects; then the next chunk
 *
 * Between chunks any code may run; both roots are held by the caller's arguments.
 */
#include "python/read/pyread.h"

struct differing {
    shmc_pyroot *old, *new;
    PyObject *lists[3]; /* by kind: added, modified, deleted */
    struct shmc_diff diff;
    struct shmc_difference found[SHMC_CHUNK];
};

/* A new tuple of its items, whose references it steals; NULL items are an exception. */
static PyObject *tuple_of(PyObject *key, PyObject *first, PyObject *second, bool two)
{
    PyObject *const tuple = key != NULL && first != NULL && (second != NULL || !two)
                                ? PyTuple_New(two ? 3 : 2)
                                : NULL;

    if (tuple == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(first);
        Py_XDECREF(second);
        return NULL;
    }
    PyTuple_SET_ITEM(tuple, 0, key);
    PyTuple_SET_ITEM(tuple, 1, first);
    if (two)
        PyTuple_SET_ITEM(tuple, 2, second);
    return tuple;
}

static int show(struct differing *between, const struct shmc_difference *one)
{
    const bool gone = one->kind == SHMC_DELETED, both = one->kind == SHMC_MODIFIED;
    PyObject *key = shmc_pystring(gone ? between->old : between->new, one->key);
    PyObject *first = NULL, *second = NULL;

    if (key != NULL)
        first = gone || both ? shmc_pyobject(between->old, one->old_value)
                             : shmc_pyobject(between->new, one->new_value);
    if (first != NULL && both)
        second = shmc_pyobject(between->new, one->new_value);
    PyObject *tuple = tuple_of(key, first, second, both);
    const int result =
        tuple == NULL ? -1 : PyList_Append(between->lists[one->kind - SHMC_ADDED], tuple);
    Py_XDECREF(tuple);
    return result;
}

/* 1: there may be more; 0: the end; -1. */
static int next_chunk(struct differing *between)
{
    enum shmc_status status = SHMC_OK;
    size_t count = 0;

    while (count < SHMC_CHUNK && status == SHMC_OK) {
        status = shmc_diff_next(&between->diff, &between->found[count]);
        count += status == SHMC_OK;
    }
    if (shmc_pyroot_settle(between->old, status, "comparing two roots") < 0 ||
        shmc_pyroot_settle(between->new, status, "comparing two roots") < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (show(between, &between->found[i]) < 0)
            return -1;
    }
    return status == SHMC_OK;
}

/* The primary tree's top and count; empty if the resource was not declared at that time. */
static int tree_of(shmc_pyroot *root, uint64_t id, shmc_offset *top, uint64_t *count)
{
    struct shmc_pyrecord record;

    *top = *count = 0;
    if (shmc_pyrecord_load(root, id, &record) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_LookupError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    *top = record.record.primary;
    *count = record.record.count;
    return 0;
}

PyObject *shmc_pyroot_diff(PyObject *self, PyObject *args)
{
    struct differing between = {.new = (shmc_pyroot *)self};
    uint64_t id, old_count, new_count;
    shmc_offset old_top, new_top;
    int more = 1;

    if (!PyArg_ParseTuple(args, "O&O!:diff", shmc_pyuint64, &id, &shmc_pyroot_type, &between.old))
        return NULL;
    if (between.old->reader != between.new->reader) {
        PyErr_SetString(PyExc_ValueError, "the other root is from another attachment");
        return NULL;
    }
    if (tree_of(between.old, id, &old_top, &old_count) < 0 ||
        tree_of(between.new, id, &new_top, &new_count) < 0)
        return NULL;
    shmc_diff_open(&between.diff, shmc_pyroot_span(between.new), old_top, new_top,
                   old_count + new_count);
    for (size_t i = 0; i < 3 && more > 0; i++) {
        between.lists[i] = PyList_New(0);
        more = between.lists[i] == NULL ? -1 : 1;
    }
    while (more > 0)
        more = next_chunk(&between);
    PyObject *result = more < 0 ? NULL
                                : PyTuple_Pack(3, between.lists[0], between.lists[1],
                                               between.lists[2]);
    for (size_t i = 0; i < 3; i++)
        Py_XDECREF(between.lists[i]);
    return result;
}
