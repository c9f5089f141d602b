/*
 * pymodel.h - objects of the cache with the attributes of a client's models.
 *
 *   pymodelclass.c  ModelClass, ModelField, ModelKind: what an attribute leads to
 *   pymodel.c       Model: an object word with attributes
 *   pymodelbox.c    ModelList and ModelMap: arrays and maps of models
 *
 * A client's model is a class with named attributes, and each attribute has a key in JSON and a
 * type. So a ModelClass maps attribute names to ModelFields; a field holds its key as an interned
 * str (usually the very object in the shape's table) and a ModelKind, the way from a word to a
 * Python object. An attribute is then: a look-up in the class's dict, a probe of the shape's
 * table, a load, a validation, and a Model for the next step. Nothing is decoded or copied.
 *
 * Classes, fields and kinds come from Python (shmcache/models), where a Dialect has the rules of
 * one client library: its names, its times, its to_dict(). All other
 * attributes are its business, too.
 *
 * Invariants
 *   MODEL1  A model's values are those of its root: it validates like a View and raises the same
 *       errors. The word decides what is made, never the table: a word that is not of the
 *       declared kind becomes what a View gives for it.
 *   MODEL2  A kind is resolved once, by its class's dialect, and does not change afterwards. A
 *       field keeps the kind that was stored first, whatever ran while it was resolved.
 *   MODEL3  Classes, fields and kinds may refer to each other in circles (a class that contains
 *       itself): the collector tracks them. Models refer to roots and classes, and nothing refers
 *       back to a model: it is not tracked.
 *   MODEL4  No model can be changed: each way to do so raises TypeError, which names the copies.
 */
#ifndef SHMC_PYMODEL_H
#define SHMC_PYMODEL_H

#include "python/pyhot.h"

enum shmc_how {
    SHMC_HOW_RAW,   /* as a View has it */
    SHMC_HOW_MODEL, /* of: ModelClass */
    SHMC_HOW_LIST,  /* of: ModelKind of the elements */
    SHMC_HOW_MAP,   /* of: ModelKind of the values */
    SHMC_HOW_TIME,  /* of: (tzinfo of UTC, function that reads other texts) */
    SHMC_HOW_FLOAT, /* an integer as float */
    SHMC_HOW_ANY,   /* of: ModelClass for objects; in arrays, elements of this kind */
    SHMC_HOW_CALL,  /* of: function that is given what a View gives */
};

typedef struct {
    PyObject_HEAD
    enum shmc_how how;
    PyObject *of; /* NULL for raw and float */
} shmc_pykind;

typedef struct {
    PyObject_HEAD
    PyObject *key;    /* interned str: the member's name in JSON */
    PyObject *spec;   /* the kind, for the dialect, until it is resolved; then NULL */
    shmc_pykind *kind; /* NULL: not resolved yet */
    PyObject *absent; /* called for the value of an absent member; NULL: None */
} shmc_pyfield;

typedef struct {
    PyObject_HEAD
    PyObject *name;    /* "V1Pod" */
    PyObject *dialect; /* its rules */
    PyObject *fields;  /* dict: attribute -> ModelField; never changed */
    shmc_pykind *rest; /* other members, found by their keys; NULL: the table is complete */
} shmc_pyclass;

typedef struct {
    shmc_pyview view;
    PyObject *of; /* ModelClass of a Model, ModelKind of the elements of the others */
} shmc_pymodel;

extern PyTypeObject shmc_pykind_type, shmc_pyfield_type, shmc_pyclass_type;
extern PyTypeObject shmc_pymodel_type, shmc_pymodellist_type, shmc_pymodelmap_type;

/* ---- pymodelclass.c ----------------------------------------------------------------------- */

/* The field's kind, borrowed; NULL with an exception set. */
shmc_pykind *shmc_pyfield_resolve(shmc_pyclass *class, shmc_pyfield *field);
/* A text of RFC 3339 as datetime; any other object is returned as it is. Steals the value. */
PyObject *shmc_pytime(PyObject *value, PyObject *rules);

/* ---- pymodel.c ---------------------------------------------------------------------------- */

/* The Python object of this kind for a word: MODEL1. */
PyObject *shmc_pymodel_make(shmc_pyroot *root, shmc_pykind *kind, shmc_word word);
/* A model, list or map for a container's word. */
PyObject *shmc_pymodel_new(PyTypeObject *type, shmc_pyroot *root, shmc_word word, PyObject *of);
void shmc_pymodel_dealloc(PyObject *self);
/* The View or ListView behind it. */
PyObject *shmc_pymodel_view(PyObject *self, PyObject *unused);
int shmc_pymodel_setattr(PyObject *self, PyObject *name, PyObject *value);
int shmc_pymodel_setitem(PyObject *self, PyObject *key, PyObject *value);
/* Its JSON as plain dicts and lists. */
PyObject *shmc_pymodel_plain(PyObject *self, PyObject *unused);

/* Element or value number `index` of an open list or map. */
static inline PyObject *shmc_pymodel_item(shmc_pymodel *self, uint64_t index)
{
    const shmc_word word =
        shmc_load_at(shmc_pyroot_span(self->view.root), self->view.words + index * 8);

    return shmc_pymodel_make(self->view.root, (shmc_pykind *)self->of, word);
}

#endif
