"""Progress: reading, planning, compiling, swept cells, finished rows, and bounds.

A terminal and a notebook show one line, which becomes a bar. Elsewhere a line is printed every ten seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from ...tasks.compiler.working_time import told_of_compiling
from ..drawings.shown import LINE_SECONDS, DisplayPolicy
from ..errors import ModelError, printable, shorten
from ..formats.read import GivenModel, given_model
from ..formats.text.source import reading_within
from ..results.remaining_time import ClosingBounds, OnProgress, ProgressEvent, SweptCells, SweptShare

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..answering.bound_listeners import OnBounds
    from ..models.model import Model


#: Text shown while loops are compiled. Their machine code is cached for later runs.
COMPILING = "compiling, once"
_READING, _PLANNING, _SWEEPING = "reading", "planning", "sweeping"

Asked = Callable[[int, int], None] | bool | None
"""Whether progress is drawn, or a callback (cells done, cells planned) in place of that."""


class _NamedRow(Protocol):
    """A row of a batch."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; a loaded IPython module alone does not count."""
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def is_drawn(hidden: bool) -> bool:
    """Whether progress is visible: on a terminal, or in a notebook, where rich draws it with ipywidgets."""
    # while rich draws, it puts an object in place of standard error; before rich 15 that object is no terminal
    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    if hidden or stream.isatty():
        return not hidden
    if not _in_notebook():
        return False
    if find_spec("ipywidgets") is None:
        _say_what_is_missing()
        return False
    return True


@cache
def _say_what_is_missing() -> None:
    """Say once in a notebook what progress needs."""
    print("bucketflow: progress in a notebook needs ipywidgets: pip install ipywidgets", file=sys.stderr)


