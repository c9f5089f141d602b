/*
 * core_fixture.c - see core_fixture.h.
 */
#include "core_fixture.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>

/* ---- lifetime ------------------------------------------------------------------------------ */

static void segment_memory(struct shmc_segment *segment, uint64_t size, int fd)
{
    void *memory = aligned_alloc(64, size);

    CHECK(memory != NULL);
    memset(memory, 0, size);
    *segment = (struct shmc_segment){
        .base = memory, .max_size = size, .file_size = size, .fd = fd, .writable = 1};
}

void core_create_seeded(struct core *core, struct core_options options, uint64_t seed)
{
    struct shmc_writer_settings settings = {
        .max_size = (options.size + SHMC_PAGE - 1) / SHMC_PAGE * SHMC_PAGE,
        .ring_slots = options.ring_slots != 0 ? options.ring_slots : 64,
        .ring_first = options.ring_first,
        .ring_bytes = options.ring_bytes,
        .garbage_bytes = options.garbage_bytes,
        .instance = 7,
        .seats_instance = 9,
        .seed = 11,
    };

    test_seed = seed;
    memset(core, 0, sizeof *core);
    core->ring_bytes = options.ring_bytes;
    core->garbage_bytes = options.garbage_bytes;
    core->seat_count = options.seat_count != 0 ? options.seat_count : 4;
    segment_memory(&core->data, settings.max_size, -1);
    segment_memory(&core->seats, shmc_seats_size(core->seat_count),
                   memfd_create("seats", MFD_CLOEXEC));
    CHECK_EQUAL(0, ftruncate(core->seats.fd, (off_t)core->seats.max_size)); /* or it were to be mended */
    CHECK_EQUAL(SHMC_OK, shmc_data_format(&core->data, &settings));
    CHECK_EQUAL(SHMC_OK, shmc_seats_format(&core->seats, core->seat_count, 9));
    CHECK_EQUAL(SHMC_OK, shmc_writer_create(&core->data, &core->seats, &settings, &core->writer));
}

void core_destroy(struct core *core)
{
    if (core->writer != NULL)
        shmc_writer_destroy(core->writer); /* asserts that its heap is empty */
    if (core->seats.fd >= 0)
        close(core->seats.fd);
    free(core->data.base);
    free(core->seats.base);
}

enum shmc_status core_try_take_over(struct core *core, char *what)
{
    const struct shmc_super *super = (const struct shmc_super *)(const void *)core->data.base;
    static uint64_t seed = 12;
    const struct shmc_writer_settings settings = {
        .max_size = super->max_size,
        .ring_slots = super->ring_slots,
        .ring_bytes = core->ring_bytes,
        .garbage_bytes = core->garbage_bytes,
        .instance = 7,
        .seats_instance = 9,
        .seed = seed++,
    };

    if (core->writer != NULL)
        shmc_writer_destroy(core->writer); /* stores nothing in DATA */
    core->writer = NULL;
    return shmc_writer_takeover(&core->data, &core->seats, &settings, what, 200, &core->writer);
}

void core_take_over(struct core *core)
{
    char what[200];
    const enum shmc_status status = core_try_take_over(core, what);

    if (status != SHMC_OK) {
        fprintf(stderr, "%s: %s\n", shmc_status_text(status), what);
        test_fail(__FILE__, __LINE__, "a cache is taken over");
    }
    core_check(core);
}

struct shmc_stats core_stats(const struct core *core)
{
    struct shmc_stats stats;

    shmc_writer_stats(core->writer, &stats);
    return stats;
}

void core_check(const struct core *core)
{
    const struct shmc_writer *writer = core->writer;
    uint64_t charged = 0;
    char what[200];

    if (shmc_check(writer, what, sizeof what) != SHMC_OK) {
        fprintf(stderr, "%s\n", what);
        test_fail(__FILE__, __LINE__, "shmc_check is OK");
    }
    for (uint64_t n = writer->tail; n < writer->head; n++)
        charged += writer->charges[n & writer->ring_mask];
    CHECK_EQUAL(charged, writer->charged);
}

void core_check_nothing_leaked(struct core *core)
{
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core->writer));
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core->writer));
    const struct shmc_stats stats = core_stats(core);
    CHECK_EQUAL(0, stats.limbo_bytes);
    CHECK_EQUAL(stats.head, stats.tail);
    CHECK_EQUAL(stats.high_water_bytes, stats.reachable_bytes + stats.free_bytes);
    core_check(core);
}

/* ---- readers ------------------------------------------------------------------------------- */

struct shmc_reader *core_attach(const struct core *core)
{
    struct shmc_segment seats = core->seats;
    struct shmc_reader *reader = NULL;
    char path[64];

    if (seats.fd < 0)
        test_skip("no memfd_create");
    snprintf(path, sizeof path, "/proc/self/fd/%d", seats.fd);
    seats.fd = open(path, O_RDWR | O_CLOEXEC); /* a description of its own */
    CHECK(seats.fd >= 0);
    CHECK_EQUAL(SHMC_OK, shmc_reader_create(&core->data, &seats, &reader));
    return reader;
}

