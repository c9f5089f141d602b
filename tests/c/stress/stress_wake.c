/*
 * No wake-up is lost: a sleeper that waits for a resource sees every generation that changed it,
 * however publishing, falling asleep, posting, time limits and other threads interleave.
 *
 * One publisher goes in step with its sleepers: it publishes, and then waits until all affected
 * sleepers have seen it. So the next publication cannot repair a lost wake-up, which stops the
 * test, and the publisher reports the generation. Two sleepers share a seat with a third
 * thread that announces and times out all the time; two have seats of their own.
 *
 * Mutants, x86 with 2 cores. "n of 5": runs with STRESS_SECONDS=20 that lost a wake-up; then
 * the same with 2. Rounds until the loss are those of the long runs, in the phase that lost.
 *   NO_ANNOUNCE      5 of 5          0 or 1
 *   NO_RECHECK       5 of 5, 3 of 5  74,379 to 416,735
 *   NO_WRITER_FENCE  5 of 5, 1 of 5  46,847 to 372,357
 *   NO_POST_COUNT    4 of 5, 0 of 5  3,192 to 112,353
 *   NO_READER_FENCE  never: announcing ends with a locked instruction, and x86 takes that
 *                    for a full fence
 * So luck is needed here. test_wake.c caught NO_ANNOUNCE, NO_RECHECK and NO_POST_COUNT in 5 of 5
 * runs each; stress_pin.c is the better test of the fences.
 */
#include <sys/resource.h>

#include "fake.h"
#include "mutants.h"

#define SLEEPERS 4u
#define RESOURCES 2u
#define STUCK_NS UINT64_C(8000000000) /* less than a sleeper's own interval of checks */

struct sleeper {
    struct shmc_reader *reader;
    uint64_t interest;
    shmc_atomic seen;
    uint64_t blocked; /* times it left the processor voluntarily */
};

static struct fake fake;
static struct test_team team;
static struct sleeper sleepers[SLEEPERS];
static struct shmc_reader *flapper_reader;
static atomic_bool stop;
static uint64_t posted, rounds, idle_limit;
static uint64_t generation = 1;
static unsigned crew;
static atomic_uint_fast64_t flaps;

static void *run_sleeper(void *argument)
{
    struct sleeper *sleeper = argument;
    struct rusage usage;
    uint64_t seen = shmc_load_racy(&sleeper->seen);

    pthread_barrier_wait(&team.start);
    while (!atomic_load(&stop)) {
        CHECK_EQUAL(SHMC_OK, shmc_wait(sleeper->reader, sleeper->interest, seen, -1));
        seen = shmc_reader_latest(sleeper->reader);
        shmc_store_release(&sleeper->seen, seen);
    }
    CHECK_EQUAL(0, getrusage(RUSAGE_THREAD, &usage));
    sleeper->blocked = (uint64_t)usage.ru_nvcsw;
    return NULL;
}

static void *run_flapper(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&team.start);
    while (!atomic_load(&stop)) {
        CHECK_EQUAL(SHMC_TIMEOUT, shmc_wait(flapper_reader, UINT64_C(1) << 40, 0, 1));
        atomic_fetch_add(&flaps, 1);
    }
    return NULL;
}

static void publish(uint64_t next, uint64_t interest)
{
    fake_root(fake.super, next);
    for (uint64_t left = interest; left != 0; left &= left - 1)
        shmc_store_racy(&fake.super->activity[__builtin_ctzll(left)], next);
    shmc_store_release(&fake.super->latest, next);       /* WAKE6 of wake.c */
    SHMC_UNLESS(NO_WRITER_FENCE, shmc_fence_full());     /* WAKE5 of wake.c */
    posted += shmc_seats_wake(&fake.seats, fake.seat_count, interest, 0);
}

