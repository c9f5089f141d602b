/*
 * A key is held by one worker and never lost; tickets, dues and counts may be wrong at any time,
 * and a scan finds them again; a dead worker's keys come back.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "queue_fixture.h"

#define SECOND UINT64_C(1000000000)

static void test_sizes_and_header_are_checked(void)
{
    uint64_t backed = 0;
    struct shmc_queue *queue = NULL;
    struct pool pool;

    CHECK_EQUAL(0, shmc_queue_size(100, 0, 1, &backed));
    CHECK_EQUAL(0, shmc_queue_size(32, 0, 1, &backed));
    CHECK_EQUAL(0, shmc_queue_size(64, 0, 0, &backed));
    CHECK_EQUAL(0, shmc_queue_size(64, 0, SHMC_MAX_SEATS + 1, &backed));
    CHECK_EQUAL(0, shmc_queue_size(SHMC_QUEUE_MAX_SLOTS * 2, 0, 1, &backed));
    pool_create(&pool, 64, 2);
    struct shmc_queue_header *header = (struct shmc_queue_header *)(void *)pool.file.base;
    header->layout_signature++;
    CHECK_EQUAL(SHMC_VERSION, shmc_queue_open(&pool.file, -1, -1, &queue));
    header->layout_signature--;
    header->slot_count = 128; /* more than the file holds */
    CHECK_EQUAL(SHMC_CORRUPT, shmc_queue_open(&pool.file, -1, -1, &queue));
    header->slot_count = 64;
    header->magic++;
    CHECK_EQUAL(SHMC_CORRUPT, shmc_queue_open(&pool.file, -1, -1, &queue));
    header->magic--;
    struct shmc_queue *one = pool_join(&pool), *two = pool_join(&pool);
    const int third = pool_reopen(&pool);
    CHECK_EQUAL(SHMC_BUSY, shmc_queue_open(&pool.file, third, third, &queue));
    close(third);
    pool_leave(two);
    pool_leave(one);
    pool_destroy(&pool);
}

static void test_a_key_goes_round(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken taken, again;

    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    CHECK_EQUAL(SHMC_OK, pool_add(b, "k", 0));
    CHECK_EQUAL(1, shmc_queue_length(a));
    pool_expect(b, "k", &taken);
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0)); /* held: it comes back */
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_queue_done(a, taken.slot, taken.version)); /* not held by a */
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    pool_expect(a, "k", &again);
    CHECK_EQUAL(taken.slot, again.slot);
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_queue_done(b, taken.slot, taken.version)); /* once */
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, again.slot, again.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    pool_check(a);
}

/* LANE3: one ticket too many gives nobody a key, a scan repairs one too few. */
static void test_tickets_are_hints(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    pool_expect(a, "k", &taken);
    shmc_ticket_write(b, taken.slot, 0);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(b)); /* QUEUE2 */
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    shmc_ticket_write(b, taken.slot, 0);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(b)); /* not dirty */

    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    CHECK_EQUAL(taken.slot, shmc_ticket_take(a, 0)); /* and its taker dies */
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(b));
    shmc_queue_scan(b, shmc_monotonic_ns());
    pool_expect(b, "k", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    pool_check(a);
}

/* LANE2: a ticket that a taker closed is skipped by its writer. */
static void test_a_closed_ticket_holds_up_nobody(struct shmc_queue *a)
{
    struct shmc_queue_lane *lane = &a->header->lanes[0];
    struct shmc_taken taken;

    shmc_fetch_add(&lane->tail, 3); /* three writers died before they wrote */
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    pool_expect(a, "k", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    for (unsigned i = 0; i < 300; i++) { /* several rounds of the ring */
        CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
        if (i % 7 == 0)
            shmc_fetch_add(&lane->tail, 1);
        pool_expect(a, "k", &taken);
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    }
    shmc_store_racy(&lane->tail, shmc_load_racy(&lane->tail) + (UINT64_C(1) << 40)); /* noise */
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    shmc_queue_scan(a, shmc_monotonic_ns());
    CHECK_EQUAL(SHMC_OK, shmc_queue_take(a, 0, &taken));
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
}

/* QUEUE4, QUEUE5 */
static void test_a_deadline_ends_a_holding(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken late, taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    CHECK_EQUAL(SHMC_OK, shmc_queue_take(a, 1, &late));
    shmc_queue_scan(b, shmc_monotonic_ns() + SECOND);
    pool_expect(b, "k", &taken);
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_queue_done(a, late.slot, late.version));
    CHECK_EQUAL(1, shmc_queue_held(b));
    shmc_queue_scan(a, shmc_monotonic_ns() + 1000 * SECOND); /* b set none */
    CHECK_EQUAL(1, shmc_queue_held(b));
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
}

/* QUEUE8: a worker that was about to retire the slot, and saw no delay, fails. */
static void test_a_delay_changes_an_idle_word(struct shmc_queue *a)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "idle", 0));
    pool_expect(a, "idle", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    const uint64_t before = shmc_load_racy(&a->slots[taken.slot].word);
    CHECK_EQUAL(SHMC_OK, shmc_queue_add_after(a, (const uint8_t *)"idle", 4, 0, 1000 * SECOND));
    const uint64_t after = shmc_load_racy(&a->slots[taken.slot].word);
    CHECK_EQUAL(KEY_STATE(before), KEY_STATE(after));
    CHECK(KEY_VERSION(before) != KEY_VERSION(after));
    shmc_store_racy(&a->slots[taken.slot].delay, 0);
}

