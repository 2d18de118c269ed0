#include "text/json_out.h"

#include "text/tokenizer.h"
#include "text/unicode.h"

#include <math.h>
#include <string.h>

static void quoted(struct json_out *j, const char *text, size_t n_bytes)
{
    buffer_add(j->to, "\"", 1);
    for (size_t i = 0, n; i < n_bytes; i += n) {
        unsigned char c = (unsigned char)text[i];
        uint32_t code;
        n = utf8_decode(text + i, n_bytes - i, &code);
        if (code >= UTF8_INVALID)
            buffer_add_text(j->to, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            buffer_printf(j->to, "\\%c", c);
        else if (c == '\n')
            buffer_add_text(j->to, "\\n");
        else if (c < 0x20)
            buffer_printf(j->to, "\\u%04x", c);
        else
            buffer_add(j->to, text + i, n);
    }
    buffer_add(j->to, "\"", 1);
}

static void begin(struct json_out *j, const char *key)
{
    if (j->comma)
        buffer_add_text(j->to, ", ");
    j->comma = true;
    if (!key)
        return;
    quoted(j, key, strlen(key));
    buffer_add_text(j->to, ": ");
}

static void open(struct json_out *j, const char *key, const char *bracket)
{
    begin(j, key);
    buffer_add_text(j->to, bracket);
    j->comma = false;
}

static void close(struct json_out *j, const char *bracket)
{
    buffer_add_text(j->to, bracket);
    j->comma = true;
}

void json_object(struct json_out *j, const char *key)
{
    open(j, key, "{");
}

void json_array(struct json_out *j, const char *key)
{
    open(j, key, "[");
}

void json_end_object(struct json_out *j)
{
    close(j, "}");
}

void json_end_array(struct json_out *j)
{
    close(j, "]");
}

void json_text(struct json_out *j, const char *key, const char *text)
{
    begin(j, key);
    quoted(j, text, strlen(text));
}

void json_bytes(struct json_out *j, const char *key, const char *bytes, size_t n_bytes)
{
    begin(j, key);
    quoted(j, bytes, n_bytes);
    if (utf8_is_valid(bytes, n_bytes))
        return;
    begin(j, "bytes");
    buffer_add(j->to, "\"", 1);
    for (size_t i = 0; i < n_bytes; i++)
        buffer_printf(j->to, "%02x", (unsigned char)bytes[i]);
    buffer_add(j->to, "\"", 1);
}

void json_integer(struct json_out *j, const char *key, int64_t value)
{
    begin(j, key);
    buffer_printf(j->to, "%lld", (long long)value);
}

void json_number(struct json_out *j, const char *key, double value, int n_digits)
{
    begin(j, key);
    if (isfinite(value))
        buffer_printf(j->to, "%.*g", n_digits, value);
    else
        buffer_add_text(j->to, "null");
}

void json_bool(struct json_out *j, const char *key, bool value)
{
    begin(j, key);
    buffer_add_text(j->to, value ? "true" : "false");
}

void json_none(struct json_out *j, const char *key)
{
    begin(j, key);
    buffer_add_text(j->to, "null");
}
