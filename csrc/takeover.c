/*
 * takeover.c - becoming the writer of what another writer left.
 *
 * All that a writer keeps for itself can be had again from what its last root reaches. One walk
 * from there visits each block once, and on its way makes the private tables anew: classes of
 * pages and counts in the arena, the table of equals, resources and their indices. What the walk
 * did not meet is garbage that somebody may still be reading.
 *
 *   header ▸ root[latest & 7] ▸ catalogue ▸ records ▸ trees, directories, indices ▸ values
 *          ▸ window ▸ values     ▸ settle: the rest is retired     ▸ incarnation ▸ all bells
 *
 * Invariants
 *   X1  nothing in DATA is stored before the walk has found no fault: a segment that is refused is
 *       as it was, and its readers go on with it.
 *   X2  the walk ends, and touches nothing outside [arena_offset, high water), whatever the bytes
 *       say: each block is opened once, two blocks never overlap (they are claimed slots), values
 *       nest at most SHMC_MAX_DEPTH deep and in no circle.
 *   X3  what the walk did not meet below the root's high water counts as retired at its generation
 *       G: used again only when no acknowledged pin is below G, or the floor is at G (L1). So every
 *       pin that a live seat holds, on whatever older generation, stays good.
 *   X4  a slot of the window whose stamp is not its number + 1 is no delta: the window begins
 *       behind it, and who has not read so far is lapped.
 *   X5  ids go on where the dead writer's reserved ones end, the ring at the root's head, and
 *       generations at G + 1; what lies behind the root's head or high water was never visible.
 *   X6  one process at a time is here or writes: the caller holds the lock of the very file that
 *       the last writer held (`guard`). A writer that is merely stopped keeps that lock, and with
 *       it the file alive, so that no other file can have its device and inode.
 *
 * What was staged, or built in a batch that was not published, is reached by no root: X3 has it.
 *
 * Ordering
 *   incarnation ▸ full fence ▸ ringing all bells: the dead may have published and not posted.
 */
#include <stdlib.h>

#include "walk.h"
#include "writer.h"

/* A block's meta while we walk: its count, and in the high half what it is. */
#define KIND(tag) ((uint64_t)((tag) | 8u) << 32)
#define KIND_NODE KIND(SHMC_TAG_INTEGER) /* which no block is */
#define KIND_MASK KIND(15u)
#define OPEN (UINT64_C(1) << 40) /* its children are being visited */

#define DEPTH (SHMC_MAX_DEPTH + 8u) /* and a shape, and what an entry adds */
#define WAITING 8u
#define USUAL_BYTES 80u /* of the arena, for each value block: a guess a little too high */

/* A container whose children are being visited. */
struct visit {
    shmc_offset block, next;
    uint64_t left;
};

struct takeover {
    struct shmc_walk walk; /* first: see of() */
    struct shmc_span span;
    struct shmc_writer *writer;
    enum shmc_status status; /* CORRUPT, unless something else went wrong */
    struct shmc_list shapes; /* their ids (I6) */
    uint64_t waiting[WAITING]; /* blocks for the table of equals, whose place is on its way */
    unsigned waits;
    unsigned depth;
    struct visit visits[DEPTH];
};

static struct takeover *of(struct shmc_walk *walk)
{
    return (struct takeover *)(void *)walk;
}

static bool refuse(struct takeover *takeover, enum shmc_status status, const char *why,
                   shmc_offset at)
{
    takeover->status = status;
    return shmc_walk_fail(&takeover->walk, "%s at %#llx", why, (unsigned long long)at);
}

/* ---- values --------------------------------------------------------------------------- */

static bool restore_equal(struct takeover *takeover, uint64_t entry)
{
    struct shmc_writer *writer = takeover->writer;
    const enum shmc_status status = shmc_intern_restore(&writer->intern, &writer->heap,
                                                        writer->data->base, entry);

    return status == SHMC_OK || refuse(takeover, status, "T2: a block has an equal",
                                       entry >> 32 << 3);
}

/* Into the table of equals, a few blocks later: until then its place has come. */
static bool restore_later(struct takeover *takeover, unsigned tag, shmc_offset block)
{
    const struct shmc_writer *writer = takeover->writer;
    uint64_t *place = &takeover->waiting[takeover->waits % WAITING];
    const uint64_t earlier = *place;

    *place = shmc_intern_entry(&writer->intern, writer->data->base, tag, block);
    return takeover->waits++ < WAITING || restore_equal(takeover, earlier);
}

