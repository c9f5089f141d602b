/*
 * diff.c - the differences between two states of one tree, in time proportional to them.
 *
 *   old   [ a b | c d | e f ]          new   [ a b | c x d | e f ]
 *           same node: skipped               c d against c x d: both are opened
 *
 * A change copies the path to its leaf and nothing else, so two roots of one resource share
 * all other nodes, by offset. Two sides walk in step; each is before an item, which is a node not
 * opened yet or an entry of a leaf, and whose first key is known without opening it (TREE1 of
 * tree.c).
 *
 *   the same node on both sides      neither is opened: nothing below it differs
 *   first keys differ                the side with the smaller one advances: it opens its node,
 *                                    or its entry exists on that side only
 *   first keys are equal             the higher item is opened (both, if equally high), or two
 *                                    entries of one key are compared by their value's word
 *
 * Invariants
 *   DIFF1  both generations are pinned: a block reachable from both is one block, equal words are
 *       equal values, and unequal words unequal ones. The caller validates both afterwards
 *       (VALUE3).
 *   DIFF2  both sides meet a shared item at the same time, since the keys before it have been
 *       passed on both.
 *   DIFF3  levels fall by one at each opening, and steps are counted: a walk ends (VALUE4).
 */
#include "trees/tree.h"

enum side_name { OLD, NEW };

static bool at_end(const struct shmc_diff_side *side)
{
    return side->depth == 0 && side->top == 0;
}

static bool is_entry(const struct shmc_diff_side *side)
{
    return side->depth > 0 && side->nodes[side->depth - 1].level == 0;
}

/* The item's node, not opened yet; 0 for an entry. */
static shmc_offset node_of(const struct shmc_diff *diff, const struct shmc_diff_side *side)
{
    if (side->depth == 0)
        return side->top;
    const struct shmc_diff_node *at = &side->nodes[side->depth - 1];
    if (at->level == 0)
        return 0;
    return shmc_load_at(diff->span, at->payload + (uint64_t)at->index * 8);
}

static unsigned level_of(const struct shmc_diff_side *side)
{
    return side->depth == 0 ? SHMC_MAX_HEIGHT : side->nodes[side->depth - 1].level;
}

static shmc_word key_of(const struct shmc_diff *diff, const struct shmc_diff_side *side)
{
    const struct shmc_diff_node *at = &side->nodes[side->depth - 1];

    return shmc_load_at(diff->span, at->keys + (uint64_t)at->index * 8);
}

static shmc_word value_of(const struct shmc_diff *diff, const struct shmc_diff_side *side)
{
    const struct shmc_diff_node *at = &side->nodes[side->depth - 1];

    return shmc_load_at(diff->span, at->payload + (uint64_t)at->index * 8);
}

static void advance(struct shmc_diff_side *side)
{
    if (side->depth == 0) {
        side->top = 0;
        return;
    }
    while (side->depth > 0 &&
           ++side->nodes[side->depth - 1].index == side->nodes[side->depth - 1].count)
        side->depth--;
    if (side->depth == 0)
        side->top = 0;
}

/* Enters the item's node: its first item is the next one. */
static bool enter(const struct shmc_diff *diff, struct shmc_diff_side *side)
{
    struct shmc_node node;
    const unsigned above = level_of(side);

    if (side->depth == SHMC_MAX_HEIGHT ||
        !shmc_node_open(diff->span, &shmc_primary, node_of(diff, side), &node) ||
        (side->depth > 0 && node.level + 1 != above)) /* DIFF3 */
        return false;
    side->nodes[side->depth++] = (struct shmc_diff_node){
        .keys = node.heads + (uint64_t)node.count * 8,
        .payload = node.heads + (uint64_t)node.count * 16,
        .count = node.count,
        .level = node.level,
    };
    return true;
}

/* -1, 0, 1; the same word is the same key (DIFF1), so that most are never read. */
static enum shmc_status compare(const struct shmc_diff *diff, int *order)
{
    const shmc_word a = key_of(diff, &diff->sides[OLD]), b = key_of(diff, &diff->sides[NEW]);
    struct shmc_string x, y;

