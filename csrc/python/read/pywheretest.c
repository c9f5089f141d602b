/*
 * pywheretest.c - whether a value passes one test of a selector; tests from their description.
 *
 * Words are read as pywhere.c states: a broken offset is an absent value, and results are valid
 * only after shmc_pyroot_settle(). Work is bounded by BUDGET (VALUE4).
 */
#include "python/read/pywheretest.h"

#define BUDGET 1000000u /* words read for one object */

enum operator { OP_IN, OP_NOT_IN, OP_EXISTS, OP_ABSENT, OP_GREATER, OP_LESS, OP_IS, OP_IS_NOT };
static const char *const OPERATORS[] = {"in", "notin", "exists", "!", "gt", "lt", "=", "!="};
#define OPERATOR_COUNT (sizeof OPERATORS / sizeof OPERATORS[0])

struct question {
    const struct shmc_span *span;
    const struct shmc_wheretest *test;
    unsigned budget;
    bool something, hit;
};

static bool text_is(const struct shmc_span *span, shmc_word word, const uint8_t *text,
                    size_t length)
{
    struct shmc_string string;

    return shmc_string_open(span, word, &string) && string.length == length &&
           shmc_string_compare(span, &string, 0, string.length, text) == 0;
}

static bool is_text(shmc_word word)
{
    return shmc_tag(word) == SHMC_TAG_SHORT || shmc_tag(word) == SHMC_TAG_STRING;
}

/* Whether a scalar has a text at all; *same: and it equals this one. */
static bool scalar(const struct shmc_span *span, shmc_word word, const uint8_t *text,
                   size_t length, bool *same)
{
    char digits[SHMC_TEXT_MAX];

    if (is_text(word)) {
        *same = text_is(span, word, text, length);
        return true;
    }
    const size_t size = shmc_number_text(span, word, digits);
    *same = size == length && memcmp(digits, text, size) == 0;
    return size != 0;
}

static void see(struct question *question, shmc_word word, const uint8_t *text, size_t length)
{
    bool same = false;

    if (question->budget == 0)
        return;
    question->budget--;
    if (!scalar(question->span, word, text, length, &same))
        return;
    question->something = true;
    question->hit = question->hit || same;
}

/* "key=value" of each member: the given text must begin with the key and '='. */
static void see_members(struct question *question, shmc_word word,
                        const struct shmc_wheretext *wanted)
{
    const struct shmc_span *span = question->span;
    struct shmc_object object;
    struct shmc_string key;

    if (!shmc_object_open(span, word, &object))
        return;
    for (uint64_t i = 0; i < object.count && question->budget > 0; i++) {
        const shmc_word value = shmc_load_at(span, object.words + i * 8);
        const uint8_t *rest = wanted->at;
        size_t length = SIZE_MAX; /* longer than any text */

        if (!shmc_string_open(span, shmc_object_key(span, &object, i), &key))
            return;
        if (key.length < wanted->length && wanted->at[key.length] == '=' &&
            shmc_string_compare(span, &key, 0, key.length, wanted->at) == 0) {
            rest += key.length + 1;
            length = wanted->length - key.length - 1;
        }
        see(question, value, rest, length);
    }
}

static void see_elements(struct question *question, shmc_word word,
                         const struct shmc_wheretext *wanted)
{
    struct shmc_array array;

    if (!shmc_array_open(question->span, word, &array))
        return;
    for (uint64_t i = 0; i < array.count && question->budget > 0; i++)
        see(question, shmc_load_at(question->span, array.words + i * 8), wanted->at,
            wanted->length);
}

/* As an index of the path would hold it (indices.c). */
static void see_path(struct question *question, size_t step, shmc_word word)
{
    const struct shmc_wheretest *test = question->test;
    const struct shmc_wheretext *wanted = &test->values[0];
    struct shmc_array array;

    for (; step < test->path_length && word != SHMC_NOTHING; step++) {
        if (test->path[step].at != NULL) {
            word = shmc_object_find(question->span, word, test->path[step].at,
                                    (uint32_t)test->path[step].length);
            continue;
        }
        if (!shmc_array_open(question->span, word, &array))
            return;
        for (uint64_t i = 0; i < array.count && question->budget > 0; i++) {
            question->budget--;
            see_path(question, step + 1, shmc_load_at(question->span, array.words + i * 8));
        }
        return;
    }
    if (shmc_is_object(word))
        see_members(question, word, wanted);
    else if (shmc_is_array(word))
        see_elements(question, word, wanted);
    else
        see(question, word, wanted->at, wanted->length);
}

static bool among(const struct shmc_span *span, shmc_word word, const struct shmc_wheretest *test)
{
    for (size_t i = 0; is_text(word) && i < test->value_count; i++) {
        if (text_is(span, word, test->values[i].at, test->values[i].length))
            return true;
    }
    return false;
}

