/*
 * pyroot.c - Root: one pinned generation, and all queries on it.
 *
 * All results of a Root belong to one state of all resources and indices. It keeps its pin
 * until it and everything made from it is gone; should the writer revoke the pin (a Root kept
 * for long while much changes), every later call raises StaleObjectError.
 */
#include "python/tables/pytables.h"

#include <structmember.h> /* after Python.h */

/* root.method(id, ...): the id, and the other arguments as a new tuple. */
static PyObject *split_id(PyObject *args, uint64_t *id)
{
    if (PyTuple_GET_SIZE(args) == 0) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be the resource's id");
        return NULL;
    }
    if (!shmc_pyuint64(PyTuple_GET_ITEM(args, 0), id))
        return NULL;
    return PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
}

static PyObject *ask(PyObject *self, PyObject *args, PyObject *kwargs, shmc_pyarguments parse,
                     shmc_pyquestion question)
{
    shmc_pyroot *root = (shmc_pyroot *)self;
    struct shmc_pyrecord record;
    struct shmc_pybounds bounds;
    PyObject *result = NULL;
    uint64_t id;

    PyObject *rest = split_id(args, &id);
    if (rest == NULL)
        return NULL;
    shmc_pybounds_init(&bounds);
    if (parse(rest, kwargs, &bounds) == 0 && shmc_pyrecord_load(root, id, &record) == 0)
        result = question(root, &record, &bounds);
    shmc_pybounds_free(&bounds);
    Py_DECREF(rest);
    return result;
}

static PyObject *root_scan(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyscan_arguments, shmc_pyscan_list);
}

static PyObject *root_by_index(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyby_index_arguments, shmc_pyscan_list);
}

static PyObject *root_index_values(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyindex_values_arguments, shmc_pyindex_values);
}

/* root.method(form, id, ...) */
static PyObject *ask_json(PyObject *self, PyObject *args, PyObject *kwargs, shmc_pyarguments parse)
{
    shmc_pyroot *root = (shmc_pyroot *)self;
    struct shmc_pyrecord record;
    struct shmc_pybounds bounds;
    PyObject *result = NULL;
    uint64_t id;

    if (PyTuple_GET_SIZE(args) == 0) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be (keep, first, lead, enough)");
        return NULL;
    }
    PyObject *const behind = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *const rest = behind == NULL ? NULL : split_id(behind, &id);
    shmc_pybounds_init(&bounds);
    if (rest != NULL && shmc_pyform_read(PyTuple_GET_ITEM(args, 0), &bounds.form) &&
        parse(rest, kwargs, &bounds) == 0 && shmc_pyrecord_load(root, id, &record) == 0)
        result = shmc_pyscan_json(root, &record, &bounds);
    shmc_pybounds_free(&bounds);
    Py_XDECREF(rest);
    Py_XDECREF(behind);
    return result;
}

static PyObject *root_scan_json(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask_json(self, args, kwargs, shmc_pyscan_arguments);
}

static PyObject *root_by_index_json(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask_json(self, args, kwargs, shmc_pyby_index_arguments);
}

/* root.columns(wanted, id, ...) */
static PyObject *root_columns(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct shmc_pyrecord record;
    struct shmc_pybounds bounds;
    PyObject *result = NULL;
    uint64_t id;

    if (PyTuple_GET_SIZE(args) == 0 || !PyTuple_Check(PyTuple_GET_ITEM(args, 0))) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be ((name, steps, sums), ...)");
        return NULL;
    }
    PyObject *const behind = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *const rest = behind == NULL ? NULL : split_id(behind, &id);
    shmc_pybounds_init(&bounds);
    if (rest != NULL && shmc_pyscan_arguments(rest, kwargs, &bounds) == 0 &&
        shmc_pyrecord_load((shmc_pyroot *)self, id, &record) == 0) {
        if (bounds.index >= 0)
            PyErr_SetString(PyExc_ValueError, "columns are of the objects, not of an index");
        else
            result = shmc_pyroot_columns((shmc_pyroot *)self, &record, &bounds,
                                         PyTuple_GET_ITEM(args, 0));
    }
    shmc_pybounds_free(&bounds);
    Py_XDECREF(rest);
    Py_XDECREF(behind);
    return result;
}

