#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "cli/launch.h"

#include <stdio.h>
#include <string.h>

int report_error(int code)
{
    fflush(stdout);
    log_own("%s", error_text());
    launch_explained();
    return error_exit_code(code);
}

int print_buffer(const struct buffer *text)
{
    if (text->failed)
        return error_set(ERR_NO_MEMORY, "no memory for the output");
    if (fwrite(text->bytes, 1, text->size, stdout) != text->size || fflush(stdout))
        return error_set(ERR_FAILED, "standard output cannot be written");
    return 0;
}

static struct engine_options engine_options(const struct options *o, const struct session_needs *needs)
{
    return (struct engine_options){
        .mesh = o->mesh, .n_threads = (int)o->threads, .is_pinned = o->is_pinned,
        .int8_activations = o->int8_activations, .cache_type = o->cache_type, .n_groups = (uint32_t)o->groups,
        .chunk = options_chunk(o), .context = needs->context ? needs->context : (uint32_t)o->context,
        .max_sequences = needs->max_sequences, .isa = o->isa, .without = o->without_mask, .full_logits = needs->full_logits,
        .hidden_norms = needs->hidden_norms, .gathered = o->gathered, .profile = o->roofline, .packed_cache = o->packed_cache,
        .no_prefix_cache = needs->no_prefix_cache, .step_ms = needs->step_ms, .epoch = needs->epoch,
        .cache_blocks = DIV_UP(needs->cache_tokens, BLOCK_TOKENS * o->mesh.size[AXIS_DP]),
    };
}

void session_numerics(char out[NUMERICS_ID], const struct model_file *file, const struct options *o)
{
    const struct engine_options e = engine_options(o, &(struct session_needs){ 0 });
    numerics_id(out, file, &e);
}

/* Finds before anything is started that the layout does not fit the model, or the model not the machine.  The KV cache is not
 * counted: it takes memory as it fills. */
static int check_fit(const struct options *o, const struct model_file *file, const struct session_needs *needs)
{
    struct engine_options e = engine_options(o, needs);
    struct model_info info;
    int err = model_info_read(&info, file);
    if (err < 0 || (err = engine_options_resolve(&e, &info)) < 0)
        return err;
    struct compile_options compile = engine_compile_options(&e);
    compile.model.warn = false;
    uint64_t all = 0, available = memory_available();
    for (uint32_t rank = 0; rank < mesh_n_ranks(&o->mesh); rank++) {
        struct rank_prediction p;
        if ((err = predict_rank(&p, file, &compile, rank)) < 0)
            return err;
        all += p.weight_bytes + p.activation_bytes;
    }
    if (!o->hosts && all > available)
        return error_set(ERR_NO_MEMORY, "the model needs %llu MB on this machine and %llu MB are free", (unsigned long long)(all >> 20),
                         (unsigned long long)(available >> 20));
    return 0;
}

static int launch(const struct options *o, const struct session_needs *needs, int argc, char **argv)
{
    struct launch_options launch = { .n_ranks = (int)mesh_n_ranks(&o->mesh), .hosts_file = o->hosts, .chat = needs->chat,
                                     .no_input = !needs->reads_input, .drains = needs->drains };
    int code = launch_ranks(&launch, argc, argv);
    return code < 0 ? report_error(code) : code;
}

/* The leader's errors and the followers': whoever fails ends the job, after one line. */
static int lead(struct session *s, int (*body)(struct session *, void *), void *user)
{
    int err = tokenizer_open(&s->tokenizer, s->file);
    if (err == 0)
        err = tokenizer_check(s->tokenizer, engine_model(s->engine)->n_vocab);
    if (err == 0)
        err = body(s, user);
    if (err < 0) {
        int code = report_error(err);
        if (comm_size(s->world) > 1)
            comm_abort(s->world, code);
        return code;
    }
    return 0;
}

static int follow(struct session *s)
{
    int err = engine_follow(s->engine);
    if (err < 0)
        comm_abort(s->world, report_error(err));
    return 0;
}

static int run_rank(struct session *s, const struct session_needs *needs, int (*body)(struct session *, void *), void *user)
{
    struct engine_options engine = engine_options(s->options, needs);
    double start_s = seconds_now();
    int err = comm_open_world(&s->world), code;
    if (err < 0)
        return report_error(err);
    int rank = comm_rank(s->world);
    log_silence(rank != 0);
    mesh_print(&s->options->mesh, s->layout);
    if ((err = comm_agree(s->world, s->file ? 0 : model_file_open(&s->file, s->options->model))) < 0 ||
        (err = engine_open(&s->engine, s->file, &engine, s->world)) < 0) {
        code = rank == 0 ? report_error(err) : error_exit_code(err);
        comm_close(s->world);
        return code;
    }
    s->load_s = seconds_now() - start_s;
    if (engine.n_groups)
        log_info("sums of %u groups: answers are equal within tolerance to those without --groups, not in every bit", engine.n_groups);
    code = rank == 0 ? lead(s, body, user) : follow(s);
    engine_close(s->engine);
    comm_close(s->world);
    tokenizer_close(s->tokenizer);
    return code;
}

int session_run(struct options *options, int argc, char **argv, const struct session_needs *needs,
                int (*body)(struct session *s, void *user), void *user)
{
    struct session s = { .options = options };
    bool in_world = comm_world_given();
    int err = 0, code;
    if (!in_world && (err = model_file_open(&s.file, options->model)) == 0)
        err = check_fit(options, s.file, needs);
    if (err < 0)
        code = report_error(err);
    else if (!in_world && mesh_n_ranks(&options->mesh) > 1)
        code = launch(options, needs, argc, argv);
    else
        code = run_rank(&s, needs, body, user);
    model_file_close(s.file);
    return code;
}
