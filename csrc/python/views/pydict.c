/*
 * pydict.c - View: the read-only dict for an object word.
 *
 * An access is: probe the shape's table for the key's position, load that word, validate, create.
 *
 * Rare methods, and those where a dict is subtle (items(), |, copies), use a shallow dict of
 * the values: they behave like a dict's because they are a dict's.
 */
#include "python/pyhot.h"

/* ---- access --------------------------------------------------------------------------- */

/* New reference; NULL without an exception if the key is absent. */
static inline PyObject *find(shmc_pyview *view, PyObject *key)
{
    Py_ssize_t position;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    position = shmc_pyshape_probe(view->shape, key);
    return position < 0 ? NULL : shmc_pyview_item(view, (uint64_t)position);
}

static PyObject *view_subscript(PyObject *self, PyObject *key)
{
    PyObject *value = find((shmc_pyview *)self, key);

    if (value == NULL && !PyErr_Occurred()) {
        /* As in dict: a tuple is a key and not the exception's arguments. */
        PyObject *error = PyObject_CallOneArg(PyExc_KeyError, key);

        if (error != NULL)
            PyErr_SetObject(PyExc_KeyError, error);
        Py_XDECREF(error);
    }
    return value;
}

static PyObject *view_get(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2)
        return PyErr_Format(PyExc_TypeError, "get expected 1 or 2 arguments, got %zd", count);
    PyObject *value = find((shmc_pyview *)self, args[0]);
    if (value != NULL || PyErr_Occurred())
        return value;
    return Py_NewRef(count == 2 ? args[1] : Py_None);
}

/* Real attributes win over keys. */
static PyObject *view_getattr(PyObject *self, PyObject *name)
{
    if (_PyType_Lookup(Py_TYPE(self), name) != NULL)
        return PyObject_GenericGetAttr(self, name);
    PyObject *value = find((shmc_pyview *)self, name);
    if (value != NULL || PyErr_Occurred())
        return value;
    return shmc_pyview_no_attribute(self, name);
}

static Py_ssize_t view_length(PyObject *self)
{
    shmc_pyview *view = (shmc_pyview *)self;

    return shmc_pyview_ready(view) < 0 ? -1 : (Py_ssize_t)view->count;
}

static int view_contains(PyObject *self, PyObject *key)
{
    shmc_pyview *view = (shmc_pyview *)self;

    if (shmc_pyview_ready(view) < 0)
        return -1;
    const Py_ssize_t position = shmc_pyshape_probe(view->shape, key);
    return position == -2 ? -1 : position >= 0;
}

/* ---- iteration, and the dict's views -------------------------------------------------- */

/* New reference to the tuple of keys. */
static PyObject *keys_of(shmc_pyview *view)
{
    if (shmc_pyview_ready(view) < 0)
        return NULL;
    return view->shape == NULL ? PyTuple_New(0) : Py_NewRef(view->shape->keys);
}

static PyObject *view_iter(PyObject *self)
{
    PyObject *keys = keys_of((shmc_pyview *)self);
    PyObject *iterator = keys == NULL ? NULL : PyObject_GetIter(keys);

    Py_XDECREF(keys);
    return iterator;
}

static PyObject *view_reversed(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *keys = keys_of((shmc_pyview *)self);
    PyObject *iterator =
        keys == NULL ? NULL : PyObject_CallOneArg((PyObject *)&PyReversed_Type, keys);

    Py_XDECREF(keys);
    return iterator;
}

/* A plain dict of the values, views included. */
static PyObject *view_copy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyview *view = (shmc_pyview *)self;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    if (view->shape == NULL)
        return PyDict_New();
    PyObject *blank = shmc_pyshape_blank(view->shape);
    PyObject *copy = blank == NULL ? NULL : PyDict_Copy(blank);
    for (uint64_t i = 0; copy != NULL && i < view->count; i++) {
        PyObject *value = shmc_pyview_item(view, i);
        PyObject *key = PyTuple_GET_ITEM(view->shape->keys, (Py_ssize_t)i);

        if (value == NULL || PyDict_SetItem(copy, key, value) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(value);
    }
    return copy;
}

