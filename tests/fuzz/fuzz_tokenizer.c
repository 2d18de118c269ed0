/* fuzz_tokenizer.c: any bytes through a tokenizer and back, and tokenizers of any metadata.
 *
 * The first byte chooses: bits 0-1 byte-level BPE, SentencePiece, the model at $STOA_FUZZ_MODEL if there is one, or a
 * vocabulary made of the input; bits 2-3 the flags of tokenizer_encode; bits 4-6 the pre-tokenizer. */
#include "base/error.h"
#include "tests/text/tiny_gguf.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define KEY(name) "tokenizer.ggml." name
static const char *const pres[] = { "gpt-2", "smollm", "qwen2", "llama-bpe" };

/* Opened once, for all inputs; the file stays open, as the tokenizer borrows it. */
static struct tokenizer *open_tokenizer(struct model_file *file)
{
    static struct model_file *files[COUNT_OF(pres) + 2];
    static size_t n_files;
    struct tokenizer *t = NULL;
    files[n_files++] = file;
    if (tokenizer_open(&t, file) < 0) {
        fprintf(stderr, "%s\n", error_text());
        abort();
    }
    return t;
}

/* All bytes, some merges, a control token and a user-defined one. */
static struct tokenizer *open_bpe(const char *pre)
{
    char *bytes = tiny_byte_pieces(), *pieces = tiny_join(bytes, "ab\nabc\n\xc4\xa0" "a\n<s>\n<u>\naa\naaaa"),
         *ones = tiny_repeat("1", 256), *types = tiny_join(ones, "1\n1\n1\n3\n4\n1\n1");
    const struct tiny_key keys[] = {
        { KEY("model"), "s", "gpt2" }, { KEY("pre"), "s", pre }, { KEY("tokens"), "S", pieces }, { KEY("token_type"), "I", types },
        { KEY("merges"), "S", "a b\nab c\n\xc4\xa0 a\na a\naa aa" }, { KEY("bos_token_id"), "u", "259" },
    };
    struct tokenizer *t = open_tokenizer(tiny_gguf_open(keys, COUNT_OF(keys)));
    free(bytes);
    free(pieces);
    free(ones);
    free(types);
    return t;
}

static struct tokenizer *open_spm(void)
{
    struct buffer pieces = { 0 }, types = { 0 }, scores = { 0 };
    for (int byte = 0; byte < 256; byte++) {
        buffer_printf(&pieces, "<0x%02X>\n", byte);
        buffer_add_text(&types, "6\n");
        buffer_add_text(&scores, "0\n");
    }
    buffer_add_text(&pieces, "\xe2\x96\x81\na\nb\n\xe2\x96\x81" "a\nab\n\xe2\x96\x81\xe2\x96\x81\n<s>\n<u>");
    buffer_add_text(&types, "1\n1\n1\n1\n1\n1\n3\n4");
    buffer_add_text(&scores, "-1\n-2\n-3\n-4\n-4\n-6\n0\n0");
    const struct tiny_key keys[] = {
        { KEY("model"), "s", "llama" }, { KEY("tokens"), "S", pieces.bytes }, { KEY("token_type"), "I", types.bytes },
        { KEY("scores"), "F", scores.bytes }, { KEY("bos_token_id"), "u", "262" },
    };
    struct tokenizer *t = open_tokenizer(tiny_gguf_open(keys, COUNT_OF(keys)));
    buffer_release(&pieces);
    buffer_release(&types);
    buffer_release(&scores);
    return t;
}

static struct tokenizer *open_real(void)
{
    const char *path = getenv("STOA_FUZZ_MODEL");
    struct model_file *file;
    return path && model_file_open(&file, path) == 0 ? open_tokenizer(file) : NULL;
}

/* Encodes; what comes back is `prefix` and the text, if `exact`.  The text stays clear of "\u2581", which is a blank. */
static void there_and_back(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, const char *prefix, bool exact)
{
    struct buffer back = { 0 };
    int32_t *ids = NULL;
    size_t n, n_piece;
    buffer_add_text(&back, "");
    if (tokenizer_encode(t, text, n_bytes, flags, &ids, &n) < 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= tokenizer_n_tokens(t))
            abort();
        const char *piece = tokenizer_bytes(t, ids[i], true, &n_piece);
        if (!(flags & TOKENIZE_BEGIN) || i > 0)
            buffer_add(&back, piece, n_piece);
    }
    size_t skip = n_bytes ? strlen(prefix) : 0;
    if (exact && (back.size != skip + n_bytes || memcmp(back.bytes + skip, text, n_bytes)))
        abort();
    buffer_release(&back);
    free(ids);
}

/* Lines up to a NUL each: tokens, types, merges, scores; then the text. */
static void any_vocabulary(const char *data, size_t n_bytes, const char *pre, unsigned flags)
{
    const char *parts[5], *end = data + n_bytes, *at = data;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        parts[i] = at;
        at += strnlen(at, (size_t)(end - at));
        if (i < 4 && at == end)
            return;
        at++;
    }
    const struct tiny_key keys[] = {
        { KEY("model"), "s", flags & 1 ? "llama" : "gpt2" }, { KEY("pre"), "s", pre }, { KEY("tokens"), "S", parts[0] },
        { KEY("token_type"), "I", parts[1] }, { KEY("merges"), "S", parts[2] }, { KEY("scores"), "F", parts[3] },
        { KEY("add_bos_token"), "b", "0" },
    };
    struct model_file *file = tiny_gguf_open(keys, COUNT_OF(keys));
    struct tokenizer *t = NULL;
    if (tokenizer_open(&t, file) == 0)
        there_and_back(t, parts[4], (size_t)(end - parts[4]), flags, "", false);
    tokenizer_close(t);
    model_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct tokenizer *bpe[COUNT_OF(pres)], *spm, *real;
    if (!spm) {
        for (size_t i = 0; i < COUNT_OF(pres); i++)
            bpe[i] = open_bpe(pres[i]);
        spm = open_spm();
        real = open_real();
    }
    if (n_bytes < 1)
        return 0;
    unsigned flags = data[0] >> 2 & 3, pre = data[0] >> 4 & 3;
    const char *text = (const char *)data + 1;
    n_bytes--;
    switch (data[0] & 3) {
    case 0:
        there_and_back(bpe[pre], text, n_bytes, flags & ~(unsigned)TOKENIZE_BEGIN, "", true);
        there_and_back(bpe[pre], text, n_bytes, flags, "", false);
        break;
    case 1:
        there_and_back(spm, text, n_bytes, flags & ~(unsigned)(TOKENIZE_BEGIN | TOKENIZE_SPECIAL), " ",
                       !memmem(text, n_bytes, "\xe2\x96\x81", 3) && (n_bytes < 3 || memcmp(text, "<u>", 3)));
        there_and_back(spm, text, n_bytes, flags, "", false);
        break;
    case 2:
        if (real)
            there_and_back(real, text, n_bytes, flags, "", false);
        break;
    default: {
        char *copy = malloc(n_bytes + 1);           /* so that the last part ends with a NUL */
        memcpy(copy, text, n_bytes);
        copy[n_bytes] = 0;
        any_vocabulary(copy, n_bytes, pres[pre], flags);
        free(copy);
    }
    }
    return 0;
}
