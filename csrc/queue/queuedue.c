/*
 * queuedue.c - keys for later: delays, and how long a key that failed waits.
 *
 * Each slot has one alarm. Of two settings the earlier one stays, and the higher lane. A key that is
 * to be handed out anyway needs none, and one that is handed out loses it: the worker
 * decides when it comes again. Alarms are not sorted: each step of 64 slots knows a time before
 * which nothing in it is due, the queue knows one for all steps. So a due key costs a look at its
 * step and at a row of numbers.
 *
 * Invariants
 *   DUE1  a delay counts if its life is the slot's. It is set, made earlier and fired by an
 *       exchange of that one word.
 *   DUE2  firing: delay -> firing ▸ dirty ▸ firing -> none ▸ ticket: a worker that gets the key and
 *       sets the next delay does not meet this one, and does not get the key again at once. A
 *       setter that meets a firing delay first makes the key dirty itself; a scan does so if the
 *       firing is old: its owner died.
 *   DUE3  after setting a delay an idle word changes its version (QUEUE8): the slot is not retired over
 *       it. If the key's life has ended meanwhile, it is made known again.
 *   DUE4  the due time of a step is at most the earliest delay in it, except between the exchange
 *       to never and its end in a firing worker; so is next_due of the steps. A scan mends both.
 *   DUE6  a delay from before the exchange of get() is cleared after it, by an exchange. A delay
 *       that is set meanwhile stays: each setting changes the word, its turn if nothing else.
 *
 * Ordering
 *   DUE5  delay ▸ exchange of the step's time <-> exchange of the step's time to never ▸ delays:
 *       all full, so a setter that saw the old time has its delay seen. The same for next_due.
 */
#include "queue/queue.h"

#define FIRING_MAX_NS UINT64_C(500000000)
#define MAX_DELAY_NS (UINT64_C(1) << 59)
#define TURN_BIT 12u

static uint64_t due_ns(uint64_t delay)
{
    return DUE_TICKS(delay) << DUE_TICK;
}

/* Never early: the tick that begins at this time or after it. */
static uint64_t make_delay(uint64_t at_ns, unsigned lane, uint64_t life)
{
    const uint64_t ticks = (at_ns + (UINT64_C(1) << DUE_TICK) - 1) >> DUE_TICK;

    return ticks << 20 | (uint64_t)lane << 17 | (life & DUE_LIFE);
}

static bool lower(shmc_atomic *word, uint64_t to)
{
    uint64_t now = shmc_load_racy(word);

    while (to < now) {
        if (shmc_cas(word, now, to))
            return true;
        now = shmc_load_racy(word);
    }
    return false;
}

static shmc_atomic *step_due(const struct shmc_queue *queue, uint64_t slot)
{
    return &queue->steps[slot / SHMC_QUEUE_STEP].due;
}

static void note_due(struct shmc_queue *queue, uint64_t slot, uint64_t at_ns)
{
    shmc_fence_full(); /* DUE5 */
    (void)lower(step_due(queue, slot), at_ns);
    if (lower(&queue->header->next_due, at_ns))
        shmc_queue_earlier(queue);
}

/* ---- setting ----------------------------------------------------------------------------------- */

/* DUE3. NOT_FOUND: the life has ended. */
static enum shmc_status confirm(struct shmc_queue *queue, struct shmc_keyref ref)
{
    struct shmc_queue_slot *slot = shmc_slot_of(queue, ref);

    for (;;) {
        const uint64_t word = shmc_load_acquire(&slot->word);
        if (!shmc_same_life(queue, ref, word))
            return SHMC_NOT_FOUND;
        if (KEY_STATE(word) != KEY_KNOWN)
            return SHMC_OK; /* it is retired only after another step, which looks again */
        const uint64_t next =
            shmc_key_word(KEY_KNOWN, KEY_LANE(word), 0, KEY_VERSION(word) + 1);
        if (!SHMC_KEEP_NO_CONFIRM || shmc_cas(&slot->word, word, next))
            return SHMC_OK;
    }
}

/* The earlier of two delays, in the higher lane, and another word than the one before (DUE6). */
static uint64_t merged(const struct shmc_queue *queue, uint64_t delay, uint64_t at_ns,
                       unsigned lane, uint64_t life)
{
    const uint64_t earlier = due_ns(delay) < at_ns ? due_ns(delay) : at_ns;
    const bool keeps = shmc_lane_before(queue, DUE_LANE(delay), lane);

    return make_delay(earlier, keeps ? DUE_LANE(delay) : lane, life) |
           (((delay & DUE_TURN) + (UINT64_C(1) << TURN_BIT)) & DUE_TURN);
}

