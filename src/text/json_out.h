/* json_out.h: writes JSON.  Commas and quotes are its business; text that is not UTF-8 is written as U+FFFD. */
#ifndef STOA_TEXT_JSON_OUT_H
#define STOA_TEXT_JSON_OUT_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct json_out {
    struct buffer *to;
    bool comma;             /* the next value needs one before it */
};

/* key: NULL inside an array or at the top. */
void json_object(struct json_out *j, const char *key);
void json_array(struct json_out *j, const char *key);
void json_end_object(struct json_out *j);
void json_end_array(struct json_out *j);
void json_text(struct json_out *j, const char *key, const char *text);
/* The text; and when it is not UTF-8, its bytes in hex beside it, under "bytes". */
void json_bytes(struct json_out *j, const char *key, const char *bytes, size_t n_bytes);
void json_integer(struct json_out *j, const char *key, int64_t value);
/* With so many significant digits; what is no finite number is null. */
void json_number(struct json_out *j, const char *key, double value, int n_digits);
void json_none(struct json_out *j, const char *key);
void json_bool(struct json_out *j, const char *key, bool value);

#endif
