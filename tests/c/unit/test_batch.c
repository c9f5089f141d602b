/*
 * A batch that is aborted - by the caller, by an allocation that fails, by an arena that is
 * full - leaves no trace: every figure, every count, every table and the content are as before.
 *
 * Batches of random changes (puts, deletes, versions, new resources and indices, staged
 * objects and their finish) run against a model that is a plain array of texts.
 */
#include "core_fixture.h"

#define KEYS 40u
#define TEXT 320u

struct model {
    char texts[KEYS][TEXT];  /* "": not there */
    char staged[KEYS][TEXT]; /* "": not staged */
    bool replacing, finished;
    uint64_t state;
    uint32_t version, resources, indices;
};

static struct core core;
static struct model model;
static uint32_t things;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static const char *key_of(size_t k)
{
    static char key[64];

    snprintf(key, sizeof key, k % 3 == 0 ? "k%zu" : "namespace/rather-long-name-%zu", k);
    return key;
}

/* In the form core_print() writes. Large parts are equal between objects. */
static void random_text(char text[TEXT])
{
    const char *const tail = dice(2) == 0 ? "'a text of some length that all share'" : "null";

    snprintf(text, TEXT,
             "{'node': 'node-number-%llu', 'status': {'n': %llu, 'list': [%llu, %s, "
             "{'deep': 'unique-%llu'}, {}, []], 'ratio': %g}, 'labels': {'app': 'app-%llu'}}",
             (unsigned long long)dice(4), (unsigned long long)dice(3),
             (unsigned long long)dice(1000), tail, (unsigned long long)dice(100000),
             (double)dice(8) / 10, (unsigned long long)dice(3));
}

/* ---- one change ------------------------------------------------------------------------------ */

static enum shmc_status change_object(size_t k)
{
    char text[TEXT];

    random_text(text);
    const enum shmc_status status = core_put(&core, things, key_of(k), text, "version-of-it");
    if (status == SHMC_OK)
        memcpy(model.texts[k], text, TEXT);
    return status;
}

static enum shmc_status remove_object(size_t k)
{
    const char *key = key_of(k);
    const enum shmc_status status =
        shmc_delete(core.writer, things, key, strlen(key), "version-of-deletion", 19, 0);

    if (status == SHMC_NOT_FOUND) {
        CHECK_EQUAL(0, model.texts[k][0]);
        return SHMC_OK;
    }
    if (status == SHMC_OK)
        model.texts[k][0] = 0;
    return status;
}

static enum shmc_status change_version(void)
{
    char version[32];
    const uint32_t next = model.version + (uint32_t)dice(2);

    snprintf(version, sizeof version, "resource-version-%u", next);
    const enum shmc_status status =
        shmc_set_version(core.writer, things, version, strlen(version));
    if (status == SHMC_OK)
        model.version = next;
    return status;
}

static enum shmc_status change_state(void)
{
    const uint64_t next = dice(4);
    const enum shmc_status status = shmc_set_state(core.writer, things, next);

    if (status == SHMC_OK)
        model.state = next;
    return status;
}

static enum shmc_status add_resource(void)
{
    char name[32];
    uint32_t id;

    if (model.resources >= 8) /* half the slots of the smallest ring used here */
        return SHMC_OK;
    snprintf(name, sizeof name, "another-resource-%u", model.resources);
    const enum shmc_status status =
        shmc_declare_resource(core.writer, name, strlen(name), &id);
    if (status == SHMC_OK)
        CHECK_EQUAL(model.resources++, id);
    return status;
}

static enum shmc_status add_index(void)
{
    static const char *const paths[] = {"node", "status.n", "labels", "status.list[*].deep",
                                        "status.list", "status.ratio"};
    char name[32];
    uint32_t number;

    if (model.indices >= 6)
        return SHMC_OK;
    const char *path = paths[model.indices];
    snprintf(name, sizeof name, "an-index-%u", model.indices);
    const enum shmc_status status = shmc_declare_index(core.writer, things, name, strlen(name),
                                                       path, strlen(path), &number);
    if (status == SHMC_OK)
        CHECK_EQUAL(model.indices++, number);
    return status;
}

static enum shmc_status stage_object(size_t k)
{
    struct shmc_change change = {.resource = things};
    char text[TEXT];

    if (!model.replacing || model.finished)
        return SHMC_OK;
    if (model.texts[k][0] != 0 && dice(2) == 0) /* unchanged */
        memcpy(text, model.texts[k], TEXT);
    else
        random_text(text);
    enum shmc_status status = core_value(&core, text, &change.value);
    if (status == SHMC_OK)
        status = core_bytes(&core, "version-of-it", 13, &change.version);
    change.key = (const uint8_t *)key_of(k);
    change.key_length = strlen(key_of(k));
    if (status == SHMC_OK)
        status = shmc_stage(core.writer, &change);
    if (status == SHMC_OK)
        memcpy(model.staged[k], text, TEXT);
    return status;
}

