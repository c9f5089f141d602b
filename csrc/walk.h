/*
 * walk.h - looking at a whole cache from its root: shared by who doubts (check.c) and who takes
 * over (takeover.c).
 *
 * The walk knows how trees and directories must be; what a node or a word means for the walker's
 * own books is the walker's. Its first fault ends it, in words.
 */
#ifndef SHMC_WALK_H
#define SHMC_WALK_H

#include "tree.h"

struct shmc_walk {
    const struct shmc_span *span;
    uint64_t hash_key; /* of the directories */
    uint64_t generation; /* of the root: nothing it reaches is younger */
    /* A word that an entry of a tree holds, once for each time that it does. */
    bool (*word)(struct shmc_walk *walk, shmc_word word);
    /* Asks for the memory that a word() to come will look at; may be NULL. */
    void (*ahead)(struct shmc_walk *walk, shmc_word word);
    /* A node that lies in the span with `size` bytes, before anything in it is believed. */
    bool (*node)(struct shmc_walk *walk, shmc_offset node, uint64_t size);
    char *what; /* of the first fault */
    size_t what_size;
    bool broken;
};

/* Notes the first fault; always false. */
__attribute__((format(printf, 2, 3))) bool shmc_walk_fail(struct shmc_walk *walk,
                                                          const char *format, ...);

/* A resource as its record says: primary tree, directory, indices (N1..N4, D1..D3, and that each
 * index entry names a key that is there). Its words, and the record itself, are the caller's. */
bool shmc_walk_resource(struct shmc_walk *walk, const struct shmc_record *record,
                        const struct shmc_record_index *indices);

#endif
