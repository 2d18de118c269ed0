#include "front/names.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 };

void names_tell(struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (!strncmp(names->seen[i], name, LONGEST))
            return;
    if (names->n == NAMES_MOST || !(names->seen[names->n] = strndup(name, LONGEST)))
        return;
    log_info("requests have a field \"%s\", which is not known here and changes nothing", names->seen[names->n++]);
}

void names_release(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->seen[i]);
    names->n = 0;
}
