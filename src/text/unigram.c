/* unigram.c: SentencePiece's unigram model, tokenizer.ggml.model = "t5".
 *
 * Of all ways to cut the normalized text into pieces, the one with the greatest sum of scores.  Sums are doubles, as in
 * Hugging Face tokenizers: SentencePiece's own floats lose the difference of two pieces in a long text. */
#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <math.h>
#include <stdlib.h>

/* How much worse than the worst piece a character is that no piece spells, as SentencePiece has it. */
#define UNKNOWN_PENALTY 10

static bool cuts_text(const struct tokenizer *t, size_t id)
{
    return t->vocab.type[id] == TOKEN_NORMAL && t->vocab.pieces.offset[id + 1] > t->vocab.pieces.offset[id];
}

static int sort_pieces(struct tokenizer *t)
{
    double least = 0;
    size_t n = 0;
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        n += cuts_text(t, i);
    t->spellings = malloc(MAX(n, (size_t)1) * sizeof *t->spellings);
    if (!t->spellings)
        return error_set(ERR_NO_MEMORY, "no memory for %zu pieces", n);
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        if (cuts_text(t, i)) {
            struct spelling *s = &t->spellings[t->n_spellings];
            s->bytes = vocab_piece(&t->vocab, i, &s->n_bytes);
            s->id = (int32_t)i;
            least = t->n_spellings++ ? MIN(least, (double)t->score[i]) : (double)t->score[i];
        }
    spellings_sort(t->spellings, n);
    for (size_t i = 0; i < n; i++)
        t->spelling_start[(unsigned char)t->spellings[i].bytes[0] + 1]++;
    for (size_t byte = 1; byte < COUNT_OF(t->spelling_start); byte++)
        t->spelling_start[byte] += t->spelling_start[byte - 1];
    t->unknown_score = least - UNKNOWN_PENALTY;
    return 0;
}

static int unigram_open(struct tokenizer *t, const struct model_file *file)
{
    int err;
    t->ends = t->merge_spaces = true;
    if ((err = sentencepiece_open(t, file)) < 0 ||
        (err = tokenizer_read_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &t->merge_spaces)) < 0 ||
        (err = charsmap_open(&t->charsmap, file)) < 0)
        return err;
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        if (!isfinite(t->score[i]))
            return error_set(ERR_BAD_FILE, "%s: tokenizer.ggml.scores: the score of token %zu is not finite", model_file_path(file), i);
    return sort_pieces(t);
}

static void unigram_close(struct tokenizer *t)
{
    charsmap_release(&t->charsmap);
    free(t->spellings);
}

/* What the text begins with, as the map of characters writes it; returns the bytes that this stands for. */
static size_t next_normal(const struct tokenizer *t, const char *text, size_t n_bytes, struct segment *with)
{
    uint32_t code;
    size_t n = charsmap_match(&t->charsmap, text, n_bytes, &with->bytes);
    if (n) {
        for (with->n_bytes = 0; with->bytes[with->n_bytes]; with->n_bytes++)
            ;
        return n;
    }
    n = utf8_decode(text, n_bytes, &code);
    with->bytes = text;
    with->n_bytes = code >= UTF8_INVALID ? 1 : n;
    return with->n_bytes;
}

static bool is_blank(const struct segment *s)
{
    return s->n_bytes == 1 && s->bytes[0] == ' ';
}

