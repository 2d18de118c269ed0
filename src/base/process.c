#include "base/process.h"

#include <stdio.h>
#include <string.h>

/* Fields 3 and 22 of the line.  The name of the program, which comes before, may hold anything but ends with the last ')'. */
uint64_t process_start_time(pid_t pid, char *state)
{
    char path[32] = "/proc/self/stat", line[1024], letter = 0;
    unsigned long long time = 0;
    if (pid)
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    const char *rest = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (rest)
        sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &letter, &time);
    if (file)
        fclose(file);
    if (state)
        *state = letter;
    return time;
}
