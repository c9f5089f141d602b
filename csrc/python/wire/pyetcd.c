/*
 * pyetcd.c - EtcdAnswers: an answer of etcd's watch (WatchResponse of rpc.proto), as a tuple.
 *
 *   class EtcdAnswers:               # final
 *       def __init__(self, prefixes: list[tuple[bytes, str | None]])
 *           # longest first; with the name of the resource if its values are plain JSON objects
 *       def read(self, message: bytes) -> tuple[int | str | bytes | list, ...]     # ValueError
 *           # cluster_id, member_id, revision, raft_term, watch_id, created, canceled,
 *           # compact_revision, cancel_reason, fragment, events, last_key, last_revision, last_type
 *
 * An event becomes an Item if its key is UTF-8 under a prefix that has a name, and its value is laid
 * out as Kubernetes' own encoder does it; under another prefix it is left out; any other one is a
 * tuple (type, key, create_revision, mod_revision, version, value) for source/etcd/objects.py.
 *
 * ETCDANSWER1  the text of an Item is what object_text() of source/etcd/values.py makes of the value.
 */
#include <string.h>

#include "python/wire/pywire.h"

#define TYPE_DELETE 1u
#define LETTERS "resourceVersion"
#define BEFORE_V 9u /* in "resource, with its quote */

typedef struct {
    PyObject_HEAD
    PyObject *prefixes; /* of tuples (bytes, str | None) */
    PyObject *added, *modified, *deleted;
} pyetcd;

/* ---- protobuf ------------------------------------------------------------------------------ */

struct reader {
    const uint8_t *at, *end;
};

struct field {
    unsigned number, wire;
    uint64_t value;           /* wire 0 */
    struct reader inside;     /* wire 2 */
};

static bool read_varint(struct reader *from, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && from->at < from->end; shift += 7) {
        const uint8_t byte = *from->at++;
        if (shift < 64)
            *value |= (uint64_t)(byte & 0x7fu) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The next field; 0 at the end, -1 for anything but protobuf. */
static int read_field(struct reader *from, struct field *field)
{
    uint64_t tag, length;

    if (from->at == from->end)
        return 0;
    if (!read_varint(from, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffffu)
        return -1;
    field->number = (unsigned)(tag >> 3);
    field->wire = (unsigned)(tag & 7u);
    switch (field->wire) {
    case 0:
        return read_varint(from, &field->value) ? 1 : -1;
    case 1:
    case 5:
        length = field->wire == 1 ? 8 : 4;
        break;
    case 2:
        if (!read_varint(from, &length))
            return -1;
        break;
    default:
        return -1;
    }
    if (length > (uint64_t)(from->end - from->at))
        return -1;
    field->inside = (struct reader){from->at, from->at + length};
    from->at += length;
    return 1;
}

struct event {
    uint64_t type;
    int64_t create, mod, version;
    struct reader key, value;
};

struct answer {
    uint64_t cluster, member, term;
    int64_t revision, watch, compact;
    bool created, canceled, fragment;
    struct reader reason;
    struct event last;
};

static int read_header(struct reader from, struct answer *answer)
{
    struct field field;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.wire != 0)
            continue;
        if (field.number == 1)
            answer->cluster = field.value;
        else if (field.number == 2)
            answer->member = field.value;
        else if (field.number == 3)
            answer->revision = (int64_t)field.value;
        else if (field.number == 4)
            answer->term = field.value;
    }
    return more;
}

static int read_kv(struct reader from, struct event *event)
{
    struct field field;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.number == 1 && field.wire == 2)
            event->key = field.inside;
        else if (field.number == 5 && field.wire == 2)
            event->value = field.inside;
        else if (field.number == 2 && field.wire == 0)
            event->create = (int64_t)field.value;
        else if (field.number == 3 && field.wire == 0)
            event->mod = (int64_t)field.value;
        else if (field.number == 4 && field.wire == 0)
            event->version = (int64_t)field.value;
    }
    return more;
}

static int read_event(struct reader from, struct event *event)
{
    struct field field;
    int more;

    *event = (struct event){.key = {from.at, from.at}, .value = {from.at, from.at}};
    while ((more = read_field(&from, &field)) > 0) {
        if (field.number == 1 && field.wire == 0)
            event->type = field.value;
        else if (field.number == 2 && field.wire == 2 && read_kv(field.inside, event) < 0)
            return -1;
    }
    return more;
}

