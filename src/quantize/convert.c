#include "quantize/convert.h"

#include "base/base.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "format/gguf_write.h"
#include "quantize/encode.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_WEIGHTS ((size_t)1 << 22)     /* that are read, encoded and written at a time, in whole rows */
#define IMPORTANCE_LEAST 1e-3f
#define QUANTIZATION_VERSION 2              /* of the block types' layouts; the only one that files have today */

struct chunk {
    const struct recipe_item *item;
    const uint8_t *from;
    uint8_t *to;
    size_t n_rows;
};

struct convert {
    const struct recipe *recipe;
    const struct convert_options *options;
    struct gguf_writer *writer;
    size_t row_max;                         /* weights of the longest row */
    float *row;                             /* [threads][row_max] */
    double *square;                         /* [row_max], of the columns of a tensor, and */
    float *importance;                      /* what follows from it */
    uint8_t *encoded;                       /* of a chunk */
    struct chunk chunk;
    atomic_size_t next_row, bad_row;        /* bad_row: the first with a weight that cannot be; n_rows when there is none */
    uint64_t n_done, n_weights;
};

/* ---- rows ---- */

/* The first weight that the type cannot hold, or n. */
static size_t find_bad(const float *row, size_t n, enum dtype type)
{
    const float largest = encode_largest(type);
    size_t n_bad = 0, i = 0;
    for (size_t k = 0; k < n; k++)
        n_bad += !(fabsf(row[k]) <= largest);
    if (!n_bad)
        return n;
    while (fabsf(row[i]) <= largest)
        i++;
    return i;
}

static void note_bad_row(struct convert *c, size_t row)
{
    size_t first = atomic_load(&c->bad_row);
    while (row < first && !atomic_compare_exchange_weak(&c->bad_row, &first, row))
        ;
}

static void encode_rows(void *user, int thread)
{
    struct convert *c = user;
    const struct chunk *chunk = &c->chunk;
    const enum dtype from = chunk->item->from->type, to = chunk->item->type;
    const size_t n = chunk->item->from->dims[0], from_bytes = dtype_bytes(from, n), to_bytes = dtype_bytes(to, n);
    float *row = c->row + (size_t)thread * c->row_max;
    cpu_float_mode_set();
    for (size_t i; (i = atomic_fetch_add(&c->next_row, 1)) < chunk->n_rows;) {
        dequantize_row(row, chunk->from + i * from_bytes, from, n);
        if (find_bad(row, n, to) < n)
            note_bad_row(c, i);
        else if (from == to)
            memcpy(chunk->to + i * to_bytes, chunk->from + i * from_bytes, to_bytes);
        else
            encode_row(chunk->to + i * to_bytes, row, chunk->item->by_column ? c->importance : NULL, to, n);
    }
}

static int say_bad_row(struct convert *c, size_t first_row)
{
    const struct model_tensor *t = c->chunk.item->from;
    const enum dtype type = c->chunk.item->type;
    const size_t row = atomic_load(&c->bad_row), n = t->dims[0];
    dequantize_row(c->row, c->chunk.from + row * dtype_bytes(t->type, n), t->type, n);
    const size_t column = find_bad(c->row, n, type);
    const float value = c->row[column];
    if (!isfinite(value))
        return error_set(ERR_BAD_FILE, "%s: tensor %s: row %zu, column %zu is %s", model_file_path(c->recipe->file), t->name,
                         first_row + row, column, isnan(value) ? "not a number" : "infinite");
    return error_set(ERR_BAD_FILE, "%s: tensor %s: row %zu, column %zu is %g, too large for %s", model_file_path(c->recipe->file), t->name,
                     first_row + row, column, value, dtype_info[type].name);
}

/* ---- tensors ---- */
static bool is_copied(const struct recipe_item *item)
{
    return !dtype_info[item->from->type].weight;        /* no floats at all */
}

static int convert_rows(struct convert *c, const struct recipe_item *item, size_t first, size_t n_rows)
{
    const struct model_tensor *t = item->from;
    const size_t row_bytes = t->n_bytes / model_tensor_rows(t);
    c->chunk = (struct chunk){ item, (const uint8_t *)t->data + first * row_bytes, c->encoded, n_rows };
    atomic_store(&c->next_row, 0);
    atomic_store(&c->bad_row, n_rows);
    pool_run(c->options->pool, encode_rows, c);
    if (atomic_load(&c->bad_row) < n_rows)
        return say_bad_row(c, first);
    int err = gguf_writer_data(c->writer, c->encoded, n_rows * dtype_bytes(item->type, t->dims[0]));
    model_file_drop_pages(c->recipe->file, c->chunk.from, n_rows * row_bytes);
    return err;
}

