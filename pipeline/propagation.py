"""Planning and running both sweeps: from a network to normalised beliefs and the probability of the evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..tasks.messages import TwoSweeps
from ..tasks.scaled import LOOSE, LOWEST, Scaled
from .costs import Rates
from .errors import BudgetError
from .greedy import min_fill_order
from .ordering import search_tree
from .plan import PlanOptions, Problem, format_bytes
from .planner import MAX_SLICE_OVERHEAD, MAX_SLICES
from .queries import Arithmetic
from .reduce import Leaf, Network
from .refine import Sizer, forest_tree, group_units, pairwise_forest, split_steps
from .slicing import next_slice
from .trees import Tree, bucket_tree, junction_tree
from .twoway import TwoWay, plan_two_way, two_way_seconds

Array = NDArray[Any]
Target = tuple[int, ...]

# Where both sweeps multiply no more cells than this, the buckets of one order are as good as any tree.
_TINY_CELLS = 1 << 23
# Propagations whose loops are predicted to take less are planned without the compiled search.
_SMALL_SECONDS = 0.1


@dataclass(frozen=True)
class Beliefs:
    """What a propagation found.

    Parameters
    ----------
    total : float or int or None
        ln of the sum over all assignments, or the least energy or cost; None if nothing is possible.
    tables : dict of tuple of int to ndarray
        For each target its belief over the remaining states, shaped: probabilities that sum to 1, or
        energies above the least.
    """

    total: Any
    tables: dict[Target, Array]


class Combiner(Protocol):
    """How the beliefs of one slice are read and added to those of others."""

    def add(self, total: Any, tables: dict[Target, tuple[Any, tuple[Any, ...]]]) -> None:
        """Add one slice: its total and, for each target, a flat table and where it belongs."""
        ...

    def beliefs(self) -> Beliefs:
        """Return what all slices give together."""
        ...


class SumCombiner:
    """Probabilities, each slice weighing as much as its sum."""

    def __init__(self, shapes: dict[Target, tuple[int, ...]]) -> None:
        self._tables = {target: np.zeros(shape) for target, shape in shapes.items()}
        self._totals: list[float] = []
        self._top = -math.inf

    def add(self, total: float, tables: dict[Target, tuple[Scaled, tuple[Any, ...]]]) -> None:
        """Add one slice with ln of its sum."""
        if total == -math.inf:
            return
        self._totals.append(total)
        if total > self._top:
            for table in self._tables.values():
                table *= math.exp(self._top - total)
            self._top = total
        weight = math.exp(total - self._top)
        for target, (belief, where) in tables.items():
            part = self._tables[target][where]
            part += (weight * normalised(belief)).reshape(part.shape)

    def beliefs(self) -> Beliefs:
        """Return the mixture of all slices."""
        if not self._totals:
            return Beliefs(None, {})
        total = self._top + math.log(math.fsum(math.exp(t - self._top) for t in self._totals))
        return Beliefs(total, {target: table / table.sum() for target, table in self._tables.items()})


class OneSum:
    """Probabilities where one slice is all there is."""

    def __init__(self, dims: Sequence[int]) -> None:
        self._dims = dims
        self._total = -math.inf
        self._tables: dict[Target, Scaled] = {}

    def add(self, total: float, tables: dict[Target, tuple[Scaled, tuple[Any, ...]]]) -> None:
        """Take the slice with ln of its sum."""
        self._total = total
        self._tables = {target: belief for target, (belief, _) in tables.items()}

    def beliefs(self) -> Beliefs:
        """Return the beliefs of the slice."""
        if self._total == -math.inf:
            return Beliefs(None, {})
        return Beliefs(self._total, posteriors(self._tables, self._dims))


class LeastCombiner:
    """Least energies or costs."""

    def __init__(self, shapes: dict[Target, tuple[int, ...]], infinity: float) -> None:
        self._tables = {target: np.full(shape, math.inf) for target, shape in shapes.items()}
        self._infinity = infinity
        self._best = math.inf

    def add(self, total: Any, tables: dict[Target, tuple[Array, tuple[Any, ...]]]) -> None:
        """Add one slice with its least value, None if it allows nothing."""
        if total is None:
            return
        self._best = min(self._best, total)
        for target, (belief, where) in tables.items():
            part = self._tables[target][where]
            above = np.where(belief < self._infinity, belief - belief.min() + total, math.inf).reshape(part.shape)
            np.minimum(part, above, out=part)

    def beliefs(self) -> Beliefs:
        """Return what is least over all slices, above the least of all."""
        if self._best == math.inf:
            return Beliefs(None, {})
        return Beliefs(self._best, {target: table - self._best for target, table in self._tables.items()})


def posteriors(beliefs: Mapping[Target, Scaled], dims: Sequence[int]) -> dict[Target, Array]:
    """Normalise and shape beliefs; those whose sum is surely in range all at once."""
    near = {t: b for t, b in beliefs.items() if not b.logs and b.low >= LOWEST and b.high <= LOOSE}
    found = {t: normalised(b).reshape([dims[v] for v in t]) for t, b in beliefs.items() if t not in near}
    if near:
        sizes = [b.values.size for b in near.values()]
        ends = list(accumulate(sizes))
        starts = [0, *ends[:-1]]
        flat = np.concatenate([b.values for b in near.values()])
        totals = np.add.reduceat(flat, starts)
        totals[totals == 0.0] = 1.0
        flat /= np.repeat(totals, sizes)
        for target, start, end in zip(near, starts, ends, strict=True):
            table = flat[start:end]
            found[target] = table if len(target) == 1 else table.reshape([dims[v] for v in target])
    return found


def normalised(belief: Scaled) -> Array:
    """Return a belief's entries as probabilities; all zeros stay zeros."""
    values = belief.values
    if belief.logs:
        top = values.max()
        values = np.exp(values - top) if top > -math.inf else np.zeros_like(values)
    else:
        # the sum of tiny entries may be below the normal range
        values = values / (values.max() or 1.0)
    return values / (values.sum() or 1.0)