void core_detach(struct shmc_reader *reader)
{
    const int fd = reader->seat_fd;

    shmc_reader_destroy(reader);
    close(fd);
}

void core_pin(struct core *core, unsigned slot, uint64_t generation)
{
    struct shmc_seats_header *header = (struct shmc_seats_header *)(void *)core->seats.base;
    struct shmc_seat *seat = shmc_seat_at(&core->seats, core->seat_count - 1);

    shmc_store_racy(&header->high, core->seat_count);
    shmc_store_release(&seat->pins[slot], generation);
}

/* ---- batches ------------------------------------------------------------------------------- */

void core_begin(struct core *core)
{
    CHECK_EQUAL(SHMC_OK, shmc_begin(core->writer));
}

void core_commit(struct core *core)
{
    CHECK_EQUAL(SHMC_OK, shmc_commit(core->writer, 0));
}

uint32_t core_declare(struct core *core, const char *name)
{
    uint32_t id = UINT32_MAX;

    core_begin(core);
    CHECK_EQUAL(SHMC_OK, shmc_declare_resource(core->writer, name, strlen(name), &id));
    core_commit(core);
    return id;
}

uint32_t core_index(struct core *core, uint32_t resource, const char *name, const char *path)
{
    uint32_t number = UINT32_MAX;

    core_begin(core);
    CHECK_EQUAL(SHMC_OK,
                shmc_declare_index(core->writer, resource, name, strlen(name), path,
                                   path != NULL ? strlen(path) : 0, &number));
    core_commit(core);
    return number;
}

enum shmc_status core_put_word(struct core *core, uint32_t resource, const void *key,
                               size_t length, shmc_word value)
{
    const struct shmc_change change = {
        .resource = resource, .key = key, .key_length = length, .value = value};

    return shmc_put(core->writer, &change);
}

enum shmc_status core_put(struct core *core, uint32_t resource, const char *key, const char *value,
                          const char *version)
{
    struct shmc_change change = {
        .resource = resource, .key = (const uint8_t *)key, .key_length = strlen(key)};
    shmc_word current;

    if (core->writer->batch_changes % 2 == 0) { /* every other time: look up first, then build */
        const enum shmc_status looked =
            shmc_current(core->writer, resource, change.key, change.key_length, &current);
        change.looked_up = looked == SHMC_OK || looked == SHMC_NOT_FOUND;
    }
    enum shmc_status status = core_value(core, value, &change.value);

    if (status == SHMC_OK && version != NULL)
        status = core_bytes(core, version, strlen(version), &change.version);
    return status == SHMC_OK ? shmc_put(core->writer, &change) : status;
}

enum shmc_status core_delete(struct core *core, uint32_t resource, const char *key)
{
    return shmc_delete(core->writer, resource, key, strlen(key), NULL, 0, 0);
}

void core_put_now(struct core *core, uint32_t resource, const char *key, const char *value)
{
    core_begin(core);
    CHECK_EQUAL(SHMC_OK, core_put(core, resource, key, value, NULL));
    core_commit(core);
}

void core_delete_now(struct core *core, uint32_t resource, const char *key)
{
    core_begin(core);
    CHECK_EQUAL(SHMC_OK, core_delete(core, resource, key));
    core_commit(core);
}

shmc_offset core_primary(const struct core *core, uint32_t resource)
{
    return core->writer->resources[resource].now.primary;
}

shmc_offset core_tree(const struct core *core, uint32_t resource, uint32_t index)
{
    return core->writer->resources[resource].indices[index].tree;
}

/* ---- values from text ------------------------------------------------------------------------ */

#define CORE_MEMBERS 64u

enum shmc_status core_bytes(struct core *core, const void *bytes, size_t length, shmc_word *word)
{
    uint32_t flags;

    CHECK(shmc_string_flags(bytes, length, &flags));
    return shmc_make_string(core->writer, bytes, length, flags, word);
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == ',' || *at == ':')
        at++;
    return at;
}

static enum shmc_status read_value(struct core *core, const char **text, shmc_word *word);

/* 'anything but a quote', or a plain name. */
static enum shmc_status read_text(struct core *core, const char **text, shmc_word *word)
{
    const char *start = *text;
    const bool quoted = *start == '\'';
    const size_t length = strcspn(start + quoted, quoted ? "'" : " :,]}");

    *text = start + length + (quoted ? 2 : 0);
    return core_bytes(core, start + quoted, length, word);
}

static enum shmc_status read_number(struct core *core, const char **text, shmc_word *word)
{
    char *end;
    const long long integer = strtoll(*text, &end, 10);

    if (*end != '.' && *end != 'e') {
        *text = end;
        return shmc_make_number(core->writer, SHMC_NUMBER_INT64, (uint64_t)integer, word);
    }
    const double number = strtod(*text, &end);
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    *text = end;
    return shmc_make_number(core->writer, SHMC_NUMBER_DOUBLE, bits, word);
}

