#include "kernel/kernel.h"

#include "base/base.h"
#include "base/buffer.h"
#include "base/error.h"
#include "kernel/attention.h"
#include "kernel/cpu.h"
#include "kernel/matmul.h"
#include "kernel/probe.h"
#include "kernel/quantize.h"
#include "kernel/rows.h"

#include <string.h>

#define INT8_ENTRY(type, TYPE, isa) [DTYPE_##TYPE] = matmul_int8_##type##_##isa,
#define F32_ENTRY(type, TYPE, isa) [DTYPE_##TYPE] = matmul_f32_##type##_##isa,
#define CACHE_ENTRIES(kernel, isa) \
    { [DTYPE_F16] = kernel##_f16_##isa, [DTYPE_BF16] = kernel##_bf16_##isa, [DTYPE_F32] = kernel##_f32_##isa, \
      [DTYPE_Q8_0] = kernel##_q8_0_##isa }

/* The functions of one instruction set: their names end in it; but AVX-VNNI and AMX have products of int8 only, beside another set. */
#define KERNELS(isa, features) KERNELS_BESIDE(isa, isa, features)
#define KERNELS_BESIDE(set, isa, features) \
    static const struct kernels kernels_##set = { \
        .name = #set, \
        .needs = features, \
        .probe_int8 = probe_int8_##set, \
        .probe_f32 = probe_f32_##isa, \
        .probe_read = probe_read_##isa, \
        .matmul_int8 = { MATMUL_INT8_TYPES(INT8_ENTRY, set) }, \
        .matmul_f32 = { MATMUL_F32_TYPES(F32_ENTRY, isa) }, \
        .quantize = quantize_##isa, \
        .rms_norm = rms_norm_##isa, \
        .add = add_##isa, \
        .swiglu = swiglu_##isa, \
        .geglu = geglu_##isa, \
        .scale = scale_##isa, \
        .softcap = softcap_##isa, \
        .rope = rope_##isa, \
        .row_max = row_max_##isa, \
        .kv_store = CACHE_ENTRIES(kv_store, isa), \
        .attention = CACHE_ENTRIES(attention, isa), \
        .attention_merge = attention_merge_##isa, \
    };

KERNELS(c, 0)
#ifdef __x86_64__
KERNELS(avx2, CPU_AVX2)
KERNELS_BESIDE(avxvnni, avx2, CPU_AVX2 | CPU_AVXVNNI)
KERNELS(avx512, CPU_AVX2 | CPU_AVX512)
KERNELS_BESIDE(amx, avx512, CPU_AVX2 | CPU_AVX512 | CPU_AMX)
#elif defined __aarch64__
KERNELS(neon, CPU_DOTPROD)
#endif

const struct kernels *const kernels_all[] = {
    &kernels_c,
#ifdef __x86_64__
    &kernels_avx2,
    &kernels_avxvnni,
    &kernels_avx512,
    &kernels_amx,
#elif defined __aarch64__
    &kernels_neon,
#endif
};
const size_t n_kernels = COUNT_OF(kernels_all);

int kernels_find(const struct kernels **out, const char *name)
{
    const unsigned features = cpu_features();
    for (size_t i = n_kernels; i-- > 0;) {
        const struct kernels *row = kernels_all[i];
        bool able = (row->needs & features) == row->needs;
        if (name && !strcmp(name, row->name) && !able)
            return error_set(ERR_USAGE, "this CPU lacks the instruction set %s", name);
        if (able && (!name || !strcmp(name, row->name))) {
            *out = row;
            return 0;
        }
    }
    struct buffer names = { 0 };
    for (size_t i = 0; i < n_kernels; i++)
        buffer_printf(&names, "%s%s", i ? ", " : "", kernels_all[i]->name);
    int err = error_set(ERR_USAGE, "no kernels for an instruction set %s in this program: there are %s", name,
                        names.bytes ? names.bytes : "others");
    buffer_release(&names);
    return err;
}
