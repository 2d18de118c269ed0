/* tables.c: the blocks of a sequence: taken as it grows, shared where its beginning is known, let go at its end.
 *
 * Always true of a RUNNING sequence, and walked by tables_check():
 *  (1) Its tables name a block for every position that it has planned and that a later token sees; each is held once by it.
 *  (2) A block that two tables hold is written by one of them at most, at positions that the other does not look at.
 *  (3) s->node stands for the first s->n_published blocks of its tokens, all of them computed, as a collected result says. */
#include "engine/engine_impl.h"

#include "base/base.h"

static struct group *group_of(struct engine *e, const struct sequence *s)
{
    return &e->group[s->group];
}

static uint32_t *entry(const struct engine *e, const struct sequence *s, uint32_t g, uint32_t b)
{
    return &s->table[g][b % e->limits.cache[g].n_sequence];
}

/* ---- blocks come and go ---- */
/* A beginning without the keys of all its positions is of no use, so what it has for windows goes with them. */
static void forget(struct engine *e, struct group *group, uint32_t node, uint32_t g)
{
    struct prefix *p = &group->prefix;
    prefix_hold(p, node);
    prefix_drop_block(p, node, g);
    for (uint32_t i = 0; i < e->limits.n_cache_groups && !e->limits.cache[g].window; i++) {
        uint32_t block = p->node[node].block[i];
        if (block != NO_BLOCK) {
            prefix_drop_block(p, node, i);
            block_pool_forget(&group->pool[i], block);
        }
    }
    prefix_let_go(p, node);
}

static uint32_t take_block(struct engine *e, struct group *group, uint32_t g)
{
    uint32_t node, block = block_pool_take(&group->pool[g], &node);
    if (node != NO_NODE)
        forget(e, group, node, g);
    return block;
}

uint32_t tables_wanted(const struct engine *e, const struct sequence *s, uint32_t g, uint32_t n_positions)
{
    uint32_t n = 0, end = MIN(DIV_UP(n_positions, BLOCK_TOKENS), s->n_entered[g] + e->limits.cache[g].n_sequence);
    for (uint32_t b = s->n_entered[g]; b < end; b++) {      /* once round a ring: from then on it meets its own */
        uint32_t old = *entry(e, s, g, b);
        n += old == NO_BLOCK || e->group[s->group].pool[g].block[old].refs > 1;
    }
    return n;
}

bool tables_reserve(struct engine *e, struct sequence *s, uint32_t n_positions)
{
    struct group *group = group_of(e, s);
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (tables_wanted(e, s, g, n_positions) > block_pool_available(&group->pool[g]))
            return false;
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        for (; s->n_entered[g] < DIV_UP(n_positions, BLOCK_TOKENS); s->n_entered[g]++) {
            uint32_t *at = entry(e, s, g, s->n_entered[g]);
            if (*at != NO_BLOCK)
                block_pool_let_go(&group->pool[g], *at);
            *at = take_block(e, group, g);
        }
    return true;
}

/* The last ones first, so that of a beginning that nobody uses the end is taken before what it stands on. */
void tables_release(struct engine *e, struct sequence *s)
{
    struct group *group = group_of(e, s);
    tables_drop_copy(e, s);
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        uint32_t n = s->n_entered[g], n_most = MIN(n, e->limits.cache[g].n_sequence);
        for (uint32_t i = 0; i < n_most; i++) {
            uint32_t *at = entry(e, s, g, n - 1 - i);
            if (*at != NO_BLOCK)
                block_pool_let_go(&group->pool[g], *at);
            *at = NO_BLOCK;
        }
        s->n_entered[g] = 0;
    }
    if (s->node != NO_NODE)
        prefix_let_go(&group->prefix, s->node);
    s->node = NO_NODE;
    s->n_published = 0;
}

/* ---- a beginning that is known ---- */
static void move_to_node(struct group *group, struct sequence *s, uint32_t node)
{
    prefix_hold(&group->prefix, node);
    if (s->node != NO_NODE)
        prefix_let_go(&group->prefix, s->node);
    s->node = node;
}

/* Whether a sequence can go on after this node, the `n`th of its line: every cache group has what the next token sees.  run[g]: how
 * many nodes up to this one have a block in g. */
static bool is_enough(const struct engine *e, const uint32_t *run, uint32_t n)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (run[g] < n - cache_blocks_first_seen(&e->limits.cache[g], n * BLOCK_TOKENS))
            return false;
    return true;
}

static bool count_runs(const struct engine *e, const struct prefix_node *node, uint32_t *run)
{
    bool goes_on = true;
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        run[g] = node->block[g] == NO_BLOCK ? 0 : run[g] + 1;
        goes_on &= run[g] || e->limits.cache[g].window;
    }
    return goes_on;
}

