/*
 * linger.pml - the promises of queuelinger.c: bells stay still, and yet no ticket is slept over.
 *
 * An adder that has written a ticket looks for lit lamps and, if there are any, for a promise to
 * look. Without a promise it makes one for the worker of a lamp, puts the lamp out, and rings.
 * A worker withdraws its promises, looks, takes a ticket, and passes a ring on if more are left.
 * One that finds nothing may spin, or be the reserve; then it lights its lamp, withdraws, looks
 * once more, and sleeps. A sleep may end by itself at any time, and the worker go away. A promise
 * may be too old at any time.
 *
 * The tick is left out: it would mend every error that this model searches for. So is the age of a
 * key's work: a worker that has passed a ring on may be away for ever, and no other relies on it.
 *
 * A look at all tickets is one step: the head only rises, so tickets that are all gone when the
 * tail is loaded were gone at that moment. A step of a process (an atomic) makes at most one access
 * that others can notice.
 *
 * Invariant
 *   LINGER2 of queuelinger.c: while a worker sleeps and nobody is under way, no ticket is left.
 *       Under way: an adder from its ticket to the end of its post; a worker that is rung, spins,
 *       is the reserve, looks, or passes a ring on.
 *
 * Ordering
 *   LINGER4 of queuelinger.c: ticket ▸ full fence ▸ promise  <->  promise withdrawn ▸ full fence ▸ tickets.
 *   LINGER5 of queuelinger.c: promise ▸ lamp put out  <->  own lamp out ▸ promise withdrawn.
 *   QWAIT7 of queuewait.c: ticket ▸ full fence ▸ lamps    <->  lamp ▸ full fence ▸ tickets.
 *
 * Switches
 *   SPIN=w, RESERVE=w   worker w (FIRST, LAST) may spin, or be the reserve.
 *   KILL                worker FIRST may die anywhere. Then LINGER2 holds from the other one's next
 *                       tick on, when the dead one's promises are old and its lamp is out
 *                       (LINGER1).
 *
 * Mutants: NO_ADDER_FENCE, NO_COME_FENCE (none between withdrawing and looking), COME_LATE
 * (withdraws after the look), LOOK_FIRST (lights the lamp after the look), NO_WITHDRAWAL (lies down
 * with its promises), NO_PASS_ON, GO_AT_ONCE (a worker that is stopped or interrupted just goes),
 * PROMISE_LATE (between lamp and bell), PROMISE_LAST (after the bell), KEEP_PROMISE (although the
 * lamp was out already), NO_AGE, NO_REAP.
 */
#ifndef TICKETS
#define TICKETS 2
#endif
#define ADDERS TICKETS
#define WORKERS 2
#define FIRST ADDERS
#define LAST (ADDERS + WORKERS - 1)

#define TICKET(n) (n)
#define COMING TICKETS
#define SPINNING (TICKETS + 1)
#define WORDS (TICKETS + 2)
#define CPUS (ADDERS + WORKERS)

#include "tso.pml"

#define ME _pid
#define LAMP(who) (1 << ((who) - FIRST))
#define PROMISED(who) ((who) + 1)
#if TICKETS == 1
#define ANY_TICKET (memory[TICKET(0)] != 0)
#elif TICKETS == 2
#define ANY_TICKET (memory[TICKET(0)] != 0 || memory[TICKET(1)] != 0)
#else
#define ANY_TICKET (memory[TICKET(0)] != 0 || memory[TICKET(1)] != 0 || memory[TICKET(2)] != 0)
#endif

byte lamps; /* changed by locked instructions only, a bit each: no buffer holds it */
byte begun; /* adders */
bool under_way[CPUS];
byte bell[CPUS]; /* the result of a ring: */
#define UNHEARD 0
#define NOTED 1  /* its number; a ring makes it another one */
#define ASLEEP 2 /* its worker, deeply */

#ifdef KILL
bool dead;       /* the worker FIRST */
bool ticked;     /* and the other one has looked after it */
#define LIVES (_pid != FIRST || !dead)
#define SETTLED (!dead || ticked)
#else
#define LIVES true
#define SETTLED true
#endif
#ifdef NO_REAP
#define REAP skip
#else
#define REAP lamps = lamps & ~LAMP(FIRST)
#endif
#if defined(KILL) && !defined(NO_AGE)
#define MAY_COUNT(promise) ((promise) != 0 && !(ticked && (promise) == PROMISED(FIRST)))
#else
#define MAY_COUNT(promise) ((promise) != 0)
#endif

hidden byte promise; /* scratch within an atomic */
hidden byte J2_no_ticket_is_slept_over;

inline call(who)
{
    d_step {
        DRAINED(ME); /* fetch_add */
        if
        :: bell[who] == ASLEEP -> under_way[who] = true
        :: else
        fi;
        bell[who] = UNHEARD
    }
}

