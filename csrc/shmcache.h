/*
 * shmcache.h - the C core's public interface and its manual.
 *
 * Caveats first
 *   - One thread at a time may use a writer. A reader may be used by several.
 *   - A word read under a pin is valid only while that pin is held, and only after
 *     shmc_reader_valid() confirmed the generation (rule VALUE3 of value.h).
 *   - A child of fork() may not use its parent's handles: see shmc_forked().
 *   - Memory comes in from outside: the core never maps (except in segment.c) and
 *     allocates only the private tables of a handle, through its heap.
 *
 * Statuses: SHMC_OK is 0. EMPTY, LAPPED, TIMEOUT, INTERRUPTED, NOT_FOUND and STALE are
 * results; the rest are errors, after which everything is as it was before the call.
 * A result is written through the last pointers, and only with SHMC_OK unless noted.
 */
#ifndef SHMCACHE_H
#define SHMCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum shmc_status {
    SHMC_OK = 0,
    SHMC_EMPTY,       /* nothing after the cursor */
    SHMC_LAPPED,      /* deltas between the cursor and the window are gone */
    SHMC_TIMEOUT,     /* the time limit passed */
    SHMC_INTERRUPTED, /* a signal came: let its handler run, then call again */
    SHMC_NOT_FOUND,   /* no such key, resource or index */
    SHMC_STALE,       /* the generation is no longer valid: its pin was revoked */
    SHMC_FULL,        /* the arena's maximum is reached */
    SHMC_NO_SPACE,    /* no memory to grow the segment: file system or cgroup (errno kept) */
    SHMC_NO_MEMORY,   /* the handle's heap has no memory */
    SHMC_BUSY,        /* held by another process: the writer's lock, a batch, all seats */
    SHMC_FENCED,      /* another writer took over: this one must stop */
    SHMC_CORRUPT,     /* impossible data: verify, rebuild */
    SHMC_VERSION,     /* another layout, build or boot */
    SHMC_LIMIT,       /* longer, deeper or more than the format holds */
    SHMC_INVALID,     /* an invalid argument */
    SHMC_FORKED,      /* the handle belongs to the parent process */
    SHMC_CLOSED,      /* the handle is closed */
    SHMC_SYSTEM,      /* a system call failed (errno kept) */
    SHMC_OVER         /* no more publications in this instance */
};

const char *shmc_status_text(enum shmc_status status);

/* ---- limits.c: what the cgroups of this process leave it ------------------------- */

struct shmc_limits {
    const char *groups; /* a line for each: '1' or '2', the version, and its directory */
    uint64_t asked;     /* of the last refusal: the requested bytes, */
    uint64_t needed;    /* the same plus the margin, */
    uint64_t limit, used;
    uint32_t refused;   /* and the line that refused, from 1 on; 0: none */
};

/* Whether all of them leave us `wanted` more bytes. */
bool shmc_limits_allow(struct shmc_limits *limits, uint64_t wanted);

/* ---- owned.c: descriptors with an owner ---------------------------------------------- */

/* Opens an existing file into *fd, which is -1: never through a link, and without blocking. */
enum shmc_status shmc_owned_open(const char *path, int writable, int *fd);
/* An inotify for names that appear in the directory, into *fd. */
enum shmc_status shmc_owned_notice(const char *directory, int *fd);
/* Closes *fd, if it is open, and makes it -1. */
void shmc_owned_close(int *fd);

/* ---- segment.c: the only mapping ------------------------------------------------ */

struct shmc_segment {
    uint8_t *base;      /* mapped at its maximal size once; never moves */
    uint64_t max_size;
    uint64_t file_size; /* bytes with memory, except for skipped parts */
    int fd;
    int writable;
    struct shmc_limits *limits; /* checked before it grows; NULL after mapping: no check */
};

/* Maps `fd` (the caller keeps owning it) over max_size bytes of address space. */
enum shmc_status shmc_segment_map(int fd, uint64_t max_size, int writable,
                                  struct shmc_segment *segment);
/* Adds memory for the bytes up to `size`. NO_SPACE leaves all as before: the file system has none
 * (ENOSPC), or the limits forbid it (ENOMEM). */
enum shmc_status shmc_segment_extend(struct shmc_segment *segment, uint64_t size);
/* Lengthens the file to `size` without memory, as far as it is whole large pages: that part is not
 * touched before it is filled. */
