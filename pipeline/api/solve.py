"""The public functions: load, plan, solve."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

from ..answering.door import valued
from ..answering.question import Evidence, Findings, Names, Variables, question_of
from ..answering.watching import OnBounds
from ..errors import DeadlineError, ModelError, checks_keywords
from ..examples import file_or_example
from ..formats.read import GivenModel, given_model, load_named
from ..formats.read import load_dcop as load_dcop_file
from ..machine.resources import Resources
from ..models.dcop import Dcop
from ..models.model import Model
from ..models.query import VALUES
from ..options import Keywords, Method, Options, ProofOptions, parse_size
from ..public_names import public
from ..results.result import Result, unread_result
from .progress import Asked, asked_progress, read_given

if TYPE_CHECKING:
    from ..plans.plan import Plan


@public
@checks_keywords
def load(path: str | PathLike[str], *, memory: int | str | None = None, check: bool = True) -> Model:
    """Read a model file, or an example by its name; the format follows from content and name.

    Parameters
    ----------
    path : str or path
        A ``.wcsp``, ``.cfn``, ``.uai``, ``.erg``, ``.bif``, ``.bifxml``, ``.xdsl``, Hugin ``.net`` or DIMACS
        ``.cnf`` or ``.wcnf`` file, or a distributed problem (XCSP 2.1 ``.xml``, pyDCOP ``.yaml``), whose agents do
        not matter here; plain, ``.gz``, ``.xz`` or ``.lzma``. If there is no such file, the name of an example such
        as ``"satellite"``.
    memory : int or str, optional
        What reading may take, in bytes or as ``"4GB"``; most of the free memory by default.
    check : bool, optional
        Whether a Bayesian network has to be one: a distribution of each variable, rows that sum to 1, no cycle. False
        takes the tables as they are, and answers are for their product.

    Raises
    ------
    FormatError
        If the file is missing or malformed, or holds no Bayesian network though its format says so.
    BudgetError
        If reading it takes more than ``memory``.
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
        XCSP 2.1 (``.xml``) or pyDCOP (``.yaml``), or a model of costs of any other format, whose variables have an
        agent each.
    agents : str or path, optional
        A YAML or JSON file: for each agent a list of its variables.
    memory : int or str, optional
        As in :func:`load`.

    Raises
    ------
    FormatError
        If a file is missing or malformed.
    ModelError
        If the model holds probabilities, or a variable has no agent or an unknown one.
    BudgetError
        If reading takes more than ``memory``.
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

    Where variables are counted or maximised over alone, the plan is that of eliminating all others first.

    Takes the same arguments as :func:`solve` or :func:`marginals`, and returns the plan that those run: one of no steps
    if preprocessing leaves nothing to eliminate.

    Raises
    ------
    BudgetError
        If no acceptable plan fits ``memory``.
    """
    from ..answering.prepared import prepare
    from ..machine.cpu import machine_rates
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
    """Answer a query exactly, or as well as the time allows.

    Parameters
    ----------
    model : Model, path or name of an example
    query : {"optimum", "partition", "count", "mmap"}
        Minimum cost or most probable explanation with an assignment; log10 of the partition function or of
        the probability of the evidence; the exact number of possible assignments; marginal MAP, the assignment of
        ``maximize`` with the greatest sum over all other variables.
    evidence : mapping, text, path or None
        Variable name → state label or index, or → one likelihood a state (soft evidence: the optimum and the
        partition function are then of the product with these); the same as ``"x=1, y=yes"``; or an evidence
        file. Indices count from 0; a text that is a label means that label, even if it looks like a number. Files
        without names (``.uai``, ``.wcsp``) have variables ``x0``, ``x1``, …
    project : names, path or None
        Count assignments of these variables alone: those that some assignment of the others completes to one that is
        possible. Of the partition function, sum their weights; functions of other variables have to be 0 or 1 then. By
        default the variables that the file names (``c p show``, ``c ind``), else all.
    maximize : names, path or None
        The variables of marginal MAP: names, or a ``.query`` or ``.map`` file (how many, then their indices).
    progress : bool or callable, optional
        True draws what commands draw, on a terminal or in a notebook: reading, planning, compiling, bounds, and a bar.
        A callable is called with (bytes done, bytes planned).
    on_bounds : callable, optional
        Called with (lower, upper), what an optimum that bounds prove lies between, whenever one improved: costs, or
        log10 of probabilities; None where one is not known yet.
    method : {"auto", "dense", "rows", "diagram", "search"}, optional
        How an optimum is proved where sweeping every cell would take long: "dense" sweeps all the same, "rows" keeps
        partial assignments that mini-buckets do not exclude, "diagram" eliminates on decision diagrams below a bound,
        "search" is depth-first branch and bound; "auto" tries them in turn, each for a while. A partition function or
        a count is summed on decision diagrams by "diagram", by "search" with components that are counted once where
        the model is clauses or mostly zero, and by "auto" in either way where that proves little work.
    upper_bound : number, optional
        Only an assignment that is at least as good interests: of so much cost, or of this log10 of its probability.
    time : float, optional
        Wall seconds after which the best assignment is returned with bounds, status ``bounded``. Reading the model
        counts; if the time ends while the file is read, both bounds are None.
    gap : float, optional
        Also where the bounds differ by no more than this part of the larger one.
    prune : bool, optional
        Whether states and entries that cannot be part of an optimum are removed first.
    memory : int or str, optional
        Budget in bytes, or as ``"4GB"``; most of the free memory by default.
    order : str or sequence of str, optional
        A heuristic (``"auto"``, ``"min-fill"``, ``"min-size"``, ``"min-degree"``, …) or variable names.
    order_time : float, optional
        CPU seconds for the search of orders and trees; by default what the predicted run time justifies.
    tree : {"refined", "bucket", "junction"}, optional
    seed : int, optional
        Plans are a deterministic function of it.
    threads : int, optional
        Threads of the compiled kernels when no cluster is used; all cores by default.
    workers : int, optional
        Start a local Dask cluster with so many processes.
    scheduler : str, optional
        Address of a running Dask scheduler.
    client : distributed.Client, optional
        A connected client.
    representation : {"auto", "dense", "rows"}, optional
        Whether tables hold every cell, or only the rows that are possible, sorted; "auto" takes rows where few prove
        possible and all cells would take long or do not fit.
    fit : {"auto", "slice", "spill", "spread", "store", "refuse"}, optional
        What to do with a plan that does not fit ``memory``: condition on variables, keep large tables on
        disk, neither, or the cheaper of the two. "store" keeps tables on disk where memory does not suffice, and in any
        case leaves them in ``workdir``, as ``keep_tables=0`` does.
    disk : int or str, optional
        Budget for tables on disk.
    workdir : path, optional
        Run directory, shared with all workers; an interrupted run there is continued.
    keep_tables : int or str, optional
        Keep the tables that take at least so much in ``workdir``, as Zarr arrays with names and attributes, for whoever
        wants to look at them afterwards; 0 keeps all. Of a plan whose tables are on disk, those that it stores anyway.
    tasks : {"auto", "steps"}, optional
        What workers get. "auto" sends parts of the sweep that are worth a task, or nothing where the whole takes less
        than sending it; "steps" sends each elimination and each message as a Dask future that depends on those of its
        inputs, in every slice and box too, for whoever wants Dask's own view: some milliseconds each. Workers hold the
        tables meanwhile; the plan's peak is what all of them hold together where they keep to its order. ``dask`` of
        the answer says what was sent.
    dashboard : bool, optional
        Serve Dask's page of local ``workers`` on this machine while they run; its address goes to standard error.
    gpus : int or "all", optional
        Run large steps on so many GPUs, one process each: of this machine, or of the workers of ``scheduler`` or
        ``client``. The plan then fits the memory of a device.
    gpu_memory : int or str, optional
        Budget for a device's memory; by default most of what is free there, but not more than ``memory``.

    Raises
    ------
    ModelError
        If the query, evidence or order does not fit the model.
    BudgetError
        If no acceptable plan fits ``memory`` and ``disk``.
    IncompatibleRunError
        If ``workdir`` belongs to another run or is in use.
    StoppedError
        If a run in ``workdir`` was interrupted; it can be resumed.
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
    with asked_progress(progress, on_bounds) as (report, watch):
        question = question_of(model, query, evidence, project=project, maximize=maximize)
        return valued(question, Options(**options), effort, report, watch)
