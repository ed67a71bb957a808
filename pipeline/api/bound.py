"""Bounds on an optimum or a partition function, where exact elimination is too much: mini-buckets of growing size."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from typing import Any, Unpack

from ...cluster.memory import peak_rss_bytes
from ...tasks.compiler.compile_limits import compiled_until
from ...tasks.steps.number_limits import OUTWARD_SHARE
from ...tasks.steps.semiring import LOG_SUM, MIN_PLUS
from ...tasks.sweeps.device_sweep import LEAST_CELLS
from ..answering.cut_offs import optimum_bounds
from ..answering.engines.strategy_policy import StrategyPolicy
from ..answering.question import Evidence, Question, check_projection, with_likelihoods
from ..answering.run_folder import bounds_directory
from ..compiling import counts_compiling
from ..cost_networks.cost_network import States, check_tables
from ..errors import DeadlineError, ModelError, checks_keywords, public
from ..formats.read import GivenModel, split_evidence
from ..machine.resources import Resources
from ..minibuckets.bucket_elimination import WorkerPool, task_bytes, task_count
from ..minibuckets.joins import least_device_cells, runs_on_cores
from ..minibuckets.partition import Partition, Size, partition
from ..minibuckets.rounds import OptimumBounds, RoundMeans, SumBounds
from ..models.checks import integer
from ..models.findings import check_log10
from ..models.model import Model
from ..options import Bounding, Options, checked_number
from ..orders.depth_first import rearranged, sweep_cells
from ..orders.min_fill import min_fill_order
from ..plans.worker_parts import SENT_SECONDS, TASK_SECONDS
from ..preprocessing.preprocess import Network, Query, fixed_value, full_states, reduce_model
from ..preprocessing.wide_tables import with_links
from ..results.bounds import Bounds, Number
from ..results.proof import DaskWork
from ..runs.pools import NOTHING_SENT, DaskPools, not_sent, sent_work
from ..runs.slices import SlicePolicy
from ..trees.costs import Rates
from .bound_ladder import Ladder
from .progress import planning_line, read_given


class BoundWorkers(ExitStack):
    """The pool of a query for bounds, if workers were requested.

    Parameters
    ----------
    resources : Resources
    model : str
        The name that Dask shows beside tasks.

    Raises
    ------
    ModelError
        If GPUs were requested too.
    """

    def __init__(self, resources: Resources, model: str) -> None:
        super().__init__()
        if resources.distributed and resources.asked.gpus is not None:
            raise ModelError("the workers of a cluster compute messages on CPUs; leave out gpus, or use this machine")
        self._resources, self._model = resources, model
        self._pool: Any = None
        self._seconds: float | None = None

    def pool_of(self, split: Partition) -> WorkerPool | None:
        """Return the pool for an elimination; None if sending the messages would take longer.

        Raises
        ------
        ModelError
            If a task for each message was requested, and there are too many of them.
        """
        if not self._resources.distributed:
            return None
        by_steps, most = self._resources.asked.tasks == "steps", SlicePolicy.current().step_tasks
        count, seconds = task_count(split), split.cells / Rates().cells_per_second
        self._seconds = max(self._seconds or 0.0, seconds)
        if by_steps and count > most:
            raise ModelError(
                f"tasks 'steps' do not apply: the messages are {count:,} tasks, and a scheduler receives at most "
                f"{most:,}; leave out tasks, or give a larger z"
            )
        if not by_steps and (seconds < max(2 * TASK_SECONDS, count * SENT_SECONDS) or count > most):
            return None
        if self._pool is None:
            pools = DaskPools(self._resources, task_bytes=task_bytes(split), model=self._model)
            self._pool = self.enter_context(pools)
        pool: WorkerPool = self._pool
        return pool

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about a report that has no tasks."""
        return () if self._pool or self._resources.asked.dask_report is None else (NOTHING_SENT,)

    @property
    def work(self) -> DaskWork | None:
        """The tasks sent so far; None if no workers were requested."""
        asked = self._resources.asked
        if not self._resources.distributed:
            return None
        if self._pool is None:
            why = "preprocessing gives the answer" if asked.folder is None else "messages on disk are computed here"
            if self._seconds is not None:
                why = f"the longest elimination takes {self._seconds:.2g} s, and sending its messages takes longer"
            return not_sent(asked, why)
        return sent_work(self._pool, asked)


# Where neither a size nor a time is given.
_SECONDS = 10.0


