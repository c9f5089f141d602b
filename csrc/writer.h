/*
 * writer.h - what the files of the writer share: its private state.
 *
 * Nothing here lives in shared memory. All of it can be rebuilt by a walk from the
 * last root (trees and valid window slots), which is what makes the writer
 * crash-only.
 */
#ifndef SHMC_WRITER_H
#define SHMC_WRITER_H

#include "mutants.h"
#include "tree.h"

/* What the open batch has done, so that it can be undone. */
struct shmc_undo {
    struct shmc_list fresh;   /* blocks handed out: offset | tag, or SHMC_FRESH_NODE */
    struct shmc_list takes;   /* words counted outside of fresh blocks */
    struct shmc_list drops;   /* words to release once the batch is published */
    struct shmc_list retired; /* published nodes and records that it replaced */
};
/* A tag that no block has: nodes, records, catalogues, which are not counted. Else: its own tag. */
#define SHMC_FRESH_NODE 1u

/* A change waiting to become a slot of the ring. */
struct shmc_pending {
    uint32_t resource;
    uint8_t kind, flags;
    shmc_word key, version, old_value, new_value;
    uint64_t shard, charge;
};

/* A resource as it was when the batch first touched it. */
struct shmc_saved {
    shmc_word settings, version, reason, listed, marks;
    uint64_t state, since_ns, generation, count, unbroken;
    shmc_offset primary, directory, record;
    uint32_t index_count;
    uint64_t trees[SHMC_MAX_INDICES], counts[SHMC_MAX_INDICES];
    struct shmc_windex *indices; /* as they were when the batch first dropped one; else NULL */
    uint32_t indices_count;
};

struct shmc_wresource {
    shmc_word name, settings, version, reason, listed, marks;
    uint64_t state, since_ns, generation, count, unbroken;
    shmc_offset primary, directory, record, contact;
    struct shmc_windex *indices; /* SHMC_MAX_INDICES of them once there is one */
    uint32_t index_count;
    uint64_t delta_count;      /* of the open batch */
    struct shmc_saved *saved;  /* of the open batch; NULL: untouched */
    bool dirty;                /* the record must be written anew */
    uint32_t replacing;        /* stagings that are open: shares, or one of the whole */
    bool replacing_whole;
    bool finishing;            /* the open batch puts staged objects in place: these */
    size_t staged_from, staged_to;
    struct shmc_list staged;   /* four words an object: key, value, extra (counted), serial */
    uint64_t staged_serial;
    size_t staged_before;      /* the open batch */
};

/* Where objects of one shape (an id is never used twice) have a key: what was found in the last
 * shapes. All zero: nothing. */
#define SHMC_PLACES 4u
struct shmc_places {
    uint64_t shapes[SHMC_PLACES]; /* 0: none, or that of {} */
    uint64_t places[SHMC_PLACES]; /* the shape's count: it has no such key */
};

/* A step of an index's path, worked out when it is first taken. */
struct shmc_step {
    uint32_t from, length; /* of the key in the path; SHMC_EACH: [*] */
    uint32_t left;         /* of the path, behind it */
    bool known;
    struct shmc_places places;
};
#define SHMC_EACH UINT32_MAX
#define SHMC_STEPS 4u /* those behind them are worked out each time */

struct shmc_windex {
    struct shmc_step steps[SHMC_STEPS];
    shmc_word name, settings;
    shmc_offset tree;
    uint64_t count;
    char *path; /* NULL: its values come from outside */
    size_t path_length;
};

/* Texts of containers that were read before (parseseen.c). */
struct shmc_seen {
    struct shmc_seen_entry *entries; /* 2^(64 - shift) of them; NULL: none yet */
    uint64_t taken, birth_base;
    unsigned shift;
};

/* Where a key is in a tree, or would be. Good until the tree changes. */
struct shmc_path {
    shmc_offset top; /* of the tree that was searched */
    bool found;
    unsigned depth; /* of the leaf + 1; 0: the tree is empty */
    struct shmc_entry entry; /* zeros if not found */
    struct shmc_node nodes[SHMC_MAX_HEIGHT];
    uint32_t index[SHMC_MAX_HEIGHT];
};

