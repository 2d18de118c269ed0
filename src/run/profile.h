/* profile.h: where the time of a program's steps goes, by kind of work.
 *
 * Times are taken while a step runs, each thread into a place of its own.  What was read and computed follows from shapes, and
 * is added up after the step, when nothing runs. */
#ifndef STOA_RUN_PROFILE_H
#define STOA_RUN_PROFILE_H

#include "base/threads.h"
#include "run/instr.h"

/* Nothing when the program's options ask for none.  ERR_NO_MEMORY. */
int profile_open(struct program *p);
void profile_close(struct program *p);

/* Which kind of work a node of the graph is. */
enum work_kind work_kind_of(const struct node *n);

/* When a chunk begins; and when this thread has done it, before it says so. */
static inline double profile_now(const struct program *p)
{
    return p->profile ? seconds_now() : 0;
}
void profile_add_chunk(struct program *p, struct instr *in, int thread, double begin_s);
/* After a step that began then, by thread 0. */
void profile_add_step(struct program *p, double begin_s);

void profile_sum(const struct program *p, struct work_counters *out);           /* [N_WORK_KINDS] */
void profile_reset(struct program *p);

#endif