@public
@checks_keywords
@counts_compiling
def bound(
    model: GivenModel,
    query: str = "optimum",
    *,
    evidence: Evidence = None,
    z: int | None = None,
    time: float | None = None,
    progress: bool = False,
    **options: Unpack[Bounding],
) -> Bounds:
    """Return a lower and an upper bound on an answer, computed by mini-bucket elimination.

    A bucket whose tables together are too large is split into mini-buckets, which relaxes the problem (Dechter and Rish
    2003). Before elimination, mini-buckets are made to agree on their common variables by cost shifting (Ihler et al.
    2012). For a partition function, Hölder's inequality weights the mini-buckets (Liu and Ihler 2011). The bound from
    the other side is the true value of an assignment read from the messages. Costs are exact integers; all other
    numbers are rounded outwards.

    Parameters
    ----------
    model : Model, path or name of an example
    query : {"optimum", "partition"}
    evidence : mapping, path or None
        As in :func:`bucketflow.solve`.
    z : int, optional
        Maximum number of variables of a mini-bucket. By default mini-buckets grow, measured in cells. The first size
        takes a tenth of the time, and growth stops at the limits of memory and time. The remaining time goes to
        triangles of the functions (optimum only) and to other elimination orders.
    time : float, optional
        Wall seconds; 10 by default, and no limit if ``z`` is given. The smallest mini-buckets are always tried.
    progress : bool
        Whether to show on a terminal or in a notebook that bounds are being computed.
    **options
        ``memory``, ``order``, ``order_time``, ``seed``, ``threads``, ``gpus`` and ``gpu_memory`` as in
        :func:`bucketflow.solve`. With several GPUs, each GPU tries another order at the same time. ``workers``,
        ``scheduler``, ``client``, ``tasks``, ``dashboard`` and ``dask_report`` as there: workers compute the messages
        of large mini-buckets in memory, a task each, and the bounds are the same. With ``workdir``,
        messages that exceed memory are stored on disk, in at most ``disk`` bytes. A run that was stopped or killed
        resumes if you repeat the query with the same ``workdir``.

    Returns
    -------
    Bounds
        ``lower`` and ``upper`` (costs, or log10 of values), ``status``, the assignment of an optimum, and one entry in
        ``rounds`` per elimination.

    Raises
    ------
    ModelError
        If the query, evidence, order, ``z`` or ``time`` is not valid for the model.
    BudgetError
        If mini-buckets of size ``z``, or even the smallest ones, do not fit ``memory``, or their messages ``disk``.
    IncompatibleRunError
        If ``workdir`` belongs to another query.
    StoppedError
        If the disk is full, or on Ctrl-C with ``workdir``. Finished messages stay in ``workdir``.

    Examples
    --------
    >>> import bucketflow
    >>> bounds = bucketflow.bound("satellite")
    >>> bounds.lower <= 49 <= bounds.upper
    True
    """
    start = perf_counter()
    resources = Resources(Options(**options))
    checked_number("time", time, "a number of seconds")
    try:
        model = read_given(model, options.get("memory"), progress, time)
    except DeadlineError as error:
        return Bounds(_query(query), "bounded", seconds={"read": perf_counter() - start}, notes=(str(error),))
    _check(model, query, z)
    asked = Question(model, query, *split_evidence(model, evidence))
    network = reduce_model(with_likelihoods(with_links(model), asked.soft), query, asked.hard)  # type: ignore[arg-type]
    fixed = fixed_value(network)
    workers = BoundWorkers(resources, model.title)
    if fixed is None:
        return _finished(Bounds(network.query, "infeasible", dask=workers.work), asked, start, start)
    check_tables(network, resources.host_bytes)
    seconds = math.inf if z is not None and time is None else _SECONDS if time is None else time
    notes: tuple[str, ...] = ()
    if resources.device_sleeps and _is_over_before_a_device_starts(network, z, resources):
        resources = resources.without_devices()
        notes = ("gpus had no effect: mini-buckets take less time on the CPU than starting a device",)
    means = replace(_means(resources, network), pool_of=workers.pool_of)
    ladder = Ladder(_question(network, fixed, means), resources, start, seconds)
    with compiled_until(seconds), planning_line(progress, "mini-buckets"):
        order = ladder.order()
        planned = perf_counter()
        with bounds_directory(resources.asked.folder, asked), workers:
            rounds = tuple(ladder.climb(order, z))
            dask = workers.work
    found = ladder.question.found()
    notes = (*found.notes, *notes, *means.notes, *workers.notes)
    elimination = None if ladder.last is None else (ladder.last, ladder.question.name)
    found = replace(found, rounds=rounds, notes=notes, dask=dask, elimination=elimination)
    return _finished(found, asked, start, planned)


