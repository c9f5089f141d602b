/*
 * pywhere.c - Where: a selector compiled to tests of words, run before any object is made.
 *
 *   groups   head (keys that lead to a word)  -->  tests of the value there
 *            ("metadata", "labels")                ("app",) in {"web"}, ...
 *            ("spec", "nodeName")                  () = "node-7"
 *   hashes   hash of metadata.uid, or of another text of the metadata, in one of several ranges
 *
 * All objects of a chunk go through one step before the next begins: the data for the next step
 * is prefetched while this one runs. Two things make a step cheap:
 *   - a key's member is remembered by the shape of the object (whose id is never used again);
 *   - equal values are one block, so that a group's result is remembered by the word it was
 *     computed for (within one generation: later the block may be another).
 *
 * Results are valid only after shmc_pyroot_settle() (VALUE3). A broken offset is treated as an
 * absent value: either the generation is stale, and settling reports it, or look-ups meet it as
 * well. Everything remembered from a generation that proves stale is forgotten: garbage may bear
 * the id of a shape that is yet to come. Work is bounded by BUDGET (VALUE4).
 */
#include "python/read/pyread.h"

#define REMEMBERED 256u /* results of a group, a power of two */
#define BUDGET 1000000u /* words read for one object */

enum operator { OP_IN, OP_NOT_IN, OP_EXISTS, OP_ABSENT, OP_GREATER, OP_LESS, OP_IS, OP_IS_NOT };
static const char *const OPERATORS[] = {"in", "notin", "exists", "!", "gt", "lt", "=", "!="};
#define OPERATOR_COUNT (sizeof OPERATORS / sizeof OPERATORS[0])

struct text {
    const uint8_t *at; /* in a str of the source; NULL: [*] */
    size_t length;
};

struct test {
    enum operator op;
    size_t path_length, value_count;
    struct text *path, *values;
    int64_t bound; /* of gt and lt */
};

struct head {
    struct text key;
    struct shmc_members members;
};

struct group {
    size_t head_length, test_count;
    struct head *head;
    struct test *tests;
    shmc_word asked[REMEMBERED];
    bool answers[REMEMBERED];
};

struct range {
    uint64_t first, last;
};

struct shmc_pywhere {
    PyObject_HEAD
    PyObject *source; /* owns the texts */
    struct group *groups;
    size_t group_count;
    size_t range_count; /* 0: every hash */
    struct range *ranges;
    struct head hashed[2]; /* "metadata", "uid" or "namespace" */
    uint64_t instance, generation; /* of the remembered results */
    bool doubtful; /* results were read while their generation was being revoked */
};

struct question {
    const struct shmc_span *span;
    const struct test *test;
    unsigned budget;
    bool something, hit;
};

/* ---- one value ------------------------------------------------------------------------------ */

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
static void see_members(struct question *question, shmc_word word, const struct text *wanted)
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

static void see_elements(struct question *question, shmc_word word, const struct text *wanted)
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
    const struct test *test = question->test;
    const struct text *wanted = &test->values[0];
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

static bool among(const struct shmc_span *span, shmc_word word, const struct test *test)
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

static bool compares(const struct shmc_span *span, shmc_word word, const struct test *test)
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

static bool passes(const struct shmc_span *span, shmc_word word, const struct test *test)
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

/* ---- a chunk -------------------------------------------------------------------------------- */

static void ask_ahead(const struct shmc_span *span, const shmc_word *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (shmc_is_block(words[i]))
            shmc_fetch(span, shmc_block_of(words[i]));
    }
}

static void follow(const struct shmc_span *span, struct head *head, size_t length,
                   shmc_word *words, size_t count)
{
    for (size_t step = 0; step < length; step++) {
        ask_ahead(span, words, count);
        for (size_t i = 0; i < count; i++)
            words[i] = shmc_members_find(span, &head[step].members, words[i], head[step].key.at,
                                         head[step].key.length);
    }
}

static bool answer(const struct shmc_span *span, struct group *group, shmc_word word)
{
    const size_t at = (word * UINT64_C(0x9e3779b97f4a7c15)) >> 56;
    bool all = true;

    static_assert(REMEMBERED == 256, "eight bits of the product");
    if (group->asked[at] == word)
        return group->answers[at];
    for (size_t i = 0; all && i < group->test_count; i++)
        all = passes(span, word, &group->tests[i]);
    group->asked[at] = word;
    group->answers[at] = all;
    return all;
}

