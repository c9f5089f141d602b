/*
 * pykeys.c - dict keys to shapes, without reading the keys' bytes each time.
 *
 * Two views of the same entries: by the shape's id, to compare a dict with a stored object, and by
 * the sequence of the keys' hashes, to find the shape of a new dict. orjson returns the same str
 * for the same key again and again, so keys are compared as pointers first, and an entry adopts
 * the str it met last.
 *
 * An entry's shape may have died since. It is trusted while no shape died at all
 * (shmc_shape_deaths), else it is looked up again in the table of equals.
 */
#include "python/write/pyencode.h"
#include "python/write/pyentries.h"

void shmc_keys_release(struct shmc_keys *keys)
{
    if (keys == NULL || --keys->references > 0)
        return;
    for (uint32_t i = 0; i < keys->count; i++)
        Py_DECREF(keys->keys[i]);
    PyMem_Free(keys);
}

static struct shmc_keys *keys_new(uint32_t count)
{
    struct shmc_keys *keys =
        PyMem_Calloc(1, sizeof(*keys) + (size_t)count * sizeof(PyObject *));

    if (keys == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    keys->count = count;
    return keys;
}

static void keep(struct shmc_keys **at, struct shmc_keys *keys)
{
    keys->references++;
    shmc_keys_release(*at);
    *at = keys;
}

static struct shmc_keys **by_id(struct shmc_encoder *encoder, uint64_t id)
{
    return &encoder->by_id[id % SHMC_KEYS_CACHE];
}

static struct shmc_keys **by_sequence(struct shmc_encoder *encoder, uint64_t sequence)
{
    return &encoder->by_sequence[(sequence >> 32) % SHMC_KEYS_CACHE];
}

void shmc_keys_clear(struct shmc_encoder *encoder)
{
    for (size_t i = 0; i < SHMC_KEYS_CACHE; i++) {
        shmc_keys_release(encoder->by_id[i]);
        shmc_keys_release(encoder->by_sequence[i]);
        encoder->by_id[i] = encoder->by_sequence[i] = NULL;
    }
}

bool shmc_equal_key(struct shmc_keys *keys, uint32_t index, PyObject *key)
{
    PyObject *mine = keys->keys[index];

    if (!PyUnicode_CheckExact(key) || PyUnicode_GET_LENGTH(key) != PyUnicode_GET_LENGTH(mine) ||
        PyUnicode_KIND(key) != PyUnicode_KIND(mine) ||
        memcmp(PyUnicode_DATA(key), PyUnicode_DATA(mine),
               (size_t)PyUnicode_GET_LENGTH(key) * PyUnicode_KIND(key)) != 0)
        return false;
    Py_INCREF(key);
    keys->keys[index] = key;
    Py_DECREF(mine); /* a str: nothing runs */
    return true;
}

static uint64_t mix_hash(uint64_t sequence, PyObject *key)
{
    const Py_hash_t hash = PyUnicode_Type.tp_hash(key); /* cached; a subclass's may run any code */

    return ((sequence ^ (uint64_t)hash) * UINT64_C(0x9e3779b97f4a7c15)) ^ (sequence >> 29);
}

/* ---- from a stored shape ------------------------------------------------------------- */

static PyObject *key_string(const struct shmc_span *span, shmc_word word)
{
    struct shmc_string string;
    PyObject *text;

    if (!shmc_string_open(span, word, &string))
        return NULL;
    char *bytes = PyMem_Malloc((size_t)string.length + 1);
    if (bytes == NULL)
        return PyErr_NoMemory();
    shmc_string_copy(span, &string, 0, string.length, (uint8_t *)bytes);
    text = PyUnicode_DecodeUTF8(bytes, string.length, "strict");
    PyMem_Free(bytes);
    return text; /* not interned: such strings live for ever since 3.12 */
}

struct shmc_keys *shmc_keys_of_shape(struct shmc_encoder *encoder, shmc_offset shape)
{
    const struct shmc_span *span = encoder->span;
    const uint64_t id = shmc_load_at(span, shape);
    const uint64_t count = shmc_load_at(span, shape + 8);
    struct shmc_keys **at = by_id(encoder, id);

