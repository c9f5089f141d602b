/*
 * pydelivered.c - Delivered: what the handlers of a process were told of one resource.
 *
 *   ring, or a whole root --> advance() --> lives --> difference(since) --> what one registration
 *                                                                          still has to be told
 *
 * Needed where deltas were lost: the ring can then not say what changed, and the objects that a
 * handler knows are gone. So each object is remembered by key, uid and version, once for all
 * registrations, whatever position each of them has.
 *
 * Positions are numbers of deltas plus an offset, so that they also rise from one DATA segment to
 * the next. The map shows the state at `position`; a registration has been told everything before
 * its own position p <= position, and nothing from there on.
 *
 * A life is a key's time with one uid: from the delta that added it to the one that ended it.
 *
 *        born                changed                 died
 *   ------o-------------------o-----------------------o------------>  positions
 *                    p: told, and now changed              p: told, and told of its end
 *
 * Invariants
 *   D1  alive lives are exactly the objects of the resource at `position`.
 *   D2  told at p, without marks: born < p, and p <= died if it ended. Unchanged since: changed < p.
 *   D3  what only a whole root showed happened at some point from the old position on: it is
 *       stamped with the old position, which no registration has passed.
 *   D4  a life that ended is kept until trim() finds that nobody can need it.
 *   D5  a mark says that the registration with this bit was told of the life and not of its end:
 *       for those that select by content, which D2 cannot answer.
 *   D6  an interrupted advance() leaves `whole` false; the next one looks at the whole root.
 *
 * Memory: 43 bytes, the key and padding for an object, 5 to 10 for its place in the table. Uids in
 * the canonical form take 16 bytes and versions up to 64 bits take 8; others are kept as texts.
 * Nothing here runs Python code between two looks at the map, so the GIL is its lock.
 */
#include "pyread.h"

#include <structmember.h> /* after Python.h */

#define UNIT 8u        /* bytes; handles of lives count units, 0 is none */
#define EXACT 64u      /* sizes up to here (in units) have a free list of their own */
#define LISTS (EXACT + 32u)
#define MARKS 16u
#define UUID_TEXT 36u
#define NUMBER_DIGITS 19u

enum life_flags { ALIVE = 1u, SEEN = 2u, UUID = 4u, UID_TEXT = 8u, NUMBER = 16u, VERSION_TEXT = 32u };

struct life { /* followed by the key, then by texts of uid and version; bytes, so unpadded */
    uint8_t flags;
    uint8_t marks[2];
    uint8_t key_length[4];
    uint8_t born[6], changed[6]; /* changed: of a life that ended, its end */
    uint8_t uid[16];             /* or the length of its text */
    uint8_t version[8];          /* or the length of its text */
};
static_assert(sizeof(struct life) == 43, "bytes have no padding");

struct text {
    const uint8_t *at;
    size_t length; /* 0: there is none */
};

/* What an object is known by. */
struct identity {
    struct text key, uid, version;
};

struct delivered {
    PyObject_HEAD
    uint64_t resource;
    uint64_t position, offset, instance;
    bool whole; /* D6 */
    uint64_t alive, ended, scans;
    uint8_t *pool;
    uint32_t units, capacity; /* of the pool; unit 0 is not used */
    uint32_t free[LISTS];     /* first of each size; the next one's handle stands in it */
    uint32_t *table;          /* open addressing, linear; 0 = empty */
    uint64_t mask;            /* of the table; 0: there is none */
};

/* ---- numbers in bytes ----------------------------------------------------------------------- */

static uint64_t stamp_load(const uint8_t from[6])
{
    uint64_t value = 0;

    memcpy(&value, from, 6);
    return value;
}

static void stamp_store(uint8_t to[6], uint64_t value)
{
    memcpy(to, &value, 6);
}

static uint32_t load32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof value);
    return value;
}

static void store32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
}

static uint16_t marks_of(const struct life *life)
{
    return (uint16_t)(life->marks[0] | life->marks[1] << 8);
}

static void set_marks(struct life *life, unsigned marks)
{
    life->marks[0] = (uint8_t)marks;
    life->marks[1] = (uint8_t)(marks >> 8);
}

