/*
 * pygroups.c - Groups: how many objects have each value of a path, and sums over them.
 *
 *   fill(root)     all objects, once
 *   advance(root)  the deltas since: the old object leaves its group, the new one enters its own
 *
 * GROUPS1  After fill() or advance() returned true, the groups are those of the root.
 * GROUPS2  Sums are exact integers of billionths, so that any order of deltas gives the same sums.
 * GROUPS3  A delta whose words at all paths are the same before and after changes no group.
 * GROUPS4  Words are used before the root is settled; where settling fails the groups are spoilt
 *          until fill(). Positions are of one instance, and so are remembered members.
 *
 * A group's key is a letter and the text of its value, since words mean nothing in another state.
 */
#include "python/tables/pytables.h"

#include <structmember.h> /* after Python.h */

#define KEY_MAX 65536u /* bytes of a value; longer values share the group of their first bytes */
#define BATCH 64u

struct group {
    uint8_t *key;
    uint32_t length, hash;
    int64_t count;
    shmc_nano *sums;
    int64_t *found; /* quantities in each sum */
};

struct shmc_pygroups {
    PyObject_HEAD
    struct shmc_pypath by;
    size_t sum_count;
    struct shmc_pypath *sums;
    struct group *groups;
    uint32_t *slots; /* number + 1; 0: free */
    size_t count, capacity, empty;
    uint64_t instance, position, generation, invalid;
    bool valid;
    uint8_t *text; /* KEY_MAX + 1 bytes */
};

/* ---- the table -------------------------------------------------------------------------------- */

static void clear(struct shmc_pygroups *self)
{
    for (size_t i = 0; i < self->count; i++) {
        free(self->groups[i].key);
        free(self->groups[i].sums);
        free(self->groups[i].found);
    }
    if (self->slots != NULL)
        memset(self->slots, 0, self->capacity * 2 * sizeof *self->slots);
    self->count = self->empty = 0;
    self->invalid = 0;
    self->valid = false;
}

static uint32_t hash_of(const uint8_t *key, size_t length)
{
    uint64_t hash = length + UINT64_C(0x9e3779b97f4a7c15);

    for (; length >= 8; key += 8, length -= 8)
        hash = shmc_mix(hash ^ shmc_load8(key), UINT64_C(0xd6e8feb86659fd93));
    for (; length > 0; key++, length--)
        hash = shmc_mix(hash ^ *key, UINT64_C(0xd6e8feb86659fd93));
    return (uint32_t)(hash ^ hash >> 32);
}

static bool rehash(struct shmc_pygroups *self, size_t capacity)
{
    struct group *groups = realloc(self->groups, capacity * sizeof *groups);
    uint32_t *slots = calloc(capacity * 2, sizeof *slots);
    size_t kept = 0;

    if (groups != NULL)
        self->groups = groups;
    if (groups == NULL || slots == NULL || capacity > UINT32_MAX / 4) {
        free(slots);
        return false;
    }
    for (size_t i = 0; i < self->count; i++) { /* empty groups are forgotten */
        if (groups[i].count == 0) {
            free(groups[i].key);
            free(groups[i].sums);
            free(groups[i].found);
            continue;
        }
        groups[kept] = groups[i];
        size_t at = groups[kept].hash;
        while (slots[at & (capacity * 2 - 1)] != 0)
            at++;
        slots[at & (capacity * 2 - 1)] = (uint32_t)++kept;
    }
    free(self->slots);
    self->slots = slots;
    self->capacity = capacity;
    self->count = kept;
    self->empty = 0;
    return true;
}

static struct group *look_up(const struct shmc_pygroups *self, const uint8_t *key, size_t length,
                             uint32_t hash, size_t *at)
{
    const size_t mask = self->capacity * 2 - 1;

    for (*at = hash & mask; self->capacity != 0 && self->slots[*at] != 0; *at = (*at + 1) & mask) {
        struct group *group = &self->groups[self->slots[*at] - 1];
        if (group->hash == hash && group->length == length &&
            memcmp(group->key, key, length) == 0)
            return group;
    }
    return NULL;
}

