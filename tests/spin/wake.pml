/*
 * wake.pml - the doorbell of wake.c: sleeping on a seat's word without losing a ring.
 *
 * The threads of one worker share the bell. Bit 0 of the word is "on", the rest counts.
 * A thread switches it on (fetch_or), notes the number that it shows, checks once more
 * and sleeps while the number stays. The writer rings only bells that are on: it counts
 * up (fetch_add), which switches the bell off, and wakes all. The last thread that
 * leaves counts a bell up that is on. A signal, a time limit, a vain wake-up: any time.
 *
 * The count is modelled by its purpose: a number that was noted before the last count
 * is outdated and equals no word again. That keeps the word at its bit 0, so that threads
 * sleep as often as they like. LITERAL counts for real, and SLEEPS bounds each thread's
 * announcements.
 *
 * Why count: thread A announces, finds nothing new, is preempted; the writer publishes,
 * switches the bell off, wakes nobody; thread B, which has seen that, switches it on
 * again; A finds the "on" that it expects and sleeps through the publication. ONE_VALUE
 * is that bell. It is right for one thread per word, and wrong for two on any machine.
 *
 * A step of a process (an atomic) makes at most one access that others can notice. A
 * step that only enters the process's own buffer, or that the held lock guards, joins its
 * neighbour.
 *
 * Invariants (the letters of wake.c)
 *   WAKE1 of wake.c: no thread sleeps that has news, except while somebody is ringing: the writer,
 *       from publishing on, or shmc_wake_self().
 *   WAKE7 of wake.c: no thread sleeps on after shmc_wake_self() has returned.
 *
 * Ordering
 *   WAKEORDER1  Thread: interest, bell, then latest and wakes  <-> WAKEORDER2, WAKEORDER3 (WAKE5, WAKE7)
 *   WAKEORDER2  Writer: latest, then bell and interest         <-> WAKEORDER1     (WAKE5)
 *   WAKEORDER3  Waker: wakes, then bell                        <-> WAKEORDER1     (WAKE7)
 *   WAKEORDER4  Writer, Waker: count before futex_wake         <-> the kernel's compare-and-sleep
 *   WAKEORDER5  Thread: sleepers, interest and "off" change together, under the process's lock
 *
 * Switches
 *   SELF            one more thread calls shmc_wake_self() once.
 *   INTERESTS       1: every generation is news to every thread. 2: a generation is news
 *                   of one of two resources, and each thread waits for one of them.
 *   TWO_WORDS       (with INTERESTS=2) the seat has a word for each: a thread that
 *                   waits for objects announces in the first, for a version in the second.
 *   PLAIN_ANNOUNCE  announces by a load and a store, which no machine makes a fence of
 *                   (with LITERAL: it can turn the count back).
 *   TAKEOVER=n      the writer may die between publishing and the end of its rings, n times. The
 *                   next one rings every bell, whatever its word, before anything else.
 *
 * Mutants: NO_READER_FENCE, NO_WRITER_FENCE, NO_RECHECK, NO_ANNOUNCE, ONE_VALUE,
 * LEAVE_ALWAYS, ONE_WORD (the writer reads the first of two), INTEREST_LATE, INTEREST_ALONE,
 * WAKE_FIRST, SELF_LATE, NO_SELF_CHECK, NO_TAKEOVER_WAKE, TAKEOVER_ON (the next writer rings the
 * bells that are on), and QUIET: the writer considers a generation irrelevant, and a thread
 * considers it news.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef PUBLISHES
#define PUBLISHES 2
#endif
#ifndef INTERESTS
#define INTERESTS 1
#endif
#ifndef SLEEPS
#define SLEEPS 2
#endif
#ifndef TAKEOVER
#define TAKEOVER 0
#endif

#define LATEST 0
#define BELL 1
#define INTEREST 2
#define LOCK 3 /* private to the process, but no less buffered */
#define WAKES 4
#if INTERESTS > 1
#define ACTIVITY(resource) (5 + (resource))
#define PROGRESS (5 + INTERESTS)
#define WORDS (6 + INTERESTS)
#else
#define WORDS 5
#endif

#define WAKER (1 + THREADS)
#ifdef SELF
#define CPUS (2 + THREADS)
#else
#define CPUS (1 + THREADS)
#endif

#include "tso.pml"

#ifdef TWO_WORDS
#define FORGET_PROGRESS store(PROGRESS, 0)
#else
#define FORGET_PROGRESS skip
#endif
#define RESOURCE(thread) (((thread) - 1) % INTERESTS)
#define OUTDATED 255 /* equal to no word */
#define IS_ON(word) ((word) & 1)
#ifdef LEAVE_ALWAYS
#define IS_LAST true
#else
#define IS_LAST (sleepers == 0)
#endif

