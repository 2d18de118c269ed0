/* fuzz_json.c: any bytes as JSON; what is read prints as JSON, which is read again and prints the same. */
#include "base/buffer.h"
#include "text/json_in.h"
#include "text/template_node.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* False when it is not read, or longer than a template may print. */
static bool print(const struct template *template, const char *bytes, size_t n_bytes, struct buffer *out)
{
    struct arena arena = { 0 };
    struct template_value value, context = template_value_map(&arena);
    bool ok = json_read(&arena, bytes, n_bytes, &value) == 0 && template_map_set(&arena, context, "x", 1, value) &&
              template_render(template, context, NULL, out) == 0;
    arena_close(&arena);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct template *template;
    struct buffer first = { 0 }, second = { 0 };
    if (!template && template_open(&template, "{{ x | tojson }}", 16) < 0)
        abort();
    if (print(template, (const char *)data, n_bytes, &first) &&
        (!print(template, first.bytes, first.size, &second) || first.size != second.size || memcmp(first.bytes, second.bytes, first.size)))
        abort();
    buffer_release(&first);
    buffer_release(&second);
    return 0;
}
