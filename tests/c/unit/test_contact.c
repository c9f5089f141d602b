/*
 * A resource's contact block: present from the declaration on, the same in every generation, gone
 * with an aborted declaration; changed without a generation; its contact never goes back. State,
 * reason and version belong to one generation, and are undone with their batch.
 */
#include "core_fixture.h"

static struct shmc_record record_of(const struct core *core, uint32_t resource)
{
    const struct shmc_pinned at = {.catalogue = core->writer->catalogue};
    struct shmc_record record;
    shmc_offset indices;

    CHECK_EQUAL(SHMC_OK,
                shmc_record_load(&core->writer->span, &at, resource, &record, &indices));
    return record;
}

static struct shmc_note contact_of(const struct core *core, uint32_t resource)
{
    const struct shmc_record record = record_of(core, resource);
    struct shmc_note note;

    CHECK_EQUAL(SHMC_OK, shmc_contact_load(&core->writer->span, record.contact, &note));
    return note;
}

static void note(struct core *core, uint32_t resource, struct shmc_note what)
{
    CHECK_EQUAL(SHMC_OK, shmc_note(core->writer, resource, &what));
}

static void test_figures_add_up_and_no_generation_is_published(void)
{
    struct core core;

    core_create(&core, (struct core_options){.size = 1 << 20});
    const uint32_t pods = core_declare(&core, "pods"), nodes = core_declare(&core, "nodes");
    const uint64_t generation = core_stats(&core).generation;
    note(&core, pods, (struct shmc_note){.contact_ns = 40, .lists = 1, .bytes = 1000});
    note(&core, pods, (struct shmc_note){.contact_ns = 30, .events = 3, .bytes = 10}); /* late */
    note(&core, pods,
         (struct shmc_note){.watches = 1, .bookmarks = 2, .errors = 4, .relists = 5, .refused = 6});
    for (unsigned i = 0; i < 2; i++)
        note(&core, pods, (struct shmc_note){.stored = 7, .storing_ns = 90, .stored_1ms = 1,
                                             .stored_10ms = 3, .stored_100ms = 5, .cut = 2});
    note(&core, pods, (struct shmc_note){.stamp_ns = 8, .stamped_ns = 40});
    note(&core, pods, (struct shmc_note){.stamp_ns = 9, .stamped_ns = 50});
    note(&core, pods, (struct shmc_note){.stamp_ns = 7}); /* of no time: unchanged */
    note(&core, pods, (struct shmc_note){.behind_ns = 20});
    CHECK_EQUAL(20, contact_of(&core, pods).behind_ns);
    note(&core, pods, (struct shmc_note){.lists = 0}); /* unchanged */
    CHECK_EQUAL(20, contact_of(&core, pods).behind_ns);
    note(&core, pods, (struct shmc_note){.behind_ns = SHMC_CAUGHT_UP});
    const struct shmc_note now = contact_of(&core, pods);
    CHECK_EQUAL(0, now.behind_ns);
    CHECK_EQUAL(40, now.contact_ns);
    CHECK_EQUAL(1, now.lists);
    CHECK_EQUAL(1, now.watches);
    CHECK_EQUAL(3, now.events);
    CHECK_EQUAL(2, now.bookmarks);
    CHECK_EQUAL(4, now.errors);
    CHECK_EQUAL(5, now.relists);
    CHECK_EQUAL(1010, now.bytes);
    CHECK_EQUAL(6, now.refused);
    CHECK_EQUAL(14, now.stored);
    CHECK_EQUAL(180, now.storing_ns);
    CHECK_EQUAL(2, now.stored_1ms);
    CHECK_EQUAL(6, now.stored_10ms);
    CHECK_EQUAL(10, now.stored_100ms);
    CHECK_EQUAL(4, now.cut);
    CHECK_EQUAL(9, now.stamp_ns);
    CHECK_EQUAL(50, now.stamped_ns);
    CHECK_EQUAL(0, contact_of(&core, nodes).bytes);
    CHECK_EQUAL(generation, core_stats(&core).generation);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void test_the_block_stays_for_good(void)
{
    struct core core;

    core_create(&core, (struct core_options){.size = 1 << 20});
    const uint32_t pods = core_declare(&core, "pods");
    const shmc_offset contact = record_of(&core, pods).contact;
    for (unsigned i = 0; i < 100; i++) {
        core_put_now(&core, pods, i % 2 ? "a" : "b", i % 3 ? "{x: 1}" : "{x: 'a longer text'}");
        note(&core, pods, (struct shmc_note){.contact_ns = i + 1, .events = 1});
        CHECK_EQUAL(contact, record_of(&core, pods).contact);
    }
    CHECK_EQUAL(100, contact_of(&core, pods).events);
    core_check_nothing_leaked(&core);
    CHECK_EQUAL(100, contact_of(&core, pods).contact_ns);
    core_destroy(&core);
}

static void test_an_aborted_declaration_leaves_no_block(void)
{
    struct core core;
    uint32_t id = 0;

    core_create(&core, (struct core_options){.size = 1 << 20});
    core_declare(&core, "pods");
    const uint64_t before = core_stats(&core).reachable_bytes;
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_declare_resource(core.writer, "nodes", 5, &id));
    note(&core, id, (struct shmc_note){.lists = 1}); /* inside a batch too */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    CHECK_EQUAL(before, core_stats(&core).reachable_bytes);
    core_check(&core);
    CHECK_EQUAL(0, contact_of(&core, core_declare(&core, "nodes")).lists); /* zero again */
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void test_invalid_notes_are_rejected(void)
{
    const struct shmc_note future = {.contact_ns = UINT64_MAX / 2};
    const struct shmc_note one = {.lists = 1};
    struct core core;

    core_create(&core, (struct core_options){.size = 1 << 20});
    const uint32_t pods = core_declare(&core, "pods");
    CHECK_EQUAL(SHMC_INVALID, shmc_note(core.writer, pods + 1, &one));
    CHECK_EQUAL(SHMC_INVALID, shmc_note(core.writer, pods, &future));
    shmc_store_racy(&core.writer->super->incarnation, core.writer->incarnation + 1);
    CHECK_EQUAL(SHMC_FENCED, shmc_note(core.writer, pods, &one));
    shmc_store_racy(&core.writer->super->incarnation, core.writer->incarnation);
    CHECK_EQUAL(0, contact_of(&core, pods).lists);
    core_check(&core);
    core_destroy(&core);
}

static void text_is(const struct core *core, const char *expected, shmc_word word)
{
    uint8_t text[SHMC_REASON_MAX];

    CHECK_EQUAL(strlen(expected), core_text(&core->writer->span, word, text, sizeof text));
    CHECK(memcmp(expected, text, strlen(expected)) == 0);
}

static void test_state_and_reason_are_of_one_generation(void)
{
    static const char refused[] = "the server said: 403, forbidden";
    char long_text[SHMC_REASON_MAX + 1];
    struct core core;

    memset(long_text, 'x', sizeof long_text);
    core_create(&core, (struct core_options){.size = 1 << 20});
    const uint32_t pods = core_declare(&core, "pods");
    const uint64_t declared_ns = record_of(&core, pods).since_ns;
    CHECK(declared_ns != 0 && declared_ns <= test_now_ns());
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_state(core.writer, pods, SHMC_RETRYING));
    CHECK_EQUAL(SHMC_OK, shmc_set_reason(core.writer, pods, refused, strlen(refused)));
    CHECK_EQUAL(SHMC_LIMIT, shmc_set_reason(core.writer, pods, long_text, sizeof long_text));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    text_is(&core, "", record_of(&core, pods).reason);
    CHECK_EQUAL(declared_ns, record_of(&core, pods).since_ns);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_state(core.writer, pods, SHMC_RETRYING));
    CHECK_EQUAL(SHMC_OK, shmc_set_reason(core.writer, pods, refused, strlen(refused)));
    core_commit(&core);
    const struct shmc_record record = record_of(&core, pods);
    text_is(&core, refused, record.reason);
    CHECK(record.since_ns > declared_ns);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_state(core.writer, pods, SHMC_RETRYING)); /* no change */
    CHECK_EQUAL(SHMC_OK, shmc_set_reason(core.writer, pods, "", 0));
    core_commit(&core);
    CHECK_EQUAL(record.since_ns, record_of(&core, pods).since_ns);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

