/* process.h: what Linux says of a process. */
#ifndef STOA_BASE_PROCESS_H
#define STOA_BASE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* When it was started, in ticks since the machine was: with its number this names a process, as numbers alone are used again.  0: there is
 * no such process.  pid 0 is the caller's own.  *state, unless state is NULL, is the letter of /proc/PID/stat, 0 where there is none. */
uint64_t process_start_time(pid_t pid, char *state);

#endif
