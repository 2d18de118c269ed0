/* world.h: for tests whose ranks are real.  Started plainly, such a program runs itself under mpirun, once for each row but the first
 * n_alone, which it runs in its own process without MPI. */
#ifndef STOA_TESTS_WORLD_H
#define STOA_TESTS_WORLD_H

#include "base/error.h"
#include "engine/engine_impl.h"
#include "tests/check.h"
#include "tests/mpirun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world_row {
    const char *layout, *model;
    bool f32, gathered;
};

/* What one rank does in the world of a row; the leader has `lead` called, after `prepare` with the model's file, the others follow. */
struct world_test {
    const struct world_row *rows;
    size_t n_rows, n_alone;
    struct engine_options (*options)(const struct world_row *row, const char *layout);
    void (*prepare)(const struct model_file *file, const struct world_row *row);
    void (*lead)(struct engine *e);
};

#define WORLD_ROW "TEST_WORLD_ROW"              /* which of these the ranks run */

/* Other ranks may wait for ever after an error. */
static inline void world_give_up(struct engine *e)
{
    printf("%s\n", error_text());
    fflush(stdout);
    comm_abort(e->world, 1);
}

/* A step, after which all that is always true is true; false when there was nothing to do. */
static inline bool world_step(struct engine *e)
{
    int err = engine_step(e);
    if (err < 0)
        world_give_up(e);
    engine_check(e);
    return err > 0;
}

static inline struct sequence *world_add(struct engine *e, const struct sequence_request *request)
{
    struct sequence *s = NULL;
    if (!check_int(engine_add(e, &s, request), 0))
        world_give_up(e);
    return s;
}

static inline void world_finish(struct engine *e, const struct sequence *s)
{
    while (!sequence_is_done(s))
        if (!check(world_step(e)))
            world_give_up(e);
}

static inline void world_run_rank(const struct world_test *test, const struct world_row *row, const char *folder)
{
    char path[4096];
    struct model_file *file = NULL;
    struct comm *world = NULL;
    struct engine *e = NULL;
    struct engine_options o = test->options(row, row->layout);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, row->model);
    check_begin("open");
    if (!check_int(comm_open_world(&world), 0) || !check_int(model_file_open(&file, path), 0))
        comm_abort(world, 1);
    if (comm_rank(world) == 0)
        test->prepare(file, row);
    check_begin("%s on %s", row->model, row->layout);
    if (!check_int(engine_open(&e, file, &o, world), 0)) {
        printf("%s\n", error_text());
        comm_abort(world, 1);
    }
    if (comm_rank(world) == 0)
        test->lead(e);
    else
        check_int(engine_follow(e), 0);
    engine_close(e);
    comm_close(world);
    model_file_close(file);
}

static inline void world_launch(const struct world_test *test, size_t row, const char *self)
{
    char number[16];
    struct mesh mesh;
    check_begin("%s on %s", test->rows[row].model, test->rows[row].layout);
    check_int(mesh_parse(&mesh, test->rows[row].layout), 0);
    snprintf(number, sizeof number, "%zu", row);
    setenv(WORLD_ROW, number, 1);
    int n_clean = run_under_mpirun(self, mesh_n_ranks(&mesh));
    if (n_clean < 0)
        check_skip("mpirun.openmpi is not there");
    else
        check_int(n_clean, mesh_n_ranks(&mesh));
}

/* A main()'s whole work. */
static inline int world_main(const struct world_test *test, const char *self)
{
    const char *folder = getenv("STOA_TINY");
    if (comm_world_given()) {
        world_run_rank(test, &test->rows[atoi(getenv(WORLD_ROW))], folder);
        return check_done();
    }
    check_begin("layouts");
    if (!folder || !*folder) {
        check_skip("STOA_TINY names no folder of tiny models");
        return check_done();
    }
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);        /* MPI's own */
    for (size_t i = test->n_alone; i < test->n_rows; i++)
        world_launch(test, i, self);
    for (size_t i = 0; i < test->n_alone; i++)
        world_run_rank(test, &test->rows[i], folder);
    return check_done();
}

#endif
