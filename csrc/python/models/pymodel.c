/*
 * pymodel.c - Model: an object of the cache with a client's attributes (see pymodel.h).
 *
 *   class Model:                     # made by ModelClass.wrap()
 *       <attributes of its class>    # None for what is absent
 *       def to_view(self) -> View
 *       # all else is its dialect's: attribute(model, name), equal(model, other), text(model),
 *       # names(model), reduce(model), deepcopy(model), library_class(model)
 */
#include "python/models/pymodel.h"

#define FREE_MAX 128u

static struct {
    shmc_pymodel *items[FREE_MAX]; /* memory of all three types: they have one size */
    size_t count;
} spare;

/* ---- life --------------------------------------------------------------------------------- */

PyObject *shmc_pymodel_new(PyTypeObject *type, shmc_pyroot *root, shmc_word word, PyObject *of)
{
    shmc_pymodel *model;

    if (shmc_is_block(word)) {
        for (unsigned line = 0; line < 2; line++)
            shmc_fetch(shmc_pyroot_span(root), shmc_block_of(word) + line * 64);
    }
    if (spare.count > 0)
        model = (shmc_pymodel *)PyObject_Init((PyObject *)spare.items[--spare.count], type);
    else
        model = PyObject_New(shmc_pymodel, type);
    if (model == NULL)
        return NULL;
    model->view.root = (shmc_pyroot *)Py_NewRef((PyObject *)root);
    model->view.word = word;
    model->view.shape = NULL;
    model->view.words = 0;
    model->view.count = 0;
    model->of = Py_NewRef(of);
    return (PyObject *)model;
}

void shmc_pymodel_dealloc(PyObject *self)
{
    shmc_pymodel *model = (shmc_pymodel *)self;
    shmc_pyroot *root = model->view.root;
    PyObject *of = model->of;

    shmc_pyshape_drop(model->view.shape);
    if (spare.count < FREE_MAX)
        spare.items[spare.count++] = model;
    else
        PyObject_Free(model);
    Py_DECREF(of);
    shmc_pyroot_drop(root); /* last: it may run any code */
}

PyObject *shmc_pymodel_view(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const shmc_pymodel *model = (shmc_pymodel *)self;

    return shmc_pyview_new(model->view.root, model->view.word);
}

PyObject *shmc_pymodel_plain(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const shmc_pymodel *model = (shmc_pymodel *)self;

    return shmc_pyvalue_plain(model->view.root, model->view.word);
}

/* ---- values ------------------------------------------------------------------------------- */

static PyObject *container(PyTypeObject *type, shmc_pyroot *root, shmc_word word, PyObject *of)
{
    return shmc_pyroot_valid(root) < 0 ? NULL : shmc_pymodel_new(type, root, word, of);
}

/* An integer becomes a float. Steals the value. */
static PyObject *as_float(PyObject *value)
{
    if (value == NULL || !PyLong_CheckExact(value))
        return value;
    PyObject *number = PyNumber_Float(value);
    Py_DECREF(value);
    return number;
}

static PyObject *called(PyObject *function, PyObject *value)
{
    PyObject *result = value == NULL ? NULL : PyObject_CallOneArg(function, value);

    Py_XDECREF(value);
    return result;
}

PyObject *shmc_pymodel_make(shmc_pyroot *root, shmc_pykind *kind, shmc_word word)
{
    switch (kind->how) {
    case SHMC_HOW_MODEL:
        if (shmc_is_object(word))
            return container(&shmc_pymodel_type, root, word, kind->of);
        break;
    case SHMC_HOW_LIST:
        if (shmc_is_array(word))
            return container(&shmc_pymodellist_type, root, word, kind->of);
        break;
    case SHMC_HOW_MAP:
        if (shmc_is_object(word))
            return container(&shmc_pymodelmap_type, root, word, kind->of);
        break;
    case SHMC_HOW_ANY:
        if (shmc_is_object(word))
            return container(&shmc_pymodel_type, root, word, kind->of);
        if (shmc_is_array(word))
            return container(&shmc_pymodellist_type, root, word, (PyObject *)kind);
        break;
    case SHMC_HOW_TIME:
        return shmc_pytime(shmc_pyvalue(root, word), kind->of);
    case SHMC_HOW_FLOAT:
        return as_float(shmc_pyvalue(root, word));
    case SHMC_HOW_CALL:
        return called(kind->of, shmc_pyvalue(root, word));
    case SHMC_HOW_RAW:
        break;
    }
    return shmc_pyvalue(root, word);
}

static PyObject *made_at(shmc_pymodel *model, shmc_pykind *kind, Py_ssize_t position)
{
    return shmc_pymodel_make(model->view.root, kind,
                             shmc_load_at(shmc_pyroot_span(model->view.root),
                                          model->view.words + (uint64_t)position * 8));
}

