"""Learn the parameters of a Bayesian network: the public function, the iterations, and the folder that keeps them.

The E-step computes expected counts of all learnt tables, and the log-likelihood of the rows, under given parameters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...cluster.memory import peak_rss_bytes
from ...storage.files import Place
from ...storage.run_folder import RunDir
from ..api.marginals import in_memory
from ..api.progress import progress_lines, read_given
from ..api.stored_runs import stored_model
from ..compiled.compiled import Compiled, compile_model
from ..compiled.expected_counts import expected_counts, with_tables
from ..errors import IncompatibleRunError, ModelError, checks_keywords, public
from ..formats.read import GivenModel
from ..formats.write import save, verify_written
from ..machine.resources import Resources
from ..models.cases import Cases
from ..models.checks import integer
from ..models.model import Model
from ..options import Keywords, checked_number
from ..results.remaining_time import Iteration
from .fit_folder import DataRows, fit_folder, fit_identity, group_rows, rows_of
from .fitted import FittedModel
from .parameters import Parameters, Tables, parameters_of, weighted_log

Array = NDArray[Any]


class Expectation:
    """Expected counts of rows under changing parameters.

    Complete rows are counted once. DataRows with missing cells are propagated in batches over one compiled tree, which
    stays the same while the parameters change.

    Parameters
    ----------
    parameters : Parameters
    rows : DataRows
    **options
        As in :func:`bucketflow.compile`.
    """

    def __init__(self, parameters: Parameters, rows: DataRows, **options: Unpack[Keywords]) -> None:
        self._parameters, self._options = parameters, options
        model = parameters.model
        used = {v for f in model.functions for v in f.scope}
        complete = _observed(rows, used)
        self._whole, self._open = rows.some(complete), rows.some(~complete)
        every = range(len(model.functions))
        self._whole_counts = {f: present_counts(model, f, self._whole) for f in every}
        self._counts: dict[int, Array] = {f: self._whole_counts[f] for f in parameters.learnt}
        self._asked = []
        for f in parameters.learnt:
            if _observed(self._open, model.functions[f].scope).all():
                self._counts[f] = self._counts[f] + present_counts(model, f, self._open)
            else:
                self._asked.append(f)

    @property
    def counts(self) -> Mapping[int, Array]:
        """Counts that do not depend on the parameters, by learnt function."""
        return self._counts

    @property
    def is_counting(self) -> bool:
        """Whether no row has a missing cell, so that counts do not depend on the parameters."""
        return not self._open.cases.count

    @cached_property
    def compiled(self) -> Compiled:
        """The tree of all rows.

        Preprocessing removes states that zeros exclude. Learnt tables therefore have no zeros while the tree is built.
        """
        parameters = self._parameters
        positive = parameters.with_tables(parameters.start("uniform", ()))
        return compile_model(replace(positive, evidence={}), families=True, background=False, **self._options)

    def at(self, tables: Tables) -> tuple[Mapping[int, Array], float]:
        """Return the expected counts by function, and ln of the probability of all rows.

        Raises
        ------
        FormatError, ModelError
            If a row has probability 0.
        """
        model = self._parameters.with_tables(tables)
        counts, total = dict(self._counts), self._whole_log(model)
        if self.is_counting:
            return counts, total
        scopes = [model.functions[f].scope for f in self._asked]
        rows = self._open
        under = with_tables(self.compiled, replace(model, evidence={}))
        found, logs = expected_counts(under, rows.cases, rows.weights, scopes, {})
        impossible = np.flatnonzero(~np.isfinite(logs))
        if len(impossible):
            raise rows.impossible(int(impossible[0]), _ZERO)
        for f, table in zip(self._asked, found, strict=True):
            counts[f] = counts[f] + table
        return counts, total + math.fsum((rows.weights * logs).tolist())

    def _whole_log(self, model: Model) -> float:
        """Return ln of the probability of the complete rows."""
        counts = self._whole_counts.items()
        parts = [weighted_log(table, model.functions[f].dense(model.dims)) for f, table in counts]
        if -math.inf in parts:
            f = model.functions[parts.index(-math.inf)]
            values = f.dense(model.dims)[tuple(self._whole.cases.columns[v] for v in f.scope)]
            raise self._whole.impossible(int(np.flatnonzero(values == 0.0)[0]), _ZERO)
        return math.fsum(parts)


_ZERO = "probability 0 under the fixed tables and the start"


def _observed(rows: DataRows, variables: Any) -> Array:
    """Return which rows observe a state of each of some variables."""
    found = np.ones(rows.cases.count, dtype=bool)
    for v in variables:
        column = rows.cases.columns.get(v)
        found &= column >= 0 if column is not None and column.ndim == 1 else False
    return found


def present_counts(model: Model, f: int, rows: DataRows) -> Array:
    """Count the joint states of a function's scope in the rows that observe all its variables."""
    scope = model.functions[f].scope
    shape, observed = [model.dims[v] for v in scope], _observed(rows, scope)
    rows = rows if observed.all() else rows.some(observed)
    if not rows.cases.count or not scope:
        return np.full(shape, rows.weights.sum())
    places = np.ravel_multi_index(tuple(rows.cases.columns[v] for v in scope), shape)
    return np.bincount(places, weights=rows.weights, minlength=math.prod(shape)).reshape(shape)


