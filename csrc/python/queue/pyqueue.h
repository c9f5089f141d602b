/*
 * pyqueue.h - the parts of _hot.Queue.
 *
 *   pyqueue.c      the type: arguments, sleeps, its end
 *   pyqueueadd.c   adding keys
 *   pyqueuework.c  taking keys and ending the work on them
 *
 * Invariants
 *   PYQUEUE1  a holding is named by slot and version (QUEUE5); `held` records which one this
 *       process has for a key. With deadlines a key may come to a second thread while the first
 *       still works on it: then `ended` remembers the thread whose done() will be late.
 *   PYQUEUE2  while the GIL is released only the handle is used; `users` keeps it until the call
 *       is over.
 */
#ifndef SHMC_PYQUEUE_H
#define SHMC_PYQUEUE_H

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

#define SHMC_FOREVER_NS (UINT64_C(1) << 62)

/* ---- arguments --------------------------------------------------------------------------------- */

struct shmc_pykey {
    const uint8_t *bytes;
    size_t length;
};

/* Nanoseconds; a negative or tiny value becomes 0. */
int shmc_pyseconds_parse(PyObject *given, const char *what, uint64_t *ns);
/* A time of the monotonic clock; None means for ever. */
int shmc_pytimeout_parse(PyObject *given, uint64_t *deadline_ns);

static inline int shmc_pykey_parse(PyObject *given, struct shmc_pykey *key)
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

static inline int shmc_pyqueue_count(const char *name, Py_ssize_t count, Py_ssize_t least,
                                     Py_ssize_t most)
{
    if (count >= least && count <= most)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd to %zd arguments, not %zd", name, least, most,
                 count);
    return -1;
}

static inline int shmc_pyqueue_usable(const shmc_pyqueue *self)
{
    if (!self->closed && self->queue != NULL)
        return 0;
    PyErr_SetString(shmc_hot_errors.closed, "the queue is closed");
    return -1;
}

/* ---- calls that release the GIL ----------------------------------------------------------------- */

static inline void shmc_pyqueue_enter(shmc_pyqueue *self)
{
    self->users++;
}

/* An exception raised during the call takes precedence over the one that ends it. */
void shmc_pyqueue_leave(shmc_pyqueue *self);
/* 1: continue; 0: the time is over; -1: an exception, from a signal handler or from here. */
int shmc_pyqueue_waited(shmc_pyqueue *self, enum shmc_status status);

/* ---- methods ----------------------------------------------------------------------------------- */

PyObject *shmc_pyqueue_add(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyqueue_add_many(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyqueue_add_after(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyqueue_add_rate_limited(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyqueue_get(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyqueue_done(PyObject *object, PyObject *key);
PyObject *shmc_pyqueue_forget(PyObject *object, PyObject *key);
PyObject *shmc_pyqueue_num_requeues(PyObject *object, PyObject *key);
PyObject *shmc_pyqueue_priority(PyObject *object, PyObject *given);
Py_ssize_t shmc_pyqueue_length(PyObject *object);

#endif
