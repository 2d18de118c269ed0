/* template_node.h: a parsed template: nodes, and the tables of what can be called.
 *
 *   lexer (template_lex.c) -> parser (template_parse.c) -> nodes -> statements (template_run.c)
 *                                   |                                 |
 *                                   |                              expressions (template_eval.c), template_operator.c
 *                                   |                                 |
 *                                   +---- filters, tests, methods, functions: template_builtin.c, template_json.c
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
    NODE_NEGATE,   /*                operand                                                                     */
    NODE_AND,      /*                left            right                                                       */
    NODE_OR,       /*                left            right                                                       */
    NODE_IF_ELSE,  /*                condition       then          else*                                         */
    NODE_BINARY,   /* `op`           left            right                                                       */
    NODE_CALL,     /* `builtin`      first argument, along `next`, in the order of its params; absent: a literal */
    NODE_NAMESPACE,/*                first key (a literal), value ... along `next`                               */
    /* statements, which follow each other along `next` */
    NODE_DATA,     /* the text                                                                                   */
    NODE_PRINT,    /*                expression                                                                  */
    NODE_IF,       /*                condition       then*         else*                                         */
    NODE_FOR,      /*                target          iterable      condition*    body*            else*          */
    NODE_SET,      /*                target          expression                                                  */
    NODE_BREAK,
    NODE_CONTINUE,
};                 /* (* may be NULL; a target is a NODE_NAME, a NODE_LIST of them, or an attribute of a name)   */

#define TEMPLATE_MAX_CHILDREN 5

enum template_op {
    TEMPLATE_ADD, TEMPLATE_SUBTRACT, TEMPLATE_MULTIPLY, TEMPLATE_FLOOR_DIVIDE, TEMPLATE_MODULO, TEMPLATE_CONCATENATE,
    TEMPLATE_EQUAL, TEMPLATE_NOT_EQUAL, TEMPLATE_LESS, TEMPLATE_LESS_EQUAL, TEMPLATE_GREATER, TEMPLATE_GREATER_EQUAL,
    TEMPLATE_IN, TEMPLATE_NOT_IN,
};

struct template_builtin;
struct template_node {
    enum template_node_kind kind;
    enum template_op op;
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
    struct buffer *out;
    size_t out_start;                       /* where this rendering began in `out` */
    struct template_scope *scope;
    uint32_t line;                          /* of the node at work, for errors */
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
int template_new_list(struct template_run *run, bool tuple, struct template_value *out);
int template_list_append(struct template_run *run, struct template_value list, struct template_value item);
int template_map_put(struct template_run *run, struct template_value map, const struct template_value *key,
                     struct template_value item);
/* A copy of the bytes as a string. */
int template_new_text(struct template_run *run, const char *bytes, size_t n_bytes, struct template_value *out);
/* What a `for` walks: a list itself, a map's keys, a string's characters; undefined is empty. */
int template_iterate(struct template_run *run, const struct template_value *value, struct template_value *list);
/* As printed.  Lists and maps are refused: Python's way to print them is never what a prompt wants. */
int template_to_text(struct template_run *run, const struct template_value *value, struct template_value *text);
/* Renders into `out` with the variables of the map `context`. */
int template_eval(struct template_run *run, const struct template_node *node, struct template_value *out);
#define TEMPLATE_MAX_OUTPUT ((size_t)16 << 20)
int template_render(const struct template *template, struct template_value context, struct buffer *out);

/* What can be called.  Argument 0 of a filter, test or method is what it is applied to, and its params follow; those of
 * a function begin at 0.  What the call does not give is VALUE_ABSENT. */
#define TEMPLATE_MAX_ARGUMENTS 4
typedef int template_builtin_fn(struct template_run *run, const struct template_value *arguments, struct template_value *out);
struct template_builtin {
    const char *name;
    template_builtin_fn *run;
    uint8_t n_required;                     /* without what it is applied to */
    const char *params[TEMPLATE_MAX_ARGUMENTS - 1];
};
template_builtin_fn template_tojson;
enum template_builtin_kind { TEMPLATE_FILTER, TEMPLATE_TEST, TEMPLATE_METHOD, TEMPLATE_FUNCTION };
const struct template_builtin *template_builtin_find(enum template_builtin_kind kind, const char *name, size_t n_bytes);
/* Whether Python's str, list or dict has a method of that name, known here or not. */
bool template_is_method_name(enum template_kind kind, const char *name, size_t n_bytes);

/* Any operator; those from TEMPLATE_EQUAL on alone, for tests too. */
int template_operate(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out);
int template_compare(struct template_run *run, enum template_op op, const struct template_value *a,
                     const struct template_value *b, struct template_value *out);

#endif
