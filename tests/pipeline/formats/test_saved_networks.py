"""Networks as other tools save them: .dsl of GeNIe and aGrUM, .jgum of aGrUM, .dne of Netica, .dsc of bnlearn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow.pipeline.errors import FormatError
from bucketflow.pipeline.formats.format_policy import FormatPolicy
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.model import Model

Read = Callable[[str, str], Model]


def check(model: Model, expected: dict[str, list[float]], **evidence: str) -> None:
    found = bucketflow.marginals(model, evidence=evidence)
    assert set(expected) <= set(found)
    for name, numbers in expected.items():
        np.testing.assert_allclose(found[name], numbers, atol=1e-12, err_msg=name)


DSL = """// saved by hand
net weather
{{
 HEADER = {{ ID = weather; NAME = "The (weather); = 1"; }};
 node Rain {{ TYPE = CPT; HEADER = {{ ID = Rain; }}; PARENTS = ();
  DEFINITION = {{ NAMESTATES = (no, "a lot"); PROBABILITIES = (0.75, 0.25); }};
  EXTRA_DEFINITION = {{ DOCUMENTATION = {{ }}; DOCUMENTATION = {{ }}; SHOWAS = 4; SHOWAS = 5; }}; }};
 node Hose {{ TYPE = CPT; PARENTS = ();
  DEFINITION = {{ NAMESTATES = (no, yes); PROBABILITIES = (0.5, 0.5); }}; }};
 {node}
}};
"""
TRUTH = """node Wet { TYPE = TRUTHTABLE; PARENTS = (Rain, Hose);
  DEFINITION = { NAMESTATES = (dry, wet); RESULTINGSTATES = (dry, wet, wet, 1); }; };"""
NOISY = """node Wet { TYPE = NOISY_MAX; PARENTS = (Rain, Hose);
  DEFINITION = { NAMESTATES = (wet, dry); STRENGTHS = (1, 0, 1, 0);
  PROBABILITIES = (0.5, 0.5, 0, 1, 0.25, 0.75, 0, 1, 0.125, 0.875); }; };"""


def test_dsl_has_tables_truth_tables_and_noisy_maxima(read: Read) -> None:
    model = read(DSL.format(node=TRUTH), "a.dsl")
    assert model.states == (("no", "a lot"), ("no", "yes"), ("dry", "wet"))
    check(model, {"Wet": [0.375, 0.625]})
    check(model, {"Rain": [0.6, 0.4]}, Wet="wet")
    check(read(DSL.format(node=NOISY), "nameless"), {"Wet": [1 - 0.875 * 0.875 * 0.875, 0.875**3]})


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("node U { TYPE = TABLE; PARENTS = (Rain); };", "a node of kind 'TABLE', which is not read"),
        (
            "node D { TYPE = DECISION; };",
            "(CPT, TRUTHTABLE, NOISY_MAX), found a node of kind 'DECISION'",
        ),
        ("node W { TYPE = CPT; };", "names of states (NAMESTATES), found none in block"),
        (
            "node W { TYPE = CPT; DEFINITION = { NAMESTATES = (a, b); }; };",
            "(PROBABILITIES), found none",
        ),
        (TRUTH.replace("wet, 1)", "wet, 2)"), "states of the node, found '2'"),
        (TRUTH.replace("(Rain, Hose)", "(Rain, Nose)"), "a variable of the network, found 'Nose'"),
        (
            TRUTH.replace("TYPE = TRUTHTABLE;", "TYPE = TRUTHTABLE; TYPE = CPT;"),
            "one attribute 'TYPE', found a second one",
        ),
        (TRUTH.replace("}; };", "}; DEFINITION = { }; };"), "one definition, found a second one"),
        ("node W { TYPE = CPT; ", "found the end of the file"),
        ("node W CPT;", "an attribute (name = value;), or a block"),
    ],
)
def test_what_is_wrong_with_a_dsl_is_said(read: Read, node: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(DSL.format(node=node), "a.dsl")
    assert told in str(caught.value)
    assert caught.value.line is not None


DNE = """// ~->[DNET-1]->~
bnet weather {{
autoupdate = TRUE;
visual V1 {{ nodefont = font {{shape= "Arial"; size= 9;}}; NodeSet Nature {{BuiltIn = 1;}}; }};
node Rain {{ kind = NATURE; discrete = TRUE; chance = CHANCE; states = (no, some); parents = ();
 probs = // no some
  (0.75, 0.25);
 title = "Rain; (today)"; }};
node Depth {{ kind = NATURE; discrete = FALSE; levels = (0, 0.5, 2, 10); parents = (Rain);
 probs = ((1, 0, 0), (0.25, 0.25, 0.5)); }};
{node}
}};
"""
FUNCTION = """node Flood { kind = NATURE; discrete = TRUE; chance = DETERMIN; states = (no, yes);
 parents = (Rain, Depth);
 functable = ((no, no, no), (no, #0, yes)); evidence = yes; };"""


def test_dne_has_tables_functions_and_intervals(read: Read) -> None:
    model = read(DNE.format(node=FUNCTION), "a.dne")
    assert model.states[1] == ("0 to 0.5", "0.5 to 2", "2 to 10")
    check(model, {"Depth": [0.8125, 0.0625, 0.125], "Flood": [0.875, 0.125]})
    assert model.notes == ("observations in the file are not used as evidence: Flood = yes",)
    check(read(DNE.format(node=FUNCTION), "nameless"), {"Flood": [0.875, 0.125]})
    numbered = "node N { kind = NATURE; discrete = TRUE; numstates = 2; probs = (0.5, 0.5); };"
    levels = "node N { kind = NATURE; discrete = TRUE; levels = (3, 7); probs = (0.5, 0.5); };"
    assert read(DNE.format(node=numbered), "a.dnet").states[2] == ("0", "1")
    assert read(DNE.format(node=levels), "a.dnet").states[2] == ("3", "7")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("node U { kind = UTILITY; };", "nodes of nature, found a node of kind 'UTILITY', which is not read"),
        ("node N { kind = NATURE; discrete = FALSE; };", "continuous nodes without levels are not read"),
        ("node N { kind = NATURE; states = (a, b); };", "a table (probs or functable), found none in block 'node N'"),
        (
            'node N { kind = NATURE; states = (a, b); parents = (Rain); equation = "N (Rain) = Rain"; };',
            "an equation alone: let Netica make its table and save it",
        ),
    ],
)
def test_what_is_wrong_with_a_dne_is_said(read: Read, node: str, told: str) -> None:
    with pytest.raises(FormatError, match=r"a\.dne:11: ") as caught:
        read(DNE.format(node=node), "a.dne")
    assert told in str(caught.value)


DSC = """belief network "weather"
node Rain {{ name : "Rain today"; type : discrete [ 2 ] = {{ "no", "a lot" }}; position : (1, 2); }}
node Lawn {{ type : discrete[3] = {{ "dry", "damp", "wet" }}; }}
probability ( Rain ) {{ 0.75, 0.25; }}
probability ( Lawn | Rain ) {{
  (0) : 0.5, 0.25, 0.25;
  {row}
}}
"""


def test_dsc_numbers_the_states_of_parents(read: Read) -> None:
    for name in ("a.dsc", "nameless"):
        model = read(DSC.format(row="(1) : 0.125, 0.125, 0.75;"), name)
        check(model, {"Lawn": [0.40625, 0.21875, 0.375]})
        assert model.states[0] == ("no", "a lot")
        assert model.notes == ("ignored, because no answer depends on it: name, position",)
    check(read(DSC.format(row="default : 0, 0, 1;"), "a.dsc"), {"Lawn": [0.375, 0.1875, 0.4375]})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("(2) : 0.125, 0.125, 0.75;", "a state, by number from 0 to 1, found '2'"),
        ("(0) : 0.125, 0.125, 0.75;", "a parent configuration that has no row yet"),
        ("(1, 1) : 0.125, 0.125, 0.75;", "1 states of parents, by number, found 2"),
        ("(1) : 0.125, 0.875;", "3 probabilities, found 2 values"),
        ("", "2 rows, one for each parent configuration, found 1 rows"),
        ("(1) : 0.125, 0.125, 0.5;", "sum to 1"),
        ("0.5, 0.25, 0.25;", "a row of probabilities, such as (0, 1) : 0.1, 0.9;"),
    ],
)
def test_what_is_wrong_with_a_dsc_is_said(read: Read, row: str, told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(DSC.format(row=row), "a.dsc")
    assert told in str(caught.value)


def jgum(**changes: Any) -> str:
    return json.dumps(
        {
            "type": "BN",
            "GumJsonVersion": "1.0",
            "nodes": ["a[2]", "b{x|y|z}", "c[-1,1]"],
            "parents": {"a": [], "b": [], "c": ["a", "b"]},
            "cpt": {
                "a": [0.25, 0.75],
                "b": [0.5, 0.25, 0.25],
                # the first parent is fastest
                "c": [1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0.5, 0.5, 0, 0, 0, 1],
            },
            "properties": {"name": "n"},
        }
        | changes
    )


def test_jgum_lists_the_first_parent_fastest(read: Read) -> None:
    for name in ("a.jgum", "nameless"):
        model = read(jgum(), name)
        assert model.states == (("0", "1"), ("x", "y", "z"), ("-1", "0", "1"))
        check(model, {"c": [1, 0, 0]}, a="0", b="x")
        check(model, {"c": [0, 1, 0]}, a="1", b="x")
        check(model, {"c": [0, 0, 1]}, a="0", b="y")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"type": "MRF"}, 'expected a Bayesian network ("type": "BN"), found \'MRF\', which is not read'),
        ({"nodes": ["a[0]"]}, "different states of variable 'a', found 0 states, at node 'a[0]'"),
        ({"nodes": ["a[x]"]}, "a variable, such as a[3], a[1,3] or a{x|y}"),
        ({"cpt": {"a": [1]}}, "2 probabilities of 'a', found 1, at node 'a'"),
        ({"cpt": {"a": "1 0"}}, "a list of probabilities"),
        ({"cpt": {"c": {"kind": "aggregator", "name": "median"}}}, "a node of 'median', which is not read"),
        ({"cpt": {"c": {"kind": "ici", "name": "MultiDimLogit"}}}, "a node of 'MultiDimLogit', which is not read"),
        ({"cpt": {"c": {"kind": "ici", "name": "MultiDimNoisyAND"}}}, "weights from 0 to 1"),
        ({"parents": []}, "'parents', as aGrUM writes it"),
    ],
)
def test_what_is_wrong_with_a_jgum_is_said(read: Read, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(jgum(**changes), "a.jgum")
    assert told in str(caught.value)
    with pytest.raises(FormatError, match=r"a\.jgum:1: expected well-formed JSON"):
        read(jgum()[:-1], "a.jgum")


def test_a_damaged_packed_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bgum"
    for data, told in (
        (b"\x02\0\0\0\0\0\0\0\x80", "another length than it says"),
        (b"\x01\0\0\0\0\0\0\0\xc1", "a network of aGrUM as it packs it"),
        (b"\x01\0\0\0\0\0\0\0\x80", "'nodes', as aGrUM writes it"),
        (b"\x01\0\0\0\0\0\0\0\x05", "a Bayesian network"),
        (b"text", "a network of aGrUM as it packs it"),
        (b"\x02\0\0\0\0\0\0\0\xa1\xb9", "text that is not UTF-8"),
    ):
        path.write_bytes(data)
        with pytest.raises(FormatError) as caught:
            load(path)
        assert told in str(caught.value)


@pytest.mark.parametrize("size", [0x7B, 0x17B, 0x13C, 0x8B1F, 0x4B50])
def test_a_packed_network_is_one_whatever_its_length_looks_like(tmp_path: Path, size: int) -> None:
    msgpack = pytest.importorskip("msgpack")
    network = {"type": "BN", "nodes": ["a[2]"], "parents": {"a": []}, "cpt": {"a": [0.25, 0.75]}}
    data, note = b"", ""
    while (missing := size - len(data)) > 0:
        note += "x" * max(1, missing - 100)
        data = msgpack.packb({**network, "note": note})
    assert len(data) == size
    (path := tmp_path / "a.bgum").write_bytes(size.to_bytes(8, "little") + data)
    assert load(path).functions[0].values.tolist() == [0.25, 0.75]


gum = pytest.importorskip("pyagrum", reason="pyAgrum, whose files these are, is not installed")


def agree(model: Model, network: Any, evidence: dict[str, int] | None = None) -> None:
    """Posteriors are those of pyAgrum."""
    inference = gum.LazyPropagation(network)
    inference.setEvidence(evidence or {})
    inference.makeInference()
    found = bucketflow.marginals(model, evidence=evidence)
    assert {*found} == {*network.names()}
    for name in found:
        np.testing.assert_allclose(found[name], inference.posterior(name).toarray(), atol=2e-6, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("suffix", ["jgum", "bgum", "dsl"])
def test_networks_that_agrum_saves(tmp_path: Path, suffix: str, seed: int) -> None:
    gum.initRandom(seed + 1)
    network = gum.randomBN(n=8, ratio_arc=1.6, domain_size=3)
    gum.saveBN(network, str(tmp_path / f"a.{suffix}"))
    model = load(tmp_path / f"a.{suffix}")
    agree(model, network)
    last, first = sorted(network.names())[-1], sorted(network.names())[0]
    agree(model, network, {last: 1, first: 0})


@pytest.mark.parametrize("cells", [1 << 16, 4])
@pytest.mark.parametrize(
    ("add", "arguments"),
    [
        ("addNoisyORNet", (0.1,)),
        ("addNoisyORCompound", (0.1,)),
        ("addNoisyAND", (0.3,)),
    ],
)
def test_causes_of_agrum(tmp_path: Path, add: str, arguments: tuple[float, ...], cells: int) -> None:
    network = gum.BayesNet("n")
    names = "ABCD"
    for k, name in enumerate(names):
        network.add(gum.LabelizedVariable(name, name, ["no", "yes"]))
        network.cpt(name).fillWith([0.1 * (k + 1), 1 - 0.1 * (k + 1)])
    getattr(network, add)(gum.LabelizedVariable("E", "E", ["no", "yes"]), *arguments)
    for k, name in enumerate(names):
        network.addWeightedArc(name, "E", 0.2 * (k + 1))
    gum.saveBN(network, str(tmp_path / "a.jgum"))
    with FormatPolicy.using(predicate_cells=cells):
        model = load(tmp_path / "a.jgum")
    assert model.hidden == (0 if cells > 4 else 3)
    agree(model, network)
    agree(model, network, {"E": 1, "B": 0})


@pytest.mark.parametrize("cells", [1 << 16, 4])
@pytest.mark.parametrize(
    ("add", "ends", "arguments"),
    [
        ("addMAX", (0, 4), ()),
        ("addMIN", (1, 2), ()),
        ("addSUM", (2, 5), ()),
        ("addSUM", (-3, 20), ()),
        ("addSUM", (20, 22), ()),
        ("addCOUNT", (0, 2), (2,)),
        ("addEXISTS", (0, 1), (2,)),
        ("addFORALL", (0, 1), (0,)),
        ("addOR", (0, 1), ()),
        ("addAND", (0, 1), ()),
    ],
)
def test_aggregators_of_agrum(
    tmp_path: Path, add: str, ends: tuple[int, int], arguments: tuple[int, ...], cells: int
) -> None:
    network = gum.BayesNet("n")
    rng = np.random.default_rng(7)
    for name, low, high in (("A", 1, 3), ("B", 0, 2), ("C", -1, 2)):
        network.add(gum.RangeVariable(name, name, low, high))
        network.cpt(name).fillWith(rng.dirichlet(np.ones(high - low + 1)).tolist())
    getattr(network, add)(gum.RangeVariable("E", "E", *ends), *arguments)
    for name in "ABC":
        network.addArc(name, "E")
    gum.saveBN(network, str(tmp_path / "a.jgum"))
    with FormatPolicy.using(predicate_cells=cells):
        model = load(tmp_path / "a.jgum")
    agree(model, network)
    # hidden states follow from the others: optima and counts are those of the model
    inference = gum.LazyPropagation(network)
    best = bucketflow.solve(model)
    assert best.assignment is not None
    assert set(best.assignment) == {"A", "B", "C", "E"}
    _, likely = inference.mpeLog2Posterior()
    assert best.log10 == pytest.approx(likely * np.log10(2), abs=1e-9)
    states = [model.state_index(v, best.assignment[name]) for v, name in enumerate(model.own_names)]
    assert model.log10_value(states) == pytest.approx(best.log10, abs=1e-12)
    assert model.log10_value([*states[:-1], (states[-1] + 1) % model.dims[3]]) == -np.inf
    assert bucketflow.solve(model, "count").value == 36
