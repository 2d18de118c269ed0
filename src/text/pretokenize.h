/* pretokenize.h: cutting text into the pieces that byte-level BPE merges inside of, as tokenizer.ggml.pre names it.
 *
 * Each tokenizer was trained with regular expressions, applied one after the other: the first cuts the text, the next each
 * piece of that, and so on; what an expression does not match is a piece too.  Here an expression is a list of rules, and
 * a rule is a scanner that looks ahead a character or two, or over what it then takes, so that all of it stays linear.
 * Bytes that are no UTF-8 are CHAR_OTHER, like control characters. */
#ifndef STOA_TEXT_PRETOKENIZE_H
#define STOA_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_EXPRESSIONS 6

struct rule;
struct pretokenizer {
    const char *name;
    const struct rule *expressions[MAX_EXPRESSIONS];    /* the last is NULL, or all are used */
    bool nfc;                   /* the model's tokenizer brings text to NFC first, which no key of the file says */
    bool whole_pieces;          /* a piece that is a token stays one, whatever the merges say ("ignore_merges") */
    bool add_bos;               /* what tokenizer.ggml.add_bos_token is when the file does not say */
};

/* NULL when the name is not known. */
const struct pretokenizer *pretokenizer_find(const char *name);

/* A walk over the pieces of a text; borrows both. */
struct words {
    const struct pretokenizer *pre;
    const char *text;
    size_t at, end[MAX_EXPRESSIONS + 1];        /* end of the piece at each depth that `at` is in; [0] is the text's */
    unsigned depth;
    struct {
        size_t key, value;
    } memo;                                     /* what a rule must not count again at every character */
};
void words_init(struct words *words, const struct pretokenizer *pre, const char *text, size_t n_bytes);
/* Bytes of the next piece, 0 at the end. */
size_t words_next(struct words *words);

#endif
