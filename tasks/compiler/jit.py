"""The compiler of loops; machine code is kept in files, see :mod:`.code_cache`.

With a version of Numba that is not known, functions are compiled and kept as Numba does it by itself, see
:mod:`.numba_parts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from . import signals
from .code_cache import code_folders, processor
from .numba_parts import unknown_numba
from .processors import PORTABLE, PORTABLE_FEATURES
from .signals import uninterrupted
from .working_time import count_compiling, say_compiling

F = TypeVar("F", bound=Callable[..., Any])


def njit(makes_arrays: bool = False, branches: bool = False, **options: Any) -> Callable[[F], F]:
    """Compile a function when it is called, without the interpreter's lock; with ``cache`` its code is kept.

    Only a function that makes arrays counts who refers to them, which is code that takes long to compile. A function
    that mostly branches gains nothing from the last level of optimisation: ``branches`` leaves that out, which saves a
    third of the time to compile a branch and bound.
    """
    kept = options.pop("cache", False)
    if not unknown_numba():
        options["_nrt"] = makes_arrays

    def compiled(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        if not unknown_numba():
            from .inner_functions import widen_arguments
            from .kept_code import KeptCode, NotKept

            dispatcher._cache = KeptCode(function) if kept else NotKept(function)
            widen_arguments(dispatcher)
            if branches:
                _optimise_less(dispatcher)
        elif kept:
            _keep_plainly(dispatcher, Path(function.__code__.co_filename))
        return cast(F, dispatcher)

    return compiled


def _optimise_less(dispatcher: Any) -> None:
    """Compile a function, with all that it calls, as ``-O2`` does, where it would be as ``-O3`` does."""
    plain = dispatcher._compiler.compile
    settings: Any = numba.config

    def compiled(*args: Any) -> Any:
        known = settings.OPT
        settings.OPT = type(known)(min(int(known), 2))
        try:
            return plain(*args)
        finally:
            settings.OPT = known

    dispatcher._compiler.compile = compiled


def _keep_plainly(dispatcher: Any, source: Path) -> None:
    """Let Numba cache it in a folder named after all sources of the code; Numba knows fewer of them."""
    folder = next(iter(code_folders(source)), None)
    if folder is None:
        return
    settings: Any = numba.config
    known, settings.CACHE_DIR = settings.CACHE_DIR, str(folder / "plain")
    try:
        dispatcher.enable_caching()
    except (RuntimeError, OSError):
        pass  # nothing can be written there: compiled again in every process
    finally:
        settings.CACHE_DIR = known


class _Clock(event.Listener):
    """Counts the seconds of compilation, and reports them; nested compilations count as part of the outer one.

    Signals wait for the end of it.
    """

    def __init__(self) -> None:
        self.depth, self.begin, self.begin_clock = 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Begin, if nothing is compiled yet."""
        uninterrupted.__enter__()
        if not self.depth:
            self.begin, self.begin_clock = time.process_time(), time.perf_counter()
            say_compiling(True)
        self.depth += 1

    def on_end(self, event: Any) -> None:
        """End, if nothing else is compiled."""
        self.depth -= 1
        if not self.depth:
            count_compiling(time.process_time() - self.begin, time.perf_counter() - self.begin_clock)
            say_compiling(False)
        uninterrupted.__exit__()


def _compile_for_chosen_processor() -> None:
    """Let Numba compile portable code if this process uses portable code."""
    if processor() == PORTABLE:
        settings: Any = numba.config
        settings.CPU_NAME, settings.CPU_FEATURES = PORTABLE, PORTABLE_FEATURES


_compile_for_chosen_processor()
_register: Callable[..., None] = event.register
_register("numba:compile", _Clock())
if not unknown_numba():
    from .inner_functions import compile_inner_code_only, refuse_uncounted_arrays
    from .known_calls import know_calls

    signals.survive_interruptions()
    compile_inner_code_only()
    refuse_uncounted_arrays()
    know_calls()
