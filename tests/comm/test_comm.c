/* test_comm.c: every collective against what one process computes.  Started plainly, the program runs itself under mpirun
 * with each of the numbers of ranks below and counts a run as passed when every rank has closed without a failure. */
#include "base/error.h"
#include "comm/comm.h"
#include "comm/transport.h"
#include "comm/tree.h"
#include "tests/check.h"
#include "tests/mpirun.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void sleep_s(double seconds)
{
    nanosleep(&(struct timespec){ (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) }, NULL);
}

static void *alloc(size_t n_bytes)
{
    void *bytes = aligned_alloc(CACHE_LINE, ROUND_UP(MAX(n_bytes, (size_t)1), (size_t)CACHE_LINE));
    if (!bytes)
        abort();
    return bytes;
}

static float part_value(uint32_t part, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + part * 40503u + 99u;
    x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12, x *= 0x297a2d39u, x ^= x >> 15;
    return (float)(1u << x % 21) * ((float)(int32_t)x * 0x1p-31f);
}

/* The binary counter's ladder: equal neighbours are merged at once, what is left at the end. */
static void ladder(struct comm_tree *tree)
{
    uint32_t depth = 0;
    for (uint32_t p = 0; p < MIN(tree->n_parts, (uint32_t)COMM_TREE_MAX_PARTS); p++) {
        uint32_t n = (uint32_t)__builtin_ctz(p + 1);
        depth += 1 - n;
        tree->n_merges[p] = (uint8_t)n;
    }
    if (tree->n_parts > 0)
        tree->n_merges[tree->n_parts - 1] = (uint8_t)(tree->n_merges[tree->n_parts - 1] + depth - 1);
}

/* ---- all-reduce ------------------------------------------------------------------------------------------------------- */
/* Parts of rank r: n_parts[r % 4], until 16 are dealt. */
static const struct { const char *name; uint32_t n_parts[4]; } deals[] = {
    { "a part each",             { 1, 1, 1, 1 } },
    { "1, 3, none, 2",           { 1, 3, 0, 2 } },
    { "none, then one",          { 0, 1, 0, 0 } },
    { "rank 0 has three",        { 3, 0, 0, 0 } },
    { "nobody has any",          { 0, 0, 0, 0 } },
    { "sixteen by fours",        { 4, 4, 4, 4 } },
};
static const size_t lengths[] = { 1, 17, 576, 2000, 20001, 300000 };
enum { MAX_SIZE = 8, PAD = 5 };

static void reduce_once(struct comm *comm, const struct comm_tree *tree, size_t n, bool in_place)
{
    uint32_t first = tree->first[comm_rank(comm)], n_mine = tree->first[comm_rank(comm) + 1] - first;
    size_t stride = n + PAD, n_scratch = comm_all_reduce_scratch(comm, tree, n);
    float *all = alloc(tree->n_parts * n * sizeof *all), *mine = alloc((n_mine + 1) * stride * sizeof *mine);
    float *want = alloc(n * sizeof *want), *out = in_place ? mine : alloc(n * sizeof *out);
    unsigned char *scratch = alloc(n_scratch + CACHE_LINE);
    const float *part[COMM_TREE_MAX_PARTS];

    for (uint32_t p = 0; p < tree->n_parts; p++) {
        part[p] = all + p * n;
        for (size_t i = 0; i < n; i++)
            all[p * n + i] = part_value(p, i);
        if (p >= first && p < first + n_mine)
            memcpy(mine + (p - first) * stride, part[p], n * sizeof *mine);
    }
    tree_sum_f32(want, part, tree->n_merges, tree->n_parts, n);
    memset(scratch + n_scratch, 0x5a, CACHE_LINE);

    check_int(comm_all_reduce(comm, out, mine, stride, n, tree, scratch), 0);
    check_bytes("sum", out, want, n * sizeof *want);
    for (int i = 0; i < CACHE_LINE; i++)
        check(scratch[n_scratch + (size_t)i] == 0x5a);
    for (uint32_t p = in_place ? 1 : 0; p < n_mine; p++)
        check_bytes("own part", mine + p * stride, part[first + p], n * sizeof *mine);
    free(all), free(mine), free(want), free(scratch);
    if (!in_place)
        free(out);
}

static void deal_parts(const struct comm *comm, size_t deal, struct comm_tree *tree, uint32_t *first)
{
    tree->first = first;
    first[0] = 0;
    for (int r = 0; r < comm_size(comm); r++)
        first[r + 1] = MIN(first[r] + deals[deal].n_parts[r % 4], (uint32_t)COMM_TREE_MAX_PARTS);
    tree->n_parts = first[comm_size(comm)];
    ladder(tree);
}

