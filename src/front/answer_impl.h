/* answer_impl.h: what the files of an answer share.
 *
 *   answer.c        tokens in: what is kept of them, and where the text ends
 *   answer_text.c   text of tokens, as it may be sent
 *   answer_write.c  bodies and events
 */
#ifndef STOA_FRONT_ANSWER_IMPL_H
#define STOA_FRONT_ANSWER_IMPL_H

#include "front/answer.h"
#include "front/answer_stop.h"

struct top {
    uint32_t id;
    float logprob;
};
struct token_probs {
    float logprob;
    uint32_t n_top;                 /* of answer->request->top_logprobs places in choice->top */
    uint32_t text_offset;           /* characters of the text before it, once its text has been made */
};

#define NO_END UINT64_MAX

/*   RUNNING ──a stop string, or finish──> ENDED ──finish──> FINISHED
 *   RUNNING   more tokens come; text up to `safe` may be sent
 *   ENDED     `reason` is known, and the text ends at `end`
 *   FINISHED  so is what the prefix cache held */
enum choice_state { CHOICE_RUNNING, CHOICE_ENDED, CHOICE_FINISHED };

struct choice {
    enum choice_state state;
    const char *reason;
    uint32_t *ids, n_ids, n_room, cached_tokens;
    struct token_probs *probs;      /* [n_room], with logprobs */
    struct top *top;                /* [n_room][top_logprobs] */

    struct utf8_stream searched;    /* with stop strings: text as it came in */
    struct stop_search search;
    uint64_t safe, end;             /* bytes of generated text; NO_END: all of it */

    struct utf8_stream made;        /* text as it goes out */
    struct buffer text;             /* made and not sent yet */
    uint64_t n_made;                /* bytes of text so far, the echo of a prompt too */
    uint32_t n_characters;
    uint32_t n_texts;               /* tokens whose text has been made ... */
    uint32_t n_shown;               /* ... and those that a client has been told of */
    bool is_begun, is_closed;       /* its first event, its last event has been written */
};

struct answer {
    struct api_request *request;
    const struct api_model *model;
    char *id;
    int64_t created_s;
    struct choice *choices;
    uint32_t n_choices, next;       /* next: whose event comes next */
    struct stop_set stops;
    struct buffer piece;            /* scratch */
    Stoa__Wire__Sampling sampling;
    Stoa__Wire__Bias *bias, **bias_list;
    struct api_error error;         /* status 0: none */
    bool has_begun, stream_is_over;
};

static inline const struct api_prompt *answer_prompt(const struct answer *a, const struct choice *c)
{
    return &a->request->prompts[(uint32_t)(c - a->choices) / a->request->n];
}

/* Makes text of tokens: as much as there is and may be sent, some `most` bytes, and of most_tokens that are not shown yet.  Returns how many
 * bytes of c->text may be sent. */
size_t answer_make_text(struct answer *a, struct choice *c, size_t most, uint32_t most_tokens);
/* After that: all text of a choice that has ended has been made. */
bool answer_text_is_whole(const struct choice *c);
/* How many tokens stand for the text that may be sent. */
uint32_t answer_n_texts(const struct answer *a, const struct choice *c);
/* Takes n_bytes off c->text. */
void answer_drop_text(struct choice *c, size_t n_bytes);

#endif
