/*
 * pydelivered.c - Delivered: the objects of one resource that a process's handlers know.
 *
 *   ring, or a whole root --> advance() --> lives --> difference(since) --> the events that one
 *                                                                          registration still lacks
 *
 * Needed where deltas were lost: the ring can then no longer show the changes, and the objects that
 * a handler knows may be gone. So each object is remembered by key, uid and version, once for all
 * registrations, whatever position each of them has.
 *
 * Positions are numbers of deltas plus an offset, so that they also rise from one DATA segment to
 * the next. The map shows the state at `position`; a registration has received everything before
 * its own position p <= position, and nothing from there on.
 *
 * A life is a key's time with one uid: from the delta that added it to the one that ended it.
 *
 *        born                changed                 died
 *   ------o-------------------o-----------------------o------------>  positions
 *                    p: added sent, change due             p: added and deleted sent
 *
 * Invariants
 *   DELIVERED1  alive lives are exactly the objects of the resource at `position`.
 *   DELIVERED2  a registration at p, without a bit, knows the life if born < p, and p <= died if it
 *       ended. It knows the latest version if changed < p.
 *   DELIVERED3  a change that only a whole root showed happened at some point after the old
 *       position: it is stamped with the old position, which no registration has passed.
 *   DELIVERED4  a life that ended is kept until trim() finds that no registration can need it.
 *   DELIVERED5  a set bit records that the registration that owns it received the life and not its
 *       end: for those that select by content, for which DELIVERED2 gives no answer.
 *   DELIVERED6  an interrupted advance() leaves `whole` false; the next one reads the whole
 *       root.
 *
 * Nothing here runs Python code between two accesses to the map, so the GIL is its lock.
 */
#include "python/deltas/pydelivered.h"

#include <structmember.h> /* after Python.h */

#define BITS 16u /* of a life */

/* ---- differences ---------------------------------------------------------------------------- */

struct question {
    uint64_t since;
    int bit; /* -1: no bit */
    uint64_t first, last; /* of the hashes of uids */
    struct shmc_text after, upto;
    bool has_upto;
};

static uint64_t shard_of(struct shmc_text uid)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* as shmc_shard_hash() */

    for (size_t i = 0; i < uid.length; i++)
        hash = (hash ^ uid.at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static int order(struct shmc_text a, struct shmc_text b)
{
    const size_t common = a.length < b.length ? a.length : b.length;
    const int result = common == 0 ? 0 : memcmp(a.at, b.at, common);

    return result != 0 ? result : (a.length > b.length) - (a.length < b.length);
}

static bool knows(const struct shmc_life *life, const struct question *question)
{
    if (question->bit >= 0)
        return shmc_bits_of(life) >> question->bit & 1;
    return shmc_stamp_load(life->born) < question->since &&
           (life->flags & SHMC_ALIVE || question->since <= shmc_stamp_load(life->changed));
}

/* Whether the registration may still lack an event of this life. */
static bool concerns(const struct shmc_life *life, const struct question *question)
{
    if (life->flags & SHMC_ALIVE) {
        if (shmc_stamp_load(life->changed) < question->since)
            return false;
    } else if (!knows(life, question)) {
        return false;
    }
    if (question->after.at != NULL && order(shmc_key_of(life), question->after) <= 0)
        return false;
    if (question->has_upto && order(shmc_key_of(life), question->upto) > 0)
        return false;
    if (question->first == 0 && question->last == UINT64_MAX)
        return true;
    uint8_t buffer[SHMC_UUID_TEXT];
    const uint64_t shard = shard_of(shmc_uid_of(life, buffer));
    return shard >= question->first && shard <= question->last;
}

static PyObject *text_or_none(struct shmc_text text)
{
    if (text.length == 0)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)text.length, "replace");
}

