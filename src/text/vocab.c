#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *vocab_piece(const struct vocab *vocab, size_t id, size_t *n_bytes)
{
    *n_bytes = vocab->pieces.offset[id + 1] - vocab->pieces.offset[id];
    return vocab->pieces.text + vocab->pieces.offset[id];
}

/* The slot where the piece is, or the free one where it would be. */
static uint32_t *slot_of(const struct vocab *vocab, const char *piece, size_t n_bytes)
{
    for (size_t i = (size_t)XXH3_64bits(piece, n_bytes) & vocab->mask; ; i = (i + 1) & vocab->mask) {
        uint32_t *slot = &vocab->slots[i];
        size_t n = 0;
        const char *there = *slot ? vocab_piece(vocab, *slot - 1, &n) : NULL;
        if (!*slot || (n == n_bytes && !memcmp(there, piece, n)))
            return slot;
    }
}

int32_t vocab_find(const struct vocab *vocab, const char *piece, size_t n_bytes)
{
    return (int32_t)*slot_of(vocab, piece, n_bytes) - 1;
}

static int read_types(struct vocab *vocab, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.token_type";
    const char *path = model_file_path(file);
    const int32_t *types;
    size_t n_types, n = vocab->pieces.n;

    if (!model_file_get_i32s(file, key, &types, &n_types))
        return tokenizer_no_array(file, key, "integers");
    if (n_types != n)
        return error_set(ERR_BAD_FILE, "%s: %s: %zu types for %zu tokens", path, key, n_types, n);
    for (size_t i = 0; i < n; i++) {
        if (types[i] < TOKEN_NORMAL || types[i] > TOKEN_BYTE)
            return error_set(ERR_BAD_FILE, "%s: %s: token %zu has type %d", path, key, i, types[i]);
        vocab->type[i] = (uint8_t)types[i];
    }
    return 0;
}

int vocab_open(struct vocab *vocab, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.tokens";
    const char *path = model_file_path(file);

    if (!model_file_get_strings(file, key, &vocab->pieces))
        return tokenizer_no_array(file, key, "strings");
    size_t n = vocab->pieces.n, n_slots = 64;
    if (n == 0 || n > INT32_MAX / 2)
        return error_set(ERR_BAD_FILE, "%s: %s: %zu tokens", path, key, n);
    while (n_slots < 2 * n)
        n_slots *= 2;
    vocab->mask = n_slots - 1;
    vocab->slots = calloc(n_slots, sizeof *vocab->slots);
    vocab->type = malloc(n);
    if (!vocab->slots || !vocab->type)
        return error_set(ERR_NO_MEMORY, "no memory for a vocabulary of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *piece = vocab_piece(vocab, i, &n_bytes);
        uint32_t *slot = slot_of(vocab, piece, n_bytes);
        if (!*slot)
            *slot = (uint32_t)i + 1;
    }
    return read_types(vocab, file);
}

void vocab_release(struct vocab *vocab)
{
    free(vocab->slots);
    free(vocab->type);
    *vocab = (struct vocab){ 0 };
}
