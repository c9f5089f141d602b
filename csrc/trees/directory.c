/*
 * directory.c - key to object by hash: used for a look-up by key.
 *
 * Each primary tree is accompanied by a trie over the keys' 64-bit hashes, five bits a
 * level. Inner nodes are 32 offsets; they lead to inner nodes or to buckets of a few entries
 * (hash, key, value). A look-up is a load per level, a row of hashes and one key compared; the
 * ordered tree compares keys at every level, and several of them where names share long
 * prefixes. A change copies a bucket and one node of 272 bytes a level.
 *
 *   inner    INNER, generation, offset x 32 (0 = empty)
 *   bucket   count, generation, hash x count, key x count, value x count
 *
 * Copy-on-write like the trees: fresh nodes are written in place, others replaced.
 *
 * Invariants (checked by check.c)
 *   DIRECTORY1  the directory holds exactly the keys and values of the primary tree, the same
 *       words. It counts nothing: the tree's entries do.
 *   DIRECTORY2  an entry lies where its hash leads; the hash is keyed by a word of DATA.
 *   DIRECTORY3  no bucket is empty, no inner node has no child; an empty directory is offset 0.
 *   TREEWRITE1 of treewrite.c: a fresh node's ancestors are fresh.
 *
 * Progress of a look-up: at most 13 levels, and a bucket of at most 21 entries.
 */
#include "writer/writer.h"

#define INNER UINT64_MAX
#define FAN_BITS SHMC_FAN_BITS
#define FAN 32u
#define LEVELS SHMC_DIRECTORY_LEVELS
#define BUCKET_MAX 20u
static_assert(BUCKET_MAX < 31, "one bit for each entry of a bucket");
#define HEAD 16u
#define INNER_SIZE (HEAD + FAN * 8u)

uint64_t shmc_key_hash(uint64_t hash_key, const uint8_t *bytes, size_t length)
{
    const uint64_t a = UINT64_C(0x9e3779b97f4a7c15), b = UINT64_C(0xd6e8feb86659fd93);
    uint64_t hash = shmc_mix(hash_key ^ a, length ^ b);
    size_t i = 0;

    for (; length - i > 16; i += 16)
        hash = shmc_mix(shmc_load8(bytes + i) ^ a, shmc_load8(bytes + i + 8) ^ hash);
    if (length >= 8) {
        const uint64_t first = length - i > 8 ? shmc_load8(bytes + i) : 0;
        return shmc_mix(hash ^ first ^ b, shmc_load8(bytes + length - 8) ^ a);
    }
    return shmc_mix(hash ^ b, shmc_short_word(bytes, length) ^ a);
}

/* Which child of an inner node at `level`. */
static unsigned branch(uint64_t hash, unsigned level)
{
    return (unsigned)(hash >> (64 - FAN_BITS * (level + 1))) & (FAN - 1);
}

static uint64_t bucket_size(uint64_t count)
{
    return HEAD + count * 24;
}

/* ---- looking up (any process) --------------------------------------------------------- */

static bool same_key(const struct shmc_span *span, shmc_word word, const uint8_t *key,
                     size_t length)
{
    struct shmc_string string;

    if (length <= SHMC_SHORT_MAX)
        return shmc_short_word(key, length) == word;
    return shmc_string_open(span, word, &string) && string.block != 0 &&
           shmc_string_is(span, &string, key, length);
}

/* The number of a key in a bucket; count if absent. The object is prefetched while the key is
 * compared: a caller that looks a key up reads the object next. */
static inline uint64_t bucket_search(const struct shmc_span *span, shmc_offset bucket,
                                     uint64_t count, uint64_t hash, const uint8_t *key,
                                     size_t length)
{
    const shmc_offset hashes = bucket + HEAD;
    uint32_t found = 0;

    for (uint64_t i = 0; i < count; i++) /* all: an unpredictable exit costs more */
        found |= (uint32_t)(shmc_load_at(span, hashes + i * 8) == hash) << i;
    for (; found != 0; found &= found - 1) {
        const uint64_t i = (uint64_t)__builtin_ctz(found);
        const shmc_word value = shmc_load_at(span, hashes + (2 * count + i) * 8);
        shmc_fetch(span, shmc_block_of(value));
        if (same_key(span, shmc_load_at(span, hashes + (count + i) * 8), key, length))
            return i;
    }
    return count;
}

/* A bucket is a few lines, and mostly cold: prefetch all at once, before its count is known. */
static inline void fetch_bucket(const struct shmc_span *span, shmc_offset offset)
{
    for (uint64_t line = 64; line <= 256; line += 64)
        shmc_fetch(span, offset + line);
}

