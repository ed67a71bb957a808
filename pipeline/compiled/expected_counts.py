"""Expected counts of a compiled model: joint posteriors of sets of variables, summed over weighted cases.

The expected count of a joint state ``s`` is ``N(s) = Σ_r w_r P(s | e_r)``, with the sum over the cases ``e_r`` and
their weights ``w_r``. It is the E-step of expectation-maximization (Lauritzen 1995). Blocks of cases take the same path
as batches of posteriors, and only their sums are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.cases import Cases
from ..models.model import Model
from ..options import Where
from ..preprocessing.preprocess import Network, fixed_value
from ..queries.beliefs import local_part
from ..queries.expansion import loose_log
from ..trees.tree import Target
from .case_program import BlockAnswer
from .case_run import CaseRunner, answered_blocks
from .state import CompiledState

Array = NDArray[Any]


def with_tables(compiled: CompiledState, model: Model) -> CompiledState:
    """Return a compiled model with other values in its functions, over the same tree.

    Parameters
    ----------
    compiled : CompiledState
        Its functions are 0 only where those of ``model`` are 0: preprocessing may have removed these states.
    model : Model
        With the same scopes.
    """
    skeleton = compiled.skeleton
    network = replace(skeleton.network, model=model)
    changed = replace(skeleton, model=model, network=network, fixed=fixed_value(network))
    return CompiledState(changed, compiled.options)


def expected_counts(
    compiled: CompiledState, cases: Cases, weights: Array, scopes: Sequence[tuple[int, ...]], options: Where
) -> tuple[list[Array], Array]:
    """Return the expected counts of the joint states of some scopes, and ln of the probability of each case.

    Parameters
    ----------
    compiled : CompiledState
        Each scope is in one function, or was compiled in as a joint.
    cases : Cases
    weights : ndarray, shape (cases,)
    scopes : sequence of tuple of int
        Variables of the model.
    options : Where
        Where the batch runs, if not where the model was compiled for.

    Returns
    -------
    counts : list of ndarray
        For each scope an axis a variable, over all states of the model. Impossible cases count for nothing.
    logs : ndarray, shape (cases,)
        -inf where a case is impossible.
    """
    runner = _CountRunner(compiled, cases, weights, scopes)
    for _ in answered_blocks(runner, options) if cases.count else ():
        pass
    network = runner.network
    return [_spread(network, scope, runner.counts) for scope in scopes], runner.found_logs


@dataclass(frozen=True, eq=False)
class _CountBlock:
    """Counts of a block of cases by target, flat; ln of the cases, and those to be computed alone."""

    cases: Cases
    counts: Mapping[Target, Array]
    logs: Array
    alone: Array


class _CountRunner(CaseRunner[_CountBlock]):
    """Sums joint posteriors over the cases of each block."""

    def __init__(
        self, compiled: CompiledState, cases: Cases, weights: Array, scopes: Sequence[tuple[int, ...]]
    ) -> None:
        super().__init__(compiled, {}, cases)
        self._weights = weights
        found = dict.fromkeys(local_part(self.network, scope) for scope in scopes)
        self._targets = [target for target in found if target]
        dims = self.network.dims
        self.counts: dict[Target, Array] = {t: np.zeros(math.prod([dims[v] for v in t])) for t in found}
        self.found_logs = np.empty(cases.count)

    @property
    def targets(self) -> list[Target]:
        """The parts of the scopes that are left in the network."""
        return self._targets

    def _part(self, block: Cases) -> slice:
        start = block.first - self.cases.first
        return slice(start, start + block.count)

    def dressed(self, block: Cases, answer: BlockAnswer | None) -> _CountBlock:
        """Sum a block's posteriors."""
        logs, alone = self.logs(block, answer)
        if answer is None:
            return _CountBlock(block, {}, logs, alone)
        # the posteriors of cases that are computed alone may be anything
        weights = np.where(np.isfinite(logs), self._weights[self._part(block)], 0.0)
        unsound = alone.any()
        counts = {}
        for target in self._targets:
            beliefs = answer.beliefs[target]
            sound = np.where(alone, 0.0, beliefs) if unsound else beliefs
            # row by row, because the threads of a matrix product would wait actively on all cores between blocks
            counts[target] = np.vecdot(sound, weights)
        counts[()] = np.array([weights.sum()])
        return _CountBlock(block, counts, logs, alone)

    def completed(self, block: _CountBlock) -> _CountBlock:
        """Add a block's counts, and the cases that its answer leaves open."""
        part = self._part(block.cases)
        self.found_logs[part] = block.logs
        for target, counts in block.counts.items():
            if target in self.counts:
                self.counts[target] += counts
        for case in np.flatnonzero(block.alone):
            found = self.compiled.beliefs_alone(block.cases, int(case), self._targets)
            weight = self._weights[part.start + case]
            loose = loose_log(self.network, found.findings)
            total = -math.inf if found.beliefs.total is None else found.beliefs.total + loose
            self.found_logs[part.start + case] = total
            if total > -math.inf:
                for target in self.counts:
                    self.counts[target] += weight * (found.beliefs.tables[target].ravel() if target else 1.0)
        return block


def _spread(network: Network, scope: tuple[int, ...], counts: Mapping[Target, Array]) -> Array:
    """Spread the counts of the variables that are left over all states of a scope."""
    target, dims = local_part(network, scope), network.model.dims
    table = counts[target].reshape([network.dims[v] for v in target])
    order = [target.index(network.local[v]) for v in scope if v in network.local]
    inside = table.transpose(order).reshape([len(network.domains[v]) for v in scope])
    full = np.zeros([dims[v] for v in scope])
    full[np.ix_(*(network.domains[v] for v in scope))] = inside
    return full
