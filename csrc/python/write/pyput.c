/*
 * pyput.c - put: Python objects into the open batch of a writer.
 *
 * The batch itself is opened and committed by the control plane. An exception here
 * leaves the batch as it was before this object, unless the core poisoned it (the
 * arena was full): the caller aborts it then.
 *
 * An encoder (caches, nothing that affects results) is kept for each writer of this process;
 * there is hardly ever more than one.
 */
#include "python/write/pyencode.h"

static struct shmc_encoder *encoders; /* with the GIL (HOT4) */

static void encoder_free(struct shmc_encoder *encoder)
{
    shmc_keys_clear(encoder);
    shmc_parser_free(&encoder->parser);
    Py_CLEAR(encoder->trail);
    PyMem_Free(encoder->stack);
    PyMem_Free(encoder);
}

void shmc_encoder_forget(struct shmc_writer *writer)
{
    for (struct shmc_encoder **at = &encoders; *at != NULL; at = &(*at)->next) {
        if ((*at)->writer == writer) {
            struct shmc_encoder *gone = *at;
            *at = gone->next;
            encoder_free(gone);
            return;
        }
    }
}

struct shmc_encoder *shmc_encoder_of(struct shmc_writer *writer)
{
    for (struct shmc_encoder *known = encoders; known != NULL; known = known->next) {
        if (known->writer == writer && known->instance == shmc_writer_instance(writer))
            return known;
    }
    shmc_encoder_forget(writer); /* an address that is reused */
    struct shmc_encoder *encoder = PyMem_Calloc(1, sizeof(*encoder));
    if (encoder == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    encoder->writer = writer;
    shmc_parser_init(&encoder->parser, writer);
    encoder->span = shmc_writer_span(writer);
    encoder->instance = shmc_writer_instance(writer);
    encoder->next = encoders;
    encoders = encoder;
    return encoder;
}

/* ---- one change ------------------------------------------------------------------------ */

typedef enum shmc_status (*put_function)(struct shmc_writer *, const struct shmc_change *);

struct put {
    struct shmc_encoder *encoder;
    put_function function;
    struct shmc_change change;
    PyObject *value;
    PyObject *version; /* str or None */
    PyObject *emitted; /* sequence of sequences of str, or None */
};

shmc_word shmc_encoder_previous(const struct shmc_encoder *encoder,
                                const struct shmc_change *change)
{
    shmc_word word;
    const enum shmc_status status = shmc_current(encoder->writer, change->resource, change->key,
                                                 change->key_length, &word);

    if (status == SHMC_OK)
        return word; /* the resource is not read until the object is put */
    if (status == SHMC_NOT_FOUND && (word = shmc_nearest(encoder->writer)) != SHMC_NOTHING)
        return word;
    return encoder->last_batch == shmc_batch_number(encoder->writer) ? encoder->last
                                                                      : SHMC_NOTHING;
}

static int encode_values(struct shmc_encoder *encoder, PyObject *values, shmc_word *word)
{
    PyObject *list = PySequence_List(values);

    if (list == NULL)
        return -1;
    int result = 0;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(list); i++) {
        if (!PyUnicode_Check(PyList_GET_ITEM(list, i))) {
            PyErr_Format(shmc_hot_errors.unsupported, "an index value must be a str, not %.100s",
                         Py_TYPE(PyList_GET_ITEM(list, i))->tp_name);
            result = -1;
        }
    }
    if (result == 0)
        result = shmc_encode(encoder, list, SHMC_NOTHING, word);
    Py_DECREF(list);
    return result;
}

static int encode_emitted(struct put *put, shmc_word words[SHMC_MAX_INDICES])
{
    put->change.emitted = words;
    put->change.emitted_count = 0;
    if (put->emitted == NULL || put->emitted == Py_None)
        return 0;
    PyObject *tuple = PySequence_Tuple(put->emitted); /* iterating may run any code */
    if (tuple == NULL)
        return -1;
    int result = 0;
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; result == 0 && i < count && i < (Py_ssize_t)SHMC_MAX_INDICES; i++)
        result = encode_values(put->encoder, PyTuple_GET_ITEM(tuple, i), &words[i]);
    put->change.emitted_count = (size_t)count;
    Py_DECREF(tuple);
    return result;
}

