/*
 * pywhere.c - Where: a selector compiled to tests of words, run before any object is made.
 *
 *   groups   head (keys that lead to a word)  -->  tests of the value there
 *            ("metadata", "labels")                ("app",) in {"web"}, ...
 *            ("spec", "nodeName")                  () = "node-7"
 *   hashes   hash of metadata.uid, or of another text of the metadata, in one of several ranges
 *
 * All objects of a chunk go through one step before the next begins: the data for the next step
 * is prefetched while this one runs. Two things make a step cheap:
 *   - a key's member is remembered by the shape of the object (whose id is never used again);
 *   - equal values are one block, so that a group's result is remembered by the word it was
 *     computed for (within one generation: later the block may be another).
 *
 * Results are valid only after shmc_pyroot_settle() (VALUE3). A broken offset is treated as an
 * absent value: either the generation is stale, and settling reports it, or look-ups meet it as
 * well. Everything remembered from a generation that proves stale is forgotten: garbage may bear
 * the id of a shape that is yet to come.
 */
#include "python/read/pyread.h"
#include "python/read/pywheretest.h"

#define REMEMBERED 256u /* results of a group, a power of two */

struct head {
    struct shmc_wheretext key;
    struct shmc_members members;
};

struct group {
    size_t head_length, test_count;
    struct head *head;
    struct shmc_wheretest *tests;
    shmc_word asked[REMEMBERED];
    bool answers[REMEMBERED];
};

struct range {
    uint64_t first, last;
};

struct shmc_pywhere {
    PyObject_HEAD
    PyObject *source; /* owns the texts */
    struct group *groups;
    size_t group_count;
    size_t range_count; /* 0: every hash */
    struct range *ranges;
    struct head hashed[2]; /* "metadata", "uid" or "namespace" */
    uint64_t instance, generation; /* of the remembered results */
    bool doubtful; /* results were read while their generation was being revoked */
};

/* ---- a chunk -------------------------------------------------------------------------------- */

static void ask_ahead(const struct shmc_span *span, const shmc_word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (shmc_is_block(words[i]))
            shmc_fetch(span, shmc_block_of(words[i]));
    }
}

static void follow(const struct shmc_span *span, struct head *head, size_t length,
                   shmc_word *words, size_t count)
{
    for (size_t step = 0; step < length; step++) {
        ask_ahead(span, words, count);
        for (size_t i = 0; i < count; i++)
            words[i] = shmc_members_find(span, &head[step].members, words[i], head[step].key.at,
                                         head[step].key.length);
    }
}

static bool answer(const struct shmc_span *span, struct group *group, shmc_word word)
{
    const size_t at = (word * UINT64_C(0x9e3779b97f4a7c15)) >> 56;
    bool all = true;

    static_assert(REMEMBERED == 256, "eight bits of the product");
    if (group->asked[at] == word)
        return group->answers[at];
    for (size_t i = 0; all && i < group->test_count; i++)
        all = shmc_wheretest_passes(span, word, &group->tests[i]);
    group->asked[at] = word;
    group->answers[at] = all;
    return all;
}

/* Results belong to one generation; a shape's id to one DATA segment. */
static void remember_for(struct shmc_pywhere *where, const shmc_pyroot *root)
{
    const bool moved = where->doubtful || where->instance != root->instance;

    if (!moved && where->generation == root->at.generation)
        return;
    for (size_t i = 0; i < where->group_count; i++) {
        struct group *group = &where->groups[i];
        memset(group->asked, 0xff, sizeof group->asked); /* no word */
        for (size_t k = 0; moved && k < group->head_length; k++)
            group->head[k].members = (struct shmc_members){0};
    }
    if (moved) {
        where->hashed[0].members = (struct shmc_members){0};
        where->hashed[1].members = (struct shmc_members){0};
    }
    where->instance = root->instance;
    where->generation = root->at.generation;
    where->doubtful = false;
}

static bool in_ranges(const struct shmc_pywhere *where, uint64_t hash)
{
    for (size_t i = 0; i < where->range_count; i++) {
        if (hash >= where->ranges[i].first && hash <= where->ranges[i].last)
            return true;
    }
    return false;
}

static void ask_hash(struct shmc_pywhere *where, const struct shmc_span *span,
                     const struct shmc_entry *entries, unsigned column, size_t count, bool *pass)
{
    shmc_word words[SHMC_CHUNK];

    for (size_t i = 0; i < count; i++)
        words[i] = entries[i].words[column];
    follow(span, where->hashed, 2, words, count);
    ask_ahead(span, words, count);
    for (size_t i = 0; i < count; i++)
        pass[i] = pass[i] && in_ranges(where, shmc_shard_hash(span, words[i]));
}

