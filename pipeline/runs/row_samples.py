"""How many rows the joins of a sweep have, by samples: of each table some rows, which are joined and reduced as all are.

Rows of one table meet few of those that were drawn from another one. So messages that meet are drawn together
(correlated sampling: Vengerov et al., PVLDB 2015, §3): those rows stay whose states of the variables that all of them
share have a small hash. What has few rows is there whole, as an index that samples are joined with (Leis et al., CIDR
2017, §3). How many rows are left once variables are summed out is estimated from how many of the sample are there once
only (unsmoothed jackknife: Haas et al., VLDB 1995, §4). Where too few rows meet, tables count as independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks.rows.keys import Keys, Words
from ...tasks.rows.numpy_rows import comparable
from ...tasks.rows.ordering import joined, layout, moved
from ...tasks.rows.relation import Relation, Table, from_dense
from ...tasks.steps.row_policy import RowPolicy
from ...tasks.steps.semiring import LOG_SUM, Semiring
from ...tasks.steps.step import Step
from .run import Run
from .sampling_policy import SamplingPolicy


@dataclass(frozen=True, eq=False)
class TableSample:
    """Some rows of a table.

    Parameters
    ----------
    keys : Keys
    words : (rows, words) uint64 or None
        Keys of the rows; None where nothing is known but how many there are.
    rows : float
        Of the table, as far as anyone knows.
    hashed : tuple of int
        Variables by whose hash rows were drawn.
    share : float
        Rows stay whose hash is at most this.
    """

    keys: Keys
    words: Words | None
    rows: float
    hashed: tuple[int, ...] = ()
    share: float = 1.0

    @property
    def is_whole(self) -> bool:
        """Whether all rows are there."""
        return self.words is not None and len(self.words) >= self.rows

    @property
    def density(self) -> float:
        """Rows for each cell."""
        return exp(log(max(self.rows, 1e-300)) - sum(map(log, self.keys.dims)))

    @property
    def scale(self) -> float:
        """How many rows each one stands for, of those with a small hash."""
        assert self.words is not None
        return max(self.rows * self.share / max(len(self.words), 1), 1.0)


def sampled_work(run: Run[Any], most_work: float = inf) -> float:
    """Return about how many rows the joins of one sweep have together, loops over cells counted as those.

    Parameters
    ----------
    run : Run
        By rows, up the tree.
    most_work : float
        Where it is more nobody wants to know how much.
    """
    rng, plan = np.random.default_rng(0), run.plan
    program, semiring = run.program(plan.steps, plan.outputs), run.problem.semiring
    algebra: Any = program.algebra
    tables = {node: _of_leaf(*algebra.keyed(table, program.leaf_axes[node]), semiring, rng)
              for node, table in program.leaves.items()}  # fmt: skip
    meeting = _met_by(plan.steps)
    work = 0.0
    for step in plan.steps:
        joins = _Joins(step, [tables.pop(i) if i in meeting else tables[i] for i in step.inputs], rng)
        tables[step.node] = joins.reduced(meeting.get(step.node, ()))
        work += joins.work
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


def _of_leaf(table: Table, kept: Mapping[str, Any], semiring: Semiring, rng: np.random.Generator) -> TableSample:
    """Return the sample of a leaf table."""
    relation = table if isinstance(table, Relation) else from_dense(table, LOG_SUM if kept.get("logs") else semiring)
    most = SamplingPolicy.current().most_leaf_rows
    words = relation.words if len(relation) <= most else rng.choice(relation.words, most, replace=False)
    return TableSample(relation.keys, np.asarray(words), float(len(relation)))


class _Joins:
    """The joins of a step, by samples.

    Parameters
    ----------
    step : Step
    inputs : sequence of TableSample
    rng : Generator

    Attributes
    ----------
    work : float
        Rows of all joins, or the loop's cells counted as rows.
    """

    def __init__(self, step: Step, inputs: Sequence[TableSample], rng: np.random.Generator) -> None:
        self.inputs, self.rng = inputs, rng
        sizes = {v: d for one in inputs for v, d in one.keys.sizes.items()}
        self.cells = float(min(prod(sizes.values()), 1 << 900))
        self.out = Keys(tuple(step.axes), tuple([sizes[v] for v in step.axes]))
        self.joined_rows = 0.0
        self.found = self._chained()
        density = prod([one.density for one in inputs])
        loop = self.cells / RowPolicy.current().cells_of_a_row
        swept = density * RowPolicy.current().cells_of_a_row >= 1.0 or self.cells <= RowPolicy.current().small_cells
        self.work = loop if swept else self.joined_rows
        self.independent = self.cells * density

    def reduced(self, met: tuple[int, ...]) -> TableSample:
        """Return what the step makes, drawn by the hash of what it has in common with what it meets."""
        cells = float(min(prod(self.out.dims), 1 << 900))
        if self.found is None or self.found.words is None:
            return TableSample(self.out, None, min(self.independent, cells))
        sample = self.found
        words = moved(sample.words, sample.keys, self.out)
        drawn, scale = len(words), sample.scale
        unique, counts = np.unique(comparable(np.ascontiguousarray(words)), return_counts=True)
        _, first = np.unique(comparable(np.ascontiguousarray(words)), return_index=True)
        once = int((counts == 1).sum())
        rows = len(unique) / max(1.0 - (1.0 - 1.0 / scale) * once / max(drawn, 1), 1e-12) / sample.share
        return self._drawn(words[first], min(rows, cells, max(sample.rows, 1.0) if drawn else 0.0), met)

    def _drawn(self, words: Words, rows: float, met: tuple[int, ...]) -> TableSample:
        """Return a sample of few of some rows."""
        most = SamplingPolicy.current().most_rows
        if len(words) <= most and (not met or len(words) >= rows):
            return TableSample(self.out, words, rows)
        share = min(most / max(len(words), 1), 1.0)
        if met:
            near = hashes(words, self.out, met) <= share
            if near.sum() >= share * len(words) / 4:
                return TableSample(self.out, words[near], rows, met, share)
        chosen = self.rng.choice(len(words), min(most, len(words)), replace=False)
        return TableSample(self.out, words[np.sort(chosen)], rows)

    def _chained(self) -> TableSample | None:
        """Join the inputs one after the other; None where too few rows meet."""
        if any(one.words is None for one in self.inputs):
            self.joined_rows = self.cells * prod([one.density for one in self.inputs])
            return None
        share = min(one.share for one in self.inputs)
        rest = sorted((self._within(one, share) for one in self.inputs), key=lambda one: one.rows)
        left = rest.pop(0)
        while rest:
            right = min(rest, key=lambda one: _growth(one, left.keys))
            rest.remove(right)
            met = self._met(left, right)
            if met is None:
                self.joined_rows += self.cells * prod([one.density for one in self.inputs])
                return None
            left = met
            self.joined_rows += left.rows
        self.joined_rows = max(self.joined_rows, left.rows)
        return replace(left, share=share)

    def _within(self, one: TableSample, share: float) -> TableSample:
        """Return the rows of a sample whose hash is small in all samples."""
        if one.words is None or one.share == share or not one.hashed:
            return one
        near = hashes(one.words, one.keys, one.hashed) <= share
        return replace(one, words=one.words[near], share=share)

    def _met(self, left: TableSample, right: TableSample) -> TableSample | None:
        """Join two samples; None where both are parts and too few rows meet."""
        assert left.words is not None
        assert right.words is not None
        policy = SamplingPolicy.current()
        common = layout(left.keys, [v for v in left.keys.variables if v in right.keys.fields])
        codes = comparable(np.ascontiguousarray(moved(right.words, right.keys, common)))
        order = np.argsort(codes, kind="stable")
        wanted = comparable(np.ascontiguousarray(moved(left.words, left.keys, common)))
        first = np.searchsorted(codes[order], wanted)
        ends = np.cumsum(np.searchsorted(codes[order], wanted, side="right") - first)
        total = int(ends[-1]) if len(ends) else 0
        # rows of both that have a small hash stand for as many of all
        rows = total * left.scale * right.scale / min(left.share, right.share)
        whole = max(left.scale, right.scale) <= 1.0
        if total < policy.fewest_rows and not whole:
            return None
        outputs = np.arange(total) if total <= policy.most_joined else self._some_of(total, policy.most_joined)
        rows_left = np.searchsorted(ends, outputs, side="right")
        begin = np.concatenate([[0], ends])[rows_left]
        rows_right = order[first[rows_left] + outputs - begin]
        keys = joined(left.keys, right.keys)
        words = moved(left.words[rows_left], left.keys, keys)
        words |= moved(right.words[rows_right], right.keys, keys) & ~_fields(keys, left.keys)
        return TableSample(keys, words, rows, left.hashed or right.hashed, min(left.share, right.share))

    def _some_of(self, total: int, count: int) -> NDArray[np.int64]:
        return np.sort(self.rng.integers(0, total, count))


def _growth(one: TableSample, known: Keys) -> tuple[int, float]:
    """Return how many states the variables of a table have that are not known yet, and its rows."""
    return prod([d for v, d in one.keys.sizes.items() if v not in known.fields]), one.rows


def _fields(keys: Keys, part: Keys) -> Words:
    """Return a key with ones in the fields of some variables."""
    return np.invert(keys.mask([v for v in part.variables if v in keys.fields]))


def hashes(words: Words, keys: Keys, variables: Sequence[int]) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each row, the same for the same states of some variables in any table."""
    found = np.full(len(words), 0x9E3779B97F4A7C15, np.uint64)
    for column in moved(words, keys, layout(keys, variables)).T:
        found = (found ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(31)
        found *= np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(29)
    return found / 2.0**64
