/*
 * A table of equals that forgets costs a second block now and then, and nothing else: no change is
 * reported where nothing changed, no key is taken for another one, and every count stays right.
 *
 * Here it forgets whenever a batch begins.
 */
#include "core_fixture.h"
#include "json/json.h"

#define LONG "a text that is long enough"

static uint64_t random_state;

static struct core core;
static uint32_t pods;

static void start(void)
{
    core_create(&core, (struct core_options){.size = 4 << 20});
    core.writer->intern.forget_from = 0;
    pods = core_declare(&core, "pods");
}

static void finish(void)
{
    core_check(&core);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void begin_and_commit(unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        core_begin(&core);
        core_commit(&core);
    }
}

static void put(const char *key, const char *value)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, pods, key, value, "version-1"));
    core_commit(&core);
}

static uint64_t blocks_made(const char *key, const char *value)
{
    const uint64_t before = core_stats(&core).blocks;

    put(key, value);
    return core_stats(&core).blocks - before;
}

static void test_unique_values_are_forgotten_and_found_again(void)
{
    start();
    put("a", "{x: '" LONG "'}");
    CHECK_EQUAL(1, blocks_made("b", "{y: '" LONG "'}") - 1); /* found: an object and its shape */
    put("c", "{x: 'another text, and alone'}");
    begin_and_commit(2);
    core_check(&core);
    CHECK_EQUAL(2, blocks_made("d", "{z: '" LONG "'}")); /* two references: not forgotten */
    CHECK_EQUAL(3, blocks_made("e", "{w: 'another text, and alone'}")); /* a block of its own now */
    CHECK_EQUAL(2, blocks_made("f", "{v: 'another text, and alone'}")); /* found by the next one */
    finish();
}

static void test_new_entries_stay_for_a_while(void)
{
    start();
    put("a", "{x: '" LONG "'}");
    CHECK_EQUAL(0, blocks_made("b", "{x: '" LONG "'}"));
    finish();
}

static void test_equal_under_other_words_changes_nothing(void)
{
    start();
    put("a", "{metadata: {uid: 'a uid of some length'}, n: [1.1, '" LONG "', {}]}");
    begin_and_commit(2);
    const struct shmc_stats before = core_stats(&core);
    put("a", "{metadata: {uid: 'a uid of some length'}, n: [1.1, '" LONG "', {}]}");
    const struct shmc_stats after = core_stats(&core);
    CHECK_EQUAL(before.head, after.head);
    CHECK_EQUAL(before.generation, after.generation);
    CHECK_EQUAL(before.blocks, after.blocks);
    put("a", "{metadata: {uid: 'a uid of some length'}, n: [1.1, '" LONG "', []]}");
    CHECK_EQUAL(before.head + 1, core_stats(&core).head);
    finish();
}

static void test_an_object_whose_uid_was_made_again_is_the_same(void)
{
    start();
    put("a", "{metadata: {uid: 'a uid of some length'}, n: 1}");
    begin_and_commit(2);
    put("a", "{metadata: {uid: 'a uid of some length'}, n: 2}");
    const uint64_t n = core_stats(&core).head - 1;
    const struct shmc_slot *slot = &shmc_ring_slots(core.writer)[n & core.writer->ring_mask];
    CHECK_EQUAL(SHMC_MODIFIED, shmc_load_racy(&slot->what) >> 32 & 0xff);
    CHECK_EQUAL(0, shmc_load_racy(&slot->what) >> 40 & 0xff);
    finish();
}

static void stage(const char *key, const char *value)
{
    struct shmc_change change = {.resource = pods,
                                 .key = (const uint8_t *)key,
                                 .key_length = strlen(key),
                                 .version = SHMC_NOTHING};

    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, value, &change.value));
    CHECK_EQUAL(SHMC_OK, shmc_stage(core.writer, &change));
    core_commit(&core);
    begin_and_commit(2);
}

static void test_a_relist_knows_keys_that_were_made_again(void)
{
    start();
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, pods));
    for (unsigned round = 0; round < 2; round++) {
        if (round == 1)
            CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, pods));
        stage("a key of length", "{n: 1}");
        stage("b key of length", "{n: '" LONG "'}");
        stage("a key of length", "{n: 2}"); /* the last one counts */
        core_begin(&core);
        CHECK_EQUAL(SHMC_OK, shmc_replace_finish(core.writer, pods, "9", 1));
        core_commit(&core);
        CHECK_EQUAL(2, core_stats(&core).head);
        begin_and_commit(2);
    }
    finish();
}

/* In one batch: objects of three unique texts, the third of which occurs twice. */
static void put_texts(unsigned first, unsigned count)
{
    core_begin(&core);
    for (unsigned i = first; i < first + count; i++) {
        char key[20], value[160];

        snprintf(key, sizeof key, "k%u", i);
        snprintf(value, sizeof value,
                 "['text a of %u', 'text b of %u', 'text c of %u', 'text c of %u']", i, i, i, i);
        CHECK_EQUAL(SHMC_OK, core_put(&core, pods, key, value, "1"));
    }
    core_commit(&core);
}

