/* template_parse.c: tokens to nodes, by recursive descent, with jinja2's precedences.
 *
 * The first error is kept, and from then on the parser sees only the end of the template, at which every loop ends and
 * nothing more is expected: so the functions below check nothing and always return a node. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_lex.h"
#include "text/template_node.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct parser {
    struct template_lexer lexer;
    struct template_token token;        /* the one that is looked at */
    struct arena *arena;
    struct template_node nowhere;       /* what functions return after an error */
    unsigned depth, loops;
    int err;
};

static void fail(struct parser *p, uint32_t line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct parser *p, uint32_t line, const char *format, ...)
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

static void next_token(struct parser *p)
{
    if (p->err)
        return;
    p->token = template_lex_next(&p->lexer);
    if (p->token.kind == TOKEN_BAD)
        fail(p, p->token.line, "%s", p->token.text);
}

static bool token_is(const struct parser *p, enum template_token_kind kind, const char *text)
{
    return p->token.kind == kind && p->token.n_bytes == strlen(text) && !memcmp(p->token.text, text, p->token.n_bytes);
}

static bool at_name(const struct parser *p, const char *name)
{
    return token_is(p, TOKEN_NAME, name);
}

static bool at_operator(const struct parser *p, const char *op)
{
    return token_is(p, TOKEN_OPERATOR, op);
}

static bool accept(struct parser *p, enum template_token_kind kind, const char *text)
{
    if (!token_is(p, kind, text))
        return false;
    next_token(p);
    return true;
}

static void unexpected(struct parser *p, const char *wanted)
{
    if (p->token.kind == TOKEN_END)
        fail(p, p->token.line, "the template ends where %s is expected", wanted);
    else
        fail(p, p->token.line, "found \"%.*s\" where %s is expected", (int)MIN(p->token.n_bytes, (size_t)40),
             p->token.text, wanted);
}

static void expect_operator(struct parser *p, const char *op)
{
    if (!accept(p, TOKEN_OPERATOR, op))
        unexpected(p, op);
}

static struct template_node *node_new(struct parser *p, enum template_node_kind kind)
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
static struct template_node *finish(struct parser *p, struct template_node *node)
{
    uint32_t depth = 0;
    if (p->err)
        return &p->nowhere;
    for (size_t i = 0; i < COUNT_OF(node->child); i++)
        for (const struct template_node *child = node->child[i]; child; child = child->next)
            depth = MAX(depth, child->depth);
    node->depth = depth + 1;
    if (node->depth > TEMPLATE_MAX_NESTING)             /* a chain such as a + b + c + ... leans to one side */
        fail(p, node->line, "an expression of too many parts");
    return node;
}

static struct template_node *unary(struct parser *p, enum template_node_kind kind, struct template_node *operand)
{
    struct template_node *node = node_new(p, kind);
    node->child[0] = operand;
    return finish(p, node);
}

static struct template_node *binary(struct parser *p, enum template_node_kind kind, enum template_op op,
                                    struct template_node *left, struct template_node *right)
{
    struct template_node *node = node_new(p, kind);
    node->op = op;
    node->child[0] = left;
    node->child[1] = right;
    return finish(p, node);
}

static struct template_node *literal(struct parser *p, struct template_value value)
{
    struct template_node *node = node_new(p, NODE_LITERAL);
    node->value = value;
    return finish(p, node);
}

/* The node puts itself at the end of the chain and says where the next one goes. */
static struct template_node **append(struct parser *p, struct template_node **end, struct template_node *node)
{
    if (p->err)
        return end;
    *end = node;
    return &node->next;
}

/* Guards every way in which the parser comes back to itself. */
static bool enter(struct parser *p)
{
    if (++p->depth > TEMPLATE_MAX_NESTING)
        fail(p, p->token.line, "nested too deep");
    return !p->err;
}

static struct template_node *parse_expression(struct parser *p);
static struct template_node *parse_or(struct parser *p);
static struct template_node *parse_tuple(struct parser *p, struct template_node *(*item)(struct parser *));

static bool at_any_end(const struct parser *p)
{
    return p->token.kind == TOKEN_PRINT_END || p->token.kind == TOKEN_BLOCK_END || p->token.kind == TOKEN_END;
}

/* ---- calls ---- */

