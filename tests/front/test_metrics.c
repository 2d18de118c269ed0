/* The text that Prometheus reads, and counters that only rise. */
#include "tests/check.h"

#include "front/metrics.h"

#include <stdio.h>
#include <string.h>

static bool has(const struct metrics *m, const char *line)
{
    struct buffer out = { 0 };
    char whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    metrics_write(m, &out);
    bool there = out.bytes && strstr(out.bytes, whole);
    if (!there)
        printf("not there: %s\n", line);
    buffer_release(&out);
    return there;
}

static void test_text(void)
{
    struct metrics m = { .model_name = "a \"b\"\\c\nd" };
    check_begin("labels and numbers");
    m.generation_tokens = 18446744073709551615u;
    m.kv_usage = 0.25;
    m.ends[END_ABORT] = 2;
    check(has(&m, "vllm:generation_tokens_total{model_name=\"a \\\"b\\\"\\\\c\\nd\"} 18446744073709551615"));
    m.model_name = "m";
    check(has(&m, "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25"));
    check(has(&m, "vllm:request_success_total{model_name=\"m\",finished_reason=\"abort\"} 2"));
    check(has(&m, "stoa_requests_total{model_name=\"m\",end=\"abort\"} 2"));
    check(has(&m, "# TYPE vllm:num_requests_running gauge"));
    metrics_count_http(&m, "/v1/models", 200);
    metrics_count_http(&m, "/v1/models", 200);
    metrics_count_http(&m, "/v1/models", 401);
    check(has(&m, "stoa_http_requests_total{model_name=\"m\",route=\"/v1/models\",status=\"200\"} 2"));
    check(has(&m, "stoa_http_requests_total{model_name=\"m\",route=\"/v1/models\",status=\"401\"} 1"));
    metrics_release(&m);
}

static void test_histogram(void)
{
    struct metrics m = { .model_name = "m" };
    check_begin("a histogram adds up");
    metrics_observe(&m, HISTOGRAM_PROMPT_TOKENS, 1);        /* on a bound: inside it */
    metrics_observe(&m, HISTOGRAM_PROMPT_TOKENS, 3);
    metrics_observe(&m, HISTOGRAM_PROMPT_TOKENS, 1e9);
    check(has(&m, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"1\"} 1"));
    check(has(&m, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"2\"} 1"));
    check(has(&m, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"5\"} 2"));
    check(has(&m, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"1e+06\"} 2"));
    check(has(&m, "vllm:request_prompt_tokens_bucket{model_name=\"m\",le=\"+Inf\"} 3"));
    check(has(&m, "vllm:request_prompt_tokens_count{model_name=\"m\"} 3"));
    check(has(&m, "vllm:request_prompt_tokens_sum{model_name=\"m\"} 1e+09"));
}

static void test_step_sizes(void)
{
    struct metrics m = { .model_name = "m" };
    check_begin("steps by size, of two replicas");
    metrics_replica_says(&m, &(struct replica_counts){ .step_tokens = 9, .steps_of_size = { [0] = 2, [3] = 1 } });
    metrics_replica_says(&m, &(struct replica_counts){ .step_tokens = 10, .steps_of_size = { [0] = 3, [3] = 1 } });
    metrics_replica_starts(&m);
    metrics_replica_says(&m, &(struct replica_counts){ .step_tokens = 40001, .steps_of_size = { [0] = 1, [REPLICA_STEP_SIZES - 1] = 1 } });
    check(has(&m, "vllm:iteration_tokens_total_bucket{model_name=\"m\",le=\"1\"} 4"));
    check(has(&m, "vllm:iteration_tokens_total_bucket{model_name=\"m\",le=\"4\"} 4"));
    check(has(&m, "vllm:iteration_tokens_total_bucket{model_name=\"m\",le=\"8\"} 5"));
    check(has(&m, "vllm:iteration_tokens_total_bucket{model_name=\"m\",le=\"16384\"} 5"));
    check(has(&m, "vllm:iteration_tokens_total_bucket{model_name=\"m\",le=\"+Inf\"} 6"));
    check(has(&m, "vllm:iteration_tokens_total_sum{model_name=\"m\"} 40011"));
    metrics_release(&m);
}

static const struct { const char *name; bool starts; uint64_t says, want; } reports[] = {
    { "a first report", true, 5, 5 },
    { "the same again", false, 5, 5 },
    { "more", false, 9, 9 },
    { "less: nothing", false, 7, 9 },
    { "more than the most", false, 10, 10 },
    { "a new replica begins at 0", true, 3, 13 },
    { "and goes on", false, 4, 14 },
};

static void test_restart(void)
{
    struct metrics m = { .model_name = "m" };
    for (size_t i = 0; i < COUNT_OF(reports); i++) {
        check_begin("%s", reports[i].name);
        if (reports[i].starts)
            metrics_replica_starts(&m);
        metrics_replica_says(&m, &(struct replica_counts){ .preemptions = reports[i].says });
        check_int(m.replica.preemptions, reports[i].want);
        check_int(m.replica.steps, 0);
    }
}

static const struct { const char *name; bool starts; uint32_t rank; double says, want; } rank_reports[] = {
    { "the second of two ranks speaks first", true, 1, 2.5, 2.5 },
    { "then the first", false, 0, 0.5, 0.5 },
    { "more", false, 1, 3, 3 },
    { "less: nothing", false, 1, 1, 3 },
    { "a new replica begins at 0", true, 1, 0.25, 3.25 },
};

static void test_ranks(void)
{
    struct metrics m = { .model_name = "m" };
    for (size_t i = 0; i < COUNT_OF(rank_reports); i++) {
        check_begin("ranks: %s", rank_reports[i].name);
        if (rank_reports[i].starts)
            metrics_replica_starts(&m);
        metrics_rank_says(&m, rank_reports[i].rank, &(struct rank_seconds){ rank_reports[i].says, 2 * rank_reports[i].says, 0 });
        check(m.rank[rank_reports[i].rank].all.compute == rank_reports[i].want && m.rank[rank_reports[i].rank].all.wait == 2 * rank_reports[i].want);
    }
    check_begin("ranks: each has a line; one that cannot be has none");
    metrics_rank_says(&m, UINT32_MAX, &(struct rank_seconds){ 1, 1, 1 });
    check_int(m.n_ranks, 2);
    check(has(&m, "stoa_rank_compute_seconds_total{model_name=\"m\",rank=\"0\"} 0.5"));
    check(has(&m, "stoa_rank_wait_seconds_total{model_name=\"m\",rank=\"1\"} 6.5"));
    check(has(&m, "# TYPE stoa_rank_wire_seconds_total counter"));
    metrics_release(&m);
}

int main(void)
{
    test_ranks();
    test_text();
    test_histogram();
    test_step_sizes();
    test_restart();
    return check_done();
}
