#include "cli/options.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { FLAG_SWITCH, FLAG_TEXT, FLAG_INTEGER, FLAG_NUMBER, FLAG_SEED };

struct flag {
    const char *name;           /* as typed */
    enum kind kind;
    size_t offset;              /* in struct options */
    unsigned groups;
    double min, max;
    const char *argument, *help;
};

#define AT(field) offsetof(struct options, field)
static const struct flag flags[] = {
    { "-p", FLAG_TEXT, AT(prompt), OPTIONS_PROMPT, 0, 0, "TEXT", "the prompt" },
    { "-n", FLAG_INTEGER, AT(n_new), OPTIONS_RUN, 1, 1 << 24, "N", "most tokens to generate (512)" },
    { "--raw", FLAG_SWITCH, AT(raw), OPTIONS_RUN, 0, 0, NULL, "the prompt as it is, without the model's chat template" },
    { "--ignore-eos", FLAG_SWITCH, AT(ignore_eos), OPTIONS_RUN, 0, 0, NULL, "go on after an end token" },
    { "--temp", FLAG_NUMBER, AT(temperature), OPTIONS_SAMPLE, 0, 100, "T", "temperature; 0 takes the most likely token (0)" },
    { "--top-k", FLAG_INTEGER, AT(top_k), OPTIONS_SAMPLE, 0, 1 << 24, "K", "only the K most likely tokens; 0 is off (0)" },
    { "--top-p", FLAG_NUMBER, AT(top_p), OPTIONS_SAMPLE, 0, 1, "P", "only the most likely tokens that make up P together (1)" },
    { "--min-p", FLAG_NUMBER, AT(min_p), OPTIONS_SAMPLE, 0, 1, "P",
      "only tokens at least P times as likely as the most likely one; 0 is off (0)" },
    { "--repeat-penalty", FLAG_NUMBER, AT(repeat_penalty), OPTIONS_SAMPLE, 0.01, 100, "R",
      "divides positive logits of tokens in prompt and answer, multiplies others; 1 is off (1)" },
    { "--frequency-penalty", FLAG_NUMBER, AT(frequency_penalty), OPTIONS_SAMPLE, -100, 100, "F",
      "taken off a token's logit for each time that it is in the answer (0)" },
    { "--presence-penalty", FLAG_NUMBER, AT(presence_penalty), OPTIONS_SAMPLE, -100, 100, "F",
      "taken off a token's logit once it is in the answer (0)" },
    { "--seed", FLAG_SEED, AT(seed), OPTIONS_SAMPLE, 0, 0, "S", "the same seed gives the same text (0)" },
    { "--tokens", FLAG_TEXT, AT(tokens), OPTIONS_LOGITS, 0, 0, "1,2,3", "token ids instead of -p" },
    { "--top", FLAG_INTEGER, AT(top), OPTIONS_LOGITS, 0, 1 << 24, "N", "largest logits shown at a position (10)" },
    { "--all", FLAG_SWITCH, AT(all), OPTIONS_LOGITS, 0, 0, NULL, "every position, else the last" },
    { "--batch", FLAG_INTEGER, AT(batch), OPTIONS_LOGITS, 1, 256, "N", "with N - 1 other sequences beside it (1)" },
    { "--norms", FLAG_SWITCH, AT(norms), OPTIONS_LOGITS, 0, 0, NULL, "also the norm of the hidden state after each layer" },
    { "--prompt", FLAG_INTEGER, AT(prompt_tokens), OPTIONS_BENCH, 0, 1 << 20, "N", "tokens of the prefill test; 0 leaves it out (512)" },
    { "--generate", FLAG_INTEGER, AT(generate), OPTIONS_BENCH, 0, 1 << 20, "N", "tokens of each decode test; 0 leaves them out (128)" },
    { "--batch", FLAG_TEXT, AT(batches), OPTIONS_BENCH, 0, 0, "1,4,16", "sequences decoding together, a test for each number (1)" },
    { "--repeat", FLAG_INTEGER, AT(repeat), OPTIONS_BENCH, 1, 1000, "N", "runs of each test (5)" },
    { "--roofline", FLAG_SWITCH, AT(roofline), OPTIONS_BENCH, 0, 0, NULL,
      "also what share of this machine's peaks each kind of work reaches" },
    { "--rank", FLAG_INTEGER, AT(rank), OPTIONS_GRAPH, 0, MESH_MAX_RANKS - 1, "R", "whose graph (0)" },
    { "--after", FLAG_TEXT, AT(after), OPTIONS_GRAPH, 0, 0, "PASS",
      "as it is after build, simplify, shard, fuse or one of its fuse_* passes, overlap or place (place)" },
    { "--layer", FLAG_INTEGER, AT(layer), OPTIONS_GRAPH, 0, 1 << 20, "N",
      "only what stands in layer N, and what it takes from elsewhere (all)" },
    { "--format", FLAG_TEXT, AT(format), OPTIONS_GRAPH, 0, 0, "F", "text, dot or svg; svg needs Graphviz (text)" },
    { "--window", FLAG_INTEGER, AT(window), OPTIONS_PERPLEXITY, 2, 1 << 20, "N", "tokens of a window, the begin token among them (512)" },
    { "--logits", FLAG_TEXT, AT(logits), OPTIONS_PERPLEXITY, 0, 0, "FILE",
      "write there the logits that predict each token: f32, row after row" },
    { "--against", FLAG_TEXT, AT(against), OPTIONS_PERPLEXITY, 0, 0, "FILE",
      "compare with the logits that --logits wrote for another model" },
    { "--type", FLAG_TEXT, AT(type), OPTIONS_QUANTIZE, 0, 0, "T", "of the new weights, as Q4_K or Q8_0" },
    { "--pure", FLAG_SWITCH, AT(pure), OPTIONS_QUANTIZE, 0, 0, NULL, "the matrix that gives the logits gets T too" },
    { "--force", FLAG_SWITCH, AT(force), OPTIONS_QUANTIZE, 0, 0, NULL, "replace OUT when it is there" },
    { "--host", FLAG_TEXT, AT(host), OPTIONS_SERVE, 0, 0, "H", "address to listen at; 0.0.0.0 is all of this machine's (127.0.0.1)" },
    { "--port", FLAG_INTEGER, AT(port), OPTIONS_SERVE, 0, 65535, "P", "port to listen at; 0 is any that is free (8080)" },
    { "--served-model-name", FLAG_TEXT, AT(served_name), OPTIONS_SERVE, 0, 0, "N", "what clients call the model (the file's name)" },
    { "--api-key-file", FLAG_TEXT, AT(api_key_file), OPTIONS_SERVE, 0, 0, "FILE",
      "API keys, one a line; who has none gets 401 (no keys: anybody may ask)" },
    { "--metrics-key", FLAG_TEXT, AT(metrics_key), OPTIONS_SERVE, 0, 0, "K", "the key that /metrics needs (none)" },
    { "--cors-origin", FLAG_TEXT, AT(cors_origin), OPTIONS_SERVE, 0, 0, "O", "a page's origin that may ask from a browser, or * (none)" },
    { "--keep-alive", FLAG_INTEGER, AT(keep_alive), OPTIONS_SERVE, 0, 86400, "S",
      "a comment goes into a stream that was quiet for S seconds; 0: none (15)" },
    { "--strict", FLAG_SWITCH, AT(strict), OPTIONS_SERVE, 0, 0, NULL, "fields of requests that change nothing here are errors" },
    { "--max-sequences", FLAG_INTEGER, AT(max_sequences), OPTIONS_QUEUE, 1, 4096, "N", "most sequences computed at a time (64)" },
    { "--cache-tokens", FLAG_INTEGER, AT(cache_tokens), OPTIONS_QUEUE, 16, 1L << 30, "N",
      "tokens that the KV cache holds, of all sequences together (32768, or --context)" },
    { "--max-queue", FLAG_INTEGER, AT(max_queue), OPTIONS_QUEUE, 1, 1 << 20, "N",
      "most answers in work and waiting; beyond it clients get 429 (1024)" },
    { "--layout", FLAG_TEXT, AT(layout), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "L",
      "how many ranks along which axis, as in pp=2,tp=2 (tp=1)" },
    { "--shares", FLAG_TEXT, AT(shares), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "A,B", "relative parts of the ranks along tp (equal)" },
    { "--groups", FLAG_INTEGER, AT(groups), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 8, MAX_GROUPS, "N",
      "sum in N groups, for finer shares or more ranks: equal within tolerance, not in every bit (by the shape)" },
    { "--stages", FLAG_TEXT, AT(stages), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "A,B", "layers of each pipeline stage (equal)" },
    { "--hosts", FLAG_TEXT, AT(hosts), OPTIONS_HOSTS, 0, 0, "FILE", "host file for the launcher" },
    { "--threads", FLAG_INTEGER, AT(threads), OPTIONS_COMPUTE | OPTIONS_QUANTIZE, 1, 1024, "N",
      "compute threads of each rank (cores / ranks)" },
    { "--pin", FLAG_TEXT, AT(pin), OPTIONS_COMPUTE, 0, 0, "W",
      "no: threads may run on any core; yes: on cores of one NUMA node, where they fit (yes)" },
    { "--activations", FLAG_TEXT, AT(activations), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "T",
      "int8, or f32 for the reference mode (int8)" },
    { "--kv", FLAG_TEXT, AT(kv), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "T",
      "type of the KV cache: f16, bf16, f32 or q8_0 (f16; f32 with f32 activations)" },
    { "--chunk", FLAG_INTEGER, AT(chunk), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 1, 1 << 20, "N",
      "most prompt tokens of a sequence in one step (512; less in a pipeline)" },
    { "--context", FLAG_INTEGER, AT(context), OPTIONS_COMPUTE, 1, 1 << 30, "N", "most tokens of a sequence (the model's, 8192 at most)" },
    { "--isa", FLAG_TEXT, AT(isa), OPTIONS_COMPUTE, 0, 0, "I",
      "c, avx2, avxvnni, avx512, amx or neon (the best of this CPU); the bits are the same" },
    { "--without", FLAG_TEXT, AT(without), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "PASS",
      "leave passes out: simplify, fuse or one of its fuse_matmuls, fuse_epilogues, fuse_rows, fuse_prologues; "
      "overlap, place; the bits are the same" },
    { "--weights", FLAG_TEXT, AT(weights), OPTIONS_COMPUTE | OPTIONS_LAYOUT, 0, 0, "W",
      "resident, or gathered: stored in parts over dp, fetched before use (resident)" },
    { "--packed-cache", FLAG_TEXT, AT(packed_cache), OPTIONS_COMPUTE, 0, 0, "DIR",
      "keep packed weights in files there; the next start maps them (none)" },
    { "--listen", FLAG_TEXT, AT(listen), OPTIONS_REPLICA, 0, 0, "ADDR",
      "unix:PATH, or HOST:PORT of this machine alone, as 127.0.0.1:7000; port 0 is any that is free" },
    { "--epoch", FLAG_SEED, AT(epoch), OPTIONS_REPLICA, 0, 0, "N", "frames of another epoch are dropped (0)" },
    { "--tied", FLAG_INTEGER, AT(tied), OPTIONS_REPLICA, 1, 1 << 22, "PID",
      "end when this process, which has started it, ends (end by itself)" },
    { "--drain-timeout", FLAG_INTEGER, AT(drain_timeout), OPTIONS_REPLICA | OPTIONS_SERVE, 0, 86400, "S",
      "seconds for answers in work after a signal to end (25)" },
    { "--json", FLAG_SWITCH, AT(json), OPTIONS_JSON, 0, 0, NULL, "one JSON object on standard output" },
};

