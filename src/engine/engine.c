#include "engine/engine_impl.h"

#include "base/base.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreement: an open that fails on one rank fails on all ---- */
static uint64_t options_digest(const struct model_file *file, const struct engine_options *o)
{
    uint64_t h = model_file_digest(file);
    const uint64_t parts[] = { o->int8_activations, o->cache_type, o->n_groups, o->chunk, o->context, o->max_sequences,
                               o->cache_blocks, o->full_logits, o->hidden_norms, o->without, o->gathered };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        h = (h ^ parts[i]) * 0x100000001b3u;
    for (size_t i = 0; i < sizeof o->mesh; i++)
        h = (h ^ ((const unsigned char *)&o->mesh)[i]) * 0x100000001b3u;
    return h;
}

/* The model file's head and what shapes the answer must be the same everywhere. */
static int agree(struct engine *e, int err, uint64_t digest)
{
    if ((err = comm_agree(e->world, err)) < 0)
        return err;
    uint64_t *all = calloc(e->n_ranks, sizeof *all);
    if (!all)
        comm_abort(e->world, 1);
    err = comm_all_gather(e->world, all, &digest, sizeof digest);
    for (uint32_t r = 1; err == 0 && r < e->n_ranks; r++)
        if (all[r] != all[0])
            err = error_set(ERR_BAD_FILE, "rank %u has another model file or other options than rank 0", r);
    free(all);
    return err;
}

/* ---- opening ---- */
static void show_progress(size_t done, size_t all, void *user)
{
    double *next_s = user;
    if (seconds_now() < *next_s)
        return;
    *next_s = seconds_now() + 1;
    log_info("loading: %zu of %zu MB", done >> 20, all >> 20);
}

/* The line of `size` ranks through this one whose first rank is `first`, ordered by the coordinate along `along`. */
static int open_line(struct engine *e, enum axis axis, uint32_t size, uint32_t first, enum axis along)
{
    return size > 1 ? comm_split(&e->axis[axis], e->world, (int)first, (int)mesh_coordinate(&e->mesh, e->rank, along)) : 0;
}

/* Control and stages are apart, so that messages of one are never taken for the other's.  The line along dp is for gathered
 * weights alone; experts have the line inside their island. */
static int open_groups(struct engine *e)
{
    const struct mesh *m = &e->mesh;
    uint32_t island = mesh_island(m), group = mesh_coordinate(m, e->rank, AXIS_DP);
    int err;
    if ((err = comm_split(&e->control, e->world, 0, (int)e->rank)) < 0 || (err = comm_split(&e->stages, e->world, 0, (int)e->rank)) < 0 ||
        (err = open_line(e, AXIS_TP, m->size[AXIS_TP], mesh_peer(m, e->rank, AXIS_TP, 0), AXIS_TP)) < 0 ||
        (err = open_line(e, AXIS_DP, m->size[AXIS_DP], mesh_peer(m, e->rank, AXIS_DP, 0), AXIS_DP)) < 0)
        return err;
    return open_line(e, AXIS_EP, island, mesh_peer(m, e->rank, AXIS_DP, group - group % island), AXIS_DP);
}

/* Of one group along dp. */
static uint32_t max_sequences(const struct engine_options *o)
{
    return DIV_UP(o->max_sequences, o->mesh.size[AXIS_DP]);
}

static uint32_t max_tokens(const struct engine_options *o)
{
    return MAX(o->chunk, max_sequences(o));
}

static uint32_t max_rows(const struct engine_options *o)
{
    return o->full_logits ? max_tokens(o) : max_sequences(o);
}

struct compile_options engine_compile_options(const struct engine_options *o)
{
    return (struct compile_options){
        .model = { .int8_activations = o->int8_activations, .hidden_outputs = o->hidden_norms, .warn = true, .cache_type = o->cache_type,
                   .n_groups = o->n_groups, .max_tokens = max_tokens(o), .max_rows = max_rows(o) },
        .mesh = o->mesh, .without = o->without, .gathered = o->gathered,
    };
}

