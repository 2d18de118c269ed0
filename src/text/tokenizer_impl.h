/* tokenizer_impl.h: what the files of a tokenizer share: the vocabulary, and the kinds of tokenizer as a table.
 *
 *   tokenizer.c   opening, special tokens, the public calls     bpe.c  kind "gpt2"       merge.c  joining neighbours
 *   vocab.c       pieces and their ids                          spm.c  kind "llama"
 *
 * Pieces are borrowed from the model file.  All else is made at open and never written again. */
#ifndef STOA_TEXT_TOKENIZER_IMPL_H
#define STOA_TEXT_TOKENIZER_IMPL_H

#include "base/buffer.h"
#include "text/merge.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

/* As tokenizer.ggml.token_type numbers them. */
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* Piece -> id, by open addressing.  Of equal pieces the first is found. */
struct vocab {
    struct model_strings pieces;        /* piece i is token i, as stored */
    uint8_t *type;                      /* [pieces.n], enum token_type */
    uint32_t *slots;                    /* id + 1, or 0 */
    size_t mask;
};
int vocab_open(struct vocab *vocab, const struct model_file *file);
void vocab_release(struct vocab *vocab);
int32_t vocab_find(const struct vocab *vocab, const char *piece, size_t n_bytes);   /* -1 when there is none */
const char *vocab_piece(const struct vocab *vocab, size_t id, size_t *n_bytes);

/* Ids in the making.  Memory that runs out sets `failed`; the caller looks once. */
struct ids {
    int32_t *ids;
    size_t n, capacity;
    bool failed;
};
void ids_add(struct ids *ids, int32_t id);

struct tokenizer;
struct tokenizer_kind {
    const char *model;                  /* tokenizer.ggml.model */
    int (*open)(struct tokenizer *t, const struct model_file *file);
    void (*close)(struct tokenizer *t);
    /* Text without special tokens, n_bytes > 0; `first` when nothing stands before it. */
    int (*encode)(const struct tokenizer *t, const char *text, size_t n_bytes, bool first, struct merger *merger,
                  struct ids *out);
    /* Appends what a token stands for in text. */
    void (*decode)(const struct tokenizer *t, size_t id, struct buffer *out);
};
extern const struct tokenizer_kind tokenizer_bpe, tokenizer_spm;

struct special {
    const char *bytes;                  /* in tokenizer.bytes */
    size_t n_bytes;
    int32_t id;
};

#define BYTE_CHARACTERS 0x144
struct merge_rule;
struct tokenizer {
    const struct tokenizer_kind *kind;
    struct vocab vocab;
    char *bytes;                        /* token i stands for bytes [offset[i], offset[i+1]) */
    size_t *offset;
    bool *is_end;
    int32_t begin;
    struct special *specials;           /* sorted by bytes */
    size_t n_specials;
    bool begins_special[256];           /* whether one begins with this byte */

    /* tokenizer_bpe */
    const struct pretokenizer *pre;
    int32_t byte_id[256];               /* also spm's; -1: the vocabulary has no token for this byte */
    uint16_t character[256];            /* how pieces write a byte; below BYTE_CHARACTERS */
    uint8_t byte_of[BYTE_CHARACTERS];   /* and back */
    struct merge_rule *rules;           /* a hash table of rules_mask + 1 */
    size_t rules_mask;

    /* tokenizer_spm */
    const float *score;
    bool space_prefix;
    int32_t unknown;                    /* or -1 */
    size_t longest_piece;
};

/* ERR_BAD_FILE: the key is missing, or not the array of `wanted` that it should be. */
int tokenizer_no_array(const struct model_file *file, const char *key, const char *wanted);
/* An optional bool: *out stays as it is when the key is absent. */
int tokenizer_read_bool(const struct model_file *file, const char *key, bool *out);
/* An optional token id: -1 when the key is absent. */
int tokenizer_read_id(const struct model_file *file, const char *key, size_t n_tokens, int32_t *out);

#endif
