/*
 * pyitem.c - an Item (shmcache.protocol.items) from the pieces of an object's text.
 */
#include "python/wire/pywire.h"

#define KEEP 65536u /* bytes that a cleared buffer may keep */

int shmc_held_add(struct shmc_held *held, const uint8_t *bytes, size_t length)
{
    if (length > held->capacity - held->length) {
        const size_t capacity = (held->length + length) * 2;
        uint8_t *grown = PyMem_Realloc(held->bytes, capacity);
        if (grown == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        held->bytes = grown;
        held->capacity = capacity;
    }
    if (length > 0)
        memcpy(held->bytes + held->length, bytes, length);
    held->length += length;
    return 0;
}

void shmc_held_free(struct shmc_held *held)
{
    PyMem_Free(held->bytes);
    *held = (struct shmc_held){0};
}

void shmc_held_clear(struct shmc_held *held)
{
    held->length = 0;
    if (held->capacity > KEEP)
        shmc_held_free(held);
}

/* ---- texts --------------------------------------------------------------------------------- */

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *ascii_text(const uint8_t *bytes, size_t length)
{
    PyObject *text = PyUnicode_New((Py_ssize_t)length, 127);

    if (text != NULL && length > 0)
        memcpy(PyUnicode_DATA(text), bytes, length);
    return text;
}

/* With escapes, or not ASCII. */
static PyObject *other_text(const uint8_t *bytes, size_t length)
{
    uint8_t *decoded = PyMem_Malloc(length);

    if (decoded == NULL)
        return PyErr_NoMemory();
    const size_t size = shmc_text_unescape(bytes, length, decoded);
    PyObject *text = size == SIZE_MAX ? none()
                                      : PyUnicode_DecodeUTF8((const char *)decoded,
                                                             (Py_ssize_t)size, "strict");
    PyMem_Free(decoded);
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return none();
    }
    return text;
}

PyObject *shmc_piece_text(const struct shmc_piece *piece)
{
    unsigned what;

    if (piece->length == 0 || *piece->bytes != '"')
        return none();
    const uint8_t *const bytes = piece->bytes + 1;
    const uint8_t *const end = shmc_text_end(bytes, piece->bytes + piece->length, &what);
    if (end == NULL)
        return none();
    const size_t length = (size_t)(end - bytes);
    return what == 0 ? ascii_text(bytes, length) : other_text(bytes, length);
}

PyObject *shmc_familiar_text(struct shmc_familiar *familiar, const struct shmc_piece *piece)
{
    if (familiar->text != NULL && piece->length == familiar->length &&
        memcmp(piece->bytes, familiar->literal, piece->length) == 0) {
        Py_INCREF(familiar->text);
        return familiar->text;
    }
    PyObject *text = shmc_piece_text(piece);
    if (text != NULL && piece->length > 0 && piece->length <= sizeof familiar->literal) {
        memcpy(familiar->literal, piece->bytes, piece->length);
        familiar->length = piece->length;
        Py_INCREF(text);
        Py_XSETREF(familiar->text, text);
    }
    return text;
}

void shmc_items_clear(struct shmc_items *items)
{
    Py_CLEAR(items->type.text);
    Py_CLEAR(items->kind.text);
    Py_CLEAR(items->api_version.text);
}

/* Whether a literal is a string of ASCII without escapes, and its bytes. */
static bool plain(const struct shmc_piece *piece, struct shmc_piece *inside)
{
    unsigned what;

    if (piece->length == 0 || *piece->bytes != '"' ||
        shmc_text_end(piece->bytes + 1, piece->bytes + piece->length, &what) == NULL || what != 0)
        return false;
    *inside = (struct shmc_piece){piece->bytes + 1, piece->length - 2};
    return true;
}

/* namespace/name, name, or nothing without a name. */
static PyObject *key_of(const struct shmc_identity *identity)
{
    struct shmc_piece name, space = {NULL, 0};

    if (plain(&identity->name, &name) &&
        (identity->namespace.length == 0 || plain(&identity->namespace, &space))) {
        if (space.length == 0 || name.length == 0)
            return ascii_text(name.bytes, name.length);
        const size_t length = space.length + 1 + name.length;
        PyObject *key = PyUnicode_New((Py_ssize_t)length, 127);
        if (key == NULL)
            return NULL;
        uint8_t *to = PyUnicode_DATA(key);
        memcpy(to, space.bytes, space.length);
        to[space.length] = '/';
        memcpy(to + space.length + 1, name.bytes, name.length);
        return key;
    }
    PyObject *key = NULL;
    PyObject *last = shmc_piece_text(&identity->name);
    PyObject *first = last == NULL ? NULL : shmc_piece_text(&identity->namespace);
    if (first == NULL)
        key = NULL;
    else if (last == Py_None || PyUnicode_GET_LENGTH(last) == 0)
        key = ascii_text(NULL, 0);
    else if (first == Py_None || PyUnicode_GET_LENGTH(first) == 0)
        key = Py_NewRef(last);
    else
        key = PyUnicode_FromFormat("%U/%U", first, last);
    Py_XDECREF(first);
    Py_XDECREF(last);
    return key;
}

