/* names.h: names that clients use and that change nothing here: each is logged once. */
#ifndef STOA_FRONT_NAMES_H
#define STOA_FRONT_NAMES_H

#include <stddef.h>

enum { NAMES_MOST = 256 };              /* clients can make up more; those are not told of */
struct names {
    char *seen[NAMES_MOST];
    size_t n;
};
/* Logs those that come for the first time; copied.  Each of the n_bytes' names is ended by a NUL. */
void names_tell(struct names *names, const char *list, size_t n_bytes);
void names_release(struct names *names);

#endif
