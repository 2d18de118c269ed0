/* template_parse.c: tokens to the nodes of expressions, by recursive descent, with jinja2's precedences. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void parser_fail(struct parser *p, uint32_t line, const char *format, ...)
{
    char what[256];
    va_list args;
    if (p->err)
        return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    p->err = error_set(ERR_BAD_FILE, "chat template, line %u: %s", line, what);
    p->token = (struct template_token){ .kind = TOKEN_END, .line = line, .text = "" };
}

void parser_next(struct parser *p)
{
    if (p->err)
        return;
    p->token = template_lex_next(&p->lexer);
    if (p->token.kind == TOKEN_BAD)
        parser_fail(p, p->token.line, "%s", p->token.text);
}

static bool token_is(const struct parser *p, enum template_token_kind kind, const char *text)
{
    return p->token.kind == kind && p->token.n_bytes == strlen(text) && !memcmp(p->token.text, text, p->token.n_bytes);
}

bool parser_at_name(const struct parser *p, const char *name)
{
    return token_is(p, TOKEN_NAME, name);
}

bool parser_at_operator(const struct parser *p, const char *op)
{
    return token_is(p, TOKEN_OPERATOR, op);
}

bool parser_accept(struct parser *p, enum template_token_kind kind, const char *text)
{
    if (!token_is(p, kind, text))
        return false;
    parser_next(p);
    return true;
}

void parser_unexpected(struct parser *p, const char *wanted)
{
    if (p->token.kind == TOKEN_END)
        parser_fail(p, p->token.line, "the template ends where %s is expected", wanted);
    else
        parser_fail(p, p->token.line, "found \"%.*s\" where %s is expected", (int)MIN(p->token.n_bytes, (size_t)40),
             p->token.text, wanted);
}

void parser_expect_operator(struct parser *p, const char *op)
{
    if (!parser_accept(p, TOKEN_OPERATOR, op))
        parser_unexpected(p, op);
}

struct template_node *parser_node(struct parser *p, enum template_node_kind kind)
{
    struct template_node *node = p->err ? NULL : arena_new(p->arena, struct template_node);
    if (!node) {
        if (!p->err)
            p->err = error_set(ERR_NO_MEMORY, "no memory for a chat template");
        p->token.kind = TOKEN_END;
        return &p->nowhere;
    }
    node->kind = kind;
    node->line = p->token.line;
    return node;
}

/* A node is complete: its depth follows from its children. */
struct template_node *parser_finish(struct parser *p, struct template_node *node)
{
    uint32_t depth = 0;
    if (p->err)
        return &p->nowhere;
    for (size_t i = 0; i < COUNT_OF(node->child); i++)
        for (const struct template_node *child = node->child[i]; child; child = child->next)
            depth = MAX(depth, child->depth);
    node->depth = depth + 1;
    if (node->depth > TEMPLATE_MAX_NESTING)             /* a chain such as a + b + c + ... leans to one side */
        parser_fail(p, node->line, "an expression of too many parts");
    return node;
}

static struct template_node *unary(struct parser *p, enum template_node_kind kind, struct template_node *operand)
{
    struct template_node *node = parser_node(p, kind);
    node->child[0] = operand;
    return parser_finish(p, node);
}

static struct template_node *binary(struct parser *p, enum template_node_kind kind, enum template_op op,
                                    struct template_node *left, struct template_node *right)
{
    struct template_node *node = parser_node(p, kind);
    node->op = op;
    node->child[0] = left;
    node->child[1] = right;
    return parser_finish(p, node);
}

static struct template_node *literal(struct parser *p, struct template_value value)
{
    struct template_node *node = parser_node(p, NODE_LITERAL);
    node->value = value;
    return parser_finish(p, node);
}

struct template_node **parser_append(struct parser *p, struct template_node **end, struct template_node *node)
{
    if (p->err)
        return end;
    *end = node;
    return &node->next;
}

bool parser_enter(struct parser *p)
{
    if (++p->depth > TEMPLATE_MAX_NESTING)
        parser_fail(p, p->token.line, "nested too deep");
    return !p->err;
}

void parser_note(struct parser *p, struct parsed_name **list, struct template_value name, uint32_t line)
{
    struct parsed_name *note = p->err ? NULL : arena_new(p->arena, struct parsed_name);
    if (!note) {
        parser_fail(p, line, "no memory");
        return;
    }
    *note = (struct parsed_name){ *list, name, line };
    *list = note;
}

