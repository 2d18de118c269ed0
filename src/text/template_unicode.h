/* template_unicode.h: the tables of template_unicode.c, all sorted by their first character. */
#ifndef STOA_TEXT_TEMPLATE_UNICODE_H
#define STOA_TEXT_TEMPLATE_UNICODE_H

#include "text/template_node.h"

/* n characters, `step` apart, that all move by `delta`. */
struct template_case_run {
    uint32_t first;
    uint16_t n, step;
    int32_t delta;
};
/* A character that becomes several. */
struct template_special {
    uint32_t code;
    enum template_case to;
    const char *text;
};
struct template_span {
    uint32_t first, n;
};
extern const struct template_case_run template_upper[], template_lower[], template_title[];
extern const size_t n_template_upper, n_template_lower, n_template_title;
extern const struct template_special template_special[];
extern const struct template_span template_cased[], template_printable[];
extern const size_t n_template_special, n_template_cased, n_template_printable;

#endif
