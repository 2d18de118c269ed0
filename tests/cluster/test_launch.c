/* test_launch.c: jobs that end well, fail, are killed or are left alone; afterwards nothing of them may be there.
 *
 * The program is all three: the test, the command that calls launch_ranks() (`test_launch job SCENARIO N`), and its ranks.
 * A job's processes are known by a mark in their environment.  A dead job has to be gone within 2 s; the test allows five
 * times as much and prints how long it took. */
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* There is none where the test says so: in the guard, which leads its session, or in the parent. */
static int signalfd_or_none(int fd, const sigset_t *signals, int flags)
{
    const char *who = getenv("STOA_TEST_NO_SIGNALFD");
    return who && !strcmp(who, getsid(0) == getpid() ? "guard" : "parent") ? -1 : signalfd(fd, signals, flags);
}
#define signalfd signalfd_or_none

#include "cli/launch.c"         /* the library does not hold it: it belongs to the program */
#include "cli/launch_guard.c"
#include "cli/launch_job.c"
#include "cli/launch_mpirun.c"
#include "cli/launch_parent.c"
#include "cli/launch_rank.c"
#include "tests/check.h"

#define MARK "STOA_TEST_MARK"
#define ALLOWED_MS 10000

/* ---- a rank --------------------------------------------------------------------------------------------------------------- */
static void say(const char *line)
{
    printf("%s\n", line);
    fflush(stdout);
}

static void echo_input(void)
{
    char bytes[8192];
    size_t n;
    while ((n = fread(bytes, 1, sizeof bytes, stdin)) > 0)
        fwrite(bytes, 1, n, stdout);
}

