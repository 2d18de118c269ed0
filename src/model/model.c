#include "model/model.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct model_family *const families[] = { &model_llama, &model_qwen2, &model_qwen3, &model_qwen3moe, &model_gemma3 };

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
    char all[256] = "";
    for (size_t i = 0, n = 0; i < COUNT_OF(families) && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", families[i]->architecture);
    return error_set(ERR_BAD_FILE, "general.architecture: \"%s\" is not supported (this version runs: %s)", name, all);
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

int model_optional_bool(const struct model_file *file, const char *suffix, bool *out)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_has(file, key) ? model_file_require_bool(file, key, out) : 0;
}

int model_optional_string(const struct model_file *file, const char *suffix, const char **out)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_has(file, key) ? model_file_require_string(file, key, out, NULL) : 0;
}

bool model_has_key(const struct model_file *file, const char *suffix)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_has(file, key);
}

bool model_i32s(const struct model_file *file, const char *suffix, const int32_t **out, size_t *n)
{
    char key[128];
    key_name(key, sizeof key, file, suffix);
    return model_file_get_i32s(file, key, out, n);
}

bool model_has(const struct model_file *file, const char *name)
{
    return model_file_tensor(file, name) != NULL;
}

bool model_has_layer(const struct model_file *file, const char *format, uint32_t layer)
{
    char name[128];
    snprintf(name, sizeof name, format, layer);
    return model_has(file, name);
}

/* A vector is stored as f32 whatever it is in the file; a matrix must be of a type that a matmul takes. */
static bool type_fits(enum weight_use use, enum dtype type)
{
    return use == WEIGHT_VECTOR ? dtype_info[type].weight && dtype_info[type].block == 1 : dtype_info[type].weight;
}

