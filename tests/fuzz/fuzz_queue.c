/*
 * With any write into a queue's file, and any truncation of it, while two workers add, take and
 * finish keys: no call crashes, reads outside or runs for ever; until the first such word
 * no key is with both; and when it is over a rebuild makes a queue of it again, as far as there is
 * room: a key that is added is handed out.
 *
 * The input is a row of steps of eleven bytes: an action, the worker that does it, an offset and a
 * value.
 */
#include "queue_fixture.h"

#define SLOTS 256u /* two levels of the index, and fewer tickets */
#define RING 64u
#define SEATS 3u
#define WORKERS 2u
#define KEYS 160u
#define CROWD 80u
#define STEP 11u
#define ROUNDS 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pool pool;
static uint8_t *fresh; /* the file as it was made */
static size_t fresh_size;
static uint64_t backed;
static struct worker {
    struct shmc_queue *queue;
    struct shmc_taken taken;
    bool holds;
} workers[WORKERS];
static bool spoilt;

static void begin(void)
{
    if (fresh == NULL) {
        pool_create_small(&pool, SLOTS, RING, SEATS);
        fresh_size = pool.file.max_size;
        CHECK(shmc_queue_size(SLOTS, RING, SEATS, &backed) == fresh_size);
        fresh = malloc(backed);
        CHECK(fresh != NULL);
        memcpy(fresh, pool.file.base, backed);
    }
    CHECK_EQUAL(0, ftruncate(pool.file.fd, 0)); /* holes again */
    CHECK_EQUAL(0, ftruncate(pool.file.fd, (off_t)fresh_size));
    memcpy(pool.file.base, fresh, backed);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.queue = pool_join(&pool)};
        workers[i].queue->keep = RING; /* idle keys go, with their memory */
    }
    spoilt = false;
}

static void end(void)
{
    for (unsigned i = 0; i < WORKERS; i++)
        pool_leave(workers[i].queue);
}

static size_t name_key(unsigned number, char key[SHMC_QUEUE_KEY_MAX + 1])
{
    const int width = number % 3 == 0 ? 100 : 1; /* some of them do not stand in their slots */

    return (size_t)snprintf(key, SHMC_QUEUE_KEY_MAX + 1, "key-%0*u", width, number);
}

static void finish(struct worker *worker)
{
    if (!worker->holds)
        return;
    const enum shmc_status status =
        shmc_queue_done(worker->queue, worker->taken.slot, worker->taken.version);
    CHECK(spoilt || status == SHMC_OK);
    worker->holds = false;
}

static void take(struct worker *worker)
{
    const struct worker *other = worker == &workers[0] ? &workers[1] : &workers[0];

    finish(worker);
    worker->holds = shmc_queue_take(worker->queue, 0, &worker->taken) == SHMC_OK;
    if (!worker->holds)
        return;
    CHECK(worker->taken.length > 0 && worker->taken.length <= SHMC_QUEUE_KEY_MAX);
    CHECK(spoilt || !other->holds || other->taken.length != worker->taken.length ||
          memcmp(other->taken.key, worker->taken.key, worker->taken.length) != 0);
}

static void add(struct worker *worker, const uint8_t *step)
{
    char key[SHMC_QUEUE_KEY_MAX + 1];
    const size_t length = name_key(step[1] % KEYS, key);
    const uint8_t *bytes = (const uint8_t *)key;
    const int64_t priority = (int8_t)step[2];
    uint64_t requeues;

    switch (step[3] % 4) {
    case 0:
        (void)shmc_queue_add_after(worker->queue, bytes, length, priority, step[4]);
        break;
    case 1:
        (void)shmc_queue_add_limited(worker->queue, bytes, length, priority);
        (void)shmc_queue_requeues(worker->queue, bytes, length, step[4] & 1, &requeues);
        break;
    default:
        (void)shmc_queue_add(worker->queue, bytes, length, priority);
    }
}

/* More than a step and a ring have room for. */
static void add_crowd(struct worker *worker, const uint8_t *step)
{
    for (unsigned i = 0; i < CROWD; i++) {
        char key[SHMC_QUEUE_KEY_MAX + 1];
        const size_t length = name_key((step[1] + i) % KEYS, key);
        (void)shmc_queue_add(worker->queue, (const uint8_t *)key, length, (int8_t)step[2] % 2);
    }
}

static void scribble(const uint8_t *step)
{
    uint16_t at;
    uint64_t value;

    spoilt = true;
    memcpy(&at, step + 1, 2);
    memcpy(&value, step + 3, 8);
    if (step[0] & 0x40)
        value &= 0xff;
    const uint64_t offset = step[0] & 0x80 ? at % (sizeof(struct shmc_queue_header) / 8) * 8
                                           : at % (fresh_size / 8) * 8;
    memcpy(pool.file.base + offset, &value, 8);
}

static void cut(const uint8_t *step)
{
    uint16_t at;

    spoilt = true;
    memcpy(&at, step + 1, 2);
    CHECK_EQUAL(0, ftruncate(pool.file.fd, (off_t)(at % fresh_size)));
}

static void look(struct worker *worker)
{
    struct shmc_queue_stats stats;
    struct shmc_queue_fed fed = {.instance = 5, .position = 6, .whole = 1};

    shmc_queue_stats(worker->queue, &stats);
    (void)shmc_queue_length(worker->queue);
    if (shmc_queue_feed_begin(worker->queue) == SHMC_OK) {
        (void)shmc_queue_cursor(worker->queue, "pods", 4, &fed);
        (void)shmc_queue_store_cursor(worker->queue, "pods", 4, &fed);
        shmc_queue_feed_end(worker->queue);
    }
    (void)shmc_queue_add_known(worker->queue, 0);
}

/* The documented way back: a rebuild, which the next sweep does where it meets damage. */
static void come_back(void)
{
    struct shmc_queue *queue = workers[0].queue;
    const uint8_t *key = (const uint8_t *)"afterwards";

    for (unsigned i = 0; i < WORKERS; i++)
        finish(&workers[i]);
    shmc_store_racy(&queue->header->corrupt, 1);
    shmc_store_racy(&queue->header->swept_ns, 0);
    shmc_queue_sweep(queue, shmc_monotonic_ns());
    if (shmc_queue_add(queue, key, 10, 100) != SHMC_OK)
        return; /* every slot is held, by its word */
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < 2 * SLOTS; i++) {
            take(&workers[0]);
            if (!workers[0].holds)
                break;
            if (workers[0].taken.length == 10 && memcmp(workers[0].taken.key, key, 10) == 0)
                return;
        }
        shmc_queue_scan(queue, shmc_monotonic_ns());
    }
    CHECK(false); /* a key that was added after the rebuild is not handed out */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    for (size_t at = 0; at + STEP <= size; at += STEP) {
        const uint8_t *step = data + at;
        struct worker *worker = &workers[step[10] % WORKERS];

        switch (step[0] % 8) {
        case 0:
            if (step[3] < 32) {
                add_crowd(worker, step);
                break;
            } /* fall through */
        case 1:
            add(worker, step);
            break;
        case 2:
            take(worker);
            break;
        case 3:
            finish(worker);
            break;
        case 4:
            look(worker);
            break;
        case 5:
            shmc_queue_scan(worker->queue, shmc_monotonic_ns());
            break;
        case 6:
            if (step[3] < 16) {
                cut(step);
                break;
            }
            shmc_queue_sweep(worker->queue, shmc_monotonic_ns());
            break;
        default:
            scribble(step);
        }
    }
    come_back();
    end();
    return 0;
}
