/*
 * pyresource.c - Resource: one resource of the latest root, or of one snapshot.
 *
 * The base class of the objects on which users call get(), so this file is the product's speed.
 * A look-up is: bytes of the key, the root (one load if nothing was published), the tree's
 * top (remembered with its generation), one search, one validation, one View.
 *
 * Without a root of its own a Resource never raises StaleObjectError from a look-up: it
 * starts again on a newer root (SHMC_RETRIES times; the writer would have to overtake each).
 */
#include "python/read/pyread.h"

#include <structmember.h> /* after Python.h */

struct resource {
    PyObject_HEAD
    shmc_pyreader *reader;
    shmc_pyroot *root; /* NULL: always the latest */
    uint64_t id;
    struct shmc_pyrecord seen; /* a generation, and the tree's top in it */
};

/* ---- roots and records ---------------------------------------------------------------------- */

/* The reader will see nothing new: a subclass may have replaced it (renew()).
 * Once: if there is no other, the old one stays in use. */
static int renew(struct resource *self)
{
    PyObject *result = PyObject_CallMethod((PyObject *)self, "renew", NULL);

    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static shmc_pyroot *root_of(struct resource *self)
{
    if (self->root != NULL)
        return (shmc_pyroot *)Py_NewRef(self->root);
    if (self->reader != NULL && shmc_pyreader_spent(self->reader) && renew(self) < 0)
        return NULL;
    if (self->reader != NULL)
        return shmc_pyreader_root(self->reader);
    PyErr_SetString(PyExc_RuntimeError, "Resource.__init__(reader, id, root=None) was not called");
    return NULL;
}

static bool again(const struct resource *self, unsigned *tries)
{
    return self->root == NULL && shmc_pyretry(tries);
}

static inline int see(struct resource *self, const shmc_pyroot *root)
{
    if (self->seen.generation == root->at.generation)
        return 0;
    return shmc_pyrecord_load(root, self->id, &self->seen);
}

/* ---- by key --------------------------------------------------------------------------------- */

/* 1 found, 0 absent, -1. */
static int find(struct resource *self, PyObject *key, PyObject **value)
{
    const uint8_t *bytes;
    unsigned tries = 0;
    size_t length;

    int found = shmc_pykey(key, &bytes, &length);
    if (found <= 0)
        return found;
    do {
        shmc_pyroot *root = root_of(self);
        if (root == NULL)
            return -1;
        found = see(self, root);
        if (found == 0)
            found = shmc_pyroot_find(root, &self->seen.record, bytes, length, value);
        shmc_pyroot_drop(root);
    } while (found < 0 && again(self, &tries));
    return found;
}

/* Whether a call has an argument that only the subclass knows: a namespace, how current the answer
 * must be. */
static bool asks_for_more(PyObject *names)
{
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);

        if (PyUnicode_CompareWithASCIIString(name, "max_age") == 0 ||
            PyUnicode_CompareWithASCIIString(name, "namespace") == 0 ||
            PyUnicode_CompareWithASCIIString(name, "consistent") == 0)
            return true;
    }
    return false;
}

static PyObject *get_fresh(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *names)
{
    PyObject *method = PyObject_GetAttrString(self, "_get_fresh");

    if (method == NULL)
        return NULL;
    PyObject *result = PyObject_Vectorcall(method, arguments, (size_t)count, names);
    Py_DECREF(method);
    return result;
}

static PyObject *resource_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                              PyObject *names)
{
    PyObject *fallback = Py_None, *value;

    if (names != NULL && asks_for_more(names))
        return get_fresh(self, arguments, count, names);
    if ((count != 1 || names != NULL) &&
        shmc_pyget_arguments(arguments, count, names, 0, &fallback) < 0)
        return NULL;
    const int found = find((struct resource *)self, arguments[0], &value);
    if (found < 0)
        return NULL;
    return found > 0 ? value : Py_NewRef(fallback);
}

/* KeyError; a key without a slash may be a mistake, which the subclass explains. */
static void refuse_key(PyObject *self, PyObject *key)
{
    const bool odd = PyUnicode_FindChar(key, '/', 0, PyUnicode_GET_LENGTH(key), 1) < 0;
    PyObject *explain = odd ? PyObject_GetAttrString(self, "_absent") : NULL;

    if (explain == NULL) {
        PyErr_Clear(); /* a Resource without a subclass */
        PyErr_SetObject(PyExc_KeyError, key);
        return;
    }
    PyObject *error = PyObject_CallOneArg(explain, key);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_DECREF(explain);
}

