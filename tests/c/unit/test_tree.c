/*
 * A tree gives the same results as a sorted array, whatever was put and deleted in whatever order;
 * and a pinned root continues to give the results of its publication.
 *
 * Both kinds of tree are driven through a resource: the primary tree by its keys, an index tree
 * by values that come from outside with each put. A pool holds every key that may be used,
 * sorted; a model records for each whether it is present, and its value.
 */
#include "core_fixture.h"

#define LONGEST 700u
#define POOL_MAX 21000u
#define SNAPSHOTS 6u

struct pool {
    size_t count;
    uint8_t *keys[POOL_MAX]; /* as the tree compares them, sorted */
    size_t lengths[POOL_MAX];
};

struct model {
    const struct pool *pool;
    const struct shmc_tree_kind *kind;
    int64_t values[POOL_MAX]; /* 0: absent */
};

static struct pool pool;
static struct model model;
static struct {
    struct model model;
    shmc_offset top;
    uint64_t generation;
} snapshots[SNAPSHOTS];
static struct core core;
static uint32_t resource;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static int compare_bytes(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length)
{
    const size_t common = a_length < b_length ? a_length : b_length;
    const int order = common == 0 ? 0 : memcmp(a, b, common);

    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static void pool_add(const uint8_t *key, size_t length)
{
    CHECK(pool.count < POOL_MAX && length > 0);
    pool.keys[pool.count] = malloc(length); /* exactly */
    CHECK(pool.keys[pool.count] != NULL);
    memcpy(pool.keys[pool.count], key, length);
    pool.lengths[pool.count++] = length;
}

static void pool_free(void)
{
    for (size_t i = 0; i < pool.count; i++)
        free(pool.keys[i]);
    pool.count = 0;
}

struct key {
    uint8_t *bytes;
    size_t length;
};

static int by_bytes(const void *a, const void *b)
{
    const struct key *x = a;
    const struct key *y = b;

    return compare_bytes(x->bytes, x->length, y->bytes, y->length);
}

static void pool_sort(void)
{
    static struct key keys[POOL_MAX];
    const size_t count = pool.count;

    for (size_t i = 0; i < count; i++)
        keys[i] = (struct key){pool.keys[i], pool.lengths[i]};
    qsort(keys, count, sizeof keys[0], by_bytes);
    pool.count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && by_bytes(&keys[i], &keys[i - 1]) == 0) {
            free(keys[i - 1].bytes);
            pool.count--;
        }
        pool.keys[pool.count] = keys[i].bytes;
        pool.lengths[pool.count++] = keys[i].length;
    }
}

/* Prefixes of each other, long common starts, lengths 1..300, bytes from 1 to UTF-8. */
static void pool_mixed(size_t count)
{
    static const char *const atoms[] = {"a", "b", "\x01", "\x7f", "\xc3\xa9", "/"};
    uint8_t key[LONGEST];

    memset(key, 'p', sizeof key);
    for (size_t length = 1; length <= 300; length += 1 + dice(4))
        pool_add(key, length);
    while (pool.count < count) {
        const size_t stem = dice(4) == 0 ? 0 : 1 + dice(200);
        size_t length = stem;

        for (size_t atoms_left = 1 + dice(12); atoms_left > 0; atoms_left--) {
            const char *atom = atoms[dice(6)];
            memcpy(key + length, atom, strlen(atom));
            length += strlen(atom);
        }
        pool_add(key, length);
        memset(key + stem, 'p', length - stem);
    }
    pool_sort();
}

static void pool_numbers(size_t count)
{
    char key[64];

    for (size_t i = 0; i < count; i++)
        pool_add((const uint8_t *)key, (size_t)snprintf(key, sizeof key,
                                                        "namespace-%zu/some-deployment-7f9c-%zu",
                                                        i % 7, i));
    pool_sort();
}

/* ---- the tree against the model -------------------------------------------------------------- */

