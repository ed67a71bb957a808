"""toulbar2 as a prover, if ``pytoulbar2`` is installed: a process of its own that works during its turns only.

Hurley, O'Sullivan, Allouche, Katsirelos, Schiex, Zytnicki & de Givry, Multi-language evaluation of exact solvers in
graphical model discrete optimization, Constraints 2016.

The process receives the prepared network and the cut-off (``tasks/search/toulbar2_process.py``). Costs are the
integers of the network, forbidden entries cost as much as the cut-off. Between its turns the process is suspended. It
ends with the portfolio. An assignment counts for its total in our network; a different total ends the prover.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import select
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from ....tasks.compiler.working_time import count_outside
from ....tasks.search import toulbar2_process
from ...cost_networks.cost_network import CostNetwork, States
from ..incumbent import Incumbent
from ..limits import Outcome
from ..prover import Prover

# Costs of toulbar2 pass through 64-bit floats: integers are exact up to here.
_EXACT: Final = 1 << 53
# Bytes that toulbar2 takes for a cell, and for its own libraries.
_CELL_BYTES, _LIBRARY_BYTES = 256, 1 << 28
# Seconds between two looks at the clock.
_LOOK_SECONDS: Final = 0.02
# The process begins anew in a network that has this many times fewer cells; otherwise it continues in the old network.
_SMALLER_RATIO: Final = 2
_BOUNDS: Final = re.compile(r"(?:Optimality gap|Initial lower and upper bounds): \[(\d+), \d+\]")
_FOUND: Final = re.compile(r"New solution: (\d+) ")


class Toulbar2Search:
    """toulbar2 at work on one network: started at once, suspended until :meth:`working`.

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
    complete, ended : bool
        Whether the proof is complete, and whether the process is gone.
    """

    def __init__(self, network: CostNetwork, upper: int | None, memory_bytes: int, seed: int) -> None:
        import psutil

        self.network, self.upper = network, upper
        self.offset, given = _problem(network, upper)
        self.lower = self.offset
        self.total: int | None = None
        self.complete = self.ended = False
        self._cpu_seconds, self._text = 0.0, b""
        self._announced: int | None = None
        child = subprocess.Popen(
            [sys.executable, "-P", toulbar2_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which then ends the child
        )
        self._child, self._process = child, psutil.Process(child.pid)
        self.close = weakref.finalize(self, _kill, child)
        assert child.stdin is not None
        assert child.stdout is not None
        self.ended = not child.stdout.readline()
        with suppress(BrokenPipeError), io.BufferedWriter(child.stdin) as stdin:  # raw writes may be short
            pickle.dump({**given, "memory_bytes": memory_bytes, "seed": seed}, stdin)
        self._process.suspend()

    @property
    def nbytes(self) -> int:
        """Bytes that the process holds."""
        return 0 if self.ended else int(self._process.memory_info().rss)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the process work, and count its CPU seconds."""
        self._process.resume()
        try:
            yield
        finally:
            if not self.ended:
                self._process.suspend()
                self._count()

    def read(self) -> Iterator[States]:
        """Wait a moment for lines; take over bounds, and yield better assignments."""
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], _LOOK_SECONDS)
        if ready:
            text = os.read(self._child.stdout.fileno(), 1 << 20)
            self._text += text
            *lines, self._text = self._text.split(b"\n")
            for line in lines:
                yield from self._take(line.decode())
            if not text:
                self.ended = True
                self.close()
        self._count()

    def _count(self) -> None:
        """Count the CPU seconds of the process since the last call."""
        import psutil

        with suppress(psutil.Error):
            times = self._process.cpu_times()
            seconds = times.user + times.system
            count_outside(seconds - self._cpu_seconds)
            self._cpu_seconds = seconds

    def _take(self, line: str) -> Iterator[States]:
        if bounds := _BOUNDS.match(line):
            self.lower = max(self.lower, self.offset + int(bounds[1]))
        elif found := _FOUND.match(line):
            self._announced = self.offset + int(found[1])
        elif line == toulbar2_process.COMPLETE:
            self.complete = True
        elif self._announced is not None and line.startswith(" "):
            states = tuple(map(int, line.split()))
            if self.network.total(states) != self._announced:
                self.ended, self.complete = True, False
                self.close()
                return
            self.total, self._announced = self._announced, None
            yield states


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a process, suspended or not, and wait for it."""
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


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
    if top > _EXACT:
        raise OverflowError(f"a cut-off of {top} is beyond the {_EXACT} that toulbar2 counts exactly")
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
        if self.search is not None and _SMALLER_RATIO * known.small.cells < self.search.network.cells:
            self.close()
        search = self.search = self.search or self._begun()
        if search is None:
            self.hopeless = True
            return None
        with search.working():
            while not (search.ended or search.complete or out_of_time()):
                for states in search.read():
                    known.offer_of(search.network, states)
                known.raise_lower(search.lower)
        self.hopeless = search.ended or search.complete
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
        return 0 if self.search is None else self.search.nbytes

    def forget(self) -> None:
        """Continue in the old network: the next turn decides whether the new one is small enough to begin anew."""

    def close(self) -> None:
        """End the process."""
        if self.search is not None:
            self.search.close()
            self.search = None
