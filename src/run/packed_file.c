#include "run/packed_file.h"

#include "base/base.h"
#include "base/error.h"
#include "base/life.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define VERSION 1                   /* of this file; that of the panels is in the key */
#define CHUNK ((size_t)1 << 20)
#define PAGE ((size_t)4096)

/* Numbers as this machine has them: packed weights are no file to carry elsewhere. */
struct head {
    char magic[8];
    uint64_t hash;                  /* XXH3 of all that follows it, up to the weights */
    uint32_t version, n_chunks;
    uint64_t key[2], stamp, n_bytes;
    uint64_t chunk_hash[];          /* and zeros up to a whole page */
};
static const char magic[8] = "STOA-PK";

static size_t n_chunks(size_t n_bytes)
{
    return DIV_UP(n_bytes, CHUNK);
}

static size_t head_bytes(size_t n_bytes)
{
    return ROUND_UP(sizeof(struct head) + n_chunks(n_bytes) * sizeof(uint64_t), PAGE);
}

static uint64_t head_hash(const struct head *head, size_t n_bytes)
{
    size_t skipped = offsetof(struct head, version);
    return XXH3_64bits((const unsigned char *)head + skipped, head_bytes(n_bytes) - skipped);
}

/* 0, or ERR_FAILED when the path is too long. */
static int path_of(char path[PATH_MAX], const char *folder, const struct packed_key *key, const char *ending)
{
    int n = snprintf(path, PATH_MAX, "%s/%016" PRIx64 "%016" PRIx64 ".%s", folder, key->word[0], key->word[1], ending);
    return n < PATH_MAX ? 0 : error_set(ERR_FAILED, "the path of a file in the packed cache is too long");
}

/* ---- hashes of chunks, by all threads ---- */
struct hashing {
    const unsigned char *bytes;
    size_t n_bytes;
    uint64_t *to;                   /* makes them, or compares them with: */
    const uint64_t *wanted;
    atomic_size_t next;
    atomic_bool differs;
};

static void hash_chunks(void *user, int thread)
{
    struct hashing *h = user;
    (void)thread;
    for (size_t i; !h->differs && (i = atomic_fetch_add(&h->next, 1)) < n_chunks(h->n_bytes);) {
        life_sign();
        uint64_t hash = XXH3_64bits(h->bytes + i * CHUNK, MIN(CHUNK, h->n_bytes - i * CHUNK));
        if (h->to)
            h->to[i] = hash;
        else if (hash != h->wanted[i])
            h->differs = true;
    }
}

/* ---- reading ---- */
#define NOT_TRUSTED "%s: not trusted: it must be a file of this user or of root, which nobody else may write"

static bool is_trusted(const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_uid == geteuid() || st->st_uid == 0) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

static int check_head(const struct head *head, const char *path, const struct packed_key *key, size_t n_bytes)
{
    if (memcmp(head->magic, magic, sizeof magic) || head->hash != head_hash(head, n_bytes))
        return error_set(ERR_BAD_FILE, "%s: damaged", path);
    if (head->version != VERSION || head->n_bytes != n_bytes || head->n_chunks != n_chunks(n_bytes) ||
        memcmp(head->key, key->word, sizeof head->key))
        return error_set(ERR_BAD_FILE, "%s: has other weights than its name says", path);
    if (head->stamp != key->stamp)
        return error_set(ERR_BAD_FILE, "%s: stale, the model file has been written or replaced since", path);
    return 0;
}

static int check_chunks(const struct packed_file *file, const struct head *head, const char *path, struct pool *pool)
{
    struct hashing h = { .bytes = file->bytes, .n_bytes = file->n_bytes, .wanted = head->chunk_hash };
    pool_run(pool, hash_chunks, &h);
    return h.differs ? error_set(ERR_BAD_FILE, "%s: damaged", path) : 0;
}

