/*
 * queue.h - private prototypes of the work queue, and what a slot's words consist of.
 *
 *   queue.c       states of keys: add, get, done, give back; their invariants
 *   queuetable.c  which slot a key has: look-up, claiming, retiring
 *   queuesteps.c  memory of slots: got when keys come, given back when they have gone
 *   queuelane.c   tickets: in which order keys are handed out
 *   queuedue.c    keys for later: delays, rate limits
 *   queuewait.c   sleeping until there is a key, and being woken
 *   queuelinger.c promises to look again soon, so that nobody need be woken
 *   queuesweep.c  the keys of the dead, and what was lost or spoilt
 *   queueseat.c   the file, its seats, its feeder
 */
#ifndef SHMC_QUEUE_H
#define SHMC_QUEUE_H

#include "core.h"

/* ---- a slot's word ------------------------------------------------------------------------ */

#define KEY_KNOWN 1u /* the key may be found here */
#define KEY_DIRTY 2u /* it is to be worked on */
#define KEY_HELD 4u  /* somebody works on it; alone: the slot is claimed, its key being written */
#define KEY_DEAD 8u  /* alone: the slot is being taken out of the index */
#define KEY_FREE 0u
#define KEY_CLAIMED KEY_HELD
#define KEY_QUEUED (KEY_KNOWN | KEY_DIRTY)

#define KEY_STATE(word) ((unsigned)((word) & 15u))
#define KEY_LANE(word) ((unsigned)((word) >> 4 & 7u))
#define KEY_SEAT(word) ((word) >> 7 & 1023u)
#define KEY_INCARNATION(word) ((word) >> 17 & 0x7fffu)
#define KEY_VERSION(word) ((word) >> 32)
#define KEY_INCARNATIONS 0x7fffu

static inline uint64_t shmc_key_word(unsigned state, unsigned lane, uint64_t owner,
                                     uint64_t version)
{
    return version << 32 | owner | (uint64_t)lane << 4 | state;
}

/* ---- the word of a step (queuesteps.c) ---------------------------------------------------- */

#define STEP_GONE 0u  /* no memory, no keys; the whole word is 0 */
#define STEP_THERE 1u /* memory, and perhaps keys; the whole word is 1 */
#define STEP_OWNED 2u /* one worker gets its memory, or gives it back: | seat and incarnation */
#define STEP_STATE(word) ((unsigned)((word) & 127u))

/* ---- delays: time in ticks of 2^16 ns << 20 | lane << 17 | firing << 16 | turn << 12 | life -- */

#define DUE_TICK 16u
#define DUE_LIFE 0xfffu
#define DUE_TURN 0xf000u
#define DUE_FIRING 0x10000u
#define DUE_LANE(delay) ((unsigned)((delay) >> 17 & 7u))
#define DUE_TICKS(delay) ((delay) >> 20)
#define DUE_NEVER UINT64_MAX

/* ---- counters of a seat ---------------------------------------------------------------------- */

enum shmc_queue_count {
    COUNT_ADDS,     /* keys that became queued by an add */
    COUNT_REPEATS,  /* adds of what was queued already */
    COUNT_GETS,
    COUNT_DONES,
    COUNT_RETRIES,  /* add_after and add_rate_limited */
    COUNT_RETURNED, /* keys taken from the dead */
    COUNT_EXPIRED,  /* keys taken from workers that kept them too long */
    COUNT_LATE,     /* done() of a key that was taken away before */
    COUNT_FULL,     /* adds that found no room */
    COUNT_QUEUE_NS, /* between being queued and being handed out */
    COUNT_WORK_NS,  /* between being handed out and done */
    COUNT_POSTS,
    COUNT_REPAIRS
};

/* ---- the handle ---------------------------------------------------------------------------- */

struct shmc_queue_level {
    shmc_atomic *entries;
    uint64_t mask; /* of its buckets */
    uint64_t offset, size;
};

