/*
 * A consumer gets every delta in order, each once and intact, or a report that it was lapped; the
 * objects of a delta can be read as long as its root is pinned.
 *
 * The ring is small, so that it wraps at every offset. A plain array remembers each delta.
 */
#include "core_fixture.h"

#define SLOTS 16u
#define WINDOW (SLOTS / 2)
#define KEYS 9u
#define TEXT 200u
#define REMEMBERED 4096u

static struct core core;
static struct shmc_reader *reader;
static uint32_t resource;
static uint64_t random_state;

static struct {
    uint8_t kind;
    char key[16], old_text[TEXT], new_text[TEXT];
    uint64_t generation;
} remembered[REMEMBERED];
static char texts[KEYS][TEXT]; /* current; "" = absent */

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static void start_narrow(uint64_t ring_slots, uint64_t ring_first, uint64_t ring_bytes)
{
    core_create(&core, (struct core_options){.size = UINT64_C(2) << 20,
                                             .ring_slots = ring_slots,
                                             .ring_first = ring_first,
                                             .ring_bytes = ring_bytes});
    resource = core_declare(&core, "things");
    reader = core_attach(&core);
    memset(texts, 0, sizeof texts);
    memset(remembered, 0, sizeof remembered);
}

static void start(uint64_t ring_slots, uint64_t ring_bytes)
{
    start_narrow(ring_slots, 0, ring_bytes);
}

