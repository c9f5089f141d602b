/*
 * A value that a reader accepted after shmc_valid() was never torn, old or another's, although the
 * writer reuses every block as soon as it may.
 *
 * One writer puts, changes and deletes objects in an arena that is too small for garbage; an
 * object can be checked by itself: a, b = ~a, k = the number of its key, s = the digits of a over
 * and over. Readers look up, scan, take deltas and keep old roots; now and then one sleeps so long
 * that its pins are revoked and its cursor is lapped.
 *
 * A run without any reuse, lapping, revocation or stale read proves nothing, and fails.
 */
#include "core_fixture.h"

#define READERS 3u
#define KEYS 48u
#define HELD 6u
#define TEXT_MAX 900u
#define DELTAS 16u

struct held {
    struct shmc_pinned at;
    uint64_t key;
    shmc_word value;
};

struct worker {
    struct shmc_reader *reader;
    uint64_t stream, random, cursor, last_generation;
    uint64_t gets, scans, deltas, lapped, revoked, stale, odd, kept, naps;
    struct held held[HELD];
    unsigned count;
};

static struct core core;
static uint32_t resource;
static struct test_team team;
static struct worker workers[READERS];
static atomic_bool stop;
static uint64_t commits, full;

/* ---- the writer ------------------------------------------------------------------------------ */

static size_t key_text(uint64_t k, char text[48])
{
    const char *stem = k % 2 == 0 ? "k" : "namespace/a-longer-name-";

    return (size_t)snprintf(text, 48, "%s%" PRIu64, stem, k);
}

static size_t digits(uint64_t n, size_t length, char text[TEXT_MAX + 24])
{
    size_t at = 0;

    while (at < length)
        at += (size_t)sprintf(text + at, "%" PRIu64 ",", n);
    return length;
}

static enum shmc_status put(uint64_t k, uint64_t n, size_t length)
{
    static const char *const names[] = {"a", "b", "k", "s"};
    char text[TEXT_MAX + 24], key[48];
    shmc_word keys[4], words[4], value;
    shmc_offset shape;
    enum shmc_status status = SHMC_OK;

    for (size_t i = 0; i < 4; i++)
        keys[i] = shmc_short_word((const uint8_t *)names[i], 1);
    words[0] = shmc_integer_word((int64_t)n);
    words[1] = shmc_integer_word(~(int64_t)n);
    words[2] = shmc_integer_word((int64_t)k);
    status = core_bytes(&core, text, digits(n, length, text), &words[3]);
    if (status == SHMC_OK)
        status = shmc_make_shape(core.writer, keys, 4, &shape);
    if (status == SHMC_OK)
        status = shmc_make_object(core.writer, shape, words, 4, &value);
    if (status == SHMC_OK)
        status = core_put_word(&core, resource, key, key_text(k, key), value);
    return status;
}

static enum shmc_status change(uint64_t *random, uint64_t n)
{
    const uint64_t k = test_random(random) % KEYS;
    char key[48];

    if (test_random(random) % 4 != 0)
        return put(k, n, 10 + test_random(random) % (TEXT_MAX - 10));
    const size_t length = key_text(k, key);
    const enum shmc_status status =
        shmc_delete(core.writer, resource, key, length, NULL, 0, 0);
    return status == SHMC_NOT_FOUND ? SHMC_OK : status;
}

static void *run_writer(void *argument)
{
    const uint64_t end = test_now_ns() + test_stress_ns();
    uint64_t random = test_random_state(100), now = 0, n = 1;

    (void)argument;
    pthread_barrier_wait(&team.start);
    while (now < end) {
        enum shmc_status status = SHMC_OK;

        core_begin(&core);
        for (uint64_t left = 1 + test_random(&random) % 6; status == SHMC_OK && left > 0; left--)
            status = change(&random, n++);
        if (status != SHMC_OK)
            CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        else
            status = shmc_commit(core.writer, now);
        now = test_now_ns();
        commits += status == SHMC_OK;
        if (status != SHMC_OK) {
            CHECK_EQUAL(SHMC_FULL, status);
            full++;
        }
        if (status != SHMC_OK || n % 8 == 0)
            CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, now));
    }
    atomic_store(&stop, true);
    return NULL;
}

/* ---- a reader's view ------------------------------------------------------------------------- */

/* Whether the value is consistent, for key k. Bounded, whatever the bytes are. */
static bool tells_truth(const struct shmc_span *span, shmc_word value, uint64_t k)
{
    uint8_t text[TEXT_MAX];
    char expected[TEXT_MAX + 24];
    struct shmc_string string;
    shmc_word words[4];

    for (size_t i = 0; i < 4; i++)
        words[i] = shmc_object_find(span, value, (const uint8_t *)&"abks"[i], 1);
    if (shmc_tag(words[0]) != SHMC_TAG_INTEGER || shmc_tag(words[1]) != SHMC_TAG_INTEGER ||
        words[2] != shmc_integer_word((int64_t)k) || !shmc_string_open(span, words[3], &string) ||
        string.length > TEXT_MAX)
        return false;
    const int64_t n = shmc_integer_value(words[0]);
    shmc_string_copy(span, &string, 0, string.length, text);
    digits((uint64_t)n, string.length, expected);
    return shmc_integer_value(words[1]) == ~n && memcmp(text, expected, string.length) == 0;
}