static PyObject *read_field(shmc_pymodel *model, shmc_pyfield *field)
{
    if (shmc_pyview_ready(&model->view) < 0)
        return NULL;
    const Py_ssize_t position = shmc_pyshape_probe(model->view.shape, field->key);
    if (position >= 0) {
        shmc_pykind *kind = field->kind != NULL
                                ? field->kind
                                : shmc_pyfield_resolve((shmc_pyclass *)model->of, field);
        return kind == NULL ? NULL : made_at(model, kind, position);
    }
    if (position == -2)
        return NULL;
    return field->absent == NULL ? Py_NewRef(Py_None) : PyObject_CallNoArgs(field->absent);
}

/* ---- members without a table -------------------------------------------------------------- */

/* The shape's keys by the names that attributes have for them; borrowed. */
static PyObject *attributes_of(struct shmc_pyshape *shape, PyObject *dialect)
{
    if (shape->attributes == NULL) {
        PyObject *made = PyObject_CallMethod(dialect, "attributes", "(O)", shape->keys);

        if (made != NULL && !PyDict_Check(made)) {
            PyErr_SetString(PyExc_TypeError, "attributes() must give a dict");
            Py_CLEAR(made);
        }
        if (shape->attributes == NULL) /* else other code has filled it meanwhile */
            shape->attributes = made;
        else
            Py_XDECREF(made);
    }
    return shape->attributes;
}

/* The position of the member that an attribute means: by its key, else by its name in snake_case.
 * -1: absent. -2: an exception is set. */
static Py_ssize_t position_of(shmc_pymodel *model, PyObject *name)
{
    struct shmc_pyshape *shape = model->view.shape;
    Py_ssize_t position = shmc_pyshape_probe(shape, name);

    if (position != -1 || shape == NULL)
        return position;
    PyObject *names = attributes_of(shape, ((shmc_pyclass *)model->of)->dialect);
    PyObject *number = names == NULL ? NULL : PyDict_GetItemWithError(names, name);
    if (number == NULL)
        return PyErr_Occurred() ? -2 : -1;
    position = PyLong_AsSsize_t(number);
    if (position < 0 || (uint64_t)position >= model->view.count) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "attributes() gave a wrong position");
        return -2;
    }
    return position;
}

/* A method of a dialect, or a name that code asks of any object to see what it is, must not look
 * like a member. */
static bool is_probe(PyObject *name)
{
    static const char *const methods[] = {"to_dict", "to_str", "to_model"};

    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (PyUnicode_CompareWithASCIIString(name, methods[i]) == 0)
            return true;
    }
    return PyUnicode_GET_LENGTH(name) == 0 || PyUnicode_READ_CHAR(name, 0) == '_' ||
           _PyType_Lookup(&PyDict_Type, name) != NULL || _PyType_Lookup(&PyList_Type, name) != NULL;
}

/* New reference; NULL without an exception: no such attribute. */
static PyObject *read_rest(shmc_pymodel *model, PyObject *name)
{
    if (shmc_pyview_ready(&model->view) < 0)
        return NULL;
    const Py_ssize_t position = position_of(model, name);
    if (position >= 0)
        return made_at(model, ((shmc_pyclass *)model->of)->rest, position);
    return position == -2 || is_probe(name) ? NULL : Py_NewRef(Py_None);
}

/* ---- attributes --------------------------------------------------------------------------- */

static PyObject *model_getattr(PyObject *self, PyObject *name)
{
    shmc_pymodel *model = (shmc_pymodel *)self;
    const shmc_pyclass *class = (shmc_pyclass *)model->of;
    PyObject *field = PyDict_GetItemWithError(class->fields, name);

    if (field != NULL)
        return read_field(model, (shmc_pyfield *)field);
    if (PyErr_Occurred())
        return NULL;
    if (_PyType_Lookup(Py_TYPE(self), name) != NULL)
        return PyObject_GenericGetAttr(self, name);
    if (class->rest != NULL) {
        PyObject *value = read_rest(model, name);

        if (value != NULL || PyErr_Occurred())
            return value;
    }
    return PyObject_CallMethod(class->dialect, "attribute", "OO", self, name);
}

static PyObject *model_subscript(PyObject *self, PyObject *key)
{
    shmc_pymodel *model = (shmc_pymodel *)self;
    const shmc_pyclass *class = (shmc_pyclass *)model->of;

    if (class->rest == NULL || !PyUnicode_Check(key))
        return PyErr_Format(PyExc_TypeError, "'%U' has attributes, not items: .to_view() has the "
                            "members of its JSON", class->name);
    if (shmc_pyview_ready(&model->view) < 0)
        return NULL;
    const Py_ssize_t position = shmc_pyshape_probe(model->view.shape, key);
    if (position == -1)
        PyErr_SetObject(PyExc_KeyError, key);
    return position < 0 ? NULL : made_at(model, class->rest, position);
}

int shmc_pymodel_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    PyErr_Format(PyExc_TypeError, "cannot %s %R of a %s: it reads the cache and cannot be changed; "
                 "change a copy, .to_model() or .to_dict()", value == NULL ? "delete" : "set",
                 name, Py_TYPE(self)->tp_name);
    return -1;
}

