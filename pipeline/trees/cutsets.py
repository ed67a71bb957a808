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

from ...tasks.steps.caches import Remembered
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.number_limits import SAME_SHARE
from .costs import GPU_RATES, KernelRates, Rates, sized_work, step_seconds
from .tree import Sizer, Tree, sizer_of

# A greedy choice with 2^this times too many slices cannot become small enough by removing variables.
_DROPPED = 10.0
#: Attempts to improve a greedy choice.
CAREFUL_ROUNDS: Final = 30


@dataclass(frozen=True)
class _Tables:
    """Quantities that do not depend on the limit: log2 of the cells of all tables and of the seconds of all steps, and
    a byte for each variable of a table or a step.
    """

    log_sizes: NDArray[np.float64]
    log_seconds: NDArray[np.float64]
    scopes: NDArray[np.uint8]
    joined: NDArray[np.uint8]


_KNOWN: Final[Remembered[_Tables]] = Remembered(8)


def _tables_of(tree: Tree, rates: Rates, itemsize: int) -> _Tables:
    """Return the quantities shared by all limits, computed once for each tree, because limits are halved until slices
    fit.
    """
    sizer, count = sizer_of(tree.dims), len(tree.dims)
    return _KNOWN.of(
        (tree,),
        (rates, itemsize),
        lambda: _Tables(
            np.array(list(map(sizer.log, tree.scope_masks))),
            np.array(_log_seconds(tree, sizer, rates, itemsize)),
            _membership(tree.scope_masks, count),
            _membership(tree.joined_masks, count),
        ),
    )


_Conditioned = tuple[NDArray[np.float64], NDArray[np.float64]]


class _Incidence:
    """Which candidate variables each step and each large table has, as arrays, with log2 sizes.

    Parameters
    ----------
    log_limit : float
        Only tables above this are to be made smaller.
    """

    def __init__(self, tree: Tree, rates: Rates, itemsize: int, log_limit: float) -> None:
        found, log_dims = _tables_of(tree, rates, itemsize), np.log2(np.array(tree.dims, dtype=np.float64))
        large = found.log_sizes > log_limit + SAME_SHARE
        self.log_limit = log_limit
        self.variables = np.flatnonzero(found.scopes[large].any(axis=0) & (log_dims > 0))
        self.logs = log_dims[self.variables]
        self.sizes = found.log_sizes[large]
        self.tables = found.scopes[large][:, self.variables].astype(np.float64)
        self.steps = found.joined[:, self.variables].astype(np.float64)
        self.log_seconds = found.log_seconds
        # reduction of each table and each step by a candidate, one row per candidate
        self._off_tables = np.ascontiguousarray((self.tables * self.logs).T)
        self._off_steps = np.ascontiguousarray((self.steps * self.logs).T)
        self._more = np.exp2(self.logs) - 1.0

    def log_work(self, sliced: Iterable[int]) -> float:
        """Return log2 of all slices' seconds; ``sliced`` holds positions among the candidates."""
        picked = list(sliced)
        _, log_step = self.under(picked)
        top = float(log_step.max(initial=-1e9))
        return top + float(self.logs[picked].sum()) + log2(max(float(np.exp2(log_step - top).sum()), 1e-300))

    def log_count(self, sliced: Iterable[int]) -> float:
        """Return log2 of the number of slices."""
        return float(self.logs[list(sliced)].sum())

    def under(self, sliced: Iterable[int]) -> _Conditioned:
        """Return log2 of the large tables, and of the seconds of the steps, under conditioning."""
        picked = list(sliced)
        return self.sizes - self._off_tables[picked].sum(axis=0), self.log_seconds - self._off_steps[picked].sum(axis=0)

    def choose(
        self, sliced: Set[int], under: _Conditioned | None = None, rng: np.random.Generator | None = None
    ) -> int:
        """Pick the candidate with the least growth of work relative to its reduction of the largest tables."""
        sizes, log_step = under or self.under(sliced)
        # a table far above the others needs further variables anyway
        near = np.exp2(sizes - sizes.max())
        weight = near * np.minimum(np.maximum(sizes - self.log_limit, 0.0), 1.0)
        if not (total := float(weight.sum())):
            weight, total = near, float(near.sum())
        relief = (weight @ self.tables) / total * self.logs
        relief[list(sliced)] = 0.0
        # steps that have the variable are divided among its states, the others are repeated
        shares = np.exp2(log_step - log_step.max())
        work = float(shares.sum())
        after = work + self._more * np.maximum(work - shares @ self.steps, 0.0)
        growth = np.log2(np.maximum(after, 1e-300)) - log2(max(work, 1e-300)) + 0.01 * self.logs
        if rng is not None:
            growth = growth * np.exp2(rng.random(len(growth)))
        possible = relief > 0
        rated = np.full(len(growth), inf)
        np.divide(growth, np.maximum(relief, 1e-300), out=rated, where=possible)
        return int(rated.argmin())

    def complete(self, start: Iterable[int], log_most: float, rng: np.random.Generator | None = None) -> frozenset[int]:
        """Add candidates until every table is within the limit, then drop the unnecessary ones.

        If this takes many more than 2^``log_most`` slices, the candidates added so far are returned.
        """
        sliced = set(start)
        allowed = self.log_limit + SAME_SHARE
        sizes, log_step = self.under(sliced)
        while (sizes > allowed).any():
            v = self.choose(sliced, (sizes, log_step), rng)
            sliced.add(v)
            if self.log_count(sliced) > log_most + _DROPPED:
                return frozenset(sliced)
            sizes -= self._off_tables[v]
            log_step -= self._off_steps[v]
        for v in sorted(sliced, key=lambda v: (-self.logs[v], v)):
            without = sizes + self._off_tables[v]
            if not (without > allowed).any():
                sliced.discard(v)
                sizes = without
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
    rng, log_most = np.random.default_rng(seed), log2(most_slices) + SAME_SHARE
    best = incidence.complete((), log_most)
    if incidence.log_count(best) > log_most:
        rounds = 0
    best_work = incidence.log_work(best)
    for _ in range(rounds if best else 0):
        count = int(rng.integers(1, len(best) // 2 + 2))
        removed = rng.choice(sorted(best), size=min(count, len(best)), replace=False)
        trial = incidence.complete(best - {int(v) for v in removed}, log_most, rng)
        work = incidence.log_work(trial)
        if work < best_work - SAME_SHARE and incidence.log_count(trial) <= log_most:
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


def _membership(masks: Sequence[int], count: int) -> NDArray[np.uint8]:
    """Expand bit sets into rows of ones and zeros, with one column for each of ``count`` variables."""
    width = count // 8 + 1
    data = b"".join([mask.to_bytes(width, "little") for mask in masks])
    rows = np.frombuffer(data, dtype=np.uint8).reshape(len(masks), width)
    return np.unpackbits(rows, axis=1, bitorder="little", count=count)
