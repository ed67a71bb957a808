"""Which variables to condition on, so that no table is larger than allowed.

Conditioning on a variable x ("slicing", "cutset conditioning") runs the tree once per state of x with x
gone from every table. Steps without x are repeated, so the extra work is what x does *not* appear in.

Four variables of ten states, a function for each pair: the largest message has 1,000 cells. With one variable fixed no
table has more than 100, in ten slices that together sweep what the whole sweeps.

>>> from itertools import combinations
>>> from bucketflow.pipeline.trees.costs import tree_cost
>>> from bucketflow.pipeline.trees.tree import bucket_tree
>>> tree = bucket_tree((10,) * 4, list(combinations(range(4), 2)), order=(0, 1, 2, 3))
>>> sliced = slice_tree(tree, 100)
>>> len(sliced), slice_count(tree, sliced)
(1, 10)
>>> for cost in tree_cost(tree), tree_cost(tree, sliced=sliced):
...     cost.cells, cost.largest_table_cells
(11100, 1000)
(1110, 100)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from math import inf, log2, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .costs import GPU_RATES, KernelRates, Rates, sized_work, step_seconds
from .tree import Sizer, Tree

_EPSILON = 1e-9
# A greedy choice that takes 2^this many times too many slices does not become small enough by what it can do without.
_DROPPED = 10.0
#: Attempts to improve a greedy choice.
CAREFUL_ROUNDS: Final = 30


class _Incidence:
    """Which candidate variables each step and each large table has, as arrays, with log2 sizes.

    Parameters
    ----------
    log_limit : float
        Only tables above this are to be made smaller.
    """

    def __init__(self, tree: Tree, rates: Rates, itemsize: int, log_limit: float) -> None:
        dims, sizer = tree.dims, Sizer(tree.dims)
        sizes = [sizer.log(mask) for mask in tree.scope_masks]
        large = [i for i, size in enumerate(sizes) if size > log_limit + _EPSILON]
        self.log_limit = log_limit
        self.variables = np.array(sorted({v for i in large for v in tree.scopes[i] if dims[v] > 1}), dtype=np.int64)
        self.logs = np.log2(np.array([dims[v] for v in self.variables], dtype=np.float64))
        self.sizes = np.array([sizes[i] for i in large])
        self.tables = _membership([tree.scopes[i] for i in large], self.variables)
        self.steps = _membership(tree.joined, self.variables)
        self.log_seconds = np.array(_log_seconds(tree, sizer, rates, itemsize))

    def log_work(self, sliced: Iterable[int]) -> tuple[float, NDArray[np.float64]]:
        """Return log2 of all slices' seconds, and what conditioning on each candidate too would make it.

        ``sliced`` holds positions among the candidates.
        """
        picked = list(sliced)
        log_step = self.log_seconds - self.steps[:, picked] @ self.logs[picked]
        top = float(log_step.max(initial=-1e9))
        weight = np.exp2(log_step - top)
        total = float(weight.sum())
        # steps that have the variable are divided among its states, the others are repeated
        after = total + (np.exp2(self.logs) - 1.0) * np.maximum(total - weight @ self.steps, 0.0)
        base = top + float(self.logs[picked].sum())
        return base + log2(max(total, 1e-300)), base + np.log2(np.maximum(after, 1e-300))

    def log_count(self, sliced: Iterable[int]) -> float:
        """Return log2 of the number of slices."""
        return float(self.logs[list(sliced)].sum())

    def sliced_sizes(self, sliced: Iterable[int]) -> NDArray[np.float64]:
        """Return the log2 sizes of the large tables under conditioning."""
        picked = list(sliced)
        return self.sizes - self.tables[:, picked] @ self.logs[picked]

    def fits(self, sliced: Iterable[int]) -> bool:
        """Tell whether every table is within the limit."""
        return bool(np.all(self.sliced_sizes(sliced) <= self.log_limit + _EPSILON))

    def choose(self, sliced: Set[int], rng: np.random.Generator | None = None) -> int:
        """Pick the candidate with the least growth of work for what it takes off the largest tables."""
        sizes = self.sliced_sizes(sliced)
        highest = sizes.max(initial=0.0)
        # a table far above the others needs further variables anyway
        weight = np.exp2(sizes - highest) * np.clip(sizes - self.log_limit, 0.0, 1.0)
        if not weight.any():
            weight = np.exp2(sizes - highest)
        relief = (weight @ self.tables) / weight.sum() * self.logs
        relief[list(sliced)] = 0.0
        work, after = self.log_work(sliced)
        growth = after - work + 0.01 * self.logs
        if rng is not None:
            growth = growth * np.exp2(rng.random(len(growth)))
        with np.errstate(divide="ignore"):
            return int(np.argmin(np.where(relief > 0, growth / np.maximum(relief, 1e-300), np.inf)))

    def complete(self, start: Iterable[int], log_most: float, rng: np.random.Generator | None = None) -> frozenset[int]:
        """Add candidates until every table is within the limit, then drop those that were not needed.

        Where that takes many more than 2^``log_most`` slices, those that were added by then are returned.
        """
        sliced = set(start)
        while not self.fits(sliced):
            sliced.add(self.choose(sliced, rng))
            if self.log_count(sliced) > log_most + _DROPPED:
                return frozenset(sliced)
        for v in sorted(sliced, key=lambda v: (-self.logs[v], v)):
            if self.fits(sliced - {v}):
                sliced.discard(v)
        return frozenset(sliced)


def slice_tree(
    tree: Tree,
    max_table_cells: int,
    rates: Rates | None = None,
    *,
    itemsize: int = 8,
    seed: int = 0,
    rounds: int = CAREFUL_ROUNDS,
    most_slices: float = inf,
) -> frozenset[int]:
    """Choose variables to condition on until no table exceeds a number of cells.

    A greedy choice is improved by local search: a few variables are taken back, and replaced greedily with
    some chance.

    Parameters
    ----------
    max_table_cells : int
        At least 1; input functions count as tables too.
    rounds : int
        Attempts of the local search.
    most_slices : float
        Where a greedy choice takes more, it is not improved; where it takes many more, it ends before it suffices.
    """
    incidence = _Incidence(tree, rates or Rates(), itemsize, log2(max(max_table_cells, 1)))
    rng, log_most = np.random.default_rng(seed), log2(most_slices) + _EPSILON
    best = incidence.complete((), log_most)
    if incidence.log_count(best) > log_most:
        rounds = 0
    best_work = incidence.log_work(best)[0]
    for _ in range(rounds if best else 0):
        count = int(rng.integers(1, len(best) // 2 + 2))
        removed = rng.choice(sorted(best), size=min(count, len(best)), replace=False)
        trial = incidence.complete(best - {int(v) for v in removed}, log_most, rng)
        work = incidence.log_work(trial)[0]
        if work < best_work - _EPSILON and incidence.log_count(trial) <= log_most:
            best, best_work = trial, work
    return frozenset(int(incidence.variables[v]) for v in best)


def slice_count(tree: Tree, sliced: Iterable[int]) -> int:
    """Return the number of slices."""
    return prod(tree.dims[v] for v in sliced)


def variant_nodes(tree: Tree, sliced: frozenset[int]) -> frozenset[int]:
    """Nodes whose table depends on the states of the sliced variables."""
    varies = [not sliced.isdisjoint(scope) for scope in tree.leaves]
    for kids in tree.children:
        varies.append(any(varies[c] for c in kids))
    return frozenset(node for node, flag in enumerate(varies) if flag)


def _log_seconds(tree: Tree, sizer: Sizer, rates: Rates, itemsize: int) -> list[float]:
    """Return log2 of the predicted seconds of each step, without its overhead."""
    # which tables launches join is another matter once they are slices
    loops = replace(GPU_RATES if isinstance(rates, KernelRates) else rates, step_seconds=0.0)
    masks = tree.scope_masks
    found = []
    for kids, output in zip(tree.children, masks[tree.n_leaves :], strict=True):
        work = sized_work(sizer, [masks[c] for c in kids], output)
        # relative to the sweep, which may be beyond the range of floats
        joined = work.joined_cells / work.cells
        share = work._replace(cells=1.0, moved_cells=work.moved_cells / work.cells, joined_cells=joined)
        found.append(log2(work.cells) + log2(step_seconds(share, loops, itemsize)))
    return found


def _membership(sets: Sequence[frozenset[int]], variables: NDArray[np.int64]) -> NDArray[np.float64]:
    """Lay sets of variables out as rows of ones and zeros, one column per variable of ``variables``."""
    column = {int(v): i for i, v in enumerate(variables)}
    out = np.zeros((len(sets), len(variables)))
    for i, row in enumerate(sets):
        out[i, [column[v] for v in row if v in column]] = 1.0
    return out
