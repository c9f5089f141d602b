/*
 * slots.pml - the table of slots of sharing.py: two members, one slot, a table at a server.
 *
 * A member lists table and Leases, decides by what the list had, and writes the table with the
 * version of the list. The slot is for member 0, if that one lives and is not leaving; else for
 * member 1. List, decision, write and answer come as late as they like. A member works on a key of
 * the slot whenever it may, for as long as it likes.
 *
 * Any member may be killed, and starts again under its name; or makes no step for any time, as one
 * that is stopped or cut off. Switches add more: LATE_WRITES (a write that a member waits for no
 * longer arrives after all), OUTSIDER (somebody deletes Leases), LEAVE (LEAVER leaves; its Lease is
 * GONE then, or RELEASED), CALM (SPREADMODEL2 is checked).
 *
 * The model takes three facts from lease.pml: a renewal is one step, a term ends whenever it likes,
 * and a wait for the end of a Lease ends after the term that the Lease was last seen renewed for.
 * The model has no epochs: these number the writes that it orders.
 *
 * Invariants
 *   SPREADMODEL1  two members never work on the slot at once, each within its own term.
 *   SPREADMODEL2  if nothing goes wrong any more, a member that stays works on the slot after ROUNDS
 *                 looks of each, and members that leave are gone.
 *
 * Mutants: AFTER_TERM (work goes on after the term: SPREAD1), NO_RECHECK (a slot is gained in a term
 * that is over: SPREAD1), NOT_NAMED (a member works on its share without a look at the table:
 * SPREAD1), NO_JOIN (a term begins without a write: SPREAD2), NO_DRAIN (a slot leaves with a key in
 * work: SPREAD3), TAKE_LIVING (a member takes its share from one that lives: SPREAD3), LATE (expired
 * when the answer is here: SPREAD4), NO_VERSION (writes carry no version: SPREAD4), NO_MISSED (an
 * owner without a Lease is dead: SPREAD5), KEEP_MARK (a member that starts again leaves still:
 * SPREAD6), KEEP_DRAINING (a slot that is drained, and stays, is drained on: SPREAD7).
 */
#define NOBODY 2
#define MEMBERS 2
#ifndef ROUNDS
#define ROUNDS 5
#endif

/* a member */
#define UP 0
#define LEAVING 1
#define ENDED 2

/* a Lease */
#define GONE 0
#define RELEASED 1
#define HELD 2

/* the other's Lease, by a member's clock */
#define CHANGED 0 /* since the last list */
#define WAITED 1
#define EXPIRED 2

/* a look */
#define REST 0
#define LISTED 1
#define SENT 2
#define DONE 3

/* the slot, in a member */
#define OTHERS 0
#define OURS 1
#define DRAINING 2

typedef Table {
    byte owner;
    bool marked[MEMBERS] /* as leaving */
}

typedef Member {
    byte state;
    bool term;     /* goes on */
    bool same;     /* and is the one in which the last look began */
    bool joined;   /* the table was written in the term of the last look */
    byte slot;
    bool busy;     /* a worker is in a key */
    byte look;
    byte sight;
    bool other;    /* lives, by the list */
    bool fits;     /* the table has still the version of the list */
    bool moved     /* the write names an owner */
}

Table table;
Table tables[MEMBERS]; /* as listed; then as written */
Table late;            /* a write that nobody waits for any more */
bool late_fits;
byte lease[MEMBERS];
Member members[MEMBERS];

hidden byte SPREADMODEL1_one_worker;
hidden byte SPREADMODEL2_works_again;
hidden byte wanted; /* scratch within an atomic */

#define ME members[me]
#define YOU members[1 - me]
#define MINE tables[me]
#define MAY_WORK(one) (members[one].slot == OURS && members[one].term && members[one].same && \
    members[one].joined)

inline copy(into, from)
{
    into.owner = from.owner;
    into.marked[0] = from.marked[0];
    into.marked[1] = from.marked[1]
}

inline clear(what)
{
    what.owner = 0;
    what.marked[0] = false;
    what.marked[1] = false
}

inline renew(me)
{
    ME.same = ME.same && ME.term;
    ME.term = true;
    lease[me] = HELD;
    YOU.sight = CHANGED
}

inline drop(me)
{
    ME.slot = OTHERS;
    ME.joined = false
}

/* ---- one look ----------------------------------------------------------------------------- */

inline rest(me)
{
    ME.look = REST;
    ME.other = false;
    ME.fits = false;
    ME.moved = false;
    clear(MINE)
}