struct shmc_queue {
    struct shmc_queue_header *header;
    struct shmc_queue_seat *seats, *seat;
    struct shmc_queue_cursor *cursors;
    struct shmc_queue_step *steps;
    shmc_atomic *rings;
    struct shmc_queue_slot *slots;
    uint8_t *long_keys;
    struct shmc_queue_level levels[SHMC_QUEUE_LEVELS]; /* of the index */
    unsigned level_count, base_bits; /* slots of level 0, as a power of two */
    /* As the header had them when it was opened: from then on they are not read there. */
    uint64_t slot_count, seat_count, ring_count, seed, instance;
    uint64_t rings_offset, slots_offset, long_offset;
    uint64_t keep; /* slots that keep their memory, and their keys when these are idle */
    uint64_t owner;       /* seat and incarnation, as they stand in a word */
    uint64_t seat_index;
    uint64_t deadline_ns; /* how long a key may be kept; 0 = for ever */
    uint64_t base_ns, max_ns, token_ns, burst;
    shmc_atomic levels_seen;  /* of the index */
    shmc_atomic rings_backed; /* bits of lanes whose rings have memory */
    shmc_atomic full_ns;      /* until then a search for a free slot is not worth its time */
    int seat_fd, lock_fd; /* two descriptions: one holds our locks, one tries those of others */
    bool feeding;
    bool leaving;         /* its words are a dead worker's to others: it claims and owns nothing */
    const uint64_t *fork_word;
    uint64_t incarnation; /* of our seat, whole */
    struct shmc_segment file; /* guarded: each process that may write it may truncate it */
    bool lent;            /* memory of a test, all there from the start */
    shmc_atomic stopped;  /* this process takes no more keys */
    shmc_atomic heads[SHMC_QUEUE_LANES]; /* as they were seen last */
    /* How it went before (queuelinger.c); guesses, by any thread. */
    shmc_atomic waited_ns;
    shmc_atomic looked_ns, looked_heads, looked_gets;
    bool shares_time;     /* one CPU only: spinning keeps others from working */
    pthread_mutex_t lock; /* guards the fields below */
    unsigned sleepers;    /* threads in shmc_queue_wait() */
    bool keeping;         /* and that `keeper` is one of them (QWAIT4) */
    pthread_t keeper;
};

static inline bool shmc_queue_forked(const struct shmc_queue *queue)
{
    return queue->fork_word != NULL && *(const volatile uint64_t *)queue->fork_word == 0;
}

/* The header's word after a shutdown of this queue. Zeros and noise never mean one. */
static inline uint64_t shmc_queue_shut_word(const struct shmc_queue *queue, bool drain)
{
    const uint64_t shut = queue->instance ^ queue->seed ^ UINT64_C(0x73687574646f776e);

    return (shut & ~UINT64_C(3)) | 2u | drain;
}

static inline bool shmc_queue_shut(const struct shmc_queue *queue)
{
    const uint64_t word = shmc_load_acquire(&queue->header->shutdown);

    return word != 0 && (word | 1u) == shmc_queue_shut_word(queue, true);
}

static inline bool shmc_queue_draining(const struct shmc_queue *queue)
{
    return shmc_load_acquire(&queue->header->shutdown) == shmc_queue_shut_word(queue, true);
}

/* Whether a slot may be touched: its step has memory. */
static inline bool shmc_slot_there(const struct shmc_queue *queue, uint64_t slot)
{
    return slot < queue->slot_count &&
           shmc_load_acquire(&queue->steps[slot / SHMC_QUEUE_STEP].state) == STEP_THERE;
}

/* From here on no slot was ever used. */
static inline uint64_t shmc_slots_end(const struct shmc_queue *queue)
{
    const uint64_t steps = shmc_load_acquire(&queue->header->steps);

    return steps < queue->slot_count / SHMC_QUEUE_STEP ? steps * SHMC_QUEUE_STEP
                                                       : queue->slot_count;
}

