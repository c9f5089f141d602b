/*
 * Preloaded: the wall clock of a process is off by as many seconds as in the file CLOCK_SHIFT (an
 * int64, mapped: a process that writes there moves the clock of a running one). No other clock is.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t shift(void)
{
    static const volatile int64_t *seconds;

    if (seconds == NULL) {
        const char *path = getenv("CLOCK_SHIFT");
        const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        void *map = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            abort();
        close(fd);
        seconds = map;
    }
    return *seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec exact;

    clock_gettime(CLOCK_REALTIME, &exact);
    if (where != NULL)
        *where = exact.tv_sec;
    return exact.tv_sec;
}