/* Which of the two activity words a publication moves, and so which sleepers it wakes. */
static void test_a_version_is_progress_and_no_news(void)
{
    struct core core;

    core_create(&core, (struct core_options){.size = 1 << 20});
    const uint32_t pods = core_declare(&core, "pods");
    const struct shmc_super *super = core.writer->super;
    const uint64_t declared = core_stats(&core).generation;
    CHECK_EQUAL(declared, shmc_load_racy(&super->activity[pods]));
    CHECK_EQUAL(declared, shmc_load_racy(&super->progress[pods]));
    core_put_now(&core, pods, "a", "{x: 1}");
    CHECK_EQUAL(declared + 1, shmc_load_racy(&super->activity[pods]));
    CHECK_EQUAL(declared, shmc_load_racy(&super->progress[pods]));
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_version(core.writer, pods, "41", 2));
    core_commit(&core);
    CHECK_EQUAL(declared + 1, shmc_load_racy(&super->activity[pods]));
    CHECK_EQUAL(declared + 2, shmc_load_racy(&super->progress[pods]));
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_set_state(core.writer, pods, SHMC_SYNCED));
    core_commit(&core);
    CHECK_EQUAL(declared + 3, shmc_load_racy(&super->activity[pods]));
    CHECK_EQUAL(declared + 3, shmc_load_racy(&super->progress[pods]));
    core_destroy(&core);
}

