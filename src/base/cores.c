#include "base/cores.h"

#include "base/base.h"

#include <pthread.h>

static struct cores allowed;

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* Only what is asked for: caches and devices take hwloc most of its time.  And what other ranks may use and this one may not. */
static hwloc_topology_t load(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology))
        return NULL;
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);     /* else a node is that of all cores */
    if (hwloc_topology_load(topology)) {
        hwloc_topology_destroy(topology);
        return NULL;
    }
    return topology;
}

static void take_core(struct cores *to, cpu_set_t *left, hwloc_obj_t core, int node)
{
    int cpu, first = -1;
    hwloc_bitmap_foreach_begin(cpu, core->cpuset)
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, left)) {
            CPU_CLR(cpu, left);
            to->node_of[cpu] = node;
            first = first < 0 ? cpu : first;
        }
    hwloc_bitmap_foreach_end();
    if (first >= 0)
        to->core[to->n++] = (struct core){ first, node };
}

/* Node by node: their numbers need not follow those of the cores.  Memory of another kind (HBM, CXL, a GPU's) is a node of its own beside
 * the one that the cores near it have been listed for. */
static void read_cores(struct cores *to, const cpu_set_t *cpus)
{
    hwloc_topology_t topology = load();
    hwloc_obj_t node = NULL, core = NULL;
    cpu_set_t left = *cpus;
    while (topology && (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        while ((core = hwloc_get_next_obj_inside_cpuset_by_type(topology, node->cpuset, HWLOC_OBJ_CORE, core)))
            take_core(to, &left, core, (int)node->logical_index);
    if (topology)
        hwloc_topology_destroy(topology);
}
#else
static void read_cores(struct cores *to, const cpu_set_t *cpus)
{
    (void)to, (void)cpus;
}
#endif

static void count_cpus(struct cores *to, const cpu_set_t *cpus)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, cpus))
            to->core[to->n++] = (struct core){ .cpu = cpu };
}

void cores_of(struct cores *out, const cpu_set_t *cpus)
{
    *out = (struct cores){ 0 };
    read_cores(out, cpus);
    if (!out->n)
        count_cpus(out, cpus);
}

static void read_allowed(void)
{
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0)
        cores_of(&allowed, &mine);
}

const struct cores *cores_allowed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_allowed);
    return &allowed;
}

/* ---- choosing ---- */
struct span {
    int begin, end;             /* of cores->core */
};

static int span_size(struct span s)
{
    return s.end - s.begin;
}

static struct span part_of(struct span all, int index, int n)
{
    return (struct span){ all.begin + span_size(all) * index / n, all.begin + span_size(all) * (index + 1) / n };
}

/* The node that follows `last`; empty at the end. */
static struct span next_node(const struct cores *cores, struct span last)
{
    struct span node = { last.end, last.end };
    while (node.end < cores->n && cores->core[node.end].node == cores->core[node.begin].node)
        node.end++;
    return node;
}

/* How many ranks fit into whole nodes. */
static int room_of_nodes(const struct cores *cores, int n_threads)
{
    int room = 0;
    for (struct span node = next_node(cores, (struct span){ 0 }); span_size(node); node = next_node(cores, node))
        room += span_size(node) / n_threads;
    return room;
}

static struct span node_of_one(const struct cores *cores, int n_threads, int cpu)
{
    struct span first = { 0 };
    for (struct span node = next_node(cores, (struct span){ 0 }); span_size(node); node = next_node(cores, node)) {
        if (span_size(node) < n_threads)
            continue;
        if (cpu >= 0 && cpu < CPU_SETSIZE && cores->node_of[cpu] == cores->core[node.begin].node)
            return node;
        if (!span_size(first))
            first = node;
    }
    return first;
}

/* Nodes get ranks in proportion to how many fit, and never more; those of a node divide it. */
static struct span part_of_node(const struct cores *cores, int n_threads, int index, int n_sharing)
{
    int room = room_of_nodes(cores, n_threads), before = 0;
    for (struct span node = next_node(cores, (struct span){ 0 }); span_size(node); node = next_node(cores, node)) {
        int first = n_sharing * before / room;
        before += span_size(node) / n_threads;
        int end = n_sharing * before / room;
        if (index < end)
            return part_of(node, index - first, end - first);
    }
    return (struct span){ 0 };
}

bool cores_choose(cpu_set_t *out, const struct cores *cores, int n_threads, int index, int n_sharing, int cpu)
{
    struct span mine;
    if (n_sharing < 1 || n_threads > cores->n / n_sharing)
        return false;
    if (room_of_nodes(cores, n_threads) < n_sharing)
        mine = part_of((struct span){ 0, cores->n }, index, n_sharing);
    else if (n_sharing == 1)
        mine = node_of_one(cores, n_threads, cpu);
    else
        mine = part_of_node(cores, n_threads, index, n_sharing);
    CPU_ZERO(out);
    for (int i = mine.begin; i < mine.end; i++)
        CPU_SET(cores->core[i].cpu, out);
    return true;
}