static void test_all_reduce(struct comm *comm, const char *of)
{
    for (size_t d = 0; d < COUNT_OF(deals); d++) {
        struct comm_tree tree = { 0 };
        uint32_t first[MAX_SIZE + 1];
        deal_parts(comm, d, &tree, first);
        check_begin("%s: all_reduce, %s", of, deals[d].name);
        for (size_t l = 0; l < COUNT_OF(lengths); l++) {
            reduce_once(comm, &tree, lengths[l], false);
            reduce_once(comm, &tree, lengths[l], true);
        }
    }
}

/* ---- spans of one's own ----------------------------------------------------------------------------------------------- */
/* Rank r owns weight[r % 4] of the sum of all weights. */
static const struct { const char *name; uint32_t weight[4]; } divisions[] = {
    { "equal spans",             { 1, 1, 1, 1 } },
    { "1, 3, none, 2",           { 1, 3, 0, 2 } },
    { "rank 1's span is all",    { 0, 1, 0, 0 } },
    { "an odd first span",       { 5, 2, 2, 2 } },
};

/* The last rank takes what is left, so that first[size] is n. */
static void divide(const struct comm *comm, size_t division, size_t n, size_t *first)
{
    size_t size = (size_t)comm_size(comm), total = 0, sum = 0;
    for (size_t r = 0; r < size; r++)
        total += divisions[division].weight[r % 4];
    for (size_t r = 0; r < size; r++) {
        first[r] = total > 0 ? n * sum / total : 0;
        sum += divisions[division].weight[r % 4];
    }
    first[size] = n;
}

static void scatter_once(struct comm *comm, const struct comm_tree *tree, size_t division, size_t n, bool in_place)
{
    uint32_t first_part = tree->first[comm_rank(comm)], n_mine = tree->first[comm_rank(comm) + 1] - first_part;
    size_t stride = n + PAD, n_scratch = comm_reduce_scatter_scratch(comm, tree, n), first[MAX_SIZE + 1], begin, end;
    float *all = alloc(tree->n_parts * n * sizeof *all), *mine = alloc((n_mine + 1) * stride * sizeof *mine);
    float *want = alloc(stride * sizeof *want), *apart = alloc(stride * sizeof *apart), *out;
    unsigned char *scratch = alloc(n_scratch + CACHE_LINE);
    const float *part[COMM_TREE_MAX_PARTS];

    divide(comm, division, n, first);
    begin = first[comm_rank(comm)], end = first[comm_rank(comm) + 1];
    memset(mine, 0, (n_mine + 1) * stride * sizeof *mine);
    for (uint32_t p = 0; p < tree->n_parts; p++) {
        part[p] = all + p * n;
        for (size_t i = 0; i < n; i++)
            all[p * n + i] = part_value(p, i);
        if (p >= first_part && p < first_part + n_mine)
            memcpy(mine + (p - first_part) * stride, part[p], n * sizeof *mine);
    }
    tree_sum_f32(want, part, tree->n_merges, tree->n_parts, n);
    out = in_place && n_mine > 0 ? mine + (n_mine - 1) * stride + begin : apart;
    if (out == apart)
        apart[end - begin] = want[end] = 42.0f;
    else
        memcpy(all + (first_part + n_mine - 1) * n + begin, want + begin, (end - begin) * sizeof *want);
    memset(scratch + n_scratch, 0x5a, CACHE_LINE);

    check_int(comm_reduce_scatter(comm, begin < end ? out : NULL, mine, stride, first, tree, scratch), 0);
    check_bytes("sum of my span", out, want + begin, (end - begin + (out == apart)) * sizeof *want);
    for (int i = 0; i < CACHE_LINE; i++)
        check(scratch[n_scratch + (size_t)i] == 0x5a);
    for (uint32_t p = 0; p < n_mine; p++)
        check_bytes("own part, but for a span of the sum", mine + p * stride, part[first_part + p], n * sizeof *mine);
    free(all), free(mine), free(want), free(apart), free(scratch);
}

static void test_reduce_scatter(struct comm *comm)
{
    static const size_t few[] = { 0, 1, 17, 1000, 70001 };
    for (size_t d = 0; d < COUNT_OF(deals); d++) {
        struct comm_tree tree = { 0 };
        uint32_t first[MAX_SIZE + 1];
        deal_parts(comm, d, &tree, first);
        check_begin("reduce_scatter, %s", deals[d].name);
        for (size_t v = 0; v < COUNT_OF(divisions); v++)
            for (size_t l = 0; l < 2 * COUNT_OF(few); l++)
                scatter_once(comm, &tree, v, few[l / 2], l % 2);
    }
}

