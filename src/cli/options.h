/* options.h: the command line.  One table of flags; each command says which it takes. */
#ifndef STOA_CLI_OPTIONS_H
#define STOA_CLI_OPTIONS_H

#include "engine/engine.h"

/* Groups of flags; a command takes a mask of them. */
enum option_group {
    OPTIONS_COMPUTE = 1,        /* --layout, --threads and what shapes a computation */
    OPTIONS_SAMPLE = 2,         /* --temp, --top-k, --top-p and what else shapes the pick */
    OPTIONS_PROMPT = 4,         /* -p */
    OPTIONS_RUN = 8,
    OPTIONS_LOGITS = 16,
    OPTIONS_BENCH = 32,
    OPTIONS_GRAPH = 64,
    OPTIONS_JSON = 128,
    OPTIONS_LAYOUT = 256,       /* --layout and what shapes a rank's graph, without computing */
    OPTIONS_QUANTIZE = 512,
    OPTIONS_PERPLEXITY = 1024,
    OPTIONS_QUEUE = 2048,       /* --max-sequences, --max-queue */
    OPTIONS_SERVE = 4096,
    OPTIONS_REPLICA = 8192,
    OPTIONS_HOSTS = 16384,      /* --hosts */
};

struct options {
    const char *model;
    const char **words;         /* every word that is no flag */
    const char *const *rest;    /* those after the model, n_rest of them */
    int n_rest;

    const char *layout, *shares, *stages, *hosts, *weights, *packed_cache, *isa, *without, *activations, *kv, *pin;
    long threads, chunk, context, groups;
    const char *prompt;
    long n_new;
    double temperature, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
    long top_k;
    uint64_t seed;
    bool raw, json, ignore_eos;
    const char *tokens;
    long top, batch;
    bool all, norms;
    long prompt_tokens, generate, repeat;
    const char *batches;
    bool roofline;
    long rank, layer;           /* layer: LAYER_ANY for all */
    const char *after, *format;
    const char *type;
    bool force, pure;
    long window;
    const char *logits, *against;
    long max_sequences, max_queue, cache_tokens;
    const char *host, *served_name, *api_key_file, *metrics_key, *cors_origin;
    long port, keep_alive, drain_timeout;
    bool strict;
    const char *listen;
    uint64_t epoch;
    long tied;                  /* 0: to nobody */

    /* made from the words above */
    struct mesh mesh;
    unsigned without_mask;
    bool int8_activations, gathered, is_pinned;
    enum dtype cache_type;
};

struct command {
    const char *name, *arguments, *summary;
    const char *text;           /* a paragraph for --help; examples */
    unsigned groups;
    int min_words, max_words;   /* MODEL among them */
    int (*run)(struct options *options, int argc, char **argv);
};

/* Reads argv[2..] for the command.  1: --help was asked for and is printed; ERR_USAGE with the word that is wrong. */
int options_parse(struct options *out, const struct command *command, int argc, char **argv);
/* --chunk, or what fits the layout: pipelines want several micro-batches of a prompt, one rank wants long ones. */
uint32_t options_chunk(const struct options *options);
/* How a rank's graph is compiled by commands that load nothing: steps of --chunk tokens, one row wanted. */
struct compile_options options_compile(const struct options *options);
/* The flags of these groups on a command's line, with their values, as they were typed.  out has room for argc; how many. */
int options_words(const char **out, unsigned groups, const struct command *command, int argc, char **argv);
void options_release(struct options *options);
void options_help(const struct command *command);

#endif
