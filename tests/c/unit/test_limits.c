/*
 * A segment does not grow beyond the room that the cgroups leave, reports that room, and grows as
 * soon as there is more. Groups are directories that look like the kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static char root[] = P_tmpdir "/shmcache-limits-XXXXXX";

static void tell(const char *file, const char *text)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, file);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQUAL(strlen(text), (uint64_t)write(fd, text, strlen(text)));
    close(fd);
}

static void forget(const char *file)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, file);
    CHECK_EQUAL(0, remove(path));
}

static void make_group(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK_EQUAL(0, mkdir(path, 0700));
}

/* The lines of these groups; the text stays valid. */
static const char *lines(const char *first, const char *second)
{
    static char text[2 * PATH_MAX];

    snprintf(text, sizeof text, "%c%s/%s\n%c%s/%s\n", *first, root, first + 1, *second, root,
             second + 1);
    return text;
}

static void test_the_limit_of_each_group_counts(void)
{
    struct shmc_limits limits = {.groups = lines("2inner", "2outer")};

    tell("inner/memory.max", "max\n");
    tell("inner/memory.current", "104857600\n");
    tell("outer/memory.max", "134217728\n"); /* 128 MiB, of which 100 are used and 4 stay free */
    tell("outer/memory.current", "104857600\n");
    CHECK(shmc_limits_allow(&limits, 24 * MIB));
    CHECK_EQUAL(0, limits.refused);
    CHECK(!shmc_limits_allow(&limits, 24 * MIB + 1));
    CHECK_EQUAL(2, limits.refused);
    CHECK_EQUAL(24 * MIB + 1, limits.asked);
    CHECK_EQUAL(28 * MIB + 1, limits.needed);
    CHECK_EQUAL(128 * MIB, limits.limit);
    CHECK_EQUAL(100 * MIB, limits.used);
    CHECK(!shmc_limits_allow(&limits, UINT64_MAX));

    tell("inner/memory.max", "33554432\n"); /* less than already used */
    CHECK(!shmc_limits_allow(&limits, 1));
    CHECK_EQUAL(1, limits.refused);
    tell("inner/memory.max", "max\n");
    tell("outer/memory.max", "268435456\n"); /* LIMIT1 */
    CHECK(shmc_limits_allow(&limits, 152 * MIB));
    CHECK_EQUAL(0, limits.refused);
}

static void test_pages_of_files_are_no_use(void)
{
    struct shmc_limits limits = {.groups = lines("2inner", "1old")};

    tell("inner/memory.max", "67108864\n");
    tell("inner/memory.current", "66060288\n"); /* 63 of 64 MiB */
    tell("inner/memory.stat", "anon 5242880\nfile 60817408\nshmem 20971520\ninactive_anon 1\n"
                              "inactive_file 31457280\nactive_file 10485760\n");
    CHECK(shmc_limits_allow(&limits, 37 * MIB)); /* 1 + 30 + 10, and 4 stay free */
    CHECK(!shmc_limits_allow(&limits, 37 * MIB + 1));
    CHECK_EQUAL(23 * MIB, limits.used);
    tell("inner/memory.stat", "inactive_file 99999999999\n");
    CHECK(shmc_limits_allow(&limits, 60 * MIB));
    forget("inner/memory.stat");
    CHECK(!shmc_limits_allow(&limits, MIB));
    tell("inner/memory.max", "max\n");

    tell("old/memory.limit_in_bytes", "67108864\n"); /* version 1 counts children apart */
    tell("old/memory.usage_in_bytes", "66060288\n");
    tell("old/memory.stat", "inactive_file 4096\nactive_file 4096\ntotal_inactive_file 31457280\n"
                            "total_active_file 10485760\n");
    CHECK(shmc_limits_allow(&limits, 37 * MIB));
    CHECK(!shmc_limits_allow(&limits, 37 * MIB + 1));
    CHECK_EQUAL(2, limits.refused);
    tell("old/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(shmc_limits_allow(&limits, UINT64_C(1) << 40));
}

/* LIMIT3: also in a process without a descriptor left. */
static void test_unreadable_files_limit_nothing(void)
{
    static const char *const odd[] = {"", "\n", "max", "nonsense\n", "-1\n", " 5\n"};
    char path[2 * PATH_MAX];
    struct shmc_limits limits = {.groups = lines("2inner", "2nowhere")};
    struct rlimit before, none;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        tell("inner/memory.max", odd[i]);
        CHECK(shmc_limits_allow(&limits, 1024 * MIB));
    }
    tell("inner/memory.max", "1048576\n");
    CHECK(!shmc_limits_allow(&limits, MIB));
    CHECK_EQUAL(0, getrlimit(RLIMIT_NOFILE, &before));
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    CHECK_EQUAL(0, setrlimit(RLIMIT_NOFILE, &none));
    CHECK(shmc_limits_allow(&limits, MIB));
    CHECK_EQUAL(0, setrlimit(RLIMIT_NOFILE, &before));

    memset(path, 'x', sizeof path);
    memcpy(path, "2/", 2);
    memcpy(path + sizeof path - 2, "\n", 2);
    limits.groups = path; /* longer than a path can be */
    CHECK(shmc_limits_allow(&limits, MIB));
    static const char *const empty[] = {"", "\n", "2", "2\n", "\n\n1"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        limits.groups = empty[i];
        CHECK(shmc_limits_allow(&limits, UINT64_MAX));
    }
}

static void test_a_segment_asks_before_it_grows(void)
{
    struct shmc_limits limits = {.groups = lines("2inner", "2outer")};
    struct shmc_segment segment;
    const int fd = memfd_create("segment", MFD_CLOEXEC);

    tell("inner/memory.max", "16777216\n");
    tell("inner/memory.current", "8388608\n");
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, 64 * MIB, 1, &segment));
    segment.limits = &limits;
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 7 * MIB)); /* and 1 MiB stays free */
    errno = 0;
    CHECK_EQUAL(SHMC_NO_SPACE, shmc_segment_extend(&segment, 15 * MIB));
    CHECK_EQUAL(ENOMEM, errno);
    CHECK_EQUAL(8 * MIB, limits.asked); /* existing memory costs nothing more */
    CHECK_EQUAL(7 * MIB, segment.file_size);
    CHECK_EQUAL(7 * MIB, shmc_segment_bytes(&segment));
    tell("inner/memory.current", "4096\n");
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, 15 * MIB));
    shmc_segment_unmap(&segment);
    close(fd);
}

int main(void)
{
    test_start("test_limits");
    CHECK(mkdtemp(root) != NULL);
    make_group("inner");
    make_group("outer");
    make_group("old");
    test_the_limit_of_each_group_counts();
    test_pages_of_files_are_no_use();
    test_unreadable_files_limit_nothing();
    test_a_segment_asks_before_it_grows();
    static const char *const made[] = {
        "inner/memory.max",         "inner/memory.current", "inner",
        "outer/memory.max",         "outer/memory.current", "outer",
        "old/memory.limit_in_bytes", "old/memory.usage_in_bytes", "old/memory.stat", "old"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        forget(made[i]);
    CHECK_EQUAL(0, remove(root));
    return 0;
}
