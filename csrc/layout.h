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
 *        +--------------------------------------------------------------+ arena_offset
 *        | arena: pages of 16 KiB, each cut into blocks of one size, or |
 *        |        runs of pages for one large block                     |
 *        +--------------------------------------------------------------+ file_size (rises)
 *        | address space only: mapped, no file behind it yet            |
 *        +--------------------------------------------------------------+ max_size
 *
 * What a generation reaches:
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
 *   Seat i is held by an open-file-description lock on byte i of the file.
 *
 * Invariants (checked by check.c)
 *   I1  a block is never changed between the publication that first reaches it
 *       and the moment when no acknowledged pin and no root can lead to it.
 *       Contact blocks are the exception, see I8.
 *   I2  roots[latest & 7].generation == latest, and its catalogue, trees and
 *       window lead only to whole blocks below its high_water.
 *   I3  file_size only rises, and every byte below it has memory behind it.
 *   I4  floor only rises; a block retired at r is overwritten only after
 *       floor >= r was stored.
 *   I5  tail <= head, head - tail <= ring_slots / 2, and slot n of the window
 *       has the stamp n + 1.
 *   I6  ids of shapes and generations are never used twice in one DATA segment.
 *   I7  reachable bytes + limbo + free = high water - arena_offset.
 *   I8  each resource has one contact block from its declaration to the end of DATA: every
 *       record of the resource names it. It is no part of any generation: its words change
 *       one by one, at any time, and say nothing about each other (K1 of contact.c apart).
 */
#ifndef SHMC_LAYOUT_H
#define SHMC_LAYOUT_H

#include <assert.h>

#include "atomics.h"

#define SHMC_LAYOUT_VERSION 3u /* part of every segment's name */
#define SHMC_DATA_MAGIC 0x415441444d434853u  /* "SHCMDATA" */
#define SHMC_SEATS_MAGIC 0x544145534d434853u /* "SHCMSEAT" */

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
    shmc_atomic reserved[3];
};
static_assert(sizeof(struct shmc_root) == 64, "a root is one cache line");

struct shmc_super {
    /* Identity and geometry: written before anybody can attach, never changed. */
    uint64_t magic;
    uint32_t layout_version;
    uint32_t layout_signature; /* folds sizes and limits of this build */
    uint64_t instance;         /* random, names this DATA segment among all */
    uint8_t boot_id[16];
    uint64_t max_size;
    uint64_t ring_slots; /* a power of two */
    uint64_t arena_offset;
    /* The writer. Written by it, read by anybody for display; incarnation is also its fence. */
    shmc_atomic incarnation; /* bumped by each process that becomes the writer */
    shmc_atomic heartbeat_ns;
    shmc_atomic writer_pid;
    shmc_atomic next_id; /* ids below it may be in use (I6) */
    shmc_atomic phase;   /* where the writer is, for tests that kill it: enum shmc_phase */
    shmc_atomic closed;  /* the writer ended in order, and left it to the next one */
    shmc_atomic guard[2]; /* the file whose lock is the writer's: device, inode */
    /* file_size: the bounds of every offset (I3). */
    shmc_atomic file_size;
    shmc_atomic reserved2[7];
    /* latest: the publication itself; alone on its line, every reader watches it. */
    shmc_atomic latest;
    shmc_atomic over; /* 1: nothing is published here any more, there may be a successor */
    shmc_atomic reserved3[6];
    /* floor: written in steps, loaded after each value that is read (I4). Generations
     * below it that a seat still pins, and that stay whole, are named in kept. */
    shmc_atomic floor;
    shmc_atomic kept[SHMC_KEPT];
    struct shmc_root roots[SHMC_ROOTS];
    /* The generation that last changed a resource whose id & 63 is the index. */
    shmc_atomic activity[SHMC_ACTIVITY];
    /* The same for its state and its version. */
    shmc_atomic progress[SHMC_ACTIVITY];
    /* What the writer counts (struct shmc_stats, word by word), as of its last tending. For display:
     * the words say nothing about each other. */
    shmc_atomic stats[SHMC_STATS];
};
static_assert(offsetof(struct shmc_super, incarnation) == 64, "layout v3");
static_assert(offsetof(struct shmc_super, file_size) == 128, "layout v3");
static_assert(offsetof(struct shmc_super, latest) == 192, "layout v3");
static_assert(offsetof(struct shmc_super, floor) == 256, "layout v3");
static_assert(offsetof(struct shmc_super, roots) == 384, "layout v3");
static_assert(offsetof(struct shmc_super, activity) == 896, "layout v3");
static_assert(offsetof(struct shmc_super, progress) == 1408, "layout v3");
static_assert(offsetof(struct shmc_super, stats) == 1920, "layout v3");
static_assert(sizeof(struct shmc_super) <= SHMC_RING_OFFSET, "the superblock is the first page");

/* What a writer is at. */
enum shmc_phase {
    SHMC_PHASE_IDLE = 0,  /* between batches, or building one that is not published yet */
    SHMC_PHASE_PUBLISH,   /* slots, root, latest */
    SHMC_PHASE_RELEASE,   /* latest is stored: counts, limbo, reuse */
};

