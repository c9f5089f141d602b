/*
 * pyetcd.c - EtcdAnswers: answers of etcd's watch and of ranges (wire/etcd.c), as tuples.
 *
 *   class EtcdAnswers:               # final
 *       def __init__(self, prefixes: list[tuple[bytes, str | None]])
 *           # longest first; with the name of the resource if its values are plain JSON objects
 *       def read(self, message: bytes) -> tuple[int | str | bytes | list, ...]     # ValueError
 *           # cluster_id, member_id, revision, raft_term, watch_id, created, canceled,
 *           # compact_revision, cancel_reason, fragment, events, last_key, last_revision, last_type
 *       def read_range(self, message: bytes) -> tuple[int | str | bytes | list, ...] # ValueError
 *           # cluster_id, member_id, revision, raft_term, more, events, count, size, last_key,
 *           # newest_key, newest_revision: how many entries, bytes of their values, the key of
 *           # the last one, and the one with the largest mod_revision
 *
 * An event becomes an Item if its key is UTF-8 under a prefix that has a name, and its value is laid
 * out as Kubernetes' own encoder does it; under another prefix it is left out; any other one is a
 * tuple (type, key, create_revision, mod_revision, version, value) for source/etcd/objects.py. An
 * entry of a range becomes the same; its Item is LISTED.
 */
#include "python/wire/pywire.h"
#include "wire/wire.h"

typedef struct {
    PyObject_HEAD
    PyObject *prefixes; /* of tuples (bytes, str | None) */
    PyObject *added, *modified, *deleted, *listed;
    PyObject *version;  /* the version that was made last: a transaction has many events */
    int64_t revision;   /* its number */
} pyetcd;

/* The object's text with its version; Py_None if it is laid out otherwise. */
static PyObject *text_of(const struct shmc_etcd_event *event)
{
    const uint8_t *const bytes = event->value.at;
    const size_t length = shmc_bytes_length(event->value);
    char more[64];
    bool empty;

    const uint8_t *const at = shmc_etcd_version_at(event->value, &empty);
    if (at == NULL)
        return Py_NewRef(Py_None);
    const size_t added = (size_t)PyOS_snprintf(more, sizeof more, "\"resourceVersion\":\"%lld\"%s",
                                               (long long)event->mod, empty ? "" : ",");
    PyObject *text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(length + added));
    if (text == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(text);
    const size_t first = (size_t)(at - bytes);
    memcpy(to, bytes, first);
    memcpy(to + first, more, added);
    memcpy(to + first + added, at, length - first);
    return text;
}

/* ---- events -------------------------------------------------------------------------------- */

static PyObject *bytes_of(struct shmc_bytes piece)
{
    return PyBytes_FromStringAndSize((const char *)piece.at, (Py_ssize_t)shmc_bytes_length(piece));
}