/* Bytes that are nobody's lie around the spans.  piece_bytes: the longest message. */
static void gather_v_once(struct comm *comm, size_t division, size_t n, size_t piece_bytes)
{
    enum { BEFORE = 3 };
    size_t first[MAX_SIZE + 1], rank = (size_t)comm_rank(comm), whole_piece = comm->world->piece_bytes;
    unsigned char *all = alloc(n + BEFORE + 1), *want = alloc(n + BEFORE + 1);
    divide(comm, division, n, first);
    for (int r = 0; r <= comm_size(comm); r++)
        first[r] += BEFORE;
    for (size_t i = 0; i < n + BEFORE + 1; i++) {
        want[i] = (unsigned char)(i * 31 + i / 251);
        all[i] = (i >= first[rank] && i < first[rank + 1]) || i < BEFORE || i == n + BEFORE ? want[i] : (unsigned char)~want[i];
    }
    comm->world->piece_bytes = piece_bytes;
    check_int(comm_all_gather_v(comm, all, first), 0);
    check_bytes("gathered", all, want, n + BEFORE + 1);
    comm->world->piece_bytes = whole_piece;
    free(all), free(want);
}

static void test_all_gather_v(struct comm *comm)
{
    static const size_t n_bytes[] = { 0, 1, 1000, 300001, 4000000 };
    for (size_t v = 0; v < COUNT_OF(divisions); v++) {
        check_begin("all_gather_v, %s", divisions[v].name);
        for (size_t k = 0; k < COUNT_OF(n_bytes); k++) {
            gather_v_once(comm, v, n_bytes[k], 1u << 30);
            gather_v_once(comm, v, n_bytes[k], 100000);
        }
    }
}

static void test_span_counters(struct comm *comm)
{
    struct comm_tree tree = { 0 };
    uint32_t first_part[MAX_SIZE + 1], size = (uint32_t)comm_size(comm), rank = (uint32_t)comm_rank(comm);
    size_t first[MAX_SIZE + 1];

    check_begin("counters: a reduce_scatter sends each part's spans, an all_gather_v the own span");
    deal_parts(comm, 0, &tree, first_part);
    divide(comm, 1, 6000, first);
    uint64_t n_mine = first[rank + 1] - first[rank], n_takers = 0;
    for (uint32_t r = 0; r < size; r++)
        n_takers += r != rank && first[r] < first[r + 1];
    comm_counters_reset(comm);
    scatter_once(comm, &tree, 1, 6000, false);
    check_int(comm_counters(comm)->n_messages, n_takers);
    check_int(comm_counters(comm)->bytes_sent, size > 1 ? (6000 - n_mine) * 4 : 0);
    comm_counters_reset(comm);
    gather_v_once(comm, 1, 6000, 500);
    check_int(comm_counters(comm)->n_messages, (size - 1) * ((n_mine + 499) / 500));
    check_int(comm_counters(comm)->bytes_sent, (size - 1) * n_mine);
}

static void test_reduce_counters(struct comm *comm)
{
    struct comm_tree tree = { 0 };
    uint32_t first[MAX_SIZE + 1];
    uint64_t n_peers = (uint64_t)comm_size(comm) - 1;

    check_begin("counters: a small all_reduce sends each part to each peer, a large one of 3 ranks and more two slices");
    deal_parts(comm, 0, &tree, first);
    comm_counters_reset(comm);
    reduce_once(comm, &tree, 576, false);
    check_int(comm_counters(comm)->n_messages, n_peers);
    check_int(comm_counters(comm)->bytes_sent, n_peers * 2304);
    comm_counters_reset(comm);
    reduce_once(comm, &tree, (size_t)comm_size(comm) << 14, false);
    check_int(comm_counters(comm)->n_messages, n_peers < 2 ? n_peers : 2 * n_peers);
    check_int(comm_counters(comm)->bytes_sent, n_peers < 2 ? n_peers << 17 : 2 * n_peers << 16);
}

static void test_many_reduces(struct comm *comm)
{
    struct comm_tree tree = { 0 };
    uint32_t first[MAX_SIZE + 1];
    float x[64], want, sum[64];
    deal_parts(comm, 0, &tree, first);
    void *scratch = alloc(comm_all_reduce_scratch(comm, &tree, 64));
    int n_wrong = 0;

    check_begin("a thousand small all_reduces");
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 64; i++)
            x[i] = (float)(round + comm_rank(comm));
        want = (float)(round * comm_size(comm) + comm_size(comm) * (comm_size(comm) - 1) / 2);
        if (comm_all_reduce(comm, sum, x, 64, 64, &tree, scratch) < 0)
            n_wrong++;
        for (int i = 0; i < 64; i++)
            n_wrong += sum[i] != want;
    }
    check_int(n_wrong, 0);
    free(scratch);
}

