/* tickets.h: from the replica's numbers to the choices of requests.
 *
 * A number is a generation and a place in a table, so that late frames of a choice that is gone find nobody.  One thread, the loop's. */
#ifndef STOA_FRONT_TICKETS_H
#define STOA_FRONT_TICKETS_H

#include <stdint.h>

struct request;

struct ticket {
    struct request *request;            /* NULL: free */
    uint32_t choice;
    uint32_t generation, next_free;     /* the table's */
};

/* All zero: an empty one. */
struct tickets {
    struct ticket *list;
    uint32_t n, free;                   /* the place of a free one + 1, or 0 */
};

void tickets_release(struct tickets *tickets);
/* 0: there is no memory for it. */
uint64_t tickets_take(struct tickets *tickets, struct request *request, uint32_t choice);
/* NULL: nobody's, or not any more. */
const struct ticket *tickets_find(const struct tickets *tickets, uint64_t number);
/* A number that is nobody's changes nothing. */
void tickets_return(struct tickets *tickets, uint64_t number);

#endif
