"""The compiler of loops; machine code is kept in files, see :mod:`.code_files`."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core import compiler, event, serialize
from numba.core.caching import _Cache
from numba.core.runtime.nrt import rtsys

from ..storage.cache import write_whole
from . import interruption
from .code_files import code_folders, sources_digest
from .interruption import uninterrupted
from .working_time import count_compiling

F = TypeVar("F", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[F], F]:
    """Compile a function when it is called, without the interpreter's lock; with ``cache`` its code is kept."""
    kept = options.pop("cache", False)

    def compiled(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        if kept:
            dispatcher._cache = _Kept(function)
        return cast(F, dispatcher)

    return compiled


class _Kept(_Cache):
    """The machine code of one function, a file for each combination of types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._file = Path(function.__code__.co_filename)
        self._name = function.__qualname__

    @property
    def cache_path(self) -> str:
        """Where files are written."""
        return str(code_folders(self._file)[0])

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return what was compiled for these types, None if it was not.

        That needs Numba's memory management, but none of the definitions that it compiles with and is slow to import.
        """
        rtsys.initialize(target_context)
        name = self._file_name(signature, target_context.codegen())
        for folder in code_folders(self._file):
            with suppress(OSError, EOFError, ValueError, pickle.UnpicklingError), uninterrupted:
                code = (folder / name).read_bytes()
                if sha256(code[32:]).digest() == code[:32]:
                    rebuild: Callable[..., Any] = compiler.CompileResult._rebuild
                    return rebuild(target_context, *pickle.loads(code[32:]))
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled for these types."""
        if result.library.has_dynamic_globals or result.lifted:
            return
        dumps: Callable[[Any], bytes] = serialize.dumps
        with uninterrupted:
            code = dumps(result._reduce())
            name, code = self._file_name(signature, result.codegen), sha256(code).digest() + code
            any(write_whole(folder / name, code) for folder in code_folders(self._file))

    def _file_name(self, signature: Any, codegen: Any) -> str:
        made_with = (sys.version_info[:2], numba.__version__, llvmlite.__version__, codegen.magic_tuple(), _GENERATED)
        made_for = (str(signature), made_with)
        return f"{self._name}-{sha256(repr(made_for).encode()).hexdigest()[:24]}.nbc"

    def enable(self) -> None:
        """Files are always looked for."""

    def disable(self) -> None:
        """Files are always looked for."""

    def flush(self) -> None:
        """Files of other sources are never found."""


class _Clock(event.Listener):
    """Counts the time that compiling takes; what is compiled for another function is part of that one's time.

    Signals wait for the end of it.
    """

    def __init__(self) -> None:
        self.depth, self.begin = 0, 0.0

    def on_start(self, event: Any) -> None:
        """Begin, if nothing is compiled yet."""
        uninterrupted.__enter__()
        if not self.depth:
            self.begin = time.process_time()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        """End, if nothing else is compiled."""
        self.depth -= 1
        if not self.depth:
            count_compiling(time.process_time() - self.begin)
        uninterrupted.__exit__()


#: Names the code that is generated beside that of the functions.
_GENERATED = sources_digest(Path(interruption.__file__))
interruption.survive_interruptions()
_register: Callable[..., None] = event.register
_register("numba:compile", _Clock())
