/* names.h: names that clients use and the server does not know: each is logged once. */
#ifndef STOA_FRONT_NAMES_H
#define STOA_FRONT_NAMES_H

#include <stddef.h>

enum { NAMES_MOST = 256 };              /* clients can make up more; those are not told of */
struct names {
    char *seen[NAMES_MOST];
    size_t n;
};
/* Logs it, the first time; copied. */
void names_tell(struct names *names, const char *name);
void names_release(struct names *names);

#endif
