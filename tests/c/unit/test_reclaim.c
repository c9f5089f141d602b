/*
 * A block is used again when, and only when, no pin that counts may lead to it: a pin of g holds
 * the blocks that g leads to and nothing else, a pinned reader stays valid whatever the floor does,
 * and with all pins and the window gone nothing stays in limbo.
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
    if (!shmc_arena_is_block(&core.writer->arena, block))
        return SHMC_META_FREE; /* its whole page is free */
    return shmc_meta_count(*shmc_arena_meta(&core.writer->arena, block));
}

static void reclaim(void)
{
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    core_check(&core);
}

static bool valid(uint64_t pinned)
{
    return shmc_valid(core.writer->super, pinned);
}

static void test_pin_holds_exactly_what_it_leads_to(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    const shmc_offset a = publish("k", 1, 100);
    const uint64_t first = generation();
    core_pin(&core, 0, first);
    const shmc_offset b = publish("k", 2, 100);
    const uint64_t second = generation();
    core_pin(&core, 1, second);
    const shmc_offset c = publish("k", 3, 100);
    const shmc_offset d = publish("k", 4, 100);
    reclaim(); /* pinned: the generations of a and b */
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(b));
    CHECK_EQUAL(SHMC_META_FREE, meta_of(c)); /* it came and went after both */
    CHECK_EQUAL(generation(), core_stats(&core).floor);
    CHECK(valid(first) && valid(second) && !valid(second + 1));
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(a)); /* retired at `second`, which is pinned */
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(b));
    CHECK(!valid(first) && valid(second));
    core_pin(&core, 0, first); /* a pin that is gone does not come back */
    reclaim();
    CHECK(!valid(first) && valid(second));
    core_pin(&core, 1, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(b));
    CHECK(!valid(second));
    CHECK_EQUAL(1, meta_of(d));
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    finish();
}

/* Of two pins that lead to a block the younger one goes first, then the older one. */
static void test_a_block_waits_for_its_last_pin(void)
{
    for (unsigned first_gone = 0; first_gone < 2; first_gone++) {
        start(UINT64_C(1) << 20, 0, 1);
        const shmc_offset a = publish("k", 1, 100);
        core_pin(&core, 0, generation());
        const shmc_offset other = publish("other", 2, 100);
        core_pin(&core, 1, generation());
        publish("k", 3, 100);
        publish("other", 4, 100);
        reclaim();
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(other));
        core_pin(&core, first_gone, 0);
        reclaim();
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a)); /* either of them leads there */
        CHECK_EQUAL(first_gone == 0 ? SHMC_META_LIMBO : SHMC_META_FREE, meta_of(other));
        core_pin(&core, 1 - first_gone, 0);
        reclaim();
        CHECK_EQUAL(SHMC_META_FREE, meta_of(a));
        CHECK_EQUAL(SHMC_META_FREE, meta_of(other));
        finish();
    }
}

/* One view kept for ever: it stays valid, and costs its own blocks, once. */
static void test_a_view_kept_for_ever_costs_its_own_generation(void)
{
    char key[16];
    shmc_word first[40];
    char text[40][64];

    start(UINT64_C(2) << 20, 256 << 10, 1);
    for (unsigned i = 0; i < 40; i++) {
        sprintf(key, "k%u", i);
        first[i] = publish(key, i, 1000) | SHMC_TAG_STRING;
        sprintf(text[i], "%u", i);
    }
    reclaim();
    const uint64_t pinned = generation();
    const uint64_t live = core_stats(&core).reachable_bytes;
    core_pin(&core, 0, pinned);
    for (uint64_t i = 0; i < 4000; i++) {
        sprintf(key, "k%" PRIu64, i % 40);
        publish(key, 1000 + i, 1000);
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    }
    core_check(&core);
    CHECK(valid(pinned));
    CHECK_EQUAL(0, core_stats(&core).revoked);
    CHECK(core_stats(&core).limbo_bytes > 40 * 1000);
    CHECK(core_stats(&core).limbo_bytes <= live);
    for (unsigned i = 0; i < 40; i++) {
        uint8_t found[1000];
        CHECK_EQUAL(1000, core_text(shmc_writer_span(core.writer), first[i], found, 1000));
        CHECK_EQUAL(0, memcmp(text[i], found, strlen(text[i])));
    }
    finish();
}

