/*
 * pyadvance.c - brings Delivered to the state of a root: along the ring, or by the whole tree.
 */
#include "python/deltas/pydelivered.h"

/* ---- changes, copied out of the arena before they count (HOT1) -------------------------------- */

struct change {
    uint64_t number;
    uint8_t kind;
    size_t key, uid, version, end; /* where each of them begins in the bytes */
};

struct changes {
    struct shmc_pybytes bytes;
    struct change at[SHMC_CHUNK];
    size_t count;
};

static struct shmc_known identity_of(const struct changes *changes, size_t i)
{
    const struct change *at = &changes->at[i];
    const uint8_t *bytes = changes->bytes.at;

    return (struct shmc_known){
        .key = {bytes + at->key, at->uid - at->key},
        .uid = {bytes + at->uid, at->version - at->uid},
        .version = {bytes + at->version, at->end - at->version},
    };
}

/* Appends a string's bytes, or nothing if the word is not a string. */
static enum shmc_status copy_text(const shmc_pyroot *root, shmc_word word,
                                  struct shmc_pybytes *bytes)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    struct shmc_string string;

    if (shmc_tag(word) != SHMC_TAG_SHORT && shmc_tag(word) != SHMC_TAG_STRING)
        return SHMC_OK;
    if (!shmc_string_open(span, word, &string))
        return SHMC_CORRUPT;
    if (string.length > sizeof bytes->own &&
        !shmc_valid(root->reader->reader->super, root->at.generation))
        return SHMC_STALE; /* do not allocate for a length that is not validated */
    uint8_t *to = shmc_pybytes_extend(bytes, string.length);
    if (to == NULL)
        return SHMC_NO_MEMORY;
    shmc_string_copy(span, &string, 0, string.length, to);
    return SHMC_OK;
}

static enum shmc_status copy_change(const shmc_pyroot *root, struct changes *changes,
                                    shmc_word key, shmc_word value, shmc_word version)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    struct change *at = &changes->at[changes->count];

    at->key = changes->bytes.length;
    enum shmc_status status = copy_text(root, key, &changes->bytes);
    at->uid = changes->bytes.length;
    if (status == SHMC_OK && value != SHMC_NOTHING) {
        const shmc_word metadata =
            shmc_object_find(span, value, (const uint8_t *)"metadata", 8);
        status = copy_text(root, shmc_object_find(span, metadata, (const uint8_t *)"uid", 3),
                           &changes->bytes);
    }
    at->version = changes->bytes.length;
    if (status == SHMC_OK)
        status = copy_text(root, version, &changes->bytes);
    at->end = changes->bytes.length;
    if (status == SHMC_OK)
        changes->count++;
    return status;
}

/* ---- along the ring ------------------------------------------------------------------------- */

static int apply_changes(struct shmc_delivered *self, const struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        const struct shmc_known what = identity_of(changes, i);
        const uint64_t stamp = changes->at[i].number + self->offset;
        const int result = changes->at[i].kind == SHMC_DELETED
                               ? shmc_lives_delete(&self->lives, &what, stamp)
                               : shmc_lives_put(&self->lives, &what, stamp, true);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* Copies the deltas of the resource; *end is where the ring stops helping, or the batch ends. */
static enum shmc_status copy_deltas(const struct shmc_delivered *self, const shmc_pyroot *root,
                                    const struct shmc_delta *deltas, size_t count,
                                    struct changes *changes, uint64_t *end, bool *relist)
{
    for (size_t i = 0; i < count; i++) {
        const struct shmc_delta *delta = &deltas[i];
        if (delta->resource != self->resource)
            continue;
        if (delta->kind == SHMC_RELIST) {
            *end = delta->number;
            *relist = true;
            return SHMC_OK;
        }
        changes->at[changes->count].number = delta->number;
        changes->at[changes->count].kind = delta->kind;
        const enum shmc_status status =
            copy_change(root, changes, delta->key, delta->new_value, delta->version);
        if (status != SHMC_OK)
            return status;
    }
    return SHMC_OK;
}

/* One batch. 1: continue, 0: the ring does not have the answer, -1. */
static int advance_batch(struct shmc_delivered *self, const shmc_pyroot *root,
                         struct changes *changes)
{
    struct shmc_delta deltas[SHMC_CHUNK];
    uint64_t number = self->position - self->offset, end;
    size_t count = 0;
    bool relist = false;

    enum shmc_status status = shmc_ring_take(root->reader->reader, &root->at, number, deltas,
                                             SHMC_CHUNK, &count);
    if (status == SHMC_LAPPED)
        return shmc_pyroot_settle(root, SHMC_OK, "taking deltas") < 0 ? -1 : 0;
    end = number + count;
    changes->count = changes->bytes.length = 0;
    if (status == SHMC_OK)
        status = copy_deltas(self, root, deltas, count, changes, &end, &relist);
    if (shmc_pyroot_settle(root, status, "taking deltas") < 0)
        return -1;
    self->whole = false; /* until all of them are applied */
    if (apply_changes(self, changes) < 0)
        return -1;
    self->whole = true;
    self->position = end + self->offset;
    return !relist;
}

/* 1: at the root's head, 0: the ring does not lead there, -1. */
static int advance_ring(struct shmc_delivered *self, const shmc_pyroot *root,
                        struct changes *changes)
{
    int more = self->whole && self->instance == root->instance;

    if (more && self->position - self->offset > root->at.head)
        return 1; /* older than the previous root: nothing new in it */
    while (more > 0 && self->position - self->offset != root->at.head)
        more = advance_batch(self, root, changes);
    return more;
}

/* ---- by the whole root ---------------------------------------------------------------------- */

static enum shmc_status copy_entries(const shmc_pyroot *root, struct shmc_cursor *cursor,
                                     struct changes *changes)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    enum shmc_status status = SHMC_OK;
    struct shmc_entry entry;
    struct shmc_array extra;

    changes->count = changes->bytes.length = 0;
    while (changes->count < SHMC_CHUNK && status == SHMC_OK) {
        status = shmc_cursor_next(cursor, &entry);
        if (status != SHMC_OK)
            return status;
        shmc_word version = entry.words[2];
        if (shmc_tag(version) == SHMC_TAG_ARRAY) { /* see indices.c: extra */
            if (!shmc_array_open(span, version, &extra) || extra.count == 0)
                return SHMC_CORRUPT;
            version = shmc_load_at(span, extra.words);
        }
        status = copy_change(root, changes, entry.words[0], entry.words[1], version);
    }
    return status;
}

