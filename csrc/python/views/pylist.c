/*
 * pylist.c - ListView: the read-only list for an array word.
 *
 * Elements are made one by one on access. A slice, a sum or a copy is a plain list of them.
 */
#include "python/pyhot.h"

/* ---- access --------------------------------------------------------------------------- */

static Py_ssize_t list_length(PyObject *self)
{
    shmc_pyview *view = (shmc_pyview *)self;

    return shmc_pyview_ready(view) < 0 ? -1 : (Py_ssize_t)view->count;
}

static PyObject *list_item(PyObject *self, Py_ssize_t index)
{
    shmc_pyview *view = (shmc_pyview *)self;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    if (index < 0 || (uint64_t)index >= view->count) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    return shmc_pyview_item(view, (uint64_t)index);
}

/* `count` elements from `start` on, each `step` further, all within an open view. */
static PyObject *take(shmc_pyview *view, Py_ssize_t start, Py_ssize_t step, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);

    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = shmc_pyview_item(view, (uint64_t)(start + i * step));

        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, value);
    }
    return list;
}

static PyObject *list_subscript(PyObject *self, PyObject *key)
{
    shmc_pyview *view = (shmc_pyview *)self;
    Py_ssize_t start, stop, step;

    if (PyIndex_Check(key)) {
        Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);

        if ((index == -1 && PyErr_Occurred()) || shmc_pyview_ready(view) < 0)
            return NULL;
        return list_item(self, index < 0 ? index + (Py_ssize_t)view->count : index);
    }
    if (!PySlice_Check(key))
        return PyErr_Format(PyExc_TypeError, "list indices must be integers or slices, not %s",
                            Py_TYPE(key)->tp_name);
    if (PySlice_Unpack(key, &start, &stop, &step) < 0 || shmc_pyview_ready(view) < 0)
        return NULL;
    const Py_ssize_t count = PySlice_AdjustIndices((Py_ssize_t)view->count, &start, &stop, step);
    return take(view, start, step, count);
}

static PyObject *list_copy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyview *view = (shmc_pyview *)self;

    return shmc_pyview_ready(view) < 0 ? NULL : take(view, 0, 1, (Py_ssize_t)view->count);
}

/* ---- searching ------------------------------------------------------------------------ */

/* Whether element `index` equals the given object: 1, 0, or -1 with an exception set. */
static int matches(shmc_pyview *view, uint64_t index, PyObject *sought)
{
    PyObject *value = shmc_pyview_item(view, index);
    const int equal = value == NULL ? -1 : PyObject_RichCompareBool(value, sought, Py_EQ);

    Py_XDECREF(value);
    return equal;
}

static int list_contains(PyObject *self, PyObject *sought)
{
    shmc_pyview *view = (shmc_pyview *)self;
    int found = shmc_pyview_ready(view);

    for (uint64_t i = 0; found == 0 && i < view->count; i++)
        found = matches(view, i, sought);
    return found;
}

static PyObject *list_count(PyObject *self, PyObject *sought)
{
    shmc_pyview *view = (shmc_pyview *)self;
    Py_ssize_t total = 0;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    for (uint64_t i = 0; i < view->count; i++) {
        const int found = matches(view, i, sought);

        if (found < 0)
            return NULL;
        total += found;
    }
    return PyLong_FromSsize_t(total);
}

/* Like a slice's end: any __index__, clamped. */
static int bound(PyObject *argument, Py_ssize_t count, Py_ssize_t *to)
{
    if (!PyIndex_Check(argument)) {
        PyErr_SetString(PyExc_TypeError,
                        "slice indices must be integers or have an __index__ method");
        return -1;
    }
    Py_ssize_t index = PyNumber_AsSsize_t(argument, NULL);
    if (index == -1 && PyErr_Occurred())
        return -1;
    if (index < 0)
        index = index + count < 0 ? 0 : index + count;
    *to = index > count ? count : index;
    return 0;
}

static PyObject *list_index(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    shmc_pyview *view = (shmc_pyview *)self;
    Py_ssize_t start = 0;

    if (given < 1 || given > 3)
        return PyErr_Format(PyExc_TypeError, "index expected 1 to 3 arguments, got %zd", given);
    if (shmc_pyview_ready(view) < 0)
        return NULL;
    Py_ssize_t stop = (Py_ssize_t)view->count;
    if ((given > 1 && bound(args[1], (Py_ssize_t)view->count, &start) < 0) ||
        (given > 2 && bound(args[2], (Py_ssize_t)view->count, &stop) < 0))
        return NULL;
    for (Py_ssize_t i = start; i < stop; i++) {
        const int found = matches(view, (uint64_t)i, args[0]);

        if (found != 0)
            return found < 0 ? NULL : PyLong_FromSsize_t(i);
    }
    return PyErr_Format(PyExc_ValueError, "%R is not in list", args[0]);
}

