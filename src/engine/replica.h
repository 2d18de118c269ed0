/* replica.h: the leader's loop of a replica that serves fronts: what they ask for comes in between two steps of the engine, and what a
 * step has brought goes out after it.
 *
 *   Submit ──refused: full, draining, impossible──> Finish
 *      └──> engine_add() ──tokens, step by step──> Finish: stop, length, failed
 *                ├──Cancel──> Finish: cancelled
 *                ├──not let in within queue_ms──> Finish: timeout
 *                └──its connection is gone──> nothing
 *
 * The step thread runs it. */
#ifndef STOA_ENGINE_REPLICA_H
#define STOA_ENGINE_REPLICA_H

#include "engine/engine.h"

struct replica_options {
    const char *address;                /* see wire/server.h */
    uint64_t epoch;                     /* of this start; frames of another one are dropped */
    const char *numerics, *model;       /* ids, see engine/numerics.h */
    uint32_t max_sequences;             /* the engine's, to be told */
    uint32_t max_requests;              /* in work and waiting, of all connections; more are refused, another time there may be room */
    int end_fd;                         /* a byte that can be read from it: finish what runs, take nothing new, and return; -1: never */
    uint32_t drain_ms;                  /* for at most so long */
};

/* Until it is told to end: 0.  An error is the engine's, after which nothing can be finished any more, or the address's. */
int replica_run(struct engine *e, const struct replica_options *options);

#endif
