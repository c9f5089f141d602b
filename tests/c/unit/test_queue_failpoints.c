/*
 * Deaths and interruptions between two stores to the queue's file.
 *
 * A worker that dies before any one of its stores to the queue's file loses no key, keeps none, and
 * leaks no slot: everything that it reported as done is done, all else is handed out once more.
 *
 * The core of this test calls shmc_failpoint() before each store to shared memory. A child
 * joins the queue, works, and dies by SIGKILL at the n-th of them, for every n; it counts its
 * returned calls outside the file, and that count determines what the queue must hold.
 *
 * Another child makes the queue grow and shrink, and dies at each of those stores. A third one opens
 * a queue whose index is larger than its keys need.
 *
 * A sleeper may wake by itself at each of its ringer's stores, and a delayed key may come at each
 * of the stores of a worker that goes to sleep.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "queue_fixture.h"

#define SLOTS 64u
#define SECOND UINT64_C(1000000000)
#define LONG "namespace/with-a-name-that-is-too-long-for-the-slot-itself-and-lies-beside-it-in-the-file"

/* A fork under a sanitizer takes long: there only every few stores are tried. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRIDE 7u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STRIDE 7u
#endif
#endif
#ifndef STRIDE
#define STRIDE 1u
#endif

static struct pool pool;
static size_t size;
static uint64_t left_to_live; /* stores; 0: for ever */
static uint64_t until_meanwhile; /* stores; 0: never */
static void (*meanwhile)(void);
static struct shmc_queue *other; /* acts in between */
static shmc_atomic *returned; /* calls of the child, in memory that it shares with us */

void shmc_failpoint(const volatile void *about_to_store);
void shmc_failpoint(const volatile void *about_to_store)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)about_to_store;

    if (at < pool.file.base || at >= pool.file.base + size)
        return; /* private memory */
    if (until_meanwhile != 0 && --until_meanwhile == 0)
        meanwhile();
    if (left_to_live != 0 && --left_to_live == 0)
        raise(SIGKILL);
}

/* ---- the child's calls, and the facts after each of them ---------------------------------- */

enum call { JOIN, NEW, LONG_KEY, TAKE_FIRST, FIRST_AGAIN, DONE_FIRST, TAKE_SECOND, DONE_SECOND,
            AFTER, TAKE_NEW, LIMITED, DONE_NEW, CURSOR, LEAVE, CALLS };

static void came_back(enum call call)
{
    shmc_fetch_add(returned, 1);
    CHECK_EQUAL(call + 1, shmc_load_racy(returned));
}

static void take(struct shmc_queue *queue, const char *key, struct shmc_taken *taken,
                 enum call call)
{
    pool_expect(queue, key, taken);
    came_back(call);
}

static void done(struct shmc_queue *queue, const struct shmc_taken *taken, enum call call)
{
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken->slot, taken->version));
    came_back(call);
}

static const struct shmc_queue_fed old_fed = {.instance = 61, .position = 62, .whole = 1},
                                   new_fed = {.instance = 71, .position = 72, .whole = 1};

static void feed(struct shmc_queue *queue, const struct shmc_queue_fed *fed)
{
    CHECK_EQUAL(SHMC_OK, shmc_queue_feed_begin(queue));
    CHECK_EQUAL(SHMC_OK, shmc_queue_store_cursor(queue, "pods", 4, fed));
}

static void work(void)
{
    struct shmc_queue *queue = pool_join(&pool);
    struct shmc_taken taken;

    came_back(JOIN);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "new", 0));
    came_back(NEW);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, LONG, 0));
    came_back(LONG_KEY);
    take(queue, "first", &taken, TAKE_FIRST);
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "first", 0));
    came_back(FIRST_AGAIN);
    done(queue, &taken, DONE_FIRST);
    take(queue, "second", &taken, TAKE_SECOND);
    done(queue, &taken, DONE_SECOND);
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_add_after(queue, (const uint8_t *)"later", 5, 0, 500 * SECOND));
    came_back(AFTER);
    take(queue, "new", &taken, TAKE_NEW);
    CHECK_EQUAL(SHMC_OK, shmc_queue_add_limited(queue, (const uint8_t *)"new", 3, 0));
    came_back(LIMITED);
    done(queue, &taken, DONE_NEW);
    feed(queue, &new_fed);
    came_back(CURSOR);
    shmc_queue_feed_end(queue);
    pool_leave(queue);
    came_back(LEAVE);
}

