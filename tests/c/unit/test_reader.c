/*
 * A reader's seat shows each generation that a thread of the process holds, and no other; data read
 * from DATA is checked before it is used, whatever the bytes are.
 */
#include "fake.h"

static struct fake fake;
static struct shmc_reader *reader;

static uint64_t seat_holds(uint64_t generation)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < SHMC_PINS; i++)
        count += shmc_load_racy(&reader->seat->pins[i]) == generation;
    return count;
}

/* Slots that hold this generation and every younger one. */
static uint64_t seat_holds_from(uint64_t generation)
{
    return seat_holds(generation | SHMC_PIN_OPEN);
}

static struct shmc_pinned pin(void)
{
    struct shmc_pinned pinned;

    CHECK_EQUAL(SHMC_OK, shmc_pin(reader, &pinned));
    CHECK_EQUAL(shmc_reader_latest(reader), pinned.generation);
    return pinned;
}

static void test_generation_is_held_until_its_last_user_is_gone(void)
{
    const struct shmc_pinned first = pin(), second = pin();

    CHECK_EQUAL(FAKE_BYTES, reader->span.size);
    CHECK_EQUAL(1, shmc_reader_pins(reader));
    CHECK_EQUAL(1, seat_holds(first.generation));
    fake_publish(&fake, first.generation + 1);
    const struct shmc_pinned third = pin();
    CHECK_EQUAL(2, shmc_reader_pins(reader));
    shmc_unpin(reader, &first);
    CHECK_EQUAL(1, seat_holds(first.generation));
    shmc_unpin(reader, &second);
    CHECK_EQUAL(0, seat_holds(first.generation));
    CHECK_EQUAL(1, seat_holds(third.generation));
    shmc_unpin(reader, &third);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
}

static void test_overflow_shares_the_lowest(void)
{
    struct shmc_pinned pins[SHMC_COUNTED_PINS], extra[3];

    for (unsigned i = 0; i < SHMC_COUNTED_PINS; i++) {
        fake_publish(&fake, shmc_reader_latest(reader) + 1);
        pins[i] = pin();
    }
    for (unsigned i = 0; i < 3; i++) {
        fake_publish(&fake, shmc_reader_latest(reader) + 1);
        extra[i] = pin();
        CHECK_EQUAL(0, seat_holds(extra[i].generation));
    }
    const uint64_t lowest = pins[0].generation;
    shmc_unpin(reader, &pins[0]);
    shmc_unpin(reader, &extra[1]);
    shmc_unpin(reader, &extra[0]);
    CHECK_EQUAL(1, seat_holds_from(lowest)); /* protects what extra[2] reads */
    shmc_unpin(reader, &pins[7]);
    const struct shmc_pinned own = pin(); /* a slot is free: the latest gets its own */
    CHECK_EQUAL(1, seat_holds(own.generation));
    CHECK_EQUAL(extra[2].generation, own.generation);
    shmc_unpin(reader, &extra[2]);
    CHECK_EQUAL(0, seat_holds(lowest) + seat_holds_from(lowest));
    CHECK_EQUAL(1, seat_holds(own.generation));
    shmc_unpin(reader, &own);
    for (unsigned i = 1; i < SHMC_COUNTED_PINS; i++) {
        if (i != 7)
            shmc_unpin(reader, &pins[i]);
    }
    CHECK_EQUAL(0, shmc_reader_pins(reader));
}

static void test_revoked_slots_are_taken_over(void)
{
    struct shmc_pinned pins[SHMC_COUNTED_PINS], shared;

    for (unsigned i = 0; i < SHMC_COUNTED_PINS; i++) {
        fake_publish(&fake, shmc_reader_latest(reader) + 1);
        pins[i] = pin();
    }
    fake_publish(&fake, shmc_reader_latest(reader) + 1);
    shared = pin(); /* with pins[0] */
    const uint64_t latest = shmc_reader_latest(reader) + 1;
    fake_publish(&fake, latest);
    shmc_store_racy(&fake.super->kept[2], pins[5].generation);
    shmc_store_release(&fake.super->floor, pins[9].generation);
    CHECK(!shmc_valid(fake.super, pins[8].generation));
    const struct shmc_pinned fresh = pin();
    CHECK_EQUAL(1, seat_holds(latest));
    CHECK_EQUAL(1, seat_holds(pins[5].generation)); /* kept: still valid */
    CHECK_EQUAL(1, seat_holds(pins[9].generation));
    CHECK_EQUAL(0, seat_holds(pins[8].generation));
    for (unsigned i = 0; i < SHMC_COUNTED_PINS; i++) /* late unpins of the revoked do no harm */
        shmc_unpin(reader, &pins[i]);
    shmc_unpin(reader, &shared);
    CHECK_EQUAL(1, shmc_reader_pins(reader));
    CHECK_EQUAL(1, seat_holds(latest));
    shmc_unpin(reader, &fresh);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
}

