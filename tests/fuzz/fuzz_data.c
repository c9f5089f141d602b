/*
 * With any DATA when a reader attaches, or when a writer wants to continue in it, every way of
 * reading ends, with an answer or an error, and reads nothing outside. AddressSanitizer sees the
 * one, libFuzzer's -timeout the other.
 *
 * The input is a list of changes to the image of a small cache that was whole: a word is set, or
 * changed by one bit or by little, or becomes a copy of another (cycles, two parents). The first
 * byte chooses what follows: the image is read in every way the core has (look-ups, scans of all
 * trees, records, differences, deltas, the survey; by pins and by the quick way), or taken over,
 * written and verified; and whether the changes are made before that, or one after the other while
 * it is read.
 */
#include "core_fixture.h"
#include "trees/tree.h"

#define KEYS 40u
#define NODES 20000u /* of values, to walk: a few blocks may expand without end */
#define TAKEOVER 1u
#define WHILE_READ 2u
#define SUPER_WORDS 512u /* where half of the changes go that are made while DATA is read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *image; /* as it was */
static size_t image_size;
static uint8_t *changed; /* as it is read: the image, changed */
static uint64_t old_primary; /* of a generation that is still held */

static void fill(struct core *core, uint32_t pods, unsigned round)
{
    char key[32], text[256];

    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "namespace-%u/pod-%u", i % 3, i);
        snprintf(text, sizeof text,
                 "{metadata: {name: 'pod-%u', labels: {app: 'web-%u', tier: 'a'}}, n: %u, "
                 "list: [1, 2.5, null, true, 'a longer string, number %u', [], {}, [[['deep']]]], "
                 "spec: {nodeName: 'node-%u'}}", i, i % 4, i, i + round, i % 5);
        if (round == 0 || i % 2 == 0)
            core_put_now(core, pods, key, text);
    }
}

static void make_image(void)
{
    static struct core core;

    core_create_seeded(&core, (struct core_options){.size = UINT64_C(512) << 10, .ring_slots = 64}, 1);
    const uint32_t pods = core_declare(&core, "pods");
    core_index(&core, pods, "node", "spec.nodeName");
    core_index(&core, pods, "label", "metadata.labels");
    fill(&core, pods, 0);
    old_primary = core_primary(&core, pods);
    core_pin(&core, 0, core_stats(&core).generation);
    fill(&core, pods, 1);
    core_delete_now(&core, pods, "namespace-0/pod-3");
    core_check(&core);
    image_size = core.data.max_size;
    image = malloc(image_size);
    CHECK(image != NULL);
    memcpy(image, core.data.base, image_size);
    changed = aligned_alloc(64, image_size); /* exactly as long: one byte too many is seen */
    CHECK(changed != NULL);
    memcpy(changed, image, image_size);
    core_destroy(&core);
}

/* ---- changes ------------------------------------------------------------------------------------- */

static uint8_t *word_at(const uint8_t *data)
{
    uint16_t at;

    memcpy(&at, data, 2);
    if (at & 0x8000u) /* the superblock is small, and its words matter most */
        return changed + at % SUPER_WORDS * 8;
    return changed + at % (image_size / 8) * 8;
}

static size_t change(const uint8_t *data, size_t size)
{
    uint16_t from;
    uint64_t value, old;

    if (size < 12)
        return size;
    memcpy(&from, data + 2, 2);
    memcpy(&value, data + 4, 8);
    const size_t words = image_size / 8;
    uint8_t *word = word_at(data);
    memcpy(&old, word, 8);
    switch (value >> 61) {
    case 0:
        old ^= UINT64_C(1) << (value & 63);
        break;
    case 1:
        old += (value & 0xff) - 128;
        break;
    case 2:
    case 3:
        memcpy(&old, changed + from % words * 8, 8);
        break;
    case 4:
        old = (old & 7u) | (uint64_t)from << 3; /* the same kind of thing, elsewhere */
        break;
    case 5:
        old = value & 0xff;
        break;
    default:
        old = value << 3;
    }
    memcpy(word, &old, 8);
    return 12;
}

/* The changes that are left, one at every few steps of the reader. */
static const uint8_t *next_change;
static size_t changes_left; /* bytes */
static unsigned steps;

static void step(void)
{
    if (changes_left < 12 || ++steps % 8 != 0)
        return;
    const size_t used = change(next_change, changes_left);
    next_change += used;
    changes_left -= used;
}

