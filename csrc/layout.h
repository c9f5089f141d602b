/*
 * layout.h - everything that lives in shared memory, with its drawing.
 *
 * DATA (one writer maps it read-write, everybody else read-only)
 *
 *      0 +--------------------------------------------------------------+
 *        | superblock: identity | writer | file_size | latest | floor   |
 *        |             roots[8] | activity[64] | progress[64] | stats   |
 *   4096 +--------------------------------------------------------------+
 *        | ring: slots of 64 bytes, slot n & mask holds delta n         |
 *        |       (after the slots of the last root: no memory yet)      |
 *        +--------------------------------------------------------------+ arena_offset
 *        | arena: pages of 16 KiB, each cut into blocks of one size, or |
 *        |        runs of pages for one large block                     |
 *        +--------------------------------------------------------------+ file_size (rises)
 *        | address space only: mapped, no file there yet                |
 *        +--------------------------------------------------------------+ max_size
 *
 * Reachable from a generation:
 *
 *   roots[g & 7] --> catalogue --> resource record --> primary tree --> key, value, extra
 *        |                              |-----------> directory    --> key, value (by hash)
 *        |                              |-----------> index trees  --> value, key
 *        |                              |-----------> contact      (the same in every generation)
 *        `--> window [tail, head) of the ring  ------------------> key, version, old, new
 *
 * Blocks (all offsets are from the start of DATA, multiples of 8, 0 = none)
 *
 *   string     u32 length | flags, bytes ...                       (padded to 8)
 *   number     u64 kind, u64 bits
 *   array      u64 count, word x count
 *   object     u64 shape offset, word x count of the shape
 *   shape      u64 id (never reused), u64 count, key word x count
 *   node       see struct shmc_node_head and tree.c; of a directory: directory.c
 *   record     struct shmc_record and its indices
 *   contact    struct shmc_contact: the one block that changes in place
 *   catalogue  u64 count, record offset x count
 *
 * SEATS (everybody maps it read-write; nothing in it is trusted by the writer)
 *
 *      0 +--------------------------------------------------------------+
 *        | header: identity, instance of the DATA it belongs to         |
 *   4096 +--------------------------------------------------------------+
 *        | seat 0: semaphore, interests | display | pins[16]            |
 *        | seat 1 ...                                                   |
 *        +--------------------------------------------------------------+
 *   Seat i is held by an open-file-description lock on byte i of the file. Any worker may truncate
 *   the file: process.c makes it long again, and the writer writes the header again, and the
 *   instance in each seat.
 *
 * QUEUE (one file for each named queue: its workers map it read-write, the writer never)
 *
 *      0 +--------------------------------------------------------------+
 *        | header: identity | shared words | sleeping | lanes | cursors |
 *   4096 +--------------------------------------------------------------+
 *        | seats: bell, incarnation | counters                          |
 *        | index: buckets of eight {slot, life, tag}                    |
 *        | dues: the earliest due time in each block of 64 slots        |
 *        | rings: one for each lane, of tickets {round, slot}           |
 *        | slots: word, delay, requeues ... key of up to 56 bytes       |
 *        | long keys: 320 bytes for each slot                           |
 *        +--------------------------------------------------------------+
 *   The file has its full length from the start; memory is added to rings, slots and long keys as
 *   they are needed. Seat i is held as in SEATS; bytes 2048 and 2049 lock feeding and opening.
 *   The word of a slot is the truth about its key, all else can be rebuilt (queue.c).
 *
 * Invariants (checked by check.c)
 *   LAYOUT1  a block is never changed between the publication that first reaches it
 *       and the moment when no acknowledged pin and no root can lead to it.
 *       Contact blocks are the exception, see LAYOUT8.
 *   LAYOUT2  roots[latest & 7].generation == latest, and its catalogue, trees and
 *       window lead only to whole blocks below its high_water.
 *   LAYOUT3  file_size only rises, and every byte below it has memory, except in parts that are not
 *       touched: slots of the ring that no root has counted yet (widen.c).
 *   LAYOUT4  floor only rises; a block retired at r is overwritten only after floor >= r was
 *       stored, and after every generation that leads to it has left kept.
 *   LAYOUT5  tail <= head, head - tail <= slots / 2, and slot n of the window
 *       has the stamp n + 1; a root's slots are a power of two, at most ring_slots.
 *   LAYOUT6  ids of shapes and generations are never used twice in one DATA segment.
 *   LAYOUT7  reachable bytes + limbo + free = high water - arena_offset.
 *   LAYOUT8  each resource has one contact block from its declaration to the end of DATA: every
 *       record of the resource names it. It is not part of any generation: its words change
 *       one by one, at any time, and independently of each other (except CONTACTBLOCK1 of
 *       contact.c).
 */