struct shmc_writer {
    struct shmc_heap heap;
    struct shmc_span span; /* the same DATA, as a reader sees it: nobody else writes */
    struct shmc_segment *data, *seats;
    struct shmc_super *super;
    struct shmc_arena arena;
    struct shmc_intern intern;
    struct shmc_seen seen;
    struct shmc_limbo limbo;

    uint64_t generation; /* published */
    uint64_t head, tail;
    shmc_offset catalogue;
    uint64_t incarnation, ring_mask;
    uint64_t ring_limit;    /* bytes; 0: by the live bytes */
    uint64_t garbage_limit; /* bytes */
    uint32_t *charges;      /* per slot: bytes its old version retains, as charged */
    uint64_t charge_slots;  /* there is room for */
    uint64_t widen_from;    /* the head from which on a wider ring is asked for again (widen.c) */
    uint64_t ring_wish;     /* slots that the last batch had wanted and found no places in */
    uint64_t charged;       /* sum over the window */
    uint64_t next_id, reserved_id;

    struct shmc_wresource *resources;
    uint32_t resource_count, resource_capacity, batch_resource_count;

    bool in_batch, poisoned; /* poisoned: can only be aborted */
    bool forced;             /* publish even if nothing changed */
    bool drop_window;        /* ... with an empty window */
    shmc_offset catalogue_before;
    bool pending_overflow;   /* more changes than half the ring: RELIST */
    struct shmc_undo undo;
    struct shmc_pending *pending;
    size_t pending_count, pending_capacity;
    uint64_t batch_number, batch_changes, shape_deaths;
    uint64_t value_blocks; /* alive */
    struct shmc_path path; /* of the last shmc_current() */
    uint32_t looked_up;    /* in which resource */
    uint64_t path_batch;   /* in which batch; 0: the path's nodes may be gone */
    uint64_t fresh_bytes; /* of values, in the current operation */

    struct shmc_places metadata, uid;
    uint8_t *scratch; /* keys of index entries */
    size_t scratch_size;
    struct shmc_list words; /* scratch of make_string */

    uint64_t node_bytes; /* handed out to nodes, records, catalogue; limbo not included */
    uint64_t last_reclaim_ns, last_reap_ns;
    uint64_t limbo_waited; /* bytes of groups that the last look at the pins could not settle */
    uint64_t seat_count, seats_instance;
    struct shmc_stats counters; /* revoked, commits, deltas, relists, wakes */
};

/* As shmc_object_find(), of a word that is alive: nobody else writes, so nothing is checked. The
 * places are those of this key alone. */
static inline shmc_word shmc_member(const struct shmc_span *span, struct shmc_places *known,
                                    shmc_word word, const uint8_t *key, uint32_t length)
{
    if (shmc_tag(word) != SHMC_TAG_OBJECT)
        return SHMC_NOTHING;
    const struct shmc_object object = {
        .words = shmc_block_of(word) + 8,
        .shape = shmc_load_at(span, shmc_block_of(word)),
        .shape_id = shmc_load_at(span, shmc_load_at(span, shmc_block_of(word))),
        .count = shmc_load_at(span, shmc_load_at(span, shmc_block_of(word)) + 8),
    };
    const unsigned slot = object.shape_id & (SHMC_PLACES - 1);
    if (known->shapes[slot] != object.shape_id) {
        known->shapes[slot] = object.shape_id;
        known->places[slot] = shmc_object_place(span, &object, key, length);
    }
    const uint64_t place = known->places[slot];
    return place < object.count ? shmc_load_at(span, object.words + place * 8) : SHMC_NOTHING;
}

/* value words ------------------------------------------------------------------------ */

/* The plain bytes of a string word; short ones are spread out in `buffer`. */
const uint8_t *shmc_word_bytes(const struct shmc_writer *writer, shmc_word word,
                               uint8_t buffer[8], size_t *length);

