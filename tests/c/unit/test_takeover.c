/*
 * Another writer can continue after any death of a writer, with the same content, generations and
 * window; nothing leaked, nothing reused that a living pin may lead to, no sleeper left asleep. An
 * invalid segment is rejected, and stays as it was.
 */
#include <string.h>
#include <sys/syscall.h>

#include "core_fixture.h"

#define VALUES 60u

static struct core core;
static uint32_t things, others;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static enum shmc_status try_put(unsigned key, unsigned number)
{
    char name[40], text[400];

    snprintf(name, sizeof name, key % 2 ? "namespace-%u/a-name-of-%u" : "k%u%u", key % 3, key);
    snprintf(text, sizeof text,
             "{n: %u, metadata: {name: 'a-name-of-%u', labels: {app: 'application-%u', 'k%u': 'x'}}, "
             "list: [1.1, %u, 'some text %u', {}, [], null], big: 123456789012345678%u}",
             number, key, number % 5, number % 4, number, number % 7, number % 3);
    core_begin(&core);
    enum shmc_status status =
        core_put(&core, things, name, text, number % 2 ? "1" : "a-long-version");
    if (status == SHMC_OK)
        return shmc_commit(core.writer, 0);
    shmc_abort(core.writer);
    /* Found here: an index that holds another value than its object, or takes values from outside. */
    CHECK(status == SHMC_CORRUPT || status == SHMC_INVALID);
    return status;
}

static void put(unsigned key, unsigned number)
{
    CHECK_EQUAL(SHMC_OK, try_put(key, number));
}

static void fill(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        put(i % VALUES, i);
}

static void start(uint64_t size)
{
    core_create(&core, (struct core_options){.size = size, .ring_slots = 64});
    things = core_declare(&core, "things");
    others = core_declare(&core, "other things");
    core_index(&core, things, "labels", "metadata.labels");
    core_index(&core, things, "n", "n");
}

