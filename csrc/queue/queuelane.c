/*
 * queuelane.c - tickets: in which order keys are handed out.
 *
 * A lane for each priority, and in each lane an endless row of numbered tickets, of which a ring
 * holds the last ones. A worker that adds a key takes the next number at the tail and writes the
 * slot there; one that wants a key takes the next number at the head and reads. A taker that comes
 * before the writer closes the ticket, and the writer goes on to the next: neither waits for the
 * other, and a ticket whose writer died holds up nobody.
 *
 * Invariants
 *   LANE1  a ticket {round, slot} belongs to number n of its ring if its round is n / size + 1; slot
 *       0 means that it was closed. The round of a word of the ring only rises.
 *   LANE2  each number is given to one writer and one taker.
 *   LANE3  a ticket says that a key may be queued, nothing more (QUEUE1). One that is lost (its taker
 *       died) is written again by a scan: the slot's ticket word says where the last one was, and
 *       the scan looks whether it is still there.
 *   LANE4  a lane has one priority from its first use on. With more than eight priorities in use the
 *       nearest lane serves.
 *
 * A ring has fewer tickets than the queue has slots. Keys that find it full are spilled: their words
 * say that they are queued, and a worker that finds the ring half empty writes tickets for them.
 * As long as the ring suffices, keys are handed out in the order in which they came; spilled ones
 * in the order of their slots.
 *
 *   SPILL1 an adder that finds the ring full lights the lane's bit in `spilled`, after the word is
 *          queued.
 *   SPILL2 while it is lit, new keys of the lane have no tickets: they do not overtake the others.
 *   SPILL3 a refill begins where the last one stopped and goes once around at most: each slot has
 *          its turn.
 *   SPILL4 word queued ▸ bit is lit, so no ticket  <->  bit put out (an exchange) ▸ words: the
 *          refill that put it out sees every key that relied on the bit. If that one dies, its scan
 *          (QUEUE1) does the same.
 *   SPILL5 a taker that leaves a lane for a lower one has found its ring empty, and has refilled it
 *          since if the lane's bit was lit: a spilled key waits for no key of a lower priority.
 *
 * Progress: lock-free; a closed ticket means that somebody else took one.
 */
#include "queue/queue.h"

#define SLOT_BITS 24u
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define PATIENCE 32u /* loads until a ticket that is being written is closed */
#define PRIORITY_BIAS (INT64_C(1) << 32)
#define PRIORITY_LIMIT INT32_MAX

static struct shmc_queue_lane *lane_at(const struct shmc_queue *queue, unsigned lane)
{
    return &queue->header->lanes[lane];
}

static shmc_atomic *ticket_at(const struct shmc_queue *queue, unsigned lane, uint64_t number)
{
    return &queue->rings[lane * queue->ring_count + (number & (queue->ring_count - 1))];
}

static uint64_t round_of(const struct shmc_queue *queue, uint64_t number)
{
    return (number / queue->ring_count + 1) << SLOT_BITS;
}

/* ---- priorities -------------------------------------------------------------------------------- */

/* 0 = none. The values in shared memory sort like the priorities. */
static uint64_t priority_of(const struct shmc_queue *queue, unsigned lane)
{
    return shmc_load_acquire(&queue->header->priorities[lane]);
}

bool shmc_lane_before(const struct shmc_queue *queue, unsigned a, unsigned b)
{
    return a != b && priority_of(queue, a) > priority_of(queue, b);
}

static unsigned nearest(const struct shmc_queue *queue, uint64_t wanted)
{
    unsigned best = 0;
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < SHMC_QUEUE_LANES; i++) {
        const uint64_t found = priority_of(queue, i);
        const uint64_t apart = found > wanted ? found - wanted : wanted - found;
        if (apart < least) {
            least = apart;
            best = i;
        }
    }
    return best;
}

int64_t shmc_priority_of(const struct shmc_queue *queue, int64_t priority, const uint8_t *key,
                         size_t length)
{
    struct shmc_keyref ref;

    if (priority != SHMC_PRIORITY_KEPT)
        return priority;
    const uint64_t hash = shmc_queue_hash(queue, key, length);
    if (shmc_key_find(queue, key, length, hash, &ref) != SHMC_OK)
        return 0;
    const uint64_t word = shmc_load_acquire(&shmc_slot_of(queue, ref)->word);
    const uint64_t found = priority_of(queue, KEY_LANE(word));
    return (word & (KEY_HELD | KEY_DIRTY)) != 0 && found != 0 ? (int64_t)found - PRIORITY_BIAS : 0;
}

