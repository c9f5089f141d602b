/*
 * After any batch, with any failures in it: once it is published all of it is visible, once it is
 * aborted nothing of it remains. Random sequences of everything that a batch may hold - changes,
 * values from text, shares staged, taken back and finished, states, reasons, notes - in an arena
 * that is often full, on a heap that fails, compared with a model.
 */
#include "json/json.h"
#include "core_fixture.h"

#define KEYS 40u /* half of them under each prefix */
#define SHARES 2u
#define NONE 0u
#define GONE 1u /* staged as deleted */
#define FIRST 2u
#define TEXT 24576u

static const char *const prefixes[SHARES] = {"a/", "and-a-longer-prefix/"};

struct state {
    unsigned stored[KEYS], staged[SHARES][KEYS];
    bool open[SHARES];
};

static struct core core;
static struct shmc_parser parser;
static uint32_t things;
static struct state published, pending;
static uint64_t random_state;
static unsigned outcomes[SHMC_OVER + 1], deaths;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static size_t key_text(unsigned key, char text[64])
{
    return (size_t)snprintf(text, 64, "%s%s%u", prefixes[key % SHARES],
                            key % 3 == 0 ? "with-a-long-name-" : "", key);
}

/* Many of them share subtrees, or are equal as a whole. Some are large. */
static void value_text(unsigned number, char text[TEXT])
{
    const int filling = number % 16 == 0 ? 20000 : number % 4 == 0 ? 5000 : 3;

    snprintf(text, TEXT,
             "{\"filling\":\"%0*u\",\"number\":\"%u\",\"metadata\":{\"uid\":\"00000000-uid-%u\",\"labels\":{\"app\":\"application-%u\","
             "\"key %u\":\"%u\"}},\"%s\":[%u.25,[\"a list \\u00e9 number %u\"],{}],"
             "\"large\":123456789012345678%u,\"node\":\"node-number-%u\"}",
             filling, number % 50, number, number % 40, number % 7, number % 5, number, number % 2 ? "list" : "another list",
             number % 11, number % 3, number % 4, number % 6);
}

static struct shmc_change change_of(unsigned key, char text[64])
{
    return (struct shmc_change){
        .resource = things, .key_length = key_text(key, text), .key = (const uint8_t *)text};
}

static enum shmc_status parse(unsigned number, struct shmc_change *change)
{
    shmc_word previous;
    char text[TEXT];

    if (shmc_current(core.writer, things, change->key, change->key_length, &previous) != SHMC_OK)
        previous = SHMC_NOTHING;
    value_text(number, text);
    change->looked_up = true;
    return shmc_parse(&parser, (const uint8_t *)text, strlen(text), previous, &change->value);
}

/* ---- steps of a batch ------------------------------------------------------------------------ */

static enum shmc_status put(unsigned key, unsigned number)
{
    char text[64];
    struct shmc_change change = change_of(key, text);
    enum shmc_status status = parse(number, &change);

    if (status == SHMC_OK)
        status = shmc_put(core.writer, &change);
    if (status == SHMC_OK)
        pending.stored[key] = number;
    return status;
}

static enum shmc_status take_away(unsigned key)
{
    char text[64];
    const size_t length = key_text(key, text);
    const enum shmc_status status =
        shmc_delete(core.writer, things, text, length, "a-version-of-the-end", 20, 0);

    if (status == SHMC_OK)
        pending.stored[key] = NONE;
    return status == SHMC_NOT_FOUND ? SHMC_OK : status;
}

static enum shmc_status stage(unsigned key, unsigned number)
{
    char text[64];
    struct shmc_change change = change_of(key, text);
    enum shmc_status status = parse(number, &change);

    if (status == SHMC_OK)
        status = shmc_stage(core.writer, &change);
    if (status == SHMC_OK)
        pending.staged[key % SHARES][key] = number;
    return status;
}

static enum shmc_status unstage(unsigned key)
{
    char text[64];
    const enum shmc_status status = shmc_unstage(core.writer, things, text, key_text(key, text));

    if (status == SHMC_OK)
        pending.staged[key % SHARES][key] = GONE;
    return status;
}

static enum shmc_status restage(unsigned key)
{
    char text[64];
    const enum shmc_status status = shmc_restage(core.writer, things, text, key_text(key, text));

    if (status == SHMC_OK)
        pending.staged[key % SHARES][key] = pending.stored[key];
    return status == SHMC_NOT_FOUND ? SHMC_OK : status;
}