enum shmc_status shmc_segment_skip(struct shmc_segment *segment, uint64_t size);
/* Adds memory for [from, to), which has none; may fail like extend, with a part of it done. */
enum shmc_status shmc_segment_fill(const struct shmc_segment *segment, uint64_t from, uint64_t to);
/* Gives back the memory of [from, to), where nobody reads or writes. */
void shmc_segment_empty(const struct shmc_segment *segment, uint64_t from, uint64_t to);
void shmc_segment_unmap(struct shmc_segment *segment);
/* Open-file-description locks on one byte: BUSY if another description holds it. */
enum shmc_status shmc_lock_byte(int fd, uint64_t byte);
enum shmc_status shmc_unlock_byte(int fd, uint64_t byte);
/* OK if no process holds the byte, else BUSY. Display only: racy. */
enum shmc_status shmc_probe_byte(int fd, uint64_t byte);

/* ---- process.c: what must happen at fork ------------------------------------------- */

/* A word that is 1 here and 0 in every child of fork() (the kernel wipes its page).
 * NULL if the system refuses. One per process; never freed. */
const uint64_t *shmc_fork_word(void);
/* The child of a fork closes `fd` at once, so that it cannot keep a lock alive. */
enum shmc_status shmc_close_in_child(int fd);
void shmc_keep_in_child(int fd); /* undoes that, before close(fd) */
/* For a child: it is killed when the thread that forked it ends, even through execve().
 * CLOSED if `parent`, the pid of that process, is already gone. */
enum shmc_status shmc_die_with_parent(int parent);
/* From now on a fault in this writable map, after a truncation of its file, does no harm: it reads
 * as zeros. Until unguard, which comes before the map goes away. LIMIT: too many. */
enum shmc_status shmc_guard(const struct shmc_segment *segment);
void shmc_unguard(const struct shmc_segment *segment);

/* ---- writer.c: the writer ------------------------------------------------------------ */

struct shmc_writer;

struct shmc_writer_settings {
    uint64_t max_size;       /* of DATA, address space; at most 32 GiB */
    uint64_t ring_slots;     /* maximum, a power of two; the window holds at most half */
    uint64_t ring_first;     /* with memory from the start, a power of two; 0: 1,024, or all of a
                                ring that is too short for a hole */
    uint64_t ring_bytes;     /* limit for old versions; 0 = a fifth of the live bytes,
                                between 1 and 64 MiB */
    uint64_t garbage_bytes;  /* pinned garbage before pins are revoked; 0 = max_size / 4 */
    uint64_t instance;       /* of DATA: random, not 0 */
    uint64_t seats_instance; /* of SEATS, likewise: its content is not trusted */
    uint64_t seed;           /* random: the key of the table of equals */
    uint8_t boot_id[16];
    uint64_t guard[2];       /* device and inode of the file whose lock the writer holds */
};

struct shmc_stats {
    uint64_t generation, head, tail;
    uint64_t reachable_bytes; /* blocks that trees, window or records lead to */
    uint64_t value_bytes;     /* of these: values, keys, shapes */
    uint64_t tree_bytes;      /* of these: nodes, records, catalogue */
    uint64_t limbo_bytes;     /* unreachable, but a pin may still lead there */
    uint64_t free_bytes;
    uint64_t high_water_bytes; /* the part of the arena that was ever used */
    uint64_t file_bytes;
    uint64_t private_bytes; /* the writer's own tables */
    uint64_t ring_bytes;    /* retained by old versions, as charged */
    uint64_t floor, revoked, reused_bytes;
    uint64_t commits, deltas, relists, wakes;
    uint64_t blocks;
    uint64_t mended; /* how often SEATS had been wiped or truncated */
    uint64_t renamed; /* how often missing names of the cache were made again */
};

/* The minimal length of DATA, and how much memory a new cache takes for it. */
uint64_t shmc_data_minimum(const struct shmc_writer_settings *settings);
uint64_t shmc_data_memory(const struct shmc_writer_settings *settings);
/* Makes an empty file that long, with memory where a new cache needs it. */
enum shmc_status shmc_data_extend(struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings);
/* Formats an empty DATA segment (already extended). */
enum shmc_status shmc_data_format(struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings);
/* Whether these bytes are a DATA segment of this build and boot. */
enum shmc_status shmc_data_check_header(const struct shmc_segment *data, const uint8_t boot_id[16],
                                        uint64_t *instance);

