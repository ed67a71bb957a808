"""Run a planned question: in memory, in a temporary folder, or in a run directory.

Marginals come from both sweeps, whole or in slices, parts or boxes. They are expanded to the variables of the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ...cluster.dask_pool import DaskPool
from ...cluster.memory import peak_rss_bytes
from ...cluster.pool import Pool, SerialPool
from ...storage.files import Place
from ...tasks.compiler.code_cache import compiler_pays
from ...tasks.steps.number_limits import FAR_INTEGER
from ...tasks.sweeps.sweep import timed_steps
from ..errors import BudgetError, format_bytes
from ..machine.resources import Resources
from ..options import Options, parse_size
from ..plans.plan import THREADED_SECONDS
from ..plans.problem import sliced_dims
from ..preprocessing.preprocess import fixed_value
from ..queries.beliefs import Beliefs, place
from ..results.remaining_time import OnProgress, SweptCells
from ..results.result import Result
from ..runs.parts import sweep_parts
from ..runs.pools import NOTHING_SENT, open_tables
from ..runs.run import TABLES, Run
from ..trees.tree import Target
from .answers import optimum, partition
from .placement import dask_work, pool_for, temporary_folder
from .prepared import Prepared, prepare
from .question import Question
from .row_trials import in_slices, room_for, work_of
from .run_folder import RunFolder, check_space, resumable, used_bytes

if TYPE_CHECKING:
    from ...storage.spec import TableSpec
    from ..plans.plan import Plan
    from ..results.posteriors import Marginals
    from ..runs.dense_boxes import BoxRun

Progress = OnProgress
Answer: TypeAlias = "Result | Marginals"
A = TypeVar("A", Result, "Marginals")


_ANSWERS: dict[str, Callable[[Run[Any], Prepared], Answer]] = {
    "optimum": lambda run, _: optimum(run),
    "partition": lambda run, _: partition(run),
    "count": lambda run, prepared: _count(run, prepared),
    "marginals": lambda run, prepared: marginals(run, prepared.question),
    "max-marginals": lambda run, prepared: marginals(run, prepared.question),
}


def _count(run: Run[Any], prepared: Prepared) -> Answer:
    from .counts import count

    return count(prepared.count_plan, run, prepared.most_primes)


def in_temporary_folder(prepared: Prepared, progress: Progress | None, notes: list[str]) -> Answer:
    """Run a prepared question, with tables that spill in a folder that goes away."""
    with temporary_folder(prepared.plan, prepared.resources) as folder:
        return answered(prepared, progress, folder, notes)


def in_run_folder(folder: RunFolder, prepared: Prepared, progress: Progress | None) -> Answer:
    """Run in a run directory, or continue the run that it holds; a finished one answers at once."""
    plan = prepared.plan
    if plan is None or plan.spill is None:
        before = folder.answered(plan, prepared.seconds)
        kept = prepared.resources.asked.kept_bytes
        if before is not None and (kept is None or plan is None):
            return before
    _check_memory(prepared)
    if plan is not None and plan.spill is not None:
        check_space(folder.path, plan, used_bytes(folder.path))

    def run() -> Answer:
        with _refused_again(prepared):
            return in_slices(
                prepared,
                lambda once: answered(once, progress, folder.path, [*prepared.notes]),
                lambda once: keep_plan(folder, once),
            )

    return written(folder, run)


def tried_in(folder: RunFolder | None, trial: Prepared, notes: list[str]) -> Answer:
    """Run a trial in memory; where it ends with an answer, keep that and the plan in the run directory."""
    if folder is None:
        return answered(trial, None, None, notes)

    def run() -> Answer:
        found = answered(trial, None, None, notes)
        keep_plan(folder, trial)
        return found

    return written(folder, run)


def written(folder: RunFolder, run: Callable[[], Answer]) -> Answer:
    """Run, and write the answer and the seconds of its steps into a run directory."""
    from ...tasks.boxes.box import told_steps

    with timed_steps() as spent:
        found = run()
    folder.rundir.write_result({**found.to_dict(), "steps": told_steps(spent)})
    return found


@contextmanager
def _refused_again(prepared: Prepared) -> Iterator[None]:
    """Extend a refusal if it is caused by a stored plan, because another budget cannot change a stored plan."""
    try:
        yield
    except BudgetError as error:
        if not prepared.stored:
            raise
        folder, planned = prepared.resources.asked.folder, format_bytes(prepared.memory_bytes)
        raise BudgetError(f"{error}; {folder} has a stored plan for {planned}: use another --workdir") from None


def planned_in(folder: RunFolder, options: Options, patient: bool = True) -> Prepared:
    """Plan in a run directory, or make the plan that it holds again; it is kept there.

    A stored plan that needs more memory than the caller gives is replaced by a new one, and its tables are removed.

    Raises
    ------
    BudgetError
        If no acceptable plan fits the budgets.
    """
    stored = folder.stored_plan
    if stored is not None and _exceeds(stored, options) and folder.rundir.read_result() is None:
        return _planned_again(folder, options, patient, stored)
    prepared = prepare(folder.question, Resources(options), stored, patient=patient)
    if stored is None and not (prepared.plan is None and folder.is_used):
        keep_plan(folder, prepared)
    return prepared


def _exceeds(stored: Mapping[str, Any], options: Options) -> bool:
    """Whether a stored plan needs more memory than the caller gives; sparse tables may take the plan's whole budget."""
    if options.memory is None or options.gpus is not None:
        return False
    needed: int = stored["memory_bytes"] if stored.get("rows") else stored["peak_bytes"]
    return needed > parse_size(options.memory)


