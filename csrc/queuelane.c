/*
 * queuelane.c - tickets: in which order keys are handed out.
 *
 * A lane for each priority, and in each lane an endless row of numbered places, of which a ring
 * holds the last ones. Who hands a key in takes the next number at the tail and writes the slot
 * there; who wants a key takes the next number at the head and reads. A taker that comes before
 * the writer closes the place, and the writer goes on to the next: so neither waits for the other,
 * and a place whose writer died holds up nobody.
 *
 * Invariants
 *   L1  a place {round, slot} belongs to number n of its ring if its round is n / size + 1; slot 0
 *       means that it was closed. A place's round only rises.
 *   L2  each number is given to one writer and one taker.
 *   L3  a ticket says that a key may be queued, nothing more (Q1). One that is lost (its taker
 *       died, the ring was full) is written again by a scan: the slot's ticket word says where the
 *       last one was, and the scan looks whether it is still there.
 *   L4  a lane has one priority from its first use on. With more than eight priorities in use the
 *       nearest lane serves.
 *
 * Progress: lock-free; a closed place means that somebody else took one.
 */
#include "queue.h"

#define SLOT_BITS 24u
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define PATIENCE 32u /* loads until a place that is being written is closed */
#define PRIORITY_BIAS (INT64_C(1) << 32)
#define PRIORITY_LIMIT INT32_MAX

static struct shmc_queue_lane *lane_at(const struct shmc_queue *queue, unsigned lane)
{
    return &queue->header->lanes[lane];
}

static shmc_atomic *place_of(const struct shmc_queue *queue, unsigned lane, uint64_t number)
{
    return &queue->rings[lane * queue->slot_count + (number & (queue->slot_count - 1))];
}

static uint64_t round_of(const struct shmc_queue *queue, uint64_t number)
{
    return (number / queue->slot_count + 1) << SLOT_BITS;
}

/* ---- priorities -------------------------------------------------------------------------------- */

/* 0 = none. What stands in shared memory orders as the priorities do. */
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
        (void)shmc_cas(&queue->header->priorities[i], 0, wanted); /* L4; then look again */
    }
    *lane = nearest(queue, wanted);
    return shmc_queue_back_lane(queue, *lane);
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
    shmc_store_racy(&queue->header->missing, 1); /* L3 */
}

/* The head only rises: it is looked at where the last one seen would not do. */
static bool is_full(struct shmc_queue *queue, unsigned lane)
{
    const struct shmc_queue_lane *at = lane_at(queue, lane);
    const uint64_t tail = shmc_load_racy(&at->tail);

    if (tail - shmc_load_racy(&queue->heads[lane]) < queue->slot_count)
        return false;
    shmc_store_racy(&queue->heads[lane], shmc_load_acquire(&at->head));
    return tail - shmc_load_racy(&queue->heads[lane]) >= queue->slot_count;
}

void shmc_ticket_write(struct shmc_queue *queue, uint64_t slot, unsigned lane)
{
    struct shmc_queue_lane *at = lane_at(queue, lane);

    for (uint64_t tries = 0; tries < queue->slot_count; tries++) {
        if (is_full(queue, lane))
            break;
        const uint64_t number = shmc_fetch_add(&at->tail, 1); /* L2 */
        const uint64_t ticket = round_of(queue, number) | (slot + 1);
        shmc_atomic *place = place_of(queue, lane, number);
        const uint64_t before = shmc_load_racy(place);
        if (before >> SLOT_BITS >= ticket >> SLOT_BITS) /* closed, or we slept for a round */
            continue;
        if (!shmc_cas(place, before, ticket))
            continue;
        shmc_store_racy(&queue->slots[slot].ticket, number << 3 | lane);
        return;
    }
    missing(queue);
}

/* The slot of ticket `number`, which is ours to take; SLOT_COUNT or more if there is none. */
static uint64_t read_ticket(struct shmc_queue *queue, unsigned lane, uint64_t number)
{
    shmc_atomic *place = place_of(queue, lane, number);
    const uint64_t round = round_of(queue, number) >> SLOT_BITS;
    unsigned patience = PATIENCE;

    for (;;) {
        const uint64_t found = shmc_load_acquire(place);
        if (found >> SLOT_BITS == round)
            return (found & SLOT_MASK) - 1;
        if (found >> SLOT_BITS > round) { /* we slept for a round: the ticket is lost */
            missing(queue);
            return SHMC_QUEUE_MAX_SLOTS;
        }
        if (patience-- > 0)
            continue;
        if (shmc_cas(place, found, round << SLOT_BITS))
            return SHMC_QUEUE_MAX_SLOTS;
        patience = 0;
    }
}

uint64_t shmc_ticket_take(struct shmc_queue *queue, unsigned lane)
{
    struct shmc_queue_lane *at = lane_at(queue, lane);

    for (uint64_t tries = 0; tries <= 2 * queue->slot_count; tries++) {
        const uint64_t number = shmc_load_acquire(&at->head);
        const uint64_t tail = shmc_load_acquire(&at->tail);
        if (number == tail)
            return SHMC_QUEUE_MAX_SLOTS;
        if (tail - number > 2 * queue->slot_count) { /* spoilt: whatever is queued is found anew */
            (void)shmc_cas(&at->head, number, tail);
            missing(queue);
            continue;
        }
        if (!shmc_cas(&at->head, number, number + 1)) /* L2 */
            continue;
        const uint64_t slot = read_ticket(queue, lane, number);
        if (slot < queue->slot_count)
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
           shmc_load_acquire(place_of(queue, lane, number)) ==
               (round_of(queue, number) | (slot + 1));
}

bool shmc_lanes_empty(const struct shmc_queue *queue)
{
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
