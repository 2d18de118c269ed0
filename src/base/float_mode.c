#include "base/float_mode.h"

#include "base/error.h"

#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

#define MODE_BITS 0xe040u       /* of MXCSR: flush to zero, rounding, denormals are zero */

static uint64_t mode_read(void)
{
    return _mm_getcsr();
}

static void mode_write(uint64_t mode)
{
    _mm_setcsr((unsigned)mode);
}

#elif defined(__aarch64__)

#define MODE_BITS 0x5c80003u    /* of FPCR: AHP (another f16), FZ, RMode, FZ16, and of FEAT_AFP: FIZ, AH */

static uint64_t mode_read(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static void mode_write(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}

#else
#error "say here how this CPU flushes subnormals and rounds"
#endif

void cpu_float_mode_set(void)
{
    mode_write(mode_read() & ~(uint64_t)MODE_BITS);
}

int cpu_float_mode_check(void)
{
    uint64_t mode = mode_read() & MODE_BITS;
    if (mode)
        return error_set(ERR_FAILED, "a library has changed how this thread rounds or flushes floats (mode bits %#llx)",
                         (unsigned long long)mode);
    return 0;
}