/* Says what it reads, a line each; Ctrl-C is one of them. */
static void chat(void)
{
    char line[100];
    say("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "bye\n"))
        say(line[0] == '\x03' ? "interrupted" : strtok(line, "\n"));
}

static void rank_zero(const char *scenario)
{
    if (!strcmp(scenario, "end")) {
        say("hello");
    } else if (!strcmp(scenario, "lines")) {
        for (int i = 0; i < 20000; i++)
            printf("line %d\n", i);
    } else if (!strcmp(scenario, "pieces")) {
        for (int i = 0; i < 10; i++) {
            printf("%d", i);
            fflush(stdout);
            nap_ms(100);
        }
    } else if (!strcmp(scenario, "echo")) {
        echo_input();
    } else if (!strcmp(scenario, "chat")) {
        chat();
    } else if (!strcmp(scenario, "btl")) {
        say(getenv("OMPI_MCA_btl"));
    } else {
        say("ready");
    }
}

static void rank_one(struct comm *world, const char *scenario)
{
    if (!strcmp(scenario, "silent"))
        comm_abort(world, 1);
    if (!strncmp(scenario, "fail", 4)) {
        fprintf(stderr, "rank one says why\n");
        launch_explained();
        comm_abort(world, atoi(scenario + 4));
    }
    if (!strcmp(scenario, "crash"))
        abort();
}

static int rank_main(const char *scenario)
{
    struct comm *world;
    const char *rank = getenv("PMIX_RANK");
    launch_tie_rank();
    if (!strcmp(scenario, "early") && rank && !strcmp(rank, "1")) {
        fprintf(stderr, "rank one says why\n");
        launch_explained();
        return 3;
    }
    if (comm_open_world(&world) < 0)
        comm_abort(NULL, 1);
    if (comm_rank(world) == 0)
        rank_zero(scenario);
    else if (comm_rank(world) == 1)
        rank_one(world, scenario);
    if (!strcmp(scenario, "wait"))
        while (comm_rank(world) != comm_size(world))
            pause();
    comm_close(world);          /* naps until rank 0 comes */
    return 0;
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */
static int command_main(int argc, char **argv)
{
    struct launch_options options = {
        .n_ranks = atoi(argv[3]), .hosts_file = argc > 4 ? argv[4] : NULL,
        .chat = !strcmp(argv[2], "chat"), .no_input = !strcmp(argv[2], "end"),
    };
    int code = launch_ranks(&options, argc, argv);
    if (code < 0)
        fprintf(stderr, "stoa: %s\n", error_text());
    return code < 0 ? error_exit_code(code) : code;
}

/* ---- the test: one run ---------------------------------------------------------------------------------------------------- */
struct run {
    pid_t parent;
    int in, out;                        /* -1: closed */
    char mark[64], folder[64], errors[80];
    char output[1 << 21], error_text[4096];
    bool killed_early;                  /* by SIGKILL before its guard was there: a folder may stay, see launch.h */
    size_t n_output;
    int code;                           /* exit code; 1000 + signal; -1: not in time */
    long long ended_ms;                 /* when it was told to end */
};
static struct run run_now;

/* input: a descriptor for standard input, or -1 for a pipe that the test writes to. */
static struct run *run_start(const char *scenario, const char *n_ranks, const char *hosts_file, int input)
{
    static int n_runs;
    struct run *r = &run_now;
    int in[2] = { -1, -1 }, out[2];
    memset(r, 0, sizeof *r);
    snprintf(r->mark, sizeof r->mark, "%d-%d", (int)getpid(), n_runs++);
    snprintf(r->folder, sizeof r->folder, "/tmp/test_launch.XXXXXX");
    if (!mkdtemp(r->folder) || pipe2(out, O_CLOEXEC) < 0 || (input < 0 && pipe2(in, O_CLOEXEC) < 0))
        abort();
    snprintf(r->errors, sizeof r->errors, "%.60s.err", r->folder);
    r->in = in[1];
    r->out = out[0];
    fflush(stdout);
    r->parent = fork();
    if (r->parent == 0) {
        int err = open(r->errors, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        dup2(input < 0 ? in[0] : input, 0), dup2(out[1], 1), dup2(err, 2);
        setenv(MARK, r->mark, 1);
        setenv("TMPDIR", r->folder, 1);
        execl("/proc/self/exe", "test_launch", "job", scenario, n_ranks, hosts_file, (char *)NULL);
        _exit(126);
    }
    close(out[1]);
    if (in[0] >= 0)
        close(in[0]);
    return r;
}

/* Reads standard output until it holds `text` (NULL: until it ends); false when that takes too long. */
static bool run_read(struct run *r, const char *text)
{
    long long start = now_ms();
    while (!text || !strstr(r->output, text)) {
        struct pollfd fd = { .fd = r->out, .events = POLLIN };
        if (now_ms() - start > 6 * ALLOWED_MS || poll(&fd, 1, 6 * ALLOWED_MS) <= 0)
            return false;
        ssize_t n = read(r->out, r->output + r->n_output, sizeof r->output - 1 - r->n_output);
        if (n <= 0)
            return !text;
        r->n_output += (size_t)n;
    }
    return true;
}

static bool in_file(const char *path, const char *text)
{
    static char bytes[1 << 17];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0, length = strlen(text);
    if (file)
        fclose(file);
    for (size_t i = 0; i + length <= n; i++)
        if ((i == 0 || bytes[i - 1] == '\0') && !memcmp(bytes + i, text, length))
            return true;
    return false;
}

/* A living process of this run with `text` at the begin of its `what` (environ: of a variable); NULL: any.  0: none. */
static pid_t run_process(const struct run *r, const char *what, const char *text)
{
    char mark[128], path[64];
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    snprintf(mark, sizeof mark, MARK "=%s", r->mark);
    while (!found && (entry = readdir(proc))) {
        int pid = atoi(entry->d_name);
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        if (pid <= 0 || pid == getpid() || !in_file(path, mark))
            continue;
        snprintf(path, sizeof path, "/proc/%d/%s", pid, what ? what : "");
        if (!what || in_file(path, text))
            found = pid;
    }
    closedir(proc);
    return found;
}

static int n_entries(const char *folder, const char *prefix)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int n = 0;
    while (dir && (entry = readdir(dir)))
        n += entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix));
    if (dir)
        closedir(dir);
    return n;
}

static void run_signal(struct run *r, pid_t pid, int signal_number)
{
    check(pid > 0);
    if (pid > 0)
        kill(pid, signal_number);
    r->ended_ms = now_ms();
}

