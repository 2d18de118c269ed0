/* convert.h: a model file written again with the types of a recipe.
 *
 * Tensors keep their order and their names, metadata its bytes, but for general.file_type, general.quantization_version and
 * what says that a file is one of several parts: the new one is whole.  A tensor that has its type already is copied. */
#ifndef STOA_QUANTIZE_CONVERT_H
#define STOA_QUANTIZE_CONVERT_H

#include "base/threads.h"
#include "quantize/recipe.h"

struct convert_options {
    const char *path;                   /* of the new file; its folder has to be there */
    bool replace;                       /* what stands at `path` */
    struct pool *pool;                  /* the bytes do not depend on its threads */
    void (*progress)(uint64_t done, uint64_t all, void *user);      /* weights; now and then.  NULL is fine */
    void *user;
};

/* Memory: a row for each thread and some 40 MB, pages of the mapped file among them.  *n_bytes: of the new file.
 * ERR_USAGE: the path is one of the model's own, or taken.  ERR_BAD_FILE: a weight that is not finite, or larger than its new
 * type can hold; the line names it.  ERR_FAILED: the disk.  After an error there is no new file. */
int convert_model(const struct recipe *recipe, const struct convert_options *options, uint64_t *n_bytes);

#endif