/* The keys need no values: the shape's blank dict has them already. */
static PyObject *view_keys(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyview *view = (shmc_pyview *)self;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    PyObject *blank = view->shape == NULL ? PyDict_New()
                                          : Py_XNewRef(shmc_pyshape_blank(view->shape));
    PyObject *keys = blank == NULL ? NULL : PyObject_CallMethod(blank, "keys", NULL);
    Py_XDECREF(blank);
    return keys;
}

static PyObject *view_values(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *copy = view_copy(self, NULL);
    PyObject *values = copy == NULL ? NULL : PyObject_CallMethod(copy, "values", NULL);

    Py_XDECREF(copy);
    return values;
}

static PyObject *view_items(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *copy = view_copy(self, NULL);
    PyObject *items = copy == NULL ? NULL : PyObject_CallMethod(copy, "items", NULL);

    Py_XDECREF(copy);
    return items;
}

/* ---- comparison ----------------------------------------------------------------------- */

/* 1, 0, or -1 with an exception set. Comparing may run any code, which may even change the dict. */
static int equals_dict(shmc_pyview *view, PyObject *dict)
{
    int equal = (uint64_t)PyDict_GET_SIZE(dict) == view->count;

    for (uint64_t i = 0; equal == 1 && i < view->count; i++) {
        PyObject *key = PyTuple_GET_ITEM(view->shape->keys, (Py_ssize_t)i);
        PyObject *other = PyDict_GetItemWithError(dict, key);

        if (other == NULL)
            return PyErr_Occurred() ? -1 : 0;
        Py_INCREF(other);
        PyObject *mine = shmc_pyview_item(view, i);
        equal = mine == NULL ? -1 : PyObject_RichCompareBool(mine, other, Py_EQ);
        Py_XDECREF(mine);
        Py_DECREF(other);
    }
    return equal;
}

/* Equal words of one segment are equal values; unequal ones may be equal with keys reordered. */
static int equals_view(shmc_pyview *a, shmc_pyview *b)
{
    if (shmc_pyview_ready(b) < 0)
        return -1;
    if (shmc_pyview_same(a, b))
        return 1;
    if (a->count != b->count)
        return 0;
    for (uint64_t i = 0; i < a->count; i++) {
        PyObject *key = PyTuple_GET_ITEM(a->shape->keys, (Py_ssize_t)i);
        const Py_ssize_t position = shmc_pyshape_probe(b->shape, key);

        if (position < 0)
            return position == -1 ? 0 : -1;
        const int equal = shmc_pyview_equal_items(a, i, b, (uint64_t)position);
        if (equal != 1)
            return equal;
    }
    return 1;
}

static PyObject *view_richcompare(PyObject *self, PyObject *other, int operation)
{
    shmc_pyview *view = (shmc_pyview *)self;
    const bool is_view = Py_TYPE(other) == &shmc_pyview_type;
    int equal;

    if ((operation != Py_EQ && operation != Py_NE) || (!is_view && !PyDict_Check(other)))
        Py_RETURN_NOTIMPLEMENTED;
    if (shmc_pyview_ready(view) < 0)
        return NULL;
    equal = is_view ? equals_view(view, (shmc_pyview *)other) : equals_dict(view, other);
    return equal < 0 ? NULL : PyBool_FromLong(equal == (operation == Py_EQ));
}

/* ---- | -------------------------------------------------------------------------------- */

static PyObject *as_dict(PyObject *thing)
{
    return Py_TYPE(thing) == &shmc_pyview_type ? view_copy(thing, NULL) : Py_NewRef(thing);
}

