/* cmd_logits.c: the largest logits of a prompt, and a hash of all their bits. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "text/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct top_entry {
    int32_t id;
    float logit;
};

struct position {
    uint32_t position;
    double logsumexp, norm;
    struct top_entry *top;
};

struct logits {
    struct session *session;
    XXH3_state_t *hash;
    struct position *position;
    uint32_t n_positions, n_top;
    bool failed;
};

/* Larger first, then lower id. */
static bool before(const struct top_entry *a, const struct top_entry *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(struct top_entry *heap, uint32_t n, uint32_t i)
{
    for (uint32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child], &heap[child + 1]))
            child++;
        if (before(&heap[child], &heap[i]))
            return;
        struct top_entry swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

static int by_rank(const void *a, const void *b)
{
    return before(a, b) ? -1 : 1;
}

/* heap[0] is the worst of the n best so far. */
static void find_top(struct top_entry *heap, uint32_t n, const float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        heap[i] = (struct top_entry){ (int32_t)i, logits[i] };
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    for (uint32_t i = n; n && i < n_vocab; i++) {
        struct top_entry entry = { (int32_t)i, logits[i] };
        if (before(&entry, &heap[0])) {
            heap[0] = entry;
            sift_down(heap, n, 0);
        }
    }
    qsort(heap, n, sizeof *heap, by_rank);
}

/* The hash is of the bits; logsumexp and norm are for people, so libm serves. */
static void take_row(void *user, uint32_t position, const float *logits, uint32_t n_vocab)
{
    struct logits *l = user;
    struct position *p = &l->position[l->n_positions];
    double max = -INFINITY, sum = 0, square = 0;
    XXH3_128bits_update(l->hash, logits, n_vocab * sizeof *logits);
    if (!(p->top = calloc(l->n_top + 1, sizeof *p->top))) {
        l->failed = true;
        return;
    }
    l->n_positions++;
    find_top(p->top, l->n_top, logits, engine_model(l->session->engine)->n_ids);
    for (uint32_t i = 0; i < n_vocab; i++)
        max = MAX(max, logits[i]);
    for (uint32_t i = 0; i < n_vocab; i++) {
        sum += exp(logits[i] - max);
        square += (double)logits[i] * logits[i];
    }
    p->position = position;
    p->logsumexp = max + log(sum);
    p->norm = sqrt(square);
}

/* ---- the prompt ---- */
static int parse_tokens(const char *text, int32_t **tokens, size_t *n)
{
    size_t room = strlen(text) / 2 + 1;
    *n = 0;
    if (!(*tokens = calloc(room, sizeof **tokens)))
        return error_set(ERR_NO_MEMORY, "out of memory for the tokens");
    for (const char *at = text; *at;) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || value < 0 || value > INT32_MAX || (*end && *end != ',') || (*end == ',' && !end[1]))
            return error_set(ERR_USAGE, "--tokens %s: wanted ids with commas between", text);
        (*tokens)[(*n)++] = (int32_t)value;
        at = *end ? end + 1 : end;
    }
    return *n ? 0 : error_set(ERR_USAGE, "--tokens: no ids");
}

static int read_prompt(struct session *s, int32_t **tokens, size_t *n)
{
    const struct options *o = s->options;
    if (o->tokens)
        return parse_tokens(o->tokens, tokens, n);
    int err = tokenizer_encode(s->tokenizer, o->prompt, strlen(o->prompt), TOKENIZE_BEGIN | TOKENIZE_SPECIAL, tokens, n);
    return err < 0 ? err : *n ? 0 : error_set(ERR_USAGE, "-p: the prompt has no tokens");
}

/* The other sequences of a batch: the same ids in other order and length, and a few new tokens, so that they prefill and
 * decode beside the one that is looked at. */
