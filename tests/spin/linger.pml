/*
 * linger.pml - the promises of queuelinger.c: nobody is rung, and yet no ticket is slept over.
 *
 * An adder writes tickets. Who has written one looks whether lamps are lit and, if so, whether
 * somebody has promised to look; without a promise it puts a lamp out, makes a promise for its
 * worker, and rings. A worker that comes withdraws its promise, looks, takes a ticket, and passes
 * a ring on if more are left. One that finds nothing lights its lamp, withdraws what was promised
 * for it meanwhile, looks once more, and sleeps; before that it may spin (a promise in a word of its own) or be the reserve, whose sleep ends
 * by itself. A promise that stands may be too old at any time: then it counts for nothing.
 *
 * A step of a process (an atomic) makes at most one access that others can notice.
 *
 * Invariant
 *   J2  when all sleep, not as the reserve, and nobody is about to ring, no ticket is left.
 *
 * Ordering
 *   J4  ticket ▸ full fence ▸ promise  <->  promise withdrawn ▸ full fence ▸ tickets.
 *   W7  ticket ▸ full fence ▸ lamps    <->  lamp ▸ full fence ▸ tickets.
 *
 * Mutants: NO_ADDER_FENCE, NO_COME_FENCE (no fence between withdrawing and looking), COME_LATE (a worker
 * withdraws after its look), NO_PASS_ON (who took a key rings for nobody), LOOK_FIRST (the lamp
 * is lit after the look), NO_WITHDRAW (who goes to sleep leaves its promises as they are).
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef TICKETS
#define TICKETS 3
#endif

#define WRITTEN 0
#define TAKEN 1
#define LAMPS 2
#define COMING 3
#define SPINNING 4
#define WORDS 5
#define CPUS (1 + WORKERS)

#include "tso.pml"

#define ME (_pid) /* workers are 1, 2: the adder is 0 */
#define LAMP(who) (1 << (who))

bool asleep[WORKERS + 1];  /* in deep sleep, on a bell that has not been rung since it was noted */
bool rung[WORKERS + 1];    /* the bell was, since the number was noted */
byte ringing;              /* who is between a ticket and the end of its post */
bool finished;

hidden byte J2_no_ticket_is_slept_over;

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

/* shmc_queue_post(), after the fence */
inline post()
{
    do
    :: load(LAMPS, lamps);
        if
        :: lamps == 0 -> break
        :: else
        fi;
        load(COMING, promise);
        if
        :: promise != 0 -> break
        :: skip /* none, or too old */
        fi;
        load(SPINNING, promise);
        if
        :: promise != 0 -> break
        :: skip
        fi;
        who = (lamps & LAMP(1) -> 1 : 2);
        cas(LAMPS, lamps, lamps & ~LAMP(who), ok);
        if
        :: ok ->
            store(COMING, who);
            atomic { DRAINED(_pid); rung[who] = true; asleep[who] = false }; /* fetch_add, wake */
            break
        :: else
        fi
    od
}

active proctype Adder()
{
    byte written, lamps, promise, who;
    bool ok;

    do
    :: written < TICKETS ->
        written++;
        atomic { ringing++; store(WRITTEN, written) };
#ifndef NO_ADDER_FENCE
        fence();
#endif
        post();
        atomic { ringing-- }
    :: else -> break
    od;
    fence(); /* its next system call */
    finished = true
}

inline withdraw(word)
{
    load(word, promise);
    if
    :: promise == ME -> store(word, 0)
    :: else
    fi
}

/* shmc_queue_come() */
inline come()
{
    withdraw(COMING);
    withdraw(SPINNING);
#ifndef NO_COME_FENCE
    fence()
#else
    skip
#endif
}

inline look()
{
    load(TAKEN, taken);
    load(WRITTEN, written)
}

/* A lamp goes on, or out: an exchange that is repeated until it succeeds. */
inline change_lamp(change)
{
    do
    :: load(LAMPS, lamps);
        cas(LAMPS, lamps, change, ok);
        if
        :: ok -> break
        :: else
        fi
    od
}

inline sleep()
{
    atomic { rung[ME] = false };
#ifdef LOOK_FIRST
    look();
    change_lamp(lamps | LAMP(ME));
#else
    change_lamp(lamps | LAMP(ME));
#ifndef NO_WITHDRAW
    come();
#endif
    fence(); /* W7 */
    look();
#endif
    if
    :: written == taken ->
        atomic {
            if
            :: !rung[ME] -> asleep[ME] = true
            :: else
            fi
        };
end_asleep:
        atomic { !asleep[ME] }
    :: else
    fi;
    change_lamp(lamps & ~LAMP(ME))
}

active [WORKERS] proctype Worker()
{
    byte written, taken, lamps, promise, who;
    bool ok;

begin:
    do
    :: /* shmc_queue_take() */
#ifdef COME_LATE
        look();
        come();
#else
        come();
        look();
#endif
        if
        :: written != taken ->
            cas(TAKEN, taken, taken + 1, ok);
            if
            :: ok ->
#ifndef NO_PASS_ON
                atomic { ringing++ };
                look();
                if
                :: written != taken -> post()
                :: else
                fi;
                atomic { ringing-- }
#else
                skip
#endif
            :: else
            fi
        :: else -> /* shmc_queue_wait() */
            if
            :: store(SPINNING, ME);
                do
                :: look();
                    if
                    :: written != taken -> goto begin
                    :: else
                    fi
                :: break
                od;
                skip
            :: skip
            fi;
            if
            :: load(COMING, promise);
                if
                :: promise == 0 -> /* the reserve: its steps end by themselves */
                    store(COMING, ME);
                    change_lamp(lamps | LAMP(ME));
                    change_lamp(lamps & ~LAMP(ME));
                    if
                    :: goto begin /* needed, or rung */
                    :: skip /* not any more */
                    fi
                :: else
                fi
            :: skip
            fi;
            sleep()
        fi
    od
}

DRAINS

/* Everybody sleeps. */
active proctype Watch()
{
end:
    atomic {
        finished && ringing == 0 && asleep[1] && asleep[WORKERS] && buffer[1].used == 0 &&
            buffer[WORKERS].used == 0 ->
        J2_no_ticket_is_slept_over = (memory[TAKEN] == memory[WRITTEN]);
        assert(J2_no_ticket_is_slept_over)
    }
}
