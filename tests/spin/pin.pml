/*
 * pin.pml - one writer reuses blocks under readers that pin generations.
 *
 * A generation is a root, the root leads to one block, the block has two words, and the
 * generation that it was born in is written into both: anything else there is torn or reused.
 * A block lives for one generation or for two. The writer publishes GENERATIONS of them out of
 * BLOCKS blocks, so it has to reuse. A block that was replaced waits in limbo; reclaiming (scan
 * the pins, bring kept and the floor up to them, free unneeded blocks) happens after some
 * publications, between them, and when nothing is free. The readers go round for ever, and
 * stop for ever wherever they like.
 *
 * A step of a process (an atomic) makes at most one access that others can notice; a store that
 * only enters the process's own buffer joins the neighbouring step.
 *
 * Invariants
 *   PINMODEL1  a value that a reader accepts is the one its generation published, in both
 *       words, whatever pins were lost, invented or revoked.
 *   PINMODEL2  without REVOKE, once a pin is accepted its block is not overwritten, and the floor
 *       stays at or below it or it is kept, until it is dropped: nobody sees Stale.
 *   PINMODEL3  a root that a reader accepts is the one its generation published.
 *   PINMODEL4  the floor only rises, and never above the published generation.
 *
 * Ordering (each line holds on TSO; only PINORDER1 and PINORDER2 need an instruction for it)
 *   PINORDER1  Reader: pin before recheck of latest   <-> PINORDER2
 *   PINORDER2  Writer: latest before scan of the pins <-> PINORDER1
 *   PINORDER3  Writer: floor before data  <->  Reader: data before floor
 *   PINORDER4  Writer: data, slot, then latest  <->  Reader: latest, slot, then data
 *   PINORDER5  Writer: latest before the slot's next root  <->  Reader: slot before latest
 *   PINORDER6  Reader: moved pin before the quick one changes  <->  Writer: quick before moved
 *   PINORDER7  Writer: entries of kept before the floor  <->  Reader: floor before kept
 *   PINORDER8  Writer: removal from kept before data  <->  Reader: data before kept
 *
 * Switches
 *   REVOKE  the writer may free pinned blocks (garbage_limit). It then ignores any pin
 *           it likes, so this covers pins that are lost or wiped; invented ones free less.
 *   KEEP    a reader may move its pin from the quick slot to the other one, and pin another
 *           generation in the quick slot: shmc_quick_keep().
 *   SHARE   a reader may take a newer root under its old pin, which it opens: all slots
 *           are in use (PINSLOT2 of reader.c).
 *   TAKEOVER=n   the writer may die anywhere, n times. Blocks that the next one finds unreachable
 *           are retired in the latest generation, born before all others.
 *   ENTRIES=n    of kept; fewer than there are pins hold the floor down.
 *
 * Mutants: NO_READER_FENCE, NO_WRITER_FENCE, NO_RECHECK, NO_FLOOR_CHECK, FLOOR_LATE,
 * SLOT_LIMIT=SLOTS, PUBLISH_EARLY, NO_RETIRE_WAIT, RETIRE_EARLY, KEEP_LATE, SCAN_DOWN, BIRTH_LATE,
 * PLACE_LATE, LET_GO_LATE, BACK_AGAIN, NO_CEILING, NOT_OPEN, NO_INHERIT_WAIT, FORGET_KEPT.
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

#ifndef ENTRIES
#define ENTRIES 1
#endif
#ifndef TAKEOVER
#define TAKEOVER 0
#endif

#ifdef KEEP
#define PINS 2
#else
#define PINS 1
#endif
#define OPEN 16 /* in a pin's word */

#define LATEST 0
#define FLOOR 1
#define QUICK(reader) (PINS * (reader) + 2 - PINS) /* readers count from 1; 0: no pin */
#define MOVED(reader) (QUICK(reader) + 1)
#define SLOT(g) (2 + PINS * READERS + (g) % SLOTS)
#define DATA(block, i) (2 + PINS * READERS + SLOTS + 2 * (block) + (i))
#define ENTRY(i) (2 + PINS * READERS + SLOTS + 2 * BLOCKS + (i))
#define WORDS (2 + PINS * READERS + SLOTS + 2 * BLOCKS + ENTRIES)
#define CPUS (1 + READERS)

