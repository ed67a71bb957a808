"""Simulations of a plan on several numbers of workers: the public function `simulate`, and its results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from math import inf
from typing import Any, Final

from ...cluster.deployed import MOST_WORKERS
from ...cluster.memory import limited_task_bytes
from ...tasks.steps.light_dataclass import dataclass
from ..drawings.charts import timeline
from ..drawings.svg import Svg
from ..errors import BudgetError, ModelError, checks_keywords, format_bytes, parse_rate, parse_size, public, size_option
from ..models.checks import integer
from ..plans.plan import Plan
from ..plans.problem import PlanningPolicy
from ..plans.worker_parts import SENT_SECONDS
from .simulated_cluster import CLIENT, SimulatedCluster, SimulatedSpan, SimulatedTask, Simulator
from .simulated_tasks import divided_for, simulated_tasks

_HEAD: Final = ("workers", "predicted", "worker-hours", "utilisation", "network", "storage", "losses", "limited by")
# Workers of a timeline.
_DRAWN: Final = 24


@dataclass(frozen=True)
class SimulatedRun:
    """The prediction for one number of workers.

    Parameters
    ----------
    workers : int
    seconds : float
        From the start of the workers to the answer.
    utilisation : float
        Seconds of computing over the seconds of all places for tasks.
    network_bytes, storage_bytes : int
        Moved between processes; read from and written to storage.
    tasks, losses : int
    limits : dict of str to float
        Seconds of the chain of tasks that limits the run, by what they are spent on.
    chain : tuple of (str, str, int, float)
        Groups of consecutive tasks of that chain: the first, the last, their number, and their seconds.
    spans : tuple of (str, float, float, str)
        Worker, begin, end and key of every task, for the timeline.
    """

    workers: int
    seconds: float
    utilisation: float
    network_bytes: int
    storage_bytes: int
    tasks: int
    losses: int
    limits: dict[str, float]
    chain: tuple[tuple[str, str, int, float], ...]
    spans: tuple[tuple[str, float, float, str], ...] = field(default=(), repr=False, compare=False)

    @property
    def worker_hours(self) -> float:
        """Hours of all workers together."""
        return self.workers * self.seconds / 3600

    @property
    def limited_by(self) -> str:
        """The largest part of the chain that limits the run, in words."""
        name = max(self.limits, key=lambda key: self.limits[key])
        return f"{name}, {self.limits[name] / max(self.seconds, 1e-12):.0%}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only; the spans are left out."""
        told = {key: value for key, value in vars(self).items() if key not in ("spans", "chain")}
        names = ("first", "last", "tasks", "seconds")
        chain = [dict(zip(names, part, strict=True)) for part in self.chain]
        return {**told, "worker_hours": self.worker_hours, "limited_by": self.limited_by, "chain": chain}


