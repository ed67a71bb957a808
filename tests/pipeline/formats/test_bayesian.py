"""Every element of the formats of Bayesian networks: read, noted or refused by name; and how other programs write."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]


def joint(model: Model) -> np.ndarray:
    """The product of all functions, an axis a variable."""
    whole = np.ones(model.dims)
    for f in model.functions:
        order = sorted(range(len(f.scope)), key=f.scope.__getitem__)
        shape = [d if v in f.scope else 1 for v, d in enumerate(model.dims)]
        whole = whole * f.dense(model.dims).transpose(order).reshape(shape)
    return whole


def posterior(model: Model, name: str) -> list[float]:
    """A marginal by brute force."""
    v = model.index[name]
    return joint(model).sum(axis=tuple(a for a in range(len(model.dims)) if a != v)).tolist()


BIF = """network weather {{ {network} }}
variable rain {{ type discrete [ 2 ] {{ no, yes }}; {variable} }}
variable lawn {{ {type} }}
probability ( rain ) {{ table 0.75, 0.25; {table} }}
probability ( lawn | rain ) {{ {rows} {probability} }}
{block}"""
BIF_PARTS = {
    "network": "",
    "variable": "",
    "type": "type discrete [ 3 ] { dry, damp, wet };",
    "table": "",
    "rows": "(no) 0.5, 0.25, 0.25; (yes) 0.125, 0.125, 0.75;",
    "probability": "",
    "block": "",
}
LAWN = [0.40625, 0.21875, 0.375]
OBSERVED = "observations in the file are not used as evidence: rain = yes"
BIF_ELEMENTS = [
    ("network", 'property "author = me";', "ignored, because no answer depends on it: property author"),
    ("network", "property version 1.5;", "property version"),
    ("network", 'property "credal-set constant-density-bounded 1.1";', "!a set of networks (property credal-set)"),
    ("network", 'property "epsilon-contaminated 0.1";', "!a set of networks (property epsilon-contaminated)"),
    ("network", "author me;", "!a property of the network, found 'author'"),
    ("variable", "property position = (1, 2) ;", "property position"),
    ("variable", 'property "explanation";', "property explanation"),
    ("variable", "property weight = None ;", "property weight"),
    ("variable", 'property "observed yes";', OBSERVED),
    ("variable", "property observed yes;", OBSERVED),
    ("variable", "// a comment {};\n", ""),
    ("variable", "/* a comment {}; */", ""),
    ("variable", "type discrete [ 1 ] { one };", "!one 'type' or a 'property' of the variable, found 'type'"),
    ("variable", "utility;", "!one 'type' or a 'property' of the variable, found 'utility'"),
    ("type", "type continuous;", "!'discrete' (the only type that is read), found 'continuous'"),
    ("type", 'type discrete [3] {"dry" "damp" "wet"};', ""),
    ("type", "type discrete[3] { dry,\tdamp ,wet } ;", ""),
    ("type", "type discrete [ 3 ] { dry, // none\n damp// some\n, wet// all\n };", ""),
    ("table", "(no) 0.5, 0.5;", "!a row of probabilities"),
    ("table", "default 0.5, 0.5;", ""),
    ("rows", "(yes) 0.125, 0.125, 0.75; (no) 0.5 0.25 0.25;", ""),
    ("rows", "(yes) 0.125, 0.125, 0.75; default 0.5, 0.25, 0.25;", ""),
    ("rows", 'default 0.5, 0.25, 0.25; ("yes") 1.25e-1, 0.125, 0.75;', ""),
    ("rows", "(no) 0.5, 0.25, 0.25;", "!2 rows, one for each parent configuration, found 1 rows"),
    ("rows", "(no) 0.5, 0.25, 0.25; table 0.5 0.25 0.25 0.125 0.125 0.75;", "!a row of probabilities"),
    ("rows", "table 0.5 0.25 0.25 0.125 0.125 0.75;", ""),
    ("rows", "table 0.5 0.125 0.25 0.125 0.25 0.75;", "tables of lawn list their own states slowest"),
    ("rows", "table 0.5 0.25 0.25 0.125 0.125 0.7;", "!rows, or a table whose rows sum to 1 in one order only"),
    ("probability", 'property "from data";', "property from"),
    ("probability", "property function max;", "!a full table, found a compact one ('function max')"),
    ("block", "network again { }", "!a variable or probability block, found 'network'"),
    ("block", "utility ( rain ) { table 1, 2; }", "!a variable or probability block, found 'utility'"),
    ("block", "probability ( rain ) { table 0.5, 0.5; }", "!one distribution of each variable, found two of 'rain'"),
    (
        "block",
        "variable more { type discrete [ 2 ] { a, b }; }",
        "!one distribution of each variable, found none of 'more'",
    ),
]

XMLBIF = """<?xml version="1.0"?>
<BIF VERSION="0.3"{bif}><NETWORK>{network}
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>{variable}</VARIABLE>
<VARIABLE{type}><NAME>lawn</NAME><OUTCOME>dry</OUTCOME><OUTCOME>damp</OUTCOME><OUTCOME>wet</OUTCOME></VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.75 0.25</TABLE></DEFINITION>
<DEFINITION><FOR>lawn</FOR>{given}<TABLE>{rows}</TABLE>{definition}</DEFINITION>
</NETWORK>{more}</BIF>
"""
XMLBIF_PARTS = {
    "bif": "",
    "network": "<NAME>weather</NAME>",
    "variable": "",
    "type": "",
    "given": "<GIVEN>rain</GIVEN>",
    "rows": "0.5 0.25 0.25 0.125 0.125 0.75",
    "definition": "",
    "more": "",
}
XMLBIF_ELEMENTS = [
    ("bif", ' XMLNS="here"', "attribute XMLNS"),
    ("network", "<NAME>a</NAME><NAME>b</NAME>", "!one <NAME>, found a second one"),
    ("network", "<PROPERTY>author me</PROPERTY>", "property author"),
    ("network", "<PROPERTY>credal-set</PROPERTY>", "!a set of networks (property credal-set)"),
    ("network", "<UTILITY/>", "!<UTILITY>, which is not read"),
    ("network", "<!-- a comment -->", ""),
    ("variable", "<PROPERTY>position = (1, 2)</PROPERTY>", "property position"),
    ("variable", "<PROPERTY>observed yes</PROPERTY>", OBSERVED),
    ("variable", "<VALUE>maybe</VALUE>", "!<VALUE>, which is not read"),
    ("type", ' TYPE="nature" ID="7"', "attribute ID"),
    ("type", ' TYPE="decision"', "!nodes of nature, found a node of kind 'decision', which is not read"),
    ("type", ' TYPE="utility"', "!nodes of nature, found a node of kind 'utility', which is not read"),
    ("rows", "0.5 .25 2.5e-1<!-- no --> 0.125 0.125 0.75", ""),
    ("given", "", "!3 probabilities of 'lawn', found 6"),
    ("definition", "<TABLE>1</TABLE>", "!one <TABLE>, found a second one"),
    ("definition", "<FOR>rain</FOR>", "!one <FOR>, found a second one"),
    ("definition", "<FUNCTION>max</FUNCTION>", "!<FUNCTION>, which is not read"),
    ("definition", "<PROPERTY>from data</PROPERTY>", "property from"),
    ("more", "<NETWORK/>", "!one <NETWORK>, found a second one"),
]

XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="weather"{smile}><nodes>
<cpt id="rain"{cpt}><state id="no" {state}/><state id="yes" />{table}</cpt>
{lawn}{nodes}
</nodes>{more}</smile>
"""
CPT = '<cpt id="lawn"><state id="dry"/><state id="damp"/><state id="wet"/><parents>rain</parents>{}</cpt>'
XDSL_PARTS = {
    "smile": "",
    "cpt": "",
    "state": "",
    "table": "<probabilities>0.75 0.25</probabilities>",
    "lawn": CPT.format("<probabilities>0.5 0.25 0.25 0.125 0.125 0.75</probabilities>"),
    "nodes": "",
    "more": "",
}
XDSL_ELEMENTS = [
    ("smile", ' numsamples="1000" discsamples="10"', "attribute numsamples, attribute discsamples"),
    ("cpt", ' diagtype="target" ranked="true"', "attribute diagtype, attribute ranked"),
    ("cpt", ' dynamic="plate"', "!one point in time, found a node with the attribute 'dynamic', which is not read"),
    ("state", 'label="F5" fault="true"', "attribute label, attribute fault"),
    ("table", "<property id='k'>v</property><probabilities>3 1</probabilities>", "element property"),
    ("table", "<probabilities>3 1</probabilities>", "probabilities of rain were normalised: rows summed to 4"),
    ("table", "<probabilities>0 0</probabilities>", "!probabilities of 'rain' that sum to 0"),
    ("table", "<probabilities>1</probabilities>", "!2 probabilities of 'rain', found 1"),
    ("table", "<dyn order='1'/><probabilities>.5 .5</probabilities>", "!<dyn>, which is not read"),
    ("table", "<probabilities>.5 .5</probabilities><probabilities/>", "!one <probabilities>, found a second one"),
    ("lawn", CPT.format("<equation>rain</equation>"), "!<equation>, which is not read"),
    *(
        ("nodes", f'<{kind} id="more"/>', f"!a node of kind '{kind}', which is not read")
        for kind in ("noisyadder", "equation", "decision", "utility", "mau", "demorgan", "submodel")
    ),
    ("more", '<dynamic numslices="3"></dynamic>', "!a dynamic network (<dynamic>), which is not read"),
    ("more", "<extensions><genie><node id='rain'/></genie></extensions>", "element extensions"),
    ("more", "<properties><property id='a'>b</property></properties>", "element properties"),
    ("more", "<observationcost/>", "element observationcost"),
    ("more", "<cases/>", "!<cases>, which is not read"),
    ("more", "<nodes/>", "!one <nodes>, found a second one"),
]

