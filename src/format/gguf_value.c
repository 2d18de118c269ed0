#include "format/gguf.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

const struct gguf_type_info gguf_type_info[N_GGUF_TYPES] = {
    [GGUF_U8] = { "u8", 1 },   [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 }, [GGUF_I16] = { "i16", 2 },
    [GGUF_U32] = { "u32", 4 }, [GGUF_I32] = { "i32", 4 },   [GGUF_U64] = { "u64", 8 }, [GGUF_I64] = { "i64", 8 },
    [GGUF_F32] = { "f32", 4 }, [GGUF_F64] = { "f64", 8 },   [GGUF_BOOL] = { "bool", 1 },
    [GGUF_STRING] = { "string", 0 },    [GGUF_ARRAY] = { "array", 0 },
};

uint64_t gguf_load(const uint8_t *from, size_t n_bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

size_t gguf_value_bytes(const struct gguf_value *value)
{
    if (value->type != GGUF_STRING)
        return value->n * gguf_type_info[value->type].bytes;
    const uint8_t *at = value->bytes;
    for (uint64_t i = 0; i < value->n; i++)
        at += 8 + gguf_load(at, 8);
    return (size_t)(at - value->bytes);
}

void gguf_print_name(char *to, size_t size, const void *name, size_t n_bytes)
{
    const uint8_t *from = name;
    size_t used = 0;
    to[0] = 0;
    for (size_t i = 0; i < n_bytes && used + 5 <= size; i++) {
        bool plain = from[i] > ' ' && from[i] < 127;
        used += (size_t)snprintf(to + used, size - used, plain ? "%c" : "\\x%02x", from[i]);
    }
}

int gguf_no_memory(void)
{
    return error_set(ERR_NO_MEMORY, "no memory for the model file's metadata");
}

struct gguf_number gguf_number(const struct gguf_value *value, uint64_t i)
{
    size_t size = gguf_type_info[value->type].bytes;
    uint64_t bits = gguf_load(value->bytes + i * size, size);
    union { uint32_t u; float f; } f32 = { .u = (uint32_t)bits };
    union { uint64_t u; double f; } f64 = { .u = bits };
    int64_t negative;

    switch (value->type) {
    case GGUF_F32: return (struct gguf_number){ GGUF_REAL, 0, f32.f };
    case GGUF_F64: return (struct gguf_number){ GGUF_REAL, 0, f64.f };
    case GGUF_I8: case GGUF_I16: case GGUF_I32: case GGUF_I64:
        negative = (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size);       /* the sign spreads upwards */
        return (struct gguf_number){ GGUF_SIGNED, (uint64_t)negative, (double)negative };
    default:
        return (struct gguf_number){ GGUF_UNSIGNED, bits, (double)bits };
    }
}

static int copy_strings(struct gguf_value *value, struct arena *arena)
{
    const uint8_t *at = value->bytes;
    uint64_t n_bytes = 0;
    for (uint64_t i = 0; i < value->n; i++, at += 8 + gguf_load(at, 8))
        n_bytes += gguf_load(at, 8);

    char *text = arena_alloc(arena, n_bytes + 1);
    size_t *offset = arena_array(arena, size_t, value->n + 1);
    if (!text || !offset)
        return gguf_no_memory();
    at = value->bytes;
    for (uint64_t i = 0; i < value->n; i++, at += 8 + gguf_load(at, 8)) {
        size_t size = gguf_load(at, 8);
        memcpy(text + offset[i], at + 8, size);
        offset[i + 1] = offset[i] + size;
    }
    value->strings = (struct model_strings){ value->n, text, offset };
    return 0;
}

static bool fits_i32(struct gguf_number number)
{
    return number.kind == GGUF_UNSIGNED ? number.integer <= INT32_MAX :
           number.kind == GGUF_SIGNED && (int64_t)number.integer >= INT32_MIN && (int64_t)number.integer <= INT32_MAX;
}

static int copy_numbers(struct gguf_value *value, struct arena *arena)
{
    bool integers = value->type != GGUF_F32 && value->type != GGUF_F64;
    for (uint64_t i = 0; i < value->n && integers; i++)
        integers = fits_i32(gguf_number(value, i));

    float *f32s = value->type == GGUF_BOOL ? NULL : arena_array(arena, float, value->n);
    int32_t *i32s = integers ? arena_array(arena, int32_t, value->n) : NULL;
    if ((!f32s && value->type != GGUF_BOOL) || (!i32s && integers))
        return gguf_no_memory();
    for (uint64_t i = 0; i < value->n; i++) {
        struct gguf_number number = gguf_number(value, i);
        if (f32s)
            f32s[i] = (float)number.real;
        if (i32s)
            i32s[i] = (int32_t)number.integer;
    }
    value->f32s = f32s;
    value->i32s = i32s;
    return 0;
}

int gguf_copy_out(struct gguf *gguf, struct arena *arena)
{
    int err = 0;
    for (struct gguf_value *v = gguf->values; v && !err; v = v->next)
        if (v->type == GGUF_STRING)
            err = copy_strings(v, arena);
        else if (v->is_array)
            err = copy_numbers(v, arena);
    return err;
}
