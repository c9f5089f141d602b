/*
 * pyread.h - declarations shared by the reading half of the extension.
 *
 *   pyreader.c    Reader: the handle; pins the latest root and keeps it for the next look-up
 *   pywait.c      sleeping until a publication
 *   pyconsumers.c where consumers are in the ring
 *   pyroot.c      Root: one pinned generation and all queries on it
 *   pybounds.c    arguments of a scan -> where it starts and ends
 *   pyscan.c      a bounded walk over a tree, chunk by chunk
 *   pypage.c      a page of a list as JSON text
 *   pywhere.c     Where: the filter on the objects of a walk
 *   pywheretest.c   one test of it (pywheretest.h)
 *   pydiff.c      the differences between two roots
 *   pyresource.c  Resource: look-ups by key, on the latest root or on one snapshot
 *   pyiter.c      iterators over one root
 *   pydelta.c     Delta
 *   pytake.c      batches of Deltas from the ring
 *   pydelivered.c Delivered: the objects that handlers know (see pydelivered.h)
 *   pyread.c      bytes of keys, records, one look-up
 *
 * How a result is made (rules HOT1 and VALUE1..VALUE4)
 *   1  words are copied into C memory, bounded by the record's count;
 *   2  shmc_pyroot_settle(): if stale, closed or forked, it raises that; only then does an
 *      impossible copy count as corruption;
 *   3  Python objects are created from the copies.
 * A look-up that does not expose its root to the caller starts again on a new one when
 * step 2 finds it stale; a Root that the caller holds raises StaleObjectError.
 */
#ifndef SHMC_PYREAD_H
#define SHMC_PYREAD_H

#include "python/pyhot.h"

#define SHMC_RETRIES 32u /* new roots that one look-up tries */
#define SHMC_CHUNK 128u  /* entries copied before any object is created */

extern PyTypeObject shmc_pyresource_type, shmc_pyiter_type, shmc_pydelta_type,
    shmc_pywhere_type, shmc_pydelivered_type;
extern PyObject *shmc_hot_lapped; /* shmcache.errors.Lapped */

/* ---- pyreader.c: a Root's life -------------------------------------------------------------- */

/* Drops the root kept for the next look-up, and its pin with it. */
void shmc_pyreader_release(shmc_pyreader *self);
/* Gives the handle back if it is closed and has no users. May run on_idle. */
void shmc_pyreader_settle(shmc_pyreader *self);

/* The latest generation, with a pin of its own: for callers that expose it to Python. New
 * reference; NULL with ClosedError, ForkedError or CorruptSegment set. */
shmc_pyroot *shmc_pyreader_pin(shmc_pyreader *self);
void shmc_pyroot_dealloc(PyObject *object);
/* A new reference for Python, which is not dropped by shmc_pyroot_drop(): the root gets a pin
 * of its own if it has the quick one. */
PyObject *shmc_pyroot_show(shmc_pyroot *root);

/* ---- pyread.c ------------------------------------------------------------------------------- */

/* A private copy of bytes that grows: keys to seek, keys copied out of the arena. */
struct shmc_pybytes {
    uint8_t *at;
    size_t length, capacity;
    uint8_t own[256];
};
void shmc_pybytes_init(struct shmc_pybytes *bytes);
void shmc_pybytes_free(struct shmc_pybytes *bytes);
/* Room for `more` bytes after the present ones, already counted; NULL: no memory (nothing set). */
uint8_t *shmc_pybytes_extend(struct shmc_pybytes *bytes, size_t more);
int shmc_pybytes_append(struct shmc_pybytes *bytes, const uint8_t *from, size_t length);

/* 1: the UTF-8 bytes of a key, which live as long as the key. 0: a str with lone surrogates, which
 * no cache can hold. -1: TypeError. */
int shmc_pykey_slow(PyObject *key, const uint8_t **bytes, size_t *length);

static inline int shmc_pykey(PyObject *key, const uint8_t **bytes, size_t *length)
{
    if (!PyUnicode_Check(key) || !PyUnicode_IS_COMPACT_ASCII(key))
        return shmc_pykey_slow(key, bytes, length);
    *bytes = PyUnicode_DATA(key);
    *length = (size_t)PyUnicode_GET_LENGTH(key);
    return 1;
}

/* A str, or 0 and *bytes NULL for None; -1 with TypeError, UnicodeEncodeError set. */
int shmc_pykey_or_none(PyObject *key, const uint8_t **bytes, size_t *length);

