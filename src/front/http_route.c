/* http_route.c: which handler a request is for, and what is answered without one. */
#include "base/base.h"
#include "front/http_impl.h"

#include <string.h>
#include <strings.h>

static const char *const known_methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY" };

static bool is_prefix(const struct http_route *route)
{
    return route->path[strlen(route->path) - 1] == '/';
}

static bool has_path(const struct http_route *route, const struct http_request *request)
{
    size_t n = strlen(route->path);
    if (is_prefix(route))
        return request->n_plain >= n && request->path[n] && !strncmp(request->path, route->path, n);
    return !request->path[request->n_plain] && !strcmp(request->path, route->path);
}

static bool has_method(const struct http_route *route, const char *method)
{
    return !strcmp(route->method, method) || (!strcmp(method, "HEAD") && !strcmp(route->method, "GET"));
}

/* An exact path goes before a prefix, whatever their order. */
static const struct http_route *find(const struct http_options *options, const struct http_request *request, const char *method)
{
    const struct http_route *found = NULL;
    for (size_t i = 0; i < options->n_routes; i++) {
        const struct http_route *route = &options->routes[i];
        if (has_path(route, request) && (!method || has_method(route, method)) && (!found || (is_prefix(found) && !is_prefix(route))))
            found = route;
    }
    return found;
}

/* "GET, HEAD, POST, OPTIONS": what the path takes; of "*" what any path does. */
static void list_methods(const struct http_options *options, const struct http_request *request, char out[64])
{
    bool any = !strcmp(request->path, "*");
    out[0] = 0;
    for (size_t m = 0; m < COUNT_OF(known_methods); m++) {
        bool is_taken = !strcmp(known_methods[m], "OPTIONS");
        for (size_t i = 0; i < options->n_routes; i++)
            is_taken |= (any || has_path(&options->routes[i], request)) && has_method(&options->routes[i], known_methods[m]);
        if (is_taken)
            strcat(strcat(out, out[0] ? ", " : ""), known_methods[m]);
    }
}

/* A browser asks beforehand whether a page may send such a request.  Any header may be sent: names of them are no secret. */
static void add_preflight(struct http_exchange *x, const char *methods)
{
    const char *headers = http_header(x, "access-control-request-headers");
    if (!x->connection->server->options.cors_origin || !http_header(x, "access-control-request-method"))
        return;
    http_add_header(x, "Access-Control-Allow-Methods", methods);
    http_add_header(x, "Access-Control-Allow-Headers", headers ? headers : "authorization, content-type");
    http_add_header(x, "Access-Control-Max-Age", "600");
}

static bool is_known(const char *method)
{
    for (size_t i = 0; i < COUNT_OF(known_methods); i++)
        if (!strcmp(method, known_methods[i]))
            return true;
    return false;
}

/* False: it has been answered. */
static bool find_route(struct http_exchange *x)
{
    struct http_connection *c = x->connection;
    const struct http_options *options = &c->server->options;
    const struct http_request *request = &c->parser.request;
    char methods[64];
    list_methods(options, request, methods);
    if (!is_known(request->method))
        http_answer_error(x, 501, "this method is not known here");
    else if (strcmp(request->path, "*") && !find(options, request, NULL))
        http_answer_error(x, 404, "there is nothing at this path");
    else if (!strcmp(request->method, "OPTIONS")) {
        http_add_header(x, "Allow", methods);
        add_preflight(x, methods);
        http_answer(x, 204, NULL, NULL, 0);
    } else if (!(x->route = find(options, request, request->method))) {
        http_add_header(x, "Allow", methods);
        http_answer_error(x, 405, "this path does not take this method");
    }
    return x->route;
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    return type && !strncasecmp(type, json, sizeof json - 1) && strchr("; \t", type[sizeof json - 1]);
}

/* False: it has been answered. */
static bool can_take_body(struct http_exchange *x)
{
    const struct http_request *request = &x->connection->parser.request;
    const char *type = http_header(x, "content-type"), *coding = http_header(x, "content-encoding"), *expect = http_header(x, "expect");
    bool has_body = request->is_chunked || request->content_length;
    if (x->route->takes_json && (type || has_body) && !is_json(type))
        http_answer_error(x, 415, "the body must be JSON, with Content-Type: application/json");
    else if (coding && strcasecmp(coding, "identity"))
        http_answer_error(x, 415, "no Content-Encoding is understood here");
    else if (expect && request->minor == 1 && !request->expects_continue)
        http_answer_error(x, 417, "the only Expect here is 100-continue");
    return !x->status;
}

bool http_route_head(struct http_exchange *x)
{
    const struct http_options *options = &x->connection->server->options;
    if (!find_route(x))
        return false;
    if (options->admit && !options->admit(x, x->route, options->user)) {
        assert(x->status);
        return false;
    }
    return can_take_body(x);
}