/* The naive twin of births and retirements, with as many pins as can be kept and one more. */
static void test_limbo_is_what_the_twin_says(void)
{
    enum { LIVES = 4000, NAMES = 7 };
    static struct {
        shmc_offset block;
        uint64_t birth, retired; /* 0: alive */
        bool gone;
    } lives[LIVES];
    size_t current[NAMES], count = 0;
    uint64_t pins[SHMC_PINS] = {0}, waited = 0, freed = 0, crowded = 0;
    char key[16];

    start(UINT64_C(16) << 20, 0, 1); /* enough room that nothing is reclaimed on its own */
    for (size_t i = 0; i < NAMES; i++)
        current[i] = LIVES;
    for (unsigned round = 0; count < LIVES; round++) {
        const size_t name = dice(NAMES);
        sprintf(key, "k%zu", name);
        lives[count].block = publish(key, 1000 + round, 40 + dice(100));
        lives[count].birth = generation();
        lives[count].retired = 0;
        lives[count].gone = false;
        if (current[name] != LIVES)
            lives[current[name]].retired = generation();
        current[name] = count++;
        const unsigned slot = (unsigned)dice(SHMC_PINS);
        const unsigned busy = round / 200 % 2 == 0 ? SHMC_PINS : (unsigned)dice(12); /* all, or few */
        if (dice(2) == 0) {
            pins[slot] = slot < busy && dice(40) != 0 ? generation() : 0;
            core_pin(&core, slot, pins[slot]);
        }
        if (dice(3) != 0)
            continue;
        CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
        size_t distinct = 0;
        uint64_t youngest = 0;
        for (unsigned i = 0; i < SHMC_PINS; i++) {
            CHECK(pins[i] == 0 || valid(pins[i]));
            distinct += pins[i] != 0 && pins[i] != generation();
            youngest = pins[i] > youngest ? pins[i] : youngest;
        }
        crowded += distinct > SHMC_KEPT;
        for (size_t i = 0; i < count; i++) {
            bool needed = lives[i].retired == 0;
            if (lives[i].gone)
                continue;
            for (unsigned k = 0; k < SHMC_PINS; k++)
                needed |= pins[k] != 0 && lives[i].birth <= pins[k] && pins[k] < lives[i].retired;
            /* of pins that cannot be kept the youngest holds all later blocks */
            needed |= distinct > SHMC_KEPT && lives[i].retired > youngest;
            if (lives[i].retired == 0)
                CHECK_EQUAL(1, meta_of(lives[i].block));
            else if (needed)
                CHECK_EQUAL(SHMC_META_LIMBO, meta_of(lives[i].block));
            else
                CHECK_EQUAL(SHMC_META_FREE, meta_of(lives[i].block));
            waited += needed && lives[i].retired != 0;
            freed += !needed;
            lives[i].gone = !needed;
        }
        if (round % 200 == 0)
            core_check(&core);
    }
    printf("%" PRIu64 " visits in limbo, %" PRIu64 " freed, %" PRIu64 " with too many pins\n", waited,
           freed, crowded);
    CHECK(waited > 1000 && freed > 1000 && crowded > 5);
    CHECK_EQUAL(0, core_stats(&core).revoked);
    finish();
}

/* If a slot of a seat represents younger generations, none of them loses anything. */
static void test_an_open_pin_holds_all_that_is_younger(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    const shmc_offset a = publish("k", 1, 100);
    const uint64_t first = generation();
    core_pin(&core, 0, first);
    const shmc_offset b = publish("k", 2, 100);
    const uint64_t second = generation();
    core_pin(&core, 1, second);
    publish("k", 3, 100);
    reclaim();
    CHECK(core_stats(&core).floor > second); /* both are kept */
    const shmc_offset d = publish("k", 4, 100);
    const uint64_t shared = generation();
    core_pin(&core, 0, first | SHMC_PIN_OPEN); /* a user of `shared`, and one of `second` */
    core_pin(&core, 1, 0);
    publish("k", 5, 100);
    publish("k", 6, 100);
    for (unsigned i = 0; i < 3; i++) {
        reclaim();
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(a));
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(b));
        CHECK_EQUAL(SHMC_META_LIMBO, meta_of(d));
        CHECK(valid(first) && valid(second) && valid(shared));
    }
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    CHECK(!valid(first) && !valid(second) && !valid(shared));
    finish();
}

