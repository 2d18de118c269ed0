#include "format/gguf.h"

#include "base/base.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 65535            /* of a key, in the specification; far more than a tensor's name needs */
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MIN 8                 /* the specification's; kernels read elements of up to 4 bytes in place */
#define ALIGNMENT_MAX (UINT32_C(1) << 20)
#define KEY_BYTES_MIN (8 + 1 + 4 + 1)   /* the shortest key: a name of one letter, a type, a u8 */
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)

/* ggml's tensor types by their number in the file.  Those whose name is in dtype_info can be read. */
static const char *const ggml_types[] = {
    [0] = "F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [6] = "Q5_0", [7] = "Q5_1", [8] = "Q8_0", [9] = "Q8_1",
    [10] = "Q2_K", [11] = "Q3_K", [12] = "Q4_K", [13] = "Q5_K", [14] = "Q6_K", [15] = "Q8_K",
    [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
    [22] = "IQ2_S", [23] = "IQ4_XS", [24] = "I8", [25] = "I16", [26] = "I32", [27] = "I64", [28] = "F64",
    [29] = "IQ1_M", [30] = "BF16", [34] = "TQ1_0", [35] = "TQ2_0", [39] = "MXFP4", [40] = "NVFP4",
};

/* Reading.  Only take() and take_elements() move r->at, each after a look at what is left. */

struct reader {
    const uint8_t *bytes;
    size_t at, n_bytes;
    char item[96];          /* what is being read, for people: "key 3 of 20", then its name */
    struct arena *arena;
};

/* A constant, so that the compiler knows that what a failed take() leaves unset is not used. */
#define BAD(r, ...) (error_prefix(error_set(ERR_BAD_FILE, __VA_ARGS__), "%s", (r)->item), ERR_BAD_FILE)

static size_t bytes_left(const struct reader *r)
{
    return r->n_bytes - r->at;
}

static int take(struct reader *r, const uint8_t **out, uint64_t n_bytes)
{
    if (n_bytes > bytes_left(r))
        return BAD(r, "needs %" PRIu64 " bytes at byte %zu, %zu are left", n_bytes, r->at, bytes_left(r));
    *out = r->bytes + r->at;
    r->at += n_bytes;
    return 0;
}

static int take_u32(struct reader *r, uint32_t *out)
{
    const uint8_t *at;
    int err = take(r, &at, 4);
    if (!err)
        *out = (uint32_t)gguf_load(at, 4);
    return err;
}

static int take_u64(struct reader *r, uint64_t *out)
{
    const uint8_t *at;
    int err = take(r, &at, 8);
    if (!err)
        *out = gguf_load(at, 8);
    return err;
}

static int take_text(struct reader *r, const uint8_t **out, uint64_t *n_bytes)
{
    int err = take_u64(r, n_bytes);
    return err ? err : take(r, out, *n_bytes);
}

static void set_item(struct reader *r, const char *kind, const void *name, size_t n_bytes)
{
    size_t used = (size_t)snprintf(r->item, sizeof r->item, "%s", kind);
    gguf_print_name(r->item + used, sizeof r->item - used, name, n_bytes);
}

/* A key or a tensor's name, copied to be a C string; from here on it is the item. */
static int take_name(struct reader *r, const char *kind, const char **out)
{
    const uint8_t *bytes;
    uint64_t n_bytes;
    int err = take_text(r, &bytes, &n_bytes);
    if (err)
        return err;
    if (!n_bytes)
        return BAD(r, "its name is empty");
    if (n_bytes > NAME_MAX_BYTES)
        return BAD(r, "its name has %" PRIu64 " bytes, %d are allowed", n_bytes, NAME_MAX_BYTES);
    set_item(r, kind, bytes, n_bytes);
    if (memchr(bytes, 0, n_bytes))
        return BAD(r, "a name must not hold a zero byte");
    char *name = arena_alloc(r->arena, n_bytes + 1);
    if (!name)
        return gguf_no_memory();
    *out = memcpy(name, bytes, n_bytes);
    return 0;
}

/* Keys and their values. */

static int take_strings(struct reader *r, uint64_t n)
{
    const uint8_t *text;
    uint64_t n_bytes;
    int err = 0;
    if (n > bytes_left(r) / 8)
        return BAD(r, "claims %" PRIu64 " strings, %zu bytes are left", n, bytes_left(r));
    for (uint64_t i = 0; i < n && !err; i++)
        err = take_text(r, &text, &n_bytes);
    return err;
}

static int take_elements(struct reader *r, struct gguf_value *value)
{
    value->bytes = r->bytes + r->at;
    if (value->type == GGUF_STRING)
        return take_strings(r, value->n);
    size_t size = gguf_type_info[value->type].bytes;
    if (value->n > bytes_left(r) / size)
        return BAD(r, "claims %" PRIu64 " elements of %zu bytes, %zu bytes are left", value->n, size, bytes_left(r));
    r->at += value->n * size;
    if (value->type == GGUF_BOOL)
        for (uint64_t i = 0; i < value->n; i++)
            if (value->bytes[i] > 1)
                return BAD(r, "a bool is %u, wanted 0 or 1", value->bytes[i]);
    return 0;
}

static int take_type(struct reader *r, enum gguf_type *out)
{
    uint32_t type;
    int err = take_u32(r, &type);
    if (err)
        return err;
    if (type >= N_GGUF_TYPES)
        return BAD(r, "value type %" PRIu32 " is unknown", type);
    *out = type;
    return 0;
}

static int take_value(struct reader *r, struct gguf_value *value)
{
    int err = take_type(r, &value->type);
    if (err)
        return err;
    value->n = 1;
    value->is_array = value->type == GGUF_ARRAY;
    if (value->is_array) {
        if ((err = take_type(r, &value->type)) < 0 || (err = take_u64(r, &value->n)) < 0)
            return err;
        if (value->type == GGUF_ARRAY)          /* no model has one, and a depth would need a limit */
            return BAD(r, "arrays of arrays are not supported");
    }
    return take_elements(r, value);
}

static int take_keys(struct reader *r, struct gguf *gguf, uint64_t n_keys)
{
    struct gguf_value **last = &gguf->values;
    int err;
    for (uint64_t i = 0; i < n_keys; i++, gguf->n_values++, last = &(*last)->next) {
        snprintf(r->item, sizeof r->item, "key %" PRIu64 " of %" PRIu64, i + 1, n_keys);
        if (!(*last = arena_new(r->arena, struct gguf_value)))
            return gguf_no_memory();
        if ((err = take_name(r, "", &(*last)->key)) < 0 || (err = take_value(r, *last)) < 0)
            return err;
    }
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const struct gguf_value *const *)a)->key, (*(const struct gguf_value *const *)b)->key);
}

