"""Marginal MAP: the best states of some variables by the sum over all others, against brute force."""

from __future__ import annotations

import json
import lzma
import math
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError
from bucketflow.pipeline.answering.answer_question import solved
from bucketflow.pipeline.answering.engines.inner_bounds import InnerBounds
from bucketflow.pipeline.answering.engines.outer_search import OuterSearch, outer_search
from bucketflow.pipeline.answering.engines.request import QueryRequest
from bucketflow.pipeline.answering.engines.strategy_policy import POLICY, OuterPolicy
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cost_networks.cost_network import CostTable
from bucketflow.pipeline.minibuckets.joins import BucketPolicy
from bucketflow.pipeline.minibuckets.loss_search import LossSearch
from bucketflow.pipeline.minibuckets.mixed_bound import MixedBound
from bucketflow.pipeline.minibuckets.partition import Size, partition
from bucketflow.pipeline.models.findings import most_log10
from bucketflow.pipeline.options import Options, ProofOptions
from bucketflow.pipeline.preprocessing.leaf_tables import energy_leaves, in_scopes
from bucketflow.tasks.compiler.compile_limits import NotCompiledError
from tests.models import assignments, bayes_models, grid, markov_models
from tests.strategies import NEVER_QUICK, solve_by


def sums_by_states(model: Model, wanted: Collection[int], evidence: dict[str, int]) -> dict[tuple[int, ...], float]:
    """log10 of the sum over all assignments with some states of the wanted variables, by looking at all."""
    logs = defaultdict[tuple[int, ...], list[float]](list)
    for states in assignments(model, evidence):
        logs[tuple(states[v] for v in sorted(wanted))].append(model.log10_value(states))
    tops = {key: max(found) for key, found in logs.items()}
    return {
        key: top + math.log10(math.fsum(10 ** (v - top) for v in logs[key])) if top > -math.inf else top
        for key, top in tops.items()
    }


def check(model: Model, wanted: Collection[int], evidence: dict[str, int], found: bucketflow.Result) -> None:
    sums = sums_by_states(model, wanted, evidence)
    best = max(sums.values())
    if best == -math.inf:
        assert (found.query, found.status, found.assignment) == ("mmap", "infeasible", None)
        return
    assert (found.query, found.status) == ("mmap", "optimal")
    assert found.log10 == pytest.approx(best, rel=1e-9, abs=1e-9)
    states = found.assignment or {}
    assert list(states) == [model.names[v] for v in sorted(wanted)]
    assert sums[tuple(int(states[model.names[v]]) for v in sorted(wanted))] == pytest.approx(best, rel=1e-9, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_the_best_states_and_their_sum(model: Model, data: Any) -> None:
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1), min_size=1))
    observed = data.draw(st.sets(st.integers(0, len(model.dims) - 1), max_size=2))
    evidence = {model.names[v]: data.draw(st.integers(0, model.dims[v] - 1)) for v in observed}
    asked = {
        "tree": data.draw(st.sampled_from(["refined", "bucket", "junction"])),
        "method": data.draw(st.sampled_from(["auto", "dense", "rows", "diagram", "search"])),
    }
    maximize = [model.names[v] for v in wanted]
    found = bucketflow.solve(model, "mmap", maximize=maximize, evidence=evidence, **asked)  # type: ignore[arg-type]
    check(model, wanted, evidence, found)


@pytest.mark.parametrize("kind", ["markov", "steep"])
@pytest.mark.parametrize("policy", [NEVER_QUICK, POLICY])
def test_grids(kind: str, policy: Any) -> None:
    model, wanted = grid(3, 4, 2, kind), (0, 5, 7, 11)
    found = solve_by(policy, model, "mmap", maximize=[model.names[v] for v in wanted])
    check(model, wanted, {}, found)