NET = """{net}
node rain {{ states = ("no" "yes"); {attribute} }}
{kind} lawn {{ states = ("dry" "damp" "wet"); }}
potential ( rain ) {{ {table} }}
potential ( lawn | rain ) {{ {data} {potential} }}
{more}"""
NET_PARTS = {
    "net": "net { }",
    "attribute": "",
    "kind": "node",
    "table": "data = (0.75 0.25);",
    "data": "data = ((0.5 0.25 0.25)(0.125 0.125 0.75));",
    "potential": "",
    "more": "",
}
NET_ELEMENTS = [
    ("net", "net { node_size = (80 40); HR_Color = 1; HR_Zoom = 2; }", "no answer depends on it: node_size, HR_*"),
    ("net", "net { } % a comment { }", ""),
    ("attribute", 'label = "a ; b"; position = (1 2);', "no answer depends on it: label, position"),
    ("attribute", "subtype = number; state_values = (0 1);", "subtype, state_values"),
    ("attribute", 'states = ("a" "b");', "!one attribute 'states', found a second one"),
    ("kind", "discrete node", ""),
    *(
        ("kind", f"{kind} node", f"!a node of kind '{kind}', which is not read")
        for kind in ("continuous", "utility", "decision", "function", "temporal", "boolean", "interval", "number")
    ),
    ("kind", "chance", "!a node or a potential, found 'chance'"),
    ("table", "data = (3 1);", "probabilities of rain were normalised: rows summed to 4"),
    ("table", "data = (0 0);", "!probabilities of 'rain' that sum to 0"),
    ("table", "data = (0.75 -0.25);", "!a finite number of at least 0, found '-0.25'"),
    ("table", "data = (nan 1);", "!a finite number of at least 0, found 'nan'"),
    ("data", "data = (0.5 0.25 0.25 0.125 0.125 0.75);", ""),
    ("data", "", "potentials without data are read as uniform: lawn"),
    ("potential", "experience = (3 4); fading = (1 1);", "no answer depends on it: experience, fading"),
    ("potential", "data = (1);", "!one attribute 'data', found a second one"),
    ("potential", "model_nodes = ();", "!'model_nodes', an expression, which is not read"),
    ("potential", "model_data = (Noisy(rain));", "!'model_data', an expression, which is not read"),
    ("more", "class other { }", "!another class, 'other', which is not read"),
    ("more", "instance i : other (;) { }", "!a node of kind 'instance', which is not read"),
    ("more", "potential ( rain ) { }", "!one distribution of each variable, found two of 'rain'"),
    ("more", 'node more { states = ("a" "b"); }', "!one distribution of each variable, found none of 'more'"),
]

