/* template_node.h: a parsed template: nodes, and the tables of what can be called.
 *
 *   lexer (template_lex.c) -> parser (template_parse.c, template_statement.c) -> nodes -> statements (template_run.c)
 *                                   |                                                       |
 *                                   |              expressions (template_eval.c), calls (template_call.c), template_operator.c
 *                                   |                                                       |
 *                                   +---- template_builtin.c: the tables of what can be called, and functions; template_filter.c,
 *                                         template_method.c, template_test.c, template_sequence.c, template_json.c, template_format.c
 *
 * To teach the subset a filter, test, method or function: a row in a table of template_builtin.c.  To teach it a
 * statement or an operator: a node kind here, a function in the parser and one in the evaluator. */
#ifndef STOA_TEXT_TEMPLATE_NODE_H
#define STOA_TEXT_TEMPLATE_NODE_H

#include "text/template.h"
#include "text/template_value.h"

/*   expressions      value          child[0]        child[1]      child[2]      child[3]         child[4]       */
enum template_node_kind {
    NODE_LITERAL,  /* the value                                                                                  */
    NODE_NAME,     /* the name                                                                                   */
    NODE_LIST,     /* flag: tuple    first item, along `next`                                                    */
    NODE_MAP,      /*                first key, value, key, value ... along `next`                               */
    NODE_ATTRIBUTE,/* its name       of what                                                                     */
    NODE_INDEX,    /*                of what         index                                                       */
    NODE_SLICE,    /*                of what         start*        stop*         step*                           */
    NODE_NOT,      /*                operand                                                                     */
    NODE_SIGN,     /* 1 or -1        operand                                                                     */
    NODE_AND,      /*                left            right                                                       */
    NODE_OR,       /*                left            right                                                       */
    NODE_IF_ELSE,  /*                condition       then          else*                                         */
    NODE_BINARY,   /* `op`           left            right                                                       */
    NODE_COMPARE,  /*                left            first NODE_COMPARED, along `next`                           */
    NODE_COMPARED, /* `op`           right                                                                       */
    NODE_FILTER,   /* `builtin`      of what*        first argument, along `next`; tests too                     */
    NODE_CALL,     /* flag: caller   callee          first argument, along `next`                                */
    NODE_KEYWORD,  /* its name       the value of an argument                                                    */
    NODE_STAR,     /* how many stars a list or dict of arguments                                                 */
    /* statements, which follow each other along `next` */
    NODE_DATA,     /* the text                                                                                   */
    NODE_PRINT,    /*                expression                                                                  */
    NODE_IF,       /*                condition       then*         else*                                         */
    NODE_FOR,      /* flag: recursive target         iterable      condition*    body*            else*          */
    NODE_SET,      /*                target          expression                                                  */
    NODE_SET_BLOCK,/*                target          body*         filter*                                       */
    NODE_WITH,     /*                first target    first value   body*                                         */
    NODE_CAPTURE,  /*                body*           filter*                                                     */
    NODE_MACRO,    /* the name       first parameter body*         first default*                                */
    NODE_CALL_BLOCK,/*               the call        the NODE_MACRO that is its caller                           */
    NODE_BREAK,
    NODE_CONTINUE,
};                 /* (* may be NULL; a target is a NODE_NAME, a NODE_LIST of targets, or an attribute of a name)
                    * A filter without a child[0] is applied to what was captured. */

#define TEMPLATE_MAX_CHILDREN 5

enum template_op {
    TEMPLATE_ADD, TEMPLATE_SUBTRACT, TEMPLATE_MULTIPLY, TEMPLATE_DIVIDE, TEMPLATE_FLOOR_DIVIDE, TEMPLATE_MODULO,
    TEMPLATE_POWER, TEMPLATE_CONCATENATE,
    TEMPLATE_EQUAL, TEMPLATE_NOT_EQUAL, TEMPLATE_LESS, TEMPLATE_LESS_EQUAL, TEMPLATE_GREATER, TEMPLATE_GREATER_EQUAL,
    TEMPLATE_IN, TEMPLATE_NOT_IN,
};