/* Becomes the writer of a formatted DATA segment. The caller holds the writer's lock,
 * and keeps `data` and `seats` mapped until shmc_writer_destroy(). */
enum shmc_status shmc_writer_create(struct shmc_segment *data, struct shmc_segment *seats,
                                    const struct shmc_writer_settings *settings,
                                    struct shmc_writer **writer);
/*
 * Becomes the writer of a DATA segment whose writer has died or left, at its last generation:
 * verifies all of it by a walk, then rebuilds the private tables. Nothing is written before the
 * walk has found no fault. `data` is mapped whole, for writing; `instance` and the geometry of the
 * settings must be those of the segment.
 *   BUSY     the guard is another file than its writer held: that writer may still be alive
 *   OVER     it was ended, there is nothing to continue
 *   VERSION  another build, boot or geometry
 *   CORRUPT  `what` describes the fact that does not hold
 */
enum shmc_status shmc_writer_takeover(struct shmc_segment *data, struct shmc_segment *seats,
                                      const struct shmc_writer_settings *settings, char *what,
                                      size_t fault_size, struct shmc_writer **writer);
/* Leaves the cache to the next writer: records in DATA that it ended in order. Then destroy. */
void shmc_writer_leave(struct shmc_writer *writer);
void shmc_writer_destroy(struct shmc_writer *writer);

/* ---- move.c: names of a writer's files were removed ------------------------------------------- */

/* Copies the whole of DATA into a fresh one (formatted, with these settings, whose instance and
 * guard it then has). Outside of batches. NO_SPACE. */
enum shmc_status shmc_writer_copy(const struct shmc_writer *writer, struct shmc_segment *data,
                                  const struct shmc_writer_settings *settings);
/* The writer continues in that copy and these fresh seats, of the same number (with these
 * settings): nothing was written since. Its own segments and the two given exchange their maps;
 * addresses stay. */
enum shmc_status shmc_writer_switch(struct shmc_writer *writer, struct shmc_segment *data,
                                    struct shmc_segment *seats,
                                    const struct shmc_writer_settings *settings);
/* The writer holds another lock, of these settings: call at once, or nobody could take over from
 * it. */
void shmc_writer_relocked(struct shmc_writer *writer, const struct shmc_writer_settings *settings);
/* Counts that names were made again for the same files. */
void shmc_writer_renamed(struct shmc_writer *writer);

/* Resources and indices. Ids count from 0 in the order of declaration and stay. */
enum shmc_status shmc_declare_resource(struct shmc_writer *writer, const char *name,
                                       size_t name_length, uint32_t *id);
enum shmc_status shmc_find_resource(struct shmc_writer *writer, const char *name,
                                    size_t name_length, uint32_t *id);
/* An index of a resource. path: "spec.nodeName", "metadata.ownerReferences[*].uid",
 * "metadata.labels" (emits k=v); NULL: the values come from outside with each put. Existing objects
 * are back-filled from a path at once, as part of the open batch; for values from outside the
 * caller does it, by shmc_refill() of each object in the same batch. */
enum shmc_status shmc_declare_index(struct shmc_writer *writer, uint32_t resource,
                                    const char *name, size_t name_length, const char *path,
                                    size_t path_length, uint32_t *index);
enum shmc_state {
    SHMC_ABSENT = 0, /* not known yet, or it does not exist */
    SHMC_LISTING,
    SHMC_SYNCED,
    SHMC_RETRYING, /* the source fails; the content may age */
    SHMC_STALED,   /* too old to rely on */
    SHMC_EXCEEDED, /* new content does not fit: the last content that did is served */
    SHMC_GONE      /* no longer a resource of this cache; only shmc_retire_resource() sets it */
};
enum shmc_status shmc_set_state(struct shmc_writer *writer, uint32_t resource, uint64_t state);
enum shmc_status shmc_set_version(struct shmc_writer *writer, uint32_t resource,
                                  const char *version, size_t length);
/* The settings of its content, and any other facts about it: JSON. INVALID: not JSON. */
enum shmc_status shmc_set_settings(struct shmc_writer *writer, uint32_t resource, const char *json,
                                   size_t length);
/* How far the parts of its source are, for the next writer. */
enum shmc_status shmc_set_source(struct shmc_writer *writer, uint32_t resource, const char *marks,
                                 size_t length);