UAI = "{kind}\n2\n2 3\n2\n{first}\n{second}\n\n2\n{table}\n6\n{rows}\n{more}"
UAI_PARTS = {
    "kind": "BAYES",
    "first": "1 0",
    "second": "2 0 1",
    "table": "0.75 0.25",
    "rows": "0.5 0.25 0.25 0.125 0.125 0.75",
    "more": "",
}
UAI_ELEMENTS = [
    ("kind", "bayes", ""),
    ("kind", "MARKOV", ""),
    ("kind", "BAYES # a comment", ""),
    ("kind", "LIMID", "!MARKOV or BAYES, found an influence diagram, which is not read"),
    ("kind", "INFLUENCE", "!MARKOV or BAYES, found 'INFLUENCE'"),
    ("rows", "0.5 0.125 0.25 0.125 0.25 0.75", "read with the first variable of each scope fastest"),
    ("second", "2 1 0", "!the last of its scope, found two of 'x0', and none of 'x1'"),
    ("rows", "0.5 0.25 0.25 0.125 0.125 0.7", "!probabilities of 'x1' at x0 = 1 that sum to 0.95"),
    ("rows", "0.5 0.25 0.25 0.125 0.25 0.75", "!probabilities of 'x1' at x0 = 1 that sum to 1.125"),
    ("table", "0.75 0.3", "!probabilities of 'x0' that sum to 1.05"),
    ("more", "1", "!the end of the file after the last table, found '1'"),
]


