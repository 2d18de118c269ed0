/* partition.h: how a labelled dim is cut: elements, units, groups, ranks.
 *
 *   element   what the label counts: a head, an FFN column, a vocabulary row
 *   unit      the fewest elements that may not be parted, because a quantization block spans them; the last may be short
 *   group     consecutive units whose products make one partial sum; group g of G holds units floor(gU/G) .. floor((g+1)U/G)
 *   range     a rank's elements, always whole groups; it may be empty
 *
 * The canonical tree is a complete binary tree over the G groups; an empty group is absent, and a node with one child
 * is that child.  Every sum over the dim is added in that tree, on one rank too, so the bits do not depend on the cut.
 * A rank sends its maximal subtrees.  Who asks for more groups than the rule gives can deal finer shares; then the tree is another,
 * and answers are equal within tolerance to those of the rule's tree, bit for bit to those of the same number of groups.
 * (docs/architecture.md, "One answer".) */
#ifndef STOA_GRAPH_PARTITION_H
#define STOA_GRAPH_PARTITION_H

#include "graph/mesh.h"

#include <stdbool.h>

enum label { LABEL_NONE, LABEL_HEADS, LABEL_KV_HEADS, LABEL_FFN, LABEL_EXPERTS, LABEL_VOCAB, N_LABELS };
extern const char *const label_name[N_LABELS];

#define MAX_GROUPS 64

struct label_info {
    uint32_t n_elements;        /* 0: the model does not use this label */
    uint32_t width;             /* columns of a contraction that one element covers: head_dim, or 1 */
    uint32_t unit;              /* elements in a unit */
    uint32_t follows;           /* kv_heads: the label that is really cut (heads), else LABEL_NONE */
    uint32_t per_element;       /* with `follows`: how many of its elements one element serves */
    uint32_t n_groups;          /* 0: by the rule; else as many as were asked for */
};

struct range {
    uint32_t begin, end;        /* in elements; begin == end is nothing */
};

/* Least multiple of an element that `block` columns span. */
uint32_t label_unit(uint32_t width, uint32_t block);
/* G: 16 where the contraction has at least 2,048 columns, else 8; or what was asked for. */
uint32_t label_n_groups(const struct label_info *label);
struct range label_group(const struct label_info *label, uint32_t group);

/* Items 0 .. n_items - 1 dealt in order to n ranks by relative weight (NULL: equally): range r ends at
 * floor(n_items * sum of weights up to r / sum of all). */
struct range share_items(uint32_t n_items, const uint32_t *weight, uint32_t n, uint32_t r);

/* What rank `at` of `n` along the label's axis holds.  labels is the table of the whole model. */
struct range label_range(const struct label_info labels[N_LABELS], enum label label, const uint32_t *weight, uint32_t n, uint32_t at);
/* 0 when `n` ranks of the axis with these shares take whole groups of a label that is contracted, else ERR_USAGE with the reason.
 * Where groups were asked for, any shares will do: they are rounded to whole groups. */
int label_check(const struct label_info *label, const char *name, const char *axis, const uint32_t *weight, uint32_t n);

/* The part of the canonical tree over groups [first, last) as a stack machine: the groups that are not empty in order,
 * each pushed, then n_merges times the two topmost joined; what is left are the maximal subtrees. */
struct tree {
    uint32_t n_leaves, n_parts;
    struct range leaf[MAX_GROUPS];          /* in elements, not relative to the rank */
    uint8_t n_merges[MAX_GROUPS];
};
void label_tree(struct tree *tree, const struct label_info *label, uint32_t first_group, uint32_t last_group);

/* How the parts of some ranks become n_roots: part p comes from the rank r with first[r] <= p < first[r+1]. */
struct joined_tree {
    uint32_t n_parts, n_roots;
    uint32_t *first;                        /* [ranks + 1], the caller's */
    uint8_t n_merges[MAX_GROUPS];
};
/* Of ranks first .. last - 1 among n.  All n of them give one root. */
void label_join(struct joined_tree *joined, const struct label_info *label, const uint32_t *weight, uint32_t n, uint32_t first,
                uint32_t last);

/* The tree of what rank `at` of `n` holds. */
void label_rank_tree(struct tree *tree, const struct label_info *label, const uint32_t *weight, uint32_t n, uint32_t at);

#endif
