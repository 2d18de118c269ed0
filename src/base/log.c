#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static bool is_silent, never_waits;
static atomic_uint n_lost;

/* False: the line is left out.  A pipe that is ready takes one as long as ours whole. */
static bool may_print(void)
{
    struct pollfd to = { .fd = STDERR_FILENO, .events = POLLOUT };
    bool may = !never_waits || poll(&to, 1, 0) != 0;
    if (!may)
        atomic_fetch_add(&n_lost, 1);
    return may;
}

/* One write, so that lines of several processes do not mix. */
static void print(const char *prefix, const char *format, va_list args)
{
    char line[1024], lost[80] = "";
    if (!may_print())
        return;
    unsigned n = atomic_exchange(&n_lost, 0);
    if (n)
        snprintf(lost, sizeof lost, "stoa: warning: nobody read the log: %u lines are lost\n", n);
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c; c++)       /* names from files may hold anything */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "%sstoa: %s%s\n", lost, prefix, line);
}

void log_warning(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!is_silent)
        print("warning: ", format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!is_silent)
        print("", format, args);
    va_end(args);
}

void log_own(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print("", format, args);
    va_end(args);
}

void log_silence(bool silent)
{
    is_silent = silent;
}

void log_never_waits(void)
{
    never_waits = true;
}