int shmc_pymodel_setitem(PyObject *self, PyObject *key, PyObject *value)
{
    PyErr_Format(PyExc_TypeError, "cannot %s [%R] of a %s: it reads the cache and cannot be changed; "
                 "change a copy, .%s() or .copy()", value == NULL ? "delete" : "set", key,
                 Py_TYPE(self)->tp_name,
                 Py_TYPE(self) == &shmc_pymodellist_type ? "to_list" : "to_dict");
    return -1;
}

/* ---- the dialect's part ------------------------------------------------------------------- */

static PyObject *dialect_of(PyObject *self)
{
    return ((shmc_pyclass *)((shmc_pymodel *)self)->of)->dialect;
}

static PyObject *model_richcompare(PyObject *self, PyObject *other, int operation)
{
    if (operation != Py_EQ && operation != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *equal = PyObject_CallMethod(dialect_of(self), "equal", "OO", self, other);
    if (equal == NULL || equal == Py_NotImplemented || operation == Py_EQ)
        return equal;
    const int truth = PyObject_IsTrue(equal);
    Py_DECREF(equal);
    return truth < 0 ? NULL : PyBool_FromLong(!truth);
}

static PyObject *model_repr(PyObject *self)
{
    return PyObject_CallMethod(dialect_of(self), "brief", "(O)", self);
}

static PyObject *model_str(PyObject *self)
{
    return PyObject_CallMethod(dialect_of(self), "text", "(O)", self);
}

static PyObject *model_dir(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyObject_CallMethod(dialect_of(self), "names", "(O)", self);
}

static PyObject *model_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyObject_CallMethod(dialect_of(self), "reduce", "(O)", self);
}

static PyObject *model_deepcopy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return PyObject_CallMethod(dialect_of(self), "to_model", "(O)", self);
}

static PyObject *model_copy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(self);
}

/* isinstance() looks here after the type: see Dialect.library_class(). */
static PyObject *model_class(PyObject *self, void *Py_UNUSED(unused))
{
    return PyObject_CallMethod(dialect_of(self), "library_class", "(O)", self);
}

static PyObject *model_of(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(((shmc_pymodel *)self)->of);
}

/* In notebooks a model looks as its view does. */
static PyObject *model_pretty(PyObject *self, PyObject *args)
{
    PyObject *view = shmc_pymodel_view(self, NULL);
    PyObject *result = view == NULL ? NULL : shmc_pyview_pretty(view, args);

    Py_XDECREF(view);
    return result;
}

static PyObject *model_html(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *view = shmc_pymodel_view(self, NULL);
    PyObject *result = view == NULL ? NULL : shmc_pyview_html(view, NULL);

    Py_XDECREF(view);
    return result;
}

static PyMethodDef methods[] = {
    {"to_view", shmc_pymodel_view, METH_NOARGS,
     "to_view()\n--\n\nThe View of the same object: a read-only dict."},
    {"_model_class", model_of, METH_NOARGS, NULL},
    {"__structlog__", shmc_pymodel_plain, METH_NOARGS, NULL},
    {"_repr_pretty_", model_pretty, METH_VARARGS, NULL},
    {"_repr_html_", model_html, METH_NOARGS, NULL},
    {"__copy__", model_copy, METH_NOARGS, NULL},
    {"__deepcopy__", model_deepcopy, METH_O, NULL},
    {"__reduce__", model_reduce, METH_NOARGS, NULL},
    {"__dir__", model_dir, METH_NOARGS, NULL},
    {"__get_pydantic_core_schema__", shmc_pyview_schema, METH_VARARGS | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"__class__", model_class, NULL, NULL, NULL},
    {"__pydantic_serializer__", shmc_pyview_serializer, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMappingMethods as_mapping = {
    .mp_subscript = model_subscript,
    .mp_ass_subscript = shmc_pymodel_setitem,
};

PyTypeObject shmc_pymodel_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache.Model",
    .tp_basicsize = sizeof(shmc_pymodel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "An object in the cache with the attributes of a client's model.\n\n"
              "To keep or change it, use .to_model() or .to_dict().",
    .tp_dealloc = shmc_pymodel_dealloc,
    .tp_repr = model_repr,
    .tp_str = model_str,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_getattro = model_getattr,
    .tp_setattro = shmc_pymodel_setattr,
    .tp_richcompare = model_richcompare,
    .tp_methods = methods,
    .tp_getset = attributes,
    .tp_as_mapping = &as_mapping,
};

/* ---- module ------------------------------------------------------------------------------- */

int shmc_pymodel_init(PyObject *module)
{
    PyTypeObject *const types[] = {&shmc_pykind_type,  &shmc_pyfield_type,     &shmc_pyclass_type,
                                   &shmc_pymodel_type, &shmc_pymodellist_type, &shmc_pymodelmap_type};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (PyModule_AddType(module, types[i]) < 0)
            return -1;
    }
    if (shmc_pyview_register("Sequence", &shmc_pymodellist_type) < 0)
        return -1;
    return shmc_pyview_register("Mapping", &shmc_pymodelmap_type);
}
