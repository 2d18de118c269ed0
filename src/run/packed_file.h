/* packed_file.h: a rank's packed weights in a file, so that the next start maps them and packs nothing.
 *
 *   FOLDER/KEY.packed      head, then hashes of the chunks, then from a whole page on the bytes as they stand in memory
 *
 * The name tells which bytes these are (key); the head tells which state of the model file they were made from (stamp).  Every byte
 * of the file is under a hash and all are checked when it is opened, by all threads: a damaged file is noticed before anything is
 * computed from it.  Against mix-ups and bad disks, not against forgery: that is why a file is believed only when it belongs to
 * this user or to root and nobody else may write it.
 *
 * Writing is safe with any number of processes at once: the one that holds the lock on FOLDER/KEY.new writes that file and renames
 * it; others leave it to that one.  What a dead process left is taken over.  Nothing is flushed to the disk: what a power failure
 * leaves is a damaged file.
 *
 * The folder's path alone decides who shares: ranks and runs that are given the same one map the same file, and where they are on one
 * machine, the same pages of memory.  In another folder the same weights are packed and written once more. */
#ifndef STOA_RUN_PACKED_FILE_H
#define STOA_RUN_PACKED_FILE_H

#include "base/threads.h"

#include <stddef.h>
#include <stdint.h>

struct packed_key {
    uint64_t word[2];           /* of what the bytes depend on: weights, slices, order, layout of panels */
    uint64_t stamp;             /* of the model file, as model_file_stamp() gives it */
};

struct packed_file {
    const unsigned char *bytes; /* mapped read-only and shared, at a whole page; n_bytes of them */
    size_t n_bytes;
    void *map;
    size_t map_bytes;
};

/* 0: mapped and whole.  1: there is no such file.  Else the file cannot be used, and error_text() says why: ERR_BAD_FILE (damaged,
 * stale, not to be trusted, of another version), ERR_NO_MEMORY. */
int packed_file_open(struct packed_file *out, const char *folder, const struct packed_key *key, size_t n_bytes, struct pool *pool);
void packed_file_close(struct packed_file *file);       /* {0} is fine */
/* The folder is made if it is missing; the file is its owner's alone.  0 also when another process is writing it just now.
 * ERR_FAILED: no such path, no right, no room: then nothing is left behind; or FOLDER/KEY.new cannot be locked, or is not to be
 * trusted: then it stays as it is. */
int packed_file_write(const char *folder, const struct packed_key *key, const void *bytes, size_t n_bytes, struct pool *pool);

#endif
