/* cmd_quantize.c: a model file with its weights in fewer bits. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "quantize/convert.h"
#include "quantize/encode.h"

#include <strings.h>

static int find_type(const char *word, enum dtype *out)
{
    struct buffer all = { 0 };
    for (enum dtype type = 0; type < N_DTYPES; type++) {
        if (!encode_can(type))
            continue;
        buffer_printf(&all, " %s", dtype_info[type].name);
        if (word && !strcasecmp(word, dtype_info[type].name)) {
            *out = type;
            buffer_release(&all);
            return 0;
        }
    }
    int err = error_set(ERR_USAGE, "--type %s: wanted one of%s", word ? word : "is missing", all.bytes ? all.bytes : "");
    buffer_release(&all);
    return err;
}

static void show_progress(uint64_t done, uint64_t all, void *user)
{
    double *next_s = user;
    if (seconds_now() < *next_s)
        return;
    *next_s = seconds_now() + 1;
    log_info("quantizing: %.0f %%", 100 * (double)done / (double)all);
}

/* A block type made of another has both their errors. */
static void warn_of_loss(const struct recipe *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += dtype_info[r->item[i].from->type].block > 1 && dtype_info[r->item[i].type].block > 1 &&
            r->item[i].type != r->item[i].from->type;
    if (n)
        log_warning("%zu tensors are quantized already, and lose a second time; a file with F32, F16 or BF16 gives a better one", n);
}

/* "210 tensors Q5_0: their rows are no multiple of 256", a line for each type and reason. */
static void print_recipe(struct buffer *out, const struct recipe *r)
{
    static const char *const why[N_RECIPE_REASONS] = {
        [RECIPE_WANTED] = "as wanted", [RECIPE_KEPT] = "as they were: norms, vectors and the like",
        [RECIPE_HEAD] = "gives the logits", [RECIPE_ROW] = "rows that blocks of 256 do not divide",
    };
    for (enum recipe_reason reason = 0; reason < N_RECIPE_REASONS; reason++)
        for (enum dtype type = 0; type < N_DTYPES; type++) {
            size_t n = 0, n_weights = 0;
            for (size_t i = 0; i < r->n; i++)
                if (r->item[i].reason == reason && r->item[i].type == type) {
                    const struct model_tensor *t = r->item[i].from;
                    n++;
                    n_weights += t->dims[0] * model_tensor_rows(t);
                }
            if (n)
                buffer_printf(out, "%6zu tensors %-7s %12zu weights, %s\n", n, dtype_info[type].name, n_weights, why[reason]);
        }
}

static int quantize(struct options *o, enum dtype type, struct arena *arena, struct buffer *out)
{
    struct model_file *file = NULL;
    struct pool *pool = NULL;
    struct recipe recipe;
    double next_s = seconds_now() + 1;
    uint64_t n_bytes;
    int err;
    if ((err = model_file_open(&file, o->model)) < 0 || (err = recipe_make(&recipe, arena, file, type, o->pure)) < 0 ||
        (err = pool_open(&pool, o->threads ? (int)o->threads : cpu_cores(), false)) < 0)
        goto done;
    struct convert_options options = { .path = o->rest[0], .replace = o->force, .pool = pool, .progress = show_progress, .user = &next_s };
    warn_of_loss(&recipe);
    if ((err = convert_model(&recipe, &options, &n_bytes)) < 0)
        goto done;
    print_recipe(out, &recipe);
    buffer_printf(out, "%zu bytes became %llu\n", model_file_bytes(file), (unsigned long long)n_bytes);
    err = print_buffer(out);
done:
    pool_close(pool);
    model_file_close(file);
    return err;
}

static int run(struct options *o, int argc, char **argv)
{
    struct arena arena = { 0 };
    struct buffer out = { 0 };
    enum dtype type = DTYPE_F32;
    int err;
    (void)argc, (void)argv;
    if ((err = find_type(o->type, &type)) == 0)
        err = quantize(o, type, &arena, &out);
    buffer_release(&out);
    arena_close(&arena);
    return err < 0 ? report_error(err) : 0;
}

const struct command command_quantize = {
    "quantize", "IN OUT --type T [FLAGS]", "writes a model file with its weights in another type",
    "Each block gets the scales that give the least squared error, found by search; the bytes do not depend on --threads.\n"
    "Norms, vectors and routers stay as they are; the matrix that gives the logits gets Q6_K where T has fewer bits; rows that\n"
    "blocks of 256 do not divide get a type with blocks of 32.  OUT is there when it is whole, and not before.\n\n"
    "  stoa quantize model-f16.gguf model-q4_k.gguf --type Q4_K",
    OPTIONS_QUANTIZE, 2, 2, run,
};
