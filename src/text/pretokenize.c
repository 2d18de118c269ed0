#include "text/pretokenize.h"

#include "base/base.h"
#include "text/unicode.h"

#include <string.h>

/* Sets of characters as the rules write them: classes of unicode.h, of which white space comes in three that exclude each
 * other; and in the upper half, as bits of enum char_set, characters that are named one by one. */
enum {
    NEWLINE = 1 << 11,          /* \r and \n, which then are not CHAR_SPACE */
    BLANK = 1 << 12,            /* U+0020, likewise */
    NOT_HAN = 1 << 14,          /* in the set, but not of the script Han */
    NOT = 1 << 15,              /* the characters that are not in the set */

    L = CHAR_LETTER,
    N = CHAR_NUMBER,
    M = CHAR_MARK,
    P = CHAR_PUNCTUATION,
    S = CHAR_SYMBOL,
    SPACE = CHAR_SPACE | NEWLINE | BLANK,
};
#define NAMED(set) ((uint32_t)(set) << 16)

/* A place in the text and the character there. */
struct cursor {
    struct words *words;
    size_t at, end;
    uint32_t code;              /* the character at `at` ... */
    size_t n_code;              /* ... its bytes, 0 at the end */
    uint32_t class;
};

struct rule {
    /* The end of what the rule takes at the cursor, or 0 when it takes nothing. */
    size_t (*match)(const struct rule *rule, struct cursor c);
    uint32_t before, set, after;
    unsigned min, max;          /* how many of `set`; max 0 is any number */
};

static void look(struct cursor *c)
{
    c->n_code = c->at < c->end ? utf8_decode(c->words->text + c->at, c->end - c->at, &c->code) : 0;
    if (!c->n_code)
        return;
    c->class = unicode_class(c->code);
    if (c->code == '\r' || c->code == '\n')
        c->class = NEWLINE;
    if (c->code == ' ')
        c->class = BLANK;
}

static void step(struct cursor *c)
{
    c->at += c->n_code;
    look(c);
}

static bool is(const struct cursor *c, uint32_t set)
{
    if (!c->n_code)
        return false;
    bool in = c->class & set || (set >> 16 && unicode_set(c->code) & set >> 16);
    return set & NOT_HAN && c->class & CHAR_HAN ? false : in != ((set & NOT) != 0);
}

static struct cursor next_of(struct cursor c)
{
    step(&c);
    return c;
}

static size_t past(struct cursor c, uint32_t set)
{
    while (is(&c, set))
        step(&c);
    return c.at;
}

/* 's|'t|'re|'ve|'m|'ll|'d at the cursor; with any_case the long s (U+017F) is an s too. */
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

static size_t match_contraction(const struct rule *rule, struct cursor c)
{
    return contraction(c, rule->max);
}

/* before?set{min,max}after* */
static size_t match_run(const struct rule *rule, struct cursor c)
{
    if (is(&c, rule->before)) {
        struct cursor behind = next_of(c);
        c = is(&behind, rule->set) ? behind : c;
    }
    unsigned n = 0;
    for (; is(&c, rule->set) && (!rule->max || n < rule->max); n++)
        step(&c);
    return n < MAX(rule->min, 1u) ? 0 : rule->after ? past(c, rule->after) : c.at;
}

/* Words whose capitals come first:
 *     before? upper* lower+ contraction? | before? upper+ lower* contraction?
 * upper is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], lower [\p{Ll}\p{Lm}\p{Lo}\p{M}]; `set` may take Han out of both. */
enum { BOTH = CHAR_UNCASED | CHAR_MARK, UPPER = CHAR_UPPER | BOTH, LOWER = CHAR_LOWER | BOTH };

static size_t lower_end(struct cursor c, uint32_t without)
{
    size_t last_both = 0;
    for (; is(&c, UPPER | without); step(&c))
        if (c.class & BOTH)
            last_both = c.at + c.n_code;
    return is(&c, LOWER | without) ? past(c, LOWER | without) : last_both;
}

static size_t match_cased(const struct rule *rule, struct cursor c)
{
    bool may_skip = is(&c, rule->before);
    struct cursor behind = next_of(c);
    size_t end = may_skip ? lower_end(behind, rule->set) : 0;
    if (!end)
        end = lower_end(c, rule->set);
    if (!end && may_skip && is(&behind, UPPER | rule->set))
        end = past(behind, UPPER | rule->set);
    if (!end && is(&c, UPPER | rule->set))
        end = past(c, UPPER | rule->set);
    if (end && rule->max) {
        c.at = end;
        look(&c);
        size_t longer = contraction(c, true);
        end = longer ? longer : end;
    }
    return end;
}