enum presence { ABSENT, PRESENT, EITHER };

/* While the call that changes it is under way, both are right. */
static enum presence from(uint64_t calls, enum call call)
{
    return calls > call ? PRESENT : calls == call ? EITHER : ABSENT;
}

static enum presence until(uint64_t calls, enum call call)
{
    return calls > call ? ABSENT : calls == call ? EITHER : PRESENT;
}

static const char *const names[] = {"first", "second", "new", LONG, "later", "due", "idle"};
#define NAMES (sizeof names / sizeof *names)

static enum presence expected(size_t name, uint64_t calls)
{
    switch (name) {
    case 1:
        return until(calls, DONE_SECOND);
    case 2:
        return from(calls, NEW);
    case 3:
        return from(calls, LONG_KEY);
    case 4:
        return from(calls, AFTER);
    case 6:
        return ABSENT;
    default:
        return PRESENT;
    }
}

/* ---- the view of others ------------------------------------------------------------------------- */

static bool die_at(uint64_t number)
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        left_to_live = number;
        work();
        _exit(0); /* it had fewer stores */
    }
    CHECK_EQUAL(child, waitpid(child, &status, 0));
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
          (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return WIFEXITED(status);
}

static void check_seats(const struct shmc_queue *queue)
{
    for (uint64_t seat = 0; seat < queue->seat_count; seat++) {
        if (seat != queue->seat_index)
            CHECK_EQUAL(0, shmc_load_racy(&queue->seats[seat].in_use));
    }
    CHECK_EQUAL(0, shmc_queue_held(queue));
    pool_check(queue);
}

static void drain(struct shmc_queue *queue, unsigned counts[NAMES])
{
    struct shmc_taken taken;
    size_t name;

    while (shmc_queue_take(queue, 0, &taken) == SHMC_OK) {
        for (name = 0; name < NAMES; name++) {
            if (strlen(names[name]) == taken.length &&
                memcmp(names[name], taken.key, taken.length) == 0)
                break;
        }
        CHECK(name < NAMES);
        counts[name]++;
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    }
}

static bool same_fed(const struct shmc_queue_fed *a, const struct shmc_queue_fed *b)
{
    return a->instance == b->instance && a->position == b->position;
}

static void check_cursor(const struct shmc_queue *queue, uint64_t calls)
{
    struct shmc_queue_fed fed;

    CHECK_EQUAL(SHMC_OK, shmc_queue_cursor(queue, "pods", 4, &fed));
    if (calls == CURSOR) /* not complete: the next feeder adds everything again */
        CHECK(!fed.whole || same_fed(&fed, &old_fed) || same_fed(&fed, &new_fed));
    else
        CHECK(fed.whole && same_fed(&fed, calls > CURSOR ? &new_fed : &old_fed));
}

/* No slot died with the worker: each can be used by another key, and as many as before have
 * room. */
static void check_room(struct shmc_queue *queue)
{
    struct shmc_taken taken;
    char key[16];

    for (uint64_t slot = 0; slot < queue->slot_count; slot++) {
        const uint64_t word = shmc_load_acquire(&queue->slots[slot].word);
        const struct shmc_keyref ref = {slot, shmc_load_acquire(&queue->slots[slot].life)};
        CHECK(KEY_STATE(word) == KEY_FREE || KEY_STATE(word) == KEY_KNOWN);
        CHECK(KEY_STATE(word) == KEY_FREE || !shmc_key_delayed(queue, ref));
    }
    for (unsigned i = 0; i < SLOTS / 2; i++) {
        snprintf(key, sizeof key, "room-%u", i);
        CHECK_EQUAL(SHMC_OK, pool_add(queue, key, 0));
    }
    for (unsigned i = 0; i < SLOTS / 2; i++) {
        CHECK_EQUAL(SHMC_OK, shmc_queue_take(queue, 0, &taken));
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    }
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
}

static void look_after(struct shmc_queue *queue)
{
    const uint64_t calls = shmc_load_racy(returned), now_ns = shmc_monotonic_ns();
    unsigned counts[NAMES] = {0};

    shmc_queue_sweep(queue, now_ns + SECOND); /* time for another sweep */
    shmc_queue_scan(queue, now_ns);
    shmc_queue_scan(queue, now_ns); /* a count is corrected when it is wrong twice */
    check_seats(queue);
    check_cursor(queue, calls);
    shmc_due_fire(queue, now_ns + 1000 * SECOND);
    drain(queue, counts);
    for (size_t name = 0; name < NAMES; name++) {
        const enum presence there = expected(name, calls);
        CHECK(counts[name] <= 1);
        CHECK(there == EITHER || counts[name] == (there == PRESENT));
    }
    check_room(queue);
    check_seats(queue);
}

