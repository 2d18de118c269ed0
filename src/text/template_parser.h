/* template_parser.h: what the two halves of the parser share: expressions (template_parse.c), statements
 * (template_statement.c).
 *
 * The first error is kept, and from then on the parser sees only the end of the template, at which every loop ends and
 * nothing more is expected: so its functions check nothing and always return a node. */
#ifndef STOA_TEXT_TEMPLATE_PARSER_H
#define STOA_TEXT_TEMPLATE_PARSER_H

#include "text/template_lex.h"
#include "text/template_node.h"

/* A name that the template gives to something, or calls. */
struct parsed_name {
    struct parsed_name *next;
    struct template_value name;
    uint32_t line;
};

struct parser {
    struct template_lexer lexer;
    struct template_token token;        /* the one that is looked at */
    struct arena *arena;
    struct template_node nowhere;       /* what functions return after an error */
    unsigned depth;
    unsigned loops, fors;               /* around here: those that `break` may leave, and all of them */
    unsigned uses;                      /* enum template_macro_uses of the macro at work */
    struct parsed_name *stored, *stored_attributes, *called, *called_attributes;
    int err;
};

void parser_fail(struct parser *p, uint32_t line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void parser_unexpected(struct parser *p, const char *wanted);
void parser_next(struct parser *p);
bool parser_accept(struct parser *p, enum template_token_kind kind, const char *text);
bool parser_at_name(const struct parser *p, const char *name);
bool parser_at_operator(const struct parser *p, const char *op);
void parser_expect_operator(struct parser *p, const char *op);
/* Guards every way in which the parser comes back to itself; the caller takes one from p->depth, always. */
bool parser_enter(struct parser *p);
void parser_note(struct parser *p, struct parsed_name **list, struct template_value name, uint32_t line);

struct template_node *parser_node(struct parser *p, enum template_node_kind kind);
struct template_node *parser_finish(struct parser *p, struct template_node *node);
/* The node puts itself at the end of the chain and says where the next one goes. */
struct template_node **parser_append(struct parser *p, struct template_node **end, struct template_node *node);

struct template_node *parse_expression(struct parser *p);
struct template_node *parse_or(struct parser *p);       /* an "if" behind it is no conditional expression */
/* An item, or where commas follow, a tuple of them. */
struct template_node *parse_tuple(struct parser *p, struct template_node *(*item)(struct parser *));
struct template_node *parse_name(struct parser *p);
/* NAME | NAME ...: on `subject`, NULL for what a block captures; behind the first "|". */
struct template_node *parse_filter(struct parser *p, struct template_node *subject);

/* Everything up to a tag with one of the names, whose name is then the token; with no names up to the end. */
struct template_node *parse_body(struct parser *p, const char *const *ends);

#endif
