/* utf8_stream.c: the incremental detokenizer's last step, see tokenizer.h. */
#include "base/buffer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";       /* U+FFFD */

/* Moves what is decided out of `held`.  At `end` there is nothing more to wait for. */
static void flush(struct utf8_stream *stream, struct buffer *out, bool end)
{
    while (stream->n_held) {
        uint32_t code;
        size_t n = utf8_decode((const char *)stream->held, stream->n_held, &code);
        if (code == UTF8_TRUNCATED && !end)
            return;
        if (code >= UTF8_INVALID)
            buffer_add_text(out, replacement);
        else
            buffer_add(out, stream->held, n);
        stream->n_held = (uint8_t)(stream->n_held - n);
        memmove(stream->held, stream->held + n, stream->n_held);
    }
}

/* A byte at a time: after each, `held` is empty or a valid beginning, so four bytes are room enough. */
void utf8_stream_add(struct utf8_stream *stream, const char *bytes, size_t n_bytes, struct buffer *out)
{
    for (size_t i = 0; i < n_bytes; i++) {
        stream->held[stream->n_held++] = (unsigned char)bytes[i];
        flush(stream, out, false);
    }
}

void utf8_stream_end(struct utf8_stream *stream, struct buffer *out)
{
    flush(stream, out, true);
}

bool utf8_is_valid(const char *bytes, size_t n_bytes)
{
    uint32_t code = 0;
    for (size_t at = 0; at < n_bytes && code < UTF8_INVALID; )
        at += utf8_decode(bytes + at, n_bytes - at, &code);
    return code < UTF8_INVALID;
}
