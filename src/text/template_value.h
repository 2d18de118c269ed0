/* template_value.h: what an expression of a chat template may be: a small part of Python's objects.
 *
 * Values are passed by copy.  Lists, maps and the bytes of strings lie in an arena (or in the template, or with the
 * caller) and are not freed one by one.  Lists and maps do not change once a template sees them, as in the sandbox that
 * transformers uses; a namespace does, and an iterator is used up. */
#ifndef STOA_TEXT_TEMPLATE_VALUE_H
#define STOA_TEXT_TEMPLATE_VALUE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum template_kind {
    VALUE_ABSENT,               /* an argument that was not given; no expression is this */
    VALUE_UNDEFINED,            /* `text` is the name that was looked for */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,                 /* whatever Python walks in order, see enum template_list_type */
    VALUE_MAP,                  /* in the order in which keys were put in; those of JSON are strings */
    VALUE_NAMESPACE,            /* a map that `set` may change */
    VALUE_LOOP,                 /* the variable `loop` */
    VALUE_MACRO,
    VALUE_FUNCTION,             /* one of ours, or a method with what it belongs to */
};

struct template_value {
    enum template_kind kind;
    bool markup;                /* of a string: escaped or safe, Python's Markup */
    union {
        bool flag;
        int64_t number;
        struct {
            double real;
            const char *written;        /* a number of JSON that neither kind can hold: its text, which it prints as; else NULL */
        };
        struct { const char *bytes; size_t n_bytes; } text;     /* UTF-8; NULs are allowed */
        struct template_list *list;
        struct template_map *map;                               /* of VALUE_MAP and VALUE_NAMESPACE */
        struct template_loop *loop;
        const struct template_macro *macro;
        const struct template_function *function;
    };
};

/* They differ in what Python can do with them: only the first three have an index, only the first two a sum. */
enum template_list_type {
    LIST_LIST,
    LIST_TUPLE,
    LIST_RANGE,
    LIST_KEYS, LIST_VALUES, LIST_ITEMS,     /* views of a dict */
    LIST_ITERATOR,              /* always true, has no length, and is walked once: items before `at` are gone */
};

struct template_list {
    struct template_value *items;
    size_t n, capacity;
    unsigned depth;             /* 0, or 1 + the deepest item's */
    enum template_list_type type;
    size_t at;
};

struct template_entry {
    struct template_value key, value;
};

struct template_map {
    struct template_entry *entries;
    size_t n, capacity;
    unsigned depth;             /* 0, or 1 + the deepest value's; a namespace counts as 0 where it is an item */
};

/* The place of a `for` in what it walks. */
struct template_node;
struct template_scope;
struct template_loop {
    struct template_list *list;
    size_t index0;
    unsigned depth0;            /* of a recursive loop in itself */
    const struct template_node *recursive;      /* the `for`, when it may call itself */
    struct template_scope *outer;
    struct template_value changed;              /* what changed() saw last; absent at first */
};
struct template_macro {
    const struct template_node *node;
    struct template_scope *scope;               /* where it was defined */
};
struct template_builtin;
struct template_function {
    const struct template_builtin *builtin;
    struct template_value self;                 /* absent when it is no method */
};

/* These give VALUE_ABSENT when memory is out.  Adding gives false then, for an absent list or map, and for an item that
 * would nest deeper than TEMPLATE_MAX_DEPTH. */
struct template_value template_value_list(struct arena *arena, enum template_list_type type);
struct template_value template_value_map(struct arena *arena);
bool template_list_add(struct arena *arena, struct template_value list, struct template_value item);
/* Replaces what was under the key.  The key's bytes are borrowed. */
bool template_map_set(struct arena *arena, struct template_value map, const char *key, size_t n_key,
                      struct template_value value);
bool template_map_set_value(struct arena *arena, struct template_value map, struct template_value key,
                            struct template_value value);
/* The same for a key that is known not to be there, without a look at those that are. */
bool template_map_add(struct arena *arena, struct template_value map, struct template_value key, struct template_value value);
/* NULL when there is none. */
struct template_value *template_map_find(const struct template_map *map, const char *key, size_t n_key);
struct template_value *template_map_find_value(const struct template_map *map, const struct template_value *key);
/* Whether Python could hash it: no list or dict, nor a tuple with one. */
bool template_is_hashable(const struct template_value *value);

static inline struct template_value template_value_undefined(const char *name, size_t n_bytes)
{
    return (struct template_value){ .kind = VALUE_UNDEFINED, .text = { name, n_bytes } };
}
static inline struct template_value template_value_bool(bool flag)
{
    return (struct template_value){ .kind = VALUE_BOOL, .flag = flag };
}
static inline struct template_value template_value_int(int64_t number)
{
    return (struct template_value){ .kind = VALUE_INT, .number = number };
}
static inline struct template_value template_value_float(double real)
{
    return (struct template_value){ .kind = VALUE_FLOAT, .real = real };
}
static inline struct template_value template_value_text(const char *bytes, size_t n_bytes)
{
    return (struct template_value){ .kind = VALUE_STRING, .text = { bytes, n_bytes } };
}

/* True is 1 to arithmetic. */
static inline bool template_is_integer(const struct template_value *value)
{
    return value->kind == VALUE_INT || value->kind == VALUE_BOOL;
}
static inline int64_t template_as_integer(const struct template_value *value)
{
    return value->kind == VALUE_BOOL ? value->flag : value->number;
}
static inline bool template_is_number(const struct template_value *value)
{
    return template_is_integer(value) || value->kind == VALUE_FLOAT;
}
static inline double template_as_float(const struct template_value *value)
{
    return value->kind == VALUE_FLOAT ? value->real : (double)template_as_integer(value);
}
/* -1, 0 or 1, exact also between integers and fractions; 2 where one is no number (NaN). */
int template_number_order(const struct template_value *a, const struct template_value *b);

bool template_value_is_true(const struct template_value *value);
/* Whether Python's == holds: True equals 1, a list no tuple, and nothing that is unlike fails.  Takes what it looks at,
 * in bytes, from *budget, and gives up with false and a budget of 0 when that is used up. */
bool template_value_equal(const struct template_value *a, const struct template_value *b, uint64_t *budget);
bool template_text_equal(const struct template_value *value, const char *text);
unsigned template_value_depth(const struct template_value *value);
/* The name of the kind, most often as Python's error messages say it. */
const char *template_kind_name(enum template_kind kind);
/* What str.isspace() and str.strip() take for white space: more than White_Space has. */
bool template_is_space(uint32_t code);

#define TEMPLATE_MAX_DEPTH 160          /* of values in each other: what json_in.h reads, in a list of messages in a context */
#define TEMPLATE_MAX_NESTING 256        /* of nodes in each other; a pair of brackets in an expression counts as 3 */

#endif
