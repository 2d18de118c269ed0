/* kernel_matmul: how fast the matrix products of each instruction set are on one core, as JSON.
 *
 *   kernel_matmul [VARIANT [TYPE [int8 | f32]]]          "" stands for any
 *
 * T = 1 reads 128 MB of weights once: GB/s of packed weights.  T = 8 and 512: billions of operations a second, two for a
 * multiply and add.  Each is the best of some runs in CPU time, for the machine may have other work. */
#include "base/base.h"
#include "base/float_mode.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAM_BYTES (128u << 20)
#define MIN_SECONDS 0.25
#define MIN_RUNS 5

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The canonical tree: 16 groups where K is at least 2048, else 8; units of 64, as attention's heads are, or a block. */
static struct sum_tree canonical_tree(uint32_t k, uint32_t unit)
{
    struct sum_tree tree = { .n_groups = k < 2048 ? 8 : 16, .n_parts = 1 };
    for (uint32_t g = 0; g < tree.n_groups; g++) {
        tree.end[g] = (g + 1) * (k / unit) / tree.n_groups * unit;
        tree.n_merges[g] = (uint8_t)__builtin_ctz(~g);
    }
    return tree;
}

static double best_seconds(matmul_fn *matmul, const struct matmul_args *args)
{
    double best = 1e9, total = 0;
    for (int run = 0; run < MIN_RUNS || total < MIN_SECONDS; run++) {
        double start = cpu_seconds();
        matmul(args);
        double seconds = cpu_seconds() - start;
        best = MIN(best, seconds);
        total += seconds;
    }
    return best;
}

/* Weights of ones and zeros, activations of zeros: no kernel here looks at values. */
static void bench(const struct kernels *kernels, enum dtype type, bool int8, uint32_t k, uint32_t t, bool with_tree)
{
    const uint32_t n = t > 1 ? 2048 : (uint32_t)(STREAM_BYTES / dtype_bytes(type, k) / PANEL_ROWS * PANEL_ROWS);
    const size_t n_bytes = matmul_packed_bytes(type, n, k), x_bytes = int8 ? k / 32 * sizeof(struct act_block) : 4 * k;
    const struct sum_tree tree = canonical_tree(k, MAX(64, dtype_info[type].block));
    static bool first = true;
    struct matmul_args args = {
        .w = aligned_alloc(64, n_bytes), .x = aligned_alloc(64, ROUND_UP(t * x_bytes, 64)), .x_stride = x_bytes,
        .y = malloc((size_t)n * t * sizeof(float)), .y_stride = n, .k = k, .n_rows = n, .panel1 = n / PANEL_ROWS, .t1 = t,
        .tree = with_tree ? &tree : NULL,
    };
    memset((void *)args.w, 1, n_bytes);
    memset((void *)args.x, 0, t * x_bytes);
    memset(args.y, 0, (size_t)n * t * sizeof(float));
    double seconds = best_seconds((int8 ? kernels->matmul_int8 : kernels->matmul_f32)[type], &args);
    double amount = t > 1 ? 2.0 * n * k * t : (double)n_bytes;
    printf("%s\n  {\"variant\": \"%s\", \"type\": \"%s\", \"activations\": \"%s\", \"k\": %u, \"t\": %u, \"tree\": %s, \"%s\": %.1f}",
           first ? "[" : ",", kernels->name, dtype_info[type].name, int8 ? "int8" : "f32", k, t, with_tree ? "true" : "false",
           t > 1 ? "gop_per_s" : "gb_per_s", amount / seconds / 1e9);
    fflush(stdout);
    first = false;
    free((void *)args.w);
    free((void *)args.x);
    free(args.y);
}

static void bench_kernel(const struct kernels *kernels, enum dtype type, bool int8)
{
    static const uint32_t ks[] = { 576, 1536, 2048, 5632 }, ts[] = { 1, 8, 512 };
    for (size_t i = 0; i < COUNT_OF(ks); i++)
        for (size_t j = 0; j < COUNT_OF(ts); j++)
            for (int with_tree = 0; with_tree < 2 && ks[i] % dtype_info[type].block == 0; with_tree++)
                bench(kernels, type, int8, ks[i], ts[j], with_tree);
}

int main(int n_args, char **args)
{
    const char *variant = n_args > 1 ? args[1] : "", *type_name = n_args > 2 ? args[2] : "", *mode = n_args > 3 ? args[3] : "";
    cpu_float_mode_set();
    for (size_t v = 0; v < n_kernels; v++) {
        const struct kernels *kernels = kernels_all[v];
        if ((*variant && strcmp(variant, kernels->name)) || (kernels->needs & cpu_features()) != kernels->needs)
            continue;
        for (enum dtype type = 0; type < N_DTYPES; type++) {
            if (*type_name && strcmp(type_name, dtype_info[type].name))
                continue;
            if (kernels->matmul_int8[type] && strcmp(mode, "f32"))
                bench_kernel(kernels, type, true);
            if (kernels->matmul_f32[type] && strcmp(mode, "int8"))
                bench_kernel(kernels, type, false);
        }
    }
    puts("\n]");
}
