/*
 * core.h - private prototypes of the core, in the order in which data flows.
 *
 *   writer side (one thread):  value construction -> trees -> ring -> commit -> wake -> reclaim
 *   reader side (any thread):  pin -> find / scan / take -> validate -> unpin
 */
#ifndef SHMC_CORE_H
#define SHMC_CORE_H

#include <assert.h>
#include <pthread.h>

#include "mutants.h"
#include "shmcache.h"
#include "values/value.h"

/* ---- heap: the private tables of a handle ------------------------------------------ */

struct shmc_heap {
    uint64_t bytes;      /* held now */
    uint64_t fail_after; /* tests: the n-th allocation from now fails; 0 = never */
};
/* Like realloc(), with the sizes given. new_size 0 frees. NULL: no memory, `block` untouched. */
void *shmc_heap_resize(struct shmc_heap *heap, void *block, size_t old_size, size_t new_size);

/* A growing array of 64-bit words. */
struct shmc_list {
    uint64_t *items;
    size_t count, capacity;
};
enum shmc_status shmc_list_grow(struct shmc_heap *heap, struct shmc_list *list, size_t more);
void shmc_list_free(struct shmc_heap *heap, struct shmc_list *list);

static inline enum shmc_status shmc_list_reserve(struct shmc_heap *heap, struct shmc_list *list,
                                                 size_t more)
{
    assert(list->count <= list->capacity);
    return more <= list->capacity - list->count ? SHMC_OK : shmc_list_grow(heap, list, more);
}

static inline enum shmc_status shmc_list_push(struct shmc_heap *heap, struct shmc_list *list,
                                              uint64_t item)
{
    const enum shmc_status status = shmc_list_reserve(heap, list, 1);

    if (status == SHMC_OK)
        list->items[list->count++] = item;
    return status;
}

/* ---- segment.c --------------------------------------------------------------------------- */

/* The present length of the file (it may have grown since it was mapped); 0 if unknown. */
uint64_t shmc_segment_bytes(const struct shmc_segment *segment);

/* For a fault in a guarded map (process.c; both may run in a signal's handler): makes the file as
 * long again as the map; a page for which the file gets no memory becomes private. */
bool shmc_file_lengthen(int fd, uint64_t size);
/* Cuts a file that was made longer to its proper length. */
void shmc_file_shorten(int fd, uint64_t size);
bool shmc_page_replace(uint8_t *base, uint64_t offset);
/* Maps the file again where pages were replaced: with memory for all of it, or unchanged. */
enum shmc_status shmc_segment_remap(const struct shmc_segment *segment);
enum shmc_status shmc_segment_show(const struct shmc_segment *segment);
/* Exchanges two maps of one size: each shows the other's file from now on, and its descriptor. */
enum shmc_status shmc_segment_swap(struct shmc_segment *a, struct shmc_segment *b);

/* ---- process.c ----------------------------------------------------------------------------- */

/* Whether a fault lengthened the file since the last call. */
bool shmc_guard_mended(const struct shmc_segment *segment);
/* Whether pages of the map were replaced by private memory since the last call. */
bool shmc_guard_replaced(const struct shmc_segment *segment);

/* ---- reader.c: pinned roots ----------------------------------------------------------- */

#define SHMC_COUNTED_PINS (SHMC_PINS - 1) /* of a seat: one slot belongs to the quick pin */

struct shmc_pinned {
    uint64_t generation, head, tail, high_water;
    uint64_t slots; /* of the ring: a power of two */
    shmc_offset catalogue;
    unsigned slot; /* SHMC_PINS: no pin; else opaque: slot and serial, for unpin */
};

struct shmc_reader {
    struct shmc_span span; /* size is raised by each pin (PIN9); at most that of the map */
    const struct shmc_segment *data; /* the caller's, as long as the handle */
    uint64_t ring_slots; /* there is room for: as it was checked when the handle was made */
    const struct shmc_super *super;
    struct shmc_seats_header *seats; /* NULL: no seat */
    struct shmc_seat *seat;
    uint64_t seat_index, incarnation;
    int seat_fd; /* a description of its own; holds the seat's lock */
    struct shmc_segment guarded; /* SEATS, as registered with process.c; base NULL: no seat */
    const uint64_t *fork_word;
    pthread_mutex_t lock; /* of the fields below, and of the sleepers of wake.c */
    struct {
        uint64_t generation; /* as in the seat; 0 = free */
        uint64_t count;      /* users */
        unsigned serial;     /* counts take-overs of the slot from revoked users */
        bool open;           /* users of younger generations share it (PINSLOT2) */
    } pins[SHMC_PINS];
    unsigned sleepers;
    shmc_atomic wakes; /* calls of shmc_wake_self() */
    struct shmc_relay *relays; /* whose threads use this reader (RELAY1) */
};

