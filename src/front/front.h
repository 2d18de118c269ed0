/* front.h: `stoa serve`: what clients speak to.  It has the port, the tokenizer and all requests; it starts the replica that computes,
 * and outlives it. */
#ifndef STOA_FRONT_FRONT_H
#define STOA_FRONT_FRONT_H

#include "front/api.h"

struct front_options {
    const char *host;
    uint16_t port;                      /* 0: any that is free */
    struct api_model model;             /* fingerprint, context and n_vocab are the replica's to say */
    const char *const *replica;         /* words of the replica's command line: supervisor.h */
    const char *numerics, *model_digest;        /* what the front's own model file gives: the replica must have the same */
    const char *api_key_file, *metrics_key, *cors_origin;       /* NULL: none */
    uint32_t max_queue;                 /* answers in work and waiting; beyond it requests are 429 */
    int keep_alive_s, drain_s;          /* keep_alive_s 0: no comments in streams */
    int n_workers;
};

/* Serves until a signal or a first start that fails; no process of it is left then.  The exit code, or a negative error when
 * nothing has been started.  Call it before the process has threads, and end the process after it: signals that would end it stay
 * blocked, so that one more of them does not take the place of the exit code. */
int front_run(const struct front_options *options);

#endif