def elements(name: str, text: str, parts: dict[str, str], changes: list[tuple[str, str, str]]) -> list[object]:
    return [
        pytest.param(name, text, {**parts, part: change}, part, outcome, id=f"{name}-{part}-{change[:30]}")
        for part, change, outcome in changes
    ]


@pytest.mark.parametrize(
    ("name", "text", "parts", "part", "outcome"),
    [
        *elements("a.bif", BIF, BIF_PARTS, BIF_ELEMENTS),
        *elements("a.bifxml", XMLBIF, XMLBIF_PARTS, XMLBIF_ELEMENTS),
        *elements("a.xdsl", XDSL, XDSL_PARTS, XDSL_ELEMENTS),
        *elements("a.net", NET, NET_PARTS, NET_ELEMENTS),
        *elements("a.uai", UAI, UAI_PARTS, UAI_ELEMENTS),
    ],
)
def test_elements(read: Read, name: str, text: str, parts: dict[str, str], part: str, outcome: str) -> None:
    written = text.format(**parts)
    if outcome.startswith("!"):
        with pytest.raises(FormatError) as caught:
            read(written, name)
        assert outcome[1:] in str(caught.value)
        return
    model = read(written, name)
    if outcome:
        assert outcome in " / ".join(model.notes)
    else:
        assert model.notes == ()
    uniform = part == "data" and not parts[part]
    assert posterior(model, model.names[1]) == pytest.approx([1 / 3] * 3 if uniform else LAWN)
    assert joint(model).sum() == pytest.approx(1)


def test_deterministic_nodes_of_genie(read: Read) -> None:
    coins = "".join(
        f'<cpt id="{n}"><state id="t"/><state id="f"/><probabilities>{p} {1 - p}</probabilities></cpt>'
        for n, p in (("a", 0.25), ("b", 0.5))
    )
    node = '<deterministic id="or"><state id="t"/><state id="f"/><parents>a b</parents>{}</deterministic>'
    text = "<smile><nodes>" + coins + node + "</nodes></smile>"
    model = read(text.format("<resultingstates>t t t f</resultingstates>"), "a.xdsl")
    assert posterior(model, "or") == [0.625, 0.375]
    for wrong, message in (
        ("<resultingstates>t t t</resultingstates>", "4 resulting states of 'or', found 3"),
        ("<resultingstates>t t t u</resultingstates>", "states of the node, found 'u'"),
        ("<probabilities>1 0 1 0 1 0 0 1</probabilities>", "<probabilities>, which is not read"),
    ):
        with pytest.raises(FormatError, match=message):
            read(text.format(wrong), "a.xdsl")