static void finish(void)
{
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

/* Everything that a root shows, as one number. */
static uint64_t digest_of(shmc_offset top)
{
    const struct shmc_span *span = shmc_writer_span(core.writer);
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    uint64_t digest = 0;
    char text[2000];

    CHECK_EQUAL(SHMC_OK, shmc_cursor_seek(&cursor, span, &shmc_primary, top, NULL, 0));
    while (shmc_cursor_next(&cursor, &entry) == SHMC_OK) {
        for (int i = 0; i < 2; i++) {
            core_print(span, entry.words[i], text, sizeof text);
            for (const char *c = text; *c != 0; c++)
                digest = shmc_mix(digest ^ (uint8_t)*c, UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    return digest;
}

static uint64_t digest(void)
{
    return digest_of(core_primary(&core, things));
}

/* ---- continuing --------------------------------------------------------------------------- */

static void test_content_window_and_ids_go_on(void)
{
    start(UINT64_C(1) << 20);
    fill(0, 3 * VALUES);
    const struct shmc_stats before = core_stats(&core);
    const uint64_t content = digest(), incarnation = core.writer->incarnation;
    const uint64_t ids = core.writer->next_id;

    core_take_over(&core);
    const struct shmc_stats after = core_stats(&core);
    CHECK_EQUAL(before.generation, after.generation);
    CHECK_EQUAL(before.head, after.head);
    CHECK_EQUAL(before.tail, after.tail);
    CHECK_EQUAL(before.blocks, after.blocks);
    CHECK_EQUAL(before.high_water_bytes, after.high_water_bytes);
    CHECK_EQUAL(before.value_bytes, after.value_bytes);
    CHECK_EQUAL(before.tree_bytes, after.tree_bytes);
    CHECK_EQUAL(content, digest());
    CHECK_EQUAL(incarnation + 1, core.writer->incarnation);
    CHECK(core.writer->next_id >= ids);
    CHECK_EQUAL(0, after.limbo_bytes); /* there are no pins */

    fill(3 * VALUES, 5 * VALUES);
    core_check(&core);
    CHECK_EQUAL(before.generation + 2 * VALUES, core_stats(&core).generation);
    CHECK_EQUAL(before.head + 2 * VALUES, core_stats(&core).head);
    finish();
}

static void test_a_reader_does_not_notice(void)
{
    struct shmc_delta deltas[8];
    struct shmc_pinned at;
    size_t count;

    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    struct shmc_reader *reader = core_attach(&core);
    const uint64_t cursor = core_stats(&core).head;
    put(1, 1000);
    core_take_over(&core);
    put(2, 1001);
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    CHECK_EQUAL(SHMC_OK, shmc_ring_take(reader, &at, cursor, deltas, 8, &count));
    CHECK_EQUAL(2, count); /* one from each writer, and no gap */
    shmc_unpin(reader, &at);
    core_detach(reader);
    finish();
}

static void test_unpublished_objects_are_gone(void)
{
    shmc_word word;

    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    const uint64_t content = digest();
    const struct shmc_stats before = core_stats(&core);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{staged: 'a text that is staged'}", &word));
    const struct shmc_change change = {
        .resource = things, .key = (const uint8_t *)"key", .key_length = 3, .value = word};
    CHECK_EQUAL(SHMC_OK, shmc_stage(core.writer, &change));
    core_commit(&core);
    core_begin(&core);
    for (unsigned i = 0; i < 20; i++)
        CHECK_EQUAL(SHMC_OK, core_put(&core, others, i % 2 ? "a" : "b", "{x: 'never published'}",
                                      NULL));
    core_take_over(&core); /* it died in the middle of that */
    CHECK_EQUAL(content, digest());
    CHECK_EQUAL(before.blocks, core_stats(&core).blocks);
    CHECK_EQUAL(0, core.writer->resources[others].now.count);
    CHECK_EQUAL(0, core.writer->resources[things].replacing);
    finish();
}

static void test_ended_in_order_and_left_behind(void)
{
    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    shmc_writer_leave(core.writer);
    CHECK_EQUAL(1, shmc_load_racy(&core.writer->super->closed));
    core_take_over(&core);
    CHECK_EQUAL(0, shmc_load_racy(&core.writer->super->closed));
    finish();
}

static void test_of_indices_from_outside(void)
{
    start(UINT64_C(1) << 20);
    core_index(&core, others, "outside", NULL);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_function(core.writer, others, 0, "module:function#1", 17));
    core_commit(&core);
    core_begin(&core);
    shmc_word value, emitted;
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{some: 'object that is stored'}", &value));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['a value from outside', 'b']", &emitted));
    const struct shmc_change change = {.resource = others,
                                       .key = (const uint8_t *)"a-key-of-it",
                                       .key_length = 11,
                                       .value = value,
                                       .emitted = &emitted,
                                       .emitted_count = 1};
    CHECK_EQUAL(SHMC_OK, shmc_put(core.writer, &change));
    core_commit(&core);
    core_take_over(&core);
    CHECK_EQUAL(2, core.writer->resources[others].indices[0].count);
    CHECK(core.writer->resources[others].indices[0].path == NULL);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_delete(&core, others, "a-key-of-it")); /* by the stored values */
    core_commit(&core);
    CHECK_EQUAL(0, core.writer->resources[others].indices[0].count);
    finish();
}

/* ---- readers ------------------------------------------------------------------------------ */

static void test_pins_of_the_living_hold(void)
{
    struct shmc_pinned at, later;
    struct shmc_record record;
    shmc_offset indices;

    start(UINT64_C(4) << 20);
    fill(0, VALUES);
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer)); /* only the pin holds it */
    struct shmc_reader *reader = core_attach(&core);
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    const uint64_t content = digest();
    fill(VALUES, 2 * VALUES);
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &later));
    CHECK(content != digest());

    for (unsigned life = 0; life < 3; life++) {
        core_take_over(&core);
        CHECK(core_stats(&core).limbo_bytes > 0);
        fill(life * 1000, life * 1000 + 3 * VALUES);
        CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        CHECK(shmc_valid(core.writer->super, at.generation));
        CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &at, things, &record, &indices));
        CHECK_EQUAL(content, digest_of(record.primary));
        core_check(&core);
    }
    shmc_unpin(reader, &at);
    shmc_unpin(reader, &later);
    core_detach(reader);
    finish(); /* limbo returns to 0 */
}

