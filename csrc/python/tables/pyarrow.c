/*
 * pyarrow.c - ArrowColumns: columns that consumers of Arrow's C data interface take as they are.
 *
 *   struct<name: dictionary<int32, utf8> | int64 | double | bool, ...>
 *
 * The interface: https://arrow.apache.org/docs/format/CDataInterface.html, and the capsules of
 * Python's Arrow PyCapsule protocol. Each exported array holds a reference to the columns, whose
 * bytes are its buffers; its release may come from any thread.
 */
#include "python/tables/pytables.h"

#include <errno.h>

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#define NULLABLE 2
#define BUFFERS 3

static const char *const FORMATS[] = {"i", "l", "g", "b"}; /* by shmc_column_kind */

struct shmc_pyarrow *shmc_pyarrow_new(Py_ssize_t columns)
{
    struct shmc_pyarrow *self = PyObject_New(struct shmc_pyarrow, &shmc_pyarrow_type);

    if (self == NULL)
        return NULL;
    self->rows = 0;
    self->count = columns;
    self->columns = PyMem_Calloc((size_t)columns + 1, sizeof *self->columns);
    if (self->columns != NULL)
        return self;
    self->count = 0;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

static void dealloc(PyObject *object)
{
    struct shmc_pyarrow *self = (struct shmc_pyarrow *)object;

    for (Py_ssize_t i = 0; i < self->count; i++) {
        struct shmc_pycolumn *column = &self->columns[i];
        Py_XDECREF(column->name);
        Py_XDECREF(column->values);
        Py_XDECREF(column->validity);
        Py_XDECREF(column->offsets);
        Py_XDECREF(column->data);
    }
    PyMem_Free(self->columns);
    PyObject_Free(self);
}

/* ---- schemas ---------------------------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i] != NULL && schema->children[i]->release != NULL)
            schema->children[i]->release(schema->children[i]);
        free(schema->children[i]);
    }
    if (schema->dictionary != NULL && schema->dictionary->release != NULL)
        schema->dictionary->release(schema->dictionary);
    free(schema->dictionary);
    free(schema->children);
    free(schema->private_data); /* the name */
    schema->release = NULL;
}

static bool fill_schema(struct ArrowSchema *schema, const char *format, const char *name,
                        int64_t children, int64_t flags)
{
    char *copy = name == NULL ? NULL : strdup(name);

    *schema = (struct ArrowSchema){
        .format = format,
        .name = copy == NULL ? "" : copy,
        .flags = flags,
        .release = release_schema,
        .private_data = copy,
    };
    if (children > 0)
        schema->children = calloc((size_t)children, sizeof *schema->children);
    if ((name != NULL && copy == NULL) || (children > 0 && schema->children == NULL))
        return false;
    schema->n_children = children;
    return true;
}

static bool fill_column_schema(struct ArrowSchema *schema, const struct shmc_pycolumn *column)
{
    if (!fill_schema(schema, FORMATS[column->kind], PyUnicode_AsUTF8(column->name), 0, NULLABLE))
        return false;
    if (column->kind != SHMC_TEXTS)
        return true;
    schema->dictionary = calloc(1, sizeof *schema->dictionary);
    return schema->dictionary != NULL && fill_schema(schema->dictionary, "u", NULL, 0, NULLABLE);
}

static bool export_schema(const struct shmc_pyarrow *self, struct ArrowSchema *schema)
{
    bool done = fill_schema(schema, "+s", NULL, self->count, 0);

    for (Py_ssize_t i = 0; done && i < self->count; i++) {
        schema->children[i] = calloc(1, sizeof **schema->children);
        done = schema->children[i] != NULL &&
               fill_column_schema(schema->children[i], &self->columns[i]);
    }
    if (!done)
        schema->release(schema);
    return done;
}

/* ---- arrays ----------------------------------------------------------------------------------- */

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i] != NULL && array->children[i]->release != NULL)
            array->children[i]->release(array->children[i]);
        free(array->children[i]);
    }
    if (array->dictionary != NULL && array->dictionary->release != NULL)
        array->dictionary->release(array->dictionary);
    free(array->dictionary);
    free(array->children);
    free(array->buffers);
    array->release = NULL;
    if (Py_IsInitialized()) { /* else the process ends, and its memory with it */
        const PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)array->private_data);
        PyGILState_Release(state);
    }
}

