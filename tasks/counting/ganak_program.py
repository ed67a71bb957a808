"""The program of the process that runs Ganak: it counts in a child of its own, which runs only during time slices.

It imports nothing of this package, so that it starts in some 20 milliseconds. The first line that it reads is the job
as JSON; each further line is a time slice in CPU seconds. It answers each slice with one line: ``{"seconds": ...}``
while the count is incomplete, and the outcome once it is complete. The counting child is stopped between slices and
killed when the input ends, so that nothing survives the process that asked.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

# Seconds between two looks at the clock of the counting child; the end of the child is noticed immediately.
_LOOK_SECONDS = 0.01


def main() -> None:
    """Read a job and its time slices; write what became of each slice."""
    job = json.loads(sys.stdin.buffer.readline())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _end_with_parent()
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.write(write, json.dumps(_outcome(job)).encode())
        os._exit(0)
    os.close(write)
    os.kill(child, signal.SIGSTOP)
    try:
        while line := sys.stdin.buffer.readline():
            found = _slice(child, read, float(line))
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            if len(found) > 1:
                return
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)  # so that its CPU time is part of ours


def _end_with_parent() -> None:
    """Let the system kill this process, even a stopped one, if its parent is killed; on Linux."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _slice(child: int, read: int, seconds: float) -> dict[str, Any]:
    """Let the child count for ``seconds`` CPU seconds.

    Returns
    -------
    dict
        ``seconds``: CPU seconds of the child in all. Once it ended, also ``value`` or ``error``.
    """
    until = _cpu_seconds(child) + seconds
    os.kill(child, signal.SIGCONT)
    while True:
        ready, _, _ = select.select([read, sys.stdin], [], [], _LOOK_SECONDS)
        if read in ready:
            return _ended(child, read)
        if ready:  # the process that asked has gone, as it writes nothing while it waits
            raise SystemExit
        if (spent := _cpu_seconds(child)) >= until:
            os.kill(child, signal.SIGSTOP)
            return {"seconds": spent}


def _ended(child: int, read: int) -> dict[str, Any]:
    """Return what the child wrote before it ended."""
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status, used = os.wait4(child, 0)
    found = json.loads(text) if text else {"error": f"it ended with status {os.waitstatus_to_exitcode(status)}"}
    return {"seconds": used.ru_utime + used.ru_stime, **found}


def _cpu_seconds(child: int) -> float:
    """Return the CPU seconds of the child; where the system has no clock for it, those of a clock on the wall."""
    try:
        return time.clock_gettime(~child << 3 | 2)  # clock_getcpuclockid of Linux
    except OSError:
        return time.monotonic()


def _outcome(job: dict[str, Any]) -> dict[str, Any]:
    """Count within memory; return ``value``, or ``error``."""
    resource.setrlimit(resource.RLIMIT_AS, (job["bytes"], job["bytes"]))
    sys.path.append(job["folder"])
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # Ganak hands over counts as decimal digits
    try:
        import pyganak

        weights = job["weights"]
        counter = pyganak.Counter(seed=job["seed"]) if weights is None else pyganak.WeightedCounter(seed=job["seed"])
        counter.new_vars(job["variables"])
        counter.add_clauses(job["clauses"])
        counter.set_sampling_set(job["counted"])
        for literal, weight in weights or ():
            counter.set_lit_weight(literal, weight)
        found = counter.count()
        if weights is None:
            return {"value": hex(found)}
        if found == 0.0 and _is_satisfiable(pyganak, job):
            return {"error": "the sum is too small for a float"}
        return {"value": float(found).hex()}
    except (MemoryError, RuntimeError, OverflowError) as error:
        return {"error": str(error) or type(error).__name__}


def _is_satisfiable(pyganak: Any, job: dict[str, Any]) -> bool:
    """Return whether the clauses have a model: whether a variable has a state that some model has."""
    counter = pyganak.Counter(seed=job["seed"])
    counter.new_vars(job["variables"])
    counter.add_clauses(job["clauses"])
    counter.set_sampling_set([1])
    return bool(counter.count())


if __name__ == "__main__":
    main()