/* This slot, or the first one after it that has memory; else `end`. */
static inline uint64_t shmc_slot_from(const struct shmc_queue *queue, uint64_t slot, uint64_t end)
{
    while (slot < end && slot % SHMC_QUEUE_STEP == 0 && !shmc_slot_there(queue, slot))
        slot += SHMC_QUEUE_STEP;
    return slot;
}

static inline void shmc_queue_count(const struct shmc_queue *queue, enum shmc_queue_count what,
                                    uint64_t more)
{
    shmc_atomic *counter = &queue->seat->counters[what];

    shmc_store_racy(counter, shmc_load_racy(counter) + more);
}

/* A key as it was found: what may be done to it ends when life changes. */
struct shmc_keyref {
    uint64_t slot, life;
};

static inline struct shmc_queue_slot *shmc_slot_of(const struct shmc_queue *queue,
                                                   struct shmc_keyref ref)
{
    return &queue->slots[ref.slot];
}

/* Whether a key's slot is still its own, asked after its word was loaded (QUEUE6). */
static inline bool shmc_same_life(const struct shmc_queue *queue, struct shmc_keyref ref,
                                  uint64_t word)
{
    return (word & KEY_KNOWN) != 0 &&
           shmc_load_acquire(&shmc_slot_of(queue, ref)->life) == ref.life;
}

/* ---- queue.c --------------------------------------------------------------------------------- */

/* The key is to be worked on. NOT_FOUND: the slot is another key's by now. */
enum shmc_status shmc_key_dirty(struct shmc_queue *queue, struct shmc_keyref ref, unsigned lane,
                                uint64_t now_ns);
/* The same for a delay that fires, which is over before anybody is given the key. */
enum shmc_status shmc_key_fired(struct shmc_queue *queue, struct shmc_keyref ref, unsigned lane,
                                uint64_t now_ns, uint64_t firing);
/* From held by `word`'s owner to queued. False: the word has changed. */
bool shmc_key_expired(const struct shmc_queue *queue, uint64_t slot, uint64_t word,
                      uint64_t now_ns);
bool shmc_key_give_back(struct shmc_queue *queue, uint64_t slot, uint64_t word, uint64_t now_ns);

/* ---- queuetable.c ---------------------------------------------------------------------------- */

uint64_t shmc_queue_hash(const struct shmc_queue *queue, const uint8_t *key, size_t length);
/* OK or NOT_FOUND. */
enum shmc_status shmc_key_find(const struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, struct shmc_keyref *ref);
/* As find; a missing key becomes known, in the given state (in addition to KNOWN). *made reports
 * whether it did. FULL, NO_SPACE, SYSTEM. */
enum shmc_status shmc_key_make(struct shmc_queue *queue, const uint8_t *key, size_t length,
                               uint64_t hash, unsigned state, unsigned lane,
                               struct shmc_keyref *ref, bool *made);
/* The key's bytes: at most KEY_MAX of them, into `to`. */
size_t shmc_key_copy(const struct shmc_queue *queue, uint64_t slot, uint8_t *to);
/* Out of the index and free: a slot whose word is DEAD and ours. */
void shmc_slot_free(struct shmc_queue *queue, uint64_t slot, uint64_t word);
/* Finds again what spoilt memory lost of a KNOWN slot: whether it is a key that is found. */
bool shmc_key_reindex(struct shmc_queue *queue, uint64_t slot);
void shmc_index_clean(struct shmc_queue *queue);
bool shmc_key_delayed(const struct shmc_queue *queue, struct shmc_keyref ref);
/* Whether nobody needs a slot: it is free, or its key is idle. */
bool shmc_slot_idle(const struct shmc_queue *queue, uint64_t slot);
/* The slot of nobody, or of an idle key, is claimed: it is ours. */
bool shmc_slot_retire(struct shmc_queue *queue, uint64_t slot);
unsigned shmc_level_of(const struct shmc_queue *queue, uint64_t slot);

