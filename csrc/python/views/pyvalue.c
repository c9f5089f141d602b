/*
 * pyvalue.c - one word as one Python object.
 *
 * A str is made in place: its own buffer is the private copy (HOT1), and it is thrown away if the
 * validation that follows fails. No other code has seen it by then.
 *
 * Short strings are their word, so a small cache keyed by the word can never be wrong, whatever
 * happens to the arena: "True", "Always", "v1", "Pod", "web" are made once.
 *
 * Longer strings that came twice are kept: the name of a node, an image, a namespace. Their
 * word is an offset, which may refer to another string tomorrow; so the bytes in the arena are
 * compared with those of the kept str, and validated like any copy. Equal bytes are the same
 * string, whatever the word once meant.
 */
#include "python/pyhot.h"

/* With a buffer of its own: inlined, it would cost each value a guard of the stack. */
#define APART __attribute__((noinline))

#define SHORT_CACHE_BITS 10u
#define PRECHECK_LENGTH 4096u /* validate before allocating this much for possible garbage */

#define TEXT_CACHE_BITS 10u
#define TEXT_LONGEST 64u /* 120 KiB in all, at most */

static struct {
    shmc_word word;
    PyObject *text;
} short_cache[1u << SHORT_CACHE_BITS];

static struct {
    shmc_word word, seen; /* of the text; and of a string that came once */
    PyObject *text;
} text_cache[1u << TEXT_CACHE_BITS];

PyObject *shmc_pyroot_unreadable(const shmc_pyroot *root)
{
    if (shmc_pyroot_check(root) == 0)
        shmc_hot_raise(SHMC_CORRUPT, "a value cannot be read");
    return NULL;
}

static APART PyObject *make_short(shmc_word word, size_t slot)
{
    uint8_t bytes[8];
    PyObject *text;

    shmc_short_bytes(word, bytes);
    text = PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)shmc_short_length(word), NULL);
    if (text == NULL) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            shmc_hot_raise(SHMC_CORRUPT, "a string is not UTF-8");
        }
        return NULL;
    }
    Py_XSETREF(short_cache[slot].text, Py_NewRef(text)); /* a str: frees, runs nothing */
    short_cache[slot].word = word;
    return text;
}

static inline PyObject *short_text(shmc_word word)
{
    const size_t slot = (size_t)(word * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SHORT_CACHE_BITS));

    if (short_cache[slot].word == word) /* a string's word is never 0 */
        return Py_NewRef(short_cache[slot].text);
    return make_short(word, slot);
}

/* Not ASCII: a private copy, then the strict decoder. */
static PyObject *wide_text(const shmc_pyroot *root, const struct shmc_string *string)
{
    uint8_t *copy = PyMem_Malloc(string->length + 1u);
    PyObject *text = NULL;

    if (copy == NULL)
        return PyErr_NoMemory();
    shmc_string_copy(shmc_pyroot_span(root), string, 0, string->length, copy);
    if (shmc_pyroot_valid(root) == 0) {
        text = PyUnicode_DecodeUTF8((const char *)copy, (Py_ssize_t)string->length, NULL);
        if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            shmc_hot_raise(SHMC_CORRUPT, "a string is not UTF-8");
        }
    }
    PyMem_Free(copy);
    return text;
}

static PyObject *ascii_text(const shmc_pyroot *root, const struct shmc_string *string)
{
    PyObject *text = PyUnicode_New((Py_ssize_t)string->length, 127);

    if (text == NULL)
        return NULL;
    const uint8_t seen = shmc_string_copy(shmc_pyroot_span(root), string, 0, string->length,
                                          PyUnicode_1BYTE_DATA(text));
    if (shmc_pyroot_valid(root) == 0 && seen < 0x80)
        return text;
    Py_DECREF(text); /* not exposed yet */
    return shmc_pyroot_unreadable(root);
}