/* Puts an argument in its place among the builtin's params. */
static void place_argument(struct parser *p, const struct template_builtin *builtin, struct template_node *places[],
                           struct template_node *name, struct template_node *value, size_t position)
{
    if (name) {
        const struct template_value *key = &name->value;
        for (position = 0; position < COUNT_OF(builtin->params) && builtin->params[position]; position++)
            if (template_text_equal(key, builtin->params[position]))
                break;
    }
    if (position >= COUNT_OF(builtin->params) || !builtin->params[position])
        fail(p, value->line, "%s() has no such argument", builtin->name);
    else if (places[position])
        fail(p, value->line, "%s() has the argument %s twice", builtin->name, builtin->params[position]);
    else
        places[position] = value;
}

/* "(...)" behind a builtin's name, if there is one; `subject` is what it is applied to, NULL for a function. */
static struct template_node *parse_call(struct parser *p, const struct template_builtin *builtin, struct template_node *subject)
{
    struct template_node *node = node_new(p, NODE_CALL), **end = &node->child[0];
    struct template_node *places[TEMPLATE_MAX_ARGUMENTS - 1] = { NULL };
    bool named = false;
    node->builtin = builtin;
    if (accept(p, TOKEN_OPERATOR, "("))
        for (size_t n = 0; !accept(p, TOKEN_OPERATOR, ")") && !p->err; n++) {
            if (n)
                expect_operator(p, ",");
            if (accept(p, TOKEN_OPERATOR, ")"))
                break;
            struct template_node *name = NULL, *value = parse_expression(p);
            if (!p->err && value->kind == NODE_NAME && accept(p, TOKEN_OPERATOR, "=")) {
                name = value;
                value = parse_expression(p);
            }
            if (named && !name)
                fail(p, node->line, "an argument without a name behind one with a name");
            named |= name != NULL;
            if (!p->err)
                place_argument(p, builtin, places, name, value, n);
        }
    for (size_t i = 0; i < builtin->n_required && !p->err; i++)
        if (!places[i])
            fail(p, node->line, "%s() lacks the argument %s", builtin->name, builtin->params[i]);
    if (subject)
        end = append(p, end, subject);
    for (size_t i = 0; i < COUNT_OF(places) && builtin->params[i]; i++)
        end = append(p, end, places[i] ? places[i] : literal(p, (struct template_value){ .kind = VALUE_ABSENT }));
    return finish(p, node);
}

/* Behind "namespace": any names with values. */
static struct template_node *parse_namespace(struct parser *p)
{
    struct template_node *node = node_new(p, NODE_NAMESPACE), **end = &node->child[0];
    expect_operator(p, "(");
    while (!accept(p, TOKEN_OPERATOR, ")") && !p->err) {
        struct template_token name = p->token;
        if (name.kind != TOKEN_NAME)
            unexpected(p, "a name");
        next_token(p);
        expect_operator(p, "=");
        end = append(p, end, literal(p, template_value_text(name.text, name.n_bytes)));
        end = append(p, end, parse_expression(p));
        if (!at_operator(p, ")"))
            expect_operator(p, ",");
    }
    return finish(p, node);
}

static const struct template_builtin *expect_builtin(struct parser *p, enum template_builtin_kind kind, const char *what)
{
    struct template_token name = p->token;
    const struct template_builtin *builtin = NULL;
    if (name.kind != TOKEN_NAME)
        unexpected(p, what);
    else if (!(builtin = template_builtin_find(kind, name.text, name.n_bytes)))
        fail(p, name.line, "%s \"%.*s\" is not supported", what, (int)MIN(name.n_bytes, (size_t)40), name.text);
    next_token(p);
    return builtin;
}

/* ---- expressions, the tightest binding first ---- */

static struct template_node *parse_list(struct parser *p)
{
    struct template_node *node = node_new(p, NODE_LIST), **end = &node->child[0];
    while (!accept(p, TOKEN_OPERATOR, "]") && !p->err) {
        end = append(p, end, parse_expression(p));
        if (!at_operator(p, "]"))
            expect_operator(p, ",");
    }
    return finish(p, node);
}

static struct template_node *parse_map(struct parser *p)
{
    struct template_node *node = node_new(p, NODE_MAP), **end = &node->child[0];
    while (!accept(p, TOKEN_OPERATOR, "}") && !p->err) {
        end = append(p, end, parse_expression(p));
        expect_operator(p, ":");
        end = append(p, end, parse_expression(p));
        if (!at_operator(p, "}"))
            expect_operator(p, ",");
    }
    return finish(p, node);
}