static void finish(void)
{
    core_check(&core);
    core_detach(reader);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static struct shmc_pinned pin(void)
{
    struct shmc_pinned at;

    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    return at;
}

static void put_numbers(unsigned count, const char *prefix)
{
    char key[16], value[64];

    core_begin(&core);
    for (unsigned i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s%u", prefix, i);
        snprintf(value, sizeof value, "'a value with a block, %s%u'", prefix, i);
        CHECK_EQUAL(SHMC_OK, core_put(&core, resource, key, value, NULL));
    }
    core_commit(&core);
}

static enum shmc_status take(uint64_t cursor, struct shmc_delta *deltas, size_t *count)
{
    const struct shmc_pinned at = pin();
    const enum shmc_status status =
        shmc_ring_take(reader, &at, cursor, deltas, SLOTS, count);

    shmc_unpin(reader, &at);
    return status;
}

static void check_text(const char *expected, shmc_word word)
{
    char text[TEXT] = "";

    if (word != SHMC_NOTHING)
        core_print(&reader->span, word, text, sizeof text);
    if (strcmp(expected, text) != 0)
        fprintf(stderr, "expected %s, found %s\n", expected, text);
    CHECK_EQUAL(0, strcmp(expected, text));
}

static void check_delta(const struct shmc_delta *delta)
{
    const uint64_t n = delta->number;
    uint8_t key[16];

    CHECK(n < REMEMBERED);
    CHECK_EQUAL(resource, delta->resource);
    CHECK_EQUAL(remembered[n].kind, delta->kind);
    CHECK_EQUAL(remembered[n].generation, delta->generation);
    const size_t length = core_text(&reader->span, delta->key, key, sizeof key);
    CHECK_EQUAL(strlen(remembered[n].key), length);
    CHECK_EQUAL(0, memcmp(remembered[n].key, key, length));
    check_text(remembered[n].old_text, delta->old_value);
    check_text(remembered[n].new_text, delta->new_value);
}

/* ---- the window --------------------------------------------------------------------------- */

static void test_window_by_count(void)
{
    struct shmc_delta deltas[SLOTS];
    size_t count = 77;

    start(SLOTS, 0);
    CHECK_EQUAL(SHMC_EMPTY, take(0, deltas, &count));
    CHECK_EQUAL(SHMC_LAPPED, take(1, deltas, &count)); /* beyond head: of another segment */
    CHECK_EQUAL(SHMC_LAPPED, take(UINT64_MAX, deltas, &count));
    CHECK_EQUAL(77, count);
    const uint64_t first = core_stats(&core).head;
    for (uint64_t i = 1; i <= 3 * SLOTS; i++) {
        char value[32];
        snprintf(value, sizeof value, "%" PRIu64, i);
        core_put_now(&core, resource, "counted", value);
        const struct shmc_pinned at = pin();
        CHECK_EQUAL(first + i, at.head);
        CHECK(at.head - at.tail <= WINDOW);
        if (i >= WINDOW)
            CHECK_EQUAL(WINDOW, at.head - at.tail);
        CHECK_EQUAL(SHMC_EMPTY, take(at.head, deltas, &count));
        CHECK_EQUAL(SHMC_LAPPED, take(at.head + 1, deltas, &count));
        if (at.tail > 0)
            CHECK_EQUAL(SHMC_LAPPED, take(at.tail - 1, deltas, &count));
        CHECK_EQUAL(SHMC_OK, take(at.tail, deltas, &count));
        CHECK_EQUAL(at.head - at.tail, count);
        CHECK_EQUAL(SHMC_OK, take(at.head - 1, deltas, &count));
        CHECK_EQUAL(1, count);
        CHECK_EQUAL(shmc_integer_word((int64_t)i), deltas[0].new_value);
        shmc_unpin(reader, &at);
    }
    finish();
}

static void test_window_by_bytes(void)
{
    const uint64_t limit = 6000;
    char value[1500];
    uint64_t narrow = 0;

    start(256, limit);
    for (unsigned i = 0; i < 200; i++) {
        const size_t length = 50 + dice(1200);
        memset(value, 'z', length);
        value[0] = '\'';
        snprintf(value + 1, 12, "%u", i);
        value[strlen(value)] = 'z';
        value[length] = '\'';
        value[length + 1] = 0;
        core_put_now(&core, resource, i % 2 == 0 ? "a" : "b", value);
        const struct shmc_stats stats = core_stats(&core);
        CHECK(stats.ring_bytes <= limit);
        narrow += stats.head - stats.tail < 128;
        CHECK(stats.head > stats.tail); /* none of these exceeds the limit alone */
    }
    CHECK(narrow > 150);
    finish();

    start(256, 100); /* each update is over the limit: the window is empty after it */
    core_put_now(&core, resource, "a", "1");
    const uint64_t cursor = core_stats(&core).head;
    core_put_now(&core, resource, "a", value);
    struct shmc_delta deltas[SLOTS];
    size_t count;
    CHECK_EQUAL(SHMC_LAPPED, take(cursor, deltas, &count));
    CHECK_EQUAL(SHMC_EMPTY, take(cursor + 1, deltas, &count));
    finish();
}

/* ---- batches over half the ring -------------------------------------------------------------- */

static void test_large_batch_is_one_relist(void)
{
    struct shmc_delta deltas[SLOTS];
    size_t count;

    start(SLOTS, 0);
    const uint32_t other = core_declare(&core, "other"), idle = core_declare(&core, "idle");
    (void)idle;
    put_numbers(WINDOW, "exactly"); /* fits */
    CHECK_EQUAL(SHMC_OK, take(0, deltas, &count));
    CHECK_EQUAL(WINDOW, count);
    CHECK_EQUAL(SHMC_ADDED, deltas[0].kind);
    const uint64_t cursor = core_stats(&core).head;
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, other, "one", "1", NULL));
    for (unsigned i = 0; i < WINDOW; i++) {
        char key[16];
        snprintf(key, sizeof key, "many%u", i);
        CHECK_EQUAL(SHMC_OK, core_put(&core, resource, key, "'some text in a block'", NULL));
    }
    CHECK_EQUAL(SHMC_OK, shmc_set_version(core.writer, resource, "version-of-many", 15));
    core_commit(&core);
    core_check(&core);
    CHECK_EQUAL(cursor + 2, core_stats(&core).head); /* one for each resource that changed */
    CHECK_EQUAL(2, core_stats(&core).relists);
    CHECK_EQUAL(SHMC_OK, take(cursor, deltas, &count));
    CHECK_EQUAL(2, count);
    for (size_t i = 0; i < 2; i++) {
        CHECK_EQUAL(SHMC_RELIST, deltas[i].kind);
        CHECK_EQUAL(i == 0 ? resource : other, deltas[i].resource);
        CHECK_EQUAL(SHMC_NOTHING, deltas[i].key);
        CHECK_EQUAL(SHMC_NOTHING, deltas[i].old_value);
        CHECK_EQUAL(SHMC_NOTHING, deltas[i].new_value);
    }
    check_text("'version-of-many'", deltas[0].version);
    core_put_now(&core, resource, "exactly0", "2"); /* and continues */
    CHECK_EQUAL(SHMC_OK, take(cursor + 2, deltas, &count));
    CHECK_EQUAL(SHMC_MODIFIED, deltas[0].kind);
    finish();
}

/* ---- content --------------------------------------------------------------------------------- */

