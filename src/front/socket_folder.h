/* socket_folder.h: a private folder for a replica's socket, and an end of those that dead fronts have left behind.
 *
 * A front removes its folder as soon as it is connected.  One that is killed before, by a signal that nobody can catch, leaves it to
 * whoever makes the next: the file "lock" in it is locked as long as its front lives, in whatever container. */
#ifndef STOA_FRONT_SOCKET_FOLDER_H
#define STOA_FRONT_SOCKET_FOLDER_H

#include <limits.h>

struct socket_folder {
    char path[PATH_MAX - 16];           /* "": there is none */
    char socket[PATH_MAX];              /* a name in it, of nothing yet */
    int lock_fd;
};
/* In zeroed storage, or what was removed.  In XDG_RUNTIME_DIR, TMPDIR or /tmp.  ERR_FAILED: it cannot be made. */
int socket_folder_make(struct socket_folder *folder);
/* And the socket.  Nothing when there is none. */
void socket_folder_remove(struct socket_folder *folder);

#endif
