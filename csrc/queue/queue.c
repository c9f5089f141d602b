/*
 * queue.c - the work queue: the state of each key, and which thread may change it.
 *
 * Think of a card for each key, and a box of numbered tickets. The card says whether the key is
 * to be worked on, and which worker holds it; it changes by one exchange of one word. A ticket
 * means no more than "look at card 17": its taker looks, and takes the key if it can.
 * Tickets may be lost or come twice. So nobody ever holds anything that others wait for: a worker
 * that dies leaves cards that bear its name, and perhaps a card without a ticket. The sweep of any
 * other worker finds both.
 *
 *      free --claim--> claimed --publish--> known --add--> queued --get--> held --done--> known
 *        ^                |                   |              ^              | add
 *        |                v                   v              |              v
 *        +------------- dead <----------------+              +----done--- held, dirty
 *
 * Invariants
 *   QUEUE1  the word of a slot is the truth; tickets, dues, counts and bells are hints, and a
 *       scan of the words finds each of them again.
 *   QUEUE2  a key is held by one worker: held comes only from queued, by the exchange that puts the
 *       holder's seat and incarnation there.
 *   QUEUE3  an add is never lost: it finds the key dirty, or makes it so. The worker that gets the
 *       key because of it sees everything that the adder did before (QUEUE9).
 *   QUEUE4  held ends by its holder's done(), by the deadline that the holder set, or when the lock
 *       of its seat was taken by another: not otherwise. A dirty key is queued then, by the
 *       same exchange; a key that a dead worker held is dirty.
 *   QUEUE5  the version changes at each step but two: dirty while held, and a higher lane while
 *       queued, after which the word never comes back within the same version. A holding is
 *       therefore named by slot and version, and a late done() of one that ended does nothing.
 *   QUEUE6  the life of a slot changes only while it is claimed, the key's bytes only then. A
 *       thread that loaded a known word, and then the life that it looked for, may exchange that
 *       word: it is that key's.
 *   QUEUE7  a known key is known once: see queuetable.c.
 *   QUEUE8  a slot is retired only from known, neither dirty nor held, with no requeues and no
 *       delay. Adding a delay or a requeue changes the version of an idle word afterwards, so
 *       that a retirement that did not see it fails.
 *
 * Ordering
 *   QUEUE9  what the adder did before ▸ full fence ▸ load of the word (an add that finds the key dirty
 *       stores nothing) <-> the exchange of get() that clears dirty, a full fence, before the
 *       worker looks at anything.
 *   QUEUE10 dirty ▸ ticket ▸ full fence ▸ any sleeper?  <-> sleeping ▸ full fence ▸ any ticket?
 *       (queuewait.c)
 *   QUEUE11 the key's bytes, hash and life ▸ release by the exchange to known <-> acquire of the word.
 *
 * Progress: no operation waits for another process. An exchange fails only because another one
 * succeeded; loops over tickets, slots and buckets are bounded. All of the file may be garbage:
 * what is loaded is range-checked, a state that cannot be is left to the sweep.
 */
#include "queue/queue.h"

#define DEADLINE_TICK 18u /* deadlines: time in units of 2^18 ns << 24 | version */
#define DEADLINE_VERSION 0xffffffu

static void count_queued(struct shmc_queue *queue)
{
    shmc_fetch_add(&queue->header->queued, 1);
}

static void count_taken(struct shmc_queue *queue)
{
    shmc_fetch_add(&queue->header->queued, UINT64_MAX);
}

/* A key that is queued by now gets its ticket, and a worker. */
static void hand_in(struct shmc_queue *queue, uint64_t slot, unsigned lane, uint64_t now_ns)
{
    shmc_store_racy(&queue->slots[slot].since_ns, now_ns);
    count_queued(queue);
    SHMC_UNLESS(NO_TICKET, (void)shmc_ticket_write(queue, slot, lane));
    shmc_fence_full(); /* QUEUE10 */
    SHMC_UNLESS(NO_QUEUE_POST, shmc_queue_post(queue));
}

