/*
 * Every byte below file_size has memory, a failure changes nothing, and a
 * lock on a byte ends with its open file description.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "core.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static int new_file(void)
{
    const int fd = memfd_create("segment", MFD_CLOEXEC);

    if (fd < 0)
        test_skip("no memfd_create");
    return fd;
}

static int reopen(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int opened = open(path, flags | O_CLOEXEC);
    CHECK(opened >= 0);
    return opened;
}

static void test_grows_under_the_map(void)
{
    const int fd = new_file();
    struct shmc_segment writer, reader;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &writer));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 0, &reader));
    CHECK_EQUAL(0, writer.file_size);
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&writer, 9 * MIB));
    CHECK_EQUAL(9 * MIB, writer.file_size);
    CHECK_EQUAL(9 * MIB, shmc_segment_bytes(&reader));
    writer.base[0] = 3;
    writer.base[9 * MIB - 1] = 4;
    CHECK_EQUAL(3, reader.base[0]);
    CHECK_EQUAL(4, reader.base[9 * MIB - 1]);
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&writer, MIB)); /* never shrinks */
    CHECK_EQUAL(9 * MIB, writer.file_size);
    CHECK_EQUAL(SHMC_FULL, shmc_segment_extend(&writer, 64 * MIB + 1));
    CHECK_EQUAL(SHMC_INVALID, shmc_segment_extend(&reader, 10 * MIB));
    shmc_segment_unmap(&writer);
    CHECK(writer.base == NULL);
    shmc_segment_unmap(&reader);
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &writer));
    CHECK_EQUAL(9 * MIB, writer.file_size); /* the size of the file */
    shmc_segment_unmap(&writer);
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, MIB, 1, &writer));
    CHECK_EQUAL(MIB, writer.file_size); /* never beyond the map */
    shmc_segment_unmap(&writer);
    close(fd);
}

/* Large pages of the file can map to large pages of the address space, and growing keeps
 * content. */
static void test_large_pages(void)
{
    const int fd = new_file();
    struct shmc_segment writer, reader, small;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB + 4096, 1, &writer));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB + 4096, 0, &reader));
    CHECK_EQUAL(0, (uintptr_t)writer.base % (2 * MIB));
    CHECK_EQUAL(0, (uintptr_t)reader.base % (2 * MIB));
    for (uint64_t size = MIB / 2; size <= 64 * MIB; size += MIB / 2) {
        CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&writer, size));
        for (uint64_t at = size - MIB / 2; at < size; at += 4096)
            writer.base[at] = (uint8_t)(at >> 12 ^ at >> 20);
    }
    for (uint64_t at = 0; at < 64 * MIB; at += 4096)
        CHECK_EQUAL((uint8_t)(at >> 12 ^ at >> 20), reader.base[at]);
    CHECK_EQUAL(64 * MIB, shmc_segment_bytes(&reader));
    shmc_segment_unmap(&reader);
    shmc_segment_unmap(&writer);
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 4096, 0, &small)); /* too small for one */
    CHECK_EQUAL(0, small.base[0]);
    shmc_segment_unmap(&small);
    close(fd);
}

static void test_refuses_what_cannot_be(void)
{
    struct shmc_segment segment = {.max_size = 77};
    const int fd = new_file();
    int ends[2];

    CHECK_EQUAL(0, pipe(ends));
    CHECK_EQUAL(SHMC_INVALID, shmc_segment_map(ends[0], MIB, 0, &segment));
    CHECK_EQUAL(SHMC_INVALID, shmc_segment_map(fd, 0, 1, &segment));
    CHECK_EQUAL(SHMC_INVALID, shmc_segment_map(fd, UINT64_MAX, 1, &segment));
    CHECK_EQUAL(SHMC_SYSTEM, shmc_segment_map(-1, MIB, 1, &segment));
    CHECK_EQUAL(EBADF, errno);
    const int read_only = reopen(fd, O_RDONLY);
    CHECK_EQUAL(SHMC_SYSTEM, shmc_segment_map(read_only, MIB, 1, &segment));
    CHECK_EQUAL(EACCES, errno);
    CHECK_EQUAL(77, segment.max_size);
    close(read_only);
    close(ends[0]);
    close(ends[1]);
    close(fd);
}

static bool tell_kernel(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return written;
}

