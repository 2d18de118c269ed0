#include "base/error.h"
#include "format/gguf.h"
#include "format/model_file.h"
#include "tests/check.h"
#include "tests/format/gguf_writer.h"

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#ifdef __SANITIZE_ADDRESS__             /* gcc */
#define ADDRESS_SANITIZER 1
#else
#define ADDRESS_SANITIZER __has_feature(address_sanitizer)
#endif

/* Value types and tensor types by their number, for the tables. */
#define U8 "w:0 "
#define I8 "w:1 "
#define U16 "w:2 "
#define I16 "w:3 "
#define U32 "w:4 "
#define I32 "w:5 "
#define F32 "w:6 "
#define BOOL "w:7 "
#define STRING "w:8 "
#define ARRAY "w:9 "
#define U64 "w:10 "
#define I64 "w:11 "
#define F64 "w:12 "
#define V3 "GGUF w:3 "
#define HEAD(n_tensors, n_keys) V3 "q:" #n_tensors " q:" #n_keys " "
#define ARCH "s:general.architecture " STRING "s:llama "
#define TENSOR_F32(name, n, offset) "s:" name " w:1 q:" #n " w:0 q:" #offset " "
#define END "a:32 "

static const char every_type[] =
    HEAD(4, 20) ARCH
    "s:u8 " U8 "b:200 " "s:i8 " I8 "b:-3 " "s:u16 " U16 "h:60000 " "s:i16 " I16 "h:-300 "
    "s:u32 " U32 "w:4000000000 " "s:i32 " I32 "w:-70000 " "s:u64 " U64 "q:0xffffffffffffffff " "s:i64 " I64 "q:5000000000 "
    "s:f32 " F32 "f:0.1 " "s:f64 " F64 "q:0x3fd0000000000000 " "s:nan " F32 "w:0x7fc00000 " "s:huge " F64 "q:0x7fe0000000000000 "
    "s:yes " BOOL "b:1 " "s:no " BOOL "b:0 "
    "s:words " ARRAY STRING "q:3 s:one s: s:three " "s:scores " ARRAY F32 "q:2 f:-1 f:2.5 "
    "s:types " ARRAY I32 "q:3 w:1 w:-2 w:3 " "s:wide " ARRAY U32 "q:2 w:1 w:0x80000000 "
    "s:flags " ARRAY BOOL "q:2 b:1 b:0 "
    "s:matrix w:2 q:4 q:2 w:0 q:0 " "s:q8 w:2 q:32 q:1 w:8 q:32 " "s:q4_1 w:1 q:32 w:3 q:96 " "s:ids w:4 q:1 q:2 q:1 q:1 w:26 q:128 "
    END "r:32 r:34 " END "r:20 " END "r:8";

/* Writes and opens.  The file's name is known to the tests: errors carry it. */

static char folder[] = "/tmp/stoa-test-XXXXXX", path[64];

static void write_file(const char *name, const void *bytes, size_t n_bytes)
{
    FILE *f = fopen(name, "wb");
    if (!f || (n_bytes && fwrite(bytes, 1, n_bytes, f) != n_bytes) || fclose(f)) {
        perror(name);
        exit(1);
    }
}

static int open_bytes(struct model_file **file, const void *bytes, size_t n_bytes)
{
    write_file(path, bytes, n_bytes);
    *file = NULL;
    return model_file_open(file, path);
}

static int open_line(struct model_file **file, const char *line)
{
    struct buffer buffer = { 0 };
    gguf_write(&buffer, line);
    int err = open_bytes(file, buffer.bytes, buffer.size);
    buffer_release(&buffer);
    return err;
}

static bool says(const char *what)
{
    if (strstr(error_text(), what))
        return true;
    return check_text(error_text(), what);
}

