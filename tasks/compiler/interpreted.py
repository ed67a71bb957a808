"""Compiled loops as the interpreter runs them: for small work while their machine code is not there yet.

Only loops over single numbers are of use here: they read and write arrays entry by entry, and call nothing but each
other. The interpreter begins immediately. It takes some sixty times as long as machine code for a node of a search.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from .code_cache import is_compiled
from .compile_beside import await_any
from .compile_limits import NotCompiledError, going_on_meanwhile

_WAIT_SECONDS = 1.0

Replaced = tuple[tuple[str, Callable[..., Any]], ...]


class Interpreter:
    """Runs loops of a module in the interpreter until their machine code is there, within a time limit.

    Parameters
    ----------
    module : str
        Such as "tasks.search.branch_and_bound".
    patience_seconds : float
        CPU seconds of a loop in the interpreter from which on another process compiles it.
    most_seconds : float
        CPU seconds of a loop in the interpreter from which on each call first waits for that process, for a second at
        most: on a busy machine both share a core, and the interpreter would keep the compiler from it.
    replaced : dict of str to callable, optional
        Inner functions that NumPy does better, by name.
    """

    def __init__(
        self,
        module: str,
        patience_seconds: float = 0.25,
        most_seconds: float = 2.0,
        replaced: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._module, self._patience, self._most = module, patience_seconds, most_seconds
        self._replaced = tuple((replaced or {}).items())
        self._spent: dict[str, float] = defaultdict(float)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a loop; arrays among its arguments are written in place."""
        spent = self._spent[function.__name__]
        if spent >= self._patience or is_compiled(self._module, function.__name__):
            try:
                with going_on_meanwhile():
                    return function(*arguments)
            except NotCompiledError as error:
                if error.pending and spent >= self._most:
                    await_any(bool, _WAIT_SECONDS)
        return self._interpret(function, *arguments)

    def _interpret(self, function: Callable[..., Any], *arguments: Any) -> Any:
        start = time.process_time()
        try:
            return run_interpreted(function, *arguments, replaced=self._replaced)
        finally:
            self._spent[function.__name__] += time.process_time() - start


def run_interpreted(function: Callable[..., Any], *arguments: Any, replaced: Replaced = ()) -> Any:
    """Call a compiled function in the interpreter.

    Parameters
    ----------
    function : callable
        A function that :func:`.jit.njit` made.
    *arguments
        Arrays are read and written in place. They are passed as memory views, with entries as plain numbers.
    replaced : tuple of (str, callable)
        Inner functions that replace the functions of these names.

    Returns
    -------
    object
        The value that the machine code would return.
    """
    views = (memoryview(each) if isinstance(each, np.ndarray) else each for each in arguments)  # type: ignore[arg-type]
    return interpreted(function, replaced)(*views)


@cache
def interpreted(function: Callable[..., Any], replaced: Replaced = ()) -> Callable[..., Any]:
    """Return a compiled function without its machine code; the compiled functions that it calls are replaced, too."""
    plain: Any = getattr(function, "py_func")  # noqa: B009 - callables are not known to have one
    known = plain.__globals__
    inner = {name for name in plain.__code__.co_names if hasattr(known.get(name), "py_func")}
    called = {name: interpreted(known[name], replaced) for name in inner}
    called |= {name: other for name, other in replaced if name in inner}
    return FunctionType(plain.__code__, {**known, **called}, plain.__name__, plain.__defaults__)
