/*
 * pymodelclass.c - ModelClass, ModelField, ModelKind, and times (see pymodel.h).
 *
 *   class ModelKind:
 *       def __init__(self, how: str, of: object = None)    # how: a name of the table below
 *   class ModelField:
 *       def __init__(self, key: str, spec: object = None, absent: Callable[[], Any] | None = None)
 *           # spec: a ModelKind, or what dialect.kind(spec) makes one of at first use
 *   class ModelClass:
 *       def __init__(self, name: str, dialect: object, fields: dict[str, ModelField],
 *                    rest: ModelKind | None = None)
 *       def wrap(self, view: View) -> Model
 *       name, dialect, fields, rest
 */
#include "python/models/pymodel.h"

#include <datetime.h>

/* ---- kinds -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    PyTypeObject *of; /* NULL: anything, checked where it is used */
    bool needs;
} hows[] = {
    [SHMC_HOW_RAW] = {"raw", NULL, false},
    [SHMC_HOW_MODEL] = {"model", &shmc_pyclass_type, true},
    [SHMC_HOW_LIST] = {"list", &shmc_pykind_type, true},
    [SHMC_HOW_MAP] = {"map", &shmc_pykind_type, true},
    [SHMC_HOW_TIME] = {"time", &PyTuple_Type, true},
    [SHMC_HOW_FLOAT] = {"float", NULL, false},
    [SHMC_HOW_ANY] = {"any", &shmc_pyclass_type, true},
    [SHMC_HOW_CALL] = {"call", NULL, true},
};

static int read_how(const char *name, PyObject *of, enum shmc_how *how)
{
    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++) {
        if (strcmp(name, hows[i].name) != 0)
            continue;
        const bool right = of == Py_None ? !hows[i].needs
                           : i == SHMC_HOW_CALL ? PyCallable_Check(of)
                           : i == SHMC_HOW_TIME
                               ? PyTuple_CheckExact(of) && PyTuple_GET_SIZE(of) == 2
                               : hows[i].of != NULL && Py_TYPE(of) == hows[i].of;
        if (!right)
            break;
        *how = (enum shmc_how)i;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "no kind %s of %R", name, of);
    return -1;
}

static PyObject *kind_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    const char *name;
    PyObject *of = Py_None;
    enum shmc_how how = SHMC_HOW_RAW;

    if (!PyArg_ParseTuple(args, "s|O:ModelKind", &name, &of) || read_how(name, of, &how) < 0)
        return NULL;
    shmc_pykind *kind = (shmc_pykind *)type->tp_alloc(type, 0);
    if (kind != NULL) {
        kind->how = how;
        kind->of = of == Py_None ? NULL : Py_NewRef(of);
    }
    return (PyObject *)kind;
}

static int kind_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((shmc_pykind *)self)->of);
    return 0;
}

static int kind_clear(PyObject *self)
{
    Py_CLEAR(((shmc_pykind *)self)->of);
    return 0;
}

static void kind_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    kind_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *kind_how(PyObject *self, void *Py_UNUSED(unused))
{
    return PyUnicode_FromString(hows[((shmc_pykind *)self)->how].name);
}

static PyObject *kind_of(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *of = ((shmc_pykind *)self)->of;

    return Py_NewRef(of == NULL ? Py_None : of);
}

static PyGetSetDef kind_attributes[] = {
    {"how", kind_how, NULL, NULL, NULL},
    {"of", kind_of, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pykind_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.ModelKind",
    .tp_basicsize = sizeof(shmc_pykind),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The way from a value in the cache to a Python object.",
    .tp_new = kind_new,
    .tp_dealloc = kind_dealloc,
    .tp_traverse = kind_traverse,
    .tp_clear = kind_clear,
    .tp_getset = kind_attributes,
};

/* ---- fields ------------------------------------------------------------------------------- */

static PyObject *field_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *key, *spec = Py_None, *absent = Py_None;

    if (!PyArg_ParseTuple(args, "U|OO:ModelField", &key, &spec, &absent))
        return NULL;
    shmc_pyfield *field = (shmc_pyfield *)type->tp_alloc(type, 0);
    if (field == NULL)
        return NULL;
    field->key = Py_NewRef(key);
    PyUnicode_InternInPlace(&field->key);
    field->absent = absent == Py_None ? NULL : Py_NewRef(absent);
    if (Py_TYPE(spec) == &shmc_pykind_type)
        field->kind = (shmc_pykind *)Py_NewRef(spec);
    else
        field->spec = Py_NewRef(spec);
    return (PyObject *)field;
}

