/*
 * pyencode.c - dict ▸ word: turns a Python object into blocks of the arena.
 *
 * A new version of an object is mostly the old one. So each value is compared with the value
 * that its parent held there before (the previous version; for a new key that of its neighbour, or
 * the last object of the batch): an equal value costs a comparison and is shared without a look-up
 * in the table of equals.
 *
 * A value that cannot be stored raises UnsupportedValue or LimitExceeded with the path to it; that
 * does not poison the batch, and blocks that were built are swept when it ends.
 *
 * Invariants
 *   ENCODE1  No Python code runs between the first access to a container and the last, not even on
 *       the way out with an error: the walk borrows its references, and nothing changes a container
 *       under it. No __repr__, __hash__ or __eq__ of a key is called, no collection starts (a
 *       finalizer could do anything), and keys that are remembered are exact str, whose release
 *       runs nothing.
 *   ENCODE2  Nothing borrowed is used after the walk: the path is put before the error at the end.
 */
#include "python/write/pyencodescalar.h"
#include "python/write/pyentries.h"

static int encode(struct shmc_encoder *encoder, PyObject *object, shmc_word previous,
                  shmc_word *word);

int shmc_encoder_reserve(struct shmc_encoder *encoder, size_t more)
{
    if (encoder->top + more <= encoder->capacity)
        return 0;
    const size_t capacity = (encoder->top + more) * 2 + 256;
    shmc_word *stack = PyMem_Realloc(encoder->stack, capacity * sizeof(*stack));
    if (stack == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    encoder->stack = stack;
    encoder->capacity = capacity;
    return 0;
}

/* ---- containers ------------------------------------------------------------------------------- */

static int deeper(struct shmc_encoder *encoder)
{
    if (encoder->depth < SHMC_MAX_DEPTH) {
        encoder->depth++;
        return 0;
    }
    PyErr_Format(shmc_hot_errors.limit, "nested deeper than %u levels", SHMC_MAX_DEPTH);
    return -1;
}

/* A stored object, as the writer trusts it. */
struct stored {
    const uint8_t *words; /* NULL: no object */
    shmc_offset shape;
    uint64_t count;
};

static inline struct stored stored_at(const struct shmc_span *span, shmc_word word)
{
    struct stored stored = {NULL, 0, 0};

    if (shmc_tag(word) == SHMC_TAG_OBJECT) {
        stored.words = span->base + shmc_block_of(word) + 8;
        stored.shape = shmc_word_load(stored.words - 8);
        stored.count = shmc_load_at(span, stored.shape + 8);
    }
    return stored;
}

/* Pushes the values that were equal so far: from here on the words may differ. */
static void copy_alike(struct shmc_encoder *encoder, const uint8_t *words, uint64_t count,
                       size_t base)
{
    for (uint64_t i = 0; i < count; i++)
        encoder->stack[base + i] = shmc_word_load(words + i * 8);
}

/*
 * While the keys are those of the previous object, in its order: compares values pairwise.
 * Returns how many entries were done, or -1. Their words are on the stack if one
 * of them differs (*same is false then).
 */
static Py_ssize_t encode_alike(struct shmc_encoder *encoder, PyObject *dict,
                               struct shmc_keys *keys, const uint8_t *words, size_t base,
                               bool *same)
{
    Py_ssize_t position = 0;
    uint32_t i = 0;
    PyObject *key, *value;
    shmc_word word;

    for (; i < keys->count && shmc_entries_next(dict, &position, &key, &value); i++) {
        if (!shmc_same_key(keys, i, key) && !shmc_equal_key(keys, i, key))
            break;
        const shmc_word previous = shmc_word_load(words + (uint64_t)i * 8);
        word = previous;
        if (!shmc_same_scalar(encoder->span, value, previous)) {
            if (encode(encoder, value, previous, &word) < 0)
                return shmc_encoder_trail(encoder, key, 0);
            if (*same && word != previous) {
                copy_alike(encoder, words, i, base);
                *same = false;
            }
        }
        if (!*same)
            encoder->stack[base + i] = word;
    }
    return i;
}

/* The rest, whose keys differ: the previous value is searched for a little ahead. */
static int encode_rest(struct shmc_encoder *encoder, PyObject *dict, struct shmc_keys *keys,
                       const uint8_t *words, size_t base, Py_ssize_t done)
{
    Py_ssize_t position = 0, i = 0;
    uint32_t ahead = (uint32_t)done;
    PyObject *key, *value;

    for (; shmc_entries_next(dict, &position, &key, &value); i++) {
        shmc_word previous = SHMC_NOTHING, word;

        if (i < done)
            continue;
        for (uint32_t k = ahead; keys != NULL && k < keys->count && k < ahead + 4; k++) {
            if (shmc_same_key(keys, k, key) || shmc_equal_key(keys, k, key)) {
                previous = shmc_word_load(words + (uint64_t)k * 8);
                ahead = k + 1;
                break;
            }
        }
        if (!PyUnicode_Check(key)) {
            shmc_encode_unsupported(key, "a key must be a string");
            return shmc_encoder_trail(encoder, key, 0);
        }
        if (encode(encoder, value, previous, &word) < 0)
            return shmc_encoder_trail(encoder, key, 0);
        encoder->stack[base + (size_t)i] = word;
    }
    return 0;
}

static int encode_entries(struct shmc_encoder *encoder, PyObject *dict, shmc_word previous,
                          size_t base, shmc_word *word)
{
    const Py_ssize_t count = PyDict_GET_SIZE(dict);
    const struct stored old = stored_at(encoder->span, previous);
    struct shmc_keys *keys = NULL;
    Py_ssize_t done = 0;
    bool same = true;
    shmc_offset shape;

    if (old.words != NULL) {
        keys = shmc_keys_of_shape(encoder, old.shape);
        if (keys == NULL && PyErr_Occurred())
            return -1;
        shmc_fetch_ahead(encoder->span, (shmc_offset)(old.words - encoder->span->base), old.count);
    }
    if (keys != NULL) {
        keys->references++; /* a nested object may push it out of the cache */
        done = encode_alike(encoder, dict, keys, old.words, base, &same);
    }
    int result = done < 0 ? -1 : 0;
    if (result == 0 && done < count && same)
        copy_alike(encoder, old.words, (uint64_t)done, base);
    if (result == 0 && done < count)
        result = encode_rest(encoder, dict, keys, old.words, base, done);
    const bool alike = keys != NULL && done == count && (uint64_t)count == old.count;
    shmc_keys_release(keys);
    if (result < 0)
        return -1;
    if (alike && same) {
        *word = previous;
        return 0;
    }
    if (same && done == count) /* the first keys of the old ones */
        copy_alike(encoder, old.words, (uint64_t)done, base);
    shape = old.shape;
    if (!alike && shmc_keys_of_dict(encoder, dict, &shape) < 0)
        return -1;
    const enum shmc_status status = shmc_make_object(
        encoder->writer, shape, encoder->stack + base, (size_t)count, word);
    return status == SHMC_OK ? 0 : shmc_encode_failed(status, "storing an object");
}

static int encode_dict(struct shmc_encoder *encoder, PyObject *dict, shmc_word previous,
                       shmc_word *word)
{
    const size_t base = encoder->top;
    const size_t count = (size_t)PyDict_GET_SIZE(dict);

    if (count == 0) {
        *word = SHMC_EMPTY_OBJECT;
        return 0;
    }
    if (deeper(encoder) < 0 || shmc_encoder_reserve(encoder, count) < 0)
        return -1;
    encoder->top += count;
    const int result = encode_entries(encoder, dict, previous, base, word);
    encoder->top = base;
    encoder->depth--;
    return result;
}

static int encode_elements(struct shmc_encoder *encoder, PyObject *list, shmc_word previous,
                           size_t base, shmc_word *word)
{
    const Py_ssize_t count = PyList_GET_SIZE(list);
    struct shmc_array old = {.count = 0};
    bool same;

    if (shmc_tag(previous) == SHMC_TAG_ARRAY)
        shmc_array_open(encoder->span, previous, &old);
    shmc_fetch_ahead(encoder->span, old.words, old.count);
    same = (uint64_t)count == old.count;
    for (Py_ssize_t i = 0; i < count; i++) {
        const shmc_word before =
            (uint64_t)i < old.count ? shmc_load_at(encoder->span, old.words + (uint64_t)i * 8)
                                    : SHMC_NOTHING;
        shmc_word element = before;

        if (!shmc_same_scalar(encoder->span, PyList_GET_ITEM(list, i), before) &&
            encode(encoder, PyList_GET_ITEM(list, i), before, &element) < 0)
            return shmc_encoder_trail(encoder, NULL, i);
        same = same && element == before;
        encoder->stack[base + (size_t)i] = element;
    }
    if (same) {
        *word = previous;
        return 0;
    }
    const enum shmc_status status =
        shmc_make_array(encoder->writer, encoder->stack + base, (size_t)count, word);
    return status == SHMC_OK ? 0 : shmc_encode_failed(status, "storing a list");
}

static int encode_list(struct shmc_encoder *encoder, PyObject *list, shmc_word previous,
                       shmc_word *word)
{
    const size_t base = encoder->top;
    const size_t count = (size_t)PyList_GET_SIZE(list);

    if (count == 0) {
        *word = SHMC_EMPTY_ARRAY;
        return 0;
    }
    if (deeper(encoder) < 0 || shmc_encoder_reserve(encoder, count) < 0)
        return -1;
    encoder->top += count;
    const int result = encode_elements(encoder, list, previous, base, word);
    encoder->top = base;
    encoder->depth--;
    return result;
}

/* ---- containers that are copied first ---------------------------------------------------------- */

/* Takes over the reference to a copy; NULL: it could not be made. */
static int encode_plain(struct shmc_encoder *encoder, PyObject *plain, shmc_word previous,
                        shmc_word *word)
{
    const int result = plain == NULL ? -1 : encode(encoder, plain, previous, word);

    Py_XDECREF(plain);
    return result;
}

#define VIEW_BUDGET 65536u /* words read to find out how deep a view is */

/* Whether a live word has at most `room` levels of containers; false if checking takes too long. */
static bool shallow(const struct shmc_span *span, shmc_word word, unsigned room, uint32_t *budget)
{
    struct shmc_array array = {.count = 0};
    struct shmc_object object;

    if (shmc_tag(word) == SHMC_TAG_OBJECT && shmc_object_open(span, word, &object))
        array = (struct shmc_array){object.words, object.count};
    else if (shmc_tag(word) != SHMC_TAG_ARRAY || !shmc_array_open(span, word, &array))
        return true;
    if (room == 0 || array.count > *budget)
        return false;
    *budget -= (uint32_t)array.count;
    for (uint64_t i = 0; i < array.count; i++) {
        if (!shallow(span, shmc_load_at(span, array.words + i * 8), room - 1, budget))
            return false;
    }
    return true;
}

/*
 * A view of this very arena is stored by reference if its block is alive, else (it is
 * of another arena, or only a pin still holds it) by its content; so is a view inside
 * something else that may get too deep with it.
 */
static int encode_view(struct shmc_encoder *encoder, PyObject *object, shmc_word previous,
                       shmc_word *word)
{
    const shmc_pyview *view = (shmc_pyview *)object;
    uint32_t budget = VIEW_BUDGET;

    if (shmc_pyroot_check(view->root) < 0)
        return -1;
    if (view->root->instance == encoder->instance &&
        (!shmc_is_block(view->word) ||
         (shmc_is_live(encoder->writer, shmc_block_of(view->word)) &&
          (encoder->depth == 0 ||
           shallow(encoder->span, view->word, SHMC_MAX_DEPTH - encoder->depth, &budget))))) {
        *word = view->word;
        return 0;
    }
    return encode_plain(encoder, shmc_pyvalue_plain(view->root, view->word), previous, word);
}

/* In its own order, which differs from the dict inside: move_to_end() changes only the former.
 * Keys that are not exact str would run their __hash__ here (ENCODE1). */
static PyObject *in_order(PyObject *ordered)
{
    PyObject *iterator = PyODict_Type.tp_iter(ordered);
    PyObject *plain = iterator == NULL ? NULL : PyDict_New();
    Py_ssize_t position = 0;
    PyObject *key, *value;

    while (plain != NULL && PyDict_Next(ordered, &position, &key, NULL)) {
        if (!PyUnicode_CheckExact(key)) {
            shmc_encode_unsupported(key,
                                    "a key of an OrderedDict must be a str, not of a subclass");
            Py_CLEAR(plain);
        }
    }
    while (plain != NULL && (key = PyIter_Next(iterator)) != NULL) {
        value = PyDict_GetItemWithError(ordered, key);
        if (value == NULL || PyDict_SetItem(plain, key, value) < 0)
            Py_CLEAR(plain);
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    if (plain != NULL && PyErr_Occurred())
        Py_CLEAR(plain);
    return plain;
}

/* Out of line, so that encode_dict() has one caller and is part of it. */
static __attribute__((noinline, cold)) int
encode_ordered(struct shmc_encoder *encoder, PyObject *ordered, shmc_word previous, shmc_word *word)
{
    return encode_plain(encoder, in_order(ordered), previous, word);
}

/* ---- any value --------------------------------------------------------------------------------- */

static int encode(struct shmc_encoder *encoder, PyObject *object, shmc_word previous,
                  shmc_word *word)
{
    if (PyUnicode_Check(object))
        return shmc_encode_str(encoder, object, previous, word);
    if (PyDict_Check(object))
        return PyDict_CheckExact(object) || !PyODict_Check(object)
                   ? encode_dict(encoder, object, previous, word)
                   : encode_ordered(encoder, object, previous, word);
    if (PyList_Check(object))
        return encode_list(encoder, object, previous, word);
    if (PyBool_Check(object)) {
        *word = object == Py_True ? SHMC_TRUE : SHMC_FALSE;
        return 0;
    }
    if (PyLong_Check(object))
        return shmc_encode_int(encoder, object, word);
    if (object == Py_None) {
        *word = SHMC_NULL;
        return 0;
    }
    if (PyFloat_Check(object))
        return shmc_encode_float(encoder, object, word);
    if (Py_IS_TYPE(object, &shmc_pyview_type) || Py_IS_TYPE(object, &shmc_pylist_type))
        return encode_view(encoder, object, previous, word);
    return shmc_encode_unsupported(
        object, "only dict, list, str, int, float, bool and None can be stored");
}

int shmc_encode(struct shmc_encoder *encoder, PyObject *object, shmc_word previous,
                shmc_word *word)
{
    encoder->top = 0;
    encoder->depth = 0;
    const int collecting = PyGC_Disable(); /* ENCODE1; the last look-up is still to be used */
    const int result = encode(encoder, object, previous, word);
    if (collecting)
        PyGC_Enable();
    if (result < 0)
        shmc_encoder_explain(encoder);
    return result;
}
