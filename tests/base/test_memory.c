/* test_memory.c: a process that has settled its memory gives long buffers back, however many it has had, and has one heap. */
#include "base/memory.h"
#include "tests/check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_GLIBC_MALLOC 0
#else
#define HAS_GLIBC_MALLOC 1
#endif

static char *volatile block;            /* else compilers leave out what is freed unread */

static void test_long(void)
{
    check_begin("a long buffer lies by itself, also after longer ones were freed");
    for (size_t n = 1 << 24; n >= 1 << 18; n /= 2) {
        size_t before = mallinfo2().hblks;
        block = malloc(n);
        check_int(mallinfo2().hblks, before + 1);
        free(block);
        check_int(mallinfo2().hblks, before);
    }
}

/* The first heap is what ends at the program's break. */
static void *take(void *is_in_heap)
{
    memory_fill_caches();
    block = malloc(100000);
    *(bool *)is_in_heap = (uintptr_t)sbrk(0) - (uintptr_t)block < 1 << 24;
    free(block);
    return NULL;
}

static void test_heap(void)
{
    pthread_t thread;
    bool is_in_heap = false;
    check_begin("what a thread takes lies in the one heap");
    check_int(pthread_create(&thread, NULL, take, &is_in_heap), 0);
    pthread_join(thread, NULL);
    check(is_in_heap);
}

int main(void)
{
    memory_settle();
    if (HAS_GLIBC_MALLOC) {
        test_long();
        test_heap();
    }
    return check_done();
}
