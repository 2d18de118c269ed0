#include "model/model.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct model_family *const families[] = { &model_llama };

static int find_family(const struct model_family **out, const struct model_file *file)
{
    const char *name;
    int err = model_file_require_string(file, "general.architecture", &name, NULL);
    if (err < 0)
        return err;
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (!strcmp(families[i]->architecture, name)) {
            *out = families[i];
            return 0;
        }
    return error_set(ERR_BAD_FILE, "general.architecture: \"%s\" is not supported (this version runs: llama)", name);
}

static void key_name(char *key, size_t size, const struct model_file *file, const char *suffix)
{
    const char *name = "";
    model_file_get_string(file, "general.architecture", &name, NULL);
    snprintf(key, size, "%s.%s", name, suffix);
}

int model_u32(const struct model_file *file, const char *suffix, uint32_t min, uint32_t max, uint32_t *out)
{
    char key[128];
    uint64_t value;
    key_name(key, sizeof key, file, suffix);
    int err = model_file_require_u64(file, key, min, max, &value);
    if (err == 0)
        *out = (uint32_t)value;
    return err;
}

int model_f32(const struct model_file *file, const char *suffix, float *out)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_require_f32(file, key, out);
}

int model_optional_u32(const struct model_file *file, const char *suffix, uint32_t min, uint32_t max, uint32_t *out)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_has(file, key) ? model_u32(file, suffix, min, max, out) : 0;
}

int model_optional_f32(const struct model_file *file, const char *suffix, float *out)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_has(file, key) ? model_f32(file, suffix, out) : 0;
}

bool model_has(const struct model_file *file, const char *name)
{
    return model_file_tensor(file, name) != NULL;
}

/* A vector is stored as f32 whatever it is in the file; a matrix must be of a type that a matmul takes. */
static bool type_fits(enum weight_use use, enum dtype type)
{
    return use == WEIGHT_VECTOR ? dtype_info[type].weight && dtype_info[type].block == 1 : dtype_info[type].weight;
}

struct tensor *model_weight(struct graph *g, const struct model_file *file, enum weight_use use, struct dim rows, struct dim columns,
                            const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const struct model_tensor *t = model_file_tensor(file, name);
    if (!t) {
        error_set(ERR_BAD_FILE, "tensor %s is missing", name);
        return NULL;
    }
    if (!type_fits(use, t->type)) {
        error_set(ERR_BAD_FILE, "tensor %s: type %s does not serve here", name, dtype_info[t->type].name);
        return NULL;
    }
    bool vector = use == WEIGHT_VECTOR;
    if (t->dims[0] != columns.add || t->dims[1] != rows.add || t->n_dims != (vector ? 1 : 2)) {
        error_set(ERR_BAD_FILE, "tensor %s: dims are %llu x %llu, the hyperparameters give %llu x %llu", name, (unsigned long long)t->dims[0],
                  (unsigned long long)t->dims[1], (unsigned long long)columns.add, (unsigned long long)rows.add);
        return NULL;
    }
    return graph_weight(g, name, t->type, use, rows, columns);
}

int model_info_read(struct model_info *info, const struct model_file *file)
{
    const struct model_family *family;
    int err = find_family(&family, file);
    if (err < 0)
        return err;
    const struct model_tensor *embedding = model_file_tensor(file, "token_embd.weight");
    if (!embedding || embedding->n_dims != 2 || embedding->dims[1] > INT32_MAX)
        return error_set(ERR_BAD_FILE, "tensor token_embd.weight is missing or no matrix");
    *info = (struct model_info){ .architecture = family->architecture, .n_vocab = (uint32_t)embedding->dims[1] };
    if ((err = model_u32(file, "block_count", 1, 1024, &info->n_layers)) < 0 ||
        (err = model_u32(file, "context_length", 1, 1u << 30, &info->n_context)) < 0)
        return err;
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        info->n_parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    return 0;
}

struct used_names {
    const char **name;
    size_t n;
};

static void note_name(struct tensor *weight, void *user)
{
    struct used_names *used = user;
    used->name[used->n++] = weight->name;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A tensor that the family does not use is named; one that would change the answer (a bias) is refused. */
static int check_unused(struct graph *g, const struct model_file *file, const struct model_options *options)
{
    struct used_names used = { .name = calloc(g->n_tensors + 1, sizeof(char *)) };
    int err = used.name ? 0 : error_set(ERR_NO_MEMORY, "out of memory for tensor names");
    if (err == 0) {
        graph_each_weight(g, note_name, &used);
        qsort(used.name, used.n, sizeof *used.name, compare_names);
    }
    for (uint64_t i = 0; err == 0 && i < model_file_n_tensors(file); i++) {
        const char *name = model_file_tensor_at(file, i)->name;
        size_t n = strlen(name);
        if (bsearch(&name, used.name, used.n, sizeof *used.name, compare_names))
            continue;
        if (n > 5 && !strcmp(name + n - 5, ".bias"))
            err = error_set(ERR_BAD_FILE, "tensor %s: this family has no biases", name);
        else if (options->warn)
            log_warning("tensor %s is not used", name);
    }
    free(used.name);
    return err;
}

int model_build(struct graph **out, const struct model_file *file, const struct model_options *options)
{
    const struct model_family *family;
    int err = find_family(&family, file);
    struct graph *g = err < 0 ? NULL : graph_open();
    if (!g)
        return err < 0 ? err : ERR_NO_MEMORY;
    g->int8_activations = options->int8_activations;
    g->cache_type = options->cache_type;
    g->symbol_max[SYMBOL_NONE] = 0;
    g->symbol_max[SYMBOL_T] = options->max_tokens;
    g->symbol_max[SYMBOL_R] = options->max_rows;
    if ((err = family->build(g, file, options)) == 0 && (err = check_unused(g, file, options)) == 0) {
        *out = g;
        return 0;
    }
    graph_close(g);
    return err;
}