/*
 * A table that is as full as possible forgets within its own memory: nearly every bucket is full,
 * so that most entries lie after the one where their hash leads, also around the table's end.
 */
static void test_a_full_table_forgets_in_place(unsigned tables)
{
    for (unsigned number = 0; number < tables; number++) {
        core_create(&core, (struct core_options){.size = 4 << 20});
        CHECK_EQUAL(0, core.writer->intern.count);
        core.writer->intern.seed[0] = test_random(&random_state) | 1; /* a new order each time */
        core.writer->intern.forget_from = 0;
        pods = core_declare(&core, "pods");
        put_texts(0, 300);
        put_texts(300, 200); /* all entries were new: it has grown */
        const uint64_t capacity = core.writer->intern.capacity;
        CHECK(core.writer->intern.count * 10 > capacity * 8);
        begin_and_commit(1);
        CHECK_EQUAL(capacity, core.writer->intern.capacity);
        CHECK(core.writer->intern.count * 10 < capacity * 5);
        core_check(&core);
        begin_and_commit(1);
        core_check(&core);
        put_texts(100, 300); /* all values are known, under new words */
        finish();
    }
}

static void parse(const char *text, shmc_word previous, shmc_word *word)
{
    struct shmc_parser parser;

    shmc_parser_init(&parser, core.writer);
    CHECK_EQUAL(SHMC_OK,
                shmc_parse(&parser, (const uint8_t *)text, strlen(text), previous, word));
    shmc_parser_free(&parser);
}

/* One of the two is the old object's word, the other one was just made. */
static void repeat_a_key(unsigned others)
{
    char text[2000] = "{\"before\":0";
    char expected[2000] = "{before: 0", printed[2000];
    struct shmc_entry entry;
    shmc_word word;

    put("a", "{'a key of length': 'x', b: 'y'}");
    begin_and_commit(2);
    core_begin(&core);
    strcat(text, ",\"a key of length\":1");
    strcat(expected, ", 'a key of length': 2");
    for (unsigned i = 0; i < others; i++) {
        snprintf(text + strlen(text), 40, ",\"k%u\":0", i);
        snprintf(expected + strlen(expected), 40, ", k%u: 0", i);
    }
    strcat(text, ",\"a key of length\":2}");
    strcat(expected, "}");
    CHECK_EQUAL(SHMC_OK, shmc_tree_find(&core.writer->span, &shmc_primary,
                                        core.writer->resources[pods].now.primary,
                                        (const uint8_t *)"a", 1, &entry));
    parse(text, entry.words[1], &word);
    core_print(&core.writer->span, word, printed, sizeof printed);
    shmc_word wanted;
    CHECK_EQUAL(SHMC_OK, core_value(&core, expected, &wanted));
    CHECK(shmc_same_value(core.writer, wanted, word));
    core_commit(&core);
}

static void test_a_repeated_key_is_one_key(void)
{
    start();
    repeat_a_key(1);
    repeat_a_key(40);
    finish();
}

/* After any operations in any order: every invariant holds, and a takeover finds no fault. */
static void test_random_changes(unsigned steps)
{
    core_create(&core, (struct core_options){.size = 8 << 20, .ring_slots = 32});
    pods = core_declare(&core, "pods");
    core_index(&core, pods, "node", "node");
    core_index(&core, pods, "labels", "labels");
    for (unsigned step = 0; step < steps; step++) {
        char key[40], value[200];

        core.writer->intern.forget_from = 0;
        core_begin(&core);
        for (unsigned i = 0; i < 4; i++) {
            snprintf(key, sizeof key, "namespace/pod-%u", (unsigned)(test_random(&random_state) % 20));
            const unsigned dice = (unsigned)(test_random(&random_state) % 1000);
            snprintf(value, sizeof value,
                     "{node: 'node-number-%u', labels: {app: 'application %u', n: 'number %u'}, "
                     "status: ['ready or not %u', %u]}",
                     dice % 3, dice % 5, dice % 40, dice % 7, dice % 2);
            if (dice % 10 == 9)
                (void)core_delete(&core, pods, key);
            else
                CHECK_EQUAL(SHMC_OK, core_put(&core, pods, key, value, dice % 2 ? "1" : "2"));
        }
        if (step % 16 == 5)
            CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        else
            core_commit(&core);
        core_check(&core);
        if (step % 64 == 63)
            core_take_over(&core);
    }
    finish();
}

int main(void)
{
    test_start("test_forget");
    random_state = test_random_state(8);
    test_unique_values_are_forgotten_and_found_again();
    test_new_entries_stay_for_a_while();
    test_equal_under_other_words_changes_nothing();
    test_an_object_whose_uid_was_made_again_is_the_same();
    test_a_relist_knows_keys_that_were_made_again();
    test_a_repeated_key_is_one_key();
    test_a_full_table_forgets_in_place(40);
    test_random_changes(400);
    return 0;
}
