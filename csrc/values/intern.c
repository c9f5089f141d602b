/*
 * intern.c - the table of equals: equal values in the arena are stored once.
 *
 * A private table of the writer: buckets of eight entries, a line of the cache each. An
 * entry lies in the bucket where its hash leads, or, while that is full, in the next one that
 * is not; so a look-up is usually one line, and ends at the first empty entry. An entry packs the
 * granule of the block, its kind, whether it was added since the table last forgot, and 28 bits of
 * its hash:
 *
 *     63            32 31  29  28  27          0
 *     +---------------+------+-----+------------+
 *     |    granule    | tag  | new |    hash    |      0 = empty
 *     +---------------+------+-----+------------+
 *
 * The bucket is hash * buckets / 2^28, so that growing keeps the order and does not read
 * the blocks.
 *
 * Most values of most objects are unique for ever: names, uids, times, and everything that contains
 * them. A table of all values would be half as large as the values, and every look-up in it
 * a miss of the cache. So from a certain size on the table forgets: a block with only one reference
 * that no second one found between two forgettings loses its entry. An equal value that comes later
 * gets a block of its own, which the next one finds.
 *
 * Invariants
 *   INTERN1  a block has an entry if and only if its meta records one, and only while it is alive
 *       (its meta is a count): a block that is dead or in limbo is never found (by design: reaching
 *       zero removes it).
 *   INTERN2  two entries are never equal in kind and content. Two blocks may be, if the table
 *       forgot one of them: different words imply nothing about the values, equal words imply that
 *       they are equal.
 *   INTERN3  the hash is keyed by a secret of the writer: no outsider can choose
 *       objects that all hash to one bucket; equality compares the bytes.
 *   INTERN4  every bucket between the one where an entry's hash leads and the one where it
 *       lies is full; in a bucket the empty entries are the last ones.
 *   INTERN5  the table forgets only between batches, and never a new entry or one with another
 *       count than 1: in one batch equal values that are made have one word.
 */
#include "writer/writer.h"

#define HASH_BITS 28u
#define HASH_MASK ((UINT64_C(1) << HASH_BITS) - 1)
#define NEW (UINT64_C(1) << 28)
#define TAG_SHIFT 29u
#define FIRST_CAPACITY 1024u
#ifndef SHMC_FORGET_FROM
#define SHMC_FORGET_FROM (UINT64_C(1) << 17) /* entries: a MiB */
#endif
#define BUCKET 8u /* entries: a line of the cache */
#define LINE (BUCKET * 8u)

