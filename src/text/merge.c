#include "text/merge.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

int merger_reserve(struct merger *m, size_t n)
{
    if (n <= m->capacity)
        return 0;
    size_t capacity = MAX(n, MAX((size_t)256, 2 * m->capacity));
    free(m->symbols);
    free(m->heap);
    m->symbols = malloc(capacity * sizeof *m->symbols);
    m->heap = malloc(3 * capacity * sizeof *m->heap);       /* n - 1 at first, and two for each of n - 1 joins */
    m->capacity = m->symbols && m->heap ? capacity : 0;
    return m->capacity ? 0 : error_set(ERR_NO_MEMORY, "no memory to encode %zu symbols", n);
}

void merger_release(struct merger *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (struct merger){ 0 };
}

static void heap_push(struct merger *m, struct candidate candidate)
{
    size_t i = m->n_heap++;
    for (; i > 0 && m->heap[(i - 1) / 2].order > candidate.order; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = candidate;
}

static struct candidate heap_pop(struct merger *m)
{
    struct candidate best = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        child += child + 1 < m->n_heap && m->heap[child + 1].order < m->heap[child].order;
        if (m->heap[child].order >= last.order)
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return best;
}

static void consider(struct merger *m, uint32_t left)
{
    uint32_t rank, right = left == MERGE_NONE ? MERGE_NONE : m->symbols[left].next;
    int32_t id;
    if (right == MERGE_NONE)
        return;
    const struct symbol *l = &m->symbols[left], *r = &m->symbols[right];
    if (m->may_join(m->vocabulary, l, r, &rank, &id))
        heap_push(m, (struct candidate){ (uint64_t)rank << 32 | left, l->n_bytes + r->n_bytes, id });
}

/* A symbol only grows, and to the right: so the same bytes at the same left symbol are the same two symbols. */
static void join(struct merger *m, struct candidate candidate)
{
    uint32_t left = (uint32_t)candidate.order;
    struct symbol *l = &m->symbols[left];
    if (!l->n_bytes || l->next == MERGE_NONE)
        return;
    struct symbol *r = &m->symbols[l->next];
    if (l->n_bytes + r->n_bytes != candidate.n_bytes)
        return;
    l->id = candidate.id;
    l->n_bytes = candidate.n_bytes;
    l->next = r->next;
    r->n_bytes = 0;
    if (l->next != MERGE_NONE)
        m->symbols[l->next].previous = left;
    consider(m, l->previous);
    consider(m, left);
}

void merger_run(struct merger *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        m->symbols[i].previous = i ? (uint32_t)i - 1 : MERGE_NONE;
        m->symbols[i].next = i + 1 < n ? (uint32_t)i + 1 : MERGE_NONE;
    }
    m->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        consider(m, (uint32_t)i);
    while (m->n_heap)
        join(m, heap_pop(m));
}
