/*
 * pypaths.c - the values at a path of an object, by words.
 *
 *   head: keys before the first [*]      each remembers its member in objects of a shape
 *   tail: [*] and what follows           equal arrays are one block, so callers remember by word
 *
 * Objects stored long ago are cold: the heads of several are found one step at a time for all of
 * them, so that their next blocks come from memory at once and not in turn.
 */
#include "python/tables/pytables.h"

#define BUDGET 100000u /* words read for one object (VALUE4) */

int shmc_pypath_init(struct shmc_pypath *path, PyObject *steps)
{
    Py_ssize_t length = 0;

    if (!PyTuple_Check(steps) || PyTuple_GET_SIZE(steps) == 0) {
        PyErr_SetString(PyExc_TypeError, "a path is a tuple of str and None");
        return -1;
    }
    path->length = (size_t)PyTuple_GET_SIZE(steps);
    path->head = path->length;
    path->steps = PyMem_Calloc(path->length, sizeof *path->steps);
    if (path->steps == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    path->source = Py_NewRef(steps);
    for (size_t i = 0; i < path->length; i++) {
        PyObject *const step = PyTuple_GET_ITEM(steps, (Py_ssize_t)i);
        if (step == Py_None) {
            path->head = i < path->head ? i : path->head;
            continue;
        }
        path->steps[i].at = (const uint8_t *)PyUnicode_AsUTF8AndSize(step, &length);
        if (path->steps[i].at == NULL)
            return -1;
        path->steps[i].length = (size_t)length;
    }
    return 0;
}

void shmc_pypath_free(struct shmc_pypath *path)
{
    PyMem_Free(path->steps);
    Py_CLEAR(path->source);
    path->steps = NULL;
}

void shmc_pypath_forget(struct shmc_pypath *path)
{
    for (size_t i = 0; i < path->length; i++)
        path->steps[i].members = (struct shmc_members){0};
}

shmc_word shmc_pypath_head(struct shmc_pypath *path, const struct shmc_span *span, shmc_word word)
{
    for (size_t i = 0; i < path->head && word != SHMC_NOTHING; i++)
        word = shmc_members_find(span, &path->steps[i].members, word, path->steps[i].at,
                                 path->steps[i].length);
    return word;
}

void shmc_pypath_heads(struct shmc_pypath *path, const struct shmc_span *span,
                       const shmc_word *objects, shmc_word *heads, size_t count)
{
    memcpy(heads, objects, count * sizeof *heads);
    for (size_t step = 0; step < path->head; step++) {
        for (size_t i = 0; i < count; i++) {
            if (heads[i] == SHMC_NOTHING)
                continue;
            heads[i] = shmc_members_find(span, &path->steps[step].members, heads[i],
                                         path->steps[step].at, path->steps[step].length);
            if (step + 1 < path->head)
                shmc_fetch(span, shmc_block_of(heads[i]));
        }
    }
}

struct seen {
    const struct shmc_span *span;
    const struct shmc_pypath *path;
    unsigned budget;
    bool only_first;
    shmc_word first;
    shmc_nano sum;
    uint64_t count, invalid;
};

static void see(struct seen *seen, shmc_word word)
{
    struct shmc_string string;
    char text[SHMC_TEXT_MAX < 64 ? 64 : SHMC_TEXT_MAX];
    size_t length;
    shmc_nano nano;

    if (word == SHMC_NOTHING || word == SHMC_NULL)
        return;
    if (seen->only_first) {
        seen->first = word;
        seen->budget = 0;
        return;
    }
    if (shmc_tag(word) == SHMC_TAG_SHORT || shmc_tag(word) == SHMC_TAG_STRING) {
        length = sizeof text + 1;
        if (shmc_string_open(seen->span, word, &string) && string.length <= sizeof text) {
            length = string.length;
            shmc_string_copy(seen->span, &string, 0, string.length, (uint8_t *)text);
        }
    } else {
        length = shmc_number_text(seen->span, word, text);
    }
    if (length <= sizeof text && shmc_quantity((const uint8_t *)text, length, &nano)) {
        seen->sum += nano;
        seen->count++;
    } else {
        seen->invalid++;
    }
}

static void walk(struct seen *seen, size_t step, shmc_word word)
{
    const struct shmc_pypath *path = seen->path;
    struct shmc_array array;

    for (; step < path->length && word != SHMC_NOTHING; step++) {
        if (path->steps[step].at != NULL) {
            word = shmc_is_object(word)
                       ? shmc_object_find(seen->span, word, path->steps[step].at,
                                          (uint32_t)path->steps[step].length)
                       : SHMC_NOTHING;
            continue;
        }
        if (!shmc_array_open(seen->span, word, &array))
            return;
        for (uint64_t i = 0; i < array.count && seen->budget > 0; i++) {
            seen->budget--;
            walk(seen, step + 1, shmc_load_at(seen->span, array.words + i * 8));
        }
        return;
    }
    see(seen, word);
}

shmc_word shmc_pypath_first(const struct shmc_pypath *path, const struct shmc_span *span,
                            shmc_word head)
{
    struct seen seen = {.span = span, .path = path, .budget = BUDGET, .only_first = true};

    walk(&seen, path->head, head);
    return seen.first;
}

uint64_t shmc_pypath_sum(const struct shmc_pypath *path, const struct shmc_span *span,
                         shmc_word head, shmc_nano *sum, uint64_t *invalid)
{
    struct seen seen = {.span = span, .path = path, .budget = BUDGET};

    walk(&seen, path->head, head);
    *sum = seen.sum;
    *invalid += seen.invalid;
    return seen.count;
}