/* Ends the threads of all relays of a reader; its end. */
void shmc_relays_end(struct shmc_reader *reader);

#define SHMC_HUGE (UINT64_C(2) << 20) /* of the processor's large pages */

/* The part of DATA without memory for a ring of that many slots: after them, in whole large pages
 * (widen.c). */
static inline uint64_t shmc_ring_hole(uint64_t slots, uint64_t most)
{
    const uint64_t from = SHMC_RING_OFFSET + slots * sizeof(struct shmc_slot);
    const uint64_t to = SHMC_RING_OFFSET + most * sizeof(struct shmc_slot);

    return to / SHMC_HUGE * SHMC_HUGE > from ? to / SHMC_HUGE * SHMC_HUGE - from : 0;
}

/* Whether a root may name a ring of that many slots, `most` being reserved. */
static inline bool shmc_slots_valid(uint64_t slots, uint64_t most)
{
    return slots >= 2 && (slots & (slots - 1)) == 0 && slots <= most;
}

static inline bool shmc_reader_forked(const struct shmc_reader *reader)
{
    return reader->fork_word != NULL && *(const volatile uint64_t *)reader->fork_word == 0;
}

bool shmc_generation_kept(const struct shmc_super *super, uint64_t generation);

/*
 * Whether everything read through a pin of `generation` so far was intact: the floor
 * has not passed it, or it is among the kept. (VALUE3; pairs with the release fence in
 * shmc_floor_raise().)
 */
static inline bool shmc_valid(const struct shmc_super *super, uint64_t generation)
{
    shmc_fence_acquire();
    if (SHMC_DEFENDED(SHMC_CHECKED(NO_FLOOR_CHECK, shmc_load_racy(&super->floor) <= generation)))
        return true;
    return shmc_generation_kept(super, generation);
}

/* Pins the latest generation. OK, FORKED; CORRUPT if no root can be read. */
enum shmc_status shmc_pin(struct shmc_reader *reader, struct shmc_pinned *pinned);
/* Gives the pin back. Does nothing in a forked child. */
void shmc_unpin(struct shmc_reader *reader, const struct shmc_pinned *pinned);

/*
 * The quick pin: one slot of the seat without a lock, for a caller that looks up again and again
 * and serialises these four calls itself (the extension, by the GIL). Pinned only while
 * something is held; in between it is free, so that an idle worker holds nothing back.
 *   quick_root  pins the latest generation and copies its root
 *   quick_unpin releases the pin; the copy of the root may be kept
 *   quick_pin   pins the generation of that copy again; false: it is no longer the latest
 *   quick_keep  moves the pin to a counted slot, for shmc_unpin(); the quick slot is free
 *               as soon as it is used again or unpinned
 */
enum shmc_status shmc_quick_root(struct shmc_reader *reader, struct shmc_pinned *pinned);
void shmc_quick_unpin(struct shmc_reader *reader);
bool shmc_quick_pin(struct shmc_reader *reader, uint64_t generation);
void shmc_quick_keep(struct shmc_reader *reader, struct shmc_pinned *pinned);

/* Records of a pinned root. The name of a resource or index is a word. */
enum shmc_status shmc_catalogue_count(const struct shmc_span *span, const struct shmc_pinned *at,
                                      uint64_t *count);
enum shmc_status shmc_record_load(const struct shmc_span *span, const struct shmc_pinned *at,
                                  uint64_t id, struct shmc_record *record, shmc_offset *indices);
/* The present content of a record's contact block (LAYOUT8); CORRUPT: invalid. */
enum shmc_status shmc_contact_load(const struct shmc_span *span, shmc_offset contact,
                                   struct shmc_note *note);
enum shmc_status shmc_record_index_load(const struct shmc_span *span, shmc_offset indices,
                                        uint64_t index, struct shmc_record_index *loaded);

