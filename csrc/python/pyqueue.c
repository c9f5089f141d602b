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
 *
 * Invariants
 *   PYQUEUE1  a holding is named by slot and version (QUEUE5); `held` records which one this
 *       process has for a key. With deadlines a key may come to a second thread while the first
 *       still works on it: then `ended` remembers the thread whose done() will be late.
 *   PYQUEUE2  while the GIL is released only the handle is used; `users` keeps it until the call
 *       is over.
 */
#include <math.h>

#include "python/pyhot.h"
#include "queue/queue.h"

typedef struct {
    PyObject_HEAD
    struct shmc_queue *queue;
    PyObject *owner, *on_idle;
    PyObject *held;    /* key -> slot << 32 | version */
    PyObject *threads; /* key -> thread, where deadlines are used; or NULL */
    PyObject *ended;   /* set of (key, thread); or NULL */
    Py_ssize_t users;
    bool closed;
} shmc_pyqueue;

#define FOREVER_NS (UINT64_C(1) << 62)
#define MAX_SECONDS 1e9

/* ---- arguments --------------------------------------------------------------------------------- */

struct key {
    const uint8_t *bytes;
    size_t length;
};

static int parse_key(PyObject *given, struct key *key)
{
    Py_ssize_t length = 0;

    if (!PyUnicode_Check(given)) {
        PyErr_Format(PyExc_TypeError, "a key must be a str, not %.100s", Py_TYPE(given)->tp_name);
        return -1;
    }
    key->bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(given, &length);
    key->length = (size_t)length;
    return key->bytes == NULL ? -1 : 0;
}

/* Nanoseconds; a negative or tiny value becomes 0. */
static int parse_seconds(PyObject *given, const char *what, uint64_t *ns)
{
    const double seconds = PyFloat_AsDouble(given);

    if (PyErr_Occurred())
        return -1;
    if (isnan(seconds)) {
        PyErr_Format(PyExc_ValueError, "%s must be a number of seconds", what);
        return -1;
    }
    *ns = seconds <= 0 ? 0 : seconds > MAX_SECONDS ? FOREVER_NS / 2 : (uint64_t)(seconds * 1e9);
    return 0;
}

/* A time of the monotonic clock; None means for ever. */
static int parse_timeout(PyObject *given, uint64_t *deadline_ns)
{
    uint64_t ns;

    *deadline_ns = FOREVER_NS;
    if (given == NULL || given == Py_None)
        return 0;
    if (parse_seconds(given, "timeout", &ns) < 0)
        return -1;
    *deadline_ns = shmc_monotonic_ns() + ns;
    return 0;
}

/* None is the priority that the key has. */
static int parse_priority(PyObject *given, int64_t *priority)
{
    int overflow = 0;

    *priority = given == Py_None ? SHMC_PRIORITY_KEPT : 0;
    if (given == NULL || given == Py_None)
        return 0;
    const long long value = PyLong_AsLongLongAndOverflow(given, &overflow);
    if (value == -1 && PyErr_Occurred())
        return -1;
    *priority = overflow > 0 ? INT64_MAX : overflow < 0 || value == INT64_MIN ? -INT64_MAX : value;
    return 0;
}

static int check_count(const char *name, Py_ssize_t count, Py_ssize_t least, Py_ssize_t most)
{
    if (count >= least && count <= most)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, not %zd", name, least, most,
                 count);
    return -1;
}

static int usable(const shmc_pyqueue *self)
{
    if (!self->closed && self->queue != NULL)
        return 0;
    PyErr_SetString(shmc_hot_errors.closed, "the queue is closed");
    return -1;
}

/* ---- calls that release the GIL ----------------------------------------------------------------- */

static void enter(shmc_pyqueue *self)
{
    self->users++;
}

