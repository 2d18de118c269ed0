#include "base/error.h"
#include "base/random.h"
#include "quantize/convert.h"
#include "tests/check.h"
#include "tests/format/gguf_writer.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COLUMNS = 256, ROWS = 40, N_MAX = 1 << 17 };

static char folder[] = "/tmp/stoa-test-XXXXXX", source_path[64], path[64];
static struct model_file *source;

/* A model with nothing but an embedding that gives the logits too. */
static bool make_source(void)
{
    struct buffer b = { 0 };
    FILE *f = fopen(source_path, "wb");
    gguf_write(&b, "GGUF w:3 q:1 q:1 s:general.architecture w:8 s:llama s:token_embd.weight w:2 q:256 q:40 w:0 q:0 a:32");
    for (size_t i = 0; i < COLUMNS * ROWS; i++) {
        float x = (float)((double)random_u64(3, i) / 0x1p64 - 0.5);
        buffer_add(&b, &x, sizeof x);
    }
    bool ok = f && fwrite(b.bytes, 1, b.size, f) == b.size && fclose(f) == 0;
    buffer_release(&b);
    return ok && model_file_open(&source, source_path) == 0;
}

static size_t convert(enum dtype type, uint8_t *bytes)
{
    struct arena arena = { 0 };
    struct recipe recipe;
    struct pool *pool = NULL;
    uint64_t n_bytes = 0;
    size_t n = 0;
    if (check_int(pool_open(&pool, 2, false), 0) && check_int(recipe_make(&recipe, &arena, source, type, true), 0) &&
        check_int(convert_model(&recipe, &(struct convert_options){ .path = path, .replace = true, .pool = pool }, &n_bytes), 0)) {
        FILE *f = fopen(path, "rb");
        n = fread(bytes, 1, N_MAX, f);
        fclose(f);
        check_int(n, n_bytes);
    }
    pool_close(pool);
    arena_close(&arena);
    return n;
}

/* Threads begin with the mode of the one that makes them. */
static void test_float_mode(void)
{
    static const enum dtype types[] = { DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_K };
    static uint8_t want[N_MAX], got[N_MAX];
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        check_begin("%s: the bytes do not depend on how the program rounds", dtype_info[types[i]].name);
        fesetround(FE_TONEAREST);
        size_t n = convert(types[i], want);
        fesetround(FE_UPWARD);
        check_int(convert(types[i], got), n);
        fesetround(FE_TONEAREST);
        check_bytes("file", got, want, n);
    }
}

static void test_by_column(void)
{
    static const struct { enum dtype type; bool by_column; } rows[] = { { DTYPE_Q4_K, true }, { DTYPE_F16, true }, { DTYPE_F32, false } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena arena = { 0 };
        struct recipe recipe;
        check_begin("%s: columns are weighed where there will be an error", dtype_info[rows[i].type].name);
        if (check_int(recipe_make(&recipe, &arena, source, rows[i].type, true), 0))
            check_int(recipe.item[0].by_column, rows[i].by_column);
        arena_close(&arena);
    }
}

int main(void)
{
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    snprintf(source_path, sizeof source_path, "%s/source.gguf", folder);
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    if (!make_source()) {
        puts(error_text());
        return 1;
    }
    test_float_mode();
    test_by_column();
    model_file_close(source);
    unlink(source_path);
    unlink(path);
    rmdir(folder);
    return check_done();
}
