/*
 * pyjson.c - a word as compact JSON, byte for byte as orjson writes the plain value.
 *
 * One pass from the arena into a buffer of the process, one bytes object at the end. A page is
 * written into its bytes object at once, which is used again for the next page when nobody else
 * holds it any more: pages are long, and a list has many. Only private
 * memory is written before the last validation (H1), with one exception that validates for itself:
 * a shape met for the first time. Each container is validated when it is opened, so that what
 * bounds a loop is always a real count.
 *
 * Every value is followed by a comma; the closing bracket takes the place of the last one.
 */
#include "pymemo.h"

#define MAX_OUTPUT (UINT64_C(1) << 30)
#define FIRST_CAPACITY 16384u
#define SPARE_MAX 262144u /* a larger buffer is not kept */
#define PAGE_MAX 262144u  /* nor a larger page */
#define PAGE_SLACK 32768u /* the object that makes it long enough goes beyond that by so much */
#define SLACK 64u /* free behind every reservation: any scalar, and whole words */
#define PRECHECK_LENGTH 4096u

struct frame {
    struct shmc_pyshape *shape; /* NULL for an array */
    shmc_offset words;
    uint64_t next, count;
    shmc_word word;
    size_t start; /* of its text */
};

struct json {
    shmc_pyroot *root;
    const struct shmc_span *span;
    uint8_t *bytes, *at, *end;
    PyObject *page; /* whose bytes these are; NULL: they are from PyMem_Malloc() */
    uint64_t nodes;
    size_t depth;
    const struct shmc_pyform *form; /* NULL: values as they are */
    struct shmc_pymemo *memo;       /* NULL: every value is written anew */
    struct frame frames[SHMC_MAX_DEPTH + 1];
};

static struct {
    uint8_t *bytes;
    size_t capacity;
} spare; /* taken while in use: making a shape may run anything, even this */

static struct kept {
    PyObject *page; /* free again when ours is the only reference */
    size_t capacity;
} kept[2]; /* the last ones: one is sent while the other one is written */

/* ---- the buffer ----------------------------------------------------------------------- */

/* The bytes in a larger block; what is there already is kept. */
static uint8_t *enlarged(struct json *json, size_t used, size_t capacity)
{
    PyObject *page;

    if (json->page == NULL)
        return PyMem_Realloc(json->bytes, capacity);
    page = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
    if (page == NULL)
        return NULL;
    memcpy(PyBytes_AS_STRING(page), json->bytes, used);
    Py_SETREF(json->page, page);
    return (uint8_t *)PyBytes_AS_STRING(page);
}

static int grow(struct json *json, uint64_t length)
{
    const size_t used = json->bytes == NULL ? 0 : (size_t)(json->at - json->bytes);
    size_t capacity = json->bytes == NULL ? 0 : (size_t)(json->end - json->bytes);
    uint8_t *bytes;

    if (used + length > MAX_OUTPUT) {
        shmc_hot_raise(SHMC_LIMIT, "JSON would be longer than 1 GiB");
        return -1;
    }
    capacity = capacity * 2 > used + length + SLACK ? capacity * 2 : used + length + SLACK;
    bytes = enlarged(json, used, capacity);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    json->bytes = bytes;
    json->at = bytes + used;
    json->end = bytes + capacity;
    return 0;
}

/* Room for `length` bytes and SLACK more. */
static inline int reserve(struct json *json, uint64_t length)
{
    return (uint64_t)(json->end - json->at) < length + SLACK ? grow(json, length) : 0;
}

/* ---- strings -------------------------------------------------------------------------- */

/* Of a byte below 0x20, a quote and a backslash: 'u' stands for \u00XX, 0 for the byte itself. */
static const uint8_t escapes[128] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\',
};

size_t shmc_json_extra(const uint8_t *from, size_t length)
{
    size_t extra = 0;

    for (size_t i = 0; i < length; i++) {
        const uint8_t kind = from[i] < 128 ? escapes[from[i]] : 0;
        extra += kind == 0 ? 0 : kind == 'u' ? 5 : 1;
    }
    return extra;
}

