/* bpe.c: byte-level BPE, tokenizer.ggml.model = "gpt2".
 *
 * Pieces are stored with every byte written as a character that prints: the 188 bytes that are such a character in
 * Latin-1 as themselves, the others as U+0100 and on, in order.  Text is cut into words (pretokenize.h), and in each
 * word the pair with the lowest merge is joined until no merge applies, as Hugging Face tokenizers does it. */
#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

struct merge_rule {
    int32_t left, right;        /* left is -1 in a free slot */
    uint32_t rank;
    int32_t id;
};

static bool stands_for_itself(uint32_t byte)
{
    return (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte < 0x100 && byte != 0xad);
}

static void write_bytes_as_characters(struct tokenizer *t)
{
    uint16_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        t->character[byte] = stands_for_itself(byte) ? (uint16_t)byte : next++;
        t->byte_of[t->character[byte]] = (uint8_t)byte;
    }
}

/* The slot of a pair's rule, or the free one where it would be. */
static struct merge_rule *rule_of(const struct tokenizer *t, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    for (size_t i = (size_t)(hash >> 32) & t->rules_mask; ; i = (i + 1) & t->rules_mask) {
        struct merge_rule *rule = &t->rules[i];
        if (rule->left < 0 || (rule->left == left && rule->right == right))
            return rule;
    }
}

static bool bpe_may_join(const void *vocabulary, const struct symbol *left, const struct symbol *right,
                         uint32_t *rank, int32_t *id)
{
    const struct merge_rule *rule = rule_of(vocabulary, left->id, right->id);
    *rank = rule->rank;
    *id = rule->id;
    return rule->left >= 0;
}

/* One merge, "LEFT RIGHT": both, and the two joined, must be tokens.  Of equal merges the last counts. */
static bool add_rule(struct tokenizer *t, const char *text, size_t n_bytes, uint32_t rank, struct buffer *scratch)
{
    const char *blank = memchr(text, ' ', n_bytes);
    size_t n_left = blank ? (size_t)(blank - text) : 0;
    if (!n_left || n_left + 1 == n_bytes || memchr(blank + 1, ' ', n_bytes - n_left - 1))
        return false;
    scratch->size = 0;
    buffer_add(scratch, text, n_left);
    buffer_add(scratch, blank + 1, n_bytes - n_left - 1);
    if (scratch->failed)
        return false;
    int32_t left = vocab_find(&t->vocab, text, n_left), right = vocab_find(&t->vocab, blank + 1, n_bytes - n_left - 1);
    int32_t id = vocab_find(&t->vocab, scratch->bytes, scratch->size);
    if (left < 0 || right < 0 || id < 0)
        return false;
    *rule_of(t, left, right) = (struct merge_rule){ left, right, rank, id };
    return true;
}

static int read_merges(struct tokenizer *t, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.merges";
    const char *path = model_file_path(file);
    struct buffer scratch = { 0 };
    struct model_strings merges;
    size_t n_slots = 64, n_normal = 0;
    int err = 0;

    if (!model_file_get_strings(file, key, &merges))
        return tokenizer_no_array(file, key, "strings");
    if (merges.n > INT32_MAX / 2)
        return error_set(ERR_BAD_FILE, "%s: %s: %zu merges", path, key, merges.n);
    while (n_slots < 2 * merges.n)
        n_slots *= 2;
    t->rules_mask = n_slots - 1;
    t->rules = malloc(n_slots * sizeof *t->rules);
    if (!t->rules)
        return error_set(ERR_NO_MEMORY, "no memory for %zu merges", merges.n);
    for (size_t i = 0; i < n_slots; i++)
        t->rules[i].left = -1;
    for (size_t i = 0; i < merges.n && !err; i++) {
        const char *text = merges.text + merges.offset[i];
        size_t n_bytes = merges.offset[i + 1] - merges.offset[i];
        if (!add_rule(t, text, n_bytes, (uint32_t)i, &scratch))
            err = scratch.failed ? error_set(ERR_NO_MEMORY, "no memory for merge %zu", i) :
                  error_set(ERR_BAD_FILE, "%s: %s: merge %zu (\"%.*s\") is not two tokens that make a third", path, key, i,
                            (int)MIN(n_bytes, (size_t)40), text);
    }
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        n_normal += t->vocab.type[i] == TOKEN_NORMAL;
    if (!err && merges.n == 0 && n_normal > 256)
        log_warning("%s: %s: no merges, so every byte of a text is a token", path, key);
    buffer_release(&scratch);
    return err;
}

