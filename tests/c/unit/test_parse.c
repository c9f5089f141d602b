/*
 * JSON text becomes the right word, whatever the value that it is compared with; invalid text is
 * rejected anywhere; and nothing is read after the text's end, and a failure leaves nothing.
 */
#include "json_properties.h"

static struct core core;
static struct shmc_parser parser;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static void start(void)
{
    core_create(&core, (struct core_options){.size = 4 << 20});
    shmc_parser_init(&parser, core.writer);
}

static void finish(void)
{
    core_check(&core);
    core_check_nothing_leaked(&core);
    shmc_parser_free(&parser);
    CHECK_EQUAL(0, parser.heap.bytes);
    core_destroy(&core);
}

static enum shmc_status parse(const char *text, shmc_word previous, shmc_word *word)
{
    uint8_t *const copy = exact_copy((const uint8_t *)text, strlen(text));
    const enum shmc_status status = shmc_parse(&parser, copy, strlen(text), previous, word);

    free(copy);
    return status;
}

/* ---- values ------------------------------------------------------------------------------- */

static const char *const same[][2] = {
    {" { } ", "{}"},
    {"[ ]", "[]"},
    {"{\"a\":1,\"b\":[true,false,null]}", "{a: 1, b: [true, false, null]}"},
    {"{\"a\":1,\"b\":2,\"a\":3}", "{a: 3, b: 2}"},
    {"\"\\u0061bcdefgh\\/\"", "'abcdefgh/'"},
    {"[\"short\",\"a text that is longer\",-0,-12]", "['short', 'a text that is longer', 0, -12]"},
    {"[1.5,15e-1,150E-2,1.5000000000000000]", "[1.5, 1.5, 1.5, 1.5]"},
};

static void test_text_is_the_word_of_what_it_says(void)
{
    start();
    core_begin(&core);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        shmc_word expected, word;
        CHECK_EQUAL(SHMC_OK, core_value(&core, same[i][1], &expected));
        CHECK_EQUAL(SHMC_OK, parse(same[i][0], SHMC_NOTHING, &word));
        CHECK_EQUAL(expected, word);
        for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
            shmc_word beside;
            CHECK_EQUAL(SHMC_OK, core_value(&core, same[k][1], &beside));
            CHECK_EQUAL(SHMC_OK, parse(same[i][0], beside, &word));
            CHECK_EQUAL(expected, word);
        }
    }
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

/* Stored bytes and the text's may be the same without the same meaning. */
static void test_escaped_text_is_not_taken_for_stored_text(void)
{
    shmc_word stored, word;

    start();
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, parse("[\"01234567\\\",\\\"b\"]", SHMC_NOTHING, &stored));
    CHECK_EQUAL(SHMC_OK, parse("[\"01234567\",\"b\"]", stored, &word));
    CHECK(stored != word);
    CHECK_EQUAL(SHMC_OK, parse("{\"a\\\":\\\"b\":1}", SHMC_NOTHING, &stored));
    CHECK_EQUAL(SHMC_INVALID, parse("{\"a\":\"b\":1}", stored, &word));
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

/* A container in pieces, cut at every byte, above all between a backslash and the escaped byte. */
static void test_a_container_ends_where_it_ends_in_pieces(void)
{
    static const char text[] = "{\"a\\\\\":[\"}]\\\"\",{\"b\":\"\\\\\\\"]\"}],\"0123456789012345678901234567"
                               "8901234567890123456789012345678\\\"}\":[[{}]]}]]";
    const size_t length = sizeof text - 1;
    bool ended;

    for (size_t cut = 0; cut <= length - 2; cut++) {
        struct shmc_skim skim = {0};
        size_t taken = shmc_skim(&skim, (const uint8_t *)text, cut, &ended);
        if (!ended)
            taken += shmc_skim(&skim, (const uint8_t *)text + cut, length - cut, &ended);
        CHECK(ended);
        CHECK_EQUAL(length - 2, taken);
    }
}

static void test_managed_fields_are_passed_over(void)
{
    const char *const text = "{\"metadata\":{\"managedFields\":[{\"a\":\"]\"}],\"name\":\"n\"},"
                             "\"managedFields\":1,\"spec\":{\"managedFields\":2}}";
    shmc_word kept, dropped, expected;

    start();
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_value(&core,
                                    "{metadata: {name: 'n'}, managedFields: 1, "
                                    "spec: {managedFields: 2}}",
                                    &expected));
    CHECK_EQUAL(SHMC_OK, parse(text, SHMC_NOTHING, &kept));
    CHECK(kept != expected);
    parser.drop_managed = true;
    CHECK_EQUAL(SHMC_OK, parse(text, kept, &dropped));
    CHECK_EQUAL(expected, dropped);
    const uint64_t made = core_stats(&core).blocks;
    CHECK_EQUAL(SHMC_OK, parse(text, dropped, &dropped));
    CHECK_EQUAL(expected, dropped);
    CHECK_EQUAL(made, core_stats(&core).blocks); /* finding it made nothing */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

