/* recipe.h: which type each tensor of a model gets.
 *
 *   norms, vectors, a mixture's router           stay as they are
 *   the matrix that gives the logits             Q6_K where the wanted type has fewer bits (not with `pure`)
 *   every other matrix, experts too              the wanted type
 *   a row that is no whole number of blocks      a type with blocks of 32 that has about as many bits; else as it is */
#ifndef STOA_QUANTIZE_RECIPE_H
#define STOA_QUANTIZE_RECIPE_H

#include "base/arena.h"
#include "format/model_file.h"

enum recipe_reason { RECIPE_WANTED, RECIPE_KEPT, RECIPE_HEAD, RECIPE_ROW, N_RECIPE_REASONS };

struct recipe_item {
    const struct model_tensor *from;
    enum dtype type;
    enum recipe_reason reason;
    /* An error counts as much as its column's weights do.  True of an embedding that also gives the logits: hidden states are made of
     * its rows, so where it has large columns they do, and an error there is the same in every logit of every token. */
    bool by_column;
};
struct recipe {
    const struct model_file *file;
    enum dtype wanted;
    struct recipe_item *item;       /* [n], in the file's order */
    size_t n;
};

/* The items are the arena's.  encode_can(wanted).  ERR_NO_MEMORY. */
int recipe_make(struct recipe *out, struct arena *arena, const struct model_file *file, enum dtype wanted, bool pure);
/* What general.file_type says of a model whose matrices are mostly of this type (llama.cpp's numbers). */
uint32_t recipe_file_type(enum dtype type);

#endif
