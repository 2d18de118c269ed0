/* tokenizer_impl.h: what the files of a tokenizer share: the vocabulary, and the kinds of tokenizer as a table.
 *
 *   tokenizer.c   opening, special tokens, the public calls     bpe.c      kind "gpt2"     merge.c          joining neighbours
 *   vocab.c       pieces and their ids                          spm.c      kind "llama"    sentencepiece.c  what these two share
 *   spelling.c    walking sorted pieces byte by byte            unigram.c  kind "t5"       charsmap.c       its normalization
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

/* Pieces sorted by their bytes, equal ones by id.  A walk begins with [low, high) = [0, n); each byte narrows it to those that
 * go on with it, and [low] is the piece that ends there, if any does. */
struct spelling {
    const char *bytes;
    size_t n_bytes;
    int32_t id;
};
void spellings_sort(struct spelling *spellings, size_t n);
void spellings_narrow(const struct spelling *spellings, size_t *low, size_t *high, size_t depth, unsigned char byte);

/* A stretch of text without special tokens, n_bytes > 0. */
struct segment {
    const char *bytes;
    size_t n_bytes;
    bool first, last;                   /* nothing stands before it, after it */
};

/* tokenizer.ggml.precompiled_charsmap: what SentencePiece writes in place of some characters; {0} changes nothing. */
struct charsmap {
    uint32_t *units;                    /* a double-array trie, and the strings that its values are offsets into */
    size_t n_units;
    const char *strings;
    size_t n_strings;
};
int charsmap_open(struct charsmap *map, const struct model_file *file);
void charsmap_release(struct charsmap *map);
/* The bytes that text[0..n_bytes) begins with and that are replaced, 0 when none are; in *with what stands for them. */
size_t charsmap_match(const struct charsmap *map, const char *text, size_t n_bytes, const char **with);

struct tokenizer;
struct tokenizer_kind {
    const char *model;                  /* tokenizer.ggml.model */
    int (*open)(struct tokenizer *t, const struct model_file *file);      /* also sets begins and ends */
    void (*close)(struct tokenizer *t);
    int (*encode)(const struct tokenizer *t, const struct segment *segment, struct merger *merger, struct ids *out);
    /* Appends what a token stands for in text. */
    void (*decode)(const struct tokenizer *t, size_t id, struct buffer *out);
};
extern const struct tokenizer_kind tokenizer_bpe, tokenizer_spm, tokenizer_unigram;

#define BYTE_CHARACTERS 0x144
struct merge_rule;
struct tokenizer {
    const struct tokenizer_kind *kind;
    struct vocab vocab;
    char *bytes;                        /* token i stands for bytes [offset[i], offset[i+1]) */
    size_t *offset;
    bool *is_end;
    bool begins, ends;                  /* texts begin, end with a token: the kind's default, then what the file says */
    int32_t begin, end;                 /* that token, or -1 when texts do not */
    char *folded;                       /* the bytes of specials, where blank_marks */
    struct spelling *specials;
    size_t n_specials;
    bool begins_special[256];           /* whether one begins with this byte */

    /* tokenizer_bpe */
    const struct pretokenizer *pre;
    int32_t byte_id[256];               /* also spm's; -1: the vocabulary has no token for this byte */
    uint16_t character[256];            /* how pieces write a byte; below BYTE_CHARACTERS */
    uint8_t byte_of[BYTE_CHARACTERS];   /* and back */
    struct merge_rule *rules;           /* a hash table of rules_mask + 1 */
    size_t rules_mask;

    /* tokenizer_spm and tokenizer_unigram, by sentencepiece_open() */
    bool blank_marks;                   /* U+2581 stands for a blank, in pieces and in text */
    bool space_prefix;
    bool has_bytes;                     /* there are tokens of type BYTE */
    const float *score;
    int32_t unknown;                    /* or -1 */
    size_t longest_piece;

    /* tokenizer_unigram */
    bool merge_spaces;                  /* runs of blanks are one, those at the ends none */
    struct charsmap charsmap;
    struct spelling *spellings;         /* pieces that text may be cut into */
    size_t n_spellings, spelling_start[257];    /* those that begin with byte b are [b] to [b + 1] */
    double unknown_score;
};

/* ERR_BAD_FILE: the key is missing, or not the array of `wanted` that it should be. */
int tokenizer_no_array(const struct model_file *file, const char *key, const char *wanted);
/* An optional bool: *out stays as it is when the key is absent. */
int tokenizer_read_bool(const struct model_file *file, const char *key, bool *out);
/* An optional token id: -1 when the key is absent. */
int tokenizer_read_id(const struct model_file *file, const char *key, size_t n_tokens, int32_t *out);


/* sentencepiece.c */
#define BLANK_MARK "\xe2\x96\x81"        /* U+2581 */
#define BLANK_MARK_BYTES (sizeof BLANK_MARK - 1)
static inline bool is_blank_mark(const char *text, size_t n_bytes)
{
    return n_bytes >= BLANK_MARK_BYTES && text[0] == BLANK_MARK[0] && text[1] == BLANK_MARK[1] && text[2] == BLANK_MARK[2];
}
int sentencepiece_open(struct tokenizer *t, const struct model_file *file);
/* A stretch that no piece spells, as byte tokens; without those as the unknown token, one for neighbours: *after_unknown says
 * whether the last token in `out` was that. */
void sentencepiece_add_unknown(const struct tokenizer *t, const char *text, size_t n_bytes, bool *after_unknown, struct ids *out);
void sentencepiece_decode(const struct tokenizer *t, size_t id, struct buffer *out);

#endif
