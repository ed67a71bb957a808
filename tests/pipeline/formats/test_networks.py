"""Bayesian networks are checked once: in Python, in every format, and never beyond what they print."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow.pipeline.answering import running
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.compiled import state as compiled_state
from bucketflow.pipeline.errors import FormatError, InternalError, ModelError
from bucketflow.pipeline.formats.read import load
from bucketflow.pipeline.models.bayesian_networks import network_fault, normalised, rounding, row_sums, spread_of
from bucketflow.pipeline.models.findings import check_log10
from bucketflow.pipeline.models.function import Function, compact
from bucketflow.pipeline.models.model import Model

from .written import ODD, Written, file_of

A, B = [0.25, 0.75], [[0.5, 0.5], [0.125, 0.875]]
BINARY = {"a": ["y", "n"], "b": ["y", "n"]}


def build(*functions: Any, variables: Any = None, **how: Any) -> Model:
    return Model.build("bayes", variables or BINARY, functions, **how)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([(("b",), A)], "one distribution of each variable, not none of 'a'"),
        ([(("a",), A), (("b",), A), (("a", "b"), B)], "not two of 'b' (function 2)"),
        ([(("a",), A), (("b", "a"), B)], "two of 'a', and none of 'b' (function 1); the child is the last variable"),
        ([(("a",), A), (("a", "b"), [[0.5, 0.5], [0.5, 0.4]])], "not probabilities of 'b' at a = 'n' that sum to 0.9"),
        ([(("a",), [1, 2]), (("a", "b"), B)], "not probabilities of 'a' that sum to 3"),
        ([(("a",), [0, 0]), (("a", "b"), B)], "not probabilities of 'a' that sum to 0"),
        ([(("b", "a"), B), (("a", "b"), B)], "a Bayesian network has no cycle, not the cycle a → b → a"),
        ([(("a",), A), (("a", "b"), B), ((), 2.0)], "has distributions of one variable each, not a function without"),
        ([(("a",), [0.25, math.nan]), (("a", "b"), B)], "negative or not finite"),
        ([(("a",), [1.25, -0.25]), (("a", "b"), B)], "negative or not finite"),
        ([(("a",), A), (("a", "b"), [[0, 0]], [0.5], 0.5), ], None),
        ([(("a",), A), (("a", "b"), [[0, 0]], [0.25], 0.5)], "probabilities of 'b' at a = 'y' that sum to 0.75"),
        ([(("a",), A), (("a", "b"), [[0, 0], [0, 1]], [0.5, 0.5], 0.25)], "of 'b' at a = 'n' that sum to 0.5"),
    ],
)  # fmt: skip
def test_networks_in_python(functions: list[Any], message: str | None) -> None:
    if message is None:
        build(*functions)
        return
    with pytest.raises(ModelError) as caught:
        build(*functions)
    assert message in str(caught.value)
    if "finite" not in message:
        assert str(caught.value).endswith("check=False accepts it unchanged")
        model = build(*functions, check=False)
        whole = sum(10 ** model.log10_value(states) for states in np.ndindex(2, 2))
        found = bucketflow.solve(model, "partition")
        assert (0.0 if found.log10 is None else 10**found.log10) == pytest.approx(whole)


def test_other_kinds_are_not_checked() -> None:
    Model.build("markov", BINARY, [(("a",), [3, 4])])
    assert bucketflow.solve(Model.build("cost", BINARY, [(("a",), [3, 4])])).value == 3


def test_long_cycles_are_shortened() -> None:
    names = [f"v{k}" for k in range(40)]
    functions = [((names[k - 1], names[k]), B) for k in range(40)]
    with pytest.raises(ModelError, match=r"the cycle v\d+ → v\d+ → v\d+ → v\d+ → v\d+ → v\d+ → … → v\d+"):
        build(*functions, variables=dict.fromkeys(names, 2))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_cycles_are_found_where_there_are_some(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(2, 7)
    parents = [rng.sample([u for u in range(n) if u != v], rng.choice([0, 1, 1, min(2, n - 1)])) for v in range(n)]
    left = set(range(n))
    while free := [v for v in left if not left & set(parents[v])]:
        left -= set(free)
    functions = [
        (tuple(f"v{u}" for u in (*parents[v], v)), np.full([2] * (len(parents[v]) + 1), 0.5)) for v in range(n)
    ]
    rng.shuffle(functions)
    variables = {f"v{v}": 2 for v in range(n)}
    if not left:
        build(*functions, variables=variables)
        return
    with pytest.raises(ModelError) as caught:
        build(*functions, variables=variables)
    cycle = str(caught.value).partition("the cycle ")[2].partition(" (")[0].split(" → ")
    assert cycle[0] == cycle[-1]
    assert all(int(u[1:]) in parents[int(v[1:])] for u, v in pairwise(cycle))


def test_many_and_large_tables_are_added_up() -> None:
    """Small tables are added together: one that is wrong is found among many, wherever it is."""
    rng = np.random.default_rng(0)
    dims = [int(d) for d in rng.integers(1, 9, 400)] + [300, 300]
    functions = [Function((v,), np.asarray(rng.dirichlet(np.ones(d))), child=v) for v, d in enumerate(dims[:400])]
    functions.append(Function((400, 401), np.asarray(rng.dirichlet(np.ones(300), size=300)), child=401))
    functions.append(Function((400,), np.full(300, 1 / 300), child=400))
    names, states = [f"v{v}" for v in range(402)], [None] * 402
    assert network_fault(functions, names, dims, states) is None
    for f in (0, 57, 399, 400):
        wrong = functions[f].changed(values=functions[f].values.copy())
        wrong.values.flat[-1] += 2e-6
        changed = [*functions[:f], wrong, *functions[f + 1 :]]
        fault = network_fault(changed, names, dims, states)
        assert fault is not None
        assert fault.function == f
        spread = spread_of(changed, dims)
        assert spread.uneven == [f]
        assert spread.least == spread.most == pytest.approx(1 + 2e-6, abs=1e-9)


def test_distributions_by_rows() -> None:
    """Tables of mostly zeros are kept by rows, also over more variables than can be numbered."""
    values = np.zeros((40, 50, 60))
    values[..., 7] = 1.0
    function = compact(Function((0, 1, 2), values, child=2))
    assert function.rows is not None
    assert row_sums(function, (40, 50, 60)).tolist() == [1.0] * 2000
    other = function.changed(values=function.values * 4)
    assert row_sums(normalised(other, (40, 50, 60)), (40, 50, 60)).tolist() == [1.0] * 2000
    missing = Function((0, 1, 2), values, child=2)
    missing.values[3, 4, 7] = 0.0
    roots = [Function((v,), np.full(d, 1 / d), child=v) for v, d in enumerate((40, 50))]
    fault = network_fault([*roots, compact(missing)], ["a", "b", "c"], [40, 50, 60], [None] * 3)
    assert fault is not None
    assert fault.found == "probabilities of 'c' at a = 3, b = 4 that sum to 0"
    wide = [2] * 70
    rows = np.zeros((2, 70), np.uint8)
    rows[1, -1] = 1
    sparse = Function(tuple(range(70)), np.array([0.5, 0.25]), rows=rows, default=0.5, child=69)
    assert row_sums(sparse, wide).tolist() == [0.75, 1.0]
    others = [Function((v,), np.array([0.5, 0.5]), child=v) for v in range(69)]
    fault = network_fault([*others, sparse], [f"v{v}" for v in range(70)], wide, [None] * 70)
    assert fault is not None
    assert "'v69' at v0 = 0, v1 = 0" in fault.found


@pytest.mark.parametrize(
    ("row", "allowed"),
    [
        ([0.333, 0.333, 0.333], 1.5e-3),
        ([0.33, 0.33, 0.33], 1.5e-2),
        ([0.3, 0.3, 0.3], 1e-6),  # one digit is no rounding
        ([1.0, 0.0, 0.0], 1e-6),
        ([0.876543, 0.0123457, 0.111111], 1.5e-6),  # six digits that count: those of the largest matter
        ([0.1234567, 0.1234567, 0.7530865], 1e-6),
        ([0.02, 0.03, 0.04], 1.5e-2),
        ([0.11] * 9, 2e-2),  # never more
    ],
)
def test_how_far_rounded_rows_may_be_from_one(row: list[float], allowed: float) -> None:
    assert rounding(np.array(row), len(row)) == pytest.approx(allowed, rel=1e-4)


BIF = """network n {{ }}
variable a {{ type discrete [ 3 ] {{ x, y, z }}; }}
variable b {{ type discrete [ 2 ] {{ u, v }}; }}
probability ( a ) {{ table {a}; }}
probability ( b | a ) {{ (x) 0.25, 0.75; (y) {b}; (z) 0.5, 0.5; }}
"""


def bif(tmp_path: Path, a: str = "0.25, 0.25, 0.5", b: str = "0.125, 0.875") -> Path:
    path = tmp_path / "a.bif"
    path.write_text(BIF.format(a=a, b=b))
    return path


def test_rounded_rows_of_bif_are_normalised(tmp_path: Path) -> None:
    model = load(bif(tmp_path, "0.333, 0.333, 0.333"))
    assert model.notes == ("probabilities of a were normalised: rows summed to 0.999",)
    assert model.functions[0].values.tolist() == pytest.approx([1 / 3] * 3, abs=1e-15)
    assert model.functions[1].values.tolist() == [[0.25, 0.75], [0.125, 0.875], [0.5, 0.5]]
    both = load(bif(tmp_path, "0.333, 0.333, 0.333", "0.1251, 0.8750"))
    assert both.notes == ("probabilities of a, b were normalised: rows summed to 0.999 to 1.0001",)
    close = load(bif(tmp_path, "0.3333333, 0.3333333, 0.3333333"))
    assert close.notes == ()
    assert close.functions[0].values.tolist() == [0.3333333] * 3
    assert load(bif(tmp_path, "0.333, 0.333, 0.333"), check=False).functions[0].values.tolist() == [0.333] * 3


@pytest.mark.parametrize(
    ("a", "b", "line", "found"),
    [
        ("0.25, 0.25, 0.4", "0.5, 0.5", 4, "probabilities of 'a' that sum to 0.9"),
        ("0.25, 0.25, 0.5", "0.5, 0.4", 5, "probabilities of 'b' at a = 'y' that sum to 0.9"),
        ("0.25, 0.25, 0.5", "0, 0", 5, "probabilities of 'b' at a = 'y' that sum to 0"),
        ("0.25, 0.25, 0.5", "0.55, 0.50", 5, "probabilities of 'b' at a = 'y' that sum to 1.05"),
        ("0.250001, 0.250001, 0.50001", "0.5, 0.5", 4, "probabilities of 'a' that sum to 1.000012"),
        ("3, 4, 3", "0.5, 0.5", 4, "probabilities of 'a' that sum to 10"),
    ],
)
def test_other_rows_of_bif_are_refused(tmp_path: Path, a: str, b: str, line: int, found: str) -> None:
    with pytest.raises(FormatError) as caught:
        load(bif(tmp_path, a, b))
    assert (caught.value.line, caught.value.expected) == (line, "rows of probabilities that sum to 1")
    assert caught.value.found == f"{found} (to read it as it is: --no-check, or check=False)"
    load(bif(tmp_path, a, b), check=False)


def told(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def test_commands_take_what_is_no_network(tmp_path: Path) -> None:
    path = bif(tmp_path, "3, 4, 3")
    for command in ("solve", "plan", "marginals", "bound", "info"):
        refused = told(command, path)
        assert refused.exit_code == 2
        assert "a.bif:4: expected rows of probabilities that sum to 1, found probabilities of 'a'" in refused.stderr
        assert told(command, path, "--no-check").exit_code == 0
    found = json.loads(told("solve", path, "--query", "partition", "--no-check", "--json").stdout)
    assert found["log10"] == pytest.approx(1)
    assert told("convert", path, tmp_path / "b.uai").exit_code == 2
    done = told("convert", path, tmp_path / "b.uai", "--no-check")
    assert (
        "tables are written as potentials (MARKOV), because they do not form a Bayesian network: probabilities of 'a'"
        in done.stderr
    )
    assert load(tmp_path / "b.uai").kind == "markov"


def test_runs_of_what_is_no_network_are_resumed(tmp_path: Path) -> None:
    for k, a in enumerate(("3, 4, 3", "0.333, 0.333, 0.333", "0.25, 0.25, 0.5")):
        path = bif(tmp_path, a)
        for options in ((), ("--no-check",)):
            folder = tmp_path / f"run{k}{len(options)}"
            begun = told("solve", path, "--query", "partition", "--workdir", folder, "--json", *options)
            if k == 0 and not options:
                assert begun.exit_code == 2
                continue
            again = told("resume", folder, "--json")
            assert again.exit_code == 0
            assert json.loads(again.stdout)["log10"] == json.loads(begun.stdout)["log10"]


def test_batches_of_what_is_no_network(tmp_path: Path) -> None:
    bif(tmp_path, "3, 4, 3")
    (tmp_path / "list.csv").write_text("model,query\na.bif,partition\na.bif,marginals\n")
    refused = told("batch", tmp_path / "list.csv", "--out", tmp_path / "out", "--json")
    assert json.loads(refused.stdout)["failed"] == 2
    done = told("batch", tmp_path / "list.csv", "--out", tmp_path / "out", "--json", "--no-check")
    assert json.loads(done.stdout)["answered"] == 2
    again = told("batch", tmp_path / "list.csv", "--out", tmp_path / "out", "--json")
    assert json.loads(again.stdout)["failed"] == 2  # what was answered without a check is no answer with one


def test_evidence_is_never_more_than_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build((("a",), A), (("a", "b"), B))
    for log10 in (0.0, 1e-12, -3.0, -math.inf, None):
        check_log10(model, log10)
    with pytest.raises(InternalError, match=r"evidence has the probability 10\^0.001, which is more than 1"):
        check_log10(model, 1e-3)
    check_log10(model, math.log10(2), [np.array([2.0, 1.0])])  # likelihoods may be more
    with pytest.raises(InternalError):
        check_log10(model, math.log10(2.1), [np.array([2.0, 1.0])])
    check_log10(build((("a",), [3, 4]), (("a", "b"), B), check=False), 1e-3)
    check_log10(Model.build("markov", {"a": 2}, [(("a",), [3, 4])]), 1e-3)
    slightly = build((("a",), [0.5, 0.5 + 9e-7]), (("a", "b"), B))
    check_log10(slightly, math.log10(1 + 9e-7))


def test_every_answer_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build((("a",), A), (("a", "b"), B))
    partition, dressed = running._ANSWERS["partition"], compiled_state.dressed
    monkeypatch.setitem(running._ANSWERS, "partition", lambda *asked: replace(partition(*asked), log10=0.25))
    marginals = running._ANSWERS["marginals"]
    monkeypatch.setitem(running._ANSWERS, "marginals", lambda *asked: replace(marginals(*asked), log10_evidence=0.25))
    with pytest.raises(InternalError, match="which is more than 1"):
        bucketflow.solve(model, "partition", method="dense")
    with pytest.raises(InternalError, match="which is more than 1"):
        bucketflow.marginals(model)
    compiled = bucketflow.compile(model)
    compiled.marginals()
    monkeypatch.setattr(compiled_state, "dressed", lambda *asked: replace(dressed(*asked), log10_evidence=0.25))
    for ask in (compiled.marginals, compiled.partition):
        with pytest.raises(InternalError, match="which is more than 1"):
            ask()


def test_soft_evidence_may_be_more_than_certain() -> None:
    model = build((("a",), A), (("a", "b"), B))
    weights = [4.0, 2.0]
    expected = math.log10(0.25 * 4 + 0.75 * 2)
    assert bucketflow.marginals(model, evidence={"a": weights}).log10_evidence == pytest.approx(expected)
    compiled = bucketflow.compile(model)
    compiled.set_evidence({"a": weights})
    assert compiled.marginals().log10_evidence == pytest.approx(expected)
    cases = compiled.marginals_batch({"a": np.array([weights, [1.0, 1.0]])})
    assert cases.log10_evidence.tolist() == pytest.approx([expected, 0.0], abs=1e-12)


@pytest.mark.parametrize("kind", sorted(ODD))
def test_cycles_in_files(kind: str, tmp_path: Path) -> None:
    tables = [np.full((2, 2), 0.5), np.full((2, 2), 0.5), np.array([0.25, 0.75])]
    made = Written([["s0", "s1"]] * 3, [[1], [0], []], tables, set(), random.Random(1))
    path = tmp_path / f"a.{kind}"
    path.write_text(file_of(made, kind))
    first, second = ("x0", "x1") if kind in ("uai", "erg") else ("v0", "v1")
    with pytest.raises(
        FormatError, match=rf"expected no cycle, found the cycle ({first} → {second} → |{second} → {first})"
    ):
        load(path)
    assert load(path, check=False).kind == "bayes"
