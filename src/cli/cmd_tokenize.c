/* cmd_tokenize.c: token ids of a text. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/buffer.h"
#include "base/error.h"
#include "text/json_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_text(struct buffer *text, const struct options *o)
{
    char piece[65536];
    size_t n;
    if (o->n_rest && strcmp(o->rest[0], "-")) {
        buffer_add_text(text, o->rest[0]);
        return 0;
    }
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0)
        buffer_add(text, piece, n);
    return ferror(stdin) || text->failed ? error_set(ERR_FAILED, "standard input cannot be read") : 0;
}

static void print_ids(struct buffer *out, const struct tokenizer *t, const int32_t *ids, size_t n, bool as_json)
{
    struct json_out j = { .to = out };
    if (!as_json) {
        for (size_t i = 0; i < n; i++)
            buffer_printf(out, "%s%d", i ? " " : "", ids[i]);
        buffer_add_text(out, "\n");
        return;
    }
    json_object(&j, NULL);
    json_array(&j, "tokens");
    for (size_t i = 0; i < n; i++)
        json_integer(&j, NULL, ids[i]);
    json_end_array(&j);
    json_array(&j, "pieces");
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(t, ids[i], true, &n_bytes);
        if (utf8_is_valid(bytes, n_bytes)) {
            json_bytes(&j, NULL, bytes, n_bytes);
            continue;
        }
        json_object(&j, NULL);              /* a part of a character: its bytes stand beside it */
        json_bytes(&j, "text", bytes, n_bytes);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    buffer_add_text(out, "\n");
}

static int run(struct options *o, int argc, char **argv)
{
    struct model_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    struct buffer text = { 0 }, out = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    int err;
    (void)argc, (void)argv;
    if ((err = model_file_open(&file, o->model)) == 0 && (err = tokenizer_open(&tokenizer, file)) == 0 &&
        (err = read_text(&text, o)) == 0 && (err = tokenizer_encode(tokenizer, text.bytes ? text.bytes : "", text.size,
                                                                    TOKENIZE_BEGIN | TOKENIZE_SPECIAL | TOKENIZE_END, &ids, &n)) == 0) {
        print_ids(&out, tokenizer, ids, n, o->json);
        err = print_buffer(&out);
    }
    int code = err < 0 ? report_error(err) : 0;
    buffer_release(&out);
    buffer_release(&text);
    free(ids);
    tokenizer_close(tokenizer);
    model_file_close(file);
    return code;
}

const struct command command_tokenize = {
    "tokenize", "MODEL [TEXT | -] [--json]", "prints the token ids of a text; without TEXT or with - it is read from standard input",
    "Special tokens in the text are recognised, and the begin token is put first, the end token last, where the model wants one.\n\n"
    "  stoa tokenize model.gguf \"Hello world\"",
    OPTIONS_JSON, 1, 2, run,
};