/* For "O&": an unsigned 64-bit integer (uint64_t *). */
int shmc_pyuint64(PyObject *object, void *to);

/* Step 2 above. 0: the copies are valid and `status` is OK, NOT_FOUND or EMPTY; else -1. */
int shmc_pyroot_settle(const shmc_pyroot *root, enum shmc_status status, const char *doing);

/* A resource as one generation sees it. */
struct shmc_pyrecord {
    uint64_t generation; /* 0: not loaded */
    struct shmc_record record;
    shmc_offset indices;
};
int shmc_pyrecord_load(const shmc_pyroot *root, uint64_t id, struct shmc_pyrecord *record);
int shmc_pyrecord_index(const shmc_pyroot *root, const struct shmc_pyrecord *record,
                        uint64_t index, struct shmc_record_index *loaded);
/* The resource as a dict, see pymodule.c. */
PyObject *shmc_pyrecord_dict(shmc_pyroot *root, const struct shmc_pyrecord *record);
/* The current content of its contact block, see pymodule.c. */
PyObject *shmc_pycontact(shmc_pyroot *root, const struct shmc_pyrecord *record);
/* The value of a string word, None for nothing. A version that is "" becomes None, too. */
PyObject *shmc_pystring_or_none(shmc_pyroot *root, shmc_word word);
PyObject *shmc_pyversion(shmc_pyroot *root, shmc_word word);

/* Looks a key up: 1 found, *value (if not NULL) is a new reference; 0 absent; -1. */
int shmc_pyroot_find(shmc_pyroot *root, const struct shmc_record *record, const uint8_t *key,
                     size_t length, PyObject **value);
/* The arguments of get(key, default=None), `first` of them before the key. */
int shmc_pyget_arguments(PyObject *const *arguments, Py_ssize_t count, PyObject *names,
                         Py_ssize_t first, PyObject **fallback);

/* ---- pybounds.c ----------------------------------------------------------------------------- */

enum shmc_want { SHMC_WANT_ITEMS, SHMC_WANT_KEYS, SHMC_WANT_VALUES };

/* Where a walk starts and ends; independent of the root, so that it can start again. */
struct shmc_pybounds {
    struct shmc_pybytes start; /* the first tree key; empty: from the beginning */
    struct shmc_pybytes stop;  /* primary: key, index: escaped value, exclusive; see has_stop */
    struct shmc_pybytes prefix; /* of the keys of one index value; empty: all */
    bool has_stop;
    bool one_value;  /* all entries of an index value */
    bool with_value; /* results carry the index value in front */
    enum shmc_want want;
    uint64_t limit; /* 0: no limit */
    int64_t index;  /* -1: the primary tree */
    PyObject *where; /* borrowed: a Where; NULL: all */
    struct shmc_pyform form; /* of a page of JSON; its text is borrowed */
};
void shmc_pybounds_init(struct shmc_pybounds *bounds);
void shmc_pybounds_free(struct shmc_pybounds *bounds);
/* These fill bounds from a call's arguments; initialise them before, free them in any case. */
typedef int (*shmc_pyarguments)(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds);
int shmc_pyscan_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds);
int shmc_pyby_index_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds);
int shmc_pyindex_values_arguments(PyObject *args, PyObject *kwargs, struct shmc_pybounds *bounds);

/* ---- pywhere.c ------------------------------------------------------------------------------ */

/* Moves the entries whose objects (in this column) pass to the front and returns their number, at
 * most SHMC_CHUNK. The result is valid only after the root was settled. */
size_t shmc_pywhere_keep(PyObject *where, const shmc_pyroot *root, struct shmc_entry *entries,
                         unsigned column, size_t count);

/* ---- pyscan.c ------------------------------------------------------------------------------- */

struct shmc_pyscan {
    shmc_pyroot *root; /* borrowed */
    const struct shmc_pybounds *bounds;
    shmc_offset directory, primary;
    struct { /* where the last key of an index walk lies in the primary tree */
        struct shmc_cursor cursor;
        bool on;
        unsigned run, pause, gap;
    } beside;
    shmc_word value; /* common to all entries, if they have one; SHMC_NOTHING: not seen yet */
    uint64_t left;  /* entries that may still come, by the record's count (VALUE4) */
    uint64_t wanted; /* left of the limit */
    bool ended;     /* nothing after the chunk */
    size_t count, position, chunk;
    struct shmc_pybytes key;
    struct shmc_cursor cursor;
    struct shmc_entry entries[SHMC_CHUNK]; /* primary: key, value; index: value, key, object */
};
/* 0 or -1; call shmc_pyscan_close() in both cases. The root and the bounds must stay. */
int shmc_pyscan_open(struct shmc_pyscan *scan, shmc_pyroot *root,
                     const struct shmc_pyrecord *record, const struct shmc_pybounds *bounds);