/* Restores the image; reading changed nothing else in it. */
static void change_back(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 12 <= size; at += 12)
        memcpy(word_at(data + at), image + (word_at(data + at) - changed), 8);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void walk_value(const struct shmc_span *span, shmc_word word, unsigned depth,
                       unsigned *budget)
{
    struct shmc_string string;
    struct shmc_array array;
    struct shmc_object object;
    uint64_t kind, bits;
    uint8_t bytes[256];

    step();
    if (depth > 64 || *budget == 0)
        return;
    --*budget;
    if (shmc_string_open(span, word, &string)) {
        const uint32_t part = string.length < sizeof bytes ? string.length : sizeof bytes;
        shmc_string_copy(span, &string, string.length - part, part, bytes);
        (void)shmc_string_compare(span, &string, 0, part, bytes);
        (void)shmc_string_be64(span, &string, part / 2);
        (void)shmc_shard_hash(span, word);
    } else if (shmc_number_open(span, word, &kind, &bits)) {
        char text[SHMC_TEXT_MAX];
        (void)shmc_number_text(span, word, text);
    } else if (shmc_tag(word) == SHMC_TAG_ARRAY && shmc_array_open(span, word, &array)) {
        for (uint64_t i = 0; i < array.count && *budget > 0; i++)
            walk_value(span, shmc_load_at(span, array.words + i * 8), depth + 1, budget);
    } else if (shmc_tag(word) == SHMC_TAG_OBJECT && shmc_object_open(span, word, &object)) {
        (void)shmc_object_find(span, word, (const uint8_t *)"spec", 4);
        for (uint64_t i = 0; i < object.count && *budget > 0; i++) {
            walk_value(span, shmc_object_key(span, &object, i), depth + 1, budget);
            walk_value(span, shmc_load_at(span, object.words + i * 8), depth + 1, budget);
        }
    }
}

static void scan(const struct shmc_span *span, const struct shmc_tree_kind *kind, shmc_offset top,
                 const char *from, unsigned *budget)
{
    struct shmc_cursor cursor;
    struct shmc_entry entry;

    if (shmc_cursor_seek(&cursor, span, kind, top, (const uint8_t *)from, strlen(from)) != SHMC_OK)
        return;
    for (unsigned i = 0; i < 4 * KEYS && shmc_cursor_next(&cursor, &entry) == SHMC_OK; i++) {
        for (unsigned k = 0; k < kind->key_words + kind->payload_words; k++)
            walk_value(span, entry.words[k], 0, budget);
    }
}

static void look_up(const struct shmc_reader *reader, const struct shmc_record *record,
                    unsigned *budget)
{
    char key[32];
    struct shmc_entry entry;
    shmc_word value;

    for (unsigned i = 0; i < KEYS; i += 3) {
        step();
        const int length = snprintf(key, sizeof key, "namespace-%u/pod-%u", i % 3, i);
        const uint8_t *bytes = (const uint8_t *)key;
        if (shmc_tree_find(&reader->span, &shmc_primary, record->primary, bytes, (size_t)length,
                           &entry) == SHMC_OK)
            walk_value(&reader->span, entry.words[1], 0, budget);
        if (shmc_directory_find(&reader->span, record->directory,
                                shmc_key_hash(reader->super->hash_key, bytes, (size_t)length),
                                bytes, (size_t)length, &value) == SHMC_OK)
            walk_value(&reader->span, value, 0, budget);
    }
}

static void read_record(const struct shmc_reader *reader, const struct shmc_pinned *at, uint64_t id)
{
    const struct shmc_span *span = &reader->span;
    unsigned budget = NODES;
    struct shmc_record record;
    struct shmc_record_index index;
    struct shmc_diff diff;
    struct shmc_difference found;
    struct shmc_note note;
    shmc_offset indices;

    if (shmc_record_load(span, at, id, &record, &indices) != SHMC_OK)
        return;
    walk_value(span, record.name, 0, &budget);
    walk_value(span, record.settings, 0, &budget);
    walk_value(span, record.version, 0, &budget);
    walk_value(span, record.reason, 0, &budget);
    walk_value(span, record.listed, 0, &budget);
    walk_value(span, record.marks, 0, &budget);
    (void)shmc_contact_load(span, record.contact, &note);
    look_up(reader, &record, &budget);
    scan(span, &shmc_primary, record.primary, "", &budget);
    scan(span, &shmc_primary, record.primary, "namespace-1/", &budget);
    for (uint64_t i = 0; i < record.index_count; i++) {
        if (shmc_record_index_load(span, indices, i, &index) != SHMC_OK)
            continue;
        walk_value(span, index.settings, 0, &budget);
        scan(span, &shmc_index, index.tree, "", &budget);
        scan(span, &shmc_index, index.tree, "node-1", &budget);
        scan(span, &shmc_index, index.tree, "app=web-2", &budget);
    }
    shmc_diff_open(&diff, span, old_primary, record.primary, record.count + KEYS);
    for (unsigned i = 0; i < 4 * KEYS && shmc_diff_next(&diff, &found) == SHMC_OK; i++) {
        walk_value(span, found.key, 0, &budget);
        walk_value(span, found.new_value, 0, &budget);
    }
}

