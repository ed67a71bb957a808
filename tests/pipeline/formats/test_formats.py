"""Readers and writers on small files: every trap of the formats, and the exact error for each mistake."""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import BudgetError, FormatError, ModelError
from bucketflow.pipeline.formats.decimal_costs import READ_AS_INFINITE
from bucketflow.pipeline.formats.read import load, load_evidence
from bucketflow.pipeline.formats.text import source
from bucketflow.pipeline.formats.write import save
from bucketflow.pipeline.models.model import FORBIDDEN, Model

Read = Callable[[str, str], Model]
ONE = "one distribution of each variable"
HINT = " (to read it as it is: --no-check, or check=False)"


def optimum(model: Model) -> int | None:
    costs = (model.cost(a) for a in itertools.product(*map(range, model.dims)))
    return min((c for c in costs if c is not None), default=None)


def same(a: Model, b: Model) -> bool:
    def functions_equal() -> bool:
        for f, g in zip(a.functions, b.functions, strict=True):
            if f.scope != g.scope or f.child != g.child or not np.array_equal(f.values, g.values):
                return False
            if (f.rows is None) != (g.rows is None):
                return False
            if f.rows is not None and (not np.array_equal(f.rows, g.rows) or f.default != g.default):
                return False
        return True

    return (a.kind, a.dims, a.top) == (b.kind, b.dims, b.top) and functions_equal()


WCSP = """small 3 3 5 10
2 3 2
2 0 1 0 2
0 0 4
1 2 99
1 2 1 1
0 3
0 2 0
2 1 2 7 1
0 1 0
3 0 1 2 0 1
1 1 1 5
"""


def test_wcsp(read: Read) -> None:
    model = read(WCSP, "a.wcsp")
    assert (model.kind, model.name, model.dims, model.top) == ("cost", "small", (2, 3, 2), 10)
    assert model.names == ("x0", "x1", "x2")
    pair, unary, constant, sparse, triple = model.functions
    assert pair.rows is None
    assert pair.values.tolist() == [[4, 0, 0], [0, 0, 10]]
    assert pair.values.dtype == np.int64
    assert unary.values.tolist() == [3, 1]
    assert constant.scope == ()
    assert constant.at(()) == 2
    assert sparse.rows is not None
    assert (sparse.default, sparse.at((0, 1)), sparse.at((2, 1))) == (7, 0, 7)
    assert triple.at((1, 1, 1)) == 5
    assert model.cost((1, 2, 0)) is None
    assert model.cost((0, 0, 1)) == 4 + 1 + 2 + 0 + 0


def test_wcsp_shared_functions(read: Read) -> None:
    text = "s 3 2 4 9\n2 2 2\n-2 0 1 1 1\n1 0 6\n-1 2 0 1\n1 3\n2 2 1 0 -1\n1 0 0 -2\n"
    model = read(text, "a.wcsp")
    assert [f.scope for f in model.functions] == [(0, 1), (2,), (2, 1), (0,)]
    assert model.functions[2].values.tolist() == [[1, 1], [6, 1]]
    assert model.functions[3].values.tolist() == [0, 3]


def test_wcsp_huge_top_is_exact(read: Read) -> None:
    model = read(f"h 1 2 1 {10**30}\n2\n1 0 0 1\n1 {10**40}\n", "a.wcsp")
    assert model.top == 10**30
    assert model.functions[0].values.tolist() == [0, 2**62]
    assert model.cost((1,)) is None
    with pytest.raises(FormatError, match=r"a\.wcsp:4: expected a cost below 4611686018427387904"):
        read(f"h 1 2 1 {10**30}\n2\n1 0 0 1\n1 {2**63}\n", "a.wcsp")


def test_totals_beyond_single_costs_are_possible(read: Read) -> None:
    text = f"h 2 2 2 {2**63 - 1}\n2 2\n1 0 {2**61 + 9} 1\n1 {2**61 + 1}\n1 1 {{}} 1\n0 {2**61}\n"
    model = read(text.format(2**61 + 5), "a.wcsp")
    assert model.cost((1, 0)) == 2**62 + 1
    for query, value in (("optimum", 2**62 + 1), ("count", 4)):
        assert bucketflow.solve(model, query).value == value
    with pytest.raises(ModelError, match="costs may add up to"):
        bucketflow.solve(read(text.format(2**62 - 1), "a.wcsp"))


