/*
 * pyscalar.c - numbers as JSON, as orjson writes them.
 */
#include "python/text/pyjson.h"

static uint8_t *put_text(uint8_t *at, const char *text, size_t length)
{
    memcpy(at, text, length);
    return at + length;
}

static uint8_t *put_unsigned(uint8_t *at, uint64_t number)
{
    uint8_t digits[20];
    size_t start = sizeof digits;

    do {
        digits[--start] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    memcpy(at, digits + start, sizeof digits - start);
    return at + (sizeof digits - start);
}

uint8_t *shmc_json_integer(uint8_t *at, int64_t number)
{
    if (number < 0)
        *at++ = '-';
    return put_unsigned(at, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

/* Python's shortest digits in orjson's notation: 1e-05 is 0.00001, 1e-07 is 1e-7; 1e+16 stays
 * (before 3.11 orjson wrote 1e16). `text` has an exponent of at least two digits. */
static uint8_t *put_exponent(uint8_t *at, const char *text, const char *exponent)
{
    const char *digits = exponent + 2;

    if (strcmp(exponent, "e-05") == 0) {
        if (*text == '-')
            at = put_text(at, text++, 1);
        at = put_text(at, "0.0000", 6);
        at = put_text(at, text, 1);
        return text[1] == '.' ? put_text(at, text + 2, (size_t)(exponent - text) - 2) : at;
    }
    at = put_text(at, text, (size_t)(exponent - text) + 2);
    digits += *digits == '0';
    return put_text(at, digits, strlen(digits));
}

static uint8_t *put_double(uint8_t *at, uint64_t bits)
{
    double number;
    char *text;

    memcpy(&number, &bits, sizeof number);
    if (number - number != 0) /* orjson writes null for infinities and NaN */
        return put_text(at, "null", 4);
    text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL)
        return NULL;
    const char *exponent = strchr(text, 'e');
    at = exponent != NULL ? put_exponent(at, text, exponent) : put_text(at, text, strlen(text));
    PyMem_Free(text);
    return at;
}

uint8_t *shmc_json_number(const struct shmc_json *json, uint8_t *at, shmc_word word)
{
    uint64_t kind, bits;

    if (!shmc_number_open(json->span, word, &kind, &bits)) {
        shmc_pyroot_unreadable(json->root);
        return NULL;
    }
    if (kind == SHMC_NUMBER_DOUBLE)
        return put_double(at, bits);
    return kind == SHMC_NUMBER_INT64 ? shmc_json_integer(at, (int64_t)bits)
                                     : put_unsigned(at, bits);
}