def test_soft_evidence() -> None:
    model = grid(2, 3, 2, "markov")
    soft = {"x0": [0.1, 0.9], "x4": [0.5, 0.2]}
    likelihoods = [((name,), np.array(values)) for name, values in soft.items()]
    functions = [(tuple(model.names[v] for v in f.scope), f.values) for f in model.functions]
    weighted = Model.build("markov", dict.fromkeys(model.names, 2), [*functions, *likelihoods])
    expected = bucketflow.solve(weighted, "mmap", maximize="x0,x5")
    found = bucketflow.solve(model, "mmap", maximize=["x0", "x5"], evidence=soft)
    assert found.log10 == pytest.approx(expected.log10)
    assert found.assignment == expected.assignment


def test_values_far_from_1_are_no_impossible_ones() -> None:
    """Entries of one table that no float holds beside each other."""
    names = {"a": 2, "b": 2, "h": 2, **{f"s{k}": 2 for k in range(9)}}
    steep = [((f"s{k}", "a"), np.array([[1e-100, 1.0], [1e-100, 1e-3]])) for k in range(9)]
    only = [(("a",), np.array([1.0, 0.0])), (("a", "b", "h"), np.ones((2, 2, 2)) * [0.25, 0.5])]
    model = Model.build("markov", names, [*steep, *only])
    found = bucketflow.solve(model, "mmap", maximize="a,b")
    assert found.log10 == pytest.approx(9 * (math.log10(2) - 100) + math.log10(0.75))
    assert (found.assignment or {})["a"] == 0


def test_budgets_are_kept() -> None:
    """A star whose centre is summed out leaves a table over all points."""
    rng = np.random.default_rng(1)
    names = {"centre": 2, **{f"p{k}": 2 for k in range(14)}}
    model = Model.build("markov", names, [(("centre", f"p{k}"), rng.random((2, 2))) for k in range(14)])
    points = [f"p{k}" for k in range(14)]
    assert bucketflow.plan(model, "mmap", maximize=points).cost.width == 14
    check(model, range(1, 15), {}, bucketflow.solve(model, "mmap", maximize=points))
    with pytest.raises(BudgetError, match=r"needs .*kB, allowed 20 kB"):
        bucketflow.solve(model, "mmap", maximize=points, memory=20_000)


def test_what_is_no_marginal_map_is_refused() -> None:
    model = grid(2, 2, 2, "markov")
    with pytest.raises(ModelError, match="the query mmap needs the variables to maximise over: give maximize"):
        bucketflow.solve(model, "mmap")
    with pytest.raises(ModelError, match="maximize goes with the query mmap, not with the optimum"):
        bucketflow.solve(model, maximize=["x0"])
    with pytest.raises(ModelError, match="'y' is not a variable of the model"):
        bucketflow.solve(model, "mmap", maximize=["y"])
    with pytest.raises(ModelError, match="a cost network has no sums to maximise"):
        bucketflow.solve(grid(2, 2, 2), "mmap", maximize=["x0"])
    with pytest.raises(ModelError, match="upper_bound is for the optimum, not for the mmap"):
        bucketflow.solve(model, "mmap", maximize=["x0"], upper_bound=-1)
    with pytest.raises(
        ModelError, match="the order eliminates 'x3' too early; give the variables of project or maximize after"
    ):
        bucketflow.solve(model, "mmap", maximize=["x3"], order=["x3", "x0", "x1", "x2"])


@pytest.mark.parametrize("effort", [{}, {"time": 0.0}], ids=["swept", "bounded"])
def test_run_directories_keep_the_question(effort: dict[str, float], tmp_path: Path) -> None:
    bucketflow.save(grid(3, 3, 2, "markov"), tmp_path / "model.uai")
    model = bucketflow.load(tmp_path / "model.uai")
    found = bucketflow.solve(model, "mmap", maximize=["x1", "x4"], workdir=tmp_path / "run", **effort)
    asked = bucketflow.solve(model, "mmap", maximize=["x1", "x4"], workdir=tmp_path / "run", **effort)
    again = bucketflow.resume(tmp_path / "run")
    assert isinstance(again, bucketflow.Result)
    if effort:  # how much is known after no time depends on the machine
        most = bucketflow.solve(model, "mmap", maximize=["x1", "x4"]).log10
        assert most is not None
        assert all(one.log10 is None or one.log10 <= most + 1e-9 for one in (found, asked, again))
    else:
        assert asked.log10 == again.log10 == found.log10
        assert again.assignment == found.assignment
    for one in (found, asked, again):
        if not effort or one.status == "optimal":
            check(model, (1, 4), {}, one)