def test_wcsp_repeated_variable_and_tuple(read: Read) -> None:
    model = read(
        "r 2 3 2 9\n3 3\n2 1 1 5 9\n0 0 1\n0 1 2\n0 2 2\n1 0 2\n1 1 3\n1 2 2\n2 0 2\n2 1 2\n2 2 4\n"
        "1 0 0 3\n1 2\n1 3\n2 1\n",
        "a.wcsp",
    )
    assert model.functions[0].scope == (1,)
    assert model.functions[0].values.tolist() == [1, 3, 4]
    assert model.functions[1].values.tolist() == [0, 3, 1]


def test_wcsp_wide_scopes_are_rows(read: Read) -> None:
    scope, dims = " ".join(map(str, range(70))), " ".join(["2"] * 70)
    model = read(f"w 70 2 1 9\n{dims}\n70 {scope} 0 1\n{' '.join(['1'] * 70)} 4\n", "a.wcsp")
    assert model.functions[0].rows is not None
    assert model.cost([1] * 70) == 4


@pytest.mark.parametrize(("reuse", "name"), [("2 1 0 0 -1\n", "a.wcsp"), ("{scope: [1 0] costs: f}\n", "a.cfn")])
def test_shared_functions_share_memory(read: Read, reuse: str, name: str) -> None:
    costs = " ".join(str((7 * k) % 11) for k in range(2500))
    rows = "\n".join(f"{k // 50} {k % 50} {(7 * k) % 11}" for k in range(2500))
    heads = {
        "a.wcsp": f"s 2 50 501 99\n50 50\n-2 0 1 0 2500\n{rows}\n",
        "a.cfn": "{variables: {a: 50 b: 50} functions: {\n",
    }
    end = f"f: {{scope: [a b] costs: [{costs}]}}\n}}}}" if name == "a.cfn" else ""
    model = read(heads[name] + reuse * 500 + end, name)
    assert sorted(f.scope for f in model.functions) == [(0, 1)] + [(1, 0)] * 500
    assert {id(f.values) for f in model.functions} == {id(model.functions[0].values)}


KNOWN = "a model in a format that `bucketflow formats` lists"
READABLE = "a readable file"

BAD_WCSP = [
    ("", None, READABLE, "the file is empty"),
    ("p 1", 1, "the largest domain size of at least 0", "the end of the file"),
    ("p 999999999999 2 1 9\n2\n", 1, "the number of variables from 0 to 6", "'999999999999'"),
    ("p 1 2 0 9\n0\n", 2, "a domain size from 1 to 2147483647", "'0'"),
    ("p 1 2 1 9\n2\n1 1 0 0\n", 3, "a variable from 0 to 0", "'1'"),
    ("p 1 2 1 9\n2\n1 0 0 1\n2 5\n", 4, "a state from 0 to 1", "'2'"),
    ("p 1 2 1 9\n2\n1 0 0 1\n1 5x\n", 4, "a tuple and its cost", "'5x'"),
    ("p 1 2 1 9\n2\n1 0 0 1\n1 -5\n", 4, "a cost of at least 0", "'-5'"),
    ("p 1 2 1 9\n2\n1 0 0 2\n1 5\n", 4, "a tuple and its cost", "the end of the file"),
    (
        "p 1 2 1 9\n2\n1 0 0 -1\n",
        3,
        "a number of tuples, or one of 0 shared functions before this one",
        "'-1'",
    ),
    ("p 1 2 1 9\n2\n1 0 0 1\n1 5\n7\n", 5, "the end of the file after 1 functions", "'7'"),
    (
        "p 2 2 1 9\n2 2\n2 0 1 -1 alldifferent var 9\n",
        3,
        "a table of costs",
        "the global cost function 'alldifferent', which is not read",
    ),
    (
        "p 2 2 1 9\n2 2\n1 0 -1 >= 0 0\n",
        3,
        "a function of two variables",
        "the global cost function '>=' of 1",
    ),
    ("p 1 1_0 0 9\n2\n", 1, "the largest domain size of at least 0", "'1_0'"),
    ("p 1 2 0 " + "9" * 10**5, 1, "the top cost of at least 0", "'" + "9" * 37 + "...'"),
]


