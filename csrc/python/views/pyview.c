/*
 * pyview.c - the common part of View (pydict.c) and ListView (pylist.c): life, conversions,
 * the refusal of changes, repr().
 *
 * A view is its root and its word. The block of the word is opened on first use.
 *
 * Views refer to roots and shapes, which refer to no views: there are no cycles, and the
 * collector does not track them.
 */
#include "python/models/pymodel.h"
#include "python/read/pyread.h"

#ifdef Py_GIL_DISABLED
#error "shmcache needs a CPython with the GIL: views and shapes are counted without atomics"
#endif

#define FREE_MAX 256u
#define REPR_ENTRIES 4u
#define REPR_SEARCH 64u /* entries that repr() reads */
#define REPR_TEXT 30    /* characters of one string */
#define ELLIPSIS "\xe2\x80\xa6"

static struct {
    shmc_pyview *items[FREE_MAX]; /* memory of both types: they have one size */
    size_t count;
} spare;

/* ---- life ----------------------------------------------------------------------------- */

PyObject *shmc_pyview_new(shmc_pyroot *root, shmc_word word)
{
    PyTypeObject *type = shmc_is_object(word) ? &shmc_pyview_type : &shmc_pylist_type;
    shmc_pyview *view;

    assert(shmc_is_object(word) || shmc_is_array(word));
    if (shmc_is_block(word)) { /* cold, and about to be read: its first lines at once */
        for (unsigned line = 0; line < 3; line++)
            shmc_fetch(shmc_pyroot_span(root), shmc_block_of(word) + line * 64);
    }
    if (spare.count > 0)
        view = (shmc_pyview *)PyObject_Init((PyObject *)spare.items[--spare.count], type);
    else
        view = PyObject_New(shmc_pyview, type);
    if (view == NULL)
        return NULL;
    view->root = (shmc_pyroot *)Py_NewRef((PyObject *)root);
    view->word = word;
    view->shape = NULL;
    view->words = 0;
    view->count = 0;
    return (PyObject *)view;
}

void shmc_pyview_dealloc(PyObject *self)
{
    shmc_pyview *view = (shmc_pyview *)self;
    shmc_pyroot *root = view->root;

    shmc_pyshape_drop(view->shape);
    if (spare.count < FREE_MAX)
        spare.items[spare.count++] = view;
    else
        PyObject_Free(view);
    shmc_pyroot_drop(root); /* last: it may run any code */
}

static int open_object(shmc_pyview *view)
{
    struct shmc_pyshape *shape = NULL;
    struct shmc_object object;

    if (!shmc_object_open(shmc_pyroot_span(view->root), view->word, &object)) {
        shmc_pyroot_unreadable(view->root);
        return -1;
    }
    if (object.shape == 0) {
        if (shmc_pyroot_valid(view->root) < 0)
            return -1;
    } else {
        shape = shmc_pyshape_get(view->root, &object); /* validates */
        if (shape == NULL)
            return -1;
    }
    if (view->words != 0) { /* code that ran while the shape was made has opened it */
        shmc_pyshape_drop(shape);
        return 0;
    }
    view->shape = shape;
    view->words = object.words;
    view->count = object.count;
    return 0;
}

static int open_array(shmc_pyview *view)
{
    struct shmc_array array;

    if (!shmc_array_open(shmc_pyroot_span(view->root), view->word, &array)) {
        shmc_pyroot_unreadable(view->root);
        return -1;
    }
    if (shmc_pyroot_valid(view->root) < 0)
        return -1;
    view->words = array.words;
    view->count = array.count;
    return 0;
}

int shmc_pyview_open(shmc_pyview *view)
{
    return shmc_is_object(view->word) ? open_object(view) : open_array(view);
}

/* ---- comparison ----------------------------------------------------------------------- */

static shmc_word word_at(const shmc_pyview *view, uint64_t index)
{
    return shmc_load_at(shmc_pyroot_span(view->root), view->words + index * 8);
}

/* Equal words of one segment are equal values. */
int shmc_pyview_equal_items(shmc_pyview *a, uint64_t at_a, shmc_pyview *b, uint64_t at_b)
{
    const shmc_word word_a = word_at(a, at_a);
    const shmc_word word_b = word_at(b, at_b);

    if (word_a == word_b && a->root->instance == b->root->instance)
        return shmc_pyroot_valid(a->root) < 0 || shmc_pyroot_valid(b->root) < 0 ? -1 : 1;
    PyObject *mine = shmc_pyvalue(a->root, word_a);
    PyObject *other = mine == NULL ? NULL : shmc_pyvalue(b->root, word_b);
    const int equal = other == NULL ? -1 : PyObject_RichCompareBool(mine, other, Py_EQ);
    Py_XDECREF(mine);
    Py_XDECREF(other);
    return equal;
}

