#include "run/probe.h"

#include "base/base.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE_BYTES (1u << 20)      /* between two looks at the clock: some 50 us, and some 10 us of operations */
#define PIECE_ROUNDS 1000
#define MEASURE_S 0.2

struct probe_thread {
    _Alignas(CACHE_LINE) double amount;         /* bytes or operations */
    uint64_t sum;                               /* of what was read, so that it is */
};

struct probe {
    struct pool *pool;
    const struct kernels *kernels;
    uint8_t *buffer;
    size_t n_pieces;
    enum probe_what what;
    double end_s;
    struct probe_thread *thread;
};

/* The pieces of a thread. */
static size_t first_piece(const struct probe *probe, int thread)
{
    return probe->n_pieces * (size_t)thread / (size_t)pool_n_threads(probe->pool);
}

static void touch(void *user, int thread)
{
    const struct probe *probe = user;
    for (size_t i = first_piece(probe, thread); i < first_piece(probe, thread + 1); i++)
        memset(probe->buffer + i * PIECE_BYTES, 1, PIECE_BYTES);
}

int probe_open(struct probe **out, struct pool *pool, const struct kernels *kernels, size_t n_bytes)
{
    size_t n_threads = (size_t)pool_n_threads(pool);
    size_t n_pieces = MAX(MIN(n_bytes, memory_available() / 4) / PIECE_BYTES, n_threads);
    struct probe *probe = calloc(1, sizeof *probe);
    struct probe_thread *thread = aligned_alloc(CACHE_LINE, n_threads * sizeof *thread);
    void *buffer = mmap(NULL, n_pieces * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!probe || !thread || buffer == MAP_FAILED) {
        free(probe);
        free(thread);
        if (buffer != MAP_FAILED)
            munmap(buffer, n_pieces * PIECE_BYTES);
        return error_set(ERR_NO_MEMORY, "no memory to measure this machine");
    }
    madvise(buffer, n_pieces * PIECE_BYTES, MADV_HUGEPAGE);
    *probe = (struct probe){ .pool = pool, .kernels = kernels, .buffer = buffer, .n_pieces = n_pieces, .thread = thread };
    pool_run(pool, touch, probe);
    *out = probe;
    return 0;
}

void probe_close(struct probe *probe)
{
    if (!probe)
        return;
    munmap(probe->buffer, probe->n_pieces * PIECE_BYTES);
    free(probe->thread);
    free(probe);
}

static double run_piece(struct probe *probe, struct probe_thread *t, size_t piece)
{
    switch (probe->what) {
    case PROBE_INT8: return probe->kernels->probe_int8(PIECE_ROUNDS);
    case PROBE_F32:  return probe->kernels->probe_f32(PIECE_ROUNDS);
    default:
        t->sum += probe->kernels->probe_read(probe->buffer + piece * PIECE_BYTES, PIECE_BYTES);
        return PIECE_BYTES;
    }
}

static void measure(void *user, int thread)
{
    struct probe *probe = user;
    struct probe_thread *t = &probe->thread[thread];
    size_t begin = first_piece(probe, thread), end = first_piece(probe, thread + 1);
    t->amount = 0;
    for (size_t piece = begin; seconds_now() < probe->end_s; piece = piece + 1 < end ? piece + 1 : begin)
        t->amount += run_piece(probe, t, piece);
}

void probe_run(struct probe *probe, enum probe_what what, struct peaks *best)
{
    double start_s = seconds_now(), amount = 0;
    double *rate[N_PROBES] = { [PROBE_READ] = &best->read_bytes_s, [PROBE_INT8] = &best->int8_ops_s, [PROBE_F32] = &best->f32_ops_s };
    probe->what = what;
    probe->end_s = start_s + MEASURE_S;
    pool_run(probe->pool, measure, probe);
    for (int t = 0; t < pool_n_threads(probe->pool); t++)
        amount += probe->thread[t].amount;
    *rate[what] = MAX(*rate[what], amount / (seconds_now() - start_s));
    best->buffer_bytes = probe->n_pieces * PIECE_BYTES;
}
