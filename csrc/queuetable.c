/*
 * queuetable.c - which slot a key has: look-up, claiming, retiring.
 *
 * The index is a table of buckets. A key may stand in two of them, by its hash, and nowhere else:
 * who looks reads both, and follows nothing that could lead astray. An entry names a slot and
 * that slot's life, so one that was left behind leads to nothing.
 *
 * A new key is claimed, written, put into the index, and only then are both buckets searched for
 * somebody who does the same. Of two claims of one key the other's is killed, or one's own
 * withdrawn; whoever is still claimed after its search becomes known by an exchange.
 *
 * Invariants
 *   T1  an entry is {slot, life, tag} of a slot that was claimed in this life with a key of this
 *       bucket; it is taken out before the slot is free.
 *   T2  only the claimer writes the slot's key, before its entry is there. A claim can be killed
 *       (claimed -> dead, by an exchange) once its entry is there, or when its claimer's lock was
 *       taken: nobody then writes to it any more.
 *   T3  a key is known in at most one slot (Q7): each of two that became known had its entry there
 *       before its search, so one of them saw the other's, known (and withdrew) or claimed (and
 *       killed it, so that its last exchange failed).
 *
 * Ordering
 *   T4  own entry ▸ full fence ▸ search <-> the same of the other: one sees the other.
 *   T5  key, hash, life ▸ the exchange that writes the entry <-> acquire of the entry.
 *   T6  the word of a slot is loaded before its life and key are compared, and is what is
 *       exchanged (Q6).
 *
 * Progress: two that kill each other begin anew; the one in the lower slot kills, the other
 * withdraws, and kills only if that did not help for long.
 */
#include <errno.h>
#include <fcntl.h>

#include "queue.h"

#define ENTRY_TAG_BITS 24u
#define ENTRY_LIFE_BITS 20u
#define LIFE_MASK ((UINT64_C(1) << ENTRY_LIFE_BITS) - 1)
#define TAG_MASK ((UINT64_C(1) << ENTRY_TAG_BITS) - 1)
#define POLITE 64u  /* times that a claim is withdrawn before it kills */
#define STEP 1024u  /* slots that get memory at a time */

uint64_t shmc_queue_hash(const struct shmc_queue *queue, const uint8_t *key, size_t length)
{
    return shmc_key_hash(queue->seed, key, length);
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t entry_of(struct shmc_place place, uint64_t hash)
{
    return (place.slot + 1) << (ENTRY_LIFE_BITS + ENTRY_TAG_BITS) |
           (place.life & LIFE_MASK) << ENTRY_TAG_BITS | (hash >> 40 & TAG_MASK);
}

static uint64_t entry_slot(uint64_t entry)
{
    return (entry >> (ENTRY_LIFE_BITS + ENTRY_TAG_BITS)) - 1; /* 0 becomes no slot at all */
}

/* One of the two buckets of a hash. */
static shmc_atomic *bucket(const struct shmc_queue *queue, uint64_t hash, unsigned which)
{
    const uint64_t first = hash & queue->bucket_mask;
    const uint64_t other = (hash >> 20) & queue->bucket_mask;
    const uint64_t second = other != first ? other : (first + 1) & queue->bucket_mask;

    return &queue->index[(which == 0 ? first : second) * SHMC_QUEUE_BUCKET];
}

static size_t key_length(const struct shmc_queue_slot *slot)
{
    const uint64_t length = shmc_load_racy(&slot->length);

    return length <= SHMC_QUEUE_KEY_MAX ? (size_t)length : 0;
}

static shmc_atomic *long_key(const struct shmc_queue *queue, uint64_t slot)
{
    return (shmc_atomic *)(void *)(queue->long_keys + slot * SHMC_QUEUE_KEY_MAX);
}

static const shmc_atomic *key_words(const struct shmc_queue *queue, uint64_t slot, size_t length)
{
    return length <= SHMC_QUEUE_SHORT ? queue->slots[slot].key : long_key(queue, slot);
}

static uint64_t key_word_of(const uint8_t *key, size_t length, size_t at)
{
    uint64_t word = 0;

    memcpy(&word, key + at, length - at < 8 ? length - at : 8);
    return word;
}

size_t shmc_key_copy(const struct shmc_queue *queue, uint64_t slot, uint8_t *to)
{
    const size_t length = key_length(&queue->slots[slot]);
    const shmc_atomic *words = key_words(queue, slot, length);

    for (size_t at = 0; at < length; at += 8) {
        const uint64_t word = shmc_load_racy(&words[at / 8]);
        memcpy(to + at, &word, length - at < 8 ? length - at : 8);
    }
    return length;
}

static bool same_key(const struct shmc_queue *queue, uint64_t slot, const uint8_t *key,
                     size_t length)
{
    if (key_length(&queue->slots[slot]) != length)
        return false;
    const shmc_atomic *words = key_words(queue, slot, length);
    uint64_t differs = 0;
    for (size_t at = 0; at < length; at += 8)
        differs |= shmc_load_racy(&words[at / 8]) ^ key_word_of(key, length, at);
    return differs == 0;
}

/* Whether an entry leads to this key, in a slot whose word (as *word) is in one of the states. */
static bool leads(const struct shmc_queue *queue, uint64_t entry, const uint8_t *key,
                  size_t length, uint64_t *word, struct shmc_place *place)
{
    const uint64_t slot = entry_slot(entry);

    if (slot >= queue->slot_count)
        return false;
    *word = shmc_load_acquire(&queue->slots[slot].word); /* T6 */
    const uint64_t life = shmc_load_acquire(&queue->slots[slot].life);
    if ((life & LIFE_MASK) != (entry >> ENTRY_TAG_BITS & LIFE_MASK) ||
        !same_key(queue, slot, key, length))
        return false;
    shmc_fence_acquire();
    place->slot = slot;
    place->life = life;
    return shmc_load_racy(&queue->slots[slot].life) == life;
}

enum shmc_status shmc_key_find(const struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, struct shmc_place *place)
{
    const uint64_t tag = hash >> 40 & TAG_MASK;

    for (unsigned which = 0; which < 2; which++) {
        const shmc_atomic *entries = bucket(queue, hash, which);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            const uint64_t entry = shmc_load_acquire(&entries[i]); /* T5 */
            uint64_t word;
            if (entry != 0 && (entry & TAG_MASK) == tag &&
                leads(queue, entry, key, length, &word, place) && (word & KEY_KNOWN) != 0)
                return SHMC_OK;
        }
    }
    return SHMC_NOT_FOUND;
}

