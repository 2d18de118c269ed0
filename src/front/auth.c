#include "front/auth.h"

#include "base/arena.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct auth {
    struct arena arena;
    struct key { const char *text; struct key *next; } *keys;      /* the last line first */
    uint32_t n_keys;
};

static int add_key(struct auth *auth, const char *line, size_t n_bytes)
{
    struct key *key = arena_new(&auth->arena, struct key);
    char *text = key ? arena_alloc(&auth->arena, n_bytes + 1) : NULL;
    if (!text)
        return error_set(ERR_NO_MEMORY, "out of memory for API keys");
    memcpy(text, line, n_bytes);
    *key = (struct key){ text, auth->keys };
    auth->keys = key;
    auth->n_keys++;
    return 0;
}

static int read_keys(struct auth *auth, FILE *file, const char *path)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int err = 0;
    while (err == 0 && (n = getline(&line, &room, file)) >= 0) {
        while (n > 0 && strchr(" \t\r\n", line[n - 1]))
            n--;
        size_t skip = strspn(line, " \t");
        if ((size_t)n > skip && line[skip] != '#')
            err = add_key(auth, line + skip, (size_t)n - skip);
    }
    free(line);
    if (err == 0 && ferror(file))
        err = error_set(ERR_USAGE, "%s: %s", path, strerror(errno));
    if (err == 0 && !auth->keys)
        err = error_set(ERR_USAGE, "%s: there is no key in it", path);
    return err;
}

int auth_open(struct auth **out, const char *path)
{
    struct auth *auth = calloc(1, sizeof *auth);
    FILE *file = auth ? fopen(path, "re") : NULL;
    int err = !auth ? error_set(ERR_NO_MEMORY, "out of memory for API keys") : !file ? error_set(ERR_USAGE, "%s: %s", path, strerror(errno))
                                                                                     : read_keys(auth, file, path);
    if (file)
        fclose(file);
    if (err < 0) {
        auth_close(auth);
        return err;
    }
    *out = auth;
    return 0;
}

void auth_close(struct auth *auth)
{
    if (auth)
        arena_close(&auth->arena);
    free(auth);
}

/* The key in "Bearer KEY"; NULL when there is none. */
static const char *bearer(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7))
        return NULL;
    return authorization + 7 + strspn(authorization + 7, " ");
}

/* Looks at every byte of the key, whatever was given. */
static bool same(const char *key, const char *given)
{
    size_t n_key = strlen(key), n_given = strlen(given);
    volatile unsigned char differs = n_key != n_given;
    for (size_t i = 0; i < n_key; i++)
        differs |= (unsigned char)(key[i] ^ given[n_given ? i % n_given : 0]);
    return !differs;
}

uint32_t auth_find(const struct auth *auth, const char *authorization)
{
    const char *given = bearer(authorization);
    uint32_t number = auth->n_keys, found = 0;
    for (const struct key *key = given ? auth->keys : NULL; key; key = key->next, number--)
        found = same(key->text, given) ? number : found;
    return found;
}

bool auth_is(const char *key, const char *authorization)
{
    const char *given = bearer(authorization);
    return given && same(key, given);
}
