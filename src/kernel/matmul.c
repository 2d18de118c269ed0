#include "kernel/matmul.h"

/* Rows of x are taken in blocks that stay in a core's L2 cache while all panels pass by; a panel is read from memory once
 * for a block, and from L1 for each tile of it. */
#define X_BLOCK_BYTES (512u << 10)

void matmul_walk(const struct matmul_args *args, enum dtype type, size_t x_row_bytes, uint32_t max_rows, matmul_tile_fn *run)
{
    const struct sum_tree chain = { .n_groups = 1, .n_parts = 1, .end = { args->k } };
    const struct sum_tree *tree = args->tree ? args->tree : &chain;
    const size_t bytes = panel_bytes(type, args->k);

    assert(args->k % dtype_info[type].block == 0);
    if (!args->k || !tree->n_groups)
        return;
    uint32_t block = (uint32_t)MAX(X_BLOCK_BYTES / x_row_bytes / max_rows, 1) * max_rows;
    for (uint32_t begin = args->t0; begin < args->t1; begin += MIN(block, args->t1 - begin)) {
        uint32_t end = begin + MIN(block, args->t1 - begin);
        for (uint32_t panel = args->panel0; panel < args->panel1 && panel * PANEL_ROWS < args->n_rows; panel++)
            for (uint32_t t = begin, n; t < end; t += n) {
                uint32_t column = panel * PANEL_ROWS;
                struct tile tile = {
                    .panel = (const uint8_t *)args->w + panel * bytes,
                    .x = (const uint8_t *)args->x + t * args->x_stride,
                    .x_stride = args->x_stride,
                    .y = args->y + t * args->y_stride + column,
                    .y_stride = args->y_stride,
                    .part_stride = args->part_stride,
                    .n_columns = MIN(PANEL_ROWS, args->n_rows - column),
                    .tree = tree,
                };
                n = MIN(max_rows, end - t);
                run(&tile, n);
            }
    }
}
