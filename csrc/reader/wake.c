/*
 * wake.c - sleeping until a publication, and waking sleepers.
 *
 * A doorbell with a counter. A reader that wants to sleep switches the bell on (bit 0 of the
 * seat's word), notes the number that it shows, checks once more for news, and then sleeps while
 * the number stays. The writer, after publishing, rings only bells that are on: ringing counts up,
 * which switches the bell off. Several threads of a process share one bell. Because the number
 * never comes back, a ring between a thread's check and its sleep is not lost, even if
 * another thread switches the bell on again meanwhile (a word that goes back to "on" would
 * swallow it).
 *
 * Invariants
 *   WAKE1  while a seat has an owner its word only counts up (modulo 2^32); any change ends
 *       every sleep on it.
 *   WAKE2  interest covers every thread that announced itself and did not leave.
 *   WAKE3  a thread sleeps only after it announced and then saw nothing new.
 *   WAKE4  a thread that returns from sleep announces itself again before the next sleep: a ring
 *       for one thread switches the bell off for all.
 *   WAKE8  if the page of the word is removed between the announcement and the sleep, the word is
 *       touched, which brings a page back (process.c), and the sleep is over: the kernel only
 *       reports the missing page.
 *
 * Ordering
 *   WAKE5  announcement before checking:  full fence in await <-> full fence between a
 *       publication and shmc_seats_wake(). One of the two sees the other.
 *   WAKE6  activity before latest:        release of latest by the writer -> acquire in
 *       has_news().
 *   WAKE7  shmc_wake_self() counts, then posts: full fence there <-> full fence in await.
 *
 * Progress: posting never waits. A writer that dies between publishing and posting
 * leaves sleepers asleep: the process that takes its segments over must ring every bell
 * (shmc_seats_wake_all), and a reader that cannot rely on that bounds its waits.
 *
 * The lock is held for a few instructions, never while sleeping.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "mutants.h"

#define SECOND_NS UINT64_C(1000000000)
/* For ever. With a deadline a signal always ends the wait; without one the kernel would
 * restart it even though a handler ran that was installed with SA_RESTART. */
#define FOREVER_NS (UINT64_C(1) << 62)
/* Any process may spoil a bell: a sleeper announces itself and checks again after this time. */
#define LOOK_NS (10 * SECOND_NS)

uint64_t shmc_monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

enum shmc_status shmc_futex_wait(shmc_atomic32 *word, uint32_t expected, uint64_t deadline_ns)
{
    const struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / SECOND_NS),
        .tv_nsec = (long)(deadline_ns % SECOND_NS),
    };

    /* Not FUTEX_PRIVATE: the writer is another process. The clock is the monotonic one. */
    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &deadline, NULL,
                FUTEX_BITSET_MATCH_ANY) == 0 ||
        errno == EAGAIN)
        return SHMC_OK;
    if (errno == ETIMEDOUT)
        return SHMC_TIMEOUT;
    if (errno == EFAULT) { /* WAKE8: with a page again, the sleeper checks once more */
        (void)shmc_load32_racy(word);
        return SHMC_OK;
    }
    return errno == EINTR ? SHMC_INTERRUPTED : SHMC_SYSTEM;
}

void shmc_futex_wake(shmc_atomic32 *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE, threads, NULL, NULL, 0);
}

void shmc_post(shmc_atomic32 *semaphore)
{
    if (shmc_load32_racy(semaphore) & 1u) {
        if (SHMC_KEEP_NO_POST_COUNT)
            shmc_fetch_add32(semaphore, 1); /* WAKE1; two at once leave it on: one vain post */
        else
            shmc_exchange32(semaphore, 0);
    }
    shmc_futex_wake(semaphore, INT_MAX);
}

/*
 * Whether a generation after `seen` made a relevant change. An activity word may already
 * name a generation that is not published yet; then either latest has not moved and the result
 * is no, or it has, and the result is yes once too often.
 */
static bool any_after(const shmc_atomic generations[SHMC_ACTIVITY], uint64_t wanted, uint64_t seen)
{
    for (uint64_t left = wanted; left != 0; left &= left - 1) {
        if (shmc_load_racy(&generations[__builtin_ctzll(left)]) > seen)
            return true;
    }
    return false;
}

static bool has_news(const struct shmc_super *super, struct shmc_wanted wanted, uint64_t seen)
{
    if (shmc_load_acquire(&super->latest) <= seen) /* WAKE6 */
        return false;
    return any_after(super->activity, wanted.interest, seen) ||
           any_after(super->progress, wanted.progress, seen);
}

static bool stopped(struct shmc_wanted wanted)
{
    return wanted.stop != NULL && shmc_load_racy(wanted.stop) != 0;
}

