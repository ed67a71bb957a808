"""Merging sorted runs on disk, range of keys by range of keys; of equal keys the cheapest row is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....tasks.relations.sides.host import HOST
from ....tasks.relations.sides.plain import comparable
from .row_files import Numbers


class Run(Protocol):
    """Rows in the order of distinct keys: ``(rows, words + 2) uint64``, keys, the bits of costs, and origins."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Numbers:
        """Return some that follow each other."""
        ...


def merges(runs: Sequence[Run], words: int, most: int) -> Iterator[Callable[[], Numbers]]:
    """Yield what makes the rows that are left of all runs, in the order of keys, about `most` of them at a time.

    Between two of them nothing is held but where runs are cut.
    """
    total = sum(map(len, runs))
    if total <= most:
        yield partial(_merged, [(run, 0, len(run)) for run in runs], words)
        return
    step = max(1, most // (4 * len(runs)))
    samples = np.sort(np.concatenate([_comparable(run[:][step - 1 :: step], words) for run in runs]))
    keys = np.unique(samples[:: max(1, most // (2 * step))])
    cuts = [[0, *np.searchsorted(_comparable(run[:], words), keys).tolist(), len(run)] for run in runs]
    for ends in pairwise(zip(*cuts, strict=True)):
        parts = [(run, a, b) for run, a, b in zip(runs, *ends, strict=True) if a < b]
        if parts:
            yield partial(_merged, parts, words)


def _merged(parts: Sequence[tuple[Run, int, int]], words: int) -> Numbers:
    """Merge rows of some runs, from first to last place, and keep the cheapest of each key, the first of equals."""
    rows = np.concatenate([run[a:b] for run, a, b in parts])
    keys = np.ascontiguousarray(rows[:, :words])
    order = HOST.order(keys)
    if order is not None:
        rows, keys = rows[order], keys[order]
    heads = HOST.starts(keys)
    if len(heads) == len(rows):
        return rows
    costs = rows[:, words].copy().view(np.float64)
    groups = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(rows)))
    cheapest = np.flatnonzero(costs == np.minimum.reduceat(costs, heads)[groups])
    groups = groups[cheapest]
    first = np.append(True, groups[1:] != groups[:-1])
    left: Numbers = rows[cheapest[first]]
    return left


def _comparable(rows: Numbers, words: int) -> NDArray[Any]:
    """Return the keys of rows, copied, as numbers, or as strings that sort like them."""
    return comparable(np.ascontiguousarray(rows[:, :words]))