static int bpe_open(struct tokenizer *t, const struct model_file *file)
{
    const char *pre;
    int err = model_file_require_string(file, "tokenizer.ggml.pre", &pre, NULL);
    if (err < 0)
        return err;
    if (!(t->pre = pretokenizer_find(pre)))
        return error_set(ERR_BAD_FILE, "%s: tokenizer.ggml.pre: the pre-tokenizer \"%s\" is not known", model_file_path(file), pre);
    t->begins = t->pre->add_bos;
    write_bytes_as_characters(t);
    for (int byte = 0; byte < 256; byte++) {
        char piece[4];
        t->byte_id[byte] = vocab_find(&t->vocab, piece, utf8_encode(t->character[byte], piece));
    }
    return read_merges(t, file);
}

static void bpe_close(struct tokenizer *t)
{
    free(t->rules);
}

/* The word as a piece would store it, if the vocabulary has it. */
static int32_t find_word(const struct tokenizer *t, const char *word, size_t n_bytes)
{
    char piece[512];
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (n + 4 > sizeof piece)
            return -1;
        n += utf8_encode(t->character[(unsigned char)word[i]], piece + n);
    }
    return vocab_find(&t->vocab, piece, n);
}

/* A byte that the vocabulary has no token for is left out, as Hugging Face tokenizers does. */
static int encode_word(const struct tokenizer *t, const char *word, size_t n_bytes, struct merger *merger, struct ids *out)
{
    int32_t whole = t->pre->whole_pieces ? find_word(t, word, n_bytes) : -1;
    size_t n = 0;
    int err;
    if (whole >= 0) {
        ids_add(out, whole);
        return 0;
    }
    if ((err = merger_reserve(merger, n_bytes)) < 0)
        return err;
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = t->byte_id[(unsigned char)word[i]];
        if (id >= 0)
            merger->symbols[n++] = (struct symbol){ .n_bytes = 1, .id = id };
    }
    merger_run(merger, n);
    for (uint32_t i = n ? 0 : MERGE_NONE; i != MERGE_NONE; i = merger->symbols[i].next)
        ids_add(out, merger->symbols[i].id);
    return 0;
}

static int encode_words(const struct tokenizer *t, const char *text, size_t n_bytes, struct merger *merger, struct ids *out)
{
    struct words words;
    int err = 0;
    words_init(&words, t->pre, text, n_bytes);
    for (size_t n; !err && (n = words_next(&words)) > 0; text += n)
        err = encode_word(t, text, n, merger, out);
    return err;
}

static int bpe_encode(const struct tokenizer *t, const struct segment *segment, struct merger *merger, struct ids *out)
{
    struct buffer composed = { 0 };
    int err;
    merger->may_join = bpe_may_join;
    merger->vocabulary = t;
    if (!t->pre->nfc)
        return encode_words(t, segment->bytes, segment->n_bytes, merger, out);
    unicode_add_nfc(&composed, segment->bytes, segment->n_bytes);
    err = composed.failed ? error_set(ERR_NO_MEMORY, "no memory to encode %zu bytes", segment->n_bytes) :
          encode_words(t, composed.bytes, composed.size, merger, out);
    buffer_release(&composed);
    return err;
}

/* A piece with a character that no byte is written as was never bytes: an added token, which stands for itself. */
static void bpe_decode(const struct tokenizer *t, size_t id, struct buffer *out)
{
    size_t n_bytes, n, start = out->size;
    const char *piece = vocab_piece(&t->vocab, id, &n_bytes);
    uint32_t code;
    bool literal = t->vocab.type[id] != TOKEN_NORMAL;

    for (size_t at = 0; at < n_bytes && !literal; at += n) {
        n = utf8_decode(piece + at, n_bytes - at, &code);
        literal = code >= BYTE_CHARACTERS || t->character[t->byte_of[code]] != code;
        if (!literal)
            buffer_add(out, &t->byte_of[code], 1);
    }
    if (literal) {
        out->size = start;
        buffer_add(out, piece, n_bytes);
    }
}

const struct tokenizer_kind tokenizer_bpe = { "gpt2", bpe_open, bpe_close, bpe_encode, bpe_decode };
