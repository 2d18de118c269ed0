/* cmd_inspect.c: what a model file holds, and what each rank of a layout would. */
#include "cli/commands.h"
#include "cli/session.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "text/json_out.h"

static int predict(struct json_out *j, struct buffer *out, const struct options *o, const struct model_file *file)
{
    struct compile_options compile = options_compile(o);
    if (o->json)
        json_array(j, "ranks");
    for (uint32_t rank = 0; rank < mesh_n_ranks(&o->mesh); rank++) {
        struct rank_prediction p;
        int err = predict_rank(&p, file, &compile, rank);
        if (err < 0)
            return err;
        if (!o->json) {
            buffer_printf(out, "rank %-4u %12zu bytes of weights, %zu of KV cache a token, ", rank, p.weight_bytes, p.kv_bytes_per_token);
            if (p.kv_window_bytes)
                buffer_printf(out, "%zu of windows a sequence, ", p.kv_window_bytes);
            buffer_printf(out, "%zu of activations\n", p.activation_bytes);
            continue;
        }
        json_object(j, NULL);
        json_integer(j, "rank", rank);
        json_integer(j, "weight_bytes", (int64_t)p.weight_bytes);
        json_integer(j, "kv_bytes_per_token", (int64_t)p.kv_bytes_per_token);
        json_integer(j, "kv_window_bytes", (int64_t)p.kv_window_bytes);
        json_integer(j, "activation_bytes", (int64_t)p.activation_bytes);
        json_end_object(j);
    }
    if (o->json)
        json_end_array(j);
    return 0;
}

static void list_json(struct json_out *j, const struct model_file *file, const struct model_info *info)
{
    json_text(j, "architecture", info->architecture);
    json_integer(j, "parameters", (int64_t)info->n_parameters);
    json_integer(j, "layers", info->n_layers);
    json_integer(j, "context", info->n_context);
    json_integer(j, "vocabulary", info->n_vocab);
    json_array(j, "tensors");
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        json_object(j, NULL);
        json_text(j, "name", t->name);
        json_text(j, "type", dtype_info[t->type].name);
        json_array(j, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_integer(j, NULL, (int64_t)t->dims[d]);
        json_end_array(j);
        json_integer(j, "bytes", (int64_t)t->n_bytes);
        json_end_object(j);
    }
    json_end_array(j);
}

static void list_text(struct buffer *out, const struct model_file *file, const struct model_info *info)
{
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        buffer_printf(out, "%-40s %-5s", t->name, dtype_info[t->type].name);
        for (uint32_t d = 0; d < t->n_dims; d++)
            buffer_printf(out, "%s%llu", d ? " x " : " ", (unsigned long long)t->dims[d]);
        buffer_add_text(out, "\n");
    }
    buffer_printf(out, "\narchitecture %s, %u layers, %llu parameters, vocabulary of %u, made for %u tokens of context, %zu bytes\n",
                  info->architecture, info->n_layers, (unsigned long long)info->n_parameters, info->n_vocab, info->n_context,
                  model_file_bytes(file));
}

static int run(struct options *o, int argc, char **argv)
{
    struct model_file *file = NULL;
    struct model_info info;
    struct buffer out = { 0 };
    struct json_out j = { .to = &out };
    int err;
    (void)argc, (void)argv;
    if ((err = model_file_open(&file, o->model)) < 0 || (err = model_info_read(&info, file)) < 0)
        goto done;
    if (o->json) {
        json_object(&j, NULL);
        list_json(&j, file, &info);
    } else {
        list_text(&out, file, &info);
    }
    if ((err = predict(&j, &out, o, file)) < 0)
        goto done;
    if (o->json) {
        json_end_object(&j);
        buffer_add_text(&out, "\n");
    }
    err = print_buffer(&out);
done:
    buffer_release(&out);
    model_file_close(file);
    return err < 0 ? report_error(err) : 0;
}

const struct command command_inspect = {
    "inspect", "MODEL [FLAGS]", "lists a model's tensors, and what each rank of a layout would hold",
    "Nothing is loaded.\n\n"
    "  stoa inspect model.gguf --layout pp=2,tp=2",
    OPTIONS_LAYOUT | OPTIONS_JSON, 1, 1, run,
};