static int put_change(struct put *put)
{
    struct shmc_encoder *encoder = put->encoder;
    shmc_word words[SHMC_MAX_INDICES];
    const uint64_t before = shmc_batch_changes(encoder->writer);

    if (!PyDict_Check(put->value) && !Py_IS_TYPE(put->value, &shmc_pyview_type)) {
        PyErr_Format(shmc_hot_errors.unsupported, "an object must be a dict, not %.100s",
                     Py_TYPE(put->value)->tp_name);
        return -1;
    }
    if (encode_emitted(put, words) < 0) /* first: the lists it makes may start a collection */
        return -1;
    if (shmc_encode(encoder, put->value, shmc_encoder_previous(encoder, &put->change),
                    &put->change.value) < 0)
        return -1;
    put->change.version = SHMC_NOTHING;
    put->change.looked_up = true;
    if (put->version != NULL && put->version != Py_None &&
        shmc_encode_str(encoder, put->version, SHMC_NOTHING, &put->change.version) < 0)
        return -1;
    const enum shmc_status status = put->function(encoder->writer, &put->change);
    if (status != SHMC_OK) {
        shmc_hot_raise(status, "storing an object");
        return -1;
    }
    encoder->last = put->change.value;
    encoder->last_batch = shmc_batch_number(encoder->writer);
    return shmc_batch_changes(encoder->writer) != before;
}

static int put_start(struct put *put, unsigned long long address, unsigned long resource,
                     put_function function)
{
    struct shmc_writer *writer = (struct shmc_writer *)(uintptr_t)address;

    memset(put, 0, sizeof(*put));
    put->encoder = shmc_encoder_of(writer);
    put->function = function;
    put->change.resource = (uint32_t)resource;
    return put->encoder == NULL ? -1 : 0;
}

static int put_key(struct put *put, PyObject *key)
{
    Py_ssize_t length;

    if (!PyUnicode_Check(key)) {
        PyErr_Format(PyExc_TypeError, "a key must be a str, not %.100s", Py_TYPE(key)->tp_name);
        return -1;
    }
    put->change.key = (const uint8_t *)PyUnicode_AsUTF8AndSize(key, &length);
    if (put->change.key == NULL)
        return -1;
    if (length == 0 || memchr(put->change.key, 0, (size_t)length) != NULL) {
        PyErr_SetString(PyExc_ValueError, "a key must not be empty nor contain NUL");
        return -1;
    }
    put->change.key_length = (size_t)length;
    return 0;
}

/* (writer, resource, key, object, version, emitted) */
static PyObject *put_one(PyObject *const *arguments, Py_ssize_t count, put_function function)
{
    struct put put;

    if (count < 4 || count > 6) {
        PyErr_SetString(PyExc_TypeError,
                        "takes writer, resource, key, object, version, emitted");
        return NULL;
    }
    const unsigned long long address = PyLong_AsUnsignedLongLong(arguments[0]);
    const unsigned long resource = PyLong_AsUnsignedLong(arguments[1]);
    if (PyErr_Occurred() || put_start(&put, address, resource, function) < 0 ||
        put_key(&put, arguments[2]) < 0)
        return NULL;
    put.value = arguments[3];
    put.version = count > 4 ? arguments[4] : NULL;
    put.emitted = count > 5 ? arguments[5] : NULL;
    const int changed = put_change(&put);
    return changed < 0 ? NULL : PyBool_FromLong(changed);
}

static PyObject *hot_put(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return put_one(arguments, count, shmc_put);
}

/* (writer, resource, key, object, version, emitted, now_ns): begin, put and commit */
static PyObject *hot_put_now(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "takes what put takes, and the time");
        return NULL;
    }
    struct shmc_writer *writer = PyLong_AsVoidPtr(arguments[0]);
    const unsigned long long now_ns = PyLong_AsUnsignedLongLong(arguments[6]);
    if (PyErr_Occurred())
        return NULL;
    for (bool again = false;; again = true) {
        enum shmc_status status = shmc_begin(writer);
        if (status != SHMC_OK)
            return shmc_hot_raise(status, "opening a batch");
        PyObject *changed = put_one(arguments, 6, shmc_put);
        if (changed != NULL) {
            status = shmc_commit(writer, now_ns);
            if (status == SHMC_OK)
                return changed;
            Py_DECREF(changed);
            shmc_hot_raise(status, "publishing a change");
        } else {
            shmc_abort(writer);
        }
        /* A page that fell empty while the batch was open can serve another size only now. */
        if (again || !PyErr_ExceptionMatches(shmc_hot_errors.full))
            return NULL;
        PyErr_Clear();
    }
}

