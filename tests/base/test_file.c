#include "base/file.h"

#include "tests/check.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The program is linked so that the library's calls of write() come by here. */
enum { MAX_CALLS = 8 };
static struct { size_t most; int error; } calls[MAX_CALLS];         /* what each call takes, or how it fails */
static char taken[64];
static size_t n_taken, n_calls;

ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    (void)fd;
    if (n_calls == MAX_CALLS)
        return -1;
    errno = calls[n_calls].error;
    n = MIN(n, calls[n_calls].most);
    n_calls++;
    if (errno)
        return -1;
    memcpy(taken + n_taken, bytes, n);
    n_taken += n;
    return (ssize_t)n;
}

static const struct { const char *name; int want, error; size_t n_calls; struct { size_t most; int error; } calls[MAX_CALLS]; } rows[] = {
    { "at once", 0, 0, 1, { { 99, 0 } } },
    { "in pieces", 0, 0, 3, { { 1, 0 }, { 4, 0 }, { 99, 0 } } },
    { "interrupted", 0, 0, 3, { { 3, 0 }, { 0, EINTR }, { 99, 0 } } },
    { "no room", -1, ENOSPC, 2, { { 3, 0 }, { 0, ENOSPC } } },
    { "nothing is taken", -1, EIO, 2, { { 3, 0 }, { 0, 0 } } },
};

int main(void)
{
    static const char text[] = "sixteen letters.";
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("write_all: %s", rows[i].name);
        n_taken = n_calls = 0;
        memcpy(calls, rows[i].calls, sizeof calls);
        check_int(write_all(1, text, sizeof text), rows[i].want);
        check_int(n_calls, rows[i].n_calls);
        if (rows[i].want < 0)
            check_int(errno, rows[i].error);
        else if (check_int(n_taken, sizeof text))
            check_bytes("bytes", (uint8_t *)taken, (const uint8_t *)text, sizeof text);
    }
    return check_done();
}