bool posting;      /* the writer is between publishing and the end of its rings */
bool waking;       /* somebody is in shmc_wake_self() */
byte sleepers;     /* only ever touched under the lock */
byte seen[CPUS];   /* the newest generation that a thread knows */
byte number[CPUS]; /* that a thread sleeps on, or is about to */
byte woken[CPUS];  /* the wakes that a thread found when it began to await */
bool asleep[CPUS]; /* the kernel's queue of the word */

hidden byte W1_no_ring_is_lost;
hidden byte W7_no_wake_is_lost;

#if INTERESTS > 1
#define ONE_ACCESS /* has_news() makes two */
#define INTEREST_OF(thread) (1 << RESOURCE(thread))
#ifdef TWO_WORDS
#define WORD_OF(resource) ((resource) == 0 -> INTEREST : PROGRESS)
#else
#define WORD_OF(resource) INTEREST
#endif
#define HAS_NEWS(thread) \
    (memory[LATEST] > seen[thread] && memory[ACTIVITY(RESOURCE(thread))] > seen[thread])
#else
#define ONE_ACCESS atomic
#define INTEREST_OF(thread) 1
#define WORD_OF(resource) INTEREST
#define HAS_NEWS(thread) (memory[LATEST] > seen[thread])
#endif

inline lock()
{
    d_step {
        DRAINED(_pid) && memory[LOCK] == 0; /* a compare-exchange */
        memory[LOCK] = 1
    }
}

inline unlock()
{
    store(LOCK, 0) /* glibc's is a locked instruction; a release store is less, and enough */
}

inline count_up()
{
    d_step { /* fetch_add 1 */
        DRAINED(_pid);
#if defined(ONE_VALUE)
        memory[BELL] = 0;
#elif defined(LITERAL)
        memory[BELL]++;
#else
        at = 0;
        do
        :: at < CPUS -> number[at] = OUTDATED; at++
        :: else -> break
        od;
        memory[BELL] = 1 - memory[BELL];
#endif
        at = 0
    }
}

inline switch_on()
{
#if defined(NO_ANNOUNCE)
    load(BELL, number[_pid])
#elif defined(PLAIN_ANNOUNCE)
    number[_pid] = word | 1;
    store(BELL, number[_pid]);
    word = 0
#else
    d_step { /* fetch_or 1 */
        DRAINED(_pid);
        memory[BELL] = memory[BELL] | 1;
        number[_pid] = memory[BELL]
    }
#endif
}

inline futex_wait()
{
    d_step {
        DRAINED(_pid);
        asleep[_pid] = (memory[BELL] == number[_pid])
    }
}

inline futex_wake_all()
{
    d_step {
        DRAINED(_pid);
        at = 0;
        do
        :: at < CPUS -> asleep[at] = false; at++
        :: else -> break
        od
    }
}

#if TAKEOVER > 0
#define MAY_DIE if :: died < TAKEOVER -> goto takeover :: true fi;
#else
#define MAY_DIE /* no step either */
#endif

inline shmc_post()
{
#ifdef WAKE_FIRST
    futex_wake_all();
#endif
    atomic {
        load(BELL, word);
        if
        :: !IS_ON(word) -> word = 0; goto wake
        :: else -> word = 0
        fi
    }
    count_up(); /* WAKEORDER4; two at once may leave the bell on: one vain ring */
    MAY_DIE
wake:
#ifndef WAKE_FIRST
    futex_wake_all()
#endif
}

active proctype Writer()
{
    byte latest = 0, word = 0, interest = 0;
#if TAKEOVER > 0
    byte died = 0;
#endif

end_publish:
    atomic {
        latest < PUBLISHES;
        posting = true;
#if INTERESTS > 1
        if
        :: interest = 1; store(ACTIVITY(0), latest + 1)
        :: interest = 2; store(ACTIVITY(1), latest + 1)
        fi;
#else
        if
        :: interest = 1
#ifdef QUIET
        :: interest = 0
#endif
        fi;
#endif
        store(LATEST, latest + 1)
    }
    MAY_DIE
    atomic { /* shmc_seats_wake() */
#ifndef NO_WRITER_FENCE
        fence(); /* WAKEORDER2 */
#endif
        load(BELL, word);
        if
        :: !IS_ON(word) -> goto rung
        :: else
        fi
    }
    atomic {
#ifdef ONE_WORD
        load(INTEREST, word);
#else
        load(WORD_OF(interest - 1), word); /* the other one is masked out */
#endif
        if
        :: !(word & interest) -> goto rung
        :: else
        fi
    }
post:
    shmc_post();
rung:
    atomic {
        posting = false;
        latest++;
        word = 0;
        interest = 0;
        goto end_publish
    }
#if TAKEOVER > 0
takeover: /* its stores get to memory; shmc_seats_wake_all() */
    atomic {
        fence();
        died++;
        word = 0;
        interest = 0;
#ifdef NO_TAKEOVER_WAKE
        goto rung
#elif defined(TAKEOVER_ON)
        if
        :: IS_ON(memory[BELL]) -> goto post
        :: else -> goto rung
        fi
#else
        goto post
#endif
    }
#endif
}