static uint64_t due_of(const struct shmc_queue *queue, const char *key)
{
    struct shmc_keyref ref;

    CHECK_EQUAL(SHMC_OK, shmc_key_find(queue, (const uint8_t *)key, strlen(key),
                                       shmc_queue_hash(queue, (const uint8_t *)key, strlen(key)),
                                       &ref));
    CHECK(shmc_key_delayed(queue, ref));
    return DUE_TICKS(shmc_load_racy(&queue->slots[ref.slot].delay)) << DUE_TICK;
}

static void limited(struct shmc_queue *queue, const char *key)
{
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_add_limited(queue, (const uint8_t *)key, strlen(key), 0));
}

/* As client-go's TestItemExponentialFailureRateLimiter and its overflow: 1 ms, up to 10 s. */
static void test_waits_double_up_to_their_maximum(const struct pool *pool)
{
    struct shmc_queue *queue = pool_join(pool);
    const char *key = "waits";
    uint64_t requeues = 0;

    shmc_queue_limits(queue, 1000000, 10 * SECOND, 0, 0);
    for (unsigned failures = 0; failures < 70; failures++) {
        const uint64_t wait = failures < 14 ? UINT64_C(1000000) << failures : 10 * SECOND;
        const uint64_t before = shmc_monotonic_ns();
        limited(queue, key);
        const uint64_t after = shmc_monotonic_ns() + (1u << DUE_TICK);
        const uint64_t due = due_of(queue, key);
        CHECK(before + wait <= due && due <= after + wait);
        CHECK_EQUAL(SHMC_OK, shmc_queue_requeues(queue, (const uint8_t *)key, strlen(key), 0,
                                                 &requeues));
        CHECK_EQUAL(failures + 1, requeues);
        /* The next one must not be the earlier of two. */
        struct shmc_keyref ref;
        CHECK_EQUAL(SHMC_OK,
                    shmc_key_find(queue, (const uint8_t *)key, strlen(key),
                                  shmc_queue_hash(queue, (const uint8_t *)key, strlen(key)),
                                  &ref));
        shmc_store_racy(&queue->slots[ref.slot].delay, 0);
    }
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_requeues(queue, (const uint8_t *)key, strlen(key), 1, &requeues));
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_requeues(queue, (const uint8_t *)key, strlen(key), 0, &requeues));
    CHECK_EQUAL(0, requeues);
    pool_leave(queue);
}

/* The bucket of all keys: a burst at once, then one token at a time. */
static void test_the_bucket_is_for_all_keys(const struct pool *pool)
{
    struct shmc_queue *queue = pool_join(pool);
    char key[32];

    shmc_store_racy(&queue->header->bucket_ns, 0);
    shmc_queue_limits(queue, 1, 1, SECOND, 10);
    const uint64_t before = shmc_monotonic_ns();
    for (unsigned i = 0; i < 15; i++) {
        snprintf(key, sizeof key, "bucket-%u", i);
        limited(queue, key);
        const uint64_t wait = i < 10 ? 0 : (i - 9) * SECOND;
        const uint64_t due = due_of(queue, key);
        CHECK(due + (1u << DUE_TICK) >= before + wait);
        CHECK(due <= shmc_monotonic_ns() + wait + (1u << DUE_TICK));
    }
    pool_leave(queue);
}

static void test_a_firing_that_its_worker_died_in_is_done_again(struct shmc_queue *a)
{
    struct shmc_taken taken;
    struct shmc_keyref ref;

    CHECK_EQUAL(SHMC_OK, shmc_queue_add_after(a, (const uint8_t *)"late", 4, 0, 1000 * SECOND));
    CHECK_EQUAL(SHMC_OK, shmc_key_find(a, (const uint8_t *)"late", 4,
                                       shmc_queue_hash(a, (const uint8_t *)"late", 4), &ref));
    shmc_atomic *delay = &a->slots[ref.slot].delay;
    shmc_store_racy(delay, shmc_load_racy(delay) | DUE_FIRING);
    shmc_due_check(a, ref.slot, shmc_monotonic_ns());
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a)); /* a worker may be writing it */
    shmc_due_check(a, ref.slot, shmc_monotonic_ns() + 1001 * SECOND);
    pool_expect(a, "late", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    CHECK_EQUAL(0, shmc_load_racy(delay));
}

static enum shmc_status after(struct shmc_queue *queue, const char *key, int64_t priority,
                              uint64_t delay_ns)
{
    return shmc_queue_add_after(queue, (const uint8_t *)key, strlen(key), priority, delay_ns);
}

/* The delay of a key, as a worker that fires it has left it before it makes the key dirty. */
static uint64_t firing_of(struct shmc_queue *queue, const char *key, struct shmc_keyref *ref)
{
    CHECK_EQUAL(SHMC_OK, shmc_key_find(queue, (const uint8_t *)key, strlen(key),
                                       shmc_queue_hash(queue, (const uint8_t *)key, strlen(key)),
                                       ref));
    shmc_atomic *delay = &queue->slots[ref->slot].delay;
    const uint64_t firing = shmc_load_racy(delay) | DUE_FIRING;
    shmc_store_racy(delay, firing);
    return firing;
}