/* What a macro's body asks for beside its parameters. */
enum template_macro_uses { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

struct template_builtin;
struct template_node {
    enum template_node_kind kind;
    enum template_op op;
    unsigned uses;                          /* of a NODE_MACRO */
    uint32_t line;
    uint32_t depth;                         /* 1 + the deepest child's: bounds the evaluator's recursion */
    struct template_value value;
    const struct template_builtin *builtin;
    struct template_node *child[TEMPLATE_MAX_CHILDREN], *next;
};

struct template {
    struct arena arena;                     /* the source and the nodes */
    struct template_node *first;
};

/* 0, or ERR_BAD_FILE with the line. */
int template_parse(struct template *template, const char *source, size_t n_bytes);

/* Variables: of the whole template, or of one pass of a loop. */
struct template_scope {
    struct template_value variables;            /* a map */
    struct template_scope *outer;
};

/* One rendering, while it runs. */
struct template_run {
    struct arena arena;                     /* what expressions make */
    struct buffer *out;                     /* of the prompt, or what a block is captured in */
    size_t out_start;                       /* where this rendering began in `out` */
    struct template_scope *scope;
    const struct tm *now;                   /* NULL: what the clock says */
    const struct template_value *captured;  /* what a filter without a subject is applied to */
    uint32_t line;                          /* of the node at work, for errors */
    unsigned depth;                         /* of nodes in nodes, through macros */
    uint64_t work;                          /* what was spent so far, see template_spend() */
};

#define TEMPLATE_STEP_COST 16               /* one step costs as much as so many bytes ... */
#define TEMPLATE_MAX_WORK (10000000ull * TEMPLATE_STEP_COST)    /* ... of ten million steps, or 160 MB */
/* Every step and every byte made or looked at is paid for, so that a template can neither run for ever nor take all
 * memory; 0 or an error. */
int template_spend(struct template_run *run, size_t n_bytes);
/* Memory for a result, paid for.  NULL with the error set. */
char *template_alloc(struct template_run *run, size_t n_bytes);
/* ERR_FAILED with "chat template, line N: ...". */
int template_fail(struct template_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
int template_undefined(struct template_run *run, const struct template_value *value);    /* that it is */
int template_no_memory(void);
/* An empty list, and one more item on a list; paid for. */
int template_new_list(struct template_run *run, enum template_list_type type, struct template_value *out);
int template_new_map(struct template_run *run, struct template_value *out);
int template_list_append(struct template_run *run, struct template_value list, struct template_value item);
int template_map_put(struct template_run *run, struct template_value map, const struct template_value *key,
                     struct template_value item);
/* A copy of the bytes as a string. */
int template_new_text(struct template_run *run, const char *bytes, size_t n_bytes, struct template_value *out);
/* What was built in a buffer as a string; the buffer is released.  Gives `err` when that is one. */
int template_take_text(struct template_run *run, struct buffer *built, int err, struct template_value *out);
/* What a `for` walks, as a list that may be the value's own: a map's keys, a string's characters; undefined is empty.
 * An iterator is used up by it. */
int template_iterate(struct template_run *run, const struct template_value *value, struct template_value *list);
/* Python's len(), or an error. */
int template_length(struct template_run *run, const struct template_value *value, size_t *n);
/* Python's str() and repr(); what would print an address or has no fixed text is an error. */
int template_to_text(struct template_run *run, const struct template_value *value, struct template_value *text);
int template_repr(struct template_run *run, const struct template_value *value, struct buffer *out);
size_t template_float_text(double real, char text[32]);

int template_eval(struct template_run *run, const struct template_node *node, struct template_value *out);
/* of[index] and of.name, as jinja2 has them: what is not there is undefined. */
int template_get_item(struct template_run *run, const struct template_value *of, const struct template_value *index,
                      struct template_value *out);
int template_get_attribute(struct template_run *run, const struct template_value *of, const struct template_value *name,
                           struct template_value *out);

/* Runs a macro, and the body of a recursive loop, with what they write as the value. */
struct template_arguments;
int template_run_macro(struct template_run *run, const struct template_macro *macro, const struct template_arguments *arguments,
                       struct template_value *out);
int template_run_loop(struct template_run *run, const struct template_loop *loop, const struct template_value *items,
                      struct template_value *out);
/* A new scope inside `outer` becomes the run's. */
int template_scope_enter(struct template_run *run, struct template_scope *outer);

#define TEMPLATE_MAX_OUTPUT ((size_t)16 << 20)
#define TEMPLATE_MAX_RECURSION 700          /* of nodes in nodes, through macros and loops */
#define TEMPLATE_MAX_RANGE 100000           /* items of a range(), jinja2's own limit */
/* Renders into `out` with the variables of the map `context`; `now` is for strftime_now(), NULL the clock's. */
struct tm;
int template_render(const struct template *template, struct template_value context, const struct tm *now, struct buffer *out);

/* What can be called.  Argument 0 of a filter, test or method is what it is applied to, and its params follow; those of
 * a function begin at 0.  What the call does not give is VALUE_ABSENT.  A param whose name begins with "/" takes no
 * name; the param "*" stands for any arguments, as a tuple of them and a map of those with names. */
#define TEMPLATE_MAX_PARAMS 5
#define TEMPLATE_MAX_ARGUMENTS (TEMPLATE_MAX_PARAMS + 1)
typedef int template_builtin_fn(struct template_run *run, const struct template_value *arguments, struct template_value *out);
struct template_builtin {
    const char *name;
    template_builtin_fn *run;
    uint8_t n_required;                     /* without what it is applied to */
    const char *params[TEMPLATE_MAX_PARAMS];
};
enum template_builtin_kind { TEMPLATE_FILTER, TEMPLATE_TEST, TEMPLATE_METHOD, TEMPLATE_FUNCTION };
const struct template_builtin *template_builtin_find(enum template_builtin_kind kind, const char *name, size_t n_bytes);
/* The method of a value of that kind, NULL when it has none that is known here. */
const struct template_builtin *template_find_method(const struct template_value *of, const char *name, size_t n_bytes);
/* Whether it is the name of a method that would change what it belongs to, which templates must not: undefined. */
bool template_is_unsafe_name(const struct template_value *of, const char *name, size_t n_bytes);
bool template_is_changing_name(const char *name, size_t n_bytes);       /* of anything */
/* Whether Python's str, list or dict has an attribute of that name, known here or not. */
bool template_is_method_name(const struct template_value *of, const char *name, size_t n_bytes);

/* The arguments of a call: those without a name, and those with one. */
struct template_arguments {
    struct template_value list, map;        /* `map` is absent when there is none */
};
int template_gather(struct template_run *run, const struct template_node *first, struct template_arguments *arguments);
int template_call(struct template_run *run, const struct template_value *callee, const struct template_arguments *arguments,
                  struct template_value *out);
int template_call_builtin(struct template_run *run, const struct template_builtin *builtin, const struct template_value *subject,
                          const struct template_arguments *arguments, struct template_value *out);
int template_apply(struct template_run *run, const struct template_node *filter, const struct template_value *subject,
                   struct template_value *out);

/* Any operator; those from TEMPLATE_EQUAL on alone, for tests too. */
int template_operate(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out);
int template_compare(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out);

/* Characters beyond ASCII, as Python 3.11 has them. */
enum template_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
struct buffer;
void template_change_case(uint32_t code, enum template_case to, struct buffer *out);
bool template_is_cased(uint32_t code);
bool template_is_printable(uint32_t code);

#endif
