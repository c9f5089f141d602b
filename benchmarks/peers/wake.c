/*
 * wake.c - the limit for waking processes: one process-shared sem_t per sleeper, nothing else.
 *
 * The parent waits until every sleeper has had time to fall asleep, notes the time, posts once
 * per sleeper; a sleeper notes the time as its first act. Prints one line of nanoseconds per
 * sleeper: post to run, and one line of what the posts of a round cost the parent.
 *
 *     wake SLEEPERS ROUNDS GAP_US
 */
#define _GNU_SOURCE
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPERS_MAX = 64, ROUNDS_MAX = 100000 };

struct sleeper {
    _Alignas(128) sem_t wake;
    _Atomic uint64_t rounds; /* how often it has run */
    int64_t took_ns[ROUNDS_MAX];
};

struct shared {
    _Atomic int64_t posted_ns; /* when the current round's posts began */
    int64_t cost_ns[ROUNDS_MAX];
    struct sleeper sleepers[SLEEPERS_MAX];
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_us(long us)
{
    struct timespec gap = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&gap, NULL);
}

static void sleeper_main(struct shared *shared, struct sleeper *me, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        while (sem_wait(&me->wake) != 0)
            continue;
        me->took_ns[round] = now_ns() - atomic_load(&shared->posted_ns);
        atomic_fetch_add(&me->rounds, 1);
    }
    _exit(0);
}

static void post_all(struct shared *shared, long sleepers, long round)
{
    const int64_t start = now_ns();

    atomic_store(&shared->posted_ns, start);
    for (long index = 0; index < sleepers; index++)
        sem_post(&shared->sleepers[index].wake);
    shared->cost_ns[round] = now_ns() - start;
}

static void print_line(const int64_t *values, long count)
{
    for (long index = 0; index < count; index++)
        printf("%s%lld", index == 0 ? "" : " ", (long long)values[index]);
    putchar('\n');
}

int main(int argc, char **argv)
{
    const long sleepers = argc > 3 ? atol(argv[1]) : 0;
    const long rounds = argc > 3 ? atol(argv[2]) : 0;
    const long gap_us = argc > 3 ? atol(argv[3]) : 0;
    struct shared *shared;

    if (sleepers < 1 || sleepers > SLEEPERS_MAX || rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (long index = 0; index < sleepers; index++) {
        if (sem_init(&shared->sleepers[index].wake, 1, 0) != 0)
            return 1;
        if (fork() == 0)
            sleeper_main(shared, &shared->sleepers[index], rounds);
    }
    for (long round = 0; round < rounds; round++) {
        for (long index = 0; index < sleepers; index++)
            while (atomic_load(&shared->sleepers[index].rounds) < (uint64_t)round)
                pause_us(50);
        pause_us(gap_us);
        post_all(shared, sleepers, round);
    }
    while (wait(NULL) > 0)
        continue;
    for (long index = 0; index < sleepers; index++)
        print_line(shared->sleepers[index].took_ns, rounds);
    print_line(shared->cost_ns, rounds);
    return 0;
}