/* The next entry, already settled: 1; 0 at the end; -1 with an exception set. */
int shmc_pyscan_step(struct shmc_pyscan *scan, struct shmc_entry *entry);
/* The next result; NULL without an exception at the end. */
PyObject *shmc_pyscan_next(struct shmc_pyscan *scan);
void shmc_pyscan_close(struct shmc_pyscan *scan);

/* A query on one resource in one root: a walk as a list, or distinct index values. */
typedef PyObject *(*shmc_pyquestion)(shmc_pyroot *root, const struct shmc_pyrecord *record,
                                     const struct shmc_pybounds *bounds);
PyObject *shmc_pyscan_list(shmc_pyroot *root, const struct shmc_pyrecord *record,
                           const struct shmc_pybounds *bounds);
PyObject *shmc_pyindex_values(shmc_pyroot *root, const struct shmc_pyrecord *record,
                              const struct shmc_pybounds *bounds);

/* ---- pypage.c ------------------------------------------------------------------------------- */

/* For "O&": (keep, first, lead, enough), as Root.scan_json() takes it (struct shmc_pyform *). */
int shmc_pyform_read(PyObject *object, void *to);
/* (JSON text, number of objects, the last one's key or None, whether there may be more). */
PyObject *shmc_pyscan_json(shmc_pyroot *root, const struct shmc_pyrecord *record,
                           const struct shmc_pybounds *bounds);

/* ---- pydiff.c ------------------------------------------------------------------------------- */

PyObject *shmc_pyroot_diff(PyObject *self, PyObject *args);

/* ---- pyiter.c ------------------------------------------------------------------------------- */

PyObject *shmc_pyiter_new(shmc_pyroot *root, const struct shmc_pyrecord *record,
                          enum shmc_want want);

/* ---- pywait.c ------------------------------------------------------------------------------- */

PyObject *shmc_pyreader_wait(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ---- pyconsumers.c -------------------------------------------------------------------------- */

struct shmc_pyconsumer {
    uint64_t who, position;
    bool busy;
};
/* -1 with MemoryError set. */
int shmc_pyconsumer_note(shmc_pyreader *self, const struct shmc_pyconsumer *now, uint64_t taken,
                         uint64_t lapped);
PyObject *shmc_pyreader_note(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *shmc_pyreader_forget(PyObject *self, PyObject *who);
PyObject *shmc_pyreader_count_cut(PyObject *self, PyObject *unused);

/* ---- pydelta.c, pytake.c -------------------------------------------------------------------- */

#define SHMC_DELTA_PARTS 4u /* key, version, old, new */

struct shmc_pydelta {
    PyObject_HEAD
    shmc_pyroot *root;
    struct shmc_delta at;
    PyObject *made[SHMC_DELTA_PARTS]; /* NULL: not made yet */
};
PyObject *shmc_pydelta_new(shmc_pyroot *root, const struct shmc_delta *at);
/* Delivered as one event: neither another object under its key, nor a RELIST delta. */
bool shmc_pydelta_usual(const struct shmc_pydelta *self);
int shmc_pydelta_init(PyObject *module);

/* (i, n) or None: the hashes of that shard, both bounds inclusive. -1 with an exception set. */
int shmc_pyshard_range(PyObject *shard, uint64_t *first, uint64_t *last);

/* A list of up to `max` deltas of one resource from *cursor on, which moves past them. NULL with
 * an exception set, Lapped among them. */
PyObject *shmc_pyroot_deltas(shmc_pyroot *root, uint64_t resource, uint64_t max,
                             uint64_t *cursor);
PyObject *shmc_pyroot_take(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *shmc_pyreader_take(PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- retries -------------------------------------------------------------------------------- */

/* After a look-up failed: whether to repeat it once, on a new root. Clears the exception. */
static inline bool shmc_pyretry(unsigned *tries)
{
    if (*tries >= SHMC_RETRIES || !PyErr_ExceptionMatches(shmc_hot_errors.stale))
        return false;
    ++*tries;
    PyErr_Clear();
    return true;
}

#endif
