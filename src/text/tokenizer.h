/* tokenizer.h: text to token ids and back, as the model file says.
 *
 * Byte-level BPE (tokenizer.ggml.model = "gpt2") with the pre-tokenizer that tokenizer.ggml.pre names, SentencePiece BPE
 * ("llama") and SentencePiece's unigram model ("t5"); a model or pre-tokenizer that is not known is an error at open, never
 * wrong ids.  Read-only once open: any thread may call in.
 *
 * What a model's tokenizer does to text before it cuts it is done here too: NFC where the name of the pre-tokenizer implies
 * it (pretokenize.h), SentencePiece's map of characters.  Special tokens are found before that, in the text as it is.
 *
 * GGUF cannot say that a special token takes the blanks around it with it ("lstrip", "rstrip"), so none does; nor that
 * a blank goes before every stretch between special tokens: the one of add_space_prefix goes before a text's first
 * character, unless a special token is there. */
#ifndef STOA_TEXT_TOKENIZER_H
#define STOA_TEXT_TOKENIZER_H

#include "format/model_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* Borrows `file`, which must stay open.  ERR_BAD_FILE with the key that is wrong. */
int tokenizer_open(struct tokenizer **out, const struct model_file *file);
void tokenizer_close(struct tokenizer *tokenizer);

/* 0, or ERR_BAD_FILE when it can make ids that a model of n_vocab rows does not have. */
int tokenizer_check(const struct tokenizer *tokenizer, uint32_t n_vocab);
uint32_t tokenizer_n_tokens(const struct tokenizer *tokenizer);
size_t tokenizer_longest(const struct tokenizer *tokenizer);     /* bytes that a token stands for at most */
int32_t tokenizer_begin(const struct tokenizer *tokenizer);      /* id to put before a text, or -1 when the model wants none */
int32_t tokenizer_end(const struct tokenizer *tokenizer);        /* id to put after a text, likewise */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);    /* end of text, of turn: generation stops there */
/* Stands for no text; so does the unknown token. */
bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t id);
/* Whether the text of one stands in these bytes, so that TOKENIZE_SPECIAL would make it a token. */
bool tokenizer_has_control(const struct tokenizer *tokenizer, const char *text, size_t n_bytes);
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece);    /* exact piece as stored, or -1 */

enum tokenize_flags {
    TOKENIZE_BEGIN = 1,         /* put the model's begin token first, if it wants one and the text does not start with it */
    TOKENIZE_SPECIAL = 2,       /* recognise special tokens in the text; without it they are plain text */
    TOKENIZE_END = 4,           /* put the model's end token last, if it wants one and the text does not end with it */
};
/* Any bytes will do: what is not UTF-8 goes through as bytes, and a byte that the vocabulary has no token for is left
 * out, as Hugging Face does (SmolLM2 has none for a few control characters and unassigned planes).  User-defined tokens
 * are always recognised, control tokens with TOKENIZE_SPECIAL: the longest at the leftmost place.  On success *ids is
 * malloc'ed (caller frees) and *n set.  Time grows near-linearly with n_bytes, whatever the text. */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n_bytes, unsigned flags,
                     int32_t **ids, size_t *n);
/* The same with ranges, in ascending order, in which special tokens are plain text even with TOKENIZE_SPECIAL: what people
 * wrote, inside what a template wrote. */
struct text_range {
    size_t begin, end;
};
struct encode_text {
    const char *bytes;
    size_t n_bytes;
    unsigned flags;
    const struct text_range *plain;
    size_t n_plain;
};
int tokenizer_encode_text(const struct tokenizer *tokenizer, const struct encode_text *text, int32_t **ids, size_t *n);

/* Whether encoding puts a blank before a text, which whoever decodes that whole text takes off again. */
bool tokenizer_adds_space(const struct tokenizer *tokenizer);
/* Appends the text of whole ids: their bytes, without that blank. */
struct buffer;
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t n, bool special, struct buffer *out);

/* The bytes of one token, as they stand in decoded text; borrowed.  A control token has none (*n_bytes = 0) unless
 * `special`, which gives its name.  An id that does not exist has none. */
const char *tokenizer_bytes(const struct tokenizer *tokenizer, int32_t id, bool special, size_t *n_bytes);

/* Incremental detokenizer: bytes of tokens in, whole UTF-8 characters out.  Bytes that may still become a character are
 * held back (3 at most); bytes that can not are passed as U+FFFD, one for each maximal subpart (the Unicode standard's
 * recommended practice, as Python's errors="replace"). */
struct utf8_stream {
    unsigned char held[4];
    uint8_t n_held;
};
void utf8_stream_add(struct utf8_stream *stream, const char *bytes, size_t n_bytes, struct buffer *out);
void utf8_stream_end(struct utf8_stream *stream, struct buffer *out);    /* what is still held becomes U+FFFD */
bool utf8_is_valid(const char *bytes, size_t n_bytes);

#endif
