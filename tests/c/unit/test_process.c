/*
 * A child of fork can find out that it is one, keeps none of its parent's locks alive, and has
 * a fork word and a list of descriptors of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "fake.h"

/* Runs a body in a child; its facts are checked there. */
static void in_child(void (*body)(void *), void *argument)
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, &status, 0));
    CHECK_EQUAL(0, status);
}

struct words {
    const uint64_t *parent, *own;
};

static void check_grandchild(void *argument)
{
    const struct words *words = argument;

    CHECK_EQUAL(0, *words->parent);
    CHECK_EQUAL(0, *words->own);
    CHECK_EQUAL(1, *shmc_fork_word());
}

static void check_child(void *argument)
{
    struct words *words = argument;

    CHECK_EQUAL(0, *words->parent);
    words->own = shmc_fork_word();
    CHECK(words->own != NULL && words->own != words->parent);
    CHECK_EQUAL(1, *words->own);
    CHECK(words->own == shmc_fork_word());
    CHECK_EQUAL(0, *words->parent); /* the parent's handles stay invalid */
    in_child(check_grandchild, words);
    CHECK_EQUAL(1, *words->own);
}

static void test_fork_word(void)
{
    struct words words = {.parent = shmc_fork_word()};

    CHECK(words.parent != NULL);
    CHECK_EQUAL(1, *words.parent);
    CHECK(words.parent == shmc_fork_word());
    in_child(check_child, &words);
    in_child(check_child, &words);
    CHECK_EQUAL(1, *words.parent);
}

static struct test_team team;

static void *ask_for_word(void *argument)
{
    const uint64_t **word = argument;

    pthread_barrier_wait(&team.start);
    *word = shmc_fork_word();
    return NULL;
}

/* In a fresh child, so that the word does not exist yet. */
static void check_threads(void *argument)
{
    const uint64_t *words[8];
    void *arguments[8];

    (void)argument;
    for (unsigned i = 0; i < 8; i++)
        arguments[i] = &words[i];
    test_team_start(&team, 8, ask_for_word, arguments);
    test_team_join(&team);
    for (unsigned i = 0; i < 8; i++) {
        CHECK(words[i] == words[0]);
        CHECK_EQUAL(1, *words[i]);
    }
}

struct descriptors {
    int closed, kept, both;
};

static void check_descriptors(void *argument)
{
    const struct descriptors *fds = argument;

    CHECK(fcntl(fds->closed, F_GETFD) < 0 && errno == EBADF);
    CHECK(fcntl(fds->kept, F_GETFD) >= 0);
    CHECK(fcntl(fds->both, F_GETFD) >= 0);
    for (unsigned i = 0; i < 256; i++) /* the list is empty here: room for all */
        CHECK_EQUAL(SHMC_OK, shmc_close_in_child(10000));
    CHECK_EQUAL(SHMC_LIMIT, shmc_close_in_child(10000));
    shmc_keep_in_child(10000);
    CHECK_EQUAL(SHMC_OK, shmc_close_in_child(fds->kept));
    CHECK_EQUAL(SHMC_LIMIT, shmc_close_in_child(10000));
}

static void test_child_closes(void)
{
    struct descriptors fds = {.closed = dup(1), .kept = dup(1), .both = dup(1)};

    CHECK_EQUAL(SHMC_INVALID, shmc_close_in_child(-1));
    CHECK_EQUAL(SHMC_OK, shmc_close_in_child(fds.closed));
    CHECK_EQUAL(SHMC_OK, shmc_close_in_child(fds.both));
    shmc_keep_in_child(fds.both);
    shmc_keep_in_child(fds.both); /* once is enough, twice does no harm */
    in_child(check_descriptors, &fds);
    CHECK(fcntl(fds.closed, F_GETFD) >= 0); /* the parent keeps its own */
    shmc_keep_in_child(fds.closed);
    close(fds.closed);
    close(fds.kept);
    close(fds.both);
}

/* A live child; the parent dies for the kernel's lock when its last copy is closed. */
static void test_child_keeps_no_lock_alive(void)
{
    const int file = memfd_create("locks", MFD_CLOEXEC);
    const int holder = fake_reopen(file);
    int ready[2];
    char byte;

    CHECK_EQUAL(SHMC_OK, shmc_close_in_child(holder));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(holder, 3));
    CHECK_EQUAL(0, pipe(ready));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQUAL(1, write(ready[1], "x", 1));
        pause();
        _exit(1);
    }
    CHECK_EQUAL(1, read(ready[0], &byte, 1));
    CHECK_EQUAL(SHMC_BUSY, shmc_probe_byte(file, 3)); /* the child's close did not unlock */
    shmc_keep_in_child(holder);
    close(holder);
    CHECK_EQUAL(SHMC_OK, shmc_probe_byte(file, 3));
    CHECK_EQUAL(0, kill(child, SIGKILL));
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, NULL, 0));
    close(ready[0]);
    close(ready[1]);
    close(file);
}

