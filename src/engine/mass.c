#include "engine/mass.h"

uint64_t mass_sum(const float *logits, uint32_t n, float max, float temperature)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += mass_of(logits[i], max, temperature);
    return sum;
}