/* Reads what an open file promises: the ends of every tensor, every kind of getter. */
static unsigned touch(const struct model_file *file)
{
    static const char *const keys[] = { "general.architecture", "u8", "words", "scores", "types", "flags", "f32", "yes" };
    unsigned sum = 0;
    for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct model_tensor *t = model_file_tensor_at(file, i);
        const uint8_t *data = t->data;
        check(model_file_tensor(file, t->name) == t);
        sum += data[0] + data[t->n_bytes - 1];
    }
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        uint64_t u; float f; bool b; const char *text; size_t n; struct model_strings strings; const float *f32s; const int32_t *i32s;
        sum += model_file_get_u64(file, keys[i], &u) + model_file_get_f32(file, keys[i], &f) + model_file_get_bool(file, keys[i], &b);
        if (model_file_get_string(file, keys[i], &text, &n))
            sum += (unsigned)strlen(text);
        if (model_file_get_strings(file, keys[i], &strings) && strings.n)
            sum += (unsigned)strings.offset[strings.n] + (unsigned char)strings.text[strings.offset[strings.n]];
        if (model_file_get_f32s(file, keys[i], &f32s, &n) && n)
            sum += f32s[n - 1] > 0;
        if (model_file_get_i32s(file, keys[i], &i32s, &n) && n)
            sum += i32s[n - 1] > 0;
    }
    return sum;
}

static void test_tensors(void)
{
    struct model_file *file;
    const uint64_t dims[4] = { 4, 2, 1, 1 };
    check_begin("tensors: shape, bytes, order, lookup");
    if (!check_int(open_line(&file, every_type), 0)) {
        puts(error_text());
        return;
    }
    const struct model_tensor *matrix = model_file_tensor_at(file, 0), *q4_1 = model_file_tensor(file, "q4_1");
    check_int(model_file_n_tensors(file), 4);
    check_text(matrix->name, "matrix");
    check_int(matrix->type, DTYPE_F32);
    check_int(matrix->n_dims, 2);
    check_bytes("dims", matrix->dims, dims, sizeof dims);
    check_int(matrix->n_bytes, 32);
    check_int(((const uint8_t *)matrix->data)[31], (31 * 37 + 11) & 255);
    check(q4_1 == model_file_tensor_at(file, 2));
    check_int(q4_1->n_bytes, 20);
    check_int(((const uint8_t *)q4_1->data)[0], 11);
    check_int(model_file_tensor(file, "ids")->type, DTYPE_I32);
    check(model_file_tensor(file, "matri") == NULL);
    check_text(model_file_path(file), path);
    struct stat st;
    check(!stat(path, &st) && (size_t)st.st_size == model_file_bytes(file));
    for (uint64_t i = 0; i < 4; i++)
        model_file_drop_pages(file, model_file_tensor_at(file, i)->data, model_file_tensor_at(file, i)->n_bytes);
    touch(file);
    model_file_close(file);
    model_file_close(NULL);
}

