/*
 * pyjson.c - a word as compact JSON, byte for byte as orjson writes the plain value; in a form
 * (pages of lists, HTTP responses), with Go's escapes besides JSON's.
 *
 * One pass from the arena into private memory (pyout.c), one bytes object at the end. Nothing else
 * is written before the last validation (HOT1), with one exception that validates for itself:
 * a shape met for the first time. Each container is validated when it is opened, so that a loop
 * is always bounded by a real count.
 *
 * Every value is followed by a comma; the closing bracket replaces the last one.
 */
#include "python/text/pyjson.h"

#define PRECHECK_LENGTH 4096u

/* ---- scalars -------------------------------------------------------------------------- */

static inline uint8_t *put_two(uint8_t *at, char first, char second)
{
    at[0] = (uint8_t)first;
    at[1] = (uint8_t)second;
    return at + 2;
}

/* Rare cases are calls, at the end: the rest stays in registers, and in one function. */
#define RARE __attribute__((noinline, cold))

static RARE uint8_t *put_short_escaped(struct shmc_json *json, uint8_t *at, size_t length)
{
    at = shmc_json_escape_here(json, at + 1, length);
    return at == NULL ? NULL : put_two(at, '"', ',');
}

static inline uint8_t *put_short(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    const size_t length = shmc_short_length(word); /* at most 7: the word's low byte is a quote now */
    const uint64_t text = (word & ~UINT64_C(0xff)) | '"';
    const uint64_t others = ~UINT64_C(0) << 8 * length; /* need no escape */

    memcpy(at, &text, 8);
    if (!shmc_json_escapes(word >> 8 | others) &&
        (json->form == NULL || !shmc_json_go(word >> 8 & ~others)))
        return put_two(at + 1 + length, '"', ',');
    return put_short_escaped(json, at, length);
}

typedef uint64_t pair __attribute__((vector_size(16)));
typedef int8_t bytes16 __attribute__((vector_size(16)));

/* A mask of the bytes in a pair that Go may escape, as in shmc_json_go(). */
static inline pair go_signs(pair words)
{
    const bytes16 bytes = (bytes16)words;

    return (pair)(bytes | ((bytes | ('<' ^ '>')) == '>') | (bytes == '&'));
}

/* Writes the whole words of an open string, whose bytes begin 4 into the block. Returns whether
 * there may be a byte that Go escapes. */
static inline bool copy_text(const struct shmc_json *json, const struct shmc_string *string,
                             uint8_t *to)
{
    const uint8_t *from = json->span->base + string->block;
    const uint32_t first = (uint32_t)(shmc_word_load(from) >> 32);
    pair found = go_signs((pair){first, 0});
    uint32_t done = 4;

    memcpy(to, &first, 4);
    for (; done + 8 < string->length; done += 16) {
        const pair words = {shmc_word_load(from + 4 + done), shmc_word_load(from + 12 + done)};
        memcpy(to + done, &words, 16);
        found |= go_signs(words);
    }
    if (done < string->length) {
        const uint64_t word = shmc_word_load(from + 4 + done);
        memcpy(to + done, &word, 8);
        found |= go_signs((pair){word, 0});
    }
    return ((found[0] | found[1]) & (SHMC_ONES << 7)) != 0;
}

static RARE uint8_t *put_any_long(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    struct shmc_string string;

    if (!shmc_string_open(json->span, word, &string)) {
        shmc_pyroot_unreadable(json->root);
        return NULL;
    }
    if (string.length > PRECHECK_LENGTH && shmc_pyroot_valid(json->root) < 0)
        return NULL;
    at = shmc_json_room(json, at, string.length);
    if (at == NULL)
        return NULL;
    *at++ = '"';
    (void)copy_text(json, &string, at);
    at = shmc_json_escape_here(json, at, string.length);
    return at == NULL ? NULL : put_two(at, '"', ',');
}

static inline uint8_t *put_long(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    struct shmc_string string;

    if (!shmc_string_open(json->span, word, &string) || string.length > PRECHECK_LENGTH ||
        (string.flags & SHMC_STRING_ESCAPES) != 0 ||
        (uint64_t)(json->end - at) < string.length + SHMC_JSON_ROOM)
        return put_any_long(json, at, word);
    *at = '"';
    if (copy_text(json, &string, at + 1) && json->form != NULL)
        return put_any_long(json, at, word);
    return put_two(at + 1 + string.length, '"', ',');
}