/* ---- the small exact ones --------------------------------------------------------------------------------------------- */
static void test_all_max(struct comm *comm)
{
    enum { N = 3000 };          /* more than one chunk */
    float *x = alloc(N * sizeof *x), *want = alloc(N * sizeof *want);
    int size = comm_size(comm), rank = comm_rank(comm);

    check_begin("all_max: NaN wins, +0 is above -0");
    for (int i = 0; i < N; i++) {
        x[i] = (float)((i * 7 + rank * 13) % 50 - 25);
        want[i] = -INFINITY;
        for (int r = 0; r < size; r++)
            want[i] = fmaxf(want[i], (float)((i * 7 + r * 13) % 50 - 25));
    }
    x[10] = rank == size - 1 ? -NAN : 1.0f;
    want[10] = NAN;
    x[11] = rank == 0 ? 0.0f : -0.0f;
    want[11] = 0.0f;
    x[2999] = rank == size - 1 ? 0.0f : -0.0f;
    want[2999] = 0.0f;
    x[12] = -0.0f;
    want[12] = -0.0f;
    x[13] = rank == 0 ? -INFINITY : (float)-rank;
    want[13] = size == 1 ? -INFINITY : -1.0f;
    check_int(comm_all_max(comm, x, N), 0);
    check_bytes("maximum", x, want, N * sizeof *x);
    free(x), free(want);
}

static void test_gather_and_broadcast(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    const size_t n_bytes[] = { 0, 1, 1000, 200000 };

    for (size_t k = 0; k < COUNT_OF(n_bytes); k++) {
        size_t n = n_bytes[k];
        unsigned char *all = alloc(n * (size_t)size), *want = alloc(n * (size_t)size);
        check_begin("all_gather and broadcast of %zu bytes", n);
        for (size_t i = 0; i < n * (size_t)size; i++)
            want[i] = (unsigned char)(i * 31 + i / 251);
        memset(all, 0, n * (size_t)size);
        check_int(comm_all_gather(comm, all, want + n * (size_t)rank, n), 0);
        check_bytes("gathered", all, want, n * (size_t)size);
        for (int root = 0; root < size; root++) {
            memset(all, 0, n);
            if (rank == root)
                memcpy(all, want + root, n > (size_t)root ? n - (size_t)root : 0);
            check_int(comm_broadcast(comm, all, n, root), 0);
            check_bytes("broadcast", all, want + root, n > (size_t)root ? n - (size_t)root : 0);
        }
        free(all), free(want);
    }
}

/* ---- point to point --------------------------------------------------------------------------------------------------- */
static void test_ring(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    const size_t n_ints[] = { 0, 1, 500, 100000 };

    for (size_t k = 0; k < COUNT_OF(n_ints) && size > 1; k++) {
        size_t n = n_ints[k] * sizeof(int), n_there = 0;
        int *sent = alloc(n), *got = alloc(n), sender = -1;
        struct comm_request request = { 0 };
        check_begin("send, probe and receive %zu bytes around a ring", n);
        for (size_t i = 0; i < n_ints[k]; i++)
            sent[i] = rank * 1000 + (int)i;
        check_int(comm_send_start(comm, &request, sent, n, to, 5), 0);
        check_int(comm_probe(comm, -1, 5, true, -1, &n_there, &sender), 0);
        check_int(n_there, n);
        check_int(sender, from);
        check_int(comm_receive(comm, got, n, from, 5), 0);
        check_int(comm_wait(comm, &request), 0);
        check(request.handle == NULL);
        for (size_t i = 0; i < n_ints[k]; i++)
            got[i] -= from * 1000 - rank * 1000;
        check_bytes("received", got, sent, n);
        free(sent), free(got);
    }
}

static void test_probe_times_out(struct comm *comm)
{
    size_t n_there = 7;
    int sender = 7;
    check_begin("probe: nothing is there, and it says so in time");
    check_int(comm_probe(comm, -1, 9, false, 0, &n_there, &sender), 0);
    check(n_there == SIZE_MAX);
    double start = now();
    check_int(comm_probe(comm, -1, 9, true, 0.05, &n_there, NULL), 0);
    check(n_there == SIZE_MAX);
    if (comm_size(comm) > 1)
        check(now() - start >= 0.05);
    check_int(comm_barrier(comm), 0);
}

static void test_wrong_size(struct comm *comm)
{
    char bytes[100] = { 0 };
    struct comm_request request = { 0 };
    check_begin("receive: a message of another size is an error, and stays");
    if (comm_rank(comm) == 0 && comm_size(comm) > 1) {
        memset(bytes, 'x', sizeof bytes);
        check_int(comm_send_start(comm, &request, bytes, 50, 1, 3), 0);
        double start = now();
        while (comm_test(comm, &request) == 0 && now() - start < 60)
            sched_yield();
        check_int(comm_test(comm, &request), 1);
        check_int(comm_wait(comm, &request), 0);
    } else if (comm_rank(comm) == 1) {
        check_int(comm_receive(comm, bytes, 49, 0, 3), ERR_PEER);
        check_text(error_text(), "rank 0 sent 50 bytes with tag 3 to rank 1, which waits for 49");
        check_int(comm_receive(comm, bytes, 51, 0, 3), ERR_PEER);
        check_int(comm_receive(comm, bytes, 50, 0, 3), 0);
        check(bytes[49] == 'x' && bytes[50] == 0);
    }
    check_int(comm_barrier(comm), 0);
}

