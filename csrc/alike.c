/*
 * alike.c - whether two words stand for the same value.
 *
 * One word is one value. Two words of blocks may be, too: where the table of equals forgot the
 * first, the second was built anew (T2). Who must know for certain asks here; it costs a
 * comparison where the words differ, and what the values share is not looked at.
 */
#include "writer.h"

static uint64_t word_at(const struct shmc_writer *writer, shmc_offset block, uint64_t i)
{
    return shmc_load_at(&writer->span, block + i * 8);
}

static bool same_words(const struct shmc_writer *writer, shmc_offset a, shmc_offset b,
                       uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!shmc_same_value(writer, word_at(writer, a, i), word_at(writer, b, i)))
            return false;
    }
    return true;
}

/* The keys, in their order; not the ids. */
static bool same_shape(const struct shmc_writer *writer, shmc_offset a, shmc_offset b)
{
    const uint64_t count = word_at(writer, a, 1);

    return a == b || (count == word_at(writer, b, 1) && same_words(writer, a + 16, b + 16, count));
}

bool shmc_same_value(const struct shmc_writer *writer, shmc_word a, shmc_word b)
{
    if (a == b)
        return true;
    if (shmc_tag(a) != shmc_tag(b) || !shmc_is_block(a))
        return false; /* M1 */
    const shmc_offset x = shmc_block_of(a), y = shmc_block_of(b);
    const uint64_t head = word_at(writer, x, 0);
    switch (shmc_tag(a)) {
    case SHMC_TAG_STRING:
        return head == word_at(writer, y, 0) &&
               memcmp(writer->data->base + x, writer->data->base + y,
                      4 + ((uint32_t)head & SHMC_STRING_LENGTH)) == 0;
    case SHMC_TAG_NUMBER:
        return head == word_at(writer, y, 0) && word_at(writer, x, 1) == word_at(writer, y, 1);
    case SHMC_TAG_ARRAY:
        return head == word_at(writer, y, 0) && same_words(writer, x + 8, y + 8, head);
    default:
        return same_shape(writer, head, word_at(writer, y, 0)) &&
               same_words(writer, x + 8, y + 8, word_at(writer, head, 1));
    }
}