static void test_numbers(void)
{
    struct model_file *file;
    check_begin("numbers: any integer type serves, what does not fit is refused");
    if (!check_int(open_line(&file, every_type), 0))
        return;
    static const struct { const char *key; bool u64, f32; uint64_t u; double f; } rows[] = {
        { "u8", true, true, 200, 200 },             { "i8", false, true, 0, -3 },
        { "u16", true, true, 60000, 60000 },        { "i16", false, true, 0, -300 },
        { "u32", true, true, 4000000000, 4e9 },     { "i32", false, true, 0, -70000 },
        { "u64", true, true, UINT64_MAX, 0x1p64 },  { "i64", true, true, 5000000000, 5e9 },
        { "f32", false, true, 0, 0.1f },            { "f64", false, true, 0, 0.25 },
        { "nan", false, false, 0, 0 },              { "huge", false, false, 0, 0 },
        { "yes", false, false, 0, 0 },              { "words", false, false, 0, 0 },
        { "types", false, false, 0, 0 },            { "general.architecture", false, false, 0, 0 },
        { "absent", false, false, 0, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint64_t u = 77;
        float f = 77;
        check_begin("number %s", rows[i].key);
        check_int(model_file_get_u64(file, rows[i].key, &u), rows[i].u64);
        check_int(model_file_get_f32(file, rows[i].key, &f), rows[i].f32);
        check(u == (rows[i].u64 ? rows[i].u : 77));
        check((double)f == (rows[i].f32 ? rows[i].f : 77));
    }
    bool b;
    check_begin("bools");
    check(model_file_get_bool(file, "yes", &b) && b);
    check(model_file_get_bool(file, "no", &b) && !b);
    check(!model_file_get_bool(file, "u8", &b) && !model_file_get_bool(file, "flags", &b));
    model_file_close(file);
}

static void test_strings_and_arrays(void)
{
    struct model_file *file;
    struct model_strings words;
    const char *text;
    const float *f32s;
    const int32_t *i32s;
    size_t n;
    check_begin("strings and arrays");
    if (!check_int(open_line(&file, every_type), 0))
        return;
    check(model_file_get_string(file, "general.architecture", &text, &n) && n == 5 && !strcmp(text, "llama"));
    check(!model_file_get_string(file, "words", &text, NULL) && !model_file_get_strings(file, "general.architecture", &words));
    if (check(model_file_get_strings(file, "words", &words) && words.n == 3)) {
        check_int(words.offset[1], 3);
        check_int(words.offset[2], 3);
        check_int(words.offset[3], 8);
        check_text(words.text, "onethree");
    }
    check(model_file_get_f32s(file, "scores", &f32s, &n) && n == 2 && f32s[0] == -1 && f32s[1] == 2.5f);
    check(model_file_get_i32s(file, "types", &i32s, &n) && n == 3 && i32s[0] == 1 && i32s[1] == -2 && i32s[2] == 3);
    check(model_file_get_f32s(file, "types", &f32s, &n) && n == 3 && f32s[1] == -2);
    check(model_file_get_f32s(file, "wide", &f32s, &n) && f32s[1] == 0x1p31f);
    check(model_file_get_i32s(file, "flags", &i32s, &n) && n == 2 && i32s[0] == 1 && i32s[1] == 0);
    check(!model_file_get_i32s(file, "wide", &i32s, &n) && !model_file_get_i32s(file, "scores", &i32s, &n));
    check(!model_file_get_f32s(file, "f32", &f32s, &n) && !model_file_get_f32s(file, "flags", &f32s, &n));
    model_file_close(file);
}

static void test_require(void)
{
    struct model_file *file;
    const char *text;
    uint64_t u;
    float f;
    check_begin("require says what is there instead");
    if (!check_int(open_line(&file, every_type), 0))
        return;
    check_int(model_file_require_u64(file, "u8", 1, 200, &u), 0);
    check_int(model_file_require_u64(file, "u8", 1, 199, &u), ERR_BAD_FILE);
    check(says(".gguf: u8: wanted an integer from 1 to 199, found 200 (u8)"));
    check_int(model_file_require_u64(file, "i8", 0, 9, &u), ERR_BAD_FILE);
    check(says("found -3 (i8)"));
    check_int(model_file_require_u64(file, "words", 0, 9, &u), ERR_BAD_FILE);
    check(says("words: wanted an integer from 0 to 9, found an array of string"));
    check_int(model_file_require_f32(file, "absent", &f), ERR_BAD_FILE);
    check(says("absent: missing"));
    check_int(model_file_require_f32(file, "nan", &f), ERR_BAD_FILE);
    check(says("nan: wanted a finite number, found nan (f32)"));
    check_int(model_file_require_string(file, "f64", &text, NULL), ERR_BAD_FILE);
    check(says("f64: wanted a string, found 0.25 (f64)"));
    model_file_close(file);
}

static const struct { const char *name, *culprit, *line; } bad_rows[] = {
    { "nothing at all", "empty", "" },
    { "three bytes", "GGUF", "x:GGU" },
    { "another format", "GGUF", "x:PK q:0 q:0 q:0" },
    { "the magic alone", "header", "GGUF" },
    { "version 1", "version 1", "GGUF w:1 q:0 q:0" },
    { "version 4", "version 4", "GGUF w:4 q:0 q:0" },
    { "big-endian", "big-endian", "GGUF w:0x03000000 q:0 q:0" },
    { "GL-03: 2^32 keys in 24 bytes", "4294967296 keys", HEAD(0, 4294967296) },
    { "GL-03: 2^32 keys and tensors in 24 bytes", "4294967296 tensors", HEAD(4294967296, 4294967296) },
    { "2^64 - 1 keys", "18446744073709551615 keys", HEAD(0, 0xffffffffffffffff) "z:64" },
    { "GL-03: 2^63 tensors", "tensors", HEAD(0x8000000000000000, 0) "z:64" },
    { "GL-04: a key's length is 2^47", "key 1 of 1", HEAD(0, 1) "q:0x800000000000 z:24" },
    { "a key's length is 2^64 - 1", "key 1 of 1", HEAD(0, 1) "q:0xffffffffffffffff z:24" },
    { "a key of 65536 bytes", "65536 bytes", HEAD(0, 1) "q:65536 r:65536 " U8 "b:1" },
    { "GL-07: an empty key", "key 1 of 1", HEAD(0, 1) "s: " U32 "w:1 z:8" },
    { "a key with a zero byte", "ab\\x00", HEAD(0, 1) "q:4 x:ab b:0 x:c " U32 "w:1" },
    { "a key with control codes shows them", "\\x1b[2Jk: ", HEAD(0, 1) "q:5 b:27 x:[2Jk " "w:99 w:0" },
    { "GL-07: a key that comes twice", "twin: ", HEAD(0, 3) "s:twin " U32 "w:1 " ARCH "s:twin " U32 "w:1" },
    { "value type 13", "k: value type 13", HEAD(0, 1) "s:k w:13 q:0" },
    { "GL-06: an array of element type 200", "k: value type 200", HEAD(0, 2) "s:k " ARRAY "w:200 q:0 " ARCH },
    { "GL-06: an array of arrays", "k: arrays of arrays", HEAD(0, 2) "s:k " ARRAY ARRAY "q:1 " U8 "q:1 b:1 " ARCH },
    { "a bool of 2", "k: a bool is 2", HEAD(0, 1) "s:k " BOOL "b:2 z:8" },
    { "an array of bools with a 255", "k: a bool is 255", HEAD(0, 1) "s:k " ARRAY BOOL "q:2 b:1 b:255" },
    { "GL-05: 2^60 strings", "k: claims 1152921504606846976 strings", HEAD(0, 1) "s:k " ARRAY STRING "q:0x1000000000000000 z:64" },
    { "GL-05: 2^60 bytes", "k: claims 1152921504606846976 elements", HEAD(0, 1) "s:k " ARRAY U8 "q:0x1000000000000000 z:64" },
    { "GL-05: 2^61 f64: the product wraps", "k: claims", HEAD(0, 1) "s:k " ARRAY F64 "q:0x2000000000000000 z:64" },
    { "GL-05: a string of 2^63 bytes", "k: needs 9223372036854775808 bytes", HEAD(0, 1) "s:k " STRING "q:0x8000000000000000 z:64" },
    { "a string in an array is cut", "k: needs 9 bytes", HEAD(0, 1) "s:k " ARRAY STRING "q:2 s:abcdefgh q:9 z:8" },
    { "GL-11: alignment is an i32", "general.alignment: wanted a u32, found i32", HEAD(0, 1) "s:general.alignment " I32 "w:32" },
    { "GL-11: alignment is a string", "general.alignment: wanted a u32, found string", HEAD(0, 1) "s:general.alignment " STRING "s:32" },
    { "GL-11: alignment is an array", "general.alignment", HEAD(0, 1) "s:general.alignment " ARRAY U32 "q:1 w:32" },
    { "GL-11: alignment is 0", "general.alignment", HEAD(0, 1) "s:general.alignment " U32 "w:0" },
    { "GL-11: alignment is 3", "general.alignment", HEAD(0, 1) "s:general.alignment " U32 "w:3" },
    { "GL-11: alignment is 4", "general.alignment", HEAD(0, 1) "s:general.alignment " U32 "w:4" },
    { "GL-11: alignment is 48", "general.alignment", HEAD(0, 1) "s:general.alignment " U32 "w:48" },
    { "GL-11: alignment is 2^31", "general.alignment", HEAD(0, 1) "s:general.alignment " U32 "w:0x80000000" },
    { "a tensor without a name", "tensor 1 of 1", HEAD(1, 0) TENSOR_F32("", 8, 0) END "z:32" },
    { "a tensor that comes twice", "tensor t: the name appears twice", HEAD(2, 0) TENSOR_F32("t", 8, 0) TENSOR_F32("t", 8, 32) END "z:64" },
    { "GL-08: 0 dims", "tensor t: has 0 dims", HEAD(1, 0) "s:t w:0 w:0 q:0 " END "z:64" },
    { "5 dims", "tensor t: has 5 dims", HEAD(1, 0) "s:t w:5 q:1 q:1 q:1 q:1 q:1 w:0 q:0 " END "z:64" },
    { "GL-08: 9 dims", "tensor t: has 9 dims", HEAD(1, 0) "s:t w:9 q:1 q:1 q:1 q:1 q:1 q:1 q:1 q:1 q:1 w:0 q:0 " END "z:64" },
    { "GL-08: 2^31 dims", "tensor t: has 2147483648 dims", HEAD(1, 0) "s:t w:0x80000000 q:1 w:0 q:0 " END "z:64" },
    { "a dim of 0", "tensor t: dim 1 is 0", HEAD(1, 0) "s:t w:2 q:4 q:0 w:0 q:0 " END "z:64" },
    { "GL-09: a negative dim", "tensor t: dim 0", HEAD(1, 0) "s:t w:1 q:-4 w:0 q:0 " END "z:64" },
    { "GL-09: dims whose product wraps to 12", "tensor t: dim 2", HEAD(1, 0) "s:t w:3 q:4 q:2147483647 q:2147483649 w:0 q:0 " END "z:64" },
    { "two negative dims", "tensor t: dim 0", HEAD(1, 0) "s:t w:2 q:-1 q:-1 w:0 q:0 " END "z:64" },
    { "GL-09: a dim of 2^42 + 1", "tensor t: needs 17592186044420 bytes", HEAD(1, 0) "s:t w:1 q:0x40000000001 w:0 q:0 " END "z:64" },
    { "2^62 f32: the bytes wrap", "tensor t: 4611686018427387904 elements", HEAD(1, 0) "s:t w:1 q:0x4000000000000000 w:0 q:0 " END "z:64" },
    { "Q8_K", "tensor t: type Q8_K is not supported", HEAD(1, 0) "s:t w:1 q:256 w:15 q:0 " END "z:292" },
    { "a type that was taken out of ggml", "tensor t: type 4 is unknown", HEAD(1, 0) "s:t w:1 q:32 w:4 q:0 " END "z:64" },
    { "type 2^32 - 1", "tensor t: type 4294967295 is unknown", HEAD(1, 0) "s:t w:1 q:32 w:0xffffffff q:0 " END "z:64" },
    { "half a block in a row", "tensor t: a row of 48", HEAD(1, 0) "s:t w:2 q:48 q:2 w:2 q:0 " END "z:64" },
    { "an offset off the alignment", "tensor t: offset 16", HEAD(1, 0) TENSOR_F32("t", 4, 16) END "z:64" },
    { "an offset after the end", "tensor t: needs 16 bytes at byte 96 of the data, the file has 64", HEAD(1, 0) TENSOR_F32("t", 4, 96) END "z:64" },
    { "an offset that wraps", "tensor t: needs", HEAD(1, 0) TENSOR_F32("t", 4, 0xffffffffffffffe0) END "z:64" },
    { "GL-01: the second of three is cut off", "tensor b: needs", HEAD(3, 0) TENSOR_F32("a", 8, 0) TENSOR_F32("b", 8, 32) TENSOR_F32("c", 8, 64) END "z:63" },
    { "GL-01: no data at all", "tensor t: needs", HEAD(1, 0) TENSOR_F32("t", 4, 0) },
    { "one inside another", "tensor b: its bytes overlap those of a", HEAD(2, 0) TENSOR_F32("b", 4, 32) TENSOR_F32("a", 32, 0) END "z:128" },
    { "two at one place", "overlap", HEAD(2, 0) TENSOR_F32("a", 4, 0) TENSOR_F32("b", 4, 0) END "z:128" },
    { "the second part is no model", "part 2 of 3", HEAD(0, 2) "s:split.no " U16 "h:1 s:split.count " U16 "h:3" },
    { "part 3 of 2", "split.no", HEAD(0, 2) "s:split.no " U16 "h:2 s:split.count " U16 "h:2" },
    { "2^31 - 1 parts", "split.count", HEAD(0, 1) "s:split.count " U32 "w:0x7fffffff" },
    { "-1 parts", "split.count", HEAD(0, 1) "s:split.count " I32 "w:-1" },
    { "a first part with another name", "-00001-of-00003.gguf", HEAD(0, 1) "s:split.count " U16 "h:3" },
};

/* Of the CPU: others may have it meanwhile. */
static double seconds(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) + 1e-6 * (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec);
}

