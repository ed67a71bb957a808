"""Better states of the variables that marginal MAP maximises over: a local search on exact sums over all others.

With the outer variables observed the others often fall apart, so that their sum is cheap though the question is not.
One plan over the others alone is made; a changed state changes the leaf tables that have it, and the messages above
these are made again. The climb takes the best state of one variable after the other, and goes on from the best states
with some changed at random (iterated local search; Park and Darwiche, JAIR 2004, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....tasks.compiler.code_cache import compiler_pays
from ....tasks.compiler.numba_parts import unknown_numba
from ....tasks.incremental.kept_tables import Incremental, KeptTables
from ....tasks.steps.number_limits import SAME_SHARE
from ....tasks.steps.semiring import SUM_PRODUCT
from ....tasks.sweeps.scaled import QuickSumProduct, Scaled
from ...errors import BudgetError
from ...plans.plan import Plan
from ...plans.planner import Planner
from ...plans.problem import PlanOptions, Problem
from ...preprocessing.preprocess import Network
from ...queries.arithmetic import ScaledPartition
from .strategy_policy import OuterPolicy

# States that are changed at random when no single change is better.
_KICKED_STATES: Final = 4

Array = NDArray[Any]


@dataclass
class OuterSearch:
    """Sums over inner variables at states of outer ones.

    Parameters
    ----------
    network : Network
    outer : tuple of int
        Local variables.
    plan : Plan
        Of the sum over the others.
    seed : int
    """

    network: Network
    outer: tuple[int, ...]
    plan: Plan | None
    seed: int

    def __post_init__(self) -> None:
        self._at = dict.fromkeys(self.outer, 0)
        scopes, held = self.network.scopes, set(self.outer)
        self._inner = [leaf for leaf, scope in enumerate(scopes) if not held.issuperset(scope)]
        layouts = () if self.plan is None else self.plan.layouts[: len(self._inner)]
        axes = {leaf: tuple(sorted(scope)) for leaf, scope in enumerate(scopes)}
        for leaf, layout in zip(self._inner, layouts, strict=True):
            axes[leaf] = (*sorted(held.intersection(scopes[leaf])), *layout)
        dims, made = self.network.dims, ScaledPartition(self.network).leaves(axes)
        self._given = {leaf: [v for v in own if v in held] for leaf, own in axes.items()}
        self._tables = {
            leaf: (table, table.values.reshape([*(dims[v] for v in self._given[leaf]), -1]))
            for leaf, table in made.items()
        }
        self._readers: dict[int, list[int]] = {v: [] for v in self.outer}
        for leaf, given in self._given.items():
            for v in given:
                self._readers[v].append(leaf)
        self._number = {leaf: number for number, leaf in enumerate(self._inner)}
        self._rng = np.random.default_rng(self.seed)
        self._kept: KeptTables | None = None

    def value(self, states: Mapping[int, int]) -> float:
        """Return ln of the sum at states of all outer variables, without the constant factor."""
        roots = () if self.plan is None else self.plan.tree.roots
        inner = self._sums({v: states[v] for v in self.outer}, roots)
        return _together([*[self._leaf(leaf).log_value() for leaf in self._tables if leaf not in self._number], *inner])

    @cached_property
    def parts(self) -> list[list[int]]:
        """Leaves of the network with inner variables, grouped by common inner variables."""
        return [] if self.plan is None else [[self._inner[leaf] for leaf in own] for own in self._below.values()]

    def part(self, number: int, states: Mapping[int, int]) -> float:
        """Return ln of the sum of one part, at states of the outer variables that it reads."""
        return _together(self._sums(states, ([*self._below][number],)))

    @cached_property
    def _below(self) -> dict[int, list[int]]:
        """The plan's leaves by root."""
        assert self.plan is not None
        tree, found = self.plan.tree, dict[int, list[int]]()
        for leaf in range(tree.n_leaves):
            root = leaf
            while tree.parent[root] >= 0:
                root = tree.parent[root]
            found.setdefault(root, []).append(leaf)
        return found

    def _sums(self, states: Mapping[int, int], roots: Sequence[int]) -> list[float]:
        """Change states of some outer variables; return logarithms of sums."""
        changed = [v for v, state in states.items() if self._at[v] != state]
        self._at.update(states)
        if not roots:
            return []
        if self._kept is None:
            self._kept = self._begun()
        else:
            for leaf in {leaf for v in changed for leaf in self._readers[v]}:
                if leaf in self._number:
                    self._kept.set_leaf(self._number[leaf], self._leaf(leaf))
        self._kept.refresh(roots)
        return [self._kept.table(root).log_value() for root in roots]

    def climbed(self, states: Mapping[int, int], stop: Callable[[], bool], patience: int | None) -> dict[int, int]:
        """Return the best states that are found from some until it is to stop, or no better ones were found so often.

        Parameters
        ----------
        stop : callable
        patience : int or None
            How many tops of climbs in a row may be no better; None for any number.
        """
        best, most = dict(states), self.value(states)
        here, value, vain = dict(best), most, 0
        while True:
            here, value = self._top(here, value, stop)
            vain += 1
            if value > most + SAME_SHARE:
                best, most, vain = dict(here), value, 0
            if stop() or vain == patience:
                return best
            here = dict(best)
            for v in self._rng.choice(self.outer, min(_KICKED_STATES, len(self.outer)), replace=False).tolist():
                here[v] = int(self._rng.integers(self.network.dims[v]))
            value = self.value(here)

    def _top(self, states: dict[int, int], value: float, stop: Callable[[], bool]) -> tuple[dict[int, int], float]:
        """Change one state after the other while that is better."""
        left = self._rng.permutation(self.outer).tolist()
        unchanged = 0
        while unchanged < len(left):
            for v in left:
                found, more = self._best_of(states, v, value)
                unchanged = 0 if found != states[v] else unchanged + 1
                states[v], value = found, more
                if unchanged >= len(left) or stop():
                    return states, value
        return states, value

    def _best_of(self, states: dict[int, int], v: int, value: float) -> tuple[int, float]:
        """Return the best state of a variable given the states of the other variables. The present state wins ties."""
        best, most = states[v], value
        for state in range(self.network.dims[v]):
            if state != states[v] and (found := self.value({**states, v: state})) > most + SAME_SHARE:
                best, most = state, found
        return best, most

    def _begun(self) -> KeptTables:
        """Keep tables under the present states."""
        assert self.plan is not None
        leaves = {number: self._leaf(leaf) for leaf, number in self._number.items()}
        steps, dims = self.plan.up, self.plan.tree.dims
        if compiler_pays(OuterPolicy.current().swept_cells) and not unknown_numba():
            from ....tasks.incremental.packed import Packed

            return Packed(steps, len(steps), leaves, QuickSumProduct(dims, True))
        return Incremental(steps, len(steps), leaves, QuickSumProduct(dims, False))

    def _leaf(self, leaf: int) -> Scaled:
        """Return a leaf table at the present states."""
        table, values = self._tables[leaf]
        own: Scaled = table.with_values(values[tuple(self._at[v] for v in self._given[leaf])])
        return own


def _together(logs: Sequence[float]) -> float:
    return -math.inf if -math.inf in logs else math.fsum(logs)


def outer_search(network: Network, outer: Sequence[int], memory_bytes: int, seed: int) -> OuterSearch | None:
    """Plan the sum over inner variables with the outer ones observed; None where it is no step of a search.

    Parameters
    ----------
    outer : sequence of int
        Local variables.
    memory_bytes : int
        Memory budget of all its tables.
    """
    held = set(outer)
    scopes = [tuple(v for v in scope if v not in held) for scope in network.scopes]
    scopes = [scope for scope in scopes if scope]
    if not outer:
        return None
    if not scopes:
        return OuterSearch(network, tuple(sorted(outer)), None, seed)
    dims = tuple([1 if v in held else n for v, n in enumerate(network.dims)])
    planner = Planner(Problem(dims, tuple(scopes), SUM_PRODUCT, 8), PlanOptions(kept=True, seed=seed))
    try:
        plan = planner.whole()
    except BudgetError:
        return None
    fits = plan.kept_bytes <= memory_bytes and plan.cells <= OuterPolicy.current().most_step_cells
    return OuterSearch(network, tuple(sorted(outer)), plan, seed) if fits else None
