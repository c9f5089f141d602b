/*
 * The difference of two generations equals a comparison of all entries, in key order; shared parts
 * are skipped; any bytes are survived.
 */
#include "core_fixture.h"
#include "trees/tree.h"

#define KEYS 3000u

static struct core core;
static uint32_t pods;
static uint64_t random_state;

static shmc_offset top_now(void)
{
    return core.writer->resources[pods].now.primary;
}

static void pin_latest(unsigned slot)
{
    core_pin(&core, slot, core.writer->generation);
}

static void name_of(unsigned number, char key[32])
{
    snprintf(key, 32, "space-%u/pod-%05u", number % 7, number);
}

static void put(unsigned number, uint64_t value)
{
    char key[32], text[64];

    name_of(number, key);
    snprintf(text, sizeof text, "{number: %u, value: %llu}", number, (unsigned long long)value);
    CHECK_EQUAL(SHMC_OK, core_put(&core, pods, key, text, NULL));
}

/* All entries of a tree, for the comparison. */
static size_t all_of(shmc_offset top, struct shmc_entry *entries)
{
    const struct shmc_span *span = &core.writer->span;
    struct shmc_cursor cursor;
    size_t count = 0;

    CHECK_EQUAL(SHMC_OK, shmc_cursor_seek(&cursor, span, &shmc_primary, top, NULL, 0));
    while (shmc_cursor_next(&cursor, &entries[count]) == SHMC_OK)
        count++;
    return count;
}

static int key_order(shmc_word a, shmc_word b)
{
    uint8_t x[64], y[64];
    const size_t left = core_text(&core.writer->span, a, x, sizeof x);
    const size_t right = core_text(&core.writer->span, b, y, sizeof y);
    const int order = memcmp(x, y, left < right ? left : right);

    return order != 0 ? order : (left > right) - (left < right);
}

/* The same by brute force: merges two lists of entries. */
static size_t expect(const struct shmc_entry *old, size_t olds, const struct shmc_entry *new,
                     size_t news, struct shmc_difference *out)
{
    size_t i = 0, k = 0, count = 0;

    while (i < olds || k < news) {
        const int order = i == olds   ? 1
                          : k == news ? -1
                                      : key_order(old[i].words[0], new[k].words[0]);
        if (order < 0) {
            out[count++] = (struct shmc_difference){
                SHMC_DELETED, old[i].words[0], old[i].words[1], SHMC_NOTHING};
            i++;
        } else if (order > 0) {
            out[count++] = (struct shmc_difference){
                SHMC_ADDED, new[k].words[0], SHMC_NOTHING, new[k].words[1]};
            k++;
        } else {
            if (old[i].words[1] != new[k].words[1])
                out[count++] = (struct shmc_difference){
                    SHMC_MODIFIED, new[k].words[0], old[i].words[1], new[k].words[1]};
            i++;
            k++;
        }
    }
    return count;
}

static uint64_t check_difference(shmc_offset old_top, shmc_offset new_top)
{
    static struct shmc_entry old[2 * KEYS], new[2 * KEYS];
    static struct shmc_difference expected[4 * KEYS];
    const size_t olds = all_of(old_top, old), news = all_of(new_top, new);
    const size_t count = expect(old, olds, new, news, expected);
    struct shmc_difference found;
    struct shmc_diff diff;

    shmc_diff_open(&diff, &core.writer->span, old_top, new_top, olds + news);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQUAL(SHMC_OK, shmc_diff_next(&diff, &found));
        CHECK_EQUAL(expected[i].kind, found.kind);
        CHECK_EQUAL(0, key_order(expected[i].key, found.key));
        CHECK_EQUAL(expected[i].old_value, found.old_value);
        CHECK_EQUAL(expected[i].new_value, found.new_value);
    }
    CHECK_EQUAL(SHMC_EMPTY, shmc_diff_next(&diff, &found));
    CHECK_EQUAL(SHMC_EMPTY, shmc_diff_next(&diff, &found)); /* and again */
    return diff.skipped;
}

static void fill(unsigned count)
{
    core_create(&core, (struct core_options){.size = 64 << 20});
    pods = core_declare(&core, "pods");
    core_begin(&core);
    for (unsigned i = 0; i < count; i++)
        put(i, i);
    core_commit(&core);
}