@pytest.mark.parametrize("packed", [False, True])
def test_the_command_line_reads_files(packed: bool, tmp_path: Path) -> None:
    (tmp_path / "small.uai").write_text("MARKOV\n2\n2 3\n1\n2 0 1\n6\n0.3 0.15 0.15 0.4 0 0\n")
    text, listed = "# MAP variables for small.uai; count = 1\n1\n0\n", tmp_path / "small.uai.map"
    if packed:
        listed = tmp_path / "small.uai.map.xz"
        listed.write_bytes(lzma.compress(text.encode()))
    else:
        listed.write_text(text)
    asked = [str(tmp_path / "small.uai"), "--query", "mmap", "--maximize", str(listed), "--json"]
    found = json.loads(CliRunner().invoke(main, ["solve", *asked]).stdout)
    assert (found["query"], found["status"], found["assignment"]) == ("mmap", "optimal", {"x0": 0})
    assert found["log10"] == pytest.approx(math.log10(0.6))
    assert json.loads(CliRunner().invoke(main, ["plan", *asked]).stdout)["plan"]["width"] == 1


@pytest.mark.parametrize("text", ["", "2\n0\n", "1\n7\n", "2\n0 0\n", "1\nz\n", "-1\n"])
def test_files_that_are_no_lists_of_variables(text: str, tmp_path: Path) -> None:
    listed = tmp_path / "x.map"
    listed.write_text(text)
    with pytest.raises(bucketflow.FormatError, match=r"x\.map"):
        bucketflow.solve(grid(2, 2, 2, "markov"), "mmap", maximize=listed)


@settings(max_examples=60, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_bounds_hold_the_best_sum(model: Model, data: Any) -> None:
    """Mini-buckets of every size, as if the sums did not fit."""
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1), min_size=1))
    question = question_of(model, "mmap", maximize=[model.names[v] for v in wanted])
    if not question.reduced[0].leaves or not question.reduced[0].feasible:
        return
    request = QueryRequest(question, Options(), ProofOptions(gap=data.draw(st.sampled_from([0.0, 0.5]))), ask=solved)
    with OuterPolicy.using(circuit_share=data.draw(st.sampled_from([0.0, 0.125]))):
        found = InnerBounds(request, "it was asked for").run()
    best = max(sums_by_states(model, wanted, {}).values())
    if best == -math.inf:
        assert found.status == "infeasible" or found.assignment is None
        return
    assert found.proof is not None
    assert found.proof.upper >= best - 1e-9 * (1 + abs(best))
    if found.log10 is not None:
        assert found.log10 <= best + 1e-9 * (1 + abs(best))
        states = tuple(int((found.assignment or {})[model.names[v]]) for v in sorted(wanted))
        assert sums_by_states(model, wanted, {})[states] == pytest.approx(found.log10, rel=1e-9, abs=1e-9)
    if found.status == "optimal":
        assert found.log10 == pytest.approx(best, rel=1e-8, abs=1e-8)


