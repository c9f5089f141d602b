/*
 * core_fixture.h - a writer on memory of exactly the segment's size, readers, and values from
 * a line of text.
 *
 * DATA and SEATS are malloc'ed, so that a sanitizer sees one byte too many; only the seats'
 * locks need a file. core_check() ends every test: shmc_check(), and more that it cannot see.
 */
#ifndef SHMC_TEST_CORE_FIXTURE_H
#define SHMC_TEST_CORE_FIXTURE_H

#include <string.h>

#include "harness.h"
#include "writer/writer.h"

struct core {
    struct shmc_segment data, seats; /* seats.fd: locks only; -1 where there are no readers */
    struct shmc_writer *writer;
    uint64_t seat_count, ring_bytes, garbage_bytes;
};

struct core_options {
    uint64_t size;       /* of DATA; rounded up to pages */
    uint64_t ring_slots; /* 0 = 64 */
    uint64_t ring_first; /* 0 = 1,024, or all of them */
    uint64_t ring_bytes, garbage_bytes;
    uint64_t seat_count; /* 0 = 4 */
};

void core_create_seeded(struct core *core, struct core_options options, uint64_t seed);
static inline void core_create(struct core *core, struct core_options options)
{
    core_create_seeded(core, options, test_seed); /* each file has a test_seed of its own */
}
void core_destroy(struct core *core);
/* The writer dies in the middle (an open batch stays open), and another one takes over. */
void core_take_over(struct core *core);
/* The same if it succeeds: without OK there is no writer. `what`: 200 bytes. */
enum shmc_status core_try_take_over(struct core *core, char *what);

/* shmc_check(), and the charges of the window. */
void core_check(const struct core *core);
struct shmc_stats core_stats(const struct core *core);
/* Drops the window and everything that no pin needs: only live objects remain, without leaks. */
void core_check_nothing_leaked(struct core *core);

/* A reader with its own seat on the one mapping. */
struct shmc_reader *core_attach(const struct core *core);
void core_detach(struct shmc_reader *reader);

/* A pin written by hand into the last seat's slot `slot`; generation 0 removes it. */
void core_pin(struct core *core, unsigned slot, uint64_t generation);

void core_begin(struct core *core);
void core_commit(struct core *core);
uint32_t core_declare(struct core *core, const char *name);
uint32_t core_index(struct core *core, uint32_t resource, const char *name, const char *path);

/* Strings. */
enum shmc_status core_bytes(struct core *core, const void *bytes, size_t length, shmc_word *word);
/* A value from relaxed JSON: {a: 1, 'b c': [true, null, 'text', -2, 1.5]}. */
enum shmc_status core_value(struct core *core, const char *text, shmc_word *word);

/* One change of the open batch; the version may be NULL. */
enum shmc_status core_put_word(struct core *core, uint32_t resource, const void *key,
                               size_t length, shmc_word value);
enum shmc_status core_put(struct core *core, uint32_t resource, const char *key, const char *value,
                          const char *version);
enum shmc_status core_delete(struct core *core, uint32_t resource, const char *key);
/* One batch of one change. */
void core_put_now(struct core *core, uint32_t resource, const char *key, const char *value);
void core_delete_now(struct core *core, uint32_t resource, const char *key);

/* The top of a resource's primary tree, or of one of its indices, in the published root. */
shmc_offset core_primary(const struct core *core, uint32_t resource);
shmc_offset core_tree(const struct core *core, uint32_t resource, uint32_t index);

/* The bytes of a string word, copied; returns the length. */
size_t core_text(const struct shmc_span *span, shmc_word word, uint8_t *to, size_t room);
/* A value as text in the form core_value() reads, for comparing. */
void core_print(const struct shmc_span *span, shmc_word word, char *to, size_t room);

#endif