def _is_over_before_a_device_starts(network: Network, z: int | None, resources: Resources) -> bool:
    """Return whether the CPU is predicted to finish mini-buckets before a device has started.

    With ``z``, the cells of the mini-buckets along a quick order are compared with the start of a device. Without
    ``z``, mini-buckets may grow into whole buckets, so the cells of the whole sweep are compared.
    """
    dims, scopes, seed = network.dims, network.scopes, resources.asked.seed
    start, rate = StrategyPolicy().device_start_seconds, Rates().cells_per_second
    if z is None:
        return sweep_cells(dims, scopes, seed) < start * rate
    if (len(scopes) + len(dims)) * math.prod(sorted(dims)[-z:]) < start * rate:
        return True
    order = rearranged(dims, scopes, min_fill_order(dims, scopes, seed))
    semiring = MIN_PLUS if network.query == "optimum" else LOG_SUM
    return runs_on_cores(
        partition(dims, scopes, order, Size(variables=z)), semiring, least_device_cells(semiring), start
    )


def _query(query: str) -> Query:
    """Return a query that can be bounded.

    Raises
    ------
    ModelError
        If it is another.
    """
    if query not in ("optimum", "partition"):
        raise ModelError(f"bounds do not exist for the query {query!r}; one of optimum, partition")
    return query  # type: ignore[return-value]


def _check(model: Model, query: str, z: int | None) -> None:
    _query(query)
    if query == "partition" and model.kind == "cost":
        raise ModelError("a cost network has no partition function; ask for its optimum")
    check_projection(model, query)
    if z is not None and integer(z, "z", None) < 1:
        raise ModelError(f"z is {z}; a mini-bucket has at least 1 variable")


def _means(resources: Resources, network: Network) -> RoundMeans:
    if not resources.gpu_count:
        return RoundMeans(resources.threads)
    semiring = MIN_PLUS if network.query == "optimum" else LOG_SUM
    least = max(resources.least_cells(semiring) or LEAST_CELLS, least_device_cells(semiring))
    return RoundMeans(resources.threads, least)


def _question(network: Network, fixed: float | int, means: RoundMeans) -> _Optimum | _Sum:
    return _Optimum(network, fixed, means) if network.query == "optimum" else _Sum(network, fixed, means)


def _finished(bounds: Bounds, asked: Question, start: float, planned: float) -> Bounds:
    if bounds.query == "partition" and bounds.lower is not None:
        check_log10(asked.model, float(bounds.lower), asked.soft.values())
    seconds = {"plan": planned - start, "run": perf_counter() - planned}
    return asked.told(replace(bounds, seconds=seconds, peak_rss_bytes=peak_rss_bytes()))


class _Optimum(OptimumBounds):
    """Bounds on the optimum of a model."""

    def __init__(self, network: Network, fixed: float | int, means: RoundMeans) -> None:
        model = network.model
        super().__init__(network, None if model.top is None else model.top - int(fixed), means)
        self.network, self.fixed = network, fixed
        self.in_units = model.kind == "cost" and not self.units.exact
        self.allowed: tuple[int, States] | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Domain sizes of the variables to eliminate."""
        return self.costs.dims

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Scopes of the functions to eliminate."""
        return self.costs.scopes

    def interval(self) -> tuple[Number | None, Number | None]:
        """Lower and upper bound, as :class:`Bounds` has them."""
        found = self.found()
        return found.lower, found.upper

    def found(self) -> Bounds:
        """What is known."""
        if not self.possible:
            return Bounds("optimum", "infeasible")
        states = self.states if not self.in_units else self.allowed and self.allowed[1]
        least, exact = self.least_cost(), not self.in_units
        return optimum_bounds(self.network, self.fixed, least, states, closed=self.closed, exact=exact)

    def _take(self, states: States) -> None:
        """Remember an assignment, and apart from it the cheapest that is allowed where units hide that."""
        super()._take(states)
        if self.in_units:
            cost = self.network.model.cost(full_states(self.network, dict(enumerate(states))))
            if cost is not None and (self.allowed is None or cost < self.allowed[0]):
                self.allowed = cost, states


class _Sum(SumBounds):
    """Bounds on the partition function of a model, or on the probability of its evidence."""

    def __init__(self, network: Network, fixed: float | int, means: RoundMeans) -> None:
        super().__init__(network, means)
        self.network, self.dims, self.scopes = network, network.dims, network.scopes
        self.fixed = fixed + math.log(network.free_states)

    def interval(self) -> tuple[float | None, float | None]:
        """log10 of both bounds; None where nothing is known."""
        return self._log10(self.lower, -1), self._log10(self.upper, 1)

    def found(self) -> Bounds:
        """What is known."""
        if self.closed:
            return Bounds("partition", "infeasible")
        return Bounds("partition", "bounded", *self.interval())

    def _log10(self, log: float, outward: int) -> float | None:
        if math.isinf(log):
            return None
        value = (log + self.fixed) / math.log(10)
        return value + outward * OUTWARD_SHARE * (1 + abs(value) + abs(self.fixed))
