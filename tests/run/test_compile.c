/* test_compile.c: what the flags call passes. */
#include "base/base.h"
#include "base/error.h"
#include "run/compile.h"
#include "tests/check.h"

#include <string.h>

#define BIT(pass) (1u << (pass))
#define FUSE (BIT(PASS_FUSE_MATMULS) | BIT(PASS_FUSE_EPILOGUES) | BIT(PASS_FUSE_ROWS) | BIT(PASS_FUSE_PROLOGUES))

static void test_without(void)
{
    static const struct { const char *names; unsigned mask; const char *error; } rows[] = {
        { NULL,                         0,                                           NULL },
        { "",                           0,                                           NULL },
        { "simplify",                   BIT(PASS_SIMPLIFY),                          NULL },
        { "fuse",                       FUSE,                                        NULL },
        { "fuse_rows",                  BIT(PASS_FUSE_ROWS),                         NULL },
        { "place,fuse_epilogues",       BIT(PASS_PLACE) | BIT(PASS_FUSE_EPILOGUES),  NULL },
        { "fuse_matmuls,fuse_epilogues,fuse_rows,fuse_prologues", FUSE,              NULL },
        { "overlap,",                   BIT(PASS_OVERLAP),                           NULL },
        { "shard",                      0,                                           "cannot be left out" },
        { "simplify,build",             0,                                           "cannot be left out" },
        { "fus",                        0,                                           "there is no pass \"fus\"" },
        { "fuse_row",                   0,                                           "there is no pass \"fuse_row\"" },
        { "place,nothing,overlap",      0,                                           "there is no pass \"nothing\"" },
        { "place,,overlap",             0,                                           "there is no pass \"\"" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        unsigned mask = 0;
        check_begin("--without %s", rows[i].names ? rows[i].names : "(not given)");
        int err = pass_parse_without(&mask, rows[i].names);
        check_int(err, rows[i].error ? ERR_USAGE : 0);
        if (rows[i].error)
            check(strstr(error_text(), rows[i].error) != NULL);
        else
            check_int(mask, rows[i].mask);
    }
}

static void test_after(void)
{
    static const struct { const char *name; int pass; } rows[] = {
        { "build", PASS_BUILD }, { "shard", PASS_SHARD }, { "fuse", PASS_FUSE_PROLOGUES }, { "fuse_matmuls", PASS_FUSE_MATMULS },
        { "place", PASS_PLACE }, { "nothing", -1 }, { "", -1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        enum pass pass = PASS_BUILD;
        check_begin("--after %s", rows[i].name);
        check_int(pass_find(&pass, rows[i].name), rows[i].pass < 0 ? ERR_USAGE : 0);
        if (rows[i].pass >= 0)
            check_int(pass, rows[i].pass);
    }
}

int main(void)
{
    test_without();
    test_after();
    return check_done();
}
