#include "quantize/recipe.h"

#include "base/base.h"
#include "base/error.h"

#include <string.h>

/* Few weights, and what they decide is worth more than their bytes. */
static const char *const kept[] = { "norm", "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d" };

static bool is_matrix(const struct model_tensor *t)
{
    size_t n = strlen(t->name), n_ending = strlen(".weight");
    if (!dtype_info[t->type].weight || t->n_dims < 2 || model_tensor_rows(t) < 2)
        return false;
    if (n < n_ending || strcmp(t->name + n - n_ending, ".weight"))
        return false;
    for (size_t i = 0; i < COUNT_OF(kept); i++)
        if (strstr(t->name, kept[i]))
            return false;
    return true;
}

/* Whether the embedding gives the logits too. */
static bool is_tied(const struct model_file *file)
{
    return !model_file_tensor(file, "output.weight");
}

static bool is_head(const struct model_file *file, const struct model_tensor *t)
{
    return !strcmp(t->name, is_tied(file) ? "token_embd.weight" : "output.weight");
}

static bool has_fewer_bits(enum dtype a, enum dtype b)
{
    return dtype_bytes(a, 256) < dtype_bytes(b, 256);
}

/* For rows that are no multiple of 256. */
static enum dtype with_small_blocks(enum dtype type)
{
    switch (type) {
    case DTYPE_Q2_K: case DTYPE_Q3_K: case DTYPE_IQ4_XS: return DTYPE_IQ4_NL;
    case DTYPE_Q4_K: return DTYPE_Q5_0;
    case DTYPE_Q5_K: return DTYPE_Q5_1;
    case DTYPE_Q6_K: return DTYPE_Q8_0;
    default: return type;
    }
}

static struct recipe_item choose(const struct recipe *r, const struct model_tensor *t, bool pure)
{
    const bool head = is_head(r->file, t);
    struct recipe_item item = { .from = t, .type = r->wanted, .by_column = head && is_tied(r->file) };
    if (!is_matrix(t))
        return (struct recipe_item){ .from = t, .type = t->type, .reason = RECIPE_KEPT };
    if (!pure && head && has_fewer_bits(item.type, DTYPE_Q6_K)) {
        item.type = DTYPE_Q6_K;
        item.reason = RECIPE_HEAD;
    }
    if (t->dims[0] % dtype_info[item.type].block) {
        item.type = with_small_blocks(item.type);
        item.reason = RECIPE_ROW;
    }
    if (t->dims[0] % dtype_info[item.type].block)
        item.type = t->type;
    item.by_column &= item.type != t->type;     /* what is copied has no error */
    return item;
}

int recipe_make(struct recipe *out, struct arena *arena, const struct model_file *file, enum dtype wanted, bool pure)
{
    struct recipe r = { .file = file, .wanted = wanted, .n = (size_t)model_file_n_tensors(file) };
    if (!(r.item = arena_array(arena, struct recipe_item, r.n)))
        return error_set(ERR_NO_MEMORY, "no memory for the list of tensors");
    for (size_t i = 0; i < r.n; i++)
        r.item[i] = choose(&r, model_file_tensor_at(file, i), pure);
    *out = r;
    return 0;
}

uint32_t recipe_file_type(enum dtype type)
{
    static const uint8_t number[N_DTYPES] = {
        [DTYPE_F32] = 0, [DTYPE_F16] = 1, [DTYPE_Q4_0] = 2, [DTYPE_Q4_1] = 3, [DTYPE_Q8_0] = 7, [DTYPE_Q5_0] = 8, [DTYPE_Q5_1] = 9,
        [DTYPE_Q2_K] = 10, [DTYPE_Q3_K] = 11, [DTYPE_Q4_K] = 14, [DTYPE_Q5_K] = 16, [DTYPE_Q6_K] = 18, [DTYPE_IQ4_NL] = 25,
        [DTYPE_IQ4_XS] = 30, [DTYPE_BF16] = 32,
    };
    return number[type];
}