static void prepare(struct shmc_queue *queue)
{
    struct shmc_taken taken;

    CHECK_EQUAL(SHMC_OK, pool_add(queue, "idle", 0));
    pool_expect(queue, "idle", &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "first", 0));
    CHECK_EQUAL(SHMC_OK, pool_add(queue, "second", 0));
    CHECK_EQUAL(SHMC_OK, shmc_queue_add_after(queue, (const uint8_t *)"due", 3, 0, 1));
    feed(queue, &old_fed);
    shmc_queue_feed_end(queue);
}

/* ---- actions of others meanwhile --------------------------------------------------------------- */

static void other_gets_up(void)
{
    shmc_queue_unsleep(other, other->seat_index);
    shmc_queue_come(other);
}

/* LINGER5 */
static void test_nothing_is_promised_for_who_got_up(struct shmc_queue *queue)
{
    shmc_atomic *coming = &queue->header->coming;
    bool ended = false;
    uint64_t number = 1;

    meanwhile = other_gets_up;
    for (; !ended; number++) {
        CHECK_EQUAL(0, shmc_load_racy(coming));
        shmc_store_racy(&queue->header->sleeping[0], UINT64_C(1) << other->seat_index);
        until_meanwhile = number;
        shmc_queue_post(queue);
        ended = until_meanwhile != 0;
        CHECK_EQUAL(ended, shmc_load_racy(coming) != 0);
        CHECK_EQUAL(0, shmc_load_racy(&queue->header->sleeping[0]));
        until_meanwhile = 0;
    }
    CHECK(number > 4); /* a promise, a lamp, a bell */
    shmc_queue_come(other);
}

static void other_adds_a_key_for_later(void)
{
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_add_after(other, (const uint8_t *)"later", 5, 0, 1000 * SECOND));
}

/* QWAIT4, QWAIT8: none of the stores on the way to sleep is too late for a new due time. */
static void test_nobody_sleeps_on_an_old_due_time(struct shmc_queue *queue)
{
    meanwhile = other_adds_a_key_for_later;
    for (uint64_t number = 1; number <= 2; number++) { /* bit of the lamp; the keeper's office */
        for (;;) {
            shmc_store_racy(&queue->header->next_due, number == 1 ? DUE_NEVER : DUE_NEVER - 1);
            pool_forget_dues(queue);
            shmc_queue_look(queue); /* and does not spin */
            until_meanwhile = number;
            const enum shmc_status status =
                shmc_queue_wait(queue, shmc_monotonic_ns() + SECOND / 5);
            if (until_meanwhile == 0) {
                CHECK_EQUAL(SHMC_OK, status);
                break;
            } /* else its time was over before it slept */
        }
    }
}

/* ---- growth and its end ------------------------------------------------------------------------ */

#define CROWD 70u  /* too many for a step, a level and a ring */
#define GROWN 256u

static shmc_atomic *begun, *came_to_end; /* for each key: whether a call began, or returned */
enum stage { UNKNOWN, ADDED, DONE };

static void name_crowd(unsigned number, char name[16])
{
    snprintf(name, 16, "crowd-%u", number);
}

static unsigned crowd_number(const struct shmc_taken *taken)
{
    char name[16] = {0};

    CHECK(taken->length > 6 && taken->length < sizeof name);
    memcpy(name, taken->key, taken->length);
    return (unsigned)strtoul(name + 6, NULL, 10);
}

static void grow_and_shrink(void)
{
    struct shmc_queue *queue = pool_join(&pool);
    struct shmc_taken taken;
    char name[16];

    queue->keep = SLOTS;
    for (unsigned i = 0; i < CROWD; i++) {
        name_crowd(i, name);
        shmc_store_racy(&begun[i], ADDED);
        CHECK_EQUAL(SHMC_OK, pool_add(queue, name, 0));
        shmc_store_racy(&came_to_end[i], ADDED);
    }
    while (shmc_queue_take(queue, 0, &taken) == SHMC_OK) {
        const unsigned number = crowd_number(&taken);
        shmc_store_racy(&begun[number], DONE);
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
        shmc_store_racy(&came_to_end[number], DONE);
    }
    CHECK(shmc_slot_there(queue, SLOTS));
    shmc_queue_scan(queue, shmc_monotonic_ns());
    CHECK(!shmc_slot_there(queue, SLOTS));
    pool_leave(queue);
}

