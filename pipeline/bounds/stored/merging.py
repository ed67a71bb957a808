"""Merging sorted runs on disk, range of keys by range of keys; of equal keys the cheapest row is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
    samples = np.sort(np.concatenate([_ordered(run[:][step - 1 :: step], words) for run in runs]))
    keys = np.unique(samples[:: max(1, most // (2 * step))])
    cuts = [[0, *np.searchsorted(_ordered(run[:], words), keys).tolist(), len(run)] for run in runs]
    for ends in pairwise(zip(*cuts, strict=True)):
        parts = [(run, a, b) for run, a, b in zip(runs, *ends, strict=True) if a < b]
        if parts:
            yield partial(_merged, parts, words)


def _merged(parts: Sequence[tuple[Run, int, int]], words: int) -> Numbers:
    """Sort rows of some runs, from first to last place, by key, and keep the cheapest of each."""
    rows = np.concatenate([run[a:b] for run, a, b in parts])
    order = np.lexsort((rows[:, words + 1], rows[:, words].view(np.float64), *rows[:, :words].T[::-1]))
    rows = rows[order]
    fresh = np.ones(len(rows), np.bool_)
    fresh[1:] = (rows[1:, :words] != rows[:-1, :words]).any(axis=1)
    return rows if fresh.all() else rows[fresh]


def _ordered(rows: Numbers, words: int) -> NDArray[np.bytes_]:
    """Return keys as strings of bytes that compare as they do."""
    return np.ascontiguousarray(rows[:, :words], ">u8").view(f"S{8 * words}").reshape(-1)