/* shmc_queue_post(). That it relies on promises with all lamps out, too, costs nothing. */
inline post()
{
    do
    :: lamps == 0 -> break
    :: atomic {
            load(COMING, promise);
            if
            :: MAY_COUNT(promise) -> break
            :: true /* or too old */
            fi
        };
#ifdef SPIN
        atomic {
            load(SPINNING, promise);
            if
            :: MAY_COUNT(promise) -> break
            :: true
            fi
        };
#endif
        do
        :: DRAINED(ME) && lamps == 0 -> break
        :: atomic {
                DRAINED(ME) && lamps != 0 ->
                who = (lamps & LAMP(FIRST) -> FIRST : LAST);
#if !defined(PROMISE_LATE) && !defined(PROMISE_LAST)
                store(COMING, PROMISED(who)) /* LINGER5 */
#endif
            };
            if
            :: atomic {
                    (lamps & LAMP(who)) && DRAINED(ME) ->
                    lamps = lamps & ~LAMP(who);
#ifdef PROMISE_LATE
                    store(COMING, PROMISED(who))
#endif
                };
                call(who);
#ifdef PROMISE_LAST
                store(COMING, PROMISED(who));
#endif
                break
            :: atomic {
                    !(lamps & LAMP(who)) ->
                    who = 0;
#if !defined(PROMISE_LATE) && !defined(PROMISE_LAST) && !defined(KEEP_PROMISE)
                    store(COMING, 0)
#endif
                }
            fi
        od;
        break
    od
}

active [ADDERS] proctype Adder()
{
    byte who;

    atomic {
        begun == ME -> /* they are alike: one order stands for all */
        begun++;
        under_way[ME] = true;
        store(TICKET(ME), 1)
    };
#ifndef NO_ADDER_FENCE
    fence();
#endif
    post();
    atomic { under_way[ME] = false; who = 0 }
}

inline withdraw(word)
{
    atomic {
        load(word, promise);
        under_way[ME] = true;
        if
        :: promise == PROMISED(ME) -> store(word, 0); ours = true
        :: else
        fi
    }
}

/* shmc_queue_come() */
inline come()
{
    withdraw(COMING);
#ifdef SPIN
    withdraw(SPINNING);
#endif
    if
#ifdef NO_COME_FENCE
    :: ours = false
#else
    :: atomic { ours && DRAINED(ME) -> ours = false }
    :: !ours
#endif
    fi
}

/* enter() and leave() */
inline light()
{
    atomic { DRAINED(ME) -> lamps = lamps | LAMP(ME); bell[ME] = NOTED }
}

inline leave()
{
    atomic { DRAINED(ME) -> lamps = lamps & ~LAMP(ME); bell[ME] = UNHEARD }
}

active [WORKERS] proctype Worker() provided (LIVES)
{
    byte who;
    bool ours;

take:
#ifdef GO_AT_ONCE
    if
    :: goto away
    :: skip
    fi;
#endif
#ifndef COME_LATE
    come();
#endif
    if
    :: atomic {
            ANY_TICKET && DRAINED(ME) ->
            if
            :: memory[TICKET(0)] != 0 -> memory[TICKET(0)] = 0
#if TICKETS > 1
            :: memory[TICKET(0)] == 0 && memory[TICKET(1)] != 0 -> memory[TICKET(1)] = 0
#endif
            fi;
            goto passing
        }
    :: !ANY_TICKET
#ifndef GO_AT_ONCE
    :: goto passing /* it was stopped, interrupted, or its time is over */
#endif
    fi;
#ifdef COME_LATE
    come();
#endif

#ifdef SPIN
    if
    :: ME == SPIN -> store(SPINNING, PROMISED(ME));
        if
        :: ANY_TICKET -> goto take
        :: skip
        fi
    :: skip
    fi;
#endif
#ifdef RESERVE
    if
    :: atomic {
            ME == RESERVE ->
            load(COMING, promise);
            if
            :: MAY_COUNT(promise) -> goto lie_down
            :: true
            fi;
            store(COMING, PROMISED(ME))
        };
nap:
        light();
        leave(); /* a step has passed, or it was rung */
        if
        :: goto take
        :: store(COMING, PROMISED(ME)); goto nap
        :: skip
        fi
    :: skip
    fi;
lie_down:
#endif
#ifdef LOOK_FIRST
    if
    :: ANY_TICKET -> goto take
    :: !ANY_TICKET
    fi;
    light();
    come();
#else
    light();
#ifndef NO_WITHDRAWAL
    come();
#endif
#endif
    if
#ifdef LOOK_FIRST
    :: DRAINED(ME)
#else
    :: atomic { DRAINED(ME) && ANY_TICKET -> goto up } /* QWAIT7 */
    :: DRAINED(ME) && !ANY_TICKET
#endif
    fi;
    atomic {
        if
        :: bell[ME] == NOTED -> bell[ME] = ASLEEP; under_way[ME] = false
        :: else -> goto up
        fi
    };
    atomic {
        if
        :: bell[ME] == UNHEARD
        :: bell[ME] == ASLEEP -> /* by itself */
            under_way[ME] = true;
            bell[ME] = UNHEARD;
#ifdef KILL
            if
            :: dead -> ticked = true; REAP
            :: else
            fi
#endif
        fi
    };
up:
    leave();
    goto take;

passing:
#ifndef NO_PASS_ON
    if
    :: lamps == 0
    :: !ANY_TICKET
    :: ANY_TICKET -> post()
    fi;
#endif
away:
    atomic { under_way[ME] = false; who = 0; goto take } /* sooner or later, or never */
}

DRAINS

#ifdef KILL
active proctype Killer()
{
end:
    atomic { DRAINED(FIRST) -> dead = true; under_way[FIRST] = false; bell[FIRST] = UNHEARD }
}
#endif

#define AT_REST(cpu) (!under_way[cpu] && DRAINED(cpu))

active proctype Watch()
{
end:
    atomic {
        SETTLED && (bell[FIRST] == ASLEEP || bell[LAST] == ASLEEP) && ANY_TICKET && AT_REST(0) &&
            AT_REST(ADDERS - 1) && AT_REST(FIRST) && AT_REST(LAST) ->
        J2_no_ticket_is_slept_over = false;
        assert(J2_no_ticket_is_slept_over)
    }
}