/* The number of a key word; KEYS if it is not a key of this test. */
static uint64_t key_number(const struct shmc_span *span, shmc_word key)
{
    uint8_t text[48];
    char expected[48];
    struct shmc_string string;

    if (!shmc_string_open(span, key, &string) || string.length >= sizeof text)
        return KEYS;
    shmc_string_copy(span, &string, 0, string.length, text);
    for (uint64_t k = 0; k < KEYS; k++) {
        if (key_text(k, expected) == string.length && memcmp(text, expected, string.length) == 0)
            return k;
    }
    return KEYS;
}

/* Whether the copy is valid; only an invalid one may be odd. */
static bool accept(struct worker *worker, const struct shmc_pinned *at, bool whole)
{
    if (!shmc_valid(worker->reader->super, at->generation)) {
        worker->stale++;
        worker->odd += !whole;
        return false;
    }
    CHECK(whole);
    worker->kept += shmc_load_racy(&worker->reader->super->floor) > at->generation;
    return true;
}

static void pin(struct worker *worker, struct shmc_pinned *at)
{
    CHECK_EQUAL(SHMC_OK, shmc_pin(worker->reader, at));
    CHECK(at->generation >= worker->last_generation);
    worker->last_generation = at->generation;
}

static enum shmc_status load(struct worker *worker, const struct shmc_pinned *at,
                             struct shmc_record *record)
{
    shmc_offset indices;

    return shmc_record_load(&worker->reader->span, at, resource, record, &indices);
}

/* One look-up in a pinned root; the value's word if it is found and valid. */
static shmc_word get(struct worker *worker, const struct shmc_pinned *at, uint64_t k)
{
    const struct shmc_span *span = &worker->reader->span;
    struct shmc_record record;
    struct shmc_entry entry = {{0}};
    char key[48];
    const size_t length = key_text(k, key);
    enum shmc_status status = load(worker, at, &record);

    if (status == SHMC_OK)
        status = shmc_tree_find(span, &shmc_primary, record.primary, (const uint8_t *)key, length,
                                &entry);
    worker->gets++;
    const bool whole = status == SHMC_NOT_FOUND ||
                       (status == SHMC_OK && tells_truth(span, entry.words[1], k));
    return accept(worker, at, whole) && status == SHMC_OK ? entry.words[1] : SHMC_NOTHING;
}

/* Every object of a pinned root, in order, as many as the root counts. */
static void scan(struct worker *worker, const struct shmc_pinned *at)
{
    const struct shmc_span *span = &worker->reader->span;
    struct shmc_cursor cursor;
    struct shmc_record record;
    struct shmc_entry entry;
    uint64_t seen = 0, found = 0;
    bool whole = true;
    enum shmc_status status = load(worker, at, &record);

    if (status == SHMC_OK)
        status = shmc_cursor_seek(&cursor, span, &shmc_primary, record.primary, NULL, 0);
    while (status == SHMC_OK && found <= KEYS &&
           (status = shmc_cursor_next(&cursor, &entry)) == SHMC_OK) {
        const uint64_t k = key_number(span, entry.words[0]);

        whole = whole && k < KEYS && (seen >> k & 1) == 0 && tells_truth(span, entry.words[1], k);
        seen |= UINT64_C(1) << (k & 63);
        found++;
    }
    worker->scans++;
    accept(worker, at, whole && status == SHMC_EMPTY && found == record.count);
}

static bool delta_whole(const struct shmc_span *span, const struct shmc_delta *delta,
                        const struct shmc_pinned *at)
{
    const uint64_t k = key_number(span, delta->key);
    const bool had = delta->kind != SHMC_ADDED, has = delta->kind != SHMC_DELETED;

    return delta->resource == resource && k < KEYS && delta->generation <= at->generation &&
           (delta->old_value != SHMC_NOTHING) == had && (delta->new_value != SHMC_NOTHING) == has &&
           (!had || tells_truth(span, delta->old_value, k)) &&
           (!has || tells_truth(span, delta->new_value, k));
}

static void take(struct worker *worker, const struct shmc_pinned *at)
{
    struct shmc_delta deltas[DELTAS];
    size_t count = 0;
    enum shmc_status status =
        shmc_ring_take(worker->reader, at, worker->cursor, deltas, DELTAS, &count);

    if (status == SHMC_EMPTY)
        return;
    if (status == SHMC_LAPPED) {
        worker->lapped++;
        worker->cursor = at->head;
        return;
    }
    CHECK_EQUAL(SHMC_OK, status);
    bool whole = true;
    for (size_t i = 0; i < count; i++)
        whole = whole && deltas[i].number == worker->cursor + i &&
                delta_whole(&worker->reader->span, &deltas[i], at);
    if (accept(worker, at, whole)) {
        worker->deltas += count;
        worker->cursor += count;
    }
}