/* ---- messages of sizes that only their senders know ------------------------------------------------------------------------ */
/* From one rank to another in a round: nothing, a few bytes, on either side of what MPI sends at once, and far above it. */
static size_t message_bytes(int from, int to, int round)
{
    static const size_t n_bytes[] = { 0, 1, 100, 4000, 5000, 70000, 0, 600000 };
    return n_bytes[(from * 5 + to * 3 + round) % (int)COUNT_OF(n_bytes)];
}

static unsigned char message_byte(int from, int to, int round, size_t i)
{
    return (unsigned char)((size_t)(from * 41 + to * 7 + round) + i * 31 + i / 251);
}

static void test_all_to_all(struct comm *comm)
{
    enum { ROOM = 600000, N_ROUNDS = 9 };
    int size = comm_size(comm), rank = comm_rank(comm), n_wrong = 0;
    unsigned char *sent[MAX_SIZE], *got[MAX_SIZE];
    size_t n_sent[MAX_SIZE], n_room[MAX_SIZE], n_got[MAX_SIZE], n_bytes = 0;

    check_begin("all_to_all: every size to every rank, in rounds that run into each other");
    for (int r = 0; r < size; r++)
        sent[r] = alloc(ROOM), got[r] = alloc(ROOM + 1);
    comm_counters_reset(comm);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int r = 0; r < size; r++) {
            n_sent[r] = message_bytes(rank, r, round);
            n_room[r] = r == rank ? 0 : round % 2 ? ROOM : message_bytes(r, rank, round);
            n_got[r] = 77;
            n_bytes += r == rank ? 0 : n_sent[r];
            for (size_t i = 0; i < n_sent[r]; i++)
                sent[r][i] = message_byte(rank, r, round, i);
            memset(got[r], 0x5a, ROOM + 1);
        }
        check_int(comm_all_to_all(comm, (const void *const *)sent, n_sent, (void *const *)got, n_room, n_got), 0);
        for (int r = 0; r < size; r++) {
            size_t n_want = r == rank ? 0 : message_bytes(r, rank, round);
            check_int(n_got[r], r == rank ? 77 : n_want);
            for (size_t i = 0; i < n_want; i++)
                n_wrong += got[r][i] != message_byte(r, rank, round, i);
            for (size_t i = n_want; i < ROOM + 1; i++)
                n_wrong += got[r][i] != 0x5a;
        }
    }
    check_int(n_wrong, 0);
    check_int(comm_counters(comm)->n_messages, N_ROUNDS * (size - 1));
    check_int(comm_counters(comm)->bytes_sent, n_bytes);
    for (int r = 0; r < size; r++)
        free(sent[r]), free(got[r]);
}

/* Nobody is through before everybody has come, though no bytes go. */
static void test_all_to_all_waits(struct comm *comm)
{
    const void *send[MAX_SIZE] = { NULL };
    void *receive[MAX_SIZE] = { NULL };
    size_t none[MAX_SIZE] = { 0 }, n_received[MAX_SIZE];

    check_begin("all_to_all of nothing: everybody has come");
    comm_barrier(comm);
    comm_counters_reset(comm);
    double start = now();
    if (comm_rank(comm) == 0)
        sleep_s(0.3);
    check_int(comm_all_to_all(comm, send, none, receive, none, n_received), 0);
    check(comm_size(comm) == 1 || now() - start > 0.2);
    if (comm_size(comm) == 2 && comm_rank(comm) == 1)
        check(comm_counters(comm)->wait_s > 0.2);
}

static void test_no_room(struct comm *world)
{
    static unsigned char bytes[2][100];
    struct comm *group = NULL;
    int rank = comm_rank(world);
    size_t n_send[2] = { 50, 50 }, n_room[2] = { 50, rank == 0 ? 49 : 50 }, n_received[2];

    check_begin("all_to_all: no room for a message is an error");
    check_int(comm_split(&group, world, rank / 2, rank), 0);
    if (rank < 2 && comm_size(group) == 2) {
        const void *send[2] = { bytes[0], bytes[0] };
        void *receive[2] = { bytes[1], bytes[1] };
        check_int(comm_all_to_all(group, send, n_send, receive, n_room, n_received), rank == 0 ? ERR_PEER : 0);
        if (rank == 0)
            check_text(error_text(), "rank 1 sent 50 bytes to rank 0, which has room for 49");
    }
    check_int(comm_barrier(world), 0);
    comm_close(group);
}

