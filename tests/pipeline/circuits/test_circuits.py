"""Circuits: against brute force and other ways to the same numbers, through both files, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import bucketflow
from bucketflow import BudgetError, Circuit, FormatError, Model, ModelError
from bucketflow.pipeline.circuits.circuit_files import write_circuit
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.gates.circuit import CircuitGraph, CircuitPolicy
from bucketflow.pipeline.gates.evaluation import best, flows, log_values, walk_down
from bucketflow.pipeline.gates.gate_store import StoredGates
from bucketflow.pipeline.models.function import Function
from bucketflow.pipeline.preprocessing.preprocessing_policy import PreprocessingPolicy
from bucketflow.pipeline.queries.formula import QueryPolicy
from tests.models import assignments, bayes_models, brute_count, grid, markov_models

Array = NDArray[Any]
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MODELS = st.one_of(bayes_models(), markov_models())


@st.composite
def formulas(draw: st.DrawFn, weighted: bool) -> str:
    """Clauses of up to four literals over up to seven variables, of which some may have weights."""
    n = draw(st.integers(1, 7))
    literal = st.integers(1, n).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, min_size=1, max_size=4), max_size=12))
    weighing = draw(st.lists(st.integers(1, n), unique=True)) if weighted else []
    weights = [
        f"c p weight {sign * v} {draw(st.sampled_from([0.0, 0.25, 1.0, 3.5]))} 0" for v in weighing for sign in (1, -1)
    ]
    lines = [" ".join(map(str, [*clause, 0])) for clause in clauses]
    return "\n".join([f"p cnf {n} {len(lines)}", *weights, *lines, ""])


def written(text: str, path: Path) -> Model:
    path.write_text(text)
    return bucketflow.load(path)


def weights_of(model: Model, evidence: dict[str, int]) -> dict[tuple[int, ...], float]:
    """What each assignment is worth that is possible."""
    found = {states: model.log10_value(states) for states in assignments(model, evidence)}
    return {states: 10.0**log10 for states, log10 in found.items() if log10 > -math.inf}


def some_evidence(model: Model, data: st.DataObject) -> dict[str, int]:
    names = data.draw(st.lists(st.sampled_from(model.names), unique=True, max_size=2))
    return {name: data.draw(st.integers(0, model.dims[model.index[name]] - 1)) for name in names}


@SLOW
@given(MODELS, st.data())
def test_circuits_are_what_they_should_be_and_have_the_sums_and_maxima_of_brute_force(
    model: Model, data: st.DataObject
) -> None:
    found = bucketflow.circuit(model)
    report = bucketflow.check_circuit(found, model)
    assert report.faults == ()
    assert report.count == found.count() == brute_count(model, {})
    cases = [some_evidence(model, data) for _ in range(3)]
    (sums, (tops, states)), posteriors = (found.log10(cases), found.optimum(cases)), found.marginals(cases)
    for k, evidence in enumerate(cases):
        worth = weights_of(model, evidence)
        if not worth:
            assert sums[k] == tops[k] == -np.inf
            assert (states[k] == -1).all()
            assert all((posteriors[name][k] == 0).all() for name in model.names)
            continue
        total = math.fsum(worth.values())
        assert sums[k] == pytest.approx(math.log10(total), abs=1e-9)
        assert tops[k] == pytest.approx(math.log10(max(worth.values())), abs=1e-9)
        assert worth[tuple(states[k].tolist())] == pytest.approx(max(worth.values()))
        for v, name in enumerate(model.names):
            own = [math.fsum(w for a, w in worth.items() if a[v] == s) / total for s in range(model.dims[v])]
            assert posteriors[name][k] == pytest.approx(own, abs=1e-9)


# What a search is written out as.


def sparse(seed: int) -> Model:
    """Five variables of two to four states, and tables of up to three of them that are mostly 0; some are rows."""
    rng = np.random.default_rng(seed)
    dims = rng.integers(2, 5, 5)
    functions: list[Any] = [
        ([f"x{v}"], rng.choice([0.0, 0.5, 1.0, 2.5], dims[v], p=[0.1, 0.3, 0.3, 0.3])) for v in (0, 3)
    ]
    for _ in range(rng.integers(2, 6)):
        scope = rng.choice(5, rng.integers(2, 4), replace=False)
        weights = rng.random(dims[scope]) if rng.random() < 0.6 else np.ones(dims[scope])
        functions.append(([f"x{v}" for v in scope], weights * (rng.random(dims[scope]) < 0.45)))
    return Model.build("markov", {f"x{v}": int(dims[v]) for v in range(5)}, functions)


def test_a_search_makes_circuits_of_sparse_tables() -> None:
    """Variables of several states and weights: all of brute force, and derivatives by entries."""
    possible = 0
    for seed in range(20):
        model = sparse(seed)
        found = bucketflow.circuit(model, method="search")
        report = bucketflow.check_circuit(found, model)
        assert report.faults == ()
        assert report.count == brute_count(model, {})
        evidence = {"x1": 1}
        worth = weights_of(model, evidence)
        expected = math.log10(math.fsum(worth.values())) if worth else -math.inf
        assert found.log10([evidence])[0] == pytest.approx(expected, abs=1e-9)
        within = bucketflow.circuit(model, evidence=evidence, method="search")
        assert within.log10()[0] == pytest.approx(expected, abs=1e-9)
        if worth:
            possible += 1
            assert worth[tuple(found.optimum([evidence])[1][0].tolist())] == pytest.approx(max(worth.values()))
            swept = bucketflow.circuit(model, method="buckets").derivatives(evidence)
            own = found.derivatives(evidence)
            assert own.keys() <= swept.keys()
            assert all(own[f] == pytest.approx(swept[f], nan_ok=True) for f in own)
    assert possible > 10


@SLOW
@given(st.booleans().flatmap(formulas))
def test_a_search_makes_circuits_of_formulas(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("formula")
    model = written(text, folder / "formula.cnf")
    bucketflow.circuit(model, method="search").save(folder / "circuit.nnf")
    report = bucketflow.check_circuit(bucketflow.load_circuit(folder / "circuit.nnf"), model)
    assert report.faults == ()
    assert report.count == brute_count(model, {})


def test_gates_of_a_search_go_to_disk_where_they_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n = np.random.default_rng(3), 24
    clauses = [rng.choice(n, 3, replace=False) + 1 for _ in range(60)]
    lines = [" ".join(map(str, clause * rng.choice([-1, 1], 3))) + " 0" for clause in clauses]
    model = written(f"p cnf {n} {len(lines)}\n" + "\n".join(lines), tmp_path / "random.cnf")
    whole = bucketflow.circuit(model, method="search")
    assert whole.graph.edges > 200
    monkeypatch.setattr("bucketflow.pipeline.gates.traced_circuit.EDGE_BYTES", 1 << 20)
    for name in ("stored.npz", "stored.nnf"):
        with pytest.raises(BudgetError, match=r"the circuit needs more than .* GB after .* allowed 64 MB"):
            bucketflow.circuit(model, method="search", memory="64MB")
        for most in (5, 20):
            with CircuitPolicy.using(stored_edges=most):
                found = bucketflow.circuit(model, method="search", memory="64MB", out=tmp_path / name)
            assert found.graph.parts is not None
            assert (found.graph.nodes, found.graph.edges) == (whole.graph.nodes, whole.graph.edges)
            assert found.count() == whole.count() > 0
            assert bucketflow.check_circuit(found, model).faults == ()
            read = bucketflow.load_circuit(tmp_path / name)
            assert read.count() == whole.count()
            assert bucketflow.check_circuit(read).faults == ()
    free = "bucketflow.pipeline.gates.gate_store.free_bytes"
    monkeypatch.setattr(free, lambda _: 1000)
    with (
        CircuitPolicy.using(stored_edges=5),
        pytest.raises(BudgetError, match=r"expected to take .* of disk, estimated at 100% of it, but .* has 1 kB free"),
    ):
        bucketflow.circuit(model, method="search", memory="64MB", out=tmp_path / "none.npz")
    assert not (tmp_path / "none.npz").exists()


def test_a_search_goes_first_where_buckets_are_wide(tmp_path: Path) -> None:
    """Each pair of 40 variables is in a clause: a clique, of which 41 assignments are possible."""
    pairs = [f"-{a} -{b} 0" for a in range(1, 41) for b in range(1, a)]
    model = written(f"p cnf 40 {len(pairs)}\n" + "\n".join(pairs), tmp_path / "clique.cnf")
    found, told = bucketflow.circuit(model), list[str]()
    assert found.origin is not None
    assert found.origin.method == "search"
    assert found.origin.most_bytes > 1 << 40
    assert f"{found.origin.decisions:,} decisions" in str(found.origin)
    assert found.count() == 41
    assert bucketflow.check_circuit(found, model).faults == ()
    with CircuitPolicy.using(first_turn_seconds=1e-9):
        again = bucketflow.circuit(model, report=told.append)
    assert again.count() == 41
    assert len(told) == 1
    assert "dense buckets would take" in told[0]


def test_turns_go_on_where_they_ended() -> None:
    model = bucketflow.load("diagnosis")
    whole = bucketflow.circuit(model)
    with CircuitPolicy.using(first_turn_seconds=1e-6):
        found = bucketflow.circuit(sparse(3))
        parts = bucketflow.circuit(model)
    assert found.log10() == pytest.approx(bucketflow.circuit(sparse(3), method="buckets").log10())
    assert parts.origin == whole.origin
    assert parts.log10() == pytest.approx(whole.log10())


@SLOW
@given(MODELS, st.data())
def test_evidence_that_a_circuit_is_made_with_holds(model: Model, data: st.DataObject) -> None:
    evidence = some_evidence(model, data)
    found = bucketflow.circuit(model, evidence=evidence)
    assert found.count() == brute_count(model, evidence)
    worth = weights_of(model, evidence)
    assert found.log10()[0] == pytest.approx(math.log10(math.fsum(worth.values())) if worth else -math.inf, abs=1e-9)


@SLOW
@given(st.booleans().flatmap(formulas))
def test_formulas_come_back_from_both_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("formula")
    model = written(text, folder / "formula.cnf")
    found = bucketflow.circuit(model)
    for name in ("circuit.npz", "circuit.nnf"):
        found.save(folder / name)
        read = bucketflow.load_circuit(folder / name)
        report = bucketflow.check_circuit(read, model)
        assert report.faults == ()
        assert report.count == brute_count(model, {})


@SLOW
@given(formulas(weighted=False), st.sampled_from(["buckets", "search"]))
def test_formulas_count_as_in_pysdd(tmp_path_factory: pytest.TempPathFactory, text: str, method: Any) -> None:
    sdd = pytest.importorskip("pysdd.sdd")
    assume(not text.startswith("p cnf 1 "))  # its reader ends the process at clauses of more literals than there are
    path = tmp_path_factory.mktemp("formula") / "formula.cnf"
    found = bucketflow.circuit(written(text, path), method=method)
    manager, root = sdd.SddManager.from_cnf_file(bytes(path))
    peer = root.wmc(log_mode=False).propagate()
    assert manager.var_count() == len(found.model.names)
    assert found.count() == peer


@pytest.mark.parametrize("method", ["buckets", "search"])
def test_formulas_count_as_in_klay(tmp_path: Path, method: Any) -> None:
    klay, jax = pytest.importorskip("klay"), pytest.importorskip("jax")
    text = "p cnf 5 5\n1 -2 3 0\n2 3 4 0\n-1 -4 0\n-3 5 2 0\n1 4 5 0\n"
    model = written(text, tmp_path / "formula.cnf")
    found = bucketflow.circuit(model, method=method)
    found.save(tmp_path / "formula.ddnnf")
    peer = klay.Circuit()
    peer.add_d4_from_file(str(tmp_path / "formula.ddnnf"))
    weigh, ones = peer.to_jax_function(semiring="log"), jax.numpy.zeros(5)
    assert round(math.exp(float(weigh(ones, ones)[0]))) == found.count()
    half = ones.at[0].set(math.log(0.5))
    expected = sum(0.5 if states[0] else 1.0 for states in weights_of(model, {}))
    assert math.exp(float(weigh(half, ones)[0])) == pytest.approx(expected, rel=1e-4)


@SLOW
@given(formulas(weighted=False), st.sampled_from(["buckets", "search"]))
def test_what_is_written_for_d4_has_the_same_assignments(
    tmp_path_factory: pytest.TempPathFactory, text: str, method: Any
) -> None:
    folder = tmp_path_factory.mktemp("formula")
    model = written(text, folder / "formula.cnf")
    found = bucketflow.circuit(model, method=method)
    with CircuitPolicy.using(stored_edges=3):
        found.save(folder / "formula.ddnnf")
    lines = [line.split() for line in (folder / "formula.ddnnf").read_text().splitlines()]
    kinds = {int(words[1]): words[0] for words in lines if words[0] in "oat"}
    assert [*kinds] == [*range(1, len(kinds) + 1)]
    edges: dict[int, list[tuple[int, list[int]]]] = {node: [] for node in kinds}
    for parent, child, *literals in (map(int, words) for words in lines if words[0] not in "oat"):
        edges[parent].append((child, literals[:-1]))

    def counted(node: int, states: tuple[int, ...]) -> int:
        parts = [
            all((literal > 0) == bool(states[abs(literal) - 1]) for literal in literals) * counted(child, states)
            for child, literals in edges[node]
        ]
        return sum(parts) if kinds[node] == "o" else math.prod(parts)

    names = found.graph.variables
    if not names.hidden:
        for states in product(range(2), repeat=len(names.dims)):
            assert counted(1, states) == (model.log10_value(states) > -math.inf)
    with pytest.raises(FormatError, match="written but not read"):
        bucketflow.load_circuit(folder / "formula.ddnnf")


def test_a_long_clause_is_a_chain_whose_variables_are_hidden(tmp_path: Path) -> None:
    model = written("p cnf 8 2\n1 2 3 4 5 6 7 8 0\n-1 -2 0\n", tmp_path / "long.cnf")
    with PreprocessingPolicy.using(chained_cells=16):
        found = bucketflow.circuit(model)
    assert found.graph.variables.hidden > 0
    assert found.count() == brute_count(model, {})
    assert found.optimum()[1].shape == (1, 8)
    assert set(found.marginals()) == set(model.names)


def test_derivatives_are_those_of_the_sweep_and_of_differences() -> None:
    model = grid(3, 3, 2, "markov")
    found = bucketflow.circuit(model).derivatives({"x0": 1})
    expected = bucketflow.marginals(model, evidence={"x0": 1}, derivatives=True).derivatives
    assert expected is not None
    for f, table in found.items():
        known = ~np.isnan(table)
        assert table[known] == pytest.approx(expected[f][known])
    (f, table), step = next(iter(found.items())), 1e-6
    values = model.functions[f].values.copy()
    at = tuple(np.argwhere(~np.isnan(table))[-1])
    values[at] += step
    moved = bucketflow.solve(
        model.with_functions({f: replace(model.functions[f], values=values)}), "partition", evidence={"x0": 1}
    )
    before = bucketflow.solve(model, "partition", evidence={"x0": 1})
    assert moved.log10 is not None
    assert before.log10 is not None
    assert (moved.log10 - before.log10) * math.log(10) / step == pytest.approx(table[at], rel=1e-4)


def test_draws_are_as_frequent_as_they_are_probable_and_the_same_for_a_seed() -> None:
    model = bucketflow.load("diagnosis")
    found = bucketflow.circuit(model)
    evidence = {"Storm": "yes", "PanelLamp": [0.1, 0.1, 0.8]}
    draws = found.sample(4000, evidence, seed=3)
    assert (draws == found.sample(4000, evidence, seed=3)).all()
    posteriors = bucketflow.marginals(model, evidence=evidence)
    for v, name in enumerate(model.names):
        frequent = np.bincount(draws[:, v], minlength=model.dims[v]) / len(draws)
        spread = np.sqrt(posteriors[name] * (1 - posteriors[name]) / len(draws))
        assert (abs(frequent - posteriors[name]) <= 4.9 * spread + 1e-12).all()  # a test in 10,000 fails by chance
    with pytest.raises(ModelError, match="nothing to draw from"):
        found.sample(1, {"Storm": [0.0, 0.0]})


def test_batches_agree_with_those_of_compiled_models_whatever_the_blocks() -> None:
    model = bucketflow.load("diagnosis")
    cases = {"Storm": ["no", "yes", None, "no"], "Flow": np.array([[1.0, 0.5, 0.1]] * 4)}
    expected = bucketflow.compile(model).marginals_batch(cases)
    for size in (1, 1 << 24):
        with CircuitPolicy.using(batch_bytes=size):
            found = bucketflow.circuit(model).marginals(cases)
        assert found.log10_evidence == pytest.approx(expected.log10_evidence)
        for name in model.names:
            assert found[name] == pytest.approx(expected[name])


def test_another_array_module_gives_the_same() -> None:
    """What a GPU runs: the module that is handed in, whose additions at places that come twice are its own."""
    other = SimpleNamespace(**vars(np))
    graph = bucketflow.circuit(bucketflow.load("diagnosis")).graph
    leaves = np.zeros((graph.n_leaves, 3))
    leaves[graph.n_indicators :] = np.log(graph.values)[:, np.newaxis]
    leaves[:2, 1:] = np.log(0.5), -np.inf
    for maximum in (False, True):
        values = [log_values(graph, graph.layers, leaves, maximum, xp) for xp in (np, other)]
        assert (values[0] == values[1]).all()
    found = [flows(graph, graph.layers, values[0], xp) for xp in (np, other)]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
    walks = [walk_down(graph, graph.layers, values[0], 3, best, xp) for xp in (np, other)]
    assert (walks[0] == walks[1]).all()


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    found = bucketflow.circuit(bucketflow.load("diagnosis"))
    cases = {"Storm": ["no", "yes", None]}
    assert found.log10(cases, gpus=1) == pytest.approx(found.log10(cases))
    assert (found.optimum(cases, gpus=1)[1] == found.optimum(cases)[1]).all()
    here, there = found.marginals(cases), found.marginals(cases, gpus=1)
    assert all(there[name] == pytest.approx(here[name]) for name in here)
    assert found.derivatives(gpus=1)[0] == pytest.approx(found.derivatives()[0], nan_ok=True)
    assert (found.sample(20, seed=2, gpus=1) == found.sample(20, seed=2)).all()


# Circuits that are broken on purpose: the check has to see it.


def broken(graph: CircuitGraph, model: Model, **changes: Any) -> tuple[str, ...]:
    gates = replace(graph.gates, **changes)
    return bucketflow.check_circuit(Circuit(replace(graph, gates=gates)), model).faults


@pytest.fixture(scope="module")
def formula(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, CircuitGraph]:
    text = "p cnf 4 3\n1 2 0\n-2 3 0\n-3 4 1 0\n"
    model = written(text, tmp_path_factory.mktemp("broken") / "formula.cnf")
    return model, bucketflow.circuit(model).graph


def test_every_exchanged_child_is_seen(formula: tuple[Model, CircuitGraph]) -> None:
    """A circuit with another child somewhere is another function, or is not smooth, deterministic or decomposable."""
    model, graph = formula
    told: set[str] = set()
    whole = {tuple(s) for s in assignments(model, {}) if model.log10_value(s) > -math.inf}
    parents = np.repeat(np.arange(len(graph.gates)) + graph.n_leaves, graph.gates.arities)
    for place, parent in enumerate(parents.tolist()):
        for child in range(parent):
            children = graph.gates.children.copy()
            children[place] = child
            faults = broken(graph, model, children=children)
            if child != graph.gates.children[place] and not faults:
                other = Circuit(replace(graph, gates=replace(graph.gates, children=children)))
                logs = other.log10({name: [s[v] for s in assignments(model, {})] for v, name in enumerate(model.names)})
                assert {s for s, log in zip(assignments(model, {}), logs, strict=True) if log > -np.inf} == whole
            told.update(fault.rpartition(": ")[2] for fault in faults)
    assert {"not smooth", "not deterministic", "not decomposable"} <= told


def test_a_check_of_a_large_circuit_draws_more_than_one_assignment() -> None:
    """A fault can spare the assignment that is drawn alone."""

    def weighted(weights: np.ndarray[Any, Any]) -> Model:
        return Model.build("markov", {"a": 3, "b": 3}, [(["a", "b"], weights)])

    weights = np.ones((3, 3))
    found = bucketflow.circuit(weighted(weights))
    with CircuitPolicy.using(batch_bytes=1):
        (alone,) = found.sample(1).tolist()
        (faulty,) = [draw for draw in found.sample(2).tolist() if draw != alone]
        weights[tuple(faulty)] = 2.0
        faults = bucketflow.check_circuit(found, weighted(weights)).faults
    assert any(fault.startswith("log10 of {") for fault in faults)


def test_a_circuit_of_another_model_is_seen(formula: tuple[Model, CircuitGraph], tmp_path: Path) -> None:
    _, graph = formula
    stricter = written("p cnf 4 4\n1 2 0\n-2 3 0\n-3 4 1 0\n-1 -4 0\n", tmp_path / "stricter.cnf")
    faults = bucketflow.check_circuit(Circuit(graph), stricter).faults
    assert any("which function 3 forbids" in fault for fault in faults)
    assert any("assignments, the model" in fault for fault in faults)
    looser = written("p cnf 4 1\n1 2 0\n", tmp_path / "looser.cnf")
    assert any("assignments, the model" in fault for fault in bucketflow.check_circuit(Circuit(graph), looser).faults)
    with pytest.raises(ModelError, match="different variables"):
        bucketflow.check_circuit(Circuit(graph), grid(2, 2, 2, "markov"))


@pytest.mark.parametrize("method", ["buckets", "search"])
@pytest.mark.parametrize("constant", [None, 0.5, 0.0])
def test_a_model_without_variables_has_a_circuit(constant: float | None, method: Any) -> None:
    model = Model.build("markov", {}, [] if constant is None else [((), constant)])
    circuit = bucketflow.circuit(model, method=method)
    with np.errstate(divide="ignore"):
        assert circuit.log10().tolist() == pytest.approx([np.log10(1.0 if constant is None else constant)])
    assert circuit.count() == int(constant != 0.0)
    assert bucketflow.check_circuit(circuit, model).ok


@pytest.mark.parametrize("method", ["auto", "buckets", "search"])
def test_a_function_that_lists_all_of_its_assignments_as_impossible_leaves_none(method: Any) -> None:
    clause = (["b", "c"], [[0, 0], [1, 1]], [0.0, 0.0], 1.0)
    for scope, rows in ((["a"], [[0]]), (["a", "b"], [[0, 0], [0, 1]])):
        model = Model.build("markov", {"a": 1, "b": 2, "c": 2}, [(scope, rows, [0.0] * len(rows), 1.0), clause])
        made = bucketflow.circuit(model, method=method)
        assert (made.count(), made.log10().tolist()) == (0, [-math.inf])


def test_other_weights_are_seen() -> None:
    model = grid(2, 3, 2, "markov")
    graph = bucketflow.circuit(model).graph
    values = graph.values.copy()
    values[0] *= 1.001
    (draw, total) = bucketflow.check_circuit(Circuit(replace(graph, values=values)), model).faults
    assert "in the circuit" in draw
    assert "circuit's sum" in total


# What is refused.


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bucketflow.circuit(bucketflow.load("satellite")), "this model has costs"),
        (lambda: bucketflow.circuit(bucketflow.load("diagnosis"), workers=2), "'workers' does not apply"),
        (lambda: bucketflow.circuit(bucketflow.load("diagnosis"), evidence={"Storm": [0.5, 0.5]}), "soft evidence"),
        (lambda: bucketflow.circuit(bucketflow.load("diagnosis"), method="sweep"), "built by auto, buckets, search"),
        (lambda: bucketflow.circuit(bucketflow.load("diagnosis")).save("circuit.sdd"), "written to .npz or .nnf"),
        (lambda: bucketflow.circuit(bucketflow.load("diagnosis")).save("circuit.nnf"), "'Season' has 4 states"),
        (lambda: bucketflow.circuit(grid(2, 2, 2, "markov")).save("circuit.nnf"), "weighs 2 variables"),
        (lambda: bucketflow.circuit(grid(2, 2, 2, "markov")).log10(gpus=2), "on one GPU"),
        (lambda: bucketflow.circuit(grid(2, 2, 2, "markov")).sample(-1), "the number of draws"),
        (lambda: bucketflow.check_circuit(bucketflow.circuit(grid(2, 2, 2, "markov")), grid(2, 2, 2)), "has costs"),
        (lambda: bucketflow.circuit(grid(2, 2, 2, "markov")).log10({"z": [1]}), "cases name 'z'"),
    ],
)
def test_what_does_not_go_is_one_sentence(ask: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ask()


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(BudgetError, match=r"needs at least [\d.]+ kB with bucket .* at most [\d.]+ kB, allowed 50 kB"):
        bucketflow.circuit(bucketflow.load("diagnosis"), memory=50_000)


@pytest.mark.parametrize("memory", ["60kB", "250kB"])
def test_gates_that_do_not_fit_memory_are_on_disk_and_read_from_the_file(tmp_path: Path, memory: str) -> None:
    """Of a bucket that does not fit at once, either, each state of a variable is done apart."""
    model, path = grid(4, 4, 3, "markov", seed=2), tmp_path / "grid.npz"
    whole = bucketflow.circuit(model)
    with CircuitPolicy.using(stored_edges=500):
        found = bucketflow.circuit(model, memory=memory, out=path)
    graph = found.graph
    assert graph.parts is not None
    assert len(graph.parts) > 10
    assert isinstance(graph.gates.children, np.memmap)
    assert (graph.nodes, graph.edges) >= (whole.graph.nodes, whole.graph.edges)
    assert bucketflow.check_circuit(found, model).lines()[0].endswith("its assignments and its sum equal the model's")
    cases = {"x0": [0, 1, None], "x5": [2, None, None]}
    assert found.log10(cases) == pytest.approx(whole.log10(cases))
    assert found.marginals(cases)["x10"] == pytest.approx(whole.marginals(cases)["x10"])
    assert found.optimum(cases)[0] == pytest.approx(whole.optimum(cases)[0])
    assert found.count() == whole.count() == 3**16
    for f, table in whole.derivatives().items():
        assert found.derivatives()[f] == pytest.approx(table)
    again = bucketflow.load_circuit(path)
    again.save(tmp_path / "again.npz")
    assert bucketflow.load_circuit(tmp_path / "again.npz").log10(cases).tolist() == found.log10(cases).tolist()
    with pytest.raises(BudgetError, match=r"the circuit needs at least .* allowed"):
        bucketflow.circuit(model, memory=memory)
    wrong = replace(graph, parts=np.array([0, len(graph.gates)]))
    write_circuit(wrong, path := tmp_path / "wrong.npz")
    with pytest.raises(FormatError, match="comes before one of its children"):
        bucketflow.load_circuit(path)


def test_text_is_written_from_gates_on_disk(tmp_path: Path) -> None:
    model, whole, path = grid(5, 5, 2, "markov", seed=2), tmp_path / "whole.nnf", tmp_path / "stored.nnf"
    model = Model("markov", model.names, model.dims, model.states, tuple(map(_no_weights, model.functions)))
    bucketflow.circuit(model, method="buckets").save(whole)
    with CircuitPolicy.using(stored_edges=50):
        found = bucketflow.circuit(model, method="buckets", memory="30kB", out=path)
        assert found.graph.parts is not None
        assert isinstance(found.graph.gates.children, np.memmap)
        read = bucketflow.load_circuit(path)
        assert bucketflow.check_circuit(read).ok
        assert read.count() == found.count() == bucketflow.solve(model, "count").value > 0
        again = bucketflow.load_circuit(whole)
        again.save(tmp_path / "again.nnf")
    again.save(tmp_path / "together.nnf")
    assert (tmp_path / "again.nnf").read_text() == (tmp_path / "together.nnf").read_text()


def _no_weights(function: Function) -> Function:
    allowed = np.ones(function.values.shape)
    allowed[(0,) * (allowed.ndim > 1)] = 1.0 if allowed.ndim < 2 else [0.0, 1.0]
    return function.changed(values=allowed, default=0.0)


def test_disk_is_priced_before_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first bucket it is known about how much all of them take."""
    written: list[int] = []
    monkeypatch.setattr(StoredGates, "append", lambda self, *block: written.append(len(block[1])))
    monkeypatch.setattr("bucketflow.pipeline.gates.gate_store.free_bytes", lambda folder: 20_000)
    with pytest.raises(
        BudgetError,
        match=r"expected to take [\d.]+ kB of disk, estimated at \d+% of it, but .* has "
        r"20 kB free",
    ):
        bucketflow.circuit(grid(4, 4, 3, "markov", seed=2), memory="60kB", out=tmp_path / "grid.npz")
    assert not written