static PyObject *root_names(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyroot *root = (shmc_pyroot *)self;
    struct shmc_pyrecord record;
    uint64_t count = 0;

    const enum shmc_status status =
        shmc_catalogue_count(shmc_pyroot_span(root), &root->at, &count);
    if (shmc_pyroot_settle(root, status, "reading the catalogue") < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (uint64_t id = 0; list != NULL && id < count; id++) {
        PyObject *name = NULL;
        if (shmc_pyrecord_load(root, id, &record) == 0)
            name = record.record.state == SHMC_GONE
                       ? PyUnicode_FromString("")
                       : shmc_pystring_or_none(root, record.record.name);
        if (name == NULL || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *root_record(PyObject *self, PyObject *argument)
{
    shmc_pyroot *root = (shmc_pyroot *)self;
    struct shmc_pyrecord record;
    uint64_t id;

    if (!shmc_pyuint64(argument, &id) || shmc_pyrecord_load(root, id, &record) < 0)
        return NULL;
    return shmc_pyrecord_dict(root, &record);
}

static PyObject *root_count(PyObject *self, PyObject *argument)
{
    struct shmc_pyrecord record;
    uint64_t id;

    if (!shmc_pyuint64(argument, &id) || shmc_pyrecord_load((shmc_pyroot *)self, id, &record) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(record.record.count);
}

static PyObject *root_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                          PyObject *names)
{
    shmc_pyroot *root = (shmc_pyroot *)self;
    struct shmc_pyrecord record;
    PyObject *fallback, *value;
    const uint8_t *key;
    size_t length;
    uint64_t id;

    if (shmc_pyget_arguments(arguments, count, names, 1, &fallback) < 0 ||
        !shmc_pyuint64(arguments[0], &id))
        return NULL;
    int found = shmc_pykey(arguments[1], &key, &length);
    if (found >= 0 && shmc_pyrecord_load(root, id, &record) < 0)
        return NULL;
    if (found > 0)
        found = shmc_pyroot_find(root, &record.record, key, length, &value);
    if (found < 0)
        return NULL;
    return found > 0 ? value : Py_NewRef(fallback);
}

static PyObject *root_valid(PyObject *self, void *Py_UNUSED(unused))
{
    if (shmc_pyroot_check((shmc_pyroot *)self) == 0)
        Py_RETURN_TRUE;
    PyErr_Clear();
    Py_RETURN_FALSE;
}

static PyObject *root_repr(PyObject *self)
{
    const struct shmc_pinned *at = &((shmc_pyroot *)self)->at;

    return PyUnicode_FromFormat("<shmcache Root: generation %llu, deltas %llu to %llu>",
                                (unsigned long long)at->generation, (unsigned long long)at->tail,
                                (unsigned long long)at->head);
}

#define KEYWORDS(function) ((PyCFunction)(void (*)(void))(function)), METH_VARARGS | METH_KEYWORDS

static PyMethodDef root_methods[] = {
    {"names", root_names, METH_NOARGS, "Names of the resources, by id; \"\" for a removed one."},
    {"record", root_record, METH_O, "record(id): the record of a resource in this generation."},
    {"count", root_count, METH_O, "count(id): objects of a resource."},
    {"get", (PyCFunction)(void (*)(void))root_get, METH_FASTCALL | METH_KEYWORDS,
     "get(id, key, default=None)"},
    {"scan", KEYWORDS(root_scan), "An ordered range of a resource or of one of its indices."},
    {"by_index", KEYWORDS(root_by_index), "The objects with an index value, in key order."},
    {"scan_json", KEYWORDS(root_scan_json),
     "scan_json(form, id, ...): a page of scan() as JSON text, see pypage.c."},
    {"by_index_json", KEYWORDS(root_by_index_json), "The same for by_index()."},
    {"columns", KEYWORDS(root_columns),
     "columns(((name, steps, sums), ...), id, ...): values of a scan, see pycolumns.c."},
    {"index_values", KEYWORDS(root_index_values), "The distinct values of an index, in order."},
    {"diff", shmc_pyroot_diff, METH_VARARGS,
     "diff(id, old): objects added, modified and deleted since an older root."},
    {"take", KEYWORDS(shmc_pyroot_take), "Deltas of this root's window from a cursor on."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef root_members[] = {
    {"generation", T_ULONGLONG, offsetof(shmc_pyroot, at.generation), READONLY, NULL},
    {"head", T_ULONGLONG, offsetof(shmc_pyroot, at.head), READONLY, "The next delta's number."},
    {"tail", T_ULONGLONG, offsetof(shmc_pyroot, at.tail), READONLY, "The oldest delta's number."},
    {"instance", T_ULONGLONG, offsetof(shmc_pyroot, instance), READONLY, "Its DATA instance."},
    {"reader", T_OBJECT_EX, offsetof(shmc_pyroot, reader), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef root_properties[] = {
    {"valid", root_valid, NULL, "Whether it can still be read.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyroot_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Root",
    .tp_doc = PyDoc_STR("One pinned generation: a snapshot of all resources and indices."),
    .tp_basicsize = sizeof(shmc_pyroot),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = shmc_pyroot_dealloc,
    .tp_repr = root_repr,
    .tp_methods = root_methods,
    .tp_members = root_members,
    .tp_getset = root_properties,
};
