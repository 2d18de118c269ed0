/* template_method.c: methods of str, list and dict that change nothing, as Python has them. */
#include "base/base.h"
#include "base/error.h"
#include "text/template_builtin.h"
#include "text/unicode.h"

#include <string.h>

/* What a method of a string is applied to, argument 0, always is one; so for lists and dicts. */

static size_t character_at(const char *at, const char *end)
{
    uint32_t code;
    return utf8_decode(at, (size_t)(end - at), &code);
}

/* ---- stripping ---- */

/* Whether the character is white space, or one of `set` when that is given; looking in a long set is paid for. */
static int strips(run_t *run, const value_t *set, const char *character, size_t n_bytes, uint32_t code, bool *yes)
{
    if (!template_is_given(set)) {
        *yes = template_is_space(code);
        return 0;
    }
    *yes = memmem(set->text.bytes, set->text.n_bytes, character, n_bytes) != NULL;
    return set->text.n_bytes < 64 ? 0 : template_spend(run, set->text.n_bytes / 8);
}

static size_t last_character(const char *bytes, size_t n_bytes)
{
    size_t n = 1;
    while (n < n_bytes && n < 4 && ((unsigned char)bytes[n_bytes - n] & 0xc0) == 0x80)
        n++;
    return n;
}

int template_strip(run_t *run, value_t text, const value_t *set, bool left, bool right, value_t *out)
{
    const char *bytes = text.text.bytes;
    size_t start = 0, end = text.text.n_bytes, n;
    uint32_t code;
    bool yes = false;
    int err = template_is_given(set) ? template_want_text(run, set) : 0;
    for (; err == 0 && left && start < end; start += n) {
        n = utf8_decode(bytes + start, end - start, &code);
        if ((err = strips(run, set, bytes + start, n, code, &yes)) < 0 || !yes)
            break;
    }
    for (; err == 0 && right && end > start; end -= n) {
        n = last_character(bytes + start, end - start);
        bool whole = utf8_decode(bytes + end - n, n, &code) == n;
        if (!whole || (err = strips(run, set, bytes + end - n, n, code, &yes)) < 0 || !yes)
            break;
    }
    *out = template_value_text(bytes + start, end - start);
    return err < 0 ? err : template_spend(run, text.text.n_bytes - (end - start));
}

int template_method_strip(run_t *run, const value_t *a, value_t *out)
{
    return template_strip(run, a[0], &a[1], true, true, out);
}

int template_method_lstrip(run_t *run, const value_t *a, value_t *out)
{
    return template_strip(run, a[0], &a[1], true, false, out);
}

int template_method_rstrip(run_t *run, const value_t *a, value_t *out)
{
    return template_strip(run, a[0], &a[1], false, true, out);
}

static bool has_end(const value_t *text, const value_t *part, bool at_start)
{
    size_t n = part->text.n_bytes;
    return n <= text->text.n_bytes &&
           !memcmp(at_start ? text->text.bytes : text->text.bytes + text->text.n_bytes - n, part->text.bytes, n);
}

static int remove_end(run_t *run, const value_t *a, bool at_start, value_t *out)
{
    int err = template_want_text(run, &a[1]);
    *out = a[0];
    if (err < 0 || !has_end(&a[0], &a[1], at_start))
        return err;
    out->text.n_bytes -= a[1].text.n_bytes;
    out->text.bytes += at_start ? a[1].text.n_bytes : 0;
    return template_spend(run, a[1].text.n_bytes);
}

int template_method_removeprefix(run_t *run, const value_t *a, value_t *out)
{
    return remove_end(run, a, true, out);
}

int template_method_removesuffix(run_t *run, const value_t *a, value_t *out)
{
    return remove_end(run, a, false, out);
}

/* ---- case ---- */

int template_method_upper(run_t *run, const value_t *a, value_t *out)
{
    return template_to_upper(run, &a[0], out);
}

