/*
 * queuesteps.c - memory of slots: got when keys come, given back when they have gone.
 *
 * The file is as long as it can ever be, and almost all of it is a hole. Slots come and go in steps
 * of 64, each with a word that says whether it has memory. Nobody touches a slot whose step is not
 * THERE, so a full file system is an error of the call that needed a step, and never a signal.
 *
 *      GONE --own--> OWNED --memory, words--> THERE --all slots claimed, own--> OWNED --punch--> GONE
 *
 * A level of the index has memory before the first step whose entries stand in it is THERE. It
 * keeps it until a worker opens the queue alone. The lowest step that is GONE is opened first, so that
 * what is used stays close together.
 *
 * Invariants
 *   STEP1  the word of a step changes by an exchange; OWNED names one worker, and only that one
 *          changes it then. When the worker has died (SWEEP5), another one owns the step by an
 *          exchange: so no two punch, and only the owner punches. A worker that leaves owns no
 *          step and claims no slot: to all others its words are a dead worker's.
 *   STEP2  an owned step has no key: it was GONE before, or each of its 64 slots was claimed by the
 *          worker that owns it now. A claim of the dead in a step that is THERE is freed as any.
 *   STEP3  memory ▸ words and lives of all slots ▸ THERE <-> THERE ▸ slot. A step is punched only
 *          while it is owned.
 *   STEP4  a punched slot reads as zeros. Before that the floor rises to its version and life, and
 *          a new step begins there: neither comes back, so QUEUE5 and QUEUE6 hold for stale words, too.
 *   STEP5  after claiming a slot a worker checks its step and the word once more (queuetable.c): a
 *          claim that went into a hole does not count.
 *   STEP6  a load from a hole is a page too much, or a fault that the guard survives where there is
 *          no memory. It happens to a worker that was stopped between the look at the step
 *          and the slot, and what it loads is zeros: no key, no life, no ticket.
 *   STEP7  a level of the index loses its memory only while one worker has the queue: it opens it
 *          (QSEAT5), and the kernel knows of no other one. A worker that dies meanwhile leaves the
 *          rest to the next one that opens the queue alone.
 *
 * Progress: nobody waits for the owner of a step. Others open the next one.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "queue/queue.h"

#define SHRINK 1024u /* steps that are given back after one scan */
#define LONG_STEP ((uint64_t)SHMC_QUEUE_STEP * SHMC_QUEUE_KEY_MAX)
#define SLOT_STEP ((uint64_t)SHMC_QUEUE_STEP * sizeof(struct shmc_queue_slot))
#define LOW UINT32_MAX

static_assert(SLOT_STEP % 4096 == 0 && LONG_STEP % 4096 == 0, "a step is punched by whole pages");

void shmc_raise(shmc_atomic *word, uint64_t to)
{
    uint64_t now = shmc_load_acquire(word);

    while (now < to && !shmc_cas(word, now, to))
        now = shmc_load_acquire(word);
}

static void lower(shmc_atomic *word, uint64_t to)
{
    uint64_t now = shmc_load_racy(word);

    while (now > to && !shmc_cas(word, now, to))
        now = shmc_load_racy(word);
}

static uint64_t owned_by(const struct shmc_queue *queue)
{
    return queue->owner | STEP_OWNED;
}

/* ---- memory ------------------------------------------------------------------------------------ */

enum shmc_status shmc_queue_back(const struct shmc_queue *queue, uint64_t from, uint64_t size)
{
    int error;

    if (queue->lent)
        return SHMC_OK;
    do {
        error = posix_fallocate(queue->seat_fd, (off_t)from, (off_t)size);
    } while (error == EINTR);
    if (error == 0)
        return SHMC_OK;
    errno = error;
    return error == ENOSPC ? SHMC_NO_SPACE : SHMC_SYSTEM;
}

enum shmc_status shmc_queue_back_lane(struct shmc_queue *queue, unsigned lane)
{
    const uint64_t size = queue->ring_count * sizeof(shmc_atomic);