static bool restore_waiting(struct takeover *takeover)
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

/* Its children are visited before anything else. */
static bool push(struct takeover *takeover, shmc_offset block, shmc_offset words, uint64_t count)
{
    if (takeover->depth == DEPTH)
        return refuse(takeover, SHMC_CORRUPT, "a value that is nested too deep", block);
    takeover->visits[takeover->depth++] = (struct visit){block, words, count};
    shmc_fetch_ahead(&takeover->span, words, count);
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
        return refuse(takeover, SHMC_CORRUPT, "a string that is none", block);
    return claim(takeover, block, size, KIND(SHMC_TAG_STRING) | 1) &&
           restore_later(takeover, SHMC_TAG_STRING, block);
}

static bool first_number(struct takeover *takeover, shmc_offset block)
{
    uint64_t kind, bits;

    if (!shmc_number_open(&takeover->span, block | SHMC_TAG_NUMBER, &kind, &bits))
        return refuse(takeover, SHMC_CORRUPT, "a broken number", block);
    return claim(takeover, block, 16, KIND(SHMC_TAG_NUMBER) | 1) &&
           restore_later(takeover, SHMC_TAG_NUMBER, block);
}

static bool first_array(struct takeover *takeover, shmc_offset block)
{
    struct shmc_array array;

    if (!shmc_array_open(&takeover->span, block | SHMC_TAG_ARRAY, &array) || array.count == 0)
        return refuse(takeover, SHMC_CORRUPT, "a broken array", block);
    return claim(takeover, block, 8 + array.count * 8, KIND(SHMC_TAG_ARRAY) | OPEN | 1) &&
           restore_later(takeover, SHMC_TAG_ARRAY, block) &&
           push(takeover, block, array.words, array.count);
}

static bool first_object(struct takeover *takeover, shmc_offset block)
{
    struct shmc_object object;

    if (!shmc_object_open(&takeover->span, block | SHMC_TAG_OBJECT, &object) || object.count == 0)
        return refuse(takeover, SHMC_CORRUPT, "a broken object", block);
    return claim(takeover, block, 8 + object.count * 8, KIND(SHMC_TAG_OBJECT) | OPEN | 1) &&
           restore_later(takeover, SHMC_TAG_OBJECT, block) &&
           push(takeover, block, object.words, object.count) &&
           visit_block(takeover, SHMC_TAG_SHAPE, object.shape);
}

/* Opened by an object that leans on it; so its words lie in the span. */
static bool first_shape(struct takeover *takeover, shmc_offset block)
{
    const uint64_t id = shmc_load_at(&takeover->span, block);
    const uint64_t count = shmc_load_at(&takeover->span, block + 8);

    if (id == 0 || id >= takeover->writer->next_id)
        return refuse(takeover, SHMC_CORRUPT, "I6: a shape with an id of the future", block);
    for (uint64_t i = 0; i < count; i++) {
        const unsigned tag = shmc_tag(shmc_load_at(&takeover->span, block + 16 + i * 8));
        if (tag != SHMC_TAG_SHORT && tag != SHMC_TAG_STRING)
            return refuse(takeover, SHMC_CORRUPT, "a key that is no string", block);
    }
    const enum shmc_status status =
        shmc_list_push(&takeover->writer->heap, &takeover->shapes, id);
    if (status != SHMC_OK)
        return refuse(takeover, status, "no memory", block);
    return claim(takeover, block, 16 + count * 8, KIND(SHMC_TAG_SHAPE) | OPEN | 1) &&
           restore_later(takeover, SHMC_TAG_SHAPE, block) &&
           push(takeover, block, block + 16, count);
}

/* One word more that leads to this block. */
static bool visit_block(struct takeover *takeover, unsigned tag, shmc_offset block)
{
    uint64_t *meta = shmc_arena_claimed(&takeover->writer->arena, block);

    if (meta != NULL) {
        if ((*meta & KIND_MASK) != KIND(tag) || (*meta & OPEN) != 0 ||
            (uint32_t)*meta >= SHMC_META_DEAD - 1)
            return refuse(takeover, SHMC_CORRUPT, "a block of another kind, or in itself", block);
        SHMC_UNLESS(NO_TAKEOVER_COUNT, *meta += 1);
        return true;
    }
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

/* M1: what fits into a word has one spelling there. */
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
    return plain_ok(word) || refuse(takeover, SHMC_CORRUPT, "a word that is no value", word);
}

