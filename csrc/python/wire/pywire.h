/*
 * pywire.h - data from the wire, for Python: decoders that cut it into items.
 *
 *   pyitem.c      an Item from the pieces of an object's text
 *   pyframes.c    Frames: the lines of a watch
 *   pylistscan.c     ItemScanner: the items of a list while it streams
 *   pychunks.c    Chunks: HTTP's chunked framing
 *   pygrpc.c      GrpcMessages: the messages of a gRPC call (wire/grpc.c)
 *   pyetcd.c      EtcdAnswers: answers of etcd (wire/etcd.c)
 *   pypretty.c    Pretty: the layout for people
 *   pyapply.c     items into a resource
 *
 * The decoders hold only incomplete input: one line, one item, and the few members of a list
 * besides its items. They belong to one thread at a time, which the GIL ensures.
 */
#ifndef SHMC_PYPARSE_H
#define SHMC_PYPARSE_H

#include "json/json.h"
#include "python/pyhot.h"

/* ---- bytes that are held ------------------------------------------------------------------- */

struct shmc_held {
    uint8_t *bytes;
    size_t length, capacity;
};
/* -1 with MemoryError set; what is held stays. Doubles, so that pieces cost linear time. */
int shmc_held_add(struct shmc_held *held, const uint8_t *bytes, size_t length);
/* Holds nothing afterwards; frees the memory if it was much. */
void shmc_held_clear(struct shmc_held *held);
void shmc_held_free(struct shmc_held *held);

/* ---- items ------------------------------------------------------------------------------------ */

#define SHMC_ITEM_MAX (64u << 20) /* for a line, for an item */
#define SHMC_ITEM_SHOWN 1024u     /* the part of a long line that GARBAGE shows */
#define SHMC_LIST_REST (1u << 20) /* for the members of a list besides its items */

/* A text that arrives again and again as the same literal: made once. */
struct shmc_familiar {
    uint8_t literal[96];
    size_t length;
    PyObject *text;
};
/* The common state of the items of one stream. */
struct shmc_items {
    struct shmc_familiar type, kind, api_version;
};
void shmc_items_clear(struct shmc_items *items);

/* Fetches the class of items; -1 with an exception set. Before the first item is made. */
int shmc_items_ready(void);
/* The str of a string literal; None for another value or invalid Unicode. NULL with an exception
 * set. */
PyObject *shmc_piece_text(const struct shmc_piece *piece);
PyObject *shmc_familiar_text(struct shmc_familiar *familiar, const struct shmc_piece *piece);
/* An item; steals type and raw (either may be NULL with an exception set), fields without bytes
 * are None. */
PyObject *shmc_item_new(struct shmc_items *items, PyObject *type,
                        const struct shmc_identity *identity, PyObject *raw);
/* An item of these fields, to which new references are made; its uid and api_version are None. */
PyObject *shmc_item_of(PyObject *type, PyObject *key, PyObject *version, PyObject *kind,
                       PyObject *raw);
/* A member that is put in front of objects that lack it: "kind":"Pod", */
struct shmc_front {
    char text[300];
    size_t length; /* 0: absent */
    size_t value;  /* where its literal begins in the text */
};
/* value may be NULL or None. -1 with an exception set: it is not a plain name. */
int shmc_front_set(struct shmc_front *front, const char *name, PyObject *value);
/* The object's text with those of these that it lacks in front; completes the identity, too. */
PyObject *shmc_fronts_put(const struct shmc_front *kind, const struct shmc_front *api_version,
                          const uint8_t *raw, size_t length, struct shmc_identity *identity);
/* Appends a new reference and drops it; -1 if it is NULL, or with MemoryError set. */
int shmc_list_add(PyObject *list, PyObject *item);

extern PyTypeObject shmc_pyframes_type, shmc_pyitems_type, shmc_pychunks_type,
    shmc_pypretty_type, shmc_pygrpc_type, shmc_pyetcd_type;
int shmc_pyparse_init(PyObject *module);

#endif