/*
 * DUE2: a worker that fires a delay stops after the key has its ticket. The worker that takes it
 * then sets the next delay, which nothing of the last one may cut short; a key that waits in a
 * lower lane counts like one that waits in none.
 */
static void test_a_delay_is_over_when_its_key_is_handed_out(struct shmc_queue *a, int64_t lane)
{
    const uint64_t now_ns = shmc_monotonic_ns();
    struct shmc_taken taken;
    struct shmc_keyref ref;

    CHECK_EQUAL(SHMC_OK, after(a, "retry", lane, 1000 * SECOND));
    if (lane != 0)
        CHECK_EQUAL(SHMC_OK, pool_add(a, "retry", 0)); /* waits, and is raised by the firing */
    const uint64_t firing = firing_of(a, "retry", &ref);
    CHECK_EQUAL(SHMC_OK, shmc_key_fired(a, ref, DUE_LANE(firing), now_ns, firing));
    pool_expect(a, "retry", &taken);
    CHECK_EQUAL(SHMC_OK, after(a, "retry", lane, 1000 * SECOND));
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    shmc_due_fire(a, now_ns + 999 * SECOND);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    shmc_due_fire(a, now_ns + 1002 * SECOND); /* it is set nevertheless */
    pool_expect(a, "retry", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
}

/* DUE2: a worker that meets a firing delay cannot know that its key will be made dirty, and does
 * so. */
static void test_meeting_a_firing_delay_loses_no_key(struct shmc_queue *a)
{
    struct shmc_taken taken;
    struct shmc_keyref ref;

    CHECK_EQUAL(SHMC_OK, after(a, "met", 0, 1000 * SECOND));
    (void)firing_of(a, "met", &ref); /* and the worker that fires it dies */
    CHECK_EQUAL(SHMC_OK, after(a, "met", 0, 2000 * SECOND));
    pool_expect(a, "met", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    shmc_store_racy(&a->slots[ref.slot].delay, 0);
}

static void expect_and_end(struct shmc_queue *queue, const char *key)
{
    struct shmc_taken taken;

    pool_expect(queue, key, &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
}

/* DUE6: an add and a delay are one hand-out; a delay of a held key counts from then on. */
static void test_an_add_replaces_a_delay(struct shmc_queue *a)
{
    const uint64_t later = shmc_monotonic_ns() + 1002 * SECOND;
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, after(a, "both", 0, 1000 * SECOND));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    CHECK_EQUAL(SHMC_OK, pool_add(a, "both", 0));
    expect_and_end(a, "both");
    shmc_due_fire(a, later);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));

    CHECK_EQUAL(SHMC_OK, pool_add(a, "both", 0));
    CHECK_EQUAL(SHMC_OK, after(a, "both", 0, 1000 * SECOND)); /* it waits: no delay */
    pool_expect(a, "both", &taken);
    CHECK_EQUAL(SHMC_OK, pool_add(a, "both", 0));
    CHECK_EQUAL(SHMC_OK, after(a, "both", 0, 1000 * SECOND)); /* dirty: no delay */
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    expect_and_end(a, "both");
    shmc_due_fire(a, later);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));

    CHECK_EQUAL(SHMC_OK, pool_add(a, "both", 0));
    pool_expect(a, "both", &taken);
    CHECK_EQUAL(SHMC_OK, after(a, "both", 0, 1000 * SECOND));
    CHECK_EQUAL(SHMC_OK, after(a, "both", 0, 2000 * SECOND)); /* the earlier one counts */
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    shmc_due_fire(a, later);
    expect_and_end(a, "both");
}

/* DUE6: a delay that is set between the check of get() and its end is another word, and stays. */
static void test_each_setting_changes_the_delay(struct shmc_queue *a)
{
    struct shmc_keyref ref;
    uint64_t before = 0;

    CHECK_EQUAL(SHMC_OK, after(a, "turn", 0, 1000 * SECOND));
    CHECK_EQUAL(SHMC_OK, shmc_key_find(a, (const uint8_t *)"turn", 4,
                                       shmc_queue_hash(a, (const uint8_t *)"turn", 4), &ref));
    for (unsigned i = 0; i < 20; i++) {
        const uint64_t delay = shmc_load_racy(&a->slots[ref.slot].delay);
        CHECK(delay != before);
        before = delay;
        CHECK_EQUAL(SHMC_OK, after(a, "turn", 0, 2000 * SECOND));
    }
    shmc_store_racy(&a->slots[ref.slot].delay, 0);
}

static void test_a_hint_that_was_lost_is_found(struct shmc_queue *a)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, shmc_queue_add_after(a, (const uint8_t *)"due", 3, 0, 1));
    pool_forget_dues(a);
    shmc_store_racy(&a->header->next_due, DUE_NEVER);
    const uint64_t later = shmc_monotonic_ns() + SECOND;
    shmc_due_fire(a, later);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(a));
    shmc_queue_scan(a, later); /* DUE4 */
    shmc_due_fire(a, later);
    pool_expect(a, "due", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
}

/* ---- dying ---------------------------------------------------------------------------------------- */

/* A process that acts on a seat of its own and is killed. */
static void die(const struct pool *pool, void (*what)(struct shmc_queue *queue))
{
    int ready[2];
    char byte;

    CHECK_EQUAL(0, pipe(ready));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        what(pool_join(pool));
        CHECK_EQUAL(1, write(ready[1], "x", 1));
        pause();
        _exit(1);
    }
    CHECK_EQUAL(1, read(ready[0], &byte, 1));
    CHECK_EQUAL(0, kill(child, SIGKILL));
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, NULL, 0));
    close(ready[0]);
    close(ready[1]);
}

