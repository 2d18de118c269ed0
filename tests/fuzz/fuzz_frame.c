/* fuzz_frame.c: any bytes as what a front or a replica sends.  The first byte says in pieces of how many bytes they come. */
#include "base/error.h"
#include "wire/frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* What has been read can be written.  It need not read the same again: protobuf-c keeps unknown fields, and accepts field 0 and numbers in
 * more bytes than they need. */
static void check_writes(const struct frame *frame)
{
    struct buffer out = { 0 };
    if (frame_append(&out, frame->message) < 0)
        abort();
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct frame_reader reader = { 0 };
    struct frame frame;
    size_t piece = n_bytes ? 1 + data[0] * (size_t)data[0] : 1;
    int got = 0;
    for (size_t at = 1; at < n_bytes && got >= 0; at += piece) {
        size_t n = n_bytes - at < piece ? n_bytes - at : piece;
        if (frame_reader_add(&reader, data + at, n) < 0)
            abort();
        while ((got = frame_reader_next(&reader, &frame)) == 1) {
            check_writes(&frame);
            frame_release(&frame);
        }
        if ((got < 0 && got != ERR_PEER) || reader.bytes.size > n_bytes)
            abort();
    }
    frame_reader_release(&reader);
    return 0;
}
