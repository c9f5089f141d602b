/*
 * pyentries.h - a walk over a dict, as PyDict_Next does it, without a call for each entry.
 *
 * That call was a third of the cost of comparing a dict with an object. A dict's layout has been
 * the same since CPython 3.11; it is not an API, so it is mirrored here for the known versions, and
 * shmc_entries_ready() compares such a walk with PyDict_Next's before it is ever used. The dict
 * of an instance, and any other CPython, use PyDict_Next.
 *
 * A dict that changes during the walk is as harmless as there: each step reads it again.
 */
#ifndef SHMC_PYENTRIES_H
#define SHMC_PYENTRIES_H

#include "python/pyhot.h"

#if PY_VERSION_HEX < 0x030e0000 && !defined(Py_GIL_DISABLED) && !defined(PYPY_VERSION)
#define SHMC_KNOWN_DICTS 1

struct shmc_dict_keys {
    Py_ssize_t references;
    uint8_t log2_size, log2_index_bytes;
    uint8_t kind; /* 0: entries of hash, key, value; else (str keys alone) of key, value */
    uint32_t version;
    Py_ssize_t usable, entry_count;
    char indices[]; /* then the entries; removed ones have no value */
};
#endif

extern bool shmc_entries_known; /* set once (HOT4) */

/* Checks that dicts are laid out as they are mirrored here. -1 with an exception set. */
int shmc_entries_ready(void);

/* Like PyDict_Next: the next entry from *position on, borrowed; false at the end. */
static inline bool shmc_entries_next(PyObject *dict, Py_ssize_t *position, PyObject **key,
                                     PyObject **value)
{
#ifdef SHMC_KNOWN_DICTS
    const PyDictObject *const known = (const PyDictObject *)dict;
    const struct shmc_dict_keys *const keys = (const void *)known->ma_keys;

    if (shmc_entries_known && known->ma_values == NULL) {
        const Py_ssize_t width = keys->kind == 0 ? 3 : 2;
        PyObject *const *const entries =
            (const void *)(keys->indices + ((size_t)1 << keys->log2_index_bytes));
        for (Py_ssize_t i = *position; i < keys->entry_count; i++) {
            PyObject *const *const behind = entries + (i + 1) * width;
            if (behind[-1] != NULL) {
                *position = i + 1;
                *key = behind[-2];
                *value = behind[-1];
                return true;
            }
        }
        return false;
    }
#endif
    return PyDict_Next(dict, position, key, value) != 0;
}

#endif