/* alike.c ---------------------------------------------------------------------------- */

/* Of words that are alive: whether they are equal as JSON, keys in their order (T2). */
bool shmc_same_value(const struct shmc_writer *writer, shmc_word a, shmc_word b);

/* intern.c ---------------------------------------------------------------------------- */

enum shmc_status shmc_intern_reserve(struct shmc_intern *table, struct shmc_heap *heap);
/* The hash of a block's content. Its place is asked for already: who looks or adds a little later
 * does not wait for memory. */
uint64_t shmc_intern_hash(const struct shmc_intern *table, unsigned tag, const uint64_t *content,
                          size_t count);
bool shmc_intern_find(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                      const uint64_t *content, size_t count, uint64_t hash, shmc_offset *block);
void shmc_intern_add(struct shmc_intern *table, unsigned tag, uint64_t hash, shmc_offset block);
bool shmc_intern_has(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                     shmc_offset block);
/* The entry of a block that is in the table. Its place is asked for already: removing it a little
 * later does not wait for memory. */
uint64_t shmc_intern_entry(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                           shmc_offset block);
void shmc_intern_remove(struct shmc_intern *table, uint64_t entry);
/* Room for so many entries, in a table that has none yet: growing step by step costs more. */
enum shmc_status shmc_intern_expect(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t count);
/* Puts the entry of a block that is there into a table made anew, unless it has an equal there. */
enum shmc_status shmc_intern_restore(struct shmc_intern *table, struct shmc_heap *heap,
                                     const uint8_t *base, uint64_t entry, bool *in);
/* Between batches: a table that is large and nearly full lets go of what nobody shares (T5). */
void shmc_intern_forget(struct shmc_intern *table, struct shmc_heap *heap,
                        const struct shmc_arena *arena);

/* parseseen.c -------------------------------------------------------------------------- */

/* A block of the open batch is given back: another may come to its place with the same birth. */
void shmc_seen_forget(struct shmc_writer *writer, shmc_offset block);
/* Between batches: births may have been counted anew. */
void shmc_seen_births(struct shmc_writer *writer);
void shmc_seen_destroy(struct shmc_writer *writer);

/* counts.c: who still needs a block -------------------------------------------------------- */

/* Hands out a block of the open batch. */
enum shmc_status shmc_fresh_block(struct shmc_writer *writer, uint64_t size, unsigned what,
                                  shmc_offset *block);
/* One more reference, noted for undo. The word must be alive. */
enum shmc_status shmc_take(struct shmc_writer *writer, shmc_word word);
/* One reference less, once the batch is published. */
enum shmc_status shmc_drop_later(struct shmc_writer *writer, shmc_word word);
/* Nodes of trees and directories, records, catalogues: one parent each, not counted. */
enum shmc_status shmc_node_alloc(struct shmc_writer *writer, uint64_t size, shmc_offset *node);
/* The block that is asked for, for a node of so many bytes. */
uint64_t shmc_node_room(uint64_t size);
/* The batch replaced it: retired with the batch. */
enum shmc_status shmc_node_replaced(struct shmc_writer *writer, shmc_offset node);
/* For nodes with their generation in the second word: built by the open batch? If so, dropping
 * frees it at once. */
bool shmc_node_is_fresh(const struct shmc_writer *writer, shmc_offset node);
enum shmc_status shmc_node_drop(struct shmc_writer *writer, shmc_offset node);
void shmc_count_up(struct shmc_writer *writer, shmc_word word);
/* Releases at once: what falls to zero is retired at the published generation. */
void shmc_count_down(struct shmc_writer *writer, shmc_word word);
/* Asks for what releasing a word will look at: its block if that is due in two releases or more
 * (soon = 2), what this contains (1), what that contains (0). Each step needs the one before to
 * have arrived, or waits for it. */