static void test_a_quick_pin_is_held_only_while_it_is_used_and_can_move(void)
{
    struct shmc_pinned quick, next;

    CHECK_EQUAL(SHMC_OK, shmc_quick_root(reader, &quick));
    CHECK_EQUAL(1, seat_holds(quick.generation));
    shmc_quick_unpin(reader);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
    CHECK(shmc_quick_pin(reader, quick.generation));
    CHECK_EQUAL(1, seat_holds(quick.generation));
    fake_publish(&fake, quick.generation + 1);
    shmc_quick_keep(reader, &quick);
    CHECK_EQUAL(2, seat_holds(quick.generation)); /* always in one of them */
    CHECK_EQUAL(SHMC_OK, shmc_quick_root(reader, &next));
    CHECK_EQUAL(1, seat_holds(quick.generation));
    CHECK_EQUAL(1, seat_holds(next.generation));
    shmc_quick_unpin(reader);
    fake_publish(&fake, next.generation + 1);
    CHECK(!shmc_quick_pin(reader, next.generation)); /* overtaken */
    shmc_quick_unpin(reader);
    shmc_unpin(reader, &quick);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
}

static void test_a_moved_pin_below_a_full_row_protects_as_before(void)
{
    struct shmc_pinned pins[SHMC_COUNTED_PINS], quick;

    CHECK_EQUAL(SHMC_OK, shmc_quick_root(reader, &quick));
    for (unsigned i = 0; i < SHMC_COUNTED_PINS; i++) {
        fake_publish(&fake, shmc_reader_latest(reader) + 1);
        pins[i] = pin();
    }
    shmc_quick_keep(reader, &quick);
    shmc_quick_unpin(reader);
    CHECK_EQUAL(1, seat_holds_from(quick.generation)); /* in the lowest one's slot: for both */
    CHECK_EQUAL(0, seat_holds(pins[0].generation));
    shmc_unpin(reader, &quick);
    CHECK_EQUAL(1, seat_holds_from(quick.generation));
    for (unsigned i = 0; i < SHMC_COUNTED_PINS; i++)
        shmc_unpin(reader, &pins[i]);
    CHECK_EQUAL(0, shmc_reader_pins(reader));
}

static void check_refused_root(shmc_atomic *word, uint64_t wrong)
{
    struct shmc_pinned pinned = {.generation = 99};
    const uint64_t right = shmc_load_racy(word);

    shmc_store_racy(word, wrong);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_pin(reader, &pinned));
    CHECK_EQUAL(99, pinned.generation);
    CHECK_EQUAL(0, shmc_reader_pins(reader)); /* no pin is left */
    shmc_store_racy(word, right);
}

static void test_impossible_roots_are_refused(void)
{
    const uint64_t latest = shmc_reader_latest(reader);
    struct shmc_root *root = &fake.super->roots[latest & (SHMC_ROOTS - 1)];

    check_refused_root(&fake.super->latest, 0);
    check_refused_root(&root->generation, latest + SHMC_ROOTS);
    check_refused_root(&root->tail, latest + 1);
    check_refused_root(&root->head, latest + FAKE_RING_SLOTS);
    check_refused_root(&root->high_water, FAKE_BYTES + 8);
    check_refused_root(&root->slots, 0);
    check_refused_root(&root->slots, 1);
    check_refused_root(&root->slots, FAKE_RING_SLOTS - 1);
    check_refused_root(&root->slots, FAKE_RING_SLOTS * 2);
    const struct shmc_pinned pinned = pin();
    shmc_unpin(reader, &pinned);
}

static void test_span_never_exceeds_the_map(void)
{
    shmc_store_release(&fake.super->file_size, FAKE_BYTES * 100);
    const struct shmc_pinned pinned = pin();
    CHECK_EQUAL(FAKE_BYTES, reader->span.size);
    shmc_unpin(reader, &pinned);
    shmc_store_release(&fake.super->file_size, FAKE_BYTES);
}