Report = Callable[[int, float], None]
"""Called with the number of finished iterations, and the log-likelihood after them."""

_STARTS = ("model", "uniform", "random")


@public
@checks_keywords
def fit(
    model: GivenModel,
    data: Any,
    *,
    prior: float | Mapping[str, ArrayLike] = 0.0,
    equivalent_sample: float = 0.0,
    fixed: Iterable[str] = (),
    tied: Iterable[Iterable[str]] = (),
    start: Literal["model", "uniform", "random"] = "model",
    restarts: int = 0,
    iterations: int = 100,
    tolerance: float = 1e-6,
    out: str | os.PathLike[str] | None = None,
    progress: Report | bool | None = None,
    **options: Unpack[Keywords],
) -> FittedModel:
    """Learn the tables of a Bayesian network from data.

    Complete rows are counted. Missing cells and hidden variables need expectation-maximization (Dempster, Laird and
    Rubin 1977), with expected counts by exact propagation (Lauritzen 1995). Equal rows are propagated once.

    Parameters
    ----------
    model : Model, path or name of an example
        A Bayesian network: its structure, and the tables to start from.
    data : path, mapping, data frame, or sequence of mappings
        DataRows of states, as :meth:`.Compiled.marginals_batch` takes cases: None, NaN or an empty cell is missing, and
        variables without a column are hidden. A path is a CSV file with a header of variable names.
    prior : number, or mapping of str to array_like
        Pseudo-counts that are added to the counts of each joint state; or for some variables a number, or an array in
        the shape of the table: parents in the order of the scope, then the child. 0 gives maximum likelihood.
        Pseudo-counts ``α`` give the mode of the posterior under a Dirichlet prior with parameters ``α + 1``.
    equivalent_sample : number
        Pseudo-counts of this many rows in total for each table, spread evenly (BDeu; Heckerman, Geiger and Chickering
        1995).
    fixed : iterable of str
        Variables whose tables stay as they are.
    tied : iterable of iterables of str
        Groups of variables that share one table. Their tables have equal shapes, with parents in the order of the
        scopes.
    start : {"model", "uniform", "random"}
        Tables of the first iteration. Hidden variables need a start that tells their states apart.
    restarts : int
        Number of further starts from random tables, with seeds that follow from ``seed``. The best result is returned.
    iterations : int
        Maximum number of iterations of each start.
    tolerance : float
        Stop when an iteration raises the log-likelihood plus log-prior by at most this much for each row (nats).
    out : path, optional
        File for the learnt model, in any format that :func:`bucketflow.save` writes.
    progress : bool or callable, optional
        True shows iterations on a terminal or in a notebook. A callable is called with (iteration, log-likelihood).
    **options
        ``memory``, ``order``, ``order_time``, ``tree``, ``seed``, ``threads``, ``workers``, ``scheduler``, ``client``,
        ``gpus`` and ``gpu_memory``, as in :func:`bucketflow.compile`. ``workdir`` is a folder, or a URL, that keeps
        each finished iteration: if a run was stopped, the same call or :func:`bucketflow.resume` continues it.

    Returns
    -------
    FittedModel

    Raises
    ------
    ModelError
        If the model is no Bayesian network, or an argument, the data or a row of them does not fit it.
    FormatError
        If the file of data cannot be read, or a row of it does not fit the model or has probability 0.
    BudgetError
        If the data or the messages do not fit ``memory``.
    IncompatibleRunError
        If ``workdir`` belongs to another run.
    StoppedError
        On Ctrl-C with ``workdir``.

    Examples
    --------
    >>> import bucketflow
    >>> rain = bucketflow.Model.build(
    ...     "bayes",
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     [(("rain",), [0.5, 0.5]), (("rain", "wet"), [[0.9, 0.1], [0.2, 0.8]])],
    ... )
    >>> rows = {"rain": ["no", "no", "yes", None], "wet": ["no", "no", "yes", "yes"]}
    >>> fitted = bucketflow.fit(rain, rows)
    >>> fitted.status, fitted.log_likelihoods[0] < fitted.log_likelihood
    ('converged', True)
    >>> fitted.model.functions[0].values.round(3).tolist()
    [0.5, 0.5]
    """
    begun = perf_counter()
    workdir = options.pop("workdir", None)
    chosen = in_memory(**options)
    for name, value in (("equivalent_sample", equivalent_sample), ("tolerance", tolerance)):
        checked_number(name, value, "a number")
    for name, count in (("restarts", restarts), ("iterations", iterations)):
        integer(count, name, 0)
    if start not in _STARTS:
        raise ModelError(f"unknown start {start!r}; one of {', '.join(_STARTS)}")
    fixed, tied = _listed(fixed), [_listed(group) for group in tied]
    model = read_given(model, chosen.memory, progress is True)
    if out is not None:
        verify_written(model, out)
    parameters = parameters_of(model, prior, equivalent_sample, fixed, tied)
    rows = rows_of(model, data, Resources(chosen).memory_bytes)
    read = perf_counter()
    starts = [(start, 0), *(("random", k + 1) for k in range(restarts))]
    limits = _Limits(iterations, tolerance * rows.total)
    identity = fit_identity(parameters, rows, start, chosen.seed)
    asked: dict[str, Any] = {"prior": prior, "equivalent_sample": equivalent_sample, "fixed": fixed, "tied": tied}
    asked |= {"start": start, "restarts": restarts, "iterations": iterations, "tolerance": tolerance, "out": out}
    kept = fit_folder(workdir, model, identity, rows.source, {**asked, **options})
    with _reporting(progress) as report, kept as folder:
        run = _Run(parameters, Expectation(parameters, rows, **options), limits, folder, report)
        climbs = run.climbs(starts, chosen.seed)
        run.keep(finished=True)
    best = max(climbs, key=lambda climb: climb.objectives[-1])
    learnt = parameters.with_tables(best.tables)
    if out is not None:
        save(learnt, out)
    return FittedModel(
        model=learnt,
        status=best.status,
        log_likelihoods=tuple(best.logs),
        log_prior=parameters.log_prior(best.tables),
        starts=tuple(climb.objectives[-1] for climb in climbs),
        rows_read=rows.total,
        different=rows.cases.count,
        parameters=parameters.count,
        seconds={"read": read - begun, "run": perf_counter() - read},
        peak_rss_bytes=peak_rss_bytes(),
        notes=(*model.notes, *_notes(learnt, rows)),
    )