def test_several_parents_of_a_bif_table(read: Read) -> None:
    """JavaBayes lists P(x = first | …) for all parents, then P(x = second | …); others the child fastest."""
    text = """network n { } variable a { type discrete[2] { t, f }; } variable b { type discrete[3] { u, v, w }; }
    variable c { type discrete[2] { x, y }; }
    probability ( a ) { table 0.5 0.5; } probability ( b ) { table 0.25 0.25 0.5; }
    probability ( c | a, b ) { table %s; }"""
    rows = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.45, 0.55], [0.6, 0.4]])
    slowest = read(text % " ".join(map(str, rows.T.ravel().tolist())), "a.bif")
    fastest = read(text % " ".join(map(str, rows.ravel().tolist())), "a.bif")
    for model in (slowest, fastest):
        assert model.functions[2].values.reshape(6, 2).tolist() == rows.tolist()
    assert (len(slowest.notes), len(fastest.notes)) == (1, 0)
    with pytest.raises(FormatError, match="found a table whose rows do so in both orders"):
        read(text % "0.5 0.5 0.25 0.75 0.75 0.25 0.5 0.5 0.75 0.25 0.25 0.75", "a.bif")
    assert read(text % " ".join(["0.5"] * 12), "a.bif").notes == ()


@pytest.mark.parametrize(
    ("levels", "row"),
    [
        ("[0_2], _2_5], _5_9]", "({}, {}) "),
        ("very low, rather  high, top", "({} ,{})"),
        ("a[1], b (2, c]", "({}, {}) "),
        ('"[0,2]", "(2,5]", "(5 9]"', '({},"{}")'),
        ("<2, 2-5, >5//9", None),
    ],
)
def test_levels_as_bnlearn_writes_them(read: Read, levels: str, row: str | None) -> None:
    labels = ["[0,2]", "(2,5]", "(5 9]"] if '"' in levels else [" ".join(s.split()) for s in levels.split(",")]
    text = f"variable dose {{ type discrete [ 3 ] {{ {levels} }}; }}"
    text += " variable job { type discrete [2] { full time, no }; } variable cured { type discrete [ 2 ] { no, yes }; }"
    text += " probability ( dose ) { table 0.5, 0.25, 0.25; } probability ( job ) { table 0.5, 0.5; }"
    rows = ""
    for k, label in enumerate(labels):
        for other in ("full time", "no"):
            quoted = f'"{label}"' if '"' in levels else label
            rows += (row or "({}, {}) ").format(quoted, other) + f" {(k + 1) / 8}, {(7 - k) / 8};\n"
    text += f" probability ( cured | dose, job ) {{ {rows} }}"
    if row is None:
        with pytest.raises(FormatError):
            read(text, "a.bif")
        return
    model = read(text, "a.bif")
    assert model.states[0] == tuple(labels)
    assert model.states[1] == ("full time", "no")
    assert posterior(model, "cured") == [0.5 / 8 + 0.5 / 8 + 0.75 / 8, 1 - 1.75 / 8]
    found = bucketflow.marginals(model, evidence={"dose": labels[1], "job": "full time"})
    assert found["cured"].tolist() == pytest.approx([0.25, 0.75])


def test_addresses_are_no_comments(read: Read) -> None:
    model = read(BIF.format(**{**BIF_PARTS, "variable": "property url = http://a.b/c ;"}), "a.bif")
    assert "property url" in model.notes[0]


def test_xml_may_begin_with_blanks(read: Read) -> None:
    model = read("\n \t\r\n" + XMLBIF.format(**XMLBIF_PARTS), "a.bifxml")
    assert posterior(model, "lawn") == LAWN
    with pytest.raises(FormatError) as caught:
        read("\n\n" + XMLBIF.format(**{**XMLBIF_PARTS, "definition": "<FUNCTION/>"}), "a.bifxml")
    assert caught.value.line == 8