void shmc_fetch_leaving(const struct shmc_writer *writer, shmc_word word, unsigned soon);
/* Frees what the batch made and nobody counts. */
void shmc_sweep_fresh(struct shmc_writer *writer);
void shmc_undo_counts(struct shmc_writer *writer);
/* Bytes that only `word` leads to, at most; bounded work. */
uint64_t shmc_exclusive_bytes(const struct shmc_writer *writer, shmc_word word);

/* reclaim.c ------------------------------------------------------------------------------- */

/* Room for one more group, so that retiring cannot fail. */
enum shmc_status shmc_limbo_reserve(struct shmc_writer *writer);
void shmc_retire(struct shmc_writer *writer, shmc_offset block);
void shmc_reclaim_in_steps(struct shmc_writer *writer, uint64_t now_ns);
/* What a dead writer left and no root reaches: retired at the published generation. */
enum shmc_status shmc_limbo_inherit(struct shmc_writer *writer, const struct shmc_chain *left);
void shmc_limbo_destroy(struct shmc_writer *writer);

/* treewrite.c ----------------------------------------------------------------------------- */

/* Looks for a key; OK or NOT_FOUND, with the path in both cases. */
enum shmc_status shmc_path_find(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                shmc_offset top, const uint8_t *key, size_t length,
                                struct shmc_path *path);
/* Whether the leaf of a primary tree that a path leads to, still good, has the key or the place
 * where it would be: then the path leads there. Else it is used up, and shmc_path_find() is due. */
bool shmc_path_beside(const struct shmc_writer *writer, const uint8_t *key, size_t length,
                      struct shmc_path *path);
/* The nodes of a primary tree change: writer->path may not be used to look beside it any more. */
static inline void shmc_path_forget(struct shmc_writer *writer)
{
    writer->path_batch = 0;
}
/*
 * Puts an entry where the path leads: a new one, or a new payload for the one that is
 * there (whose key words stay); then the path leads to it still, else it is used up. *top is
 * replaced. Counting is the caller's. Any error poisons.
 */
enum shmc_status shmc_path_put(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                               struct shmc_path *path, const struct shmc_entry *entry,
                               shmc_offset *top);
/* NOT_FOUND, or the entry that is gone. */
enum shmc_status shmc_tree_delete(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                  shmc_offset *top, const uint8_t *key, size_t length,
                                  struct shmc_entry *old);

/* directory.c ----------------------------------------------------------------------------- */

/* The key as its bytes and as the word that the tree has for it. */
enum shmc_status shmc_directory_put(struct shmc_writer *writer, shmc_offset *top,
                                    const uint8_t *key, size_t length, shmc_word key_word,
                                    shmc_word value);
enum shmc_status shmc_directory_delete(struct shmc_writer *writer, shmc_offset *top,
                                       const uint8_t *key, size_t length, shmc_word key_word);
#define SHMC_FAN_BITS 5u
#define SHMC_DIRECTORY_LEVELS 12u /* of inner nodes: 60 bits */
/* One node, for a walk: an inner one has count offsets at words (0 = none), a bucket count
 * hashes, then count keys, then count values. False: it cannot be one. */
struct shmc_directory_node {
    bool inner;
    uint64_t count, size;
    shmc_offset words;
};
bool shmc_directory_node(const struct shmc_span *span, shmc_offset offset,
                         struct shmc_directory_node *node);

/* indices.c ------------------------------------------------------------------------------- */

/* Brings every index of a resource from one version of an object to the next (either may be
 * SHMC_NOTHING). key is the primary key's word, alive. */
enum shmc_status shmc_indices_update(struct shmc_writer *writer, struct shmc_wresource *resource,
                                     shmc_word key, shmc_word old_value, shmc_word old_extra,
                                     shmc_word new_value, shmc_word new_extra);
bool shmc_path_valid(const char *path, size_t length);
enum shmc_status shmc_index_fill(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 uint32_t index);

/* batch.c ------------------------------------------------------------------------------------ */