def counted_model(model: Model, cases: Cases, prior: float) -> Model:
    """Return a Bayesian network whose tables count the cases that observe all variables of a table.

    Parameters
    ----------
    model : Model
        Its structure, and the distributions that no case and no prior counts for.
    cases : Cases
    prior : float
        Pseudo-counts of each joint state.
    """
    parameters, rows = parameters_of(model, prior, 0.0, (), ()), group_rows(cases)
    counts = {f: present_counts(model, f, rows) for f in parameters.learnt}
    return parameters.with_tables(parameters.maximized(counts, parameters.start("model", ())))


def _listed(names: Any) -> Any:
    """Return names as a list, which a folder can keep; anything else is refused later."""
    return list(names) if isinstance(names, Iterable) and not isinstance(names, str) else names


def _notes(learnt: Model, rows: DataRows) -> Iterator[str]:
    """Yield a sentence about each hidden variable whose states stayed alike, and about tables that cannot be learnt."""
    observed = rows.cases.columns
    for v, name in enumerate(learnt.own_names):
        hidden = v not in observed or (observed[v].ndim == 1 and bool((observed[v] < 0).all()))
        children = [f for f in learnt.functions if v in f.scope and f.child != v and f.rows is None] if hidden else []
        if children and all(np.allclose(np.ptp(f.values, axis=f.scope.index(v)), 0.0) for f in children):
            yield f"the start does not tell the states of the hidden variable {name!r} apart; use random starts"
    if learnt.hidden:
        yield "tables of hidden variables that stand for wide functions stay as they are"


@dataclass(frozen=True)
class _Limits:
    """Maximum number of iterations of a start, and the least increase of an iteration, in nats."""

    iterations: int
    increase: float


@dataclass
class _Climb:
    """The iterations of one start.

    Parameters
    ----------
    tables : tuple of ndarray
        After the last M-step.
    logs, objectives : list of float
        Log-likelihood, and its sum with the log-prior, under the tables before each M-step; at the end also under
        ``tables``.
    status : {"counted", "converged", "iterations"}
    """

    tables: Tables
    logs: list[float]
    objectives: list[float]
    status: Literal["counted", "converged", "iterations"] = "iterations"


