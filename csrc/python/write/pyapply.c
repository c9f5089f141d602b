/*
 * pyapply.c - puts items into a resource: JSON text into the open batch, without making Python
 * objects of its content.
 *
 *   apply_items(writer, resource, items, drop_managed, staged) -> (changes, refused)
 *       # staged: for a replacement that is being prepared; changes are then items
 *       # refused: list of (key, reason)
 *
 *   apply_now(writer, resource, items, drop_managed, version, now_ns) -> (changes, refused)
 *       # begin, apply, set the resource's version, commit
 *
 * An object that cannot be stored is refused alone; its key stays as it was, which in a
 * replacement means that the published object is staged again. An exception means that the batch
 * cannot continue.
 */
#include "python/write/pyencode.h"
#include "python/wire/pywire.h"

#define FIELDS 7 /* of an Item */

struct apply {
    struct shmc_encoder *encoder;
    struct shmc_change change;
    bool staged;
    PyObject *refused; /* list */
    Py_ssize_t changes;
};

/* The parts of an Item that are needed here. */
struct item {
    PyObject *type, *key, *version, *raw;
};

static int refuse(struct apply *apply, const struct item *item, PyObject *why)
{
    PyObject *pair = why == NULL ? NULL : PyTuple_Pack(2, item->key, why);
    int result = shmc_list_add(apply->refused, pair);

    Py_XDECREF(why);
    if (result == 0 && apply->staged && apply->change.key_length > 0) {
        const enum shmc_status status =
            shmc_restage(apply->encoder->writer, apply->change.resource,
                         (const char *)apply->change.key, apply->change.key_length);
        if (status != SHMC_OK && status != SHMC_NOT_FOUND) {
            shmc_hot_raise(status, "staging the published object");
            result = -1;
        }
    }
    return result;
}

/* A status of the core: about this object alone if the batch can continue. */
static int failed(struct apply *apply, const struct item *item, enum shmc_status status)
{
    const struct shmc_parser *const parser = &apply->encoder->parser;

    if ((status != SHMC_INVALID && status != SHMC_LIMIT) ||
        !shmc_batch_alive(apply->encoder->writer)) {
        shmc_hot_raise(status, "storing an item");
        return -1;
    }
    if (parser->status != SHMC_OK)
        return refuse(apply, item,
                      PyUnicode_FromFormat("at byte %zu of its JSON: %s", parser->where,
                                           parser->error));
    return refuse(apply, item,
                  PyUnicode_FromFormat("it cannot be stored: %s", shmc_status_text(status)));
}

static int store(struct apply *apply, const struct item *item)
{
    struct shmc_encoder *const encoder = apply->encoder;
    struct shmc_change *const change = &apply->change;
    const uint64_t before = shmc_batch_changes(encoder->writer);
    const uint8_t *const text = (const uint8_t *)PyBytes_AS_STRING(item->raw);
    enum shmc_status status =
        shmc_parse(&encoder->parser, text, (size_t)PyBytes_GET_SIZE(item->raw),
                   shmc_encoder_previous(encoder, change), &change->value);

    if (status == SHMC_OK && !shmc_is_object(change->value))
        return refuse(apply, item, PyUnicode_FromString("it is not a JSON object"));
    if (status != SHMC_OK)
        return failed(apply, item, status);
    change->version = SHMC_NOTHING;
    if (item->version != Py_None &&
        shmc_encode_str(encoder, item->version, SHMC_NOTHING, &change->version) < 0)
        return -1;
    change->looked_up = true;
    status = apply->staged ? shmc_stage(encoder->writer, change)
                           : shmc_put(encoder->writer, change);
    if (status != SHMC_OK)
        return failed(apply, item, status);
    encoder->last = change->value;
    encoder->last_batch = shmc_batch_number(encoder->writer);
    apply->changes += apply->staged || shmc_batch_changes(encoder->writer) != before;
    return 0;
}

static int take_away(struct apply *apply, const struct item *item)
{
    struct shmc_writer *const writer = apply->encoder->writer;
    const char *const key = (const char *)apply->change.key, *version = NULL;
    const size_t key_length = apply->change.key_length;
    Py_ssize_t length = 0;
    enum shmc_status status;

    if (item->version != Py_None) {
        version = PyUnicode_AsUTF8AndSize(item->version, &length);
        if (version == NULL)
            return -1;
    }
    apply->encoder->parser.status = SHMC_OK;
    if (apply->staged)
        status = shmc_unstage(writer, apply->change.resource, key, key_length);
    else
        status = shmc_delete(writer, apply->change.resource, key, key_length, version,
                             (size_t)length, 0);
    if (status == SHMC_OK || status == SHMC_NOT_FOUND)
        apply->changes += status == SHMC_OK;
    else
        return failed(apply, item, status);
    return 0;
}

static int apply_item(struct apply *apply, const struct item *item)
{
    Py_ssize_t length;
    const char *type = PyUnicode_AsUTF8(item->type);

    apply->change.key = (const uint8_t *)PyUnicode_AsUTF8AndSize(item->key, &length);
    if (type == NULL || apply->change.key == NULL)
        return -1;
    apply->change.key_length = (size_t)length;
    if (length == 0)
        return refuse(apply, item, PyUnicode_FromString("it has no name"));
    if (memchr(apply->change.key, 0, (size_t)length) != NULL) {
        apply->change.key_length = 0; /* no object can have it */
        return refuse(apply, item, PyUnicode_FromString("its name contains NUL"));
    }
    if (strcmp(type, "DELETED") == 0)
        return take_away(apply, item);
    if (strcmp(type, "ADDED") == 0 || strcmp(type, "MODIFIED") == 0 || strcmp(type, "LISTED") == 0)
        return store(apply, item);
    PyErr_Format(PyExc_ValueError, "an item of type %R is not a change of an object", item->type);
    return -1;
}

