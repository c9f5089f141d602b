/*
 * pygrpc.c - GrpcMessages: the messages of one gRPC call, from HTTP/2 that arrives in pieces.
 *
 *   class GrpcMessages:              # final
 *       def __init__(self, *, max_message: int = 64 << 20, max_frame: int = 1 << 20)
 *       def feed(self, data: bytes) -> tuple[list[bytes], list[tuple[int, int, int, bytes]]]
 *           # whole messages of stream 1; the other frames: type, flags, stream, payload.
 *           # ValueError
 *       received: int                # bytes that count for flow control
 *
 * GRPC1  nothing that a server sends takes more memory than max_frame and max_message allow; a
 *        longer one, a compressed one, and data of another stream raise ValueError.
 */
#include "python/wire/pywire.h"

#define FRAME_HEAD 9u
#define MESSAGE_HEAD 5u
#define TYPE_DATA 0u
#define FLAG_PADDED 8u
#define OUR_STREAM 1u

typedef struct {
    PyObject_HEAD
    size_t max_message, max_frame;
    struct shmc_held frame;   /* a frame that has not ended, with its head */
    struct shmc_held message; /* a message that has not ended, with its head */
    uint64_t received;
} pygrpc;

static uint32_t big_endian(const uint8_t *at, unsigned bytes)
{
    uint32_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | *at++;
    return value;
}

static int invalid(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return -1;
}

/* The length of the message whose head this is; -1 with an exception set. */
static int message_length(const pygrpc *grpc, const uint8_t *head, size_t *length)
{
    *length = big_endian(head + 1, 4);
    if (head[0] != 0)
        return invalid("a message of gRPC is compressed, which we did not ask for");
    if (*length > grpc->max_message)
        return invalid("a message of gRPC is too long");
    return 0;
}

static int add_message(PyObject *messages, const uint8_t *bytes, size_t length)
{
    return shmc_list_add(messages,
                         PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)length));
}

/* Fills the message that has not ended, up to `wanted` bytes; how many it took, or -1. */
static Py_ssize_t fill(struct shmc_held *held, size_t wanted, const uint8_t *bytes, size_t length)
{
    size_t part = wanted - held->length;

    if (part > length)
        part = length;
    return shmc_held_add(held, bytes, part) < 0 ? -1 : (Py_ssize_t)part;
}

static int of_data(pygrpc *grpc, PyObject *messages, const uint8_t *at, const uint8_t *end)
{
    struct shmc_held *held = &grpc->message;
    size_t length;

    while (at < end) {
        if (held->length == 0 && (size_t)(end - at) >= MESSAGE_HEAD) { /* often whole, in place */
            if (message_length(grpc, at, &length) < 0)
                return -1;
            if ((size_t)(end - at) - MESSAGE_HEAD >= length) {
                if (add_message(messages, at + MESSAGE_HEAD, length) < 0)
                    return -1;
                at += MESSAGE_HEAD + length;
                continue;
            }
        }
        size_t wanted = MESSAGE_HEAD;
        if (held->length >= MESSAGE_HEAD) {
            if (message_length(grpc, held->bytes, &length) < 0)
                return -1;
            wanted += length;
        }
        const Py_ssize_t part = fill(held, wanted, at, (size_t)(end - at));
        if (part < 0)
            return -1;
        at += part;
        if (held->length < MESSAGE_HEAD)
            continue;
        if (message_length(grpc, held->bytes, &length) < 0)
            return -1;
        if (held->length == MESSAGE_HEAD + length) {
            if (add_message(messages, held->bytes + MESSAGE_HEAD, length) < 0)
                return -1;
            shmc_held_clear(held);
        }
    }
    return 0;
}

