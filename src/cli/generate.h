/* generate.h: one answer, streamed: tokens from the engine, whole characters to the caller. */
#ifndef STOA_CLI_GENERATE_H
#define STOA_CLI_GENERATE_H

#include "base/buffer.h"
#include "cli/session.h"

struct generation {
    struct sequence *sequence;      /* NULL at first; kept, so that the next turn computes only what is new */

    /* of the last answer */
    struct buffer *text;            /* the caller's; everything generated, as UTF-8 */
    struct buffer bytes;            /* the same before it was made UTF-8 */
    int32_t *tokens;                /* without the end token; [n_tokens], freed by generation_release() */
    uint32_t n_prompt, n_tokens;
    bool stopped;                   /* by an end token or by the user, else the limit was reached */
    double first_token_s, decode_s; /* from the prompt to the first token; from there to the last */
};

/* Called with each new piece of text, which may be empty; returns false to stop. */
typedef bool generate_piece_fn(void *user, const char *text, size_t n_bytes);

/* Answers the prompt.  n_new is cut to what the context holds. */
int generate(struct session *s, struct generation *g, const int32_t *prompt, size_t n_prompt, generate_piece_fn *piece, void *user);
void generation_release(struct session *s, struct generation *g);

#endif
