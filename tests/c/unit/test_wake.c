/*
 * A thread sleeps only while it has no news, and ends its sleep for
 * news, a time limit, a signal or shmc_wake_self() - never because another thread leaves.
 */
#include <signal.h>
#include <sys/wait.h>

#include "fake.h"

#define MS INT64_C(1000000)

static struct fake fake;
static struct shmc_reader *reader;

static void publish(uint64_t generation, unsigned resource)
{
    shmc_store_racy(&fake.super->activity[resource & 63u], generation);
    fake_publish(&fake, generation);
    shmc_seats_wake(&fake.seats, fake.seat_count, UINT64_C(1) << (resource & 63u), 0);
}

static uint32_t word(void)
{
    return shmc_load32_racy(&reader->seat->semaphore);
}

struct sleeper {
    pthread_t thread;
    uint64_t interest, seen;
    int64_t timeout_ns;
    enum shmc_status status;
    atomic_bool done;
};

static void *sleep_once(void *argument)
{
    struct sleeper *sleeper = argument;

    sleeper->status =
        shmc_wait(reader, sleeper->interest, sleeper->seen, sleeper->timeout_ns);
    atomic_store(&sleeper->done, true);
    return NULL;
}

static unsigned sleepers_now(void)
{
    pthread_mutex_lock(&reader->lock);
    const unsigned count = reader->sleepers;
    pthread_mutex_unlock(&reader->lock);
    return count;
}

/* Returns when the thread has announced its sleep; one with a short time limit may be up again. */
static void start(struct sleeper *sleeper, uint64_t interest, uint64_t seen, int64_t timeout_ns)
{
    const unsigned before = sleepers_now();

    *sleeper = (struct sleeper){.interest = interest, .seen = seen, .timeout_ns = timeout_ns};
    CHECK_EQUAL(0, pthread_create(&sleeper->thread, NULL, sleep_once, sleeper));
    AWAIT(atomic_load(&sleeper->done) ||
          (sleepers_now() == before + 1 && (word() & 1u) != 0 &&
           (shmc_load_racy(&reader->seat->interest) & interest) == interest));
}

static void *sleep_for_progress(void *argument)
{
    struct sleeper *sleeper = argument;

    sleeper->status = shmc_wait_progress(reader, 0, sleeper->interest, sleeper->seen, -1);
    atomic_store(&sleeper->done, true);
    return NULL;
}

static void start_progress(struct sleeper *sleeper, uint64_t progress, uint64_t seen)
{
    const unsigned before = sleepers_now();

    *sleeper = (struct sleeper){.interest = progress, .seen = seen};
    CHECK_EQUAL(0, pthread_create(&sleeper->thread, NULL, sleep_for_progress, sleeper));
    AWAIT(sleepers_now() == before + 1 && (word() & 1u) != 0 &&
          (shmc_load_racy(&reader->seat->progress) & progress) == progress);
}

static enum shmc_status finish(struct sleeper *sleeper)
{
    AWAIT(atomic_load(&sleeper->done));
    CHECK_EQUAL(0, pthread_join(sleeper->thread, NULL));
    return sleeper->status;
}

static void check_nobody_is_announced(void)
{
    CHECK_EQUAL(0, sleepers_now());
    CHECK_EQUAL(0, word() & 1u);
    CHECK_EQUAL(0, shmc_load_racy(&reader->seat->interest));
}

static void test_news_and_polls(void)
{
    const uint64_t latest = shmc_reader_latest(reader);

    publish(latest + 1, 3);
    CHECK_EQUAL(SHMC_OK, shmc_wait(reader, 1u << 3, latest, -1));
    CHECK_EQUAL(SHMC_OK, shmc_wait(reader, UINT64_MAX, latest, -1));
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(reader, 1u << 3, latest + 1, 0));
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(reader, 1u << 4, latest, 0));
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(reader, 1u << 4, latest, 2 * MS));
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(reader, 0, 0, 1));
    /* A writer that died before it published its begun batch: no news, and no spinning. */
    shmc_store_racy(&fake.super->activity[3], latest + 2);
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(reader, 1u << 3, latest + 1, 2 * MS));
    check_nobody_is_announced();
}