static int index_keys(struct reader *r, struct gguf *gguf)
{
    const struct gguf_value **by_key = arena_array(r->arena, const struct gguf_value *, gguf->n_values);
    size_t n = 0;
    if (!by_key)
        return gguf_no_memory();
    for (const struct gguf_value *v = gguf->values; v; v = v->next)
        by_key[n++] = v;
    qsort(by_key, n, sizeof *by_key, compare_keys);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(by_key[i - 1]->key, by_key[i]->key)) {
            set_item(r, "", by_key[i]->key, strlen(by_key[i]->key));
            return BAD(r, "the key appears twice");
        }
    gguf->by_key = by_key;
    return 0;
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    const struct gguf_value wanted = { .key = key }, *p = &wanted;
    const struct gguf_value **found = bsearch(&p, gguf->by_key, gguf->n_values, sizeof *gguf->by_key, compare_keys);
    return found ? *found : NULL;
}

/* Tensors. */

static int check_dims(struct reader *r, const struct model_tensor *t, uint64_t *n_elements)
{
    *n_elements = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (!t->dims[i])
            return BAD(r, "dim %" PRIu32 " is 0", i);
        if (t->dims[i] > INT64_MAX || __builtin_mul_overflow(*n_elements, t->dims[i], n_elements) ||
            *n_elements > INT64_MAX)
            return BAD(r, "dim %" PRIu32 " of %" PRIu64 " makes it too large", i, t->dims[i]);
    }
    return 0;
}

