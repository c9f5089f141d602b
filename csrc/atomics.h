/*
 * atomics.h - the only file that names a memory order.
 *
 * acquire/release  as C11 defines them: everything written before the release is
 *                  seen by a reader that loads its value with acquire.
 * racy             relaxed: a word that another process may be changing now. It
 *                  is never torn (8 bytes, aligned), and it promises nothing
 *                  about any other word until a fence or a validation follows.
 * full             a store before it is visible before a load after it is made:
 *                  the one order that x86 does not give for free. Used where two
 *                  sides each announce and then check the other (pin/publish,
 *                  sleep/post).
 *
 * Every use names its partner.
 */
#ifndef SHMC_ATOMICS_H
#define SHMC_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "defence.h"
#include "mutants.h"

typedef _Atomic uint64_t shmc_atomic;
typedef _Atomic uint32_t shmc_atomic32;

static_assert(sizeof(shmc_atomic) == 8, "an atomic word is a plain word in shared memory");
static_assert(sizeof(shmc_atomic32) == 4, "a futex word is four bytes");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "no lock table can be shared between processes");

/*
 * Failpoints: in a test build each store below is preceded by a call, so that a writer can be made
 * to die at every one of them. Without the flag they do not exist.
 */
#ifdef SHMC_FAILPOINTS
extern void shmc_failpoint(const volatile void *about_to_store);
#define SHMC_FAILPOINT(where) shmc_failpoint(where)
#else
#define SHMC_FAILPOINT(where) ((void)0)
#endif

static inline uint64_t shmc_load_racy(const shmc_atomic *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t shmc_load_acquire(const shmc_atomic *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void shmc_store_racy(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static inline void shmc_store_release(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    atomic_store_explicit(word, value, memory_order_release);
}

static inline void shmc_fence_acquire(void)
{
    atomic_thread_fence(memory_order_acquire);
}

static inline void shmc_fence_release(void)
{
    atomic_thread_fence(memory_order_release);
}

static inline void shmc_fence_full(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

static inline uint32_t shmc_load32_racy(const shmc_atomic32 *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static inline void shmc_store32_racy(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/*
 * An exchange is a full fence here: stores before it are visible before loads after it.
 * C11 does not guarantee that for relaxed loads after a seq_cst exchange, nor do LL/SC processors (the
 * store of the pair may become visible after the load). On x86 the locked instruction is one.
 */
static inline void shmc_fence_of_exchange(void)
{
#if defined(__x86_64__)
    atomic_signal_fence(memory_order_seq_cst);
#else
    SHMC_UNLESS(NO_EXCHANGE_FENCE, atomic_thread_fence(memory_order_seq_cst));
#endif
}

/* Full on both sides: the waiter that it wakes sees all words published before. */
static inline uint32_t shmc_exchange32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    const uint32_t before = atomic_exchange_explicit(word, value, memory_order_seq_cst);
    shmc_fence_of_exchange();
    return before;
}

/* Like exchange; these words only count up, so that a waiter's expected value does not come
 * back. */
static inline uint32_t shmc_fetch_add32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    const uint32_t before = atomic_fetch_add_explicit(word, value, memory_order_seq_cst);
    shmc_fence_of_exchange();
    return before;
}

static inline uint32_t shmc_fetch_or32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    const uint32_t before = atomic_fetch_or_explicit(word, value, memory_order_seq_cst);
    shmc_fence_of_exchange();
    return before;
}

static inline uint64_t shmc_fetch_add(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    const uint64_t before = atomic_fetch_add_explicit(word, value, memory_order_seq_cst);
    shmc_fence_of_exchange();
    return before;
}

static inline uint64_t shmc_exchange(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    const uint64_t before = atomic_exchange_explicit(word, value, memory_order_seq_cst);
    shmc_fence_of_exchange();
    return before;
}

static inline bool shmc_cas(shmc_atomic *word, uint64_t expected, uint64_t desired)
{
    SHMC_FAILPOINT(word);
    const bool done = atomic_compare_exchange_strong_explicit(
        word, &expected, desired, memory_order_seq_cst, memory_order_relaxed);
    shmc_fence_of_exchange();
    return done;
}

/* A plain word of this process that threads read while one of them raises it. It only rises. */
static inline uint64_t shmc_risen(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void shmc_rise(uint64_t *word, uint64_t value)
{
    uint64_t seen = shmc_risen(word);

    while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, false, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        continue;
}

/* Called between two loads of a word that another CPU is about to change. */
static inline void shmc_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/*
 * Words of the arena. The type is plain there (a block is written before it becomes
 * reachable), the access is a relaxed atomic, because after a revocation a
 * reader may read a block that the writer is filling again.
 */
static inline uint64_t shmc_word_load(const uint8_t *at)
{
    uint64_t word;

    if (SHMC_IS_DEFENDED)
        return shmc_load_racy((const shmc_atomic *)(const void *)at);
    memcpy(&word, at, 8);
    return word;
}

static inline void shmc_word_store(uint8_t *at, uint64_t value)
{
    shmc_store_racy((shmc_atomic *)(void *)at, value);
}

#endif
