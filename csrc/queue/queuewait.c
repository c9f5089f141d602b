/*
 * queuewait.c - sleeping until there is a key, and waking one worker for one key.
 *
 * A row of lamps, one for each seat. Before it sleeps a worker lights its lamp, looks once more
 * for a ticket, and sleeps on its bell. An adder of a key puts out any one lamp, and rings that
 * bell: so one worker wakes for one key, and with all lamps out nobody is rung.
 *
 * Invariants
 *   QWAIT1  a seat's lamp is lit while threads of its process sleep, except between being put out
 *       by a post and the end of the sleep that the post ends; then it is lit again if others
 *       sleep.
 *   QWAIT2  a bell only counts up; a thread sleeps on the number that it read before it looked.
 *   QWAIT3  a taker of a key looks whether tickets are left and lamps are lit, and passes one ring
 *       on: a post whose receiver found another key, or died, is not the last one.
 *   QWAIT9  while somebody has promised to look, nobody is rung (queuelinger.c). A worker that
 *       leaves without a look withdraws the promise and passes the ring on.
 *   QWAIT4  at most one sleeping thread of all processes, the keeper, wakes when the next key is
 *       due; without one nobody would, so a thread that stops being the keeper passes that on.
 *   QWAIT5  nobody sleeps for longer than a tick without looking after the dead (queuesweep.c).
 *       A key whose post, lamp or keeper died is late by a tick, not lost.
 *   QWAIT6  an adder without room lights `crowd` before it tries once more; a worker that makes
 *       room puts it out and rings.
 *
 * Ordering
 *   QWAIT7  ticket ▸ full fence ▸ lamps  <->  lamp ▸ full fence ▸ tickets (QUEUE10). One sees the other.
 *   QWAIT8  the same for stop, shutdown and the next due time, each stored before the bells ring.
 *       A thread that expected a later due time does not sleep on it.
 *
 * The lock is private to the process, held for a few instructions, never while sleeping.
 */
#include <limits.h>

#include "queue/queue.h"

#define TICK_NS UINT64_C(500000000) /* half of what WorkQueue.get() waits at a time */

/* ---- lamps ------------------------------------------------------------------------------------- */

static shmc_atomic *lamps_of(const struct shmc_queue *queue, uint64_t seat)
{
    return &queue->header->sleeping[seat / 64];
}

static bool put_out(struct shmc_queue *queue, uint64_t seat)
{
    shmc_atomic *lamps = lamps_of(queue, seat);
    const uint64_t bit = UINT64_C(1) << seat % 64;

    for (;;) {
        const uint64_t lit = shmc_load_racy(lamps);
        if ((lit & bit) == 0)
            return false;
        if (shmc_cas(lamps, lit, lit & ~bit))
            return true;
    }
}

static void light(struct shmc_queue *queue)
{
    shmc_atomic *lamps = lamps_of(queue, queue->seat_index);
    const uint64_t bit = UINT64_C(1) << queue->seat_index % 64;

    for (;;) {
        const uint64_t lit = shmc_load_racy(lamps);
        if (shmc_cas(lamps, lit, lit | bit))
            return;
    }
}

void shmc_queue_unsleep(struct shmc_queue *queue, uint64_t seat)
{
    (void)put_out(queue, seat);
}

static uint64_t words(const struct shmc_queue *queue)
{
    return (queue->seat_count + 63) / 64;
}

static bool find_lit(const struct shmc_queue *queue, uint64_t *seat)
{
    for (uint64_t i = 0; i < words(queue); i++) {
        const uint64_t lit = shmc_load_racy(&queue->header->sleeping[i]);
        if (lit != 0) {
            *seat = i * 64 + (uint64_t)__builtin_ctzll(lit);
            return true;
        }
    }
    return false;
}

static void ring(struct shmc_queue *queue, uint64_t seat, int threads)
{
    shmc_fetch_add32(&queue->seats[seat].bell, 1); /* QWAIT2 */
    shmc_futex_wake(&queue->seats[seat].bell, threads);
}

void shmc_queue_post(struct shmc_queue *queue)
{
    uint64_t seat;

    if (!find_lit(queue, &seat))
        return;
    const uint64_t now_ns = shmc_monotonic_ns();
    if (shmc_queue_promised(queue, now_ns)) /* QWAIT9 */
        return;
    /* From the first one on, each time: LINGER5. The bound is for vandals that light lamps. */
    for (uint64_t tries = 0; tries <= queue->seat_count && find_lit(queue, &seat); tries++) {
        shmc_queue_promise(queue, seat, now_ns);
        if (put_out(queue, seat) && seat < queue->seat_count) {
            ring(queue, seat, 1);
            shmc_queue_count(queue, COUNT_POSTS, 1);
            return;
        }
        SHMC_UNLESS(NO_REVOCATION, shmc_queue_revoke(queue)); /* it got up by itself, or was rung */
    }
}

