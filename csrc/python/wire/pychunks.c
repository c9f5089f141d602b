/*
 * pychunks.c - Chunks: removes HTTP/1.1's chunked framing from a body that arrives in pieces.
 *
 *   class Chunks:                    # final
 *       def feed(self, data: bytes) -> bytes           # the body's bytes in it; ValueError
 *       done: bool                   # the last chunk and its trailers have come
 *       unused: bytes                # the bytes after them
 *
 * Invalid framing raises ValueError, once the data before it was returned. Lines
 * end with CR LF, as RFC 9112 requires; extensions and trailers are skipped, up to a limit.
 */
#include "python/wire/pywire.h"

#define LINE_MAX_BYTES 4096u /* for a size with its extensions; for all trailers */
#define SIZE_DIGITS 15u

enum state {
    SIZE,      /* digits */
    SPACE,     /* after them */
    EXTENSION, /* after a semicolon */
    SIZE_LF,   /* CR came */
    DATA,
    DATA_CR, /* of the chunk's end */
    DATA_LF,
    TRAILER, /* at the start of one, or of the line that ends them */
    IN_TRAILER,
    TRAILER_LF,
    END_LF,
    DONE,
    FAILED,
};

typedef struct {
    PyObject_HEAD
    enum state state;
    unsigned digits;
    size_t line; /* bytes of it, or of all trailers */
    uint64_t left;
    const char *error;
    struct shmc_held unused;
} pychunks;

static void fail(pychunks *chunks, const char *error)
{
    chunks->state = FAILED;
    chunks->error = error;
}

static int digit_of(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A byte of the line with the size. */
static void of_size(pychunks *chunks, uint8_t c)
{
    const int digit = digit_of(c);

    if (chunks->state == SIZE && digit >= 0) {
        chunks->left = chunks->left << 4 | (uint64_t)digit;
        if (++chunks->digits > SIZE_DIGITS)
            fail(chunks, "the size of a chunk is too large");
    } else if (chunks->digits == 0) {
        fail(chunks, "a chunk without a size");
    } else if (c == '\r') {
        chunks->state = SIZE_LF;
    } else if (c == '\n') {
        fail(chunks, "a line of the chunked framing ends with LF alone");
    } else if (chunks->state != EXTENSION) {
        chunks->state = c == ';' ? EXTENSION : SPACE;
        if (c != ';' && c != ' ' && c != '\t')
            fail(chunks, "the size of a chunk is not a number");
    }
}

static void line_end(pychunks *chunks, uint8_t c)
{
    if (c != '\n') {
        fail(chunks, "a CR alone in the chunked framing");
        return;
    }
    switch (chunks->state) {
    case SIZE_LF:
        chunks->state = chunks->left > 0 ? DATA : TRAILER;
        chunks->line = 0;
        break;
    case DATA_LF:
        chunks->state = SIZE;
        chunks->digits = 0;
        chunks->line = 0;
        break;
    case TRAILER_LF:
        chunks->state = TRAILER;
        break;
    default:
        chunks->state = DONE;
    }
}

static void of_framing(pychunks *chunks, uint8_t c)
{
    if (++chunks->line > LINE_MAX_BYTES) {
        fail(chunks, "a line of the chunked framing is too long");
        return;
    }
    switch (chunks->state) {
    case SIZE:
    case SPACE:
    case EXTENSION:
        of_size(chunks, c);
        break;
    case DATA_CR:
        chunks->state = DATA_LF;
        if (c != '\r')
            fail(chunks, "a chunk is longer than its size");
        break;
    case TRAILER:
    case IN_TRAILER:
        if (c == '\n')
            fail(chunks, "a line of the chunked framing ends with LF alone");
        else if (c == '\r')
            chunks->state = chunks->state == TRAILER ? END_LF : TRAILER_LF;
        else
            chunks->state = IN_TRAILER;
        break;
    default:
        line_end(chunks, c);
    }
}

/* One round over the data: counts the body's bytes, or copies them to `to`. */
static const uint8_t *unframe(pychunks *chunks, const uint8_t *at, const uint8_t *end, uint8_t *to,
                              size_t *count)
{
    while (at < end && chunks->state != DONE && chunks->state != FAILED) {
        if (chunks->state != DATA) {
            of_framing(chunks, *at++);
            continue;
        }
        size_t part = (size_t)(end - at);
        if (part > chunks->left)
            part = (size_t)chunks->left;
        if (to != NULL)
            memcpy(to + *count, at, part);
        *count += part;
        at += part;
        chunks->left -= part;
        if (chunks->left == 0)
            chunks->state = DATA_CR;
    }
    return at;
}

static PyObject *chunks_feed(PyObject *self, PyObject *data)
{
    pychunks *chunks = (pychunks *)self;
    size_t length = 0;

    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s",
                            Py_TYPE(data)->tp_name);
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t *const end = at + PyBytes_GET_SIZE(data);
    pychunks before = *chunks;
    unframe(&before, at, end, NULL, &length);
    if (before.state == FAILED && length == 0) {
        chunks->state = FAILED;
        chunks->error = before.error;
        PyErr_SetString(PyExc_ValueError, chunks->error);
        return NULL;
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (body == NULL)
        return NULL;
    length = 0;
    at = unframe(chunks, at, end, (uint8_t *)PyBytes_AS_STRING(body), &length);
    if (chunks->state == DONE && shmc_held_add(&chunks->unused, at, (size_t)(end - at)) < 0)
        Py_CLEAR(body);
    return body;
}

static PyObject *chunks_done(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((pychunks *)self)->state == DONE);
}

static PyObject *chunks_unused(PyObject *self, void *unused)
{
    const struct shmc_held *held = &((pychunks *)self)->unused;

    (void)unused;
    return PyBytes_FromStringAndSize((const char *)held->bytes, (Py_ssize_t)held->length);
}

static PyObject *chunks_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Chunks", names))
        return NULL;
    return type->tp_alloc(type, 0);
}

static void chunks_free(PyObject *self)
{
    shmc_held_free(&((pychunks *)self)->unused);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"feed", chunks_feed, METH_O, PyDoc_STR("The data of the body in `data`.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"done", chunks_done, NULL, PyDoc_STR("The last chunk and its trailers have come."), NULL},
    {"unused", chunks_unused, NULL, PyDoc_STR("The bytes after them."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pychunks_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Chunks",
    .tp_doc = PyDoc_STR("Removes the chunked framing from a body that arrives in pieces."),
    .tp_basicsize = sizeof(pychunks),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = chunks_new,
    .tp_dealloc = chunks_free,
    .tp_methods = methods,
    .tp_getset = members,
};
