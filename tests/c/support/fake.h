/*
 * fake.h - a DATA superblock and a SEATS file without a writer, for tests of the reader's side.
 */
#ifndef SHMC_TEST_FAKE_H
#define SHMC_TEST_FAKE_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"
#include "harness.h"

#define FAKE_RING_SLOTS 8u
#define FAKE_BYTES ((uint64_t)SHMC_PAGE * 2) /* header and ring in the first, arena in the second */
static_assert(SHMC_RING_OFFSET + FAKE_RING_SLOTS * sizeof(struct shmc_slot) <= SHMC_PAGE,
              "the arena starts at the second page");

struct fake {
    struct shmc_segment data, seats;
    struct shmc_super *super;
    uint64_t seat_count;
};

/* Prepares generation g's root in its slot; it is invisible until latest names it. */
static inline void fake_root(struct shmc_super *super, uint64_t g)
{
    struct shmc_root *root = &super->roots[g & (SHMC_ROOTS - 1)];

    shmc_store_racy(&root->generation, g);
    shmc_store_racy(&root->head, g);
    shmc_store_racy(&root->tail, g);
    shmc_store_racy(&root->high_water, SHMC_PAGE);
    shmc_store_racy(&root->catalogue, 0);
    shmc_store_racy(&root->slots, FAKE_RING_SLOTS);
}

/* Memory of exactly the size, so that a sanitizer sees one byte too many. */
static inline void fake_data(struct shmc_segment *data)
{
    uint8_t *memory = aligned_alloc(64, FAKE_BYTES);
    struct shmc_super *super = (struct shmc_super *)(void *)memory;

    CHECK(memory != NULL);
    memset(memory, 0, FAKE_BYTES);
    super->magic = SHMC_DATA_MAGIC;
    super->layout_version = SHMC_LAYOUT_VERSION;
    super->layout_signature = SHMC_LAYOUT_SIGNATURE;
    super->instance = 7;
    super->max_size = FAKE_BYTES;
    super->ring_slots = FAKE_RING_SLOTS;
    super->arena_offset = SHMC_PAGE;
    shmc_store_release(&super->file_size, FAKE_BYTES);
    fake_root(super, 1);
    shmc_store_release(&super->latest, 1);
    *data = (struct shmc_segment){
        .base = memory, .max_size = FAKE_BYTES, .file_size = FAKE_BYTES, .fd = -1};
}

/* A new open file description of the same file. */
static inline int fake_reopen(int fd)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    CHECK(opened >= 0);
    return opened;
}

static inline void fake_create(struct fake *fake, uint64_t seat_count)
{
    const int fd = memfd_create("seats", MFD_CLOEXEC);

    if (fd < 0)
        test_skip("no memfd_create");
    fake_data(&fake->data);
    fake->super = (struct shmc_super *)(void *)fake->data.base;
    fake->seat_count = seat_count;
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, shmc_seats_size(seat_count), 1, &fake->seats));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&fake->seats, shmc_seats_size(seat_count)));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&fake->seats, seat_count, 9));
}

/* Like attach: a description of its own, the one mapping. */
static inline enum shmc_status fake_attach(const struct fake *fake, struct shmc_reader **reader)
{
    struct shmc_segment seats = fake->seats;

    seats.fd = fake_reopen(fake->seats.fd);
    const enum shmc_status status = shmc_reader_create(&fake->data, &seats, reader);
    if (status != SHMC_OK)
        close(seats.fd);
    return status;
}

static inline void fake_detach(struct shmc_reader *reader)
{
    const int fd = reader->seat_fd;

    shmc_reader_destroy(reader);
    close(fd);
}

static inline void fake_publish(struct fake *fake, uint64_t g)
{
    fake_root(fake->super, g);
    shmc_store_release(&fake->super->latest, g);
    shmc_fence_full();
}

static inline void fake_destroy(struct fake *fake)
{
    const int fd = fake->seats.fd;

    shmc_segment_unmap(&fake->seats);
    close(fd);
    free(fake->data.base);
}

#endif