static int of_frame(pygrpc *grpc, PyObject *messages, PyObject *frames, const uint8_t *frame,
                    size_t length)
{
    const unsigned type = frame[3], flags = frame[4];
    const uint32_t stream = big_endian(frame + 5, 4) & 0x7fffffffu;
    const uint8_t *at = frame + FRAME_HEAD, *end = at + length;

    if (type != TYPE_DATA)
        return shmc_list_add(frames, Py_BuildValue("(IIIy#)", type, flags, (unsigned)stream, at,
                                                   (Py_ssize_t)length));
    if (stream != OUR_STREAM)
        return invalid("data of a stream that we did not open");
    grpc->received += length;
    if (flags & FLAG_PADDED) {
        if (length == 0 || *at >= length)
            return invalid("a frame is all padding");
        end -= *at++;
    }
    if (of_data(grpc, messages, at, end) < 0)
        return -1;
    if (flags & 1u) /* the end without trailers: the caller sees it as a frame without data */
        return shmc_list_add(frames, Py_BuildValue("(IIIy#)", type, flags, (unsigned)stream, "",
                                                   (Py_ssize_t)0));
    return 0;
}

static int of_bytes(pygrpc *grpc, PyObject *messages, PyObject *frames, const uint8_t *at,
                    const uint8_t *end)
{
    struct shmc_held *held = &grpc->frame;

    while (at < end) {
        const bool in_place = held->length == 0 && (size_t)(end - at) >= FRAME_HEAD;
        if (!in_place && held->length < FRAME_HEAD) {
            const Py_ssize_t part = fill(held, FRAME_HEAD, at, (size_t)(end - at));
            if (part < 0)
                return -1;
            at += part;
            if (held->length < FRAME_HEAD)
                return 0;
        }
        const uint8_t *const head = in_place ? at : held->bytes;
        const size_t length = big_endian(head, 3);
        if (length > grpc->max_frame)
            return invalid("a frame of HTTP/2 is longer than we allow");
        if (in_place && (size_t)(end - at) - FRAME_HEAD >= length) {
            if (of_frame(grpc, messages, frames, at, length) < 0)
                return -1;
            at += FRAME_HEAD + length;
            continue;
        }
        const Py_ssize_t part = fill(held, FRAME_HEAD + length, at, (size_t)(end - at));
        if (part < 0)
            return -1;
        at += part;
        if (held->length < FRAME_HEAD + length)
            return 0;
        if (of_frame(grpc, messages, frames, held->bytes, length) < 0)
            return -1;
        shmc_held_clear(held);
    }
    return 0;
}

static PyObject *grpc_feed(PyObject *self, PyObject *data)
{
    PyObject *messages, *frames, *found = NULL;

    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s",
                            Py_TYPE(data)->tp_name);
    const uint8_t *const at = (const uint8_t *)PyBytes_AS_STRING(data);
    messages = PyList_New(0);
    frames = PyList_New(0);
    if (messages != NULL && frames != NULL &&
        of_bytes((pygrpc *)self, messages, frames, at, at + PyBytes_GET_SIZE(data)) == 0)
        found = PyTuple_Pack(2, messages, frames);
    Py_XDECREF(messages);
    Py_XDECREF(frames);
    return found;
}

static PyObject *grpc_received(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((pygrpc *)self)->received);
}

static PyObject *grpc_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"max_message", "max_frame", NULL};
    Py_ssize_t max_message = SHMC_ITEM_MAX, max_frame = 1 << 20;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$nn:GrpcMessages", names, &max_message,
                                     &max_frame))
        return NULL;
    if (max_message < 1 || max_frame < 1) {
        invalid("max_message and max_frame must be positive");
        return NULL;
    }
    pygrpc *grpc = (pygrpc *)type->tp_alloc(type, 0);
    if (grpc != NULL) {
        grpc->max_message = (size_t)max_message;
        grpc->max_frame = (size_t)max_frame;
    }
    return (PyObject *)grpc;
}

static void grpc_free(PyObject *self)
{
    shmc_held_free(&((pygrpc *)self)->frame);
    shmc_held_free(&((pygrpc *)self)->message);
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