/* Removes an index, in the open batch; later ones move up. If its values come from outside, all of
 * that kind are removed. */
enum shmc_status shmc_drop_index(struct shmc_writer *writer, uint32_t resource, const char *name,
                                 size_t name_length);
/* Ends a resource: its objects and indices go, without a delta for each (a RELIST delta replaces
 * them); its id stays. Declaring its name again brings it back. */
enum shmc_status shmc_retire_resource(struct shmc_writer *writer, uint32_t resource);
/* The code that computes the outside values of an index, as far as it can be named. */
enum shmc_status shmc_set_function(struct shmc_writer *writer, uint32_t resource, uint32_t index,
                                   const char *identity, size_t length);
/* The reason for its state, in words: UTF-8, at most SHMC_REASON_MAX bytes, or LIMIT. */
enum { SHMC_REASON_MAX = 1024 };
enum shmc_status shmc_set_reason(struct shmc_writer *writer, uint32_t resource, const char *reason,
                                 size_t length);

/* ---- contact.c: what a resource's source did ----------------------------------------------- */

#define SHMC_CAUGHT_UP 1

/* contact_ns: when it was last heard (monotonic; 0: unchanged). behind_ns: since when events that
 * exist are not stored (monotonic; 0: unchanged; SHMC_CAUGHT_UP: all are). stamp_ns: the
 * age of time stamps in objects, stored where stamped_ns, their time, is not 0. The rest is added. */
struct shmc_note {
    uint64_t contact_ns, lists, watches, events, bookmarks, errors, relists, bytes, refused,
        repaired, behind_ns, stored, storing_ns, stored_1ms, stored_10ms, stored_100ms, cut, stamp_ns,
        stamped_ns;
};
/* Visible at once, inside a batch or outside: no generation, and no wake-up. INVALID: no such
 * resource, or a contact in the future. */
enum shmc_status shmc_note(struct shmc_writer *writer, uint32_t resource,
                           const struct shmc_note *note);

/* Batches. Everything between begin and commit becomes visible as one generation; abort
 * leaves no trace, and so does any error inside commit. */
enum shmc_status shmc_begin(struct shmc_writer *writer);
enum shmc_status shmc_commit(struct shmc_writer *writer, uint64_t now_ns);
enum shmc_status shmc_abort(struct shmc_writer *writer);
int shmc_in_batch(const struct shmc_writer *writer);

/* Deletes a key. NOT_FOUND is a result. version may be NULL; flags: SHMC_FLAG_UNKNOWN. */
enum shmc_status shmc_delete(struct shmc_writer *writer, uint32_t resource, const char *key,
                             size_t key_length, const char *version, size_t version_length,
                             uint32_t flags);

/* Staged replacement of a resource: objects are staged (shmc_stage, core.h) in batches that
 * publish nothing; the swap is one generation. One at a time: else BUSY. */
enum shmc_status shmc_replace_begin(struct shmc_writer *writer, uint32_t resource);
enum shmc_status shmc_replace_finish(struct shmc_writer *writer, uint32_t resource,
                                     const char *version, size_t version_length);
enum shmc_status shmc_replace_cancel(struct shmc_writer *writer, uint32_t resource);
/* The same for the keys under a prefix: several shares of a resource may be staged at a time, but
 * not together with a replacement of the whole. The caller stages only keys under a prefix that it
 * began, and begins no prefix twice. */
enum shmc_status shmc_share_begin(struct shmc_writer *writer, uint32_t resource);
enum shmc_status shmc_share_finish(struct shmc_writer *writer, uint32_t resource,
                                   const char *prefix, size_t prefix_length, const char *version,
                                   size_t version_length);
enum shmc_status shmc_share_cancel(struct shmc_writer *writer, uint32_t resource,
                                   const char *prefix, size_t prefix_length);
/* A staged key shall be absent after all. */
enum shmc_status shmc_unstage(struct shmc_writer *writer, uint32_t resource, const char *key,
                              size_t key_length);
/* Stages the published object of a key, as it is: NOT_FOUND if there is no such object. */
enum shmc_status shmc_restage(struct shmc_writer *writer, uint32_t resource, const char *key,
                              size_t key_length);