/* ---- uids and versions ---------------------------------------------------------------------- */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_dash(unsigned place)
{
    return place == 8 || place == 13 || place == 18 || place == 23;
}

/* Only the spelling that uuid_text() gives back. */
static bool uuid_parse(struct text text, uint8_t uuid[16])
{
    unsigned nibble = 0;

    if (text.length != UUID_TEXT)
        return false;
    memset(uuid, 0, 16);
    for (unsigned i = 0; i < UUID_TEXT; i++) {
        if (is_dash(i)) {
            if (text.at[i] != '-')
                return false;
            continue;
        }
        const int value = hex_digit(text.at[i]);
        if (value < 0)
            return false;
        uuid[nibble / 2] |= (uint8_t)(nibble % 2 ? value : value << 4);
        nibble++;
    }
    return true;
}

static void uuid_text(const uint8_t uuid[16], uint8_t text[UUID_TEXT])
{
    unsigned nibble = 0;

    for (unsigned i = 0; i < UUID_TEXT; i++) {
        if (is_dash(i)) {
            text[i] = '-';
            continue;
        }
        const uint8_t byte = uuid[nibble / 2];
        text[i] = (uint8_t) "0123456789abcdef"[nibble % 2 ? byte & 15 : byte >> 4];
        nibble++;
    }
}

static bool number_parse(struct text text, uint64_t *number)
{
    if (text.length == 0 || text.length > NUMBER_DIGITS ||
        (text.at[0] == '0' && text.length > 1))
        return false;
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        *number = *number * 10 + (text.at[i] - '0');
    }
    return true;
}

static size_t number_text(uint64_t number, uint8_t text[24])
{
    return (size_t)snprintf((char *)text, 24, "%llu", (unsigned long long)number);
}

/* A life's head for an identity: kinds, lengths, and what fits into it. Returns its size. */
static size_t describe(const struct identity *what, struct life *head)
{
    size_t size = sizeof *head + what->key.length;
    uint64_t number;

    memset(head, 0, sizeof *head);
    store32(head->key_length, (uint32_t)what->key.length);
    if (uuid_parse(what->uid, head->uid)) {
        head->flags |= UUID;
    } else if (what->uid.length > 0) {
        memset(head->uid, 0, sizeof head->uid);
        store32(head->uid, (uint32_t)what->uid.length);
        head->flags |= UID_TEXT;
        size += what->uid.length;
    } else {
        memset(head->uid, 0, sizeof head->uid);
    }
    if (number_parse(what->version, &number)) {
        memcpy(head->version, &number, sizeof number);
        head->flags |= NUMBER;
    } else if (what->version.length > 0) {
        store32(head->version, (uint32_t)what->version.length);
        head->flags |= VERSION_TEXT;
        size += what->version.length;
    }
    return size;
}

static struct text key_of(const struct life *life)
{
    return (struct text){(const uint8_t *)(life + 1), load32(life->key_length)};
}

static struct text uid_of(const struct life *life, uint8_t buffer[UUID_TEXT])
{
    const struct text key = key_of(life);

    if (life->flags & UID_TEXT)
        return (struct text){key.at + key.length, load32(life->uid)};
    if ((life->flags & UUID) == 0)
        return (struct text){NULL, 0};
    uuid_text(life->uid, buffer);
    return (struct text){buffer, UUID_TEXT};
}

static struct text version_of(const struct life *life, uint8_t buffer[24])
{
    const struct text key = key_of(life);
    const uint8_t *end = key.at + key.length + (life->flags & UID_TEXT ? load32(life->uid) : 0);
    uint64_t number;

    if (life->flags & VERSION_TEXT)
        return (struct text){end, load32(life->version)};
    if ((life->flags & NUMBER) == 0)
        return (struct text){NULL, 0};
    memcpy(&number, life->version, sizeof number);
    return (struct text){buffer, number_text(number, buffer)};
}

static size_t size_of(const struct life *life)
{
    return sizeof *life + load32(life->key_length) +
           (life->flags & UID_TEXT ? load32(life->uid) : 0) +
           (life->flags & VERSION_TEXT ? load32(life->version) : 0);
}

