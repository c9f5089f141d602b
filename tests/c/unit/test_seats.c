/*
 * A seat belongs to the holder of its lock, the notes of a dead owner are cleared, and no bytes in
 * SEATS make the writer do more than wake a sleeper in vain.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fake.h"

#define SEATS 4u

static struct shmc_seat_info info_of(const struct fake *fake, uint64_t index)
{
    struct shmc_seat_info info;

    CHECK_EQUAL(SHMC_OK, shmc_seat_info(&fake->seats, index, &info));
    return info;
}

/* On memory of exactly the size. */
static void test_header_is_checked(void)
{
    const uint64_t size = shmc_seats_size(3);
    struct shmc_segment seats = {
        .base = aligned_alloc(64, size), .max_size = size, .file_size = size, .fd = -1};
    struct shmc_seats_header *header = (struct shmc_seats_header *)(void *)seats.base;
    uint64_t instance = 0;

    CHECK(seats.base != NULL);
    memset(seats.base, 0xff, size);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_seats_check_header(&seats, &instance));
    CHECK_EQUAL(SHMC_INVALID, shmc_seats_format(&seats, 3, 9)); /* not writable */
    seats.writable = 1;
    CHECK_EQUAL(SHMC_INVALID, shmc_seats_format(&seats, 0, 9));
    CHECK_EQUAL(SHMC_INVALID, shmc_seats_format(&seats, 4, 9));
    CHECK_EQUAL(SHMC_INVALID, shmc_seats_format(&seats, SHMC_MAX_SEATS + 1, 9));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&seats, 3, 9));
    CHECK_EQUAL(SHMC_OK, shmc_seats_check_header(&seats, &instance));
    CHECK_EQUAL(9, instance);
    CHECK_EQUAL(3, shmc_seats_count(&seats));
    header->layout_version++;
    CHECK_EQUAL(SHMC_VERSION, shmc_seats_check_header(&seats, &instance));
    header->layout_version--;
    header->layout_signature++;
    CHECK_EQUAL(SHMC_VERSION, shmc_seats_check_header(&seats, &instance));
    header->layout_signature--;
    header->seat_count = 4; /* more than the memory holds */
    CHECK_EQUAL(SHMC_CORRUPT, shmc_seats_check_header(&seats, &instance));
    header->seat_count = UINT64_MAX / sizeof(struct shmc_seat);
    CHECK_EQUAL(0, shmc_seats_count(&seats));
    header->seat_count = 3;
    seats.file_size = 64; /* truncated */
    CHECK_EQUAL(SHMC_CORRUPT, shmc_seats_check_header(&seats, &instance));
    free(seats.base);
}

/* SEAT7: truncated by another process, between the map and the check. */
static void test_a_header_is_looked_at_under_guard(void)
{
    const uint64_t size = shmc_seats_size(3);
    const int fd = memfd_create("seats", MFD_CLOEXEC);
    struct shmc_segment seats;
    uint64_t instance = 0;

    CHECK_EQUAL(0, ftruncate(fd, (off_t)size));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, size, 1, &seats));
    CHECK_EQUAL(0, ftruncate(fd, 0));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&seats, 3, 9));
    CHECK_EQUAL(SHMC_OK, shmc_seats_check_header(&seats, &instance));
    CHECK_EQUAL(0, ftruncate(fd, 0));
    CHECK_EQUAL(SHMC_CORRUPT, shmc_seats_check_header(&seats, &instance));
    CHECK_EQUAL(size, shmc_segment_bytes(&seats));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&seats, 3, 9));
    CHECK_EQUAL(0, ftruncate(fd, INT64_C(1) << 40));
    CHECK(!shmc_seats_mend(&seats, 3, 9)); /* being too long does no damage, and does not last */
    CHECK_EQUAL(size, shmc_segment_bytes(&seats));
    shmc_segment_unmap(&seats);
    close(fd);
}