static void test_publication_wakes_whom_it_concerns(void)
{
    struct sleeper pods, nodes, all;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&pods, 1u << 5, latest, -1);
    start(&nodes, 1u << 6, latest, 30000 * MS);
    start(&all, UINT64_MAX, latest, INT64_MAX);
    publish(latest + 1, 5);
    CHECK_EQUAL(SHMC_OK, finish(&pods));
    CHECK_EQUAL(SHMC_OK, finish(&all));
    CHECK(!atomic_load(&nodes.done));
    AWAIT((word() & 1u) != 0); /* woken with the others, it announced itself again */
    CHECK((shmc_load_racy(&reader->seat->interest) & 1u << 6) != 0); /* kept though one left */
    publish(latest + 2, 6);
    CHECK_EQUAL(SHMC_OK, finish(&nodes));
    check_nobody_is_announced();
}

static void test_a_version_wakes_only_who_waits_for_it(void)
{
    struct sleeper version, objects;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&objects, 1u << 5, latest, -1);
    start_progress(&version, 1u << 5, latest);
    shmc_store_racy(&fake.super->progress[5], latest + 1);
    fake_publish(&fake, latest + 1);
    CHECK_EQUAL(0, shmc_seats_wake(&fake.seats, fake.seat_count, 0, 1u << 4));
    CHECK_EQUAL(1, shmc_seats_wake(&fake.seats, fake.seat_count, 0, 1u << 5));
    CHECK_EQUAL(SHMC_OK, finish(&version));
    AWAIT((word() & 1u) != 0);
    CHECK(!atomic_load(&objects.done));
    CHECK_EQUAL(SHMC_OK, shmc_wait_progress(reader, 0, 1u << 5, latest, -1)); /* there already */
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait_progress(reader, 0, 1u << 5, latest + 1, 0));
    publish(latest + 2, 5);
    CHECK_EQUAL(SHMC_OK, finish(&objects));
    check_nobody_is_announced();
    CHECK_EQUAL(0, shmc_load_racy(&reader->seat->progress));
}

static void test_wake_self_ends_every_sleep(void)
{
    struct sleeper sleepers[4];
    const uint64_t latest = shmc_reader_latest(reader);

    for (unsigned i = 0; i < 4; i++)
        start(&sleepers[i], 1u << 7, latest, -1);
    shmc_wake_self(reader);
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQUAL(SHMC_TIMEOUT, finish(&sleepers[i]));
    check_nobody_is_announced();
    shmc_wake_self(reader); /* no sleeper: nothing is left over */
    publish(latest + 1, 7);
    CHECK_EQUAL(SHMC_OK, shmc_wait(reader, 1u << 7, latest, -1));
}

static void test_one_timeout_does_not_wipe_the_other(void)
{
    struct sleeper brief, lasting;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&lasting, 1u << 8, latest, -1);
    start(&brief, 1u << 9, latest, 5 * MS);
    CHECK_EQUAL(SHMC_TIMEOUT, finish(&brief));
    CHECK_EQUAL(1, word() & 1u);
    publish(latest + 1, 8);
    CHECK_EQUAL(SHMC_OK, finish(&lasting));
    check_nobody_is_announced();
}

/* A word that changes without news: the thread announces itself again and sleeps on. */
static void test_spurious_wake_up_is_slept_through(void)
{
    struct sleeper sleeper;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&sleeper, 1u << 10, latest, -1);
    for (unsigned i = 0; i < 20; i++) {
        const uint32_t before = word();
        shmc_seats_wake_all(&fake.seats, fake.seat_count);
        AWAIT((word() & 1u) != 0);
        /* WAKE1: a thread about to sleep on the old number does not (mutant NO_POST_COUNT). */
        CHECK(word() != before);
        CHECK(!atomic_load(&sleeper.done));
    }
    publish(latest + 1, 10);
    CHECK_EQUAL(SHMC_OK, finish(&sleeper));
}

/*
 * The thread checked, found nothing, and is held up at the lock before it announces; a publication
 * at that moment is not posted to it. It must check again (WAKE3; mutant NO_RECHECK). If it is
 * slower than the publication it finds the news at once, which is right too.
 */
