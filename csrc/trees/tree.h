/*
 * tree.h - how to read a node: shared by searching (tree.c) and changing (treewrite.c).
 *
 *   +----------------+------------+----------------+------- ... -------+
 *   | head, 16 bytes | prefix,    | heads x count  | columns - 1 more  |
 *   |                | padded     |                | x count           |
 *   +----------------+------------+----------------+------- ... -------+
 *
 * All keys of a node start with its prefix; heads[i] is the next 8 bytes of key i as a
 * big-endian number, zeros after the end, so that most searches compare only numbers
 * and read one key at the end.
 */
#ifndef SHMC_TREE_H
#define SHMC_TREE_H

#include "core.h"

struct shmc_node {
    shmc_offset offset, heads;
    uint32_t count, columns, level, prefix_length;
};

static inline uint64_t shmc_node_shape(uint32_t count, uint32_t prefix, uint32_t level,
                                       uint32_t columns)
{
    return count | (uint64_t)prefix << 16 | (uint64_t)level << 24 | (uint64_t)columns << 32;
}

static inline uint64_t shmc_node_size(uint32_t count, uint32_t prefix, uint32_t columns)
{
    return sizeof(struct shmc_node_head) + shmc_padded(prefix) + (uint64_t)count * columns * 8;
}

/* How many columns a node of this kind and level has: heads, key words, payload or child. */
static inline uint32_t shmc_node_columns(const struct shmc_tree_kind *kind, uint32_t level)
{
    return 1 + kind->key_words + (level > 0 ? 1 : kind->payload_words);
}

/* False: this cannot be a node of that kind (VALUE2, VALUE4). */
static inline bool shmc_node_open(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                                  shmc_offset offset, struct shmc_node *node)
{
    if (!shmc_in_span(span, offset, sizeof(struct shmc_node_head)))
        return false;
    const uint64_t shape = shmc_load_at(span, offset);
    node->offset = offset;
    node->count = (uint32_t)(shape & 0xffff);
    node->prefix_length = (uint32_t)(shape >> 16 & 0xff);
    node->level = (uint32_t)(shape >> 24 & 0xff);
    node->columns = (uint32_t)(shape >> 32);
    node->heads = offset + sizeof(struct shmc_node_head) + shmc_padded(node->prefix_length);
    return SHMC_DEFENDED(
        node->count >= 1 && node->count <= SHMC_NODE_MAX &&
        node->prefix_length <= SHMC_PREFIX_MAX && node->level < SHMC_MAX_HEIGHT &&
        node->columns == shmc_node_columns(kind, node->level) &&
        shmc_in_span(span, offset,
                     shmc_node_size(node->count, node->prefix_length, node->columns)));
}

/* The word in column `column` (0 = heads) of entry `index`. */
static inline uint64_t shmc_node_word(const struct shmc_span *span, const struct shmc_node *node,
                                      uint32_t column, uint32_t index)
{
    return shmc_load_at(span, node->heads + ((uint64_t)column * node->count + index) * 8);
}

static inline shmc_offset shmc_node_child(const struct shmc_span *span,
                                          const struct shmc_node *node, uint32_t index)
{
    return shmc_node_word(span, node, node->columns - 1, index);
}

/* A key as the trees order it: one string, or value NUL key. */
struct shmc_node_key {
    struct shmc_string first, second;
    uint64_t length;
    bool two;
};

bool shmc_node_key_open(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                        const shmc_word *words, struct shmc_node_key *key);
uint64_t shmc_node_key_be64(const struct shmc_span *span, const struct shmc_node_key *key,
                            uint64_t start);
/* -1, 0, 1: as the trees order them. */
int shmc_node_key_compare(const struct shmc_span *span, const struct shmc_node_key *a,
                          const struct shmc_node_key *b);
/* Where a searched key lies in a node: *first is the first entry not before it; *equal tells
 * whether that entry is the key. */
enum shmc_status shmc_node_search(const struct shmc_span *span, const struct shmc_tree_kind *kind,
                                  const struct shmc_node *node, const uint8_t *bytes,
                                  size_t length, uint32_t *first, bool *equal);

#endif
