/* sampler.h: the next token, from logits that stay split by vocabulary.
 *
 * Each rank of the last stage looks at its slice and keeps the few candidates that can be picked; the leader merges them
 * and picks.  The pick is the same for every split, because everything it compares is exact:
 *   edits          bias, penalties and bans, id by id (edits.h); what follows sees edited logits only
 *   greedy         the largest logit, ties to the lower id
 *   temperature    argmax of logit / t + gumbel(seed, choice, position, id): a sample of the softmax, one number per id
 *   top-k          only the k largest logits, ties to the lower id
 *   top-p          masses exp((logit - max) / t) in 2^-40 fixed point, added as integers; the smallest set of largest logits
 *                  whose mass reaches p of the whole (of the k largest, with top-k)
 *   min-p          only ids with (logit - max) / t >= log(min-p)
 * Log-probabilities come before all that: logit - max - log(sum of masses) of the raw logits, at temperature 1.
 * Source of the Gumbel form: Maddison, Tarlow, Minka, "A* Sampling" (2014). */
#ifndef STOA_ENGINE_SAMPLER_H
#define STOA_ENGINE_SAMPLER_H

#include "base/buffer.h"
#include "comm/comm.h"
#include "kernel/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_MAX_TOP 128          /* most logprobs beside the pick's own */
#define SAMPLE_MAX_LIST 1024        /* most candidates of a slice: where there would be more, the ranks find the cut together */

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
    float logprob;          /* -INFINITY where the logit is */
};

/* 0, or ERR_USAGE naming the parameter. */
int sample_check(const struct sample_params *params);
int sample_check_penalties(const struct sample_penalties *penalties);

/* False for NaN and +infinity, which make a whole row an error; -infinity is an id that is never picked. */
bool sample_can_pick(float logit);
/* Candidates are chosen by the maximum of the row's edited logits. */
bool sample_needs_max(const struct sample_params *params);

/* Which ids of a slice are in, by logit: all above the threshold, and the first n_ties of those that equal it. */
struct sample_cut {
    uint32_t threshold;     /* as sample_ordered() puts logits in order */
    uint32_t n_ties;
};

/* A row as one rank has it. */
struct sample_row {
    const struct kernels *kernels;
    const float *raw, *logits;      /* [n]: as the model gives them, and edited; may be the same */
    uint32_t n;
    int32_t first_id;               /* logits[i] is of id first_id + i */
    uint32_t n_vocab;               /* of all slices; what lies beyond the tokenizer's ids is in no slice */
    uint32_t position;              /* of the token to be picked */
    float raw_max, max;             /* of all slices; only read for logprobs, and with sample_needs_max() */
    bool wants_logprobs;
    uint32_t n_top;
    bool is_cut;                    /* sample_find_cut() has found `cut` */
    struct sample_cut cut;
    const struct sample_params *params;
};

struct candidate {
    int32_t id;
    float logit;
    float key;              /* logit / t + gumbel; the logit when greedy */
    float raw;
};

/* What one rank found in its slice of one row; candidates follow it in the buffer, then the largest raw logits.  A slice that is all
 * of the vocabulary has one candidate, the pick. */
struct candidate_row {
    uint32_t n_candidates, n_top;
    uint32_t is_broken;     /* no pick can be made: sample_can_pick() is false of a logit, or nothing can be picked */
    uint32_t is_cut;        /* top-k, top-p and min-p have been applied */
    uint64_t mass;          /* of the slice, when the leader's top-p needs it */
    uint64_t raw_mass;      /* of the slice's raw logits at temperature 1, for logprobs */
    float raw_max;
    uint32_t padding;
};

/* How many candidates the slice would list for top-k or top-p; some number above SAMPLE_MAX_LIST where there are more than that. */
uint32_t sample_n_listed(const struct sample_row *row);
/* Collective over `tp` (NULL: the slice is all): finds what top-k and top-p leave of the row (cut.c).  Exact: it is the set that
 * the leader would find with every candidate before it.  bins: [ranks of tp][SAMPLE_BINS]; scratch: [row->n]. */
#define SAMPLE_BINS 256
struct sample_bin {
    uint64_t n, mass;
};
int sample_find_cut(struct sample_row *row, struct comm *tp, struct sample_bin *bins, float *scratch);
/* Appends the row's candidate_row and what follows it to `out`.  A row with more than SAMPLE_MAX_LIST candidates on some rank
 * must have its cut. */
void sample_collect(struct buffer *out, const struct sample_row *row);

/* Picks from what all ranks collected: n candidates in any order (they are reordered); `all`: n_candidates apart, what the
 * ranks' candidate_rows sum up to.  ERR_FAILED when there is none, as when a row was broken. */
int sample_pick(struct candidate *picked, struct candidate *candidates, size_t n, const struct candidate_row *all,
                const struct sample_params *params);
/* The n largest of the ranks' largest raw logits come first, in order; returns how many there are. */
size_t sample_largest(struct candidate *candidates, size_t n_candidates, size_t n);
float sample_logprob(float raw, const struct candidate_row *all);

/* ---- between sampler.c and cut.c ---- */
/* Ids are looked at in runs of so many; one whose largest logit has no chance is passed over. */
#define SAMPLE_RUN 256

/* Integers in the order of the floats; -0 is +0, as in comparisons. */
static inline uint32_t sample_ordered(float x)
{
    union { float f; uint32_t u; } v = { .f = x + 0.0f };
    return v.u >> 31 ? ~v.u : v.u | 0x80000000u;
}

/* Whether the largest ids, of this mass together, are the nucleus of a row of mass `all`; true for every larger sum too. */
static inline bool sample_is_nucleus(uint64_t sum, uint64_t all, float top_p)
{
    return (double)sum >= (double)top_p * (double)all;
}

/* Called for one id after the other: ties are counted. */
static inline bool sample_cut_keeps(const struct sample_cut *cut, float logit, uint32_t *n_ties)
{
    uint32_t ordered = sample_ordered(logit);
    return ordered > cut->threshold || (ordered == cut->threshold && (*n_ties)++ < cut->n_ties);
}

#endif