/* \s*[\r\n]+ */
static size_t match_lines(const struct rule *rule, struct cursor c)
{
    size_t end = 0;
    (void)rule;
    for (; is(&c, SPACE); step(&c))
        if (c.class == NEWLINE)
            end = c.at + c.n_code;
    return end;
}

/* \s+(?!\S)|\s+ : a run of white space leaves its last character to the word behind it. */
static size_t match_spaces(const struct rule *rule, struct cursor c)
{
    size_t last = 0, n = 0;
    (void)rule;
    for (; is(&c, SPACE); n++) {
        last = c.at;
        step(&c);
    }
    return c.n_code && n > 1 ? last : n ? c.at : 0;
}

/* \s+$ : where the white space at the end begins is found once. */
static size_t match_last_spaces(const struct rule *rule, struct cursor c)
{
    struct words *w = c.words;
    (void)rule;
    if (w->memo.key != c.end) {
        w->memo.key = c.end;
        w->memo.value = c.at;
        for (struct cursor to = c; to.n_code; step(&to))
            if (!is(&to, SPACE))
                w->memo.value = to.at + to.n_code;
    }
    return c.at >= w->memo.value ? c.end : 0;
}

/* Cuts before every place that (?=(\d{3})+(?!\d)) matches: where a multiple of three digits are left. */
static size_t match_thousands(const struct rule *rule, struct cursor c)
{
    struct words *w = c.words;
    size_t start = c.at, n_left = w->memo.key == start + 1 ? w->memo.value : 0;
    (void)rule;
    for (; c.n_code; step(&c), n_left -= n_left > 0) {
        if (!n_left && is(&c, CHAR_DIGIT))
            for (struct cursor to = c; is(&to, CHAR_DIGIT); step(&to))
                n_left++;
        if (c.at > start && n_left && n_left % 3 == 0)
            break;
    }
    w->memo.key = c.at + 1;
    w->memo.value = n_left;
    return c.at;
}

#define RUN(before, set, after) { match_run, before, set, after, 0, 0 }
#define COUNTED(set, min, max) { match_run, 0, set, 0, min, max }
#define CONTRACTION { match_contraction, 0, 0, 0, 0, 0 }
#define CONTRACTION_ANY_CASE { match_contraction, 0, 0, 0, 0, 1 }
#define LINES { match_lines, 0, 0, 0, 0, 0 }
#define SPACES { match_spaces, 0, 0, 0, 0, 0 }
#define END { NULL, 0, 0, 0, 0, 0 }

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static const struct rule gpt2[] = {
    CONTRACTION, RUN(BLANK, L, 0), RUN(BLANK, N, 0), RUN(BLANK, NOT | SPACE | L | N, 0), SPACES, END
};

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
#define CL100K(max) { \
    CONTRACTION_ANY_CASE, RUN(NOT | NEWLINE | L | N, L, 0), COUNTED(N, 1, max), RUN(BLANK, NOT | SPACE | L | N, NEWLINE), \
    LINES, SPACES, END }
static const struct rule cl100k[] = CL100K(3), qwen2[] = CL100K(1);

/* Qwen2's, but marks are letters. */
static const struct rule qwen35[] = {
    CONTRACTION_ANY_CASE, RUN(NOT | NEWLINE | L | N, L | M, 0), COUNTED(N, 1, 1), RUN(BLANK, NOT | SPACE | L | M | N, NEWLINE),
    LINES, SPACES, END
};

/* Qwen2's, but line ends stay out of the punctuation before them. */
static const struct rule seed_coder[] = {
    CONTRACTION_ANY_CASE, RUN(NOT | NEWLINE | L | N, L, 0), COUNTED(N, 1, 1), RUN(BLANK, NOT | SPACE | L | N, 0), LINES, SPACES, END
};

