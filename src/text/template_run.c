/* template_run.c: runs the statements of a template, which write to `out`. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_node.h"

/* What a statement says to the loop around it; errors are below 0. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static int run_body(struct template_run *run, const struct template_node *first);

static int write_text(struct template_run *run, const struct template_value *text)
{
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

static int run_if(struct template_run *run, const struct template_node *node)
{
    struct template_value condition;
    int err = template_eval(run, node->child[0], &condition);
    return err < 0 ? err : run_body(run, node->child[template_value_is_true(&condition) ? 1 : 2]);
}

static int scope_enter(struct template_run *run, struct template_scope *scope)
{
    *scope = (struct template_scope){ template_value_map(&run->arena), run->scope };
    if (scope->variables.kind == VALUE_ABSENT)
        return template_no_memory();
    run->scope = scope;
    return template_spend(run, sizeof(struct template_map));
}

/* The items for which the condition of a `for` holds; it sees the target but no loop variable. */
static int filter_items(struct template_run *run, const struct template_node *node, struct template_value *list)
{
    struct template_value some, condition;
    int err = template_new_list(run, false, &some);
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

static int run_for(struct template_run *run, const struct template_node *node)
{
    struct template_scope scope, *outer = run->scope;
    struct template_value items;
    struct template_loop *loop = arena_new(&run->arena, struct template_loop);  /* a namespace may keep it */
    int err;
    if (!loop)
        return template_no_memory();
    if ((err = template_eval(run, node->child[1], &items)) < 0 || (err = template_iterate(run, &items, &items)) < 0 ||
        (err = scope_enter(run, &scope)) < 0 || (node->child[2] && (err = filter_items(run, node, &items)) < 0))
        goto done;
    loop->list = items.list;
    scope.variables.map->n = 0;
    if (!items.list->n)
        err = run_body(run, node->child[4]);
    for (; loop->index0 < items.list->n && err >= 0 && err != FLOW_BREAK; loop->index0++)
        err = run_pass(run, node, loop);
    loop->index0 -= loop->index0 == items.list->n && items.list->n;
    if (items.list->n && err > 0)
        err = 0;                                /* a break or continue of this loop's own */
done:
    run->scope = outer;
    return err;
}

static int run_statement(struct template_run *run, const struct template_node *node)
{
    int err;
    run->line = node->line;
    if ((err = template_spend(run, 0)) < 0)
        return err;
    switch (node->kind) {
    case NODE_DATA:     return write_text(run, &node->value);
    case NODE_PRINT:    return run_print(run, node);
    case NODE_IF:       return run_if(run, node);
    case NODE_FOR:      return run_for(run, node);
    case NODE_SET:      return run_set(run, node);
    case NODE_BREAK:    return FLOW_BREAK;
    case NODE_CONTINUE: return FLOW_CONTINUE;
    default:            return template_fail(run, "a value where a statement belongs");
    }
}

static int run_body(struct template_run *run, const struct template_node *first)
{
    int flow = FLOW_ON;
    for (const struct template_node *node = first; node && flow == FLOW_ON; node = node->next)
        flow = run_statement(run, node);
    return flow;
}

int template_render(const struct template *template, struct template_value context, struct buffer *out)
{
    struct template_scope outer = { context, NULL }, scope;
    struct template_run run = { .out = out, .out_start = out->size, .scope = &outer };
    int err = scope_enter(&run, &scope);
    if (err == 0)
        err = run_body(&run, template->first);
    if (err < 0 && out->bytes) {
        out->size = run.out_start;              /* all of a prompt or nothing of it */
        out->bytes[out->size] = 0;
    }
    arena_close(&run.arena);
    return err;
}