    if (*at != NULL && (*at)->id == id)
        return *at;
    if (count > 4096)
        return NULL; /* not worth remembering */
    struct shmc_keys *keys = keys_new((uint32_t)count);
    if (keys == NULL)
        return NULL;
    keys->references = 1;
    keys->id = id;
    keys->shape = shape;
    keys->deaths = shmc_shape_deaths(encoder->writer);
    for (uint32_t i = 0; i < count; i++) {
        keys->keys[i] = key_string(span, shmc_load_at(span, shape + 16 + i * 8));
        if (keys->keys[i] == NULL) {
            keys->count = i;
            shmc_keys_release(keys);
            return NULL;
        }
        keys->sequence = mix_hash(keys->sequence, keys->keys[i]);
    }
    keep(at, keys);
    shmc_keys_release(keys);
    return *at;
}

/* ---- from a dict ------------------------------------------------------------------------ */

static bool same_keys(struct shmc_keys *keys, PyObject *dict)
{
    Py_ssize_t position = 0;
    PyObject *key, *value;

    for (uint32_t i = 0; shmc_entries_next(dict, &position, &key, &value); i++) {
        if (!shmc_same_key(keys, i, key) && !shmc_equal_key(keys, i, key))
            return false;
    }
    return true;
}

/* A dict has equal texts twice if a subclass of str has its own hash; readers could not have both.
 * Equal strings are one word. */
static int check_distinct(const shmc_word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (words[i] == words[k]) {
                PyErr_SetString(shmc_hot_errors.unsupported, "two keys have the same text");
                return -1;
            }
        }
    }
    return 0;
}

/* The key words on the encoder's stack, then the shape from the table of equals. */
static int make_shape(struct shmc_encoder *encoder, PyObject *dict, shmc_offset *shape)
{
    const size_t base = encoder->top;
    const size_t count = (size_t)PyDict_GET_SIZE(dict);
    Py_ssize_t position = 0;
    PyObject *key;
    bool exact = true;
    size_t i = 0;

    if (shmc_encoder_reserve(encoder, count) < 0)
        return -1;
    encoder->top += count;
    for (; PyDict_Next(dict, &position, &key, NULL); i++) {
        if (shmc_encode_str(encoder, key, SHMC_NOTHING, &encoder->stack[base + i]) < 0) {
            encoder->top = base;
            return -1;
        }
        exact = exact && PyUnicode_CheckExact(key);
    }
    if (!exact && check_distinct(encoder->stack + base, count) < 0) {
        encoder->top = base;
        return -1;
    }
    const enum shmc_status status =
        shmc_make_shape(encoder->writer, encoder->stack + base, count, shape);
    encoder->top = base;
    if (status != SHMC_OK) {
        shmc_hot_raise(status, "storing a list of keys");
        return -1;
    }
    return 0;
}

static int remember(struct shmc_encoder *encoder, PyObject *dict, uint64_t sequence,
                    shmc_offset shape)
{
    struct shmc_keys *keys = keys_new((uint32_t)PyDict_GET_SIZE(dict));
    Py_ssize_t position = 0;
    PyObject *key;

    if (keys == NULL)
        return -1;
    for (uint32_t i = 0; PyDict_Next(dict, &position, &key, NULL); i++) {
        if (!PyUnicode_CheckExact(key)) { /* ENCODE1: its release could run any code */
            keys->count = i;
            keys->references = 1;
            shmc_keys_release(keys);
            return 0;
        }
        keys->keys[i] = Py_NewRef(key);
    }
    keys->references = 1;
    keys->sequence = sequence;
    keys->shape = shape;
    keys->id = shmc_load_at(encoder->span, shape);
    keys->deaths = shmc_shape_deaths(encoder->writer);
    keep(by_sequence(encoder, sequence), keys);
    keep(by_id(encoder, keys->id), keys);
    shmc_keys_release(keys);
    return 0;
}

int shmc_keys_of_dict(struct shmc_encoder *encoder, PyObject *dict, shmc_offset *shape)
{
    uint64_t sequence = 0;
    Py_ssize_t position = 0;
    PyObject *key, *value;
    const uint64_t deaths = shmc_shape_deaths(encoder->writer);

    while (shmc_entries_next(dict, &position, &key, &value))
        sequence = mix_hash(sequence, key);
    struct shmc_keys *keys = *by_sequence(encoder, sequence);
    if (keys != NULL && keys->sequence == sequence && keys->deaths == deaths &&
        keys->count == (uint32_t)PyDict_GET_SIZE(dict) && same_keys(keys, dict)) {
        *shape = keys->shape;
        return 0;
    }
    if (make_shape(encoder, dict, shape) < 0)
        return -1;
    return PyDict_GET_SIZE(dict) <= 4096 ? remember(encoder, dict, sequence, *shape) : 0;
}
