/*
 * An index holds exactly one entry for each distinct value that an object's path, or outside code,
 * emits for it now; a change of an object leaves nothing stale in any index.
 */
#include "core_fixture.h"

#define ALL 4096u

static struct core core;
static uint32_t things;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static void start(void)
{
    core_create(&core, (struct core_options){.size = UINT64_C(4) << 20});
    things = core_declare(&core, "things");
}

static void finish(void)
{
    core_check(&core);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

/* Every entry of an index as "value>key " in order; NUL and \1 as stored there: ~0 ~1. */
static void entries_of(uint32_t index, char text[ALL])
{
    const struct shmc_span *span = shmc_writer_span(core.writer);
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    uint64_t count = 0;

    text[0] = 0;
    CHECK_EQUAL(SHMC_OK, shmc_cursor_seek(&cursor, span, &shmc_index,
                                          core_tree(&core, things, index), NULL, 0));
    for (; shmc_cursor_next(&cursor, &entry) == SHMC_OK; count++) {
        uint8_t bytes[512];
        size_t length = shmc_index_unescape(bytes, core_text(span, entry.words[0], bytes, 512));
        for (size_t i = 0; i < length; i++)
            text += bytes[i] < 2 ? sprintf(text, "~%d", bytes[i]) : sprintf(text, "%c", bytes[i]);
        length = core_text(span, entry.words[1], bytes, 512);
        text += sprintf(text, ">%.*s ", (int)length, (const char *)bytes);
    }
    CHECK_EQUAL(count, core.writer->resources[things].indices[index].count);
}

static void check_entries(uint32_t index, const char *expected)
{
    char text[ALL];

    entries_of(index, text);
    if (strcmp(expected, text) != 0)
        fprintf(stderr, "expected %s\nfound    %s\n", expected, text);
    CHECK_EQUAL(0, strcmp(expected, text));
}

/* ---- paths ----------------------------------------------------------------------------------- */

static void check_path(const char *path, const char *object, const char *expected)
{
    start();
    core_put_now(&core, things, "k", object); /* back-filled */
    const uint32_t filled = core_index(&core, things, "filled", path);
    check_entries(filled, expected);
    core_put_now(&core, things, "k", "{}");
    check_entries(filled, "");
    CHECK_EQUAL(0, core_tree(&core, things, filled));
    core_put_now(&core, things, "k", object); /* kept up to date */
    check_entries(filled, expected);
    core_delete_now(&core, things, "k");
    check_entries(filled, "");
    CHECK_EQUAL(0, core_tree(&core, things, filled));
    finish();
}

static void test_paths(void)
{
    static const char *const rows[][3] = {
        {"a", "{a: 'x'}", "x>k "},
        {"a.b", "{a: {b: 'a value that is not short'}}", "a value that is not short>k "},
        {"a.b", "{a: 'x'}", ""},
        {"a.b", "{a: [{b: 'x'}]}", ""},
        {"a[*].b", "{a: [{b: 'x'}, {b: 'y'}, {c: 'z'}, 3, {b: 'x'}]}", "x>k y>k "},
        {"a[*].b", "{a: {b: 'x'}}", ""},
        {"a[*]", "{a: ['x', 'y', null, [1], {c: 'd'}]}", "1>k c=d>k x>k y>k "},
        {"a[*][*]", "{a: [['x'], ['y', 'z']]}", "x>k y>k z>k "},
        {"a", "{a: ['x', 'y', null, [1], {c: 'd'}]}", "x>k y>k "},
        {"a['b.c/d']", "{a: {'b.c/d': 'x', b: 'y'}}", "x>k "},
        {"['a'][\"b's\"]", "{a: {b: 1}}", ""},
        {"['a']['b']", "{a: {b: 1}}", "1>k "},
        {"a", "{a: {app: 'web', tier: 1, on: true, none: null, sub: {}}}",
         "app=web>k on=true>k tier=1>k "},
        {"a", "{a: -5}", "-5>k "},
        {"a", "{a: 9223372036854775807}", "9223372036854775807>k "},
        {"a", "{a: 1.5}", "1.5>k "},
        {"a", "{a: true}", "true>k "},
        {"a", "{a: false}", "false>k "},
        {"a", "{a: ''}", ">k "}, /* an empty text is a value */
        {"a", "{a: null}", ""},
        {"a", "{a: []}", ""},
        {"a", "{a: {}}", ""},
        {"a", "{b: 1}", ""},
        {"a", "[1]", ""},
        {"a", "'text'", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_path(rows[i][0], rows[i][1], rows[i][2]);
}

static void test_which_paths_make_sense(void)
{
    static const char *const good[] = {"a", "a.b", ".a", "a[*]", "a[*].b", "[*]", "a['b']",
                                       "a['b'].c", "a[\"b\"]", "a['']", "a-b/c"};
    static const char *const bad[] = {"", ".", "a.", "a..b", "a[", "a[*", "a[]", "a[b]", "a['b",
                                      "a['b'", "a['b]", "a['b\"]", "a[0]", "a.[", "a[']"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char *exact = strndup(good[i], strlen(good[i])); /* a sanitizer sees one byte too many */
        CHECK(shmc_path_valid(exact, strlen(good[i])));
        free(exact);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const size_t length = strlen(bad[i]);
        char *exact = malloc(length + (length == 0));
        CHECK(exact != NULL);
        memcpy(exact, bad[i], length);
        if (shmc_path_valid(exact, length))
            fprintf(stderr, "%s\n", bad[i]);
        CHECK(!shmc_path_valid(exact, length));
        free(exact);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

static void test_an_update_changes_only_what_differs(void)
{
    start();
    const uint32_t node = core_index(&core, things, "node", "node");
    const uint32_t labels = core_index(&core, things, "labels", "labels");
    core_put_now(&core, things, "a", "{node: 'n1', labels: {x: 1, y: 2}, s: 1}");
    core_put_now(&core, things, "b", "{node: 'n1', labels: {x: 1}, s: 1}");
    const shmc_offset node_tree = core_tree(&core, things, node);
    const shmc_offset labels_tree = core_tree(&core, things, labels);
    core_put_now(&core, things, "a", "{node: 'n1', labels: {x: 1, y: 2}, s: 2}");
    CHECK_EQUAL(node_tree, core_tree(&core, things, node)); /* unchanged */
    CHECK_EQUAL(labels_tree, core_tree(&core, things, labels));
    core_put_now(&core, things, "a", "{node: 'n2', labels: {y: 3, x: 1}, s: 2}");
    check_entries(node, "n1>b n2>a ");
    check_entries(labels, "x=1>a x=1>b y=3>a ");
    core_delete_now(&core, things, "b");
    check_entries(node, "n2>a ");
    check_entries(labels, "x=1>a y=3>a ");
    finish();
}

/* Entries sort by value first, whatever its bytes: NUL and \1 separate nothing. */
/* Both members emit a=b=c: the one that stays keeps it when the other one goes. */
static void test_a_text_of_two_members(void)
{
    start();
    const uint32_t labels = core_index(&core, things, "labels", "labels");
    core_put_now(&core, things, "k", "{labels: {a: 'b=c', 'a=b': 'c', d: 'e'}}");
    check_entries(labels, "a=b=c>k d=e>k ");
    core_put_now(&core, things, "k", "{labels: {a: 'b=c', 'a=b': 'x', d: 'e'}}");
    check_entries(labels, "a=b=c>k a=b=x>k d=e>k ");
    core_put_now(&core, things, "k", "{labels: {a: 'y', 'a=b': 'x', d: 'e'}}");
    check_entries(labels, "a=b=x>k a=y>k d=e>k ");
    finish();
}

static void test_values_with_every_byte(void)
{
    static const struct {
        const char *bytes;
        size_t length;
    } values[] = {{"", 0}, {"\0", 1}, {"\0\0", 2}, {"\0a", 2}, {"\1", 1}, {"\1\1", 2},
                  {"\2", 1}, {"a", 1}, {"a\0", 2}, {"a\0b", 3}, {"a\1", 2}, {"a\1b", 3},
                  {"a\1\1 long enough for a block", 27}, {"a\2", 2}, {"ab", 2}};
    shmc_word words[16], emitted, list;

    start();
    const uint32_t by_path = core_index(&core, things, "path", "v");
    const uint32_t outside = core_index(&core, things, "outside", NULL);
    core_begin(&core);
    const size_t count = sizeof values / sizeof values[0];
    for (size_t i = 0; i < count; i++)
        CHECK_EQUAL(SHMC_OK, core_bytes(&core, values[i].bytes, values[i].length, &words[i]));
    CHECK_EQUAL(SHMC_OK, shmc_make_array(core.writer, words, count, &list));
    emitted = list;
    shmc_offset shape;
    shmc_word value, name = shmc_short_word((const uint8_t *)"v", 1);
    CHECK_EQUAL(SHMC_OK, shmc_make_shape(core.writer, &name, 1, &shape));
    CHECK_EQUAL(SHMC_OK, shmc_make_object(core.writer, shape, &list, 1, &value));
    const struct shmc_change change = {.resource = things, .key = (const uint8_t *)"k",
                                       .key_length = 1, .value = value, .emitted = &emitted,
                                       .emitted_count = 1};
    CHECK_EQUAL(SHMC_OK, shmc_put(core.writer, &change));
    core_commit(&core);
    CHECK_EQUAL(count, core.writer->resources[things].indices[by_path].count);
    char one[ALL], two[ALL];
    entries_of(by_path, one);
    entries_of(outside, two);
    CHECK_EQUAL(0, strcmp(one, two));
    CHECK_EQUAL(0, strcmp(one, ">k ~0>k ~0~0>k ~0a>k ~1>k ~1~1>k \2>k a>k a~0>k a~0b>k a~1>k "
                               "a~1~1 long enough for a block>k a~1b>k a\2>k ab>k "));
    core_delete_now(&core, things, "k");
    check_entries(by_path, "");
    check_entries(outside, "");
    finish();
}

/* ---- values from outside --------------------------------------------------------------------- */

static void put_emitted(const char *key, const char *value, const char *first, const char *second)
{
    shmc_word emitted[2] = {SHMC_NOTHING, SHMC_NOTHING};
    struct shmc_change change = {.resource = things, .key = (const uint8_t *)key,
                                 .key_length = strlen(key), .emitted = emitted,
                                 .emitted_count = 2};

    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core, value, &change.value));
    if (first != NULL)
        CHECK_EQUAL(SHMC_OK, core_value(&core, first, &emitted[0]));
    if (second != NULL)
        CHECK_EQUAL(SHMC_OK, core_value(&core, second, &emitted[1]));
    CHECK_EQUAL(SHMC_OK, core_bytes(&core, "version-1", 9, &change.version));
    CHECK_EQUAL(SHMC_OK, shmc_put(core.writer, &change));
    core_commit(&core);
}

/* The function may return something else next time: removal uses its earlier values. */
static void test_outside_values_are_stored(void)
{
    uint32_t indices[SHMC_MAX_INDICES];

    start();
    const uint32_t first = core_index(&core, things, "first", NULL);
    const uint32_t path = core_index(&core, things, "path", "v");
    const uint32_t second = core_index(&core, things, "second", NULL);
    CHECK_EQUAL(2, shmc_external_indices(core.writer, things, indices));
    CHECK_EQUAL(first, indices[0]);
    CHECK_EQUAL(second, indices[1]);
    put_emitted("a", "{v: 'p'}", "['x', 'a value in a block', 'x']", NULL);
    put_emitted("b", "{v: 'p'}", "[]", "['s']");
    check_entries(first, "a value in a block>a x>a ");
    check_entries(path, "p>a p>b ");
    check_entries(second, "s>b ");
    put_emitted("a", "{v: 'p'}", "['y']", "['s', 't']"); /* the object is the same */
    check_entries(first, "y>a ");
    check_entries(second, "s>a s>b t>a ");
    core_begin(&core);
    CHECK_EQUAL(SHMC_INVALID, core_put(&core, things, "c", "{}", NULL)); /* nothing emitted */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    core_delete_now(&core, things, "a");
    check_entries(first, "");
    check_entries(second, "s>b ");
    core_delete_now(&core, things, "b");
    CHECK_EQUAL(0, core_tree(&core, things, second));
    finish();
}

/* An index with values from outside may be declared late: the caller fills it, without deltas. */
static void test_late_outside_index_is_refilled(void)
{
    shmc_word emitted;
    uint32_t late;

    start();
    core_put_now(&core, things, "a", "{v: 'p'}");
    core_put_now(&core, things, "b", "{v: 'q'}");
    const struct shmc_stats before = core_stats(&core);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_declare_index(core.writer, things, "late", 4, NULL, 0, &late));
    CHECK_EQUAL(SHMC_OK, core_value(&core, "['x', 'a value in a block']", &emitted));
    struct shmc_change change = {.resource = things, .key = (const uint8_t *)"a", .key_length = 1,
                                 .emitted = &emitted, .emitted_count = 1};
    CHECK_EQUAL(SHMC_OK, shmc_refill(core.writer, &change));
    change.key = (const uint8_t *)"c";
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_refill(core.writer, &change));
    core_commit(&core);
    check_entries(late, "a value in a block>a x>a ");
    CHECK_EQUAL(before.generation + 1, core_stats(&core).generation);
    CHECK_EQUAL(before.head, core_stats(&core).head); /* the objects did not change */
    core_delete_now(&core, things, "b"); /* an object without values for it */
    core_delete_now(&core, things, "a");
    check_entries(late, "");
    finish();
}

/* ---- at random ------------------------------------------------------------------------------- */

#define KEYS 30u

static void random_object(uint64_t bits, char text[256])
{
    char *at = text + sprintf(text, "{node: 'node-with-number-%llu', labels: {",
                              (unsigned long long)(bits & 3));

    for (unsigned i = 2; i < 6; i++) {
        if (bits >> i & 1)
            at += sprintf(at, "l%u: %llu, ", i, (unsigned long long)(bits >> 8 & 1));
    }
    at += sprintf(at, "}, owners: [");
    for (unsigned i = 9; i < 12; i++) {
        if (bits >> i & 1)
            at += sprintf(at, "{uid: 'uid-of-an-owner-%u'}, ", i % 2);
    }
    sprintf(at, "], n: %llu}", (unsigned long long)(bits >> 12 & 3));
}

static bool owns(uint64_t bits, unsigned odd)
{
    return odd ? (bits >> 9 & 1) || (bits >> 11 & 1) : (bits >> 10 & 1) != 0;
}

/* Indices 0, 1 and 2: node, labels, owners. */
static void check_counts(const uint64_t objects[KEYS], bool owners)
{
    const struct shmc_windex *indices = core.writer->resources[things].indices;
    uint64_t entries[3] = {0};

    for (unsigned k = 0; k < KEYS; k++) {
        if (objects[k] == 0)
            continue;
        entries[0]++;
        entries[1] += (uint64_t)__builtin_popcountll(objects[k] & 0x3c);
        entries[2] += (uint64_t)owns(objects[k], 0) + owns(objects[k], 1);
    }
    for (unsigned i = 0; i < (owners ? 3 : 2); i++)
        CHECK_EQUAL(entries[i], indices[i].count);
}

static void test_random_changes(void)
{
    uint64_t objects[KEYS] = {0}; /* bits | 1 << 63 if present */
    char key[16], text[256];

    start();
    CHECK_EQUAL(0, core_index(&core, things, "node", "node"));
    CHECK_EQUAL(1, core_index(&core, things, "labels", "labels"));
    uint32_t owners = 0;
    for (unsigned batch = 0; batch < 200; batch++) {
        core_begin(&core);
        for (uint64_t left = dice(6); left > 0; left--) {
            const uint64_t k = dice(KEYS), bits = dice(1 << 14);
            snprintf(key, sizeof key, "key%" PRIu64, k);
            random_object(bits, text);
            if (objects[k] != 0 && dice(3) == 0)
                CHECK_EQUAL(SHMC_OK, core_delete(&core, things, key));
            else
                CHECK_EQUAL(SHMC_OK, core_put(&core, things, key, text, NULL));
            shmc_word value;
            objects[k] = shmc_current(core.writer, things, (const uint8_t *)key, strlen(key),
                                      &value) == SHMC_OK ? bits | UINT64_C(1) << 63 : 0;
        }
        core_commit(&core);
        if (batch == 70) /* back-filled in the middle */
            owners = core_index(&core, things, "owners", "owners[*].uid");
        check_counts(objects, owners != 0);
        if (batch % 10 == 0)
            core_check(&core);
    }
    finish();
}

int main(void)
{
    test_start("test_index");
    random_state = test_random_state(5);
    test_paths();
    test_which_paths_make_sense();
    test_an_update_changes_only_what_differs();
    test_a_text_of_two_members();
    test_values_with_every_byte();
    test_outside_values_are_stored();
    test_late_outside_index_is_refilled();
    test_random_changes();
    return 0;
}
