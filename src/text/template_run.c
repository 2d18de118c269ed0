/* template_run.c: runs the statements of a template, which write to `out`. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"

#include <string.h>

/* What a statement says to the loop around it; errors are below 0. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static int run_body(struct template_run *run, const struct template_node *first);

static int write_text(struct template_run *run, const struct template_value *text)
{
    int err = template_spend(run, text->text.n_bytes);
    if (err < 0)
        return err;
    if (run->out->size - run->out_start + text->text.n_bytes > TEMPLATE_MAX_OUTPUT)
        return template_fail(run, "the prompt is longer than %zu MB", TEMPLATE_MAX_OUTPUT >> 20);
    buffer_add(run->out, text->text.bytes, text->text.n_bytes);
    return run->out->failed ? template_no_memory() : 0;
}

static int run_print(struct template_run *run, const struct template_node *node)
{
    struct template_value value;
    int err;
    if ((err = template_eval(run, node->child[0], &value)) < 0 || (err = template_to_text(run, &value, &value)) < 0)
        return err;
    return write_text(run, &value);
}

static int set_attribute(struct template_run *run, const struct template_node *target, struct template_value value)
{
    struct template_value of;
    int err = template_eval(run, target->child[0], &of);
    if (err < 0)
        return err;
    if (of.kind != VALUE_NAMESPACE)
        return template_fail(run, "only a namespace takes new attributes");
    return template_map_put(run, of, &target->value, value);
}

static int assign(struct template_run *run, const struct template_node *target, struct template_value value)
{
    struct template_value items;
    size_t i = 0, n = 0;
    int err;
    if (target->kind == NODE_NAME)
        return template_map_put(run, run->scope->variables, &target->value, value);
    if (target->kind == NODE_ATTRIBUTE)
        return set_attribute(run, target, value);
    if ((err = template_iterate(run, &value, &items)) < 0)
        return err;
    for (const struct template_node *name = target->child[0]; name; name = name->next)
        n++;
    if (n != items.list->n)
        return template_fail(run, "%zu values for %zu names", items.list->n, n);
    for (const struct template_node *name = target->child[0]; name && !err; name = name->next)
        err = assign(run, name, items.list->items[i++]);
    return err;
}

static int run_set(struct template_run *run, const struct template_node *node)
{
    struct template_value value;
    int err = template_eval(run, node->child[1], &value);
    return err < 0 ? err : assign(run, node->child[0], value);
}

int template_scope_enter(struct template_run *run, struct template_scope *outer)
{
    struct template_scope *scope = arena_new(&run->arena, struct template_scope);
    int err = scope ? template_spend(run, sizeof *scope) : template_no_memory();
    if (err == 0) {
        scope->outer = outer;
        err = template_new_map(run, &scope->variables);
    }
    if (err == 0)
        run->scope = scope;
    return err;
}

/* ---- what is written into a value ---- */

/* Runs the block with a scope of its own; what it writes becomes *text, unless a break or continue leaves it. */
static int capture(struct template_run *run, const struct template_node *body, struct template_value *text)
{
    struct buffer built = { 0 }, *out = run->out;
    size_t out_start = run->out_start;
    run->out = &built;
    run->out_start = 0;
    int flow = run_body(run, body);
    run->out = out;
    run->out_start = out_start;
    int err = template_take_text(run, &built, flow < 0 ? flow : 0, text);
    return err < 0 ? err : flow;
}

/* Applies the filters of a block, which sit on each other with none below the first. */
static int filter_captured(struct template_run *run, const struct template_node *filter, struct template_value *text)
{
    const struct template_value *outer = run->captured, captured = *text;
    run->captured = &captured;
    int err = filter ? template_eval(run, filter, text) : 0;
    run->captured = outer;
    return err;
}

/* Unlike {{ }}, a block does not print what is no string. */
static int write_string(struct template_run *run, const struct template_value *value)
{
    if (value->kind != VALUE_STRING)
        return template_fail(run, "a block that becomes a value of type %s", template_kind_name(value->kind));
    return write_text(run, value);
}

static int run_capture(struct template_run *run, const struct template_node *node)
{
    struct template_scope *outer = run->scope;
    struct template_value text;
    int flow = template_scope_enter(run, outer);
    if (flow == FLOW_ON && (flow = capture(run, node->child[0], &text)) == FLOW_ON &&
        (flow = filter_captured(run, node->child[1], &text)) == FLOW_ON)
        flow = write_string(run, &text);
    run->scope = outer;
    return flow;
}

