#include "engine/pace.h"

#include "base/base.h"

/* What weighs as much as the fixed part. */
static const double unit[N_PACE] = { 1, 32, 4 };
/* Of a step's weight that is left after the next. */
#define KEPT 0.99
/* How much what was thought before weighs beside steps. */
#define INERTIA 0.01
/* A step may have so many times the tokens of the largest that was measured. */
#define GROWTH 4
#define FIRST_TOKENS 16

static double per_one_s(const struct pace *pace, int i)
{
    return pace->per_s[i] / unit[i];
}

double pace_predict(const struct pace *pace, uint32_t n_prefill, uint32_t n_decode)
{
    return per_one_s(pace, PACE_FIXED) + per_one_s(pace, PACE_PREFILL) * n_prefill + per_one_s(pace, PACE_DECODE) * n_decode;
}

/* Least squares: (sum + INERTIA) per_s = sum_s + INERTIA * per_s before, by elimination; the left side is positive definite. */
static void solve(struct pace *pace)
{
    double a[N_PACE][N_PACE], b[N_PACE];
    for (int i = 0; i < N_PACE; i++) {
        for (int j = 0; j < N_PACE; j++)
            a[i][j] = pace->sum[i][j] + (i == j ? INERTIA : 0);
        b[i] = pace->sum_s[i] + INERTIA * pace->per_s[i];
    }
    for (int k = 0; k < N_PACE; k++)
        for (int i = k + 1; i < N_PACE; i++) {
            double times = a[i][k] / a[k][k];
            for (int j = k; j < N_PACE; j++)
                a[i][j] -= times * a[k][j];
            b[i] -= times * b[k];
        }
    for (int i = N_PACE - 1; i >= 0; i--) {
        for (int j = i + 1; j < N_PACE; j++)
            b[i] -= a[i][j] * b[j];
        b[i] /= a[i][i];
    }
    for (int i = 0; i < N_PACE; i++)
        pace->per_s[i] = MAX(b[i], 0);
}

void pace_learn(struct pace *pace, uint32_t n_prefill, uint32_t n_decode, double took_s)
{
    double had[N_PACE] = { 1, n_prefill / unit[PACE_PREFILL], n_decode / unit[PACE_DECODE] };
    if (pace->n_steps > 2)
        took_s = MIN(took_s, 2 * pace_predict(pace, n_prefill, n_decode));
    for (int i = 0; i < N_PACE; i++) {
        for (int j = 0; j < N_PACE; j++)
            pace->sum[i][j] = KEPT * pace->sum[i][j] + had[i] * had[j];
        pace->sum_s[i] = KEPT * pace->sum_s[i] + had[i] * took_s;
    }
    solve(pace);
    pace->n_most = MAX(pace->n_most, n_prefill);
    pace->n_steps++;
}

/* The most of n for which least_s + per_s * n is no more than limit_s; at least 1 of them. */
static uint32_t most(uint32_t n, double least_s, double per_s, double limit_s)
{
    if (least_s + per_s * n <= limit_s)
        return n;
    double fits = per_s > 0 ? (limit_s - least_s) / per_s : 0;
    return MIN(n, fits >= 1 ? (uint32_t)fits : 1);
}

/* Where a step without a token takes as long as the limit, as with a large model or on a crowded machine, tokens may take as long
 * again: one a step would be the slowest way for everybody. */
static double allowed_s(const struct pace *pace, double limit_s)
{
    return MAX(limit_s, 2 * per_one_s(pace, PACE_FIXED));
}

uint32_t pace_decode(const struct pace *pace, uint32_t n, double limit_s)
{
    return limit_s > 0 ? most(n, per_one_s(pace, PACE_FIXED), per_one_s(pace, PACE_DECODE), allowed_s(pace, limit_s)) : n;
}

uint32_t pace_prefill(const struct pace *pace, uint32_t n, uint32_t n_decode, double limit_s)
{
    if (limit_s <= 0)
        return n;
    return most(MIN(n, MAX(FIRST_TOKENS, GROWTH * pace->n_most)), pace_predict(pace, 0, n_decode), per_one_s(pace, PACE_PREFILL),
                allowed_s(pace, limit_s));
}