static void hold_both(struct shmc_queue *queue)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(queue, "held", 5));
    pool_expect(queue, "held", &taken);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "dirty", 5));
    pool_expect(queue, "dirty", &taken);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "dirty", 5));
}

static void claim_and_stop(struct shmc_queue *queue)
{
    const uint64_t at = shmc_fetch_add(&queue->header->fresh, 1);

    shmc_store_release(&queue->slots[at].word, shmc_key_word(KEY_CLAIMED, 0, queue->owner, 1));
}

static void sweep_now(struct shmc_queue *queue)
{
    shmc_store_racy(&queue->header->swept_ns, 0);
    shmc_queue_sweep(queue, shmc_monotonic_ns());
}

static void test_keys_of_the_dead_come_back(const struct pool *pool)
{
    struct shmc_queue *queue = pool_join(pool);
    struct shmc_taken taken;

    die(pool, hold_both);
    CHECK_EQUAL(2, shmc_queue_held(queue));
    sweep_now(queue);
    pool_expect(queue, "held", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    pool_expect(queue, "dirty", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
    die(pool, claim_and_stop);
    const uint64_t at = shmc_load_racy(&queue->header->fresh) - 1;
    CHECK_EQUAL(KEY_CLAIMED, KEY_STATE(shmc_load_racy(&queue->slots[at].word)));
    sweep_now(queue);
    CHECK_EQUAL(KEY_FREE, KEY_STATE(shmc_load_racy(&queue->slots[at].word)));
    sweep_now(queue);
    sweep_now(queue);
    pool_check(queue);
    pool_leave(queue);
}

static void test_the_living_keep_what_they_hold(const struct pool *pool)
{
    struct shmc_queue *a = pool_join(pool), *b = pool_join(pool);
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "mine", 0));
    pool_expect(a, "mine", &taken);
    for (unsigned i = 0; i < 5; i++)
        sweep_now(b);
    CHECK_EQUAL(1, shmc_queue_held(b));
    pool_leave(a); /* leaving gives back */
    pool_expect(b, "mine", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    pool_leave(b);
}

/* SWEEP5: the content of the seats is not trusted. */
static void test_a_wiped_seat_takes_no_key_from_the_living(const struct pool *pool)
{
    struct shmc_queue *a = pool_join(pool), *b = pool_join(pool);
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "mine", 0));
    pool_expect(a, "mine", &taken);
    for (unsigned byte = 0; byte < 2; byte++) {
        memset(&a->seats[a->seat_index], byte == 0 ? 0 : 0xa5, sizeof(struct shmc_queue_seat));
        sweep_now(b);
        CHECK_EQUAL(SHMC_EMPTY, pool_empty(b));
        CHECK_EQUAL(1, shmc_queue_held(b));
    }
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    sweep_now(a); /* writes its own seat again */
    CHECK_EQUAL(a->incarnation, shmc_load_racy(&a->seat->incarnation));
    pool_leave(a);
    pool_leave(b);
}

/* ---- damage --------------------------------------------------------------------------------------- */

/* Any worker may truncate the file: no process dies of that, and all know that it happened. */
static void test_a_truncated_file_is_rebuilt(uint64_t size)
{
    struct shmc_taken taken;
    struct pool pool;

    pool_create(&pool, 128, 4);
    struct shmc_queue *a = pool_join(&pool), *b = pool_join(&pool);
    CHECK_EQUAL(SHMC_OK, pool_add(a, "before", 0));
    const uint64_t rebuilds = shmc_load_racy(&a->header->rebuilds);
    CHECK_EQUAL(0, ftruncate(pool.file.fd, (off_t)size));
    (void)pool_add(a, "at once", 0); /* it may be lost */
    sweep_now(b);
    sweep_now(a);
    CHECK_EQUAL(pool.file.max_size, shmc_segment_bytes(&pool.file));
    CHECK(shmc_load_racy(&a->header->rebuilds) != rebuilds || size == 0);
    CHECK(shmc_load_racy(&a->header->rebuilds) != 0);
    while (shmc_queue_take(b, 0, &taken) == SHMC_OK)
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_OK, pool_add(a, "after", 0));
    pool_expect(b, "after", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    pool_leave(a);
    pool_leave(b);
    pool_destroy(&pool);
}

/* WAKE8 of wake.c: the file was truncated after the last check, before the sleep. */
static void test_a_bell_without_a_page_ends_a_sleep(void)
{
    struct pool pool;

    pool_create(&pool, 128, 4);
    struct shmc_queue *a = pool_join(&pool);
    const uint32_t number = shmc_load32_racy(&a->seat->bell);
    CHECK_EQUAL(0, ftruncate(pool.file.fd, 0));
    CHECK_EQUAL(SHMC_OK, shmc_futex_wait(&a->seat->bell, number, shmc_monotonic_ns() + 60 * SECOND));
    CHECK_EQUAL(pool.file.max_size, shmc_segment_bytes(&pool.file));
    pool_leave(a);
    pool_destroy(&pool);
}