/* Switches the bell on; returns the number to sleep on. */
static uint32_t announce(struct shmc_reader *reader, struct shmc_wanted wanted)
{
    struct shmc_seat *seat = reader->seat;

    pthread_mutex_lock(&reader->lock);
    shmc_store_racy(&seat->interest, shmc_load_racy(&seat->interest) | wanted.interest); /* WAKE2 */
    shmc_store_racy(&seat->progress, shmc_load_racy(&seat->progress) | wanted.progress);
    uint32_t number = shmc_load32_racy(&seat->semaphore);
    SHMC_UNLESS(NO_ANNOUNCE, number = shmc_fetch_or32(&seat->semaphore, 1) | 1u);
    pthread_mutex_unlock(&reader->lock);
    return number;
}

static void enter(struct shmc_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    reader->sleepers++;
    pthread_mutex_unlock(&reader->lock);
}

static void leave(struct shmc_reader *reader)
{
    struct shmc_seat *seat = reader->seat;

    pthread_mutex_lock(&reader->lock);
    assert(reader->sleepers > 0);
    if (--reader->sleepers == 0) { /* WAKE2: the announcements of others stay */
        shmc_store_racy(&seat->interest, 0);
        shmc_store_racy(&seat->progress, 0);
        if (shmc_load32_racy(&seat->semaphore) & 1u)
            shmc_fetch_add32(&seat->semaphore, 1); /* WAKE1 */
    }
    pthread_mutex_unlock(&reader->lock);
}

static enum shmc_status await(struct shmc_reader *reader, struct shmc_wanted wanted, uint64_t seen,
                              uint64_t wakes, uint64_t deadline_ns)
{
    for (;;) {
        const uint32_t number = announce(reader, wanted); /* WAKE4 */
        SHMC_UNLESS(NO_READER_FENCE, shmc_fence_full());    /* WAKE5, WAKE7 */
        if (SHMC_KEEP_NO_RECHECK && has_news(reader->super, wanted, seen)) /* WAKE3 */
            return SHMC_OK;
        if (shmc_load_racy(&reader->super->over) != 0) /* as END1 of end.c */
            return SHMC_OVER;
        if (shmc_load_racy(&reader->wakes) != wakes || stopped(wanted)) /* WAKE7 */
            return SHMC_TIMEOUT;
        const uint64_t look_ns = shmc_monotonic_ns() + LOOK_NS;
        const uint64_t until_ns = look_ns < deadline_ns ? look_ns : deadline_ns;
        const enum shmc_status status =
            shmc_futex_wait(&reader->seat->semaphore, number, until_ns);
        if (status == SHMC_INTERRUPTED || status == SHMC_SYSTEM)
            return status;
        if (has_news(reader->super, wanted, seen))
            return SHMC_OK;
        if (status == SHMC_TIMEOUT && until_ns == deadline_ns)
            return status;
    }
}

enum shmc_status shmc_wait(struct shmc_reader *reader, uint64_t interest, uint64_t seen,
                           int64_t timeout_ns)
{
    return shmc_wait_progress(reader, interest, 0, seen, timeout_ns);
}

enum shmc_status shmc_wait_progress(struct shmc_reader *reader, uint64_t interest,
                                    uint64_t progress, uint64_t seen, int64_t timeout_ns)
{
    return shmc_wait_unless(reader, interest, progress, seen, shmc_reader_wakes(reader),
                            timeout_ns);
}

uint64_t shmc_reader_wakes(const struct shmc_reader *reader)
{
    return shmc_load_acquire(&reader->wakes);
}

enum shmc_status shmc_wait_unless(struct shmc_reader *reader, uint64_t interest, uint64_t progress,
                                  uint64_t seen, uint64_t wakes, int64_t timeout_ns)
{
    const struct shmc_wanted wanted = {.interest = interest, .progress = progress};

    return shmc_wait_wanted(reader, &wanted, seen, wakes, timeout_ns);
}

enum shmc_status shmc_wait_wanted(struct shmc_reader *reader, const struct shmc_wanted *wanted,
                                  uint64_t seen, uint64_t wakes, int64_t timeout_ns)
{
    uint64_t deadline_ns = FOREVER_NS;

    if (shmc_reader_forked(reader))
        return SHMC_FORKED;
    if (reader->seat == NULL)
        return SHMC_INVALID;
    if (has_news(reader->super, *wanted, seen))
        return SHMC_OK;
    if (shmc_reader_over(reader))
        return SHMC_OVER;
    if (timeout_ns == 0)
        return SHMC_TIMEOUT;
    if (timeout_ns > 0 && (uint64_t)timeout_ns < FOREVER_NS / 2)
        deadline_ns = shmc_monotonic_ns() + (uint64_t)timeout_ns;
    enter(reader);
    const enum shmc_status status = await(reader, *wanted, seen, wakes, deadline_ns);
    leave(reader);
    return status;
}

/* Takes no lock: may be called from a signal handler. */
void shmc_wake_self(struct shmc_reader *reader)
{
    if (shmc_reader_forked(reader) || reader->seat == NULL)
        return;
    shmc_fetch_add(&reader->wakes, 1);
    shmc_fence_full(); /* WAKE7 */
    shmc_post(&reader->seat->semaphore);
}
