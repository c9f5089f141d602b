/*
 * queueseat.c - the file of a queue: its geometry, its seats, its feeder.
 *
 * The file is made whole before anybody can find it. Opening takes turns (byte OPEN), held by who
 * opens for some calls and dropped by the kernel if it dies: so the first one of all knows that it
 * is, opens what was shut down, and takes back what the dead held.
 *
 * Invariants
 *   QSEAT1  geometry is taken from the header once, when it is opened, and checked against the
 *       file.
 *   QSEAT2  a seat is held by the lock of its byte through a description that serves nothing but
 *       our own locks; another one tries those of others (SWEEP1). The lock of a second byte, which
 *       names seat and incarnation, is held as long: any worker may have written both.
 *   QSEAT3  a feeder stores a position only after the keys of all deltas before it were added, and
 *       only while it holds byte FEED. Its successor goes on from there: a delta may be added
 *       twice, and none is left out. After a shutdown, which ignores adds, no position holds.
 *   QSEAT5  a worker takes its seat while it holds byte OPEN: nobody comes while it looks whether
 *       it is alone.
 *
 * Ordering
 *   QSEAT4  adds ▸ release of position <-> acquire by the successor.
 */
#include <sched.h>
#include <unistd.h>

#include "queue/queue.h"

static_assert(SHMC_QUEUE_SLOTS_MAX == SHMC_QUEUE_MAX_SLOTS &&
                  SHMC_QUEUE_RESOURCES_MAX == SHMC_QUEUE_CURSORS,
              "the same numbers for callers");

#define DEFAULT_BASE_NS UINT64_C(5000000)
#define DEFAULT_MAX_NS (UINT64_C(1000) * 1000000000u)
#define DEFAULT_TOKEN_NS UINT64_C(100000000)
#define DEFAULT_BURST 100u
#define PAGE 4096u
#define KEEP UINT64_C(65536)

#define RING_MAX (UINT64_C(1) << 16)

struct geometry {
    struct shmc_queue_shape shape;
    struct shmc_queue_level levels[SHMC_QUEUE_LEVELS];
    unsigned level_count, base_bits;
    uint64_t cursors, steps, rings, slots, long_keys, end;
};