inline list(me)
{
    ME.joined = ME.joined && ME.same;
    ME.same = true;
    if
#ifdef NO_MISSED
    :: lease[1 - me] == HELD ->
#else
    :: lease[1 - me] == HELD || (lease[1 - me] == GONE && table.owner == 1 - me) ->
#endif
        ME.sight = (ME.sight == CHANGED -> WAITED : ME.sight);
        ME.other = (ME.sight == WAITED)
    :: else -> ME.sight = CHANGED
    fi;
    ME.fits = true;
    copy(MINE, table);
    ME.look = LISTED
}

inline judge(me)
{
#ifdef LATE
    ME.other = ME.other && ME.sight == WAITED;
#endif
    wanted = NOBODY;
    if
    :: ME.other && !MINE.marked[1 - me] -> wanted = 1 - me
    :: else
    fi;
    if
    :: ME.state == UP && !MINE.marked[me] && (me == 0 || wanted == NOBODY) -> wanted = me
    :: else
    fi
}

inline move(me)
{
    if
    :: MINE.owner != me -> ME.slot = OTHERS
    :: MINE.owner == me && ME.slot == OTHERS -> ME.slot = OURS
    :: else
    fi;
#ifdef NOT_NAMED
    ME.slot = (wanted == me && ME.slot == OTHERS -> OURS : ME.slot);
#endif
    if
    :: ME.slot == OURS && wanted != me -> ME.slot = DRAINING
#ifdef NO_DRAIN
    :: ME.slot == DRAINING -> ME.moved = true
#else
    :: ME.slot == DRAINING && !ME.busy -> ME.moved = true /* SPREAD3 */
#endif
#ifdef TAKE_LIVING
    :: ME.state == UP && wanted == me && MINE.owner != me -> ME.moved = true
#else
    :: wanted == me && MINE.owner == 1 - me && !ME.other -> ME.moved = true /* SPREAD4 */
    :: wanted == me && MINE.owner == NOBODY -> ME.moved = true
#endif
    :: else
    fi
}

inline decide(me)
{
    judge(me);
#ifdef NO_JOIN
    if
    :: !ME.joined -> drop(me); ME.joined = true
    :: else
    fi;
    move(me);
    if
    :: !ME.moved && (ME.state == UP || MINE.marked[me]) -> rest(me)
#else
    if
    :: !ME.joined -> drop(me) /* SPREAD2 */
    :: else -> move(me)
    fi;
    if
    :: ME.joined && !ME.moved && (ME.state == UP || MINE.marked[me]) -> rest(me)
#endif
    :: else ->
        MINE.owner = (ME.moved -> wanted : MINE.owner);
        MINE.marked[1 - me] = MINE.marked[1 - me] && ME.other;
#ifdef KEEP_MARK
        MINE.marked[me] = MINE.marked[me] || ME.state == LEAVING;
#else
        MINE.marked[me] = (ME.state == LEAVING); /* SPREAD6 */
#endif
        ME.other = false;
        ME.look = SENT
    fi;
    wanted = 0
}

/* A write that carries an old version has no effect whenever it arrives. */
inline written(what)
{
    copy(table, what);
    members[0].fits = false;
    members[1].fits = false;
#ifndef NO_VERSION
    late_fits = false;
    clear(late)
#endif
}

inline arrive(me)
{
    if
#ifdef NO_VERSION
    :: true ->
#else
    :: !ME.fits -> rest(me)
    :: else ->
#endif
        written(MINE);
        MINE.owner = (MINE.owner == me -> me : NOBODY);
        MINE.marked[0] = false;
        MINE.marked[1] = false;
        ME.look = DONE
    fi
}

inline answer(me)
{
    if
#ifdef NO_RECHECK
    :: true ->
        ME.same = true;
#else
    :: !ME.term || !ME.same -> drop(me)
    :: else ->
#endif
        ME.joined = true;
        if
        :: MINE.owner != me -> ME.slot = OTHERS
#ifndef KEEP_DRAINING
        :: MINE.owner == me && ME.slot == DRAINING && ME.moved -> ME.slot = OURS /* SPREAD7 */
#endif
        :: MINE.owner == me && ME.slot == OTHERS -> ME.slot = OURS
        :: else
        fi
    fi;
    rest(me)
}

/* No answer in time, or nobody is there to hear it. */
inline lose(me)
{
#ifdef LATE_WRITES
    if
    :: ME.look == SENT && !late_fits && ME.fits -> late_fits = true; copy(late, MINE)
    :: else
    fi;
#endif
    rest(me)
}

inline forget(me)
{
    lose(me);
    drop(me);
    ME.term = false;
    ME.same = false;
    ME.busy = false;
    ME.sight = CHANGED
}

