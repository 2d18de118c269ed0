#include "base/discard.h"

#include "base/base.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

/* Lies where the memory itself begins; whole pages behind it, up to `end`, are still to be given back. */
struct discarded {
    struct discarded *next;
    char *end;
};

void discard_add(struct discard *discard, void *bytes, size_t n_bytes)
{
    struct discarded *d = bytes;
    if (!bytes || n_bytes <= PIECE_BYTES) {
        free(bytes);
        return;
    }
    d->next = discard->first;
    d->end = (char *)bytes + n_bytes - ((uintptr_t)bytes + n_bytes) % (size_t)sysconf(_SC_PAGESIZE);
    discard->first = d;
}

bool discard_step(struct discard *discard)
{
    struct discarded *d = discard->first;
    if (!d)
        return false;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n_pages = (size_t)(d->end - (char *)(d + 1)) / page;
    size_t n = MIN(n_pages * page, (size_t)PIECE_BYTES);
    d->end -= n;
    if (n && madvise(d->end, n, MADV_DONTNEED) == 0)
        return true;
    discard->first = d->next;
    free(d);
    return discard->first;
}

void discard_now(void *bytes, size_t n_bytes)
{
    struct discard all = { 0 };
    discard_add(&all, bytes, n_bytes);
    while (discard_step(&all))
        ;
}
