/*
 * pyqueuework.c - _hot.Queue: a key is taken, held while it is worked on, and done.
 */
#include "python/queue/pyqueue.h"

static PyObject *thread_name(void)
{
    return PyLong_FromUnsignedLong(PyThread_get_thread_ident());
}

/* PYQUEUE1: the key now belongs to this thread; 0 or -1. */
static int note_thread(shmc_pyqueue *self, PyObject *key)
{
    PyObject *me = thread_name();
    int result = me != NULL ? 0 : -1;

    if (result == 0 && self->threads == NULL) {
        self->threads = PyDict_New();
        self->ended = PySet_New(NULL);
        result = self->threads != NULL && self->ended != NULL ? 0 : -1;
    }
    PyObject *before =
        result == 0 ? Py_XNewRef(PyDict_GetItemWithError(self->threads, key)) : NULL;
    if (before != NULL) {
        PyObject *late = PyTuple_Pack(2, key, before); /* a collection may come back here */
        Py_DECREF(before);
        result = late == NULL ? -1 : PySet_Add(self->ended, late);
        Py_XDECREF(late);
    }
    if (result == 0 && !PyErr_Occurred())
        result = PyDict_SetItem(self->threads, key, me);
    Py_XDECREF(me);
    return PyErr_Occurred() ? -1 : result;
}

/* Whether this thread's done() comes too late, for a holding that was taken away. */
static int comes_late(shmc_pyqueue *self, PyObject *key)
{
    if (self->threads == NULL || PySet_GET_SIZE(self->ended) == 0)
        return 0;
    PyObject *me = thread_name();
    PyObject *name = me == NULL ? NULL : PyTuple_Pack(2, key, me);
    const int found = name == NULL ? -1 : PySet_Discard(self->ended, name);
    Py_XDECREF(name);
    Py_XDECREF(me);
    return found;
}

static PyObject *hand_out(shmc_pyqueue *self, const struct shmc_taken *held, bool limited)
{
    PyObject *key = PyUnicode_DecodeUTF8((const char *)held->key, (Py_ssize_t)held->length,
                                         "replace");
    PyObject *name = key == NULL ? NULL
                                 : PyLong_FromUnsignedLongLong(held->slot << 32 | held->version);

    if (name != NULL && (!limited || note_thread(self, key) == 0) &&
        PyDict_SetItem(self->held, key, name) == 0) {
        Py_DECREF(name);
        return key;
    }
    Py_XDECREF(name);
    Py_XDECREF(key);
    /* No memory: then treat it as another thread's. */
    (void)shmc_queue_add(self->queue, held->key, held->length, 0);
    (void)shmc_queue_done(self->queue, held->slot, held->version);
    return NULL;
}

static PyObject *get_patiently(shmc_pyqueue *self, uint64_t deadline_ns, uint64_t limit_ns)
{
    struct shmc_taken held;

    for (;;) {
        enum shmc_status status = shmc_queue_take(self->queue, limit_ns, &held);
        if (status == SHMC_OK)
            return hand_out(self, &held, limit_ns != 0 || self->queue->deadline_ns != 0);
        if (status == SHMC_OVER) {
            PyErr_SetString(shmc_hot_errors.shut_down, "the queue was shut down, or stopped here");
            return NULL;
        }
        if (status != SHMC_EMPTY)
            return shmc_hot_raise(status, "taking a key");
        struct shmc_queue *queue = self->queue;
        Py_BEGIN_ALLOW_THREADS
        status = shmc_queue_wait(queue, deadline_ns);
        Py_END_ALLOW_THREADS
        const int going = shmc_pyqueue_waited(self, status);
        if (going < 0)
            return NULL;
        if (going == 0)
            Py_RETURN_NONE;
    }
}

PyObject *shmc_pyqueue_get(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    uint64_t deadline_ns = SHMC_FOREVER_NS, limit_ns = 0;

    if (shmc_pyqueue_count("get", count, 0, 2) < 0 || shmc_pyqueue_usable(self) < 0 ||
        (count > 0 && shmc_pytimeout_parse(args[0], &deadline_ns) < 0) ||
        (count > 1 && shmc_pyseconds_parse(args[1], "deadline", &limit_ns) < 0))
        return NULL;
    shmc_pyqueue_enter(self);
    PyObject *key = get_patiently(self, deadline_ns, limit_ns);
    shmc_pyqueue_leave(self);
    return key;
}

PyObject *shmc_pyqueue_done(PyObject *object, PyObject *key)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    if (shmc_pyqueue_usable(self) < 0)
        return NULL;
    const int late = comes_late(self, key);
    if (late != 0)
        return late < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *name = PyDict_GetItemWithError(self->held, key);
    if (name == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE; /* not in progress here */
    }
    const uint64_t holding = PyLong_AsUnsignedLongLong(name);
    if (PyDict_DelItem(self->held, key) < 0 ||
        (self->threads != NULL && PyDict_Contains(self->threads, key) > 0 &&
         PyDict_DelItem(self->threads, key) < 0))
        return NULL;
    const enum shmc_status status =
        shmc_queue_done(self->queue, holding >> 32, holding & UINT32_MAX);
    if (status != SHMC_OK && status != SHMC_NOT_FOUND) /* too late: another has it now */
        return shmc_hot_raise(status, "ending the work on a key");
    Py_RETURN_NONE;
}

static PyObject *requeues(PyObject *object, PyObject *given, int forget)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct shmc_pykey key;
    uint64_t found = 0;

    if (shmc_pyqueue_usable(self) < 0 || shmc_pykey_parse(given, &key) < 0)
        return NULL;
    const enum shmc_status status =
        shmc_queue_requeues(self->queue, key.bytes, key.length, forget, &found);
    if (status != SHMC_OK && status != SHMC_LIMIT) /* such a key was never queued */
        return shmc_hot_raise(status, "looking for a key");
    return forget ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(found);
}

PyObject *shmc_pyqueue_forget(PyObject *object, PyObject *key)
{
    return requeues(object, key, 1);
}

PyObject *shmc_pyqueue_num_requeues(PyObject *object, PyObject *key)
{
    return requeues(object, key, 0);
}

PyObject *shmc_pyqueue_priority(PyObject *object, PyObject *given)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct shmc_pykey key;

    if (shmc_pyqueue_usable(self) < 0 || shmc_pykey_parse(given, &key) < 0)
        return NULL;
    return PyLong_FromLongLong(
        shmc_priority_of(self->queue, SHMC_PRIORITY_KEPT, key.bytes, key.length));
}

Py_ssize_t shmc_pyqueue_length(PyObject *object)
{
    const shmc_pyqueue *self = (const shmc_pyqueue *)object;

    if (shmc_pyqueue_usable(self) < 0)
        return -1;
    return (Py_ssize_t)shmc_queue_length(self->queue);
}
