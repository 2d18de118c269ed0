/* cmd_perplexity.c: how well a model predicts a text, and how far that is from what another predicts.
 *
 * The text is cut into windows; each begins with the model's begin token, where it wants one, and every token but a window's
 * first is predicted from those before it in the window.
 *
 *   loss          -log p(token), natural                      perplexity    exp of the mean loss
 *   divergence    sum over the vocabulary of q (log q - log p), q being what the other model predicts: Kullback-Leibler, in nats
 *
 * The logits are exact, see docs/architecture.md; these figures are for people, so libm serves. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "text/json_out.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct mean {
    double sum, square, max;
    uint64_t n;
};

struct perplexity {
    struct session *session;
    const int32_t *window;          /* the tokens of the window that is computed, n_window of them */
    uint32_t n_window, n_windows;
    struct mean loss, divergence;
    uint64_t n_same;                /* positions where both models find the same token the likeliest */
    FILE *to, *against;             /* rows of f32 logits, one for each predicted token; or NULL */
    float *other;                   /* a row of `against` */
    int err;
    double next_s;
};

static void mean_add(struct mean *m, double value)
{
    m->sum += value;
    m->square += value * value;
    m->max = m->n ? fmax(m->max, value) : value;
    m->n++;
}

static double mean_of(const struct mean *m)
{
    return m->sum / (double)m->n;
}

static double standard_error(const struct mean *m)
{
    double n = (double)m->n, mean = mean_of(m);
    return n > 1 ? sqrt(fmax(m->square / n - mean * mean, 0) / (n - 1)) : 0;
}

