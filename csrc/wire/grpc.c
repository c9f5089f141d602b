/*
 * grpc.c - the messages of one gRPC call, from HTTP/2 that arrives in pieces.
 *
 * Whole frames and messages are read in place; only the parts of one that has not ended are copied.
 *
 * GRPC1  nothing that a server sends takes more memory than max_frame and max_message allow; a
 *        longer one, a compressed one, and data of another stream are invalid.
 */
#include <string.h>

#include "wire/wire.h"

#define FRAME_HEAD 9u
#define MESSAGE_HEAD 5u
#define TYPE_DATA 0u
#define FLAG_END 1u
#define FLAG_PADDED 8u
#define OUR_STREAM 1u
#define KEPT 65536u /* bytes that a rest may keep when it is empty */

struct feeding {
    struct shmc_grpc *grpc;
    const struct shmc_grpc_sink *sink;
    const char *error;
};

static uint32_t big_endian(const uint8_t *at, unsigned bytes)
{
    uint32_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | *at++;
    return value;
}

static enum shmc_grpc_status invalid(struct feeding *feeding, const char *why)
{
    feeding->error = why;
    return SHMC_GRPC_INVALID;
}

/* ---- rests ----------------------------------------------------------------------------------- */

static void rest_free(struct shmc_heap *heap, struct shmc_rest *rest)
{
    if (rest->capacity > 0)
        shmc_heap_resize(heap, rest->bytes, rest->capacity, 0);
    *rest = (struct shmc_rest){0};
}

static void rest_clear(struct shmc_heap *heap, struct shmc_rest *rest)
{
    rest->length = 0;
    if (rest->capacity > KEPT)
        rest_free(heap, rest);
}

/* Moves bytes from `from` to the rest until it has `wanted` of them, or none are left. Grows by
 * doubling, so that pieces cost linear time. */
static enum shmc_grpc_status fill(struct shmc_heap *heap, struct shmc_rest *rest, size_t wanted,
                                  struct shmc_bytes *from)
{
    size_t part = wanted - rest->length;

    if (part > shmc_bytes_length(*from))
        part = shmc_bytes_length(*from);
    if (part > rest->capacity - rest->length) {
        const size_t capacity = (rest->length + part) * 2;
        uint8_t *const grown = shmc_heap_resize(heap, rest->bytes, rest->capacity, capacity);
        if (grown == NULL)
            return SHMC_GRPC_NO_MEMORY;
        rest->bytes = grown;
        rest->capacity = capacity;
    }
    if (part > 0)
        memcpy(rest->bytes + rest->length, from->at, part);
    rest->length += part;
    from->at += part;
    return SHMC_GRPC_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The length of the message whose head this is. */
static enum shmc_grpc_status message_length(struct feeding *feeding, const uint8_t *head,
                                            size_t *length)
{
    *length = big_endian(head + 1, 4);
    if (head[0] != 0)
        return invalid(feeding, "a message of gRPC is compressed, which we did not ask for");
    if (*length > feeding->grpc->max_message)
        return invalid(feeding, "a message of gRPC is too long");
    return SHMC_GRPC_OK;
}

static enum shmc_grpc_status message(struct feeding *feeding, const uint8_t *head, size_t length)
{
    const uint8_t *const at = head + MESSAGE_HEAD;
    const struct shmc_grpc_sink *const sink = feeding->sink;

    return sink->message(sink->context, (struct shmc_bytes){at, at + length}) ? SHMC_GRPC_OK
                                                                              : SHMC_GRPC_REFUSED;
}

/* The rest of a message that began earlier, as far as it is there. */
static enum shmc_grpc_status go_on(struct feeding *feeding, struct shmc_bytes *data)
{
    struct shmc_grpc *const grpc = feeding->grpc;
    struct shmc_rest *const rest = &grpc->message;
    enum shmc_grpc_status status = SHMC_GRPC_OK;
    size_t length;

    if (rest->length < MESSAGE_HEAD)
        status = fill(&grpc->heap, rest, MESSAGE_HEAD, data);
    if (status != SHMC_GRPC_OK || rest->length < MESSAGE_HEAD)
        return status;
    status = message_length(feeding, rest->bytes, &length);
    if (status == SHMC_GRPC_OK)
        status = fill(&grpc->heap, rest, MESSAGE_HEAD + length, data);
    if (status != SHMC_GRPC_OK || rest->length < MESSAGE_HEAD + length)
        return status;
    status = message(feeding, rest->bytes, length);
    rest_clear(&grpc->heap, rest);
    return status;
}

static enum shmc_grpc_status of_data(struct feeding *feeding, struct shmc_bytes data)
{
    enum shmc_grpc_status status = SHMC_GRPC_OK;
    size_t length;