/* A decimal number of 64 bits as strconv.ParseInt reads it. */
static bool number_of(const uint8_t *text, size_t length, int64_t *number)
{
    const bool negative = length > 0 && text[0] == '-';
    const uint64_t limit = negative ? UINT64_C(1) << 63 : (UINT64_C(1) << 63) - 1;
    size_t at = length > 0 && (text[0] == '-' || text[0] == '+');
    uint64_t found = 0;

    if (at == length)
        return false;
    for (; at < length; at++) {
        const uint64_t figure = (uint64_t)text[at] - '0';
        if (figure > 9 || found > (limit - figure) / 10)
            return false;
        found = found * 10 + figure;
    }
    *number = negative ? (int64_t)(0 - found) : (int64_t)found;
    return true;
}

static bool compares(const struct shmc_span *span, shmc_word word,
                     const struct shmc_wheretest *test)
{
    struct shmc_string string;
    uint8_t text[64];
    int64_t number;

    if (!is_text(word) || !shmc_string_open(span, word, &string) || string.length > sizeof text)
        return false;
    shmc_string_copy(span, &string, 0, string.length, text);
    if (!number_of(text, string.length, &number))
        return false;
    return test->op == OP_GREATER ? number > test->bound : number < test->bound;
}

bool shmc_wheretest_passes(const struct shmc_span *span, shmc_word word,
                           const struct shmc_wheretest *test)
{
    struct question question = {.span = span, .test = test, .budget = BUDGET};

    if (test->op == OP_IS || test->op == OP_IS_NOT) {
        see_path(&question, 0, word);
        if (!question.something && test->values[0].length == 0)
            question.hit = true; /* an absent value counts as "" */
        return question.hit == (test->op == OP_IS);
    }
    word = shmc_object_find(span, word, test->path[0].at, (uint32_t)test->path[0].length);
    switch (test->op) {
    case OP_IN:
        return among(span, word, test);
    case OP_NOT_IN:
        return !among(span, word, test);
    case OP_EXISTS:
        return word != SHMC_NOTHING;
    case OP_ABSENT:
        return word == SHMC_NOTHING;
    default:
        return compares(span, word, test);
    }
}

/* ---- its description ------------------------------------------------------------------------- */

static int to_text(PyObject *item, struct shmc_wheretext *text)
{
    Py_ssize_t length;

    *text = (struct shmc_wheretext){NULL, 0};
    if (item == Py_None)
        return 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(item, &length); /* TypeError if it is not a str */
    if (bytes == NULL)
        return -1;
    *text = (struct shmc_wheretext){(const uint8_t *)bytes, (size_t)length};
    return 0;
}

int shmc_wheretexts_parse(PyObject *tuple, struct shmc_wheretext **texts, size_t *count)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "paths and values must be tuples");
        return -1;
    }
    *count = (size_t)PyTuple_GET_SIZE(tuple);
    *texts = PyMem_Calloc(*count + 1, sizeof **texts);
    if (*texts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < *count; i++) {
        if (to_text(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i), &(*texts)[i]) < 0)
            return -1;
    }
    return 0;
}

static bool test_fits(struct shmc_wheretest *test)
{
    const bool counted = test->op == OP_IS || test->op == OP_IS_NOT || test->op == OP_GREATER ||
                         test->op == OP_LESS;

    for (size_t i = 0; i < test->value_count; i++) {
        if (test->values[i].at == NULL)
            return false;
    }
    if (counted && test->value_count != 1)
        return false;
    if (test->op == OP_IS || test->op == OP_IS_NOT)
        return true;
    if (test->path_length != 1 || test->path[0].at == NULL)
        return false;
    return !counted || number_of(test->values[0].at, test->values[0].length, &test->bound);
}

int shmc_wheretest_parse(PyObject *item, struct shmc_wheretest *test)
{
    PyObject *path, *values;
    const char *name;
    size_t op = 0;

    if (!PyArg_ParseTuple(item, "OsO;a test must be (path, operator, values)", &path, &name,
                          &values))
        return -1;
    while (op < OPERATOR_COUNT && strcmp(OPERATORS[op], name) != 0)
        op++;
    if (shmc_wheretexts_parse(path, &test->path, &test->path_length) < 0 ||
        shmc_wheretexts_parse(values, &test->values, &test->value_count) < 0)
        return -1;
    test->op = (unsigned)op;
    if (op < OPERATOR_COUNT && test_fits(test))
        return 0;
    PyErr_Format(PyExc_ValueError, "%R is not a valid test", item);
    return -1;
}

void shmc_wheretest_free(struct shmc_wheretest *test)
{
    PyMem_Free(test->path);
    PyMem_Free(test->values);
}
