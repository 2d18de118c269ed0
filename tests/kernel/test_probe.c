/* test_probe.c: probes of all instruction sets of this CPU do what they say: a read sees every byte, operations are counted by rounds. */
#include "kernel/kernel.h"
#include "kernel/cpu.h"
#include "tests/check.h"

#include <stdlib.h>

enum { N_BYTES = 1024 };

static void test_read(const struct kernels *k)
{
    uint8_t *bytes = aligned_alloc(64, N_BYTES);
    unsigned n_missed = 0;
    check_begin("%s reads every byte", k->name);
    for (int i = 0; bytes && i < N_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7);
    uint64_t before = bytes ? k->probe_read(bytes, N_BYTES) : 0;
    for (int i = 0; bytes && i < N_BYTES; i++) {
        bytes[i] ^= 1;
        n_missed += k->probe_read(bytes, N_BYTES) == before;
        bytes[i] ^= 1;
    }
    check(bytes);
    check_int(n_missed, 0);
    free(bytes);
}

static void test_ops(const char *name, probe_ops_fn *ops)
{
    check_begin("%s", name);
    check(ops(1) >= 2);
    check(ops(1000) == 1000 * ops(1));
}

int main(void)
{
    for (size_t i = 0; i < n_kernels; i++) {
        const struct kernels *k = kernels_all[i];
        if ((k->needs & cpu_features()) != k->needs)
            continue;
        test_read(k);
        test_ops("int8", k->probe_int8);
        test_ops("f32", k->probe_f32);
    }
    return check_done();
}
