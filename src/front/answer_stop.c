/* answer_stop.c: Knuth, Morris and Pratt's search, a state for each string. */
#include "front/answer_stop.h"

#include "base/base.h"
#include "base/error.h"

/* How many bytes of a string are matched after one more byte. */
static uint16_t step(const struct api_text *string, const uint16_t *shorter, uint16_t matched, char byte)
{
    while (matched && string->bytes[matched] != byte)
        matched = shorter[matched - 1];
    return (uint16_t)(matched + (string->bytes[matched] == byte));
}

int stop_set_init(struct stop_set *set, struct arena *arena, const struct api_text *strings, uint32_t n)
{
    *set = (struct stop_set){ .strings = strings, .n = n };
    for (uint32_t i = 0; i < n; i++) {
        uint16_t *shorter = arena_array(arena, uint16_t, strings[i].n_bytes);
        if (!shorter)
            return error_set(ERR_NO_MEMORY, "no memory for stop strings");
        for (size_t k = 1; k < strings[i].n_bytes; k++)
            shorter[k] = step(&strings[i], shorter, shorter[k - 1], strings[i].bytes[k]);
        set->shorter[i] = shorter;
    }
    return 0;
}

uint32_t stop_search_add(struct stop_search *search, const struct stop_set *set, const char *bytes, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at++) {
        uint32_t longest = 0;
        search->n_bytes++;
        for (uint32_t i = 0; i < set->n; i++) {
            search->matched[i] = step(&set->strings[i], set->shorter[i], search->matched[i], bytes[at]);
            if (search->matched[i] == set->strings[i].n_bytes)
                longest = MAX(longest, search->matched[i]);
        }
        if (longest)
            return longest;
    }
    return 0;
}

uint32_t stop_search_held(const struct stop_search *search, const struct stop_set *set)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < set->n; i++)
        held = MAX(held, search->matched[i]);
    return held;
}