/* Everything that has to hold after any job.  Reads what is left of the output. */
static void run_finish(struct run *r)
{
    char prefix[64];
    int status = 0;
    long long start = r->ended_ms ? r->ended_ms : now_ms();
    if (r->in >= 0)
        close(r->in);
    if (r->out >= 0)
        check(run_read(r, NULL));
    while (waitpid(r->parent, &status, WNOHANG) == 0 && now_ms() - start < 6 * ALLOWED_MS)
        nap_ms(2);
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : -1;
    while (run_process(r, NULL, NULL) && now_ms() - start < 6 * ALLOWED_MS)
        nap_ms(2);
    /* A parent that has returned leaves nothing; one that was killed leaves it to the guard, for a moment. */
    snprintf(prefix, sizeof prefix, "stoa.%d.", (int)r->parent);
    while (r->code > 1000 && n_entries(r->folder, "") + n_entries("/dev/shm", prefix) > 0 && now_ms() - start < ALLOWED_MS)
        nap_ms(2);
    if (r->ended_ms) {
        printf("gone after %lld ms\n", now_ms() - start);
        check(now_ms() - start < ALLOWED_MS);
    }
    check_int(run_process(r, NULL, NULL), 0);
    if (!r->killed_early) {
        check_int(n_entries(r->folder, ""), 0);
        check_int(n_entries("/dev/shm", prefix), 0);
    }

    FILE *file = fopen(r->errors, "r");
    r->error_text[file ? fread(r->error_text, 1, sizeof r->error_text - 1, file) : 0] = '\0';
    /* mpirun's event library warns now and then, on a crowded machine, when it closes what a rank has left. */
    for (char *line; (line = strstr(r->error_text, "[warn] Epoll"));) {
        char *end = strchr(line, '\n');
        memmove(line, end ? end + 1 : line + strlen(line), strlen(end ? end + 1 : line + strlen(line)) + 1);
    }
    if (file)
        fclose(file);
    unlink(r->errors);
    rmdir(r->folder);
    if (r->out >= 0)
        close(r->out);
}

/* ---- the test: jobs that end by themselves ---------------------------------------------------------------------------------- */
static const struct { const char *name, *scenario, *n_ranks; int code; const char *output, *errors; } ends[] = {
    { "a job that ends well",               "end",   "2", 0, "hello\n", "" },
    { "one rank",                           "end",   "1", 0, "hello\n", "" },
    { "eight ranks",                        "end",   "8", 0, "hello\n", "" },
    { "a rank fails with 1",                "fail1", "2", 1, NULL, "rank one says why\n" },
    { "a rank fails with 2",                "fail2", "2", 2, NULL, "rank one says why\n" },
    { "a rank fails with 3, of four",       "fail3", "4", 3, NULL, "rank one says why\n" },
    { "a rank fails before MPI is open",    "early", "2", 3, NULL, "rank one says why\n" },
    { "a rank ends without a word",         "silent", "2", 1, NULL, "stoa: the job has ended with exit code 1\n" },
};

static void test_ends(void)
{
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        check_begin("%s", ends[i].name);
        struct run *r = run_start(ends[i].scenario, ends[i].n_ranks, NULL, -1);
        run_finish(r);
        check_int(r->code, ends[i].code);
        check_text(r->error_text, ends[i].errors);
        if (ends[i].output)
            check_text(r->output, ends[i].output);
    }
}

static void test_output(void)
{
    check_begin("output: 20000 lines, in order, none lost");
    struct run *r = run_start("lines", "2", NULL, -1);
    run_finish(r);
    const char *at = r->output;
    int n = 0;
    char line[32];
    while (n < 20000 && snprintf(line, sizeof line, "line %d\n", n) > 0 && !strncmp(at, line, strlen(line))) {
        at += strlen(line);
        n++;
    }
    check_int(n, 20000);
    check_int(*at, 0);

    check_begin("output: piece by piece");
    r = run_start("pieces", "2", NULL, -1);
    check(run_read(r, "0"));
    long long first = now_ms();
    check(run_read(r, "9"));
    check(now_ms() - first > 450);      /* 900 when nothing disturbs; all at once is 0 */
    run_finish(r);
    check_text(r->output, "0123456789");
}

static void test_input(void)
{
    static char sent[1 << 20];
    check_begin("input: a mebibyte and its end reach rank 0");
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (char)(i * 7 + i / 300);
    FILE *file = tmpfile();
    fwrite(sent, 1, sizeof sent, file);
    fflush(file);
    lseek(fileno(file), 0, SEEK_SET);
    struct run *r = run_start("echo", "2", NULL, fileno(file));
    run_finish(r);
    check_int(r->n_output, sizeof sent);
    check_bytes("echo", r->output, sent, sizeof sent);

    check_begin("input: a command that reads none leaves it alone");
    lseek(fileno(file), 0, SEEK_SET);
    r = run_start("end", "2", NULL, fileno(file));
    run_finish(r);
    check_int(r->code, 0);
    check_int(lseek(fileno(file), 0, SEEK_CUR), 0);
    fclose(file);
}