/* CONTACTBLOCK1: a reader that sees a contact finds the state published before it. */

struct race {
    struct core core;
    uint32_t pods;
    atomic_bool stop;
    uint64_t rounds;
};

static void *publish_then_note(void *argument)
{
    struct race *race = argument;
    uint64_t contact_ns = 0;

    while (!atomic_load(&race->stop)) {
        core_begin(&race->core);
        char version[24];
        const int length = snprintf(version, sizeof version, "%" PRIu64, ++contact_ns);
        CHECK_EQUAL(SHMC_OK, shmc_set_version(race->core.writer, race->pods, version,
                                              (size_t)length));
        core_commit(&race->core);
        note(&race->core, race->pods, (struct shmc_note){.contact_ns = contact_ns, .events = 1});
    }
    return NULL;
}

static uint64_t version_of(const struct race *race, struct shmc_reader *reader)
{
    struct shmc_pinned at;
    struct shmc_record record;
    shmc_offset indices;
    char text[32] = {0};

    CHECK_EQUAL(SHMC_OK, shmc_quick_root(reader, &at));
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &at, race->pods, &record, &indices));
    core_text(&reader->span, record.version, (uint8_t *)text, sizeof text - 1);
    const bool valid = shmc_valid(reader->super, at.generation);
    shmc_quick_unpin(reader);
    return valid ? strtoull(text, NULL, 10) : UINT64_MAX;
}

static void test_a_contact_never_precedes_its_data(void)
{
    static struct race race;
    pthread_t writer;

    core_create(&race.core, (struct core_options){.size = 1 << 20});
    race.pods = core_declare(&race.core, "pods");
    struct shmc_reader *reader = core_attach(&race.core);
    const shmc_offset contact = record_of(&race.core, race.pods).contact;
    CHECK_EQUAL(0, version_of(&race, reader)); /* from here on the span is known */
    CHECK_EQUAL(0, pthread_create(&writer, NULL, publish_then_note, &race));
    for (uint64_t heard = 0; heard < 2000;) {
        struct shmc_note seen;
        CHECK_EQUAL(SHMC_OK, shmc_contact_load(&reader->span, contact, &seen));
        CHECK(seen.contact_ns >= heard);
        heard = seen.contact_ns;
        CHECK(version_of(&race, reader) >= heard);
    }
    atomic_store(&race.stop, true);
    CHECK_EQUAL(0, pthread_join(writer, NULL));
    core_detach(reader);
    core_check_nothing_leaked(&race.core);
    core_destroy(&race.core);
}

int main(void)
{
    test_start("test_contact");
    test_figures_add_up_and_no_generation_is_published();
    test_the_block_stays_for_good();
    test_an_aborted_declaration_leaves_no_block();
    test_invalid_notes_are_rejected();
    test_state_and_reason_are_of_one_generation();
    test_a_version_is_progress_and_no_news();
    test_a_contact_never_precedes_its_data();
    return 0;
}
