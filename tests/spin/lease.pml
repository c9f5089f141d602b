/*
 * lease.pml - the Lease of election.py: two members, clocks of their own, one record at a server.
 *
 * A member reads the record, and writes itself into it if nobody holds it, if it holds it itself,
 * or if the record did not change for LEASE units of its own clock since it first saw it. Each
 * write carries the version that was read. The holder's term ends RENEW units of its own clock
 * after it sent its last successful write; a release comes after the end of the term.
 *
 * Clocks: of each, only the time that is left until something is known. A tick takes SLOW or FAST
 * units from each clock, as it likes: rates differ by up to LEASE / RENEW. The model has no hours:
 * clocks are never compared.
 *
 * Any step may come late: a member that is stopped, killed or without a network just makes none.
 * A write that a member waits for no longer is on its way still, and arrives whenever it likes.
 *
 * Invariant
 *   LEASEMODEL1  the terms of two members never overlap.
 *
 * Mutants: FROM_ANSWER (the term counts from the answer: ELECT1), FOREIGN_CLOCK (a record is judged
 * by the time that its holder wrote: ELECT2), NO_RESTART (a change does not start the wait again:
 * ELECT2), NO_VERSION (writes carry no version: ELECT3), EQUAL_RECORD (a renewal that changes nothing:
 * ELECT4), RELEASE_FIRST (the release comes before the end of the term: ELECT6), LONG_TERM (the
 * holder goes on for as long as the others wait: TIMES1), NO_CLOCK (a term ends when its holder
 * notices: LEAD1), SUSPENDED (the clock of a stopped holder stands still: boot_seconds()).
 */
#define SLOW 2
#define FAST 3
#define LEASE 6
#ifdef LONG_TERM
#define RENEW 6
#else
#define RENEW 4
#endif
#define NOBODY 2
#define UNKNOWN 3 /* to be read again */
#define MEMBERS 2

#define NONE 0
#define HOLD 1
#define LEAVE 2

/* Of a version, only whether it is that of the record: each write makes all others old. */
#define UNSEEN 0
#define OLD 1
#define CURRENT 2

byte holder = NOBODY;

byte left[MEMBERS];    /* of the term; 0: not the leader */
byte waits[MEMBERS];   /* until the record that was seen expires */
byte sent_left[MEMBERS]; /* of the term that the write under way would give */
byte seen[MEMBERS];    /* the version that was seen last */
byte seen_holder[MEMBERS];

byte asked[MEMBERS];   /* a write under way, and the version that it carries */
byte asked_at[MEMBERS];
bool answered[MEMBERS];
bool done[MEMBERS];
byte late[MEMBERS];    /* another one that nobody waits for any more */
byte late_at[MEMBERS];
#ifdef SUSPENDED
bool stopped;          /* member 0 */
#endif

hidden byte LEASEMODEL1_one_leader;
hidden byte amount; /* scratch within an atomic */
hidden byte written;

inline pass(word)
{
    word = (word > amount -> word - amount : 0)
}

inline age(version)
{
    version = (version == CURRENT -> OLD : version)
}

/* A write that carries an old version has no effect whenever it arrives. */
inline forget(who)
{
#ifdef NO_VERSION
    age(late_at[who])
#else
    late[who] = NONE;
    late_at[who] = 0
#endif
}

inline execute(kind, at, who, success)
{
    if
#ifdef NO_VERSION
    :: true ->
#else
    :: at == CURRENT ->
#endif
        written = (kind == HOLD -> who : NOBODY);
#ifdef EQUAL_RECORD
        if
        :: kind == HOLD && holder == who
        :: else ->
#endif
            age(seen[0]); age(seen[1]);
            age(asked_at[0]); age(asked_at[1]);
            forget(0); forget(1)
#ifdef EQUAL_RECORD
        fi
#endif
        ;
        holder = written;
        at = CURRENT; /* its writer knows the new version */
        success = true
    :: else -> success = false
    fi
}

