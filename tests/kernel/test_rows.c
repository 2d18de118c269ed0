/* Row operations: every variant that this CPU has against the portable C, bit for bit, on rows of their exact length (so
 * that a sanitizer sees a step too far); and the portable C against double. */
#include "kernel/cpu.h"
#include "kernel/kernel.h"
#include "kernel/mass.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t lengths[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 48, 63, 100, 576, 577, 1543, 4096 };

static uint32_t seed = 1;

static float random_float(void)         /* in [-4, 4) */
{
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-29f;
}

static float *row_new(size_t n)
{
    float *row = malloc(n * sizeof *row);
    for (size_t i = 0; i < n; i++)
        row[i] = random_float();
    return row;
}

static float *row_copy(const float *row, size_t n)
{
    return memcpy(malloc(n * sizeof *row), row, n * sizeof *row);
}

static bool has(const struct kernels *kernels)
{
    return (kernels->needs & cpu_features()) == kernels->needs;
}

static void test_rms_norm(const struct kernels *kernels)
{
    check_begin("%s: rms_norm", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *x = row_new(n), *weight = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(x, n);
        kernels_all[0]->rms_norm(want, x, weight, n, 1e-5f);
        kernels->rms_norm(got, x, weight, n, 1e-5f);
        kernels->rms_norm(in_place, in_place, weight, n, 1e-5f);
        check_bytes("rms_norm", got, want, n * sizeof *x);
        check_bytes("rms_norm in place", in_place, want, n * sizeof *x);

        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
        for (size_t i = 0; i < n; i++) {
            double y = x[i] / sqrt(sum / (double)n + 1e-5) * weight[i];
            check(fabs(got[i] - y) <= 1e-6 * fabs(y));
        }
        free(x), free(weight), free(want), free(got), free(in_place);
    }
}

static void test_add(const struct kernels *kernels)
{
    check_begin("%s: add", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *a = row_new(n), *b = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(b, n);
        kernels_all[0]->add(want, a, b, n);
        kernels->add(got, a, b, n);
        kernels->add(in_place, a, in_place, n);
        check_bytes("add", got, want, n * sizeof *a);
        check_bytes("add in place", in_place, want, n * sizeof *a);
        check(got[n - 1] == a[n - 1] + b[n - 1]);
        free(a), free(b), free(want), free(got), free(in_place);
    }
}

static void test_swiglu(const struct kernels *kernels)
{
    check_begin("%s: swiglu", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *gate = row_new(n), *up = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(gate, n);
        kernels_all[0]->swiglu(want, gate, up, n);
        kernels->swiglu(got, gate, up, n);
        kernels->swiglu(in_place, in_place, up, n);
        check_bytes("swiglu", got, want, n * sizeof *gate);
        check_bytes("swiglu in place", in_place, want, n * sizeof *gate);
        for (size_t i = 0; i < n; i++) {
            double y = gate[i] / (1.0 + exp(-(double)gate[i])) * up[i];
            check(fabs(got[i] - y) <= 1e-6 * fabs(y));
        }
        free(gate), free(up), free(want), free(got), free(in_place);
    }
}

/* The gate walks all of exp's range, its ends and what lies beyond: this is the bit test of every set's exp. */
static void test_swiglu_range(const struct kernels *kernels)
{
    enum { N = 1 << 18 };
    static float gate[N], up[N], want[N], got[N];

    check_begin("%s: swiglu over the whole range of exp", kernels->name);
    for (size_t i = 0; i < N; i++) {
        gate[i] = -90.0f + 180.0f * (float)i / N;
        up[i] = 1.0f;
    }
    gate[0] = 87.3f, gate[1] = nextafterf(87.3f, 100.0f), gate[2] = -88.7f, gate[3] = nextafterf(-88.7f, -100.0f);
    gate[4] = 1e30f, gate[5] = -1e30f, gate[6] = INFINITY, gate[7] = 0.0f, gate[8] = -0.0f, gate[9] = 0x1p-149f;
    kernels_all[0]->swiglu(want, gate, up, N);
    kernels->swiglu(got, gate, up, N);
    check_bytes("swiglu", got, want, sizeof got);
    gate[0] = -INFINITY, gate[1] = NAN;
    kernels->swiglu(got, gate, up, 2);
    check(isnan(got[0]) && isnan(got[1]));
}

