/* chat.c: turn by turn.  Standard input is a terminal, or the launcher's pipe, in which Ctrl-C arrives as a line "\x03". */
#include "cli/chat.h"
#include "cli/generate.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

struct reader {
    struct buffer bytes;            /* read and not used yet */
    bool at_end;
};

/* Takes what has come; with wait, until something has. */
static void fill(struct reader *r, bool wait)
{
    struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };
    char piece[4096];
    if (r->at_end || poll(&fd, 1, wait ? -1 : 0) <= 0)
        return;
    ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
    if (n > 0)
        buffer_add(&r->bytes, piece, (size_t)n);
    else if (n == 0 || errno != EINTR)
        r->at_end = true;
}

static void drop(struct reader *r, size_t n_bytes)
{
    memmove(r->bytes.bytes, r->bytes.bytes + n_bytes, r->bytes.size - n_bytes);
    r->bytes.size -= n_bytes;
}

/* The next line without its end, malloc'ed; NULL at the end of input, or with `interrupted` set. */
static char *read_line(struct reader *r)
{
    for (;;) {
        char *end = r->bytes.size ? memchr(r->bytes.bytes, '\n', r->bytes.size) : NULL;
        if (end || (r->at_end && r->bytes.size)) {
            size_t n = end ? (size_t)(end - r->bytes.bytes) : r->bytes.size;
            char *line = strndup(r->bytes.bytes, n);
            drop(r, end ? n + 1 : n);
            if (line && !strcmp(line, "\x03")) {
                free(line);
                interrupted = 1;
                return NULL;
            }
            return line;
        }
        if (r->at_end || interrupted || r->bytes.failed)
            return NULL;
        fill(r, true);
    }
}

/* Looks for the launcher's Ctrl-C among what was typed ahead. */
static bool was_interrupted(struct reader *r)
{
    fill(r, false);
    char *mark = r->bytes.size ? memmem(r->bytes.bytes, r->bytes.size, "\x03\n", 2) : NULL;
    if (mark) {
        drop(r, (size_t)(mark - r->bytes.bytes) + 2);
        interrupted = 1;
    }
    return interrupted;
}

static bool show(void *user, const char *text, size_t n_bytes)
{
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
    return !was_interrupted(user);
}

struct history {
    struct chat_message *messages;
    size_t n, room;
};

static int remember(struct history *h, const char *role, const char *content)
{
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 16;
        struct chat_message *more = realloc(h->messages, room * sizeof *more);
        if (!more)
            return error_set(ERR_NO_MEMORY, "out of memory for the conversation");
        h->messages = more;
        h->room = room;
    }
    char *copy = strdup(content);
    if (!copy)
        return error_set(ERR_NO_MEMORY, "out of memory for the conversation");
    h->messages[h->n++] = (struct chat_message){ role, copy };
    return 0;
}

static void forget_last(struct history *h)
{
    free((char *)(uintptr_t)h->messages[--h->n].content);
}

/* One turn.  A prompt that the template or the context refuses is said and forgotten; the conversation goes on. */
static int turn(struct session *s, const struct prompter *prompter, struct history *h, struct generation *g, struct reader *r,
                const char *line)
{
    struct buffer answer = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    int err = remember(h, "user", line);
    if (err < 0)
        return err;
    g->text = &answer;
    interrupted = 0;
    bool refused = (err = prompt_chat(prompter, s, h->messages, h->n, &ids, &n)) < 0 && err != ERR_NO_MEMORY;
    if (err == 0)
        err = generate(s, g, ids, n, show, r);
    if (refused || err == ERR_USAGE) {
        fprintf(stderr, "stoa: %s\n", error_text());
        forget_last(h);
        err = 0;
    } else if (err == 0) {
        puts("");
        err = remember(h, "assistant", answer.bytes ? answer.bytes : "");
    }
    free(ids);
    buffer_release(&answer);
    interrupted = 0;
    return err;
}

int chat(struct session *s, const struct prompter *prompter)
{
    struct history history = { 0 };
    struct generation g = { 0 };
    struct reader reader = { 0 };
    struct sigaction action = { .sa_handler = on_interrupt }, old;
    int err = 0;
    sigaction(SIGINT, &action, &old);
    fprintf(stderr, "%s, layout %s.  Ctrl-C stops an answer, Ctrl-D ends.\n", s->options->model, s->layout);
    while (!err) {
        fputs("> ", stdout);
        fflush(stdout);
        char *line = read_line(&reader);
        if (!line && interrupted) {
            interrupted = 0;
            puts("");
            continue;
        }
        if (!line)
            break;
        if (*line)
            err = turn(s, prompter, &history, &g, &reader, line);
        free(line);
    }
    puts("");
    sigaction(SIGINT, &old, NULL);
    while (history.n)
        forget_last(&history);
    free(history.messages);
    buffer_release(&reader.bytes);
    generation_release(s, &g);
    return err;
}