static void ring_all(struct shmc_queue *queue)
{
    shmc_fence_full(); /* QWAIT8 */
    for (uint64_t seat = 0; seat < queue->seat_count; seat++)
        ring(queue, seat, INT_MAX);
}

void shmc_queue_pass_on(struct shmc_queue *queue)
{
    const struct shmc_queue_header *header = queue->header;
    uint64_t seat;

    if (!find_lit(queue, &seat))
        return;
    if (!shmc_lanes_empty(queue) || (shmc_load_racy(&header->keeper) == 0 &&
                                     shmc_load_racy(&header->next_due) != DUE_NEVER))
        shmc_queue_post(queue); /* QWAIT3, QWAIT4 */
}

void shmc_queue_depart(struct shmc_queue *queue)
{
    shmc_queue_come(queue); /* QWAIT9 */
    shmc_queue_pass_on(queue);
}

/* ---- sleeping ------------------------------------------------------------------------------------ */

void shmc_queue_earlier(struct shmc_queue *queue)
{
    const uint64_t keeper = shmc_load_acquire(&queue->header->keeper);

    if (keeper != 0 && keeper <= queue->seat_count)
        ring(queue, keeper - 1, INT_MAX); /* it sleeps for too long now */
    else
        shmc_queue_post(queue);
}

static uint32_t enter(struct shmc_queue *queue, uint64_t due, uint64_t now_ns, uint64_t *until_ns)
{
    uint64_t wake = now_ns + TICK_NS;

    pthread_mutex_lock(&queue->lock);
    queue->sleepers++;
    const uint32_t number = shmc_load32_racy(&queue->seat->bell); /* QWAIT2 */
    SHMC_UNLESS(NO_LAMP, light(queue));
    if (due != DUE_NEVER && !queue->keeping) { /* QWAIT4 */
        queue->keeping = shmc_cas(&queue->header->keeper, 0, queue->seat_index + 1);
        if (queue->keeping) {
            queue->keeper = pthread_self();
            wake = due < wake ? due : wake;
        }
    }
    pthread_mutex_unlock(&queue->lock);
    if (wake < *until_ns)
        *until_ns = wake;
    return number;
}

static void leave(struct shmc_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->keeping && pthread_equal(queue->keeper, pthread_self())) {
        queue->keeping = false;
        (void)shmc_cas(&queue->header->keeper, queue->seat_index + 1, 0);
    }
    if (--queue->sleepers == 0)
        (void)put_out(queue, queue->seat_index);
    else
        light(queue); /* QWAIT1 */
    pthread_mutex_unlock(&queue->lock);
}

/* Whether there is something to do rather than sleep, keys apart. */
static bool called(const struct shmc_queue *queue, uint64_t now_ns)
{
    const struct shmc_queue_header *header = queue->header;

    return shmc_load_racy(&queue->stopped) != 0 || shmc_queue_shut(queue) ||
           shmc_load_racy(&header->missing) != 0 || shmc_load_racy(&header->next_due) <= now_ns;
}

bool shmc_queue_busy(const struct shmc_queue *queue, uint64_t now_ns)
{
    return (SHMC_KEEP_NO_QUEUE_RECHECK && !shmc_lanes_empty(queue)) || called(queue, now_ns);
}

/* One sleep; of the reserve, which leaves tickets to others for a step, one step. */
static enum shmc_status doze(struct shmc_queue *queue, bool reserve, uint64_t now_ns,
                             uint64_t until_ns)
{
    const uint64_t due = shmc_load_acquire(&queue->header->next_due);
    const uint32_t number = enter(queue, due, now_ns, &until_ns);
    enum shmc_status status = SHMC_OK;

    if (!reserve)
        SHMC_UNLESS(NO_WITHDRAWAL, shmc_queue_come(queue)); /* LINGER2 */
    shmc_fence_full();              /* QWAIT7, QWAIT8 */
    if (SHMC_CHECKED(NO_DUE_RECHECK, shmc_load_racy(&queue->header->next_due) >= due) && /* QWAIT8 */
        !(reserve ? called(queue, now_ns) : shmc_queue_busy(queue, now_ns)))
        status = shmc_futex_wait(&queue->seat->bell, number, until_ns);
    leave(queue);
    return status;
}

static enum shmc_status sleep_well(struct shmc_queue *queue, uint64_t now_ns, uint64_t deadline_ns)
{
    enum shmc_stand stand = shmc_queue_stand(queue, now_ns);
    enum shmc_status status;