def test_a_time_is_answered_with_two_bounds(tmp_path: Path) -> None:
    """A grid of which the states of one diagonal are summed out: a table over more than fits."""
    bucketflow.save(grid(9, 9, 2, "markov"), tmp_path / "grid.uai")
    model = bucketflow.load(tmp_path / "grid.uai")
    maximize = [f"x{v}" for v in range(81) if v % 3]
    with pytest.raises(BudgetError, match=r"allowed 5 MB.*; --time gives a lower and an upper bound instead"):
        bucketflow.solve(model, "mmap", maximize=maximize, memory="5MB")
    found = bucketflow.solve(model, "mmap", maximize=maximize, memory="5MB", gap=0.9)
    assert found.proof is not None
    assert found.log10 is not None
    assert found.log10 <= found.proof.upper
    assert any("the sum is bounded, not exact" in note for note in found.notes) or found.status == "optimal"
    asked = [
        "solve",
        str(tmp_path / "grid.uai"),
        "--query",
        "mmap",
        "--maximize",
        ",".join(maximize),
        "--memory",
        "5MB",
    ]
    assert CliRunner().invoke(main, asked).exit_code == 3
    assert CliRunner().invoke(main, [*asked, "--gap", "0.9"]).exit_code == 0


@pytest.mark.parametrize("name", ["climbed", "part"])
def test_searches_whose_loops_are_not_compiled_in_time_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> Any:
        raise NotCompiledError("run_stage")

    question = question_of(grid(4, 4, 2, "markov"), "mmap", maximize=[f"x{v}" for v in range(16) if v % 3])
    monkeypatch.setattr(OuterSearch, name, late)
    with OuterPolicy.using(bits=(1,)):
        found = InnerBounds(QueryRequest(question, Options(), ProofOptions(), ask=solved), "it was asked for").run()
    assert found.proof is not None
    assert found.log10 is not None
    assert found.log10 <= found.proof.upper
    if name == "climbed":
        assert any("run_stage is not compiled" in note for note in found.notes)


@settings(max_examples=40, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_a_search_climbs_on_exact_sums(model: Model, data: Any) -> None:
    """Sums at any states differ from those of an enumeration by what is the same for all; no climb goes down."""
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1), min_size=1))
    question = question_of(model, "mmap", maximize=[model.names[v] for v in wanted])
    network = question.reduced[0]
    outer = [network.local[v] for v in sorted(wanted) if v in network.local]
    search = outer_search(network, outer, 1 << 30, seed=0)
    if search is None or not network.feasible:
        return
    sums = sums_by_states(model, wanted, {})

    def exact(states: dict[int, int]) -> float:
        """The sum at local states, the others where they are the only ones or as good as any."""
        full = {v: int(network.domains[v][states[network.local[v]] if v in network.local else 0]) for v in wanted}
        return sums[tuple(full[v] for v in sorted(wanted))] * math.log(10)

    gaps = []
    for _ in range(4):
        states = {v: data.draw(st.integers(0, network.dims[v] - 1)) for v in outer}
        value = search.value(states)
        assert (value == -math.inf) == (exact(states) == -math.inf)
        if value > -math.inf:
            gaps.append(exact(states) - value)
    assert gaps == pytest.approx(gaps[:1] * len(gaps), rel=1e-9, abs=1e-9)
    start = dict.fromkeys(outer, 0)
    found = search.climbed(start, bool, patience=3)
    assert search.value(found) >= search.value(start)


def test_no_sum_of_a_network_is_above_1() -> None:
    """States that are certain are proved at once, though the sums are not."""
    rng = np.random.default_rng(0)
    names = {f"x{k}": 2 for k in range(30)}
    sure = [((f"x{k}",), [0.0, 1.0]) for k in range(10)]
    parents = [(f"x{k}", f"x{k - 7}", f"x{k - 10}") for k in range(10, 30)]
    tables = rng.random((20, 2, 2, 2))
    tables /= tables.sum(axis=1, keepdims=True)
    others = [((*scope[1:], scope[0]), np.moveaxis(t, 0, -1)) for scope, t in zip(parents, tables, strict=True)]
    model = Model.build("bayes", names, [*sure, *others])
    question = question_of(model, "mmap", maximize=[f"x{k}" for k in range(8)])
    found = InnerBounds(QueryRequest(question, Options(), ProofOptions(), ask=solved), "it was asked for").run()
    assert found.proof is not None
    assert (found.status, found.proof.method) == ("optimal", "the total")
    assert found.log10 == pytest.approx(0.0, abs=1e-9)
    assert found.assignment == {f"x{k}": 1 for k in range(8)}