static unsigned used_entries(const struct shmc_queue *queue, uint64_t hash, unsigned which)
{
    const shmc_atomic *entries = bucket(queue, hash, which);
    unsigned used = 0;

    for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++)
        used += shmc_load_racy(&entries[i]) != 0;
    return used;
}

/* In the emptier one of both buckets: so hardly one is ever full (a quarter of all entries is). */
static bool put_entry(const struct shmc_queue *queue, uint64_t entry, uint64_t hash)
{
    const unsigned first = used_entries(queue, hash, 1) < used_entries(queue, hash, 0);

    for (unsigned turn = 0; turn < 2; turn++) {
        shmc_atomic *entries = bucket(queue, hash, first ^ turn);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            if (shmc_load_racy(&entries[i]) == 0 && shmc_cas(&entries[i], 0, entry))
                return true;
        }
    }
    return false;
}

static void drop_entry(const struct shmc_queue *queue, uint64_t entry, uint64_t hash)
{
    for (unsigned which = 0; which < 2; which++) {
        shmc_atomic *entries = bucket(queue, hash, which);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            if (shmc_load_racy(&entries[i]) == entry)
                (void)shmc_cas(&entries[i], entry, 0);
        }
    }
}

void shmc_slot_free(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t hash = shmc_load_racy(&queue->slots[slot].hash);
    const struct shmc_place place = {slot, shmc_load_racy(&queue->slots[slot].life)};

    drop_entry(queue, entry_of(place, hash), hash); /* T1 */
    (void)shmc_cas(&queue->slots[slot].word, word,
                   shmc_key_word(KEY_FREE, 0, 0, KEY_VERSION(word) + 1));
}

/* ---- claiming -------------------------------------------------------------------------------- */

static enum shmc_status back(const struct shmc_queue *queue, uint64_t from, uint64_t size)
{
    int error;

    if (queue->lent)
        return SHMC_OK;
    do {
        error = posix_fallocate(queue->seat_fd, (off_t)from, (off_t)size);
    } while (error == EINTR);
    if (error == 0)
        return SHMC_OK;
    errno = error;
    return error == ENOSPC ? SHMC_NO_SPACE : SHMC_SYSTEM;
}

/* Memory for a slot before anybody writes there: a full file system is an error, not a signal. */
static enum shmc_status back_slot(struct shmc_queue *queue, uint64_t slot)
{
    const uint64_t backed = shmc_load_racy(&queue->backed);
    if (slot < backed)
        return SHMC_OK;
    const uint64_t first = slot / STEP * STEP;
    const uint64_t end = first + STEP < queue->slot_count ? first + STEP : queue->slot_count;
    const enum shmc_status status =
        back(queue, queue->slots_offset + first * sizeof(struct shmc_queue_slot),
             (end - first) * sizeof(struct shmc_queue_slot));
    if (status == SHMC_OK && first <= backed)
        shmc_store_racy(&queue->backed, end);
    return status;
}