static inline uint8_t *put_constant(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    static const char texts[6][8] = {"", "null,", "false,", "true,", "[],", "{},"};
    static const uint8_t lengths[6] = {0, 5, 6, 5, 3, 3};
    const uint64_t which = word >> 3;

    if (which == 0 || which >= sizeof lengths) {
        shmc_pyroot_unreadable(json->root);
        return NULL;
    }
    memcpy(at, texts[which], 8);
    return at + lengths[which];
}

static __attribute__((noinline)) uint8_t *put_number(const struct shmc_json *json, uint8_t *at,
                                                     shmc_word word)
{
    at = shmc_tag(word) == SHMC_TAG_INTEGER ? shmc_json_integer(at, shmc_integer_value(word))
                                            : shmc_json_number(json, at, word);
    if (at != NULL)
        *at++ = ',';
    return at;
}

/* A scalar and its comma. */
static inline uint8_t *put_scalar(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    switch ((enum shmc_tag)shmc_tag(word)) {
    case SHMC_TAG_STRING:
        return put_long(json, at, word);
    case SHMC_TAG_SHORT:
        return put_short(json, at, word);
    case SHMC_TAG_CONSTANT:
        return put_constant(json, at, word);
    default:
        return put_number(json, at, word);
    }
}

/* ---- containers ----------------------------------------------------------------------- */

/* Blocks that a row of words refers to are cold, as in shmc_fetch_ahead(); so are memo slots. */
static inline void fetch_row(const struct shmc_json *json, shmc_offset words, uint64_t count)
{
    for (uint64_t i = 0; i < count && i < 32; i++) {
        const shmc_word word = shmc_load_at(json->span, words + i * 8);
        if (!shmc_is_block(word))
            continue;
        shmc_fetch(json->span, shmc_block_of(word));
        if (shmc_tag(word) >= SHMC_TAG_ARRAY && json->memo != NULL)
            __builtin_prefetch(shmc_pymemo_slot(json->memo, word));
    }
}

/* Takes over the reference to the shape. The fields are written one by one: copying the whole
 * struct would wait for them. */
static inline uint8_t *push(struct shmc_json *json, uint8_t *at, shmc_word word,
                            struct shmc_pyshape *shape, shmc_offset words, uint64_t count)
{
    struct shmc_json_frame *const frame = &json->frames[json->depth];

    if (json->depth > SHMC_MAX_DEPTH) {
        shmc_pyshape_drop(shape);
        shmc_hot_raise(SHMC_CORRUPT, "a value is nested too deeply");
        return NULL;
    }
    fetch_row(json, words, count);
    frame->shape = shape;
    frame->words = words;
    frame->next = 0;
    frame->count = count;
    frame->word = word;
    frame->start = (size_t)(at - json->bytes);
    json->depth++;
    *at++ = shape == NULL ? '[' : '{';
    return at;
}

static uint8_t *enter_object(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    struct shmc_pyshape *shape;
    struct shmc_object object;

    if (!shmc_object_open(json->span, word, &object)) {
        shmc_pyroot_unreadable(json->root);
        return NULL;
    }
    shape = shmc_pyshape_get(json->root, &object); /* validates */
    if (shape == NULL)
        return NULL;
    if (shape->json == NULL && shmc_pyshape_render(shape) < 0) {
        shmc_pyshape_drop(shape);
        return NULL;
    }
    return push(json, at, word, shape, object.words, object.count);
}

static uint8_t *enter_array(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    struct shmc_array array;

    if (!shmc_array_open(json->span, word, &array)) {
        shmc_pyroot_unreadable(json->root);
        return NULL;
    }
    if (shmc_pyroot_valid(json->root) < 0)
        return NULL;
    return push(json, at, word, NULL, array.words, array.count);
}

static inline uint8_t *enter(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    return shmc_tag(word) == SHMC_TAG_OBJECT ? enter_object(json, at, word)
                                             : enter_array(json, at, word);
}

static inline bool key_is(const struct shmc_pyshape *shape, uint64_t index, const char *key,
                          size_t length)
{
    const uint32_t start = index == 0 ? 0 : shape->json_ends[index - 1];

    return shape->json_ends[index] - start == length &&
           memcmp(shape->json + start, key, length) == 0;
}

#define KEY_IS(shape, index, key) key_is(shape, index, key, sizeof(key) - 1)

