"""The public functions: load, save, plan, solve."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from ...cluster.budget import peak_rss_bytes
from ...cluster.dask_pool import DaskPool
from ...cluster.pool import Pool, SerialPool
from ...tasks.cpu.compiler import compiler_pays
from ..budget.stored import plan_record
from ..examples import file_or_example
from ..formats import load as load_file
from ..formats import save as save
from ..keywords import Keywords
from ..models.model import Model
from ..models.preprocess import Query
from ..options import Options, parse_size
from ..plans.plan import Plan
from ..plans.planner import split_for, with_rates
from ..rates.cpu import cached_rates, machine_rates
from ..results.result import Result, answered_before, is_confirmed
from ..runs.forward import TASK_SECONDS, Run
from ..trees.costs import Rates
from .answers import Answer, count, optimum, partition
from .devices import device_rates, least_cells
from .placement import pool_for, temporary_folder, with_less_device_memory
from .prepared import Evidence, Prepared, observed, prepare
from .workdir import (
    check_identity,
    check_space,
    identity,
    opened,
    resumable,
    used_bytes,
)

# Below this, one thread is done before others have started.
_THREADED_SECONDS = 0.05

Progress = Callable[[int, int], None]


def load(path: str | PathLike[str], *, memory: int | str | None = None) -> Model:
    """Read a model file, or an example by its name; the format follows from content and name.

    Parameters
    ----------
    path : str or path
        A ``.wcsp``, ``.cfn``, ``.uai``, ``.erg``, ``.bif``, ``.bifxml``, ``.xdsl`` or Hugin ``.net`` file,
        plain, ``.gz`` or ``.xz``; where there is no such file, the name of an example such as ``"satellite"``.
    memory : int or str, optional
        What reading may take, in bytes or as ``"4GB"``; most of the free memory by default.

    Raises
    ------
    FormatError
        If the file is missing or malformed.
    BudgetError
        If reading it takes more than ``memory``.
    """
    allowed = None if memory is None else parse_size(memory)
    path = file_or_example(path)
    return replace(load_file(path, memory=allowed), source=os.path.abspath(path))


def prepared_plan(
    model: Model, query: str = "optimum", *, evidence: Evidence = None, **options: Unpack[Keywords]
) -> Prepared:
    """Plan a query, with seconds predicted for this machine; see :func:`plan`."""
    chosen = Options(**options)
    found = prepare(model, query, evidence, chosen)
    if found.prices is None:
        return found
    semiring = found.problem.semiring
    rates = device_rates(chosen, semiring).rates if chosen.gpu_count else machine_rates(semiring)
    return in_parts(found, chosen, rates)


def in_parts(prepared: Prepared, options: Options, rates: Rates) -> Prepared:
    """Predict a plan with given rates; one that is worth several workers is cut into parts for those there are."""
    if prepared.prices is None:
        return prepared
    plan = with_rates(prepared.prices.chosen, rates)
    if options.distributed and not plan.spill and plan.slices == 1 and plan.seconds >= 2 * TASK_SECONDS:
        plan = split_for(plan, options.width, TASK_SECONDS, rates, prepared.memory_bytes)
    return replace(prepared, prices=replace(prepared.prices, chosen=plan))


def _known_rates(prepared: Prepared, options: Options) -> Rates:
    """What is known of the devices or of this machine without measuring."""
    semiring = prepared.problem.semiring
    if options.gpu_count:
        return device_rates(options, semiring).rates
    return cached_rates(semiring) or Rates()


def plan(
    model: Model, query: str = "optimum", *, evidence: Evidence = None, **options: Unpack[Keywords]
) -> Plan | None:
    """Plan a query without computing anything.

    Takes the same arguments as :func:`solve`. Returns None if preprocessing leaves nothing to eliminate.

    Raises
    ------
    BudgetError
        If no acceptable plan fits ``memory``.
    """
    return prepared_plan(model, query, evidence=evidence, **options).plan


def solve(
    model: Model,
    query: str = "optimum",
    *,
    evidence: Evidence = None,
    progress: Progress | None = None,
    **options: Unpack[Keywords],
) -> Result:
    """Answer a query exactly.

    Parameters
    ----------
    model : Model
    query : {"optimum", "partition", "count"}
        Minimum cost or most probable explanation with an assignment; log10 of the partition function or of
        the probability of the evidence; the exact number of possible assignments.
    evidence : mapping, path or None
        Variable name → state label or index, or an evidence file. Indices count from 0; a text that is a label
        means that label, even if it looks like a number. Files without names (``.uai``, ``.wcsp``) have variables
        ``x0``, ``x1``, …
    progress : callable, optional
        Called with (bytes done, bytes planned).
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
    fit : {"auto", "slice", "spill", "refuse"}, optional
        What to do with a plan that does not fit ``memory``: condition on variables, keep large tables on
        disk, neither, or the cheaper of the two.
    disk : int or str, optional
        Budget for tables on disk.
    workdir : path, optional
        Run directory, shared with all workers; an interrupted run there is continued.
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
    chosen = Options(**options)
    if chosen.folder is not None:
        return _solve_in_directory(model, query, evidence, chosen, progress, chosen.folder)
    notes: list[str] = []
    while True:
        prepared = prepare(model, query, evidence, chosen)
        prepared = in_parts(prepared, chosen, _known_rates(prepared, chosen))
        try:
            with temporary_folder(prepared.plan, chosen) as folder:
                return replace(_answered(prepared, chosen, progress, folder, notes), notes=tuple(notes))
        except MemoryError as error:
            chosen = with_less_device_memory(chosen, prepared, error)
            notes.append(f"the device ran out of memory ({error}); planned again within {chosen.gpu_memory}")


