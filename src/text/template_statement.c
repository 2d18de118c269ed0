/* template_statement.c: tokens to the nodes of statements. */
#include "base/base.h"
#include "text/template_parser.h"

static void expect_block_end(struct parser *p)
{
    if (p->token.kind != TOKEN_BLOCK_END)
        parser_unexpected(p, "%}");
    parser_next(p);
}

/* The rest of a tag, and the block behind it up to a tag of one of the names.  jinja2 allows a colon, as Python has one. */
static struct template_node *parse_block(struct parser *p, const char *const *ends)
{
    parser_accept(p, TOKEN_OPERATOR, ":");
    expect_block_end(p);
    return parse_body(p, ends);
}

/* ---- what is assigned to ---- */

static struct template_node *parse_targets(struct parser *p, bool attributes);

static void note_stored(struct parser *p, const struct template_node *name)
{
    if (p->err)
        return;
    if (p->fors && template_text_equal(&name->value, "loop"))
        parser_fail(p, name->line, "the name \"loop\" can not be set inside of a loop");
    parser_note(p, &p->stored, name->value, name->line);
}

static struct template_node *parse_name_only(struct parser *p)
{
    unsigned uses = p->uses;
    struct template_node *node = p->token.kind == TOKEN_NAME ? parse_name(p) : &p->nowhere;
    if (!p->err && node->kind != NODE_NAME)
        parser_fail(p, node->line, "a constant can not be set");
    else if (node->kind != NODE_NAME)
        parser_unexpected(p, "a name");
    p->uses = uses;                                     /* setting a name does not ask for it */
    return node;
}

static struct template_node *parse_target(struct parser *p, bool attributes)
{
    struct template_node *node = &p->nowhere, *attribute;
    if (parser_accept(p, TOKEN_OPERATOR, "(")) {
        if (parser_enter(p))
            node = parse_targets(p, attributes);
        p->depth--;
        parser_expect_operator(p, ")");
        return node;
    }
    node = parse_name_only(p);
    if (!attributes || !parser_accept(p, TOKEN_OPERATOR, ".")) {
        note_stored(p, node);
        return node;
    }
    attribute = parser_node(p, NODE_ATTRIBUTE);
    if (p->token.kind != TOKEN_NAME)
        parser_unexpected(p, "the name of an attribute");
    if (p->err)
        return &p->nowhere;
    attribute->value = template_value_text(p->token.text, p->token.n_bytes);
    attribute->child[0] = node;
    parser_note(p, &p->stored_attributes, attribute->value, attribute->line);
    parser_next(p);
    return parser_finish(p, attribute);
}

/* One target, or a tuple of them; a namespace's attribute only where a `set` puts it. */
static struct template_node *parse_targets(struct parser *p, bool attributes)
{
    struct template_node *first = parse_target(p, attributes), *tuple, **end;
    if (!parser_at_operator(p, ","))
        return first;
    tuple = parser_node(p, NODE_LIST);
    if (p->err)
        return &p->nowhere;
    tuple->value = template_value_bool(true);
    end = parser_append(p, &tuple->child[0], first);
    while (parser_accept(p, TOKEN_OPERATOR, ","))
        if (p->token.kind == TOKEN_BLOCK_END || parser_at_operator(p, ")"))
            break;
        else
            end = parser_append(p, end, parse_target(p, attributes));
    return parser_finish(p, tuple);
}

/* ---- statements ---- */

static struct template_node *parse_if(struct parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    struct template_node *node = parser_node(p, NODE_IF);
    node->child[0] = parse_tuple(p, parse_or);
    node->child[1] = parse_block(p, ends);
    if (parser_accept(p, TOKEN_NAME, "elif")) {
        if (parser_enter(p))
            node->child[2] = parse_if(p);
        p->depth--;
        return parser_finish(p, node);
    }
    if (parser_accept(p, TOKEN_NAME, "else"))
        node->child[2] = parse_block(p, last);
    parser_accept(p, TOKEN_NAME, "endif");
    return parser_finish(p, node);
}

static struct template_node *parse_for(struct parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    struct template_node *node = parser_node(p, NODE_FOR);
    unsigned loops = p->loops;
    p->fors++;
    node->child[0] = parse_targets(p, false);
    if (!parser_accept(p, TOKEN_NAME, "in"))
        parser_unexpected(p, "in");
    node->child[1] = parse_tuple(p, parse_or);
    node->child[2] = parser_accept(p, TOKEN_NAME, "if") ? parse_expression(p) : NULL;
    node->value = template_value_bool(parser_accept(p, TOKEN_NAME, "recursive"));
    p->loops = loops + 1;
    node->child[3] = parse_block(p, ends);
    p->loops = node->value.flag ? 0 : loops;            /* a recursive loop is a function, its `else` in it */
    if (parser_accept(p, TOKEN_NAME, "else"))
        node->child[4] = parse_block(p, last);
    p->loops = loops;
    p->fors--;
    parser_accept(p, TOKEN_NAME, "endfor");
    return parser_finish(p, node);
}

