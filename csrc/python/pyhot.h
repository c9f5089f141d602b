/*
 * pyhot.h - the CPython extension (shmcache._hot): the hot path only.
 *
 *   pyshape.c   per-process cache of shapes: key objects, look-up, JSON fragments
 *   pyvalue.c   a word as a Python object; strings and numbers
 *   pyplain.c   a word as plain dicts and lists
 *   pyjson.c    a word as JSON bytes, with pyescape.c, pyscalar.c, pyout.c, pymemo.c
 *   pypretty.c  JSON laid out for people
 *   pyview.c    the common part of the two kinds of view
 *   pydict.c    View: the read-only dict that an object word stands for
 *   pyprompt.c  both at a prompt and in frameworks
 *   pylist.c    ListView: the read-only list that an array word stands for
 *   pymodel.c   Model: an object word with the attributes of a client's model (models/pymodel.h)
 *   pyread.c    Reader, Root, Resource: pins, look-ups, scans; batches of deltas
 *   pyput.c   dict -> word, put
 *   pyqueue.c   Queue: keys of work (queue/pyqueue.h)
 *   pymodule.c  the module itself
 *
 * Rules
 *   HOT1  No Python object is created, and no reference dropped, between the first load of
 *       an arena word and the validation of what was copied - except a str or bytes that
 *       serves as the private copy itself and is thrown away if the validation fails.
 *   HOT2  No pointer into the arena reaches a CPython function.
 *   HOT3  A view holds its root, a root holds its reader: the map outlives all of them.
 *   HOT4  Everything here runs with the GIL held, except the sleep in pywait.c; the only global
 *       state is the types and the exceptions, which live in the module's state or in static
 *       storage that is set once.
 */
#ifndef SHMC_PYHOT_H
#define SHMC_PYHOT_H

/* CPython's headers are full of assertions about themselves, some in macros that every field
 * access expands: they are off here. The core's own files keep theirs. */
#ifndef NDEBUG
#define NDEBUG 1
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core.h"

/* Exceptions of shmcache.errors, fetched once when the module is imported. */
extern struct shmc_hot_errors {
    PyObject *base;        /* ShmCacheError */
    PyObject *closed;      /* ClosedError */
    PyObject *forked;      /* ForkedError */
    PyObject *stale;       /* StaleObjectError */
    PyObject *corrupt;     /* CorruptSegment */
    PyObject *full;        /* CacheFull */
    PyObject *unsupported; /* UnsupportedValue */
    PyObject *limit;       /* LimitExceeded */
    PyObject *fenced;      /* FencedError */
    PyObject *busy;        /* BusyError */
    PyObject *shut_down;   /* QueueShutDown */
} shmc_hot_errors;

/* Sets the exception that belongs to a status; always returns NULL. */
PyObject *shmc_hot_raise(enum shmc_status status, const char *doing);

/* ---- shapes ----------------------------------------------------------------------- */

/*
 * A process's knowledge of a shape, keyed by its never-reused id (offsets are ABA).
 * Owned by the reader's cache; a holder takes a reference count.
 */
struct shmc_pyshape {
    Py_ssize_t references;
    uint64_t id;
    uint64_t count;
    PyObject *keys;          /* tuple of interned str, in order */
    PyObject *blank;         /* dict of the keys, all None, from which copies start; or NULL */
    uint32_t table_mask;     /* of index: open addressing on the keys' hashes */
    uint32_t *table;         /* position + 1, 0 = empty */
    uint8_t *json;           /* the keys as JSON: "key": , one after another; or NULL */
    uint32_t *json_ends;     /* where each ends in json */
    bool go;                 /* Go escapes one of them; valid once json is set */
    PyObject *attributes;    /* dict: a model's attribute -> position (pymodel.c); or NULL */
};
#define SHMC_JSON_SLACK 32u /* readable bytes after json, so that keys are copied in chunks */
struct shmc_pyshapes; /* the cache: bounded, per reader */