/* A word, and all that it leads to. */
static bool visit_word(struct shmc_walk *walk, shmc_word word)
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

static bool visit_string(struct takeover *takeover, shmc_word word, const char *what)
{
    if (shmc_tag(word) != SHMC_TAG_SHORT && shmc_tag(word) != SHMC_TAG_STRING)
        return refuse(takeover, SHMC_CORRUPT, what, word);
    return visit_word(&takeover->walk, word);
}

/* A node, record, catalogue or contact: one parent each, count 0. */
static bool visit_node(struct shmc_walk *walk, shmc_offset node, uint64_t size)
{
    struct takeover *takeover = of(walk);

    if (shmc_arena_claimed(&takeover->writer->arena, node) != NULL)
        return refuse(takeover, SHMC_CORRUPT, "a node that has two parents", node);
    if (!claim(takeover, node, shmc_node_room(size), KIND_NODE))
        return false;
    return true;
}

/* ---- resources --------------------------------------------------------------------------- */

/* Nothing below may be dropped half-made: what is there is freed by shmc_resource_free(). */
static bool adopt_index(struct takeover *takeover, struct shmc_wresource *resource,
                        const struct shmc_record_index *found)
{
    struct shmc_windex *index = &resource->indices[resource->index_count++];
    const shmc_word settings = found->settings;
    uint8_t buffer[8];
    size_t length;

    if (!visit_string(takeover, found->name, "an index without a name") ||
        !visit_word(&takeover->walk, settings))
        return false;
    index->name = found->name;
    index->settings = settings;
    index->tree = found->tree;
    index->count = found->count;
    if (shmc_tag(settings) != SHMC_TAG_STRING && shmc_tag(settings) != SHMC_TAG_SHORT)
        return true; /* its values come from outside */
    const uint8_t *path = shmc_word_bytes(takeover->writer, settings, buffer, &length);
    if (!shmc_path_valid((const char *)path, length))
        return refuse(takeover, SHMC_CORRUPT, "an index by what is no path", settings);
    index->path = shmc_heap_resize(&takeover->writer->heap, NULL, 0, length + 1);
    if (index->path == NULL)
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    memcpy(index->path, path, length);
    index->path[length] = 0;
    index->path_length = length;
    return true;
}

static bool adopt_indices(struct takeover *takeover, struct shmc_wresource *resource,
                          const struct shmc_record_index *indices, uint64_t count)
{
    const size_t size = SHMC_MAX_INDICES * sizeof(struct shmc_windex);

    if (count == 0)
        return true;
    resource->indices = shmc_heap_resize(&takeover->writer->heap, NULL, 0, size);
    if (resource->indices == NULL)
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    memset(resource->indices, 0, size);
    for (uint64_t i = 0; i < count; i++) {
        if (!adopt_index(takeover, resource, &indices[i]))
            return false;
    }
    return true;
}

static bool adopt_words(struct takeover *takeover, const struct shmc_record *record)
{
    return visit_string(takeover, record->name, "a resource without a name") &&
           visit_word(&takeover->walk, record->settings) &&
           visit_string(takeover, record->version, "a version that is no text") &&
           visit_string(takeover, record->reason, "a reason that is no text") &&
           visit_string(takeover, record->listed, "a listed version that is no text") &&
           visit_string(takeover, record->marks, "marks that are no text");
}

static void fill_resource(struct shmc_wresource *resource, const struct shmc_record *record,
                          shmc_offset block)
{
    *resource = (struct shmc_wresource){
        .name = record->name,
        .settings = record->settings,
        .version = record->version,
        .reason = record->reason,
        .listed = record->listed,
        .marks = record->marks,
        .state = record->state,
        .since_ns = record->since_ns,
        .generation = record->generation,
        .count = record->count,
        .unbroken = record->unbroken,
        .primary = record->primary,
        .directory = record->directory,
        .record = block,
        .contact = record->contact,
    };
}