/* Regular duties: heartbeat, seats of the dead, reclaiming. At least every 250 ms. */
enum shmc_status shmc_tend(struct shmc_writer *writer, uint64_t now_ns);
/* Gives back everything that no pin needs any longer, now. */
enum shmc_status shmc_reclaim(struct shmc_writer *writer);
/* Shortens the window to nothing, so that only live objects stay (tests, shutdown). */
enum shmc_status shmc_drop_window(struct shmc_writer *writer);
void shmc_writer_stats(const struct shmc_writer *writer, struct shmc_stats *stats);
/* The records of a DATA segment about itself and its writer, now. For display: any process may ask,
 * of any segment whose header was checked; the figures need not agree with each other. */
struct shmc_data_info {
    uint64_t instance, max_size, ring_slots, incarnation, heartbeat_ns, writer_pid, closed, over;
    uint64_t memory; /* bytes of the file that have memory */
    uint64_t latest, floor, head, tail, high_water;
    struct shmc_stats stats; /* of the writer's last tending; zeros before the first */
};
void shmc_data_info(const struct shmc_segment *data, struct shmc_data_info *info);

/* Checks every invariant LAYOUT1..LAYOUT7 and the private tables by a walk from the root. On
 * CORRUPT, `what` describes the fact that does not hold. */
enum shmc_status shmc_check(const struct shmc_writer *writer, char *what, size_t fault_size);

/* ---- seats.c: readers ---------------------------------------------------------------- */

enum { SHMC_SEATS_MAX = 1024 };
uint64_t shmc_seats_size(uint64_t seat_count);
enum shmc_status shmc_seats_format(struct shmc_segment *seats, uint64_t seat_count,
                                   uint64_t instance);
/* Guarded while it reads, like format: a process that may write there may truncate it meanwhile. */
enum shmc_status shmc_seats_check_header(const struct shmc_segment *seats, uint64_t *instance);

struct shmc_seat_info {
    uint64_t index, pid, incarnation, interest, cursor, busy, taken, lapped, cut,
        claimed_ns;
    uint64_t oldest_pin, pins;
    int asleep, in_use;
};
enum shmc_status shmc_seat_info(const struct shmc_segment *seats, uint64_t index,
                                struct shmc_seat_info *info);

/* ---- reader.c: one process's reading ----------------------------------------------------- */

struct shmc_reader;

/* Claims a seat and attaches. data is mapped read-only, seats read-write; both stay mapped
 * until shmc_reader_destroy(), and data's descriptor open. seats may be NULL: then the reader cannot
 * pin or wait, and serves tools that examine a dead cache. BUSY: all seats are taken. */
enum shmc_status shmc_reader_create(const struct shmc_segment *data, struct shmc_segment *seats,
                                    struct shmc_reader **reader);
/* Gives the seat back, unless forked (then only the private memory is freed). */
void shmc_reader_destroy(struct shmc_reader *reader);
/* All that an attachment opens; a descriptor is -1 before it is opened. */
struct shmc_attachment {
    struct shmc_segment data, seats;
    struct shmc_reader *reader;
    int data_fd, seats_fd;
};
void shmc_attachment_end(struct shmc_attachment *attachment);
int shmc_reader_seat(const struct shmc_reader *reader);
uint64_t shmc_reader_latest(const struct shmc_reader *reader);
uint64_t shmc_reader_pins(const struct shmc_reader *reader);
/* For display: 1 + the position of this process's slowest consumer (0: no consumer), how many of
 * them are busy; `taken` and `lapped` are added. */
void shmc_reader_report(struct shmc_reader *reader, uint64_t cursor, uint64_t busy, uint64_t taken,
                        uint64_t lapped);
/* For display, too: one more client was cut because it read too slowly. */
void shmc_reader_count_cut(struct shmc_reader *reader);

/* ---- survey.c: what a state consists of, and whether it can be ------------------------------ */

struct shmc_survey_row {
    uint64_t objects, index_entries;
    uint64_t value_bytes, tree_bytes; /* of all blocks of the resource, each block once */
};
struct shmc_survey {
    uint64_t generation, resources, blocks, window;
    uint64_t value_bytes, tree_bytes; /* of all resources and the window together */
};
/* Walks everything that the latest generation leads to, and checks its consistency. Fills rows for
 * the first `capacity` resources. CORRUPT: `what` describes the fact that does not hold; STALE: the
 * writer needed the memory meanwhile, try again. Uses a bit for each 4 bytes of DATA meanwhile. */