static enum shmc_status finish_replace(void)
{
    if (!model.replacing || model.finished)
        return SHMC_OK;
    const enum shmc_status status = shmc_replace_finish(core.writer, things, "replaced-at-77", 14);
    if (status != SHMC_OK)
        return status;
    memcpy(model.texts, model.staged, sizeof model.texts);
    model.version = 0;
    model.finished = true;
    return SHMC_OK;
}

static enum shmc_status random_change(void)
{
    const uint64_t which = dice(100);

    if (which < 50)
        return change_object(dice(KEYS));
    if (which < 65)
        return remove_object(dice(KEYS));
    if (which < 70)
        return change_version();
    if (which < 75)
        return change_state();
    if (which < 78)
        return add_resource();
    if (which < 81)
        return add_index();
    if (which < 97)
        return stage_object(dice(KEYS));
    return finish_replace();
}

/* ---- before and after ------------------------------------------------------------------------ */

struct figures {
    struct shmc_stats stats;
    struct shmc_root root;
    uint64_t takes, drops, fresh, retired, staged, catalogue;
};

static struct figures figures(void)
{
    const struct shmc_writer *writer = core.writer;
    const uint64_t latest = shmc_load_racy(&writer->super->latest);
    struct figures now = {
        .stats = core_stats(&core),
        .takes = writer->undo.takes.count,
        .drops = writer->undo.drops.count,
        .fresh = writer->undo.fresh.count,
        .retired = writer->undo.retired.count,
        .staged = writer->resources[things].staged.count,
        .catalogue = writer->catalogue,
    };

    memcpy(&now.root, &writer->super->roots[latest & (SHMC_ROOTS - 1)], sizeof now.root);
    /* these may differ: pages that were touched, tables that grew, blocks used again, and blocks
     * given back before the batch could fail for lack of room */
    now.stats.high_water_bytes = now.stats.free_bytes = now.stats.private_bytes = 0;
    now.stats.reused_bytes = now.stats.limbo_bytes = now.stats.floor = 0;
    return now;
}

/* The value under a word as text. */
static void check_text(const char *expected, shmc_word word)
{
    char text[TEXT];

    core_print(shmc_writer_span(core.writer), word, text, sizeof text);
    if (strcmp(expected, text) != 0)
        fprintf(stderr, "expected %s\nfound    %s\n", expected, text);
    CHECK_EQUAL(0, strcmp(expected, text));
}

static void check_content(void)
{
    const struct shmc_wresource *resource = &core.writer->resources[things];
    uint64_t count = 0;

    for (size_t k = 0; k < KEYS; k++) {
        const char *key = key_of(k);
        shmc_word value;
        const enum shmc_status status =
            shmc_current(core.writer, things, (const uint8_t *)key, strlen(key), &value);

        CHECK_EQUAL(model.texts[k][0] != 0 ? SHMC_OK : SHMC_NOT_FOUND, status);
        if (status != SHMC_OK)
            continue;
        check_text(model.texts[k], value);
        count++;
    }
    CHECK_EQUAL(count, resource->now.count);
    CHECK_EQUAL(model.state, resource->now.state);
    CHECK_EQUAL(model.resources, core.writer->resource_count);
    CHECK_EQUAL(model.indices, resource->now.index_count);
    for (uint32_t i = 0; i < model.indices && i < 3; i++) /* one value of each object */
        CHECK_EQUAL(count, resource->indices[i].count);
}

static void check_as_before(const struct figures *before)
{
    const struct figures now = figures();
    const uint64_t *expected = (const uint64_t *)(const void *)before;
    const uint64_t *found = (const uint64_t *)(const void *)&now;

    for (size_t i = 0; i < sizeof now / sizeof(uint64_t); i++) {
        if (expected[i] != found[i])
            fprintf(stderr, "figure %zu\n", i);
        CHECK_EQUAL(expected[i], found[i]);
    }
    core_check(&core);
    check_content();
}

static void start(uint64_t size, uint64_t ring_slots)
{
    core_create(&core, (struct core_options){.size = size, .ring_slots = ring_slots});
    things = core_declare(&core, "things");
    memset(&model, 0, sizeof model);
    model.resources = 1;
}

