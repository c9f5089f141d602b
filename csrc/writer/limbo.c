/*
 * limbo.c - retired blocks enter limbo, in a group for each generation, and count as garbage.
 *
 * They leave it in reclaim.c, whose invariants (RECLAIM8, RECLAIM9) hold here, too.
 */
#include "writer/limbo.h"

enum shmc_status shmc_limbo_reserve(struct shmc_writer *writer)
{
    struct shmc_limbo *limbo = &writer->limbo;

    if (limbo->start + limbo->count < limbo->capacity)
        return SHMC_OK;
    if (limbo->start > limbo->capacity / 2) {
        memmove(limbo->groups, limbo->groups + limbo->start,
                limbo->count * sizeof(*limbo->groups));
        limbo->start = 0;
        return SHMC_OK;
    }
    const size_t capacity = limbo->capacity * 2 + 64;
    void *groups = shmc_heap_resize(&writer->heap, limbo->groups,
                                    limbo->capacity * sizeof(*limbo->groups),
                                    capacity * sizeof(*limbo->groups));
    if (groups == NULL)
        return SHMC_NO_MEMORY;
    limbo->groups = groups;
    limbo->capacity = capacity;
    return SHMC_OK;
}

void shmc_retire(struct shmc_writer *writer, shmc_offset block)
{
    struct shmc_limbo *limbo = &writer->limbo;
    struct shmc_limbo_list *group = limbo->groups + limbo->start + limbo->count - 1;
    const uint64_t size = shmc_arena_block_size(&writer->arena, block);

    if (limbo->count == 0 ||
        (group->upper != writer->generation && limbo->count < SHMC_LIMBO_GROUPS)) {
        assert(limbo->start + limbo->count < limbo->capacity); /* reserved before publishing */
        group = limbo->groups + limbo->start + limbo->count++;
        *group = (struct shmc_limbo_list){0};
    } else if (limbo->doomed_groups == limbo->count) { /* the last group takes others: RECLAIM8 */
        limbo->doomed_groups--;
        limbo->doomed_bytes -= group->bytes;
    }
    group->upper = writer->generation;
    shmc_limbo_put(writer, group, block, size);
    limbo->bytes += size;
    limbo->fresh++;
}

enum shmc_status shmc_limbo_inherit(struct shmc_writer *writer, const struct shmc_chain *left)
{
    writer->limbo.inherited = (struct shmc_limbo_list){
        .upper = SHMC_KEEP_NO_INHERIT_WAIT ? writer->generation : 0,
        .first = left->first,
        .last = left->last,
        .bytes = left->bytes};
    writer->limbo.bytes += left->bytes;
    return SHMC_OK;
}

/*
 * The bytes that count against the limit: doomed blocks do not (RECLAIM9). Of the inherited blocks,
 * as much as the limit itself does not: most of them were free when the last writer died, and no
 * pin should go because of that. The rest counts, or a pin that outlives many writers would hold
 * back the remains of each of them, and fill the arena.
 */
uint64_t shmc_limbo_inherited(const struct shmc_writer *writer)
{
    const uint64_t inherited = writer->limbo.inherited.bytes;

    return inherited < writer->garbage_limit ? 0 : inherited - writer->garbage_limit;
}

uint64_t shmc_limbo_garbage(const struct shmc_writer *writer)
{
    const struct shmc_limbo *limbo = &writer->limbo;

    return limbo->bytes - limbo->doomed_bytes - limbo->inherited.bytes +
           shmc_limbo_inherited(writer);
}

void shmc_limbo_destroy(struct shmc_writer *writer)
{
    struct shmc_limbo *limbo = &writer->limbo;

    if (limbo->groups != NULL)
        shmc_heap_resize(&writer->heap, limbo->groups, limbo->capacity * sizeof(*limbo->groups),
                         0);
    memset(limbo, 0, sizeof(*limbo));
}
