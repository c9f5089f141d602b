/*
 * pyfollow.c - Delivered.follow(): the next deltas for one registration, in one call.
 *
 *   reader --pin--> root --> the map to its head --> deltas from a position --> the position noted
 *
 * The way of a registration that is up to date and wakes for one delta or a few. It runs cold, so
 * it is one call. Anything unusual (another instance, a ring that does not lead on, a delta that
 * becomes more than one event, too many ended lives) ends the list, and gives None where it comes
 * first: the steps of Known.take() find out what it is.
 */
#include "python/deltas/pydelivered.h"

enum { READER, POSITION, WHO, MAX, ENDED, ARGUMENTS };

struct request {
    shmc_pyreader *reader;
    uint64_t position, who, max, ended;
};

static int parse(PyObject *const *args, Py_ssize_t count, struct request *request)
{
    uint64_t *const words[ARGUMENTS] = {[POSITION] = &request->position, [WHO] = &request->who,
                                        [MAX] = &request->max, [ENDED] = &request->ended};

    if (count != ARGUMENTS || !Py_IS_TYPE(args[READER], &shmc_pyreader_type)) {
        PyErr_SetString(PyExc_TypeError, "follow(reader, position, who, max, ended)");
        return -1;
    }
    request->reader = (shmc_pyreader *)args[READER];
    for (int i = POSITION; i < ARGUMENTS; i++) {
        if (!shmc_pyuint64(args[i], words[i]))
            return -1;
    }
    if (request->max != 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "max must be the number of deltas to take, at least 1");
    return -1;
}

static bool as_usual(const struct shmc_delivered *self, const struct request *request)
{
    const shmc_pyreader *reader = request->reader;

    return self->whole && self->lives.ended <= request->ended && !reader->closed &&
           reader->reader != NULL && !shmc_pyreader_spent(reader) &&
           self->instance == reader->reader->super->instance &&
           request->position >= self->offset;
}

/* Ends the list before the first unusual delta. */
static int end_at_unusual(PyObject *deltas, uint64_t *cursor)
{
    const Py_ssize_t count = PyList_GET_SIZE(deltas);

    for (Py_ssize_t i = 0; i < count; i++) {
        const struct shmc_pydelta *delta = (struct shmc_pydelta *)PyList_GET_ITEM(deltas, i);
        if (shmc_pydelta_usual(delta))
            continue;
        *cursor = delta->at.number;
        return PyList_SetSlice(deltas, i, count, NULL);
    }
    return 0;
}

/* The deltas, or NULL; without an exception if the ring does not lead there. */
static PyObject *take(struct shmc_delivered *self, shmc_pyroot *root,
                      const struct request *request, uint64_t *cursor)
{
    *cursor = request->position - self->offset;
    if (shmc_delivered_along(self, root) <= 0)
        return NULL;
    PyObject *deltas = shmc_pyroot_deltas(root, self->resource, request->max, cursor);
    if (deltas == NULL && PyErr_ExceptionMatches(shmc_hot_lapped))
        PyErr_Clear();
    if (deltas != NULL && end_at_unusual(deltas, cursor) < 0)
        Py_CLEAR(deltas);
    if (deltas != NULL && PyList_GET_SIZE(deltas) == 0 && *cursor != root->at.head)
        Py_CLEAR(deltas);
    return deltas;
}

PyObject *shmc_delivered_follow(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    struct shmc_delivered *self = (struct shmc_delivered *)object;
    struct request request;
    uint64_t cursor;

    if (parse(args, count, &request) < 0)
        return NULL;
    if (!as_usual(self, &request))
        Py_RETURN_NONE;
    shmc_pyroot *root = shmc_pyreader_pin(request.reader);
    if (root == NULL)
        return NULL;
    PyObject *deltas = take(self, root, &request, &cursor);
    if (deltas == NULL) {
        Py_DECREF(root);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    const uint64_t taken = (uint64_t)PyList_GET_SIZE(deltas);
    const struct shmc_pyconsumer now = {request.who, request.position - self->offset, taken != 0};
    if (shmc_pyconsumer_note(request.reader, &now, taken, 0) < 0) {
        Py_DECREF(deltas);
        Py_DECREF(root);
        return NULL;
    }
    return Py_BuildValue("(NNKK)", root, deltas, (unsigned long long)self->offset,
                         (unsigned long long)(cursor + self->offset));
}