static bool same_text(struct text a, struct text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

static bool same_uid(const struct life *life, const struct life *head, const struct identity *what)
{
    const unsigned kinds = UUID | UID_TEXT;
    uint8_t unused[UUID_TEXT];

    if ((life->flags & kinds) != (head->flags & kinds))
        return false;
    if (life->flags & UID_TEXT)
        return same_text(uid_of(life, unused), what->uid);
    return memcmp(life->uid, head->uid, sizeof life->uid) == 0;
}

static bool same_version(const struct life *life, const struct life *head,
                         const struct identity *what)
{
    const unsigned kinds = NUMBER | VERSION_TEXT;
    uint8_t unused[24];

    if ((life->flags & kinds) != (head->flags & kinds))
        return false;
    if (life->flags & VERSION_TEXT)
        return same_text(version_of(life, unused), what->version);
    return memcmp(life->version, head->version, sizeof life->version) == 0;
}

/* ---- the pool ------------------------------------------------------------------------------- */

static struct life *life_at(const struct delivered *self, uint32_t handle)
{
    return (struct life *)(void *)(self->pool + (size_t)handle * UNIT);
}

/* Sizes in units: each has a list up to EXACT, and then each power of two. */
static unsigned list_of(uint32_t *units)
{
    unsigned power = 0;

    if (*units <= EXACT)
        return *units - 1;
    while ((EXACT << power) < *units)
        power++;
    *units = EXACT << power;
    return EXACT + power;
}

static int pool_grow(struct delivered *self, uint32_t units)
{
    const uint64_t needed = (uint64_t)self->units + units;
    uint64_t capacity = self->capacity + self->capacity / 16 + 512;

    if (capacity < needed)
        capacity = needed;
    uint8_t *pool =
        capacity > UINT32_MAX ? NULL : PyMem_RawRealloc(self->pool, (size_t)capacity * UNIT);
    if (pool == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->pool = pool;
    self->capacity = (uint32_t)capacity;
    return 0;
}

/* 0 with MemoryError set. */
static uint32_t pool_take(struct delivered *self, size_t size)
{
    uint32_t units = (uint32_t)((size + UNIT - 1) / UNIT);
    const unsigned list = list_of(&units);
    uint32_t handle = self->free[list];

    if (handle != 0) {
        memcpy(&self->free[list], life_at(self, handle), sizeof handle);
        return handle;
    }
    if ((uint64_t)self->units + units > self->capacity && pool_grow(self, units) < 0)
        return 0;
    handle = self->units;
    self->units += units;
    return handle;
}

static void pool_give(struct delivered *self, uint32_t handle)
{
    uint32_t units = (uint32_t)((size_of(life_at(self, handle)) + UNIT - 1) / UNIT);
    const unsigned list = list_of(&units);

    memcpy(life_at(self, handle), &self->free[list], sizeof handle);
    self->free[list] = handle;
}

/* ---- the table ------------------------------------------------------------------------------ */

static uint64_t place_of(const struct delivered *self, struct text key)
{
    return shmc_key_hash(UINT64_C(0x9e3779b97f4a7c15), key.at, key.length) & self->mask;
}

static int table_grow(struct delivered *self)
{
    const uint64_t mask = self->mask == 0 ? 63 : self->mask * 2 + 1;
    uint32_t *const old = self->table;
    const uint64_t slots = self->mask == 0 ? 0 : self->mask + 1;
    uint32_t *table = PyMem_RawCalloc((size_t)mask + 1, sizeof *table);

    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->table = table;
    self->mask = mask;
    for (uint64_t i = 0; i < slots; i++) {
        if (old[i] == 0)
            continue;
        uint64_t place = place_of(self, key_of(life_at(self, old[i])));
        while (table[place] != 0)
            place = (place + 1) & mask;
        table[place] = old[i];
    }
    PyMem_RawFree(old);
    return 0;
}

/* The next life of a key from *place on, which is left at it; 0: no more. */
static uint32_t next_life(const struct delivered *self, struct text key, uint64_t *place)
{
    if (self->mask == 0)
        return 0;
    for (; self->table[*place] != 0; *place = (*place + 1) & self->mask) {
        if (same_text(key, key_of(life_at(self, self->table[*place]))))
            return self->table[*place];
    }
    return 0;
}

static uint32_t find_alive(const struct delivered *self, struct text key)
{
    uint64_t place = place_of(self, key);
    uint32_t handle;

    while ((handle = next_life(self, key, &place)) != 0) {
        if (life_at(self, handle)->flags & ALIVE)
            return handle;
        place = (place + 1) & self->mask;
    }
    return 0;
}

/* Moves what stands behind the gap and belongs before it, so that no search ends too early. */
static void table_remove(struct delivered *self, uint64_t gap)
{
    self->table[gap] = 0;
    for (uint64_t i = (gap + 1) & self->mask; self->table[i] != 0; i = (i + 1) & self->mask) {
        const uint64_t home = place_of(self, key_of(life_at(self, self->table[i])));
        if (((i - home) & self->mask) < ((i - gap) & self->mask))
            continue;
        self->table[gap] = self->table[i];
        self->table[i] = 0;
        gap = i;
    }
}

/* ---- lives ---------------------------------------------------------------------------------- */

static int life_add(struct delivered *self, const struct identity *what, struct life *head,
                    size_t size, uint64_t stamp)
{
    if ((self->alive + self->ended + 1) * 5 > self->mask * 4 && table_grow(self) < 0)
        return -1;
    const uint32_t handle = pool_take(self, size);
    if (handle == 0)
        return -1;
    uint64_t place = place_of(self, what->key);
    while (self->table[place] != 0)
        place = (place + 1) & self->mask;
    head->flags |= ALIVE | SEEN;
    stamp_store(head->born, stamp);
    stamp_store(head->changed, stamp);
    uint8_t *to = (uint8_t *)life_at(self, handle);
    memcpy(to, head, sizeof *head);
    to += sizeof *head;
    memcpy(to, what->key.at, what->key.length);
    to += what->key.length;
    if (head->flags & UID_TEXT) {
        memcpy(to, what->uid.at, what->uid.length);
        to += what->uid.length;
    }
    if (head->flags & VERSION_TEXT)
        memcpy(to, what->version.at, what->version.length);
    self->table[place] = handle;
    self->alive++;
    return 0;
}

static void life_end(struct delivered *self, struct life *life, uint64_t stamp)
{
    life->flags &= (uint8_t)~ALIVE;
    stamp_store(life->changed, stamp);
    self->alive--;
    self->ended++;
}

static void life_drop(struct delivered *self, uint64_t place)
{
    const uint32_t handle = self->table[place];

    table_remove(self, place);
    pool_give(self, handle);
    self->ended--;
}

/* A version that does not fit in place: the life moves, with all that is known of it. */
static int life_move(struct delivered *self, uint32_t handle, const struct identity *what,
                     struct life *head, size_t size, uint64_t stamp)
{
    const struct life old = *life_at(self, handle);

    if (life_add(self, what, head, size, stamp) < 0)
        return -1;
    uint64_t place = place_of(self, what->key);
    while (self->table[place] != handle)
        place = (place + 1) & self->mask;
    self->ended++; /* for a moment: life_drop() counts those */
    self->alive--;
    life_drop(self, place);
    struct life *moved = life_at(self, find_alive(self, what->key));
    memcpy(moved->born, old.born, sizeof moved->born);
    memcpy(moved->marks, old.marks, sizeof moved->marks);
    return 0;
}

/* The object is there, at this position. `sure`: and it changed there, for the ring says so. */
static int apply_put(struct delivered *self, const struct identity *what, uint64_t stamp,
                     bool sure)
{
    struct life head;
    const size_t size = describe(what, &head);
    const uint32_t handle = self->mask == 0 ? 0 : find_alive(self, what->key);

    if (handle == 0)
        return life_add(self, what, &head, size, stamp);
    struct life *life = life_at(self, handle);
    if (!same_uid(life, &head, what)) {
        life_end(self, life, stamp);
        return life_add(self, what, &head, size, stamp);
    }
    life->flags |= SEEN;
    /* Without a version nobody can tell: then it counts as changed. */
    if (!sure && what->version.length > 0 && same_version(life, &head, what))
        return 0;
    if (((life->flags | head.flags) & VERSION_TEXT) && !same_version(life, &head, what))
        return life_move(self, handle, what, &head, size, stamp);
    life->flags = (uint8_t)((life->flags & ~NUMBER) | (head.flags & NUMBER));
    if ((life->flags & VERSION_TEXT) == 0)
        memcpy(life->version, head.version, sizeof life->version);
    stamp_store(life->changed, stamp);
    return 0;
}

static int apply_delete(struct delivered *self, const struct identity *what, uint64_t stamp)
{
    const uint32_t handle = self->mask == 0 ? 0 : find_alive(self, what->key);
    struct life head;

    if (handle == 0)
        return 0;
    struct life *life = life_at(self, handle);
    describe(what, &head);
    if (head.flags & NUMBER && life->flags & NUMBER) /* that of its end, where one is known */
        memcpy(life->version, head.version, sizeof life->version);
    life_end(self, life, stamp);
    return 0;
}

/* ---- changes, copied out of the arena before they count (H1) -------------------------------- */

struct change {
    uint64_t number;
    uint8_t kind;
    size_t key, uid, version, end; /* where each begins in the bytes */
};

struct changes {
    struct shmc_pybytes bytes;
    struct change at[SHMC_CHUNK];
    size_t count;
};

static struct identity identity_of(const struct changes *changes, size_t i)
{
    const struct change *at = &changes->at[i];
    const uint8_t *bytes = changes->bytes.at;

    return (struct identity){
        .key = {bytes + at->key, at->uid - at->key},
        .uid = {bytes + at->uid, at->version - at->uid},
        .version = {bytes + at->version, at->end - at->version},
    };
}

/* Appends a string's bytes, or nothing for what is no string. */
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
        return SHMC_STALE; /* a length that makes us allocate must be true */
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

static int apply_changes(struct delivered *self, const struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        const struct identity what = identity_of(changes, i);
        const uint64_t stamp = changes->at[i].number + self->offset;
        const int result = changes->at[i].kind == SHMC_DELETED
                               ? apply_delete(self, &what, stamp)
                               : apply_put(self, &what, stamp, true);
        if (result < 0)
            return -1;
    }
    return 0;
}

/* Copies what concerns the resource; *end is where the ring stops to help, or the batch ends. */
static enum shmc_status copy_deltas(const struct delivered *self, const shmc_pyroot *root,
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

/* One batch. 1: go on, 0: the ring does not tell, -1. */
static int advance_batch(struct delivered *self, const shmc_pyroot *root, struct changes *changes)
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
static int advance_ring(struct delivered *self, const shmc_pyroot *root, struct changes *changes)
{
    int more = self->whole && self->instance == root->instance;

    if (more && self->position - self->offset > root->at.head)
        return 1; /* an older root than the one before: nothing to learn from it */
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

static int scan_entries(struct delivered *self, const shmc_pyroot *root, uint64_t count,
                        struct shmc_cursor *cursor, struct changes *changes)
{
    uint64_t left = count;

    for (;;) {
        const enum shmc_status status = copy_entries(root, cursor, changes);
        if (shmc_pyroot_settle(root, status, "walking a tree") < 0)
            return -1;
        if (changes->count > left) { /* V4 */
            shmc_hot_raise(SHMC_CORRUPT, "walking a tree");
            return -1;
        }
        left -= changes->count;
        for (size_t i = 0; i < changes->count; i++) {
            const struct identity what = identity_of(changes, i);
            if (apply_put(self, &what, self->position, false) < 0)
                return -1;
        }
        if (status == SHMC_EMPTY)
            return 0;
    }
}

typedef void (*each_life)(struct delivered *self, struct life *life);

static void for_each(struct delivered *self, each_life what)
{
    for (uint64_t i = 0; self->mask != 0 && i <= self->mask; i++) {
        if (self->table[i] != 0)
            what(self, life_at(self, self->table[i]));
    }
}

static void unsee(struct delivered *Py_UNUSED(self), struct life *life)
{
    life->flags &= (uint8_t)~SEEN;
}

static void end_unseen(struct delivered *self, struct life *life)
{
    if ((life->flags & (ALIVE | SEEN)) == ALIVE)
        life_end(self, life, self->position);
}

static int advance_scan(struct delivered *self, shmc_pyroot *root, struct changes *changes)
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
    if (self->instance != root->instance) /* the first one, or a new segment: all is behind us */
        self->offset = self->position + 1;
    self->instance = root->instance;
    self->position = root->at.head + self->offset;
    self->whole = true;
    self->scans++;
    return 0;
}

static PyObject *delivered_advance(PyObject *object, PyObject *args)
{
    struct delivered *self = (struct delivered *)object;
    struct changes changes = {.count = 0};
    PyObject *root;
    uint64_t resource;

    if (!PyArg_ParseTuple(args, "O!O&:advance", &shmc_pyroot_type, &root, shmc_pyuint64,
                          &resource))
        return NULL;
    if (self->resource != resource)
        self->whole = false; /* another segment may number it otherwise */
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

/* ---- differences ---------------------------------------------------------------------------- */

struct question {
    uint64_t since;
    int mark; /* -1: none */
    uint64_t first, last; /* of the hashes of uids */
    struct text after, upto;
    bool has_upto;
};

static uint64_t shard_of(struct text uid)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* as shmc_shard_hash() */

    for (size_t i = 0; i < uid.length; i++)
        hash = (hash ^ uid.at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static int order(struct text a, struct text b)
{
    const size_t common = a.length < b.length ? a.length : b.length;
    const int result = common == 0 ? 0 : memcmp(a.at, b.at, common);

    return result != 0 ? result : (a.length > b.length) - (a.length < b.length);
}

static bool told(const struct life *life, const struct question *question)
{
    if (question->mark >= 0)
        return marks_of(life) >> question->mark & 1;
    return stamp_load(life->born) < question->since &&
           (life->flags & ALIVE || question->since <= stamp_load(life->changed));
}

/* Whether the registration may have to be told something of this life. */
static bool concerns(const struct life *life, const struct question *question)
{
    if (life->flags & ALIVE) {
        if (stamp_load(life->changed) < question->since)
            return false;
    } else if (!told(life, question)) {
        return false;
    }
    if (question->after.at != NULL && order(key_of(life), question->after) <= 0)
        return false;
    if (question->has_upto && order(key_of(life), question->upto) > 0)
        return false;
    if (question->first == 0 && question->last == UINT64_MAX)
        return true;
    uint8_t buffer[UUID_TEXT];
    const uint64_t shard = shard_of(uid_of(life, buffer));
    return shard >= question->first && shard <= question->last;
}

static PyObject *text_or_none(struct text text)
{
    if (text.length == 0)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)text.length, "replace");
}

/* (key, alive, told, uid, version): sorted by them, the end of a life comes before the next. */
static PyObject *describe_life(const struct life *life, bool was_told)
{
    uint8_t uid[UUID_TEXT], version[24];
    const struct text key = key_of(life);
    PyObject *parts[3] = {
        PyUnicode_DecodeUTF8((const char *)key.at, (Py_ssize_t)key.length, "strict"),
        text_or_none(uid_of(life, uid)),
        text_or_none(version_of(life, version)),
    };

    if (parts[0] == NULL || parts[1] == NULL || parts[2] == NULL) {
        for (unsigned i = 0; i < 3; i++)
            Py_XDECREF(parts[i]);
        return NULL;
    }
    return Py_BuildValue("(NNNNN)", parts[0], PyBool_FromLong(life->flags & ALIVE),
                         PyBool_FromLong(was_told), parts[1], parts[2]);
}

/* The collector would run anything, and that might change the map under our feet. */
static PyObject *difference(struct delivered *self, const struct question *question)
{
    PyObject *list = PyList_New(0);
    const uint64_t slots = self->mask == 0 ? 0 : self->mask + 1;

    const int collecting = PyGC_Disable();
    for (uint64_t i = 0; list != NULL && i < slots; i++) {
        const struct life *life = self->table[i] == 0 ? NULL : life_at(self, self->table[i]);
        if (life == NULL || !concerns(life, question))
            continue;
        PyObject *described = describe_life(life, told(life, question));
        if (described == NULL || PyList_Append(list, described) < 0)
            Py_CLEAR(list);
        Py_XDECREF(described);
    }
    if (collecting)
        PyGC_Enable();
    if (list != NULL && PyList_Sort(list) < 0)
        Py_CLEAR(list);
    return list;
}

static int parse_question(PyObject *args, PyObject *kwargs, struct question *question)
{
    static char *names[] = {"since", "mark", "first", "last", "after", "upto", NULL};
    PyObject *after = Py_None, *upto = Py_None;

    memset(question, 0, sizeof *question);
    question->mark = -1;
    question->last = UINT64_MAX;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|iO&O&OO:difference", names, shmc_pyuint64,
                                     &question->since, &question->mark, shmc_pyuint64,
                                     &question->first, shmc_pyuint64, &question->last, &after,
                                     &upto))
        return -1;
    if (question->mark >= (int)MARKS) {
        PyErr_Format(PyExc_ValueError, "there are %u marks", MARKS);
        return -1;
    }
    question->has_upto = upto != Py_None;
    if (shmc_pykey_or_none(after, &question->after.at, &question->after.length) < 0)
        return -1;
    return shmc_pykey_or_none(upto, &question->upto.at, &question->upto.length);
}

