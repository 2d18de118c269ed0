/* test_pace.c: a pace is learned from steps, whatever disturbs some of them, and keeps what it allows below the limit. */
#include "engine/pace.h"
#include "base/base.h"
#include "base/random.h"
#include "tests/check.h"

static const struct { const char *name; double fixed_s, prefill_s, decode_s; } machines[] = {
    { "a small model", 0.003, 0.0004, 0.0005 },
    { "a large one", 0.05, 0.004, 0.002 },
    { "a slow one, where a step without a token is longer than the limit", 0.2, 0.08, 0.05 },
    { "one whose steps cost the same whatever is in them", 0.01, 0, 0 },
};

static double unit_random(uint64_t seed, uint64_t i)
{
    return (double)(random_u64(seed, i) >> 11) / 9007199254740992.0;
}

/* As a server has them: up to 32 sequences, and prompts of what is allowed; a tenth of noise, and a neighbour now and then. */
static void test_machine(size_t m, double limit_s)
{
    struct pace pace = { 0 };
    uint32_t n_over = 0, n_steps = 600;
    check_begin("%s", machines[m].name);
    for (uint32_t i = 0; i < n_steps; i++) {
        uint32_t n_decode = pace_decode(&pace, (uint32_t)(random_u64(m, i) % 33), limit_s);
        uint32_t n_prefill = random_u64(m + 100, i) % 3 ? 0 : pace_prefill(&pace, 512, n_decode, limit_s);
        double took_s = machines[m].fixed_s + machines[m].prefill_s * n_prefill + machines[m].decode_s * n_decode;
        n_over += i > 50 && n_prefill > 1 && took_s > 1.5 * MAX(limit_s, 2 * machines[m].fixed_s);
        took_s *= 0.95 + 0.1 * unit_random(m, 1000 + i);
        if (random_u64(m, 5000 + i) % 50 == 0)
            took_s += 1;
        pace_learn(&pace, n_prefill, n_decode, took_s);
    }
    check(n_over <= n_steps / 100);
    uint32_t n_decode = pace_decode(&pace, 10, limit_s), n_prefill = pace_prefill(&pace, 512, n_decode, limit_s);
    double want_s = machines[m].fixed_s + n_prefill * machines[m].prefill_s + n_decode * machines[m].decode_s;
    double got_s = pace_predict(&pace, n_prefill, n_decode);
    check(got_s > 0.7 * want_s && got_s < 1.5 * want_s);
}

static void test_bounds(void)
{
    struct pace pace = { 0 };
    check_begin("no limit, no measurement, and always a token");
    check_int(pace_prefill(&pace, 512, 3, 0), 512);
    check_int(pace_decode(&pace, 40, 0), 40);
    check_int(pace_prefill(&pace, 512, 3, 0.1), 16);
    check_int(pace_decode(&pace, 40, 0.1), 40);
    pace_learn(&pace, 16, 0, 10);
    check(pace_predict(&pace, 16, 0) > 5);
    double empty_s = pace_predict(&pace, 0, 0);         /* far above the limit: as long again is allowed, not more */
    uint32_t n_prefill = pace_prefill(&pace, 512, 0, 0.1), n_decode = pace_decode(&pace, 40, 0.1);
    check(empty_s > 0.1 && n_prefill >= 1 && n_decode >= 1);
    check(n_prefill == 1 || pace_predict(&pace, n_prefill, 0) <= 2.001 * empty_s);
    check(n_decode == 1 || pace_predict(&pace, 0, n_decode) <= 2.001 * empty_s);
    pace = (struct pace){ 0 };
    pace_learn(&pace, 16, 0, 0.001);
    check_int(pace_prefill(&pace, 512, 0, 0.1), 64);
    check_int(pace_prefill(&pace, 30, 0, 0.1), 30);
    check_int(pace_prefill(&pace, 0, 1000, 0.001), 0);
}

int main(void)
{
    for (size_t m = 0; m < COUNT_OF(machines); m++)
        test_machine(m, 0.1);
    test_bounds();
    return check_done();
}
