/* listener.h: a socket that a replica listens on.
 *
 * A path is its owner's alone (mode 0600).  A socket that a dead replica has left there is replaced; one that somebody listens on, or a
 * file of another kind, never is. */
#ifndef STOA_WIRE_LISTENER_H
#define STOA_WIRE_LISTENER_H

#include "wire/address.h"

#include <sys/stat.h>

struct listener {
    int fd;
    struct address address;             /* as bound, so with the port that the system chose for port 0 */
    struct stat file;                   /* of the path */
};

/* ERR_USAGE: no such address, or it is taken.  ERR_FAILED: somebody else keeps the lock of the folder, or the system refuses. */
int listener_open(struct listener *out, const char *address);
/* Removes the path, if it is still this socket's. */
void listener_close(struct listener *listener);
/* The address as a client wants it. */
void listener_print(const struct listener *listener, char *out, size_t size);

#endif
