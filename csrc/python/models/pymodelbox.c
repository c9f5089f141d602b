/*
 * pymodelbox.c - ModelList and ModelMap: arrays and maps whose values are models (see pymodel.h).
 *
 * Elements are made one by one on access. Rare methods use a plain list or dict of them: they
 * behave like a list's or dict's because they are a list's or dict's.
 */
#include "python/models/pymodel.h"

static int ready(PyObject *self)
{
    return shmc_pyview_ready(&((shmc_pymodel *)self)->view);
}

static Py_ssize_t box_length(PyObject *self)
{
    return ready(self) < 0 ? -1 : (Py_ssize_t)((shmc_pymodel *)self)->view.count;
}

/* 1 if both are the same words of one segment, read in the same way. */
static int same(PyObject *self, PyObject *other)
{
    const shmc_pymodel *a = (shmc_pymodel *)self, *b = (shmc_pymodel *)other;

    return Py_TYPE(self) == Py_TYPE(other) && a->of == b->of &&
           shmc_pyview_same(&a->view, &b->view);
}

/* Compares plain copies, in which the elements are models. Steals `mine`. */
static PyObject *compare(PyObject *mine, PyObject *other, int operation)
{
    PyObject *result = mine == NULL ? NULL : PyObject_RichCompare(mine, other, operation);

    Py_XDECREF(mine);
    return result;
}

/* ---- lists -------------------------------------------------------------------------------- */

static PyObject *list_item(PyObject *self, Py_ssize_t index)
{
    shmc_pymodel *list = (shmc_pymodel *)self;

    if (ready(self) < 0)
        return NULL;
    if (index < 0 || (uint64_t)index >= list->view.count) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    return shmc_pymodel_item(list, (uint64_t)index);
}

static PyObject *take(PyObject *self, Py_ssize_t start, Py_ssize_t step, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);

    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *value = list_item(self, start + i * step);

        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, value);
    }
    return list;
}

static PyObject *list_copy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return ready(self) < 0 ? NULL : take(self, 0, 1, box_length(self));
}

static PyObject *list_subscript(PyObject *self, PyObject *key)
{
    Py_ssize_t start, stop, step;

    if (PyIndex_Check(key)) {
        Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);

        if ((index == -1 && PyErr_Occurred()) || ready(self) < 0)
            return NULL;
        return list_item(self, index < 0 ? index + box_length(self) : index);
    }
    if (!PySlice_Check(key))
        return PyErr_Format(PyExc_TypeError, "list indices must be integers or slices, not %s",
                            Py_TYPE(key)->tp_name);
    if (PySlice_Unpack(key, &start, &stop, &step) < 0 || ready(self) < 0)
        return NULL;
    const Py_ssize_t count = PySlice_AdjustIndices(box_length(self), &start, &stop, step);
    return take(self, start, step, count);
}

static int list_contains(PyObject *self, PyObject *sought)
{
    PyObject *copy = list_copy(self, NULL);
    const int found = copy == NULL ? -1 : PySequence_Contains(copy, sought);

    Py_XDECREF(copy);
    return found;
}

/* The list method of this name, on a copy. */
static PyObject *on_copy(PyObject *self, const char *name, PyObject *args)
{
    PyObject *copy = list_copy(self, NULL);
    PyObject *method = copy == NULL ? NULL : PyObject_GetAttrString(copy, name);
    PyObject *result = method == NULL ? NULL : PyObject_Call(method, args, NULL);

    Py_XDECREF(method);
    Py_XDECREF(copy);
    return result;
}

static PyObject *list_index(PyObject *self, PyObject *args)
{
    return on_copy(self, "index", args);
}

static PyObject *list_count(PyObject *self, PyObject *args)
{
    return on_copy(self, "count", args);
}

static PyObject *list_iter(PyObject *self)
{
    return ready(self) < 0 ? NULL : PySeqIter_New(self);
}

static PyObject *as_list(PyObject *thing)
{
    return Py_TYPE(thing) == &shmc_pymodellist_type ? list_copy(thing, NULL) : Py_NewRef(thing);
}

static PyObject *list_add(PyObject *left, PyObject *right)
{
    PyObject *a = as_list(left);
    PyObject *b = a == NULL ? NULL : as_list(right);
    PyObject *sum = NULL;

    if (b != NULL && PyList_Check(a) && PyList_Check(b))
        sum = PySequence_Concat(a, b);
    else if (b != NULL)
        sum = Py_NewRef(Py_NotImplemented);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return sum;
}

