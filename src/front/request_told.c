#include "front/request_impl.h"

#include "base/base.h"
#include "base/log.h"
#include "base/threads.h"

#include <stdio.h>

/* What the replica did with it: with n choices from the first token of any to the last of all. */
static void observe_times(const struct request *r)
{
    struct metrics *m = &r->front->metrics;
    metrics_observe(m, HISTOGRAM_QUEUE, r->queue_s);
    metrics_observe(m, HISTOGRAM_PREFILL, r->prefill_s);
    metrics_observe(m, HISTOGRAM_DECODE, r->last_s - r->first_s);
    metrics_observe(m, HISTOGRAM_INFERENCE, r->prefill_s + r->last_s - r->first_s);
}

static void observe_end(const struct request *r)
{
    struct metrics *m = &r->front->metrics;
    struct answer_usage usage = answer_usage(r->answer);
    uint32_t longest = 0;
    for (uint32_t i = 0; i < r->n_choices; i++)
        longest = MAX(longest, r->choices[i].n_tokens);
    metrics_observe(m, HISTOGRAM_LONGEST, longest);
    metrics_observe(m, HISTOGRAM_WHOLE, seconds_now() - r->arrived_s);
    metrics_observe(m, HISTOGRAM_PROMPT_TOKENS, usage.prompt_tokens);
    metrics_observe(m, HISTOGRAM_NEW_TOKENS, r->n_tokens);
    metrics_observe(m, HISTOGRAM_MAX_TOKENS, answer_request(r->answer)->prompts[0].max_tokens);
    metrics_observe(m, HISTOGRAM_N, answer_request(r->answer)->n);
    if (r->first_s > 0)
        observe_times(r);
    if (r->n_tokens > r->n_choices)
        metrics_observe(m, HISTOGRAM_PER_TOKEN, (r->last_s - r->first_s) * r->n_choices / (r->n_tokens - r->n_choices));
}

const char *request_kind_name(enum api_kind kind)
{
    return kind == API_CHAT ? "chat" : "completion";
}

/* One line, without what was said. */
static void tell(const struct request *r, enum request_end end, int status, const char *why)
{
    struct answer_usage usage = r->answer ? answer_usage(r->answer) : (struct answer_usage){ 0 };
    char first[32] = "-";
    if (r->first_s > 0)
        snprintf(first, sizeof first, "%.3f s", r->first_s - r->arrived_s);
    log_info("%s %s %d %s%s: %zu bytes, %u choices, %u prompt tokens (%u cached), %u new, first after %s, %.3f s%s%s",
             r->id, request_kind_name(r->kind), status, request_end_names[end],
             r->is_stream ? " stream" : "", r->n_body, r->n_choices, usage.prompt_tokens, usage.cached_tokens, r->n_tokens, first,
             seconds_now() - r->arrived_s, why ? ": " : "", why ? why : "");
}

void request_tell_end(const struct request *r, enum request_end end, int status, const char *why)
{
    struct metrics *m = &r->front->metrics;
    tell(r, end, status, why);
    m->ends[end]++;
    if (r->answer && end <= END_LENGTH) {
        observe_end(r);
        m->choices += r->n_choices;
    }
}
