#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static bool is_silent, never_waits, tells_time;
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

enum { TIME_ROOM = 48 };

/* "2026-12-01T03:00:07.250Z ", or nothing. */
static const char *time_now(char out[TIME_ROOM])
{
    struct timespec now;
    struct tm day;
    out[0] = '\0';
    if (tells_time && clock_gettime(CLOCK_REALTIME, &now) == 0 && gmtime_r(&now.tv_sec, &day)) {
        size_t n = strftime(out, TIME_ROOM, "%Y-%m-%dT%H:%M:%S", &day);
        snprintf(out + n, TIME_ROOM - n, ".%03ldZ ", now.tv_nsec / 1000000);
    }
    return out;
}

/* One write, so that lines of several processes do not mix. */
static void print(const char *prefix, const char *format, va_list args)
{
    char line[1024], lost[80 + TIME_ROOM] = "", at[TIME_ROOM];
    if (!may_print())
        return;
    unsigned n = atomic_exchange(&n_lost, 0);
    time_now(at);
    if (n)
        snprintf(lost, sizeof lost, "%sstoa: warning: nobody read the log: %u lines are lost\n", at, n);
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c; c++)       /* names from files may hold anything */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "%s%sstoa: %s%s\n", lost, at, prefix, line);
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

void log_tells_time(void)
{
    tells_time = true;
}
