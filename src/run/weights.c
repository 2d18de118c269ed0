#include "run/weights.h"

#include "base/base.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TASK_PANELS 64              /* panels that a thread packs at a time */

struct part {
    const struct tensor *tensor;
    const struct model_tensor **source;     /* one, or one for each expert of the slice */
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
    struct arena memory;            /* of the parts' sources */
    bool failed;
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

static bool is_packed(const struct weight *w)
{
    return w->use == WEIGHT_MATMUL || w->use == WEIGHT_EXPERTS;
}

_Static_assert(WEIGHT_PANEL == PANEL_ROWS, "the graph cuts weights where kernels do");

static size_t part_bytes(const struct weight *w)
{
    if (is_packed(w))
        return range_size(w->stored) * matmul_packed_bytes(w->type, PANEL_ROWS, range_size(w->columns));
    return w->use == WEIGHT_VECTOR ? sizeof(float) * range_size(w->columns) : 0;
}

/* The first element of the slice of one expert's matrix (the only one, but for experts). */
static const unsigned char *slice_begin(const struct part *part, uint32_t expert)
{
    const struct weight *w = part->tensor->weight;
    size_t row_bytes = dtype_bytes(w->type, w->n_columns);
    const struct model_tensor *source = part->source[w->per_expert ? expert - w->experts.begin : 0];
    size_t skipped = w->per_expert ? 0 : (size_t)expert * w->n_rows;
    return (const unsigned char *)source->data + (skipped + w->rows.begin) * row_bytes + dtype_bytes(w->type, w->columns.begin);
}

/* Panels of one matrix; `to` is the place of the first. */
static void pack_panels(const struct model_file *file, const struct part *part, uint32_t expert, uint32_t panel0, uint32_t panel1, unsigned char *to)
{
    const struct weight *w = part->tensor->weight;
    size_t row_bytes = dtype_bytes(w->type, w->n_columns), first = (size_t)panel0 * PANEL_ROWS;
    uint32_t n_rows = range_size(w->rows) - (uint32_t)first;
    const unsigned char *rows = slice_begin(part, expert) + first * row_bytes;
    matmul_pack(to, w->type, rows, row_bytes, n_rows, range_size(w->columns), 0, panel1 - panel0);
    model_file_drop_pages(file, rows, MIN((panel1 - panel0) * PANEL_ROWS, n_rows) * row_bytes);
}

/* Panels count through all experts of the slice. */
static void pack_task(const struct model_file *file, const struct task *task)
{
    const struct part *part = task->part;
    const struct weight *w = part->tensor->weight;
    if (!is_packed(w)) {
        const unsigned char *from = slice_begin(part, 0);
        dequantize_row((float *)part->data, from, w->type, range_size(w->columns));
        model_file_drop_pages(file, from, dtype_bytes(w->type, range_size(w->columns)));
        return;
    }
    uint32_t per_expert = DIV_UP(range_size(w->rows), PANEL_ROWS);
    size_t panel_bytes = matmul_packed_bytes(w->type, PANEL_ROWS, range_size(w->columns));
    for (uint32_t at = task->panel0, next; at < task->panel1; at = next) {
        uint32_t expert = at / per_expert;
        next = MIN(task->panel1, (expert + 1) * per_expert);
        pack_panels(file, part, w->experts.begin + expert, at - expert * per_expert, next - expert * per_expert,
                    part->data + (at - w->stored.begin) * panel_bytes);
    }
}

static void load(void *user, int thread)
{
    struct weights *weights = user;
    cpu_float_mode_set();
    for (uint32_t i; (i = atomic_fetch_add(&weights->next, 1)) < weights->n_tasks;) {
        struct task *task = &weights->task[i];
        pack_task(weights->file, task);
        size_t n_panels = MAX(range_size(task->part->tensor->weight->stored), 1);
        size_t done = atomic_fetch_add(&weights->n_done, task->part->n_bytes / n_panels * (task->panel1 - task->panel0));
        if (thread == 0 && weights->progress)
            weights->progress(done, weights->n_bytes, weights->user);
    }
}

/* The family has looked that they are there. */
static void find_source(struct weights *weights, struct part *part)
{
    const struct weight *w = part->tensor->weight;
    uint32_t n = w->per_expert ? range_size(w->experts) : 1;
    part->source = arena_array(&weights->memory, const struct model_tensor *, n + 1);
    for (uint32_t i = 0; part->source && i < n; i++) {
        char name[128];
        if (w->per_expert)          /* then it is a format */
            snprintf(name, sizeof name, w->name, w->experts.begin + i);
        part->source[i] = model_file_tensor(weights->file, w->per_expert ? name : w->name);
    }
    weights->failed |= !part->source;
}

static void add_part(struct tensor *t, void *user)
{
    struct weights *weights = user;
    struct part *part = &weights->part[weights->n_parts++];
    part->tensor = t;
    find_source(weights, part);
    part->n_bytes = part_bytes(t->weight);
    weights->by_id[t->id] = part;
    weights->n_bytes += ROUND_UP(part->n_bytes, CACHE_LINE);
}

/* Gives every part its place and cuts the work into tasks. */
static int lay_out(struct weights *weights)
{
    size_t at = 0, n_tasks = 0;
    for (uint32_t i = 0; i < weights->n_parts; i++)
        n_tasks += 1 + range_size(weights->part[i].tensor->weight->stored) / TASK_PANELS;
    if (!(weights->task = calloc(n_tasks + 1, sizeof *weights->task)))
        return error_set(ERR_NO_MEMORY, "out of memory for loading");
    for (uint32_t i = 0; i < weights->n_parts; i++) {
        struct part *part = &weights->part[i];
        const struct weight *w = part->tensor->weight;
        if (w->use == WEIGHT_LOOKUP || !part->n_bytes)
            continue;
        part->data = weights->region + at;
        at += ROUND_UP(part->n_bytes, CACHE_LINE);
        for (uint32_t panel = w->stored.begin; panel < w->stored.end; panel += TASK_PANELS)
            weights->task[weights->n_tasks++] = (struct task){ part, panel, MIN(panel + TASK_PANELS, w->stored.end) };
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
    if (weights->failed) {
        err = error_set(ERR_NO_MEMORY, "out of memory for weights");
        goto done;
    }
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
    arena_close(&weights->memory);
    free(weights);
}

const void *weights_data(const struct weights *weights, const struct tensor *t)
{
    const struct part *part = weights->by_id[t->id];
    return t->weight->use == WEIGHT_LOOKUP ? part->source[0]->data : part->data;
}

size_t weights_bytes(const struct weights *weights)
{
    return weights->n_bytes;
}
