/* test_mesh.c: layouts as users type them, and the grid that they mean. */
#include "graph/mesh.h"
#include "base/error.h"
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

static const struct { const char *layout, *shares, *stages; uint32_t dp, pp, tp, ep; enum sequence_parallel sp; const char *printed; } good[] = {
    { NULL,            NULL,    NULL,      1, 1, 1, 1, SP_AUTO,   "tp=1" },
    { "",              NULL,    NULL,      1, 1, 1, 1, SP_AUTO,   "tp=1" },
    { "tp=1",          NULL,    NULL,      1, 1, 1, 1, SP_AUTO,   "tp=1" },
    { "tp=8",          NULL,    NULL,      1, 1, 8, 8, SP_AUTO,   "tp=8" },
    { "tp=2,pp=3",     NULL,    NULL,      1, 3, 2, 2, SP_AUTO,   "pp=3,tp=2" },
    { "dp=1,pp=2,cp=1,tp=2,ep=1", NULL, NULL, 1, 2, 2, 2, SP_AUTO, "pp=2,tp=2" },
    { "tp=2",          "5,3",   NULL,      1, 1, 2, 2, SP_AUTO,   "tp=2" },
    { "pp=2,tp=3",     "0,1,7", "1,29",    1, 2, 3, 3, SP_AUTO,   "pp=2,tp=3" },
    { "pp=32,tp=32",   NULL,    NULL,      1, 32, 32, 32, SP_AUTO, "pp=32,tp=32" },
    { "ep=4",          NULL,    NULL,      1, 1, 4, 4, SP_AUTO,   "tp=4" },
    { "ep=2,pp=2",     NULL,    NULL,      1, 2, 2, 2, SP_AUTO,   "pp=2,tp=2" },
    { "dp=2",          NULL,    NULL,      2, 1, 1, 1, SP_AUTO,   "dp=2" },
    { "dp=2,ep=2",     NULL,    NULL,      2, 1, 1, 2, SP_AUTO,   "dp=2,ep=2" },
    { "dp=4,tp=2,ep=4", NULL,   NULL,      4, 1, 2, 4, SP_AUTO,   "dp=4,tp=2,ep=4" },
    { "tp=4,sp=4",     NULL,    NULL,      1, 1, 4, 4, SP_ALWAYS, "tp=4,sp=4" },
    { "sp=1,tp=2",     NULL,    NULL,      1, 1, 2, 2, SP_NEVER,  "tp=2,sp=1" },
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
    { "cp=2,tp=2",    NULL,    NULL,   "cp" },
    { "tp=2,ep=4",    NULL,    NULL,   "ep" },
    { "tp=4,ep=2",    NULL,    NULL,   "ep" },
    { "dp=3,ep=2",    NULL,    NULL,   "dp=3" },
    { "tp=4,sp=2",    NULL,    NULL,   "sp" },
    { "dp=32,tp=64",  NULL,    NULL,   "1024" },
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
        check_int(mesh.size[AXIS_DP], good[i].dp);
        check_int(mesh.size[AXIS_PP], good[i].pp);
        check_int(mesh.size[AXIS_TP], good[i].tp);
        check_int(mesh.size[AXIS_EP], good[i].ep);
        check_int(mesh.sp, good[i].sp);
        check_int(mesh_n_ranks(&mesh), good[i].dp * good[i].pp * good[i].tp);
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

/* Two islands of two groups along dp; in each the experts' ranks are counted along tp first. */
static void test_islands(void)
{
    static const uint32_t number[] = { 0, 2, 1, 3, 0, 2, 1, 3 };
    struct mesh mesh;
    check_begin("the islands of dp=4,tp=2,ep=4");
    check_int(mesh_parse(&mesh, "dp=4,tp=2,ep=4"), 0);
    check_int(mesh_island(&mesh), 2);
    for (uint32_t rank = 0; rank < 8; rank++) {
        check_int(mesh_coordinate(&mesh, rank, AXIS_DP), rank / 2);
        check_int(mesh_coordinate(&mesh, rank, AXIS_EP), number[rank]);
    }
}

int main(void)
{
    test_good();
    test_bad();
    test_grid();
    test_islands();
    return check_done();
}
