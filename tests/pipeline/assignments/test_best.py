"""The best assignments in order: against brute force, and against toulbar2, which enumerates by search."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketflow
from bucketflow import BudgetError, Model, ModelError, best
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.assignments import searched_ranking
from bucketflow.pipeline.assignments.ranking import RankingPolicy
from bucketflow.pipeline.assignments.searched_ranking import SearchedRanking, _Neighbours
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.cost_networks.cost_network import CostNetwork, CostTable
from bucketflow.pipeline.cost_networks.preparation import prepare
from bucketflow.pipeline.proofs.prover_policy import ProverPolicy
from bucketflow.pipeline.proofs.provers.branch_and_bound import EverySearch
from bucketflow.pipeline.queries.arithmetic import optimum_arithmetic
from bucketflow.tasks.steps.policy import SweepPolicy
from bucketflow.tasks.sweeps import best_states
from tests.exact import Weights, costs
from tests.models import bayes_models, cost_models, grid, markov_models

#: No sweep is short, whatever its tree.
NO_SWEEP = {"swept_cells": 0.0, "hopeless_cells": 0.0, "swept_seconds": 0.0}
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def searched(asked: bool = True, **changes: float) -> Iterator[None]:
    """Let no sweep keep tables before a search was tried."""
    with RankingPolicy.using(**({**NO_SWEEP, **changes} if asked else {})):
        yield


def test_a_tree_that_makes_a_sweep_short_is_searched_for_before_a_long_search() -> None:
    model = grid(4, 4, 2)
    with RankingPolicy.using(swept_cells=0.0):
        assert best(model, 3).plan is not None
    with RankingPolicy.using(swept_cells=0.0, hopeless_cells=0.0, swept_seconds=0.0):
        assert best(model, 3).plan is None


def states_of(assignment: dict[str, Any], model: Model) -> tuple[int, ...]:
    """An assignment as state indices."""
    return tuple(assignment[name] for name in model.names)


@given(cost_models(), st.integers(1, 30))
@SLOW
def test_large_joins_of_a_list_are_in_order_each_once(model: Model, m: int) -> None:
    with SweepPolicy.using(joint_states=2, joined_cells=1):
        found = [*best(model, m)]
    assert [each.value for each in found] == sorted(costs(model, {}).values())[:m]


def test_the_first_choice_of_a_large_join_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every assignment reads the join at the root, because no variable is chosen before the root."""
    swept: list[int] = []
    original = best_states.minimised

    def spy(left: Any, *args: Any) -> Any:
        swept.append(math.prod(len(each.scope) for each in left))
        return original(left, *args)

    monkeypatch.setattr(best_states, "minimised", spy)
    rng = np.random.default_rng(3)
    pairs = [(x, y) for x in range(6) for y in range(x)]
    functions = [((f"x{x}", f"x{y}"), rng.integers(0, 50, (3, 3))) for x, y in pairs]
    model = Model.build("cost", {f"x{v}": 3 for v in range(6)}, functions)
    with SweepPolicy.using(joint_states=3, joined_cells=1):
        found = [*best(model, 20)]
    assert [each.value for each in found] == sorted(costs(model, {}).values())[:20]
    assert swept.count(max(swept)) == 1


@given(cost_models(), st.integers(0, 30), st.booleans(), st.booleans())
@SLOW
def test_costs_in_order_each_once(model: Model, m: int, hard: bool, search: bool) -> None:
    evidence = {"x0": 0} if hard else {}
    exact = costs(model, evidence)
    with searched(search):
        found = [*best(model, m, evidence=evidence)]
    assert [each.value for each in found] == sorted(exact.values())[:m]
    assert [each.rank for each in found] == [*range(1, len(found) + 1)]
    chosen = [states_of(each.assignment, model) for each in found]
    assert len({*chosen}) == len(chosen)
    assert [exact[states] for states in chosen] == [each.value for each in found]