def _solve_in_directory(
    model: Model, query: str, evidence: Evidence, options: Options, progress: Progress | None, folder: Path
) -> Result:
    """Run in a run directory, or continue the run that it holds; a finished one answers at once."""
    with opened(folder) as rundir:
        stored = rundir.read_plan()
        wanted = identity(model, query, observed(model, evidence))
        if stored is not None:
            check_identity(folder, stored, wanted)
        prepared = prepare(model, query, evidence, options, stored and stored.get("plan"))
        prepared = in_parts(prepared, options, _known_rates(prepared, options))
        plan = prepared.plan
        if stored is None:
            record = plan_record(plan, prepared.memory_bytes) if plan else None
            rundir.write_plan({"identity": wanted, "source": model.source, "plan": record})
        elif (plan is None or plan.spill is None) and (known := rundir.read_result()) is not None:
            before = answered_before(known, model, plan, prepared.seconds)
            if is_confirmed(before, model, prepared.evidence):
                return before
        if plan is not None and plan.spill is not None:
            check_space(folder, plan, used_bytes(folder))
        notes: list[str] = []
        result = replace(_answered(prepared, options, progress, folder, notes), notes=tuple(notes))
        rundir.write_result(result.to_dict())
        return result


def _answered(
    prepared: Prepared, options: Options, progress: Progress | None, folder: Path | None, notes: list[str]
) -> Result:
    """Run a prepared query; what the caller should know besides the answer is added to ``notes``."""
    start = time.perf_counter()
    with resumable(options.folder), pool_for(options, prepared.plan, TASK_SECONDS) as pool:
        run = replace(_run(prepared, options, pool, progress), folder=folder, note=notes.append)
        answer = _ANSWERS[prepared.network.query](run)
    seconds = {"plan": prepared.seconds, "run": time.perf_counter() - start - answer.decode_seconds}
    return Result(
        query=prepared.network.query,
        status=answer.status,
        value=answer.value,
        log10=answer.log10,
        assignment=answer.assignment,
        plan=prepared.plan,
        seconds={**seconds, "decode": answer.decode_seconds},
        peak_rss_bytes=peak_rss_bytes(),
    )


_ANSWERS: dict[Query, Callable[[Run[Any]], Answer]] = {
    "optimum": optimum,
    "partition": partition,
    "count": count,
}


def _run(prepared: Prepared, options: Options, pool: Pool, progress: Progress | None) -> Run[Any]:
    plan, report = prepared.plan, None
    compiled, threads = False, 1
    if plan is not None:
        if plan.seconds > _THREADED_SECONDS and not isinstance(pool, DaskPool):
            threads = options.thread_count
        compiled = compiler_pays(plan.cells)
        if progress is not None:
            report = accumulated(progress, plan.read_bytes + plan.written_bytes)
    run = Run(prepared.network, plan, prepared.problem, prepared.arithmetic, pool, threads, compiled, report)
    if not options.gpu_count or (options.remote and isinstance(pool, SerialPool)):
        return run
    return replace(run, device=True, least_cells=least_cells(options, prepared.problem.semiring))


def accumulated(progress: Progress, planned: int) -> Callable[[int], None]:
    """Return what adds up bytes done and reports them."""
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done = min(done + count, planned)
        progress(done, planned)

    return report


def timed(result: Result, read_seconds: float) -> Result:
    """Return the result with the time that reading took put first."""
    return replace(result, seconds={"read": read_seconds, **result.seconds})