static void test_claim_and_leave(void)
{
    struct fake fake;
    struct shmc_reader *readers[SEATS], *late = NULL;

    fake_create(&fake, SEATS);
    struct shmc_seats_header *header = (struct shmc_seats_header *)(void *)fake.seats.base;
    for (unsigned i = 0; i < SEATS; i++) {
        CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &readers[i]));
        CHECK_EQUAL(i, (uint64_t)shmc_reader_seat(readers[i]));
        CHECK_EQUAL(i + 1, shmc_load_racy(&header->high));
        CHECK_EQUAL(1, info_of(&fake, i).in_use);
        CHECK_EQUAL(1, info_of(&fake, i).incarnation);
        CHECK_EQUAL((uint64_t)getpid(), info_of(&fake, i).pid);
    }
    CHECK_EQUAL(SHMC_BUSY, fake_attach(&fake, &late));
    CHECK(late == NULL);
    shmc_reader_report(readers[2], 10, 2, 12, 13);
    shmc_reader_report(readers[2], 11, 1, 1, 0);
    shmc_reader_count_cut(readers[2]);
    shmc_reader_count_cut(readers[2]);
    CHECK_EQUAL(11, info_of(&fake, 2).cursor);
    CHECK_EQUAL(1, info_of(&fake, 2).busy);
    CHECK_EQUAL(13, info_of(&fake, 2).taken);
    CHECK_EQUAL(13, info_of(&fake, 2).lapped);
    CHECK_EQUAL(2, info_of(&fake, 2).cut);
    CHECK(info_of(&fake, 2).claimed_ns != 0);
    fake_detach(readers[2]);
    CHECK_EQUAL(0, info_of(&fake, 2).in_use);
    CHECK_EQUAL(SHMC_OK, shmc_probe_byte(fake.seats.fd, 2));
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &readers[2]));
    CHECK_EQUAL(2, (uint64_t)shmc_reader_seat(readers[2]));
    CHECK_EQUAL(2, info_of(&fake, 2).incarnation);
    CHECK_EQUAL(0, info_of(&fake, 2).cursor);
    CHECK_EQUAL(0, info_of(&fake, 2).cut);
    CHECK_EQUAL(SEATS, shmc_load_racy(&header->high));
    for (unsigned i = 0; i < SEATS; i++)
        fake_detach(readers[i]);
    CHECK_EQUAL(SHMC_INVALID, shmc_seat_info(&fake.seats, SEATS, &(struct shmc_seat_info){0}));
    fake_destroy(&fake);
}

static void test_claim_clears_what_the_dead_left(void)
{
    struct fake fake;
    struct shmc_reader *reader;

    fake_create(&fake, 1);
    struct shmc_seat *seat = shmc_seat_at(&fake.seats, 0);
    memset((void *)seat, 0x5b, sizeof *seat);
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &reader));
    const struct shmc_seat_info info = info_of(&fake, 0);
    CHECK_EQUAL(0, info.pins);
    CHECK_EQUAL(0, info.asleep);
    CHECK_EQUAL(0, info.interest);
    CHECK_EQUAL(UINT64_C(0x5b5b5b5b5b5b5b5b) + 1, info.incarnation);
    fake_detach(reader);
    fake_destroy(&fake);
}

static void test_only_interested_sleepers_are_posted(void)
{
    struct fake fake;

    fake_create(&fake, SEATS);
    struct shmc_seats_header *header = (struct shmc_seats_header *)(void *)fake.seats.base;
    shmc_store_racy(&header->high, 3);
    for (unsigned i = 0; i < SEATS; i++) {
        shmc_store32_racy(&shmc_seat_at(&fake.seats, i)->semaphore, i == 0 ? 6 : 7);
        shmc_store_racy(&shmc_seat_at(&fake.seats, i)->interest, i == 2 ? 4 : 3);
    }
    CHECK_EQUAL(0, shmc_seats_wake(&fake.seats, SEATS, 8, 0));
    /* 0 is awake, 2 waits for something else, 3 is above high. */
    CHECK_EQUAL(1, shmc_seats_wake(&fake.seats, SEATS, 2, 0));
    CHECK_EQUAL(6, shmc_load32_racy(&shmc_seat_at(&fake.seats, 0)->semaphore));
    CHECK_EQUAL(8, shmc_load32_racy(&shmc_seat_at(&fake.seats, 1)->semaphore));
    CHECK_EQUAL(7, shmc_load32_racy(&shmc_seat_at(&fake.seats, 2)->semaphore));
    CHECK_EQUAL(7, shmc_load32_racy(&shmc_seat_at(&fake.seats, 3)->semaphore));
    CHECK_EQUAL(0, shmc_seats_wake(&fake.seats, SEATS, 2, 0)); /* once */
    shmc_seats_wake_all(&fake.seats, SEATS);
    CHECK_EQUAL(8, shmc_load32_racy(&shmc_seat_at(&fake.seats, 2)->semaphore));
    fake_destroy(&fake);
}

