/* prefix.h: the prefix cache: which beginnings of texts have keys and values in blocks, in one group along dp.
 *
 * A tree.  A root is a salt: only requests with the same one share anything.  A node is BLOCK_TOKENS tokens after its parent, so it
 * stands for a whole beginning, and names a block in each cache group, or none where that has gone.  A child is found by the hash of
 * its content (XXH3 of its tokens, keyed by its parent's hash; a root's is keyed by what the numbers depend on) and taken only when
 * its parent and its tokens are equal: a hash that repeats costs a look and no answer.
 *
 * A node lives while it has a block, a child, or a user: a sequence that goes on from it. */
#ifndef STOA_ENGINE_PREFIX_H
#define STOA_ENGINE_PREFIX_H

#include "engine/blocks.h"
#include "graph/graph.h"
#include "kernel/kernel.h"

#include <stddef.h>

/* No salt is { NULL, 0 }, which is another one than an empty text. */
struct prefix_salt {
    const void *bytes;
    size_t n_bytes;
};

struct prefix_node {
    uint32_t parent, next;          /* next: of the same hash slot, or of the free ones */
    uint32_t first_child, older_sibling, newer_sibling;
    uint32_t n_users, n_children, n_blocks;
    uint64_t hash;
    int32_t tokens[BLOCK_TOKENS];
    uint32_t block[GRAPH_MAX_CACHE_GROUPS];
    struct prefix_salt salt;        /* of a root, its own copy; a parent of NO_NODE says that it is one */
};

struct prefix {
    struct prefix_node *node;       /* [n_nodes] */
    uint32_t n_nodes, n_used, first_free;
    uint32_t *slot;                 /* [slot_mask + 1] */
    uint32_t slot_mask;
    uint32_t n_cache_groups;
    uint64_t seed, hash_mask;       /* hash_mask: all ones; a test makes hashes collide */
};

int prefix_init(struct prefix *p, uint32_t n_nodes, uint32_t n_cache_groups, uint64_t seed);
void prefix_release(struct prefix *p);
/* The root of a salt, or NO_NODE. */
uint32_t prefix_find_root(const struct prefix *p, struct prefix_salt salt);
/* The same, made when there is none; NO_NODE when there is no room.  Whoever asks for it becomes its user. */
uint32_t prefix_root(struct prefix *p, struct prefix_salt salt);
/* The child with these BLOCK_TOKENS tokens, or NO_NODE; parent may be NO_NODE, which has no children. */
uint32_t prefix_find(const struct prefix *p, uint32_t parent, const int32_t *tokens);
/* The same, made when there is none; NO_NODE when there is no room. */
uint32_t prefix_add(struct prefix *p, uint32_t parent, const int32_t *tokens);
/* Users come and go; with its last one a node may go, so that its number says nothing any more. */
void prefix_hold(struct prefix *p, uint32_t node);
void prefix_let_go(struct prefix *p, uint32_t node);
/* In a place that is NO_BLOCK, and NO_BLOCK in another's, with which the node may go. */
void prefix_set_block(struct prefix *p, uint32_t node, uint32_t cache_group, uint32_t block);
void prefix_drop_block(struct prefix *p, uint32_t node, uint32_t cache_group);
/* Walks the invariants of the tree. */
void prefix_check(const struct prefix *p);

#endif