@settings(max_examples=40, deadline=None)
@given(bayes_models(), st.data())
def test_what_a_network_sums_to_at_most(model: Model, data: Any) -> None:
    """Also where rows sum to something else: a decision that has no probabilities has rows of ones."""
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1)))
    factors = data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=len(model.dims), max_size=len(model.dims)))
    scaled = [
        f.changed(values=f.values * c, default=f.default * c) for f, c in zip(model.functions, factors, strict=True)
    ]
    model = replace(model, functions=tuple(scaled))
    total = np.ones(())
    for f in model.functions:
        order = sorted(range(len(f.scope)), key=f.scope.__getitem__)
        shape = [d if v in f.scope else 1 for v, d in enumerate(model.dims)]
        total = total * f.dense(model.dims).transpose(order).reshape(shape)
    sums = total.sum(axis=tuple({*range(len(model.dims))} - wanted))
    most = most_log10(model, (), wanted)
    assert most is not None
    assert sums.max() <= 10**most * (1 + 1e-9)
    if not wanted:  # rows of one sum each leave nothing to lose
        assert sums == pytest.approx(10**most)


@settings(max_examples=40, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_every_pass_bounds_all_sums(model: Model, data: Any) -> None:
    """Mini-buckets of few cells, however their shares and weights were moved, for each of the states that are left."""
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1), min_size=1))
    question = question_of(model, "mmap", maximize=[model.names[v] for v in wanted])
    network = question.reduced[0]
    if not network.leaves or not network.feasible:
        return
    outer = [v for v, variable in enumerate(network.variables) if variable in wanted]
    order = [*(v for v in range(len(network.dims)) if v not in outer), *outer]
    energies = zip(network.scopes, in_scopes(network, energy_leaves), strict=True)
    tables = [CostTable(scope, -table) for scope, table in energies]
    split = partition(network.dims, network.scopes, order, Size(cells=data.draw(st.sampled_from([2, 8]))))
    passes = data.draw(st.integers(0, 5))
    bound = MixedBound(split, tables, outer)
    above = bound.improve(iter([False] * passes + [True] * 2).__next__, patience=9)
    sums = {
        states: float(np.logaddexp.reduce(logs))
        for states, logs in logs_by_outer(network.dims, tables, outer, order).items()
    }
    most = max(sums.values())
    assert above >= most
    if split.exact:
        assert above == pytest.approx(most, abs=1e-9)
    if above == -math.inf:
        return
    assert set(bound.decoded()) == set(outer)
    messages, scale = bound.left(len(order) - len(outer))
    for states, exact in sums.items():
        at = dict(zip(outer, states, strict=True))
        own = [t.costs[tuple(at[v] for v in t.scope)] for t in tables if set(t.scope) <= set(outer)]
        shaped = [(scope, logs.reshape([network.dims[v] for v in scope])) for scope, logs in messages]
        assert scale + sum(own) + sum(logs[tuple(at[v] for v in scope)] for scope, logs in shaped) >= exact - 1e-12


