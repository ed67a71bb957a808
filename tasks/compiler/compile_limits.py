"""Until when loops may be compiled: whoever answers within a time does not begin what would not be ready in it.

Compiling takes seconds, loops of a branch and bound half a minute. What is compiled for another function is asked for
before it is begun, too. Functions of this package are compiled in another process then, for which nobody waits beyond
the moment; of others no more than a single one is compiled beyond it. Nothing here needs a compiler.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Seconds that compiling takes for a byte of a function's code and of all that it calls: on a core of 2023 the 26 kB of
#: branch and bound took 31.
SECONDS_PER_BYTE = 1.2e-3

_until: ContextVar[float] = ContextVar("compiled until", default=math.inf)
clock: Callable[[], float] = time.perf_counter


class NotCompiledError(Exception):
    """Loops are not compiled, and would not be in the time that is left.

    Parameters
    ----------
    function : str
        What would have to be compiled.
    """

    def __init__(self, function: str) -> None:
        super().__init__(f"{function} is not compiled yet, and would not be in the time that is left")
        self.function = function

    def __reduce__(self) -> tuple[type[NotCompiledError], tuple[str]]:
        return NotCompiledError, (self.function,)


@contextmanager
def compiled_until(seconds: float) -> Iterator[None]:
    """Let nothing be compiled that is not ready in so many seconds; an earlier end that was set before stays."""
    token = _until.set(min(_until.get(), clock() + seconds))
    try:
        yield
    finally:
        _until.reset(token)


def may_compile(seconds: float) -> bool:
    """Whether what takes so many seconds to compile may be begun."""
    until = _until.get()
    return until == math.inf or clock() + seconds <= until


def time_left() -> float:
    """Return the seconds until the moment from which nothing is compiled any more."""
    return _until.get() - clock()


def is_limited() -> bool:
    """Whether there is a moment from which nothing is compiled any more."""
    return _until.get() < math.inf
