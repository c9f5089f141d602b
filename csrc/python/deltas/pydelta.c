/*
 * pydelta.c - Delta: one change, as recorded in the ring.
 *
 * A Delta is its slot's words and its root; key, version and objects are made on first access,
 * and kept. So a consumer that looks only at kind and resource pays for a copy of 80 bytes. The
 * root holds the window: everything that a Delta names stays whole as long as the Delta lives
 * (or until its pin is revoked: StaleObjectError).
 *
 * Deltas come from a free list and are not tracked by the collector: they lead to views, texts
 * and a Root, none of which leads back to a Delta.
 */
#include "python/read/pyread.h"

#include <structmember.h> /* after Python.h */

#define KINDS 5u

static PyObject *kind_names[KINDS]; /* by SHMC_ADDED ...; 0 is not used */

#define FREE_MAX 1024u
static struct shmc_pydelta *free_deltas; /* linked through root */
static size_t free_count;

/* ---- birth and death ------------------------------------------------------------------------ */

PyObject *shmc_pydelta_new(shmc_pyroot *root, const struct shmc_delta *at)
{
    struct shmc_pydelta *self = free_deltas;

    if (self != NULL) {
        free_deltas = (struct shmc_pydelta *)self->root;
        free_count--;
        PyObject_Init((PyObject *)self, &shmc_pydelta_type);
    } else {
        self = PyObject_New(struct shmc_pydelta, &shmc_pydelta_type);
        if (self == NULL)
            return NULL;
    }
    self->root = (shmc_pyroot *)Py_NewRef(root);
    self->at = *at;
    memset(self->made, 0, sizeof self->made);
    return (PyObject *)self;
}

static void delta_dealloc(PyObject *object)
{
    struct shmc_pydelta *self = (struct shmc_pydelta *)object;

    for (unsigned i = 0; i < SHMC_DELTA_PARTS; i++)
        Py_XDECREF(self->made[i]);
    shmc_pyroot *root = self->root;
    if (free_count < FREE_MAX) {
        self->root = (shmc_pyroot *)free_deltas;
        free_deltas = self;
        free_count++;
    } else {
        PyObject_Free(self);
    }
    shmc_pyroot_drop(root); /* last: it may run on_idle */
}

/* ---- parts, made on first access ------------------------------------------------------------ */

enum part { KEY, VERSION, OLD, NEW };

static PyObject *make(const struct shmc_pydelta *self, enum part part)
{
    switch (part) {
    case KEY:
        return shmc_pystring_or_none(self->root, self->at.key);
    case VERSION:
        return shmc_pyversion(self->root, self->at.version);
    case OLD:
    case NEW:
        break;
    }
    const shmc_word word = part == OLD ? self->at.old_value : self->at.new_value;
    return word == SHMC_NOTHING ? Py_NewRef(Py_None) : shmc_pyobject(self->root, word);
}

static PyObject *delta_part(PyObject *object, enum part part)
{
    struct shmc_pydelta *self = (struct shmc_pydelta *)object;

    if (self->made[part] == NULL)
        self->made[part] = make(self, part);
    return Py_XNewRef(self->made[part]);
}

static PyObject *delta_key(PyObject *self, void *Py_UNUSED(unused))
{
    return delta_part(self, KEY);
}

static PyObject *delta_version(PyObject *self, void *Py_UNUSED(unused))
{
    return delta_part(self, VERSION);
}

static PyObject *delta_old(PyObject *self, void *Py_UNUSED(unused))
{
    return delta_part(self, OLD);
}

static PyObject *delta_new(PyObject *self, void *Py_UNUSED(unused))
{
    return delta_part(self, NEW);
}

static PyObject *delta_root(PyObject *self, void *Py_UNUSED(unused))
{
    return shmc_pyroot_show(((struct shmc_pydelta *)self)->root);
}

static PyObject *delta_kind(PyObject *self, void *Py_UNUSED(unused))
{
    return Py_NewRef(kind_names[((struct shmc_pydelta *)self)->at.kind]);
}

static PyObject *delta_unknown(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((struct shmc_pydelta *)self)->at.flags & SHMC_FLAG_UNKNOWN);
}

static PyObject *delta_recreated(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((struct shmc_pydelta *)self)->at.flags & SHMC_FLAG_RECREATED);
}

/* ---- as registrations receive it ------------------------------------------------------------ */

/* The numbers of shmcache.handlers.feed. */
enum event { ADD, UPDATE, DELETE, RECREATE, LAPSE };

