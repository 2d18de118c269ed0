#include "base/error.h"
#include "format/gguf_write.h"
#include "tests/check.h"
#include "tests/format/gguf_writer.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#define KEYS \
    "s:general.architecture w:8 s:llama s:general.alignment w:4 w:64 s:words w:9 w:8 q:3 s:one s: s:three s:general.file_type w:4 w:3 " \
    "s:flags w:9 w:7 q:2 b:1 b:0 s:split.count w:2 h:1 s:wide w:10 q:0xffffffffffffffff s:real w:6 f:0.1 s:scores w:9 w:6 q:2 f:-1 f:2.5 "
#define TENSORS "s:a w:2 q:4 q:3 w:0 q:0 s:b w:1 q:32 w:8 q:64 s:c w:4 q:1 q:2 q:1 q:1 w:26 q:128 "
static const char source_line[] = "GGUF w:3 q:3 q:9 " KEYS TENSORS "a:64 r:48 a:64 r:34 a:64 r:8 a:64";

/* The program is linked so that these calls come by here: a file system without O_TMPFILE (as where /proc is missing), without link(),
 * and with another file that comes or with no RENAME_NOREPLACE. */
static bool no_proc, no_link;
static int rename_error;
int __real_access(const char *name, int how);
int __wrap_access(const char *name, int how);
int __wrap_access(const char *name, int how)
{
    return no_proc && !strncmp(name, "/proc/", 6) ? -1 : __real_access(name, how);
}
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    errno = EPERM;
    return no_link ? -1 : __real_link(from, to);
}
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    errno = rename_error;
    return rename_error ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}

static char folder[] = "/tmp/stoa-test-XXXXXX", source_path[64], path[64];
static struct model_file *source;

static void write_file(const char *name, const void *bytes, size_t n_bytes)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, n_bytes, f) != n_bytes || fclose(f)) {
        perror(name);
        exit(1);
    }
}

static size_t read_file(const char *name, uint8_t *bytes, size_t n_max)
{
    FILE *f = fopen(name, "rb");
    size_t n = f ? fread(bytes, 1, n_max, f) : 0;
    if (f)
        fclose(f);
    return n;
}

static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Writes the source again, up to commit: its tensors in pieces of `piece` bytes. */
static int write_again(struct gguf_writer **w, bool replace, const struct gguf_change *change, size_t n_changes, size_t piece)
{
    int err = gguf_writer_open(w, path, replace);
    if (err < 0)
        return err;
    gguf_writer_copy_keys(*w, source, change, n_changes);
    for (uint64_t i = 0; i < model_file_n_tensors(source); i++)
        gguf_writer_add_tensor(*w, model_file_tensor_at(source, i));
    err = gguf_writer_begin(*w);
    for (uint64_t i = 0; i < model_file_n_tensors(source); i++) {
        const struct model_tensor *t = model_file_tensor_at(source, i);
        for (size_t at = 0; !err && at < t->n_bytes; at += piece)
            err = gguf_writer_data(*w, (const uint8_t *)t->data + at, MIN(piece, t->n_bytes - at));
    }
    return err;
}

static void test_same_bytes(void)
{
    static const size_t pieces[] = { 1, 7, 1000 };
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        struct gguf_writer *w = NULL;
        uint8_t want[4096], got[4096];
        check_begin("every kind of key, alignment 64: the same bytes again, in pieces of %zu", pieces[i]);
        check_int(write_again(&w, false, NULL, 0, pieces[i]), 0);
        size_t n = read_file(source_path, want, sizeof want);
        check_int(gguf_writer_bytes(w), n);
        check_int(access(path, F_OK), -1);
        check_int(gguf_writer_commit(w), 0);
        gguf_writer_close(w);
        check_int(read_file(path, got, sizeof got), n);
        check_bytes("file", got, want, n);
        check_int(n_files(), 2);
        unlink(path);
    }
}

static void test_changes(void)
{
    static const struct gguf_change changes[] = {
        { .key = "general.file_type", .value = 14 }, { .key = "split.count", .remove = true }, { .key = "absent", .remove = true },
        { .key = "general.quantization_version", .value = 2 },
    };
    struct gguf_writer *w = NULL;
    struct model_file *file = NULL;
    uint64_t value = 0;
    check_begin("keys that change, go and come");
    check_int(write_again(&w, false, changes, COUNT_OF(changes), 1000), 0);
    check_int(gguf_writer_commit(w), 0);
    gguf_writer_close(w);
    if (check_int(model_file_open(&file, path), 0)) {
        check(model_file_get_u64(file, "general.file_type", &value) && value == 14);
        check(model_file_get_u64(file, "general.quantization_version", &value) && value == 2);
        check(model_file_get_u64(file, "wide", &value) && value == UINT64_MAX);
        check(!model_file_has(file, "split.count") && !model_file_has(file, "absent"));
        for (uint64_t i = 0; i < model_file_n_tensors(file); i++) {
            const struct model_tensor *a = model_file_tensor_at(source, i), *b = model_file_tensor_at(file, i);
            check_text(b->name, a->name);
            check_int(b->n_bytes, a->n_bytes);
            check_bytes(a->name, b->data, a->data, a->n_bytes);
        }
    }
    model_file_close(file);
    unlink(path);
}

static void test_given_up(void)
{
    struct gguf_writer *w = NULL;
    check_begin("closed without commit: nothing was there, nothing is left");
    check_int(write_again(&w, false, NULL, 0, 1000), 0);
    gguf_writer_close(w);
    check_int(n_files(), 1);
    gguf_writer_close(NULL);
}

