/* process.c: which processes the ranks are. */
#include "engine/engine_impl.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The name of the program, which comes before, may hold anything but ends with the last ')'. */
static uint64_t own_start_time(void)
{
    char line[1024];
    uint64_t start = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    line[n] = '\0';
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%" SCNu64, &start) == 1 ? start : 0;
}

int processes_gather(struct rank_process **out, struct comm *world)
{
    struct rank_process self = { .pid = getpid(), .start_time = own_start_time() };
    struct rank_process *all = calloc((size_t)comm_size(world), sizeof *all);
    gethostname(self.host, sizeof self.host - 1);
    int err = comm_agree(world, all ? 0 : error_set(ERR_NO_MEMORY, "no memory for the list of ranks"));
    if (!err)
        err = comm_all_gather(world, all, &self, sizeof self);
    if (err < 0)
        free(all);
    else
        *out = all;
    return err;
}
