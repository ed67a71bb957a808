"""toulbar2 as a prover, if ``pytoulbar2`` is installed: a process of its own that works during its turns only.

Hurley, O'Sullivan, Allouche, Katsirelos, Schiex, Zytnicki & de Givry, Multi-language evaluation of exact solvers in
graphical model discrete optimization, Constraints 2016.

The process receives the prepared network and the cut-off (``tasks/compiler/outside_program.py``). Costs are the
integers of the network, forbidden entries cost as much as the cut-off. Between its turns the process is suspended. It
ends with the portfolio. An assignment counts for its total in our network; a different total ends the prover.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from ....tasks.compiler.outside_process import OutsideProcess
from ....tasks.compiler.outside_program import COMPLETE
from ....tasks.steps.number_limits import EXACT_INTEGER
from ...cost_networks.cost_network import CostNetwork, States
from ..incumbent import Incumbent
from ..limits import Outcome
from ..prover import Prover
from ..prover_policy import SMALLER_RATIO

# Bytes that toulbar2 takes for a cell, and for its own libraries.
_CELL_BYTES, _LIBRARY_BYTES = 256, 1 << 28
_BOUNDS: Final = re.compile(r"(?:Optimality gap|Initial lower and upper bounds): \[(\d+), \d+\]")
_FOUND: Final = re.compile(r"New solution: (\d+) ")


class Toulbar2Search:
    """toulbar2 at work on one network.

    Parameters
    ----------
    network : CostNetwork
    upper : int or None
        Exclusive; None for no limit.
    memory_bytes : int
        Limit of the process.
    seed : int

    Attributes
    ----------
    lower : int
        No total of the network is below it, or below ``upper``.
    total : int or None
        That of the best assignment, None where none was found.
    complete : bool
        Whether the proof is complete.
    process : OutsideProcess
    """

    def __init__(self, network: CostNetwork, upper: int | None, memory_bytes: int, seed: int) -> None:
        self.network, self.upper = network, upper
        self.offset, given = _problem(network, upper)
        self.lower = self.offset
        self._cut_off: int = self.offset + given["upper"]
        self.total: int | None = None
        self.complete = False
        self._announced: int | None = None
        self.process = OutsideProcess("search_optimum", "pytoulbar2", memory_bytes, {**given, "seed": seed})

    def read(self) -> Iterator[States]:
        """Wait a moment for lines; take over bounds, and yield better assignments."""
        for line in self.process.lines():
            yield from self._take(line)

    def _take(self, line: str) -> Iterator[States]:
        if bounds := _BOUNDS.match(line):
            self.lower = max(self.lower, self.offset + int(bounds[1]))
        elif found := _FOUND.match(line):
            total = self.offset + int(found[1])
            # toulbar2 also reports an assignment that reaches the cut-off, as one with a forbidden entry does
            self._announced = total if total < self._cut_off else None
        elif line == COMPLETE:
            self.complete = True
        elif self._announced is not None and line.startswith(" "):
            states = tuple(map(int, line.split()))
            if self.network.total(states) != self._announced:
                self.complete = False
                self.process.end()
                return
            self.total, self._announced = self._announced, None
            yield states


def _problem(network: CostNetwork, upper: int | None) -> tuple[int, dict[str, Any]]:
    """Return what all totals have in common, and the rest as toulbar2 receives it: no cost is negative.

    Raises
    ------
    OverflowError
        If costs are too large for toulbar2.
    """
    tables, offset, most = [], network.constant, 0
    for table in network.tables:
        low = float(table.costs.min(initial=math.inf))
        low = low if low < math.inf else 0.0
        tables.append((table.scope, table.costs - low))
        offset += int(low)
        most += int(np.max(tables[-1][1], where=np.isfinite(tables[-1][1]), initial=0.0))
    top = max(most + 1 if upper is None else min(upper - offset, most + 1), 0)
    if top > EXACT_INTEGER:  # costs pass through 64-bit floats
        raise OverflowError(f"a cut-off of {top} is beyond the {EXACT_INTEGER} that toulbar2 counts exactly")
    flat = [(scope, np.minimum(costs, float(top)).reshape(-1).tolist()) for scope, costs in tables]
    return offset, {"dims": list(network.dims), "tables": flat, "upper": top}


class Toulbar2Prover(Prover):
    """Gives toulbar2 turns, and takes over its bounds and assignments."""

    def __init__(self, incumbent: Incumbent) -> None:
        super().__init__(incumbent)
        self.search: Toulbar2Search | None = None

    def turn(self, seconds: float, out_of_time: Callable[[], bool]) -> Outcome | None:
        """Let the process work until the time is over or its proof is complete."""
        known = self.incumbent
        if self.search is not None and SMALLER_RATIO * known.small.cells < self.search.network.cells:
            self.close()
        search = self.search = self.search or self._begun()
        if search is None:
            self.hopeless = True
            return None
        with search.process.working():
            while not (search.process.ended or search.complete or out_of_time()):
                for states in search.read():
                    known.offer_of(search.network, states)
                known.raise_lower(search.lower)
        self.hopeless = search.process.ended or search.complete
        return self._outcome(search)

    def _outcome(self, search: Toulbar2Search) -> Outcome:
        """Nothing of the present network is below the cut-off once nothing of the searched one is."""
        upper = self.incumbent.upper
        least = search.upper if search.total is None else search.total
        if search.complete and (least is None or (upper is not None and upper <= least)):
            return Outcome(self.incumbent.lower if least is None else least, feasible=False)
        return Outcome(self.incumbent.lower)

    def _begun(self) -> Toulbar2Search | None:
        """Start toulbar2 on the present network; None if it does not fit, or its costs are too large."""
        known = self.incumbent
        room = known.memory_bytes
        if _LIBRARY_BYTES + _CELL_BYTES * known.small.cells > room:
            return None
        try:
            return Toulbar2Search(known.small, known.upper, room, known.limits.seed)
        except OverflowError:
            return None

    @property
    def nbytes(self) -> int:
        """Bytes that the process holds between two turns."""
        return 0 if self.search is None else self.search.process.nbytes

    def forget(self) -> None:
        """Continue in the old network: the next turn decides whether the new one is small enough to begin anew."""

    def close(self) -> None:
        """End the process."""
        if self.search is not None:
            self.search.process.close()
            self.search = None
