/*
 * pymemo.h - the JSON text of blocks that a list shows again and again.
 *
 * Equal values are one block, so the pods of a deployment show the same blocks. A list writes the
 * text of a block that it meets for the third time by copying what it wrote at the second.
 *
 *   slot of a word:  nothing --> seen once --> text --> (another word: nothing)
 *
 * Invariants
 *   M1  a memo is of one generation of one instance, as long as that generation is valid: within it
 *       a word stands for one value. Another generation empties it.
 *   M2  it holds private copies. A text that was made of memory which is not valid any more is
 *       given to nobody, since nothing is that is written through that generation: who writes
 *       validates it last.
 *   M3  it is taken while it is used: what runs meanwhile (a shape being made) finds none.
 *   M4  it is bounded: SHMC_MEMO_SLOTS words, SHMC_MEMO_BYTES of text; a full one is emptied.
 */
#ifndef SHMC_PYMEMO_H
#define SHMC_PYMEMO_H

#include "pyhot.h"

#define SHMC_MEMO_SLOTS 8192u /* a power of two */
#define SHMC_MEMO_BYTES (1u << 20)
#define SHMC_MEMO_LEAST 48u /* shorter texts are written as fast */
#define SHMC_MEMO_MOST 32768u

struct shmc_pymemo_slot {
    shmc_word word;
    uint32_t start, length; /* of the text; 0: seen once */
};

struct shmc_pymemo {
    uint64_t instance, generation;
    size_t used;
    struct shmc_pymemo_slot slots[SHMC_MEMO_SLOTS];
    uint8_t texts[SHMC_MEMO_BYTES];
};

/* The memo of this generation, from now on the caller's; NULL: do without. */
struct shmc_pymemo *shmc_pymemo_take(uint64_t instance, uint64_t generation);
void shmc_pymemo_give(struct shmc_pymemo *memo);
/* Keeps the text of a word, if it was seen before; else that it was. */
void shmc_pymemo_keep(struct shmc_pymemo *memo, shmc_word word, const uint8_t *text, size_t length);

static inline struct shmc_pymemo_slot *shmc_pymemo_slot(struct shmc_pymemo *memo, shmc_word word)
{
    return &memo->slots[(word * UINT64_C(0x9E3779B97F4A7C15)) >> 51];
}
static_assert(SHMC_MEMO_SLOTS == 1u << (64 - 51), "the hash gives as many bits as there are slots");

#endif