/* The longest beginning of s, in whole blocks and without its last token, that it need not compute; its node. */
static uint32_t find_beginning(const struct engine *e, const struct group *group, const struct sequence *s, uint32_t root, uint32_t *found)
{
    uint32_t run[GRAPH_MAX_CACHE_GROUPS] = { 0 }, n_found = 0, node = root;
    *found = root;
    if (s->request.all_rows)
        return 0;
    for (uint32_t n = 1; n * BLOCK_TOKENS < s->n_tokens; n++) {
        node = prefix_find(&group->prefix, node, s->tokens + (n - 1) * BLOCK_TOKENS);
        if (node == NO_NODE || !count_runs(e, &group->prefix.node[node], run))
            break;
        if (is_enough(e, run, n)) {
            n_found = n;
            *found = node;
        }
    }
    return n_found;
}

static void hold_beginning(struct engine *e, struct group *group, struct sequence *s, uint32_t n)
{
    uint32_t node = s->node;
    for (uint32_t b = n; b-- > 0; node = group->prefix.node[node].parent)
        for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
            if (b >= cache_blocks_first_seen(&e->limits.cache[g], n * BLOCK_TOKENS)) {
                *entry(e, s, g, b) = group->prefix.node[node].block[g];
                block_pool_hold(&group->pool[g], *entry(e, s, g, b));
            }
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        s->n_entered[g] = n;
    s->n_published = n;
}

/* ---- a beginning that parts inside a block ---- */
/* Children are looked at from the newest on, and not too many. */
#define MOST_CHILDREN 32

static uint32_t n_common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static bool has_all_blocks(const struct engine *e, const uint32_t *block)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (block[g] == NO_BLOCK)
            return false;
    return true;
}

/* A known block whose first tokens are the next of s: how many, at most n_most, and where they are. */
static uint32_t find_in_children(const struct engine *e, const struct group *group, const struct sequence *s, uint32_t n_most,
                                 uint32_t *from)
{
    uint32_t most = 0, n_seen = 0;
    for (uint32_t c = group->prefix.node[s->node].first_child; c != NO_NODE && n_seen < MOST_CHILDREN; n_seen++) {
        const struct prefix_node *child = &group->prefix.node[c];
        uint32_t n = n_common(child->tokens, s->tokens + s->n_published * BLOCK_TOKENS, n_most);
        if (n > most && has_all_blocks(e, child->block)) {
            most = n;
            for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
                from[g] = child->block[g];
        }
        c = child->older_sibling;
    }
    return most;
}

static bool is_held(const struct engine *e, const struct sequence *s, uint32_t g, uint32_t b)
{
    return s->n_entered[g] - b <= e->limits.cache[g].n_sequence && *entry(e, s, g, b) != NO_BLOCK;
}

/* Steps in flight may have taken a window's ring beyond what is confirmed. */
static bool holds_all(const struct engine *e, const struct sequence *s, uint32_t b)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (!is_held(e, s, g, b))
            return false;
    return true;
}

/* The same of a block that a running sequence has not filled yet; better than `most`. */
static uint32_t find_in_sequences(const struct engine *e, const struct group *group, const struct sequence *s, uint32_t n_most,
                                  uint32_t most, uint32_t *from)
{
    uint32_t first = s->n_published * BLOCK_TOKENS;
    for (const struct sequence *other = group->sequences; other; other = other->next) {
        if (other->node != s->node || other->n_published != s->n_published || other->n_confirmed <= first)
            continue;
        uint32_t n = n_common(other->tokens + first, s->tokens + first, MIN(n_most, other->n_confirmed - first));
        if (n > most && holds_all(e, other, s->n_published)) {
            most = n;
            for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
                from[g] = *entry(e, other, g, s->n_published);
        }
    }
    return most;
}

/* What is copied stays held until a plan has the copy. */
static void copy_part(struct engine *e, struct group *group, struct sequence *s)
{
    uint32_t first = s->n_published * BLOCK_TOKENS, n_most = MIN(BLOCK_TOKENS, s->n_tokens - 1 - first);
    uint32_t n = find_in_children(e, group, s, n_most, s->copy_from);
    n = find_in_sequences(e, group, s, n_most, n, s->copy_from);
    if (!n)
        return;
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        block_pool_hold(&group->pool[g], s->copy_from[g]);
    s->has_copy = true;
    if (tables_reserve(e, s, first + n))
        s->n_planned = first + n;
    else
        tables_drop_copy(e, s);
}

void tables_drop_copy(struct engine *e, struct sequence *s)
{
    for (uint32_t g = 0; s->has_copy && g < e->limits.n_cache_groups; g++)
        block_pool_let_go(&group_of(e, s)->pool[g], s->copy_from[g]);
    s->has_copy = false;
}

uint32_t tables_copy_to(const struct engine *e, const struct sequence *s, uint32_t g)
{
    return *entry(e, s, g, s->n_published);
}

void tables_begin(struct engine *e, struct sequence *s)
{
    struct group *group = group_of(e, s);
    s->n_planned = s->n_confirmed = 0;
    s->n_seen = group->n_published;
    if (e->options.no_prefix_cache)
        return;
    uint32_t node = prefix_root(&group->prefix, s->request.salt);
    if (node == NO_NODE)
        return;
    s->root = node;
    move_to_node(group, s, node);
    uint32_t n = find_beginning(e, group, s, node, &node);
    move_to_node(group, s, node);
    hold_beginning(e, group, s, n);
    s->n_planned = s->n_confirmed = n * BLOCK_TOKENS;
    if (!s->request.all_rows)
        copy_part(e, group, s);         /* which nobody can copy in turn before it is done */
}