static PyObject *list_richcompare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) ||
        (!PyList_Check(other) && Py_TYPE(other) != &shmc_pymodellist_type))
        Py_RETURN_NOTIMPLEMENTED;
    if (ready(self) < 0)
        return NULL;
    if (same(self, other))
        return PyBool_FromLong(operation == Py_EQ);
    PyObject *theirs = as_list(other);
    PyObject *result = theirs == NULL ? NULL : compare(list_copy(self, NULL), theirs, operation);
    Py_XDECREF(theirs);
    return result;
}

/* Of a copy, or of a handle that cannot be read any more. Steals the copy. */
static PyObject *box_repr(PyObject *self, PyObject *copy)
{
    if (copy == NULL && PyErr_ExceptionMatches(shmc_hot_errors.base)) {
        PyErr_Clear();
        return PyUnicode_FromFormat("<%s: cannot be read any more>",
                                    strrchr(Py_TYPE(self)->tp_name, '.') + 1);
    }
    PyObject *text = copy == NULL ? NULL : PyObject_Repr(copy);
    Py_XDECREF(copy);
    return text;
}

static PyObject *list_repr(PyObject *self)
{
    return box_repr(self, list_copy(self, NULL));
}

/* Each element as its to_dict(), or as it is. */
static PyObject *plain_list(PyObject *copy)
{
    for (Py_ssize_t i = 0; copy != NULL && i < PyList_GET_SIZE(copy); i++) {
        PyObject *item = PyList_GET_ITEM(copy, i); /* borrowed: the list is ours alone */
        PyTypeObject *type = Py_TYPE(item);

        if (type != &shmc_pymodel_type && type != &shmc_pymodelmap_type &&
            type != &shmc_pyview_type && type != &shmc_pymodellist_type && type != &shmc_pylist_type)
            continue;
        const bool list = type == &shmc_pymodellist_type || type == &shmc_pylist_type;
        PyObject *plain = PyObject_CallMethod(item, list ? "to_list" : "to_dict", NULL);
        if (plain == NULL)
            Py_CLEAR(copy);
        else
            PyList_SetItem(copy, i, plain);
    }
    return copy;
}

static PyObject *list_to_list(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return plain_list(list_copy(self, NULL));
}

static PyObject *list_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *copy = list_copy(self, NULL);

    return copy == NULL ? NULL : Py_BuildValue("O(N)", (PyObject *)&PyList_Type, copy);
}

/* copy.deepcopy() of a plain copy. Steals it. */
static PyObject *deep(PyObject *copy, PyObject *memo)
{
    PyObject *module = copy == NULL ? NULL : PyImport_ImportModule("copy");
    PyObject *result =
        module == NULL ? NULL : PyObject_CallMethod(module, "deepcopy", "OO", copy, memo);

    Py_XDECREF(module);
    Py_XDECREF(copy);
    return result;
}

static PyObject *list_deepcopy(PyObject *self, PyObject *memo)
{
    return deep(list_copy(self, NULL), memo);
}

static PyObject *list_inplace(PyObject *self, PyObject *Py_UNUSED(other))
{
    shmc_pymodel_setattr(self, Py_None, Py_None);
    return NULL;
}

/* The hint is for callers of append(). */
static PyObject *box_getattr(PyObject *self, PyObject *name, PyTypeObject *plain, const char *copy)
{
    if (_PyType_Lookup(Py_TYPE(self), name) != NULL)
        return PyObject_GenericGetAttr(self, name);
    return PyErr_Format(PyExc_AttributeError, "%s has no attribute %R%s%s", Py_TYPE(self)->tp_name,
                        name, _PyType_Lookup(plain, name) == NULL ? "" : ": it is read-only, change ",
                        _PyType_Lookup(plain, name) == NULL ? "" : copy);
}

static PyObject *list_getattr(PyObject *self, PyObject *name)
{
    return box_getattr(self, name, &PyList_Type, "a .to_list() of it");
}

