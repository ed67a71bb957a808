"""Running a plan in parts: each goes up in a task, and back in another beside the tables that it kept.

If steps are requested as tasks, each step is a task that needs the futures of its input tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Final, Generic, TypeVar

from ...cluster.dask_pool import DaskPool
from ...cluster.pool import Pool, TaskLabel
from ...tasks.steps.light_dataclass import dataclass
from ...tasks.steps.lowering import SMALL_CELLS
from ...tasks.steps.step import Step
from ...tasks.sweeps.program import Program, pick, run_part, run_step, together
from ...tasks.sweeps.sweep import freed_tables
from ..plans.plan import Plan
from ..plans.stages import Parts, Task
from ..plans.worker_parts import parts_of
from .run import Run

T = TypeVar("T")

_COLLECT: Final = TaskLabel("collect")


@dataclass
class Swept(Generic[T]):
    """Parts that are on their way, or done.

    Parameters
    ----------
    pool : Pool
    parts : Parts
    programs : dict of int to handle
        Of every part, by its head.
    inputs : mapping of task to tuple of int
        The tables of other parts that a task reads.
    tasks : dict of task to handle
        What each returns: the tables that others need.
    tables : dict of int to table
        Roots and results; of one part that was kept, leaf tables and messages too.
    made : dict of int to handle
        Where each step was a task, those tables that are still needed.
    device : bool
        Whether these may be on a device.
    """

    pool: Pool
    parts: Parts
    programs: dict[int, Any]
    inputs: Mapping[Task, tuple[int, ...]]
    tasks: dict[Task, Any]
    tables: dict[int, T]
    made: dict[int, Any] = field(default_factory=dict)
    device: bool = False

    def picked(self, wanted: Iterable[int]) -> list[Any]:
        """Return handles of tables that tasks made, a dict from each of the tasks."""
        if self.made:
            numbers = tuple(wanted)
            made = [self.made[i] for i in numbers]
            return [self.pool.submit(self._collector, numbers, *made, label=_COLLECT)] if numbers else []
        sources: dict[Task, list[int]] = defaultdict(list)
        for i in wanted:
            sources[self.parts.makers[i]].append(i)
        return [self.pool.submit(pick, self.tasks[task], numbers, label=_COLLECT) for task, numbers in sources.items()]

    @property
    def _collector(self) -> Callable[..., dict[int, T]]:
        """The task that puts tables of others together, in the host's memory."""
        if not self.device:
            return together
        from ...tasks.rows.device_algebra import together_here

        return together_here


def sweep_parts(run: Run[T], *, keep: bool = False) -> Swept[T]:
    """Run all parts on the pool of a run, one way or both.

    Parameters
    ----------
    run : Run
    keep : bool
        Whether the tables of a single part stay for decoding.

    Returns
    -------
    Swept
        Equal, bit for bit, to the sweep of a single task.
    """
    if run.by_steps:
        return _sweep_steps(run, keep)
    plan, pool, parts = run.plan, run.pool, parts_of(run.plan)
    if run.devices > 1:
        from .row_devices import swept_on_devices

        if (tables := swept_on_devices(run, keep=keep)) is not None:
            return Swept(pool, parts, {}, {}, {}, tables)
    program, keep = run.program(plan.steps, plan.outputs), keep and not plan.cuts
    steps: dict[Task, list[Step]] = {(head, up): [] for up in (True, False) for head in parts.heads}
    for step in plan.steps:
        steps[parts.makers[step.node]].append(step)
    programs = {head: pool.put(program.part([*steps[head, True], *steps[head, False]])) for head in parts.heads}
    swept: Swept[T] = Swept(pool, parts, programs, _inputs(parts, steps), {}, {})
    outputs = _outputs(plan, swept)
    for task in [*((head, True) for head in parts.heads), *((head, False) for head in reversed(parts.heads))]:
        if not steps[task]:
            continue
        # a part distributes where it collected, beside the tables it kept
        beside = [] if task[1] else [swept.tasks[task[0], True]]
        nodes = tuple(step.node for step in steps[task])
        how = (tuple(outputs[task]), keep, run.threads, run.on_table())
        messages = swept.picked(swept.inputs[task])
        number, way = parts.heads.index(task[0]) + 1, "up" if task[1] else "back"
        cells = sum([plan.step_cells(step) for step in steps[task]])
        label = TaskLabel(f"part-{number}of{len(parts.heads)}-{way}", way, cells)
        swept.tasks[task] = pool.submit(run_part, programs[task[0]], nodes, *how, *beside, *messages, label=label)
    _collect(run, swept, swept.picked(i for i in plan.outputs if i in parts.makers))
    swept.tables.update({i: program.leaves[i] for i in plan.outputs if i not in parts.makers})
    if keep:
        swept.tables.update({**program.leaves, **pool.get(swept.tasks[-1, True])})
    return swept