static int scan_entries(struct shmc_delivered *self, const shmc_pyroot *root, uint64_t count,
                        struct shmc_cursor *cursor, struct changes *changes)
{
    uint64_t left = count;

    for (;;) {
        const enum shmc_status status = copy_entries(root, cursor, changes);
        if (shmc_pyroot_settle(root, status, "walking a tree") < 0)
            return -1;
        if (changes->count > left) { /* VALUE4 */
            shmc_hot_raise(SHMC_CORRUPT, "walking a tree");
            return -1;
        }
        left -= changes->count;
        for (size_t i = 0; i < changes->count; i++) {
            const struct shmc_known what = identity_of(changes, i);
            if (shmc_lives_put(&self->lives, &what, self->position, false) < 0)
                return -1;
        }
        if (status == SHMC_EMPTY)
            return 0;
    }
}

typedef void (*each_life)(struct shmc_delivered *self, struct shmc_life *life);

static void for_each(struct shmc_delivered *self, each_life what)
{
    for (uint64_t i = 0; self->lives.mask != 0 && i <= self->lives.mask; i++) {
        if (self->lives.table[i] != 0)
            what(self, shmc_life_at(&self->lives, self->lives.table[i]));
    }
}

static void unsee(struct shmc_delivered *Py_UNUSED(self), struct shmc_life *life)
{
    life->flags &= (uint8_t)~SHMC_SEEN;
}

static void end_unseen(struct shmc_delivered *self, struct shmc_life *life)
{
    if ((life->flags & (SHMC_ALIVE | SHMC_SEEN)) == SHMC_ALIVE)
        shmc_life_end(&self->lives, life, self->position);
}

static int advance_scan(struct shmc_delivered *self, shmc_pyroot *root, struct changes *changes)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    struct shmc_pyrecord record;
    struct shmc_cursor cursor;

    self->whole = false;
    if (shmc_pyrecord_load(root, self->resource, &record) < 0)
        return -1;
    const enum shmc_status status =
        shmc_cursor_seek(&cursor, span, &shmc_primary, record.record.primary,
                         (const uint8_t *)"", 0);
    if (shmc_pyroot_settle(root, status, "seeking in a tree") < 0)
        return -1;
    for_each(self, unsee);
    if (record.record.count != 0 &&
        scan_entries(self, root, record.record.count, &cursor, changes) < 0)
        return -1;
    for_each(self, end_unseen);
    if (self->instance != root->instance) /* first, or a new segment: all lives precede it */
        self->offset = self->position + 1;
    self->instance = root->instance;
    self->position = root->at.head + self->offset;
    self->whole = true;
    self->scans++;
    return 0;
}

int shmc_delivered_along(struct shmc_delivered *self, const shmc_pyroot *root)
{
    struct changes changes; /* large; only `count` entries are used */

    shmc_pybytes_init(&changes.bytes);
    const int result = advance_ring(self, root, &changes);
    shmc_pybytes_free(&changes.bytes);
    return result;
}

PyObject *shmc_delivered_advance(PyObject *object, PyObject *args)
{
    struct shmc_delivered *self = (struct shmc_delivered *)object;
    struct changes changes;
    PyObject *root;
    uint64_t resource;

    if (!PyArg_ParseTuple(args, "O!O&:advance", &shmc_pyroot_type, &root, shmc_pyuint64,
                          &resource))
        return NULL;
    if (self->resource != resource)
        self->whole = false; /* another segment may number the resource differently */
    self->resource = resource;
    shmc_pybytes_init(&changes.bytes);
    int result = advance_ring(self, (shmc_pyroot *)root, &changes);
    if (result == 0)
        result = advance_scan(self, (shmc_pyroot *)root, &changes);
    shmc_pybytes_free(&changes.bytes);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}