static int set_type(struct reader *r, struct model_tensor *t, uint32_t ggml_type)
{
    const char *name = ggml_type < COUNT_OF(ggml_types) ? ggml_types[ggml_type] : NULL;
    if (!name)
        return BAD(r, "type %" PRIu32 " is unknown", ggml_type);
    for (t->type = 0; t->type < N_DTYPES; t->type++)
        if (!strcmp(dtype_info[t->type].name, name))
            return 0;
    return BAD(r, "type %s is not supported", name);
}

uint32_t gguf_number_of_type(enum dtype type)
{
    uint32_t i = 0;
    while (i < COUNT_OF(ggml_types) && (!ggml_types[i] || strcmp(ggml_types[i], dtype_info[type].name)))
        i++;
    assert(i < COUNT_OF(ggml_types));       /* a type of weights, so a file may have it */
    return i;
}

static int take_tensor(struct reader *r, struct gguf_tensor *out)
{
    struct model_tensor *t = &out->tensor;
    uint32_t ggml_type;
    uint64_t n_elements, n_bytes;
    int err;

    if ((err = take_name(r, "tensor ", &t->name)) < 0 ||
        (err = take_u32(r, &t->n_dims)) < 0)
        return err;
    if (t->n_dims < 1 || t->n_dims > MODEL_FILE_MAX_DIMS)
        return BAD(r, "has %" PRIu32 " dims, wanted 1 to %d", t->n_dims, MODEL_FILE_MAX_DIMS);
    for (uint32_t i = 0; i < MODEL_FILE_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && (err = take_u64(r, &t->dims[i])) < 0)
            return err;
    }
    if ((err = take_u32(r, &ggml_type)) < 0 ||
        (err = take_u64(r, &out->offset)) < 0 ||
        (err = check_dims(r, t, &n_elements)) < 0 ||
        (err = set_type(r, t, ggml_type)) < 0)
        return err;

    const struct dtype_info *info = &dtype_info[t->type];
    if (t->dims[0] % info->block)
        return BAD(r, "a row of %" PRIu64 " is no multiple of %" PRIu32 ", the block of %s",
                   t->dims[0], info->block, info->name);
    if (__builtin_mul_overflow(n_elements / info->block, info->bytes, &n_bytes) || n_bytes > SIZE_MAX)
        return BAD(r, "%" PRIu64 " elements of %s are too many", n_elements, info->name);
    t->n_bytes = (size_t)n_bytes;
    return 0;
}

static int take_tensors(struct reader *r, struct gguf *gguf, uint64_t n_tensors)
{
    struct gguf_tensor **last = &gguf->tensors;
    int err;
    for (uint64_t i = 0; i < n_tensors; i++, gguf->n_tensors++, last = &(*last)->next) {
        snprintf(r->item, sizeof r->item, "tensor %" PRIu64 " of %" PRIu64, i + 1, n_tensors);
        if (!(*last = arena_new(r->arena, struct gguf_tensor)))
            return gguf_no_memory();
        if ((err = take_tensor(r, *last)) < 0)
            return err;
    }
    return 0;
}

static int find_alignment(struct reader *r, const struct gguf *gguf, uint32_t *out)
{
    const struct gguf_value *value = gguf_find(gguf, "general.alignment");
    *out = ALIGNMENT_DEFAULT;
    if (!value)
        return 0;
    set_item(r, "general.alignment", NULL, 0);
    if (value->is_array || value->type != GGUF_U32)
        return BAD(r, "wanted a u32, found %s%s", value->is_array ? "an array of " : "", gguf_type_info[value->type].name);
    *out = (uint32_t)gguf_load(value->bytes, 4);
    if (*out < ALIGNMENT_MIN || *out > ALIGNMENT_MAX || *out & (*out - 1))
        return BAD(r, "wanted a power of two from %d to %" PRIu32 ", found %" PRIu32, ALIGNMENT_MIN, ALIGNMENT_MAX, *out);
    return 0;
}

