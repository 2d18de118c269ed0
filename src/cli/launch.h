/* launch.h: one command that becomes many ranks.
 *
 * `stoa run --layout tp=2` checks what it can by itself, then starts `mpirun` on its own program with its own arguments and
 * stands in front of it: it passes standard input on, lets standard output through, ends every rank when it ends, says
 * in one line what went wrong when a rank dies, and leaves nothing behind (no process, no shared-memory segment). */
#ifndef STOA_CLI_LAUNCH_H
#define STOA_CLI_LAUNCH_H

#include <stdbool.h>

struct launch_options {
    int n_ranks;
    const char *hosts_file;     /* --hosts, or NULL: this machine alone */
    bool chat;                  /* Ctrl-C becomes a line "\x03" on the ranks' standard input, instead of the end of the job */
};
/* Runs the job to its end.  The exit code of the whole command, or a negative error code when it could not be started
 * (no launcher installed, hosts file unreadable). */
int launch_ranks(const struct launch_options *options, int argc, char **argv);

/* In a rank: ties its life to the launcher's (ends when the launcher does).  Call first in main(), before MPI starts. */
void launch_tie_rank(void);

#endif