/* ---- seats.c: the owner's side ------------------------------------------------------------- */

/* The number of seats in a checked header; 0 if it is invalid. The caller has guarded them. */
uint64_t shmc_seats_count(const struct shmc_segment *seats);
/* Seat `index` of a segment that holds more than `index` seats. */
struct shmc_seat *shmc_seat_at(const struct shmc_segment *seats, uint64_t index);
/* Takes a seat for the reader through reader->seat_fd, and cleans the notes of a dead predecessor.
 * BUSY: all are taken. */
enum shmc_status shmc_seat_claim(struct shmc_reader *reader, const struct shmc_segment *seats);
/* Gives the seat back. Never to be called in a forked child: that would drop the parent's lock. */
void shmc_seat_leave(struct shmc_reader *reader);

/* ---- seats.c: the writer's side. Nothing that is loaded there is trusted -------------------- */

/* Posts to every sleeper that waits for a resource in `interest` (bit id & 63); returns to how
 * many seats. The caller's full fence lies between the publication and this call. */
uint64_t shmc_seats_wake(const struct shmc_segment *seats, uint64_t seat_count, uint64_t interest,
                         uint64_t progress);
/* Wakes every seat, announced or not. After a takeover: the predecessor may have died between a
 * publication and its post. */
void shmc_seats_wake_all(const struct shmc_segment *seats, uint64_t seat_count);

/* The lowest of the distinct acknowledged pins, ascending: all that are below the floor, since those
 * are in kept, and as many above it as reclaim.c asks about (RECLAIM4). */
#define SHMC_PIN_LIST 32u
static_assert(SHMC_PIN_LIST > 2 * SHMC_KEPT, "those in kept, and those that would be");
struct shmc_pin_list {
    uint64_t pins[SHMC_PIN_LIST];
    size_t count;
    uint64_t open; /* the lowest open pin, which holds all younger ones; or UINT64_MAX */
};
/* A pin is acknowledged if it is at most super->latest and shmc_valid(). The caller's full fence
 * lies between the publication (or the retiring) and this call. */
void shmc_seats_pins(const struct shmc_segment *seats, uint64_t seat_count,
                     const struct shmc_super *super, struct shmc_pin_list *list);
void shmc_pin_list_add(struct shmc_pin_list *list, uint64_t pin);
/* Whether another process wiped or truncated SEATS, or damaged its header. Then the header is
 * written again, the remaining notes of owners stay, and every sleeper is woken to announce
 * itself. */
bool shmc_seats_mend(const struct shmc_segment *seats, uint64_t seat_count, uint64_t instance);
/* Frees the seats of the dead: those in use whose lock can be taken through lock_fd, an open file
 * description used for nothing else. Returns how many. SEAT8: tries SHMC_REAP_STEP locks from seat
 * *next on, fewer if that takes until shmc_monotonic_ns() is `until_ns`; *next is where the next
 * call continues. */
#define SHMC_REAP_STEP 64u
uint64_t shmc_seats_reap(const struct shmc_segment *seats, uint64_t seat_count, int lock_fd,
                         uint64_t *next, uint64_t until_ns);

/* ---- wake.c ----------------------------------------------------------------------------- */

/* The conditions that end a sleep, and a word that ends it alone. */
struct shmc_wanted {
    uint64_t interest;       /* in objects and states: bit id & 63 of each resource */
    uint64_t progress;       /* in states and versions */
    const shmc_atomic *stop; /* not 0: the sleep ends, as if its time were over; or NULL */
};
enum shmc_status shmc_wait_wanted(struct shmc_reader *reader, const struct shmc_wanted *wanted,
                                  uint64_t seen, uint64_t wakes, int64_t timeout_ns);

/* Changes a seat's word if a sleep was announced on it, and wakes all threads that wait on it. */
void shmc_post(shmc_atomic32 *semaphore);
uint64_t shmc_monotonic_ns(void);
/* The kernel's sleep, while the word has the expected value: OK, TIMEOUT (of the monotonic clock),
 * INTERRUPTED, SYSTEM. And its end, for that many threads. */
enum shmc_status shmc_futex_wait(shmc_atomic32 *word, uint32_t expected, uint64_t deadline_ns);
void shmc_futex_wake(shmc_atomic32 *word, int threads);

/* ---- ring.c ------------------------------------------------------------------------- */