static PyObject *hot_stage(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return put_one(arguments, count, shmc_stage);
}

/* (writer, resource, key, emitted) */
static PyObject *hot_refill(PyObject *module, PyObject *arguments)
{
    unsigned long long address;
    unsigned long resource;
    PyObject *key, *emitted;
    shmc_word words[SHMC_MAX_INDICES];
    struct put put;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "KkOO:refill", &address, &resource, &key, &emitted))
        return NULL;
    if (put_start(&put, address, resource, NULL) < 0 || put_key(&put, key) < 0)
        return NULL;
    put.emitted = emitted;
    if (encode_emitted(&put, words) < 0)
        return NULL;
    const enum shmc_status status = shmc_refill(put.encoder->writer, &put.change);
    if (status != SHMC_OK)
        return shmc_hot_raise(status, "filling an index");
    Py_RETURN_NONE;
}

/* ---- many ----------------------------------------------------------------------------------- */

static PyObject *hot_put_many(PyObject *module, PyObject *arguments)
{
    unsigned long long address;
    unsigned long resource;
    PyObject *items, *item;
    Py_ssize_t changes = 0;
    struct put put;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "KkO:put_many", &address, &resource, &items) ||
        put_start(&put, address, resource, shmc_put) < 0)
        return NULL;
    PyObject *iterator = PyObject_GetIter(items);
    while (iterator != NULL && (item = PyIter_Next(iterator)) != NULL) {
        PyObject *key;
        int changed = -1;

        const Py_ssize_t size = PyTuple_Check(item) ? PyTuple_GET_SIZE(item) : 0;
        if (size == 2 || size == 3) {
            key = PyTuple_GET_ITEM(item, 0);
            put.value = PyTuple_GET_ITEM(item, 1);
            put.version = size == 3 ? PyTuple_GET_ITEM(item, 2) : NULL;
            changed = put_key(&put, key) < 0 ? -1 : put_change(&put);
        } else {
            PyErr_SetString(PyExc_TypeError, "put_many takes (key, object, version) tuples");
        }
        Py_DECREF(item);
        if (changed < 0) {
            Py_DECREF(iterator);
            return NULL;
        }
        changes += changed;
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(changes);
}

static PyObject *str_metadata, *str_name, *str_namespace, *str_version;

/* A member of a dict that must be a str if present; NULL without exception: absent. A new
 * reference: the next look-up may run the __eq__ of a key. */
static PyObject *text_member(PyObject *dict, PyObject *key)
{
    PyObject *value = PyDict_GetItemWithError(dict, key);

    if (value == NULL || value == Py_None)
        return NULL;
    Py_INCREF(value);
    if (!PyUnicode_Check(value)) {
        PyErr_Format(shmc_hot_errors.unsupported, "at ['metadata'][%R]: must be a str, not %.100s",
                     key, Py_TYPE(value)->tp_name);
        Py_CLEAR(value);
    }
    return value;
}