static int read_item(PyObject *object, struct item *item)
{
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == FIELDS) {
        *item = (struct item){PyTuple_GET_ITEM(object, 0), PyTuple_GET_ITEM(object, 1),
                              PyTuple_GET_ITEM(object, 2), PyTuple_GET_ITEM(object, 6)};
        if (PyUnicode_Check(item->type) && PyUnicode_Check(item->key) &&
            PyBytes_Check(item->raw) &&
            (item->version == Py_None || PyUnicode_Check(item->version)))
            return 0;
    }
    PyErr_Format(PyExc_TypeError, "expected an Item, not %R", object);
    return -1;
}

/* From (writer, resource, items, drop_managed, ...). */
static int apply_start(struct apply *apply, PyObject *const *arguments)
{
    struct shmc_writer *const writer = PyLong_AsVoidPtr(arguments[0]);

    *apply = (struct apply){.changes = 0};
    apply->change.resource = (uint32_t)PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred())
        return -1;
    if (!PyList_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "items must be a list");
        return -1;
    }
    apply->encoder = shmc_encoder_of(writer);
    if (apply->encoder == NULL)
        return -1;
    apply->encoder->parser.drop_managed = arguments[3] == Py_True;
    apply->refused = PyList_New(0);
    return apply->refused == NULL ? -1 : 0;
}

static int apply_list(struct apply *apply, PyObject *items)
{
    struct item item;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *object = Py_NewRef(PyList_GET_ITEM(items, i)); /* a refusal may run any code */
        const int result = read_item(object, &item) < 0 ? -1 : apply_item(apply, &item);
        Py_DECREF(object);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* (writer, resource, items, drop_managed, staged) */
static PyObject *hot_apply_items(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    struct apply apply;

    (void)module;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "takes writer, resource, items, drop_managed, staged");
        return NULL;
    }
    if (apply_start(&apply, arguments) < 0)
        return NULL;
    apply.staged = arguments[4] == Py_True;
    if (apply_list(&apply, arguments[2]) < 0) {
        Py_DECREF(apply.refused);
        return NULL;
    }
    return Py_BuildValue("nN", apply.changes, apply.refused);
}

/* The items, then the resource's version if given, in the open batch. */
static int apply_with_version(struct apply *apply, PyObject *items, PyObject *version)
{
    Py_ssize_t length;

    if (apply_list(apply, items) < 0)
        return -1;
    if (version == Py_None)
        return 0;
    const char *const text = PyUnicode_AsUTF8AndSize(version, &length);
    if (text == NULL)
        return -1;
    const enum shmc_status status = shmc_set_version(
        apply->encoder->writer, apply->change.resource, text, (size_t)length);
    if (status != SHMC_OK)
        shmc_hot_raise(status, "the resource's version");
    return status == SHMC_OK ? 0 : -1;
}

/* One attempt at a batch of its own. */
static int apply_in_batch(struct apply *apply, PyObject *const *arguments, uint64_t now_ns)
{
    struct shmc_writer *const writer = apply->encoder->writer;
    enum shmc_status status = shmc_begin(writer);

    if (status != SHMC_OK) {
        shmc_hot_raise(status, "opening a batch");
        return -1;
    }
    if (apply_with_version(apply, arguments[2], arguments[4]) < 0) {
        shmc_abort(writer);
        return -1;
    }
    status = shmc_commit(writer, now_ns);
    if (status != SHMC_OK)
        shmc_hot_raise(status, "publishing changes");
    return status == SHMC_OK ? 0 : -1;
}

/* (writer, resource, items, drop_managed, version, now_ns): begin, apply and commit */
static PyObject *hot_apply_now(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    struct apply apply;

    (void)module;
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError,
                        "takes writer, resource, items, drop_managed, version, now_ns");
        return NULL;
    }
    const unsigned long long now_ns = PyLong_AsUnsignedLongLong(arguments[5]);
    if (PyErr_Occurred())
        return NULL;
    for (bool again = false;; again = true) {
        if (apply_start(&apply, arguments) < 0)
            return NULL;
        if (apply_in_batch(&apply, arguments, now_ns) == 0)
            return Py_BuildValue("nN", apply.changes, apply.refused);
        Py_DECREF(apply.refused);
        /* A page that fell empty while the batch was open can serve another size only now. */
        if (again || !PyErr_ExceptionMatches(shmc_hot_errors.full))
            return NULL;
        PyErr_Clear();
    }
}

static PyMethodDef methods[] = {
    {"apply_items", (PyCFunction)(void (*)(void))hot_apply_items, METH_FASTCALL,
     PyDoc_STR("apply_items(writer, resource, items, drop_managed, staged) -> changes, refused")},
    {"apply_now", (PyCFunction)(void (*)(void))hot_apply_now, METH_FASTCALL,
     PyDoc_STR("apply_now(writer, resource, items, drop_managed, version, now_ns) -> changes, "
               "refused: a batch of its own")},
    {NULL, NULL, 0, NULL},
};

int shmc_pyparse_init(PyObject *module)
{
    if (PyModule_AddType(module, &shmc_pyframes_type) < 0 ||
        PyModule_AddType(module, &shmc_pyitems_type) < 0 ||
        PyModule_AddType(module, &shmc_pychunks_type) < 0 ||
        PyModule_AddType(module, &shmc_pypretty_type) < 0 ||
        PyModule_AddType(module, &shmc_pygrpc_type) < 0 ||
        PyModule_AddType(module, &shmc_pyetcd_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