def _planned_again(folder: RunFolder, options: Options, patient: bool, stored: Mapping[str, Any]) -> Prepared:
    """Replace the plan of a run directory by one for less memory, and remove the tables of the old plan."""
    prepared = prepare(folder.question, Resources(options), patient=patient)
    removed = used_bytes(folder.path / TABLES)
    folder.rundir.remove_tables()
    keep_plan(folder, prepared)
    note = (
        f"planned again for {format_bytes(prepared.memory_bytes)} instead of {format_bytes(stored['peak_bytes'])}; "
        f"{format_bytes(removed)} of finished tables were removed"
    )
    return replace(prepared, notes=(note,))


def _check_memory(prepared: Prepared) -> None:
    """Refuse to go on with a stored plan that takes more memory than the caller gives now."""
    plan, resources = prepared.plan, prepared.resources
    if not prepared.stored or plan is None or resources.asked.memory is None:
        return
    # by rows a run takes what its plan allows
    needed = plan.peak_bytes if plan.row_bounds is None else prepared.memory_bytes
    if needed > resources.memory_bytes:
        raise BudgetError(
            f"the run in {resources.asked.folder} takes {format_bytes(needed)} as it was planned, allowed "
            f"{format_bytes(resources.memory_bytes)}; give as much --memory, or another --workdir"
        )


def keep_plan(folder: RunFolder, prepared: Prepared) -> None:
    """Keep the plan that runs in a run directory."""
    from ..budget.rows_fit import plan_record

    folder.keep_plan(plan_record(prepared.plan, prepared.memory_bytes) if prepared.plan else None)


def answered(prepared: Prepared, progress: Progress | None, folder: Place | None, notes: list[str]) -> Answer:
    """Run a prepared question; what the caller should know besides the answer is added to ``notes``."""
    start = time.perf_counter()
    resources = prepared.resources
    with resumable(resources.asked.folder), pool_for(prepared.plan, resources, prepared.question.model.title) as pool:
        run = replace(run_of(prepared, pool, progress), folder=folder, note=notes.append)
        if run.kept_bytes is not None and run.planned is not None and folder is not None:
            open_tables(pool, (folder / TABLES).absolute(), run.told)
            notes += _none_kept(run.planned, run.kept_bytes)
        with counting_cells(run):
            found = _ANSWERS[prepared.question.query](run, prepared)
        work = work_of(prepared, run.room)
        if resources.asked.dask_report is not None and not isinstance(pool, DaskPool):
            notes.append(NOTHING_SENT)
        found = replace(found, rows_work=work, dask=dask_work(pool, prepared.plan, resources))
    spent = time.perf_counter() - start - found.seconds.get("decode", 0.0)
    seconds = {"plan": prepared.seconds, "run": spent, **found.seconds}
    plan = prepared.plan and replace(prepared.plan, names=run.names(range(len(prepared.plan.dims))))
    found = replace(found, plan=plan, seconds=seconds, peak_rss_bytes=peak_rss_bytes(), notes=tuple(notes))
    return prepared.question.told(found)


def _none_kept(plan: Plan, least: int) -> Iterator[str]:
    """Say where no table is large enough to be kept."""
    if not (plan.spill or plan.rows_stored or plan.kept_tables_bytes(least)):
        yield f"no table is as large as {format_bytes(least)}, so that none is kept"


def run_of(prepared: Prepared, pool: Pool, progress: Progress | None = None) -> Run[Any]:
    """Return the run of a prepared question in a pool."""
    plan, resources, problem = prepared.plan, prepared.resources, prepared.problem
    run = Run(prepared.network, plan, problem, prepared.arithmetic, pool, compiled=False)
    if plan is None:
        return run
    several = plan.seconds > THREADED_SECONDS and not isinstance(pool, DaskPool)
    threads = resources.threads if several else 1
    report = None
    if progress is not None:
        seconds = plan.predicted_seconds / (threads * pool.width)
        report = SweptCells(progress, plan.reported_cells * plan.evaluated, seconds)
    run = replace(run, threads=threads, progress=report)
    steps = resources.asked.tasks == "steps" and isinstance(pool, DaskPool)
    run = replace(run, room=room_for(prepared), disk_bytes=resources.asked.disk_bytes, by_steps=steps)
    run = replace(run, kept_bytes=resources.asked.kept_bytes)
    on_device = plan.device and not (resources.asked.remote and isinstance(pool, SerialPool))
    # both sweeps of a slice: none of its steps is placed, and no loop of the host is asked
    if on_device and plan.results and not plan.spill and plan.row_bounds is None and not steps:
        return replace(run, device=True, device_bytes=resources.memory_bytes)
    run = replace(run, compiled=compiler_pays(plan.cells * plan.evaluated))
    if not on_device:
        return run
    return replace(run, device=True, least_cells=resources.least_cells(problem.semiring))


