/*
 * pyshape.c - the shapes that a process has met.
 *
 * An object in the arena has no keys, it names a shape; and a shape's keys are the same for
 * thousands of objects. So their str objects are made once per process, interned, with a table
 * for looking up positions. A field access is then: probe the table (the key is usually the
 * very same object), load one word.
 *
 * Invariants
 *   SHAPE1  the cache is keyed by the shape's id, which is never reused, not by its offset, which
 *       is. An id has no meaning until the object it was read from is validated.
 *   SHAPE2  a shape does not change once it is in the cache, except that blank, json, go and
 *       attributes are filled when first needed. Keys are exact str, distinct, with their hash computed.
 *   SHAPE3  the cache is bounded: two ways per set; the older one goes. Views count references.
 */
#include "python/pyhot.h"

#define INTERN_MAX 16384u
#define SETS 2048u /* x 2 ways: 32 KiB per reader, shapes apart */

struct shmc_pyshapes {
    struct shmc_pyshape *ways[SETS][2]; /* the more recent one first */
};

struct shmc_pyshapes *shmc_pyshapes_new(void)
{
    struct shmc_pyshapes *cache = PyMem_Calloc(1, sizeof *cache);

    if (cache == NULL)
        PyErr_NoMemory();
    return cache;
}

void shmc_pyshapes_free(struct shmc_pyshapes *cache)
{
    if (cache == NULL)
        return;
    for (size_t set = 0; set < SETS; set++) {
        shmc_pyshape_drop(cache->ways[set][0]);
        shmc_pyshape_drop(cache->ways[set][1]);
    }
    PyMem_Free(cache);
}

void shmc_pyshape_drop(struct shmc_pyshape *shape)
{
    if (shape == NULL || --shape->references > 0)
        return;
    Py_XDECREF(shape->keys);
    Py_XDECREF(shape->blank);
    Py_XDECREF(shape->attributes);
    PyMem_Free(shape->table);
    PyMem_Free(shape->json);
    PyMem_Free(shape->json_ends);
    PyMem_Free(shape);
}

/* ---- looking up ----------------------------------------------------------------------- */

/* Both are exact str: no Python code runs. */
static bool same_text(PyObject *a, PyObject *b)
{
    const Py_ssize_t length = PyUnicode_GET_LENGTH(a);

    return length == PyUnicode_GET_LENGTH(b) && PyUnicode_KIND(a) == PyUnicode_KIND(b) &&
           memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b),
                  (size_t)length * (size_t)PyUnicode_KIND(a)) == 0;
}

/* Like a dict: identity, then hash and ==, which may run any code for odd keys. */
static int same_key(PyObject *mine, PyObject *key, Py_hash_t hash)
{
    if (mine == key)
        return 1;
    if (((PyASCIIObject *)mine)->hash != hash)
        return 0;
    if (PyUnicode_CheckExact(key))
        return same_text(mine, key);
    return PyObject_RichCompareBool(mine, key, Py_EQ);
}

Py_ssize_t shmc_pyshape_find(const struct shmc_pyshape *shape, PyObject *key)
{
    const Py_hash_t hash = PyObject_Hash(key);

    if (hash == -1)
        return -2;
    if (shape == NULL)
        return -1;
    for (uint32_t at = (uint32_t)hash;; at++) {
        const uint32_t entry = shape->table[at & shape->table_mask];
        if (entry == 0)
            return -1;
        const int same = same_key(PyTuple_GET_ITEM(shape->keys, entry - 1), key, hash);
        if (same != 0)
            return same < 0 ? -2 : (Py_ssize_t)entry - 1;
    }
}

/* ---- making --------------------------------------------------------------------------- */

/*
 * Interned, so that it is the same object as the literal in the caller's code. Some releases
 * keep interned strings for ever, and keys of annotations are unboundedly many: so only the
 * first INTERN_MAX keys of a process; they are those that occur in code. Steals the key.
 */
static PyObject *interned(PyObject *key)
{
    static unsigned count; /* with the GIL (HOT4) */
    PyObject *intern = PySys_GetObject("intern"); /* borrowed */
    PyObject *same;

    if (intern == NULL || count >= INTERN_MAX)
        return key;
    count++;
    same = PyObject_CallOneArg(intern, key);
    Py_DECREF(key);
    return same;
}

/* A power of two, at most half full. */
static uint32_t table_size(uint64_t count)
{
    uint32_t size = 4;

    while (size < count * 2)
        size *= 2;
    return size;
}

