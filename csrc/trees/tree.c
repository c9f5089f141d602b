/*
 * tree.c - searching the ordered copy-on-write trees.
 *
 * A B+ tree: leaves hold the entries, inner nodes the smallest key of each child and
 * where it is. A published node never changes; see treewrite.c for how a new version
 * is made.
 *
 * Invariants (checked by check.c)
 *   TREE1  keys rise strictly within a node and across it; an inner entry's key is the
 *       smallest key of its child, exactly (the same words).
 *   TREE2  the prefix is common to all keys of the node, heads are as tree.h describes.
 *   TREE3  levels fall by one from parent to child; leaves are level 0; height <= 16.
 *   TREE4  no node is empty; an empty tree is offset 0.
 *
 * Progress: every loop here is bounded by the height, by SHMC_NODE_MAX or by a key's
 * length, whatever the bytes are.
 */
#include "trees/tree.h"

const struct shmc_tree_kind shmc_primary = {1, 2};
const struct shmc_tree_kind shmc_index = {2, 0};

bool shmc_node_key_open(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                        const shmc_word *words, struct shmc_node_key *key)
{
    key->two = kind->key_words == 2;
    if (!shmc_string_open(span, words[0], &key->first))
        return false;
    key->length = key->first.length;
    if (!key->two)
        return true;
    if (!shmc_string_open(span, words[1], &key->second))
        return false;
    key->length += 1 + (uint64_t)key->second.length;
    return true;
}

uint64_t shmc_node_key_be64(const struct shmc_span *span, const struct shmc_node_key *key,
                            uint64_t start)
{
    const uint64_t length = key->first.length;

    if (!key->two)
        return shmc_string_be64(span, &key->first, (uint32_t)start);
    if (start > length)
        return shmc_string_be64(span, &key->second, (uint32_t)(start - length - 1));
    uint64_t word = shmc_string_be64(span, &key->first, (uint32_t)start);
    const uint64_t rest = length - start; /* bytes of the first string in this word, if < 8 */
    if (rest < 7)
        word |= shmc_string_be64(span, &key->second, 0) >> (8 * (rest + 1));
    return word;
}