/* Filters of a block: applied to what it captured. */
static struct template_node *parse_block_filters(struct parser *p, struct template_node *filter)
{
    while (parser_accept(p, TOKEN_OPERATOR, "|"))
        filter = parse_filter(p, filter);
    return filter;
}

static struct template_node *parse_set(struct parser *p)
{
    static const char *const ends[] = { "endset", NULL };
    struct template_node *node = parser_node(p, NODE_SET);
    node->child[0] = parse_targets(p, true);
    if (parser_accept(p, TOKEN_OPERATOR, "=")) {
        node->child[1] = parse_tuple(p, parse_expression);
        return parser_finish(p, node);
    }
    if (p->token.kind != TOKEN_BLOCK_END && !parser_at_operator(p, "|"))
        parser_unexpected(p, "=");
    node->kind = NODE_SET_BLOCK;
    node->child[2] = parse_block_filters(p, NULL);
    node->child[1] = parse_block(p, ends);
    parser_accept(p, TOKEN_NAME, "endset");
    return parser_finish(p, node);
}

static struct template_node *parse_with(struct parser *p)
{
    static const char *const ends[] = { "endwith", NULL };
    struct template_node *node = parser_node(p, NODE_WITH), **targets = &node->child[0], **values = &node->child[1];
    while (p->token.kind != TOKEN_BLOCK_END && !p->err) {
        struct template_node *target = parse_targets(p, false);
        targets = parser_append(p, targets, target);
        parser_expect_operator(p, "=");
        values = parser_append(p, values, parse_expression(p));
        if (p->token.kind != TOKEN_BLOCK_END)
            parser_expect_operator(p, ",");
    }
    node->child[2] = parse_block(p, ends);
    parser_accept(p, TOKEN_NAME, "endwith");
    return parser_finish(p, node);
}

static struct template_node *parse_filter_block(struct parser *p)
{
    static const char *const ends[] = { "endfilter", NULL };
    struct template_node *node = parser_node(p, NODE_CAPTURE);
    node->child[1] = parse_block_filters(p, parse_filter(p, NULL));
    node->child[0] = parse_block(p, ends);
    parser_accept(p, TOKEN_NAME, "endfilter");
    return parser_finish(p, node);
}

/* transformers marks with it what the assistant wrote; it prints what stands in it. */
static struct template_node *parse_generation(struct parser *p)
{
    static const char *const ends[] = { "endgeneration", NULL };
    struct template_node *node = parser_node(p, NODE_CAPTURE);
    unsigned loops = p->loops;
    p->loops = 0;
    node->child[0] = parse_block(p, ends);
    p->loops = loops;
    parser_accept(p, TOKEN_NAME, "endgeneration");
    return parser_finish(p, node);
}

/* "(a, b=1)": parameters, and the defaults of the last of them. */
static void parse_signature(struct parser *p, struct template_node *macro)
{
    struct template_node **params = &macro->child[0], **defaults = &macro->child[2];
    parser_expect_operator(p, "(");
    while (!parser_accept(p, TOKEN_OPERATOR, ")") && !p->err) {
        struct template_node *param = parse_name_only(p);
        if (!p->err)
            parser_note(p, &p->stored, param->value, param->line);
        params = parser_append(p, params, param);
        if (parser_accept(p, TOKEN_OPERATOR, "="))
            defaults = parser_append(p, defaults, parse_expression(p));
        else if (macro->child[2])
            parser_fail(p, p->token.line, "a parameter without a default behind one with a default");
        if (!parser_at_operator(p, ")")) {
            parser_expect_operator(p, ",");
            if (parser_at_operator(p, ")"))
                parser_unexpected(p, "a name");
        }
    }
}

/* The block of a macro, or of the caller that a call block makes; what it uses, those around it use too. */
static void parse_macro_body(struct parser *p, struct template_node *macro, const char *const *ends, unsigned uses, unsigned loops)
{
    p->loops = 0;
    macro->child[1] = parse_block(p, ends);
    if (!p->err)
        macro->uses = p->uses;
    p->uses |= uses;
    p->loops = loops;
}

static struct template_node *parse_macro(struct parser *p)
{
    static const char *const ends[] = { "endmacro", NULL };
    struct template_node *node = parser_node(p, NODE_MACRO);
    struct template_node *name = parse_name_only(p);
    unsigned uses = p->uses;
    if (p->err)
        return &p->nowhere;
    note_stored(p, name);
    node->value = name->value;
    parse_signature(p, node);
    p->uses = 0;
    parse_macro_body(p, node, ends, uses, p->loops);
    parser_accept(p, TOKEN_NAME, "endmacro");
    return parser_finish(p, node);
}

