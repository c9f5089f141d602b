/*
 * pywheretest.h - one test of a selector: a path, an operator and the values that it accepts.
 */
#ifndef SHMC_PYWHERETEST_H
#define SHMC_PYWHERETEST_H

#include "python/pyhot.h"

struct shmc_wheretext {
    const uint8_t *at; /* in a str of the source; NULL: [*] */
    size_t length;
};

struct shmc_wheretest {
    unsigned op; /* of the operators in pywheretest.c */
    size_t path_length, value_count;
    struct shmc_wheretext *path, *values;
    int64_t bound; /* of gt and lt */
};

/* The texts of a tuple of str, or of None; they live in it. -1 with an exception set. */
int shmc_wheretexts_parse(PyObject *tuple, struct shmc_wheretext **texts, size_t *count);
/* A test from (path, operator, values). -1 with an exception set; to be freed in either case. */
int shmc_wheretest_parse(PyObject *item, struct shmc_wheretest *test);
void shmc_wheretest_free(struct shmc_wheretest *test);
/* Whether the value that a head led to passes. */
bool shmc_wheretest_passes(const struct shmc_span *span, shmc_word word,
                           const struct shmc_wheretest *test);

#endif