/* (key, alive, known, uid, version): sorted, the end of a life comes before the next life. */
static PyObject *describe_life(const struct shmc_life *life, bool known)
{
    uint8_t uid[SHMC_UUID_TEXT], version[24];
    const struct shmc_text key = shmc_key_of(life);
    PyObject *parts[3] = {
        PyUnicode_DecodeUTF8((const char *)key.at, (Py_ssize_t)key.length, "strict"),
        text_or_none(shmc_uid_of(life, uid)),
        text_or_none(shmc_version_of(life, version)),
    };

    if (parts[0] == NULL || parts[1] == NULL || parts[2] == NULL) {
        for (unsigned i = 0; i < 3; i++)
            Py_XDECREF(parts[i]);
        return NULL;
    }
    return Py_BuildValue("(NNNNN)", parts[0], PyBool_FromLong(life->flags & SHMC_ALIVE),
                         PyBool_FromLong(known), parts[1], parts[2]);
}

/* The collector could run any code, and that might change the map during the walk. */
static PyObject *difference(const struct shmc_lives *lives, const struct question *question)
{
    PyObject *list = PyList_New(0);
    const uint64_t slots = lives->mask == 0 ? 0 : lives->mask + 1;

    const int collecting = PyGC_Disable();
    for (uint64_t i = 0; list != NULL && i < slots; i++) {
        const struct shmc_life *life =
            lives->table[i] == 0 ? NULL : shmc_life_at(lives, lives->table[i]);
        if (life == NULL || !concerns(life, question))
            continue;
        PyObject *described = describe_life(life, knows(life, question));
        if (described == NULL || PyList_Append(list, described) < 0)
            Py_CLEAR(list);
        Py_XDECREF(described);
    }
    if (collecting)
        PyGC_Enable();
    if (list != NULL && PyList_Sort(list) < 0)
        Py_CLEAR(list);
    return list;
}

static int parse_question(PyObject *args, PyObject *kwargs, struct question *question)
{
    static char *names[] = {"since", "bit", "first", "last", "after", "upto", NULL};
    PyObject *after = Py_None, *upto = Py_None;

    memset(question, 0, sizeof *question);
    question->bit = -1;
    question->last = UINT64_MAX;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|iO&O&OO:difference", names, shmc_pyuint64,
                                     &question->since, &question->bit, shmc_pyuint64,
                                     &question->first, shmc_pyuint64, &question->last, &after,
                                     &upto))
        return -1;
    if (question->bit >= (int)BITS) {
        PyErr_Format(PyExc_ValueError, "bits are numbered below %u", BITS);
        return -1;
    }
    question->has_upto = upto != Py_None;
    if (shmc_pykey_or_none(after, &question->after.at, &question->after.length) < 0)
        return -1;
    return shmc_pykey_or_none(upto, &question->upto.at, &question->upto.length);
}

static PyObject *delivered_difference(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct question question;

    if (parse_question(args, kwargs, &question) < 0)
        return NULL;
    return difference(&((struct shmc_delivered *)object)->lives, &question);
}

/* ---- bits ----------------------------------------------------------------------------------- */

static int parse_bit(PyObject *args, struct shmc_text *key, unsigned *bit, uint64_t *position)
{
    PyObject *name;

    *position = 0;
    if (!PyArg_ParseTuple(args, "O!I|O&", &PyUnicode_Type, &name, bit, shmc_pyuint64, position))
        return -1;
    if (*bit >= BITS) {
        PyErr_Format(PyExc_ValueError, "bits are numbered below %u", BITS);
        return -1;
    }
    return shmc_pykey_or_none(name, &key->at, &key->length);
}

/* set_bit(key, bit, position): the registration at this position received the key's life
 * (DELIVERED5). clear_bit(key, bit) is the same at position 0, before which nothing was delivered. */