@pytest.mark.parametrize("tree", [True, False])
@given(model=cost_models(), m=st.integers(1, 30), within=st.sampled_from([None, 0, 4]))
@SLOW
def test_dolls_list_the_same_with_a_tree_search_and_without(
    tree: bool, model: Model, m: int, within: int | None
) -> None:
    exact = sorted(costs(model, {}).values())
    expected = exact if within is None else [cost for cost in exact if cost <= exact[0] + within]
    # a tree search that never goes on, as one whose memory is used up, or one that has turns from the first moment
    with pytest.MonkeyPatch.context() as patch, ProverPolicy.using(dolls_soft_share=1.0, first_turn_seconds=1e-7):
        if not tree:
            patch.setattr(EverySearch, "run", lambda search, stop, on_states: None)
        with searched():
            found = [*best(model, m, within=within, time=60.0)]
    assert [each.value for each in found] == expected[:m]
    assert len({states_of(each.assignment, model) for each in found}) == len(expected[:m])


@pytest.mark.parametrize("seed", range(3))
def test_a_mesh_is_searched_once_clusters_have_shifted_its_costs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names, rng, prepared = [f"x{i}" for i in range(49)], np.random.default_rng(seed), list[Any]()
    neighbours = [(i, j) for i in range(49) for j in ((i + 7) % 49, i // 7 * 7 + (i + 1) % 7)]
    pairs = [(names[i], names[j]) for i, j in neighbours]
    tables = [(pair, np.exp(w * np.array([[1, -1], [-1, 1]]))) for pair in pairs for w in [rng.uniform(-3, 3)]]
    tables += [((name,), np.exp(rng.uniform(-0.5, 0.5, 2))) for name in names]
    model = Model.build("markov", dict.fromkeys(names, 2), tables)
    swept = [*best(model, 60)]
    monkeypatch.setattr(
        searched_ranking, "prepare", lambda *given, **how: prepared.append(given) or prepare(*given, **how)
    )
    with searched():
        found = [*best(model, 60)]
    assert len(prepared) == 2
    assert prepared[1][0].least > prepared[0][0].least
    assert [each.log10 for each in found] == pytest.approx([each.log10 for each in swept], abs=1e-8)
    assert len({states_of(each.assignment, model) for each in found}) == 60


@given(cost_models(), st.integers(0, 6), st.booleans())
@SLOW
def test_all_within_a_distance_and_the_number_of_optima(model: Model, within: int, search: bool) -> None:
    exact = costs(model, {})
    least = min(exact.values(), default=0)
    with searched(search):
        found = best(model, within=within, count_optimal=True)
        assert found.optimal_count == sum(cost == least for cost in exact.values())
        expected = {states for states, cost in exact.items() if cost <= least + within}
        listed = [states_of(each.assignment, model) for each in found]
    assert sorted(listed) == sorted(expected)


@given(st.one_of(markov_models(), bayes_models()), st.sampled_from([0.0, 0.5, 3.0]), st.booleans())
@SLOW
def test_probabilities_in_order_each_once(model: Model, within: float, search: bool) -> None:
    weights = Weights(model, {})
    exact = {states: weights.log10(weight) for states, weight in weights.weights.items()}
    with searched(search):
        found = [*best(model)]
        near = [*best(model, within=within)]
    listed = [states_of(each.assignment, model) for each in found]
    assert sorted(listed) == sorted(exact)
    values = [each.log10 for each in found]
    assert values == pytest.approx(sorted(exact.values(), reverse=True), abs=1e-8)
    assert all(each.log10 == pytest.approx(exact[s], abs=1e-8) for each, s in zip(found, listed, strict=True))
    top = max(exact.values(), default=0.0)
    assert len(near) == pytest.approx(sum(value >= top - within for value in exact.values()), abs=0) or any(
        abs(value - (top - within)) < 1e-7 for value in exact.values()
    )


def test_slices_are_listed_together() -> None:
    model = grid(6, 6, 3)
    whole, tight = best(model, 200), best(model, 200, memory=20_000)
    assert whole.plan is not None
    assert tight.plan is not None
    assert whole.plan.slices == 1 < tight.plan.slices
    costs_of_whole, listed = [each.value for each in whole], [*tight]
    assert [each.value for each in listed] == costs_of_whole
    assert len({states_of(each.assignment, model) for each in listed}) == 200
    assert costs_of_whole[0] == bucketflow.solve(model).value
    flat = Model.build("cost", {f"x{i}": 3 for i in range(9)}, [(("x0", "x1"), [[0, 1, 0]] * 3)])
    assert best(flat, 0, count_optimal=True).optimal_count == 6 * 3**7


def test_optima_of_slices_are_counted_together() -> None:
    names = [f"x{i}" for i in range(36)]
    whole = grid(6, 6, 3)
    model = Model.build(
        "cost",
        dict.fromkeys(names, 3),
        [(tuple(names[v] for v in f.scope), f.values % 2) for f in whole.functions],
    )
    counts = [best(model, 0, count_optimal=True, **asked).optimal_count for asked in ({}, {"memory": 20_000})]
    top = bucketflow.solve(model).value
    assert isinstance(top, int)
    below = Model.build("cost", dict.fromkeys(names, 3), [(tuple(names[v] for v in f.scope), f.values % 2)
                        for f in whole.functions], top=top + 1)  # fmt: skip
    assert counts == [bucketflow.solve(below, "count").value] * 2


def test_it_is_lazy() -> None:
    found = best(bucketflow.load("grid"))
    assert [each.rank for each in islice(found, 3)] == [1, 2, 3]
    assert next(found).rank == 4


def test_what_compiling_took_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([1.0, 3.0])
    monkeypatch.setattr("bucketflow.pipeline.compiling.compiling_seconds", lambda: next(spent))
    found = best(grid(2, 2, 2), 3)
    assert found.seconds["compile"] == 2.0
    assert len([*found]) == 3


def test_decimals_and_maximisation_keep_their_signs() -> None:
    model = bucketflow.load("meetings")
    found = [*best(model, 4)]
    assert found[0].value == bucketflow.solve(model).value
    values = [each.value for each in found]
    assert values == sorted(values, reverse=model.maximize)  # type: ignore[type-var]


@pytest.mark.parametrize("search", [False, True])
def test_toulbar2_agrees(search: bool) -> None:
    pytoulbar2 = pytest.importorskip("pytoulbar2")
    model, m = grid(4, 4, 3), 25
    peer = pytoulbar2.CFN(ubinit=10**6, verbose=-1)
    for name, size in zip(model.names, model.dims, strict=True):
        peer.AddVariable(name, range(size))
    for f in model.functions:
        peer.AddFunction([model.names[v] for v in f.scope], f.values.reshape(-1).tolist())
    with searched(search):
        listed = [each.value for each in best(model, m)]
    limit = int(listed[-1])  # type: ignore[arg-type]
    peer.SetUB(limit + 1)
    peer.Option.allSolutions = 100_000
    peer.Solve(allSolutions=100_000)
    theirs = sorted((int(cost), tuple(states)) for cost, states in peer.GetSolutions())
    with searched(search):
        found = best(model, within=limit - int(listed[0]))  # type: ignore[arg-type]
        ours = sorted((each.value, states_of(each.assignment, model)) for each in found)
    assert ours == theirs
    assert [cost for cost, _ in theirs][:m] == listed


@pytest.mark.parametrize("search", [False, True])
def test_hidden_variables_of_wide_functions_are_not_listed_or_drawn(search: bool) -> None:
    names, rng = [f"x{i}" for i in range(17)], np.random.default_rng(0)
    wide = (names, np.array([[0] * 17, [1] * 17]), [0, 1], 5)
    pairs = [(pair, rng.integers(0, 4, (2, 2))) for pair in pairwise(names)]
    model = Model.build("cost", dict.fromkeys(names, 2), [wide, *pairs], top=30)
    assert question_of(model, "optimum").chained.model.hidden
    every = np.indices((2,) * 17).reshape(17, -1).T
    exact = np.full(len(every), 5)
    exact[0], exact[-1] = 0, 1
    for f in model.functions[1:]:
        exact += f.values[every[:, f.scope[0]], every[:, f.scope[1]]]
    allowed = np.sort(exact[exact < 30])
    with searched(search):
        found = best(model, 300, count_optimal=True)
        assert found.optimal_count == (allowed == allowed[0]).sum()
        listed = [(each.value, states_of(each.assignment, model)) for each in found]
    assert [cost for cost, _ in listed] == allowed[:300].tolist()
    assert len({*listed}) == 300
    drawn = bucketflow.sample(model, 4000, temperature=1.0, seed=1)
    weights = np.exp(-exact.astype(float)) * (exact < 30)
    ones = weights @ every / weights.sum()
    assert (np.abs(drawn.states.mean(axis=0) - ones) < 4.9 * np.sqrt(ones * (1 - ones) / 4000)).all()


@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_a_search_that_takes_long_leaves_the_rest_to_a_sweep(kind: str) -> None:
    model = grid(4, 4, 3, kind)
    whole = [*best(model, 40)]
    with searched(patience_seconds=0.0, optimum_times=0.0):
        found = best(model, 40)
        listed = [*found]
    assert found.unproved is None
    assert len({states_of(each.assignment, model) for each in listed}) == 40
    for one, other in zip(listed, whole, strict=True):
        assert one.value == other.value
        assert one.log10 == (None if other.log10 is None else pytest.approx(other.log10))


def test_what_is_proved_in_time_is_listed_and_the_rest_is_named() -> None:
    names = [f"x{i}" for i in range(24)]
    rng = np.random.default_rng(0)
    pairs = [((a, b), rng.integers(0, 1000, (8, 8))) for i, a in enumerate(names) for b in names[:i]]
    model = Model.build("cost", dict.fromkeys(names, 8), pairs)
    found = best(model, 4, time=0.0)
    assert [*found] == []
    assert found.unproved is not None
    assert "before the optimum was proved" in found.unproved
    shown = best(model, 4, time=0.0)
    assert shown.to_dict()["status"] == "bounded"
    assert [*best(model, 4, time=0.0).lines()][-1].startswith("the list is incomplete: the time ended")


def test_an_assignment_without_a_proof_of_its_rank_is_not_listed() -> None:
    model = grid(5, 5, 3, seed=3)
    network = question_of(model, "optimum").reduced[0]
    first, second, *_ = [*best(model, 3)]
    assert first.value != second.value
    arithmetic = optimum_arithmetic(network)
    local = states_of(first.assignment, model)
    ranking = SearchedRanking(arithmetic, 0, local, 3, 1 << 30, seconds=0.0)
    assert [states for _, states in ranking.ranked()] == [dict(enumerate(local))]
    assert ranking.why_open == "the time was over"
    assert ranking.open_from == ranking.best < ranking.next_known
    tight = SearchedRanking(arithmetic, 0, local, 3, 1000, seconds=60.0)
    with pytest.raises(BudgetError, match=r"take .*, allowed 1 kB"):
        next(tight.ranked())


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"m": -1}, "m is -1"),
        ({"within": -0.5}, "within is -0.5"),
        ({"within": math.inf}, "within is inf"),
        ({"within": True}, "within is True"),
        ({"workdir": "x"}, "'workdir' does not apply"),
        ({"keep_tables": "1MB", "workdir": "x"}, "'workdir' does not apply"),
    ],
)
def test_what_does_not_apply_is_refused(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        best(grid(2, 2, 2), **asked)


def test_budgets_are_refused_with_both_numbers() -> None:
    with pytest.raises(BudgetError, match=r"needs .* allowed"):
        best(grid(7, 7, 6), 1, memory=100_000, fit="refuse")


@pytest.mark.parametrize("kind", ["cost", "markov"])
@pytest.mark.parametrize("within", [10**400, "1e999999999"])
def test_within_any_number_is_everything(kind: Any, within: Any) -> None:
    model = Model.build(kind, {"a": 2, "b": 2}, [(("a", "b"), [[1, 5], [2, 3]])])
    assert len([*best(model, within=within)]) == 4


def test_nothing_possible_is_nothing_listed() -> None:
    model = Model.build("cost", {"a": 2, "b": 2}, [(("a", "b"), [[5, 5], [5, 5]])], top=5)
    found = best(model, count_optimal=True)
    assert (found.optimal_count, [*found]) == (0, [])


def test_probabilities_are_not_counted_and_that_is_said() -> None:
    found = best(grid(2, 2, 2, "markov"), 1, count_optimal=True)
    assert found.optimal_count is None
    assert any("not counted" in note for note in found.notes)


def test_what_does_not_apply_is_refused_where_nothing_is_possible(tmp_path: Path) -> None:
    model = Model.build("cost", {"a": 2}, [(("a",), [3, 4])], top=2)
    assert [*best(model, 3)] == []
    with pytest.raises(ModelError, match="'workdir' does not apply"):
        best(model, 3, workdir=tmp_path)


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(main, ["solve", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_lists_them() -> None:
    code, out, _ = run("satellite", "--best", "3", "--json")
    told = json.loads(out)
    assert (code, [each["value"] for each in told["assignments"]]) == (0, [49, 49, 49])
    code, out, _ = run("satellite", "--all-optimal", "--best", "2")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "144 assignments are as good as the best")
    # the first is whole, on lines of at most 100 columns; the second says by which variables it differs
    first, second = (each["assignment"] for each in told["assignments"][:2])
    differing = ", ".join(f"{name}={state}" for name, state in second.items() if state != first[name])
    assert all(len(line) <= 100 for line in lines)
    printed = " ".join(line.strip() for line in lines[1:])
    whole = ", ".join(f"{name}={state}" for name, state in first.items())
    assert printed == f"1  49  {whole} 2  49  as the first except {differing}"
    code, out, _ = run("satellite", "--within", "0", "--json")
    assert len(json.loads(out)["assignments"]) == 144


def test_repr_shows_the_next_assignments_and_takes_none() -> None:
    found = best("satellite", 12)
    shown = repr(found)
    assert shown.splitlines()[0].startswith("   1  49  ")
    assert shown.endswith("… the next 10 assignments; iterate to get all")
    assert "   1  49  " in found._repr_html_()
    assert [each.rank for each in found] == list(range(1, 13))
    assert repr(found) == "no assignment is left"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["satellite", "--best", "2", "--query", "count"], "--best goes with --query optimum only"),
        (["satellite", "--best", "2", "--query", "sample"], "--best goes with --query optimum only"),
        (["satellite", "--best", "2", "--gap", "2"], "--gap is for a single optimum"),
        (["satellite", "--all-optimal", "--within", "2"], "leave out --within"),
        (["satellite", "--within", "x"], "within is 'x'"),
        (["fields", "--best", "2", "--workdir", "run"], "'workdir' does not apply"),
        (["satellite", "--best", "0"], "--best"),
    ],
)
def test_the_command_refuses(arguments: list[str], why: str) -> None:
    code, _, said = run(*arguments)
    assert code == 2
    assert why in said


