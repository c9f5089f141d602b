/*
 * A block is used again when, and only when, no pin that counts may lead to it: a pin of g holds
 * what was retired after g and nothing else, the floor rises as far as that needs, and with all
 * pins and the window gone nothing stays in limbo.
 *
 * ring_bytes = 1 keeps the window empty, so that trees alone decide when a value is retired.
 */
#include "core_fixture.h"

#define SEAT_PINS 8u
#define TEXT 600u

static struct core core;
static uint32_t resource;
static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

static void start(uint64_t size, uint64_t garbage_bytes, uint64_t ring_bytes)
{
    core_create(&core, (struct core_options){
                           .size = size, .garbage_bytes = garbage_bytes, .ring_bytes = ring_bytes});
    resource = core_declare(&core, "things");
}

static void finish(void)
{
    for (unsigned slot = 0; slot < SHMC_PINS; slot++)
        core_pin(&core, slot, 0);
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

static uint64_t generation(void)
{
    return core_stats(&core).generation;
}

/* Publishes a new value of key; returns its block. */
static shmc_offset publish(const char *key, uint64_t number, size_t length)
{
    char text[20000];
    shmc_word word;

    CHECK(length < sizeof text && length > 24);
    memset(text, 'x', length);
    sprintf(text, "%" PRIu64, number);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_bytes(&core, text, length, &word));
    CHECK_EQUAL(SHMC_OK, core_put_word(&core, resource, key, strlen(key), word));
    core_commit(&core);
    return shmc_block_of(word);
}

static uint32_t meta_of(shmc_offset block)
{
    return (uint32_t)*shmc_arena_meta(&core.writer->arena, block);
}

static void reclaim(void)
{
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    core_check(&core);
}

static void test_pin_holds_exactly_what_it_may_reach(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    const shmc_offset a = publish("k", 1, 100);
    core_pin(&core, 0, generation());
    const shmc_offset b = publish("k", 2, 100);
    const uint64_t second = generation();
    core_pin(&core, 1, second);
    const shmc_offset c = publish("k", 3, 100);
    const uint64_t third = generation();
    const shmc_offset d = publish("k", 4, 100);
    reclaim(); /* pinned: the generations of a and b */
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(b));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(c)); /* its own generation is not, an older one is */
    CHECK(core_stats(&core).floor < second);
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(a)); /* retired at `second`, which is pinned */
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(b));
    CHECK_EQUAL(second, core_stats(&core).floor); /* as far as needed, no further */
    CHECK(shmc_valid(core.writer->super, second));
    core_pin(&core, 1, third);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(b));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(c));
    core_pin(&core, 1, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(c));
    CHECK_EQUAL(1, meta_of(d));
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    finish();
}

/* What was freed is handed out again: the arena does not grow. */
static void test_freed_blocks_are_used_again(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    for (uint64_t i = 0; i < 50; i++) {
        publish("k", i, 1000);
        reclaim();
    }
    const uint64_t high_water = core_stats(&core).high_water_bytes;
    const uint64_t reused = core_stats(&core).reused_bytes;
    for (uint64_t i = 0; i < 200; i++) {
        publish("k", i, 1000);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    }
    CHECK_EQUAL(high_water, core_stats(&core).high_water_bytes);
    CHECK(core_stats(&core).reused_bytes >= reused + UINT64_C(200) * 1000);
    finish();
}

/* The pinned garbage limit is 64 KiB: the oldest pin is revoked, a younger one is not. */
static void test_garbage_limit_revokes_the_oldest(void)
{
    struct shmc_stats stats;

    start(UINT64_C(2) << 20, 64 << 10, 1);
    publish("k", 0, 4000);
    const uint64_t oldest = generation();
    core_pin(&core, 0, oldest);
    for (uint64_t i = 1; core_stats(&core).limbo_bytes <= 64 << 10; i++) {
        CHECK(shmc_valid(core.writer->super, oldest));
        CHECK_EQUAL(0, core_stats(&core).revoked);
        publish("k", i, 4000);
    }
    core_pin(&core, 1, generation());
    const uint64_t youngest = generation();
    reclaim();
    stats = core_stats(&core);
    CHECK(!shmc_valid(core.writer->super, oldest));
    CHECK(shmc_valid(core.writer->super, youngest));
    CHECK_EQUAL(1, stats.revoked);
    CHECK(stats.limbo_bytes <= 32 << 10);      /* half of the limit */
    CHECK(stats.limbo_bytes > (32 << 10) - 8000); /* and not much less */
    CHECK(stats.floor < youngest);
    core_pin(&core, 2, stats.floor); /* the oldest that would still count */
    publish("k", 99, 4000);
    reclaim();
    CHECK_EQUAL(stats.floor, core_stats(&core).floor); /* the revoked one holds nothing */
    CHECK(core_stats(&core).limbo_bytes > stats.limbo_bytes);
    core_pin(&core, 1, 0);
    core_pin(&core, 2, 0);
    reclaim();
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes); /* although slot 0 still says `oldest` */
    finish();
}

