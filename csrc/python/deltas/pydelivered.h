/*
 * pydelivered.h - declarations shared by the files of Delivered.
 *
 *   pylives.c      the map: lives by key
 *   pyadvance.c    brings the map to the state of a root, along the ring or by a whole tree
 *   pyfollow.c     does that and returns the next deltas for one registration, in one call
 *   pydelivered.c  the methods: differences, bits, forgetting; the invariants
 */
#ifndef SHMC_PYDELIVERED_H
#define SHMC_PYDELIVERED_H

#include "python/read/pyread.h"

#define SHMC_LIFE_UNIT 8u   /* bytes; handles of lives count units, 0 is invalid */
#define SHMC_LIFE_EXACT 64u /* sizes up to here (in units) have a free list of their own */
#define SHMC_LIFE_LISTS (SHMC_LIFE_EXACT + 32u)
#define SHMC_UUID_TEXT 36u

enum shmc_life_flags {
    SHMC_ALIVE = 1u,
    SHMC_SEEN = 2u,
    SHMC_UUID = 4u,
    SHMC_UID_TEXT = 8u,
    SHMC_NUMBER_VERSION = 16u,
    SHMC_VERSION_TEXT = 32u,
};

struct shmc_life { /* followed by the key, then by texts of uid and version; bytes, so unpadded */
    uint8_t flags;
    uint8_t bits[2];
    uint8_t key_length[4];
    uint8_t born[6], changed[6]; /* changed: of a life that ended, its end */
    uint8_t uid[16];             /* or the length of its text */
    uint8_t version[8];          /* or the length of its text */
};
static_assert(sizeof(struct shmc_life) == 43, "bytes have no padding");

struct shmc_text {
    const uint8_t *at;
    size_t length; /* 0: absent */
};

/* The identity of an object. */
struct shmc_known {
    struct shmc_text key, uid, version;
};

struct shmc_lives {
    uint64_t alive, ended;
    uint64_t secret; /* of the hash: keys are chosen by strangers */
    uint8_t *pool;
    uint32_t units, capacity;        /* of the pool; unit 0 is not used */
    uint32_t free[SHMC_LIFE_LISTS]; /* first of each size; the next one's handle is stored in it */
    uint32_t *table;                 /* open addressing, linear; 0 = empty */
    uint64_t mask;                   /* of the table; 0: no table yet */
};

struct shmc_delivered {
    PyObject_HEAD
    uint64_t resource;
    uint64_t position, offset, instance;
    bool whole; /* DELIVERED6 */
    uint64_t scans;
    struct shmc_lives lives;
};

static inline uint64_t shmc_stamp_load(const uint8_t from[6])
{
    uint64_t value = 0;

    memcpy(&value, from, 6);
    return value;
}

static inline uint16_t shmc_bits_of(const struct shmc_life *life)
{
    return (uint16_t)(life->bits[0] | life->bits[1] << 8);
}

static inline void shmc_set_bits(struct shmc_life *life, unsigned bits)
{
    life->bits[0] = (uint8_t)bits;
    life->bits[1] = (uint8_t)(bits >> 8);
}

static inline struct shmc_life *shmc_life_at(const struct shmc_lives *self, uint32_t handle)
{
    return (struct shmc_life *)(void *)(self->pool + (size_t)handle * SHMC_LIFE_UNIT);
}

struct shmc_text shmc_key_of(const struct shmc_life *life);
struct shmc_text shmc_uid_of(const struct shmc_life *life, uint8_t buffer[SHMC_UUID_TEXT]);
struct shmc_text shmc_version_of(const struct shmc_life *life, uint8_t buffer[24]);

/* Where a search for this key begins; there must be a table. */
uint64_t shmc_life_slot(const struct shmc_lives *self, struct shmc_text key);
/* The next life of a key from *slot on; *slot is left there. 0: no more. */
uint32_t shmc_next_life(const struct shmc_lives *self, struct shmc_text key, uint64_t *slot);
/* The object exists at this position. `sure`: the ring shows that it changed exactly there.
 * -1 with MemoryError set. */
int shmc_lives_put(struct shmc_lives *self, const struct shmc_known *what, uint64_t stamp,
                   bool sure);
int shmc_lives_delete(struct shmc_lives *self, const struct shmc_known *what, uint64_t stamp);
void shmc_life_end(struct shmc_lives *self, struct shmc_life *life, uint64_t stamp);
/* Forgets an ended life; another one may move to its slot. */
void shmc_life_drop(struct shmc_lives *self, uint64_t slot);

/* Brings the map to a root of its instance. 1: done, 0: the ring does not lead there, -1. */
int shmc_delivered_along(struct shmc_delivered *self, const shmc_pyroot *root);
/* advance(root, id), follow(reader, position, who, max, ended): the methods. */
PyObject *shmc_delivered_advance(PyObject *object, PyObject *args);
PyObject *shmc_delivered_follow(PyObject *object, PyObject *const *args, Py_ssize_t count);

#endif
