/*
 * queue.pml - one key of the work queue of queue.c: handed over, given back, never with two; and
 * the feeder that turns deltas into adds, and whose successor continues from the stored cursor.
 *
 * A word is the state of the key: known, dirty, held by a seat in its incarnation. It changes
 * by compare-exchange only. An adder changes its data, then adds: full fence, look, and if the key
 * is dirty already it stores nothing. A worker takes the key (dirty to held), reads the data, is
 * done (to known, or to dirty again). A worker may die at any step; the sweeper, once the dead
 * one's lock can be taken, gives the key back. A feeder reads deltas, adds, and stores its cursor;
 * it may die at any step, too, and another one continues.
 *
 * The sleeper's side (lamp, ticket) is that of wake.pml: here tickets are as good as their repair,
 * so a worker takes the key whenever its word shows that it is available.
 *
 * A step of a process (an atomic) makes at most one access that others can notice.
 *
 * Invariants
 *   QUEUE2 of queue.c: no two living workers hold the key.
 *   QUEUE3 of queue.c: when everything has come to rest, the data that a worker saw last is the
 *       data that there is.
 *   QSEAT3  and each delta's key was worked on after the delta: the cursor covers only what was
 *       added.
 *
 * Ordering
 *   QUEUEORDER1  Adder: data ▸ full fence ▸ word     <-> Worker: exchange of the word ▸ data   (QUEUE9)
 *   QUEUEORDER2  Feeder: adds ▸ cursor               <-> the next one: cursor                  (QSEAT4)
 *
 * Switches
 *   FEED    the adders are two feeders, one after the other; else two plain adders.
 *
 * Mutants: NO_ADD_FENCE (no fence before the look), LOAD_STORE (done() by a load and a store),
 * EARLY_REAP (a stopped worker is taken for a dead one), NO_GIVE_BACK (keys of the dead become
 * known, not dirty), DROP_DIRTY (done() forgets an add that came meanwhile), CURSOR_EARLY (the
 * cursor is stored before the adds).
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CHANGES
#define CHANGES 2
#endif

#define WORD 0
#define DATA 1
#define CURSOR 2
#define SEEN 3
#define WORDS 4
#define ADDERS 2
#define CPUS (ADDERS + WORKERS + 1)

#include "tso.pml"

/* The word: 0 known, 1 dirty, or held by seat s (from 1): 2 s, and with 1 more dirty. */
#define DIRTY 1
#define HELD(s) (2 * (s))
#define IS_HELD(w) ((w) > 1)
#define IS_DIRTY(w) ((w) & 1)
#define HOLDER(w) ((w) >> 1)
#define ME (_pid - ADDERS + 1)

bool dead[WORKERS + 1];    /* its lock can be taken */
bool inside[WORKERS + 1];  /* it works on the key */
byte finished;             /* adders, or feeders */

hidden byte Q2_one_worker;
hidden byte Q3_last_data_is_seen;

inline cas(w, expected, new, ok)
{
    d_step {
        DRAINED(_pid);
        ok = (memory[w] == expected);
        if
        :: ok -> memory[w] = new
        :: else
        fi
    }
}

/* shmc_queue_add(): QUEUE3, QUEUE9 */
inline add()
{
#ifndef NO_ADD_FENCE
    fence();
#endif
    do
    :: atomic {
            load(WORD, word);
            if
            :: IS_DIRTY(word) -> break
            :: else
            fi
        }
        cas(WORD, word, word | DIRTY, ok);
        if
        :: ok -> break
        :: else
        fi
    od
}

#ifdef FEED
/* Two feeders, one at a time: the lock is the kernel's. The first may die anywhere. */
bool feeding;
bool feeder_dead;

active [ADDERS] proctype Adder()
{
    byte word, position;
    bool ok;

    atomic { !feeding -> feeding = true }
    load(CURSOR, position); /* QUEUEORDER2 */
    do
    :: position < CHANGES ->
        store(DATA, position + 1); /* the change of the delta, which a worker must see */
#ifdef CURSOR_EARLY
        store(CURSOR, position + 1);
#endif
        if
        :: _pid == 0 && !feeder_dead -> feeder_dead = true; break /* killed here */
        :: skip
        fi;
        add();
        if
        :: _pid == 0 && !feeder_dead -> feeder_dead = true; break
        :: skip
        fi;
        position++;
#ifndef CURSOR_EARLY
        store(CURSOR, position)
#else
        skip
#endif
    :: else -> break
    od;
    fence(); /* its end, as its death, is a system call */
    atomic { feeding = false; finished++ }
}
#else
active [ADDERS] proctype Adder()
{
    byte word;
    bool ok;

    if
    :: _pid == 0 -> store(DATA, CHANGES - 1)
    :: else -> atomic { finished == 1 -> skip }; store(DATA, CHANGES) /* in turns: one data */
    fi;
    add();
    fence(); /* its next system call */
    atomic { finished++ }
}
#endif

active [WORKERS] proctype Worker()
{
    byte word, data;
    bool ok;

    do
    :: memory[WORD] == DIRTY ->
        cas(WORD, DIRTY, HELD(ME), ok); /* QUEUE2 */
        if
        :: ok ->
            atomic {
                inside[ME] = true;
                Q2_one_worker = (WORKERS < 2 || !(inside[1] && inside[2]));
                assert(Q2_one_worker)
            }
            load(DATA, data);
            if
            :: WORKERS > 1 && ME == 1 && !dead[ME] -> /* killed with the key: its buffer is not lost */
                fence();
                atomic { inside[ME] = false; dead[ME] = true };
                break
            :: skip
            fi;
            store(SEEN, data);
            do
            :: atomic {
                    load(WORD, word);
#ifdef EARLY_REAP
                    if
                    :: HOLDER(word) != ME -> break /* taken away: a late done() */
                    :: else
                    fi
#endif
                }
                atomic { inside[ME] = false };
#ifdef LOAD_STORE
                atomic { store(WORD, IS_DIRTY(word)) };
                break
#else
#ifdef DROP_DIRTY
                cas(WORD, word, 0, ok);
#else
                cas(WORD, word, IS_DIRTY(word), ok);
#endif
                if
                :: ok -> break
                :: else
                fi
#endif
            od;
            inside[ME] = false
        :: else
        fi
    :: atomic { finished == ADDERS && memory[WORD] == 0 && DRAINED(_pid) } -> break
    od
}

active proctype Sweeper()
{
    byte word;
    bool ok;

    do
#ifdef EARLY_REAP
    :: atomic { IS_HELD(memory[WORD]) -> word = memory[WORD] }
#else
    :: atomic {
            IS_HELD(memory[WORD]) && dead[HOLDER(memory[WORD])] -> /* its lock was taken */
            word = memory[WORD]
        }
#endif
#ifdef NO_GIVE_BACK
        cas(WORD, word, IS_DIRTY(word), ok);
#else
        cas(WORD, word, DIRTY, ok);
#endif
    :: atomic { finished == ADDERS && memory[WORD] == 0 } -> break
    od
}

DRAINS

/* At rest: all adds are over, the key is idle, nothing is in a buffer. */
active proctype Watch()
{
end:
    atomic {
        finished == ADDERS && memory[WORD] == 0 && buffer[0].used == 0 && buffer[1].used == 0 &&
            buffer[2].used == 0 && buffer[CPUS - 2].used == 0 && !inside[1] &&
            !inside[WORKERS] ->
        Q3_last_data_is_seen = (memory[SEEN] == memory[DATA]);
        assert(Q3_last_data_is_seen)
    }
}