/* SentencePiece's Normalizer::Normalize(), for a stretch of a text.  The charsmap may write blanks or nothing at all. */
static void normalize(const struct tokenizer *t, const struct segment *segment, struct buffer *out)
{
    bool after_blank = segment->first && t->merge_spaces;
    struct segment with = { 0 };
    size_t at = 0, n;
    while (at < segment->n_bytes && after_blank) {
        n = next_normal(t, segment->bytes + at, segment->n_bytes - at, &with);
        if (!is_blank(&with))
            break;
        at += n;
    }
    if (at == segment->n_bytes && segment->last)
        return;
    if (segment->first && t->space_prefix)
        buffer_add(out, BLANK_MARK, BLANK_MARK_BYTES);
    for (; at < segment->n_bytes; at += n) {
        n = next_normal(t, segment->bytes + at, segment->n_bytes - at, &with);
        for (; after_blank && with.n_bytes && with.bytes[0] == ' '; with.bytes++)
            with.n_bytes--;
        for (size_t i = 0; i < with.n_bytes; i++)
            if (with.bytes[i] == ' ')
                buffer_add(out, BLANK_MARK, BLANK_MARK_BYTES);
            else
                buffer_add(out, with.bytes + i, 1);
        if (with.n_bytes)
            after_blank = with.bytes[with.n_bytes - 1] == ' ';
        after_blank &= t->merge_spaces;
    }
    while (t->merge_spaces && segment->last && out->size >= BLANK_MARK_BYTES &&
           is_blank_mark(out->bytes + out->size - BLANK_MARK_BYTES, BLANK_MARK_BYTES))
        out->size -= BLANK_MARK_BYTES;
}

/* The best way to cut the text before a place: the piece that ends there, where that begins, and on the way back where the
 * next one ends. */
struct cut {
    double score;
    int32_t id;                 /* -1: a character that no piece spells */
    uint32_t begin, end;
};

static void offer(struct cut *cut, double score, int32_t id, size_t begin)
{
    if (score > cut->score)
        *cut = (struct cut){ .score = score, .id = id, .begin = (uint32_t)begin };
}

static void find_cuts(const struct tokenizer *t, const char *text, size_t n_bytes, struct cut *cuts)
{
    for (size_t i = 0; i <= n_bytes; i++)
        cuts[i].score = i ? -INFINITY : 0;
    for (size_t at = 0, n_code; at < n_bytes; at += n_code) {
        uint32_t code;
        bool spelled = false;
        unsigned char byte = (unsigned char)text[at];
        size_t low = t->spelling_start[byte], high = t->spelling_start[byte + 1];
        n_code = utf8_decode(text + at, n_bytes - at, &code);
        n_code = code >= UTF8_INVALID ? 1 : n_code;
        for (size_t n = 1; low < high; n++) {
            const struct spelling *s = &t->spellings[low];
            if (s->n_bytes == n) {
                offer(&cuts[at + n], cuts[at].score + (double)t->score[s->id], s->id, at);
                spelled |= n == n_code;
            }
            if (at + n == n_bytes)
                break;
            spellings_narrow(t->spellings, &low, &high, n, (unsigned char)text[at + n]);
        }
        if (!spelled)
            offer(&cuts[at + n_code], cuts[at].score + t->unknown_score, -1, at);
    }
}

static int encode_text(const struct tokenizer *t, const char *text, size_t n_bytes, struct ids *out)
{
    bool after_unknown = false;
    struct cut *cuts = malloc((n_bytes + 1) * sizeof *cuts);
    if (!cuts)
        return error_set(ERR_NO_MEMORY, "no memory to encode %zu bytes", n_bytes);
    find_cuts(t, text, n_bytes, cuts);
    for (size_t at = n_bytes; at > 0; at = cuts[at].begin)
        cuts[cuts[at].begin].end = (uint32_t)at;
    for (size_t at = 0; at < n_bytes; at = cuts[at].end) {
        const struct cut *cut = &cuts[cuts[at].end];
        if (cut->id >= 0) {
            ids_add(out, cut->id);
            after_unknown = false;
        } else {
            sentencepiece_add_unknown(t, text + at, cuts[at].end - at, &after_unknown, out);
        }
    }
    free(cuts);
    return 0;
}

static int unigram_encode(const struct tokenizer *t, const struct segment *segment, struct merger *merger, struct ids *out)
{
    struct buffer normal = { 0 };
    int err = 0;
    (void)merger;
    normalize(t, segment, &normal);
    if (normal.failed || normal.size > INT32_MAX)
        err = error_set(ERR_NO_MEMORY, "no memory to encode %zu bytes", segment->n_bytes);
    else if (normal.size)
        err = encode_text(t, normal.bytes, normal.size, out);
    buffer_release(&normal);
    return err;
}

const struct tokenizer_kind tokenizer_unigram = { "t5", unigram_open, unigram_close, unigram_encode, sentencepiece_decode };
