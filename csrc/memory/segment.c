/*
 * segment.c - a file as memory, and locks on its bytes. The only mmap of segments.
 *
 * A segment is mapped once, over its maximal size; the file grows under the map. The range
 * between the file's end and the map's end is address space only: touching it is SIGBUS. Readers
 * and writers therefore stay below file_size, and file_size rises only after posix_fallocate()
 * has allocated memory for the bytes: a full /dev/shm is an error here and never a signal later.
 * (A part may be skipped, which is not touched before it is filled.) The limits of cgroups are
 * checked first (limits.c): beyond them the kernel gives no error, it kills.
 *
 * Locks belong to the open file description (F_OFD_*), not to the process: the kernel
 * drops them when the last descriptor of the description is closed, however the
 * process ends and whatever pid namespace it lived in.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

#define EXTEND_STEP (UINT64_C(4) << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; headers may be older */
#endif

static enum shmc_status file_bytes(int fd, uint64_t *size)
{
    struct stat file;

    if (fstat(fd, &file) != 0)
        return SHMC_SYSTEM;
    if (!S_ISREG(file.st_mode) || file.st_size < 0)
        return SHMC_INVALID;
    *size = (uint64_t)file.st_size;
    return SHMC_OK;
}

/*
 * The map, placed so that a large page of the file can be one of the address space. The reservation
 * is one page larger than needed; the unused part is returned.
 */