static void finish(void)
{
    if (model.replacing)
        CHECK_EQUAL(SHMC_OK, shmc_replace_cancel(core.writer, things));
    check_content();
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void maybe_begin_replace(void)
{
    if (model.replacing || dice(4) != 0)
        return;
    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
    CHECK_EQUAL(SHMC_BUSY, shmc_replace_begin(core.writer, things));
    memset(model.staged, 0, sizeof model.staged);
    model.replacing = true;
    model.finished = false;
}

static void after_commit(void)
{
    if (model.finished)
        model.replacing = model.finished = false;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_aborted_at_any_point(void)
{
    static struct model before;
    unsigned aborted = 0, committed = 0;

    start(UINT64_C(4) << 20, 32);
    for (unsigned batch = 0; batch < 400; batch++) {
        maybe_begin_replace();
        const struct figures was = figures();
        before = model;
        core_begin(&core);
        for (uint64_t left = dice(30); left > 0; left--)
            CHECK_EQUAL(SHMC_OK, random_change());
        if (dice(2) == 0) {
            CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
            model = before;
            check_as_before(&was);
            aborted++;
        } else {
            core_commit(&core);
            after_commit();
            if (batch % 8 == 0)
                core_check(&core);
            committed++;
        }
        if (batch % 16 == 0)
            CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    }
    CHECK(aborted > 0 && committed > 0);
    finish();
}

/* The same batch again and again; each time another allocation fails. */
static uint64_t fail_each_allocation(unsigned changes)
{
    static struct model before;
    const uint64_t seed = random_state;

    before = model;
    for (uint64_t k = 1;; k++) {
        const struct figures was = figures();
        enum shmc_status status = SHMC_OK;

        random_state = seed;
        model = before;
        core.writer->heap.fail_after = k;
        status = shmc_begin(core.writer);
        for (unsigned i = 0; status == SHMC_OK && i < changes; i++)
            status = random_change();
        if (status == SHMC_OK) {
            status = shmc_commit(core.writer, 0);
            if (status == SHMC_OK) {
                const bool survived = core.writer->heap.fail_after == 0;
                core.writer->heap.fail_after = 0;
                after_commit();
                check_content();
                if (!survived)
                    return k; /* no allocation failed */
                return fail_each_allocation(changes); /* it did not need that one: continue */
            }
            CHECK(!core.writer->in_batch);
        } else {
            CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        }
        CHECK_EQUAL(SHMC_NO_MEMORY, status);
        core.writer->heap.fail_after = 0;
        model = before;
        check_as_before(&was);
    }
}

static void test_each_allocation_fails_in_turn(void)
{
    uint64_t failures = 0;

    for (unsigned round = 0; round < 12; round++) {
        start(UINT64_C(3) << 20, 16); /* each of the 86 sizes may need a page of its own */
        core_begin(&core);
        for (unsigned i = 0; i < round * 6; i++)
            CHECK_EQUAL(SHMC_OK, random_change());
        core_commit(&core);
        model.replacing = false;
        maybe_begin_replace();
        failures += fail_each_allocation(4 + round * 3);
        finish();
    }
    CHECK(failures > 100);
}

static enum shmc_status put_large(size_t k, size_t size)
{
    static uint8_t bytes[40000];
    shmc_word word;

    memset(bytes, 'x', sizeof bytes);
    snprintf((char *)bytes, 32, "%llu", (unsigned long long)dice(1000000));
    enum shmc_status status = core_bytes(&core, bytes, size, &word);
    if (status == SHMC_OK)
        status = core_put_word(&core, things, key_of(k), strlen(key_of(k)), word);
    return status;
}

/* Large and small values until there is no room; then fewer, and it continues. */
static void test_full_arena_leaves_the_last_state(void)
{
    static struct model before;
    unsigned full = 0, committed = 0;

    start(UINT64_C(384) << 10, 32);
    for (unsigned batch = 0; batch < 250; batch++) {
        enum shmc_status status = SHMC_OK;
        const struct figures was = figures();

        before = model;
        core_begin(&core);
        for (uint64_t left = dice(60); status == SHMC_OK && left > 0; left--) {
            status = dice(6) == 0 ? put_large(0, 100 + dice(39000)) : random_change();
            if (status == SHMC_OK && dice(12) == 0)
                status = remove_object(0); /* the model has no room for its text */
        }
        const enum shmc_status gone = status == SHMC_OK ? remove_object(0) : status;
        if (gone != SHMC_OK) {
            CHECK_EQUAL(SHMC_FULL, gone);
            CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        } else if (shmc_commit(core.writer, 0) == SHMC_OK) {
            committed++;
            after_commit();
            continue;
        }
        full++;
        model = before;
        check_as_before(&was);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        core_begin(&core); /* existing objects can always be deleted */
        CHECK_EQUAL(SHMC_OK, remove_object(dice(KEYS)));
        if (shmc_commit(core.writer, 0) != SHMC_OK)
            model = before;
    }
    CHECK(full > 0 && committed > 0);
    finish();
}

static void test_poisoned_batch_can_only_be_aborted(void)
{
    uint32_t id;

    start(UINT64_C(1) << 20, 16);
    CHECK_EQUAL(SHMC_INVALID, shmc_commit(core.writer, 0));
    CHECK_EQUAL(SHMC_INVALID, shmc_abort(core.writer));
    CHECK_EQUAL(SHMC_INVALID, shmc_set_state(core.writer, things, 1)); /* no batch is open */
    core_begin(&core);
    CHECK_EQUAL(SHMC_BUSY, shmc_begin(core.writer));
    CHECK_EQUAL(SHMC_OK, change_object(1));
    core.writer->poisoned = true; /* as after an error in the middle of a change */
    CHECK_EQUAL(SHMC_INVALID, change_object(2));
    CHECK_EQUAL(SHMC_INVALID, shmc_declare_resource(core.writer, "x", 1, &id));
    CHECK_EQUAL(SHMC_INVALID, shmc_commit(core.writer, 0));
    CHECK(!core.writer->in_batch);
    memset(&model.texts, 0, sizeof model.texts);
    core_check(&core);
    finish();
}

/* Rejected arguments change nothing, and the batch continues. */
static void test_refusals_do_not_harm_the_batch(void)
{
    static const uint8_t nul[] = {'a', 0, 'b'}, broken[] = {0xc3};
    shmc_word value;
    uint32_t id;

    start(UINT64_C(1) << 20, 16);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{a: 'a text that needs a block'}", &value));
    CHECK_EQUAL(SHMC_INVALID, core_put_word(&core, things, nul, 3, value));
    CHECK_EQUAL(SHMC_INVALID, core_put_word(&core, things, broken, 1, value));
    CHECK_EQUAL(SHMC_INVALID, core_put_word(&core, things, "", 0, value));
    CHECK_EQUAL(SHMC_INVALID, core_put_word(&core, things, "a", 1, SHMC_NOTHING));
    CHECK_EQUAL(SHMC_INVALID, core_put_word(&core, things + 1, "a", 1, value));
    CHECK_EQUAL(SHMC_INVALID, shmc_declare_resource(core.writer, "things", 6, &id));
    CHECK_EQUAL(SHMC_INVALID, shmc_declare_index(core.writer, things, "i", 1, "a..b", 4, &id));
    CHECK_EQUAL(SHMC_INVALID, shmc_replace_finish(core.writer, things, NULL, 0));
    CHECK_EQUAL(SHMC_INVALID, shmc_set_version(core.writer, things, (const char *)broken, 1));
    CHECK_EQUAL(SHMC_NOT_FOUND, core_delete(&core, things, "a"));
    CHECK_EQUAL(SHMC_OK, change_object(3));
    core_commit(&core);
    finish();
}

/* A batch in which nothing changed is not a generation, and keeps nothing. */
static void test_no_change_makes_no_generation(void)
{
    shmc_word word;

    start(UINT64_C(1) << 20, 16);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, change_object(5));
    core_commit(&core);
    const struct figures was = figures();
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, things, key_of(5), model.texts[5], "version-of-it"));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "{'made': ['but', 'never used by anybody']}", &word));
    CHECK_EQUAL(SHMC_NOT_FOUND, core_delete(&core, things, "nobody"));
    core_commit(&core);
    check_as_before(&was);
    finish();
}

static void test_a_segment_with_a_past_is_refused(void)
{
    const struct shmc_writer_settings settings = {.max_size = 1 << 20, .ring_slots = 16,
                                                  .instance = 7, .seed = 3};
    struct shmc_writer *second = NULL;

    start(UINT64_C(1) << 20, 16);
    CHECK_EQUAL(SHMC_INVALID, shmc_writer_create(&core.data, &core.seats, &settings, &second));
    CHECK(second == NULL);
    core_check(&core);
    finish();
}

int main(void)
{
    test_start("test_batch");
    random_state = test_random_state(2);
    test_aborted_at_any_point();
    test_each_allocation_fails_in_turn();
    test_full_arena_leaves_the_last_state();
    test_poisoned_batch_can_only_be_aborted();
    test_refusals_do_not_harm_the_batch();
    test_no_change_makes_no_generation();
    test_a_segment_with_a_past_is_refused();
    return 0;
}