/* What the weights of a column come to together, by the mean of all columns.  A floor, so that each counts. */
static void weigh_columns(struct convert *c, const struct model_tensor *t)
{
    const size_t n = t->dims[0], n_rows = model_tensor_rows(t), row_bytes = dtype_bytes(t->type, n), step = MAX(CHUNK_WEIGHTS / n, 1);
    const uint8_t *data = t->data;
    double sum = 0;
    memset(c->square, 0, n * sizeof *c->square);
    for (size_t row = 0; row < n_rows; row++) {
        dequantize_row(c->row, data + row * row_bytes, t->type, n);
        for (size_t i = 0; i < n; i++)
            c->square[i] += (double)c->row[i] * c->row[i];
        if ((row + 1) % step == 0)
            model_file_drop_pages(c->recipe->file, data + (row + 1 - step) * row_bytes, step * row_bytes);
    }
    for (size_t i = 0; i < n; i++)
        sum += c->square[i];
    for (size_t i = 0; i < n; i++)
        c->importance[i] = sum > 0 ? IMPORTANCE_LEAST + (float)(c->square[i] * (double)n / sum) : 1;
}

static int convert_tensor(struct convert *c, const struct recipe_item *item)
{
    const struct model_tensor *t = item->from;
    const size_t n_rows = model_tensor_rows(t), step = MAX(CHUNK_WEIGHTS / t->dims[0], 1);
    int err = 0;
    if (is_copied(item))
        return gguf_writer_data(c->writer, t->data, t->n_bytes);
    if (item->by_column)
        weigh_columns(c, t);
    for (size_t row = 0; !err && row < n_rows; row += step) {
        size_t n = MIN(step, n_rows - row);
        err = convert_rows(c, item, row, n);
        c->n_done += n * t->dims[0];
        if (!err && c->options->progress)
            c->options->progress(c->n_done, c->n_weights, c->options->user);
    }
    return err;
}

/* ---- the file ---- */
static void describe(struct convert *c)
{
    const struct gguf_change changes[] = {
        { .key = "general.file_type", .value = recipe_file_type(c->recipe->wanted) },
        { .key = "general.quantization_version", .value = QUANTIZATION_VERSION },
        { .key = "split.no", .remove = true },
        { .key = "split.count", .remove = true },
        { .key = "split.tensors.count", .remove = true },
    };
    gguf_writer_copy_keys(c->writer, c->recipe->file, changes, COUNT_OF(changes));
    for (size_t i = 0; i < c->recipe->n; i++) {
        struct model_tensor t = *c->recipe->item[i].from;
        t.type = c->recipe->item[i].type;
        gguf_writer_add_tensor(c->writer, &t);
    }
}

static int take_memory(struct convert *c)
{
    size_t encoded_max = 0;
    for (size_t i = 0; i < c->recipe->n; i++) {
        const struct recipe_item *item = &c->recipe->item[i];
        const size_t n = item->from->dims[0], n_rows = model_tensor_rows(item->from);
        if (is_copied(item))
            continue;
        c->row_max = MAX(c->row_max, n);
        c->n_weights += n * n_rows;
        encoded_max = MAX(encoded_max, MIN(MAX(CHUNK_WEIGHTS / n, 1), n_rows) * dtype_bytes(item->type, n));
    }
    c->row = malloc(((size_t)pool_n_threads(c->options->pool) * c->row_max + 1) * sizeof *c->row);
    c->square = malloc((c->row_max + 1) * sizeof *c->square);
    c->importance = malloc((c->row_max + 1) * sizeof *c->importance);
    c->encoded = malloc(encoded_max + 1);
    bool ok = c->row && c->square && c->importance && c->encoded;
    return ok ? 0 : error_set(ERR_NO_MEMORY, "no memory for rows of %zu weights", c->row_max);
}

int convert_model(const struct recipe *recipe, const struct convert_options *options, uint64_t *n_bytes)
{
    struct convert c = { .recipe = recipe, .options = options };
    int err;
    cpu_float_mode_set();               /* columns are weighed in this thread */
    if (model_file_holds(recipe->file, options->path))
        return error_set(ERR_USAGE, "%s: is the model that is read", options->path);
    if ((err = gguf_writer_open(&c.writer, options->path, options->replace)) < 0 || (err = take_memory(&c)) < 0)
        goto done;
    describe(&c);
    *n_bytes = gguf_writer_bytes(c.writer);
    err = gguf_writer_begin(c.writer);
    for (size_t i = 0; !err && i < recipe->n; i++)
        err = convert_tensor(&c, &recipe->item[i]);
    if (!err)
        err = gguf_writer_commit(c.writer);
done:
    gguf_writer_close(c.writer);
    free(c.row);
    free(c.square);
    free(c.importance);
    free(c.encoded);
    return err;
}
