#include "text/tokenizer_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const struct tokenizer_kind *const kinds[] = { &tokenizer_bpe, &tokenizer_spm, &tokenizer_unigram };

/* Where generation stops: what these keys say, and these tokens where they are control tokens. */
static const char *const end_keys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
};
static const char *const end_names[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",
};

int tokenizer_no_array(const struct model_file *file, const char *key, const char *wanted)
{
    const char *path = model_file_path(file);
    return model_file_has(file, key) ? error_set(ERR_BAD_FILE, "%s: %s: wanted an array of %s", path, key, wanted) :
                                error_set(ERR_BAD_FILE, "%s: %s: missing", path, key);
}

int tokenizer_read_bool(const struct model_file *file, const char *key, bool *out)
{
    if (model_file_get_bool(file, key, out) || !model_file_has(file, key))
        return 0;
    return error_set(ERR_BAD_FILE, "%s: %s: wanted a bool", model_file_path(file), key);
}

int tokenizer_read_id(const struct model_file *file, const char *key, size_t n_tokens, int32_t *out)
{
    uint64_t id = 0;
    *out = -1;
    if (!model_file_has(file, key))
        return 0;
    int err = model_file_require_u64(file, key, 0, n_tokens - 1, &id);
    if (err == 0)
        *out = (int32_t)id;
    return err;
}

void ids_add(struct ids *ids, int32_t id)
{
    if (ids->n == ids->capacity && !ids->failed) {
        size_t capacity = MAX((size_t)64, 2 * ids->capacity);
        int32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
        ids->failed = !grown;
        ids->ids = grown ? grown : ids->ids;
        ids->capacity = grown ? capacity : ids->capacity;
    }
    if (!ids->failed)
        ids->ids[ids->n++] = id;
}

static int decode_all(struct tokenizer *t)
{
    size_t n = t->vocab.pieces.n;
    struct buffer all = { 0 };
    t->offset = malloc((n + 1) * sizeof *t->offset);
    if (!t->offset)
        return error_set(ERR_NO_MEMORY, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        t->offset[i] = all.size;
        t->kind->decode(t, i, &all);
    }
    t->offset[n] = all.size;
    t->bytes = all.bytes;
    return all.failed ? error_set(ERR_NO_MEMORY, "no memory for the text of %zu tokens", n) : 0;
}

/* What SentencePiece takes for the unknown token is never in a text, though files call it a control token. */
static bool is_special(const struct tokenizer *t, size_t id)
{
    uint8_t type = t->vocab.type[id];
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) && t->offset[id + 1] > t->offset[id] && (int64_t)id != t->unknown;
}

/* The byte that a text is seen to go on with, and in *n how many bytes of it that takes: three for a mark of a blank. */
static unsigned char next_byte(const struct tokenizer *t, const char *text, size_t n_bytes, size_t *n)
{
    bool blank = t->blank_marks && is_blank_mark(text, n_bytes);
    *n = blank ? BLANK_MARK_BYTES : 1;
    return blank ? ' ' : (unsigned char)*text;
}

static int sort_specials(struct tokenizer *t)
{
    size_t n_specials = 0, n_bytes = 0, n;
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        if (is_special(t, i)) {
            n_specials++;
            n_bytes += t->offset[i + 1] - t->offset[i];
        }
    if (n_specials == 0)
        return 0;
    t->specials = malloc(n_specials * sizeof *t->specials);
    t->folded = malloc(n_bytes);
    if (!t->specials || !t->folded)
        return error_set(ERR_NO_MEMORY, "no memory for %zu special tokens", n_specials);
    char *to = t->folded;
    for (size_t i = 0; i < t->vocab.pieces.n; i++) {
        if (!is_special(t, i))
            continue;
        struct spelling *s = &t->specials[t->n_specials++];
        *s = (struct spelling){ .bytes = to, .id = (int32_t)i };
        for (size_t at = t->offset[i]; at < t->offset[i + 1]; at += n)
            *to++ = (char)next_byte(t, t->bytes + at, t->offset[i + 1] - at, &n);
        s->n_bytes = (size_t)(to - s->bytes);
        t->begins_special[(unsigned char)s->bytes[0]] = true;
    }
    t->begins_special[(unsigned char)BLANK_MARK[0]] |= t->blank_marks && t->begins_special[' '];
    spellings_sort(t->specials, t->n_specials);
    return 0;
}

/* Whether texts have a token at one end, and which: -1 when they have none. */
static int find_edge(struct tokenizer *t, const struct model_file *file, const char *wanted_key, const char *id_key, bool wanted,
                     int32_t *id)
{
    int err = tokenizer_read_bool(file, wanted_key, &wanted);
    if (err == 0)
        err = tokenizer_read_id(file, id_key, t->vocab.pieces.n, id);
    if (err == 0 && wanted && *id < 0)
        err = error_set(ERR_BAD_FILE, "%s: %s: missing, and the model wants this token around texts", model_file_path(file), id_key);
    if (!wanted)
        *id = -1;
    return err;
}

