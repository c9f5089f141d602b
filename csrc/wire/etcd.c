/*
 * etcd.c - answers of etcd (rpc.proto, kv.proto): protobuf, read in place.
 *
 * Fields that are not known are passed over, and of a field that comes twice the last one counts,
 * as protobuf has it.
 *
 * ETCDANSWER1  a value with "resourceVersion":"..." put where its metadata begins is the text that
 *              object_text() of source/etcd/values.py makes of it.
 */
#include <string.h>

#include "wire/wire.h"

#define LETTERS "resourceVersion"
#define BEFORE_V 9u /* in "resource, with its quote */

/* ---- protobuf ------------------------------------------------------------------------------ */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct field {
    uint64_t number;
    unsigned wire;
    uint64_t value;           /* VARINT */
    struct shmc_bytes inside; /* BYTES */
};

static bool read_varint(struct shmc_bytes *from, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && from->at < from->end; shift += 7) {
        const uint8_t byte = *from->at++;
        if (shift < 64)
            *value |= (uint64_t)(byte & 0x7fu) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The next field; 0 at the end, -1 for anything but protobuf. */
static int read_field(struct shmc_bytes *from, struct field *field)
{
    uint64_t tag, length;

    if (from->at == from->end)
        return 0;
    if (!read_varint(from, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffffu)
        return -1;
    field->number = tag >> 3;
    field->wire = (unsigned)(tag & 7u);
    switch (field->wire) {
    case VARINT:
        return read_varint(from, &field->value) ? 1 : -1;
    case FIXED64:
        length = 8;
        break;
    case FIXED32:
        length = 4;
        break;
    case BYTES:
        if (!read_varint(from, &length))
            return -1;
        break;
    default:
        return -1;
    }
    if (length > shmc_bytes_length(*from))
        return -1;
    field->inside = (struct shmc_bytes){from->at, from->at + length};
    from->at += length;
    return 1;
}

/* ---- messages ------------------------------------------------------------------------------ */

static int read_header(struct shmc_bytes from, struct shmc_etcd_answer *answer)
{
    struct field field;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.wire != VARINT)
            continue;
        if (field.number == 1)
            answer->cluster = field.value;
        else if (field.number == 2)
            answer->member = field.value;
        else if (field.number == 3)
            answer->revision = (int64_t)field.value;
        else if (field.number == 4)
            answer->term = field.value;
    }
    return more;
}

static int read_kv(struct shmc_bytes from, struct shmc_etcd_event *event)
{
    struct field field;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.number == 1 && field.wire == BYTES)
            event->key = field.inside;
        else if (field.number == 5 && field.wire == BYTES)
            event->value = field.inside;
        else if (field.number == 2 && field.wire == VARINT)
            event->create = (int64_t)field.value;
        else if (field.number == 3 && field.wire == VARINT)
            event->mod = (int64_t)field.value;
        else if (field.number == 4 && field.wire == VARINT)
            event->version = (int64_t)field.value;
    }
    return more;
}

static struct shmc_etcd_event nothing_at(const uint8_t *at)
{
    return (struct shmc_etcd_event){.key = {at, at}, .value = {at, at}};
}

static int read_event(struct shmc_bytes from, struct shmc_etcd_event *event)
{
    struct field field;
    int more;

    while ((more = read_field(&from, &field)) > 0) {
        if (field.number == 1 && field.wire == VARINT)
            event->type = field.value;
        else if (field.number == 2 && field.wire == BYTES && read_kv(field.inside, event) < 0)
            return -1;
    }
    return more;
}

static void watch_number(struct shmc_etcd_answer *answer, const struct field *field)
{
    switch (field->number) {
    case 2:
        answer->watch = (int64_t)field->value;
        break;
    case 3:
        answer->created = field->value != 0;
        break;
    case 4:
        answer->canceled = field->value != 0;
        break;
    case 5:
        answer->compact = (int64_t)field->value;
        break;
    case 7:
        answer->fragment = field->value != 0;
        break;
    default:
        break;
    }
}

int shmc_etcd_watch_next(struct shmc_bytes *rest, struct shmc_etcd_answer *answer,
                         struct shmc_etcd_event *event)
{
    struct field field;
    int more;