/* ---- queuesteps.c ---------------------------------------------------------------------------- */

/* Memory for bytes of the file before anybody writes there. NO_SPACE, SYSTEM. */
enum shmc_status shmc_queue_back(const struct shmc_queue *queue, uint64_t from, uint64_t size);
/* Memory for a lane's ring. */
enum shmc_status shmc_queue_back_lane(struct shmc_queue *queue, unsigned lane);
/* A step more; its first slot. FULL, NO_SPACE, SYSTEM. */
enum shmc_status shmc_step_open(struct shmc_queue *queue, uint64_t *first);
/* Gives memory back, as far as `live` keys do not need it; whether there may be more of it. */
bool shmc_steps_shrink(struct shmc_queue *queue, uint64_t live, uint64_t there);
/* Gives back memory of the index, where nobody else has the queue (STEP7). */
void shmc_levels_shrink(struct shmc_queue *queue);
/* A scan's visit to a step that is not THERE. False: its word cannot be. */
bool shmc_step_visit(struct shmc_queue *queue, uint64_t step);
/* After damage: the words of steps as their memory is. */
void shmc_steps_rebuild(struct shmc_queue *queue);
/* A word that only rises. */
void shmc_raise(shmc_atomic *word, uint64_t to);

#define SHMC_QUEUE_NORMAL (UINT64_C(1) << 32) /* a lane of priority 0 */

/* ---- queuelane.c ----------------------------------------------------------------------------- */

#define SHMC_PRIORITY_KEPT INT64_MIN /* the priority of a key that waits or is held; else 0 */
int64_t shmc_priority_of(const struct shmc_queue *queue, int64_t priority, const uint8_t *key,
                         size_t length);
/* The lane of a priority: its own, or with eight others in use the nearest. NO_SPACE. */
enum shmc_status shmc_lane_of(struct shmc_queue *queue, int64_t priority, unsigned *lane);
/* The lane of a key that is to be added. FORKED, LIMIT or CLOSED if it must not be. */
enum shmc_status shmc_lane_of_key(struct shmc_queue *queue, const uint8_t *key, size_t length,
                                  int64_t priority, unsigned *lane);
/* Whether lane a goes before lane b. */
bool shmc_lane_before(const struct shmc_queue *queue, unsigned a, unsigned b);
/* Lanes in use, the first to be served first; how many. */
unsigned shmc_lane_order(const struct shmc_queue *queue, unsigned lanes[SHMC_QUEUE_LANES]);
/* Whether the ticket was written: without room, the key is spilled (SPILL1). */
bool shmc_ticket_write(struct shmc_queue *queue, uint64_t slot, unsigned lane);
/* Tickets for spilled keys, in lanes with room. */
void shmc_lanes_refill(struct shmc_queue *queue);
/* The slot of the oldest ticket; SHMC_QUEUE_MAX_SLOTS: no ticket is left. */
uint64_t shmc_ticket_take(struct shmc_queue *queue, unsigned lane);
bool shmc_ticket_there(const struct shmc_queue *queue, uint64_t slot);
bool shmc_lanes_empty(const struct shmc_queue *queue);
/* How many tickets were taken ever, and how many there are. */
uint64_t shmc_lanes_taken(const struct shmc_queue *queue, uint64_t *left);

/* ---- queuedue.c ------------------------------------------------------------------------------- */

/* Keys whose time has come become dirty. */
void shmc_due_fire(struct shmc_queue *queue, uint64_t now_ns);
/* A slot's delay as a sweep finds it: its block knows of it, and nobody died firing it. */
void shmc_due_check(struct shmc_queue *queue, uint64_t slot, uint64_t now_ns);

/* ---- queuewait.c ------------------------------------------------------------------------------- */

