/* The public interface, as a program outside would use it. */
#include "stoa.h"
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct answer {
    int32_t ids[32];
    size_t n, stop_at;
};

static bool keep(void *user, int32_t id)
{
    struct answer *a = user;
    a->ids[a->n++] = id;
    return a->n != a->stop_at;
}

static void test_errors(void)
{
    stoa_model *model = (stoa_model *)&model;
    check_begin("a file that is not there is an error with its name");
    check_int(stoa_open(&model, "/nowhere/model.gguf", NULL), STOA_BAD_FILE);
    check(model == NULL);
    check(strstr(stoa_error(), "/nowhere/model.gguf") != NULL);
    stoa_close(NULL);
}

/* The greedy token is the largest logit; a second call that shares a prefix, and another number of threads, give the same. */
static void test_model(const char *path)
{
    static const char prompt[] = "The capital of France is";
    stoa_model *one, *two;
    struct answer a = { 0 }, b = { 0 }, c = { .stop_at = 2 };
    int32_t *ids;
    size_t n;
    check_begin("generate: greedy, repeated, stopped, on other threads");
    if (!check(stoa_open(&one, path, &(stoa_options){ .n_threads = 1 }) == 0) || !check(stoa_open(&two, path, &(stoa_options){ .n_threads = 3 }) == 0))
        return;
    check_int(stoa_tokenize(one, prompt, sizeof prompt - 1, &ids, &n), 0);
    float *logits = calloc(stoa_n_vocab(one), sizeof *logits);
    check_int(stoa_logits(one, ids, n, logits), 0);
    size_t best = 0;
    for (size_t i = 0; i < stoa_n_vocab(one); i++)
        best = logits[i] > logits[best] ? i : best;
    check_int(stoa_generate(one, ids, n, 8, NULL, keep, &a), 0);
    check_int(a.ids[0], best);
    check(a.n == 8 || stoa_is_end(one, a.ids[a.n - 1]));
    check_int(stoa_generate(two, ids, n, 8, NULL, keep, &b), 0);
    check_int(a.n, b.n);
    check_bytes("tokens on 1 and 3 threads", a.ids, b.ids, a.n * sizeof *a.ids);
    check_int(stoa_generate(one, ids, n, 8, NULL, keep, &c), 0);
    check_int(c.n, 2);
    check_bytes("tokens again, stopped after two", a.ids, c.ids, 2 * sizeof *a.ids);

    check_begin("generate: bad arguments are errors, and the model still answers");
    int32_t outside = (int32_t)stoa_n_vocab(one);
    check_int(stoa_generate(one, &outside, 1, 1, NULL, keep, &a), STOA_USAGE);
    check_int(stoa_generate(one, ids, 0, 1, NULL, keep, &a), STOA_USAGE);
    check_int(stoa_generate(one, ids, n, (size_t)stoa_context(one) + 1, NULL, keep, &a), STOA_USAGE);
    check_int(stoa_generate(one, ids, n, 1, &(stoa_sampling){ .temperature = NAN, .top_p = 1 }, keep, &a), STOA_USAGE);
    check_int(stoa_generate(one, ids, n, 1, NULL, NULL, NULL), STOA_USAGE);
    check_int(stoa_logits(one, &outside, 1, logits), STOA_USAGE);
    size_t n_bytes = 7;
    check_text(stoa_token_bytes(one, outside, &n_bytes), "");
    check_int(n_bytes, 0);
    a = (struct answer){ 0 };
    check_int(stoa_generate(one, ids, n, 8, NULL, keep, &a), 0);
    check_bytes("tokens after errors", a.ids, b.ids, b.n * sizeof *b.ids);
    free(logits);
    stoa_free(ids);
    stoa_close(one);
    stoa_close(two);
}

int main(void)
{
    const char *path = getenv("STOA_MODEL");
    test_errors();
    check_begin("the real model");
    if (path)
        test_model(path);
    else
        check_skip("STOA_MODEL names no model file");
    return check_done();
}
