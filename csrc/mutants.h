/*
 * mutants.h - essential steps of the protocols, removable in a test build.
 *
 * A test that was never seen to fail proves little. Each step below can be removed
 * with -DSHMC_MUTANT_<name>; the test listed with it must then turn red. Without such
 * a flag the macros are the plain code.
 *
 *   SHMC_UNLESS(NAME, statement)    the statement, unless its mutant is built
 *   SHMC_CHECKED(NAME, condition)   the condition, or true if its mutant is built
 *
 *   NO_READER_FENCE  full fence after storing a pin or announcing sleep
 *   NO_WRITER_FENCE  full fence between a publication and scanning SEATS
 *   NO_STAMP_CHECK   second check of a slot's stamp
 *   NO_ROOT_CHECK    latest < g + 7 after a root slot was copied
 *   NO_ROOT_FIRST    a root is written before latest names it
 *   NO_RETIRE_WAIT   retired blocks wait for the pins that may lead to them
 *   NO_EXACT_WAIT    for all pins below the retire generation, including the one just before it
 *   NO_BIRTH_WAIT    as long as one of these pins is not older than the block
 *   NO_EXACT_BIRTH   including the pin of its birth
 *   NO_BIRTH_SHIFT   births are renumbered before their bits are used up
 *   NO_FLOOR_RAISE   the floor rises before a block is used again
 *   NO_LIMBO_STEP    one call visits a bounded number of blocks
 *   NO_REAP_STEP     one call tries a bounded number of locks of seats
 *   NO_KEEP          a pin below the floor that counts is in kept
 *   NO_LET_GO        and leaves it before the blocks that it needed are used again
 *   NO_PIN_OPEN      a slot of a seat that younger generations share is open
 *   NO_FLOOR_CHECK   the floor is checked after a value was copied
 *   NO_UNDO          an aborted batch gives back everything it took
 *   NO_TABLE_REMOVE  a value whose count falls to zero leaves the table of equals
 *   NO_FORGET_NOTE   a block records that the table of equals forgot it
 *   NO_FORGET_START  and it forgets in an order in which all remaining entries find a bucket
 *   NO_NEW_KEPT      entries added since it last forgot stay in the table of equals
 *   NO_KEEP_EQUAL    an object that is equal under other words changes nothing
 *   NO_SIGN_CHECK    members whose texts may be equal are all compared
 *   NO_PATH_FORGET   an insertion or a deletion discards the last look-up's path in the tree
 *   NO_SLOT_COUNT    a slot of the window counts the words that it names
 *   NO_TAIL_DROP     and releases them when the window has passed it
 *   NO_RING_BOUND    an invalid word is not followed into the ring, which may have no memory
 *   NO_WIDEN_COPY    a wider ring has the deltas of the window where they belong in it
 *   NO_WIDEN_SLOTS   and new ones take no slot of the window that is still published
 *   NO_ANNOUNCE      a sleeper announces that it sleeps
 *   NO_RECHECK       and checks once more before it does
 *   NO_RELAY_END     a reader ends the threads of its relays before it goes
 *   NO_POST_COUNT    a post changes the word that a sleeper is about to wait on for good
 *   NO_BLOCK_ESCAPES a stored string that JSON escapes is never compared with raw text
 *   NO_KEY_ESCAPES   nor is a stored key of a few bytes
 *   NO_SEEN_BIRTH    a text is recognised only while the block made from it exists
 *   NO_SEEN_FORGET   and no other block got its offset in the same generation
 *   NO_SKIM_CARRY    a backslash at the end of a piece escapes the next one's first byte
 *   NO_TAKEOVER_COUNT a block that a takeover meets again is counted again
 *   NO_TAKEOVER_STAMP a takeover does not count a slot without its stamp as a delta
 *   NO_TAKEOVER_WAKE a takeover wakes the sleepers that the dead writer may have left
 *   NO_INHERIT_WAIT  blocks that the dead writer's last root does not reach wait for older pins
 *   NO_GUARD         nobody takes over while a writer holds the lock of another file
 *   NO_SEATS_GUARD   truncating SEATS while their header is read does not end the process
 *   NO_ADD_FENCE     full fence before an add checks whether the key is dirty already
 *                    (spin/queue.pml catches it; no C test does on x86, where a locked instruction
 *                    is never far)
 *   NO_EXCHANGE_FENCE full fence after an exchange, where the processor makes no such (test_fences.py
 *                    catches it in the instructions for aarch64; no C test does on x86)
 *   NO_TICKET        a key that becomes queued gets a ticket
 *   NO_QUEUE_POST    and wakes a sleeping worker
 *   NO_STATE_CHECK   a ticket leads to a key only if the key is queued
 *   NO_HOLD_CHECK    done() ends only its own holding
 *   NO_GIVE_BACK     the keys that a dead worker held become dirty
 *   NO_LIFE_LOCK     a worker whose seat was overwritten still lives if the kernel's lock shows it
 *   NO_RIVAL_CHECK   a new key is searched for once more before it becomes known
 *   NO_CONFIRM       a delay that was set changes an idle word, so that its slot is not retired
 *   NO_DELAY_END     a delay is over before the key that it fires has its ticket
 *   NO_ONE_TICKET    a key that is handed out loses its delay, and one that will be gets none
 *   NO_SPILL         a key that finds no room for its ticket is remembered
 *   NO_STEP_CLAIM    memory of a step is given back only when all of its slots are claimed
 *   NO_STEP_FLOOR    no version and no life comes back in a step that had no memory meanwhile
 *   NO_STEP_CHECK    a slot that was claimed in a hole is invalid
 *   NO_STEP_HEIR     a step whose owner died is given back by another worker
 *   NO_LEVEL_ALONE   memory of the index is given back by a worker that has the queue to itself
 *   NO_LEVEL_COUNT   and the next worker that needs it gets memory for it
 *   NO_LAMP          a worker that sleeps lights its lamp
 *   NO_WITHDRAWAL    withdraws what was promised for it since it came
 *   NO_QUEUE_RECHECK and checks for tickets once more before it does
 *   NO_DUE_RECHECK   and for a due time earlier than the one that it expects
 *   NO_REVOCATION    a promise for a worker whose lamp was out already is revoked
 */
