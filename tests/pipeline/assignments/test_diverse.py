"""The best assignments of which any two differ: each is the best of all that are distant enough from those before."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import bucketflow
from bucketflow import BudgetError, Model, ModelError, best
from bucketflow.pipeline.assignments.ranking import RankingPolicy
from bucketflow.pipeline.cli.main import main
from bucketflow.pipeline.formats.text import source
from bucketflow.pipeline.results.best_assignments import RankedAssignment

NAMES = [f"v{i}" for i in range(6)]


def network(seed: int, kind: str = "cost", most: int = 1000) -> Model:
    """Random costs of pairs; as potentials, some are 0."""
    rng = np.random.default_rng(seed)
    dims = rng.integers(2, 4, len(NAMES)).tolist()
    functions = []
    for _ in range(8):
        scope = rng.permutation(len(NAMES))[:2].tolist()
        costs = rng.integers(0, most, [dims[v] for v in scope])
        values = costs if kind == "cost" else np.where(costs < most // 8, 0.0, np.exp(-costs / 300))
        functions.append(([NAMES[v] for v in scope], values))
    return Model.build(kind, dict(zip(NAMES, dims, strict=True)), functions)  # type: ignore[arg-type]


def worth(each: RankedAssignment) -> float:
    return -float(each.value) if each.log10 is None and each.value is not None else float(each.log10 or 0.0)


def check(model: Model, found: list[RankedAssignment], m: int, distance: int, evidence: dict[str, int]) -> None:
    """Each is the best of all that differ enough from those before, and there are as many as there can be."""
    every = []
    for states in product(*map(range, model.dims)):
        value = model.evaluate(dict(zip(model.names, states, strict=True)))
        possible = value.value is not None if model.kind == "cost" else value.log10 > float("-inf")
        if possible and all(states[model.index[name]] == state for name, state in evidence.items()):
            every.append((-float(value.value) if model.kind == "cost" else value.log10, states))
    chosen: list[tuple[int, ...]] = []

    def distant(states: tuple[int, ...]) -> bool:
        return all(sum(a != b for a, b in zip(states, other, strict=True)) >= distance for other in chosen)

    for each in found:
        states = tuple(int(each.assignment[name]) for name in model.names)
        assert distant(states)
        assert worth(each) == pytest.approx(max(value for value, other in every if distant(other)), abs=1e-9)
        chosen.append(states)
    assert len(found) == m or not any(distant(states) for _, states in every)
    assert [each.rank for each in found] == [*range(1, len(found) + 1)]


@pytest.mark.parametrize("kind", ["cost", "markov"])
@pytest.mark.parametrize("passed", [0, 1, 1000])
@pytest.mark.parametrize("distance", [1, 3, 5, 7])
def test_each_is_the_best_of_those_that_differ_enough(kind: str, passed: int, distance: int) -> None:
    """From a list in order, by constraints, and by both; without and with evidence."""
    for seed in range(3):
        model = network(seed, kind)
        for evidence in ({}, {"v1": 1}):
            with RankingPolicy.using(passed_most=passed):
                found = [*best(model, 5, diverse=distance, evidence=evidence)]
            check(model, found, 5, distance, evidence)


def test_without_quick_sweeps_constraints_find_them() -> None:
    model = network(4)
    with RankingPolicy.using(swept_cells=0.0, hopeless_cells=0.0, swept_seconds=0.0):
        listed = best(model, 4, diverse=3)
        assert listed.plan is None
        check(model, [*listed], 4, 3, {})


def test_a_distribution_stays_one_where_constraints_are_added() -> None:
    model = bucketflow.load("diagnosis")
    with RankingPolicy.using(passed_most=0):
        one = [*best(model, 3, diverse=9, evidence={"Storm": "yes"})]
    other = [*best(model, 3, diverse=9, evidence={"Storm": "yes"})]
    assert [each.log10 for each in one] == pytest.approx([each.log10 for each in other], abs=1e-9)
    for first, second in pairwise(one):
        assert sum(first.assignment[name] != second.assignment[name] for name in model.names) >= 9
    for each in one:
        assert model.evaluate(each.assignment).log10 == pytest.approx(each.log10, abs=1e-9)


@pytest.mark.parametrize("passed", [0, 1000])
def test_hidden_variables_do_not_count(passed: int) -> None:
    """A function that lists few assignments of many variables is a chain of hidden ones."""
    names, rng = [f"x{i}" for i in range(17)], np.random.default_rng(0)
    wide = (names, np.array([[0] * 17, [1] * 17]), [0, 1], 5)
    pairs = [(pair, rng.integers(0, 4, (2, 2))) for pair in pairwise(names)]
    model = Model.build("cost", dict.fromkeys(names, 2), [wide, *pairs])
    with RankingPolicy.using(passed_most=passed):
        found = [*best(model, 3, diverse=8)]
    assert all([*each.assignment] == names for each in found)
    for k, each in enumerate(found):
        assert model.evaluate(each.assignment).value == each.value
        assert all(sum(each.assignment[n] != other.assignment[n] for n in names) >= 8 for other in found[:k])
    with RankingPolicy.using(passed_most=1000 - passed):
        assert [each.value for each in best(model, 3, diverse=8)] == [each.value for each in found]


@pytest.mark.parametrize("passed", [0, 1000])
@pytest.mark.parametrize("kind", ["cost", "markov"])
def test_within_ends_the_list(passed: int, kind: str) -> None:
    model = network(1, kind)
    whole = [*best(model, 4, diverse=2)]
    gap = abs(worth(whole[2]) - worth(whole[0]))
    with RankingPolicy.using(passed_most=passed):
        assert len([*best(model, diverse=2, within=gap)]) == 3
        assert len([*best(model, diverse=2, within=gap * 0.999)]) < 3


GREEDY = """
import json, sys
import pytoulbar2
names, dims, functions, count = json.loads(sys.argv[1])
peer = pytoulbar2.CFN(ubinit=10**8, verbose=-1)
for name, size in zip(names, dims):
    peer.AddVariable(name, range(size))
