/* pretokenize.h: cutting text into the pieces that byte-level BPE merges inside of, as tokenizer.ggml.pre names it.
 *
 * Each tokenizer was trained with a regular expression; here each expression is a scanner written by hand, which takes
 * one look at a character or two and so stays linear.  Bytes that are no UTF-8 are CHAR_OTHER, like punctuation. */
#ifndef STOA_TEXT_PRETOKENIZE_H
#define STOA_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer {
    const char *name;
    /* Bytes of the piece that text[0..n_bytes) begins with, n_bytes > 0; at least 1. */
    size_t (*next)(const struct pretokenizer *pre, const char *text, size_t n_bytes);
    unsigned max_digits;        /* numeric characters in one piece; 0 is any number */
    bool digits_apart;          /* numeric characters are cut out before the expression sees the text */
    bool whole_pieces;          /* a piece that is a token stays one, whatever the merges say ("ignore_merges") */
    bool add_bos;               /* what tokenizer.ggml.add_bos_token is when the file does not say */
};

/* NULL when the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name);

#endif