/* Words of a block; the last one of a string is padded with zeros. */
static uint64_t hash_words(const struct shmc_intern *table, unsigned tag, const uint64_t *words,
                           size_t count)
{
    uint64_t hash = table->seed[0] ^ tag;
    size_t i = 0;

    for (; i + 2 <= count; i += 2)
        hash = shmc_mix(words[i] ^ table->seed[1], words[i + 1] ^ hash);
    if (i < count)
        hash = shmc_mix(words[i] ^ table->seed[2], hash ^ table->seed[1]);
    hash = shmc_mix(hash ^ table->seed[3], count ^ table->seed[2]);
    return hash & HASH_MASK;
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Zeroed entries that begin on a line. */
static enum shmc_status entries_make(struct shmc_intern *table, struct shmc_heap *heap,
                                     uint64_t capacity)
{
    uint8_t *memory = shmc_heap_resize(heap, NULL, 0, capacity * 8 + LINE);

    if (memory == NULL)
        return SHMC_NO_MEMORY;
    memset(memory, 0, capacity * 8 + LINE);
    table->memory = memory;
    table->entries = (uint64_t *)(void *)(memory + (LINE - (uintptr_t)memory % LINE) % LINE);
    table->capacity = capacity;
    return SHMC_OK;
}

static void entries_free(const struct shmc_intern *table, struct shmc_heap *heap)
{
    shmc_heap_resize(heap, table->memory, table->capacity * 8 + LINE, 0);
}

enum shmc_status shmc_intern_create(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        table->seed[i] = splitmix(&seed) | 1;
    table->count = 0;
    table->forget_from = SHMC_FORGET_FROM;
    return entries_make(table, heap, FIRST_CAPACITY);
}

void shmc_intern_destroy(struct shmc_intern *table, struct shmc_heap *heap)
{
    if (table->memory != NULL)
        entries_free(table, heap);
    table->memory = NULL;
    table->entries = NULL;
}

/* The first entry of the bucket where an entry's hash leads. */
static inline uint64_t home(const struct shmc_intern *table, uint64_t entry)
{
    return (((entry & HASH_MASK) * (table->capacity / BUCKET)) >> HASH_BITS) * BUCKET;
}

static inline uint64_t next(const struct shmc_intern *table, uint64_t bucket)
{
    return bucket + BUCKET == table->capacity ? 0 : bucket + BUCKET;
}

/* How many of a bucket's entries are taken: the first ones (INTERN4). */
static inline unsigned taken(const uint64_t *bucket)
{
    unsigned i = BUCKET;

    while (i > 0 && bucket[i - 1] == 0)
        i--;
    return i;
}

static void put(struct shmc_intern *table, uint64_t entry)
{
    for (uint64_t bucket = home(table, entry);; bucket = next(table, bucket)) {
        const unsigned i = taken(table->entries + bucket);

        if (i < BUCKET) {
            table->entries[bucket + i] = entry;
            return;
        }
    }
}

/* The entry itself, whether it is new or not. */
static inline bool is_entry(uint64_t found, uint64_t entry)
{
    return ((found ^ entry) & ~NEW) == 0;
}

static bool is_alone(const struct shmc_arena *arena, uint64_t entry)
{
    return shmc_meta_count(*shmc_arena_meta(arena, entry >> 32 << 3)) == 1;
}

/* Prefetches for an entry that comes soon: metas are cold. */
static void fetch_meta(const struct shmc_intern *table, const struct shmc_arena *arena, uint64_t i)
{
    const uint64_t entry = i < table->capacity ? table->entries[i] : 0;

    if (entry != 0 && (entry & NEW) == 0)
        __builtin_prefetch(shmc_arena_meta(arena, entry >> 32 << 3), 1);
}

static bool is_kept(const struct shmc_arena *arena, uint64_t entry)
{
    return (SHMC_KEEP_NO_NEW_KEPT && (entry & NEW) != 0) || !is_alone(arena, entry);
}

static uint64_t count_kept(const struct shmc_intern *table, const struct shmc_arena *arena)
{
    uint64_t kept = 0;

    for (uint64_t i = 0; i < table->capacity; i++) {
        fetch_meta(table, arena, i + 2 * BUCKET);
        kept += table->entries[i] != 0 && is_kept(arena, table->entries[i]);
    }
    return kept;
}

/* Puts the entry back, now an old one, or records in its block that it has none. */
static void keep_or_forget(struct shmc_intern *table, const struct shmc_arena *arena,
                           uint64_t entry)
{
    if (entry == 0)
        return;
    if (is_kept(arena, entry))
        put(table, entry & ~NEW);
    else
        SHMC_UNLESS(NO_FORGET_NOTE, *shmc_arena_meta(arena, entry >> 32 << 3) &=
                                    ~((uint64_t)SHMC_META_IN << 32));
}

/*
 * Rebuilds in the same memory: a second table would leave a hole of its size in the heap, each
 * time. Bucket by bucket, from after one that is not full, beyond which no entry lies that leads
 * before it (INTERN4). So the entries that a bucket keeps fit into it or into one handled before.
 */
static void forget_in_place(struct shmc_intern *table, const struct shmc_arena *arena)
{
    uint64_t bucket = 0;

    while (SHMC_KEEP_NO_FORGET_START && table->entries[bucket + BUCKET - 1] != 0)
        bucket += BUCKET; /* exists: an eighth of all entries is empty */
    for (uint64_t i = 0; i < table->capacity; i += BUCKET) {
        uint64_t entries[BUCKET];

        bucket = next(table, bucket);
        memcpy(entries, table->entries + bucket, sizeof entries);
        memset(table->entries + bucket, 0, sizeof entries);
        for (unsigned k = 0; k < BUCKET; k++) {
            fetch_meta(table, arena, bucket + 2 * BUCKET + k);
            keep_or_forget(table, arena, entries[k]);
        }
    }
}

void shmc_intern_forget(struct shmc_intern *table, struct shmc_heap *heap,
                        const struct shmc_arena *arena)
{
    const struct shmc_intern old = *table;

    if (table->forget_from != 0 && /* 0: in a test it forgets at every chance */
        (table->capacity < table->forget_from || table->count * 4 < table->capacity * 3))
        return;
    const uint64_t kept = count_kept(table, arena);
    const uint64_t least = table->forget_from != 0 ? table->forget_from : FIRST_CAPACITY;
    const uint64_t room = kept * 2 < least ? least : kept * 2;
    table->count = kept;
    if (room <= old.capacity && old.capacity <= room * 2) {
        forget_in_place(table, arena);
        return;
    }
    if (entries_make(table, heap, (room + BUCKET - 1) / BUCKET * BUCKET) != SHMC_OK) {
        table->count = old.count; /* nothing forgotten: it grows */
        return;
    }
    for (uint64_t i = 0; i < old.capacity; i++)
        keep_or_forget(table, arena, old.entries[i]);
    entries_free(&old, heap);
}

enum shmc_status shmc_intern_reserve(struct shmc_intern *table, struct shmc_heap *heap)
{
    if ((table->count + 1) * 8 <= table->capacity * 7)
        return SHMC_OK;
    const struct shmc_intern old = *table;
    const enum shmc_status status =
        entries_make(table, heap, (old.capacity + old.capacity / 2) / BUCKET * BUCKET);

    if (status != SHMC_OK)
        return status;
    for (uint64_t i = 0; i < old.capacity; i++) {
        if (old.entries[i] != 0)
            put(table, old.entries[i]);
    }
    entries_free(&old, heap);
    return SHMC_OK;
}

/* The part of a block that is content: a shape's id is not. */
static const uint64_t *content_of(const uint8_t *base, unsigned tag, shmc_offset block,
                                  size_t *count)
{
    const uint64_t *words = (const uint64_t *)(const void *)(base + block);

    switch (tag) {
    case SHMC_TAG_STRING:
        *count = (size_t)shmc_padded(4 + ((uint32_t)words[0] & SHMC_STRING_LENGTH)) / 8;
        return words;
    case SHMC_TAG_NUMBER:
        *count = 2;
        return words;
    case SHMC_TAG_ARRAY:
        *count = 1 + (size_t)words[0];
        return words;
    case SHMC_TAG_OBJECT:
        *count = 1 + (size_t)((const uint64_t *)(const void *)(base + words[0]))[1];
        return words;
    default: /* shape */
        *count = 1 + (size_t)words[1];
        return words + 1;
    }
}

/* content[0] determines the length in each kind, so comparing it first bounds the rest. */
static bool same(const uint8_t *base, unsigned tag, shmc_offset block, const uint64_t *content,
                 size_t count)
{
    const uint64_t *words = (const uint64_t *)(const void *)(base + block);

    if (tag == SHMC_TAG_SHAPE)
        words++;
    return words[0] == content[0] && memcmp(words, content, count * 8) == 0;
}

uint64_t shmc_intern_hash(const struct shmc_intern *table, unsigned tag, const uint64_t *content,
                          size_t count)
{
    const uint64_t hash = hash_words(table, tag, content, count);

    __builtin_prefetch(table->entries + home(table, hash), 1);
    return hash;
}

bool shmc_intern_find(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                      const uint64_t *content, size_t count, uint64_t hash, shmc_offset *block)
{
    const uint32_t wanted = (uint32_t)(tag << TAG_SHIFT | hash);

    for (uint64_t bucket = home(table, wanted);; bucket = next(table, bucket)) {
        const uint64_t *entries = table->entries + bucket;

        for (unsigned i = 0; i < BUCKET; i++) {
            const shmc_offset found = entries[i] >> 32 << 3;
            if (((uint32_t)entries[i] & ~(uint32_t)NEW) == wanted && found != 0 &&
                same(base, tag, found, content, count)) {
                *block = found;
                return true;
            }
        }
        if (entries[BUCKET - 1] == 0)
            return false; /* INTERN4 */
    }
}

void shmc_intern_add(struct shmc_intern *table, unsigned tag, uint64_t hash, shmc_offset block)
{
    put(table, (uint64_t)shmc_granule(block) << 32 | (uint64_t)tag << TAG_SHIFT | NEW | hash);
    table->count++;
}

static uint64_t distance(const struct shmc_intern *table, uint64_t from, uint64_t to)
{
    return to >= from ? to - from : to + table->capacity - from;
}

/*
 * Takes an entry out. If its bucket was full, an entry that lies further on because of that moves
 * back into the hole, and so on from there (INTERN4).
 */
static void close_gap(struct shmc_intern *table, uint64_t hole)
{
    uint64_t emptied = hole / BUCKET * BUCKET; /* the bucket with the hole */
    bool full = table->entries[emptied + BUCKET - 1] != 0;

    for (uint64_t bucket = next(table, emptied); full; bucket = next(table, bucket)) {
        const uint64_t *entries = table->entries + bucket;

        full = entries[BUCKET - 1] != 0;
        for (unsigned i = 0; i < BUCKET; i++) {
            if (entries[i] != 0 && distance(table, home(table, entries[i]), bucket) >=
                                       distance(table, emptied, bucket)) {
                table->entries[hole] = entries[i];
                hole = bucket + i;
                emptied = bucket;
                break;
            }
        }
    }
    const uint64_t last = emptied + taken(table->entries + emptied) - 1;
    table->entries[hole] = table->entries[last];
    table->entries[last] = 0;
}

uint64_t shmc_intern_entry(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                           shmc_offset block)
{
    size_t count;
    const uint64_t *content = content_of(base, tag, block, &count);
    const uint64_t entry = (uint64_t)shmc_granule(block) << 32 | (uint64_t)tag << TAG_SHIFT |
                           hash_words(table, tag, content, count);

    __builtin_prefetch(&table->entries[home(table, entry)]);
    return entry;
}

enum shmc_status shmc_intern_expect(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t count)
{
    const struct shmc_intern empty = *table;
    const uint64_t capacity = (count + count / 7) / BUCKET * BUCKET;

    if (table->count != 0 || capacity <= table->capacity)
        return SHMC_OK;
    const enum shmc_status status = entries_make(table, heap, capacity);
    if (status == SHMC_OK)
        entries_free(&empty, heap);
    return status;
}

enum shmc_status shmc_intern_restore(struct shmc_intern *table, struct shmc_heap *heap,
                                     const uint8_t *base, uint64_t entry, bool *in)
{
    const unsigned tag = (unsigned)(entry >> TAG_SHIFT & 7u);
    shmc_offset equal;
    size_t count;
    const uint64_t *content = content_of(base, tag, entry >> 32 << 3, &count);
    const enum shmc_status status = shmc_intern_reserve(table, heap);

    if (status != SHMC_OK)
        return status;
    *in = !shmc_intern_find(table, base, tag, content, count, entry & HASH_MASK, &equal);
    if (*in) { /* INTERN2 */
        put(table, entry);
        table->count++;
    }
    return SHMC_OK;
}

static bool position_of(const struct shmc_intern *table, uint64_t entry, uint64_t *position)
{
    for (uint64_t bucket = home(table, entry);; bucket = next(table, bucket)) {
        for (unsigned i = 0; i < BUCKET; i++) {
            if (is_entry(table->entries[bucket + i], entry)) {
                *position = bucket + i;
                return true;
            }
        }
        if (table->entries[bucket + BUCKET - 1] == 0)
            return false;
    }
}

bool shmc_intern_has(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                     shmc_offset block)
{
    uint64_t position;

    return position_of(table, shmc_intern_entry(table, base, tag, block), &position);
}

void shmc_intern_remove(struct shmc_intern *table, uint64_t entry)
{
    uint64_t position = 0;
    const bool found = position_of(table, entry, &position);

    assert(found); /* INTERN1 */
    if (!found)
        return;
    close_gap(table, position);
    table->count--;
}
