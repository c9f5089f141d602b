/*
 * pyencodescalar.c - str, int and float ▸ word.
 */
#include "python/write/pyencodescalar.h"

/* Below 0x20, a quote or a backslash: sets the top bit of such a byte of ASCII. */
static inline uint64_t escapes_in(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');

    return (word - ones * 0x20) | (quote - ones) | (slash - ones);
}

/* ESCAPES for ASCII of at least eight bytes, eight at a time; the last eight may overlap. */
static uint32_t ascii_flags(const uint8_t *bytes, size_t length)
{
    uint64_t found = escapes_in(shmc_load8(bytes + length - 8));

    for (size_t i = 0; i + 8 < length; i += 8)
        found |= escapes_in(shmc_load8(bytes + i));
    return found & UINT64_C(0x8080808080808080) ? SHMC_STRING_ESCAPES : 0;
}

/* The UTF-8 of a str that is not ASCII: CPython caches it. */
static const uint8_t *utf8_of(PyObject *text, size_t *length)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);

    if (bytes == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        shmc_encode_unsupported(text, "a string with a lone surrogate is not Unicode text");
    }
    *length = bytes == NULL ? 0 : (size_t)size;
    return (const uint8_t *)bytes;
}

static int new_string(struct shmc_encoder *encoder, const uint8_t *bytes, size_t length,
                      uint32_t flags, shmc_word *word)
{
    const enum shmc_status status =
        shmc_make_string(encoder->writer, bytes, length, flags, word);

    return status == SHMC_OK ? 0 : shmc_encode_failed(status, "storing a string");
}

/* Apart from shmc_encode_str(), which needs no guard of the stack without it. */
static __attribute__((noinline)) int encode_wide(struct shmc_encoder *encoder, PyObject *text,
                                                 shmc_word previous, shmc_word *word)
{
    size_t length;
    uint32_t flags = 0;
    const uint8_t *bytes = utf8_of(text, &length);

    if (bytes == NULL)
        return -1;
    if (length <= SHMC_SHORT_MAX) {
        *word = shmc_short_word(bytes, length);
        return 0;
    }
    if (shmc_equals_block(encoder->span, previous, bytes, length)) {
        *word = previous;
        return 0;
    }
    if (!shmc_string_flags(bytes, length, &flags))
        return shmc_encode_unsupported(text, "a string is not UTF-8");
    return new_string(encoder, bytes, length, flags, word);
}

int shmc_encode_str(struct shmc_encoder *encoder, PyObject *text, shmc_word previous,
                    shmc_word *word)
{
    if (!PyUnicode_Check(text))
        return shmc_encode_unsupported(text, "a key must be a string");
    if (!PyUnicode_IS_COMPACT_ASCII(text))
        return encode_wide(encoder, text, previous, word);
    const size_t length = (size_t)PyUnicode_GET_LENGTH(text);
    const uint8_t *bytes = PyUnicode_DATA(text);
    if (length <= SHMC_SHORT_MAX) {
        *word = shmc_short_word(bytes, length);
        return 0;
    }
    if (shmc_equals_block(encoder->span, previous, bytes, length)) {
        *word = previous;
        return 0;
    }
    return new_string(encoder, bytes, length, ascii_flags(bytes, length), word);
}

static int encode_number(struct shmc_encoder *encoder, uint64_t kind, uint64_t bits,
                         shmc_word *word)
{
    const enum shmc_status status = shmc_make_number(encoder->writer, kind, bits, word);

    return status == SHMC_OK ? 0 : shmc_encode_failed(status, "storing a number");
}

int shmc_encode_int(struct shmc_encoder *encoder, PyObject *object, shmc_word *word)
{
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);

    if (value == -1 && overflow == 0 && PyErr_Occurred())
        return -1;
    if (overflow == 0 && shmc_integer_fits(value)) {
        *word = shmc_integer_word(value);
        return 0;
    }
    if (overflow == 0)
        return encode_number(encoder, SHMC_NUMBER_INT64, (uint64_t)value, word);
    const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(object) : 0;
    if (overflow < 0 || (large == (unsigned long long)-1 && PyErr_Occurred())) {
        PyErr_Clear();
        return shmc_encode_unsupported(object, "an integer must lie between -2^63 and 2^64 - 1");
    }
    return encode_number(encoder, SHMC_NUMBER_UINT64, large, word);
}

int shmc_encode_float(struct shmc_encoder *encoder, PyObject *object, shmc_word *word)
{
    const double value = PyFloat_AS_DOUBLE(object);
    uint64_t bits;

    if (value - value != 0)
        return shmc_encode_unsupported(object, "NaN and infinity are not JSON");
    memcpy(&bits, &value, sizeof(bits));
    return encode_number(encoder, SHMC_NUMBER_DOUBLE, bits, word);
}
