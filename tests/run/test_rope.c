/* test_rope.c: frequencies of RoPE against formulas in double; what a model file says of them; cosines and sines. */
#include "base/error.h"
#include "graph/mesh.h"
#include "model/decoder.h"
#include "run/instr.h"
#include "run/rope.h"
#include "tests/check.h"
#include "tests/format/gguf_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PI 3.14159265358979323846
#define YARN(base_, factor_, context, fast, slow) \
    { .kind = ROPE_YARN, .base = (base_), .factor = (factor_), .original_context = (context), .beta_fast = (fast), .beta_slow = (slow) }

enum { MAX_ROTATED = 256 };

/* ---- frequencies ---- */
/* "YaRN", section 3.2: pair i turns r(i) = L / wavelength times in the original context; it is kept above beta_fast, stretched below
 * beta_slow.  The paper's ramp is over r; implementations, and models trained with them, ramp over the pair's number between
 * those two pairs, rounded outwards.  They are found here by search, not by the logarithm that rope.c solves for. */
static double turns(const struct rope_scaling *rope, double pair, uint32_t n)
{
    double wavelength = 2 * PI * pow(rope->base, 2 * pair / n);
    return rope->original_context / wavelength;
}

static double kept_share(const struct rope_scaling *rope, uint32_t i, uint32_t n)
{
    int fast = 0, slow = (int)n - 1;    /* the last that turns at least beta_fast times; the first that turns at most beta_slow */
    while (fast + 1 < 2 * (int)n && turns(rope, fast + 1, n) >= rope->beta_fast)
        fast++;
    while (slow > 0 && turns(rope, slow - 1, n) <= rope->beta_slow)
        slow--;
    if ((int)i <= fast)
        return 1;
    return (int)i >= slow ? 0 : 1 - (double)((int)i - fast) / (slow - fast);
}

static double defined(const struct rope_scaling *rope, uint32_t i, uint32_t n, const float *factors)
{
    double plain = pow(rope->base, -2.0 * i / n), frequency = plain;
    if (rope->kind == ROPE_LINEAR)
        frequency = plain / rope->factor;
    if (rope->kind == ROPE_YARN) {
        double kept = kept_share(rope, i, n);
        frequency = plain * kept + plain / rope->factor * (1 - kept);
    }
    return factors ? frequency / factors[i] : frequency;
}

static const struct { const char *name; struct rope_scaling rope; uint32_t n; } kinds[] = {
    { "Llama 2",                { .kind = ROPE_PLAIN, .base = 1e4f }, 128 },
    { "Llama 3",                { .kind = ROPE_PLAIN, .base = 5e5f }, 128 },
    { "two dims",               { .kind = ROPE_PLAIN, .base = 1e4f }, 2 },
    { "the largest head",       { .kind = ROPE_PLAIN, .base = 1e6f }, MAX_ROTATED },
    { "Gemma 3, global",        { .kind = ROPE_LINEAR, .base = 1e6f, .factor = 8 }, 256 },
    { "linear by 2.5",          { .kind = ROPE_LINEAR, .base = 1e4f, .factor = 2.5f }, 64 },
    { "Qwen2.5 by YaRN",        YARN(1e6f, 4, 32768, 32, 1), 128 },
    { "Llama 2 by YaRN",        YARN(1e4f, 16, 4096, 32, 1), 128 },
    { "YaRN with other betas",  YARN(5e4f, 3, 8192, 20, 3), 96 },
    { "YaRN, all are slow",     YARN(1e4f, 2, 4, 32, 1), 64 },
    { "YaRN, all are fast",     YARN(1.5f, 2, 65536, 32, 1), 64 },
};

/* Each of at most three steps rounds to f32 once, and pow() is good to far less. */
static const double tolerance = 3.01 * 0x1p-24;

static void test_frequencies(void)
{
    float factors[MAX_ROTATED / 2], got[MAX_ROTATED / 2 + 1];
    for (uint32_t i = 0; i < COUNT_OF(factors); i++)
        factors[i] = 1 + (float)i * 0.37f;
    for (size_t k = 0; k < COUNT_OF(kinds); k++)
        for (int divided = 0; divided < 2; divided++) {
            const struct rope_scaling *rope = &kinds[k].rope;
            uint32_t n = kinds[k].n;
            check_begin("frequencies: %s%s", kinds[k].name, divided ? ", divided by factors" : "");
            got[n / 2] = 77;
            rope_frequencies(got, rope, n, divided ? factors : NULL);
            for (uint32_t i = 0; i < n / 2; i++) {
                double want = defined(rope, i, n, divided ? factors : NULL);
                if (!check(fabs(got[i] - want) <= tolerance * want))
                    printf("pair %u: %.9g, wanted %.9g\n", i, (double)got[i], want);
            }
            check(got[n / 2] == 77);
        }
}