def test_a_circuit_whose_gates_are_on_disk_may_be_impossible(tmp_path: Path) -> None:
    model = Model.build(
        "markov", {"a": 2, "b": 2}, [(("a", "b"), [[1, 0], [0, 1]]), (("a",), [1, 0]), (("b",), [0, 1])]
    )
    found = bucketflow.circuit(model, out=tmp_path / "none.npz")
    assert (found.log10()[0], found.count()) == (-math.inf, 0)


def test_a_disk_without_room_is_told_before_gates_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketflow.pipeline.gates.gate_store.free_bytes", lambda _: 1000)
    with (
        CircuitPolicy.using(disk_margin=math.inf),
        pytest.raises(BudgetError, match=r"of disk by now, but .* has 1 kB left"),
    ):
        bucketflow.circuit(grid(4, 4, 3, "markov"), memory="60kB", out=tmp_path / "grid.npz")


def test_a_model_of_too_many_clauses_is_refused_by_the_search() -> None:
    with QueryPolicy.using(formula_literals=10), pytest.raises(ModelError, match="too many clauses"):
        bucketflow.circuit(bucketflow.load("diagnosis"), method="search")


def test_a_search_that_does_not_fit_is_refused_with_both_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    clauses = [" ".join(map(str, rng.choice([-1, 1], 3) * (1 + rng.choice(60, 3, replace=False)))) for _ in range(120)]
    model = written("p cnf 60 120\n" + "".join(f"{clause} 0\n" for clause in clauses), tmp_path / "random.cnf")
    with pytest.raises(BudgetError, match=r"by search: the circuit needs more than .* decisions .* allowed 4 MB"):
        bucketflow.circuit(model, method="search", memory=4_000_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header 'nnf NODES EDGES VARIABLES', found none"),
        ("nnf 1 0\nL 1\n", ":1: expected a header"),
        ("nnf 2 0 1\nL 1\n", "expected 2 nodes"),
        ("nnf 1 0 1\nL 2\n", ":2: expected a line 'L literal'"),
        ("nnf 2 1 1\nL 1\nA 1 1\n", ":3: expected children from 0 to 0"),
        ("nnf 2 1 1\nL 1\nA 2 0\n", ":3: expected 2 children"),
        ("nnf 1 0 1\nX 1\n", ":2: expected a line"),
        ("nnf 1 0 1\nL x\n", ":2: expected numbers"),
        ("nnf 1 0 1\nL 1\nc p weight 1 -2 0\n", ":3: expected a literal and its weight"),
    ],
)
def test_malformed_text_is_refused_by_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "circuit.nnf"
    path.write_text(text)
    with pytest.raises(FormatError) as refused:
        bucketflow.load_circuit(path)
    assert message in str(refused.value)


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "circuit.npz"
    bucketflow.circuit(grid(2, 2, 2, "markov")).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for name, change in (("children", 10**6), ("children", -9), ("indicators", 5), ("values", -9.0), ("starts", 1)):
        np.savez(path, **{**arrays, name: arrays[name] + change})
        with pytest.raises(FormatError, match=r"this is not a circuit, or it is damaged \(ValueError"):
            bucketflow.load_circuit(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FormatError, match="this is not a circuit"):
        bucketflow.load_circuit(path)
    with pytest.raises(FormatError, match="no such file"):
        bucketflow.load_circuit(tmp_path / "none.npz")


