"""Options that a caller may set for planning and running, checked once at the entry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from os import PathLike
from typing import Any, TypedDict

from ..storage.files import Place
from ..storage.object_store import ObjectPath
from ..tasks.steps.light_dataclass import dataclass
from .errors import BucketflowError, ModelError
from .errors import parse_size as parse_size
from .local_paths import folder_path, local_path, verify_cache_folder
from .models.checks import integer
from .models.query import OPTION_ROWS, Fit, Representation, TaskSize, TreeKind
from .models.query import Method as Method


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to plan and where to run; see :func:`solve`."""

    memory: int | str | None = None
    order: str | Sequence[str] = "auto"
    order_time: float | None = None
    tree: TreeKind = "refined"
    seed: int = 0
    threads: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    client: Any = None
    representation: Representation = "auto"
    fit: Fit = "auto"
    disk: int | str | None = None
    workdir: str | PathLike[str] | ObjectPath | None = None
    gpus: int | str | None = None
    gpu_memory: int | str | None = None
    priority: int = 0
    most_workers: int | None = None
    tasks: TaskSize = "auto"
    dashboard: bool = False
    dask_report: str | PathLike[str] | None = None
    keep_tables: int | str | None = None

    def __post_init__(self) -> None:
        _check_kinds(self)
        verify_cache_folder()
        # the dataclass is frozen
        object.__setattr__(self, "order", checked_order(self.order))
        if isinstance(self.order, str) and self.order != "auto":
            from .orders.tried_orders import checked_rule

            checked_rule(self.order)
        if not isinstance(self.workdir, str | PathLike | ObjectPath | None):
            raise ModelError(f"workdir is {self.workdir!r}; it must be a path")
        if self.workdir is not None:
            folder_path(self.workdir)
        if not isinstance(self.scheduler, str | None):
            raise ModelError(f"scheduler is {self.scheduler!r}; it must be an address like tcp://host:8786")
        if self.client is not None:
            verify_synchronous(self.client)
        if self.gpus is not None and self.workers:
            raise ModelError("every GPU has one worker; leave out workers, or gpus")
        if self.workers and not self.remote:
            _verify_first_import()
        if not isinstance(self.gpus, str | None):
            object.__setattr__(self, "gpus", integer(self.gpus, "gpus", None))
        if self.gpu_memory is not None and self.gpus is None:
            raise ModelError("gpu_memory limits GPUs; give gpus too")
        self._check_tasks()
        if self.fit == "store" and self.keep_tables is None:
            object.__setattr__(self, "keep_tables", 0)
        kept = "fit 'store'" if self.fit == "store" else "keep_tables"
        if self.keep_tables is not None and self.workdir is None:
            raise ModelError(f"kept tables need a run directory; give workdir with {kept}")
        if self.keep_tables is not None and self.gpus is not None:
            raise ModelError(f"tables on a GPU are not kept; leave out gpus, or {kept}")

    def _check_tasks(self) -> None:
        if self.tasks == "steps" and not (self.remote or self.workers or self.gpus is not None):
            raise ModelError("tasks 'steps' are sent to a Dask cluster; give workers, a scheduler, a client or gpus")
        if self.dask_report is not None:
            if not isinstance(self.dask_report, str | PathLike):
                raise ModelError(f"dask_report is {self.dask_report!r}; it must be the path of an .html file")
            if not (self.remote or self.workers or self.gpus is not None):
                raise ModelError("dask_report tells of tasks on a Dask cluster; give workers, a scheduler or a client")
            object.__setattr__(self, "dask_report", local_path(self.dask_report))
        if self.dashboard and (self.remote or not self.workers):
            started = "the dashboard shows workers started here"
            raise ModelError(f"{started}: give workers; a running scheduler serves its own")

    def without_gpus(self) -> Options:
        """The same options on CPUs alone. Without workers or a cluster, steps are not sent as tasks."""
        tasks = self.tasks if self.remote or self.workers else "auto"
        return replace(self, gpus=None, gpu_memory=None, tasks=tasks)

    def without_folder(self) -> Options:
        """The same without a run directory, nor tables that stay in it."""
        return replace(self, workdir=None, keep_tables=None, fit="auto" if self.fit == "store" else self.fit)

    @property
    def remote(self) -> bool:
        """Whether the workers belong to a running cluster."""
        return self.client is not None or self.scheduler is not None

    @property
    def disk_bytes(self) -> int | None:
        """The budget for tables on disk in bytes, if one is given."""
        return None if self.disk is None else parse_size(self.disk)

    @property
    def kept_bytes(self) -> int | None:
        """From how many bytes on tables are kept, if they are."""
        return None if self.keep_tables is None else parse_size(self.keep_tables)

    @property
    def folder(self) -> Place | None:
        """The run directory, if one is given."""
        return None if self.workdir is None else folder_path(self.workdir)