def pgmpy_uai(order: list[int]) -> str:
    """A network of two parents as pgmpy writes it: the scope backwards, the values with the child slowest."""
    a, b = [0.25, 0.75], [0.5, 0.25, 0.25]
    c = np.random.default_rng(3).dirichlet((1, 1), size=(2, 3)).round(3)
    values = " ".join(map(str, c.transpose(2, 0, 1).ravel().tolist()))
    scopes = "1 0\n1 1\n3 " + " ".join(map(str, order)) + " 2\n"
    lines = [
        "BAYES",
        "3",
        "2 3 2",
        "3",
        f"{scopes}",
        "2",
        " ".join(map(str, a)),
        "3",
        " ".join(map(str, b)),
        "12",
        values,
    ]
    return "\n".join(lines)


def test_uai_of_pgmpy(read: Read) -> None:
    c = np.random.default_rng(3).dirichlet((1, 1), size=(2, 3)).round(3)
    expected = np.einsum("a,b,abc->c", [0.25, 0.75], [0.5, 0.25, 0.25], c)
    model = read(pgmpy_uai([1, 0]), "a.uai")
    assert posterior(model, "x2") == pytest.approx(expected.tolist(), abs=1e-12)
    assert "as pgmpy writes them" in model.notes[0]
    with pytest.raises(FormatError, match="rows of probabilities that sum to 1"):  # in which order are the parents?
        read(pgmpy_uai([1, 0]).replace("\n\n", "\n"), "a.uai")


def test_evidence_and_constraints_in_uai(read: Read) -> None:
    """Linkage networks of evaluations hold their evidence, planning ones are relations."""
    text = "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n{}\n4\n{}\n"
    for table, rows, total in (
        ("0.5 0.25", "0 0 0.5 0.25", 0.1875),
        ("1 1", "1 1 0 0", 2),
    ):
        model = read(text.format(table, rows), "a.uai")
        assert "answers are computed for the product of the tables as written" in model.notes[0]
        assert joint(model).sum() == total
        found = bucketflow.solve(model, "partition")
        assert found.log10 == pytest.approx(math.log10(total))
        assert found.notes == model.notes
    for table, rows in (("0.5 0.25", "0.5 0.5 0.5 0.25"), ("0.5 0.5", "0 0 0.75 0.75"), ("0.5 0.6", "0 0 0.5 0.5")):
        with pytest.raises(FormatError, match="rows of probabilities that sum to 1"):
            read(text.format(table, rows), "a.uai")


def test_printed_digits_of_uai_are_kept(read: Read) -> None:
    text = "BAYES\n1\n3\n1\n1 0\n\n3\n0.333 0.333 0.333\n"
    model = read(text, "a.uai")
    assert model.functions[0].values.tolist() == [0.333] * 3
    assert model.notes == (
        "rows of x0 sum to 0.999, not to 1: answers are computed for the product of the tables as written",
    )
    erg = read("1\n3\n0\n3\n0.333 0.333 0.333\n", "a.erg")
    assert erg.notes == model.notes
    with pytest.raises(FormatError, match=r"a\.erg:4: expected rows of probabilities that sum to 1"):
        read("1\n3\n0\n3\n0.333 0.333 0.3\n", "a.erg")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.neta", "text", "a packed Netica network"),
        ("a.o3prm", "class A { boolean x { [0.5, 0.5] }; }", "a relational model (O3PRM)"),
    ],
)
def test_other_formats_are_named(read: Read, name: str, text: str, what: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text, name)
    assert what in caught.value.found
    assert "save" in caught.value.found or "export" in caught.value.found
    assert "which is not read" in caught.value.found


def test_notes_of_files_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "counts.net"
    path.write_text(NET.format(**{**NET_PARTS, "table": "data = (3 1);"}))
    note = "probabilities of rain were normalised: rows summed to 4"
    for command in ("marginals", "solve", "info", "plan"):
        done = CliRunner().invoke(main, [command, str(path)])
        assert (done.exit_code, done.stderr) == (0, f"bucketflow: note: {note}\n")
    done = CliRunner().invoke(main, ["convert", str(path), str(tmp_path / "a.uai")])
    assert done.stderr.startswith(f"bucketflow: note: {note}\n")
    assert bucketflow.load(tmp_path / "a.uai").functions[0].values.tolist() == [0.75, 0.25]
