"""Exceptions at every line of the package in turn: what is there afterwards has to be as good as new."""

from __future__ import annotations

import ast
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import bucketflow

T = TypeVar("T")
Error = type[BaseException]
Place = tuple[CodeType, int]

PACKAGE = os.path.dirname(str(bucketflow.__file__)) + os.sep
OWN = (os.path.dirname(__file__) + os.sep,)

#: What interrupts at any line: Ctrl-C, and an allocation that fails.
ERRORS: tuple[Error, ...] = (KeyboardInterrupt, MemoryError)


@dataclass(frozen=True)
class Interrupted:
    """Where an exception was raised, and what came out of what was interrupted, if anything."""

    where: str
    error: Error
    came: Error | None

    def __str__(self) -> str:
        came = "nothing" if self.came is None else self.came.__name__
        return f"{self.error.__name__} at {self.where}, out came {came}"


def at_every_line(
    action: Callable[[T], Any], make: Callable[[], T], most: int = 200, errors: Sequence[Error] = ERRORS
) -> Iterator[tuple[T, Interrupted]]:
    """Interrupt an action at each line of the package that it runs, with what was made anew each time.

    A line that is run often is interrupted at the first time and at the last.

    Parameters
    ----------
    action : callable
        Called with what was made.
    make : callable
    most : int
        Interruptions; of more, so many are chosen evenly.
    errors : sequence of types
        What is raised at each line.
    """
    action(make())  # what is done once only, imports say, is no part of it
    made = make()
    turns = [(place, error) for place in _places(partial(action, made)) for error in errors]
    step = max(1.0, len(turns) / most)
    for k in range(min(len(turns), most)):
        number, error = turns[int(k * step)]
        made = make()
        found = interrupted(partial(action, made), number, error)
        if found is not None:
            yield made, found


def interrupted(action: Callable[[], Any], number: int, error: Error) -> Interrupted | None:
    """Raise an error at the ``number``-th line of the package that is run; None if there are not so many.

    A ``KeyboardInterrupt`` is that of a signal, so that it waits where signals do.
    """
    raised: list[str] = []
    lines = 0

    def line(frame: FrameType) -> None:
        nonlocal lines
        lines += 1
        if lines == number:
            raised.append(f"{os.path.relpath(frame.f_code.co_filename, PACKAGE)}:{frame.f_lineno}")
            sys.settrace(None)
            if error is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            else:
                raise error

    came = None
    with warnings.catch_warnings():
        # what was opened in the line before is closed as nobody holds it any more
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            _traced(action, line)
        except BaseException as found:
            if not raised:
                raise
            came = type(found)
    return Interrupted(raised[0], error, came) if raised else None


def _places(action: Callable[[], Any]) -> list[int]:
    """Return the numbers of the lines to interrupt at: of each place the first and the last time."""
    first: dict[Place, int] = {}
    last: dict[Place, int] = {}
    lines = 0

    def line(frame: FrameType) -> None:
        nonlocal lines
        lines += 1
        place = frame.f_code, frame.f_lineno
        first.setdefault(place, lines)
        last[place] = lines

    _traced(action, line)
    return sorted({*first.values(), *last.values()})


def _traced(action: Callable[[], Any], line: Callable[[FrameType], None]) -> None:
    """Call an action, and a function at each line of the package, in this thread."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and not _leaves_a_with(frame):
            line(frame)
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        return local if name.startswith(PACKAGE) and not name.startswith(OWN) else None

    before = sys.gettrace()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.settrace(trace)
        action()
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler)


def _leaves_a_with(frame: FrameType) -> bool:
    """Whether a frame is about to leave a ``with`` statement, where no signal is handled before that is done."""
    code = frame.f_code
    return frame.f_lineno in _with_lines(code.co_filename) and frame.f_lasti > _first_offset(code, frame.f_lineno)


@cache
def _with_lines(path: str) -> frozenset[int]:
    withs = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.With | ast.AsyncWith)]
    ends = [(node.lineno, node.items[-1].context_expr.end_lineno or node.lineno) for node in withs]
    return frozenset(line for first, last in ends for line in range(first, last + 1))


@cache
def _first_offset(code: CodeType, line: int) -> int:
    return min(start for start, _, where in code.co_lines() if where == line)
