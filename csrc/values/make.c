/*
 * make.c - building values: each is looked up in the table of equals first. Comparing them.
 *
 * A made word is not counted yet. Its holder counts it (a parent block here, an
 * entry, a slot); a block without references at the end of the batch is swept.
 *
 * Invariants
 *   MAKE1  a value has one spelling: one that fits into a word is never a block, [] and {}
 *       are constants, a string block is padded with zeros.
 *   MAKE2  a block is complete before its word is returned, and never written again.
 *   MAKE3  a new block counts its children once each; a block that was found does not.
 */
#include "writer/writer.h"

/* Copies content into a new block word by word (a revoked reader may be reading it). */
static void fill(struct shmc_writer *writer, shmc_offset block, const uint64_t *content,
                 size_t count)
{
    uint8_t *to = writer->data->base + block;

    for (size_t i = 0; i < count; i++)
        shmc_word_store(to + i * 8, content[i]);
}

/*
 * The block with this content: found, or made. `lead` words (a shape's id) precede
 * the content and take no part in equality. unique: no such block exists, for certain.
 */
static enum shmc_status make_block(struct shmc_writer *writer, unsigned tag,
                                   const uint64_t *content, size_t count, uint64_t hash,
                                   bool unique, shmc_offset *block, bool *made)
{
    const size_t lead = tag == SHMC_TAG_SHAPE ? 1 : 0;

    *made = false;
    if (!writer->in_batch)
        return SHMC_INVALID;
    if (!unique && shmc_intern_find(&writer->intern, writer->data->base, tag, content, count, hash,
                                    block))
        return SHMC_OK;
    enum shmc_status status = shmc_intern_reserve(&writer->intern, &writer->heap);
    if (status == SHMC_OK)
        status = shmc_fresh_block(writer, (count + lead) * 8, tag, block);
    if (status != SHMC_OK)
        return status;
    fill(writer, *block + lead * 8, content, count);
    shmc_intern_add(&writer->intern, tag, hash, *block);
    *shmc_arena_meta(&writer->arena, *block) |= (uint64_t)SHMC_META_IN << 32;
    writer->value_blocks++;
    writer->fresh_bytes += shmc_arena_block_size(&writer->arena, *block);
    *made = true;
    return SHMC_OK;
}

enum shmc_status shmc_make_string(struct shmc_writer *writer, const uint8_t *bytes, size_t length,
                                  uint32_t flags, shmc_word *word)
{
    uint64_t small[40];
    uint64_t *content = small;
    shmc_offset block;
    bool made;

    if (length <= SHMC_SHORT_MAX) {
        *word = shmc_short_word(bytes, length); /* MAKE1 */
        return SHMC_OK;
    }
    if (length > SHMC_MAX_STRING)
        return SHMC_LIMIT;
    const size_t count = (size_t)shmc_padded(4 + length) / 8;
    if (count > 40) {
        writer->words.count = 0;
        if (shmc_list_reserve(&writer->heap, &writer->words, count) != SHMC_OK)
            return SHMC_NO_MEMORY;
        content = writer->words.items;
    }
    const uint32_t head = (uint32_t)length | flags;
    content[count - 1] = 0;
    content[0] = 0;
    memcpy(content, &head, 4);
    memcpy((uint8_t *)content + 4, bytes, length);
    const enum shmc_status status =
        make_block(writer, SHMC_TAG_STRING, content, count,
                   shmc_intern_hash(&writer->intern, SHMC_TAG_STRING, content, count), false,
                   &block, &made);
    if (status == SHMC_OK)
        *word = block | SHMC_TAG_STRING;
    return status;
}

enum shmc_status shmc_make_number(struct shmc_writer *writer, uint64_t kind, uint64_t bits,
                                  shmc_word *word)
{
    const uint64_t content[2] = {kind, bits};
    shmc_offset block;
    bool made;

    if (kind == SHMC_NUMBER_DOUBLE && shmc_double_fits(bits)) {
        *word = bits | SHMC_TAG_DOUBLE;
        return SHMC_OK;
    }
    if (kind == SHMC_NUMBER_INT64 && shmc_integer_fits((int64_t)bits)) {
        *word = shmc_integer_word((int64_t)bits);
        return SHMC_OK;
    }
    const enum shmc_status status =
        make_block(writer, SHMC_TAG_NUMBER, content, 2,
                   shmc_intern_hash(&writer->intern, SHMC_TAG_NUMBER, content, 2), false, &block,
                   &made);
    if (status == SHMC_OK)
        *word = block | SHMC_TAG_NUMBER;
    return status;
}

/*
 * Whether one of the words is a block without references: it was made in this batch and no
 * container has it, so that the container of these words cannot exist already.
 */
static bool has_uncounted(const struct shmc_writer *writer, const shmc_word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (shmc_is_block(words[i]) &&
            (uint32_t)*shmc_arena_meta(&writer->arena, shmc_block_of(words[i])) == 0)
            return true;
    }
    return false;
}

/* A block of head | words, whose children are counted if it is new (MAKE3). */
static enum shmc_status make_container(struct shmc_writer *writer, unsigned tag, uint64_t head,
                                       const shmc_word *words, size_t count, shmc_offset *block,
                                       bool *made)
{
    uint64_t small[48];
    uint64_t *content = small;

    if (count + 1 > 48) {
        writer->words.count = 0;
        if (shmc_list_reserve(&writer->heap, &writer->words, count + 1) != SHMC_OK)
            return SHMC_NO_MEMORY;
        content = writer->words.items;
    }
    content[0] = head;
    memcpy(content + 1, words, count * 8);
    for (size_t i = 0; i < count && i < 32; i++) { /* their counts, for below: mostly cold */
        if (shmc_is_block(words[i]))
            __builtin_prefetch(shmc_arena_meta(&writer->arena, shmc_block_of(words[i])), 1);
    }
    const uint64_t hash = shmc_intern_hash(&writer->intern, tag, content, count + 1);
    const enum shmc_status status = make_block(writer, tag, content, count + 1, hash,
                                               has_uncounted(writer, words, count), block, made);
    if (status != SHMC_OK || !*made)
        return status;
    for (size_t i = 0; i < count; i++)
        shmc_count_up(writer, words[i]);
    return SHMC_OK;
}

