"""Marginals from the question to the answer, in memory or in a run directory that can be taken up again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ...cluster.budget import peak_rss_bytes
from ...cluster.pool import Pool, SerialPool
from ...tasks.cpu.compiler import compiler_pays
from ...tasks.gpu.memory import is_short
from ..budget.device_fit import LINK_BYTES_PER_SECOND, fitted_propagation_for_device
from ..budget.fit import fitted
from ..budget.stored import plan_record, stored_plan
from ..models.model import Function, Model
from ..models.preprocess import Network, Query, reduce_model, with_joints
from ..options import Options
from ..plans.plan import Plan, PlanOptions, Problem
from ..plans.planner import whole_plan
from ..queries.arithmetic import Arithmetic, CostOptimum, Partition, optimum_arithmetic
from ..queries.beliefs import Beliefs
from ..queries.expansion import Asked, dressed, local_targets
from ..rates.disk import measured_disk_rate
from ..results.posteriors import Marginals
from ..runs.box_beliefs import propagated
from ..runs.boxes import opened_boxes
from ..runs.device_sweeps import DeviceSweeps, exact_in_doubles
from ..runs.forward import TASK_SECONDS, Run
from ..runs.parts import cut_for, run_parts
from ..runs.pools import DaskPools, serial_pool
from ..runs.slices import TABLES, Slices, build_sweeps, group_size, run_seconds, sweep_slices, whole_beliefs
from ..trees.costs import Rates
from ..trees.memory import step_bytes
from ..trees.tree import Target
from .answers import fixed_value
from .devices import around_device, least_cells
from .placement import pool_for, temporary_folder
from .prepared import plan_options
from .solve import accumulated
from .workdir import check_identity, check_room, identity, opened, resumable, used_bytes

Array = NDArray[Any]
Progress = Callable[[int, int], None]

_THREADED_SECONDS = 0.05
# Less than what starting took.
_SMALL_BYTES = 1 << 25


@dataclass(frozen=True)
class Question:
    """What is asked of a model.

    Parameters
    ----------
    model : Model
    hard : mapping of int to int
        Observed states by variable.
    soft : mapping of int to ndarray
        Likelihoods by variable.
    asked : Asked
    maximum : bool
    """

    model: Model
    hard: Mapping[int, int]
    soft: Mapping[int, Array]
    asked: Asked
    maximum: bool

    @property
    def query(self) -> str:
        """Its name in a run directory."""
        return "max-marginals" if self.maximum else "marginals"

    def identity(self) -> dict[str, Any]:
        """Return what must be the same for a run to be continued."""
        names, asked = self.model.names, self.asked
        return {
            **identity(self.model, self.query, self.hard),
            "likelihoods": {names[v]: weights.tolist() for v, weights in sorted(self.soft.items())},
            "variables": [names[v] for v in asked.variables],
            "joints": [[names[v] for v in group] for group in asked.joints],
            "families": bool(asked.families),
        }


@dataclass(frozen=True)
class PreparedMarginals:
    """A question that is planned and ready to run.

    Parameters
    ----------
    plan : Plan or None
        None where nothing is left to propagate.
    group : int
        Slices in one task.
    seconds : float
        Spent on preprocessing and planning.
    notes : list of str
        What the caller should be told besides the answer; added to by the run.
    """

    question: Question
    network: Network
    arithmetic: Arithmetic[Any]
    plan: Plan | None
    group: int
    seconds: float
    notes: list[str] = field(default_factory=list)


def answer(question: Question, options: Options, progress: Progress | None) -> Marginals:
    """Plan and run, in the run directory of the options if there is one.

    Without one, a plan that a device has too little memory for all the same is made again for half of it.
    """
    notes: list[str] = []
    while options.folder is None:
        prepared = prepare(question, options, None)
        try:
            found = _answered(prepared, options, progress, None)
            return replace(found, notes=(*notes, *found.notes))
        except MemoryError as error:
            if prepared.plan is None or not prepared.plan.device or not is_short(error):
                raise
            options = replace(options, gpu_memory=prepared.plan.peak_bytes // 2)
            notes.append(f"the device ran out of memory ({error}); planned again within {options.gpu_memory}")
    return _in_directory(question, options, progress, options.folder)


def _in_directory(question: Question, options: Options, progress: Progress | None, folder: Path) -> Marginals:
    with opened(folder) as rundir:
        stored = rundir.read_plan()
        wanted = question.identity()
        if stored is not None:
            check_identity(folder, stored, wanted)
        prepared = prepare(question, options, stored and stored["plan"])
        if stored is None:
            plan = prepared.plan
            record = plan_record(plan, options.memory_bytes, prepared.group) if plan else None
            rundir.write_plan({"identity": wanted, "source": question.model.source, "plan": record})
        found = _answered(prepared, options, progress, folder / TABLES)
        rundir.write_result(found.to_dict())
        return found


def prepare(question: Question, options: Options, stored: Mapping[str, Any] | None) -> PreparedMarginals:
    """Preprocess and plan a question; ``stored`` is the plan of an earlier run to be made again."""
    start = time.perf_counter()
    model = with_likelihoods(question.model, question.soft)
    query: Query = "optimum" if question.maximum else "partition"
    network = reduce_model(model, query, question.hard, question.asked.involved)
    targets = local_targets(network, question.asked)
    network = with_joints(network, targets) if network.feasible else network
    arithmetic = optimum_arithmetic(network) if question.maximum else Partition(network)
    if not exact_in_doubles(arithmetic):
        options = replace(options, gpus=None)
    plan = None
    problem = problem_of(network, arithmetic, targets)
    if network.leaves:
        if stored is None:
            plan = plan_for(problem, network, options)
        else:
            plan = stored_plan(problem, _plan_options(network, options), Rates(), stored)
    group = stored["group"] if stored else group_size(plan) if plan else 1
    return PreparedMarginals(question, network, arithmetic, plan, group, time.perf_counter() - start)


def plan_for(problem: Problem, network: Network, options: Options) -> Plan:
    """Plan both sweeps; the machine is asked for its memory only where the plan needs more than next to nothing."""
    if options.memory is options.gpu_memory is None and options.fit != "spill":
        small = _plan_options(network, replace(options, memory=1 << 62))
        plan = whole_plan(problem, small, Rates())
        if plan.peak_bytes <= _SMALL_BYTES:
            return plan
    wanted = _plan_options(network, options)
    if wanted.device:
        around = partial(around_device, options, LINK_BYTES_PER_SECOND)
        return fitted_propagation_for_device(problem, wanted, options.fit, around)
    rate = partial(measured_disk_rate, options.folder)
    return fitted(problem, wanted, Rates(), options.fit, options.disk_bytes, rate).chosen


def _plan_options(network: Network, options: Options) -> PlanOptions:
    return replace(plan_options(network, options), device=options.gpus is not None)


def problem_of(network: Network, arithmetic: Arithmetic[Any], targets: Sequence[Target]) -> Problem:
    """Return what the planner is given."""
    semiring = arithmetic.semiring
    return Problem(network.dims, network.scopes, semiring, semiring.itemsize, network.model.nbytes, tuple(targets))


def with_likelihoods(model: Model, soft: Mapping[int, Array]) -> Model:
    """Add soft evidence as one more function for each of its variables (Pearl 1988, virtual evidence)."""
    return replace(model, functions=(*model.functions, *(Function((v,), w) for v, w in soft.items())))


def _answered(
    prepared: PreparedMarginals, options: Options, progress: Progress | None, folder: Path | None
) -> Marginals:
    """Run a prepared question."""
    start = time.perf_counter()
    question = prepared.question
    with resumable(options.folder):
        beliefs = propagate(prepared, options, progress, folder)
    found = dressed(question.model, prepared.network, prepared.arithmetic, question.asked, beliefs)
    seconds = {"plan": prepared.seconds, "run": time.perf_counter() - start}
    notes = tuple(prepared.notes)
    return replace(found, plan=prepared.plan, seconds=seconds, peak_rss_bytes=peak_rss_bytes(), notes=notes)


def propagate(prepared: PreparedMarginals, options: Options, progress: Progress | None, folder: Path | None) -> Beliefs:
    """Run both sweeps and add the functions without variables."""
    network, plan, arithmetic = prepared.network, prepared.plan, prepared.arithmetic
    fixed = fixed_value(network)
    if fixed is None:
        return Beliefs(None, {})
    offset = fixed if isinstance(arithmetic, Partition | CostOptimum) else -fixed
    if plan is None:
        return Beliefs(offset, {})
    if not plan.device:
        options = replace(options, gpus=None)
    with _pool(plan, options) as pool:
        threads = options.thread_count if isinstance(pool, SerialPool) and plan.seconds > _THREADED_SECONDS else 1
        cut = None if folder or plan.device else cut_for(plan, pool.width, TASK_SECONDS, Rates())
        if plan.spill:
            beliefs = _in_boxes(prepared, plan, options, pool, threads, progress)
        elif cut is not None:
            slices = slices_of(prepared, plan, folder)
            beliefs = whole_beliefs(slices, run_parts(plan, cut, slices.program, pool, _report(plan, progress)))
        else:
            slices = slices_of(prepared, plan, folder)
            if plan.device and not (options.remote and isinstance(pool, SerialPool)):
                sweeps = DeviceSweeps(plan, slices.program.leaves, arithmetic, options.memory_bytes)
                slices = replace(slices, device=sweeps)
            beliefs = sweep_slices(slices, pool, threads, _report(plan, progress))
    return beliefs if beliefs.total is None else replace(beliefs, total=beliefs.total + offset)


def _in_boxes(
    prepared: PreparedMarginals,
    plan: Plan,
    options: Options,
    pool: Pool,
    threads: int,
    progress: Progress | None,
) -> Beliefs:
    """Run in boxes, without a run directory in a temporary folder or, from a device, in host memory."""
    network, arithmetic = prepared.network, prepared.arithmetic
    problem = problem_of(network, arithmetic, ())
    assert plan.spill is not None
    report = progress and accumulated(progress, plan.spill.swept_bytes)
    cells = least_cells(options, problem.semiring) if plan.device else None
    run = Run(network, plan, problem, arithmetic, pool, threads, compiler_pays(plan.cells), report)
    if options.folder is not None:
        check_room(options.folder, plan.spill.disk_bytes - used_bytes(options.folder))
    with nullcontext(options.folder) if options.folder else temporary_folder(plan, options) as place:
        run = replace(run, folder=place, device=plan.device, least_cells=cells, note=prepared.notes.append)
        with opened_boxes(run, TABLES, keep=False) as boxes:
            return propagated(boxes)


def slices_of(prepared: PreparedMarginals, plan: Plan, folder: Path | None) -> Slices[Any]:
    """Build the leaf tables and what else the tasks share."""
    arithmetic = prepared.arithmetic
    sweeps = build_sweeps(prepared.network, plan, arithmetic, compiler_pays(plan.cells))
    return Slices(
        sweeps, plan.results, plan.tree.roots, plan.sliced, prepared.group, arithmetic, folder and folder.absolute()
    )


def _report(plan: Plan, progress: Progress | None) -> Callable[[int, int], None] | None:
    """Turn finished groups into bytes."""
    if progress is None:
        return None
    moved = plan.slices * sum(step_bytes(step, plan.tree.dims, plan.itemsize) for step in plan.steps)
    return lambda done, groups: progress(moved * done // groups, moved)


def _pool(plan: Plan, options: Options) -> AbstractContextManager[Pool]:
    """Workers for slices, boxes or parts; serial unless a cluster was asked for and there is enough for it.

    One propagation is for one device, that of this process or of a worker.
    """
    if plan.device and plan.spill:
        return pool_for(options, plan, TASK_SECONDS)
    if not options.distributed or run_seconds(plan) < 2 * TASK_SECONDS:
        return serial_pool(options)
    if plan.device and not options.remote and plan.slices == 1:
        return serial_pool(options)
    if not plan.device and plan.slices == 1 and not plan.spill and not _spread_pays(plan, options):
        return serial_pool(options)
    return DaskPools(options)


def _spread_pays(plan: Plan, options: Options) -> bool:
    """Whether the parts of one propagation are worth starting workers, where all of its tables fit into one."""
    if options.folder is not None or cut_for(plan, options.workers or 2, TASK_SECONDS, Rates()) is None:
        return False
    return plan.kept_bytes <= options.memory_bytes
