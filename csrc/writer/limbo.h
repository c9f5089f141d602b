/*
 * limbo.h - lists of blocks that wait for their readers, chained through the blocks' metas.
 */
#ifndef SHMC_LIMBO_H
#define SHMC_LIMBO_H

#include "writer/writer.h"

/* Adds a block at the front. */
static inline void shmc_limbo_put(struct shmc_writer *writer, struct shmc_limbo_list *list,
                                  shmc_offset block, uint64_t size)
{
    uint64_t *meta = shmc_arena_meta(&writer->arena, block);

    *meta = (uint64_t)list->first << 32 | SHMC_META_LIMBO | shmc_meta_birth(*meta);
    list->first = shmc_granule(block);
    if (list->last == 0)
        list->last = list->first;
    list->bytes += size;
}

/* Takes the first block. */
static inline shmc_offset shmc_limbo_take(struct shmc_writer *writer, struct shmc_limbo_list *list,
                                          uint64_t *size)
{
    const shmc_offset block = (shmc_offset)list->first << 3;

    *size = shmc_arena_block_size(&writer->arena, block);
    list->first = (uint32_t)(*shmc_arena_meta(&writer->arena, block) >> 32);
    if (list->first == 0)
        list->last = 0;
    list->bytes -= *size;
    return block;
}

/* RECLAIM8. `from` is empty afterwards. */
static inline void shmc_limbo_join(struct shmc_writer *writer, struct shmc_limbo_list *to,
                                   struct shmc_limbo_list *from)
{
    if (from->first != 0 && to->first != 0) {
        uint64_t *meta = shmc_arena_meta(&writer->arena, (shmc_offset)to->last << 3);
        *meta = (uint64_t)from->first << 32 | (uint32_t)*meta;
        to->last = from->last;
    } else if (from->first != 0) {
        to->first = from->first;
        to->last = from->last;
    }
    to->bytes += from->bytes;
    to->upper = to->upper > from->upper ? to->upper : from->upper;
    *from = (struct shmc_limbo_list){0};
}

#endif