static struct group *group_of(struct shmc_pygroups *self, const uint8_t *key, size_t length)
{
    const uint32_t hash = hash_of(key, length);
    size_t at;
    struct group *group = look_up(self, key, length, hash, &at);

    if (group != NULL)
        return group;
    if (self->count == self->capacity) {
        const size_t live = self->count - self->empty;
        const size_t least = self->capacity == 0 ? 64 : self->capacity;
        if (!rehash(self, live * 2 > least ? least * 2 : least))
            return NULL;
        look_up(self, key, length, hash, &at);
    }
    group = &self->groups[self->count];
    *group = (struct group){.length = (uint32_t)length, .hash = hash};
    group->key = malloc(length + 1);
    group->sums = calloc(self->sum_count + 1, sizeof *group->sums);
    group->found = calloc(self->sum_count + 1, sizeof *group->found);
    if (group->key == NULL || group->sums == NULL || group->found == NULL) {
        free(group->key);
        free(group->sums);
        free(group->found);
        return NULL;
    }
    memcpy(group->key, key, length);
    self->slots[at] = (uint32_t)++self->count;
    self->empty++;
    return group;
}

/* ---- objects ---------------------------------------------------------------------------------- */

/* 's' and a text, 'n' and a number, 't', 'f', '-' for nothing, '?' for a list or a map. */
static size_t key_of(struct shmc_pygroups *self, const struct shmc_span *span, shmc_word value)
{
    struct shmc_string string;
    char digits[SHMC_TEXT_MAX];
    size_t length;

    if (value == SHMC_NOTHING || value == SHMC_NULL) {
        self->text[0] = '-';
        return 1;
    }
    if (value == SHMC_TRUE || value == SHMC_FALSE) {
        self->text[0] = value == SHMC_TRUE ? 't' : 'f';
        return 1;
    }
    if (shmc_string_open(span, value, &string)) {
        length = string.length < KEY_MAX ? string.length : KEY_MAX;
        self->text[0] = 's';
        shmc_string_copy(span, &string, 0, (uint32_t)length, self->text + 1);
        return length + 1;
    }
    length = shmc_number_text(span, value, digits);
    self->text[0] = length == 0 ? '?' : 'n';
    memcpy(self->text + 1, digits, length);
    return length + 1;
}

/* Enters (or, by -1, leaves) the group of an object. */
static bool count_in(struct shmc_pygroups *self, const struct shmc_span *span, shmc_word object,
                     int by)
{
    const shmc_word head = shmc_pypath_head(&self->by, span, object);
    const size_t length = key_of(self, span, shmc_pypath_first(&self->by, span, head));
    struct group *group = group_of(self, self->text, length);
    shmc_nano sum;

    if (group == NULL)
        return false;
    self->empty -= group->count == 0;
    group->count += by;
    self->empty += group->count == 0;
    for (size_t i = 0; i < self->sum_count; i++) {
        uint64_t invalid = 0;
        const shmc_word where = shmc_pypath_head(&self->sums[i], span, object);
        const uint64_t found = shmc_pypath_sum(&self->sums[i], span, where, &sum, &invalid);
        group->found[i] += by * (int64_t)found;
        group->sums[i] += by * sum;
        self->invalid += (uint64_t)by * invalid;
    }
    return true;
}

/* GROUPS3 */
static bool same(struct shmc_pygroups *self, const struct shmc_span *span, shmc_word old,
                 shmc_word new)
{
    bool all = shmc_pypath_head(&self->by, span, old) == shmc_pypath_head(&self->by, span, new);

    for (size_t i = 0; all && i < self->sum_count; i++)
        all = shmc_pypath_head(&self->sums[i], span, old) ==
              shmc_pypath_head(&self->sums[i], span, new);
    return all;
}

static void forget(struct shmc_pygroups *self)
{
    self->valid = false;
    shmc_pypath_forget(&self->by);
    for (size_t i = 0; i < self->sum_count; i++)
        shmc_pypath_forget(&self->sums[i]);
}

