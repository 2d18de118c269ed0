#include "base/memory.h"

#include "base/base.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

/* The number of the first line of `path` that `format` reads; UINT64_MAX when there is none. */
static uint64_t read_number(const char *path, const char *format)
{
    char line[256];
    unsigned long long value = UINT64_MAX;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, format, &value) == 1)
            break;
    if (f)
        fclose(f);
    return value;
}

uint64_t memory_available(void)
{
    uint64_t kb = read_number("/proc/meminfo", "MemAvailable: %llu");
    uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "%llu"), used = read_number("/sys/fs/cgroup/memory.current", "%llu");
    uint64_t cached = read_number("/sys/fs/cgroup/memory.stat", "file %llu");       /* counts as used, and gives way */
    uint64_t system = kb == UINT64_MAX ? kb : kb * 1024;
    bool has_group = limit != UINT64_MAX && used != UINT64_MAX && cached != UINT64_MAX;
    uint64_t group = has_group ? limit - MIN(used - MIN(cached, used), limit) : UINT64_MAX;
    return MIN(system, group);
}

uint64_t memory_peak(void)
{
    uint64_t kb = read_number("/proc/self/status", "VmHWM: %llu");
    return kb == UINT64_MAX ? 0 : kb * 1024;
}

void memory_settle(void)
{
    mallopt(M_ARENA_MAX, 1);                /* one heap: what a worker takes the loop's thread gives back */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);   /* else it becomes what has been freed, up to 32 MB */
    memory_fill_caches();
}

void memory_fill_caches(void)
{
    enum { KEPT = 7, FIRST = 24, STEP = 16, LAST = 1032 };
    void *blocks[(LAST - FIRST) / STEP + 1][KEPT];
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        for (size_t k = 0; k < KEPT; k++)
            blocks[i][k] = malloc(FIRST + i * STEP);
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        for (size_t k = 0; k < KEPT; k++)
            free(blocks[i][k]);
}
