/*
 * defence.h - the checks that guard a reader against untrusted bytes, removable to measure their
 * cost.
 *
 *   SHMC_DEFENDED(condition)   the condition; true in a build with -DSHMC_NO_DEFENCE
 *
 * It wraps the rules VALUE1, VALUE2 and VALUE3 of value.h: one relaxed load for each word, offsets
 * and lengths that are checked before they are followed, and the check of the floor after reading.
 * Without them a reader trusts any bytes in DATA, and assumes that they are not reused meanwhile.
 * Only benchmarks/questions/defence.py makes such a build, for itself; it can be recognised by
 * `shmcache._hot.defended`.
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
