/* weights.h: this rank's part of the model in memory.
 *
 * Each weight of the rank's graph is packed once, from its slice of the mapped file, by all threads, into one region
 * that was sized before anything is read; the file's pages are given back as they are read.  A lookup table (the
 * embedding) stays in the mapped file and takes no memory of its own.
 *
 * With a folder for packed files (packed_file.h) a later start with the same weights, slices and model file maps the region instead, and
 * all processes of a machine that do share its memory.  Ranks that hold the same parts in the same order share a file, as the groups along
 * dp do. */
#ifndef STOA_RUN_WEIGHTS_H
#define STOA_RUN_WEIGHTS_H

#include "base/threads.h"
#include "format/model_file.h"
#include "graph/graph.h"

struct weights;

/* Called now and then while loading, by one thread: how much is packed, of how much. */
typedef void weights_progress_fn(size_t done, size_t all, void *user);

/* ERR_NO_MEMORY when the region cannot be had, with both sizes.  packed_cache: the folder, or NULL.  A file in it that cannot be used
 * costs a line and is made anew; one that cannot be written costs a warning. */
int weights_open(struct weights **out, struct graph *g, const struct model_file *file, struct pool *pool, const char *packed_cache,
                 weights_progress_fn *progress, void *user);
void weights_close(struct weights *weights);
/* Packed panels, a vector's floats, or the first row of a lookup table.  NULL for an empty slice. */
const void *weights_data(const struct weights *weights, const struct tensor *t);
size_t weights_bytes(const struct weights *weights);        /* what was allocated or mapped */
bool weights_are_mapped(const struct weights *weights);     /* from a packed file */

#endif