/* Wakes one sleeper, if there is one. A full fence separates this from stores that it shall see. */
void shmc_queue_post(struct shmc_queue *queue);
/* After a key was taken: one more worker, if there is more to do (QWAIT3). */
void shmc_queue_pass_on(struct shmc_queue *queue);
/* This worker stops looking for tickets: others answer its promises and rings (QWAIT9). */
void shmc_queue_depart(struct shmc_queue *queue);
/* A slot may be had by another key. */
void shmc_queue_room(struct shmc_queue *queue);
/* A key is done: a process that waits for the last one looks again. */
void shmc_queue_finished(struct shmc_queue *queue);
/* The lamp of a seat goes out. */
void shmc_queue_unsleep(struct shmc_queue *queue, uint64_t seat);
/* A key came due earlier than all others. */
void shmc_queue_earlier(struct shmc_queue *queue);

/* Whether there is something to do rather than sleep. */
bool shmc_queue_busy(const struct shmc_queue *queue, uint64_t now_ns);

/* ---- queuelinger.c ----------------------------------------------------------------------------- */

#define SHMC_STEP_NS UINT64_C(50000)

enum shmc_stand { SHMC_SLEEPER, SHMC_RESERVE, SHMC_NEEDED };

/* Whether somebody will look for tickets soon, so that nobody need be rung. */
bool shmc_queue_promised(const struct shmc_queue *queue, uint64_t now_ns);
/* The worker of that seat will, because it is rung now. */
void shmc_queue_promise(struct shmc_queue *queue, uint64_t seat, uint64_t now_ns);
/* We look now; a full fence comes before that (LINGER2). */
void shmc_queue_come(struct shmc_queue *queue);
/* Withdraws a promise just made for another worker, which would not keep it (LINGER5). */
void shmc_queue_revoke(struct shmc_queue *queue);
/* Looks on for a moment, where that has paid; whether there is something to do. */
bool shmc_queue_spin(struct shmc_queue *queue, uint64_t *now_ns, uint64_t deadline_ns);
/* From now on keys that others take count as taken meanwhile. */
void shmc_queue_look(struct shmc_queue *queue);
/* How a worker that finds nothing, or the reserve after a step, is to sleep. */
enum shmc_stand shmc_queue_stand(struct shmc_queue *queue, uint64_t now_ns);
enum shmc_stand shmc_queue_stand_again(struct shmc_queue *queue, uint64_t now_ns);
/* The wait is over, and was that long. */
void shmc_queue_waited(struct shmc_queue *queue, uint64_t waited_ns);

/* ---- queuesweep.c ------------------------------------------------------------------------------ */

/* Whether the worker that a word names has died. */
bool shmc_owner_dead(const struct shmc_queue *queue, uint64_t word);

/* Looks after the dead if it is time to (QWAIT5). */
void shmc_queue_sweep(struct shmc_queue *queue, uint64_t now_ns);
/* Looks at every slot now; at seats, too. */
void shmc_queue_scan(struct shmc_queue *queue, uint64_t now_ns);
/* Frees a seat whose lock can be taken; whether it was a dead worker's. */
bool shmc_queue_reap(struct shmc_queue *queue, uint64_t seat);
uint64_t shmc_queue_held(const struct shmc_queue *queue);
void shmc_queue_survey(const struct shmc_queue *queue, struct shmc_queue_stats *stats);
void shmc_queue_rebuild(struct shmc_queue *queue, uint64_t now_ns);

/* ---- queueseat.c ------------------------------------------------------------------------------- */

/* The byte whose lock proves that this incarnation of a seat lives, whatever the file contains. */
static inline uint64_t shmc_queue_owner_byte(uint64_t seat, uint64_t incarnation)
{
    return SHMC_QUEUE_OWNER_BYTE + (seat << 15 | (incarnation & KEY_INCARNATIONS));
}

struct shmc_queue_shape {
    uint64_t slot_count, ring_count, seat_count;
};
void shmc_queue_identify(struct shmc_queue_header *header, uint64_t instance,
                         const struct shmc_queue_shape *shape, uint64_t seed);

#endif