static bool at_any_end(const struct parser *p)
{
    return p->token.kind == TOKEN_PRINT_END || p->token.kind == TOKEN_BLOCK_END || p->token.kind == TOKEN_END;
}

/* ---- calls ---- */

static const char *param_name(const char *param)
{
    return param + (*param == '/');
}

/* Which param of the builtin an argument is for, or an error. */
static size_t find_param(struct parser *p, const struct template_builtin *builtin, const struct template_node *argument, size_t position)
{
    if (argument->kind == NODE_KEYWORD)
        for (position = 0; position < TEMPLATE_MAX_PARAMS && builtin->params[position]; position++)
            if (template_text_equal(&argument->value, builtin->params[position]))
                break;
    if (position >= TEMPLATE_MAX_PARAMS || !builtin->params[position])
        parser_fail(p, argument->line, "%s() has no such argument", builtin->name);
    return position;
}

/* That a call of something built in fits what it takes, as far as that can be seen. */
static void check_arguments(struct parser *p, const struct template_builtin *builtin, const struct template_node *first)
{
    bool given[TEMPLATE_MAX_PARAMS] = { false };
    size_t n = 0;
    if (builtin->params[0] && builtin->params[0][0] == '*')
        return;
    for (const struct template_node *argument = first; argument && !p->err; argument = argument->next) {
        if (argument->kind == NODE_STAR)
            return;
        size_t i = find_param(p, builtin, argument, n++);
        if (!p->err && given[i])
            parser_fail(p, argument->line, "%s() has the argument %s twice", builtin->name, param_name(builtin->params[i]));
        if (!p->err)
            given[i] = true;
    }
    for (size_t i = 0; i < builtin->n_required && !p->err; i++)
        if (!given[i])
            parser_fail(p, p->token.line, "%s() lacks the argument %s", builtin->name, param_name(builtin->params[i]));
}

static struct template_node *parse_argument(struct parser *p)
{
    struct template_node *node;
    if (parser_accept(p, TOKEN_OPERATOR, "*") || parser_at_operator(p, "**")) {
        bool two = parser_accept(p, TOKEN_OPERATOR, "**");
        node = parser_node(p, NODE_STAR);
        node->value = template_value_int(two ? 2 : 1);
        node->child[0] = parse_expression(p);
        return parser_finish(p, node);
    }
    node = parse_expression(p);
    if (!p->err && node->kind == NODE_NAME && parser_accept(p, TOKEN_OPERATOR, "=")) {
        parser_note(p, &p->stored_attributes, node->value, node->line);
        node->kind = NODE_KEYWORD;
        node->child[0] = parse_expression(p);
        return parser_finish(p, node);
    }
    return node;
}

/* "(...)" if it is there: in the order that Python wants: positions, names, * and **. */
static struct template_node *parse_arguments(struct parser *p)
{
    struct template_node *first = NULL, **end = &first;
    unsigned most = 0;
    if (!parser_accept(p, TOKEN_OPERATOR, "("))
        return NULL;
    while (!parser_accept(p, TOKEN_OPERATOR, ")") && !p->err) {
        struct template_node *argument = parse_argument(p);
        if (p->err)
            break;
        unsigned rank = argument->kind == NODE_KEYWORD ? 1 : argument->kind != NODE_STAR ? 0 : argument->value.number == 1 ? 2 : 3;
        if (rank < most && !(rank == 1 && most == 2))
            parser_fail(p, argument->line, "an argument without a name behind one with a name");
        if (rank > 1 && rank == most)
            parser_fail(p, argument->line, "* or ** twice in a call");
        most = MAX(most, rank);
        end = parser_append(p, end, argument);
        if (!parser_at_operator(p, ")"))
            parser_expect_operator(p, ",");
    }
    return p->err ? NULL : first;
}

static const struct template_builtin *expect_builtin(struct parser *p, enum template_builtin_kind kind, const char *what)
{
    struct template_token name = p->token;
    const struct template_builtin *builtin = NULL;
    if (name.kind != TOKEN_NAME)
        parser_unexpected(p, what);
    else if (!(builtin = template_builtin_find(kind, name.text, name.n_bytes)))
        parser_fail(p, name.line, "%s \"%.*s\" is not supported", what, (int)MIN(name.n_bytes, (size_t)40), name.text);
    parser_next(p);
    return builtin;
}

