/*
 * queuetable.c - which slot a key has: look-up, claiming, retiring.
 *
 * The index is a table of buckets, in levels: those of the first slots, and for each further level
 * four times as many. A key may stand in two buckets of each level, by its hash, and nowhere else:
 * a search reads them all, and follows nothing that could lead astray. An entry is in the level of
 * its slot; it names the slot and that slot's life, so one that was left over leads to nothing.
 *
 * A new key is claimed, written, put into the index, and only then are both buckets searched for
 * another claim of it. Of two claims of one key a worker kills the other's, or withdraws its
 * own; a slot that is still claimed after its search becomes known by an exchange.
 *
 * Invariants
 *   QTABLE1  an entry is {slot, life, tag} of a slot that was claimed in this life with a key of
 *       this bucket; it is taken out before the slot is free.
 *   QTABLE2  only the claimer writes the slot's key, before its entry is there. A claim can be
 *       killed (claimed -> dead, by an exchange) once its entry is there, or when its claimer's
 *       lock was taken: nobody then writes to it any more.
 *   QTABLE3  a key is known in at most one slot (QUEUE7): each of two that became known had its
 *       entry there before its search, so one of them saw the other's, known (and withdrew) or
 *       claimed (and killed it, so that its last exchange failed).
 *   QTABLE7  a level has entries for twice its slots, and the hash is mixed twice: with one
 *       multiplication, keys that differ in two bytes share the bits of their buckets for some
 *       seeds, and then two buckets run full while the queue is not.
 *
 * Ordering
 *   QTABLE4  own entry ▸ full fence ▸ search <-> the same of the other: one sees the other. The count
 *       of levels rises before a level has an entry, and is loaded by each search.
 *   QTABLE5  key, hash, life ▸ the exchange that writes the entry <-> acquire of the entry.
 *   QTABLE6  the word of a slot is loaded before its life and key are compared, and is what is
 *       exchanged (QUEUE6).
 *
 * Progress: two that kill each other begin again; the one in the lower slot kills, the other
 * withdraws, and kills only if that did not help for long.
 */
#include "queue/queue.h"

#define ENTRY_TAG_BITS 21u
#define ENTRY_LIFE_BITS 20u
#define LIFE_MASK ((UINT64_C(1) << ENTRY_LIFE_BITS) - 1)
#define TAG_MASK ((UINT64_C(1) << ENTRY_TAG_BITS) - 1)
#define POLITE 64u    /* times that a claim is withdrawn before it kills */
#define IDLE_TRIES 8u /* slots to try before a queue that is not small takes memory */
#define FULL_PAUSE 4u /* a search that found nothing is worth a pause of so many times as long */

