/* chat.h: a conversation in a terminal. */
#ifndef STOA_CLI_CHAT_H
#define STOA_CLI_CHAT_H

#include "cli/prompt.h"

/* Reads turns from standard input until it ends (Ctrl-D).  Ctrl-C stops the answer, or at the prompt clears the line. */
int chat(struct session *s, const struct prompter *prompter);

#endif
