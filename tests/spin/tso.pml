/*
 * tso.pml - x86-TSO for Promela: one memory, one FIFO store buffer per CPU.
 *
 * A store joins the end of its CPU's buffer; the oldest entry of a buffer moves
 * to memory whenever the CPU's Drain process likes. A load takes the youngest
 * entry for its word in the own buffer, else memory. So loads keep their order,
 * stores keep theirs, and only a load may pass an earlier store. A fence waits
 * until the own buffer is empty; so do locked instructions and system calls.
 *
 * A model defines CPUS and WORDS before it includes this file, starts the CPUS
 * processes that touch memory first (_pid is then the number of the buffer) and
 * ends with DRAINS. SEQUENTIAL takes the buffers away: a control, under which the
 * fences are not needed.
 *
 * Invariant
 *   TSO1  with -DNEVER_FULL, no buffer is ever full. A full buffer delays the next
 *       store, which hides behaviour; where TSO1 holds, a clean run covers
 *       buffers of any length.
 */
#ifndef DEPTH
#define DEPTH 3
#endif

typedef Entry {
    byte word;
    byte value
};

typedef Buffer {
    byte used;
    Entry entry[DEPTH] /* oldest first; zero from used on, so that equal states look equal */
};

byte memory[WORDS];
Buffer buffer[CPUS];

hidden byte at; /* scratch within one d_step, not a part of the state */
hidden byte T1_buffer_has_room;

#define DRAINED(cpu) (buffer[cpu].used == 0)

inline store(w, v)
{
    d_step {
#ifdef SEQUENTIAL
        memory[w] = v
#else
#ifdef NEVER_FULL
        T1_buffer_has_room = (buffer[_pid].used < DEPTH);
        assert(T1_buffer_has_room);
#else
        buffer[_pid].used < DEPTH;
#endif
        buffer[_pid].entry[buffer[_pid].used].word = w;
        buffer[_pid].entry[buffer[_pid].used].value = v;
        buffer[_pid].used++
#endif
    }
}

inline load(w, result)
{
    d_step {
        result = memory[w];
        at = 0;
        do
        :: at < buffer[_pid].used ->
            if
            :: buffer[_pid].entry[at].word == w -> result = buffer[_pid].entry[at].value
            :: else
            fi;
            at++
        :: else -> break
        od
    }
}

inline fence()
{
    DRAINED(_pid)
}

/* A locked instruction. */
inline exchange(w, new, old)
{
    d_step {
        DRAINED(_pid);
        old = memory[w];
        memory[w] = new
    }
}

inline flush(cpu)
{
    d_step {
        buffer[cpu].used > 0;
        memory[buffer[cpu].entry[0].word] = buffer[cpu].entry[0].value;
        buffer[cpu].used--;
        at = 0;
        do
        :: at < buffer[cpu].used ->
            buffer[cpu].entry[at].word = buffer[cpu].entry[at + 1].word;
            buffer[cpu].entry[at].value = buffer[cpu].entry[at + 1].value;
            at++
        :: else -> break
        od;
        buffer[cpu].entry[at].word = 0;
        buffer[cpu].entry[at].value = 0
    }
}

#define DRAINS                     \
    active [CPUS] proctype Drain() \
    {                              \
    end:                           \
        do                         \
        :: flush(_pid - CPUS)      \
        od                         \
    }
