/* file.h: what read() and write() leave to their callers. */
#ifndef STOA_BASE_FILE_H
#define STOA_BASE_FILE_H

#include <stddef.h>

/* All of the bytes, in as many writes as it takes.  0, or -1 and errno; EIO when nothing more is taken. */
int write_all(int fd, const void *bytes, size_t n_bytes);

#endif
