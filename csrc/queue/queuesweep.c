/*
 * queuesweep.c - the keys of the dead, what was lost on the way, and what was spoilt.
 *
 * Every worker that waits or takes keys looks around now and then; one at a time is enough. It
 * tries the lock of each other seat: a dead worker has let go of it. Then, or once a second, it
 * reads all words, and puts right whatever a dead, stopped or mad worker left. Where that takes
 * long because there are many, it is done less often: a fortieth of the time at most, unless there
 * is memory to be given back.
 *
 * Invariants
 *   SWEEP1  a seat is reaped only by the holder of its lock, through another description than any
 *       seat's; its incarnation changes before the lock is let go. A word that names an incarnation
 *       that the seat no longer has is therefore a dead worker's (QUEUE4).
 *   SWEEP2  the words of a dead worker: held becomes queued, claimed and dead become free; each by an
 *       exchange, so that two sweeps do it once.
 *   SWEEP3  each queued key has a ticket after a scan, each delay is known to its block.
 *   SWEEP5  a worker is dead if both the file and the kernel agree: nobody holds the lock of
 *       the byte that names its seat and incarnation. A number that somebody wrote over a living
 *       worker's takes no key from it.
 *   SWEEP4  damage is noticed where it is met: a word in a state that cannot be, an identity that
 *       changed, a truncated file (its fault is survived, see process.c). Then every key
 *       whose bytes still have their hash becomes dirty, and its holder goes on with it; a slot
 *       without a valid key is freed. `rebuilds` notifies the feeder, which adds all keys of its
 *       resources.
 *
 * Progress: a sweep waits for nobody. Its holder may stop in the middle of it: the next one begins
 * when the time has come again.
 */
#include "queue/queue.h"

#define SWEEP_NS UINT64_C(200000000)
#define SCAN_NS UINT64_C(1000000000)
#define SCAN_SHARE 40u /* of the time */

/* SWEEP1 */
bool shmc_owner_dead(const struct shmc_queue *queue, uint64_t word)
{
    const uint64_t seat = KEY_SEAT(word);

    if (seat >= queue->seat_count)
        return true; /* nobody's */
    if (seat == queue->seat_index)
        return (word & ~UINT64_C(127) & UINT32_MAX) != queue->owner;
    return (shmc_load_acquire(&queue->seats[seat].incarnation) & KEY_INCARNATIONS) !=
               KEY_INCARNATION(word) &&
           SHMC_CHECKED(NO_LIFE_LOCK,
                        shmc_probe_byte(queue->lock_fd,
                                        shmc_queue_owner_byte(seat, KEY_INCARNATION(word))) !=
                            SHMC_BUSY); /* SWEEP5 */
}

bool shmc_queue_reap(struct shmc_queue *queue, uint64_t seat)
{
    struct shmc_queue_seat *at = &queue->seats[seat];

    if (seat == queue->seat_index || shmc_load_racy(&at->in_use) == 0 ||
        shmc_lock_byte(queue->lock_fd, seat) != SHMC_OK)
        return false;
    const bool dead = shmc_load_racy(&at->in_use) != 0; /* else it has left in the meantime */
    if (dead) {
        shmc_store_release(&at->incarnation, shmc_load_racy(&at->incarnation) + 1);
        shmc_store_racy(&at->in_use, 0);
        shmc_queue_unsleep(queue, seat);
        (void)shmc_cas(&queue->header->keeper, seat + 1, 0);
    }
    (void)shmc_unlock_byte(queue->lock_fd, seat);
    return dead;
}

static bool reap_all(struct shmc_queue *queue)
{
    bool found = false;

    for (uint64_t seat = 0; seat < queue->seat_count; seat++)
        found |= shmc_queue_reap(queue, seat);
    return found;
}

/* ---- one slot ---------------------------------------------------------------------------------- */

