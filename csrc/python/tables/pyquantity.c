/*
 * pyquantity.c - the text of a Kubernetes quantity, as apimachinery's resource.Quantity reads it.
 *
 *   [+-] digits [. digits] suffix      n u m "" k M G T P E · Ki Mi Gi Ti Pi Ei · e or E, digits
 *
 * The value is a mantissa of decimal digits times 10^exponent times 2^shift; it is brought to
 * billionths in integers, so that sums of many quantities are exact.
 */
#include "python/tables/pytables.h"

#define DIGITS_MAX 27 /* more only if they are zeros in front */

struct scale {
    int exponent, shift;
};

static const shmc_nano LIMIT = (shmc_nano)INT64_MAX * 1000000000;

static bool suffix(const uint8_t *at, size_t length, struct scale *scale)
{
    static const char decimal[] = "num kMGTPE", binary[] = "KMGTPE";
    const char *found;

    *scale = (struct scale){0, 0};
    if (length == 0)
        return true;
    if (length == 1 && at[0] != ' ' && (found = strchr(decimal, at[0])) != NULL && *found != 0) {
        scale->exponent = (int)(found - decimal) * 3 - 9;
        return true;
    }
    if (length == 2 && at[1] == 'i' && at[0] != 0 && (found = strchr(binary, at[0])) != NULL) {
        scale->shift = ((int)(found - binary) + 1) * 10;
        return true;
    }
    if (at[0] != 'e' && at[0] != 'E')
        return false;
    const bool negative = length > 1 && at[1] == '-';
    size_t i = length > 1 && (at[1] == '-' || at[1] == '+') ? 2 : 1;
    int number = 0;
    if (i == length)
        return false;
    for (; i < length; i++) {
        if (at[i] < '0' || at[i] > '9' || number > 99)
            return false;
        number = number * 10 + (at[i] - '0');
    }
    scale->exponent = negative ? -number : number;
    return true;
}

/* The mantissa in billionths; what is cut off rounds away from zero. */
static bool scaled(shmc_nano mantissa, struct scale scale, shmc_nano *nano)
{
    bool rest = false;

    for (; scale.exponent > 0 && mantissa != 0; scale.exponent--) {
        if (mantissa > LIMIT / 10)
            return false;
        mantissa *= 10;
    }
    for (; scale.shift > 0 && mantissa != 0; scale.shift--) {
        if (mantissa > LIMIT / 2)
            return false;
        mantissa *= 2;
    }
    for (; scale.exponent < 0 && mantissa != 0; scale.exponent++) {
        rest = rest || mantissa % 10 != 0;
        mantissa /= 10;
    }
    *nano = mantissa + rest;
    return *nano <= LIMIT;
}

bool shmc_quantity(const uint8_t *text, size_t length, shmc_nano *nano)
{
    const bool negative = length > 0 && text[0] == '-';
    size_t at = length > 0 && (text[0] == '-' || text[0] == '+'), digits = 0, behind = 0, kept = 0;
    struct scale scale;
    shmc_nano mantissa = 0;
    bool point = false;

    for (; at < length; at++) {
        if (text[at] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[at] < '0' || text[at] > '9')
            break;
        digits++;
        behind += point;
        if (mantissa != 0 || text[at] != '0')
            kept++;
        if (kept > DIGITS_MAX)
            return false;
        mantissa = mantissa * 10 + (text[at] - '0');
    }
    if (digits == 0 || behind > 100 || !suffix(text + at, length - at, &scale))
        return false;
    /* Billionths first, so that a binary suffix of a fraction stays exact; `scaled` cuts last. */
    scale.exponent += 9 - (int)behind;
    if (!scaled(mantissa, scale, nano))
        return false;
    if (negative)
        *nano = -*nano;
    return true;
}

/* As a Python int of billionths. */
PyObject *shmc_nano_object(shmc_nano nano)
{
    PyObject *high = PyLong_FromLongLong((long long)(nano >> 62));
    PyObject *low = PyLong_FromLongLong((long long)(nano & ((INT64_C(1) << 62) - 1)));
    PyObject *bits = PyLong_FromLong(62), *shifted = NULL, *result = NULL;

    if (high != NULL && low != NULL && bits != NULL)
        shifted = PyNumber_Lshift(high, bits);
    if (shifted != NULL)
        result = PyNumber_Or(shifted, low);
    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    return result;
}
