"""When a batch has to stop: it is interrupted then, wherever it is."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from ...cluster.driver import interrupt
from ..errors import ModelError


def seconds_until(clock: str, now: datetime | None = None) -> float:
    """Return the seconds until it is ``HH:MM`` on this machine's clock the next time.

    Raises
    ------
    ModelError
        If that is no time of day.
    """
    now = now or datetime.now()
    try:
        hour, minute = map(int, clock.split(":"))
        then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    except ValueError:
        raise ModelError(f"{clock!r} is not a time of day; write it like 06:30") from None
    return (then - now + (timedelta(days=1) if then <= now else timedelta())).total_seconds()


class Deadline:
    """Interrupts the thread that made it, once, after some seconds; never where there are none."""

    def __init__(self, seconds: float | None):
        self._seconds, self._begin = seconds, time.monotonic()
        self._thread = threading.current_thread()
        self._lock = threading.Lock()
        self._over = False
        self.passed: bool = False

    @property
    def left(self) -> float:
        """Seconds until then."""
        return math.inf if self._seconds is None else self._seconds - (time.monotonic() - self._begin)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch the time while this is entered."""
        timer = None if self._seconds is None else threading.Timer(max(self._seconds, 0.0), self.pass_now)
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield
        finally:
            with self._lock:
                self._over = True
            if timer is not None:
                timer.cancel()

    def pass_now(self) -> None:
        """Interrupt now, if it is watched still and was not before."""
        with self._lock:
            if not (self._over or self.passed):
                self.passed = True
                interrupt(self._thread)


def earliest(max_time: float | None, stop_at: str | None) -> float | None:
    """Return the seconds until the first of two limits, if there is one."""
    limits = [] if max_time is None else [max_time]
    limits += [] if stop_at is None else [seconds_until(stop_at)]
    return min(limits, default=None)