def with_joints(network: Network, targets: Sequence[Target]) -> Network:
    """Add a table of ones over every target that no leaf contains, so that some clique does."""
    several = [set(t) for t in dict.fromkeys(targets) if len(t) > 1]
    extra = [tuple(sorted(t)) for t in several if not any(t.issubset(scope) for scope in network.scopes)]
    return replace(network, leaves=(*network.leaves, *(Leaf(t, ()) for t in extra))) if extra else network


def plan_propagation(problem: Problem, targets: Sequence[Target], options: PlanOptions, rates: Rates) -> TwoWay:
    """Choose a tree for both sweeps and slice it into the memory budget.

    Raises
    ------
    BudgetError
        If no acceptable conditioning brings the plan into ``options.memory_bytes``.
    """
    order = options.order if isinstance(options.order, str) else tuple(options.order)
    first = found = _planned(problem, tuple(targets), replace(options, order=order, memory_bytes=0), rates)
    sliced: frozenset[int] = frozenset()
    while found.peak_bytes > options.memory_bytes and len(sliced) < len(problem.dims):
        sliced |= {next_slice(first.tree, sliced, rates=rates)}
        found = plan_two_way(
            first.tree,
            targets,
            problem.semiring,
            sliced=sliced,
            rates=rates,
            model_bytes=problem.model_bytes,
            threads=options.threads,
        )
        if found.slices > MAX_SLICES:
            break
    overhead = found.cells / max(first.cells, 1)
    if found.peak_bytes > options.memory_bytes or overhead > MAX_SLICE_OVERHEAD or found.slices > MAX_SLICES:
        raise BudgetError(
            f"propagation needs {format_bytes(first.peak_bytes)}, allowed {format_bytes(options.memory_bytes)}; "
            f"slicing to {format_bytes(found.peak_bytes)} would take {found.slices:.3g} slices at {overhead:.3g} "
            "times the work; try a larger --memory or a longer --order-time"
        )
    return found


