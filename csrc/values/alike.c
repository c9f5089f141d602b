/*
 * alike.c - whether two words are the same value.
 *
 * One word is one value. Two words of blocks may also be equal: if the table of equals forgot the
 * first, the second was built again (INTERN2). Callers that must know for certain ask here; it
 * costs a comparison where the words differ, and shared parts are not compared. It ends after
 * BUDGET values: values composed by reference may occur more often than memory has room. Then they
 * count as different, which is one change too many, at worst.
 */
#include "writer/writer.h"

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
