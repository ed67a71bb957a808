"""Cutting a step by rows into boxes: ranges of states, by keys that were sampled from its inputs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.boxes.row_tables import RowRun
from ....tasks.relations.ranges import Ranges, inside
from ....tasks.relations.relation import Relation
from ....tasks.rows.keys import Keys, Words
from ....tasks.steps.step import Step

_SAMPLED: Final = 1 << 12
# What a variable has to gain more, as a part of what is read, to be chosen though it is summed out: its boxes make runs
# of the same rows, which readers merge.
_SUMMED_OUT: Final = 0.3
#: Parts that a box is cut into at once.
MOST_PARTS: Final = 16


@dataclass(frozen=True)
class Sample:
    """Keys of an input, and how many bytes each of them stands for."""

    keys: Keys
    words: Words
    nbytes: NDArray[np.float64]

    def within(self, ranges: Ranges) -> Sample:
        """Return the part within ranges."""
        found = inside(self.keys, self.words, ranges)
        return Sample(self.keys, self.words[found], self.nbytes[found])


@dataclass(frozen=True)
class Split:
    """A variable, and the states before which the ranges of the parts end."""

    variable: int
    cuts: tuple[int, ...]

    def parts(self, ranges: Ranges, sizes: Sequence[int]) -> Iterator[Ranges]:
        """Yield the ranges of the parts."""
        first, stop = ranges.get(self.variable, (0, sizes[self.variable]))
        for part in zip((first, *self.cuts), (*self.cuts, stop), strict=True):
            yield {**ranges, self.variable: part}


def sample_of_runs(runs: Sequence[RowRun]) -> Sample:
    """Return what the receipts of an input on disk tell."""
    found = [(run.samples[0], run.samples[1] * run.row_bytes) for run in runs]
    return Sample(runs[0].keys, *(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def sample_of_rows(table: Relation) -> Sample:
    """Return some keys of an input in memory."""
    words = table.words[:: max(1, len(table) // _SAMPLED)]
    return Sample(table.keys, words, np.full(len(words), table.nbytes / max(len(words), 1)))


def bytes_within(samples: Sequence[Sample], ranges: Ranges) -> float:
    """Predict the bytes of all inputs within ranges."""
    return float(sum(sample.within(ranges).nbytes.sum() for sample in samples))


def split(
    step: Step, sizes: Sequence[int], samples: Sequence[Sample], ranges: Ranges, parts: int, *, reads: bool
) -> Split | None:
    """Choose how a box is cut; None if it has one state of every variable.

    Parameters
    ----------
    reads : bool
        Whether its inputs are too large, and not what it makes.
    """
    inside_ = [sample.within(ranges) for sample in samples]
    variables = [*step.axes, *(v for axes in step.input_axes for v in axes if v not in step.axes)]
    open_ = {v: ranges.get(v, (0, sizes[v])) for v in variables}
    candidates = [v for v, (first, stop) in open_.items() if stop - first > 1]
    if not candidates:
        return None
    weights = [sample.nbytes.sum() for sample in inside_]
    total = max(sum(weights), 1.0)

    def left(v: int) -> float:
        read = sum(w * (0.5 if v in s.keys.fields else 1.0) for s, w in zip(inside_, weights, strict=True)) / total
        return float(read + (0.0 if v in step.axes else _SUMMED_OUT if reads else 1.0))

    chosen = min(candidates, key=left)
    own = [sample for sample in inside_ if chosen in sample.keys.fields]
    return Split(chosen, _cuts(chosen, *open_[chosen], own, min(parts, MOST_PARTS)))


def _cuts(variable: int, first: int, stop: int, samples: Sequence[Sample], parts: int) -> tuple[int, ...]:
    """Return states between which about as many bytes lie; those that have so many alone are parts of their own."""
    load: NDArray[Any] = np.full(stop - first, 1e-9)
    for sample in samples:
        word, shift, bits = sample.keys.fields[variable]
        states = sample.words[:, word] >> np.uint64(shift) & np.uint64((1 << bits) - 1)
        load += np.bincount(states.astype(np.int64) - first, sample.nbytes, stop - first)
    behind = np.cumsum(load)
    goals = behind[-1] * np.arange(1, parts) / parts
    found = {int(cut) for cut in np.searchsorted(behind, goals) + first + 1}
    found |= {int(at) for state in np.flatnonzero(load > behind[-1] / parts) + first for at in (state, state + 1)}
    heaviest = first + int(load.argmax())
    cuts = sorted(cut for cut in found if first < cut < stop)
    return tuple(cuts) or ((heaviest,) if heaviest > first else (heaviest + 1,))
