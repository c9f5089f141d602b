/*
 * pymemo.h - the JSON text of blocks that a list shows again and again.
 *
 * Equal values are one block, so the pods of a deployment show the same blocks. When a list meets
 * a block again, it copies the text that it wrote before: the first time from the page that it is
 * writing, if the text is there, and into the memo; after that from the memo.
 *
 *   slot of a word:  nothing --> offset in a page --> text --> (another word: offset in a page)
 *
 * Invariants
 *   MEMO1  a memo belongs to one generation of one instance, as long as that generation is valid:
 *       within it a word refers to one value. Another generation empties it.
 *   MEMO2  it holds private copies. A text made of memory that is no longer valid reaches no
 *       caller, since nothing written through that generation does: the writer of the text
 *       validates the generation last.
 *   MEMO3  it is taken while in use: code that runs meanwhile (making a shape) gets no memo.
 *   MEMO4  it is bounded: SHMC_MEMO_SLOTS words, SHMC_MEMO_BYTES of text; a full one is emptied.
 *   MEMO5  an offset belongs to the page with its number, which is one page until the memo is
 *       emptied; for another page it shows only that the block was seen. Text there does not move
 *       (JSONTEXT2).
 */
#ifndef SHMC_PYMEMO_H
#define SHMC_PYMEMO_H

#include "python/pyhot.h"

#define SHMC_MEMO_SLOTS 8192u /* a power of two */
#define SHMC_MEMO_BYTES (1u << 20)
#define SHMC_MEMO_LEAST 48u /* shorter texts are written just as fast */
#define SHMC_MEMO_MOST 32768u

struct shmc_pymemo_slot {
    shmc_word word;
    uint32_t start; /* of the text: in the memo, or in a page */
    uint16_t length, page; /* 0: in the memo */
};

struct shmc_pymemo {
    uint64_t instance, generation;
    size_t used;
    uint16_t page; /* being written; not 0 */
    struct shmc_pymemo_slot slots[SHMC_MEMO_SLOTS];
    uint8_t texts[SHMC_MEMO_BYTES];
};

/* The memo of this generation, for a new page; the caller owns it. NULL: work without one. */
struct shmc_pymemo *shmc_pymemo_take(uint64_t instance, uint64_t generation);
void shmc_pymemo_give(struct shmc_pymemo *memo);

static inline bool shmc_pymemo_fits(size_t length)
{
    return length - SHMC_MEMO_LEAST <= SHMC_MEMO_MOST - SHMC_MEMO_LEAST;
}

/* Keeps the text of a word that was seen again. */
void shmc_pymemo_keep(struct shmc_pymemo *memo, struct shmc_pymemo_slot *slot, const uint8_t *page,
                      size_t start, size_t length);

static inline struct shmc_pymemo_slot *shmc_pymemo_slot(struct shmc_pymemo *memo, shmc_word word)
{
    return &memo->slots[(word * UINT64_C(0x9E3779B97F4A7C15)) >> 51];
}
static_assert(SHMC_MEMO_SLOTS == 1u << (64 - 51), "the hash gives as many bits as there are slots");

/* Where the text of a word is available; NULL: it has to be written, as without a memo. */
static inline const struct shmc_pymemo_slot *shmc_pymemo_find(struct shmc_pymemo *memo,
                                                              shmc_word word)
{
    if (memo == NULL)
        return NULL;
    const struct shmc_pymemo_slot *slot = shmc_pymemo_slot(memo, word);
    return slot->word == word && (slot->page == 0 || slot->page == memo->page) ? slot : NULL;
}

/* The text; `page` is the one being written. */
static inline const uint8_t *shmc_pymemo_text(const struct shmc_pymemo *memo,
                                              const struct shmc_pymemo_slot *slot,
                                              const uint8_t *page)
{
    return (slot->page == 0 ? memo->texts : page) + slot->start;
}

/* The text of a word, which fits and begins at `start` in the page: keeps the offset, or the text
 * if the word was seen before. */
static inline void shmc_pymemo_note(struct shmc_pymemo *memo, shmc_word word, const uint8_t *page,
                                    size_t start, size_t length)
{
    struct shmc_pymemo_slot *slot = shmc_pymemo_slot(memo, word);

    if (slot->word == word)
        shmc_pymemo_keep(memo, slot, page, start, length);
    else
        *slot = (struct shmc_pymemo_slot){word, (uint32_t)start, (uint16_t)length, memo->page};
}

#endif
