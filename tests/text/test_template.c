#include "base/buffer.h"
#include "base/error.h"
#include "tests/check.h"
#include "tests/text/golden.h"
#include "text/template.h"
#include "text/template_node.h"

#include <string.h>
#include <time.h>

/* What make_template_goldens.py takes for now: Friday. */
static const struct tm fixed_now = { .tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_hour = 15, .tm_min = 4, .tm_sec = 5, .tm_wday = 5, .tm_yday = 207 };

/* Borrows the strings of the JSON. */
static struct template_value value_of(struct arena *arena, json_t *json)
{
    struct template_value value = { .kind = VALUE_NONE };
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(json)) {
    case JSON_STRING:  return template_value_text(json_string_value(json), json_string_length(json));
    case JSON_INTEGER: return template_value_int(json_integer_value(json));
    case JSON_REAL:    return template_value_float(json_real_value(json));
    case JSON_TRUE:    return template_value_bool(true);
    case JSON_FALSE:   return template_value_bool(false);
    case JSON_ARRAY:
        value = template_value_list(arena, false);
        json_array_foreach(json, i, item)
            check(template_list_add(arena, value, value_of(arena, item)));
        return value;
    case JSON_OBJECT:
        value = template_value_map(arena);
        json_object_foreach(json, key, item)
            check(template_map_set(arena, value, key, strlen(key), value_of(arena, item)));
        return value;
    default:
        return value;
    }
}

/* 0 with the text in `out`, or the error of opening or rendering. */
static int render(const char *source, size_t n_bytes, struct template_value context, struct buffer *out)
{
    struct template *template = NULL;
    int err = template_open(&template, source, n_bytes);
    if (err == 0)
        err = template_render(template, context, &fixed_now, out);
    template_close(template);
    return err;
}

static void check_case(json_t *golden, struct template_value context)
{
    json_t *source = json_object_get(golden, "template"), *text = json_object_get(golden, "text");
    const char *error = json_string_value(json_object_get(golden, "error"));
    struct buffer out = { 0 };
    buffer_add_text(&out, "");
    int err = render(json_string_value(source), json_string_length(source), context, &out);
    if (text) {
        if (!check_int(err, 0))
            printf("  %s\n  %s\n", json_string_value(source), error_text());
        else if (!check_text(out.bytes, json_string_value(text)))
            printf("  %s\n", json_string_value(source));
    } else if (!strcmp(error, "raised")) {
        check_int(err, ERR_USAGE);
        check_text(error_text(), json_string_value(json_object_get(golden, "message")));
    } else {
        check(err == ERR_BAD_FILE || err == ERR_FAILED);
        if (!check(strstr(error_text(), "chat template, line ") != NULL))
            printf("  %s\n  %s\n", json_string_value(source), out.bytes);
        check_int(out.size, 0);
    }
    buffer_release(&out);
}

static void test_goldens(void)
{
    json_t *golden = golden_load("templates.json"), *contexts = json_object_get(golden, "contexts"), *one;
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        struct arena arena = { 0 };
        check_begin("jinja2 case %zu: %.60s", i, json_string_value(json_object_get(one, "template")));
        json_t *context = json_array_get(contexts, (size_t)json_integer_value(json_object_get(one, "context")));
        check_case(one, value_of(&arena, context));
        arena_close(&arena);
    }
    json_decref(golden);
}

/* ---- chats with the templates of tests/text/templates ---- */

static void read_template(const char *name, struct buffer *out)
{
    char path[256], bytes[4096];
    size_t n;
    snprintf(path, sizeof path, "tests/text/templates/%s.jinja", name);
    FILE *file = fopen(path, "r");
    if (!check(file != NULL))
        return;
    while ((n = fread(bytes, 1, sizeof bytes, file)))
        buffer_add(out, bytes, n);
    fclose(file);
}

/* The options of a chat; what is none of transformers' own goes to the variables. */
static struct chat_options options_of(struct arena *arena, json_t *json, struct template_value values[3])
{
    struct chat_options options = { .bos_token = "<s>", .eos_token = "</s>", .now = &fixed_now, .variables = &values[2] };
    const char *key;
    json_t *item;
    values[2] = template_value_map(arena);
    json_object_foreach(json, key, item)
        if (!strcmp(key, "add_generation_prompt")) {
            options.add_generation_prompt = json_is_true(item);
        } else if (!strcmp(key, "tools")) {
            values[0] = value_of(arena, item);
            options.tools = &values[0];
        } else if (!strcmp(key, "documents")) {
            values[1] = value_of(arena, item);
            options.documents = &values[1];
        } else {
            check(template_map_set(arena, values[2], key, strlen(key), value_of(arena, item)));
        }
    return options;
}

