"""Options and output of ``plan --simulate``: how long a plan would run on workers of several numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from .options import print_written

if TYPE_CHECKING:
    from ..answering.outlook import Outlook
    from ..plans.plan import Plan

_NAMES = (
    *("worker_memory", "worker_threads", "bandwidth", "storage_bandwidth", "worker_start", "losses"),
    *("gpus_per_worker", "timeline"),
)


def simulating(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a simulation to a command, which gets them as the keyword ``simulated``."""

    @click.option("--simulate", metavar="workers=N,…", help="Predict the run on N workers, without running it.")
    @click.option("--worker-memory", metavar="SIZE", help="Memory limit of a simulated worker.")
    @click.option("--worker-threads", type=click.IntRange(min=1), help="Threads of a simulated worker.  [default: 1]")
    @click.option("--bandwidth", metavar="RATE", help="Link of each simulated worker.  [default: 1GB/s]")
    @click.option(
        "--storage-bandwidth",
        metavar="RATE",
        help="Storage that all simulated workers share.  [default: the rate of this machine's disk]",
    )
    @click.option("--worker-start", type=click.FloatRange(min=0), help="Seconds until a simulated worker takes tasks.")
    @click.option("--losses", type=click.FloatRange(min=0), help="Losses of each simulated worker in an hour.")
    @click.option("--gpus-per-worker", type=click.IntRange(min=1), help="GPUs of each simulated worker; with --gpus.")
    @click.option("--timeline", metavar="FILE", help="Draw the last simulated run: .svg, .html, .png or .pdf.")
    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        simulated = {name: value for name in _NAMES if (value := options.pop(name)) is not None}
        if simulated and options["simulate"] is None:
            given = "--" + next(iter(simulated)).replace("_", "-")
            raise click.UsageError(f"{given} describes simulated workers; give --simulate workers=N too")
        command(*args, simulated=simulated, **options)

    return run


@dataclass(frozen=True)
class SimulationOptions:
    """The options of a simulation.

    Parameters
    ----------
    workers : tuple of int
    seed : int
    given : dict
        Keywords of :meth:`.Plan.simulate`.
    timeline : str or None
        File of the drawing.
    """

    workers: tuple[int, ...]
    seed: int
    given: dict[str, Any]
    timeline: str | None

    @classmethod
    def of(cls, text: str, options: dict[str, Any], simulated: dict[str, Any]) -> SimulationOptions:
        """Read the options, and plan for the memory and the threads of a worker unless others are given.

        Raises
        ------
        ModelError
            If the numbers of workers or a size cannot be read.
        """
        from ..drawings.svg import drawing_ending
        from ..errors import ModelError
        from ..sizes import parse_rate, parse_size, worker_task_bytes

        name, _, numbers = text.partition("=")
        parts = [part.strip() for part in numbers.split(",")]
        if name.strip() != "workers" or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ModelError(f"--simulate is {text!r}; write for example workers=1,8,64")
        if options.get("workers") or options.get("scheduler"):
            raise ModelError("--simulate describes the workers; leave out --workers and --scheduler")
        given = dict(simulated)
        timeline = given.pop("timeline", None)
        if timeline is not None:
            drawing_ending(timeline)
        for rate in ("bandwidth", "storage_bandwidth"):
            if rate in given:
                parse_rate(given[rate])
        gpus, threads = given.pop("gpus_per_worker", None), given.pop("worker_threads", 1)
        if gpus is not None and options.get("gpus") is None:
            raise ModelError("--gpus-per-worker needs a plan for GPUs; give --gpus 1 on a machine with a GPU")
        given["slots"] = gpus or threads
        limit = given.get("worker_memory")
        if limit is not None and options["memory"] is None and gpus is None:
            options["memory"] = worker_task_bytes(parse_size(limit), threads)
        options["threads"] = options.get("threads") or 1
        return cls(tuple(map(int, parts)), options.get("seed", 0), given, timeline)

    def show(self, found: Outlook, as_json: bool) -> None:
        """Simulate the plan of a query; print the table and the chains, and draw the timeline."""
        simulation = _swept(found).simulate(self.workers, seed=self.seed, **self.given)
        if self.timeline is not None:
            simulation.draw().save(self.timeline)
            print_written(self.timeline)
        if as_json:
            click.echo(simulation.to_json())
            return
        click.echo(repr(simulation))


def _swept(found: Outlook) -> Plan:
    """Return the plan that is simulated: of the whole model, or of the network after preparation.

    Raises
    ------
    ModelError
        If the method runs no sweep.
    BudgetError
        If no plan fits.
    """
    from ..errors import BudgetError, ModelError
    from ..plans.plan import empty_plan

    if found.unswept:
        raise ModelError(f"there is nothing to simulate: {found.unswept}")
    if found.whole is not None:
        return found.whole.plan or empty_plan()
    if found.remainder is not None and found.remainder.plan is not None:
        return found.remainder.plan
    raise BudgetError(f"there is nothing to simulate: {found.refused}")
