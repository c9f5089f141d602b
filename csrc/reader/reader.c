/*
 * reader.c - the reading side of one process: pins, roots, and the records that a root leads to.
 *
 * A reader hangs a note "I am looking at generation g" on its seat, and then makes sure
 * that g was still the latest when the note hung there. From then on the writer keeps
 * everything that g reaches - or raises the floor past g, which every later validation notices.
 * The pin is a request, the floor is the truth (rule VALUE3).
 *
 * Invariants
 *   PINSLOT1  a pin slot of the seat is nonzero exactly while the private count of that slot
 *       is (except for a retry inside shmc_pin()).
 *   PINSLOT2  a user of generation g holds a slot with that generation, or an open one with
 *       an older one: an open slot also holds all younger ones. With more than 15 distinct
 *       generations the newest share the lowest's slot, which stays until all its users are gone.
 *   PINSLOT3  a slot whose generation was revoked protects nothing. When slots run out it is
 *       taken over; its serial changes, so that the late unpin of a former user does not
 *       affect the new ones. (A user that shared it for a newer generation reads on unprotected:
 *       the floor will show it, as always.)
 *   PINSLOT4  every loaded word is range-checked before use; a root that fails is CORRUPT. A
 *       checked word is not loaded again: the handle keeps a copy. file_size is the one word of
 *       the superblock that may be larger at each pin; then the size of the file itself is checked.
 *
 * Ordering (of shmc_pin, in this order)
 *   PIN1  g = latest               acquire <- the writer's release of latest: the root, its
 *                                blocks and file_size are visible
 *   PIN2  pin = g; if an older generation's slot is shared, it is opened
 *   PIN3  full fence               <-> the writer's full fence between publishing and
 *                                shmc_seats_pins(): it sees the pin, or we see its latest
 *   PIN4  latest == g again        else retry with the newer one
 *   PIN5  copy the root's slot     relaxed words
 *   PIN6  acquire fence, then latest < g + 7: the slot was not being rewritten (the writer
 *       fills slot g & 7 again only after its fence that follows publishing g + 7)
 *   PIN8  a quick pin moves: slot i > 0 = g (release), only then slot 0 changes; the scan loads
 *       slot 0 before slot i, each with acquire, and so meets g in one of them
 *   PIN7  unpin: release -> acquire fence in shmc_seats_pins(): our loads are done before
 *       the writer reuses anything
 *
 *   PIN9  span.size is raised by whichever thread pins, without a lock: an atomic maximum. A thread
 *       that reads by a root has the size of that root's pin, or a larger one.
 *
 * Progress: pinning retries only if a publication came in between. After fork
 * a child's copy of the lock may be held for ever: every entry tests the fork word first.
 */
#include "core.h"
#include "mutants.h"

#define PIN_ATTEMPTS 100000u
#define SERIAL_MASK 0xffffffu
#define QUICK 0u /* the slot of the quick pin; the others are counted */

/* ---- the superblock ---------------------------------------------------------------------- */

static const struct shmc_super *super_of(const struct shmc_segment *data)
{
    return (const struct shmc_super *)(const void *)data->base;
}

/* The words of the superblock that were checked, each loaded once (PINSLOT4). */
struct geometry {
    uint64_t ring_slots, arena_offset, max_size, file_size;
};

static uint64_t load(const uint64_t *word)
{
    return shmc_word_load((const uint8_t *)word);
}

static enum shmc_status check_super(const struct shmc_segment *data, struct geometry *checked)
{
    const struct shmc_super *super = super_of(data);
    const uint64_t build = (uint64_t)SHMC_LAYOUT_SIGNATURE << 32 | SHMC_LAYOUT_VERSION;

