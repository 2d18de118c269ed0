/* error.h: how a function that can fail says so.
 *
 * Such a function returns 0 or more when it worked, and one of the negative codes below when it did not; before it
 * returns the code it leaves one line of text for people with error_set().  The line belongs to the calling thread
 * and stays until that thread's next error.  Library code never prints it and never exits: only main() does. */
#ifndef STOA_BASE_ERROR_H
#define STOA_BASE_ERROR_H

enum error_code {
    ERR_FAILED = -1,        /* something went wrong at run time                                  (exit code 1) */
    ERR_USAGE = -2,         /* the caller asked for something that cannot be: a flag, a layout   (exit code 2) */
    ERR_BAD_FILE = -3,      /* an input file is damaged, or of a kind that Stoa does not read    (exit code 3) */
    ERR_NO_MEMORY = -4,     /* memory, or a fixed budget of it, is used up                       (exit code 1) */
    ERR_FULL = -5,          /* no room just now; nothing has changed, try again later            (exit code 1) */
    ERR_PEER = -6,          /* another rank or the other end of a link failed                    (exit code 1) */
};

/* Stores the line and returns `code`, so that `return error_set(ERR_BAD_FILE, "...")` reads as one thought. */
int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "prefix: " before this thread's line and returns `code` unchanged. */
int error_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* This thread's last line; never NULL. */
const char *error_text(void);
/* The exit code of an error: 1, 2 or 3; 0 for codes that are no error. */
int error_exit_code(int code);

#endif
