/*
 * takeover.h - what the files of a takeover share.
 *
 *   takeover.c     the last root, the window, becoming the writer; the invariants X1 to X6
 *   takevalues.c   values: each block is claimed, counted, and put into the table of equals
 *   takerecords.c  the catalogue: resources and their indices
 */
#ifndef SHMC_TAKEOVER_H
#define SHMC_TAKEOVER_H

#include "walk.h"
#include "writer.h"

#define DEPTH (SHMC_MAX_DEPTH + 8u) /* and a shape, and what an entry adds */
#define WAITING 8u

/* A container whose children are being visited. */
struct visit {
    shmc_offset block, next;
    uint64_t left;
};

struct takeover {
    struct shmc_walk walk; /* first: the functions below that the walk calls are given it */
    struct shmc_span span;
    struct shmc_writer *writer;
    enum shmc_status status; /* CORRUPT, unless something else went wrong */
    struct shmc_list shapes; /* their ids (I6) */
    uint64_t waiting[WAITING]; /* blocks for the table of equals, whose place is on its way */
    unsigned waits;
    unsigned depth;
    struct visit visits[DEPTH];
};

/* The first fault, in words; always false. What is below is true as long as there is none. */
static inline bool refuse(struct takeover *takeover, enum shmc_status status, const char *why,
                          shmc_offset at)
{
    takeover->status = status;
    return shmc_walk_fail(&takeover->walk, "%s at %#llx", why, (unsigned long long)at);
}

/* ---- takevalues.c: for the walk, and for words that stand outside of trees ------------------ */

/* A word, and all that it leads to. */
bool shmc_adopt_word(struct shmc_walk *walk, shmc_word word);
/* Asks for what it will look at first. */
void shmc_adopt_ahead(struct shmc_walk *walk, shmc_word word);
/* The same of a word that must be a string; `what`: if it is none. */
bool shmc_adopt_string(struct takeover *takeover, shmc_word word, const char *what);
/* A node, record, catalogue or contact: one parent each, count 0. */
bool shmc_adopt_node(struct shmc_walk *walk, shmc_offset node, uint64_t size);
/* When all words are known: the last blocks into the table of equals; I6. */
bool shmc_adopt_waiting(struct takeover *takeover);
bool shmc_adopt_ids(struct takeover *takeover);

/* ---- takerecords.c -------------------------------------------------------------------------- */

/* Every resource, and what it leads to. */
bool shmc_adopt_catalogue(struct takeover *takeover, shmc_offset catalogue);

#endif
