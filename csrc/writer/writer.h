/*
 * writer.h - the writer's private state, shared by its files.
 *
 * Nothing here lives in shared memory. All of it can be rebuilt by a walk from the
 * last root (trees and valid window slots), which makes the writer
 * crash-only.
 */
#ifndef SHMC_WRITER_H
#define SHMC_WRITER_H

#include "mutants.h"
#include "trees/tree.h"

/* The effects of the open batch, so that it can be undone. */
struct shmc_undo {
    struct shmc_list fresh;   /* blocks handed out: offset | tag, or SHMC_FRESH_NODE */
    struct shmc_list takes;   /* words counted outside of fresh blocks */
    struct shmc_list drops;   /* words to release once the batch is published */
    struct shmc_list retired; /* published nodes and records that it replaced */
};
/* A tag that no block has, for nodes, records, catalogues, which are not counted. */
#define SHMC_FRESH_NODE 1u

/* A change waiting to become a slot of the ring. */
struct shmc_pending {
    uint32_t resource;
    uint8_t kind, flags;
    shmc_word key, version, old_value, new_value;
    uint64_t shard, charge;
};

/* The part of a resource that a batch changes, and that undoing it restores. */
struct shmc_content {
    shmc_word settings, version, reason, listed, marks;
    uint64_t state, since_ns, generation, count, unbroken;
    shmc_offset primary, directory, record;
    uint32_t index_count;
};

/* A resource as it was when the batch first touched it. */
struct shmc_saved {
    struct shmc_content content;
    uint64_t trees[SHMC_MAX_INDICES], counts[SHMC_MAX_INDICES];
    struct shmc_windex *indices; /* as they were when the batch first dropped one; else NULL */
    uint32_t indices_count;
};

struct shmc_wresource {
    shmc_word name;
    shmc_offset contact;
    struct shmc_content now;
    struct shmc_windex *indices; /* SHMC_MAX_INDICES of them once there is one */
    uint64_t delta_count;      /* of the open batch */
    struct shmc_saved *saved;  /* for the open batch; NULL: untouched */
    bool dirty;                /* the record must be rewritten */
    uint32_t replacing;        /* open stagings: shares, or one of the whole */
    bool replacing_whole;
    bool finishing;            /* the open batch puts staged objects in place: these */
    size_t staged_from, staged_to;
    struct shmc_list staged;   /* four words an object: key, value, extra (counted), serial */
    uint64_t staged_serial;
    size_t staged_before;      /* the open batch */
};

/* A step of an index's path, worked out when it is first taken. */
struct shmc_step {
    uint32_t from, length; /* of the key in the path; SHMC_EACH: [*] */
    uint32_t left;         /* of the path, after it */
    bool known;
    struct shmc_members members;
};
#define SHMC_EACH UINT32_MAX
#define SHMC_STEPS 4u /* later ones are computed each time */

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

/* Where a key is in a tree, or would be. Valid until the tree changes. */
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
    uint64_t widen_from;    /* no wider ring is requested before this head (widen.c) */
    uint64_t ring_wish;     /* slots that the last batch needed and could not get */
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

    struct shmc_members metadata, uid;
    uint8_t *scratch; /* keys of index entries */
    size_t scratch_size;
    struct shmc_list words; /* scratch of make_string */

    uint64_t node_bytes; /* handed out to nodes, records, catalogue; limbo not included */
    uint64_t last_reclaim_ns, last_reap_ns;
    uint64_t next_reaped; /* seat (SEAT8) */
    uint64_t limbo_waited; /* bytes of groups that the last scan of the pins could not settle */
    uint64_t seat_count, seats_instance;
    struct shmc_stats counters; /* revoked, commits, deltas, relists, wakes */
};

/* As shmc_object_find(), for a live word: no other process writes, so nothing is checked. The
 * members are those of this key alone. */
static inline shmc_word shmc_member(const struct shmc_span *span, struct shmc_members *known,
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
    return shmc_members_value(span, known, &object, key, length);
}

/* value words ------------------------------------------------------------------------ */

/* The plain bytes of a string word; short ones are spread out in `buffer`. */
const uint8_t *shmc_word_bytes(const struct shmc_writer *writer, shmc_word word,
                               uint8_t buffer[8], size_t *length);

/* make.c ----------------------------------------------------------------------------- */

/* For live words: whether they are equal as JSON, keys in their order (INTERN2). */
bool shmc_same_value(const struct shmc_writer *writer, shmc_word a, shmc_word b);

/* intern.c ---------------------------------------------------------------------------- */

enum shmc_status shmc_intern_reserve(struct shmc_intern *table, struct shmc_heap *heap);
/* The hash of a block's content. Prefetches its entry: a look-up or addition a little later does
 * not wait for memory. */
uint64_t shmc_intern_hash(const struct shmc_intern *table, unsigned tag, const uint64_t *content,
                          size_t count);
