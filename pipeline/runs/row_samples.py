"""How many rows joins have, by samples: of each table some rows, which are joined and reduced as all of them are.

Independent samples of two tables rarely meet. Messages that meet are therefore sampled together (correlated sampling:
Vengerov et al., PVLDB 2015, §3): a row stays if the states of the variables common to all these messages have a small
hash. Small tables are kept whole, as an index that samples are joined with (Leis et al., CIDR 2017, §3). The number of
rows after variables are summed out is estimated from the number of rows that occur once in the sample (unsmoothed
jackknife: Haas et al., VLDB 1995, §4). If too few rows meet, tables are treated as independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.relation import Relation, Table, from_dense
from ...tasks.steps.number_limits import LARGEST_EXPONENT, ordered_sum
from ...tasks.steps.policy import Policy, RowPolicy
from ...tasks.steps.semiring import LOG_SUM, Semiring
from ...tasks.steps.step import Step
from .run import Run

# Maximum rows of a sample: of step tables, and of leaf tables, which are kept whole if possible.
_MOST_LEAF_ROWS: Final = 1 << 16
# If two samples share fewer rows, the number of joined rows is not estimated.
_FEWEST_ROWS: Final = 24

States = NDArray[np.uint64]


@dataclass(frozen=True)
class SamplingPolicy(Policy):
    """The numbers behind samples of rows.

    Parameters
    ----------
    most_rows : int
        Maximum rows of a sample: of step tables, and of leaf tables, which are kept whole if possible.
    most_joined : int
        Rows of a join that are made; of more some are drawn.
    """

    most_rows: int = 1 << 11
    most_joined: int = 1 << 13


@dataclass(frozen=True, eq=False)
class TableSample:
    """Some rows of a table.

    Parameters
    ----------
    axes : tuple of int
        Its variables.
    states : (variables, rows) uint64 or None
        None where nothing is known but how many rows there are.
    rows : float
        Of the table, as far as anyone knows.
    hashed : tuple of int
        Variables by whose hash rows were drawn.
    share : float
        Rows stay whose hash is at most this.
    """

    axes: tuple[int, ...]
    states: States | None
    rows: float
    hashed: tuple[int, ...] = ()
    share: float = 1.0

    @property
    def drawn(self) -> int:
        """Rows that are there."""
        return 0 if self.states is None else self.states.shape[1]

    @property
    def scale(self) -> float:
        """The number of rows that each sampled row stands for, among the rows with a small hash."""
        return max(self.rows * self.share / max(self.drawn, 1), 1.0)

    def at(self, rows: NDArray[Any]) -> States:
        """Return the states of some rows."""
        assert self.states is not None
        return self.states[:, rows]


def sampled_work(run: Run[Any], most_work: float = inf) -> float:
    """Return about how many rows the joins of one sweep have together, loops over cells counted as those.

    Parameters
    ----------
    run : Run
        By rows, up the tree or both ways.
    most_work : float
        Work beyond which the estimate stops.
    """
    plan, samples = run.plan, _Samples(run.plan.tree.dims)
    program, semiring = run.program(plan.steps, plan.outputs), run.problem.semiring
    algebra: Any = program.algebra
    tables = {node: samples.of_leaf(algebra.keyed(table, program.leaf_axes[node]), semiring)
              for node, table in program.leaves.items()}  # fmt: skip
    meeting, left = _met_by(plan.steps), Counter([i for step in plan.steps for i in step.inputs])
    work = 0.0
    for step in plan.steps:
        inputs = [tables[i] for i in step.inputs]
        found, joined_rows = samples.joined(inputs)
        work += samples.work(inputs, joined_rows)
        tables[step.node] = samples.reduced(step.axes, inputs, found, meeting.get(step.node, ()))
        left.subtract(step.inputs)
        for i in meeting.keys() & step.inputs:  # a table of both ways is read more than once
            if not left[i]:
                del tables[i]
        if work > most_work:
            break
    return work


def _met_by(steps: Sequence[Step]) -> dict[int, tuple[int, ...]]:
    """Return, of each table that a step makes and another one reads, the variables of all such tables read there."""
    made = {step.node: frozenset(step.axes) for step in steps}
    found: dict[int, tuple[int, ...]] = {}
    for step in steps:
        inputs = [i for i in step.inputs if i in made]
        shared = frozenset[int]() if len(inputs) < 2 else frozenset.intersection(*(made[i] for i in inputs))
        found |= {i: tuple(sorted(shared)) for i in inputs}
    return found


class _Samples:
    """Joins and reductions of samples.

    Parameters
    ----------
    sizes : sequence of int
        Domain sizes of all variables.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.logs = sizes, [log(d) for d in sizes]
        self.rng = np.random.default_rng(0)
        #: Of the states of each variable: different rows hardly ever have the same sum.
        self.factors = self.rng.integers(0, 1 << 63, len(sizes)).astype(np.uint64) * np.uint64(2) + np.uint64(1)

    def of_leaf(self, keyed: tuple[Table, Mapping[str, Any]], semiring: Semiring) -> TableSample:
        """Return the sample of a leaf table, given with the facts of its values."""
        table, kept = keyed
        relation = (
            table if isinstance(table, Relation) else from_dense(table, LOG_SUM if kept.get("logs") else semiring)
        )
        most, words = _MOST_LEAF_ROWS, relation.words
        if len(relation) > most:
            words = words[np.sort(self.rng.choice(len(words), most, replace=False))]
        states = relation.keys.unpack(words).astype(np.uint64)
        return TableSample(relation.keys.variables, states, float(len(relation)))

    def joined(self, inputs: Sequence[TableSample]) -> tuple[TableSample | None, float]:
        """Join the inputs of a step one after the other; returns how many rows that takes too.

        None where too few rows meet.
        """
        if any(one.states is None for one in inputs):
            return None, self._independent(inputs)
        share = min(one.share for one in inputs)
        rest = sorted((self._within(one, share) for one in inputs), key=lambda one: one.rows)
        left, rows = rest.pop(0), 0.0
        while rest:
            right = min(
                rest, key=lambda one: (ordered_sum([self.logs[v] for v in one.axes if v not in left.axes]), one.rows)
            )
            rest.remove(right)
            met = self._met(left, right)
            if met is None:
                return None, rows + self._independent(inputs)
            left, rows = met, rows + met.rows
        return left, max(rows, left.rows)

    def work(self, inputs: Sequence[TableSample], joined_rows: float) -> float:
        """Return the work of a step by its cheaper method, in rows of joins."""
        policy, cells = RowPolicy.current(), self._cells(_scope(inputs))
        density = self._independent(inputs) / cells
        swept = density * policy.cells_of_a_row >= 1.0 or cells <= policy.small_cells
        return cells / policy.cells_of_a_row if swept else joined_rows

    def reduced(
        self, axes: Sequence[int], inputs: Sequence[TableSample], found: TableSample | None, met: tuple[int, ...]
    ) -> TableSample:
        """Return the sample of a step's result, drawn by the hash of the variables in common with the tables it will
        meet.
        """
        axes, cells = tuple(axes), self._cells(axes)
        if found is None or found.states is None:
            return TableSample(axes, None, min(self._independent(inputs), cells))
        states = found.states[[found.axes.index(v) for v in axes]]
        _, first, counts = np.unique(self._codes(states, axes), return_index=True, return_counts=True)
        once = int((counts == 1).sum()) / max(found.drawn, 1)
        rows = len(first) / max(1.0 - (1.0 - 1.0 / found.scale) * once, 1e-12) / found.share
        return self._drawn(axes, states[:, first], min(rows, cells, found.rows), met)

    def _drawn(self, axes: tuple[int, ...], states: States, rows: float, met: tuple[int, ...]) -> TableSample:
        """Return a sample of few of some rows."""
        most, there = SamplingPolicy.current().most_rows, states.shape[1]
        share = min(most / max(there, 1), 1.0)
        if share == 1.0:
            return TableSample(axes, states, rows)
        if met:
            near = self._hashes(states, axes, met) <= share
            if near.sum() >= most / 4:
                return TableSample(axes, states[:, near], rows, met, share)
        return TableSample(axes, states[:, np.sort(self.rng.choice(there, most, replace=False))], rows)

    def _within(self, one: TableSample, share: float) -> TableSample:
        """Return the rows of a sample whose hash is small in all samples."""
        if one.states is None or one.share == share or not one.hashed:
            return one
        near = self._hashes(one.states, one.axes, one.hashed) <= share
        return replace(one, states=one.states[:, near], share=share)

    def _met(self, left: TableSample, right: TableSample) -> TableSample | None:
        """Join two samples; None where they are parts and too few rows meet."""
        policy = SamplingPolicy.current()
        common = [v for v in left.axes if v in right.axes]
        codes, wanted = (self._codes_of(one, common) for one in (right, left))
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        first = np.searchsorted(codes, wanted)
        ends = np.cumsum(np.searchsorted(codes, wanted, side="right") - first)
        total = int(ends[-1]) if len(ends) else 0
        share = min(left.share, right.share)
        if total < _FEWEST_ROWS and max(left.scale, right.scale, 1.0 / share) > 1.0:
            return None
        rows = total * left.scale * right.scale / share
        outputs = np.arange(total)
        if total > policy.most_joined:
            outputs = np.sort(self.rng.integers(0, total, policy.most_joined))
        at = np.searchsorted(ends, outputs, side="right")
        behind = outputs - np.concatenate([[0], ends])[at]
        own = [i for i, v in enumerate(right.axes) if v not in common]
        there = right.at(order[first[at] + behind])[own]
        axes = (*left.axes, *(right.axes[i] for i in own))
        return TableSample(axes, np.concatenate([left.at(at), there]), rows, left.hashed or right.hashed, share)

    def _cells(self, axes: Iterable[int]) -> float:
        return exp(min(ordered_sum([self.logs[v] for v in axes]), LARGEST_EXPONENT))

    def _independent(self, inputs: Sequence[TableSample]) -> float:
        """Return how many rows a join has if its inputs know nothing of each other."""
        densities = ordered_sum(
            log(max(one.rows, 1e-300)) - ordered_sum([self.logs[v] for v in one.axes]) for one in inputs
        )
        return exp(min(ordered_sum([self.logs[v] for v in _scope(inputs)]) + densities, LARGEST_EXPONENT))

    def _hashes(self, states: States, axes: Sequence[int], variables: Sequence[int]) -> NDArray[np.float64]:
        """Return a number from 0 to 1 for each row, the same for the same states of some variables in any table."""
        found = self._codes(states[[axes.index(v) for v in variables]], variables)
        for factor, shift in ((0xBF58476D1CE4E5B9, 31), (0x94D049BB133111EB, 29)):
            found = (found ^ found >> np.uint64(shift)) * np.uint64(factor)
        return (found ^ found >> np.uint64(32)) / 2.0**64

    def _codes_of(self, one: TableSample, variables: Sequence[int]) -> NDArray[np.uint64]:
        assert one.states is not None
        return self._codes(one.states[[one.axes.index(v) for v in variables]], variables)

    def _codes(self, states: States, variables: Sequence[int]) -> NDArray[np.uint64]:
        """Return a number for the states of each row, which hardly any other states have."""
        return self.factors[[*variables]] @ states


def _scope(inputs: Sequence[TableSample]) -> set[int]:
    """Return the variables of a join."""
    return set().union(*(one.axes for one in inputs))
