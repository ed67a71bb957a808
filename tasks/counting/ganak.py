"""Ganak as a process that counts clauses in time slices (Soos and Meel, CAV 2025).

Ganak is a counter of other authors: the package ``pyganak``, from the extra ``counters``. It runs in a process of its
own, because its memory has to be limited and its work cannot be interrupted from within Python.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ..compiler.working_time import count_outside

# Seconds between two looks whether another engine answered first.
_LOOK_SECONDS: Final = 0.02
# Address space of Python and of Ganak's code, before anything is counted.
_PROGRAM_BYTES: Final = 1 << 28


@cache
def ganak_folder() -> str | None:
    """Return the folder that holds ``pyganak``; None where it is not installed, or no process can be forked."""
    try:
        spec = find_spec("pyganak")
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None or not hasattr(os, "fork") else str(Path(spec.origin).parent)


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
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

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
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{seconds}\n".encode())
            process.stdin.flush()
            while not select.select([process.stdout], [], [], _LOOK_SECONDS)[0]:
                if stop():
                    self.close()
                    return None
            found: dict[str, Any] = json.loads(process.stdout.readline() or '{"error": "its process ended"}')
        except OSError:
            found = {"error": "its process ended"}
        except BaseException:
            self.close()
            raise
        spent = max(found.get("seconds", 0.0) - self.seconds, 0.0)
        self.seconds += spent
        count_outside(spent)
        if "error" in found:
            self.close()
            raise GanakError(found["error"])
        if "value" not in found:
            return None
        self.close()
        return int(found["value"], 16) if self.weights is None else float.fromhex(found["value"])

    def close(self) -> None:
        """End the process; its counting child ends with its input."""
        if (process := self._process) is None:
            return
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        folder = ganak_folder()
        assert folder is not None
        job = {
            "folder": folder,
            "bytes": self.memory_bytes + _PROGRAM_BYTES,
            "seed": self.seed,
            "variables": self.variables,
            "clauses": self.clauses,
            "counted": list(self.counted),
            "weights": None if self.weights is None else list(self.weights.items()),
        }
        text = json.dumps(job).encode() + b"\n"
        program = str(Path(__file__).with_name("ganak_program.py"))
        # a session of its own: Ctrl-C reaches this process, which ends the other one
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(text)
        return process
