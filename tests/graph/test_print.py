#!/usr/bin/env python3
"""`stoa graph --layer`, and that the drawings of docs/graphs.md show what their commands give today.  Needs no Graphviz."""
import html
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import stoa_test as t

LAYOUTS = ("tp=1", "tp=2,sp=2", "dp=2,ep=2", "dp=2,ep=2 --weights gathered", "pp=2 --rank 1")
PASSES = ("build", "shard", "fuse", "overlap", "place")


def graph(model, *flags):
    r = t.stoa("graph", model, *flags)
    if r.code != 0:
        raise AssertionError(str(r))
    return r.out


def layer_as_text(name, layer, *flags):
    """What is used is made there or listed as taken, once; the nodes are those of the whole text."""
    lines = graph(t.tiny("tiny-every"), "--layer", layer, *flags).splitlines()
    whole = graph(t.tiny("tiny-every"), *flags).splitlines()
    nodes = [line for line in lines if " = " in line]
    taken = [re.match(r"  (%\d+) .* is made before by \w+$", line)[1] for line in lines if " is made before by " in line]
    made = [v for line in nodes for v in re.findall(r"%\d+", line.split(" = ")[0])] + re.findall(r"-> (%\d+)", "\n".join(nodes))
    used = re.findall(r"%\d+", "\n".join(re.sub(r" \{.*", "", line.split(" = ", 1)[1]) for line in nodes))
    t.check(f"{name}: nodes of the whole text, in its order", nodes and nodes == [line for line in whole if line in set(nodes)], nodes[:2])
    t.equal(f"{name}: what is used is made there or taken", set(used) - set(made), set(taken))
    t.equal(f"{name}: taken once", len(taken), len(set(taken)))
    early = [line for line in nodes if " = gather_weight(" in line and f"blk.{layer}." not in line]
    others = {n for line in nodes if line not in early for n in re.findall(r"\bblk\.(\d+)\.", line.split(" = ", 1)[1])}
    t.check(f"{name}: weights of this layer", others <= {str(layer)}, others)
    return early


def layer_as_drawing(name, layer, *flags):
    out = graph(t.tiny("tiny-every"), "--layer", layer, "--format", "dot", *flags)
    declared = re.findall(r"^  (n\d+) \[", out, re.M)
    ends = {end for edge in re.findall(r"^  (n\d+) -> (n\d+)", out, re.M) for end in edge}
    t.check(f"{name}: each end of an edge is drawn, once", ends <= set(declared) and len(declared) == len(set(declared)), ends - set(declared))
    t.check(f"{name}: no layer's number on its own weights", f"blk.{layer}." not in out, out[:300])


def test_layer():
    if not t.have_tiny("graph --layer"):
        return
    for layout in LAYOUTS:
        for after in PASSES:
            flags = ("--after", after, "--layout", *layout.split())
            name = f"{layout} after {after}"
            early = layer_as_text(name, 5, *flags)
            t.equal(f"{name}: the next layer's weights are on their way", bool(early), "gathered" in layout and after in ("overlap", "place"))
            layer_as_drawing(name, 5, *flags)


def test_no_such_layer():
    if not t.have_tiny("graph --layer of another stage"):
        return
    for flags in (("--layer", 7), ("--layer", 5, "--layout", "pp=2"), ("--layer", -1)):
        r = t.stoa("graph", t.tiny("tiny-mixed"), *flags)
        t.check(f"{flags}: refused", r.code == 2 and r.out == "" and "--layer" in r.err, r)


# ---- the committed drawings ----
def texts(labels):
    return sorted(line for label in labels for line in label if line)


def drawing(command):
    words, file = command.split(" > ")
    words = words.split()
    model, flags = words[2], words[3:]
    if model == "$(scripts/model)":
        if not t.have_model(file):
            return
        model = t.MODEL
    else:
        if not t.have_tiny(file):
            return
        model = t.tiny(os.path.basename(model)[:-len(".gguf")])
    t.equal(f"{file}: made as svg", flags[-2:], ["--format", "svg"])
    dot = graph(model, *flags[:-1], "dot")
    with open(os.path.join(t.ROOT, file)) as f:
        svg = [html.unescape(x).replace("\u00a0", " ") for x in re.findall(r"<text[^>]*>([^<]*)</text>", f.read())]
    t.equal(f"{file}: its words are today's", sorted(svg), texts(x.split("\\n") for x in re.findall(r'label="([^"]*)"', dot)))


def test_drawings():
    with open(os.path.join(t.ROOT, "docs", "graphs.md")) as f:
        page = f.read()
    commands = re.findall(r"^(?:\./)?(stoa graph .* > docs/graphs/\S+\.svg)$", page, re.M)
    t.equal("a command for each drawing", sorted(re.findall(r"(graphs/[\w-]+\.svg)\)", page)), sorted(c.split(" > docs/")[1] for c in commands))
    t.each(drawing, commands)


if __name__ == "__main__":
    t.run(globals())