/* GROUPS4 */
static int settle(struct shmc_pygroups *self, const shmc_pyroot *root, enum shmc_status status)
{
    if (shmc_pyroot_settle(root, status, "counting groups") == 0)
        return 0;
    forget(self);
    return -1;
}

/* ---- fill and advance ------------------------------------------------------------------------- */

static int walk(struct shmc_pygroups *self, shmc_pyroot *root, const struct shmc_pyrecord *record,
                const struct shmc_pybounds *bounds)
{
    struct shmc_pyscan scan;
    struct shmc_entry entry;
    int more = shmc_pyscan_open(&scan, root, record, bounds) < 0 ? -1 : 1;

    while (more > 0 && (more = shmc_pyscan_step(&scan, &entry)) > 0) {
        if (!count_in(self, shmc_pyroot_span(root), entry.words[1], 1)) {
            PyErr_NoMemory();
            more = -1;
        }
    }
    shmc_pyscan_close(&scan);
    return more < 0 ? -1 : settle(self, root, SHMC_OK);
}

/* fill(root, id, **bounds of a scan) */
static PyObject *fill(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct shmc_pygroups *self = (struct shmc_pygroups *)object;
    struct shmc_pyrecord record;
    struct shmc_pybounds bounds;
    int result = -1;
    uint64_t id;

    if (PyTuple_GET_SIZE(args) != 2 ||
        !PyObject_TypeCheck(PyTuple_GET_ITEM(args, 0), &shmc_pyroot_type)) {
        PyErr_SetString(PyExc_TypeError, "fill() takes a Root and the resource's id");
        return NULL;
    }
    if (!shmc_pyuint64(PyTuple_GET_ITEM(args, 1), &id))
        return NULL;
    shmc_pyroot *root = (shmc_pyroot *)PyTuple_GET_ITEM(args, 0);
    PyObject *rest = PyTuple_New(0);
    shmc_pybounds_init(&bounds);
    clear(self);
    forget(self); /* it may be another instance's */
    if (rest != NULL && shmc_pyscan_arguments(rest, kwargs, &bounds) == 0 &&
        shmc_pyrecord_load(root, id, &record) == 0)
        result = walk(self, root, &record, &bounds);
    shmc_pybounds_free(&bounds);
    Py_XDECREF(rest);
    if (result < 0)
        return NULL;
    self->instance = root->instance;
    self->position = root->at.head;
    self->generation = root->at.generation;
    self->valid = true;
    Py_RETURN_NONE;
}

/* The words that pass a selection; SHMC_NOTHING for those that do not. */
static shmc_word kept(PyObject *where, const shmc_pyroot *root, shmc_word word)
{
    struct shmc_entry entry = {.words = {SHMC_NOTHING, word}};

    if (word == SHMC_NOTHING || where == Py_None)
        return word;
    return shmc_pywhere_keep(where, root, &entry, 1, 1) == 1 ? word : SHMC_NOTHING;
}

static bool in_prefix(const struct shmc_span *span, shmc_word key, const uint8_t *prefix,
                      size_t length)
{
    struct shmc_string string;

    return length == 0 || (shmc_string_open(span, key, &string) && string.length >= length &&
                           shmc_string_compare(span, &string, 0, (uint32_t)length, prefix) == 0);
}

struct following {
    shmc_pyroot *root;
    uint64_t id;
    PyObject *where;
    const uint8_t *prefix;
    size_t prefix_length;
};