/* The pairs between which YaRN of Qwen2.5 blends are known: 23 and 40 of 64. */
static void test_ramp(void)
{
    struct rope_scaling plain = { .kind = ROPE_PLAIN, .base = 1e6f }, yarn = YARN(1e6f, 4, 32768, 32, 1);
    float was[64], is[64];
    check_begin("YaRN keeps the fast pairs, stretches the slow ones and blends between");
    rope_frequencies(was, &plain, 128, NULL);
    rope_frequencies(is, &yarn, 128, NULL);
    for (uint32_t i = 0; i < 64; i++) {
        if (i <= 23)
            check(is[i] == was[i]);
        else if (i >= 40)
            check(is[i] == was[i] / 4);
        else
            check(is[i] < was[i] && is[i] > was[i] / 4);
    }
}

/* ---- the keys of a model file ---- */
#define U32 "w:4 "
#define F32 "w:6 "
#define STRING "w:8 "
#define HEAD(n_keys) "GGUF w:3 q:1 q:" #n_keys " s:general.architecture " STRING "s:llama "
#define BASE(x) "s:llama.rope.freq_base " F32 "f:" #x " "
#define TYPE(name) "s:llama.rope.scaling.type " STRING "s:" #name " "
#define FACTOR(x) "s:llama.rope.scaling.factor " F32 "f:" #x " "
#define ORIGINAL(n) "s:llama.rope.scaling.original_context_length " U32 "w:" #n " "
#define REAL(suffix, x) "s:llama.rope." suffix " " F32 "f:" #x " "
#define BETAS(fast, slow) REAL("scaling.yarn_beta_fast", fast) REAL("scaling.yarn_beta_slow", slow)

static const struct { const char *what, *keys; int err; struct rope_scaling want; } files[] = {
    { "nothing", HEAD(1), 0, { ROPE_PLAIN, 10000, 1, 0, 0, 0, 1 } },
    { "a base", HEAD(2) BASE(500000), 0, { ROPE_PLAIN, 500000, 1, 0, 0, 0, 1 } },
    { "none", HEAD(3) TYPE(none) FACTOR(4), 0, { ROPE_PLAIN, 10000, 4, 0, 0, 0, 1 } },
    { "linear", HEAD(3) TYPE(linear) FACTOR(8), 0, { ROPE_LINEAR, 10000, 8, 0, 0, 0, 1 } },
    { "a factor without a type", HEAD(2) FACTOR(2), 0, { ROPE_LINEAR, 10000, 2, 0, 0, 0, 1 } },
    { "the older key", HEAD(2) REAL("scale_linear", 4), 0, { ROPE_LINEAR, 10000, 4, 0, 0, 0, 1 } },
    { "a factor of 0", HEAD(2) FACTOR(0), 0, { ROPE_PLAIN, 10000, 1, 0, 0, 0, 1 } },
    { "yarn", HEAD(4) TYPE(yarn) FACTOR(4) ORIGINAL(32768), 0, { ROPE_YARN, 10000, 4, 32768, 32, 1, 1.13862944f } },   /* 0.1 ln 4 + 1 */
    { "yarn that does not stretch", HEAD(4) TYPE(yarn) FACTOR(1) ORIGINAL(32768), 0, { ROPE_YARN, 10000, 1, 32768, 32, 1, 1 } },
    { "yarn with a magnitude", HEAD(5) TYPE(yarn) FACTOR(4) ORIGINAL(4096) REAL("scaling.yarn_attn_factor", 0.5), 0,
      { ROPE_YARN, 10000, 4, 4096, 32, 1, 0.56931472f } },
    { "yarn with the other key of it", HEAD(5) TYPE(yarn) FACTOR(4) ORIGINAL(4096) REAL("scaling.attn_factor", 0.5), 0,
      { ROPE_YARN, 10000, 4, 4096, 32, 1, 0.56931472f } },
    { "yarn with betas", HEAD(6) TYPE(yarn) FACTOR(2) ORIGINAL(4096) BETAS(20, 3), 0,
      { ROPE_YARN, 10000, 2, 4096, 20, 3, 1.06931472f } },
    { "yarn without its context", HEAD(3) TYPE(yarn) FACTOR(4), ERR_BAD_FILE, { 0 } },
    { "betas the wrong way round", HEAD(6) TYPE(yarn) FACTOR(2) ORIGINAL(4096) BETAS(1, 3),
      ERR_BAD_FILE, { 0 } },
    { "an unknown type", HEAD(2) TYPE(longrope), ERR_BAD_FILE, { 0 } },
    { "a negative factor", HEAD(3) TYPE(linear) FACTOR(-2), ERR_BAD_FILE, { 0 } },
    { "a base of 1", HEAD(2) BASE(1), ERR_BAD_FILE, { 0 } },
    { "a base that is no number", HEAD(2) BASE(nan), ERR_BAD_FILE, { 0 } },
};