bool shmc_intern_find(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                      const uint64_t *content, size_t count, uint64_t hash, shmc_offset *block);
void shmc_intern_add(struct shmc_intern *table, unsigned tag, uint64_t hash, shmc_offset block);
bool shmc_intern_has(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                     shmc_offset block);
/* The entry of a block that is in the table. Prefetches it: removing it a little
 * later does not wait for memory. */
uint64_t shmc_intern_entry(const struct shmc_intern *table, const uint8_t *base, unsigned tag,
                           shmc_offset block);
void shmc_intern_remove(struct shmc_intern *table, uint64_t entry);
/* Room for this many entries, in an empty table: growing step by step costs more. */
enum shmc_status shmc_intern_expect(struct shmc_intern *table, struct shmc_heap *heap,
                                    uint64_t count);
/* Puts the entry of an existing block into a new table, unless it has an equal there. */
enum shmc_status shmc_intern_restore(struct shmc_intern *table, struct shmc_heap *heap,
                                     const uint8_t *base, uint64_t entry, bool *in);
/* Between batches: a table that is large and nearly full forgets unshared values (INTERN5). */
void shmc_intern_forget(struct shmc_intern *table, struct shmc_heap *heap,
                        const struct shmc_arena *arena);

/* parseseen.c -------------------------------------------------------------------------- */

/* A block of the open batch is given back: another may get its offset with the same birth. */
void shmc_seen_forget(struct shmc_writer *writer, shmc_offset block);
/* Between batches: births may have been renumbered. */
void shmc_seen_births(struct shmc_writer *writer);
void shmc_seen_destroy(struct shmc_writer *writer);

/* counts.c: references to a block -------------------------------------------------------- */

/* Hands out a block of the open batch. */
enum shmc_status shmc_fresh_block(struct shmc_writer *writer, uint64_t size, unsigned what,
                                  shmc_offset *block);
/* Adds a reference, noted for undo. The word must be alive. */
enum shmc_status shmc_take(struct shmc_writer *writer, shmc_word word);
/* Drops a reference, once the batch is published. */
enum shmc_status shmc_drop_later(struct shmc_writer *writer, shmc_word word);
/* Nodes of trees and directories, records, catalogues: one parent each, not counted. */
enum shmc_status shmc_node_alloc(struct shmc_writer *writer, uint64_t size, shmc_offset *node);
/* The block size to request for a node of this many bytes. */
uint64_t shmc_node_room(uint64_t size);
/* The batch replaced the block: it is retired with the batch. */
enum shmc_status shmc_node_replaced(struct shmc_writer *writer, shmc_offset node);
/* For nodes with their generation in the second word: built by the open batch? If so, dropping
 * frees it at once. */
bool shmc_node_is_fresh(const struct shmc_writer *writer, shmc_offset node);
enum shmc_status shmc_node_drop(struct shmc_writer *writer, shmc_offset node);
void shmc_count_up(struct shmc_writer *writer, shmc_word word);
/* Releases at once: a block whose count falls to zero is retired at the published generation. */
void shmc_count_down(struct shmc_writer *writer, shmc_word word);
/* Prefetches the data that releasing a word will read: its block if the release is two or more
 * releases away (soon = 2), the content of that (1), and theirs (0). Each step needs the one before
 * to have arrived, or waits for it. */
void shmc_fetch_leaving(const struct shmc_writer *writer, shmc_word word, unsigned soon);
/* Frees the blocks that the batch made and that have no references. */
void shmc_sweep_fresh(struct shmc_writer *writer);
void shmc_undo_counts(struct shmc_writer *writer);
/* Bytes that only `word` leads to, at most; bounded work. */
uint64_t shmc_exclusive_bytes(const struct shmc_writer *writer, shmc_word word);

/* limbo.c --------------------------------------------------------------------------------- */

/* Room for one more group, so that retiring cannot fail. */
enum shmc_status shmc_limbo_reserve(struct shmc_writer *writer);
void shmc_retire(struct shmc_writer *writer, shmc_offset block);
/* The bytes that count against the limit, and those of them that the last writer left. */
uint64_t shmc_limbo_garbage(const struct shmc_writer *writer);
uint64_t shmc_limbo_inherited(const struct shmc_writer *writer);
/* Retires the remains of a dead writer that no root reaches, at the published generation. */
enum shmc_status shmc_limbo_inherit(struct shmc_writer *writer, const struct shmc_chain *left);
void shmc_limbo_destroy(struct shmc_writer *writer);

/* reclaim.c ------------------------------------------------------------------------------- */

/* After each commit. */
void shmc_reclaim_in_steps(struct shmc_writer *writer, uint64_t now_ns);
/* As shmc_reclaim(), as far as one call may go (RECLAIM7). */
void shmc_reclaim_some(struct shmc_writer *writer);

/* tend.c ---------------------------------------------------------------------------------- */

/* Frees seats of the dead, as many as one call may (SEAT8). */
void shmc_writer_reap(struct shmc_writer *writer);

/* treewrite.c ----------------------------------------------------------------------------- */