/* Births have few bits: when they are used up, old ones are "before all pins", young ones exact. */
static void test_births_are_counted_from_a_new_base(void)
{
    start(UINT64_C(1) << 20, 0, 1);
    publish("young", 0, 100);
    reclaim();
    /* as if some 2^28 generations had passed since the base */
    core.writer->arena.birth_base = generation() + 1 - (SHMC_META_BIRTH - 8);
    const shmc_offset old = publish("k", 1, 100);
    core_pin(&core, 0, generation());
    const shmc_offset young = publish("young", 100, 100);
    CHECK_EQUAL(generation(), shmc_arena_birth(&core.writer->arena, young));
    for (uint64_t i = 0; i < 20; i++) {
        publish("other", i, 100);
        reclaim();
    }
    CHECK(core.writer->arena.birth < SHMC_META_BIRTH / 2 + 20);
    CHECK(shmc_arena_birth(&core.writer->arena, young) > 0);
    publish("k", 2, 100);
    publish("young", 2, 100);
    reclaim();
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(old));
    CHECK_EQUAL(SHMC_META_FREE, meta_of(young));
    core.writer->arena.birth_base -= SHMC_META_BIRTH; /* and as many again */
    const shmc_offset third = publish("k", 300, 100);
    CHECK_EQUAL(generation(), shmc_arena_birth(&core.writer->arena, third));
    CHECK_EQUAL(0, shmc_arena_birth(&core.writer->arena, old));
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(old));
    reclaim();
    CHECK_EQUAL(SHMC_META_LIMBO, meta_of(old));
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(SHMC_META_FREE, meta_of(old));
    finish();
}

/* Freed blocks are handed out again: the arena does not grow. */
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

/* The limit of pinned garbage is 32 KiB: the oldest pins are revoked, the younger ones are not. */
static void test_garbage_limit_revokes_the_oldest(void)
{
    enum { PINNED = 12 };
    uint64_t pinned[PINNED], revoked = 0;

    start(UINT64_C(16) << 20, 32 << 10, 1);
    for (unsigned i = 0; i < PINNED; i++) {
        publish("k", i, 4000); /* each one leads to a block of its own */
        pinned[i] = generation();
        core_pin(&core, i, pinned[i]);
        if (i == 5) {
            reclaim();
            CHECK_EQUAL(0, core_stats(&core).revoked);
        }
    }
    publish("k", 99, 4000);
    CHECK(core_stats(&core).limbo_bytes > 32 << 10);
    reclaim();
    CHECK(core_stats(&core).limbo_bytes <= 16 << 10);     /* half of the limit */
    CHECK(core_stats(&core).limbo_bytes > (16 << 10) - 8000); /* and not much less */
    while (revoked < PINNED && !valid(pinned[revoked]))
        revoked++;
    CHECK_EQUAL(revoked, core_stats(&core).revoked);
    CHECK(revoked >= PINNED - 4 && revoked < PINNED);
    for (unsigned i = 0; i < PINNED; i++)
        CHECK_EQUAL(i >= revoked, valid(pinned[i]));
    publish("k", 100, 4000);
    reclaim(); /* the revoked ones hold nothing, and stay revoked */
    CHECK_EQUAL(revoked, core_stats(&core).revoked);
    for (unsigned i = 0; i < PINNED; i++)
        CHECK_EQUAL(i >= revoked, valid(pinned[i]));
    for (uint64_t i = revoked; i < PINNED; i++)
        core_pin(&core, (unsigned)i, 0);
    reclaim();
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes); /* although their slots still name them */
    finish();
}

/* An open pin that holds too much is revoked like any other. */
static void test_garbage_limit_revokes_an_open_pin(void)
{
    start(UINT64_C(16) << 20, 32 << 10, 1);
    publish("k", 0, 4000);
    const uint64_t oldest = generation();
    core_pin(&core, 0, oldest | SHMC_PIN_OPEN);
    for (uint64_t i = 1; core_stats(&core).limbo_bytes <= 32 << 10; i++) {
        CHECK(valid(oldest));
        publish("k", i, 4000);
        reclaim();
        if (core_stats(&core).revoked != 0)
            break;
    }
    CHECK(!valid(oldest));
    CHECK_EQUAL(1, core_stats(&core).revoked);
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    finish();
}

/* Pins that a worker writes at random into its seat: the oldest that counts, and any other; open
 * ones, nonsense. */
static void scribble(void)
{
    const uint64_t floor = core_stats(&core).floor;

    core_pin(&core, 0, floor | SHMC_PIN_OPEN);
    for (unsigned slot = 1; slot < SHMC_PINS; slot++) {
        const uint64_t some = floor + dice(generation() - floor + 1);
        const uint64_t open = dice(3) == 0 ? SHMC_PIN_OPEN : 0;
        core_pin(&core, slot, dice(5) == 0 ? test_random(&random_state) : some | open);
    }
}