/* ---- values: the fast half of source/etcd/values.py ---------------------------------------- */

static const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) /* as \s of bytes */
        at++;
    return at;
}

/* Skips space and one byte; NULL if it is another one. */
static const uint8_t *skip_byte(const uint8_t *at, const uint8_t *end, uint8_t byte)
{
    at = skip_space(at, end);
    return at < end && *at == byte ? at + 1 : NULL;
}

static bool is_text(const uint8_t *at, size_t length, const char *text)
{
    return length == strlen(text) && memcmp(at, text, length) == 0;
}

/* Where the members of the metadata begin, behind apiVersion and kind; NULL if not so laid out. */
static const uint8_t *metadata_of(const uint8_t *at, const uint8_t *end)
{
    bool api_version = false, kind = false;

    for (at = skip_byte(at, end, '{'); at != NULL; at = skip_byte(at, end, ',')) {
        at = skip_byte(at, end, '"');
        const uint8_t *name = at, *close = at == NULL ? NULL : memchr(at, '"', (size_t)(end - at));
        if (close == NULL || (at = skip_byte(close + 1, end, ':')) == NULL)
            return NULL;
        const size_t length = (size_t)(close - name);
        if (is_text(name, length, "metadata"))
            return api_version && kind ? skip_byte(at, end, '{') : NULL;
        if (is_text(name, length, "apiVersion"))
            api_version = true;
        else if (is_text(name, length, "kind"))
            kind = true;
        else
            return NULL;
        at = skip_byte(at, end, '"');
        close = at == NULL ? NULL : memchr(at, '"', (size_t)(end - at));
        if (close == NULL || memchr(at, '\\', (size_t)(close - at)) != NULL)
            return NULL;
        at = close + 1;
    }
    return NULL;
}

/* Whether a member may be called resourceVersion: written so, or with escaped letters. */
static bool may_have_version(const uint8_t *bytes, size_t length)
{
    const uint8_t *const end = bytes + length;
    const size_t after = sizeof LETTERS + 1 - BEFORE_V; /* Version" */

    for (const uint8_t *at = bytes; (at = memchr(at, 'V', (size_t)(end - at))) != NULL; at++)
        if ((size_t)(at - bytes) >= BEFORE_V && (size_t)(end - at) >= after &&
            memcmp(at - BEFORE_V, "\"" LETTERS "\"", sizeof LETTERS + 1) == 0)
            return true;
    for (const uint8_t *at = bytes; (at = memchr(at, '\\', (size_t)(end - at))) != NULL; at++)
        if (end - at >= 5 && memcmp(at, "\\u00", 4) == 0 && at[4] >= '4' && at[4] <= '7')
            return true;
    return false;
}

/* The object's text with its version; Py_None if it is laid out otherwise. */
static PyObject *text_of(const struct event *event)
{
    const uint8_t *const bytes = event->value.at, *const end = event->value.end;
    const size_t length = (size_t)(end - bytes);
    char more[64];

    const uint8_t *const at = metadata_of(bytes, end);
    if (at == NULL || may_have_version(bytes, length) ||
        memmem(at, (size_t)(end - at), "\"metadata\"", 10) != NULL) /* perhaps a second one */
        return Py_NewRef(Py_None);
    const uint8_t *const next = skip_space(at, end);
    const bool empty = next < end && *next == '}';
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

static PyObject *bytes_of(struct reader piece)
{
    return PyBytes_FromStringAndSize((const char *)piece.at, (Py_ssize_t)(piece.end - piece.at));
}

static PyObject *raw_event(const struct event *event)
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

/* An Item, or Py_None if it is not a plain one. */
static PyObject *plain_item(const pyetcd *etcd, const struct event *event, size_t prefix,
                            PyObject *name)
{
    const char *const rest = (const char *)event->key.at + prefix;
    const Py_ssize_t length = (const char *)event->key.end - rest;
    const bool gone = event->type == TYPE_DELETE;

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
    PyObject *version = key == NULL ? NULL : PyUnicode_FromFormat("%lld", (long long)event->mod);
    PyObject *type = gone ? etcd->deleted : event->create == event->mod ? etcd->added
                                                                         : etcd->modified;
    PyObject *item = NULL;
    if (version != NULL)
        item = shmc_item_of(type, key, version, name, raw);
    Py_DECREF(raw);
    Py_XDECREF(key);
    Py_XDECREF(version);
    return item;
}

static int add_event(const pyetcd *etcd, PyObject *events, const struct event *event)
{
    const size_t length = (size_t)(event->key.end - event->key.at);

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(etcd->prefixes); i++) {
        PyObject *const pair = PyList_GET_ITEM(etcd->prefixes, i);
        PyObject *const prefix = PyTuple_GET_ITEM(pair, 0), *const name = PyTuple_GET_ITEM(pair, 1);
        const size_t size = (size_t)PyBytes_GET_SIZE(prefix);
        if (length < size || memcmp(event->key.at, PyBytes_AS_STRING(prefix), size) != 0)
            continue;
        PyObject *found = name == Py_None ? Py_NewRef(Py_None)
                                          : plain_item(etcd, event, size, name);
        if (found == Py_None) {
            Py_DECREF(found);
            found = raw_event(event);
        }
        return shmc_list_add(events, found);
    }
    return 0;
}