def check_error(read: Read, text: str, name: str, line: int | None, expected: str, found: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, name)
    assert (caught.value.line, caught.value.expected, caught.value.found) == (line, expected, found)
    assert caught.value.path.endswith(name)


@pytest.mark.parametrize(("text", "line", "expected", "found"), BAD_WCSP)
def test_wcsp_errors(read: Read, text: str, line: int | None, expected: str, found: str) -> None:
    check_error(read, text, "bad.wcsp", line, expected, found)


CFN = """{ problem: { "name": "mix", mustbe: "<12.5" }
  # relaxed JSON: quotes, commas and colons are optional
  variables: {"a": ["red", "blue"], b: 3 "c": [x y]}
  functions: {
    f: { scope: ["a" b], costs: [0, 1.25, inf, 3, -2, 30] }
    { scope: [], costs: [0.5] }
    h: { scope: [c a] costs: g }
    g: { "scope": [2, "a"], "defaultcost": 1, "costs": ["y", blue, 2.0, 0, 0, 1e-1] }
  } // the end
}
"""


def test_cfn(read: Read) -> None:
    model = read(CFN, "a.cfn")
    assert (model.name, model.decimals, model.top, model.maximize) == ("mix", 2, 1250, False)
    assert model.names == ("a", "b", "c")
    assert model.states == (("red", "blue"), None, ("x", "y"))
    assert model.functions[0].values.tolist() == [[0, 125, FORBIDDEN], [300, -200, 3000]]
    assert model.functions[1].values.tolist() == 50
    assert model.functions[2].scope == (2, 0)
    assert model.functions[2].values.tolist() == [[10, 100], [100, 200]]
    assert model.functions[3].values.tolist() == [[10, 100], [100, 200]]


def test_cfn_strict_json(read: Read) -> None:
    text = """{"problem": {"name": "j", "mustbe": "<5"}, "variables": {"v": 2},
               "functions": {"f": {"scope": ["v"], "costs": [1, 7]}}}"""
    model = read(text, "a.txt")
    assert model.functions[0].values.tolist() == [1, 7]
    assert [model.cost([0]), model.cost([1])] == [1, None]


def test_cfn_without_last_brace(read: Read) -> None:
    assert read("{variables: {v: 2} functions: {f: {scope: [v] costs: [1 2]}}", "a.cfn").top is None


@pytest.mark.parametrize(
    ("bound", "costs", "expected"),
    [
        ("<10", ("-8, 0", "15, 17"), 7),  # a single cost may exceed the bound of the total
        ("<10", ("-8, 0", "inf, 3"), -5),
        ("<-3", ("-4, 0", "1, 9"), None),
        (">-5", ("-6, -inf", "1.5, 0.5"), 45),
        (">0", ("3, 0", "0, 4"), -7),
        (">8", ("3, 0", "0, 4"), None),
        (None, ("1, inf", "2, 3"), 3),
    ],
)
def test_cfn_bounds(read: Read, bound: str | None, costs: tuple[str, str], expected: int | None) -> None:
    problem = "" if bound is None else f'"mustbe": "{bound}"'
    functions = "".join(f"{{scope: [{v}] costs: [{c}]}}" for v, c in enumerate(costs))
    model = read(f"{{problem: {{{problem}}} variables: {{a: 2 b: 2}} functions: {{{functions}}}}}", "a.cfn")
    assert optimum(model) == expected


def test_cfn_maximum(read: Read) -> None:
    model = read('{problem: {mustbe: ">-20"} variables: {a: 2} functions: {{scope: [a] costs: [3 7]}}}', "a.cfn")
    assert (model.maximize, model.top) == (True, 20)
    assert model.functions[0].values.tolist() == [-3, -7]


