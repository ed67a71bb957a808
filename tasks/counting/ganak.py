"""Ganak as a process that counts clauses in time slices (Soos and Meel, CAV 2025).

Ganak is a counter of other authors: the package ``pyganak``, from the extra ``counters``. It runs in a process of its
own, because its memory has to be limited and its work cannot be interrupted from within Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..compiler.outside_process import OutsideProcess

# Address space of Python and of Ganak's code, before anything is counted.
_PROGRAM_BYTES: Final = 1 << 28


class GanakError(Exception):
    """Ganak ended without a count: the one argument says why."""


@dataclass
class GanakProcess:
    """A count that goes on from one time slice to the next.

    Parameters
    ----------
    variables : int
    clauses : sequence of sequence of int
        Literals as DIMACS has them: from 1, negative where a variable is false.
    counted : sequence of int
        Variables of which assignments are counted.
    weights : mapping of int to float, optional
        Weights of literals; other literals weigh 1. None for a count.
    memory_bytes : int
        Limit of the process's address space.
    seed : int

    Attributes
    ----------
    seconds : float
        CPU seconds of the count so far.
    """

    variables: int
    clauses: Sequence[Sequence[int]]
    counted: Sequence[int]
    weights: Mapping[int, float] | None
    memory_bytes: int
    seed: int = 0
    seconds: float = 0.0
    _process: OutsideProcess | None = field(default=None, repr=False)

    def run(self, seconds: float, stop: Callable[[], bool] = bool) -> int | float | None:
        """Count for ``seconds`` CPU seconds; return the count or the sum, or None if it is incomplete.

        Parameters
        ----------
        seconds : float
            Infinite: until the end.
        stop : callable
            Says whether to end the process, because another engine answered first.

        Raises
        ------
        GanakError
            If Ganak ended without a count, for example for lack of memory.
        """
        process = self._process = self._process or self._started()
        until, words = process.cpu_seconds + seconds, ["error", "its process ended"]
        try:
            with process.working():
                while not process.ended and process.cpu_seconds < until:
                    for line in process.lines():
                        words = line.split(maxsplit=1)
                    if stop():
                        self.close()
                        return None
        except BaseException:
            self.close()
            raise
        finally:
            self.seconds = process.cpu_seconds
        if not process.ended:
            return None
        self.close()
        if words[0] == "error":
            raise GanakError(words[1])
        return int(words[1], 16) if self.weights is None else float.fromhex(words[1])

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _started(self) -> OutsideProcess:
        job = {
            "seed": self.seed,
            "variables": self.variables,
            "clauses": self.clauses,
            "counted": list(self.counted),
            "weights": None if self.weights is None else list(self.weights.items()),
        }
        return OutsideProcess("count_clauses", "pyganak", self.memory_bytes + _PROGRAM_BYTES, job)
