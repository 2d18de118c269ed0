/* fuzz_frame.c: any bytes as what a front or a replica sends.  The first byte says in pieces of how many bytes they come. */
#include "base/error.h"
#include "wire/frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* What has been read can be written, and reads the same again. */
static void check_again(const struct frame *frame)
{
    struct buffer once = { 0 }, twice = { 0 };
    struct frame_reader reader = { 0 };
    struct frame again;
    if (frame_append(&once, frame->message) < 0 || frame_reader_add(&reader, once.bytes, once.size) < 0)
        abort();
    if (frame_reader_next(&reader, &again) != 1 || frame_append(&twice, again.message) < 0)
        abort();
    if (once.size != twice.size || memcmp(once.bytes, twice.bytes, once.size))
        abort();
    frame_release(&again);
    frame_reader_release(&reader);
    buffer_release(&once);
    buffer_release(&twice);
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
            check_again(&frame);
            frame_release(&frame);
        }
        if ((got < 0 && got != ERR_PEER) || reader.bytes.size > n_bytes)
            abort();
    }
    frame_reader_release(&reader);
    return 0;
}
