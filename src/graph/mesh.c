#include "graph/mesh.h"

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const axis_name[N_AXES] = { "dp", "pp", "cp", "tp", "ep" };

static int axis_find(const char *name, size_t n)
{
    for (int a = 0; a < N_AXES; a++)
        if (strlen(axis_name[a]) == n && !memcmp(axis_name[a], name, n))
            return a;
    return -1;
}

/* One AXIS=SIZE.  sizes[N_AXES] is sp's.  0 marks what has not been named. */
static int parse_axis(uint32_t sizes[N_AXES + 1], const char **text, const char *layout)
{
    const char *at = *text;
    size_t n = strcspn(at, "=,");
    int axis = n == 2 && !memcmp(at, "sp", 2) ? N_AXES : axis_find(at, n);
    if (axis < 0 || at[n] != '=')
        return error_set(ERR_USAGE, "layout \"%s\": wanted AXIS=SIZE with an axis of dp, pp, cp, tp, ep, sp at \"%s\"", layout, at);
    const char *name = axis == N_AXES ? "sp" : axis_name[axis];
    if (sizes[axis])
        return error_set(ERR_USAGE, "layout \"%s\": %s is named twice", layout, name);
    char *end;
    long size = at[n + 1] >= '0' && at[n + 1] <= '9' ? strtol(at + n + 1, &end, 10) : 0;
    if (size < 1 || size > MESH_MAX_RANKS || (*end && *end != ','))
        return error_set(ERR_USAGE, "layout \"%s\": the size of %s must be a number from 1 to %d", layout, name, MESH_MAX_RANKS);
    sizes[axis] = (uint32_t)size;
    if (*end && !end[1])
        return error_set(ERR_USAGE, "layout \"%s\": ends in a comma", layout);
    *text = *end ? end + 1 : end;
    return 0;
}

/* ep and sp lean on tp and dp. */
static int resolve(struct mesh *mesh, const uint32_t sizes[N_AXES + 1], const char *layout)
{
    uint32_t ep = sizes[AXIS_EP], sp = sizes[N_AXES], *size = mesh->size;
    for (int a = 0; a < N_AXES; a++)
        size[a] = MAX(sizes[a], 1);
    if (ep > 1 && !sizes[AXIS_TP] && !sizes[AXIS_DP])
        size[AXIS_TP] = ep;
    uint32_t tp = size[AXIS_TP];
    size[AXIS_EP] = ep > 1 ? ep : tp;
    mesh->sp = !sp ? SP_AUTO : sp == 1 ? SP_NEVER : SP_ALWAYS;
    if (size[AXIS_CP] > 1)
        return error_set(ERR_USAGE, "layout \"%s\": this version runs dp, pp, tp, ep and sp; cp is not there yet", layout);
    if (size[AXIS_EP] % tp || size[AXIS_DP] % (size[AXIS_EP] / tp))
        return error_set(ERR_USAGE, "layout \"%s\": experts are spread over the ranks of tp, or over those of several groups of dp: "
                         "ep must be a multiple of tp=%u, and dp=%u a multiple of ep / tp", layout, tp, size[AXIS_DP]);
    if (sp > 1 && sp != tp)
        return error_set(ERR_USAGE, "layout \"%s\": sp splits rows among the ranks of tp: it is 1 (never) or tp=%u (always)", layout, tp);
    if ((uint64_t)size[AXIS_DP] * size[AXIS_PP] * tp > MESH_MAX_RANKS)
        return error_set(ERR_USAGE, "layout \"%s\": more than %d ranks", layout, MESH_MAX_RANKS);
    return 0;
}

int mesh_parse(struct mesh *mesh, const char *layout)
{
    uint32_t sizes[N_AXES + 1] = { 0 };
    *mesh = (struct mesh){ 0 };
    if (layout && !strcmp(layout, "auto"))
        return error_set(ERR_USAGE, "layout \"auto\": there is no planner yet; name the axes, as in pp=2,tp=2");
    for (const char *at = layout ? layout : ""; *at;) {
        int err = parse_axis(sizes, &at, layout);
        if (err < 0)
            return err;
    }
    return resolve(mesh, sizes, layout ? layout : "");
}

static int parse_list(uint32_t *list, uint32_t n, uint32_t min, const char *text, const char *flag, enum axis axis)
{
    const char *at = text;
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (value < (long)min || value > 65535 || *end != (i + 1 < n ? ',' : 0))
            return error_set(ERR_USAGE, "%s %s: wanted %u numbers of at least %u with commas between, one for each rank along %s", flag,
                             text, n, min, axis_name[axis]);
        list[i] = (uint32_t)value;
        at = end + 1;
    }
    return 0;
}

int mesh_parse_shares(struct mesh *mesh, const char *shares, const char *stages)
{
    int err = 0;
    uint32_t tp = mesh->size[AXIS_TP], pp = mesh->size[AXIS_PP];
    if ((shares && tp > COUNT_OF(mesh->share)) || (stages && pp > COUNT_OF(mesh->stage_layers)))
        return error_set(ERR_USAGE, "--shares and --stages take at most %zu numbers", COUNT_OF(mesh->share));
    if (shares && (err = parse_list(mesh->share, tp, 0, shares, "--shares", AXIS_TP)) == 0)
        mesh->n_shares = tp;
    if (!err && stages && (err = parse_list(mesh->stage_layers, pp, 1, stages, "--stages", AXIS_PP)) == 0)
        mesh->n_stages = pp;
    return err;
}

uint32_t mesh_n_ranks(const struct mesh *mesh)
{
    return mesh->size[AXIS_DP] * mesh->size[AXIS_PP] * mesh->size[AXIS_CP] * mesh->size[AXIS_TP];
}

/* How many ranks one step along the axis is. */
static uint32_t stride(const struct mesh *mesh, enum axis axis)
{
    uint32_t n = 1;
    for (int a = AXIS_TP; a > (int)axis; a--)
        n *= mesh->size[a];
    return n;
}

uint32_t mesh_island(const struct mesh *mesh)
{
    return mesh->size[AXIS_EP] / mesh->size[AXIS_TP];
}

uint32_t mesh_coordinate(const struct mesh *mesh, uint32_t rank, enum axis axis)
{
    uint32_t island = mesh_island(mesh);
    if (axis == AXIS_EP)
        return mesh_coordinate(mesh, rank, AXIS_TP) * island + mesh_coordinate(mesh, rank, AXIS_DP) % island;
    return rank / stride(mesh, axis) % mesh->size[axis];
}

uint32_t mesh_peer(const struct mesh *mesh, uint32_t rank, enum axis axis, uint32_t at)
{
    return rank + (at - mesh_coordinate(mesh, rank, axis)) * stride(mesh, axis);
}

void mesh_print(const struct mesh *mesh, char *text)
{
    size_t n = 0;
    text[0] = 0;
    for (int a = 0; a < N_AXES; a++)
        if (mesh->size[a] > 1 && !(a == AXIS_EP && mesh_island(mesh) == 1))
            n += (size_t)sprintf(text + n, "%s%s=%u", n ? "," : "", axis_name[a], mesh->size[a]);
    if (mesh->sp != SP_AUTO && mesh->size[AXIS_TP] > 1)
        n += (size_t)sprintf(text + n, ",sp=%u", mesh->sp == SP_NEVER ? 1 : mesh->size[AXIS_TP]);
    if (!n)
        strcpy(text, "tp=1");
}