static PyObject *delivered_set_bit(PyObject *object, PyObject *args)
{
    const struct shmc_lives *lives = &((struct shmc_delivered *)object)->lives;
    uint64_t position, slot;
    struct shmc_text key;
    uint32_t handle;
    unsigned bit;

    if (parse_bit(args, &key, &bit, &position) < 0)
        return NULL;
    slot = lives->mask == 0 ? 0 : shmc_life_slot(lives, key);
    for (; (handle = shmc_next_life(lives, key, &slot)) != 0; slot = (slot + 1) & lives->mask) {
        struct shmc_life *life = shmc_life_at(lives, handle);
        if (shmc_stamp_load(life->born) < position &&
            (life->flags & SHMC_ALIVE || position <= shmc_stamp_load(life->changed)))
            shmc_set_bits(life, shmc_bits_of(life) | 1u << bit);
        else
            shmc_set_bits(life, shmc_bits_of(life) & ~(1u << bit));
    }
    Py_RETURN_NONE;
}

static PyObject *delivered_free_bit(PyObject *object, PyObject *argument)
{
    const struct shmc_lives *lives = &((struct shmc_delivered *)object)->lives;
    uint64_t bit;

    if (!shmc_pyuint64(argument, &bit))
        return NULL;
    if (bit >= BITS)
        return PyErr_Format(PyExc_ValueError, "bits are numbered below %u", BITS);
    for (uint64_t i = 0; lives->mask != 0 && i <= lives->mask; i++) {
        if (lives->table[i] == 0)
            continue;
        struct shmc_life *life = shmc_life_at(lives, lives->table[i]);
        shmc_set_bits(life, shmc_bits_of(life) & ~(1u << bit));
    }
    Py_RETURN_NONE;
}

/* ---- forgetting ----------------------------------------------------------------------------- */

/* A registration at p that proceeds by deltas up to `end` whatever happens to the window. */
struct span_of {
    uint64_t position, end;
};

/* It knows the life, or may still learn of it, and has not received its end (DELIVERED4). */
static bool needed(const struct shmc_life *life, const struct span_of *spans, size_t count,
                   uint64_t tail)
{
    const uint64_t born = shmc_stamp_load(life->born), died = shmc_stamp_load(life->changed);

    for (size_t i = 0; i < count; i++) {
        if (spans[i].position <= died && (born < spans[i].end || spans[i].end >= tail))
            return true;
    }
    return false;
}

static void trim(struct shmc_lives *lives, const struct span_of *spans, size_t count,
                 uint64_t tail)
{
    const uint64_t slots = lives->mask == 0 ? 0 : lives->mask + 1;

    for (uint64_t i = 0; i < slots; i++) {
        while (lives->table[i] != 0) { /* a drop may move another life here */
            const struct shmc_life *life = shmc_life_at(lives, lives->table[i]);
            if (life->flags & SHMC_ALIVE || needed(life, spans, count, tail))
                break;
            shmc_life_drop(lives, i);
        }
    }
}