/* "(" behind a node.  What is called by a name that nothing has is refused at the end, when all names are known. */
static struct template_node *parse_call(struct parser *p, struct template_node *callee)
{
    struct template_node *node = parser_node(p, NODE_CALL);
    const struct template_builtin *builtin = NULL;
    node->child[0] = callee;
    node->child[1] = parse_arguments(p);
    if (p->err)
        return &p->nowhere;
    const struct template_value *name = &callee->value;
    if (callee->kind == NODE_NAME) {
        builtin = template_builtin_find(TEMPLATE_FUNCTION, name->text.bytes, name->text.n_bytes);
        parser_note(p, &p->called, *name, callee->line);
    } else if (callee->kind == NODE_ATTRIBUTE) {
        builtin = template_builtin_find(TEMPLATE_METHOD, name->text.bytes, name->text.n_bytes);
        parser_note(p, &p->called_attributes, *name, callee->line);
    }
    if (builtin)
        check_arguments(p, builtin, node->child[1]);
    return parser_finish(p, node);
}

static bool is_noted(const struct parsed_name *list, const struct template_value *name)
{
    while (list && (list->name.text.n_bytes != name->text.n_bytes || memcmp(list->name.text.bytes, name->text.bytes, name->text.n_bytes)))
        list = list->next;
    return list != NULL;
}

static void check_called(struct parser *p)
{
    const struct parsed_name *worst = NULL;
    const char *what = NULL;
    for (const struct parsed_name *c = p->called; c && !p->err; c = c->next)
        if (!template_builtin_find(TEMPLATE_FUNCTION, c->name.text.bytes, c->name.text.n_bytes) && !is_noted(p->stored, &c->name) &&
            !template_text_equal(&c->name, "loop") && !template_text_equal(&c->name, "caller"))
            worst = c, what = "function";
    for (const struct parsed_name *c = p->called_attributes; c && !p->err; c = c->next)
        if (!template_builtin_find(TEMPLATE_METHOD, c->name.text.bytes, c->name.text.n_bytes) &&
            !template_is_changing_name(c->name.text.bytes, c->name.text.n_bytes) && !is_noted(p->stored_attributes, &c->name))
            worst = !worst || c->line < worst->line ? what = "method", c : worst;
    if (worst)
        parser_fail(p, worst->line, "the %s \"%.*s\" is not supported", what, (int)MIN(worst->name.text.n_bytes, (size_t)40),
                    worst->name.text.bytes);
}

/* ---- expressions, the tightest binding first ---- */

static struct template_node *parse_list(struct parser *p)
{
    struct template_node *node = parser_node(p, NODE_LIST), **end = &node->child[0];
    while (!parser_accept(p, TOKEN_OPERATOR, "]") && !p->err) {
        end = parser_append(p, end, parse_expression(p));
        if (!parser_at_operator(p, "]"))
            parser_expect_operator(p, ",");
    }
    return parser_finish(p, node);
}

static struct template_node *parse_map(struct parser *p)
{
    struct template_node *node = parser_node(p, NODE_MAP), **end = &node->child[0];
    while (!parser_accept(p, TOKEN_OPERATOR, "}") && !p->err) {
        struct template_node *key = parse_expression(p);
        if (!p->err && key->kind == NODE_LITERAL && key->value.kind == VALUE_STRING)
            parser_note(p, &p->stored_attributes, key->value, key->line);
        end = parser_append(p, end, key);
        parser_expect_operator(p, ":");
        end = parser_append(p, end, parse_expression(p));
        if (!parser_at_operator(p, "}"))
            parser_expect_operator(p, ",");
    }
    return parser_finish(p, node);
}

/* A tuple with its first item, or with none. */
static struct template_node *tuple_of(struct parser *p, struct template_node *first)
{
    struct template_node *node = parser_node(p, NODE_LIST);
    if (p->err)
        return &p->nowhere;
    node->value = template_value_bool(true);
    node->child[0] = first;
    return parser_finish(p, node);
}

/* Strings beside each other are one. */
static struct template_node *parse_strings(struct parser *p)
{
    struct template_value joined = template_value_text("", 0);
    struct template_node *node = parser_node(p, NODE_LITERAL);
    for (; p->token.kind == TOKEN_STRING; parser_next(p)) {
        char *both = arena_alloc(p->arena, joined.text.n_bytes + p->token.n_bytes + 1);
        if (!both) {
            parser_fail(p, p->token.line, "no memory");
            break;
        }
        if (joined.text.n_bytes)
            memcpy(both, joined.text.bytes, joined.text.n_bytes);
        if (p->token.n_bytes)
            memcpy(both + joined.text.n_bytes, p->token.text, p->token.n_bytes);
        joined = template_value_text(both, joined.text.n_bytes + p->token.n_bytes);
    }
    if (!p->err)
        node->value = joined;
    return parser_finish(p, node);
}

