"""Compiling in other processes, within a time limit: the wait ends with the time, compiling does not.

How long a compiler takes is guessed, and it cannot be interrupted. The other process keeps the machine code in a file,
which is loaded like code that was compiled before. A process that is not through by the deadline goes on after it, so
that its work is not lost: the next run finds the code.

Meanwhile the interpreter can run the loops, if they read and write arrays entry by entry and call nothing but each
other. It begins immediately, and takes some sixty times as long as machine code for a node of a search.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import numpy as np

from .code_cache import code_roots, is_compiled
from .compile_limits import NotCompiledError, goes_on, going_on_meanwhile, time_left
from .outside_process import LOOK_SECONDS
from .working_time import count_compiling, say_compiling

_PACKAGE = __name__.partition(".")[0]
_FOLDER = Path(__file__).parents[3]
_CHILD = f"import sys; sys.path.insert(0, {str(_FOLDER)!r}); from {__name__} import compile_given; compile_given()"

_Key = tuple[str, str, str, Path]
#: The started processes, by module, function, types and cache folder, including ended ones.
_begun: dict[_Key, subprocess.Popen[bytes]] = {}
_lock = Lock()


def compiled_beside(function: Callable[..., Any], signature: Any) -> bool:
    """Let another process compile a function of this package for some types, and keep its code.

    Parameters
    ----------
    function : callable
        As it is written.
    signature : tuple of numba.types.Type or numba.core.typing.Signature

    Returns
    -------
    bool
        False where that is not possible.

    Raises
    ------
    NotCompiledError
        If the caller goes on meanwhile, or the code was not ready at the deadline.
    """
    given, key = _handed_over(function, signature), _key(function, signature)
    if given is None:
        return False
    waits = not goes_on()
    with _lock:
        child = _begun.get(key)
        if child is None:
            if not waits and len(_running()) >= _most_processes():
                raise NotCompiledError(function.__qualname__, pending=True)
            child = _started(given)
            if child is None:
                return False
            _begun[key] = child
    if child.poll() is None:
        if not waits:
            raise NotCompiledError(function.__qualname__, pending=True)
        _wait(child, function)
    return child.returncode == 0


def is_begun(function: Callable[..., Any], signature: Any) -> bool:
    """Return whether another process was started that compiles a function for some types."""
    return _key(function, signature) in _begun


def await_any(stop: Callable[[], bool], longest: float = math.inf) -> bool:
    """Wait until a compiling process ends, the caller says so, or ``longest`` seconds are over.

    Returns
    -------
    bool
        False if no process compiles anything.
    """
    with _lock:
        running = _running()
    if not running:
        return False
    start = time.perf_counter()
    say_compiling(True)
    try:
        while all(child.poll() is None for child in running) and time_left() > 0.0 and not stop():
            if time.perf_counter() - start >= longest:
                break
            time.sleep(LOOK_SECONDS)
    finally:
        say_compiling(False)
        count_compiling(0.0, time.perf_counter() - start)
    return True


def _key(function: Callable[..., Any], signature: Any) -> _Key:
    return function.__module__, function.__qualname__, str(signature), code_roots()[0]


def _running() -> list[subprocess.Popen[bytes]]:
    return [child for child in _begun.values() if child.poll() is None]


def _most_processes() -> int:
    """Return how many processes may compile while this one goes on: one for each other core, and at least one."""
    return max(len(os.sched_getaffinity(0)) - 1, 1) if hasattr(os, "sched_getaffinity") else 1


def _started(given: bytes) -> subprocess.Popen[bytes] | None:
    """Start a process that compiles what it is given; None where no process can be started."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert child.stdin is not None
        with child.stdin as pipe:
            pipe.write(given)
    except OSError:
        return None
    return child


def _wait(child: subprocess.Popen[bytes], function: Callable[..., Any]) -> None:
    """Wait for a process until the deadline.

    Raises
    ------
    NotCompiledError
        If it is not through by then.
    """
    start = time.perf_counter()
    say_compiling(True)
    try:
        child.wait(max(time_left(), 0.0))
    except subprocess.TimeoutExpired:
        raise NotCompiledError(function.__qualname__) from None
    except KeyboardInterrupt:
        child.kill()
        raise
    finally:
        say_compiling(False)
        count_compiling(0.0, time.perf_counter() - start)


def _handed_over(function: Callable[..., Any], signature: Any) -> bytes | None:
    """Return the bytes that tell another process what to compile; None where it would not find the function."""
    from numba.core import serialize

    name = function.__qualname__
    inside = function.__module__.partition(".")[0] == _PACKAGE
    if not (sys.executable and inside and hasattr(getattr(sys.modules[function.__module__], name, None), "py_func")):
        return None
    dumps: Callable[[Any], bytes] = serialize.dumps
    try:
        return dumps((function.__module__, name, signature))
    except Exception:  # of types that do not travel
        return None


def compile_given() -> None:
    """In the other process: compile what standard input tells."""
    import pickle

    import numba.core.serialize  # noqa: F401 - knows how types travel

    module, name, signature = pickle.loads(sys.stdin.buffer.read())
    getattr(import_module(module), name).compile(signature)


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