/* 1: continue; 0: at the head; -1: exception; -2: the ring does not lead on. */
static int next_batch(struct shmc_pygroups *self, const struct following *way)
{
    const struct shmc_span *span = shmc_pyroot_span(way->root);
    struct shmc_delta deltas[BATCH];
    size_t count = 0;
    bool relisted = false, done = true;

    const enum shmc_status status = shmc_ring_take(way->root->reader->reader, &way->root->at,
                                                   self->position, deltas, BATCH, &count);
    if (status == SHMC_LAPPED)
        return settle(self, way->root, SHMC_EMPTY) < 0 ? -1 : -2;
    if (status != SHMC_OK)
        return settle(self, way->root, status) < 0 ? -1 : 0;
    for (size_t i = 0; done && i < count; i++) {
        const struct shmc_delta *delta = &deltas[i];
        if (delta->resource != way->id)
            continue;
        relisted = relisted || delta->kind == SHMC_RELIST;
        if (relisted || !in_prefix(span, delta->key, way->prefix, way->prefix_length))
            continue;
        const shmc_word old = kept(way->where, way->root, delta->old_value);
        const shmc_word new = kept(way->where, way->root, delta->new_value);
        if (old != SHMC_NOTHING && new != SHMC_NOTHING && same(self, span, old, new))
            continue;
        done = (old == SHMC_NOTHING || count_in(self, span, old, -1)) &&
               (new == SHMC_NOTHING || count_in(self, span, new, 1));
    }
    if (!done) {
        forget(self);
        PyErr_NoMemory();
        return -1;
    }
    if (settle(self, way->root, SHMC_OK) < 0)
        return -1;
    self->position += count;
    return relisted ? -2 : 1;
}

/* advance(root, id, where, prefix): whether the deltas led to this root; else fill() */
static PyObject *advance(PyObject *object, PyObject *args)
{
    struct shmc_pygroups *self = (struct shmc_pygroups *)object;
    struct following way;
    Py_ssize_t length = 0;
    int more = 1;

    if (!PyArg_ParseTuple(args, "O!O&Oz#:advance", &shmc_pyroot_type, &way.root, shmc_pyuint64,
                          &way.id, &way.where, &way.prefix, &length))
        return NULL;
    if (way.where != Py_None && !PyObject_TypeCheck(way.where, &shmc_pywhere_type)) {
        PyErr_SetString(PyExc_TypeError, "where must be a Where or None");
        return NULL;
    }
    way.prefix_length = (size_t)length;
    if (!self->valid || self->instance != way.root->instance)
        Py_RETURN_FALSE;
    while (more > 0)
        more = next_batch(self, &way);
    if (more == -2) {
        forget(self);
        Py_RETURN_FALSE;
    }
    if (more < 0)
        return NULL;
    self->generation = way.root->at.generation;
    Py_RETURN_TRUE;
}

/* ---- results ---------------------------------------------------------------------------------- */

static PyObject *value_of(const struct group *group)
{
    const char *const text = (const char *)group->key + 1;
    PyObject *bytes, *value;

    switch (group->key[0]) {
    case 's':
        return PyUnicode_DecodeUTF8(text, (Py_ssize_t)group->length - 1, "replace");
    case 't':
        Py_RETURN_TRUE;
    case 'f':
        Py_RETURN_FALSE;
    case 'n':
        bytes = PyUnicode_FromStringAndSize(text, (Py_ssize_t)group->length - 1);
        value = bytes == NULL ? NULL : PyLong_FromUnicodeObject(bytes, 10);
        if (value == NULL && bytes != NULL) {
            PyErr_Clear();
            value = PyFloat_FromString(bytes);
        }
        Py_XDECREF(bytes);
        return value;
    default:
        Py_RETURN_NONE;
    }
}

/* (count, (billionths, quantities), ...) */
static PyObject *numbers_of(const struct shmc_pygroups *self, const struct group *group)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)self->sum_count + 1);
    PyObject *count = tuple == NULL ? NULL : PyLong_FromLongLong(group->count);

    if (count == NULL) {
        Py_XDECREF(tuple);
        return NULL;
    }
    PyTuple_SET_ITEM(tuple, 0, count);
    for (size_t i = 0; i < self->sum_count; i++) {
        PyObject *sum = shmc_nano_object(group->sums[i]);
        if (sum == NULL) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i + 1, sum);
    }
    return tuple;
}

