"""The progress bar: bytes done of bytes planned, so that its time left means something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
