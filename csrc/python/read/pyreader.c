/*
 * pyreader.c - Reader: one process's handle, and the root that it keeps for the next look-up.
 *
 * Ownership
 *   view, Delta, iterator --> Root --> Reader --> owner, opened (keeps the maps)
 *                               ^         |
 *                               +-current-+    a cycle: close() or the collector breaks it
 *
 * Invariants
 *   PYREADER1  roots counts the live Roots, sleepers the threads in wait(); reader is NULL if and
 *       only if the handle is closed and neither Roots nor sleepers are left. So the holder of a
 *       Root may use root->reader->reader, and a sleeper the handle.
 *   PYREADER2  on_idle runs once: closed, and roots and sleepers fell to 0. Then, and not earlier,
 *       the owner may destroy the handle and unmap.
 *   PYREADER3  current, where it is set, is a pin of this process: never inherited over fork
 *       (every use of it checks shmc_reader_forked() first).
 *   PYREADER4  the quick pin is that of current while current has another holder, and is free
 *       otherwise: a worker that holds nothing retains nothing.
 *
 * Roots and views are not tracked by the collector; a current root without other holders is
 * visited as a part of its Reader.
 */
#include "python/read/pyread.h"

static void idle(shmc_pyreader *self)
{
    PyObject *on_idle = self->on_idle, *owner = self->owner;

    self->reader = NULL;
    self->on_idle = NULL;
    self->owner = NULL;
    if (on_idle != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback); /* this may run inside a dealloc */
        PyObject *result = PyObject_CallNoArgs(on_idle);
        if (result == NULL)
            PyErr_WriteUnraisable(on_idle);
        Py_XDECREF(result);
        PyErr_Restore(type, value, traceback);
        Py_DECREF(on_idle);
    }
    Py_XDECREF(owner);
}

void shmc_pyreader_settle(shmc_pyreader *self)
{
    if (self->closed && self->roots == 0 && self->sleepers == 0 && self->reader != NULL)
        idle(self);
}

/* ---- Root: birth and death ------------------------------------------------------------------ */

typedef enum shmc_status (*pin_function)(struct shmc_reader *, struct shmc_pinned *);

static shmc_pyroot *root_new(shmc_pyreader *self, pin_function pin)
{
    shmc_pyroot *root = PyObject_New(shmc_pyroot, &shmc_pyroot_type);

    if (root == NULL)
        return NULL;
    const enum shmc_status status = pin(self->reader, &root->at);
    if (status != SHMC_OK) {
        PyObject_Free(root); /* never exposed: not a Root yet */
        shmc_hot_raise(status, "pinning the latest generation");
        return NULL;
    }
    root->instance = self->reader->super->instance;
    root->reader = (shmc_pyreader *)Py_NewRef(self);
    root->quick = pin == shmc_quick_root;
    root->resting = false;
    self->roots++;
    return root;
}

void shmc_pyroot_dealloc(PyObject *object)
{
    shmc_pyroot *root = (shmc_pyroot *)object;
    shmc_pyreader *reader = root->reader;

    assert(!root->quick);
    shmc_unpin(reader->reader, &root->at);
    PyObject_Free(root);
    reader->roots--;
    shmc_pyreader_settle(reader);
    Py_DECREF(reader);
}

/* The current root is no longer current: with other holders it keeps a pin (PYREADER4). */
static shmc_pyroot *retire_current(shmc_pyreader *self)
{
    shmc_pyroot *root = self->current;

    self->current = NULL;
    if (root == NULL)
        return NULL;
    if (root->resting || Py_REFCNT(root) == 1)
        root->at.slot = SHMC_PINS;
    else
        shmc_quick_keep(self->reader, &root->at);
    root->quick = root->resting = false;
    return root;
}

PyObject *shmc_pyroot_show(shmc_pyroot *root)
{
    if (!root->quick)
        return Py_NewRef((PyObject *)root);
    retire_current(root->reader); /* its reference to the root is now the result */
    shmc_quick_unpin(root->reader->reader);
    return (PyObject *)root;
}