static void take_back(struct shmc_queue *queue, uint64_t slot, uint64_t word, uint64_t now_ns)
{
    if (shmc_owner_dead(queue, word)) {
        if (shmc_key_give_back(queue, slot, word, now_ns)) /* SWEEP2 */
            shmc_queue_count(queue, COUNT_RETURNED, 1);
    } else if (shmc_key_expired(queue, slot, word, now_ns)) {
        if (shmc_key_give_back(queue, slot, word, now_ns))
            shmc_queue_count(queue, COUNT_EXPIRED, 1);
    }
}

/* A claim, or a slot on its way out, of a dead worker. */
static void clear_away(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);

    if (!queue->leaving && shmc_owner_dead(queue, word) &&
        shmc_cas(&queue->slots[slot].word, word, dead))
        shmc_slot_free(queue, slot, dead);
}

static void note_damage(struct shmc_queue *queue)
{
    shmc_store_racy(&queue->header->corrupt, 1); /* SWEEP4 */
}

/* A scan's visit to a slot; whether its key is queued. */
static bool visit(struct shmc_queue *queue, uint64_t slot, uint64_t now_ns)
{
    const uint64_t word = shmc_load_acquire(&queue->slots[slot].word);

    shmc_due_check(queue, slot, now_ns); /* SWEEP3 */
    switch (KEY_STATE(word)) {
    case KEY_FREE:
    case KEY_KNOWN:
        return false;
    case KEY_KNOWN | KEY_HELD:
    case KEY_KNOWN | KEY_HELD | KEY_DIRTY:
        take_back(queue, slot, word, now_ns);
        return KEY_STATE(shmc_load_racy(&queue->slots[slot].word)) == KEY_QUEUED;
    case KEY_CLAIMED:
    case KEY_DEAD:
        clear_away(queue, slot, word);
        return false;
    case KEY_QUEUED:
        if (shmc_load_racy(&queue->header->priorities[KEY_LANE(word)]) == 0)
            note_damage(queue);
        if (!shmc_ticket_there(queue, slot) &&
            shmc_ticket_write(queue, slot, KEY_LANE(word))) { /* SWEEP3 */
            shmc_fence_full(); /* QUEUE10 */
            shmc_queue_post(queue);
        }
        return true;
    default:
        note_damage(queue);
        return false;
    }
}

/* The count of queued keys is right unless somebody died between a word and it: what differs by
 * the same twice is put right. */
static void mend_count(struct shmc_queue *queue, uint64_t found)
{
    struct shmc_queue_header *header = queue->header;
    const uint64_t drift = found - shmc_load_racy(&header->queued);

    if (drift != 0 && drift == shmc_load_racy(&header->drift)) {
        shmc_fetch_add(&header->queued, drift);
        shmc_store_racy(&header->drift, 0);
    } else {
        shmc_store_racy(&header->drift, drift);
    }
}

struct scanned {
    uint64_t queued, live, there; /* keys to be handed out, slots that are needed, slots */
};

static void scan_step(struct shmc_queue *queue, uint64_t first, uint64_t now_ns,
                      struct scanned *found)
{
    for (uint64_t slot = first; slot < first + SHMC_QUEUE_STEP; slot++) {
        found->queued += visit(queue, slot, now_ns);
        found->live += !shmc_slot_idle(queue, slot);
    }
    found->there += SHMC_QUEUE_STEP;
}

void shmc_queue_scan(struct shmc_queue *queue, uint64_t now_ns)
{
    struct shmc_queue_header *header = queue->header;
    const uint64_t steps = shmc_slots_end(queue) / SHMC_QUEUE_STEP;
    struct scanned found = {0, 0, 0};
    uint64_t gone = UINT64_MAX;

    shmc_store_racy(&header->scanned_ns, now_ns);
    shmc_store_racy(&header->missing, 0); /* before the words: a later loss sets it again */
    shmc_fence_full();
    for (uint64_t step = 0; step < steps; step++) {
        if (shmc_slot_there(queue, step * SHMC_QUEUE_STEP)) {
            scan_step(queue, step * SHMC_QUEUE_STEP, now_ns, &found);
            continue;
        }
        if (!shmc_step_visit(queue, step))
            note_damage(queue);
        gone = step < gone ? step : gone;
    }
    mend_count(queue, found.queued);
    shmc_store_racy(&header->gone, gone < steps ? gone : steps);
    const uint64_t took_ns = shmc_monotonic_ns() - now_ns;
    const bool more = !queue->leaving && shmc_steps_shrink(queue, found.live, found.there);
    shmc_store_racy(&header->took_ns, more ? 0 : took_ns);
}