static int add_neighbours(struct session *s, const int32_t *tokens, uint32_t n)
{
    uint32_t n_vocab = engine_model(s->engine)->n_vocab;
    int32_t *other = calloc(n, sizeof *other);
    int err = other ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the batch");
    for (uint32_t b = 1; !err && b < (uint32_t)s->options->batch; b++) {
        struct sequence *neighbour;
        uint32_t length = n - (b * 3) % (n / 2 + 1);
        for (uint32_t i = 0; i < length; i++)
            other[i] = (int32_t)(((uint32_t)tokens[(i + b) % n] + b * 17) % n_vocab);
        struct sequence_request request = { .tokens = other, .n_tokens = length, .n_new = MIN(4, engine_context(s->engine) - length),
                                            .params = { .top_p = 1 } };
        err = engine_add(s->engine, &neighbour, &request);
    }
    free(other);
    return err;
}

/* ---- output ---- */
static void print_json(struct logits *l, const int32_t *tokens, size_t n, const char *hash, struct buffer *out)
{
    struct json_out j = { .to = out };
    struct session *s = l->session;
    json_object(&j, NULL);
    json_text(&j, "model", s->options->model);
    json_text(&j, "layout", s->layout);
    json_array(&j, "tokens");
    for (size_t i = 0; i < n; i++)
        json_integer(&j, NULL, tokens[i]);
    json_end_array(&j);
    json_text(&j, "hash", hash);
    json_array(&j, "positions");
    for (uint32_t p = 0; p < l->n_positions; p++) {
        json_object(&j, NULL);
        json_integer(&j, "position", l->position[p].position);
        json_array(&j, "top");
        for (uint32_t i = 0; i < l->n_top; i++) {
            const struct top_entry *e = &l->position[p].top[i];
            size_t n_bytes;
            const char *bytes = tokenizer_bytes(s->tokenizer, e->id, true, &n_bytes);
            json_object(&j, NULL);
            json_integer(&j, "id", e->id);
            json_bytes(&j, "text", bytes, n_bytes);
            json_number(&j, "logit", e->logit, 9);
            json_end_object(&j);
        }
        json_end_array(&j);
        json_number(&j, "logsumexp", l->position[p].logsumexp, 9);
        json_number(&j, "norm", l->position[p].norm, 9);
        json_end_object(&j);
    }
    json_end_array(&j);
}

/* Each group along dp has hidden states of its own tokens; the ranks along tp hold the same. */
static double hidden_norm(const struct mesh *mesh, const struct rank_counters *counters, uint32_t stage, uint32_t i)
{
    double square = 0;
    for (uint32_t group = 0; group < mesh->size[AXIS_DP]; group++)
        square += counters[mesh_peer(mesh, mesh_peer(mesh, 0, AXIS_DP, group), AXIS_PP, stage)].hidden_square[i];
    return sqrt(square);
}

/* One norm over all positions for each place in the model where a hidden state stands, first to last. */
static int print_norms(struct session *s, struct buffer *out)
{
    struct json_out j = { .to = out, .comma = true };
    const struct mesh *mesh = &s->options->mesh;
    struct rank_counters *counters = calloc((size_t)engine_n_ranks(s->engine), sizeof *counters);
    int err = counters ? engine_counters(s->engine, counters, false) : error_set(ERR_NO_MEMORY, "out of memory for the norms");
    json_array(&j, "hidden_norms");
    for (uint32_t stage = 0; !err && stage < mesh->size[AXIS_PP]; stage++)
        for (uint32_t i = 0; i < counters[mesh_peer(mesh, 0, AXIS_PP, stage)].n_hidden; i++)
            json_number(&j, NULL, hidden_norm(mesh, counters, stage, i), 9);
    json_end_array(&j);
    free(counters);
    return err;
}

static void print_text(struct logits *l, const char *hash, struct buffer *out)
{
    buffer_printf(out, "hash %s\n", hash);
    for (uint32_t p = 0; p < l->n_positions; p++) {
        buffer_printf(out, "position %u, logsumexp %.9g\n", l->position[p].position, l->position[p].logsumexp);
        for (uint32_t i = 0; i < l->n_top; i++) {
            const struct top_entry *e = &l->position[p].top[i];
            size_t n_bytes;
            const char *bytes = tokenizer_bytes(l->session->tokenizer, e->id, true, &n_bytes);
            buffer_printf(out, "  %8d  %12.6f  ", e->id, e->logit);
            struct json_out j = { .to = out };
            json_bytes(&j, NULL, bytes, n_bytes);
            buffer_add_text(out, "\n");
        }
    }
}