def test_the_command_refuses_what_does_not_fit() -> None:
    code, _, said = run("fields", "--best", "2", "--memory", "1MB", "--order-time", "0.1")
    assert code == 3
    assert "allowed" in said


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_of_similar_assignments_have_the_changes_of_the_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = tuple(rng.integers(1, 4, 7).tolist())
    scopes = [tuple(sorted(rng.choice(7, size, replace=False).tolist())) for size in (1, 2, 2, 3, 3, 2)]
    tables = tuple(CostTable(s, rng.integers(0, 9, [dims[v] for v in s]).astype(float)) for s in scopes)
    network = CostNetwork(dims, tables, 5)
    near, states = _Neighbours(network), tuple(rng.integers(0, dims).tolist())
    for _ in range(5):
        total, found = network.total(states), near.best(states, 100)
        assert {other for _, other in found} == {
            (*states[:v], a, *states[v + 1 :]) for v in range(7) for a in range(dims[v]) if a != states[v]
        }
        assert [change for change, _ in found] == sorted(network.total(other) - total for _, other in found)
        assert all(network.total(other) - total == change for change, other in found)
        states = found[int(rng.integers(len(found)))][1]


def test_neighbours_above_the_pruning_value_are_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    totals, total = list[float](), CostNetwork.total
    monkeypatch.setattr(CostNetwork, "total", lambda *given: totals.append(total(*given)) or totals[-1])
    costs = [(["a"], [0, 1, 2, 3]), (["b"], [0, 10, 20, 30]), (["c"], [0, 100, 200, 300])]
    model = Model.build("cost", dict.fromkeys("abc", 4), costs)
    with RankingPolicy.using(**NO_SWEEP):
        assert [each.value for each in bucketflow.best(model, 3)] == [0, 1, 2]
    assert max(totals) == 2