/* Words whose capitals come first, with contractions, and \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
#define CASED(without, contractions) { match_cased, NOT | NEWLINE | L | N, without, 0, 0, contractions }
static const struct rule gpt4o[] = {
    CASED(0, 1), COUNTED(N, 1, 3), RUN(BLANK, NOT | SPACE | L | N, NEWLINE | NAMED(SET_SLASH)), LINES, SPACES, END
};
static const struct rule tekken[] = {
    CASED(0, 0), COUNTED(N, 1, 1), RUN(BLANK, NOT | SPACE | L | N, NEWLINE | NAMED(SET_SLASH)), LINES, SPACES, END
};
static const struct rule kimi_k2[] = {
    RUN(0, CHAR_HAN, 0), CASED(NOT_HAN, 1), COUNTED(N, 1, 3), RUN(BLANK, NOT | SPACE | L | N, NEWLINE), LINES, SPACES, END
};

/* [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_marked_word(const struct rule *rule, struct cursor c)
{
    struct cursor behind = next_of(c);
    (void)rule;
    return is(&c, NAMED(SET_ASCII_MARKS)) && is(&behind, NAMED(SET_ASCII_LETTERS)) ? past(behind, NAMED(SET_ASCII_LETTERS)) : 0;
}
static const struct rule deepseek_v3[] = {
    { match_marked_word, 0, 0, 0, 0, 0 }, RUN(NOT | NEWLINE | L | P | S, L | M, 0), RUN(BLANK, P | S, NEWLINE), LINES, SPACES, END
};

/* Expressions of one rule. */
static const struct rule number[] = { COUNTED(N, 1, 1), END };                                  /* \p{N} */
static const struct rule numbers[] = { RUN(0, N, 0), END };                                     /* \p{N}+ */
static const struct rule numbers3[] = { COUNTED(N, 1, 3), END };                                /* \p{N}{1,3} */
static const struct rule digits[] = { RUN(0, NAMED(SET_ASCII_DIGITS), 0), END };                /* [0-9]+ */
static const struct rule three_digits[] = { COUNTED(NAMED(SET_ASCII_DIGITS), 3, 3), END };      /* [0-9][0-9][0-9] */
static const struct rule thousands[] = { { match_thousands, 0, 0, 0, 0, 0 }, END };             /* (?=(\d{3})+(?!\d)) */
static const struct rule newline[] = { COUNTED(NEWLINE, 1, 1), END };                           /* [\r\n] */
static const struct rule last_spaces[] = { { match_last_spaces, 0, 0, 0, 0, 0 }, END };         /* \s+$ */
static const struct rule spaced_letters[] = { RUN(SPACE, L, 0), END };                          /* \s?\p{L}+ */
static const struct rule spaced_punctuation[] = { RUN(SPACE, P, 0), END };                      /* \s?\p{P}+ */
static const struct rule deepseek_letters[] = { RUN(SPACE, NAMED(SET_DEEPSEEK_LETTERS), 0), END };
static const struct rule deepseek_marks[] = { RUN(SPACE, NAMED(SET_DEEPSEEK_MARKS), 0), END };
static const struct rule cjk[] = { RUN(0, NAMED(SET_CJK), 0), END };
static const struct rule han_kana[] = { RUN(0, NAMED(SET_HAN_KANA), 0), END };
static const struct rule default_marks[] = { RUN(0, P | NAMED(SET_DEFAULT_SYMBOLS), 0), END };  /* [\p{P}$+<=>^~|]+ */
static const struct rule falcon_marks[] = { RUN(0, P | NAMED(SET_ASCII_MARKS), 0), END };       /* all that ASCII prints, too */
static const struct rule bloom[] = { RUN(BLANK, NOT | SPACE | NAMED(SET_BLOOM_STOPS), 0), END };        /*  ?[^(\s|.,!?...)]+ */

/* Falcon looks for digits among the characters that bytes are written as, where some bytes of other letters are digits; no merge
 * joins those, so it makes no difference. */
#define DEFAULT .expressions = { default_marks, gpt2, numbers, three_digits }
#define FALCON .expressions = { falcon_marks, gpt2, digits, three_digits }
#define GPT2 .expressions = { gpt2 }
#define DIGITS_GPT2 .expressions = { number, gpt2 }
#define LLAMA3 .expressions = { cl100k }
#define QWEN2 .expressions = { qwen2 }
#define BLOOM .expressions = { bloom }
#define DEEPSEEK_V3 .expressions = { numbers3, han_kana, deepseek_v3 }
#define DEEPSEEK_LLM .expressions = { newline, deepseek_letters, deepseek_marks, last_spaces, cjk, number }
#define DEEPSEEK_CODER .expressions = { newline, spaced_letters, spaced_punctuation, cjk, number }
#define GPT4O .expressions = { gpt4o }

