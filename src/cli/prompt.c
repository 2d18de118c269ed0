#include "cli/prompt.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void add_token_text(struct buffer *out, const struct session *s, const char *key)
{
    uint64_t id;
    size_t n_bytes;
    if (!model_file_get_u64(s->file, key, &id) || id > INT32_MAX)
        return;
    const char *bytes = tokenizer_bytes(s->tokenizer, (int32_t)id, true, &n_bytes);
    buffer_add(out, bytes, n_bytes);
}

int prompter_open(struct prompter *p, const struct session *s)
{
    const char *source;
    size_t n_bytes;
    *p = (struct prompter){ 0 };
    if (!model_file_get_string(s->file, "tokenizer.chat_template", &source, &n_bytes))
        return 0;
    add_token_text(&p->bos, s, "tokenizer.ggml.bos_token_id");
    add_token_text(&p->eos, s, "tokenizer.ggml.eos_token_id");
    return template_open(&p->template, source, n_bytes);
}

void prompter_release(struct prompter *p)
{
    template_close(p->template);
    buffer_release(&p->bos);
    buffer_release(&p->eos);
}

/* Whether the text of a special token stands in it. */
static int has_special(const struct session *s, const char *text, bool *has)
{
    int32_t *with = NULL, *without = NULL;
    size_t n_with, n_without, n_bytes = strlen(text);
    int err;
    if ((err = tokenizer_encode(s->tokenizer, text, n_bytes, TOKENIZE_SPECIAL, &with, &n_with)) == 0 &&
        (err = tokenizer_encode(s->tokenizer, text, n_bytes, 0, &without, &n_without)) == 0)
        *has = *has || n_with != n_without || memcmp(with, without, n_with * sizeof *with);
    free(with);
    free(without);
    return err;
}

/* What a template makes of a message's content: the content, at most without the blanks around it.  Its length at `at` of the
 * rendered text, or -1 when something else stands there. */
static ptrdiff_t content_at(const char *at, size_t n_left, const char *content)
{
    static const char blanks[] = " \t\r\n\f\v";
    size_t n = strlen(content), skip = strspn(content, blanks), n_trimmed = n;
    while (n_trimmed > skip && strchr(blanks, content[n_trimmed - 1]))
        n_trimmed--;
    if (n <= n_left && !memcmp(at, content, n))
        return (ptrdiff_t)n;
    if (n_trimmed - skip <= n_left && !memcmp(at, content + skip, n_trimmed - skip))
        return (ptrdiff_t)(n_trimmed - skip);
    return -1;
}

#define MARK "\x01\x02content\x02\x01"

/* Where each content stands in the rendered text: renders once more with a mark in place of every content, and walks both
 * side by side.  A template that does more with a content than to print it is refused. */
static int find_contents(const struct prompter *p, const struct chat_message *messages, size_t n_messages, const struct chat_options *options,
                         const struct buffer *text, struct text_range *range, size_t *n_ranges)
{
    struct chat_message *marked = calloc(n_messages, sizeof *marked);
    struct buffer skeleton = { 0 };
    int err = marked ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the prompt");
    for (size_t i = 0; !err && i < n_messages; i++)
        marked[i] = (struct chat_message){ messages[i].role, MARK };
    if (!err)
        err = template_render_chat(p->template, marked, n_messages, options, &skeleton);
    size_t at = 0, n = 0;
    for (const char *piece = skeleton.bytes; !err && piece;) {
        const char *mark = strstr(piece, MARK);
        size_t n_piece = mark ? (size_t)(mark - piece) : strlen(piece);
        ptrdiff_t length = -1;
        bool same = n_piece <= text->size - at && !memcmp(piece, text->bytes + at, n_piece);
        at += same ? n_piece : 0;
        if (same && mark && n < n_messages)
            length = content_at(text->bytes + at, text->size - at, messages[n].content);
        if (!same || (mark ? length < 0 : at != text->size)) {
            err = error_set(ERR_USAGE, "a message holds the text of a special token, and the chat template does more with it than to print it");
        } else if (mark) {
            range[n++] = (struct text_range){ at, at + (size_t)length };
            at += (size_t)length;
        }
        piece = mark ? mark + strlen(MARK) : NULL;
    }
    *n_ranges = n;
    buffer_release(&skeleton);
    free(marked);
    return err;
}

int prompt_chat(const struct prompter *p, const struct session *s, const struct chat_message *messages, size_t n_messages, int32_t **ids,
                size_t *n)
{
    struct buffer text = { 0 };
    struct text_range *range = calloc(n_messages, sizeof *range);
    struct chat_options options = { .add_generation_prompt = true, .bos_token = p->bos.bytes ? p->bos.bytes : "",
                                    .eos_token = p->eos.bytes ? p->eos.bytes : "" };
    bool special = false;
    size_t n_ranges = 0;
    int err = range ? template_render_chat(p->template, messages, n_messages, &options, &text)
                    : error_set(ERR_NO_MEMORY, "out of memory for the prompt");
    for (size_t i = 0; !err && i < n_messages; i++)
        err = has_special(s, messages[i].content, &special);
    if (!err && special)
        err = find_contents(p, messages, n_messages, &options, &text, range, &n_ranges);
    struct encode_text encode = { .bytes = text.bytes ? text.bytes : "", .n_bytes = text.size, .flags = TOKENIZE_BEGIN | TOKENIZE_SPECIAL,
                                  .plain = range, .n_plain = n_ranges };
    if (!err)
        err = tokenizer_encode_text(s->tokenizer, &encode, ids, n);
    buffer_release(&text);
    free(range);
    return err;
}

int prompt_raw(const struct session *s, const char *text, size_t n_bytes, int32_t **ids, size_t *n)
{
    return tokenizer_encode(s->tokenizer, text, n_bytes, TOKENIZE_BEGIN | TOKENIZE_SPECIAL, ids, n);
}