static int print(struct logits *l, const int32_t *tokens, size_t n)
{
    struct buffer out = { 0 };
    char hash[33];
    XXH128_hash_t h = XXH3_128bits_digest(l->hash);
    snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    int err = 0;
    if (l->session->options->json) {
        print_json(l, tokens, n, hash, &out);
        if (l->session->options->norms)
            err = print_norms(l->session, &out);
        buffer_add_text(&out, "}\n");
    } else {
        print_text(l, hash, &out);
    }
    if (err == 0)
        err = print_buffer(&out);
    buffer_release(&out);
    return err;
}

static int body(struct session *s, void *user)
{
    struct logits l = { .session = s };
    struct sequence *sequence;
    int32_t *tokens = NULL;
    size_t n = 0;
    int err = read_prompt(s, &tokens, &n);
    (void)user;
    if (err < 0)
        goto done;
    l.n_top = MIN((uint32_t)s->options->top, engine_model(s->engine)->n_ids);
    l.position = calloc(n, sizeof *l.position);
    l.hash = XXH3_createState();
    if (!l.position || !l.hash || n > engine_context(s->engine)) {
        uint32_t context = engine_context(s->engine);
        err = n > context ? error_set(ERR_USAGE, "%zu tokens are more than the context of %u", n, context)
                          : error_set(ERR_NO_MEMORY, "out of memory for the logits");
        goto done;
    }
    XXH3_128bits_reset(l.hash);
    struct sequence_request request = { .tokens = tokens, .n_tokens = (uint32_t)n, .params = { .top_p = 1 },
                                        .all_rows = s->options->all, .on_row = take_row, .user = &l };
    if ((err = add_neighbours(s, tokens, (uint32_t)n)) < 0 || (err = engine_add(s->engine, &sequence, &request)) < 0)
        goto done;
    while (!sequence_is_done(sequence))
        if ((err = engine_step(s->engine)) < 0)
            goto done;
    if ((err = sequence_error(sequence)) < 0)
        goto done;
    err = l.failed ? error_set(ERR_NO_MEMORY, "out of memory for the logits") : print(&l, tokens, n);
done:
    for (uint32_t i = 0; i < l.n_positions; i++)
        free(l.position[i].top);
    free(l.position);
    XXH3_freeState(l.hash);
    free(tokens);
    return err;
}

static int run(struct options *o, int argc, char **argv)
{
    if (!o->prompt == !o->tokens)
        return report_error(error_set(ERR_USAGE, "wanted one of -p TEXT and --tokens 1,2,3"));
    if (o->norms && (!o->json || o->batch > 1))
        return report_error(error_set(ERR_USAGE, "--norms goes with --json, and with one sequence"));
    struct session_needs needs = { .max_sequences = (uint32_t)o->batch, .full_logits = true, .hidden_norms = o->norms,
                                   .no_prefix_cache = true };
    return session_run(o, argc, argv, &needs, body, NULL);
}

const struct command command_logits = {
    "logits", "MODEL (-p TEXT | --tokens 1,2,3) [FLAGS]", "prints the largest logits of a prompt and a 128-bit hash of all of them",
    "The hash runs over the f32 logits of every position asked for.  It is the same for every layout, number of\n"
    "threads, chunk, batch and instruction set: so two runs can be compared by one line.\n\n"
    "  stoa logits model.gguf -p \"The capital of France is\"\n"
    "  stoa logits model.gguf -p \"The capital of France is\" --all --layout pp=2,tp=2 --json",
    OPTIONS_COMPUTE | OPTIONS_HOSTS | OPTIONS_PROMPT | OPTIONS_LOGITS | OPTIONS_JSON, 1, 1, run,
};
