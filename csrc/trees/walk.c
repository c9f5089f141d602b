/*
 * walk.c - checks trees and directories, for any bytes.
 *
 * Verified invariants: TREE1..TREE4 of tree.c, DIRECTORY1..DIRECTORY3 of directory.c; and no node
 *   is younger than the root: a writer would take it for its own and change it in place.
 *
 * DIRECTORY1, that a directory holds the content of its tree, is checked by adding up: a mixed word
 * for each pair of key and value, in any order. Both have as many entries, keys of a tree differ,
 * and the sums agree: then so do the entries, except by a chance of one in 2^64.
 *
 * Progress: a level is one below its parent's, or the walk ends; and the walker's own books end
 * it at a node that was met before. So each node is visited once, whatever the bytes are.
 */
#include <stdarg.h>
#include <stdio.h>

#include "trees/walk.h"
#include "writer/writer.h"

#define AHEAD 4u /* entries between prefetching a word's block and reading it */

bool shmc_walk_fail(struct shmc_walk *walk, const char *format, ...)
{
    va_list arguments;

    if (!walk->broken) { /* only the first fault matters */
        va_start(arguments, format);
        vsnprintf(walk->what, walk->fault_size, format, arguments);
        va_end(arguments);
    }
    walk->broken = true;
    return false;
}

/* A digest of a set of entries. */
struct entries {
    uint64_t count, sum;
};

static void add_entry(struct entries *entries, shmc_word key, shmc_word value)
{
    entries->count++;
    entries->sum += shmc_mix(key ^ UINT64_C(0x9e3779b97f4a7c15), value ^ UINT64_C(0xd6e8feb86659fd93));
}

/* ---- trees -------------------------------------------------------------------------------- */

struct tree {
    struct shmc_walk *walk;
    const struct shmc_tree_kind *kind;
    shmc_offset directory; /* must have the keys that an index names */
    struct shmc_node_key last;
    struct entries entries;
};

/* The bytes of an open string, in place: nothing is written during the walk. */
static const uint8_t *string_bytes(const struct shmc_span *span, const struct shmc_string *string,
                                   uint8_t buffer[8])
{
    if (string->block != 0)
        return span->base + string->block + 4;
    shmc_short_bytes(string->word, buffer);
    return buffer;
}

static bool is_known(struct tree *tree, shmc_word key)
{
    const struct shmc_span *span = tree->walk->span;
    struct shmc_string string;
    uint8_t buffer[8];
    shmc_word value;

    if (!shmc_string_open(span, key, &string))
        return false;
    const uint8_t *bytes = string_bytes(span, &string, buffer);
    const uint64_t hash = shmc_key_hash(tree->walk->hash_key, bytes, string.length);
    return shmc_directory_find(span, tree->directory, hash, bytes, string.length, &value) ==
           SHMC_OK;
}

static bool has_prefix(const struct shmc_span *span, const struct shmc_node *node,
                       const struct shmc_node_key *key)
{
    const shmc_offset prefix = node->offset + sizeof(struct shmc_node_head);

    for (uint32_t i = 0; i < node->prefix_length; i += 8) {
        const uint32_t left = node->prefix_length - i;
        const uint64_t mask = left >= 8 ? ~UINT64_C(0) : ~UINT64_C(0) << (8 * (8 - left));
        const uint64_t stored = __builtin_bswap64(shmc_load_at(span, prefix + i));
        if (((stored ^ shmc_node_key_be64(span, key, i)) & mask) != 0)
            return false;
    }
    return key->length >= node->prefix_length;
}

/* An entry of a leaf, whose key is open and in order. */
static bool leaf_entry(struct tree *tree, const struct shmc_node *node, uint32_t index)
{
    const struct shmc_span *span = tree->walk->span;
    const shmc_word first = shmc_node_word(span, node, 1, index);
    const shmc_word second = shmc_node_word(span, node, 2, index);

    for (uint32_t column = 1; column < node->columns; column++) {
        const shmc_word word = shmc_node_word(span, node, column, index);
        if (word == SHMC_NOTHING || !tree->walk->word(tree->walk, word))
            return shmc_walk_fail(tree->walk, "a value is missing, at %#llx",
                                  (unsigned long long)node->offset);
    }
    if (tree->kind->key_words == 2 && !is_known(tree, second))
        return shmc_walk_fail(tree->walk, "an index names a key that does not exist");
    add_entry(&tree->entries, first, second);
    return true;
}