    *order = 0;
    if (a == b)
        return SHMC_OK;
    if (!shmc_string_open(diff->span, a, &x) || !shmc_string_open(diff->span, b, &y))
        return SHMC_CORRUPT;
    for (uint32_t at = 0; at < x.length || at < y.length; at += 8) {
        const uint64_t left = shmc_string_be64(diff->span, &x, at);
        const uint64_t right = shmc_string_be64(diff->span, &y, at);
        if (left != right) {
            *order = left < right ? -1 : 1;
            return SHMC_OK;
        }
    }
    *order = (x.length > y.length) - (x.length < y.length);
    return SHMC_OK;
}

static enum shmc_status one_sided(struct shmc_diff *diff, enum side_name name,
                                  struct shmc_difference *found)
{
    struct shmc_diff_side *side = &diff->sides[name];

    if (!is_entry(side))
        return enter(diff, side) ? SHMC_NOT_FOUND : SHMC_CORRUPT;
    *found = (struct shmc_difference){
        .kind = name == OLD ? SHMC_DELETED : SHMC_ADDED,
        .key = key_of(diff, side),
        .old_value = name == OLD ? value_of(diff, side) : SHMC_NOTHING,
        .new_value = name == OLD ? SHMC_NOTHING : value_of(diff, side),
    };
    advance(side);
    return SHMC_OK;
}

static enum shmc_status both_sides(struct shmc_diff *diff, struct shmc_difference *found)
{
    struct shmc_diff_side *old = &diff->sides[OLD], *new = &diff->sides[NEW];
    const unsigned old_level = level_of(old), new_level = level_of(new);

    if (old_level > 0 || new_level > 0) {
        const bool ok = (old_level < new_level || enter(diff, old)) &&
                        (new_level < old_level || enter(diff, new));
        return ok ? SHMC_NOT_FOUND : SHMC_CORRUPT;
    }
    *found = (struct shmc_difference){
        .kind = SHMC_MODIFIED,
        .key = key_of(diff, new),
        .old_value = value_of(diff, old),
        .new_value = value_of(diff, new),
    };
    advance(old);
    advance(new);
    return found->old_value == found->new_value ? SHMC_NOT_FOUND : SHMC_OK;
}

/* OK: *found is one; NOT_FOUND: nothing yet; EMPTY: the end. */
static enum shmc_status step(struct shmc_diff *diff, struct shmc_difference *found)
{
    struct shmc_diff_side *old = &diff->sides[OLD], *new = &diff->sides[NEW];
    int order = 0;

    if (at_end(old) && at_end(new))
        return SHMC_EMPTY;
    if (at_end(new))
        return one_sided(diff, OLD, found);
    if (at_end(old))
        return one_sided(diff, NEW, found);
    const shmc_offset node = node_of(diff, old);
    if (node != 0 && node == node_of(diff, new)) { /* DIFF2 */
        diff->skipped++;
        advance(old);
        advance(new);
        return SHMC_NOT_FOUND;
    }
    if (old->depth > 0 && new->depth > 0) {
        const enum shmc_status status = compare(diff, &order);
        if (status != SHMC_OK)
            return status;
        if (order != 0)
            return one_sided(diff, order < 0 ? OLD : NEW, found);
        return both_sides(diff, found);
    }
    /* a top node has no key yet */
    if ((old->depth == 0 && !enter(diff, old)) || (new->depth == 0 && !enter(diff, new)))
        return SHMC_CORRUPT;
    return SHMC_NOT_FOUND;
}

void shmc_diff_open(struct shmc_diff *diff, const struct shmc_span *span, shmc_offset old_top,
                    shmc_offset new_top, uint64_t entries)
{
    diff->span = span;
    diff->skipped = 0;
    diff->budget = entries * 4 + 1024; /* openings and entries; more is corruption */
    diff->sides[OLD].depth = diff->sides[NEW].depth = 0;
    diff->sides[OLD].top = old_top;
    diff->sides[NEW].top = new_top;
}

enum shmc_status shmc_diff_next(struct shmc_diff *diff, struct shmc_difference *found)
{
    enum shmc_status status = SHMC_NOT_FOUND;

    while (status == SHMC_NOT_FOUND) {
        if (diff->budget-- == 0)
            return SHMC_CORRUPT;
        status = step(diff, found);
    }
    return status;
}
