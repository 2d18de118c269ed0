#include "engine/prefix.h"

#include "base/base.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int prefix_init(struct prefix *p, uint32_t n_nodes, uint32_t n_cache_groups, uint64_t seed)
{
    uint32_t n_slots = 16;
    while (n_slots < n_nodes)
        n_slots *= 2;
    *p = (struct prefix){ .n_nodes = n_nodes, .first_free = NO_NODE, .slot_mask = n_slots - 1, .n_cache_groups = n_cache_groups,
                          .seed = seed, .hash_mask = UINT64_MAX,
                          .node = calloc(n_nodes + 1, sizeof *p->node), .slot = malloc(n_slots * sizeof *p->slot) };
    if (!p->node || !p->slot)
        return error_set(ERR_NO_MEMORY, "no memory for a prefix cache of %u nodes", n_nodes);
    memset(p->slot, 0xff, n_slots * sizeof *p->slot);
    return 0;
}

void prefix_release(struct prefix *p)
{
    for (uint32_t i = 0; p->node && i < p->n_used; i++)
        free((void *)(uintptr_t)p->node[i].salt.bytes);
    free(p->node);
    free(p->slot);
    *p = (struct prefix){ 0 };
}

/* ---- nodes come and go ---- */
static uint32_t *slot_of(const struct prefix *p, uint64_t hash)
{
    return &p->slot[hash & p->hash_mask & p->slot_mask];
}

/* Nodes are used from the first on, and again after they have gone. */
static uint32_t take_node(struct prefix *p)
{
    uint32_t id = p->first_free;
    if (id != NO_NODE)
        p->first_free = p->node[id].next;
    else if (p->n_used < p->n_nodes)
        id = p->n_used++;
    return id;
}

static void link_child(struct prefix *p, uint32_t id)
{
    struct prefix_node *n = &p->node[id], *parent = &p->node[n->parent];
    n->older_sibling = parent->first_child;
    if (n->older_sibling != NO_NODE)
        p->node[n->older_sibling].newer_sibling = id;
    parent->first_child = id;
    parent->n_children++;
}

static void unlink_child(struct prefix *p, uint32_t id)
{
    struct prefix_node *n = &p->node[id], *parent = &p->node[n->parent];
    *(n->newer_sibling == NO_NODE ? &parent->first_child : &p->node[n->newer_sibling].older_sibling) = n->older_sibling;
    if (n->older_sibling != NO_NODE)
        p->node[n->older_sibling].newer_sibling = n->newer_sibling;
    parent->n_children--;
}

static uint32_t make_node(struct prefix *p, uint32_t parent, uint64_t hash)
{
    uint32_t id = take_node(p);
    if (id == NO_NODE)
        return id;
    struct prefix_node *n = &p->node[id];
    *n = (struct prefix_node){ .parent = parent, .hash = hash, .next = *slot_of(p, hash), .first_child = NO_NODE, .older_sibling = NO_NODE,
                               .newer_sibling = NO_NODE };
    memset(n->block, 0xff, sizeof n->block);
    *slot_of(p, hash) = id;
    if (parent != NO_NODE)
        link_child(p, id);
    return id;
}

static void unmake_node(struct prefix *p, uint32_t id)
{
    struct prefix_node *n = &p->node[id];
    uint32_t *link = slot_of(p, n->hash);
    while (*link != id)
        link = &p->node[*link].next;
    *link = n->next;
    if (n->parent != NO_NODE)
        unlink_child(p, id);
    free((void *)(uintptr_t)n->salt.bytes);
    n->salt = (struct prefix_salt){ 0 };
    n->next = p->first_free;
    p->first_free = id;
}

/* The node, when nothing keeps it, and its parents, when it was what kept them. */
static void prune(struct prefix *p, uint32_t id)
{
    while (id != NO_NODE && !p->node[id].n_users && !p->node[id].n_children && !p->node[id].n_blocks) {
        uint32_t parent = p->node[id].parent;
        unmake_node(p, id);
        id = parent;
    }
}

/* ---- what is found ---- */
static bool same_salt(const struct prefix_salt *a, const struct prefix_salt *b)
{
    return !a->bytes == !b->bytes && a->n_bytes == b->n_bytes && (!a->n_bytes || !memcmp(a->bytes, b->bytes, a->n_bytes));
}

static uint64_t hash_salt(const struct prefix *p, struct prefix_salt salt)
{
    return XXH3_64bits_withSeed(salt.bytes ? salt.bytes : "", salt.n_bytes, p->seed + !salt.bytes);
}