@dataclass(frozen=True, kw_only=True)
class ProofOptions:
    """How an optimum is proved, and how far; see :func:`solve`."""

    method: Method = "auto"
    upper_bound: float | int | str | None = None
    time: float | None = None
    gap: float | None = None
    prune: bool = True

    def __post_init__(self) -> None:
        _check_kinds(self)
        object.__setattr__(self, "prune", checked_flag("prune", self.prune))
        if self.upper_bound is not None:
            try:
                finite = math.isfinite(float(self.upper_bound)) and Decimal(str(self.upper_bound)).is_finite()
            except (TypeError, ValueError, ArithmeticError):
                finite = False
            if not finite:
                raise ModelError(f"the bound {self.upper_bound!r} is not a number")

    def after(self, seconds: float) -> ProofOptions:
        """Return the same options with the time that remains after ``seconds``, at least 0."""
        return self if self.time is None else replace(self, time=max(self.time - seconds, 0.0))

    @property
    def limited(self) -> bool:
        """Whether bounds may be the answer, or were given."""
        return self.upper_bound is not None or self.time is not None or self.gap is not None

    def refuse_for(self, query: str) -> None:
        """Refuse where a query has no bounds.

        Raises
        ------
        ModelError
            If a bound or a method for optima is asked.
        """
        if self.method == "ganak" and query not in ("partition", "count"):
            raise ModelError(f"the method ganak is for counts and partition functions, not for the {query}")
        if query == "optimum":
            return
        if query == "mmap":
            if self.upper_bound is not None:
                raise ModelError("upper_bound is for the optimum, not for the mmap")
            return
        if self.limited or self.method not in ("auto", "dense", "diagram", "search", "ganak"):
            raise ModelError(f"upper_bound, time, gap and the method rows are for the optimum, not for the {query}")


def _check_kinds(options: Options | ProofOptions) -> None:
    """Check each option by the kind of its row, and keep numbers as Python's own."""
    for field in fields(options):
        row, value = OPTION_ROWS.get(field.name), getattr(options, field.name)
        if row is None:
            continue
        if row.kind == "choice" and value not in row.choices:
            raise ModelError(f"unknown {row.name} {value!r}; one of {', '.join(row.choices)}")
        if row.kind == "number":
            value = checked_number(row.name, value, row.unit)
        elif row.kind == "whole" and (value is not None or row.default is not None):
            value = integer(value, row.name, row.least)
        elif row.kind == "flag":
            value = checked_flag(row.name, value)
        elif row.kind == "size" and value is not None:
            size = parse_size(value)
            value = value if isinstance(value, str) else size
        object.__setattr__(options, field.name, value)


def _verify_first_import() -> None:
    """Let no worker ask what the script that it has to import asks, for workers of its own."""
    from ..cluster.address import ClusterError
    from ..cluster.starting import verify_first_import

    try:
        verify_first_import()
    except ClusterError as error:
        raise BucketflowError(str(error)) from None


def verify_synchronous(client: Any) -> None:
    """Refuse an asynchronous client.

    Raises
    ------
    ModelError
        If this thread runs its event loop.
    """
    from ..cluster import connect

    try:
        connect.verify_synchronous(client)
    except connect.ClusterError as error:
        raise ModelError(str(error)) from None


def checked_flag(name: str, value: Any) -> bool:
    """Return whether something is asked; texts, such as "no", would all count as true.

    Raises
    ------
    ModelError
        If it is no truth value.
    """
    if isinstance(value, str) or value not in (0, 1):
        raise ModelError(f"{name} is {value!r}; it must be True or False")
    return bool(value)


def checked_number(name: str, value: Any, what: str) -> int | float | None:
    """Return a number of Python's that is at least 0 and finite, if one is given.

    Raises
    ------
    ModelError
        If it is not.
    """
    try:
        fits = value is None or (not isinstance(value, bool) and bool(0 <= value < math.inf))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ModelError(f"{name} is {value}; it must be {what}, 0 or more")
    return value if isinstance(value, int | None) else float(value)


def checked_order(order: Any) -> str | tuple[str, ...]:
    """Check that an order is a name, or lists names.

    Raises
    ------
    ModelError
        If it is neither.
    """
    names = order if isinstance(order, str) else tuple(order) if isinstance(order, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ModelError(f"the order is {order!r}; it must be the name of a heuristic, or list names")
    return names


# The keywords that the public functions share, with their types; what they mean: :func:`bucketflow.solve`.


class Where(TypedDict, total=False):
    """Where to run, and within what memory."""

    memory: int | str | None
    threads: int | None
    workers: int | None
    scheduler: str | None
    client: Any
    gpus: int | str | None
    gpu_memory: int | str | None


class Keywords(Where, total=False):
    """How to plan, too."""

    order: str | Sequence[str]
    order_time: float | None
    tree: TreeKind
    seed: int
    representation: Representation
    fit: Fit
    disk: int | str | None
    workdir: str | PathLike[str] | ObjectPath | None
    tasks: TaskSize
    dashboard: bool
    dask_report: str | PathLike[str] | None
    keep_tables: int | str | None


class Sharing(Keywords, total=False):
    """How a job shares its cluster with others, too."""

    priority: int
    most_workers: int | None


class Bounding(Where, total=False):
    """How to bound an answer, and where on disk."""

    disk: int | str | None
    workdir: str | PathLike[str] | ObjectPath | None
    order: str | Sequence[str]
    order_time: float | None
    seed: int
    tasks: TaskSize
    dashboard: bool
    dask_report: str | PathLike[str] | None
