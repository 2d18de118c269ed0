/* charsmap.c: the normalization that a SentencePiece model carries, as its library compiled it.
 *
 *   u32 n, little-endian; n bytes of units; the rest are strings that end in a NUL
 *
 * A unit is a u32 of a double-array trie (darts-clone).  From a node, byte c leads to the unit at offset(node) ^ c, if that
 * has the label c; a node that ends a key has a leaf at its offset, whose value is where its replacement begins. */
#include "base/base.h"
#include "base/error.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

/* Keys are a few characters; a trie that goes on for longer is damaged, and must not be walked from every byte. */
#define LONGEST_KEY 64

static uint32_t label(uint32_t unit) { return unit & 0x800000ff; }
static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
static bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t value(uint32_t unit) { return unit & 0x7fffffff; }

int charsmap_open(struct charsmap *map, const struct model_file *file)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const char *path = model_file_path(file);
    const int32_t *bytes;
    size_t n;
    if (!model_file_has(file, key))
        return 0;
    if (!model_file_get_i32s(file, key, &bytes, &n))
        return tokenizer_no_array(file, key, "bytes");
    if (n == 0)
        return 0;
    map->units = malloc(n + sizeof *map->units);
    if (!map->units)
        return error_set(ERR_NO_MEMORY, "no memory for %zu bytes of %s", n, key);
    uint8_t head[4] = { 0 }, *rest = (uint8_t *)map->units;         /* what follows the head, so that units are aligned */
    for (size_t i = 0; i < n; i++)
        *(i < 4 ? &head[i] : &rest[i - 4]) = (uint8_t)bytes[i];
    size_t unit_bytes = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (n < 5 || unit_bytes >= n - 4 || unit_bytes % 4 || !unit_bytes || rest[n - 5])
        return error_set(ERR_BAD_FILE, "%s: %s: %zu bytes of it are no map of characters", path, key, n);
    for (size_t i = 0; i < unit_bytes; i += 4) {
        const uint8_t *b = rest + i;
        uint32_t unit = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(rest + i, &unit, 4);
    }
    map->n_units = unit_bytes / 4;
    map->strings = (const char *)rest + unit_bytes;
    map->n_strings = n - 4 - unit_bytes;
    return 0;
}

void charsmap_release(struct charsmap *map)
{
    free(map->units);
    *map = (struct charsmap){ 0 };
}

/* The longest key; a value that points nowhere is no key. */
size_t charsmap_match(const struct charsmap *map, const char *text, size_t n_bytes, const char **with)
{
    size_t found = 0;
    if (!map->n_units)
        return 0;
    uint32_t node = offset(map->units[0]);
    for (size_t i = 0; i < MIN(n_bytes, (size_t)LONGEST_KEY); i++) {
        unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (node >= map->n_units || label(map->units[node]) != byte)
            break;
        uint32_t unit = map->units[node];
        node ^= offset(unit);
        if (!has_leaf(unit) || node >= map->n_units || value(map->units[node]) >= map->n_strings)
            continue;
        *with = map->strings + value(map->units[node]);
        found = i + 1;
    }
    return found;
}
