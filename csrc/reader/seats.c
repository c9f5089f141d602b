/*
 * seats.c - one seat per worker: which workers sleep, which generations are pinned, which died.
 *
 * A row of chairs. The holder of the kernel's lock on byte i sits on chair i; everything
 * written on the chair is a note for others. The owner writes its notes, the writer
 * reads them after each publication, and clears them away when it can take the lock,
 * because then the owner is dead.
 *
 * Invariants
 *   SEAT1  only the holder of byte i's lock changes seat i, except that the writer increments
 *       its semaphore.
 *   SEAT2  the incarnation of a seat differs between any two holders.
 *   SEAT3  the writer trusts nothing here: counts are its own, pins count only between floor
 *       and latest, any interest or semaphore costs at most one vain wake-up. It knows the number
 *       of seats and their instance by itself.
 *   SEAT4  the owner takes its lock through a description of its own; the writer tries it
 *       through another (two locks of one description never conflict).
 *   SEAT7  every process that reads SEATS has it guarded (process.c) before its first access: a
 *       file truncated in between becomes long again, and one that is too long is never mapped as
 *       is.
 *   SEAT8  one call tries a bounded number of locks, and none after its time is over: workers decide
 *       which seats look used, and a worker that holds very many locks on SEATS makes each try slow
 *       (the kernel keeps them in a list). The next call continues where it ended, so that every
 *       seat has its turn.
 *
 * Ordering
 *   SEAT5  pin, announcement before loading latest: full fence in shmc_pin() and
 *       shmc_wait() <-> the full fence between a publication and the scans here.
 *   SEAT6  reading through a pin before reuse: release in unpin and leave -> acquire fence at
 *       the end of shmc_seats_pins().
 *
 * Progress: the writer's scans are bounded by the number of seats, its tries by SEAT8; they wait for
 * nobody.
 */
#include <unistd.h>

#include "core.h"
#include "mutants.h"

static_assert(SHMC_SEATS_MAX == SHMC_MAX_SEATS, "the limit that callers know");

static struct shmc_seats_header *header_of(const struct shmc_segment *seats)
{
    return (struct shmc_seats_header *)(void *)seats->base;
}

struct shmc_seat *shmc_seat_at(const struct shmc_segment *seats, uint64_t index)
{
    return (struct shmc_seat *)(void *)(seats->base + SHMC_SEATS_OFFSET) + index;
}

uint64_t shmc_seats_size(uint64_t seat_count)
{
    return SHMC_SEATS_OFFSET + seat_count * sizeof(struct shmc_seat);
}

enum shmc_status shmc_seats_format(struct shmc_segment *seats, uint64_t seat_count,
                                   uint64_t instance)
{
    struct shmc_seats_header *header = header_of(seats);

    if (seat_count == 0 || seat_count > SHMC_MAX_SEATS || instance == 0 || !seats->writable ||
        shmc_seats_size(seat_count) > seats->file_size)
        return SHMC_INVALID;
    const enum shmc_status guarded = shmc_guard(seats); /* SEAT7: the file has a name already */
    if (guarded != SHMC_OK)
        return guarded;
    memset(seats->base, 0, (size_t)shmc_seats_size(seat_count));
    header->layout_version = SHMC_LAYOUT_VERSION;
    header->layout_signature = SHMC_LAYOUT_SIGNATURE;
    header->instance = instance;
    header->seat_count = seat_count;
    header->magic = SHMC_SEATS_MAGIC;
    for (uint64_t index = 0; index < seat_count; index++)
        shmc_store_racy(&shmc_seat_at(seats, index)->instance, instance);
    shmc_unguard(seats);
    return SHMC_OK;
}

/* Any worker may overwrite this at any time: each word is loaded once. */
static enum shmc_status check_header(const struct shmc_segment *seats, uint64_t *instance,
                                     uint64_t *seat_count)
{
    const uint64_t build = (uint64_t)SHMC_LAYOUT_SIGNATURE << 32 | SHMC_LAYOUT_VERSION;

    if (seats->file_size < SHMC_SEATS_OFFSET ||
        shmc_word_load(seats->base + offsetof(struct shmc_seats_header, magic)) !=
            SHMC_SEATS_MAGIC)
        return SHMC_CORRUPT;
    if (shmc_word_load(seats->base + offsetof(struct shmc_seats_header, layout_version)) != build)
        return SHMC_VERSION;
    *instance = shmc_word_load(seats->base + offsetof(struct shmc_seats_header, instance));
    *seat_count = shmc_word_load(seats->base + offsetof(struct shmc_seats_header, seat_count));
    if (*seat_count == 0 || *seat_count > SHMC_MAX_SEATS ||
        shmc_seats_size(*seat_count) > seats->file_size)
        return SHMC_CORRUPT;
    return SHMC_OK;
}