static void test_truncations(void)
{
    const uint64_t size = shmc_queue_size(128, 0, 4, &(uint64_t){0});

    for (uint64_t part = 0; part < 16; part++)
        test_a_truncated_file_is_rebuilt(size * part / 16);
    test_a_truncated_file_is_rebuilt(1);
    test_a_truncated_file_is_rebuilt(size - 1);
}

/* ---- waiting -------------------------------------------------------------------------------------- */

static void forget_dues(struct shmc_queue *queue)
{
    pool_forget_dues(queue);
    shmc_store_racy(&queue->header->next_due, DUE_NEVER);
}

/* QWAIT7: a sleep would end in a time-out, before the first tick checks for the key. */
static void test_nobody_sleeps_beside_a_key(struct shmc_queue *a)
{
    struct shmc_taken taken;
    unsigned tries = 1;

    forget_dues(a); /* or it would get up for one */
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    for (;; tries++) {
        shmc_queue_look(a); /* neither spinning nor the reserve, which wake for more than this */
        if (shmc_queue_wait(a, shmc_monotonic_ns() + SECOND / 4) == SHMC_OK)
            break;
        CHECK(tries < 20); /* a slow machine: it came too late to check */
    }
    pool_expect(a, "k", &taken);
    CHECK_EQUAL(SHMC_TIMEOUT, shmc_queue_wait(a, shmc_monotonic_ns() + SECOND / 100));
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
}

struct sleeper {
    struct shmc_queue *queue;
    pthread_t thread;
    struct shmc_taken taken;
};

static void *sleeper_run(void *argument)
{
    struct sleeper *sleeper = argument;

    while (shmc_queue_take(sleeper->queue, 0, &sleeper->taken) == SHMC_EMPTY)
        (void)shmc_queue_wait(sleeper->queue, shmc_monotonic_ns() + 60 * SECOND);
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_done(sleeper->queue, sleeper->taken.slot, sleeper->taken.version));
    return NULL;
}

static unsigned lamps(const struct shmc_queue *queue)
{
    return (unsigned)__builtin_popcountll(shmc_load_racy(&queue->header->sleeping[0]));
}

static void test_one_ring_for_one_key(const struct pool *pool)
{
    struct sleeper sleepers[2];
    struct shmc_queue *queue = pool_join(pool);
    struct shmc_queue_stats before, after;

    forget_dues(queue); /* or the keeper would pass its role on */
    for (unsigned i = 0; i < 2; i++) {
        sleepers[i].queue = pool_join(pool);
        CHECK_EQUAL(0, pthread_create(&sleepers[i].thread, NULL, sleeper_run, &sleepers[i]));
    }
    AWAIT(lamps(queue) == 2);
    shmc_queue_stats(queue, &before);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "one", 0));
    shmc_queue_stats(queue, &after);
    CHECK_EQUAL(before.posts + 1, after.posts);
    AWAIT((shmc_queue_stats(queue, &after), after.gets == before.gets + 1));
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "two", 0));
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(0, pthread_join(sleepers[i].thread, NULL));
        pool_leave(sleepers[i].queue);
    }
    pool_leave(queue);
}

/* ---- promises to look soon (queuelinger.c) -------------------------------------------------------- */

static void test_a_promise_stands_until_its_maker_comes(struct shmc_queue *a, struct shmc_queue *b)
{
    const uint64_t now_ns = shmc_monotonic_ns();

    CHECK(!shmc_queue_promised(a, now_ns));
    shmc_queue_promise(a, b->seat_index, now_ns);
    CHECK(shmc_queue_promised(a, now_ns));
    CHECK(!shmc_queue_promised(a, now_ns + SECOND / 1000)); /* LINGER1 */
    CHECK(!shmc_queue_promised(a, now_ns - SECOND)); /* a time that no promise has */
    shmc_queue_come(a);
    CHECK(shmc_queue_promised(a, now_ns)); /* another worker's */
    shmc_queue_come(b);
    CHECK(!shmc_queue_promised(a, now_ns));
}

static void *waiter_run(void *argument)
{
    CHECK_EQUAL(SHMC_OK, shmc_queue_wait(argument, shmc_monotonic_ns() + 60 * SECOND));
    return NULL;
}

/* Whether it was asleep without a promise before its first tick; then a key is added for it. */
static bool sleeps_without_a_promise(struct shmc_queue *a, struct shmc_queue *b)
{
    bool seen = false;
    pthread_t thread;

    shmc_queue_look(b); /* and does not spin */
    shmc_queue_promise(a, b->seat_index, shmc_monotonic_ns());
    CHECK_EQUAL(0, pthread_create(&thread, NULL, waiter_run, b));
    AWAIT((seen = lamps(a) == 1 && shmc_load_acquire(&a->header->coming) == 0) ||
          shmc_load_acquire(&b->waited_ns) != UINT64_MAX);
    if (seen)
        CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    CHECK_EQUAL(0, pthread_join(thread, NULL));
    return seen;
}

