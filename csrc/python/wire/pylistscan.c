/*
 * pylistscan.c - ItemScanner: the items of a list body that arrives in pieces, cut anywhere.
 *
 *   class ItemScanner:               # final
 *       def __init__(self, *, kind: str | None = None, api_version: str | None = None,
 *                    max_item: int = 64 << 20)
 *       def feed(self, data: bytes) -> list[Item]      # LISTED; ValueError
 *       def finish(self) -> bytes                      # the rest of the list; ValueError
 *
 * A machine over the members of the list: the array "items" is cut into items, each handed
 * out and forgotten; all else is the rest, whose "items" are []. `kind` and `api_version` are put
 * in front of items that lack them, as a watch has them. Text that is not a list fails the machine:
 * the items before the fault are handed out first.
 */
#include "python/wire/pywire.h"

enum state {
    OPEN,  /* before the list's bracket */
    FIRST, /* before its first member, or its end */
    NAME,
    IN_NAME,
    COLON,
    VALUE,
    IN_VALUE,   /* of any other member */
    NULL_ITEMS, /* "items" that is not an array: null, or wrong */
    AFTER,      /* a member */
    FIRST_ITEM,
    ITEM,
    IN_ITEM,
    AFTER_ITEM,
    CLOSED,
    FAILED,
};

enum form { STRING, NEST, BARE }; /* of the value that is open */

typedef struct {
    PyObject_HEAD
    enum state state;
    enum form form;
    bool slash;  /* in a string: the next byte is escaped */
    bool listed; /* "items" came */
    const char *error;
    struct shmc_skim skim;
    size_t name_start; /* of the member, in rest */
    struct shmc_held rest, item;
    size_t max_item;
    struct shmc_items items;
    struct shmc_front kind, api_version;
} pyitems;

static PyObject *str_listed;

static int fail(pyitems *scanner, const char *error)
{
    scanner->state = FAILED;
    scanner->error = error;
    return 0;
}

/* ---- items ------------------------------------------------------------------------------------ */

static PyObject *listed_item(pyitems *scanner, const uint8_t *raw_text, size_t length,
                             struct shmc_identity identity)
{
    PyObject *raw =
        shmc_fronts_put(&scanner->kind, &scanner->api_version, raw_text, length, &identity);

    return shmc_item_new(&scanner->items, Py_NewRef(str_listed), &identity, raw);
}

/* The text is not an object, or its members cannot be separated. */
static PyObject *nameless_item(pyitems *scanner, const uint8_t *raw, size_t length)
{
    static const struct shmc_identity nobody = {.kind = {NULL, 0}};

    return shmc_item_new(&scanner->items, Py_NewRef(str_listed), &nobody,
                         PyBytes_FromStringAndSize((const char *)raw, (Py_ssize_t)length));
}

/* A complete object, cut and named in one pass; returns its end, else NULL. */
static const uint8_t *whole_item(pyitems *scanner, PyObject *found, const uint8_t *at,
                                 const uint8_t *end, int *result)
{
    struct shmc_identity identity;
    const uint8_t *const after = *at == '{' ? shmc_identify(at, end, &identity) : NULL;

    if (after == NULL || (size_t)(after - at) > scanner->max_item)
        return NULL;
    scanner->state = AFTER_ITEM;
    *result = shmc_list_add(found, listed_item(scanner, at, (size_t)(after - at), identity));
    return after;
}

/* The open item ends after these bytes. */
static int end_item(pyitems *scanner, PyObject *found, const uint8_t *bytes, size_t length)
{
    if (scanner->item.length > 0) {
        if (shmc_held_add(&scanner->item, bytes, length) < 0)
            return -1;
        bytes = scanner->item.bytes;
        length = scanner->item.length;
    }
    scanner->state = AFTER_ITEM;
    if (length > scanner->max_item)
        return fail(scanner, "an item of the list is too long");
    int result = 0;
    if (whole_item(scanner, found, bytes, bytes + length, &result) == NULL)
        result = shmc_list_add(found, nameless_item(scanner, bytes, length));
    shmc_held_clear(&scanner->item);
    return result;
}

static int end_null(pyitems *scanner, const uint8_t *bytes, size_t length)
{
    if (shmc_held_add(&scanner->item, bytes, length) < 0)
        return -1;
    scanner->state = AFTER;
    if (scanner->item.length != 4 || memcmp(scanner->item.bytes, "null", 4) != 0)
        fail(scanner, "the items of the list are not an array");
    shmc_held_clear(&scanner->item);
    return shmc_held_add(&scanner->rest, (const uint8_t *)"[]", 2);
}

/* ---- values ------------------------------------------------------------------------------------ */

static bool is_bare(uint8_t c)
{
    const uint8_t letter = c | 0x20;

    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
           c == '.';
}

