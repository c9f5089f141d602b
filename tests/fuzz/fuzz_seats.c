/*
 * With any write into SEATS at any time, the writer publishes, reclaims and tends on, its
 * tables stay whole, and no reader accepts a value that its generation does not hold.
 *
 * The input is a row of steps of eleven bytes: an action, and an offset and a value for writes
 * into SEATS.
 */
#include "core_fixture.h"

#define SEATS 3u
#define KEYS 6u
#define HELD 8u
#define STEP 11u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct core core;
static uint32_t resource;
static struct shmc_reader *reader;
static struct held {
    struct shmc_pinned at;
    shmc_word value;
    uint64_t number;
} held[HELD];
static unsigned held_count;
static uint64_t numbers[KEYS], next_number, now_ns;

static void put(unsigned k)
{
    char key[8], text[96];

    snprintf(key, sizeof key, "k%u", k);
    snprintf(text, sizeof text, "{n: %" PRIu64 ", text: 'as long as it has to be: %" PRIu64 "'}",
             next_number, next_number);
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, resource, key, text, NULL));
    now_ns += 300000;
    CHECK_EQUAL(SHMC_OK, shmc_commit(core.writer, now_ns));
    numbers[k] = next_number++;
}

static bool says(const struct held *view)
{
    return shmc_object_find(&reader->span, view->value, (const uint8_t *)"n", 1) ==
           shmc_integer_word((int64_t)view->number);
}

/* G2: a valid value is correct. */
static void look(void)
{
    for (unsigned i = 0; i < held_count; i++) {
        const bool whole = says(&held[i]);
        CHECK(whole || !shmc_valid(reader->super, held[i].at.generation));
    }
}

static void hold(unsigned k)
{
    struct held *view = &held[held_count];
    struct shmc_record record;
    struct shmc_entry entry;
    shmc_offset indices;
    char key[8];

    if (held_count == HELD || shmc_pin(reader, &view->at) != SHMC_OK)
        return;
    const size_t length = (size_t)snprintf(key, sizeof key, "k%u", k);
    CHECK_EQUAL(SHMC_OK, shmc_record_load(&reader->span, &view->at, resource, &record, &indices));
    CHECK_EQUAL(SHMC_OK, shmc_tree_find(&reader->span, &shmc_primary, record.primary,
                                        (const uint8_t *)key, length, &entry));
    view->value = entry.words[1];
    view->number = numbers[k];
    held_count++;
    CHECK(says(view));
}

static void let_go(unsigned i)
{
    if (held_count == 0)
        return;
    i %= held_count;
    shmc_unpin(reader, &held[i].at);
    held[i] = held[--held_count];
}

static void scribble(const uint8_t *step)
{
    uint16_t at;
    uint64_t value;
    const size_t size = (size_t)shmc_seats_size(SEATS);

    memcpy(&at, step + 1, 2);
    memcpy(&value, step + 3, 8);
    if (step[0] & 0x40) /* something like a pin */
        value = (value & SHMC_PIN_OPEN) | value % (core_stats(&core).generation + 3);
    if (step[0] & 0x80)
        memset(core.seats.base, 0, size);
    else if (step[0] & 0x20) /* in a seat, not in the header */
        memcpy(core.seats.base + SHMC_SEATS_OFFSET + at % (SEATS * 32) * 8, &value, 8);
    else
        memcpy(core.seats.base + at % (size / 8) * 8, &value, 8);
}

static void begin(void)
{
    core_create_seeded(&core, (struct core_options){.size = UINT64_C(512) << 10, .ring_slots = 16,
                                                    .ring_bytes = 1, .garbage_bytes = 8 << 10,
                                                    .seat_count = SEATS}, 1);
    resource = core_declare(&core, "things");
    next_number = now_ns = held_count = 0;
    reader = core_attach(&core);
    for (unsigned k = 0; k < KEYS; k++)
        put(k);
}

static void end(void)
{
    while (held_count > 0)
        let_go(0);
    core_detach(reader);
    memset(core.seats.base + SHMC_SEATS_OFFSET, 0, SEATS * sizeof(struct shmc_seat));
    core_check_nothing_leaked(&core);
    core_destroy(&core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    for (size_t at = 0; at + STEP <= size; at += STEP) {
        const uint8_t *step = data + at;

        switch (step[0] % 8) {
        case 0:
        case 1:
            put(step[1] % KEYS);
            break;
        case 2:
            CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
            break;
        case 3:
            now_ns += UINT64_C(200000000);
            CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, now_ns));
            break;
        case 4:
            hold(step[1] % KEYS);
            break;
        case 5:
            let_go(step[1]);
            break;
        default:
            scribble(step);
        }
        look();
    }
    core_check(&core);
    end();
    return 0;
}
