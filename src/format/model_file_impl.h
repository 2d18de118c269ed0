/* model_file_impl.h: what a model_file is made of, for model_file.c and metadata.c. */
#ifndef STOA_FORMAT_MODEL_FILE_IMPL_H
#define STOA_FORMAT_MODEL_FILE_IMPL_H

#include "base/arena.h"
#include "format/gguf.h"
#include "format/map_file.h"
#include "format/model_file.h"

struct model_part {
    struct model_part *next;
    const char *path;
    struct map_file map;
    struct gguf gguf;
};

struct model_file {
    struct arena arena;             /* holds all that follows, and lives as long as the file is open */
    const char *path;
    struct model_part *first;       /* its keys are the model's; those of later parts only describe these parts */
    size_t n_bytes;
    uint64_t digest, stamp;
    uint64_t n_tensors;             /* of all parts */
    const struct model_tensor **tensors, **by_name;     /* in file order; sorted */
};

#endif
