#include "front/socket_folder.h"

#include "base/base.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX "stoa.front."

static const char *base_folder(void)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || access(base, W_OK) < 0)
        base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* Opened at `at`, or -1. */
static int lock_file(int at, const char *name, int flags)
{
    int fd = openat(at, name, flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- those of the dead ---- */
static void remove_if_dead(int base, const char *name)
{
    int folder = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int lock = folder < 0 ? -1 : lock_file(folder, "lock", 0);
    if (lock >= 0) {
        unlinkat(folder, "socket", 0);
        unlinkat(folder, "lock", 0);
        unlinkat(base, name, AT_REMOVEDIR);
        close(lock);
    }
    if (folder >= 0)
        close(folder);
}

static void remove_dead(const char *path)
{
    DIR *base = opendir(path);
    struct dirent *entry;
    while (base && (entry = readdir(base)))
        if (!strncmp(entry->d_name, PREFIX, strlen(PREFIX)))
            remove_if_dead(dirfd(base), entry->d_name);
    if (base)
        closedir(base);
}

/* ---- ours ---- */
/* Has its name only when it is locked: who comes by meanwhile would take it for a dead one's. */
static bool make_lock(struct socket_folder *f)
{
    int folder = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    f->lock_fd = folder < 0 ? -1 : lock_file(folder, "new", O_CREAT | O_EXCL);
    bool ok = f->lock_fd >= 0 && renameat(folder, "new", folder, "lock") == 0;
    if (folder >= 0)
        close(folder);
    return ok;
}

int socket_folder_make(struct socket_folder *f)
{
    const char *base = base_folder();
    remove_dead(base);
    if (snprintf(f->path, sizeof f->path, "%s/" PREFIX "XXXXXX", base) >= (int)sizeof f->path || !mkdtemp(f->path)) {
        f->path[0] = '\0';
        return error_set(ERR_FAILED, "no folder for the replica's socket in %s: %s", base, strerror(errno));
    }
    snprintf(f->socket, sizeof f->socket, "%s/socket", f->path);
    if (!make_lock(f)) {
        int err = error_set(ERR_FAILED, "%s cannot be locked: %s", f->path, strerror(errno));
        socket_folder_remove(f);
        return err;
    }
    return 0;
}

void socket_folder_remove(struct socket_folder *f)
{
    static const char *const names[] = { "socket", "new", "lock" };
    if (!f->path[0])
        return;
    int folder = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; folder >= 0 && i < COUNT_OF(names); i++)
        unlinkat(folder, names[i], 0);
    rmdir(f->path);
    if (folder >= 0)
        close(folder);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    *f = (struct socket_folder){ .lock_fd = -1 };
}