/* Every rank's graph has all cache groups of the model, so all ranks set the same limits. */
static void set_limits(struct engine *e, const struct graph *g)
{
    const struct engine_options *o = &e->options;
    e->limits = (struct plan_limits){
        .n_tokens = max_tokens(o), .n_rows = max_rows(o), .n_sequences = max_sequences(o),
        .n_all_tokens = max_tokens(o) * o->mesh.size[AXIS_DP],
        .context = o->context, .n_vocab = e->model.n_vocab, .n_cache_groups = g->n_cache_groups,
    };
    for (uint32_t i = 0; i < g->n_cache_groups; i++)
        e->limits.cache[i] = cache_blocks(g->cache_group[i].window, o->context, o->chunk, max_sequences(o), o->cache_blocks);
}

static int open_program(struct engine *e, const struct model_file *file)
{
    struct graph *g;
    double next_s = seconds_now() + 1;
    struct compile_options compile = engine_compile_options(&e->options);
    int err;
    if ((err = kernels_find(&e->kernels, e->options.isa)) < 0 || (err = compile_rank(&g, file, &compile, e->rank, PASS_PLACE)) < 0)
        return err;
    set_limits(e, g);
    struct program_options program = {
        .file = file, .kernels = e->kernels, .pool = e->pool, .mesh = &e->mesh, .rank = e->rank, .stages = e->stages,
        .context = e->options.context, .profile = e->options.profile, .packed_cache = e->options.packed_cache,
        .progress = show_progress, .progress_user = &next_s,
    };
    memcpy(program.axis, e->axis, sizeof program.axis);
    for (uint32_t i = 0; i < e->limits.n_cache_groups; i++)
        program.n_blocks[i] = e->limits.cache[i].n_all;
    return program_open(&e->program, g, &program);
}

int engine_options_resolve(struct engine_options *o, const struct model_info *model)
{
    if (!o->context)
        o->context = MIN(model->n_context, 8192);
    if (o->context > model->n_context)
        return error_set(ERR_USAGE, "--context %u: the model was made for %u", o->context, model->n_context);
    if (o->context > ATTENTION_MAX_KEYS || (uint64_t)o->max_sequences * o->context > UINT32_MAX)
        return error_set(ERR_USAGE, "%u sequences of %u tokens are more than this version keeps", o->max_sequences, o->context);
    o->chunk = MIN(o->chunk, o->context);
    return 0;
}

/* A spin pays only when all threads of the ranks that share these cores have one each. */
static int open_threads(struct engine *e)
{
    struct engine_options *o = &e->options;
    struct comm_sharing sharing = comm_sharing(e->world);
    cpu_set_t cores;
    if (!o->n_threads)
        o->n_threads = MAX(cpu_cores() / MAX(sharing.n, 1), 1);
    comm_set_threads(e->world, o->n_threads);
    int err = pool_open(&e->pool, o->n_threads, sharing.n && o->n_threads <= cpu_cores() / sharing.n);
    if (!err && o->is_pinned && cores_choose(&cores, cores_allowed(), o->n_threads, sharing.index, sharing.n, sched_getcpu()))
        pool_pin(e->pool, &cores);
    return err;
}

static int open_sampling(struct engine *e)
{
    size_t n_rows = e->limits.n_rows, n_threads = (size_t)pool_n_threads(e->pool);
    e->row_max = calloc(2 * n_rows, sizeof *e->row_max);
    e->raw_max = e->row_max ? e->row_max + n_rows : NULL;
    e->n_listed = calloc(n_rows, sizeof *e->n_listed);
    e->cut = calloc(n_rows, sizeof *e->cut);
    e->edited = calloc(n_threads * e->model.n_vocab, sizeof *e->edited);
    e->scratch = calloc(n_threads * e->model.n_vocab, sizeof *e->scratch);
    e->late_row = calloc(n_rows, sizeof *e->late_row);
    e->bins = calloc(MAX(e->mesh.size[AXIS_TP], n_threads) * SAMPLE_BINS, sizeof *e->bins);
    e->found = calloc(n_rows, sizeof *e->found);
    buffer_reserve(&e->result, result_max_bytes(e));
    bool have_all = e->row_max && e->n_listed && e->cut && e->edited && e->scratch && e->late_row && e->bins && e->found &&
                    !e->result.failed;
    for (size_t i = 0; have_all && i < n_rows && !e->options.full_logits; i++) {
        buffer_reserve(&e->found[i], result_max_row_bytes());
        have_all = !e->found[i].failed;
    }
    return have_all ? 0 : error_set(ERR_NO_MEMORY, "no memory for sampling");
}