int shmc_node_key_compare(const struct shmc_span *span, const struct shmc_node_key *a,
                          const struct shmc_node_key *b)
{
    for (uint64_t i = 0; i < a->length || i < b->length; i += 8) {
        const uint64_t x = shmc_node_key_be64(span, a, i);
        const uint64_t y = shmc_node_key_be64(span, b, i);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return (a->length > b->length) - (a->length < b->length);
}

static int compare_from(const struct shmc_span *span, const struct shmc_node_key *key,
                        const uint8_t *bytes, size_t length, uint64_t start)
{
    for (uint64_t i = start; i < key->length || i < length; i += 8) {
        const uint64_t searched = shmc_bytes_be64(bytes, length, (size_t)i);
        const uint64_t stored = shmc_node_key_be64(span, key, i);

        if (searched != stored)
            return searched < stored ? -1 : 1;
    }
    return length == key->length ? 0 : length < key->length ? -1 : 1;
}

/* The searched key against the node's prefix: 0 if it starts with it. */
static int compare_prefix(const struct shmc_span *span, const struct shmc_node *node,
                          const uint8_t *bytes, size_t length)
{
    const shmc_offset prefix = node->offset + sizeof(struct shmc_node_head);

    for (uint32_t i = 0; i < node->prefix_length; i += 8) {
        const uint32_t left = node->prefix_length - i;
        const uint64_t mask = left >= 8 ? ~UINT64_C(0) : ~UINT64_C(0) << (8 * (8 - left));
        const uint64_t stored = __builtin_bswap64(shmc_load_at(span, prefix + i)) & mask;
        const uint64_t searched = shmc_bytes_be64(bytes, length, i) & mask;

        if (searched != stored)
            return searched < stored ? -1 : 1;
    }
    return length < node->prefix_length ? -1 : 0;
}

/* How many heads are less. Two rounds of independent loads, one per line and then within one line:
 * a binary search waits for each load before it can start the next. */
static uint32_t heads_before(const struct shmc_span *span, const struct shmc_node *node,
                             uint64_t head)
{
    const uint8_t *heads = span->base + node->heads;
    uint32_t start = 0;

    for (uint32_t i = 8; i < node->count; i += 8)
        start += shmc_word_load(heads + (uint64_t)i * 8) < head ? 8 : 0;
    const uint32_t end = start + 8 < node->count ? start + 8 : node->count;
    uint32_t before = start;
    for (uint32_t i = start; i < end; i++)
        before += shmc_word_load(heads + (uint64_t)i * 8) < head;
    return before;
}

/* Entries with one head: the keys that a binary search of them may compare in its first steps. */
static void fetch_keys(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                       const struct shmc_node *node, uint32_t low, uint32_t high)
{
    for (uint32_t i = 1; i < 8; i++) {
        const uint32_t at = low + (uint32_t)((uint64_t)(high - low) * i / 8);
        const shmc_word word = shmc_node_word(span, node, kind->key_words, at);
        if (!shmc_is_block(word))
            continue;
        shmc_fetch(span, shmc_block_of(word));
        shmc_fetch(span, shmc_block_of(word) + 64);
    }
}

/* Prefix and head, the 8 bytes after it, are equal already. */
static bool entry_order(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                        const struct shmc_node *node, uint32_t index, const uint8_t *bytes,
                        size_t length, int *order)
{
    shmc_word words[2] = {shmc_node_word(span, node, 1, index), 0};
    struct shmc_node_key key;

    if (kind->key_words == 2)
        words[1] = shmc_node_word(span, node, 2, index);
    if (!shmc_node_key_open(span, kind, words, &key))
        return false;
    *order = compare_from(span, &key, bytes, length, (uint64_t)node->prefix_length + 8);
    return true;
}

enum shmc_status shmc_node_search(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                                  const struct shmc_node *node, const uint8_t *bytes,
                                  size_t length, uint32_t *first, bool *equal)
{
    *equal = false;
    const int prefix = compare_prefix(span, node, bytes, length);
    if (prefix != 0) {
        *first = prefix < 0 ? 0 : node->count;
        return SHMC_OK;
    }
    const uint64_t head = shmc_bytes_be64(bytes, length, node->prefix_length);
    uint32_t low = heads_before(span, node, head);
    uint32_t high = low; /* after the last equal head: usually there is at most one */

    while (high < node->count && shmc_node_word(span, node, 0, high) == head)
        high++;
    if (high - low > 4)
        fetch_keys(span, kind, node, low, high);
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        int order;

        if (!entry_order(span, kind, node, middle, bytes, length, &order))
            return SHMC_CORRUPT;
        if (order == 0) {
            *equal = true;
            low = middle;
            break;
        }
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    return SHMC_OK;
}

static void load_entry(const struct shmc_span *span, const struct shmc_node *leaf, uint32_t index,
                       struct shmc_entry *entry)
{
    for (uint32_t column = 1; column < leaf->columns; column++)
        entry->words[column - 1] = shmc_node_word(span, leaf, column, index);
}

enum shmc_status shmc_tree_find(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                                shmc_offset top, const uint8_t *key, size_t length,
                                struct shmc_entry *entry)
{
    struct shmc_node node;
    uint32_t first;
    bool equal;
    uint32_t level = SHMC_MAX_HEIGHT;

    if (top == 0)
        return SHMC_NOT_FOUND;
    for (shmc_offset offset = top;; offset = shmc_node_child(span, &node, first)) {
        if (!shmc_node_open(span, kind, offset, &node) || node.level >= level)
            return SHMC_CORRUPT; /* also bounds the loop: TREE3 */
        level = node.level;
        const enum shmc_status status =
            shmc_node_search(span, kind, &node, key, length, &first, &equal);
        if (status != SHMC_OK)
            return status;
        if (level == 0)
            break;
        if (!equal && first-- == 0)
            return SHMC_NOT_FOUND; /* before the smallest key */
    }
    if (!equal)
        return SHMC_NOT_FOUND;
    load_entry(span, &node, first, entry);
    return SHMC_OK;
}

/* ---- scanning ------------------------------------------------------------------------ */

/* Opens path[depth]; its level must be the one below its parent's. */
static bool cursor_open(struct shmc_cursor *cursor, shmc_offset offset, struct shmc_node *node)
{
    if (cursor->depth >= SHMC_MAX_HEIGHT ||
        !shmc_node_open(cursor->span, cursor->kind, offset, node))
        return false;
    if (cursor->depth > 0 && node->level + 1 != cursor->path[cursor->depth - 1].level)
        return false;
    cursor->path[cursor->depth].node = offset;
    cursor->path[cursor->depth].level = node->level;
    cursor->path[cursor->depth].index = 0;
    cursor->depth++;
    return true;
}

enum shmc_status shmc_cursor_seek(struct shmc_cursor *cursor, const struct shmc_span *span,
                                  const struct shmc_tree_kind *kind, shmc_offset top,
                                  const uint8_t *key, size_t length)
{
    struct shmc_node node;
    uint32_t first;
    bool equal;

    cursor->span = span;
    cursor->kind = kind;
    cursor->depth = 0;
    if (top == 0)
        return SHMC_OK;
    for (shmc_offset offset = top;; offset = shmc_node_child(span, &node, first)) {
        if (!cursor_open(cursor, offset, &node))
            return SHMC_CORRUPT;
        const enum shmc_status status =
            shmc_node_search(span, kind, &node, key, length, &first, &equal);
        if (status != SHMC_OK)
            return status;
        if (node.level > 0 && !equal && first > 0)
            first--;
        cursor->path[cursor->depth - 1].index = first;
        if (node.level == 0)
            return SHMC_OK;
    }
}

enum shmc_status shmc_cursor_next(struct shmc_cursor *cursor, struct shmc_entry *entry)
{
    struct shmc_node node;

    while (cursor->depth > 0) {
        const unsigned at = cursor->depth - 1;

        if (!shmc_node_open(cursor->span, cursor->kind, cursor->path[at].node, &node) ||
            node.level != cursor->path[at].level)
            return SHMC_CORRUPT;
        if (cursor->path[at].index >= node.count) {
            cursor->depth--;
            if (cursor->depth > 0)
                cursor->path[cursor->depth - 1].index++;
            continue;
        }
        if (node.level == 0) {
            load_entry(cursor->span, &node, cursor->path[at].index++, entry);
            return SHMC_OK;
        }
        const shmc_offset child = shmc_node_child(cursor->span, &node, cursor->path[at].index);
        if (!cursor_open(cursor, child, &node))
            return SHMC_CORRUPT;
    }
    return SHMC_EMPTY;
}
