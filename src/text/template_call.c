/* template_call.c: gathers the arguments of a call and puts them where a builtin or a macro wants them. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"

#include <string.h>

static int add_named(struct template_run *run, struct template_arguments *to, const struct template_value *name,
                     struct template_value value)
{
    int err = to->map.kind == VALUE_ABSENT ? template_new_map(run, &to->map) : 0;
    if (err < 0)
        return err;
    if (name->kind != VALUE_STRING)
        return template_fail(run, "the name of an argument must be a string");
    if (template_map_find(to->map.map, name->text.bytes, name->text.n_bytes))
        return template_fail(run, "the argument %.*s is given twice", (int)MIN(name->text.n_bytes, (size_t)40), name->text.bytes);
    return template_map_put(run, to->map, name, value);
}

static int add_all(struct template_run *run, struct template_arguments *to, int64_t n_stars, const struct template_value *of)
{
    struct template_value list;
    int err = 0;
    if (n_stars == 1) {
        err = template_iterate(run, of, &list);
        for (size_t i = 0; !err && i < list.list->n; i++)
            err = template_list_append(run, to->list, list.list->items[i]);
        return err;
    }
    if (of->kind != VALUE_MAP)
        return template_fail(run, "** wants a dict, not a value of type %s", template_kind_name(of->kind));
    for (size_t i = 0; !err && i < of->map->n; i++)
        err = add_named(run, to, &of->map->entries[i].key, of->map->entries[i].value);
    return err;
}

int template_gather(struct template_run *run, const struct template_node *first, struct template_arguments *arguments)
{
    int err = template_new_list(run, LIST_TUPLE, &arguments->list);
    arguments->map = (struct template_value){ .kind = VALUE_ABSENT };
    for (const struct template_node *n = first; n && !err; n = n->next) {
        struct template_value value;
        bool wrapped = n->kind == NODE_KEYWORD || n->kind == NODE_STAR;
        if ((err = template_eval(run, wrapped ? n->child[0] : n, &value)) < 0)
            break;
        if (n->kind == NODE_KEYWORD)
            err = add_named(run, arguments, &n->value, value);
        else if (n->kind == NODE_STAR)
            err = add_all(run, arguments, n->value.number, &value);
        else
            err = template_list_append(run, arguments->list, value);
    }
    return err;
}

static const char *param_name(const char *param)
{
    return param + (*param == '/');
}

/* Puts the arguments in the order of the builtin's params. */
static int place(struct template_run *run, const struct template_builtin *builtin, const struct template_arguments *arguments,
                 struct template_value *slots)
{
    size_t n = arguments->list.list->n;
    if (n > TEMPLATE_MAX_PARAMS || (n && !builtin->params[n - 1]))
        return template_fail(run, "%s() has no such argument", builtin->name);
    for (size_t i = 0; i < n; i++)
        slots[i] = arguments->list.list->items[i];
    for (size_t i = 0; arguments->map.kind == VALUE_MAP && i < arguments->map.map->n; i++) {
        const struct template_entry *entry = &arguments->map.map->entries[i];
        size_t k = 0;
        while (k < TEMPLATE_MAX_PARAMS && builtin->params[k] && !template_text_equal(&entry->key, builtin->params[k]))
            k++;
        if (k == TEMPLATE_MAX_PARAMS || !builtin->params[k])
            return template_fail(run, "%s() has no such argument", builtin->name);
        if (slots[k].kind != VALUE_ABSENT)
            return template_fail(run, "%s() has the argument %s twice", builtin->name, param_name(builtin->params[k]));
        slots[k] = entry->value;
    }
    for (size_t i = 0; i < builtin->n_required; i++)
        if (slots[i].kind == VALUE_ABSENT)
            return template_fail(run, "%s() lacks the argument %s", builtin->name, param_name(builtin->params[i]));
    return 0;
}

int template_call_builtin(struct template_run *run, const struct template_builtin *builtin, const struct template_value *subject,
                          const struct template_arguments *arguments, struct template_value *out)
{
    struct template_value slots[TEMPLATE_MAX_ARGUMENTS] = { 0 };
    size_t first = subject != NULL;
    int err = 0;
    if (subject)
        slots[0] = *subject;
    if (builtin->params[0] && builtin->params[0][0] == '*') {
        slots[first] = arguments->list;
        slots[first + 1] = arguments->map;
    } else {
        err = place(run, builtin, arguments, slots + first);
    }
    return err < 0 ? err : builtin->run(run, slots, out);
}

int template_call(struct template_run *run, const struct template_value *callee, const struct template_arguments *arguments,
                  struct template_value *out)
{
    const struct template_function *function = callee->function;
    switch (callee->kind) {
    case VALUE_FUNCTION:
        if (function->self.kind == VALUE_STRING && function->self.markup)
            return template_fail(run, "methods of text that was escaped or is safe are not supported");
        return template_call_builtin(run, function->builtin, function->self.kind == VALUE_ABSENT ? NULL : &function->self, arguments, out);
    case VALUE_MACRO:
        return template_run_macro(run, callee->macro, arguments, out);
    case VALUE_LOOP:
        if (!callee->loop->recursive)
            return template_fail(run, "a loop without \"recursive\" is called");
        if (arguments->list.list->n != 1 || arguments->map.kind != VALUE_ABSENT)
            return template_fail(run, "a loop is called with one argument");
        return template_run_loop(run, callee->loop, &arguments->list.list->items[0], out);
    case VALUE_UNDEFINED:
        return template_undefined(run, callee);
    default:
        return template_fail(run, "a value of type %s can not be called", template_kind_name(callee->kind));
    }
}

/* What filters do with text that was escaped would have to be known of each: few are. */
static bool takes_markup(const struct template_builtin *builtin)
{
    static const char *const names[] = { "safe", "length", "count", "default", "d", "tojson", "join", "list" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(builtin->name, names[i]))
            return true;
    return builtin == template_builtin_find(TEMPLATE_TEST, builtin->name, strlen(builtin->name));
}

int template_apply(struct template_run *run, const struct template_node *filter, const struct template_value *subject,
                   struct template_value *out)
{
    struct template_arguments arguments;
    int err = template_gather(run, filter->child[1], &arguments);
    run->line = filter->line;
    if (err == 0 && subject->kind == VALUE_STRING && subject->markup && !takes_markup(filter->builtin))
        err = template_fail(run, "%s of text that was escaped or is safe is not supported", filter->builtin->name);
    return err < 0 ? err : template_call_builtin(run, filter->builtin, subject, &arguments, out);
}