/* The key of an entry: after the last one (TREE1), with its node's prefix and head (TREE2). */
static bool entry_key(struct tree *tree, const struct shmc_node *node, uint32_t index,
                      struct shmc_node_key *key)
{
    const struct shmc_span *span = tree->walk->span;
    const shmc_word words[2] = {shmc_node_word(span, node, 1, index),
                                shmc_node_word(span, node, 2, index)};
    const uint64_t head = shmc_node_word(span, node, 0, index);

    if (!shmc_node_key_open(span, tree->kind, words, key))
        return shmc_walk_fail(tree->walk, "a broken key in the node at %#llx",
                              (unsigned long long)node->offset);
    if (head != shmc_node_key_be64(span, key, node->prefix_length))
        return shmc_walk_fail(tree->walk, "TREE2: a wrong head in the node at %#llx",
                              (unsigned long long)node->offset);
    /* keys rise from the first to the last, so these two have the common prefix of all */
    if ((index == 0 || index + 1 == node->count) && !has_prefix(span, node, key))
        return shmc_walk_fail(tree->walk, "TREE2: a wrong prefix in the node at %#llx",
                              (unsigned long long)node->offset);
    return true;
}

/* The words of an entry that is a few entries away: each leads to memory that is cold. */
static void fetch_entry(const struct tree *tree, const struct shmc_node *node, uint32_t index)
{
    for (uint32_t column = 1; index < node->count && column < node->columns; column++)
        tree->walk->ahead(tree->walk, shmc_node_word(tree->walk->span, node, column, index));
}

static bool walk_leaf(struct tree *tree, const struct shmc_node *node)
{
    const struct shmc_span *span = tree->walk->span;
    struct shmc_node_key key;

    for (uint32_t i = 0; i < node->count; i++, tree->last = key) {
        if (tree->walk->ahead != NULL)
            fetch_entry(tree, node, i + AHEAD);
        if (!entry_key(tree, node, i, &key))
            return false;
        const bool after = i > 0 && shmc_node_word(span, node, 0, i - 1) <
                                        shmc_node_word(span, node, 0, i);
        if (!after && tree->entries.count > 0 && shmc_node_key_compare(span, &tree->last, &key) >= 0)
            return shmc_walk_fail(tree->walk, "TREE1: keys do not rise at %#llx",
                                  (unsigned long long)node->offset);
        if (!leaf_entry(tree, node, i))
            return false;
    }
    return true;
}

static bool walk_node(struct tree *tree, shmc_offset offset, struct shmc_node *node)
{
    const struct shmc_span *span = tree->walk->span;

    if (!shmc_node_open(span, tree->kind, offset, node))
        return shmc_walk_fail(tree->walk, "a broken node at %#llx", (unsigned long long)offset);
    if (shmc_load_at(span, offset + 8) > tree->walk->generation)
        return shmc_walk_fail(tree->walk, "the node at %#llx is from the future",
                              (unsigned long long)offset);
    return tree->walk->node(tree->walk, offset,
                            shmc_node_size(node->count, node->prefix_length, node->columns));
}

/* Walks below an open node; at most SHMC_MAX_HEIGHT deep, since levels fall by one (TREE3). */
static bool walk_below(struct tree *tree, const struct shmc_node *node)
{
    const struct shmc_span *span = tree->walk->span;
    struct shmc_node_key key;
    struct shmc_node child;

    if (node->level == 0)
        return walk_leaf(tree, node);
    for (uint32_t i = 0; i < node->count; i++) {
        const shmc_offset offset = shmc_node_child(span, node, i);

        if (!entry_key(tree, node, i, &key) || !walk_node(tree, offset, &child))
            return false;
        if (child.level + 1 != node->level)
            return shmc_walk_fail(tree->walk, "TREE3: a child of another level at %#llx",
                                  (unsigned long long)offset);
        for (uint32_t c = 1; c <= tree->kind->key_words; c++) {
            if (shmc_node_word(span, node, c, i) != shmc_node_word(span, &child, c, 0))
                return shmc_walk_fail(tree->walk, "TREE1: an inner key is not its child's first, "
                                      "at %#llx", (unsigned long long)node->offset);
        }
        if (!walk_below(tree, &child))
            return false;
    }
    return true;
}

