#include "run/weights.h"

#include "base/base.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TASK_PANELS 64              /* panels that a thread packs at a time */

struct part {
    const struct tensor *tensor;
    const struct model_tensor *source;
    unsigned char *data;            /* in the region */
    size_t n_bytes;
};

struct task {
    struct part *part;
    uint32_t panel0, panel1;
};

struct weights {
    const struct model_file *file;
    struct part *part;
    struct part **by_id;            /* [n_tensors] */
    uint32_t n_parts, n_tensors;
    unsigned char *region;
    size_t n_bytes;
    /* while loading */
    struct task *task;
    uint32_t n_tasks;
    atomic_uint next;
    atomic_size_t n_done;
    weights_progress_fn *progress;
    void *user;
};

static uint32_t range_size(struct range r)
{
    return r.end - r.begin;
}

static size_t part_bytes(const struct weight *w)
{
    size_t n = w->use == WEIGHT_MATMUL ? matmul_packed_bytes(w->type, range_size(w->rows), range_size(w->columns))
             : w->use == WEIGHT_VECTOR ? sizeof(float) * range_size(w->columns) : 0;
    return n;
}

static void pack_task(const struct model_file *file, const struct task *task)
{
    const struct weight *w = task->part->tensor->weight;
    const struct model_tensor *source = task->part->source;
    size_t row_bytes = dtype_bytes(w->type, w->n_columns);
    const unsigned char *rows = (const unsigned char *)source->data + w->rows.begin * row_bytes + dtype_bytes(w->type, w->columns.begin);
    if (w->use == WEIGHT_VECTOR)
        dequantize_row((float *)task->part->data, rows, w->type, range_size(w->columns));
    else
        matmul_pack(task->part->data, w->type, rows, row_bytes, range_size(w->rows), range_size(w->columns), task->panel0, task->panel1);
    size_t first = (size_t)task->panel0 * PANEL_ROWS, last = MIN((size_t)task->panel1 * PANEL_ROWS, range_size(w->rows));
    model_file_drop_pages(file, rows + first * row_bytes, (last - first) * row_bytes);
}

static void load(void *user, int thread)
{
    struct weights *weights = user;
    cpu_float_mode_set();
    for (uint32_t i; (i = atomic_fetch_add(&weights->next, 1)) < weights->n_tasks;) {
        struct task *task = &weights->task[i];
        size_t n_tasks = DIV_UP(DIV_UP(range_size(task->part->tensor->weight->rows), PANEL_ROWS), TASK_PANELS);
        pack_task(weights->file, task);
        size_t done = atomic_fetch_add(&weights->n_done, task->part->n_bytes / MAX(n_tasks, 1));
        if (thread == 0 && weights->progress)
            weights->progress(done, weights->n_bytes, weights->user);
    }
}

static void add_part(struct tensor *t, void *user)
{
    struct weights *weights = user;
    struct part *part = &weights->part[weights->n_parts++];
    part->tensor = t;
    part->source = model_file_tensor(weights->file, t->weight->name);
    part->n_bytes = part_bytes(t->weight);
    weights->by_id[t->id] = part;
    weights->n_bytes += ROUND_UP(part->n_bytes, CACHE_LINE);
}

/* Gives every part its place and cuts the work into tasks. */
static int lay_out(struct weights *weights)
{
    size_t at = 0, n_tasks = 0;
    for (uint32_t i = 0; i < weights->n_parts; i++)
        n_tasks += 1 + range_size(weights->part[i].tensor->weight->rows) / (PANEL_ROWS * TASK_PANELS);
    if (!(weights->task = calloc(n_tasks + 1, sizeof *weights->task)))
        return error_set(ERR_NO_MEMORY, "out of memory for loading");
    for (uint32_t i = 0; i < weights->n_parts; i++) {
        struct part *part = &weights->part[i];
        const struct weight *w = part->tensor->weight;
        if (w->use == WEIGHT_LOOKUP || !part->n_bytes)
            continue;
        part->data = weights->region + at;
        at += ROUND_UP(part->n_bytes, CACHE_LINE);
        uint32_t n_panels = w->use == WEIGHT_VECTOR ? 1 : DIV_UP(range_size(w->rows), PANEL_ROWS);
        for (uint32_t panel = 0; panel < n_panels; panel += TASK_PANELS)
            weights->task[weights->n_tasks++] = (struct task){ part, panel, MIN(panel + TASK_PANELS, n_panels) };
    }
    return 0;
}

static int take_region(struct weights *weights)
{
    uint64_t available = memory_available();
    if (!weights->n_bytes)
        return 0;
    if (weights->n_bytes > available)
        return error_set(ERR_NO_MEMORY, "%zu MB of weights do not fit into the %llu MB that are free; more ranks (--layout) hold smaller parts",
                         weights->n_bytes >> 20, (unsigned long long)(available >> 20));
    void *region = mmap(NULL, weights->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return error_set(ERR_NO_MEMORY, "no memory for %zu MB of weights; more ranks (--layout) hold smaller parts", weights->n_bytes >> 20);
    madvise(region, weights->n_bytes, MADV_HUGEPAGE);
    weights->region = region;
    return 0;
}

int weights_open(struct weights **out, struct graph *g, const struct model_file *file, struct pool *pool,
                 weights_progress_fn *progress, void *user)
{
    struct weights *weights = calloc(1, sizeof *weights);
    int err = 0;
    if (weights) {
        *weights = (struct weights){ .file = file, .n_tensors = g->n_tensors, .progress = progress, .user = user };
        weights->part = calloc(g->n_tensors + 1, sizeof *weights->part);
        weights->by_id = calloc(g->n_tensors + 1, sizeof *weights->by_id);
    }
    if (!weights || !weights->part || !weights->by_id) {
        err = error_set(ERR_NO_MEMORY, "out of memory for weights");
        goto done;
    }
    graph_each_weight(g, add_part, weights);
    if ((err = take_region(weights)) < 0 || (err = lay_out(weights)) < 0)
        goto done;
    pool_run(pool, load, weights);
    free(weights->task);
    weights->task = NULL;
    *out = weights;
    weights = NULL;
done:
    weights_close(weights);
    return err;
}

void weights_close(struct weights *weights)
{
    if (!weights)
        return;
    if (weights->region)
        munmap(weights->region, weights->n_bytes);
    free(weights->task);
    free(weights->part);
    free(weights->by_id);
    free(weights);
}

const void *weights_data(const struct weights *weights, const struct tensor *t)
{
    const struct part *part = weights->by_id[t->id];
    return t->weight->use == WEIGHT_LOOKUP ? part->source->data : part->data;
}

size_t weights_bytes(const struct weights *weights)
{
    return weights->n_bytes;
}