/* Whether a value begins here; its form is noted. The byte is read again, as its first. */
static bool begin_value(pyitems *scanner, uint8_t c)
{
    scanner->skim = (struct shmc_skim){0};
    scanner->slash = false;
    scanner->form = c == '"' ? STRING : c == '{' || c == '[' ? NEST : BARE;
    return scanner->form != BARE || is_bare(c);
}

/* How many bytes belong to the open value; *ended: the value ends after them. */
static size_t take_value(pyitems *scanner, const uint8_t *bytes, size_t length, bool *ended)
{
    size_t i = 0;

    *ended = false;
    if (scanner->form == NEST)
        return shmc_skim(&scanner->skim, bytes, length, ended);
    if (scanner->form == BARE) {
        while (i < length && is_bare(bytes[i]))
            i++;
        *ended = i < length;
        return i;
    }
    if (scanner->skim.depth == 0) { /* the opening quote */
        scanner->skim.depth = 1;
        i = 1;
    }
    for (; i < length && !*ended; i++) {
        *ended = bytes[i] == '"' && !scanner->slash;
        scanner->slash = bytes[i] == '\\' && !scanner->slash;
    }
    return i;
}

/* Continues the open value; returns how many bytes it took, or -1. */
static Py_ssize_t in_value(pyitems *scanner, PyObject *found, const uint8_t *bytes, size_t length)
{
    bool ended;
    int result = 0;

    if (scanner->state == IN_ITEM && scanner->item.length == 0 && scanner->skim.depth == 0) {
        const uint8_t *after = whole_item(scanner, found, bytes, bytes + length, &result);
        if (after != NULL)
            return result < 0 ? -1 : after - bytes;
    }
    const size_t taken = take_value(scanner, bytes, length, &ended);
    if (scanner->state == IN_ITEM && ended)
        result = end_item(scanner, found, bytes, taken);
    else if (scanner->state == NULL_ITEMS && ended)
        result = end_null(scanner, bytes, taken);
    else if (scanner->state == IN_ITEM || scanner->state == NULL_ITEMS)
        result = shmc_held_add(&scanner->item, bytes, taken);
    else
        result = shmc_held_add(&scanner->rest, bytes, taken);
    if (scanner->item.length > scanner->max_item)
        fail(scanner, "an item of the list is too long");
    if (ended && scanner->state == IN_NAME)
        scanner->state = COLON;
    else if (ended && scanner->state == IN_VALUE)
        scanner->state = AFTER;
    return result < 0 ? -1 : (Py_ssize_t)taken;
}

/* ---- the list's own bytes ------------------------------------------------------------------------ */

static bool is_items(const pyitems *scanner, size_t end)
{
    const struct shmc_piece name = {scanner->rest.bytes + scanner->name_start,
                                    end - scanner->name_start};

    return shmc_literal_is(&name, "items");
}

/* A member's value begins, after its name, the colon and white space in the rest. */
static int value_begins(pyitems *scanner, uint8_t c)
{
    unsigned what;
    const uint8_t *const rest = scanner->rest.bytes;
    const uint8_t *const quote =
        shmc_text_end(rest + scanner->name_start + 1, rest + scanner->rest.length, &what);

    if (!is_items(scanner, (size_t)(quote + 1 - rest))) {
        scanner->state = IN_VALUE;
        return begin_value(scanner, c) ? 0 : fail(scanner, "a member of the list has no value");
    }
    if (scanner->listed)
        return fail(scanner, "the list has items twice");
    scanner->listed = true;
    if (c == '[') {
        scanner->state = FIRST_ITEM;
        return shmc_held_add(&scanner->rest, (const uint8_t *)"[]", 2) < 0 ? -1 : 1;
    }
    scanner->state = NULL_ITEMS;
    return begin_value(scanner, c) && scanner->form == BARE
               ? 0
               : fail(scanner, "the items of the list are not an array");
}

/* A byte between items. 1: consumed, 0: the next state reads it again. */
static int between_items(pyitems *scanner, uint8_t c)
{
    if (c == ']' && scanner->state != ITEM) {
        scanner->state = AFTER;
        return 1;
    }
    if (scanner->state == AFTER_ITEM) {
        scanner->state = ITEM;
        return c == ',' ? 1 : fail(scanner, "items of the list without a comma between them");
    }
    scanner->state = IN_ITEM;
    return begin_value(scanner, c) ? 0 : fail(scanner, "an item of the list is not a value");
}