enum shmc_status shmc_queue_back_lane(struct shmc_queue *queue, unsigned lane)
{
    const uint64_t size = queue->slot_count * sizeof(shmc_atomic);

    if ((shmc_load_racy(&queue->rings_backed) >> lane & 1u) != 0)
        return SHMC_OK;
    const enum shmc_status status = back(queue, queue->rings_offset + lane * size, size);
    if (status == SHMC_OK)
        shmc_store_racy(&queue->rings_backed, shmc_load_racy(&queue->rings_backed) | 1u << lane);
    return status;
}

static bool claim_from(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    return shmc_cas(&queue->slots[slot].word, word,
                    shmc_key_word(KEY_CLAIMED, 0, queue->owner, KEY_VERSION(word) + 1));
}

bool shmc_key_delayed(const struct shmc_queue *queue, struct shmc_place place)
{
    const uint64_t delay = shmc_load_acquire(&shmc_slot_of(queue, place)->delay);

    return delay != 0 && (delay & DUE_LIFE) == (place.life & DUE_LIFE);
}

/* Q8 */
static bool retire(struct shmc_queue *queue, uint64_t slot)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    const uint64_t word = shmc_load_acquire(&at->word);
    const struct shmc_place place = {slot, shmc_load_acquire(&at->life)};
    const uint64_t requeues = shmc_load_acquire(&at->requeues);

    if (KEY_STATE(word) == KEY_FREE)
        return claim_from(queue, slot, word);
    if (KEY_STATE(word) != KEY_KNOWN ||
        ((uint32_t)requeues == (uint32_t)place.life && requeues >> 32 != 0) ||
        shmc_key_delayed(queue, place))
        return false;
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);
    if (!shmc_cas(&at->word, word, dead))
        return false;
    const uint64_t hash = shmc_load_racy(&at->hash);
    drop_entry(queue, entry_of(place, hash), hash); /* T1 */
    return claim_from(queue, slot, dead);
}

/* A slot that is ours: one that was never used, else the next that nobody needs. */
static enum shmc_status claim(struct shmc_queue *queue, uint64_t *slot)
{
    shmc_atomic *fresh = &queue->header->fresh;

    for (uint64_t at = shmc_load_racy(fresh); at < queue->slot_count; at = shmc_load_racy(fresh)) {
        const enum shmc_status status = back_slot(queue, at);
        if (status != SHMC_OK)
            return status;
        if (!shmc_cas(fresh, at, at + 1))
            continue;
        const uint64_t word = shmc_load_racy(&queue->slots[at].word);
        if (KEY_STATE(word) == KEY_FREE && claim_from(queue, at, word)) {
            *slot = at;
            return SHMC_OK;
        }
    }
    for (uint64_t tried = 0; tried < queue->slot_count; tried++) {
        const uint64_t at = shmc_fetch_add(&queue->header->hand, 1) & (queue->slot_count - 1);
        if (retire(queue, at)) {
            *slot = at;
            return SHMC_OK;
        }
    }
    return SHMC_FULL;
}

static enum shmc_status write_key(struct shmc_queue *queue, uint64_t slot, const uint8_t *key,
                                  size_t length, uint64_t hash, struct shmc_place *place)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    shmc_atomic *words = at->key;

    if (length > SHMC_QUEUE_SHORT) {
        const enum shmc_status status =
            back(queue, queue->long_offset + slot * SHMC_QUEUE_KEY_MAX, SHMC_QUEUE_KEY_MAX);
        if (status != SHMC_OK)
            return status;
        words = long_key(queue, slot);
    }
    place->slot = slot;
    place->life = shmc_load_racy(&at->life) + 1;
    shmc_store_release(&at->life, place->life); /* Q6: before the first byte of another key */
    shmc_fence_release();
    shmc_store_racy(&at->delay, 0);
    shmc_store_racy(&at->requeues, 0);
    shmc_store_racy(&at->ticket, 0);
    shmc_store_racy(&at->deadline, 0);
    shmc_store_racy(&at->hash, hash);
    shmc_store_racy(&at->length, length);
    for (size_t i = 0; i < length; i += 8)
        shmc_store_racy(&words[i / 8], key_word_of(key, length, i));
    return SHMC_OK;
}

/* Our claim is given up: by us, or by somebody who killed it, and then it is his to free. */
static void withdraw(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);

    if (shmc_cas(&queue->slots[slot].word, word, dead))
        shmc_slot_free(queue, slot, dead);
}

enum rivals { NONE, BETTER, KILLED };

/* T3: what another entry of our key means for us. */
static enum rivals meet(struct shmc_queue *queue, struct shmc_place mine, struct shmc_place other,
                        uint64_t word, bool polite)
{
    if (other.slot == mine.slot)
        return NONE;
    if ((word & KEY_KNOWN) != 0)
        return BETTER;
    if (KEY_STATE(word) != KEY_CLAIMED)
        return NONE; /* dead, and on its way out */
    if (polite && other.slot < mine.slot)
        return BETTER;
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);
    if (!shmc_cas(&queue->slots[other.slot].word, word, dead))
        return BETTER; /* it became known, or went: begin anew */
    shmc_slot_free(queue, other.slot, dead);
    return KILLED;
}

