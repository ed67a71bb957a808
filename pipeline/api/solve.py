"""The public functions: load, plan, solve."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

from ..answering.answer_question import valued
from ..answering.bound_listeners import OnBounds
from ..answering.question import Evidence, Findings, Names, Variables, question_of
from ..errors import DeadlineError, ModelError, checks_keywords, public
from ..examples import file_or_example
from ..formats.read import GivenModel, given_model, load_named
from ..formats.read import load_dcop as load_dcop_file
from ..machine.resources import Resources
from ..models.dcop import Dcop
from ..models.model import Model
from ..models.query import VALUES
from ..options import Keywords, Method, Options, ProofOptions, parse_size
from ..results.result import Result, unread_result
from .progress import Asked, asked_progress, read_given

if TYPE_CHECKING:
    from ..plans.plan import Plan


@public
@checks_keywords
def load(path: str | PathLike[str], *, memory: int | str | None = None, check: bool = True) -> Model:
    """Read a model file, or a bundled example by its name, and return the model.

    The format is recognised from the content and the name of the file.

    Parameters
    ----------
    path : str or path
        A ``.wcsp``, ``.cfn``, ``.uai``, ``.erg``, ``.bif``, ``.bifxml``, ``.xdsl``, Hugin ``.net``, DIMACS ``.cnf`` or
        ``.wcnf`` file, or a distributed problem (XCSP 2.1 ``.xml``, pyDCOP ``.yaml``; its agents are ignored). The file
        may be plain, ``.gz``, ``.xz`` or ``.lzma``. If there is no such file, the name of an example such as
        ``"satellite"``.
    memory : int or str, optional
        Memory budget for reading, in bytes or as ``"4GB"``; most of the free memory by default.
    check : bool, optional
        Whether a Bayesian network must be valid: one distribution per variable, rows that sum to 1, no cycle. False
        accepts the tables unchanged, and answers are for their product.

    Returns
    -------
    Model

    Raises
    ------
    FormatError
        If the file is missing or malformed, or if its format requires a Bayesian network and it holds none.
    BudgetError
        If reading takes more than ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> model = bucketflow.load("diagnosis")
    >>> model.kind, len(model.variables), model.variables["Storm"]
    ('bayes', 26, ('no', 'yes'))
    """
    return load_named(path, memory, check=check)


@public
@checks_keywords
def load_dcop(
    path: str | PathLike[str], *, agents: str | PathLike[str] | None = None, memory: int | str | None = None
) -> Dcop:
    """Read a distributed problem: a model of costs, and the agents that own its variables.

    Parameters
    ----------
    path : str or path
        XCSP 2.1 (``.xml``), pyDCOP (``.yaml``), or a model of costs in any other format. In another format each
        variable has an agent of its own.
    agents : str or path, optional
        A YAML or JSON file that lists the variables of each agent.
    memory : int or str, optional
        As in :func:`load`.

    Returns
    -------
    Dcop

    Raises
    ------
    FormatError
        If a file is missing or malformed.
    ModelError
        If the model holds probabilities, or a variable has no agent or an unknown agent.
    BudgetError
        If reading takes more than ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> problem = bucketflow.load_dcop("meetings")
    >>> len(problem.agents), len(problem.model.variables)
    (7, 24)
    """
    path = file_or_example(path)
    found = load_dcop_file(path, agents, None if memory is None else parse_size(memory))
    return replace(found, model=replace(found.model, source=os.path.abspath(path)))


@public
@checks_keywords
def plan(
    model: GivenModel,
    query: str = "optimum",
    *,
    evidence: Findings = None,
    variables: Names = "all",
    joint: Iterable[Names] = (),
    families: bool = False,
    project: Variables = None,
    maximize: Variables = None,
    **options: Unpack[Keywords],
) -> Plan:
    """Plan a query, or ``"marginals"`` or ``"max-marginals"``, without computing anything.

    If the query counts or maximises over given variables, the plan first eliminates all other variables.

    Takes the same arguments as :func:`solve` or :func:`marginals`, and returns the plan that those run: one of no steps
    if preprocessing leaves nothing to eliminate.

    Raises
    ------
    BudgetError
        If no acceptable plan fits ``memory``.

    Examples
    --------
    >>> import bucketflow
    >>> plan = bucketflow.plan("diagnosis", "marginals")
    >>> plan.width, len(plan.steps)
    (5, 71)
    """
    from ..answering.prepared import prepare
    from ..machine.rates import machine_rates
    from ..plans.plan import empty_plan

    model = given_model(model, options.get("memory"))
    question = question_of(model, query, evidence, variables, joint, families, project=project, maximize=maximize)
    prepared = prepare(question, Resources(Options(**options)), rates=machine_rates)
    if prepared.plan is None:
        return empty_plan()
    network = prepared.network
    return replace(prepared.plan, names=tuple([network.model.names[v] for v in network.variables]))


@public
@checks_keywords
def solve(
    model: GivenModel,
    query: str = "optimum",
    *,
    evidence: Evidence = None,
    project: Variables = None,
    maximize: Variables = None,
    progress: Asked = None,
    on_bounds: OnBounds | None = None,
    method: Method = "auto",
    upper_bound: float | int | str | None = None,
    time: float | None = None,
    gap: float | None = None,
    prune: bool = True,
    **options: Unpack[Keywords],
) -> Result:
    """Answer a query exactly, or return bounds when the time is over.

    Parameters
    ----------
    model : Model, path or name of an example
    query : {"optimum", "partition", "count", "mmap"}
        "optimum" is the minimum cost or the most probable explanation, with an assignment. "partition" is the log10 of
        the partition function, or of the probability of the evidence. "count" is the exact number of possible
        assignments. "mmap" is marginal MAP: the assignment of ``maximize`` with the greatest sum over all other
        variables.
    evidence : mapping, text, path or None
        Variable name → state label or index, or → one likelihood per state (soft evidence, which multiplies the model).
        The text ``"x=1, y=yes"`` or an evidence file gives the same. Indices count from 0. A text that equals a label
        means that label, even if it looks like a number. Variables of files without names (``.uai``, ``.wcsp``) are
        called ``x0``, ``x1``, …
    project : names, path or None
        Count the assignments of these variables that at least one assignment of the other variables completes to a
        possible assignment. For the partition function, sum the weights of these assignments; functions of other
        variables must then be 0 or 1. By default the variables that the file names (``c p show``, ``c ind``), or all
        variables.
    maximize : names, path or None
        The variables of marginal MAP: names, or a ``.query`` or ``.map`` file (the number of variables, then their
        indices).
    progress : bool or callable, optional
        True shows the progress that commands show, on a terminal or in a notebook: reading, planning, compiling,
        bounds, and a bar. A callable is called with (cells done, cells planned).
    on_bounds : callable, optional
        Called with (lower, upper) whenever a bound on an optimum improves. Bounds are costs, or log10 of probabilities;
        an unknown bound is None.
    method : {"auto", "dense", "rows", "diagram", "search", "ganak"}, optional
        How to prove an optimum if a sweep over all cells would take long. "dense" sweeps all cells nevertheless. "rows"
        enumerates the partial assignments that mini-buckets do not exclude. "diagram" eliminates on decision diagrams
        below a bound. "search" is depth-first branch and bound. "auto" tries the methods in turns. A partition function
        or a count is summed on decision diagrams by "diagram". "search" sums it by search with cached components if the
        model consists of clauses or is mostly zero. "ganak" is a counter of clauses by other authors, from the extra
        ``counters``. "auto" lets these methods take turns if a sweep would take long.
    upper_bound : number, optional
        Search only for assignments at least as good as this value: a cost, or a log10 of a probability.
    time : float, optional
        Wall seconds. After this time the best assignment is returned with bounds and status ``bounded``. Reading the
        model counts; if the time ends while the file is read, both bounds are None.
    gap : float, optional
        Stop also if the bounds differ by at most this fraction of the larger bound.
    prune : bool, optional
        Whether states and entries that cannot be part of an optimum are removed first.
    memory : int or str, optional
        Budget in bytes, or as ``"4GB"``; most of the free memory by default.
    order : str or sequence of str, optional
        A heuristic (``"auto"``, ``"min-fill"``, ``"min-size"``, ``"min-degree"``, …) or variable names.
    order_time : float, optional
        CPU seconds for the search of elimination orders and trees. The default depends on the predicted run time.
    tree : {"refined", "bucket", "junction"}, optional
        Kind of tree along which variables are eliminated.
    seed : int, optional
        Seed of the plan: the same seed gives the same plan.
    threads : int, optional
        Threads of the compiled kernels when no cluster is used; all cores by default.
    workers : int, optional
        Start a local Dask cluster of ``workers`` processes.
    scheduler : str, optional
        Address of a running Dask scheduler.
    client : distributed.Client, optional
        A connected client.
    representation : {"auto", "dense", "rows"}, optional
        "dense" tables hold every cell; "rows" are sparse tables that hold only the possible rows, sorted. "auto" uses
        sparse tables if few rows are possible and dense tables would take long or do not fit in memory.
    fit : {"auto", "slice", "spill", "store", "refuse"}, optional
        What to do with a plan that does not fit ``memory``: condition on variables ("slice"), store large tables on
        disk ("spill"), refuse, or choose the cheaper of slicing and spilling ("auto"). "store" uses the disk if memory
        does not suffice, and always leaves the tables in ``workdir``, as ``keep_tables=0`` does.
    disk : int or str, optional
        Budget for tables on disk, in bytes or as ``"4GB"``.
    workdir : path or URL, optional
        Run directory, in a file system that all workers share or in an object store, such as ``"s3://bucket/run"``. An
        interrupted run there is continued.
    keep_tables : int or str, optional
        Leave every table of at least this size in ``workdir`` for inspection, as a Zarr array with names and
        attributes; 0 leaves all tables. If the plan stores tables on disk, only the stored tables are left.
    tasks : {"auto", "steps"}, optional
        What workers receive. "auto" sends parts of the sweep that are large enough for a task, or nothing if the whole
        sweep is faster than sending it. "steps" sends each elimination and each message as a Dask future that depends
        on the futures of its inputs, also within slices and boxes. This shows the work in Dask's dashboard and costs
        some milliseconds per future. Workers then hold the tables, and the plan's peak counts all workers together if
        they follow its order. ``dask`` of the answer reports what was sent.
    dashboard : bool, optional
        Serve Dask's dashboard of local ``workers`` on this machine during the run. Its address goes to standard error.
    dask_report : path, optional
        Write Dask's report of the tasks on workers to an ``.html`` file: the task stream, bytes, and seconds by kind.
    gpus : int or "all", optional
        Run large steps on this number of GPUs, with one process per GPU, on this machine or on the workers of
        ``scheduler`` or ``client``. The plan then fits the memory of a device.
    gpu_memory : int or str, optional
        Budget for a device's memory, in bytes or as ``"4GB"``. By default most of the device's free memory, but at most
        ``memory``.

    Returns
    -------
    Result
        The answer: ``status``, value or bounds, the assignment of an optimum or of marginal MAP, and how the answer was
        computed.

    Raises
    ------
    ModelError
        If the query, evidence or order does not fit the model.
    BudgetError
        If no acceptable plan fits ``memory`` and ``disk``.
    IncompatibleRunError
        If ``workdir`` belongs to another run or is in use.
    StoppedError
        If a run in ``workdir`` was interrupted. You can resume it.

    Examples
    --------
    >>> import bucketflow
    >>> found = bucketflow.solve("satellite")
    >>> found.value, found.status, found.assignment["x0"]
    (49, 'optimal', 2)
    >>> round(bucketflow.solve("diagnosis", "partition", evidence={"Storm": "yes"}).probability, 4)
    0.1425
    """
    if query not in VALUES:
        raise ModelError(f"unknown query {query!r}; one of {', '.join(VALUES)}")
    effort = ProofOptions(method=method, upper_bound=upper_bound, time=time, gap=gap, prune=prune)
    start, given = perf_counter(), model
    try:
        model = read_given(given, options.get("memory"), progress, effort.time)
    except DeadlineError as error:
        return unread_result(query, str(error), perf_counter() - start)  # type: ignore[arg-type]
    if not isinstance(given, Model):
        effort = effort.after(perf_counter() - start)
    with asked_progress(progress, on_bounds) as report:
        question = question_of(model, query, evidence, project=project, maximize=maximize)
        return valued(question, Options(**options), effort, report)
