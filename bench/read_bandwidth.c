/* read_bandwidth.c: how fast threads together read a set of bytes again and again: the ceiling of decode, which reads every weight once
 * for a token.
 *
 *     read_bandwidth BYTES THREADS [SECONDS]      prints the best and the median pass in bytes/s, as JSON
 *
 * Each thread has its own part, in huge pages where the system gives them.  The set should be as large as the weights: what a cache
 * holds of it, it holds of them. */
#include "base/base.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_PASSES 4096

#define STREAMS 4                   /* of each thread, so that enough lines are on their way at once */

typedef uint64_t line __attribute__((vector_size(64)));

struct set {
    const line *lines;
    size_t n_lines;
    int n_threads;
    line sum[1024];                 /* of each thread, so that the reads are for something */
};

#ifdef __x86_64__
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void read_part(void *user, int thread)
{
    struct set *set = user;
    size_t n = set->n_lines / (size_t)set->n_threads / STREAMS;
    const line *from = set->lines + (size_t)thread * n * STREAMS;
    line sum[STREAMS] = { 0 };
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < STREAMS; s++)
            sum[s] ^= from[s * n + i];
    for (size_t s = 0; s < STREAMS; s++)
        set->sum[thread] ^= sum[s];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static struct set set;
    static double seconds[MAX_PASSES];
    struct pool *pool;
    size_t n_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) / 4096 * 4096 : 0;
    set.n_threads = argc > 2 ? atoi(argv[2]) : 0;
    double limit_s = argc > 3 ? atof(argv[3]) : 0.3, all = 0;
    if (!n_bytes || set.n_threads < 1 || set.n_threads > (int)COUNT_OF(set.sum) || pool_open(&pool, set.n_threads, true) < 0) {
        fprintf(stderr, "wanted: read_bandwidth BYTES THREADS [SECONDS]\n");
        return 2;
    }
    void *bytes = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return perror("read_bandwidth"), 1;
    madvise(bytes, n_bytes, MADV_HUGEPAGE);
    memset(bytes, 1, n_bytes);
    set.lines = bytes;
    set.n_lines = n_bytes / sizeof *set.lines;
    pool_run(pool, read_part, &set);
    int n = 0;
    for (; n < MAX_PASSES && (n < 3 || all < limit_s); n++) {
        double start_s = seconds_now();
        pool_run(pool, read_part, &set);
        all += seconds[n] = seconds_now() - start_s;
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    printf("{\"best\": %.6g, \"median\": %.6g, \"passes\": %d}\n", (double)n_bytes / seconds[0], (double)n_bytes / seconds[n / 2], n);
    pool_close(pool);
    return 0;
}