int template_method_lower(run_t *run, const value_t *a, value_t *out)
{
    return template_to_lower(run, &a[0], out);
}

int template_method_capitalize(run_t *run, const value_t *a, value_t *out)
{
    return template_capitalize(run, &a[0], out);
}

/* ---- splitting ---- */

static const value_t nothing = { .kind = VALUE_ABSENT };

/* Cuts at white space: no part is empty. */
static int split_words(run_t *run, value_t rest, int64_t most, value_t out)
{
    int err = template_strip(run, rest, &nothing, true, false, &rest);
    for (int64_t cuts = 0; rest.text.n_bytes && !err; cuts++) {
        const char *bytes = rest.text.bytes;
        size_t n = 0, n_code;
        uint32_t code;
        for (; n < rest.text.n_bytes; n += n_code) {
            n_code = utf8_decode(bytes + n, rest.text.n_bytes - n, &code);
            if (template_is_space(code) && (most < 0 || cuts < most))
                break;
        }
        err = template_list_append(run, out, template_value_text(bytes, n));
        if (err == 0)
            err = template_strip(run, template_value_text(bytes + n, rest.text.n_bytes - n), &nothing, true, false, &rest);
    }
    return err;
}

static int split_at(run_t *run, const value_t *text, const value_t *separator, int64_t most, value_t out)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes, *cut;
    int err = 0;
    for (int64_t cuts = 0; !err && (most < 0 || cuts < most); cuts++) {
        cut = memmem(at, (size_t)(end - at), separator->text.bytes, separator->text.n_bytes);
        if (!cut)
            break;
        err = template_list_append(run, out, template_value_text(at, (size_t)(cut - at)));
        at = cut + separator->text.n_bytes;
    }
    return err < 0 ? err : template_list_append(run, out, template_value_text(at, (size_t)(end - at)));
}

/* What split() and rsplit() take: a separator or none, and how many cuts. */
static int split_arguments(run_t *run, const value_t *a, int64_t *most, value_t *out)
{
    int err;
    if ((template_is_given(&a[1]) && (err = template_want_text(run, &a[1])) < 0) ||
        (err = template_int_or(run, &a[2], -1, most)) < 0 || (err = template_spend(run, a[0].text.n_bytes)) < 0)
        return err;
    if (template_is_given(&a[1]) && !a[1].text.n_bytes)
        return template_fail(run, "split() with an empty separator");
    return template_new_list(run, LIST_LIST, out);
}

int template_method_split(run_t *run, const value_t *a, value_t *out)
{
    int64_t most;
    int err = split_arguments(run, a, &most, out);
    if (err < 0)
        return err;
    return template_is_given(&a[1]) ? split_at(run, &a[0], &a[1], most, *out) : split_words(run, a[0], most, *out);
}

/* What find_last() may take: unlike memmem() it is no clever search. */
static int pay_for_find_last(run_t *run, size_t n, const value_t *part)
{
    return part->kind == VALUE_STRING ? template_spend(run, n / 16 * part->text.n_bytes) : 0;
}

/* The last place of `part` in bytes[0..n), or NULL. */
static const char *find_last(const char *bytes, size_t n, const value_t *part)
{
    for (size_t i = n >= part->text.n_bytes ? n - part->text.n_bytes + 1 : 0; i-- > 0; )
        if (!memcmp(bytes + i, part->text.bytes, part->text.n_bytes))
            return bytes + i;
    return NULL;
}

