/*
 * treewrite.c - changing a tree without changing its published nodes.
 *
 * A node that the open batch built ("fresh": its generation is not published yet) may
 * be written in place; every other node is replaced by a new one, and so is its path
 * to the top. Replaced nodes are listed and retired with the batch.
 *
 * A change is computed on images: a node's columns in private memory. An edit lists
 * which entries of a parent are replaced by which new children; it climbs until a level
 * needs no more than one changed pointer.
 *
 * Invariants: TREE1..TREE4 of tree.c, and
 *   TREEWRITE1  a fresh node's ancestors are fresh (a path is copied up to the top).
 *   TREEWRITE2  a published node is only read.
 *   TREEWRITE3  nodes are split when they exceed SHMC_NODE_MAX, and joined with a neighbour
 *       when they fall under a quarter and both fit into three quarters.
 */
#include "trees/tree.h"
#include "writer/writer.h"

#define JOIN_BELOW (SHMC_NODE_MAX / 4)
#define JOIN_LIMIT (SHMC_NODE_MAX * 3 / 4)
#define COLUMNS 4u
#define NEAR 4u /* entries after the last one, tried before a search */
#define ROOM (2 * SHMC_NODE_MAX)

struct image {
    uint32_t count, columns, level, prefix_length;
    uint8_t prefix[SHMC_PREFIX_MAX];
    uint64_t column[COLUMNS][ROOM];
};

/* Entries [from, from + removed) of a node become `added` new ones. */
struct edit {
    uint32_t from, removed, added;
    uint64_t words[2][COLUMNS - 1]; /* keys, then payload or child */
};

struct context {
    struct shmc_writer *writer;
    const struct shmc_tree_kind *kind;
    const struct shmc_span *span;
};

static void entry_of(const struct shmc_span *span, struct shmc_path *path)
{
    const struct shmc_node *leaf = &path->nodes[path->depth - 1];

    for (uint32_t c = 1; c < leaf->columns; c++)
        path->entry.words[c - 1] = shmc_node_word(span, leaf, c, path->index[path->depth - 1]);
}

/* A node is usually cold, and the loads of a search wait for one another: prefetch its heads, and
 * all of a leaf, which is about to be copied. */
static inline void fetch_node(const struct shmc_span *span, shmc_offset offset, bool leaf)
{
    const uint64_t end = leaf ? 1792 : 640;

    for (uint64_t line = 0; line < end; line += 64)
        __builtin_prefetch(span->base + offset + line);
}

static bool has_key(const struct shmc_writer *writer, const struct shmc_node *leaf, uint32_t index,
                    const uint8_t *key, size_t length)
{
    uint8_t buffer[8];
    size_t stored;
    const uint8_t *bytes =
        shmc_word_bytes(writer, shmc_node_word(&writer->span, leaf, 1, index), buffer, &stored);

    return stored == length && memcmp(bytes, key, length) == 0;
}

bool shmc_path_beside(const struct shmc_writer *writer, const uint8_t *key, size_t length,
                      struct shmc_path *path)
{
    const struct shmc_node *leaf = &path->nodes[path->depth - 1];
    uint32_t *index = &path->index[path->depth - 1];
    const uint32_t last = *index + NEAR < leaf->count ? *index + NEAR : leaf->count - 1;
    bool found = false;

    for (uint32_t i = *index + 1; i <= last && !found; i++) {
        found = has_key(writer, leaf, i, key, length);
        *index = i;
    }
    if (!found && shmc_node_search(&writer->span, &shmc_primary, leaf, key, length, index,
                                   &found) != SHMC_OK)
        return false;
    if (!found && (*index == 0 || *index == leaf->count))
        return false; /* before or after the leaf: another one may have it */
    path->found = found;
    path->entry = (struct shmc_entry){{0}};
    if (found)
        entry_of(&writer->span, path);
    return true;
}

