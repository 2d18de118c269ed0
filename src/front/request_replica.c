#include "front/request_impl.h"

#include "base/base.h"
#include "base/error.h"
#include "base/threads.h"

/* Of one turn of the loop, and of what the replica has yet to read: beyond it others, and Cancels, get their turn. */
enum { IDS_A_TURN = 1 << 17, BYTES_WAITING = 1 << 20, AGAIN_MS = 1 };

/* ---- the line ------------------------------------------------------------------------------------------------------------- */
static void join_line(struct request *r)
{
    struct front *f = r->front;
    r->is_in_line = true;
    r->send_before = f->send_last;
    *(f->send_last ? &f->send_last->send_after : &f->send_first) = r;
    f->send_last = r;
}

static void leave_line(struct request *r)
{
    struct front *f = r->front;
    if (!r->is_in_line)
        return;
    *(r->send_before ? &r->send_before->send_after : &f->send_first) = r->send_after;
    *(r->send_after ? &r->send_after->send_before : &f->send_last) = r->send_before;
    r->send_before = r->send_after = NULL;
    r->is_in_line = false;
}

/* ---- what the replica is told --------------------------------------------------------------------------------------------- */
/* The replica's Finish is still to come. */
static void send_cancel(struct request *r, const struct sent_choice *c)
{
    Stoa__Wire__Cancel body = STOA__WIRE__CANCEL__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    body.request = c->number;
    frame.body_case = STOA__WIRE__FRAME__BODY_CANCEL;
    frame.cancel = &body;
    supervisor_send(r->front->supervisor, &frame);      /* a replica that does not hear it is dead, or about to be */
}

static void return_ticket(struct request *r, struct sent_choice *c)
{
    tickets_return(&r->front->tickets, c->number);
    c->number = 0;
}

void request_cancel(struct request *r)
{
    leave_line(r);
    for (uint32_t i = 0; i < r->n_choices; i++) {
        if (r->choices[i].number)
            send_cancel(r, &r->choices[i]);
        return_ticket(r, &r->choices[i]);
    }
}

static int send_choice(struct request *r, uint32_t i, size_t *n_ids)
{
    struct front *f = r->front;
    Stoa__Wire__Submit body = STOA__WIRE__SUBMIT__INIT;
    Stoa__Wire__Frame frame = STOA__WIRE__FRAME__INIT;
    answer_submit(r->answer, i, &body);
    body.request = r->choices[i].number = tickets_take(&f->tickets, r, i);
    body.client = r->fairness;
    frame.body_case = STOA__WIRE__FRAME__BODY_SUBMIT;
    frame.submit = &body;
    *n_ids = body.n_prompt + body.n_so_far;
    return body.request ? supervisor_send(f->supervisor, &frame) : error_set(ERR_NO_MEMORY, "out of memory for the request");
}

/* Returns how many ids it took.  A connection that is just being lost leaves the choice for the next replica. */
static size_t send_next(struct request *r)
{
    uint32_t i = r->n_sent++;
    size_t n_ids = 0;
    if (r->n_sent == r->n_choices)
        leave_line(r);
    int err = answer_finish_reason(r->answer, i) ? 0 : send_choice(r, i, &n_ids);
    if (err == ERR_PEER) {
        return_ticket(r, &r->choices[i]);
    } else if (err < 0) {
        struct api_error error = front_error(503, error_text());
        request_fail(r, &error);
    }
    return n_ids;
}

static void send_some(struct timer *timer)
{
    struct front *f = CONTAINER_OF(timer, struct front, sending);
    size_t n_ids = 0;
    while (f->send_first && n_ids < IDS_A_TURN && supervisor_n_waiting(f->supervisor) < BYTES_WAITING)
        n_ids += send_next(f->send_first);
    if (f->send_first)
        timer_set(f->loop, timer, loop_now_ms(f->loop) + AGAIN_MS);
}

void request_send(struct request *r)
{
    struct front *f = r->front;
    if (!supervisor_is_up(f->supervisor) || r->is_in_line)
        return;
    join_line(r);
    f->sending.due = send_some;
    timer_set(f->loop, &f->sending, loop_now_ms(f->loop));
}

