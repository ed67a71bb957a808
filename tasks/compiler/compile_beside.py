"""Compiling in another process, for whoever answers within a time: the wait ends with the time, compiling does not.

How long a compiler takes is guessed, and it cannot be interrupted. The other process keeps the machine code in a file,
which is loaded as if it had been there; where it is not through in time it is ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .compile_limits import NotCompiledError, time_left
from .working_time import count_compiling, say_compiling

_PACKAGE = __name__.partition(".")[0]
_FOLDER = Path(__file__).parents[3]
_CHILD = f"import sys; sys.path.insert(0, {str(_FOLDER)!r}); from {__name__} import compile_given; compile_given()"


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
        If it was not through in the time that is left.
    """
    given = _handed_over(function, signature)
    if given is None:
        return False
    start = time.perf_counter()
    say_compiling(True)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                child.communicate(given, timeout=max(time_left(), 0.0))
            except subprocess.TimeoutExpired:
                raise NotCompiledError(function.__qualname__) from None
            finally:
                child.kill()
    except OSError:  # no process can be started
        return False
    finally:
        say_compiling(False)
        count_compiling(0.0, time.perf_counter() - start)
    return child.returncode == 0


def _handed_over(function: Callable[..., Any], signature: Any) -> bytes | None:
    """Return what another process is told; None where it would not find the function."""
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