static enum shmc_status finish_share(unsigned share)
{
    const enum shmc_status status =
        shmc_share_finish(core.writer, things, prefixes[share], strlen(prefixes[share]),
                          "a-version-of-the-list", 21);

    if (status != SHMC_OK)
        return status;
    for (unsigned key = share; key < KEYS; key += SHARES) {
        const unsigned staged = pending.staged[share][key];
        pending.stored[key] = staged >= FIRST ? staged : NONE;
        pending.staged[share][key] = NONE;
    }
    pending.open[share] = false;
    return SHMC_OK;
}

static enum shmc_status set_texts(void)
{
    char text[64];
    const size_t length = (size_t)snprintf(text, sizeof text, "why it is so: %u", (unsigned)dice(5));
    enum shmc_status status = shmc_set_reason(core.writer, things, text, dice(2) ? length : 0);

    if (status == SHMC_OK)
        status = shmc_set_version(core.writer, things, text, length);
    return status == SHMC_OK ? shmc_set_state(core.writer, things, dice(4)) : status;
}

static enum shmc_status declare(void)
{
    char text[64];
    uint32_t id;

    if (core.writer->resource_count >= 6)
        return SHMC_OK;
    return shmc_declare_resource(core.writer, text,
                                 (size_t)snprintf(text, sizeof text, "resource %" PRIu64,
                                                  test_random(&random_state)),
                                 &id);
}

static enum shmc_status step(bool *finished)
{
    const unsigned key = (unsigned)dice(KEYS), number = FIRST + (unsigned)dice(200);
    const bool open = pending.open[key % SHARES] && !*finished;

    switch (dice(open ? 14 : 8)) {
    case 0:
        return set_texts();
    case 1:
        return dice(8) == 0 ? declare() : SHMC_OK;
    case 2:
    case 3:
        return take_away(key);
    case 8:
        *finished = true;
        return finish_share(key % SHARES);
    case 9:
        return unstage(key);
    case 10:
        return restage(key);
    case 11:
    case 12:
    case 13:
        return stage(key, number);
    default:
        return put(key, number);
    }
}

/* ---- invariants ------------------------------------------------------------------------------- */

static void check_content(void)
{
    unsigned count = 0;

    for (unsigned key = 0; key < KEYS; key++) {
        char text[64];
        shmc_word value;
        const size_t length = key_text(key, text);
        const enum shmc_status status =
            shmc_current(core.writer, things, (const uint8_t *)text, length, &value);

        CHECK_EQUAL(published.stored[key] == NONE ? SHMC_NOT_FOUND : SHMC_OK, status);
        if (status != SHMC_OK)
            continue;
        count++;
        const struct shmc_span *span = shmc_writer_span(core.writer);
        uint8_t number[16] = {0};
        core_text(span, shmc_object_find(span, value, (const uint8_t *)"number", 6), number,
                  sizeof number - 1);
        CHECK_EQUAL(published.stored[key], strtoul((const char *)number, NULL, 10));
    }
    CHECK_EQUAL(count, core.writer->resources[things].now.count);
}

struct figures {
    uint64_t live, nodes, equals, staged, resources, generation;
};

static struct figures figures(void)
{
    struct shmc_writer *const writer = core.writer;

    return (struct figures){
        .live = writer->arena.used_bytes - writer->limbo.bytes,
        .nodes = writer->node_bytes,
        .equals = writer->intern.count,
        .staged = writer->resources[things].staged.count,
        .resources = writer->resource_count,
        .generation = writer->generation,
    };
}

static void check_figures(const struct figures *before)
{
    const struct figures after = figures();

    CHECK_EQUAL(before->live, after.live);
    CHECK_EQUAL(before->nodes, after.nodes);
    CHECK_EQUAL(before->equals, after.equals);
    CHECK_EQUAL(before->staged, after.staged);
    CHECK_EQUAL(before->resources, after.resources);
    CHECK_EQUAL(before->generation, after.generation);
}

static void batch(void)
{
    const struct figures before = figures();
    enum shmc_status status = SHMC_OK;
    bool finished = false;

    pending = published;
    if (dice(3) == 0)
        core.writer->heap.fail_after = 1 + dice(60);
    if (dice(8) == 0)
        parser.heap.fail_after = 1 + dice(4);
    if (shmc_begin(core.writer) != SHMC_OK)
        test_fail(__FILE__, __LINE__, "a batch begins");
    for (uint64_t steps = 1 + dice(12); steps > 0 && status == SHMC_OK; steps--)
        status = step(&finished);
    CHECK(status == SHMC_OK || status == SHMC_NO_MEMORY || status == SHMC_FULL);
    if (status == SHMC_OK && dice(5) != 0) {
        status = shmc_commit(core.writer, test_now_ns());
        CHECK(status == SHMC_OK || status == SHMC_NO_MEMORY || status == SHMC_FULL);
        if (status == SHMC_OK)
            published = pending;
    } else {
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        status = status == SHMC_OK ? SHMC_INVALID : status; /* as if it had failed */
    }
    outcomes[status]++;
    core.writer->heap.fail_after = parser.heap.fail_after = 0;
    if (status != SHMC_OK)
        check_figures(&before);
}

