/*
 * A delta taken as number n is delta n, and a root pinned as generation g is root g, although both
 * are copied from slots that the writer fills again and again.
 *
 * A litmus: the smallest possible ring, no blocks, more threads than cores, so that a reader is
 * put to sleep in the middle of a copy as often as possible. Delta n carries n everywhere;
 * generation g has exactly BATCH deltas more than the one before.
 */
#include "core_fixture.h"

#define SLOTS 8u
#define BATCH 3u
#define READERS 4u
#define TAKES 16u

struct worker {
    struct shmc_reader *reader;
    uint64_t pins, deltas, lapped;
};

static struct core core;
static uint32_t resource;
static uint64_t first_generation; /* the last one without deltas */
static struct test_team team;
static struct worker workers[READERS];
static atomic_bool stop;

static uint8_t key_byte(uint64_t number)
{
    return (uint8_t)('a' + number % 23);
}

static void *run_writer(void *argument)
{
    const uint64_t end = test_now_ns() + test_stress_ns();
    uint64_t now = 0;

    (void)argument;
    pthread_barrier_wait(&team.start);
    for (uint64_t number = 0; now < end;) {
        core_begin(&core);
        for (unsigned i = 0; i < BATCH; i++, number++) {
            const uint8_t key = key_byte(number);
            CHECK_EQUAL(SHMC_OK, core_put_word(&core, resource, &key, 1,
                                               shmc_integer_word((int64_t)number)));
        }
        CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, now));
        if (number % 64 < BATCH)
            now = test_now_ns();
    }
    atomic_store(&stop, true);
    return NULL;
}

static void check_delta(const struct shmc_delta *delta, uint64_t number)
{
    const uint8_t key = key_byte(number);

    CHECK_EQUAL(number, delta->number);
    CHECK_EQUAL(first_generation + number / BATCH + 1, delta->generation);
    CHECK_EQUAL(shmc_short_word(&key, 1), delta->key);
    CHECK_EQUAL(shmc_integer_word((int64_t)number), delta->new_value);
    CHECK_EQUAL(number < 23 ? SHMC_ADDED : SHMC_MODIFIED, delta->kind);
    CHECK_EQUAL(number < 23 ? SHMC_NOTHING : shmc_integer_word((int64_t)number - 23),
                delta->old_value);
}

static void check_root(const struct shmc_pinned *at)
{
    const uint64_t head = (at->generation - first_generation) * BATCH;

    CHECK_EQUAL(head, at->head);
    CHECK_EQUAL(head < SLOTS / 2 ? 0 : head - SLOTS / 2, at->tail);
}

/*
 * A pin takes longest between latest and the root's copy when all slots of the seat are in use.
 * Here they hold generations that never come: nothing is protected, and no block is read.
 */
static void *run_pinner(void *argument)
{
    struct worker *worker = argument;
    struct shmc_pinned at;

    for (unsigned i = 0; i < SHMC_PINS; i++) {
        worker->reader->pins[i].generation = UINT64_MAX - i;
        worker->reader->pins[i].count = 1;
    }
    pthread_barrier_wait(&team.start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        CHECK_EQUAL(SHMC_OK, shmc_pin(worker->reader, &at));
        check_root(&at);
        shmc_unpin(worker->reader, &at);
        worker->pins++;
    }
    for (unsigned i = 0; i < SHMC_PINS; i++) {
        worker->reader->pins[i].generation = 0;
        worker->reader->pins[i].count = 0;
    }
    return NULL;
}

static void *run_reader(void *argument)
{
    struct worker *worker = argument;
    struct shmc_delta deltas[SLOTS];
    struct shmc_pinned at;
    size_t count;

    pthread_barrier_wait(&team.start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        CHECK_EQUAL(SHMC_OK, shmc_pin(worker->reader, &at));
        check_root(&at);
        worker->pins++;
        for (unsigned left = TAKES; left > 0; left--) {
            const enum shmc_status status =
                shmc_ring_take(worker->reader, &at, at.tail, deltas, SLOTS, &count);
            if (status != SHMC_OK) {
                CHECK_EQUAL(at.head == at.tail ? SHMC_EMPTY : SHMC_LAPPED, status);
                worker->lapped += status == SHMC_LAPPED;
                break;
            }
            CHECK_EQUAL(at.head - at.tail, count);
            for (size_t i = 0; i < count; i++)
                check_delta(&deltas[i], at.tail + i);
            worker->deltas += count;
        }
        shmc_unpin(worker->reader, &at);
    }
    return NULL;
}

int main(void)
{
    struct worker sum = {0};
    pthread_t writer;

    test_start("stress_ring");
    core_create(&core, (struct core_options){.size = UINT64_C(4) << 20, .ring_slots = SLOTS,
                                             .seat_count = READERS});
    resource = core_declare(&core, "things");
    first_generation = core_stats(&core).generation;
    CHECK_EQUAL(0, pthread_barrier_init(&team.start, NULL, READERS + 1));
    for (team.count = 0; team.count < READERS; team.count++) {
        workers[team.count].reader = core_attach(&core);
        CHECK_EQUAL(0, pthread_create(&team.threads[team.count], NULL,
                                      team.count == 0 ? run_reader : run_pinner,
                                      &workers[team.count]));
    }
    CHECK_EQUAL(0, pthread_create(&writer, NULL, run_writer, NULL));
    CHECK_EQUAL(0, pthread_join(writer, NULL));
    test_team_join(&team);
    for (unsigned i = 0; i < READERS; i++) {
        sum.pins += workers[i].pins;
        sum.deltas += workers[i].deltas;
        sum.lapped += workers[i].lapped;
        core_detach(workers[i].reader);
    }
    printf("%" PRIu64 " generations, %" PRIu64 " pins, %" PRIu64 " deltas, %" PRIu64 " lapped\n",
           core_stats(&core).generation, sum.pins, sum.deltas, sum.lapped);
    CHECK(sum.pins > 0 && sum.deltas > 0 && sum.lapped > 0);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
    return 0;
}