HEAD = "{variables: {a: 2 b: [u v]}\n functions: {\n"
BAD_CFN = [
    (
        HEAD + "f: {scope: [a] type: among}",
        3,
        "costs",
        "the global cost function 'among', which is not read",
    ),
    (HEAD + "f: {scope: [q] costs: [1 2]}", 3, "a variable, by name or from 0 to 1", "'q'"),
    (HEAD + "f: {scope: [a] costs: [1 2 3]}", 3, "2 costs", "3 costs"),
    (HEAD + "f: {scope: [a]\n costs: [1 x]}", 4, "a cost", "'x'"),
    (HEAD + "f: {scope: [a]\n costs: [1 nan]}", 4, "a cost", "'nan'"),
    (
        HEAD + "f: {scope: [a]\n costs: [1 -inf]}}}",
        4,
        "a cost that is not infinitely good",
        "a number outside this range",
    ),
    (HEAD + "f: {scope: [b] defaultcost: 0 costs: [w 1]}", 3, "a state of variable 'b'", "'w'"),
    (HEAD + "f: {scope: [a] defaultcost: 0\n costs: [0 1 1]}", 4, "tuples of 1 states and a cost", "3 items"),
    (HEAD + "f: {scope: [a]}", 3, "a function with scope and costs", "'scope'"),
    (
        HEAD + "g: {scope: [a] costs: [1 2]}\nf: {scope: [a] costs: g}}}",
        4,
        "a list of costs, or the name of a later function with a list of costs",
        "'g'",
    ),
    ("{variables: {a: [u u]}}", 1, "a list of different labels", "'['"),
    ("{variables: {a: 2 a: 3}}", 1, "a variable that is not declared yet", "'a'"),
    ("{problem: {mustbe: 10}}", 1, "a bound such as <10 or >0", "'10'"),
    ("{extra: 1}", 1, "problem, variables or functions", "'extra'"),
    ("{variables: {a: 2}", 1, "the section 'functions', or '}'", "the end of the file"),
    ("{variables: {a: 2}} }", 1, "the end of the file", "'}'"),
    ('{problem: {mustbe: "<1e-40"}}', 1, "at most 18 decimals", "40 decimals"),
]


@pytest.mark.parametrize(("text", "line", "expected", "found"), BAD_CFN)
def test_cfn_errors(read: Read, text: str, line: int | None, expected: str, found: str) -> None:
    check_error(read, text, "bad.cfn", line, expected, found)


BAYES = "BAYES\n3\n2 3 1\n3\n1 0\n2 0 1\n1 2\n\n2\n 0.25 0.75\n\n6\n .1 .2 .7\n 0 1e-3 0.999\n1 1\n"
UAI = "MARKOV\n3\n2 3 1\n3\n1 0\n2 0 1\n0\n\n2\n 0.25 0.75\n\n6\n .1 .2 .7\n 0 1e-3 0.999\n1 2.5\n"


def test_uai(read: Read) -> None:
    potentials, network = read(UAI, "a.uai"), read(BAYES, "a.uai")
    for model in (potentials, network):
        assert model.dims == (2, 3, 1)
        assert model.functions[1].at((1, 1)) == 1e-3
    assert (potentials.kind, network.kind) == ("markov", "bayes")
    assert potentials.functions[2].at(()) == 2.5
    assert [f.child for f in network.functions] == [0, 1, 2]
    assert [f.child for f in potentials.functions] == [None] * 3
    check_error(
        read,
        UAI.replace("MARKOV", "BAYES"),
        "a.uai",
        15,
        "distributions of one variable each, the last of its scope",
        f"a function without variables{HINT}",
    )