/* namespace/name, or name alone, into `buffer` if it fits there, else into *heap. */
static int key_from(struct put *put, PyObject *name, PyObject *space, char *buffer, size_t size,
                    char **heap)
{
    Py_ssize_t name_length, space_length = 0;
    const char *space_bytes = NULL;

    if (name == NULL || PyUnicode_GET_LENGTH(name) == 0) {
        PyErr_SetString(shmc_hot_errors.unsupported,
                        "at ['metadata']['name']: an object must have a name");
        return -1;
    }
    const char *name_bytes = PyUnicode_AsUTF8AndSize(name, &name_length);
    if (space != NULL)
        space_bytes = PyUnicode_AsUTF8AndSize(space, &space_length);
    if (name_bytes == NULL || (space != NULL && space_bytes == NULL))
        return -1;
    const size_t length =
        (size_t)name_length + (space_length > 0 ? (size_t)space_length + 1 : 0);
    char *to = buffer;
    if (length > size) {
        to = *heap = PyMem_Malloc(length);
        if (to == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    put->change.key = (const uint8_t *)to;
    put->change.key_length = length;
    if (space_length > 0) {
        memcpy(to, space_bytes, (size_t)space_length);
        to[space_length] = '/';
        to += space_length + 1;
    }
    memcpy(to, name_bytes, (size_t)name_length);
    if (memchr(put->change.key, 0, length) != NULL) {
        PyErr_SetString(PyExc_ValueError, "a key must not be empty nor contain NUL");
        return -1;
    }
    return 0;
}

static int key_of(struct put *put, PyObject *metadata, char *buffer, size_t size, char **heap)
{
    PyObject *name = text_member(metadata, str_name);
    PyObject *space = PyErr_Occurred() ? NULL : text_member(metadata, str_namespace);
    const int result =
        PyErr_Occurred() ? -1 : key_from(put, name, space, buffer, size, heap);

    Py_XDECREF(name);
    Py_XDECREF(space);
    return result;
}

/* Holds references while it reads: comparing keys may run any code, even change the dicts. */
static int apply_one(struct put *put, PyObject *object)
{
    char buffer[320];
    char *heap = NULL;
    int changed = -1;
    PyObject *metadata = PyDict_Check(object) ? PyDict_GetItemWithError(object, str_metadata) : NULL;

    if (metadata == NULL || !PyDict_Check(metadata)) {
        if (!PyErr_Occurred())
            PyErr_SetString(shmc_hot_errors.unsupported,
                            "at ['metadata']: an object to apply must be a dict with a dict of "
                            "metadata");
        return -1;
    }
    Py_INCREF(metadata);
    put->value = object;
    put->version = text_member(metadata, str_version);
    if (!PyErr_Occurred() && key_of(put, metadata, buffer, sizeof(buffer), &heap) == 0)
        changed = put_change(put);
    PyMem_Free(heap);
    Py_CLEAR(put->version);
    Py_DECREF(metadata);
    return changed;
}

static PyObject *apply_all(PyObject *arguments, put_function function)
{
    unsigned long long address;
    unsigned long resource;
    PyObject *objects;
    Py_ssize_t changes = 0;
    struct put put;

    if (!PyArg_ParseTuple(arguments, "KkO!", &address, &resource, &PyList_Type, &objects) ||
        put_start(&put, address, resource, function) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = Py_NewRef(PyList_GET_ITEM(objects, i));
        const int changed = apply_one(&put, object);
        Py_DECREF(object);
        if (changed < 0)
            return NULL;
        changes += changed;
    }
    return PyLong_FromSsize_t(changes);
}

static PyObject *hot_apply(PyObject *module, PyObject *arguments)
{
    (void)module;
    return apply_all(arguments, shmc_put);
}

static PyObject *hot_stage_all(PyObject *module, PyObject *arguments)
{
    (void)module;
    return apply_all(arguments, shmc_stage);
}

static PyObject *hot_forget(PyObject *module, PyObject *address)
{
    const unsigned long long value = PyLong_AsUnsignedLongLong(address);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    shmc_encoder_forget((struct shmc_writer *)(uintptr_t)value);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"put", (PyCFunction)(void (*)(void))hot_put, METH_FASTCALL,
     PyDoc_STR("put(writer, resource, key, object, version=None, emitted=None) -> bool")},
    {"put_now", (PyCFunction)(void (*)(void))hot_put_now, METH_FASTCALL,
     PyDoc_STR("put_now(writer, resource, key, object, version, emitted, now_ns) -> bool: "
               "a batch of one")},
    {"stage", (PyCFunction)(void (*)(void))hot_stage, METH_FASTCALL,
     PyDoc_STR("As put, for a replacement that is being prepared.")},
    {"refill", hot_refill, METH_VARARGS,
     PyDoc_STR("refill(writer, resource, key, emitted): other index values, no delta")},
    {"put_many", hot_put_many, METH_VARARGS,
     PyDoc_STR("put_many(writer, resource, iterable of (key, object, version)) -> changes")},
    {"apply", hot_apply, METH_VARARGS,
     PyDoc_STR("apply(writer, resource, objects) -> changes; key and version from metadata")},
    {"stage_all", hot_stage_all, METH_VARARGS, PyDoc_STR("As apply, for a replacement.")},
    {"forget", hot_forget, METH_O, PyDoc_STR("forget(writer): drops the writer's cached encoder")},
    {NULL, NULL, 0, NULL},
};

int shmc_pywrite_init(PyObject *module)
{
    str_metadata = PyUnicode_InternFromString("metadata");
    str_name = PyUnicode_InternFromString("name");
    str_namespace = PyUnicode_InternFromString("namespace");
    str_version = PyUnicode_InternFromString("resourceVersion");
    if (str_metadata == NULL || str_name == NULL || str_namespace == NULL || str_version == NULL)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