void options_help(const struct command *command)
{
    printf("stoa %s %s\n\n%s\n\n%s\n\nFlags (what is taken without them in parentheses):\n", command->name, command->arguments,
           command->summary, command->text);
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        char left[64];
        if (!(flags[i].groups & command->groups))
            continue;
        snprintf(left, sizeof left, "%s %s", flags[i].name, flags[i].argument ? flags[i].argument : "");
        printf("  %-18s %s\n", left, flags[i].help);
    }
    printf("  %-18s %s\n", "--help", "this text");
}

static int set_integer(void *field, const struct flag *flag, const char *word)
{
    char *end;
    errno = 0;
    long value = strtol(word, &end, 10);
    if (errno || end == word || *end || (double)value < flag->min || (double)value > flag->max)
        return error_set(ERR_USAGE, "%s %s: wanted a whole number from %.0f to %.0f", flag->name, word, flag->min, flag->max);
    *(long *)field = value;
    return 0;
}

static int set_number(void *field, const struct flag *flag, const char *word)
{
    char *end;
    double value = strtod(word, &end);
    if (end == word || *end || !(value >= flag->min && value <= flag->max))
        return error_set(ERR_USAGE, "%s %s: wanted a number from %g to %g", flag->name, word, flag->min, flag->max);
    *(double *)field = value;
    return 0;
}