/* ---- texts read before --------------------------------------------------------------------- */

#define LONG /* for a text worth remembering, and a block for its string */          \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
    "89012345678901234567890123456789012345678901234567890123"
static const char known[] = "{\"a\":{\"k\":\"" LONG "\"}}";

/* A value of the same form as `known`, not made from text. */
static shmc_word another(unsigned number)
{
    char text[sizeof known + 40];
    shmc_word word;

    snprintf(text, sizeof text, "{a: {k: '%04u%s'}}", number, &LONG[4]);
    CHECK_EQUAL(SHMC_OK, core_value(&core, text, &word));
    return word;
}

/* `known` keeps its value, whatever blocks got the offsets of its own. */
static void check_known(shmc_word beside)
{
    char text[2 * sizeof known];
    shmc_word word;

    CHECK_EQUAL(SHMC_OK, parse(known, beside, &word));
    core_print(shmc_writer_span(core.writer), word, text, sizeof text);
    CHECK(strstr(text, LONG) != NULL);
}

static shmc_word current(uint32_t resource)
{
    shmc_word word;

    CHECK_EQUAL(SHMC_OK, shmc_current(core.writer, resource, (const uint8_t *)"key", 3, &word));
    return word;
}

static void put_known(uint32_t resource)
{
    shmc_word word;

    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, parse(known, SHMC_NOTHING, &word));
    CHECK_EQUAL(SHMC_OK, core_put_word(&core, resource, "key", 3, word));
    core_commit(&core);
}

static void test_a_text_is_known_again(void)
{
    shmc_word word;

    start();
    const uint32_t things = core_declare(&core, "things");
    put_known(things);
    core_begin(&core);
    const struct shmc_seen_entry *const entries = core.writer->seen.entries;
    CHECK(entries != NULL);
    const uint64_t taken = core.writer->seen.taken;
    CHECK_EQUAL(1, taken);
    CHECK_EQUAL(SHMC_OK, parse(known, current(things), &word));
    CHECK_EQUAL(current(things), word);
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

static void test_undone_texts_are_forgotten(void)
{
    shmc_word word;

    start();
    for (unsigned i = 0; i < 20; i++) {
        core_begin(&core);
        CHECK_EQUAL(SHMC_OK, parse(known, SHMC_NOTHING, &word));
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
        core_begin(&core); /* the blocks of the same birth */
        check_known(another(i));
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    }
    finish();
}

static enum shmc_status stage_known(uint32_t resource)
{
    const struct shmc_change change = {.resource = resource,
                                       .key = (const uint8_t *)"key",
                                       .key_length = 3,
                                       .value = SHMC_NOTHING,
                                       .version = SHMC_NOTHING};
    struct shmc_change staged = change;

    CHECK_EQUAL(SHMC_OK, parse(known, SHMC_NOTHING, &staged.value));
    return shmc_stage(core.writer, &staged);
}

/* Staged objects that were released were never published: no generation separates them from later
 * ones. */
static void test_unpublished_texts_are_forgotten(void)
{
    start();
    const uint32_t things = core_declare(&core, "things");
    for (unsigned i = 0; i < 20; i++) {
        CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, things));
        core_begin(&core);
        CHECK_EQUAL(SHMC_OK, stage_known(things));
        core_commit(&core);
        CHECK_EQUAL(SHMC_OK, shmc_replace_cancel(core.writer, things));
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        core_begin(&core);
        check_known(another(i));
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    }
    finish();
}

static void test_dead_blocks_are_not_known_by_their_offset(void)
{
    start();
    const uint32_t things = core_declare(&core, "things");
    put_known(things);
    for (unsigned i = 0; i < 400; i++) { /* past the window: its blocks are reused */
        core_begin(&core);
        CHECK_EQUAL(SHMC_OK, core_put_word(&core, things, "key", 3, another(i)));
        core_commit(&core);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        core_begin(&core);
        check_known(current(things));
        CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    }
    finish();
}

