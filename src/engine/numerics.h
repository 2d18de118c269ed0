/* numerics.h: names of what is computed, so that two processes can see that they would give the same bits. */
#ifndef STOA_ENGINE_NUMERICS_H
#define STOA_ENGINE_NUMERICS_H

#include "engine/engine.h"

#define NUMERICS_ID 33          /* 32 hex digits and a NUL */

/* The numerics id: equal ids promise equal bits of every logit, whatever the layout, the batch and the machine.  A hash of the rules of
 * the sums, of the mode and the cache's type (the options that change bits), and of the model.  Only these fields of options are read. */
void numerics_id(char out[NUMERICS_ID], const struct model_file *file, const struct engine_options *options);
/* The model's alone, as model_file_identity() has it. */
void numerics_model(char out[NUMERICS_ID], const struct model_file *file);

#endif