/* Words of the superblock that were checked and change afterwards: nothing believes them. */
static void test_checked_words_are_not_believed_again(void)
{
    const uint64_t latest = shmc_load_acquire(&fake.super->latest);
    struct shmc_root *root = &fake.super->roots[latest & (SHMC_ROOTS - 1)];
    struct shmc_segment data = fake.data;
    struct shmc_reader *other;
    struct shmc_pinned pinned;
    struct shmc_delta deltas[4];
    size_t count;

    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&data, NULL, &other));
    fake.super->ring_slots = UINT64_C(1) << 28;
    shmc_store_racy(&root->slots, UINT64_C(1) << 28);
    shmc_store_racy(&root->head, UINT64_C(1) << 20);
    shmc_store_racy(&root->tail, UINT64_C(1) << 19);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_pin(other, &pinned));
    CHECK_EQUAL(SHMC_CORRUPT, shmc_quick_root(other, &pinned));
    fake.super->ring_slots = FAKE_RING_SLOTS;
    fake_root(fake.super, latest);
    CHECK_EQUAL(SHMC_OK, shmc_pin(other, &pinned));
    (void)shmc_ring_take(other, &pinned, pinned.tail, deltas, 4, &count);
    fake.super->arena_offset = 0;
    CHECK(!shmc_in_span(&other->span, SHMC_RING_OFFSET, 8));
    fake.super->arena_offset = SHMC_PAGE;
    shmc_unpin(other, &pinned);
    shmc_reader_destroy(other);
    data.file_size = FAKE_BYTES - SHMC_PAGE; /* the file is shorter than it promises */
    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&data, NULL, &other));
    shmc_store_racy(&root->high_water, FAKE_BYTES);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_pin(other, &pinned));
    CHECK(shmc_span_size(&other->span) < FAKE_BYTES);
    shmc_reader_destroy(other);
    fake_root(fake.super, latest);
}

static void test_tool_reads_without_a_seat(void)
{
    struct shmc_reader *tool;
    struct shmc_pinned pinned;

    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&fake.data, NULL, &tool));
    CHECK_EQUAL((uint64_t)-1, (uint64_t)shmc_reader_seat(tool));
    CHECK_EQUAL(SHMC_OK, shmc_pin(tool, &pinned));
    CHECK_EQUAL(SHMC_PINS, pinned.slot);
    shmc_unpin(tool, &pinned);
    CHECK_EQUAL(0, shmc_reader_pins(tool));
    shmc_reader_report(tool, 1, 2, 3, 4);
    shmc_reader_count_cut(tool);
    shmc_reader_destroy(tool);
    shmc_reader_destroy(NULL);
}

static void test_foreign_headers_are_refused(void)
{
    const uint8_t boot[16] = {0}, other[16] = {1};
    struct shmc_segment data = fake.data;
    struct shmc_super *super = fake.super;
    uint64_t instance = 0;

    CHECK_EQUAL(SHMC_OK, shmc_data_check_header(&data, boot, &instance));
    CHECK_EQUAL(7, instance);
    CHECK_EQUAL(SHMC_VERSION, shmc_data_check_header(&data, other, &instance));
    super->layout_version++;
    CHECK_EQUAL(SHMC_VERSION, shmc_data_check_header(&data, boot, &instance));
    super->layout_version--;
    super->layout_signature++;
    CHECK_EQUAL(SHMC_VERSION, shmc_data_check_header(&data, boot, &instance));
    super->layout_signature--;
    super->magic++;
    CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
    super->magic--;
    const uint64_t slots[] = {0, 1, 3, 12, FAKE_RING_SLOTS << 20, UINT64_C(1) << 63};
    for (unsigned i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        super->ring_slots = slots[i];
        CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
    }
    super->ring_slots = FAKE_RING_SLOTS;
    super->arena_offset += 8;
    CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
    super->arena_offset -= 8;
    super->max_size = FAKE_BYTES - 1; /* below file_size */
    CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
    super->max_size = FAKE_BYTES;
    data.file_size = FAKE_BYTES - 1; /* truncated */
    CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
    data.file_size = 100;
    CHECK_EQUAL(SHMC_CORRUPT, shmc_data_check_header(&data, boot, &instance));
}

static void store(shmc_offset offset, uint64_t word)
{
    shmc_word_store(fake.data.base + offset, word);
}

