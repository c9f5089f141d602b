/*
 * queuelinger.c - promises to look for tickets again soon, so that nobody need be rung.
 *
 * Ringing costs the ringer a system call, and a woken worker displaces one that was working: where
 * a key takes a microsecond, far more than the key. So there are promises to look soon, each
 * with a time and a seat, and while a young one is in force nobody is rung. It is made
 *   - for the rung worker, by the ringer: it looks when it is awake;
 *   - by a worker that found nothing, if its last wait was shorter than a sleep and its end: it
 *     goes on looking for that long (spins), one at a time;
 *   - by the reserve, one of the workers that sleep while others take keys quickly. It sleeps a
 *     step at a time, and goes to work when more keys wait than were taken in the step: because
 *     they become many, or because the workers that took them are busy with one.
 * When nothing happens nobody spins and there is no reserve: an idle worker costs nothing.
 *
 * Invariants
 *   LINGER1  a promise is broken for at most its age: a worker that stops or dies with one delays a
 *       key by that and by the next add, or the next tick (QWAIT5).
 *   LINGER2  after a promise was withdrawn its maker looks at the tickets, or passes a ring on
 *       (QWAIT9). A worker that goes to sleep withdraws, with its lamp lit, any promise made for it
 *       since it came: a later promise comes with a ring that ends the sleep.
 *   LINGER3  the reserve is one of the workers that would sleep: it takes no key from a worker that
 *       is awake. Keys that other processes took count, not its own: a lone process has none.
 *   LINGER5  a ringer promises for a worker while its lamp is lit, and puts that out afterwards: a
 *       worker that gets up meanwhile, for whatever reason, meets the promise when it comes. If the
 *       lamp was out already, the ringer revokes the promise, and looks for lamps again.
 *
 * Ordering
 *   LINGER4  ticket ▸ full fence ▸ promise  <->  promise withdrawn ▸ full fence ▸ tickets. An adder that
 *       relies on a promise has its ticket seen by the look that follows the promise's end.
 *       tests/spin/linger.pml is the model of LINGER1, LINGER2, LINGER4 and LINGER5.
 */
#include "queue/queue.h"

#define YOUNG_NS UINT64_C(200000) /* how long a promise is relied upon (LINGER1) */
#define SPIN_NS UINT64_C(20000)   /* about what a sleep and its end cost all involved */
#define SHORT_NS UINT64_C(30000)  /* a wait after which the next one spins */
#define PAUSES 8u                 /* between two looks: the line is the adder's */
#define QUICK 8u                  /* keys in a step that are worth a reserve */
#define QUICK_LEAST 4u
#define SEAT_MASK UINT64_C(1023) /* a time in steps of a microsecond, with a seat below */

static_assert(SHMC_MAX_SEATS <= SEAT_MASK + 1, "the low bits of a promise hold a seat");

static uint64_t promise_of(uint64_t seat, uint64_t now_ns)
{
    return (now_ns & ~SEAT_MASK) | seat;
}

static bool young(const shmc_atomic *word, uint64_t now_ns)
{
    const uint64_t made_ns = shmc_load_acquire(word) & ~SEAT_MASK;

    return made_ns <= now_ns && now_ns - made_ns < YOUNG_NS;
}

static bool is_ours(const struct shmc_queue *queue, const shmc_atomic *word)
{
    const uint64_t promise = shmc_load_acquire(word);

    return promise != 0 && (promise & SEAT_MASK) == queue->seat_index;
}

bool shmc_queue_promised(const struct shmc_queue *queue, uint64_t now_ns)
{
    return young(&queue->header->coming, now_ns) || young(&queue->header->spinning, now_ns);
}

void shmc_queue_promise(struct shmc_queue *queue, uint64_t seat, uint64_t now_ns)
{
    shmc_store_racy(&queue->header->coming, promise_of(seat, now_ns));
}