/* CT-04, CT-06, CT-07, CT-08, CT-09: messages as an API has them, with tools, calls whose content is null or left out, and
 * content as parts, render as transformers does what this makes of them. */
static void test_families(void)
{
    json_t *golden = golden_load("templates.json"), *one;
    size_t i;
    json_array_foreach(json_object_get(golden, "chats"), i, one) {
        struct arena arena = { 0 };
        struct buffer source = { 0 }, out = { 0 };
        struct template *template = NULL;
        struct template_value values[3], messages = value_of(&arena, json_object_get(one, "messages"));
        const struct chat_options options = options_of(&arena, json_object_get(one, "options"), values);
        const char *file = json_string_value(json_object_get(one, "file")), *error = json_string_value(json_object_get(one, "error"));
        const char *text = json_string_value(json_object_get(one, "text"));
        check_begin("CT-04 chat %zu, %s", i, file);
        read_template(file, &source);
        buffer_add_text(&out, "");
        if (!check_int(template_open(&template, source.bytes, source.size), 0))
            printf("  %s\n", error_text());
        int err = template ? template_render_messages(template, &messages, &options, &out) : 0;
        if (text && !check_int(err, 0))
            printf("  %s\n", error_text());
        else if (text)
            check_text(out.bytes, text);
        else if (!strcmp(error, "raised"))
            check(err == ERR_USAGE && !strcmp(error_text(), json_string_value(json_object_get(one, "message"))));
        else
            check_int(err, ERR_FAILED);
        template_close(template);
        buffer_release(&source);
        buffer_release(&out);
        arena_close(&arena);
    }
    json_decref(golden);
}

/* What is wrong, and on which line it is found. */
static const struct { const char *name, *source, *want; } bad_rows[] = {
    { "line of a filter",      "a\n\n{{ x | nosuch }}",                        "line 3: the filter \"nosuch\" is not supported" },
    { "line of a function",    "{# \n #}\n{{ lipsum() }}",                    "line 3: the function \"lipsum\" is not supported" },
    { "CT-04 an unknown call", "\n{% if x %}{{ nosuch(1) }}{% endif %}",      "line 2: the function \"nosuch\" is not supported" },
    { "CT-04 line of a method", "{{ x.title() }}\n{{ x.expandtabs() }}",      "line 2: the method \"expandtabs\" is not supported" },
    { "line of a test",        "{% if x is\n escaped %}{% endif %}",          "line 2: the test \"escaped\" is not supported" },
    { "CT-04 line of a statement", "x\r\ny\r\n{% include 'x' %}",            "line 3: the statement \"include\" is not supported here" },
    { "import",                "{% import 'x' as y %}",                        "line 1: the statement \"import\" is not supported here" },
    { "extends",               "\n{% extends 'x' %}",                          "line 2: the statement \"extends\" is not supported here" },
    { "a number too large",    "{{ 99999999999999999999 }}",                   "line 1: a number that does not fit" },
    { "a macro without an end", "{% macro f() %}",                             "a block without its {% endmacro %}" },
    { "break in a macro",      "{% for x in y %}{% macro f() %}\n{% break %}{% endmacro %}{% endfor %}", "line 2: break or continue outside" },
    { "raw without an end",    "x\n{% raw %}{{",                               "line 2: a raw block without an end" },
    { "loop is set in a loop", "{% for x in y %}\n{% set loop = 1 %}{% endfor %}", "line 2: the name \"loop\" can not be set" },
    { "a missing end",         "{% for x in y %}\n{{ x }}\n",                  "without its {% else %}" },
    { "an unknown argument",   "{{ x | trim(side=1) }}",                       "trim() has no such argument" },
    { "too many arguments",    "{{ x | trim(1, 2) }}",                         "trim() has no such argument" },
    { "an argument twice",     "{{ x | trim(1, chars=2) }}",                   "trim() has the argument chars twice" },
    { "a missing argument",    "{{ x.startswith() }}",                         "startswith() lacks the argument prefix" },
};

