/* kernel.h: the table of compute kernels, one row of function pointers for each instruction set.
 *
 * The portable C of every kernel defines the answer; every other variant gives the same bits (docs/architecture.md, "One answer"):
 *   - SIMD lanes and register tiles hold different outputs; a sum over K runs in ascending order in each lane, one fmaf
 *     (or one integer dot product) at a time.
 *   - A reduction over a row has 16 virtual lanes: element i belongs to lane i mod 16, lanes start at +0 (or at the
 *     identity), and are added in one fixed tree: gap 8, then 4, 2, 1 (lane[i] += lane[i + gap]).
 *   - Only fmaf, sqrtf and rintf come from libm; exp and friends are in kernel/math.h.
 * A kernel knows nothing of graphs, ranks or threads: it computes the range it is given.  Pointers must not overlap unless
 * a line says so.  Rows are f32 and need no alignment; packed weights are 64-byte aligned. */
#ifndef STOA_KERNEL_KERNEL_H
#define STOA_KERNEL_KERNEL_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- activations in int8 blocks -------------------------------------------------------------------------------------
 * A row of K floats (K % 32 == 0) becomes K/32 blocks.  With amax the largest magnitude of the block:
 *   any value not finite:     d = NaN, q = 0, s = NaN        (so that it shows up in every output it touches)
 *   amax < 1e-30:             d = 0,   q = 0, s = 0
 *   else d = amax / 127, q = rint(x * (127 / amax)) to even, clamped to +-127; sum = sum of q (exact); s = d * (float)sum
 * Kernels see quants as unsigned, 8 or 128 too large; an integer dot product with them starts at the correction. */
#define ACT_BLOCK 32
struct act_block {
    int8_t q[ACT_BLOCK];
    float d;
    float s;
    int32_t start8, start128;       /* -8 * sum, -128 * sum */
};
typedef void quantize_fn(struct act_block *restrict to, const float *restrict from, size_t k);

/* ---- what the machine can ----------------------------------------------------------------------------------------------
 * For a roofline.  ops: runs n_rounds of the widest multiplication and addition that kernels of this set use, on registers alone, and
 * says how many operations that were; a multiplication and an addition are two. */
typedef double probe_ops_fn(uint32_t n_rounds);
/* Reads n_bytes, a multiple of 256, from 64-byte aligned memory, and gives a number that depends on all of them. */
typedef uint64_t probe_read_fn(const void *from, size_t n_bytes);

/* ---- matrix product with packed weights -------------------------------------------------------------------------------
 * y[t][n] = sum over k of x[t][k] w[n][k], rows of weights in panels of 16: packed [ceil(N/16)][...].  Rows past N in the
 * last panel are zero.  How a panel is laid out inside is the business of matmul_pack() and the kernels of that type (panel.h);
 * its size is 16 rows as they stand in the file (rounded up to whole 64 bytes), a few percent more for some types of 256.
 *
 * The sum over k is one chain in ascending order, or, with a tree, a chain for each group and a stack machine over the
 * groups: group g covers k in [end[g-1], end[g]) (end[-1] = 0); its chain starts at +0; when done it is pushed; then
 * n_merges[g] times the two topmost entries a (below) and b (top) are replaced by a + b.  What is left on the stack at the
 * end, n_parts entries from bottom to top, are the outputs: part p goes to y + p * part_stride.  Without a tree: one
 * chain, one part.  k = 0 or n_groups = 0 gives no part at all, and y is not touched.
 *
 * One step of the chain, per output:
 *   weights in blocks, activations int8:  once per 32 k, with dot = sum of value(q_w) q_a in int32 (quant.h has value()):
 *     no sub-scales    acc = fmaf((float)dot, dw * da, acc), dw * da rounded to f32 first
 *     one for 32       acc = fmaf((float)dot * (float)scale, dw * da, acc)
 *     two for 32       acc = fmaf(fmaf((float)dot1, (float)scale1, (float)dot0 * (float)scale0), dw * da, acc), dot0 and scale0
 *                      of the first 16 k; none of these products of integers reaches 2^24 (Q6_K: 2^24 - 2^17), nor does their
 *                      sum, so that the inner fmaf and * do not round
 *   and then, for a type with minimums:
 *     Q4_1 Q5_1        acc = fmaf(mw, s_a, acc)
 *     Q4_K Q5_K        acc = fmaf(-mw * (float)minimum, s_a, acc), the product rounded first
 *     Q2_K             acc = fmaf((float)(minimum0 * sum0 + minimum1 * sum1), -mw * da, acc), sum0 and sum1 of q_a in each half,
 *                      in int32
 *   activations f32, any type:            once per element: acc = fmaf(x, w, acc), w as dequantize_row() gives it */
#define PANEL_ROWS 16
#define TREE_MAX_GROUPS 64