static void drain_crowd(struct shmc_queue *queue)
{
    unsigned counts[CROWD] = {0};
    struct shmc_taken taken;

    while (shmc_queue_take(queue, 0, &taken) == SHMC_OK) {
        counts[crowd_number(&taken)]++;
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    }
    for (unsigned i = 0; i < CROWD; i++) {
        const bool sure = shmc_load_racy(&begun[i]) == shmc_load_racy(&came_to_end[i]);
        CHECK(counts[i] <= 1);
        CHECK(!sure || counts[i] == (shmc_load_racy(&came_to_end[i]) == ADDED));
    }
}

/* Each step is present or gone, and the queue has room for as many keys as slots. */
static void check_steps(struct shmc_queue *queue)
{
    struct shmc_taken taken;
    char key[16];

    for (uint64_t step = 0; step < GROWN / SHMC_QUEUE_STEP; step++)
        CHECK(shmc_load_racy(&queue->steps[step].state) <= STEP_THERE);
    for (unsigned i = 0; i < GROWN; i++) {
        snprintf(key, sizeof key, "room-%u", i);
        shmc_store_racy(&queue->full_ns, 0);
        CHECK_EQUAL(SHMC_OK, pool_add(queue, key, 0));
    }
    pool_check(queue);
    for (unsigned i = 0; i < GROWN; i++) {
        CHECK_EQUAL(SHMC_OK, shmc_queue_take(queue, 0, &taken));
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    }
    CHECK_EQUAL(SHMC_EMPTY, pool_empty(queue));
}

static bool die_growing(uint64_t number)
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        left_to_live = number;
        grow_and_shrink();
        _exit(0);
    }
    CHECK_EQUAL(child, waitpid(child, &status, 0));
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
          (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return WIFEXITED(status);
}

/* STEP1, STEP2, SPILL4: a death while memory comes or goes loses no key and no slot. */
static void test_deaths_while_the_queue_grows_and_shrinks(void)
{
    uint64_t number = 1;

    pool_create_small(&pool, GROWN, SLOTS, 4);
    size = pool.file.file_size;
    struct shmc_queue *queue = pool_join(&pool);
    uint8_t *before = malloc(size);
    CHECK(before != NULL);
    memcpy(before, pool.file.base, size);
    for (bool over = false; !over; number += STRIDE) {
        memcpy(pool.file.base, before, size);
        memset(returned, 0, 4096);
        over = die_growing(number);
        const uint64_t now_ns = shmc_monotonic_ns();
        shmc_queue_sweep(queue, now_ns + SECOND);
        shmc_queue_scan(queue, now_ns);
        shmc_queue_scan(queue, now_ns);
        check_seats(queue);
        drain_crowd(queue);
        check_steps(queue);
        check_seats(queue);
    }
    printf("died growing and shrinking at up to %" PRIu64 " stores\n", number - STRIDE - 1);
    CHECK(number > 1000);
    pool_leave(queue);
    pool_destroy(&pool);
    free(before);
}

static bool closed; /* whether the step went meanwhile */

static void other_gives_back(void)
{
    shmc_queue_scan(other, shmc_monotonic_ns());
    closed = !shmc_slot_there(other, SLOTS);
}

/* A queue of two steps, in the second of which only one idle key is: "crowd-64". */
static struct shmc_queue *two_steps(void)
{
    struct shmc_taken taken;
    char name[16];

    pool_create_small(&pool, GROWN, SLOTS, 4);
    size = pool.file.file_size;
    struct shmc_queue *queue = pool_join(&pool);
    other = pool_join(&pool);
    for (unsigned i = 0; i < SLOTS + 1; i++) {
        name_crowd(i, name);
        CHECK_EQUAL(SHMC_OK, pool_add(queue, name, 0));
    }
    while (shmc_queue_take(queue, 0, &taken) == SHMC_OK)
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    closed = false;
    return queue;
}

static void leave_two_steps(struct shmc_queue *queue, const char *key)
{
    struct shmc_taken taken;

    pool_expect(queue, key, &taken);
    CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    pool_check(queue);
    pool_leave(other);
    pool_leave(queue);
    pool_destroy(&pool);
}