#ifndef SHMC_LAYOUT_H
#define SHMC_LAYOUT_H

#include <assert.h>
#include <stdalign.h>

#include "atomics.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shmcache needs a little-endian processor: short strings and heads are laid out for one"
#endif

#define SHMC_LAYOUT_VERSION 6u /* part of every segment's name */
#define SHMC_DATA_MAGIC 0x415441444d434853u  /* "SHCMDATA" */
#define SHMC_SEATS_MAGIC 0x544145534d434853u /* "SHCMSEAT" */
#define SHMC_QUEUE_MAGIC 0x555145554d434853u /* "SHCMUEQU" */

#define SHMC_ROOTS 8u
#define SHMC_ACTIVITY 64u
#define SHMC_KEPT 15u
#define SHMC_STATS 32u
#define SHMC_PAGE 16384u
#define SHMC_RING_OFFSET 4096u
#define SHMC_SEATS_OFFSET 4096u
#define SHMC_PINS 16u
#define SHMC_MAX_SEATS 1024u
#define SHMC_MAX_RESOURCES 4096u
#define SHMC_MAX_INDICES 32u
#define SHMC_MAX_ARENA (UINT64_C(1) << 35) /* 8-byte granules are counted in 32 bits */
#define SHMC_MAX_DEPTH 1024u               /* of a value; orjson's own limit */
#define SHMC_MAX_STRING ((UINT64_C(1) << 30) - 1)
#define SHMC_MAX_HEIGHT 16u
#define SHMC_NODE_MAX 64u   /* entries in a tree node */
#define SHMC_PREFIX_MAX 56u /* bytes of common prefix kept in a node */

typedef uint64_t shmc_word;   /* a value: see value.h */
typedef uint64_t shmc_offset; /* of a block in DATA; 0 = none */

/* One published state. Written once, before latest names it; its slot is written
 * again only eight generations later. */
struct shmc_root {
    shmc_atomic generation;
    shmc_atomic head; /* the next delta's number */
    shmc_atomic tail; /* the oldest delta still whole */
    shmc_atomic high_water;
    shmc_atomic catalogue;
    shmc_atomic slots; /* of the ring */
    shmc_atomic reserved[2];
};
static_assert(sizeof(struct shmc_root) == 64, "a root is one cache line");
static_assert(offsetof(struct shmc_root, slots) == 40, "layout v6");