static PyObject *raw_event(const struct shmc_etcd_event *event)
{
    PyObject *key = bytes_of(event->key), *value = bytes_of(event->value), *found = NULL;

    if (key != NULL && value != NULL)
        found = Py_BuildValue("(KOLLLO)", (unsigned long long)event->type, key,
                              (long long)event->create, (long long)event->mod,
                              (long long)event->version, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return found;
}

/* A new reference to the text of a mod_revision. */
static PyObject *version_of(pyetcd *etcd, int64_t revision)
{
    if (etcd->version == NULL || etcd->revision != revision) {
        PyObject *made = PyUnicode_FromFormat("%lld", (long long)revision);
        if (made == NULL)
            return NULL;
        Py_XSETREF(etcd->version, made);
        etcd->revision = revision;
    }
    return Py_NewRef(etcd->version);
}

/* An Item of this type, NULL for that of the event; Py_None if it is not a plain one. */
static PyObject *plain_item(pyetcd *etcd, const struct shmc_etcd_event *event, PyObject *type,
                            size_t prefix, PyObject *name)
{
    const char *const rest = (const char *)event->key.at + prefix;
    const Py_ssize_t length = (const char *)event->key.end - rest;
    const bool gone = type == NULL && event->type == SHMC_ETCD_DELETE;

    if (length == 0)
        return Py_NewRef(Py_None);
    PyObject *raw = gone ? PyBytes_FromStringAndSize(NULL, 0) : text_of(event);
    if (raw == NULL || raw == Py_None)
        return raw;
    PyObject *key = PyUnicode_DecodeUTF8(rest, length, "strict");
    if (key == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        Py_DECREF(raw);
        return Py_NewRef(Py_None);
    }
    PyObject *version = key == NULL ? NULL : version_of(etcd, event->mod);
    if (type == NULL)
        type = gone ? etcd->deleted : event->create == event->mod ? etcd->added : etcd->modified;
    PyObject *item = NULL;
    if (version != NULL)
        item = shmc_item_of(type, key, version, name, raw);
    Py_DECREF(raw);
    Py_XDECREF(key);
    Py_XDECREF(version);
    return item;
}

/* type: of its Item; NULL: by the event. -1 with an exception set. */
static int add_event(pyetcd *etcd, PyObject *events, const struct shmc_etcd_event *event,
                     PyObject *type)
{
    const size_t length = shmc_bytes_length(event->key);

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(etcd->prefixes); i++) {
        PyObject *const pair = PyList_GET_ITEM(etcd->prefixes, i);
        PyObject *const prefix = PyTuple_GET_ITEM(pair, 0), *const name = PyTuple_GET_ITEM(pair, 1);
        const size_t size = (size_t)PyBytes_GET_SIZE(prefix);
        if (length < size || memcmp(event->key.at, PyBytes_AS_STRING(prefix), size) != 0)
            continue;
        PyObject *found = name == Py_None ? Py_NewRef(Py_None)
                                          : plain_item(etcd, event, type, size, name);
        if (found == Py_None) {
            Py_DECREF(found);
            found = raw_event(event);
        }
        return shmc_list_add(events, found);
    }
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static const uint8_t nothing[1];

/* -1 with an exception set. */
static int bytes_in(PyObject *message, struct shmc_bytes *bytes)
{
    if (!PyBytes_Check(message)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s", Py_TYPE(message)->tp_name);
        return -1;
    }
    bytes->at = (const uint8_t *)PyBytes_AS_STRING(message);
    bytes->end = bytes->at + PyBytes_GET_SIZE(message);
    return 0;
}

static int invalid(void)
{
    PyErr_SetString(PyExc_ValueError, "an answer of etcd is not valid protobuf");
    return -1;
}

/* A list of the events; the last one. NULL with an exception set. */
static PyObject *events_of(pyetcd *etcd, struct shmc_bytes from, struct shmc_etcd_answer *answer,
                           struct shmc_etcd_event *last)
{
    PyObject *events = PyList_New(0);
    int more = events == NULL ? -1 : 1;

    while (more > 0) {
        more = shmc_etcd_watch_next(&from, answer, last);
        if (more < 0)
            invalid();
        else if (more > 0 && add_event(etcd, events, last, NULL) < 0)
            more = -1;
    }
    if (more < 0)
        Py_CLEAR(events);
    return events;
}

static PyObject *etcd_read(PyObject *self, PyObject *message)
{
    struct shmc_etcd_answer answer = {.reason = {nothing, nothing}};
    struct shmc_etcd_event last = {.key = {nothing, nothing}, .value = {nothing, nothing}};
    struct shmc_bytes from;

    if (bytes_in(message, &from) < 0)
        return NULL;
    PyObject *events = events_of((pyetcd *)self, from, &answer, &last);
    if (events == NULL)
        return NULL;
    PyObject *reason = PyUnicode_DecodeUTF8((const char *)answer.reason.at,
                                            (Py_ssize_t)shmc_bytes_length(answer.reason),
                                            "replace");
    PyObject *key = reason == NULL ? NULL : bytes_of(last.key);
    PyObject *found = NULL;
    if (key != NULL)
        found = Py_BuildValue("(KKLKLOOLOOOOLK)", (unsigned long long)answer.cluster,
                              (unsigned long long)answer.member, (long long)answer.revision,
                              (unsigned long long)answer.term, (long long)answer.watch,
                              answer.created ? Py_True : Py_False,
                              answer.canceled ? Py_True : Py_False, (long long)answer.compact,
                              reason, answer.fragment ? Py_True : Py_False, events, key,
                              (long long)last.mod, (unsigned long long)last.type);
    Py_XDECREF(reason);
    Py_XDECREF(key);
    Py_DECREF(events);
    return found;
}

/* A range as a whole. */
struct range {
    Py_ssize_t count;
    size_t size;
    struct shmc_bytes last, newest;
    int64_t newest_revision;
};

static PyObject *entries_of(pyetcd *etcd, struct shmc_bytes from, struct shmc_etcd_answer *answer,
                            struct range *range)
{
    PyObject *events = PyList_New(0);
    struct shmc_etcd_event event;
    int more = events == NULL ? -1 : 1;

    while (more > 0) {
        more = shmc_etcd_range_next(&from, answer, &event);
        if (more < 0)
            invalid();
        if (more <= 0)
            break;
        if (add_event(etcd, events, &event, etcd->listed) < 0)
            more = -1;
        range->count++;
        range->size += shmc_bytes_length(event.value);
        range->last = event.key;
        if (event.mod > range->newest_revision) {
            range->newest_revision = event.mod;
            range->newest = event.key;
        }
    }
    if (more < 0)
        Py_CLEAR(events);
    return events;
}

static PyObject *etcd_read_range(PyObject *self, PyObject *message)
{
    struct shmc_etcd_answer answer = {.reason = {nothing, nothing}};
    struct range range = {.last = {nothing, nothing}, .newest = {nothing, nothing}};
    struct shmc_bytes from;

    if (bytes_in(message, &from) < 0)
        return NULL;
    PyObject *events = entries_of((pyetcd *)self, from, &answer, &range);
    PyObject *last = events == NULL ? NULL : bytes_of(range.last);
    PyObject *newest = last == NULL ? NULL : bytes_of(range.newest);
    PyObject *found = NULL;
    if (newest != NULL)
        found = Py_BuildValue("(KKLKOOnnOOL)", (unsigned long long)answer.cluster,
                              (unsigned long long)answer.member, (long long)answer.revision,
                              (unsigned long long)answer.term, answer.more ? Py_True : Py_False,
                              events, range.count, (Py_ssize_t)range.size, last, newest,
                              (long long)range.newest_revision);
    Py_XDECREF(events);
    Py_XDECREF(last);
    Py_XDECREF(newest);
    return found;
}

static int check_prefixes(PyObject *prefixes)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(prefixes); i++) {
        PyObject *const pair = PyList_GET_ITEM(prefixes, i);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 ||
            !PyBytes_Check(PyTuple_GET_ITEM(pair, 0)) ||
            !(PyTuple_GET_ITEM(pair, 1) == Py_None || PyUnicode_Check(PyTuple_GET_ITEM(pair, 1)))) {
            PyErr_SetString(PyExc_TypeError, "prefixes are tuples (bytes, str | None)");
            return -1;
        }
    }
    return 0;
}

