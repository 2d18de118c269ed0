#include "wire/address.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PORT 65535

static int read_path(struct address *out, const char *path)
{
    struct sockaddr_un *to = &out->socket.path;
    size_t n = strlen(path);
    if (!n || n >= sizeof to->sun_path)
        return error_set(ERR_USAGE, "unix:%s: wanted a path of 1 to %zu bytes", path, sizeof to->sun_path - 1);
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path, n + 1);
    out->n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    return 0;
}

static int read_v4(struct address *out, const char *host, in_port_t port, const char *text)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = port };
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &v4.sin_addr) != 1)
        return error_set(ERR_USAGE, "%s: wanted unix:PATH, or a host like 127.0.0.1, [::1] or localhost and a port", text);
    if (ntohl(v4.sin_addr.s_addr) >> 24 != 127)
        return error_set(ERR_USAGE, "%s: only addresses of this machine, as 127.0.0.1, since the link is not encrypted", text);
    memcpy(&out->socket.storage, &v4, sizeof v4);
    out->n_bytes = sizeof v4;
    return 0;
}

int address_read(struct address *out, const char *text)
{
    const char *colon = strrchr(text, ':');
    char host[64], *end;
    *out = (struct address){ 0 };
    if (!strncmp(text, "unix:", 5))
        return read_path(out, text + 5);
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || colon[1] < '0' || colon[1] > '9' || *end || port > MOST_PORT ||
        snprintf(host, sizeof host, "%.*s", (int)(colon - text), text) >= (int)sizeof host)
        return error_set(ERR_USAGE, "%s: wanted unix:PATH, or HOST:PORT", text);
    if (strcmp(host, "[::1]"))
        return read_v4(out, host, htons((in_port_t)port), text);
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((in_port_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    memcpy(&out->socket.storage, &v6, sizeof v6);
    out->n_bytes = sizeof v6;
    return 0;
}
