"""Damaged files: a reader succeeds or refuses in one sentence, and never allocates what a file merely claims."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketflow.pipeline.errors import BudgetError, FormatError, ModelError
from bucketflow.pipeline.formats.read import load, load_evidence
from bucketflow.pipeline.models.bayesian_networks import network_fault

from .written import ODD, WRONG, file_of, network

# About so many inputs has each test; a nightly run asks for 10,000.
EXAMPLES = int(os.environ.get("BUCKETFLOW_FUZZ", "300"))
SAMPLES = {
    "a.wcsp": "p 3 3 4 10\n2 3 2\n2 0 1 1 2\n0 0 4\n1 2 99\n-1 2 0 1\n1 3\n1 0 0 -1\n0 2 0\n",
    "globals.wcsp": "p 4 3 17 50\n3 3 3 -3\n3 0 1 2 -1 salldiff var 3\n4 0 1 2 3 -1 sgcc wdec 3 2 0 1 2 1 1 1 0 3 2 2\n"
    "4 0 1 2 3 -1 ssame 3 2 2 0 1 2 3\n4 0 1 2 3 -1 wsamegcc lin 3 1 0 0 1\n3 0 1 2 -1 samong var 5 1 2 2 1 2\n"
    "3 0 1 2 -1 sregular edit 3 2 1 0 2 0 1 3 0 0 0 0 1 1 1 1 1\n3 0 1 2 -1 wregular 2 1 0 1 1 1 0 2 0 0 1 2 1 1 1 1\n"
    "3 0 1 2 -1 sgrammar weight 7 3 3 0 3 2 1 0 5 3 0 1 1 1 1 0 0 0\n3 0 1 2 -1 wsum quad 2 < 4\n"
    "4 0 1 2 3 -1 woverlap hard 5 < 1\n3 0 1 2 -1 wdiverse 2 1 1 0\n3 0 1 2 -1 smaxdp 9 2 0 0 4 1 1 3\n3 0 1 2 -1 MST\n"
    "3 0 1 2 -1 clique 1 1 1 1 1 1 1\n3 0 1 2 -1 knapsackp 2 1 0 2 1 1 3 2 0 1 2 4\n2 0 1 -1 sdisj 1 2 2 2 4 6\n"
    "2 0 1 -1 wcsp 1 5 0 0 q 2 3 1 9 3 3 2 0 1 2 1 1 1 4\n",
    "globals.cfn": '{problem: {name: p, mustbe: "<50.5"} variables: {a: 3 b: [u v w] c: -3} functions: {'
    "{scope: [a b c] type: sgcc params: {metric: dec cost: 1.5 bounds: [[0 1 2] [1 0 1]]}} "
    "{scope: [a b c] type: knapsackp params: {capacity: 3 weights: [[[0 1] [1 2]] [[2 4]] []]}} "
    "{scope: [a b] type: disj params: [1 1 2.5]} {scope: [a b] type: cfnconstraint params: {cfn: {problem: {name: q} "
    "variables: {a: 3 b: 3} functions: {{scope: [a] costs: [0 1 2.5]}}} lb: 0 ub: 2 duplicatehard: 0 strongduality: 0}}"
    " {scope: [a b c] type: max params: {defaultcost: 1 tuples: [[a 0 4] [1 1 3]]}}}}",
    "a.cfn": '{problem: {name: "p", mustbe: "<12.5"} variables: {a: [u v], b: 3} functions: {f: {scope: [a b]'
    ' costs: [0 1.5 -2 inf 3 4]} {scope: [1] costs: g} g: {scope: ["b"] defaultcost: 1 costs: [0 2 1 3]}}}',
    "a.uai": "BAYES\n2\n2 3\n2\n1 0\n2 0 1\n2\n .5 .5\n6\n .1 .2 .7 1 0 0\n",
    "a.erg": "2\n2 2\n0\n1 0\n/* Probabilities */\n2\n.5 .5\n4\n.1 .9 1 0\nA\nB\n",
    "a.bif": "network n { property p = 1; }\nvariable A { type discrete [ 2 ] { x, y }; }\n"
    "variable B { type discrete [ 2 ] { u, v }; }\nprobability ( A ) { table 0.5, 0.5; }\n"
    "probability ( B | A ) { (x) 0.1, 0.9; default 0.3, 0.7; }\n",
    "a.net": 'net { s = "x"; }\nnode A { states = ("x" "y"); }\nnode B { states = ("u" "v"); }\n'
    "potential (A) { data = (.5 .5); }\npotential (B | A) { data = ((.1 .9) (1 0)); } % end\n",
    "a.bifxml": '<?xml version="1.0"?><BIF VERSION="0.3"><NETWORK><NAME>n</NAME>'
    '<VARIABLE TYPE="nature"><NAME>A</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>'
    "<VARIABLE><NAME>B</NAME><OUTCOME>u</OUTCOME><OUTCOME>v</OUTCOME><PROPERTY>p</PROPERTY></VARIABLE>"
    "<DEFINITION><FOR>A</FOR><TABLE> .5 .5 </TABLE></DEFINITION>"
    "<DEFINITION><FOR>B</FOR><GIVEN>A</GIVEN><TABLE> .1 .9 1 0 </TABLE></DEFINITION></NETWORK></BIF>",
    "a.xdsl": '<smile version="1.0" id="n"><nodes><cpt id="A"><state id="x"/><state id="y"/>'
    "<probabilities> .5 .5 </probabilities></cpt>"
    '<cpt id="B"><state id="u"/><state id="v"/><parents>A</parents><probabilities> 1 3 1 0 </probabilities></cpt>'
    '<deterministic id="C"><state id="t"/><state id="f"/><parents> A B </parents>'
    "<resultingstates> t t f t </resultingstates></deterministic></nodes><extensions> </extensions></smile>",
    "a.jgum": '{"type":  "BN", "GumJsonVersion": "1.0", "nodes": ["a[2]", "b{x|y}", "c[3]"], "parents": '
    '{"a": [], "b": ["a"],"c": ["a", "b"]}, "cpt": {"a": [0.5, 0.5], "b": [1, 0, 0.5, 0.5], '
    '"c": {"kind": "aggregator", "name": "count", "value": 1}}}',
    "a.dsl": "net n { // saved\n node A { TYPE = CPT; PARENTS = (); DEFINITION = { NAMESTATES = (x, y); "
    "PROBABILITIES = (0.5, 0.5); }; };\n node B { TYPE = NOISY_MAX; PARENTS = (A); DEFINITION = { "
    "NAMESTATES = (u, v); STRENGTHS = (1, 0); PROBABILITIES = (0.5, 0.5, 0, 1, 0.25, 0.75); }; }; };\n",
    "a.dne": "// ~->[DNET-1]->~\nbnet n { node A { kind = NATURE; states = (x, y); probs = (0.5, 0.5); };\n"
    "node B { kind = NATURE; discrete = FALSE; levels = (0, 1, 2); parents = (A); functable = (#0, #1); }; };\n",
    "a.dsc": 'belief network "n"\nnode A { type : discrete [ 2 ] = { "x", "y" }; }\nnode B { name: "b"; '
    'type : discrete[2] = { "u", "v" }; }\nprobability ( A ) { 0.5, 0.5; }\n'
    "probability ( B | A ) { (0) : 0.25, 0.75; (1) : 1, 0; }\n",
    "a.opb": "* #variable= 4 #constraint= 2\nmin: +2 x1 -3 x2 ~x3 ;\n+1 x1 +2 ~x2 -1 x3 x4 >= 1 ;\n+1 x2 = 1 ;\n",
    "a.wbo": "soft: 9 ;\n[2] +1 a +2 b >= 1 ;\n-1 a -1 b >= -1 ;\n",
    "a.lp": "\\ c\nMinimize\n o: 3 x - .5 y + [ x ^ 2 + 2 x * y ] / 2\nSubject To\n c: -1 <= x - 2 y <= 3\n "
    "x + z >= 1\nBounds\n -2 <= x <= 3\n y <= 2\nGenerals\n x y\nBinaries\n z\nEnd\n",
    "a.qpbo": "-3 4\n1 1 2\n1 2 -1.5\n2 3 4\n3 3 1\n",
    "a.pre": "1 1 0 0 1 3 4\n1 2 0 0 2 1 3\n1 3 1 2 2 0 0\n1 4 1 0 1 1 3\n",
    "a.xml": '<instance><agents><agent name="A"/></agents><domains><domain name="D">1..3 5</domain></domains>'
    '<variables><variable name="x" domain="D" agent="A"/><variable name="y" domain="D" agent="A"/></variables>'
    '<relations><relation name="R" arity="1"'
    ' semantics="soft" defaultCost="infinity">1:1|2|0.5:3</relation></relations>'
    '<constraints><constraint name="c" arity="1" scope="x" reference="R"/></constraints></instance>',
    "a.yaml": "objective: max\ndomains: {d: {values: [1 .. 3]}, e: {values: [R, G]}}\n"
    "variables: {a: {domain: d, cost_function: 0.5 * a ** 2}, b: {domain: e}}\nconstraints:\n"
    "  c:\n    type: intention\n    function: 10 if a == 2 else (1, -2)[b == 'G']\n"
    "  t: {type: extensional, variables: [a, b], default: 1, values: {2: 1 R | 2 G, -.inf: 3 G}}\nagents: [one, two]\n",
}
ABSURD = (
    "-1",
    "0",
    "1",
    "99999999999999999999",
    "1e400",
    "-1e400",
    "nan",
    "-inf",
    "1" * 5000,
    "1_0",
    "٣",
    "",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    '"',
    "|",
    ";",
    "=",
    "/*",
    "%",
    "\\",
    "\n",
    "1e-999999999999",
    "2147483647",
    "4611686018427387904",
)
names = st.sampled_from(sorted(SAMPLES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def attempt(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.write_bytes(data)
    try:
        model = load(path)
    except (BudgetError, FormatError, ModelError):
        return
    assert all(d >= 1 for d in model.dims)
    assert all(note and "\n" not in note for note in model.notes)
    if model.kind == "bayes" and not any("product of the tables" in note for note in model.notes):
        assert network_fault(model.functions, model.names, model.dims, model.states) is None
    for f in model.functions:
        dense_shape = tuple(model.dims[v] for v in f.scope)
        assert f.values.shape == (dense_shape if f.rows is None else (len(f.rows),))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_samples_are_good(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(SAMPLES[name])
    assert len(load(path).dims) >= 2


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(name=names, cut=st.floats(0, 1), packed=st.booleans(), nameless=st.booleans())
def test_truncation(folder: Path, name: str, cut: float, packed: bool, nameless: bool) -> None:
    data = SAMPLES[name].encode()
    data = gzip.compress(data) if packed else data
    attempt(folder, "nameless" if nameless else name, data[: int(cut * len(data))])


@settings(max_examples=EXAMPLES, deadline=None)
@given(name=names, edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes(folder: Path, name: str, edits: list[tuple[float, int]]) -> None:
    data = bytearray(SAMPLES[name].encode())
    for where, value in edits:
        data[int(where * (len(data) - 1))] = value
    attempt(folder, name, bytes(data))


@settings(max_examples=EXAMPLES * 4 // 3, deadline=None)
@given(name=names, seed=st.integers(0, 10**6), edits=st.lists(st.sampled_from(ABSURD), min_size=1, max_size=3))
def test_tokens(folder: Path, name: str, seed: int, edits: list[str]) -> None:
    rng = random.Random(seed)
    words = SAMPLES[name].replace("\n", " \n").split(" ")
    for edit in edits:
        place = rng.randrange(len(words))
        if rng.random() < 0.3:
            words.insert(place, words[rng.randrange(len(words))])
        elif rng.random() < 0.2:
            del words[place]
        words[min(place, len(words) - 1)] = edit
    attempt(folder, name, " ".join(words).encode())


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(text=st.lists(st.sampled_from(["1", "0", "2", "x0", "/*", "*/", "9" * 30, "-1", "\n"]), max_size=8))
def test_evidence(folder: Path, text: list[str]) -> None:
    model_path, path = folder / "a.uai", folder / "a.evid"
    model_path.write_text(SAMPLES["a.uai"])
    path.write_text(" ".join(text))
    try:
        found = load_evidence(path, load(model_path))
    except FormatError:
        return
    assert set(found) <= {0, 1}


WIDE = " ".join(map(str, range(40)))
CLAIMS = [
    ("a.wcsp", "p 1000000000000 2 1 9\n2\n"),
    ("a.wcsp", "p 1 2 1000000000000 9\n2\n"),
    ("a.wcsp", "p 2 2147483647 1 9\n2147483647 2147483647\n2 0 1 5 0\n"),
    ("a.wcsp", f"p 40 2 1 9\n{' '.join(['2'] * 40)}\n40 {WIDE} 5 1\n{' '.join(['1'] * 41)}\n"),
    ("a.wcsp", "p 1 2 1 9\n2\n1 0 5 999999999999\n"),
    ("a.wcsp", "p 1 2 1 9\n2\n-999999999999 0 5 0\n"),
    ("a.uai", "MARKOV 1000000000000 2 1 9\n2\n"),
    ("a.uai", "MARKOV 2\n2147483647 2147483647\n1\n2 0 1\n4611686014132420609\n1\n"),
    ("a.erg", "2\n2147483647 2147483647\n0\n1 0\n2147483647\n1\n"),
    ("a.cfn", "{variables: {a: 2147483647 b: 2147483647} functions: {{scope: [a b] defaultcost: 1}}}"),
    ("a.cfn", "{variables: {a: 2147483647} functions: {{scope: [a] costs: [1]}}}"),
    ("a.cfn", "[" * 10**5),
    ("a.cfn", "{variables: {a: 2} functions: {{scope: " + "[" * 10**5),
    (
        "a.cfn",
        "{problem: {mustbe: <1e999999999} variables: {a: 2} functions: {{scope: [a] costs: [1e999999 1]}}}",
    ),
    ("a.cfn", "{variables: {a: 2} functions: {{scope: [a] costs: [1e-999999999 1]}}}"),
    ("a.net", 'node A { states = ("x" "y"); } potential (A) { data = ' + "(" * 10**5),
    ("a.bif", "variable A { type discrete [ 1000000000000 ] { x }; }"),
]


def many_parents(kind: str) -> str:
    """Return a network whose one distribution over 41 binary variables is left to a default."""
    names = [f"V{k}" for k in range(41)]
    if kind == "a.net":
        nodes = "".join(f'node {name} {{ states = ("x" "y"); }}\n' for name in names)
        return f"net {{ }}\n{nodes}potential ( V0 | {' '.join(names[1:])} ) {{ }}"
    variables = "".join(f"variable {name} {{ type discrete [ 2 ] {{ x, y }}; }}\n" for name in names)
    return f"{variables}probability ( V0 | {', '.join(names[1:])} ) {{ default 0.5, 0.5; }}"


CLAIMS += [(kind, many_parents(kind)) for kind in ("a.bif", "a.net")]


@pytest.mark.parametrize(("name", "text"), CLAIMS, ids=[f"{name}-{k}" for k, (name, _) in enumerate(CLAIMS)])
def test_claims_allocate_nothing(folder: Path, name: str, text: str) -> None:
    tracemalloc.start()
    try:
        attempt(folder, name, text.encode())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20_000_000 + 100 * len(text)


# What a format's own programs take as well: tables of counts, and evidence within evaluations' networks.
TAKEN = {"net": {"row"}, "xdsl": {"row"}, "uai": {"zero"}, "erg": {"zero"}}


@settings(max_examples=EXAMPLES, deadline=None)
@given(kind=st.sampled_from(sorted(ODD)), seed=st.integers(0, 10**9))
def test_networks_are_read_right_or_refused(folder: Path, kind: str, seed: int) -> None:
    """What is odd in a file changes nothing, and what is wrong is refused: no file gives other probabilities."""
    made = network(random.Random(seed), kind)
    meant = made.joint()
    path = folder / f"written.{kind}"
    path.write_text(file_of(made, kind))
    wrong = made.what & set(WRONG)
    if wrong - TAKEN.get(kind, set()):
        with pytest.raises(FormatError):
            load(path)
        return
    try:
        model = load(path)
    except FormatError as error:
        if "slowest" in made.what and "in both orders" in str(error):
            return
        raise
    names = [f"x{v}" for v in range(len(model.dims))] if kind in ("uai", "erg") else made.names
    whole = np.ones([len(labels) for labels in made.labels])
    for f in model.functions:
        scope = [names.index(model.names[v]) for v in f.scope]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        shape = [d if v in scope else 1 for v, d in enumerate(whole.shape)]
        whole = whole * f.dense(model.dims).transpose(order).reshape(shape)
    expected = made.joint() if "zero" in wrong else meant
    assert whole == pytest.approx(expected, abs=0.01 if "digits" in made.what else 1e-9)
    if kind not in ("uai", "erg"):
        labels = [model.states[model.index[name]] for name in names]
        assert labels == [tuple(states) for states in made.labels]
        assert whole.sum() == pytest.approx(1, abs=1e-5)


# Clauses, costs and logarithms, with what their files may say beside them.
CLAUSES = {
    "a.cnf": "c t wmc\nc p weight 1 1/4 0\nc p weight -1 .75 0\nc p show 1 2 0\n"
    "p cnf 3 3\n1 -2 0\n-1 2 3 0\n3 0\n%\n0\n",
    "b.cnf": "c ind 1 2 3 0\np cnf 3 2\nw 1 0.25\nw 2 -1\n1 2 0\n-1 3 0\n",
    "c.cnf": "c weights .5 .5 1 1 .25 1\nc MUST MULTIPLY BY 2\np cnf 3 2\n1 2 0 -1\n3 0\n",
    "a.wcnf": "c a\np wcnf 3 4 20\n20 1 -2 0\n3 -1 2 -3 0\n8 -3 2 0\n5 1 3 0\n",
    "b.wcnf": "h 1 2 0\nc since 2022\n3 -1 0\n2.5 -2 0\n.5 1 -2 0\n",
    "b.wcsp": "p 4 2 3 10\n2 2 2 2\n-4 0 1 2 3 2 1\n1 1 1 1 1\n4 3 2 1 0 0 -1\n1 0 0 1\n1 99\n",
    "b.cfn": '{"problem": {"name": "p", "mustbe": ">-9.5"}, "variables": [["u", "v"], 3], "functions": {'
    '"f": {"scope": [0], "costs": "g"}, "g": {"scope": [0], "costs": [1, 2.5]},'
    ' "h": {"scope": [0, 1], "defaultcost": 1, "costs": [u, 2, 3]}}}',
    "a.LG": "MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n-1 0\n4\n900 -inf 2000 1999\n",
}
SAID = (
    *("c", "p", "w", "h", "x", "%", "0", "cnf", "wcnf", "ind", "show", "weight", "weights", "max", "t", "pmc"),
    *("1/0", "-1", "2.5", "costs"),
)
FUZZED = int(os.environ.get("BUCKETFLOW_FUZZ", "300"))


def checked(folder: Path, name: str, data: bytes) -> None:
    """Read a file and evaluate what it holds, or be told in one sentence what is wrong with it."""
    path, said = folder / name, ""
    path.write_bytes(data)
    try:
        model = load(path)
    except (BudgetError, FormatError, ModelError) as error:
        said = str(error)
    if said:
        assert "\n" not in said
        return
    assert all(isinstance(note, str) and note for note in model.notes)
    if model.projection is not None:
        assert set(model.projection.variables) < set(range(len(model.dims)))
    for states in ([0] * len(model.dims), [d - 1 for d in model.dims]):
        value = model.cost(states) if model.kind == "cost" else model.log10_value(states)
        assert value is None or value == value


@pytest.mark.parametrize("name", sorted(CLAUSES))
def test_clauses_are_good(folder: Path, name: str) -> None:
    path = folder / name
    path.write_text(CLAUSES[name])
    assert len(load(path).dims) >= 2


@settings(max_examples=FUZZED, deadline=None)
@given(
    name=st.sampled_from(sorted(CLAUSES)),
    seed=st.integers(0, 10**6),
    edits=st.lists(st.sampled_from((*ABSURD, *SAID)), min_size=1, max_size=4),
    nameless=st.booleans(),
    cut=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_clauses(folder: Path, name: str, seed: int, edits: list[str], nameless: bool, cut: float) -> None:
    rng = random.Random(seed)
    words = CLAUSES[name].replace("\n", " \n ").split(" ")
    for edit in edits:
        place, kind = rng.randrange(len(words)), rng.random()
        if kind < 0.3:
            words.insert(place, edit)
        elif kind < 0.5:
            del words[place]
        elif kind < 0.7:
            words[place] = words[rng.randrange(len(words))]
        else:
            words[place] = edit
        words = words or [edit]
    data = " ".join(words).encode()
    checked(folder, "nameless" if nameless else name, data[: int(cut * len(data))])


@settings(max_examples=FUZZED // 3, deadline=None)
@given(
    name=st.sampled_from(sorted(CLAUSES)),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_bytes_of_clauses(folder: Path, name: str, edits: list[tuple[float, int]]) -> None:
    data = bytearray(CLAUSES[name].encode())
    for where, value in edits:
        data[int(where * (len(data) - 1))] = value
    checked(folder, name, bytes(data))
