/* fuzz_api.c: any bytes as the body of a request, and behind a NUL as the tokens of its answer.  What comes out, an error too, is JSON. */
#include "front/answer.h"
#include "tests/front/tiny_model.h"
#include "text/json_in.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void must_be_json(const char *bytes, size_t n_bytes)
{
    struct arena arena = { 0 };
    struct template_value value;
    if (json_read(&arena, bytes, n_bytes, &value) < 0)
        abort();
    arena_close(&arena);
}

static void must_be_events(const struct buffer *out)
{
    const char *at = out->bytes ? out->bytes : "", *end;
    for (; (end = strstr(at, "\n\n")); at = end + 2) {
        if (strncmp(at, "data: ", 6))
            abort();
        if (strncmp(at, "data: [DONE]", 12))
            must_be_json(at + 6, (size_t)(end - at - 6));
    }
    if (*at)
        abort();
}

static void finish(struct answer *a, Stoa__Wire__Reason reason)
{
    Stoa__Wire__Finish end = STOA__WIRE__FINISH__INIT;
    end.reason = reason;
    end.error = "so it ends";
    for (uint32_t c = 0; c < answer_n_choices(a); c++)
        answer_take_finish(a, c, &end);
}

static void answer(struct api_request *request, const struct api_model *model, const uint8_t *tokens, size_t n)
{
    struct buffer out = { 0 };
    struct answer *a = NULL;
    bool stream = request->stream;
    if (answer_open(&a, request, model, "1", 1) < 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        Stoa__Wire__Token token = STOA__WIRE__TOKEN__INIT;
        Stoa__Wire__Top top = STOA__WIRE__TOP__INIT, *list = &top;
        token.index = (uint32_t)i / answer_n_choices(a);
        token.id = tokens[i] == 0xff ? TINY_USER : tokens[i];
        top.id = tokens[i] / 2;
        token.top = &list;
        token.n_top = tokens[i] % 2;
        answer_take_token(a, (uint32_t)i % answer_n_choices(a), &token);
        if (stream && tokens[i] % 3 == 0)
            answer_stream(a, &out, 100);
    }
    finish(a, n % 7 ? STOA__WIRE__REASON__REASON_STOP : STOA__WIRE__REASON__REASON_FAILED);
    while (stream && answer_stream(a, &out, 1000))
        ;
    if (!answer_is_over(a) || (stream && !answer_stream_is_over(a)))
        abort();
    if (!stream && !answer_error(a)) {
        answer_whole(a, &out);
        must_be_json(out.bytes, out.size);
    }
    if (stream)
        must_be_events(&out);
    answer_close(a);
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct tiny_model tiny;
    const char *body = (const char *)data + 1;
    const uint8_t *nul = n_bytes > 1 ? memchr(body, 0, n_bytes - 1) : NULL;
    size_t n_body = n_bytes < 2 ? 0 : nul ? (size_t)((const char *)nul - body) : n_bytes - 1;
    struct api_request *request = NULL;
    struct api_error error = { 0 };
    struct buffer out = { 0 }, odd = { 0 };
    int err = 0;
    if (!n_bytes)
        return 0;
    if (!tiny.tokenizer)
        tiny_model_open(&tiny, 64);
    switch (data[0] % 4) {
    case 0:  err = api_tokenize(&out, &odd, &tiny.api, body, n_body, &error); break;
    case 1:  err = api_detokenize(&out, &odd, &tiny.api, body, n_body, &error); break;
    default: err = api_read(&request, data[0] % 4 == 2 ? API_CHAT : API_COMPLETION, &tiny.api, body, n_body, &error); break;
    }
    if (err < 0)
        api_write_error(&out, &error);
    if (out.size)
        must_be_json(out.bytes, out.size);
    if (request)
        answer(request, &tiny.api, nul ? nul + 1 : data, nul ? n_bytes - 2 - n_body : 0);
    buffer_release(&odd);
    buffer_release(&out);
    return 0;
}
