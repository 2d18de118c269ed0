#include "graph/partition.h"

#include "base/base.h"
#include "base/error.h"

const char *const label_name[N_LABELS] = { "none", "heads", "kv_heads", "ffn", "experts", "vocab" };

uint32_t label_unit(uint32_t width, uint32_t block)
{
    uint32_t a = width, b = block;
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return block / a;           /* lcm(width, block) / width */
}

uint32_t label_n_groups(const struct label_info *label)
{
    if (label->n_groups)
        return label->n_groups;
    return (uint64_t)label->n_elements * label->width >= 2048 ? 16 : 8;
}

struct range label_group(const struct label_info *label, uint32_t group)
{
    uint32_t n_groups = label_n_groups(label), n_units = DIV_UP(label->n_elements, label->unit);
    uint32_t first = group * n_units / n_groups, last = (group + 1) * n_units / n_groups;
    return (struct range){ first * label->unit, MIN(last * label->unit, label->n_elements) };
}

struct range share_items(uint32_t n_items, const uint32_t *weight, uint32_t n, uint32_t r)
{
    uint64_t before = 0, mine = 0, all = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = weight ? weight[i] : 1;
        before += i < r ? w : 0;
        mine += i == r ? w : 0;
        all += w;
    }
    if (!all)
        return (struct range){ 0, 0 };
    return (struct range){ (uint32_t)(n_items * before / all), (uint32_t)(n_items * (before + mine) / all) };
}

/* Labels that are never contracted have no groups: whole units are dealt. */
static struct range deal_units(const struct label_info *label, const uint32_t *weight, uint32_t n, uint32_t at)
{
    struct range units = share_items(DIV_UP(label->n_elements, label->unit), weight, n, at);
    return (struct range){ MIN(units.begin * label->unit, label->n_elements), MIN(units.end * label->unit, label->n_elements) };
}

struct range label_range(const struct label_info labels[N_LABELS], enum label label, const uint32_t *weight, uint32_t n, uint32_t at)
{
    const struct label_info *info = &labels[label];
    if (label == LABEL_VOCAB)
        return deal_units(info, weight, n, at);
    if (info->follows) {
        struct range of = label_range(labels, info->follows, weight, n, at);
        if (of.begin == of.end)
            return (struct range){ 0, 0 };
        return (struct range){ of.begin / info->per_element, DIV_UP(of.end, info->per_element) };
    }
    struct range groups = share_items(label_n_groups(info), weight, n, at);
    if (groups.begin == groups.end)
        return (struct range){ 0, 0 };
    return (struct range){ label_group(info, groups.begin).begin, label_group(info, groups.end - 1).end };
}

int label_check(const struct label_info *label, const char *name, const char *axis, const uint32_t *weight, uint32_t n)
{
    uint32_t n_groups = label_n_groups(label);
    uint64_t all = 0;
    for (uint32_t i = 0; weight && i < n; i++)
        all += weight[i];
    if (weight && !all)
        return error_set(ERR_USAGE, "--shares: all are 0");
    if (!label->n_elements || label->follows)
        return 0;
    if (n > n_groups)
        return error_set(ERR_USAGE, "%s=%u: %s are summed in %u groups, so at most %s=%u gives the same bits; --groups asks for more",
                         axis, n, name, n_groups, axis, n_groups);
    for (uint32_t i = 0; weight && !label->n_groups && i < n; i++)
        if ((uint64_t)weight[i] * n_groups % all)
            return error_set(ERR_USAGE, "--shares: rank %u of %s would get %u/%llu of %s, which is no whole number of %u groups; "
                             "--groups asks for more", i, axis, weight[i], (unsigned long long)all, name, n_groups);
    return 0;
}

/* Walks the node over groups [lo, hi) of the complete tree, restricted to [first, last).  Returns how many subtrees it left
 * on the stack.  Two are joined only when the node lies within [first, last) as a whole: outside it the other half of the
 * sum is another rank's. */
static uint32_t walk(struct tree *tree, const struct label_info *label, uint32_t lo, uint32_t hi, uint32_t first, uint32_t last)
{
    if (hi <= first || lo >= last)
        return 0;
    if (hi - lo == 1) {
        struct range leaf = label_group(label, lo);
        if (leaf.begin == leaf.end)
            return 0;
        tree->leaf[tree->n_leaves++] = leaf;
        return 1;
    }
    uint32_t mid = (lo + hi) / 2;
    uint32_t n = walk(tree, label, lo, mid, first, last) + walk(tree, label, mid, hi, first, last);
    if (lo >= first && hi <= last && n == 2) {
        tree->n_merges[tree->n_leaves - 1]++;
        n = 1;
    }
    return n;
}

void label_tree(struct tree *tree, const struct label_info *label, uint32_t first_group, uint32_t last_group)
{
    *tree = (struct tree){ 0 };
    tree->n_parts = walk(tree, label, 0, label_n_groups(label), first_group, last_group);
}

void label_rank_tree(struct tree *tree, const struct label_info *label, const uint32_t *weight, uint32_t n, uint32_t at)
{
    struct range groups = share_items(label_n_groups(label), weight, n, at);
    label_tree(tree, label, groups.begin, groups.end);
}

/* Walks the node over groups [lo, hi).  One that lies within one rank is a part.  Returns how many subtrees it left on the stack;
 * as in walk(), two are joined only when the node lies within what all these ranks hold. */
static uint32_t walk_joined(struct joined_tree *joined, const struct label_info *label, uint32_t lo, uint32_t hi,
                            const struct range *groups, uint32_t n_ranks)
{
    struct range all = { groups[0].begin, groups[n_ranks - 1].end };
    if (hi <= all.begin || lo >= all.end)
        return 0;
    for (uint32_t r = 0; r < n_ranks; r++) {
        if (lo < groups[r].begin || hi > groups[r].end)
            continue;
        struct range first = label_group(label, lo), last = label_group(label, hi - 1);
        if (first.begin == last.end)
            return 0;
        joined->n_parts++;
        for (uint32_t later = r + 1; later <= n_ranks; later++)
            joined->first[later] = joined->n_parts;
        return 1;
    }
    uint32_t mid = (lo + hi) / 2;
    uint32_t n = walk_joined(joined, label, lo, mid, groups, n_ranks) + walk_joined(joined, label, mid, hi, groups, n_ranks);
    if (n == 2 && lo >= all.begin && hi <= all.end) {
        joined->n_merges[joined->n_parts - 1]++;
        n = 1;
    }
    return n;
}

void label_join(struct joined_tree *joined, const struct label_info *label, const uint32_t *weight, uint32_t n, uint32_t first,
                uint32_t last)
{
    struct range groups[MESH_MAX_RANKS];
    joined->n_parts = 0;
    for (uint32_t i = 0; i < MAX_GROUPS; i++)
        joined->n_merges[i] = 0;
    for (uint32_t r = first; r < last; r++) {
        groups[r - first] = share_items(label_n_groups(label), weight, n, r);
        joined->first[r - first] = 0;
    }
    joined->first[last - first] = 0;
    joined->n_roots = walk_joined(joined, label, 0, label_n_groups(label), groups, last - first);
}