static void survey(struct shmc_reader *reader)
{
    struct shmc_survey found;
    struct shmc_survey_row rows[2];
    char what[128];

    (void)shmc_survey(reader, &found, rows, 2, what, sizeof what);
}

/* As between two look-ups, where nothing is pinned until a view needs it. */
static void read_quickly(struct shmc_reader *reader)
{
    struct shmc_pinned at;

    if (shmc_quick_root(reader, &at) != SHMC_OK)
        return;
    read_record(reader, &at, 0);
    shmc_quick_unpin(reader);
}

static void read_all(struct shmc_segment *data)
{
    struct shmc_data_info info;
    struct shmc_reader *reader;
    struct shmc_pinned at;
    struct shmc_delta deltas[16];
    unsigned budget = NODES;
    size_t count = 0;

    if (shmc_reader_create(data, NULL, &reader) != SHMC_OK)
        return;
    for (unsigned i = 0; i < 40 * 8; i++) { /* words that are checked once, and then change */
        struct shmc_pinned again;
        step();
        if (shmc_pin(reader, &again) != SHMC_OK)
            continue;
        (void)shmc_ring_take(reader, &again, again.tail, deltas, 16, &count);
        shmc_unpin(reader, &again);
    }
    if (shmc_pin(reader, &at) == SHMC_OK) {
        for (uint64_t id = 0; id < 3; id++)
            read_record(reader, &at, id);
        if (shmc_ring_take(reader, &at, at.tail, deltas, 16, &count) == SHMC_OK) {
            for (size_t i = 0; i < count; i++) {
                walk_value(&reader->span, deltas[i].key, 0, &budget);
                walk_value(&reader->span, deltas[i].old_value, 0, &budget);
                walk_value(&reader->span, deltas[i].new_value, 0, &budget);
            }
        }
        shmc_unpin(reader, &at);
    }
    read_quickly(reader);
    survey(reader);
    shmc_data_info(data, &info);
    shmc_reader_destroy(reader);
}

/* Every kind of change, each alone: what one of them meets ends that one. */
static void write_on(struct core *core)
{
    static const char *const values[] = {
        "{a: [1, 'some longer text', {b: null}]}",
        "{metadata: {name: 'pod-1', labels: {app: 'web-9'}}, spec: {nodeName: 'node-9'}}"};
    static const char *const keys[] = {"new", "namespace-1/pod-1", "namespace-0/pod-39"};
    uint32_t index;

    for (unsigned step = 0; step < 7; step++) {
        enum shmc_status status = shmc_begin(core->writer);
        if (status != SHMC_OK)
            return;
        if (step < 3)
            status = core_put(core, 0, keys[step], values[step % 2], "5");
        else if (step == 3)
            status = core_delete(core, 0, keys[1]);
        else if (step == 4)
            status = shmc_drop_index(core->writer, 0, "node", 4);
        else if (step == 5)
            status = shmc_declare_index(core->writer, 0, "late", 4, "metadata.name", 13, &index);
        else
            status = shmc_retire_resource(core->writer, 0);
        if (status != SHMC_OK || shmc_commit(core->writer, 0) != SHMC_OK)
            (void)shmc_abort(core->writer);
    }
}

/* A segment that passes verification can be written. */
static void take_over(struct shmc_segment *data)
{
    const struct shmc_writer_settings settings = {
        .max_size = data->max_size, .ring_slots = 64, .instance = 7, .seed = 11};
    struct shmc_writer *writer;
    struct core core = {.data = *data};
    char what[128];

    if (shmc_writer_takeover(data, NULL, &settings, what, sizeof what, &writer) != SHMC_OK)
        return;
    core.writer = writer;
    write_on(&core);
    (void)shmc_drop_window(writer);
    (void)shmc_reclaim(writer);
    (void)shmc_check(writer, what, sizeof what);
    shmc_writer_destroy(writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (image == NULL)
        make_image();
    if (size == 0)
        return 0;
    changes_left = 0;
    for (size_t at = 1, used = 0; at < size && !(data[0] & WHILE_READ); at += used)
        used = change(data + at, size - at);
    struct shmc_segment segment = {.base = changed, .max_size = image_size,
                                   .file_size = image_size, .fd = -1, .writable = 1};
    if (data[0] & TAKEOVER) {
        take_over(&segment);
        memcpy(changed, image, image_size);
    } else {
        next_change = data + 1;
        changes_left = data[0] & WHILE_READ ? size - 1 : 0;
        steps = 0;
        read_all(&segment);
        change_back(data + 1, size - 1);
    }
    return 0;
}