static int set_seed(void *field, const struct flag *flag, const char *word)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(word, &end, 10);
    if (errno || *word < '0' || *word > '9' || *end)
        return error_set(ERR_USAGE, "%s %s: wanted a whole number from 0 to 18446744073709551615", flag->name, word);
    *(uint64_t *)field = value;
    return 0;
}

static int set_flag(struct options *o, const struct flag *flag, const char *word)
{
    void *field = (char *)o + flag->offset;
    switch (flag->kind) {
    case FLAG_SWITCH:  *(bool *)field = true; return 0;
    case FLAG_TEXT:    *(const char **)field = word; return 0;
    case FLAG_INTEGER: return set_integer(field, flag, word);
    case FLAG_NUMBER:  return set_number(field, flag, word);
    case FLAG_SEED:    return set_seed(field, flag, word);
    }
    return 0;
}

static const struct flag *find_flag(const char *word, unsigned groups)
{
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (!strcmp(flags[i].name, word) && flags[i].groups & groups)
            return &flags[i];
    return NULL;
}

static int one_of(const char *flag, const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return (int)i;
    struct buffer known = { 0 };
    for (size_t i = 0; i < n; i++)
        buffer_printf(&known, "%s%s", i ? ", " : "", words[i]);
    int err = error_set(ERR_USAGE, "%s %s: not one of %s", flag, word, known.bytes ? known.bytes : "the known ones");
    buffer_release(&known);
    return err;
}

