/*
 * process.c - what must happen at fork.
 *
 * The only file with process-wide state, because fork() is a fact about the process:
 * a handle cannot tell from its own memory that it was copied into a child.
 *
 *   fork word    A page that the kernel wipes in every child (MADV_WIPEONFORK), whoever
 *                forked and how. It holds 1 here; a handle keeps a pointer to it, and
 *                reads 0 in the child. A child that makes handles of its own gets a new
 *                page, while the parent's handles go on pointing to the wiped one.
 *   descriptors  A lock belongs to the open file description, which fork shares. The
 *                child closes its copies at once, or it would keep its parent's seat
 *                and writer's lock alive. It never unlocks: that would drop the lock
 *                for the parent too.
 *
 *   parent       What serves a parent ends with it, whatever ends the parent: the kernel
 *                sends the signal when the thread that forked is gone.
 *
 * There is no mutex here, so a fork at any moment finds consistent state: words change
 * by one exchange each. The child's handler runs between fork() and the first line of
 * the child, and does nothing but loads, stores and close().
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core.h"

#define DESCRIPTORS 256u
#define WORD_PAGE 4096u

static _Atomic(uint64_t *) current_word;
static _Atomic(int) descriptors[DESCRIPTORS]; /* descriptor + 1; 0 = free */
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static int handler_error;

static void forget_parent(void)
{
    const int error = errno;
    uint64_t *word = atomic_load(&current_word);

    if (word != NULL && *word != 0) /* the kernel refused to wipe: see make_word() */
        *word = 0;
    for (unsigned i = 0; i < DESCRIPTORS; i++) {
        const int entry = atomic_exchange(&descriptors[i], 0);
        if (entry != 0)
            close(entry - 1);
    }
    errno = error;
}

static void register_handler(void)
{
    handler_error = pthread_atfork(NULL, NULL, forget_parent);
}

static bool handler_registered(void)
{
    pthread_once(&handler_once, register_handler);
    return handler_error == 0;
}

/*
 * Where the kernel cannot wipe, forget_parent() does: that covers fork(), and misses
 * only a bare clone().
 */
static uint64_t *make_word(void)
{
    void *page = mmap(NULL, WORD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, WORD_PAGE, MADV_WIPEONFORK) != 0 && !handler_registered()) {
        munmap(page, WORD_PAGE);
        return NULL;
    }
    uint64_t *word = page;
    *word = 1;
    return word;
}

const uint64_t *shmc_fork_word(void)
{
    uint64_t *word = atomic_load(&current_word);

    (void)handler_registered();
    if (word != NULL && *word != 0)
        return word;
    uint64_t *made = make_word();
    if (made == NULL)
        return NULL;
    if (atomic_compare_exchange_strong(&current_word, &word, made))
        return made;
    munmap(made, WORD_PAGE); /* another thread was first; word is its page now */
    return word;
}

enum shmc_status shmc_close_in_child(int fd)
{
    if (fd < 0)
        return SHMC_INVALID;
    if (!handler_registered())
        return SHMC_NO_MEMORY;
    for (unsigned i = 0; i < DESCRIPTORS; i++) {
        int expected = 0;
        if (atomic_compare_exchange_strong(&descriptors[i], &expected, fd + 1))
            return SHMC_OK;
    }
    return SHMC_LIMIT;
}

void shmc_keep_in_child(int fd)
{
    for (unsigned i = 0; i < DESCRIPTORS; i++) {
        int expected = fd + 1;
        if (fd >= 0 && atomic_compare_exchange_strong(&descriptors[i], &expected, 0))
            return;
    }
}

enum shmc_status shmc_die_with_parent(int parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return SHMC_SYSTEM;
    return getppid() == parent ? SHMC_OK : SHMC_CLOSED;
}