struct shmc_super {
    /* Identity and geometry: written before the segment can be attached, never changed. */
    uint64_t magic;
    uint32_t layout_version;
    uint32_t layout_signature; /* folds sizes and limits of this build */
    uint64_t instance;         /* random, names this DATA segment among all */
    uint8_t boot_id[16];
    uint64_t max_size;
    uint64_t ring_slots; /* reserved: a power of two */
    uint64_t arena_offset;
    /* The writer. Written by it, read by any process for display; incarnation is also its fence. */
    shmc_atomic incarnation; /* bumped by each process that becomes the writer */
    shmc_atomic heartbeat_ns;
    shmc_atomic writer_pid;
    shmc_atomic next_id; /* ids below it may be in use (LAYOUT6) */
    shmc_atomic phase;   /* where the writer is, for tests that kill it: enum shmc_phase */
    shmc_atomic closed;  /* the writer ended in order, and left DATA to the next one */
    shmc_atomic guard[2]; /* the file whose lock is the writer's: device, inode */
    /* file_size: the bounds of every offset (LAYOUT3). */
    shmc_atomic file_size;
    uint64_t hash_key; /* of the directories; a copy under another instance keeps it (move.c) */
    shmc_atomic reserved2[6];
    /* latest: the publication itself; alone on its line, every reader watches it. */
    shmc_atomic latest;
    shmc_atomic over; /* 1: no more publications here, there may be a successor */
    shmc_atomic reserved3[6];
    /* floor: written in steps, loaded after each value that is read (LAYOUT4). Generations below it
     * that a seat still pins, and that stay intact, are named in kept; 0 = an unused entry. */
    shmc_atomic floor;
    shmc_atomic kept[SHMC_KEPT];
    struct shmc_root roots[SHMC_ROOTS];
    /* The generation that last changed a resource whose id & 63 is the index. */
    shmc_atomic activity[SHMC_ACTIVITY];
    /* The same for its state and its version. */
    shmc_atomic progress[SHMC_ACTIVITY];
    /* The writer's counters (struct shmc_stats, word by word), as of its last tending. For display:
     * the words are independent of each other. */
    shmc_atomic stats[SHMC_STATS];
};
static_assert(offsetof(struct shmc_super, incarnation) == 64, "layout v6");
static_assert(offsetof(struct shmc_super, file_size) == 128, "layout v6");
static_assert(offsetof(struct shmc_super, latest) == 192, "layout v6");
static_assert(offsetof(struct shmc_super, floor) == 256, "layout v6");
static_assert(offsetof(struct shmc_super, roots) == 384, "layout v6");
static_assert(offsetof(struct shmc_super, activity) == 896, "layout v6");
static_assert(offsetof(struct shmc_super, progress) == 1408, "layout v6");
static_assert(offsetof(struct shmc_super, stats) == 1920, "layout v6");
static_assert(sizeof(struct shmc_super) <= SHMC_RING_OFFSET, "the superblock is the first page");

/* The current activity of a writer. */
enum shmc_phase {
    SHMC_PHASE_IDLE = 0,  /* between batches, or building one that is not published yet */
    SHMC_PHASE_PUBLISH,   /* slots, root, latest */
    SHMC_PHASE_RELEASE,   /* latest is stored: counts, limbo, reuse */
};

/* The kinds of change to a key. */
#define SHMC_ADDED 1u
#define SHMC_MODIFIED 2u
#define SHMC_DELETED 3u
#define SHMC_RELIST 4u          /* too many changes to list: take the difference */
#define SHMC_FLAG_UNKNOWN 1u    /* a deletion that was not observed: last state unknown */
#define SHMC_FLAG_RECREATED 2u  /* modified, and the new object has another uid */

struct shmc_slot {
    shmc_atomic stamp;      /* n + 1 while delta n is whole */
    shmc_atomic generation; /* that first shows the change */
    shmc_atomic what;       /* resource | kind << 32 | flags << 40 */
    shmc_atomic key;
    shmc_atomic version;
    shmc_atomic old_value; /* 0 if absent */
    shmc_atomic new_value;
    shmc_atomic shard; /* hash of the uid, for filtering before decoding */
};
static_assert(sizeof(struct shmc_slot) == 64, "a slot is one cache line");

/* A resource as one generation sees it. Followed by index_count struct shmc_record_index. */
struct shmc_record {
    uint64_t name;       /* word */
    uint64_t settings;   /* word: as the writer declared them, for display and takeover */
    uint64_t state;      /* enum shmc_state */
    uint64_t version;    /* word: resourceVersion of the whole resource */
    uint64_t generation; /* that last changed it */
    uint64_t count;      /* objects */
    uint64_t primary;    /* offset of the tree's top node, 0 = empty */
    uint64_t directory;  /* offset of its directory's top node, 0 = empty */
    uint64_t index_count;
    uint64_t reason;     /* word: why it is in its state, in words; "" = none */
    uint64_t since_ns;   /* monotonic: when it came into its state */
    uint64_t contact;    /* offset of its contact block (LAYOUT8) */
    uint64_t unbroken;   /* delta << 16 | how often it was moved: from this delta on the window has
                          * every change as it happened; before it a list, or a RELIST delta,
                          * reported the state of that time (which may be nothing new) */
    uint64_t listed;     /* word: the version that the content had at `unbroken` */
    uint64_t marks;      /* word: how far the parts of its source are; "" = as the version */
};
struct shmc_record_index {
    uint64_t name;     /* word */
    uint64_t settings; /* word */
    uint64_t count;    /* entries */
    uint64_t tree;     /* offset of the top node, 0 = empty */
};
static_assert(sizeof(struct shmc_record) == 120, "layout v6");
static_assert(sizeof(struct shmc_record_index) == 32, "layout v6");

