#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static bool is_silent;

static void print(const char *prefix, const char *format, va_list args)
{
    char line[1024];
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c; c++)       /* names from files may hold anything */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "stoa: %s%s\n", prefix, line);      /* one write, so that lines of several processes do not mix */
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
