/* log.h: lines for the operator, on standard error.  Everything that is not the answer goes there. */
#ifndef STOA_BASE_LOG_H
#define STOA_BASE_LOG_H

#include <stdbool.h>

/* "stoa: warning: ...".  Only one rank of a job speaks: the others are silenced with log_silence(). */
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "stoa: ...": what the program is doing, when a person may be waiting for it. */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same from any rank, silenced or not: what only this one can know. */
void log_own(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_silence(bool silent);
/* For a process that others wait for: a line is left out while the reader of standard error does not take it, and how many were is
 * said later. */
void log_never_waits(void);
/* For a process that runs for days: every line begins with the time, UTC, as in "2026-12-01T03:00:07.250Z stoa: ...". */
void log_tells_time(void);

#endif