static void test_chat(void)
{
    check_begin("chat: Ctrl-C is a line of input");
    struct run *r = run_start("chat", "2", NULL, -1);
    check(run_read(r, "ready"));
    check_int(write(r->in, "one\n", 4), 4);
    check(run_read(r, "one"));
    kill(r->parent, SIGINT);
    check(run_read(r, "interrupted"));
    check_int(write(r->in, "two\nbye\n", 8), 8);
    run_finish(r);
    check_int(r->code, 0);
    check_text(r->output, "ready\none\ninterrupted\ntwo\n");
    check_text(r->error_text, "");
}

/* ---- the test: jobs that are ended ------------------------------------------------------------------------------------------ */
enum victim { PARENT, GUARD, MPIRUN, RANK_ONE };
static const struct { const char *name; enum victim victim; int signal_number, code; const char *errors, *or_errors; } kills[] = {
    { "kill -9 of a rank", RANK_ONE, SIGKILL, 1, "stoa: rank 1 died (signal 9)\n",
      "stoa: a rank died (signal 9); the job has been ended\n" },
    { "a rank is aborted", RANK_ONE, SIGABRT, 1, "stoa: rank 1 died (signal 6)\n",
      "stoa: a rank died (signal 6); the job has been ended\n" },
    { "kill -9 of mpirun", MPIRUN, SIGKILL, 1, "stoa: mpirun died (signal 9); the job has been ended\n", NULL },
    { "kill -9 of the parent", PARENT, SIGKILL, 1000 + SIGKILL, "", NULL },
    { "kill -9 of the guard", GUARD, SIGKILL, 1, "stoa: the guard of the job died (signal 9)\n", NULL },
    { "SIGTERM", PARENT, SIGTERM, 128 + SIGTERM, "", NULL },
    { "SIGINT", PARENT, SIGINT, 128 + SIGINT, "", NULL },
    { "SIGHUP", PARENT, SIGHUP, 128 + SIGHUP, "", NULL },
};

static pid_t find_victim(const struct run *r, enum victim victim)
{
    return victim == PARENT ? r->parent
         : victim == GUARD ? run_process(r, "comm", "stoa-guard")
         : victim == MPIRUN ? run_process(r, "comm", "mpirun")
         : run_process(r, "environ", "PMIX_RANK=1");
}

/* Open MPI prints a stack before a rank that crashes dies; our line is the one behind it. */
static void check_last_words(const char *got, const char *want, const char *or_want)
{
    const char *line = strstr(got, "stoa: ");
    if (!line)
        line = got;
    if (!or_want || strcmp(line, or_want))
        check_text(line, want);
}

static void test_kills(void)
{
    for (size_t i = 0; i < COUNT_OF(kills); i++) {
        check_begin("%s", kills[i].name);
        struct run *r = run_start("wait", "2", NULL, -1);
        check(run_read(r, "ready"));
        printf("%s: ", kills[i].name);
        run_signal(r, find_victim(r, kills[i].victim), kills[i].signal_number);
        run_finish(r);
        check_int(r->code, kills[i].code);
        check_last_words(r->error_text, kills[i].errors, kills[i].or_errors);
    }
}

static void test_crash(void)
{
    check_begin("a rank crashes");
    struct run *r = run_start("crash", "2", NULL, -1);
    run_finish(r);
    check_int(r->code, 1);
    check(strstr(r->error_text, " died (signal 6)"));
}

static void test_output_lost(void)
{
    check_begin("nobody reads standard output any more, of a job that says nothing");
    struct run *r = run_start("wait", "2", NULL, -1);
    check(run_read(r, "ready"));
    close(r->out);
    r->out = -1;
    printf("output lost: ");
    r->ended_ms = now_ms();
    run_finish(r);
    check_int(r->code, 128 + SIGPIPE);
}

