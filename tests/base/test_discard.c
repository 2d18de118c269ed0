/* test_discard.c: memory goes back to the system a MB at a time, and all of it. */
#include "base/base.h"
#include "base/discard.h"
#include "tests/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)

/* Of the whole pages inside. */
static size_t resident_bytes(const char *bytes, size_t n_bytes)
{
    static unsigned char in[1 << 16];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    const char *first = bytes + page - (uintptr_t)bytes % page;
    size_t n_pages = (size_t)(bytes + n_bytes - first) / page;
    if (!check_int(mincore((void *)(uintptr_t)first, n_pages * page, in), 0))
        return 0;
    for (size_t i = 0; i < n_pages; i++)
        n += in[i] & 1 ? page : 0;
    return n;
}

static char *written(size_t n_bytes)
{
    char *bytes = malloc(n_bytes);
    return memset(bytes, 1, n_bytes);
}

static void test_pieces(void)
{
    static const size_t sizes[] = { MB + 1, 2 * MB, 10 * MB + 12345, 60 * MB };
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        check_begin("%zu bytes", sizes[i]);
        struct discard discard = { 0 };
        char *bytes = written(sizes[i]);
        size_t before = resident_bytes(bytes, sizes[i]);
        int n = 0;
        check(before > sizes[i] - 3 * (size_t)sysconf(_SC_PAGESIZE));
        discard_add(&discard, bytes, sizes[i]);
        for (; before > MB; n++) {              /* the last step frees the rest, so that nobody may look at it */
            check(discard_step(&discard));
            size_t now = resident_bytes(bytes, sizes[i]);
            if (!check(now < before && before - now <= MB))
                break;
            before = now;
        }
        while (discard_step(&discard))
            n++;
        check(n <= (int)(sizes[i] / MB) + 1);
        check(!discard.first && !discard_step(&discard));
    }
}

static void test_many(void)
{
    struct discard discard = { 0 };
    int n = 0;
    check_begin("small ones are gone at once, large ones in turn");
    discard_add(&discard, NULL, 60 * MB);
    discard_add(&discard, malloc(1), 1);
    discard_add(&discard, written(MB), MB);
    check(!discard.first);
    for (int i = 0; i < 3; i++)
        discard_add(&discard, written(3 * MB), 3 * MB);
    while (discard_step(&discard))
        n++;
    check(n >= 9 && n <= 12);
    discard_now(written(5 * MB), 5 * MB);
    discard_now(NULL, 0);
}

int main(void)
{
    test_pieces();
    test_many();
    return check_done();
}