/* ---- readers --------------------------------------------------------------------------------- */

static void let_go(struct worker *worker, unsigned i)
{
    shmc_unpin(worker->reader, &worker->held[i].at);
    worker->held[i] = worker->held[--worker->count];
}

/* Reads the kept roots again; releases the revoked ones. */
static void look_again(struct worker *worker)
{
    for (unsigned i = 0; i < worker->count; i++) {
        struct held *held = &worker->held[i];
        const bool whole = tells_truth(&worker->reader->span, held->value, held->key);

        if (accept(worker, &held->at, whole) &&
            get(worker, &held->at, held->key) == held->value)
            continue;
        CHECK(!shmc_valid(worker->reader->super, held->at.generation));
        worker->revoked++;
        let_go(worker, i--);
    }
}

static void nap(struct worker *worker, uint64_t microseconds)
{
    const struct timespec time = {.tv_nsec = (long)microseconds * 1000};

    nanosleep(&time, NULL);
    worker->naps++;
}

static void *run_reader(void *argument)
{
    struct worker *worker = argument;

    worker->random = test_random_state(worker->stream);
    pthread_barrier_wait(&team.start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        struct held *held = &worker->held[worker->count];
        const uint64_t action = test_random(&worker->random) % 64;

        pin(worker, &held->at);
        take(worker, &held->at);
        held->key = test_random(&worker->random) % KEYS;
        held->value = get(worker, &held->at, held->key);
        if (action < 4)
            scan(worker, &held->at);
        if (action == 4)
            nap(worker, 200 + test_random(&worker->random) % 3000);
        if (action >= 4 && action < 12 && held->value != SHMC_NOTHING && worker->count < HELD - 1)
            worker->count++;
        else
            shmc_unpin(worker->reader, &held->at);
        look_again(worker);
        if (worker->count > 0 && action % 8 == 7)
            let_go(worker, (unsigned)(test_random(&worker->random) % worker->count));
    }
    while (worker->count > 0)
        let_go(worker, 0);
    CHECK_EQUAL(0, shmc_reader_pins(worker->reader));
    return NULL;
}

static void report(void)
{
    const struct shmc_stats stats = core_stats(&core);
    struct worker sum = {0};

    for (unsigned i = 0; i < READERS; i++) {
        sum.gets += workers[i].gets;
        sum.scans += workers[i].scans;
        sum.deltas += workers[i].deltas;
        sum.lapped += workers[i].lapped;
        sum.revoked += workers[i].revoked;
        sum.stale += workers[i].stale;
        sum.odd += workers[i].odd;
        sum.kept += workers[i].kept;
    }
    printf("%" PRIu64 " commits, %" PRIu64 " full, %" PRIu64 " bytes reused, floor %" PRIu64
           " of %" PRIu64 "\n", commits, full, stats.reused_bytes, stats.floor, stats.generation);
    printf("%" PRIu64 " gets, %" PRIu64 " scans, %" PRIu64 " deltas, %" PRIu64 " lapped, %" PRIu64
           " revoked, %" PRIu64 " stale of which %" PRIu64 " were torn\n",
           sum.gets, sum.scans, sum.deltas, sum.lapped, sum.revoked, sum.stale, sum.odd);
    CHECK(commits > 0 && stats.reused_bytes > 0);
    CHECK(sum.gets > 0 && sum.scans > 0 && sum.deltas > 0);
    printf("%" PRIu64 " answers of generations below the floor\n", sum.kept);
    CHECK(sum.lapped > 0 && sum.kept > 0);
    CHECK(sum.revoked > 0 && stats.revoked > 0);
    CHECK(sum.stale > 0);
}

int main(void)
{
    pthread_t writer;

    test_start("stress_arena");
    core_create(&core, (struct core_options){.size = UINT64_C(2) << 20,
                                             .ring_slots = 128,
                                             .garbage_bytes = 64 << 10,
                                             .seat_count = READERS});
    resource = core_declare(&core, "things");
    CHECK_EQUAL(0, pthread_barrier_init(&team.start, NULL, READERS + 1));
    for (team.count = 0; team.count < READERS; team.count++) {
        workers[team.count].reader = core_attach(&core);
        workers[team.count].stream = team.count;
        CHECK_EQUAL(0, pthread_create(&team.threads[team.count], NULL, run_reader,
                                      &workers[team.count]));
    }
    CHECK_EQUAL(0, pthread_create(&writer, NULL, run_writer, NULL));
    CHECK_EQUAL(0, pthread_join(writer, NULL));
    test_team_join(&team);
    core_check(&core);
    report();
    for (unsigned i = 0; i < READERS; i++)
        core_detach(workers[i].reader);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
    return 0;
}