static int find_edges(struct tokenizer *t, const struct model_file *file)
{
    int err = find_edge(t, file, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", t->begins, &t->begin);
    return err ? err : find_edge(t, file, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", t->ends, &t->end);
}

static int find_ends(struct tokenizer *t, const struct model_file *file)
{
    int32_t id;
    int err;
    t->is_end = calloc(t->vocab.pieces.n, sizeof *t->is_end);
    if (!t->is_end)
        return error_set(ERR_NO_MEMORY, "no memory for %zu tokens", t->vocab.pieces.n);
    for (size_t i = 0; i < COUNT_OF(end_keys); i++) {
        if ((err = tokenizer_read_id(file, end_keys[i], t->vocab.pieces.n, &id)) < 0)
            return err;
        if (id >= 0)
            t->is_end[id] = true;
    }
    for (size_t i = 0; i < COUNT_OF(end_names); i++) {
        id = tokenizer_find(t, end_names[i]);
        if (id >= 0 && t->vocab.type[id] == TOKEN_CONTROL)
            t->is_end[id] = true;
    }
    return 0;
}

int tokenizer_open(struct tokenizer **out, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.model";
    struct tokenizer *t = NULL;
    const char *model;
    int err = model_file_require_string(file, key, &model, NULL);
    if (err < 0)
        return err;
    t = calloc(1, sizeof *t);
    if (!t)
        return error_set(ERR_NO_MEMORY, "no memory for a tokenizer");
    t->unknown = -1;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (!strcmp(kinds[i]->model, model))
            t->kind = kinds[i];
    if (!t->kind) {
        err = error_set(ERR_BAD_FILE, "%s: %s: the tokenizer \"%s\" is not known", model_file_path(file), key, model);
        goto done;
    }
    if ((err = vocab_open(&t->vocab, file)) < 0 ||
        (err = t->kind->open(t, file)) < 0 ||
        (err = decode_all(t)) < 0 ||
        (err = sort_specials(t)) < 0 ||
        (err = find_edges(t, file)) < 0 ||
        (err = find_ends(t, file)) < 0)
        goto done;
    *out = t;
    t = NULL;
done:
    tokenizer_close(t);
    return err;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    if (t->kind)
        t->kind->close(t);
    vocab_release(&t->vocab);
    free(t->bytes);
    free(t->offset);
    free(t->is_end);
    free(t->specials);
    free(t->folded);
    free(t);
}

/* The longest special token that `text` begins with, and in *taken its bytes there; or NULL.  Of control tokens only with
 * TOKENIZE_SPECIAL. */
static const struct spelling *special_at(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, size_t *taken)
{
    const struct spelling *found = NULL;
    size_t low = 0, high = t->n_specials, n;
    for (size_t depth = 0, at = 0; low < high && at < n_bytes; depth++) {
        spellings_narrow(t->specials, &low, &high, depth, next_byte(t, text + at, n_bytes - at, &n));
        at += n;
        if (low < high && t->specials[low].n_bytes == depth + 1 &&
            (flags & TOKENIZE_SPECIAL || t->vocab.type[t->specials[low].id] == TOKEN_USER_DEFINED)) {
            found = &t->specials[low];
            *taken = at;
        }
    }
    return found;
}

bool tokenizer_has_control(const struct tokenizer *t, const char *text, size_t n_bytes)
{
    for (size_t at = 0, taken; at < n_bytes; at++) {
        if (!t->begins_special[(unsigned char)text[at]])
            continue;
        const struct spelling *special = special_at(t, text + at, n_bytes - at, TOKENIZE_SPECIAL, &taken);
        if (special && t->vocab.type[special->id] != TOKEN_USER_DEFINED)
            return true;
    }
    return false;
}

/* Control tokens are neither begun in a plain range nor reach into one. */
static const struct spelling *special_outside(const struct tokenizer *t, const struct encode_text *text, size_t at, size_t *next_plain,
                                              size_t *taken)
{
    size_t end = text->n_bytes;
    unsigned flags = text->flags;
    while (*next_plain < text->n_plain && text->plain[*next_plain].end <= at)
        ++*next_plain;
    if (*next_plain < text->n_plain) {
        const struct text_range *plain = &text->plain[*next_plain];
        bool inside = at >= plain->begin;
        end = inside ? plain->end : plain->begin;
        flags &= inside ? ~(unsigned)TOKENIZE_SPECIAL : ~0u;
    }
    return special_at(t, text->bytes + at, end - at, flags, taken);
}

static int encode_segment(const struct tokenizer *t, const struct encode_text *all, size_t begin, size_t end, struct merger *merger,
                          struct ids *out)
{
    const struct segment segment = { all->bytes + begin, end - begin, begin == 0, end == all->n_bytes };
    return begin < end ? t->kind->encode(t, &segment, merger, out) : 0;
}

static int encode_all(const struct tokenizer *t, const struct encode_text *all, struct merger *merger, struct ids *out)
{
    size_t next_plain = 0, taken = 0;
    size_t start = 0;           /* of the plain text that waits */
    int err = 0;
    for (size_t at = 0; at < all->n_bytes && !err; ) {
        bool may_be = t->begins_special[(unsigned char)all->bytes[at]];
        const struct spelling *special = may_be ? special_outside(t, all, at, &next_plain, &taken) : NULL;
        if (!special) {
            at++;
            continue;
        }
        err = encode_segment(t, all, start, at, merger, out);
        ids_add(out, special->id);
        start = at += taken;
    }
    return err ? err : encode_segment(t, all, start, all->n_bytes, merger, out);
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n_bytes, unsigned flags, int32_t **ids, size_t *n)
{
    return tokenizer_encode_text(t, &(struct encode_text){ .bytes = text, .n_bytes = n_bytes, .flags = flags }, ids, n);
}

int tokenizer_encode_text(const struct tokenizer *t, const struct encode_text *text, int32_t **ids, size_t *n)
{
    struct merger merger = { 0 };
    struct ids out = { 0 };
    bool begin = text->flags & TOKENIZE_BEGIN && t->begin >= 0;
    int err;

    if (text->n_bytes > INT32_MAX)
        return error_set(ERR_USAGE, "a text of %zu bytes is too long to encode", text->n_bytes);
    if (begin)
        ids_add(&out, t->begin);
    err = encode_all(t, text, &merger, &out);
    merger_release(&merger);
    if (begin && out.n > 1 && out.ids[1] == t->begin)       /* the text has its own */
        memmove(out.ids, out.ids + 1, --out.n * sizeof *out.ids);
    if (text->flags & TOKENIZE_END && t->end >= 0 && (!out.n || out.ids[out.n - 1] != t->end))
        ids_add(&out, t->end);
    if (!out.ids && !err)
        out.ids = malloc(sizeof *out.ids);                  /* so that no ids are not NULL */
    if (!err && (out.failed || !out.ids))
        err = error_set(ERR_NO_MEMORY, "no memory for the ids of %zu bytes", text->n_bytes);
    if (err < 0) {
        free(out.ids);
        return err;
    }
    *ids = out.ids;
    *n = out.n;
    return 0;
}

static bool exists(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->vocab.pieces.n;
}

int tokenizer_check(const struct tokenizer *t, uint32_t n_vocab)
{
    if (tokenizer_n_tokens(t) <= n_vocab)
        return 0;
    return error_set(ERR_BAD_FILE, "tokenizer.ggml.tokens: %u tokens, and the model has rows for %u", tokenizer_n_tokens(t), n_vocab);
}

uint32_t tokenizer_n_tokens(const struct tokenizer *t)
{
    return (uint32_t)t->vocab.pieces.n;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 1;
    for (size_t i = 0; i < t->vocab.pieces.n; i++)
        longest = MAX(longest, t->offset[i + 1] - t->offset[i]);
    return longest;
}

int32_t tokenizer_begin(const struct tokenizer *t)
{
    return t->begin;
}

int32_t tokenizer_end(const struct tokenizer *t)
{
    return t->end;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    return exists(t, id) && t->is_end[id];
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    return exists(t, id) && (t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_UNKNOWN);
}

bool tokenizer_adds_space(const struct tokenizer *t)
{
    return t->space_prefix;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *piece)
{
    return vocab_find(&t->vocab, piece, strlen(piece));
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, bool special, size_t *n_bytes)
{
    *n_bytes = 0;
    if (!exists(t, id) || (!special && tokenizer_is_control(t, id)))
        return "";
    *n_bytes = t->offset[id + 1] - t->offset[id];
    return *n_bytes ? t->bytes + t->offset[id] : "";
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special, struct buffer *out)
{
    size_t first = n && t->begin >= 0 && ids[0] == t->begin, n_bytes;
    buffer_add_text(out, "");
    for (size_t i = 0; i < n; i++) {
        const char *bytes = tokenizer_bytes(t, ids[i], special, &n_bytes);
        bool added = i == first && t->space_prefix && n_bytes && bytes[0] == ' ';
        buffer_add(out, bytes + added, n_bytes - added);
    }
}
