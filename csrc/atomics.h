/*
 * atomics.h - the only file that names a memory order.
 *
 * acquire/release  as C11 defines them: what was written before the release is
 *                  seen by whoever read its value with acquire.
 * racy             relaxed: a word that another process may be changing now. It
 *                  is never torn (8 bytes, aligned), and it promises nothing
 *                  about any other word until a fence or a validation follows.
 * full             a store before it is visible before a load after it is made:
 *                  the one order that x86 does not give for free. Used where two
 *                  sides each announce and then look at the other (pin/publish,
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

typedef _Atomic uint64_t shmc_atomic;
typedef _Atomic uint32_t shmc_atomic32;

static_assert(sizeof(shmc_atomic) == 8, "an atomic word is a plain word in shared memory");
static_assert(sizeof(shmc_atomic32) == 4, "a futex word is four bytes");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "no lock table can be shared between processes");

/*
 * Failpoints: in a test build each store below is preceded by a call, so that a writer can be made
 * to die at every one of them. Without the flag there is nothing.
 */
#ifdef SHMC_FAILPOINTS
extern void shmc_failpoint(const volatile void *about_to_store);
#define SHMC_FAILPOINT(place) shmc_failpoint(place)
#else
#define SHMC_FAILPOINT(place) ((void)0)
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

/* Full on both sides: what was published before is seen by whom the exchange wakes. */
static inline uint32_t shmc_exchange32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    return atomic_exchange_explicit(word, value, memory_order_seq_cst);
}

/* As exchange; they only ever count up, so that a waiter's expected value does not come back. */
static inline uint32_t shmc_fetch_add32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    return atomic_fetch_add_explicit(word, value, memory_order_seq_cst);
}

static inline uint32_t shmc_fetch_or32(shmc_atomic32 *word, uint32_t value)
{
    SHMC_FAILPOINT(word);
    return atomic_fetch_or_explicit(word, value, memory_order_seq_cst);
}

static inline uint64_t shmc_fetch_add(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    return atomic_fetch_add_explicit(word, value, memory_order_seq_cst);
}

static inline uint64_t shmc_exchange(shmc_atomic *word, uint64_t value)
{
    SHMC_FAILPOINT(word);
    return atomic_exchange_explicit(word, value, memory_order_seq_cst);
}

static inline bool shmc_cas(shmc_atomic *word, uint64_t expected, uint64_t desired)
{
    SHMC_FAILPOINT(word);
    return atomic_compare_exchange_strong_explicit(word, &expected, desired, memory_order_seq_cst,
                                                   memory_order_relaxed);
}

/* Between two looks of who waits for another CPU. */
static inline void shmc_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/*
 * Words of the arena. The type is plain there (a block is written before anybody
 * can reach it), the access is a relaxed atomic, because after a revocation a
 * reader may look at a block that the writer fills anew.
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
