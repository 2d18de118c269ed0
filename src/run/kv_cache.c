#include "run/kv_cache.h"

#include "base/base.h"
#include "base/error.h"
#include "kernel/kernel.h"

#include <string.h>
#include <sys/mman.h>

size_t kv_block_bytes(uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim, enum dtype type)
{
    return (size_t)n_layers * n_kv_heads * kv_tile_bytes(type, head_dim);
}

int kv_cache_open(struct kv_cache *kv, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim, enum dtype type, uint32_t n_blocks)
{
    *kv = (struct kv_cache){ n_layers, n_kv_heads, n_blocks, kv_tile_bytes(type, head_dim), 0, NULL };
    kv->n_bytes = kv_block_bytes(n_layers, n_kv_heads, head_dim, type) * n_blocks;
    if (!kv->n_bytes)
        return 0;
    void *bytes = mmap(NULL, kv->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return error_set(ERR_NO_MEMORY, "no memory for a KV cache of %zu MB; a smaller --context needs less", kv->n_bytes >> 20);
    kv->bytes = bytes;
    return 0;
}

/* n consecutive positions touch at most (n + 14) / 16 + 1 blocks of 16. */
uint32_t kv_sequence_blocks(uint32_t window, uint32_t context, uint32_t n_step)
{
    uint32_t all = DIV_UP(context, BLOCK_TOKENS);
    if (!window || window > context)
        return all;
    return MIN(all, (window - 1 + n_step + BLOCK_TOKENS - 2) / BLOCK_TOKENS + 1);
}

void kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to)
{
    size_t n_bytes = (size_t)kv->n_layers * kv->n_kv_heads * kv->tile_bytes;
    if (n_bytes)
        memcpy(kv->bytes + to * n_bytes, kv->bytes + from * n_bytes, n_bytes);
}

void kv_cache_release(struct kv_cache *kv)
{
    if (kv->bytes)
        munmap(kv->bytes, kv->n_bytes);
    *kv = (struct kv_cache){ 0 };
}