static void etcd_free(PyObject *self)
{
    pyetcd *etcd = (pyetcd *)self;

    Py_XDECREF(etcd->prefixes);
    Py_XDECREF(etcd->added);
    Py_XDECREF(etcd->modified);
    Py_XDECREF(etcd->deleted);
    Py_XDECREF(etcd->listed);
    Py_XDECREF(etcd->version);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *etcd_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"prefixes", NULL};
    PyObject *prefixes;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!:EtcdAnswers", names, &PyList_Type,
                                     &prefixes))
        return NULL;
    pyetcd *etcd = shmc_items_ready() < 0 ? NULL : (pyetcd *)type->tp_alloc(type, 0);
    if (etcd == NULL)
        return NULL;
    etcd->prefixes = PyList_GetSlice(prefixes, 0, PyList_GET_SIZE(prefixes)); /* ours alone */
    etcd->added = PyUnicode_InternFromString("ADDED");
    etcd->modified = PyUnicode_InternFromString("MODIFIED");
    etcd->deleted = PyUnicode_InternFromString("DELETED");
    etcd->listed = PyUnicode_InternFromString("LISTED");
    if (etcd->prefixes == NULL || etcd->added == NULL || etcd->modified == NULL ||
        etcd->deleted == NULL || etcd->listed == NULL || check_prefixes(etcd->prefixes) < 0)
        Py_CLEAR(etcd);
    return (PyObject *)etcd;
}

static PyMethodDef methods[] = {
    {"read", etcd_read, METH_O, PyDoc_STR("An answer of a watch, as a tuple.")},
    {"read_range", etcd_read_range, METH_O, PyDoc_STR("The answer to a range, as a tuple.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject shmc_pyetcd_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.EtcdAnswers",
    .tp_doc = PyDoc_STR("Answers of etcd, their events and entries as items."),
    .tp_basicsize = sizeof(pyetcd),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = etcd_new,
    .tp_dealloc = etcd_free,
    .tp_methods = methods,
};
