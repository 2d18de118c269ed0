/* queue.h: who is next among the sequences that wait.
 *
 *   1. who was pushed out by others, by arrival: it has had its turn already
 *   2. who has waited for QUEUE_AGED steps, by arrival: so nobody waits for ever, whatever others ask
 *   3. the client that has been served least, counted in tokens that were computed for it
 *   4. within a client the lowest priority, then arrival
 *
 * A client that comes is taken to have been served as much as the one whose sequence was last let in, if it has not been served more:
 * nobody saves up, and nobody gets away from what he had by waiting a moment.  Source: Goyal, Vin, Cheng, "Start-time fair queueing"
 * (1996); Sheng et al., "Fairness in serving large language models" (2024). */
#ifndef STOA_ENGINE_QUEUE_H
#define STOA_ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#define QUEUE_AGED 2000

struct sequence;

struct client {
    struct client *next;
    uint64_t id, number;            /* number: clients that came before have lower ones */
    uint64_t served;                /* tokens */
    uint32_t n_sequences;           /* that wait or run */
};

struct queue {
    struct sequence *first;         /* linked by arrival at this queue */
    uint32_t n;
    struct client *clients;
    uint32_t n_remembered;          /* of them */
    uint64_t served;                /* what the client had been that was let in last */
    uint64_t n_clients, n_arrivals; /* that there ever were */
};

void queue_release(struct queue *q);
/* One more sequence of this client; NULL when there is no memory. */
struct client *queue_client(struct queue *q, uint64_t id);
/* One fewer. */
void queue_leave_client(struct queue *q, struct client *client);
void queue_add(struct queue *q, struct sequence *s);
void queue_remove(struct queue *q, struct sequence *s);
/* The one that is next at this step, or NULL; it stays in the queue. */
struct sequence *queue_next(const struct queue *q, uint64_t step);
/* It is let in: queue_remove(), and its client's share counts from here. */
void queue_admit(struct queue *q, struct sequence *s);
void queue_check(const struct queue *q);

#endif