/* trim([(position, end)...], tail): forgets ended lives that no registration needs. */
static PyObject *delivered_trim(PyObject *object, PyObject *args)
{
    PyObject *list;
    uint64_t tail;

    if (!PyArg_ParseTuple(args, "O!O&:trim", &PyList_Type, &list, shmc_pyuint64, &tail))
        return NULL;
    PyObject *given = PyList_AsTuple(list); /* an __index__ may change the list */
    if (given == NULL)
        return NULL;
    const size_t count = (size_t)PyTuple_GET_SIZE(given);
    struct span_of *spans = PyMem_Calloc(count + 1, sizeof *spans);
    bool whole = spans != NULL;
    for (size_t i = 0; whole && i < count; i++)
        whole = PyArg_ParseTuple(PyTuple_GET_ITEM(given, (Py_ssize_t)i), "O&O&", shmc_pyuint64,
                                 &spans[i].position, shmc_pyuint64, &spans[i].end) != 0;
    if (whole)
        trim(&((struct shmc_delivered *)object)->lives, spans, count, tail);
    PyMem_Free(spans);
    Py_DECREF(given);
    if (!whole)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyObject *delivered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Delivered", names))
        return NULL;
    struct shmc_delivered *self = (struct shmc_delivered *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->resource = UINT64_MAX;
    self->lives.units = 1;
    self->lives.secret = (uint64_t)PyHash_GetFuncDef()->hash(&self, sizeof self);
    return (PyObject *)self;
}

static void delivered_dealloc(PyObject *object)
{
    struct shmc_delivered *self = (struct shmc_delivered *)object;

    PyMem_RawFree(self->lives.pool);
    PyMem_RawFree(self->lives.table);
    Py_TYPE(object)->tp_free(object);
}

static Py_ssize_t delivered_length(PyObject *object)
{
    return (Py_ssize_t)((struct shmc_delivered *)object)->lives.alive;
}

static PyObject *delivered_bytes(PyObject *object, void *Py_UNUSED(unused))
{
    const struct shmc_delivered *self = (struct shmc_delivered *)object;
    const uint64_t slots = self->lives.mask == 0 ? 0 : self->lives.mask + 1;

    return PyLong_FromUnsignedLongLong((uint64_t)self->lives.capacity * SHMC_LIFE_UNIT +
                                       slots * sizeof *self->lives.table);
}

static PyMethodDef delivered_methods[] = {
    {"advance", shmc_delivered_advance, METH_VARARGS,
     "advance(root, id): to the state of this root, along the ring if it leads there."},
    {"follow", (PyCFunction)(void (*)(void))shmc_delivered_follow, METH_FASTCALL,
     "follow(reader, position, who, max, ended): advances to the latest root and takes deltas from\n"
     "a position on: (root, deltas, offset, the position after them). None: one call is not\n"
     "enough, or too many ended lives are kept."},
    {"difference", (PyCFunction)(void (*)(void))delivered_difference, METH_VARARGS | METH_KEYWORDS,
     "difference(since, bit=-1, first=0, last=2**64-1, after=None, upto=None): a sorted list of\n"
     "(key, alive, known, uid, version) of the lives that a registration at `since` may lack."},
    {"set_bit", delivered_set_bit, METH_VARARGS,
     "set_bit(key, bit, position): the bit's registration, at this position, received the key's "
     "life."},
    {"clear_bit", delivered_set_bit, METH_VARARGS, "clear_bit(key, bit): clears it again."},
    {"free_bit", delivered_free_bit, METH_O, "free_bit(bit): clears the bit of all lives."},
    {"trim", delivered_trim, METH_VARARGS,
     "trim(spans, tail): forgets ended lives that no registration at (position, end) needs."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef delivered_members[] = {
    {"position", T_ULONGLONG, offsetof(struct shmc_delivered, position), READONLY,
     "The position of the map: a delta's number plus offset."},
    {"offset", T_ULONGLONG, offsetof(struct shmc_delivered, offset), READONLY, NULL},
    {"instance", T_ULONGLONG, offsetof(struct shmc_delivered, instance), READONLY, NULL},
    {"ended", T_ULONGLONG, offsetof(struct shmc_delivered, lives.ended), READONLY,
     "Ended lives kept."},
    {"scans", T_ULONGLONG, offsetof(struct shmc_delivered, scans), READONLY,
     "Whole roots read."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef delivered_properties[] = {
    {"bytes", delivered_bytes, NULL, "Memory taken.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods delivered_sequence = {.sq_length = delivered_length};

PyTypeObject shmc_pydelivered_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Delivered",
    .tp_doc = PyDoc_STR("Key, uid and version of each object delivered to handlers."),
    .tp_basicsize = sizeof(struct shmc_delivered),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = delivered_new,
    .tp_dealloc = delivered_dealloc,
    .tp_as_sequence = &delivered_sequence,
    .tp_methods = delivered_methods,
    .tp_members = delivered_members,
    .tp_getset = delivered_properties,
};
