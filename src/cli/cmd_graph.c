/* cmd_graph.c: the graph of a model, or of one rank of a layout, after each pass. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Graphviz draws; without it the error says so. */
static int print_svg(const struct graph *g, int layer)
{
    if (system("command -v dot > /dev/null 2>&1"))
        return error_set(ERR_FAILED, "--format svg needs Graphviz (the program dot), which is not installed; --format dot does not");
    fflush(stdout);
    FILE *dot = popen("dot -Tsvg", "w");
    if (!dot)
        return error_set(ERR_FAILED, "dot cannot be started");
    graph_print_dot(g, layer, dot);
    return pclose(dot) ? error_set(ERR_FAILED, "dot has failed") : 0;
}

static int print(const struct graph *g, const char *format, int layer)
{
    if (!strcmp(format, "svg"))
        return print_svg(g, layer);
    (strcmp(format, "dot") ? graph_print_text : graph_print_dot)(g, layer, stdout);
    return fflush(stdout) || ferror(stdout) ? error_set(ERR_FAILED, "standard output cannot be written") : 0;
}

static int run(struct options *o, int argc, char **argv)
{
    struct model_file *file = NULL;
    struct graph *g = NULL;
    enum pass last;
    int err;
    (void)argc, (void)argv;
    struct compile_options compile = options_compile(o);
    if ((err = pass_find(&last, o->after)) == 0 && strcmp(o->format, "text") && strcmp(o->format, "dot") && strcmp(o->format, "svg"))
        err = error_set(ERR_USAGE, "--format %s: wanted text, dot or svg", o->format);
    if (err == 0 && (uint32_t)o->rank >= mesh_n_ranks(&o->mesh))
        err = error_set(ERR_USAGE, "--rank %ld: the layout has %u ranks", o->rank, mesh_n_ranks(&o->mesh));
    if (err == 0 && (err = model_file_open(&file, o->model)) == 0 &&
        (err = compile_rank(&g, file, &compile, (uint32_t)o->rank, last)) == 0)
        err = o->layer == LAYER_ANY || graph_has_layer(g, (int)o->layer)
                  ? print(g, o->format, (int)o->layer)
                  : error_set(ERR_USAGE, "--layer %ld: rank %ld has no node of it; the model has %u layers", o->layer, o->rank,
                              g->n_layers);
    graph_close(g);
    model_file_close(file);
    return err < 0 ? report_error(err) : 0;
}

const struct command command_graph = {
    "graph", "MODEL [FLAGS]", "prints the graph of a rank, after a pass",
    "Passes run in the order build, simplify, shard, fuse, overlap, place.  %N is a value; what is split or partial along an axis\n"
    "of the layout says so.\n\n"
    "  stoa graph model.gguf --after build\n"
    "  stoa graph model.gguf --layout tp=2 --rank 1 --after shard\n"
    "  stoa graph model.gguf --layout tp=2 --layer 1 --format dot | dot -Tsvg > graph.svg",
    OPTIONS_LAYOUT | OPTIONS_GRAPH, 1, 1, run,
};