uint32_t tables_known(const struct engine *e, const struct sequence *s, uint32_t group)
{
    uint32_t node, root = prefix_find_root(&e->group[group].prefix, s->request.salt);
    return e->options.no_prefix_cache || root == NO_NODE ? 0 : find_beginning(e, &e->group[group], s, root, &node);
}

/* The last token is never taken from others, so the block that it ends is not waited for. */
bool tables_are_coming(const struct engine *e, const struct sequence *s)
{
    uint32_t end = (s->n_published + 1) * BLOCK_TOKENS;
    if (s->node == NO_NODE || s->request.all_rows || end >= s->n_tokens)
        return false;
    for (const struct sequence *r = e->group[s->group].sequences; r != s; r = r->next)
        if (r->node != NO_NODE && r->root == s->root && r->n_confirmed < end && r->n_tokens >= end &&
            n_common(r->tokens, s->tokens, end) == end)
            return true;
    return false;
}

/* ---- what others can share from now on ---- */
static void publish_block(struct engine *e, struct group *group, const struct sequence *s, uint32_t b)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        if (is_held(e, s, g, b) && group->prefix.node[s->node].block[g] == NO_BLOCK) {
            uint32_t block = *entry(e, s, g, b);
            assert(group->pool[g].block[block].node == NO_NODE);
            prefix_set_block(&group->prefix, s->node, g, block);
            group->pool[g].block[block].node = s->node;
        }
}

/* Nodes run out where windows keep blocks whose line has lost all others; the oldest goes, with its line. */
static void make_room_for_nodes(struct engine *e, struct group *group)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        uint32_t block = group->pool[g].oldest;
        if (block == NO_BLOCK)
            continue;
        uint32_t node = group->pool[g].block[block].node;
        block_pool_forget(&group->pool[g], block);
        forget(e, group, node, g);
    }
}

void tables_publish(struct engine *e, struct sequence *s)
{
    struct group *group = group_of(e, s);
    while (s->node != NO_NODE && (s->n_published + 1) * BLOCK_TOKENS <= s->n_confirmed) {
        uint32_t node = prefix_add(&group->prefix, s->node, s->tokens + s->n_published * BLOCK_TOKENS);
        if (node == NO_NODE) {
            make_room_for_nodes(e, group);
            return;
        }
        move_to_node(group, s, node);
        publish_block(e, group, s, s->n_published++);
        group->n_published++;
    }
}

/* ---- invariants ---- */
static uint32_t count_table(const struct engine *e, const struct sequence *s, uint32_t g, uint32_t block)
{
    uint32_t n = s->has_copy && s->copy_from[g] == block;
    for (uint32_t i = 0; i < e->limits.cache[g].n_sequence; i++)
        n += s->table[g][i] == block;
    return n;
}

static void check_sequence(const struct engine *e, const struct group *group, const struct sequence *s)
{
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++)
        for (uint32_t b = cache_blocks_first_seen(&e->limits.cache[g], s->n_planned); b < DIV_UP(s->n_planned, BLOCK_TOKENS); b++)
            assert(b < s->n_entered[g] && *entry(e, s, g, b) < group->pool[g].n_blocks);
    uint32_t n = s->n_published, node = s->node;
    for (; node != NO_NODE && group->prefix.node[node].parent != NO_NODE; node = group->prefix.node[node].parent, n--)
        assert(n && n_common(group->prefix.node[node].tokens, s->tokens + (n - 1) * BLOCK_TOKENS, BLOCK_TOKENS) == BLOCK_TOKENS);
    assert(n == 0 && s->n_published * BLOCK_TOKENS <= s->n_confirmed && s->n_confirmed <= s->n_planned && s->n_planned <= s->n_tokens);
}

static void check_blocks(const struct engine *e, const struct group *group, uint32_t g)
{
    for (uint32_t b = 0; b < group->pool[g].n_blocks; b++) {
        uint32_t refs = 0, node = group->pool[g].block[b].node;
        for (const struct sequence *s = group->sequences; s; s = s->next)
            refs += count_table(e, s, g, b);
        assert(refs == group->pool[g].block[b].refs);
        assert(node == NO_NODE || group->prefix.node[node].block[g] == b);
    }
}

void tables_check(const struct engine *e, const struct group *group)
{
    uint32_t n_users = 0, n = 0;
    for (const struct sequence *s = group->sequences; s; s = s->next) {
        check_sequence(e, group, s);
        n_users += s->node != NO_NODE;
    }
    for (uint32_t g = 0; g < e->limits.n_cache_groups; g++) {
        block_pool_check(&group->pool[g]);
        check_blocks(e, group, g);
    }
    prefix_check(&group->prefix);
    for (uint32_t i = 0; i < group->prefix.n_used; i++)
        n += group->prefix.node[i].n_users;
    assert(n == n_users);
}
