/*
 * pyencodescalar.h - strings and numbers of Python as words (pyencodescalar.c), and the comparison
 * with the previous value that spares nearly all of them a call.
 */
#ifndef SHMC_PYENCODESCALAR_H
#define SHMC_PYENCODESCALAR_H

#include "python/write/pyencode.h"

static inline bool shmc_equals_block(const struct shmc_span *span, shmc_word word,
                                const uint8_t *bytes, size_t length)
{
    uint32_t head;

    if (shmc_tag(word) != SHMC_TAG_STRING)
        return false;
    const uint8_t *block = span->base + shmc_block_of(word);
    memcpy(&head, block, 4);
    return (head & SHMC_STRING_LENGTH) == length && length >= 8 &&
           shmc_same_bytes(block + 4, bytes, length);
}

/* An int of one digit, as nearly all are. False for any other object. */
static inline bool small_int(PyObject *object, int64_t *value)
{
    if (!PyLong_CheckExact(object))
        return false;
#if PY_VERSION_HEX >= 0x030c0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object))
        return false;
    *value = PyUnstable_Long_CompactValue((PyLongObject *)object);
#else
    const Py_ssize_t size = Py_SIZE(object);
    if (size < -1 || size > 1)
        return false;
    *value = size * (int64_t)((PyLongObject *)object)->ob_digit[0]; /* 0 has a digit, too */
#endif
    return true;
}

/*
 * The common case before any call: a string or another scalar that equals the previous value.
 * False for containers, for changes, and for anything that needs a closer look.
 */
static inline bool shmc_same_scalar(const struct shmc_span *span, PyObject *object, shmc_word previous)
{
    int64_t value;

    if (PyUnicode_CheckExact(object)) {
        if (!PyUnicode_IS_COMPACT_ASCII(object))
            return false;
        const size_t length = (size_t)((PyASCIIObject *)object)->length;
        const uint8_t *bytes = (const uint8_t *)((PyASCIIObject *)object + 1);
        if (length <= SHMC_SHORT_MAX)
            return shmc_short_word(bytes, length) == previous;
        return shmc_equals_block(span, previous, bytes, length);
    }
    if (shmc_tag(previous) >= SHMC_TAG_ARRAY)
        return false; /* before the object is read */
    switch (previous) {
    case SHMC_NULL:
        return object == Py_None;
    case SHMC_FALSE:
        return object == Py_False;
    case SHMC_TRUE:
        return object == Py_True;
    default:
        return shmc_tag(previous) == SHMC_TAG_INTEGER && small_int(object, &value) &&
               shmc_integer_word(value) == previous;
    }
}

int shmc_encode_int(struct shmc_encoder *encoder, PyObject *object, shmc_word *word);
int shmc_encode_float(struct shmc_encoder *encoder, PyObject *object, shmc_word *word);

#endif
