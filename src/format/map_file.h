/* map_file.h: a whole file in memory, read-only, as the system pages it in. */
#ifndef STOA_FORMAT_MAP_FILE_H
#define STOA_FORMAT_MAP_FILE_H

#include <stddef.h>
#include <stdint.h>

struct map_file {
    const uint8_t *bytes;       /* page-aligned; NULL when the file is empty */
    size_t n_bytes;
    int64_t written_ns, changed_ns;     /* when its bytes were last written, and when anything of it was: mtime and ctime */
};

/* ERR_BAD_FILE when there is no such file or it is no regular one: a FIFO is refused, not waited for.  A file that shrinks
 * while it is mapped ends the process; keep models where nobody writes. */
int map_file_open(struct map_file *map, const char *path);
void map_file_close(struct map_file *map);
/* Gives the whole pages inside bytes[from, from + n_bytes) back to the system; reading them again brings them back. */
void map_file_drop(const struct map_file *map, size_t from, size_t n_bytes);

#endif
