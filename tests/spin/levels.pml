/*
 * levels.pml - a level of the queue's index: its memory comes with the first step that needs it, and
 * goes when a worker opens the queue alone.
 *
 * A worker opens the queue: it takes byte OPEN, and its seat. If no other seat is locked and no step
 * needs the level, it lowers the count of levels and punches the level. Then it works: it opens a
 * step, which gets memory for the level where the count is too low, writes an entry, and finds its
 * key by it. It may retire the key and give the step back, and it may leave, or die at any step;
 * the kernel drops its locks.
 *
 * All words change by exchanges or are the owner's, so no store buffer matters, and the model has
 * none. A worker that leaves touches no level after it has marked its seat: here it is gone then.
 *
 * Invariants
 *   LEVEL1  an entry is written only where there is memory (STEP3).
 *   LEVEL2  a known key has its entry (QUEUE7, STEP7).
 *
 * Mutants: NO_OPEN (no turn is taken to open), NO_ALONE (others are not looked for), NO_COUNT (the
 * count of levels stays), NO_NEED (steps are not looked for).
 */
#define GONE 0
#define THERE 1
#define OWNED(p) (2 + (p))
#define FREE 255
#define WORKERS 2
#ifndef TURNS
#define TURNS 2
#endif

byte open = FREE;
bool locked[WORKERS];
byte step = GONE;
byte count = 1;
bool memory, entry, known;

hidden byte LEVEL1_no_entry_in_a_hole;
hidden byte LEVEL2_a_key_is_found;

inline may_die()
{
    if
    :: goto dead
    :: skip
    fi
}

inline give_level_back()
{
#ifndef NO_ALONE
    if
    :: locked[1 - _pid] -> goto opened
    :: else
    fi;
#endif
#ifndef NO_NEED
    if
    :: step != GONE -> goto opened
    :: else
    fi;
#endif
    may_die();
#ifndef NO_COUNT
    count = 1;
#endif
    may_die();
    atomic { memory = false; entry = false };
    may_die()
}

inline open_step()
{
    atomic {
        if
        :: step == GONE -> step = OWNED(_pid)
        :: else -> goto search
        fi
    };
    may_die();
    if
    :: count < 2 ->
        memory = true;
        may_die();
        count = 2
    :: else
    fi;
    may_die();
    step = THERE;
    may_die();
    atomic {
        if
        :: step == THERE && !known ->
            LEVEL1_no_entry_in_a_hole = memory;
            assert(LEVEL1_no_entry_in_a_hole);
            entry = true;
            known = true
        :: else
        fi
    }
}

active [WORKERS] proctype Worker()
{
    byte turn;

    do
    :: turn < TURNS ->
        turn++;
#ifndef NO_OPEN
        atomic { open == FREE -> open = _pid };
#endif
        locked[_pid] = true;
        give_level_back();
opened:
        open = FREE;
        if
        :: open_step()
        :: skip
        fi;
search:
        atomic {
            LEVEL2_a_key_is_found = (!known || entry);
            assert(LEVEL2_a_key_is_found)
        };
        may_die(); /* or it leaves, and the key stays */
        atomic { /* a scan: what the dead owned, or a key that nobody needs */
            if
            :: step == OWNED(1 - _pid) && !locked[1 - _pid] -> step = GONE
            :: step == THERE -> entry = false; known = false; step = OWNED(_pid)
            :: else -> skip
            fi
        };
        may_die();
        atomic {
            if
            :: step == OWNED(_pid) -> step = GONE
            :: else
            fi
        };
dead:
        atomic {
            if
            :: open == _pid -> open = FREE
            :: else
            fi;
            locked[_pid] = false
        }
    :: else -> break
    od
}