    while (stand == SHMC_RESERVE) {
        const uint64_t step_ns = now_ns + SHMC_STEP_NS;
        status = doze(queue, true, now_ns, step_ns < deadline_ns ? step_ns : deadline_ns);
        now_ns = shmc_monotonic_ns();
        if (status != SHMC_TIMEOUT || now_ns >= deadline_ns || called(queue, now_ns))
            stand = SHMC_NEEDED;
        else
            stand = shmc_queue_stand_again(queue, now_ns);
        if (stand == SHMC_NEEDED)
            return status == SHMC_TIMEOUT && now_ns < deadline_ns ? SHMC_OK : status;
    }
    return doze(queue, false, now_ns, deadline_ns);
}

enum shmc_status shmc_queue_wait(struct shmc_queue *queue, uint64_t deadline_ns)
{
    const uint64_t began_ns = shmc_monotonic_ns();
    uint64_t now_ns = began_ns;

    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (now_ns >= deadline_ns)
        return SHMC_TIMEOUT;
    enum shmc_status status = SHMC_OK;
    if (!shmc_queue_spin(queue, &now_ns, deadline_ns))
        status = sleep_well(queue, now_ns, deadline_ns);
    now_ns = shmc_monotonic_ns();
    shmc_queue_waited(queue, now_ns - began_ns);
    if (status == SHMC_OK)
        return status;
    shmc_queue_come(queue); /* QWAIT9 */
    if (status == SHMC_TIMEOUT && (now_ns < deadline_ns || shmc_queue_busy(queue, now_ns)))
        return SHMC_OK;
    shmc_queue_pass_on(queue);
    return status;
}

/* ---- room, and the end --------------------------------------------------------------------------- */

void shmc_queue_room(struct shmc_queue *queue)
{
    struct shmc_queue_header *header = queue->header;

    if (shmc_load32_racy(&header->crowd) == 0 || shmc_exchange32(&header->crowd, 0) == 0)
        return;
    shmc_fetch_add32(&header->room, 1); /* QWAIT6 */
    shmc_futex_wake(&header->room, INT_MAX);
}

uint32_t shmc_queue_crowd(struct shmc_queue *queue)
{
    const uint32_t number = shmc_load32_racy(&queue->header->room);

    shmc_exchange32(&queue->header->crowd, 1); /* QWAIT6 */
    return number;
}

enum shmc_status shmc_queue_wait_room(struct shmc_queue *queue, uint32_t number,
                                      uint64_t deadline_ns)
{
    const uint64_t now_ns = shmc_monotonic_ns();
    const uint64_t tick_ns = now_ns + TICK_NS; /* QWAIT5 */

    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (now_ns >= deadline_ns)
        return SHMC_TIMEOUT;
    shmc_queue_sweep(queue, now_ns);
    const enum shmc_status status = shmc_futex_wait(
        &queue->header->room, number, tick_ns < deadline_ns ? tick_ns : deadline_ns);
    return status == SHMC_TIMEOUT && tick_ns < deadline_ns ? SHMC_OK : status;
}

static void ring_quiet(struct shmc_queue *queue)
{
    shmc_fetch_add32(&queue->header->quiet, 1);
    shmc_futex_wake(&queue->header->quiet, INT_MAX);
}

void shmc_queue_finished(struct shmc_queue *queue)
{
    if (shmc_queue_draining(queue))
        ring_quiet(queue);
}

void shmc_queue_shut_down(struct shmc_queue *queue, int drain)
{
    if (shmc_queue_forked(queue))
        return;
    shmc_store_release(&queue->header->shutdown, shmc_queue_shut_word(queue, drain != 0));
    ring_all(queue);
    ring_quiet(queue);
    shmc_exchange32(&queue->header->crowd, 1);
    shmc_queue_room(queue);
}

int shmc_queue_shutting_down(const struct shmc_queue *queue)
{
    return shmc_queue_shut(queue);
}

void shmc_queue_stop(struct shmc_queue *queue)
{
    if (shmc_queue_forked(queue))
        return;
    shmc_store_release(&queue->stopped, 1);
    shmc_fence_full(); /* QWAIT8 */
    ring(queue, queue->seat_index, INT_MAX);
}

enum shmc_status shmc_queue_drained(struct shmc_queue *queue, uint64_t deadline_ns)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    const uint32_t number = shmc_load32_racy(&queue->header->quiet);
    const uint64_t now_ns = shmc_monotonic_ns();
    const uint64_t tick_ns = now_ns + TICK_NS;
    shmc_fence_full(); /* the number before the keys */
    shmc_queue_sweep(queue, now_ns);
    if (!shmc_queue_draining(queue) || shmc_queue_held(queue) == 0)
        return SHMC_OK;
    if (now_ns >= deadline_ns)
        return SHMC_TIMEOUT;
    const enum shmc_status status = shmc_futex_wait(
        &queue->header->quiet, number, tick_ns < deadline_ns ? tick_ns : deadline_ns);
    return status == SHMC_INTERRUPTED ? status : SHMC_EMPTY;
}