static uint64_t paged(uint64_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

static bool good_power(uint64_t number, uint64_t least, uint64_t most)
{
    return number >= least && number <= most && (number & (number - 1)) == 0;
}

/* Level 0 is for a step at least; the last one for all slots. A bucket of eight for four keys. */
static uint64_t measure_levels(struct geometry *to, uint64_t offset)
{
    const uint64_t slots = to->shape.slot_count;
    uint64_t base = slots >> 2 * (SHMC_QUEUE_LEVELS - 1);

    base = base < SHMC_QUEUE_STEP ? SHMC_QUEUE_STEP : base;
    to->base_bits = (unsigned)__builtin_ctzll(base);
    to->level_count = 0;
    for (uint64_t until = base;; until *= 4) {
        struct shmc_queue_level *level = &to->levels[to->level_count++];
        level->mask = (until < slots ? until : slots) / 4 - 1;
        level->offset = offset;
        level->size = paged((level->mask + 1) * SHMC_QUEUE_BUCKET * sizeof(shmc_atomic));
        offset += level->size;
        if (until >= slots)
            return offset;
    }
}

static bool measure(const struct shmc_queue_shape *shape, struct geometry *to)
{
    const uint64_t slots = shape->slot_count, seats = shape->seat_count;

    if (!good_power(slots, SHMC_QUEUE_STEP, SHMC_QUEUE_MAX_SLOTS) || seats == 0 ||
        !good_power(shape->ring_count, SHMC_QUEUE_STEP, RING_MAX) || seats > SHMC_MAX_SEATS)
        return false;
    to->shape = *shape;
    to->cursors = SHMC_QUEUE_SEATS_OFFSET + paged(seats * sizeof(struct shmc_queue_seat));
    to->steps = to->cursors + paged(SHMC_QUEUE_CURSORS * sizeof(struct shmc_queue_cursor));
    to->rings = measure_levels(
        to, to->steps + paged(slots / SHMC_QUEUE_STEP * sizeof(struct shmc_queue_step)));
    to->slots = paged(to->rings + SHMC_QUEUE_LANES * shape->ring_count * sizeof(shmc_atomic));
    to->long_keys = to->slots + slots * sizeof(struct shmc_queue_slot);
    to->end = to->long_keys + slots * SHMC_QUEUE_KEY_MAX;
    return true;
}

/* The sizes of a queue with so many slots; a test may choose fewer tickets. */
static struct shmc_queue_shape shape_of(uint64_t slot_count, uint64_t ring_count,
                                        uint64_t seat_count)
{
    if (ring_count == 0)
        ring_count = slot_count < RING_MAX ? slot_count : RING_MAX;
    return (struct shmc_queue_shape){slot_count, ring_count, seat_count};
}

uint64_t shmc_queue_size(uint64_t slot_count, uint64_t ring_count, uint64_t seat_count,
                         uint64_t *backed)
{
    const struct shmc_queue_shape shape = shape_of(slot_count, ring_count, seat_count);
    struct geometry geometry;

    if (!measure(&shape, &geometry))
        return 0;
    *backed = geometry.levels[0].offset + geometry.levels[0].size;
    return geometry.end;
}

void shmc_queue_identify(struct shmc_queue_header *header, uint64_t instance,
                         const struct shmc_queue_shape *shape, uint64_t seed)
{
    uint8_t *at = (uint8_t *)header;
    const uint64_t build = (uint64_t)SHMC_QUEUE_SIGNATURE << 32 | SHMC_LAYOUT_VERSION;

    shmc_word_store(at + offsetof(struct shmc_queue_header, layout_version), build);
    shmc_word_store(at + offsetof(struct shmc_queue_header, instance), instance);
    shmc_word_store(at + offsetof(struct shmc_queue_header, slot_count), shape->slot_count);
    shmc_word_store(at + offsetof(struct shmc_queue_header, ring_count), shape->ring_count);
    shmc_word_store(at + offsetof(struct shmc_queue_header, seat_count), shape->seat_count);
    shmc_word_store(at + offsetof(struct shmc_queue_header, seed), seed);
    shmc_word_store(at + offsetof(struct shmc_queue_header, magic), SHMC_QUEUE_MAGIC);
}

enum shmc_status shmc_queue_format(struct shmc_segment *file, uint64_t slot_count,
                                   uint64_t ring_count, uint64_t seat_count, uint64_t instance,
                                   uint64_t seed)
{
    const struct shmc_queue_shape shape = shape_of(slot_count, ring_count, seat_count);
    struct geometry geometry;
    struct shmc_queue_header *header = (struct shmc_queue_header *)(void *)file->base;

    if (!measure(&shape, &geometry) || instance == 0 || !file->writable)
        return SHMC_INVALID;
    const uint64_t backed = geometry.levels[0].offset + geometry.levels[0].size;
    if (geometry.end > file->max_size || backed > file->file_size)
        return SHMC_INVALID;
    memset(file->base, 0, (size_t)backed);
    struct shmc_queue_step *steps = (struct shmc_queue_step *)(void *)(file->base + geometry.steps);
    for (uint64_t i = 0; i < slot_count / SHMC_QUEUE_STEP; i++)
        shmc_store_racy(&steps[i].due, DUE_NEVER);
    shmc_store_racy(&header->next_due, DUE_NEVER);
    shmc_store_racy(&header->levels, 1);
    shmc_queue_identify(header, instance, &shape, seed);
    return SHMC_OK;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* QSEAT1 */
static enum shmc_status read_geometry(const struct shmc_segment *file, struct geometry *geometry)
{
    const uint8_t *at = file->base;
    const uint64_t build = (uint64_t)SHMC_QUEUE_SIGNATURE << 32 | SHMC_LAYOUT_VERSION;

    if (file->file_size < SHMC_QUEUE_SEATS_OFFSET ||
        shmc_word_load(at + offsetof(struct shmc_queue_header, magic)) != SHMC_QUEUE_MAGIC)
        return SHMC_CORRUPT;
    if (shmc_word_load(at + offsetof(struct shmc_queue_header, layout_version)) != build)
        return SHMC_VERSION;
    const struct shmc_queue_shape shape = {
        shmc_word_load(at + offsetof(struct shmc_queue_header, slot_count)),
        shmc_word_load(at + offsetof(struct shmc_queue_header, ring_count)),
        shmc_word_load(at + offsetof(struct shmc_queue_header, seat_count))};
    return measure(&shape, geometry) && geometry->end <= file->file_size ? SHMC_OK : SHMC_CORRUPT;
}

static void lay_out(struct shmc_queue *queue, const struct shmc_segment *file,
                    const struct geometry *geometry)
{
    uint8_t *base = file->base;

    queue->header = (struct shmc_queue_header *)(void *)base;
    queue->seats = (struct shmc_queue_seat *)(void *)(base + SHMC_QUEUE_SEATS_OFFSET);
    queue->cursors = (struct shmc_queue_cursor *)(void *)(base + geometry->cursors);
    queue->steps = (struct shmc_queue_step *)(void *)(base + geometry->steps);
    queue->rings = (shmc_atomic *)(void *)(base + geometry->rings);
    queue->slots = (struct shmc_queue_slot *)(void *)(base + geometry->slots);
    queue->long_keys = base + geometry->long_keys;
    queue->level_count = geometry->level_count;
    queue->base_bits = geometry->base_bits;
    for (unsigned i = 0; i < geometry->level_count; i++) {
        queue->levels[i] = geometry->levels[i];
        queue->levels[i].entries = (shmc_atomic *)(void *)(base + geometry->levels[i].offset);
    }
    queue->slot_count = geometry->shape.slot_count;
    queue->ring_count = geometry->shape.ring_count;
    queue->seat_count = geometry->shape.seat_count;
    queue->keep = queue->slot_count < KEEP ? queue->slot_count : KEEP;
    queue->rings_offset = geometry->rings;
    queue->slots_offset = geometry->slots;
    queue->long_offset = geometry->long_keys;
    queue->seed = shmc_word_load(base + offsetof(struct shmc_queue_header, seed));
    queue->instance = shmc_word_load(base + offsetof(struct shmc_queue_header, instance));
}

static void settle(struct shmc_queue *queue, uint64_t index)
{
    struct shmc_queue_seat *seat = &queue->seats[index];
    const uint64_t incarnation = shmc_load_racy(&seat->incarnation) + 1;

    (void)shmc_lock_byte(queue->seat_fd, shmc_queue_owner_byte(index, incarnation));
    queue->seat_index = index;
    queue->seat = seat;
    queue->incarnation = incarnation;
    queue->owner = index << 7 | (incarnation & KEY_INCARNATIONS) << 17;
    shmc_store_release(&seat->incarnation, incarnation);
    shmc_store_racy(&seat->pid, (uint64_t)getpid());
    shmc_store_racy(&seat->claimed_ns, shmc_monotonic_ns());
    shmc_store_racy(&seat->in_use, 1);
    shmc_queue_unsleep(queue, index);
}

static enum shmc_status take_seat(struct shmc_queue *queue)
{
    for (uint64_t index = 0; index < queue->seat_count; index++) {
        const enum shmc_status status = shmc_lock_byte(queue->seat_fd, index);
        if (status == SHMC_OK) {
            settle(queue, index);
            return SHMC_OK;
        }
        if (status != SHMC_BUSY)
            return status;
    }
    return SHMC_BUSY;
}

static bool alone(struct shmc_queue *queue)
{
    for (uint64_t seat = 0; seat < queue->seat_count; seat++) {
        (void)shmc_queue_reap(queue, seat);
        if (seat != queue->seat_index && shmc_load_racy(&queue->seats[seat].in_use) != 0)
            return false;
    }
    return true;
}

static enum shmc_status begin(struct shmc_queue *queue)
{
    const enum shmc_status status = take_seat(queue);

    if (status != SHMC_OK)
        return status;
    if (alone(queue)) {
        if (shmc_queue_shut(queue)) /* adds were ignored meanwhile: the feeder adds all keys again */
            shmc_fetch_add(&queue->header->rebuilds, 1);
        shmc_store_racy(&queue->header->shutdown, 0);
        shmc_store_racy(&queue->header->keeper, 0);
        shmc_store_racy(&queue->header->missing, 1); /* the first to take a key scans */
        shmc_levels_shrink(queue);
    }
    return SHMC_OK;
}

static bool one_cpu(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) < 2;
}

static enum shmc_status open_guarded(const struct shmc_segment *file, int seat_fd, int lock_fd,
                                     struct shmc_queue **made)
{
    struct shmc_heap heap = {0};
    struct geometry geometry;
    enum shmc_status status = read_geometry(file, &geometry);
    struct shmc_queue *queue = NULL;

    if (status == SHMC_OK) {
        queue = shmc_heap_resize(&heap, NULL, 0, sizeof *queue);
        status = queue == NULL ? SHMC_NO_MEMORY : SHMC_OK;
    }
    if (status != SHMC_OK)
        return status;
    memset(queue, 0, sizeof *queue);
    lay_out(queue, file, &geometry);
    queue->seat_fd = seat_fd;
    queue->lock_fd = lock_fd;
    queue->file = *file;
    queue->lent = file->fd < 0;
    queue->fork_word = shmc_fork_word();
    queue->shares_time = one_cpu();
    shmc_queue_limits(queue, DEFAULT_BASE_NS, DEFAULT_MAX_NS, DEFAULT_TOKEN_NS, DEFAULT_BURST);
    pthread_mutex_init(&queue->lock, NULL); /* cannot fail: no attributes */
    shmc_store_racy(&queue->levels_seen, shmc_load_acquire(&queue->header->levels));
    status = begin(queue);
    if (status == SHMC_OK) {
        shmc_queue_look(queue);
        *made = queue;
        return SHMC_OK;
    }
    pthread_mutex_destroy(&queue->lock);
    shmc_heap_resize(&heap, queue, sizeof *queue, 0);
    return status;
}

enum shmc_status shmc_queue_open(const struct shmc_segment *file, int seat_fd, int lock_fd,
                                 struct shmc_queue **made)
{
    enum shmc_status status = shmc_guard(file); /* before the first look into it */

    if (status != SHMC_OK)
        return status;
    status = open_guarded(file, seat_fd, lock_fd, made);
    if (status != SHMC_OK)
        shmc_unguard(file);
    return status;
}

void shmc_queue_close(struct shmc_queue *queue)
{
    struct shmc_heap heap = {.bytes = sizeof *queue};

    if (queue == NULL)
        return;
    if (!shmc_queue_forked(queue)) {
        const uint64_t now_ns = shmc_monotonic_ns();
        const uint64_t held = shmc_queue_owner_byte(queue->seat_index, queue->incarnation);
        shmc_store_release(&queue->seat->incarnation, queue->incarnation + 1); /* SWEEP1 */
        shmc_store_racy(&queue->seat->in_use, 0);
        queue->owner = UINT64_C(1023) << 7; /* nobody's */
        queue->leaving = true; /* STEP1 */
        queue->incarnation++;
        (void)shmc_unlock_byte(queue->seat_fd, held);
        shmc_queue_scan(queue, now_ns); /* gives our keys back */
        shmc_queue_depart(queue);
        (void)shmc_unlock_byte(queue->seat_fd, queue->seat_index);
        shmc_queue_feed_end(queue);
        pthread_mutex_destroy(&queue->lock);
    }
    shmc_unguard(&queue->file);
    shmc_heap_resize(&heap, queue, sizeof *queue, 0);
}

void shmc_queue_limits(struct shmc_queue *queue, uint64_t base_ns, uint64_t max_ns,
                       uint64_t token_ns, uint64_t burst)
{
    queue->base_ns = base_ns;
    queue->max_ns = max_ns;
    queue->token_ns = token_ns;
    queue->burst = burst;
}

void shmc_queue_keep(struct shmc_queue *queue, uint64_t deadline_ns)
{
    queue->deadline_ns = deadline_ns;
}

/* Whether a worker sits on some other seat. To be asked while byte OPEN is held. */
int shmc_queue_used(const struct shmc_segment *file, int lock_fd)
{
    struct geometry geometry;

    if (read_geometry(file, &geometry) != SHMC_OK)
        geometry.shape.seat_count = SHMC_MAX_SEATS;
    for (uint64_t seat = 0; seat < geometry.shape.seat_count; seat++) {
        if (shmc_probe_byte(lock_fd, seat) == SHMC_BUSY)
            return 1;
    }
    return 0;
}

/* ---- the feeder ----------------------------------------------------------------------------------- */

enum shmc_status shmc_queue_feed_begin(struct shmc_queue *queue)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (queue->feeding)
        return SHMC_BUSY; /* another thread of this process: one description cannot tell */
    const enum shmc_status status = shmc_lock_byte(queue->seat_fd, SHMC_QUEUE_FEED_BYTE);
    queue->feeding = status == SHMC_OK;
    return status;
}