struct shmc_delta {
    uint64_t number, generation;
    uint32_t resource;
    uint8_t kind, flags;
    shmc_word key, version, old_value, new_value; /* SHMC_NOTHING if absent */
    uint64_t shard;
};

/*
 * Copies deltas [cursor, ...) of a pinned root into `deltas`. OK with *count >= 1; EMPTY at
 * the head; LAPPED if the cursor is before the window or the writer lapped it: continue
 * with the difference against this root, from its head. A cursor beyond head is LAPPED too.
 */
enum shmc_status shmc_ring_take(const struct shmc_reader *reader, const struct shmc_pinned *at,
                                uint64_t cursor, struct shmc_delta *deltas, size_t capacity,
                                size_t *count);

/* ---- value.c: bytes as numbers that order like them -------------------------------------- */

/* Up to 8 bytes from `start`, big-endian, zeros after the end: ordered like the bytes. */
uint64_t shmc_string_be64(const struct shmc_span *span, const struct shmc_string *string,
                          uint32_t start);
uint64_t shmc_bytes_be64(const uint8_t *bytes, size_t length, size_t start);

/* ---- value.c: texts of indices and selectors ------------------------------------------------- */

#define SHMC_TEXT_MAX 32u
/* The text of a number, true or false; 0: the word is another value. Not ended by a NUL. */
size_t shmc_number_text(const struct shmc_span *span, shmc_word word, char buffer[SHMC_TEXT_MAX]);
/* FNV-1a, 64 bits, of a uid: the ranges of a sharded watch (KEP-5866) are ranges of it. A word
 * that is not a string counts as "". */
uint64_t shmc_shard_hash(const struct shmc_span *span, shmc_word uid);

/* ---- tree.c: searching -------------------------------------------------------------- */

/* A tree's keys are one string word (primary) or two (index: value, then key). In memory they
 * are compared as bytes: the string, or value NUL key. */
struct shmc_tree_kind {
    unsigned key_words;
    unsigned payload_words; /* of a leaf's entry */
};
extern const struct shmc_tree_kind shmc_primary; /* key -> value, extra */
extern const struct shmc_tree_kind shmc_index;   /* value, key -> */

struct shmc_entry {
    shmc_word words[4]; /* primary: key, value, extra; index: value, key */
};

/* OK, NOT_FOUND, CORRUPT (impossible data: stale or broken; validate to find out which). */
enum shmc_status shmc_tree_find(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                                shmc_offset top, const uint8_t *key, size_t length,
                                struct shmc_entry *entry);

/* ---- directory.c: looking up by hash ------------------------------------------------------- */

uint64_t shmc_key_hash(uint64_t hash_key, const uint8_t *bytes, size_t length);
/* OK, NOT_FOUND, or CORRUPT as shmc_tree_find(). */
enum shmc_status shmc_directory_find(const struct shmc_span *span, shmc_offset top, uint64_t hash,
                                     const uint8_t *key, size_t length, shmc_word *value);

struct shmc_cursor {
    const struct shmc_span *span;
    const struct shmc_tree_kind *kind;
    unsigned depth; /* levels in use; 0 = at the end */
    struct {
        shmc_offset node;
        uint32_t level, index;
    } path[SHMC_MAX_HEIGHT];
};

/* Moves to the first entry >= key (length 0: the first of all). OK or CORRUPT. */
enum shmc_status shmc_cursor_seek(struct shmc_cursor *cursor, const struct shmc_span *span,
                                  const struct shmc_tree_kind *kind, shmc_offset top,
                                  const uint8_t *key, size_t length);
/* OK, EMPTY at the end, CORRUPT. */
enum shmc_status shmc_cursor_next(struct shmc_cursor *cursor, struct shmc_entry *entry);

/* ---- diff.c: between two states of a resource ------------------------------------------------- */

struct shmc_diff_node {
    shmc_offset keys, payload; /* columns of an open node */
    uint32_t count, index, level;
};
struct shmc_diff_side {
    unsigned depth; /* open nodes; 0: before the top node, or at the end (top is 0) */
    shmc_offset top;
    struct shmc_diff_node nodes[SHMC_MAX_HEIGHT];
};
struct shmc_diff {
    const struct shmc_span *span;
    struct shmc_diff_side sides[2]; /* old, new */
    uint64_t budget;
    uint64_t skipped; /* shared nodes that were not opened */
};
struct shmc_difference {
    unsigned kind; /* SHMC_ADDED, SHMC_MODIFIED, SHMC_DELETED */
    shmc_word key, old_value, new_value; /* SHMC_NOTHING if absent */
};