size_t shmc_pywhere_keep(PyObject *object, const shmc_pyroot *root, struct shmc_entry *entries,
                         unsigned column, size_t count)
{
    struct shmc_pywhere *where = (struct shmc_pywhere *)object;
    const struct shmc_span *span = shmc_pyroot_span(root);
    bool pass[SHMC_CHUNK];
    size_t kept = 0;

    assert(count <= SHMC_CHUNK);
    memset(pass, true, sizeof pass);
    remember_for(where, root);
    if (where->range_count > 0)
        ask_hash(where, span, entries, column, count, pass);
    for (size_t g = 0; g < where->group_count; g++) {
        struct group *group = &where->groups[g];
        shmc_word words[SHMC_CHUNK];

        for (size_t i = 0; i < count; i++)
            words[i] = entries[i].words[column];
        follow(span, group->head, group->head_length, words, count);
        for (size_t i = 0; i < count; i++)
            pass[i] = pass[i] && answer(span, group, words[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (pass[i])
            entries[kept++] = entries[i];
    }
    where->doubtful = !shmc_valid(root->reader->reader->super, root->at.generation);
    return kept;
}

/* ---- compiling ------------------------------------------------------------------------------ */

static int to_group(PyObject *item, struct group *group)
{
    PyObject *head, *tests;
    struct shmc_wheretext *keys = NULL;
    int result = -1;

    if (!PyArg_ParseTuple(item, "OO!;a group must be (head, tests)", &head, &PyTuple_Type, &tests))
        return -1;
    if (shmc_wheretexts_parse(head, &keys, &group->head_length) == 0) {
        group->head = PyMem_Calloc(group->head_length + 1, sizeof *group->head);
        group->tests = PyMem_Calloc((size_t)PyTuple_GET_SIZE(tests) + 1, sizeof *group->tests);
        result = group->head == NULL || group->tests == NULL ? -1 : 0;
        if (result < 0)
            PyErr_NoMemory();
    }
    for (size_t i = 0; result == 0 && i < group->head_length; i++) {
        group->head[i].key = keys[i];
        if (keys[i].at == NULL) {
            PyErr_SetString(PyExc_ValueError, "a head cannot have wildcards");
            result = -1;
        }
    }
    PyMem_Free(keys);
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(tests); i++, group->test_count++)
        result = shmc_wheretest_parse(PyTuple_GET_ITEM(tests, i), &group->tests[group->test_count]);
    return result;
}

static int to_groups(struct shmc_pywhere *where, PyObject *groups)
{
    where->groups = PyMem_Calloc((size_t)PyTuple_GET_SIZE(groups) + 1, sizeof *where->groups);
    if (where->groups == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups); i++) {
        where->group_count++; /* counted first, so that it is freed even if it fails half-way */
        if (to_group(PyTuple_GET_ITEM(groups, i), &where->groups[i]) < 0)
            return -1;
    }
    return 0;
}

static int to_range(PyObject *item, struct range *range)
{
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "O&O&;a range of hashes must be (first, last)", shmc_pyuint64,
                          &range->first, shmc_pyuint64, &range->last)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a range of hashes must be (first, last)");
        return -1;
    }
    return 0;
}

static int make_ranges(struct shmc_pywhere *where, const char *member, Py_ssize_t count)
{
    where->hashed[0].key = (struct shmc_wheretext){(const uint8_t *)"metadata", 8};
    where->hashed[1].key = (struct shmc_wheretext){(const uint8_t *)member, strlen(member)};
    where->ranges = PyMem_Calloc((size_t)count, sizeof *where->ranges);
    if (where->ranges != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int to_shard(struct shmc_pywhere *where, PyObject *shard)
{
    if (make_ranges(where, "uid", 1) < 0)
        return -1;
    where->range_count = 1;
    return shmc_pyshard_range(shard, &where->ranges->first, &where->ranges->last);
}

/* (member of the metadata, ((first, last), ...)); the text of the member lives in its tuple. */
static int to_hashes(struct shmc_pywhere *where, PyObject *hashes)
{
    const char *member;
    PyObject *ranges;

    if (!PyTuple_Check(hashes)) {
        PyErr_SetString(PyExc_TypeError, "hashes must be a tuple (member, ranges)");
        return -1;
    }
    if (!PyArg_ParseTuple(hashes, "sO!;hashes must be (member, ranges)", &member, &PyTuple_Type,
                          &ranges))
        return -1;
    if (PyTuple_GET_SIZE(ranges) == 0) {
        PyErr_SetString(PyExc_ValueError, "hashes need at least one range");
        return -1;
    }
    if (make_ranges(where, member, PyTuple_GET_SIZE(ranges)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ranges); i++, where->range_count++) {
        if (to_range(PyTuple_GET_ITEM(ranges, i), &where->ranges[i]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *where_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"groups", "shard", "hashes", NULL};
    PyObject *groups, *shard = Py_None, *hashes = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OO:Where", names, &PyTuple_Type, &groups,
                                     &shard, &hashes))
        return NULL;
    if (shard != Py_None && hashes != Py_None) {
        PyErr_SetString(PyExc_TypeError, "a shard is a range of hashes: give one of them");
        return NULL;
    }
    struct shmc_pywhere *where = (struct shmc_pywhere *)type->tp_alloc(type, 0);
    if (where == NULL)
        return NULL;
    where->source = PyTuple_Pack(2, groups, hashes);
    if (where->source == NULL || to_groups(where, groups) < 0 ||
        (shard != Py_None && to_shard(where, shard) < 0) ||
        (hashes != Py_None && to_hashes(where, hashes) < 0))
        Py_CLEAR(where);
    return (PyObject *)where;
}

static void where_dealloc(PyObject *object)
{
    struct shmc_pywhere *where = (struct shmc_pywhere *)object;

    for (size_t i = 0; i < where->group_count; i++) {
        struct group *group = &where->groups[i];
        /* one more than counted: the last may have failed half-way */
        for (size_t k = 0; group->tests != NULL && k <= group->test_count; k++)
            shmc_wheretest_free(&group->tests[k]);
        PyMem_Free(group->tests);
        PyMem_Free(group->head);
    }
    PyMem_Free(where->groups);
    PyMem_Free(where->ranges);
    Py_XDECREF(where->source);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject shmc_pywhere_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Where",
    .tp_doc = PyDoc_STR("Where(groups, shard=None, hashes=None): a filter for the objects of a scan."),
    .tp_basicsize = sizeof(struct shmc_pywhere),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = where_new,
    .tp_dealloc = where_dealloc,
};
