/* test_json_out.c: what json_out writes, read back by jansson and compared byte for byte. */
#include "text/json_out.h"
#include "tests/check.h"

/* Three of its names are ours too; the test needs the reader only. */
#define json_object jansson_object
#define json_array jansson_array
#define json_integer jansson_integer
#include <jansson.h>
#undef json_object
#undef json_array
#undef json_integer
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *take(struct buffer *out)
{
    static char text[4096];
    snprintf(text, sizeof text, "%.*s", (int)out->size, out->bytes ? out->bytes : "");
    buffer_release(out);
    return text;
}

static void test_structure(void)
{
    struct buffer out = { 0 };
    struct json_out j = { .to = &out };
    check_begin("objects, arrays and their commas");
    json_object(&j, NULL);
    json_text(&j, "a", "x");
    json_array(&j, "b");
    json_integer(&j, NULL, 1);
    json_integer(&j, NULL, -2);
    json_object(&j, NULL);
    json_end_object(&j);
    json_array(&j, NULL);
    json_end_array(&j);
    json_end_array(&j);
    json_bool(&j, "c", true);
    json_bool(&j, "d", false);
    json_number(&j, "e", 0.5, 9);
    json_end_object(&j);
    check_text(take(&out), "{\"a\": \"x\", \"b\": [1, -2, {}, []], \"c\": true, \"d\": false, \"e\": 0.5}");
    check_begin("integers of 64 bits");
    j = (struct json_out){ .to = &out };
    json_array(&j, NULL);
    json_integer(&j, NULL, INT64_MIN);
    json_integer(&j, NULL, INT64_MAX);
    json_end_array(&j);
    check_text(take(&out), "[-9223372036854775808, 9223372036854775807]");
}

/* Every string goes there and back through a strict reader. */
static void test_text(void)
{
    static const struct { const char *name, *text; size_t n; } rows[] = {
        { "empty", "", 0 }, { "plain", "abc", 3 }, { "quotes and backslashes", "a\"b\\c/", 6 }, { "newline, tab, return", "\n\t\r\b\f", 5 },
        { "all control characters", "\1\2\3\4\5\6\7\x0e\x1f\x7f", 10 }, { "NUL", "a\0b", 3 }, { "two bytes", "\xc3\xa9", 2 }, { "three bytes", "\xe4\xb8\xad", 3 },
        { "four bytes", "\xf0\x9f\x98\x80", 4 }, { "the largest code point", "\xf4\x8f\xbf\xbf", 4 }, { "U+FFFD itself", "\xef\xbf\xbd", 3 },
        { "a line separator", "\xe2\x80\xa8", 3 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer out = { 0 };
        struct json_out j = { .to = &out };
        check_begin("text: %s", rows[i].name);
        json_object(&j, NULL);
        json_bytes(&j, "text", rows[i].text, rows[i].n);
        json_end_object(&j);
        json_error_t error;
        json_t *root = json_loadb(out.bytes, out.size, JSON_ALLOW_NUL, &error);
        if (check(root != NULL)) {
            json_t *text = json_object_get(root, "text");
            check_int(json_string_length(text), rows[i].n);
            check_bytes("text", json_string_value(text), rows[i].text, rows[i].n);
            check(!json_object_get(root, "bytes"));
        }
        json_decref(root);
        buffer_release(&out);
    }
}

static void test_not_utf8(void)
{
#define FFFD "\xef\xbf\xbd"
    static const struct { const char *name, *bytes; size_t n; const char *text, *hex; } rows[] = {
        { "a lone byte", "\xe5", 1, FFFD, "e5" },
        { "a continuation alone", "a\x80z", 3, "a" FFFD "z", "61807a" },
        { "cut after two of three", "x\xe4\xb8", 3, NULL, "78e4b8" },
        { "overlong", "\xc0\xaf", 2, NULL, "c0af" },
        { "a surrogate", "\xed\xa0\x80", 3, NULL, "eda080" },
        { "beyond Unicode", "\xf4\x90\x80\x80", 4, NULL, "f4908080" },
        { "no byte of UTF-8", "\xff\xfe", 2, FFFD FFFD, "fffe" },
        { "good, bad, good", "\xc3\xa9\xff\xc3\xa9", 5, "\xc3\xa9" FFFD "\xc3\xa9", "c3a9ffc3a9" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer out = { 0 };
        struct json_out j = { .to = &out };
        check_begin("not UTF-8: %s", rows[i].name);
        json_object(&j, NULL);
        json_bytes(&j, "text", rows[i].bytes, rows[i].n);
        json_integer(&j, "after", 1);
        json_end_object(&j);
        json_error_t error;
        json_t *root = json_loadb(out.bytes, out.size, 0, &error);     /* strict: the output itself is UTF-8 */
        if (check(root != NULL)) {
            check_text(json_string_value(json_object_get(root, "bytes")), rows[i].hex);
            check(strstr(json_string_value(json_object_get(root, "text")), FFFD) != NULL);
            if (rows[i].text)
                check_text(json_string_value(json_object_get(root, "text")), rows[i].text);
            check_int(json_integer_value(json_object_get(root, "after")), 1);
        }
        json_decref(root);
        buffer_release(&out);
    }
}

static void test_numbers(void)
{
    static const struct { double value; int digits; const char *want; } rows[] = {
        { 0, 9, "0" }, { -0.0, 9, "-0" }, { 1, 9, "1" }, { 17.25, 9, "17.25" }, { 1.0 / 3, 9, "0.333333333" }, { 123456789.123, 9, "123456789" },
        { 1e300, 6, "1e+300" }, { 1e-7, 9, "1e-07" }, { (double)NAN, 9, "null" }, { (double)INFINITY, 9, "null" }, { -(double)INFINITY, 9, "null" },
    };
    check_begin("numbers");
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct buffer out = { 0 };
        struct json_out j = { .to = &out };
        json_number(&j, NULL, rows[i].value, rows[i].digits);
        check_text(take(&out), rows[i].want);
    }
    check_begin("9 digits give a float back");
    for (uint32_t bits = 1; bits < 0x7f000000u; bits += 0x12345u) {
        union { uint32_t u; float f; } v = { .u = bits };
        struct buffer out = { 0 };
        struct json_out j = { .to = &out };
        json_number(&j, NULL, v.f, 9);
        check(strtof(take(&out), NULL) == v.f);
    }
}

int main(void)
{
    test_structure();
    test_text();
    test_not_utf8();
    test_numbers();
    return check_done();
}
