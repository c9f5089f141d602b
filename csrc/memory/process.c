/*
 * process.c - actions at fork, and when a file is truncated under its map.
 *
 * The only file with process-wide state, because fork() and signals are facts about the
 * process: a handle cannot tell from its own memory that it was copied into a child.
 *
 *   fork word    A page that the kernel wipes in every child (MADV_WIPEONFORK), whatever code
 *                forked and how. It holds 1 here; a handle keeps a pointer to it, and
 *                reads 0 in the child. A child that makes handles of its own gets a new
 *                page, while the parent's handles still point to the wiped one.
 *   descriptors  A lock belongs to the open file description, which fork shares. The
 *                child closes its copies at once, or it would keep its parent's seat
 *                and writer's lock alive. It never unlocks: that would drop the lock
 *                for the parent too.
 *
 *   parent       A helper process ends with its parent, whatever ends the parent: the kernel
 *                sends the signal when the thread that forked is gone.
 *
 *   guard        Any process that may write SEATS, a queue or a board may also truncate it, and the
 *                next access by another process is SIGBUS. The handler makes the file long again
 *                and returns: the access is retried and finds zeros. Where there is no memory for
 *                that, a private page replaces it. So the access itself costs nothing,
 *                whichever thread makes it. A fault anywhere else goes to the previous handler of
 *                SIGBUS. A handler that is installed later and does not pass signals on disables
 *                the guard.
 *
 * There is no mutex here, so a fork at any moment finds consistent state: words change
 * by one exchange each. The child's handler runs between fork() and the first line of
 * the child, and does only loads, stores and close().
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

#define GUARDED 256u

static struct guarded {
    _Atomic(uint8_t *) base; /* NULL = free; TAKEN = being filled */
    _Atomic uint64_t size;
    _Atomic int fd; /* -1: closed, in a child */
    atomic_bool mended, replaced;
} guarded[GUARDED];
static uint8_t taken; /* its address: never the base of a map */

static _Atomic(uint64_t *) current_word;
static _Atomic(int) descriptors[DESCRIPTORS]; /* descriptor + 1; 0 = free */
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static int handler_error;

/* Its number may be another file's soon, which a fault in our parent's map must not lengthen. */
static void close_inherited(int fd)
{
    for (unsigned i = 0; i < GUARDED; i++) {
        int expected = fd;
        atomic_compare_exchange_strong(&guarded[i].fd, &expected, -1);
    }
    close(fd);
}

static void forget_parent(void)
{
    const int error = errno;
    uint64_t *word = atomic_load(&current_word);

    if (word != NULL && *word != 0) /* the kernel refused to wipe: see make_word() */
        *word = 0;
    for (unsigned i = 0; i < DESCRIPTORS; i++) {
        const int entry = atomic_exchange(&descriptors[i], 0);
        if (entry != 0)
            close_inherited(entry - 1);
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
    munmap(made, WORD_PAGE); /* another thread was first; word is now its page */
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

/* ---- the guard -------------------------------------------------------------------------------- */

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static int guard_error;
static struct sigaction before_us;
static atomic_bool passed_on; /* once: then the default action ends the process */

static bool mend(uint8_t *address)
{
    for (unsigned i = 0; i < GUARDED; i++) {
        uint8_t *base = atomic_load(&guarded[i].base);
        const uint64_t size = atomic_load(&guarded[i].size);

        if (base == NULL || base == &taken || address < base || address >= base + size)
            continue;
        if (shmc_file_lengthen(atomic_load(&guarded[i].fd), size)) {
            atomic_store(&guarded[i].mended, true);
            return true;
        }
        atomic_store(&guarded[i].replaced, true); /* long enough, or it cannot be lengthened */
        return shmc_page_replace(base, (uint64_t)(address - base));
    }
    return false;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    const bool again = atomic_exchange(&passed_on, true);
    const bool theirs = !again && before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN;

    if (theirs && (before_us.sa_flags & SA_SIGINFO) != 0) {
        before_us.sa_sigaction(number, info, context);
    } else if (theirs) {
        before_us.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        if (info->si_code <= 0) /* sent by a process: the access will not be retried */
            raise(number);
        return;
    }
    atomic_store(&passed_on, false);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const bool mended = info->si_code > 0 && mend(info->si_addr);

    errno = error;
    if (!mended)
        pass_on(number, info, context);
}

static void install_guard(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    sigemptyset(&ours.sa_mask);
    guard_error = sigaction(SIGBUS, &ours, &before_us);
}

enum shmc_status shmc_guard(const struct shmc_segment *segment)
{
    if (segment->fd < 0)
        return SHMC_OK; /* not a file: memory lent by a test */
    pthread_once(&guard_once, install_guard);
    if (guard_error != 0)
        return SHMC_SYSTEM;
    for (unsigned i = 0; i < GUARDED; i++) {
        uint8_t *expected = NULL;
        if (!atomic_compare_exchange_strong(&guarded[i].base, &expected, &taken))
            continue;
        atomic_store(&guarded[i].size, segment->max_size);
        atomic_store(&guarded[i].fd, segment->fd);
        atomic_store(&guarded[i].mended, false);
        atomic_store(&guarded[i].replaced, false);
        atomic_store(&guarded[i].base, segment->base);
        return SHMC_OK;
    }
    return SHMC_LIMIT;
}

static struct guarded *guard_of(const struct shmc_segment *segment)
{
    for (unsigned i = 0; i < GUARDED; i++) {
        if (segment->base != NULL && atomic_load(&guarded[i].base) == segment->base)
            return &guarded[i];
    }
    return NULL;
}

void shmc_unguard(const struct shmc_segment *segment)
{
    struct guarded *found = guard_of(segment);

    if (found != NULL)
        atomic_store(&found->base, NULL);
}

bool shmc_guard_mended(const struct shmc_segment *segment)
{
    struct guarded *found = guard_of(segment);

    return found != NULL && atomic_exchange(&found->mended, false);
}

bool shmc_guard_replaced(const struct shmc_segment *segment)
{
    struct guarded *found = guard_of(segment);

    return found != NULL && atomic_exchange(&found->replaced, false);
}
