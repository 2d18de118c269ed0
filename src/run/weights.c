#include "run/weights.h"

#include "base/base.h"
#include "base/error.h"
#include "base/life.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/panel.h"
#include "run/packed_file.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#define TASK_PANELS 64              /* panels that a thread packs at a time */

struct part {
    const struct tensor *tensor;
    const struct model_tensor **source;     /* one, or one for each expert of the slice */
    uint32_t n_sources;
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
    struct packed_file packed;      /* then the region is in it, and read-only */
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
static void pack_panels(const struct model_file *file, const struct part *part, uint32_t expert, uint32_t panel0, uint32_t panel1,
                        unsigned char *to)
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
        life_sign();
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
    uint32_t n = part->n_sources = w->per_expert ? range_size(w->experts) : 1;
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

static bool is_in_region(const struct part *part)
{
    return part->tensor->weight->use != WEIGHT_LOOKUP && part->n_bytes;
}

static void place_parts(struct weights *weights)
{
    size_t at = 0;
    for (uint32_t i = 0; i < weights->n_parts; i++) {
        struct part *part = &weights->part[i];
        if (!is_in_region(part))
            continue;
        part->data = weights->region + at;
        at += ROUND_UP(part->n_bytes, CACHE_LINE);
    }
}

static int cut_into_tasks(struct weights *weights)
{
    size_t n_tasks = 0;
    for (uint32_t i = 0; i < weights->n_parts; i++)
        n_tasks += 1 + range_size(weights->part[i].tensor->weight->stored) / TASK_PANELS;
    if (!(weights->task = calloc(n_tasks + 1, sizeof *weights->task)))
        return error_set(ERR_NO_MEMORY, "out of memory for loading");
    for (uint32_t i = 0; i < weights->n_parts; i++) {
        struct part *part = &weights->part[i];
        const struct weight *w = part->tensor->weight;
        for (uint32_t panel = w->stored.begin; is_in_region(part) && panel < w->stored.end; panel += TASK_PANELS)
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
        return error_set(ERR_NO_MEMORY,
                         "%zu MB of weights do not fit into the %llu MB that are free; more ranks (--layout) hold smaller parts",
                         weights->n_bytes >> 20, (unsigned long long)(available >> 20));
    void *region = mmap(NULL, weights->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return error_set(ERR_NO_MEMORY, "no memory for %zu MB of weights; more ranks (--layout) hold smaller parts",
                         weights->n_bytes >> 20);
    madvise(region, weights->n_bytes, MADV_HUGEPAGE);
    weights->region = region;
    return 0;
}

static int pack(struct weights *weights, struct pool *pool)
{
    int err;
    if ((err = take_region(weights)) < 0 || (err = cut_into_tasks(weights)) < 0)
        return err;
    place_parts(weights);
    pool_run(pool, load, weights);
    free(weights->task);
    weights->task = NULL;
    return 0;
}

/* ---- packed files ---- */
/* What the part's bytes follow from, but for the tensors' data. */
static void add_description(XXH3_state_t *hash, const struct part *part)
{
    const struct weight *w = part->tensor->weight;
    const uint64_t numbers[] = {
        w->type, w->use, w->n_rows, w->n_columns, w->rows.begin, w->rows.end, w->columns.begin, w->columns.end,
        w->experts.begin, w->experts.end, w->per_expert, w->stored.begin, w->stored.end, part->n_bytes,
    };
    XXH3_128bits_update(hash, w->name, strlen(w->name) + 1);
    XXH3_128bits_update(hash, numbers, sizeof numbers);
}

static int make_key(struct packed_key *out, const struct weights *weights)
{
    const uint64_t start[] = { PANEL_LAYOUT_VERSION, PANEL_ROWS, model_file_digest(weights->file) };
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return error_set(ERR_NO_MEMORY, "out of memory for loading");
    XXH3_128bits_reset(hash);
    XXH3_128bits_update(hash, start, sizeof start);
    for (uint32_t i = 0; i < weights->n_parts; i++) {
        const struct part *part = &weights->part[i];
        if (!is_in_region(part))
            continue;
        add_description(hash, part);
        for (uint32_t s = 0; s < part->n_sources; s++) {
            unsigned char sample[MODEL_SAMPLE_BYTES];
            XXH3_128bits_update(hash, sample, model_file_sample(weights->file, part->source[s], sample));
        }
    }
    XXH128_hash_t h = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    *out = (struct packed_key){ { h.high64, h.low64 }, model_file_stamp(weights->file) };
    return 0;
}

/* Maps what an earlier start has packed, or packs, and writes that for the next. */
static int map_or_pack(struct weights *weights, struct pool *pool, const char *folder)
{
    struct packed_key key;
    int err = make_key(&key, weights);
    if (err < 0)
        return err;
    if ((err = packed_file_open(&weights->packed, folder, &key, weights->n_bytes, pool)) == 0) {
        weights->region = (unsigned char *)(uintptr_t)weights->packed.bytes;
        place_parts(weights);
        return 0;
    }
    if (err < 0)
        log_own("%s; it is made anew", error_text());
    if ((err = pack(weights, pool)) < 0)
        return err;
    if (packed_file_write(folder, &key, weights->region, weights->n_bytes, pool) < 0)
        log_warning("--packed-cache: %s", error_text());
    return 0;
}

int weights_open(struct weights **out, struct graph *g, const struct model_file *file, struct pool *pool, const char *packed_cache,
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
    if ((err = packed_cache && weights->n_bytes ? map_or_pack(weights, pool, packed_cache) : pack(weights, pool)) < 0)
        goto done;
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
    if (weights->region && !weights->packed.map)
        munmap(weights->region, weights->n_bytes);
    packed_file_close(&weights->packed);
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

bool weights_are_mapped(const struct weights *weights)
{
    return weights->packed.map;
}

size_t weights_bytes(const struct weights *weights)
{
    return weights->n_bytes;
}
