/*
 * harness.h - shared by all C tests: checks, a seed, a clock, threads that start together.
 *
 * Exit code 0: passed, 1: failed, 77: cannot be tested here. SEED=n repeats a run.
 */
#ifndef SHMC_TEST_HARNESS_H
#define SHMC_TEST_HARNESS_H

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static uint64_t test_seed;

#define CHECK(fact)                                                                               \
    do {                                                                                          \
        if (!(fact))                                                                              \
            test_fail(__FILE__, __LINE__, #fact);                                                 \
    } while (0)

#define CHECK_EQUAL(expected, actual)                                                             \
    test_equal(__FILE__, __LINE__, #actual, (uint64_t)(expected), (uint64_t)(actual))

static inline _Noreturn void test_fail(const char *file, int line, const char *fact)
{
    fprintf(stderr, "%s:%d: not true: %s (SEED=%" PRIu64 ")\n", file, line, fact, test_seed);
    fflush(NULL);
    _exit(1);
}

static inline void test_equal(const char *file, int line, const char *what, uint64_t expected,
                              uint64_t actual)
{
    if (expected == actual)
        return;
    fprintf(stderr, "%s:%d: %s is %" PRIu64 ", expected %" PRIu64 " (SEED=%" PRIu64 ")\n", file,
            line, what, actual, expected, test_seed);
    fflush(NULL);
    _exit(1);
}

static inline _Noreturn void test_skip(const char *why)
{
    printf("skipped: %s\n", why);
    exit(77);
}

static inline uint64_t test_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Takes the seed from SEED, or from the clock, and prints it. */
static inline void test_start(const char *name)
{
    const char *given = getenv("SEED");

    test_seed = given != NULL ? strtoull(given, NULL, 10) : test_now_ns() % 1000000007u;
    printf("%s SEED=%" PRIu64 "\n", name, test_seed);
    fflush(stdout);
}

/* xorshift64*: no lock inside that could hide a race. One state per thread. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

static inline uint64_t test_random_state(uint64_t stream)
{
    uint64_t state = (test_seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (stream + 1) << 32;

    if (state == 0)
        state = 1;
    test_random(&state);
    return state;
}

/* How long a stress test runs: STRESS_SECONDS, or two. */
static inline uint64_t test_stress_ns(void)
{
    const char *given = getenv("STRESS_SECONDS");

    return UINT64_C(1000000000) * (given != NULL ? strtoull(given, NULL, 10) : 2);
}

/* Waits until a fact holds; a test that would hang fails after a minute instead. */
#define AWAIT(fact)                                                                               \
    do {                                                                                          \
        const uint64_t test_deadline = test_now_ns() + UINT64_C(60000000000);                     \
        while (!(fact)) {                                                                         \
            if (test_now_ns() > test_deadline)                                                    \
                test_fail(__FILE__, __LINE__, "in time: " #fact);                                 \
            sched_yield();                                                                        \
        }                                                                                         \
    } while (0)

/* Threads that start together. */
#define TEST_THREADS 64
struct test_team {
    pthread_t threads[TEST_THREADS];
    pthread_barrier_t start; /* each body waits here first */
    unsigned count;
};

static inline void test_team_start(struct test_team *team, unsigned count, void *(*body)(void *),
                                   void *const arguments[])
{
    team->count = count;
    CHECK(count > 0 && count <= TEST_THREADS);
    CHECK_EQUAL(0, pthread_barrier_init(&team->start, NULL, count));
    for (unsigned i = 0; i < count; i++)
        CHECK_EQUAL(0, pthread_create(&team->threads[i], NULL, body, arguments[i]));
}

static inline void test_team_join(struct test_team *team)
{
    for (unsigned i = 0; i < team->count; i++)
        CHECK_EQUAL(0, pthread_join(team->threads[i], NULL));
    pthread_barrier_destroy(&team->start);
}

#endif