static enum shmc_status set_delay(struct shmc_queue *queue, struct shmc_keyref ref,
                                  uint64_t at_ns, unsigned lane, uint64_t now_ns)
{
    struct shmc_queue_slot *slot = shmc_slot_of(queue, ref);
    uint64_t next;

    for (;;) {
        const uint64_t word = shmc_load_acquire(&slot->word);
        const uint64_t delay = shmc_load_acquire(&slot->delay);
        if (!shmc_same_life(queue, ref, word))
            return SHMC_NOT_FOUND;
        if (SHMC_KEEP_NO_ONE_TICKET && (word & KEY_DIRTY) != 0)
            return SHMC_OK; /* it is handed out after this, and before its time */
        const bool set = delay != 0 && (delay & DUE_LIFE) == (ref.life & DUE_LIFE); /* DUE1 */
        if (set && (delay & DUE_FIRING) != 0) { /* DUE2 */
            const enum shmc_status status =
                shmc_key_dirty(queue, ref, DUE_LANE(delay), now_ns);
            (void)shmc_cas(&slot->delay, delay, 0);
            return status;
        }
        next = set ? merged(queue, delay, at_ns, lane, ref.life)
                   : make_delay(at_ns, lane, ref.life) | ((KEY_VERSION(word) << TURN_BIT) & DUE_TURN);
        if (shmc_cas(&slot->delay, delay, next))
            break;
    }
    const enum shmc_status status = confirm(queue, ref);
    if (status == SHMC_OK)
        note_due(queue, ref.slot, due_ns(next));
    return status;
}

/* One more failure in this life; how many there were before. */
static enum shmc_status count_requeue(struct shmc_queue *queue, struct shmc_keyref ref,
                                      uint64_t *before)
{
    shmc_atomic *word = &shmc_slot_of(queue, ref)->requeues;

    for (;;) {
        const uint64_t found = shmc_load_acquire(word);
        const bool ours = (uint32_t)found == (uint32_t)ref.life;
        const uint64_t count = ours ? found >> 32 : 0;
        if (!ours && shmc_load_acquire(&shmc_slot_of(queue, ref)->life) != ref.life)
            return SHMC_NOT_FOUND;
        const uint64_t more = count < UINT32_MAX ? count + 1 : count;
        if (shmc_cas(word, found, more << 32 | (uint32_t)ref.life)) {
            *before = count;
            return SHMC_OK;
        }
    }
}

static uint64_t exponential(const struct shmc_queue *queue, uint64_t failures)
{
    if (failures >= 63 || queue->base_ns > queue->max_ns >> failures)
        return queue->max_ns; /* so that nothing overflows */
    return queue->base_ns << failures;
}

/* When a token bucket for all keys together has one for us: spoken for in advance. */
static uint64_t bucket_wait(struct shmc_queue *queue, uint64_t now_ns)
{
    shmc_atomic *word = &queue->header->bucket_ns;
    const uint64_t burst_ns = queue->burst * queue->token_ns;

    if (queue->token_ns == 0)
        return 0;
    for (;;) {
        const uint64_t until = shmc_load_racy(word);
        const bool sane = until > now_ns && until - now_ns < MAX_DELAY_NS;
        const uint64_t next = (sane ? until : now_ns) + queue->token_ns;
        if (shmc_cas(word, until, next))
            return next - now_ns > burst_ns ? next - now_ns - burst_ns : 0;
    }
}

/* A key that is to be known, whatever its state is. */
static enum shmc_status known(struct shmc_queue *queue, const uint8_t *key, size_t length,
                              struct shmc_keyref *ref)
{
    bool made;

    return shmc_key_make(queue, key, length, shmc_queue_hash(queue, key, length), 0, 0, ref,
                         &made);
}

static enum shmc_status add_later(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                  int64_t priority, uint64_t delay_ns, bool limited)
{
    const uint64_t now_ns = shmc_monotonic_ns();
    struct shmc_keyref ref;
    unsigned lane = 0;
    uint64_t failures = 0;

    enum shmc_status status = shmc_lane_of_key(queue, key, length, priority, &lane);
    if (status != SHMC_OK)
        return status;
    const uint64_t token = limited ? bucket_wait(queue, now_ns) : 0;
    shmc_fence_full(); /* QUEUE9 */
    do {
        status = known(queue, key, length, &ref);
        if (status == SHMC_OK && limited) {
            status = count_requeue(queue, ref, &failures);
            delay_ns = exponential(queue, failures);
            if (token > delay_ns)
                delay_ns = token;
        }
        if (status == SHMC_OK)
            status = set_delay(queue, ref, now_ns + delay_ns, lane, now_ns);
    } while (status == SHMC_NOT_FOUND);
    if (status == SHMC_OK)
        shmc_queue_count(queue, COUNT_RETRIES, 1);
    else if (status == SHMC_FULL)
        shmc_queue_count(queue, COUNT_FULL, 1);
    return status;
}

