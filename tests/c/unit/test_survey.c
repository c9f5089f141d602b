/*
 * A survey reports the contents of a state, agrees with the writer's own figures, finds a fact that
 * does not hold, and with any bytes in DATA neither crashes nor runs for ever.
 */
#include "core_fixture.h"

#define OBJECTS 300u

static char what[200];

static void fill(struct core *core)
{
    char key[64], text[200];

    core_create(core, (struct core_options){.size = 1 << 21, .ring_slots = 1024});
    const uint32_t pods = core_declare(core, "pods");
    core_index(core, pods, "node", "node");
    core_declare(core, "nodes");
    for (unsigned i = 0; i < OBJECTS; i++) {
        snprintf(key, sizeof key, "namespace-%u/a-name-of-some-length-%u", i % 3, i);
        snprintf(text, sizeof text,
                 "{node: 'the-node-number-%u', list: [%u, 'a text that all of them have', 1.25], "
                 "labels: {app: 'application-%u'}}",
                 i % 7, i, i % 5);
        core_put_now(core, pods, key, text);
    }
}

static enum shmc_status survey(struct shmc_reader *reader, struct shmc_survey *sum,
                               struct shmc_survey_row rows[2])
{
    return shmc_survey(reader, sum, rows, 2, what, sizeof what);
}

static void test_it_counts_what_the_writer_counts(void)
{
    struct core core;
    struct shmc_survey sum;
    struct shmc_survey_row rows[2];
    struct shmc_data_info info;

    fill(&core);
    struct shmc_reader *reader = core_attach(&core);
    CHECK_EQUAL(SHMC_OK, survey(reader, &sum, rows));
    CHECK_EQUAL(2, sum.resources);
    CHECK_EQUAL(OBJECTS, rows[0].objects);
    CHECK_EQUAL(OBJECTS, rows[0].index_entries);
    CHECK_EQUAL(0, rows[1].objects);
    CHECK_EQUAL(0, rows[1].value_bytes >> 10);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
    const struct shmc_stats stats = core_stats(&core);
    CHECK_EQUAL(stats.head - stats.tail, sum.window);
    CHECK(sum.value_bytes <= stats.value_bytes && sum.value_bytes > stats.value_bytes * 8 / 10);
    CHECK(sum.tree_bytes <= stats.tree_bytes && sum.tree_bytes > stats.tree_bytes * 8 / 10);
    CHECK(rows[0].value_bytes <= sum.value_bytes && rows[0].tree_bytes <= sum.tree_bytes);

    CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, shmc_monotonic_ns()));
    shmc_data_info(&core.data, &info);
    CHECK_EQUAL(core.writer->generation, info.latest);
    CHECK_EQUAL(stats.value_bytes, info.stats.value_bytes);
    CHECK_EQUAL(stats.blocks, info.stats.blocks);
    CHECK_EQUAL((uint64_t)getpid(), info.writer_pid);
    CHECK(info.heartbeat_ns != 0 && info.closed == 0 && info.over == 0);
    core_detach(reader);
    core_destroy(&core);
}

static void expect(struct core *core, shmc_offset at, uint64_t wrong, const char *fact)
{
    struct shmc_survey sum;
    struct shmc_survey_row rows[2];
    struct shmc_reader *reader = core_attach(core);
    uint8_t *word = core->data.base + at;
    const uint64_t right = shmc_word_load(word);

    shmc_word_store(word, wrong);
    CHECK_EQUAL(SHMC_CORRUPT, survey(reader, &sum, rows));
    if (strstr(what, fact) == NULL) {
        fprintf(stderr, "\"%s\" does not contain \"%s\"\n", what, fact);
        CHECK(false);
    }
    shmc_word_store(word, right);
    CHECK_EQUAL(SHMC_OK, survey(reader, &sum, rows));
    core_detach(reader);
}

static void test_it_finds_what_does_not_hold(void)
{
    struct core core;

    fill(&core);
    const uint8_t *base = core.data.base;
    const struct shmc_pinned at = {.catalogue = core.writer->catalogue};
    const shmc_offset block = shmc_word_load(base + at.catalogue + 8);
    struct shmc_record record;
    shmc_offset indices;
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&core.writer->span, &at, 0, &record, &indices));

    expect(&core, block + offsetof(struct shmc_record, count), OBJECTS + 1, "entries");
    expect(&core, block + offsetof(struct shmc_record, directory), 0, "DIRECTORY1");
    expect(&core, block + offsetof(struct shmc_record, primary), block, "broken node");
    expect(&core, record.contact, UINT64_MAX, "LAYOUT8");
    const shmc_offset slot = SHMC_RING_OFFSET + (core.writer->tail & core.writer->ring_mask) * 64;
    expect(&core, slot, 0, "LAYOUT5");
    struct shmc_directory_node node;
    shmc_offset bucket = record.directory;
    while (shmc_directory_node(&core.writer->span, bucket, &node) && node.inner) {
        uint64_t i = 0;
        while (shmc_word_load(base + node.words + i * 8) == 0)
            i++;
        bucket = shmc_word_load(base + node.words + i * 8);
    }
    expect(&core, node.words, 1, "DIRECTORY2");
    core_destroy(&core);
}

/* SURVEY1. Random words of a copy are overwritten: some walks notice, some cannot, all of them
 * end. */
static void test_nothing_that_stands_there_crashes_it(void)
{
    struct core core;
    struct shmc_survey sum;
    struct shmc_survey_row rows[2];
    uint64_t state = test_seed, found = 0;

    fill(&core);
    struct shmc_reader *reader = core_attach(&core);
    const uint64_t start = core.writer->super->arena_offset;
    const uint64_t words = (shmc_arena_high_water(&core.writer->arena) - start) / 8;
    for (unsigned round = 0; round < 400; round++) {
        uint8_t *word = core.data.base + start + test_random(&state) % words * 8;
        const uint64_t right = shmc_word_load(word);
        const uint64_t wrongs[] = {0, UINT64_MAX, test_random(&state), right + 8, right ^ 3,
                                   start | (test_random(&state) & 7)};
        shmc_word_store(word, wrongs[test_random(&state) % 6]);
        const enum shmc_status status = survey(reader, &sum, rows);
        CHECK(status == SHMC_OK || status == SHMC_CORRUPT);
        CHECK_EQUAL(status == SHMC_OK, what[0] == 0);
        found += status == SHMC_CORRUPT;
        shmc_word_store(word, right);
    }
    CHECK(found > 0);
    CHECK_EQUAL(SHMC_OK, survey(reader, &sum, rows));
    core_detach(reader);
    core_destroy(&core);
}

int main(void)
{
    test_start("test_survey");
    test_it_counts_what_the_writer_counts();
    test_it_finds_what_does_not_hold();
    test_nothing_that_stands_there_crashes_it();
    return 0;
}
