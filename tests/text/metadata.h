/* metadata.h: a real model's metadata alone, in memory: a tokenizer needs nothing else, whatever tensors the file has. */
#ifndef STOA_TESTS_METADATA_H
#define STOA_TESTS_METADATA_H

#include "tests/text/tiny_gguf.h"

#include <fcntl.h>
#include <sys/stat.h>

static inline uint64_t metadata_number(const uint8_t **at, size_t n_bytes)
{
    uint64_t value = 0;
    memcpy(&value, *at, n_bytes);       /* GGUF files and these machines are little-endian */
    *at += n_bytes;
    return value;
}

static inline void metadata_skip(const uint8_t **at, uint64_t type)
{
    static const uint8_t bytes_of[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    if (type == 8) {
        uint64_t n = metadata_number(at, 8);
        *at += n;
    } else if (type == 9) {
        uint64_t element = metadata_number(at, 4), n = metadata_number(at, 8);
        for (uint64_t i = 0; i < n; i++)
            metadata_skip(at, element);
    } else {
        *at += bytes_of[type];
    }
}

/* NULL when the file is not there.  It is trusted: real models are checked by their hash. */
static inline struct model_file *metadata_open(const char *path)
{
    struct model_file *file = NULL;
    struct stat stat;
    char name[64];
    int from = open(path, O_RDONLY), to = memfd_create("metadata.gguf", 0);
    if (from < 0 || to < 0 || fstat(from, &stat) < 0)
        return NULL;
    const uint8_t *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, from, 0), *at = bytes + 16;
    if (bytes == MAP_FAILED)
        abort();
    for (uint64_t n = metadata_number(&at, 8); n > 0; n--) {
        metadata_skip(&at, 8);
        metadata_skip(&at, metadata_number(&at, 4));
    }
    struct buffer out = { 0 };
    buffer_add(&out, bytes, (size_t)(at - bytes));
    memset(out.bytes + 8, 0, 8);        /* no tensors */
    while (out.size % 32)
        buffer_add(&out, "", 1);
    snprintf(name, sizeof name, "/proc/self/fd/%d", to);
    if (write(to, out.bytes, out.size) != (ssize_t)out.size || model_file_open(&file, name) < 0)
        abort();
    buffer_release(&out);
    munmap((void *)(uintptr_t)bytes, (size_t)stat.st_size);
    close(from);
    close(to);
    return file;
}

#endif