/* The tolerance is relative to x and up: for gate below -3, 1 + tanh cancels and what is left is an absolute error. */
static void test_geglu(const struct kernels *kernels)
{
    check_begin("%s: geglu", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *gate = row_new(n), *up = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(gate, n);
        float *in_up = row_copy(up, n);
        kernels_all[0]->geglu(want, gate, up, n);
        kernels->geglu(got, gate, up, n);
        kernels->geglu(in_place, in_place, up, n);
        kernels->geglu(in_up, gate, in_up, n);
        check_bytes("geglu", got, want, n * sizeof *gate);
        check_bytes("geglu in place of the gate", in_place, want, n * sizeof *gate);
        check_bytes("geglu in place of up", in_up, want, n * sizeof *gate);
        for (size_t i = 0; i < n; i++) {
            double x = gate[i], u = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
            check(fabs(got[i] - 0.5 * x * (1.0 + tanh(u)) * up[i]) <= 3e-7 * fabs(x * up[i]));
        }
        free(gate), free(up), free(want), free(got), free(in_place), free(in_up);
    }
}

static void test_scale(const struct kernels *kernels)
{
    check_begin("%s: scale", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *x = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(x, n), factor = random_float();
        kernels_all[0]->scale(want, x, factor, n);
        kernels->scale(got, x, factor, n);
        kernels->scale(in_place, in_place, factor, n);
        check_bytes("scale", got, want, n * sizeof *x);
        check_bytes("scale in place", in_place, want, n * sizeof *x);
        for (size_t i = 0; i < n; i++)
            check(got[i] == x[i] * factor);
        free(x), free(want), free(got), free(in_place);
    }
}

static void test_softcap(const struct kernels *kernels)
{
    static const float caps[] = { 50.0f, 30.0f, 1.0f, 0.1f };

    check_begin("%s: softcap", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *x = row_new(n), *want = row_new(n), *got = row_new(n), *in_place = row_copy(x, n), cap = caps[l % COUNT_OF(caps)];
        kernels_all[0]->softcap(want, x, cap, n);
        kernels->softcap(got, x, cap, n);
        kernels->softcap(in_place, in_place, cap, n);
        check_bytes("softcap", got, want, n * sizeof *x);
        check_bytes("softcap in place", in_place, want, n * sizeof *x);
        for (size_t i = 0; i < n; i++) {
            double y = cap * tanh(x[i] / (double)cap);
            check(fabs(got[i] - y) <= 3e-7 * fabs(y));          /* 3 ulp of tanh and two roundings, an ulp being 6e-8 to 1.2e-7 */
        }
        free(x), free(want), free(got), free(in_place);
    }
}

/* A walk over every scale of float, both signs: this is the bit test of every set's tanh. */
static void test_tanh_range(const struct kernels *kernels)
{
    enum { N = 1 << 18 };
    static float x[N], up[N], want[N], got[N];

    check_begin("%s: softcap and geglu over the whole range of tanh", kernels->name);
    for (uint32_t i = 0; i < N; i++) {
        union { uint32_t u; float f; } v = { .u = i * (0x7f800000u / (N / 2)) % 0x7f800000u };
        x[i] = i % 2 ? -v.f : v.f;
        if (i >= N / 2)                                         /* and half of them where tanh is between 0 and 1 */
            x[i] = -11.0f + 22.0f * (float)(i - N / 2) / (N / 2);
        up[i] = 1.0f;
    }
    x[0] = INFINITY, x[1] = -INFINITY, x[2] = 0.0f, x[3] = -0.0f, x[4] = 0x1p-149f, x[5] = 10.0f, x[6] = nextafterf(10.0f, 11.0f);
    kernels_all[0]->softcap(want, x, 1.0f, N);
    kernels->softcap(got, x, 1.0f, N);
    check_bytes("softcap", got, want, sizeof got);
    check(got[0] == 1.0f && got[1] == -1.0f && got[2] == 0.0f && !signbit(got[2]) && got[3] == 0.0f && signbit(got[3]));
    x[1] = NAN;
    kernels->softcap(got, x, 1.0f, 2);
    check(isnan(got[1]));
    kernels->geglu(got, x, up, 2);
    check(got[0] == INFINITY && isnan(got[1]));
    x[1] = 1.0f;                                                /* of -inf GELU makes a NaN, and NaNs may differ in bits */
    kernels_all[0]->geglu(want, x, up, N);
    kernels->geglu(got, x, up, N);
    check_bytes("geglu", got, want, sizeof got);
}

