/* cmd_bench.c: tokens per second of prefill and decode, and where each rank's time goes.
 *
 *   prefill   one sequence of N prompt tokens, until the logits of the last are there
 *   decode    B sequences from one token each, N new tokens for each; tokens of all sequences are counted
 *
 * bubble_share is the part of the ranks' time in which they neither compute nor move data: 1 - sum of (compute + wire) over
 * ranks / (ranks x wall time). */
#include "cli/commands.h"
#include "cli/roofline.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/threads.h"
#include "text/json_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TESTS 16

struct test {
    const char *name;
    uint32_t n_prompt, n_new, batch;
    uint32_t micro_batches;
    double *rate;                   /* [repeat], tokens per second, sorted at the end */
    double busy_s, wall_s;
    struct rank_counters *fastest;  /* [ranks], with --roofline: of the fastest run */
    double fastest_s;
};

struct bench {
    struct test test[MAX_TESTS];
    uint32_t n_tests;
    struct rank_counters *ranks, *sums;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Any tokens will do; these differ from each other and are in every vocabulary. */
static int add_sequences(struct session *s, const struct test *t, struct sequence **sequence)
{
    uint32_t n_vocab = engine_model(s->engine)->n_vocab;
    int32_t *tokens = calloc(t->n_prompt, sizeof *tokens);
    int err = tokens ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the tokens");
    for (uint32_t b = 0; !err && b < t->batch; b++) {
        for (uint32_t i = 0; i < t->n_prompt; i++)
            tokens[i] = (int32_t)((i * 7919u + b * 104729u + 13) % n_vocab);
        struct sequence_request request = { .tokens = tokens, .n_tokens = t->n_prompt, .n_new = t->n_new, .params = { .top_p = 1 } };
        err = engine_add(s->engine, &sequence[b], &request);
    }
    free(tokens);
    return err;
}

static void add_counters(struct bench *bench, struct test *t, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        const struct rank_counters *c = &bench->ranks[r];
        struct rank_counters *sum = &bench->sums[r];
        sum->rank = c->rank;
        sum->weight_bytes = c->weight_bytes;
        sum->weights_mapped = c->weights_mapped;
        sum->peak_bytes = c->peak_bytes;
        sum->compute_s += c->compute_s;
        sum->wait_s += c->wait_s;
        sum->wire_s += c->wire_s;
        sum->bytes_sent += c->bytes_sent;
        t->busy_s += c->compute_s + c->wire_s;
    }
}

static void keep_fastest(const struct bench *bench, struct test *t, double wall_s, int n_ranks)
{
    if (!t->fastest || (t->fastest_s && t->fastest_s <= wall_s))
        return;
    memcpy(t->fastest, bench->ranks, (size_t)n_ranks * sizeof *t->fastest);
    t->fastest_s = wall_s;
}

static int run_once(struct session *s, struct bench *bench, struct test *t, double *rate)
{
    struct sequence **sequence = calloc(t->batch, sizeof *sequence);
    int err = sequence ? engine_counters(s->engine, bench->ranks, true) : error_set(ERR_NO_MEMORY, "out of memory for the batch");
    if (err == 0)
        err = add_sequences(s, t, sequence);
    double start_s = seconds_now();
    while (err >= 0 && (err = engine_step(s->engine)) > 0)
        ;
    double wall_s = seconds_now() - start_s;
    for (uint32_t b = 0; err == 0 && b < t->batch; b++)
        err = sequence_error(sequence[b]);
    if (err == 0)
        err = engine_counters(s->engine, bench->ranks, true);
    for (uint32_t b = 0; sequence && b < t->batch; b++)
        if (sequence[b])
            engine_remove(s->engine, sequence[b]);
    free(sequence);
    if (err < 0)
        return err;
    *rate = (double)t->batch * (t->n_new ? t->n_new : t->n_prompt) / wall_s;
    t->wall_s += wall_s;
    keep_fastest(bench, t, wall_s, engine_n_ranks(s->engine));
    add_counters(bench, t, engine_n_ranks(s->engine));
    return 0;
}

/* A short run of each test first, so that no test pays for the first touch of memory. */
static int run_tests(struct session *s, struct bench *bench)
{
    int err = 0;
    double ignored;
    for (uint32_t i = 0; !err && i < bench->n_tests; i++) {
        struct test warm = bench->test[i];
        warm.fastest = NULL;
        warm.n_prompt = MIN(warm.n_prompt, 64);
        warm.n_new = MIN(warm.n_new, 8);
        err = run_once(s, bench, &warm, &ignored);
    }
    memset(bench->sums, 0, (size_t)engine_n_ranks(s->engine) * sizeof *bench->sums);
    for (long repeat = 0; !err && repeat < s->options->repeat; repeat++) {
        for (uint32_t i = 0; !err && i < bench->n_tests; i++)
            err = run_once(s, bench, &bench->test[i], &bench->test[i].rate[repeat]);
        if (!err && s->options->roofline)
            err = engine_probe(s->engine);
    }
    if (!err)
        err = engine_counters(s->engine, bench->ranks, true);       /* for the peaks */
    for (uint32_t i = 0; i < bench->n_tests; i++)
        qsort(bench->test[i].rate, (size_t)s->options->repeat, sizeof(double), by_value);
    return err;
}