enum shmc_status shmc_survey(struct shmc_reader *reader, struct shmc_survey *survey,
                             struct shmc_survey_row *rows, uint64_t capacity, char *what,
                             size_t fault_size);

/* ---- wake.c: sleeping until something happens ------------------------------------------------ */

/* Sleeps until a generation after `seen` changed objects or the state of a resource in `interest`
 * (bit id & 63; a version alone does not count), until
 * timeout_ns passed on the monotonic clock (negative: for ever) or a signal came. Returns at
 * once if there is something already. May be called by several threads. */
enum shmc_status shmc_wait(struct shmc_reader *reader, uint64_t interest, uint64_t seen,
                           int64_t timeout_ns);
/* The same, and also until the state or the version of a resource in `progress` changed. */
enum shmc_status shmc_wait_progress(struct shmc_reader *reader, uint64_t interest,
                                    uint64_t progress, uint64_t seen, int64_t timeout_ns);
/* The same, unless shmc_wake_self() was called since shmc_reader_wakes() returned `wakes`: so that
 * a thread that decides to sleep is not left asleep if it is stopped before it does. */
uint64_t shmc_reader_wakes(const struct shmc_reader *reader);
enum shmc_status shmc_wait_unless(struct shmc_reader *reader, uint64_t interest, uint64_t progress,
                                  uint64_t seen, uint64_t wakes, int64_t timeout_ns);
/* Whether the reader's instance is over: waiting there gives SHMC_OVER at once. */
int shmc_reader_over(const struct shmc_reader *reader);
/* Records that in DATA (mapped for writing, its first page is enough), then wakes all sleepers on
 * SEATS. Called by the writer that closes, or the one that comes after a dead one. */
enum shmc_status shmc_data_end(const struct shmc_segment *data);
enum shmc_status shmc_seats_end(const struct shmc_segment *seats);
/* Writes to an eventfd whenever shmc_wait_unless() would return, from a thread of its own, until
 * shmc_relay_stop(); reader and fd must stay until then. After SHMC_OVER it writes once. */
struct shmc_relay;
enum shmc_status shmc_relay_start(struct shmc_reader *reader, uint64_t interest, uint64_t progress,
                                  uint64_t seen, uint64_t wakes, int fd,
                                  struct shmc_relay **relay);
void shmc_relay_stop(struct shmc_relay **relay);
/* Ends the sleep of every thread of this process in shmc_wait (they see TIMEOUT or OK). */
void shmc_wake_self(struct shmc_reader *reader);
/* ---- queue*.c: keys of work, each with one worker at a time ------------------------------------ */

struct shmc_queue;

/* The length of the file, and how much of it needs memory before it is formatted; slots get theirs
 * when they are used. 0: invalid sizes (powers of two; ring_count, the tickets of a priority, may
 * be 0: as many as are useful). */
uint64_t shmc_queue_size(uint64_t slot_count, uint64_t ring_count, uint64_t seat_count,
                         uint64_t *backed);
/* On a file of that length, before it can be found. */
enum shmc_status shmc_queue_format(struct shmc_segment *file, uint64_t slot_count,
                                   uint64_t ring_count, uint64_t seat_count, uint64_t instance,
                                   uint64_t seed);
/* Whether any seat is taken, checked through a description that has no lock but byte OPEN. */
int shmc_queue_used(const struct shmc_segment *file, int lock_fd);
/* Takes a seat. Two descriptions of the file, kept until close, and closed in children of fork()
 * (shmc_close_in_child) by the caller, who holds byte SHMC_QUEUE_OPEN through lock_fd. BUSY: all
 * seats are taken; CORRUPT, VERSION. */
enum { SHMC_QUEUE_OPEN = 2049, SHMC_KEY_MAX = 320, SHMC_QUEUE_SLOTS_MAX = 4194304,
       SHMC_QUEUE_RESOURCES_MAX = 1024 };
enum shmc_status shmc_queue_open(const struct shmc_segment *file, int seat_fd, int lock_fd,
                                 struct shmc_queue **queue);
/* Gives back its keys, and the seat. In a forked child it only frees memory. */
void shmc_queue_close(struct shmc_queue *queue);
/* Of add_limited: max(base * 2^failures up to max, a bucket of `burst` tokens, one each token_ns;
 * 0: no bucket). And how long this process may keep a key; 0: for ever. */