def test_text_of_other_programs_is_read(tmp_path: Path) -> None:
    """As c2d writes x1 or x2, where the sum's decision is told and literals stand deeper."""
    path = tmp_path / "circuit.nnf"
    path.write_text(
        "c made by hand\nnnf 8 8 2\nL 1\nL -1\nL 2\nL -2\nO 2 2 2 3\nA 2 0 4\nA 2 1 2\nO 1 2 5 6\nc p weight 1 0.5 0\n"
    )
    found = bucketflow.load_circuit(path)
    assert bucketflow.check_circuit(found).faults == ()
    assert found.count() == 3
    assert 10 ** found.log10()[0] == pytest.approx(0.5 * 2 + 1)


# The command line.


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.output


def test_commands_compile_check_and_evaluate(tmp_path: Path) -> None:
    out, cases = str(tmp_path / "circuit.npz"), tmp_path / "cases.csv"
    code, said = run("circuit", "diagnosis", "-o", out, "--json")
    assert code == 0
    assert json.loads(said)["method"] == "buckets"
    assert json.loads(said)["nodes"] == bucketflow.load_circuit(out).graph.nodes
    code, said = run("check", "circuit", out, "diagnosis")
    assert code == 0
    assert "its assignments and its sum equal the model's" in said
    assert json.loads(run("check", "circuit", out, "--json")[1])["compared"] is False
    model = bucketflow.load("diagnosis")
    log10 = bucketflow.solve(model, "partition", evidence={"Storm": "yes"}).log10
    cases.write_text("Storm\nyes\nno\n")
    for asked in (["--evidence", "Storm=yes"], ["--cases", str(cases)]):
        for query, key in (("partition", "log10"), ("marginals", "log10_evidence")):
            code, said = run("evaluate", out, "--query", query, "--json", *asked)
            assert code == 0
            assert json.loads(said)[key][0] == pytest.approx(log10)
        best = json.loads(run("evaluate", out, "--query", "optimum", "--json", *asked)[1])
        assert best["assignments"][0] == bucketflow.solve(model, evidence={"Storm": "yes"}).assignment
    assert json.loads(run("evaluate", out, "--query", "count", "--json")[1])["count"] > 0
    drawn = json.loads(run("evaluate", out, "--query", "sample", "--samples", "2", "--json")[1])
    assert len(drawn["samples"]) == 2
    assert "log10" in run("evaluate", out)[1]