static PyMethodDef list_methods[] = {
    {"index", list_index, METH_VARARGS, "index(value, start=0, stop=sys.maxsize, /)"},
    {"count", list_count, METH_VARARGS, "count(value, /)"},
    {"copy", list_copy, METH_NOARGS, "copy()\n--\n\nA plain list of the models."},
    {"to_list", list_to_list, METH_NOARGS, "to_list()\n--\n\nA plain list of their to_dict()."},
    {"to_view", shmc_pymodel_view, METH_NOARGS, "to_view()\n--\n\nThe ListView of the array."},
    {"__structlog__", shmc_pymodel_plain, METH_NOARGS, NULL},
    {"__copy__", list_copy, METH_NOARGS, NULL},
    {"__deepcopy__", list_deepcopy, METH_O, NULL},
    {"__reduce__", list_reduce, METH_NOARGS, NULL},
    {"__get_pydantic_core_schema__", shmc_pyview_schema, METH_VARARGS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef box_attributes[] = {
    {"__class__", shmc_pyview_class, NULL, NULL, NULL},
    {"__pydantic_serializer__", shmc_pyview_serializer, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMappingMethods list_mapping = {
    .mp_length = box_length,
    .mp_subscript = list_subscript,
    .mp_ass_subscript = shmc_pymodel_setitem,
};
static PySequenceMethods list_sequence = {
    .sq_length = box_length,
    .sq_item = list_item,
    .sq_contains = list_contains,
    .sq_inplace_concat = list_inplace,
};
static PyNumberMethods list_number = {.nb_add = list_add, .nb_inplace_add = list_inplace};

PyTypeObject shmc_pymodellist_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.ModelList",
    .tp_basicsize = sizeof(shmc_pymodel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_SEQUENCE,
    .tp_doc = "An array in the cache as a read-only list of models.",
    .tp_dealloc = shmc_pymodel_dealloc,
    .tp_repr = list_repr,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_getattro = list_getattr,
    .tp_setattro = shmc_pymodel_setattr,
    .tp_richcompare = list_richcompare,
    .tp_iter = list_iter,
    .tp_methods = list_methods,
    .tp_getset = box_attributes,
    .tp_new = shmc_pyview_plain_new,
    .tp_as_mapping = &list_mapping,
    .tp_as_sequence = &list_sequence,
    .tp_as_number = &list_number,
};

/* ---- maps --------------------------------------------------------------------------------- */

/* The value of a key; NULL without an exception if it is absent. */
static PyObject *map_find(PyObject *self, PyObject *key)
{
    shmc_pymodel *map = (shmc_pymodel *)self;

    if (ready(self) < 0)
        return NULL;
    const Py_ssize_t position = shmc_pyshape_probe(map->view.shape, key);
    return position < 0 ? NULL : shmc_pymodel_item(map, (uint64_t)position);
}

static PyObject *map_subscript(PyObject *self, PyObject *key)
{
    PyObject *value = map_find(self, key);

    if (value == NULL && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, key);
    return value;
}

static PyObject *map_get(PyObject *self, PyObject *args)
{
    PyObject *key, *fallback = Py_None;

    if (!PyArg_ParseTuple(args, "O|O:get", &key, &fallback))
        return NULL;
    PyObject *value = map_find(self, key);
    return value != NULL || PyErr_Occurred() ? value : Py_NewRef(fallback);
}

static int map_contains(PyObject *self, PyObject *key)
{
    if (ready(self) < 0)
        return -1;
    const Py_ssize_t position = shmc_pyshape_probe(((shmc_pymodel *)self)->view.shape, key);
    return position == -2 ? -1 : position >= 0;
}

static PyObject *map_copy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pymodel *map = (shmc_pymodel *)self;
    PyObject *copy = ready(self) < 0 ? NULL : PyDict_New();

    for (uint64_t i = 0; copy != NULL && i < map->view.count; i++) {
        PyObject *value = shmc_pymodel_item(map, i);

        if (value == NULL ||
            PyDict_SetItem(copy, PyTuple_GET_ITEM(map->view.shape->keys, (Py_ssize_t)i), value) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(value);
    }
    return copy;
}

/* keys(), values(), items() and iter() of a copy. */
static PyObject *of_copy(PyObject *self, const char *method)
{
    PyObject *copy = map_copy(self, NULL);
    PyObject *result = copy == NULL ? NULL : PyObject_CallMethod(copy, method, NULL);

    Py_XDECREF(copy);
    return result;
}

static PyObject *map_keys(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return of_copy(self, "keys");
}

static PyObject *map_values(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return of_copy(self, "values");
}

static PyObject *map_items(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return of_copy(self, "items");
}

static PyObject *map_iter(PyObject *self)
{
    return of_copy(self, "__iter__");
}

static PyObject *map_richcompare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) ||
        (!PyDict_Check(other) && Py_TYPE(other) != &shmc_pymodelmap_type))
        Py_RETURN_NOTIMPLEMENTED;
    if (ready(self) < 0)
        return NULL;
    if (same(self, other))
        return PyBool_FromLong(operation == Py_EQ);
    PyObject *theirs = PyDict_Check(other) ? Py_NewRef(other) : map_copy(other, NULL);
    PyObject *result = theirs == NULL ? NULL : compare(map_copy(self, NULL), theirs, operation);
    Py_XDECREF(theirs);
    return result;
}

static PyObject *map_repr(PyObject *self)
{
    return box_repr(self, map_copy(self, NULL));
}

static PyObject *map_to_dict(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *copy = map_copy(self, NULL);
    PyObject *values = copy == NULL ? NULL : plain_list(PyDict_Values(copy));
    PyObject *keys = values == NULL ? NULL : PyDict_Keys(copy);

    for (Py_ssize_t i = 0; keys != NULL && i < PyList_GET_SIZE(keys); i++) {
        if (PyDict_SetItem(copy, PyList_GET_ITEM(keys, i), PyList_GET_ITEM(values, i)) < 0)
            Py_CLEAR(keys);
    }
    if (keys == NULL)
        Py_CLEAR(copy);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return copy;
}

static PyObject *map_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *copy = map_copy(self, NULL);

    return copy == NULL ? NULL : Py_BuildValue("O(N)", (PyObject *)&PyDict_Type, copy);
}