static enum event event_of(const struct shmc_delta *at)
{
    switch (at->kind) {
    case SHMC_ADDED:
        return ADD;
    case SHMC_MODIFIED:
        return at->flags & SHMC_FLAG_RECREATED ? RECREATE : UPDATE;
    case SHMC_DELETED:
        return DELETE;
    default:
        return LAPSE;
    }
}

bool shmc_pydelta_usual(const struct shmc_pydelta *self)
{
    return event_of(&self->at) <= DELETE;
}

static PyObject *delta_event(PyObject *self, PyObject *whole)
{
    const struct shmc_delta *at = &((struct shmc_pydelta *)self)->at;
    const enum event what = event_of(at);
    const bool flag = what == ADD      ? whole == Py_False
                      : what == DELETE ? (at->flags & SHMC_FLAG_UNKNOWN) != 0
                                       : false;
    PyObject *old = what == ADD ? Py_NewRef(Py_None) : delta_part(self, OLD);
    PyObject *new = old == NULL      ? NULL
                    : what == DELETE ? Py_NewRef(Py_None)
                                     : delta_part(self, NEW);
    PyObject *parts[] = {PyLong_FromLong(what), Py_NewRef(self), old, new, PyBool_FromLong(flag)};
    const size_t count = sizeof parts / sizeof parts[0];
    PyObject *result = new == NULL ? NULL : PyTuple_New((Py_ssize_t)count);

    for (size_t i = 0; i < count; i++) {
        if (result != NULL)
            PyTuple_SET_ITEM(result, (Py_ssize_t)i, parts[i]);
        else
            Py_XDECREF(parts[i]);
    }
    return result;
}

static PyObject *delta_repr(PyObject *self)
{
    const struct shmc_delta *at = &((struct shmc_pydelta *)self)->at;
    PyObject *key = delta_key(self, NULL);

    if (key == NULL) { /* stale or closed: still worth showing */
        PyErr_Clear();
        key = Py_NewRef(Py_Ellipsis);
    }
    PyObject *text = PyUnicode_FromFormat(
        "<shmcache Delta %llu: %U %R of resource %u>", (unsigned long long)at->number,
        kind_names[at->kind], key, (unsigned)at->resource);
    Py_DECREF(key);
    return text;
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyMethodDef delta_methods[] = {
    {"told", delta_event, METH_O,
     "(kind, self, old, new, flag), as shmcache.handlers.feed delivers it. One call, because the\n"
     "caller has just been woken."},
    {NULL, NULL, 0, NULL},
};

#define AT(field) (offsetof(struct shmc_pydelta, at) + offsetof(struct shmc_delta, field))

static PyMemberDef delta_members[] = {
    {"number", T_ULONGLONG, AT(number), READONLY, "Its number in the endless sequence."},
    {"generation", T_ULONGLONG, AT(generation), READONLY, "The first generation with the change."},
    {"resource", T_UINT, AT(resource), READONLY, "The resource's id."},
    {"shard", T_ULONGLONG, AT(shard), READONLY, "The hash whose ranges are shards."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef delta_properties[] = {
    {"kind", delta_kind, NULL, "'ADDED', 'MODIFIED', 'DELETED' or 'RELIST'.", NULL},
    {"key", delta_key, NULL, NULL, NULL},
    {"version", delta_version, NULL, "resourceVersion of the change, or None.", NULL},
    {"old", delta_old, NULL, "The object before, or None.", NULL},
    {"new", delta_new, NULL, "The object after, or None.", NULL},
    {"root", delta_root, NULL, "The root through which the ring was read.", NULL},
    {"unknown_final_state", delta_unknown, NULL,
     "A deletion that was not observed: old may not be the last state.", NULL},
    {"recreated", delta_recreated, NULL,
     "Modified, and new has another uid: the deletion of old was missed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject shmc_pydelta_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Delta",
    .tp_doc = PyDoc_STR("One change of one object, readable as long as it lives."),
    .tp_basicsize = sizeof(struct shmc_pydelta),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = delta_dealloc,
    .tp_repr = delta_repr,
    .tp_methods = delta_methods,
    .tp_members = delta_members,
    .tp_getset = delta_properties,
};

int shmc_pydelta_init(PyObject *Py_UNUSED(module))
{
    static const char *const names[KINDS] = {"NONE", "ADDED", "MODIFIED", "DELETED", "RELIST"};

    for (unsigned i = 0; i < KINDS; i++) {
        kind_names[i] = PyUnicode_InternFromString(names[i]);
        if (kind_names[i] == NULL)
            return -1;
    }
    return 0;
}