@dataclass(frozen=True, repr=False)
class Simulation:
    """The predictions for several numbers of workers.

    Parameters
    ----------
    runs : tuple of SimulatedRun
    """

    runs: tuple[SimulatedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: a head, and a row for each number of workers."""
        rows: list[tuple[str, ...]] = [_HEAD]
        for run in self.runs:
            moved = format_bytes(run.network_bytes), format_bytes(run.storage_bytes)
            figures = f"{run.workers:,}", duration(run.seconds), f"{run.worker_hours:.3g}", f"{run.utilisation:.0%}"
            rows.append((*figures, *moved, f"{run.losses:,}", run.limited_by))
        return rows

    def draw(self, workers: int | None = None) -> Svg:
        """Draw the timeline of the run with ``workers`` workers; by default, of the last run.

        At most 24 workers are drawn: the client, and first the workers of the chain that limits the run.
        """
        run = next((run for run in self.runs if run.workers == workers), self.runs[-1])
        shown = {*list(dict.fromkeys(span[0] for span in run.spans))[:_DRAWN]}
        return timeline([span for span in run.spans if span[0] in shown])

    def _repr_svg_(self) -> str:
        return self.draw().text

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[k]) for row in rows) for k in range(len(_HEAD))]
        right = len(_HEAD) - 1
        lines = [
            "  ".join(t.rjust(w) if k < right else t for k, (t, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        for run in self.runs:
            parts = [
                f"{first} … {last} ({count:,} tasks, {duration(seconds)})"
                if count > 1
                else f"{first} ({duration(seconds)})"
                for first, last, count, seconds in run.chain
            ]
            more = f" → {len(parts) - 6} more → " if len(parts) > 7 else " → "
            shown = parts if len(parts) <= 7 else [" → ".join(parts[:3]), " → ".join(parts[-3:])]
            lines.append(f"chain of {run.workers:,}: {more.join(shown)}")
        return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes, hours or days."""
    for unit, size, least in (("days", 86400, 172800), ("h", 3600, 7200), ("min", 60, 120)):
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def simulated_run(tasks: Sequence[SimulatedTask], cluster: SimulatedCluster) -> SimulatedRun:
    """Simulate tasks on a cluster."""
    simulator = Simulator(tasks, cluster)
    simulator.run()
    spans = simulator.spans
    computing = sum(span.computing for span in spans if span.worker != CLIENT and span.alive)
    places = cluster.workers * cluster.slots * simulator.now
    ended = [span for span in spans if span.alive]
    chain, limits = _chain(spans)
    return SimulatedRun(
        workers=cluster.workers,
        seconds=simulator.now,
        utilisation=computing / places if places else 0.0,
        network_bytes=simulator.network_bytes,
        storage_bytes=sum(tasks[span.task].read_bytes + tasks[span.task].written_bytes for span in ended),
        tasks=len(ended),
        losses=simulator.losses,
        limits=limits,
        chain=_grouped([(tasks[span.task].key, span.end - span.begin) for span in chain]),
        spans=tuple((_worker(span), span.begin, span.end, tasks[span.task].key) for span in [*chain, *spans]),
    )


def _worker(span: SimulatedSpan) -> str:
    return "client" if span.worker == CLIENT else f"worker {span.worker + 1}"


def _chain(spans: Sequence[SimulatedSpan]) -> tuple[list[SimulatedSpan], dict[str, float]]:
    """Return the chain of spans that ends last, each begun when the one before it ended; and its seconds by kind."""
    names = ("computing on busy workers", "dependent tasks", "client", "network", "storage", "submission of tasks")
    limits = dict.fromkeys((*names, "start of workers", "lost work"), 0.0)
    span = max((s for s in spans if s.alive), key=lambda s: s.end)
    chain = []
    while True:
        chain.append(span)
        before = spans[span.after] if span.after >= 0 else None
        if not span.alive:
            limits["lost work"] += span.end - span.begin
        elif span.worker == CLIENT:
            limits["client"] += span.computing
        else:
            limits["computing on busy workers" if span.cause == "slot" else "dependent tasks"] += span.computing
        if span.alive:
            limits["network"] += span.network
            limits["storage"] += span.storage
        wait = span.begin - (before.end if before else 0.0)
        limits["start of workers" if span.cause == "start" else "submission of tasks"] += wait
        if before is None:
            return chain[::-1], limits
        span = before


def _grouped(chain: Sequence[tuple[str, float]]) -> tuple[tuple[str, str, int, float], ...]:
    """Join consecutive tasks whose keys differ in the number at their end only."""
    groups: list[tuple[str, str, int, float]] = []
    for key, seconds in chain:
        first, _, count, known = groups[-1] if groups else ("", "", 0, 0.0)
        if groups and key.rstrip("0123456789") == first.rstrip("0123456789"):
            groups[-1] = first, key, count + 1, known + seconds
        else:
            groups.append((key, key, 1, seconds))
    return tuple(groups)


@public
@checks_keywords
def simulate(
    plan: Plan,
    workers: int | Iterable[int] = (1, 8, 64),
    *,
    worker_memory: int | str | None = None,
    slots: int = 1,
    bandwidth: float | str = "1GB/s",
    storage_bandwidth: float | str | None = None,
    worker_start: float = 0.0,
    losses: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Predict the run of a plan on workers of several numbers. No task is run.

    The seconds of a task are those that the plan predicts. Slices that bounds exclude count as swept.

    Parameters
    ----------
    plan : Plan
    workers : int or iterable of int
        Numbers of workers.
    worker_memory : size, optional
        Memory limit of each worker. A plan whose tasks need more is refused.
    slots : int
        Tasks that a worker runs at a time: its threads, or its GPUs.
    bandwidth : rate
        Rate of the link of each worker.
    storage_bandwidth : rate, optional
        Rate of the storage that all workers share. By default the rate of this machine's disk.
    worker_start : float
        Seconds until a worker takes tasks, at the beginning and after a loss.
    losses : float
        Losses of each worker in an hour, at random times.
    seed : int

    Returns
    -------
    Simulation
        A run for each number of workers.

    Raises
    ------
    ModelError
        If a number is not acceptable, tables are sparse, or the run has too many tasks.
    BudgetError
        If a task needs more memory than a worker has.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.simulate(bucketflow.plan("diagnosis", "marginals"), (1, 8))
    >>> [run.workers for run in found.runs]
    [1, 8]
    """
    numbers = [workers] if isinstance(workers, int) else list(workers)
    slots, seed = integer(slots, "slots", 1), integer(seed, "seed", 0)
    for number in numbers:
        if integer(number, "workers", 1) > MOST_WORKERS:
            raise ModelError(f"workers is {number:,}; a simulation takes at most {MOST_WORKERS:,}")
    if not numbers:
        raise ModelError("workers is empty; give at least one number of workers, such as 8")
    for name, value in (("worker_start", worker_start), ("losses", losses)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise ModelError(f"{name} is {value!r}; it must be a number, 0 or more")
    memory = worker_memory_bytes(plan, worker_memory, slots)
    policy, spill = PlanningPolicy.current(), plan.spill
    storage = inf if spill is None else spill.disk_rate
    runs = []
    for number in numbers:
        tasks = simulated_tasks(divided_for(plan, number * slots, memory))
        cluster = SimulatedCluster(
            number,
            slots,
            parse_rate(bandwidth),
            storage if storage_bandwidth is None else parse_rate(storage_bandwidth),
            # a single task runs in the client, which neither starts nor is lost
            float(worker_start) if len(tasks) > 1 else 0.0,
            SENT_SECONDS,
            policy.submit_seconds,
            float(losses) if len(tasks) > 1 else 0.0,
            seed,
        )
        runs.append(simulated_run(tasks, cluster))
    return Simulation(tuple(runs))


def worker_memory_bytes(plan: Plan, limit: int | str | None, slots: int) -> int:
    """Return the bytes for a task on a worker; on GPUs, the memory of the plan.

    Raises
    ------
    BudgetError
        If the plan needs more.
    """
    if limit is None or plan.device:
        return plan.peak_bytes if limit is None else max(plan.peak_bytes, plan.kept_bytes)
    allowed = limited_task_bytes(parse_size(limit), slots)
    if plan.peak_bytes > allowed:
        raise BudgetError(
            f"a task of the plan takes {format_bytes(plan.peak_bytes)}, and a worker with a memory limit of "
            f"{format_bytes(parse_size(limit))} has {format_bytes(allowed)} for it; plan with memory "
            f"{size_option(allowed)} or less, or give more worker memory"
        )
    return allowed