static void test_bad_files(void)
{
    for (size_t i = 0; i < COUNT_OF(bad_rows); i++) {
        struct model_file *file;
        struct rusage before, after;
        check_begin("refused: %s", bad_rows[i].name);
        getrusage(RUSAGE_SELF, &before);
        check_int(open_line(&file, bad_rows[i].line), ERR_BAD_FILE);
        getrusage(RUSAGE_SELF, &after);
        check(seconds(&after) - seconds(&before) < 0.1);
        check(after.ru_maxrss - before.ru_maxrss < 4096);       /* KiB */
        check(!file);
        check(says(path));
        check(says(bad_rows[i].culprit));
        model_file_close(file);
    }
}

static const struct { const char *name, *line; } good_rows[] = {
    { "no keys, no tensors", HEAD(0, 0) },
    { "version 2", "GGUF w:2 q:0 q:1 " ARCH },
    { "every type", every_type },
    { "alignment 8", HEAD(2, 1) "s:general.alignment " U32 "w:8 " TENSOR_F32("a", 2, 0) TENSOR_F32("b", 2, 8) "a:8 z:16" },
    { "GL-11: no alignment is 32; data not in the table's order, with a gap", HEAD(2, 0) TENSOR_F32("b", 4, 64) TENSOR_F32("a", 4, 0) END "z:80" },
    { "one part of one", HEAD(1, 2) "s:split.no " U16 "h:0 s:split.count " U16 "h:1 " TENSOR_F32("t", 4, 0) END "z:16" },
    { "empty arrays", HEAD(0, 3) "s:a " ARRAY U8 "q:0 s:words " ARRAY STRING "q:0 s:types " ARRAY I32 "q:0 " },
};