    if (data->file_size < sizeof *super || load(&super->magic) != SHMC_DATA_MAGIC)
        return SHMC_CORRUPT;
    if (shmc_word_load(data->base + offsetof(struct shmc_super, layout_version)) != build)
        return SHMC_VERSION;
    const uint64_t slots = load(&super->ring_slots), most = load(&super->max_size);
    if (slots < 2 || slots > SHMC_MAX_ARENA / 64 || (slots & (slots - 1)) != 0)
        return SHMC_CORRUPT;
    const uint64_t ring_end = SHMC_RING_OFFSET + slots * sizeof(struct shmc_slot);
    const uint64_t arena = (ring_end + SHMC_PAGE - 1) / SHMC_PAGE * SHMC_PAGE;
    const uint64_t file_size = shmc_load_acquire(&super->file_size); /* as in span_raise() */
    if (load(&super->arena_offset) != arena || most > SHMC_MAX_ARENA || file_size < arena ||
        file_size > most)
        return SHMC_CORRUPT;
    *checked = (struct geometry){slots, arena, most, file_size};
    return SHMC_OK;
}

enum shmc_status shmc_data_check_header(const struct shmc_segment *data, const uint8_t boot_id[16],
                                        uint64_t *instance)
{
    const struct shmc_super *super = super_of(data);
    struct geometry checked;
    const enum shmc_status status = check_super(data, &checked);

    if (status != SHMC_OK)
        return status;
    if (memcmp(super->boot_id, boot_id, sizeof super->boot_id) != 0)
        return SHMC_VERSION;
    if (data->max_size != checked.max_size)
        return SHMC_CORRUPT; /* mapped over another size than the writer's limit */
    if (shmc_segment_bytes(data) < checked.file_size) /* checked last: the file only grows */
        return SHMC_CORRUPT;
    *instance = super->instance;
    return SHMC_OK;
}

/* ---- a reader's life -------------------------------------------------------------------- */

static enum shmc_status take_seat(struct shmc_reader *reader, const struct shmc_segment *seats)
{
    enum shmc_status status = shmc_close_in_child(seats->fd); /* before there is a lock */

    if (status != SHMC_OK)
        return status;
    reader->seat_fd = seats->fd;
    status = shmc_guard(seats);
    if (status == SHMC_OK) {
        reader->guarded = *seats;
        status = shmc_seat_claim(reader, seats);
    }
    if (status != SHMC_OK) {
        shmc_unguard(&reader->guarded);
        shmc_keep_in_child(seats->fd);
    }
    return status;
}

static enum shmc_status reader_setup(struct shmc_reader *reader, const struct shmc_segment *data,
                                     const struct geometry *checked,
                                     const struct shmc_segment *seats)
{
    memset(reader, 0, sizeof *reader);
    reader->super = super_of(data);
    reader->data = data;
    reader->ring_slots = checked->ring_slots;
    reader->span.base = data->base;
    reader->span.first = checked->arena_offset;
    reader->seat_fd = -1;
    reader->fork_word = shmc_fork_word();
    pthread_mutex_init(&reader->lock, NULL); /* cannot fail: no attributes */
    return seats == NULL ? SHMC_OK : take_seat(reader, seats);
}

enum shmc_status shmc_reader_create(const struct shmc_segment *data, struct shmc_segment *seats,
                                    struct shmc_reader **reader)
{
    struct shmc_heap heap = {0};
    struct geometry checked;
    enum shmc_status status = check_super(data, &checked);

    if (status == SHMC_OK && data->max_size < checked.arena_offset)
        status = SHMC_INVALID; /* only the header was mapped */
    if (status != SHMC_OK)
        return status;
    struct shmc_reader *made = shmc_heap_resize(&heap, NULL, 0, sizeof *made);
    if (made == NULL)
        return SHMC_NO_MEMORY;
    status = reader_setup(made, data, &checked, seats);
    if (status == SHMC_OK)
        *reader = made;
    else
        shmc_heap_resize(&heap, made, sizeof *made, 0);
    return status;
}

void shmc_reader_destroy(struct shmc_reader *reader)
{
    struct shmc_heap heap = {.bytes = sizeof *reader};

    if (reader == NULL)
        return;
    /* In a child: the descriptor is closed, the seat its parent's, the lock in any state. */
    if (!shmc_reader_forked(reader)) {
        SHMC_UNLESS(NO_RELAY_END, shmc_relays_end(reader));
        if (reader->seat != NULL) {
            shmc_seat_leave(reader);
            shmc_keep_in_child(reader->seat_fd);
        }
        pthread_mutex_destroy(&reader->lock);
    }
    shmc_unguard(&reader->guarded);
    shmc_heap_resize(&heap, reader, sizeof *reader, 0);
}