static int usable(const shmc_pyreader *self)
{
    if (!self->closed && self->reader != NULL && !shmc_reader_forked(self->reader))
        return 0;
    shmc_hot_raise(self->closed || self->reader == NULL ? SHMC_CLOSED : SHMC_FORKED,
                   "reading the cache");
    return -1;
}

shmc_pyroot *shmc_pyreader_root(shmc_pyreader *self)
{
    if (usable(self) < 0)
        return NULL;
    shmc_pyroot *root = self->current;
    /* Pairs with the release store of latest in publish.c. */
    const uint64_t latest = shmc_load_acquire(&self->reader->super->latest);
    if (root != NULL && root->at.generation == latest &&
        (!root->resting || shmc_quick_pin(self->reader, latest))) {
        root->resting = false;
        return (shmc_pyroot *)Py_NewRef(root);
    }
    root = retire_current(self);
    shmc_pyroot *fresh = root_new(self, shmc_quick_root); /* runs no Python: nothing is tracked */
    if (fresh != NULL)
        self->current = (shmc_pyroot *)Py_NewRef(fresh);
    Py_XDECREF(root);
    return fresh;
}

static enum shmc_status root_status(const shmc_pyroot *root)
{
    if (root->reader->closed)
        return SHMC_CLOSED;
    if (shmc_reader_forked(root->reader->reader))
        return SHMC_FORKED;
    return shmc_valid(root->reader->reader->super, root->at.generation) ? SHMC_OK : SHMC_STALE;
}

int shmc_pyroot_check(const shmc_pyroot *root)
{
    const enum shmc_status status = root_status(root);

    if (status == SHMC_OK)
        return 0;
    shmc_hot_raise(status, "reading a value");
    return -1;
}

/* ---- Reader --------------------------------------------------------------------------------- */

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "owner", "on_idle", "opened", NULL};
    PyObject *address, *owner, *on_idle = Py_None, *opened = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OO!:Reader", names, &PyLong_Type, &address,
                                     &owner, &on_idle, &shmc_pyopened_type, &opened))
        return NULL;
    struct shmc_reader *reader = PyLong_AsVoidPtr(address);
    if (reader == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "address is that of a struct shmc_reader, not 0");
        return NULL;
    }
    shmc_pyreader *self = (shmc_pyreader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->closed = true; /* until it is complete */
    self->shapes = shmc_pyshapes_new();
    if (self->shapes == NULL) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    self->reader = reader;
    self->owner = Py_NewRef(owner);
    self->on_idle = on_idle == Py_None ? NULL : Py_NewRef(on_idle);
    self->opened = Py_XNewRef(opened);
    self->closed = false;
    return (PyObject *)self;
}

void shmc_pyreader_release(shmc_pyreader *self)
{
    shmc_pyroot *root = retire_current(self);

    if (root != NULL)
        shmc_quick_unpin(self->reader);
    Py_XDECREF(root);
}

static void reader_end(PyObject *object)
{
    shmc_pyreader *self = (shmc_pyreader *)object;

    if (self->closed)
        return;
    self->closed = true;
    Py_INCREF(self);
    shmc_pyreader_release(self); /* the last Root calls idle() on its way out */
    shmc_pyreader_settle(self);
    Py_DECREF(self);
}

static int reader_traverse(PyObject *object, visitproc visit, void *arg)
{
    shmc_pyreader *self = (shmc_pyreader *)object;

    Py_VISIT(self->owner);
    Py_VISIT(self->on_idle);
    if (self->current != NULL && Py_REFCNT(self->current) == 1)
        Py_VISIT(self->current->reader); /* this Reader: the reference is its own */
    return 0;
}

static int reader_clear(PyObject *object)
{
    reader_end(object);
    return 0;
}

static void reader_dealloc(PyObject *object)
{
    shmc_pyreader *self = (shmc_pyreader *)object;

    if (PyObject_CallFinalizerFromDealloc(object) < 0)
        return;
    PyObject_GC_UnTrack(self);
    if (self->shapes != NULL)
        shmc_pyshapes_free(self->shapes);
    PyMem_Free(self->consumers);
    Py_XDECREF(self->opened);
    Py_TYPE(self)->tp_free(self);
}

