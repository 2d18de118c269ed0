/* fuzz_template.c: any bytes as a chat template, rendered with a small conversation. */
#include "base/buffer.h"
#include "text/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct chat_message messages[] = {
        { "system", "Be brief." }, { "user", " Gr\xc3\xbc\xc3\x9f" "e\n" }, { "assistant", "<think>a</think>b" }, { "user", "" },
    };
    static const struct chat_options options = { .add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>" };
    struct template *template = NULL;
    struct buffer out = { 0 };
    buffer_add_text(&out, "kept");
    if (template_open(&template, (const char *)data, n_bytes) == 0) {
        int err = template_render_chat(template, messages, 4, &options, &out);
        if (memcmp(out.bytes, "kept", 4) || (err < 0 && out.size != 4))
            abort();
    }
    template_close(template);
    buffer_release(&out);
    return 0;
}
