#include "wire/listener.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define BACKLOG 16
#define LOCK_TRIES 100                  /* at a lock that somebody else holds, 10 ms apart: to bind takes less than one */

/* ---- a path ---- */
/* Held while a path is looked at and bound, so that of two that start at once none removes the other's.  Anybody may hold it for longer who
 * can open the folder.  *out is -1 where the folder cannot be opened, which does without a lock. */
static int lock_folder(int *out, const char *path)
{
    char copy[sizeof ((struct sockaddr_un *)0)->sun_path];
    memcpy(copy, path, strlen(path) + 1);
    const char *folder = dirname(copy);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; i++) {
        if (i == LOCK_TRIES) {
            close(fd);
            return error_set(ERR_FAILED, "unix:%s: another process holds the lock (flock) of the folder %s", path, folder);
        }
        usleep(10000);
    }
    *out = fd;
    return 0;
}

static bool is_dead_socket(const struct address *address)
{
    struct stat file;
    int fd = -1, refused;
    if (lstat(address->socket.path.sun_path, &file) < 0 || !S_ISSOCK(file.st_mode) ||
        (fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return false;
    refused = connect(fd, &address->socket.any, address->n_bytes) < 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

static int bind_path(struct listener *l)
{
    const char *path = l->address.socket.path.sun_path;
    int folder = -1, err = lock_folder(&folder, path);
    if (err < 0)
        return err;
    if (is_dead_socket(&l->address))
        unlink(path);
    /* Nobody can connect before listen(), so nobody does before chmod(). */
    bool is_bound = bind(l->fd, &l->address.socket.any, l->address.n_bytes) == 0;
    bool failed = !is_bound || chmod(path, S_IRUSR | S_IWUSR) < 0 || listen(l->fd, BACKLOG) < 0 || lstat(path, &l->file) < 0;
    int error = errno;
    if (failed && is_bound)
        unlink(path);
    if (folder >= 0)
        close(folder);
    return failed ? error_set(error == ENOSPC || error == ENOMEM ? ERR_FAILED : ERR_USAGE, "unix:%s: %s", path, strerror(error)) : 0;
}

/* ---- a port ---- */
static int bind_port(struct listener *l, const char *text)
{
    int on = 1;
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(l->fd, &l->address.socket.any, l->address.n_bytes) < 0 || listen(l->fd, BACKLOG) < 0 ||
        getsockname(l->fd, &l->address.socket.any, &l->address.n_bytes) < 0)
        return error_set(ERR_USAGE, "%s: %s", text, strerror(errno));
    return 0;
}

int listener_open(struct listener *out, const char *address)
{
    struct listener l = { .fd = -1 };
    int err = address_read(&l.address, address);
    if (err < 0)
        return err;
    if ((l.fd = socket(l.address.socket.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) < 0)
        return error_set(ERR_FAILED, "%s: %s", address, strerror(errno));
    err = address_is_path(&l.address) ? bind_path(&l) : bind_port(&l, address);
    if (err < 0)
        close(l.fd);
    else
        *out = l;
    return err;
}

void listener_close(struct listener *l)
{
    struct stat file;
    if (l->fd < 0)
        return;
    if (address_is_path(&l->address) && lstat(l->address.socket.path.sun_path, &file) == 0 && file.st_ino == l->file.st_ino &&
        file.st_dev == l->file.st_dev)
        unlink(l->address.socket.path.sun_path);
    close(l->fd);
    l->fd = -1;
}

void listener_print(const struct listener *l, char *out, size_t size)
{
    char host[INET_ADDRSTRLEN];
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address_is_path(&l->address)) {
        snprintf(out, size, "unix:%s", l->address.socket.path.sun_path);
    } else if (l->address.socket.any.sa_family == AF_INET) {
        memcpy(&v4, &l->address.socket.storage, sizeof v4);
        snprintf(out, size, "%s:%u", inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host), ntohs(v4.sin_port));
    } else {
        memcpy(&v6, &l->address.socket.storage, sizeof v6);
        snprintf(out, size, "[::1]:%u", ntohs(v6.sin6_port));
    }
}