/* Between two primary trees of one DATA, whose generations are both held. `entries`: of both
 * together, as their records count them. */
void shmc_diff_open(struct shmc_diff *diff, const struct shmc_span *span, shmc_offset old_top,
                    shmc_offset new_top, uint64_t entries);
/* The next difference, in key order: OK, EMPTY, or CORRUPT (validate both: it may be stale). */
enum shmc_status shmc_diff_next(struct shmc_diff *diff, struct shmc_difference *found);

/* ---- arena.c, arenaclaim.c: blocks (writer only from here on) --------------------------- */

struct shmc_page {
    uint64_t *meta;      /* per slot: count | link << 32 (see arena.c) */
    uint32_t used;       /* slots not free; for a large block: its pages */
    uint32_t free_head;  /* slot + 1 of the first free slot never or formerly used */
    uint32_t next, prev; /* among pages of the class with room; page + 1 */
    uint16_t class_id;
    uint16_t fresh; /* slots ever handed out: the others were never touched */
};

struct shmc_arena {
    struct shmc_segment *data;
    struct shmc_super *super;
    struct shmc_heap *heap;
    struct shmc_page *pages;
    uint32_t page_count, page_capacity;
    uint32_t first_page;  /* number of the page at arena_offset */
    uint32_t *room;       /* per class: page + 1 of a page with a free slot */
    uint32_t *reciprocal; /* per class: 2^32 / size, rounded up */
    struct shmc_list empties; /* pages that fell empty while they were held */
    uint64_t *free_pages; /* bitmap of unowned pages */
    uint32_t free_page_count, free_page_hint;
    uint64_t used_bytes;  /* blocks handed out, limbo included */
    uint64_t reused_bytes;
    uint64_t birth_base;  /* births are counted from it (ARENA6) */
    uint32_t birth;       /* birth of the blocks handed out now */
    bool hold_pages;      /* a batch is open: pages stay with their class */
    bool may_use_reserve; /* the open batch gives something back (ARENA5) */
    bool refused;         /* the last growth was refused */
    uint32_t reserve;     /* pages that only such a batch may take */
};

enum shmc_status shmc_arena_create(struct shmc_arena *arena, struct shmc_segment *data,
                                   struct shmc_heap *heap);
void shmc_arena_destroy(struct shmc_arena *arena);
enum shmc_status shmc_arena_alloc(struct shmc_arena *arena, uint64_t size, shmc_offset *block);
void shmc_arena_free(struct shmc_arena *arena, shmc_offset block);
uint64_t shmc_arena_block_size(const struct shmc_arena *arena, shmc_offset block);
/* Count and link of a block: private, two 32-bit halves. */
uint64_t *shmc_arena_meta(const struct shmc_arena *arena, shmc_offset block);
uint64_t shmc_arena_high_water(const struct shmc_arena *arena);
/* Whether an offset is that of a block handed out at some time (verification). */
bool shmc_arena_is_block(const struct shmc_arena *arena, shmc_offset block);
/* Whether room is short: blocks in limbo should be given back before a batch begins. */
bool shmc_arena_short(const struct shmc_arena *arena);
/* While held, no page changes its class (ARENA3). */
void shmc_arena_hold(struct shmc_arena *arena, bool hold);

/* Blocks on one list through their metas, by granule. */
struct shmc_chain {
    uint32_t first, last;
    uint64_t bytes;
    uint64_t uncounted; /* not on the list: bytes of claimed blocks whose count is 0 */
};
/*
 * Taking over the data of another writer, in an arena just created: adopt its pages, claim each
 * reachable block, settle. CORRUPT: a claim is impossible.
 *   adopt    all below high_water, which lies in the file; nothing is claimed yet
 *   claim    a block of at least `size` bytes begins there; its meta, whose low half is its count
 *   claimed  the meta of a claimed block, valid until the next claim; NULL: it is not claimed
 *   settle   ends it: metas keep their low half, and all unclaimed blocks are chained in limbo
 */
enum shmc_status shmc_arena_adopt(struct shmc_arena *arena, uint64_t high_water);
enum shmc_status shmc_arena_claim(struct shmc_arena *arena, shmc_offset block, uint64_t size,
                                  uint64_t meta);