/* LINGER2: rung before it was asleep, it would be relied upon in its sleep. */
static void test_going_to_sleep_leaves_no_promise(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken taken;
    unsigned tries = 1;

    for (; !sleeps_without_a_promise(a, b); tries++) /* a slow machine: its tick was over */
        CHECK(tries < 20);
    pool_expect(b, "k", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
}

static void light_lamp(const struct shmc_queue *of)
{
    shmc_atomic *lamps_at = &of->header->sleeping[of->seat_index / 64];

    shmc_store_racy(lamps_at, shmc_load_racy(lamps_at) | UINT64_C(1) << of->seat_index % 64);
}

/* QWAIT9: the key that counted on it goes to another worker. */
static void test_a_worker_that_leaves_passes_promises_on(const struct pool *pool,
                                                         struct shmc_queue *a, bool closes)
{
    struct shmc_queue *leaver = pool_join(pool);
    struct shmc_taken taken;

    light_lamp(a);
    shmc_queue_promise(leaver, leaver->seat_index, shmc_monotonic_ns());
    const uint32_t before = shmc_load32_racy(&a->seat->bell);
    CHECK_EQUAL(SHMC_OK, pool_add(leaver, "k", 0));
    if (!closes) {
        shmc_queue_stop(leaver);
        CHECK_EQUAL(SHMC_OVER, pool_empty(leaver));
        CHECK_EQUAL(before + 1, shmc_load32_racy(&a->seat->bell));
    }
    pool_leave(leaver);
    CHECK_EQUAL(before + 1, shmc_load32_racy(&a->seat->bell));
    pool_expect(a, "k", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
}

/* A worker that was rung may have checked when its first ticket was void and the next not
 * written. */
static void test_a_raised_key_is_rung_for(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 0));
    light_lamp(b);
    const uint32_t before = shmc_load32_racy(&b->seat->bell);
    CHECK_EQUAL(SHMC_OK, pool_add(a, "k", 1));
    CHECK_EQUAL(before + 1, shmc_load32_racy(&b->seat->bell));
    pool_expect(b, "k", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(b, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(b));
}

static void pass_keys(struct shmc_queue *queue, unsigned count)
{
    struct shmc_taken taken;

    for (unsigned i = 0; i < count; i++) {
        CHECK_EQUAL(SHMC_OK, pool_add(queue, "k", 0));
        pool_expect(queue, "k", &taken);
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    }
}

static void test_a_reserve_is_where_others_are_quick(struct shmc_queue *a, struct shmc_queue *b)
{
    struct shmc_taken taken;
    uint64_t now_ns = 1000 * SECOND; /* on this clock a step takes no time at all */

    shmc_store_racy(&a->looked_ns, now_ns);
    CHECK_EQUAL(SHMC_SLEEPER, shmc_queue_stand(a, now_ns += SHMC_STEP_NS)); /* quiet */
    pass_keys(a, 8);
    CHECK_EQUAL(SHMC_SLEEPER, shmc_queue_stand(a, now_ns += SHMC_STEP_NS)); /* its own: LINGER3 */
    pass_keys(b, 8);
    CHECK_EQUAL(SHMC_SLEEPER, shmc_queue_stand(a, now_ns += 2 * SHMC_STEP_NS)); /* too slow */
    pass_keys(b, 8);
    CHECK_EQUAL(SHMC_RESERVE, shmc_queue_stand(a, now_ns += SHMC_STEP_NS));
    CHECK(shmc_queue_promised(b, now_ns));
    pass_keys(b, 8);
    CHECK_EQUAL(SHMC_SLEEPER, shmc_queue_stand(b, now_ns)); /* there is one already */
    CHECK_EQUAL(SHMC_RESERVE, shmc_queue_stand_again(a, now_ns += SHMC_STEP_NS));
    pass_keys(b, 7);
    CHECK_EQUAL(SHMC_SLEEPER, shmc_queue_stand_again(a, now_ns += SHMC_STEP_NS));
    CHECK_EQUAL(SHMC_OK, pool_add(b, "left alone", 0));
    CHECK_EQUAL(SHMC_NEEDED, shmc_queue_stand_again(a, now_ns += SHMC_STEP_NS));
    shmc_queue_come(a);
    pool_expect(a, "left alone", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(a, taken.slot, taken.version));
    shmc_queue_look(a);
    shmc_queue_look(b);
}

/* ---- sizes ---------------------------------------------------------------------------------------- */

static void add_crowd(struct shmc_queue *queue, unsigned from, unsigned to)
{
    char key[16];

    for (unsigned i = from; i < to; i++) {
        snprintf(key, sizeof key, "crowd-%u", i);
        CHECK_EQUAL(SHMC_OK, pool_add(queue, key, 0));
    }
}

static unsigned drain_crowd(struct shmc_queue *queue)
{
    struct shmc_taken taken;
    unsigned count = 0;

    for (; shmc_queue_take(queue, 0, &taken) == SHMC_OK; count++)
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    return count;
}

static uint64_t steps_there(const struct shmc_queue *queue)
{
    uint64_t count = 0;

    for (uint64_t slot = 0; slot < queue->slot_count; slot += SHMC_QUEUE_STEP)
        count += shmc_slot_there(queue, slot);
    return count;
}

/* Around each boundary: a step, a ring of tickets, a level of the index, the whole table. */
static void test_as_many_keys_as_there_are_slots(void)
{
    static const unsigned sizes[] = {1,   63,  64,  65,   127,  128,  129, 255,
                                     256, 257, 320, 1023, 1024, 1025, 4095, 4096};
    char key[16];

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pool pool;
        pool_create_small(&pool, 4096, 64, 2);
        struct shmc_queue *queue = pool_join(&pool);
        add_crowd(queue, 0, sizes[i]);
        CHECK_EQUAL(sizes[i], shmc_queue_length(queue));
        CHECK_EQUAL((sizes[i] + 63) / 64, steps_there(queue));
        pool_check(queue);
        snprintf(key, sizeof key, "crowd-%u", sizes[i]);
        CHECK_EQUAL(sizes[i] < 4096 ? SHMC_OK : SHMC_FULL, pool_add(queue, key, 0));
        CHECK_EQUAL(sizes[i] + (sizes[i] < 4096), drain_crowd(queue)); /* SPILL1 */
        pool_leave(queue);
        pool_destroy(&pool);
    }
}

