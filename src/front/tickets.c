#include "front/tickets.h"

#include <stdlib.h>

void tickets_release(struct tickets *tickets)
{
    free(tickets->list);
    *tickets = (struct tickets){ 0 };
}

static int grow(struct tickets *tickets)
{
    uint32_t n = tickets->n ? 2 * tickets->n : 64;
    struct ticket *more = realloc(tickets->list, n * sizeof *more);
    if (!more)
        return -1;
    for (uint32_t i = n; i-- > tickets->n;) {
        more[i] = (struct ticket){ .next_free = tickets->free };
        tickets->free = i + 1;
    }
    tickets->list = more;
    tickets->n = n;
    return 0;
}

uint64_t tickets_take(struct tickets *tickets, struct request *request, uint32_t choice)
{
    if (!tickets->free && grow(tickets) < 0)
        return 0;
    uint32_t place = tickets->free - 1;
    struct ticket *t = &tickets->list[place];
    tickets->free = t->next_free;
    *t = (struct ticket){ .request = request, .choice = choice, .generation = t->generation + 1 };
    return (uint64_t)t->generation << 32 | place;
}

static struct ticket *find(const struct tickets *tickets, uint64_t number)
{
    uint32_t place = (uint32_t)number;
    struct ticket *t = place < tickets->n ? &tickets->list[place] : NULL;
    return t && t->request && t->generation == number >> 32 ? t : NULL;
}

const struct ticket *tickets_find(const struct tickets *tickets, uint64_t number)
{
    return find(tickets, number);
}

void tickets_return(struct tickets *tickets, uint64_t number)
{
    struct ticket *t = find(tickets, number);
    if (!t)
        return;
    t->request = NULL;
    t->next_free = tickets->free;
    tickets->free = (uint32_t)(t - tickets->list) + 1;
}
