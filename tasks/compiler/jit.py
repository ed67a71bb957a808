"""The compiler of loops; machine code is kept in files, see :mod:`.code_cache`.

With a version of Numba that is not known, functions are compiled and kept as Numba does it by itself, see
:mod:`.numba_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from .code_cache import PORTABLE, PORTABLE_FEATURES, code_folders, processor
from .numba_parts import unknown_numba
from .own_compilation import DISPATCHER_PATCHES, Patch, compile_as_ours, own

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
        if unknown_numba():
            if kept:
                _keep_plainly(dispatcher, Path(function.__code__.co_filename))
            compile_as_ours(dispatcher, kept, (), lambda _: None)
            return cast(F, dispatcher)
        from .inner_functions import complete, widen_arguments
        from .kept_code import KeptCode, NotKept

        dispatcher._cache = KeptCode(function) if kept else NotKept(function)
        widen_arguments(dispatcher)
        if branches:
            _optimise_less(dispatcher)
        compile_as_ours(dispatcher, kept, _patches(), complete)
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


@cache
def _patches() -> tuple[Patch, ...]:
    """Return what differs while one of our own loops is compiled."""
    if unknown_numba():
        return ()
    from numba.core.pythonapi import PythonAPI

    from .inner_functions import call_patches, inner_patches
    from .signals import patient_lookup

    return *DISPATCHER_PATCHES, own(PythonAPI, "_get_function", patient_lookup), *inner_patches(), *call_patches()


def _compile_for_chosen_processor() -> None:
    """Let Numba compile portable code if this process uses portable code.

    Numba has one target processor a process: functions of other packages get portable code too.
    """
    if processor() == PORTABLE:
        settings: Any = numba.config
        settings.CPU_NAME, settings.CPU_FEATURES = PORTABLE, PORTABLE_FEATURES


_compile_for_chosen_processor()
