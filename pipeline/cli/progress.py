"""Progress on a terminal: bytes done of bytes planned, so that the time left means something, and bounds that close."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import shown_number
from ..results.bounds import Number, relative_gap

if TYPE_CHECKING:
    from ..answering.watching import Watch

# A bar for less than this would only flicker.
_PATIENCE = 0.5


@contextmanager
def progress_bar(hidden: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback (bytes done, bytes planned) that draws a bar on a terminal, or None elsewhere."""
    if hidden or not sys.stderr.isatty():
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        "[progress.description]{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    start = time.perf_counter()
    task = bar.add_task("sweeping", total=None)

    def report(done: int, planned: int) -> None:
        if not bar.live.is_started and time.perf_counter() - start > _PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=planned)

    try:
        yield report
    finally:
        bar.stop()


@contextmanager
def bounds_line(hidden: bool) -> Iterator[tuple[Watch | None, Callable[[], None]]]:
    """Yield a callback (both bounds, what is tried) that draws a line on a terminal, or None; and what ends it."""
    if hidden or not sys.stderr.isatty():
        yield None, lambda: None
        return
    import time

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    line = Progress(*columns, console=Console(stderr=True), transient=True)
    start = time.perf_counter()
    task = line.add_task("", total=None)

    def watch(lower: Number | None, upper: Number | None, way: str) -> None:
        if not line.live.is_started and time.perf_counter() - start > _PATIENCE:
            line.start()
        line.update(task, description=bounds_text(lower, upper, way))

    try:
        yield watch, line.stop
    finally:
        line.stop()


def bounds_text(lower: Number | None, upper: Number | None, way: str) -> str:
    """Return both bounds and how far they are apart, as a part of the larger one."""
    gap = "" if lower is None or upper is None else f", gap {relative_gap(lower, upper):.3g}"
    return f"{way}: at least {shown_number(lower)}, at most {shown_number(upper)}{gap}"


@contextmanager
def progress_lines(hidden: bool) -> Iterator[tuple[Callable[[int, int], None] | None, Watch | None]]:
    """Yield both callbacks; where bytes are reported, bounds are no longer drawn."""
    with progress_bar(hidden) as report, bounds_line(hidden) as (watch, end):

        def sweeping(done: int, planned: int) -> None:
            end()
            if report is not None:
                report(done, planned)

        yield report and sweeping, watch
