#include "front/metrics.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Upper bounds, rising; 0 ends them. */
static const double seconds[HISTOGRAM_BUCKETS] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
    40, 80, 160, 640, 2560 };
static const double short_seconds[HISTOGRAM_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80 };
static const double sizes[HISTOGRAM_BUCKETS] = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000,
    100000, 200000, 500000, 1000000 };

static const double step_sizes[HISTOGRAM_BUCKETS] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384 };

static const struct histogram_row { const char *name, *help; const double *bounds; } histograms[N_HISTOGRAMS] = {
    [HISTOGRAM_FIRST_TOKEN] = { "vllm:time_to_first_token_seconds", "From a request's arrival to its first token.", seconds },
    [HISTOGRAM_BETWEEN_TOKENS] = { "vllm:inter_token_latency_seconds", "Between two tokens of an answer.", short_seconds },
    [HISTOGRAM_PER_TOKEN] = { "vllm:request_time_per_output_token_seconds", "A request's mean time per token after the first.",
                              short_seconds },
    [HISTOGRAM_WHOLE] = { "vllm:e2e_request_latency_seconds", "From a request's arrival to its last token.", seconds },
    [HISTOGRAM_QUEUE] = { "vllm:request_queue_time_seconds", "From when the replica had a request to its first step.", seconds },
    [HISTOGRAM_PREFILL] = { "vllm:request_prefill_time_seconds", "From a request's first step to its first token.", seconds },
    [HISTOGRAM_DECODE] = { "vllm:request_decode_time_seconds", "From a request's first token to its last.", seconds },
    [HISTOGRAM_INFERENCE] = { "vllm:request_inference_time_seconds", "From a request's first step to its last token.", seconds },
    [HISTOGRAM_PROMPT_TOKENS] = { "vllm:request_prompt_tokens", "Prompt tokens of a request.", sizes },
    [HISTOGRAM_NEW_TOKENS] = { "vllm:request_generation_tokens", "Generated tokens of a request, all choices together.", sizes },
    [HISTOGRAM_MAX_TOKENS] = { "vllm:request_params_max_tokens", "Most tokens of a choice, as a request wants or the context leaves.",
                               sizes },
    [HISTOGRAM_LONGEST] = { "vllm:request_max_num_generation_tokens", "Generated tokens of a request's longest choice.", sizes },
    [HISTOGRAM_STEP_TOKENS] = { "vllm:iteration_tokens_total", "Tokens of a step, of prompts and answers.", step_sizes },
    [HISTOGRAM_N] = { "vllm:request_params_n", "Choices that a request wanted for a prompt.", sizes },
};

enum kind { COUNTER, GAUGE, GAUGE_REAL };
#define AT(field) offsetof(struct metrics, field)
static const struct row { const char *name; enum kind kind; size_t offset; const char *help; } rows[] = {
    { "vllm:num_requests_running", GAUGE, AT(running), "Sequences that the replica computes." },
    { "vllm:num_requests_waiting", GAUGE, AT(waiting), "Sequences that wait for their turn." },
    { "vllm:kv_cache_usage_perc", GAUGE_REAL, AT(kv_usage), "Share of the KV cache's blocks that sequences hold; 1 is all." },
    { "vllm:prompt_tokens_total", COUNTER, AT(prompt_tokens), "Prompt tokens of requests that have begun." },
    { "vllm:generation_tokens_total", COUNTER, AT(generation_tokens), "Tokens generated." },
    { "vllm:num_preemptions_total", COUNTER, AT(replica.preemptions), "Sequences put off in favour of others." },
    { "vllm:prefix_cache_queries_total", COUNTER, AT(replica.prefix_queries), "Prompt tokens looked up in the prefix cache." },
    { "vllm:prefix_cache_hits_total", COUNTER, AT(replica.prefix_hits), "Prompt tokens found in the prefix cache." },
    { "stoa_choices_total", COUNTER, AT(choices), "Answers that have ended, each of several to one request." },
    { "stoa_replica_up", GAUGE, AT(up), "1 while the replica takes requests." },
    { "stoa_replica_epoch", GAUGE, AT(epoch), "How many times a replica has been started." },
    { "stoa_replica_restarts_total", COUNTER, AT(restarts), "Replicas that were found dead." },
    { "stoa_replica_steps_total", COUNTER, AT(replica.steps), "Steps that computed something." },
    { "stoa_predicted_step_seconds", GAUGE_REAL, AT(predicted_step_s), "The longest step that may be planned now." },
    { "stoa_connections", GAUGE, AT(connections), "HTTP connections." },
    { "stoa_loop_worst_seconds", GAUGE_REAL, AT(loop_worst_s), "The longest that the event loop was held up since the last look." },
};

