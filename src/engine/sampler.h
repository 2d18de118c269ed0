/* sampler.h: the next token, from logits that stay split by vocabulary.
 *
 * Each rank of the last stage looks at its slice and keeps the few candidates that can be picked; the leader merges them
 * and picks.  The pick is the same for every split, because everything it compares is exact:
 *   greedy         the largest logit, ties to the lower id
 *   temperature    argmax of logit / t + gumbel(seed, choice, position, id): a sample of the softmax, one number per id
 *   top-k          only the k largest logits, ties to the lower id
 *   top-p          masses exp((logit - max) / t) in 2^-40 fixed point, added as integers; the smallest set of largest logits
 *                  whose mass reaches p of the whole (of the k largest, with top-k)
 * Source of the Gumbel form: Maddison, Tarlow, Minka, "A* Sampling" (2014). */
#ifndef STOA_ENGINE_SAMPLER_H
#define STOA_ENGINE_SAMPLER_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_MAX_TOP 128          /* most logprobs beside the pick's own */

struct sample_params {
    float temperature;      /* 0: greedy; else 1e-6 to 100 */
    float top_p;            /* 1: off */
    float min_p;            /* 0: off */
    uint32_t top_k;         /* 0: off */
    uint32_t choice;        /* which of several answers to one prompt */
    uint64_t seed;
};

/* What a sequence's own tokens do to its next logits; all zero is off. */
struct sample_penalties {
    float repetition;       /* over prompt and answer; 0 and 1: off */
    float frequency;        /* over the answer, for each time */
    float presence;         /* over the answer, once */
};

struct logit_bias {
    int32_t id;
    float add;              /* to the logit; -INFINITY bans */
};

struct token_logprob {
    int32_t id;
    float logprob;
};

/* 0, or ERR_USAGE naming the parameter. */
int sample_check(const struct sample_params *params);

/* False for NaN and +infinity, which make a whole row an error; -infinity is an id that is never picked before another. */
bool sample_can_pick(float logit);

/* The row's global maximum is needed before its candidates are chosen. */
bool sample_needs_max(const struct sample_params *params);

struct candidate {
    int32_t id;
    float logit;
    float key;              /* logit / t + gumbel; the logit when greedy */
};

/* What one rank found in its slice of one row; candidates follow it in the buffer. */
struct candidate_row {
    uint32_t n_candidates;
    uint32_t is_broken;     /* a logit from which no pick can be made: sample_can_pick() is false */
    uint64_t mass;          /* of the slice, when top-p needs it */
};

/* Appends the row's candidate_row and its candidates to `out`.  slice: n logits of ids first_id ..; max: the row's maximum
 * over all slices (only read when sample_needs_max()); position: of the token to be picked. */
void sample_collect(struct buffer *out, const float *slice, uint32_t n, int32_t first_id, float max, uint32_t position,
                    uint32_t n_vocab, const struct sample_params *params);

/* Picks from what all ranks collected: n candidates in any order (they are reordered), `mass` the sum of the rows' masses.
 * ERR_FAILED when there is none, as when a row was broken. */
int sample_pick(int32_t *id, struct candidate *candidates, size_t n, uint64_t mass, const struct sample_params *params);

#endif
