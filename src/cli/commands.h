/* commands.h: one file per command; main.c has the table. */
#ifndef STOA_CLI_COMMANDS_H
#define STOA_CLI_COMMANDS_H

#include "cli/options.h"

extern const struct command command_run, command_logits, command_bench, command_inspect, command_graph, command_tokenize, command_quantize,
    command_perplexity, command_serve, command_replica;

#endif
