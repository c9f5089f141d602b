/*
 * A replacement changes only the differences, in one generation, whatever was published meanwhile;
 * no reader sees half of it, and one that is cancelled or fails leaves no trace.
 */
#include "core_fixture.h"

#define TEXT 200u
#define SLOTS 64u

static struct core core;
static struct shmc_reader *reader;
static uint32_t things, other;

static void start(void)
{
    core_create(&core, (struct core_options){.size = UINT64_C(4) << 20, .ring_slots = SLOTS});
    things = core_declare(&core, "things");
    other = core_declare(&core, "other");
    CHECK_EQUAL(0, core_index(&core, things, "node", "node"));
    reader = core_attach(&core);
}

static void finish(void)
{
    core_check(&core);
    core_detach(reader);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void value_of(unsigned number, char text[TEXT])
{
    snprintf(text, TEXT, "{'node': 'a-node-with-number-%u', 'n': %u}", number % 3, number);
}

static void put(const char *key, unsigned number)
{
    char text[TEXT];

    value_of(number, text);
    core_put_now(&core, things, key, text);
}

static enum shmc_status stage(const char *key, unsigned number)
{
    struct shmc_change change = {
        .resource = things, .key = (const uint8_t *)key, .key_length = strlen(key)};
    char text[TEXT];

    value_of(number, text);
    CHECK_EQUAL(SHMC_OK, core_value(&core, text, &change.value));
    return shmc_stage(core.writer, &change);
}

static void stage_now(const char *key, unsigned number)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, stage(key, number));
    core_commit(&core);
    core_check(&core);
}

static void finish_now(const char *version)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_replace_finish(core.writer, things, version,
                                             version != NULL ? strlen(version) : 0));
    core_commit(&core);
    core_check(&core);
}

static void check_value(const char *key, unsigned number)
{
    char expected[TEXT], text[TEXT];
    shmc_word value;

    CHECK_EQUAL(SHMC_OK, shmc_current(core.writer, things, (const uint8_t *)key, strlen(key),
                                      &value));
    value_of(number, expected);
    core_print(shmc_writer_span(core.writer), value, text, sizeof text);
    CHECK_EQUAL(0, strcmp(expected, text));
}

static void check_absent(const char *key)
{
    shmc_word value;

    CHECK_EQUAL(SHMC_NOT_FOUND,
                shmc_current(core.writer, things, (const uint8_t *)key, strlen(key), &value));
}

/* The deltas from `cursor` on: kinds and flags as text, such as "D! A M". */
static void deltas_from(uint64_t cursor, char *text)
{
    struct shmc_delta deltas[SLOTS];
    struct shmc_pinned at;
    size_t count = 0;

    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    if (at.head != cursor)
        CHECK_EQUAL(SHMC_OK, shmc_ring_take(reader, &at, cursor, deltas, SLOTS, &count));
    text[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t key[32];
        const size_t length = core_text(&reader->span, deltas[i].key, key, sizeof key);
        text += sprintf(text, "%c%s%.*s ", " AMDR"[deltas[i].kind],
                        deltas[i].flags == SHMC_FLAG_UNKNOWN ? "!" : "", (int)length,
                        (const char *)key);
    }
    shmc_unpin(reader, &at);
}

static void check_deltas(uint64_t cursor, const char *expected)
{
    char text[SLOTS * 40];

    deltas_from(cursor, text);
    if (strcmp(expected, text) != 0)
        fprintf(stderr, "expected %s, found %s\n", expected, text);
    CHECK_EQUAL(0, strcmp(expected, text));
}

static uint64_t head(void)
{
    return core_stats(&core).head;
}

static void test_only_the_difference_is_published(void)
{
    start();
    put("a-rather-long-key", 1);
    put("gone", 2);
    put("same", 3);
    put("z", 4);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("z", 5);
    stage_now("same", 3);
    stage_now("next", 6);
    stage_now("a-rather-long-key", 1);
    const uint64_t cursor = head(), generation = core_stats(&core).generation;
    finish_now("77");
    CHECK_EQUAL(generation + 1, core_stats(&core).generation); /* all of it at once */
    check_deltas(cursor, "D!gone Anext Mz ");
    check_value("a-rather-long-key", 1);
    check_value("same", 3);
    check_value("next", 6);
    check_value("z", 5);
    check_absent("gone");
    CHECK_EQUAL(4, core.writer->resources[things].now.count);
    CHECK_EQUAL(4, core.writer->resources[things].indices[0].count);
    finish();
}

static void test_no_change_makes_no_generation(void)
{
    start();
    put("a", 1);
    put("b", 2);
    const uint64_t generation = core_stats(&core).generation, cursor = head();
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("b", 2);
    stage_now("a", 1);
    finish_now(NULL);
    CHECK_EQUAL(generation, core_stats(&core).generation);
    CHECK_EQUAL(cursor, head());
    CHECK(!core.writer->resources[things].replacing);
    finish();
}