uint64_t shmc_queue_hash(const struct shmc_queue *queue, const uint8_t *key, size_t length)
{
    const uint64_t hash = shmc_key_hash(queue->seed, key, length);

    return shmc_mix(hash ^ UINT64_C(0xa0761d6478bd642f), UINT64_C(0xe7037ed1a0b428db)); /* QTABLE7 */
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t entry_of(struct shmc_keyref ref, uint64_t hash)
{
    return (ref.slot + 1) << (ENTRY_LIFE_BITS + ENTRY_TAG_BITS) |
           (ref.life & LIFE_MASK) << ENTRY_TAG_BITS | (hash >> 40 & TAG_MASK);
}

static uint64_t entry_slot(uint64_t entry)
{
    return (entry >> (ENTRY_LIFE_BITS + ENTRY_TAG_BITS)) - 1; /* 0 becomes no slot at all */
}

unsigned shmc_level_of(const struct shmc_queue *queue, uint64_t slot)
{
    if (slot >> queue->base_bits == 0)
        return 0;
    return (63u - (unsigned)__builtin_clzll(slot) - queue->base_bits) / 2 + 1;
}

/* Levels that may have entries; at least those that were seen before the header was spoilt. */
static unsigned levels_of(const struct shmc_queue *queue)
{
    const uint64_t found = shmc_load_acquire(&queue->header->levels); /* QTABLE4 */
    const uint64_t seen = shmc_load_racy(&queue->levels_seen);
    const uint64_t levels = found > seen ? found : seen;

    return levels < queue->level_count ? (unsigned)levels : queue->level_count;
}

/* One of the two buckets of a hash in a level. */
static shmc_atomic *bucket(const struct shmc_queue *queue, unsigned level, uint64_t hash,
                           unsigned which)
{
    const uint64_t mask = queue->levels[level].mask;
    const uint64_t first = hash & mask, other = (hash >> 20) & mask;
    const uint64_t second = other != first ? other : (first + 1) & mask;

    return &queue->levels[level].entries[(which == 0 ? first : second) * SHMC_QUEUE_BUCKET];
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
                  size_t length, uint64_t *word, struct shmc_keyref *ref)
{
    const uint64_t slot = entry_slot(entry);

    if (!shmc_slot_there(queue, slot))
        return false;
    *word = shmc_load_acquire(&queue->slots[slot].word); /* QTABLE6 */
    const uint64_t life = shmc_load_acquire(&queue->slots[slot].life);
    if ((life & LIFE_MASK) != (entry >> ENTRY_TAG_BITS & LIFE_MASK) ||
        !same_key(queue, slot, key, length))
        return false;
    shmc_fence_acquire();
    ref->slot = slot;
    ref->life = life;
    return shmc_load_racy(&queue->slots[slot].life) == life;
}

static bool find_in(const struct shmc_queue *queue, const shmc_atomic *entries, const uint8_t *key,
                    size_t length, uint64_t hash, struct shmc_keyref *ref)
{
    const uint64_t tag = hash >> 40 & TAG_MASK;

    for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
        const uint64_t entry = shmc_load_acquire(&entries[i]); /* QTABLE5 */
        uint64_t word;
        if (entry != 0 && (entry & TAG_MASK) == tag &&
            leads(queue, entry, key, length, &word, ref) && (word & KEY_KNOWN) != 0)
            return true;
    }
    return false;
}

enum shmc_status shmc_key_find(const struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, struct shmc_keyref *ref)
{
    for (unsigned level = levels_of(queue); level-- > 0;) {
        for (unsigned which = 0; which < 2; which++) {
            if (find_in(queue, bucket(queue, level, hash, which), key, length, hash, ref))
                return SHMC_OK;
        }
    }
    return SHMC_NOT_FOUND;
}

static unsigned used_entries(const shmc_atomic *entries)
{
    unsigned used = 0;

    for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++)
        used += shmc_load_racy(&entries[i]) != 0;
    return used;
}

/* In the emptier one of both buckets: so none is ever full (half of all entries are). */
static bool put_entry(const struct shmc_queue *queue, struct shmc_keyref ref, uint64_t hash)
{
    const unsigned level = shmc_level_of(queue, ref.slot);
    const uint64_t entry = entry_of(ref, hash);
    const unsigned first = used_entries(bucket(queue, level, hash, 1)) <
                           used_entries(bucket(queue, level, hash, 0));

    for (unsigned turn = 0; turn < 2; turn++) {
        shmc_atomic *entries = bucket(queue, level, hash, first ^ turn);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            if (shmc_load_racy(&entries[i]) == 0 && shmc_cas(&entries[i], 0, entry))
                return true;
        }
    }
    return false;
}

static void drop_entry(const struct shmc_queue *queue, struct shmc_keyref ref, uint64_t hash)
{
    const unsigned level = shmc_level_of(queue, ref.slot);
    const uint64_t entry = entry_of(ref, hash);

    for (unsigned which = 0; which < 2; which++) {
        shmc_atomic *entries = bucket(queue, level, hash, which);
        for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
            if (shmc_load_racy(&entries[i]) == entry)
                (void)shmc_cas(&entries[i], entry, 0);
        }
    }
}

void shmc_slot_free(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t hash = shmc_load_racy(&queue->slots[slot].hash);
    const struct shmc_keyref ref = {slot, shmc_load_racy(&queue->slots[slot].life)};

    drop_entry(queue, ref, hash); /* QTABLE1 */
    (void)shmc_cas(&queue->slots[slot].word, word,
                   shmc_key_word(KEY_FREE, 0, 0, KEY_VERSION(word) + 1));
}

/* ---- claiming -------------------------------------------------------------------------------- */

