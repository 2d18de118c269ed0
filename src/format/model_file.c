#include "format/model_file_impl.h"

#include "base/base.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define PARTS_MAX 9999

/* Maps and parses one file and puts it at `last`.  It is in the list before anything can fail, so that close unmaps it. */
static int add_part(struct model_file *file, struct model_part **last, const char *path)
{
    struct model_part *part = arena_new(&file->arena, struct model_part);
    int err;
    if (!part)
        return gguf_no_memory();
    *last = part;
    if (!(part->path = arena_string(&file->arena, path)))
        return gguf_no_memory();
    if ((err = map_file_open(&part->map, path)) < 0)
        return err;
    if ((err = gguf_parse(&part->gguf, &file->arena, part->map.bytes, part->map.n_bytes)) < 0)
        return error_prefix(err, "%s", path);
    file->n_bytes += part->map.n_bytes;
    file->n_tensors += part->gguf.n_tensors;
    file->digest = XXH3_64bits_withSeed(part->map.bytes, part->gguf.n_header_bytes, file->digest);
    const int64_t state[] = { (int64_t)part->map.n_bytes, part->map.written_ns, part->map.changed_ns };
    file->stamp = XXH3_64bits_withSeed(state, sizeof state, file->stamp);
    return 0;
}

/* Split files: NAME-00001-of-00003.gguf says split.count = 3 and split.no = 0, and so on. */

/* 0 when the key is absent; -1 when it is no count. */
static int64_t split_key(const struct model_part *part, const char *key)
{
    const struct gguf_value *value = gguf_find(&part->gguf, key);
    if (!value)
        return 0;
    if (value->is_array || value->type == GGUF_STRING)
        return -1;
    struct gguf_number number = gguf_number(value, 0);
    return number.kind == GGUF_REAL || number.integer > INT32_MAX ? -1 : (int64_t)number.integer;
}

static int check_split_key(const struct model_part *part, const char *key, int64_t wanted)
{
    int64_t found = split_key(part, key);
    if (found == wanted)
        return 0;
    return error_set(ERR_BAD_FILE, "%s: %s: wanted %" PRId64 ", found %" PRId64, part->path, key, wanted, found);
}

/* Part i of count, beside the first; NULL when memory is out. */
static const char *part_path(struct model_file *file, int64_t i, int64_t count)
{
    size_t n = strlen(file->path) - strlen("-00001-of-00003.gguf");
    return arena_printf(&file->arena, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)n, file->path, i + 1, count);
}

static int check_first_part(const struct model_file *file, int64_t no, int64_t count)
{
    if (count < 0 || count > PARTS_MAX || no < 0 || no >= MAX(count, 1))
        return error_set(ERR_BAD_FILE, "%s: split.no, split.count: no file is %" PRId64 " of %" PRId64,
                         file->path, no, count);

    char ending[64];
    snprintf(ending, sizeof ending, "-00001-of-%05" PRId64 ".gguf", count);
    size_t n = strlen(file->path), n_ending = strlen(ending);
    if (no > 0)
        return error_set(ERR_BAD_FILE, "%s: split.no: this is part %" PRId64 " of %" PRId64 ", open the one named NAME%s",
                         file->path, no + 1, count, ending);
    if (count > 1 && (n < n_ending || strcmp(file->path + n - n_ending, ending)))
        return error_set(ERR_BAD_FILE, "%s: split.count: the first of %" PRId64 " parts must be named NAME%s",
                         file->path, count, ending);
    return 0;
}

static int add_other_parts(struct model_file *file)
{
    struct model_part *part = file->first;
    int64_t count = split_key(part, "split.count");
    int err = check_first_part(file, split_key(part, "split.no"), count);

    for (int64_t i = 1; i < count && !err; i++, part = part->next) {
        const char *path = part_path(file, i, count);
        if (!path)
            return gguf_no_memory();
        if ((err = add_part(file, &part->next, path)) < 0 ||
            (err = check_split_key(part->next, "split.no", i)) < 0 ||
            (err = check_split_key(part->next, "split.count", count)) < 0)
            return err;
    }
    if (err || count <= 1)
        return err;
    return check_split_key(file->first, "split.tensors.count", (int64_t)file->n_tensors);
}

/* The table of tensors. */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct model_tensor *const *)a)->name, (*(const struct model_tensor *const *)b)->name);
}