struct sum_tree {
    uint32_t n_groups, n_parts;
    uint32_t end[TREE_MAX_GROUPS];      /* in elements of K; a multiple of the block of weights, and of 32 where activations are in
                                         * blocks */
    uint8_t n_merges[TREE_MAX_GROUPS];
};

struct matmul_args {
    const void *w;                  /* packed weights, from their first panel */
    const void *x;                  /* struct act_block[.][k/32] or float[.][k]: row t at x + t * x_stride bytes */
    size_t x_stride;                /* bytes from a row of x to the next */
    float *y;                       /* row t at y + t * y_stride, column n */
    size_t y_stride, part_stride;   /* in floats */
    uint32_t k;
    uint32_t n_rows;                /* N of these weights; columns n_rows and up are not written */
    uint32_t panel0, panel1;        /* compute columns 16 * panel0 .. min(16 * panel1, n_rows) */
    uint32_t t0, t1;                /* of rows t0 .. t1 */
    const struct sum_tree *tree;    /* NULL: one chain */
};
typedef void matmul_fn(const struct matmul_args *args);

/* Bytes of the packed form of n rows of k elements. */
size_t matmul_packed_bytes(enum dtype type, uint32_t n_rows, uint32_t k);
/* Packs panels panel0..panel1 of a matrix of n_rows rows.  Row n is at rows + n * row_bytes (its first element wanted
 * already; k counts the elements wanted, a multiple of the type's block; k_total of the file does not matter here). */
void matmul_pack(void *packed, enum dtype type, const void *rows, size_t row_bytes, uint32_t n_rows, uint32_t k,
                 uint32_t panel0, uint32_t panel1);

/* ---- row operations ------------------------------------------------------------------------------------------------- */
/* y = (x * (1 / sqrtf(mean(x^2) + eps))) * weight; the sum of squares has 16 lanes (acc = fmaf(x, x, acc)); mean = sum / n.
 * y may be x. */
typedef void rms_norm_fn(float *y, const float *x, const float *weight, size_t n, float eps);
/* y = a + b; y may be a or b. */
typedef void add_fn(float *y, const float *a, const float *b, size_t n);
/* y = act(gate) * up, with math.h's exp and tanh; y may be gate or up.
 *   swiglu   act(x) = x * (1 / (1 + exp(-x)))
 *   geglu    act(x) = (0.5 * x) * (1 + tanh(u)),  u = 0x1.988454p-1 * fmaf(0.044715f * (x * x), x, x)      (GELU, tanh form) */
typedef void glu_fn(float *y, const float *gate, const float *up, size_t n);
/* y = x * factor; y may be x. */
typedef void scale_fn(float *y, const float *x, float factor, size_t n);
/* y = cap * tanh(x / cap), cap > 0; y may be x. */
typedef void softcap_fn(float *y, const float *x, float cap, size_t n);
/* Rotates one head in place.  angle holds cos then sin, n_pairs each (n_pairs = rotated dims / 2).
 *   interleaved (`llama` in GGUF): pairs (x[2i], x[2i+1]);  else ("neox"): pairs (x[i], x[i + n_pairs])
 *   x0' = fmaf(x0, c, -(x1 * s)),  x1' = fmaf(x0, s, x1 * c) */
typedef void rope_fn(float *x, const float *angle, size_t n_pairs, bool interleaved);
/* Largest element, exact; a zero comes out as +0, and a NaN anywhere gives C's NAN.  n >= 1 */
typedef float row_max_fn(const float *x, size_t n);

/* ---- KV cache blocks and attention ------------------------------------------------------------------------------------
 * A tile holds BLOCK_TOKENS consecutive positions of one KV head:
 *   k [head_dim][BLOCK_TOKENS] transposed (lanes are keys), then v [BLOCK_TOKENS][head_dim], elements f16, bf16 or f32,
 *   or int8 in q8_0, where head_dim is a multiple of 32 and the scales follow, f16 d, one for 32 dims of a position:
 *   of k [head_dim / 32][BLOCK_TOKENS], then of v [head_dim / 32][BLOCK_TOKENS].  An element's value is d * q, exact in f32.
 * Plain types are rounded to nearest even.  In q8_0, with amax the largest magnitude of the 32:
 *   any value not finite:     d = NaN, q = 0
 *   else d = f16 of amax / 127, q = rint(x * (1 / d)) to even, clamped to +-127; q = 0 where d is 0 or, too large, infinite
 * (then the value is NaN, and shows). */
#define BLOCK_TOKENS 16
#define SPAN_TOKENS 256
#define KV_BLOCK 32

static inline size_t kv_tile_bytes(enum dtype type, uint32_t head_dim)
{
    return 2 * dtype_bytes(type, (size_t)head_dim * BLOCK_TOKENS);
}
/* In a tile of q8_0: the scales of 16 positions, dims d & ~31 and up, of k or of v. */
static inline size_t kv_scales_at(uint32_t head_dim, bool of_v, size_t d)
{
    size_t row = d / KV_BLOCK + (of_v ? head_dim / KV_BLOCK : 0);
    return (2 * (size_t)head_dim + row * sizeof(uint16_t)) * BLOCK_TOKENS;
}
/* Stores k and v of one position at slot (position % 16). */
typedef void kv_store_fn(void *tile, uint32_t slot, const float *k, const float *v, uint32_t head_dim);

