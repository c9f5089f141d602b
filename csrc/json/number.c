/*
 * number.c - numbers of JSON text: integers of 64 bits as such, all else as the nearest double.
 *
 * The nearest double takes exact arithmetic where mantissa and power of ten are doubles themselves;
 * else the C library converts, given a mantissa without a point, which is the same in any locale.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "json/json.h"

static_assert(FLT_EVAL_METHOD == 0, "double arithmetic is that of doubles");
static_assert(DBL_MANT_DIG == 53, "doubles are those of IEEE 754");

/* No halfway point between two doubles has more significant digits than 767; of the digits after
 * them it matters only whether they are all zeros. */
#define DIGITS_MAX 770u
#define EXPONENT_MAX INT64_C(1000000000000)
#define EXACT_POWER 22

/* The parts of a number in the text. */
struct spelled {
    const uint8_t *whole, *whole_end;       /* digits */
    const uint8_t *fraction, *fraction_end; /* digits; none: equal */
    int64_t exponent;
    bool negative, is_double;
};

static bool is_digit(const uint8_t *at, const uint8_t *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

static const uint8_t *digits_end(const uint8_t *at, const uint8_t *end)
{
    while (is_digit(at, end))
        at++;
    return at;
}

static const uint8_t *read_exponent(const uint8_t *at, const uint8_t *end, int64_t *exponent)
{
    const bool negative = at < end && *at == '-';
    int64_t value = 0;

    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (!is_digit(at, end))
        return NULL;
    for (; is_digit(at, end); at++)
        value = value < EXPONENT_MAX ? value * 10 + (*at - '0') : value;
    *exponent = negative ? -value : value;
    return at;
}

/* The grammar of JSON. Returns the number's end, NULL: not a number. */
static const uint8_t *spell(const uint8_t *at, const uint8_t *end, struct spelled *spelled)
{
    *spelled = (struct spelled){.negative = at < end && *at == '-'};
    at += spelled->negative;
    spelled->whole = at;
    at = spelled->whole_end = digits_end(at, end);
    if (at == spelled->whole || (*spelled->whole == '0' && at - spelled->whole > 1))
        return NULL;
    spelled->fraction = spelled->fraction_end = at;
    if (at < end && *at == '.') {
        spelled->fraction = at + 1;
        at = spelled->fraction_end = digits_end(at + 1, end);
        spelled->is_double = true;
        if (at == spelled->fraction)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        spelled->is_double = true;
        return read_exponent(at + 1, end, &spelled->exponent);
    }
    return at;
}

/* ---- doubles -------------------------------------------------------------------------------- */

/* The significant digits, as many as can matter, and their exponent. */
struct decimal {
    char digits[DIGITS_MAX + 32];
    unsigned count;
    int64_t exponent;
    bool more; /* a digit that was left out is not 0 */
};

static void add_digits(struct decimal *decimal, const uint8_t *at, const uint8_t *end, bool whole)
{
    for (; at < end; at++) {
        if (decimal->count == DIGITS_MAX) {
            decimal->more = decimal->more || *at != '0';
            decimal->exponent += whole;
            continue;
        }
        if (decimal->count > 0 || *at != '0')
            decimal->digits[decimal->count++] = (char)*at;
        decimal->exponent -= !whole;
    }
}

/* mantissa * 10^exponent where both are exact, so that one operation rounds once. */
static bool exact_product(const struct decimal *decimal, double *value)
{
    static const double powers[EXACT_POWER + 1] = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t mantissa = 0;

    if (decimal->count > 18 || decimal->exponent > EXACT_POWER ||
        decimal->exponent < -EXACT_POWER)
        return false;
    for (unsigned i = 0; i < decimal->count; i++)
        mantissa = mantissa * 10 + (uint64_t)(decimal->digits[i] - '0');
    if (mantissa > UINT64_C(1) << DBL_MANT_DIG)
        return false;
    *value = decimal->exponent < 0 ? (double)mantissa / powers[-decimal->exponent]
                                   : (double)mantissa * powers[decimal->exponent];
    return true;
}

static double nearest(const struct spelled *spelled)
{
    struct decimal decimal;
    double value = 0;

    decimal.count = 0;
    decimal.more = false;
    decimal.exponent = spelled->exponent;
    add_digits(&decimal, spelled->whole, spelled->whole_end, true);
    add_digits(&decimal, spelled->fraction, spelled->fraction_end, false);
    if (decimal.count > 0 && !exact_product(&decimal, &value)) {
        if (decimal.more) { /* above the value of the digits, however little */
            decimal.digits[decimal.count++] = '1';
            decimal.exponent--;
        }
        /* beyond these no such mantissa comes back into the range of doubles */
        const int64_t exponent = decimal.exponent > 10000    ? 10000
                                 : decimal.exponent < -10000 ? -10000
                                                             : decimal.exponent;
        snprintf(decimal.digits + decimal.count, 16, "e%d", (int)exponent);
        value = strtod(decimal.digits, NULL);
    }
    return spelled->negative ? -value : value;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Whether the digits fit into 64 bits, with the sign into 63. */
static bool read_integer(const struct spelled *spelled, struct shmc_number *number)
{
    uint64_t value = 0;

    if (spelled->whole_end - spelled->whole > 20)
        return false;
    for (const uint8_t *at = spelled->whole; at < spelled->whole_end; at++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    if (spelled->negative && value > UINT64_C(1) << 63)
        return false;
    number->kind =
        spelled->negative || value <= INT64_MAX ? SHMC_NUMBER_INT64 : SHMC_NUMBER_UINT64;
    number->bits = spelled->negative ? 0 - value : value;
    return true;
}

const uint8_t *shmc_read_number(const uint8_t *at, const uint8_t *end, struct shmc_number *number)
{
    struct spelled spelled;
    const uint8_t *const after = spell(at, end, &spelled);

    if (after == NULL || (!spelled.is_double && read_integer(&spelled, number)))
        return after;
    const double value = nearest(&spelled);
    if (value - value != 0) /* infinity is not JSON */
        return NULL;
    number->kind = SHMC_NUMBER_DOUBLE;
    memcpy(&number->bits, &value, sizeof value);
    return after;
}
