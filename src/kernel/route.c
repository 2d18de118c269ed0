#include "kernel/route.h"

#include "base/base.h"
#include "kernel/math.h"

#include <math.h>

/* ids[] are the n_used experts of largest logits in descending order.  An expert looks at the list from its end, and most
 * do not get past the first comparison. */
static void choose(int32_t *ids, const float *logits, uint32_t n_experts, uint32_t n_used)
{
    uint32_t n = 0;

    for (uint32_t e = 0; e < n_experts; e++) {
        uint32_t at = n;
        while (at > 0 && logits[e] > logits[ids[at - 1]])       /* of equals the lower id came first, and stays before */
            at--;
        if (at == n_used)
            continue;
        n = MIN(n + 1, n_used);
        for (uint32_t i = n - 1; i > at; i--)
            ids[i] = ids[i - 1];
        ids[at] = (int32_t)e;
    }
}

static float exp_sum(const float *logits, float max, uint32_t n_experts)
{
    float lane[16] = { 0 };

    for (uint32_t e = 0; e < n_experts; e++)
        lane[e % 16] += math_exp(logits[e] - max);
    for (uint32_t gap = 8; gap >= 1; gap /= 2)
        for (uint32_t i = 0; i < gap; i++)
            lane[i] += lane[i + gap];
    return lane[0];
}

static bool has_nan(const float *logits, uint32_t n_experts)
{
    for (uint32_t e = 0; e < n_experts; e++)
        if (isnan(logits[e]))
            return true;
    return false;
}

void route_row(int32_t *ids, float *weights, const float *logits, uint32_t n_experts, uint32_t n_used, bool normalise, float scale)
{
    float max, sum, chosen = 0.0f;

    assert(n_used >= 1 && n_used <= n_experts && n_experts <= ROUTE_MAX_EXPERTS);
    if (has_nan(logits, n_experts)) {
        for (uint32_t i = 0; i < n_used; i++) {
            ids[i] = (int32_t)i;
            weights[i] = NAN;
        }
        return;
    }
    choose(ids, logits, n_experts, n_used);
    max = logits[ids[0]];
    sum = exp_sum(logits, max, n_experts);
    for (uint32_t i = 0; i < n_used; i++) {
        weights[i] = math_exp(logits[ids[i]] - max) / sum;
        chosen += weights[i];               /* +0 first: 0 + p is p */
    }
    for (uint32_t i = 0; i < n_used && normalise; i++)
        weights[i] /= chosen;
    for (uint32_t i = 0; i < n_used && scale != 1.0f; i++)
        weights[i] *= scale;
}