/* Saves a resource before the batch changes it, and marks its record to be written anew. */
enum shmc_status shmc_touch(struct shmc_writer *writer, struct shmc_wresource *resource);
/* OK if a batch is open that can still succeed, and the resource exists. */
enum shmc_status shmc_usable(const struct shmc_writer *writer, uint32_t resource);
/* Passes a status on; anything but OK means that the batch can only be aborted. */
enum shmc_status shmc_poison(struct shmc_writer *writer, enum shmc_status status);

/* resources.c -------------------------------------------------------------------------------- */

void shmc_indices_free(struct shmc_writer *writer, struct shmc_windex *indices, uint32_t count);
void shmc_saved_free(struct shmc_writer *writer, struct shmc_wresource *resource);
void shmc_resource_free(struct shmc_writer *writer, struct shmc_wresource *resource);
enum shmc_status shmc_make_text(struct shmc_writer *writer, const char *text, size_t length,
                                shmc_word *word);

/* contact.c ---------------------------------------------------------------------------------- */

/* A resource's contact block, all zero; it goes away with the batch if that is aborted. */
enum shmc_status shmc_contact_alloc(struct shmc_writer *writer, shmc_offset *contact);

/* changes.c: a mark in place of all changes of a resource. */
enum shmc_status shmc_pending_relist(struct shmc_writer *writer, uint32_t resource);

/* changes.c, replace.c: entries whose words are alive ----------------------------------------- */

enum shmc_status shmc_put_entry(struct shmc_writer *writer, uint32_t id,
                                const struct shmc_entry *entry);
enum shmc_status shmc_stage_entry(struct shmc_writer *writer, uint32_t id,
                                  const struct shmc_entry *entry);
/* Forgets what the open batch staged; its counts are undone apart. */
void shmc_stage_undo(struct shmc_wresource *resource);
/* The open batch was published: what it put in place is no longer staged. */
void shmc_stage_done(struct shmc_writer *writer, struct shmc_wresource *resource);

/* writer.c ------------------------------------------------------------------------------------ */

/* A writer with empty private tables, on a formatted DATA. */
enum shmc_status shmc_writer_make(struct shmc_segment *data, struct shmc_segment *seats,
                                  const struct shmc_writer_settings *settings,
                                  struct shmc_writer **made);
/* From here on whoever wrote this DATA before is fenced off. */
/* Says in DATA which file's lock its writer holds. */
void shmc_writer_guard(struct shmc_super *super, const uint64_t guard[2]);
void shmc_writer_begin(struct shmc_writer *writer, const struct shmc_writer_settings *settings);
/* A generation in which nothing changed: the first, or one with another window. */
enum shmc_status shmc_publish_forced(struct shmc_writer *writer);

/* publish.c ------------------------------------------------------------------------------- */

/* What the batch did, as slots, records and a catalogue; the publication; then the releases. */
enum shmc_status shmc_publish(struct shmc_writer *writer, uint64_t now_ns);
/* Where the window must begin when the open batch is behind it, with `window` deltas at the most;
 * the bytes that it then retains. */
uint64_t shmc_window_tail(const struct shmc_writer *writer, uint64_t window, uint64_t *charged);

/* widen.c --------------------------------------------------------------------------------- */

struct shmc_slot *shmc_ring_slots(const struct shmc_writer *writer);
/* The deltas that the window holds at the most, and a batch. */
uint64_t shmc_ring_window(const struct shmc_writer *writer);
/* As many slots as a ring begins with; as many as a root says. */
enum shmc_status shmc_ring_create(struct shmc_writer *writer,
                                  const struct shmc_writer_settings *settings);
enum shmc_status shmc_ring_adopt(struct shmc_writer *writer, uint64_t slots);
/* More of them, if the open batch or the window needs it; else the batch may become marks. Before
 * any slot is written. Without OK not even marks have room. */
enum shmc_status shmc_ring_make_room(struct shmc_writer *writer);
/* Ring and arena into another segment of that length, which has the same geometry. */
enum shmc_status shmc_ring_copy(const struct shmc_writer *writer, const struct shmc_segment *data);

#endif