/* A pin above latest or below the floor was invented, lost or wiped: it holds nothing. */
static void test_invented_pins_hold_nothing(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    const shmc_offset a = publish("k", 1, 200);
    publish("k", 2, 200);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(a));
    CHECK(core_stats(&core).floor > 1);
    core_pin(&core, 0, 1);
    core_pin(&core, 1, generation() + 1000);
    core_pin(&core, 2, UINT64_MAX);
    const shmc_offset b = publish("k", 3, 300);
    publish("k", 4, 300);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(b));
    finish();
}

/* A slot of the window holds its words as a tree does; so does what equal blocks share. */
static void test_window_and_sharing_hold_blocks(void)
{
    start(UINT64_C(1) << 20, 0, 0);
    const shmc_offset a = publish("k", 1, 200);
    CHECK_EQUAL(2, meta_of(a)); /* the entry, and the slot's new value */
    CHECK_EQUAL(a, publish("other", 1, 200));
    CHECK_EQUAL(4, meta_of(a));
    publish("k", 2, 200);
    publish("other", 3, 200);
    CHECK_EQUAL(4, meta_of(a)); /* new value of two slots, old value of two */
    reclaim();
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
    const uint64_t dropped = generation();
    core_pin(&core, 0, dropped - 1); /* that root's window still had it */
    reclaim();
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
    core_pin(&core, 0, dropped);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(a));
    finish();
}

/* What waits in limbo is dead: an equal value is made anew, not found. */
static void test_limbo_is_never_found_again(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    const shmc_offset a = publish("k", 1, 200);
    core_pin(&core, 0, generation());
    publish("k", 2, 200);
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
    const shmc_offset again = publish("k", 1, 200);
    CHECK(again != a);
    core_check(&core);
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(a));
    CHECK_EQUAL(1, meta_of(again));
    finish();
}

/* A commit reclaims by itself: after a millisecond, or a megabyte. */
static void test_commits_reclaim_in_steps(void)
{
    uint64_t now = UINT64_C(1000000000);

    start(UINT64_C(8) << 20, 0, 1);
    publish("k", 0, 200);
    for (uint64_t i = 1; i < 20; i++)
        publish("k", i, 200); /* now_ns is 0 there */
    CHECK(core_stats(&core).limbo_bytes > 4000);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, resource, "k", "null", NULL));
    CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, now));
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    for (uint64_t i = 0; i < 200; i++) { /* within one millisecond */
        core_begin(&core);
        shmc_word word;
        char text[16000] = {0};
        memset(text, 'y', sizeof text);
        sprintf(text, "%" PRIu64, i);
        text[strlen(text)] = 'y';
        CHECK_EQUAL(SHMC_OK, core_bytes(&core, text, sizeof text, &word));
        CHECK_EQUAL(SHMC_OK, core_put_word(&core, resource, "k", 1, word));
        CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, now + i));
        CHECK(core_stats(&core).limbo_bytes < UINT64_C(1200000));
    }
    finish();
}

/* Objects under pins stay as they were while everything around them is used again. */
static void test_random_pins(void)
{
    static struct {
        uint64_t generation;
        shmc_word value;
        char text[TEXT];
    } held[SEAT_PINS];
    char key[16], text[TEXT];
    uint64_t checked = 0;

    start(UINT64_C(2) << 20, 0, 0);
    for (unsigned round = 0; round < 1500; round++) {
        snprintf(key, sizeof key, "key-%" PRIu64, dice(12));
        snprintf(text, sizeof text, "{'n': %u, 'list': ['some text of number %u', {'deep': "
                 "'shared by many: %" PRIu64 "'}], 'more': 'more text of %u'}", round, round,
                 dice(5), round % 7);
        core_put_now(&core, resource, key, text);
        if (dice(4) == 0)
            core_delete_now(&core, resource, key);
        const unsigned slot = (unsigned)dice(SEAT_PINS);
        if (held[slot].generation != 0) {
            char now[TEXT];
            CHECK(shmc_valid(core.writer->super, held[slot].generation));
            core_print(shmc_writer_span(core.writer), held[slot].value, now, sizeof now);
            CHECK_EQUAL(0, strcmp(held[slot].text, now));
            core_pin(&core, slot, held[slot].generation = 0);
            checked++;
        } else if (shmc_current(core.writer, resource, (const uint8_t *)key, strlen(key),
                                &held[slot].value) == SHMC_OK) {
            memcpy(held[slot].text, text, TEXT);
            core_pin(&core, slot, held[slot].generation = generation());
        }
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        if (round % 100 == 0)
            core_check(&core);
    }
    CHECK(checked > 100 && core_stats(&core).reused_bytes > 0);
    CHECK_EQUAL(0, core_stats(&core).revoked);
    finish();
}

int main(void)
{
    test_start("test_reclaim");
    random_state = test_random_state(3);
    test_pin_holds_exactly_what_it_may_reach();
    test_freed_blocks_are_used_again();
    test_garbage_limit_revokes_the_oldest();
    test_invented_pins_hold_nothing();
    test_window_and_sharing_hold_blocks();
    test_limbo_is_never_found_again();
    test_commits_reclaim_in_steps();
    test_random_pins();
    return 0;
}