static int by_value(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* The naive twin: all pins that count, sorted, once each. */
static size_t expected_pins(const struct fake *fake, uint64_t *pins)
{
    const uint64_t floor = shmc_load_racy(&fake->super->floor);
    const uint64_t latest = shmc_load_racy(&fake->super->latest);
    size_t count = 0, distinct = 0;

    for (uint64_t i = 0; i < fake->seat_count; i++) {
        for (unsigned j = 0; j < SHMC_PINS; j++) {
            const uint64_t pin = shmc_load_racy(&shmc_seat_at(&fake->seats, i)->pins[j]);
            if (pin != 0 && pin <= latest && (pin >= floor || pin == fake->super->kept[3]))
                pins[count++] = pin;
        }
    }
    qsort(pins, count, sizeof *pins, by_value);
    for (size_t i = 0; i < count; i++) {
        if (distinct == 0 || pins[distinct - 1] != pins[i])
            pins[distinct++] = pins[i];
    }
    return distinct;
}

static void check_pins(const struct fake *fake, uint64_t *expected)
{
    const size_t count = expected_pins(fake, expected);
    struct shmc_pin_list list;

    shmc_seats_pins(&fake->seats, fake->seat_count, fake->super, &list);
    CHECK_EQUAL(count < SHMC_PIN_LIST ? count : SHMC_PIN_LIST, list.count);
    for (size_t i = 0; i < list.count; i++)
        CHECK_EQUAL(expected[i], list.pins[i]);
}

static void test_pins_are_collected(uint64_t seat_count, uint64_t latest)
{
    struct fake fake;
    uint64_t random = test_random_state(latest);

    fake_create(&fake, seat_count);
    uint64_t *expected = calloc(seat_count * SHMC_PINS, sizeof *expected);
    CHECK(expected != NULL);
    struct shmc_seats_header *header = (struct shmc_seats_header *)(void *)fake.seats.base;
    shmc_store_racy(&header->high, UINT64_MAX); /* garbage: clamped */
    shmc_store_racy(&fake.super->latest, latest);
    for (unsigned round = 0; round < 200; round++) {
        shmc_store_racy(&fake.super->floor, test_random(&random) % latest);
        shmc_store_racy(&fake.super->kept[3], 1 + test_random(&random) % latest);
        for (uint64_t i = 0; i < seat_count * SHMC_PINS; i++) {
            const uint64_t pin = test_random(&random) % 3 == 0 ? 0 : test_random(&random);
            shmc_store_racy(&shmc_seat_at(&fake.seats, i / SHMC_PINS)->pins[i % SHMC_PINS],
                            pin % 8 == 0 ? pin : pin % (latest + 2));
        }
        check_pins(&fake, expected);
    }
    free(expected);
    fake_destroy(&fake);
}

static uint64_t reap_all(const struct fake *fake)
{
    uint64_t next = 0;

    return shmc_seats_reap(&fake->seats, SEATS, fake->seats.fd, &next, UINT64_MAX);
}

/* Only noise in the segment: the scans stay inside and end. */
static void test_garbage_is_survived(void)
{
    struct fake fake;
    struct shmc_pin_list list;
    uint64_t random = test_random_state(77);

    fake_create(&fake, SEATS);
    const uint64_t size = shmc_seats_size(SEATS);
    for (unsigned round = 0; round < 200; round++) {
        for (uint64_t at = 0; at < size; at += 8)
            shmc_word_store(fake.seats.base + at, test_random(&random));
        shmc_seats_pins(&fake.seats, SEATS, fake.super, &list);
        for (size_t i = 0; i < list.count; i++)
            CHECK_EQUAL(1, list.pins[i]); /* the only generation */
        CHECK(shmc_seats_wake(&fake.seats, SEATS, UINT64_MAX, 0) <= SEATS);
        shmc_seats_wake_all(&fake.seats, SEATS);
        CHECK(reap_all(&fake) <= SEATS);
        CHECK_EQUAL(0, reap_all(&fake));
        CHECK_EQUAL(0, shmc_seats_count(&fake.seats));
    }
    fake_destroy(&fake);
}

static void die_in_seat(struct fake *fake, int ready)
{
    struct shmc_reader *reader;
    struct shmc_pinned pinned;

    CHECK_EQUAL(SHMC_OK, fake_attach(fake, &reader));
    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &pinned));
    shmc_store_racy(&reader->seat->interest, 1);
    shmc_store32_racy(&reader->seat->semaphore, 1);
    CHECK_EQUAL(1, write(ready, "x", 1));
    pause();
    _exit(1);
}