static PyObject *resource_subscript(PyObject *self, PyObject *key)
{
    PyObject *value;
    const int found = find((struct resource *)self, key, &value);

    if (found == 0)
        refuse_key(self, key);
    return found > 0 ? value : NULL;
}

static int resource_contains(PyObject *self, PyObject *key)
{
    return find((struct resource *)self, key, NULL);
}

/* ---- walks ---------------------------------------------------------------------------------- */

static PyObject *ask(PyObject *object, PyObject *args, PyObject *kwargs, shmc_pyarguments parse,
                     shmc_pyquestion question)
{
    struct resource *self = (struct resource *)object;
    struct shmc_pybounds bounds;
    PyObject *result = NULL;
    unsigned tries = 0;

    shmc_pybounds_init(&bounds);
    if (parse(args, kwargs, &bounds) == 0) {
        do {
            shmc_pyroot *root = root_of(self);
            struct shmc_pyrecord record;
            if (root == NULL)
                break;
            if (shmc_pyrecord_load(root, self->id, &record) == 0)
                result = question(root, &record, &bounds);
            shmc_pyroot_drop(root);
        } while (result == NULL && again(self, &tries));
    }
    shmc_pybounds_free(&bounds);
    return result;
}

static PyObject *resource_scan(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyscan_arguments, shmc_pyscan_list);
}

static PyObject *resource_by_index(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyby_index_arguments, shmc_pyscan_list);
}

static PyObject *resource_index_values(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return ask(self, args, kwargs, shmc_pyindex_values_arguments, shmc_pyindex_values);
}

static PyObject *iterate(PyObject *object, enum shmc_want want)
{
    struct resource *self = (struct resource *)object;
    PyObject *result = NULL;
    unsigned tries = 0;

    do {
        shmc_pyroot *root = root_of(self);
        struct shmc_pyrecord record;
        if (root == NULL)
            break;
        if (shmc_pyrecord_load(root, self->id, &record) == 0)
            result = shmc_pyiter_new(root, &record, want);
        shmc_pyroot_drop(root);
    } while (result == NULL && again(self, &tries));
    return result;
}

static PyObject *resource_iter(PyObject *self)
{
    return iterate(self, SHMC_WANT_KEYS);
}

static PyObject *resource_keys(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return iterate(self, SHMC_WANT_KEYS);
}

static PyObject *resource_values(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return iterate(self, SHMC_WANT_VALUES);
}

static PyObject *resource_items(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return iterate(self, SHMC_WANT_ITEMS);
}

/* ---- the record ----------------------------------------------------------------------------- */

typedef PyObject *(*describe)(shmc_pyroot *root, const struct shmc_pyrecord *record);

static PyObject *described(PyObject *object, describe how)
{
    struct resource *self = (struct resource *)object;
    PyObject *result = NULL;
    unsigned tries = 0;

    do {
        shmc_pyroot *root = root_of(self);
        if (root == NULL)
            break;
        if (see(self, root) == 0) {
            const struct shmc_pyrecord record = self->seen; /* creating objects may change it */
            result = how(root, &record);
        }
        shmc_pyroot_drop(root);
    } while (result == NULL && again(self, &tries));
    return result;
}

static PyObject *name_of(shmc_pyroot *root, const struct shmc_pyrecord *record)
{
    return shmc_pystring_or_none(root, record->record.name);
}

static PyObject *version_of(shmc_pyroot *root, const struct shmc_pyrecord *record)
{
    return shmc_pyversion(root, record->record.version);
}

static PyObject *state_of(shmc_pyroot *Py_UNUSED(root), const struct shmc_pyrecord *record)
{
    return PyLong_FromUnsignedLongLong(record->record.state);
}

static PyObject *generation_of(shmc_pyroot *Py_UNUSED(root), const struct shmc_pyrecord *record)
{
    return PyLong_FromUnsignedLongLong(record->record.generation);
}

static PyObject *count_of(shmc_pyroot *Py_UNUSED(root), const struct shmc_pyrecord *record)
{
    return PyLong_FromUnsignedLongLong(record->record.count);
}

static PyObject *resource_property(PyObject *self, void *how)
{
    return described(self, *(const describe *)how);
}

static PyObject *resource_record(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return described(self, shmc_pyrecord_dict);
}

static PyObject *resource_contact(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return described(self, shmc_pycontact);
}

static Py_ssize_t resource_length(PyObject *self)
{
    PyObject *count = described(self, count_of);
    const Py_ssize_t length = count != NULL ? PyLong_AsSsize_t(count) : -1;

    Py_XDECREF(count);
    return length;
}

/* ---- the type ------------------------------------------------------------------------------- */

