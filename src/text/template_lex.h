/* template_lex.h: a chat template as tokens.
 *
 * Outside of tags there is only TOKEN_DATA, already trimmed as {%- -%} and trim_blocks and lstrip_blocks ask: the newline
 * behind a block tag or a comment goes, and so do the blanks before one that is the first thing on its line.  Comments are
 * never seen, nor is {% raw %}.  Newlines are "\n" whatever the source had, and one at the very end is dropped, as jinja2 does. */
#ifndef STOA_TEXT_TEMPLATE_LEX_H
#define STOA_TEXT_TEMPLATE_LEX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum template_token_kind {
    TOKEN_END,
    TOKEN_BAD,                  /* `text` says what is wrong; nothing comes after it */
    TOKEN_DATA,
    TOKEN_PRINT_BEGIN,          /* {{ */
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,          /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,               /* `text` has its escapes replaced */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,             /* `text` is the operator */
};

struct template_token {
    enum template_token_kind kind;
    uint32_t line;
    const char *text;
    size_t n_bytes;
    int64_t number;
    double real;
};

struct template_lexer {
    struct arena *arena;        /* holds the source and every token's text */
    const char *at, *end;
    uint32_t line;
    enum { LEX_DATA, LEX_PRINT, LEX_BLOCK } where;
    unsigned open;              /* brackets; inside them "}}" is two of them */
    bool raw;                   /* behind {% raw %} */
    bool line_start;            /* what was read last ended with a newline, or nothing was */
};

/* Copies the source into the arena; false when memory is out. */
bool template_lex_init(struct template_lexer *lexer, struct arena *arena, const char *source, size_t n_bytes);
struct template_token template_lex_next(struct template_lexer *lexer);

#endif
