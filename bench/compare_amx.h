/* compare_amx.h: included before every C++ source of the peer, by compare's build of it.
 *
 * gcc 12 thinks that _tile_loadconfig() reads 8 bytes of the 64 of its argument, drops the stores to the others, and the first
 * use of a tile ends the process (SIGILL).  So the peer would be without its matrix unit, or without an answer. */
#if defined(__x86_64__)
#include <immintrin.h>
#ifdef __AMX_TILE__
#define _tile_loadconfig(config) ({ __asm__ volatile("" : : "r"(config) : "memory"); (_tile_loadconfig)(config); })
#endif
#endif
