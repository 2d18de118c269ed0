/* text_job.c: /tokenize and /detokenize: a worker's work, since a text may be long. */
#include "front/front_impl.h"

#include "base/discard.h"

#include <stdlib.h>

struct text_job {
    struct worker_job job;
    struct front *front;
    struct http_exchange *x;            /* NULL: the client is gone */
    text_work_fn *work;
    char *body;
    size_t n_body;
    struct buffer out, odd;
    struct api_error error;
    bool is_bad;
};

static void work_on(struct worker_job *job)
{
    struct text_job *t = (struct text_job *)job;
    t->is_bad = t->work(&t->out, &t->odd, &t->front->model, t->body ? t->body : "", t->n_body, &t->error) < 0;
    discard_now(t->body, t->n_body);
    t->body = NULL;
}

static void close_job(struct text_job *t)
{
    http_give_back(t->front->http, t->body, t->n_body);
    http_give_back(t->front->http, t->out.bytes, t->out.size);
    buffer_release(&t->odd);
    free(t);
}

static void is_done(struct worker_job *job)
{
    struct text_job *t = (struct text_job *)job;
    names_tell(&t->front->odd, t->odd.bytes, t->odd.size);
    if (t->x && t->is_bad)
        front_answer_error(t->x, &t->error);
    else if (t->x)
        http_answer_buffer(t->x, 200, "application/json", &t->out);
    close_job(t);
}

static void is_unwanted(void *user)
{
    struct text_job *t = user;
    if (workers_take_back(t->front->workers, &t->job))
        close_job(t);
    else
        t->x = NULL;
}

void text_job_begin(struct front *f, struct http_exchange *x, text_work_fn *work)
{
    struct text_job *t = f->is_known ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        front_unavailable(x, f->is_known ? "out of memory for the request" : supervisor_says(f->supervisor));
        return;
    }
    *t = (struct text_job){ .job = { .work = work_on, .done = is_done }, .front = f, .x = x, .work = work };
    t->body = http_take_body(x, &t->n_body);
    http_on_gone(x, is_unwanted, t);
    workers_add(f->workers, &t->job, t->n_body);
}