/* ASCII of a length that is kept if it comes again. */
static PyObject *known_text(const shmc_pyroot *root, const struct shmc_string *string)
{
    const size_t slot =
        (size_t)(string->word * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TEXT_CACHE_BITS));
    PyObject *const kept = text_cache[slot].text;

    if (text_cache[slot].word == string->word &&
        shmc_string_is(shmc_pyroot_span(root), string, ((uint8_t *)kept) + sizeof(PyASCIIObject),
                       (size_t)PyUnicode_GET_LENGTH(kept)))
        return shmc_pyroot_valid(root) == 0 ? Py_NewRef(kept) : NULL;
    PyObject *text = ascii_text(root, string);
    if (text != NULL && text_cache[slot].seen == string->word) {
        text_cache[slot].word = string->word;
        Py_XSETREF(text_cache[slot].text, Py_NewRef(text)); /* a str: frees, runs nothing */
    }
    text_cache[slot].seen = string->word;
    return text;
}

static APART PyObject *long_text(const shmc_pyroot *root, shmc_word word)
{
    struct shmc_string string;

    if (!shmc_string_open(shmc_pyroot_span(root), word, &string))
        return shmc_pyroot_unreadable(root);
    if (string.length > PRECHECK_LENGTH && shmc_pyroot_valid(root) < 0)
        return NULL;
    if (string.flags & SHMC_STRING_WIDE)
        return wide_text(root, &string);
    return string.length <= TEXT_LONGEST && string.length > SHMC_SHORT_MAX
               ? known_text(root, &string)
               : ascii_text(root, &string);
}

PyObject *shmc_pystring(shmc_pyroot *root, shmc_word word)
{
    if (shmc_tag(word) != SHMC_TAG_SHORT)
        return long_text(root, word);
    return shmc_pyroot_valid(root) < 0 ? NULL : short_text(word);
}

static APART PyObject *make_number(const shmc_pyroot *root, shmc_word word)
{
    uint64_t kind, bits;
    double number;

    if (!shmc_number_open(shmc_pyroot_span(root), word, &kind, &bits))
        return shmc_pyroot_unreadable(root);
    if (shmc_pyroot_valid(root) < 0)
        return NULL;
    if (kind == SHMC_NUMBER_INT64)
        return PyLong_FromLongLong((long long)bits);
    if (kind == SHMC_NUMBER_UINT64)
        return PyLong_FromUnsignedLongLong(bits);
    memcpy(&number, &bits, sizeof number);
    return PyFloat_FromDouble(number);
}

static PyObject *make_constant(shmc_pyroot *root, shmc_word word)
{
    if (shmc_pyroot_valid(root) < 0)
        return NULL;
    switch (word) {
    case SHMC_NULL:
        Py_RETURN_NONE;
    case SHMC_FALSE:
        Py_RETURN_FALSE;
    case SHMC_TRUE:
        Py_RETURN_TRUE;
    case SHMC_EMPTY_ARRAY:
    case SHMC_EMPTY_OBJECT:
        return shmc_pyview_new(root, word);
    default:
        return shmc_hot_raise(SHMC_CORRUPT, "a value cannot be read");
    }
}

PyObject *shmc_pyvalue(shmc_pyroot *root, shmc_word word)
{
    switch ((enum shmc_tag)shmc_tag(word)) {
    case SHMC_TAG_ARRAY:
    case SHMC_TAG_OBJECT:
        return shmc_pyroot_valid(root) < 0 ? NULL : shmc_pyview_new(root, word);
    case SHMC_TAG_SHORT:
        return shmc_pyroot_valid(root) < 0 ? NULL : short_text(word);
    case SHMC_TAG_STRING:
        return long_text(root, word);
    case SHMC_TAG_INTEGER:
        if (shmc_pyroot_valid(root) < 0)
            return NULL;
        return PyLong_FromLongLong(shmc_integer_value(word));
    case SHMC_TAG_DOUBLE:
    case SHMC_TAG_NUMBER:
        return make_number(root, word);
    case SHMC_TAG_CONSTANT:
        break;
    }
    return make_constant(root, word);
}

PyObject *shmc_pyobject(shmc_pyroot *root, shmc_word word)
{
    if (shmc_is_object(word))
        return shmc_pyvalue(root, word);
    return shmc_pyroot_unreadable(root);
}