int shmc_reader_seat(const struct shmc_reader *reader)
{
    return reader->seat == NULL ? -1 : (int)reader->seat_index;
}

uint64_t shmc_reader_latest(const struct shmc_reader *reader)
{
    return shmc_load_acquire(&reader->super->latest); /* PIN1 */
}

/* Distinct generations held in the seat. */
uint64_t shmc_reader_pins(const struct shmc_reader *reader)
{
    uint64_t count = 0;

    if (reader->seat == NULL || shmc_reader_forked(reader))
        return 0;
    for (unsigned i = 0; i < SHMC_PINS; i++)
        count += shmc_load_racy(&reader->seat->pins[i]) != 0;
    return count;
}

/* The counts may miss one of two simultaneous reports: they are for display. */
void shmc_reader_report(struct shmc_reader *reader, uint64_t cursor, uint64_t busy, uint64_t taken,
                        uint64_t lapped)
{
    struct shmc_seat *seat = reader->seat;

    if (seat == NULL || shmc_reader_forked(reader))
        return;
    shmc_store_racy(&seat->cursor, cursor);
    shmc_store_racy(&seat->busy, busy);
    if (taken != 0)
        shmc_store_racy(&seat->taken, shmc_load_racy(&seat->taken) + taken);
    if (lapped != 0)
        shmc_store_racy(&seat->lapped, shmc_load_racy(&seat->lapped) + lapped);
}

void shmc_reader_count_cut(struct shmc_reader *reader)
{
    struct shmc_seat *seat = reader->seat;

    if (seat != NULL && !shmc_reader_forked(reader))
        shmc_store_racy(&seat->cut, shmc_load_racy(&seat->cut) + 1);
}

void shmc_data_info(const struct shmc_segment *data, struct shmc_data_info *info)
{
    const struct shmc_super *super = super_of(data);
    uint64_t stats[sizeof info->stats / 8];

    static_assert(sizeof stats / 8 <= SHMC_STATS, "the superblock has room for what is counted");
    info->latest = shmc_load_acquire(&super->latest);
    const struct shmc_root *root = &super->roots[info->latest & (SHMC_ROOTS - 1)];
    info->instance = super->instance;
    info->max_size = super->max_size;
    info->ring_slots = super->ring_slots;
    info->incarnation = shmc_load_racy(&super->incarnation);
    info->heartbeat_ns = shmc_load_racy(&super->heartbeat_ns);
    info->writer_pid = shmc_load_racy(&super->writer_pid);
    info->closed = shmc_load_racy(&super->closed);
    info->over = shmc_load_racy(&super->over);
    info->memory = shmc_load_racy(&super->file_size) -
                   shmc_ring_hole(shmc_load_racy(&root->slots), super->ring_slots);
    info->floor = shmc_load_racy(&super->floor);
    info->head = shmc_load_racy(&root->head);
    info->tail = shmc_load_racy(&root->tail);
    info->high_water = shmc_load_racy(&root->high_water);
    for (size_t i = 0; i < sizeof stats / 8; i++)
        stats[i] = shmc_load_racy(&super->stats[i]);
    memcpy(&info->stats, stats, sizeof stats);
}

/* ---- pins ------------------------------------------------------------------------------- */

bool shmc_generation_kept(const struct shmc_super *super, uint64_t generation)
{
    shmc_fence_acquire(); /* KEPT1 of reclaim.c */
    for (unsigned i = 0; i < SHMC_KEPT; i++) {
        if (generation != 0 && shmc_load_racy(&super->kept[i]) == generation)
            return true;
    }
    return false;
}

