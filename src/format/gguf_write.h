/* gguf_write.h: a GGUF file written front to back, and at its place only once it is whole.
 *
 *   open -> copy_keys -> add_tensor, for each -> begin -> data, for each tensor in that order -> commit -> close
 *
 * Until commit the file has no name (O_TMPFILE), so whatever ends the process leaves nothing behind; where the file system
 * cannot do that, its name is PATH.PID.tmp, which close removes.  begin takes the room on the disk that the whole file needs.
 * One thread; memory for the header alone. */
#ifndef STOA_FORMAT_GGUF_WRITE_H
#define STOA_FORMAT_GGUF_WRITE_H

#include "format/model_file.h"

struct gguf_writer;

/* replace: a regular file may stand at `path`, and is replaced at commit; through a link, what it leads to.  ERR_USAGE when
 * something stands there that may not be replaced, or a link that leads nowhere; ERR_FAILED when the folder cannot be written. */
int gguf_writer_open(struct gguf_writer **out, const char *path, bool replace);
/* Without commit before it, nothing has happened.  NULL is fine. */
void gguf_writer_close(struct gguf_writer *w);

/* A key that is not as in the other file: another u32, or left out. */
struct gguf_change {
    const char *key;
    bool remove;
    uint32_t value;
};
/* All keys of `from` (of its first part), byte for byte and in their order, but for the changes; changed keys that it does not
 * have come last.  Tensors are aligned as its general.alignment says. */
void gguf_writer_copy_keys(struct gguf_writer *w, const struct model_file *from, const struct gguf_change *change, size_t n_changes);
/* n_bytes and data of `tensor` are not looked at. */
void gguf_writer_add_tensor(struct gguf_writer *w, const struct model_tensor *tensor);
/* Of the whole file, known before begin. */
uint64_t gguf_writer_bytes(const struct gguf_writer *w);
/* Writes the header. */
int gguf_writer_begin(struct gguf_writer *w);
/* The next bytes of tensors; a call may not go beyond the end of one.  The zeros between them come by themselves. */
int gguf_writer_data(struct gguf_writer *w, const void *bytes, size_t n_bytes);
/* All tensors are written: the file is on the disk and has its name, or an error and it has not.  Without `replace` a file that came
 * there meanwhile stays; ERR_FAILED also where the file system cannot promise that. */
int gguf_writer_commit(struct gguf_writer *w);

#endif
