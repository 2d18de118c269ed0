"""Writes src/text/template_unicode.c: what Python's str.upper(), lower(), title() and repr() do with characters beyond ASCII.

    python3.11 tests/text/make_template_unicode.py > src/text/template_unicode.c

From the Python that makes the goldens (3.11, Unicode 14.0): what a template prints depends on the Python that runs it.
"""
import unicodedata


def ranges(holds):
    first = None
    for code in range(0x80, 0x110001):
        now = code < 0x110000 and not 0xD800 <= code < 0xE000 and holds(chr(code))
        if now and first is None:
            first = code
        elif not now and first is not None:
            yield first, code - first
            first = None


def print_rows(name, kind, rows, per_line):
    print(f"const struct {kind} {name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(rows[i:i + per_line]))
    print("};")
    print(f"const size_t n_{name} = sizeof {name} / sizeof {name}[0];\n")


def mapping(change):
    """Runs of characters that all move by as much, each 1 or 2 apart; those that become several stand alone."""
    runs, several = [], []
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        to = change(chr(code))
        if to == chr(code):
            continue
        if len(to) > 1:
            several.append((code, to))
            continue
        delta = ord(to) - code
        if runs and runs[-1][3] == delta:
            first, n, step, _ = runs[-1]
            gap = code - (first + (n - 1) * step)
            if (n == 1 and gap in (1, 2)) or (n > 1 and gap == step):
                runs[-1] = (first, n + 1, gap, delta)
                continue
        runs.append((code, 1, 1, delta))
    return runs, several


def main():
    print(f"/* Made by tests/text/make_template_unicode.py from Unicode {unicodedata.unidata_version}.  Do not edit. */")
    print('#include "text/template_unicode.h"\n')
    several = []
    for name, change in ("upper", str.upper), ("lower", str.lower), ("title", lambda c: c.title()):
        runs, more = mapping(change)
        print_rows(f"template_{name}", "template_case_run", [f"{{ 0x{f:x}, {n}, {s}, {d} }}," for f, n, s, d in runs], 4)
        several += [(code, name, to) for code, to in more]
    print_rows("template_special", "template_special", [
        f'{{ 0x{code:x}, CASE_{name.upper()}, "' + "".join(f"\\x{b:02x}" for b in to.encode()) + '" },' for code, name, to in several], 3)
    cased = list(ranges(lambda c: c.islower() or c.isupper() or c.istitle()))
    print_rows("template_cased", "template_span", [f"{{ 0x{f:x}, {n} }}," for f, n in cased], 7)
    printable = list(ranges(str.isprintable))
    print_rows("template_printable", "template_span", [f"{{ 0x{f:x}, {n} }}," for f, n in printable], 7)


main()
