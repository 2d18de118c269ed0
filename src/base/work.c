#include "base/work.h"

#include "base/threads.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGION_SPIN_US 60       /* more than the skew of two threads that have a core each */

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True when *word has changed within the time. */
static bool spin_while(atomic_uint *word, unsigned seen, int spin_us)
{
    double end_s = 0;
    for (unsigned i = 0; spin_us; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return true;
        cpu_pause();
        if (i % 64 != 63)
            continue;
        double now_s = seconds_now();
        if (!end_s)
            end_s = now_s + 1e-6 * spin_us;
        else if (now_s > end_s)
            break;
    }
    return false;
}

static void sleep_while(atomic_uint *word, unsigned seen, atomic_uint *n_sleepers)
{
    atomic_fetch_add(n_sleepers, 1);
    if (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(n_sleepers, 1);
}

void word_wait(atomic_uint *word, unsigned seen, atomic_uint *n_sleepers, int spin_us)
{
    if (spin_while(word, seen, spin_us))
        return;
    while (atomic_load(word) == seen)
        sleep_while(word, seen, n_sleepers);
}

void word_wake(atomic_uint *word, atomic_uint *n_sleepers)
{
    if (atomic_load(n_sleepers))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* The claim is void before n_chunks grows: a late thread that held the last claim of the step before against the new number
 * would get a chunk that is not there.  Whoever sees that number sees the void claim, and its exchange fails. */
void work_prepare(struct work *work, uint32_t step, uint32_t n_chunks)
{
    atomic_store_explicit(&work->claim, (uint64_t)step << 32 | UINT32_MAX, memory_order_relaxed);
    atomic_store_explicit(&work->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&work->n_chunks, n_chunks, memory_order_release);
    atomic_store_explicit(&work->claim, (uint64_t)step << 32, memory_order_release);
}

bool work_claim(struct work *work, uint32_t step, uint32_t *chunk)
{
    uint64_t claim = atomic_load_explicit(&work->claim, memory_order_relaxed);
    do {
        if (claim >> 32 != step || (uint32_t)claim >= atomic_load_explicit(&work->n_chunks, memory_order_acquire))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&work->claim, &claim, claim + 1, memory_order_acq_rel, memory_order_relaxed));
    *chunk = (uint32_t)claim;
    return true;
}

void work_done(struct work *work)
{
    unsigned n_chunks = atomic_load_explicit(&work->n_chunks, memory_order_relaxed);
    if (atomic_fetch_add(&work->n_done, 1) + 1 == n_chunks)
        word_wake(&work->n_done, &work->n_sleepers);
}

bool work_wait(struct work *work, const atomic_uint *current, uint32_t step, bool spin)
{
    for (;;) {
        unsigned n_done = atomic_load_explicit(&work->n_done, memory_order_acquire);
        if (atomic_load_explicit(current, memory_order_acquire) != step)
            return false;
        if (n_done == atomic_load_explicit(&work->n_chunks, memory_order_relaxed))
            return true;
        if (!spin_while(&work->n_done, n_done, spin ? REGION_SPIN_US : 0))
            sleep_while(&work->n_done, n_done, &work->n_sleepers);
    }
}