/* ---- common to both types ------------------------------------------------------------- */

PyObject *shmc_pyview_plain(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const shmc_pyview *view = (shmc_pyview *)self;

    return shmc_pyvalue_plain(view->root, view->word);
}

PyObject *shmc_pyview_deepcopy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return shmc_pyview_plain(self, NULL);
}

PyObject *shmc_pyview_json(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const shmc_pyview *view = (shmc_pyview *)self;

    return shmc_pyjson(view->root, view->word, NULL);
}

PyObject *shmc_pyview_json_in(PyObject *self, PyObject *object)
{
    const shmc_pyview *view = (shmc_pyview *)self;
    struct shmc_pyform form;

    return shmc_pyform_read(object, &form) ? shmc_pyjson(view->root, view->word, &form) : NULL;
}

static void refuse(PyObject *self, const char *what)
{
    const bool object = Py_TYPE(self) == &shmc_pyview_type;

    PyErr_Format(PyExc_TypeError, "%s does not support %s: it is a read-only view of the cache; "
                 "change a copy, .%s()", object ? "View" : "ListView", what,
                 object ? "to_dict" : "to_list");
}

int shmc_pyview_setattr(PyObject *self, PyObject *Py_UNUSED(name), PyObject *value)
{
    refuse(self, value == NULL ? "attribute deletion" : "attribute assignment");
    return -1;
}

int shmc_pyview_setitem(PyObject *self, PyObject *Py_UNUSED(key), PyObject *value)
{
    refuse(self, value == NULL ? "item deletion" : "item assignment");
    return -1;
}

PyObject *shmc_pyview_inplace(PyObject *self, PyObject *Py_UNUSED(other))
{
    refuse(self, "assignment in place");
    return NULL;
}

/* The hint is for callers of append() or update(). */
PyObject *shmc_pyview_no_attribute(PyObject *self, PyObject *name)
{
    const bool object = Py_TYPE(self) == &shmc_pyview_type;
    const bool plain_has = _PyType_Lookup(object ? &PyDict_Type : &PyList_Type, name) != NULL;

    return PyErr_Format(PyExc_AttributeError, "%s has no attribute%s %R%s",
                        object ? "View" : "ListView", object ? " or key" : "", name,
                        !plain_has ? ""
                        : object   ? ": it is read-only, change a .to_dict() of it"
                                   : ": it is read-only, change a .to_list() of it");
}

/* ---- repr ----------------------------------------------------------------------------- */

/* repr() of a value, strings shortened. Steals the value, which may be NULL. */
static PyObject *brief_repr(PyObject *value)
{
    if (value != NULL && PyUnicode_Check(value) && PyUnicode_GET_LENGTH(value) > REPR_TEXT) {
        PyObject *start = PyUnicode_Substring(value, 0, REPR_TEXT);

        Py_SETREF(value, start == NULL ? NULL : PyUnicode_FromFormat("%U%s", start, ELLIPSIS));
        Py_XDECREF(start);
    }
    PyObject *text = value == NULL ? NULL : PyObject_Repr(value);
    Py_XDECREF(value);
    return text;
}

static PyObject *brief_value(shmc_pyroot *root, shmc_word word)
{
    if (word == SHMC_EMPTY_OBJECT)
        return PyUnicode_FromString("{}");
    if (word == SHMC_EMPTY_ARRAY)
        return PyUnicode_FromString("[]");
    if (shmc_is_object(word))
        return PyUnicode_FromString("{" ELLIPSIS "}");
    if (shmc_is_array(word))
        return PyUnicode_FromString("[" ELLIPSIS "]");
    return brief_repr(shmc_pyvalue(root, word));
}

/* Skips the words of containers in a View that has anything else to show. */
static bool has_scalar(const shmc_pyview *view)
{
    for (uint64_t i = 0; i < view->count && i < REPR_SEARCH; i++) {
        const shmc_word word = word_at(view, i);
        if (!shmc_is_object(word) && !shmc_is_array(word))
            return true;
    }
    return false;
}