/* SPILL5: tickets of keys that were raised since fill a ring, and lead nowhere. */
static void test_stale_tickets_hide_no_spilled_key(void)
{
    struct shmc_taken taken;
    struct pool pool;
    char key[16];

    pool_create_small(&pool, 256, 64, 2);
    struct shmc_queue *queue = pool_join(&pool);
    for (int64_t priority = -100; priority <= 0; priority += 100) {
        for (unsigned i = 0; i < 64; i++) {
            snprintf(key, sizeof key, "crowd-%u", i);
            CHECK_EQUAL(SHMC_OK, pool_add(queue, key, priority));
        }
    }
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "lower", -200));
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "last", -100)); /* the ring has 64 stale tickets */
    for (unsigned i = 0; i < 64; i++)
        CHECK_EQUAL(SHMC_OK, shmc_queue_take(queue, 0, &taken));
    pool_expect(queue, "last", &taken);
    pool_expect(queue, "lower", &taken);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
    pool_leave(queue);
    pool_destroy(&pool);
}

/* QTABLE7: whatever the keys and the seed, the buckets of a level hold all slots of the level. */
static void test_similar_keys_fill_no_bucket(void)
{
    static const char *const shapes[] = {"crowd/%02u", "%u", "ns/pod-%05u", "team-%u/worker-of-it"};
    const uint64_t own_seed = test_seed;
    char key[64];

    for (unsigned run = 0; run < 4000; run++) {
        struct pool pool;
        test_seed = own_seed + run;
        pool_create(&pool, 64, 1);
        struct shmc_queue *queue = pool_join(&pool);
        for (unsigned i = 0; i < 64; i++) {
            snprintf(key, sizeof key, shapes[run % 4], i);
            CHECK_EQUAL(SHMC_OK, pool_add(queue, key, 0));
        }
        pool_leave(queue);
        pool_destroy(&pool);
    }
    test_seed = own_seed;
}

/* SPILL2: a key that never stops coming does not keep a spilled one from its turn. */
static void test_spilled_keys_have_their_turn(void)
{
    struct shmc_taken taken;
    struct pool pool;
    unsigned turns = 0;
    bool found = false;

    pool_create_small(&pool, 1024, 64, 2);
    struct shmc_queue *queue = pool_join(&pool);
    add_crowd(queue, 0, 200);
    CHECK(shmc_load_racy(&queue->header->spilled) != 0);
    for (; !found; turns++) {
        CHECK_EQUAL(SHMC_OK, shmc_queue_take(queue, 0, &taken));
        found = taken.length == 9 && memcmp(taken.key, "crowd-199", 9) == 0;
        CHECK_EQUAL(SHMC_OK,
                    shmc_queue_add(queue, taken.key, taken.length, 0)); /* at once, again */
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
        CHECK(turns < 1000);
    }
    shmc_store_racy(&queue->header->spilled, UINT64_MAX); /* noise */
    CHECK_EQUAL(200, drain_crowd(queue));
    CHECK_EQUAL(0, shmc_load_racy(&queue->header->spilled));
    pool_leave(queue);
    pool_destroy(&pool);
}

static uint64_t file_memory(const struct pool *pool)
{
    struct stat file;

    CHECK_EQUAL(0, fstat(pool->file.fd, &file));
    return (uint64_t)file.st_blocks * 512;
}

/* Memory comes with keys, goes with them, and a late word from before matches nothing after
 * (STEP4). */
static void test_memory_is_given_back(void)
{
    const uint8_t *key = (const uint8_t *)"crowd-1000";
    struct shmc_keyref ref;
    struct pool pool;

    pool_create_small(&pool, 1024 * 4, 64, 2);
    struct shmc_queue *queue = pool_join(&pool);
    queue->keep = 64;
    add_crowd(queue, 0, 64);
    const uint64_t small = file_memory(&pool);
    add_crowd(queue, 64, 2000);
    CHECK(file_memory(&pool) > small + 1900 * 128);
    CHECK_EQUAL(SHMC_OK,
                shmc_key_find(queue, key, 10, shmc_queue_hash(queue, key, 10), &ref));
    const uint64_t life = ref.life;
    CHECK_EQUAL(2000, drain_crowd(queue));
    const uint64_t version = KEY_VERSION(shmc_load_racy(&queue->slots[ref.slot].word));
    CHECK_EQUAL(32, steps_there(queue)); /* not checked yet */
    shmc_queue_scan(queue, shmc_monotonic_ns());
    CHECK_EQUAL(1, steps_there(queue));
    uint64_t index = 0;
    for (unsigned level = 1; level < queue->level_count; level++)
        index += queue->levels[level].size;
    CHECK(file_memory(&pool) <= small + index); /* which the next one to open it alone gives back */
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_queue_done(queue, ref.slot, version));
    add_crowd(queue, 0, 2000);
    CHECK(KEY_VERSION(shmc_load_racy(&queue->slots[ref.slot].word)) > version);
    CHECK(shmc_load_racy(&queue->slots[ref.slot].life) > life);
    pool_check(queue);
    pool_leave(queue);
    pool_destroy(&pool);
}