shmc_pykind *shmc_pyfield_resolve(shmc_pyclass *class, shmc_pyfield *field)
{
    if (field->kind != NULL)
        return field->kind;
    PyObject *spec = Py_NewRef(field->spec); /* code that runs now may resolve the field */
    PyObject *kind = PyObject_CallMethod(class->dialect, "kind", "(O)", spec);
    Py_DECREF(spec);
    if (kind != NULL && Py_TYPE(kind) != &shmc_pykind_type) {
        PyErr_Format(PyExc_TypeError, "a dialect must give a ModelKind, not %R", kind);
        Py_CLEAR(kind);
    }
    if (kind == NULL)
        return NULL;
    if (field->kind != NULL) { /* MODEL2 */
        Py_DECREF(kind);
        return field->kind;
    }
    field->kind = (shmc_pykind *)kind;
    Py_CLEAR(field->spec);
    return field->kind;
}

static int field_traverse(PyObject *self, visitproc visit, void *arg)
{
    shmc_pyfield *field = (shmc_pyfield *)self;

    Py_VISIT(field->spec);
    Py_VISIT(field->kind);
    Py_VISIT(field->absent);
    return 0;
}

static int field_clear(PyObject *self)
{
    shmc_pyfield *field = (shmc_pyfield *)self;

    Py_CLEAR(field->spec);
    Py_CLEAR(field->kind);
    Py_CLEAR(field->absent);
    return 0;
}

static void field_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    field_clear(self);
    Py_XDECREF(((shmc_pyfield *)self)->key);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *field_key(PyObject *self, void *Py_UNUSED(unused))
{
    return Py_NewRef(((shmc_pyfield *)self)->key);
}

static PyGetSetDef field_attributes[] = {
    {"key", field_key, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyfield_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.ModelField",
    .tp_basicsize = sizeof(shmc_pyfield),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The member that an attribute reads.",
    .tp_new = field_new,
    .tp_dealloc = field_dealloc,
    .tp_traverse = field_traverse,
    .tp_clear = field_clear,
    .tp_getset = field_attributes,
};

/* ---- classes ------------------------------------------------------------------------------ */

static PyObject *class_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *name, *dialect, *fields, *rest = Py_None, *field;
    Py_ssize_t at = 0;

    if (!PyArg_ParseTuple(args, "UOO!|O:ModelClass", &name, &dialect, &PyDict_Type, &fields, &rest))
        return NULL;
    if (rest != Py_None && Py_TYPE(rest) != &shmc_pykind_type)
        return PyErr_Format(PyExc_TypeError, "rest must be a ModelKind, not %R", rest);
    while (PyDict_Next(fields, &at, NULL, &field)) {
        if (Py_TYPE(field) != &shmc_pyfield_type)
            return PyErr_Format(PyExc_TypeError, "fields must be ModelFields, not %R", field);
    }
    shmc_pyclass *class = (shmc_pyclass *)type->tp_alloc(type, 0);
    if (class == NULL)
        return NULL;
    class->name = Py_NewRef(name);
    class->dialect = Py_NewRef(dialect);
    class->rest = rest == Py_None ? NULL : (shmc_pykind *)Py_NewRef(rest);
    class->fields = PyDict_Copy(fields);
    if (class->fields == NULL)
        Py_CLEAR(class);
    return (PyObject *)class;
}

static int class_traverse(PyObject *self, visitproc visit, void *arg)
{
    shmc_pyclass *class = (shmc_pyclass *)self;

    Py_VISIT(class->dialect);
    Py_VISIT(class->fields);
    Py_VISIT(class->rest);
    return 0;
}

static int class_clear(PyObject *self)
{
    shmc_pyclass *class = (shmc_pyclass *)self;

    Py_CLEAR(class->dialect);
    Py_CLEAR(class->fields);
    Py_CLEAR(class->rest);
    return 0;
}

static void class_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    class_clear(self);
    Py_XDECREF(((shmc_pyclass *)self)->name);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *class_wrap(PyObject *self, PyObject *thing)
{
    if (Py_TYPE(thing) != &shmc_pyview_type)
        return PyErr_Format(PyExc_TypeError, "a model is made of a View, not of %.200s",
                            Py_TYPE(thing)->tp_name);
    const shmc_pyview *view = (shmc_pyview *)thing;
    return shmc_pymodel_new(&shmc_pymodel_type, view->root, view->word, self);
}

