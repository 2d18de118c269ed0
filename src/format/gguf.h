/* gguf.h: one GGUF file taken apart in place.
 *
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_keys
 *   n_keys times      text key, u32 type, value                  text: u64 n_bytes, the bytes
 *   n_tensors times   text name, u32 n_dims, u64 dims[n_dims], u32 ggml type, u64 offset
 *   zeros to a multiple of the alignment (key general.alignment, 32 without it), then the tensors' bytes
 *
 * Numbers are little-endian and stand at any address.  Parsing trusts nothing: a count or length is compared with the
 * bytes that are left before it is used, and memory grows with what was read, never with what a count claims.
 * What parsing returns lies in the caller's arena and points into the file's bytes; both must outlive it. */
#ifndef STOA_FORMAT_GGUF_H
#define STOA_FORMAT_GGUF_H

#include "base/arena.h"
#include "format/model_file.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64, N_GGUF_TYPES
};
struct gguf_type_info {
    const char *name;               /* "u8", "string" */
    uint8_t bytes;                  /* of one number or bool; 0 for strings and arrays */
};
extern const struct gguf_type_info gguf_type_info[N_GGUF_TYPES];

struct gguf_value {
    struct gguf_value *next;        /* in file order */
    const char *key;
    enum gguf_type type;            /* of an array: of its elements, which are no arrays themselves */
    bool is_array;
    uint64_t n;                     /* elements; 1 when it is no array */
    const uint8_t *bytes;           /* the elements as they stand in the file; bools are 0 or 1 */

    /* Set by gguf_copy_out(), else NULL. */
    struct model_strings strings;   /* when type is GGUF_STRING; a NUL follows the last one */
    const float *f32s;              /* an array of numbers that are no bools */
    const int32_t *i32s;            /* an array of integers or bools that all fit */
};

/* Bytes of the elements as they stand in the file. */
size_t gguf_value_bytes(const struct gguf_value *value);

/* One element of a value of numbers or bools. */
struct gguf_number {
    enum { GGUF_UNSIGNED, GGUF_SIGNED, GGUF_REAL } kind;
    uint64_t integer;               /* two's complement when signed; unset for a real */
    double real;                    /* the nearest double; exact for an f32 */
};
struct gguf_number gguf_number(const struct gguf_value *value, uint64_t i);
/* A little-endian number of n_bytes at any address. */
uint64_t gguf_load(const uint8_t *from, size_t n_bytes);

/* The file's number for a type that files can have. */
uint32_t gguf_number_of_type(enum dtype type);

struct gguf_tensor {
    struct gguf_tensor *next;       /* in file order */
    uint64_t offset;                /* from the start of the data */
    struct model_tensor tensor;
};

struct gguf {
    size_t n_header_bytes;          /* up to the last tensor's entry, without the zeros after it */
    struct gguf_value *values;
    const struct gguf_value **by_key;       /* sorted */
    size_t n_values;
    struct gguf_tensor *tensors;
    size_t n_tensors;
};

/* ERR_BAD_FILE when anything is wrong: the line names the key or tensor but not the file.  Holds afterwards: keys are
 * distinct and not empty; every tensor has a type that dtype.h knows, 1 to 4 dims of at least 1, whole blocks in a
 * row, and bytes of its own inside the file at a multiple of 8. */
int gguf_parse(struct gguf *out, struct arena *arena, const uint8_t *bytes, size_t n_bytes);
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);       /* NULL when absent */
/* Strings and arrays of numbers in the form that model_file.h promises.  Apart from parsing, so that a header that
 * turns out to be broken has cost nothing. */
int gguf_copy_out(struct gguf *gguf, struct arena *arena);

/* A name comes from the file and goes to a terminal or a log: no control codes, and cut to fit. */
void gguf_print_name(char *to, size_t size, const void *name, size_t n_bytes);
int gguf_no_memory(void);       /* sets the error that both give when the arena can take no more */

#endif