static bool says(const char *what)
{
    return strstr(error_text(), what) ? true : check_text(error_text(), what);
}

static void test_taken(void)
{
    struct gguf_writer *w = NULL;
    uint8_t got[8];
    char link_path[80], target[80];
    struct stat st;
    check_begin("what is there stays unless it may be replaced");
    write_file(path, "old", 3);
    check_int(gguf_writer_open(&w, path, false), ERR_USAGE);
    check(says(path));
    check_int(read_file(path, got, sizeof got), 3);
    check_int(write_again(&w, true, NULL, 0, 1000), 0);
    check_int(read_file(path, got, sizeof got), 3);
    check_int(gguf_writer_commit(w), 0);
    gguf_writer_close(w);
    check_int(read_file(path, got, 4), 4);
    check_bytes("the new file", got, "GGUF", 4);
    check_int(n_files(), 2);
    unlink(path);

    check_begin("what comes there meanwhile stays too");
    check_int(write_again(&w, false, NULL, 0, 1000), 0);
    write_file(path, "new", 3);
    check_int(gguf_writer_commit(w), ERR_FAILED);
    gguf_writer_close(w);
    check_int(read_file(path, got, sizeof got), 3);
    check_int(n_files(), 2);
    unlink(path);

    check_begin("a link stays one, and leads to the new file");
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(link_path, sizeof link_path, "%s", path);
    write_file(target, "old", 3);
    check_int(symlink(target, link_path), 0);
    check_int(gguf_writer_open(&w, path, false), ERR_USAGE);
    check_int(write_again(&w, true, NULL, 0, 1000), 0);
    check_int(gguf_writer_commit(w), 0);
    gguf_writer_close(w);
    check(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    check_int(read_file(target, got, 4), 4);
    check_bytes("the target", got, "GGUF", 4);
    unlink(path);
    unlink(target);

    check_begin("a link that leads nowhere stays");
    check_int(symlink(target, path), 0);
    check_int(gguf_writer_open(&w, path, true), ERR_USAGE);
    check(says("leads to no file"));
    check(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    unlink(path);

    check_begin("no folder, and what is no file");
    check_int(gguf_writer_open(&w, "/nowhere/at/all.gguf", false), ERR_FAILED);
    check(says("/nowhere/at/all.gguf"));
    check_int(gguf_writer_open(&w, folder, true), ERR_USAGE);
    check_int(gguf_writer_open(&w, "/dev/null", true), ERR_USAGE);
    check_int(n_files(), 1);
}

/* Where the file has a name from the start. */
static void test_named(void)
{
    static const struct { const char *name; bool replace, no_link, taken; int rename_error, want; } rows[] = {
        { "link", false, false, false, ENOSYS, 0 },
        { "link, taken meanwhile", false, false, true, ENOSYS, ERR_FAILED },
        { "no link", false, true, false, 0, 0 },
        { "no link, taken meanwhile", false, true, true, 0, ERR_FAILED },
        { "neither link nor such a rename", false, true, false, EINVAL, ERR_FAILED },
        { "neither, taken meanwhile", false, true, true, EINVAL, ERR_FAILED },
        { "neither, and may be replaced", true, true, true, EINVAL, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct gguf_writer *w = NULL;
        uint8_t got[8];
        check_begin("a file with a name from the start: %s", rows[i].name);
        no_proc = true;
        check_int(write_again(&w, rows[i].replace, NULL, 0, 1000), 0);
        check_int(n_files(), 2);
        if (rows[i].taken)
            write_file(path, "new", 3);
        no_link = rows[i].no_link;
        rename_error = rows[i].rename_error;
        check_int(gguf_writer_commit(w), rows[i].want);
        gguf_writer_close(w);
        no_proc = no_link = false;
        check_int(n_files(), 1 + (!rows[i].want || rows[i].taken));
        if (!rows[i].want && check_int(read_file(path, got, 4), 4))
            check_bytes("the new file", got, "GGUF", 4);
        if (rows[i].want && rows[i].taken)
            check_int(read_file(path, got, sizeof got), 3);
        unlink(path);
    }
}

/* A limit of the process stands for a full disk: it takes the same ways. */
static void test_full(void)
{
    struct gguf_writer *w = NULL;
    struct rlimit old, small = { 300, 300 };
    check_begin("a full disk is seen before anything is written");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    check_int(gguf_writer_open(&w, path, false), 0);
    gguf_writer_copy_keys(w, source, NULL, 0);
    gguf_writer_add_tensor(w, model_file_tensor_at(source, 0));
    check_int(gguf_writer_begin(w), ERR_FAILED);
    check(says("no room"));
    gguf_writer_close(w);
    setrlimit(RLIMIT_FSIZE, &old);
    check_int(n_files(), 1);
}

int main(void)
{
    struct buffer buffer = { 0 };
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    snprintf(source_path, sizeof source_path, "%s/source.gguf", folder);
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    gguf_write(&buffer, source_line);
    write_file(source_path, buffer.bytes, buffer.size);
    buffer_release(&buffer);
    if (model_file_open(&source, source_path) < 0) {
        puts(error_text());
        return 1;
    }
    test_same_bytes();
    test_changes();
    test_given_up();
    test_taken();
    test_named();
    test_full();
    model_file_close(source);
    unlink(source_path);
    rmdir(folder);
    return check_done();
}