static bool fill_array(struct ArrowArray *array, struct shmc_pyarrow *owner, int64_t length,
                       int64_t children)
{
    *array = (struct ArrowArray){
        .length = length,
        .buffers = calloc(BUFFERS, sizeof *array->buffers),
        .children = children > 0 ? calloc((size_t)children, sizeof *array->children) : NULL,
        .release = release_array,
        .private_data = Py_NewRef((PyObject *)owner),
    };
    if (array->buffers == NULL || (children > 0 && array->children == NULL))
        return false;
    array->n_children = children;
    return true;
}

static bool fill_column(struct ArrowArray *array, struct shmc_pyarrow *owner,
                        const struct shmc_pycolumn *column)
{
    if (!fill_array(array, owner, owner->rows, 0))
        return false;
    array->null_count = column->missing;
    array->n_buffers = 2;
    array->buffers[0] = column->validity == NULL ? NULL : PyBytes_AS_STRING(column->validity);
    array->buffers[1] = PyBytes_AS_STRING(column->values);
    if (column->kind != SHMC_TEXTS)
        return true;
    array->dictionary = calloc(1, sizeof *array->dictionary);
    if (array->dictionary == NULL || !fill_array(array->dictionary, owner, column->distinct, 0))
        return false;
    array->dictionary->n_buffers = 3;
    array->dictionary->buffers[1] = PyBytes_AS_STRING(column->offsets);
    array->dictionary->buffers[2] = PyBytes_AS_STRING(column->data);
    return true;
}

static bool export_array(struct shmc_pyarrow *self, struct ArrowArray *array)
{
    bool done = fill_array(array, self, self->rows, self->count);

    array->n_buffers = 1;
    for (Py_ssize_t i = 0; done && i < self->count; i++) {
        array->children[i] = calloc(1, sizeof **array->children);
        done = array->children[i] != NULL &&
               fill_column(array->children[i], self, &self->columns[i]);
    }
    if (!done)
        array->release(array);
    return done;
}

/* ---- streams ---------------------------------------------------------------------------------- */