/* ---- a row of logits ---- */
static uint32_t largest(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double log_sum_exp(const float *logits, uint32_t n)
{
    double max = logits[largest(logits, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

static void compare(struct perplexity *p, const float *logits, uint32_t n, double log_sum)
{
    const float *other = p->other;
    double other_log_sum, divergence = 0;
    if (fread(p->other, sizeof *other, n, p->against) != n) {
        p->err = error_set(ERR_BAD_FILE, "--against %s: has fewer logits than this model gives", p->session->options->against);
        return;
    }
    other_log_sum = log_sum_exp(other, n);
    for (uint32_t i = 0; i < n; i++) {
        double log_q = other[i] - other_log_sum;
        divergence += exp(log_q) * (log_q - (logits[i] - log_sum));
    }
    if (!isfinite(divergence)) {
        p->err = error_set(ERR_BAD_FILE, "--against %s: holds what is no logit", p->session->options->against);
        return;
    }
    mean_add(&p->divergence, divergence);
    p->n_same += largest(other, n) == largest(logits, n);
}

static void take_row(void *user, uint32_t position, const float *logits, uint32_t n_vocab)
{
    struct perplexity *p = user;
    if (p->err || position + 1 >= p->n_window)      /* after the last there is nothing to predict */
        return;
    double log_sum = log_sum_exp(logits, n_vocab);
    mean_add(&p->loss, log_sum - logits[p->window[position + 1]]);
    if (p->to && fwrite(logits, sizeof *logits, n_vocab, p->to) != n_vocab)
        p->err = error_set(ERR_FAILED, "--logits %s: %s", p->session->options->logits, strerror(errno));
    if (p->against && !p->err)
        compare(p, logits, n_vocab, log_sum);
}

/* ---- windows ---- */
static int run_window(struct perplexity *p)
{
    struct sequence *sequence;
    struct sequence_request request = { .tokens = p->window, .n_tokens = p->n_window, .params = { .top_p = 1 }, .all_rows = true,
                                        .on_row = take_row, .user = p };
    int err = engine_add(p->session->engine, &sequence, &request);
    if (err < 0)
        return err;
    while (err >= 0 && !p->err && !sequence_is_done(sequence))
        err = engine_step(p->session->engine);
    if (err >= 0)
        err = sequence_error(sequence);
    engine_remove(p->session->engine, sequence);
    p->n_windows++;
    return p->err ? p->err : err < 0 ? err : 0;
}

static void show_progress(struct perplexity *p, size_t done, size_t all)
{
    if (seconds_now() < p->next_s)
        return;
    p->next_s = seconds_now() + 1;
    log_info("%zu of %zu tokens", done, all);
}

static int run_windows(struct perplexity *p, const int32_t *tokens, size_t n)
{
    const int32_t begin = tokenizer_begin(p->session->tokenizer);
    const size_t n_begin = begin >= 0, step = (size_t)p->session->options->window - n_begin;
    int32_t *window = calloc(step + n_begin, sizeof *window);
    int err = window ? 0 : error_set(ERR_NO_MEMORY, "out of memory for a window");
    for (size_t at = 0; !err && at < n && n - at + n_begin > 1; at += step) {
        p->window = window;
        p->n_window = (uint32_t)(MIN(step, n - at) + n_begin);
        window[0] = begin;
        memcpy(window + n_begin, tokens + at, (p->n_window - n_begin) * sizeof *window);
        err = run_window(p);
        show_progress(p, MIN(at + step, n), n);
    }
    free(window);
    return err < 0 || p->loss.n ? err : error_set(ERR_USAGE, "%s: has too few tokens to predict one", p->session->options->rest[0]);
}

/* ---- files ---- */
static int read_text(struct buffer *text, const char *path)
{
    char piece[65536];
    FILE *f = fopen(path, "rb");
    if (!f)
        return error_set(ERR_BAD_FILE, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0 && !text->failed;)
        buffer_add(text, piece, n);
    int err = ferror(f) ? error_set(ERR_BAD_FILE, "%s: %s", path, strerror(errno)) : 0;
    fclose(f);
    return text->failed ? error_set(ERR_NO_MEMORY, "out of memory for %s", path) : err;
}

static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    return other && stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* What is read first: what is written is emptied. */
static int open_logits(struct perplexity *p)
{
    const struct options *o = p->session->options;
    if (o->against && !(p->against = fopen(o->against, "rb")))
        return error_set(ERR_BAD_FILE, "--against %s: %s", o->against, strerror(errno));
    if (o->logits && (is_same_file(o->logits, o->against) || is_same_file(o->logits, o->model) || is_same_file(o->logits, o->rest[0])))
        return error_set(ERR_USAGE, "--logits %s: is a file that is read", o->logits);
    if (o->logits && !(p->to = fopen(o->logits, "wb")))
        return error_set(ERR_FAILED, "--logits %s: %s", o->logits, strerror(errno));
    p->other = calloc(engine_model(p->session->engine)->n_vocab, sizeof *p->other);
    return p->other ? 0 : error_set(ERR_NO_MEMORY, "out of memory for a row of logits");
}

static int close_logits(struct perplexity *p, int err)
{
    if (!err && p->against && fgetc(p->against) != EOF)
        err = error_set(ERR_BAD_FILE, "--against %s: has more logits than this model gives", p->session->options->against);
    if (p->to && fclose(p->to) && !err)
        err = error_set(ERR_FAILED, "--logits %s: %s", p->session->options->logits, strerror(errno));
    if (p->against)
        fclose(p->against);
    free(p->other);
    return err;
}

/* ---- output ---- */
static void print_json(const struct perplexity *p, struct buffer *out)
{
    struct json_out j = { .to = out };
    json_object(&j, NULL);
    json_text(&j, "model", p->session->options->model);
    json_text(&j, "layout", p->session->layout);
    json_integer(&j, "tokens", (int64_t)p->loss.n);
    json_integer(&j, "windows", p->n_windows);
    json_number(&j, "perplexity", exp(mean_of(&p->loss)), 9);
    json_number(&j, "mean_loss", mean_of(&p->loss), 9);
    json_number(&j, "loss_error", standard_error(&p->loss), 9);
    if (p->divergence.n) {
        json_number(&j, "mean_divergence", mean_of(&p->divergence), 9);
        json_number(&j, "divergence_error", standard_error(&p->divergence), 9);
        json_number(&j, "max_divergence", p->divergence.max, 9);
        json_number(&j, "same_likeliest", (double)p->n_same / (double)p->loss.n, 9);
    }
    json_end_object(&j);
    buffer_add_text(out, "\n");
}

static void print_text(const struct perplexity *p, struct buffer *out)
{
    buffer_printf(out, "perplexity %.4f; mean loss %.5f +- %.5f over %llu tokens in %u windows\n", exp(mean_of(&p->loss)),
                  mean_of(&p->loss), standard_error(&p->loss), (unsigned long long)p->loss.n, p->n_windows);
    if (p->divergence.n)
        buffer_printf(out, "divergence %.6f +- %.6f, at most %.4f; the same likeliest token at %.2f %%\n", mean_of(&p->divergence),
                      standard_error(&p->divergence), p->divergence.max, 100 * (double)p->n_same / (double)p->loss.n);
}

static int measure(struct perplexity *p)
{
    const struct session *s = p->session;
    struct buffer text = { 0 };
    int32_t *tokens = NULL;
    size_t n = 0;
    int err;
    if ((err = read_text(&text, s->options->rest[0])) == 0 && (err = open_logits(p)) == 0 &&
        (err = tokenizer_encode(s->tokenizer, text.bytes ? text.bytes : "", text.size, 0, &tokens, &n)) == 0)
        err = run_windows(p, tokens, n);
    err = close_logits(p, err);
    free(tokens);
    buffer_release(&text);
    return err;
}

static int body(struct session *s, void *user)
{
    struct perplexity p = { .session = s, .next_s = seconds_now() + 1 };
    struct buffer out = { 0 };
    (void)user;
    int err = measure(&p);
    if (err < 0)
        return err;
    (s->options->json ? print_json : print_text)(&p, &out);
    err = print_buffer(&out);
    buffer_release(&out);
    return err;
}

static int run(struct options *o, int argc, char **argv)
{
    struct session_needs needs = { .max_sequences = 1, .full_logits = true, .context = (uint32_t)o->window, .no_prefix_cache = true };
    o->all = true;                  /* as `stoa logits --all`: shorter chunks, since every row of logits is held */
    return session_run(o, argc, argv, &needs, body, NULL);
}

const struct command command_perplexity = {
    "perplexity", "MODEL FILE [FLAGS]", "tells how well a model predicts a text, and how its predictions differ from another's",
    "The text is cut into windows; in each, every token but the first is predicted from those before it.\n\n"
    "  stoa perplexity model.gguf text.txt\n"
    "  stoa perplexity model-f16.gguf text.txt --logits f16.bin\n"
    "  stoa perplexity model-q4_k.gguf text.txt --against f16.bin",
    OPTIONS_COMPUTE | OPTIONS_HOSTS | OPTIONS_PERPLEXITY | OPTIONS_JSON, 2, 2, run,
};
