/*
 * queue_fixture.h - a queue in a file of its own, and workers on it: threads with a seat each.
 */
#ifndef SHMC_TEST_QUEUE_FIXTURE_H
#define SHMC_TEST_QUEUE_FIXTURE_H

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"
#include "queue/queue.h"

struct pool {
    struct shmc_segment file;
    uint64_t slot_count, seat_count;
};

static inline int pool_reopen(const struct pool *pool)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", pool->file.fd);
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    CHECK(opened >= 0);
    return opened;
}

/* With few tickets, keys are spilled. */
static inline void pool_create_small(struct pool *pool, uint64_t slot_count, uint64_t ring_count,
                                     uint64_t seat_count)
{
    uint64_t backed = 0;
    const uint64_t size = shmc_queue_size(slot_count, ring_count, seat_count, &backed);
    const int fd = memfd_create("queue", MFD_CLOEXEC);

    if (fd < 0)
        test_skip("no memfd_create");
    CHECK(size > 0 && backed < size);
    CHECK_EQUAL(0, ftruncate(fd, (off_t)size));
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, size, 1, &pool->file));
    CHECK_EQUAL(SHMC_OK,
                shmc_queue_format(&pool->file, slot_count, ring_count, seat_count, 7, test_seed));
    pool->slot_count = slot_count;
    pool->seat_count = seat_count;
}

static inline void pool_create(struct pool *pool, uint64_t slot_count, uint64_t seat_count)
{
    pool_create_small(pool, slot_count, 0, seat_count);
}

static inline struct shmc_queue *pool_join(const struct pool *pool)
{
    struct shmc_queue *queue = NULL;

    CHECK_EQUAL(SHMC_OK,
                shmc_queue_open(&pool->file, pool_reopen(pool), pool_reopen(pool), &queue));
    shmc_queue_limits(queue, 5000000, UINT64_C(1000000000000), 0, 0);
    return queue;
}

static inline void pool_leave(struct shmc_queue *queue)
{
    const int seat_fd = queue->seat_fd, lock_fd = queue->lock_fd;

    shmc_queue_close(queue);
    close(seat_fd);
    close(lock_fd);
}

static inline void pool_destroy(struct pool *pool)
{
    const int fd = pool->file.fd;

    shmc_segment_unmap(&pool->file);
    close(fd);
}

static inline enum shmc_status pool_add(struct shmc_queue *queue, const char *key,
                                        int64_t priority)
{
    return shmc_queue_add(queue, (const uint8_t *)key, strlen(key), priority);
}

/* The key that must be available now. */
static inline void pool_expect(struct shmc_queue *queue, const char *key,
                               struct shmc_taken *taken)
{
    CHECK_EQUAL(SHMC_OK, shmc_queue_take(queue, 0, taken));
    CHECK_EQUAL(strlen(key), taken->length);
    CHECK(memcmp(key, taken->key, taken->length) == 0);
}

static inline enum shmc_status pool_empty(struct shmc_queue *queue)
{
    struct shmc_taken taken;

    return shmc_queue_take(queue, 0, &taken);
}

/* All due times are lost: a hint (DUE4). */
static inline void pool_forget_dues(struct shmc_queue *queue)
{
    for (uint64_t i = 0; i < queue->slot_count / SHMC_QUEUE_STEP; i++)
        shmc_store_racy(&queue->steps[i].due, DUE_NEVER);
}

/* QUEUE7: each known key is found, and in its own slot. */
static inline void pool_check(const struct shmc_queue *queue)
{
    uint8_t key[SHMC_QUEUE_KEY_MAX];
    uint64_t queued = 0;

    for (uint64_t slot = 0; slot < queue->slot_count; slot++) {
        if (!shmc_slot_there(queue, slot))
            continue;
        const uint64_t word = shmc_load_acquire(&queue->slots[slot].word);
        struct shmc_keyref ref = {0, 0};
        queued += KEY_STATE(word) == KEY_QUEUED;
        if ((word & KEY_KNOWN) == 0)
            continue;
        const size_t length = shmc_key_copy(queue, slot, key);
        CHECK_EQUAL(SHMC_OK, shmc_key_find(queue, key, length, shmc_queue_hash(queue, key, length),
                                           &ref));
        CHECK_EQUAL(slot, ref.slot);
    }
    CHECK_EQUAL(queued, shmc_queue_length(queue));
}

#endif