static void random_change(uint64_t number)
{
    const uint64_t k = dice(KEYS);
    const bool had = texts[k][0] != 0;

    snprintf(remembered[number].key, 16, "key%" PRIu64, k);
    memcpy(remembered[number].old_text, texts[k], TEXT);
    remembered[number].generation = core_stats(&core).generation + 1;
    if (had && dice(3) == 0) {
        texts[k][0] = 0;
        remembered[number].kind = SHMC_DELETED;
        CHECK_EQUAL(SHMC_OK, core_delete(&core, resource, remembered[number].key));
    } else {
        snprintf(texts[k], TEXT, "{'n': %" PRIu64 ", 'text': 'a longer text with %" PRIu64 "'}",
                 number, number % 5);
        remembered[number].kind = had ? SHMC_MODIFIED : SHMC_ADDED;
        CHECK_EQUAL(SHMC_OK, core_put(&core, resource, remembered[number].key, texts[k], NULL));
    }
    memcpy(remembered[number].new_text, texts[k], TEXT);
}

/* Batches of every size at every offset of the ring; one consumer keeps up, one falls behind. */
static void test_every_delta_in_order_while_the_ring_wraps(void)
{
    struct shmc_delta deltas[SLOTS];
    uint64_t head = 0, prompt = 0, slow = 0, lapped = 0, wrapped = 0;

    start(SLOTS, 0);
    while (head < 2000) {
        const uint64_t size = 1 + dice(WINDOW);
        core_begin(&core);
        for (uint64_t i = 0; i < size; i++)
            random_change(head++);
        core_commit(&core);
        const struct shmc_pinned at = pin();
        CHECK_EQUAL(head, at.head);
        wrapped |= UINT64_C(1) << at.tail % SLOTS;
        for (size_t count; prompt < head; prompt += count) {
            CHECK_EQUAL(SHMC_OK, shmc_ring_take(reader, &at, prompt, deltas, 1 + dice(5), &count));
            CHECK(count > 0);
            for (size_t i = 0; i < count; i++) {
                CHECK_EQUAL(prompt + i, deltas[i].number);
                check_delta(&deltas[i]);
            }
        }
        size_t count = 0;
        const enum shmc_status status = shmc_ring_take(reader, &at, slow, deltas, 3, &count);
        CHECK_EQUAL(slow < at.tail ? SHMC_LAPPED : slow == head ? SHMC_EMPTY : SHMC_OK, status);
        lapped += status == SHMC_LAPPED;
        slow = status == SHMC_LAPPED ? at.head : slow + count;
        shmc_unpin(reader, &at);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        if (dice(16) == 0)
            core_check(&core);
    }
    CHECK(lapped > 10);
    CHECK_EQUAL((1u << SLOTS) - 1, wrapped);
    finish();
}

/* ---- a ring that becomes wider ------------------------------------------------------------- */

#define WIDE 256u

static void change_at_random(uint64_t from, uint64_t count)
{
    core_begin(&core);
    for (uint64_t i = 0; i < count; i++)
        random_change(from + i);
    core_commit(&core);
}

/* Every delta from `from` on, as remembered. */
static void check_from(const struct shmc_pinned *at, uint64_t from)
{
    struct shmc_delta deltas[WIDE];
    size_t count;

    CHECK_EQUAL(from == at->head ? SHMC_EMPTY : SHMC_OK,
                shmc_ring_take(reader, at, from, deltas, WIDE, &count));
    if (from == at->head)
        return;
    CHECK_EQUAL(at->head - from, count);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(from + i, deltas[i].number);
        check_delta(&deltas[i]);
    }
}

/* WIDEN1, WIDEN3: nobody misses a delta because of it, and an older root shows the same as
 * before. */
static void test_wider_ring_keeps_the_window(void)
{
    uint64_t widened = 0;

    for (unsigned round = 0; round < 30; round++) {
        uint64_t head = 0;

        start_narrow(WIDE, 8, 0);
        while (head < 2 * WIDE) {
            const struct shmc_pinned old = pin();
            const uint64_t size = 1 + dice(old.slots / 2);
            change_at_random(head, size);
            head += size;
            const struct shmc_pinned at = pin();
            CHECK_EQUAL(head, at.head);
            CHECK(at.slots >= old.slots && at.slots <= WIDE);
            CHECK_EQUAL(head < WIDE / 2 ? head : WIDE / 2, at.head - at.tail);
            CHECK(at.slots < 4 * head || at.slots == 8); /* not before it is needed */
            check_from(&at, at.tail);
            if (at.slots > old.slots) {
                widened++;
                check_from(&old, old.tail);
            }
            shmc_unpin(reader, &old);
            shmc_unpin(reader, &at);
            core_check(&core);
        }
        finish();
    }
    CHECK(widened >= 30 * 3);
}

/* WIDEN4, WIDEN5: a batch that does not fit is published as its deltas if the wider ring has slots
 * for them, and as a RELIST if not; one that fails in the end has overwritten nothing published. */
