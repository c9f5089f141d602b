/*
 * pin.pml - one writer reuses blocks under readers that pin generations.
 *
 * A generation is a root, the root leads to one block, the block has two words,
 * and generation g writes g into both: a word that is not g is torn or reused.
 * The writer publishes GENERATIONS of them out of BLOCKS blocks, so it has to
 * reuse; the readers go round for ever, and stop for ever wherever they like.
 *
 * Invariants
 *   P1  a value that a reader accepts is what its generation published, in both
 *       words, whatever pins were lost, ignored or revoked.
 *   P2  without REVOKE, once a pin is accepted its block is not overwritten and
 *       the floor stays at or below it until it is dropped: nobody sees Stale.
 *   P3  a root that a reader accepts is the one its generation published.
 *
 * Ordering (each line holds on TSO; only F1 and F2 need an instruction for it)
 *   F1  Reader: pin before recheck of latest   <-> F2
 *   F2  Writer: latest before scan of the pins <-> F1
 *   F3  Writer: floor before data  <->  Reader: data before floor
 *   F4  Writer: data, slot, then latest  <->  Reader: latest, slot, then data
 *   F5  Writer: latest before the slot's next root  <->  Reader: slot before latest
 *
 * Switches: REVOKE lets the writer ignore pins. Mutants: NO_READER_FENCE,
 * NO_WRITER_FENCE, NO_RECHECK, NO_FLOOR_CHECK, FLOOR_LATE, SLOT_LIMIT=SLOTS,
 * PUBLISH_EARLY, IGNORE_PINS.
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

#define LATEST 0
#define FLOOR 1
#define PIN(reader) (1 + (reader)) /* readers count from 1; 0 in the word: no pin */
#define SLOT(g) (2 + READERS + (g) % SLOTS)
#define DATA(block, i) (2 + READERS + SLOTS + 2 * (block) + (i))
#define WORDS (2 + READERS + SLOTS + 2 * BLOCKS)
#define CPUS (1 + READERS)

#include "tso.pml"

#define ROOT(g, block) (4 * (g) + (block))
#define GENERATION_OF(root) ((root) / 4)
#define BLOCK_OF(root) ((root) % 4)

hidden byte P1_value_is_whole;
hidden byte P2_pin_is_kept;
hidden byte P3_root_is_whole;

/* safe: what was retired at or below it may be reused, by the last scan. */
#ifdef IGNORE_PINS
#define FREE(block) (block != live)
#else
#define FREE(block) (block != live && retired[block] <= safe)
#endif

inline scan_pins()
{
    safe = latest;
    reader = 1;
    do
    :: reader <= READERS ->
        load(PIN(reader), pin);
        if
        :: pin != 0 && pin < safe -> safe = pin
#ifdef REVOKE
        :: pin != 0 && pin < safe /* ignored */
#endif
        :: else
        fi;
        reader++
    :: else -> break
    od;
    reader = 0;
    pin = 0
}

/* Just far enough for this block, or in a larger step, as far as the scan allows. */
inline raise_floor()
{
    if
    :: retired[next] > floor ->
        if
        :: floor = retired[next]
        :: floor = safe
        fi;
        store(FLOOR, floor)
    :: else
    fi
}

active proctype Writer()
{
    byte latest = 1, live = 0, next = 0, safe = 0, floor = 0, reader = 0, pin = 0;
    byte retired[BLOCKS]; /* the generation whose root no longer reaches it; 0: never used */

    d_step {
        memory[DATA(0, 0)] = 1;
        memory[DATA(0, 1)] = 1;
        memory[SLOT(1)] = ROOT(1, 0);
        memory[LATEST] = 1
    }
    do
    :: latest == GENERATIONS -> break
    :: else ->
        do
        :: FREE(0) -> next = 0; break
        :: FREE(1) -> next = 1; break
#if BLOCKS > 2
        :: FREE(2) -> next = 2; break
#endif
        :: else -> scan_pins()
        od;

#ifndef FLOOR_LATE
        raise_floor(); /* F3 */
#endif
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
#ifndef NO_WRITER_FENCE
        fence(); /* F2 */
#endif
        d_step {
            latest++;
            retired[live] = latest;
            live = next;
            next = 0
        }
        scan_pins()
    od
}

active [READERS] proctype Reader()
{
    byte pinned = 0, latest = 0, root = 0, first = 0, second = 0, floor = 0;

    memory[LATEST] > 0; /* attached */
again:
    latest = 0;
    load(LATEST, pinned);
    store(PIN(_pid), pinned);
#ifndef NO_READER_FENCE
    fence(); /* F1 */
#endif
#ifndef NO_RECHECK
    load(LATEST, latest);
    if
    :: latest != pinned -> goto again
    :: else
    fi;
#endif

    load(SLOT(pinned), root); /* F4 */
    load(LATEST, latest);     /* F5 */
    if
    :: latest >= pinned + SLOT_LIMIT -> goto again
    :: else
    fi;
    d_step {
        latest = 0;
        P3_root_is_whole = (GENERATION_OF(root) == pinned);
        assert(P3_root_is_whole)
    }

    do /* a view reads as often as it likes */
    :: load(DATA(BLOCK_OF(root), 0), first);
       load(DATA(BLOCK_OF(root), 1), second);
#ifndef NO_FLOOR_CHECK
       load(FLOOR, floor); /* F3 */
#endif
       if
#ifdef REVOKE
       :: floor > pinned -> break /* Stale */
#endif
       :: else ->
           d_step {
               P2_pin_is_kept = (floor <= pinned);
               assert(P2_pin_is_kept);
               P1_value_is_whole = (first == pinned && second == pinned);
               assert(P1_value_is_whole);
               first = 0; second = 0; floor = 0
           }
       fi
    :: break
    od;

    atomic {
#ifndef REVOKE
        /* Generations never come back, so this holds now only if it held all the time. */
        P2_pin_is_kept = (memory[FLOOR] <= pinned &&
                          memory[DATA(BLOCK_OF(root), 0)] == pinned &&
                          memory[DATA(BLOCK_OF(root), 1)] == pinned);
        assert(P2_pin_is_kept);
#endif
        pinned = 0; root = 0; first = 0; second = 0; floor = 0
    }
    store(PIN(_pid), 0);
    goto again
}

DRAINS