static int open_rank(struct engine *e, const struct model_file *file)
{
    struct engine_options *o = &e->options;
    int err;
    if ((err = model_info_read(&e->model, file)) < 0)
        return err;
    if ((err = engine_options_resolve(o, &e->model)) < 0)
        return err;
    e->digest = options_digest(file, o);
    if ((err = open_threads(e)) < 0 || (err = open_program(e, file)) < 0)
        return err;
    e->is_last_stage = mesh_coordinate(&e->mesh, e->rank, AXIS_PP) + 1 == e->mesh.size[AXIS_PP];
    e->logits = program_output(e->program, "logits", &e->n_slice);
    e->vocab = engine_vocab(e, mesh_coordinate(&e->mesh, e->rank, AXIS_TP));
    if ((err = plan_open(&e->plan, &e->limits)) < 0)
        return err;
    e->plan_bytes = malloc(plan_max_bytes(e->plan));
    if (!e->plan_bytes)
        return error_set(ERR_NO_MEMORY, "no memory for step plans");
    if ((err = open_sampling(e)) < 0)
        return err;
    return e->rank == 0 ? leader_open(e) : 0;
}

int engine_open(struct engine **out, const struct model_file *file, const struct engine_options *options, struct comm *world)
{
    struct engine *e = calloc(1, sizeof *e);
    int err = comm_agree(world, e ? 0 : error_set(ERR_NO_MEMORY, "out of memory at start"));
    if (err < 0) {
        free(e);
        return err;
    }
    e->options = *options;
    e->mesh = options->mesh;
    e->world = world;
    e->rank = (uint32_t)comm_rank(world);
    e->n_ranks = (uint32_t)comm_size(world);
    if (e->n_ranks != mesh_n_ranks(&e->mesh)) {
        char layout[64];
        mesh_print(&e->mesh, layout);
        err = error_set(ERR_USAGE, "layout %s needs %u ranks, the world has %u", layout, mesh_n_ranks(&e->mesh), e->n_ranks);
        e->n_ranks = 0;
        engine_close(e);
        return err;
    }
    if ((err = open_groups(e)) < 0)
        comm_abort(world, error_exit_code(err));        /* half a group: other ranks can not be told otherwise */
    err = open_rank(e, file);
    if ((err = agree(e, err, e->digest)) < 0 || (err = processes_gather(&e->processes, world)) < 0) {
        e->n_ranks = 0;         /* nobody follows: close without a last plan */
        engine_close(e);
        return err;
    }
    *out = e;
    return 0;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    if (e->rank == 0)
        leader_close(e);
    program_close(e->program);
    probe_close(e->probe);
    pool_close(e->pool);
    plan_close(e->plan);
    free(e->plan_bytes);
    free(e->row_max);
    free(e->processes);
    for (uint32_t i = 0; e->found && i < e->limits.n_rows; i++)
        buffer_release(&e->found[i]);
    free(e->found);
    free(e->n_listed);
    free(e->cut);
    free(e->edited);
    free(e->scratch);
    free(e->late_row);
    free(e->bins);
    buffer_release(&e->late);
    buffer_release(&e->result);
    for (int a = 0; a < N_AXES; a++)
        comm_close(e->axis[a]);
    comm_close(e->stages);
    comm_close(e->control);
    free(e);
}

const struct model_info *engine_model(const struct engine *e)
{
    return &e->model;
}