struct template_node *parse_name(struct parser *p)
{
    static const struct { const char *name; struct template_value value; } constants[] = {
        { "true",  { .kind = VALUE_BOOL, .flag = true } },  { "True",  { .kind = VALUE_BOOL, .flag = true } },
        { "false", { .kind = VALUE_BOOL, .flag = false } }, { "False", { .kind = VALUE_BOOL, .flag = false } },
        { "none",  { .kind = VALUE_NONE } },                { "None",  { .kind = VALUE_NONE } },
    };
    static const char *const reserved[] = { "and", "or", "not", "in", "is", "if", "else" };
    struct template_node *node = parser_node(p, NODE_NAME);
    struct template_value name = template_value_text(p->token.text, p->token.n_bytes);
    for (size_t i = 0; i < COUNT_OF(constants); i++)
        if (parser_at_name(p, constants[i].name)) {
            parser_next(p);
            return literal(p, constants[i].value);
        }
    for (size_t i = 0; i < COUNT_OF(reserved); i++)
        if (parser_at_name(p, reserved[i]))
            parser_unexpected(p, "a value");
    if (parser_at_name(p, "self"))
        parser_fail(p, p->token.line, "the name \"self\" is not supported");
    if (p->err)
        return &p->nowhere;
    node->value = name;
    p->uses |= parser_at_name(p, "caller") ? MACRO_CALLER : parser_at_name(p, "varargs") ? MACRO_VARARGS :
               parser_at_name(p, "kwargs") ? MACRO_KWARGS : 0;
    parser_next(p);
    return parser_finish(p, node);
}

static struct template_node *parse_primary(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    struct template_token token = p->token;
    switch (token.kind) {
    case TOKEN_NAME:   return parse_name(p);
    case TOKEN_STRING: return parse_strings(p);
    case TOKEN_INT:
        parser_next(p);
        return literal(p, template_value_int(token.number));
    case TOKEN_FLOAT:
        parser_next(p);
        return literal(p, template_value_float(token.real));
    default:
        break;
    }
    if (parser_accept(p, TOKEN_OPERATOR, "(")) {
        node = parser_at_operator(p, ")") ? tuple_of(p, NULL) : parse_tuple(p, parse_expression);
        parser_expect_operator(p, ")");
    } else if (parser_accept(p, TOKEN_OPERATOR, "[")) {
        node = parse_list(p);
    } else if (parser_accept(p, TOKEN_OPERATOR, "{")) {
        node = parse_map(p);
    } else {
        parser_unexpected(p, "a value");
    }
    return node;
}

/* Behind "[": an index, or a slice. */
static struct template_node *parse_subscript(struct parser *p, struct template_node *of)
{
    struct template_node *part[3] = { NULL }, *node;
    size_t n_colons = 0;
    while (!parser_at_operator(p, "]") && !p->err && n_colons < 3)
        if (parser_accept(p, TOKEN_OPERATOR, ":"))
            n_colons++;
        else if (n_colons < 3 && !part[n_colons])
            part[n_colons] = parse_expression(p);
        else
            break;
    if (n_colons > 2 || (!n_colons && !part[0]))
        parser_unexpected(p, "an index");
    parser_expect_operator(p, "]");
    if (!n_colons)
        return binary(p, NODE_INDEX, 0, of, part[0]);
    node = parser_node(p, NODE_SLICE);
    node->child[0] = of;
    for (size_t i = 0; i < 3; i++)
        node->child[1 + i] = part[i];
    return parser_finish(p, node);
}

/* Behind ".": an attribute; a number is an index. */
static struct template_node *parse_attribute(struct parser *p, struct template_node *of)
{
    struct template_token name = p->token;
    struct template_node *node;
    if (name.kind == TOKEN_INT) {
        parser_next(p);
        return binary(p, NODE_INDEX, 0, of, literal(p, template_value_int(name.number)));
    }
    if (name.kind != TOKEN_NAME) {
        parser_unexpected(p, "the name of an attribute");
        return &p->nowhere;
    }
    node = parser_node(p, NODE_ATTRIBUTE);
    parser_next(p);
    if (p->err)
        return &p->nowhere;
    node->value = template_value_text(name.text, name.n_bytes);
    node->child[0] = of;
    return parser_finish(p, node);
}

