/*
 * pyopened.c - Opened: all that one attachment opened, given back when nothing uses it any more.
 *
 *   Attached (memory/mapping.py) --> Opened <-- Reader
 *
 *   OWNED4  It ends when it is freed, not in a finalizer: the collector calls the finalizers of a
 *           cycle in any order, and those of others still use the Reader. The Reader refers to it
 *           until it is freed itself, so that views, cursors and relays go first.
 *
 * shmc_attachment_end() is that of the cffi module, which has opened it all: each of the two extension
 * modules has a core, and a list of the descriptors to close in a child, of its own.
 */
#include "python/read/pyread.h"

typedef struct {
    PyObject_HEAD
    void (*end)(struct shmc_attachment *);
    struct shmc_attachment held;
} shmc_pyopened;

static PyObject *opened_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"end", NULL};
    PyObject *address;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Opened", names, &PyLong_Type, &address))
        return NULL;
    void *const end = PyLong_AsVoidPtr(address);
    if (end == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "end is the address of a function, not 0");
        return NULL;
    }
    shmc_pyopened *self = (shmc_pyopened *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    memcpy(&self->end, &end, sizeof end);
    self->held.data_fd = self->held.seats_fd = -1;
    return (PyObject *)self;
}

static void opened_dealloc(PyObject *object)
{
    shmc_pyopened *self = (shmc_pyopened *)object;

    self->end(&self->held);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *opened_address(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr(&((shmc_pyopened *)object)->held);
}

static PyGetSetDef opened_properties[] = {
    {"address", opened_address, NULL, "Of its struct shmc_attachment.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyopened_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Opened",
    .tp_doc = PyDoc_STR("Opened(end): gives back what an attachment opened, when it is freed."),
    .tp_basicsize = sizeof(shmc_pyopened),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = opened_new,
    .tp_dealloc = opened_dealloc,
    .tp_getset = opened_properties,
};
