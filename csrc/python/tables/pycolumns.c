/*
 * pycolumns.c - Root.columns(): values of paths of all objects, as columns with distinct values.
 *
 *   walk ──▸ chunk of objects ──▸ head word of each path ──▸ code (a table of words) ──▸ codes[]
 *   each distinct word ──▸ its value ──▸ distinct values ──▸ settle ──▸ bytes of the column
 *
 * Equal values are one block, so a word stands for its value within the root: a column of 100,000
 * node names looks at 500 texts. Memory grows with the rows and the distinct values alone.
 */
#include "python/tables/pytables.h"

#define MISSING UINT32_MAX
#define AHEAD 16u /* texts that are on their way from memory */

/* Words in the order in which they were first seen, with an open table over them. */
struct wordtable {
    shmc_word *words;
    uint32_t *slots; /* code + 1; 0: free */
    size_t count, capacity; /* slots: twice the capacity, a power of two */
};

struct building {
    struct shmc_pypath path;
    bool sums;
    struct wordtable heads, values;
    uint32_t *codes; /* of heads, then of values */
    size_t room;
    double *numbers; /* of heads, if it sums; NaN: none */
};

static size_t hash_of(shmc_word word)
{
    return (size_t)shmc_mix(word, UINT64_C(0x9e3779b97f4a7c15));
}