static void survey_slot(const struct shmc_queue *queue, uint64_t slot, uint64_t now_ns,
                        struct shmc_queue_stats *stats)
{
    const struct shmc_queue_slot *at = &queue->slots[slot];
    const uint64_t word = shmc_load_acquire(&at->word), since = shmc_load_racy(&at->since_ns);
    const struct shmc_keyref ref = {slot, shmc_load_acquire(&at->life)};
    const uint64_t requeues = shmc_load_racy(&at->requeues);
    const uint64_t age = now_ns > since ? now_ns - since : 0;

    if ((word & KEY_KNOWN) == 0)
        return;
    stats->known++;
    stats->delayed += (word & KEY_DIRTY) == 0 && shmc_key_delayed(queue, ref);
    stats->failing += (uint32_t)requeues == (uint32_t)ref.life && requeues >> 32 != 0;
    if (KEY_STATE(word) == KEY_QUEUED && age > stats->oldest_ns)
        stats->oldest_ns = age;
    if ((word & KEY_HELD) == 0)
        return;
    stats->in_progress++;
    stats->unfinished_ns += age;
    if (age > stats->longest_ns)
        stats->longest_ns = age;
}

void shmc_queue_survey(const struct shmc_queue *queue, struct shmc_queue_stats *stats)
{
    const uint64_t end = shmc_slots_end(queue), now_ns = shmc_monotonic_ns();

    for (uint64_t slot = shmc_slot_from(queue, 0, end); slot < end;
         slot = shmc_slot_from(queue, slot + 1, end)) {
        if (slot % SHMC_QUEUE_STEP == 0)
            stats->slots += SHMC_QUEUE_STEP;
        survey_slot(queue, slot, now_ns, stats);
    }
}

uint64_t shmc_queue_held(const struct shmc_queue *queue)
{
    const uint64_t end = shmc_slots_end(queue);
    uint64_t held = 0;

    for (uint64_t slot = shmc_slot_from(queue, 0, end); slot < end;
         slot = shmc_slot_from(queue, slot + 1, end)) {
        const unsigned state = KEY_STATE(shmc_load_acquire(&queue->slots[slot].word));
        held += (state & (KEY_KNOWN | KEY_HELD)) == (KEY_KNOWN | KEY_HELD);
    }
    return held;
}

/* ---- damage -------------------------------------------------------------------------------------- */

static bool identity_differs(const struct shmc_queue *queue)
{
    const struct shmc_queue_header *header = queue->header;
    const uint8_t *at = (const uint8_t *)header;

    return shmc_word_load(at) != SHMC_QUEUE_MAGIC ||
           shmc_word_load(at + offsetof(struct shmc_queue_header, instance)) != queue->instance ||
           shmc_word_load(at + offsetof(struct shmc_queue_header, slot_count)) !=
               queue->slot_count ||
           shmc_word_load(at + offsetof(struct shmc_queue_header, ring_count)) !=
               queue->ring_count ||
           shmc_word_load(at + offsetof(struct shmc_queue_header, seat_count)) !=
               queue->seat_count ||
           shmc_word_load(at + offsetof(struct shmc_queue_header, seed)) != queue->seed;
}

