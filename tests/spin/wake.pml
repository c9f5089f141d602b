/*
 * wake.pml - sleeping on a seat's futex word without losing a wake-up.
 *
 * The threads of one worker process share the word. It is 0 while nobody has
 * announced to sleep, else the ticket of the thread that announced last: the
 * writer only asks whether it is 0, the kernel whether it is still the waiter's.
 * A thread can leave the kernel early at any time (a signal, its time limit).
 *
 * Why not simply 1: thread A announces, finds nothing new, is preempted before
 * it waits; the writer publishes, takes the 1, wakes nobody; thread B, which has
 * seen that, announces its own sleep, stores 1; A's wait finds the 1 it expects
 * and sleeps over what was published. ONE_VALUE is that protocol. It is right
 * for one thread per word and fails for two, on any memory model.
 *
 * Invariants
 *   W1  whenever the writer is not between publish and the end of its post, no
 *       thread sleeps that has not seen the latest generation.
 *
 * Ordering
 *   F1  Thread: word before recheck of latest <-> F2
 *   F2  Writer: latest before load of word    <-> F1
 *   F3  Writer: word = 0 before futex_wake    <-> the kernel's compare-and-sleep
 *   F4  Thread: count and word change together, under the process's own lock
 *
 * Mutants: NO_READER_FENCE, NO_WRITER_FENCE, NO_RECHECK, NO_ANNOUNCE, PLAIN_EXIT,
 * ONE_VALUE, WAKE_FIRST.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef PUBLISHES
#define PUBLISHES 3
#endif

#define LATEST 0
#define WORD 1
#define LOCK 2  /* private to the process, but no less buffered: as COUNT */
#define COUNT 3 /* threads between announce and withdraw */
#define WORDS 4
#define CPUS (1 + THREADS)

#include "tso.pml"

#ifdef ONE_VALUE
#define TICKET 1
#else
#define TICKET _pid
#endif

bool posting;      /* the writer is between publish and the end of its post */
byte seen[CPUS];   /* the newest generation that a thread knows */
bool asleep[CPUS]; /* the kernel's queue of the word */

hidden byte W1_no_wakeup_is_lost;

inline lock()
{
    d_step {
        DRAINED(_pid) && memory[LOCK] == 0; /* a compare-exchange */
        memory[LOCK] = 1
    }
}

inline unlock()
{
    store(LOCK, 0)
}

inline futex_wait(w, expected)
{
    d_step {
        DRAINED(_pid);
        asleep[_pid] = (memory[w] == expected)
    }
    if
    :: !asleep[_pid]
    :: asleep[_pid] -> asleep[_pid] = false /* a signal, the time limit */
    fi
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

#ifndef PLAIN_EXIT

inline announce()
{
    lock(); /* F4 */
    load(COUNT, count);
    store(COUNT, count + 1);
    store(WORD, TICKET);
    unlock();
    count = 0;
#ifndef NO_READER_FENCE
    fence() /* F1 */
#endif
}

inline withdraw()
{
    lock(); /* F4 */
    load(COUNT, count);
    count--;
    store(COUNT, count);
    if
    :: count == 0 -> store(WORD, 0)
    :: else
    fi;
    unlock();
    count = 0
}

#else

inline announce()
{
    store(WORD, TICKET);
    fence()
}

inline withdraw()
{
    store(WORD, 0)
}

#endif

inline post()
{
    load(WORD, old);
    if
    :: old != 0 ->
#ifdef WAKE_FIRST
        futex_wake_all();
        exchange(WORD, 0, old)
#else
        exchange(WORD, 0, old); /* F3 */
        if
        :: old != 0 -> futex_wake_all()
        :: else /* the last thread has just withdrawn */
        fi
#endif
    :: else
    fi;
    old = 0
}

active proctype Writer()
{
    byte latest = 0, old = 0;

    do
    :: latest == PUBLISHES -> break
    :: else ->
        posting = true;
        latest++;
        store(LATEST, latest);
#ifndef NO_WRITER_FENCE
        fence(); /* F2 */
#endif
        post();
        posting = false
    od
}

active [THREADS] proctype Thread()
{
    byte latest = 0, count = 0;

again:
    latest = 0;
    load(LATEST, latest);
    if
    :: latest != seen[_pid] -> seen[_pid] = latest; goto again
    :: else
    fi;

#ifdef NO_ANNOUNCE
    load(LATEST, latest);
    if
    :: latest != seen[_pid] -> goto again
    :: else
    fi;
    announce();
#else
    announce();
#ifndef NO_RECHECK
    load(LATEST, latest);
    if
    :: latest != seen[_pid] -> goto leave
    :: else
    fi;
#endif
#endif
    futex_wait(WORD, TICKET);
leave:
    latest = 0;
    withdraw();
    goto again
}

DRAINS

#define LOST(thread) (asleep[thread] && seen[thread] < memory[LATEST] && !posting)

active proctype Watch()
{
end:
    if
    :: LOST(1)
#if THREADS > 1
    :: LOST(2)
#endif
#if THREADS > 2
    :: LOST(3)
#endif
    fi;
    W1_no_wakeup_is_lost = false;
    assert(W1_no_wakeup_is_lost)
}
