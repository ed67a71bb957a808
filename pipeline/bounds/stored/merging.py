"""Merging sorted runs on disk, range of keys by range of keys; of equal keys the cheapest row is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .row_files import Numbers


def merged(runs: Sequence[Numbers], words: int, most: int) -> Iterator[Numbers]:
    """Yield what is left of all runs, in the order of keys, about `most` rows of them at a time.

    Parameters
    ----------
    runs : sequence of (rows, words + 2) uint64
        Keys, the bits of costs, and origins; sorted by key, keys of a run are distinct.
    words : int
    most : int
    """
    for parts in _ranges(runs, words, most):
        rows = np.concatenate(parts)
        order = np.lexsort((rows[:, words + 1], rows[:, words].view(np.float64), *rows[:, :words].T[::-1]))
        rows = rows[order]
        fresh = np.ones(len(rows), np.bool_)
        fresh[1:] = (rows[1:, :words] != rows[:-1, :words]).any(axis=1)
        yield rows[fresh]


def _ranges(runs: Sequence[Numbers], words: int, most: int) -> Iterator[list[Numbers]]:
    """Cut all runs at the same keys."""
    total = sum(map(len, runs))
    if total <= most:
        yield [*runs]
        return
    step = max(1, most // (4 * len(runs)))
    samples = np.sort(np.concatenate([_ordered(run[step - 1 :: step], words) for run in runs]))
    keys = np.unique(samples[:: max(1, most // (2 * step))])
    cuts = [[0, *np.searchsorted(_ordered(run, words), keys).tolist(), len(run)] for run in runs]
    for ends in pairwise(zip(*cuts, strict=True)):
        parts = [run[a:b] for run, a, b in zip(runs, *ends, strict=True) if a < b]
        if parts:
            yield parts


def _ordered(rows: Numbers, words: int) -> NDArray[np.bytes_]:
    """Return keys as strings of bytes that compare as they do."""
    return np.ascontiguousarray(rows[:, :words], ">u8").view(f"S{8 * words}").reshape(-1)
