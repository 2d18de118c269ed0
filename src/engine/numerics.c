#include "engine/numerics.h"

#include "kernel/kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

/* Goes up with every change of a bit of an answer: of a tree, a polynomial, a rounding. */
#define NUMERICS_VERSION 1

static void print(char out[NUMERICS_ID], uint64_t high, uint64_t low)
{
    snprintf(out, NUMERICS_ID, "%016" PRIx64 "%016" PRIx64, high, low);
}

void numerics_id(char out[NUMERICS_ID], const struct model_file *file, const struct engine_options *o)
{
    struct model_identity model = model_file_identity(file);
    const uint64_t parts[] = {
        NUMERICS_VERSION, SPAN_TOKENS, o->int8_activations, o->n_groups, o->cache_type, model.word[0], model.word[1],
    };
    XXH128_hash_t h = XXH3_128bits(parts, sizeof parts);
    print(out, h.high64, h.low64);
}

void numerics_model(char out[NUMERICS_ID], const struct model_file *file)
{
    struct model_identity model = model_file_identity(file);
    print(out, model.word[0], model.word[1]);
}