static struct template_node *parse_call_block(struct parser *p)
{
    static const char *const ends[] = { "endcall", NULL };
    struct template_node *node = parser_node(p, NODE_CALL_BLOCK), *macro = parser_node(p, NODE_MACRO), *call;
    if (p->err)
        return &p->nowhere;
    macro->value = template_value_text("caller", 6);
    if (parser_at_operator(p, "("))
        parse_signature(p, macro);
    call = parse_expression(p);
    if (!p->err && call->kind != NODE_CALL)
        parser_fail(p, node->line, "a call block without a call");
    if (p->err)
        return &p->nowhere;
    call->value = template_value_bool(true);
    unsigned uses = p->uses;
    p->uses = 0;
    parse_macro_body(p, macro, ends, uses, p->loops);
    parser_accept(p, TOKEN_NAME, "endcall");
    node->child[0] = call;
    node->child[1] = parser_finish(p, macro);
    return parser_finish(p, node);
}

static struct template_node *parse_print(struct parser *p)
{
    struct template_node *node = parser_node(p, NODE_PRINT);
    node->child[0] = parse_expression(p);
    if (parser_at_operator(p, ","))
        parser_fail(p, p->token.line, "a print statement of several values is not supported");
    return parser_finish(p, node);
}

static struct template_node *parse_jump(struct parser *p, enum template_node_kind kind)
{
    if (!p->loops)
        parser_fail(p, p->token.line, "break or continue outside of a loop");
    return parser_finish(p, parser_node(p, kind));
}

/* Behind "{%", at the statement's name.  Leaves the end of its last tag to the caller. */
static struct template_node *parse_statement(struct parser *p)
{
    static const struct { const char *name; struct template_node *(*parse)(struct parser *); } statements[] = {
        { "if", parse_if }, { "for", parse_for }, { "set", parse_set }, { "macro", parse_macro }, { "call", parse_call_block },
        { "with", parse_with }, { "filter", parse_filter_block }, { "generation", parse_generation }, { "print", parse_print },
    };
    struct template_token name = p->token;
    for (size_t i = 0; i < COUNT_OF(statements); i++)
        if (parser_accept(p, TOKEN_NAME, statements[i].name))
            return statements[i].parse(p);
    if (parser_accept(p, TOKEN_NAME, "break"))
        return parse_jump(p, NODE_BREAK);
    if (parser_accept(p, TOKEN_NAME, "continue"))
        return parse_jump(p, NODE_CONTINUE);
    if (name.kind == TOKEN_NAME)
        parser_fail(p, name.line, "the statement \"%.*s\" is not supported here", (int)MIN(name.n_bytes, (size_t)40), name.text);
    else
        parser_unexpected(p, "a statement");
    return &p->nowhere;
}

static bool at_one_of(const struct parser *p, const char *const *names)
{
    for (; names && *names; names++)
        if (parser_at_name(p, *names))
            return true;
    return false;
}

static struct template_node *parse_data(struct parser *p)
{
    struct template_node *node = parser_node(p, NODE_DATA);
    node->value = template_value_text(p->token.text, p->token.n_bytes);
    parser_next(p);
    return parser_finish(p, node);
}

static struct template_node *parse_print_tag(struct parser *p)
{
    parser_next(p);
    struct template_node *node = parser_node(p, NODE_PRINT);
    node->child[0] = parse_tuple(p, parse_expression);
    if (p->token.kind != TOKEN_PRINT_END)
        parser_unexpected(p, "}}");
    parser_next(p);
    return parser_finish(p, node);
}

struct template_node *parse_body(struct parser *p, const char *const *ends)
{
    struct template_node *first = NULL, **end = &first, *node;
    uint32_t line = p->token.line;
    if (!parser_enter(p)) {
        p->depth--;
        return &p->nowhere;
    }
    while (p->token.kind != TOKEN_END) {
        if (p->token.kind == TOKEN_DATA) {
            node = parse_data(p);
        } else if (p->token.kind == TOKEN_PRINT_BEGIN) {
            node = parse_print_tag(p);
        } else {
            parser_next(p);
            if (at_one_of(p, ends))
                break;
            node = parse_statement(p);
            expect_block_end(p);
        }
        end = parser_append(p, end, node);
    }
    if (ends && p->token.kind == TOKEN_END)
        parser_fail(p, line, "a block without its {%% %s %%}", ends[0]);
    p->depth--;
    return p->err ? NULL : first;
}