static PyObject *view_or(PyObject *left, PyObject *right)
{
    PyObject *a, *b, *merged;

    if ((Py_TYPE(left) != &shmc_pyview_type && !PyDict_Check(left)) ||
        (Py_TYPE(right) != &shmc_pyview_type && !PyDict_Check(right)))
        Py_RETURN_NOTIMPLEMENTED;
    a = as_dict(left);
    b = a == NULL ? NULL : as_dict(right);
    merged = b == NULL ? NULL : PyNumber_Or(a, b);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return merged;
}

/* ---- the type ------------------------------------------------------------------------- */

/* For cache["pods"]["prod/web-0"]["<TAB>. */
static PyObject *view_key_list(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *keys = keys_of((shmc_pyview *)self);
    PyObject *list = keys == NULL ? NULL : PySequence_List(keys);

    Py_XDECREF(keys);
    return list;
}

static PyMethodDef methods[] = {
    {"get", (PyCFunction)(void (*)(void))view_get, METH_FASTCALL,
     "get(key, default=None, /)\n--\n\nThe key's value, or the default."},
    {"keys", view_keys, METH_NOARGS, "keys()\n--\n\nAs dict.keys()."},
    {"values", view_values, METH_NOARGS, "values()\n--\n\nAs dict.values(), but a snapshot."},
    {"items", view_items, METH_NOARGS, "items()\n--\n\nAs dict.items(), but a snapshot."},
    {"copy", view_copy, METH_NOARGS, "copy()\n--\n\nA plain dict; containers in it are views."},
    {"to_dict", shmc_pyview_plain, METH_NOARGS,
     "to_dict()\n--\n\nA plain dict, all the way down, that outlives the cache."},
    {"json", shmc_pyview_json, METH_NOARGS, "json()\n--\n\nCompact JSON, as bytes."},
    {"json_in", shmc_pyview_json_in, METH_O,
     "json_in(form, /)\n--\n\njson() in the form of a page of objects: see Root.scan_json()."},
    {"__copy__", view_copy, METH_NOARGS, NULL},
    {"__deepcopy__", shmc_pyview_deepcopy, METH_O, NULL},
    {"__reduce__", shmc_pyview_reduce, METH_NOARGS, NULL},
    {"__dir__", shmc_pyview_dir, METH_NOARGS, NULL},
    {"_repr_pretty_", shmc_pyview_pretty, METH_VARARGS, NULL},
    {"__structlog__", shmc_pyview_plain, METH_NOARGS, NULL},
    {"_ipython_key_completions_", view_key_list, METH_NOARGS, NULL},
    {"_repr_html_", shmc_pyview_html, METH_NOARGS, NULL},
    {"__get_pydantic_core_schema__", shmc_pyview_schema, METH_VARARGS | METH_CLASS, NULL},
    {"__reversed__", view_reversed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"__class__", shmc_pyview_class, NULL, NULL, NULL},
    {"__pydantic_serializer__", shmc_pyview_serializer, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMappingMethods as_mapping = {
    .mp_length = view_length,
    .mp_subscript = view_subscript,
    .mp_ass_subscript = shmc_pyview_setitem,
};
static PySequenceMethods as_sequence = {.sq_contains = view_contains};
static PyNumberMethods as_number = {.nb_or = view_or, .nb_inplace_or = shmc_pyview_inplace};

PyTypeObject shmc_pyview_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.View",
    .tp_basicsize = sizeof(shmc_pyview),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_MAPPING,
    .tp_doc = "An object in the cache, as a read-only dict.\n\n"
              "To keep it, use .to_dict(): a view whose memory the cache had to give to newer\n"
              "objects raises StaleObjectError.",
    .tp_dealloc = shmc_pyview_dealloc,
    .tp_repr = shmc_pyview_repr,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_getattro = view_getattr,
    .tp_setattro = shmc_pyview_setattr,
    .tp_richcompare = view_richcompare,
    .tp_iter = view_iter,
    .tp_methods = methods,
    .tp_getset = attributes,
    .tp_new = shmc_pyview_plain_new,
    .tp_as_mapping = &as_mapping,
    .tp_as_sequence = &as_sequence,
    .tp_as_number = &as_number,
};
