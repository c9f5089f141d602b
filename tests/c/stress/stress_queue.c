/*
 * Workers with a seat each, and few slots for many keys: two workers never have the same key, no
 * key is lost, each is known once, and data that was changed before an add is seen after it.
 *
 * Then with enough slots, whose memory comes and goes all the time, and with few tickets.
 *
 * Each key has a word in which its holder writes its name, and a number that adders raise before
 * they add it: in the end the last number seen is the last number written.
 */
#include "queue_fixture.h"

#define WORKERS 4u
#define KEYS 96u
#define SLOTS 64u
#define PATIENCE_NS UINT64_C(60000000000)

struct key_data {
    alignas(64) _Atomic(uint64_t) wanted;
    _Atomic(uint64_t) seen, holder;
};

struct stress {
    struct pool pool;
    struct test_team team;
    struct key_data keys[KEYS];
    _Atomic(uint64_t) taken, full, delayed;
    _Atomic(bool) over;
    bool breathes; /* grows and shrinks all the time; else it has too few slots, and is full */
};

struct worker {
    struct stress *stress;
    uint64_t number;
    bool waits; /* the last one only works, and sleeps like a worker */
};

static void name_of(unsigned number, char to[16])
{
    snprintf(to, 16, "key-%u", number);
}

static void work(struct stress *stress, const struct worker *worker,
                 const struct shmc_taken *taken, struct shmc_queue *queue)
{
    char name[16] = {0};

    CHECK(taken->length < sizeof name);
    memcpy(name, taken->key, taken->length);
    struct key_data *key = &stress->keys[strtoul(name + 4, NULL, 10)];
    CHECK_EQUAL(0, atomic_exchange(&key->holder, worker->number + 1)); /* QUEUE2 */
    atomic_store(&key->seen, atomic_load_explicit(&key->wanted, memory_order_relaxed));
    CHECK_EQUAL(worker->number + 1, atomic_exchange(&key->holder, 0));
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken->slot, taken->version));
    atomic_fetch_add(&stress->taken, 1);
}

static void change(struct stress *stress, struct shmc_queue *queue, uint64_t *random)
{
    const unsigned number = (unsigned)(test_random(random) % KEYS);
    const int64_t priority = (int64_t)(test_random(random) % 3);
    struct key_data *key = &stress->keys[number];
    char name[16];
    enum shmc_status status = SHMC_FULL;

    name_of(number, name);
    const uint64_t next = atomic_load_explicit(&key->wanted, memory_order_relaxed) + 1;
    atomic_store_explicit(&key->wanted, next, memory_order_relaxed); /* about: others too */
    const uint64_t way = test_random(random) % 8;
    const uint8_t *bytes = (const uint8_t *)name;
    if (way == 0)
        status = shmc_queue_add_after(queue, bytes, strlen(name), priority,
                                      test_random(random) % 1000000);
    if (way == 1)
        status = shmc_queue_add_limited(queue, bytes, strlen(name), priority);
    if (way < 2 && status == SHMC_OK)
        atomic_fetch_add(&stress->delayed, 1);
    if (status == SHMC_OK && way == 1) {
        uint64_t requeues;
        CHECK_EQUAL(SHMC_OK, shmc_queue_requeues(queue, bytes, strlen(name), 1, &requeues));
    }
    while (status == SHMC_FULL) { /* back-pressure: makes room itself */
        struct shmc_taken taken;
        status = shmc_queue_add(queue, bytes, strlen(name), priority);
        if (status != SHMC_FULL)
            break;
        atomic_fetch_add(&stress->full, 1);
        if (shmc_queue_take(queue, 0, &taken) == SHMC_OK)
            work(stress, &(struct worker){stress, queue->seat_index + 100, false}, &taken, queue);
    }
    CHECK_EQUAL(SHMC_OK, status);
}

/* A full queue needs luck where threads take turns on few cores: waits for it. */
static bool goes_on(struct stress *stress, uint64_t stop)
{
    const uint64_t now = test_now_ns();

    return now < stop ||
           (!stress->breathes && atomic_load(&stress->full) == 0 && now < stop + PATIENCE_NS);
}

/* In turns: more keys come than are done, or they are only done. */
static bool adds(const struct stress *stress, const struct worker *worker, uint64_t *random)
{
    if (worker->waits || test_random(random) % 3 == 0)
        return false;
    return !stress->breathes || (test_now_ns() >> 20 & 1u) != 0;
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct stress *stress = worker->stress;
    struct shmc_queue *queue = pool_join(&stress->pool);
    uint64_t random = test_random_state(worker->number);
    struct shmc_taken taken;

    queue->keep = SLOTS;
    pthread_barrier_wait(&stress->team.start);
    const uint64_t stop = test_now_ns() + test_stress_ns();
    while (worker->waits ? !atomic_load(&stress->over) : goes_on(stress, stop)) {
        if (stress->breathes && test_random(&random) % 64 == 0)
            shmc_queue_scan(queue, shmc_monotonic_ns());
        if (adds(stress, worker, &random))
            change(stress, queue, &random);
        else if (shmc_queue_take(queue, 0, &taken) == SHMC_OK)
            work(stress, worker, &taken, queue);
        else if (worker->waits)
            (void)shmc_queue_wait(queue, test_now_ns() + 50000000);
    }
    pool_leave(queue);
    return NULL;
}