def test_commands_refuse(tmp_path: Path) -> None:
    out = str(tmp_path / "circuit.npz")
    assert run("circuit", "diagnosis", "-o", str(tmp_path / "circuit.txt"))[0] == 2
    assert run("circuit", "diagnosis", "-o", out, "--memory", "5kB")[0] == 3
    assert run("circuit", "diagnosis", "-o", out, "--method", "sweep")[0] == 2
    assert run("circuit", "diagnosis", "-o", out)[0] == 0
    for wrong in (["--samples", "2"], ["--query", "sample"], ["--query", "count", "--evidence", "Storm=yes"]):
        assert run("evaluate", out, *wrong)[0] == 2
    code, said = run("check", "circuit", out, "grid")
    assert code == 2
    assert "different variables" in said


@pytest.mark.parametrize("method", ["buckets", "search", "auto"])
@pytest.mark.parametrize(("rows", "values", "constant"), [([[]], [3.0], 3.0), (np.empty((0, 0)), [], 2.0)])
def test_constants_by_rows_and_a_default(method: Any, rows: Any, values: list[float], constant: float) -> None:
    model = Model.build("markov", {"x": 2}, [(("x",), [0.25, 0.5]), ((), rows, values, 2.0)])
    found = bucketflow.circuit(model, method=method)
    assert 10 ** float(found.log10()[0]) == pytest.approx(0.75 * constant)
    assert bucketflow.check_circuit(found, model).faults == ()
