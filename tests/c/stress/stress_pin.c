/*
 * All blocks that a pinned generation reaches stay intact until it is unpinned, although the writer
 * spoils each block as soon as it sees no pin that could lead there. No floor helps here.
 *
 * Block b of the arena holds generation g in each of its words; the writer overwrites it with
 * SPOILT right after publishing g + 1 if no pin is at or below g, and later if there is one.
 *
 * Mutants, x86 with 2 cores, runs with STRESS_SECONDS=2; pins until the first spoilt word. The
 * fences need both cores at once: on a busy machine give the test more time.
 *   NO_READER_FENCE  6 of 8  219,800 to 10,117,430
 *   NO_WRITER_FENCE  5 of 8  80,491 to 1,414,481
 *   NO_ROOT_CHECK    8 of 8  (spoilt or CORRUPT)
 */
#include "fake.h"
#include "mutants.h"

#define BLOCKS 64u
#define BLOCK_WORDS 8u
#define READERS 1u
#define HELD 20u /* more than the slots of a seat */
#define SPOILT UINT64_MAX

struct pinner {
    struct shmc_reader *reader;
    uint64_t stream, pins, overflows, oldest;
};

static struct fake fake;
static struct test_team team;
static atomic_bool stop;
static uint64_t generation = 1, spoilt = 1; /* generations up to `spoilt` are gone */
static uint64_t deferred, waited;

static shmc_offset block_of(uint64_t g)
{
    return SHMC_PAGE + g % BLOCKS * BLOCK_WORDS * 8;
}

static void fill(uint64_t g, uint64_t content)
{
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        shmc_word_store(fake.data.base + block_of(g) + i * 8, content);
}

static void publish(void)
{
    struct shmc_root *root = &fake.super->roots[++generation & (SHMC_ROOTS - 1)];

    fill(generation, generation);
    fake_root(fake.super, generation);
    shmc_store_racy(&root->catalogue, block_of(generation));
    shmc_store_racy(&root->high_water, FAKE_BYTES);
    shmc_store_release(&fake.super->latest, generation); /* PIN1 of reader.c */
    SHMC_UNLESS(NO_WRITER_FENCE, shmc_fence_full());     /* PIN3 of reader.c */
}

static void spoil_what_nobody_needs(void)
{
    struct shmc_pin_list list;

    shmc_seats_pins(&fake.seats, fake.seat_count, fake.super, &list);
    const uint64_t needed = list.count > 0 ? list.pins[0] : generation;
    deferred += needed < generation;
    while (spoilt + 1 < needed)
        fill(++spoilt, SPOILT);
}

static void *run_writer(void *argument)
{
    const uint64_t end = test_now_ns() + test_stress_ns();

    (void)argument;
    pthread_barrier_wait(&team.start);
    for (uint64_t round = 0; (round & 63) != 0 || test_now_ns() < end; round++) {
        publish();
        spoil_what_nobody_needs();
        while (generation - spoilt >= BLOCKS - 2) { /* all blocks are pinned */
            waited++;
            sched_yield();
            spoil_what_nobody_needs();
        }
    }
    atomic_store(&stop, true);
    return NULL;
}

static void check_whole(const struct pinner *pinner, const struct shmc_pinned *pinned)
{
    CHECK(shmc_in_span(&pinner->reader->span, pinned->catalogue, BLOCK_WORDS * 8));
    for (unsigned i = 0; i < BLOCK_WORDS; i++) {
        const uint64_t word = shmc_load_at(&pinner->reader->span, pinned->catalogue + i * 8);
        if (word != pinned->generation)
            printf("spoilt after %" PRIu64 " pins\n", pinner->pins);
        CHECK_EQUAL(pinned->generation, word);
    }
}

static void *run_pinner(void *argument)
{
    struct pinner *pinner = argument;
    struct shmc_pinned held[HELD];
    unsigned count = 0;
    uint64_t random = test_random_state(pinner->stream);

    pthread_barrier_wait(&team.start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        CHECK_EQUAL(SHMC_OK, shmc_pin(pinner->reader, &held[count]));
        check_whole(pinner, &held[count++]);
        pinner->pins++;
        if (count > SHMC_COUNTED_PINS)
            pinner->overflows++;
        /* Mostly one at a time; now and then they pile up. */
        while (count == HELD || (count > 0 && test_random(&random) % 8192 != 0)) {
            check_whole(pinner, &held[--count]);
            const uint64_t age = shmc_reader_latest(pinner->reader) - held[count].generation;
            if (age > pinner->oldest)
                pinner->oldest = age;
            shmc_unpin(pinner->reader, &held[count]);
        }
        if (test_random(&random) % 65536 == 0) { /* a pile of distinct generations */
            while (count < HELD - 1 && !atomic_load(&stop)) {
                CHECK_EQUAL(SHMC_OK, shmc_pin(pinner->reader, &held[count]));
                pinner->overflows += ++count > SHMC_COUNTED_PINS;
                sched_yield();
            }
        }
    }
    while (count > 0)
        shmc_unpin(pinner->reader, &held[--count]);
    CHECK_EQUAL(0, shmc_reader_pins(pinner->reader));
    return NULL;
}

int main(void)
{
    struct pinner pinners[READERS] = {{.stream = 1}};
    pthread_t writer;

    test_start("stress_pin");
    fake_create(&fake, READERS);
    publish();
    spoilt = generation - 1;
    CHECK_EQUAL(0, pthread_barrier_init(&team.start, NULL, READERS + 1));
    for (team.count = 0; team.count < READERS; team.count++) {
        CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &pinners[team.count].reader));
        CHECK_EQUAL(0, pthread_create(&team.threads[team.count], NULL, run_pinner,
                                      &pinners[team.count]));
    }
    CHECK_EQUAL(0, pthread_create(&writer, NULL, run_writer, NULL));
    CHECK_EQUAL(0, pthread_join(writer, NULL));
    test_team_join(&team);
    spoil_what_nobody_needs();
    CHECK_EQUAL(generation - 1, spoilt); /* nothing stays pinned */
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pinners[i].pins > 0); /* or the test proved nothing */
        CHECK(pinners[i].overflows > 0);
        CHECK(pinners[i].oldest > 0);
        printf("%" PRIu64 " pins, %" PRIu64 " overflows, up to %" PRIu64 " behind\n",
               pinners[i].pins, pinners[i].overflows, pinners[i].oldest);
        fake_detach(pinners[i].reader);
    }
    CHECK(deferred > 0);
    printf("%" PRIu64 " generations, %" PRIu64 " deferred, %" PRIu64 " waits\n", generation,
           deferred, waited);
    fake_destroy(&fake);
    return 0;
}
