/* answer_stop.h: looks for stop strings in text that comes in pieces.
 *
 * The one that is whole first ends the text; of several that end together the longest.  So a match does not depend on how the text was
 * cut into pieces, and what can not be the beginning of a match is known at once. */
#ifndef STOA_FRONT_ANSWER_STOP_H
#define STOA_FRONT_ANSWER_STOP_H

#include "front/api.h"

/* The strings of one request. */
struct stop_set {
    const struct api_text *strings;
    uint32_t n;
    const uint16_t *shorter[API_MAX_STOPS];     /* [n_bytes]: the longest beginning that ends the first i + 1 bytes, but those whole */
};
/* 0 or ERR_NO_MEMORY.  The strings are borrowed. */
int stop_set_init(struct stop_set *set, struct arena *arena, const struct api_text *strings, uint32_t n);

/* How far one text has come; zeroed at first. */
struct stop_search {
    uint16_t matched[API_MAX_STOPS];            /* bytes of each string that the text ends with now */
    uint64_t n_bytes;                           /* of the text so far; where it matched, up to the end of the match */
};
/* 0 while no string is whole; else the bytes of the match, which ends the text. */
uint32_t stop_search_add(struct stop_search *search, const struct stop_set *set, const char *bytes, size_t n_bytes);
/* The text's last bytes that a match may begin with. */
uint32_t stop_search_held(const struct stop_search *search, const struct stop_set *set);

#endif
