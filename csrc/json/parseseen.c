/*
 * parseseen.c - containers whose text was read before.
 *
 * An API server writes an unchanged value in the same bytes. So for an object's members, and for
 * theirs, a hash of the text is kept with the block; if the text at hand has the same hash as the
 * text from which its parent's block there was made, it is that block: neither the text nor the
 * block, nor anything below it, is read.
 *
 * The table is private, a few percent of the arena, and may forget at any time: an entry lies at a
 * slot chosen by its block's offset, and a later entry for that slot replaces it.
 *
 * Invariants
 *   SEEN1  equal texts at one depth are the same value: managedFields are dropped from metadata
 *       alone, which has no entry where they are, and depth is limited, so it is part of the hash.
 *   SEEN2  the hash has 128 bits and a secret of the writer: different texts share it only by
 *       chance, once in 10^38.
 *   SEEN3  an entry belongs to the block that was handed out at its offset in the generation of
 *       its birth. A batch that is undone, or that published nothing, gives blocks back in the
 *       generation in which it took them: their entries go with them. When births are renumbered
 *       all entries go.
 */
#include "json/parse.h"

#define FIRST_CAPACITY 256u
#define LEAST_TEXT 128u    /* bytes: a shorter text is read just as fast */
#define SHARE 32u          /* 1/32 of the arena's bytes */
#define FIRST_DEPTH 2u     /* an object's members; the object itself has a new version each time */
#define LAST_DEPTH 3u

struct shmc_seen_entry {
    uint64_t hash[2];
    uint32_t granule; /* 0: nothing */
    uint32_t birth;
    uint32_t length; /* of the text */
    uint32_t unused;
};
static_assert(sizeof(struct shmc_seen_entry) == 32, "two of them in a line");

static inline struct shmc_seen_entry *entry_at(const struct shmc_seen *seen, uint32_t granule)
{
    return &seen->entries[(granule * UINT64_C(0x9e3779b97f4a7c15)) >> seen->shift];
}

/* SEEN2: two chains for each half of a line, which the processor works out side by side. */
static void hash_text(const struct shmc_parser *parser, const uint8_t *at, size_t length,
                      uint64_t hash[2])
{
    const uint64_t *const seed = parser->writer->intern.seed;
    uint64_t a = seed[0] ^ parser->depth, b = seed[1] ^ length, c = seed[2], d = seed[3];
    uint64_t words[4];

    for (size_t i = 0;; i += 32) {
        if (i + 32 > length) /* the last 32: the text is that long (LEAST_TEXT) */
            i = length - 32;
        memcpy(words, at + i, 32);
        a = shmc_mix(words[0] ^ seed[0], words[1] ^ a);
        b = shmc_mix(words[1] ^ seed[1], words[0] ^ b);
        c = shmc_mix(words[2] ^ seed[2], words[3] ^ c);
        d = shmc_mix(words[3] ^ seed[3], words[2] ^ d);
        if (i + 32 == length)
            break;
    }
    hash[0] = shmc_mix(a ^ seed[1], c ^ seed[2]);
    hash[1] = shmc_mix(b ^ seed[3], d ^ seed[0]);
}

/* Whether this text may have an entry, the container being open already (SEEN1). */
static bool may_have_entry(const struct shmc_parser *parser)
{
    return parser->depth - FIRST_DEPTH <= LAST_DEPTH - FIRST_DEPTH &&
           !(parser->depth == FIRST_DEPTH && parser->in_metadata);
}

static uint32_t birth_of(const struct shmc_writer *writer, shmc_offset block)
{
    return shmc_meta_birth(*shmc_arena_meta(&writer->arena, block));
}

const uint8_t *shmc_seen_find(const struct shmc_parser *parser, const uint8_t *at,
                              shmc_word previous)
{
    const struct shmc_writer *const writer = parser->writer;
    uint64_t hash[2];

    if (writer->seen.entries == NULL || !may_have_entry(parser))
        return NULL;
    const shmc_offset block = shmc_block_of(previous);
    const struct shmc_seen_entry *const entry = entry_at(&writer->seen, shmc_granule(block));
    if (entry->granule != shmc_granule(block) ||
        !SHMC_CHECKED(NO_SEEN_BIRTH, entry->birth == birth_of(writer, block)) || /* SEEN3 */
        (size_t)(parser->end - at) < entry->length ||
        at[entry->length - 1] != (uint8_t)(*at + 2)) /* its bracket: rejects most others */
        return NULL;
    hash_text(parser, at, entry->length, hash);
    return hash[0] == entry->hash[0] && hash[1] == entry->hash[1] ? at + entry->length : NULL;
}