/* The writer dies with half a batch: published objects remain, staged ones do not. */
static void die(void)
{
    const struct shmc_stats before = core_stats(&core);
    bool finished = false;

    pending = published;
    if (dice(2) == 0 && shmc_begin(core.writer) == SHMC_OK) {
        for (uint64_t steps = dice(6); steps > 0 && step(&finished) == SHMC_OK; steps--)
            continue;
    }
    shmc_parser_free(&parser);
    core_take_over(&core);
    shmc_parser_init(&parser, core.writer);
    memset(published.staged, 0, sizeof published.staged);
    memset(published.open, 0, sizeof published.open);
    const struct shmc_stats after = core_stats(&core);
    CHECK_EQUAL(before.generation, after.generation);
    CHECK_EQUAL(before.head, after.head);
    CHECK_EQUAL(before.tail, after.tail);
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer)); /* the pins had no owner */
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    check_content();
    deaths++;
}

static void between_batches(void)
{
    const unsigned share = (unsigned)dice(SHARES);
    const struct shmc_note note = {.contact_ns = shmc_monotonic_ns(), .events = 1, .bytes = 77};
    struct shmc_stats stats;

    switch (dice(13)) {
    case 12:
        die();
        break;
    case 0:
    case 1:
        if (!published.open[share]) {
            CHECK_EQUAL(SHMC_OK, shmc_share_begin(core.writer, things));
            published.open[share] = true;
        }
        break;
    case 2:
        if (published.open[share]) {
            CHECK_EQUAL(SHMC_OK, shmc_share_cancel(core.writer, things, prefixes[share],
                                                   strlen(prefixes[share])));
            published.open[share] = false;
            memset(published.staged[share], 0, sizeof published.staged[share]);
        }
        break;
    case 3:
        CHECK_EQUAL(SHMC_OK, shmc_note(core.writer, things, &note));
        break;
    case 4:
        CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
        break;
    case 5:
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        break;
    case 6:
        stats = core_stats(&core);
        core_pin(&core, (unsigned)dice(SHMC_PINS), stats.generation);
        break;
    case 7:
        core_pin(&core, (unsigned)dice(SHMC_PINS), 0);
        break;
    default:
        break;
    }
}

static void test_random_batches(uint64_t size)
{
    const uint64_t end_ns = test_now_ns() + test_stress_ns() / 2;
    uint64_t rounds = 0;

    core_create(&core, (struct core_options){.size = size, .ring_slots = 32});
    shmc_parser_init(&parser, core.writer);
    memset(&published, 0, sizeof published);
    memset(outcomes, 0, sizeof outcomes);
    things = core_declare(&core, "things");
    core_index(&core, things, "labels", "metadata.labels");
    core_index(&core, things, "node", "node");
    for (; test_now_ns() < end_ns || rounds < 500; rounds++) {
        between_batches();
        batch();
        core_check(&core);
        if (rounds % 16 == 0)
            check_content();
    }
    for (unsigned slot = 0; slot < SHMC_PINS; slot++)
        core_pin(&core, slot, 0);
    for (unsigned share = 0; share < SHARES; share++) {
        if (published.open[share])
            CHECK_EQUAL(SHMC_OK, shmc_share_cancel(core.writer, things, prefixes[share],
                                                   strlen(prefixes[share])));
    }
    check_content();
    core_check_nothing_leaked(&core);
    shmc_parser_free(&parser);
    core_destroy(&core);
    printf("%" PRIu64 " batches in %" PRIu64 " KiB: %u published, %u found no heap, %u no arena; %u deaths\n",
           rounds, size >> 10, outcomes[SHMC_OK], outcomes[SHMC_NO_MEMORY], outcomes[SHMC_FULL], deaths);
    CHECK(deaths > 0);
}

int main(void)
{
    test_start("test_undo");
    random_state = test_random_state(29);
    test_random_batches(UINT64_C(4) << 20);
    test_random_batches(UINT64_C(448) << 10); /* mostly full */
    return 0;
}