static PyObject *items(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const struct shmc_pygroups *self = (struct shmc_pygroups *)object;
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list != NULL && i < self->count; i++) {
        if (self->groups[i].count == 0)
            continue;
        PyObject *value = value_of(&self->groups[i]);
        PyObject *numbers = value == NULL ? NULL : numbers_of(self, &self->groups[i]);
        PyObject *item = numbers == NULL ? NULL : PyTuple_Pack(2, value, numbers);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
        Py_XDECREF(numbers);
        Py_XDECREF(item);
    }
    return list;
}

/* get(value): the numbers of the group of a str, or of None; None without objects */
static PyObject *get(PyObject *object, PyObject *value)
{
    struct shmc_pygroups *self = (struct shmc_pygroups *)object;
    Py_ssize_t length = 0;
    size_t at;

    self->text[0] = '-';
    if (value != Py_None) {
        const char *const text = PyUnicode_AsUTF8AndSize(value, &length);
        if (text == NULL)
            return NULL;
        length = length < (Py_ssize_t)KEY_MAX ? length : (Py_ssize_t)KEY_MAX;
        self->text[0] = 's';
        memcpy(self->text + 1, text, (size_t)length);
    }
    const uint32_t hash = hash_of(self->text, (size_t)length + 1);
    const struct group *group = look_up(self, self->text, (size_t)length + 1, hash, &at);
    if (group == NULL || group->count == 0)
        Py_RETURN_NONE;
    return numbers_of(self, group);
}

/* ---- the type --------------------------------------------------------------------------------- */

static void dealloc(PyObject *object)
{
    struct shmc_pygroups *self = (struct shmc_pygroups *)object;

    clear(self);
    free(self->groups);
    free(self->slots);
    PyMem_Free(self->text);
    shmc_pypath_free(&self->by);
    for (size_t i = 0; i < self->sum_count; i++)
        shmc_pypath_free(&self->sums[i]);
    PyMem_Free(self->sums);
    Py_TYPE(object)->tp_free(object);
}

/* Groups(path, (path, ...)) */
static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"by", "sums", NULL};
    PyObject *by, *sums;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!:Groups", names, &PyTuple_Type, &by,
                                     &PyTuple_Type, &sums))
        return NULL;
    struct shmc_pygroups *self = (struct shmc_pygroups *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    const size_t count = (size_t)PyTuple_GET_SIZE(sums);
    self->text = PyMem_Malloc(KEY_MAX + 1);
    self->sums = PyMem_Calloc(count + 1, sizeof *self->sums);
    self->sum_count = self->sums == NULL ? 0 : count;
    int result = shmc_pypath_init(&self->by, by);
    for (size_t i = 0; result == 0 && i < self->sum_count; i++)
        result = shmc_pypath_init(&self->sums[i], PyTuple_GET_ITEM(sums, (Py_ssize_t)i));
    if (result == 0 && (self->text == NULL || self->sums == NULL)) {
        PyErr_NoMemory();
        result = -1;
    }
    if (result < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"fill", (PyCFunction)(void (*)(void))fill, METH_VARARGS | METH_KEYWORDS,
     "fill(root, id, **bounds): counts all objects."},
    {"advance", advance, METH_VARARGS,
     "advance(root, id, where, prefix): follows the deltas; false if they do not lead there."},
    {"items", items, METH_NOARGS, "[(value, (count, billionths, ...)), ...]"},
    {"get", get, METH_O, "get(value): (count, billionths, ...), or None."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"generation", T_ULONGLONG, offsetof(struct shmc_pygroups, generation), READONLY, NULL},
    {"invalid", T_ULONGLONG, offsetof(struct shmc_pygroups, invalid), READONLY, NULL},
    {"valid", T_BOOL, offsetof(struct shmc_pygroups, valid), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject shmc_pygroups_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Groups",
    .tp_doc = PyDoc_STR("Counts and sums of objects by a value."),
    .tp_basicsize = sizeof(struct shmc_pygroups),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new,
    .tp_dealloc = dealloc,
    .tp_methods = methods,
    .tp_members = members,
};
