/*
 * pylives.c - the map of lives: a table over a pool of unpadded records.
 *
 * Memory: 43 bytes, the key and padding for an object, 5 to 10 for its slot in the table. Uids in
 * the canonical form take 16 bytes and versions up to 64 bits take 8; others are kept as texts.
 */
#include "python/deltas/pydelivered.h"

#define NUMBER_DIGITS 19u

/* ---- numbers in bytes ----------------------------------------------------------------------- */

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

/* ---- uids and versions ---------------------------------------------------------------------- */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_dash(unsigned at)
{
    return at == 8 || at == 13 || at == 18 || at == 23;
}

/* Accepts only the spelling that uuid_text() produces. */
static bool uuid_parse(struct shmc_text text, uint8_t uuid[16])
{
    unsigned nibble = 0;

    if (text.length != SHMC_UUID_TEXT)
        return false;
    memset(uuid, 0, 16);
    for (unsigned i = 0; i < SHMC_UUID_TEXT; i++) {
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

static void uuid_text(const uint8_t uuid[16], uint8_t text[SHMC_UUID_TEXT])
{
    unsigned nibble = 0;

    for (unsigned i = 0; i < SHMC_UUID_TEXT; i++) {
        if (is_dash(i)) {
            text[i] = '-';
            continue;
        }
        const uint8_t byte = uuid[nibble / 2];
        text[i] = (uint8_t) "0123456789abcdef"[nibble % 2 ? byte & 15 : byte >> 4];
        nibble++;
    }
}

static bool number_parse(struct shmc_text text, uint64_t *number)
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

/* A life's head for an identity: kinds, lengths, and the parts that fit. Returns its size. */
static size_t describe(const struct shmc_known *what, struct shmc_life *head)
{
    size_t size = sizeof *head + what->key.length;
    uint64_t number;

    memset(head, 0, sizeof *head);
    store32(head->key_length, (uint32_t)what->key.length);
    if (uuid_parse(what->uid, head->uid)) {
        head->flags |= SHMC_UUID;
    } else if (what->uid.length > 0) {
        memset(head->uid, 0, sizeof head->uid);
        store32(head->uid, (uint32_t)what->uid.length);
        head->flags |= SHMC_UID_TEXT;
        size += what->uid.length;
    } else {
        memset(head->uid, 0, sizeof head->uid);
    }
    if (number_parse(what->version, &number)) {
        memcpy(head->version, &number, sizeof number);
        head->flags |= SHMC_NUMBER_VERSION;
    } else if (what->version.length > 0) {
        store32(head->version, (uint32_t)what->version.length);
        head->flags |= SHMC_VERSION_TEXT;
        size += what->version.length;
    }
    return size;
}

struct shmc_text shmc_key_of(const struct shmc_life *life)
{
    return (struct shmc_text){(const uint8_t *)(life + 1), load32(life->key_length)};
}

struct shmc_text shmc_uid_of(const struct shmc_life *life, uint8_t buffer[SHMC_UUID_TEXT])
{
    const struct shmc_text key = shmc_key_of(life);

    if (life->flags & SHMC_UID_TEXT)
        return (struct shmc_text){key.at + key.length, load32(life->uid)};
    if ((life->flags & SHMC_UUID) == 0)
        return (struct shmc_text){NULL, 0};
    uuid_text(life->uid, buffer);
    return (struct shmc_text){buffer, SHMC_UUID_TEXT};
}

struct shmc_text shmc_version_of(const struct shmc_life *life, uint8_t buffer[24])
{
    const struct shmc_text key = shmc_key_of(life);
    const uint8_t *end =
        key.at + key.length + (life->flags & SHMC_UID_TEXT ? load32(life->uid) : 0);
    uint64_t number;

    if (life->flags & SHMC_VERSION_TEXT)
        return (struct shmc_text){end, load32(life->version)};
    if ((life->flags & SHMC_NUMBER_VERSION) == 0)
        return (struct shmc_text){NULL, 0};
    memcpy(&number, life->version, sizeof number);
    return (struct shmc_text){buffer, number_text(number, buffer)};
}

static size_t size_of(const struct shmc_life *life)
{
    return sizeof *life + load32(life->key_length) +
           (life->flags & SHMC_UID_TEXT ? load32(life->uid) : 0) +
           (life->flags & SHMC_VERSION_TEXT ? load32(life->version) : 0);
}

static bool same_text(struct shmc_text a, struct shmc_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

static bool same_uid(const struct shmc_life *life, const struct shmc_life *head,
                     const struct shmc_known *what)
{
    const unsigned kinds = SHMC_UUID | SHMC_UID_TEXT;
    uint8_t unused[SHMC_UUID_TEXT];

    if ((life->flags & kinds) != (head->flags & kinds))
        return false;
    if (life->flags & SHMC_UID_TEXT)
        return same_text(shmc_uid_of(life, unused), what->uid);
    return memcmp(life->uid, head->uid, sizeof life->uid) == 0;
}

static bool same_version(const struct shmc_life *life, const struct shmc_life *head,
                         const struct shmc_known *what)
{
    const unsigned kinds = SHMC_NUMBER_VERSION | SHMC_VERSION_TEXT;
    uint8_t unused[24];

    if ((life->flags & kinds) != (head->flags & kinds))
        return false;
    if (life->flags & SHMC_VERSION_TEXT)
        return same_text(shmc_version_of(life, unused), what->version);
    return memcmp(life->version, head->version, sizeof life->version) == 0;
}

/* ---- the pool ------------------------------------------------------------------------------- */

/* Sizes in units: each one up to SHMC_LIFE_EXACT has a list, and then each power of two. */
static unsigned list_of(uint32_t *units)
{
    unsigned power = 0;

    if (*units <= SHMC_LIFE_EXACT)
        return *units - 1;
    while ((SHMC_LIFE_EXACT << power) < *units)
        power++;
    *units = SHMC_LIFE_EXACT << power;
    return SHMC_LIFE_EXACT + power;
}

static int pool_grow(struct shmc_lives *self, uint32_t units)
{
    const uint64_t needed = (uint64_t)self->units + units;
    uint64_t capacity = self->capacity + self->capacity / 16 + 512;

    if (capacity < needed)
        capacity = needed;
    uint8_t *pool =
        capacity > UINT32_MAX
            ? NULL
            : PyMem_RawRealloc(self->pool, (size_t)capacity * SHMC_LIFE_UNIT);
    if (pool == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->pool = pool;
    self->capacity = (uint32_t)capacity;
    return 0;
}

/* Returns 0 with MemoryError set. */
static uint32_t pool_take(struct shmc_lives *self, size_t size)
{
    uint32_t units = (uint32_t)((size + SHMC_LIFE_UNIT - 1) / SHMC_LIFE_UNIT);
    const unsigned list = list_of(&units);
    uint32_t handle = self->free[list];

    if (handle != 0) {
        memcpy(&self->free[list], shmc_life_at(self, handle), sizeof handle);
        return handle;
    }
    if ((uint64_t)self->units + units > self->capacity && pool_grow(self, units) < 0)
        return 0;
    handle = self->units;
    self->units += units;
    return handle;
}

static void pool_give(struct shmc_lives *self, uint32_t handle)
{
    const size_t size = size_of(shmc_life_at(self, handle));
    uint32_t units = (uint32_t)((size + SHMC_LIFE_UNIT - 1) / SHMC_LIFE_UNIT);
    const unsigned list = list_of(&units);

    memcpy(shmc_life_at(self, handle), &self->free[list], sizeof handle);
    self->free[list] = handle;
}

/* ---- the table ------------------------------------------------------------------------------ */

uint64_t shmc_life_slot(const struct shmc_lives *self, struct shmc_text key)
{
    return shmc_key_hash(self->secret, key.at, key.length) & self->mask;
}

static int table_grow(struct shmc_lives *self)
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
        uint64_t slot = shmc_life_slot(self, shmc_key_of(shmc_life_at(self, old[i])));
        while (table[slot] != 0)
            slot = (slot + 1) & mask;
        table[slot] = old[i];
    }
    PyMem_RawFree(old);
    return 0;
}

uint32_t shmc_next_life(const struct shmc_lives *self, struct shmc_text key, uint64_t *slot)
{
    if (self->mask == 0)
        return 0;
    for (; self->table[*slot] != 0; *slot = (*slot + 1) & self->mask) {
        if (same_text(key, shmc_key_of(shmc_life_at(self, self->table[*slot]))))
            return self->table[*slot];
    }
    return 0;
}

static uint32_t find_alive(const struct shmc_lives *self, struct shmc_text key)
{
    uint64_t slot = shmc_life_slot(self, key);
    uint32_t handle;

    while ((handle = shmc_next_life(self, key, &slot)) != 0) {
        if (shmc_life_at(self, handle)->flags & SHMC_ALIVE)
            return handle;
        slot = (slot + 1) & self->mask;
    }
    return 0;
}

/* Moves lives that lie after the gap and belong before it, so that no search ends too early. */
static void table_remove(struct shmc_lives *self, uint64_t gap)
{
    self->table[gap] = 0;
    for (uint64_t i = (gap + 1) & self->mask; self->table[i] != 0; i = (i + 1) & self->mask) {
        const uint64_t home = shmc_life_slot(self, shmc_key_of(shmc_life_at(self, self->table[i])));
        if (((i - home) & self->mask) < ((i - gap) & self->mask))
            continue;
        self->table[gap] = self->table[i];
        self->table[i] = 0;
        gap = i;
    }
}

/* ---- lives ---------------------------------------------------------------------------------- */

static int life_add(struct shmc_lives *self, const struct shmc_known *what, struct shmc_life *head,
                    size_t size, uint64_t stamp)
{
    if ((self->alive + self->ended + 1) * 5 > self->mask * 4 && table_grow(self) < 0)
        return -1;
    const uint32_t handle = pool_take(self, size);
    if (handle == 0)
        return -1;
    uint64_t slot = shmc_life_slot(self, what->key);
    while (self->table[slot] != 0)
        slot = (slot + 1) & self->mask;
    head->flags |= SHMC_ALIVE | SHMC_SEEN;
    stamp_store(head->born, stamp);
    stamp_store(head->changed, stamp);
    uint8_t *to = (uint8_t *)shmc_life_at(self, handle);
    memcpy(to, head, sizeof *head);
    to += sizeof *head;
    memcpy(to, what->key.at, what->key.length);
    to += what->key.length;
    if (head->flags & SHMC_UID_TEXT) {
        memcpy(to, what->uid.at, what->uid.length);
        to += what->uid.length;
    }
    if (head->flags & SHMC_VERSION_TEXT)
        memcpy(to, what->version.at, what->version.length);
    self->table[slot] = handle;
    self->alive++;
    return 0;
}

void shmc_life_end(struct shmc_lives *self, struct shmc_life *life, uint64_t stamp)
{
    life->flags &= (uint8_t)~SHMC_ALIVE;
    stamp_store(life->changed, stamp);
    self->alive--;
    self->ended++;
}

void shmc_life_drop(struct shmc_lives *self, uint64_t slot)
{
    const uint32_t handle = self->table[slot];

    table_remove(self, slot);
    pool_give(self, handle);
    self->ended--;
}

/* A version that does not fit in place: the life moves, with everything known about it. */
static int life_move(struct shmc_lives *self, uint32_t handle, const struct shmc_known *what,
                     struct shmc_life *head, size_t size, uint64_t stamp)
{
    const struct shmc_life old = *shmc_life_at(self, handle);

    if (life_add(self, what, head, size, stamp) < 0)
        return -1;
    uint64_t slot = shmc_life_slot(self, what->key);
    while (self->table[slot] != handle)
        slot = (slot + 1) & self->mask;
    self->ended++; /* for a moment: shmc_life_drop() counts those */
    self->alive--;
    shmc_life_drop(self, slot);
    struct shmc_life *moved = shmc_life_at(self, find_alive(self, what->key));
    memcpy(moved->born, old.born, sizeof moved->born);
    memcpy(moved->bits, old.bits, sizeof moved->bits);
    return 0;
}

int shmc_lives_put(struct shmc_lives *self, const struct shmc_known *what, uint64_t stamp,
                     bool sure)
{
    struct shmc_life head;
    const size_t size = describe(what, &head);
    const uint32_t handle = self->mask == 0 ? 0 : find_alive(self, what->key);

    if (handle == 0)
        return life_add(self, what, &head, size, stamp);
    struct shmc_life *life = shmc_life_at(self, handle);
    if (!same_uid(life, &head, what)) {
        shmc_life_end(self, life, stamp);
        return life_add(self, what, &head, size, stamp);
    }
    life->flags |= SHMC_SEEN;
    /* Without a version the object counts as changed. */
    if (!sure && what->version.length > 0 && same_version(life, &head, what))
        return 0;
    if (((life->flags | head.flags) & SHMC_VERSION_TEXT) && !same_version(life, &head, what))
        return life_move(self, handle, what, &head, size, stamp);
    life->flags = (uint8_t)((life->flags & ~SHMC_NUMBER_VERSION) |
                            (head.flags & SHMC_NUMBER_VERSION));
    if ((life->flags & SHMC_VERSION_TEXT) == 0)
        memcpy(life->version, head.version, sizeof life->version);
    stamp_store(life->changed, stamp);
    return 0;
}

int shmc_lives_delete(struct shmc_lives *self, const struct shmc_known *what, uint64_t stamp)
{
    const uint32_t handle = self->mask == 0 ? 0 : find_alive(self, what->key);
    struct shmc_life head;

    if (handle == 0)
        return 0;
    struct shmc_life *life = shmc_life_at(self, handle);
    describe(what, &head);
    if (head.flags & life->flags & SHMC_NUMBER_VERSION) /* the version of its end, if known */
        memcpy(life->version, head.version, sizeof life->version);
    shmc_life_end(self, life, stamp);
    return 0;
}