uint8_t *shmc_json_escape(const uint8_t *from, size_t length, uint8_t *to)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < length; i++) {
        const uint8_t c = from[i];
        const uint8_t kind = c < 128 ? escapes[c] : 0;

        if (kind == 0) {
            *to++ = c;
            continue;
        }
        *to++ = '\\';
        *to++ = kind;
        if (kind == 'u') {
            *to++ = '0';
            *to++ = '0';
            *to++ = (uint8_t)digits[c >> 4];
            *to++ = (uint8_t)digits[c & 15];
        }
    }
    return to;
}

/* `length` raw bytes stand at json->at; makes room and escapes them where they are. */
static int escape_in_place(struct json *json, size_t length)
{
    const size_t extra = shmc_json_extra(json->at, length);

    if (reserve(json, length + extra) < 0)
        return -1;
    memmove(json->at + extra, json->at, length);
    json->at = shmc_json_escape(json->at + extra, length, json->at);
    return 0;
}

/* Whether any byte of a word is below 0x20, a quote or a backslash. */
static inline bool needs_escape(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    const uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');

    return (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) |
            ((slash - ones) & ~slash)) & high;
}

static inline int put_short(struct json *json, shmc_word word)
{
    const size_t length = shmc_short_length(word);
    uint64_t bytes = word >> 8;

    *json->at++ = '"';
    memcpy(json->at, &bytes, 8);
    bytes |= ~UINT64_C(0) << 8 * length; /* length <= 7; the rest needs none */
    if (!needs_escape(bytes))
        json->at += length;
    else if (escape_in_place(json, length) < 0)
        return -1;
    *json->at++ = '"';
    return 0;
}

/* The whole words of an open string; its bytes begin 4 into the block. */
static inline void copy_text(const struct json *json, const struct shmc_string *string)
{
    const uint8_t *from = json->span->base + string->block;
    const uint32_t first = (uint32_t)(shmc_word_load(from) >> 32);
    uint8_t *to = json->at;

    memcpy(to, &first, 4);
    for (uint32_t done = 4; done < string->length; done += 8) {
        const uint64_t word = shmc_word_load(from + 4 + done);
        memcpy(to + done, &word, 8);
    }
}

static inline int put_long(struct json *json, shmc_word word)
{
    struct shmc_string string;

    if (!shmc_string_open(json->span, word, &string)) {
        shmc_pyroot_unreadable(json->root);
        return -1;
    }
    if (string.length > PRECHECK_LENGTH && shmc_pyroot_valid(json->root) < 0)
        return -1;
    if (reserve(json, string.length) < 0)
        return -1;
    *json->at++ = '"';
    copy_text(json, &string);
    if ((string.flags & SHMC_STRING_ESCAPES) == 0)
        json->at += string.length;
    else if (escape_in_place(json, string.length) < 0)
        return -1;
    *json->at++ = '"';
    return 0;
}

/* ---- numbers and constants ------------------------------------------------------------ */

