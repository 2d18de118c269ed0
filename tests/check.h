/* check.h: the few words a test needs.  A test program calls these and returns check_done() from main; a check that
 * fails prints its place and its values and the program goes on, so that one run shows every failure. */
#ifndef STOA_TESTS_CHECK_H
#define STOA_TESTS_CHECK_H

#include "base/base.h"

/* Counts and names one test: everything checked until the next check_begin() belongs to it. */
void check_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Marks the current test as skipped, with the reason.  Under CI=true that is a failure. */
void check_skip(const char *reason);

#define check(condition) check_true_at(__FILE__, __LINE__, #condition, (condition))
#define check_int(got, want) check_int_at(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define check_text(got, want) check_text_at(__FILE__, __LINE__, #got, got, want)
#define check_bytes(name, got, want, n_bytes) check_bytes_at(__FILE__, __LINE__, name, got, want, n_bytes)

bool check_true_at(const char *file, int line, const char *what, bool ok);
bool check_int_at(const char *file, int line, const char *what, long long got, long long want);
bool check_text_at(const char *file, int line, const char *what, const char *got, const char *want);
bool check_bytes_at(const char *file, int line, const char *what, const void *got, const void *want, size_t n_bytes);

/* Prints "N passed, N failed, N skipped" as the last line; 0 when nothing failed. */
int check_done(void);

#endif