#include "tso.pml"

#define ROOT(g, block, older) (8 * (g) + 2 * (block) + (older)) /* older: born one before */
#define GENERATION_OF(root) ((root) / 8)
#define BLOCK_OF(root) ((root) / 2 % 4)
#define BORN(root) (GENERATION_OF(root) - (root) % 2)

hidden byte P1_value_is_whole;
hidden byte P2_pin_is_kept;
hidden byte P3_root_is_whole;
hidden byte P4_floor_is_published;

#define FREE(block) (block != live && retired[block] == 0)
#define BIT(g) (1 << (g))
/* The pins of [birth, retired). */
#ifdef BIRTH_LATE
#define FIRST(block) (birth[block] + 1)
#else
#define FIRST(block) birth[block]
#endif
#define NEEDED(block) \
    (FIRST(block) < retired[block] && \
     (pins & (BIT(retired[block]) - BIT(FIRST(block)))) != 0)
#ifdef NO_RETIRE_WAIT
#define IN_REACH(block) (block != live && retired[block] > 0)
#else
#define IN_REACH(block) \
    (block != live && retired[block] > 0 && retired[block] <= floor && !NEEDED(block))
#endif
#if ENTRIES > 1
#define KEPT_HERE(g) (kept[0] == (g) || kept[1] == (g))
#else
#define KEPT_HERE(g) (kept[0] == (g))
#endif

/* shmc_seats_pins(): a pin is acknowledged from floor to latest, or if it is kept. */
inline scan_pin(word)
{
    atomic {
        load(word, pin);
        if
        :: pin % OPEN != 0 && pin % OPEN <= latest &&
#ifndef BACK_AGAIN
           (pin % OPEN >= floor || KEPT_HERE(pin % OPEN))
#else
           true
#endif
           ->
            pins = pins | BIT(pin % OPEN);
            if
            :: pin >= OPEN && pin % OPEN < ceiling -> ceiling = pin % OPEN
            :: else
            fi
        :: else
        fi;
        pin = 0
    }
}

inline scan_pins()
{
    pins = 0;
    ceiling = latest;
    reader = 1;
    do
    :: reader <= READERS ->
#if defined(KEEP) && defined(SCAN_DOWN)
        scan_pin(MOVED(reader));
#endif
        scan_pin(QUICK(reader)); /* PINORDER6 */
#if defined(KEEP) && !defined(SCAN_DOWN)
        scan_pin(MOVED(reader));
#endif
        reader++
    :: else -> break
    od;
    reader = 0
}

/* RECLAIM6, and ceiling_of(): what an open pin may stand for stays; as many below the floor as fit. */
inline bound()
{
    d_step {
        at = 0;
        do
        :: at < ENTRIES ->
            if
            :: kept[at] > ceiling -> pins = pins | BIT(kept[at])
            :: else
            fi;
            at++
        :: else -> break
        od;
#ifndef NO_CEILING
        at = 1;
        reader = 0;
        do
        :: at < ceiling ->
            if
            :: pins & BIT(at) ->
                reader++;
                if
                :: reader > ENTRIES -> ceiling = at; break
                :: else
                fi
            :: else
            fi;
            at++
        :: else -> break
        od;
#endif
        reader = 0;
        at = 0;
        do
        :: at < BLOCKS ->
            if
            :: at != live && retired[at] <= ceiling && retired[at] > floor -> floor = retired[at]
            :: else
            fi;
            at++
        :: else -> break
        od;
        ceiling = 0;
        P4_floor_is_published = (floor <= latest);
        assert(P4_floor_is_published)
    }
}

/* Pins that left kept, then new ones there. */
inline let_go(i)
{
    if
    :: kept[i] != 0 && !(pins & BIT(kept[i])) ->
        store(ENTRY(i), 0);
        kept[i] = 0
    :: else
    fi
}