/* STEP5: a claimed slot that is ours. */
static bool claim_from(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t claimed = shmc_key_word(KEY_CLAIMED, 0, queue->owner, KEY_VERSION(word) + 1);
    shmc_atomic *at = &queue->slots[slot].word;

    if (!shmc_cas(at, word, claimed))
        return false;
    if (SHMC_CHECKED(NO_STEP_CHECK, shmc_slot_there(queue, slot)) &&
        SHMC_CHECKED(NO_STEP_CHECK, shmc_load_acquire(at) == claimed))
        return true;
    (void)shmc_cas(at, claimed, word); /* a hole: the worker that fills it stores over this */
    return false;
}

bool shmc_key_delayed(const struct shmc_queue *queue, struct shmc_keyref ref)
{
    const uint64_t delay = shmc_load_acquire(&shmc_slot_of(queue, ref)->delay);

    return delay != 0 && (delay & DUE_LIFE) == (ref.life & DUE_LIFE);
}

/* QUEUE8: whether nobody needs it, with this word. */
static bool is_idle(const struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const struct shmc_keyref ref = {slot, shmc_load_acquire(&queue->slots[slot].life)};
    const uint64_t requeues = shmc_load_acquire(&queue->slots[slot].requeues);

    if (KEY_STATE(word) == KEY_FREE)
        return true;
    return KEY_STATE(word) == KEY_KNOWN &&
           ((uint32_t)requeues != (uint32_t)ref.life || requeues >> 32 == 0) &&
           !shmc_key_delayed(queue, ref);
}

bool shmc_slot_idle(const struct shmc_queue *queue, uint64_t slot)
{
    return is_idle(queue, slot, shmc_load_acquire(&queue->slots[slot].word));
}

bool shmc_slot_retire(struct shmc_queue *queue, uint64_t slot)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    const uint64_t word = shmc_load_acquire(&at->word);

    if (!is_idle(queue, slot, word)) /* QUEUE8: after the word was loaded */
        return false;
    if (KEY_STATE(word) == KEY_FREE)
        return claim_from(queue, slot, word);
    const struct shmc_keyref ref = {slot, shmc_load_acquire(&at->life)};
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);
    if (!shmc_cas(&at->word, word, dead))
        return false;
    drop_entry(queue, ref, shmc_load_racy(&at->hash)); /* QTABLE1 */
    return claim_from(queue, slot, dead);
}

/* The next unused slot of the step that was opened last; false: it has no more. */
static bool claim_fresh(struct shmc_queue *queue, uint64_t *slot)
{
    shmc_atomic *fresh = &queue->header->fresh;

    for (unsigned tried = 0; tried < SHMC_QUEUE_STEP; tried++) {
        const uint64_t at = shmc_load_racy(fresh);
        if (at % SHMC_QUEUE_STEP == 0 || !shmc_slot_there(queue, at))
            return false;
        if (!shmc_cas(fresh, at, at + 1))
            continue;
        const uint64_t word = shmc_load_racy(&queue->slots[at].word);
        if (KEY_STATE(word) == KEY_FREE && claim_from(queue, at, word)) {
            *slot = at;
            return true;
        }
    }
    return false;
}

/* The next slot that nobody needs, of so many. */
static bool claim_idle(struct shmc_queue *queue, uint64_t tries, uint64_t *slot)
{
    shmc_atomic *hand = &queue->header->hand;
    const uint64_t end = shmc_slots_end(queue);

    for (; tries > 0 && end > 0; tries--) {
        const uint64_t turn = shmc_fetch_add(hand, 1), at = turn % end;
        if (!shmc_slot_there(queue, at)) { /* on to the next step */
            (void)shmc_cas(hand, turn + 1, turn - at % SHMC_QUEUE_STEP + SHMC_QUEUE_STEP);
        } else if (shmc_slot_retire(queue, at)) {
            *slot = at;
            return true;
        }
    }
    return false;
}

static enum shmc_status claim_new(struct shmc_queue *queue, uint64_t *slot)
{
    shmc_atomic *fresh = &queue->header->fresh;
    const enum shmc_status status = shmc_step_open(queue, slot);

    if (status != SHMC_OK)
        return status;
    const uint64_t at = shmc_load_racy(fresh);
    if (at % SHMC_QUEUE_STEP == 0 || !shmc_slot_there(queue, at)) /* else another one has more */
        (void)shmc_cas(fresh, at, *slot + 1);
    return claim_from(queue, *slot, shmc_load_racy(&queue->slots[*slot].word)) ? SHMC_OK
                                                                                : SHMC_BUSY;
}