    while (status == SHMC_GRPC_OK && data.at < data.end) {
        if (feeding->grpc->message.length == 0 && shmc_bytes_length(data) >= MESSAGE_HEAD) {
            status = message_length(feeding, data.at, &length); /* often whole, in place */
            if (status != SHMC_GRPC_OK)
                return status;
            if (shmc_bytes_length(data) - MESSAGE_HEAD >= length) {
                status = message(feeding, data.at, length);
                data.at += MESSAGE_HEAD + length;
                continue;
            }
        }
        status = go_on(feeding, &data);
    }
    return status;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static enum shmc_grpc_status of_frame(struct feeding *feeding, const uint8_t *head, size_t length)
{
    const unsigned type = head[3], flags = head[4];
    const uint32_t stream = big_endian(head + 5, 4) & 0x7fffffffu;
    struct shmc_bytes payload = {head + FRAME_HEAD, head + FRAME_HEAD + length};
    const struct shmc_grpc_sink *const sink = feeding->sink;

    if (type == TYPE_DATA) {
        if (stream != OUR_STREAM)
            return invalid(feeding, "data of a stream that we did not open");
        feeding->grpc->received += length;
        if (flags & FLAG_PADDED) {
            if (length == 0 || *payload.at >= length)
                return invalid(feeding, "a frame is all padding");
            payload.end -= *payload.at++;
        }
        const enum shmc_grpc_status status = of_data(feeding, payload);
        if (status != SHMC_GRPC_OK || !(flags & FLAG_END))
            return status;
        payload.end = payload.at; /* the end without trailers: a frame without data */
    }
    return sink->frame(sink->context, type, flags, stream, payload) ? SHMC_GRPC_OK
                                                                    : SHMC_GRPC_REFUSED;
}

static enum shmc_grpc_status of_bytes(struct feeding *feeding, struct shmc_bytes bytes)
{
    struct shmc_grpc *const grpc = feeding->grpc;
    struct shmc_rest *const rest = &grpc->frame;
    enum shmc_grpc_status status = SHMC_GRPC_OK;

    while (bytes.at < bytes.end) {
        const bool in_place = rest->length == 0 && shmc_bytes_length(bytes) >= FRAME_HEAD;
        if (!in_place && rest->length < FRAME_HEAD) {
            status = fill(&grpc->heap, rest, FRAME_HEAD, &bytes);
            if (status != SHMC_GRPC_OK || rest->length < FRAME_HEAD)
                return status;
        }
        const size_t length = big_endian(in_place ? bytes.at : rest->bytes, 3);
        if (length > grpc->max_frame)
            return invalid(feeding, "a frame of HTTP/2 is longer than we allow");
        if (in_place && shmc_bytes_length(bytes) - FRAME_HEAD >= length) {
            status = of_frame(feeding, bytes.at, length);
            if (status != SHMC_GRPC_OK)
                return status;
            bytes.at += FRAME_HEAD + length;
            continue;
        }
        status = fill(&grpc->heap, rest, FRAME_HEAD + length, &bytes);
        if (status != SHMC_GRPC_OK || rest->length < FRAME_HEAD + length)
            return status;
        status = of_frame(feeding, rest->bytes, length);
        if (status != SHMC_GRPC_OK)
            return status;
        rest_clear(&grpc->heap, rest);
    }
    return SHMC_GRPC_OK;
}

enum shmc_grpc_status shmc_grpc_feed(struct shmc_grpc *grpc, struct shmc_bytes bytes,
                                     const struct shmc_grpc_sink *sink, const char **error)
{
    struct feeding feeding = {grpc, sink, ""};
    const enum shmc_grpc_status status = of_bytes(&feeding, bytes);

    *error = feeding.error;
    return status;
}

void shmc_grpc_free(struct shmc_grpc *grpc)
{
    rest_free(&grpc->heap, &grpc->frame);
    rest_free(&grpc->heap, &grpc->message);
}