enum shmc_status shmc_queue_add_after(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                      int64_t priority, uint64_t delay_ns)
{
    if (delay_ns > MAX_DELAY_NS)
        delay_ns = MAX_DELAY_NS;
    return add_later(queue, key, length, priority, delay_ns, false);
}

enum shmc_status shmc_queue_add_limited(struct shmc_queue *queue, const uint8_t *key,
                                        size_t length, int64_t priority)
{
    return add_later(queue, key, length, priority, 0, true);
}

enum shmc_status shmc_queue_requeues(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                     int forget, uint64_t *requeues)
{
    struct shmc_keyref ref;

    *requeues = 0;
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (length == 0 || length > SHMC_QUEUE_KEY_MAX)
        return SHMC_LIMIT;
    if (shmc_key_find(queue, key, length, shmc_queue_hash(queue, key, length), &ref) != SHMC_OK)
        return SHMC_OK;
    shmc_atomic *word = &shmc_slot_of(queue, ref)->requeues;
    for (;;) {
        const uint64_t found = shmc_load_acquire(word);
        if ((uint32_t)found != (uint32_t)ref.life)
            return SHMC_OK; /* none, or of another key by now */
        *requeues = found >> 32;
        if (!forget || *requeues == 0)
            return SHMC_OK;
        if (shmc_cas(word, found, (uint32_t)ref.life)) {
            shmc_queue_room(queue);
            return SHMC_OK;
        }
    }
}

/* ---- firing ------------------------------------------------------------------------------------ */

/* DUE2 */
static void fire(struct shmc_queue *queue, struct shmc_keyref ref, uint64_t delay,
                 uint64_t now_ns)
{
    shmc_atomic *word = &shmc_slot_of(queue, ref)->delay;
    const uint64_t firing = delay | DUE_FIRING;

    if ((delay & DUE_FIRING) == 0 && !shmc_cas(word, delay, firing))
        return; /* earlier, higher, or somebody else fires it */
    (void)shmc_key_fired(queue, ref, DUE_LANE(delay), now_ns, firing); /* NOT_FOUND: no key's */
    (void)shmc_cas(word, firing, 0);
}

/* A slot's delay: false if it has none. */
static bool load_delay(const struct shmc_queue *queue, uint64_t slot, struct shmc_keyref *ref,
                       uint64_t *delay)
{
    *delay = shmc_load_acquire(&queue->slots[slot].delay);
    ref->slot = slot;
    ref->life = shmc_load_acquire(&queue->slots[slot].life);
    return *delay != 0 && (*delay & DUE_LIFE) == (ref->life & DUE_LIFE);
}

static void fire_step(struct shmc_queue *queue, uint64_t step, uint64_t now_ns)
{
    const uint64_t first = step * SHMC_QUEUE_STEP;
    const uint64_t end = first + SHMC_QUEUE_STEP;
    uint64_t earliest = DUE_NEVER, delay;
    struct shmc_keyref ref;

    (void)shmc_exchange(&queue->steps[step].due, DUE_NEVER); /* DUE5 */
    for (uint64_t slot = first; slot < end; slot++) {
        if (!load_delay(queue, slot, &ref, &delay) || (delay & DUE_FIRING) != 0)
            continue;
        if (due_ns(delay) <= now_ns)
            fire(queue, ref, delay, now_ns);
        else if (due_ns(delay) < earliest)
            earliest = due_ns(delay);
    }
    (void)lower(&queue->steps[step].due, earliest);
}

void shmc_due_fire(struct shmc_queue *queue, uint64_t now_ns)
{
    const uint64_t steps = shmc_slots_end(queue) / SHMC_QUEUE_STEP;
    uint64_t earliest = DUE_NEVER;

    (void)shmc_exchange(&queue->header->next_due, DUE_NEVER); /* DUE5 */
    for (uint64_t step = 0; step < steps; step++) {
        shmc_atomic *at = &queue->steps[step].due;
        if (!shmc_slot_there(queue, step * SHMC_QUEUE_STEP))
            continue;
        if (shmc_load_acquire(at) <= now_ns)
            fire_step(queue, step, now_ns);
        const uint64_t due = shmc_load_acquire(at);
        if (due < earliest)
            earliest = due;
    }
    (void)lower(&queue->header->next_due, earliest);
}

void shmc_due_check(struct shmc_queue *queue, uint64_t slot, uint64_t now_ns)
{
    struct shmc_keyref ref;
    uint64_t delay;

    if (!load_delay(queue, slot, &ref, &delay))
        return;
    const uint64_t due = due_ns(delay);
    if ((delay & DUE_FIRING) != 0) {
        if (due + FIRING_MAX_NS < now_ns)
            fire(queue, ref, delay, now_ns); /* DUE2 */
    } else if (shmc_load_acquire(step_due(queue, slot)) > due ||
               shmc_load_acquire(&queue->header->next_due) > due) {
        note_due(queue, slot, due); /* DUE4 */
    }
}
