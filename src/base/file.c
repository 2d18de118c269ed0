#include "base/file.h"

#include "base/life.h"

#include <errno.h>
#include <unistd.h>

#define MOST_AT_ONCE ((size_t)64 << 20)

int write_all(int fd, const void *bytes, size_t n_bytes)
{
    for (const char *at = bytes; n_bytes;) {
        ssize_t n = write(fd, at, n_bytes < MOST_AT_ONCE ? n_bytes : MOST_AT_ONCE);
        life_sign();
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return -1;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}