@settings(max_examples=60, deadline=None)
@given(st.one_of(markov_models(), bayes_models()), st.data())
def test_a_search_finds_what_loses_least(model: Model, data: Any) -> None:
    """Below loose bounds, with sums that are split, and in memory that forgets; states that lose more are excluded."""
    wanted = data.draw(st.sets(st.integers(0, len(model.dims) - 1), min_size=1))
    question = question_of(model, "mmap", maximize=[model.names[v] for v in wanted])
    network = question.reduced[0]
    outer = [v for v, variable in enumerate(network.variables) if variable in wanted]
    sums = outer_search(network, outer, 1 << 30, seed=0)
    if not network.leaves or not network.feasible or sums is None:
        return
    order = [*(v for v in range(len(network.dims)) if v not in outer), *outer]
    energies = zip(network.scopes, in_scopes(network, energy_leaves), strict=True)
    tables = [CostTable(scope, -table) for scope, table in energies]
    mixed = MixedBound(partition(network.dims, network.scopes, order, Size(cells=2)), tables, outer)
    passes = data.draw(st.integers(0, 3))
    if mixed.improve(iter([False] * passes + [True] * 2).__next__, patience=9) == -math.inf:
        return
    exact = {
        states: float(np.logaddexp.reduce(logs))
        for states, logs in logs_by_outer(network.dims, tables, outer, order).items()
    }
    most = max(exact.values())
    with BucketPolicy.using(first_entries=data.draw(st.sampled_from([1, 64])), eager_loss=data.draw(st.floats(0, 1))):
        search = LossSearch(mixed, sums, {}, memory_bytes=0)
        search.compile()
        while not search.finished:
            assert search.run(math.inf, time.perf_counter() + 10)
        if most == -math.inf:
            assert search.lost == math.inf
            return
        assert search.bound == pytest.approx(most, abs=1e-9)
        found = search.best_states()
        assert exact[tuple(found[v] for v in outer)] == pytest.approx(most, abs=1e-9)
        assert sums.value(found) == pytest.approx(most, abs=1e-9)
        again = LossSearch(mixed, sums, {}, memory_bytes=1 << 20)
        limit = search.lost - 1e-6
        while not again.finished:
            promising = again.run(limit, time.perf_counter() + 10)
        assert not promising
        assert limit <= again.lost <= search.lost + 1e-9


@pytest.mark.parametrize("steps", [0, 1 << 24])
def test_small_mini_buckets_are_enough_for_a_proof(steps: int) -> None:
    """A search closes the gap of loose bounds; where sums are no step of it, there are two bounds."""
    model, wanted = grid(5, 5, 2, "markov"), range(0, 25, 2)
    question = question_of(model, "mmap", maximize=[model.names[v] for v in wanted])
    best = bucketflow.solve(model, "mmap", maximize=[model.names[v] for v in wanted]).log10
    with OuterPolicy.using(bits=(3,), most_step_cells=steps):
        found = InnerBounds(
            QueryRequest(question, Options(), ProofOptions(time=60), ask=solved), "it was asked for"
        ).run()
    assert found.proof is not None
    assert best is not None
    assert found.proof.upper >= best - 1e-8
    if steps:
        assert (found.status, found.proof.method) == ("optimal", "AND/OR search")
        assert found.log10 == pytest.approx(best)


def test_time_of_a_search_that_is_through_goes_to_larger_mini_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InnerBounds, "_has_time", lambda found, _: found.until == found._end)
    model = grid(5, 5, 2, "markov")
    wanted = [model.names[v] for v in range(0, 25, 2)]
    with OuterPolicy.using(bits=(3, 20), most_step_cells=0):
        request = QueryRequest(
            question_of(model, "mmap", maximize=wanted), Options(), ProofOptions(time=60), ask=solved
        )
        found = InnerBounds(request, "it was asked for").run()
    assert found.proof is not None
    assert found.proof.upper == pytest.approx(bucketflow.solve(model, "mmap", maximize=wanted).log10)


def logs_by_outer(
    dims: tuple[int, ...], tables: list[CostTable], outer: list[int], order: list[int]
) -> dict[tuple[int, ...], list[float]]:
    """The logarithm of each assignment's product, by the states of some variables."""
    found = defaultdict[tuple[int, ...], list[float]](list)
    for states in np.ndindex(*[dims[v] for v in order]):
        at = dict(zip(order, states, strict=True))
        total = sum(float(t.costs[tuple(at[v] for v in t.scope)]) for t in tables)
        found[tuple(at[v] for v in outer)].append(total)
    return found