static const struct rank_row { const char *name; size_t offset; const char *help; } rank_rows[] = {
    { "stoa_rank_compute_seconds_total", offsetof(struct rank_seconds, compute), "What a rank's steps took to compute." },
    { "stoa_rank_wait_seconds_total", offsetof(struct rank_seconds, wait),
      "What a rank waited in its steps for others that were not as far." },
    { "stoa_rank_wire_seconds_total", offsetof(struct rank_seconds, wire), "What messages took in a rank's steps." },
};
enum { MOST_RANKS = 4096 };

const char *const request_end_names[N_ENDS] = { "stop", "length", "abort", "error", "bad_request", "refused" };

void metrics_release(struct metrics *m)
{
    free(m->rank);
    m->rank = NULL;
    m->n_ranks = 0;
    free(m->http);
    m->http = NULL;
    m->n_http = 0;
}

void metrics_observe(struct metrics *m, enum histogram_kind kind, double value)
{
    const double *bounds = histograms[kind].bounds;
    size_t b = 0;
    while (b + 1 < HISTOGRAM_BUCKETS && bounds[b] > 0 && value > bounds[b])
        b++;
    m->histogram[kind].count[b]++;
    m->histogram[kind].sum += value;
}

/* A counter that finds no memory for a new row is not worth an answer. */
void metrics_count_http(struct metrics *m, const char *route, int status)
{
    for (size_t i = 0; i < m->n_http; i++)
        if (m->http[i].status == status && !strcmp(m->http[i].route, route)) {
            m->http[i].n++;
            return;
        }
    struct http_count *more = realloc(m->http, (m->n_http + 1) * sizeof *more);
    if (!more)
        return;
    m->http = more;
    m->http[m->n_http++] = (struct http_count){ route, status, 1 };
}

void metrics_replica_starts(struct metrics *m)
{
    m->last = (struct replica_counts){ 0 };
    for (size_t r = 0; r < m->n_ranks; r++)
        m->rank[r].last = (struct rank_seconds){ 0 };
}

static void carry(uint64_t *sum, uint64_t *last, uint64_t now)
{
    if (now > *last) {
        *sum += now - *last;
        *last = now;
    }
}

void metrics_replica_says(struct metrics *m, const struct replica_counts *now)
{
    carry(&m->replica.steps, &m->last.steps, now->steps);
    carry(&m->replica.preemptions, &m->last.preemptions, now->preemptions);
    carry(&m->replica.prefix_queries, &m->last.prefix_queries, now->prefix_queries);
    carry(&m->replica.prefix_hits, &m->last.prefix_hits, now->prefix_hits);
    carry(&m->replica.step_tokens, &m->last.step_tokens, now->step_tokens);
    struct histogram *h = &m->histogram[HISTOGRAM_STEP_TOKENS];
    for (size_t i = 0; i < REPLICA_STEP_SIZES; i++)
        carry(&h->count[i], &m->last.steps_of_size[i], now->steps_of_size[i]);
    h->sum = (double)m->replica.step_tokens;
}

static void carry_seconds(double *sum, double *last, double now)
{
    if (now > *last) {
        *sum += now - *last;
        *last = now;
    }
}

void metrics_rank_says(struct metrics *m, uint32_t rank, const struct rank_seconds *now)
{
    if (rank >= MOST_RANKS)
        return;
    if (rank >= m->n_ranks) {
        struct rank_metrics *more = realloc(m->rank, (rank + 1) * sizeof *more);
        if (!more)
            return;
        memset(more + m->n_ranks, 0, (rank + 1 - m->n_ranks) * sizeof *more);
        m->rank = more;
        m->n_ranks = rank + 1;
    }
    struct rank_metrics *r = &m->rank[rank];
    carry_seconds(&r->all.compute, &r->last.compute, now->compute);
    carry_seconds(&r->all.wait, &r->last.wait, now->wait);
    carry_seconds(&r->all.wire, &r->last.wire, now->wire);
}

