/* launch_parent.c: the parent of a job: it passes on signals and standard input, and waits; launch.c draws where it stands. */
#include "cli/launch_impl.h"

#include "base/base.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct feed {
    char bytes[65536];                  /* read and not yet passed on: [begin, end) */
    size_t begin, end;
    bool ended;                         /* standard input has */
    bool interrupt;                     /* a Ctrl-C is to be passed on behind it */
    bool is_draining;                   /* the signal for it has come */
};

/* Takes what there is to take and passes on what can be passed on, without ever waiting. */
static void feed_input(struct job *job, struct feed *feed, short in_events, short out_events)
{
    static const char ctrl_c[] = "\x03\n";
    if (feed->begin == feed->end && feed->interrupt) {
        memcpy(feed->bytes, ctrl_c, sizeof ctrl_c);
        feed->begin = 0;
        feed->end = sizeof ctrl_c - 1;
        feed->interrupt = false;
    } else if (in_events && feed->begin == feed->end && !feed->ended) {
        ssize_t n = read(STDIN_FILENO, feed->bytes, sizeof feed->bytes);
        feed->begin = 0;
        feed->end = n > 0 ? (size_t)n : 0;
        feed->ended = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    }
    if (feed->begin < feed->end) {
        ssize_t n = write(job->input[1], feed->bytes + feed->begin, feed->end - feed->begin);
        feed->begin += n > 0 ? (size_t)n : 0;
    }
    bool reader_gone = out_events & POLLERR;
    if (reader_gone || (feed->ended && feed->begin == feed->end && !feed->interrupt && !job->options->drains))
        job_close_end(&job->input[1]);
}

/* A signal came: 0 when it is passed on or means nothing, else the exit code with which the job is to end. */
static int take_signal(const struct job *job, struct feed *feed, int signal_number)
{
    if (signal_number == SIGCHLD)
        return 0;
    if (signal_number == SIGINT && job->options->chat && job->input[1] >= 0) {
        feed->interrupt = true;
        return 0;
    }
    if ((signal_number == SIGINT || signal_number == SIGTERM) && job->options->drains && !feed->is_draining) {
        feed->interrupt = feed->is_draining = true;
        return 0;
    }
    return 128 + signal_number;
}

int launch_attend(struct job *job, pid_t guard)
{
    struct feed feed = { .ended = job->options->no_input || job->options->drains };
    int signals = signalfd(-1, &job->signals, SFD_CLOEXEC | SFD_NONBLOCK), code = 0, status = 0;

    if (signals < 0) {
        log_own("signals cannot be watched: %s", strerror(errno));
        job_close_end(&job->input[1]);
        job_close_end(&job->leash[1]);      /* the guard does the rest */
        waitpid(guard, &status, 0);
        return 1;
    }
    while (waitpid(guard, &status, WNOHANG) == 0) {
        bool full = feed.begin < feed.end || feed.interrupt;
        struct pollfd fds[] = {
            { .fd = signals, .events = POLLIN },
            { .fd = job->input[1] < 0 || full || feed.ended ? -1 : STDIN_FILENO, .events = POLLIN },
            { .fd = job->input[1], .events = full ? POLLOUT : 0 },
        };
        struct signalfd_siginfo signal;
        if (job->input[1] >= 0 && feed.ended && !full && !job->options->drains)
            job_close_end(&job->input[1]), fds[2].fd = -1;
        poll(fds, COUNT_OF(fds), -1);
        while (read(signals, &signal, sizeof signal) > 0) {
            int end = take_signal(job, &feed, (int)signal.ssi_signo);
            if (end > 0 && code == 0) {
                code = end;
                job_close_end(&job->input[1]);
                job_close_end(&job->leash[1]);      /* the guard does the rest */
            }
        }
        if (job->input[1] >= 0)
            feed_input(job, &feed, fds[1].revents, fds[2].revents);
    }
    close(signals);
    if (WIFSIGNALED(status))
        log_own("the guard of the job died (signal %d)", WTERMSIG(status));
    return code ? code : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