@pytest.mark.parametrize(
    ("text", "line", "expected", "found"),
    [
        ("NOISE\n1\n2\n0\n", 1, "MARKOV or BAYES", "'NOISE'"),
        ("MARKOV\n1\n2\n1\n1 0\n3\n1 1 1\n", 6, "the number of table entries, from 2 to 2", "'3'"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1\n", 7, "2 table entries", "the end of the file"),
        (
            "MARKOV\n1\n2\n1\n1 0\n2\n1 -1\n",
            7,
            "a finite number of at least 0",
            "'-1': name a file of natural logarithms .LG",
        ),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1 nan\n", 7, "a finite number of at least 0", "'nan'"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1e999 1\n", 7, "a finite number of at least 0", "'1e999'"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1 ?\n", 7, "a finite number of at least 0", "'?'"),
        ("MARKOV\n1\n2\n1\n1 5\n2\n1 1\n", 5, "a variable from 0 to 0", "'5'"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1 1 1\n", 7, "the end of the file after the last table", "'1'"),
    ],
)
def test_uai_errors(read: Read, text: str, line: int | None, expected: str, found: str) -> None:
    check_error(read, text, "bad.uai", line, expected, found)


def test_uai_too_many_axes(read: Read) -> None:
    scope = " ".join(map(str, range(70)))
    text = f"MARKOV\n70\n{' '.join(['1'] * 70)}\n1\n70 {scope}\n1 0.5\n"
    check_error(read, text, "a.uai", 6, "a full table over at most 60 variables", "70 variables")


ERG = "2\n2 3\n0\n1 0\n/* Probabilities\n */\n2\n.5 .5\n6\n.1 .2 .7\n1 0 0\n"


def test_erg(read: Read) -> None:
    model = read(ERG, "a.erg")
    assert [f.scope for f in model.functions] == [(0,), (0, 1)]
    assert [f.child for f in model.functions] == [0, 1]
    assert model.functions[1].at((0, 2)) == 0.7
    assert read(ERG, "unnamed").functions[1].scope == (0, 1)
    named = read(ERG + "/* Names */\nA\nB\n/* Labels */\ny n\nu v w\n", "a.erg")
    assert (named.names, named.states) == (("A", "B"), (("y", "n"), ("u", "v", "w")))
    check_error(
        read,
        ERG + "A\n",
        "a.erg",
        12,
        "the end of the file, 2 names, or as many names and 5 labels",
        "1 words",
    )
    check_error(read, ERG.replace("1 0\n/*", "1 1\n/*"), "a.erg", 4, "parents of variable 1", "the variable itself")


BIF = """// a comment
network "two words" { property author = "}{"; }
probability ( Age | Stable,Sex ) { // before its variables
  (no, "m/f") 0.1, .2, 0.7;
  (table, f) 1e-1, 0.5, 0.4;
  (table, m/f) 0.3, 0.3, 0.4;
  (no, f) 1, 0, 0;
}
variable Sex { type discrete [ 2 ] { f, m/f }; property position = (1, {2}) ; }
variable Stable { type discrete[2]{no,table}; }
variable Age { type discrete [ 3 ] { <5, 5-12, Transp. }; }
/* two
   lines */
probability ( Sex ) { table 0.25, 0.75; }
probability ( Stable ) { default 0.5, 0.5; }
"""


def test_bif(read: Read) -> None:
    model = read(BIF, "a.bif")
    assert (model.kind, model.name) == ("bayes", "two words")
    assert model.names == ("Sex", "Stable", "Age")
    assert model.states[2] == ("<5", "5-12", "Transp.")
    age, sex, stable = model.functions
    assert (age.scope, age.child) == ((1, 0, 2), 2)
    assert age.at((0, 1, 2)) == 0.7
    assert age.at((1, 0, 1)) == 0.5
    assert sex.values.tolist() == [0.25, 0.75]
    assert stable.values.tolist() == [0.5, 0.5]
    assert same(model, read(BIF, "nameless"))


def test_bif_default_row(read: Read) -> None:
    text = BIF.replace("  (no, f) 1, 0, 0;\n", "").replace("  (table, f) 1e-1", "  default 1e-1")
    model = read(text, "a.bif")
    assert model.functions[0].at((0, 0, 0)) == model.functions[0].at((1, 0, 0)) == 0.1
    assert model.functions[0].at((0, 1, 0)) == 0.1


def test_bif_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "a.bif"
    path.write_bytes(BIF.replace("Transp.", "\xe9t\xe9").encode("latin-1"))
    assert load(path).states[2] == ("<5", "5-12", "\xe9t\xe9")


BAD_BIF = [
    ("(no, f) 1, 0, 0", "(no, q) 1, 0, 0", 7, "a state of variable 'Sex'", "'q'"),
    ("(no, f) 1, 0, 0", "(no) 1, 0, 0", 7, "2 parent states", "1 states"),
    ("(no, f) 1, 0, 0", "(no, f) 1, 0", 7, "3 probabilities", "2 values"),
    ("(no, f) 1, 0, 0", "(no, f) 1, 0, -0.5", 7, "a finite number of at least 0", "'-0.5'"),
    ("(no, f) 1, 0, 0", "(no, f) 1, 0, inf", 7, "a finite number of at least 0", "'inf'"),
    ("(no, f) 1, 0, 0", "(no, m/f) 1, 0, 0", 7, "a parent configuration that has no row yet", "'('"),
    ("  (no, f) 1, 0, 0;\n", "", 3, "4 rows, one for each parent configuration", "3 rows"),
    ("  (no, f) 1, 0, 0;\n", "property function max;", 7, "a full table", "a compact one ('function max')"),
    (
        "  (no, f) 1, 0, 0;\n",
        "  table 1, 0, 0;\n",
        7,
        "a row of probabilities, such as (a, b) 0.1, 0.9;",
        "'table'",
    ),
    ("Stable,Sex", "Stable,Sox", 3, "a declared variable", "'Sox'"),
    ("Stable,Sex", "Stable,Stable", 3, "different variables", "'Stable'"),
    ("Age | Stable,Sex", "Age Stable", 3, "one variable, then '|' and its parents", "'Stable'"),
    ("variable Stable", "variable Sex", 10, "a variable that is not declared yet", "'Sex'"),
    ("discrete[2]", "discrete[3]", 10, "3 states", "2 states"),
    ("{no,table}", "{no,no}", 10, "different states", "a state named twice"),
    ("discrete[2]", "continuous", 10, "'discrete' (the only type that is read)", "'continuous'"),
    ("( Stable ) {", "( Sex ) { ", 15, ONE, f"two of 'Sex', and none of 'Stable'{HINT}"),
    (
        "probability ( Stable ) { default 0.5, 0.5; }",
        "",
        14,
        ONE,
        f"none of 'Stable'{HINT}",
    ),
    ("probability ( Stable", "potential ( Stable", 15, "a variable or probability block", "'potential'"),
    ("0.5, 0.5; }", "0.5, 0.5; ", 15, "'}'", "the end of the file"),
]


@pytest.mark.parametrize(("old", "new", "line", "expected", "found"), BAD_BIF)
def test_bif_errors(read: Read, old: str, new: str, line: int, expected: str, found: str) -> None:
    assert old in BIF
    check_error(read, BIF.replace(old, new), "bad.bif", line, expected, found)


NET = """% a comment with node and }
net { name = "a % in a string"; node_size = (80 40); }
potential ( C | A B )
{
  data = ((( 0.1 0.2 0.7 )   % A=x B=0
           ( 0.3 0.3 0.4 ))
          (( 1 0 0 )( 0.5 0.25 0.25 )));
}
node A { states = ("x" "say \\"y\\""); position = (1 2); }
discrete node B { label = "("; states = ("0" "1"); }
node C { states = ("a" "b" "c"); }
potential (A) { data = ( 0.4 0.6 ); }
potential ( B | ) { }
"""


def test_hugin(read: Read) -> None:
    model = read(NET, "a.net")
    assert model.kind == "bayes"
    assert model.states[0] == ("x", 'say "y"')
    c, a, b = model.functions
    assert (c.scope, c.child) == ((0, 1, 2), 2)
    assert c.at((0, 1, 2)) == 0.4
    assert c.at((1, 0, 0)) == 1.0
    assert a.values.tolist() == [0.4, 0.6]
    assert b.values.tolist() == [0.5, 0.5]
    assert model.notes[-1] == "potentials without data are read as uniform: B"
    assert same(model, read(NET, "nameless"))
    inside = "class K { inputs = (); " + NET.replace('net { name = "a % in a string"; node_size = (80 40); }', "") + "}"
    assert same(model, read(inside, "a.net"))


@pytest.mark.parametrize(
    ("old", "new", "line", "expected", "found"),
    [
        ("discrete node B", "utility B", 10, "discrete nodes", "a node of kind 'utility', which is not read"),
        (
            "discrete node B",
            "decision B",
            10,
            "discrete nodes",
            "a node of kind 'decision', which is not read",
        ),
        (
            "discrete node B",
            "continuous node B",
            10,
            "discrete nodes",
            "a node of kind 'continuous', which is not read",
        ),
        (
            "( B | ) { }",
            "( B | ) { model_nodes = (); }",
            13,
            "a table",
            "'model_nodes', an expression, which is not read",
        ),
        ("( 0.5 0.25 0.25 )", "( 0.5 0.25 )", 5, "12 numbers", "11 numbers"),
        ("( 1 0 0 )( 0.5 0.25 0.25 )", "( 1 0 ) (0 0.5 0.25 0.25 )", 7, "lists of 3 numbers", "2 numbers"),
        ("0.25 )))", "0.25 ))", 5, "matching parentheses", "an unclosed one"),
        ("0.25 0.25", "0.25 -1", 7, "a finite number of at least 0", "'-1'"),
        ("C | A B", "C | A D", 3, "a declared node", "'D'"),
        ("C | A B", "C A | B", 3, "one child, then '|' and its parents", "'A'"),
        ("potential ( B", "potential ( A", 13, ONE, f"two of 'A', and none of 'B'{HINT}"),
        ("node C { states", "node C { stages", 11, "a node with states", "'C'"),
    ],
)
def test_hugin_errors(read: Read, old: str, new: str, line: int, expected: str, found: str) -> None:
    assert old in NET
    check_error(read, NET.replace(old, new), "bad.net", line, expected, found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("0\n", {}),
        ("1\n0\n", {}),
        ("2 0 1 1 2\n", {0: 1, 1: 2}),
        ("1\n2 0 1 1 2\n", {0: 1, 1: 2}),
        ("  /* Evidence */\n1\n 1 2\n", {1: 2}),
        ("1 1 0\n", {1: 0}),
    ],
)
def test_evidence(read: Read, tmp_path: Path, text: str, expected: dict[int, int]) -> None:
    model = read(BAYES, "a.uai")
    path = tmp_path / "a.uai.evid"
    path.write_text(text)
    assert load_evidence(path, model) == expected
    assert load(tmp_path / "a.uai").evidence == {}
    assert load(tmp_path / "a.uai", path).evidence == expected


def test_evidence_by_name(read: Read, tmp_path: Path) -> None:
    model = read(BIF, "a.bif")
    path = tmp_path / "e.evid"
    path.write_text("2 Age 5-12\nSex 1\n")
    assert load_evidence(path, model) == {2: 1, 0: 1}


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("2 1 1 0 1 1 1\n", 1, "2 observed variables with their states"),
        ("2\n0 1\n1 2 0\n", 1, "one sample, a number from 1 to 1"),
        ("1 0 1 1 2\n", 1, "1 observed variables with their states"),
        ("1 7 0\n", 1, "a variable from 0 to 2"),
        ("1\n0 5\n", 2, "a state of variable 'x0' from 0 to 1"),
        ("2 0 1\n0 0\n", 2, "variable 'x0' in one state only"),
    ],
)
def test_evidence_errors(read: Read, tmp_path: Path, text: str, line: int, expected: str) -> None:
    model = read(BAYES, "a.uai")
    path = tmp_path / "bad.evid"
    path.write_text(text)
    with pytest.raises(FormatError) as caught:
        load_evidence(path, model)
    assert (caught.value.line, caught.value.expected) == (line, expected)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("name", ["a.wcsp", "a.wcsp.gz", "a.wcsp.xz", "a"])
