/*
 * A writer that dies before any one of its stores leaves a cache that can be taken over whole: as
 * it was before the batch, or as it is after it, and nothing in between.
 *
 * The core of this test calls shmc_failpoint() before each store to shared memory. A batch runs in
 * a child process that dies, by SIGKILL, at the n-th of them, for every n; the shared memory that
 * it leaves is taken over here and compared.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "core_fixture.h"

#define SIZE (UINT64_C(384) << 10)

/* A fork under a sanitizer takes long: there only every few stores are tried. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STRIDE 53u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STRIDE 53u
#endif
#endif
#ifndef STRIDE
#define STRIDE 1u
#endif

static struct core core;
static uint64_t left_to_live; /* stores; 0: for ever */
static uint64_t stores;
static uint64_t widest; /* ring taken over */
static const uint8_t *shared;

void shmc_failpoint(const volatile void *about_to_store);
void shmc_failpoint(const volatile void *about_to_store)
{
    const uint8_t *at = (const uint8_t *)(uintptr_t)about_to_store;

    if (at < shared || at >= shared + SIZE)
        return; /* private memory, or seats */
    stores++;
    if (left_to_live != 0 && --left_to_live == 0)
        raise(SIGKILL);
}

/* DATA moves to memory shared with the child. */
static void share(void)
{
    uint8_t *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    memcpy(memory, core.data.base, SIZE);
    free(core.data.base);
    core.data.base = memory;
    shared = memory;
    core_take_over(&core);
}

static uint32_t resource(const char *name)
{
    uint32_t id = 0;

    CHECK_EQUAL(SHMC_OK, shmc_find_resource(core.writer, name, strlen(name), &id));
    return id;
}

static void put(const char *key, unsigned number)
{
    char text[300];

    snprintf(text, sizeof text,
             "{n: %u, text: 'a text of its own %u', labels: {app: 'application-%u'}, list: [%u, 2.5, "
             "'another text %u'], shared: {a: 'the same in all of them'}}",
             number, number, number % 3, number, number % 2);
    CHECK_EQUAL(SHMC_OK, core_put(&core, resource("things"), key, text, "a-version"));
}

/* Everything a batch may do: new objects, changes, deletions, versions, replacements,
 * declarations. */
static void batch(void)
{
    uint32_t number;

    CHECK_EQUAL(SHMC_OK, shmc_replace_begin(core.writer, resource("others")));
    core_begin(&core);
    put("namespace/one", 101);
    put("namespace/new", 102);
    CHECK_EQUAL(SHMC_OK, core_delete(&core, resource("things"), "namespace/two"));
    CHECK_EQUAL(SHMC_OK, shmc_set_version(core.writer, resource("things"), "a later version", 15));
    CHECK_EQUAL(SHMC_OK, shmc_set_state(core.writer, resource("things"), SHMC_SYNCED));
    CHECK_EQUAL(SHMC_OK, shmc_declare_index(core.writer, resource("things"), "n", 1, "n", 1,
                                            &number));
    CHECK_EQUAL(SHMC_OK, shmc_declare_resource(core.writer, "declared", 8, &number));
    CHECK_EQUAL(SHMC_OK, shmc_replace_finish(core.writer, resource("others"), "9", 1));
    core_commit(&core);
}

/* The changes that a writer with another configuration makes to the cache it found. */
static void reshape(void)
{
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, shmc_drop_index(core.writer, resource("things"), "labels", 6));
    CHECK_EQUAL(SHMC_OK, shmc_retire_resource(core.writer, resource("others")));
    core_commit(&core);
}

