/* test_packed_file.c: a packed file is mapped when it is whole, of these weights, of this state of the model and of somebody to trust, and
 * never otherwise; many processes may write and read it at once; what cannot be written leaves nothing behind. */
#include "run/packed_file.h"

#include "base/error.h"
#include "base/random.h"
#include "tests/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_BYTES = (2 << 20) + 5123, HEAD = 4096 };       /* two chunks and a piece; the head of so few takes a page */

/* The program is linked so that calls of flock() come by here. */
static int flock_error;
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    errno = flock_error;
    return flock_error ? -1 : __real_flock(fd, how);
}

static const struct packed_key key = { { 0x0123456789abcdef, 0xfedcba9876543210 }, 77 };
static unsigned char bytes[N_BYTES];
static struct pool *pool;
static char folder[64], path[128], new_path[128];

static void make_names(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoa-packed.XXXXXX");
    check(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/0123456789abcdeffedcba9876543210.packed", folder);
    snprintf(new_path, sizeof new_path, "%s/0123456789abcdeffedcba9876543210.new", folder);
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(name, &st) == 0;
}

static void write_it(void)
{
    check_int(packed_file_write(folder, &key, bytes, N_BYTES, pool), 0);
}

/* What opening says; what it gives is compared and closed again. */
static int open_as(const struct packed_key *as, size_t n_bytes)
{
    struct packed_file file = { 0 };
    int err = packed_file_open(&file, folder, as, n_bytes, pool);
    if (err == 0) {
        check_int(file.n_bytes, N_BYTES);
        check_int((uintptr_t)file.bytes % CACHE_LINE, 0);
        check(!memcmp(file.bytes, bytes, N_BYTES));
    }
    check(err == 0 || !file.map);
    packed_file_close(&file);
    return err;
}

static int open_it(void)
{
    return open_as(&key, N_BYTES);
}

/* It is refused, and the line has the word. */
static void refused(int err, const char *word)
{
    if (check_int(err, ERR_BAD_FILE) && !check(strstr(error_text(), word)))
        fprintf(stderr, "      wanted \"%s\" in: %s\n", word, error_text());
}

static void flip(off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    check(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= (unsigned char)(1 << at % 8);
    check(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* ---- one process ---- */
static void test_round_trip(void)
{
    struct stat st;
    check_begin("what is written is mapped");
    check_int(open_it(), 1);
    write_it();
    check_int(open_it(), 0);
    check(!exists(new_path));
    check(stat(path, &st) == 0 && st.st_size == HEAD + N_BYTES && (st.st_mode & 0777) == 0600);
    write_it();
    check_int(open_it(), 0);
}

static void test_other_weights(void)
{
    struct packed_key other = key;
    char other_path[128];
    check_begin("another key has another file, another stamp is stale");
    other.word[1]++;
    check_int(open_as(&other, N_BYTES), 1);
    snprintf(other_path, sizeof other_path, "%s/0123456789abcdeffedcba9876543211.packed", folder);
    check(link(path, other_path) == 0);
    refused(open_as(&other, N_BYTES), "other weights");
    unlink(other_path);
    other = key;
    other.stamp++;
    refused(open_as(&other, N_BYTES), "stale");
    refused(open_as(&key, N_BYTES - 64), "damaged");
    check_int(open_it(), 0);
}

static void test_flipped_bytes(void)
{
    check_begin("a byte that differs is noticed wherever it is");
    for (off_t at = 0; at < HEAD + N_BYTES; at += at < HEAD ? 1 : at > HEAD + N_BYTES - 70 ? 1 : 9973) {
        flip(at);
        if (!check_int(open_it(), ERR_BAD_FILE))
            fprintf(stderr, "      at byte %lld\n", (long long)at);
        flip(at);
    }
    check_int(open_it(), 0);
}

static void test_lengths(void)
{
    static const off_t lengths[] = { HEAD + N_BYTES - 1, HEAD + N_BYTES + 1, HEAD + (1 << 20), HEAD, HEAD - 1, 60, 1, 0 };
    check_begin("a file that is cut short, or longer, is noticed");
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        check(truncate(path, lengths[i]) == 0);
        refused(open_it(), "damaged");
    }
    write_it();
    check_int(open_it(), 0);
}

static void test_trust(void)
{
    char elsewhere[128];
    check_begin("only a file of ours or root's that nobody else may write");
    check(chmod(path, 0620) == 0);
    refused(open_it(), "not trusted");
    check(chmod(path, 0602) == 0);
    refused(open_it(), "not trusted");
    check(chmod(path, 0444) == 0);
    check_int(open_it(), 0);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    check(rename(path, elsewhere) == 0 && symlink(elsewhere, path) == 0);
    refused(open_it(), path);
    unlink(path);
    check(mkfifo(path, 0600) == 0);         /* not waited for */
    refused(open_it(), "not trusted");
    unlink(path);
    check(rename(elsewhere, path) == 0);
    if (geteuid() == 0) {
        check(chown(path, 65534, 65534) == 0);
        refused(open_it(), "not trusted");
    }
    write_it();
    check_int(open_it(), 0);
}

static void test_empty_region(void)
{
    struct packed_file file = { 0 };
    check_begin("the least file has one byte");
    check_int(packed_file_write(folder, &key, bytes, 1, pool), 0);
    check_int(packed_file_open(&file, folder, &key, 1, pool), 0);
    check(file.n_bytes == 1 && file.bytes[0] == bytes[0]);
    packed_file_close(&file);
    write_it();
}

/* ---- what cannot be written ---- */
static void fails_to_write(const char *where, const char *word)
{
    check_int(packed_file_write(where, &key, bytes, N_BYTES, pool), ERR_FAILED);
    if (!check(strstr(error_text(), word)))
        fprintf(stderr, "      wanted \"%s\" in: %s\n", word, error_text());
}

static void test_unwritable(void)
{
    char name[5000];
    check_begin("a folder that cannot be");
    fails_to_write(path, "Not a directory");
    snprintf(name, sizeof name, "%s/a/b", folder);
    fails_to_write(name, "No such file");
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    fails_to_write(name, "too long");
    if (geteuid() != 0) {
        check(chmod(folder, 0500) == 0);
        fails_to_write(folder, "denied");
        check(chmod(folder, 0700) == 0);
    }
}

static void test_full_disk(void)
{
    struct rlimit old, small;
    check_begin("no room: what was there stays, and nothing is left behind");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = N_BYTES / 2;
    check(setrlimit(RLIMIT_FSIZE, &small) == 0);
    fails_to_write(folder, "too large");
    check(setrlimit(RLIMIT_FSIZE, &old) == 0);
    check(!exists(new_path));
    check_int(open_it(), 0);
}

/* ---- many processes ---- */
static void test_leftover(void)
{
    check_begin("what a dead process left is taken over, what a living one writes is left to it");
    int fd = open(new_path, O_CREAT | O_WRONLY, 0666);
    unlink(path);
    check(fd >= 0 && write(fd, bytes, 5000) == 5000 && flock(fd, LOCK_EX) == 0);
    write_it();
    check_int(open_it(), 1);
    close(fd);                              /* and with it the lock: it has died */
    write_it();
    check_int(open_it(), 0);
    check(!exists(new_path));
}

static void test_no_lock(void)
{
    static const int errors[] = { ENOLCK, ENOSYS };
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        check_begin("a file that cannot be locked is nobody's: %s", strerror(errors[i]));
        flock_error = errors[i];
        fails_to_write(folder, strerror(errors[i]));
        flock_error = 0;
        unlink(new_path);
    }
    check_begin("what others may write is not taken over");
    int fd = open(new_path, O_CREAT | O_WRONLY, 0600);
    check(fd >= 0 && fchmod(fd, 0620) == 0);
    close(fd);
    fails_to_write(folder, "not trusted");
    check(exists(new_path));
    unlink(new_path);
}

/* Of its results, how many are not as they should be. */
static int read_and_write(int n)
{
    int n_bad = 0;
    for (int i = 0; i < n; i++) {
        struct packed_file file = { 0 };
        int err = packed_file_open(&file, folder, &key, N_BYTES, pool);
        n_bad += err < 0 || (err == 0 && memcmp(file.bytes, bytes, N_BYTES));
        packed_file_close(&file);
        n_bad += err == 1 && packed_file_write(folder, &key, bytes, N_BYTES, pool) < 0;
        if (i % 7 == 3)
            unlink(path);
    }
    return n_bad;
}

static void test_many(void)
{
    enum { N = 6 };
    pid_t child[N];
    check_begin("many processes write, read and remove it at once");
    pool_close(pool);                       /* threads do not outlive a fork */
    fflush(NULL);
    for (int i = 0; i < N; i++)
        if ((child[i] = fork()) == 0) {
            if (pool_open(&pool, 1, false) < 0)
                _exit(100);
            _exit(read_and_write(60));
        }
    for (int i = 0; i < N; i++) {
        int status = -1;
        check(waitpid(child[i], &status, 0) == child[i]);
        check_int(status, 0);
    }
    check_int(pool_open(&pool, 2, false), 0);
    check(!exists(new_path));
}

int main(void)
{
    if (pool_open(&pool, 2, false) < 0)
        return 1;
    for (size_t i = 0; i < N_BYTES; i++)
        bytes[i] = (unsigned char)random_u64(5, i);
    make_names();
    test_round_trip();
    test_other_weights();
    test_flipped_bytes();
    test_lengths();
    test_trust();
    test_empty_region();
    test_unwritable();
    test_full_disk();
    test_leftover();
    test_no_lock();
    test_many();
    unlink(path);
    check(rmdir(folder) == 0);
    pool_close(pool);
    return check_done();
}
