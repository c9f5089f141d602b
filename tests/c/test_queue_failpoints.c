/*
 * What happens between two stores to the queue's file.
 *
 * A worker that dies before any one of its stores to the queue's file loses no key, keeps none, and
 * leaves no slot behind: what it was told is done is done, all else is handed out once more.
 *
 * The core of this test calls shmc_failpoint() before each store to memory that others see. A child
 * joins the queue, works, and dies by SIGKILL at the n-th of them, for every n; how many of its calls
 * had returned by then it has noted beside the file, and this decides what must be there.
 *
 * A sleeper may get up by itself at each of its ringer's stores, and a key for later come at each of
 * the stores of who goes to sleep.
 */
#include <signal.h>
#include <sys/wait.h>

#include "queue_fixture.h"

#define SLOTS 64u
#define SECOND UINT64_C(1000000000)
#define LONG "namespace/with-a-name-that-is-too-long-for-the-slot-itself-and-lies-beside-it-in-the-file"

/* A fork under a sanitizer takes long: there every so many stores are enough. */
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
static struct shmc_queue *other; /* who does something meanwhile */
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

/* ---- what the child does, and what is true after each of its calls ------------------------ */

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

static const struct shmc_queue_place old_place = {.instance = 61, .position = 62, .whole = 1},
                                     new_place = {.instance = 71, .position = 72, .whole = 1};

static void feed(struct shmc_queue *queue, const struct shmc_queue_place *place)
{
    CHECK_EQUAL(SHMC_OK, shmc_queue_feed_begin(queue));
    CHECK_EQUAL(SHMC_OK, shmc_queue_store_cursor(queue, "pods", 4, place));
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
    feed(queue, &new_place);
    came_back(CURSOR);
    shmc_queue_feed_end(queue);
    pool_leave(queue);
    came_back(LEAVE);
}

enum presence { ABSENT, PRESENT, EITHER };

/* While the call that makes it so is under way, both are right. */
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

/* ---- what others find --------------------------------------------------------------------------- */

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

static bool same_place(const struct shmc_queue_place *a, const struct shmc_queue_place *b)
{
    return a->instance == b->instance && a->position == b->position;
}

static void check_cursor(const struct shmc_queue *queue, uint64_t calls)
{
    struct shmc_queue_place place;

    CHECK_EQUAL(SHMC_OK, shmc_queue_cursor(queue, "pods", 4, &place));
    if (calls == CURSOR) /* not whole: the next feeder adds everything anew */
        CHECK(!place.whole || same_place(&place, &old_place) || same_place(&place, &new_place));
    else
        CHECK(place.whole && same_place(&place, calls > CURSOR ? &new_place : &old_place));
}

/* No slot went with the dead: each can be had by another key, and as many as before have room. */
static void check_room(struct shmc_queue *queue)
{
    struct shmc_taken taken;
    char key[16];

    for (uint64_t slot = 0; slot < queue->slot_count; slot++) {
        const uint64_t word = shmc_load_acquire(&queue->slots[slot].word);
        const struct shmc_place place = {slot, shmc_load_acquire(&queue->slots[slot].life)};
        CHECK(KEY_STATE(word) == KEY_FREE || KEY_STATE(word) == KEY_KNOWN);
        CHECK(KEY_STATE(word) == KEY_FREE || !shmc_key_delayed(queue, place));
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

    shmc_queue_sweep(queue, now_ns + SECOND); /* a sweep's time has come again */
    shmc_queue_scan(queue, now_ns);
    shmc_queue_scan(queue, now_ns); /* a count is put right when it is wrong twice */
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
    feed(queue, &old_place);
    shmc_queue_feed_end(queue);
}

/* ---- what others do meanwhile ------------------------------------------------------------------ */

static void other_gets_up(void)
{
    shmc_queue_unsleep(other, other->seat_index);
    shmc_queue_come(other);
}

/* J5 */
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

/* W4, W8: none of the stores on the way to sleep is too late for a new due time. */
static void test_nobody_sleeps_on_an_old_due_time(struct shmc_queue *queue)
{
    meanwhile = other_adds_a_key_for_later;
    for (uint64_t number = 1; number <= 2; number++) { /* bit of the lamp; the keeper's office */
        for (;;) {
            shmc_store_racy(&queue->header->next_due, number == 1 ? DUE_NEVER : DUE_NEVER - 1);
            for (uint64_t i = 0; i < queue->slot_count / SHMC_QUEUE_BLOCK; i++)
                shmc_store_racy(&queue->dues[i], DUE_NEVER);
            shmc_queue_look(queue); /* and does not spin */
            until_meanwhile = number;
            const enum shmc_status status =
                shmc_queue_wait(queue, shmc_monotonic_ns() + SECOND / 5);
            if (until_meanwhile == 0) {
                CHECK_EQUAL(SHMC_OK, status);
                break;
            } /* else its time was over before it lay down */
        }
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
    munmap(returned, 4096);
    free(before);
    return 0;
}
