#include "kernel/matmul.h"

/* Panels are taken in blocks that stay in a core's L2 cache while all rows of x pass by, a tile of rows at a time that
 * stays in L1 while the block's panels do.  So weights come from memory once, and activations once for each block.  Tiles
 * are as even as can be: nine rows are 5 + 4, for a tile of one takes nearly as long as one of four. */
#define PANEL_BLOCK_BYTES (512u << 10)

/* Columns of panels [panel0, panel1), of rows [t, t + n_rows). */
static void run_tiles(const struct matmul_args *args, const struct sum_tree *tree, size_t bytes, uint32_t panel0,
                      uint32_t panel1, uint32_t t, uint32_t n_rows, uint32_t max_panels, matmul_tile_fn *run)
{
    struct tile tile = {
        .panel_bytes = bytes,
        .x = (const uint8_t *)args->x + t * args->x_stride,
        .x_stride = args->x_stride,
        .y_stride = args->y_stride,
        .part_stride = args->part_stride,
        .tree = tree,
    };
    for (uint32_t panel = panel0; panel < panel1; panel += max_panels) {
        uint32_t column = panel * PANEL_ROWS, n_panels = MIN(max_panels, panel1 - panel);
        tile.panel = (const uint8_t *)args->w + panel * bytes;
        tile.y = args->y + t * args->y_stride + column;
        tile.n_columns = MIN(n_panels * PANEL_ROWS, args->n_rows - column);
        run(&tile, n_rows);
    }
}

void matmul_walk(const struct matmul_args *args, enum dtype type, uint32_t max_rows, uint32_t max_panels,
                 matmul_tile_fn *run)
{
    const struct sum_tree chain = { .n_groups = 1, .n_parts = 1, .end = { args->k } };
    const struct sum_tree *tree = args->tree ? args->tree : &chain;
    const uint32_t panel1 = MIN(args->panel1, DIV_UP(args->n_rows, PANEL_ROWS));

    assert(args->k % dtype_info[type].block == 0);
    if (!args->k || !tree->n_groups || args->t0 >= args->t1)
        return;
    const size_t bytes = panel_bytes(type, args->k);
    const uint32_t n_panels = (uint32_t)MAX(PANEL_BLOCK_BYTES / bytes / max_panels, 1) * max_panels;
    const uint32_t n_tiles = DIV_UP(args->t1 - args->t0, max_rows), n_rows = DIV_UP(args->t1 - args->t0, n_tiles);
    for (uint32_t panel = args->panel0; panel < panel1; panel += n_panels)
        for (uint32_t t = args->t0; t < args->t1; t += n_rows)
            run_tiles(args, tree, bytes, panel, MIN(panel + n_panels, panel1), t, MIN(n_rows, args->t1 - t), max_panels, run);
}
