/*
 * With any width that a ring had or gets, and any death or failure on the way, the last root shows
 * every delta of its window, an older one those that the writer has not lapped.
 *
 * Batches of any size at any position of rings of any width, some of which fail after their slots;
 * a plain array remembers the content of each delta.
 */
#include "core_fixture.h"

#define STEPS 60u
#define WIDEST 512u
#define KEYS 300u
#define RESOURCES 6u
#define OLD 5u
#define REMEMBERED (STEPS * (WIDEST + 2))

struct change {
    uint32_t resource;
    uint8_t kind;
    char key[12], text[40];
};

static struct core core;
static struct shmc_reader *reader;
static struct change remembered[REMEMBERED], batch[WIDEST + 2];
static struct shmc_pinned old[OLD]; /* roots still held; generation 0: none */
static bool there[RESOURCES][KEYS], before[RESOURCES][KEYS];
static uint32_t resources;
static uint64_t random_state, number, widened, overflowed, failed, taken_over, lapped;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static struct shmc_pinned pin(void)
{
    struct shmc_pinned at;

    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    return at;
}

static void check_text(const char *expected, shmc_word word)
{
    uint8_t text[64];
    const size_t length = core_text(&reader->span, word, text, sizeof text);

    CHECK_EQUAL(strlen(expected), length);
    CHECK_EQUAL(0, memcmp(expected, text, length));
}

/* All deltas of a root; some may be gone by now, unless they `must` be there. */
static void check_window(const struct shmc_pinned *at, bool must)
{
    static struct shmc_delta deltas[WIDEST];
    size_t count;

    for (uint64_t n = at->tail; n < at->head;) {
        const enum shmc_status status =
            shmc_ring_take(reader, at, n, deltas, 1 + dice(WIDEST), &count);
        if (!must && (status == SHMC_LAPPED || !shmc_valid(reader->super, at->generation))) {
            lapped++;
            n++;
            continue;
        }
        CHECK_EQUAL(SHMC_OK, status);
        for (size_t i = 0; i < count; i++, n++) {
            const struct change *expected = &remembered[n];
            CHECK_EQUAL(n, deltas[i].number);
            CHECK_EQUAL(expected->resource, deltas[i].resource);
            CHECK_EQUAL(expected->kind, deltas[i].kind);
            if (expected->kind != SHMC_RELIST)
                check_text(expected->key, deltas[i].key);
            if (expected->kind == SHMC_ADDED || expected->kind == SHMC_MODIFIED)
                check_text(expected->text, deltas[i].new_value);
        }
    }
}

static void change(struct change *one)
{
    const uint64_t key = dice(KEYS);
    char text[48];

    one->resource = (uint32_t)dice(resources);
    snprintf(one->key, sizeof one->key, "key-%" PRIu64, key);
    bool *is_there = &there[one->resource][key];
    one->kind = !*is_there ? SHMC_ADDED : dice(3) == 0 ? SHMC_DELETED : SHMC_MODIFIED;
    *is_there = one->kind != SHMC_DELETED;
    snprintf(one->text, sizeof one->text, "a new value %" PRIu64, number++);
    snprintf(text, sizeof text, "'%s'", one->text);
    CHECK_EQUAL(SHMC_OK, *is_there ? core_put(&core, one->resource, one->key, text, NULL)
                                   : core_delete(&core, one->resource, one->key));
}

static void take_over(const struct shmc_pinned *at)
{
    core_take_over(&core);
    taken_over++;
    check_window(at, true);
}

/* WIDEN4, WIDEN5: published slots stay as they are. */
static void fail(const struct shmc_pinned *at)
{
    struct shmc_super *super = core.writer->super;

    if (dice(2) == 0) {
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    } else {
        shmc_store_racy(&super->incarnation, core.writer->incarnation + 1);
        const enum shmc_status status = shmc_commit(core.writer, test_now_ns());
        CHECK(status == SHMC_FENCED || status == SHMC_OK); /* of nothing */
        shmc_store_racy(&super->incarnation, core.writer->incarnation);
    }
    memcpy(there, before, sizeof there);
    CHECK_EQUAL(at->slots, core.writer->ring_mask + 1);
    check_window(at, true);
    core_check(&core);
    failed++;
    if (dice(3) == 0)
        take_over(at);
}

/* The batch's deltas: its changes, or a RELIST for each resource. Returns their end. */
static uint64_t remember(uint64_t head, uint64_t size, bool relisted)
{
    if (!relisted) {
        memcpy(&remembered[head], batch, (size_t)size * sizeof batch[0]);
        return head + size;
    }
    for (uint32_t r = 0; r < resources; r++) {
        bool changed = false;
        for (uint64_t i = 0; i < size; i++)
            changed |= batch[i].resource == r;
        if (changed)
            remembered[head++] = (struct change){.resource = r, .kind = SHMC_RELIST};
    }
    return head;
}

