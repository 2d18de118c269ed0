/* replica_outbox.h: the tokens of one step, on their way to the connections that they are for.
 *
 * It keeps its memory from step to step, so that none is taken once it has had its largest step. */
#ifndef STOA_ENGINE_REPLICA_OUTBOX_H
#define STOA_ENGINE_REPLICA_OUTBOX_H

#include "engine/engine.h"
#include "wire/server.h"

struct outbox {
    struct outgoing {
        uint64_t connection;            /* 0: it has been sent */
        size_t first_top;
        Stoa__Wire__Token token;
    } *token;
    Stoa__Wire__Top *top;
    size_t n_tokens, n_tops, token_room, top_room;
    Stoa__Wire__Token **token_list;     /* [token_room] */
    Stoa__Wire__Top **top_list;         /* [top_room] */
    bool failed;                        /* memory ran out: some tokens are lost, and nothing more is taken */
};

void outbox_add(struct outbox *outbox, uint64_t connection, uint64_t request, const struct token_event *event);
/* One Tokens for each connection; who is gone gets nothing.  ERR_NO_MEMORY when tokens have been lost. */
int outbox_send(struct outbox *outbox, struct wire_server *server);
void outbox_release(struct outbox *outbox);

#endif
