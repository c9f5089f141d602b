/*
 * pygrpc.c - GrpcMessages: the messages of one gRPC call (wire/grpc.c), for Python.
 *
 *   class GrpcMessages:              # final
 *       def __init__(self, *, max_message: int = 64 << 20, max_frame: int = 1 << 20)
 *       def feed(self, data: bytes) -> tuple[list[bytes], list[tuple[int, int, int, bytes]]]
 *           # whole messages of stream 1; the other frames: type, flags, stream, payload.
 *           # ValueError
 *       received: int                # bytes that count for flow control
 */
#include "python/wire/pywire.h"
#include "wire/wire.h"

typedef struct {
    PyObject_HEAD
    struct shmc_grpc grpc;
} pygrpc;

struct found {
    PyObject *messages, *frames; /* lists */
};

static bool add_message(void *context, struct shmc_bytes message)
{
    const struct found *const found = context;

    return shmc_list_add(found->messages,
                         PyBytes_FromStringAndSize((const char *)message.at,
                                                   (Py_ssize_t)shmc_bytes_length(message))) == 0;
}

static bool add_frame(void *context, unsigned type, unsigned flags, uint32_t stream,
                      struct shmc_bytes payload)
{
    const struct found *const found = context;

    return shmc_list_add(found->frames,
                         Py_BuildValue("(IIIy#)", type, flags, (unsigned)stream, payload.at,
                                       (Py_ssize_t)shmc_bytes_length(payload))) == 0;
}

/* -1 with an exception set. */
static int feed(struct shmc_grpc *grpc, PyObject *data, struct found *found)
{
    const uint8_t *const at = (const uint8_t *)PyBytes_AS_STRING(data);
    const struct shmc_grpc_sink sink = {found, add_message, add_frame};
    const char *error;

    switch (shmc_grpc_feed(grpc, (struct shmc_bytes){at, at + PyBytes_GET_SIZE(data)}, &sink,
                           &error)) {
    case SHMC_GRPC_OK:
        return 0;
    case SHMC_GRPC_INVALID:
        PyErr_SetString(PyExc_ValueError, error);
        return -1;
    case SHMC_GRPC_NO_MEMORY:
        PyErr_NoMemory();
        return -1;
    default: /* a sink refused, with an exception */
        return -1;
    }
}

static PyObject *grpc_feed(PyObject *self, PyObject *data)
{
    struct found found;
    PyObject *pair = NULL;

    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s",
                            Py_TYPE(data)->tp_name);
    found.messages = PyList_New(0);
    found.frames = PyList_New(0);
    if (found.messages != NULL && found.frames != NULL &&
        feed(&((pygrpc *)self)->grpc, data, &found) == 0)
        pair = PyTuple_Pack(2, found.messages, found.frames);
    Py_XDECREF(found.messages);
    Py_XDECREF(found.frames);
    return pair;
}

static PyObject *grpc_received(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((pygrpc *)self)->grpc.received);
}

static PyObject *grpc_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"max_message", "max_frame", NULL};
    Py_ssize_t max_message = SHMC_ITEM_MAX, max_frame = 1 << 20;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$nn:GrpcMessages", names, &max_message,
                                     &max_frame))
        return NULL;
    if (max_message < 1 || max_frame < 1) {
        PyErr_SetString(PyExc_ValueError, "max_message and max_frame must be positive");
        return NULL;
    }
    pygrpc *made = (pygrpc *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->grpc.max_message = (size_t)max_message;
        made->grpc.max_frame = (size_t)max_frame;
    }
    return (PyObject *)made;
}

static void grpc_free(PyObject *self)
{
    shmc_grpc_free(&((pygrpc *)self)->grpc);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"feed", grpc_feed, METH_O, PyDoc_STR("The messages, and the other frames, that end in `data`.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"received", grpc_received, NULL, PyDoc_STR("Bytes that count for flow control."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pygrpc_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.GrpcMessages",
    .tp_doc = PyDoc_STR("The messages of one gRPC call, from HTTP/2 that comes in pieces."),
    .tp_basicsize = sizeof(pygrpc),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = grpc_new,
    .tp_dealloc = grpc_free,
    .tp_methods = methods,
    .tp_getset = members,
};
