/*
 * contact.c - the events of a resource's source, and when it was last heard.
 *
 * A notice board next to the cache: the writer changes single figures on it whenever bytes or
 * a bookmark came, without a generation, a wake-up or a copy; a reader looks at it when it
 * wants to know how old the cache may be. See LAYOUT8 of layout.h.
 *
 * Ordering
 *   CONTACTBLOCK1  contact_ns is stored with release, after the publication of everything heard
 *       until then; a reader loads it with acquire before it loads latest. So a reader that sees a
 *       contact reads everything received by then: no result is younger than its data.
 *   CONTACTBLOCK2  counters, behind_ns and stamps are for display: relaxed, each one independent.
 *
 * Progress: neither side waits.
 */
#include "writer/writer.h"

enum shmc_status shmc_contact_alloc(struct shmc_writer *writer, shmc_offset *contact)
{
    const enum shmc_status status =
        shmc_node_alloc(writer, sizeof(struct shmc_contact), contact);

    for (size_t i = 0; status == SHMC_OK && i < sizeof(struct shmc_contact); i += 8)
        shmc_word_store(writer->data->base + *contact + i, 0);
    return status;
}

/* Only the writer's process stores here, from one thread at a time. */
static void add(shmc_atomic *counter, uint64_t more)
{
    if (more != 0)
        shmc_store_racy(counter, shmc_load_racy(counter) + more); /* CONTACTBLOCK2 */
}

enum shmc_status shmc_note(struct shmc_writer *writer, uint32_t resource,
                           const struct shmc_note *note)
{
    if (resource >= writer->resource_count || note->contact_ns > shmc_monotonic_ns())
        return SHMC_INVALID;
    if (shmc_load_racy(&writer->super->incarnation) != writer->incarnation)
        return SHMC_FENCED;
    struct shmc_contact *contact =
        (struct shmc_contact *)(void *)(writer->data->base + writer->resources[resource].contact);
    add(&contact->lists, note->lists);
    add(&contact->watches, note->watches);
    add(&contact->events, note->events);
    add(&contact->bookmarks, note->bookmarks);
    add(&contact->errors, note->errors);
    add(&contact->relists, note->relists);
    add(&contact->bytes, note->bytes);
    add(&contact->refused, note->refused);
    add(&contact->repaired, note->repaired);
    add(&contact->stored, note->stored);
    add(&contact->storing_ns, note->storing_ns);
    add(&contact->stored_1ms, note->stored_1ms);
    add(&contact->stored_10ms, note->stored_10ms);
    add(&contact->stored_100ms, note->stored_100ms);
    add(&contact->cut, note->cut);
    if (note->behind_ns != 0)
        shmc_store_racy(&contact->behind_ns,
                        note->behind_ns == SHMC_CAUGHT_UP ? 0 : note->behind_ns);
    if (note->stamped_ns != 0) {
        shmc_store_racy(&contact->stamp_ns, note->stamp_ns);
        shmc_store_racy(&contact->stamped_ns, note->stamped_ns);
    }
    if (note->contact_ns > shmc_load_racy(&contact->contact_ns))
        shmc_store_release(&contact->contact_ns, note->contact_ns); /* CONTACTBLOCK1 */
    return SHMC_OK;
}

enum shmc_status shmc_contact_load(const struct shmc_span *span, shmc_offset block,
                                   struct shmc_note *note)
{
    if (!shmc_in_span(span, block, sizeof(struct shmc_contact)))
        return SHMC_CORRUPT;
    const struct shmc_contact *contact =
        (const struct shmc_contact *)(const void *)(span->base + block);
    *note = (struct shmc_note){
        .contact_ns = shmc_load_acquire(&contact->contact_ns), /* CONTACTBLOCK1 */
        .lists = shmc_load_racy(&contact->lists),
        .watches = shmc_load_racy(&contact->watches),
        .events = shmc_load_racy(&contact->events),
        .bookmarks = shmc_load_racy(&contact->bookmarks),
        .errors = shmc_load_racy(&contact->errors),
        .relists = shmc_load_racy(&contact->relists),
        .bytes = shmc_load_racy(&contact->bytes),
        .refused = shmc_load_racy(&contact->refused),
        .repaired = shmc_load_racy(&contact->repaired),
        .behind_ns = shmc_load_racy(&contact->behind_ns),
        .stored = shmc_load_racy(&contact->stored),
        .storing_ns = shmc_load_racy(&contact->storing_ns),
        .stored_1ms = shmc_load_racy(&contact->stored_1ms),
        .stored_10ms = shmc_load_racy(&contact->stored_10ms),
        .stored_100ms = shmc_load_racy(&contact->stored_100ms),
        .cut = shmc_load_racy(&contact->cut),
        .stamp_ns = shmc_load_racy(&contact->stamp_ns),
        .stamped_ns = shmc_load_racy(&contact->stamped_ns),
    };
    return SHMC_OK;
}
