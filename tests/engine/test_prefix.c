/* test_prefix.c: a tree of beginnings: what is found is equal, also where hashes are not worth anything, and nothing stays for nothing. */
#include "engine/prefix.h"
#include "base/base.h"
#include "base/random.h"
#include "tests/check.h"

#include <string.h>

enum { N_NODES = 200, N_GROUPS = 2 };

static void make_tokens(int32_t *tokens, uint64_t which)
{
    for (uint32_t i = 0; i < BLOCK_TOKENS; i++)
        tokens[i] = (int32_t)(random_u64(which, i) % 1000);
}

/* Three levels of branches; each leaf keeps its line, which goes with it. */
static void test_tree(uint64_t hash_mask)
{
    struct prefix p;
    int32_t tokens[BLOCK_TOKENS];
    uint32_t leaf[64], n_leaves = 0;
    check_begin("lines come and go, by hashes of %d bits", hash_mask ? 64 : 0);
    check_int(prefix_init(&p, N_NODES, N_GROUPS, 7), 0);
    p.hash_mask = hash_mask;
    uint32_t root = prefix_root(&p, (struct prefix_salt){ NULL, 0 });
    prefix_hold(&p, root);
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t node = root;
        for (uint64_t level = 1; level <= 3; level++) {
            make_tokens(tokens, level * 100 + i % (1ull << 2 * level));
            uint32_t known = prefix_find(&p, node, tokens), next = prefix_add(&p, node, tokens);
            check(next != NO_NODE && (known == NO_NODE || known == next));
            node = next;
        }
        leaf[n_leaves++] = node;
        prefix_set_block(&p, node, i % N_GROUPS, (uint32_t)i);
        prefix_check(&p);
    }
    make_tokens(tokens, 101);
    uint32_t first = prefix_find(&p, root, tokens);
    make_tokens(tokens, 205);
    uint32_t second = prefix_find(&p, first, tokens);
    check(first != NO_NODE && second != NO_NODE);
    check_int(prefix_find(&p, root, tokens), NO_NODE);          /* the same tokens after others are another beginning */
    tokens[BLOCK_TOKENS - 1]++;
    check_int(prefix_find(&p, first, tokens), NO_NODE);
    for (uint32_t i = 0; i < n_leaves; i++) {
        prefix_drop_block(&p, leaf[i], i % N_GROUPS);
        prefix_check(&p);
    }
    check_int(p.node[root].n_children, 0);
    prefix_let_go(&p, root);
    check_int(prefix_find_root(&p, (struct prefix_salt){ NULL, 0 }), NO_NODE);
    prefix_check(&p);
    prefix_release(&p);
}

static void test_salts(void)
{
    static const struct prefix_salt salts[] = { { NULL, 0 }, { "", 0 }, { "a", 1 }, { "ab", 2 }, { "a\0", 2 }, { "a\0b", 3 } };
    struct prefix p;
    uint32_t root[COUNT_OF(salts)];
    for (uint64_t mask = 0; mask < 2; mask++) {
        check_begin("KV-04: a root for each salt, none and an empty one are two, by hashes of %d bits", mask ? 64 : 0);
        check_int(prefix_init(&p, N_NODES, N_GROUPS, 7), 0);
        p.hash_mask = mask ? UINT64_MAX : 0;
        for (size_t i = 0; i < COUNT_OF(salts); i++) {
            check_int(prefix_find_root(&p, salts[i]), NO_NODE);
            root[i] = prefix_root(&p, salts[i]);
            prefix_hold(&p, root[i]);
            check_int(prefix_root(&p, salts[i]), root[i]);
            for (size_t j = 0; j < i; j++)
                check(root[i] != root[j]);
        }
        prefix_check(&p);
        prefix_release(&p);
    }
}

static void test_no_room(void)
{
    struct prefix p;
    int32_t tokens[BLOCK_TOKENS];
    uint32_t node[3];
    check_begin("without room there is no node, and one that goes makes room");
    check_int(prefix_init(&p, 3, 1, 7), 0);
    node[0] = prefix_root(&p, (struct prefix_salt){ "x", 1 });
    prefix_hold(&p, node[0]);
    for (uint32_t i = 1; i < 3; i++) {
        make_tokens(tokens, i);
        node[i] = prefix_add(&p, node[i - 1], tokens);
    }
    prefix_set_block(&p, node[2], 0, 5);
    make_tokens(tokens, 3);
    check_int(prefix_add(&p, node[2], tokens), NO_NODE);
    check_int(prefix_root(&p, (struct prefix_salt){ "y", 1 }), NO_NODE);
    prefix_check(&p);
    prefix_drop_block(&p, node[2], 0);          /* and with it the one before it */
    check(prefix_add(&p, node[0], tokens) != NO_NODE);
    prefix_release(&p);
}

int main(void)
{
    test_tree(UINT64_MAX);
    test_tree(0);
    test_salts();
    test_no_room();
    return check_done();
}