static int resource_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"reader", "id", "root", NULL};
    struct resource *self = (struct resource *)object;
    PyObject *reader, *root = Py_None;
    uint64_t id;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O&|O:Resource", names, &shmc_pyreader_type,
                                     &reader, shmc_pyuint64, &id, &root))
        return -1;
    if (root != Py_None && (!PyObject_TypeCheck(root, &shmc_pyroot_type) ||
                            (PyObject *)((shmc_pyroot *)root)->reader != reader)) {
        PyErr_SetString(PyExc_TypeError, "root must be a Root of the same reader, or None");
        return -1;
    }
    self->seen.generation = 0;
    self->id = id;
    Py_XSETREF(self->reader, (shmc_pyreader *)Py_NewRef(reader));
    Py_XSETREF(self->root, root == Py_None ? NULL : (shmc_pyroot *)Py_NewRef(root));
    return 0;
}

static int resource_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct resource *self = (struct resource *)object;

    Py_VISIT(self->reader);
    if (self->root != NULL && Py_REFCNT(self->root) == 1)
        Py_VISIT(self->root->reader); /* a Root is not tracked: visit its reference here */
    return 0;
}

static int resource_clear(PyObject *object)
{
    struct resource *self = (struct resource *)object;

    Py_CLEAR(self->root);
    Py_CLEAR(self->reader);
    return 0;
}

static void resource_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    resource_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *resource_reader(PyObject *object, void *Py_UNUSED(unused))
{
    struct resource *self = (struct resource *)object;

    if (self->root == NULL && self->reader != NULL && shmc_pyreader_spent(self->reader) &&
        renew(self) < 0)
        return NULL;
    return Py_NewRef(self->reader != NULL ? (PyObject *)self->reader : Py_None);
}

/* For subclasses. */
static PyObject *resource_renew(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Py_RETURN_NONE;
}

static describe get_name = name_of, get_version = version_of, get_state = state_of,
                get_generation = generation_of;

static PyGetSetDef resource_properties[] = {
    {"reader", resource_reader, NULL, "The reader in use now.", NULL},
    {"name", resource_property, NULL, "Its name.", (void *)&get_name},
    {"version", resource_property, NULL, "resourceVersion of the resource.", (void *)&get_version},
    {"state", resource_property, NULL, "Its state, as a number.", (void *)&get_state},
    {"generation", resource_property, NULL, "The generation of its last change.",
     (void *)&get_generation},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef resource_members[] = {
    {"root", T_OBJECT, offsetof(struct resource, root), READONLY, "The snapshot, or None."},
    {"id", T_ULONGLONG, offsetof(struct resource, id), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define KEYWORDS(function) ((PyCFunction)(void (*)(void))(function)), METH_VARARGS | METH_KEYWORDS

static PyMethodDef resource_methods[] = {
    {"get", (PyCFunction)(void (*)(void))resource_get, METH_FASTCALL | METH_KEYWORDS,
     "get(key, default=None): the object as a View. With namespace=, max_age= or "
     "consistent=: see CachedResource."},
    {"renew", resource_renew, METH_NOARGS,
     "Called when the reader is spent: a subclass may call __init__ again, with another one."},
    {"keys", resource_keys, METH_NOARGS, "Iterates over the keys of one root, in order."},
    {"values", resource_values, METH_NOARGS, "Iterates over the objects of one root."},
    {"items", resource_items, METH_NOARGS, "Iterates over (key, object) of one root."},
    {"record", resource_record, METH_NOARGS, "The record of the resource in the root."},
    {"contact", resource_contact, METH_NOARGS,
     "The contact with its source as it is now; not part of a generation."},
    {"scan", KEYWORDS(resource_scan), "An ordered range of the resource or of an index."},
    {"by_index", KEYWORDS(resource_by_index), "The objects with an index value, in key order."},
    {"index_values", KEYWORDS(resource_index_values), "The distinct values of an index."},
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods resource_mapping = {
    .mp_length = resource_length,
    .mp_subscript = resource_subscript,
};
static PySequenceMethods resource_sequence = {.sq_contains = resource_contains};

PyTypeObject shmc_pyresource_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Resource",
    .tp_doc = PyDoc_STR("Resource(reader, id, root=None): look-ups on the latest root, or on one."),
    .tp_basicsize = sizeof(struct resource),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = resource_init,
    .tp_dealloc = resource_dealloc,
    .tp_traverse = resource_traverse,
    .tp_clear = resource_clear,
    .tp_iter = resource_iter,
    .tp_as_mapping = &resource_mapping,
    .tp_as_sequence = &resource_sequence,
    .tp_methods = resource_methods,
    .tp_members = resource_members,
    .tp_getset = resource_properties,
};
