#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char line[1024];

/* Names from files may hold anything; a line for people is one line and moves no cursor. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

int error_set(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    make_printable(line);
    return code;
}

int error_prefix(int code, const char *format, ...)
{
    char old[sizeof line], prefix[sizeof line];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    memcpy(old, line, sizeof old);
    size_t used = (size_t)snprintf(line, sizeof line, "%s: ", prefix);
    if (used < sizeof line)
        snprintf(line + used, sizeof line - used, "%s", old);
    return code;
}

const char *error_text(void)
{
    return line;
}

int error_exit_code(int code)
{
    return code >= 0 ? 0 : code == ERR_USAGE ? 2 : code == ERR_BAD_FILE ? 3 : 1;
}
