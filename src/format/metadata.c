/* metadata.c: the model_file_get_* and _require_* of model_file.h, over the values of a GGUF file. */
#include "format/model_file_impl.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct gguf_value *find(const struct model_file *file, const char *key)
{
    return gguf_find(&file->first->gguf, key);
}

bool model_file_has(const struct model_file *file, const char *key)
{
    return find(file, key) != NULL;
}

static bool is_number(const struct gguf_value *value)
{
    return value && !value->is_array && value->type != GGUF_STRING && value->type != GGUF_BOOL;
}

bool model_file_get_u64(const struct model_file *file, const char *key, uint64_t *out)
{
    const struct gguf_value *value = find(file, key);
    if (!is_number(value))
        return false;
    struct gguf_number number = gguf_number(value, 0);
    if (number.kind == GGUF_REAL || (number.kind == GGUF_SIGNED && (int64_t)number.integer < 0))
        return false;
    *out = number.integer;
    return true;
}

bool model_file_get_f32(const struct model_file *file, const char *key, float *out)
{
    const struct gguf_value *value = find(file, key);
    if (!is_number(value))
        return false;
    float f32 = (float)gguf_number(value, 0).real;
    if (!isfinite(f32))
        return false;
    *out = f32;
    return true;
}

bool model_file_get_bool(const struct model_file *file, const char *key, bool *out)
{
    const struct gguf_value *value = find(file, key);
    if (!value || value->is_array || value->type != GGUF_BOOL)
        return false;
    *out = value->bytes[0];
    return true;
}

bool model_file_get_string(const struct model_file *file, const char *key, const char **out, size_t *n_bytes)
{
    const struct gguf_value *value = find(file, key);
    if (!value || value->is_array || value->type != GGUF_STRING)
        return false;
    *out = value->strings.text;
    if (n_bytes)
        *n_bytes = value->strings.offset[1];
    return true;
}

bool model_file_get_strings(const struct model_file *file, const char *key, struct model_strings *out)
{
    const struct gguf_value *value = find(file, key);
    if (!value || !value->is_array || value->type != GGUF_STRING)
        return false;
    *out = value->strings;
    return true;
}

bool model_file_get_f32s(const struct model_file *file, const char *key, const float **out, size_t *n)
{
    const struct gguf_value *value = find(file, key);
    if (!value || !value->f32s)
        return false;
    *out = value->f32s;
    *n = value->n;
    return true;
}

bool model_file_get_i32s(const struct model_file *file, const char *key, const int32_t **out, size_t *n)
{
    const struct gguf_value *value = find(file, key);
    if (!value || !value->i32s)
        return false;
    *out = value->i32s;
    *n = value->n;
    return true;
}

/* Says what is under `key` instead of what was wanted. */
static int unfit(const struct model_file *file, const char *key, const char *wanted)
{
    const struct gguf_value *value = find(file, key);
    char found[64];
    if (!value)
        return error_set(ERR_BAD_FILE, "%s: %s: missing", file->path, key);

    const char *type = gguf_type_info[value->type].name;
    struct gguf_number number = { 0 };
    if (!is_number(value))
        snprintf(found, sizeof found, "%s %s", value->is_array ? "an array of" : "a", type);
    else if ((number = gguf_number(value, 0)).kind == GGUF_REAL)
        snprintf(found, sizeof found, "%.9g (%s)", number.real, type);
    else if (number.kind == GGUF_SIGNED)
        snprintf(found, sizeof found, "%" PRId64 " (%s)", (int64_t)number.integer, type);
    else
        snprintf(found, sizeof found, "%" PRIu64 " (%s)", number.integer, type);
    return error_set(ERR_BAD_FILE, "%s: %s: wanted %s, found %s", file->path, key, wanted, found);
}

int model_file_require_u64(const struct model_file *file, const char *key, uint64_t min, uint64_t max, uint64_t *out)
{
    char wanted[80];
    uint64_t value;
    if (model_file_get_u64(file, key, &value) && value >= min && value <= max) {
        *out = value;
        return 0;
    }
    snprintf(wanted, sizeof wanted, "an integer from %" PRIu64 " to %" PRIu64, min, max);
    return unfit(file, key, wanted);
}

int model_file_require_f32(const struct model_file *file, const char *key, float *out)
{
    return model_file_get_f32(file, key, out) ? 0 : unfit(file, key, "a finite number");
}

int model_file_require_bool(const struct model_file *file, const char *key, bool *out)
{
    return model_file_get_bool(file, key, out) ? 0 : unfit(file, key, "a bool");
}

int model_file_require_string(const struct model_file *file, const char *key, const char **out, size_t *n_bytes)
{
    return model_file_get_string(file, key, out, n_bytes) ? 0 : unfit(file, key, "a string");
}
