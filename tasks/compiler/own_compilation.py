"""Changes to Numba's classes that last only while one of our own loops is compiled.

Other users of Numba in the same process get the code that Numba compiles by itself. Our dispatchers take the compiler's
lock, change the classes, compile, and restore the classes. Functions of other packages that our loops call, such as
``numpy.empty``, are compiled to the code of their bodies only, like our inner functions. Their dispatchers forget this
code when the loop is finished, so that other callers have it compiled completely; our next loop gets it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from ..steps.light_dataclass import dataclass
from .signals import uninterrupted
from .working_time import count_compiling, say_compiling


class CodeOnly:
    """Stands for the entry point of a function that cannot be entered."""


#: For each function that is being compiled, outermost first, whether its code is cached. Only the holder of the
#: compiler's lock reads and changes it.
_running: list[bool] = []
#: The thread that compiles them.
_thread: int | None = None
_compile: Callable[..., Any] = Dispatcher.compile

#: Body-only code of functions of other packages, by dispatcher and types of arguments.
_hidden: dict[Any, dict[Any, Any]] = {}
#: Dispatchers of other packages that compiled something since the classes were changed.
_others: set[Any] = set()


@dataclass(frozen=True)
class Patch:
    """A method to replace, and a function that receives the original method, if any, and returns the replacement."""

    owner: Any
    name: str
    replaced: Callable[[Any], Callable[..., Any]]


def own(owner: Any, name: str, method: Callable[..., Any]) -> Patch:
    """Return a patch for the compiling thread alone; ``method`` receives the original method, then its arguments."""

    def made(plain: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **named: Any) -> Any:
            if _running and threading.get_ident() == _thread:
                return method(plain, *args, **named)
            return plain(*args, **named)

        return replaced

    return Patch(owner, name, made)


def is_inner() -> bool:
    """Whether the function that is being compiled becomes part of a cached loop of ours, and nothing else."""
    return len(_running) > 1 and _running[0] and not _running[-1]


def body_only(dispatcher: Any) -> dict[Any, Any]:
    """Return what was compiled to body-only code, by types of arguments."""
    overloads = dispatcher.overloads.items()
    return {given: result for given, result in overloads if isinstance(result.entry_point, CodeOnly)}


def compile_as_ours(dispatcher: Any, cached: bool, patches: Sequence[Patch], complete: Callable[[Any], None]) -> None:
    """Let one of our dispatchers apply patches while it compiles.

    Parameters
    ----------
    dispatcher : numba.core.dispatcher.Dispatcher
        Its method ``compile`` is replaced.
    cached : bool
        Whether the code is cached by itself, and not only as part of its callers.
    patches : sequence of Patch
        Applied from the outermost compilation on.
    complete : callable
        Called with the dispatcher, with the compiler's lock held, before a compilation that no other one needs.
    """

    def compiled(signature: Any) -> Any:
        global _thread
        with global_compiler_lock:
            if _running:
                with _running_as(cached):
                    return _compile(dispatcher, signature)
            complete(dispatcher)
            _thread = threading.get_ident()
            with _changed(patches), _running_as(cached):
                return _compile(dispatcher, signature)

    dispatcher.compile = compiled


@contextmanager
def _changed(patches: Sequence[Patch]) -> Iterator[None]:
    """Apply patches, count the seconds of compilation, and hold signals back while something is compiled."""
    install: Any = event.install_listener
    originals = [(patch.owner, patch.name, vars(patch.owner).get(patch.name)) for patch in patches]
    try:
        for patch in patches:
            setattr(patch.owner, patch.name, patch.replaced(getattr(patch.owner, patch.name, None)))
        with install("numba:compile", _Clock()):
            yield
    finally:
        for dispatcher in _others:
            for given, result in body_only(dispatcher).items():
                _hidden.setdefault(dispatcher, {})[given] = result
                del dispatcher.overloads[given]
        _others.clear()
        for owner, name, original in originals:
            if original is not None:
                setattr(owner, name, original)
            elif name in vars(owner):  # inherited
                delattr(owner, name)


@contextmanager
def _running_as(cached: bool) -> Iterator[None]:
    outside = len(_running)
    try:
        _running.append(cached)
        yield
    finally:
        del _running[outside:]


def _of_others(plain: Callable[..., Any], self: Any, signature: Any) -> Any:
    """Compile a function of another package for one of our loops; our dispatchers call the original method."""
    _others.add(self)
    for given, result in _hidden.get(self, {}).items():
        self.overloads.setdefault(given, result)
    with _running_as(False):
        return plain(self, signature)


def _added(plain: Callable[..., None], self: Any, result: Any) -> None:
    """Record a compiled function; a function without an entry point is hidden from Python's calls."""
    if isinstance(result.entry_point, CodeOnly):
        self.overloads[tuple(result.signature.args)] = result
    else:
        plain(self, result)


#: Part of all patches.
DISPATCHER_PATCHES = own(Dispatcher, "compile", _of_others), own(Dispatcher, "add_overload", _added)


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
