"""Deadline for compilation: within a time limit, do not start compiling a loop that would not be ready in time.

Compiling takes seconds; the loops of branch and bound take ten. Inner functions are checked against the deadline, too.
Within a time limit, functions of this package are compiled in other processes. A caller that has another way to go on
does so meanwhile (:func:`going_on_meanwhile`); other callers wait, until the deadline at the latest. Nothing here needs
a compiler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from ..steps.light_dataclass import dataclass
from ..steps.policy import Policy


@dataclass(frozen=True)
class CompilerPolicy(Policy):
    """The numbers behind what is compiled when.

    Parameters
    ----------
    weight : float
        Weight of compilation time against the time that it saves. Tests that must not depend on compiled code put 0:
        then all loops are compiled immediately.
    """

    weight: float = 1.0


T = TypeVar("T")

#: Seconds that compiling takes for a byte of a function's code and of all that it calls: on a core of 2023 the 26 kB of
#: branch and bound took 31.
SECONDS_PER_BYTE = 1.2e-3

_until: ContextVar[float] = ContextVar("compiled until", default=math.inf)
_goes_on: ContextVar[bool] = ContextVar("goes on while loops are compiled", default=False)
clock: Callable[[], float] = time.perf_counter


class NotCompiledError(Exception):
    """Loops are not compiled, and would not be in the remaining time, or are still being compiled.

    Parameters
    ----------
    function : str
        The function that would have to be compiled.
    pending : bool
        Whether another process compiles the function, or will as soon as it has compiled an earlier one.
    """

    def __init__(self, function: str, pending: bool = False) -> None:
        late = "and another process is compiling it" if pending else "and would not be in the time that is left"
        super().__init__(f"{function} is not compiled yet, {late}")
        self.function, self.pending = function, pending

    def __reduce__(self) -> tuple[type[NotCompiledError], tuple[str, bool]]:
        return NotCompiledError, (self.function, self.pending)


@contextmanager
def compiled_until(seconds: float) -> Iterator[None]:
    """Compile nothing that would not be ready within ``seconds`` seconds; an earlier deadline stays."""
    token = _until.set(min(_until.get(), clock() + seconds))
    try:
        yield
    finally:
        _until.reset(token)


def may_compile(seconds: float) -> bool:
    """Return whether a compilation of ``seconds`` seconds may begin."""
    until = _until.get()
    return until == math.inf or clock() + seconds <= until


def time_left() -> float:
    """Return the seconds until the moment from which nothing is compiled any more."""
    return _until.get() - clock()


def is_limited() -> bool:
    """Whether there is a moment from which nothing is compiled any more."""
    return _until.get() < math.inf


@contextmanager
def going_on_meanwhile() -> Iterator[None]:
    """Let calls of loops that are not compiled yet raise :class:`NotCompiledError` while another process compiles them.

    Without a deadline this has no effect: loops are compiled by this process then.
    """
    token = _goes_on.set(True)
    try:
        yield
    finally:
        _goes_on.reset(token)


def goes_on() -> bool:
    """Return whether the caller goes on in another way while loops are compiled."""
    return _goes_on.get()


def compiled_or(compiled: Callable[[], T], plain: Callable[[], T]) -> T:
    """Return the result of compiled loops, or within a time limit of code without them as long as they are not there.

    Parameters
    ----------
    compiled : callable
        Calls compiled loops. The call may fail because a loop is not compiled. Until the last loop is called for the
        first time, it must not change anything except data that `plain` overwrites.
    plain : callable
        Does the same without them.
    """
    if not is_limited():
        return compiled()
    try:
        with going_on_meanwhile():
            return compiled()
    except NotCompiledError:
        return plain()
