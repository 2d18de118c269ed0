#include "base/buffer.h"
#include "tests/check.h"
#include "tests/text/golden.h"
#include "text/unicode.h"

#include <string.h>
#include <time.h>

static void check_nfc(const char *name, const char *text, size_t n_bytes, const char *want, size_t n_want)
{
    struct buffer out = { 0 };
    unicode_add_nfc(&out, text, n_bytes);
    check(!out.failed);
    if (check_int(out.size, n_want))
        check_bytes(name, out.bytes, want, n_want);
    buffer_release(&out);
}

static void test_goldens(void)
{
    json_t *golden = golden_load("nfc.json");
    for (size_t i = 0; i < json_array_size(golden); i++) {
        json_t *text = json_array_get(json_array_get(golden, i), 0), *nfc = json_array_get(json_array_get(golden, i), 1);
        check_begin("NFC of text %zu", i);
        check_nfc("composed", json_string_value(text), json_string_length(text), json_string_value(nfc), json_string_length(nfc));
        check_nfc("again", json_string_value(nfc), json_string_length(nfc), json_string_value(nfc), json_string_length(nfc));
    }
    json_decref(golden);
}

/* Bytes that are no UTF-8 stay, and nothing joins them or reaches over them. */
static const struct { const char *name, *text, *want; } rows[] = {
    { "nothing",                         "",                      "" },
    { "a mark alone",                    "\xcc\x81",              "\xcc\x81" },
    { "a mark after a bad byte",         "a\xff\xcc\x81",         "a\xff\xcc\x81" },
    { "a bad byte after what joins",     "e\xcc\x81\xff",         "\xc3\xa9\xff" },
    { "half a character at the end",     "e\xcc\x81\xcc",         "\xc3\xa9\xcc" },
    { "half a character before a mark",  "e\xe4\xb8\xcc\x81",     "e\xe4\xb8\xcc\x81" },
    { "a surrogate",                     "\xed\xa0\x80\xcc\x81",  "\xed\xa0\x80\xcc\x81" },
};

static void test_bad_bytes(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_begin("NFC: %s", rows[i].name);
        check_nfc("bytes", rows[i].text, strlen(rows[i].text), rows[i].want, strlen(rows[i].want));
    }
}

/* One starter with 200,000 marks in the worst of orders. */
static void test_many_marks(void)
{
    struct buffer text = { 0 }, out = { 0 };
    buffer_add_text(&text, "e");
    for (int i = 0; i < 100000; i++)
        buffer_add_text(&text, "\xcc\x81\xcc\xa3");         /* of orders 230 and 220 */
    check_begin("TK-09: NFC of 200,000 marks in near-linear time");
    clock_t start = clock();
    unicode_add_nfc(&out, text.bytes, text.size);
    check((double)(clock() - start) / CLOCKS_PER_SEC < 5);
    check_int(out.size, text.size);                         /* U+1EB9 is three bytes, as were e and the first U+0323 */
    check_bytes("the first", out.bytes, "\xe1\xba\xb9\xcc\xa3", 5);
    buffer_release(&text);
    buffer_release(&out);
}

int main(void)
{
    test_goldens();
    test_bad_bytes();
    test_many_marks();
    return check_done();
}
