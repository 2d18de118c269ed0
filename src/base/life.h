/* life.h: a sign, for whoever watches a process that loads, that it gets on: a folder's mtime is now.
 *
 * Loops that read or write what may be many GB call life_sign() for each piece; at most one sign a second is made. */
#ifndef STOA_BASE_LIFE_H
#define STOA_BASE_LIFE_H

/* The folder that has the file or socket `path`; copied.  Until then there is no sign. */
int life_show_beside(const char *path);
/* Any thread. */
void life_sign(void);

#endif