/* Tries every slot. If all are needed, the next search is not worth its time at once. */
static bool claim_any(struct shmc_queue *queue, uint64_t *slot)
{
    const uint64_t began_ns = shmc_monotonic_ns();

    if (began_ns < shmc_load_racy(&queue->full_ns))
        return false;
    if (claim_idle(queue, shmc_slots_end(queue), slot))
        return true;
    const uint64_t now_ns = shmc_monotonic_ns();
    shmc_store_racy(&queue->full_ns, now_ns + FULL_PAUSE * (now_ns - began_ns));
    return false;
}

/* A slot that is ours. Of a small queue all slots are used before an idle key loses its own. */
static enum shmc_status claim(struct shmc_queue *queue, uint64_t *slot)
{
    if (claim_fresh(queue, slot))
        return SHMC_OK;
    if (shmc_load_racy(&queue->header->gone) * SHMC_QUEUE_STEP >= queue->keep &&
        claim_idle(queue, IDLE_TRIES, slot))
        return SHMC_OK;
    const enum shmc_status status = claim_new(queue, slot);
    if (status == SHMC_OK || status == SHMC_BUSY)
        return status;
    return claim_any(queue, slot) ? SHMC_OK : status;
}

static enum shmc_status write_key(struct shmc_queue *queue, uint64_t slot, const uint8_t *key,
                                  size_t length, uint64_t hash, struct shmc_keyref *ref)
{
    struct shmc_queue_slot *at = &queue->slots[slot];
    shmc_atomic *words = at->key;

    if (length > SHMC_QUEUE_SHORT) {
        const enum shmc_status status =
            shmc_queue_back(queue, queue->long_offset + slot * SHMC_QUEUE_KEY_MAX,
                            SHMC_QUEUE_KEY_MAX);
        if (status != SHMC_OK)
            return status;
        words = long_key(queue, slot);
    }
    ref->slot = slot;
    ref->life = shmc_load_racy(&at->life) + 1;
    shmc_store_release(&at->life, ref->life); /* QUEUE6: before the first byte of another key */
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

/* Our claim is given up: by us, or by the worker that killed it, and then that one frees it. */
static void withdraw(struct shmc_queue *queue, uint64_t slot, uint64_t word)
{
    const uint64_t dead = shmc_key_word(KEY_DEAD, 0, queue->owner, KEY_VERSION(word) + 1);

    if (shmc_cas(&queue->slots[slot].word, word, dead))
        shmc_slot_free(queue, slot, dead);
}

enum rivals { NONE, BETTER, KILLED };

/* QTABLE3: what another entry of our key means for us. */
static enum rivals meet(struct shmc_queue *queue, struct shmc_keyref mine, struct shmc_keyref other,
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
        return BETTER; /* it became known, or went: begin again */
    shmc_slot_free(queue, other.slot, dead);
    return KILLED;
}

struct sought {
    const uint8_t *key;
    size_t length;
    uint64_t hash;
};

static bool rival_in(struct shmc_queue *queue, const shmc_atomic *entries, struct shmc_keyref mine,
                     const struct sought *what, bool polite)
{
    const uint64_t tag = what->hash >> 40 & TAG_MASK;

    for (unsigned i = 0; i < SHMC_QUEUE_BUCKET; i++) {
        const uint64_t entry = shmc_load_acquire(&entries[i]);
        uint64_t word;
        struct shmc_keyref other;
        if (entry != 0 && (entry & TAG_MASK) == tag &&
            leads(queue, entry, what->key, what->length, &word, &other) &&
            meet(queue, mine, other, word, polite) == BETTER)
            return true;
    }
    return false;
}

static bool has_rival(struct shmc_queue *queue, struct shmc_keyref mine, const uint8_t *key,
                      size_t length, uint64_t hash, bool polite)
{
    const struct sought what = {key, length, hash};

    for (unsigned level = levels_of(queue); level-- > 0;) {
        for (unsigned which = 0; which < 2; which++) {
            if (rival_in(queue, bucket(queue, level, hash, which), mine, &what, polite))
                return true;
        }
    }
    return false;
}

/* One try. BUSY: somebody else has the key, or is about to. */
static enum shmc_status insert(struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, uint64_t published, bool polite,
                               struct shmc_keyref *ref)
{
    uint64_t slot = 0;
    enum shmc_status status = claim(queue, &slot);

    if (status != SHMC_OK)
        return status;
    const uint64_t word = shmc_load_racy(&queue->slots[slot].word); /* ours: it can only be killed */
    status = write_key(queue, slot, key, length, hash, ref);
    if (status == SHMC_OK && !put_entry(queue, *ref, hash))
        status = SHMC_FULL; /* not by chance (QTABLE7) */
    if (status != SHMC_OK) {
        withdraw(queue, slot, word);
        return status;
    }
    shmc_fence_full(); /* QTABLE4 */
    if (SHMC_KEEP_NO_RIVAL_CHECK && has_rival(queue, *ref, key, length, hash, polite)) {
        withdraw(queue, slot, word);
        return SHMC_BUSY;
    }
    const uint64_t known = published | (KEY_VERSION(word) + 1) << 32;
    return shmc_cas(&queue->slots[slot].word, word, known) ? SHMC_OK : SHMC_BUSY; /* QUEUE11 */
}

enum shmc_status shmc_key_make(struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, unsigned state, unsigned lane,
                               struct shmc_keyref *ref, bool *made)
{
    const uint64_t published = shmc_key_word(KEY_KNOWN | state, lane, 0, 0);

    *made = false;
    for (unsigned attempt = 0;; attempt++) {
        if (shmc_key_find(queue, key, length, hash, ref) == SHMC_OK)
            return SHMC_OK;
        const enum shmc_status status =
            insert(queue, key, length, hash, published, attempt < POLITE, ref);
        *made = status == SHMC_OK;
        if (status != SHMC_BUSY)
            return status;
    }
}

/* ---- after damage ------------------------------------------------------------------------------ */

/* Whether an entry is in a bucket of its key, in its level. */
static bool leads_home(const struct shmc_queue *queue, unsigned level, const shmc_atomic *at,
                       uint64_t entry)
{
    const uint64_t slot = entry_slot(entry);

    if (!shmc_slot_there(queue, slot) || shmc_level_of(queue, slot) != level)
        return false;
    const uint64_t hash = shmc_load_racy(&queue->slots[slot].hash);
    const struct shmc_keyref ref = {slot, shmc_load_acquire(&queue->slots[slot].life)};
    const uint64_t number = (uint64_t)(at - queue->levels[level].entries);
    const shmc_atomic *first = at - number % SHMC_QUEUE_BUCKET;
    return entry == entry_of(ref, hash) && (bucket(queue, level, hash, 0) == first ||
                                              bucket(queue, level, hash, 1) == first);
}

/* Takes out what leads nowhere. */
void shmc_index_clean(struct shmc_queue *queue)
{
    for (unsigned level = 0; level < levels_of(queue); level++) {
        shmc_atomic *entries = queue->levels[level].entries;
        for (uint64_t i = 0; i < (queue->levels[level].mask + 1) * SHMC_QUEUE_BUCKET; i++) {
            const uint64_t entry = shmc_load_acquire(&entries[i]);
            if (entry != 0 && !leads_home(queue, level, &entries[i], entry))
                (void)shmc_cas(&entries[i], entry, 0);
        }
    }
}

bool shmc_key_reindex(struct shmc_queue *queue, uint64_t slot)
{
    uint8_t key[SHMC_QUEUE_KEY_MAX];
    struct shmc_keyref found, ref = {slot, shmc_load_acquire(&queue->slots[slot].life)};
    const size_t length = shmc_key_copy(queue, slot, key);
    const uint64_t hash = shmc_queue_hash(queue, key, length);

    if (length == 0 || hash != shmc_load_racy(&queue->slots[slot].hash))
        return false; /* nobody knows any more what key it was */
    if (shmc_key_find(queue, key, length, hash, &found) == SHMC_OK)
        return found.slot == slot;
    if (!put_entry(queue, ref, hash))
        return false;
    shmc_fence_full(); /* QTABLE4 */
    return !has_rival(queue, ref, key, length, hash, false);
}