struct shmc_pyshapes *shmc_pyshapes_new(void);
void shmc_pyshapes_free(struct shmc_pyshapes *cache);
void shmc_pyshape_drop(struct shmc_pyshape *shape);
/* Position of a key, -1 if absent, -2 with an exception set (a key whose __eq__ raised). */
Py_ssize_t shmc_pyshape_find(const struct shmc_pyshape *shape, PyObject *key);
/* The dict of the keys, all None (borrowed); NULL with an exception set. It must not be changed. */
PyObject *shmc_pyshape_blank(struct shmc_pyshape *shape);
/* Fills json and json_ends; -1 with an exception set. */
int shmc_pyshape_render(struct shmc_pyshape *shape);

/* shmc_pyshape_find() for the usual case that the key is the very object of the shape: names
 * in a program's text are interned, and so are the shape's. shape may be NULL (that of {}). */
static inline Py_ssize_t shmc_pyshape_probe(const struct shmc_pyshape *shape, PyObject *key)
{
    if (shape != NULL && PyUnicode_CheckExact(key)) {
        const Py_hash_t hash = ((PyASCIIObject *)key)->hash;
        const uint32_t entry = shape->table[(uint32_t)hash & shape->table_mask];

        if (entry != 0 && PyTuple_GET_ITEM(shape->keys, entry - 1) == key)
            return (Py_ssize_t)entry - 1;
    }
    return shmc_pyshape_find(shape, key);
}

/* ---- reader, root --------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    struct shmc_reader *reader; /* NULL once closed and the last root is gone */
    struct shmc_pyshapes *shapes;
    PyObject *owner;     /* uses the handle; NULL once that was given back */
    PyObject *opened;    /* keeps handle and maps until this Reader is freed (OWNED4); or NULL */
    PyObject *on_idle;   /* called when closed and the last root has gone: unmaps; or NULL */
    struct shmc_pyroot *current; /* the root of the quick pin, kept for the next look-up; or NULL */
    Py_ssize_t roots;    /* live ones */
    Py_ssize_t sleepers; /* threads in wait() */
    struct shmc_pyconsumer *consumers; /* see pyconsumers.c; or NULL */
    size_t consumer_count, consumer_room;
    bool closed;
} shmc_pyreader;

typedef struct shmc_pyroot {
    PyObject_HEAD
    shmc_pyreader *reader;
    struct shmc_pinned at;
    uint64_t instance; /* of the DATA segment: views of another arena are copied by value */
    bool quick;        /* it is its reader's current one, and has the quick pin ... */
    bool resting;      /* ... or not even that: only the reader holds it */
} shmc_pyroot;

extern PyTypeObject shmc_pyopened_type, shmc_pyreader_type, shmc_pyroot_type;

/* The root of the latest generation: the current one if nothing was published since. New
 * reference; NULL with ClosedError, ForkedError or CorruptSegment set. */
shmc_pyroot *shmc_pyreader_root(shmc_pyreader *reader);

/* Whether the cache must be attached again: the handle is the parent's, or its instance is over.
 * Costs two loads. */
static inline bool shmc_pyreader_spent(const shmc_pyreader *reader)
{
    return reader->reader != NULL && !reader->closed &&
           (shmc_reader_forked(reader->reader) || shmc_reader_over(reader->reader));
}

/* Drops a reference. A current root without other holders rests: its pin is returned. */
static inline void shmc_pyroot_drop(shmc_pyroot *root)
{
    if (Py_REFCNT(root) == 2 && root->quick && !root->resting) {
        root->resting = true;
        shmc_quick_unpin(root->reader->reader);
    }
    Py_DECREF(root);
}

/* 0 if data read through the root is valid; -1 with ClosedError, ForkedError or StaleObjectError
 * set. To be called after copying and before creating anything. */
int shmc_pyroot_check(const shmc_pyroot *root);

/* The same for the usual case of success: closed, forked and floor are one load each. */
static inline int shmc_pyroot_valid(const shmc_pyroot *root)
{
    const struct shmc_reader *reader = root->reader->reader;

    if (!root->reader->closed && !shmc_reader_forked(reader) &&
        shmc_valid(reader->super, root->at.generation))
        return 0;
    return shmc_pyroot_check(root);
}

