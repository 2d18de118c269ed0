/* merge.h: the loop that both kinds of BPE share: of all neighbours that may be joined, join the best pair, the leftmost
 * of equals, until none may.  A heap of candidates over a linked list: n log n in the length of the piece.
 *
 * The caller reserves, fills symbols[0..n) from left to right (n_bytes and id), runs, and then walks the list from
 * symbol 0 (which is never joined away) along `next`. */
#ifndef STOA_TEXT_MERGE_H
#define STOA_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_NONE UINT32_MAX           /* no neighbour on this side */

struct symbol {
    uint32_t at, n_bytes;               /* its bytes in the caller's text; 0 bytes: joined to its left neighbour */
    int32_t id;
    uint32_t previous, next;
};

struct candidate {
    uint64_t order;                     /* rank << 32 | index of the left symbol: the least goes first */
    uint32_t n_bytes;                   /* of both symbols; when it is not so any more, the candidate is stale */
    int32_t id;
};

struct merger {
    struct symbol *symbols;             /* {0} is an empty merger, ready for use */
    struct candidate *heap;
    size_t capacity, n_heap;
    /* May these two be joined?  Then their rank (less is better) and the id of the pair. */
    bool (*may_join)(const void *vocabulary, const struct symbol *left, const struct symbol *right,
                     uint32_t *rank, int32_t *id);
    const void *vocabulary;
};

/* Room for n symbols (n <= INT32_MAX); ERR_NO_MEMORY. */
int merger_reserve(struct merger *m, size_t n);
void merger_run(struct merger *m, size_t n);
void merger_release(struct merger *m);

#endif