/* Whether the innermost container is metadata of which the form leaves out a part. Its text is not
 * that of its block, and never in the memo. */
static inline bool in_lean_metadata(const struct shmc_json *json)
{
    const struct shmc_json_frame *const outermost = &json->frames[0];

    return json->depth == 2 && json->form != NULL && json->form->lean && outermost->shape != NULL &&
           KEY_IS(outermost->shape, outermost->next - 1, "\"metadata\":");
}

static uint8_t *leave(struct shmc_json *json, uint8_t *at)
{
    const struct shmc_json_frame *frame = &json->frames[json->depth - 1];

    if (at[-1] == ',') /* the last comma; without one nothing was written */
        at--;
    *at++ = frame->shape == NULL ? ']' : '}';
    if (json->memo != NULL && json->depth > 1 && !in_lean_metadata(json) &&
        shmc_pymemo_fits((size_t)(at - json->bytes) - frame->start))
        shmc_pymemo_note(json->memo, frame->word, json->bytes, frame->start,
                         (size_t)(at - json->bytes) - frame->start);
    *at++ = ',';
    json->depth--;
    shmc_pyshape_drop(frame->shape);
    return at;
}

/* The text of a container that is in the memo, with its comma. */
static inline uint8_t *put_known(struct shmc_json *json, uint8_t *at,
                                 const struct shmc_pymemo_slot *slot)
{
    const size_t length = slot->length;

    at = shmc_json_room(json, at, length + 1);
    if (at == NULL)
        return NULL;
    const uint8_t *const from = shmc_pymemo_text(json->memo, slot, json->bytes);
    if (slot->page != 0) /* of this page, JSONTEXT2: next time it comes from the memo */
        shmc_pymemo_note(json->memo, slot->word, json->bytes, slot->start, length);
    memcpy(at, from, length);
    at += length;
    *at++ = ',';
    return at;
}

/* A key that may need Go's escapes; its text was made when the shape was rendered. */
static uint8_t *put_key_slow(struct shmc_json *json, uint8_t *at, const struct shmc_pyshape *shape,
                             uint64_t index)
{
    Py_ssize_t length;
    const char *text =
        PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(shape->keys, (Py_ssize_t)index), &length);

    if (text != NULL)
        at = shmc_json_room(json, at, (uint64_t)length);
    if (text == NULL || at == NULL)
        return NULL;
    *at++ = '"';
    memcpy(at, text, (size_t)length);
    at = shmc_json_escape_here(json, at, (size_t)length);
    return at == NULL ? NULL : put_two(at, '"', ':');
}

/* "key": copied in chunks; there is slack after both ends. */
static inline uint8_t *put_key(struct shmc_json *json, uint8_t *at,
                               const struct shmc_pyshape *shape, uint64_t index)
{
    const uint32_t start = index == 0 ? 0 : shape->json_ends[index - 1];
    const uint32_t length = shape->json_ends[index] - start;
    const uint8_t *from = shape->json + start;

    if (shape->go && json->form != NULL)
        return put_key_slow(json, at, shape, index);
    at = shmc_json_room(json, at, length);
    if (at == NULL)
        return NULL;
    if (length <= SHMC_JSON_SLACK) {
        memcpy(at, from, 16);
        memcpy(at + 16, from + 16, 16);
    } else {
        memcpy(at, from, length);
    }
    return at + length;
}

/* Whether a member of the outermost object, or of its lean metadata, is written. */
static bool in_form(const struct shmc_json *json, const struct shmc_pyshape *shape, uint64_t index)
{
    const struct shmc_pyform *const form = json->form;

    if (json->depth == 2)
        return !KEY_IS(shape, index, "\"managedFields\":");
    if (form->keep == SHMC_KEEP_METADATA)
        return KEY_IS(shape, index, "\"metadata\":");
    return form->keep == SHMC_KEEP_ALL ||
           !(KEY_IS(shape, index, "\"kind\":") || KEY_IS(shape, index, "\"apiVersion\":"));
}

/* The members in front of an object's own; the text ends with a comma. */
static uint8_t *put_first(struct shmc_json *json, uint8_t *at)
{
    if (json->depth == 0 || json->form == NULL || json->form->first_length == 0)
        return at;
    at = shmc_json_room(json, at, json->form->first_length);
    if (at == NULL)
        return NULL;
    memcpy(at, json->form->first, json->form->first_length);
    return at + json->form->first_length;
}

