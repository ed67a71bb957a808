"""Bounded rows: variables are assigned in the reverse of an elimination order, all partial assignments side by side.

A layer holds one row for each assignment of the live variables: variables that share a function with an unassigned
variable. A row has the least cost so far, and the mini-buckets' bound on the rest. Rows that reach the pruning value
are dropped. If no other row is dropped, the last remaining row is the optimum (Zhou & Hansen, Breadth-first heuristic
search, AIJ 2006; bounds by Kask & Dechter, AIJ 2001). A beam keeps only the cheapest rows of each layer; the dropped
rows then bound the optimum from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ....tasks.rows.keys import Keys
from ....tasks.rows.layers import HOST, Layer, Operations, Rows, first_rows
from ...cost_networks.cost_network import CostNetwork, States
from ...minibuckets.joins import BucketTable
from ...minibuckets.least_costs import MiniBuckets
from ..limits import Outcome
from ..prover_policy import ProverPolicy

# Where the rows of layers came from: enough to read an assignment back, in few bytes a row; on the side they are.


@dataclass(frozen=True, eq=False)
class _Step:
    """Origins ``row * d + state`` of the rows of one layer, ``(rows,) uint32``."""

    variable: int
    d: int
    origin: NDArray[np.uint32]


class Trail:
    """The origins of all layers. Origins without a descendant in the last layer are removed from time to time."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._bound_bytes = ProverPolicy.current().trail_least_bytes
        self.n_bytes = 0

    def add(self, variable: int, d: int, origin: NDArray[np.uint32]) -> None:
        """Take the origins of the next layer, which are copied."""
        self._steps.append(_Step(variable, d, origin.copy()))
        self.n_bytes += origin.nbytes
        if self.n_bytes > self._bound_bytes:
            self.forget()
            self._bound_bytes = max(ProverPolicy.current().trail_least_bytes, 2 * self.n_bytes)

    def forget(self) -> None:
        """Drop rows that nothing comes from."""
        for i in range(len(self._steps) - 1, 0, -1):
            step, before = self._steps[i], self._steps[i - 1]
            used = np.zeros_like(before.origin, np.bool_)
            used[step.origin // step.d] = True
            if used.all():
                break
            number = np.cumsum(used, dtype=np.uint32) - np.uint32(1)
            row, state = np.divmod(step.origin, np.uint32(step.d))
            self._steps[i] = replace(step, origin=number[row] * np.uint32(step.d) + state)
            self._steps[i - 1] = replace(before, origin=before.origin[used])
        self.n_bytes = sum(step.origin.nbytes for step in self._steps)

    def back(self, row: int) -> Iterator[tuple[int, int]]:
        """Yield the variables and states that led to a row of the last layer, the last one first."""
        for step in reversed(self._steps):
            row, state = divmod(int(step.origin[row]), step.d)
            yield step.variable, state


Stop = Callable[[], bool]

#: Origins are 32-bit numbers of a row and a state.
MOST_CELLS = int(np.iinfo(np.uint32).max)


def layers(network: CostNetwork, found: MiniBuckets, side: Operations = HOST) -> Iterator[Layer]:
    """Yield the layers of a search in the reverse of the order."""

    def here(table: BucketTable) -> BucketTable:
        return BucketTable(table.scope, side.here(table.costs))

    place = {v: i for i, v in enumerate(found.order)}
    last_use = dict(place)
    for scope in network.scopes:
        lowest = min(place[v] for v in scope)
        for v in scope:
            last_use[v] = min(last_use[v], lowest)
    keys = Keys((), ())
    for i, x in reversed([*enumerate(found.order)]):
        live = tuple(v for v in (*keys.variables, x) if last_use[v] < i)
        after = Keys(live, tuple(network.dims[v] for v in live))
        added, subtracted = (tuple(map(here, tables[x])) for tables in (found.buckets, found.messages))
        yield Layer(keys, after, x, network.dims[x], added, subtracted, float(found.offsets[x]))
        keys = after


class LayeredSearch:
    """A search for an assignment whose total is below `upper`, layer by layer; it goes on where it was stopped.

    It has proved its answer if no layer was cut, or nothing that was cut could be better.

    Parameters
    ----------
    network : CostNetwork
    found : MiniBuckets
        Of this network, with its buckets and messages. Made with the same `upper`, or a larger one, or none.
    upper : int, optional
        Only totals below it interest.
    memory_bytes : int
        For rows, beside the tables of `found`. A layer that does not fit is cut to its cheapest rows.
    width : int, optional
        Most rows of a layer: a beam.
    side : Operations
        Place of the rows: the host, or a device; then the memory limit is the device's.

    Attributes
    ----------
    upper : float
        Only totals below it interest; it may fall.
    stopped : bool
        Whether ``stop`` ended the run, which may be continued.
    """

    def __init__(
        self,
        network: CostNetwork,
        found: MiniBuckets,
        upper: int | None,
        *,
        memory_bytes: int,
        width: int | None,
        side: Operations,
    ) -> None:
        self.network, self.found, self.side = network, found, side
        self.upper = math.inf if upper is None else float(upper)
        self.memory_bytes, self.width = memory_bytes, width
        first = first_rows(found.lower)
        self.rows = Rows(side.here(first.keys), side.here(first.costs))
        self.cut, self.stopped = math.inf, False
        self._trail, self._space, self._layers = Trail(), side.space(), layers(network, found, side)

    @property
    def nbytes(self) -> int:
        """Bytes of rows and of their origins."""
        return int(self._space.nbytes) + self._trail.n_bytes

    def run(self, stop: Stop) -> Outcome:
        """Continue to the last layer, or until ``stop`` says so."""
        if not self.found.feasible:
            return Outcome(self.found.lower, feasible=False)
        self.stopped = False
        while len(self.rows) and not self.stopped:
            if stop():
                self.stopped = True
            elif (layer := next(self._layers, None)) is None:
                return self.finished()
            else:
                self.step(layer)
        return self.unfinished()

    def step(self, layer: Layer) -> None:
        """Go on to the next layer."""
        fit = self._fit(layer)
        most = fit * 4 // 5 if self.width is None else min(self.width, fit * 4 // 5)
        most, spare = max(1, most), max(0, min(most, fit - most))
        self.rows, origin, cut = self.side.next_rows(self.rows, layer, self.upper, most, self._space, spare)
        self.cut = min(self.cut, cut)
        self._trail.add(layer.variable, layer.d, origin)

    def _fit(self, layer: Layer) -> int:
        """How many rows fit: working arrays, which never shrink, have a third of the memory, the trail what is left."""
        words = max(layer.keys.n_words, layer.next_keys.n_words)
        left = self.memory_bytes * 2 // 3 - self._trail.n_bytes
        return min(left // 2 // self.side.row_bytes(words) - self.side.least_room(layer), MOST_CELLS // layer.d)

    def unfinished(self) -> Outcome:
        """Return the proved outcome without an assignment."""
        lower = min(self.cut, self.upper, float(self.rows.costs.min()) if len(self.rows) else math.inf)
        if not len(self.rows) and self.cut >= self.upper:
            return Outcome(self.found.lower if math.isinf(lower) else int(lower), feasible=False)
        return Outcome(max(self.found.lower, int(lower)))

    def finished(self) -> Outcome:
        """Return the assignment of the one row of no variables."""
        states = self._states(int(self.rows.costs.argmin()))
        total = int(self.network.total(states))
        return Outcome(min(total, max(self.found.lower, int(min(self.cut, total)))), total, states)

    def _states(self, row: int) -> States:
        states = [0] * len(self.network.dims)
        for v, state in self._trail.back(row):
            states[v] = state
        return tuple(states)
