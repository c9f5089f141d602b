/*
 * pyqueue.c - _hot.Queue: the calls that a worker makes for each key, without a step through cffi.
 *
 *   class Queue:
 *       def __init__(self, address: int, owner: object, on_idle: Callable[[], object])
 *           # address of a struct shmc_queue; owner keeps it and its map; on_idle() is called once,
 *           # when it is closed and no thread is in a call any longer
 *       def add(self, key: str, priority: int | None = 0, timeout: float | None = None) -> None
 *       def add_many(self, keys: Iterable[str], priority: int = 0) -> None
 *       def add_after(self, key, seconds: float, priority=0, timeout=None) -> None
 *       def add_rate_limited(self, key, priority=0, timeout=None) -> None
 *       def get(self, timeout: float | None = None, deadline: float = 0) -> str | None
 *       def done(self, key) -> None; def forget(self, key) -> None
 *       def num_requeues(self, key) -> int; def priority(self, key) -> int; __len__
 *       def close(self) -> None; closed: bool
 */
#include <math.h>

#include "python/queue/pyqueue.h"

#define MAX_SECONDS 1e9

/* ---- arguments --------------------------------------------------------------------------------- */

int shmc_pyseconds_parse(PyObject *given, const char *what, uint64_t *ns)
{
    const double seconds = PyFloat_AsDouble(given);

    if (PyErr_Occurred())
        return -1;
    if (isnan(seconds)) {
        PyErr_Format(PyExc_ValueError, "%s must be a number of seconds", what);
        return -1;
    }
    *ns = seconds <= 0            ? 0
          : seconds > MAX_SECONDS ? SHMC_FOREVER_NS / 2
                                  : (uint64_t)(seconds * 1e9);
    return 0;
}

int shmc_pytimeout_parse(PyObject *given, uint64_t *deadline_ns)
{
    uint64_t ns;

    *deadline_ns = SHMC_FOREVER_NS;
    if (given == NULL || given == Py_None)
        return 0;
    if (shmc_pyseconds_parse(given, "timeout", &ns) < 0)
        return -1;
    *deadline_ns = shmc_monotonic_ns() + ns;
    return 0;
}

/* ---- calls that release the GIL ----------------------------------------------------------------- */

static int settle(shmc_pyqueue *self)
{
    if (!self->closed || self->users > 0 || self->queue == NULL)
        return 0;
    self->queue = NULL;
    PyObject *result = PyObject_CallNoArgs(self->on_idle);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

void shmc_pyqueue_leave(shmc_pyqueue *self)
{
    PyObject *type, *value, *traceback;

    self->users--;
    if (!self->closed || self->users > 0)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    if (settle(self) < 0)
        PyErr_WriteUnraisable((PyObject *)self);
    PyErr_Restore(type, value, traceback);
}

int shmc_pyqueue_waited(shmc_pyqueue *self, enum shmc_status status)
{
    if (status == SHMC_INTERRUPTED && PyErr_CheckSignals() < 0)
        return -1;
    if (shmc_pyqueue_usable(self) < 0)
        return -1;
    if (status == SHMC_TIMEOUT)
        return 0;
    if (status == SHMC_OK || status == SHMC_INTERRUPTED)
        return 1;
    (void)shmc_hot_raise(status, "waiting for a key");
    return -1;
}

/* ---- its life ---------------------------------------------------------------------------------------- */

static PyObject *queue_close(PyObject *object, PyObject *unused)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    (void)unused;
    if (!self->closed) {
        self->closed = true;
        if (self->queue != NULL)
            shmc_queue_stop(self->queue); /* wakes the sleepers */
        if (settle(self) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *queue_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((shmc_pyqueue *)object)->closed);
}

static PyObject *queue_forked(PyObject *object, void *unused)
{
    const shmc_pyqueue *self = (const shmc_pyqueue *)object;

    (void)unused;
    return PyBool_FromLong(self->queue != NULL && shmc_queue_forked(self->queue));
}

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long address = 0;
    PyObject *owner, *on_idle;

    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) ||
        !PyArg_ParseTuple(args, "KOO:Queue", &address, &owner, &on_idle))
        return NULL;
    shmc_pyqueue *self = (shmc_pyqueue *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->queue = (struct shmc_queue *)(uintptr_t)address;
    self->owner = Py_NewRef(owner);
    self->on_idle = Py_NewRef(on_idle);
    self->held = PyDict_New();
    if (self->held == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    Py_VISIT(self->owner);
    Py_VISIT(self->on_idle);
    return 0;
}

static int queue_clear(PyObject *object)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    Py_CLEAR(self->owner);
    Py_CLEAR(self->on_idle);
    return 0;
}

static void queue_dealloc(PyObject *object)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    PyObject_GC_UnTrack(object);
    if (!self->closed && self->on_idle != NULL) { /* no user is left */
        self->closed = true;
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (settle(self) < 0)
            PyErr_WriteUnraisable(NULL);
        PyErr_Restore(type, value, traceback);
    }
    (void)queue_clear(object);
    Py_XDECREF(self->held);
    Py_XDECREF(self->threads);
    Py_XDECREF(self->ended);
    Py_TYPE(object)->tp_free(object);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef queue_methods[] = {
    {"add", FAST(shmc_pyqueue_add), METH_FASTCALL, "Queues a key."},
    {"add_many", FAST(shmc_pyqueue_add_many), METH_FASTCALL, "add() for each key."},
    {"add_after", FAST(shmc_pyqueue_add_after), METH_FASTCALL, "add() after this many seconds."},
    {"add_rate_limited", FAST(shmc_pyqueue_add_rate_limited), METH_FASTCALL,
     "add() after the back-off."},
    {"get", FAST(shmc_pyqueue_get), METH_FASTCALL, "The next key, held until done()."},
    {"done", shmc_pyqueue_done, METH_O, "Ends the work on a held key."},
    {"forget", shmc_pyqueue_forget, METH_O, "Resets the back-off of the key."},
    {"num_requeues", shmc_pyqueue_num_requeues, METH_O,
     "How often the key was added rate-limited."},
    {"priority", shmc_pyqueue_priority, METH_O, "Of a key that waits or is held; else 0."},
    {"close", queue_close, METH_NOARGS, "No further calls; idempotent."},
    {0},
};

static PyGetSetDef queue_attributes[] = {
    {"closed", queue_closed, NULL, "Whether close() was called.", NULL},
    {"forked", queue_forked, NULL, "Whether it belongs to the parent process.", NULL},
    {0},
};

static PySequenceMethods queue_sequence = {.sq_length = shmc_pyqueue_length};

PyTypeObject shmc_pyqueue_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Queue",
    .tp_basicsize = sizeof(shmc_pyqueue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "One process's handle of a work queue.",
    .tp_new = queue_new,
    .tp_dealloc = queue_dealloc,
    .tp_traverse = queue_traverse,
    .tp_clear = queue_clear,
    .tp_methods = queue_methods,
    .tp_getset = queue_attributes,
    .tp_as_sequence = &queue_sequence,
};

int shmc_pyqueue_init(PyObject *module)
{
    return PyModule_AddType(module, &shmc_pyqueue_type);
}