static PyObject *map_deepcopy(PyObject *self, PyObject *memo)
{
    return deep(map_copy(self, NULL), memo);
}

static PyObject *map_getattr(PyObject *self, PyObject *name)
{
    return box_getattr(self, name, &PyDict_Type, "a .to_dict() of it");
}

static PyMethodDef map_methods[] = {
    {"get", map_get, METH_VARARGS, "get(key, default=None, /)"},
    {"keys", map_keys, METH_NOARGS, "keys()\n--\n\nAs dict.keys(), but a snapshot."},
    {"values", map_values, METH_NOARGS, "values()\n--\n\nAs dict.values(), but a snapshot."},
    {"items", map_items, METH_NOARGS, "items()\n--\n\nAs dict.items(), but a snapshot."},
    {"copy", map_copy, METH_NOARGS, "copy()\n--\n\nA plain dict of the models."},
    {"to_dict", map_to_dict, METH_NOARGS, "to_dict()\n--\n\nA plain dict of their to_dict()."},
    {"to_view", shmc_pymodel_view, METH_NOARGS, "to_view()\n--\n\nThe View of the object."},
    {"__structlog__", shmc_pymodel_plain, METH_NOARGS, NULL},
    {"__copy__", map_copy, METH_NOARGS, NULL},
    {"__deepcopy__", map_deepcopy, METH_O, NULL},
    {"__reduce__", map_reduce, METH_NOARGS, NULL},
    {"__get_pydantic_core_schema__", shmc_pyview_schema, METH_VARARGS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods map_mapping = {
    .mp_length = box_length,
    .mp_subscript = map_subscript,
    .mp_ass_subscript = shmc_pymodel_setitem,
};
static PySequenceMethods map_sequence = {.sq_contains = map_contains};

PyTypeObject shmc_pymodelmap_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.ModelMap",
    .tp_basicsize = sizeof(shmc_pymodel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_MAPPING,
    .tp_doc = "An object in the cache as a read-only dict of models.",
    .tp_dealloc = shmc_pymodel_dealloc,
    .tp_repr = map_repr,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_getattro = map_getattr,
    .tp_setattro = shmc_pymodel_setattr,
    .tp_richcompare = map_richcompare,
    .tp_iter = map_iter,
    .tp_methods = map_methods,
    .tp_getset = box_attributes,
    .tp_new = shmc_pyview_plain_new,
    .tp_as_mapping = &map_mapping,
    .tp_as_sequence = &map_sequence,
};
