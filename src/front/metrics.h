/* metrics.h: what the front counts, and how Prometheus reads it.
 *
 * Names are vLLM's where the meaning is the same, and begin with "stoa_" elsewhere; each has the label model_name.  Counters of
 * tokens and requests are the front's own: they are counted once whatever ranks, choices and replays there are, and live through
 * a replica's restart.  What only the replica knows is added up from the differences between its reports.
 *
 * One thread, the loop's. */
#ifndef STOA_FRONT_METRICS_H
#define STOA_FRONT_METRICS_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a request ended. */
enum request_end { END_STOP, END_LENGTH, END_ABORT, END_ERROR, END_BAD_REQUEST, END_REFUSED, N_ENDS };
extern const char *const request_end_names[N_ENDS];        /* as labels and the log have them */

enum histogram_kind { HISTOGRAM_FIRST_TOKEN, HISTOGRAM_BETWEEN_TOKENS, HISTOGRAM_PER_TOKEN, HISTOGRAM_WHOLE, HISTOGRAM_QUEUE,
                      HISTOGRAM_PREFILL, HISTOGRAM_DECODE, HISTOGRAM_INFERENCE, HISTOGRAM_PROMPT_TOKENS, HISTOGRAM_NEW_TOKENS,
                      HISTOGRAM_MAX_TOKENS, HISTOGRAM_LONGEST, HISTOGRAM_N, HISTOGRAM_STEP_TOKENS, N_HISTOGRAMS };

enum { HISTOGRAM_BUCKETS = 24 };
struct histogram {
    uint64_t count[HISTOGRAM_BUCKETS];      /* of each bucket alone; the last has no bound */
    double sum;
};

enum { REPLICA_STEP_SIZES = 16 };
/* A replica's counters, which begin at 0 when it starts. */
struct replica_counts {
    uint64_t steps, preemptions, prefix_queries, prefix_hits;
    uint64_t step_tokens, steps_of_size[REPLICA_STEP_SIZES];      /* as in Progress; HISTOGRAM_STEP_TOKENS is made of them */
};

/* Of one rank; likewise. */
struct rank_seconds {
    double compute, wait, wire;
};

struct metrics {
    const char *model_name;                 /* borrowed */
    /* counters */
    uint64_t prompt_tokens, generation_tokens, choices, restarts;
    uint64_t ends[N_ENDS];
    struct replica_counts replica, last;    /* the sum over all replicas there were; what the present one said last */
    struct rank_metrics { struct rank_seconds all, last; } *rank;        /* [n_ranks], as replica and last */
    size_t n_ranks;
    struct histogram histogram[N_HISTOGRAMS];
    struct http_count { const char *route; int status; uint64_t n; } *http;
    size_t n_http;
    /* what is now */
    double kv_usage, predicted_step_s, loop_worst_s;
    uint64_t running, waiting, up, epoch, connections;
};

void metrics_release(struct metrics *m);
void metrics_observe(struct metrics *m, enum histogram_kind kind, double value);
/* route is a string that stays: a route's path, or one word for what has none. */
void metrics_count_http(struct metrics *m, const char *route, int status);
/* A new replica counts from 0. */
void metrics_replica_starts(struct metrics *m);
/* A report of the present one; what is less than before changes nothing. */
void metrics_replica_says(struct metrics *m, const struct replica_counts *now);
void metrics_rank_says(struct metrics *m, uint32_t rank, const struct rank_seconds *now);
void metrics_write(const struct metrics *m, struct buffer *out);

#endif
