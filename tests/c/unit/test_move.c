/*
 * A writer whose files lost their names continues in copies: both hold one state, later
 * publications are only in the new one, and readers of the old one are notified (MOVE1..MOVE3 of
 * move.c).
 */
#include <sys/mman.h>

#include "core_fixture.h"

#define SIZE (UINT64_C(1) << 20)
#define SEAT_COUNT 4u

static struct shmc_segment make(uint64_t size, uint64_t length)
{
    struct shmc_segment segment;
    const int fd = memfd_create("segment", MFD_CLOEXEC);

    if (fd < 0)
        test_skip("no memfd_create");
    CHECK_EQUAL(SHMC_OK, shmc_segment_map(fd, size, 1, &segment));
    CHECK_EQUAL(SHMC_OK, shmc_segment_extend(&segment, length));
    return segment;
}

static void give_back(struct shmc_segment *segment)
{
    const int fd = segment->fd;

    shmc_segment_unmap(segment);
    close(fd);
}

struct pair {
    struct shmc_segment data, seats;
    struct shmc_writer_settings settings;
};

static void make_pair(struct pair *pair, uint64_t instance)
{
    const uint64_t seats_size = shmc_seats_size(SEAT_COUNT);

    pair->settings = (struct shmc_writer_settings){.max_size = SIZE,
                                                   .ring_slots = 64,
                                                   .ring_bytes = 4096,
                                                   .instance = instance,
                                                   .seats_instance = instance,
                                                   .seed = 11,
                                                   .guard = {1, instance}};
    pair->data = make(SIZE, shmc_data_minimum(&pair->settings));
    pair->seats = make(seats_size, seats_size);
    CHECK_EQUAL(SHMC_OK, shmc_data_format(&pair->data, &pair->settings));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&pair->seats, SEAT_COUNT, instance));
}

static shmc_word value_of(struct shmc_reader *reader, const char *key)
{
    struct shmc_pinned at;
    struct shmc_record record;
    shmc_offset indices;
    shmc_word value = SHMC_NOTHING;
    const uint8_t *bytes = (const uint8_t *)key;

    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &at));
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &at, 0, &record, &indices));
    const uint64_t hash = shmc_key_hash(reader->super->hash_key, bytes, strlen(key));
    (void)shmc_directory_find(&reader->span, record.directory, hash, bytes, strlen(key), &value);
    shmc_unpin(reader, &at);
    return value;
}

int main(void)
{
    struct pair old, new;
    struct core core = {.seat_count = SEAT_COUNT};
    struct shmc_reader *before, *after;
    char what[128];

    test_start("test_move");
    make_pair(&old, 7);
    CHECK_EQUAL(SHMC_OK,
                shmc_writer_create(&old.data, &old.seats, &old.settings, &core.writer));
    core.data = old.data;
    const uint32_t pods = core_declare(&core, "pods");
    core_put_now(&core, pods, "a", "{text: 'a string that has a block of its own'}");
    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&old.data, NULL, &before));

    make_pair(&new, 8);
    core_begin(&core);
    CHECK_EQUAL(SHMC_INVALID, shmc_writer_copy(core.writer, &new.data, &new.settings)); /* MOVE1 */
    CHECK_EQUAL(SHMC_OK, shmc_abort(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_writer_copy(core.writer, &new.data, &new.settings));
    uint8_t *const base = old.data.base;
    CHECK_EQUAL(SHMC_OK, shmc_writer_switch(core.writer, &new.data, &new.seats, &new.settings));
    CHECK(old.data.base == base);
    CHECK_EQUAL(8, shmc_writer_instance(core.writer));
    CHECK_EQUAL(1, core_stats(&core).renamed);

    /* `old` is what the writer has now, `new` shows the old files: the structs were exchanged */
    shmc_reader_destroy(before);
    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&new.data, NULL, &before));
    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&old.data, NULL, &after));
    CHECK_EQUAL(7, before->super->instance);
    CHECK_EQUAL(8, after->super->instance);
    CHECK(value_of(after, "a") != SHMC_NOTHING); /* MOVE2: found by the same hash */
    CHECK_EQUAL(value_of(before, "a"), value_of(after, "a"));
    core_put_now(&core, pods, "b", "{n: 1}");
    core_put_now(&core, pods, "a", "{n: 2}");
    CHECK(value_of(after, "b") != SHMC_NOTHING);
    CHECK(value_of(before, "b") == SHMC_NOTHING); /* MOVE3 */
    CHECK(!shmc_reader_over(before));
    CHECK_EQUAL(SHMC_OK, shmc_data_end(&new.data));
    CHECK_EQUAL(SHMC_OK, shmc_seats_end(&new.seats));
    CHECK(shmc_reader_over(before));
    CHECK(!shmc_reader_over(after));
    CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, shmc_monotonic_ns()));
    CHECK_EQUAL(SHMC_OK, shmc_check(core.writer, what, sizeof what));

    /* the next writer continues there, by the new guard alone */
    shmc_reader_destroy(after);
    shmc_reader_destroy(before);
    shmc_writer_destroy(core.writer);
    CHECK_EQUAL(SHMC_BUSY, shmc_writer_takeover(&old.data, &old.seats,
                                                &(struct shmc_writer_settings){.max_size = SIZE,
                                                                               .ring_slots = 64,
                                                                               .instance = 8,
                                                                               .guard = {1, 7}},
                                                what, sizeof what, &core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_writer_takeover(&old.data, &old.seats, &new.settings, what,
                                              sizeof what, &core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_check(core.writer, what, sizeof what));
    shmc_writer_destroy(core.writer);
    give_back(&old.data);
    give_back(&old.seats);
    give_back(&new.data);
    give_back(&new.seats);
    return 0;
}