static bool has_rival(struct shmc_queue *queue, struct shmc_place mine, const uint8_t *key,
                      size_t length, uint64_t hash, bool polite)
{
    const uint64_t tag = hash >> 40 & TAG_MASK;

    for (unsigned which = 0; which < 2; which++) {
        const shmc_atomic *entries = bucket(queue, hash, which);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            const uint64_t entry = shmc_load_acquire(&entries[i]);
            uint64_t word;
            struct shmc_place other;
            if (entry != 0 && (entry & TAG_MASK) == tag &&
                leads(queue, entry, key, length, &word, &other) &&
                meet(queue, mine, other, word, polite) == BETTER)
                return true;
        }
    }
    return false;
}

/* One try. BUSY: somebody else has the key, or is about to. */
static enum shmc_status insert(struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, uint64_t published, bool polite,
                               struct shmc_place *place)
{
    uint64_t slot = 0;
    enum shmc_status status = claim(queue, &slot);

    if (status != SHMC_OK)
        return status;
    const uint64_t word = shmc_load_racy(&queue->slots[slot].word); /* ours: it can only be killed */
    status = write_key(queue, slot, key, length, hash, place);
    if (status == SHMC_OK && !put_entry(queue, entry_of(*place, hash), hash))
        status = SHMC_FULL;
    if (status != SHMC_OK) {
        withdraw(queue, slot, word);
        return status;
    }
    shmc_fence_full(); /* T4 */
    if (SHMC_KEEP_NO_RIVAL_CHECK && has_rival(queue, *place, key, length, hash, polite)) {
        withdraw(queue, slot, word);
        return SHMC_BUSY;
    }
    const uint64_t known = published | (KEY_VERSION(word) + 1) << 32;
    return shmc_cas(&queue->slots[slot].word, word, known) ? SHMC_OK : SHMC_BUSY; /* Q11 */
}

enum shmc_status shmc_key_make(struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, unsigned state, unsigned lane,
                               struct shmc_place *place, bool *made)
{
    const uint64_t published = shmc_key_word(KEY_KNOWN | state, lane, 0, 0);

    *made = false;
    for (unsigned attempt = 0;; attempt++) {
        if (shmc_key_find(queue, key, length, hash, place) == SHMC_OK)
            return SHMC_OK;
        const enum shmc_status status =
            insert(queue, key, length, hash, published, attempt < POLITE, place);
        *made = status == SHMC_OK;
        if (status != SHMC_BUSY)
            return status;
    }
}

/* ---- after damage ------------------------------------------------------------------------------ */

/* Takes out what leads nowhere. */
void shmc_index_clean(struct shmc_queue *queue)
{
    for (uint64_t i = 0; i < (queue->bucket_mask + 1) * SHMC_QUEUE_BUCKET; i++) {
        const uint64_t entry = shmc_load_acquire(&queue->index[i]);
        if (entry == 0)
            continue;
        const uint64_t slot = entry_slot(entry);
        bool good = slot < queue->slot_count;
        if (good) {
            const uint64_t hash = shmc_load_racy(&queue->slots[slot].hash);
            const struct shmc_place place = {slot, shmc_load_acquire(&queue->slots[slot].life)};
            const uint64_t at = i / SHMC_QUEUE_BUCKET * SHMC_QUEUE_BUCKET;
            good = entry == entry_of(place, hash) && (bucket(queue, hash, 0) == &queue->index[at] ||
                                                      bucket(queue, hash, 1) == &queue->index[at]);
        }
        if (!good)
            (void)shmc_cas(&queue->index[i], entry, 0);
    }
}

bool shmc_key_reindex(struct shmc_queue *queue, uint64_t slot)
{
    uint8_t key[SHMC_QUEUE_KEY_MAX];
    struct shmc_place found, place = {slot, shmc_load_acquire(&queue->slots[slot].life)};
    const size_t length = shmc_key_copy(queue, slot, key);
    const uint64_t hash = shmc_queue_hash(queue, key, length);

    if (length == 0 || hash != shmc_load_racy(&queue->slots[slot].hash))
        return false; /* nobody knows any more what key it was */
    if (shmc_key_find(queue, key, length, hash, &found) == SHMC_OK)
        return found.slot == slot;
    const uint64_t entry = entry_of(place, hash);
    if (!put_entry(queue, entry, hash))
        return false;
    shmc_fence_full(); /* T4 */
    return !has_rival(queue, place, key, length, hash, false);
}
