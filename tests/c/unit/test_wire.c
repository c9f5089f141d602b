/*
 * Invariant tested: GRPC1. A stream of HTTP/2 becomes the same messages and frames however it is
 * cut; damaged ones become messages or an error, and take no more memory than allowed.
 */
#include "wire_properties.h"

static uint64_t random_state;

static uint64_t dice(uint64_t sides)
{
    return test_random(&random_state) % sides;
}

struct made {
    uint8_t bytes[8192];
    size_t length;
};

static void put(struct made *made, const void *bytes, size_t length)
{
    CHECK(made->length + length <= sizeof made->bytes);
    memcpy(made->bytes + made->length, bytes, length);
    made->length += length;
}

static void put_frame(struct made *made, unsigned type, unsigned flags, unsigned stream,
                      const uint8_t *payload, size_t length)
{
    const uint8_t head[9] = {0, (uint8_t)(length >> 8), (uint8_t)length, (uint8_t)type,
                             (uint8_t)flags, 0, 0, 0, (uint8_t)stream};

    put(made, head, sizeof head);
    put(made, payload, length);
}

/* A message of one event, with its head of gRPC. */
static void put_message(struct made *made)
{
    static const char value[] = "{\"apiVersion\":\"v1\",\"kind\":\"W\",\"metadata\":{\"name\":\"a\"}}";
    const uint8_t size = sizeof value - 1;
    const uint8_t kv[] = {0x0a, 2, 'k', (uint8_t)('a' + dice(26)), 0x10, 3, 0x18, 5, 0x2a, size};
    const uint8_t event[] = {0x5a, (uint8_t)(2 + sizeof kv + size), 0x12,
                             (uint8_t)(sizeof kv + size)};
    const uint8_t head[5] = {0, 0, 0, 0, (uint8_t)(sizeof event + sizeof kv + size)};

    put(made, head, sizeof head);
    put(made, event, sizeof event);
    put(made, kv, sizeof kv);
    put(made, value, size);
}

/* Messages, cut into frames of DATA at any byte, between other frames. */
static uint64_t make_stream(struct made *made)
{
    struct made data = {.length = 0};
    const uint64_t messages = 1 + dice(6);
    const uint8_t ping[8] = {1};
    uint8_t padded[SMALL_FRAME];

    made->length = 0;
    for (uint64_t i = 0; i < messages; i++)
        put_message(&data);
    for (size_t at = 0; at < data.length;) {
        size_t part = 1 + dice(200);
        if (part > data.length - at)
            part = data.length - at;
        if (dice(4) == 0) {
            put_frame(made, 6, 0, 0, ping, sizeof ping);
        } else if (dice(4) == 0) {
            const size_t padding = dice(20);
            memset(padded, 0, sizeof padded);
            padded[0] = (uint8_t)padding;
            memcpy(padded + 1, data.bytes + at, part);
            put_frame(made, 0, 8, 1, padded, 1 + part + padding);
            at += part;
        } else {
            put_frame(made, 0, 0, 1, data.bytes + at, part);
            at += part;
        }
    }
    return messages;
}

static void test_streams(void)
{
    struct made made;

    for (int round = 0; round < 300; round++) {
        const uint64_t messages = make_stream(&made);
        const struct outcome found = check_stream(made.bytes, made.length);
        CHECK_EQUAL(SHMC_GRPC_OK, found.status);
        CHECK_EQUAL(messages, found.messages);
    }
}

static void test_damaged_streams(void)
{
    struct made made;
    uint64_t refused = 0;

    for (int round = 0; round < 2000; round++) {
        make_stream(&made);
        for (uint64_t bent = dice(4); bent > 0; bent--)
            made.bytes[dice(made.length)] = (uint8_t)dice(256);
        check_bytes(made.bytes, dice(made.length + 1));
        refused += check_stream(made.bytes, made.length).status == SHMC_GRPC_INVALID;
    }
    CHECK(refused > 100);
}

static void test_bounds(void)
{
    const uint8_t long_frame[9] = {0, 0x02, 0x01, 0, 0, 0, 0, 0, 1};
    const uint8_t long_message[14] = {0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x08, 0x01};
    const uint8_t compressed[14] = {0, 0, 5, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0};
    const uint8_t stranger[9] = {0, 0, 0, 0, 0, 0, 0, 0, 3};

    CHECK_EQUAL(SHMC_GRPC_INVALID, check_stream(long_frame, sizeof long_frame).status);
    CHECK_EQUAL(SHMC_GRPC_INVALID, check_stream(long_message, sizeof long_message).status);
    CHECK_EQUAL(SHMC_GRPC_INVALID, check_stream(compressed, sizeof compressed).status);
    CHECK_EQUAL(SHMC_GRPC_INVALID, check_stream(stranger, sizeof stranger).status);
}

static void test_events(void)
{
    struct made made = {.length = 0};

    put_message(&made);
    CHECK_EQUAL(1, check_answer((struct shmc_bytes){made.bytes + 5, made.bytes + made.length},
                                shmc_etcd_watch_next));
}

int main(void)
{
    test_start("test_wire");
    random_state = test_random_state(12);
    test_bounds();
    test_events();
    test_streams();
    test_damaged_streams();
    return 0;
}