static void test_good_files(void)
{
    for (size_t i = 0; i < COUNT_OF(good_rows); i++) {
        struct model_file *file;
        check_begin("accepted: %s", good_rows[i].name);
        if (!check_int(open_line(&file, good_rows[i].line), 0))
            puts(error_text());
        else
            touch(file);
        model_file_close(file);
    }
}

static void test_paths(void)
{
    struct model_file *file = NULL;
    char other[128];
    check_begin("paths that are no model: absent, a folder, a FIFO, a device");
    snprintf(other, sizeof other, "%s/absent", folder);
    check_int(model_file_open(&file, other), ERR_BAD_FILE);
    check(says(other));
    check_int(model_file_open(&file, folder), ERR_BAD_FILE);
    check(says("is a directory"));
    snprintf(other, sizeof other, "%s/fifo", folder);
    check(!mkfifo(other, 0600));
    check_int(model_file_open(&file, other), ERR_BAD_FILE);
    check(says("fifo: is not a regular file"));
    unlink(other);
    check_int(model_file_open(&file, "/dev/zero"), ERR_BAD_FILE);
    check(says("/dev/zero"));
    check(!file);
}

/* Parses a copy that ends where its allocation ends: behind a mapping there is the rest of a page, which no checker guards. */
static int parse_copy(const void *bytes, size_t n_bytes)
{
    struct arena arena = { 0 };
    struct gguf gguf;
    void *copy = malloc(n_bytes ? n_bytes : 1);
    if (n_bytes)
        memcpy(copy, bytes, n_bytes);
    int err = gguf_parse(&gguf, &arena, copy, n_bytes);
    if (!err)
        err = gguf_copy_out(&gguf, &arena);
    free(copy);
    arena_close(&arena);
    return err;
}