/* model_name="..." and further labels, inside braces. */
static void write_labels(struct buffer *out, const struct metrics *m, const char *name, const char *value)
{
    buffer_add_text(out, "{model_name=\"");
    for (const char *c = m->model_name; *c; c++)
        if (*c == '\n')
            buffer_add_text(out, "\\n");
        else
            buffer_printf(out, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    if (name)
        buffer_printf(out, "\",%s=\"%s", name, value);
    buffer_add_text(out, "\"");
}

static void write_head(struct buffer *out, const char *name, const char *type, const char *help)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_row(struct buffer *out, const struct metrics *m, const struct row *row)
{
    const char *at = (const char *)m + row->offset;
    write_head(out, row->name, row->kind == COUNTER ? "counter" : "gauge", row->help);
    buffer_add_text(out, row->name);
    write_labels(out, m, NULL, NULL);
    if (row->kind == GAUGE_REAL)
        buffer_printf(out, "} %.9g\n", *(const double *)at);
    else
        buffer_printf(out, "} %llu\n", (unsigned long long)*(const uint64_t *)at);
}

static void write_histogram(struct buffer *out, const struct metrics *m, enum histogram_kind kind)
{
    const struct histogram_row *row = &histograms[kind];
    const struct histogram *h = &m->histogram[kind];
    uint64_t n = 0;
    char bound[32];
    write_head(out, row->name, "histogram", row->help);
    for (size_t b = 0; b < HISTOGRAM_BUCKETS; b++) {
        bool is_last = b + 1 == HISTOGRAM_BUCKETS || row->bounds[b] == 0;
        n += h->count[b];
        snprintf(bound, sizeof bound, "%g", row->bounds[b]);
        buffer_printf(out, "%s_bucket", row->name);
        write_labels(out, m, "le", is_last ? "+Inf" : bound);
        buffer_printf(out, "} %llu\n", (unsigned long long)n);
        if (is_last)
            break;
    }
    buffer_printf(out, "%s_sum", row->name);
    write_labels(out, m, NULL, NULL);
    buffer_printf(out, "} %.9g\n%s_count", h->sum, row->name);
    write_labels(out, m, NULL, NULL);
    buffer_printf(out, "} %llu\n", (unsigned long long)n);
}

static void write_ends(struct buffer *out, const struct metrics *m, const char *metric, const char *label, size_t n_ends)
{
    for (size_t i = 0; i < n_ends; i++) {
        buffer_add_text(out, metric);
        write_labels(out, m, label, request_end_names[i]);
        buffer_printf(out, "} %llu\n", (unsigned long long)m->ends[i]);
    }
}

static void write_ranks(struct buffer *out, const struct metrics *m, const struct rank_row *row)
{
    char rank[24];
    write_head(out, row->name, "counter", row->help);
    for (size_t r = 0; r < m->n_ranks; r++) {
        snprintf(rank, sizeof rank, "%zu", r);
        buffer_add_text(out, row->name);
        write_labels(out, m, "rank", rank);
        buffer_printf(out, "} %.9g\n", *(const double *)(const void *)((const char *)&m->rank[r].all + row->offset));
    }
}

void metrics_write(const struct metrics *m, struct buffer *out)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        write_row(out, m, &rows[i]);
    write_head(out, "vllm:request_success_total", "counter", "Requests that were computed, by how they ended.");
    write_ends(out, m, "vllm:request_success_total", "finished_reason", END_ERROR + 1);
    write_head(out, "stoa_requests_total", "counter", "Requests to generate, by how they ended.");
    write_ends(out, m, "stoa_requests_total", "end", N_ENDS);
    for (int kind = 0; kind < N_HISTOGRAMS; kind++)
        write_histogram(out, m, (enum histogram_kind)kind);
    for (size_t i = 0; i < COUNT_OF(rank_rows); i++)
        write_ranks(out, m, &rank_rows[i]);
    write_head(out, "stoa_http_requests_total", "counter", "HTTP requests, by route and status.");
    for (size_t i = 0; i < m->n_http; i++) {
        buffer_add_text(out, "stoa_http_requests_total");
        write_labels(out, m, "route", m->http[i].route);
        buffer_printf(out, ",status=\"%d\"} %llu\n", m->http[i].status, (unsigned long long)m->http[i].n);
    }
}
