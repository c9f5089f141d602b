/*
 * limits.c - the memory that cgroups leave to this process.
 *
 * Pages of a tmpfs are charged to the cgroup of the process that touches them first: DATA to its
 * writer's. Beyond the limit of a cgroup there is no error, the kernel kills a process. So the
 * limit is checked before memory is requested, and the request refused while that is still
 * possible.
 *
 *   LIMIT1  Nothing is remembered between two checks: a limit that was raised, or memory that
 *       was given back, counts from the next check on.
 *   LIMIT2  Memory that the kernel reclaims by itself before it kills does not count as used: pages
 *       of files (but not those of a tmpfs). Swap does not count as room: a cache that is paged
 *       out is useless.
 *   LIMIT3  A file that does not exist, or cannot be read, limits nothing. The top of a hierarchy
 *       has no such file; without a descriptor for it the limit is unknown, and the caller may
 *       grow.
 *   LIMIT4  Besides the requested memory a margin stays free, for the writer's own tables, and for
 *       others that grow between check and use: a sixteenth of the limit, at most 4 MiB.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "core.h"

#define MARGIN_MAX (UINT64_C(4) << 20)
#define NO_LIMIT (UINT64_C(1) << 62) /* version 1 writes it as a number near 2^63 */
#define STAT_SIZE 8192u
#define NAME_MAX_LENGTH 32u

struct names {
    const char *limit, *used, *inactive, *active;
};

/* Names by version of the hierarchy; memory.stat of version 1 is per group without "total_". */
static const struct names names_of[] = {
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_inactive_file ",
     "\ntotal_active_file "},
    {"memory.max", "memory.current", "\ninactive_file ", "\nactive_file "},
};

/* Reads the file `name` of a group into `text`; false if that fails. */
static bool read_text(const char *group, size_t length, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    size_t end = 0;
    ssize_t got;

    if (length + NAME_MAX_LENGTH + 2 > sizeof path)
        return false;
    memcpy(path, group, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (end < size - 1) {
        got = read(fd, text + end, size - 1 - end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        end += (size_t)got;
    }
    close(fd);
    text[end] = '\0';
    return end > 0;
}

/* The number at the start of a text; NO_LIMIT for "max", and for anything but a number. Not by
 * strtoull(): compiled with glibc 2.38 or newer, it needs that at run time, too. */
static uint64_t number_of(const char *text)
{
    uint64_t number = 0;

    if (*text < '0' || *text > '9')
        return NO_LIMIT;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (number >= NO_LIMIT / 10)
            return NO_LIMIT;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    return number;
}

static uint64_t number_behind(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    const uint64_t number = at == NULL ? 0 : number_of(at + strlen(name));

    return number == NO_LIMIT ? 0 : number;
}

/* The memory that the kernel can reclaim from a group before it kills (LIMIT2). */
static uint64_t reclaimable(const char *group, size_t length, const struct names *names)
{
    char text[STAT_SIZE];

    text[0] = '\n';
    if (!read_text(group, length, "memory.stat", text + 1, sizeof text - 1))
        return 0;
    return number_behind(text, names->inactive) + number_behind(text, names->active);
}

/* Whether a group leaves us `wanted` more; else `limits` gets the figures. */
static bool group_allows(const char *group, size_t length, const struct names *names,
                         uint64_t wanted, struct shmc_limits *limits)
{
    char text[64];

    if (!read_text(group, length, names->limit, text, sizeof text))
        return true;
    const uint64_t limit = number_of(text);
    if (limit == NO_LIMIT || !read_text(group, length, names->used, text, sizeof text))
        return true;
    uint64_t used = number_of(text);
    const uint64_t margin = limit / 16 < MARGIN_MAX ? limit / 16 : MARGIN_MAX; /* LIMIT4 */
    if (used == NO_LIMIT || (used < limit && limit - used >= wanted + margin))
        return true;
    const uint64_t back = reclaimable(group, length, names);
    used -= back < used ? back : used;
    if (used < limit && limit - used >= wanted + margin)
        return true;
    limits->asked = wanted;
    limits->needed = wanted + margin;
    limits->limit = limit;
    limits->used = used;
    return false;
}

bool shmc_limits_allow(struct shmc_limits *limits, uint64_t wanted)
{
    const char *line = limits->groups;

    limits->refused = 0;
    if (wanted > NO_LIMIT)
        wanted = NO_LIMIT;
    for (uint32_t number = 1; *line != '\0'; number++) {
        const size_t length = strcspn(line, "\n");
        if (length > 1 && !group_allows(line + 1, length - 1, &names_of[*line == '2'], wanted,
                                        limits)) {
            limits->refused = number;
            return false;
        }
        line += length + (line[length] == '\n');
    }
    return true;
}
