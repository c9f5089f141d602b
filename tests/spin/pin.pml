/*
 * pin.pml - one writer reuses blocks under readers that pin generations.
 *
 * A generation is a root, the root leads to one block, the block has two words, and
 * generation g writes g into both: a word that is not g is torn or reused. The writer
 * publishes GENERATIONS of them out of BLOCKS blocks, so it has to reuse. A block that
 * was replaced waits in limbo; reclaiming (scan the pins, raise the floor, free what they
 * allow) happens after some publications, between them, and when nothing is free. The
 * readers go round for ever, and stop for ever wherever they like.
 *
 * A step of a process (an atomic) makes at most one access that others can notice; what
 * only enters the own buffer joins its neighbour's.
 *
 * Invariants
 *   P1  a value that a reader accepts is what its generation published, in both
 *       words, whatever pins were lost, invented or revoked.
 *   P2  without REVOKE, once a pin is accepted its block is not overwritten and the
 *       floor stays at or below it until it is dropped: nobody sees Stale.
 *   P3  a root that a reader accepts is the one its generation published.
 *   P4  the floor only rises, and never above the published generation.
 *
 * Ordering (each line holds on TSO; only F1 and F2 need an instruction for it)
 *   F1  Reader: pin before recheck of latest   <-> F2
 *   F2  Writer: latest before scan of the pins <-> F1
 *   F3  Writer: floor before data  <->  Reader: data before floor
 *   F4  Writer: data, slot, then latest  <->  Reader: latest, slot, then data
 *   F5  Writer: latest before the slot's next root  <->  Reader: slot before latest
 *   F6  Reader: kept pin before the quick one changes  <->  Writer: quick before kept
 *
 * Switches
 *   REVOKE  the writer may free what pins protect (garbage_limit). It then ignores any pin
 *           it likes, so this covers pins that are lost or wiped; invented ones free less.
 *   KEEP    a reader may move its pin from the quick slot to the kept one, and pin another
 *           generation in the quick slot: shmc_quick_keep().
 *   SHARE   a reader may take a newer root under its old pin, without another: all slots
 *           are in use (R2 of reader.c).
 *
 * Mutants: NO_READER_FENCE, NO_WRITER_FENCE, NO_RECHECK, NO_FLOOR_CHECK, FLOOR_LATE,
 * SLOT_LIMIT=SLOTS, PUBLISH_EARLY, NO_RETIRE_WAIT, RETIRE_EARLY, KEEP_LATE, SCAN_DOWN.
 */
#ifndef READERS
#define READERS 1
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef SLOT_LIMIT
#define SLOT_LIMIT (SLOTS - 1)
#endif
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef GENERATIONS
#define GENERATIONS 6
#endif

#ifdef KEEP
#define PINS 2
#else
#define PINS 1
#endif

#define LATEST 0
#define FLOOR 1
#define QUICK(reader) (PINS * (reader) + 2 - PINS) /* readers count from 1; 0: no pin */
#define KEPT(reader) (QUICK(reader) + 1)
#define SLOT(g) (2 + PINS * READERS + (g) % SLOTS)
#define DATA(block, i) (2 + PINS * READERS + SLOTS + 2 * (block) + (i))
#define WORDS (2 + PINS * READERS + SLOTS + 2 * BLOCKS)
#define CPUS (1 + READERS)

#include "tso.pml"

#define ROOT(g, block) (4 * (g) + (block))
#define GENERATION_OF(root) ((root) / 4)
#define BLOCK_OF(root) ((root) % 4)

hidden byte P1_value_is_whole;
hidden byte P2_pin_is_kept;
hidden byte P3_root_is_whole;
hidden byte P4_floor_is_published;

#define FREE(block) (block != live && retired[block] == 0)
#ifdef NO_RETIRE_WAIT
#define IN_REACH(block) (block != live && retired[block] > 0)
#else
#define IN_REACH(block) (block != live && retired[block] > 0 && retired[block] <= needed)
#endif

/* shmc_seats_pins(): a pin is acknowledged from floor to latest. */
inline scan_pin(word)
{
    atomic {
        load(word, pin);
        if
        :: pin != 0 && pin >= floor && pin <= latest && pin < needed -> needed = pin
        :: else
        fi;
        pin = 0
    }
}

inline scan_pins()
{
    needed = latest;
    reader = 1;
    do
    :: reader <= READERS ->
#if defined(KEEP) && defined(SCAN_DOWN)
        scan_pin(KEPT(reader));
#endif
        scan_pin(QUICK(reader)); /* F6 */
#if defined(KEEP) && !defined(SCAN_DOWN)
        scan_pin(KEPT(reader));
#endif
        reader++
    :: else -> break
    od;
    reader = 0
}

inline free_block(block)
{
    if
    :: IN_REACH(block) ->
        floor = (retired[block] > floor -> retired[block] : floor);
        retired[block] = 0
    :: else
    fi
}

inline raise_floor()
{
    if
    :: floor > stored ->
        store(FLOOR, floor);
        stored = floor
    :: else
    fi
}

