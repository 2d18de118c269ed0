/* test_queue.c: who of those that wait is next, and what is remembered of clients. */
#include "engine/engine_impl.h"
#include "tests/check.h"

static void test_aged(void)
{
    struct queue q = { 0 };
    struct sequence s[3] = { 0 };
    check_begin("who has waited for long is next, whatever its client had and its priority is");
    for (uint32_t i = 0; i < 3; i++) {
        s[i].client = queue_client(&q, i == 2);
        s[i].arrival = i;
        s[i].since_step = 10 * i;
        queue_add(&q, &s[i]);
    }
    s[0].client->served = 1000;
    s[0].request.priority = 9;
    check(queue_next(&q, 20) == &s[2]);
    check(queue_next(&q, QUEUE_AGED - 1) == &s[2]);
    check(queue_next(&q, QUEUE_AGED) == &s[0]);
    s[1].n_preemptions = 1;
    check(queue_next(&q, QUEUE_AGED) == &s[1]);
    queue_admit(&q, &s[1]);
    check(queue_next(&q, QUEUE_AGED) == &s[0]);
    queue_admit(&q, &s[0]);
    check_int(q.served, 1000);
    queue_admit(&q, &s[2]);
    check(!queue_next(&q, QUEUE_AGED));
    for (uint32_t i = 0; i < 3; i++)
        queue_leave_client(&q, s[i].client);
    check_int(q.n_remembered, 0);
    check(!q.clients);
    queue_release(&q);
}

static void test_clients(void)
{
    struct queue q = { 0 };
    struct sequence s = { 0 };
    check_begin("a client saves nothing up, and is not remembered for ever");
    struct client *a = queue_client(&q, 1);
    s.client = a;
    queue_add(&q, &s);                          /* somebody waits */
    a->served = 500;
    q.served = 400;
    check_int(queue_client(&q, 2)->served, 400);
    for (uint64_t id = 10; id < 5000; id++) {
        struct client *c = queue_client(&q, id);
        c->served += 10;
        queue_leave_client(&q, c);
        check(q.n_remembered < 1100);
    }
    check_int(queue_client(&q, 1)->served, 500);
    queue_remove(&q, &s);
    queue_leave_client(&q, a);
    queue_leave_client(&q, a);
    queue_leave_client(&q, queue_client(&q, 2));
    q.clients->n_sequences = 0;
    queue_release(&q);
}

int main(void)
{
    test_aged();
    test_clients();
    return check_done();
}
