/* rope.h: the frequencies of rotary position embeddings. */
#ifndef STOA_RUN_ROPE_H
#define STOA_RUN_ROPE_H

#include "graph/graph.h"

/* frequency[n_rotated / 2], in f32 as the reference implementations round them.  factors: NULL, or what divides each. */
void rope_frequencies(float *frequency, const struct rope_scaling *rope, uint32_t n_rotated, const float *factors);

#endif
