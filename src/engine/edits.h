/* edits.h: what a row of logits is changed by before a token is picked from it: a sparse list, an id at most once.
 *
 *   l = l + add                                 bias; -INFINITY bans
 *   l = l > 0 ? l / repetition : l * repetition
 *   l = l - subtract                            frequency * count + presence
 *
 * Each step is rounded to f32, so an id's logit is the same wherever its slice is.
 * Source of the formulas: Keskar and others, "CTRL" (2019), for repetition; the OpenAI API for frequency and presence.
 *
 * The leader keeps a table for each sequence that is not left as it is: every id that its bias, its stop ids or its tokens touch,
 * in the order in which they were met.  Its room is taken when the sequence begins; after that nothing is allocated. */
#ifndef STOA_ENGINE_EDITS_H
#define STOA_ENGINE_EDITS_H

#include "engine/engine.h"

struct row_edit {
    int32_t id;
    float add, repetition, subtract;
};

struct edit_table {
    struct sample_penalties penalties;
    struct touched *touched;            /* [room] */
    uint32_t *slot;                     /* [n_slots], a power of two: an id is found by open addressing; its place + 1, or 0 */
    uint32_t n, room, n_slots;
};

/* ERR_USAGE: an id or a number that there cannot be, in bias, stop ids or penalties. */
int edits_check(const struct sequence_request *request, const struct model_info *model);
/* From the request's bias, stop ids and tokens, which have been checked. */
int edit_table_open(struct edit_table *t, const struct sequence_request *request, uint32_t n_vocab);
void edit_table_release(struct edit_table *t);
/* The sequence got one more token. */
void edit_table_take(struct edit_table *t, int32_t id);
/* Most edits that edit_table_list() gives, ever. */
uint32_t edit_table_room(const struct edit_table *t);
/* Writes the edits of the next row, and returns how many. */
uint32_t edit_table_list(const struct edit_table *t, bool ban_stop_ids, struct row_edit *edits);

/* To the logits of ids first_id .. first_id + n - 1; other ids are left out. */
void edits_apply(float *logits, uint32_t n, int32_t first_id, const struct row_edit *edits, uint32_t n_edits);

#endif