void shmc_queue_feed_end(struct shmc_queue *queue)
{
    if (!queue->feeding || shmc_queue_forked(queue))
        return;
    queue->feeding = false;
    (void)shmc_unlock_byte(queue->seat_fd, SHMC_QUEUE_FEED_BYTE);
}

static struct shmc_queue_cursor *find_cursor(const struct shmc_queue *queue, uint64_t resource,
                                             bool make)
{
    for (unsigned i = 0; i < SHMC_QUEUE_CURSORS; i++) {
        struct shmc_queue_cursor *cursor = &queue->cursors[i];
        const uint64_t found = shmc_load_acquire(&cursor->resource);
        if (found == resource)
            return cursor;
        if (found == 0 && make) {
            shmc_store_racy(&cursor->position, 0);
            shmc_store_racy(&cursor->rebuilds, 0);
            shmc_store_release(&cursor->resource, resource);
            return cursor;
        }
    }
    return NULL;
}

static uint64_t name_of(const char *resource, size_t length)
{
    return shmc_key_hash(1, (const uint8_t *)resource, length) | 1;
}

enum shmc_status shmc_queue_cursor(const struct shmc_queue *queue, const char *resource,
                                   size_t length, struct shmc_queue_fed *to)
{
    const struct shmc_queue_cursor *cursor =
        find_cursor(queue, name_of(resource, length), false);

    memset(to, 0, sizeof *to);
    to->rebuilds = shmc_load_acquire(&queue->header->rebuilds);
    if (cursor == NULL)
        return SHMC_NOT_FOUND;
    to->position = shmc_load_acquire(&cursor->position); /* QSEAT4 */
    to->instance = shmc_load_racy(&cursor->instance);
    to->whole = shmc_load_racy(&cursor->rebuilds) == to->rebuilds + 1;
    return SHMC_OK;
}