/* Looks for a key; OK or NOT_FOUND, with the path in both cases. */
enum shmc_status shmc_path_find(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                shmc_offset top, const uint8_t *key, size_t length,
                                struct shmc_path *path);
/* Whether the leaf of a primary tree that a path leads to, still valid, has the key or the gap
 * where it would be: then the path leads there. Else it is used up; call shmc_path_find(). */
bool shmc_path_beside(const struct shmc_writer *writer, const uint8_t *key, size_t length,
                      struct shmc_path *path);
/* The nodes of a primary tree change: writer->path may no longer be used for its neighbours. */
static inline void shmc_path_forget(struct shmc_writer *writer)
{
    writer->path_batch = 0;
}
/*
 * Puts an entry where the path leads: a new one, or a new payload for the existing one (whose key
 * words stay); then the path still leads to it, else it is used up. *top is
 * replaced. Counting is the caller's. Any error poisons.
 */
enum shmc_status shmc_path_put(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                               struct shmc_path *path, const struct shmc_entry *entry,
                               shmc_offset *top);
/* NOT_FOUND, or the removed entry. */
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

/* Updates every index of a resource from one version of an object to the next (either may be
 * SHMC_NOTHING). key is the primary key's word, alive. */
enum shmc_status shmc_indices_update(struct shmc_writer *writer, struct shmc_wresource *resource,
                                     shmc_word key, shmc_word old_value, shmc_word old_extra,
                                     shmc_word new_value, shmc_word new_extra);
bool shmc_path_valid(const char *path, size_t length);
enum shmc_status shmc_index_fill(struct shmc_writer *writer, struct shmc_wresource *resource,
                                 uint32_t index);

/* batch.c ------------------------------------------------------------------------------------ */

/* Saves a resource before the batch changes it, and marks its record to be rewritten. */
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

/* Makes a resource's contact block, all zero; it goes away with the batch if that is aborted. */
enum shmc_status shmc_contact_alloc(struct shmc_writer *writer, shmc_offset *contact);

/* changes.c: a RELIST delta instead of all changes of a resource. */
enum shmc_status shmc_pending_relist(struct shmc_writer *writer, uint32_t resource);

/* changes.c, replace.c: entries of live words ----------------------------------------- */

enum shmc_status shmc_put_entry(struct shmc_writer *writer, uint32_t id,
                                const struct shmc_entry *entry);
enum shmc_status shmc_stage_entry(struct shmc_writer *writer, uint32_t id,
                                  const struct shmc_entry *entry);
/* Forgets the objects that the open batch staged; their counts are undone separately. */
void shmc_stage_undo(struct shmc_wresource *resource);
/* The open batch was published: the objects that it put in place are no longer staged. */
void shmc_stage_done(struct shmc_writer *writer, struct shmc_wresource *resource);

/* writer.c ------------------------------------------------------------------------------------ */

/* A writer with empty private tables, on a formatted DATA. */
enum shmc_status shmc_writer_make(struct shmc_segment *data, struct shmc_segment *seats,
                                  const struct shmc_writer_settings *settings,
                                  struct shmc_writer **made);
/* From here on an earlier writer of this DATA is fenced off.
 * Records in DATA which file's lock its writer holds. */
void shmc_writer_guard(struct shmc_super *super, const uint64_t guard[2]);
void shmc_writer_begin(struct shmc_writer *writer, const struct shmc_writer_settings *settings);
/* A generation without changes: the first, or one with another window. */
enum shmc_status shmc_publish_forced(struct shmc_writer *writer);

/* publish.c ------------------------------------------------------------------------------- */

/* Writes the batch as slots, records and a catalogue; publishes it; then does the releases. */
enum shmc_status shmc_publish(struct shmc_writer *writer, uint64_t now_ns);
/* Where the window must begin when the open batch is in it, with at most `window` deltas;
 * the bytes that it then retains. */
uint64_t shmc_window_tail(const struct shmc_writer *writer, uint64_t window, uint64_t *charged);

/* widen.c --------------------------------------------------------------------------------- */

struct shmc_slot *shmc_ring_slots(const struct shmc_writer *writer);
/* The maximum number of deltas of the window, and of a batch. */
uint64_t shmc_ring_window(const struct shmc_writer *writer);
/* The number of slots of a new ring; the number that a root records. */
enum shmc_status shmc_ring_create(struct shmc_writer *writer,
                                  const struct shmc_writer_settings *settings);
enum shmc_status shmc_ring_adopt(struct shmc_writer *writer, uint64_t slots);
/* Adds slots, if the open batch or the window needs them; else the batch may become RELISTs. Called
 * before any slot is written. Without OK not even these have room. */
enum shmc_status shmc_ring_make_room(struct shmc_writer *writer);
/* Copies ring and arena into another segment of that length, which has the same geometry. */
enum shmc_status shmc_ring_copy(const struct shmc_writer *writer, const struct shmc_segment *data);

#endif