/* The words that stand for something else become it. */
static int resolve(struct options *o)
{
    static const char *const activations[] = { "int8", "f32" },
                      *const caches[] = { "f32", "f16", "bf16", "q8_0" }, *const weights[] = { "resident", "gathered" },
                      *const pins[] = { "no", "yes" };
    int err, which;
    if ((err = mesh_parse(&o->mesh, o->layout)) < 0 || (err = mesh_parse_shares(&o->mesh, o->shares, o->stages)) < 0 ||
        (err = pass_parse_without(&o->without_mask, o->without)) < 0)
        return err;
    if ((which = one_of("--activations", o->activations, activations, COUNT_OF(activations))) < 0)
        return which;
    o->int8_activations = which == 0;
    if ((which = one_of("--kv", o->kv ? o->kv : o->int8_activations ? "f16" : "f32", caches, COUNT_OF(caches))) < 0)
        return which;
    o->cache_type = (enum dtype)which;      /* the list is in the order of enum dtype */
    if ((which = one_of("--weights", o->weights ? o->weights : "resident", weights, COUNT_OF(weights))) < 0)
        return which;
    o->gathered = which == 1;
    if ((which = one_of("--pin", o->pin, pins, COUNT_OF(pins))) < 0)
        return which;
    o->is_pinned = which == 1;
    if (o->gathered && o->mesh.size[AXIS_DP] == 1)
        return error_set(ERR_USAGE, "--weights gathered: weights are stored in parts over groups along dp: name some, as in --layout dp=2");
    if (o->groups & (o->groups - 1))
        return error_set(ERR_USAGE, "--groups %ld: wanted 8, 16, 32 or 64", o->groups);
    if (o->packed_cache && !*o->packed_cache)
        return error_set(ERR_USAGE, "--packed-cache: wanted a folder");
    if (o->top_p == 0)
        return error_set(ERR_USAGE, "--top-p 0: wanted more than 0");
    return 0;
}

