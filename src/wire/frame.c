#include "wire/frame.h"

#include "base/base.h"
#include "base/error.h"

#include <stdint.h>
#include <string.h>

#define LENGTH 4
/* What unpacking may take: packed numbers of one byte become four, and a scanned field, while it is read, has some 40 bytes. */
#define UNPACKED_BASE ((size_t)4 << 20)
#define UNPACKED_PER_BYTE 6
#define KEPT_ROOM ((size_t)1 << 20)     /* a reader that has nothing to hold keeps no more */

/* ---- memory of one frame ---- */
struct budget {
    struct frame *frame;
    size_t most;
};

static void *take(void *user, size_t n_bytes)
{
    struct budget *budget = user;
    if (n_bytes > budget->most - budget->frame->n_bytes)
        return NULL;
    budget->frame->n_bytes += n_bytes;
    return arena_alloc(&budget->frame->memory, n_bytes);
}

static void keep(void *user, void *bytes)
{
    (void)user, (void)bytes;            /* all of it goes with the frame */
}

void frame_release(struct frame *frame)
{
    arena_close(&frame->memory);
    *frame = (struct frame){ 0 };
}

/* ---- reading ---- */
static uint32_t get_length(const char *from)
{
    const unsigned char *b = (const unsigned char *)from;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Moves what is left to the front, when that is less than what has been taken. */
static void make_room(struct frame_reader *reader)
{
    struct buffer *bytes = &reader->bytes;
    size_t left = bytes->size - reader->n_taken;
    if (!left && bytes->capacity > KEPT_ROOM) {
        buffer_release(bytes);
    } else if (left <= reader->n_taken) {
        if (left)
            memmove(bytes->bytes, bytes->bytes + reader->n_taken, left);
        bytes->size = left;
    } else {
        return;
    }
    reader->n_taken = 0;
}

int frame_reader_add(struct frame_reader *reader, const void *bytes, size_t n_bytes)
{
    make_room(reader);
    buffer_add(&reader->bytes, bytes, n_bytes);
    return reader->bytes.failed ? error_set(ERR_NO_MEMORY, "no memory for a frame") : 0;
}

static int unpack(struct frame *out, const char *bytes, size_t n_bytes)
{
    struct frame frame = { 0 };
    struct budget budget = { &frame, UNPACKED_BASE + UNPACKED_PER_BYTE * n_bytes };
    ProtobufCAllocator allocator = { take, keep, &budget };
    frame.message = stoa__wire__frame__unpack(&allocator, n_bytes, (const uint8_t *)bytes);
    if (!frame.message) {
        frame_release(&frame);
        return error_set(ERR_PEER, "a frame of %zu bytes is none", n_bytes);
    }
    *out = frame;
    return 1;
}

int frame_reader_next(struct frame_reader *reader, struct frame *out)
{
    size_t left = reader->bytes.size - reader->n_taken;
    if (left < LENGTH)
        return 0;
    const char *at = reader->bytes.bytes + reader->n_taken;
    size_t n_bytes = get_length(at);
    if (n_bytes > WIRE_MAX_FRAME)
        return error_set(ERR_PEER, "a frame of %zu bytes is too long", n_bytes);
    if (left - LENGTH < n_bytes)
        return 0;
    reader->n_taken += LENGTH + n_bytes;
    return unpack(out, at + LENGTH, n_bytes);
}

void frame_reader_release(struct frame_reader *reader)
{
    buffer_release(&reader->bytes);
    reader->n_taken = 0;
}

/* ---- writing ---- */
int frame_append(struct buffer *out, const Stoa__Wire__Frame *message)
{
    size_t n_bytes = stoa__wire__frame__get_packed_size(message);
    if (n_bytes > WIRE_MAX_FRAME)
        return error_set(ERR_USAGE, "a frame of %zu bytes would be too long", n_bytes);
    const unsigned char length[LENGTH] = { n_bytes & 255, n_bytes >> 8 & 255, n_bytes >> 16 & 255, n_bytes >> 24 };
    buffer_reserve(out, LENGTH + n_bytes);
    if (out->failed) {
        out->failed = false;            /* what was there is whole, and the next frame may find memory */
        return error_set(ERR_NO_MEMORY, "no memory for a frame");
    }
    buffer_add(out, length, LENGTH);
    out->size += stoa__wire__frame__pack(message, (uint8_t *)out->bytes + out->size);
    out->bytes[out->size] = 0;
    return 0;
}
