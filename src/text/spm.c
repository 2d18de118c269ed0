/* spm.c: SentencePiece BPE with byte fallback, tokenizer.ggml.model = "llama".
 *
 * Blanks are written as U+2581 and text is not cut into words.  Of all neighbours that together are a piece, those with
 * the best score are joined first.  A character that is no piece is spelled in tokens of type BYTE ("<0x41>"). */
#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char blank[] = "\xe2\x96\x81";             /* U+2581 */
#define BLANK_BYTES (sizeof blank - 1)

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
    }
    return 0;
}

static int spm_open(struct tokenizer *t, const struct model_file *file)
{
    int err;
    t->space_prefix = true;
    if ((err = read_scores(t, file)) < 0 ||
        (err = read_bytes(t, file)) < 0 ||
        (err = tokenizer_read_bool(file, "tokenizer.ggml.add_space_prefix", &t->space_prefix)) < 0)
        return err;
    return tokenizer_read_id(file, "tokenizer.ggml.unknown_token_id", t->vocab.pieces.n, &t->unknown);
}

static void spm_close(struct tokenizer *t)
{
    (void)t;
}

/* What merging looks at: the tokenizer, and the text that the symbols are spans of. */
struct spm_text {
    const struct tokenizer *t;
    const char *text;
};

/* Floats in order as unsigned integers, the greatest first. */
static uint32_t rank_of_score(float score)
{
    union { float f; uint32_t u; } v = { .f = score + 0.0f };       /* -0 is +0 */
    return v.u >> 31 ? v.u : ~v.u & 0x7fffffff;
}

static bool spm_may_join(const void *vocabulary, const struct symbol *left, const struct symbol *right,
                         uint32_t *rank, int32_t *id)
{
    const struct spm_text *s = vocabulary;
    size_t n_bytes = (size_t)left->n_bytes + right->n_bytes;
    if (n_bytes > s->t->longest_piece)
        return false;
    *id = vocab_find(&s->t->vocab, s->text + left->at, n_bytes);
    if (*id < 0 || s->t->vocab.type[*id] != TOKEN_NORMAL)
        return false;
    *rank = rank_of_score(s->t->score[*id]);
    return true;
}

static void add_bytes(const struct tokenizer *t, const char *text, size_t n_bytes, struct ids *out)
{
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = t->byte_id[(unsigned char)text[i]];
        if (id >= 0 || t->unknown >= 0)
            ids_add(out, id >= 0 ? id : t->unknown);
    }
}

/* `text` has U+2581 for blanks.  Symbols are characters first; what is no UTF-8 goes byte by byte. */
static int encode_text(const struct tokenizer *t, const char *text, size_t n_bytes, struct merger *merger, struct ids *out)
{
    struct spm_text s = { t, text };
    size_t n = 0;
    int err = merger_reserve(merger, n_bytes);
    if (err < 0)
        return err;
    for (size_t at = 0, n_code; at < n_bytes; at += n_code) {
        uint32_t code;
        n_code = utf8_decode(text + at, n_bytes - at, &code);
        n_code = code >= UTF8_INVALID ? 1 : n_code;
        merger->symbols[n++] = (struct symbol){ .at = (uint32_t)at, .n_bytes = (uint32_t)n_code,
                                                .id = vocab_find(&t->vocab, text + at, n_code) };
    }
    merger->may_join = spm_may_join;
    merger->vocabulary = &s;
    merger_run(merger, n);
    for (uint32_t i = 0; i != MERGE_NONE; i = merger->symbols[i].next) {
        const struct symbol *symbol = &merger->symbols[i];
        if (symbol->id >= 0 && t->vocab.type[symbol->id] == TOKEN_NORMAL)
            ids_add(out, symbol->id);
        else
            add_bytes(t, text + symbol->at, symbol->n_bytes, out);
    }
    return 0;
}

static int spm_encode(const struct tokenizer *t, const char *text, size_t n_bytes, bool first, struct merger *merger,
                      struct ids *out)
{
    struct buffer written = { 0 };
    int err = 0;
    if (first && t->space_prefix)
        buffer_add(&written, blank, BLANK_BYTES);
    for (size_t at = 0; at < n_bytes; at++)
        if (text[at] == ' ')
            buffer_add(&written, blank, BLANK_BYTES);
        else
            buffer_add(&written, text + at, 1);
    if (written.failed || written.size > INT32_MAX)
        err = error_set(ERR_NO_MEMORY, "no memory to encode %zu bytes", n_bytes);
    else
        err = encode_text(t, written.bytes, written.size, merger, out);
    buffer_release(&written);
    return err;
}

static void spm_decode(const struct tokenizer *t, size_t id, struct buffer *out)
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
        bool is_blank = n_bytes - at >= BLANK_BYTES && !memcmp(piece + at, blank, BLANK_BYTES) && type != TOKEN_CONTROL;
        buffer_add(out, is_blank ? " " : piece + at, 1);
        at += is_blank ? BLANK_BYTES : 1;
    }
}

const struct tokenizer_kind tokenizer_spm = { "llama", spm_open, spm_close, spm_encode, spm_decode };