uint64_t *shmc_arena_claimed(const struct shmc_arena *arena, shmc_offset block);
/* Prefetches for claimed(). The offset may be anything. */
void shmc_arena_fetch(const struct shmc_arena *arena, shmc_offset block);
enum shmc_status shmc_arena_settle(struct shmc_arena *arena, struct shmc_chain *left);

/* Called before a batch begins: births continue to fit into their bits (ARENA6). */
void shmc_arena_births(struct shmc_arena *arena, uint64_t generation);
/* The generation that first may have led to the block; 0: from before births were counted. Not for
 * a free block. */
uint64_t shmc_arena_birth(const struct shmc_arena *arena, shmc_offset block);

/*
 * A block's meta. The low half is its count, or its state if it is not alive, with its birth; the
 * high half is the birth of a living one, else the link to the next block of a list.
 *
 *      63   59 58        32 31 30    28 27 26          0
 *     +-----+--+------------+--+--------------------------+
 *     |     |in| birth      | 0|  count                   |  alive
 *     | link                | 1|  state  |in| birth       |  DEAD: state is the block's tag
 *     +---------------------+--+---------+----------------+  (0, 4 to 7); else LIMBO or FREE
 *
 *     in: the block has an entry in the table of equals
 */
#define SHMC_META_DEAD 0x80000000u  /* | tag << 28: count fell to 0, children not yet dropped */
#define SHMC_META_LIMBO 0x90000000u /* retired, waiting */
#define SHMC_META_FREE 0xa0000000u  /* not handed out; no birth */
#define SHMC_META_BIRTH 0x07ffffffu
#define SHMC_META_IN 0x08000000u /* of a half; of the high one while the block is alive */
/* The count of a living block; DEAD (with tag), LIMBO or FREE of any other. */
static inline uint32_t shmc_meta_count(uint64_t meta)
{
    const uint32_t low = (uint32_t)meta;

    return low < SHMC_META_DEAD ? low : low & ~(SHMC_META_BIRTH | SHMC_META_IN);
}
/* Counted from the arena's birth_base; 0: from before that. */
static inline uint32_t shmc_meta_birth(uint64_t meta)
{
    const uint32_t low = (uint32_t)meta;

    return (low < SHMC_META_DEAD ? (uint32_t)(meta >> 32) : low) & SHMC_META_BIRTH;
}
/* Whether a block that is alive, or DEAD, has an entry in the table of equals. */
static inline bool shmc_meta_in(uint64_t meta)
{
    const uint32_t low = (uint32_t)meta;

    return ((low < SHMC_META_DEAD ? (uint32_t)(meta >> 32) : low) & SHMC_META_IN) != 0;
}
static inline uint32_t shmc_granule(shmc_offset block)
{
    return (uint32_t)(block >> 3);
}

/* ---- intern.c: the table of equals ------------------------------------------------------ */

struct shmc_intern {
    void *memory;
    uint64_t *entries; /* in memory; drawn in intern.c; 0 = empty */
    uint64_t capacity, count;
    uint64_t forget_from; /* from this capacity on it forgets instead of growing */
    uint64_t seed[4];
};
enum shmc_status shmc_intern_create(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t seed);
void shmc_intern_destroy(struct shmc_intern *table, struct shmc_heap *heap);

/* ---- limbo.c, reclaim.c: blocks that readers need ------------------------------------------ */

#define SHMC_LIMBO_STEP 4096u   /* blocks that one call visits (RECLAIM7) */
#define SHMC_LIMBO_GROUPS 65536u /* more generations than these share the last group */

/* Blocks in limbo, chained through their metas. */
struct shmc_limbo_list {
    uint64_t upper; /* of a group: the generation that retired them. Of blocks that a pin held: that
                     * pin. No younger pin leads to them; 0: an unused list */
    uint32_t first, last; /* granules; 0: it is empty */
    uint64_t bytes;
};
struct shmc_limbo {
    struct shmc_limbo_list *groups; /* a queue, oldest first: not yet checked against pins */
    size_t start, count, capacity;
    struct shmc_limbo_list held[SHMC_KEPT]; /* by the youngest pin that leads to them; unordered */
    struct shmc_limbo_list loose;  /* their pin is gone, an older one may lead to them */
    struct shmc_limbo_list doomed; /* no pin leads to them: they wait for their turn to be freed */
    size_t doomed_groups; /* so do the first groups of the queue */
    struct shmc_limbo_list inherited; /* left by the previous writer, most of it never used since */
    uint64_t bytes;        /* of all lists and groups together */
    uint64_t held_bytes;   /* of held */
    uint64_t doomed_bytes; /* of doomed, and of the doomed groups */
    uint64_t fresh;        /* blocks retired since the last scan of the pins */
    uint64_t steps, scans; /* blocks visited, scans of the pins: bounded by RECLAIM7 */
};