/* -1 with an exception set. */
static int read_answer(const pyetcd *etcd, struct reader from, struct answer *answer,
                       PyObject *events)
{
    struct field field;
    struct event event;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.wire == 0) {
            switch (field.number) {
            case 2:
                answer->watch = (int64_t)field.value;
                break;
            case 3:
                answer->created = field.value != 0;
                break;
            case 4:
                answer->canceled = field.value != 0;
                break;
            case 5:
                answer->compact = (int64_t)field.value;
                break;
            case 7:
                answer->fragment = field.value != 0;
                break;
            default:
                break;
            }
        } else if (field.wire == 2 && field.number == 1) {
            if (read_header(field.inside, answer) < 0)
                more = -1;
        } else if (field.wire == 2 && field.number == 6) {
            answer->reason = field.inside;
        } else if (field.wire == 2 && field.number == 11) {
            if (read_event(field.inside, &event) < 0)
                more = -1;
            else if (add_event(etcd, events, &event) < 0)
                return -1;
            answer->last = event;
        }
        if (more < 0)
            break;
    }
    if (more < 0)
        PyErr_SetString(PyExc_ValueError, "an answer of etcd is not valid protobuf");
    return more;
}

static PyObject *etcd_read(PyObject *self, PyObject *message)
{
    static const uint8_t nothing[1];
    struct answer answer = {.reason = {nothing, nothing},
                            .last = {.key = {nothing, nothing}, .value = {nothing, nothing}}};

    if (!PyBytes_Check(message))
        return PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s",
                            Py_TYPE(message)->tp_name);
    const uint8_t *const at = (const uint8_t *)PyBytes_AS_STRING(message);
    const struct reader from = {at, at + PyBytes_GET_SIZE(message)};
    PyObject *events = PyList_New(0);
    if (events == NULL || read_answer((pyetcd *)self, from, &answer, events) < 0) {
        Py_XDECREF(events);
        return NULL;
    }
    PyObject *reason = PyUnicode_DecodeUTF8((const char *)answer.reason.at,
                                            answer.reason.end - answer.reason.at, "replace");
    PyObject *key = reason == NULL ? NULL : bytes_of(answer.last.key);
    PyObject *found = NULL;
    if (key != NULL)
        found = Py_BuildValue("(KKLKLOOLOOOOLK)", (unsigned long long)answer.cluster,
                              (unsigned long long)answer.member, (long long)answer.revision,
                              (unsigned long long)answer.term, (long long)answer.watch,
                              answer.created ? Py_True : Py_False,
                              answer.canceled ? Py_True : Py_False, (long long)answer.compact,
                              reason, answer.fragment ? Py_True : Py_False, events, key,
                              (long long)answer.last.mod, (unsigned long long)answer.last.type);
    Py_XDECREF(reason);
    Py_XDECREF(key);
    Py_DECREF(events);
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
    if (etcd->prefixes == NULL || etcd->added == NULL || etcd->modified == NULL ||
        etcd->deleted == NULL || check_prefixes(etcd->prefixes) < 0)
        Py_CLEAR(etcd);
    return (PyObject *)etcd;
}

static PyMethodDef methods[] = {
    {"read", etcd_read, METH_O, PyDoc_STR("An answer of a watch, as a tuple.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject shmc_pyetcd_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.EtcdAnswers",
    .tp_doc = PyDoc_STR("Answers of etcd's watch, their events as items."),
    .tp_basicsize = sizeof(pyetcd),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = etcd_new,
    .tp_dealloc = etcd_free,
    .tp_methods = methods,
};
