/* mesh.h: the world of one replica as a grid with named axes, and the layout that names their sizes.
 *
 * Axes run outer to inner as dp pp cp tp, so rank = ((dp * PP + pp) * CP + cp) * TP + tp.  ep is no further factor: it
 * says over how many of a stage's dp x cp x tp ranks one set of experts is spread. */
#ifndef STOA_GRAPH_MESH_H
#define STOA_GRAPH_MESH_H

#include <stddef.h>
#include <stdint.h>

enum axis { AXIS_DP, AXIS_PP, AXIS_CP, AXIS_TP, AXIS_EP, N_AXES };
extern const char *const axis_name[N_AXES];

#define MESH_MAX_RANKS 1024

struct mesh {
    uint32_t size[N_AXES];          /* each at least 1 */
    uint32_t n_shares, n_stages;    /* 0: equal */
    uint32_t share[64];             /* --shares: relative parts of the ranks along tp; n_shares is size[AXIS_TP] or 0 */
    uint32_t stage_layers[64];      /* --stages: layers of each stage; n_stages is size[AXIS_PP] or 0 */
};

/* "pp=2,tp=2": what is not named is 1.  "" and NULL are one rank.  ERR_USAGE for anything else, with the reason. */
int mesh_parse(struct mesh *mesh, const char *layout);
/* Comma lists for --shares and --stages, checked against the axes; NULL leaves them equal. */
int mesh_parse_shares(struct mesh *mesh, const char *shares, const char *stages);
uint32_t mesh_n_ranks(const struct mesh *mesh);
uint32_t mesh_coordinate(const struct mesh *mesh, uint32_t rank, enum axis axis);
/* The rank that has `rank`'s coordinates but `at` along one axis. */
uint32_t mesh_peer(const struct mesh *mesh, uint32_t rank, enum axis axis, uint32_t at);
/* The layout as a user types it, "pp=2,tp=2"; "tp=1" for one rank.  text has room for 64 bytes. */
void mesh_print(const struct mesh *mesh, char *text);

#endif