/* Copies the private slot to the slot of the seat. */
static void tell(struct shmc_reader *reader, unsigned slot)
{
    const uint64_t open = reader->pins[slot].open ? SHMC_PIN_OPEN : 0;

    shmc_store_release(&reader->seat->pins[slot], reader->pins[slot].generation | open); /* PIN7 */
}

static void slot_free(struct shmc_reader *reader, unsigned slot)
{
    reader->pins[slot].generation = 0;
    reader->pins[slot].open = false;
    tell(reader, slot);
}

static unsigned find_slot(const struct shmc_reader *reader, uint64_t generation)
{
    for (unsigned i = QUICK + 1; i < SHMC_PINS; i++) {
        if (reader->pins[i].generation == generation)
            return i;
    }
    return SHMC_PINS;
}

/* PINSLOT3: frees the slots that no longer protect anything. */
static void take_over_revoked(struct shmc_reader *reader)
{
    for (unsigned i = QUICK + 1; i < SHMC_PINS; i++) {
        if (shmc_valid(reader->super, reader->pins[i].generation))
            continue;
        reader->pins[i].count = 0;
        reader->pins[i].serial = (reader->pins[i].serial + 1) & SERIAL_MASK;
        slot_free(reader, i);
    }
}

/* The slot that will protect `generation`: its own, a free one, or the lowest (PINSLOT2). */
static unsigned choose_slot(struct shmc_reader *reader, uint64_t generation)
{
    unsigned slot = find_slot(reader, generation);

    if (slot == SHMC_PINS)
        slot = find_slot(reader, 0);
    if (slot == SHMC_PINS) {
        take_over_revoked(reader);
        slot = find_slot(reader, 0);
    }
    if (slot != SHMC_PINS)
        return slot;
    slot = QUICK + 1;
    for (unsigned i = slot + 1; i < SHMC_PINS; i++) {
        if (reader->pins[i].generation < reader->pins[slot].generation)
            slot = i;
    }
    return slot;
}

/* PIN2 to PIN4 for a slot that is unused, or used otherwise; true at once for one that holds it. */
static bool hold(struct shmc_reader *reader, unsigned slot, uint64_t generation)
{
    if (reader->pins[slot].count == 0) {
        shmc_store_racy(&reader->seat->pins[slot], generation); /* PIN2 */
    } else if (reader->pins[slot].generation == generation || reader->pins[slot].open) {
        return true;
    } else {
        SHMC_UNLESS(NO_PIN_OPEN, reader->pins[slot].open = true);
        tell(reader, slot); /* PIN2 */
    }
    SHMC_UNLESS(NO_READER_FENCE, shmc_fence_full()); /* PIN3 */
    return shmc_load_acquire(&reader->super->latest) == generation; /* PIN4 */
}

/* PIN9, PINSLOT4. Whether DATA is as long as a root requires. */
static bool span_raise(struct shmc_reader *reader, uint64_t high_water)
{
    const uint64_t promised = shmc_load_acquire(&reader->super->file_size);
    const uint64_t most = reader->data->max_size;

    if (promised > shmc_span_size(&reader->span) && promised <= most &&
        shmc_segment_bytes(reader->data) >= promised) /* checked last: the file only grows */
        shmc_rise(&reader->span.size, promised);
    return high_water <= shmc_span_size(&reader->span);
}

/* PIN5 and PIN6. EMPTY: the writer overtook it, try again. */
static enum shmc_status copy_root(struct shmc_reader *reader, uint64_t generation,
                                  struct shmc_pinned *pinned)
{
    const struct shmc_super *super = reader->super;
    const struct shmc_root *root = &super->roots[generation & (SHMC_ROOTS - 1)];

    pinned->generation = shmc_load_racy(&root->generation);
    pinned->head = shmc_load_racy(&root->head);
    pinned->tail = shmc_load_racy(&root->tail);
    pinned->high_water = shmc_load_racy(&root->high_water);
    pinned->catalogue = shmc_load_racy(&root->catalogue);
    pinned->slots = shmc_load_racy(&root->slots);
    shmc_fence_acquire(); /* PIN6 */
    if (!SHMC_CHECKED(NO_ROOT_CHECK, shmc_load_racy(&super->latest) < generation + SHMC_ROOTS - 1))
        return SHMC_EMPTY;

