/*
 * pywait.c - Reader.wait(): a thread's sleep until a publication, in one call.
 *
 *   latest moved? --no--> release the GIL ▸ wake.c sleeps ▸ take the GIL ▸ signal handlers
 *                              ^                                              |
 *                              +---------------- interrupted ----------------+
 *
 * One call, because every step between a writer's post and the consumer's next line runs cold:
 * the sleep has emptied the caches.
 *
 * Invariants
 *   PYWAIT1  while the GIL is released only the handle is used; sleepers keeps it (PYREADER1).
 *   PYWAIT2  wakes is loaded before closed and unless() are checked, once for all rounds: a thread
 *       that makes one of them true and then rings (shmc_wake_self) ends the sleep, whenever that
 *       was (WAKE7).
 *   PYWAIT3  a sleeper pins nothing.
 *   PYWAIT4  a change that a handler or unless() makes to the Reader is seen before the next round:
 *       closed is checked again here, fork by wake.c itself.
 */
#include <math.h>

#include "python/read/pyread.h"

enum { INTEREST, PROGRESS, SINCE, TIMEOUT, UNLESS, ARGUMENTS };

struct request {
    uint64_t words[TIMEOUT]; /* interest, progress, since */
    int64_t left_ns;         /* -1: for ever */
    uint64_t deadline_ns;    /* if not for ever */
    PyObject *unless;        /* borrowed; may be NULL */
};

/* Seconds, None for ever; a negative time counts as 0. */
static int parse_timeout(PyObject *given, struct request *request)
{
    request->left_ns = -1;
    if (given == Py_None)
        return 0;
    const double ns = PyFloat_AsDouble(given) * 1e9;
    if (PyErr_Occurred())
        return -1;
    if (isnan(ns) || ns >= 0x1p63) {
        PyErr_SetString(isnan(ns) ? PyExc_ValueError : PyExc_OverflowError,
                        "timeout must be a number of seconds, or None");
        return -1;
    }
    request->left_ns = ns > 0 ? (int64_t)ns : 0;
    request->deadline_ns = shmc_monotonic_ns() + (uint64_t)request->left_ns;
    return 0;
}

static int parse(PyObject *const *args, Py_ssize_t count, struct request *request)
{
    if (count != ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "wait(interest, progress, since, timeout, unless)");
        return -1;
    }
    for (int i = 0; i < TIMEOUT; i++) {
        request->words[i] = PyLong_AsUnsignedLongLong(args[i]);
        if (request->words[i] == UINT64_MAX && PyErr_Occurred())
            return -1;
    }
    request->unless = args[UNLESS] == Py_None ? NULL : args[UNLESS];
    return parse_timeout(args[TIMEOUT], request);
}

static PyObject *closed_meanwhile(PyObject *owner)
{
    PyObject *name = PyObject_GetAttrString(owner, "name");

    if (name != NULL)
        PyErr_Format(shmc_hot_errors.closed, "cache %R was closed while a thread waited", name);
    Py_XDECREF(name);
    return NULL;
}

/* 1: do not sleep; 0: do; -1: an exception. */
static int asked_not_to(const struct request *request)
{
    if (request->unless == NULL)
        return 0;
    PyObject *answer = PyObject_CallNoArgs(request->unless);
    const int asked = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return asked;
}

/* After a signal: runs its handler; 0, or -1 with the exception that it raised. */
static int interrupted(struct request *request)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (request->left_ns >= 0) {
        const uint64_t now_ns = shmc_monotonic_ns();
        request->left_ns =
            now_ns < request->deadline_ns ? (int64_t)(request->deadline_ns - now_ns) : 0;
    }
    return 0;
}

static PyObject *result_of(enum shmc_status status)
{
    if (status == SHMC_OK)
        Py_RETURN_TRUE;
    if (status == SHMC_TIMEOUT)
        Py_RETURN_FALSE;
    if (status == SHMC_OVER)
        Py_RETURN_NONE;
    return shmc_hot_raise(status, "waiting");
}

static PyObject *sleep_on(shmc_pyreader *self, PyObject *owner, struct request *request)
{
    struct shmc_reader *reader = self->reader; /* PYWAIT1 */
    const uint64_t wakes = shmc_reader_wakes(reader); /* PYWAIT2 */
    enum shmc_status status = SHMC_INTERRUPTED;

    while (status == SHMC_INTERRUPTED) {
        const int asked = asked_not_to(request);
        if (asked < 0)
            return NULL;
        if (self->closed) /* PYWAIT4 */
            return closed_meanwhile(owner);
        if (asked)
            Py_RETURN_FALSE;
        Py_BEGIN_ALLOW_THREADS
        status = shmc_wait_unless(reader, request->words[INTEREST], request->words[PROGRESS],
                                  request->words[SINCE], wakes, request->left_ns);
        Py_END_ALLOW_THREADS
        if (self->closed)
            return closed_meanwhile(owner);
        if (status == SHMC_INTERRUPTED && interrupted(request) < 0)
            return NULL;
    }
    return result_of(status);
}

PyObject *shmc_pyreader_wait(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyreader *self = (shmc_pyreader *)object;
    struct request request;

    if (parse(args, count, &request) < 0)
        return NULL;
    if (self->closed || self->reader == NULL || shmc_reader_forked(self->reader))
        Py_RETURN_NONE;
    shmc_pyreader_release(self); /* PYWAIT3 */
    PyObject *owner = Py_NewRef(self->owner);
    self->sleepers++;
    PyObject *result = sleep_on(self, owner, &request);
    self->sleepers--;
    shmc_pyreader_settle(self);
    Py_DECREF(owner);
    return result;
}