enum shmc_status shmc_key_dirty(struct shmc_queue *queue, struct shmc_keyref ref, unsigned lane,
                                uint64_t now_ns)
{
    return shmc_key_fired(queue, ref, lane, now_ns, 0);
}

enum shmc_status shmc_key_fired(struct shmc_queue *queue, struct shmc_keyref ref, unsigned lane,
                                uint64_t now_ns, uint64_t firing)
{
    struct shmc_queue_slot *slot = shmc_slot_of(queue, ref);

    for (;;) {
        const uint64_t word = shmc_load_acquire(&slot->word);
        if (!shmc_same_life(queue, ref, word)) /* QUEUE6 */
            return SHMC_NOT_FOUND;
        const unsigned state = KEY_STATE(word);
        const bool held = (state & KEY_HELD) != 0;
        if ((state & KEY_DIRTY) != 0 && !shmc_lane_before(queue, lane, KEY_LANE(word))) {
            shmc_queue_count(queue, COUNT_REPEATS, 1);
            return SHMC_OK; /* QUEUE3, QUEUE9 */
        }
        const uint64_t owner = held ? word & ((UINT64_C(1) << 32) - 1) & ~UINT64_C(127) : 0;
        const bool same = held || (state & KEY_DIRTY) != 0; /* QUEUE5 */
        const uint64_t next = shmc_key_word(state | KEY_DIRTY, lane, owner,
                                            KEY_VERSION(word) + (same ? 0 : 1));
        if (!shmc_cas(&slot->word, word, next))
            continue;
        if (firing != 0)
            SHMC_UNLESS(NO_DELAY_END, (void)shmc_cas(&slot->delay, firing, 0)); /* DUE2 */
        if ((state & KEY_DIRTY) != 0) { /* raised: what is queued gets a ticket there, too */
            if (!held) { /* a worker that was rung may have looked between exchange and ticket */
                (void)shmc_ticket_write(queue, ref.slot, lane);
                shmc_fence_full(); /* QUEUE10 */
                shmc_queue_post(queue);
            }
            shmc_queue_count(queue, COUNT_REPEATS, 1);
            return SHMC_OK;
        }
        shmc_queue_count(queue, COUNT_ADDS, 1);
        if (!held)
            hand_in(queue, ref.slot, lane, now_ns);
        return SHMC_OK;
    }
}

enum shmc_status shmc_queue_add(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                int64_t priority)
{
    unsigned lane = 0;
    struct shmc_keyref ref;
    bool made = false;

    enum shmc_status status = shmc_lane_of_key(queue, key, length, priority, &lane);
    if (status != SHMC_OK)
        return status;
    const uint64_t hash = shmc_queue_hash(queue, key, length);
    const uint64_t now_ns = shmc_monotonic_ns();
    SHMC_UNLESS(NO_ADD_FENCE, shmc_fence_full()); /* QUEUE9 */
    do {
        status = shmc_key_make(queue, key, length, hash, KEY_DIRTY, lane, &ref, &made);
        if (status == SHMC_OK && made) {
            shmc_queue_count(queue, COUNT_ADDS, 1);
            hand_in(queue, ref.slot, lane, now_ns);
        } else if (status == SHMC_OK) {
            status = shmc_key_dirty(queue, ref, lane, now_ns);
        }
    } while (status == SHMC_NOT_FOUND);
    if (status == SHMC_FULL)
        shmc_queue_count(queue, COUNT_FULL, 1);
    return status;
}

enum shmc_status shmc_queue_add_known(struct shmc_queue *queue, int64_t priority)
{
    unsigned lane = 0;

    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (shmc_queue_shut(queue))
        return SHMC_CLOSED;
    const enum shmc_status status = shmc_lane_of(queue, priority, &lane);
    const uint64_t end = shmc_slots_end(queue);
    const uint64_t now_ns = shmc_monotonic_ns();
    if (status != SHMC_OK)
        return status;
    shmc_fence_full(); /* QUEUE9 */
    for (uint64_t slot = shmc_slot_from(queue, 0, end); slot < end;
         slot = shmc_slot_from(queue, slot + 1, end)) {
        const struct shmc_keyref ref = {slot, shmc_load_acquire(&queue->slots[slot].life)};
        (void)shmc_key_dirty(queue, ref, lane, now_ns); /* NOT_FOUND: no key's, or another's */
    }
    return SHMC_OK;
}