enum shmc_status shmc_queue_store_cursor(struct shmc_queue *queue, const char *resource,
                                         size_t length, const struct shmc_queue_fed *fed)
{
    if (shmc_queue_forked(queue))
        return SHMC_FORKED;
    if (!queue->feeding)
        return SHMC_FENCED;
    struct shmc_queue_cursor *cursor = find_cursor(queue, name_of(resource, length), true);
    if (cursor == NULL)
        return SHMC_LIMIT;
    if (shmc_load_racy(&cursor->instance) != fed->instance || !fed->whole) {
        shmc_store_release(&cursor->rebuilds, 0); /* a feeder that dies here leaves it to its successor */
        shmc_store_release(&cursor->instance, fed->instance);
    }
    shmc_store_release(&cursor->position, fed->position); /* QSEAT3, QSEAT4 */
    shmc_store_release(&cursor->rebuilds, fed->whole ? fed->rebuilds + 1 : 0);
    return SHMC_OK;
}

/* ---- for display ----------------------------------------------------------------------------------- */

static uint64_t counted(const struct shmc_queue *queue, enum shmc_queue_count what)
{
    uint64_t sum = 0;

    for (uint64_t seat = 0; seat < queue->seat_count; seat++)
        sum += shmc_load_racy(&queue->seats[seat].counters[what]);
    return sum;
}