def test_compression_is_seen_in_content(tmp_path: Path, pack: Callable[[bytes], bytes], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(pack(WCSP.encode()))
    assert load(os.fspath(path)).name == "small"
    path.write_bytes(pack(WCSP.encode())[:-20])
    with pytest.raises(FormatError, match="expected an undamaged compressed file"):
        load(path)


def test_a_dictionary_that_exceeds_the_memory_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp.xz"
    path.write_bytes(lzma.compress(WCSP.encode(), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]))
    with pytest.raises(BudgetError, match=r"decompressing it needs more than .* of memory; give a larger --memory"):
        load(path, memory=20_000_000)


def test_multi_stream_xz(tmp_path: Path) -> None:
    path = tmp_path / "a.wcsp"
    path.write_bytes(lzma.compress(WCSP[:30].encode()) + lzma.compress(WCSP[30:].encode()))
    assert load(path).name == "small"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bytes])
def test_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]) -> None:
    monkeypatch.setattr(source, "MAX_TEXT_BYTES", 1 << 20)
    path = tmp_path / "bomb.uai"
    path.write_bytes(pack(b" " * (1 << 24)))
    with pytest.raises(FormatError, match="at most 1048576 bytes of text, found more"):
        load(path)


def test_unreadable_files(tmp_path: Path) -> None:
    for path, fault in (
        (tmp_path, "this is a folder; give the path of a file"),
        (tmp_path / "missing.uai", "no such file"),
        (tmp_path / "nowhere" / "a.uai", f"there is no folder {tmp_path / 'nowhere'}"),
        (tmp_path / "nul\x00.uai", "embedded null"),
    ):
        with pytest.raises(FormatError, match=f": {re.escape(fault)}"):
            load(path)