/* STEP5: a step may go between any two stores of a worker that is about to claim a slot in it. */
static void test_no_key_goes_into_a_hole(void)
{
    unsigned holes = 0;

    meanwhile = other_gives_back;
    for (uint64_t number = 1;; number++) {
        struct shmc_queue *queue = two_steps();
        other->keep = 0;
        until_meanwhile = number;
        CHECK_EQUAL(SHMC_OK, pool_add(queue, "new", 0));
        const bool over = until_meanwhile != 0;
        until_meanwhile = 0;
        holes += closed;
        leave_two_steps(queue, "new");
        if (over)
            break;
    }
    CHECK(holes > 0);
}

static void other_adds_an_idle_key(void)
{
    CHECK_EQUAL(SHMC_OK, pool_add(other, "crowd-64", 0));
}

/* STEP2: its key may be added between any two stores of a worker that gives a step back. */
static void test_no_key_goes_with_its_step(void)
{
    unsigned kept = 0;

    meanwhile = other_adds_an_idle_key;
    for (uint64_t number = 1;; number++) {
        struct shmc_queue *queue = two_steps();
        queue->keep = 0;
        until_meanwhile = number;
        shmc_queue_scan(queue, shmc_monotonic_ns());
        const bool over = until_meanwhile != 0;
        until_meanwhile = 0;
        kept += shmc_slot_there(queue, SLOTS);
        if (over)
            other_adds_an_idle_key();
        leave_two_steps(queue, "crowd-64");
        if (over)
            break;
    }
    CHECK(kept > 0);
}

static void other_scans_and_adds_keys(void)
{
    char name[16];

    shmc_queue_scan(other, shmc_monotonic_ns());
    for (unsigned i = 0; i < SLOTS + 1; i++) {
        name_crowd(i, name);
        CHECK_EQUAL(SHMC_OK, pool_add(other, name, 0));
    }
}

/* STEP2: the claims of a worker that leaves are a dead worker's to all others, which free them.
 * If it gave steps back, it would take keys of theirs along. */
static void test_no_key_goes_with_a_worker_that_leaves(void)
{
    meanwhile = other_scans_and_adds_keys;
    for (uint64_t number = 1;; number++) {
        struct shmc_queue *queue = two_steps();
        unsigned taken_keys = 0;
        struct shmc_taken taken;
        queue->keep = 0;
        until_meanwhile = number;
        pool_leave(queue);
        const bool over = until_meanwhile != 0;
        until_meanwhile = 0;
        for (; shmc_queue_take(other, 0, &taken) == SHMC_OK; taken_keys++)
            CHECK_EQUAL(SHMC_OK, shmc_queue_done(other, taken.slot, taken.version));
        CHECK_EQUAL(over ? 0 : SLOTS + 1, taken_keys);
        pool_check(other);
        pool_leave(other);
        pool_destroy(&pool);
        if (over)
            break;
    }
}

static void other_adds_many_keys(void)
{
    char name[16];

    for (unsigned i = 0; i < GROWN; i++) {
        name_crowd(i, name);
        CHECK_EQUAL(SHMC_OK, pool_add(other, name, 0));
    }
}

/* SWEEP4: steps that others open while one worker puts the words of steps right keep their keys. */
static void test_no_key_goes_with_a_rebuild(void)
{
    meanwhile = other_adds_many_keys;
    for (uint64_t number = 1;; number++) {
        struct shmc_queue *queue = two_steps();
        bool came[GROWN] = {false};
        struct shmc_taken taken;
        until_meanwhile = number;
        shmc_queue_rebuild(queue, shmc_monotonic_ns());
        const bool over = until_meanwhile != 0;
        until_meanwhile = 0;
        while (shmc_queue_take(other, 0, &taken) == SHMC_OK) {
            came[crowd_number(&taken)] = true;
            CHECK_EQUAL(SHMC_OK, shmc_queue_done(other, taken.slot, taken.version));
        }
        for (unsigned i = 0; i < (over ? SLOTS + 1 : GROWN); i++)
            CHECK(came[i]);
        pool_check(other);
        pool_leave(queue);
        pool_leave(other);
        pool_destroy(&pool);
        if (over)
            break;
    }
}

/* ---- the index --------------------------------------------------------------------------------- */

/* A queue that has been large, and has given its slots back: only its index is large yet. */
static struct shmc_queue *grown(void)
{
    struct shmc_taken taken;

