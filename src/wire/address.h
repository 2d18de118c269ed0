/* address.h: where a replica listens: "unix:PATH", or "HOST:PORT" of this machine alone, since links are not encrypted yet. */
#ifndef STOA_WIRE_ADDRESS_H
#define STOA_WIRE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
        struct sockaddr_un path;
    } socket;
    socklen_t n_bytes;
};

/* HOST is localhost, 127.x.x.x or [::1].  ERR_USAGE says what is wrong. */
int address_read(struct address *out, const char *text);
static inline bool address_is_path(const struct address *address)
{
    return address->socket.any.sa_family == AF_UNIX;
}

#endif