/* A byte of the rest that is not white space; as above, -1: an exception is set. */
static int of_rest(pyitems *scanner, uint8_t c)
{
    switch (scanner->state) {
    case OPEN:
        scanner->state = FIRST;
        return c == '{' ? 1 : fail(scanner, "a list must be an object");
    case COLON:
        scanner->state = VALUE;
        return c == ':' ? 1 : fail(scanner, "a member of the list without a colon");
    case VALUE:
        return value_begins(scanner, c);
    case CLOSED:
        return fail(scanner, "there is more data after the list");
    default:
        break;
    }
    if (c == '}' && scanner->state != NAME) {
        scanner->state = CLOSED;
        return scanner->listed ? 1 : fail(scanner, "the list has no items");
    }
    if (scanner->state == AFTER) {
        scanner->state = NAME;
        return c == ',' ? 1 : fail(scanner, "members of the list without a comma between them");
    }
    if (c != '"')
        return fail(scanner, "a member of the list without a name");
    scanner->state = IN_NAME;
    scanner->name_start = scanner->rest.length;
    begin_value(scanner, c);
    return 0;
}

/* Takes one byte, or as many as it can of an open value; returns how many, or -1. */
static Py_ssize_t step(pyitems *scanner, PyObject *found, const uint8_t *bytes, size_t length)
{
    const enum state before = scanner->state;
    const bool items = before == FIRST_ITEM || before == ITEM || before == AFTER_ITEM;
    int result = 1;

    if (before == IN_NAME || before == IN_VALUE || before == IN_ITEM || before == NULL_ITEMS)
        return in_value(scanner, found, bytes, length);
    if (items)
        return shmc_is_space(*bytes) ? 1 : between_items(scanner, *bytes);
    if (!shmc_is_space(*bytes))
        result = of_rest(scanner, *bytes);
    if (result == 1 && scanner->state != FIRST_ITEM && /* whose [ is there already */
        shmc_held_add(&scanner->rest, bytes, 1) < 0)
        return -1;
    return result;
}

/* ---- the type ---------------------------------------------------------------------------------- */

static PyObject *scanner_feed(PyObject *self, PyObject *data)
{
    pyitems *scanner = (pyitems *)self;
    PyObject *found = PyList_New(0);

    if (found == NULL)
        return NULL;
    if (!PyBytes_Check(data)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, not %.100s", Py_TYPE(data)->tp_name);
        Py_DECREF(found);
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t *const end = at + PyBytes_GET_SIZE(data);
    while (scanner->state != FAILED && at < end) {
        const Py_ssize_t taken = step(scanner, found, at, (size_t)(end - at));
        if (taken < 0) {
            Py_DECREF(found);
            return NULL;
        }
        at += taken;
        if (scanner->rest.length > SHMC_LIST_REST)
            fail(scanner, "the list has too much data besides its items");
    }
    if (scanner->state == FAILED && PyList_GET_SIZE(found) == 0) {
        PyErr_SetString(PyExc_ValueError, scanner->error);
        Py_CLEAR(found);
    }
    return found;
}

static PyObject *scanner_finish(PyObject *self, PyObject *unused)
{
    const pyitems *scanner = (const pyitems *)self;

    (void)unused;
    if (scanner->state == CLOSED)
        return PyBytes_FromStringAndSize((const char *)scanner->rest.bytes,
                                         (Py_ssize_t)scanner->rest.length);
    PyErr_SetString(PyExc_ValueError,
                    scanner->state == FAILED ? scanner->error : "the list ends too early");
    return NULL;
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"kind", "api_version", "max_item", NULL};
    PyObject *kind = NULL, *api_version = NULL;
    Py_ssize_t max_item = SHMC_ITEM_MAX;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOn:ItemScanner", names, &kind,
                                     &api_version, &max_item))
        return NULL;
    if (max_item < 1) {
        PyErr_SetString(PyExc_ValueError, "max_item must be positive");
        return NULL;
    }
    if (str_listed == NULL)
        str_listed = PyUnicode_InternFromString("LISTED");
    if (str_listed == NULL || shmc_items_ready() < 0)
        return NULL;
    pyitems *scanner = (pyitems *)type->tp_alloc(type, 0);
    if (scanner == NULL)
        return NULL;
    scanner->max_item = (size_t)max_item;
    if (shmc_front_set(&scanner->kind, "kind", kind) < 0 ||
        shmc_front_set(&scanner->api_version, "apiVersion", api_version) < 0)
        Py_CLEAR(scanner);
    return (PyObject *)scanner;
}

static void scanner_free(PyObject *self)
{
    pyitems *scanner = (pyitems *)self;

    shmc_held_free(&scanner->rest);
    shmc_held_free(&scanner->item);
    shmc_items_clear(&scanner->items);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef methods[] = {
    {"feed", scanner_feed, METH_O, PyDoc_STR("The items that are complete with `data`.")},
    {"finish", scanner_finish, METH_NOARGS,
     PyDoc_STR("The body with no items in its \"items\"; ValueError if it has not ended.")},
    {NULL, NULL, 0, NULL},
};

PyTypeObject shmc_pyitems_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.ItemScanner",
    .tp_doc = PyDoc_STR("The items of a list body that comes in pieces, cut anywhere."),
    .tp_basicsize = sizeof(pyitems),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = scanner_new,
    .tp_dealloc = scanner_free,
    .tp_methods = methods,
};