static PyObject *delivered_difference(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct question question;

    if (parse_question(args, kwargs, &question) < 0)
        return NULL;
    return difference((struct delivered *)object, &question);
}

/* ---- marks ---------------------------------------------------------------------------------- */

static int parse_mark(PyObject *args, struct text *key, unsigned *bit, uint64_t *position)
{
    PyObject *name;

    *position = 0;
    if (!PyArg_ParseTuple(args, "O!I|O&", &PyUnicode_Type, &name, bit, shmc_pyuint64, position))
        return -1;
    if (*bit >= MARKS) {
        PyErr_Format(PyExc_ValueError, "there are %u marks", MARKS);
        return -1;
    }
    return shmc_pykey_or_none(name, &key->at, &key->length);
}

/* mark(key, bit, position): the registration at this position was told of the key's life (D5).
 * unmark(key, bit) is the same at position 0, before which nobody was told of anything. */
static PyObject *delivered_mark(PyObject *object, PyObject *args)
{
    struct delivered *self = (struct delivered *)object;
    uint64_t position, place;
    struct text key;
    uint32_t handle;
    unsigned bit;

    if (parse_mark(args, &key, &bit, &position) < 0)
        return NULL;
    place = self->mask == 0 ? 0 : place_of(self, key);
    for (; (handle = next_life(self, key, &place)) != 0; place = (place + 1) & self->mask) {
        struct life *life = life_at(self, handle);
        if (stamp_load(life->born) < position &&
            (life->flags & ALIVE || position <= stamp_load(life->changed)))
            set_marks(life, marks_of(life) | 1u << bit);
        else
            set_marks(life, marks_of(life) & ~(1u << bit));
    }
    Py_RETURN_NONE;
}