/* SWEEP4: one key that may be anything. */
static void rebuild_slot(struct shmc_queue *queue, uint64_t slot)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    const uint64_t word = shmc_load_acquire(&at->word);
    const unsigned state = KEY_STATE(word);

    if (state == KEY_FREE || ((state == KEY_CLAIMED || state == KEY_DEAD) &&
                              !shmc_owner_dead(queue, word)))
        return;
    if (!shmc_key_reindex(queue, slot)) {
        const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);
        if (shmc_cas(&at->word, word, dead))
            shmc_slot_free(queue, slot, dead);
        return;
    }
    const bool held = (state & ~KEY_DIRTY) == (KEY_KNOWN | KEY_HELD) && !shmc_owner_dead(queue, word);
    const uint64_t next =
        held ? word | KEY_DIRTY
             : shmc_key_word(KEY_QUEUED, KEY_LANE(word), 0, KEY_VERSION(word) + 1);
    (void)shmc_cas(&queue->header->priorities[KEY_LANE(word)], 0, SHMC_QUEUE_NORMAL);
    (void)shmc_cas(&at->word, word, next); /* the scan that follows writes its ticket */
}

void shmc_queue_rebuild(struct shmc_queue *queue, uint64_t now_ns)
{
    struct shmc_queue_header *header = queue->header;

    const struct shmc_queue_shape shape = {queue->slot_count, queue->ring_count,
                                           queue->seat_count};

    shmc_store_racy(&queue->rings_backed, 0); /* truncation takes their memory */
    shmc_queue_identify(header, queue->instance, &shape, queue->seed);
    shmc_steps_rebuild(queue);
    shmc_index_clean(queue);
    const uint64_t end = shmc_slots_end(queue);
    for (uint64_t slot = shmc_slot_from(queue, 0, end); slot < end;
         slot = shmc_slot_from(queue, slot + 1, end))
        rebuild_slot(queue, slot);
    for (unsigned lane = 0; lane < SHMC_QUEUE_LANES; lane++)
        (void)shmc_queue_back_lane(queue, lane); /* a word may name any of them */
    shmc_fetch_add(&header->rebuilds, 1);
    shmc_queue_count(queue, COUNT_REPAIRS, 1);
    shmc_queue_scan(queue, now_ns);
}

/* A file that was truncated is long again, and what it held is gone. */
static void mend_file(struct shmc_queue *queue)
{
    bool damaged = false;

    if (queue->lent)
        return;
    damaged |= shmc_file_lengthen(queue->file.fd, queue->file.max_size);
    damaged |= shmc_guard_mended(&queue->file);
    if (shmc_guard_replaced(&queue->file))
        damaged |= shmc_segment_show(&queue->file) == SHMC_OK;
    if (damaged)
        note_damage(queue);
}

/* Time between two scans. A number that cannot be is nobody's. */
static uint64_t scan_pause(const struct shmc_queue *queue)
{
    const uint64_t took = shmc_load_racy(&queue->header->took_ns);

    return took > SCAN_NS / SCAN_SHARE && took < SCAN_NS ? took * SCAN_SHARE : SCAN_NS;
}

void shmc_queue_sweep(struct shmc_queue *queue, uint64_t now_ns)
{
    struct shmc_queue_header *header = queue->header;
    const uint64_t swept = shmc_load_racy(&header->swept_ns);

    /* A time in the future is nobody's. */
    if ((swept <= now_ns && now_ns - swept < SWEEP_NS) || !shmc_cas(&header->swept_ns, swept, now_ns))
        return;
    shmc_store_release(&queue->seat->incarnation, queue->incarnation); /* in case it was spoilt */
    shmc_store_racy(&queue->seat->in_use, 1);
    const bool found = reap_all(queue);
    mend_file(queue);
    if (identity_differs(queue) || shmc_load_racy(&header->corrupt) != 0) {
        shmc_store_racy(&header->corrupt, 0);
        shmc_queue_rebuild(queue, now_ns);
        return;
    }
    const uint64_t scanned = shmc_load_racy(&header->scanned_ns);
    if (found || shmc_load_racy(&header->missing) != 0 || scanned > now_ns ||
        now_ns - scanned >= scan_pause(queue))
        shmc_queue_scan(queue, now_ns);
}