static int index_tensors(struct model_file *file)
{
    uint64_t n = 0;
    file->tensors = arena_array(&file->arena, const struct model_tensor *, file->n_tensors);
    file->by_name = arena_array(&file->arena, const struct model_tensor *, file->n_tensors);
    if (!file->tensors || !file->by_name)
        return gguf_no_memory();
    for (const struct model_part *part = file->first; part; part = part->next)
        for (const struct gguf_tensor *t = part->gguf.tensors; t; t = t->next, n++)
            file->tensors[n] = file->by_name[n] = &t->tensor;
    qsort(file->by_name, n, sizeof *file->by_name, compare_names);
    for (uint64_t i = 1; i < n; i++)
        if (!compare_names(&file->by_name[i - 1], &file->by_name[i])) {
            char name[96];
            gguf_print_name(name, sizeof name, file->by_name[i]->name, strlen(file->by_name[i]->name));
            return error_set(ERR_BAD_FILE, "%s: tensor %s: the name appears twice", file->path, name);
        }
    return 0;
}

int model_file_open(struct model_file **out, const char *path)
{
    struct model_file *file = calloc(1, sizeof *file);
    int err;

    if (!file)
        return gguf_no_memory();
    if (!(file->path = arena_string(&file->arena, path))) {
        err = gguf_no_memory();
        goto done;
    }
    if ((err = add_part(file, &file->first, path)) < 0 ||
        (err = add_other_parts(file)) < 0 ||
        (err = index_tensors(file)) < 0 ||
        (err = gguf_copy_out(&file->first->gguf, &file->arena)) < 0)
        goto done;
    *out = file;
    file = NULL;                /* the caller owns it now */
done:
    model_file_close(file);
    return err;
}

void model_file_close(struct model_file *file)
{
    if (!file)
        return;
    for (struct model_part *part = file->first; part; part = part->next)
        map_file_close(&part->map);
    struct arena arena = file->arena;
    free(file);
    arena_close(&arena);
}

const char *model_file_path(const struct model_file *file)
{
    return file->path;
}

size_t model_file_bytes(const struct model_file *file)
{
    return file->n_bytes;
}

bool model_file_holds(const struct model_file *file, const char *path)
{
    struct stat a, b;
    if (stat(path, &a) < 0)
        return false;
    for (const struct model_part *part = file->first; part; part = part->next)
        if (stat(part->path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return true;
    return false;
}

uint64_t model_file_digest(const struct model_file *file)
{
    return file->digest;
}

uint64_t model_file_stamp(const struct model_file *file)
{
    return file->stamp;
}

static size_t take_sample(const struct model_file *file, const struct model_tensor *t, size_t at, unsigned char *to)
{
    const size_t window = 1 << 16, most = MODEL_SAMPLE_BYTES / 2;      /* window: what the system maps around a page that is touched */
    size_t begin = at > window ? at - window : 0, n = MIN(most, t->n_bytes - at);
    memcpy(to, (const char *)t->data + at, n);
    model_file_drop_pages(file, (const char *)t->data + begin, MIN(2 * window, t->n_bytes - begin));
    return n;
}

size_t model_file_sample(const struct model_file *file, const struct model_tensor *t, unsigned char sample[MODEL_SAMPLE_BYTES])
{
    size_t n = take_sample(file, t, t->n_bytes / 3, sample);
    return n + take_sample(file, t, t->n_bytes / 3 * 2, sample + n);
}

struct model_identity model_file_identity(const struct model_file *file)
{
    struct { uint64_t before[2]; unsigned char sample[MODEL_SAMPLE_BYTES]; } piece = { .before = { file->digest } };
    for (uint64_t i = 0; i < file->n_tensors; i++) {
        XXH128_hash_t h = XXH3_128bits(&piece, sizeof piece.before + model_file_sample(file, file->tensors[i], piece.sample));
        piece.before[0] = h.high64;
        piece.before[1] = h.low64;
    }
    return (struct model_identity){ { piece.before[0], piece.before[1] } };
}

uint64_t model_file_n_tensors(const struct model_file *file)
{
    return file->n_tensors;
}

const struct model_tensor *model_file_tensor_at(const struct model_file *file, uint64_t i)
{
    assert(i < file->n_tensors);
    return file->tensors[i];
}

const struct model_tensor *model_file_tensor(const struct model_file *file, const char *name)
{
    const struct model_tensor wanted = { .name = name }, *p = &wanted;
    const struct model_tensor **found = bsearch(&p, file->by_name, file->n_tensors, sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

void model_file_drop_pages(const struct model_file *file, const void *bytes, size_t n_bytes)
{
    const uint8_t *data = bytes;
    for (const struct model_part *part = file->first; part; part = part->next)
        if (data >= part->map.bytes && data < part->map.bytes + part->map.n_bytes)
            map_file_drop(&part->map, (size_t)(data - part->map.bytes), n_bytes);
}