/* A file that ends early says so, wherever it ends. */
static void test_cuts(void)
{
    struct buffer whole = { 0 };
    struct model_file *file;
    gguf_write(&whole, every_type);
    check_begin("GL-01: cut at each of %zu bytes", whole.size);
    for (size_t n = 0; n < whole.size; n++) {
        if (!check_int(open_bytes(&file, whole.bytes, n), ERR_BAD_FILE))
            printf("  cut at byte %zu\n", n);
        model_file_close(file);
        check_int(parse_copy(whole.bytes, n), ERR_BAD_FILE);
    }
    check_int(open_bytes(&file, whole.bytes, whole.size), 0);
    model_file_close(file);
    buffer_release(&whole);
}

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void test_flips(void)
{
    struct buffer whole = { 0 }, copy = { 0 };
    uint64_t state = 1;
    size_t n_opened = 0;
    gguf_write(&whole, every_type);
    check_begin("5000 files with 1 to 4 bytes changed, seed 1");
    for (int round = 0; round < 5000; round++) {
        struct model_file *file;
        copy.size = 0;
        buffer_add(&copy, whole.bytes, whole.size);
        for (uint64_t n = 1 + random_next(&state) % 4; n; n--) {
            uint64_t draw = random_next(&state);
            copy.bytes[(draw >> 16) % copy.size] ^= (char)(draw & 1 ? UINT64_C(1) << (draw >> 1 & 7) : draw >> 8);
        }
        int err = open_bytes(&file, copy.bytes, copy.size);
        if (!check(err == 0 || err == ERR_BAD_FILE))
            printf("  round %d\n", round);
        if (!err)
            n_opened++, touch(file);
        model_file_close(file);
        check_int(parse_copy(copy.bytes, copy.size), err);
    }
    check(n_opened > 100 && n_opened < 4900);
    buffer_release(&whole);
    buffer_release(&copy);
}