    if (pinned->generation != generation || pinned->tail > pinned->head ||
        !shmc_slots_valid(pinned->slots, reader->ring_slots) ||
        pinned->head - pinned->tail > pinned->slots / 2 ||
        !span_raise(reader, pinned->high_water))
        return SHMC_CORRUPT; /* PINSLOT4 */
    return SHMC_OK;
}

/* ---- the quick pin -------------------------------------------------------------------------- */

bool shmc_quick_pin(struct shmc_reader *reader, uint64_t generation)
{
    if (reader->seat != NULL) {
        shmc_store_release(&reader->seat->pins[QUICK], generation); /* PIN2, PIN8 */
        SHMC_UNLESS(NO_READER_FENCE, shmc_fence_full());            /* PIN3 */
    }
    return shmc_load_acquire(&reader->super->latest) == generation; /* PIN4 */
}

void shmc_quick_unpin(struct shmc_reader *reader)
{
    if (reader->seat != NULL && !shmc_reader_forked(reader))
        shmc_store_release(&reader->seat->pins[QUICK], 0); /* PIN7 */
}

enum shmc_status shmc_quick_root(struct shmc_reader *reader, struct shmc_pinned *pinned)
{
    enum shmc_status status = SHMC_EMPTY;

    for (unsigned attempt = 0; attempt < PIN_ATTEMPTS && status == SHMC_EMPTY; attempt++) {
        const uint64_t generation = shmc_load_acquire(&reader->super->latest); /* PIN1 */
        if (generation == 0)
            break;
        if (shmc_quick_pin(reader, generation))
            status = copy_root(reader, generation, pinned);
    }
    pinned->slot = QUICK;
    if (status == SHMC_OK)
        return SHMC_OK;
    shmc_quick_unpin(reader);
    return SHMC_CORRUPT;
}

void shmc_quick_keep(struct shmc_reader *reader, struct shmc_pinned *pinned)
{
    pinned->slot = SHMC_PINS;
    if (reader->seat == NULL || shmc_reader_forked(reader))
        return;
    if (!shmc_valid(reader->super, pinned->generation))
        return; /* revoked: it would only drag down users that share its slot */
    pthread_mutex_lock(&reader->lock);
    const unsigned slot = choose_slot(reader, pinned->generation);
    if (reader->pins[slot].count++ == 0)
        reader->pins[slot].generation = pinned->generation;
    else if (reader->pins[slot].generation != pinned->generation)
        SHMC_UNLESS(NO_PIN_OPEN, reader->pins[slot].open = true);
    if (pinned->generation < reader->pins[slot].generation)
        reader->pins[slot].generation = pinned->generation; /* PINSLOT2: the lowest protects all */
    tell(reader, slot); /* PIN8 */
    pinned->slot = slot | reader->pins[slot].serial << 8;
    pthread_mutex_unlock(&reader->lock);
}

static enum shmc_status pin_locked(struct shmc_reader *reader, struct shmc_pinned *pinned)
{
    enum shmc_status status = SHMC_EMPTY;
    struct shmc_pinned copy = {.slot = SHMC_PINS};
    unsigned slot = SHMC_PINS;

    for (unsigned attempt = 0; attempt < PIN_ATTEMPTS && status == SHMC_EMPTY; attempt++) {
        const uint64_t generation = shmc_load_acquire(&reader->super->latest); /* PIN1 */
        if (generation == 0)
            break;
        if (reader->seat != NULL) {
            slot = choose_slot(reader, generation);
            if (!hold(reader, slot, generation))
                continue;
        }
        status = copy_root(reader, generation, &copy);
    }
    if (slot != SHMC_PINS && status != SHMC_OK && reader->pins[slot].count == 0)
        shmc_store_release(&reader->seat->pins[slot], 0); /* PIN7 */
    if (status != SHMC_OK)
        return SHMC_CORRUPT;
    if (slot != SHMC_PINS) {
        if (reader->pins[slot].count++ == 0)
            reader->pins[slot].generation = copy.generation;
        copy.slot = slot | reader->pins[slot].serial << 8;
    }
    *pinned = copy;
    return SHMC_OK;
}

