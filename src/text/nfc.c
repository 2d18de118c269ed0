/* nfc.c: Normalization Form C (Unicode Standard Annex 15).
 *
 * Nearly all text is in it already.  What is not begins at a character that may change or move, or at the starter before
 * it, and ends before the next character that does neither: such a stretch is decomposed, its marks are put in order, and
 * it is composed again. */
#include "base/base.h"
#include "base/buffer.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    HANGUL = 0xac00, LEADS = 0x1100, VOWELS = 0x1161, TAILS = 0x11a7,   /* TAILS itself is no tail */
    N_LEADS = 19, N_VOWELS = 21, N_TAILS = 28
};

struct letter {
    uint32_t code, order;       /* order: canonical combining class, 0 for a starter */
};

struct stretch {
    struct letter *letters;
    size_t n, capacity;
    bool failed;
};

static uint32_t order_of(uint32_t code)
{
    return code < 0x300 ? 0 : unicode_value(unicode_orders, n_unicode_orders, code);
}

static bool is_stable(uint32_t code)
{
    return code < 0x300 || (!order_of(code) && !unicode_value(unicode_unstable, n_unicode_unstable, code));
}

static void add_letter(struct stretch *s, uint32_t code)
{
    if (s->n == s->capacity && !s->failed) {
        size_t capacity = MAX((size_t)64, 2 * s->capacity);
        struct letter *grown = realloc(s->letters, capacity * sizeof *grown);
        s->failed = !grown;
        s->letters = grown ? grown : s->letters;
        s->capacity = grown ? capacity : s->capacity;
    }
    if (!s->failed)
        s->letters[s->n++] = (struct letter){ code, order_of(code) };
}

static const struct unicode_parts *parts_of(uint32_t code)
{
    size_t low = 0, high = n_unicode_decompositions;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (unicode_decompositions[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_unicode_decompositions && unicode_decompositions[low].code == code ? &unicode_decompositions[low] : NULL;
}

/* First parts come apart further, second parts never do. */
static void decompose(struct stretch *s, uint32_t code)
{
    const struct unicode_parts *parts = parts_of(code);
    if (code - HANGUL < N_LEADS * N_VOWELS * N_TAILS) {
        uint32_t at = code - HANGUL;
        add_letter(s, LEADS + at / (N_VOWELS * N_TAILS));
        add_letter(s, VOWELS + at / N_TAILS % N_VOWELS);
        if (at % N_TAILS)
            add_letter(s, TAILS + at % N_TAILS);
    } else if (parts) {
        decompose(s, parts->a);
        if (parts->b)
            add_letter(s, parts->b);
    } else {
        add_letter(s, code);
    }
}

/* Marks by their order, those of one order as they stood; there are at most 255 orders. */
static void sort_marks(struct letter *marks, size_t n, struct stretch *scratch)
{
    size_t start[257] = { 0 };
    bool sorted = true;
    for (size_t i = 1; i < n; i++)
        sorted &= marks[i - 1].order <= marks[i].order;
    if (sorted)
        return;
    for (scratch->n = 0; scratch->n < n && !scratch->failed; )
        add_letter(scratch, marks[scratch->n].code);
    if (scratch->failed)
        return;
    for (size_t i = 0; i < n; i++)
        start[scratch->letters[i].order + 1]++;
    for (size_t i = 1; i < COUNT_OF(start); i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        marks[start[scratch->letters[i].order]++] = scratch->letters[i];
}

static void sort(struct stretch *s, struct stretch *scratch)
{
    for (size_t i = 0, n; i < s->n; i += n) {
        for (n = 0; i + n < s->n && s->letters[i + n].order; n++)
            ;
        if (n > 1)
            sort_marks(s->letters + i, n, scratch);
        n += n == 0;
    }
}

/* The character that a and b make together, or 0. */
static uint32_t composed(uint32_t a, uint32_t b)
{
    if (a - LEADS < N_LEADS && b - VOWELS < N_VOWELS)
        return HANGUL + ((a - LEADS) * N_VOWELS + (b - VOWELS)) * N_TAILS;
    if (a - HANGUL < N_LEADS * N_VOWELS * N_TAILS && (a - HANGUL) % N_TAILS == 0 && b - TAILS - 1 < N_TAILS - 1)
        return a + (b - TAILS);
    size_t low = 0, high = n_unicode_compositions;
    while (low < high) {
        const struct unicode_parts *row = &unicode_compositions[(low + high) / 2];
        if (row->a == a && row->b == b)
            return row->code;
        if (row->a < a || (row->a == a && row->b < b))
            low = (low + high) / 2 + 1;
        else
            high = (low + high) / 2;
    }
    return 0;
}

/* A letter joins the last starter unless one between them has its order or a higher one, or is a starter. */
static void compose(struct stretch *s)
{
    size_t n = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct letter letter = s->letters[i];
        bool reaches = starter != SIZE_MAX && (n - 1 == starter || s->letters[n - 1].order < letter.order);
        uint32_t code = reaches ? composed(s->letters[starter].code, letter.code) : 0;
        if (code) {
            s->letters[starter].code = code;
            continue;
        }
        if (!letter.order)
            starter = n;
        s->letters[n++] = letter;
    }
    s->n = n;
}

static void add_composed(struct buffer *out, struct stretch *s, struct stretch *scratch)
{
    char bytes[4];
    sort(s, scratch);
    compose(s);
    for (size_t i = 0; i < s->n; i++)
        buffer_add(out, bytes, utf8_encode(s->letters[i].code, bytes));
    out->failed |= s->failed || scratch->failed;
    s->n = 0;
}

void unicode_add_nfc(struct buffer *out, const char *text, size_t n_bytes)
{
    struct stretch stretch = { 0 }, scratch = { 0 };
    size_t copied = 0;          /* text before it is in `out` */
    size_t starter = 0;         /* where the last stable character begins; what follows may join it */
    uint32_t code;
    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = utf8_decode(text + at, n_bytes - at, &code);
        if (code >= UTF8_INVALID || is_stable(code)) {
            starter = code >= UTF8_INVALID ? at + n : at;
            continue;
        }
        buffer_add(out, text + copied, starter - copied);
        for (copied = starter; copied < n_bytes; copied += n) {
            n = utf8_decode(text + copied, n_bytes - copied, &code);
            if (code >= UTF8_INVALID || (copied > at && is_stable(code)))
                break;
            decompose(&stretch, code);
        }
        add_composed(out, &stretch, &scratch);
        starter = at = copied;
        n = 0;
    }
    buffer_add(out, text + copied, n_bytes - copied);
    free(stretch.letters);
    free(scratch.letters);
}