/* In a queue that is not small, idle keys lose their slots before memory is added. */
static void test_idle_keys_make_room_before_it_grows(void)
{
    struct pool pool;

    pool_create(&pool, 4096, 2);
    struct shmc_queue *queue = pool_join(&pool);
    queue->keep = 128;
    for (unsigned i = 0; i < 2000; i += 10) {
        add_crowd(queue, i, i + 10);
        CHECK_EQUAL(10, drain_crowd(queue));
    }
    CHECK_EQUAL(2, steps_there(queue));
    pool_leave(queue);
    pool_destroy(&pool);
}

/* Only a shutdown of this queue counts. */
static void test_noise_is_not_a_shutdown(void)
{
    struct pool pool;

    pool_create(&pool, 64, 2);
    struct shmc_queue *queue = pool_join(&pool);
    uint64_t random = test_random_state(1);

    for (unsigned i = 0; i < 1000; i++) {
        shmc_store_racy(&queue->header->shutdown, i < 8 ? i : test_random(&random));
        CHECK(!shmc_queue_shutting_down(queue));
    }
    shmc_store_racy(&queue->header->shutdown, 0);
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
    for (int drain = 0; drain < 2; drain++) {
        shmc_queue_shut_down(queue, drain);
        CHECK_EQUAL(SHMC_OVER, pool_empty(queue));
        CHECK_EQUAL(drain, shmc_queue_draining(queue));
    }
    pool_leave(queue);
    pool_destroy(&pool);
}

/* A vandal that lights lamps again and again delays nobody. */
static void *light_lamps(void *argument)
{
    struct shmc_queue *queue = argument;

    while (shmc_load_racy(&queue->stopped) == 0) {
        for (unsigned i = 0; i < SHMC_MAX_SEATS / 64; i++)
            shmc_store_racy(&queue->header->sleeping[i], UINT64_MAX);
    }
    return NULL;
}

static void test_lamps_of_a_vandal_hold_up_nobody(const struct pool *pool)
{
    struct shmc_queue *queue = pool_join(pool);
    pthread_t vandal;

    CHECK_EQUAL(0, pthread_create(&vandal, NULL, light_lamps, queue));
    for (unsigned i = 0; i < 100000; i++) {
        shmc_store_racy(&queue->header->coming, 0);
        shmc_queue_post(queue);
    }
    shmc_store_racy(&queue->stopped, 1);
    CHECK_EQUAL(0, pthread_join(vandal, NULL));
    for (unsigned i = 0; i < SHMC_MAX_SEATS / 64; i++)
        shmc_store_racy(&queue->header->sleeping[i], 0);
    shmc_store_racy(&queue->header->coming, 0);
    pool_leave(queue);
}

int main(void)
{
    struct pool pool;

    test_start("test_queue");
    test_sizes_and_header_are_checked();
    pool_create(&pool, 128, 8);
    struct shmc_queue *a = pool_join(&pool), *b = pool_join(&pool);
    test_a_key_goes_round(a, b);
    test_tickets_are_hints(a, b);
    test_a_closed_ticket_holds_up_nobody(a);
    test_a_deadline_ends_a_holding(a, b);
    test_a_firing_that_its_worker_died_in_is_done_again(a);
    test_a_delay_is_over_when_its_key_is_handed_out(a, 0);
    test_a_delay_is_over_when_its_key_is_handed_out(a, 7);
    test_meeting_a_firing_delay_loses_no_key(a);
    test_an_add_replaces_a_delay(a);
    test_each_setting_changes_the_delay(a);
    test_a_hint_that_was_lost_is_found(a);
    test_nobody_sleeps_beside_a_key(a);
    test_a_promise_stands_until_its_maker_comes(a, b);
    test_going_to_sleep_leaves_no_promise(a, b);
    test_a_reserve_is_where_others_are_quick(a, b);
    test_a_worker_that_leaves_passes_promises_on(&pool, a, false);
    test_a_worker_that_leaves_passes_promises_on(&pool, a, true);
    test_a_raised_key_is_rung_for(a, b);
    test_a_delay_changes_an_idle_word(a);
    pool_leave(b);
    pool_leave(a);
    test_the_living_keep_what_they_hold(&pool);
    test_a_wiped_seat_takes_no_key_from_the_living(&pool);
    test_truncations();
    test_a_bell_without_a_page_ends_a_sleep();
    test_keys_of_the_dead_come_back(&pool);
    test_one_ring_for_one_key(&pool);
    test_waits_double_up_to_their_maximum(&pool);
    test_the_bucket_is_for_all_keys(&pool);
    test_noise_is_not_a_shutdown();
    test_lamps_of_a_vandal_hold_up_nobody(&pool);
    test_as_many_keys_as_there_are_slots();
    test_stale_tickets_hide_no_spilled_key();
    test_similar_keys_fill_no_bucket();
    test_spilled_keys_have_their_turn();
    test_memory_is_given_back();
    test_idle_keys_make_room_before_it_grows();
    pool_destroy(&pool);
    return 0;
}