static void put_unsigned(struct json *json, uint64_t number)
{
    uint8_t digits[20];
    size_t start = sizeof digits;

    do {
        digits[--start] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    memcpy(json->at, digits + start, sizeof digits - start);
    json->at += sizeof digits - start;
}

static void put_signed(struct json *json, int64_t number)
{
    if (number < 0)
        *json->at++ = '-';
    put_unsigned(json, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void put_text(struct json *json, const char *text, size_t length)
{
    memcpy(json->at, text, length);
    json->at += length;
}

/* Python's shortest digits, dressed as orjson does: 1e-05 is 0.00001, 1e-07 is 1e-7; 1e+16 stays
 * (before 3.11 orjson wrote 1e16). `text` has an exponent of at least two digits. */
static void put_exponent(struct json *json, const char *text, const char *mark)
{
    const char *digits = mark + 2;

    if (strcmp(mark, "e-05") == 0) {
        if (*text == '-')
            put_text(json, text++, 1);
        put_text(json, "0.0000", 6);
        put_text(json, text, 1);
        if (text[1] == '.')
            put_text(json, text + 2, (size_t)(mark - text) - 2);
        return;
    }
    put_text(json, text, (size_t)(mark - text) + 2);
    digits += *digits == '0';
    put_text(json, digits, strlen(digits));
}

static int put_double(struct json *json, uint64_t bits)
{
    double number;
    char *text;

    memcpy(&number, &bits, sizeof number);
    if (number - number != 0) { /* orjson's answer to infinities and NaN */
        put_text(json, "null", 4);
        return 0;
    }
    text = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL)
        return -1;
    const char *mark = strchr(text, 'e');
    if (mark != NULL)
        put_exponent(json, text, mark);
    else
        put_text(json, text, strlen(text));
    PyMem_Free(text);
    return 0;
}

static int put_number(struct json *json, shmc_word word)
{
    uint64_t kind, bits;

    if (!shmc_number_open(json->span, word, &kind, &bits)) {
        shmc_pyroot_unreadable(json->root);
        return -1;
    }
    if (kind == SHMC_NUMBER_DOUBLE)
        return put_double(json, bits);
    if (kind == SHMC_NUMBER_INT64)
        put_signed(json, (int64_t)bits);
    else
        put_unsigned(json, bits);
    return 0;
}

static int put_constant(struct json *json, shmc_word word)
{
    static const char *const texts[] = {"", "null", "false", "true", "[]", "{}"};
    const uint64_t which = word >> 3;

    if (which == 0 || which >= sizeof texts / sizeof texts[0]) {
        shmc_pyroot_unreadable(json->root);
        return -1;
    }
    put_text(json, texts[which], strlen(texts[which]));
    return 0;
}

/* ---- containers ----------------------------------------------------------------------- */

/* Takes over the reference to the shape. */
static int push(struct json *json, struct shmc_pyshape *shape, shmc_word word, shmc_offset words,
                uint64_t count)
{
    const size_t start = (size_t)(json->at - json->bytes);

    json->nodes += count;
    if (json->depth > SHMC_MAX_DEPTH || json->nodes > SHMC_MAX_NODES) {
        shmc_pyshape_drop(shape);
        if (json->depth > SHMC_MAX_DEPTH)
            shmc_hot_raise(SHMC_CORRUPT, "a value is nested too deeply");
        else
            shmc_hot_raise(SHMC_LIMIT, "JSON would have more than 50 million values");
        return -1;
    }
    shmc_fetch_ahead(json->span, words, count);
    json->frames[json->depth++] = (struct frame){shape, words, 0, count, word, start};
    *json->at++ = shape == NULL ? '[' : '{';
    return 0;
}

static int enter_object(struct json *json, shmc_word word)
{
    struct shmc_pyshape *shape;
    struct shmc_object object;

    if (!shmc_object_open(json->span, word, &object)) {
        shmc_pyroot_unreadable(json->root);
        return -1;
    }
    shape = shmc_pyshape_get(json->root, &object); /* validates */
    if (shape == NULL)
        return -1;
    if (shape->json == NULL && shmc_pyshape_render(shape) < 0) {
        shmc_pyshape_drop(shape);
        return -1;
    }
    return push(json, shape, word, object.words, object.count);
}

static int enter_array(struct json *json, shmc_word word)
{
    struct shmc_array array;

    if (!shmc_array_open(json->span, word, &array)) {
        shmc_pyroot_unreadable(json->root);
        return -1;
    }
    if (shmc_pyroot_valid(json->root) < 0)
        return -1;
    return push(json, NULL, word, array.words, array.count);
}

/* Copies the text of a container that is known, with its comma: 1; 0: it is not; -1. */
static inline int put_known(struct json *json, shmc_word word)
{
    const struct shmc_pymemo_slot *slot;

    if (json->memo == NULL || json->depth == 0) /* the outermost has a form of its own */
        return 0;
    slot = shmc_pymemo_slot(json->memo, word);
    if (slot->word != word || slot->length == 0)
        return 0;
    if (reserve(json, slot->length) < 0)
        return -1;
    put_text(json, (const char *)json->memo->texts + slot->start, slot->length);
    *json->at++ = ',';
    return 1;
}

static int put_container(struct json *json, shmc_word word)
{
    const int known = put_known(json, word);

    if (known != 0)
        return known < 0 ? -1 : 0;
    return shmc_tag(word) == SHMC_TAG_OBJECT ? enter_object(json, word) : enter_array(json, word);
}

/* A scalar and its comma, or the opening of a container. */
static inline int put_value(struct json *json, shmc_word word)
{
    int result = 0;

    switch ((enum shmc_tag)shmc_tag(word)) {
    case SHMC_TAG_STRING:
        result = put_long(json, word);
        break;
    case SHMC_TAG_SHORT:
        result = put_short(json, word);
        break;
    case SHMC_TAG_OBJECT:
    case SHMC_TAG_ARRAY:
        return put_container(json, word);
    case SHMC_TAG_INTEGER:
        put_signed(json, shmc_integer_value(word));
        break;
    case SHMC_TAG_DOUBLE:
    case SHMC_TAG_NUMBER:
        result = put_number(json, word);
        break;
    case SHMC_TAG_CONSTANT:
        result = put_constant(json, word);
        break;
    }
    *json->at++ = ',';
    return result;
}

static void leave(struct json *json)
{
    const struct frame *frame = &json->frames[--json->depth];

    if (json->at[-1] == ',') /* the last comma; without one nothing was written */
        json->at--;
    *json->at++ = frame->shape == NULL ? ']' : '}';
    if (json->memo != NULL && json->depth > 0)
        shmc_pymemo_keep(json->memo, frame->word, json->bytes + frame->start,
                         (size_t)(json->at - json->bytes) - frame->start);
    *json->at++ = ',';
    shmc_pyshape_drop(frame->shape);
}

/* "key": in chunks; there is slack behind both ends. */
static inline int put_key(struct json *json, const struct shmc_pyshape *shape, uint64_t index)
{
    const uint32_t start = index == 0 ? 0 : shape->json_ends[index - 1];
    const uint32_t length = shape->json_ends[index] - start;
    const uint8_t *from = shape->json + start;

    if (reserve(json, length) < 0)
        return -1;
    if (length <= SHMC_JSON_SLACK) {
        memcpy(json->at, from, 16);
        memcpy(json->at + 16, from + 16, 16);
    } else {
        memcpy(json->at, from, length);
    }
    json->at += length;
    return 0;
}

static inline bool key_is(const struct shmc_pyshape *shape, uint64_t index, const char *key,
                          size_t length)
{
    const uint32_t start = index == 0 ? 0 : shape->json_ends[index - 1];

    return shape->json_ends[index] - start == length &&
           memcmp(shape->json + start, key, length) == 0;
}

#define KEY_IS(shape, index, key) key_is(shape, index, key, sizeof(key) - 1)

/* Whether a member of the outermost object is written. */
static bool in_form(const struct shmc_pyform *form, const struct shmc_pyshape *shape,
                    uint64_t index)
{
    if (form->keep == SHMC_KEEP_METADATA)
        return KEY_IS(shape, index, "\"metadata\":");
    return form->keep == SHMC_KEEP_ALL ||
           !(KEY_IS(shape, index, "\"kind\":") || KEY_IS(shape, index, "\"apiVersion\":"));
}

/* What stands in front of an object's own members; it ends with a comma. */
static int put_first(struct json *json)
{
    if (json->depth == 0 || json->form == NULL || json->form->first_length == 0)
        return 0;
    if (reserve(json, json->form->first_length) < 0)
        return -1;
    put_text(json, json->form->first, json->form->first_length);
    return 0;
}

static int put_all(struct json *json, shmc_word word)
{
    if (put_value(json, word) < 0 || put_first(json) < 0)
        return -1;
    while (json->depth > 0) {
        struct frame *frame = &json->frames[json->depth - 1];
        const uint64_t index = frame->next++;

        if (reserve(json, 0) < 0)
            return -1;
        if (index == frame->count) {
            leave(json);
            continue;
        }
        if (json->form != NULL && json->depth == 1 && frame->shape != NULL &&
            !in_form(json->form, frame->shape, index))
            continue;
        if (frame->shape != NULL && put_key(json, frame->shape, index) < 0)
            return -1;
        if (put_value(json, shmc_load_at(json->span, frame->words + index * 8)) < 0)
            return -1;
    }
    return shmc_pyroot_valid(json->root);
}

/* ---- the whole ------------------------------------------------------------------------ */

static int take_buffer(struct json *json)
{
    json->bytes = json->at = json->end = spare.bytes;
    if (spare.bytes == NULL)
        return grow(json, FIRST_CAPACITY);
    json->end += spare.capacity;
    spare.bytes = NULL;
    return 0;
}

static void give_buffer(struct json *json)
{
    const size_t capacity = json->bytes == NULL ? 0 : (size_t)(json->end - json->bytes);

    if (capacity == 0 || capacity > SPARE_MAX || spare.bytes != NULL) {
        PyMem_Free(json->bytes);
        return;
    }
    spare.bytes = json->bytes;
    spare.capacity = capacity;
}

/* A page that nobody holds any more, or a new one. */
static int take_page(struct json *json, uint64_t enough)
{
    size_t capacity = enough < PAGE_MAX ? (size_t)enough + PAGE_SLACK : PAGE_MAX;

    for (unsigned i = 0; i < 2 && json->page == NULL; i++) {
        if (kept[i].page == NULL || Py_REFCNT(kept[i].page) > 1 || kept[i].capacity < capacity)
            continue;
        json->page = kept[i].page;
        capacity = kept[i].capacity;
        kept[i].page = NULL;
    }
    if (json->page == NULL)
        json->page = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
    if (json->page == NULL)
        return -1;
    json->bytes = json->at = (uint8_t *)PyBytes_AS_STRING(json->page);
    json->end = json->bytes + capacity;
    return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* a bytes object has no other setter */
static void forget_hash(PyBytesObject *page)
{
    page->ob_shash = -1;
}
#pragma GCC diagnostic pop

/* The page as it is from now on: shorter than its memory, and maybe of another text than before. */
static PyObject *give_page(struct json *json, size_t length)
{
    PyObject *page = json->page;
    const size_t capacity = (size_t)(json->end - json->bytes);

    Py_SET_SIZE(page, (Py_ssize_t)length);
    PyBytes_AS_STRING(page)[length] = 0; /* within SLACK, or the object's own last byte */
    forget_hash((PyBytesObject *)page);
    if (capacity <= PAGE_MAX) { /* in the place of one that was taken, or of the older one */
        if (kept[0].page != NULL) {
            Py_XSETREF(kept[1].page, kept[0].page);
            kept[1].capacity = kept[0].capacity;
        }
        kept[0] = (struct kept){Py_NewRef(page), capacity};
    }
    return page;
}

/* `enough`: of a page; 0: into the process's buffer. */
static int begin(struct json *json, shmc_pyroot *root, const struct shmc_pyform *form,
                 uint64_t enough)
{
    json->root = root;
    json->span = shmc_pyroot_span(root);
    json->form = form;
    json->memo = NULL;
    json->nodes = 0;
    json->depth = 0;
    json->bytes = json->at = json->end = NULL;
    json->page = NULL;
    return enough == 0 ? take_buffer(json) : take_page(json, enough);
}

/* What was written, without its last comma, if `good`. */
static PyObject *end(struct json *json, bool good)
{
    PyObject *result = NULL;

    if (good) {
        const size_t length = (size_t)(json->at - json->bytes);
        const bool comma = length != 0 && json->at[-1] == ',';
        result = json->page != NULL ? give_page(json, length - comma)
                                    : PyBytes_FromStringAndSize((const char *)json->bytes,
                                                                (Py_ssize_t)(length - comma));
    }
    while (json->depth > 0)
        shmc_pyshape_drop(json->frames[--json->depth].shape);
    if (json->page == NULL)
        give_buffer(json);
    else if (!good)
        Py_DECREF(json->page);
    return result;
}

PyObject *shmc_pyjson(shmc_pyroot *root, shmc_word word, const struct shmc_pyform *form)
{
    struct json json;

    const bool good = begin(&json, root, form, 0) == 0 && put_all(&json, word) == 0;
    return end(&json, good);
}

PyObject *shmc_pyjson_many(shmc_pyroot *root, const struct shmc_pyform *form,
                           shmc_pyjson_next next, void *from)
{
    struct json json;
    shmc_word word;
    int more = begin(&json, root, form, form->enough) == 0 ? 1 : -1;

    json.memo = shmc_pymemo_take(root->instance, root->at.generation);
    if (more > 0 && reserve(&json, form->lead_length) < 0)
        more = -1;
    if (more > 0)
        put_text(&json, form->lead, form->lead_length);
    while (more > 0 && (uint64_t)(json.at - json.bytes) - form->lead_length < form->enough) {
        more = next(from, &word);
        json.nodes = 0;
        if (more > 0 && put_all(&json, word) < 0)
            more = -1;
    }
    shmc_pymemo_give(json.memo);
    return end(&json, more >= 0);
}