/* The blocks that a call may visit (RECLAIM7 of reclaim.c). */
static void check_steps(uint64_t steps, uint64_t scans, uint64_t fresh)
{
    const struct shmc_limbo *limbo = &core.writer->limbo;

    CHECK(limbo->steps - steps <= SHMC_LIMBO_STEP + 2 * fresh + 1);
    CHECK(limbo->scans - scans <= 2);
}

static void commit_in_steps(uint64_t number, uint64_t now_ns)
{
    enum { RETIRED = 64 }; /* at most, by one change */
    const struct shmc_limbo limbo = core.writer->limbo;
    char key[16], text[80];

    sprintf(key, "k%" PRIu64, number % 512);
    sprintf(text, "{'a': 'the text of number %" PRIu64 "', 'b': [%" PRIu64 "]}", number, number);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, resource, key, text, NULL));
    CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, now_ns));
    check_steps(limbo.steps, limbo.scans, limbo.fresh + RETIRED);
}

/* A call does a bounded number of steps with any words in SEATS; and the garbage stays bounded. */
static void test_scribbled_pins_do_not_make_a_call_long(void)
{
    const uint64_t limit = 4 << 20;
    uint64_t now_ns = UINT64_C(1000000000), most = 0, calls = 0;

    start(UINT64_C(64) << 20, limit, 1);
    publish("first", 1, 100);
    for (uint64_t i = 0; i < 40000; i++) {
        if (i < 20000) /* open pins of the oldest remaining generation */
            core_pin(&core, 0, core_stats(&core).floor | SHMC_PIN_OPEN);
        else
            scribble();
        commit_in_steps(i, now_ns += 200000);
        const uint64_t garbage =
            core.writer->limbo.bytes - core.writer->limbo.doomed_bytes;
        most = garbage > most ? garbage : most;
        if (i % 8000 == 0)
            core_check(&core);
    }
    CHECK(most > limit && most < limit + (1 << 20));
    CHECK(core_stats(&core).revoked > 100);
    for (unsigned slot = 0; slot < SHMC_PINS; slot++)
        core_pin(&core, slot, 0);
    core_pin(&core, 0, generation() | SHMC_PIN_OPEN); /* kept for a while, and then released */
    for (uint64_t i = 0; core.writer->limbo.bytes < limit / 2; i++)
        commit_in_steps(i, now_ns);
    core_pin(&core, 0, 0);
    while (core.writer->limbo.bytes > 0) {
        const struct shmc_limbo limbo = core.writer->limbo;
        CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, now_ns));
        check_steps(limbo.steps, limbo.scans, limbo.fresh);
        core_check(&core);
        calls++;
    }
    printf("%" PRIu64 " bytes of garbage at most, %" PRIu64 " revoked, %" PRIu64 " calls at the end\n",
           most, core_stats(&core).revoked, calls);
    CHECK(calls > 1);
    finish();
}

/* More generations than there are groups wait under one pin: the last group takes the others. */
static void test_groups_are_bounded(void)
{
    const uint64_t groups = SHMC_LIMBO_GROUPS;

    start(UINT64_C(256) << 20, UINT64_C(200) << 20, 1);
    publish("k", 0, 100);
    core_pin(&core, 0, generation() | SHMC_PIN_OPEN);
    for (uint64_t i = 1; i < groups + 1000; i++)
        publish("k", i, 100);
    CHECK_EQUAL(groups, core.writer->limbo.count);
    core_check(&core);
    CHECK_EQUAL(0, core_stats(&core).revoked);
    core_pin(&core, 0, 0);
    reclaim();
    CHECK_EQUAL(0, core_stats(&core).limbo_bytes);
    publish("k", 0, 100);
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

/* A slot of the window holds its words as a tree does; so do the shared parts of equal blocks. */
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

/* A block in limbo is dead: an equal value gets a new block. */
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

/* Objects under pins stay as they were while everything around them is reused. */
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
    test_pin_holds_exactly_what_it_leads_to();
    test_a_block_waits_for_its_last_pin();
    test_a_view_kept_for_ever_costs_its_own_generation();
    test_limbo_is_what_the_twin_says();
    test_an_open_pin_holds_all_that_is_younger();
    test_births_are_counted_from_a_new_base();
    test_freed_blocks_are_used_again();
    test_garbage_limit_revokes_the_oldest();
    test_garbage_limit_revokes_an_open_pin();
    test_scribbled_pins_do_not_make_a_call_long();
    test_groups_are_bounded();
    test_invented_pins_hold_nothing();
    test_window_and_sharing_hold_blocks();
    test_limbo_is_never_found_again();
    test_commits_reclaim_in_steps();
    test_random_pins();
    return 0;
}
