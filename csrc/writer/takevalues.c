/*
 * takevalues.c - a takeover's walk over values: their content, and the number of references.
 *
 * A block is read, and claimed in the arena, when the first word leads to it; each further word
 * only counts. Its content is visited from a stack of its own, so that depth is a number
 * (TAKEOVER2).
 */
#include <stdlib.h>

#include "writer/takeover.h"

/* A block's meta during the walk: its count, and in the high half its kind. */
#define KIND(tag) ((uint64_t)((tag) | 8u) << 32)
#define KIND_NODE KIND(SHMC_TAG_INTEGER) /* no block has this tag */
#define KIND_MASK KIND(15u)
#define OPEN (UINT64_C(1) << 40) /* its children are being visited */

static struct takeover *of(struct shmc_walk *walk)
{
    return (struct takeover *)(void *)walk;
}

static bool restore_equal(struct takeover *takeover, uint64_t entry)
{
    struct shmc_writer *writer = takeover->writer;
    bool in = false;
    const enum shmc_status status = shmc_intern_restore(&writer->intern, &writer->heap,
                                                        writer->data->base, entry, &in);

    if (status != SHMC_OK)
        return refuse(takeover, status, "no memory", entry >> 32 << 3);
    if (in)
        *shmc_arena_claimed(&writer->arena, entry >> 32 << 3) |= (uint64_t)SHMC_META_IN << 32;
    return true;
}

/*
 * Into the table of equals, a few blocks later: until then its entry has arrived. Only blocks with
 * two references: a unique value probably stays unique, and an equal one may get another block
 * (INTERN2).
 */
static bool restore_later(struct takeover *takeover, unsigned tag, shmc_offset block)
{
    const struct shmc_writer *writer = takeover->writer;
    uint64_t *waiting = &takeover->waiting[takeover->waits % WAITING];
    const uint64_t earlier = *waiting;

    *waiting = shmc_intern_entry(&writer->intern, writer->data->base, tag, block);
    return takeover->waits++ < WAITING || restore_equal(takeover, earlier);
}

bool shmc_adopt_waiting(struct takeover *takeover)
{
    const unsigned count = takeover->waits < WAITING ? takeover->waits : WAITING;

    for (unsigned i = 0; i < count; i++) {
        if (!restore_equal(takeover, takeover->waiting[i]))
            return false;
    }
    return true;
}

static bool claim(struct takeover *takeover, shmc_offset block, uint64_t size, uint64_t meta)
{
    const enum shmc_status status =
        shmc_arena_claim(&takeover->writer->arena, block, size, meta);

    return status == SHMC_OK || refuse(takeover, status, "a block lies in another one", block);
}

static void fetch_meta(const struct takeover *takeover, shmc_word word)
{
    if (shmc_is_block(word))
        shmc_arena_fetch(&takeover->writer->arena, shmc_block_of(word));
}

void shmc_adopt_ahead(struct shmc_walk *walk, shmc_word word)
{
    const struct takeover *takeover = of(walk);

    if (shmc_is_block(word))
        shmc_fetch(&takeover->span, shmc_block_of(word));
    fetch_meta(takeover, word);
}

/* Its children are visited before anything else. */
static bool push(struct takeover *takeover, shmc_offset block, shmc_offset words, uint64_t count)
{
    if (takeover->depth == DEPTH)
        return refuse(takeover, SHMC_CORRUPT, "a value that is nested too deep", block);
    takeover->visits[takeover->depth++] = (struct visit){block, words, count};
    shmc_fetch_ahead(&takeover->span, words, count);
    for (uint64_t i = 0; i < count && i < 32; i++)
        fetch_meta(takeover, shmc_load_at(&takeover->span, words + i * 8));
    return true;
}

static bool visit_block(struct takeover *takeover, unsigned tag, shmc_offset block);

static bool first_string(struct takeover *takeover, shmc_offset block)
{
    struct shmc_string string;
    uint32_t flags = 0;

    if (!shmc_string_open(&takeover->span, block | SHMC_TAG_STRING, &string) ||
        string.length <= SHMC_SHORT_MAX)
        return refuse(takeover, SHMC_CORRUPT, "a broken string", block);
    const uint8_t *bytes = takeover->span.base + block + 4;
    const uint64_t end = 4 + (uint64_t)string.length, size = shmc_padded(end);
    if (size > takeover->span.size - block)
        return refuse(takeover, SHMC_CORRUPT, "a broken string", block);
    if (!shmc_string_flags(bytes, string.length, &flags) || flags != string.flags ||
        (end < size &&
         shmc_load_at(&takeover->span, block + size - 8) >> (8 * (8 - (size - end))) != 0))
        return refuse(takeover, SHMC_CORRUPT, "an invalid string", block);
    return claim(takeover, block, size, KIND(SHMC_TAG_STRING) | 1);
}

static bool first_number(struct takeover *takeover, shmc_offset block)
{
    uint64_t kind, bits;

    if (!shmc_number_open(&takeover->span, block | SHMC_TAG_NUMBER, &kind, &bits))
        return refuse(takeover, SHMC_CORRUPT, "a broken number", block);
    return claim(takeover, block, 16, KIND(SHMC_TAG_NUMBER) | 1);
}

static bool first_array(struct takeover *takeover, shmc_offset block)
{
    struct shmc_array array;

    if (!shmc_array_open(&takeover->span, block | SHMC_TAG_ARRAY, &array) || array.count == 0)
        return refuse(takeover, SHMC_CORRUPT, "a broken array", block);
    return claim(takeover, block, 8 + array.count * 8, KIND(SHMC_TAG_ARRAY) | OPEN | 1) &&
           push(takeover, block, array.words, array.count);
}