inline depart(me)
{
    forget(me);
    ME.state = ENDED;
    lease[me] = LEAVE;
    YOU.sight = CHANGED
}

#ifdef CALM
#define WHEN(condition) (condition) && !calm
bool calm;
#else
#define WHEN(condition) (condition)
#endif

active [MEMBERS] proctype Life()
{
    byte me = _pid;

end:
    do
    :: atomic { WHEN(ME.state != ENDED && (lease[me] != GONE || !ME.term)) -> renew(me) }
    :: atomic {
            WHEN(ME.term) ->
            ME.term = false;
#ifndef AFTER_TERM
            ME.busy = false
#endif
        }
    :: atomic { WHEN(ME.sight == WAITED && !YOU.term) -> ME.sight = EXPIRED }
    :: atomic { WHEN(ME.look == REST && !ME.term && ME.joined) -> drop(me) }
    :: atomic { WHEN(ME.look == REST && ME.term) -> list(me) }
    :: atomic { WHEN(ME.look == LISTED) -> decide(me) }
    :: atomic { WHEN(ME.look == SENT) -> arrive(me) }
    :: atomic { WHEN(ME.look == DONE) -> answer(me) }
    :: atomic { WHEN(ME.look != REST) -> lose(me) }
    :: atomic { WHEN(MAY_WORK(me) && !ME.busy) -> ME.busy = true }
    :: atomic { WHEN(ME.busy) -> ME.busy = false }
#ifdef LEAVE
    :: atomic { WHEN(ME.state == UP && me == LEAVER) -> ME.state = LEAVING }
    :: atomic { WHEN(ME.state == LEAVING && ME.slot == OTHERS && !ME.busy) -> depart(me) }
#endif
    :: atomic { WHEN(true) -> forget(me); ME.state = UP }
    od
}

#ifdef CALM
#define WORKS(one) (members[one].state == UP && MAY_WORK(one))
#define LEAVES(one) (going[one] && members[one].state == LEAVING)
hidden byte going[MEMBERS];
hidden byte round;

inline stop(me)
{
    if
    :: going[me] -> ME.busy = false
    :: else -> forget(me)
    fi;
    ME.sight = (ME.sight == WAITED && !YOU.term -> EXPIRED : ME.sight)
}

inline look_calmly(me)
{
    if
    :: going[me] && ME.state != ENDED ->
        renew(me);
        if
        :: ME.look == REST -> list(me)
        :: else
        fi;
        if
        :: ME.look == LISTED -> decide(me)
        :: else
        fi;
        if
        :: ME.look == SENT -> arrive(me)
        :: else
        fi;
        if
        :: ME.look == DONE -> answer(me)
        :: else
        fi
    :: else
    fi;
    ME.sight = (ME.sight == WAITED && !YOU.term -> EXPIRED : ME.sight)
}

/* One member goes on, or both do, look by look. */
active proctype Calm()
{
end:
    atomic {
        if
        :: members[0].state == UP || members[1].state == UP -> going[0] = true; going[1] = true
        :: members[0].state == UP -> going[0] = true; going[1] = false
        :: members[1].state == UP -> going[0] = false; going[1] = true
        fi;
        calm = true;
        late_fits = false;
        clear(late);
        stop(0);
        stop(1);
        round = 0;
        do
        :: round < ROUNDS ->
            look_calmly(0);
            look_calmly(1);
#ifdef LEAVE
            if
            :: members[LEAVER].state == LEAVING && members[LEAVER].slot == OTHERS ->
                depart(LEAVER)
            :: else
            fi;
#endif
            round++
        :: else -> break
        od;
        round = 0;
        SPREADMODEL2_works_again =
            (WORKS(0) || WORKS(1)) && !LEAVES(0) && !LEAVES(1);
        assert(SPREADMODEL2_works_again)
    }
}
#endif

#ifdef LATE_WRITES
active proctype Network()
{
end:
    do
    :: atomic { WHEN(late_fits) -> written(late) }
    od
}
#endif

#ifdef OUTSIDER
active proctype Outsider()
{
end:
    do
    :: atomic { WHEN(lease[0] != GONE) -> lease[0] = GONE; members[1].sight = CHANGED }
    :: atomic { WHEN(lease[1] != GONE) -> lease[1] = GONE; members[0].sight = CHANGED }
    od
}
#endif

active proctype Watch()
{
end:
    atomic {
        members[0].busy && members[1].busy ->
        SPREADMODEL1_one_worker = false;
        assert(SPREADMODEL1_one_worker)
    }
}
