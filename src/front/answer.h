/* answer.h: the answer to one request: tokens in, text out, whole or as a stream of events.
 *
 * It keeps ids and logprobs; text is made of them when somebody takes it, so a slow client costs 4 bytes a token.  Stop strings are
 * matched here, on generated text as it will be sent: bytes that may begin a stop or a character are held back until that is known, and
 * flushed at the end.  Tokens past a match are dropped from text, logprobs and usage.
 *
 * One thread, the loop's. */
#ifndef STOA_FRONT_ANSWER_H
#define STOA_FRONT_ANSWER_H

#include "front/api.h"

struct answer;

/* Takes the request over, also when it fails.  id: of "chatcmpl-ID" or "cmpl-ID"; copied.  The model is borrowed.  An answer of no tokens
 * (max_tokens 0) is over at once and needs no replica. */
int answer_open(struct answer **out, struct api_request *request, const struct api_model *model, const char *id, int64_t created_s);
void answer_close(struct answer *answer);
const struct api_request *answer_request(const struct answer *answer);

uint32_t answer_n_choices(const struct answer *answer);
/* What the replica is asked for this choice, with the tokens it has so far.  Arrays are borrowed from the answer and valid until its
 * next call; `request`, client and queue_ms are left to the caller. */
void answer_submit(struct answer *answer, uint32_t choice, Stoa__Wire__Submit *out);
/* Whether a byte of it has been given to answer_stream()'s caller: then it can not begin anew. */
bool answer_has_begun(const struct answer *answer);

/* True when the choice needs no more tokens, since a stop string was found: the caller cancels it.  A token whose index is not
 * the next one is dropped. */
bool answer_take_token(struct answer *answer, uint32_t choice, const Stoa__Wire__Token *token);
/* The replica's last word on a choice; also what a caller says of a choice with a finish reason whose replica is gone.  What came after
 * a stop string is of no interest; else REASON_FAILED and the like end the whole answer with an error: see answer_error(). */
void answer_take_finish(struct answer *answer, uint32_t choice, const Stoa__Wire__Finish *finish);
/* Ends all of it with this error: in a stream an event with the error, without a finish reason and without [DONE].  When all
 * choices have a finish reason it is merely over. */
void answer_fail(struct answer *answer, const struct api_error *error);

bool answer_is_over(const struct answer *answer);           /* nothing more will come in */
const struct api_error *answer_error(const struct answer *answer);      /* NULL: none */

/* Not streaming, after it is over without an error: the whole body. */
void answer_whole(struct answer *answer, struct buffer *out);
/* Streaming: appends the events that can be made now, some `most` bytes of them; true when there may be more.  Choices take turns.  Tokens
 * of a choice that have waited together are one event, of a few at most where each is told with log-probabilities or its id. */
bool answer_stream(struct answer *answer, struct buffer *out, size_t most);
/* Everything has been appended, [DONE] or the error too; the caller may end what still runs. */
bool answer_stream_is_over(const struct answer *answer);

struct answer_usage {
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
};
struct answer_usage answer_usage(const struct answer *answer);
/* "stop", "length", or NULL while it is not known: then it needs more tokens. */
const char *answer_finish_reason(const struct answer *answer, uint32_t choice);

#endif