static PyObject *brief_entry(shmc_pyview *view, uint64_t index, shmc_word word)
{
    PyObject *value = brief_value(view->root, word);

    if (view->shape == NULL || value == NULL)
        return value;
    PyObject *key = brief_repr(Py_NewRef(PyTuple_GET_ITEM(view->shape->keys, (Py_ssize_t)index)));
    PyObject *entry = key == NULL ? NULL : PyUnicode_FromFormat("%U: %U", key, value);
    Py_XDECREF(key);
    Py_DECREF(value);
    return entry;
}

/* "'kind': 'Pod', ...3 more" */
static PyObject *brief_entries(shmc_pyview *view)
{
    const bool scalars = view->shape != NULL && has_scalar(view);
    PyObject *text = PyUnicode_New(0, 0);
    uint64_t shown = 0;

    for (uint64_t i = 0; i < view->count && i < REPR_SEARCH && shown < REPR_ENTRIES; i++) {
        const shmc_word word = word_at(view, i);

        if (scalars && (shmc_is_object(word) || shmc_is_array(word)))
            continue;
        if (shown++ > 0)
            PyUnicode_AppendAndDel(&text, PyUnicode_FromString(", "));
        PyUnicode_AppendAndDel(&text, brief_entry(view, i, word));
        if (text == NULL)
            return NULL;
    }
    if (shown < view->count)
        PyUnicode_AppendAndDel(&text, PyUnicode_FromFormat(
            "%s%s%llu more", shown > 0 ? ", " : "", ELLIPSIS,
            (unsigned long long)(view->count - shown)));
    return text;
}

/* A log line or a debugger must not fail on a view that can no longer be read. */
static PyObject *unreadable_repr(const char *name)
{
    PyObject *type, *value, *trace, *text = NULL;

    if (!PyErr_ExceptionMatches(shmc_hot_errors.base))
        return NULL;
    PyErr_Fetch(&type, &value, &trace);
    text = PyUnicode_FromFormat("<%s: %s>", name, ((PyTypeObject *)type)->tp_name);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return text;
}

PyObject *shmc_pyview_repr(PyObject *self)
{
    shmc_pyview *view = (shmc_pyview *)self;
    const bool object = shmc_is_object(view->word);
    const char *name = object ? "View" : "ListView";
    PyObject *named = object ? shmc_pyview_name(self) : Py_NewRef(Py_None);

    if (named != Py_None)
        return named != NULL ? named : unreadable_repr(name);
    Py_DECREF(named);
    PyObject *entries = shmc_pyview_ready(view) < 0 ? NULL : brief_entries(view);

    if (entries == NULL)
        return unreadable_repr(name);
    PyObject *text =
        PyUnicode_FromFormat(object ? "%s({%U})" : "%s([%U])", name, entries);
    Py_DECREF(entries);
    return text;
}

/* ---- module --------------------------------------------------------------------------- */

static PyObject *hot_default(PyObject *Py_UNUSED(module), PyObject *thing)
{
    if (Py_TYPE(thing) == &shmc_pyview_type || Py_TYPE(thing) == &shmc_pylist_type)
        return shmc_pyview_plain(thing, NULL);
    if (Py_TYPE(thing) == &shmc_pymodel_type || Py_TYPE(thing) == &shmc_pymodellist_type ||
        Py_TYPE(thing) == &shmc_pymodelmap_type)
        return shmc_pymodel_plain(thing, NULL);
    return PyErr_Format(PyExc_TypeError, "Object of type %s is not JSON serializable",
                        Py_TYPE(thing)->tp_name);
}

static PyMethodDef functions[] = {
    {"default", hot_default, METH_O,
     "default(obj, /)\n--\n\nFor json.dumps(..., default=...) and orjson: a view as dict or list."},
    {NULL, NULL, 0, NULL},
};

int shmc_pyview_register(const char *abc, PyTypeObject *type)
{
    PyObject *module = PyImport_ImportModule("collections.abc");
    PyObject *class = module == NULL ? NULL : PyObject_GetAttrString(module, abc);
    PyObject *done = class == NULL ? NULL : PyObject_CallMethod(class, "register", "O", type);
    const int result = done == NULL ? -1 : 0;

    Py_XDECREF(done);
    Py_XDECREF(class);
    Py_XDECREF(module);
    return result;
}

int shmc_pyview_init(PyObject *module)
{
    if (PyModule_AddType(module, &shmc_pyview_type) < 0 ||
        PyModule_AddType(module, &shmc_pylist_type) < 0 || shmc_pylist_init() < 0 ||
        shmc_pyprompt_init() < 0)
        return -1;
    if (shmc_pyview_register("Mapping", &shmc_pyview_type) < 0 ||
        shmc_pyview_register("Sequence", &shmc_pylist_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