def _sweep_steps(run: Run[T], keep: bool) -> Swept[T]:
    """Submit each step as a task; with ``keep`` the tables stay that decoding reads, where they are.

    All are submitted at once, in the order of the sweep, which is their priority too. Who submits holds only what is
    still to be read, so that Dask drops a table after its last reader, as a sweep does.
    """
    plan, pool, parts = run.plan, run.pool, parts_of(run.plan)
    program, whole = run.program(plan.steps, plan.outputs), keep and not plan.cuts
    swept: Swept[T] = Swept(pool, parts, {}, {}, {}, {}, device=run.device)
    kept = {step.node for step in plan.steps} if whole else {*plan.outputs}
    if whole:
        swept.programs[-1] = pool.put(program)
    elif keep:
        steps: dict[Task, list[Step]] = {(head, True): [] for head in parts.heads}
        for step in plan.up:
            steps[parts.makers[step.node]].append(step)
        swept.programs.update({head: pool.put(program.part(steps[head, True])) for head in parts.heads})
        swept.inputs = _inputs(parts, steps)
        kept.update(i for read in swept.inputs.values() for i in read)
    _submit_steps(run, program, swept.made, kept)
    made = [i for i in plan.outputs if i in swept.made]
    _collect(run, swept, swept.picked(made))
    swept.tables.update({i: program.leaves[i] for i in plan.outputs if i not in swept.made})
    return swept


def _submit_steps(run: Run[T], program: Program[T], made: dict[int, Any], kept: set[int]) -> None:
    """Submit the steps of a program; those tables are in ``made`` afterwards that are to be kept."""
    assert isinstance(run.pool, DaskPool)
    batch, sent, (labels,) = run.pool.batch(run_step), dict[int, Any](), run.labels

    def submit(position: int, step: Step) -> Any:
        with_it = {}
        for i in step.inputs:
            if i in made or i in sent:
                continue
            # a small leaf table goes with the steps that read it; a larger one is sent once, for all of these
            if prod(program.dims[v] for v in program.leaf_axes[i]) <= SMALL_CELLS:
                with_it[i] = program.leaves[i]
            else:
                sent[i] = batch.put(program.leaves[i], TaskLabel(f"load-function_{i}"))
        read = tuple(dict.fromkeys(i for i in step.inputs if i not in with_it))
        tables = [made[i] if i in made else sent[i] for i in read]
        with_label = labels[position]
        return batch.submit(run_step, step, program.algebra, run.threads, read, with_it, *tables, label=with_label)

    submit_steps(program.steps, kept, made, submit, sent)
    made.update(batch.send(made))


def submit_steps(
    steps: Sequence[Step],
    kept: Collection[int],
    made: dict[int, Any],
    submit: Callable[[int, Step], Any],
    sent: dict[int, Any] | None = None,
) -> None:
    """Submit steps in their order, which is their priority too.

    Who submits holds only what is still to be read, so that Dask drops a table after its last reader, as a sweep does.

    Parameters
    ----------
    kept : collection of int
        Tables that are read afterwards.
    made : dict of int to handle
        Handles of the tables that tasks make; at the end, of the tables to keep.
    submit : callable
        Submits a step, given with its position.
    sent : dict of int to handle, optional
        Leaf tables that ``submit`` sends, which are dropped in the same way.
    """
    for position, (step, gone) in enumerate(zip(steps, freed_tables(steps, kept), strict=True)):
        made[step.node] = submit(position, step)
        for i in gone:
            made.pop(i, None)
            if sent:
                sent.pop(i, None)


def _collect(run: Run[Any], swept: Swept[Any], answers: list[Any]) -> None:
    """Fetch the tables that are asked for."""
    cells = run.plan.reported_cells
    if not run.serial:
        run.report(0)
    for handle in answers:
        swept.tables.update(run.pool.get(handle))
        if not run.serial:
            run.report(cells // len(answers))
    run.report(cells)


def _inputs(parts: Parts, steps: Mapping[Task, list[Step]]) -> dict[Task, tuple[int, ...]]:
    """For every task the tables of other parts that it reads."""
    makers = parts.makers
    if len(parts.heads) == 1:
        return dict.fromkeys(steps, ())
    return {
        task: tuple(dict.fromkeys(i for s in own for i in s.inputs if i in makers and makers[i][0] != task[0]))
        for task, own in steps.items()
    }


def _outputs(plan: Plan, swept: Swept[Any]) -> dict[Task, set[int]]:
    """For every task the tables that it keeps for others, for the way back and for the answer."""
    makers = swept.parts.makers
    needed: dict[Task, set[int]] = defaultdict(set)
    for i in plan.outputs:
        if i in makers:
            needed[makers[i]].add(i)
    if len(swept.programs) == 1 and not plan.back:
        return needed
    for step in plan.steps:
        for i in step.inputs:
            if i in makers and makers[i] != makers[step.node]:
                needed[makers[i]].add(i)
    return needed
