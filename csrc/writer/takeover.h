/*
 * takeover.h - declarations shared by the files of a takeover.
 *
 *   takeover.c     the last root, the window, becoming the writer; the invariants TAKEOVER1 to TAKEOVER6
 *   takevalues.c   values: each block is claimed, counted, and put into the table of equals
 *   takerecords.c  the catalogue: resources and their indices
 */
#ifndef SHMC_TAKEOVER_H
#define SHMC_TAKEOVER_H

#include "trees/walk.h"
#include "writer/writer.h"

#define DEPTH (SHMC_MAX_DEPTH + 8u) /* and a shape, and the levels of an entry */
#define WAITING 8u

/* A container whose children are being visited. */
struct visit {
    shmc_offset block, next;
    uint64_t left;
};

struct takeover {
    struct shmc_walk walk; /* first: the functions below that the walk calls receive it */
    struct shmc_span span;
    struct shmc_writer *writer;
    enum shmc_status status; /* CORRUPT, unless something else went wrong */
    struct shmc_list shapes; /* their ids (LAYOUT6) */
    uint64_t waiting[WAITING]; /* blocks for the table of equals, whose entry is being prefetched */
    unsigned waits;
    unsigned depth;
    struct visit visits[DEPTH];
};

/* The first fault, in words; always false. The functions below return true until then. */
static inline bool refuse(struct takeover *takeover, enum shmc_status status, const char *why,
                          shmc_offset at)
{
    takeover->status = status;
    return shmc_walk_fail(&takeover->walk, "%s at %#llx", why, (unsigned long long)at);
}

/* ---- takevalues.c: for the walk, and for words that stand outside of trees ------------------ */

/* Visits a word, and everything that it leads to. */
bool shmc_adopt_word(struct shmc_walk *walk, shmc_word word);
/* Prefetches the data that it will read first. */
void shmc_adopt_ahead(struct shmc_walk *walk, shmc_word word);
/* The same for a word that must be a string; `what` names the fault. */
bool shmc_adopt_string(struct takeover *takeover, shmc_word word, const char *what);
/* Visits a node, record, catalogue or contact: one parent each, count 0. */
bool shmc_adopt_node(struct shmc_walk *walk, shmc_offset node, uint64_t size);
/* When all words are known: puts the last blocks into the table of equals; LAYOUT6. */
bool shmc_adopt_waiting(struct takeover *takeover);
bool shmc_adopt_ids(struct takeover *takeover);

/* ---- takerecords.c -------------------------------------------------------------------------- */

/* Visits every resource, and everything that it leads to. */
bool shmc_adopt_catalogue(struct takeover *takeover, shmc_offset catalogue);

#endif