static bool first_object(struct takeover *takeover, shmc_offset block)
{
    struct shmc_object object;

    if (!shmc_object_open(&takeover->span, block | SHMC_TAG_OBJECT, &object) || object.count == 0)
        return refuse(takeover, SHMC_CORRUPT, "a broken object", block);
    return claim(takeover, block, 8 + object.count * 8, KIND(SHMC_TAG_OBJECT) | OPEN | 1) &&
           push(takeover, block, object.words, object.count) &&
           visit_block(takeover, SHMC_TAG_SHAPE, object.shape);
}

/* Opened by an object that depends on it; so its words lie in the span. */
static bool first_shape(struct takeover *takeover, shmc_offset block)
{
    const uint64_t id = shmc_load_at(&takeover->span, block);
    const uint64_t count = shmc_load_at(&takeover->span, block + 8);

    if (id == 0 || id >= takeover->writer->next_id)
        return refuse(takeover, SHMC_CORRUPT, "LAYOUT6: a shape with an id of the future", block);
    for (uint64_t i = 0; i < count; i++) {
        const unsigned tag = shmc_tag(shmc_load_at(&takeover->span, block + 16 + i * 8));
        if (tag != SHMC_TAG_SHORT && tag != SHMC_TAG_STRING)
            return refuse(takeover, SHMC_CORRUPT, "a key that is not a string", block);
    }
    const enum shmc_status status =
        shmc_list_push(&takeover->writer->heap, &takeover->shapes, id);
    if (status != SHMC_OK)
        return refuse(takeover, status, "no memory", block);
    return claim(takeover, block, 16 + count * 8, KIND(SHMC_TAG_SHAPE) | OPEN | 1) &&
           push(takeover, block, block + 16, count);
}

/* One more word that leads to this block. */
static bool visit_block(struct takeover *takeover, unsigned tag, shmc_offset block)
{
    uint64_t *meta = shmc_arena_claimed(&takeover->writer->arena, block);

    if (meta != NULL) {
        if ((*meta & KIND_MASK) != KIND(tag) || (*meta & OPEN) != 0 ||
            (uint32_t)*meta >= SHMC_META_DEAD - 1)
            return refuse(takeover, SHMC_CORRUPT, "a block of another kind, or in itself", block);
        SHMC_UNLESS(NO_TAKEOVER_COUNT, *meta += 1);
        return (uint32_t)*meta != 2 || restore_later(takeover, tag, block);
    }
    takeover->writer->value_blocks++;
    switch (tag) {
    case SHMC_TAG_STRING:
        return first_string(takeover, block);
    case SHMC_TAG_NUMBER:
        return first_number(takeover, block);
    case SHMC_TAG_ARRAY:
        return first_array(takeover, block);
    case SHMC_TAG_OBJECT:
        return first_object(takeover, block);
    default:
        return first_shape(takeover, block);
    }
}

/* MAKE1: a value that fits into a word has one spelling there. */
static bool plain_ok(shmc_word word)
{
    uint8_t bytes[8];
    uint32_t flags;

    switch (shmc_tag(word)) {
    case SHMC_TAG_CONSTANT:
        return word != SHMC_NOTHING && word <= SHMC_EMPTY_OBJECT;
    case SHMC_TAG_SHORT:
        shmc_short_bytes(word, bytes);
        return shmc_string_flags(bytes, shmc_short_length(word), &flags) &&
               word == shmc_short_word(bytes, shmc_short_length(word));
    default:
        return true;
    }
}

static bool visit_one(struct takeover *takeover, shmc_word word)
{
    if (shmc_is_block(word))
        return visit_block(takeover, shmc_tag(word), shmc_block_of(word));
    return plain_ok(word) || refuse(takeover, SHMC_CORRUPT, "an invalid word", word);
}

bool shmc_adopt_word(struct shmc_walk *walk, shmc_word word)
{
    struct takeover *takeover = of(walk);

    if (!visit_one(takeover, word))
        return false;
    while (takeover->depth > 0) {
        struct visit *visit = &takeover->visits[takeover->depth - 1];

        if (visit->left == 0) {
            *shmc_arena_claimed(&takeover->writer->arena, visit->block) &= ~OPEN;
            takeover->depth--;
            continue;
        }
        const shmc_word child = shmc_load_at(&takeover->span, visit->next);
        visit->next += 8;
        visit->left--;
        if (!visit_one(takeover, child))
            return false;
    }
    return true;
}

bool shmc_adopt_string(struct takeover *takeover, shmc_word word, const char *what)
{
    if (shmc_tag(word) != SHMC_TAG_SHORT && shmc_tag(word) != SHMC_TAG_STRING)
        return refuse(takeover, SHMC_CORRUPT, what, word);
    return shmc_adopt_word(&takeover->walk, word);
}

bool shmc_adopt_node(struct shmc_walk *walk, shmc_offset node, uint64_t size)
{
    struct takeover *takeover = of(walk);

    if (shmc_arena_claimed(&takeover->writer->arena, node) != NULL)
        return refuse(takeover, SHMC_CORRUPT, "a node that has two parents", node);
    if (!claim(takeover, node, shmc_node_room(size), KIND_NODE))
        return false;
    return true;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

bool shmc_adopt_ids(struct takeover *takeover)
{
    const struct shmc_list *ids = &takeover->shapes;

    if (ids->count > 1)
        qsort(ids->items, ids->count, sizeof(uint64_t), by_number);
    for (size_t i = 1; i < ids->count; i++) {
        if (ids->items[i] == ids->items[i - 1])
            return refuse(takeover, SHMC_CORRUPT, "LAYOUT6: two shapes with one id", ids->items[i]);
    }
    return true;
}