static void test_publication_before_the_announcement_is_seen(void)
{
    for (unsigned i = 0; i < 100; i++) {
        const uint64_t latest = shmc_reader_latest(reader);
        struct sleeper sleeper = {.interest = 1u << 14, .seen = latest, .timeout_ns = -1};

        pthread_mutex_lock(&reader->lock);
        CHECK_EQUAL(0, pthread_create(&sleeper.thread, NULL, sleep_once, &sleeper));
        for (unsigned yields = 0; yields < i; yields++)
            sched_yield();
        shmc_store_racy(&fake.super->activity[14], latest + 1);
        fake_publish(&fake, latest + 1);
        CHECK_EQUAL(0, shmc_seats_wake(&fake.seats, fake.seat_count, 1u << 14, 0));
        pthread_mutex_unlock(&reader->lock);
        CHECK_EQUAL(SHMC_OK, finish(&sleeper));
    }
}

/* A writer that was killed between changing the word and the system call. */
static void test_successor_wakes_who_was_not_posted(void)
{
    struct sleeper sleeper;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&sleeper, 1u << 11, latest, -1);
    shmc_store_racy(&fake.super->activity[11], latest + 1);
    fake_publish(&fake, latest + 1);
    shmc_fetch_add32(&reader->seat->semaphore, 1);
    CHECK_EQUAL(0, shmc_seats_wake(&fake.seats, fake.seat_count, UINT64_MAX, 0));
    shmc_seats_wake_all(&fake.seats, fake.seat_count);
    CHECK_EQUAL(SHMC_OK, finish(&sleeper));
}

static void on_signal(int number)
{
    (void)number;
}

static void test_signal_interrupts(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    struct sleeper sleeper;

    CHECK_EQUAL(0, sigaction(SIGUSR1, &action, NULL));
    start(&sleeper, 1u << 12, shmc_reader_latest(reader), -1);
    while (!atomic_load(&sleeper.done)) { /* it may not have entered the kernel yet */
        pthread_kill(sleeper.thread, SIGUSR1);
        sched_yield();
    }
    CHECK_EQUAL(SHMC_INTERRUPTED, finish(&sleeper));
    check_nobody_is_announced();
}

/* Returns whether the child rang; a sleeper that had not checked yet finds the news by itself. */
static bool rung_by_a_child(void)
{
    struct sleeper sleeper;
    struct shmc_segment seats;
    const uint64_t latest = shmc_reader_latest(reader);

    start(&sleeper, 1u << 13, latest, -1);
    shmc_store_racy(&fake.super->activity[13], latest + 1);
    fake_publish(&fake, latest + 1);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (shmc_segment_map(fake.seats.fd, fake.seats.max_size, 1, &seats) != SHMC_OK)
            _exit(2);
        _exit(shmc_seats_wake(&seats, fake.seat_count, 1u << 13, 0) == 1 ? 0 : 1);
    }
    int status = 0;
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, &status, 0));
    CHECK(status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 1));
    CHECK_EQUAL(SHMC_OK, finish(&sleeper));
    return status == 0;
}

/* From another process, over another mapping: the word must not be private to one. */
static void test_another_process_wakes(void)
{
    unsigned tries = 0;

    while (!rung_by_a_child())
        CHECK(++tries < 100);
}

static void test_without_a_seat(void)
{
    struct shmc_reader *tool;

    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&fake.data, NULL, &tool));
    CHECK_EQUAL(SHMC_INVALID, shmc_wait(tool, 1, 0, -1));
    shmc_wake_self(tool);
    shmc_reader_destroy(tool);
}

int main(void)
{
    test_start("test_wake");
    fake_create(&fake, 4);
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &reader));
    test_news_and_polls();
    test_publication_wakes_whom_it_concerns();
    test_a_version_wakes_only_who_waits_for_it();
    test_wake_self_ends_every_sleep();
    test_one_timeout_does_not_wipe_the_other();
    test_spurious_wake_up_is_slept_through();
    test_publication_before_the_announcement_is_seen();
    test_successor_wakes_who_was_not_posted();
    test_signal_interrupts(0);
    test_signal_interrupts(SA_RESTART);
    test_another_process_wakes();
    test_without_a_seat();
    fake_detach(reader);
    fake_destroy(&fake);
    return 0;
}
