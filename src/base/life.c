#include "base/life.h"

#include "base/error.h"
#include "base/threads.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char folder[PATH_MAX];
static atomic_int next_s;           /* of the steady clock; 0: nobody watches */

int life_show_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".") >= (int)sizeof folder)
        return error_set(ERR_USAGE, "%s: too long", path);
    atomic_store(&next_s, 1);
    return 0;
}

/* Whoever watches may have seen enough, and removed it. */
void life_sign(void)
{
    int due_s = atomic_load(&next_s), now_s = due_s ? (int)seconds_now() : 0;
    if (due_s && now_s >= due_s && atomic_compare_exchange_strong(&next_s, &due_s, now_s + 1))
        utimensat(AT_FDCWD, folder, NULL, 0);
}
