/* mass_body.h: the loop, compiled with the flags of the file that names it. */
#include "kernel/mass.h"

void MASSES(uint64_t *restrict to, const float *restrict logits, size_t n, float max, float temperature)
{
    for (size_t i = 0; i < n; i++)
        to[i] = mass_of(logits[i], max, temperature);
}
