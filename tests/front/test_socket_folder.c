/* test_socket_folder.c: a folder is private and goes away; of a front that is killed it goes when the next one makes its own. */
#include "front/socket_folder.h"
#include "base/base.h"
#include "tests/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char base[] = "/tmp/stoa-test.XXXXXX";

static int n_entries(void)
{
    DIR *dir = opendir(base);
    struct dirent *entry;
    int n = 0;
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* What binding a socket there leaves. */
static void touch(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    check(fd >= 0);
    close(fd);
}

/* Another front, which has its folder when this returns. */
static pid_t start_front(void)
{
    int ready[2];
    char byte;
    check_int(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct socket_folder f = { 0 };
        if (socket_folder_make(&f) < 0 || open(f.socket, O_CREAT | O_WRONLY, 0600) < 0)
            _exit(1);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    check_int(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void kill_front(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_own(void)
{
    struct socket_folder f = { 0 };
    struct stat info;
    check_begin("a folder of one's own");
    socket_folder_remove(&f);
    check_int(socket_folder_make(&f), 0);
    check(!strncmp(f.path, base, strlen(base)) && !strncmp(f.socket, f.path, strlen(f.path)));
    check_int(stat(f.path, &info), 0);
    check_int(info.st_mode & 0777, 0700);
    touch(f.socket);
    socket_folder_remove(&f);
    check_int(n_entries(), 0);
    check_text(f.path, "");
    socket_folder_remove(&f);
    check_begin("where there is none");
    setenv("TMPDIR", "/nonexistent", 1);
    check(socket_folder_make(&f) < 0);
    check_text(f.path, "");
    setenv("TMPDIR", base, 1);
}

static void test_dead(void)
{
    struct socket_folder f = { 0 };
    char path[64];
    check_begin("folders of the dead go, those of the living and of others stay");
    pid_t dead = start_front(), alive = start_front();
    snprintf(path, sizeof path, "%s/stoa.front.other", base);
    check_int(mkdir(path, 0700), 0);
    check_int(n_entries(), 3);
    kill_front(dead);
    check_int(n_entries(), 3);
    check_int(socket_folder_make(&f), 0);
    check_int(n_entries(), 3);
    socket_folder_remove(&f);
    check_int(n_entries(), 2);
    kill_front(alive);
    check_int(socket_folder_make(&f), 0);
    socket_folder_remove(&f);
    check_int(n_entries(), 1);
    rmdir(path);
}

int main(void)
{
    if (!check(mkdtemp(base)))
        return check_done();
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", base, 1);
    test_own();
    test_dead();
    rmdir(base);
    return check_done();
}