/* Gives each tensor its bytes; the first in file order that does not fit is the one to name. */
static int place_tensors(struct reader *r, const struct gguf *gguf, uint32_t alignment)
{
    size_t padding = (alignment - r->at % alignment) % alignment;
    size_t n_data = bytes_left(r) > padding ? bytes_left(r) - padding : 0;
    for (struct gguf_tensor *t = gguf->tensors; t; t = t->next) {
        set_item(r, "tensor ", t->tensor.name, strlen(t->tensor.name));
        if (t->offset % alignment)
            return BAD(r, "offset %" PRIu64 " is no multiple of the alignment, %" PRIu32, t->offset, alignment);
        if (t->offset > n_data || t->tensor.n_bytes > n_data - t->offset)
            return BAD(r, "needs %zu bytes at byte %" PRIu64 " of the data, the file has %zu bytes of data",
                       t->tensor.n_bytes, t->offset, n_data);
        t->tensor.data = r->bytes + r->at + padding + t->offset;
    }
    return 0;
}

static int compare_offsets(const void *a, const void *b)
{
    uint64_t x = (*(const struct gguf_tensor *const *)a)->offset, y = (*(const struct gguf_tensor *const *)b)->offset;
    return (x > y) - (x < y);
}

static int check_overlap(struct reader *r, const struct gguf *gguf)
{
    const struct gguf_tensor **by_offset = arena_array(r->arena, const struct gguf_tensor *, gguf->n_tensors);
    size_t n = 0;
    if (!by_offset)
        return gguf_no_memory();
    for (const struct gguf_tensor *t = gguf->tensors; t; t = t->next)
        by_offset[n++] = t;
    qsort(by_offset, n, sizeof *by_offset, compare_offsets);
    for (size_t i = 1; i < n; i++)
        if (by_offset[i]->offset - by_offset[i - 1]->offset < by_offset[i - 1]->tensor.n_bytes) {
            char other[sizeof r->item];
            const struct model_tensor *a = &by_offset[i - 1]->tensor, *b = &by_offset[i]->tensor;
            gguf_print_name(other, sizeof other, a->name, strlen(a->name));
            set_item(r, "tensor ", b->name, strlen(b->name));
            return BAD(r, "its bytes overlap those of %s", other);
        }
    return 0;
}

/* The file as a whole. */

static int take_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
    const uint8_t *magic;
    uint32_t version;
    int err;

    if (r->n_bytes < 4 || memcmp(r->bytes, "GGUF", 4))
        return error_set(ERR_BAD_FILE, "is no GGUF file: it %s", r->n_bytes ? "does not start with \"GGUF\"" : "is empty");
    snprintf(r->item, sizeof r->item, "header");
    if ((err = take(r, &magic, 4)) < 0 || (err = take_u32(r, &version)) < 0)
        return err;
    if (version && !(version & 0xffff))
        return BAD(r, "a big-endian GGUF file; only little-endian ones are supported");
    if (version != 2 && version != 3)
        return BAD(r, "GGUF version %" PRIu32 " is not supported, wanted 2 or 3", version);
    if ((err = take_u64(r, n_tensors)) < 0 || (err = take_u64(r, n_keys)) < 0)
        return err;
    if (*n_keys > bytes_left(r) / KEY_BYTES_MIN || *n_tensors > bytes_left(r) / TENSOR_BYTES_MIN)
        return BAD(r, "claims %" PRIu64 " keys and %" PRIu64 " tensors, %zu bytes are left",
                   *n_keys, *n_tensors, bytes_left(r));
    return 0;
}

int gguf_parse(struct gguf *out, struct arena *arena, const uint8_t *bytes, size_t n_bytes)
{
    struct reader r = { .bytes = bytes, .n_bytes = n_bytes, .arena = arena };
    struct gguf gguf = { 0 };
    uint64_t n_tensors = 0, n_keys = 0;
    uint32_t alignment;
    int err;

    if ((err = take_header(&r, &n_tensors, &n_keys)) < 0 ||
        (err = take_keys(&r, &gguf, n_keys)) < 0 ||
        (err = index_keys(&r, &gguf)) < 0 ||
        (err = find_alignment(&r, &gguf, &alignment)) < 0 ||
        (err = take_tensors(&r, &gguf, n_tensors)) < 0 ||
        (err = place_tensors(&r, &gguf, alignment)) < 0 ||
        (err = check_overlap(&r, &gguf)) < 0)
        return err;
    gguf.n_header_bytes = r.at;
    *out = gguf;
    return 0;
}