/* Rank 1 takes part with a longer span of its own than the others believe.  The group is not used again, nor may bytes go
 * that a message may still be written to. */
static void test_other_sizes(struct comm *world)
{
    static unsigned char bytes[1000];
    struct comm *group = NULL;
    int rank = comm_rank(world);
    size_t first[3] = { 0, 100, rank == 1 ? 300 : 200 };

    check_begin("a collective in which ranks name other sizes is an error");
    check_int(comm_split(&group, world, rank / 2, rank), 0);
    if (rank < 2 && comm_size(group) == 2) {
        first[1] += rank == 1 ? 10 : 0;
        int err = comm_all_gather_v(group, bytes, first);
        check_int(err, ERR_PEER);
        if (rank == 0)
            check_text(error_text(), "rank 1 sent more than the 100 bytes that rank 0 waits for: they are not in the same call");
        else
            check_text(error_text(), "rank 0 sent 100 bytes to rank 1, which waits for 110: they are not in the same call");
    }
    check_int(comm_barrier(world), 0);
    comm_close(group);
}

/* ---- gathers while the caller computes ---------------------------------------------------------------------------------- */
static unsigned char gather_byte(size_t gather, size_t i)
{
    return (unsigned char)(gather * 17 + i * 31 + i / 251);
}

/* Gather number `gather` of n bytes: mine are there, the others are wrong until they come. */
static void start_gather(struct comm *comm, struct comm_gather *g, size_t gather, size_t division, size_t n, unsigned char *bytes)
{
    size_t first[MAX_SIZE + 1], rank = (size_t)comm_rank(comm);
    divide(comm, division, n, first);
    for (size_t i = 0; i <= n; i++)
        bytes[i] = (unsigned char)(gather_byte(gather, i) ^ (i >= first[rank] && i < first[rank + 1] ? 0 : 0xff));
    check_int(comm_gather_start(g, bytes, first), 0);
    memset(first, 0xee, sizeof first);
}

static void wait_gather(struct comm_gather *g, size_t gather, size_t n, const unsigned char *bytes)
{
    size_t n_wrong = 0;
    check_int(comm_gather_wait(g), 0);
    for (size_t i = 0; i < n; i++)
        n_wrong += bytes[i] != gather_byte(gather, i);
    check_int(n_wrong, 0);
    check_int(bytes[n], gather_byte(gather, n) ^ 0xff);
}

static const size_t gather_bytes[] = { 0, 1, 1024, 1025, 40000, 300001, 600000 };

/* Gathers of all sizes, COMM_GATHERS of them under way, with reductions on the same comm in between. */
static void test_gathers(struct comm *comm, size_t piece_bytes)
{
    enum { N = 600000, N_GATHERS = 2 * COMM_GATHERS + 3 };           /* each of the flights is used again */
    struct comm_gather *g = NULL;
    struct comm_tree tree = { 0 };
    uint32_t first_part[MAX_SIZE + 1];
    size_t whole_piece = comm->world->piece_bytes;
    unsigned char *bytes[COMM_GATHERS];

    check_begin("gathers in flight, in pieces of %zu bytes", piece_bytes);
    deal_parts(comm, 1, &tree, first_part);
    comm->world->piece_bytes = piece_bytes;
    check_int(comm_gather_open(&g, comm, N), 0);
    for (size_t k = 0; k < COMM_GATHERS; k++)
        bytes[k] = alloc(N + 1);
    for (size_t k = 0; k < N_GATHERS + COMM_GATHERS; k++) {
        size_t old = k - COMM_GATHERS, n_sizes = COUNT_OF(gather_bytes);
        if (k >= COMM_GATHERS)
            wait_gather(g, old, gather_bytes[old * 3 % n_sizes], bytes[old % COMM_GATHERS]);
        if (k < N_GATHERS)
            start_gather(comm, g, k, k % COUNT_OF(divisions), gather_bytes[k * 3 % n_sizes], bytes[k % COMM_GATHERS]);
        if (k % 3 == 0)
            reduce_once(comm, &tree, k % 2 ? 576 : 20001, false);
    }
    check_int(comm_gather_test(g), 1);
    comm_gather_close(g);
    comm->world->piece_bytes = whole_piece;
    for (size_t k = 0; k < COMM_GATHERS; k++)
        free(bytes[k]);
}

