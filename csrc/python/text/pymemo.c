/*
 * pymemo.c - the JSON text of blocks that a list shows again and again: see pymemo.h.
 */
#include "python/text/pymemo.h"

static struct shmc_pymemo *spare; /* MEMO3 */

static void empty(struct shmc_pymemo *memo)
{
    memset(memo->slots, 0, sizeof memo->slots);
    memo->used = 0;
    memo->page = 1;
}

struct shmc_pymemo *shmc_pymemo_take(uint64_t instance, uint64_t generation)
{
    struct shmc_pymemo *memo = spare;

    spare = NULL;
    if (memo == NULL) {
        memo = PyMem_Malloc(sizeof *memo);
        if (memo == NULL)
            return NULL;
        memo->generation = memo->instance = 0;
    }
    if (memo->instance != instance || memo->generation != generation) { /* MEMO1 */
        empty(memo);
        memo->instance = instance;
        memo->generation = generation;
    } else if (++memo->page == 0) { /* MEMO5 */
        empty(memo);
    }
    return memo;
}

void shmc_pymemo_give(struct shmc_pymemo *memo)
{
    if (memo == NULL)
        return;
    if (spare == NULL)
        spare = memo;
    else
        PyMem_Free(memo);
}

void shmc_pymemo_keep(struct shmc_pymemo *memo, struct shmc_pymemo_slot *slot, const uint8_t *page,
                      size_t start, size_t length)
{
    const shmc_word word = slot->word;

    if (memo->used + length > SHMC_MEMO_BYTES) /* MEMO4 */
        empty(memo);
    memcpy(memo->texts + memo->used, page + start, length);
    *slot = (struct shmc_pymemo_slot){word, (uint32_t)memo->used, (uint16_t)length, 0};
    memo->used += length;
}
