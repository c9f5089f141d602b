/*
 * defence.h - what guards a reader against bytes it cannot trust, removable to learn its price.
 *
 *   SHMC_DEFENDED(condition)   the condition; true in a build with -DSHMC_NO_DEFENCE
 *
 * It stands around the rules V1, V2 and V3 of value.h: one relaxed load for each word, offsets and
 * lengths that are checked before they are followed, and the look at the floor after reading. Without
 * them a reader believes whatever stands in DATA, and that nobody uses it again meanwhile. Such a
 * build is made by benchmarks/defence.py, for itself, and says so: `shmcache._hot.defended`.
 */
#ifndef SHMC_DEFENCE_H
#define SHMC_DEFENCE_H

#ifdef SHMC_NO_DEFENCE
#define SHMC_IS_DEFENDED 0
#else
#define SHMC_IS_DEFENDED 1
#endif
#define SHMC_DEFENDED(condition) (!SHMC_IS_DEFENDED || (condition))

#endif