int options_parse(struct options *o, const struct command *command, int argc, char **argv)
{
    int n_words = 0;
    const char **words = calloc((size_t)argc + 1, sizeof *words);
    *o = (struct options){ .n_new = 512, .top_p = 1, .repeat_penalty = 1, .top = 10, .batch = 1, .prompt_tokens = 512, .generate = 128,
                           .repeat = 5, .batches = "1", .window = 512, .activations = "int8", .pin = "yes", .after = "place",
                           .format = "text", .layer = LAYER_ANY, .words = words, .host = "127.0.0.1", .port = 8080, .keep_alive = 15,
                           .drain_timeout = 25, .max_sequences = 64, .max_queue = 1024 };
    if (!words)
        return error_set(ERR_NO_MEMORY, "out of memory for the command line");
    bool only_words = false;        /* after "--" */
    for (int i = 2; i < argc; i++) {
        if (only_words) {
            words[n_words++] = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--")) {
            only_words = true;
            continue;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            options_help(command);
            return 1;
        }
        const struct flag *flag = find_flag(argv[i], command->groups);
        if (!flag && argv[i][0] == '-' && argv[i][1]) {
            return error_set(ERR_USAGE, "%s: there is no such flag; see stoa %s --help", argv[i], command->name);
        } else if (!flag) {
            words[n_words++] = argv[i];
        } else if (flag->kind == FLAG_SWITCH) {
            set_flag(o, flag, NULL);
        } else if (i + 1 == argc) {
            return error_set(ERR_USAGE, "%s: its value is missing", argv[i]);
        } else {
            int err = set_flag(o, flag, argv[++i]);
            if (err < 0)
                return err;
        }
    }
    if (n_words < command->min_words || n_words > command->max_words)
        return error_set(ERR_USAGE, "wanted: stoa %s %s", command->name, command->arguments);
    o->model = words[0];
    o->rest = words + 1;
    o->n_rest = MAX(n_words - 1, 0);
    return resolve(o);
}

uint32_t options_chunk(const struct options *o)
{
    return o->chunk ? (uint32_t)o->chunk : o->mesh.size[AXIS_PP] > 1 ? 64 : o->all ? 128 : 512;
}

struct compile_options options_compile(const struct options *o)
{
    return (struct compile_options){
        .model = { .int8_activations = o->int8_activations, .cache_type = o->cache_type, .n_groups = (uint32_t)o->groups,
                   .max_tokens = options_chunk(o), .max_rows = 1 },
        .mesh = o->mesh, .without = o->without_mask, .gathered = o->gathered,
    };
}

int options_words(const char **out, unsigned groups, const struct command *command, int argc, char **argv)
{
    int n = 0;
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
        const struct flag *flag = find_flag(argv[i], command->groups);
        if (!flag)
            continue;
        if (flag->groups & groups)
            out[n++] = argv[i];
        if (flag->kind != FLAG_SWITCH && ++i < argc && flag->groups & groups)
            out[n++] = argv[i];
    }
    return n;
}

void options_release(struct options *o)
{
    free(o->words);
    o->words = NULL;
}
