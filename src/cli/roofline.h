/* roofline.h: what share of a machine's peaks a test reaches, by kind of work. */
#ifndef STOA_CLI_ROOFLINE_H
#define STOA_CLI_ROOFLINE_H

#include "engine/engine.h"

#include "base/buffer.h"
#include "text/json_out.h"

/* One run of a test. */
struct roofline {
    double wall_s;
    int n_ranks, n_threads;                 /* threads of a rank */
    const struct rank_counters *ranks;      /* [n_ranks]: of this run alone */
};

/* The peaks of each rank, as ranks[] has seen them last. */
void roofline_print_peaks(struct buffer *out, const struct rank_counters *ranks, int n_ranks);
void roofline_json_peaks(struct json_out *j, const struct peaks *peaks);

/* A table with a line for each kind of work.  Of several ranks it shows their mean: time, and bytes and operations a second of a
 * rank, against peaks that a rank reached while all others measured too. */
void roofline_print(struct buffer *out, const struct roofline *run, const struct rank_counters *peaks);
/* Fields "read_share", "compute_share" and "work" of an object that is open. */
void roofline_json(struct json_out *j, const struct roofline *run, const struct rank_counters *peaks);

#endif