uint32_t prefix_find_root(const struct prefix *p, struct prefix_salt salt)
{
    uint32_t id = *slot_of(p, hash_salt(p, salt));
    while (id != NO_NODE && (p->node[id].parent != NO_NODE || !same_salt(&p->node[id].salt, &salt)))
        id = p->node[id].next;
    return id;
}

uint32_t prefix_root(struct prefix *p, struct prefix_salt salt)
{
    uint32_t id = prefix_find_root(p, salt);
    if (id != NO_NODE)
        return id;
    void *copy = salt.bytes ? malloc(salt.n_bytes + 1) : NULL;
    if (!salt.bytes || copy)
        id = make_node(p, NO_NODE, hash_salt(p, salt));
    if (id == NO_NODE) {
        free(copy);
        return id;
    }
    if (salt.n_bytes)
        memcpy(copy, salt.bytes, salt.n_bytes);
    p->node[id].salt = (struct prefix_salt){ copy, salt.n_bytes };
    return id;
}

static uint64_t hash_child(const struct prefix *p, uint32_t parent, const int32_t *tokens)
{
    return XXH3_64bits_withSeed(tokens, sizeof p->node->tokens, p->node[parent].hash);
}

static uint32_t find(const struct prefix *p, uint32_t parent, const int32_t *tokens, uint64_t hash)
{
    uint32_t id = *slot_of(p, hash);
    while (id != NO_NODE && (p->node[id].parent != parent || memcmp(p->node[id].tokens, tokens, sizeof p->node->tokens)))
        id = p->node[id].next;
    return id;
}

uint32_t prefix_find(const struct prefix *p, uint32_t parent, const int32_t *tokens)
{
    return parent == NO_NODE ? NO_NODE : find(p, parent, tokens, hash_child(p, parent, tokens));
}

uint32_t prefix_add(struct prefix *p, uint32_t parent, const int32_t *tokens)
{
    uint64_t hash = hash_child(p, parent, tokens);
    uint32_t id = find(p, parent, tokens, hash);
    if (id == NO_NODE && (id = make_node(p, parent, hash)) != NO_NODE)
        memcpy(p->node[id].tokens, tokens, sizeof p->node->tokens);
    return id;
}

void prefix_hold(struct prefix *p, uint32_t id)
{
    p->node[id].n_users++;
}

void prefix_let_go(struct prefix *p, uint32_t id)
{
    assert(p->node[id].n_users > 0);
    p->node[id].n_users--;
    prune(p, id);
}

void prefix_set_block(struct prefix *p, uint32_t id, uint32_t cache_group, uint32_t block)
{
    assert(p->node[id].block[cache_group] == NO_BLOCK);
    p->node[id].block[cache_group] = block;
    p->node[id].n_blocks++;
}

void prefix_drop_block(struct prefix *p, uint32_t id, uint32_t cache_group)
{
    assert(p->node[id].block[cache_group] != NO_BLOCK);
    p->node[id].block[cache_group] = NO_BLOCK;
    p->node[id].n_blocks--;
    prune(p, id);
}

/* ---- invariants ---- */
static void check_node(const struct prefix *p, uint32_t id)
{
    const struct prefix_node *n = &p->node[id];
    uint32_t n_children = 0, n_blocks = 0, newer = NO_NODE;
    for (uint32_t c = n->first_child; c != NO_NODE; newer = c, c = p->node[c].older_sibling, n_children++)
        assert(n_children < p->n_nodes && p->node[c].parent == id && p->node[c].newer_sibling == newer);
    for (uint32_t g = 0; g < p->n_cache_groups; g++)
        n_blocks += n->block[g] != NO_BLOCK;
    assert(n_children == n->n_children && n_blocks == n->n_blocks);
    assert(n->n_users || n_children || n_blocks);
    assert(n->parent == NO_NODE || n->hash == hash_child(p, n->parent, n->tokens));
}

void prefix_check(const struct prefix *p)
{
    uint32_t n_live = 0, n_free = 0;
    for (uint32_t s = 0; s <= p->slot_mask; s++)
        for (uint32_t id = p->slot[s]; id != NO_NODE; id = p->node[id].next, n_live++) {
            assert(n_live < p->n_used && slot_of(p, p->node[id].hash) == &p->slot[s]);
            check_node(p, id);
        }
    for (uint32_t id = p->first_free; id != NO_NODE; id = p->node[id].next, n_free++)
        assert(n_free < p->n_used);
    assert(n_live + n_free == p->n_used);
}
