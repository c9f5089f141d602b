/*
 * grow.pml - one slot of one step of queuesteps.c: its memory comes and goes, and no key with it.
 *
 * A worker that wants a slot reads the step, loads the slot's word, claims it by an exchange, and
 * checks both once more. Then it writes its key. Another worker gives the step back: it claims the
 * slot, owns the step by an exchange, punches it (the word reads as zero then), and lets it go. A
 * third one opens it again. The one that gives back may die at any step; its heirs, once its lock
 * can be taken, free its claim, or own the step and punch it.
 *
 * All words change by compare-exchange, but for the opener's store into a slot that is its own: so
 * no store buffer matters, and the model has none. Versions are left out: a claim of a word that
 * came back is one more behaviour, not one less.
 *
 * Invariants
 *   GROW1  a step that is punched holds no key, and nobody is about to write one (STEP2).
 *   GROW2  a claimed slot belongs to one worker, and has memory (STEP5).
 *
 * Mutants: NO_STEP_CHECK (no second look), NO_WORD_CHECK (the second look is at the step only),
 * NO_STEP_CLAIM (the step is owned without a claim of its slot), NO_HEIR (an heir punches what the
 * dead one owned without owning it).
 */
#define GONE 0
#define THERE 1
#define OWNED(p) (2 + (p))

#define HOLE 0
#define FREE 1
#define KNOWN 2
#define CLAIMED(p) (3 + (p))

#define WORKERS 2
#define GIVER 2
#define TURNS 2

byte step = THERE;
byte word = FREE;
byte inside;      /* workers that are sure of their claim */
bool giver_dead;
byte opened;

hidden byte GROW1_no_key_is_punched;
hidden byte GROW2_a_slot_is_one_workers;

inline punch()
{
    atomic {
        GROW1_no_key_is_punched = (word != KNOWN && inside == 0);
        assert(GROW1_no_key_is_punched);
        word = HOLE
    }
}

active [WORKERS] proctype Worker()
{
    byte found, turn;

    do
    :: turn < TURNS ->
        turn++;
        if
        :: step == THERE -> skip
        :: else -> goto next
        fi;
        atomic { found = word };
        if
        :: found == FREE || found == HOLE -> skip
        :: else -> goto next
        fi;
        atomic {
            if
            :: word == found -> word = CLAIMED(_pid)
            :: else -> goto next
            fi
        };
#ifndef NO_STEP_CHECK
        if
        :: step == THERE -> skip
        :: else -> goto undo
        fi;
#ifndef NO_WORD_CHECK
        if
        :: word == CLAIMED(_pid) -> skip
        :: else -> goto undo
        fi;
#endif
#endif
        atomic {
            inside++;
            GROW2_a_slot_is_one_workers = (inside == 1 && step == THERE);
            assert(GROW2_a_slot_is_one_workers)
        };
        atomic {
            inside--;
            if
            :: word == CLAIMED(_pid) -> word = KNOWN
            :: else
            fi
        };
        goto next;
undo:
        atomic {
            if
            :: word == CLAIMED(_pid) -> word = found
            :: else
            fi
        };
next:
        skip
    :: else -> break
    od
}

active proctype Giver()
{
    byte found;

    if
    :: step == THERE -> skip
    :: else -> goto over
    fi;
#ifndef NO_STEP_CLAIM
    atomic { found = word }; /* an idle key loses its slot */
    if
    :: found == FREE || found == KNOWN -> skip
    :: else -> goto over
    fi;
    atomic {
        if
        :: word == found -> word = CLAIMED(GIVER)
        :: else -> goto over
        fi
    };
    if
    :: giver_dead = true; goto over
    :: skip
    fi;
#endif
    atomic {
        if
        :: step == THERE -> step = OWNED(GIVER)
        :: else -> goto over
        fi
    };
    if
    :: giver_dead = true; goto over
    :: skip
    fi;
    punch();
    if
    :: giver_dead = true; goto over
    :: skip
    fi;
    step = GONE;
over:
    skip
}

active [2] proctype Heir()
{
end:
    giver_dead;
    if
    :: step == OWNED(GIVER) ->
#ifndef NO_HEIR
        atomic {
            if
            :: step == OWNED(GIVER) -> step = OWNED(_pid)
            :: else -> goto over
            fi
        };
#endif
        punch();
        step = GONE
    :: step == THERE ->
        atomic {
            if
            :: word == CLAIMED(GIVER) -> word = FREE
            :: else
            fi
        }
    :: else -> skip
    fi;
over:
    skip
}

active proctype Opener()
{
    do
    :: atomic { step == GONE && opened < 2 -> step = OWNED(_pid); opened++ };
        word = FREE; /* nobody else's: a claim in the hole is stored over */
        step = THERE
    :: timeout -> break
    od
}