/* Results belong to one generation; a shape's id to one DATA segment. */
static void remember_for(struct shmc_pywhere *where, const shmc_pyroot *root)
{
    const bool moved = where->doubtful || where->instance != root->instance;

    if (!moved && where->generation == root->at.generation)
        return;
    for (size_t i = 0; i < where->group_count; i++) {
        struct group *group = &where->groups[i];
        memset(group->asked, 0xff, sizeof group->asked); /* no word */
        for (size_t k = 0; moved && k < group->head_length; k++)
            group->head[k].members = (struct shmc_members){0};
    }
    if (moved) {
        where->hashed[0].members = (struct shmc_members){0};
        where->hashed[1].members = (struct shmc_members){0};
    }
    where->instance = root->instance;
    where->generation = root->at.generation;
    where->doubtful = false;
}

static bool in_ranges(const struct shmc_pywhere *where, uint64_t hash)
{
    for (size_t i = 0; i < where->range_count; i++) {
        if (hash >= where->ranges[i].first && hash <= where->ranges[i].last)
            return true;
    }
    return false;
}

static void ask_hash(struct shmc_pywhere *where, const struct shmc_span *span,
                     const struct shmc_entry *entries, unsigned column, size_t count, bool *pass)
{
    shmc_word words[SHMC_CHUNK];

    for (size_t i = 0; i < count; i++)
        words[i] = entries[i].words[column];
    follow(span, where->hashed, 2, words, count);
    ask_ahead(span, words, count);
    for (size_t i = 0; i < count; i++)
        pass[i] = pass[i] && in_ranges(where, shmc_shard_hash(span, words[i]));
}

size_t shmc_pywhere_keep(PyObject *object, const shmc_pyroot *root, struct shmc_entry *entries,
                         unsigned column, size_t count)
{
    struct shmc_pywhere *where = (struct shmc_pywhere *)object;
    const struct shmc_span *span = shmc_pyroot_span(root);
    bool pass[SHMC_CHUNK];
    size_t kept = 0;

    assert(count <= SHMC_CHUNK);
    memset(pass, true, sizeof pass);
    remember_for(where, root);
    if (where->range_count > 0)
        ask_hash(where, span, entries, column, count, pass);
    for (size_t g = 0; g < where->group_count; g++) {
        struct group *group = &where->groups[g];
        shmc_word words[SHMC_CHUNK];

        for (size_t i = 0; i < count; i++)
            words[i] = entries[i].words[column];
        follow(span, group->head, group->head_length, words, count);
        for (size_t i = 0; i < count; i++)
            pass[i] = pass[i] && answer(span, group, words[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (pass[i])
            entries[kept++] = entries[i];
    }
    where->doubtful = !shmc_valid(root->reader->reader->super, root->at.generation);
    return kept;
}

/* ---- compiling ------------------------------------------------------------------------------ */

static int to_text(PyObject *item, struct text *text)
{
    Py_ssize_t length;

    *text = (struct text){NULL, 0};
    if (item == Py_None)
        return 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(item, &length); /* TypeError if it is not a str */
    if (bytes == NULL)
        return -1;
    *text = (struct text){(const uint8_t *)bytes, (size_t)length};
    return 0;
}

static int to_texts(PyObject *tuple, struct text **texts, size_t *count)
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

static bool test_fits(struct test *test)
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

static int to_test(PyObject *item, struct test *test)
{
    PyObject *path, *values;
    const char *name;
    size_t op = 0;

    if (!PyArg_ParseTuple(item, "OsO;a test must be (path, operator, values)", &path, &name,
                          &values))
        return -1;
    while (op < OPERATOR_COUNT && strcmp(OPERATORS[op], name) != 0)
        op++;
    if (to_texts(path, &test->path, &test->path_length) < 0 ||
        to_texts(values, &test->values, &test->value_count) < 0)
        return -1;
    test->op = (enum operator)op;
    if (op < OPERATOR_COUNT && test_fits(test))
        return 0;
    PyErr_Format(PyExc_ValueError, "%R is not a valid test", item);
    return -1;
}

static int to_group(PyObject *item, struct group *group)
{
    PyObject *head, *tests;
    struct text *keys = NULL;
    int result = -1;

    if (!PyArg_ParseTuple(item, "OO!;a group must be (head, tests)", &head, &PyTuple_Type, &tests))
        return -1;
    if (to_texts(head, &keys, &group->head_length) == 0) {
        group->head = PyMem_Calloc(group->head_length + 1, sizeof *group->head);
        group->tests = PyMem_Calloc((size_t)PyTuple_GET_SIZE(tests) + 1, sizeof *group->tests);
        result = group->head == NULL || group->tests == NULL ? -1 : 0;
        if (result < 0)
            PyErr_NoMemory();
    }
    for (size_t i = 0; result == 0 && i < group->head_length; i++) {
        group->head[i].key = keys[i];
        if (keys[i].at == NULL) {
            PyErr_SetString(PyExc_ValueError, "a head cannot have wildcards");
            result = -1;
        }
    }
    PyMem_Free(keys);
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(tests); i++, group->test_count++)
        result = to_test(PyTuple_GET_ITEM(tests, i), &group->tests[group->test_count]);
    return result;
}

static int to_groups(struct shmc_pywhere *where, PyObject *groups)
{
    where->groups = PyMem_Calloc((size_t)PyTuple_GET_SIZE(groups) + 1, sizeof *where->groups);
    if (where->groups == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups); i++) {
        where->group_count++; /* counted first, so that it is freed even if it fails half-way */
        if (to_group(PyTuple_GET_ITEM(groups, i), &where->groups[i]) < 0)
            return -1;
    }
    return 0;
}

