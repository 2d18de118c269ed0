/* fuzz_gguf.c: any bytes as a model file.  Either an error of two kinds, or a file whose every promise holds. */
#include "base/error.h"
#include "format/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static volatile unsigned sink;

static void touch_tensors(const struct model_file *file)
{
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        const uint8_t *bytes = t->data;
        if (model_file_tensor(file, t->name) != t || (uintptr_t)bytes % 8)
            abort();
        sink += bytes[0] + bytes[t->n_bytes - 1];
        model_file_drop_pages(file, t->data, t->n_bytes);
    }
}

static void touch_key(const struct model_file *file, const char *key)
{
    uint64_t u;
    float f;
    bool b;
    const char *text;
    size_t n;
    struct model_strings strings;
    const float *f32s;
    const int32_t *i32s;

    if (model_file_require_u64(file, key, 0, 1000, &u) == ERR_BAD_FILE)
        sink += (unsigned)strlen(error_text());
    sink += model_file_get_f32(file, key, &f) + model_file_get_bool(file, key, &b);
    if (model_file_get_string(file, key, &text, &n) && text[n])
        abort();
    if (model_file_get_strings(file, key, &strings))
        for (size_t i = 0; i < strings.n; i++)
            for (size_t j = strings.offset[i]; j < strings.offset[i + 1]; j++)
                sink += (unsigned char)strings.text[j];
    if (model_file_get_f32s(file, key, &f32s, &n))
        for (size_t i = 0; i < n; i++)
            sink += f32s[i] > 0;
    if (model_file_get_i32s(file, key, &i32s, &n))
        for (size_t i = 0; i < n; i++)
            sink += (unsigned)i32s[i];
}

/* Parsed where libFuzzer put it: its end is guarded, that of a mapping is not. */
static int parse(const uint8_t *data, size_t n_bytes)
{
    struct arena arena = { 0 };
    struct gguf gguf;
    int err = gguf_parse(&gguf, &arena, data, n_bytes);
    if (!err)
        err = gguf_copy_out(&gguf, &arena);
    arena_close(&arena);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const keys[] = { "general.architecture", "general.alignment", "u8", "i8", "i64", "f64", "words", "scores",
                                        "types", "flags", "wide", "yes" };
    struct model_file *file = NULL;
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);

    int parsed = parse(data, n_bytes), err = model_file_open(&file, path);
    if ((err != 0 && err != ERR_BAD_FILE) || (parsed < 0 && !err))
        abort();
    if (!err) {
        touch_tensors(file);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            touch_key(file, keys[i]);
    } else if (file || !strstr(error_text(), path)) {
        abort();
    }
    model_file_close(file);
    close(fd);
    return 0;
}