/* A tuple with its first item, or with none. */
static struct template_node *tuple_of(struct parser *p, struct template_node *first)
{
    struct template_node *node = node_new(p, NODE_LIST);
    if (p->err)
        return &p->nowhere;
    node->value = template_value_bool(true);
    node->child[0] = first;
    return finish(p, node);
}

/* Strings beside each other are one. */
static struct template_node *parse_strings(struct parser *p)
{
    struct template_value joined = template_value_text("", 0);
    struct template_node *node = node_new(p, NODE_LITERAL);
    for (; p->token.kind == TOKEN_STRING; next_token(p)) {
        char *both = arena_alloc(p->arena, joined.text.n_bytes + p->token.n_bytes + 1);
        if (!both) {
            fail(p, p->token.line, "no memory");
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
    return finish(p, node);
}

static struct template_node *parse_name(struct parser *p)
{
    static const struct { const char *name; struct template_value value; } constants[] = {
        { "true",  { .kind = VALUE_BOOL, .flag = true } },  { "True",  { .kind = VALUE_BOOL, .flag = true } },
        { "false", { .kind = VALUE_BOOL, .flag = false } }, { "False", { .kind = VALUE_BOOL, .flag = false } },
        { "none",  { .kind = VALUE_NONE } },                { "None",  { .kind = VALUE_NONE } },
    };
    static const char *const reserved[] = { "and", "or", "not", "in", "is", "if", "else" };
    struct template_node *node = node_new(p, NODE_NAME);
    struct template_value name = template_value_text(p->token.text, p->token.n_bytes);
    for (size_t i = 0; i < COUNT_OF(constants); i++)
        if (at_name(p, constants[i].name)) {
            next_token(p);
            return literal(p, constants[i].value);
        }
    for (size_t i = 0; i < COUNT_OF(reserved); i++)
        if (at_name(p, reserved[i]))
            unexpected(p, "a value");
    if (p->err)
        return &p->nowhere;
    next_token(p);
    node->value = name;
    return finish(p, node);
}

static struct template_node *parse_primary(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    struct template_token token = p->token;
    switch (token.kind) {
    case TOKEN_NAME:   return parse_name(p);
    case TOKEN_STRING: return parse_strings(p);
    case TOKEN_INT:
        next_token(p);
        return literal(p, template_value_int(token.number));
    default:
        break;
    }
    if (accept(p, TOKEN_OPERATOR, "(")) {
        node = at_operator(p, ")") ? tuple_of(p, NULL) : parse_tuple(p, parse_expression);
        expect_operator(p, ")");
    } else if (accept(p, TOKEN_OPERATOR, "[")) {
        node = parse_list(p);
    } else if (accept(p, TOKEN_OPERATOR, "{")) {
        node = parse_map(p);
    } else {
        unexpected(p, "a value");
    }
    return node;
}

/* Behind "[": an index, or a slice. */
static struct template_node *parse_subscript(struct parser *p, struct template_node *of)
{
    struct template_node *part[3] = { NULL }, *node;
    size_t n_colons = 0;
    while (!at_operator(p, "]") && !p->err && n_colons < 3)
        if (accept(p, TOKEN_OPERATOR, ":"))
            n_colons++;
        else if (n_colons < 3 && !part[n_colons])
            part[n_colons] = parse_expression(p);
        else
            break;
    if (n_colons > 2 || (!n_colons && !part[0]))
        unexpected(p, "an index");
    expect_operator(p, "]");
    if (!n_colons)
        return binary(p, NODE_INDEX, 0, of, part[0]);
    node = node_new(p, NODE_SLICE);
    node->child[0] = of;
    for (size_t i = 0; i < 3; i++)
        node->child[1 + i] = part[i];
    return finish(p, node);
}

/* Behind ".": an attribute, or a method with its arguments. */
static struct template_node *parse_attribute(struct parser *p, struct template_node *of)
{
    struct template_token name = p->token;
    struct template_node *node;
    if (name.kind != TOKEN_NAME) {
        unexpected(p, "the name of an attribute");
        return &p->nowhere;
    }
    node = node_new(p, NODE_ATTRIBUTE);
    next_token(p);
    if (at_operator(p, "(")) {
        const struct template_builtin *method = template_builtin_find(TEMPLATE_METHOD, name.text, name.n_bytes);
        if (method)
            return parse_call(p, method, of);
        fail(p, name.line, "the method \"%.*s\" is not supported", (int)MIN(name.n_bytes, (size_t)40), name.text);
        return &p->nowhere;
    }
    if (p->err)
        return &p->nowhere;
    node->value = template_value_text(name.text, name.n_bytes);
    node->child[0] = of;
    return finish(p, node);
}

/* "(" behind a node: only functions can be called, by their name. */
static struct template_node *parse_function(struct parser *p, const struct template_node *callee)
{
    if (callee->kind == NODE_NAME && template_text_equal(&callee->value, "namespace"))
        return parse_namespace(p);
    const struct template_builtin *function = callee->kind != NODE_NAME ? NULL :
        template_builtin_find(TEMPLATE_FUNCTION, callee->value.text.bytes, callee->value.text.n_bytes);
    if (function)
        return parse_call(p, function, NULL);
    if (callee->kind == NODE_NAME)
        fail(p, callee->line, "the function \"%.*s\" is not supported", (int)MIN(callee->value.text.n_bytes, (size_t)40),
             callee->value.text.bytes);
    else
        fail(p, callee->line, "only functions and methods can be called");
    return &p->nowhere;
}

static struct template_node *parse_postfix(struct parser *p, struct template_node *node)
{
    while (!p->err)
        if (accept(p, TOKEN_OPERATOR, "."))
            node = parse_attribute(p, node);
        else if (accept(p, TOKEN_OPERATOR, "["))
            node = parse_subscript(p, node);
        else if (at_operator(p, "("))
            node = parse_function(p, node);
        else
            break;
    return node;
}

/* Behind "is": a test, whose one argument may stand without brackets. */
static struct template_node *parse_test(struct parser *p, struct template_node *subject)
{
    bool negated = accept(p, TOKEN_NAME, "not");
    const struct template_builtin *test = expect_builtin(p, TEMPLATE_TEST, "the test");
    struct template_node *node;
    if (p->err)
        return &p->nowhere;
    bool bare = p->token.kind == TOKEN_STRING || p->token.kind == TOKEN_INT || at_operator(p, "[") || at_operator(p, "{") ||
                (p->token.kind == TOKEN_NAME && !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and"));
    if (bare && !test->n_required)
        unexpected(p, "an operator");
    if (bare) {
        node = node_new(p, NODE_CALL);
        node->builtin = test;
        struct template_node **end = append(p, &node->child[0], subject);
        append(p, end, parse_postfix(p, parse_primary(p)));
        node = finish(p, node);
    } else {
        node = parse_call(p, test, subject);
    }
    return negated ? unary(p, NODE_NOT, node) : node;
}

static struct template_node *parse_filters(struct parser *p, struct template_node *node)
{
    while (!p->err)
        if (accept(p, TOKEN_OPERATOR, "|")) {
            const struct template_builtin *filter = expect_builtin(p, TEMPLATE_FILTER, "the filter");
            if (!p->err)
                node = parse_call(p, filter, node);
        } else if (accept(p, TOKEN_NAME, "is")) {
            node = parse_test(p, node);
        } else if (at_operator(p, "(")) {
            unexpected(p, "an operator");
        } else {
            break;
        }
    return node;
}

/* A sign binds tighter than a filter: -1|abs is (-1)|abs. */
static struct template_node *parse_signed(struct parser *p, bool with_filters)
{
    struct template_node *node = &p->nowhere;
    if (enter(p)) {
        if (accept(p, TOKEN_OPERATOR, "-"))
            node = unary(p, NODE_NEGATE, parse_signed(p, false));
        else if (at_operator(p, "+"))
            unexpected(p, "a value");
        else
            node = parse_primary(p);
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
        if (accept(p, TOKEN_OPERATOR, operators[i].text)) {
            node = binary(p, NODE_BINARY, operators[i].op, node, operand(p));
            i = 0;
        } else {
            i++;
        }
    return node;
}

static struct template_node *parse_product(struct parser *p)
{
    static const struct operator operators[] = {
        { "*", TEMPLATE_MULTIPLY }, { "//", TEMPLATE_FLOOR_DIVIDE }, { "%", TEMPLATE_MODULO },
    };
    return parse_left(p, operators, COUNT_OF(operators), parse_unary);
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
        if (accept(p, TOKEN_OPERATOR, operators[i].text)) {
            *op = operators[i].op;
            return true;
        }
    if (accept(p, TOKEN_NAME, "not")) {
        if (!at_name(p, "in"))
            unexpected(p, "in");
        *op = TEMPLATE_NOT_IN;
        return accept(p, TOKEN_NAME, "in");
    }
    *op = TEMPLATE_IN;
    return accept(p, TOKEN_NAME, "in");
}

static struct template_node *parse_comparison(struct parser *p)
{
    struct template_node *node = parse_sum(p);
    enum template_op op;
    if (accept_comparison(p, &op)) {
        node = binary(p, NODE_BINARY, op, node, parse_sum(p));
        if (accept_comparison(p, &op))
            fail(p, p->token.line, "a chain of comparisons is not supported");
    }
    return node;
}

static struct template_node *parse_not(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    if (enter(p))
        node = accept(p, TOKEN_NAME, "not") ? unary(p, NODE_NOT, parse_not(p)) : parse_comparison(p);
    p->depth--;
    return node;
}

static struct template_node *parse_and(struct parser *p)
{
    struct template_node *node = parse_not(p);
    while (accept(p, TOKEN_NAME, "and"))
        node = binary(p, NODE_AND, 0, node, parse_not(p));
    return node;
}

static struct template_node *parse_or(struct parser *p)
{
    struct template_node *node = parse_and(p);
    while (accept(p, TOKEN_NAME, "or"))
        node = binary(p, NODE_OR, 0, node, parse_and(p));
    return node;
}

static struct template_node *parse_expression(struct parser *p)
{
    struct template_node *node = &p->nowhere;
    if (enter(p)) {
        node = parse_or(p);
        while (accept(p, TOKEN_NAME, "if")) {
            struct template_node *whole = node_new(p, NODE_IF_ELSE);
            whole->child[1] = node;
            whole->child[0] = parse_or(p);
            whole->child[2] = accept(p, TOKEN_NAME, "else") ? parse_expression(p) : NULL;
            node = finish(p, whole);
        }
    }
    p->depth--;
    return node;
}

/* An item, or where commas follow, a tuple of them. */
static struct template_node *parse_tuple(struct parser *p, struct template_node *(*item)(struct parser *))
{
    struct template_node *first = item(p), *node, **end;
    if (!at_operator(p, ","))
        return first;
    node = tuple_of(p, first);
    end = p->err ? NULL : &first->next;
    while (accept(p, TOKEN_OPERATOR, ",")) {
        if (at_any_end(p) || at_operator(p, ")") || at_operator(p, "="))
            break;
        end = append(p, end, item(p));
    }
    return finish(p, node);
}

/* ---- statements ---- */

static struct template_node *parse_body(struct parser *p, const char *const *ends);

static void expect_block_end(struct parser *p)
{
    if (p->token.kind != TOKEN_BLOCK_END)
        unexpected(p, "%}");
    next_token(p);
}

static struct template_node *parse_target_name(struct parser *p)
{
    struct template_node *node = p->token.kind == TOKEN_NAME ? parse_name(p) : &p->nowhere;
    if (node->kind != NODE_NAME)
        unexpected(p, "a name");
    if (!p->err && template_text_equal(&node->value, "namespace"))
        fail(p, node->line, "the name \"namespace\" is taken");
    return node;
}

static struct template_node *parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    struct template_node *node = node_new(p, NODE_IF);
    node->child[0] = parse_tuple(p, parse_or);              /* an "if" behind it is no conditional expression */
    expect_block_end(p);
    node->child[1] = parse_body(p, ends);
    if (accept(p, TOKEN_NAME, "elif")) {
        if (enter(p))
            node->child[2] = parse_if(p);
        p->depth--;
        return finish(p, node);
    }
    if (accept(p, TOKEN_NAME, "else")) {
        expect_block_end(p);
        node->child[2] = parse_body(p, last);
    }
    accept(p, TOKEN_NAME, "endif");
    return finish(p, node);
}

static struct template_node *parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    struct template_node *node = node_new(p, NODE_FOR);
    node->child[0] = parse_tuple(p, parse_target_name);
    if (!accept(p, TOKEN_NAME, "in"))
        unexpected(p, "in");
    node->child[1] = parse_tuple(p, parse_or);
    node->child[2] = accept(p, TOKEN_NAME, "if") ? parse_expression(p) : NULL;
    expect_block_end(p);
    p->loops++;
    node->child[3] = parse_body(p, ends);
    p->loops--;
    if (accept(p, TOKEN_NAME, "else")) {
        expect_block_end(p);
        node->child[4] = parse_body(p, last);
    }
    accept(p, TOKEN_NAME, "endfor");
    return finish(p, node);
}

static struct template_node *parse_set(struct parser *p)
{
    struct template_node *node = node_new(p, NODE_SET), *target = parse_target_name(p);
    if (!p->err && accept(p, TOKEN_OPERATOR, ".")) {
        target = parse_attribute(p, target);
        if (!p->err && target->kind != NODE_ATTRIBUTE)
            unexpected(p, "=");
    } else if (at_operator(p, ",")) {
        struct template_node *tuple = tuple_of(p, target), **end = &target->next;
        while (accept(p, TOKEN_OPERATOR, ","))
            end = append(p, end, parse_target_name(p));
        target = finish(p, tuple);
    }
    if (p->token.kind == TOKEN_BLOCK_END)
        fail(p, p->token.line, "a set of a whole block is not supported");
    expect_operator(p, "=");
    node->child[0] = target;
    node->child[1] = parse_tuple(p, parse_expression);
    return finish(p, node);
}

static struct template_node *parse_jump(struct parser *p, enum template_node_kind kind)
{
    if (!p->loops)
        fail(p, p->token.line, "break or continue outside of a loop");
    return finish(p, node_new(p, kind));
}

/* Behind "{%", at the statement's name.  Leaves the end of its last tag to the caller. */
static struct template_node *parse_statement(struct parser *p)
{
    struct template_token name = p->token;
    if (accept(p, TOKEN_NAME, "if"))
        return parse_if(p);
    if (accept(p, TOKEN_NAME, "for"))
        return parse_for(p);
    if (accept(p, TOKEN_NAME, "set"))
        return parse_set(p);
    if (accept(p, TOKEN_NAME, "break"))
        return parse_jump(p, NODE_BREAK);
    if (accept(p, TOKEN_NAME, "continue"))
        return parse_jump(p, NODE_CONTINUE);
    if (name.kind == TOKEN_NAME)
        fail(p, name.line, "the statement \"%.*s\" is not supported here", (int)MIN(name.n_bytes, (size_t)40), name.text);
    else
        unexpected(p, "a statement");
    return &p->nowhere;
}

static bool at_one_of(const struct parser *p, const char *const *names)
{
    for (; names && *names; names++)
        if (at_name(p, *names))
            return true;
    return false;
}

/* Everything up to a tag with one of the names, whose name is then the token; with no names up to the end. */
static struct template_node *parse_body(struct parser *p, const char *const *ends)
{
    struct template_node *first = NULL, **end = &first, *node;
    uint32_t line = p->token.line;
    if (!enter(p)) {
        p->depth--;
        return &p->nowhere;
    }
    while (p->token.kind != TOKEN_END) {
        if (p->token.kind == TOKEN_DATA) {
            node = node_new(p, NODE_DATA);
            node->value = template_value_text(p->token.text, p->token.n_bytes);
            next_token(p);
            end = append(p, end, finish(p, node));
        } else if (p->token.kind == TOKEN_PRINT_BEGIN) {
            next_token(p);
            node = unary(p, NODE_PRINT, parse_tuple(p, parse_expression));
            if (p->token.kind != TOKEN_PRINT_END)
                unexpected(p, "}}");
            next_token(p);
            end = append(p, end, node);
        } else {
            next_token(p);
            if (at_one_of(p, ends))
                break;
            node = parse_statement(p);
            expect_block_end(p);
            end = append(p, end, node);
        }
    }
    if (ends && p->token.kind == TOKEN_END)
        fail(p, line, "a block without its {%% %s %%}", ends[0]);
    p->depth--;
    return p->err ? NULL : first;
}

int template_parse(struct template *template, const char *source, size_t n_bytes)
{
    struct parser p = { .arena = &template->arena };
    if (!template_lex_init(&p.lexer, p.arena, source, n_bytes))
        return error_set(ERR_NO_MEMORY, "no memory for a chat template");
    next_token(&p);
    template->first = parse_body(&p, NULL);
    return p.err;
}
