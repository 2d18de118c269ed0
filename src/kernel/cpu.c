#include "kernel/cpu.h"

#include <stdbool.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AVX_VNNI (1u << 4)                      /* of EAX of CPUID's leaf 7, part 1 */
#define AMX_TILE_INT8 (1u << 24 | 1u << 25)     /* of EDX of CPUID's leaf 7 */
#define ARCH_REQ_XCOMP_PERM 0x1023              /* arch_prctl: Linux saves registers of 8 KB for those who ask only */
#define XFEATURE_XTILEDATA 18

static bool may_use_amx(void)
{
    unsigned a, b, c, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_TILE_INT8) == AMX_TILE_INT8 &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* The compiler's runtime looks at XCR0 too: a feature whose registers the system does not save counts as missing. */
unsigned cpu_features(void)
{
    unsigned a, b, c = 0, d, features = 0;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c)
        features |= CPU_AVX2;
    if (features && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX_VNNI)
        features |= CPU_AVXVNNI;
    if (features && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        features |= CPU_AVX512;
    if (features & CPU_AVX512 && may_use_amx())
        features |= CPU_AMX;
    return features;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

unsigned cpu_features(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? CPU_DOTPROD : 0;
}

#else
#error "say here what this CPU can"
#endif
