#include "format/map_file.h"

#include "base/base.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int code_of(int system_error)
{
    switch (system_error) {
    case ENOMEM: return ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EINTR: return ERR_FAILED;
    default: return ERR_BAD_FILE;
    }
}

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int map(struct map_file *map, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set(code_of(errno), "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return error_set(ERR_BAD_FILE, "%s: is a directory, wanted a model file", path);
    if (!S_ISREG(st.st_mode))
        return error_set(ERR_BAD_FILE, "%s: is not a regular file", path);
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return error_set(ERR_BAD_FILE, "%s: %jd bytes are too many for this machine", path, (intmax_t)st.st_size);
    *map = (struct map_file){ .n_bytes = (size_t)st.st_size, .written_ns = nanoseconds(st.st_mtim), .changed_ns = nanoseconds(st.st_ctim) };
    if (!map->n_bytes)          /* mmap() takes no empty range */
        return 0;
    void *bytes = mmap(NULL, map->n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return error_set(code_of(errno), "%s: cannot map %zu bytes: %s", path, map->n_bytes, strerror(errno));
    map->bytes = bytes;
    return 0;
}

int map_file_open(struct map_file *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);     /* else a FIFO waits for a writer */
    if (fd < 0)
        return error_set(code_of(errno), "%s: %s", path, strerror(errno));
    int err = map(out, fd, path);
    close(fd);                  /* the mapping stays */
    return err;
}

void map_file_close(struct map_file *map)
{
    if (map->bytes)
        munmap((void *)map->bytes, map->n_bytes);
    *map = (struct map_file){ 0 };
}

void map_file_drop(const struct map_file *map, size_t from, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = ROUND_UP(from, page), end = MIN(from + n_bytes, map->n_bytes) / page * page;
    if (first < end)
        madvise((void *)(map->bytes + first), end - first, MADV_DONTNEED);
}
