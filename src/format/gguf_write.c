#include "format/gguf_write.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "format/model_file_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 3
#define ALIGNMENT_DEFAULT 32

struct tensor_place {
    uint64_t begin, end;        /* from the start of the data */
};

struct gguf_writer {
    char *path, *folder;        /* where the file will stand, links followed */
    char *temporary;            /* its name until then, or the name that it gets on the way */
    bool replace, has_name;     /* has_name: `temporary` is in the folder */
    int fd;
    struct buffer keys, tensors;
    uint64_t n_keys, alignment;
    struct tensor_place *place;
    size_t n_tensors, next;     /* next: the tensor that is being written */
    uint64_t n_data, at;        /* bytes of data, of all and written */
};

static int failed(const struct gguf_writer *w, const char *what)
{
    return error_set(ERR_FAILED, "%s: %s: %s", w->path, what, strerror(errno));
}

/* ---- its place ---- */

/* Whether something may be written at the path, and which path that is. */
static int find_place(struct gguf_writer *w, const char *path)
{
    struct stat st;
    bool exists = lstat(path, &st) == 0;
    w->path = strdup(path);
    if (exists && !w->replace)
        return error_set(ERR_USAGE, "%s: is there already", path);
    if (exists) {
        if (stat(path, &st) < 0)
            return error_set(ERR_USAGE, "%s: is a link that leads to no file: %s", path, strerror(errno));
        if (!S_ISREG(st.st_mode))
            return error_set(ERR_USAGE, "%s: is not a regular file", path);
        free(w->path);
        w->path = realpath(path, NULL);
    }
    char *slash = w->path ? strrchr(w->path, '/') : NULL;
    w->folder = !slash ? strdup(".") : slash == w->path ? strdup("/") : strndup(w->path, (size_t)(slash - w->path));
    if (!w->path || !w->folder || asprintf(&w->temporary, "%s.%ld.tmp", w->path, (long)getpid()) < 0)
        return error_set(ERR_NO_MEMORY, "no memory for a file's name");
    return 0;
}

/* A file without a name can be given one only through /proc. */
static int open_file(struct gguf_writer *w)
{
    if (access("/proc/self/fd", X_OK) == 0)
        w->fd = open(w->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (w->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || access("/proc/self/fd", X_OK) < 0)) {
        w->fd = open(w->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        w->has_name = w->fd >= 0;
    }
    return w->fd < 0 ? failed(w, "cannot be created") : 0;
}

int gguf_writer_open(struct gguf_writer **out, const char *path, bool replace)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    int err;
    if (!w)
        return error_set(ERR_NO_MEMORY, "no memory to write a file");
    *w = (struct gguf_writer){ .fd = -1, .replace = replace, .alignment = ALIGNMENT_DEFAULT };
    if ((err = find_place(w, path)) < 0 || (err = open_file(w)) < 0) {
        gguf_writer_close(w);
        return err;
    }
    *out = w;
    return 0;
}

void gguf_writer_close(struct gguf_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->has_name)
        unlink(w->temporary);
    buffer_release(&w->keys);
    buffer_release(&w->tensors);
    free(w->place);
    free(w->path);
    free(w->folder);
    free(w->temporary);
    free(w);
}