static void test_rope(const struct kernels *kernels, bool interleaved)
{
    check_begin("%s: rope, %s", kernels->name, interleaved ? "interleaved" : "halves");
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        size_t n = lengths[l];
        float *x = row_new(2 * n), *angle = row_new(2 * n), *want = row_copy(x, 2 * n), *got = row_copy(x, 2 * n);
        for (size_t i = 0; i < n; i++) {
            double turn = angle[i];
            angle[i] = (float)cos(turn);
            angle[n + i] = (float)sin(turn);
        }
        kernels_all[0]->rope(want, angle, n, interleaved);
        kernels->rope(got, angle, n, interleaved);
        check_bytes("rope", got, want, 2 * n * sizeof *x);
        for (size_t i = 0; i < n; i++) {
            size_t i0 = interleaved ? 2 * i : i, i1 = interleaved ? 2 * i + 1 : n + i;
            double c = angle[i], s = angle[n + i];
            check(fabs(got[i0] - (x[i0] * c - x[i1] * s)) < 1e-6);
            check(fabs(got[i1] - (x[i0] * s + x[i1] * c)) < 1e-6);
        }
        free(x), free(angle), free(want), free(got);
    }
}

/* The largest element at every place of the row; then a NaN there, of odd bits, beside infinities. */
static void test_row_max(const struct kernels *kernels)
{
    union { uint32_t u; float f; } odd_nan = { .u = 0xffc01234 };

    check_begin("%s: row_max", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths) && lengths[l] < 600; l++) {
        size_t n = lengths[l];
        float *x = row_new(n), max, nan = NAN, zero = 0.0f;
        for (size_t i = 0; i < n; i++) {
            float before = x[i];
            x[i] = 5.0f;
            check(kernels->row_max(x, n) == 5.0f);
            x[i] = odd_nan.f;
            x[n - 1 - i] = i == n - 1 - i ? odd_nan.f : INFINITY;
            max = kernels->row_max(x, n);
            check_bytes("NaN", &max, &nan, sizeof max);
            x[i] = x[n - 1 - i] = before;
        }
        for (size_t i = 0; i < n; i++)
            x[i] = i % 3 ? 0.0f : -0.0f;
        max = kernels->row_max(x, n);
        check_bytes("a zero is +0", &max, &zero, sizeof max);
        for (size_t i = 0; i < n; i++)
            x[i] = -INFINITY;
        check(kernels->row_max(x, n) == -INFINITY);
        free(x);
    }
}

static void test_masses(const struct kernels *kernels)
{
    static const float temperatures[] = { 1e-6f, 0.3f, 1, 100 };
    check_begin("%s: masses", kernels->name);
    for (size_t l = 0; l < COUNT_OF(lengths) && lengths[l] < 600; l++)
        for (size_t t = 0; t < COUNT_OF(temperatures); t++) {
            size_t n = lengths[l];
            uint64_t got[600], want[600];
            float *x = row_new(n), max = kernels->row_max(x, n);
            x[n / 2] = NAN;
            x[n - 1] = -INFINITY;
            masses_with(kernels)(got, x, n, max, temperatures[t]);
            masses_c(want, x, n, max, temperatures[t]);
            check_bytes("masses", got, want, n * sizeof *got);
            free(x);
        }
}

int main(void)
{
    for (size_t v = 0; v < n_kernels; v++) {
        const struct kernels *kernels = kernels_all[v];
        if (!has(kernels)) {
            printf("this CPU lacks %s\n", kernels->name);
            continue;
        }
        test_rms_norm(kernels);
        test_add(kernels);
        test_swiglu(kernels);
        test_swiglu_range(kernels);
        test_geglu(kernels);
        test_scale(kernels);
        test_softcap(kernels);
        test_tanh_range(kernels);
        test_rope(kernels, false);
        test_rope(kernels, true);
        test_row_max(kernels);
        test_masses(kernels);
    }
    return check_done();
}