enum shmc_status shmc_seats_check_header(const struct shmc_segment *seats, uint64_t *instance)
{
    uint64_t found = 0, seat_count = 0;
    enum shmc_status status = SHMC_KEEP_NO_SEATS_GUARD ? shmc_guard(seats) : SHMC_OK; /* SEAT7 */

    if (status != SHMC_OK)
        return status;
    status = check_header(seats, &found, &seat_count);
    shmc_unguard(seats);
    if (status == SHMC_OK)
        *instance = found;
    return status;
}

uint64_t shmc_seats_count(const struct shmc_segment *seats)
{
    uint64_t instance = 0, seat_count = 0;

    return check_header(seats, &instance, &seat_count) == SHMC_OK ? seat_count : 0;
}

enum shmc_status shmc_seat_info(const struct shmc_segment *seats, uint64_t index,
                                struct shmc_seat_info *info)
{
    if (index >= shmc_seats_count(seats))
        return SHMC_INVALID;
    const struct shmc_seat *seat = shmc_seat_at(seats, index);
    memset(info, 0, sizeof *info);
    info->index = index;
    info->pid = shmc_load_racy(&seat->pid);
    info->incarnation = shmc_load_racy(&seat->incarnation);
    info->interest = shmc_load_racy(&seat->interest);
    info->cursor = shmc_load_racy(&seat->cursor);
    info->taken = shmc_load_racy(&seat->taken);
    info->lapped = shmc_load_racy(&seat->lapped);
    info->cut = shmc_load_racy(&seat->cut);
    info->busy = shmc_load_racy(&seat->busy);
    info->claimed_ns = shmc_load_racy(&seat->claimed_ns);
    info->asleep = (int)(shmc_load32_racy(&seat->semaphore) & 1u);
    info->in_use = shmc_load_racy(&seat->in_use) != 0;
    for (unsigned i = 0; i < SHMC_PINS; i++) {
        const uint64_t pin = shmc_load_racy(&seat->pins[i]) & ~SHMC_PIN_OPEN;
        if (pin == 0)
            continue;
        info->pins++;
        if (info->oldest_pin == 0 || pin < info->oldest_pin)
            info->oldest_pin = pin;
    }
    return SHMC_OK;
}

/* ---- the owner's side --------------------------------------------------------------------- */

static void clear_seat(struct shmc_seat *seat)
{
    for (unsigned i = 0; i < SHMC_PINS; i++)
        shmc_store_release(&seat->pins[i], 0); /* SEAT6 */
    shmc_store_racy(&seat->interest, 0);
    shmc_store_racy(&seat->progress, 0);
    shmc_store32_racy(&seat->semaphore, 0);
}

/* high only rises, and no further than the number of seats (SEAT3: it may be garbage). */
static void raise_high(struct shmc_seats_header *header, uint64_t index)
{
    uint64_t high = shmc_load_racy(&header->high);

    while (high <= index && !shmc_cas(&header->high, high, index + 1))
        high = shmc_load_racy(&header->high);
}

static void settle(struct shmc_reader *reader, struct shmc_seat *seat, uint64_t index)
{
    const uint64_t incarnation = shmc_load_racy(&seat->incarnation) + 1;

    clear_seat(seat);
    shmc_store_racy(&seat->incarnation, incarnation); /* SEAT2 */
    shmc_store_racy(&seat->pid, (uint64_t)getpid());
    shmc_store_racy(&seat->claimed_ns, shmc_monotonic_ns());
    shmc_store_racy(&seat->cursor, 0);
    shmc_store_racy(&seat->taken, 0);
    shmc_store_racy(&seat->lapped, 0);
    shmc_store_racy(&seat->cut, 0);
    shmc_store_racy(&seat->busy, 0);
    shmc_store_racy(&seat->in_use, 1);
    raise_high(reader->seats, index); /* before the first pin: SEAT5 covers both */
    reader->seat = seat;
    reader->seat_index = index;
    reader->incarnation = incarnation;
}

