/* golden.h: what tests of text read: golden JSON from tests/golden, and the real model if it is on this machine. */
#ifndef STOA_TESTS_GOLDEN_H
#define STOA_TESTS_GOLDEN_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Aborts when it can not be read: it is committed beside the test.  Strings in it may hold NULs. */
static inline json_t *golden_load(const char *name)
{
    char path[256];
    json_error_t error;
    snprintf(path, sizeof path, "tests/golden/%s", name);
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!golden) {
        fprintf(stderr, "%s: line %d: %s\n", path, error.line, error.text);
        abort();
    }
    return golden;
}

/* $XDG_CACHE_HOME/stoa/NAME, or ~/.cache/stoa/NAME; NULL when there is none. */
static inline const char *cached_model(const char *name)
{
    static char path[1024];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(path, sizeof path, "%s/stoa/%s", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/stoa/%s", home ? home : "", name);
    return access(path, R_OK) ? NULL : path;
}

#endif
