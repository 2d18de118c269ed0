/* pace.h: how long a step takes, learned from those that have been.
 *
 *   predicted = fixed + prefill * (tokens of prompts) + decode * (sequences that get their next token)
 *
 * The three are those of least squares over the steps before, of which older ones count less and less; what those do not tell, as when
 * all had the same in them, stays as it was.  A step that took far longer than predicted counts as twice that long: a neighbour had
 * the cores. */
#ifndef STOA_ENGINE_PACE_H
#define STOA_ENGINE_PACE_H

#include <stdint.h>

enum { PACE_FIXED, PACE_PREFILL, PACE_DECODE, N_PACE };

struct pace {
    double per_s[N_PACE];           /* of each; prefill and decode in units that weigh alike */
    double sum[N_PACE][N_PACE], sum_s[N_PACE];          /* of products of what steps had, and with what they took */
    uint64_t n_steps;               /* that were measured */
    uint32_t n_most;                /* tokens of prompts in the largest of them */
};

void pace_learn(struct pace *pace, uint32_t n_prefill, uint32_t n_decode, double took_s);
double pace_predict(const struct pace *pace, uint32_t n_prefill, uint32_t n_decode);
/* The most sequences, of n, that may get their next token in a step of at most limit_s; at least 1.  limit_s 0: no limit.
 *
 * Where a step without a token takes about as long as the limit (a large model, a crowded machine), twice that is the limit: else everybody
 * would wait for steps of one token. */
uint32_t pace_decode(const struct pace *pace, uint32_t n, double limit_s);
/* The most tokens of prompts, of n, beside n_decode sequences; at least 1.  It grows step by step: nobody knows how long many take
 * before fewer have been seen. */
uint32_t pace_prefill(const struct pace *pace, uint32_t n, uint32_t n_decode, double limit_s);

#endif
