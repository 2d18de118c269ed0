/* process.c: which processes the ranks are. */
#include "engine/engine_impl.h"

#include "base/error.h"
#include "base/process.h"

#include <stdlib.h>
#include <unistd.h>

int processes_gather(struct rank_process **out, struct comm *world)
{
    struct rank_process self = { .pid = getpid(), .start_time = process_start_time(0, NULL) };
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
