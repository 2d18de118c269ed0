/* test_process.c: a process is known again by its number and when it was started. */
#include "base/process.h"
#include "tests/check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    char state = 0;
    check_begin("this process");
    prctl(PR_SET_NAME, "a) 1 2 (b");
    check(process_start_time(0, NULL) > 0);
    check(process_start_time(getpid(), &state) == process_start_time(0, NULL));
    check_int(state, 'R');

    check_begin("a child that is stopped, that has ended, and that is gone");
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    kill(child, SIGSTOP);
    waitpid(child, NULL, WUNTRACED);
    uint64_t started = process_start_time(child, &state);
    check(started >= process_start_time(0, NULL));
    check_int(state, 'T');
    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
    check(process_start_time(child, &state) == started);
    check_int(state, 'Z');
    waitpid(child, NULL, 0);
    check(process_start_time(child, &state) == 0);
    check_int(state, 0);
    return check_done();
}
