/* late.h: the late input of a plan: what is needed only when logits are there.  The leader makes it while ranks compute and sends
 * it to those of the last stage.
 *
 * Header, then sections, each of one kind and for one row; what follows a section is n elements of its kind.  Rows
 * come in order.  A plan whose header has no late_room has no late input. */
#ifndef STOA_ENGINE_LATE_H
#define STOA_ENGINE_LATE_H

#include "engine/edits.h"

enum late_kind { LATE_EDITS = 1 };      /* struct row_edit, each of another id */

struct late_header {
    uint32_t number;                    /* the plan's */
    uint32_t n_sections;
    uint64_t n_bytes;
};

struct late_section {
    uint32_t kind, row, n, padding;
};

/* Bytes of a section with n edits, and of the longest late input that n_rows can have. */
size_t late_edits_bytes(uint32_t n_edits);
size_t late_max_bytes(uint32_t n_rows, uint32_t n_vocab);

/* Makes `out` an input without sections, with room for n_bytes in all. */
void late_begin(struct buffer *out, uint32_t number, size_t n_bytes);
void late_add_edits(struct buffer *out, uint32_t row, const struct edit_table *table, bool ban_stop_ids);

/* What it says of each row; points into the bytes. */
struct late_row {
    const struct row_edit *edits;
    uint32_t n_edits;
};
/* rows: n_rows of them.  bytes: aligned as malloc() does.  ERR_PEER when they are no late input for plan `number`. */
int late_read(struct late_row *rows, uint32_t n_rows, const void *bytes, size_t n_bytes, uint32_t number);

#endif
