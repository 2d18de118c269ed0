#include "engine/late.h"

#include "base/base.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

size_t late_edits_bytes(uint32_t n_edits)
{
    return sizeof(struct late_section) + (size_t)n_edits * sizeof(struct row_edit);
}

size_t late_max_bytes(uint32_t n_rows, uint32_t n_vocab)
{
    return sizeof(struct late_header) + n_rows * late_edits_bytes(n_vocab);
}

/* ---- the leader ---- */
void late_begin(struct buffer *out, uint32_t number, size_t n_bytes)
{
    struct late_header header = { .number = number, .n_bytes = sizeof header };
    out->size = 0;
    buffer_reserve(out, n_bytes);
    buffer_add(out, &header, sizeof header);
}

void late_add_edits(struct buffer *out, uint32_t row, const struct edit_table *table, bool ban_stop_ids)
{
    struct late_section section = { .kind = LATE_EDITS, .row = row };
    size_t at = out->size;
    buffer_add(out, &section, sizeof section);
    buffer_reserve(out, edit_table_room(table) * sizeof(struct row_edit));
    if (out->failed)
        return;
    section.n = edit_table_list(table, ban_stop_ids, (struct row_edit *)(void *)(out->bytes + out->size));
    memcpy(out->bytes + at, &section, sizeof section);
    out->size += section.n * sizeof(struct row_edit);
    out->bytes[out->size] = 0;
    struct late_header *header = (struct late_header *)(void *)out->bytes;
    header->n_sections++;
    header->n_bytes = out->size;
}

/* ---- the ranks ---- */
static bool is_sound(const struct row_edit *edits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (isnan(edits[i].add) || !(edits[i].repetition > 0) || isnan(edits[i].subtract))
            return false;
    return true;
}

int late_read(struct late_row *rows, uint32_t n_rows, const void *bytes, size_t n_bytes, uint32_t number)
{
    const char *at = bytes, *end = at + n_bytes;
    struct late_header header;
    memset(rows, 0, n_rows * sizeof *rows);
    if (n_bytes < sizeof header)
        return error_set(ERR_PEER, "a late input of %zu bytes is too short", n_bytes);
    memcpy(&header, at, sizeof header);
    if (header.number != number || header.n_bytes != n_bytes)
        return error_set(ERR_PEER, "a late input of %zu bytes for plan %u came where that for plan %u was due", n_bytes, header.number,
                         number);
    at += sizeof header;
    for (uint32_t i = 0; i < header.n_sections; i++) {
        struct late_section section;
        if ((size_t)(end - at) < sizeof section)
            return error_set(ERR_PEER, "the late input of plan %u ends within a section", number);
        memcpy(&section, at, sizeof section);
        at += sizeof section;
        const struct row_edit *edits = (const struct row_edit *)(const void *)at;
        if (section.kind != LATE_EDITS || section.row >= n_rows || (size_t)(end - at) / sizeof *edits < section.n ||
            !is_sound(edits, section.n))
            return error_set(ERR_PEER, "the late input of plan %u has a section that there is not", number);
        rows[section.row] = (struct late_row){ edits, section.n };
        at += section.n * sizeof *edits;
    }
    return at == end ? 0 : error_set(ERR_PEER, "the late input of plan %u has bytes of no section", number);
}