static int to_range(PyObject *item, struct range *range)
{
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "O&O&;a range of hashes must be (first, last)", shmc_pyuint64,
                          &range->first, shmc_pyuint64, &range->last)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a range of hashes must be (first, last)");
        return -1;
    }
    return 0;
}

static int make_ranges(struct shmc_pywhere *where, const char *member, Py_ssize_t count)
{
    where->hashed[0].key = (struct text){(const uint8_t *)"metadata", 8};
    where->hashed[1].key = (struct text){(const uint8_t *)member, strlen(member)};
    where->ranges = PyMem_Calloc((size_t)count, sizeof *where->ranges);
    if (where->ranges != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int to_shard(struct shmc_pywhere *where, PyObject *shard)
{
    if (make_ranges(where, "uid", 1) < 0)
        return -1;
    where->range_count = 1;
    return shmc_pyshard_range(shard, &where->ranges->first, &where->ranges->last);
}

/* (member of the metadata, ((first, last), ...)); the text of the member lives in its tuple. */
static int to_hashes(struct shmc_pywhere *where, PyObject *hashes)
{
    const char *member;
    PyObject *ranges;

    if (!PyTuple_Check(hashes)) {
        PyErr_SetString(PyExc_TypeError, "hashes must be a tuple (member, ranges)");
        return -1;
    }
    if (!PyArg_ParseTuple(hashes, "sO!;hashes must be (member, ranges)", &member, &PyTuple_Type,
                          &ranges))
        return -1;
    if (PyTuple_GET_SIZE(ranges) == 0) {
        PyErr_SetString(PyExc_ValueError, "hashes need at least one range");
        return -1;
    }
    if (make_ranges(where, member, PyTuple_GET_SIZE(ranges)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ranges); i++, where->range_count++) {
        if (to_range(PyTuple_GET_ITEM(ranges, i), &where->ranges[i]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *where_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"groups", "shard", "hashes", NULL};
    PyObject *groups, *shard = Py_None, *hashes = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OO:Where", names, &PyTuple_Type, &groups,
                                     &shard, &hashes))
        return NULL;
    if (shard != Py_None && hashes != Py_None) {
        PyErr_SetString(PyExc_TypeError, "a shard is a range of hashes: give one of them");
        return NULL;
    }
    struct shmc_pywhere *where = (struct shmc_pywhere *)type->tp_alloc(type, 0);
    if (where == NULL)
        return NULL;
    where->source = PyTuple_Pack(2, groups, hashes);
    if (where->source == NULL || to_groups(where, groups) < 0 ||
        (shard != Py_None && to_shard(where, shard) < 0) ||
        (hashes != Py_None && to_hashes(where, hashes) < 0))
        Py_CLEAR(where);
    return (PyObject *)where;
}

static void free_test(struct test *test)
{
    PyMem_Free(test->path);
    PyMem_Free(test->values);
}

static void where_dealloc(PyObject *object)
{
    struct shmc_pywhere *where = (struct shmc_pywhere *)object;

    for (size_t i = 0; i < where->group_count; i++) {
        struct group *group = &where->groups[i];
        /* one more than counted: the last may have failed half-way */
        for (size_t k = 0; group->tests != NULL && k <= group->test_count; k++)
            free_test(&group->tests[k]);
        PyMem_Free(group->tests);
        PyMem_Free(group->head);
    }
    PyMem_Free(where->groups);
    PyMem_Free(where->ranges);
    Py_XDECREF(where->source);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject shmc_pywhere_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shmcache._hot.Where",
    .tp_doc = PyDoc_STR("Where(groups, shard=None, hashes=None): a filter for the objects of a scan."),
    .tp_basicsize = sizeof(struct shmc_pywhere),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = where_new,
    .tp_dealloc = where_dealloc,
};