static uint8_t *map_aligned(int fd, size_t size, int protection)
{
    const size_t more = size >= SHMC_HUGE ? SHMC_HUGE : 0;
    uint8_t *space =
        mmap(NULL, size + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (space == MAP_FAILED)
        return NULL;
    const size_t before = more == 0 ? 0 : (SHMC_HUGE - (uintptr_t)space % SHMC_HUGE) % SHMC_HUGE;
    uint8_t *base = mmap(space + before, size, protection,
                         MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        const int error = errno;
        munmap(space, size + more);
        errno = error;
        return NULL;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t end = (size + page - 1) / page * page; /* of the mapped part */
    if (before > 0)
        munmap(space, before);
    if (before + end < size + more)
        munmap(base + end, size + more - before - end);
    return base;
}

enum shmc_status shmc_segment_map(int fd, uint64_t max_size, int writable,
                                  struct shmc_segment *segment)
{
    const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    uint64_t size = 0;

    if (max_size == 0 || max_size > INT64_MAX)
        return SHMC_INVALID;
    const enum shmc_status status = file_bytes(fd, &size);
    if (status != SHMC_OK)
        return status;
    uint8_t *base = map_aligned(fd, (size_t)max_size, protection);
    if (base == NULL)
        return SHMC_SYSTEM;
    segment->base = base;
    segment->max_size = max_size;
    segment->file_size = size < max_size ? size : max_size;
    segment->fd = fd;
    segment->writable = writable != 0;
    segment->limits = NULL;
    return SHMC_OK;
}

/*
 * Allocates memory for [from, to). In steps: a call that a signal interrupts gives back all it had,
 * so that one long call would never end under a profiler's timer.
 */
static int allocate(int fd, uint64_t from, uint64_t to)
{
    int error = 0;

    while (from < to && error == 0) {
        const uint64_t step = to - from < EXTEND_STEP ? to - from : EXTEND_STEP;
        do {
            error = posix_fallocate(fd, (off_t)from, (off_t)step);
        } while (error == EINTR);
        from += step;
    }
    return error;
}

/*
 * Requests one large page instead of the small ones, wherever [from, to) completes one: a walk
 * through the arena misses the TLB more than the cache, in every process that maps it. The memory
 * is already allocated, so this takes no more of it for long. A kernel or a file system that cannot
 * do it leaves the small pages: only speed depends on it.
 *
 * Each is touched first. A tmpfs mounted with huge= may have allocated it as one page, not cleared
 * yet; the kernel (seen: 6.18) then maps it as it is, and clears it at the next fault in any
 * process, with all data that was written until then.
 */
static void collapse(const struct shmc_segment *segment, uint64_t from, uint64_t to)
{
    const uint64_t first = from / SHMC_HUGE * SHMC_HUGE, end = to / SHMC_HUGE * SHMC_HUGE;

    if (first >= end || (uintptr_t)segment->base % SHMC_HUGE != 0)
        return;
    for (uint64_t at = first; at < end; at += SHMC_HUGE)
        (void)*(const volatile uint8_t *)(segment->base + at);
    (void)madvise(segment->base + first, (size_t)(end - first), MADV_COLLAPSE);
}

enum shmc_status shmc_segment_extend(struct shmc_segment *segment, uint64_t size)
{
    if (size <= segment->file_size)
        return SHMC_OK;
    if (!segment->writable)
        return SHMC_INVALID;
    if (size > segment->max_size)
        return SHMC_FULL;
    if (segment->limits != NULL &&
        !shmc_limits_allow(segment->limits, size - segment->file_size)) {
        errno = ENOMEM;
        return SHMC_NO_SPACE;
    }
    const int error = allocate(segment->fd, segment->file_size, size);
    if (error != 0) {
        /* The bytes past file_size were never announced: give them back. */
        (void)!ftruncate(segment->fd, (off_t)segment->file_size);
        errno = error;
        return error == ENOSPC ? SHMC_NO_SPACE : SHMC_SYSTEM;
    }
    collapse(segment, segment->file_size, size);
    segment->file_size = size;
    return SHMC_OK;
}

enum shmc_status shmc_segment_skip(struct shmc_segment *segment, uint64_t size)
{
    const uint64_t end = size / SHMC_HUGE * SHMC_HUGE;

    if (end <= segment->file_size || segment->fd < 0)
        return SHMC_OK;
    if (ftruncate(segment->fd, (off_t)end) != 0)
        return SHMC_SYSTEM;
    segment->file_size = end;
    return SHMC_OK;
}

enum shmc_status shmc_segment_fill(const struct shmc_segment *segment, uint64_t from, uint64_t to)
{
    if (segment->fd < 0)
        return SHMC_OK; /* not a file: memory lent by a test */
    if (!segment->writable || to > segment->file_size)
        return SHMC_INVALID;
    if (segment->limits != NULL && !shmc_limits_allow(segment->limits, to - from)) {
        errno = ENOMEM;
        return SHMC_NO_SPACE;
    }
    const int error = allocate(segment->fd, from, to);
    if (error != 0) {
        errno = error;
        return error == ENOSPC ? SHMC_NO_SPACE : SHMC_SYSTEM;
    }
    collapse(segment, from, to);
    return SHMC_OK;
}

void shmc_segment_empty(const struct shmc_segment *segment, uint64_t from, uint64_t to)
{
    if (segment->fd >= 0 && from < to)
        (void)!fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                         (off_t)(to - from));
}

bool shmc_file_lengthen(int fd, uint64_t size)
{
    struct stat file;

    return fstat(fd, &file) == 0 && (uint64_t)file.st_size < size &&
           ftruncate(fd, (off_t)size) == 0;
}

void shmc_file_shorten(int fd, uint64_t size)
{
    struct stat file;

    if (fstat(fd, &file) == 0 && (uint64_t)file.st_size > size)
        (void)!ftruncate(fd, (off_t)size);
}

bool shmc_page_replace(uint8_t *base, uint64_t offset)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *at = base + offset / page * page;

    return mmap(at, (size_t)page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

static bool map_at(uint8_t *base, uint64_t size, int fd)
{
    return mmap(base, (size_t)size, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == base;
}

enum shmc_status shmc_segment_remap(const struct shmc_segment *segment)
{
    const int error = posix_fallocate(segment->fd, 0, (off_t)segment->max_size);

    if (error != 0)
        return error == ENOSPC ? SHMC_NO_SPACE : SHMC_SYSTEM;
    return shmc_segment_show(segment);
}

enum shmc_status shmc_segment_show(const struct shmc_segment *segment)
{
    return map_at(segment->base, segment->max_size, segment->fd) ? SHMC_OK : SHMC_SYSTEM;
}

enum shmc_status shmc_segment_swap(struct shmc_segment *a, struct shmc_segment *b)
{
    const struct shmc_segment was = *a;

    if (a->fd < 0 || b->fd < 0 || a->max_size != b->max_size || !a->writable || !b->writable)
        return SHMC_INVALID;
    if (!map_at(a->base, a->max_size, b->fd))
        return SHMC_SYSTEM;
    if (!map_at(b->base, b->max_size, a->fd)) {
        const int error = errno;
        (void)map_at(a->base, a->max_size, a->fd);
        errno = error;
        return SHMC_SYSTEM;
    }
    a->fd = b->fd;
    a->file_size = b->file_size;
    b->fd = was.fd;
    b->file_size = was.file_size;
    return SHMC_OK;
}

void shmc_segment_unmap(struct shmc_segment *segment)
{
    if (segment->base != NULL)
        munmap(segment->base, (size_t)segment->max_size);
    segment->base = NULL;
    segment->max_size = 0;
    segment->file_size = 0;
    segment->fd = -1;
}

uint64_t shmc_segment_bytes(const struct shmc_segment *segment)
{
    uint64_t size = 0;

    if (segment->fd < 0)
        return segment->file_size; /* not a file: memory lent by a test */
    return file_bytes(segment->fd, &size) == SHMC_OK ? size : 0;
}

/* One OFD operation on one byte; *type is the requested lock, then what F_OFD_GETLK found. */
static enum shmc_status lock_operation(int fd, int command, uint64_t byte, short *type)
{
    struct flock range;
    int result;

    if (byte > INT64_MAX - 1)
        return SHMC_INVALID;
    memset(&range, 0, sizeof range); /* l_pid must be 0 */
    range.l_type = *type;
    range.l_whence = SEEK_SET;
    range.l_start = (off_t)byte;
    range.l_len = 1;
    do {
        result = fcntl(fd, command, &range);
    } while (result != 0 && errno == EINTR);
    if (result != 0)
        return errno == EAGAIN || errno == EACCES ? SHMC_BUSY : SHMC_SYSTEM;
    *type = range.l_type;
    return SHMC_OK;
}

enum shmc_status shmc_lock_byte(int fd, uint64_t byte)
{
    short type = F_WRLCK;

    return lock_operation(fd, F_OFD_SETLK, byte, &type);
}

enum shmc_status shmc_unlock_byte(int fd, uint64_t byte)
{
    short type = F_UNLCK;

    return lock_operation(fd, F_OFD_SETLK, byte, &type);
}

enum shmc_status shmc_probe_byte(int fd, uint64_t byte)
{
    short type = F_WRLCK;
    const enum shmc_status status = lock_operation(fd, F_OFD_GETLK, byte, &type);

    if (status != SHMC_OK)
        return status;
    return type == F_UNLCK ? SHMC_OK : SHMC_BUSY;
}
