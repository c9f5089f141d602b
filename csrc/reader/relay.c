/*
 * relay.c - a thread that sleeps for an event loop: it writes an eventfd on each publication that
 * matches, so that the loop can watch it like any other descriptor.
 *
 * A plain thread of the core, without Python: it needs no interpreter lock, no loop and no
 * patched module to sleep, and takes no signals from the thread that handles them.
 *
 * Invariants
 *   RELAY1  the thread uses the reader until it has been joined, by shmc_relay_stop() or, where that
 *       was interrupted or never came, by the end of the reader. The caller keeps fd until then.
 *       A second stop finds nothing.
 *   RELAY2  it ends when it is stopped, or after reporting that the instance is over (wake.c
 *       reports that for ever); both by the last write to fd.
 *   RELAY3  stopping wakes only this thread for good: other threads sleep on (WAKE1, WAKE4).
 *
 * A child of fork() does not have the thread, and another thread of the parent may have held the
 * reader's lock: shmc_relay_stop() only frees memory there.
 */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "core.h"

struct shmc_relay {
    struct shmc_reader *reader; /* NULL: it has ended, and has joined the thread */
    const uint64_t *fork_word;  /* the reader's */
    struct shmc_relay *next;
    struct shmc_wanted wanted;
    uint64_t seen, wakes;
    shmc_atomic stop;
    pthread_t thread;
    int fd;
};

static bool forked(const struct shmc_relay *relay)
{
    return relay->fork_word != NULL && *(const volatile uint64_t *)relay->fork_word == 0;
}

static void tell(const struct shmc_relay *relay)
{
    const uint64_t one = 1;

    /* If it is full it is readable anyhow. */
    if (write(relay->fd, &one, sizeof one) < 0)
        return;
}

static void *relay_run(void *argument)
{
    struct shmc_relay *relay = argument;
    enum shmc_status status = SHMC_OK;

    while (status != SHMC_OVER && status != SHMC_SYSTEM && shmc_load_racy(&relay->stop) == 0) {
        status = shmc_wait_wanted(relay->reader, &relay->wanted, relay->seen, relay->wakes, -1);
        /* Later publications ring again; earlier ones are reported now. */
        relay->wakes = shmc_reader_wakes(relay->reader);
        relay->seen = shmc_reader_latest(relay->reader);
        tell(relay);
    }
    return NULL;
}

enum shmc_status shmc_relay_start(struct shmc_reader *reader, uint64_t interest, uint64_t progress,
                                  uint64_t seen, uint64_t wakes, int fd, struct shmc_relay **made)
{
    struct shmc_heap heap = {0};
    sigset_t all, before;

    if (shmc_reader_forked(reader))
        return SHMC_FORKED;
    struct shmc_relay *relay = shmc_heap_resize(&heap, NULL, 0, sizeof *relay);
    if (relay == NULL)
        return SHMC_NO_MEMORY;
    memset(relay, 0, sizeof *relay);
    relay->reader = reader;
    relay->fork_word = reader->fork_word;
    relay->wanted = (struct shmc_wanted){interest, progress, &relay->stop};
    relay->seen = seen;
    relay->wakes = wakes;
    relay->fd = fd;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&relay->thread, NULL, relay_run, relay);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        shmc_heap_resize(&heap, relay, sizeof *relay, 0);
        return SHMC_NO_MEMORY;
    }
    *made = relay;
    pthread_mutex_lock(&reader->lock);
    relay->next = reader->relays;
    reader->relays = relay;
    pthread_mutex_unlock(&reader->lock);
    return SHMC_OK;
}

static void join(struct shmc_relay *relay)
{
    shmc_store_release(&relay->stop, 1);
    shmc_fence_full(); /* as WAKE7 */
    shmc_post(&relay->reader->seat->semaphore);
    pthread_join(relay->thread, NULL);
    relay->reader = NULL;
}

static void unlist(const struct shmc_relay *relay)
{
    struct shmc_relay **link = &relay->reader->relays;

    pthread_mutex_lock(&relay->reader->lock);
    while (*link != relay)
        link = &(*link)->next;
    *link = relay->next;
    pthread_mutex_unlock(&relay->reader->lock);
}

/* Nobody else uses the reader any more: the list stays as it is meanwhile. */
void shmc_relays_end(struct shmc_reader *reader)
{
    while (reader->relays != NULL) {
        struct shmc_relay *relay = reader->relays;

        reader->relays = relay->next;
        join(relay);
    }
}

void shmc_relay_stop(struct shmc_relay **held)
{
    struct shmc_relay *relay = *held;
    struct shmc_heap heap = {.bytes = sizeof *relay};

    *held = NULL;
    if (relay == NULL)
        return;
    if (!forked(relay) && relay->reader != NULL) {
        unlist(relay);
        join(relay);
    }
    shmc_heap_resize(&heap, relay, sizeof *relay, 0);
}