static void test_digest(void)
{
    static const struct { const char *name, *line; bool same; } rows[] = {
        { "itself", HEAD(1, 1) "s:k " U8 "b:1 " TENSOR_F32("t", 4, 0) END "z:16", true },
        { "other tensor data", HEAD(1, 1) "s:k " U8 "b:1 " TENSOR_F32("t", 4, 0) END "r:16", true },
        { "another value", HEAD(1, 1) "s:k " U8 "b:2 " TENSOR_F32("t", 4, 0) END "z:16", false },
        { "another shape", HEAD(1, 1) "s:k " U8 "b:1 " TENSOR_F32("t", 3, 0) END "z:16", false },
    };
    struct model_file *file;
    uint64_t first = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("digest: %s", rows[i].name);
        if (!check_int(open_line(&file, rows[i].line), 0))
            continue;
        if (i == 0)
            first = model_file_digest(file);
        check((model_file_digest(file) == first) == rows[i].same);
        model_file_close(file);
    }
    check_int(first, 0x7dbced2b4b8838ce);       /* the same on every machine */
}

/* Three parts; `line` takes the place of part `no`, or "" removes it. */
static int open_split(struct model_file **file, int no, const char *line)
{
    static const char *const parts[3] = {
        HEAD(1, 4) ARCH "s:split.no " U16 "h:0 s:split.count " U16 "h:3 s:split.tensors.count " I32 "w:3 " TENSOR_F32("a", 4, 0) END "r:16",
        HEAD(1, 3) "s:split.no " U16 "h:1 s:split.count " U16 "h:3 s:split.tensors.count " I32 "w:3 " TENSOR_F32("b", 4, 0) END "r:16",
        HEAD(1, 3) "s:split.no " U16 "h:2 s:split.count " U16 "h:3 s:split.tensors.count " I32 "w:3 " TENSOR_F32("c", 8, 0) END "r:32",
    };
    char name[128];
    for (int i = 2; i >= 0; i--) {
        struct buffer buffer = { 0 };
        snprintf(name, sizeof name, "%s/split-%05d-of-00003.gguf", folder, i + 1);
        gguf_write(&buffer, i == no ? line : parts[i]);
        write_file(name, buffer.bytes, buffer.size);
        if (!buffer.size)
            unlink(name);
        buffer_release(&buffer);
    }
    *file = NULL;
    return model_file_open(file, name);
}