@lru_cache(maxsize=8)
def _planned(problem: Problem, targets: tuple[Target, ...], options: PlanOptions, rates: Rates) -> TwoWay:
    """Plan without slices. Small networks take longer to plan than to run, so the last few plans are remembered:
    a plan is a function of sizes, which other states of the same variables seldom change.
    """
    tree = choose_tree(problem, options, rates)
    return plan_two_way(
        tree, targets, problem.semiring, rates=rates, model_bytes=problem.model_bytes, threads=options.threads
    )


def forget_plans() -> None:
    """Drop the remembered plans."""
    _planned.cache_clear()


def choose_tree(problem: Problem, options: PlanOptions, rates: Rates) -> Tree:
    """Choose the tree that is cheapest in both directions.

    Merged steps, which save a forward sweep from writing a table, are dear on the way back: every input asks
    for the whole join again. So trees are compared as they are and with all their joins pairwise.
    """
    dims, scopes = problem.dims, problem.scopes
    given = not isinstance(options.order, str)
    order = options.order if given else min_fill_order(dims, scopes, options.seed)
    if options.tree != "refined" and (given or options.order_seconds is None):
        build = bucket_tree if options.tree == "bucket" else junction_tree
        return build(dims, scopes, order)  # type: ignore[arg-type]
    best = bucket_tree(dims, scopes, order)  # type: ignore[arg-type]
    if options.order_seconds is None and _multiplied_cells(best) < _TINY_CELLS:
        return best
    # what each step costs besides its loops is about the same for all trees
    loops = replace(rates, step_seconds=0.0)
    sizer, units = Sizer(dims), group_units(len(dims), scopes)
    forest = pairwise_forest(units, sizer, len(dims), order)  # type: ignore[arg-type]
    pairwise = forest_tree(forest, units, dims, scopes)
    best = min(best, pairwise, key=lambda tree: two_way_seconds(tree, rates, problem.itemsize))
    if options.order_seconds is None and two_way_seconds(best, loops, problem.itemsize) < _SMALL_SECONDS:
        return best
    searched = search_tree(
        dims,
        scopes,
        tree=options.tree,
        order=options.order,
        seconds=options.order_seconds,
        seed=options.seed,
        rates=rates,
        itemsize=problem.itemsize,
    )
    split = forest_tree(split_steps(searched, units, sizer), units, dims, scopes)
    return min((best, searched, split), key=lambda tree: two_way_seconds(tree, rates, problem.itemsize))


def _multiplied_cells(tree: Tree) -> int:
    """Multiplications of both sweeps: every table of a join with the others, in every direction."""
    inputs = [len(kids) for kids in tree.children]
    return sum([k * (k + 1) * cells for k, cells in zip(inputs, tree.joined_cells, strict=True)])


def build_sweeps(network: Network, plan: TwoWay, arithmetic: Arithmetic[Any], compiled: bool) -> TwoSweeps[Any]:
    """Build the leaf tables and put both sweeps together."""
    axes = {node: plan.layouts[node] for node in range(plan.tree.n_leaves)}
    leaves = {node: arithmetic.leaf(network.leaves[node], a) for node, a in axes.items()}
    algebra = arithmetic.algebra(plan.tree.dims, compiled)
    return TwoSweeps(plan.steps, leaves, axes, plan.freed, tuple(plan.kept), plan.dims, algebra)


def slice_results(plan: TwoWay, tables: dict[int, Any], states: dict[int, int]) -> dict[Target, tuple[Any, Any]]:
    """Pair every target's table with its place among all states."""
    if not states:
        return {target: (tables[node], ()) for target, node in plan.results.items()}
    results = {}
    for target, node in plan.results.items():
        where = tuple(slice(states[v], states[v] + 1) if v in states else slice(None) for v in target)
        results[target] = (tables[node], where)
    return results


def all_states(plan: TwoWay) -> Iterator[dict[int, int]]:
    """Yield the states of the sliced variables, slice by slice."""
    for index in np.ndindex(*(plan.dims[v] for v in plan.sliced)):
        yield dict(zip(plan.sliced, map(int, index), strict=True))