static void publish(const struct shmc_pinned *at, uint64_t size)
{
    const uint64_t relists = core_stats(&core).relists;

    CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, dice(2) == 0 ? 0 : test_now_ns()));
    const bool relisted = core_stats(&core).relists != relists;
    const struct shmc_pinned after = pin();
    CHECK_EQUAL(remember(at->head, size, relisted), after.head);
    widened += after.slots > at->slots;
    overflowed += relisted;
    check_window(&after, true);
    check_window(at, false);
    core_check(&core);
    if (dice(8) == 0)
        take_over(&after);
    shmc_unpin(reader, &after);
}

static void hold(const struct shmc_pinned *at)
{
    struct shmc_pinned *kept = &old[dice(OLD)];

    for (unsigned i = 0; i < OLD; i++) {
        if (old[i].generation != 0)
            check_window(&old[i], false);
    }
    if (kept->generation != 0)
        shmc_unpin(reader, kept);
    *kept = *at;
}

static void step(uint64_t slots)
{
    const struct shmc_pinned at = pin();
    const uint64_t size = dice(4) == 0 ? dice(slots + 2) : dice(slots / 2 + 3);

    memcpy(before, there, sizeof before);
    if (dice(12) == 0)
        CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    core_begin(&core);
    for (uint64_t i = 0; i < size; i++)
        change(&batch[i]);
    const struct shmc_pinned now = pin(); /* the window may have been dropped */
    if (dice(4) == 0)
        fail(&now);
    else
        publish(&now, size);
    shmc_unpin(reader, &now);
    hold(&at);
}

static void test_a_ring(void)
{
    static const uint64_t bytes[] = {0, 0, 200, 500, 1500, 6000, 20000};
    const uint64_t slots = UINT64_C(8) << dice(7), first = UINT64_C(8) << dice(7);

    core_create(&core, (struct core_options){.size = UINT64_C(4) << 20,
                                             .ring_slots = slots,
                                             .ring_first = first,
                                             .ring_bytes = bytes[dice(7)]});
    memset(there, 0, sizeof there);
    memset(old, 0, sizeof old);
    resources = 1 + (uint32_t)dice(slots / 2 < RESOURCES ? slots / 2 : RESOURCES);
    for (uint32_t i = 0; i < resources; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%u", i);
        core_declare(&core, name);
    }
    reader = core_attach(&core);
    for (unsigned i = 0; i < STEPS; i++)
        step(slots);
    for (unsigned i = 0; i < OLD; i++) {
        if (old[i].generation != 0)
            shmc_unpin(reader, &old[i]);
    }
    core_check_nothing_leaked(&core);
    core_detach(reader);
    core_destroy(&core);
}

/* RING1: a batch that declares more resources than the narrow window holds has room for their
 * RELISTs, wherever head is. */
static void test_many_resources_at_once(void)
{
    for (uint64_t puts = 0; puts <= 40; puts++) {
        for (uint64_t size = 1; size <= 16; size++) {
            char text[64];
            uint32_t id;

            core_create(&core, (struct core_options){.size = UINT64_C(2) << 20,
                                                     .ring_slots = 16,
                                                     .ring_first = 8,
                                                     .ring_bytes = 330});
            const uint32_t things = core_declare(&core, "things");
            for (uint64_t i = 0; i < puts; i++) {
                snprintf(text, sizeof text, "'the value number %" PRIu64 " of it'", i);
                core_put_now(&core, things, &"a key"[i % 3], text);
            }
            CHECK_EQUAL(SHMC_OK, shmc_begin(core.writer));
            for (unsigned i = 0; i < 4; i++) {
                snprintf(text, sizeof text, "r%u", i);
                CHECK_EQUAL(SHMC_OK,
                            shmc_declare_resource(core.writer, text, strlen(text), &id));
            }
            for (uint64_t i = 0; i < size; i++) {
                snprintf(text, sizeof text, "n%" PRIu64, i);
                CHECK_EQUAL(SHMC_OK, core_put(&core, things, text, "1", NULL));
            }
            CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, test_now_ns()));
            core_check(&core);
            core_destroy(&core);
        }
    }
}

int main(void)
{
    test_start("test_widen");
    random_state = test_random_state(6);
    test_many_resources_at_once();
    const uint64_t stop = test_now_ns() + test_stress_ns();
    uint64_t rings = 0;
    for (; rings < 10 || test_now_ns() < stop; rings++)
        test_a_ring();
    printf("%" PRIu64 " rings, widened %" PRIu64 " times, %" PRIu64 " batches became RELISTs, %" PRIu64
           " were undone, %" PRIu64
           " takeovers, %" PRIu64 " deltas were gone\n",
           rings, widened, overflowed, failed, taken_over, lapped);
    CHECK(widened > 0 && overflowed > 0 && failed > 0 && taken_over > 0 && lapped > 0);
    return 0;
}