/* The server: each write in one step, at any time after it was sent. */
active proctype Server()
{
    bool ignored;
    byte who;

end:
    do
    :: atomic {
            who = 0;
            do
            :: who < MEMBERS - 1 -> who++
            :: break
            od;
            if
            :: asked[who] != NONE && !answered[who] ->
                execute(asked[who], asked_at[who], who, done[who]);
                answered[who] = true
            :: late[who] != NONE ->
                execute(late[who], late_at[who], who, ignored);
                late[who] = NONE;
                late_at[who] = 0
            fi;
            who = 0;
            ignored = false
        }
    od
}

inline tick(who)
{
    if
    :: amount = SLOW
    :: amount = FAST
    fi;
#ifdef NO_CLOCK
    left[who] = (left[who] > amount -> left[who] - amount : (left[who] > 0 -> 1 : 0));
#else
#ifdef SUSPENDED
    if
    :: who == 0 && stopped
    :: else -> pass(left[who])
    fi;
#else
    pass(left[who]);
#endif
#endif
    pass(waits[who]);
    pass(sent_left[who])
}

active proctype Time()
{
end:
    do
    :: atomic { tick(0); tick(1); amount = 0 }
    od
}

active [MEMBERS] proctype Member()
{
    byte me = _pid - 2;

end:
    do
    :: atomic { /* read; the answer may come late: waits[] starts when it is here */
            asked[me] == NONE ->
            if
            :: seen[me] != CURRENT ->
#ifdef NO_RESTART
                waits[me] = (seen[me] == UNSEEN -> LEASE : waits[me]);
#else
#ifdef FOREIGN_CLOCK
                waits[me] = (seen[me] == UNSEEN -> 0 : LEASE);
#else
                waits[me] = LEASE;
#endif
#endif
                seen[me] = CURRENT
            :: else
            fi;
            seen_holder[me] = holder;
            if
            :: seen_holder[me] != me -> left[me] = 0 /* ELECT5 */
            :: else
            fi;
            if
            :: seen_holder[me] == me || seen_holder[me] == NOBODY -> waits[me] = 0
            :: else
            fi
        }
    :: atomic { /* write */
            asked[me] == NONE && seen[me] != UNSEEN && seen_holder[me] != UNKNOWN &&
                (seen_holder[me] == me || seen_holder[me] == NOBODY || waits[me] == 0) ->
            asked[me] = HOLD;
            asked_at[me] = seen[me];
            sent_left[me] = RENEW /* ELECT1 */
        }
    :: atomic { /* the work has ended: release */
            asked[me] == NONE && seen_holder[me] == me ->
#ifndef RELEASE_FIRST
            left[me] = 0;
#endif
            asked[me] = LEAVE;
            asked_at[me] = seen[me]
        }
    :: atomic {
            answered[me] ->
            if
            :: done[me] && asked[me] == HOLD ->
#ifdef FROM_ANSWER
                left[me] = RENEW;
#else
                left[me] = sent_left[me];
#endif
                seen[me] = asked_at[me];
                seen_holder[me] = me;
                waits[me] = 0
            :: else -> seen_holder[me] = UNKNOWN
            fi;
            asked[me] = NONE;
            asked_at[me] = 0;
            answered[me] = false;
            done[me] = false;
            sent_left[me] = 0
        }
    :: atomic { /* no answer in time */
            asked[me] != NONE && late[me] == NONE ->
            if
            :: !answered[me] -> late[me] = asked[me]; late_at[me] = asked_at[me]
            :: else
            fi;
            asked[me] = NONE;
            asked_at[me] = 0;
            answered[me] = false;
            done[me] = false;
            sent_left[me] = 0
        }
    od
}

#ifdef SUSPENDED
active proctype Sleeper()
{
end:
    stopped = true
}
#endif

active proctype Watch()
{
end:
    atomic {
        left[0] != 0 && left[1] != 0 ->
        LEASEMODEL1_one_leader = false;
        assert(LEASEMODEL1_one_leader)
    }
}
