#include "tests/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char current[256];
static bool current_failed, current_skipped, current_open;
static int n_passed, n_failed, n_skipped;

static void finish(void)
{
    if (!current_open)
        return;
    n_failed += current_failed;
    n_skipped += current_skipped && !current_failed;
    n_passed += !current_failed && !current_skipped;
    current_open = false;
}

void check_begin(const char *format, ...)
{
    va_list args;
    finish();
    va_start(args, format);
    vsnprintf(current, sizeof current, format, args);
    va_end(args);
    current_open = true;
    current_failed = current_skipped = false;
}

static bool report(const char *file, int line, bool ok)
{
    if (!current_open)
        check_begin("%s", file);
    if (!ok) {
        current_failed = true;
        printf("FAIL %s (%s:%d): ", current, file, line);
    }
    return ok;
}

void check_skip(const char *reason)
{
    const char *ci = getenv("CI");
    if (ci && !strcmp(ci, "true")) {
        current_failed = true;
        printf("FAIL %s: must not be skipped in CI: %s\n", current, reason);
    } else {
        current_skipped = true;
        printf("SKIP %s: %s\n", current, reason);
    }
}

bool check_true_at(const char *file, int line, const char *what, bool ok)
{
    if (!report(file, line, ok))
        printf("%s is false\n", what);
    return ok;
}

bool check_int_at(const char *file, int line, const char *what, long long got, long long want)
{
    if (!report(file, line, got == want))
        printf("%s is %lld, wanted %lld\n", what, got, want);
    return got == want;
}

bool check_text_at(const char *file, int line, const char *what, const char *got, const char *want)
{
    bool ok = got && want && !strcmp(got, want);
    if (!report(file, line, ok))
        printf("%s is\n  %s\nwanted\n  %s\n", what, got ? got : "NULL", want ? want : "NULL");
    return ok;
}

bool check_bytes_at(const char *file, int line, const char *what, const void *got, const void *want, size_t n_bytes)
{
    const unsigned char *a = got, *b = want;
    size_t i = 0;
    while (i < n_bytes && a[i] == b[i])
        i++;
    if (!report(file, line, i == n_bytes))
        printf("%s differs at byte %zu of %zu: %02x, wanted %02x\n", what, i, n_bytes, a[i], b[i]);
    return i == n_bytes;
}

int check_done(void)
{
    finish();
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed ? 1 : 0;
}