static bool grow(struct wordtable *table)
{
    const size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
    shmc_word *words = realloc(table->words, capacity * sizeof *words);
    uint32_t *slots = calloc(capacity * 2, sizeof *slots);

    if (words != NULL)
        table->words = words;
    if (words == NULL || slots == NULL || capacity > UINT32_MAX / 4) {
        free(slots);
        return false;
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    for (size_t i = 0; i < table->count; i++) {
        size_t at = hash_of(words[i]);
        while (slots[at & (capacity * 2 - 1)] != 0)
            at++;
        slots[at & (capacity * 2 - 1)] = (uint32_t)i + 1;
    }
    return true;
}

static void fetch_code(const struct wordtable *table, shmc_word word)
{
    if (table->capacity != 0)
        __builtin_prefetch(&table->slots[hash_of(word) & (table->capacity * 2 - 1)]);
}

/* The code of a word; MISSING without memory. */
static uint32_t code_of(struct wordtable *table, shmc_word word)
{
    if (table->count == table->capacity && !grow(table))
        return MISSING;
    const size_t mask = table->capacity * 2 - 1;
    size_t at = hash_of(word) & mask;
    for (; table->slots[at] != 0; at = (at + 1) & mask) {
        if (table->words[table->slots[at] - 1] == word)
            return table->slots[at] - 1;
    }
    table->words[table->count] = word;
    table->slots[at] = (uint32_t)++table->count;
    return (uint32_t)table->count - 1;
}

/* Room for the codes of that many rows. */
static bool make_room(struct building *column, size_t rows)
{
    if (rows <= column->room)
        return true;
    uint32_t *codes = realloc(column->codes, rows * 2 * sizeof *codes);
    if (codes == NULL)
        return false;
    column->codes = codes;
    column->room = rows * 2;
    return true;
}

/* Without [*]: null then counts as missing already among the heads. */
static bool heads_are_values(const struct building *column)
{
    return column->path.head == column->path.length && !column->sums;
}

static bool add_chunk(struct building *column, const struct shmc_span *span,
                      const shmc_word *objects, size_t rows, size_t count)
{
    const bool null_is_none = heads_are_values(column);
    shmc_word heads[SHMC_CHUNK];

    if (!make_room(column, rows + count))
        return false;
    shmc_pypath_heads(&column->path, span, objects, heads, count);
    for (size_t i = 0; i < count; i++)
        fetch_code(&column->heads, heads[i]);
    for (size_t i = 0; i < count; i++) {
        uint32_t code = MISSING;
        if (heads[i] != SHMC_NOTHING && !(null_is_none && heads[i] == SHMC_NULL) &&
            (code = code_of(&column->heads, heads[i])) == MISSING)
            return false;
        column->codes[rows + i] = code;
    }
    return true;
}

/* ---- from heads to values -------------------------------------------------------------------- */

static bool sum_up(struct building *column, const struct shmc_span *span)
{
    uint64_t invalid = 0;
    shmc_nano sum;

    column->numbers = malloc((column->heads.count + 1) * sizeof *column->numbers);
    for (size_t i = 0; column->numbers != NULL && i < column->heads.count; i++) {
        const uint64_t found =
            shmc_pypath_sum(&column->path, span, column->heads.words[i], &sum, &invalid);
        column->numbers[i] = found != 0 ? (double)sum / 1e9 : Py_NAN;
    }
    return column->numbers != NULL;
}

/* Codes of heads become codes of values: different arrays may have the same first value. */
static bool look_up(struct building *column, const struct shmc_span *span, size_t rows)
{
    if (heads_are_values(column)) {
        column->values = column->heads;
        column->heads = (struct wordtable){0};
        return true;
    }
    uint32_t *of = malloc((column->heads.count + 1) * sizeof *of);
    bool done = of != NULL;

    for (size_t i = 0; done && i < column->heads.count; i++) {
        const shmc_word value = shmc_pypath_first(&column->path, span, column->heads.words[i]);
        of[i] = value == SHMC_NOTHING ? MISSING : code_of(&column->values, value);
        done = value == SHMC_NOTHING || of[i] != MISSING;
    }
    for (size_t i = 0; done && i < rows; i++)
        column->codes[i] = column->codes[i] == MISSING ? MISSING : of[column->codes[i]];
    free(of);
    return done;
}

static int kind_of(const struct shmc_span *span, shmc_word word)
{
    uint64_t kind, bits;

    switch (shmc_tag(word)) {
    case SHMC_TAG_SHORT:
    case SHMC_TAG_STRING:
        return SHMC_TEXTS;
    case SHMC_TAG_INTEGER:
        return SHMC_INTEGERS;
    case SHMC_TAG_DOUBLE:
    case SHMC_TAG_NUMBER:
        return shmc_number_open(span, word, &kind, &bits) && kind == SHMC_NUMBER_INT64
                   ? SHMC_INTEGERS
                   : SHMC_DOUBLES;
    default:
        return word == SHMC_TRUE || word == SHMC_FALSE ? SHMC_FLAGS : -1;
    }
}

/* The one kind of all values; numbers of both kinds are doubles. -1: mixed, or lists and maps. */
static int kind_of_all(const struct shmc_span *span, const struct wordtable *values)
{
    int kind = values->count == 0 ? SHMC_TEXTS : kind_of(span, values->words[0]);

    for (size_t i = 1; kind >= 0 && i < values->count; i++) {
        const int other = kind_of(span, values->words[i]);
        if (other != kind && (kind == SHMC_INTEGERS || kind == SHMC_DOUBLES) &&
            (other == SHMC_INTEGERS || other == SHMC_DOUBLES))
            kind = SHMC_DOUBLES;
        else if (other != kind)
            kind = -1;
    }
    return kind;
}

static int64_t integer_of(const struct shmc_span *span, shmc_word word)
{
    uint64_t kind, bits = 0;

    if (shmc_tag(word) == SHMC_TAG_INTEGER)
        return shmc_integer_value(word);
    shmc_number_open(span, word, &kind, &bits);
    return (int64_t)bits;
}

static double double_of(const struct shmc_span *span, shmc_word word)
{
    uint64_t kind = 0, bits = 0;
    double number;

    if (shmc_tag(word) == SHMC_TAG_INTEGER)
        return (double)shmc_integer_value(word);
    shmc_number_open(span, word, &kind, &bits);
    if (kind == SHMC_NUMBER_INT64)
        return (double)(int64_t)bits;
    if (kind == SHMC_NUMBER_UINT64)
        return (double)bits;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static PyObject *bits_of(const struct building *column, size_t rows, bool validity)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((rows + 7) / 8));

    if (bytes == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(bytes);
    memset(at, 0, (rows + 7) / 8);
    for (size_t i = 0; i < rows; i++) {
        const uint32_t code = column->codes[i];
        bool set = code != MISSING;
        if (set && validity)
            set = column->numbers == NULL || column->numbers[code] == column->numbers[code];
        else if (set)
            set = column->values.words[code] == SHMC_TRUE;
        at[i / 8] |= (uint8_t)(set << (i % 8));
    }
    return bytes;
}

static int64_t missing_of(const struct building *column, size_t rows)
{
    int64_t missing = 0;

    for (size_t i = 0; i < rows; i++) {
        const uint32_t code = column->codes[i];
        missing += code == MISSING ||
                   (column->numbers != NULL && column->numbers[code] != column->numbers[code]);
    }
    return missing;
}

static PyObject *codes_of(const struct building *column, size_t rows)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * 4));

    if (bytes != NULL) {
        uint32_t *at = (uint32_t *)(void *)PyBytes_AS_STRING(bytes);
        for (size_t i = 0; i < rows; i++)
            at[i] = column->codes[i] == MISSING ? 0 : column->codes[i];
    }
    return bytes;
}

