/*
 * pyencode.h - a Python object becomes a word of the writer (pyencode.c, pyencodescalar.c), key
 * lists become shapes (pykeys.c), changes are put (pyput.c).
 */
#ifndef SHMC_PYENCODE_H
#define SHMC_PYENCODE_H

#include "json/json.h"
#include "python/pyhot.h"

#define SHMC_KEYS_CACHE 2048u

/* A list of keys that was met, with its shape. */
struct shmc_keys {
    uint32_t references;
    uint32_t count;
    uint64_t id;     /* of the shape: never reused */
    uint64_t deaths; /* shmc_shape_deaths() when the offset was last known to be alive */
    shmc_offset shape;
    uint64_t sequence; /* hash of the keys in order */
    PyObject *keys[];  /* str, in order; replaced by equal ones that callers use */
};

struct shmc_encoder {
    struct shmc_writer *writer;
    const struct shmc_span *span;
    uint64_t instance;
    shmc_word *stack; /* words of the containers that are open */
    size_t top, capacity;
    unsigned depth;
    struct shmc_keys *by_id[SHMC_KEYS_CACHE];
    struct shmc_keys *by_sequence[SHMC_KEYS_CACHE];
    shmc_word last; /* the last object of this batch, for comparison with a new one */
    uint64_t last_batch;
    struct shmc_parser parser;
    PyObject *trail; /* list: where in the object an error happened, innermost first */
    struct shmc_encoder *next;
};

struct shmc_encoder *shmc_encoder_of(struct shmc_writer *writer);
void shmc_encoder_forget(struct shmc_writer *writer);

/* The word for an object, compared with `previous` first (or SHMC_NOTHING). -1 with an exception
 * set, whose text shows where in the object. */
int shmc_encode(struct shmc_encoder *encoder, PyObject *object, shmc_word previous,
                shmc_word *word);

/* The most similar object to a new one: its previous version, that of a neighbour (pods of one
 * owner are alike), or the batch's last object. The change then uses the same look-up. */
shmc_word shmc_encoder_previous(const struct shmc_encoder *encoder,
                                const struct shmc_change *change);
/* The keys of a shape that some object has; NULL without exception: cannot be cached. */
struct shmc_keys *shmc_keys_of_shape(struct shmc_encoder *encoder, shmc_offset shape);
/* The shape for a dict's keys. -1 with an exception set. */
int shmc_keys_of_dict(struct shmc_encoder *encoder, PyObject *dict, shmc_offset *shape);
void shmc_keys_release(struct shmc_keys *keys);
int shmc_encoder_reserve(struct shmc_encoder *encoder, size_t more);
void shmc_keys_clear(struct shmc_encoder *encoder);
int shmc_encode_str(struct shmc_encoder *encoder, PyObject *text, shmc_word previous,
                    shmc_word *word);

/* pyencodepath.c: exceptions with the path to a value. The first three return -1. */
int shmc_encode_failed(enum shmc_status status, const char *what);
int shmc_encode_unsupported(PyObject *object, const char *why);
/* Notes one step of the way out; `step` is a key or NULL for an index. */
int shmc_encoder_trail(struct shmc_encoder *encoder, PyObject *step, Py_ssize_t index);
/* Puts the path in front of an error about a value. */
void shmc_encoder_explain(struct shmc_encoder *encoder);

static inline bool shmc_same_key(const struct shmc_keys *keys, uint32_t index, PyObject *key)
{
    return keys->keys[index] == key;
}
/* The slow half: equal but not the same object. Remembers the new one. */
bool shmc_equal_key(struct shmc_keys *keys, uint32_t index, PyObject *key);

#endif