for scope, values in functions:
    peer.AddFunction([names[v] for v in scope], values)
print("\\n" + str(int(peer.Solve(allSolutions=count, diversityBound=3)[1])))
"""
"""Prints what the last of toulbar2's greedy sequence costs; its list has others in it that were improved later."""


def test_toulbar2_finds_the_same_costs() -> None:
    """In a process for each network: a second one of the same process crashes there."""
    pytest.importorskip("pytoulbar2")
    for seed, count in product((0, 1), (2, 4)):
        model = network(seed, most=10**6)
        functions = [(f.scope, f.values.reshape(-1).tolist()) for f in model.functions]
        asked = json.dumps([model.names, model.dims, functions, count])
        done = subprocess.run([sys.executable, "-c", GREEDY, asked], capture_output=True, text=True, check=True)
        with RankingPolicy.using(passed_most=seed):
            assert [*best(model, count, diverse=3)][-1].value == int(done.stdout.split()[-1])


def test_without_time_the_rest_is_said_to_be_unproved() -> None:
    with RankingPolicy.using(swept_cells=0.0, hopeless_cells=0.0, swept_seconds=0.0):
        found = best(bucketflow.load("fields"), 3, diverse=5, time=0.0)
        assert [*found] == []
    assert found.unproved == "the time ended before the next assignment was proved"


@pytest.mark.parametrize("refused", ["constraints", "network"])
def test_where_constraints_do_not_fit_the_list_ends(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the time that was given what is proved is listed; without, both numbers are said."""
    why = "the distance constraints to 5 assignments need at least 11.8 kB of memory, allowed 10 kB"
    if refused == "constraints":
        monkeypatch.setattr(source, "LEAST_MEMORY", 0)
    else:
        why = "the plan needs 9 MB, allowed 10 kB"

        def refuse(*_: Any) -> Any:
            raise BudgetError(why)

        monkeypatch.setattr("bucketflow.pipeline.api.best.valued", refuse)
    shown = 5 if refused == "constraints" else 0
    with RankingPolicy.using(passed_most=0, swept_seconds=2.0 if shown else -1.0):
        found, ranks = best(network(0), 8, diverse=2, memory="10kB"), list[int]()
        with pytest.raises(BudgetError, match=rf"^{why}.*; --time lists the assignments proved within it$"):
            ranks.extend(each.rank for each in found)
        found = best(network(0), 8, diverse=2, memory="10kB", time=60.0)
        assert len([*found]) == shown
    assert found.unproved is not None
    assert found.unproved.startswith(f"the next assignment was not proved: {why}")


@pytest.mark.parametrize("passed", [0, 1000])
@pytest.mark.parametrize("kind", ["cost", "markov", "decimals"])
def test_within_lists_as_many_as_without_a_distance(kind: str, passed: int) -> None:
    """Units in one list, what is shown in the other: at each difference, just below it and just above."""
    model = network(2, "markov" if kind == "markov" else "cost", most=30)
    if kind == "decimals":
        model = replace(model, decimals=2, maximize=True)
    most = 12 if passed else 3
    every = [worth(each) for each in best(model, most)]
    for gap in [abs(every[0] - each) for each in every[1 :: most // 3]]:
        exact = Decimal(str(round(gap, 9)))
        for within in (exact, exact * Decimal("0.9999"), exact * Decimal("1.0001")):
            with RankingPolicy.using(passed_most=passed):
                found = [*best(model, most, diverse=1, within=within)]
            assert len(found) == len([*best(model, most, within=within)]), (gap, within)


def test_the_command_lists_them(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["solve", "satellite", "--best", "3", "--diverse", "6", "--json"])
    listed = json.loads(found.stdout)["assignments"]
    assert [each["rank"] for each in listed] == [1, 2, 3]
    for first, second in pairwise(listed):
        assert (
            sum(a != b for a, b in zip(first["assignment"].values(), second["assignment"].values(), strict=True)) >= 6
        )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--diverse", "2"], "--diverse goes with --best or --within"),
        (["--diverse", "2", "--all-optimal"], "--diverse goes with --best or --within"),
        (["--best", "2", "--diverse", "0"], "Invalid value for '--diverse'"),
        (["--best", "2", "--diverse", "2", "--query", "count"], "--best goes with --query optimum only"),
    ],
)
def test_what_does_not_go_together_is_refused(options: list[str], why: str) -> None:
    found = CliRunner().invoke(main, ["solve", "satellite", *options])
    assert found.exit_code == 2
    assert why in found.stderr


def test_counts_and_distances_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match="count_optimal counts all optima"):
        best(network(0), 2, diverse=2, count_optimal=True)
    with pytest.raises(ModelError, match="diverse"):
        best(network(0), 2, diverse=0)
    with pytest.raises(ModelError, match="diverse is True, which is not an integer"):
        best(network(0), 2, diverse=True)
    with pytest.raises(ModelError, match="count_optimal is 'no'"):
        best(network(0), 2, count_optimal="no")  # type: ignore[arg-type]
