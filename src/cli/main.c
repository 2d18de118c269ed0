/* main.c: finds the command.  Exit codes: 0 done, 1 failed at run time, 2 wrong usage, 3 bad input file. */
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/error.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_run, &command_logits, &command_bench, &command_inspect, &command_graph, &command_tokenize, &command_quantize,
    &command_perplexity,
#ifdef HAVE_WIRE
    &command_serve, &command_replica,
#endif
};

static void help(FILE *to)
{
    fputs("Stoa runs neural networks that are too large or too busy for one device, on many.\n\n", to);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        fprintf(to, "  stoa %s %s\n", commands[i]->name, commands[i]->arguments);
        fprintf(to, "      %s\n", commands[i]->summary);
    }
    fputs("\nMODEL is a GGUF file.  stoa COMMAND --help explains a command; stoa --version tells the version.\n", to);
}

/* Models and packed weights are read from mapped files: when one is cut short or its disk fails, the system's answer is this signal. */
static void on_bus_error(int signal)
{
    static const char line[] = "stoa: the model file (or its packed cache) was cut short, or cannot be read any more\n";
    (void)signal;
    if (write(STDERR_FILENO, line, sizeof line - 1) > 0)
        launch_explained();
    _exit(3);
}

/* What was printed must have arrived. */
static int finish(int code)
{
    if ((fflush(stdout) || ferror(stdout)) && code == 0) {
        fputs("stoa: standard output cannot be written\n", stderr);
        return 1;
    }
    return code;
}

int main(int argc, char **argv)
{
    signal(SIGBUS, on_bus_error);
    signal(SIGXFSZ, SIG_IGN);       /* a write beyond the limit fails, and is said */
    launch_tie_rank();
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return finish(0);
    }
    if (!strcmp(argv[1], "--version")) {
        puts("stoa " STOA_VERSION);
        return finish(0);
    }
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        struct options options;
        if (strcmp(argv[1], commands[i]->name))
            continue;
        int parsed = options_parse(&options, commands[i], argc, argv);
        int code = parsed < 0 ? report_error(parsed) : parsed > 0 ? 0 : commands[i]->run(&options, argc, argv);
        options_release(&options);
        return finish(code);
    }
    fprintf(stderr, "stoa: there is no command \"%s\"; stoa --help lists them\n", argv[1]);
    return 2;
}