static const struct pretokenizer pretokenizers[] = {
    { "default", DEFAULT },
    { "gpt-2", GPT2 },
    { "phi-2", GPT2 },
    { "roberta-bpe", GPT2 },
    { "jina-v1-en", GPT2 },
    { "jina-v2-code", GPT2 },
    { "jina-v2-de", GPT2 },
    { "jina-v2-es", GPT2 },
    { "jina-de", GPT2 },
    { "jina-es", GPT2 },
    { "gigachat", GPT2 },
    { "a.x-4.0", GPT2 },
    { "mellum", GPT2 },
    { "jais", GPT2 },
    { "exaone4", GPT2 },
    { "trillion", GPT2 },
    { "granite-docling", GPT2 },
    { "mpt", GPT2, .nfc = true },
    { "olmo", GPT2, .nfc = true },
    { "modern-bert", GPT2, .nfc = true },
    { "smollm", DIGITS_GPT2 },
    { "starcoder", DIGITS_GPT2 },
    { "refact", DIGITS_GPT2 },
    { "codeshell", DIGITS_GPT2 },
    { "exaone", DIGITS_GPT2 },
    { "minerva-7b", DIGITS_GPT2 },
    { "mellum2", DIGITS_GPT2 },
    { "command-r", DIGITS_GPT2, .nfc = true },
    { "falcon", FALCON },
    { "llama-bpe", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "llama3", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "llama-v3", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "falcon3", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "falcon-h1", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "pixtral", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "midm-2.0", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "lfm2", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "jina-v5-nano", LLAMA3, .whole_pieces = true, .add_bos = true },
    { "dbrx", LLAMA3 },
    { "smaug-bpe", LLAMA3 },
    { "chatglm-bpe", LLAMA3 },
    { "glm4", LLAMA3 },
    { "qwen2", QWEN2, .nfc = true },
    { "deepseek-r1-qwen", QWEN2, .nfc = true },
    { "megrez", QWEN2, .nfc = true },
    { "stablelm2", QWEN2, .nfc = true },
    { "hunyuan", QWEN2, .nfc = true },
    { "bailingmoe", QWEN2 },
    { "bailingmoe2", QWEN2 },
    { "llada-moe", QWEN2 },
    { "grok-2", QWEN2 },
    { "solar-open", QWEN2 },
    { "qwen35", .expressions = { qwen35 }, .nfc = true },
    { "seed-coder", .expressions = { seed_coder } },
    { "gpt-4o", GPT4O },
    { "llama4", GPT4O },
    { "kanana2", GPT4O },
    { "minimax-m2", GPT4O },
    { "tekken", .expressions = { tekken }, .whole_pieces = true, .add_bos = true },
    { "kimi-k2", .expressions = { kimi_k2 } },
    { "superbpe", .expressions = { numbers, thousands } },
    { "bloom", BLOOM },
    { "poro-chat", BLOOM },
    { "gpt3-finnish", BLOOM },
    { "viking", .expressions = { bloom, number } },
    { "deepseek-llm", DEEPSEEK_LLM },
    { "deepseek-coder", DEEPSEEK_CODER },
    { "deepseek-v3", DEEPSEEK_V3 },
    { "hunyuan-dense", DEEPSEEK_V3 },
    { "joyai-llm", DEEPSEEK_V3 },
};

const struct pretokenizer *pretokenizer_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(pretokenizers); i++)
        if (!strcmp(pretokenizers[i].name, name))
            return &pretokenizers[i];
    return NULL;
}

/* The end of the first piece of text[w->at..end): what a rule takes there, or all before the next place where one does. */
static size_t first_piece(struct words *w, const struct rule *rules, size_t end)
{
    struct cursor c = { .words = w, .at = w->at, .end = end };
    for (look(&c); c.n_code; step(&c))
        for (const struct rule *rule = rules; rule->match; rule++) {
            size_t to = rule->match(rule, c);
            if (to)
                return c.at == w->at ? to : c.at;
        }
    return end;
}

void words_init(struct words *w, const struct pretokenizer *pre, const char *text, size_t n_bytes)
{
    *w = (struct words){ .pre = pre, .text = text, .end = { n_bytes } };
}

size_t words_next(struct words *w)
{
    size_t start = w->at;
    while (w->depth && w->end[w->depth] == start)
        w->depth--;
    if (w->end[w->depth] == start)
        return 0;
    for (; w->depth < MAX_EXPRESSIONS && w->pre->expressions[w->depth]; w->depth++)
        w->end[w->depth + 1] = first_piece(w, w->pre->expressions[w->depth], w->end[w->depth]);
    w->at = w->end[w->depth];
    return w->at - start;
}