/* The tensor under a name, if it is of a type that serves and has these dims, the contiguous one first; else NULL. */
static const struct model_tensor *find_tensor(const struct model_file *file, const char *name, enum weight_use use, const uint64_t *dims,
                                              uint32_t n_dims)
{
    const struct model_tensor *t = model_file_tensor(file, name);
    if (!t) {
        error_set(ERR_BAD_FILE, "tensor %s is missing", name);
        return NULL;
    }
    if (!type_fits(use, t->type)) {
        error_set(ERR_BAD_FILE, "tensor %s: type %s does not serve here", name, dtype_info[t->type].name);
        return NULL;
    }
    if (t->dims[0] != dims[0] || t->dims[1] != dims[1] || t->dims[2] != dims[2] || t->n_dims != n_dims) {
        error_set(ERR_BAD_FILE, "tensor %s: dims are %llu x %llu x %llu, the hyperparameters give %llu x %llu x %llu", name,
                  (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                  (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2]);
        return NULL;
    }
    return t;
}

struct tensor *model_weight(struct graph *g, const struct model_file *file, enum weight_use use, struct dim rows, struct dim columns,
                            const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const struct model_tensor *t = find_tensor(file, name, use, (const uint64_t[]){ columns.add, rows.add, 1 },
                                               use == WEIGHT_VECTOR ? 1 : 2);
    return t ? graph_weight(g, name, t->type, use, rows, columns) : NULL;
}

/* Older files have a tensor for each expert. */
static struct tensor *expert_by_expert(struct graph *g, const struct model_file *file, struct dim experts, struct dim rows,
                                       struct dim columns, const char *format)
{
    enum dtype type = DTYPE_F32;
    for (uint32_t e = 0; e < experts.add; e++) {
        char name[128];
        snprintf(name, sizeof name, format, e);
        const struct model_tensor *t = find_tensor(file, name, WEIGHT_MATMUL, (const uint64_t[]){ columns.add, rows.add, 1 }, 2);
        if (!t)
            return NULL;
        if (e && t->type != type) {
            error_set(ERR_BAD_FILE, "tensor %s is of type %s, other experts are %s", name, dtype_info[t->type].name, dtype_info[type].name);
            return NULL;
        }
        type = t->type;
    }
    return graph_expert_weight(g, format, true, type, experts, rows, columns);
}

struct tensor *model_expert_weight(struct graph *g, const struct model_file *file, struct dim experts, struct dim rows, struct dim columns,
                                   uint32_t layer, const char *name)
{
    char stacked[128], each[128], first[128];
    snprintf(stacked, sizeof stacked, "blk.%u.%s_exps.weight", layer, name);
    snprintf(each, sizeof each, "blk.%u.%s.%%u.weight", layer, name);
    snprintf(first, sizeof first, "blk.%u.%s.0.weight", layer, name);
    if (!model_has(file, stacked) && model_has(file, first))
        return expert_by_expert(g, file, experts, rows, columns, each);
    const struct model_tensor *t = find_tensor(file, stacked, WEIGHT_EXPERTS, (const uint64_t[]){ columns.add, rows.add, experts.add }, 3);
    return t ? graph_expert_weight(g, stacked, false, t->type, experts, rows, columns) : NULL;
}

int model_info_read(struct model_info *info, const struct model_file *file)
{
    const struct model_family *family = NULL;
    int err = find_family(&family, file);
    if (err < 0)
        return err;
    const struct model_tensor *embedding = model_file_tensor(file, "token_embd.weight");
    if (!embedding || embedding->n_dims != 2 || embedding->dims[1] > INT32_MAX)
        return error_set(ERR_BAD_FILE, "tensor token_embd.weight is missing or no matrix");
    *info = (struct model_info){ .architecture = family->architecture, .n_vocab = (uint32_t)embedding->dims[1] };
    struct model_strings pieces;
    bool padded = model_file_get_strings(file, "tokenizer.ggml.tokens", &pieces) && pieces.n && pieces.n < info->n_vocab;
    info->n_ids = padded ? (uint32_t)pieces.n : info->n_vocab;
    if ((err = model_u32(file, "block_count", 1, 1024, &info->n_layers)) < 0 ||
        (err = model_u32(file, "context_length", 1, 1u << 30, &info->n_context)) < 0)
        return err;
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        info->n_parameters += t->dims[0] * model_tensor_rows(t);
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

/* The name with an expert's number in it, "blk.0.ffn_up.7.weight", as a weight of many tensors has it: with %u. */
static void without_expert(char *to, size_t size, const char *name)
{
    const char *end = strrchr(name, '.'), *number = end;
    while (number && number > name && number[-1] >= '0' && number[-1] <= '9')
        number--;
    if (number && number != end)
        snprintf(to, size, "%.*s%%u%s", (int)(number - name), name, end);
    else
        snprintf(to, size, "%s", name);
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
        const char *name = model_file_tensor_at(file, i)->name, *pattern;
        char any_expert[256];
        size_t n = strlen(name);
        without_expert(any_expert, sizeof any_expert, name);
        pattern = any_expert;
        if (bsearch(&name, used.name, used.n, sizeof *used.name, compare_names) ||
            bsearch(&pattern, used.name, used.n, sizeof *used.name, compare_names))
            continue;
        if (n > 5 && !strcmp(name + n - 5, ".bias"))
            err = error_set(ERR_BAD_FILE, "tensor %s: this family has no biases", name);
        else if (options->warn)
            log_warning("tensor %s is not used", name);
    }
    free(used.name);
    return err;
}

/* A type in blocks cuts a head into whole ones. */
static int check_cache(const struct graph *g)
{
    uint32_t block = dtype_info[g->cache_type].block;
    for (uint32_t i = 0; i < g->n_cache_groups; i++)
        if (g->cache_group[i].head_dim % block)
            return error_set(ERR_USAGE, "--kv: %s has blocks of %u, and heads of %u dims have no whole number of them; f16 takes any head",
                             dtype_info[g->cache_type].name, block, g->cache_group[i].head_dim);
    return 0;
}

int model_build(struct graph **out, const struct model_file *file, const struct model_options *options)
{
    const struct model_family *family = NULL;
    int err = find_family(&family, file);
    struct graph *g = err < 0 ? NULL : graph_open();
    if (!g)
        return err < 0 ? err : ERR_NO_MEMORY;
    g->int8_activations = options->int8_activations;
    g->cache_type = options->cache_type;
    g->n_groups = options->n_groups;
    g->symbol_max[SYMBOL_NONE] = 0;
    g->symbol_max[SYMBOL_T] = options->max_tokens;
    g->symbol_max[SYMBOL_R] = options->max_rows;
    if ((err = family->build(g, file, options)) == 0 && (err = check_cache(g)) == 0 && (err = check_unused(g, file, options)) == 0) {
        *out = g;
        return 0;
    }
    graph_close(g);
    return err;
}
