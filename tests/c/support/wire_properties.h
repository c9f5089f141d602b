/*
 * wire_properties.h - properties of any bytes from etcd, for the unit test and the fuzzer. The
 * bytes are copied to memory of exactly their size: a sanitizer sees one byte too many.
 */
#ifndef SHMC_TEST_WIRE_PROPERTIES_H
#define SHMC_TEST_WIRE_PROPERTIES_H

#include <string.h>

#include "harness.h"
#include "wire/wire.h"

#define SMALL_FRAME 512u
#define SMALL_MESSAGE 2048u

/* ---- messages ---------------------------------------------------------------------------- */

static inline void check_inside(struct shmc_bytes whole, struct shmc_bytes part)
{
    CHECK(part.at >= whole.at && part.at <= part.end && part.end <= whole.end);
}

static inline void check_value(struct shmc_bytes value)
{
    bool empty = false;
    const uint8_t *const at = shmc_etcd_version_at(value, &empty);

    if (at == NULL)
        return;
    CHECK(at > value.at && at <= value.end);
    CHECK_EQUAL('{', at[-1]);
    CHECK(memmem(value.at, (size_t)(at - value.at), "\"metadata\"", 10) != NULL);
    CHECK(!empty || memchr(at, '}', (size_t)(value.end - at)) != NULL);
}

typedef int next_event(struct shmc_bytes *, struct shmc_etcd_answer *, struct shmc_etcd_event *);

/* How many events; each in its bytes, and none without progress. */
static inline size_t check_answer(struct shmc_bytes whole, next_event *next)
{
    struct shmc_etcd_answer answer = {.reason = {whole.at, whole.at}};
    struct shmc_etcd_event event;
    struct shmc_bytes rest = whole;
    size_t count = 0;

    for (;;) {
        const uint8_t *const before = rest.at;
        const int more = next(&rest, &answer, &event);
        check_inside(whole, rest);
        check_inside(whole, answer.reason);
        if (more <= 0) {
            CHECK(more < 0 || rest.at == rest.end);
            return count;
        }
        CHECK(rest.at > before);
        check_inside(whole, event.key);
        check_inside(whole, event.value);
        check_value(event.value);
        count++;
    }
}

static inline void check_message(struct shmc_bytes message)
{
    check_answer(message, shmc_etcd_watch_next);
    check_answer(message, shmc_etcd_range_next);
}

/* ---- streams ------------------------------------------------------------------------------ */

/* Everything that a stream became, as a number. */
struct outcome {
    uint64_t hash, messages, frames, received;
    enum shmc_grpc_status status;
};

static inline void outcome_add(struct outcome *outcome, uint64_t kind, struct shmc_bytes bytes)
{
    outcome->hash = (outcome->hash ^ kind ^ shmc_bytes_length(bytes) << 8) * UINT64_C(1099511628211);
    for (const uint8_t *at = bytes.at; at < bytes.end; at++)
        outcome->hash = (outcome->hash ^ *at) * UINT64_C(1099511628211);
}

static inline bool outcome_message(void *context, struct shmc_bytes message)
{
    struct outcome *const outcome = context;

    outcome->messages++;
    outcome_add(outcome, 1, message);
    check_message(message);
    return true;
}

static inline bool outcome_frame(void *context, unsigned type, unsigned flags, uint32_t stream,
                                 struct shmc_bytes payload)
{
    struct outcome *const outcome = context;

    CHECK(type <= 0xff && flags <= 0xff && stream <= 0x7fffffffu);
    CHECK(type != 0 || shmc_bytes_length(payload) == 0);
    outcome->frames++;
    outcome_add(outcome, 2 + type + ((uint64_t)flags << 16) + ((uint64_t)stream << 32), payload);
    return true;
}

/* The stream in pieces of so many bytes; a failing allocation if fail_after is not 0. */
static inline struct outcome outcome_of(const uint8_t *bytes, size_t length, size_t piece,
                                        uint64_t fail_after)
{
    struct shmc_grpc grpc = {.max_message = SMALL_MESSAGE, .max_frame = SMALL_FRAME};
    struct outcome outcome = {.status = SHMC_GRPC_OK};
    const struct shmc_grpc_sink sink = {&outcome, outcome_message, outcome_frame};
    const char *error;

    grpc.heap.fail_after = fail_after;
    for (size_t at = 0; at < length && outcome.status == SHMC_GRPC_OK; at += piece) {
        const size_t size = length - at < piece ? length - at : piece;
        uint8_t *const copy = malloc(size);
        CHECK(copy != NULL);
        memcpy(copy, bytes + at, size);
        outcome.status =
            shmc_grpc_feed(&grpc, (struct shmc_bytes){copy, copy + size}, &sink, &error);
        CHECK((outcome.status == SHMC_GRPC_INVALID) == (*error != '\0'));
        free(copy);
        CHECK(grpc.heap.bytes <= 2 * (SMALL_FRAME + SMALL_MESSAGE + 16)); /* GRPC1 */
    }
    outcome.received = grpc.received;
    shmc_grpc_free(&grpc);
    CHECK_EQUAL(0, grpc.heap.bytes);
    CHECK(fail_after != 0 || outcome.status != SHMC_GRPC_NO_MEMORY);
    return outcome;
}

/* However a stream is cut, it becomes the same. */
static inline struct outcome check_stream(const uint8_t *bytes, size_t length)
{
    static const size_t pieces[] = {1, 2, 7, 9, 64, 1000};
    const struct outcome whole = outcome_of(bytes, length, length + 1, 0);

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const struct outcome cut = outcome_of(bytes, length, pieces[i], 0);
        CHECK_EQUAL(whole.status, cut.status);
        CHECK_EQUAL(whole.messages, cut.messages);
        CHECK_EQUAL(whole.frames, cut.frames);
        CHECK_EQUAL(whole.received, cut.received);
        CHECK_EQUAL(whole.hash, cut.hash);
    }
    for (uint64_t n = 1; n <= 3; n++)
        outcome_of(bytes, length, 7, n);
    return whole;
}

/* As a stream, as a message, and as a value. */
static inline void check_bytes(const uint8_t *bytes, size_t length)
{
    uint8_t *const copy = malloc(length + (length == 0));

    CHECK(copy != NULL);
    if (length > 0)
        memcpy(copy, bytes, length);
    const struct shmc_bytes whole = {copy, copy + length};
    check_message(whole);
    check_value(whole);
    free(copy);
    check_stream(bytes, length);
}

#endif
