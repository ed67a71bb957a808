"""How far a job is: told by whoever drives it, read by whoever watches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.driver import cluster_usage
from ...cluster.memory import peak_rss_bytes
from ...storage.job_folder import JobDir
from ..results.bounds import Number
from ..results.proof import plain_number
from .job_policy import JobPolicy


@dataclass
class Pulse:
    """Writes how far a run is, at every beat.

    Parameters
    ----------
    job : JobDir
    client : distributed.Client
    """

    job: JobDir
    client: Any
    _done: tuple[int, int] = (0, 0)
    _begun: tuple[float, int] | None = None
    _bounds: tuple[Any, Any, str] | None = None
    _usage: tuple[int, int] = (0, 0)
    _beats: int = 0
    _said: tuple[Any, ...] = (0, 0, None)

    def __post_init__(self) -> None:
        """Begin with what was said last: the run begins where the driver before this one, which is gone, ended it."""
        before = self.job.read_pulse()
        self._done = before.get("done", 0), before.get("planned", 0)
        self._bounds = before.get("bounds") and tuple(before["bounds"])

    def progress(self, done: int, planned: int) -> None:
        """Take bytes done and bytes planned."""
        if self._begun is None:
            self._begun = time.time(), done
        self._done = done, planned

    def bounds(self, lower: Number | None, upper: Number | None, way: str) -> None:
        """Take what an optimum lies between, and what is tried."""
        self._bounds = plain_number(lower), plain_number(upper), way

    def beat(self) -> None:
        """Write, now and then with a look at the cluster and a line of the log."""
        policy = JobPolicy.current()
        if self._beats % policy.asked_beats == 0:
            workers, peak = cluster_usage(self.client)
            self._usage = workers or self._usage[0], max(peak, self._usage[1], peak_rss_bytes())
        self._beats += 1
        self.job.write_pulse(self._facts())
        said = (*self._done, self._bounds)
        if self._beats % policy.logged_beats == 0 and said != self._said:
            self._said = said
            facts = self._facts()
            self.job.note("progress", **{name: facts[name] for name in ("done", "planned", "bounds") if facts[name]})

    def _facts(self) -> dict[str, Any]:
        done, planned = self._done
        workers, peak = self._usage
        return {
            "at": time.time(),
            "done": done,
            "planned": planned,
            "begun": self._begun,
            "bounds": self._bounds and list(self._bounds),
            "workers": workers,
            "peak_bytes": peak,
        }


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Parameters
    ----------
    done_bytes, planned_bytes : int
        Of tables.
    seconds : float
        Since it was last started.
    begun_seconds : float
        How long after that it began to sweep.
    begun_bytes : int
        What was done by then, which a run that goes on finds in its directory.
    lower, upper : number or None
        What an optimum lies between, where bounds prove it; else None.
    way : str
        What is tried to close them.
    workers : int
        Of the cluster.
    peak_bytes : int
        The most memory that one of them was seen to have.
    """

    done_bytes: int = 0
    planned_bytes: int = 0
    seconds: float = 0.0
    begun_seconds: float = 0.0
    begun_bytes: int = 0
    lower: Number | None = None
    upper: Number | None = None
    way: str = ""
    workers: int = 0
    peak_bytes: int = 0

    @classmethod
    def of(cls, pulse: Mapping[str, Any], started: float) -> Progress:
        """Read a pulse."""
        lower, upper, way = pulse.get("bounds") or (None, None, "")
        at = max(pulse.get("at", started), started)
        done, planned = pulse.get("done", 0), pulse.get("planned", 0)
        begun, before = pulse.get("begun") or (at, done)
        return cls(
            done_bytes=done,
            planned_bytes=planned,
            seconds=at - started,
            begun_seconds=begun - started,
            begun_bytes=before,
            lower=lower,
            upper=upper,
            way=way,
            workers=pulse.get("workers", 0),
            peak_bytes=pulse.get("peak_bytes", 0),
        )

    @property
    def share(self) -> float:
        """Part of the bytes that is done, 0 to 1."""
        return self.done_bytes / self.planned_bytes if self.planned_bytes else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left at the rate since it was last started; None where nothing was swept since."""
        swept_bytes, sweeping = self.done_bytes - self.begun_bytes, self.seconds - self.begun_seconds
        if swept_bytes <= 0 or sweeping <= 0 or self.begun_seconds < 0:  # said before that start
            return None
        return (self.planned_bytes - self.done_bytes) * sweeping / swept_bytes