/* Attention of a few queries of one sequence over one KV head.  Query i sees positions first_key[i] .. n_keys[i] - 1, at
 * least one.  tiles[b] is the tile of positions 16 b .. 16 b + 15, and is not looked at where no query sees one of them;
 * slots that a query does not see may hold anything, NaN too.
 *
 * Positions are cut into spans of SPAN_TOKENS.  In a span, for a query:
 *   score[j] = (chain over d ascending of fmaf(q[d], k[j][d], acc)) * scale;  with a softcap: cap * tanh(score / cap)
 *   m = max score;  p[j] = exp(score[j] - m);  l = sum of p, 16 lanes (lane = j mod 16), fixed tree
 *   o[d] = chain over j ascending of fmaf(p[j], v[j][d], acc)
 * Keys that the query does not see are skipped, not multiplied by 0; a span of which it sees none is absent.  Spans are merged
 * as a binary counter: after span s is pushed, for bit b = 0, 1, .. of s while it is 1, the two topmost partials are merged,
 * unless the lower one is absent: that is when (s >> b) << b is not above the first span that the query sees.  (So with
 * all spans seen: after 1 once, after 3 twice.)  At the end all are merged, the two topmost first.
 *   merge(older a, newer b): m = max(a.m, b.m), ca = exp(a.m - m), cb = exp(b.m - m),
 *                            l = fmaf(b.l, cb, a.l * ca), o = fmaf(b.o, cb, a.o * ca)
 * The result is o * (1 / l). */
struct attention_args {
    const void *const *tiles;
    uint32_t n_queries;             /* 1 .. ATTENTION_MAX_QUERIES */
    const float *const *q;          /* [n_queries] -> [head_dim] */
    float *const *out;              /* [n_queries] -> [head_dim]; not used with partials */
    const uint32_t *first_key;      /* [n_queries]; NULL: 0 for all */
    const uint32_t *n_keys;         /* [n_queries] */
    uint32_t head_dim;              /* 1 .. ATTENTION_MAX_DIM */
    float scale;                    /* above 0 */
    float softcap;                  /* 0: none */
    struct attention_partial *partials;     /* NULL, or [n_queries]: a run of spans, see below */
    uint32_t run, run_shift;
};
#define ATTENTION_MAX_QUERIES 64
#define ATTENTION_MAX_DIM 256
#define ATTENTION_MAX_KEYS (1u << 23)                   /* of one query; the stack of partials is sized by it */
#define ATTENTION_MAX_LEVELS 16                         /* log2(ATTENTION_MAX_KEYS / SPAN_TOKENS) + 1 */
typedef void attention_fn(const struct attention_args *args);

/* One sequence for several threads.  Runs are 1 << run_shift spans each, run r beginning at span r << run_shift: a whole run is
 * a subtree of the counter.  With partials, attention computes run `run` alone and leaves what its merges gave, a partial for
 * each query that sees a key of it.  attention_merge does the rest: the same args but for partials, which are those of runs
 * `run` .. run + n_runs - 1, [n_runs][n_queries], and must have all that the queries see.  It merges them in place, runs in the
 * role of spans, and writes the results to out. */
struct attention_partial {
    _Alignas(64) float o[ATTENTION_MAX_DIM];
    float m, l;
};
typedef void attention_merge_fn(const struct attention_args *args);

/* ---- the table ---------------------------------------------------------------------------------------------------------- */
struct kernels {
    const char *name;                               /* "c", "avx2", "avxvnni", "avx512", "amx"; "neon" */
    unsigned needs;                                 /* enum cpu_feature bits */
    probe_ops_fn *probe_int8, *probe_f32;
    probe_read_fn *probe_read;
    matmul_fn *matmul_int8[N_DTYPES];               /* by weight type; NULL where it takes f32 activations always */
    matmul_fn *matmul_f32[N_DTYPES];
    quantize_fn *quantize;
    rms_norm_fn *rms_norm;
    add_fn *add;
    glu_fn *swiglu, *geglu;
    scale_fn *scale;
    softcap_fn *softcap;
    rope_fn *rope;
    row_max_fn *row_max;
    kv_store_fn *kv_store[N_DTYPES];                /* F16, BF16, F32, Q8_0 */
    attention_fn *attention[N_DTYPES];              /* by cache type */
    attention_merge_fn *attention_merge;
};
/* All rows that were compiled in, best last; n_kernels of them.  The first is portable C. */
extern const struct kernels *const kernels_all[];
extern const size_t n_kernels;
/* The best row that this CPU can run, or the one called `name`: ERR_USAGE when it is unknown or this CPU lacks it. */
int kernels_find(const struct kernels **out, const char *name);

#endif
