/* test_mesh.c: layouts as users type them, and the grid that they mean. */
#include "graph/mesh.h"
#include "base/error.h"
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

static const struct { const char *layout, *shares, *stages; uint32_t pp, tp; const char *printed; } good[] = {
    { NULL,            NULL,    NULL,      1, 1,    "tp=1" },
    { "",              NULL,    NULL,      1, 1,    "tp=1" },
    { "tp=1",          NULL,    NULL,      1, 1,    "tp=1" },
    { "tp=8",          NULL,    NULL,      1, 8,    "tp=8" },
    { "tp=2,pp=3",     NULL,    NULL,      3, 2,    "pp=3,tp=2" },
    { "dp=1,pp=2,cp=1,tp=2,ep=1", NULL, NULL, 2, 2, "pp=2,tp=2" },
    { "tp=2",          "5,3",   NULL,      1, 2,    "tp=2" },
    { "pp=2,tp=3",     "0,1,7", "1,29",    2, 3,    "pp=2,tp=3" },
    { "pp=32,tp=32",   NULL,    NULL,      32, 32,  "pp=32,tp=32" },
};

static const struct { const char *layout, *shares, *stages, *word; } bad[] = {
    { "tp",           NULL,    NULL,   "tp" },
    { "tp=",          NULL,    NULL,   "tp" },
    { "tp=0",         NULL,    NULL,   "tp" },
    { "tp=-2",        NULL,    NULL,   "tp" },
    { "tp= 2",        NULL,    NULL,   "tp" },
    { "tp=2x",        NULL,    NULL,   "tp" },
    { "tp=2.5",       NULL,    NULL,   "tp" },
    { "tp=1025",      NULL,    NULL,   "1024" },
    { "tp=99999999999999999999", NULL, NULL, "1024" },
    { "pp=33,tp=32",  NULL,    NULL,   "1024" },
    { "tp=2,",        NULL,    NULL,   "comma" },
    { ",tp=2",        NULL,    NULL,   "," },
    { "tp=2,tp=2",    NULL,    NULL,   "twice" },
    { "TP=2",         NULL,    NULL,   "TP" },
    { "t=2",          NULL,    NULL,   "t=2" },
    { "tpp=2",        NULL,    NULL,   "tpp" },
    { "tp=2;pp=2",    NULL,    NULL,   "tp" },
    { "tp:2",         NULL,    NULL,   "tp:2" },
    { "auto",         NULL,    NULL,   "auto" },
    { "dp=2",         NULL,    NULL,   "dp" },
    { "cp=2,tp=2",    NULL,    NULL,   "cp" },
    { "ep=4",         NULL,    NULL,   "ep" },
    { "tp=2",         "1",     NULL,   "--shares" },
    { "tp=2",         "1,2,3", NULL,   "--shares" },
    { "tp=2",         "1,",    NULL,   "--shares" },
    { "tp=2",         "1,-1",  NULL,   "--shares" },
    { "tp=2",         "1,65536", NULL, "--shares" },
    { "tp=65",        "1",     NULL,   "64" },
    { "pp=2",         NULL,    "3",    "--stages" },
    { "pp=2",         NULL,    "3,x",  "--stages" },
};

static void test_good(void)
{
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        struct mesh mesh;
        char text[64];
        check_begin("layout %s is good", good[i].layout ? good[i].layout : "NULL");
        if (!check_int(mesh_parse(&mesh, good[i].layout), 0) || !check_int(mesh_parse_shares(&mesh, good[i].shares, good[i].stages), 0))
            continue;
        mesh_print(&mesh, text);
        check_int(mesh.size[AXIS_PP], good[i].pp);
        check_int(mesh.size[AXIS_TP], good[i].tp);
        check_int(mesh_n_ranks(&mesh), good[i].pp * good[i].tp);
        check_int(mesh.n_shares, good[i].shares ? good[i].tp : 0);
        check_int(mesh.n_stages, good[i].stages ? good[i].pp : 0);
        check_text(text, good[i].printed);
    }
}

static void test_bad(void)
{
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct mesh mesh;
        check_begin("layout %s, shares %s, stages %s is bad", bad[i].layout, bad[i].shares ? bad[i].shares : "none", bad[i].stages ? bad[i].stages : "none");
        int err = mesh_parse(&mesh, bad[i].layout);
        if (err == 0)
            err = mesh_parse_shares(&mesh, bad[i].shares, bad[i].stages);
        check_int(err, ERR_USAGE);
        if (!check(strstr(error_text(), bad[i].word) != NULL))
            printf("    said: %s\n", error_text());
    }
}

/* Axes run outer to inner as dp pp cp tp: neighbours along tp are next to each other. */
static void test_grid(void)
{
    struct mesh mesh;
    check_begin("the grid of pp=3,tp=4");
    check_int(mesh_parse(&mesh, "pp=3,tp=4"), 0);
    for (uint32_t rank = 0; rank < 12; rank++) {
        check_int(mesh_coordinate(&mesh, rank, AXIS_PP), rank / 4);
        check_int(mesh_coordinate(&mesh, rank, AXIS_TP), rank % 4);
        check_int(mesh_coordinate(&mesh, rank, AXIS_DP), 0);
        for (uint32_t at = 0; at < 4; at++)
            check_int(mesh_peer(&mesh, rank, AXIS_TP, at), rank / 4 * 4 + at);
        for (uint32_t at = 0; at < 3; at++)
            check_int(mesh_peer(&mesh, rank, AXIS_PP, at), at * 4 + rank % 4);
    }
}

int main(void)
{
    test_good();
    test_bad();
    test_grid();
    return check_done();
}