def test_unknown_content(read: Read) -> None:
    check_error(read, "hello world\n", "notes", None, KNOWN, "a file that begins 'hello world\\n'")
    check_error(read, "1 0 1\n", "a.evid", None, READABLE, "this is an evidence file, which goes with a model")
    check_error(read, "MARKOV\n1\x00\n", "a.uai", None, READABLE, "this is not a text file: line 2 has a NUL byte")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize(
    ("text", "name"),
    [(WCSP, "a.wcsp"), (UAI, "a.uai"), (BAYES, "b.uai")],
)
def test_round_trip(read: Read, tmp_path: Path, text: str, name: str, suffix: str) -> None:
    model = read(text, name)
    target = tmp_path / f"again.{name}{suffix}"
    save(model, target)
    assert same(load(target), model)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, target.name])


def test_bif_to_uai_keeps_the_child_last(read: Read, tmp_path: Path) -> None:
    model = read(BIF, "a.bif")
    save(model, tmp_path / "a.uai")
    assert same(load(tmp_path / "a.uai"), model)


def test_what_cannot_be_written(read: Read, tmp_path: Path) -> None:
    cost, potential = read(WCSP, "a.wcsp"), read(UAI, "a.uai")
    apart = Model.build("cost", {"a": 2}, [("a", [-(2**61), 2**62 - 1])])
    for model, name, reason in [
        (cost, "b.uai", "write .wcsp"),
        (potential, "b.wcsp", "write .uai"),
        (potential, "b.cfn", "write .uai"),
        (apart, "b.wcsp", "2..62 or more apart"),
        (cost, "b.dsc", "written as .cfn, .uai, .bif, .net, .xml, .yaml or .wcsp"),
        (cost, "b.bif", "the model holds costs, and .bif holds Bayesian networks"),
        (cost, "missing/b.wcsp", "there is no folder "),
    ]:
        with pytest.raises(ModelError, match=reason):
            save(model, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_costs_that_are_read_as_infinite_are_noted(read: Read) -> None:
    text = "{{problem: {{name: p{}}}, variables: {{a: 2}}, functions: {{f: {{scope: [a], costs: [{}, 3]}}}}}}"
    noted = read(text.format("", 2**60), "a.cfn").notes
    assert noted == (f"costs of 10^18 and more {READ_AS_INFINITE}",)
    for bound, cost in ((", mustbe: <1000", 2**60), ("", "inf"), ("", 10**18 - 1)):
        assert read(text.format(bound, cost), "a.cfn").notes == ()
    below = read(text.format(f", mustbe: <{2**60}", 2**60 - 3).replace(", 3]", f", {2**60}]"), "a.cfn")
    assert (below.top, below.notes) == (2**60, ())
    assert bucketflow.solve(below).value == 2**60 - 3
    yaml = (
        "name: t\nobjective: min\ndomains: {d: {values: [0, 1]}}\nvariables: {x: {domain: d}}\nconstraints:\n"
        "  c: {type: extensional, variables: x, values: {%s: 0, 4: 1}}\nagents: [a]\n"
    )
    assert read(yaml % 2**60, "a.yaml").notes == (f"costs of 10^18 and more (line 6) {READ_AS_INFINITE}",)
    assert read(yaml % ".inf", "a.yaml").notes == ()
    rest = yaml.replace("{%s: 0, 4: 1}", "{4: 1}, default: %s")
    assert read(rest % 2**60, "a.yaml").notes == (f"costs of 10^18 and more (line 6) {READ_AS_INFINITE}",)
    assert read(rest % 7, "a.yaml").notes == ()