static double bubble_share(const struct test *t, int n_ranks)
{
    double share = 1 - t->busy_s / (t->wall_s * n_ranks);
    return MAX(share, 0);
}

static struct roofline roofline_of(struct session *s, const struct test *t)
{
    return (struct roofline){ .wall_s = t->fastest_s, .n_ranks = engine_n_ranks(s->engine), .n_threads = engine_n_threads(s->engine),
                              .ranks = t->fastest };
}

static void print_roofline(struct session *s, const struct bench *bench, struct buffer *out)
{
    buffer_printf(out, "\n");
    roofline_print_peaks(out, bench->ranks, engine_n_ranks(s->engine));
    for (uint32_t i = 0; i < bench->n_tests; i++) {
        const struct test *t = &bench->test[i];
        struct roofline run = roofline_of(s, t);
        buffer_printf(out, "%s, %u tokens, batch %u: its fastest run\n", t->name, t->n_new ? t->n_new : t->n_prompt, t->batch);
        roofline_print(out, &run, bench->ranks);
    }
}

static void print_json(struct session *s, const struct bench *bench, int n_threads, struct buffer *out)
{
    struct json_out j = { .to = out };
    int n_ranks = engine_n_ranks(s->engine);
    long n = s->options->repeat;
    json_object(&j, NULL);
    json_text(&j, "model", s->options->model);
    json_text(&j, "layout", s->layout);
    json_integer(&j, "threads", n_threads);
    json_text(&j, "isa", engine_isa(s->engine));
    json_array(&j, "results");
    for (uint32_t i = 0; i < bench->n_tests; i++) {
        const struct test *t = &bench->test[i];
        json_object(&j, NULL);
        json_text(&j, "test", t->name);
        json_integer(&j, "tokens", t->n_new ? t->n_new : t->n_prompt);
        json_integer(&j, "batch", t->batch);
        json_object(&j, "tokens_per_s");
        json_number(&j, "min", t->rate[0], 6);
        json_number(&j, "median", t->rate[n / 2], 6);
        json_number(&j, "max", t->rate[n - 1], 6);
        json_end_object(&j);
        json_integer(&j, "micro_batches", t->micro_batches);
        json_number(&j, "bubble_share", bubble_share(t, n_ranks), 4);
        if (t->fastest) {
            struct roofline run = roofline_of(s, t);
            json_object(&j, "roofline");
            roofline_json(&j, &run, bench->ranks);
            json_end_object(&j);
        }
        json_end_object(&j);
    }
    json_end_array(&j);
    json_array(&j, "ranks");
    for (int r = 0; r < n_ranks; r++) {
        const struct rank_counters *c = &bench->sums[r];
        json_object(&j, NULL);
        json_integer(&j, "rank", c->rank);
        json_integer(&j, "weight_bytes", (int64_t)c->weight_bytes);
        json_bool(&j, "weights_mapped", c->weights_mapped);
        json_integer(&j, "peak_bytes", (int64_t)c->peak_bytes);
        json_number(&j, "compute_s", c->compute_s, 6);
        json_number(&j, "wait_s", c->wait_s, 6);
        json_number(&j, "wire_s", c->wire_s, 6);
        json_integer(&j, "bytes_sent", (int64_t)c->bytes_sent);
        if (s->options->roofline)
            roofline_json_peaks(&j, &bench->ranks[r].peaks);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    buffer_add_text(out, "\n");
}

static void print_text(struct session *s, const struct bench *bench, int n_threads, struct buffer *out)
{
    long n = s->options->repeat;
    buffer_printf(out, "%s, layout %s, %d threads a rank, %s; tokens/s are min, median, max of %ld\n", s->options->model, s->layout,
                  n_threads, engine_isa(s->engine), n);
    buffer_printf(out, "%-8s %7s %6s %10s %10s %10s  %13s %7s\n", "test", "tokens", "batch", "min", "median", "max", "micro-batches",
                  "bubble");
    for (uint32_t i = 0; i < bench->n_tests; i++) {
        const struct test *t = &bench->test[i];
        buffer_printf(out, "%-8s %7u %6u %10.2f %10.2f %10.2f  %13u %6.1f%%\n", t->name, t->n_new ? t->n_new : t->n_prompt, t->batch,
                      t->rate[0], t->rate[n / 2], t->rate[n - 1], t->micro_batches, 100 * bubble_share(t, engine_n_ranks(s->engine)));
    }
    for (int r = 0; r < engine_n_ranks(s->engine); r++) {
        const struct rank_counters *c = &bench->sums[r];
        buffer_printf(out, "rank %-3u weights %llu bytes, peak %llu MB; compute %.2f s, wait %.2f s, wire %.2f s, %llu bytes sent\n",
                      c->rank, (unsigned long long)c->weight_bytes, (unsigned long long)c->peak_bytes >> 20, c->compute_s, c->wait_s,
                      c->wire_s, (unsigned long long)c->bytes_sent);
    }
    if (s->options->roofline)
        print_roofline(s, bench, out);
}

static int plan_tests(struct bench *bench, const struct options *o)
{
    uint32_t pp = o->mesh.size[AXIS_PP], dp = o->mesh.size[AXIS_DP];
    if (o->prompt_tokens)
        bench->test[bench->n_tests++] = (struct test){ .name = "prefill", .n_prompt = (uint32_t)o->prompt_tokens, .batch = 1 };
    for (const char *at = o->batches; o->generate && *at;) {
        char *end;
        long batch = strtol(at, &end, 10);
        if (end == at || batch < 1 || batch > 1024 || (*end && *end != ',') || bench->n_tests == MAX_TESTS)
            return error_set(ERR_USAGE, "--batch %s: wanted up to %d numbers from 1 to 1024 with commas between", o->batches,
                             MAX_TESTS - 1);
        bench->test[bench->n_tests++] = (struct test){ .name = "decode", .n_prompt = 1, .n_new = (uint32_t)o->generate,
                                                       .batch = (uint32_t)batch, .micro_batches = MIN(pp, DIV_UP((uint32_t)batch, dp)) };
        at = *end ? end + 1 : end;
    }
    return bench->n_tests ? 0 : error_set(ERR_USAGE, "--prompt 0 --generate 0: nothing is left to measure");
}

static int body(struct session *s, void *user)
{
    struct bench *bench = user;
    struct buffer out = { 0 };
    size_t n_ranks = (size_t)engine_n_ranks(s->engine);
    int n_threads = engine_n_threads(s->engine);
    int err = 0;
    bench->ranks = calloc(n_ranks, sizeof *bench->ranks);
    bench->sums = calloc(n_ranks, sizeof *bench->sums);
    for (uint32_t i = 0; i < bench->n_tests; i++) {
        struct test *t = &bench->test[i];
        t->rate = calloc((size_t)s->options->repeat, sizeof *t->rate);
        t->fastest = s->options->roofline ? calloc(n_ranks, sizeof *t->fastest) : NULL;
        if (!t->n_new)
            t->micro_batches = DIV_UP(t->n_prompt, engine_chunk(s->engine));
        if (!t->rate || (s->options->roofline && !t->fastest))
            err = ERR_NO_MEMORY;
    }
    if (err < 0 || !bench->ranks || !bench->sums)
        err = error_set(ERR_NO_MEMORY, "out of memory for the figures");
    else if ((err = run_tests(s, bench)) == 0) {
        (s->options->json ? print_json : print_text)(s, bench, n_threads, &out);
        err = print_buffer(&out);
    }
    for (uint32_t i = 0; i < bench->n_tests; i++) {
        free(bench->test[i].rate);
        free(bench->test[i].fastest);
    }
    free(bench->ranks);
    free(bench->sums);
    buffer_release(&out);
    return err;
}

static int run(struct options *o, int argc, char **argv)
{
    struct bench bench = { 0 };
    struct session_needs needs = { .max_sequences = 1, .context = (uint32_t)MAX(o->prompt_tokens, o->generate + 1),
                                   .no_prefix_cache = true };
    int err = plan_tests(&bench, o);
    if (err < 0)
        return report_error(err);
    for (uint32_t i = 0; i < bench.n_tests; i++)
        needs.max_sequences = MAX(needs.max_sequences, bench.test[i].batch);
    if (o->context)
        needs.context = 0;
    return session_run(o, argc, argv, &needs, body, &bench);
}

const struct command command_bench = {
    "bench", "MODEL [FLAGS]", "measures prefill and decode",
    "Tests take turns, so that a change of the machine's mood meets all of them.\n\n"
    "  stoa bench model.gguf --batch 1,4,16 --json",
    OPTIONS_COMPUTE | OPTIONS_HOSTS | OPTIONS_BENCH | OPTIONS_JSON, 1, 1, run,
};
