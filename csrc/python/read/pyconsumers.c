/*
 * pyconsumers.c - publishes on the process's seat how far its consumers are in the ring, for
 * displays (G35).
 *
 * A consumer is busy from the moment it took something until it asks for more and finds nothing;
 * then it rests, and does not lag. A seat shows the slowest busy consumer and the number of busy
 * ones, or of all consumers if none of them is busy. Only displays depend on it.
 *
 * The position is noted between a wake-up and the consumer's next line, where all code runs cold:
 * so it is one call, and a value that is already there is not stored again.
 */
#include "python/read/pyread.h"

enum { WHO, POSITION, BUSY, TAKEN, LAPPED, ARGUMENTS };

static struct shmc_pyconsumer *find(const shmc_pyreader *self, uint64_t who)
{
    for (size_t i = 0; i < self->consumer_count; i++) {
        if (self->consumers[i].who == who)
            return &self->consumers[i];
    }
    return NULL;
}

static struct shmc_pyconsumer *add(shmc_pyreader *self)
{
    if (self->consumer_count == self->consumer_room) {
        const size_t room = self->consumer_room == 0 ? 4 : 2 * self->consumer_room;
        struct shmc_pyconsumer *consumers =
            PyMem_Realloc(self->consumers, room * sizeof *consumers);
        if (consumers == NULL)
            return NULL;
        self->consumers = consumers;
        self->consumer_room = room;
    }
    return &self->consumers[self->consumer_count++];
}

static void show(const shmc_pyreader *self, uint64_t taken, uint64_t lapped)
{
    uint64_t busy = 0, first = UINT64_MAX, first_busy = UINT64_MAX;

    for (size_t i = 0; i < self->consumer_count; i++) {
        const struct shmc_pyconsumer *consumer = &self->consumers[i];
        first = consumer->position < first ? consumer->position : first;
        if (consumer->busy) {
            busy++;
            first_busy = consumer->position < first_busy ? consumer->position : first_busy;
        }
    }
    shmc_reader_report(self->reader, (busy != 0 ? first_busy : first) + 1, busy, taken, lapped);
}

int shmc_pyconsumer_note(shmc_pyreader *self, const struct shmc_pyconsumer *now, uint64_t taken,
                         uint64_t lapped)
{
    struct shmc_pyconsumer *consumer = find(self, now->who);

    if (consumer != NULL && consumer->position == now->position && consumer->busy == now->busy &&
        taken == 0 && lapped == 0)
        return 0;
    if (consumer == NULL)
        consumer = add(self);
    if (consumer == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *consumer = *now;
    show(self, taken, lapped);
    return 0;
}

/* note(who, position, busy, taken, lapped): positions below 0 count as 0. */
PyObject *shmc_pyreader_note(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    shmc_pyreader *self = (shmc_pyreader *)object;
    long long words[ARGUMENTS];

    if (count != ARGUMENTS) {
        PyErr_SetString(PyExc_TypeError, "note(who, position, busy, taken, lapped)");
        return NULL;
    }
    for (int i = 0; i < ARGUMENTS; i++) {
        words[i] = PyLong_AsLongLong(args[i]);
        if (words[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (self->reader == NULL)
        Py_RETURN_NONE;
    const struct shmc_pyconsumer now = {
        .who = (uint64_t)words[WHO],
        .position = words[POSITION] > 0 ? (uint64_t)words[POSITION] : 0,
        .busy = words[BUSY] != 0,
    };
    if (shmc_pyconsumer_note(self, &now, (uint64_t)words[TAKEN], (uint64_t)words[LAPPED]) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* forget(who) */
PyObject *shmc_pyreader_forget(PyObject *object, PyObject *who)
{
    shmc_pyreader *self = (shmc_pyreader *)object;
    const long long name = PyLong_AsLongLong(who);

    if (name == -1 && PyErr_Occurred())
        return NULL;
    struct shmc_pyconsumer *consumer = self->reader == NULL ? NULL : find(self, (uint64_t)name);
    if (consumer != NULL) {
        *consumer = self->consumers[--self->consumer_count];
        show(self, 0, 0);
    }
    Py_RETURN_NONE;
}

/* count_cut() */
PyObject *shmc_pyreader_count_cut(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const shmc_pyreader *self = (shmc_pyreader *)object;

    if (self->reader != NULL)
        shmc_reader_count_cut(self->reader);
    Py_RETURN_NONE;
}
