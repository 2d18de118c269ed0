#include "run/kv_cache.h"

#include "base/error.h"
#include "kernel/kernel.h"

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

void kv_cache_release(struct kv_cache *kv)
{
    if (kv->bytes)
        munmap(kv->bytes, kv->n_bytes);
    *kv = (struct kv_cache){ 0 };
}
