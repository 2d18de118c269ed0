/* random.h: counter-based random numbers: a pure function of a key and a counter, so that a draw does not depend on what
 * else was drawn.  The mixer is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", 2014). */
#ifndef STOA_BASE_RANDOM_H
#define STOA_BASE_RANDOM_H

#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A key for one place of one text: equal for equal (seed, choice, position), unrelated otherwise. */
static inline uint64_t random_key(uint64_t seed, uint32_t choice, uint32_t position)
{
    uint64_t place = (uint64_t)choice << 32 | position;
    return random_mix(random_mix(seed + 0x9e3779b97f4a7c15u) ^ (place + 1) * 0x9e3779b97f4a7c15u);
}

/* The counter-th draw of a key. */
static inline uint64_t random_u64(uint64_t key, uint64_t counter)
{
    return random_mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

#endif
