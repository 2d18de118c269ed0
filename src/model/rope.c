/* rope.c: the keys of rotary position embeddings. */
#include "model/decoder.h"

#include "base/base.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

static int read_kind(struct rope_scaling *rope, const struct model_file *file)
{
    const char *type = "none";
    int err = model_optional_string(file, "rope.scaling.type", &type);
    if (err < 0)
        return err;
    if (!strcmp(type, "linear"))
        rope->kind = ROPE_LINEAR;
    else if (!strcmp(type, "yarn"))
        rope->kind = ROPE_YARN;
    else if (strcmp(type, "none"))
        return error_set(ERR_BAD_FILE, "rope.scaling.type: \"%s\" is not supported (none, linear and yarn are)", type);
    return 0;
}

/* A factor without a type is linear scaling, as older files say it; 0 and 1 are none. */
static int read_factor(struct rope_scaling *rope, const struct model_file *file)
{
    float factor = 1;
    int err;
    if ((err = model_optional_f32(file, "rope.scale_linear", &factor)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.factor", &factor)) < 0)
        return err;
    if (factor == 0)
        factor = 1;
    if (rope->kind == ROPE_PLAIN && factor != 1 && !model_has_key(file, "rope.scaling.type"))
        rope->kind = ROPE_LINEAR;
    if (!(factor >= 1e-3f && factor <= 1e6f))
        return error_set(ERR_BAD_FILE, "rope.scaling.factor: %g is out of range", (double)factor);
    rope->factor = factor;
    return 0;
}

static int read_yarn(struct rope_scaling *rope, const struct model_file *file)
{
    float extent = 1, magnitude = 1;
    uint32_t original = 0;
    int err;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    if ((err = model_u32(file, "rope.scaling.original_context_length", 1, 1u << 30, &original)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.yarn_beta_fast", &rope->beta_fast)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.yarn_beta_slow", &rope->beta_slow)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.yarn_ext_factor", &extent)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.attn_factor", &magnitude)) < 0 ||
        (err = model_optional_f32(file, "rope.scaling.yarn_attn_factor", &magnitude)) < 0)
        return err;
    if (extent != 1)
        return error_set(ERR_BAD_FILE, "rope.scaling.yarn_ext_factor: %g is not supported", (double)extent);
    if (!(rope->beta_slow > 0 && rope->beta_fast > rope->beta_slow && magnitude > 0 && magnitude <= 1000))
        return error_set(ERR_BAD_FILE, "rope.scaling: betas from %g to %g and a factor of %g make no sense", (double)rope->beta_slow,
                         (double)rope->beta_fast, (double)magnitude);
    rope->original_context = (float)original;
    rope->magnitude = (float)(magnitude * (rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1));
    return 0;
}

int rope_read_base(float *base, const struct model_file *file, const char *suffix)
{
    int err = model_optional_f32(file, suffix, base);
    if (err == 0 && !(*base > 1 && *base < 1e12f))
        return error_set(ERR_BAD_FILE, "%s: %g is out of range", suffix, (double)*base);
    return err;
}

int rope_read(struct rope_scaling *rope, const struct model_file *file, float base)
{
    int err;
    *rope = (struct rope_scaling){ .base = base, .magnitude = 1 };
    if ((err = rope_read_base(&rope->base, file, "rope.freq_base")) < 0 || (err = read_kind(rope, file)) < 0 ||
        (err = read_factor(rope, file)) < 0)
        return err;
    return rope->kind == ROPE_YARN ? read_yarn(rope, file) : 0;
}