enum shmc_status shmc_lane_of(struct shmc_queue *queue, int64_t priority, unsigned *lane)
{
    if (priority > PRIORITY_LIMIT)
        priority = PRIORITY_LIMIT;
    if (priority < -PRIORITY_LIMIT)
        priority = -PRIORITY_LIMIT;
    const uint64_t wanted = (uint64_t)(priority + PRIORITY_BIAS);
    unsigned i = 0;
    while (i < SHMC_QUEUE_LANES) {
        const uint64_t found = priority_of(queue, i);
        if (found == wanted) {
            *lane = i;
            return shmc_queue_back_lane(queue, i);
        }
        if (found != 0) {
            i++;
            continue;
        }
        const enum shmc_status status = shmc_queue_back_lane(queue, i); /* before it is used */
        if (status != SHMC_OK)
            return status;
        (void)shmc_cas(&queue->header->priorities[i], 0, wanted); /* LANE4; then look again */
    }
    *lane = nearest(queue, wanted);
    return shmc_queue_back_lane(queue, *lane);
}

enum shmc_status shmc_lane_of_key(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                  int64_t priority, unsigned *lane)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (length == 0 || length > SHMC_QUEUE_KEY_MAX)
        return SHMC_LIMIT;
    if (shmc_queue_shut(queue))
        return SHMC_CLOSED;
    return shmc_lane_of(queue, shmc_priority_of(queue, priority, key, length), lane);
}

unsigned shmc_lane_order(const struct shmc_queue *queue, unsigned lanes[SHMC_QUEUE_LANES])
{
    uint64_t priorities[SHMC_QUEUE_LANES];
    unsigned count = 0;

    for (unsigned i = 0; i < SHMC_QUEUE_LANES; i++) {
        const uint64_t priority = priority_of(queue, i);
        unsigned at = count;
        if (priority == 0)
            continue;
        for (; at > 0 && priorities[at - 1] < priority; at--) {
            priorities[at] = priorities[at - 1];
            lanes[at] = lanes[at - 1];
        }
        priorities[at] = priority;
        lanes[at] = i;
        count++;
    }
    return count;
}

/* ---- tickets ----------------------------------------------------------------------------------- */

static void missing(struct shmc_queue *queue)
{
    shmc_store_racy(&queue->header->missing, 1); /* LANE3 */
}

/* The head only rises: the last one seen will do, unless it makes the ring look full. */
static bool is_full(struct shmc_queue *queue, unsigned lane)
{
    const struct shmc_queue_lane *at = lane_at(queue, lane);
    const uint64_t tail = shmc_load_racy(&at->tail);

    if (tail - shmc_load_racy(&queue->heads[lane]) < queue->ring_count)
        return false;
    shmc_store_racy(&queue->heads[lane], shmc_load_acquire(&at->head));
    return tail - shmc_load_racy(&queue->heads[lane]) >= queue->ring_count;
}

static void spill(struct shmc_queue *queue, unsigned lane)
{
    shmc_atomic *spilled = &queue->header->spilled;
    uint64_t now = shmc_load_racy(spilled);

    while ((now >> lane & 1u) == 0 && !shmc_cas(spilled, now, now | UINT64_C(1) << lane))
        now = shmc_load_racy(spilled);
}

static bool write_ticket(struct shmc_queue *queue, uint64_t slot, unsigned lane)
{
    struct shmc_queue_lane *at = lane_at(queue, lane);

    for (uint64_t tries = 0; tries < queue->ring_count; tries++) {
        if (is_full(queue, lane))
            break;
        const uint64_t number = shmc_fetch_add(&at->tail, 1); /* LANE2 */
        const uint64_t ticket = round_of(queue, number) | (slot + 1);
        shmc_atomic *where = ticket_at(queue, lane, number);
        const uint64_t before = shmc_load_racy(where);
        if (before >> SLOT_BITS >= ticket >> SLOT_BITS) /* closed, or we slept for a round */
            continue;
        if (!shmc_cas(where, before, ticket))
            continue;
        shmc_store_racy(&queue->slots[slot].ticket, number << 3 | lane);
        return true;
    }
    SHMC_UNLESS(NO_SPILL, spill(queue, lane)); /* SPILL1 */
    return false;
}

bool shmc_ticket_write(struct shmc_queue *queue, uint64_t slot, unsigned lane)
{
    if ((shmc_load_racy(&queue->header->spilled) >> lane & 1u) != 0)
        return false; /* SPILL2: those that came before go first */
    return write_ticket(queue, slot, lane);
}

/* ---- spilled keys ------------------------------------------------------------------------------ */

/* SPILL3: from where the last one stopped, once around, until the ring is full. */
static void refill(struct shmc_queue *queue, unsigned lane)
{
    shmc_atomic *hand = &queue->header->refill;
    const uint64_t end = shmc_slots_end(queue);
    const uint64_t start = end == 0 ? 0 : shmc_load_racy(hand) % end;
    uint64_t seen = 0, slot = start;

    while (seen < end) {
        const uint64_t next = shmc_slot_from(queue, slot, end);
        seen += next - slot + 1;
        slot = next;
        if (slot < end) {
            const uint64_t word = shmc_load_acquire(&queue->slots[slot].word);
            if (KEY_STATE(word) == KEY_QUEUED && KEY_LANE(word) == lane &&
                !shmc_ticket_there(queue, slot) && !write_ticket(queue, slot, lane))
                break; /* spilled again */
        }
        slot = slot + 1 >= end ? 0 : slot + 1;
    }
    shmc_store_racy(hand, slot);
}

