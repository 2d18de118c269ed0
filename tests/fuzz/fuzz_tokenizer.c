/* fuzz_tokenizer.c: any bytes through a tokenizer and back, and tokenizers of any metadata.
 *
 * The first byte chooses what is tried (enum trial), the second the flags of tokenizer_encode, the third the pre-tokenizer. */
#include "base/error.h"
#include "tests/text/tiny_gguf.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum trial {
    TRY_BPE, TRY_SPM, TRY_UNIGRAM,
    TRY_REAL,                   /* the model at $STOA_FUZZ_MODEL, if there is one */
    TRY_ANY_BPE, TRY_ANY_SPM, TRY_ANY_UNIGRAM,      /* of a vocabulary that is made of the input */
    TRY_NFC,
    N_TRIALS
};

#define KEY(name) "tokenizer.ggml." name
/* One of each list of expressions. */
static const char *const pres[] = {
    "gpt-2", "smollm", "qwen2", "llama-bpe", "default", "falcon", "qwen35", "seed-coder", "gpt-4o", "tekken", "kimi-k2", "superbpe",
    "bloom", "viking", "deepseek-llm", "deepseek-coder", "deepseek-v3",
};

/* Opened once, for all inputs; the file stays open, as the tokenizer borrows it. */
static struct tokenizer *open_tokenizer(struct model_file *file)
{
    static struct model_file *files[COUNT_OF(pres) + 3];
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

/* Bytes, a few pieces, a control token and a user-defined one; `model` is "llama" or "t5", which puts no blank before texts. */
static struct tokenizer *open_sentencepiece(const char *model)
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
        { KEY("model"), "s", model }, { KEY("tokens"), "S", pieces.bytes }, { KEY("token_type"), "I", types.bytes },
        { KEY("scores"), "F", scores.bytes }, { KEY("bos_token_id"), "u", "262" }, { KEY("eos_token_id"), "u", "262" },
        { KEY("add_space_prefix"), "b", strcmp(model, "t5") ? "1" : "0" }, { KEY("remove_extra_whitespaces"), "b", "0" },
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

/* Encodes; what comes back is the text again, if `exact`. */
static void there_and_back(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, bool exact)
{
    struct buffer back = { 0 };
    int32_t *ids = NULL;
    size_t n;
    if (tokenizer_encode(t, text, n_bytes, flags, &ids, &n) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= tokenizer_n_tokens(t))
            abort();
    tokenizer_decode(t, ids, n, true, &back);
    if (exact && (back.size != n_bytes || memcmp(back.bytes, text, n_bytes)))
        abort();
    buffer_release(&back);
    free(ids);
}

/* With and without what goes around a text; the text that comes back is judged without. */
static void try(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, bool exact)
{
    there_and_back(t, text, n_bytes, flags, false);
    there_and_back(t, text, n_bytes, flags & TOKENIZE_SPECIAL, exact);
}

/* U+2581 comes back as a blank; a user-defined token at the start has no blank before it, and the text may begin with one. */
static bool sentencepiece_is_exact(const char *text, size_t n_bytes, unsigned flags)
{
    return !memmem(text, n_bytes, "\xe2\x96\x81", 3) && (n_bytes < 3 || memcmp(text, "<u>", 3)) &&
           (!(flags & TOKENIZE_SPECIAL) || n_bytes < 3 || memcmp(text, "<s>", 3));
}

/* Pieces are not empty and together are the text. */
static void try_words(const struct pretokenizer *pre, const char *text, size_t n_bytes)
{
    struct words words;
    size_t all = 0;
    words_init(&words, pre, text, n_bytes);
    for (size_t n; (n = words_next(&words)) > 0; )
        all += n;
    if (all != n_bytes)
        abort();
}

/* What is in NFC stays as it is. */
static void try_nfc(const char *text, size_t n_bytes)
{
    struct buffer once = { 0 }, twice = { 0 };
    unicode_add_nfc(&once, text, n_bytes);
    if (once.size)
        unicode_add_nfc(&twice, once.bytes, once.size);
    if (once.failed || twice.failed || once.size != twice.size || (once.size && memcmp(once.bytes, twice.bytes, once.size)))
        abort();
    buffer_release(&once);
    buffer_release(&twice);
}

/* Lines up to a NUL each: tokens, types, merges, scores, the map of characters; then the text. */
static void any_vocabulary(const char *model, const char *data, size_t n_bytes, const char *pre, unsigned flags)
{
    const char *parts[6], *end = data + n_bytes, *at = data;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        parts[i] = at;
        at += strnlen(at, (size_t)(end - at));
        if (i < COUNT_OF(parts) - 1 && at == end)
            return;
        at++;
    }
    const struct tiny_key keys[] = {
        { KEY("model"), "s", model }, { KEY("pre"), "s", pre }, { KEY("tokens"), "S", parts[0] }, { KEY("token_type"), "I", parts[1] },
        { KEY("merges"), "S", parts[2] }, { KEY("scores"), "F", parts[3] }, { KEY("precompiled_charsmap"), "Y", parts[4] },
        { KEY("add_bos_token"), "b", "0" }, { KEY("add_eos_token"), "b", "0" },
    };
    struct model_file *file = tiny_gguf_open(keys, COUNT_OF(keys));
    struct tokenizer *t = NULL;
    if (tokenizer_open(&t, file) == 0)
        there_and_back(t, parts[5], (size_t)(end - parts[5]), flags, false);
    tokenizer_close(t);
    model_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const kinds[] = { [TRY_ANY_BPE] = "gpt2", [TRY_ANY_SPM] = "llama", [TRY_ANY_UNIGRAM] = "t5" };
    static struct tokenizer *bpe[COUNT_OF(pres)], *spm, *unigram, *real;
    if (!spm) {
        for (size_t i = 0; i < COUNT_OF(pres); i++)
            bpe[i] = open_bpe(pres[i]);
        spm = open_sentencepiece("llama");
        unigram = open_sentencepiece("t5");
        real = open_real();
    }
    if (n_bytes < 3)
        return 0;
    enum trial trial = data[0] % N_TRIALS;
    unsigned flags = data[1] % 8, pre = data[2] % COUNT_OF(pres);
    const struct pretokenizer *row = pretokenizer_find(pres[pre]);
    const char *text = (const char *)data + 3;
    n_bytes -= 3;
    switch (trial) {
    case TRY_BPE:
        try(bpe[pre], text, n_bytes, flags, !row->nfc);
        try_words(row, text, n_bytes);
        break;
    case TRY_SPM:
        try(spm, text, n_bytes, flags, sentencepiece_is_exact(text, n_bytes, flags));
        break;
    case TRY_UNIGRAM:
        try(unigram, text, n_bytes, flags, sentencepiece_is_exact(text, n_bytes, flags));
        break;
    case TRY_REAL:
        if (real)
            try(real, text, n_bytes, flags, false);
        break;
    case TRY_NFC:
        try_nfc(text, n_bytes);
        break;
    default: {
        char *copy = malloc(n_bytes + 1);           /* so that the last part ends with a NUL */
        memcpy(copy, text, n_bytes);
        copy[n_bytes] = 0;
        any_vocabulary(kinds[trial], copy, n_bytes, pres[pre], flags);
        free(copy);
    }
    }
    return 0;
}