static PyObject *delivered_clear(PyObject *object, PyObject *argument)
{
    struct delivered *self = (struct delivered *)object;
    uint64_t bit;

    if (!shmc_pyuint64(argument, &bit))
        return NULL;
    if (bit >= MARKS)
        return PyErr_Format(PyExc_ValueError, "there are %u marks", MARKS);
    for (uint64_t i = 0; self->mask != 0 && i <= self->mask; i++) {
        if (self->table[i] == 0)
            continue;
        struct life *life = life_at(self, self->table[i]);
        set_marks(life, marks_of(life) & ~(1u << bit));
    }
    Py_RETURN_NONE;
}

/* ---- forgetting ----------------------------------------------------------------------------- */

/* A registration at p, which goes on by deltas up to `end` whatever happens to the window. */
struct span_of {
    uint64_t position, end;
};

/* It was told of the life, or may still be, and not yet of its end (D4). */
static bool needed(const struct life *life, const struct span_of *spans, size_t count,
                   uint64_t tail)
{
    const uint64_t born = stamp_load(life->born), died = stamp_load(life->changed);

    for (size_t i = 0; i < count; i++) {
        if (spans[i].position <= died && (born < spans[i].end || spans[i].end >= tail))
            return true;
    }
    return false;
}

static void trim(struct delivered *self, const struct span_of *spans, size_t count, uint64_t tail)
{
    const uint64_t slots = self->mask == 0 ? 0 : self->mask + 1;

    for (uint64_t i = 0; i < slots; i++) {
        while (self->table[i] != 0) { /* a drop may bring another one here */
            const struct life *life = life_at(self, self->table[i]);
            if (life->flags & ALIVE || needed(life, spans, count, tail))
                break;
            life_drop(self, i);
        }
    }
}