/* ---- comparison, sums ----------------------------------------------------------------- */

/* Comparing may run any code, which may even change the list. */
static int equals_list(shmc_pyview *view, PyObject *list)
{
    int equal = (uint64_t)PyList_GET_SIZE(list) == view->count;

    for (uint64_t i = 0; equal == 1 && i < view->count; i++) {
        if ((uint64_t)PyList_GET_SIZE(list) != view->count)
            return 0;
        PyObject *other = Py_NewRef(PyList_GET_ITEM(list, (Py_ssize_t)i));
        equal = matches(view, i, other);
        Py_DECREF(other);
    }
    return equal;
}

static int equals_view(shmc_pyview *a, shmc_pyview *b)
{
    int equal = 1;

    if (shmc_pyview_ready(b) < 0)
        return -1;
    if (shmc_pyview_same(a, b))
        return 1;
    if (a->count != b->count)
        return 0;
    for (uint64_t i = 0; equal == 1 && i < a->count; i++)
        equal = shmc_pyview_equal_items(a, i, b, i);
    return equal;
}

static PyObject *list_richcompare(PyObject *self, PyObject *other, int operation)
{
    shmc_pyview *view = (shmc_pyview *)self;
    const bool is_view = Py_TYPE(other) == &shmc_pylist_type;
    int equal;

    if ((operation != Py_EQ && operation != Py_NE) || (!is_view && !PyList_Check(other)))
        Py_RETURN_NOTIMPLEMENTED;
    if (shmc_pyview_ready(view) < 0)
        return NULL;
    equal = is_view ? equals_view(view, (shmc_pyview *)other) : equals_list(view, other);
    return equal < 0 ? NULL : PyBool_FromLong(equal == (operation == Py_EQ));
}

static PyObject *as_list(PyObject *thing)
{
    return Py_TYPE(thing) == &shmc_pylist_type ? list_copy(thing, NULL) : Py_NewRef(thing);
}

static PyObject *list_add(PyObject *left, PyObject *right)
{
    if ((Py_TYPE(left) != &shmc_pylist_type && !PyList_Check(left)) ||
        (Py_TYPE(right) != &shmc_pylist_type && !PyList_Check(right)))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *a = as_list(left);
    PyObject *b = a == NULL ? NULL : as_list(right);
    PyObject *sum = b == NULL ? NULL : PySequence_Concat(a, b);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return sum;
}

static PyObject *list_repeat(PyObject *self, Py_ssize_t times)
{
    PyObject *copy = list_copy(self, NULL);
    PyObject *repeated = copy == NULL ? NULL : PySequence_Repeat(copy, times);

    Py_XDECREF(copy);
    return repeated;
}

static PyObject *list_inplace_repeat(PyObject *self, Py_ssize_t Py_UNUSED(times))
{
    return shmc_pyview_inplace(self, NULL);
}

/* ---- iteration ------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    shmc_pyview *view; /* NULL at the end */
    uint64_t next;     /* < count until the end; counts down past 0 to it */
    uint64_t step;     /* 1, or -1 in two's complement */
} list_iterator;

static PyTypeObject iterator_type;

static PyObject *make_iterator(PyObject *self, uint64_t first, uint64_t step)
{
    list_iterator *iterator = PyObject_New(list_iterator, &iterator_type);

    if (iterator == NULL)
        return NULL;
    iterator->view = (shmc_pyview *)Py_NewRef(self);
    iterator->next = first;
    iterator->step = step;
    return (PyObject *)iterator;
}

static PyObject *list_iter(PyObject *self)
{
    return shmc_pyview_ready((shmc_pyview *)self) < 0 ? NULL : make_iterator(self, 0, 1);
}

static PyObject *list_reversed(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyview *view = (shmc_pyview *)self;

    if (shmc_pyview_ready(view) < 0)
        return NULL;
    return make_iterator(self, view->count - 1, ~UINT64_C(0));
}

static void iterator_dealloc(PyObject *self)
{
    Py_XDECREF((PyObject *)((list_iterator *)self)->view);
    PyObject_Free(self);
}

