#include "text/pretokenize.h"

#include "base/base.h"
#include "text/unicode.h"

#include <string.h>

/* A place in the text and the character there. */
struct cursor {
    const char *text;
    size_t n_bytes, at;
    bool digits_apart;
    uint32_t code;              /* the character at `at` ... */
    size_t n_code;              /* ... its bytes, 0 at the end */
    enum char_class class;
};

/* Where numbers are cut out first, the expression sees each stretch between them as a text of its own. */
static void look(struct cursor *c)
{
    c->n_code = c->at < c->n_bytes ? utf8_decode(c->text + c->at, c->n_bytes - c->at, &c->code) : 0;
    c->class = c->n_code ? unicode_class(c->code) : CHAR_OTHER;
    if (c->digits_apart && c->class == CHAR_NUMBER)
        c->n_code = 0;
}

static void step(struct cursor *c)
{
    c->at += c->n_code;
    look(c);
}

static bool is(const struct cursor *c, enum char_class class)
{
    return c->n_code && c->class == class;
}

static bool is_newline(const struct cursor *c)
{
    return c->n_code && (c->code == '\r' || c->code == '\n');
}

static size_t run(struct cursor *c, enum char_class class)
{
    while (is(c, class))
        step(c);
    return c->at;
}

static struct cursor cursor_at(const struct pretokenizer *pre, const char *text, size_t n_bytes, size_t at)
{
    struct cursor c = { .text = text, .n_bytes = n_bytes, .at = at, .digits_apart = pre->digits_apart };
    look(&c);
    return c;
}

/* 's|'t|'re|'ve|'m|'ll|'d at the cursor: its bytes or 0.  Without case, the long s (U+017F) is an s too. */
static size_t contraction(struct cursor c, bool any_case)
{
    static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    uint32_t letter[2] = { 0 };
    size_t end[2] = { 0 };
    if (!c.n_code || c.code != '\'')
        return 0;
    for (int i = 0; i < 2; i++) {
        step(&c);
        letter[i] = !c.n_code ? 0 : !any_case ? c.code : c.code == 0x17f ? 's' : c.code < 0x80 ? c.code | 0x20 : c.code;
        end[i] = c.at + c.n_code;
    }
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        const char *ending = endings[i];
        if (letter[0] == (uint32_t)ending[0] && (!ending[1] || letter[1] == (uint32_t)ending[1]))
            return end[ending[1] != 0];
    }
    return 0;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to the word behind it. */
static size_t spaces(struct cursor *c)
{
    size_t last = c->at, n = 0;
    for (; is(c, CHAR_SPACE); n++) {
        last = c->at;
        step(c);
    }
    return c->n_code && n > 1 ? last : c->at;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t next_gpt2(const struct pretokenizer *pre, const char *text, size_t n_bytes)
{
    struct cursor c = cursor_at(pre, text, n_bytes, 0);
    if (!c.n_code) {                                /* a number, cut out */
        c.digits_apart = false;
        look(&c);
        return c.n_code;
    }
    size_t n = contraction(c, false);
    if (n)
        return n;
    if (c.code == ' ') {
        struct cursor behind = c;
        step(&behind);
        if (behind.n_code && behind.class != CHAR_SPACE)
            return run(&behind, behind.class);
    }
    return c.class == CHAR_SPACE ? spaces(&c) : run(&c, c.class);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
 * \s+(?!\S)|\s+ */
static size_t next_cl100k(const struct pretokenizer *pre, const char *text, size_t n_bytes)
{
    struct cursor c = cursor_at(pre, text, n_bytes, 0), behind = c;
    size_t n = contraction(c, true);
    if (n)
        return n;
    step(&behind);
    if (is(&c, CHAR_LETTER) || (is(&behind, CHAR_LETTER) && !is(&c, CHAR_NUMBER) && !is_newline(&c)))
        return run(&behind, CHAR_LETTER);
    if (is(&c, CHAR_NUMBER)) {
        for (unsigned digits = 0; is(&c, CHAR_NUMBER) && digits < pre->max_digits; digits++)
            step(&c);
        return c.at;
    }
    if (is(&c, CHAR_OTHER) || (c.code == ' ' && is(&behind, CHAR_OTHER))) {
        run(&behind, CHAR_OTHER);
        while (is_newline(&behind))
            step(&behind);
        return behind.at;
    }
    size_t past_newline = 0;
    for (behind = c; is(&behind, CHAR_SPACE); )
        if (is_newline(&behind)) {
            step(&behind);
            past_newline = behind.at;
        } else {
            step(&behind);
        }
    return past_newline ? past_newline : spaces(&c);
}

static const struct pretokenizer pretokenizers[] = {
    { "gpt-2",     next_gpt2,   .max_digits = 0 },
    { "default",   next_gpt2,   .max_digits = 0 },
    { "smollm",    next_gpt2,   .digits_apart = true },
    { "qwen2",     next_cl100k, .max_digits = 1 },
    { "llama-bpe", next_cl100k, .max_digits = 3, .whole_pieces = true, .add_bos = true },
    { "llama3",    next_cl100k, .max_digits = 3, .whole_pieces = true, .add_bos = true },
};

const struct pretokenizer *pretokenizer_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(pretokenizers); i++)
        if (!strcmp(pretokenizers[i].name, name))
            return &pretokenizers[i];
    return NULL;
}