/* Continues the innermost container, to its end or to a container in it that the memo lacks. */
static uint8_t *put_some(struct shmc_json *json, uint8_t *at)
{
    struct shmc_json_frame *const frame = &json->frames[json->depth - 1];
    const struct shmc_pyshape *const shape = frame->shape;
    const bool outermost = json->depth == 1 && json->form != NULL && shape != NULL;
    const bool sifted = outermost || (shape != NULL && in_lean_metadata(json));
    const bool lean = outermost && json->form->lean;
    const uint64_t count = frame->count;
    const shmc_offset words = frame->words;

    for (uint64_t index = frame->next; at != NULL && index < count; index++) {
        if (sifted && !in_form(json, shape, index))
            continue;
        at = shape != NULL ? put_key(json, at, shape, index) : shmc_json_room(json, at, 0);
        if (at == NULL)
            return NULL;
        const shmc_word word = shmc_load_at(json->span, words + index * 8);
        if (shmc_tag(word) < SHMC_TAG_ARRAY) {
            at = put_scalar(json, at, word);
            continue;
        }
        const struct shmc_pymemo_slot *slot = NULL;
        if (!(lean && KEY_IS(shape, index, "\"metadata\":")))
            slot = shmc_pymemo_find(json->memo, word);
        if (slot == NULL) {
            frame->next = index + 1;
            return enter(json, at, word);
        }
        at = put_known(json, at, slot);
    }
    if (at != NULL)
        at = shmc_json_room(json, at, 0);
    return at == NULL ? NULL : leave(json, at);
}

/* A whole value with its comma. */
static uint8_t *put_all(struct shmc_json *json, uint8_t *at, shmc_word word)
{
    at = shmc_json_room(json, at, 0);
    if (at == NULL)
        return NULL;
    if (shmc_tag(word) < SHMC_TAG_ARRAY) {
        at = put_scalar(json, at, word);
    } else {
        at = enter(json, at, word); /* the outermost has a form of its own: not in the memo */
        if (at != NULL)
            at = put_first(json, at);
        while (at != NULL && json->depth > 0)
            at = put_some(json, at);
    }
    return at == NULL || shmc_pyroot_valid(json->root) < 0 ? NULL : at;
}

/* ---- the whole ------------------------------------------------------------------------ */

static uint8_t *begin(struct shmc_json *json, shmc_pyroot *root, const struct shmc_pyform *form,
                      uint64_t enough)
{
    json->root = root;
    json->span = shmc_pyroot_span(root);
    json->form = form;
    json->memo = NULL;
    json->depth = 0;
    return shmc_json_open(json, enough);
}

/* The text written, without its last comma; NULL if `at` is NULL. */
static PyObject *end(struct shmc_json *json, const uint8_t *at)
{
    PyObject *result = NULL;

    if (at != NULL)
        result = shmc_json_result(json, at - (at > json->bytes && at[-1] == ','));
    while (json->depth > 0)
        shmc_pyshape_drop(json->frames[--json->depth].shape);
    shmc_json_close(json, at != NULL);
    return result;
}

PyObject *shmc_pyjson(shmc_pyroot *root, shmc_word word, const struct shmc_pyform *form)
{
    struct shmc_json json;
    uint8_t *at = begin(&json, root, form, 0);

    if (at != NULL)
        at = put_all(&json, at, word);
    return end(&json, at);
}

static uint8_t *put_lead(struct shmc_json *json, uint8_t *at)
{
    at = shmc_json_room(json, at, json->form->lead_length);
    if (at == NULL)
        return NULL;
    memcpy(at, json->form->lead, json->form->lead_length);
    return at + json->form->lead_length;
}

PyObject *shmc_pyjson_many(shmc_pyroot *root, const struct shmc_pyform *form,
                           shmc_pyjson_next next, void *from)
{
    struct shmc_json json;
    shmc_word word;
    uint8_t *at = begin(&json, root, form, form->enough);
    int more = 1;

    json.memo = shmc_pymemo_take(root->instance, root->at.generation);
    if (at != NULL)
        at = put_lead(&json, at);
    while (more > 0 && at != NULL &&
           (uint64_t)(at - json.bytes) - form->lead_length < form->enough) {
        more = next(from, &word);
        if (more > 0)
            at = put_all(&json, at, word);
        else if (more < 0)
            at = NULL;
    }
    shmc_pymemo_give(json.memo);
    return end(&json, at);
}
