/*
 * owned.c - descriptors that have an owner from the moment they are opened.
 *
 * A handler of a signal may raise between any two instructions of Python, so a descriptor that is
 * only a result can be lost before it is stored. Here the call stores it where its owner is.
 *
 *   OWNED1  Whatever a call opens (a descriptor, a map, a seat) is in its owner when the call
 *           returns, and the owner gives it back when it goes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core.h"

enum shmc_status shmc_owned_open(const char *path, int writable, int *fd)
{
    const int access = writable ? O_RDWR : O_RDONLY;

    if (*fd >= 0)
        return SHMC_INVALID;
    do { /* a planted FIFO must not hang us, a link not lead us elsewhere */
        *fd = open(path, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    } while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? SHMC_OK : SHMC_SYSTEM;
}

/*
 * Waiting for a name to appear in a directory, where there is nothing else to sleep on yet. If the
 * system refuses an inotify (their number per user is limited), the caller polls instead.
 */
enum shmc_status shmc_owned_notice(const char *directory, int *fd)
{
    if (*fd >= 0)
        return SHMC_INVALID;
    *fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (*fd < 0)
        return SHMC_SYSTEM;
    if (inotify_add_watch(*fd, directory, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR) >= 0)
        return SHMC_OK;
    const int error = errno;
    shmc_owned_close(fd);
    errno = error;
    return SHMC_SYSTEM;
}

void shmc_owned_close(int *fd)
{
    const int held = *fd;

    *fd = -1;
    if (held >= 0)
        close(held);
}
