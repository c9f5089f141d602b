/*
 * pytake.c - batches of Deltas from the ring.
 *
 *   ring --> batch[SHMC_BATCH] --> settle --> filter --> Delta objects
 *
 * The filter looks only at the copied slot: a delta that a consumer does not want costs it no
 * object. A RELIST delta means "take the difference" and passes every shard; so does a delta
 * whose two objects have different uids, since they may belong to different shards.
 *
 * Shards are those of KEP-5866: the space of 64-bit hashes is cut into n contiguous ranges,
 * shard i of n has floor(i * 2^64 / n) <= hash < floor((i + 1) * 2^64 / n).
 */
#include "python/read/pyread.h"

#define SHMC_BATCH 64u

PyObject *shmc_hot_lapped;

__extension__ typedef unsigned __int128 wide;

struct filter {
    uint64_t first, last; /* of the hashes, both inclusive */
    bool by_resource;
    uint64_t resources[SHMC_MAX_RESOURCES / 64];
};

struct request {
    uint64_t cursor;
    size_t max;
    struct filter filter;
};

/* ---- arguments ------------------------------------------------------------------------------ */

static int add_resource(struct filter *filter, PyObject *object)
{
    uint64_t id;

    if (!shmc_pyuint64(object, &id))
        return -1;
    if (id >= SHMC_MAX_RESOURCES) {
        PyErr_Format(PyExc_ValueError, "ids of resources must be below %u", SHMC_MAX_RESOURCES);
        return -1;
    }
    filter->resources[id / 64] |= UINT64_C(1) << (id % 64);
    return 0;
}

static int set_resources(struct filter *filter, PyObject *resources)
{
    PyObject *item;
    int result = 0;

    filter->by_resource = resources != Py_None;
    if (!filter->by_resource)
        return 0;
    memset(filter->resources, 0, sizeof filter->resources);
    PyObject *iterator = PyObject_GetIter(resources);
    if (iterator == NULL)
        return -1;
    while (result == 0 && (item = PyIter_Next(iterator)) != NULL) {
        result = add_resource(filter, item);
        Py_DECREF(item);
    }
    Py_DECREF(iterator);
    return result < 0 || PyErr_Occurred() ? -1 : 0;
}

int shmc_pyshard_range(PyObject *shard, uint64_t *first, uint64_t *last)
{
    uint64_t i, n;

    *first = 0;
    *last = UINT64_MAX;
    if (shard == Py_None)
        return 0;
    if (!PyTuple_Check(shard)) {
        PyErr_SetString(PyExc_TypeError, "shard must be a tuple (i, n), or None");
        return -1;
    }
    if (!PyArg_ParseTuple(shard, "O&O&;shard must be a tuple (i, n)", shmc_pyuint64, &i,
                          shmc_pyuint64, &n))
        return -1;
    if (i >= n) {
        PyErr_SetString(PyExc_ValueError, "shard (i, n): 0 <= i < n");
        return -1;
    }
    *first = (uint64_t)(((wide)i << 64) / n);
    *last = (uint64_t)((((wide)i + 1) << 64) / n - 1); /* for i + 1 == n: 2^64 - 1 */
    return 0;
}

static int parse(PyObject *args, PyObject *kwargs, struct request *request)
{
    static char *names[] = {"cursor", "max", "resources", "shard", NULL};
    PyObject *resources = Py_None, *shard = Py_None;
    Py_ssize_t max;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&n|OO:take", names, shmc_pyuint64,
                                     &request->cursor, &max, &resources, &shard))
        return -1;
    if (max < 1) {
        PyErr_SetString(PyExc_ValueError, "max must be the number of deltas to take, at least 1");
        return -1;
    }
    request->max = (size_t)max;
    if (set_resources(&request->filter, resources) < 0)
        return -1;
    return shmc_pyshard_range(shard, &request->filter.first, &request->filter.last);
}

/* ---- taking --------------------------------------------------------------------------------- */

static bool passes(const struct filter *filter, const struct shmc_delta *delta)
{
    const uint64_t bit = UINT64_C(1) << (delta->resource % 64);

    if (filter->by_resource && (filter->resources[delta->resource / 64] & bit) == 0)
        return false;
    return delta->kind == SHMC_RELIST || delta->flags & SHMC_FLAG_RECREATED ||
           (delta->shard >= filter->first && delta->shard <= filter->last);
}