static int open_file(struct model_file **file, const char *keys)
{
    char path[] = "/tmp/stoa-test-rope-XXXXXX";
    struct buffer bytes = { 0 };
    int fd = mkstemp(path), err = ERR_FAILED;
    gguf_write(&bytes, keys);
    gguf_write(&bytes, "s:t w:1 q:1 w:0 q:0 a:32 f:1");
    if (fd >= 0 && write(fd, bytes.bytes, bytes.size) == (ssize_t)bytes.size)
        err = model_file_open(file, path);
    close(fd);
    unlink(path);
    buffer_release(&bytes);
    return err;
}

static void check_near(float got, float want)
{
    if (!check(fabsf(got - want) <= 0x1p-23f * fabsf(want)))       /* 0.1 ln factor + 1 in f32 */
        printf("%.9g, wanted %.9g\n", (double)got, (double)want);
}

static void test_files(void)
{
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct model_file *file = NULL;
        struct rope_scaling got;
        check_begin("a file that says of RoPE: %s", files[i].what);
        if (!check_int(open_file(&file, files[i].keys), 0))
            continue;
        check_int(rope_read(&got, file, 10000), files[i].err);
        if (!files[i].err) {
            const struct rope_scaling *want = &files[i].want;
            check_int(got.kind, want->kind);
            check(got.base == want->base && got.factor == want->factor && got.original_context == want->original_context);
            check(got.beta_fast == want->beta_fast && got.beta_slow == want->beta_slow);
            check_near(got.magnitude, want->magnitude);
        }
        model_file_close(file);
    }
}

/* ---- angles ---- */
static void test_angles(void)
{
    static const int32_t positions[] = { 0, 1, 31, 4095, 131071 };
    enum { N = 64, N_ROWS = COUNT_OF(positions) };
    static const float magnitudes[] = { 1, 1.13862944f };
    for (size_t m = 0; m < COUNT_OF(magnitudes); m++) {
        struct mesh mesh;
        struct node_attr attr = { .n_rotated = N, .rope = { .kind = ROPE_PLAIN, .base = 1e4f, .magnitude = magnitudes[m] } };
        struct step step = { .positions = positions };
        struct program p = { .options.mesh = &mesh, .step = &step, .count[SYMBOL_T] = N_ROWS };
        float frequency[N / 2], got[N_ROWS][N];
        struct instr in = { .op = OP_rope_angles, .attr = &attr, .n_out = 1, .rows = { SYMBOL_T, false }, .frequency = frequency };
        check_begin("angles: cosines, then sines, times %g", (double)magnitudes[m]);
        mesh_parse(&mesh, NULL);
        in.out[0] = (struct operand){ .base = (char *)got, .row_bytes = sizeof got[0], .n_columns = N };
        rope_frequencies(frequency, &attr.rope, N, NULL);
        for (uint32_t chunk = 0; chunk < program_n_chunks(&p, &in); chunk++)
            program_run_chunk(&p, &in, chunk, 0);
        for (uint32_t r = 0; r < N_ROWS; r++)
            for (uint32_t i = 0; i < N / 2; i++) {
                double angle = (float)positions[r] * frequency[i];      /* the f32 product */
                check(fabs(got[r][i] - cos(angle) * magnitudes[m]) <= 0x1p-23);
                check(fabs(got[r][N / 2 + i] - sin(angle) * magnitudes[m]) <= 0x1p-23);
            }
    }
}

int main(void)
{
    test_frequencies();
    test_ramp();
    test_files();
    test_angles();
    return check_done();
}