static int settle(shmc_pyqueue *self)
{
    if (!self->closed || self->users > 0 || self->queue == NULL)
        return 0;
    self->queue = NULL;
    PyObject *result = PyObject_CallNoArgs(self->on_idle);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* An exception raised during the call takes precedence over the one that ends it. */
static void leave(shmc_pyqueue *self)
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

/* 1: continue; 0: the time is over; -1: an exception, from a signal handler or from here. */
static int waited(shmc_pyqueue *self, enum shmc_status status)
{
    if (status == SHMC_INTERRUPTED && PyErr_CheckSignals() < 0)
        return -1;
    if (usable(self) < 0)
        return -1;
    if (status == SHMC_TIMEOUT)
        return 0;
    if (status == SHMC_OK || status == SHMC_INTERRUPTED)
        return 1;
    (void)shmc_hot_raise(status, "waiting for a key");
    return -1;
}

/* ---- adding --------------------------------------------------------------------------------------- */

enum how { NOW, AFTER, LIMITED };

struct addition {
    struct key key;
    enum how how;
    int64_t priority;
    uint64_t delay_ns, deadline_ns;
};

static enum shmc_status add_once(struct shmc_queue *queue, const struct addition *what)
{
    const struct key key = what->key;

    if (what->how == AFTER && what->delay_ns != 0)
        return shmc_queue_add_after(queue, key.bytes, key.length, what->priority, what->delay_ns);
    if (what->how == LIMITED)
        return shmc_queue_add_limited(queue, key.bytes, key.length, what->priority);
    return shmc_queue_add(queue, key.bytes, key.length, what->priority);
}

/* The queue is full: waits until it has room, is shut down, or the time is over. */
static enum shmc_status add_patiently(shmc_pyqueue *self, const struct addition *what)
{
    int going = 1;

    for (;;) {
        const uint32_t number = shmc_queue_crowd(self->queue);
        enum shmc_status status = add_once(self->queue, what);
        if (status != SHMC_FULL)
            return status;
        if (going == 0)
            return SHMC_FULL;
        shmc_queue_sweep(self->queue, shmc_monotonic_ns());
        struct shmc_queue *queue = self->queue;
        Py_BEGIN_ALLOW_THREADS
        status = shmc_queue_wait_room(queue, number, what->deadline_ns);
        Py_END_ALLOW_THREADS
        going = waited(self, status);
        if (going < 0)
            return SHMC_SYSTEM;
    }
}

static int add(shmc_pyqueue *self, const struct addition *what)
{
    enum shmc_status status = add_once(self->queue, what);

    if (status == SHMC_FULL) {
        enter(self);
        status = add_patiently(self, what);
        leave(self);
        if (PyErr_Occurred())
            return -1;
    }
    if (status == SHMC_OK || status == SHMC_CLOSED) /* after shutdown: ignored, as in client-go */
        return 0;
    if (status == SHMC_FULL)
        PyErr_SetString(shmc_hot_errors.busy, "the queue is full: every slot has a key that "
                                              "waits, is in progress, or has failed");
    else
        (void)shmc_hot_raise(status, status == SHMC_LIMIT ? "a key must have 1 to 320 bytes"
                                                          : "adding a key");
    return -1;
}

static PyObject *queue_add(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = NOW, .deadline_ns = FOREVER_NS};

    if (check_count("add", count, 1, 3) < 0 || usable(self) < 0 ||
        parse_key(args[0], &what.key) < 0 ||
        parse_priority(count > 1 ? args[1] : NULL, &what.priority) < 0 ||
        (count > 2 && parse_timeout(args[2], &what.deadline_ns) < 0) || add(self, &what) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_add_many(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = NOW, .deadline_ns = FOREVER_NS};
    PyObject *key;

    if (check_count("add_many", count, 1, 2) < 0 || usable(self) < 0 ||
        parse_priority(count > 1 ? args[1] : NULL, &what.priority) < 0)
        return NULL;
    PyObject *keys = PyObject_GetIter(args[0]);
    if (keys == NULL)
        return NULL;
    while ((key = PyIter_Next(keys)) != NULL) {
        /* the iterator may have closed this queue */
        const int status = usable(self) < 0 || parse_key(key, &what.key) < 0 ? -1 : add(self, &what);
        Py_DECREF(key);
        if (status < 0)
            break;
    }
    Py_DECREF(keys);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_add_after(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = AFTER, .deadline_ns = FOREVER_NS};

    if (check_count("add_after", count, 2, 4) < 0 || usable(self) < 0 ||
        parse_key(args[0], &what.key) < 0 ||
        parse_seconds(args[1], "seconds", &what.delay_ns) < 0 ||
        parse_priority(count > 2 ? args[2] : NULL, &what.priority) < 0 ||
        (count > 3 && parse_timeout(args[3], &what.deadline_ns) < 0) || add(self, &what) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *queue_add_rate_limited(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = LIMITED, .deadline_ns = FOREVER_NS};

    if (check_count("add_rate_limited", count, 1, 3) < 0 || usable(self) < 0 ||
        parse_key(args[0], &what.key) < 0 ||
        parse_priority(count > 1 ? args[1] : NULL, &what.priority) < 0 ||
        (count > 2 && parse_timeout(args[2], &what.deadline_ns) < 0) || add(self, &what) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- working --------------------------------------------------------------------------------------- */

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
        const int going = waited(self, status);
        if (going < 0)
            return NULL;
        if (going == 0)
            Py_RETURN_NONE;
    }
}

static PyObject *queue_get(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    uint64_t deadline_ns = FOREVER_NS, limit_ns = 0;

    if (check_count("get", count, 0, 2) < 0 || usable(self) < 0 ||
        (count > 0 && parse_timeout(args[0], &deadline_ns) < 0) ||
        (count > 1 && parse_seconds(args[1], "deadline", &limit_ns) < 0))
        return NULL;
    enter(self);
    PyObject *key = get_patiently(self, deadline_ns, limit_ns);
    leave(self);
    return key;
}

static PyObject *queue_done(PyObject *object, PyObject *key)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;

    if (usable(self) < 0)
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
    struct key key;
    uint64_t found = 0;

    if (usable(self) < 0 || parse_key(given, &key) < 0)
        return NULL;
    const enum shmc_status status =
        shmc_queue_requeues(self->queue, key.bytes, key.length, forget, &found);
    if (status != SHMC_OK && status != SHMC_LIMIT) /* such a key was never queued */
        return shmc_hot_raise(status, "looking for a key");
    return forget ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(found);
}

static PyObject *queue_forget(PyObject *object, PyObject *key)
{
    return requeues(object, key, 1);
}

static PyObject *queue_num_requeues(PyObject *object, PyObject *key)
{
    return requeues(object, key, 0);
}

static PyObject *queue_priority(PyObject *object, PyObject *given)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct key key;

    if (usable(self) < 0 || parse_key(given, &key) < 0)
        return NULL;
    return PyLong_FromLongLong(
        shmc_priority_of(self->queue, SHMC_PRIORITY_KEPT, key.bytes, key.length));
}

