/*
 * An instance that is over ends every sleep on it, and only what may be ended is ended; a relay
 * writes its descriptor for news, for rings and for the end, and stops alone.
 */
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"

static struct fake fake;
static struct shmc_reader *reader;

static void publish(uint64_t generation, unsigned resource)
{
    shmc_store_racy(&fake.super->activity[resource], generation);
    fake_publish(&fake, generation);
    shmc_seats_wake(&fake.seats, fake.seat_count, UINT64_C(1) << resource, 0);
}

static bool readable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    return poll(&polled, 1, 0) == 1;
}

static void clear(int fd)
{
    uint64_t count;

    CHECK_EQUAL(sizeof count, (uint64_t)read(fd, &count, sizeof count));
}

static struct shmc_relay *start(int *fd, uint64_t interest)
{
    struct shmc_relay *relay = NULL;

    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(*fd >= 0);
    CHECK_EQUAL(SHMC_OK, shmc_relay_start(reader, interest, 0, shmc_reader_latest(reader),
                                          shmc_reader_wakes(reader), *fd, &relay));
    return relay;
}

static bool asleep(uint64_t interest)
{
    return (shmc_load32_racy(&reader->seat->semaphore) & 1u) != 0 &&
           (shmc_load_racy(&reader->seat->interest) & interest) == interest;
}

static void test_a_relay_tells_of_each_publication(void)
{
    int pods, nodes;
    struct shmc_relay *first = start(&pods, 1u << 5), *second = start(&nodes, 1u << 6);

    for (uint64_t round = 0; round < 100; round++) {
        AWAIT(asleep(1u << 5 | 1u << 6));
        publish(shmc_reader_latest(reader) + 1, 5);
        AWAIT(readable(pods));
        CHECK(!readable(nodes));
        clear(pods);
    }
    shmc_relay_stop(&first);
    AWAIT(asleep(1u << 6)); /* the other one sleeps on (RELAY3) */
    clear(pods);            /* the last write (RELAY2) */
    CHECK(!readable(nodes));
    publish(shmc_reader_latest(reader) + 1, 6);
    AWAIT(readable(nodes));
    shmc_relay_stop(&second);
    close(pods);
    close(nodes);
}

/* Between the decision to wait and the thread's first check. */
static void test_news_before_the_thread_is_reported(void)
{
    struct shmc_relay *relay = NULL;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const uint64_t seen = shmc_reader_latest(reader), wakes = shmc_reader_wakes(reader);

    shmc_wake_self(reader);
    CHECK_EQUAL(SHMC_OK, shmc_relay_start(reader, 1u << 5, 0, seen, wakes, fd, &relay));
    AWAIT(readable(fd));
    shmc_relay_stop(&relay);
    clear(fd);
    publish(seen + 1, 5);
    CHECK_EQUAL(SHMC_OK, shmc_relay_start(reader, 1u << 5, 0, seen, shmc_reader_wakes(reader), fd,
                                          &relay));
    AWAIT(readable(fd));
    shmc_relay_stop(&relay);
    close(fd);
}

static void test_a_relay_takes_no_signals(void)
{
    int fd;
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct shmc_relay *relay = start(&fd, 1u << 5);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK_EQUAL((uint64_t)sigismember(&before, SIGTERM), (uint64_t)sigismember(&after, SIGTERM));
    shmc_relay_stop(&relay);
    close(fd);
}

/* DATA in a file, as shmc_data_end() finds it. */
static struct shmc_segment data_file(uint64_t bytes, int writable)
{
    struct shmc_segment segment;
    const int fd = memfd_create("data", MFD_CLOEXEC);

    CHECK(fd >= 0);
    CHECK_EQUAL(bytes, (uint64_t)write(fd, fake.data.base, (size_t)bytes));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 4096, writable, &segment));
    return segment;
}

static void check_end(struct shmc_segment segment, enum shmc_status status)
{
    const struct shmc_super *super = (const struct shmc_super *)(const void *)segment.base;

    CHECK_EQUAL(status, shmc_data_end(&segment));
    if (status == SHMC_OK)
        CHECK_EQUAL(1, shmc_load_racy(&super->over));
    close(segment.fd);
    shmc_segment_unmap(&segment);
}

static void test_only_a_whole_segment_of_this_layout_is_ended(void)
{
    struct shmc_super *super = fake.super;

    check_end(data_file(FAKE_BYTES, 1), SHMC_OK);
    check_end(data_file(FAKE_BYTES, 0), SHMC_CORRUPT); /* a reader's map: not to be ended here */
    check_end(data_file(512, 1), SHMC_CORRUPT);        /* its writer died before it was complete */
    super->layout_signature++;
    check_end(data_file(FAKE_BYTES, 1), SHMC_CORRUPT);
    super->layout_signature--;
    super->magic++;
    check_end(data_file(FAKE_BYTES, 1), SHMC_CORRUPT);
    super->magic--;
}

static void *sleep_for_ever(void *status)
{
    *(enum shmc_status *)status = shmc_wait(reader, 1u << 5, shmc_reader_latest(reader), -1);
    return NULL;
}

static void test_the_end_wakes_sleepers_and_relays(void)
{
    enum shmc_status status = SHMC_OK;
    pthread_t thread;
    int fd;
    struct shmc_relay *relay = start(&fd, 1u << 6);

    CHECK_EQUAL(0, (uint64_t)shmc_reader_over(reader));
    CHECK_EQUAL(0, (uint64_t)pthread_create(&thread, NULL, sleep_for_ever, &status));
    AWAIT(asleep(1u << 5 | 1u << 6));
    shmc_store_release(&fake.super->over, 1);
    CHECK_EQUAL(SHMC_OK, shmc_seats_end(&fake.seats));
    pthread_join(thread, NULL);
    CHECK_EQUAL(SHMC_OVER, status);
    AWAIT(readable(fd));
    shmc_relay_stop(&relay);
    close(fd);
    CHECK_EQUAL(1, (uint64_t)shmc_reader_over(reader));
    CHECK_EQUAL(SHMC_OVER, shmc_wait(reader, 1u << 5, shmc_reader_latest(reader), -1));
    CHECK_EQUAL(SHMC_OK, shmc_wait(reader, 1u << 5, 0, -1)); /* news come first */
}

/* As Python's collector does, which ends objects that refer to each other in any order (RELAY1). */
static void test_a_reader_that_goes_ends_its_relays(void)
{
    int pods, nodes, other;
    struct shmc_relay *first = start(&pods, 1u << 5), *second = start(&nodes, 1u << 6);
    struct shmc_relay *third = start(&other, 1u << 7);

    shmc_relay_stop(&second);
    AWAIT(asleep(1u << 5 | 1u << 7));
    fake_detach(reader);
    CHECK(readable(pods)); /* the last write (RELAY2) */
    CHECK(readable(other));
    shmc_relay_stop(&first);
    shmc_relay_stop(&third);
    shmc_relay_stop(&first);
    CHECK(first == NULL);
    close(pods);
    close(nodes);
    close(other);
}

int main(void)
{
    test_start("test_relay");
    fake_create(&fake, 4);
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &reader));
    test_a_relay_tells_of_each_publication();
    test_news_before_the_thread_is_reported();
    test_a_relay_takes_no_signals();
    test_only_a_whole_segment_of_this_layout_is_ended();
    test_a_reader_that_goes_ends_its_relays();
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &reader));
    test_the_end_wakes_sleepers_and_relays();
    fake_detach(reader);
    fake_destroy(&fake);
    return 0;
}