static uint64_t digest(void)
{
    const struct shmc_span *span = shmc_writer_span(core.writer);
    uint64_t found = core.writer->resource_count * 31 + core.writer->resources[0].now.state * 7 +
                     core.writer->resources[1].now.state;
    struct shmc_cursor cursor;
    struct shmc_entry entry;
    char text[2000];

    for (uint32_t i = 0; i < core.writer->resource_count; i++) {
        const struct shmc_wresource *one = &core.writer->resources[i];
        found = found * 131 + one->now.count + one->now.index_count;
        CHECK_EQUAL(SHMC_OK,
                    shmc_cursor_seek(&cursor, span, &shmc_primary, one->now.primary, NULL, 0));
        while (shmc_cursor_next(&cursor, &entry) == SHMC_OK) {
            core_print(span, entry.words[1], text, sizeof text);
            for (const char *c = text; *c != 0; c++)
                found = shmc_mix(found ^ (uint8_t)*c, UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    return found;
}

/* Lets a child do the batch and die at its n-th store; whether it ended before that. */
static bool die_at(uint64_t number, void (*doing)(void))
{
    int status = 0;
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        left_to_live = number;
        doing();
        _exit(0); /* it had fewer stores */
    }
    CHECK_EQUAL(child, waitpid(child, &status, 0));
    CHECK(WIFEXITED(status) || WTERMSIG(status) == SIGKILL);
    return WIFEXITED(status);
}

static void tend(void)
{
    const struct shmc_note note = {.contact_ns = 1, .events = 1, .bytes = 7};

    CHECK_EQUAL(SHMC_OK, shmc_note(core.writer, 0, &note));
    CHECK_EQUAL(SHMC_OK, shmc_reclaim(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_drop_window(core.writer));
    CHECK_EQUAL(SHMC_OK, shmc_tend(core.writer, test_now_ns()));
}

/* A takeover dies at each of its own stores; the next one finds everything as it was. */
static void take_over_once_more(void)
{
    char what[200];

    CHECK_EQUAL(SHMC_OK, core_try_take_over(&core, what));
}

static void test_death_at_every_store(const char *name, void (*doing)(void), bool changes)
{
    uint8_t *before = malloc(SIZE);
    uint64_t number = 1, as_before = 0, as_after = 0;

    CHECK(before != NULL);
    memcpy(before, core.data.base, SIZE);
    const uint64_t content = digest(), generation = core.writer->generation;
    for (bool ended = false; !ended; number += STRIDE) {
        memcpy(core.data.base, before, SIZE);
        core_take_over(&core);
        ended = die_at(number, doing);
        core_take_over(&core); /* checks: nothing is leaked, torn or miscounted */
        if (core.writer->ring_mask + 1 > widest)
            widest = core.writer->ring_mask + 1;
        const bool same = digest() == content;
        CHECK(same || (changes && core.writer->generation > generation));
        as_before += same;
        as_after += !same;
        core_begin(&core);
        put("namespace/afterwards", 7); /* and it continues */
        core_commit(&core);
        core_check(&core);
    }
    printf("%s: died at up to %" PRIu64 " stores; %" PRIu64 " times as before, %" PRIu64 " as after it\n", name,
           number - STRIDE - 1, as_before, as_after);
    CHECK(as_before > 0 && (as_after > 0) == changes);
    memcpy(core.data.base, before, SIZE);
    core_take_over(&core);
    free(before);
}

int main(void)
{
    test_start("test_failpoints");
    core_create(&core, (struct core_options){.size = SIZE, .ring_slots = 128, .ring_first = 8});
    core_declare(&core, "things");
    core_declare(&core, "others");
    core_index(&core, 0, "labels", "labels");
    for (unsigned i = 0; i < 30; i++) {
        char key[32];
        snprintf(key, sizeof key, "namespace/%u", i);
        core_begin(&core);
        put(i == 0 ? "namespace/one" : i == 1 ? "namespace/two" : key, i);
        core_commit(&core);
    }
    core_begin(&core);
    CHECK_EQUAL(SHMC_OK, core_put(&core, 1, "gone", "{a: 'value that will be replaced'}", NULL));
    core_commit(&core);
    share();
    CHECK_EQUAL(64, core.writer->ring_mask + 1);
    test_death_at_every_store("batch", batch, true);
    CHECK_EQUAL(128, widest); /* the batch widened the ring */
    test_death_at_every_store("reshaping", reshape, true);
    test_death_at_every_store("tending", tend, false);
    test_death_at_every_store("takeover", take_over_once_more, false);
    core_check_nothing_leaked(&core);
    shmc_writer_destroy(core.writer);
    core.writer = NULL;
    munmap(core.data.base, SIZE);
    if (core.seats.fd >= 0)
        close(core.seats.fd);
    free(core.seats.base);
    return 0;
}
