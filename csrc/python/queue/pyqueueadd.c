/*
 * pyqueueadd.c - _hot.Queue: adding keys, now, later or after the back-off.
 */
#include "python/queue/pyqueue.h"

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

enum how { NOW, AFTER, LIMITED };

struct addition {
    struct shmc_pykey key;
    enum how how;
    int64_t priority;
    uint64_t delay_ns, deadline_ns;
};

static enum shmc_status add_once(struct shmc_queue *queue, const struct addition *what)
{
    const struct shmc_pykey key = what->key;

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
        going = shmc_pyqueue_waited(self, status);
        if (going < 0)
            return SHMC_SYSTEM;
    }
}

static int add(shmc_pyqueue *self, const struct addition *what)
{
    enum shmc_status status = add_once(self->queue, what);

    if (status == SHMC_FULL) {
        shmc_pyqueue_enter(self);
        status = add_patiently(self, what);
        shmc_pyqueue_leave(self);
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

/* add(), and its two sisters: add_after() has the delay after the key. */
static inline PyObject *add_one(PyObject *object, PyObject *const *args, Py_ssize_t count,
                                const char *name, enum how how)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = how, .deadline_ns = SHMC_FOREVER_NS};
    const Py_ssize_t needed = how == AFTER ? 2 : 1;

    if (shmc_pyqueue_count(name, count, needed, needed + 2) < 0 || shmc_pyqueue_usable(self) < 0 ||
        shmc_pykey_parse(args[0], &what.key) < 0 ||
        (how == AFTER && shmc_pyseconds_parse(args[1], "seconds", &what.delay_ns) < 0) ||
        parse_priority(count > needed ? args[needed] : NULL, &what.priority) < 0 ||
        (count > needed + 1 && shmc_pytimeout_parse(args[needed + 1], &what.deadline_ns) < 0) ||
        add(self, &what) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *shmc_pyqueue_add(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    return add_one(object, args, count, "add", NOW);
}

PyObject *shmc_pyqueue_add_after(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    return add_one(object, args, count, "add_after", AFTER);
}

PyObject *shmc_pyqueue_add_rate_limited(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    return add_one(object, args, count, "add_rate_limited", LIMITED);
}

PyObject *shmc_pyqueue_add_many(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyqueue *self = (shmc_pyqueue *)object;
    struct addition what = {.how = NOW, .deadline_ns = SHMC_FOREVER_NS};
    PyObject *key;

    if (shmc_pyqueue_count("add_many", count, 1, 2) < 0 || shmc_pyqueue_usable(self) < 0 ||
        parse_priority(count > 1 ? args[1] : NULL, &what.priority) < 0)
        return NULL;
    PyObject *keys = PyObject_GetIter(args[0]);
    if (keys == NULL)
        return NULL;
    while ((key = PyIter_Next(keys)) != NULL) {
        /* the iterator may have closed this queue */
        int status = shmc_pyqueue_usable(self);
        if (status == 0)
            status = shmc_pykey_parse(key, &what.key);
        if (status == 0)
            status = add(self, &what);
        Py_DECREF(key);
        if (status < 0)
            break;
    }
    Py_DECREF(keys);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
