/*
 * heap.c - the private memory of one handle: counted, and made to fail by tests.
 *
 * The only allocations of the core. A handle's tables come from its own heap, so
 * that `bytes` is the handle's cost to its process, and a test can let the n-th
 * allocation fail and then verify that everything is as it was before.
 */
#include <stdlib.h>

#include "core.h"

static bool refuses(struct shmc_heap *heap)
{
    return heap->fail_after != 0 && --heap->fail_after == 0;
}

void *shmc_heap_resize(struct shmc_heap *heap, void *block, size_t old_size, size_t new_size)
{
    assert((block == NULL) == (old_size == 0));
    assert(heap->bytes >= old_size);

    if (new_size == 0) {
        free(block);
        heap->bytes -= old_size;
        return NULL;
    }
    if (refuses(heap))
        return NULL;
    void *moved = realloc(block, new_size);
    if (moved == NULL)
        return NULL;
    heap->bytes += new_size;
    heap->bytes -= old_size;
    return moved;
}

/* Makes room where shmc_list_reserve() found none. */
enum shmc_status shmc_list_grow(struct shmc_heap *heap, struct shmc_list *list, size_t more)
{
    size_t capacity = list->capacity < 8 ? 8 : list->capacity;

    if (more > SIZE_MAX / (2 * sizeof(uint64_t)) - list->count)
        return SHMC_NO_MEMORY;
    while (capacity < list->count + more)
        capacity *= 2;
    uint64_t *items = shmc_heap_resize(heap, list->items, list->capacity * sizeof *items,
                                       capacity * sizeof *items);
    if (items == NULL)
        return SHMC_NO_MEMORY;
    list->items = items;
    list->capacity = capacity;
    return SHMC_OK;
}

void shmc_list_free(struct shmc_heap *heap, struct shmc_list *list)
{
    shmc_heap_resize(heap, list->items, list->capacity * sizeof *list->items, 0);
    list->items = NULL;
    list->count = 0;
    list->capacity = 0;
}
