/* cmd_run.c: answers one prompt, or holds a conversation. */
#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/launch.h"
#include "cli/prompt.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "text/json_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PROMPT (64 << 20)       /* bytes */
static bool print_piece(void *user, const char *text, size_t n_bytes)
{
    bool *broken = user;
    if (n_bytes && (fwrite(text, 1, n_bytes, stdout) != n_bytes || fflush(stdout)))
        *broken = true;
    return !*broken;
}

static bool keep_piece(void *user, const char *text, size_t n_bytes)
{
    (void)user, (void)text, (void)n_bytes;
    return true;
}

static int read_all(struct buffer *text)
{
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0) {
        buffer_add(text, piece, n);
        if (text->size > MAX_PROMPT)
            return error_set(ERR_USAGE, "the prompt on standard input is longer than %d MB", MAX_PROMPT >> 20);
    }
    while (text->size && (text->bytes[text->size - 1] == '\n' || text->bytes[text->size - 1] == '\r'))
        text->bytes[--text->size] = 0;
    if (text->size && memchr(text->bytes, 0, text->size))
        return error_set(ERR_USAGE, "the prompt on standard input holds a NUL byte");
    if (ferror(stdin) || text->failed)
        return error_set(ERR_FAILED, "standard input cannot be read");
    return text->size ? 0 : error_set(ERR_USAGE, "no prompt: give -p TEXT, or write it to standard input");
}

static double tokens_per_s(const struct generation *g)
{
    return g->n_tokens > 1 && g->decode_s > 0 ? (g->n_tokens - 1) / g->decode_s : 0;
}

static int print_json(struct session *s, const struct generation *g, const struct rank_counters *ranks)
{
    struct buffer out = { 0 };
    struct json_out j = { .to = &out };
    json_object(&j, NULL);
    json_text(&j, "model", s->options->model);
    json_text(&j, "layout", s->layout);
    json_bytes(&j, "text", g->bytes.bytes ? g->bytes.bytes : "", g->bytes.size);
    json_array(&j, "tokens");
    for (uint32_t i = 0; i < g->n_tokens; i++)
        json_integer(&j, NULL, g->tokens[i]);
    json_end_array(&j);
    json_integer(&j, "prompt_tokens", g->n_prompt);
    json_text(&j, "finish_reason", g->stopped ? "stop" : "length");
    json_number(&j, "load_s", s->load_s, 6);
    json_number(&j, "time_to_first_token_s", g->first_token_s, 6);
    json_number(&j, "tokens_per_s", tokens_per_s(g), 6);
    json_array(&j, "ranks");
    for (int r = 0; r < engine_n_ranks(s->engine); r++) {
        json_object(&j, NULL);
        json_integer(&j, "rank", r);
        json_integer(&j, "weight_bytes", (int64_t)ranks[r].weight_bytes);
        json_bool(&j, "weights_mapped", ranks[r].weights_mapped);
        json_integer(&j, "peak_bytes", (int64_t)ranks[r].peak_bytes);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    buffer_add_text(&out, "\n");
    int err = print_buffer(&out);
    buffer_release(&out);
    return err;
}

static void print_summary(struct session *s, const struct generation *g, const struct rank_counters *ranks)
{
    fflush(stdout);
    fprintf(stderr, "\nlayout %s; weights per rank:", s->layout);
    for (int r = 0; r < engine_n_ranks(s->engine); r++)
        fprintf(stderr, "%s %llu", r ? "," : "", (unsigned long long)ranks[r].weight_bytes);
    fprintf(stderr, " bytes; %u prompt tokens, first token after %.3f s, %u tokens at %.1f tokens/s\n", g->n_prompt, g->first_token_s,
            g->n_tokens, tokens_per_s(g));
}

static int report(struct session *s, const struct generation *g)
{
    struct rank_counters *ranks = calloc((size_t)engine_n_ranks(s->engine), sizeof *ranks);
    int err = ranks ? engine_counters(s->engine, ranks, false) : error_set(ERR_NO_MEMORY, "out of memory for the report");
    if (err == 0 && s->options->json)
        err = print_json(s, g, ranks);
    else if (err == 0)
        print_summary(s, g, ranks);
    free(ranks);
    return err;
}

static int answer_once(struct session *s, const struct prompter *prompter, const char *text, size_t n_bytes)
{
    struct buffer answer = { 0 };
    struct generation g = { .text = &answer };
    int32_t *ids = NULL;
    size_t n = 0;
    bool broken = false, raw = s->options->raw || !prompter->template;
    int err = raw ? prompt_raw(s, text, n_bytes, &ids, &n) : prompt_chat(prompter, s, &(struct chat_message){ "user", text }, 1, &ids, &n);
    if (err == 0 && !n)
        err = error_set(ERR_USAGE, "the prompt is empty");
    if (err == 0)
        err = generate(s, &g, ids, n, s->options->json ? keep_piece : print_piece, &broken);
    if (err == 0 && !s->options->json)
        puts("");
    if (err == 0)
        err = broken ? error_set(ERR_FAILED, "standard output cannot be written") : report(s, &g);
    generation_release(s, &g);
    buffer_release(&answer);
    free(ids);
    return err;
}

static int body(struct session *s, void *user)
{
    const bool *chats = user;
    struct prompter prompter;
    struct buffer text = { 0 };
    int err = prompter_open(&prompter, s);
    if (err < 0 && s->options->raw)
        err = 0;                /* its template is not needed */
    if (err == 0 && *chats && !prompter.template)
        err = error_set(ERR_USAGE, "this model has no chat template: give -p TEXT");
    if (err == 0 && *chats)
        err = chat(s, &prompter);
    else if (err == 0 && s->options->prompt)
        err = answer_once(s, &prompter, s->options->prompt, strlen(s->options->prompt));
    else if (err == 0 && (err = read_all(&text)) == 0)
        err = answer_once(s, &prompter, text.bytes, text.size);
    buffer_release(&text);
    prompter_release(&prompter);
    return err;
}

static int run(struct options *o, int argc, char **argv)
{
    bool chats = !o->prompt && !o->json && !o->raw && (isatty(STDIN_FILENO) || getenv(LAUNCH_CHAT));
    struct session_needs needs = { .max_sequences = 1, .chat = chats, .reads_input = !o->prompt };
    if (chats)
        setenv(LAUNCH_CHAT, "1", 1);
    return session_run(o, argc, argv, &needs, body, &chats);
}

const struct command command_run = {
    "run", "MODEL [-p TEXT] [FLAGS]", "answers a prompt; without -p in a terminal it is a chat",
    "The prompt is one turn of a chat where the model has a chat template, unless --raw.  The answer is on standard\n"
    "output, everything else on standard error.\n\n"
    "  stoa run model.gguf -p \"Why is the sky blue?\"\n"
    "  stoa run model.gguf -p \"Why is the sky blue?\" --layout pp=2,tp=2\n"
    "  stoa run model.gguf --temp 0.8 --seed 7",
    OPTIONS_COMPUTE | OPTIONS_HOSTS | OPTIONS_SAMPLE | OPTIONS_PROMPT | OPTIONS_RUN | OPTIONS_JSON, 1, 1, run,
};