static void test_large_batch_beside_the_window(void)
{
    uint64_t listed = 0, marked = 0;

    for (uint64_t before = 1; before <= 40; before++) {
        for (uint64_t size = 5; size <= 32; size += 3) {
            uint64_t head = 0;

            start_narrow(64, 8, 700); /* bytes keep the window short: it wraps in the narrow ring */
            for (; head < before; head++)
                change_at_random(head, 1);
            const struct shmc_pinned at = pin();
            CHECK_EQUAL(SHMC_OK, shmc_begin(core.writer));
            for (uint64_t i = 0; i < size; i++)
                random_change(head + i);
            shmc_store_racy(&core.writer->super->incarnation, core.writer->incarnation + 1);
            CHECK_EQUAL(SHMC_FENCED, shmc_commit(core.writer, test_now_ns()));
            shmc_store_racy(&core.writer->super->incarnation, core.writer->incarnation);
            check_from(&at, at.tail);
            core_check(&core);
            memset(texts, 0, sizeof texts);
            put_numbers((unsigned)size, "many");
            const struct shmc_pinned after = pin();
            if (core_stats(&core).relists == 0) {
                CHECK_EQUAL(head + size, after.head);
                listed++;
            } else {
                CHECK_EQUAL(head + 1, after.head);
                CHECK(size > at.slots / 2);
                marked++;
            }
            shmc_unpin(reader, &after);
            shmc_unpin(reader, &at);
            finish();
        }
    }
    CHECK(listed > 50);
    CHECK(marked > 5);
}

/* RING4: the pin keeps the objects of the window, even when the slots hold other deltas by now. */
static void test_values_stay_readable_under_a_pin(void)
{
    struct shmc_delta deltas[SLOTS], late[SLOTS];
    size_t count, late_count;

    start(SLOTS, 0);
    for (uint64_t number = 0; number < WINDOW; number++) {
        core_begin(&core);
        random_change(number);
        core_commit(&core);
    }
    const struct shmc_pinned at = pin();
    CHECK_EQUAL(SHMC_OK, shmc_ring_take(reader, &at, at.tail, deltas, SLOTS, &count));
    CHECK_EQUAL(WINDOW, count);
    for (uint64_t number = WINDOW; number < 200; number++) {
        core_begin(&core);
        random_change(number);
        core_commit(&core);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        const enum shmc_status status =
            shmc_ring_take(reader, &at, at.tail, late, SLOTS, &late_count);
        /* its own window is intact until the writer laps it */
        CHECK_EQUAL(number < SLOTS ? SHMC_OK : SHMC_LAPPED, status);
        for (size_t i = 0; i < count; i++)
            check_delta(&deltas[i]);
    }
    CHECK(shmc_valid(reader->super, at.generation));
    shmc_unpin(reader, &at);
    finish();
}

static void test_the_delta_of_a_deletion(void)
{
    struct shmc_delta deltas[SLOTS];
    size_t count;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a of the uid */

    for (const char *uid = "0123-uid"; *uid != 0; uid++)
        hash = (hash ^ (uint8_t)*uid) * UINT64_C(0x100000001b3);
    start(SLOTS, 0);
    core_put_now(&core, resource, "k", "{'metadata': {'uid': '0123-uid'}}");
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_delete(core.writer, resource, "k", 1, "the-version-of-it", 17,
                                     SHMC_FLAG_UNKNOWN));
    core_commit(&core);
    core_put_now(&core, resource, "k", "{'metadata': {'name': 'x'}}");
    CHECK_EQUAL(SHMC_OK, take(0, deltas, &count));
    CHECK_EQUAL(3, count);
    CHECK_EQUAL(hash, deltas[0].shard);
    CHECK_EQUAL(hash, deltas[1].shard);
    CHECK_EQUAL(UINT64_C(0xcbf29ce484222325), deltas[2].shard); /* of "", as upstream */
    CHECK_EQUAL(SHMC_DELETED, deltas[1].kind);
    CHECK_EQUAL(SHMC_FLAG_UNKNOWN, deltas[1].flags);
    check_text("'the-version-of-it'", deltas[1].version);
    check_text("{'metadata': {'uid': '0123-uid'}}", deltas[1].old_value);
    CHECK_EQUAL(SHMC_NOTHING, deltas[1].new_value);
    finish();
}

int main(void)
{
    test_start("test_ring");
    random_state = test_random_state(4);
    test_window_by_count();
    test_window_by_bytes();
    test_large_batch_is_one_relist();
    test_every_delta_in_order_while_the_ring_wraps();
    test_wider_ring_keeps_the_window();
    test_large_batch_beside_the_window();
    test_values_stay_readable_under_a_pin();
    test_the_delta_of_a_deletion();
    return 0;
}
