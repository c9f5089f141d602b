/*
 * pypretty.c - Pretty: lays out JSON text for people, as Go's MarshalIndent does, as it arrives.
 *
 *   class Pretty:                    # final
 *       def feed(self, data: bytes) -> bytes           # the same text, laid out
 *
 * Each member and each element has a line of its own, two spaces further in than its container; an
 * empty container stays on one line. The text comes from this project and is not checked: other
 * input gives output that is not JSON either. White space between tokens is dropped, so the end has
 * no newline.
 */
#include "python/wire/pywire.h"

#define INDENT 2u

typedef struct {
    PyObject_HEAD
    size_t depth;
    bool in_string, escaped;
    bool opened; /* the last token was an opening bracket: a line may follow */
} pypretty;

/* The output; without memory it is only counted. */
struct sink {
    uint8_t *at;
    size_t length;
};

static inline void put(struct sink *sink, uint8_t c)
{
    if (sink->at != NULL)
        sink->at[sink->length] = c;
    sink->length++;
}

static void new_line(struct sink *sink, size_t depth)
{
    put(sink, '\n');
    if (sink->at != NULL)
        memset(sink->at + sink->length, ' ', depth * INDENT);
    sink->length += depth * INDENT;
}

static void close_one(pypretty *pretty, struct sink *sink, uint8_t c)
{
    if (pretty->depth > 0)
        pretty->depth--;
    if (!pretty->opened)
        new_line(sink, pretty->depth);
    pretty->opened = false;
    put(sink, c);
}

/* A byte outside of strings; it may begin one. */
static void of_structure(pypretty *pretty, struct sink *sink, uint8_t c)
{
    if (c == '}' || c == ']') {
        close_one(pretty, sink, c);
        return;
    }
    if (c <= ' ')
        return;
    if (pretty->opened)
        new_line(sink, pretty->depth);
    put(sink, c);
    pretty->opened = c == '{' || c == '[';
    pretty->depth += pretty->opened;
    if (c == ',')
        new_line(sink, pretty->depth);
    else if (c == ':')
        put(sink, ' ');
    pretty->in_string = c == '"';
}

/* From inside a string to after its end, or to the end of the data. */
static const uint8_t *of_string(pypretty *pretty, struct sink *sink, const uint8_t *at,
                                const uint8_t *end)
{
    const uint8_t *const start = at;

    for (; at < end && pretty->in_string; at++) {
        if (pretty->escaped)
            pretty->escaped = false;
        else if (*at == '\\')
            pretty->escaped = true;
        else if (*at == '"')
            pretty->in_string = false;
    }
    if (sink->at != NULL)
        memcpy(sink->at + sink->length, start, (size_t)(at - start));
    sink->length += (size_t)(at - start);
    return at;
}

static void lay_out(pypretty *pretty, struct sink *sink, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (pretty->in_string)
            at = of_string(pretty, sink, at, end);
        else
            of_structure(pretty, sink, *at++);
    }
}

static PyObject *pretty_feed(PyObject *self, PyObject *data)
{
    pypretty *pretty = (pypretty *)self;
    struct sink sink = {NULL, 0};

    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s",
                            Py_TYPE(data)->tp_name);
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t *const end = at + PyBytes_GET_SIZE(data);
    pypretty tried = *pretty;
    lay_out(&tried, &sink, at, end);
    PyObject *found = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sink.length);
    if (found == NULL)
        return NULL;
    sink = (struct sink){(uint8_t *)PyBytes_AS_STRING(found), 0};
    lay_out(pretty, &sink, at, end);
    return found;
}

static PyObject *pretty_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Pretty", names))
        return NULL;
    return type->tp_alloc(type, 0);
}

static PyMethodDef methods[] = {
    {"feed", pretty_feed, METH_O, PyDoc_STR("The layout of the text in `data`.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject shmc_pypretty_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Pretty",
    .tp_doc = PyDoc_STR("Lays out JSON text for people, as it arrives."),
    .tp_basicsize = sizeof(pypretty),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = pretty_new,
    .tp_methods = methods,
};
