/*
 * intern.c - the table of equals: each value of the arena is stored once.
 *
 * A private table of the writer, open addressing with linear probing. An entry packs
 * where the block is, what kind it is, and 29 bits of its hash:
 *
 *     63            32 31  29 28            0
 *     +---------------+------+---------------+
 *     |    granule    | tag  |     hash      |      0 = empty
 *     +---------------+------+---------------+
 *
 * The place of an entry is hash * capacity / 2^29, so that growing keeps the order
 * and needs no look at the blocks.
 *
 * Invariants
 *   T1  a value block is in the table if and only if it is alive (its meta is a
 *       count): what is dead or in limbo is never found (design: reaching zero
 *       removes it).
 *   T2  two entries are never equal in kind and content.
 *   T3  the hash is keyed by a secret of the writer: nobody outside can choose
 *       objects that all fall into one place; equality compares the bytes.
 */
#include "writer.h"

#define HASH_BITS 29u
#define HASH_MASK ((UINT64_C(1) << HASH_BITS) - 1)
#define FIRST_CAPACITY 1024u

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

enum shmc_status shmc_intern_create(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        table->seed[i] = splitmix(&seed) | 1;
    table->count = 0;
    table->capacity = FIRST_CAPACITY;
    table->entries = shmc_heap_resize(heap, NULL, 0, FIRST_CAPACITY * sizeof(uint64_t));
    if (table->entries == NULL)
        return SHMC_NO_MEMORY;
    memset(table->entries, 0, FIRST_CAPACITY * sizeof(uint64_t));
    return SHMC_OK;
}

void shmc_intern_destroy(struct shmc_intern *table, struct shmc_heap *heap)
{
    if (table->entries != NULL)
        shmc_heap_resize(heap, table->entries, table->capacity * sizeof(uint64_t), 0);
    table->entries = NULL;
}

static uint64_t home(const struct shmc_intern *table, uint64_t entry)
{
    return ((entry & HASH_MASK) * table->capacity) >> HASH_BITS;
}

static void place(struct shmc_intern *table, uint64_t entry)
{
    uint64_t i = home(table, entry);

    while (table->entries[i] != 0)
        i = i + 1 == table->capacity ? 0 : i + 1;
    table->entries[i] = entry;
}

enum shmc_status shmc_intern_reserve(struct shmc_intern *table, struct shmc_heap *heap)
{
    if ((table->count + 1) * 8 <= table->capacity * 7)
        return SHMC_OK;
    const struct shmc_intern old = *table;
    uint64_t capacity = old.capacity + old.capacity / 2;
    uint64_t *entries = shmc_heap_resize(heap, NULL, 0, capacity * sizeof(uint64_t));

    if (entries == NULL)
        return SHMC_NO_MEMORY;
    memset(entries, 0, capacity * sizeof(uint64_t));
    table->entries = entries;
    table->capacity = capacity;
    for (uint64_t i = 0; i < old.capacity; i++) {
        if (old.entries[i] != 0)
            place(table, old.entries[i]);
    }
    shmc_heap_resize(heap, old.entries, old.capacity * sizeof(uint64_t), 0);
    return SHMC_OK;
}

/* How much of a block is content, and where: a shape's id is not. */
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

/* content[0] tells the length in each kind, so comparing it first bounds the rest. */
static bool same(const uint8_t *base, unsigned tag, shmc_offset block, const uint64_t *content,
                 size_t count)
{
    const uint64_t *words = (const uint64_t *)(const void *)(base + block);

    if (tag == SHMC_TAG_SHAPE)
        words++;
    return words[0] == content[0] && memcmp(words, content, count * 8) == 0;
}

bool shmc_intern_find(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                      const uint64_t *content, size_t count, uint64_t *hash, shmc_offset *block)
{
    *hash = hash_words(table, tag, content, count);
    const uint64_t wanted = (uint64_t)tag << HASH_BITS | *hash;

    for (uint64_t i = home(table, wanted); table->entries[i] != 0;
         i = i + 1 == table->capacity ? 0 : i + 1) {
        if ((uint32_t)table->entries[i] != (uint32_t)wanted)
            continue;
        const shmc_offset found = table->entries[i] >> 32 << 3;
        if (same(base, tag, found, content, count)) {
            *block = found;
            return true;
        }
    }
    return false;
}

void shmc_intern_add(struct shmc_intern *table, unsigned tag, uint64_t hash, shmc_offset block)
{
    place(table, (uint64_t)shmc_granule(block) << 32 | (uint64_t)tag << HASH_BITS | hash);
    table->count++;
}

static uint64_t distance(const struct shmc_intern *table, uint64_t from, uint64_t to)
{
    return to >= from ? to - from : to + table->capacity - from;
}

/* Closes the gap at `hole`: moves back what was pushed behind its home. */
static void close_gap(struct shmc_intern *table, uint64_t hole)
{
    uint64_t i = hole;

    for (;;) {
        i = i + 1 == table->capacity ? 0 : i + 1;
        if (table->entries[i] == 0)
            break;
        if (distance(table, home(table, table->entries[i]), i) >= distance(table, hole, i)) {
            table->entries[hole] = table->entries[i];
            hole = i;
        }
    }
    table->entries[hole] = 0;
}

uint64_t shmc_intern_entry(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                           shmc_offset block)
{
    size_t count;
    const uint64_t *content = content_of(base, tag, block, &count);
    const uint64_t entry = (uint64_t)shmc_granule(block) << 32 | (uint64_t)tag << HASH_BITS |
                           hash_words(table, tag, content, count);

    __builtin_prefetch(&table->entries[home(table, entry)]);
    return entry;
}

static bool position_of(const struct shmc_intern *table, uint64_t entry, uint64_t *position)
{
    for (uint64_t i = home(table, entry); table->entries[i] != 0;
         i = i + 1 == table->capacity ? 0 : i + 1) {
        if (table->entries[i] == entry) {
            *position = i;
            return true;
        }
    }
    return false;
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

    assert(found); /* T1 */
    if (!found)
        return;
    close_gap(table, position);
    table->count--;
}