/*
 * The writer's current knowledge of a resource's source (LAYOUT8). Counters only rise.
 *
 *     0 contact_ns | lists | watches | events |
 *    32 bookmarks  | errors | relists | bytes |
 *    64 refused    | repaired | behind_ns | stored |
 *    96 storing_ns | stored_1ms | stored_10ms | stored_100ms |
 *   128 cut        | stamp_ns | stamped_ns | reserved        | 192
 */
struct shmc_contact {
    shmc_atomic contact_ns; /* monotonic: when the source was last heard; 0 = never. It only rises */
    shmc_atomic lists;
    shmc_atomic watches;
    shmc_atomic events;
    shmc_atomic bookmarks;
    shmc_atomic errors;
    shmc_atomic relists;
    shmc_atomic bytes;
    shmc_atomic refused; /* objects that could not be stored */
    shmc_atomic repaired; /* objects that were wrong, and put right */
    shmc_atomic behind_ns; /* monotonic: since when events that exist are not stored; 0 = all are */
    /* Events whose way was timed, from their arrival until readers saw them. */
    shmc_atomic stored;
    shmc_atomic storing_ns; /* of all of them */
    shmc_atomic stored_1ms; /* how many of them took no longer */
    shmc_atomic stored_10ms;
    shmc_atomic stored_100ms;
    shmc_atomic cut; /* watches that ended early while events that had arrived were yet to be read */
    shmc_atomic stamp_ns; /* how old the time stamps in objects were when they arrived */
    shmc_atomic stamped_ns; /* monotonic: when the last stamp was seen; 0 = never */
    shmc_atomic reserved[5];
};
static_assert(sizeof(struct shmc_contact) == 192, "layout v6");
static_assert(offsetof(struct shmc_contact, bookmarks) == 32, "layout v6");
static_assert(offsetof(struct shmc_contact, refused) == 64, "layout v6");

/*
 * A tree node: head, prefix (padded to 8), then columns of count words each:
 * heads | key | [second key] | payload ... For a leaf the payload is the entry's
 * words, for an inner node the child's offset.
 */
struct shmc_node_head {
    uint64_t shape;      /* count | prefix_bytes << 16 | level << 24 | columns << 32 */
    uint64_t generation; /* that built it */
};
static_assert(sizeof(struct shmc_node_head) == 16, "layout v6");

#define SHMC_PIN_OPEN (UINT64_C(1) << 63)

struct shmc_seats_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t layout_signature;
    uint64_t instance; /* of this SEATS segment */
    uint64_t seat_count;
    shmc_atomic high; /* seats below it were claimed once; a hint, range-checked */
    shmc_atomic reserved[3];
};
static_assert(sizeof(struct shmc_seats_header) == 64, "layout v6");

struct shmc_seat {
    /* The writer reads this line after each publication. */
    shmc_atomic32 semaphore; /* bit 0: asleep or about to be; the rest counts posts (wake.c) */
    shmc_atomic32 reserved;
    shmc_atomic interest; /* bit id & 63 of each resource that a sleeper waits for */
    shmc_atomic incarnation;
    shmc_atomic in_use; /* 1 from claim to leave; the lock is the truth */
    shmc_atomic progress; /* like interest, for a resource's state or version */
    shmc_atomic instance; /* of SEATS, by the writer; another number: the seat was wiped */
    shmc_atomic reserved1[2];
    /* For display only: written by the seat's owner. */
    shmc_atomic pid;
    shmc_atomic claimed_ns;
    shmc_atomic cursor; /* 1 + the position of its slowest consumer; 0 = no consumer */
    shmc_atomic taken;
    shmc_atomic lapped;
    shmc_atomic busy; /* consumers that have work to do; the others sleep, or did */
    shmc_atomic cut; /* clients of its own that it cut because they read too slowly */
    shmc_atomic reserved2;
    /* Distinct generations that must stay intact; 0 = free. With SHMC_PIN_OPEN: this one and all
     * younger ones. */
    shmc_atomic pins[SHMC_PINS];
};
static_assert(sizeof(struct shmc_seat) == 256, "layout v6");
static_assert(offsetof(struct shmc_seat, pid) == 64, "layout v6");
static_assert(offsetof(struct shmc_seat, pins) == 128, "layout v6");