static void await_sleeper(struct sleeper *sleeper, uint64_t published)
{
    uint64_t deadline = 0;

    for (unsigned spins = 0; shmc_load_acquire(&sleeper->seen) < published; spins++) {
        if (spins < 4000)
            continue;
        if (deadline == 0)
            deadline = test_now_ns() + STUCK_NS;
        if (test_now_ns() > deadline) {
            printf("lost wake-up after %" PRIu64 " rounds\n", rounds);
            test_fail(__FILE__, __LINE__, "every sleeper saw the generation");
        }
        sched_yield();
    }
}

/* Spins for a moment that is never quite the same, so that the sides meet at every point. */
static void dawdle(uint64_t *random)
{
    for (uint64_t idle = test_random(random) % idle_limit; idle > 0; idle--)
        atomic_signal_fence(memory_order_seq_cst);
}

static void *run_publisher(void *argument)
{
    const uint64_t end = test_now_ns() + test_stress_ns() / 2;
    uint64_t random = test_random_state(idle_limit);

    (void)argument;
    pthread_barrier_wait(&team.start);
    for (rounds = 0; (rounds & 63) != 0 || test_now_ns() < end; rounds++) {
        const uint64_t interest = UINT64_C(1) << test_random(&random) % RESOURCES;
        publish(++generation, interest);
        for (unsigned i = 0; i < crew; i++) {
            if ((sleepers[i].interest & interest) != 0)
                await_sleeper(&sleepers[i], generation);
        }
        dawdle(&random);
    }
    atomic_store(&stop, true);
    publish(++generation, (1u << RESOURCES) - 1);
    for (unsigned i = 0; i < crew; i++) /* each saw the last one */
        await_sleeper(&sleepers[i], generation);
    return NULL;
}

static struct sleeper awake(struct shmc_reader *reader, uint64_t interest)
{
    return (struct sleeper){.reader = reader, .interest = interest, .seen = generation};
}

static void run_crew(unsigned count, bool flapping)
{
    pthread_t publisher, flapper;

    crew = count;
    posted = 0;
    atomic_store(&flaps, 0);
    atomic_store(&stop, false);
    CHECK_EQUAL(0, pthread_barrier_init(&team.start, NULL, count + 1 + flapping));
    CHECK_EQUAL(0, pthread_create(&publisher, NULL, run_publisher, NULL));
    if (flapping)
        CHECK_EQUAL(0, pthread_create(&flapper, NULL, run_flapper, NULL));
    for (team.count = 0; team.count < count; team.count++)
        CHECK_EQUAL(0, pthread_create(&team.threads[team.count], NULL, run_sleeper,
                                      &sleepers[team.count]));
    CHECK_EQUAL(0, pthread_join(publisher, NULL));
    if (flapping)
        CHECK_EQUAL(0, pthread_join(flapper, NULL));
    test_team_join(&team);

    uint64_t blocked = 0;
    for (unsigned i = 0; i < count; i++) {
        CHECK(sleepers[i].blocked > 0); /* or the test proved nothing */
        blocked += sleepers[i].blocked;
    }
    CHECK(posted > 0);
    CHECK_EQUAL(flapping, atomic_load(&flaps) > 0);
    printf("%u sleepers: %" PRIu64 " rounds, %" PRIu64 " posts, %" PRIu64 " sleeps, %" PRIu64
           " flaps\n", count, rounds, posted, blocked, atomic_load(&flaps));
}

int main(void)
{
    struct shmc_reader *readers[3];

    test_start("stress_wake");
    fake_create(&fake, 8);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &readers[i]));
    /* A duel on the first seat: only the two fences separate the two. */
    idle_limit = 256;
    sleepers[0] = awake(readers[0], 3);
    run_crew(1, false);
    /* A crowd. */
    idle_limit = 64;
    flapper_reader = readers[0];
    sleepers[0] = awake(readers[0], 1);
    sleepers[1] = awake(readers[0], 2);
    sleepers[2] = awake(readers[1], UINT64_MAX);
    sleepers[3] = awake(readers[2], 3);
    run_crew(SLEEPERS, true);
    for (unsigned i = 0; i < 3; i++)
        fake_detach(readers[i]);
    fake_destroy(&fake);
    return 0;
}