static void test_only_the_dead_are_reaped(void)
{
    struct fake fake;
    struct shmc_reader *alive, *next;
    struct shmc_pinned pinned;
    int ready[2];
    char byte;

    fake_create(&fake, SEATS);
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &alive));
    CHECK_EQUAL(SHMC_OK, shmc_pin(alive, &pinned));
    CHECK_EQUAL(0, pipe(ready));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        die_in_seat(&fake, ready[1]);
    CHECK_EQUAL(1, read(ready[0], &byte, 1));
    CHECK_EQUAL(0, reap_all(&fake));
    CHECK_EQUAL(1, info_of(&fake, 1).pins);
    CHECK_EQUAL(0, kill(child, SIGKILL));
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, NULL, 0));
    CHECK_EQUAL(1, reap_all(&fake));
    CHECK_EQUAL(0, info_of(&fake, 1).pins);
    CHECK_EQUAL(0, info_of(&fake, 1).in_use);
    CHECK_EQUAL(0, info_of(&fake, 1).asleep);
    CHECK_EQUAL(2, info_of(&fake, 1).incarnation);
    CHECK_EQUAL(1, info_of(&fake, 0).pins); /* a living owner keeps everything */
    CHECK_EQUAL(1, info_of(&fake, 0).in_use);
    CHECK_EQUAL(0, reap_all(&fake));
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &next)); /* the reaper gave the lock back */
    CHECK_EQUAL(1, (uint64_t)shmc_reader_seat(next));
    CHECK_EQUAL(3, info_of(&fake, 1).incarnation);
    shmc_unpin(alive, &pinned);
    fake_detach(next);
    fake_detach(alive);
    close(ready[0]);
    close(ready[1]);
    fake_destroy(&fake);
}

/* SEAT8: whatever is written into SEATS, one call tries so many locks, and every seat has its turn. */
static void test_reaping_is_bounded(void)
{
    enum { COUNT = 3 * SHMC_REAP_STEP };
    struct fake fake;
    uint64_t next = COUNT + 5, reaped = 0;

    fake_create(&fake, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        shmc_store_racy(&shmc_seat_at(&fake.seats, i)->in_use, 1);
    for (unsigned call = 1; call <= 3; call++) {
        reaped = shmc_seats_reap(&fake.seats, COUNT, fake.seats.fd, &next, UINT64_MAX);
        CHECK_EQUAL(SHMC_REAP_STEP, reaped);
        CHECK_EQUAL(call * SHMC_REAP_STEP % COUNT, next);
    }
    CHECK_EQUAL(0, shmc_seats_reap(&fake.seats, COUNT, fake.seats.fd, &next, UINT64_MAX));
    for (unsigned i = 0; i < COUNT; i++)
        shmc_store_racy(&shmc_seat_at(&fake.seats, i)->in_use, 1);
    next = COUNT - 1;
    for (unsigned call = 0; call < COUNT; call++) /* its time is over: one, so that it ends */
        CHECK_EQUAL(1, shmc_seats_reap(&fake.seats, COUNT, fake.seats.fd, &next, 0));
    CHECK_EQUAL(COUNT - 1, next);
    CHECK_EQUAL(0, shmc_seats_reap(&fake.seats, COUNT, fake.seats.fd, &next, 0));
    fake_destroy(&fake);
}

int main(void)
{
    test_start("test_seats");
    test_header_is_checked();
    test_a_header_is_looked_at_under_guard();
    test_claim_and_leave();
    test_claim_clears_what_the_dead_left();
    test_only_interested_sleepers_are_posted();
    test_pins_are_collected(2, 40);
    test_pins_are_collected(128, 300);
    test_pins_are_collected(40, 1u << 20); /* more distinct ones than the list holds */
    test_garbage_is_survived();
    test_only_the_dead_are_reaped();
    test_reaping_is_bounded();
    return 0;
}