/* ---- members that are put in front -------------------------------------------------------- */

/* "name":"value", for items that lack it. */
int shmc_front_set(struct shmc_front *front, const char *name, PyObject *value)
{
    Py_ssize_t length;

    if (value == NULL || value == Py_None)
        return 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text == NULL)
        return -1;
    if (length > 256 || !PyUnicode_IS_ASCII(value) ||
        shmc_json_extra((const uint8_t *)text, (size_t)length) != 0) {
        PyErr_Format(PyExc_ValueError, "%R is not a valid %s", value, name);
        return -1;
    }
    front->value = strlen(name) + 3;
    front->length = (size_t)PyOS_snprintf(front->text, sizeof front->text, "\"%s\":\"%s\",", name,
                                          text);
    return 0;
}

/* Whether it is put in front: the object lacks the member. Then the identity gets the front's. */
static bool lacks(const struct shmc_front *front, struct shmc_piece *member)
{
    if (front->length == 0 || member->length != 0)
        return false;
    *member = (struct shmc_piece){(const uint8_t *)front->text + front->value,
                                  front->length - front->value - 1};
    return true;
}

PyObject *shmc_fronts_put(const struct shmc_front *kind, const struct shmc_front *api_version,
                          const uint8_t *raw, size_t length, struct shmc_identity *identity)
{
    const size_t first = lacks(kind, &identity->kind) ? kind->length : 0;
    const size_t second = lacks(api_version, &identity->api_version) ? api_version->length : 0;
    const size_t more = first + second;
    const bool empty = more > 0 && *shmc_skip_space(raw + 1, raw + length) == '}';
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(length + more - empty));

    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    *to = (char)*raw;
    memcpy(to + 1, kind->text, first);
    memcpy(to + 1 + first, api_version->text, second);
    memcpy(to + 1 + more - empty, raw + 1, length - 1); /* no comma in an empty object */
    return bytes;
}

/* ---- items ---------------------------------------------------------------------------------- */

#define FIELDS 7 /* type, key, version, uid, kind, api_version, raw */

static PyTypeObject *item_type; /* a NamedTuple: set once (HOT4) */

int shmc_items_ready(void)
{
    if (item_type != NULL)
        return 0;
    PyObject *module = PyImport_ImportModule("shmcache.protocol.items");
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, "Item");
    Py_XDECREF(module);
    if (found == NULL)
        return -1;
    if (!PyType_Check(found) || !PyType_IsSubtype((PyTypeObject *)found, &PyTuple_Type) ||
        ((PyTypeObject *)found)->tp_basicsize != PyTuple_Type.tp_basicsize) {
        PyErr_SetString(PyExc_TypeError, "shmcache.protocol.items.Item is not a named tuple");
        Py_DECREF(found);
        return -1;
    }
    item_type = (PyTypeObject *)found;
    return 0;
}

PyObject *shmc_item_new(struct shmc_items *items, PyObject *type,
                        const struct shmc_identity *identity, PyObject *raw)
{
    PyObject *fields[FIELDS] = {type};

    fields[6] = raw;
    if (type != NULL && raw != NULL)
        fields[1] = key_of(identity);
    if (fields[1] != NULL)
        fields[2] = shmc_piece_text(&identity->version);
    if (fields[2] != NULL)
        fields[3] = shmc_piece_text(&identity->uid);
    if (fields[3] != NULL)
        fields[4] = shmc_familiar_text(&items->kind, &identity->kind);
    if (fields[4] != NULL)
        fields[5] = shmc_familiar_text(&items->api_version, &identity->api_version);
    PyObject *item = fields[5] != NULL ? item_type->tp_alloc(item_type, FIELDS) : NULL;
    if (item == NULL) {
        for (int i = 0; i < FIELDS; i++)
            Py_XDECREF(fields[i]);
        return NULL;
    }
    for (int i = 0; i < FIELDS; i++)
        PyTuple_SET_ITEM(item, i, fields[i]);
    PyObject_GC_UnTrack(item); /* str and bytes make no cycles */
    return item;
}

PyObject *shmc_item_of(PyObject *type, PyObject *key, PyObject *version, PyObject *kind,
                       PyObject *raw)
{
    PyObject *const fields[FIELDS] = {type, key, version, Py_None, kind, Py_None, raw};
    PyObject *item = item_type->tp_alloc(item_type, FIELDS);

    if (item == NULL)
        return NULL;
    for (int i = 0; i < FIELDS; i++)
        PyTuple_SET_ITEM(item, i, Py_NewRef(fields[i]));
    PyObject_GC_UnTrack(item);
    return item;
}

int shmc_list_add(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return -1;
    const int result = PyList_Append(list, item);
    Py_DECREF(item);
    return result;
}