enum shmc_status shmc_path_find(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                shmc_offset top, const uint8_t *key, size_t length,
                                struct shmc_path *path)
{
    const struct shmc_span *span = &writer->span;
    struct shmc_node *node = NULL;
    uint32_t first = 0;
    bool equal = false;

    path->top = top;
    path->depth = 0;
    path->found = false;
    path->entry = (struct shmc_entry){{0}};
    for (shmc_offset offset = top; offset != 0; offset = shmc_node_child(span, node, first)) {
        node = &path->nodes[path->depth];
        if (path->depth == SHMC_MAX_HEIGHT || !shmc_node_open(span, kind, offset, node))
            return SHMC_CORRUPT;
        const enum shmc_status status =
            shmc_node_search(span, kind, node, key, length, &first, &equal);
        if (status != SHMC_OK)
            return status;
        if (node->level > 0 && !equal && first > 0)
            first--;
        path->index[path->depth++] = first;
        if (node->level == 0)
            break;
        fetch_node(span, shmc_node_child(span, node, first), node->level == 1);
    }
    path->found = equal;
    if (!equal)
        return SHMC_NOT_FOUND;
    entry_of(span, path);
    return SHMC_OK;
}

/* ---- images ---------------------------------------------------------------------------- */

static void image_load(const struct context *context, const struct shmc_node *node,
                       struct image *image)
{
    const uint8_t *base = context->span->base;

    image->count = node->count;
    image->columns = node->columns;
    image->level = node->level;
    image->prefix_length = node->prefix_length;
    memcpy(image->prefix, base + node->offset + sizeof(struct shmc_node_head),
           node->prefix_length);
    for (uint32_t c = 0; c < node->columns; c++)
        memcpy(image->column[c], base + node->heads + (uint64_t)c * node->count * 8,
               node->count * 8);
}

static void image_key(const struct context *context, const struct image *image, uint32_t index,
                      struct shmc_node_key *key)
{
    const shmc_word words[2] = {image->column[1][index], image->column[2][index]};
    const bool whole = shmc_node_key_open(context->span, context->kind, words, key);

    assert(whole);
    (void)whole;
}

static void key_bytes(const struct context *context, const struct shmc_node_key *key,
                      uint32_t length, uint8_t *to)
{
    for (uint32_t i = 0; i < length; i += 8) {
        const uint64_t word = __builtin_bswap64(shmc_node_key_be64(context->span, key, i));
        memcpy(to + i, &word, length - i < 8 ? length - i : 8);
    }
}

/* The longest common prefix of the first and the last key, and every head after it (TREE2). */
static void image_rehead(const struct context *context, struct image *image)
{
    struct shmc_node_key first, last, key;
    uint64_t length = 0;

    image_key(context, image, 0, &first);
    image_key(context, image, image->count - 1, &last);
    const uint64_t limit = first.length < last.length ? first.length : last.length;
    for (; length < limit && length < SHMC_PREFIX_MAX; length += 8) {
        const uint64_t differ = shmc_node_key_be64(context->span, &first, length) ^
                                shmc_node_key_be64(context->span, &last, length);
        if (differ != 0) {
            length += (uint64_t)__builtin_clzll(differ) / 8;
            break;
        }
    }
    length = length > limit ? limit : length;
    image->prefix_length = (uint32_t)(length > SHMC_PREFIX_MAX ? SHMC_PREFIX_MAX : length);
    key_bytes(context, &first, image->prefix_length, image->prefix);
    for (uint32_t i = 0; i < image->count; i++) {
        image_key(context, image, i, &key);
        image->column[0][i] = shmc_node_key_be64(context->span, &key, image->prefix_length);
    }
}

static bool starts_with_prefix(const struct context *context, const struct image *image,
                               const struct shmc_node_key *key)
{
    uint8_t bytes[SHMC_PREFIX_MAX];

    if (key->length < image->prefix_length)
        return false;
    key_bytes(context, key, image->prefix_length, bytes);
    return memcmp(bytes, image->prefix, image->prefix_length) == 0;
}

