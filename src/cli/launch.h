/* launch.h: one command that becomes many ranks.
 *
 * `stoa run --layout tp=2` checks what it can by itself, then starts `mpirun` on its own program with its own arguments and
 * stands in front of it: it passes standard input on, lets standard output through, ends every rank when it ends, says
 * in one line what went wrong when a rank dies, and leaves nothing behind (no process, no shared-memory segment). */
#ifndef STOA_CLI_LAUNCH_H
#define STOA_CLI_LAUNCH_H

#include <stdbool.h>

/* In the environment of ranks whose standard input is a person at a terminal, with Ctrl-C as struct launch_options says. */
#define LAUNCH_CHAT "STOA_CHAT"

struct launch_options {
    int n_ranks;
    const char *hosts_file;     /* --hosts, or NULL: this machine alone */
    bool chat;                  /* Ctrl-C becomes a line "\x03" on the ranks' standard input, instead of the end of the job */
    bool drains;                /* the first SIGINT or SIGTERM becomes a line "\x03" on rank 0's standard input, the second ends
                                 * the job; implies no_input */
    bool no_input;              /* the command reads no standard input: it is left to others, as in a shell's `while read` loop */
};
/* Runs the job to its end; no process, folder or shared-memory segment of it is left on this host when this returns.
 *
 * The exit code of the whole command:
 *   0 to 3             as the ranks ended, when the one that failed has said why (launch_explained())
 *   1                  a rank or mpirun died, or could not start: one line on standard error says so
 *   128 + a signal     SIGINT, SIGTERM, SIGHUP or SIGQUIT came, or SIGPIPE: nobody reads standard output any more
 * or a negative error code when nothing was started (no launcher installed, hosts file unreadable).
 * A SIGKILL to the command in its first milliseconds, before there is a guard, leaves an empty job's folder behind.
 *
 * Open MPI's parameters go through the environment (OMPI_MCA_x), and one that the user has set wins.  A rank's standard input
 * is the command's on rank 0 and empty elsewhere; its standard output looks like a terminal to it whatever it is.
 * Call it before the process has threads or children. */
int launch_ranks(const struct launch_options *options, int argc, char **argv);

/* In a rank: ties its life to the launcher's (ends when the launcher does) and tells launch_ranks() that it lives.  Call first
 * in main(), before MPI starts; in a process that launch_ranks() has not started it does nothing. */
void launch_tie_rank(void);
/* In a rank that fails and has said why: launch_ranks() then adds no line of its own.  Elsewhere it does nothing. */
void launch_explained(void);

#endif