/* The first key of the pool that is not before these bytes. */
static size_t lower_bound(const uint8_t *bytes, size_t length)
{
    size_t low = 0, high = pool.count;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (compare_bytes(pool.keys[middle], pool.lengths[middle], bytes, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void check_entry(const struct model *expected, size_t i, const struct shmc_entry *entry)
{
    const struct shmc_span *span = shmc_writer_span(core.writer);
    uint8_t bytes[LONGEST];
    size_t length = core_text(span, entry->words[0], bytes, sizeof bytes);

    if (expected->kind == &shmc_index) {
        bytes[length++] = 0;
        length += core_text(span, entry->words[1], bytes + length, sizeof bytes - length);
    } else {
        CHECK_EQUAL(shmc_integer_word(expected->values[i]), entry->words[1]);
    }
    CHECK_EQUAL(0, compare_bytes(pool.keys[i], pool.lengths[i], bytes, length));
}

/* At most `limit` entries from a seek on. */
static void check_scan(const struct model *expected, shmc_offset top, const uint8_t *from,
                       size_t length, size_t limit)
{
    struct shmc_cursor cursor;
    struct shmc_entry entry;

    CHECK_EQUAL(SHMC_OK, shmc_cursor_seek(&cursor, shmc_writer_span(core.writer), expected->kind,
                                          top, from, length));
    for (size_t i = lower_bound(from, length); i < pool.count; i++) {
        if (expected->values[i] == 0)
            continue;
        if (limit-- == 0)
            return;
        CHECK_EQUAL(SHMC_OK, shmc_cursor_next(&cursor, &entry));
        check_entry(expected, i, &entry);
    }
    CHECK_EQUAL(SHMC_EMPTY, shmc_cursor_next(&cursor, &entry));
    CHECK_EQUAL(SHMC_EMPTY, shmc_cursor_next(&cursor, &entry)); /* and stays there */
}

static void check_find(const struct model *expected, shmc_offset top, size_t i)
{
    struct shmc_entry entry;
    const enum shmc_status status = shmc_tree_find(shmc_writer_span(core.writer), expected->kind,
                                                   top, pool.keys[i], pool.lengths[i], &entry);

    CHECK_EQUAL(expected->values[i] != 0 ? SHMC_OK : SHMC_NOT_FOUND, status);
    if (status == SHMC_OK)
        check_entry(expected, i, &entry);
}

/* A search for bytes near a key: cut off, extended, one byte changed. */
static void check_near(const struct model *expected, shmc_offset top)
{
    const size_t i = dice(pool.count);
    const size_t length = pool.lengths[i];
    uint8_t *near = malloc(length + 1);

    CHECK(near != NULL);
    memcpy(near, pool.keys[i], length);
    near[length] = (uint8_t)(dice(2) == 0 ? 0 : dice(256));
    const size_t searched = dice(3) == 0 ? length + 1 : dice(length + 1);
    if (searched > 0 && dice(2) == 0)
        near[dice(searched)] = (uint8_t)dice(256);
    uint8_t *exact = realloc(near, searched > 0 ? searched : 1);
    CHECK(exact != NULL);
    check_scan(expected, top, exact, searched, 3);
    free(exact);
}

static void check_all(const struct model *expected, shmc_offset top)
{
    check_scan(expected, top, NULL, 0, SIZE_MAX);
    for (unsigned i = 0; i < 64; i++)
        check_near(expected, top);
    for (unsigned i = 0; i < 256; i++)
        check_find(expected, top, dice(pool.count));
}

static shmc_offset current_top(void)
{
    return model.kind == &shmc_index ? core_tree(&core, resource, 0)
                                     : core_primary(&core, resource);
}

/* ---- old roots ------------------------------------------------------------------------------- */

static void snapshot_take(unsigned slot)
{
    snapshots[slot].model = model;
    snapshots[slot].top = current_top();
    snapshots[slot].generation = core_stats(&core).generation;
    core_pin(&core, slot, snapshots[slot].generation);
}

static void snapshot_check(unsigned slot)
{
    if (snapshots[slot].generation == 0)
        return;
    CHECK(shmc_valid(core.writer->super, snapshots[slot].generation));
    check_all(&snapshots[slot].model, snapshots[slot].top);
}

static void snapshots_drop(void)
{
    for (unsigned slot = 0; slot < SNAPSHOTS; slot++) {
        snapshot_check(slot);
        core_pin(&core, slot, 0);
        snapshots[slot].generation = 0;
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

static void put(size_t i, int64_t value)
{
    CHECK_EQUAL(SHMC_OK, core_put_word(&core, resource, pool.keys[i], pool.lengths[i],
                                       shmc_integer_word(value)));
    model.values[i] = value;
}

static void take_away(size_t i)
{
    const enum shmc_status status = shmc_delete(core.writer, resource, (const char *)pool.keys[i],
                                                pool.lengths[i], NULL, 0, 0);

    CHECK_EQUAL(model.values[i] != 0 ? SHMC_OK : SHMC_NOT_FOUND, status);
    model.values[i] = 0;
}

static void start(uint64_t size)
{
    core_create(
        &core, (struct core_options){.size = size, .ring_slots = 64, .garbage_bytes = size});
    resource = core_declare(&core, "things");
    memset(&model, 0, sizeof model);
    model.pool = &pool;
    model.kind = &shmc_primary;
}

static void finish(void)
{
    snapshots_drop();
    check_all(&model, current_top());
    core_check_nothing_leaked(&core);
    core_destroy(&core);
    pool_free();
}

static void test_random_changes_with_old_roots(void)
{
    int64_t next = 1;

    start(UINT64_C(32) << 20);
    pool_mixed(900);
    for (unsigned batch = 0; batch < 120; batch++) {
        const uint64_t deletes = batch / 30 % 2 == 0 ? 20 : 80; /* per cent: grows, shrinks */
        const size_t near = dice(pool.count);

        core_begin(&core);
        for (uint64_t left = 1 + dice(dice(10) == 0 ? 300 : 12); left > 0; left--) {
            const size_t i = dice(2) == 0 ? dice(pool.count) : (near + dice(8)) % pool.count;
            if (dice(100) < deletes)
                take_away(i);
            else
                put(i, next++);
        }
        core_commit(&core);
        if (batch % 8 == 0)
            core_check(&core);
        snapshot_check((unsigned)dice(SNAPSHOTS));
        if (dice(3) == 0)
            snapshot_take((unsigned)dice(SNAPSHOTS));
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    }
    CHECK(core_stats(&core).reused_bytes > 0);
    finish();
}

static uint32_t height_of(shmc_offset top)
{
    struct shmc_node node;

    CHECK(shmc_node_open(shmc_writer_span(core.writer), model.kind, top, &node));
    return node.level + 1;
}

enum order { ASCENDING, DESCENDING, SHUFFLED };

static void orders(size_t *order, enum order which)
{
    for (size_t i = 0; i < pool.count; i++)
        order[i] = which == DESCENDING ? pool.count - 1 - i : i;
    for (size_t i = pool.count; which == SHUFFLED && i > 1; i--) {
        const size_t other = dice(i), kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static void test_high_tree(enum order filling, enum order emptying)
{
    static size_t order[POOL_MAX];

    start(UINT64_C(16) << 20);
    pool_numbers(20500);
    orders(order, filling);
    for (size_t i = 0; i < pool.count;) {
        core_begin(&core);
        for (size_t end = i + 3000; i < pool.count && i < end; i++)
            put(order[i], (int64_t)i + 1);
        core_commit(&core);
    }
    CHECK(height_of(current_top()) >= 3);
    check_all(&model, current_top());
    core_check(&core);
    const uint64_t tree_bytes = core_stats(&core).tree_bytes;
    if (filling == ASCENDING) /* keys in order leave full nodes; the directory adds as much */
        CHECK(tree_bytes < pool.count * 100);
    snapshot_take(0);
    orders(order, emptying);
    for (size_t i = 0; i < pool.count;) {
        core_begin(&core);
        for (size_t end = i + 2500; i < pool.count && i < end; i++)
            take_away(order[i]);
        core_commit(&core);
        check_all(&model, current_top());
    }
    CHECK_EQUAL(0, current_top());
    CHECK_EQUAL(0, core.writer->resources[resource].now.count);
    CHECK(core_stats(&core).tree_bytes < 1024); /* record and catalogue */
    finish();
}

/* ---- the other kind -------------------------------------------------------------------------- */

#define INDEX_KEYS 60u
#define INDEX_VALUES 30u

static uint8_t *index_values[INDEX_VALUES];
static size_t index_value_lengths[INDEX_VALUES];
static char index_keys[INDEX_KEYS][16];

/* Value v with key k is pool entry v * INDEX_KEYS + k, before sorting; this finds it after. */
static size_t index_pool_entry(size_t v, size_t k)
{
    uint8_t bytes[LONGEST];
    size_t length = shmc_index_escape(index_values[v], index_value_lengths[v], bytes);

    bytes[length++] = 0;
    memcpy(bytes + length, index_keys[k], strlen(index_keys[k]));
    length += strlen(index_keys[k]);
    const size_t i = lower_bound(bytes, length);
    CHECK_EQUAL(0, compare_bytes(pool.keys[i], pool.lengths[i], bytes, length));
    return i;
}

static void index_pool(void)
{
    uint8_t bytes[LONGEST];

    for (size_t k = 0; k < INDEX_KEYS; k++) /* prefixes of each other among them */
        snprintf(index_keys[k], sizeof index_keys[k], "%.*s%zu", (int)(k % 5), "nnnnn", k / 5);
    for (size_t v = 0; v < INDEX_VALUES; v++) {
        const size_t length = v < 12 ? v : 40 + dice(200);
        index_values[v] = malloc(length + 1);
        CHECK(index_values[v] != NULL);
        for (size_t i = 0; i < length; i++)
            index_values[v][i] = v < 12 ? (uint8_t)(v % 3) : i < 38 ? 'v' : (uint8_t)dice(3);
        index_value_lengths[v] = length;
        for (size_t k = 0; k < INDEX_KEYS; k++) {
            size_t size = shmc_index_escape(index_values[v], length, bytes);
            bytes[size++] = 0;
            memcpy(bytes + size, index_keys[k], strlen(index_keys[k]));
            pool_add(bytes, size + strlen(index_keys[k]));
        }
    }
    pool_sort();
}

static void index_put(size_t k, uint64_t values, int64_t value)
{
    shmc_word words[INDEX_VALUES], emitted;
    size_t count = 0;

    for (size_t v = 0; v < INDEX_VALUES; v++) {
        const bool chosen = values >> v & 1;
        if (chosen)
            CHECK_EQUAL(SHMC_OK, core_bytes(&core, index_values[v], index_value_lengths[v],
                                            &words[count++]));
        model.values[index_pool_entry(v, k)] = chosen;
    }
    CHECK_EQUAL(SHMC_OK, shmc_make_array(core.writer, words, count, &emitted));
    const struct shmc_change change = {
        .resource = resource,
        .key = (const uint8_t *)index_keys[k],
        .key_length = strlen(index_keys[k]),
        .value = shmc_integer_word(value),
        .emitted = &emitted,
        .emitted_count = 1,
    };
    CHECK_EQUAL(SHMC_OK, shmc_put(core.writer, &change));
}

static void index_delete(size_t k)
{
    (void)shmc_delete(core.writer, resource, index_keys[k], strlen(index_keys[k]), NULL, 0, 0);
    for (size_t v = 0; v < INDEX_VALUES; v++)
        model.values[index_pool_entry(v, k)] = 0;
}

static void test_index_kind_with_old_roots(void)
{
    start(UINT64_C(16) << 20);
    model.kind = &shmc_index;
    CHECK_EQUAL(0, core_index(&core, resource, "outside", NULL));
    index_pool();
    for (unsigned batch = 0; batch < 150; batch++) {
        core_begin(&core);
        for (uint64_t left = 1 + dice(8); left > 0; left--) {
            const uint64_t some = test_random(&random_state) & test_random(&random_state);
            if (dice(100) < 25 + batch / 3)
                index_delete(dice(INDEX_KEYS));
            else
                index_put(dice(INDEX_KEYS), some, (int64_t)batch);
        }
        core_commit(&core);
        if (batch % 16 == 0)
            core_check(&core);
        snapshot_check((unsigned)dice(SNAPSHOTS));
        if (dice(3) == 0)
            snapshot_take((unsigned)dice(SNAPSHOTS));
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    }
    finish();
    for (size_t v = 0; v < INDEX_VALUES; v++)
        free(index_values[v]);
}

/* A batch may read its own writes, and change one key many times. */
static void test_changes_within_one_batch(void)
{
    shmc_word value = 0;

    start(UINT64_C(4) << 20); /* a page for each size that a growing node passes through */
    pool_numbers(200);
    core_begin(&core);
    for (int64_t round = 1; round <= 3; round++) {
        for (size_t i = 0; i < pool.count; i++)
            put(i, round);
        for (size_t i = 0; i < pool.count; i += 2)
            take_away(i);
    }
    CHECK_EQUAL(SHMC_NOT_FOUND,
                shmc_current(core.writer, resource, pool.keys[0], pool.lengths[0], &value));
    CHECK_EQUAL(SHMC_OK,
                shmc_current(core.writer, resource, pool.keys[1], pool.lengths[1], &value));
    CHECK_EQUAL(shmc_integer_word(3), value);
    core_commit(&core);
    core_check(&core);
    finish();
}

/* UNDO6: keys in order are searched next to the last one; its neighbours may be gone. */
static void test_neighbours_within_one_batch(void)
{
    shmc_word value = 0;

    start(UINT64_C(4) << 20);
    pool_numbers(900);
    core_begin(&core);
    for (size_t i = 0; i < pool.count; i++) {
        if (i % 9 != 4)
            put(i, 1);
    }
    core_commit(&core);
    for (int64_t round = 2; round < 5; round++) {
        core_begin(&core);
        for (size_t i = 0; i + 8 < pool.count; i += 9) {
            put(i, round);
            put(i + 1, round);
            if (round % 2 == 0)
                take_away(i + 2);
            else
                put(i + 2, round);
            put(i + 3, round);
            if (round % 2 == 0)
                put(i + 4, round); /* between two existing keys */
            else
                take_away(i + 4);
            put(i + 5, round);
            put(i + 8, round);
            put(i + 6, round); /* back */
            put(i + 6, round + 10);
        }
        for (size_t i = 0; i < pool.count; i++) {
            const enum shmc_status status =
                shmc_current(core.writer, resource, pool.keys[i], pool.lengths[i], &value);
            CHECK_EQUAL(model.values[i] == 0 ? SHMC_NOT_FOUND : SHMC_OK, status);
            if (status == SHMC_OK)
                CHECK_EQUAL(shmc_integer_word(model.values[i]), value);
        }
        core_commit(&core);
        core_check(&core);
    }
    finish();
}

int main(void)
{
    test_start("test_tree");
    random_state = test_random_state(1);
    test_random_changes_with_old_roots();
    test_high_tree(ASCENDING, ASCENDING);
    test_high_tree(DESCENDING, DESCENDING);
    test_high_tree(SHUFFLED, SHUFFLED);
    test_index_kind_with_old_roots();
    test_changes_within_one_batch();
    test_neighbours_within_one_batch();
    return 0;
}