struct readers {
    struct fake fake;
    struct shmc_reader *reader;
    struct shmc_pinned pinned;
};

static void check_forked_reader(void *argument)
{
    struct readers *all = argument;
    struct shmc_pinned pinned;
    struct shmc_reader *own;

    CHECK_EQUAL(SHMC_FORKED, shmc_pin(all->reader, &pinned));
    CHECK_EQUAL(SHMC_FORKED, shmc_wait(all->reader, 1, 0, -1));
    shmc_wake_self(all->reader);
    shmc_unpin(all->reader, &all->pinned);
    shmc_reader_report(all->reader, 5, 5, 5, 5);
    shmc_reader_count_cut(all->reader);
    CHECK_EQUAL(0, shmc_reader_pins(all->reader));
    shmc_reader_destroy(all->reader);
    CHECK_EQUAL(SHMC_OK, fake_attach(&all->fake, &own));
    CHECK_EQUAL(1, (uint64_t)shmc_reader_seat(own)); /* 0 is still the parent's */
    CHECK_EQUAL(SHMC_OK, shmc_pin(own, &pinned));
    shmc_unpin(own, &pinned);
    fake_detach(own);
}

/* The lock is held while the process forks, as another thread may hold it. */
static void test_parents_reader_is_refused_and_untouched(void)
{
    struct readers all;
    struct shmc_seat_info info;

    fake_create(&all.fake, 4);
    CHECK_EQUAL(SHMC_OK, fake_attach(&all.fake, &all.reader));
    CHECK_EQUAL(SHMC_OK, shmc_pin(all.reader, &all.pinned));
    pthread_mutex_lock(&all.reader->lock);
    in_child(check_forked_reader, &all);
    pthread_mutex_unlock(&all.reader->lock);
    CHECK_EQUAL(SHMC_OK, shmc_seat_info(&all.fake.seats, 0, &info));
    CHECK_EQUAL(1, info.pins);
    CHECK_EQUAL(1, info.in_use);
    CHECK_EQUAL((uint64_t)getpid(), info.pid);
    CHECK_EQUAL(0, info.cursor);
    CHECK_EQUAL(SHMC_BUSY, shmc_probe_byte(all.fake.seats.fd, 0));
    shmc_unpin(all.reader, &all.pinned);
    fake_detach(all.reader);
    fake_destroy(&all.fake);
}

struct guarded_map {
    struct shmc_segment segment;
    int file; /* the same file, which stays open in a child */
};

/* The number of the descriptor that the child has lost is another file's now. */
static void check_truncation_in_a_child(void *argument)
{
    const struct guarded_map *map = argument;
    const int other = memfd_create("other", MFD_CLOEXEC);

    CHECK_EQUAL((uint64_t)map->segment.fd, (uint64_t)other);
    CHECK_EQUAL(0, ftruncate(map->file, 0));
    CHECK_EQUAL(0, *(volatile uint8_t *)map->segment.base); /* a fault, mended by a page */
    CHECK_EQUAL(0, (uint64_t)lseek(other, 0, SEEK_END));
}

static void test_a_guard_of_the_parent_lengthens_no_file_of_its_child(void)
{
    struct guarded_map map = {.file = memfd_create("seats", MFD_CLOEXEC)};

    CHECK_EQUAL(0, ftruncate(map.file, SHMC_PAGE));
    const int fd = fake_reopen(map.file);
    CHECK_EQUAL(SHMC_OK, shmc_close_in_child(fd));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, SHMC_PAGE, true, &map.segment));
    CHECK_EQUAL(SHMC_OK, shmc_guard(&map.segment));
    in_child(check_truncation_in_a_child, &map);
    CHECK_EQUAL(0, *(volatile uint8_t *)map.segment.base); /* here the file is made long again */
    CHECK_EQUAL(SHMC_PAGE, (uint64_t)lseek(map.file, 0, SEEK_END));
    shmc_unguard(&map.segment);
    shmc_segment_unmap(&map.segment);
    shmc_keep_in_child(fd);
    close(fd);
    close(map.file);
}

int main(void)
{
    test_start("test_process");
    test_fork_word();
    in_child(check_threads, NULL);
    test_child_closes();
    test_child_keeps_no_lock_alive();
    test_parents_reader_is_refused_and_untouched();
    test_a_guard_of_the_parent_lengthens_no_file_of_its_child();
    return 0;
}