/* A copy of a record and of its indices, each word loaded once. */
static bool load_record(struct takeover *takeover, shmc_offset block, struct shmc_record *record,
                        struct shmc_record_index indices[SHMC_MAX_INDICES])
{
    const struct shmc_span *span = &takeover->span;
    uint64_t words[sizeof(*record) / 8];

    if (!shmc_in_span(span, block, sizeof(*record)))
        return refuse(takeover, SHMC_CORRUPT, "a broken record", block);
    for (size_t i = 0; i < sizeof(words) / 8; i++)
        words[i] = shmc_load_at(span, block + i * 8);
    memcpy(record, words, sizeof(*record));
    const uint64_t size = record->index_count * sizeof(struct shmc_record_index);
    if (record->index_count > SHMC_MAX_INDICES ||
        !shmc_in_span(span, block, sizeof(*record) + size) ||
        !shmc_in_span(span, record->contact, sizeof(struct shmc_contact)) ||
        record->state > SHMC_GONE || record->generation > takeover->walk.generation)
        return refuse(takeover, SHMC_CORRUPT, "a broken record", block);
    uint8_t *to = (uint8_t *)indices;
    for (uint64_t i = 0; i < size; i += 8) {
        const uint64_t word = shmc_load_at(span, block + sizeof(*record) + i);
        memcpy(to + i, &word, 8);
    }
    return visit_node(&takeover->walk, block, sizeof(*record) + size) &&
           visit_node(&takeover->walk, record->contact, sizeof(struct shmc_contact));
}

static bool adopt_resource(struct takeover *takeover, shmc_offset block)
{
    struct shmc_writer *writer = takeover->writer;
    struct shmc_wresource *resource = &writer->resources[writer->resource_count];
    struct shmc_record_index indices[SHMC_MAX_INDICES];
    struct shmc_record record;
    struct shmc_note note;

    if (!load_record(takeover, block, &record, indices))
        return false;
    if (shmc_contact_load(&takeover->span, record.contact, &note) != SHMC_OK ||
        note.contact_ns > shmc_monotonic_ns() || record.since_ns > shmc_monotonic_ns())
        return refuse(takeover, SHMC_CORRUPT, "I8: a contact or a state of the future", block);
    fill_resource(resource, &record, block);
    writer->resource_count++;
    return adopt_words(takeover, &record) &&
           adopt_indices(takeover, resource, indices, record.index_count) &&
           shmc_walk_resource(&takeover->walk, &record, indices);
}

static bool adopt_catalogue(struct takeover *takeover, shmc_offset catalogue)
{
    struct shmc_writer *writer = takeover->writer;
    const struct shmc_span *span = &takeover->span;
    const uint64_t count = shmc_in_span(span, catalogue, 8) ? shmc_load_at(span, catalogue) : 0;

    if (count > SHMC_MAX_RESOURCES || count > (writer->ring_mask + 1) / 2 ||
        !shmc_in_span(span, catalogue, 8 + count * 8))
        return refuse(takeover, SHMC_CORRUPT, "a broken catalogue", catalogue);
    if (!visit_node(&takeover->walk, catalogue, 8 + count * 8))
        return false;
    writer->catalogue = catalogue;
    writer->resource_capacity = (uint32_t)count + 8;
    writer->resources = shmc_heap_resize(&writer->heap, NULL, 0,
                                         writer->resource_capacity * sizeof(*writer->resources));
    if (writer->resources == NULL) {
        writer->resource_capacity = 0;
        return refuse(takeover, SHMC_NO_MEMORY, "no memory", 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!adopt_resource(takeover, shmc_load_at(span, catalogue + 8 + i * 8)))
            return false;
    }
    return true;
}

/* ---- the window ------------------------------------------------------------------------------ */

static bool adopt_slot(struct takeover *takeover, const struct shmc_slot *slot)
{
    const uint64_t what = shmc_load_racy(&slot->what);
    const unsigned kind = (unsigned)(what >> 32 & 0xff);
    const shmc_word words[4] = {shmc_load_racy(&slot->key), shmc_load_racy(&slot->version),
                                shmc_load_racy(&slot->old_value),
                                shmc_load_racy(&slot->new_value)};

    if ((uint32_t)what >= takeover->writer->resource_count || kind < SHMC_ADDED ||
        kind > SHMC_RELIST || shmc_load_racy(&slot->generation) > takeover->walk.generation)
        return refuse(takeover, SHMC_CORRUPT, "a broken delta", what);
    if (kind != SHMC_RELIST && !visit_string(takeover, words[0], "a delta without a key"))
        return false;
    for (size_t i = kind == SHMC_RELIST ? 0 : 1; i < 4; i++) {
        if (words[i] != SHMC_NOTHING && !visit_word(&takeover->walk, words[i]))
            return false;
    }
    return true;
}

