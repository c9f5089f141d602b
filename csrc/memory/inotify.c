/*
 * inotify.c - waiting for a name to appear in a directory, where there is nothing else to sleep
 * on yet. Uses inotify; if the system refuses one (their number per user is limited), the caller
 * polls from time to time instead.
 */
#include <errno.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core.h"

int shmc_notice_open(const char *directory)
{
    const int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    if (fd < 0)
        return -1;
    if (inotify_add_watch(fd, directory, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) >= 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}