/* trim([(position, end)...], tail): forgets ended lives that no registration needs. */
static PyObject *delivered_trim(PyObject *object, PyObject *args)
{
    PyObject *list;
    uint64_t tail;

    if (!PyArg_ParseTuple(args, "O!O&:trim", &PyList_Type, &list, shmc_pyuint64, &tail))
        return NULL;
    const size_t count = (size_t)PyList_GET_SIZE(list);
    struct span_of *spans = PyMem_Calloc(count + 1, sizeof *spans);
    bool whole = spans != NULL;
    for (size_t i = 0; whole && i < count; i++)
        whole = PyArg_ParseTuple(PyList_GET_ITEM(list, (Py_ssize_t)i), "O&O&", shmc_pyuint64,
                                 &spans[i].position, shmc_pyuint64, &spans[i].end) != 0;
    if (whole)
        trim((struct delivered *)object, spans, count, tail);
    PyMem_Free(spans);
    if (!whole)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyObject *delivered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Delivered", names))
        return NULL;
    struct delivered *self = (struct delivered *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->resource = UINT64_MAX;
    self->units = 1;
    return (PyObject *)self;
}

static void delivered_dealloc(PyObject *object)
{
    struct delivered *self = (struct delivered *)object;

    PyMem_RawFree(self->pool);
    PyMem_RawFree(self->table);
    Py_TYPE(object)->tp_free(object);
}

static Py_ssize_t delivered_length(PyObject *object)
{
    return (Py_ssize_t)((struct delivered *)object)->alive;
}

static PyObject *delivered_bytes(PyObject *object, void *Py_UNUSED(unused))
{
    const struct delivered *self = (struct delivered *)object;
    const uint64_t slots = self->mask == 0 ? 0 : self->mask + 1;

    return PyLong_FromUnsignedLongLong((uint64_t)self->capacity * UNIT +
                                       slots * sizeof *self->table);
}

static PyMethodDef delivered_methods[] = {
    {"advance", delivered_advance, METH_VARARGS,
     "advance(root, id): to the state of this root, along the ring if it leads there."},
    {"difference", (PyCFunction)(void (*)(void))delivered_difference, METH_VARARGS | METH_KEYWORDS,
     "difference(since, mark=-1, first=0, last=2**64-1, after=None, upto=None): a sorted list of\n"
     "(key, alive, told, uid, version), what a registration at `since` may have to be told."},
    {"mark", delivered_mark, METH_VARARGS, "mark(key, bit, position): the bit's registration, at this "
                                           "position, was told of the key's life."},
    {"unmark", delivered_mark, METH_VARARGS, "unmark(key, bit): it knows of none any more."},
    {"clear", delivered_clear, METH_O, "clear(bit): takes the mark off all lives."},
    {"trim", delivered_trim, METH_VARARGS,
     "trim(spans, tail): forgets ended lives that no registration at (position, end) needs."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef delivered_members[] = {
    {"position", T_ULONGLONG, offsetof(struct delivered, position), READONLY,
     "Whose state the map shows: a delta's number plus offset."},
    {"offset", T_ULONGLONG, offsetof(struct delivered, offset), READONLY, NULL},
    {"instance", T_ULONGLONG, offsetof(struct delivered, instance), READONLY, NULL},
    {"ended", T_ULONGLONG, offsetof(struct delivered, ended), READONLY, "Ended lives kept."},
    {"scans", T_ULONGLONG, offsetof(struct delivered, scans), READONLY, "Whole roots looked at."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef delivered_properties[] = {
    {"bytes", delivered_bytes, NULL, "Memory taken.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods delivered_sequence = {.sq_length = delivered_length};

PyTypeObject shmc_pydelivered_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Delivered",
    .tp_doc = PyDoc_STR("Key, uid and version of each object that handlers were told of."),
    .tp_basicsize = sizeof(struct delivered),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = delivered_new,
    .tp_dealloc = delivered_dealloc,
    .tp_as_sequence = &delivered_sequence,
    .tp_methods = delivered_methods,
    .tp_members = delivered_members,
    .tp_getset = delivered_properties,
};