/* A pin that outlives many writers holds back no more because of that. */
static void test_a_pin_across_many_lives_costs_a_bounded_memory(void)
{
    const uint64_t limit = UINT64_C(64) << 10;
    struct shmc_pinned at;

    core_create(&core, (struct core_options){
                           .size = UINT64_C(8) << 20, .ring_slots = 64, .garbage_bytes = limit});
    things = core_declare(&core, "things");
    fill(0, VALUES);
    struct shmc_reader *reader = core_attach(&core);
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    for (unsigned life = 0; life < 40; life++) {
        fill(life * 100, life * 100 + 2 * VALUES);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        CHECK(core_stats(&core).limbo_bytes <= 2 * limit);
        core_take_over(&core);
    }
    shmc_unpin(reader, &at);
    core_detach(reader);
    finish();
}

static void test_pins_of_the_dead_do_not(void)
{
    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    core_pin(&core, 3, core_stats(&core).generation); /* on a seat whose lock is free */
    fill(VALUES, 3 * VALUES);
    core_take_over(&core);
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    finish();
}

static _Atomic pid_t sleeping_thread;

/* Whether the kernel has put the thread to sleep: it did not just announce its sleep. */
static bool sleeps(pid_t thread)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *name_end = strrchr(text, ')');
    CHECK(length > 0 && name_end != NULL);
    return name_end[2] == 'S';
}

static void *sleep_for_news(void *argument)
{
    struct shmc_reader *reader = argument;

    atomic_store(&sleeping_thread, (pid_t)syscall(SYS_gettid));
    /* published and not posted: the sleeper is past its check when it happens */
    CHECK_EQUAL(SHMC_OK, shmc_wait(reader, 1, shmc_load_racy(&reader->super->latest),
                                   INT64_C(60000000000)));
    return NULL;
}

static void test_a_sleeper_left_asleep_is_woken(void)
{
    pthread_t thread;

    start(UINT64_C(1) << 20);
    struct shmc_reader *reader = core_attach(&core);
    CHECK_EQUAL(0, pthread_create(&thread, NULL, sleep_for_news, reader));
    const struct shmc_seat *seat = shmc_seat_at(&core.seats, 0);
    AWAIT((shmc_load32_racy(&seat->semaphore) & 1u) != 0);
    AWAIT(sleeps(atomic_load(&sleeping_thread))); /* past its last check */
    const uint64_t seats = core.writer->seat_count;
    core.writer->seat_count = 0; /* the dead writer had reached the posting, and no further */
    put(1, 1);
    core.writer->seat_count = seats;
    const uint32_t posts = shmc_load32_racy(&seat->semaphore) >> 1;
    core_take_over(&core);
    CHECK(shmc_load32_racy(&seat->semaphore) >> 1 != posts); /* or it would wake by itself later */
    CHECK_EQUAL(0, pthread_join(thread, NULL));
    core_detach(reader);
    finish();
}

/* TAKEOVER4 */
static void test_a_slot_that_is_not_whole_is_lapped(void)
{
    struct shmc_delta deltas[64];
    struct shmc_pinned at;
    size_t count;

    start(UINT64_C(1) << 20);
    fill(0, 20);
    const struct shmc_stats before = core_stats(&core);
    const uint64_t broken = before.head - 5;
    shmc_store_racy(&shmc_ring_slots(core.writer)[broken & core.writer->ring_mask].stamp, 0);
    core_take_over(&core);
    CHECK_EQUAL(before.head, core_stats(&core).head);
    CHECK_EQUAL(broken + 1, core_stats(&core).tail);
    CHECK_EQUAL(before.generation + 1, core_stats(&core).generation);
    struct shmc_reader *reader = core_attach(&core);
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    CHECK_EQUAL(SHMC_LAPPED, shmc_ring_take(reader, &at, broken, deltas, 64, &count));
    CHECK_EQUAL(SHMC_OK, shmc_ring_take(reader, &at, broken + 1, deltas, 64, &count));
    CHECK_EQUAL(4, count);
    shmc_unpin(reader, &at);
    core_detach(reader);
    finish();
}