static int run_set_block(struct template_run *run, const struct template_node *node)
{
    struct template_scope *outer = run->scope;
    struct template_value text;
    int flow = template_scope_enter(run, outer);
    if (flow == FLOW_ON && (flow = capture(run, node->child[1], &text)) == FLOW_ON)
        flow = filter_captured(run, node->child[2], &text);
    run->scope = outer;
    return flow == FLOW_ON ? assign(run, node->child[0], text) : flow;
}

static int run_with(struct template_run *run, const struct template_node *node)
{
    struct template_scope *outer = run->scope, *inner;
    const struct template_node *value_node = node->child[1];
    int flow = template_scope_enter(run, outer);
    inner = run->scope;
    for (const struct template_node *target = node->child[0]; target && flow == FLOW_ON; target = target->next) {
        struct template_value value;
        run->scope = outer;                     /* a value does not see the names beside it */
        flow = template_eval(run, value_node, &value);
        run->scope = inner;
        if (flow == FLOW_ON)
            flow = assign(run, target, value);
        value_node = value_node->next;
    }
    if (flow == FLOW_ON)
        flow = run_body(run, node->child[2]);
    run->scope = outer;
    return flow;
}

/* ---- macros ---- */

static int make_macro(struct template_run *run, const struct template_node *node, struct template_value *out)
{
    struct template_macro *macro = arena_new(&run->arena, struct template_macro);
    if (!macro)
        return template_no_memory();
    *macro = (struct template_macro){ node, run->scope };
    *out = (struct template_value){ .kind = VALUE_MACRO, .macro = macro };
    return template_spend(run, sizeof *macro);
}

static int run_macro_statement(struct template_run *run, const struct template_node *node)
{
    struct template_value macro;
    int err = make_macro(run, node, &macro);
    return err < 0 ? err : template_map_put(run, run->scope->variables, &node->value, macro);
}

static int put_special(struct template_run *run, const char *name, struct template_value value)
{
    const struct template_value key = template_value_text(name, strlen(name));
    if (template_map_find(run->scope->variables.map, name, strlen(name)))
        return 0;                               /* a parameter of that name */
    return template_map_put(run, run->scope->variables, &key, value);
}

/* What the call gives beyond the parameters: varargs, kwargs and caller, where the macro asks for them. */
static int bind_rest(struct template_run *run, const struct template_node *node, const struct template_arguments *arguments,
                     size_t n_taken, struct template_value named)
{
    struct template_value rest, caller = template_value_undefined("caller", 6), kwargs;
    const struct template_list *list = arguments->list.list;
    int n_name = (int)MIN(node->value.text.n_bytes, (size_t)40), err;
    if ((err = template_new_list(run, LIST_TUPLE, &rest)) < 0 || (err = template_new_map(run, &kwargs)) < 0)
        return err;
    for (size_t i = n_taken; i < list->n && !err; i++)
        err = template_list_append(run, rest, list->items[i]);
    for (size_t i = 0; i < named.map->n && !err; i++)
        if (node->uses & MACRO_CALLER && template_text_equal(&named.map->entries[i].key, "caller"))
            caller = named.map->entries[i].value;
        else
            err = template_map_put(run, kwargs, &named.map->entries[i].key, named.map->entries[i].value);
    if (!err && rest.list->n && !(node->uses & MACRO_VARARGS))
        err = template_fail(run, "macro %.*s takes not so many arguments", n_name, node->value.text.bytes);
    if (!err && kwargs.map->n && !(node->uses & MACRO_KWARGS))
        err = template_fail(run, "macro %.*s takes no argument %.*s", n_name, node->value.text.bytes,
                            (int)MIN(kwargs.map->entries[0].key.text.n_bytes, (size_t)40), kwargs.map->entries[0].key.text.bytes);
    if (!err && node->uses & MACRO_CALLER)
        err = put_special(run, "caller", caller.kind == VALUE_NONE ? template_value_undefined("caller", 6) : caller);
    if (!err && node->uses & MACRO_VARARGS)
        err = put_special(run, "varargs", rest);
    if (!err && node->uses & MACRO_KWARGS)
        err = put_special(run, "kwargs", kwargs);
    return err;
}