#ifndef SHMC_MUTANTS_H
#define SHMC_MUTANTS_H

#define SHMC_UNLESS(name, statement)                                                              \
    do {                                                                                          \
        if (SHMC_KEEP_##name) {                                                                   \
            statement;                                                                            \
        }                                                                                         \
    } while (0)
#define SHMC_CHECKED(name, condition) (!SHMC_KEEP_##name || (condition))

#ifdef SHMC_MUTANT_NO_READER_FENCE
#define SHMC_KEEP_NO_READER_FENCE 0
#else
#define SHMC_KEEP_NO_READER_FENCE 1
#endif
#ifdef SHMC_MUTANT_NO_WRITER_FENCE
#define SHMC_KEEP_NO_WRITER_FENCE 0
#else
#define SHMC_KEEP_NO_WRITER_FENCE 1
#endif
#ifdef SHMC_MUTANT_NO_BLOCK_ESCAPES
#define SHMC_KEEP_NO_BLOCK_ESCAPES 0
#else
#define SHMC_KEEP_NO_BLOCK_ESCAPES 1
#endif
#ifdef SHMC_MUTANT_NO_KEY_ESCAPES
#define SHMC_KEEP_NO_KEY_ESCAPES 0
#else
#define SHMC_KEEP_NO_KEY_ESCAPES 1
#endif
#ifdef SHMC_MUTANT_NO_SEEN_BIRTH
#define SHMC_KEEP_NO_SEEN_BIRTH 0
#else
#define SHMC_KEEP_NO_SEEN_BIRTH 1
#endif
#ifdef SHMC_MUTANT_NO_SEEN_FORGET
#define SHMC_KEEP_NO_SEEN_FORGET 0
#else
#define SHMC_KEEP_NO_SEEN_FORGET 1
#endif
#ifdef SHMC_MUTANT_NO_SKIM_CARRY
#define SHMC_KEEP_NO_SKIM_CARRY 0
#else
#define SHMC_KEEP_NO_SKIM_CARRY 1
#endif
#ifdef SHMC_MUTANT_NO_STAMP_CHECK
#define SHMC_KEEP_NO_STAMP_CHECK 0
#else
#define SHMC_KEEP_NO_STAMP_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_ROOT_CHECK
#define SHMC_KEEP_NO_ROOT_CHECK 0
#else
#define SHMC_KEEP_NO_ROOT_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_ROOT_FIRST
#define SHMC_KEEP_NO_ROOT_FIRST 0
#else
#define SHMC_KEEP_NO_ROOT_FIRST 1
#endif

