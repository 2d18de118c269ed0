#include "engine/replica_outbox.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>

/* Room for one more element in an array and in the list of pointers to its elements. */
static bool make_room(void **array, void **list, size_t n, size_t *room, size_t element)
{
    if (n < *room)
        return true;
    size_t more = MAX((size_t)64, 2 * *room);
    void *grown = realloc(*array, more * element), *grown_list = grown ? realloc(*list, more * sizeof(void *)) : NULL;
    *array = grown ? grown : *array;
    *list = grown_list ? grown_list : *list;
    *room = grown_list ? more : *room;
    return grown_list;
}

static void add_top(struct outbox *o, const struct token_logprob *from)
{
    if (!make_room((void **)&o->top, (void **)&o->top_list, o->n_tops, &o->top_room, sizeof *o->top)) {
        o->failed = true;
        return;
    }
    Stoa__Wire__Top *top = &o->top[o->n_tops++];
    *top = (Stoa__Wire__Top)STOA__WIRE__TOP__INIT;
    top->id = (uint32_t)from->id;
    top->logprob = from->logprob;
}

void outbox_add(struct outbox *o, uint64_t connection, uint64_t request, const struct token_event *event)
{
    size_t first_top = o->n_tops;
    for (uint32_t i = 0; i < event->n_top && !o->failed; i++)
        add_top(o, &event->top[i]);
    if (o->failed || !make_room((void **)&o->token, (void **)&o->token_list, o->n_tokens, &o->token_room, sizeof *o->token)) {
        o->failed = true;
        return;
    }
    struct outgoing *out = &o->token[o->n_tokens++];
    *out = (struct outgoing){ .connection = connection, .first_top = first_top, .token = STOA__WIRE__TOKEN__INIT };
    out->token.request = request;
    out->token.index = event->index;
    out->token.id = (uint32_t)event->id;
    out->token.logprob = event->logprob;
    out->token.n_top = event->n_top;
    out->token.queue_us = (uint32_t)MIN(event->queue_s * 1e6, UINT32_MAX);
    out->token.prefill_us = (uint32_t)MIN(event->prefill_s * 1e6, UINT32_MAX);
}

/* All that is for the connection of the first token that has not been sent, which is token `first`. */
static void send_to_one(struct outbox *o, struct wire_server *server, size_t first)
{
    uint64_t connection = o->token[first].connection;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    Stoa__Wire__Tokens tokens = STOA__WIRE__TOKENS__INIT;
    for (size_t i = first; i < o->n_tokens; i++)
        if (o->token[i].connection == connection) {
            o->token_list[tokens.n_token++] = &o->token[i].token;
            o->token[i].connection = 0;
        }
    tokens.token = o->token_list;
    frame.body_case = STOA__WIRE__FRAME__BODY_TOKENS;
    frame.tokens = &tokens;
    wire_server_send(server, connection, &frame);
}

int outbox_send(struct outbox *o, struct wire_server *server)
{
    for (size_t i = 0; i < o->n_tops; i++)
        o->top_list[i] = &o->top[i];
    for (size_t i = 0; i < o->n_tokens; i++)
        o->token[i].token.top = o->top_list ? o->top_list + o->token[i].first_top : NULL;
    for (size_t i = 0; i < o->n_tokens; i++)
        if (o->token[i].connection)
            send_to_one(o, server, i);
    o->n_tokens = o->n_tops = 0;
    return o->failed ? error_set(ERR_NO_MEMORY, "no memory for a step's tokens") : 0;
}

void outbox_release(struct outbox *o)
{
    free(o->token);
    free(o->token_list);
    free(o->top);
    free(o->top_list);
    *o = (struct outbox){ 0 };
}
