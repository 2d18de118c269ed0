/* routes.c: every route of the front, who may ask, and what is answered without a replica. */
#include "front/front_impl.h"

#include "base/base.h"
#include "base/log.h"
#include "text/json_out.h"

#include <stdio.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------------------------------------------------------- */
struct api_error front_error(int status, const char *text)
{
    struct api_error error = { .status = status, .type = api_error_type(status), .code = status == 401 ? "invalid_api_key" : NULL };
    snprintf(error.message, sizeof error.message, "%s", text);
    return error;
}

void front_error_body(struct buffer *out, int status, const char *text, void *user)
{
    (void)user;
    struct api_error error = front_error(status, text);
    api_write_error(out, &error);
}

void front_answer_error(struct http_exchange *x, const struct api_error *error)
{
    struct buffer body = { 0 };
    api_write_error(&body, error);
    if (error->status == 429 || error->status == 503)
        http_add_header(x, "Retry-After", error->status == 429 ? "1" : "5");
    http_answer(x, error->status, "application/json", body.bytes, body.size);
    buffer_release(&body);
}

void front_unavailable(struct http_exchange *x, const char *why)
{
    http_add_header(x, "Retry-After", "5");
    http_answer_error(x, 503, why);
}

static void answer_json(struct http_exchange *x, struct buffer *body)
{
    http_answer_buffer(x, 200, "application/json", body);
}

/* ---- health ------------------------------------------------------------------------------------------------------------- */
const char *front_is_unready(const struct front *f)
{
    return f->is_draining ? "the server is ending" : supervisor_is_up(f->supervisor) ? NULL : supervisor_says(f->supervisor);
}

static void answer_state(struct http_exchange *x, const char *why)
{
    struct buffer body = { 0 };
    struct json_out j = { .to = &body };
    json_object(&j, NULL);
    json_text(&j, "status", why ? "unavailable" : "ok");
    if (why)
        json_text(&j, "reason", why);
    json_end_object(&j);
    http_add_header(x, "Cache-Control", "no-store");
    http_answer_buffer(x, why ? 503 : 200, "application/json", &body);
}

static void handle_live(struct http_exchange *x, void *user)
{
    (void)user;
    answer_state(x, NULL);
}

static void handle_health(struct http_exchange *x, void *user)
{
    struct front *f = user;
    answer_state(x, supervisor_is_up(f->supervisor) ? NULL : supervisor_says(f->supervisor));
}

static void handle_ready(struct http_exchange *x, void *user)
{
    answer_state(x, front_is_unready(user));
}

static void handle_metrics(struct http_exchange *x, void *user)
{
    struct front *f = user;
    struct buffer body = { 0 };
    f->metrics.loop_worst_s = loop_worst_ms(f->loop) / 1000;
    f->metrics.connections = http_server_n_connections(f->http);
    f->metrics.epoch = supervisor_epoch(f->supervisor);
    metrics_write(&f->metrics, &body);
    http_answer_buffer(x, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

/* ---- the model ---------------------------------------------------------------------------------------------------------- */
static void handle_models(struct http_exchange *x, void *user)
{
    struct front *f = user;
    struct buffer body = { 0 };
    if (!f->is_known) {
        front_unavailable(x, supervisor_says(f->supervisor));
        return;
    }
    api_models(&body, &f->model);
    answer_json(x, &body);
}

static void handle_model(struct http_exchange *x, void *user)
{
    struct front *f = user;
    struct buffer body = { 0 };
    if (!f->is_known) {
        front_unavailable(x, supervisor_says(f->supervisor));
    } else if (strcmp(http_path_rest(x), f->model.name)) {
        struct api_error error = front_error(404, "there is no such model here: see /v1/models");
        error.code = "model_not_found";
        front_answer_error(x, &error);
    } else {
        api_model(&body, &f->model, http_path_rest(x));
        answer_json(x, &body);
    }
}

static void handle_version(struct http_exchange *x, void *user)
{
    static const char body[] = "{\"version\": \"" STOA_VERSION "\"}\n";
    (void)user;
    http_answer(x, 200, "application/json", body, sizeof body - 1);
}

static void handle_openapi(struct http_exchange *x, void *user)
{
    struct front *f = user;
    struct buffer body = { 0 };
    if (!f->is_known) {
        front_unavailable(x, supervisor_says(f->supervisor));
        return;
    }
    api_openapi(&body, &f->model);
    answer_json(x, &body);
}

/* ---- what takes longer ------------------------------------------------------------------------------------------------- */
static void handle_tokenize(struct http_exchange *x, void *user)
{
    text_job_begin(user, x, api_tokenize);
}

static void handle_detokenize(struct http_exchange *x, void *user)
{
    text_job_begin(user, x, api_detokenize);
}

static void handle_chat(struct http_exchange *x, void *user)
{
    request_begin(user, x, API_CHAT);
}

static void handle_completion(struct http_exchange *x, void *user)
{
    request_begin(user, x, API_COMPLETION);
}

/* ---- the table ---------------------------------------------------------------------------------------------------------- */
const struct http_route front_routes[] = {
    { "POST", "/v1/chat/completions", handle_chat,       .takes_json = true },
    { "POST", "/v1/completions",      handle_completion, .takes_json = true },
    { "GET",  "/v1/models",           handle_models,     .is_open = false },
    { "GET",  "/v1/models/",          handle_model,      .is_open = false },
    { "POST", "/tokenize",            handle_tokenize,   .takes_json = true },
    { "POST", "/detokenize",          handle_detokenize, .takes_json = true },
    { "GET",  "/version",             handle_version,    .is_open = false },
    { "GET",  "/openapi.json",        handle_openapi,    .is_open = false },
    { "GET",  "/live",                handle_live,       .is_open = true },
    { "GET",  "/health",              handle_health,     .is_open = true },
    { "GET",  "/ready",               handle_ready,      .is_open = true },
    { "GET",  "/metrics",             handle_metrics,    .is_open = true },
};
const size_t n_front_routes = COUNT_OF(front_routes);

bool front_admit(struct http_exchange *x, const struct http_route *route, void *user)
{
    struct front *f = user;
    const char *given = http_header(x, "Authorization"), *metrics_key = f->options->metrics_key;
    bool may = route->handle == handle_metrics && metrics_key ? auth_is(metrics_key, given)
                                                               : route->is_open || !f->auth || auth_find(f->auth, given);
    if (!may) {
        http_add_header(x, "WWW-Authenticate", "Bearer");
        http_answer_error(x, 401, given ? "the API key is not one of this server's" : "an API key is needed: Authorization: Bearer KEY");
    }
    return may;
}

/* Requests to generate have a line of their own (request.c); probes have none while all is well. */
static bool is_told(const struct http_route *route, int status)
{
    if (!route)
        return true;
    bool generates = route->handle == handle_chat || route->handle == handle_completion, probes = route->is_open;
    return generates ? status == 401 || status == 408 || status == 413 || status == 415 : !probes;
}

void front_answered(struct http_exchange *x, const struct http_route *route, int status, void *user)
{
    struct front *f = user;
    metrics_count_http(&f->metrics, route ? route->path : "none", status);
    if (is_told(route, status))
        log_info("%s %s %.100s %d", http_request_id(x), http_method(x), route ? route->path : http_path(x) ? http_path(x) : "(no path)", status);
}