def counting_cells(run: Run[Any]) -> AbstractContextManager[None]:
    """Let workers count cells in running tasks, if progress is reported."""
    if run.progress is None or not isinstance(run.pool, DaskPool):
        return nullcontext()
    return run.pool.counting(run.progress.underway)


def timed(found: A, read_seconds: float) -> A:
    """Return an answer with the time that reading took put first."""
    return replace(found, seconds={"read": read_seconds, **found.seconds})


# The answer of a propagation in boxes: the sum of the results of all boxes.


def propagated(boxes: BoxRun[Any]) -> Beliefs:
    """Run every box that is not done yet and add up what all have found; tables between stages go, unless kept."""
    boxes.resume()
    boxes.complete()
    beliefs = boxes.receipts.until_whole(lambda: _beliefs(boxes), boxes.complete)
    for spec in () if boxes.keep else boxes.specs.values():
        boxes.store.delete(spec)
    return beliefs


def _beliefs(boxes: BoxRun[Any]) -> Beliefs:
    """Add up what the boxes have found."""
    from ..runs.dense_boxes import ends

    arithmetic = boxes.run.arithmetic
    total = arithmetic.joined(arithmetic.total(roots) for _, roots in ends(boxes))
    if total is None:
        return Beliefs(None, {})
    tables: dict[Target, Any] = {}
    for index, spec in boxes.found.items():
        tables |= _stage_beliefs(boxes, index, spec)
    return Beliefs(total, tables)


def _stage_beliefs(boxes: BoxRun[Any], index: int, spec: TableSpec) -> dict[Target, Any]:
    """Add up the beliefs of the boxes of one stage, each target's with weights of its own."""
    stage, dims = boxes.spill.stages[index], boxes.spill.dims
    if not stage.results:
        return {}
    sizes = sliced_dims(dims, stage.boxed)
    combiners = {t: boxes.run.arithmetic.combiner({t: tuple(dims[v] for v in t)}) for t in stage.results}
    values = np.empty((1, spec.shape[1]), spec.dtype)
    for number in range(spec.shape[0]):
        boxes.store.load(spec, values, [boxes.receipts[spec.name, (number, 0)]], {spec.variables[0]: number})
        states = boxes.spill.states(stage, number)
        start = len(combiners)
        for weight, (target, combiner) in zip(values[0], combiners.items(), strict=False):
            cells = prod(sizes[v] for v in target)
            if np.isfinite(weight) and weight != FAR_INTEGER:
                combiner.add(weight.item(), {target: (values[0, start : start + cells], place(target, states))})
            start += cells
    return {target: combiner.beliefs().tables[target] for target, combiner in combiners.items()}


def marginals(run: Run[Any], question: Question) -> Marginals:
    """Propagate, and spread what is found over all of the model."""
    from ..queries.expansion import dressed

    assert question.asked is not None
    return dressed(question.model, run.network, run.arithmetic, question.asked, propagate(run))


def propagate(run: Run[Any]) -> Beliefs:
    """Run both sweeps and add the functions without variables."""
    fixed = fixed_value(run.network)
    if fixed is None:
        return Beliefs(None, {})
    beliefs = Beliefs(0, {}) if run.planned is None else _swept(run)
    return beliefs if beliefs.total is None else replace(beliefs, total=run.arithmetic.shifted(beliefs.total, fixed))


def _swept(run: Run[Any]) -> Beliefs:
    from ..runs.slices import sweep_beliefs, whole_beliefs

    plan = run.plan
    if plan.rows_stored:
        from ..runs.row_sweep import opened_row_tables

        with opened_row_tables(run, TABLES, keep=run.kept_bytes is not None) as tables:
            return whole_beliefs(run.arithmetic, plan, tables.outputs())
    if plan.spill:
        from ..runs.dense_boxes import opened_boxes

        with opened_boxes(run, TABLES, keep=run.kept_bytes is not None) as boxes:
            return propagated(boxes)
    if plan.parts or run.devices > 1 or (run.by_steps and plan.slices == 1):
        return whole_beliefs(run.arithmetic, plan, sweep_parts(run).tables)
    return sweep_beliefs(run)