/* shmc_reclaim() */
inline reclaim()
{
    scan_pins();
#ifdef REVOKE
    do
    :: needed < latest -> needed++
    :: break
    od;
#endif
    atomic {
        d_step {
            free_block(0);
            free_block(1);
#if BLOCKS > 2
            free_block(2);
#endif
            needed = 0;
            P4_floor_is_published = (floor <= latest);
            assert(P4_floor_is_published)
        }
#ifndef FLOOR_LATE
        raise_floor() /* F3 */
#endif
    }
}

active proctype Writer()
{
    byte latest = 1, live = 0, next = 0, needed = 0, floor = 0, stored = 0, reader = 0, pin = 0;
    byte retired[BLOCKS]; /* the generation whose root no longer reaches it; 0: not in limbo */

    d_step {
        memory[DATA(0, 0)] = 1;
        memory[DATA(0, 1)] = 1;
        memory[SLOT(1)] = ROOT(1, 0);
        memory[LATEST] = 1
    }
end:
    do
    :: latest < GENERATIONS -> reclaim() /* from time to time: in steps, or shmc_tend() */
    :: latest < GENERATIONS ->
        atomic {
            if
            :: FREE(0) -> next = 0
            :: FREE(1) -> next = 1
#if BLOCKS > 2
            :: FREE(2) -> next = 2
#endif
            fi;
            store(DATA(next, 0), latest + 1);
            store(DATA(next, 1), latest + 1);
#ifdef FLOOR_LATE
            raise_floor();
#endif
#ifdef PUBLISH_EARLY
            store(LATEST, latest + 1);
#endif
            store(SLOT(latest + 1), ROOT(latest + 1, next)); /* F4, F5 */
#ifndef PUBLISH_EARLY
            store(LATEST, latest + 1); /* F4: the release store */
#endif
#ifdef RETIRE_EARLY
            retired[live] = latest;
#else
            retired[live] = latest + 1;
#endif
            latest++;
            live = next;
            next = 0
        }
#ifndef NO_WRITER_FENCE
        fence() /* F2 */
#endif
    od
}

inline copy_root(g) /* latest is scratch */
{
    load(SLOT(g), root); /* F4 */
    load(LATEST, latest) /* F5 */
}

inline check_root(g)
{
    d_step {
        latest = 0;
        P3_root_is_whole = (GENERATION_OF(root) == g);
        assert(P3_root_is_whole)
    }
}

active [READERS] proctype Reader()
{
    byte pinned = 0, latest = 0, root = 0, first = 0, second = 0, floor = 0;
#ifdef KEEP
    bool kept = false;
#endif

    memory[LATEST] > 0; /* attached */
again:
    atomic {
        latest = 0;
        load(LATEST, pinned);
        store(QUICK(_pid), pinned)
    }
#ifndef NO_READER_FENCE
    fence(); /* F1 */
#endif
#ifndef NO_RECHECK
    atomic {
        load(LATEST, latest);
        if
        :: latest != pinned -> goto again
        :: else
        fi
    }
#endif
    copy_root(pinned);
    if
    :: latest >= pinned + SLOT_LIMIT -> goto again
    :: else
    fi;
    check_root(pinned);

    do /* a view reads as often as it likes */
    :: load(DATA(BLOCK_OF(root), 0), first);
       load(DATA(BLOCK_OF(root), 1), second);
#ifndef NO_FLOOR_CHECK
       load(FLOOR, floor); /* F3 */
#endif
       if
#ifdef REVOKE
       :: floor > GENERATION_OF(root) -> break /* Stale */
#endif
       :: else ->
           d_step {
               P2_pin_is_kept = (floor <= GENERATION_OF(root));
               assert(P2_pin_is_kept);
               P1_value_is_whole = (first == GENERATION_OF(root) &&
                                    second == GENERATION_OF(root));
               assert(P1_value_is_whole);
               first = 0; second = 0; floor = 0
           }
       fi
#ifdef KEEP
    :: !kept ->
#ifndef KEEP_LATE
        atomic { kept = true; store(KEPT(_pid), pinned) } /* F6 */
#endif
        atomic { /* pins another, is not through with it yet; or rests */
            if
            :: load(LATEST, latest)
            :: true
            fi;
            store(QUICK(_pid), latest);
            latest = 0
        }
#ifdef KEEP_LATE
        atomic { kept = true; store(KEPT(_pid), pinned) }
#endif
#endif
#ifdef SHARE
    :: GENERATION_OF(root) == pinned ->
        load(LATEST, floor); /* floor is scratch here */
        copy_root(floor);
        if
        :: latest < floor + SLOT_LIMIT -> check_root(floor); floor = 0
        :: else -> break
        fi
#endif
    :: break
    od;

    atomic {
#ifndef REVOKE
        /* Generations never come back, so this holds now only if it held all the time. */
        P2_pin_is_kept = (memory[FLOOR] <= pinned &&
                          memory[DATA(BLOCK_OF(root), 0)] == GENERATION_OF(root) &&
                          memory[DATA(BLOCK_OF(root), 1)] == GENERATION_OF(root));
        assert(P2_pin_is_kept);
#endif
        pinned = 0; root = 0; latest = 0; first = 0; second = 0; floor = 0;
#ifdef KEEP
        kept = false;
        store(KEPT(_pid), 0);
#endif
        store(QUICK(_pid), 0)
    }
    goto again
}

DRAINS