class Lines:
    """Prints a line of progress every ten seconds, where nothing can be drawn.

    Parameters
    ----------
    write : callable, optional
        Prints a line, by default to standard error.
    clock : callable
        Returns seconds.
    """

    def __init__(self, write: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write or (lambda text: print(text, file=sys.stderr, flush=True)), clock
        self._printed = clock()

    def say(self, text: str, now: bool = False) -> None:
        """Print a line if the last one is old, or if it is to be printed immediately."""
        if now or self._clock() - self._printed >= LINE_SECONDS:
            self._printed = self._clock()
            self._write(text)


class Status:
    """A line on a terminal that says what is done now: a phase, compiling, or bounds; where none is drawn, nothing."""

    def __init__(self, line: Progress | None, phase: str = ""):
        policy = DisplayPolicy.current()
        self._line, self._text, self._compiling = line, phase, False
        self._lock = threading.Lock()
        self._task = None if line is None else line.add_task(phase, total=None)
        self._timer = threading.Timer(policy.bar_seconds, self._start)
        self._timer.daemon = True
        if line is None:
            return
        if policy.bar_seconds > 0:
            self._timer.start()
        else:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.start()

    def say(self, text: str) -> None:
        """Say something else."""
        self._text = text
        self._show()

    def compiling(self, begins: bool) -> None:
        """Say that loops are compiled, until they are."""
        self._compiling = begins
        self._show()

    def _show(self) -> None:
        line, task = self._line, self._task
        if line is not None and task is not None:
            line.update(task, description=COMPILING if self._compiling else self._text)

    def end(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            if self._line is not None:
                self._line.stop()
            self._line = None


@contextmanager
def status_line(hidden: bool, phase: str) -> Iterator[Status]:
    """Yield what says on a terminal how far a command is, beginning with a phase."""
    if not is_drawn(hidden):
        yield Status(None)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    status = Status(Progress(*columns, console=Console(stderr=True), transient=True), phase)
    try:
        with told_of_compiling(status.compiling):
            yield status
    finally:
        status.end()


class _Bar:
    """The one bar of sweeps, jobs and batches: what is done, a bar, a share, and the remaining time."""

    def __init__(self, description: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        what, facts = (TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[facts]"))
        self.drawn = Progress(what, BarColumn(), facts, console=Console(stderr=True), transient=True)
        self._start = time.perf_counter()
        self._task = self.drawn.add_task(description, total=None, facts="")

    def say(self, description: str) -> None:
        """Say what is done now."""
        self.drawn.update(self._task, description=description)

    def show(self, swept: SweptShare) -> None:
        """Draw the bar, unless the command has only begun."""
        total = swept.planned or None
        self.drawn.update(self._task, completed=swept.done, total=total, facts=swept.text() if total else "")
        late = time.perf_counter() - self._start > DisplayPolicy.current().bar_seconds
        if late and not self.drawn.live.is_started:
            self.drawn.start()


@contextmanager
def _bar(status: Status) -> Iterator[OnProgress]:
    """Yield a callback that draws a bar for swept cells, and says all else in the line before it."""
    bar = _Bar(_SWEEPING)

    def report(event: ProgressEvent) -> None:
        if isinstance(event, SweptShare):
            status.end()
            bar.show(event)
        else:
            status.say(event.text())

    try:
        with told_of_compiling(lambda begins: bar.say(COMPILING if begins else _SWEEPING)):
            yield report
    finally:
        bar.drawn.stop()


@contextmanager
def rows_bar(hidden: bool) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Yield a callback that takes an event of a batch and its facts, and shows the share of finished rows.

    Parameters
    ----------
    hidden : bool
        Whether to show nothing.
    """
    if hidden:
        yield lambda event, facts: None
        return
    bar, lines = _Bar() if is_drawn(hidden) else None, Lines()
    counts: list[SweptCells] = []
    text, latest = "", SweptShare()

    def show(swept: SweptShare) -> None:
        nonlocal latest
        latest = swept
        if bar is None:
            lines.say(f"{text}: {swept.text()}")
        else:
            bar.say(text)
            bar.show(swept)

    def draw(event: str, facts: Mapping[str, Any]) -> None:
        nonlocal text
        if event == "begin":
            counts[:] = [SweptCells(show, facts["asked"])]
        elif event == "prices" and bar is not None:  # a table is printed next
            bar.drawn.stop()
        elif event in ("pricing", "asking"):
            text = _rows_text(event, facts["rows"] if event == "asking" else [facts["row"]])
            if event == "asking" and counts and not latest.planned:
                counts[0](0)
            show(latest)
        elif event == "row" and "key" in facts and counts:
            counts[0](1)

    try:
        yield draw
    finally:
        if bar is not None:
            bar.drawn.stop()


def _rows_text(event: str, rows: Sequence[_NamedRow]) -> str:
    """Return a text that names the event and its rows. A row's name is omitted if it only repeats the row's number."""
    first = rows[0]
    named = f"row {first.number}" + (f" ({printable(first.name, 30)})" if first.name != str(first.number) else "")
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{event} {named}{others}"


@contextmanager
def progress_lines(hidden: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress | None]:
    """Yield a callback that shows events of progress, or None if progress is hidden.

    Once cells are reported, other events are no longer drawn. Until then, a line shows that the command is planning.
    """
    if hidden:
        yield None
    elif is_drawn(hidden):
        with status_line(hidden, _PLANNING) as status, _bar(status) as report:
            yield report
    else:
        lines = Lines(clock=clock)
        yield lambda event: lines.say(f"{_SWEEPING}: {event.text()}" if isinstance(event, SweptShare) else event.text())


# ``progress`` of the functions in Python: True draws what commands draw, a callback is called.


def read_given(
    model: GivenModel, memory: int | str | None, progress: Asked, seconds: float | int | None = None
) -> Model:
    """Return a model, read if its file is given, within ``seconds``; a status line says so if ``progress`` is True.

    Raises
    ------
    DeadlineError
        If the time ends before the file is read.
    """
    with status_line(progress is not True, _READING), reading_within(seconds):
        return given_model(model, memory)


@contextmanager
def planning_line(progress: bool, phase: str = _PLANNING) -> Iterator[None]:
    """Say that something is planned or done, if that was asked for."""
    with status_line(not progress, phase):
        yield


@contextmanager
def asked_progress(progress: Asked, on_bounds: OnBounds | None = None) -> Iterator[OnProgress | None]:
    """Yield a callback for all events, or None: it calls the given callbacks, and draws if ``progress`` is True."""
    for name, given in (("progress", progress), ("on_bounds", on_bounds)):
        if not (callable(given) or given is None or (name == "progress" and isinstance(given, bool))):
            raise ModelError(f"{name} is {shorten(repr(given))}, which is not callable")
    with progress_lines(hidden=progress is not True) as drawn:

        def report(event: ProgressEvent) -> None:
            if drawn is not None:
                drawn(event)
            if isinstance(event, SweptShare) and callable(progress):
                progress(event.done, event.planned)
            if isinstance(event, ClosingBounds) and on_bounds is not None:
                on_bounds(event.lower, event.upper)

        yield report if callable(progress) or on_bounds or drawn else None