/* The size is right before anything is read: a file that is cut short has no bytes there. */
static int map(struct packed_file *file, int fd, const char *path, size_t n_bytes)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set(ERR_BAD_FILE, "%s: %s", path, strerror(errno));
    if (!is_trusted(&st))
        return error_set(ERR_BAD_FILE, NOT_TRUSTED, path);
    if ((uint64_t)st.st_size != head_bytes(n_bytes) + n_bytes)
        return error_set(ERR_BAD_FILE, "%s: damaged: %jd bytes, wanted %zu", path, (intmax_t)st.st_size, head_bytes(n_bytes) + n_bytes);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return error_set(ERR_NO_MEMORY, "%s: cannot map %jd bytes: %s", path, (intmax_t)st.st_size, strerror(errno));
    *file = (struct packed_file){ .map = bytes, .map_bytes = (size_t)st.st_size, .n_bytes = n_bytes,
                                  .bytes = (unsigned char *)bytes + head_bytes(n_bytes) };
    return 0;
}

int packed_file_open(struct packed_file *out, const char *folder, const struct packed_key *key, size_t n_bytes, struct pool *pool)
{
    struct packed_file file = { 0 };
    char path[PATH_MAX];
    int err = path_of(path, folder, key, "packed");
    if (err < 0)
        return err;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 1 : error_set(ERR_BAD_FILE, "%s: %s", path, strerror(errno));
    err = map(&file, fd, path, n_bytes);
    close(fd);
    if (err < 0)
        return err;
    if ((err = check_head(file.map, path, key, n_bytes)) < 0 || (err = check_chunks(&file, file.map, path, pool)) < 0) {
        packed_file_close(&file);
        return err;
    }
    *out = file;
    return 0;
}

void packed_file_close(struct packed_file *file)
{
    if (file->map)
        munmap(file->map, file->map_bytes);
    *file = (struct packed_file){ 0 };
}

/* ---- writing ---- */
static struct head *make_head(const struct packed_key *key, const void *bytes, size_t n_bytes, struct pool *pool)
{
    struct head *head = calloc(1, head_bytes(n_bytes));
    if (!head)
        return NULL;
    *head = (struct head){ .version = VERSION, .n_chunks = (uint32_t)n_chunks(n_bytes), .key = { key->word[0], key->word[1] },
                           .stamp = key->stamp, .n_bytes = n_bytes };
    memcpy(head->magic, magic, sizeof magic);
    struct hashing h = { .bytes = bytes, .n_bytes = n_bytes, .to = head->chunk_hash };
    pool_run(pool, hash_chunks, &h);
    head->hash = head_hash(head, n_bytes);
    return head;
}

/* 1 when this process is the one to write the file, 0 when another does or has done so.  Who had the lock before may have renamed it. */
static int take_lock(int fd, const char *path)
{
    struct stat ours, there;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : error_set(ERR_FAILED, "%s: cannot be locked: %s", path, strerror(errno));
    if (fstat(fd, &ours) < 0)
        return error_set(ERR_FAILED, "%s: %s", path, strerror(errno));
    if (lstat(path, &there) < 0)
        return errno == ENOENT ? 0 : error_set(ERR_FAILED, "%s: %s", path, strerror(errno));
    if (ours.st_ino != there.st_ino || ours.st_dev != there.st_dev)
        return 0;
    if (!is_trusted(&ours) || ours.st_nlink != 1)
        return error_set(ERR_FAILED, NOT_TRUSTED, path);
    return 1;
}

static int write_locked(int fd, const char *path, const char *to, const struct head *head, const void *bytes)
{
    if (head && ftruncate(fd, 0) == 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0 && write_all(fd, head, head_bytes(head->n_bytes)) == 0 &&
        write_all(fd, bytes, head->n_bytes) == 0 && rename(path, to) == 0)
        return 0;
    int err = error_set(ERR_FAILED, "%s: %s", path, strerror(errno));
    unlink(path);
    return err;
}

int packed_file_write(const char *folder, const struct packed_key *key, const void *bytes, size_t n_bytes, struct pool *pool)
{
    char path[PATH_MAX], to[PATH_MAX];
    int err = path_of(path, folder, key, "new");
    if (err < 0 || (err = path_of(to, folder, key, "packed")) < 0)
        return err;
    mkdir(folder, S_IRWXU);             /* if it fails, so does what follows, but for a folder that is there */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return error_set(ERR_FAILED, "%s: %s", path, strerror(errno));
    if ((err = take_lock(fd, path)) == 1) {
        struct head *head = make_head(key, bytes, n_bytes, pool);
        err = write_locked(fd, path, to, head, bytes);
        free(head);
    }
    close(fd);
    return err;
}
