/* json_in.h: reads JSON (RFC 8259, strictly) into the values that chat templates know.
 *
 * Keys keep their order, and one that comes twice in an object is an error: there is no telling which was meant.  A number that is an
 * integer of 64 bits is VALUE_INT, any other VALUE_FLOAT; one that neither holds, as 18446744073709551615 or 1e999, keeps how it was
 * written and prints as it came.  Strings are UTF-8 and may hold NULs, as \u0000; half of a surrogate pair is an error, and so is a
 * byte-order mark. */
#ifndef STOA_TEXT_JSON_IN_H
#define STOA_TEXT_JSON_IN_H

#include "text/template_value.h"

#define JSON_MAX_DEPTH 128              /* of lists and objects in each other */
#define JSON_MAX_NUMBER 4096            /* characters of one */
#define JSON_MAX_VALUES 2000000         /* each takes up to 170 bytes, as little as one byte says of it */

/* One value, with nothing but blanks around it.  Strings without escapes are borrowed from `bytes`; all else is the arena's.
 * ERR_USAGE "... at byte N", counted from 0, for what is no JSON or beyond a limit. */
int json_read(struct arena *arena, const char *bytes, size_t n_bytes, struct template_value *out);

#endif