uint32_t engine_longest(const struct engine *e)
{
    uint32_t most = e->options.context;
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (cache_blocks_table(&e->limits.cache[g], e->options.context) > e->limits.cache[g].n_all)
            most = MIN(most, e->limits.cache[g].n_all * BLOCK_TOKENS);
    return most;
}

uint32_t engine_context(const struct engine *e)
{
    return e->options.context;
}

uint32_t engine_chunk(const struct engine *e)
{
    return e->options.chunk;
}

const char *engine_isa(const struct engine *e)
{
    return e->kernels->name;
}

int engine_n_ranks(const struct engine *e)
{
    return (int)e->n_ranks;
}

const struct rank_process *engine_processes(const struct engine *e)
{
    return e->processes;
}

const struct rank_time *engine_rank_times(const struct engine *e)
{
    return e->time;
}

int engine_n_threads(const struct engine *e)
{
    return e->options.n_threads;
}

uint32_t engine_last_stage_rank(const struct engine *e, uint32_t group, uint32_t i)
{
    uint32_t first = mesh_peer(&e->mesh, 0, AXIS_DP, group);
    return mesh_peer(&e->mesh, mesh_peer(&e->mesh, first, AXIS_PP, e->mesh.size[AXIS_PP] - 1), AXIS_TP, i);
}

struct range engine_vocab(const struct engine *e, uint32_t i)
{
    struct label_info labels[N_LABELS] = { [LABEL_VOCAB] = { .n_elements = e->model.n_vocab, .width = 1, .unit = 16 } };
    return label_range(labels, LABEL_VOCAB, e->mesh.n_shares ? e->mesh.share : NULL, e->mesh.size[AXIS_TP], i);
}

/* ---- running ---- */
#define PROBE_BYTES (1ul << 30)         /* of the ranks of a host together: more than caches hold */

int engine_run_plan(struct engine *e, const struct plan *plan, const struct buffer *late, struct buffer *out)
{
    struct step step = plan_step(plan);
    for (uint32_t i = 0; i < plan->header.n_copies; i++)
        program_copy_block(e->program, plan->copy[i].cache_group, plan->copy[i].from, plan->copy[i].to);
    int err = step.n_all_tokens ? program_step(e->program, &step) : 0;
    return err < 0 || !engine_owes_result(e, plan) ? err : result_collect(e, plan, late, out);
}

bool engine_owes_result(const struct engine *e, const struct plan *plan)
{
    return e->is_last_stage && plan->header.n_all_tokens;
}

/* All ranks do the same at a time, since they share memory and perhaps cores. */
int engine_own_probe(struct engine *e)
{
    int err = e->probe ? 0 : probe_open(&e->probe, e->pool, e->kernels, PROBE_BYTES / (size_t)comm_host_ranks(e->world));
    for (int what = 0; !err && what < N_PROBES; what++)
        if ((err = comm_barrier(e->control)) == 0)
            probe_run(e->probe, (enum probe_what)what, &e->peaks);
    program_serve(e->program);
    return err;
}

struct rank_time engine_own_time(const struct engine *e)
{
    struct program_counters c;
    program_counters(e->program, &c);
    return (struct rank_time){ .compute_s = MAX(c.step_s - c.wait_s - c.wire_s, 0), .wait_s = c.wait_s, .wire_s = c.wire_s };
}

void engine_own_counters(struct engine *e, struct rank_counters *out, bool reset)
{
    struct program_counters c;
    struct rank_time time = engine_own_time(e);
    program_counters(e->program, &c);
    *out = (struct rank_counters){ .rank = e->rank, .weight_bytes = c.weight_bytes, .weights_mapped = c.weights_mapped,
                                   .peak_bytes = memory_peak(), .wait_s = time.wait_s, .wire_s = time.wire_s,
                                   .compute_s = time.compute_s, .bytes_sent = c.bytes_sent,
                                   .n_hidden = c.n_hidden, .peaks = e->peaks };
    memcpy(out->work, c.work, sizeof out->work);
    memcpy(out->hidden_square, c.hidden_square, sizeof out->hidden_square);
    if (reset)
        program_counters_reset(e->program);
}
