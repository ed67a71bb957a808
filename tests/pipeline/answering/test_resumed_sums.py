"""Sums on decision diagrams in turns: what was done by the end of one is not done again in the next."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketflow
from bucketflow import Model
from bucketflow.pipeline.answering import sums
from bucketflow.pipeline.answering.question import question_of
from bucketflow.pipeline.options import Options
from bucketflow.pipeline.preprocessing.preprocess import Leaf
from bucketflow.pipeline.queries.arithmetic import ScaledPartition
from bucketflow.pipeline.queries.formula import QueryPolicy
from bucketflow.pipeline.queries.sum_diagrams import DiagramBudget, EdgesSpentError, SumElimination, Table
from bucketflow.tasks.sweeps.scaled import Scaled
from tests.models import grid

MEMORY = 1 << 28
PRIME = 2_147_483_629


def tables(seed: int, modulus: int) -> tuple[list[int], list[Table]]:
    """Functions on a ladder of five rungs, with some zeros."""
    rng = np.random.default_rng(seed)
    dims = rng.integers(2, 4, 10).tolist()
    scopes = [*((i, i + 1) for i in range(0, 10, 2)), *((i, i + 2) for i in range(8)), (0, 5, 9)]
    made: list[Table] = []
    for scope in scopes:
        shape = [dims[v] for v in scope]
        values = rng.integers(0, modulus, shape) if modulus else rng.random(shape)
        made.append((scope, np.where(rng.random(shape) < 0.2, 0, values)))
    return dims, made


@given(st.integers(0, 2**32 - 1), st.sampled_from([0, PRIME]), st.integers(1, 400))
def test_a_sum_in_turns_is_the_sum(seed: int, modulus: int, edges: int) -> None:
    dims, made = tables(seed, modulus)
    order = [int(v) for v in np.random.default_rng(seed).permutation(len(dims))]
    whole = SumElimination(dims, iter(made), order, modulus).run(DiagramBudget(MEMORY))
    elimination, turns, budget = SumElimination(dims, iter(made), order, modulus), 0, edges
    while True:
        try:
            found = elimination.run(DiagramBudget(MEMORY, edges=budget))
        except EdgesSpentError:
            turns, budget = turns + 1, 2 * budget
            continue
        break
    assert found == whole or (math.isnan(found.log) and math.isnan(whole.log))
    assert found.residue == whole.residue
    assert found.edges == whole.edges <= turns * budget + budget


def diagrams(model: Model, query: str, **parts: float) -> sums.DiagramSum:
    """Diagrams without hopeless joins."""
    question = question_of(model, query)
    asked = question, Options(), question.reduced[0], time.perf_counter()
    return sums.DiagramSum(*asked, join_part=math.inf, **parts)


def test_turns_go_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grid(4, 5, 3, "forbids")
    begun: list[int] = []
    made = SumElimination.__post_init__
    monkeypatch.setattr(SumElimination, "__post_init__", lambda self: (begun.append(self.modulus), made(self))[1])
    engine, edges, found = diagrams(model, "count"), 64.0, None
    while found is None:
        found, edges = engine.run(edges), 2 * edges
        assert not engine.hopeless
    assert engine.turns > 3
    # the first turn has an order of its own
    assert len(begun) <= 1 + len(set(begun))
    assert found.value == bucketflow.solve(model, "count", method="dense").value


def test_a_count_has_a_price_once_its_sum_in_floats_is_there() -> None:
    """What is left becomes less from turn to turn, and nothing is told of the first sum."""
    model = grid(4, 12, 3, "forbids")
    engine, told, found = diagrams(model, "count"), [], None
    while found is None:
        found = engine.run(2000.0)
        told += [engine._sums.most * engine._sums.totals[0, 0].edges if engine._sums and engine._sums.most else 0]
        assert (engine.seconds_left < math.inf) == bool(told[-1])
    assert told[0] == 0
    assert told[-2] > 0
    assert found.value == bucketflow.solve(model, "count", method="dense").value


@pytest.mark.parametrize(("part", "waits"), [(0.0, False), (1.0, True)])
def test_what_waits_for_a_turn_takes_a_small_part_of_the_memory(part: float, waits: bool) -> None:
    engine = diagrams(grid(4, 5, 2, "markov"), "partition", kept_part=part)
    assert engine.run(64.0) is None
    assert (engine.held_bytes > 0) == waits


def test_a_table_that_raised_is_not_missing_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = diagrams(grid(4, 5, 2, "markov"), "partition")
    assert engine.run(1.0) is None
    made, fourth = ScaledPartition.leaf, engine.network.leaves[3]

    def vanishing(self: ScaledPartition, leaf: Leaf, axes: Any) -> Scaled:
        table = made(self, leaf, axes)
        return replace(table, logs=True) if leaf is fourth else table

    monkeypatch.setattr(ScaledPartition, "leaf", vanishing)
    for _ in range(3):
        assert engine.run(math.inf) is None
        assert "too small for floats" in engine.failure
        assert engine.hopeless


def test_one_sum_has_a_price_once_a_part_of_the_cells_is_joined() -> None:
    """Nothing is told before, and less is left by cells from turn to turn."""
    engine, part, found = diagrams(grid(4, 12, 2, "markov"), "partition"), [], None
    while found is None:
        found = engine.run(200.0)
        if engine._sums is not None:
            part.append(engine._sums._done[engine._sums.opened[0, 0].eliminated])
            assert (engine.seconds_left < math.inf) == (part[-1] >= QueryPolicy.current().telling_part)
    assert part == sorted(part)
    assert part[0] < QueryPolicy.current().telling_part < part[-1] < 1.0
    assert found.log10 == pytest.approx(bucketflow.solve(grid(4, 12, 2, "markov"), "partition", method="dense").log10)


@pytest.mark.parametrize(("free_part", "hopeless"), [(0.25, False), (0.0, True)])
def test_joins_that_take_little_of_a_turn_may_be_dense(free_part: float, hopeless: bool) -> None:
    engine = diagrams(grid(4, 12, 2, "markov"), "partition")
    engine.join_part = 1 / 16
    with QueryPolicy.using(free_edges=1, free_part=free_part):
        engine.run(4000.0)
        engine.run(4000.0)
    assert engine.hopeless == hopeless
