/* auth.h: API keys.  A comparison takes the same time wherever what was given differs from a key. */
#ifndef STOA_FRONT_AUTH_H
#define STOA_FRONT_AUTH_H

#include <stdbool.h>
#include <stdint.h>

struct auth;

/* One key a line; blank lines, and those that begin with '#', are none.  ERR_USAGE: no such file, or no key in it. */
int auth_open(struct auth **out, const char *path);
void auth_close(struct auth *auth);
/* The number of the key in an Authorization header, from 1; 0: it names none.  NULL is a header that is not there. */
uint32_t auth_find(const struct auth *auth, const char *authorization);
/* Whether such a header names this key. */
bool auth_is(const char *key, const char *authorization);

#endif
