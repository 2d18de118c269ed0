#include "front/names.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static void tell(struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (!strcmp(names->seen[i], name))
            return;
    if (names->n == NAMES_MOST || !(names->seen[names->n] = strdup(name)))
        return;
    log_info("requests have a field \"%s\", which changes nothing here", names->seen[names->n++]);
}

void names_tell(struct names *names, const char *list, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += strlen(list + at) + 1)
        tell(names, list + at);
}

void names_release(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->seen[i]);
    names->n = 0;
}