static void test_last_of_a_key_wins(void)
{
    start();
    put("b", 9);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("b", 1);
    stage_now("a", 2);
    stage_now("b", 3);
    stage_now("a", 4);
    stage_now("b", 5);
    const uint64_t cursor = head();
    finish_now("1");
    check_deltas(cursor, "Aa Mb ");
    check_value("a", 4);
    check_value("b", 5);
    finish();
}

static void test_others_publish_meanwhile(void)
{
    start();
    put("a", 1);
    put("b", 1);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    CHECK_EQUAL(SHMC_BUSY, shmc_replace_begin(core.writer, things));
    for (unsigned i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "staged-key-%u", i);
        const uint64_t generation = core_stats(&core).generation;
        stage_now(key, i);
        CHECK_EQUAL(generation, core_stats(&core).generation); /* staging publishes nothing */
        check_absent(key);
        core_put_now(&core, other, key, "'published meanwhile'");
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        core_check(&core);
    }
    put("a", 7);             /* the watch of the same resource continues */
    core_delete_now(&core, things, "b");
    stage_now("staged-key-3", 99);
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    const uint64_t cursor = head();
    finish_now("5");
    CHECK_EQUAL(cursor + 21, head());
    check_absent("a");
    check_value("staged-key-3", 99);
    check_value("staged-key-19", 19);
    CHECK_EQUAL(20, core.writer->resources[things].now.count);
    CHECK_EQUAL(20, core.writer->resources[other].now.count);
    finish();
}

static void test_cancelled_replacement_leaves_no_trace(void)
{
    start();
    put("a", 1);
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    const struct shmc_stats before = core_stats(&core);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("a", 1);
    stage_now("b", 2);
    stage_now("b", 3);
    CHECK(core_stats(&core).reachable_bytes > before.reachable_bytes);
    core_begin(&core);
    CHECK_EQUAL(SHMC_INVALID, shmc_replace_cancel(core.writer, things)); /* not in a batch */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_replace_cancel(core.writer, things));
    core_check(&core);
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    CHECK_EQUAL(before.reachable_bytes, core_stats(&core).reachable_bytes);
    CHECK_EQUAL(before.generation, core_stats(&core).generation);
    core_begin(&core);
    CHECK_EQUAL(SHMC_INVALID, stage("a", 1)); /* no replacement is open */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    check_value("a", 1);
    finish();
}

/* Staging and finishing in a batch that is aborted: objects staged before it are still there. */
static void test_aborted_finish_can_be_tried_again(void)
{
    start();
    put("old", 1);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("m", 2);
    stage_now("k", 3);
    stage_now("m", 4);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, stage("a-key-that-sorts-first", 5)); /* the sort moves it to the front */
    CHECK_EQUAL(SHMC_OK, stage("l", 6));
    CHECK_EQUAL(SHMC_OK, shmc_replace_finish(core.writer, things, "8", 1));
    CHECK_EQUAL(SHMC_INVALID, shmc_replace_finish(core.writer, things, "8", 1)); /* once */
    CHECK_EQUAL(SHMC_INVALID, stage("too-late", 7));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    core_check(&core);
    check_value("old", 1);
    check_absent("m");
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, stage("l", 8));
    CHECK_EQUAL(SHMC_OK, shmc_replace_finish(core.writer, things, "9", 1));
    core_commit(&core);
    check_value("m", 4);
    check_value("k", 3);
    check_value("l", 8);
    check_absent("old");
    check_absent("a-key-that-sorts-first");
    CHECK_EQUAL(3, core.writer->resources[things].now.count);
    finish();
}

static void test_replacing_by_nothing_deletes_all(void)
{
    start();
    put("a", 1);
    put("b", 2);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    const uint64_t cursor = head();
    finish_now("3");
    check_deltas(cursor, "D!a D!b ");
    CHECK_EQUAL(0, core_primary(&core, things));
    CHECK_EQUAL(0, core_tree(&core, things, 0));
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things)); /* nothing by nothing */
    finish_now(NULL);
    finish();
}