/* Tests alone bring it here, once the other ranks have started too; and starting does not wait for them. */
static void test_gather_test(struct comm *comm)
{
    enum { N = 2000000 };
    struct comm_gather *g = NULL;
    unsigned char *bytes = alloc(N + 1), *empty = alloc(1);
    int size = comm_size(comm), n_not_yet = 0, done;
    size_t none[MAX_SIZE + 1] = { 0 };

    check_begin("a gather: a late rank is waited for by tests, not by start");
    check_int(comm_gather_open(&g, comm, N), 0);
    check_int(comm_gather_test(g), 1);
    comm_barrier(comm);
    if (comm_rank(comm) == size - 1) {
        check_int(comm_barrier(comm), 0);       /* the others have started before this */
        start_gather(comm, g, 5, 0, N, bytes);
    } else {
        start_gather(comm, g, 5, 0, N, bytes);
        check_int(comm_gather_test(g), 0);
        check_int(comm_barrier(comm), 0);
    }
    check_int(comm_gather_start(g, empty, none), 0);
    for (double start = now(); (done = comm_gather_test(g)) == 0 && now() - start < 60; n_not_yet++)
        sched_yield();
    check_int(done, 1);
    check_int(comm_gather_test(g), 1);
    wait_gather(g, 5, N, bytes);
    check_int(comm_gather_test(g), 1);
    check_int(comm_gather_wait(g), 0);
    comm_gather_close(g);
    free(bytes), free(empty);
}

static void test_gather_counters(struct comm *comm)
{
    enum { N = 1000000 };
    struct comm_gather *g = NULL;
    unsigned char *bytes = alloc(N + 1);
    size_t first[MAX_SIZE + 1], rank = (size_t)comm_rank(comm), n_peers = (size_t)comm_size(comm) - 1;

    check_begin("counters: a gather sends each peer a short message and the rest; a late peer is waiting");
    divide(comm, 1, N, first);
    size_t n_mine = first[rank + 1] - first[rank];
    check_int(comm_gather_open(&g, comm, N), 0);
    comm_barrier(comm);
    comm_counters_reset(comm);
    if (rank == 0)
        sleep_s(0.5);
    start_gather(comm, g, 3, 1, N, bytes);
    check(comm_counters(comm)->wait_s == 0);
    wait_gather(g, 3, N, bytes);
    if (n_peers == 1 && rank == 1)
        check(comm_counters(comm)->wait_s > 0.3);
    check_int(comm_counters(comm)->bytes_sent, n_peers * n_mine);
    check_int(comm_counters(comm)->n_messages, n_mine > 0 ? 2 * n_peers : 0);
    comm_gather_close(g);
    free(bytes);
}

static void test_gather_other_sizes(struct comm *world)
{
    static unsigned char bytes[5000];
    struct comm *group = NULL;
    struct comm_gather *g = NULL;
    int rank = comm_rank(world);
    size_t first[3] = { 0, rank == 0 ? 2000 : 2001, 4000 };

    check_begin("a gather of which ranks name other sizes is an error");
    check_int(comm_split(&group, world, rank / 2, rank), 0);
    check_int(comm_gather_open(&g, group, sizeof bytes), 0);
    if (rank < 2 && comm_size(group) == 2) {
        check_int(comm_gather_start(g, bytes, first), 0);
        check_int(comm_gather_wait(g), ERR_PEER);
        check_text(error_text(), rank == 0 ? "rank 1 sent 975 bytes to rank 0, which waits for 976: they are not in the same call" :
                   "rank 0 sent 976 bytes to rank 1, which waits for 977: they are not in the same call");
    }
    check_int(comm_barrier(world), 0);
    comm_gather_close(g);
    comm_close(group);
}

