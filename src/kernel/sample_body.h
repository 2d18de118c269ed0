/* sample_body.h: the loops over a row that sampling needs, compiled with the flags of the file that includes it: compilers see the
 * lanes.  Apart from kernel.h's table, so that a change of them compiles no matmul. */
#include "kernel/draw.h"
#include "kernel/mass.h"

void SET(masses)(uint64_t *restrict to, const float *restrict logits, size_t n, float max, float temperature)
{
    for (size_t i = 0; i < n; i++)
        to[i] = mass_of(logits[i], max, temperature);
}

void SET(draw_bounds)(float *restrict to, const float *restrict logits, size_t n, uint64_t key, uint64_t first_id, float temperature)
{
    for (size_t i = 0; i < n; i++)
        to[i] = logits[i] / temperature + draw_bound(random_u64(key, first_id + i));
}
