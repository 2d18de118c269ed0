/* cmd_serve.c: the OpenAI API over HTTP. */
#include "cli/commands.h"
#include "cli/prompt.h"

#include "base/base.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/numerics.h"
#include "front/front.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_WORKERS = 2 };             /* for templates and tokenizing, beside the ranks' threads */

/* The file's name without folder and ending. */
static char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    char *end = name ? strstr(name, ".gguf") : NULL;
    if (end && !end[5])
        *end = '\0';
    return name;
}

static const char *text_of(const struct buffer *text)
{
    return text->bytes ? text->bytes : "";
}

static int serve(const struct options *o, struct session *s, const char *const *replica)
{
    struct prompter prompter;
    char *name = o->served_name ? strdup(o->served_name) : name_of(o->model);
    int code = name ? prompter_open(&prompter, s) : error_set(ERR_NO_MEMORY, "out of memory for the name");
    if (code < 0) {
        free(name);
        return code;
    }
    char numerics[NUMERICS_ID], model[NUMERICS_ID];
    session_numerics(numerics, s->file, o);
    numerics_model(model, s->file);
    struct front_options front = {
        .numerics = numerics, .model_digest = model,
        .host = o->host, .port = (uint16_t)o->port, .replica = replica, .api_key_file = o->api_key_file, .metrics_key = o->metrics_key,
        .cors_origin = o->cors_origin, .max_queue = (uint32_t)o->max_queue, .keep_alive_s = (int)o->keep_alive,
        .drain_s = (int)o->drain_timeout, .n_workers = N_WORKERS,
        .model = { .tokenizer = s->tokenizer, .template = prompter.template, .bos = text_of(&prompter.bos), .eos = text_of(&prompter.eos),
                   .name = name, .created_s = (int64_t)time(NULL), .strict = o->strict },
    };
    code = front_run(&front);
    prompter_release(&prompter);
    free(name);
    return code;
}

static int run(struct options *o, int argc, char **argv)
{
    struct session s = { .options = o };
    const char **replica = calloc((size_t)argc + 2, sizeof *replica);
    int code = replica ? 0 : error_set(ERR_NO_MEMORY, "out of memory for the command line");
    log_tells_time();
    if (code == 0 && o->served_name && !*o->served_name)
        code = error_set(ERR_USAGE, "--served-model-name: wanted a name");
    if (code == 0)
        code = model_file_open(&s.file, o->model);
    if (code == 0)
        code = tokenizer_open(&s.tokenizer, s.file);
    if (code == 0) {
        replica[0] = o->model;
        options_words(replica + 1, OPTIONS_COMPUTE | OPTIONS_QUEUE, &command_serve, argc, argv);
        code = serve(o, &s, replica);
    }
    tokenizer_close(s.tokenizer);
    model_file_close(s.file);
    free(replica);
    return code < 0 ? report_error(code) : code;
}

const struct command command_serve = {
    "serve", "MODEL [--port P] [FLAGS]", "answers the OpenAI API over HTTP",
    "The port is open at once; /ready says when the model is loaded.  Ranks that die are started again.  SIGTERM or Ctrl-C: answers\n"
    "in work are finished, then it ends; a second one ends it at once.\n\n"
    "  stoa serve model.gguf\n"
    "  stoa serve model.gguf --layout tp=2 --port 8000 --api-key-file keys.txt\n"
    "  curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
    "       -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]}'",
    OPTIONS_COMPUTE | OPTIONS_QUEUE | OPTIONS_SERVE, 1, 1, run,
};