static bool walk_tree(struct tree *tree, shmc_offset top, uint64_t count)
{
    struct shmc_node node;

    if (top != 0 && !(walk_node(tree, top, &node) && walk_below(tree, &node)))
        return false;
    return tree->entries.count == count ||
           shmc_walk_fail(tree->walk, "a tree of %llu entries records %llu",
                          (unsigned long long)tree->entries.count, (unsigned long long)count);
}

/* ---- directories ------------------------------------------------------------------------------ */

/* DIRECTORY2: each entry's hash is its key's, and leads here. `path`: `level` branches taken. */
static bool walk_bucket(struct shmc_walk *walk, const struct shmc_directory_node *bucket,
                        unsigned level, uint64_t path, struct entries *entries)
{
    const struct shmc_span *span = walk->span;
    struct shmc_string string;
    uint8_t buffer[8];

    for (uint64_t i = 0; i < bucket->count; i++) {
        const uint64_t hash = shmc_load_at(span, bucket->words + i * 8);
        const shmc_word key = shmc_load_at(span, bucket->words + (bucket->count + i) * 8);
        const shmc_word value = shmc_load_at(span, bucket->words + (2 * bucket->count + i) * 8);

        if (!shmc_string_open(span, key, &string))
            return shmc_walk_fail(walk, "DIRECTORY1: a broken key in a directory");
        const uint8_t *bytes = string_bytes(span, &string, buffer);
        if (shmc_key_hash(walk->hash_key, bytes, string.length) != hash ||
            (level > 0 && hash >> (64 - SHMC_FAN_BITS * level) != path))
            return shmc_walk_fail(walk, "DIRECTORY2: no look-up finds an entry of a directory");
        add_entry(entries, key, value);
    }
    return true;
}

static bool walk_directory(struct shmc_walk *walk, shmc_offset offset, unsigned level,
                           uint64_t path, struct entries *entries)
{
    struct shmc_directory_node node;
    bool empty = true;

    if (!shmc_directory_node(walk->span, offset, &node) ||
        (node.inner && level == SHMC_DIRECTORY_LEVELS))
        return shmc_walk_fail(walk, "DIRECTORY3: a broken node of a directory at %#llx",
                              (unsigned long long)offset);
    if (shmc_load_at(walk->span, offset + 8) > walk->generation)
        return shmc_walk_fail(walk, "the directory at %#llx is from the future",
                              (unsigned long long)offset);
    if (!walk->node(walk, offset, node.size))
        return false;
    if (!node.inner)
        return walk_bucket(walk, &node, level, path, entries);
    for (uint64_t i = 0; i < node.count; i++) {
        const shmc_offset child = shmc_load_at(walk->span, node.words + i * 8);
        if (child == 0)
            continue;
        empty = false;
        if (!walk_directory(walk, child, level + 1, path << SHMC_FAN_BITS | i, entries))
            return false;
    }
    return !empty || shmc_walk_fail(walk, "DIRECTORY3: an inner node without children");
}

/* ---- a resource ----------------------------------------------------------------------------------- */

bool shmc_walk_resource(struct shmc_walk *walk, const struct shmc_record *record,
                        const struct shmc_record_index *indices)
{
    struct tree primary = {.walk = walk, .kind = &shmc_primary};
    struct entries found = {0, 0};

    if (!walk_tree(&primary, record->primary, record->count))
        return false;
    if (record->directory != 0 && !walk_directory(walk, record->directory, 0, 0, &found))
        return false;
    if (found.count != primary.entries.count || found.sum != primary.entries.sum)
        return shmc_walk_fail(walk, "DIRECTORY1: a directory differs from its tree");
    for (uint64_t i = 0; i < record->index_count; i++) {
        struct tree index = {.walk = walk, .kind = &shmc_index, .directory = record->directory};
        if (!walk_tree(&index, indices[i].tree, indices[i].count))
            return false;
    }
    return true;
}
