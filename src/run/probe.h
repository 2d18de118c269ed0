/* probe.h: what the threads of a rank can reach on this machine together: the roofs under which a program runs. */
#ifndef STOA_RUN_PROBE_H
#define STOA_RUN_PROBE_H

#include "base/threads.h"
#include "kernel/kernel.h"

#include <stddef.h>

struct peaks {
    double read_bytes_s;            /* from memory, or from the cache that buffer_bytes fit into */
    double int8_ops_s, f32_ops_s;   /* of the instructions that the kernels use */
    size_t buffer_bytes;
};

struct probe;
/* A buffer of up to n_bytes, less where memory is short, which each thread has touched its part of.  ERR_NO_MEMORY. */
int probe_open(struct probe **out, struct pool *pool, const struct kernels *kernels, size_t n_bytes);
void probe_close(struct probe *probe);

/* Measures one of them for a fifth of a second; the highest that was ever seen stays in *best. */
enum probe_what { PROBE_READ, PROBE_INT8, PROBE_F32, N_PROBES };
void probe_run(struct probe *probe, enum probe_what what, struct peaks *best);

#endif