static void image_edit(const struct context *context, struct image *image,
                       const struct edit *edit)
{
    const uint32_t behind = edit->from + edit->removed;
    bool rehead = image->count == edit->removed;

    for (uint32_t c = 0; c < image->columns; c++)
        memmove(&image->column[c][edit->from + edit->added], &image->column[c][behind],
                (image->count - behind) * 8);
    image->count = image->count - edit->removed + edit->added;
    for (uint32_t i = 0; i < edit->added; i++) {
        struct shmc_node_key key;

        for (uint32_t c = 1; c < image->columns; c++)
            image->column[c][edit->from + i] = edit->words[i][c - 1];
        image_key(context, image, edit->from + i, &key);
        if (!rehead && starts_with_prefix(context, image, &key))
            image->column[0][edit->from + i] =
                shmc_node_key_be64(context->span, &key, image->prefix_length);
        else
            rehead = true;
    }
    if (rehead && image->count > 0)
        image_rehead(context, image);
}

/* Entries [from, from + count) of an image as an image of their own. */
static void image_part(const struct context *context, const struct image *image, uint32_t from,
                       uint32_t count, struct image *part)
{
    part->count = count;
    part->columns = image->columns;
    part->level = image->level;
    for (uint32_t c = 1; c < image->columns; c++)
        memcpy(part->column[c], &image->column[c][from], count * 8);
    image_rehead(context, part);
}

/* ---- nodes ------------------------------------------------------------------------------ */

static enum shmc_status node_emit(const struct context *context, const struct image *image,
                                  shmc_offset *offset)
{
    const uint64_t size = shmc_node_size(image->count, image->prefix_length, image->columns);
    const enum shmc_status status = shmc_node_alloc(context->writer, size, offset);

    if (status != SHMC_OK)
        return status;
    uint8_t *to = context->writer->data->base + *offset;
    uint64_t prefix[SHMC_PREFIX_MAX / 8] = {0};

    memcpy(prefix, image->prefix, image->prefix_length);
    shmc_word_store(to, shmc_node_shape(image->count, image->prefix_length, image->level,
                                        image->columns));
    shmc_word_store(to + 8, context->writer->generation + 1);
    to += sizeof(struct shmc_node_head);
    for (uint32_t i = 0; i < image->prefix_length; i += 8, to += 8)
        shmc_word_store(to, prefix[i / 8]);
    for (uint32_t c = 0; c < image->columns; c++) {
        for (uint32_t i = 0; i < image->count; i++, to += 8)
            shmc_word_store(to, image->column[c][i]);
    }
    return SHMC_OK;
}

/* A copy of a published node, fresh. */
static enum shmc_status node_copy(const struct context *context, const struct shmc_node *node,
                                  shmc_offset *offset)
{
    const uint64_t size = shmc_node_size(node->count, node->prefix_length, node->columns);
    const enum shmc_status status = shmc_node_alloc(context->writer, size, offset);

    if (status != SHMC_OK)
        return status;
    const uint8_t *from = context->writer->data->base + node->offset;
    uint8_t *to = context->writer->data->base + *offset;

    for (uint64_t i = 0; i < size; i += 8)
        shmc_word_store(to + i, i == 8 ? context->writer->generation + 1 : shmc_word_load(from + i));
    return SHMC_OK;
}

static void set_word(const struct context *context, const struct shmc_node *node, shmc_offset at,
                     uint32_t column, uint32_t index, uint64_t word)
{
    const uint64_t in_node = node->heads - node->offset +
                             ((uint64_t)column * node->count + index) * 8;

    shmc_word_store(context->writer->data->base + at + in_node, word);
}

/* ---- climbing ----------------------------------------------------------------------------- */

/* One entry's words other than its key, at `level` of the path; then the pointers above it. The
 * path then holds the new nodes. */