enum shmc_status shmc_pin(struct shmc_reader *reader, struct shmc_pinned *pinned)
{
    if (shmc_reader_forked(reader))
        return SHMC_FORKED;
    pthread_mutex_lock(&reader->lock);
    const enum shmc_status status = pin_locked(reader, pinned);
    pthread_mutex_unlock(&reader->lock);
    return status;
}

void shmc_unpin(struct shmc_reader *reader, const struct shmc_pinned *pinned)
{
    const unsigned slot = pinned->slot & 0xffu;

    if (slot >= SHMC_PINS || shmc_reader_forked(reader))
        return;
    pthread_mutex_lock(&reader->lock);
    if (reader->pins[slot].serial == pinned->slot >> 8) { /* PINSLOT3 */
        assert(reader->pins[slot].count > 0);
        if (--reader->pins[slot].count == 0)
            slot_free(reader, slot);
    }
    pthread_mutex_unlock(&reader->lock);
}

/* ---- records ----------------------------------------------------------------------------- */

/* VALUE1; the caller has checked the range. */
static void load_words(const struct shmc_span *span, shmc_offset from, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = shmc_load_at(span, from + i * 8);
        memcpy((uint8_t *)to + i * 8, &word, sizeof word);
    }
}

enum shmc_status shmc_catalogue_count(const struct shmc_span *span, const struct shmc_pinned *at,
                                      uint64_t *count)
{
    uint64_t found = 0;

    if (at->catalogue != 0) {
        if (!shmc_in_span(span, at->catalogue, 8))
            return SHMC_CORRUPT;
        found = shmc_load_at(span, at->catalogue);
        if (found > SHMC_MAX_RESOURCES || !shmc_in_span(span, at->catalogue, 8 + found * 8))
            return SHMC_CORRUPT;
    }
    *count = found;
    return SHMC_OK;
}

enum shmc_status shmc_record_load(const struct shmc_span *span, const struct shmc_pinned *at,
                                  uint64_t id, struct shmc_record *record, shmc_offset *indices)
{
    struct shmc_record copy;
    uint64_t count = 0;
    const enum shmc_status status = shmc_catalogue_count(span, at, &count);

    if (status != SHMC_OK)
        return status;
    if (id >= count)
        return SHMC_NOT_FOUND;
    const shmc_offset block = shmc_load_at(span, at->catalogue + 8 + id * 8);
    if (!shmc_in_span(span, block, sizeof copy))
        return SHMC_CORRUPT;
    load_words(span, block, sizeof copy / 8, &copy);
    const uint64_t size = sizeof copy + copy.index_count * sizeof(struct shmc_record_index);
    if (copy.index_count > SHMC_MAX_INDICES || !shmc_in_span(span, block, size) ||
        (copy.primary != 0 && !shmc_in_span(span, copy.primary, sizeof(struct shmc_node_head))) ||
        !shmc_in_span(span, copy.contact, sizeof(struct shmc_contact)))
        return SHMC_CORRUPT;
    *record = copy;
    *indices = block + sizeof copy;
    return SHMC_OK;
}

enum shmc_status shmc_record_index_load(const struct shmc_span *span, shmc_offset indices,
                                        uint64_t index, struct shmc_record_index *loaded)
{
    struct shmc_record_index copy;

    if (index >= SHMC_MAX_INDICES)
        return SHMC_NOT_FOUND;
    const shmc_offset at = indices + index * sizeof copy;
    if (!shmc_in_span(span, at, sizeof copy))
        return SHMC_CORRUPT;
    load_words(span, at, sizeof copy / 8, &copy);
    if (copy.tree != 0 && !shmc_in_span(span, copy.tree, sizeof(struct shmc_node_head)))
        return SHMC_CORRUPT;
    *loaded = copy;
    return SHMC_OK;
}
