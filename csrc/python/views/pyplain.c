/*
 * pyplain.c - a word as plain dict, list, str...: a copy that outlives everything.
 *
 * The walk uses a stack of its own, so that the depth of the data is bounded by an array and not
 * by the thread's stack. Each word is loaded, validated and only then made into an object (HOT1);
 * a container is put into its parent while it is still empty.
 *
 * A larger dict starts as a copy of its shape's blank one: PyDict_Copy() clones the whole table
 * of keys at once, and each value then goes to where its key already is. A dict of up to
 * SMALL_DICT keys never grows its first table, so there inserting is faster (measured: 0.72 of
 * orjson.loads against 0.80 with copies alone; _PyDict_NewPresized() gains 0.02 more, for dicts
 * that are half as large again and slower to look up in).
 */
#include "python/pyhot.h"

#define SMALL_DICT 5u
#define CONTAINER_WORDS 16u /* that a container takes besides its entries, about */
#define PICKLED_DEPTH 100u  /* as plain containers; DEPTH of shmcache/reader/deep.py */

struct frame {
    PyObject *container;
    struct shmc_pyshape *shape; /* NULL for a list */
    shmc_offset words;
    uint64_t next, count;
};

struct walk {
    shmc_pyroot *root;
    uint64_t words, limit; /* that the copy takes, about, and that it may take */
    size_t depth, deepest;
    struct frame frames[SHMC_MAX_DEPTH + 1];
};

/* A few shared blocks can expand without end: damage, since no object has such a text. */
static inline bool in_limit(const struct walk *walk)
{
    if (__builtin_expect(walk->words <= walk->limit, 1))
        return true;
    shmc_hot_raise(SHMC_LIMIT, "a copy of a value would be too large for a cache of this size");
    return false;
}

/* Room for one more container of `count` entries; NULL with an exception set. */
static struct frame *push(struct walk *walk, uint64_t count)
{
    walk->words += count + CONTAINER_WORDS;
    if (!in_limit(walk))
        return NULL;
    if (walk->depth > SHMC_MAX_DEPTH) {
        shmc_hot_raise(SHMC_CORRUPT, "a value is nested too deeply");
        return NULL;
    }
    if (walk->depth >= walk->deepest)
        walk->deepest = walk->depth + 1;
    return &walk->frames[walk->depth];
}

static PyObject *make_dict(struct shmc_pyshape *shape)
{
    if (shape->count <= SMALL_DICT)
        return PyDict_New();
    PyObject *blank = shmc_pyshape_blank(shape);
    return blank == NULL ? NULL : PyDict_Copy(blank);
}

static PyObject *enter_object(struct walk *walk, shmc_word word)
{
    struct shmc_object object;
    struct frame *frame;

    if (!shmc_object_open(shmc_pyroot_span(walk->root), word, &object))
        return shmc_pyroot_unreadable(walk->root);
    shmc_fetch_ahead(shmc_pyroot_span(walk->root), object.words, object.count);
    struct shmc_pyshape *shape = shmc_pyshape_get(walk->root, &object); /* validates */
    if (shape == NULL)
        return NULL;
    frame = push(walk, object.count);
    PyObject *container = frame == NULL ? NULL : make_dict(shape);
    if (container == NULL) {
        shmc_pyshape_drop(shape);
        return NULL;
    }
    *frame = (struct frame){container, shape, object.words, 0, object.count};
    walk->depth++;
    return container;
}

static PyObject *enter_array(struct walk *walk, shmc_word word)
{
    struct shmc_array array;
    struct frame *frame;

    if (!shmc_array_open(shmc_pyroot_span(walk->root), word, &array))
        return shmc_pyroot_unreadable(walk->root);
    shmc_fetch_ahead(shmc_pyroot_span(walk->root), array.words, array.count);
    if (shmc_pyroot_valid(walk->root) < 0)
        return NULL;
    frame = push(walk, array.count);
    PyObject *container = frame == NULL ? NULL : PyList_New((Py_ssize_t)array.count);
    if (container == NULL)
        return NULL;
    *frame = (struct frame){container, NULL, array.words, 0, array.count};
    walk->depth++;
    return container;
}

/* New reference. A container is empty at first, and its frame is on the stack. */
static inline PyObject *enter(struct walk *walk, shmc_word word)
{
    switch (shmc_tag(word)) {
    case SHMC_TAG_OBJECT:
        return enter_object(walk, word);
    case SHMC_TAG_ARRAY:
        return enter_array(walk, word);
    case SHMC_TAG_CONSTANT:
        if (word == SHMC_EMPTY_OBJECT)
            return shmc_pyroot_valid(walk->root) < 0 ? NULL : PyDict_New();
        if (word == SHMC_EMPTY_ARRAY)
            return shmc_pyroot_valid(walk->root) < 0 ? NULL : PyList_New(0);
        break;
    default:
        break;
    }
    return shmc_pyvalue(walk->root, word);
}

static inline void leave(struct walk *walk)
{
    shmc_pyshape_drop(walk->frames[--walk->depth].shape);
}

/* The next entry of the container on top; -1 with an exception set. */
static inline int step(struct walk *walk, struct frame *frame)
{
    const uint64_t index = frame->next++;
    const shmc_word word = shmc_load_at(shmc_pyroot_span(walk->root), frame->words + index * 8);
    PyObject *value = enter(walk, word);

    if (value == NULL)
        return -1;
    if (shmc_tag(word) == SHMC_TAG_STRING) {
        walk->words += (uint64_t)PyUnicode_GET_LENGTH(value) / 8;
        if (!in_limit(walk)) {
            Py_DECREF(value);
            return -1;
        }
    }
    if (frame->shape == NULL) {
        PyList_SET_ITEM(frame->container, (Py_ssize_t)index, value);
        return 0;
    }
    PyObject *key = PyTuple_GET_ITEM(frame->shape->keys, (Py_ssize_t)index);
    const int result = PyDict_SetItem(frame->container, key, value);
    Py_DECREF(value);
    return result;
}

static PyObject *copied(struct walk *walk, shmc_pyroot *root, shmc_word word)
{
    PyObject *top;

    walk->root = root;
    walk->words = 0;
    walk->limit = shmc_copy_limit(shmc_pyroot_span(root));
    walk->depth = walk->deepest = 0;
    top = enter(walk, word);
    while (top != NULL && walk->depth > 0) {
        struct frame *frame = &walk->frames[walk->depth - 1];

        if (frame->next == frame->count)
            leave(walk);
        else if (step(walk, frame) < 0)
            Py_CLEAR(top);
    }
    while (walk->depth > 0)
        leave(walk);
    return top;
}

PyObject *shmc_pyvalue_plain(shmc_pyroot *root, shmc_word word)
{
    struct walk walk;

    return copied(&walk, root, word);
}

static PyObject *reduced_deep(PyObject *plain)
{
    PyObject *module = PyImport_ImportModule("shmcache.reader.deep");
    PyObject *reduced =
        module == NULL ? NULL : PyObject_CallMethod(module, "reduced", "O", plain);

    Py_XDECREF(module);
    return reduced;
}

/* Unpickling needs shmcache only for what pickle itself cannot nest. */
PyObject *shmc_pyview_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const shmc_pyview *view = (shmc_pyview *)self;
    struct walk walk;
    PyObject *plain = copied(&walk, view->root, view->word);

    if (plain == NULL)
        return NULL;
    PyObject *reduced = walk.deepest > PICKLED_DEPTH
                            ? reduced_deep(plain)
                            : Py_BuildValue("O(O)", (PyObject *)Py_TYPE(plain), plain);
    Py_DECREF(plain);
    return reduced;
}