/* Lets the current root rest. */
shmc_pyroot *shmc_pyreader_pin(shmc_pyreader *self)
{
    return usable(self) < 0 ? NULL : root_new(self, shmc_pin);
}

static PyObject *reader_root(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return (PyObject *)shmc_pyreader_pin((shmc_pyreader *)self);
}

static PyObject *reader_drop(PyObject *self, PyObject *Py_UNUSED(unused))
{
    shmc_pyreader_release((shmc_pyreader *)self);
    Py_RETURN_NONE;
}

static PyObject *reader_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
    reader_end(self);
    Py_RETURN_NONE;
}

static PyObject *reader_latest(PyObject *object, void *Py_UNUSED(unused))
{
    const shmc_pyreader *self = (shmc_pyreader *)object;

    if (self->closed || self->reader == NULL)
        return shmc_hot_raise(SHMC_CLOSED, "asking for the latest generation");
    if (shmc_reader_forked(self->reader))
        return shmc_hot_raise(SHMC_FORKED, "asking for the latest generation");
    return PyLong_FromUnsignedLongLong(shmc_load_acquire(&self->reader->super->latest));
}

static PyObject *reader_closed(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((shmc_pyreader *)self)->closed);
}

static PyObject *reader_forked(PyObject *object, void *Py_UNUSED(unused))
{
    const shmc_pyreader *self = (shmc_pyreader *)object;

    return PyBool_FromLong(self->reader != NULL && shmc_reader_forked(self->reader));
}

static PyObject *reader_spent(PyObject *object, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(shmc_pyreader_spent((shmc_pyreader *)object));
}

static PyObject *reader_roots(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromSsize_t(((shmc_pyreader *)self)->roots);
}

static PyObject *reader_owner(PyObject *object, void *Py_UNUSED(unused))
{
    const shmc_pyreader *self = (shmc_pyreader *)object;

    return Py_NewRef(self->owner != NULL ? self->owner : Py_None);
}

static PyMethodDef reader_methods[] = {
    {"root", reader_root, METH_NOARGS, "The Root of the latest generation."},
    {"take", (PyCFunction)(void (*)(void))shmc_pyreader_take, METH_VARARGS | METH_KEYWORDS,
     "Deltas from a cursor on, and the next cursor; Lapped if some of them are gone."},
    {"wait", (PyCFunction)(void (*)(void))shmc_pyreader_wait, METH_FASTCALL,
     "Sleeps until a generation after `since` matches; None if it never will."},
    {"note", (PyCFunction)(void (*)(void))shmc_pyreader_note, METH_FASTCALL,
     "How far a consumer is in the ring: who, position, busy, taken, lapped."},
    {"forget", shmc_pyreader_forget, METH_O, "Forgets a consumer."},
    {"count_cut", shmc_pyreader_count_cut, METH_NOARGS,
     "Counts a client that was cut because it read too slowly."},
    {"release", reader_drop, METH_NOARGS,
     "Drops the root kept for the next look-up, and its pin with it (before a long sleep)."},
    {"close", reader_close, METH_NOARGS,
     "Ends all use. The maps stay until the last root, view and delta has gone: on_idle."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_properties[] = {
    {"latest", reader_latest, NULL, "The latest generation published.", NULL},
    {"closed", reader_closed, NULL, "Whether close() was called.", NULL},
    {"forked", reader_forked, NULL, "Whether the handle belongs to the parent process.", NULL},
    {"spent", reader_spent, NULL, "Whether there may be a newer instance, or it is the parent's.",
     NULL},
    {"roots", reader_roots, NULL, "Roots alive, the kept one included.", NULL},
    {"owner", reader_owner, NULL, "The owner of the maps; None once they were given back.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyreader_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Reader",
    .tp_doc = PyDoc_STR("Reader(address, owner, on_idle=None, opened=None): reads through one seat."),
    .tp_basicsize = sizeof(shmc_pyreader),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = reader_new,
    .tp_dealloc = reader_dealloc,
    .tp_finalize = reader_end,
    .tp_traverse = reader_traverse,
    .tp_clear = reader_clear,
    .tp_methods = reader_methods,
    .tp_getset = reader_properties,
};