enum shmc_status shmc_seat_claim(struct shmc_reader *reader, const struct shmc_segment *seats)
{
    const uint64_t seat_count = shmc_seats_count(seats);

    if (seat_count == 0)
        return SHMC_CORRUPT;
    reader->seats = header_of(seats);
    for (uint64_t index = 0; index < seat_count; index++) {
        const enum shmc_status status = shmc_lock_byte(reader->seat_fd, index);
        if (status == SHMC_OK) {
            settle(reader, shmc_seat_at(seats, index), index);
            return SHMC_OK;
        }
        if (status != SHMC_BUSY)
            return status;
    }
    return SHMC_BUSY;
}

void shmc_seat_leave(struct shmc_reader *reader)
{
    assert(reader->seat != NULL && !shmc_reader_forked(reader));
    clear_seat(reader->seat);
    shmc_store_racy(&reader->seat->in_use, 0);
    (void)shmc_unlock_byte(reader->seat_fd, reader->seat_index); /* or the close() does it */
    reader->seat = NULL;
}

/* ---- the writer's side ---------------------------------------------------------------------- */

static uint64_t high_seats(const struct shmc_segment *seats, uint64_t seat_count)
{
    const uint64_t high = shmc_load_racy(&header_of(seats)->high);

    return high < seat_count ? high : seat_count;
}

uint64_t shmc_seats_wake(const struct shmc_segment *seats, uint64_t seat_count, uint64_t interest,
                         uint64_t progress)
{
    const uint64_t high = high_seats(seats, seat_count);
    struct shmc_seat *seat = shmc_seat_at(seats, 0);
    uint64_t woken = 0;

    for (struct shmc_seat *end = seat + high; seat < end; seat++) { /* SEAT5: after the fence */
        if ((shmc_load32_racy(&seat->semaphore) & 1u) == 0 ||
            ((shmc_load_racy(&seat->interest) & interest) |
             (shmc_load_racy(&seat->progress) & progress)) == 0)
            continue;
        shmc_post(&seat->semaphore);
        woken++;
    }
    return woken;
}

void shmc_seats_wake_all(const struct shmc_segment *seats, uint64_t seat_count)
{
    const uint64_t high = high_seats(seats, seat_count);

    for (uint64_t index = 0; index < high; index++)
        shmc_post(&shmc_seat_at(seats, index)->semaphore);
}

void shmc_pin_list_add(struct shmc_pin_list *list, uint64_t pin)
{
    size_t low = 0, high = list->count;

    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (list->pins[middle] < pin)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < list->count && list->pins[low] == pin)
        return;
    if (list->count == SHMC_PIN_LIST) {
        if (low == SHMC_PIN_LIST)
            return;
        list->count--;
    }
    memmove(&list->pins[low + 1], &list->pins[low], (list->count - low) * sizeof list->pins[0]);
    list->pins[low] = pin;
    list->count++;
}

/* Whether a pin would not change the list: true of most words if something fills all seats. */
static bool is_beyond(const struct shmc_pin_list *list, uint64_t word, uint64_t pin)
{
    return list->count == SHMC_PIN_LIST && pin >= list->pins[SHMC_PIN_LIST - 1] &&
           (word == pin || pin >= list->open);
}

void shmc_seats_pins(const struct shmc_segment *seats, uint64_t seat_count,
                     const struct shmc_super *super, struct shmc_pin_list *list)
{
    const uint64_t high = high_seats(seats, seat_count);
    const uint64_t latest = shmc_load_racy(&super->latest);

    list->count = 0;
    list->open = UINT64_MAX;
    for (uint64_t index = 0; index < high; index++) {
        const struct shmc_seat *seat = shmc_seat_at(seats, index);
        for (unsigned i = 0; i < SHMC_PINS; i++) {
            /* in ascending order: a pin moves upwards only (PIN8 of reader.c) */
            const uint64_t word = shmc_load_acquire(&seat->pins[i]);
            const uint64_t pin = word & ~SHMC_PIN_OPEN;
            if (pin == 0 || is_beyond(list, word, pin) || pin > latest || !shmc_valid(super, pin)) /* SEAT3 */
                continue;
            shmc_pin_list_add(list, pin);
            if (word != pin && pin < list->open)
                list->open = pin;
        }
    }
    shmc_fence_acquire(); /* SEAT6 */
}