#define SHMC_LAYOUT_SIGNATURE                                                                     \
    ((uint32_t)(SHMC_PAGE / 8 + SHMC_NODE_MAX * 3 + SHMC_PREFIX_MAX * 5 + SHMC_PINS * 7 +          \
                sizeof(struct shmc_super) * 11 + sizeof(struct shmc_record) * 13 +                \
                sizeof(struct shmc_seat) * 17 + sizeof(struct shmc_contact) * 19))

/* ---- QUEUE ---------------------------------------------------------------------------------- */

/*
 *      0 +--------------------------------------------------------------+
 *        | header: identity | hints | lanes                             |
 *   4096 +--------------------------------------------------------------+
 *        | seats   | cursors: how far the feeder came in each resource  |
 *        +--------------------------------------------------------------+
 *        | steps: state and due time of each 64 slots                   |
 *        +--------------------------------------------------------------+
 *        | index: level 0 | 1 | ...  each four times as large as before |  memory when needed
 *        +--------------------------------------------------------------+
 *        | rings of tickets, one for each lane                          |  memory when needed
 *        +--------------------------------------------------------------+
 *        | slots, in steps of 64                                        |  memory while needed
 *        +--------------------------------------------------------------+
 *        | keys that are too long for their slots                       |  memory while needed
 *        +--------------------------------------------------------------+
 */
#define SHMC_QUEUE_LAYOUT 3u
#define SHMC_QUEUE_SEATS_OFFSET 4096u
#define SHMC_QUEUE_MAX_SLOTS (UINT64_C(1) << 22)
#define SHMC_QUEUE_LANES 8u
#define SHMC_QUEUE_LEVELS 5u
#define SHMC_QUEUE_BUCKET 8u
#define SHMC_QUEUE_STEP 64u
#define SHMC_QUEUE_CURSORS 1024u
#define SHMC_QUEUE_SHORT 56u /* bytes of a key that fits into its slot */
#define SHMC_QUEUE_KEY_MAX 320u
#define SHMC_QUEUE_FEED_BYTE 2048u
#define SHMC_QUEUE_OPEN_BYTE 2049u
#define SHMC_QUEUE_OWNER_BYTE (UINT64_C(1) << 32) /* + seat << 15 | incarnation */

struct shmc_queue_lane {
    alignas(64) shmc_atomic head; /* the next ticket to be taken */
    alignas(64) shmc_atomic tail; /* the next ticket to be written */
};

/* A feeder's progress in one resource. Written under the feeder's lock; position last. */
struct shmc_queue_cursor {
    shmc_atomic resource; /* hash of its name; 0 = free */
    shmc_atomic instance; /* of the DATA that position belongs to */
    shmc_atomic rebuilds; /* of the queue, when all of the resource was in it; + 1 */
    shmc_atomic position; /* all deltas before it were added */
};