/* ---- rejection ------------------------------------------------------------------------------- */

static void check_refused(enum shmc_status expected)
{
    uint8_t *before = malloc(core.data.max_size);
    char what[200];

    CHECK(before != NULL);
    memcpy(before, core.data.base, core.data.max_size);
    CHECK_EQUAL(expected, core_try_take_over(&core, what));
    CHECK_EQUAL(0, memcmp(before, core.data.base, core.data.max_size)); /* TAKEOVER1 */
    CHECK(expected != SHMC_CORRUPT || what[0] != 0);
    free(before);
}

static void test_a_rejected_segment_stays_as_it_was(void)
{
    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    struct shmc_super *super = core.writer->super;

    shmc_store_racy(&super->guard[1], 4711); /* TAKEOVER6: the lock of another file */
    check_refused(SHMC_BUSY);
    shmc_store_racy(&super->guard[1], 0);
    super->boot_id[3] ^= 1;
    check_refused(SHMC_VERSION);
    super->boot_id[3] ^= 1;
    shmc_store_racy(&super->latest, shmc_load_racy(&super->latest) + 1);
    check_refused(SHMC_CORRUPT);
    shmc_store_racy(&super->latest, shmc_load_racy(&super->latest) - 1);
    shmc_store_racy(&super->floor, shmc_load_racy(&super->latest) + 1);
    check_refused(SHMC_CORRUPT);
    shmc_store_racy(&super->floor, 0);
    core_take_over(&core);
    const uint64_t incarnation = core.writer->incarnation;
    CHECK_EQUAL(SHMC_OK, shmc_data_end(&core.data));
    CHECK_EQUAL(incarnation + 1, shmc_load_racy(&super->incarnation)); /* the old one is fenced */
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, things, "k", "{}", NULL));
    CHECK_EQUAL(SHMC_FENCED, shmc_commit(core.writer, 0));
    CHECK_EQUAL(SHMC_FENCED, shmc_tend(core.writer, 0));
    check_refused(SHMC_OVER);
    core_destroy(&core);
}

/* An older writer that merely slept, and whose lock's file is gone, publishes nothing more. */
static void test_the_one_before_is_fenced(void)
{
    struct core older;

    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    older = core;
    core.writer = NULL;
    core_take_over(&core); /* as if the guard had not kept it out */
    core_begin(&older);
    CHECK_EQUAL(SHMC_FENCED, shmc_commit(older.writer, 0) == SHMC_OK
                                 ? shmc_drop_window(older.writer)
                                 : SHMC_FENCED);
    const struct shmc_note note = {.events = 1};
    CHECK_EQUAL(SHMC_FENCED, shmc_note(older.writer, things, &note));
    CHECK_EQUAL(SHMC_FENCED, shmc_tend(older.writer, 0));
    shmc_writer_destroy(older.writer);
    finish();
}

