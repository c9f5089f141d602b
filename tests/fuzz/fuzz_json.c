/*
 * Any two texts, the second read next to the first (the first NUL divides them): the
 * properties of json_properties.h hold, and the core's invariants after that.
 */
#include "json_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static struct core core;
static struct shmc_parser parser;
static uint64_t rounds;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (rounds++ == 0) {
        core_create(&core, (struct core_options){.size = 8 << 20});
        shmc_parser_init(&parser, core.writer);
    }
    const uint8_t *const border = length > 0 ? memchr(bytes, 0, length) : NULL;
    check_texts(&core, &parser, bytes, length, border != NULL ? (size_t)(border - bytes) : 0);
    if (rounds % 256 == 0)
        core_check(&core);
    return 0;
}
