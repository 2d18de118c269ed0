/* cores.h: the cores that this process may use, and those that the threads of a rank keep to.
 *
 * A rank's threads keep to a set of cores together, not to one core each: when a neighbour takes a core, the system moves the
 * thread that stood there to one where others wait for it.  Two threads of a decode beside compilers on two cores: 18.9 tokens/s
 * against 14.8 tied to a core each; beside a loop on one of the cores 11.8 against 10.0. */
#ifndef STOA_BASE_CORES_H
#define STOA_BASE_CORES_H

#include <sched.h>
#include <stdbool.h>

struct core {
    int cpu;                    /* the first of its hardware threads that may be used, as the system numbers them */
    int node;                   /* of memory (NUMA) */
};
struct cores {
    int n;
    struct core core[CPU_SETSIZE];      /* those of a node one after the other */
    int node_of[CPU_SETSIZE];           /* of each CPU that may be used, all hardware threads of a core among them */
};

/* The cores that these CPUs are hardware threads of, each once.  Built without hwloc, or where it knows none of them, every CPU counts as a
 * core, all in one node. */
void cores_of(struct cores *out, const cpu_set_t *cpus);
/* Those of the CPUs that this process may use, as it was when this was called first, so that a thread which was pinned since does not count
 * for less. */
const struct cores *cores_allowed(void);

/* The cores for n_threads threads of the index-th of n_sharing ranks that may all use these: at least one for each thread, none
 * that another of the ranks gets, in one node where all ranks' threads fit so.  A rank that is alone gets the node of `cpu`, where it
 * runs now, or with -1 the first that has room.  False when there are not cores enough: then nobody is pinned. */
bool cores_choose(cpu_set_t *out, const struct cores *cores, int n_threads, int index, int n_sharing, int cpu);

#endif