enum shmc_status shmc_directory_find(const struct shmc_span *span, shmc_offset top, uint64_t hash,
                                     const uint8_t *key, size_t length, shmc_word *value)
{
    shmc_offset offset = top;

    for (unsigned level = 0; offset != 0; level++) {
        if (!shmc_in_span(span, offset, HEAD))
            return SHMC_CORRUPT;
        if (level >= 2)
            fetch_bucket(span, offset);
        const uint64_t count = shmc_load_at(span, offset);
        if (count != INNER) {
            if (count > BUCKET_MAX + 1 || !shmc_in_span(span, offset, bucket_size(count)))
                return SHMC_CORRUPT;
            const uint64_t i = bucket_search(span, offset, count, hash, key, length);
            if (i == count)
                break;
            *value = shmc_load_at(span, offset + HEAD + (2 * count + i) * 8);
            return SHMC_OK;
        }
        if (level == LEVELS || !shmc_in_span(span, offset, INNER_SIZE))
            return SHMC_CORRUPT;
        offset = shmc_load_at(span, offset + HEAD + branch(hash, level) * 8);
    }
    return SHMC_NOT_FOUND;
}

/* ---- changing (the writer) -------------------------------------------------------------- */

struct slot {
    uint64_t hash;
    shmc_word key, value;
};

/* The inner nodes on the way to a hash, and the bucket after the last one. */
struct way {
    unsigned depth;
    shmc_offset inner[LEVELS];
    shmc_offset bucket; /* 0 = no bucket */
    uint64_t count, found; /* of its entries; the key's index, or count */
};

/* The key's word is the tree's, and so the bucket's if the key is there (DIRECTORY1). */
static void way_to(const struct shmc_writer *writer, shmc_offset top, uint64_t hash, shmc_word key,
                   struct way *way)
{
    const struct shmc_span *span = &writer->span;

    way->depth = 0;
    way->count = way->found = 0;
    for (way->bucket = top; way->bucket != 0 && shmc_load_at(span, way->bucket) == INNER;) {
        way->inner[way->depth] = way->bucket;
        way->bucket = shmc_load_at(span, way->bucket + HEAD + branch(hash, way->depth++) * 8);
    }
    if (way->bucket == 0)
        return;
    way->count = way->found = shmc_load_at(span, way->bucket);
    for (uint64_t i = 0; i < way->count; i++) {
        if (shmc_load_at(span, way->bucket + HEAD + (way->count + i) * 8) == key)
            way->found = i;
    }
}

static enum shmc_status bucket_emit(struct shmc_writer *writer, const struct slot *slots,
                                    uint64_t count, shmc_offset *offset)
{
    if (count == 0) {
        *offset = 0; /* DIRECTORY3 */
        return SHMC_OK;
    }
    const enum shmc_status status = shmc_node_alloc(writer, bucket_size(count), offset);
    if (status != SHMC_OK)
        return status;
    uint8_t *to = writer->data->base + *offset;
    shmc_word_store(to, count);
    shmc_word_store(to + 8, writer->generation + 1);
    to += HEAD;
    for (uint64_t i = 0; i < count; i++) {
        shmc_word_store(to + i * 8, slots[i].hash);
        shmc_word_store(to + (count + i) * 8, slots[i].key);
        shmc_word_store(to + (2 * count + i) * 8, slots[i].value);
    }
    return SHMC_OK;
}

/* Makes the way's inner nodes lead to `child`, from the last one up: fresh ones in place. */
static enum shmc_status climb(struct shmc_writer *writer, const struct way *way, uint64_t hash,
                              shmc_offset child, shmc_offset *top)
{
    for (unsigned level = way->depth; level-- > 0;) {
        const shmc_offset old = way->inner[level];
        const uint64_t at = HEAD + branch(hash, level) * 8;
        uint8_t *base = writer->data->base;
        shmc_offset inner;
        bool empty = child == 0;

        for (uint64_t i = HEAD; empty && i < INNER_SIZE; i += 8)
            empty = i == at || shmc_load_at(&writer->span, old + i) == 0;
        if (shmc_node_is_fresh(writer, old) && !empty) {
            shmc_word_store(base + old + at, child);
            return SHMC_OK;
        }
        if (empty) {
            inner = 0; /* DIRECTORY3 */
        } else {
            const enum shmc_status status = shmc_node_alloc(writer, INNER_SIZE, &inner);
            if (status != SHMC_OK)
                return status;
            base = writer->data->base;
            for (uint64_t i = 0; i < INNER_SIZE; i += 8)
                shmc_word_store(base + inner + i, i == at  ? child
                                                  : i == 8 ? writer->generation + 1
                                                           : shmc_word_load(base + old + i));
        }
        const enum shmc_status status = shmc_node_drop(writer, old);
        if (status != SHMC_OK)
            return status;
        child = inner;
    }
    *top = child;
    return SHMC_OK;
}

/* Entries as a bucket, or, if they are too many, as an inner node at `level` with its children; at
 * most LEVELS deep. */
