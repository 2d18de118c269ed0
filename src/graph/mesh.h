/* mesh.h: the world of one replica as a grid with named axes, and the layout that names their sizes.
 *
 * Axes run outer to inner as dp pp cp tp, so rank = ((dp * PP + pp) * CP + cp) * TP + tp.
 *
 * Two names are no further factors.  ep says over how many of a stage's ranks one set of experts is spread: those of tp, or
 * a multiple of them.  Then an island of ep / tp groups along dp shares one set, and the ranks of an island are counted tp
 * first: rank t of group d is number t * island + d % island.  So what one line along dp holds is consecutive, and its sum
 * is a run of the canonical tree.  sp reuses the ranks of tp: it says when rows are split among them between matmuls. */
#ifndef STOA_GRAPH_MESH_H
#define STOA_GRAPH_MESH_H

#include <stddef.h>
#include <stdint.h>

enum axis { AXIS_DP, AXIS_PP, AXIS_CP, AXIS_TP, AXIS_EP, N_AXES };
extern const char *const axis_name[N_AXES];

#define MESH_MAX_RANKS 1024

enum sequence_parallel {
    SP_AUTO,                        /* in steps where it moves fewer bytes */
    SP_NEVER,                       /* sp=1 */
    SP_ALWAYS,                      /* sp=N with N = tp */
};

struct mesh {
    uint32_t size[N_AXES];          /* each at least 1; ep is tp, or a multiple of it */
    enum sequence_parallel sp;
    uint32_t n_shares, n_stages;    /* 0: equal */
    uint32_t share[64];             /* --shares: relative parts of the ranks along tp; n_shares is size[AXIS_TP] or 0 */
    uint32_t stage_layers[64];      /* --stages: layers of each stage; n_stages is size[AXIS_PP] or 0 */
};

/* "pp=2,tp=2": what is not named is 1, but ep, which is tp; ep=N without dp and tp is tp=N,ep=N.  "" and NULL are one rank.
 * ERR_USAGE for anything else, with the reason. */
int mesh_parse(struct mesh *mesh, const char *layout);
/* Comma lists for --shares and --stages, checked against the axes; NULL leaves them equal. */
int mesh_parse_shares(struct mesh *mesh, const char *shares, const char *stages);
uint32_t mesh_n_ranks(const struct mesh *mesh);
/* Groups along dp that share one set of experts. */
uint32_t mesh_island(const struct mesh *mesh);
/* For ep: the rank's number in its island. */
uint32_t mesh_coordinate(const struct mesh *mesh, uint32_t rank, enum axis axis);
/* The rank that has `rank`'s coordinates but `at` along one axis, which is not ep. */
uint32_t mesh_peer(const struct mesh *mesh, uint32_t rank, enum axis axis, uint32_t at);
/* The layout as a user types it, "pp=2,tp=2"; "tp=1" for one rank.  text has room for 64 bytes. */
void mesh_print(const struct mesh *mesh, char *text);

#endif