static Py_ssize_t queue_length(PyObject *object)
{
    const shmc_pyqueue *self = (const shmc_pyqueue *)object;

    if (usable(self) < 0)
        return -1;
    return (Py_ssize_t)shmc_queue_length(self->queue);
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
    {"add", FAST(queue_add), METH_FASTCALL, "Queues a key."},
    {"add_many", FAST(queue_add_many), METH_FASTCALL, "add() for each key."},
    {"add_after", FAST(queue_add_after), METH_FASTCALL, "add() after this many seconds."},
    {"add_rate_limited", FAST(queue_add_rate_limited), METH_FASTCALL, "add() after the back-off."},
    {"get", FAST(queue_get), METH_FASTCALL, "The next key, held until done()."},
    {"done", queue_done, METH_O, "Ends the work on a held key."},
    {"forget", queue_forget, METH_O, "Resets the back-off of the key."},
    {"num_requeues", queue_num_requeues, METH_O, "How often the key was added rate-limited."},
    {"priority", queue_priority, METH_O, "Of a key that waits or is held; else 0."},
    {"close", queue_close, METH_NOARGS, "No further calls; idempotent."},
    {0},
};

static PyGetSetDef queue_attributes[] = {
    {"closed", queue_closed, NULL, "Whether close() was called.", NULL},
    {"forked", queue_forked, NULL, "Whether it belongs to the parent process.", NULL},
    {0},
};

static PySequenceMethods queue_sequence = {.sq_length = queue_length};

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