    if ((shmc_load_racy(&queue->rings_backed) >> lane & 1u) != 0)
        return SHMC_OK;
    const enum shmc_status status =
        shmc_queue_back(queue, queue->rings_offset + lane * size, size);
    if (status == SHMC_OK)
        shmc_store_racy(&queue->rings_backed, shmc_load_racy(&queue->rings_backed) | 1u << lane);
    return status;
}

/* Where the file system cannot punch, memory is kept. */
static void punch(const struct shmc_queue *queue, uint64_t step)
{
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    if (queue->lent)
        return;
    (void)!fallocate(queue->seat_fd, mode, (off_t)(queue->slots_offset + step * SLOT_STEP),
                     (off_t)SLOT_STEP);
    (void)!fallocate(queue->seat_fd, mode, (off_t)(queue->long_offset + step * LONG_STEP),
                     (off_t)LONG_STEP);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static enum shmc_status back_level(struct shmc_queue *queue, unsigned level)
{
    shmc_atomic *levels = &queue->header->levels;

    for (uint64_t have = shmc_load_acquire(levels); have <= level; have++) {
        const struct shmc_queue_level *at = &queue->levels[have];
        const enum shmc_status status = shmc_queue_back(queue, at->offset, at->size);
        if (status != SHMC_OK)
            return status;
        shmc_raise(levels, have + 1); /* before the first entry is there (QTABLE4) */
    }
    shmc_raise(&queue->levels_seen, level + 1);
    return SHMC_OK;
}

static enum shmc_status fill_step(struct shmc_queue *queue, uint64_t step)
{
    const uint64_t first = step * SHMC_QUEUE_STEP, floor = shmc_load_acquire(&queue->header->floor);
    enum shmc_status status = back_level(queue, shmc_level_of(queue, first));

    if (status == SHMC_OK)
        status = shmc_queue_back(queue, queue->slots_offset + step * SLOT_STEP, SLOT_STEP);
    if (status != SHMC_OK)
        return status;
    for (uint64_t slot = first; slot < first + SHMC_QUEUE_STEP; slot++) { /* STEP4 */
        shmc_store_racy(&queue->slots[slot].delay, 0);
        shmc_store_racy(&queue->slots[slot].life, floor & LOW);
        shmc_store_racy(&queue->slots[slot].word, shmc_key_word(KEY_FREE, 0, 0, floor >> 32));
    }
    shmc_store_racy(&queue->steps[step].due, DUE_NEVER);
    return SHMC_OK;
}

enum shmc_status shmc_step_open(struct shmc_queue *queue, uint64_t *first)
{
    struct shmc_queue_header *header = queue->header;

    for (uint64_t step = shmc_load_racy(&header->gone); step < queue->slot_count / SHMC_QUEUE_STEP;
         step++) {
        shmc_atomic *state = &queue->steps[step].state;
        if (shmc_load_racy(state) != STEP_GONE)
            continue;
        shmc_raise(&header->steps, step + 1); /* a scan finds it if we die */
        if (!shmc_cas(state, STEP_GONE, owned_by(queue))) /* STEP1 */
            continue;
        const enum shmc_status status = fill_step(queue, step);
        (void)shmc_cas(state, owned_by(queue), status == SHMC_OK ? STEP_THERE : STEP_GONE);
        if (status == SHMC_OK) {
            shmc_store_racy(&header->gone, step + 1);
            shmc_raise(&header->levels, shmc_level_of(queue, step * SHMC_QUEUE_STEP) + 1u);
        }
        *first = step * SHMC_QUEUE_STEP;
        return status;
    }
    return SHMC_FULL;
}

/* ---- giving back ------------------------------------------------------------------------------- */

static void raise_floor(struct shmc_queue *queue, uint64_t version, uint64_t life)
{
    shmc_atomic *floor = &queue->header->floor;

    for (;;) {
        const uint64_t now = shmc_load_acquire(floor);
        const uint64_t most = version > now >> 32 ? version : now >> 32;
        const uint64_t next = most << 32 | (life > (now & LOW) ? life : now & LOW);
        if (next == now || shmc_cas(floor, now, next))
            return;
    }
}

/* STEP2: from here on the step is ours, unless a vandal was there. */
static bool own_step(struct shmc_queue *queue, uint64_t step)
{
    const uint64_t first = step * SHMC_QUEUE_STEP;
    uint64_t version = 0, life = 0;

    for (uint64_t slot = first; slot < first + SHMC_QUEUE_STEP; slot++) {
        const uint64_t word = shmc_load_racy(&queue->slots[slot].word);
        const uint64_t lived = shmc_load_racy(&queue->slots[slot].life) & LOW;
        version = KEY_VERSION(word) > version ? KEY_VERSION(word) : version;
        life = lived > life ? lived : life;
    }
    SHMC_UNLESS(NO_STEP_FLOOR, raise_floor(queue, version, life)); /* STEP4 */
    return shmc_cas(&queue->steps[step].state, STEP_THERE, owned_by(queue));
}

static void give_back(struct shmc_queue *queue, uint64_t step)
{
    punch(queue, step);
    (void)shmc_cas(&queue->steps[step].state, owned_by(queue), STEP_GONE);
    lower(&queue->header->gone, step);
}

static void release_slots(struct shmc_queue *queue, uint64_t first, uint64_t end)
{
    for (uint64_t slot = first; slot < end; slot++)
        shmc_slot_free(queue, slot, shmc_load_racy(&queue->slots[slot].word));
}

static bool all_idle(const struct shmc_queue *queue, uint64_t first)
{
    for (uint64_t slot = first; slot < first + SHMC_QUEUE_STEP; slot++) {
        if (!shmc_slot_idle(queue, slot))
            return false;
    }
    return true;
}

static bool close_step(struct shmc_queue *queue, uint64_t step)
{
    const uint64_t first = step * SHMC_QUEUE_STEP, end = first + SHMC_QUEUE_STEP;
    uint64_t slot = first;

    if (!shmc_slot_there(queue, first) || !all_idle(queue, first))
        return false;
    while (slot < end && SHMC_CHECKED(NO_STEP_CLAIM, shmc_slot_retire(queue, slot)))
        slot++;
    if (slot < end || !own_step(queue, step)) {
        release_slots(queue, first, slot); /* somebody needs one of them */
        return false;
    }
    give_back(queue, step);
    return true;
}

bool shmc_steps_shrink(struct shmc_queue *queue, uint64_t live, uint64_t there)
{
    const uint64_t wanted = 2 * live < queue->keep ? queue->keep : 2 * live;
    uint64_t step = shmc_slots_end(queue) / SHMC_QUEUE_STEP;
    unsigned closed = 0;

    while (step-- > 0 && closed < SHRINK && there > wanted) {
        if (close_step(queue, step)) {
            closed++;
            there -= SHMC_QUEUE_STEP;
        }
    }
    return closed == SHRINK;
}

bool shmc_step_visit(struct shmc_queue *queue, uint64_t step)
{
    shmc_atomic *state = &queue->steps[step].state;
    const uint64_t word = shmc_load_acquire(state);

    if (word == STEP_GONE || word == STEP_THERE)
        return true;
    if (STEP_STATE(word) != STEP_OWNED || word > UINT32_MAX)
        return false;
    if (SHMC_KEEP_NO_STEP_HEIR && !queue->leaving && shmc_owner_dead(queue, word) &&
        shmc_cas(state, word, owned_by(queue))) /* STEP1, STEP2 */
        give_back(queue, step);
    return true;
}

/* ---- the index --------------------------------------------------------------------------------- */

/* How many levels the index needs for the steps that are used. */
static uint64_t levels_needed(const struct shmc_queue *queue)
{
    uint64_t step = queue->slot_count / SHMC_QUEUE_STEP;

    while (step > 0 && shmc_load_acquire(&queue->steps[step - 1].state) == STEP_GONE)
        step--;
    return step == 0 ? 1 : shmc_level_of(queue, (step - 1) * SHMC_QUEUE_STEP) + 1u;
}

static bool nobody_else(const struct shmc_queue *queue)
{
    for (uint64_t seat = 0; seat < queue->seat_count; seat++) {
        if (seat != queue->seat_index && shmc_probe_byte(queue->lock_fd, seat) == SHMC_BUSY)
            return false;
    }
    return true;
}

/* Levels lie one after the other. */
static bool levels_have_memory(const struct shmc_queue *queue, uint64_t first, off_t *from,
                               off_t *end)
{
    const struct shmc_queue_level *last = &queue->levels[queue->level_count - 1];

    if (queue->lent || first >= queue->level_count)
        return false;
    *from = (off_t)queue->levels[first].offset;
    *end = (off_t)(last->offset + last->size);
    const off_t data = lseek(queue->seat_fd, *from, SEEK_DATA);
    return data >= 0 && data < *end;
}

void shmc_levels_shrink(struct shmc_queue *queue)
{
    shmc_atomic *levels = &queue->header->levels;
    const uint64_t needed = shmc_load_acquire(levels) > 1 ? levels_needed(queue) : 1;
    off_t from = 0, end = 0;

    if (!levels_have_memory(queue, needed, &from, &end) ||
        !SHMC_CHECKED(NO_LEVEL_ALONE, nobody_else(queue))) /* STEP7 */
        return;
    SHMC_UNLESS(NO_LEVEL_COUNT, (void)shmc_exchange(levels, needed));
    shmc_store_racy(&queue->levels_seen, needed);
    (void)!fallocate(queue->seat_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, end - from);
}

/* ---- after damage ------------------------------------------------------------------------------ */

/* The first step from this one on of which any byte has memory: the file system knows. */
static uint64_t next_with_memory(const struct shmc_queue *queue, uint64_t step)
{
    const uint64_t from = queue->slots_offset + step * SLOT_STEP;
    const off_t data = queue->lent ? (off_t)from : lseek(queue->seat_fd, (off_t)from, SEEK_DATA);

    return data < 0 ? UINT64_MAX : ((uint64_t)data - queue->slots_offset) / SLOT_STEP;
}

/* Any worker may have written this word; a step with memory may have keys. */
static void rebuild_step(struct shmc_queue *queue, uint64_t step, bool has_memory)
{
    shmc_atomic *state = &queue->steps[step].state;
    const uint64_t word = shmc_load_acquire(state);

    if (STEP_STATE(word) == STEP_OWNED && word <= UINT32_MAX && !shmc_owner_dead(queue, word))
        return;
    has_memory |= word == STEP_THERE && next_with_memory(queue, step) == step; /* opened meanwhile */
    if (has_memory && back_level(queue, shmc_level_of(queue, step * SHMC_QUEUE_STEP)) == SHMC_OK &&
        shmc_queue_back(queue, queue->slots_offset + step * SLOT_STEP, SLOT_STEP) == SHMC_OK) {
        shmc_raise(&queue->header->steps, step + 1);
        (void)shmc_cas(state, word, STEP_THERE);
    } else {
        (void)shmc_cas(state, word, STEP_GONE);
    }
}

void shmc_steps_rebuild(struct shmc_queue *queue)
{
    const uint64_t count = queue->slot_count / SHMC_QUEUE_STEP;
    uint64_t next = 0;

    shmc_store_racy(&queue->header->gone, 0);
    if (shmc_load_racy(&queue->header->steps) > count)
        shmc_store_racy(&queue->header->steps, count);
    for (uint64_t step = 0; step < count; step++) {
        if (next <= step)
            next = next_with_memory(queue, step);
        rebuild_step(queue, step, next == step);
    }
    (void)shmc_exchange(&queue->header->levels, levels_needed(queue));
    shmc_raise(&queue->header->levels, levels_needed(queue)); /* for steps that were opened meanwhile */
}
