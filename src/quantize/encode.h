/* encode.h: rows of f32 weights as a type stores them: dequantize_row() the other way.
 *
 * Every block is fitted by itself, so a row's bytes depend on nothing but the row, its type and the importance.  What is made
 * small is the sum over a block of importance * (w - what stands for w)^2. */
#ifndef STOA_QUANTIZE_ENCODE_H
#define STOA_QUANTIZE_ENCODE_H

#include "base/dtype.h"

#include <stdbool.h>

/* encode_row() can write it: plain floats, and all block types but MXFP4. */
bool encode_can(enum dtype type);
/* The largest magnitude that the type holds wherever it stands in a block. */
float encode_largest(enum dtype type);
/* n weights, a multiple of the type's block, finite and of encode_largest() at most.  importance: [n], how much an error in each
 * column counts, > 0 and near 1; NULL takes |w| + the root mean square of the block: large weights matter a little more. */
void encode_row(void *restrict to, const float *restrict from, const float *importance, enum dtype type, size_t n);

#endif