/* ---- working --------------------------------------------------------------------------------- */

static void set_deadline(const struct shmc_queue *queue, struct shmc_queue_slot *slot,
                         uint64_t version, uint64_t now_ns, uint64_t limit_ns)
{
    uint64_t deadline = 0;

    if (limit_ns == 0)
        limit_ns = queue->deadline_ns;
    if (limit_ns != 0) {
        const uint64_t ticks = ((now_ns + limit_ns) >> DEADLINE_TICK) + 1;
        deadline = ticks << 24 | (version & DEADLINE_VERSION);
    }
    shmc_store_racy(&slot->deadline, deadline);
}

bool shmc_key_expired(const struct shmc_queue *queue, uint64_t slot, uint64_t word,
                      uint64_t now_ns)
{
    const uint64_t deadline = shmc_load_racy(&queue->slots[slot].deadline);

    /* One of another holding counts for nothing: the holder has not set its own yet, or has none. */
    return deadline != 0 &&
           (deadline & DEADLINE_VERSION) == (KEY_VERSION(word) & DEADLINE_VERSION) &&
           deadline >> 24 < now_ns >> DEADLINE_TICK;
}

/* QUEUE2: the key of a ticket, if it is to be had. */
static bool take(struct shmc_queue *queue, uint64_t slot, unsigned lane, uint64_t now_ns,
                 uint64_t limit_ns, struct shmc_taken *held)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    uint64_t word, version, delay;

    do {
        word = shmc_load_acquire(&at->word);
        delay = shmc_load_acquire(&at->delay);
        version = (KEY_VERSION(word) + 1) & UINT32_MAX;
        if (!SHMC_CHECKED(NO_STATE_CHECK, KEY_STATE(word) == KEY_QUEUED) ||
            KEY_LANE(word) != lane)
            return false; /* a ticket that came late, or twice */
    } while (!shmc_cas(&at->word, word,
                       shmc_key_word(KEY_KNOWN | KEY_HELD, lane, queue->owner, version)));
    set_deadline(queue, at, version, now_ns, limit_ns);
    if (delay != 0 && (delay & DUE_FIRING) == 0)
        SHMC_UNLESS(NO_ONE_TICKET, (void)shmc_cas(&at->delay, delay, 0)); /* DUE6 */
    count_taken(queue);
    const uint64_t since = shmc_load_racy(&at->since_ns);
    if (now_ns > since)
        shmc_queue_count(queue, COUNT_QUEUE_NS, now_ns - since);
    shmc_store_racy(&at->since_ns, now_ns);
    shmc_queue_count(queue, COUNT_GETS, 1);
    held->slot = slot;
    held->version = version;
    held->length = shmc_key_copy(queue, slot, held->key); /* QUEUE6: held, so its life stays */
    if (held->length == 0) { /* spoilt: the next rebuild frees it */
        shmc_store_racy(&queue->header->corrupt, 1);
        return false;
    }
    return true;
}

static bool take_ticket(struct shmc_queue *queue, unsigned lane, uint64_t now_ns,
                        uint64_t limit_ns, struct shmc_taken *held)
{
    uint64_t slot = shmc_ticket_take(queue, lane);

    for (; slot < queue->slot_count; slot = shmc_ticket_take(queue, lane)) {
        if (take(queue, slot, lane, now_ns, limit_ns, held))
            return true;
    }
    return false;
}

/* Of the highest priority first. Where all tickets of a lane came late, of keys that were raised, its
 * ring is empty now, and its spilled keys have their turn before the lanes below (SPILL5). */
static bool take_any(struct shmc_queue *queue, uint64_t now_ns, uint64_t limit_ns,
                     struct shmc_taken *held)
{
    const shmc_atomic *spilled = &queue->header->spilled;
    unsigned lanes[SHMC_QUEUE_LANES];
    const unsigned count = shmc_lane_order(queue, lanes);