/* One word of 8 bytes for each row, from one for each code. */
static PyObject *spread(const struct building *column, size_t rows, const uint64_t *by_code)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * 8));

    if (bytes != NULL) {
        uint64_t *at = (uint64_t *)(void *)PyBytes_AS_STRING(bytes);
        for (size_t i = 0; i < rows; i++)
            at[i] = column->codes[i] == MISSING ? 0 : by_code[column->codes[i]];
    }
    return bytes;
}

static PyObject *numbers_of(const struct building *column, const shmc_pyroot *root, size_t rows,
                            enum shmc_column_kind kind)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    const struct wordtable *values = &column->values;
    uint64_t *by_code = malloc((values->count + 1) * sizeof *by_code);
    PyObject *bytes = NULL;

    for (size_t i = 0; by_code != NULL && i < values->count; i++) {
        const double number = double_of(span, values->words[i]);
        if (kind == SHMC_INTEGERS)
            by_code[i] = (uint64_t)integer_of(span, values->words[i]);
        else
            memcpy(&by_code[i], &number, 8);
    }
    if (by_code == NULL)
        PyErr_NoMemory();
    else if (shmc_pyroot_settle(root, SHMC_OK, "reading columns") == 0)
        bytes = spread(column, rows, by_code);
    free(by_code);
    return bytes;
}

/* The distinct texts: offsets of 32 bits, and their bytes, which are copied before any is trusted. */
static int texts_of(const struct building *column, const shmc_pyroot *root,
                    struct shmc_pycolumn *made)
{
    const struct shmc_span *span = shmc_pyroot_span(root);
    const size_t count = column->values.count;
    struct shmc_string *strings = malloc((count + 1) * sizeof *strings);
    uint64_t total = 0;

    if (strings == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            shmc_fetch(span, shmc_block_of(column->values.words[i + AHEAD]));
        if (!shmc_string_open(span, column->values.words[i], &strings[i]))
            strings[i] = (struct shmc_string){.word = SHMC_TAG_SHORT};
        total += strings[i].length;
    }
    int result = shmc_pyroot_settle(root, SHMC_OK, "reading columns");
    if (result == 0 && total > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "column %R: its distinct texts have %llu bytes, and a "
                     "column has 2^31 at most", made->name, (unsigned long long)total);
        result = -1;
    }
    if (result == 0) {
        made->offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 1) * 4));
        made->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
        result = made->offsets == NULL || made->data == NULL ? -1 : 0;
    }
    if (result == 0) {
        int32_t *offsets = (int32_t *)(void *)PyBytes_AS_STRING(made->offsets);
        uint8_t *data = (uint8_t *)PyBytes_AS_STRING(made->data);
        int32_t at = 0;
        for (size_t i = 0; i < count; i++) {
            offsets[i] = at;
            if (i + AHEAD < count)
                shmc_fetch(span, strings[i + AHEAD].block);
            shmc_string_copy(span, &strings[i], 0, strings[i].length, data + at);
            at += (int32_t)strings[i].length;
        }
        offsets[count] = at;
        result = shmc_pyroot_settle(root, SHMC_OK, "reading columns");
    }
    free(strings);
    return result;
}

static int finish_values(struct building *column, const shmc_pyroot *root, size_t rows,
                         struct shmc_pycolumn *made)
{
    if (!look_up(column, shmc_pyroot_span(root), rows)) {
        PyErr_NoMemory();
        return -1;
    }
    const int kind = kind_of_all(shmc_pyroot_span(root), &column->values);
    if (shmc_pyroot_settle(root, SHMC_OK, "reading columns") < 0)
        return -1;
    if (kind < 0) {
        PyErr_Format(PyExc_TypeError, "column %R: its values must be all texts, all numbers or all "
                     "flags; no lists or maps, and not several kinds", made->name);
        return -1;
    }
    made->kind = (enum shmc_column_kind)kind;
    made->distinct = (int64_t)column->values.count;
    if (made->kind == SHMC_TEXTS) {
        made->values = codes_of(column, rows);
        return made->values == NULL ? -1 : texts_of(column, root, made);
    }
    made->values = made->kind == SHMC_FLAGS ? bits_of(column, rows, false)
                                            : numbers_of(column, root, rows, made->kind);
    return made->values == NULL ? -1 : 0;
}