uint64_t shmc_queue_length(const struct shmc_queue *queue)
{
    const uint64_t queued = shmc_load_acquire(&queue->header->queued);

    return queued <= queue->slot_count ? queued : 0;
}

void shmc_queue_stats(const struct shmc_queue *queue, struct shmc_queue_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    stats->depth = shmc_queue_length(queue);
    stats->limit = queue->slot_count;
    stats->rebuilds = shmc_load_racy(&queue->header->rebuilds);
    stats->adds = counted(queue, COUNT_ADDS);
    stats->repeats = counted(queue, COUNT_REPEATS);
    stats->gets = counted(queue, COUNT_GETS);
    stats->dones = counted(queue, COUNT_DONES);
    stats->retries = counted(queue, COUNT_RETRIES);
    stats->returned = counted(queue, COUNT_RETURNED);
    stats->expired = counted(queue, COUNT_EXPIRED);
    stats->late = counted(queue, COUNT_LATE);
    stats->full = counted(queue, COUNT_FULL);
    stats->posts = counted(queue, COUNT_POSTS);
    stats->queue_ns = counted(queue, COUNT_QUEUE_NS);
    stats->work_ns = counted(queue, COUNT_WORK_NS);
    shmc_queue_survey(queue, stats);
    for (uint64_t seat = 0; seat < queue->seat_count; seat++)
        stats->workers += shmc_load_racy(&queue->seats[seat].in_use) != 0;
}