static bool all_seen(struct stress *stress)
{
    for (unsigned i = 0; i < KEYS; i++) {
        if (atomic_load(&stress->keys[i].seen) != atomic_load(&stress->keys[i].wanted))
            return false;
    }
    return true;
}

static void test_keys_pass(struct stress *stress, bool breathes)
{
    struct worker workers[WORKERS];
    void *arguments[WORKERS];

    memset(stress, 0, sizeof *stress);
    stress->breathes = breathes;
    pool_create_small(&stress->pool, breathes ? 4 * SLOTS : SLOTS, SLOTS, WORKERS + 1);
    struct shmc_queue *queue = pool_join(&stress->pool);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){stress, i, i == WORKERS - 1};
        arguments[i] = &workers[i];
    }
    test_team_start(&stress->team, WORKERS, worker_run, arguments);
    for (unsigned i = 0; i + 1 < WORKERS; i++)
        CHECK_EQUAL(0, pthread_join(stress->team.threads[i], NULL));
    AWAIT(all_seen(stress)); /* the one that waits does the rest */
    AWAIT(shmc_queue_length(queue) == 0);
    atomic_store(&stress->over, true);
    CHECK_EQUAL(0, pthread_join(stress->team.threads[WORKERS - 1], NULL));
    CHECK(atomic_load(&stress->taken) > 100 && atomic_load(&stress->delayed) > 10);
    CHECK(breathes || atomic_load(&stress->full) > 0);
    CHECK(!breathes || shmc_load_racy(&queue->header->floor) != 0);
    pool_check(queue);
    printf("%" PRIu64 " taken, %" PRIu64 " times full, floor %" PRIu64 "\n",
           atomic_load(&stress->taken), atomic_load(&stress->full),
           shmc_load_racy(&queue->header->floor) >> 32);
    pool_leave(queue);
    pthread_barrier_destroy(&stress->team.start);
    pool_destroy(&stress->pool);
}

/* ---- QTABLE3: new keys, added by all at the same time ---------------------------------------------------- */

struct rivals {
    struct pool pool;
    struct test_team team;
    pthread_barrier_t round;
    _Atomic(uint64_t) made;
    _Atomic(bool) over;
};

struct rival {
    struct rivals *rivals;
    uint64_t number;
};

static void *rival_run(void *argument)
{
    struct rival *rival = argument;
    struct rivals *rivals = rival->rivals;
    struct shmc_queue *queue = pool_join(&rivals->pool);
    struct shmc_keyref ref;

    pthread_barrier_wait(&rivals->team.start);
    const uint64_t stop = test_now_ns() + test_stress_ns();
    for (uint64_t round = 0; !atomic_load(&rivals->over); round++) {
        uint8_t key[8];
        bool made = false;
        memcpy(key, &round, sizeof key);
        pthread_barrier_wait(&rivals->round);
        CHECK_EQUAL(SHMC_OK, shmc_key_make(queue, key, sizeof key,
                                           shmc_queue_hash(queue, key, sizeof key), 0, 0, &ref,
                                           &made));
        atomic_fetch_add(&rivals->made, made);
        pthread_barrier_wait(&rivals->round);
        if (rival->number == 0) {
            CHECK_EQUAL(round + 1, atomic_load(&rivals->made)); /* one of them, each time */
            atomic_store(&rivals->over, test_now_ns() > stop);
        }
        pthread_barrier_wait(&rivals->round);
    }
    pool_leave(queue);
    return NULL;
}

static void test_a_new_key_is_known_once(struct rivals *rivals)
{
    struct rival members[3];
    void *arguments[3];

    pool_create(&rivals->pool, 256, 4);
    CHECK_EQUAL(0, pthread_barrier_init(&rivals->round, NULL, 3));
    for (unsigned i = 0; i < 3; i++) {
        members[i] = (struct rival){rivals, i};
        arguments[i] = &members[i];
    }
    test_team_start(&rivals->team, 3, rival_run, arguments);
    test_team_join(&rivals->team);
    printf("%" PRIu64 " keys made by rivals\n", atomic_load(&rivals->made));
    pthread_barrier_destroy(&rivals->round);
    pool_destroy(&rivals->pool);
}

int main(void)
{
    static struct stress stress;
    static struct rivals rivals;

    test_start("stress_queue");
    test_a_new_key_is_known_once(&rivals);
    test_keys_pass(&stress, false);
    test_keys_pass(&stress, true);
    return 0;
}