/* Root needs no user namespace; other users become root in one of their own. */
static bool own_mounts(void)
{
    char users[64], groups[64];

    snprintf(users, sizeof users, "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getegid());
    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
         !tell_kernel("/proc/self/setgroups", "deny") ||
         !tell_kernel("/proc/self/uid_map", users) || !tell_kernel("/proc/self/gid_map", groups)))
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* In a child with mounts of its own: a file on a file system with these options. */
static int file_on(const char *options)
{
    char directory[] = P_tmpdir "/shmcache-test-XXXXXX";

    if (mkdtemp(directory) == NULL || !own_mounts() ||
        mount("none", directory, "tmpfs", 0, options) != 0) {
        rmdir(directory);
        _exit(77);
    }
    const int fd = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    umount2(directory, MNT_DETACH);
    rmdir(directory);
    CHECK(fd >= 0);
    return fd;
}

static void fill_file_system(void)
{
    const int fd = file_on("size=8m");
    struct shmc_segment segment;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &segment));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, MIB));
    segment.base[MIB - 1] = 1;
    CHECK_EQUAL(SHMC_NO_SPACE, shmc_segment_extend(&segment, 32 * MIB));
    CHECK_EQUAL(ENOSPC, errno);
    CHECK_EQUAL(MIB, segment.file_size);
    CHECK_EQUAL(MIB, shmc_segment_bytes(&segment));
    CHECK_EQUAL(1, segment.base[MIB - 1]);
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 7 * MIB)); /* and it continues */
    _exit(0);
}

/* A skipped part of the file takes no memory, and is rejected without harm. */
static void fill_later(void)
{
    const int fd = file_on("size=8m");
    struct shmc_segment segment;
    struct stat file;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &segment));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, MIB));
    CHECK_EQUAL(SHMC_OK, shmc_segment_skip(&segment, 17 * MIB)); /* whole large pages of it */
    CHECK_EQUAL(16 * MIB, segment.file_size);
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 20 * MIB));
    CHECK_EQUAL(0, fstat(fd, &file));
    CHECK_EQUAL(5 * MIB, (uint64_t)file.st_blocks * 512);
    memset(segment.base + 16 * MIB, 7, 4 * MIB);
    CHECK_EQUAL(SHMC_NO_SPACE, shmc_segment_fill(&segment, MIB, 16 * MIB));
    CHECK_EQUAL(ENOSPC, errno);
    CHECK_EQUAL(20 * MIB, segment.file_size);
    CHECK_EQUAL(SHMC_OK, shmc_segment_fill(&segment, MIB, 3 * MIB));
    memset(segment.base + MIB, 8, 2 * MIB);
    CHECK_EQUAL(SHMC_OK, shmc_segment_fill(&segment, MIB, 3 * MIB)); /* as it is */
    CHECK_EQUAL(8, segment.base[3 * MIB - 1]);
    CHECK_EQUAL(7, segment.base[16 * MIB]);
    CHECK_EQUAL(SHMC_INVALID, shmc_segment_fill(&segment, 20 * MIB, 21 * MIB));
    _exit(0);
}

/* If files consist of large pages from the beginning, data that is written stays, in all maps. */
static void write_large_pages(const char *options)
{
    const int fd = file_on(options);
    struct shmc_segment writer, reader;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &writer));
    for (uint64_t size = MIB; size <= 24 * MIB; size += 5 * MIB / 2) {
        const uint64_t before = writer.file_size;
        CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&writer, size));
        for (uint64_t at = before; at < size; at += 4096)
            writer.base[at] = (uint8_t)(1 + at / 4096 % 255);
        CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 0, &reader));
        for (uint64_t at = 0; at < size; at += 4096)
            CHECK_EQUAL(1 + at / 4096 % 255, reader.base[at]);
        shmc_segment_unmap(&reader);
    }
    _exit(0);
}

static void write_always(void)
{
    write_large_pages("size=64m,huge=always");
}

static void write_within_size(void)
{
    write_large_pages("size=64m,huge=within_size");
}

static void in_a_child(void (*what)(void), const char *name)
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0)
        what();
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, &status, 0));
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("not tested: %s (no mount of our own)\n", name);
    else
        CHECK_EQUAL(0, WEXITSTATUS(status));
}

