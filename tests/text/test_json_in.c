/* test_json_in.c: what JSON becomes, seen through the filter tojson; what is no JSON, and where; and its limits. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "tests/check.h"
#include "text/json_in.h"
#include "text/template_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a template prints the value; "error: ..." for one that is refused. */
static char *printed(const char *json, size_t n_bytes, const char *source)
{
    static char text[4096];
    struct arena arena = { 0 };
    struct template *template = NULL;
    struct template_value value, context = template_value_map(&arena);
    struct buffer out = { 0 };
    if (json_read(&arena, json, n_bytes, &value) < 0 || template_open(&template, source, strlen(source)) < 0 ||
        !template_map_set(&arena, context, "x", 1, value) || template_render(template, context, NULL, &out) < 0)
        snprintf(text, sizeof text, "error: %s", error_text());
    else
        snprintf(text, sizeof text, "%s", out.bytes ? out.bytes : "");
    template_close(template);
    buffer_release(&out);
    arena_close(&arena);
    return text;
}

static void test_values(void)
{
    static const struct { const char *json, *want; } rows[] = {
        { "null", "null" }, { "true", "true" }, { "false", "false" }, { " [ ] ", "[]" }, { "\t{\r\n}\n", "{}" },
        { "{\"b\":1,\"a\":[2,{\"c\":null}]}", "{\"b\": 1, \"a\": [2, {\"c\": null}]}" },
        { "0", "0" }, { "-0", "0" }, { "-7", "-7" }, { "9223372036854775807", "9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        /* beyond 64 bits, and beyond a double */
        { "18446744073709551615", "18446744073709551615" }, { "-9223372036854775809", "-9223372036854775809" },
        { "[1e999, -1e999, 123456789012345678901234567890]", "[1e999, -1e999, 123456789012345678901234567890]" },
        { "0.1", "0.1" }, { "1.0", "1.0" }, { "1e3", "1000.0" }, { "1E+2", "100.0" }, { "25e-1", "2.5" }, { "5e-324", "5e-324" },
        { "1e-999", "0.0" }, { "-0.0", "-0.0" }, { "0.30000000000000004", "0.30000000000000004" },
        { "\"\"", "\"\"" }, { "\"a/\\/\\\\\\\"\"", "\"a//\\\\\\\"\"" }, { "\"\\b\\f\\n\\r\\t\"", "\"\\b\\f\\n\\r\\t\"" },
        { "\"\\u0041\\u00e9\\u4e2D\\ud83d\\ude00\"", "\"A\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\"" },
        { "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 \x7f\"", "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 \x7f\"" },
        { "\"a\\u0000b\"", "\"a\\u0000b\"" }, { "{\"\\u0000\":1,\"\":2}", "{\"\\u0000\": 1, \"\": 2}" },
        { "\"x\\ny\\nz\"", "\"x\\ny\\nz\"" }, { "\"\\udbff\\udfff\"", "\"\xf4\x8f\xbf\xbf\"" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("value: %s", rows[i].json);
        check_text(printed(rows[i].json, strlen(rows[i].json), "{{ x | tojson }}"), rows[i].want);
    }
    check_begin("what no number can hold prints as it came, and is a number all the same");
    check_text(printed("18446744073709551615", 20, "{{ x }} {{ [x] }} {{ x > 1 }} {{ -x }} {{ x + 0 }}"),
               "18446744073709551615 [18446744073709551615] True -1.8446744073709552e+19 1.8446744073709552e+19");
}

static void test_errors(void)
{
    static const struct { const char *json, *want; size_t n; } rows[] = {
        { "", "no JSON value at byte 0", 0 }, { "  ", "no JSON value at byte 2", 2 }, { "nul", "no JSON value at byte 0", 3 },
        { "NaN", "no JSON value at byte 0", 3 }, { "[1,Infinity]", "no JSON value at byte 3", 12 }, { "[-Infinity]",
                "a minus without a number at byte 2", 11 },
        { "1 2", "something behind the JSON value at byte 2", 3 }, { "[1,]", "no JSON value at byte 3", 4 }, { "[1 2]",
                "neither a comma nor the end of a list at byte 3", 5 },
        { "[1", "neither a comma nor the end of a list at byte 2", 2 }, { "{\"a\" 1}", "a key without a colon at byte 5", 7 },
        { "{a:1}", "an object's key that is no string at byte 1", 5 }, { "{\"a\":1,}", "an object's key that is no string at byte 7", 8 },
        { "{\"a\":1 \"b\":2}", "neither a comma nor the end of an object at byte 7", 13 }, { "// x\n1", "no JSON value at byte 0", 6 },
        { "'a'", "no JSON value at byte 0", 3 }, { "01", "a number that begins with 0 at byte 1", 2 }, { "+1", "no JSON value at byte 0",
                2 },
        { ".5", "no JSON value at byte 0", 2 }, { "1.", "a number that ends with a point at byte 2", 2 }, { "1e",
                "an exponent without digits at byte 2", 2 },
        { "0x10", "something behind the JSON value at byte 1", 4 }, { "\"a", "a string without an end at byte 2", 2 }, { "\"a\\\"",
                "a string without an end at byte 4", 4 },
        { "\"\\x\"", "an unknown escape at byte 2", 4 }, { "\"\\u12g4\"", "a \\u without four hexadecimal digits at byte 5", 8 },
        { "\"\\", "an unknown escape at byte 2", 2 }, { "\"a\nb\"", "a control character in a string at byte 2", 5 }, { "\"a\0b\"",
                "a control character in a string at byte 2", 5 },
        { "\0", "no JSON value at byte 0", 1 }, { "{\"a\":1,\"b\":2,\"a\":3}", "the key \"a\" twice in the object that ends at byte 19",
                                                 19 },
        { "{\"a\":1,\"\\u0061\":3}", "the key \"a\" twice in the object that ends at byte 18", 18 },
        /* OA-23 */
        { "\xef\xbb\xbf{}", "a byte-order mark, which JSON has none of, at byte 0", 5 }, { "\"\xc4\xe3\xba\xc3\"",
                                                                                          "bytes that are no UTF-8 at byte 1", 6 },
        { "\"\xed\xa0\x80\"", "bytes that are no UTF-8 at byte 1", 5 }, { "\"ab\xe4\xb8", "bytes that are no UTF-8 at byte 3", 5 },
            { "\xff", "no JSON value at byte 0", 1 },
        { "\"\\ud800\"", "half of a surrogate pair at byte 7", 8 }, { "\"\\udc00\\ud800\"", "half of a surrogate pair at byte 7", 14 },
        { "\"\\ud800\\u0041\"", "half of a surrogate pair at byte 13", 14 }, { "\"\\ud800x\"", "half of a surrogate pair at byte 7", 9 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena arena = { 0 };
        struct template_value value;
        char *exact = malloc(rows[i].n + !rows[i].n);       /* so that a sanitizer sees a step too far */
        memcpy(exact, rows[i].json, rows[i].n);
        check_begin("error %zu: %s", i, rows[i].json);
        check_int(json_read(&arena, exact, rows[i].n, &value), ERR_USAGE);
        check_text(error_text(), rows[i].want);
        free(exact);
        arena_close(&arena);
    }
}

static int read_repeated(const char *piece, size_t times, const char *last)
{
    struct arena arena = { 0 };
    struct buffer json = { 0 };
    struct template_value value;
    for (size_t i = 0; i < times; i++)
        buffer_add_text(&json, piece);
    buffer_add_text(&json, last);
    int err = json_read(&arena, json.bytes, json.size, &value);
    buffer_release(&json);
    arena_close(&arena);
    return err;
}

static void test_limits(void)
{
    check_begin("SE-06: depth");
    check_int(read_repeated("[", 127, "[]"), ERR_USAGE);
    check_text(error_text(), "neither a comma nor the end of a list at byte 129");
    check_int(read_repeated("[", 1000000, ""), ERR_USAGE);
    check_text(error_text(), "JSON nested more than 128 deep at byte 129");
    check_int(read_repeated("{\"a\":", 1000000, ""), ERR_USAGE);
    check_int(read_repeated("[{\"a\":", 65, ""), ERR_USAGE);
    check_text(error_text(), "JSON nested more than 128 deep at byte 385");

    struct arena arena = { 0 };
    struct template_value value;
    char deep[256];
    memset(deep, '[', 128);
    memset(deep + 128, ']', 128);
    check_begin("as deep as is allowed");
    check_int(json_read(&arena, deep, sizeof deep, &value), 0);
    check_int(template_value_depth(&value), 127);
    arena_close(&arena);

    check_begin("how many values");
    check_int(read_repeated("[],", 500000, ""), ERR_USAGE);
    check_text(error_text(), "something behind the JSON value at byte 2");
    struct buffer many = { 0 };
    buffer_add_text(&many, "[");
    for (size_t i = 0; i < JSON_MAX_VALUES; i++)
        buffer_add_text(&many, i ? ",1" : "1");
    buffer_add_text(&many, "]");
    check_int(json_read(&arena, many.bytes, many.size, &value), ERR_USAGE);
    check_text(error_text(), "JSON of more than 2000000 values");
    many.bytes[1] = many.bytes[2] = ' ';
    check_int(json_read(&arena, many.bytes, many.size, &value), 0);
    buffer_release(&many);
    arena_close(&arena);

    check_begin("how long a number");
    char digits[JSON_MAX_NUMBER + 1];
    memset(digits, '7', sizeof digits);
    check_int(json_read(&arena, digits, sizeof digits - 1, &value), 0);
    check_int(json_read(&arena, digits, sizeof digits, &value), ERR_USAGE);
    arena_close(&arena);
}

/* 200,000 keys: comparing each with all would take half an hour. */
static void test_many_keys(void)
{
    struct arena arena = { 0 };
    struct buffer json = { 0 };
    struct template_value value;
    check_begin("an object of many keys");
    buffer_add_text(&json, "{");
    for (int i = 0; i < 200000; i++)
        buffer_printf(&json, "%s\"%d\":%d", i ? "," : "", i * 7919 % 200000, i);
    buffer_add_text(&json, "}");
    if (check_int(json_read(&arena, json.bytes, json.size, &value), 0)) {
        check_int(value.map->n, 200000);
        check_int(template_map_find(value.map, "7919", 4)->number, 1);
    }
    buffer_release(&json);
    arena_close(&arena);
}

int main(void)
{
    test_values();
    test_errors();
    test_limits();
    test_many_keys();
    return check_done();
}