static enum shmc_status read_container(struct core *core, const char **text, bool object,
                                       shmc_word *word)
{
    shmc_word keys[CORE_MEMBERS], words[CORE_MEMBERS];
    enum shmc_status status = SHMC_OK;
    size_t count = 0;
    shmc_offset shape = 0;

    for (++*text; status == SHMC_OK; count++) {
        *text = skip_blanks(*text);
        if (**text == (object ? '}' : ']'))
            break;
        CHECK(count < CORE_MEMBERS && **text != 0);
        if (object)
            status = read_text(core, text, &keys[count]);
        *text = skip_blanks(*text);
        if (status == SHMC_OK)
            status = read_value(core, text, &words[count]);
    }
    if (status != SHMC_OK)
        return status;
    ++*text;
    if (!object)
        return shmc_make_array(core->writer, words, count, word);
    if (count > 0)
        status = shmc_make_shape(core->writer, keys, count, &shape);
    return status == SHMC_OK ? shmc_make_object(core->writer, shape, words, count, word) : status;
}

static enum shmc_status read_value(struct core *core, const char **text, shmc_word *word)
{
    static const struct {
        const char *name;
        shmc_word word;
    } constants[] = {{"null", SHMC_NULL}, {"true", SHMC_TRUE}, {"false", SHMC_FALSE}};
    const char first = **text;

    if (first == '{' || first == '[')
        return read_container(core, text, first == '{', word);
    if (first == '-' || (first >= '0' && first <= '9'))
        return read_number(core, text, word);
    for (size_t i = 0; i < 3; i++) {
        const size_t length = strlen(constants[i].name);
        if (strncmp(*text, constants[i].name, length) == 0) {
            *text += length;
            *word = constants[i].word;
            return SHMC_OK;
        }
    }
    CHECK(first == '\'');
    return read_text(core, text, word);
}

enum shmc_status core_value(struct core *core, const char *text, shmc_word *word)
{
    const char *at = skip_blanks(text);

    return read_value(core, &at, word);
}

/* ---- text from values ------------------------------------------------------------------------ */

size_t core_text(const struct shmc_span *span, shmc_word word, uint8_t *to, size_t room)
{
    struct shmc_string string;

    CHECK(shmc_string_open(span, word, &string));
    CHECK(string.length <= room);
    shmc_string_copy(span, &string, 0, string.length, to);
    return string.length;
}

struct printer {
    const struct shmc_span *span;
    char *to;
    size_t room;
};

__attribute__((format(printf, 2, 3))) static void print(struct printer *printer,
                                                        const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(printer->to, printer->room, format, arguments);
    va_end(arguments);
    CHECK(length >= 0 && (size_t)length < printer->room);
    printer->to += length;
    printer->room -= (size_t)length;
}

static void print_string(struct printer *printer, shmc_word word)
{
    uint8_t bytes[512];
    const size_t length = core_text(printer->span, word, bytes, sizeof bytes);

    print(printer, "'%.*s'", (int)length, (const char *)bytes);
}

static void print_scalar(struct printer *printer, shmc_word word)
{
    uint64_t kind = 0, bits = 0;
    double number;

    if (word == SHMC_NULL || word == SHMC_TRUE || word == SHMC_FALSE) {
        print(printer, "%s", word == SHMC_NULL ? "null" : word == SHMC_TRUE ? "true" : "false");
    } else if (shmc_tag(word) == SHMC_TAG_INTEGER) {
        print(printer, "%lld", (long long)shmc_integer_value(word));
    } else if (shmc_number_open(printer->span, word, &kind, &bits)) {
        memcpy(&number, &bits, sizeof number);
        if (kind == SHMC_NUMBER_DOUBLE)
            print(printer, "%g", number);
        else
            print(printer, "%lld", (long long)bits);
    } else {
        print_string(printer, word);
    }
}

static void print_value(struct printer *printer, shmc_word word)
{
    const struct shmc_span *span = printer->span;
    struct shmc_object object;
    struct shmc_array array;

    if (shmc_object_open(span, word, &object)) {
        for (uint64_t i = 0; i < object.count; i++) {
            print(printer, i == 0 ? "{" : ", ");
            print_string(printer, shmc_object_key(span, &object, i));
            print(printer, ": ");
            print_value(printer, shmc_load_at(span, object.words + i * 8));
        }
        print(printer, object.count == 0 ? "{}" : "}");
    } else if (shmc_array_open(span, word, &array)) {
        for (uint64_t i = 0; i < array.count; i++) {
            print(printer, i == 0 ? "[" : ", ");
            print_value(printer, shmc_load_at(span, array.words + i * 8));
        }
        print(printer, array.count == 0 ? "[]" : "]");
    } else {
        print_scalar(printer, word);
    }
}

void core_print(const struct shmc_span *span, shmc_word word, char *to, size_t room)
{
    struct printer printer = {span, to, room};

    to[0] = 0;
    print_value(&printer, word);
}
