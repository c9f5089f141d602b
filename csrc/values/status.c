/*
 * status.c - a status as a sentence for people.
 */
#include "shmcache.h"

static const char *const texts[] = {
    [SHMC_OK] = "ok",
    [SHMC_EMPTY] = "nothing after the cursor",
    [SHMC_LAPPED] = "deltas were overwritten before they were taken",
    [SHMC_TIMEOUT] = "the time limit passed",
    [SHMC_INTERRUPTED] = "interrupted by a signal",
    [SHMC_NOT_FOUND] = "not found",
    [SHMC_STALE] = "the pinned generation was revoked",
    [SHMC_FULL] = "the cache's maximal size is reached",
    [SHMC_NO_SPACE] = "no memory for more of the shared memory segment",
    [SHMC_NO_MEMORY] = "out of memory",
    [SHMC_BUSY] = "held by another process",
    [SHMC_FENCED] = "another writer took over",
    [SHMC_CORRUPT] = "the shared memory segment is corrupt",
    [SHMC_VERSION] = "the segment is of another layout, build or boot",
    [SHMC_LIMIT] = "longer, deeper or more than the format holds",
    [SHMC_INVALID] = "invalid argument",
    [SHMC_FORKED] = "the handle belongs to the parent process",
    [SHMC_CLOSED] = "the handle is closed",
    [SHMC_SYSTEM] = "a system call failed",
    [SHMC_OVER] = "this instance has ended",
};

const char *shmc_status_text(enum shmc_status status)
{
    const unsigned index = (unsigned)status;

    if (index >= sizeof texts / sizeof texts[0] || texts[index] == NULL)
        return "unknown status";
    return texts[index];
}
