/* float_mode.h: the numeric environment of a thread that computes. */
#ifndef STOA_BASE_FLOAT_MODE_H
#define STOA_BASE_FLOAT_MODE_H

/* Round to nearest even, no flushing of subnormals: call at the start of every compute thread. */
void cpu_float_mode_set(void);
/* 0, or ERR_FAILED when somebody (a library built with -ffast-math) changed this thread's mode. */
int cpu_float_mode_check(void);

#endif