static struct template_node *parse_postfix(struct parser *p, struct template_node *node)
{
    while (!p->err)
        if (parser_accept(p, TOKEN_OPERATOR, "."))
            node = parse_attribute(p, node);
        else if (parser_accept(p, TOKEN_OPERATOR, "["))
            node = parse_subscript(p, node);
        else if (parser_at_operator(p, "("))
            node = parse_call(p, node);
        else
            break;
    return node;
}

/* Behind "is": a test, whose one argument may stand without brackets. */
static struct template_node *parse_test(struct parser *p, struct template_node *subject)
{
    bool negated = parser_accept(p, TOKEN_NAME, "not");
    const struct template_builtin *test = expect_builtin(p, TEMPLATE_TEST, "the test");
    struct template_node *node;
    if (p->err)
        return &p->nowhere;
    bool bare = p->token.kind == TOKEN_STRING || p->token.kind == TOKEN_INT || p->token.kind == TOKEN_FLOAT ||
                parser_at_operator(p, "[") || parser_at_operator(p, "{") ||
                (p->token.kind == TOKEN_NAME && !parser_at_name(p, "else") && !parser_at_name(p, "or") && !parser_at_name(p, "and"));
    if (bare && !test->n_required)
        parser_unexpected(p, "an operator");
    node = parser_node(p, NODE_FILTER);
    node->builtin = test;
    node->child[0] = subject;
    node->child[1] = bare ? parse_postfix(p, parse_primary(p)) : parse_arguments(p);
    if (!p->err)
        check_arguments(p, test, node->child[1]);
    node = parser_finish(p, node);
    return negated ? unary(p, NODE_NOT, node) : node;
}

struct template_node *parse_filter(struct parser *p, struct template_node *subject)
{
    const struct template_builtin *filter = expect_builtin(p, TEMPLATE_FILTER, "the filter");
    struct template_node *node = parser_node(p, NODE_FILTER);
    if (p->err)
        return &p->nowhere;
    node->builtin = filter;
    node->child[0] = subject;
    node->child[1] = parse_arguments(p);
    if (!p->err)
        check_arguments(p, filter, node->child[1]);
    return parser_finish(p, node);
}

static struct template_node *parse_filters(struct parser *p, struct template_node *node)
{
    while (!p->err)
        if (parser_accept(p, TOKEN_OPERATOR, "|"))
            node = parse_filter(p, node);
        else if (parser_accept(p, TOKEN_NAME, "is"))
            node = parse_test(p, node);
        else if (parser_at_operator(p, "("))
            node = parse_call(p, node);
        else
            break;
    return node;
}

/* A sign binds tighter than a filter: -1|abs is (-1)|abs. */
static struct template_node *parse_signed(struct parser *p, bool with_filters)
{
    struct template_node *node = &p->nowhere;
    if (parser_enter(p)) {
        bool minus = parser_at_operator(p, "-");
        if (minus || parser_at_operator(p, "+")) {
            parser_next(p);
            node = unary(p, NODE_SIGN, parse_signed(p, false));
            node->value = template_value_int(minus ? -1 : 1);
        } else {
            node = parse_primary(p);
        }
        node = parse_postfix(p, node);
        if (with_filters)
            node = parse_filters(p, node);
    }
    p->depth--;
    return node;
}

static struct template_node *parse_unary(struct parser *p)
{
    return parse_signed(p, true);
}

struct operator {
    const char *text;
    enum template_op op;
};

/* Operators of one precedence, which join to the left. */
static struct template_node *parse_left(struct parser *p, const struct operator *operators, size_t n,
                                        struct template_node *(*operand)(struct parser *))
{
    struct template_node *node = operand(p);
    for (size_t i = 0; i < n; )
        if (parser_accept(p, TOKEN_OPERATOR, operators[i].text)) {
            node = binary(p, NODE_BINARY, operators[i].op, node, operand(p));
            i = 0;
        } else {
            i++;
        }
    return node;
}

static struct template_node *parse_power(struct parser *p)
{
    static const struct operator operators[] = { { "**", TEMPLATE_POWER } };
    return parse_left(p, operators, COUNT_OF(operators), parse_unary);
}

static struct template_node *parse_product(struct parser *p)
{
    static const struct operator operators[] = {
        { "*", TEMPLATE_MULTIPLY }, { "/", TEMPLATE_DIVIDE }, { "//", TEMPLATE_FLOOR_DIVIDE }, { "%", TEMPLATE_MODULO },
    };
    return parse_left(p, operators, COUNT_OF(operators), parse_power);
}

