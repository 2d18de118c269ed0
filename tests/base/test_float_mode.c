#include "base/float_mode.h"
#include "tests/check.h"

#include <fenv.h>

#ifdef __x86_64__
#include <xmmintrin.h>
static uint64_t mode_read(void) { return _mm_getcsr(); }
static void mode_write(uint64_t mode) { _mm_setcsr((unsigned)mode); }
static const struct { const char *name; int bit; } bits[] = {
    { "flush to zero", 15 }, { "subnormals are zero", 6 }, { "rounding down", 13 }, { "rounding up", 14 },
};
#else
static uint64_t mode_read(void) { uint64_t mode; __asm__ volatile("mrs %0, fpcr" : "=r"(mode)); return mode; }
static void mode_write(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
static const struct { const char *name; int bit; } bits[] = {
    { "flush to zero", 24 }, { "rounding up", 22 }, { "rounding down", 23 }, { "another f16", 26 },
};
#endif

/* Every bit that changes an answer is seen, and taken back. */
static void test_float_mode(void)
{
    for (size_t i = 0; i < COUNT_OF(bits); i++) {
        check_begin("float mode: %s", bits[i].name);
        cpu_float_mode_set();
        check_int(cpu_float_mode_check(), 0);
        mode_write(mode_read() | UINT64_C(1) << bits[i].bit);
        check(cpu_float_mode_check() < 0);
        cpu_float_mode_set();
        check_int(cpu_float_mode_check(), 0);
    }
}

static void test_float_mode_of_answers(void)
{
    volatile float tiny = 0x1p-127f, one = 1.0f, ulp = 0x1.8p-24f;
    check_begin("float mode: subnormals stay, and halves go to the nearest");
    fesetround(FE_UPWARD);
    cpu_float_mode_set();
    check(tiny * 0.5f == 0x1p-128f);
    check(one + ulp == 1.0f + 0x1p-23f);
    check(one + 0x1p-24f == 1.0f);
    check(-one - 0x1p-24f == -1.0f);
}

int main(void)
{
    test_float_mode();
    test_float_mode_of_answers();
    return check_done();
}