/* Any word of the used part, with any value: rejected with a reason, or as good as before. */
static void test_garbage_is_refused_or_harmless(void)
{
    const uint64_t end_ns = test_now_ns() + test_stress_ns() / 2;
    unsigned refused = 0, taken = 0;
    uint8_t *image;

    start(UINT64_C(1) << 20);
    fill(0, 3 * VALUES);
    image = malloc(core.data.max_size);
    CHECK(image != NULL);
    memcpy(image, core.data.base, core.data.max_size);
    const uint64_t high = shmc_arena_high_water(&core.writer->arena) / 8;
    for (unsigned round = 0; test_now_ns() < end_ns || round < 300; round++) {
        char what[200];
        for (uint64_t words = 1 + dice(3); words > 0; words--) {
            uint64_t *word = (uint64_t *)(void *)core.data.base + 8 + dice(high - 8);
            switch (dice(5)) {
            case 0:
                *word = test_random(&random_state);
                break;
            case 1:
                *word ^= UINT64_C(1) << dice(64);
                break;
            case 2:
                *word = dice(high) * 8 + dice(8);
                break;
            case 3:
                *word += 8 * dice(9);
                break;
            default:
                *word = ((const uint64_t *)(const void *)core.data.base)[dice(high)];
                break;
            }
        }
        const enum shmc_status status = core_try_take_over(&core, what);
        if (status == SHMC_OK) {
            taken++;
            core_check(&core);
            for (unsigned i = round; i < round + 5; i++)
                try_put(i % VALUES, i);
            core_check(&core);
        } else {
            refused++;
        }
        memcpy(core.data.base, image, core.data.max_size);
    }
    printf("%u refused, %u taken over\n", refused, taken);
    CHECK(refused > 0 && taken > 0);
    free(image);
    core_take_over(&core);
    finish();
}


/* ---- other configurations ------------------------------------------------------------------------ */

static void test_indices_come_and_go(void)
{
    uint32_t number;

    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    core_take_over(&core);
    const struct shmc_windex *indices = core.writer->resources[things].indices;
    const uint64_t labels = indices[0].count;
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_drop_index(core.writer, things, "labels", 6));
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_drop_index(core.writer, things, "labels", 6));
    CHECK_EQUAL(SHMC_OK, shmc_declare_index(core.writer, things, "name", 4, "metadata.name", 13,
                                            &number));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    core_check(&core);
    indices = core.writer->resources[things].indices;
    CHECK_EQUAL(labels, indices[0].count);
    CHECK_EQUAL(2, core.writer->resources[things].now.index_count);

    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_drop_index(core.writer, things, "labels", 6));
    CHECK_EQUAL(SHMC_OK, shmc_declare_index(core.writer, things, "name", 4, "metadata.name", 13,
                                            &number));
    CHECK_EQUAL(1, number);
    core_commit(&core);
    core_check(&core);
    indices = core.writer->resources[things].indices;
    CHECK_EQUAL(VALUES, indices[1].count);
    fill(VALUES, 2 * VALUES);
    core_check(&core);
    core_take_over(&core);
    finish();
}

static void test_functions_come_and_go(void)
{
    uint32_t number;
    shmc_word value, emitted[2];

    start(UINT64_C(1) << 20);
    core_index(&core, others, "first", NULL);
    core_index(&core, others, "by path", "some");
    core_index(&core, others, "second", NULL);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{some: 'object that is stored'}", &value));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['a value from outside', 'b']", &emitted[0]));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['another value from outside']", &emitted[1]));
    struct shmc_change change = {.resource = others,
                                 .key = (const uint8_t *)"a-key-of-it",
                                 .key_length = 11,
                                 .value = value,
                                 .emitted = emitted,
                                 .emitted_count = 2};
    CHECK_EQUAL(SHMC_OK, shmc_put(core.writer, &change));
    core_commit(&core);
    core_take_over(&core);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_drop_index(core.writer, others, "second", 6)); /* REINDEX2: both */
    CHECK_EQUAL(1, core.writer->resources[others].now.index_count);
    CHECK_EQUAL(SHMC_OK, shmc_declare_index(core.writer, others, "third", 5, NULL, 0, &number));
    CHECK_EQUAL(SHMC_OK, shmc_set_function(core.writer, others, number, "identity of it", 14));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['a third value']", &emitted[0]));
    change.emitted_count = 1;
    CHECK_EQUAL(SHMC_OK, shmc_refill(core.writer, &change));
    core_commit(&core);
    core_check(&core);
    CHECK_EQUAL(1, core.writer->resources[others].indices[1].count);
    core_take_over(&core);
    finish();
}