/* ---- faults ------------------------------------------------------------------------------- */

static const char whole[] =
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"web-0\",\"labels\":{\"app.kubernetes.io/name\":"
    "\"w\\u00e9b\",\"x\":\"\"},\"generation\":12,\"ratio\":-1.25e-3},\"list\":[1,2.5,\"three\","
    "null,true,false,[],{},[[\"\xc3\xa9\"]]],\"large\":18446744073709551615}";

static void test_a_text_that_is_cut_ends_too_early(void)
{
    shmc_word word, beside;

    start();
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, parse(whole, SHMC_NOTHING, &beside));
    for (size_t cut = 0; cut < sizeof whole - 1; cut++) {
        uint8_t *const text = exact_copy((const uint8_t *)whole, cut);
        CHECK_EQUAL(SHMC_INVALID, check_parse(&parser, text, cut, beside, &word));
        free(text);
    }
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

static void test_depth_ends_where_it_must(void)
{
    char text[2 * SHMC_MAX_DEPTH + 8];
    shmc_word word;

    start();
    core_begin(&core);
    for (size_t depth = SHMC_MAX_DEPTH - 1; depth <= SHMC_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = 0;
        CHECK_EQUAL(depth <= SHMC_MAX_DEPTH ? SHMC_OK : SHMC_LIMIT,
                    parse(text, SHMC_NOTHING, &word));
    }
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    finish();
}

/* Texts with faults of any kind, each compared with the one before. */
static void test_whatever_comes_is_read_or_refused(void)
{
    static const uint8_t special[] = "\"\\{}[],:0-.eu\n \x1f\x80\xc3\xff";

    start();
    for (unsigned round = 0; round < 4000; round++) {
        uint8_t bytes[2 * sizeof whole];
        memcpy(bytes, whole, sizeof whole - 1);
        memcpy(bytes + sizeof whole - 1, whole, sizeof whole - 1);
        for (uint64_t faults = dice(4); faults > 0; faults--)
            bytes[dice(sizeof bytes)] = dice(2) ? special[dice(sizeof special - 1)]
                                                : (uint8_t)dice(256);
        check_texts(&core, &parser, bytes, 2 * (sizeof whole - 1),
                    dice(4) ? sizeof whole - 1 : dice(2 * sizeof whole - 2));
    }
    finish();
}

/* ---- failing ------------------------------------------------------------------------------- */

static enum shmc_status store(const char *text)
{
    shmc_word word;

    core_begin(&core);
    const enum shmc_status status = parse(text, SHMC_NOTHING, &word);
    if (status == SHMC_OK)
        CHECK_EQUAL(SHMC_OK, core_put_word(&core, 0, "key", 3, word));
    CHECK_EQUAL(SHMC_OK, status == SHMC_OK ? shmc_commit(core.writer, 1) : shmc_abort(core.writer));
    return status;
}

/* The n-th allocation fails, of the parser and of the writer; then everything is as before. */
static void test_a_heap_that_refuses_leaves_no_trace(void)
{
    static char text[20000];
    size_t length = 0;

    text[length++] = '{';
    for (unsigned i = 0; i < 300; i++)
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%s\"key %u\":[\"an escape \\n in it %u\"]", i ? "," : "", i, i);
    snprintf(text + length, sizeof text - length, "}");
    for (unsigned n = 1;; n++) {
        start();
        core_declare(&core, "things");
        parser.heap.fail_after = n;
        const enum shmc_status status = store(text);
        parser.heap.fail_after = 0;
        CHECK(status == SHMC_OK || status == SHMC_NO_MEMORY);
        CHECK_EQUAL(SHMC_OK, store(whole));
        CHECK_EQUAL(SHMC_OK, store(text));
        finish();
        if (status == SHMC_OK) {
            CHECK(n > 3);
            break;
        }
    }
}

int main(void)
{
    test_start("test_parse");
    random_state = test_random_state(11);
    test_text_is_the_word_of_what_it_says();
    test_escaped_text_is_not_taken_for_stored_text();
    test_a_container_ends_where_it_ends_in_pieces();
    test_managed_fields_are_passed_over();
    test_a_text_is_known_again();
    test_undone_texts_are_forgotten();
    test_unpublished_texts_are_forgotten();
    test_dead_blocks_are_not_known_by_their_offset();
    test_a_text_that_is_cut_ends_too_early();
    test_depth_ends_where_it_must();
    test_whatever_comes_is_read_or_refused();
    test_a_heap_that_refuses_leaves_no_trace();
    return 0;
}
