#include "engine/queue.h"

#include "base/base.h"
#include "engine/engine_impl.h"

#include <stdlib.h>

/* ---- clients ---- */
/* What clients have had is remembered while others wait, and not of too many. */
#define MOST_CLIENTS 1024

static void forget_clients(struct queue *q)
{
    bool all = !q->n || q->n_remembered > MOST_CLIENTS;
    for (struct client **link = &q->clients; *link;) {
        struct client *c = *link;
        if (c->n_sequences || (!all && c->served > q->served)) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        q->n_remembered--;
        free(c);
    }
}

void queue_release(struct queue *q)
{
    forget_clients(q);
    *q = (struct queue){ 0 };
}

struct client *queue_client(struct queue *q, uint64_t id)
{
    struct client *c = q->clients;
    while (c && c->id != id)
        c = c->next;
    if (!c) {
        if (!(c = calloc(1, sizeof *c)))
            return NULL;
        *c = (struct client){ .next = q->clients, .id = id, .number = q->n_clients++ };
        q->clients = c;
        q->n_remembered++;
    }
    if (!c->n_sequences++)
        c->served = MAX(c->served, q->served);
    return c;
}

void queue_leave_client(struct queue *q, struct client *client)
{
    assert(client->n_sequences > 0);
    if (!--client->n_sequences)
        forget_clients(q);
}

/* ---- sequences ---- */
void queue_add(struct queue *q, struct sequence *s)
{
    struct sequence **end = &q->first;
    while (*end)
        end = &(*end)->next;
    *end = s;
    s->next = NULL;
    q->n++;
}

void queue_remove(struct queue *q, struct sequence *s)
{
    struct sequence **link = &q->first;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    q->n--;
}

static bool comes_before(const struct sequence *a, const struct sequence *b, uint64_t step)
{
    bool a_was_in = a->n_preemptions > 0, b_was_in = b->n_preemptions > 0;
    if (a_was_in != b_was_in)
        return a_was_in;
    bool a_aged = a_was_in || step - a->since_step >= QUEUE_AGED, b_aged = b_was_in || step - b->since_step >= QUEUE_AGED;
    if (a_aged != b_aged)
        return a_aged;
    if (!a_aged && a->client->served != b->client->served)
        return a->client->served < b->client->served;
    if (!a_aged && a->client != b->client)
        return a->client->number < b->client->number;
    if (!a_aged && a->request.priority != b->request.priority)
        return a->request.priority < b->request.priority;
    return a->arrival < b->arrival;
}

struct sequence *queue_next(const struct queue *q, uint64_t step)
{
    struct sequence *best = q->first;
    for (struct sequence *s = best ? best->next : NULL; s; s = s->next)
        if (comes_before(s, best, step))
            best = s;
    return best;
}

void queue_admit(struct queue *q, struct sequence *s)
{
    queue_remove(q, s);
    q->served = MAX(q->served, s->client->served);
}

void queue_check(const struct queue *q)
{
    uint32_t n = 0;
    for (const struct sequence *s = q->first; s; s = s->next, n++)
        assert(n < q->n && s->state == SEQUENCE_WAITING && s->client && s->client->n_sequences);
    assert(n == q->n);
}
