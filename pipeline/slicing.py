"""Which variables to condition on, so that no table is larger than allowed.

Conditioning on a variable x ("slicing", "cutset conditioning") runs the tree once per state of x with x
gone from every table. Steps without x are repeated, so the extra work is what x does *not* appear in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from .costs import Rates, is_matmul, step_seconds
from .ordering import refine_tree
from .trees import Tree


@dataclass(frozen=True, eq=False)
class _Incidence:
    """Which variables each step and each large table has, as arrays, with log2 sizes."""

    tree: Tree
    rates: Rates
    itemsize: int

    @cached_property
    def logs(self) -> NDArray[np.float64]:
        """log2 of the domain sizes, shape (n,)."""
        return np.log2(np.asarray(self.tree.dims, dtype=np.float64))

    @cached_property
    def steps(self) -> NDArray[np.float64]:
        """1 where a step sweeps a variable, shape (steps, n)."""
        return _membership(self.tree.joined, len(self.tree.dims))

    @cached_property
    def tables(self) -> NDArray[np.float64]:
        """1 where a table has a variable, shape (tables, n)."""
        return _membership(self.tree.scopes, len(self.tree.dims))

    @cached_property
    def log_seconds(self) -> NDArray[np.float64]:
        """log2 of the predicted seconds of each step without slicing, shape (steps,)."""
        swept = self.steps @ self.logs
        sizes = self.tables @ self.logs
        out = np.empty(len(swept))
        for j, kids in enumerate(self.tree.children):
            # relative to the sweep, which may be beyond the range of floats
            inputs = [2.0 ** (sizes[c] - swept[j]) for c in kids]
            output = 2.0 ** (sizes[self.tree.n_leaves + j] - swept[j])
            matmul = is_matmul(1.0, inputs, output)
            free = Rates(
                self.rates.cells_per_second, self.rates.matmul_cells_per_second, self.rates.bytes_per_second, 0.0
            )
            out[j] = swept[j] + log2(step_seconds(1.0, sum(inputs) + output, matmul, free, self.itemsize))
        return out

    def log_work(self, sliced: Iterable[int]) -> tuple[float, NDArray[np.float64]]:
        """Return log2 of all slices' seconds together, and log2 of what slicing each variable would make it."""
        picked = list(sliced)
        log_step = self.log_seconds - self.steps[:, picked] @ self.logs[picked]
        top = log_step.max(initial=0.0)
        weight = np.exp2(log_step - top)
        total = weight.sum()
        held = weight @ self.steps
        repeats = np.exp2(np.minimum(self.logs, 60.0))
        after = repeats * total - (repeats - 1) * held
        base = top + self.logs[picked].sum()
        return base + float(np.log2(max(total, 1e-300))), base + np.log2(np.maximum(after, 1e-300))

    def excess(self, sliced: Iterable[int], log_limit: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which tables are above the limit, and every table's log2 size."""
        picked = list(sliced)
        sizes = self.tables @ self.logs - self.tables[:, picked] @ self.logs[picked]
        return sizes > log_limit + 1e-9, sizes


def next_slice(
    tree: Tree,
    sliced: Set[int],
    *,
    max_cells: int | None = None,
    rates: Rates | None = None,
    itemsize: int = 8,
) -> int:
    """Choose the next variable to condition on: the least extra work for what it takes off the large tables.

    Parameters
    ----------
    sliced : set of int
        Variables conditioned on already.
    max_cells : int, optional
        The largest table wanted; without it only the largest tables of now count.

    Raises
    ------
    ValueError
        If no table has a variable left.
    """
    incidence = _Incidence(tree, rates or Rates(), itemsize)
    limit = None if max_cells is None else log2(max(max_cells, 1))
    return _greedy_choice(incidence, sliced, limit, None)


def slice_order(
    tree: Tree, *, max_cells: int | None = None, rates: Rates | None = None, itemsize: int = 8
) -> Iterator[int]:
    """Yield the variables to condition on, one after the other, until no table has a variable."""
    incidence = _Incidence(tree, rates or Rates(), itemsize)
    limit = None if max_cells is None else log2(max(max_cells, 1))
    sliced: set[int] = set()
    while incidence.excess(sliced, 0.0)[0].any():
        sliced.add(v := _greedy_choice(incidence, sliced, limit, None))
        yield v


def slice_tree(
    tree: Tree,
    max_table_cells: int,
    *,
    rates: Rates | None = None,
    itemsize: int = 8,
    seed: int = 0,
    rounds: int = 60,
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
    """
    incidence = _Incidence(tree, rates or Rates(), itemsize)
    limit = log2(max(max_table_cells, 1))
    rng = np.random.default_rng(seed)
    best = _complete(incidence, frozenset(), limit, None)
    best_work = incidence.log_work(best)[0]
    for _ in range(rounds if best else 0):
        count = int(rng.integers(1, max(2, len(best) // 3 + 1)))
        removed = rng.choice(sorted(best), size=min(count, len(best)), replace=False)
        trial = _complete(incidence, best - {int(v) for v in removed}, limit, rng)
        work = incidence.log_work(trial)[0]
        if work < best_work - 1e-9:
            best, best_work = trial, work
    return best


def slice_and_refine(
    tree: Tree,
    max_table_cells: int,
    *,
    rates: Rates | None = None,
    itemsize: int = 8,
    seed: int = 0,
    seconds: float = 2.0,
    rounds: int = 4,
) -> tuple[Tree, frozenset[int]]:
    """Slice a tree, rearrange it for the sliced problem, and slice again, keeping the best pair.

    Parameters
    ----------
    seconds : float
        Planning time of all rearrangements together.
    """
    sliced = slice_tree(tree, max_table_cells, rates=rates, itemsize=itemsize, seed=seed)
    best, best_work = (tree, sliced), sliced_work(tree, sliced, rates, itemsize)
    for turn in range(rounds if sliced else 0):
        tree = refine_tree(
            tree, sliced=sliced, seconds=seconds / rounds, seed=seed + turn, rates=rates, itemsize=itemsize
        )
        sliced = slice_tree(tree, max_table_cells, rates=rates, itemsize=itemsize, seed=seed + turn)
        work = sliced_work(tree, sliced, rates, itemsize)
        if work < best_work:
            best, best_work = (tree, sliced), work
    return best


def sliced_work(tree: Tree, sliced: Set[int], rates: Rates | None = None, itemsize: int = 8) -> float:
    """Return log2 of the predicted seconds of all slices together, without the overhead of steps."""
    return _Incidence(tree, rates or Rates(), itemsize).log_work(sliced)[0]


def slice_count(tree: Tree, sliced: Iterable[int]) -> int:
    """Return the number of slices."""
    return prod(tree.dims[v] for v in sliced)


def _complete(
    incidence: _Incidence, start: frozenset[int], log_limit: float, rng: np.random.Generator | None
) -> frozenset[int]:
    """Add variables until every table is within the limit, then drop those that were not needed."""
    sliced = set(start)
    while incidence.excess(sliced, log_limit)[0].any():
        sliced.add(_greedy_choice(incidence, sliced, log_limit, rng))
    for v in sorted(sliced, key=lambda v: -incidence.logs[v]):
        if not incidence.excess(sliced - {v}, log_limit)[0].any():
            sliced.discard(v)
    return frozenset(sliced)


def _greedy_choice(
    incidence: _Incidence, sliced: Set[int], log_limit: float | None, rng: np.random.Generator | None
) -> int:
    """Pick the variable with the least growth of work for what it takes off the tables above the limit."""
    large, sizes = incidence.excess(sliced, np.inf if log_limit is None else log_limit)
    highest = sizes.max(initial=0.0)
    if highest <= 1e-9:
        raise ValueError("no table has a variable left to condition on")
    if not large.any():
        large = sizes >= highest - 1e-9
    floor = sizes[large].min() if log_limit is None else log_limit
    # a bit off the largest tables counts most: they need further variables anyway
    weight = np.exp2(sizes[large] - highest) * np.minimum(sizes[large] - floor + 1e-3, 1.0)
    relief = (weight @ incidence.tables[large]) / weight.sum() * incidence.logs
    relief[list(sliced)] = 0.0
    work, after = incidence.log_work(sliced)
    growth = after - work + 0.01 * incidence.logs
    if rng is not None:
        growth = growth * (1.0 + rng.random(len(growth)))
    with np.errstate(divide="ignore"):
        score = np.where(relief > 0, growth / relief, np.inf)
    return int(np.argmin(score))


def _membership(sets: Iterable[frozenset[int]], n_variables: int) -> NDArray[np.float64]:
    """Lay sets of variables out as rows of ones and zeros."""
    rows = list(sets)
    out = np.zeros((len(rows), n_variables))
    for i, row in enumerate(rows):
        out[i, list(row)] = 1.0
    return out