static void test_resources_come_and_go(void)
{
    static const char settings[] = "{\"labels\":\"app=a-name-of-an-app\",\"namespaces\":[]}";
    uint32_t id;

    start(UINT64_C(1) << 20);
    fill(0, VALUES);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK,
                shmc_set_settings(core.writer, things, settings, sizeof settings - 1));
    CHECK_EQUAL(SHMC_INVALID, shmc_set_settings(core.writer, things, "{", 1));
    CHECK_EQUAL(SHMC_OK, shmc_set_source(core.writer, things, "prod=1,dev=2", 12));
    core_commit(&core);
    core_take_over(&core);
    const uint64_t content = digest();
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_retire_resource(core.writer, things));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    core_check(&core);
    CHECK_EQUAL(content, digest());

    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_retire_resource(core.writer, things));
    CHECK_EQUAL(SHMC_OK, shmc_retire_resource(core.writer, things)); /* already gone */
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_find_resource(core.writer, "things", 6, &id));
    core_commit(&core);
    core_check(&core);
    core_take_over(&core);
    CHECK_EQUAL(SHMC_GONE, core.writer->resources[things].now.state);
    CHECK_EQUAL(things, core_declare(&core, "things")); /* its id is kept for its name */
    CHECK_EQUAL(0, core.writer->resources[things].now.count);
    fill(0, VALUES);
    core_take_over(&core);
    finish();
}

/* ---- pages whose blocks came from larger slots ----------------------------------------------------- */

static void test_a_full_arena_is_taken_over(void)
{
    char key[32], text[64];
    unsigned count = 0;

    core_create(&core, (struct core_options){.size = UINT64_C(384) << 10, .ring_slots = 16});
    things = core_declare(&core, "things");
    core_index(&core, things, "t", "t");
    for (enum shmc_status status = SHMC_OK; status == SHMC_OK; count += status == SHMC_OK) {
        snprintf(key, sizeof key, "a-key-of-some-length/%u", count);
        snprintf(text, sizeof text, "{t: 'some text %u', u: [%u, 'more of it %u']}", count, count, count);
        core_begin(&core);
        status = core_put(&core, things, key, text, NULL);
        if (status == SHMC_OK)
            status = shmc_commit(core.writer, 0);
        else
            shmc_abort(core.writer);
    }
    for (unsigned i = 0; i < count; i++) { /* deleting uses any free slot: ARENA5 */
        snprintf(key, sizeof key, "a-key-of-some-length/%u", (i * 37) % count);
        core_begin(&core);
        if (core_delete(&core, things, key) == SHMC_OK)
            CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, 0));
        else
            shmc_abort(core.writer);
        if (i % 3 == 0)
            core_take_over(&core);
    }
    finish();
}

/* Values of many pages, which are gone again. */
static void test_large_blocks(void)
{
    static char text[100000];
    shmc_word word;

    start(UINT64_C(4) << 20);
    memset(text, 'x', sizeof text);
    for (unsigned i = 0; i < 30; i++) {
        core_begin(&core);
        CHECK_EQUAL(SHMC_OK, core_bytes(&core, text, 20000 + i * 2500, &word));
        CHECK_EQUAL(SHMC_OK, core_put_word(&core, things, i % 2 ? "a" : "b", 1, word));
        core_commit(&core);
        core_take_over(&core);
    }
    finish();
}

int main(void)
{
    test_start("test_takeover");
    random_state = test_random_state(31);
    test_content_window_and_ids_go_on();
    test_a_reader_does_not_notice();
    test_unpublished_objects_are_gone();
    test_ended_in_order_and_left_behind();
    test_of_indices_from_outside();
    test_pins_of_the_living_hold();
    test_a_pin_across_many_lives_costs_a_bounded_memory();
    test_pins_of_the_dead_do_not();
    test_a_sleeper_left_asleep_is_woken();
    test_a_slot_that_is_not_whole_is_lapped();
    test_a_rejected_segment_stays_as_it_was();
    test_the_one_before_is_fenced();
    test_garbage_is_refused_or_harmless();
    test_indices_come_and_go();
    test_functions_come_and_go();
    test_resources_come_and_go();
    test_a_full_arena_is_taken_over();
    test_large_blocks();
    return 0;
}
