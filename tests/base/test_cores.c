/* test_cores.c: which cores each of the ranks of a host gets, on machines of all shapes; and what a pinned pool does to its caller. */
#include "base/cores.h"
#include "base/threads.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

/* Machines: the cores of each node.  A core has two hardware threads, so the k-th is called by CPU 2k.  Wanted: the first and the last core
 * of each rank, or none when nobody is pinned. */
static const struct row {
    const char *name;
    int nodes[4];
    int n_threads, n_sharing, cpu;
    struct { int first, last; } want[6];
} rows[] = {
    { "one rank has the whole of one node",       { 8 },          2, 1, -1, { { 0, 7 } } },
    { "one rank stays in the node where it is",   { 4, 4 },       4, 1, 10, { { 4, 7 } } },
    { "also on the core's other thread",          { 4, 4 },       4, 1, 11, { { 4, 7 } } },
    { "unless it does not fit there",             { 6, 3 },       4, 1, 14, { { 0, 5 } } },
    { "an unknown place: the first with room",    { 2, 4 },       3, 1, -1, { { 2, 5 } } },
    { "more threads than a node has",             { 4, 4 },       6, 1,  0, { { 0, 7 } } },
    { "ranks spread over nodes",                  { 4, 4 },       2, 2, -1, { { 0, 3 }, { 4, 7 } } },
    { "and divide a node",                        { 4, 4 },       2, 4, -1, { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } } },
    { "an odd number of ranks",                   { 4, 4 },       2, 3, -1, { { 0, 3 }, { 4, 5 }, { 6, 7 } } },
    { "a small node takes fewer",                 { 2, 6 },       2, 4, -1, { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } } },
    { "a node that holds none",                   { 1, 4 },       2, 2, -1, { { 1, 2 }, { 3, 4 } } },
    { "nodes that do not hold all: all cores",    { 3, 3 },       2, 3, -1, { { 0, 1 }, { 2, 3 }, { 4, 5 } } },
    { "what is left over is dealt",               { 7 },          3, 2, -1, { { 0, 2 }, { 3, 6 } } },
    { "fewer cores than threads",                 { 2 },          3, 1,  0, { { -1, -1 } } },
    { "fewer cores than the ranks' threads",      { 2, 2 },       2, 3, -1, { { -1, -1 }, { -1, -1 }, { -1, -1 } } },
    { "ranks that share a part of the cores",     { 4 },          1, 0, -1, { { 0 } } },
};

static struct cores machine(const int *nodes)
{
    struct cores cores = { 0 };
    for (int node = 0; node < 4; node++)
        for (int i = 0; i < nodes[node]; i++, cores.n++) {
            cores.core[cores.n] = (struct core){ 2 * cores.n, node };
            cores.node_of[2 * cores.n] = cores.node_of[2 * cores.n + 1] = node;
        }
    return cores;
}

static void test_row(const struct row *row)
{
    struct cores cores = machine(row->nodes);
    check_begin("%s", row->name);
    for (int r = 0; r < row->n_sharing; r++) {
        cpu_set_t got, want;
        CPU_ZERO(&got);
        CPU_ZERO(&want);
        for (int i = row->want[r].first; i >= 0 && i <= row->want[r].last; i++)
            CPU_SET(2 * i, &want);
        check_int(cores_choose(&got, &cores, row->n_threads, r, row->n_sharing, row->cpu), row->want[r].first >= 0);
        check_bytes("cores", &got, &want, sizeof want);
    }
    if (!row->n_sharing)
        check(!cores_choose(&(cpu_set_t){ 0 }, &cores, row->n_threads, 0, 0, row->cpu));
}

/* Any machine and any ranks: each rank has a core for each of its threads, and none of another's. */
static void test_disjoint(void)
{
    check_begin("no core twice");
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 7; b++)
            for (int n_threads = 1; n_threads < 6; n_threads++)
                for (int n = 1; n < 8; n++) {
                    struct cores cores = machine((const int[4]){ a, b, 2 });
                    cpu_set_t all, mine, common;
                    CPU_ZERO(&all);
                    for (int r = 0; r < n; r++) {
                        if (!cores_choose(&mine, &cores, n_threads, r, n, -1)) {
                            check(n_threads * n > cores.n);
                            continue;
                        }
                        CPU_AND(&common, &all, &mine);
                        CPU_OR(&all, &all, &mine);
                        if (CPU_COUNT(&common) || CPU_COUNT(&mine) < n_threads)
                            check_int(CPU_COUNT(&mine), n_threads);
                    }
                }
}

