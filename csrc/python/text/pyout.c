/*
 * pyout.c - the memory for JSON text.
 *
 * A single value goes into a buffer of the process, and is copied into a bytes object at the end. A
 * page is written directly into its bytes object, which is reused for the next page when it has no
 * other holders: pages are long, and a list has many.
 */
#include "python/text/pyjson.h"

#define MAX_OUTPUT (UINT64_C(1) << 30)
#define FIRST_CAPACITY 16384u
#define SPARE_MAX 262144u /* a larger buffer is not kept */
#define PAGE_MAX 262144u  /* nor a larger page */
#define PAGE_SLACK 32768u /* the last object may exceed the page by this much */

static struct {
    uint8_t *bytes;
    size_t capacity;
} spare; /* taken while in use: making a shape may run any code, even this */

static struct kept {
    PyObject *page; /* free again when ours is the only reference */
    size_t capacity;
} kept[2]; /* the last two: one is sent while the other is written */

/* Moves the bytes into a larger block. */
static uint8_t *enlarged(struct shmc_json *json, size_t used, size_t capacity)
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

/* A page is longer than its last object by what it may have before, which is less. */
static uint64_t longest(const struct shmc_json *json)
{
    const uint64_t limit = 8 * shmc_copy_limit(json->span);

    return limit < MAX_OUTPUT ? limit : MAX_OUTPUT;
}

uint8_t *shmc_json_grow(struct shmc_json *json, uint8_t *at, uint64_t length)
{
    const size_t used = json->bytes == NULL ? 0 : (size_t)(at - json->bytes);
    size_t capacity = json->bytes == NULL ? 0 : (size_t)(json->end - json->bytes);
    uint8_t *bytes;

    if (used + length > longest(json)) {
        shmc_hot_raise(SHMC_LIMIT, "JSON of a value would be too long for a cache of this size");
        return NULL;
    }
    const size_t needed = used + (size_t)length + SHMC_JSON_ROOM, most = longest(json);
    capacity = capacity < most / 2 ? capacity * 2 : most; /* never past it, or nothing would ask */
    if (capacity < needed)
        capacity = needed;
    bytes = enlarged(json, used, capacity);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    json->bytes = bytes;
    json->end = bytes + capacity;
    return bytes + used;
}

/* ---- where to ------------------------------------------------------------------------- */

static uint8_t *take_buffer(struct shmc_json *json)
{
    json->bytes = json->end = spare.bytes;
    if (spare.bytes == NULL)
        return shmc_json_grow(json, NULL, FIRST_CAPACITY);
    json->end += spare.capacity;
    spare.bytes = NULL;
    return json->bytes;
}

static void give_buffer(struct shmc_json *json)
{
    const size_t capacity = json->bytes == NULL ? 0 : (size_t)(json->end - json->bytes);

    if (capacity == 0 || capacity > SPARE_MAX || spare.bytes != NULL) {
        PyMem_Free(json->bytes);
        return;
    }
    spare.bytes = json->bytes;
    spare.capacity = capacity;
}

/* A page without holders, or a new one. */
static uint8_t *take_page(struct shmc_json *json, uint64_t enough)
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
        return NULL;
    json->bytes = (uint8_t *)PyBytes_AS_STRING(json->page);
    json->end = json->bytes + capacity;
    return json->bytes;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* a bytes object has no other setter */
static void forget_hash(PyBytesObject *page)
{
    page->ob_shash = -1;
}
#pragma GCC diagnostic pop

/* Finishes the page: shorter than its memory, and maybe with another text than before. */
static PyObject *give_page(struct shmc_json *json, size_t length)
{
    PyObject *page = json->page;
    const size_t capacity = (size_t)(json->end - json->bytes);

    Py_SET_SIZE(page, (Py_ssize_t)length);
    PyBytes_AS_STRING(page)[length] = 0; /* within JSONTEXT1, or the object's own last byte */
    forget_hash((PyBytesObject *)page);
    if (capacity <= PAGE_MAX) { /* replaces one that was taken, or the older one */
        if (kept[0].page != NULL) {
            Py_XSETREF(kept[1].page, kept[0].page);
            kept[1].capacity = kept[0].capacity;
        }
        kept[0] = (struct kept){Py_NewRef(page), capacity};
    }
    return page;
}

uint8_t *shmc_json_open(struct shmc_json *json, uint64_t enough)
{
    json->bytes = json->end = NULL;
    json->page = NULL;
    return enough == 0 ? take_buffer(json) : take_page(json, enough);
}

PyObject *shmc_json_result(struct shmc_json *json, const uint8_t *at)
{
    const size_t length = (size_t)(at - json->bytes);

    return json->page != NULL
               ? give_page(json, length)
               : PyBytes_FromStringAndSize((const char *)json->bytes, (Py_ssize_t)length);
}

void shmc_json_close(struct shmc_json *json, bool good)
{
    if (json->page == NULL)
        give_buffer(json);
    else if (!good)
        Py_DECREF(json->page);
}
