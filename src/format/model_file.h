/* model_file.h: an open model: its metadata and its tensors, whatever the format on disk.
 *
 * Today that is GGUF, version 2 or 3, little-endian, in one file or split into NAME-00001-of-0000N.gguf parts (open the
 * first; the others are found beside it).  Files are mapped read-only and never copied; every count, length, offset and
 * product is checked against the bytes that are really there before it is used, so a damaged file costs an error that
 * names the key or tensor, and nothing else.  A model_file is read-only once open: any thread may call in. */
#ifndef STOA_FORMAT_MODEL_FILE_H
#define STOA_FORMAT_MODEL_FILE_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_FILE_MAX_DIMS 4

struct model_file;

struct model_tensor {
    const char *name;
    enum dtype type;
    uint32_t n_dims;
    uint64_t dims[MODEL_FILE_MAX_DIMS];     /* in the file's order: dims[0] is contiguous; unused ones are 1 */
    size_t n_bytes;
    const void *data;                       /* mapped, at a multiple of 8; [dims[1]..][dims[0]] as rows of dims[0] elements */
};
static inline uint64_t model_tensor_rows(const struct model_tensor *t)
{
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* ERR_BAD_FILE with the culprit's name, also for a path that does not exist or is a directory; ERR_NO_MEMORY.  Once open,
 * names of keys and of tensors are distinct and not empty, dims are at least 1, and no two tensors share a byte. */
int model_file_open(struct model_file **out, const char *path);
void model_file_close(struct model_file *file);

const char *model_file_path(const struct model_file *file);
size_t model_file_bytes(const struct model_file *file);                  /* of all parts together */
/* `path` leads to one of the file's parts, under whatever name. */
bool model_file_holds(const struct model_file *file, const char *path);
/* A hash of everything but tensor data (metadata and tensor table, of all parts), the same on every machine.  Against
 * mix-ups, not against forgery. */
uint64_t model_file_digest(const struct model_file *file);
/* A hash of the sizes of all parts and of when each was last written or changed in any way (mtime and ctime), as of when it was
 * opened.  A file with another stamp may have other tensor data.  The other way round, who writes into a file and sets its mtime back
 * still changes its ctime. */
uint64_t model_file_stamp(const struct model_file *file);
/* A few bytes of a tensor's data, at a third and at two thirds of it: two models may differ in nothing else that is looked at.  Returns
 * how many; the pages around them are given back. */
#define MODEL_SAMPLE_BYTES 128
size_t model_file_sample(const struct model_file *file, const struct model_tensor *tensor, unsigned char sample[MODEL_SAMPLE_BYTES]);
/* A hash of the digest and a sample of every tensor: what this model is, on any machine and under any name. */
struct model_identity {
    uint64_t word[2];
};
struct model_identity model_file_identity(const struct model_file *file);

uint64_t model_file_n_tensors(const struct model_file *file);
/* In file order; i < n_tensors. */
const struct model_tensor *model_file_tensor_at(const struct model_file *file, uint64_t i);
const struct model_tensor *model_file_tensor(const struct model_file *file, const char *name);  /* NULL when absent */
/* These bytes of the mapped file will not be read again soon: gives the whole pages among them back to the system. */
void model_file_drop_pages(const struct model_file *file, const void *data, size_t n_bytes);

/* Metadata.  Each `get` returns true and sets *out when the key is there with a type that fits; false and *out unchanged
 * when it is absent; a key of a wrong type (a string where a number is wanted, a negative or too large number) is false
 * too, and model_file_require_* says which it was.  Any integer type in the file serves for any integer wanted, any
 * number that is finite in f32 for an f32.  In a split model the first part's keys count. */
bool model_file_has(const struct model_file *file, const char *key);     /* with whatever type */
bool model_file_get_u64(const struct model_file *file, const char *key, uint64_t *out);
bool model_file_get_f32(const struct model_file *file, const char *key, float *out);
bool model_file_get_bool(const struct model_file *file, const char *key, bool *out);
/* NUL-terminated; borrowed.  *n_bytes (may be NULL) counts without the NUL; GGUF strings may hold NULs. */
bool model_file_get_string(const struct model_file *file, const char *key, const char **out, size_t *n_bytes);
/* 0, or ERR_BAD_FILE and *out unchanged: "PATH: general.architecture: missing", or "PATH: llama.block_count: wanted an
 * integer from 1 to 512, found 600 (u32)". */
int model_file_require_u64(const struct model_file *file, const char *key, uint64_t min, uint64_t max, uint64_t *out);
int model_file_require_f32(const struct model_file *file, const char *key, float *out);
int model_file_require_bool(const struct model_file *file, const char *key, bool *out);
int model_file_require_string(const struct model_file *file, const char *key, const char **out, size_t *n_bytes);

/* Arrays; n may be 0.  Strings are copied out once, at open: string i is bytes [offset[i], offset[i+1]) of `text`. */
struct model_strings {
    size_t n;
    const char *text;
    const size_t *offset;       /* n + 1 of them */
};
bool model_file_get_strings(const struct model_file *file, const char *key, struct model_strings *out);
/* Copied to f32 or i32 whatever number type the file has; borrowed, live until close.  Bools are i32s of 0 and 1, and no
 * f32s; an array with one element that is no integer, or does not fit, has no i32s.  An f64 may become an infinity. */
bool model_file_get_f32s(const struct model_file *file, const char *key, const float **out, size_t *n);
bool model_file_get_i32s(const struct model_file *file, const char *key, const int32_t **out, size_t *n);

#endif