/* Parameters by position, then by name, then their defaults, which see those before them. */
static int bind_parameters(struct template_run *run, const struct template_node *node, const struct template_arguments *arguments)
{
    struct template_value named, variables = run->scope->variables;
    const struct template_node *default_node = node->child[2];
    size_t n_params = 0, n_defaults = 0, i = 0;
    int err = template_new_map(run, &named);
    for (size_t k = 0; arguments->map.kind == VALUE_MAP && k < arguments->map.map->n && !err; k++)
        err = template_map_put(run, named, &arguments->map.map->entries[k].key, arguments->map.map->entries[k].value);
    for (const struct template_node *param = node->child[0]; param; param = param->next)
        n_params++;
    for (const struct template_node *n = default_node; n; n = n->next)
        n_defaults++;
    for (const struct template_node *param = node->child[0]; param && !err; param = param->next, i++) {
        struct template_value value = template_value_undefined(param->value.text.bytes, param->value.text.n_bytes);
        const struct template_node *own = i + n_defaults >= n_params ? default_node : NULL;
        struct template_map *map = named.map;
        struct template_value *found = template_map_find(map, param->value.text.bytes, param->value.text.n_bytes);
        if (own)
            default_node = own->next;
        if (i < arguments->list.list->n) {
            value = arguments->list.list->items[i];
        } else if (found) {
            size_t at = (size_t)(CONTAINER_OF(found, struct template_entry, value) - map->entries);
            value = *found;
            memmove(map->entries + at, map->entries + at + 1, (map->n - at - 1) * sizeof *map->entries);
            map->n--;
        } else if (own) {
            err = template_eval(run, own, &value);
        }
        if (!err)
            err = template_map_put(run, variables, &param->value, value);
    }
    return err < 0 ? err : bind_rest(run, node, arguments, MIN(n_params, arguments->list.list->n), named);
}

int template_run_macro(struct template_run *run, const struct template_macro *macro, const struct template_arguments *arguments,
                       struct template_value *out)
{
    struct template_scope *outer = run->scope;
    int err;
    if ((err = template_scope_enter(run, macro->scope)) == 0 && (err = bind_parameters(run, macro->node, arguments)) == 0)
        err = capture(run, macro->node->child[1], out);
    run->scope = outer;
    return err;
}

static int run_call_block(struct template_run *run, const struct template_node *node)
{
    static const struct template_value name = { .kind = VALUE_STRING, .text = { "caller", 6 } };
    const struct template_node *call = node->child[0];
    struct template_arguments arguments;
    struct template_value caller, callee, text;
    int err;
    if ((err = make_macro(run, node->child[1], &caller)) < 0 || (err = template_eval(run, call->child[0], &callee)) < 0 ||
        (err = template_gather(run, call->child[1], &arguments)) < 0)
        return err;
    run->line = call->line;
    if (arguments.map.kind == VALUE_ABSENT && (err = template_new_map(run, &arguments.map)) < 0)
        return err;
    if (template_map_find(arguments.map.map, "caller", 6))
        return template_fail(run, "the argument caller is given twice");
    if ((err = template_map_put(run, arguments.map, &name, caller)) < 0 || (err = template_call(run, &callee, &arguments, &text)) < 0)
        return err;
    return write_string(run, &text);
}

/* ---- if and for ---- */

static int run_if(struct template_run *run, const struct template_node *node)
{
    struct template_value condition;
    int err = template_eval(run, node->child[0], &condition);
    return err < 0 ? err : run_body(run, node->child[template_value_is_true(&condition) ? 1 : 2]);
}

/* The items for which the condition of a `for` holds; it sees the target but no loop variable. */
static int filter_items(struct template_run *run, const struct template_node *node, struct template_value *list)
{
    struct template_value some, condition;
    int err = template_new_list(run, LIST_LIST, &some);
    for (size_t i = 0; i < list->list->n && !err; i++)
        if ((err = assign(run, node->child[0], list->list->items[i])) == 0 &&
            (err = template_eval(run, node->child[2], &condition)) == 0 && template_value_is_true(&condition))
            err = template_list_append(run, some, list->list->items[i]);
    *list = some;
    return err;
}

/* One pass sees nothing of what another has set. */
static int run_pass(struct template_run *run, const struct template_node *node, struct template_loop *loop)
{
    static const struct template_value name = { .kind = VALUE_STRING, .text = { "loop", 4 } };
    struct template_value self = { .kind = VALUE_LOOP, .loop = loop };
    int err;
    run->scope->variables.map->n = 0;
    if ((err = template_map_put(run, run->scope->variables, &name, self)) < 0 ||
        (err = assign(run, node->child[0], loop->list->items[loop->index0])) < 0)
        return err;
    return run_body(run, node->child[3]);
}