enum shmc_status shmc_make_array(struct shmc_writer *writer, const shmc_word *words, size_t count,
                                 shmc_word *word)
{
    shmc_offset block;
    bool made;

    if (count == 0) {
        *word = SHMC_EMPTY_ARRAY;
        return SHMC_OK;
    }
    const enum shmc_status status =
        make_container(writer, SHMC_TAG_ARRAY, count, words, count, &block, &made);
    if (status == SHMC_OK)
        *word = block | SHMC_TAG_ARRAY;
    return status;
}

/* Ids come from a range whose end is stored in DATA before one of them is used (LAYOUT6). */
static uint64_t next_id(struct shmc_writer *writer)
{
    if (writer->next_id == writer->reserved_id) {
        writer->reserved_id += 1024;
        shmc_store_release(&writer->super->next_id, writer->reserved_id);
    }
    return writer->next_id++;
}

enum shmc_status shmc_make_shape(struct shmc_writer *writer, const shmc_word *keys, size_t count,
                                 shmc_offset *shape)
{
    bool made;
    const enum shmc_status status =
        make_container(writer, SHMC_TAG_SHAPE, count, keys, count, shape, &made);

    if (status == SHMC_OK && made)
        shmc_word_store(writer->data->base + *shape, next_id(writer));
    return status;
}

enum shmc_status shmc_make_object(struct shmc_writer *writer, shmc_offset shape,
                                  const shmc_word *words, size_t count, shmc_word *word)
{
    shmc_offset block;
    bool made;

    if (count == 0) {
        *word = SHMC_EMPTY_OBJECT;
        return SHMC_OK;
    }
    const enum shmc_status status =
        make_container(writer, SHMC_TAG_OBJECT, shape, words, count, &block, &made);
    if (status != SHMC_OK)
        return status;
    if (made)
        *shmc_arena_meta(&writer->arena, shape) += 1;
    *word = block | SHMC_TAG_OBJECT;
    return SHMC_OK;
}

const uint8_t *shmc_word_bytes(const struct shmc_writer *writer, shmc_word word,
                               uint8_t buffer[8], size_t *length)
{
    if (shmc_tag(word) == SHMC_TAG_SHORT) {
        shmc_short_bytes(word, buffer);
        *length = shmc_short_length(word);
        return buffer;
    }
    assert(shmc_tag(word) == SHMC_TAG_STRING);
    const uint8_t *block = writer->data->base + shmc_block_of(word);
    uint32_t head;

    memcpy(&head, block, 4);
    *length = head & SHMC_STRING_LENGTH;
    return block + 4;
}

/* ---- whether two words are the same value ------------------------------------------------------ */

/*
 * One word is one value. Two words of blocks may also be equal: if the table of equals forgot the
 * first, the second was built again (INTERN2). Callers that must know for certain ask here; it
 * costs a comparison where the words differ, and shared parts are not compared. It ends after
 * BUDGET values: values composed by reference may occur more often than memory has room. Then they
 * count as different, which is one change too many, at worst.
 */
#define BUDGET 65536u

struct look {
    const struct shmc_writer *writer;
    uint32_t budget;
};

static bool same_value(struct look *look, shmc_word a, shmc_word b);

static uint64_t word_at(const struct look *look, shmc_offset block, uint64_t i)
{
    return shmc_load_at(&look->writer->span, block + i * 8);
}

static bool same_words(struct look *look, shmc_offset a, shmc_offset b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!same_value(look, word_at(look, a, i), word_at(look, b, i)))
            return false;
    }
    return true;
}

/* The keys, in their order; not the ids. */
static bool same_shape(struct look *look, shmc_offset a, shmc_offset b)
{
    const uint64_t count = word_at(look, a, 1);

    return a == b || (count == word_at(look, b, 1) && same_words(look, a + 16, b + 16, count));
}

static bool same_value(struct look *look, shmc_word a, shmc_word b)
{
    if (a == b)
        return true;
    if (shmc_tag(a) != shmc_tag(b) || !shmc_is_block(a) || look->budget-- == 0)
        return false; /* MAKE1 */
    const shmc_offset x = shmc_block_of(a), y = shmc_block_of(b);
    const uint64_t head = word_at(look, x, 0), other = word_at(look, y, 0);
    const uint8_t *base = look->writer->data->base;
    switch (shmc_tag(a)) {
    case SHMC_TAG_STRING:
        return head == other &&
               memcmp(base + x, base + y, 4 + ((uint32_t)head & SHMC_STRING_LENGTH)) == 0;
    case SHMC_TAG_NUMBER:
        return head == other && word_at(look, x, 1) == word_at(look, y, 1);
    case SHMC_TAG_ARRAY:
        return head == other && same_words(look, x + 8, y + 8, head);
    default:
        return same_shape(look, head, other) &&
               same_words(look, x + 8, y + 8, word_at(look, head, 1));
    }
}

bool shmc_same_value(const struct shmc_writer *writer, shmc_word a, shmc_word b)
{
    struct look look = {writer, BUDGET};

    return same_value(&look, a, b);
}