/* ---- groups ------------------------------------------------------------------------------------------------------------- */
/* A mesh of rows of two: a sum along one axis, then along the other, is the sum of all. */
static void test_mesh(struct comm *world)
{
    struct comm *row = NULL, *column = NULL;
    int rank = comm_rank(world), size = comm_size(world), sender;
    size_t n_there;

    check_begin("groups: a mesh of %d x 2", size / 2);
    check_int(comm_split(&row, world, rank / 2, rank), 0);
    check_int(comm_split(&column, world, rank % 2, -rank), 0);
    check_int(comm_rank(row), rank % 2);
    check_int(comm_size(row), 2);
    check_int(comm_size(column), size / 2);
    check_int(comm_rank(column), size / 2 - 1 - rank / 2);

    int mine[2] = { rank, 0 }, pairs[4], all[MAX_SIZE];
    check_int(comm_all_gather(row, pairs, mine, sizeof *mine), 0);
    check_int(pairs[0], rank / 2 * 2);
    check_int(pairs[1], rank / 2 * 2 + 1);
    check_int(comm_all_gather(column, all, pairs, 2 * sizeof *pairs), 0);
    for (int r = 0; r < size; r += 2)
        check_int(all[r], size - 2 - r);

    struct comm_request request = { 0 };
    check_int(comm_send_start(row, &request, mine, sizeof mine, 1 - rank % 2, 4), 0);
    check_int(comm_barrier(world), 0);
    check_int(comm_probe(world, -1, 4, false, 0.02, &n_there, &sender), 0);
    check(n_there == SIZE_MAX);         /* it is the row's message, not the world's */
    check_int(comm_receive(row, pairs, sizeof mine, 1 - rank % 2, 4), 0);
    check_int(comm_wait(row, &request), 0);

    test_all_reduce(row, "row");
    test_all_reduce(column, "column");
    comm_close(row);
    comm_close(column);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */
static void test_idle_rank_is_cheap(struct comm *comm)
{
    size_t n_there;
    check_begin("a rank that waits burns little, and counts it as waiting");
    comm_barrier(comm);
    for (int idle = 0; idle < 2; idle++) {
        double start = now(), cpu = cpu_seconds();
        char byte = 1;
        comm_counters_reset(comm);
        if (comm_rank(comm) == 0) {
            sleep_s(1.0);
            for (int r = 1; r < comm_size(comm); r++) {
                struct comm_request request = { 0 };
                check_int(comm_send_start(comm, &request, &byte, 1, r, 6), 0);
                check_int(comm_wait(comm, &request), 0);
            }
        } else {
            check_int(comm_probe(comm, 0, 6, idle, -1, &n_there, NULL), 0);
            double wall = now() - start, burnt = cpu_seconds() - cpu;
            check_int(comm_receive(comm, &byte, 1, 0, 6), 0);
            check(burnt < 0.25 * wall);
            check(comm_counters(comm)->wait_s > 0.7 && comm_counters(comm)->wait_s <= wall);
            if (comm_rank(comm) == 1)
                printf("%s wait of %.2f s took %.1f %% of a core\n", idle ? "an idle" : "a", wall, 100 * burnt / wall);
        }
        check_int(comm_barrier(comm), 0);
    }
}

/* One rank comes late to a large exchange: the others wait, then bytes move. */
static void test_wait_is_not_wire(struct comm *comm)
{
    size_t n = 1 << 20;
    char *all = alloc(n * (size_t)comm_size(comm)), *mine = alloc(n);
    check_begin("counters: a late peer is waiting, not wire");
    memset(mine, 1, n);
    comm_barrier(comm);
    comm_counters_reset(comm);
    if (comm_rank(comm) == 0)
        sleep_s(0.5);
    check_int(comm_all_gather(comm, all, mine, n), 0);
    if (comm_size(comm) == 2 && comm_rank(comm) == 1)
        check(comm_counters(comm)->wait_s > 0.3);
    check_int(comm_counters(comm)->bytes_sent, n * ((size_t)comm_size(comm) - 1));
    free(all), free(mine);
}

static int run_rank(void)
{
    struct comm *world = NULL;
    if (comm_open_world(&world) < 0) {
        printf("FAIL comm_open_world: %s\n", error_text());
        comm_abort(NULL, 1);
    }
    comm_set_threads(world, 1);
    test_all_reduce(world, "world");
    test_reduce_counters(world);
    test_reduce_scatter(world);
    test_all_gather_v(world);
    test_span_counters(world);
    test_other_sizes(world);
    test_all_to_all(world);
    test_all_to_all_waits(world);
    test_no_room(world);
    test_gathers(world, (size_t)1 << 30);
    test_gathers(world, 100000);
    test_gather_test(world);
    test_gather_counters(world);
    test_gather_other_sizes(world);
    test_many_reduces(world);
    test_all_max(world);
    test_gather_and_broadcast(world);
    test_ring(world);
    test_probe_times_out(world);
    test_wrong_size(world);
    if (comm_size(world) % 2 == 0)
        test_mesh(world);
    if (comm_size(world) > 1) {
        test_idle_rank_is_cheap(world);
        test_wait_is_not_wire(world);
    }
    check_int(comm_barrier(world), 0);
    comm_close(world);
    return check_done();
}

/* ---- the program without a launcher --------------------------------------------------------------------------------- */
int main(int argc, char **argv)
{
    static const int n_ranks[] = { 1, 2, 3, 4, 8 };
    (void)argc;
    if (comm_world_given())
        return run_rank();

    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);        /* MPI's own */
    for (size_t i = 0; i < COUNT_OF(n_ranks); i++) {
        check_begin("%d ranks", n_ranks[i]);
        int n_clean = run_under_mpirun(argv[0], n_ranks[i]);
        if (n_clean < 0)
            check_skip("mpirun.openmpi is not there");
        else
            check_int(n_clean, n_ranks[i]);
    }
    return run_rank();          /* the world of one, without MPI */
}
