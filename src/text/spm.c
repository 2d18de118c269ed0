/* spm.c: SentencePiece BPE with byte fallback, tokenizer.ggml.model = "llama".
 *
 * Text is not cut into words.  Of all neighbours that together are a piece, those with the best score are joined first. */
#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

static int spm_open(struct tokenizer *t, const struct model_file *file)
{
    t->begins = true;
    return sentencepiece_open(t, file);
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
    bool after_unknown = false;
    for (uint32_t i = 0; i != MERGE_NONE; i = merger->symbols[i].next) {
        const struct symbol *symbol = &merger->symbols[i];
        if (symbol->id >= 0 && t->vocab.type[symbol->id] == TOKEN_NORMAL) {
            ids_add(out, symbol->id);
            after_unknown = false;
        } else {
            sentencepiece_add_unknown(t, text + symbol->at, symbol->n_bytes, &after_unknown, out);
        }
    }
    return 0;
}

static int spm_encode(const struct tokenizer *t, const struct segment *segment, struct merger *merger, struct ids *out)
{
    struct buffer written = { 0 };
    int err = 0;
    if (segment->first && t->space_prefix)
        buffer_add(&written, BLANK_MARK, BLANK_MARK_BYTES);
    for (size_t at = 0; at < segment->n_bytes; at++)
        if (segment->bytes[at] == ' ')
            buffer_add(&written, BLANK_MARK, BLANK_MARK_BYTES);
        else
            buffer_add(&written, segment->bytes + at, 1);
    if (written.failed || written.size > INT32_MAX)
        err = error_set(ERR_NO_MEMORY, "no memory to encode %zu bytes", segment->n_bytes);
    else
        err = encode_text(t, written.bytes, written.size, merger, out);
    buffer_release(&written);
    return err;
}

const struct tokenizer_kind tokenizer_spm = { "llama", spm_open, spm_close, spm_encode, sentencepiece_decode };