/* ---- a replica comes and goes --------------------------------------------------------------------------------------------- */
/* Those that wait for longest first. */
void requests_replica_up(struct front *f)
{
    struct request *oldest = f->first;
    while (oldest && oldest->next)
        oldest = oldest->next;
    for (struct request *r = oldest; r; r = r->previous)
        if (!r->is_with_worker && !answer_is_over(r->answer))
            request_send(r);
}

/* A choice that has ended lacks only its Finish. */
static void lose_choice(struct request *r, uint32_t i)
{
    Stoa__Wire__Finish finish = STOA__WIRE__FINISH__INIT;
    return_ticket(r, &r->choices[i]);
    finish.reason = STOA__WIRE__REASON__REASON_CANCELLED;
    if (answer_finish_reason(r->answer, i))
        answer_take_finish(r->answer, i, &finish);
}

/* Else it only waits for a replica, and has nothing to do with the death of one that did not even start. */
static bool is_at_replica(const struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++)
        if (r->choices[i].number)
            return true;
    return false;
}

static void replica_died(struct request *r)
{
    bool is_second = ++r->n_deaths > 1;
    struct api_error error = front_error(503, is_second ? "the replica died twice under this request, which is not tried again"
                                                        : "the replica that computed this answer died; what came before is not all of it");
    error.code = "replica_lost";
    for (uint32_t i = 0; i < r->n_choices; i++)
        lose_choice(r, i);
    if (answer_is_over(r->answer))
        request_go_on(r);
    else if (is_second || answer_has_begun(r->answer))
        request_fail(r, &error);
}

void requests_replica_down(struct front *f)
{
    timer_clear(f->loop, &f->sending);
    for (struct request *r = f->first, *next; r; r = next) {
        next = r->next;
        leave_line(r);
        r->n_sent = 0;
        if (!r->is_with_worker && !answer_is_over(r->answer) && is_at_replica(r))
            replica_died(r);
    }
}

/* ---- what the replica says ------------------------------------------------------------------------------------------------ */
static void count_token(struct request *r, struct sent_choice *c, const Stoa__Wire__Token *token)
{
    struct metrics *m = &r->front->metrics;
    double now = seconds_now();
    if (!r->first_s) {
        r->first_s = now;
        r->queue_s = token->queue_us / 1e6;
        r->prefill_s = token->prefill_us / 1e6;
        m->prompt_tokens += answer_usage(r->answer).prompt_tokens;
        metrics_observe(m, HISTOGRAM_FIRST_TOKEN, now - r->arrived_s);
    }
    if (c->last_s > 0)
        metrics_observe(m, HISTOGRAM_BETWEEN_TOKENS, now - c->last_s);
    c->last_s = r->last_s = now;
    m->generation_tokens++;
    r->n_tokens++;
    c->n_tokens++;
}

static void take_token(struct front *f, const Stoa__Wire__Token *token)
{
    const struct ticket *t = tickets_find(&f->tickets, token->request);
    if (!t)
        return;
    struct request *r = t->request;
    struct sent_choice *c = &r->choices[t->choice];
    count_token(r, c, token);
    if (answer_take_token(r->answer, t->choice, token))
        send_cancel(r, c);
    request_go_on(r);
}

void requests_take_tokens(struct front *f, const Stoa__Wire__Tokens *tokens)
{
    for (size_t i = 0; i < tokens->n_token; i++)
        take_token(f, tokens->token[i]);
}

/* The replica has no room, and nothing has been sent: come again. */
static bool may_be_refused(const struct request *r, const Stoa__Wire__Finish *finish)
{
    return finish->reason == STOA__WIRE__REASON__REASON_REFUSED && finish->is_full && !r->has_headers;
}

void requests_take_finish(struct front *f, const Stoa__Wire__Finish *finish)
{
    const struct ticket *t = tickets_find(&f->tickets, finish->request);
    if (!t)
        return;
    struct request *r = t->request;
    uint32_t choice = t->choice;
    return_ticket(r, &r->choices[choice]);
    if (may_be_refused(r, finish)) {
        request_refuse(r, 429, "the queue is full; try again");
        return;
    }
    answer_take_finish(r->answer, choice, finish);
    if (answer_error(r->answer))
        request_cancel(r);
    request_go_on(r);
}