    if (shmc_load_racy(spilled) != 0)
        shmc_lanes_refill(queue);
    for (unsigned i = 0; i < count; i++) {
        if (take_ticket(queue, lanes[i], now_ns, limit_ns, held))
            return true;
        if ((shmc_load_racy(spilled) >> lanes[i] & 1u) == 0)
            continue;
        shmc_lanes_refill(queue);
        if (take_ticket(queue, lanes[i], now_ns, limit_ns, held))
            return true;
    }
    return false;
}

enum shmc_status shmc_queue_take(struct shmc_queue *queue, uint64_t limit_ns,
                                 struct shmc_taken *held)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (shmc_load_racy(&queue->stopped) != 0) {
        shmc_queue_depart(queue);
        return SHMC_OVER;
    }
    const uint64_t now_ns = shmc_monotonic_ns();
    const bool over = shmc_queue_shut(queue);
    shmc_queue_come(queue);
    if (!over && shmc_load_racy(&queue->header->next_due) <= now_ns)
        shmc_due_fire(queue, now_ns);
    shmc_queue_sweep(queue, now_ns);
    if (take_any(queue, now_ns, limit_ns, held)) {
        shmc_queue_pass_on(queue);
        return SHMC_OK;
    }
    if (!over && shmc_load_racy(&queue->header->missing) == 0)
        return SHMC_EMPTY;
    shmc_queue_scan(queue, now_ns); /* a key may have lost its ticket */
    if (take_any(queue, now_ns, limit_ns, held)) {
        shmc_queue_pass_on(queue);
        return SHMC_OK;
    }
    return over ? SHMC_OVER : SHMC_EMPTY;
}

/* Everything that ends a holding: the key is queued if it is dirty (or shall be), else idle. */
static bool let_go(struct shmc_queue *queue, uint64_t slot, uint64_t word, bool dirty,
                   uint64_t now_ns)
{
    const unsigned lane = KEY_LANE(word);
    const unsigned state = dirty || (word & KEY_DIRTY) != 0 ? KEY_QUEUED : KEY_KNOWN;

    if (!shmc_cas(&queue->slots[slot].word, word,
                  shmc_key_word(state, lane, 0, KEY_VERSION(word) + 1))) /* QUEUE4 */
        return false;
    if (state == KEY_QUEUED)
        hand_in(queue, slot, lane, now_ns);
    else
        shmc_queue_room(queue);
    return true;
}

bool shmc_key_give_back(struct shmc_queue *queue, uint64_t slot, uint64_t word, uint64_t now_ns)
{
    return let_go(queue, slot, word, SHMC_KEEP_NO_GIVE_BACK, now_ns);
}

enum shmc_status shmc_queue_done(struct shmc_queue *queue, uint64_t slot, uint64_t version)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (slot >= queue->slot_count)
        return SHMC_INVALID;
    if (!shmc_slot_there(queue, slot)) { /* a step with a key that is held does not go */
        shmc_queue_count(queue, COUNT_LATE, 1);
        return SHMC_NOT_FOUND;
    }
    const uint64_t now_ns = shmc_monotonic_ns();
    struct shmc_queue_slot *at = &queue->slots[slot];
    const uint64_t since = shmc_load_racy(&at->since_ns);
    for (;;) {
        const uint64_t word = shmc_load_acquire(&at->word);
        const bool ours = (word & (KEY_KNOWN | KEY_HELD)) == (KEY_KNOWN | KEY_HELD) &&
                          KEY_VERSION(word) == version &&
                          (word & ~UINT64_C(127) & UINT32_MAX) == queue->owner;
        if (!SHMC_CHECKED(NO_HOLD_CHECK, ours)) { /* QUEUE5 */
            shmc_queue_count(queue, COUNT_LATE, 1);
            return SHMC_NOT_FOUND;
        }
        if (!let_go(queue, slot, word, false, now_ns))
            continue;
        shmc_queue_count(queue, COUNT_DONES, 1);
        if (now_ns > since)
            shmc_queue_count(queue, COUNT_WORK_NS, now_ns - since);
        shmc_queue_finished(queue);
        return SHMC_OK;
    }
}