/* Sets the rest of a class that refers to itself; once. */
static PyObject *class_extend(PyObject *self, PyObject *kind)
{
    shmc_pyclass *class = (shmc_pyclass *)self;

    if (Py_TYPE(kind) != &shmc_pykind_type || class->rest != NULL)
        return PyErr_Format(PyExc_TypeError, "extend() takes a ModelKind, once");
    class->rest = (shmc_pykind *)Py_NewRef(kind);
    Py_RETURN_NONE;
}

static PyObject *class_name(PyObject *self, void *Py_UNUSED(unused))
{
    return Py_NewRef(((shmc_pyclass *)self)->name);
}

static PyObject *class_dialect(PyObject *self, void *Py_UNUSED(unused))
{
    return Py_NewRef(((shmc_pyclass *)self)->dialect);
}

static PyObject *class_fields(PyObject *self, void *Py_UNUSED(unused))
{
    return PyDictProxy_New(((shmc_pyclass *)self)->fields);
}

static PyObject *class_rest(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *rest = (PyObject *)((shmc_pyclass *)self)->rest;

    return Py_NewRef(rest == NULL ? Py_None : rest);
}

static PyObject *class_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<ModelClass %U>", ((shmc_pyclass *)self)->name);
}

static PyMethodDef class_methods[] = {
    {"wrap", class_wrap, METH_O, "wrap(view, /)\n--\n\nThe view with this class's attributes."},
    {"extend", class_extend, METH_O, "extend(rest, /)\n--\n\nThe kind of all other members."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef class_attributes[] = {
    {"name", class_name, NULL, NULL, NULL},
    {"dialect", class_dialect, NULL, NULL, NULL},
    {"fields", class_fields, NULL, NULL, NULL},
    {"rest", class_rest, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyclass_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.ModelClass",
    .tp_basicsize = sizeof(shmc_pyclass),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "The attributes of a client's model, and the members that they read.",
    .tp_new = class_new,
    .tp_dealloc = class_dealloc,
    .tp_traverse = class_traverse,
    .tp_clear = class_clear,
    .tp_repr = class_repr,
    .tp_methods = class_methods,
    .tp_getset = class_attributes,
};

/* ---- times -------------------------------------------------------------------------------- */

/* The number of `count` digits, or -1. */
static int digits(const uint8_t *text, unsigned count)
{
    int number = 0;

    for (unsigned i = 0; i < count; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

/* Up to six digits after a full stop as microseconds; -1 for anything else. */
static int fraction(const uint8_t *text, size_t length)
{
    int number = length >= 2 && length <= 7 && text[0] == '.' ? digits(text + 1, (unsigned)length - 1)
                                                              : -1;

    for (size_t i = length; number > 0 && i < 7; i++)
        number *= 10;
    return number;
}

/* The form that servers write: 2026-03-01T12:00:00Z, perhaps with a fraction. NULL without an exception for
 * any other text. */
static PyObject *usual_time(const uint8_t *text, size_t length, PyObject *utc)
{
    if (length < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
        text[16] != ':' || text[length - 1] != 'Z')
        return NULL;
    const int year = digits(text, 4), month = digits(text + 5, 2), day = digits(text + 8, 2);
    const int hour = digits(text + 11, 2), minute = digits(text + 14, 2);
    const int second = digits(text + 17, 2);
    const int micro = length == 20 ? 0 : fraction(text + 19, length - 20);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > 28 + (month != 2) * 2 ||
        hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || micro < 0)
        return NULL; /* the last days of months, too */
    return PyDateTimeAPI->DateTime_FromDateAndTime(year, month, day, hour, minute, second, micro,
                                                   utc, PyDateTimeAPI->DateTimeType);
}

PyObject *shmc_pytime(PyObject *value, PyObject *rules)
{
    if (value == NULL || !PyUnicode_CheckExact(value))
        return value;
    if (PyDateTimeAPI == NULL) {
        PyDateTime_IMPORT;
        if (PyDateTimeAPI == NULL) {
            Py_DECREF(value);
            return NULL;
        }
    }
    PyObject *time = NULL;
    if (PyUnicode_IS_COMPACT_ASCII(value))
        time = usual_time(PyUnicode_DATA(value), (size_t)PyUnicode_GET_LENGTH(value),
                          PyTuple_GET_ITEM(rules, 0));
    if (time == NULL && !PyErr_Occurred())
        time = PyObject_CallOneArg(PyTuple_GET_ITEM(rules, 1), value);
    Py_DECREF(value);
    return time;
}