struct shmc_queue_header {
    /* Identity and geometry: written before the file can be opened, never changed. */
    uint64_t magic;
    uint32_t layout_version;
    uint32_t layout_signature;
    uint64_t instance;
    uint64_t slot_count; /* a power of two */
    uint64_t seat_count;
    uint64_t seed;       /* of the hash of keys */
    uint64_t ring_count; /* tickets of a lane; a power of two */
    shmc_atomic levels;  /* of the index, that have memory; only rises */
    /* Rarely changed. */
    shmc_atomic shutdown; /* SHUT(drain) of queue.h: no more keys; else none */
    shmc_atomic rebuilds; /* how often keys were found damaged, and all were made dirty */
    shmc_atomic corrupt;  /* a worker met damage: the next sweep rebuilds */
    shmc_atomic missing;  /* a ticket could not be written: the next sweep writes it */
    shmc_atomic swept_ns; /* when the last sweep of the seats began, and the last scan of the slots */
    shmc_atomic scanned_ns;
    shmc_atomic spilled;  /* lanes with keys that have no ticket yet, a bit for each */
    shmc_atomic32 room;   /* counts events that make room */
    shmc_atomic32 crowd;  /* a process waits for room */
    /* Changed with keys. */
    alignas(64) shmc_atomic queued; /* keys that wait to be handed out */
    /* Written when a new key is added: no worker reads this for each key. */
    alignas(64) shmc_atomic hand; /* where the search for an idle slot continues */
    shmc_atomic bucket_ns;        /* until when the token bucket of all keys is reserved */
    shmc_atomic fresh;            /* the next unused slot of a step; at its end: another step */
    shmc_atomic refill;           /* slots up to here were searched for spilled keys */
    shmc_atomic drift;            /* of queued, as the last scan found it */
    shmc_atomic took_ns;          /* how long the last scan took */
    shmc_atomic steps;            /* from here on no step was ever used; only rises */
    shmc_atomic gone;             /* steps before this one usually have memory */
    alignas(64) shmc_atomic next_due; /* no key is due before; in ns, UINT64_MAX = none */
    shmc_atomic keeper;               /* the seat + 1 that wakes for it; 0 = no seat */
    shmc_atomic coming;   /* {time, seat} of a worker that was rung, or is the reserve; 0 = none */
    shmc_atomic spinning; /* of the worker that polls for tickets */
    shmc_atomic floor;    /* {version, life} that no slot without memory had reached */
    shmc_atomic32 quiet;  /* counts keys done during a shutdown */
    shmc_atomic32 reserved2;
    alignas(64) shmc_atomic priorities[SHMC_QUEUE_LANES]; /* + 2^32; 0 = a free lane */
    shmc_atomic sleeping[SHMC_MAX_SEATS / 64];            /* a bit for each seat */
    struct shmc_queue_lane lanes[SHMC_QUEUE_LANES];
};
static_assert(offsetof(struct shmc_queue_header, shutdown) == 64, "layout v6");
static_assert(offsetof(struct shmc_queue_header, queued) == 128, "layout v6");
static_assert(offsetof(struct shmc_queue_header, next_due) == 256, "layout v6");
static_assert(offsetof(struct shmc_queue_header, priorities) == 320, "layout v6");
static_assert(offsetof(struct shmc_queue_header, lanes) == 512, "layout v6");
static_assert(sizeof(struct shmc_queue_header) <= SHMC_QUEUE_SEATS_OFFSET, "one page");

struct shmc_queue_seat {
    shmc_atomic32 bell; /* counts posts */
    shmc_atomic32 reserved;
    shmc_atomic incarnation;
    shmc_atomic in_use;
    shmc_atomic pid;
    shmc_atomic claimed_ns;
    shmc_atomic reserved1[3];
    /* For display; of all workers that ever sat here. */
    shmc_atomic counters[16];
};
static_assert(sizeof(struct shmc_queue_seat) == 192, "layout v6");

/*
 *     0 word | delay | requeues | life | hash | length | ticket | deadline |
 *    64 since | key ...                                                    | 128
 */
struct shmc_queue_slot {
    shmc_atomic word;     /* {state, lane, seat, incarnation, version}: queue.h */
    shmc_atomic delay;    /* {time, lane, firing, life}; another life's = none */
    shmc_atomic requeues; /* {count, life} */
    shmc_atomic life;     /* number of the slot's present key; changed by a claim */
    shmc_atomic hash;
    shmc_atomic length;   /* of the key, in bytes */
    shmc_atomic ticket;   /* {position, lane} written last */
    shmc_atomic deadline; /* {time, version}: until when its holder may keep it */
    shmc_atomic since_ns; /* when it became queued or held, for display */
    shmc_atomic key[SHMC_QUEUE_SHORT / 8];
};
static_assert(sizeof(struct shmc_queue_slot) == 128, "layout v6");

/* Facts about 64 slots that are known without reading them: they may have no memory. */
struct shmc_queue_step {
    shmc_atomic state; /* GONE, THERE, or OWNED by a seat: queue.h */
    shmc_atomic due;   /* no key in it is due before; in ns, UINT64_MAX = none */
};
static_assert(sizeof(struct shmc_queue_step) == 16, "queue layout 3");

#define SHMC_QUEUE_SIGNATURE                                                                      \
    ((uint32_t)(sizeof(struct shmc_queue_header) + sizeof(struct shmc_queue_seat) * 3 +            \
                sizeof(struct shmc_queue_slot) * 5 + SHMC_QUEUE_KEY_MAX * 7 +                     \
                SHMC_QUEUE_BUCKET * 11 + SHMC_QUEUE_STEP * 13 + SHMC_QUEUE_LAYOUT * 17))

#endif