static void test_bad_templates(void)
{
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        struct template *template = NULL;
        check_begin("bad template: %s", bad_rows[i].name);
        check_int(template_open(&template, bad_rows[i].source, strlen(bad_rows[i].source)), ERR_BAD_FILE);
        if (!check(strstr(error_text(), bad_rows[i].want) != NULL))
            printf("  %s\n", error_text());
        check(!template);
    }
}

/* Templates that want too much: an error, soon, and no crash.  `times` copies of `unit` between `before` and `after`. */
static const struct { const char *name, *before, *unit; size_t times; const char *after; int want; } greedy_rows[] = {
    { "brackets 20 deep",     "{{ ", "(", 20, "1 }}",                                              ERR_BAD_FILE },
    { "brackets for ever",    "{{ ", "(", 200000, "1 }}",                                          ERR_BAD_FILE },
    { "lists in lists",       "{{ ", "[", 200000, "1 }}",                                          ERR_BAD_FILE },
    { "not not not",          "{{ ", "not ", 100000, "1 }}",                                       ERR_BAD_FILE },
    { "signs",                "{{ ", "- ", 100000, "1 }}",                                         ERR_BAD_FILE },
    { "a long sum",           "{{ 1", " + 1", 100000, " }}",                                       ERR_BAD_FILE },
    { "a sum of 200",         "{{ 1", " + 1", 200, " }}",                                          0 },
    { "attributes",           "{{ a", ".a", 100000, " }}",                                         ERR_BAD_FILE },
    { "filters",              "{{ a", "|trim", 100000, " }}",                                      ERR_BAD_FILE },
    { "if in if",             "", "{% if 1 %}", 100000, "",                                        ERR_BAD_FILE },
    { "for in for",           "", "{% for x in y %}", 100000, "",                                  ERR_BAD_FILE },
    { "elif for ever",        "{% if 0 %}", "{% elif 0 %}", 100000, "{% endif %}",                 ERR_BAD_FILE },
    { "if else if else",      "{{ 1", " if 1 else 1", 100000, " }}",                               ERR_BAD_FILE },
    { "many statements",      "", "{% set x = 1 %}\n", 50000, "{{ x }}",                           0 },
    { "loops in loops",       "", "{% for x in range(100) %}", 8, "{% endfor %}{% endfor %}{% endfor %}{% endfor %}"
                              "{% endfor %}{% endfor %}{% endfor %}{% endfor %}",                  ERR_FAILED },
    { "a range without end",  "{{ range(", "9", 18, ") | length }}",                               ERR_FAILED },
    { "a string without end", "{% set n = namespace(s='abc') %}{% for x in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}", "", 0, "", ERR_FAILED },
    { "a repeated string",    "{{ 'abc' * ", "9", 18, " }}",                                       ERR_FAILED },
    { "too long a prompt",    "{% for x in range(99) %}{{ 'abc' * 999999 }}{% endfor %}", "", 0, "", ERR_FAILED },
    { "a list in itself",     "{% set n = namespace(l=[]) %}{% for x in range(199) %}{% set n.l = [n.l, n.l] %}{% endfor %}", "", 0, "", ERR_FAILED },
    { "a doubled list as JSON", "{% set n = namespace(l=[1]) %}{% for x in range(50) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l | tojson }}", "", 0, "", ERR_FAILED },
    { "a macro that calls itself", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "", 0, "",  ERR_FAILED },
    { "a macro that doubles", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% else %}x{% endif %}{% endmacro %}{{ f(60) }}", "", 0, "", ERR_FAILED },
    { "a caller that calls",  "{% macro f() %}{{ caller() }}{% endmacro %}", "{% call f() %}", 60, "", ERR_BAD_FILE },
    { "macros in macros",     "", "{% macro f() %}", 100000, "",                                   ERR_BAD_FILE },
    { "a loop in itself",     "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "", 0, "",  ERR_FAILED },
    { "a set block that grows", "{% set n = namespace(s='abc') %}{% for x in range(99) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}", "", 0, "", ERR_FAILED },
    { "a namespace in itself", "{% set n = namespace() %}{% set n.n = n %}{{ n }}", "", 0, "",     ERR_FAILED },
    { "batches of batches",   "{% set n = namespace(l=[1]) %}{% for x in range(199) %}{% set n.l = n.l | batch(1) | list %}{% endfor %}{{ n.l }}", "", 0, "", ERR_FAILED },
    { "a wide format",        "{{ '{:999999}' * 999 }}{{ ('{0:999999}' * 999).format(1) }}", "", 0, "", ERR_FAILED },
    { "a wide percent",       "{{ ('%999999d' * 999) % ((1,) * 999) }}", "", 0, "",                ERR_FAILED },
    { "a far indent",         "{{ 'a\nb' | indent(999999999999) }}", "", 0, "",                    ERR_FAILED },
    { "a long filling",       "{{ 'a'.ljust(999999999999) }}", "", 0, "",                          ERR_FAILED },
    { "a slow search",        "{{ ('a' * 9999999).rfind('b' * 4999999) }}", "", 0, "",             ERR_FAILED },
    { "a slow strip",         "{{ ('a' * 9999999).strip('b' * 999999 ~ 'a') }}", "", 0, "",        ERR_FAILED },
    { "a slow sort",          "{% set n = namespace(l=range(99999) | list) %}{% for x in range(99) %}{% set n.l = n.l | sort(reverse=true) %}{% endfor %}", "", 0, "", ERR_FAILED },
    { "unique of many",       "{{ range(99999) | unique | list | length }}", "", 0, "",            ERR_FAILED },
    { "a great power",        "{{ 10 ** 99999999 }}", "", 0, "",                                   ERR_FAILED },
    { "two doubled lists",    "{% set n = namespace(l=[1], m=[1]) %}{% for x in range(50) %}{% set n.l = [n.l, n.l] %}{% set n.m = [n.m, n.m] %}"
                              "{% endfor %}{{ n.l == n.m }}", "", 0, "",                           ERR_FAILED },
};

static void test_greedy_templates(void)
{
    for (size_t i = 0; i < COUNT_OF(greedy_rows); i++) {
        struct buffer source = { 0 }, out = { 0 };
        struct arena arena = { 0 };
        struct timespec start, end;
        check_begin("greedy template: %s", greedy_rows[i].name);
        buffer_add_text(&source, greedy_rows[i].before);
        for (size_t k = 0; k < greedy_rows[i].times; k++)
            buffer_add_text(&source, greedy_rows[i].unit);
        buffer_add_text(&source, greedy_rows[i].after);
        clock_gettime(CLOCK_MONOTONIC, &start);
        if (!check_int(render(source.bytes, source.size, template_value_map(&arena), &out), greedy_rows[i].want))
            printf("  %s\n", error_text());
        clock_gettime(CLOCK_MONOTONIC, &end);
        if (getenv("TEST_TIMES"))
            printf("%s: %.3f s\n", greedy_rows[i].name, (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
        arena_close(&arena);
        buffer_release(&source);
        buffer_release(&out);
    }
}

/* The public call: what it shows to a template, and that it appends. */
static void test_chat(void)
{
    static const char source[] =
        "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}|{{ m.content }}]{% endfor %}"
        "{% if tools is none and documents is none %}-{% endif %}{% if add_generation_prompt %}{{ eos_token }}>{% endif %}";
    static const struct chat_message messages[] = { { "system", "a" }, { "user", "b{{ x }}" } };
    struct chat_options options = { .add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>" };
    struct template *template = NULL;
    struct buffer out = { 0 };

    check_begin("a chat");
    buffer_add_text(&out, "before:");
    check_int(template_open(&template, source, sizeof source - 1), 0);
    check_int(template_render_chat(template, messages, 2, &options, &out), 0);
    check_text(out.bytes, "before:<s>[system|a][user|b{{ x }}]-</s>>");
    out.size = 7;
    options = (struct chat_options){ .add_generation_prompt = false };
    check_int(template_render_chat(template, messages, 0, &options, &out), 0);
    check_text(out.bytes, "before:-");
    template_close(template);

    check_begin("a chat that fails leaves what was there");
    check_int(template_open(&template, "x{{ raise_exception('No system role.') }}", 41), 0);
    check_int(template_render_chat(template, messages, 2, &options, &out), ERR_USAGE);
    check_text(error_text(), "No system role.");
    check_text(out.bytes, "before:-");
    template_close(template);
    buffer_release(&out);
}

int main(void)
{
    test_goldens();
    test_families();
    test_bad_templates();
    test_greedy_templates();
    test_chat();
    return check_done();
}