class _Run:
    """All starts of one call.

    Parameters
    ----------
    parameters : Parameters
    expectation : Expectation
    limits : _Limits
    folder : RunDir or None
        Keeps each finished iteration.
    report : callable
    """

    def __init__(
        self,
        parameters: Parameters,
        expectation: Expectation,
        limits: _Limits,
        folder: RunDir | None,
        report: Report,
    ) -> None:
        self._parameters, self._expectation = parameters, expectation
        self._limits, self._folder, self._report = limits, folder, report
        self._climbs = [] if folder is None else _stored_climbs(folder, parameters)

    def climbs(self, starts: Sequence[tuple[str, int]], seed: int) -> list[_Climb]:
        """Return all starts after their iterations."""
        if self._expectation.is_counting:
            self._climbs = [self._counted(starts[0][0], seed)]
            return self._climbs
        for k, (kind, number) in enumerate(starts):
            if k == len(self._climbs):
                self._climbs.append(_Climb(self._parameters.start(kind, (seed, number)), [], []))
            self._climb(self._climbs[k])
        return self._climbs

    def _counted(self, start: str, seed: int) -> _Climb:
        """Divide the counts of complete rows; the start gives the distributions that no row counts for."""
        parameters, expectation = self._parameters, self._expectation
        tables = parameters.maximized(expectation.counts, parameters.start(start, (seed, 0)))
        log = expectation.at(tables)[1]
        return _Climb(tables, [log], [log + parameters.log_prior(tables)], "counted")

    def _climb(self, climb: _Climb) -> None:
        """Iterate until the limits."""
        parameters, limits = self._parameters, self._limits
        while True:
            counts, log = self._expectation.at(climb.tables)
            climb.logs.append(log)
            climb.objectives.append(log + parameters.log_prior(climb.tables))
            finished = len(climb.logs) - 1
            self._report(finished, log)
            if finished and climb.objectives[-1] - climb.objectives[-2] <= limits.increase:
                climb.status = "converged"
                return
            if finished >= limits.iterations:
                climb.status = "iterations"
                return
            climb.tables = parameters.maximized(counts, climb.tables)
            self.keep()

    def keep(self, finished: bool = False) -> None:
        """Write the tables after the last M-step of each start. A call that continues repeats the E-step after it."""
        if self._folder is None:
            return
        current = None if finished else self._climbs[-1]
        starts = [_plain(climb, len(climb.logs) - (climb is not current)) for climb in self._climbs]
        self._folder.write_bounds({"starts": starts, "ended": [climb.status for climb in self._climbs if finished]})


def _plain(climb: _Climb, finished: int) -> dict[str, Any]:
    """Return the M-steps of a start as plain types."""
    return {
        "tables": [table.ravel().tolist() for table in climb.tables],
        "logs": climb.logs[:finished],
        "objectives": climb.objectives[:finished],
    }


def _stored_climbs(folder: RunDir, parameters: Parameters) -> list[_Climb]:
    """Return the starts that a stopped call kept."""
    stored = folder.read_bounds() or {"starts": []}
    return [
        _Climb(
            tuple(np.array(t).reshape(g.shape) for t, g in zip(each["tables"], parameters.groups, strict=True)),
            each["logs"],
            each["objectives"],
        )
        for each in stored["starts"]
    ]


def resumed_fit(folder: Place, stored: Mapping[str, Any], progress: Any, **options: Any) -> FittedModel:
    """Continue a fit with the settings of its folder.

    Parameters
    ----------
    folder : Place
    stored : mapping
        As :func:`~.fit_folder.stored_fit` returns it.
    progress : bool or callable, optional
        As in :func:`fit`.
    **options
        Memory, and where to run.

    Raises
    ------
    IncompatibleRunError
        If the fit began with a model or data in memory, or if its model's file is missing.
    """
    settings = dict(stored.get("fit") or {})
    if not settings.get("data"):
        raise IncompatibleRunError(
            f"the fit in {folder} began with data in memory; repeat the call of bucketflow.fit to continue"
        )
    model = stored_model(folder, dict(stored))
    return fit(model, settings.pop("data"), progress=progress, workdir=folder, **{**settings, **options})


@contextmanager
def _reporting(progress: Report | bool | None) -> Iterator[Report]:
    """Yield a function that reports each iteration."""
    if not (callable(progress) or isinstance(progress, bool | None)):
        raise ModelError(f"progress is {progress!r}, which is not callable")
    if callable(progress):
        yield progress
        return
    with progress_lines(hidden=not progress) as show:
        yield lambda iteration, log: show(Iteration(iteration, log)) if show else None
