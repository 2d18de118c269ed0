/* test_cut.c: the cut that ranks find together is the one that a plain sort of the whole row gives, ties and all.
 * Started plainly, the program also runs itself under mpirun. */
#include "tests/cluster/world.h"

#include "base/base.h"
#include "base/random.h"
#include "kernel/mass.h"

#include <math.h>

enum { VOCAB = 3000, MAX_RANKS = 4, N_SEEDS = 40 };

static const struct sample_params params[] = {
    { .temperature = 1, .top_p = 1, .top_k = 1 },
    { .temperature = 1, .top_p = 1, .top_k = 1300 },
    { .temperature = 1, .top_p = 1, .top_k = VOCAB },
    { .temperature = 1, .top_p = 0.5f },
    { .temperature = 3, .top_p = 0.99f },
    { .temperature = 0.3f, .top_p = 0.999999f },
    { .temperature = 1, .top_p = 1e-9f },
    { .temperature = 2, .top_p = 0.8f, .top_k = 1500 },
    { .temperature = 100, .top_p = 0.9f, .top_k = 2999 },
    { .temperature = 0.01f, .top_p = 0.9f },
};

/* Of few values, so that ties abound; sometimes of one, or with much that cannot be picked. */
static void random_row(float *logits, uint64_t seed)
{
    uint32_t n_values = seed % 5 == 0 ? 1 : 2 + (uint32_t)(random_u64(seed, 0) % 300);
    for (uint32_t i = 0; i < VOCAB; i++) {
        uint64_t r = random_u64(seed, 10 + i);
        logits[i] = seed % 3 == 1 && r % 4 ? -INFINITY : (float)(r / 4 % n_values) / 16 - 5;
        logits[i] = logits[i] == 0 && r & 1 ? -0.0f : logits[i];
    }
    logits[random_u64(seed, 1) % VOCAB] = 3;
}

static float largest(const float *logits)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < VOCAB; i++)
        max = fmaxf(max, logits[i]);
    return max;
}

static const float *sorted;

static int by_logit(const void *a, const void *b)
{
    float x = sorted[*(const uint32_t *)a], y = sorted[*(const uint32_t *)b];
    return x != y ? (x > y ? -1 : 1) : *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* Which ids are in. */
static void expected(bool *in, const float *logits, const struct sample_params *p)
{
    uint32_t order[VOCAB], n = p->top_k ? MIN(p->top_k, VOCAB) : VOCAB, n_kept = 0;
    uint64_t mass = 0, sum = 0;
    float max = largest(logits);
    for (uint32_t i = 0; i < VOCAB; i++) {
        order[i] = i;
        in[i] = false;
    }
    sorted = logits;
    qsort(order, VOCAB, sizeof *order, by_logit);
    for (uint32_t i = 0; i < n; i++)
        mass += mass_of(logits[order[i]], max, p->temperature);
    for (; n_kept < n && (p->top_p == 1 || n_kept == 0 || !sample_is_nucleus(sum, mass, p->top_p)); n_kept++) {
        in[order[n_kept]] = true;
        sum += mass_of(logits[order[n_kept]], max, p->temperature);
    }
}

/* Slices cut anywhere, some of them empty. */
static void random_cuts(uint32_t *first, uint32_t n_ranks, uint64_t seed)
{
    first[0] = 0;
    first[n_ranks] = VOCAB;
    for (uint32_t r = 1; r < n_ranks; r++)
        first[r] = first[r - 1] + (uint32_t)(random_u64(seed, 4000 + r) % (VOCAB - first[r - 1] + 1));
}

static void check_cut(struct comm *tp, const float *logits, const struct sample_params *p, uint64_t seed)
{
    uint32_t n_ranks = tp ? (uint32_t)comm_size(tp) : 1, rank = tp ? (uint32_t)comm_rank(tp) : 0, first[MAX_RANKS + 1], n_ties = 0, n_wrong = 0;
    static struct sample_bin bins[MAX_RANKS * SAMPLE_BINS];
    static float scratch[VOCAB];
    bool in[VOCAB];
    random_cuts(first, n_ranks, seed);
    struct sample_row row = { .kernels = kernels_all[0], .raw = logits + first[rank], .logits = logits + first[rank], .n = first[rank + 1] - first[rank],
                              .first_id = (int32_t)first[rank], .n_vocab = VOCAB, .max = largest(logits), .params = p };
    check_int(sample_find_cut(&row, tp, bins, scratch), 0);
    check(row.is_cut);
    expected(in, logits, p);
    for (uint32_t i = 0; i < row.n; i++)
        n_wrong += sample_cut_keeps(&row.cut, row.logits[i], &n_ties) != in[first[rank] + i];
    if (!check_int(n_wrong, 0))
        printf("    seed %u, rank %u of %u\n", (unsigned)seed, rank, n_ranks);
}

static void run_rank(struct comm *tp)
{
    float logits[VOCAB];
    for (size_t i = 0; i < COUNT_OF(params); i++) {
        check_begin("temperature %g, top-k %u, top-p %g on %d ranks", (double)params[i].temperature, params[i].top_k, (double)params[i].top_p,
                    tp ? comm_size(tp) : 1);
        for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
            random_row(logits, seed);
            check_cut(tp, logits, &params[i], seed);
        }
    }
}

int main(int argc, char **argv)
{
    struct comm *world;
    (void)argc;
    if (comm_world_given()) {
        check_int(comm_open_world(&world), 0);
        run_rank(world);
        comm_close(world);
        return check_done();
    }
    run_rank(NULL);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);        /* MPI's own */
    for (uint32_t n = 2; n <= MAX_RANKS; n++) {
        check_begin("%u ranks", n);
        int n_clean = run_under_mpirun(argv[0], n);
        if (n_clean < 0)
            check_skip("mpirun.openmpi is not there");
        else
            check_int(n_clean, n);
    }
    return check_done();
}
