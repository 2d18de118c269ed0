/* session.h: what every computing command begins with: the model, the world, and an engine on this process's rank. */
#ifndef STOA_CLI_SESSION_H
#define STOA_CLI_SESSION_H

#include "cli/options.h"
#include "engine/numerics.h"
#include "text/tokenizer.h"

struct session {
    struct options *options;
    struct model_file *file;
    struct tokenizer *tokenizer;
    struct comm *world;
    struct engine *engine;
    char layout[64];
    double load_s;
};

/* What a command needs of its engine. */
struct session_needs {
    uint32_t max_sequences;
    bool full_logits, hidden_norms, chat, reads_input;
    bool drains;                /* see struct launch_options */
    uint32_t context;           /* 0: --context */
    uint32_t step_ms;           /* see struct engine_options */
    uint64_t epoch;             /* likewise */
    uint32_t cache_tokens;      /* most that the KV cache holds, of all sequences; 0: what max_sequences of them can need */
    bool no_prefix_cache;       /* what is measured is computed */
};

/* A session's body runs on the leader alone; the other ranks follow until it returns.
 *
 * With a layout of many ranks and no world given, this process checks the model and the layout and becomes the launcher of
 * the ranks, which run the same command again.  Returns the exit code of the process; errors have been printed. */
int session_run(struct options *options, int argc, char **argv, const struct session_needs *needs,
                int (*body)(struct session *s, void *user), void *user);

/* The numerics id of what these options compute with this model. */
void session_numerics(char out[NUMERICS_ID], const struct model_file *file, const struct options *options);

/* Prints the thread's error line as the program's, and gives its exit code. */
int report_error(int code);

/* Writes a finished text to standard output; 0 or ERR_FAILED when it cannot be written. */
struct buffer;
int print_buffer(const struct buffer *text);

#endif