/* What happened to a key. */
#define SHMC_ADDED 1u
#define SHMC_MODIFIED 2u
#define SHMC_DELETED 3u
#define SHMC_RELIST 4u          /* too many changes to list: take the difference */
#define SHMC_FLAG_UNKNOWN 1u    /* a deletion that was found, not seen: last state unknown */
#define SHMC_FLAG_RECREATED 2u  /* modified, and the new object has another uid */

struct shmc_slot {
    shmc_atomic stamp;      /* n + 1 while delta n is whole */
    shmc_atomic generation; /* that first shows the change */
    shmc_atomic what;       /* resource | kind << 32 | flags << 40 */
    shmc_atomic key;
    shmc_atomic version;
    shmc_atomic old_value; /* 0 where there is none */
    shmc_atomic new_value;
    shmc_atomic shard; /* hash of the uid, for filtering before anything is decoded */
};
static_assert(sizeof(struct shmc_slot) == 64, "a slot is one cache line");

/* A resource as one generation sees it. Followed by index_count struct shmc_record_index. */
struct shmc_record {
    uint64_t name;       /* word */
    uint64_t settings;   /* word: whatever the writer declared, for display and takeover */
    uint64_t state;      /* enum shmc_state */
    uint64_t version;    /* word: resourceVersion of the whole resource */
    uint64_t generation; /* that last changed it */
    uint64_t count;      /* objects */
    uint64_t primary;    /* offset of the tree's top node, 0 = empty */
    uint64_t directory;  /* offset of its directory's top node, 0 = empty */
    uint64_t index_count;
    uint64_t reason;     /* word: why it is in its state, in words; "" = none */
    uint64_t since_ns;   /* monotonic: when it came into its state */
    uint64_t contact;    /* offset of its contact block (I8) */
    uint64_t unbroken;   /* delta << 16 | how often it was moved: from this delta on the window tells
                          * whatever happened, as it happened; before it a list, or a RELIST mark,
                          * told what was there then (which may be nothing new) */
    uint64_t marks;      /* word: how far the parts of its source are; "" = the version says it */
};
struct shmc_record_index {
    uint64_t name;     /* word */
    uint64_t settings; /* word */
    uint64_t count;    /* entries */
    uint64_t tree;     /* offset of the top node, 0 = empty */
};
static_assert(sizeof(struct shmc_record) == 112, "layout v3");
static_assert(sizeof(struct shmc_record_index) == 32, "layout v3");

/*
 * What the writer knows of a resource's source, now (I8). Counters only rise.
 *
 *     0 contact_ns | lists | watches | events |
 *    32 bookmarks  | errors | relists | bytes |
 *    64 refused    | reserved                 | 128
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
    shmc_atomic reserved[7];
};
static_assert(sizeof(struct shmc_contact) == 128, "layout v3");
static_assert(offsetof(struct shmc_contact, bookmarks) == 32, "layout v3");
static_assert(offsetof(struct shmc_contact, refused) == 64, "layout v3");

/*
 * A tree node: head, prefix (padded to 8), then columns of count words each:
 * heads | key | [second key] | payload ... For a leaf the payload is the entry's
 * words, for an inner node the child's offset.
 */
struct shmc_node_head {
    uint64_t shape;      /* count | prefix_bytes << 16 | level << 24 | columns << 32 */
    uint64_t generation; /* that built it */
};
static_assert(sizeof(struct shmc_node_head) == 16, "layout v3");

struct shmc_seats_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t layout_signature;
    uint64_t instance; /* of this SEATS segment */
    uint64_t seat_count;
    shmc_atomic high; /* seats below it were claimed once; a hint, range-checked */
    shmc_atomic reserved[3];
};
static_assert(sizeof(struct shmc_seats_header) == 64, "layout v3");

struct shmc_seat {
    /* The writer looks at this line after each publication. */
    shmc_atomic32 semaphore; /* bit 0: asleep or about to be; the rest counts posts (wake.c) */
    shmc_atomic32 reserved;
    shmc_atomic interest; /* bit id & 63 of each resource waited for */
    shmc_atomic incarnation;
    shmc_atomic in_use; /* 1 from claim to leave; the lock is the truth */
    shmc_atomic progress; /* as interest: whose state or version is waited for */
    shmc_atomic reserved1[3];
    /* For display only: written by the seat's owner. */
    shmc_atomic pid;
    shmc_atomic claimed_ns;
    shmc_atomic cursor; /* 1 + the position of its slowest consumer; 0 = it has none */
    shmc_atomic taken;
    shmc_atomic lapped;
    shmc_atomic busy; /* consumers that have something to do; the others sleep, or did */
    shmc_atomic reserved2[2];
    /* Distinct generations that must stay whole; 0 = free. */
    shmc_atomic pins[SHMC_PINS];
};
static_assert(sizeof(struct shmc_seat) == 256, "layout v3");
static_assert(offsetof(struct shmc_seat, pid) == 64, "layout v3");
static_assert(offsetof(struct shmc_seat, pins) == 128, "layout v3");

#define SHMC_LAYOUT_SIGNATURE                                                                     \
    ((uint32_t)(SHMC_PAGE / 8 + SHMC_NODE_MAX * 3 + SHMC_PREFIX_MAX * 5 + SHMC_PINS * 7 +          \
                sizeof(struct shmc_super) * 11 + sizeof(struct shmc_record) * 13 +                \
                sizeof(struct shmc_seat) * 17 + sizeof(struct shmc_contact) * 19))

#endif