void shmc_queue_limits(struct shmc_queue *queue, uint64_t base_ns, uint64_t max_ns,
                       uint64_t token_ns, uint64_t burst);
void shmc_queue_keep(struct shmc_queue *queue, uint64_t deadline_ns);

/* Each may be called from any thread. OK; FULL (no slot), NO_SPACE, SYSTEM, LIMIT (the key has 1 to
 * KEY_MAX bytes), CLOSED (shut down: nothing was added), FORKED. */
enum shmc_status shmc_queue_add(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                int64_t priority);
enum shmc_status shmc_queue_add_after(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                      int64_t priority, uint64_t delay_ns);
enum shmc_status shmc_queue_add_limited(struct shmc_queue *queue, const uint8_t *key,
                                        size_t length, int64_t priority);
/* Every key that the queue knows, in whatever state: after a feeder lost its way. */
enum shmc_status shmc_queue_add_known(struct shmc_queue *queue, int64_t priority);
/* How often add_limited was called since it was last forgotten; and forgets it now. */
enum shmc_status shmc_queue_requeues(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                     int forget, uint64_t *requeues);
/* A key that is ours until done(): at most limit_ns long, or keep()'s limit if that is 0. OK,
 * EMPTY, OVER (shut down and empty, or stopped), FORKED. */
struct shmc_taken {
    uint64_t slot, version; /* name the holding */
    size_t length;
    uint8_t key[320];
};
enum shmc_status shmc_queue_take(struct shmc_queue *queue, uint64_t limit_ns,
                                 struct shmc_taken *held);
/* NOT_FOUND: it was taken away before. */
enum shmc_status shmc_queue_done(struct shmc_queue *queue, uint64_t slot, uint64_t version);
uint64_t shmc_queue_length(const struct shmc_queue *queue);
/* Sleeps until take() may have another result, or this time of the monotonic clock. OK, TIMEOUT,
 * INTERRUPTED, FORKED. */
enum shmc_status shmc_queue_wait(struct shmc_queue *queue, uint64_t deadline_ns);
/* The same after FULL: crowd() before the try, wait_room() with its number after it. */
uint32_t shmc_queue_crowd(struct shmc_queue *queue);
enum shmc_status shmc_queue_wait_room(struct shmc_queue *queue, uint32_t number,
                                      uint64_t deadline_ns);
/* For all processes: no key is added from now on. With drain, drained() is OK once no key is held
 * or another shut_down() came without drain, EMPTY before that (call again), TIMEOUT,
 * INTERRUPTED. */
void shmc_queue_shut_down(struct shmc_queue *queue, int drain);
int shmc_queue_shutting_down(const struct shmc_queue *queue);
enum shmc_status shmc_queue_drained(struct shmc_queue *queue, uint64_t deadline_ns);
/* For this process: take() returns OVER from now on. */
void shmc_queue_stop(struct shmc_queue *queue);
/* Handles dead workers, if it is time to. take() and wait() do it, too. */
void shmc_queue_sweep(struct shmc_queue *queue, uint64_t now_ns);

/* One process feeds: BUSY if another does (or another thread of this one). Its position in a
 * resource is stored after the adds that it covers: FENCED for a process that does not feed.
 * NOT_FOUND: no position was ever stored. `whole`: since the queue was last rebuilt all of the
 * resource was added. */
enum shmc_status shmc_queue_feed_begin(struct shmc_queue *queue);
void shmc_queue_feed_end(struct shmc_queue *queue);
/* How far the feeders came in a resource. */
struct shmc_queue_fed {
    uint64_t instance, position, rebuilds;
    int whole;
};
enum shmc_status shmc_queue_cursor(const struct shmc_queue *queue, const char *resource,
                                   size_t length, struct shmc_queue_fed *fed);
enum shmc_status shmc_queue_store_cursor(struct shmc_queue *queue, const char *resource,
                                         size_t length, const struct shmc_queue_fed *fed);

struct shmc_queue_stats {
    uint64_t depth, delayed, in_progress, failing, known, slots, limit, workers;
    uint64_t adds, repeats, gets, dones, retries, returned, expired, late, full, posts, rebuilds;
    uint64_t queue_ns, work_ns, unfinished_ns, longest_ns, oldest_ns;
};
void shmc_queue_stats(const struct shmc_queue *queue, struct shmc_queue_stats *stats);
/* cffi: end */

#endif