/* A reader that pinned the old root sees all of it, and after the swap all of the new one. */
static void test_nobody_sees_half(void)
{
    struct shmc_pinned before, after;
    struct shmc_record record;
    struct shmc_entry entry;
    shmc_offset indices;

    start();
    for (unsigned i = 0; i < 30; i++) {
        char key[16];
        snprintf(key, sizeof key, "old%u", i);
        put(key, i);
    }
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &before));
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    for (unsigned i = 0; i < 40; i++) { /* more than half the ring, with the deletions */
        char key[16];
        snprintf(key, sizeof key, "new%u", i);
        stage_now(key, i);
    }
    finish_now("9");
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &after));
    CHECK_EQUAL(before.generation + 1, after.generation);
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &before, things, &record, &indices));
    CHECK_EQUAL(30, record.count);
    CHECK_EQUAL(SHMC_OK, shmc_tree_find(&reader->span, &shmc_primary, record.primary,
                                        (const uint8_t *)"old7", 4, &entry));
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &after, things, &record, &indices));
    CHECK_EQUAL(40, record.count);
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_tree_find(&reader->span, &shmc_primary, record.primary,
                                               (const uint8_t *)"old7", 4, &entry));
    CHECK_EQUAL(1, core_stats(&core).relists);
    CHECK(shmc_valid(reader->super, before.generation));
    shmc_unpin(reader, &before);
    shmc_unpin(reader, &after);
    finish();
}

static void begin_share(void)
{
    CHECK_EQUAL(SHMC_OK, shmc_share_begin(core.writer, things));
}

static void finish_share(const char *prefix)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK,
                shmc_share_finish(core.writer, things, prefix, strlen(prefix), "6", 1));
    core_commit(&core);
    core_check(&core);
}

static void unstage_now(const char *key)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_unstage(core.writer, things, key, strlen(key)));
    core_commit(&core);
    core_check(&core);
}

static void test_a_share_replaces_its_prefix_and_nothing_else(void)
{
    start();
    put("a/gone", 1);
    put("a/same", 2);
    put("ab/other", 3); /* shares a prefix with the prefix, no more */
    put("b/gone", 4);
    begin_share();
    CHECK_EQUAL(SHMC_BUSY, shmc_replace_begin(core.writer, things));
    stage_now("a/same", 2);
    stage_now("a/new", 5);
    const uint64_t cursor = head();
    finish_share("a/");
    check_deltas(cursor, "D!a/gone Aa/new ");
    check_value("ab/other", 3);
    check_value("b/gone", 4);
    begin_share(); /* an empty one */
    finish_share("b/");
    check_absent("b/gone");
    check_value("a/new", 5);
    CHECK_EQUAL(0, core.writer->resources[things].replacing);
    finish();
}

/* Staged together, in turns; one is finished, one cancelled, one fails and continues. */
static void test_shares_are_staged_side_by_side(void)
{
    start();
    put("b/old", 1);
    begin_share();
    begin_share();
    begin_share();
    CHECK_EQUAL(SHMC_BUSY, shmc_replace_begin(core.writer, things));
    for (unsigned i = 0; i < 5; i++) {
        stage_now("c/1", i);
        stage_now("a/1", i);
        stage_now("b/1", i);
    }
    finish_share("b/");
    check_absent("b/old");
    check_absent("a/1");
    stage_now("c/1", 77); /* serials continue where a shorter list might start again */
    stage_now("c/0", 6);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, stage("c/2", 8));
    CHECK_EQUAL(SHMC_OK, shmc_share_finish(core.writer, things, "c/", 2, "7", 1));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    core_check(&core);
    CHECK_EQUAL(SHMC_OK, shmc_share_cancel(core.writer, things, "a/", 2));
    core_check(&core);
    finish_share("c/");
    check_value("c/1", 77);
    check_value("c/0", 6);
    check_absent("c/2");
    check_absent("a/1");
    check_value("b/1", 4);
    CHECK_EQUAL(0, core.writer->resources[things].replacing);
    CHECK_EQUAL(SHMC_INVALID, shmc_share_cancel(core.writer, things, "a/", 2));
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    CHECK_EQUAL(SHMC_BUSY, shmc_share_begin(core.writer, things));
    finish_now("8");
    finish();
}

static void test_staged_objects_may_be_taken_back(void)
{
    start();
    put("kept", 1);
    put("deleted", 2);
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    stage_now("kept", 1);
    stage_now("deleted", 2);
    stage_now("never", 3);
    stage_now("again", 4);
    unstage_now("deleted");
    unstage_now("never");
    unstage_now("again");
    unstage_now("unheard-of");
    stage_now("again", 5);
    const uint64_t cursor = head();
    finish_now("9");
    check_deltas(cursor, "D!deleted Aagain ");
    check_value("again", 5);
    CHECK_EQUAL(2, core.writer->resources[things].now.count);
    finish();
}

int main(void)
{
    test_start("test_replace");
    test_only_the_difference_is_published();
    test_no_change_makes_no_generation();
    test_last_of_a_key_wins();
    test_others_publish_meanwhile();
    test_cancelled_replacement_leaves_no_trace();
    test_aborted_finish_can_be_tried_again();
    test_replacing_by_nothing_deletes_all();
    test_nobody_sees_half();
    test_a_share_replaces_its_prefix_and_nothing_else();
    test_shares_are_staged_side_by_side();
    test_staged_objects_may_be_taken_back();
    return 0;
}
