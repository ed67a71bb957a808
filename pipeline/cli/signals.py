"""Signals that end a command: SIGTERM stops it as Ctrl-C does, so that nothing is left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminable(codes: list[int]) -> Iterator[None]:
    """Let SIGTERM raise ``KeyboardInterrupt`` and add its exit code to a list; the next SIGTERM ends the process.

    Whoever has set a handler of his own, or ignores the signal, keeps it so.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        codes.append(128 + number)
        raise KeyboardInterrupt

    if ours:
        signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