static void test_split(void)
{
    struct model_file *file;
    char name[128];
    check_begin("three parts are one model");
    if (check_int(open_split(&file, -1, NULL), 0)) {
        check_int(model_file_n_tensors(file), 3);
        check_text(model_file_tensor_at(file, 2)->name, "c");
        check_int(model_file_tensor(file, "c")->n_bytes, 32);
        model_file_drop_pages(file, model_file_tensor(file, "b")->data, model_file_tensor(file, "b")->n_bytes);
        touch(file);
    }
    model_file_close(file);

    check_begin("the second part alone");
    snprintf(name, sizeof name, "%s/split-00002-of-00003.gguf", folder);
    file = NULL;
    check_int(model_file_open(&file, name), ERR_BAD_FILE);
    check(says("split.no: this is part 2 of 3") && !file);

    static const struct { const char *name; int no; const char *line, *culprit; } rows[] = {
        { "a part is missing", 1, "", "split-00002-of-00003.gguf" },
        { "a part is cut", 2, HEAD(1, 3) "s:split.no " U16 "h:2 s:split.count " U16, "split-00003-of-00003.gguf: split.count" },
        { "a part is another's", 1, HEAD(0, 2) "s:split.no " U16 "h:2 s:split.count " U16 "h:3", "split-00002-of-00003.gguf: split.no: wanted 1, found 2" },
        { "a part of another count", 1, HEAD(0, 2) "s:split.no " U16 "h:1 s:split.count " U16 "h:4", "split.count: wanted 3, found 4" },
        { "too few tensors", 1, HEAD(0, 2) "s:split.no " U16 "h:1 s:split.count " U16 "h:3", "split.tensors.count" },
        { "a tensor in two parts", 1, HEAD(1, 2) "s:split.no " U16 "h:1 s:split.count " U16 "h:3 " TENSOR_F32("c", 4, 0) END "r:16", "tensor c" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_begin("split: %s", rows[i].name);
        check_int(open_split(&file, rows[i].no, rows[i].line), ERR_BAD_FILE);
        check(says(rows[i].culprit) && !file);
        model_file_close(file);
    }
    for (int i = 1; i <= 3; i++) {
        snprintf(name, sizeof name, "%s/split-%05d-of-00003.gguf", folder, i);
        unlink(name);
    }
}

/* In a child with `spare` bytes of address space: 0 when the file opened, 1 when memory was out, 2 else. */
static int open_with_memory(size_t spare)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct model_file *file;
        unsigned long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%lu", &pages) != 1)
            _exit(2);
        fclose(f);
        rlim_t limit = pages * (size_t)sysconf(_SC_PAGESIZE) + spare;
        setrlimit(RLIMIT_AS, &(struct rlimit){ limit, limit });
        int err = model_file_open(&file, path);
        _exit(err == 0 ? 0 : err == ERR_NO_MEMORY && *error_text() ? 1 : 2);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static void test_no_memory(void)
{
    struct buffer buffer = { 0 };
    int n_failed = 0, last = 1;
    check_begin("memory that runs out anywhere is ERR_NO_MEMORY");
    gguf_write(&buffer, HEAD(0, 3) "s:strings " ARRAY STRING "q:100000 z:800000 s:bytes " ARRAY U8 "q:300000 z:300000 s:text " STRING "q:500000 z:500000");
    write_file(path, buffer.bytes, buffer.size);
    buffer_release(&buffer);
    for (size_t spare = 0; spare < (size_t)8 << 20; spare += 1 << 18) {
        last = open_with_memory(spare);
        check(last == 0 || last == 1);
        n_failed += last == 1;
    }
    check_int(last, 0);
    check(n_failed > 8);
}

/* `test_model_file --seeds FOLDER` writes the valid files there instead, as seeds for the fuzzer. */
static int write_seeds(const char *to)
{
    char name[256];
    for (size_t i = 0; i < COUNT_OF(good_rows); i++) {
        struct buffer buffer = { 0 };
        snprintf(name, sizeof name, "%s/%zu.gguf", to, i);
        gguf_write(&buffer, good_rows[i].line);
        write_file(name, buffer.bytes, buffer.size);
        buffer_release(&buffer);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--seeds"))
        return write_seeds(argv[2]);
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    test_tensors();
    test_numbers();
    test_strings_and_arrays();
    test_require();
    test_good_files();
    test_bad_files();
    test_paths();
    test_cuts();
    test_flips();
    test_digest();
    test_split();
    if (!ADDRESS_SANITIZER)     /* it needs the address space that this test takes away */
        test_no_memory();
    unlink(path);
    rmdir(folder);
    return check_done();
}