void shmc_queue_come(struct shmc_queue *queue)
{
    const bool rung = is_ours(queue, &queue->header->coming);
    const bool spun = is_ours(queue, &queue->header->spinning);

    if (rung)
        shmc_store_racy(&queue->header->coming, 0);
    if (spun)
        shmc_store_racy(&queue->header->spinning, 0);
    if (rung || spun)
        shmc_fence_full(); /* LINGER4 */
}

void shmc_queue_revoke(struct shmc_queue *queue)
{
    shmc_store_racy(&queue->header->coming, 0); /* another's, perhaps: then somebody is rung in vain */
    shmc_fence_full();                          /* LINGER4 */
}

/* ---- spinning ---------------------------------------------------------------------------------- */

bool shmc_queue_spin(struct shmc_queue *queue, uint64_t *now_ns, uint64_t deadline_ns)
{
    shmc_atomic *spinning = &queue->header->spinning;
    const uint64_t end_ns = *now_ns + SPIN_NS < deadline_ns ? *now_ns + SPIN_NS : deadline_ns;

    if (queue->shares_time || shmc_load_racy(&queue->waited_ns) > SHORT_NS ||
        young(spinning, *now_ns))
        return false;
    shmc_store_racy(spinning, promise_of(queue->seat_index, *now_ns));
    while (*now_ns < end_ns) {
        if (shmc_queue_busy(queue, *now_ns))
            return true; /* and comes (LINGER2) */
        for (unsigned i = 0; i < PAUSES; i++)
            shmc_pause();
        *now_ns = shmc_monotonic_ns();
    }
    return false;
}

void shmc_queue_waited(struct shmc_queue *queue, uint64_t waited_ns)
{
    shmc_store_racy(&queue->waited_ns, waited_ns);
}

/* ---- the reserve ------------------------------------------------------------------------------- */

/* How many keys others have taken since the last call, and in what time; how many wait. */
static uint64_t taken_meanwhile(struct shmc_queue *queue, uint64_t now_ns, uint64_t *elapsed_ns,
                                uint64_t *left)
{
    const uint64_t heads = shmc_lanes_taken(queue, left);
    const uint64_t gets = shmc_load_racy(&queue->seat->counters[COUNT_GETS]);
    const uint64_t all = heads - shmc_load_racy(&queue->looked_heads);
    const uint64_t own = gets - shmc_load_racy(&queue->looked_gets);

    *elapsed_ns = now_ns - shmc_load_racy(&queue->looked_ns);
    shmc_store_racy(&queue->looked_ns, now_ns);
    shmc_store_racy(&queue->looked_heads, heads);
    shmc_store_racy(&queue->looked_gets, gets);
    return all > own ? all - own : 0;
}

void shmc_queue_look(struct shmc_queue *queue)
{
    uint64_t elapsed_ns, left;

    (void)taken_meanwhile(queue, shmc_monotonic_ns(), &elapsed_ns, &left);
    shmc_store_racy(&queue->waited_ns, UINT64_MAX);
}

enum shmc_stand shmc_queue_stand(struct shmc_queue *queue, uint64_t now_ns)
{
    uint64_t elapsed_ns, left;
    const uint64_t taken = taken_meanwhile(queue, now_ns, &elapsed_ns, &left);

    if (taken < QUICK_LEAST || taken * (SHMC_STEP_NS / QUICK) < elapsed_ns ||
        young(&queue->header->coming, now_ns))
        return SHMC_SLEEPER;
    shmc_queue_promise(queue, queue->seat_index, now_ns);
    return SHMC_RESERVE;
}

enum shmc_stand shmc_queue_stand_again(struct shmc_queue *queue, uint64_t now_ns)
{
    uint64_t elapsed_ns, left;
    const uint64_t taken = taken_meanwhile(queue, now_ns, &elapsed_ns, &left);

    if (left > taken)
        return SHMC_NEEDED;
    if (taken < QUICK)
        return SHMC_SLEEPER;
    shmc_queue_promise(queue, queue->seat_index, now_ns);
    return SHMC_RESERVE;
}