static int finish_sums(struct building *column, const shmc_pyroot *root, size_t rows,
                       struct shmc_pycolumn *made)
{
    if (!sum_up(column, shmc_pyroot_span(root))) {
        PyErr_NoMemory();
        return -1;
    }
    if (shmc_pyroot_settle(root, SHMC_OK, "reading columns") < 0)
        return -1;
    made->kind = SHMC_DOUBLES;
    made->values = spread(column, rows, (const uint64_t *)(const void *)column->numbers);
    return made->values == NULL ? -1 : 0;
}

static int finish(struct building *column, const shmc_pyroot *root, size_t rows,
                  struct shmc_pycolumn *made)
{
    const int result = column->sums ? finish_sums(column, root, rows, made)
                                    : finish_values(column, root, rows, made);

    if (result < 0)
        return -1;
    made->missing = missing_of(column, rows);
    if (made->missing == 0)
        return 0;
    made->validity = bits_of(column, rows, true);
    return made->validity == NULL ? -1 : 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int walk(shmc_pyroot *root, const struct shmc_pyrecord *record,
                const struct shmc_pybounds *bounds, struct building *columns, Py_ssize_t count,
                size_t *rows)
{
    shmc_word objects[SHMC_CHUNK];
    struct shmc_pyscan scan;
    struct shmc_entry entry;
    int more = shmc_pyscan_open(&scan, root, record, bounds) < 0 ? -1 : 1;

    *rows = 0;
    while (more > 0) {
        size_t chunk = 0;
        while (chunk < SHMC_CHUNK && (more = shmc_pyscan_step(&scan, &entry)) > 0) {
            objects[chunk++] = entry.words[1];
            shmc_fetch(shmc_pyroot_span(root), shmc_block_of(entry.words[1]));
        }
        for (Py_ssize_t i = 0; more >= 0 && i < count; i++) {
            if (!add_chunk(&columns[i], shmc_pyroot_span(root), objects, *rows, chunk)) {
                PyErr_NoMemory();
                more = -1;
            }
        }
        *rows += chunk;
    }
    shmc_pyscan_close(&scan);
    return more;
}

/* wanted: ((name, steps, sums), ...) */
static int begin(struct building *column, PyObject *wanted, struct shmc_pycolumn *made)
{
    PyObject *name, *steps;
    int sums;

    if (!PyTuple_Check(wanted) || !PyArg_ParseTuple(wanted, "UOp:columns", &name, &steps, &sums))
        return -1;
    made->name = Py_NewRef(name);
    column->sums = sums != 0;
    return shmc_pypath_init(&column->path, steps);
}

PyObject *shmc_pyroot_columns(shmc_pyroot *root, const struct shmc_pyrecord *record,
                              const struct shmc_pybounds *bounds, PyObject *wanted)
{
    const Py_ssize_t count = PyTuple_GET_SIZE(wanted);
    struct shmc_pyarrow *made = shmc_pyarrow_new(count);
    struct building *columns = PyMem_Calloc((size_t)count + 1, sizeof *columns);
    int result = made == NULL || columns == NULL ? -1 : 0;
    size_t rows = 0;

    if (columns == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; result == 0 && i < count; i++)
        result = begin(&columns[i], PyTuple_GET_ITEM(wanted, i), &made->columns[i]);
    if (result == 0)
        result = walk(root, record, bounds, columns, count, &rows);
    for (Py_ssize_t i = 0; result == 0 && i < count; i++)
        result = finish(&columns[i], root, rows, &made->columns[i]);
    for (Py_ssize_t i = 0; columns != NULL && i < count; i++) {
        shmc_pypath_free(&columns[i].path);
        free(columns[i].heads.words);
        free(columns[i].heads.slots);
        free(columns[i].values.words);
        free(columns[i].values.slots);
        free(columns[i].codes);
        free(columns[i].numbers);
    }
    PyMem_Free(columns);
    if (made != NULL)
        made->rows = (int64_t)rows;
    if (result < 0)
        Py_CLEAR(made);
    return (PyObject *)made;
}