static enum shmc_status replace_payload(const struct context *context, struct shmc_path *path,
                                        unsigned level, const uint64_t *payload,
                                        shmc_offset *top)
{
    shmc_offset child = 0;

    for (unsigned at = level + 1; at-- > 0;) {
        struct shmc_node *node = &path->nodes[at];
        const uint32_t first = 1 + context->kind->key_words;
        const bool fresh = shmc_node_is_fresh(context->writer, node->offset);
        shmc_offset offset = node->offset;

        if (!fresh) {
            enum shmc_status status = node_copy(context, node, &offset);
            if (status == SHMC_OK)
                status = shmc_node_drop(context->writer, node->offset);
            if (status != SHMC_OK)
                return status;
        }
        for (uint32_t c = first; c < node->columns; c++)
            set_word(context, node, offset, c, path->index[at],
                     at == level ? payload[c - first] : child);
        if (fresh)
            return SHMC_OK; /* TREEWRITE1: everything above it leads here already */
        node->heads = offset + (node->heads - node->offset);
        node->offset = offset;
        child = offset;
    }
    *top = path->top = child;
    return SHMC_OK;
}

/* Emits an image as one node or two, and records that in the edit of its parent. */
static enum shmc_status emit_parts(const struct context *context, const struct image *image,
                                   bool appended, struct edit *edit)
{
    const uint32_t key_words = context->kind->key_words;
    uint32_t counts[2] = {image->count, 0};
    struct image part;

    edit->added = 0;
    if (image->count > SHMC_NODE_MAX) {
        /* keys that arrive in order leave full nodes */
        counts[0] = appended ? SHMC_NODE_MAX : image->count / 2;
        counts[1] = image->count - counts[0];
    }
    for (uint32_t i = 0, from = 0; i < 2 && counts[i] > 0; from += counts[i++]) {
        const struct image *emitted = image;
        shmc_offset offset;

        if (counts[1] > 0) {
            image_part(context, image, from, counts[i], &part);
            emitted = &part;
        }
        const enum shmc_status status = node_emit(context, emitted, &offset);
        if (status != SHMC_OK)
            return status;
        memcpy(edit->words[i], (const uint64_t[2]){emitted->column[1][0], emitted->column[2][0]},
               16);
        edit->words[i][key_words] = offset;
        edit->added++;
    }
    return SHMC_OK;
}

/*
 * If the image at `level` fell under a quarter, takes in a neighbour. The edit of the
 * parent then removes both.
 */
static enum shmc_status join(const struct context *context, const struct shmc_path *path,
                             unsigned level, struct image *image, struct edit *edit)
{
    if (level == 0 || image->count == 0 || image->count >= JOIN_BELOW)
        return SHMC_OK;
    const struct shmc_node *parent = &path->nodes[level - 1];
    const uint32_t mine = path->index[level - 1];
    const bool right = mine + 1 < parent->count;
    struct shmc_node neighbour;

    if (parent->count < 2)
        return SHMC_OK;
    const uint32_t other = right ? mine + 1 : mine - 1;
    if (!shmc_node_open(context->span, context->kind,
                        shmc_node_child(context->span, parent, other), &neighbour))
        return SHMC_CORRUPT;
    if (neighbour.count + image->count > JOIN_LIMIT)
        return SHMC_OK;

    struct image taken;
    image_load(context, &neighbour, &taken);
    for (uint32_t c = 0; c < image->columns; c++) {
        if (!right)
            memmove(&image->column[c][taken.count], &image->column[c][0], image->count * 8);
        memcpy(&image->column[c][right ? image->count : 0], taken.column[c], taken.count * 8);
    }
    image->count += taken.count;
    image_rehead(context, image);
    edit->from = right ? mine : other;
    edit->removed = 2;
    return shmc_node_drop(context->writer, neighbour.offset);
}

/* A node above the old top, for its two parts. */
static enum shmc_status new_top(const struct context *context, uint32_t level,
                                const struct edit *edit, shmc_offset *top)
{
    struct image image = {.count = edit->added, .level = level};

    image.columns = shmc_node_columns(context->kind, level);
    for (uint32_t i = 0; i < edit->added; i++) {
        for (uint32_t c = 1; c < image.columns; c++)
            image.column[c][i] = edit->words[i][c - 1];
    }
    image_rehead(context, &image);
    return node_emit(context, &image, top);
}

