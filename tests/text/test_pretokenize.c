#include "tests/check.h"
#include "tests/text/golden.h"
#include "text/pretokenize.h"
#include "base/buffer.h"

#include <string.h>
#include <time.h>

static bool check_pieces(const struct pretokenizer *pre, json_t *text, json_t *want)
{
    size_t n_bytes = json_string_length(text), n = 0, step;
    struct words words;
    words_init(&words, pre, json_string_value(text), n_bytes);
    while ((step = words_next(&words)) > 0)
        if (!check_int(step, json_integer_value(json_array_get(want, n++))))
            return false;
    return check_int(n, json_array_size(want)) && check_int(words.at, n_bytes);
}

static void test_goldens(json_t *golden)
{
    json_t *texts = json_object_get(golden, "texts"), *cuts;
    const char *name;
    json_object_foreach(json_object_get(golden, "bytes"), name, cuts) {
        const struct pretokenizer *pre = pretokenizer_find(name);
        check_begin("pre-tokenizer %s", name);
        if (!check(pre))
            continue;
        for (size_t i = 0; i < json_array_size(texts); i++)
            if (!check_pieces(pre, json_array_get(texts, i), json_array_get(cuts, i)))
                printf("  text %zu: %s\n", i, json_string_value(json_array_get(texts, i)));
    }
}

static bool in_array(json_t *array, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < json_array_size(array); i++)
        found |= !strcmp(json_string_value(json_array_get(array, i)), name);
    return found;
}

/* Names that share their expressions, and those whose tokenizers bring text to NFC. */
static void test_names(json_t *golden)
{
    json_t *first, *nfc = json_object_get(golden, "nfc"), *cuts;
    const char *name;
    json_object_foreach(json_object_get(golden, "same"), name, first) {
        const struct pretokenizer *pre = pretokenizer_find(name), *like = pretokenizer_find(json_string_value(first));
        check_begin("pre-tokenizer %s", name);
        if (!check(pre && like))
            continue;
        check_bytes("expressions", pre->expressions, like->expressions, sizeof pre->expressions);
        check_int(pre->nfc, in_array(nfc, name));
    }
    json_object_foreach(json_object_get(golden, "bytes"), name, cuts) {
        const struct pretokenizer *pre = pretokenizer_find(name);
        check_begin("pre-tokenizer %s: NFC", name);
        check(pre && pre->nfc == in_array(nfc, name));
    }
    check_begin("pre-tokenizers that nobody has");
    check(!pretokenizer_find("gpt-2x"));
    check(!pretokenizer_find(""));
}

/* TK-09: what made regular expressions quadratic.  The limit is loose because machines are shared; linear takes 0.1 s. */
static const char *const runs[] = {
    "a", "A", " ", "\n", " \n", "7", "1a", "'", "'s", "_", "\xe4\xb8\xad", "\xcc\x81", "\xf0", "\xd9\xa3", "Aa", "\x07", " (", "\xe3\x80\x80", "//",
};

static void test_long_runs(json_t *golden)
{
    json_t *cuts;
    const char *name;
    json_object_foreach(json_object_get(golden, "bytes"), name, cuts) {
        const struct pretokenizer *pre = pretokenizer_find(name);
        for (size_t i = 0; pre && i < sizeof runs / sizeof *runs; i++) {
            struct buffer text = { 0 };
            struct words words;
            size_t all = 0;
            for (int k = 0; k < 100000; k++)
                buffer_add_text(&text, runs[i]);
            buffer_add_text(&text, "x!");       /* what stands after a run must not be looked for from each of its characters */
            check_begin("TK-09: pre-tokenizer %s on 100,000 times \"%s\"", name, runs[i]);
            clock_t start = clock();
            words_init(&words, pre, text.bytes, text.size);
            for (size_t n; (n = words_next(&words)) > 0; )
                all += n;
            check((double)(clock() - start) / CLOCKS_PER_SEC < 5);
            check_int(all, text.size);
            buffer_release(&text);
        }
    }
}

int main(void)
{
    json_t *golden = golden_load("pretokenize.json");
    test_goldens(golden);
    test_names(golden);
    test_long_runs(golden);
    json_decref(golden);
    return check_done();
}
