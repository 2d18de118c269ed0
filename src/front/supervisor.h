/* supervisor.h: the life of the replica that a front starts: `stoa replica`, which listens on a socket in a private folder.
 *
 *   STARTING ──Hello──> UP ──dead──> ENDING ──no process left──> RESTING ──pause over──> STARTING
 *      └───────────────ended, or another Hello──────^ └──stop──> OVER
 *
 *   STARTING  the child loads; every 50 ms the front tries to connect.  Dead: the child ended, it has another model, or there was no sign
 *             for a minute that it gets on (base/life.h)
 *   UP        frames go both ways.  Dead: the child ended, the connection is lost, or no Progress came for max(2 s, 8 x the longest
 *             step that the replica plans), 30 s until it has measured steps
 *   ENDING    the child is killed; where it has hung up it has a second to say which rank died, and to end.  Its guard (cli/launch.h)
 *             ends the ranks.  This process adopts orphans of its children, so "no child left" means that nothing of the replica is
 *             left on this host
 *   RESTING   the pause before the next start: none, then 1, 2, 4 .. 30 s; none again after 60 s of health
 *
 * All on the loop's thread.  The process must have no other children. */
#ifndef STOA_FRONT_SUPERVISOR_H
#define STOA_FRONT_SUPERVISOR_H

#include "front/loop.h"
#include "wire/wire.pb-c.h"

#include <signal.h>
#include <stdbool.h>

struct supervisor;

struct supervisor_options {
    struct loop *loop;
    /* MODEL and its flags, ended by NULL: what stands behind "replica" on its command line, without --listen, --epoch and --tied. */
    const char *const *words;
    const sigset_t *signals;            /* the child's mask */
    const char *numerics, *model;       /* what its Hello has to say */
    void (*on_up)(void *user, const Stoa__Wire__Hello *hello);      /* it takes requests */
    /* It takes none, and what it had is lost; also when one that was to follow it died before it took any.
     * Not after supervisor_stop(). */
    void (*on_down)(void *user, const char *why);
    void (*on_frame)(void *user, const Stoa__Wire__Frame *frame);   /* of the present replica, but Hello */
    /* No process is left and none will be started: after supervisor_stop(), with 0; or with 2 or 3 when the first start ended so. */
    void (*on_over)(void *user, int code);
    void *user;
};

/* Starts the first replica.  ERR_FAILED: it cannot be.  ERR_USAGE: there are more than 256 words. */
int supervisor_open(struct supervisor **out, const struct supervisor_options *options);
/* Kills what still runs, and does not wait for it. */
void supervisor_close(struct supervisor *s);
/* A SIGCHLD came. */
void supervisor_child(struct supervisor *s);
/* Ends the replica; on_over() comes when that is done, but not from within this call. */
void supervisor_stop(struct supervisor *s);

bool supervisor_is_up(const struct supervisor *s);
const char *supervisor_says(struct supervisor *s);            /* what it is doing, for people */
uint64_t supervisor_epoch(const struct supervisor *s);
/* As wire_client_send(); ERR_PEER while there is no replica. */
int supervisor_send(struct supervisor *s, Stoa__Wire__Frame *frame);
size_t supervisor_n_waiting(const struct supervisor *s);      /* bytes that the replica's socket has not taken yet */

#endif