/* Applies an edit at `level` and climbs. */
static enum shmc_status apply(const struct context *context, struct shmc_path *path, unsigned level,
                              struct edit *edit, shmc_offset *top)
{
    const uint32_t key_words = context->kind->key_words;

    for (;; level--) {
        const struct shmc_node *node = &path->nodes[level];
        struct image image;
        struct edit above = {.removed = 1};

        /* Same key, new child: only the pointer changes. */
        if (node->level > 0 && edit->removed == 1 && edit->added == 1) {
            bool same = true;
            for (uint32_t c = 0; c < key_words; c++)
                same = same && shmc_node_word(context->span, node, c + 1, edit->from) ==
                                   edit->words[0][c];
            if (same) {
                path->index[level] = edit->from;
                return replace_payload(context, path, level, &edit->words[0][key_words], top);
            }
        }
        image_load(context, node, &image);
        const bool appended = edit->from + edit->removed == image.count;
        image_edit(context, &image, edit);
        if (level > 0)
            above.from = path->index[level - 1];
        enum shmc_status status = join(context, path, level, &image, &above);
        if (status == SHMC_OK)
            status = emit_parts(context, &image, appended, &above);
        if (status == SHMC_OK)
            status = shmc_node_drop(context->writer, node->offset);
        if (status != SHMC_OK)
            return status;
        if (level > 0) {
            *edit = above;
            continue;
        }
        *top = above.added == 0 ? 0 : above.words[0][key_words];
        if (above.added == 2)
            return new_top(context, image.level + 1, &above, top);
        return SHMC_OK;
    }
}

/* A top with one child is not needed (after a deletion). */
static enum shmc_status lower_top(const struct context *context, shmc_offset *top)
{
    struct shmc_node node;

    while (*top != 0) {
        if (!shmc_node_open(context->span, context->kind, *top, &node))
            return SHMC_CORRUPT;
        if (node.level == 0 || node.count > 1)
            return SHMC_OK;
        *top = shmc_node_child(context->span, &node, 0);
        const enum shmc_status status = shmc_node_drop(context->writer, node.offset);
        if (status != SHMC_OK)
            return status;
    }
    return SHMC_OK;
}

enum shmc_status shmc_path_put(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                               struct shmc_path *path, const struct shmc_entry *entry,
                               shmc_offset *top)
{
    const struct context context = {writer, kind, &writer->span};
    struct edit edit = {.added = 1};

    if (path->found)
        return replace_payload(&context, path, path->depth - 1, entry->words + kind->key_words,
                               top);
    memcpy(edit.words[0], entry->words, sizeof(edit.words[0]));
    if (kind == &shmc_primary)
        SHMC_UNLESS(NO_PATH_FORGET, shmc_path_forget(writer));
    if (path->depth == 0) {
        struct image image = {.columns = shmc_node_columns(kind, 0)};
        image_edit(&context, &image, &edit);
        return node_emit(&context, &image, top);
    }
    edit.from = path->index[path->depth - 1];
    return apply(&context, path, path->depth - 1, &edit, top);
}

enum shmc_status shmc_tree_delete(struct shmc_writer *writer, const struct shmc_tree_kind *kind,
                                  shmc_offset *top, const uint8_t *key, size_t length,
                                  struct shmc_entry *old)
{
    const struct context context = {writer, kind, &writer->span};
    struct shmc_path path;
    enum shmc_status status = shmc_path_find(writer, kind, *top, key, length, &path);

    if (status != SHMC_OK)
        return status;
    if (kind == &shmc_primary)
        SHMC_UNLESS(NO_PATH_FORGET, shmc_path_forget(writer));
    *old = path.entry;
    struct edit edit = {.from = path.index[path.depth - 1], .removed = 1};
    status = apply(&context, &path, path.depth - 1, &edit, top);
    return status == SHMC_OK ? lower_top(&context, top) : status;
}