/* Room for more, if the arena is worth it; existing entries stay. */
static bool grow(struct shmc_writer *writer)
{
    const struct shmc_seen old = writer->seen;
    const uint64_t count = old.entries == NULL ? 0 : UINT64_C(1) << (64 - old.shift);
    const uint64_t wanted = count == 0 ? FIRST_CAPACITY : count * 2;
    const size_t size = sizeof(struct shmc_seen_entry);

    if (count != 0 && (old.taken * 2 < count || wanted * size > writer->arena.used_bytes / SHARE))
        return true;
    struct shmc_seen_entry *entries = shmc_heap_resize(&writer->heap, NULL, 0, wanted * size);
    if (entries == NULL)
        return count != 0;
    memset(entries, 0, wanted * size);
    writer->seen = (struct shmc_seen){.entries = entries,
                                      .birth_base = old.birth_base,
                                      .shift = (unsigned)__builtin_clzll(wanted) + 1};
    for (uint64_t i = 0; i < count; i++) {
        if (old.entries[i].granule != 0) {
            *entry_at(&writer->seen, old.entries[i].granule) = old.entries[i];
            writer->seen.taken++;
        }
    }
    shmc_heap_resize(&writer->heap, old.entries, count * size, 0);
    return true;
}

void shmc_seen_note(struct shmc_parser *parser, const uint8_t *at, const uint8_t *after,
                    shmc_word word)
{
    struct shmc_writer *const writer = parser->writer;
    const size_t length = (size_t)(after - at);

    if (length < LEAST_TEXT || length > UINT32_MAX || !may_have_entry(parser) ||
        !shmc_is_block(word) || !grow(writer))
        return;
    const shmc_offset block = shmc_block_of(word);
    struct shmc_seen_entry *const entry = entry_at(&writer->seen, shmc_granule(block));
    writer->seen.taken += entry->granule == 0;
    entry->granule = shmc_granule(block);
    entry->birth = birth_of(writer, block);
    entry->length = (uint32_t)length;
    hash_text(parser, at, length, entry->hash);
}

void shmc_seen_fetch(const struct shmc_parser *parser, const uint8_t *words, uint64_t count)
{
    const struct shmc_writer *const writer = parser->writer;

    if (writer->seen.entries == NULL || parser->depth + 1 - FIRST_DEPTH > LAST_DEPTH - FIRST_DEPTH)
        return;
    for (uint64_t i = 0; i < count && i < 32; i++) {
        const shmc_word word = shmc_word_load(words + i * 8);
        if (shmc_tag(word) < SHMC_TAG_ARRAY)
            continue;
        __builtin_prefetch(entry_at(&writer->seen, shmc_granule(shmc_block_of(word))));
        __builtin_prefetch(shmc_arena_meta(&writer->arena, shmc_block_of(word)));
    }
}

/* ---- the writer ------------------------------------------------------------------------------- */

void shmc_seen_forget(struct shmc_writer *writer, shmc_offset block)
{
    if (writer->seen.entries == NULL)
        return;
    struct shmc_seen_entry *const entry = entry_at(&writer->seen, shmc_granule(block));
    if (entry->granule == shmc_granule(block))
        SHMC_UNLESS(NO_SEEN_FORGET, entry->birth = UINT32_MAX); /* SEEN3; no birth is as large */
}

void shmc_seen_births(struct shmc_writer *writer)
{
    const uint64_t count =
        writer->seen.entries == NULL ? 0 : UINT64_C(1) << (64 - writer->seen.shift);

    if (writer->seen.birth_base == writer->arena.birth_base)
        return;
    writer->seen.birth_base = writer->arena.birth_base;
    writer->seen.taken = 0;
    if (count != 0)
        memset(writer->seen.entries, 0, count * sizeof(struct shmc_seen_entry));
}

void shmc_seen_destroy(struct shmc_writer *writer)
{
    if (writer->seen.entries != NULL)
        shmc_heap_resize(&writer->heap, writer->seen.entries,
                         (UINT64_C(1) << (64 - writer->seen.shift)) *
                             sizeof(struct shmc_seen_entry),
                         0);
    writer->seen = (struct shmc_seen){.entries = NULL};
}