/* The loop over what was evaluated; `depth0` counts loops that call themselves. */
static int run_loop(struct template_run *run, const struct template_node *node, struct template_value items, struct template_scope *outer,
                    unsigned depth0)
{
    struct template_scope *caller = run->scope;
    struct template_loop *loop = arena_new(&run->arena, struct template_loop);  /* a namespace may keep it */
    int err = loop ? template_spend(run, sizeof *loop) : template_no_memory();
    if (err < 0 || (err = template_iterate(run, &items, &items)) < 0 || (err = template_scope_enter(run, outer)) < 0 ||
        (node->child[2] && (err = filter_items(run, node, &items)) < 0))
        goto done;
    *loop = (struct template_loop){ .list = items.list, .depth0 = depth0, .recursive = node->value.flag ? node : NULL, .outer = outer };
    bool whole = false;
    for (; loop->index0 < items.list->n && err >= 0 && err != FLOW_BREAK; loop->index0++) {
        err = run_pass(run, node, loop);
        whole |= err == FLOW_ON;
    }
    loop->index0 -= loop->index0 > 0;
    err = MIN(err, 0);                          /* a break or continue of this loop's own */
    run->scope->variables.map->n = 0;
    if (!err && !whole)                         /* jinja2's `else` asks whether a pass came to its end, not whether there was one */
        err = run_body(run, node->child[4]);
done:
    run->scope = caller;
    return err;
}

static int run_for(struct template_run *run, const struct template_node *node)
{
    struct template_value items;
    int err = template_eval(run, node->child[1], &items);
    return err < 0 ? err : run_loop(run, node, items, run->scope, 0);
}

int template_run_loop(struct template_run *run, const struct template_loop *loop, const struct template_value *items,
                      struct template_value *out)
{
    struct buffer built = { 0 }, *outer = run->out;
    size_t out_start = run->out_start;
    run->out = &built;
    run->out_start = 0;
    int err = run_loop(run, loop->recursive, *items, loop->outer, loop->depth0 + 1);
    run->out = outer;
    run->out_start = out_start;
    return template_take_text(run, &built, err < 0 ? err : 0, out);
}

/* ---- statements ---- */

static int run_one(struct template_run *run, const struct template_node *node)
{
    switch (node->kind) {
    case NODE_DATA:       return write_text(run, &node->value);
    case NODE_PRINT:      return run_print(run, node);
    case NODE_IF:         return run_if(run, node);
    case NODE_FOR:        return run_for(run, node);
    case NODE_SET:        return run_set(run, node);
    case NODE_SET_BLOCK:  return run_set_block(run, node);
    case NODE_WITH:       return run_with(run, node);
    case NODE_CAPTURE:    return run_capture(run, node);
    case NODE_MACRO:      return run_macro_statement(run, node);
    case NODE_CALL_BLOCK: return run_call_block(run, node);
    case NODE_BREAK:      return FLOW_BREAK;
    case NODE_CONTINUE:   return FLOW_CONTINUE;
    default:              return template_fail(run, "a value where a statement belongs");
    }
}

static int run_statement(struct template_run *run, const struct template_node *node)
{
    int err;
    run->line = node->line;
    if ((err = template_spend(run, 0)) < 0)
        return err;
    if (run->depth >= TEMPLATE_MAX_RECURSION)
        return template_fail(run, "macros or loops call themselves too deep");
    run->depth++;
    err = run_one(run, node);
    run->depth--;
    return err;
}

static int run_body(struct template_run *run, const struct template_node *first)
{
    int flow = FLOW_ON;
    for (const struct template_node *node = first; node && flow == FLOW_ON; node = node->next)
        flow = run_statement(run, node);
    return flow;
}

int template_render(const struct template *template, struct template_value context, const struct tm *now, struct buffer *out)
{
    struct template_scope outer = { context, NULL };
    struct template_run run = { .out = out, .out_start = out->size, .scope = &outer, .now = now };
    int err = template_scope_enter(&run, &outer);
    if (err == 0)
        err = run_body(&run, template->first);
    if (err < 0 && out->bytes) {
        out->size = run.out_start;              /* all of a prompt or nothing of it */
        out->bytes[out->size] = 0;
    }
    arena_close(&run.arena);
    return err;
}