    pool_create_small(&pool, GROWN, SLOTS, 4);
    size = pool.file.file_size;
    struct shmc_queue *queue = pool_join(&pool);
    queue->keep = SLOTS;
    other = queue;
    other_adds_many_keys();
    while (shmc_queue_take(queue, 0, &taken) == SHMC_OK)
        CHECK_EQUAL(SHMC_OK, shmc_queue_done(queue, taken.slot, taken.version));
    shmc_queue_scan(queue, shmc_monotonic_ns());
    CHECK(!shmc_slot_there(queue, SLOTS));
    CHECK_EQUAL(2, shmc_load_racy(&queue->header->levels));
    return queue;
}

static bool die_opening(uint64_t number)
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        left_to_live = number;
        (void)pool_join(&pool);
        _exit(0);
    }
    CHECK_EQUAL(child, waitpid(child, &status, 0));
    return WIFEXITED(status);
}

static uint64_t memory(void)
{
    struct stat file;

    CHECK_EQUAL(0, fstat(pool.file.fd, &file));
    return (uint64_t)file.st_blocks * 512;
}

/* STEP7: the next worker that opens the queue alone gives the memory back, and it comes again with
 * the keys that need it. */
static void test_deaths_while_the_index_gives_memory_back(void)
{
    uint64_t number = 1;

    pool_leave(grown());
    uint8_t *before = malloc(size);
    CHECK(before != NULL);
    memcpy(before, pool.file.base, size);
    for (bool over = false; !over; number++) {
        memcpy(pool.file.base, before, size); /* from now on no part of it is a hole */
        const uint64_t full = memory();
        over = die_opening(number);
        struct shmc_queue *queue = other = pool_join(&pool);
        CHECK_EQUAL(1, shmc_load_racy(&queue->header->levels));
        CHECK(memory() <= full - queue->levels[1].size);
        other_adds_many_keys();
        CHECK_EQUAL(2, shmc_load_racy(&queue->header->levels));
        pool_check(queue);
        pool_leave(queue);
    }
    CHECK(number > 5);
    pool_destroy(&pool);
    free(before);
}

/* STEP7: a worker whose seat was overwritten has the queue still, and may add keys at any time. */
static void test_no_entry_goes_while_another_worker_lives(void)
{
    meanwhile = other_adds_many_keys;
    for (uint64_t number = 1;; number++) {
        struct shmc_queue *queue = grown();
        shmc_store_racy(&queue->seat->in_use, 0);
        until_meanwhile = number;
        struct shmc_queue *second = pool_join(&pool);
        const bool over = until_meanwhile != 0;
        until_meanwhile = 0;
        if (over)
            other_adds_many_keys();
        CHECK_EQUAL(GROWN, shmc_queue_length(queue));
        pool_check(queue);
        pool_leave(second);
        pool_leave(queue);
        pool_destroy(&pool);
        if (over)
            break;
    }
}

int main(void)
{
    uint64_t number = 1;

    test_start("test_queue_failpoints");
    pool_create(&pool, SLOTS, 4);
    size = pool.file.file_size;
    returned = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(returned != MAP_FAILED);
    begun = returned + 1;
    came_to_end = begun + CROWD;
    struct shmc_queue *queue = pool_join(&pool);
    prepare(queue);
    uint8_t *before = malloc(size);
    CHECK(before != NULL);
    memcpy(before, pool.file.base, size);
    for (bool ended = false; !ended; number += STRIDE) {
        memcpy(pool.file.base, before, size);
        shmc_store_racy(returned, 0);
        ended = die_at(number);
        CHECK(!ended || shmc_load_racy(returned) == CALLS);
        look_after(queue);
    }
    printf("died at up to %" PRIu64 " stores\n", number - STRIDE - 1);
    CHECK(number > 100);
    other = pool_join(&pool);
    test_nothing_is_promised_for_who_got_up(queue);
    test_nobody_sleeps_on_an_old_due_time(queue);
    pool_leave(other);
    pool_leave(queue);
    pool_destroy(&pool);
    free(before);
    test_deaths_while_the_queue_grows_and_shrinks();
    test_no_key_goes_into_a_hole();
    test_no_key_goes_with_its_step();
    test_no_key_goes_with_a_worker_that_leaves();
    test_no_key_goes_with_a_rebuild();
    test_deaths_while_the_index_gives_memory_back();
    test_no_entry_goes_while_another_worker_lives();
    munmap(returned, 4096);
    return 0;
}