/* X4. From the newest slot back, as far as they are whole. */
static bool adopt_window(struct takeover *takeover)
{
    struct shmc_writer *writer = takeover->writer;
    const uint64_t tail = writer->tail;

    writer->tail = writer->head;
    while (writer->tail > tail) {
        const uint64_t number = writer->tail - 1;
        const struct shmc_slot *slot = &shmc_ring_slots(writer)[number & writer->ring_mask];

        if (SHMC_CHECKED(NO_TAKEOVER_STAMP, shmc_load_racy(&slot->stamp) == number + 1)) {
            if (!adopt_slot(takeover, slot))
                return false;
        } else {
            break;
        }
        writer->tail = number;
    }
    return true;
}

/* What the old versions retain, as publish.c charges it: counts are known by now. */
static void charge_window(struct shmc_writer *writer)
{
    writer->charged = 0;
    for (uint64_t n = writer->tail; n < writer->head; n++) {
        const struct shmc_slot *slot = &shmc_ring_slots(writer)[n & writer->ring_mask];
        const shmc_word old = shmc_load_racy(&slot->old_value);
        const uint64_t charge = 64 + (shmc_is_block(old) ? shmc_exclusive_bytes(writer, old) : 0);
        writer->charges[n & writer->ring_mask] =
            charge > UINT32_MAX ? UINT32_MAX : (uint32_t)charge;
        writer->charged += writer->charges[n & writer->ring_mask];
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* I6: what processes keep by a shape's id is about one shape. */
static bool ids_differ(struct takeover *takeover)
{
    const struct shmc_list *ids = &takeover->shapes;

    if (ids->count > 1)
        qsort(ids->items, ids->count, sizeof(uint64_t), by_number);
    for (size_t i = 1; i < ids->count; i++) {
        if (ids->items[i] == ids->items[i - 1])
            return refuse(takeover, SHMC_CORRUPT, "I6: two shapes with one id", ids->items[i]);
    }
    return true;
}

/* The last root, as far as it can be seen without following it (I2, I5, L2). */
static bool adopt_root(struct takeover *takeover, uint64_t *high_water, shmc_offset *catalogue)
{
    struct shmc_writer *writer = takeover->writer;
    const struct shmc_super *super = writer->super;
    const uint64_t generation = shmc_load_acquire(&super->latest);
    const struct shmc_root *root = &super->roots[generation & (SHMC_ROOTS - 1)];

    writer->generation = takeover->walk.generation = generation;
    writer->head = shmc_load_racy(&root->head);
    writer->tail = shmc_load_racy(&root->tail);
    *high_water = shmc_load_racy(&root->high_water);
    *catalogue = shmc_load_racy(&root->catalogue);
    if (generation == 0 || shmc_load_racy(&root->generation) != generation ||
        shmc_load_racy(&super->floor) > generation || writer->tail > writer->head ||
        writer->head - writer->tail > (writer->ring_mask + 1) / 2 ||
        *high_water % SHMC_PAGE != 0 || *high_water < super->arena_offset ||
        *high_water > writer->data->file_size)
        return refuse(takeover, SHMC_CORRUPT, "I2: the last root cannot be", generation);
    takeover->span = (struct shmc_span){writer->data->base, *high_water};
    return true;
}

static bool adopt_everything(struct takeover *takeover)
{
    struct shmc_writer *writer = takeover->writer;
    shmc_offset catalogue;
    uint64_t high_water;

    if (!adopt_root(takeover, &high_water, &catalogue))
        return false;
    enum shmc_status status = shmc_arena_adopt(&writer->arena, high_water);
    if (status == SHMC_OK)
        status = shmc_intern_expect(&writer->intern, &writer->heap,
                                    (high_water - writer->super->arena_offset) / USUAL_BYTES);
    if (status != SHMC_OK)
        return refuse(takeover, status, "no memory", 0);
    return adopt_catalogue(takeover, catalogue) && adopt_window(takeover) &&
           restore_waiting(takeover) && ids_differ(takeover);
}

static enum shmc_status settle(struct shmc_writer *writer)
{
    struct shmc_chain left;
    enum shmc_status status = shmc_arena_settle(&writer->arena, &left);

    if (status != SHMC_OK)
        return status;
    writer->node_bytes = left.uncounted;
    charge_window(writer);
    return shmc_limbo_inherit(writer, &left); /* X3 */
}

/* Whether this DATA is one to go on with at all, before anything in it is believed. */
static enum shmc_status check_header(const struct shmc_segment *data,
                                     const struct shmc_writer_settings *settings)
{
    const struct shmc_super *super = (const struct shmc_super *)(const void *)data->base;
    uint64_t instance = 0;
    const enum shmc_status status =
        shmc_data_check_header(data, settings->boot_id, &instance);

    if (status != SHMC_OK)
        return status;
    if (!data->writable)
        return SHMC_INVALID;
    if (instance != settings->instance || super->max_size != settings->max_size ||
        super->ring_slots != settings->ring_slots)
        return SHMC_VERSION;
    if (shmc_load_acquire(&super->over) != 0)
        return SHMC_OVER;
    for (int i = 0; i < 2; i++) { /* X6 */
        if (SHMC_CHECKED(NO_GUARD, shmc_load_racy(&super->guard[i]) == settings->guard[i]))
            continue;
        return SHMC_BUSY;
    }
    return SHMC_OK;
}

static enum shmc_status walk_all(struct shmc_writer *writer, char *what, size_t what_size)
{
    struct takeover *takeover = calloc(1, sizeof(*takeover));

    if (takeover == NULL)
        return SHMC_NO_MEMORY;
    takeover->walk = (struct shmc_walk){.span = &takeover->span,
                                        .instance = writer->super->instance,
                                        .word = visit_word,
                                        .node = visit_node,
                                        .what = what,
                                        .what_size = what_size};
    takeover->writer = writer;
    takeover->status = SHMC_CORRUPT;
    const bool ok = adopt_everything(takeover);
    const enum shmc_status status = ok ? SHMC_OK : takeover->status;
    shmc_list_free(&writer->heap, &takeover->shapes);
    free(takeover);
    return status;
}

/* From here on the cache is ours. */
static void become_writer(struct shmc_writer *writer, const struct shmc_writer_settings *settings)
{
    shmc_writer_begin(writer, settings);
    shmc_fence_full();
    if (writer->seats == NULL)
        return;
    SHMC_UNLESS(NO_TAKEOVER_WAKE, shmc_seats_wake_all(writer->seats, writer->seat_count));
    if (writer->seats->fd >= 0)
        shmc_seats_reap(writer->seats, writer->seat_count, writer->seats->fd);
}

enum shmc_status shmc_writer_takeover(struct shmc_segment *data, struct shmc_segment *seats,
                                      const struct shmc_writer_settings *settings, char *what,
                                      size_t what_size, struct shmc_writer **taken)
{
    struct shmc_writer *writer;
    enum shmc_status status = check_header(data, settings);

    if (what_size > 0)
        what[0] = 0;
    if (status != SHMC_OK)
        return status;
    /* What the dead one asked for behind this was promised to nobody (I3): it is asked for anew. */
    const struct shmc_super *super = (const struct shmc_super *)(const void *)data->base;
    data->file_size = shmc_load_acquire(&super->file_size);
    status = shmc_writer_make(data, seats, settings, &writer);
    if (status != SHMC_OK)
        return status;
    status = walk_all(writer, what, what_size);
    if (status == SHMC_OK)
        status = settle(writer);
    if (status != SHMC_OK) {
        shmc_writer_destroy(writer);
        return status;
    }
    const struct shmc_root *root = &super->roots[writer->generation & (SHMC_ROOTS - 1)];
    const bool lapped = writer->tail != shmc_load_racy(&root->tail);
    become_writer(writer, settings);
    (void)shmc_reclaim(writer);
    if (lapped) /* readers learn it by their slots' stamps, if there is no room for this */
        (void)shmc_publish_forced(writer);
    *taken = writer;
    return SHMC_OK;
}