inline keep()
{
    reader = 1;
    do
    :: reader < floor ->
        if
        :: (pins & BIT(reader)) && !KEPT_HERE(reader) ->
            if
            :: kept[0] == 0 -> store(ENTRY(0), reader); kept[0] = reader
#if ENTRIES > 1
            :: kept[0] != 0 && kept[1] == 0 -> store(ENTRY(1), reader); kept[1] = reader
#endif
            :: else
            fi
        :: else
        fi;
        reader++
    :: else -> break
    od;
    reader = 0
}

inline let_all_go()
{
    let_go(0);
#if ENTRIES > 1
    let_go(1)
#endif
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

inline may_die()
{
#if TAKEOVER > 0
    if
    :: died < TAKEOVER -> goto takeover
    :: true
    fi
#else
    skip
#endif
}

inline free_block(block)
{
    if
    :: IN_REACH(block) -> retired[block] = 0; birth[block] = 0
    :: else
    fi
}

/* shmc_reclaim() */
inline reclaim()
{
#ifndef NO_WRITER_FENCE
    fence(); /* PINORDER2 */
#endif
    scan_pins();
#ifdef REVOKE
    do
    :: pins != 0 && (pins & BIT(lost)) -> pins = pins & ~BIT(lost); lost++
    :: lost < latest -> lost++
    :: break
    od;
    atomic { lost = 0; if :: true -> ceiling = latest :: true fi };
#endif
    bound();
    atomic {
#ifndef LET_GO_LATE
        let_all_go(); /* PINORDER8 */
#endif
        may_die()
    }
    atomic {
#ifndef PLACE_LATE
        keep(); /* PINORDER7 */
#endif
        may_die()
    }
    atomic {
#ifndef FLOOR_LATE
        raise_floor(); /* PINORDER3 */
#endif
#ifdef PLACE_LATE
        keep();
#endif
        d_step {
            free_block(0);
            free_block(1);
#if BLOCKS > 2
            free_block(2);
#endif
            pins = 0
        }
    }
}

/* The root of the next generation, with a block of its own, or the same one again. */
inline publish()
{
    atomic {
        if
        :: next != live ->
            store(DATA(next, 0), latest + 1);
            store(DATA(next, 1), latest + 1)
        :: else
        fi;
#ifdef FLOOR_LATE
        raise_floor();
#endif
#ifdef LET_GO_LATE
        pins = 0;
        let_all_go();
#endif
        may_die();
#ifdef PUBLISH_EARLY
        store(LATEST, latest + 1);
#endif
        store(SLOT(latest + 1), ROOT(latest + 1, next, next == live)); /* PINORDER4, PINORDER5 */
        may_die();
#ifndef PUBLISH_EARLY
        store(LATEST, latest + 1); /* PINORDER4: the release store */
#endif
        if
        :: next != live ->
#ifdef RETIRE_EARLY
            retired[live] = latest;
#else
            retired[live] = latest + 1;
#endif
            birth[next] = latest + 1
        :: else
        fi;
        latest++;
        live = next;
        next = 0
    }
    may_die();
#ifndef NO_WRITER_FENCE
    fence() /* PINORDER2 */
#endif
}

active proctype Writer()
{
    byte latest = 1, live = 0, next = 0, floor = 0, stored = 0, reader = 0, pin = 0;
    byte ceiling = 0, lost = 0, died = 0;
    short pins = 0; /* a bit for each generation */
    byte birth[BLOCKS]; /* the first generation that leads to it */
    byte retired[BLOCKS]; /* the generation whose root no longer reaches it; 0: not in limbo */
    byte kept[ENTRIES];

    d_step {
        memory[DATA(0, 0)] = 1;
        memory[DATA(0, 1)] = 1;
        memory[SLOT(1)] = ROOT(1, 0, 0);
        memory[LATEST] = 1;
        birth[0] = 1
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
            :: birth[live] == latest -> next = live
            fi
        }
        publish()
    od;

#if TAKEOVER > 0
takeover: /* its stores get to memory; its private state is gone */
        fence();
        d_step {
            died++;
            next = 0; reader = 0; pin = 0; pins = 0; ceiling = 0; lost = 0;
            latest = memory[LATEST];
            floor = memory[FLOOR];
            stored = floor;
            live = BLOCK_OF(memory[SLOT(latest)]);
            at = 0;
            do
            :: at < ENTRIES ->
#ifdef FORGET_KEPT
                memory[ENTRY(at)] = 0;
#endif
                kept[at] = memory[ENTRY(at)];
                at++
            :: else -> break
            od;
            at = 0;
            do
            :: at < BLOCKS ->
                birth[at] = (at == live -> BORN(memory[SLOT(latest)]) : 0);
#ifdef NO_INHERIT_WAIT
                retired[at] = 0;
#else
                retired[at] = (at == live -> 0 : latest);
#endif
                at++
            :: else -> break
            od
        }
    goto end
#endif
}

#if ENTRIES > 1
#define KEPT_IN_MEMORY \
    (memory[ENTRY(0)] == GENERATION_OF(root) || memory[ENTRY(1)] == GENERATION_OF(root))
#else
#define KEPT_IN_MEMORY (memory[ENTRY(0)] == GENERATION_OF(root))
#endif

inline copy_root(g) /* latest is scratch */
{
    load(SLOT(g), root); /* PINORDER4 */
    load(LATEST, latest) /* PINORDER5 */
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
    byte pinned = 0, latest = 0, root = 0, first = 0, second = 0, floor = 0, entry = 0;
#ifdef KEEP
    bool moved = false;
#endif

    memory[LATEST] > 0; /* attached */
again:
    atomic {
        latest = 0;
        load(LATEST, pinned);
        store(QUICK(_pid), pinned)
    }
#ifndef NO_READER_FENCE
    fence(); /* PINORDER1 */
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
       load(FLOOR, floor); /* PINORDER3 */
       if
       :: floor > GENERATION_OF(root) ->
           load(ENTRY(0), entry); /* PINORDER7, PINORDER8 */
#if ENTRIES > 1
           if
           :: entry != GENERATION_OF(root) -> load(ENTRY(1), entry)
           :: else
           fi;
#endif
           if
           :: entry == GENERATION_OF(root) -> floor = 0
           :: else
           fi
       :: else
       fi;
#endif
       if
#ifdef REVOKE
       :: floor > GENERATION_OF(root) -> break /* Stale */
#endif
       :: else ->
           d_step {
               P2_pin_is_kept = (floor <= GENERATION_OF(root));
               assert(P2_pin_is_kept);
               P1_value_is_whole = (first == BORN(root) && second == BORN(root));
               assert(P1_value_is_whole);
               first = 0; second = 0; floor = 0; entry = 0
           }
       fi
#ifdef KEEP
    :: !moved ->
#ifndef KEEP_LATE
        atomic { moved = true; store(MOVED(_pid), pinned) } /* PINORDER6 */
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
        atomic { moved = true; store(MOVED(_pid), pinned) }
#endif
#endif
#ifdef SHARE
    :: GENERATION_OF(root) == pinned ->
        atomic {
            load(LATEST, floor); /* floor is scratch here */
#ifndef NOT_OPEN
            store(QUICK(_pid), pinned + OPEN)
#endif
        }
        fence();
        atomic {
            load(LATEST, latest);
            if
            :: latest != floor -> break
            :: else
            fi
        }
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
        P2_pin_is_kept = ((memory[FLOOR] <= GENERATION_OF(root) || KEPT_IN_MEMORY) &&
                          memory[DATA(BLOCK_OF(root), 0)] == BORN(root) &&
                          memory[DATA(BLOCK_OF(root), 1)] == BORN(root));
        assert(P2_pin_is_kept);
#endif
        pinned = 0; root = 0; latest = 0; first = 0; second = 0; floor = 0; entry = 0;
#ifdef KEEP
        moved = false;
        store(MOVED(_pid), 0);
#endif
        store(QUICK(_pid), 0)
    }
    goto again
}

DRAINS
