/* sentencepiece.c: what both kinds of SentencePiece tokenizers share: scores, byte tokens, what is unknown, decoding.
 *
 * Blanks are written as U+2581.  A character that is no piece is spelled in tokens of type BYTE ("<0x41>"). */
#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The byte that a piece such as "<0x0A>" names, or -1. */
static int byte_named(const char *piece, size_t n_bytes)
{
    char hex[3] = { 0 }, *end;
    if (n_bytes != 6 || memcmp(piece, "<0x", 3) || piece[5] != '>')
        return -1;
    memcpy(hex, piece + 3, 2);
    if (hex[0] == '+' || hex[0] == '-' || hex[0] == ' ')
        return -1;
    long byte = strtol(hex, &end, 16);
    return end == hex + 2 ? (int)byte : -1;
}

static int read_scores(struct tokenizer *t, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.scores";
    const char *path = model_file_path(file);
    size_t n;
    if (!model_file_get_f32s(file, key, &t->score, &n))
        return tokenizer_no_array(file, key, "numbers");
    if (n != t->vocab.pieces.n)
        return error_set(ERR_BAD_FILE, "%s: %s: %zu scores for %zu tokens", path, key, n, t->vocab.pieces.n);
    for (size_t i = 0; i < n; i++)
        if (isnan(t->score[i]))
            return error_set(ERR_BAD_FILE, "%s: %s: the score of token %zu is not a number", path, key, i);
    return 0;
}

static int read_bytes(struct tokenizer *t, const struct model_file *file)
{
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    for (size_t i = 0; i < t->vocab.pieces.n; i++) {
        size_t n_bytes;
        const char *piece = vocab_piece(&t->vocab, i, &n_bytes);
        t->longest_piece = MAX(t->longest_piece, n_bytes);
        if (t->vocab.type[i] != TOKEN_BYTE)
            continue;
        int byte = byte_named(piece, n_bytes);
        if (byte < 0)
            return error_set(ERR_BAD_FILE, "%s: tokenizer.ggml.tokens: token %zu is a byte and not written <0xHH>",
                             model_file_path(file), i);
        t->byte_id[byte] = (int32_t)i;
        t->has_bytes = true;
    }
    return 0;
}

/* The token that stands for what no piece spells: what the file says, or else the first of that type. */
static int find_unknown(struct tokenizer *t, const struct model_file *file)
{
    int err = tokenizer_read_id(file, "tokenizer.ggml.unknown_token_id", t->vocab.pieces.n, &t->unknown);
    for (size_t i = 0; i < t->vocab.pieces.n && t->unknown < 0; i++)
        if (t->vocab.type[i] == TOKEN_UNKNOWN)
            t->unknown = (int32_t)i;
    return err;
}

int sentencepiece_open(struct tokenizer *t, const struct model_file *file)
{
    int err;
    t->space_prefix = t->blank_marks = true;
    if ((err = read_scores(t, file)) < 0 ||
        (err = read_bytes(t, file)) < 0 ||
        (err = tokenizer_read_bool(file, "tokenizer.ggml.add_space_prefix", &t->space_prefix)) < 0)
        return err;
    return find_unknown(t, file);
}

void sentencepiece_add_unknown(const struct tokenizer *t, const char *text, size_t n_bytes, bool *after_unknown, struct ids *out)
{
    for (size_t i = 0; i < n_bytes && t->has_bytes; i++) {
        int32_t id = t->byte_id[(unsigned char)text[i]];
        if (id >= 0 || t->unknown >= 0)
            ids_add(out, id >= 0 ? id : t->unknown);
    }
    if (!t->has_bytes && t->unknown >= 0 && !*after_unknown)
        ids_add(out, t->unknown);
    *after_unknown = !t->has_bytes;
}

void sentencepiece_decode(const struct tokenizer *t, size_t id, struct buffer *out)
{
    size_t n_bytes;
    const char *piece = vocab_piece(&t->vocab, id, &n_bytes);
    uint8_t type = t->vocab.type[id];
    if (type == TOKEN_BYTE) {
        char byte = (char)byte_named(piece, n_bytes);
        buffer_add(out, &byte, 1);
        return;
    }
    for (size_t at = 0; at < n_bytes; ) {
        bool is_blank = type != TOKEN_CONTROL && is_blank_mark(piece + at, n_bytes - at);
        buffer_add(out, is_blank ? " " : piece + at, 1);
        at += is_blank ? BLANK_MARK_BYTES : 1;
    }
}