static void test_other_failure_keeps_errno_and_gives_back(void)
{
    const int fd = new_file();
    struct shmc_segment segment;
    struct rlimit before, limit;

    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &segment));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, MIB));
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQUAL(0, getrlimit(RLIMIT_FSIZE, &before));
    limit = before;
    limit.rlim_cur = 10 * MIB;
    CHECK_EQUAL(0, setrlimit(RLIMIT_FSIZE, &limit));
    const enum shmc_status status = shmc_segment_extend(&segment, 32 * MIB);
    const int error = errno;
    CHECK_EQUAL(0, setrlimit(RLIMIT_FSIZE, &before));
    CHECK_EQUAL(SHMC_SYSTEM, status);
    CHECK_EQUAL(EFBIG, error);
    CHECK_EQUAL(MIB, segment.file_size);
    CHECK_EQUAL(MIB, shmc_segment_bytes(&segment)); /* the steps that went well, too */
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 32 * MIB));
    shmc_segment_unmap(&segment);
    close(fd);
}

static atomic_int ticks;

static void on_tick(int number)
{
    (void)number;
    atomic_fetch_add(&ticks, 1);
}

static void test_signals_do_not_stop_growth(void)
{
    const int fd = new_file();
    struct sigaction action = {.sa_handler = on_tick}; /* without SA_RESTART */
    struct itimerval timer = {.it_interval = {.tv_usec = 8000}, .it_value = {.tv_usec = 2000}};
    struct shmc_segment segment;

    CHECK_EQUAL(0, sigaction(SIGALRM, &action, NULL));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 256 * MIB, 1, &segment));
    CHECK_EQUAL(0, setitimer(ITIMER_REAL, &timer, NULL));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 128 * MIB));
    AWAIT(atomic_load(&ticks) > 0);
    timer = (struct itimerval){0};
    CHECK_EQUAL(0, setitimer(ITIMER_REAL, &timer, NULL));
    CHECK_EQUAL(128 * MIB, shmc_segment_bytes(&segment));
    shmc_segment_unmap(&segment);
    close(fd);
}

static void test_lock_belongs_to_the_description(void)
{
    const int first = new_file();
    const int second = reopen(first, O_RDWR), copy = dup(first);
    const int read_only = reopen(first, O_RDONLY);

    CHECK_EQUAL(SHMC_OK, shmc_probe_byte(second, 5));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(first, 5));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(first, 5)); /* it has it */
    CHECK_EQUAL(SHMC_BUSY, shmc_lock_byte(second, 5));
    CHECK_EQUAL(SHMC_BUSY, shmc_probe_byte(second, 5));
    CHECK_EQUAL(SHMC_BUSY, shmc_probe_byte(read_only, 5)); /* display needs no right to write */
    CHECK_EQUAL(SHMC_OK, shmc_probe_byte(first, 5));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(second, 6));
    CHECK_EQUAL(SHMC_BUSY, shmc_lock_byte(first, 6));
    CHECK_EQUAL(SHMC_OK, shmc_unlock_byte(first, 5));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(second, 5));
    close(second);
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(first, 5));
    close(first);
    CHECK_EQUAL(SHMC_BUSY, shmc_probe_byte(read_only, 5)); /* the copy keeps it */
    close(copy);
    CHECK_EQUAL(SHMC_OK, shmc_probe_byte(read_only, 5));
    CHECK_EQUAL(SHMC_SYSTEM, shmc_lock_byte(read_only, 5));
    CHECK_EQUAL(EBADF, errno);
    CHECK_EQUAL(SHMC_INVALID, shmc_lock_byte(read_only, UINT64_MAX));
    close(read_only);
}

static void test_lock_ends_with_its_process(void)
{
    const int fd = new_file();
    int ready[2];
    char byte;

    CHECK_EQUAL(0, pipe(ready));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const int own = reopen(fd, O_RDWR);
        if (shmc_lock_byte(own, 0) == SHMC_OK && write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    CHECK_EQUAL(1, read(ready[0], &byte, 1));
    CHECK_EQUAL(SHMC_BUSY, shmc_lock_byte(fd, 0));
    CHECK_EQUAL(0, kill(child, SIGKILL));
    CHECK_EQUAL((uint64_t)child, (uint64_t)waitpid(child, NULL, 0));
    CHECK_EQUAL(SHMC_OK, shmc_lock_byte(fd, 0));
    close(ready[0]);
    close(ready[1]);
    close(fd);
}

int main(void)
{
    test_start("test_segment");
    test_grows_under_the_map();
    test_large_pages();
    test_refuses_what_cannot_be();
    in_a_child(fill_file_system, "a full file system");
    in_a_child(fill_later, "a part of a file without memory");
    in_a_child(write_always, "a file system of large pages");
    in_a_child(write_within_size, "a file system of large pages where they fit");
    test_other_failure_keeps_errno_and_gives_back();
    test_signals_do_not_stop_growth();
    test_lock_belongs_to_the_description();
    test_lock_ends_with_its_process();
    return 0;
}