void shmc_lanes_refill(struct shmc_queue *queue)
{
    shmc_atomic *spilled = &queue->header->spilled;

    for (unsigned lane = 0; lane < SHMC_QUEUE_LANES; lane++) {
        const uint64_t now = shmc_load_acquire(spilled), bit = UINT64_C(1) << lane;
        const struct shmc_queue_lane *at = lane_at(queue, lane);
        const uint64_t left = shmc_load_acquire(&at->tail) - shmc_load_acquire(&at->head);
        if ((now & bit) == 0 || (left > queue->ring_count / 2 && left <= queue->ring_count))
            continue;
        if (shmc_cas(spilled, now, now & ~bit)) /* SPILL4 */
            refill(queue, lane);
    }
    if (shmc_load_racy(spilled) >> SHMC_QUEUE_LANES != 0) /* noise */
        (void)shmc_exchange(spilled, (UINT64_C(1) << SHMC_QUEUE_LANES) - 1);
}

/* The slot of ticket `number`, which is ours to take; SLOT_COUNT or more if it has no slot. */
static uint64_t read_ticket(struct shmc_queue *queue, unsigned lane, uint64_t number)
{
    shmc_atomic *where = ticket_at(queue, lane, number);
    const uint64_t round = round_of(queue, number) >> SLOT_BITS;
    unsigned patience = PATIENCE;

    for (;;) {
        const uint64_t found = shmc_load_acquire(where);
        if (found >> SLOT_BITS == round)
            return (found & SLOT_MASK) - 1;
        if (found >> SLOT_BITS > round) { /* we slept for a round: the ticket is lost */
            missing(queue);
            return SHMC_QUEUE_MAX_SLOTS;
        }
        if (patience-- > 0)
            continue;
        if (shmc_cas(where, found, round << SLOT_BITS))
            return SHMC_QUEUE_MAX_SLOTS;
        patience = 0;
    }
}

uint64_t shmc_ticket_take(struct shmc_queue *queue, unsigned lane)
{
    struct shmc_queue_lane *at = lane_at(queue, lane);

    for (uint64_t tries = 0; tries <= 2 * queue->ring_count; tries++) {
        const uint64_t number = shmc_load_acquire(&at->head);
        const uint64_t tail = shmc_load_acquire(&at->tail);
        if (number == tail)
            return SHMC_QUEUE_MAX_SLOTS;
        if (tail - number > 2 * queue->ring_count) { /* spoilt: a scan finds all queued keys */
            (void)shmc_cas(&at->head, number, tail);
            missing(queue);
            continue;
        }
        if (!shmc_cas(&at->head, number, number + 1)) /* LANE2 */
            continue;
        const uint64_t slot = read_ticket(queue, lane, number);
        if (shmc_slot_there(queue, slot))
            return slot;
    }
    return SHMC_QUEUE_MAX_SLOTS;
}

bool shmc_ticket_there(const struct shmc_queue *queue, uint64_t slot)
{
    const uint64_t ticket = shmc_load_racy(&queue->slots[slot].ticket);
    const unsigned lane = (unsigned)(ticket & 7u);
    const uint64_t number = ticket >> 3;

    if (lane != KEY_LANE(shmc_load_racy(&queue->slots[slot].word)) ||
        priority_of(queue, lane) == 0)
        return false;
    return shmc_load_acquire(&lane_at(queue, lane)->head) <= number &&
           number < shmc_load_acquire(&lane_at(queue, lane)->tail) &&
           shmc_load_acquire(ticket_at(queue, lane, number)) ==
               (round_of(queue, number) | (slot + 1));
}

bool shmc_lanes_empty(const struct shmc_queue *queue)
{
    if (shmc_load_racy(&queue->header->spilled) != 0)
        return false;
    for (unsigned i = 0; i < SHMC_QUEUE_LANES; i++) {
        if (priority_of(queue, i) != 0 && shmc_load_acquire(&lane_at(queue, i)->head) !=
                                              shmc_load_acquire(&lane_at(queue, i)->tail))
            return false;
    }
    return true;
}

uint64_t shmc_lanes_taken(const struct shmc_queue *queue, uint64_t *left)
{
    uint64_t taken = 0;

    *left = 0;
    for (unsigned i = 0; i < SHMC_QUEUE_LANES; i++) {
        if (priority_of(queue, i) == 0)
            continue;
        const uint64_t head = shmc_load_acquire(&lane_at(queue, i)->head);
        taken += head;
        *left += shmc_load_acquire(&lane_at(queue, i)->tail) - head;
    }
    return taken;
}