static inline const struct shmc_span *shmc_pyroot_span(const shmc_pyroot *root)
{
    return &root->reader->reader->span;
}

/* For data that cannot be right: raises the error of a stale root, else CorruptSegment. NULL. */
PyObject *shmc_pyroot_unreadable(const shmc_pyroot *root);

/* The cached shape of an open object; new reference count. Reads the key words, validates,
 * creates the keys. NULL with an exception set. */
struct shmc_pyshape *shmc_pyshape_get(shmc_pyroot *root, const struct shmc_object *object);

/* ---- values --------------------------------------------------------------------------- */

/* The Python object for a word: str, int, float, bool, None, View or ListView. Validates. */
PyObject *shmc_pyvalue(shmc_pyroot *root, shmc_word word);
/* The same for the value of a key, which is an object: any other word is corruption. */
PyObject *shmc_pyobject(shmc_pyroot *root, shmc_word word);
/* The same as plain dict, list...: a copy that outlives everything. */
PyObject *shmc_pyvalue_plain(shmc_pyroot *root, shmc_word word);
/* A string word as str (validated). */
PyObject *shmc_pystring(shmc_pyroot *root, shmc_word word);
/* How the objects of a list are written. */
enum shmc_keep { SHMC_KEEP_ALL, SHMC_KEEP_UNTYPED, SHMC_KEEP_METADATA };
struct shmc_pyform {
    enum shmc_keep keep; /* their members: all; all but kind and apiVersion; metadata alone */
    const char *first;   /* members of the same text in front of each one's own, with commas */
    size_t first_length;
    const char *lead; /* text in front of the whole page */
    size_t lead_length;
    uint64_t enough; /* bytes: the object that reaches this length is the last one */
    bool lean;       /* metadata.managedFields are left out */
};
/* The word as compact JSON in a new bytes object; in `form` (without its lead), or unchanged. */
PyObject *shmc_pyjson(shmc_pyroot *root, shmc_word word, const struct shmc_pyform *form);
/* 1: *word is the next one; 0: no more words; -1 with an exception set. */
typedef int (*shmc_pyjson_next)(void *from, shmc_word *word);
/* The words as compact JSON, with commas between them, in one new bytes object. */
PyObject *shmc_pyjson_many(shmc_pyroot *root, const struct shmc_pyform *form,
                           shmc_pyjson_next next, void *from);

/* How many words a copy of one value may take, by VALUE4: a few shared blocks of a damaged arena
 * can expand without end. An object whose parts repeat takes more in a copy than in the arena, but
 * no more than its own text allows: 128 MiB go beyond every object of an API server. */
static inline uint64_t shmc_copy_limit(const struct shmc_span *span)
{
    const uint64_t limit = (UINT64_C(1) << 24) + shmc_span_size(span);

    return limit < UINT64_C(1) << 28 ? limit : UINT64_C(1) << 28;
}

/* How many more bytes a text takes once it is escaped for JSON, and the escaping itself; `from`
 * may lie after `to` in the same buffer, by at least that much. Returns the end of `to`. */
size_t shmc_json_extra(const uint8_t *from, size_t length);
/* Whether Go's encoder escapes more of the text. */
bool shmc_json_go_text(const uint8_t *from, size_t length);
uint8_t *shmc_json_escape(const uint8_t *from, size_t length, uint8_t *to);

typedef struct {
    PyObject_HEAD
    shmc_pyroot *root;
    shmc_word word;
    struct shmc_pyshape *shape; /* of a View once opened; NULL before and for {} */
    shmc_offset words;          /* of the first value once opened; 0 before */
    uint64_t count;
} shmc_pyview;

extern PyTypeObject shmc_pyview_type, shmc_pylist_type; /* View, ListView */

/* New reference; the word must be an array or object word. Steals no reference. */
PyObject *shmc_pyview_new(shmc_pyroot *root, shmc_word word);