/* The folder's entry must be on the disk as well; a file system that cannot do that is not an error. */
static void sync_folder(const struct gguf_writer *w)
{
    int fd = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static int link_file(const struct gguf_writer *w, const char *to)
{
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", w->fd);
    return w->has_name ? link(w->temporary, to) : linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

/* Gives the file its name where link() can: it refuses what is there.  Where it cannot, the file has another name already. */
static int give_free_name(struct gguf_writer *w)
{
    if (link_file(w, w->path) == 0)
        return 0;
    if (errno == EEXIST || !w->has_name)
        return failed(w, "cannot be put in its place");
    if (renameat2(AT_FDCWD, w->temporary, AT_FDCWD, w->path, RENAME_NOREPLACE) == 0) {
        w->has_name = false;
        return 0;
    }
    if (errno == EINVAL || errno == ENOSYS)
        return error_set(ERR_FAILED, "%s: this file system can put a file in its place only by replacing what is there", w->path);
    return failed(w, "cannot be put in its place");
}

static int replace_name(struct gguf_writer *w)
{
    if (!w->has_name) {
        unlink(w->temporary);           /* of a process that is dead, or there could be none with this number */
        if (link_file(w, w->temporary) < 0)
            return failed(w, "cannot be put in its place");
        w->has_name = true;
    }
    if (rename(w->temporary, w->path) < 0)
        return failed(w, "cannot be put in its place");
    w->has_name = false;
    return 0;
}

int gguf_writer_commit(struct gguf_writer *w)
{
    assert(w->next == w->n_tensors);
    if (fsync(w->fd) < 0)
        return failed(w, "cannot be written");
    int err = w->replace ? replace_name(w) : give_free_name(w);
    if (!err)
        sync_folder(w);
    return err;
}

/* ---- the header ---- */
static void add_number(struct buffer *to, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        buffer_add(to, &(uint8_t){ (uint8_t)(value >> 8 * i) }, 1);
}

static void add_text(struct buffer *to, const char *text)
{
    add_number(to, strlen(text), 8);
    buffer_add_text(to, text);
}

static void add_u32_key(struct gguf_writer *w, const char *key, uint32_t value)
{
    add_text(&w->keys, key);
    add_number(&w->keys, GGUF_U32, 4);
    add_number(&w->keys, value, 4);
    w->n_keys++;
}

static void copy_key(struct gguf_writer *w, const struct gguf_value *value)
{
    add_text(&w->keys, value->key);
    if (value->is_array)
        add_number(&w->keys, GGUF_ARRAY, 4);
    add_number(&w->keys, value->type, 4);
    if (value->is_array)
        add_number(&w->keys, value->n, 8);
    buffer_add(&w->keys, value->bytes, gguf_value_bytes(value));
    w->n_keys++;
}

static const struct gguf_change *find_change(const struct gguf_change *change, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(change[i].key, key))
            return &change[i];
    return NULL;
}

void gguf_writer_copy_keys(struct gguf_writer *w, const struct model_file *from, const struct gguf_change *change, size_t n_changes)
{
    model_file_get_u64(from, "general.alignment", &w->alignment);
    for (const struct gguf_value *v = from->first->gguf.values; v; v = v->next) {
        const struct gguf_change *other = find_change(change, n_changes, v->key);
        if (!other)
            copy_key(w, v);
        else if (!other->remove)
            add_u32_key(w, v->key, other->value);
    }
    for (size_t i = 0; i < n_changes; i++)
        if (!change[i].remove && !model_file_has(from, change[i].key))
            add_u32_key(w, change[i].key, change[i].value);
}

void gguf_writer_add_tensor(struct gguf_writer *w, const struct model_tensor *tensor)
{
    size_t n_bytes = dtype_bytes(tensor->type, tensor->dims[0]);
    struct tensor_place *place = realloc(w->place, (w->n_tensors + 1) * sizeof *place);
    if (!place) {
        w->tensors.failed = true;       /* begin says it */
        return;
    }
    w->place = place;
    add_text(&w->tensors, tensor->name);
    add_number(&w->tensors, tensor->n_dims, 4);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        add_number(&w->tensors, tensor->dims[i], 8);
        n_bytes *= i ? tensor->dims[i] : 1;
    }
    add_number(&w->tensors, gguf_number_of_type(tensor->type), 4);
    add_number(&w->tensors, w->n_data, 8);
    place[w->n_tensors++] = (struct tensor_place){ w->n_data, w->n_data + n_bytes };
    w->n_data = ROUND_UP(w->n_data + n_bytes, w->alignment);
}

static uint64_t header_bytes(const struct gguf_writer *w)
{
    return ROUND_UP(4 + 4 + 8 + 8 + w->keys.size + w->tensors.size, w->alignment);
}

uint64_t gguf_writer_bytes(const struct gguf_writer *w)
{
    return header_bytes(w) + w->n_data;
}

/* ---- bytes ---- */
static int write_bytes(struct gguf_writer *w, const void *bytes, size_t n_bytes)
{
    return write_all(w->fd, bytes, n_bytes) < 0 ? failed(w, "cannot be written") : 0;
}

static int write_zeros(struct gguf_writer *w, uint64_t n)
{
    static const char zeros[4096];
    int err = 0;
    for (; n && !err; n -= MIN(n, sizeof zeros))
        err = write_bytes(w, zeros, MIN(n, sizeof zeros));
    return err;
}

/* Sees a full disk before the work begins.  Where the file system cannot tell, a write will. */
static int take_room(struct gguf_writer *w)
{
    uint64_t n_bytes = gguf_writer_bytes(w);
    if (fallocate(w->fd, 0, 0, (off_t)n_bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        return 0;
    return error_set(ERR_FAILED, "%s: no room for %" PRIu64 " bytes: %s", w->path, n_bytes, strerror(errno));
}

/* The zeros between this tensor, which is whole, and the next. */
static int end_tensor(struct gguf_writer *w)
{
    uint64_t next = ++w->next < w->n_tensors ? w->place[w->next].begin : w->n_data;
    int err = write_zeros(w, next - w->at);
    w->at = next;
    return err;
}

int gguf_writer_begin(struct gguf_writer *w)
{
    struct buffer head = { 0 };
    int err;
    buffer_add_text(&head, "GGUF");
    add_number(&head, VERSION, 4);
    add_number(&head, w->n_tensors, 8);
    add_number(&head, w->n_keys, 8);
    if (head.failed || w->keys.failed || w->tensors.failed)
        err = error_set(ERR_NO_MEMORY, "no memory for the header of %s", w->path);
    else if ((err = take_room(w)) == 0 && (err = write_bytes(w, head.bytes, head.size)) == 0 &&
             (err = write_bytes(w, w->keys.bytes, w->keys.size)) == 0 && (err = write_bytes(w, w->tensors.bytes, w->tensors.size)) == 0)
        err = write_zeros(w, header_bytes(w) - head.size - w->keys.size - w->tensors.size);
    buffer_release(&head);
    return err;
}

int gguf_writer_data(struct gguf_writer *w, const void *bytes, size_t n_bytes)
{
    assert(w->next < w->n_tensors && n_bytes <= w->place[w->next].end - w->at);
    int err = write_bytes(w, bytes, n_bytes);
    w->at += n_bytes;
    return err < 0 || w->at < w->place[w->next].end ? err : end_tensor(w);
}