static PyObject *iterator_next(PyObject *self)
{
    list_iterator *iterator = (list_iterator *)self;
    shmc_pyview *view = iterator->view;

    if (view == NULL)
        return NULL;
    if (iterator->next < view->count) {
        PyObject *value = shmc_pyview_item(view, iterator->next);

        iterator->next += iterator->step;
        return value;
    }
    iterator->view = NULL;
    Py_DECREF((PyObject *)view);
    return NULL;
}

static PyObject *iterator_hint(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const list_iterator *iterator = (list_iterator *)self;
    uint64_t left = 0;

    if (iterator->view != NULL && iterator->next < iterator->view->count)
        left = iterator->step == 1 ? iterator->view->count - iterator->next : iterator->next + 1;
    return PyLong_FromUnsignedLongLong(left);
}

static PyMethodDef iterator_methods[] = {
    {"__length_hint__", iterator_hint, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject iterator_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.ListViewIterator",
    .tp_basicsize = sizeof(list_iterator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = iterator_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = iterator_next,
    .tp_methods = iterator_methods,
};

int shmc_pylist_init(void)
{
    return PyType_Ready(&iterator_type);
}

/* ---- the type ------------------------------------------------------------------------- */

static PyObject *list_getattr(PyObject *self, PyObject *name)
{
    if (_PyType_Lookup(Py_TYPE(self), name) != NULL)
        return PyObject_GenericGetAttr(self, name);
    return shmc_pyview_no_attribute(self, name);
}

/* Unpickling does not need shmcache. */
static PyMethodDef methods[] = {
    {"index", (PyCFunction)(void (*)(void))list_index, METH_FASTCALL,
     "index(value, start=0, stop=sys.maxsize, /)\n--\n\nAs list.index()."},
    {"count", list_count, METH_O, "count(value, /)\n--\n\nAs list.count()."},
    {"copy", list_copy, METH_NOARGS, "copy()\n--\n\nA plain list; containers in it are views."},
    {"to_list", shmc_pyview_plain, METH_NOARGS,
     "to_list()\n--\n\nA plain list, all the way down, that outlives the cache."},
    {"json", shmc_pyview_json, METH_NOARGS, "json()\n--\n\nCompact JSON, as bytes."},
    {"__copy__", list_copy, METH_NOARGS, NULL},
    {"__deepcopy__", shmc_pyview_deepcopy, METH_O, NULL},
    {"__reduce__", shmc_pyview_reduce, METH_NOARGS, NULL},
    {"__dir__", shmc_pyview_dir, METH_NOARGS, NULL},
    {"_repr_pretty_", shmc_pyview_pretty, METH_VARARGS, NULL},
    {"__structlog__", shmc_pyview_plain, METH_NOARGS, NULL},
    {"_repr_html_", shmc_pyview_html, METH_NOARGS, NULL},
    {"__get_pydantic_core_schema__", shmc_pyview_schema, METH_VARARGS | METH_CLASS, NULL},
    {"__reversed__", list_reversed, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"__class__", shmc_pyview_class, NULL, NULL, NULL},
    {"__pydantic_serializer__", shmc_pyview_serializer, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMappingMethods as_mapping = {
    .mp_length = list_length,
    .mp_subscript = list_subscript,
    .mp_ass_subscript = shmc_pyview_setitem,
};
static PySequenceMethods as_sequence = {
    .sq_length = list_length,
    .sq_item = list_item,
    .sq_contains = list_contains,
    .sq_repeat = list_repeat,
    .sq_inplace_concat = shmc_pyview_inplace,
    .sq_inplace_repeat = list_inplace_repeat,
};
static PyNumberMethods as_number = {.nb_add = list_add, .nb_inplace_add = shmc_pyview_inplace};

PyTypeObject shmc_pylist_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.ListView",
    .tp_basicsize = sizeof(shmc_pyview),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_SEQUENCE,
    .tp_doc = "An array in the cache, as a read-only list.\n\n"
              "To keep it, use .to_list(): a view whose memory the cache had to give to newer\n"
              "objects raises StaleObjectError.",
    .tp_dealloc = shmc_pyview_dealloc,
    .tp_repr = shmc_pyview_repr,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_getattro = list_getattr,
    .tp_setattro = shmc_pyview_setattr,
    .tp_richcompare = list_richcompare,
    .tp_iter = list_iter,
    .tp_methods = methods,
    .tp_getset = attributes,
    .tp_new = shmc_pyview_plain_new,
    .tp_as_mapping = &as_mapping,
    .tp_as_sequence = &as_sequence,
    .tp_as_number = &as_number,
};
