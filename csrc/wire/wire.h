/*
 * wire.h - what etcd sends: HTTP/2 that carries gRPC, and the messages in it.
 *
 *   grpc.c    the messages of one gRPC call, from bytes that arrive in pieces
 *   etcd.c    protobuf: answers of a watch, and of a range; where an object takes its version
 *
 * Nothing here writes to the bytes or reads past their end. Any bytes become messages or an error, in
 * linear time.
 */
#ifndef SHMC_WIRE_H
#define SHMC_WIRE_H

#include "core.h"

struct shmc_bytes {
    const uint8_t *at, *end;
};

static inline size_t shmc_bytes_length(struct shmc_bytes bytes)
{
    return (size_t)(bytes.end - bytes.at);
}

/* ---- grpc.c ---------------------------------------------------------------------------------- */

/* Bytes of something that has not ended. */
struct shmc_rest {
    uint8_t *bytes;
    size_t length, capacity;
};

struct shmc_grpc {
    struct shmc_heap heap;
    size_t max_message, max_frame;
    uint64_t received;         /* bytes of data, with their padding: they count for flow control */
    struct shmc_rest frame;    /* a frame, with its head */
    struct shmc_rest message;  /* a message, with its head */
};

/* Takes what has been found; false ends the work. */
struct shmc_grpc_sink {
    void *context;
    bool (*message)(void *context, struct shmc_bytes message);
    /* Any other frame; one of DATA without payload is the end of the stream. */
    bool (*frame)(void *context, unsigned type, unsigned flags, uint32_t stream,
                  struct shmc_bytes payload);
};

/* INVALID: *error says why; REFUSED: by a sink. After anything but OK the call is of no use. */
enum shmc_grpc_status { SHMC_GRPC_OK, SHMC_GRPC_INVALID, SHMC_GRPC_NO_MEMORY, SHMC_GRPC_REFUSED };
enum shmc_grpc_status shmc_grpc_feed(struct shmc_grpc *grpc, struct shmc_bytes bytes,
                                     const struct shmc_grpc_sink *sink, const char **error);
void shmc_grpc_free(struct shmc_grpc *grpc);

/* ---- etcd.c ---------------------------------------------------------------------------------- */

#define SHMC_ETCD_PUT 0u
#define SHMC_ETCD_DELETE 1u

/* A change, or an entry of a range. */
struct shmc_etcd_event {
    uint64_t type;
    int64_t create, mod, version;
    struct shmc_bytes key, value; /* without bytes where the message has none */
};

/* The fields of WatchResponse and RangeResponse, as far as they have been read. */
struct shmc_etcd_answer {
    uint64_t cluster, member, term;
    int64_t revision;
    int64_t watch, compact;           /* of a watch, from here on */
    bool created, canceled, fragment;
    struct shmc_bytes reason;
    bool more;                        /* of a range */
};

/* The next event of a WatchResponse, or entry of a RangeResponse: 1 with it, 0 at the end, -1 if
 * this is not protobuf. Begin with zeros in the answer, which is whole at the end. */
int shmc_etcd_watch_next(struct shmc_bytes *rest, struct shmc_etcd_answer *answer,
                         struct shmc_etcd_event *event);
int shmc_etcd_range_next(struct shmc_bytes *rest, struct shmc_etcd_answer *answer,
                         struct shmc_etcd_event *event);

/* Where the members of an object's metadata begin, if it is laid out as Kubernetes' own
 * encoder does it and has no version yet; else NULL (ETCDANSWER1). *empty: it has no members. */
const uint8_t *shmc_etcd_version_at(struct shmc_bytes value, bool *empty);

#endif