static void reverse_items(struct template_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        value_t item = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

static int rsplit_at(run_t *run, value_t rest, const value_t *separator, int64_t most, value_t out)
{
    const char *cut;
    int err = 0;
    for (; most && !err && (cut = find_last(rest.text.bytes, rest.text.n_bytes, separator)); most -= most > 0) {
        size_t n = (size_t)(cut - rest.text.bytes), after = n + separator->text.n_bytes;
        err = template_list_append(run, out, template_value_text(rest.text.bytes + after, rest.text.n_bytes - after));
        rest.text.n_bytes = n;
    }
    return err < 0 ? err : template_list_append(run, out, rest);
}

static int rsplit_words(run_t *run, value_t rest, int64_t most, value_t out)
{
    int err = template_strip(run, rest, &nothing, false, true, &rest);
    for (; rest.text.n_bytes && !err; most -= most > 0) {
        size_t n = rest.text.n_bytes, k;
        uint32_t code;
        for (; n > 0 && most; n -= k) {
            k = last_character(rest.text.bytes, n);
            utf8_decode(rest.text.bytes + n - k, k, &code);
            if (template_is_space(code))
                break;
        }
        if (!most)
            n = 0;
        err = template_list_append(run, out, template_value_text(rest.text.bytes + n, rest.text.n_bytes - n));
        rest.text.n_bytes = n;
        if (err == 0)
            err = template_strip(run, rest, &nothing, false, true, &rest);
    }
    return err;
}

int template_method_rsplit(run_t *run, const value_t *a, value_t *out)
{
    int64_t most;
    int err = split_arguments(run, a, &most, out);
    if (err == 0)
        err = pay_for_find_last(run, a[0].text.n_bytes, &a[1]);
    if (err == 0)
        err = template_is_given(&a[1]) ? rsplit_at(run, a[0], &a[1], most, *out) : rsplit_words(run, a[0], most, *out);
    if (err == 0)
        reverse_items(out->list);
    return err;
}

static bool ends_line(uint32_t code)
{
    return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

int template_split_lines(run_t *run, const value_t *text, bool keep_ends, value_t *out)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes, *line = at;
    int err = template_new_list(run, LIST_LIST, out);
    if (err == 0)
        err = template_spend(run, text->text.n_bytes);
    while (at < end && !err) {
        uint32_t code;
        const char *before = at;
        at += utf8_decode(at, (size_t)(end - at), &code);
        if (!ends_line(code))
            continue;
        if (code == '\r' && at < end && *at == '\n')
            at++;
        err = template_list_append(run, *out, template_value_text(line, (size_t)((keep_ends ? at : before) - line)));
        line = at;
    }
    if (line < end && !err)
        err = template_list_append(run, *out, template_value_text(line, (size_t)(end - line)));
    return err;
}

int template_method_splitlines(run_t *run, const value_t *a, value_t *out)
{
    return template_split_lines(run, &a[0], template_value_is_true(&a[1]), out);
}

static int partition(run_t *run, const value_t *a, bool last, value_t *out)
{
    int err = template_want_text(run, &a[1]);
    value_t part[3] = { a[0], template_value_text("", 0), template_value_text("", 0) };
    if (err == 0 && !a[1].text.n_bytes)
        err = template_fail(run, "partition() with an empty separator");
    if (err < 0 || (err = template_spend(run, a[0].text.n_bytes)) < 0 || (err = template_new_list(run, LIST_TUPLE, out)) < 0 ||
        (last && (err = pay_for_find_last(run, a[0].text.n_bytes, &a[1])) < 0))
        return err;
    const char *bytes = a[0].text.bytes, *cut = last ? find_last(bytes, a[0].text.n_bytes, &a[1]) :
                       memmem(bytes, a[0].text.n_bytes, a[1].text.bytes, a[1].text.n_bytes);
    if (cut) {
        size_t n = (size_t)(cut - bytes), after = n + a[1].text.n_bytes;
        part[0] = template_value_text(bytes, n);
        part[1] = a[1];
        part[2] = template_value_text(bytes + after, a[0].text.n_bytes - after);
    } else if (last) {
        part[2] = part[0];
        part[0] = part[1];
    }
    for (size_t i = 0; i < 3 && !err; i++)
        err = template_list_append(run, *out, part[i]);
    return err;
}

int template_method_partition(run_t *run, const value_t *a, value_t *out)
{
    return partition(run, a, false, out);
}

int template_method_rpartition(run_t *run, const value_t *a, value_t *out)
{
    return partition(run, a, true, out);
}

/* ---- replacing and joining ---- */

/* An empty `old` stands before every character and at the end. */
static const char *next_hit(const char *at, const char *end, const value_t *old, bool first)
{
    if (old->text.n_bytes)
        return memmem(at, (size_t)(end - at), old->text.bytes, old->text.n_bytes);
    if (first)
        return at;
    return at < end ? at + character_at(at, end) : NULL;
}

int template_replace(run_t *run, const value_t *text, const value_t *old, const value_t *new, int64_t most, value_t *out)
{
    const char *at = text->text.bytes, *end = at + text->text.n_bytes, *hit;
    struct buffer all = { 0 };
    int err = template_spend(run, text->text.n_bytes);
    for (bool first = true; most && !err && (hit = next_hit(at, end, old, first)); most -= most > 0, first = false) {
        err = template_spend(run, new->text.n_bytes);
        if (err == 0) {
            buffer_add(&all, at, (size_t)(hit - at));
            buffer_add(&all, new->text.bytes, new->text.n_bytes);
        }
        at = hit + old->text.n_bytes;
    }
    buffer_add(&all, at, (size_t)(end - at));
    return template_take_text(run, &all, err, out);
}

int template_method_replace(run_t *run, const value_t *a, value_t *out)
{
    int64_t most;
    int err;
    if ((err = template_want_text(run, &a[1])) < 0 || (err = template_want_text(run, &a[2])) < 0 ||
        (err = template_int_or(run, &a[3], -1, &most)) < 0)
        return err;
    return template_replace(run, &a[0], &a[1], &a[2], most, out);
}

/* Strings only, where the filter takes anything. */
int template_method_join(run_t *run, const value_t *a, value_t *out)
{
    value_t list;
    int err = template_iterate(run, &a[1], &list);
    for (size_t i = 0; err == 0 && i < list.list->n; i++)
        err = template_want_text(run, &list.list->items[i]);
    return err < 0 ? err : template_join(run, &list, &a[0], out);
}

/* ---- looking ---- */

/* Any of a tuple, or one string. */
static int test_end(run_t *run, const value_t *a, bool at_start, value_t *out)
{
    bool found = false, tuple = a[1].kind == VALUE_LIST && a[1].list->type == LIST_TUPLE;
    int err = tuple ? 0 : template_want_text(run, &a[1]);
    if (err == 0 && !tuple)
        found = has_end(&a[0], &a[1], at_start);
    for (size_t i = 0; err == 0 && tuple && i < a[1].list->n && !found; i++)
        if ((err = template_want_text(run, &a[1].list->items[i])) == 0 &&
            (err = template_spend(run, a[1].list->items[i].text.n_bytes)) == 0)
            found = has_end(&a[0], &a[1].list->items[i], at_start);
    *out = template_value_bool(found);
    return err;
}

int template_method_startswith(run_t *run, const value_t *a, value_t *out)
{
    return test_end(run, a, true, out);
}

int template_method_endswith(run_t *run, const value_t *a, value_t *out)
{
    return test_end(run, a, false, out);
}

/* The byte of character `i`; the end when there are not so many. */
static const char *byte_of(const char *at, const char *end, int64_t i)
{
    for (; at < end && i > 0; i--)
        at += character_at(at, end);
    return at;
}

static int64_t count_characters(const char *at, const char *end)
{
    int64_t n = 0;
    for (; at < end; n++)
        at += character_at(at, end);
    return n;
}

/* The part of the string that the arguments start and end, which may be absent, cut out; false when it is not even empty. */
static int cut_out(run_t *run, const value_t *a, const char **from, const char **to, bool *any)
{
    const char *bytes = a[0].text.bytes, *end = bytes + a[0].text.n_bytes;
    int64_t n = count_characters(bytes, end), first, last;
    int err;
    if ((err = template_want_text(run, &a[1])) < 0 || (err = template_int_or(run, &a[2], 0, &first)) < 0 ||
        (err = template_int_or(run, &a[3], n, &last)) < 0)
        return err;
    first += first < 0 ? n : 0;
    last += last < 0 ? n : 0;
    first = MAX(first, 0);
    last = MIN(MAX(last, 0), n);
    *any = first <= last && first <= n;
    *from = byte_of(bytes, end, first);
    *to = *any ? byte_of(bytes, end, last) : *from;
    return template_spend(run, a[0].text.n_bytes);
}

static int find(run_t *run, const value_t *a, bool last, bool must, value_t *out)
{
    const char *from, *to, *hit = NULL;
    bool any;
    int err = cut_out(run, a, &from, &to, &any);
    if (err < 0 || (last && (err = pay_for_find_last(run, a[0].text.n_bytes, &a[1])) < 0))
        return err;
    if (any)
        hit = last ? find_last(from, (size_t)(to - from), &a[1]) :
              a[1].text.n_bytes ? memmem(from, (size_t)(to - from), a[1].text.bytes, a[1].text.n_bytes) : from;
    if (!hit && must)
        return template_fail(run, "index() of what is not there");
    *out = template_value_int(hit ? count_characters(a[0].text.bytes, hit) : -1);
    return 0;
}

int template_method_find(run_t *run, const value_t *a, value_t *out)
{
    return find(run, a, false, false, out);
}

int template_method_rfind(run_t *run, const value_t *a, value_t *out)
{
    return find(run, a, true, false, out);
}

int template_method_index(run_t *run, const value_t *a, value_t *out)
{
    return find(run, a, false, true, out);
}

int template_method_rindex(run_t *run, const value_t *a, value_t *out)
{
    return find(run, a, true, true, out);
}

int template_method_count(run_t *run, const value_t *a, value_t *out)
{
    const char *from, *to, *hit;
    bool any;
    int64_t n = 0;
    int err = cut_out(run, a, &from, &to, &any);
    if (err == 0 && any && !a[1].text.n_bytes)
        n = count_characters(from, to) + 1;
    else if (err == 0 && any)
        for (; (hit = memmem(from, (size_t)(to - from), a[1].text.bytes, a[1].text.n_bytes)); from = hit + a[1].text.n_bytes)
            n++;
    *out = template_value_int(n);
    return err;
}

/* Whether every character is in [low1, high1] or [low2, high2], and there is one. */
static int all_between(run_t *run, const value_t *text, const char ranges[], value_t *out)
{
    bool yes = text->text.n_bytes > 0;
    for (size_t i = 0; i < text->text.n_bytes; i++) {
        char c = text->text.bytes[i];
        bool in = false;
        if (c & 0x80)
            return template_fail(run, "the class of a letter beyond ASCII is not supported");
        for (const char *range = ranges; *range; range += 2)
            in |= c >= range[0] && c <= range[1];
        yes &= in;
    }
    *out = template_value_bool(yes);
    return template_spend(run, text->text.n_bytes);
}

int template_method_isdigit(run_t *run, const value_t *a, value_t *out)
{
    return all_between(run, &a[0], "09", out);
}

int template_method_isalpha(run_t *run, const value_t *a, value_t *out)
{
    return all_between(run, &a[0], "azAZ", out);
}

int template_method_isalnum(run_t *run, const value_t *a, value_t *out)
{
    return all_between(run, &a[0], "azAZ09", out);
}

int template_method_isspace(run_t *run, const value_t *a, value_t *out)
{
    return all_between(run, &a[0], "  \t\r\x1c\x1f", out);
}

static int is_case(run_t *run, const value_t *text, bool upper, value_t *out)
{
    bool cased = false, other = false;
    for (size_t i = 0; i < text->text.n_bytes; i++) {
        char c = text->text.bytes[i];
        if (c & 0x80)
            return template_fail(run, "the class of a letter beyond ASCII is not supported");
        cased |= upper ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
        other |= upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
    }
    *out = template_value_bool(cased && !other);
    return template_spend(run, text->text.n_bytes);
}

int template_method_isupper(run_t *run, const value_t *a, value_t *out)
{
    return is_case(run, &a[0], true, out);
}

int template_method_islower(run_t *run, const value_t *a, value_t *out)
{
    return is_case(run, &a[0], false, out);
}

/* ---- filling ---- */

static int fill(run_t *run, const value_t *text, int64_t left, int64_t right, const value_t *with, value_t *out)
{
    struct buffer built = { 0 };
    int err = template_is_given(with) ? template_want_text(run, with) : 0;
    left = MAX(left, 0);
    right = MAX(right, 0);
    const char *bytes = template_is_given(with) ? with->text.bytes : " ";
    size_t n = template_is_given(with) ? with->text.n_bytes : 1;
    if (err == 0 && (!n || character_at(bytes, bytes + n) != n))
        err = template_fail(run, "one character is wanted to fill with");
    if (err == 0 && (left > INT32_MAX || right > INT32_MAX))
        err = template_fail(run, "takes too many steps or too much memory");
    if (err == 0)
        err = template_spend(run, (size_t)(left + right) * n + text->text.n_bytes);
    for (int64_t i = 0; i < left && !err; i++)
        buffer_add(&built, bytes, n);
    buffer_add(&built, text->text.bytes, text->text.n_bytes);
    for (int64_t i = 0; i < right && !err; i++)
        buffer_add(&built, bytes, n);
    return template_take_text(run, &built, err, out);
}

static int64_t lacks(const value_t *text, int64_t width)
{
    int64_t n = count_characters(text->text.bytes, text->text.bytes + text->text.n_bytes);
    return width > n ? width - n : 0;
}

static int center(run_t *run, const value_t *text, int64_t width, const value_t *with, value_t *out)
{
    int64_t lack = lacks(text, width), left = lack / 2 + (lack & width & 1);
    return fill(run, text, left, lack - left, with, out);
}

int template_center(run_t *run, const value_t *text, int64_t width, value_t *out)
{
    return center(run, text, width, &nothing, out);
}

int template_method_center(run_t *run, const value_t *a, value_t *out)
{
    int err = template_want_int(run, &a[1]);
    return err < 0 ? err : center(run, &a[0], template_as_integer(&a[1]), &a[2], out);
}

int template_method_ljust(run_t *run, const value_t *a, value_t *out)
{
    int err = template_want_int(run, &a[1]);
    return err < 0 ? err : fill(run, &a[0], 0, lacks(&a[0], template_as_integer(&a[1])), &a[2], out);
}

int template_method_rjust(run_t *run, const value_t *a, value_t *out)
{
    int err = template_want_int(run, &a[1]);
    return err < 0 ? err : fill(run, &a[0], lacks(&a[0], template_as_integer(&a[1])), 0, &a[2], out);
}

int template_method_zfill(run_t *run, const value_t *a, value_t *out)
{
    const value_t zero = template_value_text("0", 1);
    value_t digits = a[0], sign = template_value_text(a[0].text.bytes, 0);
    int err = template_want_int(run, &a[1]);
    if (err < 0)
        return err;
    int64_t lack = lacks(&a[0], template_as_integer(&a[1]));
    if (digits.text.n_bytes && (*digits.text.bytes == '-' || *digits.text.bytes == '+')) {
        sign.text.n_bytes = 1;
        digits.text.bytes++;
        digits.text.n_bytes--;
    }
    if ((err = fill(run, &digits, lack, 0, &zero, &digits)) < 0)
        return err;
    return template_operate(run, TEMPLATE_CONCATENATE, &sign, &digits, out);
}

int template_method_format(run_t *run, const value_t *a, value_t *out)
{
    const struct template_arguments arguments = { a[1], a[2] };
    return template_format(run, &a[0], &arguments, out);
}

/* ---- lists ---- */

static int place_in_list(run_t *run, const value_t *a, size_t *first, int64_t *count)
{
    const value_t *list = &a[0];
    int err = 0;
    *first = list->list->n;
    *count = 0;
    for (size_t i = list->list->n; i-- > 0 && !err; ) {
        value_t same;
        if ((err = template_compare(run, TEMPLATE_EQUAL, &list->list->items[i], &a[1], &same)) == 0 && same.flag) {
            *first = i;
            ++*count;
        }
    }
    return err;
}

int template_list_method_count(run_t *run, const value_t *a, value_t *out)
{
    size_t first;
    int64_t count;
    int err = place_in_list(run, a, &first, &count);
    *out = template_value_int(count);
    return err;
}

int template_list_method_index(run_t *run, const value_t *a, value_t *out)
{
    size_t first;
    int64_t count;
    int err = place_in_list(run, a, &first, &count);
    *out = template_value_int((int64_t)first);
    return err < 0 || count ? err : template_fail(run, "index() of what is not there");
}

/* Of what never changes, a copy is the thing itself. */
int template_method_copy(run_t *run, const value_t *a, value_t *out)
{
    (void)run;
    *out = a[0];
    return 0;
}

/* ---- dicts ---- */

int template_method_get(run_t *run, const value_t *a, value_t *out)
{
    int err = template_spend(run, 8 * a[0].map->n);
    if (err == 0 && !template_is_hashable(&a[1]))
        err = template_fail(run, "a value of type %s can not be a key", template_kind_name(a[1].kind));
    const value_t *found = err < 0 || a[1].kind == VALUE_LIST ? NULL : template_map_find_value(a[0].map, &a[1]);
    *out = found ? *found : a[2].kind != VALUE_ABSENT ? a[2] : (value_t){ .kind = VALUE_NONE };
    return err;
}

int template_method_items(run_t *run, const value_t *a, value_t *out)
{
    int err = template_new_list(run, LIST_ITEMS, out);
    for (size_t i = 0; err == 0 && i < a[0].map->n; i++) {
        value_t pair;
        if ((err = template_new_list(run, LIST_TUPLE, &pair)) == 0 &&
            (err = template_list_append(run, pair, a[0].map->entries[i].key)) == 0 &&
            (err = template_list_append(run, pair, a[0].map->entries[i].value)) == 0)
            err = template_list_append(run, *out, pair);
    }
    return err;
}

int template_method_keys(run_t *run, const value_t *a, value_t *out)
{
    int err = template_iterate(run, &a[0], out);
    out->list->type = LIST_KEYS;
    return err;
}

int template_method_values(run_t *run, const value_t *a, value_t *out)
{
    int err = template_new_list(run, LIST_VALUES, out);
    for (size_t i = 0; err == 0 && i < a[0].map->n; i++)
        err = template_list_append(run, *out, a[0].map->entries[i].value);
    return err;
}

/* ---- the loop variable ---- */

int template_method_cycle(run_t *run, const value_t *a, value_t *out)
{
    const struct template_list *list = a[1].list;
    if (!list->n || a[2].kind != VALUE_ABSENT)
        return template_fail(run, "cycle() wants one or more values");
    *out = list->items[a[0].loop->index0 % list->n];
    return 0;
}

int template_method_changed(run_t *run, const value_t *a, value_t *out)
{
    value_t same = template_value_bool(false);
    int err = 0;
    if (a[2].kind != VALUE_ABSENT)
        return template_fail(run, "changed() takes no arguments with names");
    if (a[0].loop->changed.kind != VALUE_ABSENT)
        err = template_compare(run, TEMPLATE_EQUAL, &a[0].loop->changed, &a[1], &same);
    a[0].loop->changed = a[1];
    *out = template_value_bool(!same.flag);
    return err;
}