static inline bool shmc_is_object(shmc_word word)
{
    return shmc_tag(word) == SHMC_TAG_OBJECT || word == SHMC_EMPTY_OBJECT;
}

static inline bool shmc_is_array(shmc_word word)
{
    return shmc_tag(word) == SHMC_TAG_ARRAY || word == SHMC_EMPTY_ARRAY;
}

/* Fills shape, words and count, validated. 0, or -1 with an exception set. */
int shmc_pyview_open(shmc_pyview *view);

/* An open view whose root is still valid. Every access of both types begins with it. */
static inline int shmc_pyview_ready(shmc_pyview *view)
{
    return view->words != 0 ? shmc_pyroot_valid(view->root) : shmc_pyview_open(view);
}

/* Element or value number `index` of an open view; index < count. */
static inline PyObject *shmc_pyview_item(shmc_pyview *view, uint64_t index)
{
    return shmc_pyvalue(view->root,
                        shmc_load_at(shmc_pyroot_span(view->root), view->words + index * 8));
}

/* Whether the words of two open views refer to the same block of the same segment. */
static inline bool shmc_pyview_same(const shmc_pyview *a, const shmc_pyview *b)
{
    return a->word == b->word && a->root->instance == b->root->instance;
}

/* Whether two entries of open views are equal: 1, 0, or -1 with an exception set. */
int shmc_pyview_equal_items(shmc_pyview *a, uint64_t at_a, shmc_pyview *b, uint64_t at_b);

/* The common behaviour of both types: conversions, refusal of changes, leaving the free list. */
PyObject *shmc_pyview_plain(PyObject *view, PyObject *unused);
PyObject *shmc_pyview_reduce(PyObject *view, PyObject *unused);
PyObject *shmc_pyview_deepcopy(PyObject *view, PyObject *memo);
PyObject *shmc_pyview_json(PyObject *view, PyObject *unused);
PyObject *shmc_pyview_json_in(PyObject *view, PyObject *form);
int shmc_pyview_setattr(PyObject *view, PyObject *name, PyObject *value);
int shmc_pyview_setitem(PyObject *view, PyObject *key, PyObject *value);
PyObject *shmc_pyview_inplace(PyObject *view, PyObject *other);
void shmc_pyview_dealloc(PyObject *view);
/* Raises the AttributeError of a name that is neither attribute nor key. NULL. */
PyObject *shmc_pyview_no_attribute(PyObject *view, PyObject *name);
/* Bounded whatever the size; a view that can no longer be read shows that and raises nothing. */
PyObject *shmc_pyview_repr(PyObject *view);
int shmc_pylist_init(void); /* its iterator */
/* pyprompt.c: what prompts, notebooks and pydantic ask of both types. */
PyObject *shmc_pyview_schema(PyObject *type, PyObject *args);
PyObject *shmc_pyview_serializer(PyObject *view, void *unused);
PyObject *shmc_pyview_pretty(PyObject *view, PyObject *args);
PyObject *shmc_pyview_html(PyObject *view, PyObject *unused);
PyObject *shmc_pyview_dir(PyObject *view, PyObject *unused);
int shmc_pyprompt_init(void);
/* __class__ and the constructor: a dict or list, as a proxy has them. */
PyObject *shmc_pyview_class(PyObject *view, void *unused);
PyObject *shmc_pyview_plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
/* "<Pod prod/web-0 rv=7>" for a View of a Kubernetes object, None for any other. */
PyObject *shmc_pyview_name(PyObject *view);
/* collections.abc.<abc>.register(type) */
int shmc_pyview_register(const char *abc, PyTypeObject *type);

/* ---- module ------------------------------------------------------------------------------ */

int shmc_pyview_init(PyObject *module);  /* View, ListView */
int shmc_pymodel_init(PyObject *module); /* Model, ModelList, ModelMap, ModelClass ... */
int shmc_pyread_init(PyObject *module);  /* Reader, Root, Resource, Delta */
int shmc_pyqueue_init(PyObject *module); /* Queue */
int shmc_pywrite_init(PyObject *module); /* put, put_many, stage ... */

#endif