/* The ring returned a whole slot; whether its content is plausible is checked here (VALUE2). */
static enum shmc_status check_batch(const struct shmc_delta *deltas, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (deltas[i].kind < SHMC_ADDED || deltas[i].kind > SHMC_RELIST ||
            deltas[i].resource >= SHMC_MAX_RESOURCES)
            return SHMC_CORRUPT;
    }
    return SHMC_OK;
}

static int append(PyObject *list, shmc_pyroot *root, const struct filter *filter,
                  const struct shmc_delta *deltas, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!passes(filter, &deltas[i]))
            continue;
        PyObject *delta = shmc_pydelta_new(root, &deltas[i]);
        const int result = delta == NULL ? -1 : PyList_Append(list, delta);
        Py_XDECREF(delta);
        if (result < 0)
            return -1;
    }
    return 0;
}

static void raise_lapped(shmc_pyroot *root)
{
    PyObject *shown = shmc_pyroot_show(root);
    PyObject *position = PyLong_FromUnsignedLongLong(root->at.head);
    PyObject *error =
        position == NULL ? NULL : PyObject_CallOneArg(shmc_hot_lapped, position);

    if (error != NULL && PyObject_SetAttrString(error, "position", position) == 0 &&
        PyObject_SetAttrString(error, "root", shown) == 0)
        PyErr_SetObject(shmc_hot_lapped, error);
    Py_XDECREF(position);
    Py_XDECREF(error);
    Py_DECREF(shown);
}

/* One batch. 1: continue, 0: nothing more now, -1. */
static int take_batch(PyObject *list, shmc_pyroot *root, const struct request *request,
                      uint64_t *cursor)
{
    struct shmc_delta deltas[SHMC_BATCH];
    const size_t room = request->max - (size_t)PyList_GET_SIZE(list);
    size_t count = 0;

    enum shmc_status status = shmc_ring_take(root->reader->reader, &root->at, *cursor, deltas,
                                             room < SHMC_BATCH ? room : SHMC_BATCH, &count);
    const bool lapped = status == SHMC_LAPPED;
    if (status == SHMC_OK)
        status = check_batch(deltas, count);
    if (shmc_pyroot_settle(root, lapped ? SHMC_EMPTY : status, "taking deltas") < 0)
        return -1;
    if (lapped && *cursor == request->cursor) {
        raise_lapped(root);
        return -1;
    }
    if (status != SHMC_OK)
        return 0; /* lapped after a first batch: the next call raises Lapped */
    *cursor += count;
    return append(list, root, &request->filter, deltas, count) < 0 ? -1 : 1;
}

static PyObject *take(shmc_pyroot *root, const struct request *request, uint64_t *cursor)
{
    PyObject *list = PyList_New(0);
    int more = list != NULL;

    *cursor = request->cursor;
    while (more > 0 && (size_t)PyList_GET_SIZE(list) < request->max)
        more = take_batch(list, root, request, cursor);
    if (more < 0)
        Py_CLEAR(list);
    return list;
}

PyObject *shmc_pyroot_deltas(shmc_pyroot *root, uint64_t resource, uint64_t max,
                             uint64_t *cursor)
{
    struct request request = {
        .cursor = *cursor,
        .max = (size_t)max,
        .filter = {.last = UINT64_MAX, .by_resource = true},
    };

    request.filter.resources[resource / 64] = UINT64_C(1) << (resource % 64);
    return take(root, &request, cursor);
}

PyObject *shmc_pyroot_take(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct request request;
    uint64_t cursor;

    if (parse(args, kwargs, &request) < 0)
        return NULL;
    PyObject *list = take((shmc_pyroot *)self, &request, &cursor);
    return list == NULL ? NULL : Py_BuildValue("(NK)", list, (unsigned long long)cursor);
}

PyObject *shmc_pyreader_take(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct request request;
    PyObject *list = NULL;
    unsigned tries = 0;
    uint64_t cursor;

    if (parse(args, kwargs, &request) < 0)
        return NULL;
    do {
        shmc_pyroot *root = shmc_pyreader_root((shmc_pyreader *)self);
        if (root == NULL)
            return NULL;
        list = take(root, &request, &cursor);
        shmc_pyroot_drop(root);
    } while (list == NULL && shmc_pyretry(&tries));
    return list == NULL ? NULL : Py_BuildValue("(NK)", list, (unsigned long long)cursor);
}