    while ((more = read_field(rest, &field)) > 0) {
        if (field.wire == VARINT) {
            watch_number(answer, &field);
        } else if (field.wire == BYTES && field.number == 11) {
            *event = nothing_at(field.inside.at);
            return read_event(field.inside, event) < 0 ? -1 : 1;
        } else if (field.wire == BYTES && field.number == 6) {
            answer->reason = field.inside;
        } else if (field.wire == BYTES && field.number == 1 &&
                   read_header(field.inside, answer) < 0) {
            return -1;
        }
    }
    return more;
}

int shmc_etcd_range_next(struct shmc_bytes *rest, struct shmc_etcd_answer *answer,
                         struct shmc_etcd_event *event)
{
    struct field field;
    int more;

    while ((more = read_field(rest, &field)) > 0) {
        if (field.wire == BYTES && field.number == 2) {
            *event = nothing_at(field.inside.at);
            return read_kv(field.inside, event) < 0 ? -1 : 1;
        }
        if (field.wire == VARINT && field.number == 3)
            answer->more = field.value != 0;
        else if (field.wire == BYTES && field.number == 1 && read_header(field.inside, answer) < 0)
            return -1;
    }
    return more;
}

/* ---- values: the fast half of source/etcd/values.py ---------------------------------------- */

static const uint8_t *skip_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) /* as \s of bytes */
        at++;
    return at;
}

/* Skips space and one byte; NULL if it is another one. */
static const uint8_t *skip_byte(const uint8_t *at, const uint8_t *end, uint8_t byte)
{
    at = skip_space(at, end);
    return at < end && *at == byte ? at + 1 : NULL;
}

static bool is_text(const uint8_t *at, size_t length, const char *text)
{
    return length == strlen(text) && memcmp(at, text, length) == 0;
}

/* Where the members of the metadata begin, behind apiVersion and kind; NULL if not so laid out. */
static const uint8_t *metadata_of(const uint8_t *at, const uint8_t *end)
{
    bool api_version = false, kind = false;

    for (at = skip_byte(at, end, '{'); at != NULL; at = skip_byte(at, end, ',')) {
        at = skip_byte(at, end, '"');
        const uint8_t *name = at, *close = at == NULL ? NULL : memchr(at, '"', (size_t)(end - at));
        if (close == NULL || (at = skip_byte(close + 1, end, ':')) == NULL)
            return NULL;
        const size_t length = (size_t)(close - name);
        if (is_text(name, length, "metadata"))
            return api_version && kind ? skip_byte(at, end, '{') : NULL;
        if (is_text(name, length, "apiVersion"))
            api_version = true;
        else if (is_text(name, length, "kind"))
            kind = true;
        else
            return NULL;
        at = skip_byte(at, end, '"');
        close = at == NULL ? NULL : memchr(at, '"', (size_t)(end - at));
        if (close == NULL || memchr(at, '\\', (size_t)(close - at)) != NULL)
            return NULL;
        at = close + 1;
    }
    return NULL;
}

/* Whether a member may be called resourceVersion: written so, or with escaped letters. */
static bool may_have_version(const uint8_t *bytes, size_t length)
{
    const uint8_t *const end = bytes + length;
    const size_t after = sizeof LETTERS + 1 - BEFORE_V; /* Version" */

    for (const uint8_t *at = bytes; (at = memchr(at, 'V', (size_t)(end - at))) != NULL; at++)
        if ((size_t)(at - bytes) >= BEFORE_V && (size_t)(end - at) >= after &&
            memcmp(at - BEFORE_V, "\"" LETTERS "\"", sizeof LETTERS + 1) == 0)
            return true;
    for (const uint8_t *at = bytes; (at = memchr(at, '\\', (size_t)(end - at))) != NULL; at++)
        if (end - at >= 5 && memcmp(at, "\\u00", 4) == 0 && at[4] >= '4' && at[4] <= '7')
            return true;
    return false;
}

const uint8_t *shmc_etcd_version_at(struct shmc_bytes value, bool *empty)
{
    const uint8_t *const end = value.end, *const at = metadata_of(value.at, end);

    if (at == NULL || may_have_version(value.at, shmc_bytes_length(value)) ||
        memmem(at, (size_t)(end - at), "\"metadata\"", 10) != NULL) /* perhaps a second one */
        return NULL;
    const uint8_t *const next = skip_space(at, end);
    *empty = next < end && *next == '}';
    return at;
}
