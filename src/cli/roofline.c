#include "cli/roofline.h"

#include "base/base.h"

/* Of all ranks together: sums, and peaks that are sums too, so that a quotient is a mean rank's. */
struct line {
    struct work_counters work;
    struct peaks peaks;
    double time_s;              /* that the shares are of */
};

static struct peaks mean_peaks(const struct rank_counters *ranks, int n_ranks)
{
    struct peaks mean = { 0 };
    for (int r = 0; r < n_ranks; r++) {
        mean.read_bytes_s += ranks[r].peaks.read_bytes_s / n_ranks;
        mean.int8_ops_s += ranks[r].peaks.int8_ops_s / n_ranks;
        mean.f32_ops_s += ranks[r].peaks.f32_ops_s / n_ranks;
    }
    return mean;
}

static struct line line_of(const struct roofline *run, const struct rank_counters *peaks, int kind)
{
    struct line line = { .peaks = mean_peaks(peaks, run->n_ranks) };
    for (int r = 0; r < run->n_ranks; r++)
        work_counters_add(&line.work, &run->ranks[r].work[kind]);
    line.time_s = line.work.wall_s;
    return line;
}

/* The whole run, with what lies between regions and between steps. */
static struct line line_of_all(const struct roofline *run, const struct rank_counters *peaks)
{
    struct line all = { .peaks = mean_peaks(peaks, run->n_ranks), .time_s = run->wall_s * run->n_ranks };
    for (int kind = 0; kind < N_WORK_KINDS; kind++) {
        struct line one = line_of(run, peaks, kind);
        work_counters_add(&all.work, &one.work);
    }
    return all;
}

static double n_bytes(const struct line *l)
{
    return (double)(l->work.weight_bytes + l->work.kv_bytes);
}

static double n_ops(const struct line *l)
{
    return (double)(l->work.int_ops + l->work.float_ops);
}

static double read_share(const struct line *l)
{
    return n_bytes(l) / l->peaks.read_bytes_s / l->time_s;
}

/* The time that the operations take at their peaks, integers and floats one after the other. */
static double compute_share(const struct line *l)
{
    return ((double)l->work.int_ops / l->peaks.int8_ops_s + (double)l->work.float_ops / l->peaks.f32_ops_s) / l->time_s;
}

/* ---- text ---- */
void roofline_print_peaks(struct buffer *out, const struct rank_counters *ranks, int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        const struct peaks *p = &ranks[r].peaks;
        buffer_printf(out, "rank %-3u peaks: reads %.1f GB/s (%zu MB), %.1f Gop/s in int8, %.1f Gop/s in f32\n", ranks[r].rank,
                      p->read_bytes_s * 1e-9, p->buffer_bytes >> 20, p->int8_ops_s * 1e-9, p->f32_ops_s * 1e-9);
    }
}

static void print_line(struct buffer *out, const char *name, const struct line *l, const struct roofline *run)
{
    double all_s = run->wall_s * run->n_ranks;
    buffer_printf(out, "  %-10s %5.1f%% %5.0f%%", name, 100 * l->time_s / all_s, 100 * l->work.busy_s / (l->time_s * run->n_threads));
    if (n_bytes(l))
        buffer_printf(out, " %8.2f %5.0f%%", n_bytes(l) / l->time_s * 1e-9, 100 * read_share(l));
    else
        buffer_printf(out, " %8s %7s", "", "");
    if (n_ops(l))
        buffer_printf(out, " %9.1f %5.0f%%", n_ops(l) / l->time_s * 1e-9, 100 * compute_share(l));
    buffer_printf(out, "\n");
}

void roofline_print(struct buffer *out, const struct roofline *run, const struct rank_counters *peaks)
{
    struct line all = line_of_all(run, peaks);
    buffer_printf(out, "  %-10s %6s %6s %8s %7s %9s %7s\n", "work", "time", "busy", "GB/s", "of peak", "Gop/s", "of peak");
    for (int kind = 0; kind < N_WORK_KINDS; kind++) {
        struct line line = line_of(run, peaks, kind);
        if (line.work.n_calls && line.time_s > 0)
            print_line(out, work_name[kind], &line, run);
    }
    buffer_printf(out, "  %-10s %5.1f%%\n", "between", 100 * (1 - all.work.wall_s / all.time_s));
    print_line(out, "all", &all, run);
}

/* ---- JSON ---- */
void roofline_json_peaks(struct json_out *j, const struct peaks *peaks)
{
    json_object(j, "peaks");
    json_number(j, "read_bytes_per_s", peaks->read_bytes_s, 6);
    json_number(j, "int8_ops_per_s", peaks->int8_ops_s, 6);
    json_number(j, "f32_ops_per_s", peaks->f32_ops_s, 6);
    json_integer(j, "buffer_bytes", (int64_t)peaks->buffer_bytes);
    json_end_object(j);
}

static void json_work(struct json_out *j, uint32_t rank, const char *name, const struct work_counters *w)
{
    json_object(j, NULL);
    json_integer(j, "rank", rank);
    json_text(j, "work", name);
    json_integer(j, "calls", (int64_t)w->n_calls);
    json_number(j, "wall_s", w->wall_s, 6);
    json_number(j, "busy_s", w->busy_s, 6);
    json_integer(j, "weight_bytes", (int64_t)w->weight_bytes);
    json_integer(j, "kv_bytes", (int64_t)w->kv_bytes);
    json_integer(j, "int_ops", (int64_t)w->int_ops);
    json_integer(j, "float_ops", (int64_t)w->float_ops);
    json_end_object(j);
}

void roofline_json(struct json_out *j, const struct roofline *run, const struct rank_counters *peaks)
{
    struct line all = line_of_all(run, peaks);
    json_number(j, "wall_s", run->wall_s, 6);
    json_number(j, "read_share", read_share(&all), 4);
    json_number(j, "compute_share", compute_share(&all), 4);
    json_array(j, "work");
    for (int r = 0; r < run->n_ranks; r++)
        for (int kind = 0; kind < N_WORK_KINDS; kind++)
            if (run->ranks[r].work[kind].n_calls)
                json_work(j, run->ranks[r].rank, work_name[kind], &run->ranks[r].work[kind]);
    json_end_array(j);
}