/* 0; -1 with CorruptSegment set if a key comes twice. */
static int fill_table(struct shmc_pyshape *shape)
{
    const uint32_t size = table_size(shape->count);

    shape->table = PyMem_Calloc(size, sizeof *shape->table);
    if (shape->table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    shape->table_mask = size - 1;
    for (uint32_t i = 0; i < shape->count; i++) {
        PyObject *key = PyTuple_GET_ITEM(shape->keys, i);
        const Py_hash_t hash = PyObject_Hash(key);
        uint32_t at = (uint32_t)hash & shape->table_mask;

        for (; shape->table[at] != 0; at = (at + 1) & shape->table_mask) {
            if (same_key(PyTuple_GET_ITEM(shape->keys, shape->table[at] - 1), key, hash) != 0) {
                shmc_hot_raise(SHMC_CORRUPT, "an object has a key twice");
                return -1;
            }
        }
        shape->table[at] = i + 1;
    }
    return 0;
}

/* The key words, in private memory, validated; or NULL with an exception set. */
static shmc_word *copy_key_words(shmc_pyroot *root, const struct shmc_object *object)
{
    shmc_word *words = PyMem_New(shmc_word, object->count);

    if (words == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint64_t i = 0; i < object->count; i++)
        words[i] = shmc_object_key(shmc_pyroot_span(root), object, i);
    if (shmc_pyroot_valid(root) < 0) {
        PyMem_Free(words);
        return NULL;
    }
    return words;
}

static PyObject *make_keys(shmc_pyroot *root, const struct shmc_object *object)
{
    shmc_word *words = copy_key_words(root, object);
    PyObject *keys = words == NULL ? NULL : PyTuple_New((Py_ssize_t)object->count);

    for (uint64_t i = 0; keys != NULL && i < object->count; i++) {
        PyObject *key = shmc_pystring(root, words[i]);

        if (key != NULL)
            key = interned(key);
        if (key == NULL)
            Py_CLEAR(keys);
        else
            PyTuple_SET_ITEM(keys, (Py_ssize_t)i, key);
    }
    PyMem_Free(words);
    return keys;
}

/* The object is validated: its count is real. */
static struct shmc_pyshape *make_shape(shmc_pyroot *root, const struct shmc_object *object)
{
    struct shmc_pyshape *shape;

    if (object->count > UINT32_MAX / 4) {
        shmc_hot_raise(SHMC_LIMIT, "an object has too many keys");
        return NULL;
    }
    shape = PyMem_Calloc(1, sizeof *shape);
    if (shape == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    shape->references = 1;
    shape->id = object->shape_id;
    shape->count = object->count;
    shape->keys = make_keys(root, object);
    if (shape->keys == NULL || fill_table(shape) < 0) {
        shmc_pyshape_drop(shape);
        return NULL;
    }
    return shape;
}

/* ---- the cache ------------------------------------------------------------------------ */

static struct shmc_pyshape *find_cached(struct shmc_pyshapes *cache, uint64_t id)
{
    struct shmc_pyshape **ways = cache->ways[id % SETS];

    if (ways[0] != NULL && ways[0]->id == id)
        return ways[0];
    if (ways[1] == NULL || ways[1]->id != id)
        return NULL;
    struct shmc_pyshape *found = ways[1];
    ways[1] = ways[0];
    ways[0] = found;
    return found;
}

/* Making a shape may have run any code, even this function. */
static void keep(struct shmc_pyshapes *cache, struct shmc_pyshape *shape)
{
    struct shmc_pyshape **ways = cache->ways[shape->id % SETS];
    struct shmc_pyshape *oldest = ways[1];

    shape->references++;
    ways[1] = ways[0];
    ways[0] = shape;
    shmc_pyshape_drop(oldest);
}

struct shmc_pyshape *shmc_pyshape_get(shmc_pyroot *root, const struct shmc_object *object)
{
    struct shmc_pyshape *shape;

    if (shmc_pyroot_valid(root) < 0) /* SHAPE1 */
        return NULL;
    shape = find_cached(root->reader->shapes, object->shape_id);
    if (shape != NULL) {
        if (shape->count != object->count) {
            shmc_hot_raise(SHMC_CORRUPT, "a shape changed");
            return NULL;
        }
        shape->references++;
        return shape;
    }
    shape = make_shape(root, object);
    if (shape != NULL)
        keep(root->reader->shapes, shape);
    return shape;
}

/* ---- filled when first needed --------------------------------------------------------- */

PyObject *shmc_pyshape_blank(struct shmc_pyshape *shape)
{
    PyObject *blank;

    if (shape->blank != NULL)
        return shape->blank;
    blank = PyDict_New();
    for (uint64_t i = 0; blank != NULL && i < shape->count; i++) {
        if (PyDict_SetItem(blank, PyTuple_GET_ITEM(shape->keys, (Py_ssize_t)i), Py_None) < 0)
            Py_CLEAR(blank);
    }
    if (shape->blank != NULL) /* filled by other code meanwhile */
        Py_XDECREF(blank);
    else
        shape->blank = blank;
    return shape->blank;
}

/* The total length of all fragments, or 0 with an exception set. */
static size_t measure_fragments(const struct shmc_pyshape *shape)
{
    size_t total = SHMC_JSON_SLACK;

    for (uint64_t i = 0; i < shape->count; i++) {
        Py_ssize_t length;
        const char *text =
            PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(shape->keys, (Py_ssize_t)i), &length);

        if (text == NULL)
            return 0;
        total += (size_t)length + shmc_json_extra((const uint8_t *)text, (size_t)length) + 3;
        if (total > UINT32_MAX) {
            shmc_hot_raise(SHMC_LIMIT, "an object's keys are too long");
            return 0;
        }
    }
    return total;
}

static void write_fragments(struct shmc_pyshape *shape, uint8_t *json, uint32_t *ends)
{
    uint8_t *at = json;

    for (uint64_t i = 0; i < shape->count; i++) {
        Py_ssize_t length;
        const char *text = /* measured before: cannot fail */
            PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(shape->keys, (Py_ssize_t)i), &length);

        *at++ = '"';
        at = shmc_json_escape((const uint8_t *)text, (size_t)length, at);
        *at++ = '"';
        *at++ = ':';
        ends[i] = (uint32_t)(at - json);
        shape->go |= shmc_json_go_text((const uint8_t *)text, (size_t)length);
    }
    memset(at, 0, SHMC_JSON_SLACK);
}

int shmc_pyshape_render(struct shmc_pyshape *shape)
{
    const size_t size = measure_fragments(shape);
    uint8_t *json = size == 0 ? NULL : PyMem_Malloc(size);
    uint32_t *ends = size == 0 ? NULL : PyMem_New(uint32_t, shape->count);

    if (json == NULL || ends == NULL) {
        PyMem_Free(json);
        PyMem_Free(ends);
        if (size != 0)
            PyErr_NoMemory();
        return -1;
    }
    write_fragments(shape, json, ends);
    shape->json = json;
    shape->json_ends = ends;
    return 0;
}
