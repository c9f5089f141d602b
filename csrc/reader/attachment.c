/*
 * attachment.c - all that one attachment opens, under one owner.
 *
 * Invariants (OWNED1 is in memory/owned.c, OWNED4 in python/read/pyopened.c)
 *   OWNED2  shmc_attachment_end() gives back what is there and nothing else, however far the
 *           attachment came; a second call finds nothing.
 *   OWNED3  The seat goes first, then the maps, then the descriptors: while the core knows a
 *           descriptor (it closes it in a child of fork(), and mends a map by it) its number belongs
 *           to no other file. In a child the core has closed that of SEATS: its number is left alone.
 */
#include "core.h"

void shmc_attachment_end(struct shmc_attachment *attachment)
{
    struct shmc_reader *reader = attachment->reader;
    const bool forked = reader != NULL && shmc_reader_forked(reader);

    attachment->reader = NULL;
    shmc_reader_destroy(reader);
    shmc_segment_unmap(&attachment->data);
    shmc_segment_unmap(&attachment->seats);
    shmc_owned_close(&attachment->data_fd);
    if (forked)
        attachment->seats_fd = -1;
    shmc_owned_close(&attachment->seats_fd);
}
