/* comm_self.c: the world of one rank.  It has no peers, so there is nothing to send, to test or to look for. */
#include "comm/transport.h"

static int self_split(struct comm *group, struct comm *parent, int color, int key)
{
    (void)parent, (void)color, (void)key;
    group->size = 1;
    return 0;
}

static void self_close(struct comm *comm)
{
    (void)comm;
}

static const struct comm_transport self = { .split = self_split, .close = self_close };

int comm_self_open(struct comm *world)
{
    world->transport = &self;
    world->size = 1;
    world->n_host_ranks = world->n_host_cores = 1;
    world->sharing.n = 1;
    return 0;
}
