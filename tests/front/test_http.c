/* test_http.c: requests and their answers, one after the other on a connection or alone; addresses. */
#include "base/error.h"
#include "tests/front/http_world.h"

#include <netdb.h>

/* ---- one request, one answer ---- */
static const struct { const char *name, *say, *status; const char *parts[5]; const char *absent; } answers[] = {
    { "GET", GET("/hello") CLOSE "\r\n", "200 OK", { "\r\nContent-Length: 5\r\n", "\r\n\r\nhello", "\r\nDate: ", "\r\nx-request-id: ",
      "\r\nConnection: close\r\n" }, "Access-Control" },
    { "HEAD", "HEAD /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "\r\nContent-Length: 5\r\n" }, "hello" },
    { "HEAD of a stream", "HEAD /stream HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "chunked" }, "piece" },
    { "HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n", "200 OK", { "\r\nConnection: close\r\n", "\r\n\r\nhello" }, NULL },
    { "an absolute address", "GET http://x/hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "200 OK", { "hello" }, NULL },
    { "an answer that comes later", GET("/later") CLOSE "\r\n", "200 OK", { "\r\n\r\nlater" }, NULL },
    { "an id that is given", GET("/hello") CLOSE "X-Request-ID: Ab-1_.:\r\n\r\n", "200 OK", { "\r\nx-request-id: Ab-1_.:\r\n" }, NULL },
    { "an id that is odd", GET("/hello") CLOSE "X-Request-ID: a b\r\n\r\n", "200 OK", { "x-request-id: " }, "a b" },
    { "an id that is long", GET("/hello") CLOSE "X-Request-ID: 1234567890123456789012345678901234567890123456789012345678901234x\r\n\r\n",
      "200 OK",
      { "x-request-id: " }, "1234567890123456789012345678901234567890123456789012345678901234x" },

    { "what a handler sees", POST("/show") CLOSE "X-A: 1\r\nx-a: 2\r\nContent-Length: 3\r\n\r\nabc", "200 OK",
      { "POST /show rest= x-a=1, 2 body=3 from=127.0.0.1 id=" }, NULL },
    { "a header cannot bring another", POST("/show") CLOSE "\r\n", "200 OK", { "\r\nX-B: one  X-Evil: yes\r\n" }, "\r\nX-Evil" },
    { "a prefix", GET("/models/org%2Fa%20b") CLOSE "\r\n", "200 OK", { "GET /models/org/a b rest=org/a b " }, NULL },
    { "an exact path goes before a prefix", GET("/models/a") CLOSE "\r\n", "200 OK", { "\r\n\r\nhello" }, NULL },
    { "wherever it stands", GET("/models/b") CLOSE "\r\n", "200 OK", { "\r\n\r\nhello" }, NULL },
    { "a prefix alone", GET("/models/") CLOSE "\r\n", "404 Not Found", { "{\"status\": 404" }, NULL },
    { "an escaped slash is none of a route's", GET("/models%2Fa") CLOSE "\r\n", "404 Not Found", { NULL }, NULL },
    { "an exact path with one", GET("%2Fhello") CLOSE "\r\n", "400 Bad Request", { NULL }, NULL },
    { "dots are names", GET("/models/../hello") CLOSE "\r\n", "200 OK", { "rest=../hello " }, NULL },

    { "JSON", POST("/echo") CLOSE JSON "Content-Length: 2\r\n\r\n{}", "200 OK", { "\r\n\r\n{}" }, NULL },
    { "JSON with parameters", POST("/echo") CLOSE "Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}", "200 OK",
      { "\r\n\r\n{}" }, NULL },
    { "JSON in chunks", POST("/echo") CLOSE JSON "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
      "200 OK", { "\r\n\r\n{}" }, NULL },
    { "JSON without a body", POST("/echo") CLOSE "\r\n", "200 OK", { "Content-Length: 0" }, NULL },
    { "another type", POST("/echo") CLOSE "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", "415 Unsupported Media Type",
      { "application/json" }, NULL },
    { "a type that begins like it", POST("/echo") CLOSE "Content-Type: application/jsonl\r\nContent-Length: 2\r\n\r\n{}",
      "415 ", { NULL }, NULL },
    { "no type", POST("/echo") CLOSE "Content-Length: 2\r\n\r\n{}", "415 ", { NULL }, NULL },
    { "a coding", POST("/echo") CLOSE JSON "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "415 ", { "Content-Encoding" }, NULL },
    { "another Expect", POST("/echo") CLOSE JSON "Expect: 200-ok\r\n\r\n", "417 Expectation Failed", { NULL }, NULL },

    { "no such path", GET("/nothing") CLOSE "\r\n", "404 Not Found", { "Content-Type: application/json\r\n", "{\"status\": 404" }, NULL },
    { "HEAD of no such path", "HEAD /nothing HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "404 Not Found", { "\r\nContent-Length: " }, "{" },
    { "not this method", POST("/hello") CLOSE "\r\n", "405 Method Not Allowed", { "\r\nAllow: GET, HEAD, OPTIONS\r\n" }, NULL },
    { "not this method either", "DELETE /echo HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "405 ", { "\r\nAllow: POST, OPTIONS\r\n" }, NULL },
    { "no such method", "BREW /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "501 Not Implemented", { NULL }, NULL },
    { "a method that no path takes", "TRACE /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "405 Method Not Allowed", { "Allow: GET, HEAD, OPTIONS" }, NULL },
    { "a method as new as QUERY", "QUERY /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "405 Method Not Allowed", { "Allow: GET, HEAD, OPTIONS\r\n" }, NULL },
    { "a tunnel", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "501 Not Implemented", { NULL }, NULL },
    { "options", "OPTIONS /hello HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n",
      "204 No Content", { "\r\nAllow: GET, HEAD, OPTIONS\r\n" }, "Content-Length" },
    { "options of everything", "OPTIONS * HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n",
      "204 No Content", { "\r\nAllow: GET, HEAD, POST, OPTIONS\r\n" }, NULL },
    { "options of nothing", "OPTIONS /nothing HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", "404 Not Found", { NULL }, NULL },
    { "options without a key", "OPTIONS /never HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer bad\r\n" CLOSE "\r\n", "204 ", { NULL }, NULL },

    { "a bad key", GET("/never") "Authorization: Bearer bad\r\n" CLOSE "\r\n",
      "401 Unauthorized", { "\r\nWWW-Authenticate: Bearer\r\n" }, NULL },
    { "a good key", GET("/later") "Authorization: Bearer good\r\n" CLOSE "\r\n", "200 OK", { NULL }, NULL },
    { "a bad key on an open route", GET("/hello") "Authorization: Bearer bad\r\n" CLOSE "\r\n", "200 OK", { NULL }, NULL },
    { "a bad key costs no body", POST("/echo") JSON "Authorization: Bearer bad\r\nContent-Length: 1000\r\n\r\n", "401 ",
      { "\r\nConnection: close\r\n" }, NULL },
    { "nor the wrong path", POST("/nothing") "Content-Length: 1000\r\n\r\n", "404 ", { "\r\nConnection: close\r\n" }, NULL },
    { "too long a body", POST("/echo") JSON "Content-Length: 2147483658\r\n\r\n",
      "413 Content Too Large", { "\r\nConnection: close\r\n" }, NULL },
    { "smuggling", POST("/echo") JSON "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/hello") "\r\n",
      "400 Bad Request",
      { "\r\nConnection: close\r\n" }, "hello" },
    { "no HTTP", "\x16\x03\x01", "400 Bad Request", { "\r\nConnection: close\r\n" }, NULL },
    { "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 HTTP Version Not Supported", { NULL }, NULL },
};

static void test_answers(void)
{
    struct http_options options = usual();
    begin(&options);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        check_begin("%s", answers[i].name);
        char status[64], *got = ask(answers[i].say);
        snprintf(status, sizeof status, "HTTP/1.1 %s", answers[i].status);
        if (!check(!strncmp(got, status, strlen(status))))
            printf("  wanted %s, got\n%s\n", status, got);
        for (int k = 0; k < 5 && answers[i].parts[k]; k++)
            has(got, answers[i].parts[k]);
        if (answers[i].absent)
            has_not(got, answers[i].absent);
        has(got, "\r\nx-request-id: ");
        comes_to(&n_answered, (int)i + 1);
        check_int(atomic_load(&last_status), atoi(answers[i].status));
        free(got);
    }
    check_int(n_gone, 0);
    end();
}

/* ---- one connection, several requests ---- */
static void test_keep_alive(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("a connection serves many requests, also after an error that leaves no body unread");
    int fd = dial();
    static const struct { const char *say, *end; } turns[] = {
        { GET("/hello") "\r\n", "\r\nhello" },       { GET("/nothing") "\r\n", "}" },           { GET("/later") "\r\n", "\r\nlater" },
        { GET("/stream") "\r\n", "\r\n0\r\n\r\n" }, { POST("/echo") JSON "Content-Length: 2\r\n\r\n[]", "\r\n\r\n[]" },
    };
    for (int i = 0; i < 50; i++) {
        say(fd, turns[i % 5].say);
        char *got = hear(fd, turns[i % 5].end);
        has_not(got, "Connection:");
        check_int(count(got, "HTTP/1.1 "), 1);
        free(got);
    }
    connections_come_to(1);
    say(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    char *got = hear(fd, "\r\nhello");
    has(got, "\r\nConnection: keep-alive\r\n");
    free(got);
    close(fd);
    check_begin("pipelined requests are answered in order");
    fd = dial();
    char order[512] = "", *at = order;
    say(fd, GET("/later") "\r\n" POST("/show") "Content-Length: 3\r\nX-A: 1\r\n\r\nabc" GET("/stream") "\r\n" GET("/nothing") "\r\n"
            GET("/hello") CLOSE "\r\n" GET("/later") "\r\n");
    got = hear(fd, NULL);
    for (const char *line = got; (line = strstr(line, "HTTP/1.1 ")); line++)
        at += sprintf(at, "%.3s ", line + 9);
    check_text(order, "200 200 200 404 200 ");
    static const char *const parts[] = { "\r\nlater", "x-a=1", "piece 1", "404", "\r\nhello" };
    const char *place = got;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (check(strstr(place, parts[i])))
            place = strstr(place, parts[i]);
    free(got);
    close(fd);
    end();
}

static void test_many_pipelined(void)
{
    enum { N = 5000 };
    struct http_options options = usual();
    struct buffer all = { 0 };
    begin(&options);
    check_begin("%d requests at once", N);
    for (int i = 0; i < N; i++)
        buffer_add_text(&all, i < N - 1 ? GET("/hello") "\r\n" : GET("/hello") CLOSE "\r\n");
    char *got = ask(all.bytes);
    check_int(count(got, "\r\n\r\nhello"), N);
    comes_to(&n_answered, N);
    free(got);
    buffer_release(&all);
    end();
}

static void test_continue(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("100-continue");
    int fd = dial();
    say(fd, POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    char *got = hear(fd, "\r\n\r\n");
    check_text(got, "HTTP/1.1 100 Continue\r\n\r\n");
    free(got);
    say(fd, "{}");
    got = hear(fd, NULL);
    check(!strncmp(got, "HTTP/1.1 200 OK", 15));
    has(got, "\r\n\r\n{}");
    free(got);
    close(fd);
    check_begin("100-continue: not when a part of the body is there");
    fd = dial();
    say(fd, POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{");
    nap_ms(50);
    say(fd, "}");
    got = hear(fd, NULL);
    check(!strncmp(got, "HTTP/1.1 200 OK", 15));
    free(got);
    close(fd);
    static const struct { const char *name, *say, *want; } rows[] = {
        { "not when the body is there", POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200" },
        { "not when it is too long", POST("/echo") JSON CLOSE "Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n", "HTTP/1.1 413" },
        { "not without a key", POST("/echo") JSON "Authorization: Bearer bad\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
          "HTTP/1.1 401" },
        { "not without a body", POST("/echo") CLOSE "Expect: 100-continue\r\n\r\n", "HTTP/1.1 200" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("100-continue: %s", rows[i].name);
        got = ask(rows[i].say);
        check(!strncmp(got, rows[i].want, strlen(rows[i].want)));
        free(got);
    }
    end();
}

/* ---- CORS ---- */
static void test_cors(void)
{
    static const char ask_first[] = "OPTIONS /echo HTTP/1.1\r\nHost: h\r\nOrigin: http://page\r\nAccess-Control-Request-Method: POST\r\n"
                                    "Access-Control-Request-Headers: authorization, x-stainless-os\r\n" CLOSE "\r\n";
    struct http_options options = usual();
    begin(&options);
    check_begin("no CORS unless asked for");
    char *got = ask(ask_first);
    has_not(got, "Access-Control");
    free(got);
    end();
    options.cors_origin = "http://page";
    begin(&options);
    check_begin("CORS: beforehand");
    got = ask(ask_first);
    check(!strncmp(got, "HTTP/1.1 204 No Content\r\n", 25));
    has(got, "\r\nAccess-Control-Allow-Origin: http://page\r\n");
    has(got, "\r\nAccess-Control-Allow-Methods: POST, OPTIONS\r\n");
    has(got, "\r\nAccess-Control-Allow-Headers: authorization, x-stainless-os\r\n");
    has(got, "\r\nAccess-Control-Max-Age: ");
    free(got);
    check_begin("CORS: in answers, errors and streams");
    static const char *const says[] = {
        GET("/hello") CLOSE "\r\n", GET("/nothing") CLOSE "\r\n", GET("/stream") CLOSE "\r\n", "nonsense\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(says); i++) {
        got = ask(says[i]);
        has(got, "\r\nAccess-Control-Allow-Origin: http://page\r\n");
        has_not(got, "Access-Control-Allow-Methods");
        free(got);
    }
    end();
}

/* ---- addresses ---- */
static char *ask_at(int family, uint16_t port)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback };
    struct sockaddr_in four = loopback(port);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int err = family == AF_INET6 ? connect(fd, (struct sockaddr *)&six, sizeof six) : connect(fd, (struct sockaddr *)&four, sizeof four);
    char *answer = NULL;
    if (!err && say(fd, POST("/show") CLOSE "\r\n"))
        answer = hear(fd, NULL);
    close(fd);
    return answer;
}

static bool has_six(void)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), err = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&at, sizeof at);
    if (fd >= 0)
        close(fd);
    return !err;
}

/* The program is linked so that the server's call comes by here: "twice" is an address that the hosts file has twice. */
int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    bool is_twice = !strcmp(name, "twice");
    int err = __real_getaddrinfo(is_twice ? "127.0.0.1" : name, service, hints, out);
    return is_twice && !err ? __real_getaddrinfo("127.0.0.1", service, hints, &(*out)->ai_next) : err;
}

static void test_addresses(void)
{
    static const struct { const char *host; bool four, six; } rows[] = {
        { "127.0.0.1", true, false }, { "0.0.0.0", true, false }, { "::1", false, true },
        { "::", true, true },         { "localhost", true, false }, { "twice", true, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct http_options options = usual();
        options.host = rows[i].host;
        check_begin("listening on %s", rows[i].host);
        if (rows[i].six && !has_six()) {
            check_skip("no IPv6 here");
            continue;
        }
        begin(&options);
        char *four = ask_at(AF_INET, http_server_port(server)), *six = rows[i].six ? ask_at(AF_INET6, http_server_port(server)) : NULL;
        check(!four == !rows[i].four);
        if (four)
            has(four, "from=127.0.0.1 ");
        check(!six == !rows[i].six);
        if (six)
            has(six, "from=:: ");
        free(four);
        free(six);
        end();
    }
}

static void test_bad_addresses(void)
{
    struct http_options options = usual();
    begin(&options);
    check_begin("an address that is taken, or none");
    struct http_server *second = NULL;
    options.port = http_server_port(server);
    check_int(http_server_open(&second, loop, &options), ERR_USAGE);
    check(strstr(error_text(), "127.0.0.1, port ") && strstr(error_text(), "in use"));
    options.port = 0;
    options.host = "203.0.113.7";
    check_int(http_server_open(&second, loop, &options), ERR_USAGE);
    options.host = "no such name.invalid";
    check_int(http_server_open(&second, loop, &options), ERR_USAGE);
    check(!second);
    end();
}

/* The program is linked so that a buffer's memory comes from here. */
static _Thread_local bool is_out_of_memory;
void *__real_realloc(void *bytes, size_t n_bytes);
void *__wrap_realloc(void *bytes, size_t n_bytes);
void *__wrap_realloc(void *bytes, size_t n_bytes)
{
    return is_out_of_memory ? NULL : __real_realloc(bytes, n_bytes);
}

static bool admit_without_memory(struct http_exchange *x, const struct http_route *route, void *user)
{
    (void)route;
    (void)user;
    http_add_header(x, "X-A", "1");
    is_out_of_memory = true;
    http_add_header(x, "X-B", "a value that is much longer than what there is room for, so that memory has to be asked for");
    is_out_of_memory = false;
    return true;
}

/* On the loop's thread, which may still be at the last one. */
static void prepare(void)
{
    buffer_release(&prepared);
    buffer_add_text(&prepared, "whole");
}

static void test_no_memory(void)
{
    static const char *const asked[] = { GET("/hello") CLOSE "\r\n", GET("/whole") CLOSE "\r\n", GET("/stream") CLOSE "\r\n" };
    struct http_options options = usual();
    options.admit = admit_without_memory;
    begin(&options);
    check_begin("no answer lacks a header for want of memory");
    for (size_t i = 0; i < COUNT_OF(asked); i++) {
        on_loop(prepare);
        char *got = ask(asked[i]);
        check(!*got);
        free(got);
    }
    end();
    buffer_release(&prepared);
}

int main(void)
{
    test_answers();
    test_keep_alive();
    test_many_pipelined();
    test_continue();
    test_cors();
    test_addresses();
    test_bad_addresses();
    test_no_memory();
    return check_done();
}
