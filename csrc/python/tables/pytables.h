/*
 * pytables.h - tables of a resource: columns for data frames, and groups with counts and sums.
 *
 *   pyquantity.c  the text of a Kubernetes quantity -> billionths, exactly
 *   pypaths.c     a path of an object -> the word there, its first value, the sum of its values
 *   pycolumns.c   Root.columns(): words of all objects -> codes and distinct values
 *   pyarrow.c     ArrowColumns: these as Arrow arrays, without a copy
 *   pygroups.c    Groups: counts and sums by a value, brought up to date by deltas
 *
 * Words are read as in pywhere.c: a broken offset is an absent value, and nothing is used before
 * the root was settled (VALUE3). A path remembers members by shapes of one instance.
 */
#ifndef SHMC_PYTABLES_H
#define SHMC_PYTABLES_H

#include "python/read/pyread.h"

extern PyTypeObject shmc_pyarrow_type, shmc_pygroups_type;

/* Billionths. A sum of 10^10 quantities of the largest size fits. */
__extension__ typedef __int128 shmc_nano;

/* ---- pyquantity.c ---------------------------------------------------------------------------- */

/* Whether the text is a quantity of at most 2^63 in either direction; parts below a billionth are
 * rounded up, as Kubernetes does. */
bool shmc_quantity(const uint8_t *text, size_t length, shmc_nano *nano);
PyObject *shmc_nano_object(shmc_nano nano);

/* ---- pypaths.c ------------------------------------------------------------------------------- */

struct shmc_pystep {
    const uint8_t *at; /* in a str of the source; NULL: [*] */
    size_t length;
    struct shmc_members members;
};

struct shmc_pypath {
    PyObject *source; /* a tuple of str and None, which owns the texts */
    size_t length, head; /* steps; those before the first [*] */
    struct shmc_pystep *steps;
};
/* 0 or -1 with an exception set; free it in any case, if it was zero before. */
int shmc_pypath_init(struct shmc_pypath *path, PyObject *steps);
void shmc_pypath_free(struct shmc_pypath *path);
/* Members that were remembered from a generation that proved stale. */
void shmc_pypath_forget(struct shmc_pypath *path);
/* The word before the first [*], or of the whole path. */
shmc_word shmc_pypath_head(struct shmc_pypath *path, const struct shmc_span *span, shmc_word word);
/* The same of several objects. */
void shmc_pypath_heads(struct shmc_pypath *path, const struct shmc_span *span,
                       const shmc_word *objects, shmc_word *heads, size_t count);
/* The first value from that word on; SHMC_NOTHING without one, or for null. */
shmc_word shmc_pypath_first(const struct shmc_pypath *path, const struct shmc_span *span,
                            shmc_word head);
/* The sum of all quantities from that word on; how many there are. Others count as invalid. */
uint64_t shmc_pypath_sum(const struct shmc_pypath *path, const struct shmc_span *span,
                         shmc_word head, shmc_nano *sum, uint64_t *invalid);

/* ---- pycolumns.c, pyarrow.c ------------------------------------------------------------------ */

enum shmc_column_kind { SHMC_TEXTS, SHMC_INTEGERS, SHMC_DOUBLES, SHMC_FLAGS };

struct shmc_pycolumn {
    enum shmc_column_kind kind;
    PyObject *name;
    PyObject *values;   /* bytes: codes of texts, int64, double, or bits */
    PyObject *validity; /* bytes of bits; NULL: none is missing */
    PyObject *offsets, *data; /* of distinct texts */
    int64_t missing, distinct;
};

struct shmc_pyarrow {
    PyObject_HEAD
    int64_t rows;
    Py_ssize_t count;
    struct shmc_pycolumn *columns;
};
struct shmc_pyarrow *shmc_pyarrow_new(Py_ssize_t columns);

PyObject *shmc_pyroot_columns(shmc_pyroot *root, const struct shmc_pyrecord *record,
                              const struct shmc_pybounds *bounds, PyObject *wanted);

#endif