struct streaming {
    struct shmc_pyarrow *columns; /* owned */
    bool given;
};

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool done = export_schema(((struct streaming *)stream->private_data)->columns, schema);

    PyGILState_Release(state);
    return done ? 0 : ENOMEM;
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *array)
{
    struct streaming *streaming = stream->private_data;

    if (streaming->given) {
        *array = (struct ArrowArray){0};
        return 0;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool done = export_array(streaming->columns, array);
    PyGILState_Release(state);
    streaming->given = done;
    return done ? 0 : ENOMEM;
}

static const char *stream_error(struct ArrowArrayStream *Py_UNUSED(stream))
{
    return "no memory";
}

static void release_stream(struct ArrowArrayStream *stream)
{
    struct streaming *streaming = stream->private_data;

    if (Py_IsInitialized()) {
        const PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF((PyObject *)streaming->columns);
        PyGILState_Release(state);
    }
    free(streaming);
    stream->release = NULL;
}

/* ---- capsules --------------------------------------------------------------------------------- */

#define DESTRUCTOR(function, type, label)                                                         \
    static void function(PyObject *capsule)                                                       \
    {                                                                                             \
        struct type *held = PyCapsule_GetPointer(capsule, label);                                 \
        if (held != NULL && held->release != NULL)                                                \
            held->release(held);                                                                  \
        free(held);                                                                               \
    }
DESTRUCTOR(drop_schema, ArrowSchema, "arrow_schema")
DESTRUCTOR(drop_array, ArrowArray, "arrow_array")
DESTRUCTOR(drop_stream, ArrowArrayStream, "arrow_array_stream")

/* Consumers may ask for another schema; an exporter that cannot cast answers with its own. */
static PyObject *c_schema(PyObject *self, PyObject *Py_UNUSED(unused))
{
    struct ArrowSchema *schema = calloc(1, sizeof *schema);

    if (schema == NULL || !export_schema((struct shmc_pyarrow *)self, schema)) {
        free(schema);
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(schema, "arrow_schema", drop_schema);
    if (capsule == NULL) {
        schema->release(schema);
        free(schema);
    }
    return capsule;
}

static PyObject *c_array(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    struct ArrowArray *array = calloc(1, sizeof *array);

    if (array == NULL || !export_array((struct shmc_pyarrow *)self, array)) {
        free(array);
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(array, "arrow_array", drop_array);
    if (capsule == NULL) {
        array->release(array);
        free(array);
        return NULL;
    }
    PyObject *schema = c_schema(self, NULL);
    PyObject *both = schema == NULL ? NULL : PyTuple_Pack(2, schema, capsule);
    Py_XDECREF(schema);
    Py_DECREF(capsule);
    return both;
}

static PyObject *c_stream(PyObject *self, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
    struct streaming *streaming = calloc(1, sizeof *streaming);

    if (stream == NULL || streaming == NULL) {
        free(stream);
        free(streaming);
        return PyErr_NoMemory();
    }
    streaming->columns = (struct shmc_pyarrow *)Py_NewRef(self);
    *stream = (struct ArrowArrayStream){
        .get_schema = stream_schema,
        .get_next = stream_next,
        .get_last_error = stream_error,
        .release = release_stream,
        .private_data = streaming,
    };
    PyObject *capsule = PyCapsule_New(stream, "arrow_array_stream", drop_stream);
    if (capsule == NULL) {
        stream->release(stream);
        free(stream);
    }
    return capsule;
}

/* ---- the type --------------------------------------------------------------------------------- */

static Py_ssize_t length(PyObject *self)
{
    return (Py_ssize_t)((struct shmc_pyarrow *)self)->rows;
}

static PyObject *names(PyObject *self, void *Py_UNUSED(unused))
{
    const struct shmc_pyarrow *columns = (struct shmc_pyarrow *)self;
    PyObject *tuple = PyTuple_New(columns->count);

    for (Py_ssize_t i = 0; tuple != NULL && i < columns->count; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(columns->columns[i].name));
    return tuple;
}

/* (kind, values, validity, offsets, data) */
static PyObject *buffers(PyObject *self, PyObject *argument)
{
    static const char *const KINDS[] = {"texts", "integers", "doubles", "flags"};
    const struct shmc_pyarrow *columns = (struct shmc_pyarrow *)self;
    const Py_ssize_t at = PyLong_AsSsize_t(argument);

    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || at >= columns->count) {
        PyErr_SetString(PyExc_IndexError, "no such column");
        return NULL;
    }
    const struct shmc_pycolumn *column = &columns->columns[at];
    return Py_BuildValue("(sOOOO)", KINDS[column->kind], column->values,
                         column->validity == NULL ? Py_None : column->validity,
                         column->offsets == NULL ? Py_None : column->offsets,
                         column->data == NULL ? Py_None : column->data);
}

#define KEYWORDS(function) ((PyCFunction)(void (*)(void))(function)), METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"__arrow_c_schema__", c_schema, METH_NOARGS, "Arrow's PyCapsule protocol."},
    {"__arrow_c_array__", KEYWORDS(c_array), "Arrow's PyCapsule protocol."},
    {"__arrow_c_stream__", KEYWORDS(c_stream), "Arrow's PyCapsule protocol."},
    {"buffers", buffers, METH_O, "buffers(i): (kind, values, validity, offsets, data)."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"names", names, NULL, "The names of the columns.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods as_sequence = {.sq_length = length};

PyTypeObject shmc_pyarrow_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.ArrowColumns",
    .tp_doc = PyDoc_STR("Columns of a resource, which leave by Arrow's C data interface."),
    .tp_basicsize = sizeof(struct shmc_pyarrow),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = dealloc,
    .tp_as_sequence = &as_sequence,
    .tp_methods = methods,
    .tp_getset = properties,
};