/* ---- this machine ---- */
static cpu_set_t affinity(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
}

static void test_allowed(const cpu_set_t *mine)
{
    const struct cores *cores = cores_allowed();
    check_begin("cores of this machine");
    check(cores->n >= 1 && cores->n <= CPU_COUNT(mine));
    for (int i = 0; i < cores->n; i++) {
        check(CPU_ISSET(cores->core[i].cpu, mine));
        for (int j = 0; j < i; j++)
            check(cores->core[i].cpu != cores->core[j].cpu);
    }
}

#ifdef HAVE_HWLOC
/* ---- machines that hwloc makes up ---- */
static const struct made {
    const char *name, *machine;
    unsigned cpus;              /* a bit for each that may be used */
    int n;
    struct core core[4];
    int node_of[8];
} made[] = {
    { "two hardware threads are one core", "numa:1 core:4 pu:2", 0xff, 4, { { 0, 0 }, { 2, 0 }, { 4, 0 }, { 6, 0 } }, { 0 } },
    { "each thread has its core's node", "numa:2 core:2 pu:2", 0xff, 4, { { 0, 0 }, { 2, 0 }, { 4, 1 }, { 6, 1 } },
      { 0, 0, 0, 0, 1, 1, 1, 1 } },
    { "a core of which one thread may be used", "numa:2 core:2 pu:2", 0x3a, 3, { { 1, 0 }, { 3, 0 }, { 4, 1 } }, { 0, 0, 0, 0, 1, 1 } },
    { "a core is a node", "numa:2 core:1 pu:4", 0xff, 2, { { 0, 0 }, { 4, 1 } }, { 0, 0, 0, 0, 1, 1, 1, 1 } },
    { "a second kind of memory adds no cores", "pack:2 [numa] [numa] core:2 pu:2", 0xff, 4, { { 0, 0 }, { 2, 0 }, { 4, 2 }, { 6, 2 } },
      { 0, 0, 0, 0, 2, 2, 2, 2 } },
};

static void test_made(const struct made *m)
{
    struct cores cores;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int cpu = 0; cpu < 8; cpu++)
        if (m->cpus >> cpu & 1)
            CPU_SET(cpu, &cpus);
    check_begin("%s", m->name);
    setenv("HWLOC_SYNTHETIC", m->machine, 1);
    cores_of(&cores, &cpus);
    unsetenv("HWLOC_SYNTHETIC");
    check_int(cores.n, m->n);
    check_bytes("cores", cores.core, m->core, sizeof m->core);
    check_bytes("nodes", cores.node_of, m->node_of, sizeof m->node_of);
}
#endif

static void look(void *user, int thread)
{
    ((cpu_set_t *)user)[thread] = affinity();
}

static void test_pool(const cpu_set_t *mine)
{
    struct pool *pool;
    cpu_set_t one, seen[3];
    int n_before = cores_allowed()->n;
    CPU_ZERO(&one);
    CPU_SET(cores_allowed()->core[n_before - 1].cpu, &one);
    check_begin("every thread of a pinned pool keeps to its cores, and the caller is free again when it closes");
    if (!check_int(pool_open(&pool, 3, false), 0))
        return;
    pool_pin(pool, &one);
    pool_run(pool, look, seen);
    for (int i = 0; i < 3; i++)
        check_bytes("cores of a thread", &seen[i], &one, sizeof one);
    check_int(cores_allowed()->n, n_before);
    pool_close(pool);
    cpu_set_t after = affinity();
    check_bytes("cores of the caller", &after, mine, sizeof after);
}

int main(void)
{
    cpu_set_t mine = affinity();
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_row(&rows[i]);
    test_disjoint();
#ifdef HAVE_HWLOC
    for (size_t i = 0; i < COUNT_OF(made); i++)
        test_made(&made[i]);
#endif
    test_allowed(&mine);
    test_pool(&mine);
    return check_done();
}