/* ---- make.c, batch.c, changes.c: building values, changing resources (state: writer.h) ------- */

/* Value construction. Children must be words of this writer that are alive (counted, or made
 * in this batch). A block without references at the end of the batch is freed with it. */
enum shmc_status shmc_make_string(struct shmc_writer *writer, const uint8_t *bytes, size_t length,
                                  uint32_t flags, shmc_word *word);
enum shmc_status shmc_make_number(struct shmc_writer *writer, uint64_t kind, uint64_t bits,
                                  shmc_word *word);
enum shmc_status shmc_make_array(struct shmc_writer *writer, const shmc_word *words, size_t count,
                                 shmc_word *word);
enum shmc_status shmc_make_shape(struct shmc_writer *writer, const shmc_word *keys, size_t count,
                                 shmc_offset *shape);
enum shmc_status shmc_make_object(struct shmc_writer *writer, shmc_offset shape,
                                  const shmc_word *words, size_t count, shmc_word *word);
/* Whether a block is in the table of equals now, so that its word may be used as a child. */
bool shmc_is_live(const struct shmc_writer *writer, shmc_offset block);
const struct shmc_span *shmc_writer_span(const struct shmc_writer *writer);
uint64_t shmc_writer_instance(const struct shmc_writer *writer);
/* Counts of batches begun, changes made in this one, and shapes that ever died: a cache of words
 * outside the writer must compare them before it trusts itself. */
/* Whether the open batch can still be published: nothing failed in the middle of a change. */
bool shmc_batch_alive(const struct shmc_writer *writer);
uint64_t shmc_batch_number(const struct shmc_writer *writer);
uint64_t shmc_batch_changes(const struct shmc_writer *writer);
uint64_t shmc_shape_deaths(const struct shmc_writer *writer);

/* The flags for a string's bytes; false if they are not UTF-8. */
bool shmc_string_flags(const uint8_t *bytes, size_t length, uint32_t *flags);

/* One change of the open batch. emitted: values of indices without a path, one array word
 * (of string words) or SHMC_NOTHING per such index, in order. */
struct shmc_change {
    uint32_t resource;
    const uint8_t *key;
    size_t key_length;
    shmc_word value;
    shmc_word version; /* string word or SHMC_NOTHING */
    bool looked_up; /* the last look-up in this resource was shmc_current() of this key */
    const shmc_word *emitted;
    size_t emitted_count;
};
/* The current value of a key in the open batch (or published): NOT_FOUND if absent. */
enum shmc_status shmc_current(struct shmc_writer *writer, uint32_t resource, const uint8_t *key,
                              size_t key_length, shmc_word *value);
/* After shmc_current() found nothing: the value under a neighbouring key, which is probably
 * similar; SHMC_NOTHING if the resource is empty. */
shmc_word shmc_nearest(const struct shmc_writer *writer);
enum shmc_status shmc_put(struct shmc_writer *writer, const struct shmc_change *change);
enum shmc_status shmc_stage(struct shmc_writer *writer, const struct shmc_change *change);
/* New outside values for an existing object (key, emitted): no delta, the same version. For
 * back-filling an index that was declared later. */
enum shmc_status shmc_refill(struct shmc_writer *writer, struct shmc_change *change);
/* The indices whose values come from outside, in order; returns how many. */
size_t shmc_external_indices(const struct shmc_writer *writer, uint32_t resource,
                             uint32_t indices[SHMC_MAX_INDICES]);
/* An index value as stored in the tree: NUL and \1 escaped. *length <= 2 * length. */
size_t shmc_index_escape(const uint8_t *bytes, size_t length, uint8_t *to);
size_t shmc_index_unescape(uint8_t *bytes, size_t length);

#endif
