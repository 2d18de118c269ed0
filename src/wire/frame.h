/* frame.h: frames on a stream of bytes: a length of four bytes, little endian, and a message Frame of that length (wire.proto).
 *
 * Whatever bytes come in, the worst is an error.  A reader holds at most a frame and what came behind it, and takes no memory for
 * bytes that are announced and have not come; a frame that would unpack to several times its own size is an error. */
#ifndef STOA_WIRE_FRAME_H
#define STOA_WIRE_FRAME_H

#include "base/arena.h"
#include "base/buffer.h"
#include "wire/wire.pb-c.h"

#include <stddef.h>

#define WIRE_PROTOCOL 1
#define WIRE_MAX_FRAME ((size_t)16 << 20)       /* without its length */

/* A frame that has come, with all that it points to. */
struct frame {
    const Stoa__Wire__Frame *message;
    struct arena memory;
    size_t n_bytes;                             /* of memory, about */
};
void frame_release(struct frame *frame);        /* {0} is fine */

struct frame_reader {
    struct buffer bytes;                        /* {0} is a reader at the start of a stream */
    size_t n_taken;                             /* of them, by frames that have been given out */
};
/* Bytes of any length; ask for all frames in them before there are more.  ERR_NO_MEMORY. */
int frame_reader_add(struct frame_reader *reader, const void *bytes, size_t n_bytes);
/* 1: the next frame, the caller's now.  0: it is not whole yet.  ERR_PEER: no frame, or one that is too long; nothing more can be
 * read from this stream. */
int frame_reader_next(struct frame_reader *reader, struct frame *out);
void frame_reader_release(struct frame_reader *reader);

/* Appends it with its length.  ERR_USAGE: it is too long; ERR_NO_MEMORY.  Then nothing has been appended, and
 * the next may be. */
int frame_append(struct buffer *out, const Stoa__Wire__Frame *message);

#endif