static void test_records(void)
{
    const struct shmc_span span = {.base = fake.data.base, .size = FAKE_BYTES,
                                    .first = SHMC_RING_OFFSET};
    const shmc_offset catalogue = SHMC_PAGE, block = SHMC_PAGE + 64;
    const struct shmc_pinned at = {.catalogue = catalogue}, none = {.catalogue = 0};
    struct shmc_record record;
    struct shmc_record_index index;
    shmc_offset indices = 0;
    uint64_t count = 0;

    CHECK_EQUAL(SHMC_OK, shmc_catalogue_count(&span, &none, &count));
    CHECK_EQUAL(0, count);
    store(catalogue, 1);
    store(catalogue + 8, block);
    for (unsigned i = 0; i < 20; i++)
        store(block + i * 8, 100 + i);
    store(block + offsetof(struct shmc_record, contact), block);
    store(block + offsetof(struct shmc_record, primary), SHMC_PAGE);
    store(block + offsetof(struct shmc_record, index_count), 2);
    store(block + sizeof record + sizeof index + offsetof(struct shmc_record_index, tree), 0);
    CHECK_EQUAL(SHMC_OK, shmc_catalogue_count(&span, &at, &count));
    CHECK_EQUAL(1, count);
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_record_load(&span, &at, 1, &record, &indices));
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&span, &at, 0, &record, &indices));
    CHECK_EQUAL(100, record.name);
    CHECK_EQUAL(105, record.count);
    CHECK_EQUAL(block + sizeof record, indices);
    CHECK_EQUAL(SHMC_OK, shmc_record_index_load(&span, indices, 1, &index));
    CHECK_EQUAL(100 + sizeof record / 8 + 4, index.name);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_record_index_load(&span, indices, 0, &index));  /* tree: no offset */
    CHECK_EQUAL(SHMC_NOT_FOUND, shmc_record_index_load(&span, indices, SHMC_MAX_INDICES, &index));
    store(block + offsetof(struct shmc_record, contact), FAKE_BYTES - sizeof(struct shmc_contact) + 8);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_record_load(&span, &at, 0, &record, &indices));
    store(block + offsetof(struct shmc_record, contact), FAKE_BYTES - sizeof(struct shmc_contact));
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&span, &at, 0, &record, &indices));
    store(block + offsetof(struct shmc_record, index_count), SHMC_MAX_INDICES + 1);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_record_load(&span, &at, 0, &record, &indices));
    store(catalogue, SHMC_MAX_RESOURCES + 1);
    CHECK_EQUAL(SHMC_CORRUPT, shmc_catalogue_count(&span, &at, &count));
}

/* A word that may be an offset of something, or nearly, or nonsense. */
static uint64_t dubious(uint64_t *random)
{
    const uint64_t word = test_random(random);

    if (word % 4 == 0)
        return word;
    return word % 4 == 1 ? word % 64 : (word >> 8) % (FAKE_BYTES / 8 + 4) * 8;
}

/* On memory of exactly the size: the sanitizer sees a byte too far. */
static void test_any_bytes_are_survived(void)
{
    const struct shmc_span span = {.base = fake.data.base, .size = FAKE_BYTES,
                                    .first = SHMC_RING_OFFSET};
    uint64_t random = test_random_state(5), loaded = 0;

    for (unsigned round = 0; round < 2000; round++) {
        const struct shmc_pinned at = {.catalogue = dubious(&random)};
        struct shmc_record record;
        struct shmc_record_index index;
        struct shmc_note note;
        shmc_offset indices = 0;

        for (shmc_offset offset = SHMC_PAGE; offset < FAKE_BYTES; offset += 8)
            store(offset, dubious(&random));
        for (uint64_t id = 0; id < 8; id++) {
            if (shmc_record_load(&span, &at, id, &record, &indices) != SHMC_OK)
                continue;
            for (uint64_t i = 0; i < record.index_count; i++)
                (void)shmc_record_index_load(&span, indices, i, &index);
            CHECK_EQUAL(SHMC_OK, shmc_contact_load(&span, record.contact, &note));
            loaded++;
        }
        (void)shmc_record_index_load(&span, dubious(&random), dubious(&random), &index);
        (void)shmc_contact_load(&span, dubious(&random), &note);
    }
    CHECK(loaded > 0);
}

static struct test_team team;
static uint64_t risen;

/* Raises the word to values of its own, each of which it must find there afterwards. */
static void *raise_word(void *argument)
{
    const uint64_t *offset = argument;

    pthread_barrier_wait(&team.start);
    for (uint64_t i = 1; i <= 200000; i++) {
        const uint64_t value = i * 4 + *offset;
        shmc_rise(&risen, value);
        CHECK(shmc_risen(&risen) >= value); /* PIN9 */
    }
    return NULL;
}

/* A thread that pins an older root must not lower what a younger one has found. */
static void test_a_span_only_rises_whichever_threads_pin(void)
{
    uint64_t offsets[4] = {0, 1, 2, 3};
    void *arguments[4] = {&offsets[0], &offsets[1], &offsets[2], &offsets[3]};

    test_team_start(&team, 4, raise_word, arguments);
    test_team_join(&team);
    CHECK_EQUAL(800003, shmc_risen(&risen));
}

int main(void)
{
    test_start("test_reader");
    fake_create(&fake, 2);
    CHECK_EQUAL(SHMC_OK, fake_attach(&fake, &reader));
    test_generation_is_held_until_its_last_user_is_gone();
    test_overflow_shares_the_lowest();
    test_a_quick_pin_is_held_only_while_it_is_used_and_can_move();
    test_a_moved_pin_below_a_full_row_protects_as_before();
    test_revoked_slots_are_taken_over();
    test_impossible_roots_are_refused();
    test_span_never_exceeds_the_map();
    test_checked_words_are_not_believed_again();
    test_a_span_only_rises_whichever_threads_pin();
    test_tool_reads_without_a_seat();
    test_foreign_headers_are_refused();
    fake_detach(reader);
    test_records();
    test_any_bytes_are_survived();
    fake_destroy(&fake);
    return 0;
}
