/*
 * pyframes.c - Frames: the events of a watch body that arrives in pieces, cut anywhere.
 *
 *   class Frames:                    # final
 *       def __init__(self, *, max_line: int = 64 << 20)
 *       def feed(self, data: bytes) -> list[Item]      # the events that are complete with it
 *       pending: int                 # bytes of the line that has not ended yet
 *
 * A line that is not an event becomes an Item of type GARBAGE; so does one longer than max_line,
 * with its first bytes, and the rest of it is skipped. Empty lines are ignored.
 */
#include "python/wire/pywire.h"

typedef struct {
    PyObject_HEAD
    struct shmc_held held; /* the line that has not ended */
    size_t max_line, pending;
    bool passing; /* skipping the rest of a line that is too long */
    struct shmc_items items;
} pyframes;

static PyObject *str_garbage;

static PyObject *frames_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"max_line", NULL};
    Py_ssize_t max_line = SHMC_ITEM_MAX;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$n:Frames", names, &max_line))
        return NULL;
    if (max_line < 1) {
        PyErr_SetString(PyExc_ValueError, "max_line must be positive");
        return NULL;
    }
    if (str_garbage == NULL)
        str_garbage = PyUnicode_InternFromString("GARBAGE");
    if (str_garbage == NULL || shmc_items_ready() < 0)
        return NULL;
    pyframes *frames = (pyframes *)type->tp_alloc(type, 0);
    if (frames != NULL)
        frames->max_line = (size_t)max_line;
    return (PyObject *)frames;
}

static void frames_free(PyObject *self)
{
    pyframes *frames = (pyframes *)self;

    shmc_held_free(&frames->held);
    shmc_items_clear(&frames->items);
    Py_TYPE(self)->tp_free(self);
}

static int add_garbage(pyframes *frames, PyObject *found, const uint8_t *line, size_t length)
{
    static const struct shmc_identity nobody = {.kind = {NULL, 0}};

    return shmc_list_add(
        found, shmc_item_new(&frames->items, Py_NewRef(str_garbage), &nobody,
                             PyBytes_FromStringAndSize((const char *)line, (Py_ssize_t)length)));
}

static int add_line(pyframes *frames, PyObject *found, const uint8_t *line, size_t length)
{
    struct shmc_event event;

    if (shmc_skip_space(line, line + length) == line + length)
        return 0;
    if (!shmc_read_event(line, length, &event))
        return add_garbage(frames, found, line, length);
    PyObject *type = shmc_familiar_text(&frames->items.type, &event.type);
    if (type == Py_None) {
        Py_DECREF(type);
        return add_garbage(frames, found, line, length);
    }
    PyObject *raw = PyBytes_FromStringAndSize((const char *)event.object.bytes,
                                              (Py_ssize_t)event.object.length);
    return shmc_list_add(found, shmc_item_new(&frames->items, type, &event.identity, raw));
}

/* Holds a part of a line, unless the line is too long. */
static int hold(pyframes *frames, PyObject *found, const uint8_t *bytes, size_t length)
{
    frames->pending += length;
    if (frames->passing)
        return 0;
    if (shmc_held_add(&frames->held, bytes, length) < 0)
        return -1;
    if (frames->held.length <= frames->max_line)
        return 0;
    const size_t shown = frames->max_line < SHMC_ITEM_SHOWN ? frames->max_line : SHMC_ITEM_SHOWN;
    const int result = add_garbage(frames, found, frames->held.bytes, shown);
    shmc_held_clear(&frames->held);
    frames->passing = true;
    return result;
}

/* A line ends after these bytes. */
static int end_line(pyframes *frames, PyObject *found, const uint8_t *bytes, size_t length)
{
    int result = 0;

    if (frames->pending == 0 && length <= frames->max_line) {
        result = add_line(frames, found, bytes, length); /* whole, in place */
    } else {
        result = hold(frames, found, bytes, length);
        if (result == 0 && !frames->passing)
            result = add_line(frames, found, frames->held.bytes, frames->held.length);
    }
    shmc_held_clear(&frames->held);
    frames->pending = 0;
    frames->passing = false;
    return result;
}

static PyObject *frames_feed(PyObject *self, PyObject *data)
{
    pyframes *frames = (pyframes *)self;
    PyObject *found = PyList_New(0);
    int result = 0;

    if (found == NULL)
        return NULL;
    if (!PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s", Py_TYPE(data)->tp_name);
        Py_DECREF(found);
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t *const end = at + PyBytes_GET_SIZE(data);
    while (result == 0 && at < end) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) {
            result = hold(frames, found, at, (size_t)(end - at));
            break;
        }
        result = end_line(frames, found, at, (size_t)(newline - at));
        at = newline + 1;
    }
    if (result < 0)
        Py_CLEAR(found);
    return found;
}

static PyObject *frames_pending(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(((pyframes *)self)->pending);
}

static PyMethodDef methods[] = {
    {"feed", frames_feed, METH_O, PyDoc_STR("The events that are complete with `data`.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"pending", frames_pending, NULL, PyDoc_STR("Bytes of the line that has not ended yet."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pyframes_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Frames",
    .tp_doc = PyDoc_STR("The events of a watch body that comes in pieces, cut anywhere."),
    .tp_basicsize = sizeof(pyframes),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = frames_new,
    .tp_dealloc = frames_free,
    .tp_methods = methods,
    .tp_getset = members,
};