#ifdef SHMC_MUTANT_NO_RETIRE_WAIT
#define SHMC_KEEP_NO_RETIRE_WAIT 0
#else
#define SHMC_KEEP_NO_RETIRE_WAIT 1
#endif
#ifdef SHMC_MUTANT_NO_FLOOR_CHECK
#define SHMC_KEEP_NO_FLOOR_CHECK 0
#else
#define SHMC_KEEP_NO_FLOOR_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_UNDO
#define SHMC_KEEP_NO_UNDO 0
#else
#define SHMC_KEEP_NO_UNDO 1
#endif
#ifdef SHMC_MUTANT_NO_ANNOUNCE
#define SHMC_KEEP_NO_ANNOUNCE 0
#else
#define SHMC_KEEP_NO_ANNOUNCE 1
#endif
#ifdef SHMC_MUTANT_NO_RECHECK
#define SHMC_KEEP_NO_RECHECK 0
#else
#define SHMC_KEEP_NO_RECHECK 1
#endif
#ifdef SHMC_MUTANT_NO_RELAY_END
#define SHMC_KEEP_NO_RELAY_END 0
#else
#define SHMC_KEEP_NO_RELAY_END 1
#endif
#ifdef SHMC_MUTANT_NO_POST_COUNT
#define SHMC_KEEP_NO_POST_COUNT 0
#else
#define SHMC_KEEP_NO_POST_COUNT 1
#endif
#ifdef SHMC_MUTANT_NO_EXACT_WAIT
#define SHMC_KEEP_NO_EXACT_WAIT 0
#else
#define SHMC_KEEP_NO_EXACT_WAIT 1
#endif
#ifdef SHMC_MUTANT_NO_FLOOR_RAISE
#define SHMC_KEEP_NO_FLOOR_RAISE 0
#else
#define SHMC_KEEP_NO_FLOOR_RAISE 1
#endif
#ifdef SHMC_MUTANT_NO_TABLE_REMOVE
#define SHMC_KEEP_NO_TABLE_REMOVE 0
#else
#define SHMC_KEEP_NO_TABLE_REMOVE 1
#endif
#ifdef SHMC_MUTANT_NO_FORGET_NOTE
#define SHMC_KEEP_NO_FORGET_NOTE 0
#else
#define SHMC_KEEP_NO_FORGET_NOTE 1
#endif
#ifdef SHMC_MUTANT_NO_FORGET_START
#define SHMC_KEEP_NO_FORGET_START 0
#else
#define SHMC_KEEP_NO_FORGET_START 1
#endif
#ifdef SHMC_MUTANT_NO_NEW_KEPT
#define SHMC_KEEP_NO_NEW_KEPT 0
#else
#define SHMC_KEEP_NO_NEW_KEPT 1
#endif
#ifdef SHMC_MUTANT_NO_PATH_FORGET
#define SHMC_KEEP_NO_PATH_FORGET 0
#else
#define SHMC_KEEP_NO_PATH_FORGET 1
#endif
#ifdef SHMC_MUTANT_NO_KEEP_EQUAL
#define SHMC_KEEP_NO_KEEP_EQUAL 0
#else
#define SHMC_KEEP_NO_KEEP_EQUAL 1
#endif
#ifdef SHMC_MUTANT_NO_SIGN_CHECK
#define SHMC_KEEP_NO_SIGN_CHECK 0
#else
#define SHMC_KEEP_NO_SIGN_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_SLOT_COUNT
#define SHMC_KEEP_NO_SLOT_COUNT 0
#else
#define SHMC_KEEP_NO_SLOT_COUNT 1
#endif
#ifdef SHMC_MUTANT_NO_TAIL_DROP
#define SHMC_KEEP_NO_TAIL_DROP 0
#else
#define SHMC_KEEP_NO_TAIL_DROP 1
#endif
#ifdef SHMC_MUTANT_NO_RING_BOUND
#define SHMC_KEEP_NO_RING_BOUND 0
#else
#define SHMC_KEEP_NO_RING_BOUND 1
#endif
#ifdef SHMC_MUTANT_NO_WIDEN_COPY
#define SHMC_KEEP_NO_WIDEN_COPY 0
#else
#define SHMC_KEEP_NO_WIDEN_COPY 1
#endif
#ifdef SHMC_MUTANT_NO_WIDEN_SLOTS
#define SHMC_KEEP_NO_WIDEN_SLOTS 0
#else
#define SHMC_KEEP_NO_WIDEN_SLOTS 1
#endif
#ifdef SHMC_MUTANT_NO_TAKEOVER_COUNT
#define SHMC_KEEP_NO_TAKEOVER_COUNT 0
#else
#define SHMC_KEEP_NO_TAKEOVER_COUNT 1
#endif
#ifdef SHMC_MUTANT_NO_TAKEOVER_STAMP
#define SHMC_KEEP_NO_TAKEOVER_STAMP 0
#else
#define SHMC_KEEP_NO_TAKEOVER_STAMP 1
#endif
#ifdef SHMC_MUTANT_NO_TAKEOVER_WAKE
#define SHMC_KEEP_NO_TAKEOVER_WAKE 0
#else
#define SHMC_KEEP_NO_TAKEOVER_WAKE 1
#endif
#ifdef SHMC_MUTANT_NO_LIMBO_STEP
#define SHMC_KEEP_NO_LIMBO_STEP 0
#else
#define SHMC_KEEP_NO_LIMBO_STEP 1
#endif
#ifdef SHMC_MUTANT_NO_REAP_STEP
#define SHMC_KEEP_NO_REAP_STEP 0
#else
#define SHMC_KEEP_NO_REAP_STEP 1
#endif
#ifdef SHMC_MUTANT_NO_INHERIT_WAIT
#define SHMC_KEEP_NO_INHERIT_WAIT 0
#else
#define SHMC_KEEP_NO_INHERIT_WAIT 1
#endif
#ifdef SHMC_MUTANT_NO_GUARD
#define SHMC_KEEP_NO_GUARD 0
#else
#define SHMC_KEEP_NO_GUARD 1
#endif
#ifdef SHMC_MUTANT_NO_SEATS_GUARD
#define SHMC_KEEP_NO_SEATS_GUARD 0
#else
#define SHMC_KEEP_NO_SEATS_GUARD 1
#endif
#ifdef SHMC_MUTANT_NO_ADD_FENCE
#define SHMC_KEEP_NO_ADD_FENCE 0
#else
#define SHMC_KEEP_NO_ADD_FENCE 1
#endif
#ifdef SHMC_MUTANT_NO_EXCHANGE_FENCE
#define SHMC_KEEP_NO_EXCHANGE_FENCE 0
#else
#define SHMC_KEEP_NO_EXCHANGE_FENCE 1
#endif
#ifdef SHMC_MUTANT_NO_TICKET
#define SHMC_KEEP_NO_TICKET 0
#else
#define SHMC_KEEP_NO_TICKET 1
#endif
#ifdef SHMC_MUTANT_NO_QUEUE_POST
#define SHMC_KEEP_NO_QUEUE_POST 0
#else
#define SHMC_KEEP_NO_QUEUE_POST 1
#endif
#ifdef SHMC_MUTANT_NO_STATE_CHECK
#define SHMC_KEEP_NO_STATE_CHECK 0
#else
#define SHMC_KEEP_NO_STATE_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_HOLD_CHECK
#define SHMC_KEEP_NO_HOLD_CHECK 0
#else
#define SHMC_KEEP_NO_HOLD_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_GIVE_BACK
#define SHMC_KEEP_NO_GIVE_BACK 0
#else
#define SHMC_KEEP_NO_GIVE_BACK 1
#endif
#ifdef SHMC_MUTANT_NO_RIVAL_CHECK
#define SHMC_KEEP_NO_RIVAL_CHECK 0
#else
#define SHMC_KEEP_NO_RIVAL_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_CONFIRM
#define SHMC_KEEP_NO_CONFIRM 0
#else
#define SHMC_KEEP_NO_CONFIRM 1
#endif
#ifdef SHMC_MUTANT_NO_DELAY_END
#define SHMC_KEEP_NO_DELAY_END 0
#else
#define SHMC_KEEP_NO_DELAY_END 1
#endif
#ifdef SHMC_MUTANT_NO_ONE_TICKET
#define SHMC_KEEP_NO_ONE_TICKET 0
#else
#define SHMC_KEEP_NO_ONE_TICKET 1
#endif
#ifdef SHMC_MUTANT_NO_SPILL
#define SHMC_KEEP_NO_SPILL 0
#else
#define SHMC_KEEP_NO_SPILL 1
#endif
#ifdef SHMC_MUTANT_NO_STEP_CLAIM
#define SHMC_KEEP_NO_STEP_CLAIM 0
#else
#define SHMC_KEEP_NO_STEP_CLAIM 1
#endif
#ifdef SHMC_MUTANT_NO_STEP_FLOOR
#define SHMC_KEEP_NO_STEP_FLOOR 0
#else
#define SHMC_KEEP_NO_STEP_FLOOR 1
#endif
#ifdef SHMC_MUTANT_NO_STEP_CHECK
#define SHMC_KEEP_NO_STEP_CHECK 0
#else
#define SHMC_KEEP_NO_STEP_CHECK 1
#endif
#ifdef SHMC_MUTANT_NO_STEP_HEIR
#define SHMC_KEEP_NO_STEP_HEIR 0
#else
#define SHMC_KEEP_NO_STEP_HEIR 1
#endif
#ifdef SHMC_MUTANT_NO_LEVEL_ALONE
#define SHMC_KEEP_NO_LEVEL_ALONE 0
#else
#define SHMC_KEEP_NO_LEVEL_ALONE 1
#endif
#ifdef SHMC_MUTANT_NO_LEVEL_COUNT
#define SHMC_KEEP_NO_LEVEL_COUNT 0
#else
#define SHMC_KEEP_NO_LEVEL_COUNT 1
#endif
#ifdef SHMC_MUTANT_NO_LAMP
#define SHMC_KEEP_NO_LAMP 0
#else
#define SHMC_KEEP_NO_LAMP 1
#endif
#ifdef SHMC_MUTANT_NO_DUE_RECHECK
#define SHMC_KEEP_NO_DUE_RECHECK 0
#else
#define SHMC_KEEP_NO_DUE_RECHECK 1
#endif
#ifdef SHMC_MUTANT_NO_REVOCATION
#define SHMC_KEEP_NO_REVOCATION 0
#else
#define SHMC_KEEP_NO_REVOCATION 1
#endif
#ifdef SHMC_MUTANT_NO_WITHDRAWAL
#define SHMC_KEEP_NO_WITHDRAWAL 0
#else
#define SHMC_KEEP_NO_WITHDRAWAL 1
#endif
#ifdef SHMC_MUTANT_NO_QUEUE_RECHECK
#define SHMC_KEEP_NO_QUEUE_RECHECK 0
#else
#define SHMC_KEEP_NO_QUEUE_RECHECK 1
#endif
#ifdef SHMC_MUTANT_NO_BIRTH_WAIT
#define SHMC_KEEP_NO_BIRTH_WAIT 0
#else
#define SHMC_KEEP_NO_BIRTH_WAIT 1
#endif
#ifdef SHMC_MUTANT_NO_EXACT_BIRTH
#define SHMC_KEEP_NO_EXACT_BIRTH 0
#else
#define SHMC_KEEP_NO_EXACT_BIRTH 1
#endif
#ifdef SHMC_MUTANT_NO_BIRTH_SHIFT
#define SHMC_KEEP_NO_BIRTH_SHIFT 0
#else
#define SHMC_KEEP_NO_BIRTH_SHIFT 1
#endif
#ifdef SHMC_MUTANT_NO_KEEP
#define SHMC_KEEP_NO_KEEP 0
#else
#define SHMC_KEEP_NO_KEEP 1
#endif
#ifdef SHMC_MUTANT_NO_LET_GO
#define SHMC_KEEP_NO_LET_GO 0
#else
#define SHMC_KEEP_NO_LET_GO 1
#endif
#ifdef SHMC_MUTANT_NO_LIFE_LOCK
#define SHMC_KEEP_NO_LIFE_LOCK 0
#else
#define SHMC_KEEP_NO_LIFE_LOCK 1
#endif
#ifdef SHMC_MUTANT_NO_PIN_OPEN
#define SHMC_KEEP_NO_PIN_OPEN 0
#else
#define SHMC_KEEP_NO_PIN_OPEN 1
#endif

#endif