/* Sets latest to the newest generation if it is news, else to 0. */
inline has_news()
{
    atomic {
        load(LATEST, latest);
        latest = (latest > seen[_pid] -> latest : 0)
    }
#if INTERESTS > 1
    if
    :: latest > 0 ->
        atomic {
            load(ACTIVITY(RESOURCE(_pid)), word);
            latest = (word > seen[_pid] -> latest : 0);
            word = 0
        }
    :: else
    fi
#endif
}

inline add_interest()
{
#ifdef INTEREST_ALONE
    word = 0;
#else
    load(WORD_OF(RESOURCE(_pid)), word);
#endif
    store(WORD_OF(RESOURCE(_pid)), word | INTEREST_OF(_pid));
    word = 0
}

inline announce()
{
    atomic {
        lock(); /* WAKEORDER5 */
#ifndef INTEREST_LATE
        add_interest()
#endif
    }
#ifdef PLAIN_ANNOUNCE
    load(BELL, word);
#endif
    atomic {
        switch_on();
#ifdef INTEREST_LATE
        add_interest();
#endif
        unlock()
    }
}

inline leave()
{
    atomic {
        lock(); /* WAKEORDER5 */
        sleepers--;
        if
        :: IS_LAST -> store(INTEREST, 0); FORGET_PROGRESS
        :: else -> unlock(); goto wait
        fi
    }
    atomic {
        load(BELL, word);
        if
        :: !IS_ON(word) -> word = 0; unlock(); goto wait
        :: else -> word = 0
        fi
    }
    atomic {
        count_up();
        unlock();
        goto wait
    }
}

active [THREADS] proctype Thread()
{
    byte latest = 0, word = 0;
#ifdef LITERAL
    byte sleeps = 0;
#endif

wait: /* shmc_wait() */
    ONE_ACCESS {
        has_news();
        if
        :: latest > 0 -> goto new
        :: else
        fi
    }
    atomic { /* enter() */
        lock();
        sleepers++;
        unlock()
    }
#ifdef SELF
    load(WAKES, woken[_pid]);
#endif
await:
#ifdef LITERAL
end_of_sleeps:
    sleeps < SLEEPS;
    sleeps++;
#endif
    announce();
#ifndef NO_READER_FENCE
    fence(); /* WAKEORDER1 */
#endif
#ifndef NO_RECHECK
    ONE_ACCESS {
        has_news();
        if
        :: latest > 0 -> goto end_wait
        :: else
        fi
    }
#endif
#if defined(SELF) && !defined(NO_SELF_CHECK)
    atomic {
        load(WAKES, word);
        if
        :: word != woken[_pid] -> word = 0; goto end_wait
        :: else -> word = 0
        fi
    }
#endif
    futex_wait();
    atomic {
        if
        :: !asleep[_pid]                        /* woken, or the number had changed */
        :: asleep[_pid] -> asleep[_pid] = false /* for no reason */
        :: asleep[_pid] -> asleep[_pid] = false; goto end_wait /* a signal, the time limit */
        fi;
        number[_pid] = OUTDATED
    }
    ONE_ACCESS {
        has_news();
        if
        :: latest > 0
        :: else -> goto await
        fi
    }

end_wait:
    atomic {
        number[_pid] = OUTDATED;
        woken[_pid] = 0;
        seen[_pid] = (latest > 0 -> latest : seen[_pid]);
        latest = 0
    }
    leave();

new:
    atomic {
        seen[_pid] = latest;
        latest = 0;
        goto wait
    }
}

#ifdef SELF
active proctype Waker() /* shmc_wake_self() */
{
    byte word = 0;

    waking = true;
#ifdef SELF_LATE
    shmc_post();
#endif
    d_step {
        DRAINED(_pid);
        memory[WAKES]++ /* WAKEORDER3: locked, so that the fence after it adds nothing here */
    }
#ifndef SELF_LATE
    shmc_post();
#endif
    waking = false
}
#endif

DRAINS

#define RINGING (posting || waking)
#define LOST(thread) (asleep[thread] && HAS_NEWS(thread) && !RINGING)
#define SLEPT_ON(thread) (asleep[thread] && woken[thread] != memory[WAKES] && !waking)

active proctype Watch()
{
end:
    if
    :: LOST(1) -> goto lost
#ifdef SELF
    :: SLEPT_ON(1) -> goto slept_on
#endif
#if THREADS > 1
    :: LOST(2) -> goto lost
#ifdef SELF
    :: SLEPT_ON(2) -> goto slept_on
#endif
#endif
#if THREADS > 2
    :: LOST(3) -> goto lost
#endif
    fi;
lost:
    W1_no_ring_is_lost = false;
    assert(W1_no_ring_is_lost);
#ifdef SELF
slept_on:
    W7_no_wake_is_lost = false;
    assert(W7_no_wake_is_lost)
#endif
}