static enum shmc_status emit(struct shmc_writer *writer, const struct slot *slots, uint64_t count,
                             unsigned level, shmc_offset *offset)
{
    shmc_offset children[FAN];
    struct slot part[BUCKET_MAX + 1];

    if (count <= BUCKET_MAX || level == LEVELS)
        return bucket_emit(writer, slots, count, offset);

    for (unsigned b = 0; b < FAN; b++) {
        uint64_t taken = 0;
        for (uint64_t i = 0; i < count; i++) {
            if (branch(slots[i].hash, level) == b)
                part[taken++] = slots[i];
        }
        const enum shmc_status status = emit(writer, part, taken, level + 1, &children[b]);
        if (status != SHMC_OK)
            return status;
    }
    const enum shmc_status status = shmc_node_alloc(writer, INNER_SIZE, offset);
    if (status != SHMC_OK)
        return status;
    uint8_t *to = writer->data->base + *offset;
    shmc_word_store(to, INNER);
    shmc_word_store(to + 8, writer->generation + 1);
    for (unsigned b = 0; b < FAN; b++)
        shmc_word_store(to + HEAD + b * 8, children[b]);
    return SHMC_OK;
}

static void load_slots(const struct shmc_writer *writer, const struct way *way, struct slot *slots)
{
    const shmc_offset hashes = way->bucket + HEAD;

    for (uint64_t i = 0; i < way->count; i++) {
        slots[i].hash = shmc_load_at(&writer->span, hashes + i * 8);
        slots[i].key = shmc_load_at(&writer->span, hashes + (way->count + i) * 8);
        slots[i].value = shmc_load_at(&writer->span, hashes + (2 * way->count + i) * 8);
    }
}

/* The way's bucket with its entries changed to `slots`. */
static enum shmc_status replace_bucket(struct shmc_writer *writer, const struct way *way,
                                       const struct slot *slots, uint64_t count, uint64_t hash,
                                       shmc_offset *top)
{
    shmc_offset offset;
    enum shmc_status status = emit(writer, slots, count, way->depth, &offset);

    if (status == SHMC_OK && way->bucket != 0)
        status = shmc_node_drop(writer, way->bucket);
    return status == SHMC_OK ? climb(writer, way, hash, offset, top) : status;
}

/* The way's bucket with another value for the entry found. */
static enum shmc_status replace_value(struct shmc_writer *writer, const struct way *way,
                                      shmc_word value, uint64_t hash, shmc_offset *top)
{
    const uint64_t size = bucket_size(way->count);
    const uint64_t at = HEAD + (2 * way->count + way->found) * 8;
    shmc_offset offset = way->bucket;

    if (shmc_node_is_fresh(writer, way->bucket)) {
        shmc_word_store(writer->data->base + offset + at, value);
        return SHMC_OK;
    }
    enum shmc_status status = shmc_node_alloc(writer, size, &offset);
    if (status == SHMC_OK)
        status = shmc_node_drop(writer, way->bucket);
    if (status != SHMC_OK)
        return status;
    const uint8_t *from = writer->data->base + way->bucket;
    uint8_t *to = writer->data->base + offset;
    for (uint64_t i = 0; i < size; i += 8)
        shmc_word_store(to + i, shmc_word_load(from + i));
    shmc_word_store(to + 8, writer->generation + 1);
    shmc_word_store(to + at, value);
    return climb(writer, way, hash, offset, top);
}

enum shmc_status shmc_directory_put(struct shmc_writer *writer, shmc_offset *top,
                                    const uint8_t *key, size_t length, shmc_word key_word,
                                    shmc_word value)
{
    const uint64_t hash = shmc_key_hash(writer->super->hash_key, key, length);
    struct slot slots[BUCKET_MAX + 1];
    struct way way;

    way_to(writer, *top, hash, key_word, &way);
    if (way.found < way.count)
        return replace_value(writer, &way, value, hash, top);
    if (way.count > BUCKET_MAX)
        return SHMC_LIMIT; /* more equal hashes than chance can produce */
    load_slots(writer, &way, slots);
    slots[way.count] = (struct slot){hash, key_word, value};
    return replace_bucket(writer, &way, slots, way.count + 1, hash, top);
}

enum shmc_status shmc_directory_delete(struct shmc_writer *writer, shmc_offset *top,
                                       const uint8_t *key, size_t length, shmc_word key_word)
{
    const uint64_t hash = shmc_key_hash(writer->super->hash_key, key, length);
    struct slot slots[BUCKET_MAX + 1];
    struct way way;

    way_to(writer, *top, hash, key_word, &way);
    if (way.found == way.count)
        return SHMC_NOT_FOUND;
    load_slots(writer, &way, slots);
    slots[way.found] = slots[way.count - 1];
    return replace_bucket(writer, &way, slots, way.count - 1, hash, top);
}

/* ---- walking (verification) ----------------------------------------------------------------- */

bool shmc_directory_node(const struct shmc_span *span, shmc_offset offset,
                         struct shmc_directory_node *node)
{
    if (!shmc_in_span(span, offset, HEAD))
        return false;
    const uint64_t count = shmc_load_at(span, offset);
    node->inner = count == INNER;
    node->count = node->inner ? FAN : count;
    node->words = offset + HEAD;
    node->size = node->inner ? INNER_SIZE : bucket_size(count);
    return node->inner ? shmc_in_span(span, offset, INNER_SIZE)
                       : count >= 1 && count <= BUCKET_MAX + 1 &&
                             shmc_in_span(span, offset, bucket_size(count));
}