static void test_stopped_rank(void)
{
    check_begin("SIGTERM, while a rank and mpirun are stopped");
    struct run *r = run_start("wait", "2", NULL, -1);
    check(run_read(r, "ready"));
    run_signal(r, find_victim(r, RANK_ONE), SIGSTOP);
    run_signal(r, find_victim(r, MPIRUN), SIGSTOP);
    printf("SIGTERM of a stopped job: ");
    run_signal(r, r->parent, SIGTERM);
    run_finish(r);
    check_int(r->code, 128 + SIGTERM);
}

/* A job that is ended while it starts, at many moments. */
static void test_early_ends(void)
{
    for (int delay_ms = 0; delay_ms <= 120; delay_ms += 8) {
        int signal_number = delay_ms % 16 ? SIGTERM : SIGKILL;
        check_begin("signal %d after %d ms", signal_number, delay_ms);
        struct run *r = run_start("wait", "2", NULL, -1);
        nap_ms(delay_ms + 5);
        r->killed_early = signal_number == SIGKILL && !run_process(r, "comm", "stoa-guard");
        kill(r->parent, signal_number);
        run_finish(r);
        check(r->code == 1000 + signal_number || r->code == 128 + signal_number);
    }
}

/* ---- the test: what the launcher needs, and what the user may say ----------------------------------------------------------- */
static void test_no_launcher(void)
{
    check_begin("no launcher installed");
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    struct run *r = run_start("end", "2", NULL, -1);
    setenv("PATH", path, 1);
    free(path);
    run_finish(r);
    check_int(r->code, 1);
    check_text(r->error_text, "stoa: no MPI launcher found: install openmpi-bin (scripts/deps does)\n");
}

static void test_no_signalfd(void)
{
    static const char *const who[] = { "parent", "guard" };
    for (size_t i = 0; i < COUNT_OF(who); i++) {
        check_begin("the %s cannot watch signals", who[i]);
        setenv("STOA_TEST_NO_SIGNALFD", who[i], 1);
        struct run *r = run_start("wait", "2", NULL, -1);
        unsetenv("STOA_TEST_NO_SIGNALFD");
        run_finish(r);
        check_int(r->code, 1);
        check(!strncmp(r->error_text, "stoa: signals cannot be watched: ", 33));
    }
}

static void test_hosts_file(void)
{
    char path[] = "/tmp/test_launch_hosts.XXXXXX";
    check_begin("a hosts file");
    int fd = mkstemp(path);
    check_int(write(fd, "localhost slots=2\n", 18), 18);
    close(fd);
    struct run *r = run_start("echo", "2", path, -1);
    check_int(write(r->in, "hello\n", 6), 6);
    run_finish(r);
    check_int(r->code, 0);
    check_text(r->output, "hello\n");
    unlink(path);

    check_begin("a hosts file that is not there");
    r = run_start("echo", "2", path, -1);
    run_finish(r);
    check_int(r->code, 2);
    check(strstr(r->error_text, "No such file or directory"));
}

static void test_parameters(void)
{
    check_begin("OMPI_MCA_btl of the user wins");
    setenv("OMPI_MCA_btl", "tcp,self", 1);
    struct run *r = run_start("btl", "2", NULL, -1);
    unsetenv("OMPI_MCA_btl");
    run_finish(r);
    check_int(r->code, 0);
    check_text(r->output, "tcp,self\n");
}

static void test_cannot_start(void)
{
    check_begin("mpirun that cannot start the ranks is not silent");
    setenv("OMPI_MCA_plm", "none-of-these", 1);
    struct run *r = run_start("echo", "2", NULL, -1);
    unsetenv("OMPI_MCA_plm");
    run_finish(r);
    check_int(r->code, 1);
    check(strstr(r->error_text, "could not start the ranks (exit code "));
}

int main(int argc, char **argv)
{
    char launcher[PATH_MAX];
    if (argc >= 4 && !strcmp(argv[1], "job"))
        return comm_world_given() ? rank_main(argv[2]) : command_main(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);        /* MPI's own */
    if (!in_path(launcher, sizeof launcher, "mpirun.openmpi")) {
        check_begin("launch");
        check_skip("mpirun.openmpi is not there");
        return check_done();
    }
    test_ends();
    test_output();
    test_input();
    test_chat();
    test_kills();
    test_crash();
    test_output_lost();
    test_stopped_rank();
    test_early_ends();
    test_no_launcher();
    test_no_signalfd();
    test_hosts_file();
    test_parameters();
    test_cannot_start();
    return check_done();
}