static struct template_node *parse_concatenation(struct parser *p)
{
    static const struct operator operators[] = { { "~", TEMPLATE_CONCATENATE } };
    return parse_left(p, operators, COUNT_OF(operators), parse_product);
}

static struct template_node *parse_sum(struct parser *p)
{
    static const struct operator operators[] = { { "+", TEMPLATE_ADD }, { "-", TEMPLATE_SUBTRACT } };
    return parse_left(p, operators, COUNT_OF(operators), parse_concatenation);
}

static bool accept_comparison(struct parser *p, enum template_op *op)
{
    static const struct operator operators[] = {
        { "==", TEMPLATE_EQUAL }, { "!=", TEMPLATE_NOT_EQUAL }, { "<", TEMPLATE_LESS }, { "<=", TEMPLATE_LESS_EQUAL },
        { ">", TEMPLATE_GREATER }, { ">=", TEMPLATE_GREATER_EQUAL },
    };
    for (size_t i = 0; i < COUNT_OF(operators); i++)
        if (parser_accept(p, TOKEN_OPERATOR, operators[i].text)) {
            *op = operators[i].op;
            return true;
        }
    if (parser_accept(p, TOKEN_NAME, "not")) {
        if (!parser_at_name(p, "in"))
            parser_unexpected(p, "in");
        *op = TEMPLATE_NOT_IN;
        return parser_accept(p, TOKEN_NAME, "in");
    }
    *op = TEMPLATE_IN;
    return parser_accept(p, TOKEN_NAME, "in");
}

/* a < b < c asks for both, and evaluates each once. */
static struct template_node *parse_comparison(struct parser *p)
{
    struct template_node *left = parse_sum(p), *node, **end;
    enum template_op op;
    if (!accept_comparison(p, &op))
        return left;
    node = parser_node(p, NODE_COMPARE);
    node->child[0] = left;
    end = &node->child[1];
    do {
        struct template_node *compared = parser_node(p, NODE_COMPARED);
        compared->op = op;
        compared->child[0] = parse_sum(p);
        end = parser_append(p, end, parser_finish(p, compared));
    } while (accept_comparison(p, &op));
    return parser_finish(p, node);
}

static struct template_node *parse_not(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    if (parser_enter(p))
        node = parser_accept(p, TOKEN_NAME, "not") ? unary(p, NODE_NOT, parse_not(p)) : parse_comparison(p);
    p->depth--;
    return node;
}

static struct template_node *parse_and(struct parser *p)
{
    struct template_node *node = parse_not(p);
    while (parser_accept(p, TOKEN_NAME, "and"))
        node = binary(p, NODE_AND, 0, node, parse_not(p));
    return node;
}

struct template_node *parse_or(struct parser *p)
{
    struct template_node *node = parse_and(p);
    while (parser_accept(p, TOKEN_NAME, "or"))
        node = binary(p, NODE_OR, 0, node, parse_and(p));
    return node;
}

struct template_node *parse_expression(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    if (parser_enter(p)) {
        node = parse_or(p);
        while (parser_accept(p, TOKEN_NAME, "if")) {
            struct template_node *whole = parser_node(p, NODE_IF_ELSE);
            whole->child[1] = node;
            whole->child[0] = parse_or(p);
            whole->child[2] = parser_accept(p, TOKEN_NAME, "else") ? parse_expression(p) : NULL;
            node = parser_finish(p, whole);
        }
    }
    p->depth--;
    return node;
}

struct template_node *parse_tuple(struct parser *p, struct template_node *(*item)(struct parser *))
{
    struct template_node *first = item(p), *node, **end;
    if (!parser_at_operator(p, ","))
        return first;
    node = tuple_of(p, first);
    end = p->err ? NULL : &first->next;
    while (parser_accept(p, TOKEN_OPERATOR, ",")) {
        if (at_any_end(p) || parser_at_operator(p, ")") || parser_at_operator(p, "=") || parser_at_name(p, "in") ||
            parser_at_name(p, "recursive"))
            break;
        end = parser_append(p, end, item(p));
    }
    return parser_finish(p, node);
}

int template_parse(struct template *template, const char *source, size_t n_bytes)
{
    struct parser p = { .arena = &template->arena };
    if (!template_lex_init(&p.lexer, p.arena, source, n_bytes))
        return error_set(ERR_NO_MEMORY, "no memory for a chat template");
    parser_next(&p);
    template->first = parse_body(&p, NULL);
    check_called(&p);
    return p.err;
}