static bool looks_used(const struct shmc_seat *seat);

/* A header as at creation; `high` covers every seat, since the real value is lost. */
static void write_header(const struct shmc_segment *seats, uint64_t seat_count, uint64_t instance)
{
    const uint64_t build = (uint64_t)SHMC_LAYOUT_SIGNATURE << 32 | SHMC_LAYOUT_VERSION;

    shmc_word_store(seats->base + offsetof(struct shmc_seats_header, layout_version), build);
    shmc_word_store(seats->base + offsetof(struct shmc_seats_header, instance), instance);
    shmc_word_store(seats->base + offsetof(struct shmc_seats_header, seat_count), seat_count);
    shmc_store_racy(&header_of(seats)->high, seat_count);
    shmc_word_store(seats->base + offsetof(struct shmc_seats_header, magic), SHMC_SEATS_MAGIC);
}

bool shmc_seats_mend(const struct shmc_segment *seats, uint64_t seat_count, uint64_t instance)
{
    uint64_t found = 0, count = 0;
    /* within its last page a file may be too short without a fault */
    bool wiped = seats->fd >= 0 && shmc_file_lengthen(seats->fd, seats->max_size);
    uint64_t high = 0;

    shmc_file_shorten(seats->fd, seats->max_size); /* or the next writer would not take it over */
    if (shmc_guard_replaced(seats))
        wiped |= shmc_segment_remap(seats) == SHMC_OK;
    if (check_header(seats, &found, &count) != SHMC_OK || found != instance ||
        count != seat_count)
        wiped = true;
    for (uint64_t index = 0; index < seat_count; index++) {
        struct shmc_seat *seat = shmc_seat_at(seats, index);

        if (looks_used(seat))
            high = index + 1;
        if (shmc_load_racy(&seat->instance) != instance) {
            shmc_store_racy(&seat->instance, instance);
            wiped = true;
        }
    }
    wiped |= high > shmc_load_racy(&header_of(seats)->high);
    if (!wiped)
        return false;
    write_header(seats, seat_count, instance);
    shmc_seats_wake_all(seats, seat_count);
    return true;
}

static bool looks_used(const struct shmc_seat *seat)
{
    uint64_t used = shmc_load_racy(&seat->in_use);

    for (unsigned i = 0; i < SHMC_PINS; i++)
        used |= shmc_load_racy(&seat->pins[i]);
    return used != 0;
}

static bool reap(struct shmc_seat *seat, uint64_t index, int lock_fd)
{
    if (shmc_lock_byte(lock_fd, index) != SHMC_OK)
        return false;
    const bool used = looks_used(seat); /* checked again: its owner may have left meanwhile */
    if (used) {
        clear_seat(seat);
        shmc_store_racy(&seat->incarnation, shmc_load_racy(&seat->incarnation) + 1); /* SEAT2 */
        shmc_store_racy(&seat->in_use, 0);
    }
    (void)shmc_unlock_byte(lock_fd, index);
    return used;
}

/* Whether another lock may be tried after so many. */
static bool may_try(unsigned tried, uint64_t until_ns)
{
    return SHMC_CHECKED(NO_REAP_STEP, tried < SHMC_REAP_STEP) &&
           (tried == 0 || shmc_monotonic_ns() < until_ns);
}

uint64_t shmc_seats_reap(const struct shmc_segment *seats, uint64_t seat_count, int lock_fd,
                         uint64_t *next, uint64_t until_ns)
{
    uint64_t reaped = 0, index = *next < seat_count ? *next : 0;
    unsigned tried = 0;

    for (uint64_t seen = 0; seen < seat_count && may_try(tried, until_ns); seen++) {
        struct shmc_seat *seat = shmc_seat_at(seats, index);
        if (looks_used(seat)) {
            reaped += reap(seat, index, lock_fd);
            tried++;
        }
        index = index + 1 < seat_count ? index + 1 : 0;
    }
    *next = index;
    return reaped;
}
