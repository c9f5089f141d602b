/*
 * walk.h - walking a whole cache from its root: shared by the verification (check.c) and by a
 * takeover (takeover.c).
 *
 * The walk knows the rules of trees and directories; the meaning of a node or a word for the
 * walker's own books is the walker's. Its first fault ends it, described in words.
 */
#ifndef SHMC_WALK_H
#define SHMC_WALK_H

#include "trees/tree.h"

struct shmc_walk {
    const struct shmc_span *span;
    uint64_t hash_key; /* of the directories */
    uint64_t generation; /* of the root: no reachable node is younger */
    /* Called for a word that an entry of a tree holds, once for each time that it does. */
    bool (*word)(struct shmc_walk *walk, shmc_word word);
    /* Prefetches the memory that a later word() will read; may be NULL. */
    void (*ahead)(struct shmc_walk *walk, shmc_word word);
    /* Called for a node that lies in the span with `size` bytes, before its content is trusted. */
    bool (*node)(struct shmc_walk *walk, shmc_offset node, uint64_t size);
    char *what; /* of the first fault */
    size_t fault_size;
    bool broken;
};

/* Notes the first fault; always false. */
__attribute__((format(printf, 2, 3))) bool shmc_walk_fail(struct shmc_walk *walk,
                                                          const char *format, ...);

/* A resource as described by its record: primary tree, directory, indices (TREE1..TREE4,
 * DIRECTORY1..DIRECTORY3, and that each index entry names an existing key). Its words, and the
 * record itself, are the caller's. */
bool shmc_walk_resource(struct shmc_walk *walk, const struct shmc_record *record,
                        const struct shmc_record_index *indices);

#endif
