/* API keys: what a file of them means, and which headers name one. */
#include "tests/check.h"

#include "base/error.h"
#include "base/file.h"
#include "front/auth.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[32];

static int open_text(struct auth **out, const char *text)
{
    int fd = mkstemp(strcpy(path, "/tmp/stoa-test-auth.XXXXXX"));
    check(fd >= 0 && write_all(fd, text, strlen(text)) == 0);
    close(fd);
    int err = auth_open(out, path);
    unlink(path);
    return err;
}

static const struct { const char *name, *header; uint32_t want; } headers[] = {
    { "the first key", "Bearer one", 1 },
    { "a key after comments and blanks", "Bearer sk-two", 2 },
    { "a key with a blank in it", "Bearer thr ee", 3 },
    { "of any case is the scheme", "bEaReR one", 1 },
    { "two blanks", "Bearer  one", 1 },
    { "no header", NULL, 0 },
    { "no key", "Bearer ", 0 },
    { "no scheme", "one", 0 },
    { "another scheme", "Basic one", 0 },
    { "a part of a key", "Bearer on", 0 },
    { "a key and more", "Bearer oneone", 0 },
    { "of another case", "Bearer One", 0 },
    { "the comment", "Bearer # two", 0 },
};

static void test_headers(void)
{
    struct auth *auth = NULL;
    check_begin("headers");
    if (!check_int(open_text(&auth, "one\n\n  # two\r\n\tsk-two \r\nthr ee"), 0))
        return;
    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        check_begin("%s", headers[i].name);
        check_int(auth_find(auth, headers[i].header), headers[i].want);
    }
    check_begin("one key");
    check(auth_is("secret", "Bearer secret") && !auth_is("secret", "Bearer secre") && !auth_is("secret", NULL));
    auth_close(auth);
}

static void test_files(void)
{
    struct auth *auth = NULL;
    check_begin("files");
    check_int(open_text(&auth, ""), ERR_USAGE);
    check_int(open_text(&auth, "# nothing\n\n   \n"), ERR_USAGE);
    check_int(auth_open(&auth, "/nowhere/keys"), ERR_USAGE);
    check_int(auth_open(&auth, "/"), ERR_USAGE);
}

int main(void)
{
    test_headers();
    test_files();
    return check_done();
}
