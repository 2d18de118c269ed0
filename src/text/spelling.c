#include "base/base.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const struct spelling *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, MIN(x->n_bytes, y->n_bytes));
    return order ? order : x->n_bytes != y->n_bytes ? (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes) :
           (x->id > y->id) - (x->id < y->id);
}

void spellings_sort(struct spelling *spellings, size_t n)
{
    qsort(spellings, n, sizeof *spellings, compare);
}

void spellings_narrow(const struct spelling *spellings, size_t *low, size_t *high, size_t depth, unsigned char byte)
{
    for (size_t end = *high; *low < end; ) {
        size_t middle = (*low + end) / 2;
        const struct spelling *s = &spellings[middle];
        if (s->n_bytes <= depth || (unsigned char)s->bytes[depth] < byte)
            *low = middle + 1;
        else
            end = middle;
    }
    for (size_t start = *low; start < *high; ) {
        size_t middle = (start + *high) / 2;
        if ((unsigned char)spellings[middle].bytes[depth] > byte)
            *high = middle;
        else
            start = middle + 1;
    }
}