static void test_shared_nodes_are_not_opened(void)
{
    fill(KEYS);
    const shmc_offset before = top_now();
    pin_latest(0);
    CHECK_EQUAL(1, check_difference(before, before)); /* the top itself */
    core_begin(&core);
    put(1500, 7);
    core_commit(&core);
    const uint64_t skipped = check_difference(before, top_now());
    CHECK(skipped > 20); /* all but one node of each level, in one branch */
    core_pin(&core, 0, 0);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static void test_work_is_proportional_to_the_difference(void)
{
    struct shmc_difference found;
    struct shmc_diff diff;

    fill(KEYS);
    const shmc_offset before = top_now();
    pin_latest(0);
    core_begin(&core);
    put(17, 1);
    put(KEYS + 5, 1);
    core_commit(&core);
    shmc_diff_open(&diff, &core.writer->span, before, top_now(), 2 * KEYS + 1);
    const uint64_t budget = diff.budget;
    while (shmc_diff_next(&diff, &found) == SHMC_OK)
        continue;
    CHECK(budget - diff.budget < 2 * (2 * SHMC_NODE_MAX + SHMC_NODE_MAX));
    core_pin(&core, 0, 0);
    core_destroy(&core);
}

static void test_from_and_to_nothing(void)
{
    fill(500);
    pin_latest(0);
    CHECK_EQUAL(0, check_difference(0, top_now()));
    CHECK_EQUAL(0, check_difference(top_now(), 0));
    CHECK_EQUAL(0, check_difference(0, 0));
    core_pin(&core, 0, 0);
    core_destroy(&core);
}

/* Trees of other heights, nodes that split and merge: all pairs of some generations. */
static void test_random_changes(void)
{
    enum { STATES = 12 };
    shmc_offset tops[STATES] = {0};

    fill(0);
    for (unsigned state = 1; state < STATES; state++) {
        const unsigned changes = 1u << (test_random(&random_state) % 12);
        const bool shrinks = state % 4 == 3;
        core_begin(&core);
        for (unsigned i = 0; i < changes; i++) {
            const unsigned number = (unsigned)(test_random(&random_state) % KEYS);
            char key[32];
            name_of(number, key);
            if (shrinks || test_random(&random_state) % 4 == 0)
                (void)core_delete(&core, pods, key);
            else
                put(number, test_random(&random_state) % 3);
        }
        core_commit(&core);
        tops[state] = top_now();
        pin_latest(state);
    }
    for (unsigned a = 0; a < STATES; a++) {
        for (unsigned b = 0; b < STATES; b++)
            check_difference(tops[a], tops[b]);
    }
    core_check(&core);
    core_destroy(&core);
}

/* On memory of exactly the size: the sanitizer sees a byte too far. */
static void test_any_bytes_are_survived(void)
{
    enum { BYTES = 1 << 16 };
    uint8_t *memory = aligned_alloc(64, BYTES);
    const struct shmc_span span = {.base = memory, .size = BYTES, .first = SHMC_RING_OFFSET};
    uint64_t ended = 0;

    CHECK(memory != NULL);
    for (unsigned round = 0; round < 3000; round++) {
        struct shmc_difference found;
        struct shmc_diff diff;
        enum shmc_status status = SHMC_OK;

        for (shmc_offset at = 0; at < BYTES; at += 8) {
            uint64_t word = test_random(&random_state);
            if (word % 3 == 0) /* looks like the head of a node */
                word = shmc_node_shape((uint32_t)(word >> 8) % 9 + 1, 0, (uint32_t)(word >> 16) % 3,
                                       3 + (word >> 20) % 2);
            else if (word % 3 == 1)
                word = (word >> 8) % (BYTES / 8 + 4) * 8 | (word & 4u);
            shmc_word_store(memory + at, word);
        }
        const shmc_offset old = SHMC_RING_OFFSET + test_random(&random_state) % 4096 * 8;
        const shmc_offset new = SHMC_RING_OFFSET + test_random(&random_state) % 4096 * 8;
        shmc_diff_open(&diff, &span, old, new, 100);
        while (status == SHMC_OK)
            status = shmc_diff_next(&diff, &found);
        CHECK(status == SHMC_EMPTY || status == SHMC_CORRUPT);
        ended += status == SHMC_EMPTY;
    }
    printf("%llu of 3000 ended without noticing\n", (unsigned long long)ended);
    free(memory);
}

int main(void)
{
    test_start("test_diff");
    random_state = test_random_state(1);
    test_shared_nodes_are_not_opened();
    test_work_is_proportional_to_the_difference();
    test_from_and_to_nothing();
    test_random_changes();
    test_any_bytes_are_survived();
    return 0;
}
